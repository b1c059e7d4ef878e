//! First states that are larger than what may wait for a connection at all.

use std::collections::BTreeMap;

use crate::stage::{Peer, Stage, every, open_settings};
use prost::Message as _;
use throng_channeld::proto::unrealpb::unreal_object_ref::GuidCachedObject;
use throng_channeld::proto::unrealpb::{SpatialChannelData, SpatialEntityState, UnrealObjectRef};
use throng_channeld::proto::{
    Any, AuthMessage, ChannelDataRecoveryMessage, ChannelDataUpdateMessage, ChannelType, UnsubscribedFromChannelMessage,
};
use throng_channeld::{Header, Message, message_type};
use throng_gateway_engine::port::{EndCause, Side};

/// A large object with a version in it.
fn object(id: u32, version: u32) -> (u32, SpatialEntityState) {
    let class_path = format!("{version}:{}", "x".repeat(1_000));
    let object = UnrealObjectRef { net_guid: Some(id), class_path: Some(class_path), ..Default::default() };
    (id, SpatialEntityState { obj_ref: Some(object), ..Default::default() })
}

/// This many objects of a kilobyte each, of one version.
fn write(stage: &mut Stage, owner: &Peer, channel: u32, ids: std::ops::Range<u32>, version: u32) {
    for begin in ids.clone().step_by(50) {
        let entities = (begin..(begin + 50).min(ids.end)).map(|id| object(id, version)).collect();
        stage.update(owner, channel, Any::pack(&SpatialChannelData { entities }));
    }
}

/// A client that is subscribed to GLOBAL, by its own request or another's, and does not read.
fn latecomer(stage: &mut Stage, subscriber: Option<&Peer>) -> Peer {
    let late = stage.client();
    late.stop_reading();
    stage.subscribe(subscriber.unwrap_or(&late), &late, 0, every(20));
    late
}

fn hear(stage: &mut Stage, peer: &Peer, channel: u32, known: &mut BTreeMap<u32, SpatialEntityState>) -> usize {
    let bytes = peer.line.lock().unwrap().bytes.len();
    for data in stage.updates::<SpatialChannelData>(peer, channel) {
        known.extend(data.entities);
    }
    bytes
}

#[test]
fn a_state_of_12_mb_reaches_a_client_that_takes_2_mb_a_second_in_slices() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    write(&mut stage, &owner, 0, 0..12_000, 1);
    let late = latecomer(&mut stage, None);
    let mut known = BTreeMap::new();
    let mut most_waiting = 0;
    for ms in (0..10_000).step_by(20) {
        stage.pass(20);
        hear(&mut stage, &late, 0, &mut known);
        most_waiting = most_waiting.max(late.waiting());
        late.takes(40_000);
        if ms == 2_000 {
            // Changes that happen meanwhile come after the rest, and are not overtaken by it.
            write(&mut stage, &owner, 0, 0..100, 2);
            write(&mut stage, &owner, 0, 11_900..12_000, 2);
        }
    }
    assert!(!late.is_closed(), "it took what it could");
    let version = |id: u32| if (100..11_900).contains(&id) { 1 } else { 2 };
    assert_eq!(known, (0..12_000).map(|id| object(id, version(id))).collect());
    assert!(most_waiting <= 2 << 20, "{most_waiting} bytes waited at once");
    assert_eq!(stage.engine.counters().too_slow, 0);
    stage.pass(10_000);
    assert!(stage.is_at_rest(), "then there is nothing left to look at");
}

#[test]
fn many_channels_at_once_are_sliced_as_one_large_one_is() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    let channels: Vec<u32> = (0..60).map(|_| stage.create(&owner, ChannelType::Test, None)).collect();
    for &channel in &channels {
        write(&mut stage, &owner, channel, 0..100, 1);
    }
    let late = stage.client();
    late.stop_reading();
    for &channel in &channels {
        stage.subscribe(&late, &late, channel, every(20));
    }
    let mut seen = BTreeMap::new();
    for _ in 0..400 {
        stage.pass(20);
        for message in stage.read_type(&late, message_type::CHANNEL_DATA_UPDATE) {
            *seen.entry(message.channel_id).or_insert(0) += message.body.len();
        }
        late.takes(60_000);
    }
    assert!(!late.is_closed());
    assert!(channels.iter().all(|channel| seen.get(channel).is_some_and(|&bytes| bytes > 100_000)), "{seen:?}");
}

