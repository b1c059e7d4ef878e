//! Random writers, random readers: every reader that merges the deltas ends with the owner's state, for any cursors.

use crate::support::*;
use fastrand::Rng;
use prost_reflect::prost::Message as _;
use throng_protostate::{Chunks, DataState, Involvement, MergeOptions, StateLimits};
use throng_wire::Tick;

/// The content of a run's updates.
#[derive(Clone, Copy)]
pub(crate) struct Mix {
    removals: bool,
    oneofs: bool,
    /// The ambiguities of a state without a schema: lists of one and single values, maps within single messages.
    ambiguous: bool,
}

pub(crate) const ALL: Mix = Mix { removals: true, oneofs: true, ambiguous: true };

fn float(rng: &mut Rng) -> f32 {
    rng.i32(1..1_000) as f32 / 8.0
}

fn some_vector(rng: &mut Rng) -> Wire {
    let mut wire = message();
    for number in 1..=3 {
        if rng.bool() {
            wire = wire.float(number, float(rng));
        }
    }
    wire
}

fn some_text(rng: &mut Rng) -> String {
    let length = rng.usize(1..40);
    std::iter::repeat_with(|| rng.lowercase()).take(length).collect()
}

fn some_actor(rng: &mut Rng, mix: Mix) -> Wire {
    // With a small number in it no actor looks like text.
    let mut wire = if mix.ambiguous { message() } else { message().varint(2, 5) };
    for _ in 0..rng.usize(1..4) {
        wire = wire.and(match rng.u32(0..10) {
            0 => message().varint(2, rng.u64(1..9)),
            1 => message().varint(3, rng.u64(0..2)),
            2 => message().text(5, &some_text(rng)),
            3 if mix.ambiguous => message().text(6, &some_text(rng)),
            3 => message().text(6, &some_text(rng)).text(6, &some_text(rng)),
            4 => message().nested(7, message().text(1, &some_text(rng)[..1]).varint(2, rng.u64(1..99))),
            5 => message().text(8, &some_text(rng)),
            6 if mix.oneofs => match rng.u32(0..3) {
                0 => message().text(9, &some_text(rng)),
                1 => message().nested(10, message().varint(1, rng.u64(1..9))),
                _ => message().varint(12, 4),
            },
            7 => {
                let part = if mix.removals && rng.u32(0..3) == 0 {
                    message().varint(1, 1)
                } else {
                    message().varint(2, rng.u64(1..9)).fixed64(3, f64::from(float(rng)).to_bits())
                };
                message().entry(13, rng.u32(1..4), part)
            }
            _ => message().nested(11, message().nested(1, some_vector(rng)).nested(3, some_vector(rng))),
        });
    }
    without_repetition("Actor", &wire)
}

/// As a serialiser writes it: each single field once, one member of a oneof.
fn without_repetition(name: &str, wire: &Wire) -> Wire {
    Wire(parse(name, &wire.0).encode_to_vec())
}

pub(crate) fn some_update(rng: &mut Rng, mix: Mix) -> Wire {
    let mut wire = message();
    let mut keys: Vec<u32> = (1..7).collect();
    rng.shuffle(&mut keys);
    for _ in 0..rng.usize(1..4) {
        wire = wire.and(match rng.u32(0..12) {
            0 => message().nested(2, message().varint(1, rng.u64(1..9)).varint(2, 7).text(3, &some_text(rng))),
            1 => {
                let mut packed = Vec::new();
                (0..rng.usize(1..4)).for_each(|_| put(&mut packed, rng.u64(1..300)));
                message().bytes(3, &packed)
            }
            2 if mix.ambiguous => message().fixed32(4, rng.u32(1..)),
            3 => message().text(5, &some_text(rng)),
            4 => message().fixed64(6, rng.u64(1..)),
            5 => {
                let key = keys.pop().unwrap();
                let inner = match mix.ambiguous {
                    true => message().entry(1, key, some_actor(rng, mix)),
                    false => message(),
                };
                let inner = inner.varint(2, rng.u64(1..50));
                let deeper = message().nested(3, message().varint(2, rng.u64(1..50)));
                message().nested(7, if rng.bool() { inner } else { inner.and(deeper) })
            }
            6 => message().nested(8, message().text(1, &some_text(rng)[..1]).text(2, &some_text(rng))),
            7 if mix.oneofs => match rng.u32(0..3) {
                0 => message().nested(9, message().float(rng.u32(1..3), float(rng))),
                1 => message().nested(10, message().float(1, float(rng))),
                _ => message().varint(11, 3),
            },
            8 if mix.removals => message().entry(1, keys.pop().unwrap(), message().varint(1, 1)),
            _ => message().entry(1, keys.pop().unwrap(), some_actor(rng, mix)),
        });
    }
    without_repetition("World", &wire)
}

