//! When state goes out, and to whom.

use super::stage::{Stage, every, open_settings};
use throng_channeld::proto::unrealpb::{FVector, SpawnObjectMessage};
use throng_channeld::proto::{
    Any, ChannelDataAccess, ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType,
};
use throng_channeld::{Header, message_type};
use throng_gateway_engine::port::{EndCause, Side};

/// A state with a number in it that tells updates apart.
fn number(value: u32) -> Any {
    Any::pack(&SpawnObjectMessage { channel_id: Some(value), ..Default::default() })
}

fn roll(value: u32) -> Any {
    let location = FVector { x: Some(value as f32), ..Default::default() };
    Any::pack(&SpawnObjectMessage { location: Some(location), ..Default::default() })
}

fn numbers(stage: &mut Stage, peer: &super::stage::Peer, channel: u32) -> Vec<u32> {
    stage.updates::<SpawnObjectMessage>(peer, channel).iter().filter_map(|update| update.channel_id).collect()
}

#[test]
fn updates_come_at_the_end_of_each_subscribers_own_windows() {
    let mut stage = Stage::new(super::stage::settings(&["-dev", "-chs", "hifi"]));
    let owner = stage.server();
    let channel = stage.create(&owner, ChannelType::Subworld, Some(number(0)));
    let (fast, slow) = (stage.server(), stage.server());
    stage.subscribe(&owner, &fast, channel, every(40));
    stage.subscribe(&owner, &slow, channel, every(100));
    stage.read(&fast);
    stage.read(&slow);
    let mut seen = [Vec::new(), Vec::new()];
    for ms in 1..=320 {
        match ms {
            60 => stage.update(&owner, channel, number(1)),
            130 => stage.update(&owner, channel, number(2)),
            245 => stage.update(&owner, channel, number(3)),
            _ => {}
        }
        stage.pass(1);
        for (peer, seen) in [&fast, &slow].into_iter().zip(&mut seen) {
            seen.extend(numbers(&mut stage, peer, channel).into_iter().map(|value| (ms, value)));
        }
    }
    assert_eq!(seen[0], [(40, 0), (80, 1), (160, 2), (280, 3)]);
    assert_eq!(seen[1], [(100, 1), (200, 2), (300, 3)], "the first is everything, as it is then");
}

#[test]
fn a_turn_that_is_late_takes_along_what_has_come_meanwhile() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    let channels = [(); 2].map(|()| stage.create(&owner, ChannelType::Test, Some(number(0))));
    let client = stage.client();
    for channel in channels {
        stage.subscribe(&owner, &client, channel, every(40));
    }
    stage.pass(207);
    stage.read(&client);
    // Both have news in this turn.
    for channel in channels {
        stage.update(&owner, channel, number(1));
    }
    let is_told = (0..40).any(|_| {
        stage.pass(1);
        !numbers(&mut stage, &client, channels[0]).is_empty()
    });
    assert!(is_told);
    stage.pass(35);
    stage.update(&owner, channels[0], number(2));
    // The gateway is busy until 4 ms after the turn.
    stage.now = stage.now.after(std::time::Duration::from_millis(9));
    let update = ChannelDataUpdateMessage { data: Some(number(3)), context_conn_id: 0 };
    stage.write_message(&owner, Header::new(channels[1], message_type::CHANNEL_DATA_UPDATE), &update);
    stage.settle();
    let told = stage.read_type(&client, message_type::CHANNEL_DATA_UPDATE);
    assert_eq!(told.iter().map(|message| message.channel_id).collect::<Vec<u32>>(), channels);
}

#[test]
fn a_writer_is_not_told_its_own_updates_but_all_others() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    let channel = stage.create(&owner, ChannelType::Test, None);
    let (a, b) = (stage.client(), stage.client());
    let write = ChannelSubscriptionOptions {
        data_access: Some(ChannelDataAccess::WriteAccess.into()),
        fan_out_interval_ms: Some(20),
        ..Default::default()
    };
    for peer in [&a, &b] {
        stage.subscribe(peer, peer, channel, write.clone());
    }
    stage.pass(100);
    for peer in [&a, &b, &owner] {
        stage.read(peer);
    }
    stage.update(&a, channel, number(5));
    stage.update(&b, channel, roll(6));
    stage.pass(100);
    let to_a = stage.updates::<SpawnObjectMessage>(&a, channel);
    let to_b = stage.updates::<SpawnObjectMessage>(&b, channel);
    assert_eq!(to_a.iter().map(|u| (u.channel_id, u.location.is_some())).collect::<Vec<_>>(), [(None, true)]);
    assert_eq!(to_b.iter().map(|u| (u.channel_id, u.location.is_some())).collect::<Vec<_>>(), [(Some(5), false)]);
}