#[test]
fn nothing_more_comes_of_a_channel_that_was_left_before_all_of_it_had_come() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    write(&mut stage, &owner, 0, 0..12_000, 1);
    let late = latecomer(&mut stage, None);
    stage.pass(100);
    let leave = UnsubscribedFromChannelMessage { conn_id: late.id };
    stage.say(&late, Header::new(0, message_type::UNSUB_FROM_CHANNEL), &leave);
    stage.read(&late);
    late.read_on();
    stage.pass(1_000);
    assert_eq!(stage.read(&late).len(), 0);
    // A client that comes again gets everything.
    stage.subscribe(&late, &late, 0, every(20));
    let mut known = BTreeMap::new();
    stage.pass(5_000);
    hear(&mut stage, &late, 0, &mut known);
    assert_eq!(known.len(), 12_000);
}

#[test]
fn a_recovered_server_is_told_of_more_than_may_wait_for_it_channel_by_channel() {
    let bounds = ["-limit", "server_queue_soft_bytes=200000", "-limit", "server_queue_hard_bytes=2000000"];
    let mut stage = Stage::new(crate::stage::settings(&[&["-dev", "-chs=ue", "-scr"][..], &bounds].concat()));
    let owner = stage.join_as(Side::Server, "world");
    let rooms: Vec<u32> = (0..20).map(|_| stage.create(&owner, ChannelType::Test, None)).collect();
    for &room in &rooms {
        write(&mut stage, &owner, room, 0..500, 1);
    }
    stage.drop_connection(&owner, EndCause::Lost);

    let back = stage.connect(Side::Server);
    back.stop_reading();
    let auth = AuthMessage { player_identifier_token: "world".into(), ..Default::default() };
    stage.say(&back, Header::new(0, message_type::AUTH), &auth);
    let mut told = Vec::new();
    let mut most_waiting = 0;
    for _ in 0..500 {
        stage.pass(20);
        told.extend(stage.read(&back));
        most_waiting = most_waiting.max(back.waiting());
        back.takes(100_000);
    }
    assert!(!back.is_closed() && most_waiting < 2_000_000, "{most_waiting} bytes waited");
    let mut known: BTreeMap<u32, BTreeMap<u32, SpatialEntityState>> = BTreeMap::new();
    let mut is_over = false;
    for message in &told {
        let data = match message.msg_type {
            message_type::RECOVERY_CHANNEL_DATA => {
                assert!(!is_over);
                message.decode::<ChannelDataRecoveryMessage>().expect("a channel").channel_data
            }
            message_type::CHANNEL_DATA_UPDATE => message.decode::<ChannelDataUpdateMessage>().expect("state").data,
            message_type::RECOVERY_END => {
                is_over = true;
                continue;
            }
            _ => continue,
        };
        let state = SpatialChannelData::decode(data.expect("state").value).expect("the type of the room");
        known.entry(message.channel_id).or_default().extend(state.entities);
    }
    assert!(is_over);
    let whole: BTreeMap<u32, SpatialEntityState> = (0..500).map(|id| object(id, 1)).collect();
    assert!(rooms.iter().all(|room| known.get(room) == Some(&whole)));
    stage.pass(10_000);
    assert!(stage.is_at_rest(), "then there is nothing left to look at");
}