struct Subscriber {
    cursor: u64,
    receiver: Receiver,
    joined: bool,
}

fn run(seed: u64, replaces: bool) {
    let mut rng = Rng::with_seed(seed);
    let mut state = world(MergeOptions { merge_map_entries: Some(!replaces), ..removable() });
    let receiver = || Receiver { replaces, ..Receiver::new("World", true) };
    let mut owner = receiver();
    let mut subscribers: Vec<Subscriber> =
        (0..4).map(|_| Subscriber { cursor: 0, receiver: receiver(), joined: false }).collect();
    let mut chunks = Chunks::new();
    // An entry that is replaced is sent in one piece.
    let max_bytes = if replaces { 60_000 } else { [24, 80, 300, 60_000][rng.usize(0..4)] };
    for tick in 1..120 {
        for _ in 0..rng.usize(0..3) {
            let update = some_update(&mut rng, ALL);
            let writer = rng.u32(1..5);
            state.merge(&update.0, &url("World"), writer, Tick(tick)).unwrap();
            owner.receive(&update.0);
        }
        for (index, subscriber) in subscribers.iter_mut().enumerate() {
            if rng.usize(0..2 + 8 * index) == 0 {
                let since = subscriber.joined.then_some(Tick(subscriber.cursor));
                state.encode(since, None, None, max_bytes, &mut chunks);
                subscriber.receiver.receive_all(&chunks);
                subscriber.cursor = tick;
                subscriber.joined = true;
            }
        }
    }
    for subscriber in &mut subscribers {
        let since = subscriber.joined.then_some(Tick(subscriber.cursor));
        state.encode(since, None, None, max_bytes, &mut chunks);
        subscriber.receiver.receive_all(&chunks);
        assert_same(&subscriber.receiver.message, &owner.message, &format!("seed {seed}, chunks of {max_bytes}"));
    }
    assert_same(&full(&state, "World", max_bytes), &owner.message, &format!("seed {seed}"));
    let mut whole = Vec::new();
    state.write_full(&mut whole);
    assert_same(&parse("World", &whole), &owner.message, &format!("seed {seed}"));
}

#[test]
fn every_subscriber_ends_with_the_state_of_the_owner() {
    throng_seeds::for_seeds(400, |seed| {
        run(seed, false);
    });
}

#[test]
fn every_subscriber_ends_with_the_state_of_the_owner_where_entries_are_replaced() {
    throng_seeds::for_seeds(400, |seed| {
        run(seed, true);
    });
}

#[test]
fn cutting_out_a_writer_is_the_same_as_not_encoding_it() {
    let mut cut_out = 0;
    throng_seeds::for_seeds(200, |seed| {
        let mut rng = Rng::with_seed(seed);
        let mut state = world(removable());
        for tick in 1..40 {
            state.merge(&some_update(&mut rng, ALL).0, &url("World"), rng.u32(1..5), Tick(tick)).unwrap();
        }
        let max_bytes = [80, 300, 60_000][rng.usize(0..3)];
        for writer in 1..6 {
            let since = Some(Tick(rng.u64(0..40))).filter(|tick| tick.0 != 0);
            let (mut shared, mut own) = (Chunks::new(), Chunks::new());
            state.encode(since, None, None, max_bytes, &mut shared);
            state.encode(since, None, Some(writer), max_bytes, &mut own);
            let mut expected = Receiver::new("World", true);
            expected.receive_all(&own);
            let mut actual = Receiver::new("World", true);
            match shared.involvement(writer) {
                Involvement::None => actual.receive_all(&shared),
                Involvement::Parts => {
                    cut_out += 1;
                    actual.receive_without(&shared, writer);
                }
                Involvement::Mixed => continue,
            }
            assert_same(&actual.message, &expected.message, &format!("seed {seed}, writer {writer}, since {since:?}"));
        }
    });
    assert!(cut_out > 50 || throng_seeds::is_partial(), "only {cut_out} writers could be cut out");
}

