//! Metrics of channels by their type: time of turns, waiting time of updates, their number, drops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::stage::{Peer, Stage, every, open_settings};
use throng_channeld::proto::unrealpb::SpawnObjectMessage;
use throng_channeld::proto::{Any, ChannelType};
use throng_channeld::{Header, message_type};
use throng_gateway_engine::Stopwatch;

fn number(value: u32) -> Any {
    Any::pack(&SpawnObjectMessage { channel_id: Some(value), ..Default::default() })
}

/// A room and GLOBAL, each with a reader: every 100 ms and every 20 ms.
fn two_channels(stage: &mut Stage) -> (Peer, u32) {
    let owner = stage.master();
    let room = stage.create(&owner, ChannelType::Subworld, Some(number(0)));
    stage.update(&owner, 0, number(0));
    // The owner is a reader like any other, even if it is not told what it wrote.
    stage.subscribe(&owner, &owner, room, every(100));
    let reader = stage.client();
    stage.subscribe(&reader, &reader, room, every(100));
    stage.subscribe(&reader, &reader, 0, every(20));
    stage.pass(500);
    // Updates from before the first reader are counted with the first ones after it.
    stage.update(&owner, 0, number(1));
    stage.update(&owner, room, number(1));
    stage.pass(500);
    (owner, room)
}

/// Sum in the unit of the page, and count.
fn told(histogram: &throng_gateway_engine::histogram::Histogram) -> (f64, u64) {
    let mut text = String::new();
    histogram.write("x", "X.", &mut text);
    let sum = text.lines().find_map(|line| line.strip_prefix("x_sum ")).expect("a sum");
    (sum.parse().expect("a number"), histogram.count())
}

#[test]
fn updates_wait_as_long_as_the_interval_of_those_who_are_served_first() {
    let mut stage = Stage::new(open_settings());
    let (owner, room) = two_channels(&mut stage);
    let meters = Arc::clone(&stage.engine.counters().channels);
    let kinds = [ChannelType::Global, ChannelType::Subworld].map(|kind| meters.of(kind));
    let before = kinds.map(|meters| (told(&meters.lag), told(&meters.depth)));
    for step in 0..200 {
        stage.update(&owner, 0, number(step));
        stage.update(&owner, room, number(step));
        stage.pass(10);
    }
    stage.pass(200);
    let [global, subworld] = [0, 1].map(|index| {
        let ((lag_before_s, lags_before), (depth_before, turns_before)) = before[index];
        let ((lag_s, lags), (depth, turns)) = (told(&kinds[index].lag), told(&kinds[index].depth));
        assert_eq!(lags - lags_before, 200, "each update is counted once");
        assert_eq!(depth - depth_before, 200.0);
        let turns = (turns - turns_before) as f64;
        ((lag_s - lag_before_s) / 200.0, 200.0 / turns)
    });
    // An update every 10 ms: two for a turn of 20 ms, ten for one of 100 ms.
    assert!((0.005..=0.025).contains(&global.0) && (1.8..=2.2).contains(&global.1), "{global:?}");
    assert!((0.05..=0.105).contains(&subworld.0) && (9.0..=11.0).contains(&subworld.1), "{subworld:?}");
    assert_eq!(meters.of(ChannelType::Entity).lag.count(), 0, "other types have nothing to tell");
}

#[test]
fn what_came_before_anybody_was_there_has_waited_for_nobody() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    stage.update(&owner, 0, number(1));
    stage.pass(60_000);
    let reader = stage.client();
    stage.subscribe(&reader, &reader, 0, every(20));
    stage.pass(100);
    stage.update(&owner, 0, number(2));
    stage.pass(100);
    let (lag_s, _) = told(&stage.engine.counters().channels.of(ChannelType::Global).lag);
    assert!(lag_s < 0.3, "{lag_s} s");
}

#[test]
fn turns_are_timed_by_type_with_the_stopwatch_that_the_shell_gives() {
    let mut stage = Stage::new(open_settings());
    let looks = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&looks);
    // Each look is a millisecond later.
    let read_ns = move || counted.fetch_add(1, Ordering::Relaxed) * 1_000_000;
    stage.engine.set_stopwatch(Stopwatch::new(read_ns));
    let (owner, room) = two_channels(&mut stage);
    let meters = Arc::clone(&stage.engine.counters().channels);
    let turns = |kind| meters.of(kind).tick.count();
    let before = (turns(ChannelType::Subworld), turns(ChannelType::Global), looks.load(Ordering::Relaxed));
    for step in 0..10 {
        stage.update(&owner, room, number(step));
        stage.pass(200);
    }
    assert_eq!(turns(ChannelType::Subworld) - before.0, 10);
    assert_eq!(turns(ChannelType::Global), before.1, "the other channel had nothing to do");
    assert_eq!(looks.load(Ordering::Relaxed) - before.2, 20, "a turn costs two looks, and nothing else costs any");
    assert_eq!(meters.of(ChannelType::Subworld).tick.last_s(), 0.001);
}

#[test]
fn drops_are_counted_by_the_type_of_their_channel() {
    let mut stage = Stage::new(open_settings());
    let (_, room) = two_channels(&mut stage);
    let client = stage.client();
    for channel in [room, room, 0, 4_711] {
        let update = throng_channeld::proto::ChannelDataUpdateMessage { data: Some(number(1)), context_conn_id: 0 };
        stage.say(&client, Header::new(channel, message_type::CHANNEL_DATA_UPDATE), &update);
    }
    let counters = stage.engine.counters();
    let drops = |kind: ChannelType, reason| counters.refused_by_type.get(&(kind.into(), reason)).copied();
    assert_eq!(drops(ChannelType::Subworld, "no_write_access"), Some(2));
    assert_eq!(drops(ChannelType::Global, "no_write_access"), Some(1));
    assert_eq!(drops(ChannelType::Unknown, "unknown_channel"), Some(1));
    let all: u64 = counters.refused_by_type.values().sum();
    assert_eq!(all, counters.refused.values().sum::<u64>());
}
