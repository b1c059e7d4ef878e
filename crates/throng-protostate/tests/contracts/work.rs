//! The cost of a merge is proportional to its input, however it is arranged.

use crate::choices;
use std::time::Instant;

use crate::support::*;
use throng_protostate::{DataState, MergeError, MergeOptions, StateLimits};
use throng_wire::Tick;

#[path = "../../../../fuzz/bodies/state.rs"]
mod fuzzed;

fn limits(unknown_fields: usize) -> StateLimits {
    StateLimits { unknown_fields, state_bytes: 1 << 30, ..StateLimits::default() }
}

/// Fields in falling order, this many bytes of them.
fn falling(bytes: usize) -> Wire {
    let count = bytes as u32 / 4;
    (0..count).rev().fold(message(), |wire, number| wire.varint(20_000 + number, 1))
}

fn states(unknown_fields: usize) -> [DataState; 2] {
    [Some(schema("World")), None]
        .map(|schema| DataState::new(schema, &url("World"), MergeOptions::default(), limits(unknown_fields), Tick(0)))
}

#[test]
fn sixty_four_kibibytes_of_falling_field_numbers_are_refused_and_were_they_not_would_cost_no_more_than_rising_ones() {
    let small = falling(64 << 10);
    for mut state in states(StateLimits::default().unknown_fields) {
        let refused = state.merge(&small.0, &url("World"), 1, Tick(1));
        assert_eq!(refused.map(|_| ()), Err(MergeError::TooManyFields { limit: 1_024 }));
    }
    for mut state in states(usize::MAX) {
        let steps = state.merge(&small.0, &url("World"), 1, Tick(1)).expect("it is merged").steps;
        assert!(steps <= small.0.len() as u64, "{steps} steps for {} bytes", small.0.len());
    }
}

#[test]
fn a_burst_of_a_mebibyte_of_falling_field_numbers_takes_little_longer_than_one_of_rising_ones() {
    let count = (1 << 20) / 4;
    let rising = (0..count).fold(message(), |wire, number| wire.varint(20_000 + number, 1));
    let falling = falling(1 << 20);
    assert_eq!(rising.0.len(), falling.0.len());
    let once = |update: &Wire, has_schema: bool| {
        let [typed, opaque] = states(usize::MAX);
        let mut state = if has_schema { typed } else { opaque };
        let began = Instant::now();
        state.merge(&update.0, &url("World"), 1, Tick(1)).expect("it is merged");
        began.elapsed()
    };
    for has_schema in [false, true] {
        let best = |update: &Wire| (0..5).map(|_| once(update, has_schema)).min().expect("five").as_secs_f64();
        let ratio = best(&falling) / best(&rising);
        // Moving the fields for each of them would be thousands of times as much.
        assert!(ratio < 20.0, "{ratio} times");
    }
}

#[test]
fn fields_that_come_one_by_one_over_many_updates_are_bounded_as_well() {
    for mut state in states(StateLimits::default().unknown_fields) {
        let mut steps = 0;
        let mut kept = 0;
        for number in (0..5_000).rev() {
            let update = message().varint(20_000 + number, 1);
            if let Ok(merged) = state.merge(&update.0, &url("World"), 1, Tick(1)) {
                steps += merged.steps;
                kept += merged.values;
            }
        }
        assert_eq!(kept, 1_024);
        assert!(steps < 5_000 * 1_100 * 2, "{steps} steps");
    }
}

#[test]
fn further_unknown_fields_cost_the_same_when_a_message_is_full_of_them_already() {
    let full = (0..1_024).fold(message(), |wire, number| wire.varint(20_000 + number, 1));
    let flood = (0..20_000).fold(message(), |wire, number| wire.nested(7, message().varint(40_000 + number, 1)));
    for mut state in states(StateLimits::default().unknown_fields) {
        state.merge(&message().nested(7, full.clone()).0, &url("World"), 1, Tick(1)).expect("it is merged");
        let merged = state.merge(&flood.0, &url("World"), 1, Tick(2)).expect("it is merged");
        let (steps, bytes) = (merged.steps, flood.0.len() as u64);
        assert!(merged.dropped >= 19_000 && steps <= 4 * bytes, "{steps} steps for {bytes} bytes, {merged:?}");
    }
}