#[test]
fn a_state_without_a_schema_parses_as_the_one_with_a_schema() {
    let mix = Mix { removals: false, oneofs: false, ambiguous: false };
    throng_seeds::for_seeds(200, |seed| {
        let mut rng = Rng::with_seed(seed);
        let limits = StateLimits { verbatim_occurrences: 500, ..StateLimits::default() };
        let mut state = DataState::new(None, &url("World"), MergeOptions::default(), limits, Tick(0));
        let mut owner = Receiver::new("World", false);
        let mut subscriber = Receiver::new("World", false);
        let mut cursor = None;
        let mut chunks = Chunks::new();
        for tick in 1..60 {
            let update = some_update(&mut rng, mix);
            state.merge(&update.0, &url("World"), rng.u32(1..5), Tick(tick)).unwrap();
            owner.receive(&update.0);
            if rng.u32(0..6) == 0 || tick == 59 {
                state.encode(cursor, None, None, 60_000, &mut chunks);
                subscriber.receive_all(&chunks);
                cursor = Some(Tick(tick));
            }
        }
        assert_same(&subscriber.message, &owner.message, &format!("seed {seed}: by deltas"));
        assert_same(&full(&state, "World", 60_000), &owner.message, &format!("seed {seed}: at once"));
    });
}

#[test]
fn any_bytes_are_merged_or_refused_and_a_refusal_changes_nothing() {
    let limits = StateLimits {
        state_bytes: 16_384,
        depth: 6,
        entries: 200,
        tombstones: 8,
        verbatim_occurrences: 4,
        unknown_fields: 6,
        unit_bytes: 200,
        key_bytes: 16,
    };
    // Containers that grow, and what a state takes without content.
    let most_bytes = limits.state_bytes / 4 * 5 + 2_048;
    let mut refused = 0;
    throng_seeds::for_seeds(300, |seed| {
        let mut rng = Rng::with_seed(seed);
        let mut with_schema = world_within(removable(), limits);
        let mut without = DataState::new(None, &url("World"), removable(), limits, Tick(0));
        let mut chunks = Chunks::new();
        for tick in 1..60 {
            let mut bytes = some_update(&mut rng, ALL).0;
            for _ in 0..rng.usize(0..4) {
                let place = rng.usize(0..bytes.len());
                bytes[place] = rng.u8(..);
            }
            bytes.truncate(if rng.u32(0..6) == 0 { rng.usize(0..=bytes.len()) } else { bytes.len() });
            for state in [&mut with_schema, &mut without] {
                let mut before = Vec::new();
                state.write_full(&mut before);
                if let Err(error) = state.merge(&bytes, &url("World"), rng.u32(1..4), Tick(tick)) {
                    refused += 1;
                    let mut after = Vec::new();
                    state.write_full(&mut after);
                    assert_eq!(before, after, "seed {seed}, tick {tick}: {}", error.tag());
                }
                assert!(state.size_bytes() <= most_bytes, "seed {seed}, tick {tick}: {} bytes", state.size_bytes());
                assert!(state.value_count() <= limits.entries, "seed {seed}, tick {tick}");
                assert!(state.tombstone_count() <= limits.tombstones, "seed {seed}, tick {tick}");
                state.encode(Some(Tick(tick.saturating_sub(5))), None, Some(2), 100, &mut chunks);
                state.unreal_location();
            }
        }
        // A reader of all messages has the whole state.
        let mut whole = Vec::new();
        with_schema.write_full(&mut whole);
        let generous = StateLimits::default();
        let mut again = world_within(removable(), generous);
        again.merge(&whole, &url("World"), 1, Tick(1)).unwrap();
        let mut same = Vec::new();
        again.write_full(&mut same);
        assert_eq!(whole.len(), same.len(), "seed {seed}");
    });
    assert!(refused > 1_000 || throng_seeds::is_partial(), "only {refused} refusals");
}