#[test]
fn a_client_that_stops_reading_delays_nobody_and_later_gets_the_newest_state() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    let (quick, stuck) = (stage.client(), stage.client());
    for peer in [&quick, &stuck] {
        stage.subscribe(peer, peer, 0, every(20));
    }
    stage.update(&owner, 0, number(0));
    stage.pass(50);
    stuck.stop_reading();
    stage.read(&stuck);
    let big = |value: u32| {
        Any::pack(&SpawnObjectMessage {
            obj: Some(throng_channeld::proto::unrealpb::UnrealObjectRef {
                class_path: Some("x".repeat(10_000)),
                ..Default::default()
            }),
            channel_id: Some(value),
            ..Default::default()
        })
    };
    let mut delivered = 0;
    for value in 1..=200 {
        stage.update(&owner, 0, big(value));
        stage.pass(20);
        delivered += numbers(&mut stage, &quick, 0).len();
    }
    assert!(delivered >= 199, "{delivered}");
    let waiting = stuck.line.lock().unwrap().bytes.len();
    assert!(waiting < 200_000, "{waiting} bytes wait for who does not read");
    stuck.read_on();
    stage.read(&stuck);
    stage.pass(40);
    assert_eq!(numbers(&mut stage, &stuck, 0), [200]);
}

#[test]
fn a_client_that_never_reads_again_is_disconnected() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    let stuck = stage.client();
    stage.subscribe(&stuck, &stuck, 0, every(20));
    stage.pass(50);
    stuck.stop_reading();
    for value in 0..2_000 {
        stage.update(&owner, 0, roll(value));
        stage.pass(20);
    }
    assert!(!stuck.is_closed(), "little waits: its messages can be kept");
    let forward =
        throng_channeld::proto::ServerForwardMessage { client_conn_id: stuck.id, payload: vec![7; 60_000].into() };
    for _ in 0..100 {
        let header = throng_channeld::Header { channel_id: 0, broadcast: 1, stub_id: 0, msg_type: 200 };
        stage.say(&owner, header, &forward);
        stage.pass(20);
        stage.update(&owner, 0, roll(1));
    }
    assert!(stuck.is_closed());
    assert_eq!(stage.engine.counters().too_slow, 1);
}

#[test]
fn a_slow_client_counts_once_whether_the_engine_closes_it_or_the_shell() {
    let mut stage = Stage::new(open_settings());
    stage.master();
    let (stuck, honest) = (stage.client(), stage.client());
    stage.drop_connection(&stuck, EndCause::Stalled);
    stage.drop_connection(&stuck, EndCause::Stalled);
    stage.drop_connection(&honest, EndCause::PeerClosed);
    assert_eq!(stage.engine.counters().too_slow, 1);
}

#[test]
fn the_last_word_is_told_before_the_gateway_ends_whoevers_turn_it_is() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    let (often, seldom) = (stage.client(), stage.client());
    stage.subscribe(&often, &often, 0, every(20));
    stage.subscribe(&seldom, &seldom, 0, every(10_000));
    stage.update(&owner, 0, number(1));
    stage.pass(10_100);
    assert_eq!([&often, &seldom].map(|peer| numbers(&mut stage, peer, 0)), [[1], [1]]);
    stage.update(&owner, 0, number(2));
    stage.engine.shut_down(stage.now);
    stage.settle();
    assert_eq!([&often, &seldom].map(|peer| numbers(&mut stage, peer, 0)), [[2], [2]]);
    assert!(often.is_closed() && seldom.is_closed());
}

#[test]
fn a_client_that_reads_again_is_served_even_if_nothing_else_happens() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    let client = stage.client();
    stage.subscribe(&client, &client, 0, every(20));
    stage.update(&owner, 0, number(1));
    stage.pass(100);
    stage.read(&client);
    client.stall(1 << 20);
    stage.update(&owner, 0, number(2));
    stage.pass(5_000);
    assert_eq!(numbers(&mut stage, &client, 0), [0; 0]);
    client.read_on();
    stage.pass(50);
    assert_eq!(numbers(&mut stage, &client, 0), [2]);
    stage.pass(10_000);
    assert!(stage.is_at_rest(), "then there is nothing left to look at");
}

