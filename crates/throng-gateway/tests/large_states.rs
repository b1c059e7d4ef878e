//! First states that are larger than what may wait for a connection at all.

mod stage;

use std::collections::BTreeMap;

use stage::{Peer, Stage, every, open_settings};
use throng_channeld::message_type;
use throng_channeld::proto::unrealpb::{SpatialChannelData, SpatialEntityState, UnrealObjectRef};
use throng_channeld::proto::{Any, ChannelType};
use throng_channeld::{Header, proto::UnsubscribedFromChannelMessage};

/// A large object with a version in it.
fn object(id: u32, version: u32) -> (u32, SpatialEntityState) {
    let class_path = format!("{version}:{}", "x".repeat(1_000));
    let object = UnrealObjectRef { net_guid: Some(id), class_path: Some(class_path), ..Default::default() };
    (id, SpatialEntityState { obj_ref: Some(object), ..Default::default() })
}

/// So many objects of a kilobyte each, of one version.
fn write(stage: &mut Stage, owner: &Peer, channel: u32, ids: std::ops::Range<u32>, version: u32) {
    for begin in ids.clone().step_by(50) {
        let entities = (begin..(begin + 50).min(ids.end)).map(|id| object(id, version)).collect();
        stage.update(owner, channel, Any::pack(&SpatialChannelData { entities }));
    }
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
    let late = stage.client();
    late.stop_reading();
    stage.subscribe(&late, &late, 0, every(20));
    let mut known = BTreeMap::new();
    let mut most_waiting = 0;
    for ms in (0..10_000).step_by(20) {
        stage.pass(20);
        hear(&mut stage, &late, 0, &mut known);
        most_waiting = most_waiting.max(late.waiting());
        late.takes(40_000);
        if ms == 2_000 {
            // What changes meanwhile comes when the rest has come, and is not overtaken by it.
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
    let late = stage.client();
    late.stop_reading();
    stage.subscribe(&late, &late, 0, every(20));
    stage.pass(100);
    let leave = UnsubscribedFromChannelMessage { conn_id: late.id };
    stage.say(&late, Header::new(0, message_type::UNSUB_FROM_CHANNEL), &leave);
    stage.read(&late);
    late.read_on();
    stage.pass(1_000);
    assert_eq!(stage.read(&late).len(), 0);
    // Who comes again gets everything.
    stage.subscribe(&late, &late, 0, every(20));
    let mut known = BTreeMap::new();
    stage.pass(5_000);
    hear(&mut stage, &late, 0, &mut known);
    assert_eq!(known.len(), 12_000);
}

#[test]
fn who_takes_nothing_of_it_is_disconnected_all_the_same() {
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