#[test]
fn a_recovered_server_that_takes_long_is_told_of_what_is_its_by_then_and_no_element_twice() {
    let bounds = ["-limit", "server_queue_soft_bytes=200000", "-limit", "server_queue_hard_bytes=2000000"];
    let mut stage = Stage::new(crate::stage::settings(&[&["-dev", "-chs=ue", "-scr"][..], &bounds].concat()));
    let (owner, other) = (stage.join_as(Side::Server, "world"), stage.join_as(Side::Server, "other"));
    let list = |begin: u32, count: u32| {
        let path_name = |number: u32| format!("{number}:{}", "x".repeat(1_000));
        let cached = |number| GuidCachedObject { path_name: path_name(number), ..Default::default() };
        Any::pack(&UnrealObjectRef { context: (begin..begin + count).map(cached).collect(), ..Default::default() })
    };
    let rooms: Vec<u32> = (0..60).map(|_| stage.create(&other, ChannelType::Test, Some(list(0, 40)))).collect();
    for &room in &rooms {
        stage.subscribe(&owner, &owner, room, every(20));
    }
    stage.pass(100);
    stage.drop_connection(&owner, EndCause::Lost);
    let back = stage.connect(Side::Server);
    back.stop_reading();
    let auth = AuthMessage { player_identifier_token: "world".into(), ..Default::default() };
    stage.say(&back, Header::new(0, message_type::AUTH), &auth);
    let mut told = stage.read(&back);
    assert!(told.iter().all(|message| message.msg_type != message_type::RECOVERY_END), "it takes long");
    // Meanwhile all grow but one that it leaves.
    for &room in &rooms[..59] {
        stage.update(&other, room, list(40, 1));
    }
    stage.say(
        &back,
        Header::new(rooms[59], message_type::UNSUB_FROM_CHANNEL),
        &UnsubscribedFromChannelMessage::default(),
    );
    for _ in 0..500 {
        stage.pass(20);
        told.extend(stage.read(&back));
        back.takes(100_000);
    }
    let mut known: BTreeMap<u32, usize> = BTreeMap::new();
    for message in &told {
        let data = match message.msg_type {
            message_type::RECOVERY_CHANNEL_DATA => {
                message.decode::<ChannelDataRecoveryMessage>().expect("a channel").channel_data
            }
            message_type::CHANNEL_DATA_UPDATE => message.decode::<ChannelDataUpdateMessage>().expect("state").data,
            _ => continue,
        };
        let state = UnrealObjectRef::decode(data.expect("state").value).expect("the type of the room");
        *known.entry(message.channel_id).or_default() += state.context.len();
    }
    assert_eq!(known, rooms[..59].iter().map(|&room| (room, 41)).collect());
}

#[test]
fn a_client_that_reads_a_little_again_and_again_is_disconnected_before_removals_are_forgotten() {
    let mut stage = Stage::new(crate::stage::settings(&["-dev", "-limit", "max_backlog_ms=120000"]));
    let owner = stage.master();
    write(&mut stage, &owner, 0, 0..12_000, 1);
    let late = latecomer(&mut stage, Some(&owner));
    let mut ended_at_s = None;
    for second in 0..400 {
        stage.pass(1_000);
        // Never over its soft bound for long, and never done.
        if second % 25 == 0 {
            late.takes(60_000);
        }
        if late.is_closed() {
            ended_at_s.get_or_insert(second);
        }
    }
    assert!(matches!(ended_at_s, Some(119..=125)), "{ended_at_s:?}");
    assert_eq!((stage.engine.counters().too_slow, stage.refused("backlog_ms")), (1, 1));
}