#[test]
fn a_client_that_stops_reading_in_a_silent_gateway_is_disconnected_as_well() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    let client = stage.client();
    client.stall(1 << 20);
    let forward =
        throng_channeld::proto::ServerForwardMessage { client_conn_id: client.id, payload: "the last word".into() };
    stage.say(&owner, throng_channeld::Header { channel_id: 0, broadcast: 1, stub_id: 0, msg_type: 200 }, &forward);
    stage.pass(29_000);
    assert!(!client.is_closed());
    stage.pass(2_000);
    assert!(client.is_closed());
}

#[test]
fn a_subscriber_that_skips_the_first_state_gets_only_later_changes() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    let first = stage.client();
    stage.subscribe(&first, &first, 0, every(20));
    stage.pass(100);
    let skips = ChannelSubscriptionOptions { skip_first_fan_out: Some(true), ..every(20) };
    for round in 0..20 {
        // All within one millisecond: a change before, the subscription, a change after.
        stage.update(&owner, 0, number(1_000 + round));
        let late = stage.join_as(Side::Client, "late");
        stage.subscribe(&late, &late, 0, skips.clone());
        stage.update(&owner, 0, roll(round));
        stage.pass(60);
        let came = stage.updates::<SpawnObjectMessage>(&late, 0);
        let came: Vec<_> = came.iter().map(|u| (u.channel_id, u.location.map(|l| l.x()))).collect();
        assert_eq!(came, [(None, Some(round as f32))], "round {round}");
        let seen = stage.updates::<SpawnObjectMessage>(&first, 0);
        assert!(seen.iter().any(|u| u.channel_id == Some(1_000 + round)), "round {round}");
        assert!(seen.iter().any(|u| u.location.is_some()), "round {round}");
    }
}

#[test]
fn nothing_is_planned_while_nothing_changes() {
    let mut stage = Stage::new(open_settings());
    stage.master();
    for _ in 0..50 {
        let client = stage.client();
        stage.subscribe(&client, &client, 0, every(20));
    }
    stage.pass(6_000);
    let steps = stage.engine.counters().steps;
    stage.pass(60_000);
    assert_eq!(stage.engine.counters().steps, steps);
    assert!(stage.is_at_rest());
}

#[test]
fn everybody_at_one_point_shares_one_frame() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    let clients: Vec<_> = (0..100).map(|_| stage.client()).collect();
    for client in &clients {
        stage.subscribe(client, client, 0, every(20));
    }
    stage.update(&owner, 0, number(1));
    stage.pass(100);
    let before = stage.engine_of(Side::Client).counters().clone();
    for value in 0..50 {
        stage.update(&owner, 0, number(value));
        stage.pass(20);
    }
    let after = stage.engine_of(Side::Client).counters();
    assert!(after.delivered_updates - before.delivered_updates >= 4_900);
    assert!(after.frames - before.frames <= 120, "{} frames", after.frames - before.frames);
}

#[test]
fn a_state_of_several_packets_reaches_who_comes_late() {
    use throng_channeld::proto::unrealpb::{SpatialChannelData, SpatialEntityState};
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    let entity = |entity: u32| (entity, SpatialEntityState { removed: false, ..Default::default() });
    let all = SpatialChannelData { entities: (1..=40_000).map(entity).collect() };
    stage.update(&owner, 0, Any::pack(&all));
    let late = stage.join_as(Side::Client, "late");
    stage.subscribe(&late, &late, 0, every(20));
    stage.pass(100);
    let chunks = stage.read_type(&late, message_type::CHANNEL_DATA_UPDATE);
    assert!(chunks.len() > 1);
    assert!(chunks.iter().all(|chunk| chunk.body.len() < 65_000));
    let mut known = std::collections::BTreeSet::new();
    for chunk in chunks {
        let update: throng_channeld::proto::ChannelDataUpdateMessage = chunk.decode().expect("an update");
        let data: SpatialChannelData = prost::Message::decode(update.data.expect("data").value).expect("its type");
        known.extend(data.entities.into_keys());
    }
    assert_eq!(known.len(), 40_000);
}