#[test]
fn to_change_the_member_of_a_oneof_again_and_again_costs_the_same_each_time() {
    let mut state = world(MergeOptions::default());
    let crowded = (0..1_000).fold(message(), |wire, number| wire.varint(1_000 + number, 1));
    state.merge(&crowded.0, &url("World"), 1, Tick(1)).expect("it is merged");
    let changes = (0..10_000).fold(message(), |wire, _| wire.nested(9, message()).varint(11, 1));
    let steps = state.merge(&changes.0, &url("World"), 1, Tick(2)).expect("it is merged").steps;
    assert!(steps < 10 * changes.0.len() as u64, "{steps} steps for {} bytes", changes.0.len());
}

#[test]
fn a_full_state_without_a_schema_gives_way_field_by_field_in_time() {
    let bounds = StateLimits { entries: 40_000, ..StateLimits::default() };
    let mut state = DataState::new(None, &url("World"), MergeOptions::default(), bounds, Tick(0));
    let entry = |field: u32, key: u32| message().nested(field, message().varint(1, key.into()).varint(2, 1));
    for key in 0..20 {
        let update = (1..1_000).fold(message(), |wire, field| wire.and(entry(field, key)));
        state.merge(&update.0, &url("World"), 1, Tick(u64::from(key) + 1)).expect("it is merged");
    }
    let burst = (0..8_000).fold(message(), |wire, key| wire.and(entry(1_000, key)));
    let merged = state.merge(&burst.0, &url("World"), 1, Tick(100)).expect("it is merged");
    assert!(merged.dropped > 5_000);
    assert!(merged.steps < 4 * burst.0.len() as u64, "{} steps for {} bytes", merged.steps, burst.0.len());
}

#[test]
fn any_bytes_cost_work_in_proportion_and_what_is_accepted_is_delivered() {
    throng_seeds::for_seeds(3_000, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut input = vec![random.u8(..), random.u8(..), random.u8(..)];
        for _ in 0..random.usize(1..6) {
            let update = some_bytes(&mut random, 0);
            input.extend((update.len() as u32).to_le_bytes());
            input.extend(update);
        }
        input.extend(std::iter::repeat_with(|| random.u8(..)).take(6));
        fuzzed::run(&input);
    });
}

/// Bytes that mostly are a message, with numbers and keys that repeat, and now and then something else.
fn some_bytes(random: &mut fastrand::Rng, depth: u32) -> Vec<u8> {
    let mut wire = message();
    for _ in 0..random.usize(0..12) {
        let most = if random.bool() { 4 } else { 40 };
        let number = random.u32(1..most);
        wire = match random.u32(0..7) {
            0 => wire.varint(number, random.u64(0..300)),
            1 => wire.float(number, 1.5),
            2 => wire.fixed64(number, 7),
            3 if depth < 5 => wire.nested(number, Wire(some_bytes(random, depth + 1))),
            4 => {
                let value = if depth < 5 { some_bytes(random, depth + 1) } else { Vec::new() };
                wire.entry(1, random.u32(0..5), Wire(value))
            }
            5 => wire.text(number, &"t".repeat(random.usize(0..600))),
            _ => wire.bytes(number, &vec![random.u8(..); random.usize(0..20)]),
        };
    }
    if random.u32(0..10) == 0 {
        let keep = random.usize(0..=wire.0.len());
        wire.0.truncate(keep);
    }
    wire.0
}

#[test]
fn a_field_that_displaces_the_others_of_its_oneof_counts_a_step_for_each_of_them() {
    let steps = |update: Wire| {
        let mut state = world(MergeOptions::default());
        state.merge(&update.0, &url("World"), 1, Tick(1)).expect("it is merged").steps
    };
    assert_eq!(steps(message().varint(11, 1)), steps(message().fixed64(6, 1)) + 2);
}

#[test]
fn to_replace_an_entry_that_had_much_in_it_costs_what_the_update_has() {
    let mut state = DataState::new(Some(schema("World")), &url("World"), MergeOptions::default(), limits(64), Tick(0));
    let squad = |soldiers: u32| (0..soldiers).fold(message(), |wire, key| wire.entry(1, key, message().varint(1, 9)));
    let update = |key: u32, soldiers: u32| message().entry(12, key, squad(soldiers));
    for key in 0..10 {
        state.merge(&update(key, 2_000).0, &url("World"), 1, Tick(1)).expect("it is merged");
    }
    let small = (0..10).fold(message(), |wire, key| wire.and(update(key, 1)));
    // The first one takes out what was there.
    for (tick, most) in [(2, 10 * 2_000 * 4), (3, 4 * small.0.len() as u64), (4, 4 * small.0.len() as u64)] {
        let steps = state.merge(&small.0, &url("World"), 1, Tick(tick)).expect("it is merged").steps;
        assert!(steps <= most, "{steps} steps for {} bytes", small.0.len());
    }
}