#[test]
fn a_subscriber_that_missed_a_forgotten_removal_has_to_start_again() {
    let mut stage = Stage::new(crate::stage::settings(&["-dev"]));
    let owner = stage.master();
    stage.create_with_removals(&owner);
    let entities = |ids: std::ops::Range<u32>, removed: bool| {
        let state = |id| (id, SpatialEntityState { removed, ..Default::default() });
        Any::pack(&SpatialChannelData { entities: ids.map(state).collect() })
    };
    let away = stage.client();
    stage.subscribe(&owner, &away, 1, every(20));
    stage.update(&owner, 1, entities(0..3, false));
    stage.pass(100);
    let mut known = BTreeMap::new();
    hear(&mut stage, &away, 1, &mut known);
    assert_eq!(known.len(), 3);
    // While it is away for ten seconds, more is removed than a state remembers.
    away.stall(200_000);
    stage.update(&owner, 1, entities(0..1, true));
    for begin in (0..90_000).step_by(1_000) {
        for removed in [false, true] {
            stage.update(&owner, 1, entities(10 + begin..1_010 + begin, removed));
        }
        stage.pass(100);
    }
    stage.read(&owner);
    away.read_on();
    stage.pass(200);
    let told: Vec<Message> = stage.read(&away).into_iter().filter(|message| message.channel_id == 1).collect();
    let kinds: Vec<u32> = told.iter().take(3).map(|message| message.msg_type).collect();
    let expected = [message_type::UNSUB_FROM_CHANNEL, message_type::SUB_TO_CHANNEL, message_type::CHANNEL_DATA_UPDATE];
    assert_eq!(kinds, expected);
    let update: ChannelDataUpdateMessage = told[2].decode().expect("an update");
    let state = SpatialChannelData::decode(update.data.expect("state").value).expect("the type of the channel");
    assert_eq!(state.entities.into_keys().collect::<std::collections::BTreeSet<_>>(), [1, 2].into());
    assert_eq!(stage.read_type(&owner, message_type::UNSUB_FROM_CHANNEL).len(), 0, "nothing has changed for others");
    assert_eq!(stage.engine.counters().renewed, 1);
}

#[test]
fn what_is_kept_for_all_backlogs_together_is_bounded() {
    let mut stage = Stage::new(crate::stage::settings(&["-dev", "-limit", "max_backlog_bytes=16000000"]));
    let owner = stage.master();
    write(&mut stage, &owner, 0, 0..12_000, 1);
    let join = |stage: &mut Stage| latecomer(stage, Some(&owner));
    // Several at one point have one frame: it is kept once.
    let together: Vec<Peer> = (0..8).map(|_| join(&mut stage)).collect();
    stage.pass(3_000);
    assert!(together.iter().all(|late| !late.is_closed()));
    write(&mut stage, &owner, 0, 0..1, 2);
    let next = join(&mut stage);
    stage.pass(2_000);
    assert!(next.is_closed() && together.iter().all(|late| !late.is_closed()), "it had the most for itself");
    assert_eq!((stage.engine.counters().too_slow, stage.refused("backlog_bytes")), (1, 1));
}

#[test]
fn each_second_it_is_looked_whether_all_backlogs_together_are_too_large() {
    let mut stage = Stage::new(crate::stage::settings(&["-dev", "-limit", "max_backlog_bytes=16000000"]));
    let owner = stage.master();
    write(&mut stage, &owner, 0, 0..12_000, 1);
    let together: Vec<Peer> = (0..8).map(|_| latecomer(&mut stage, Some(&owner))).collect();
    stage.pass(100);
    let mut ends = Vec::new();
    for version in 2..5 {
        write(&mut stage, &owner, 0, 0..1, version);
        let next = latecomer(&mut stage, Some(&owner));
        for _ in 0..1_000 {
            if !next.is_closed() {
                stage.pass(5);
            }
        }
        assert!(next.is_closed());
        ends.push(stage.now.0);
    }
    assert!(together.iter().all(|late| !late.is_closed()));
    let waits_ms: Vec<u64> = ends.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000).collect();
    assert_eq!(waits_ms, [1_000, 1_000]);
}

#[test]
fn a_client_that_reads_nothing_of_it_is_disconnected_too() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    write(&mut stage, &owner, 0, 0..12_000, 1);
    let stuck = stage.client();
    stuck.stall(200_000);
    stage.subscribe(&stuck, &stuck, 0, every(20));
    stage.pass(29_000);
    assert!(!stuck.is_closed());
    stage.pass(2_000);
    assert!(stuck.is_closed());
    assert_eq!(stage.engine.counters().too_slow, 1);
}
