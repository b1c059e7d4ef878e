//! A state that is saved and loaded is the same state: in what it sends to whom, and in what later updates do to it.

use fastrand::Rng;
use throng_protostate::{Chunks, DataState, LoadError, MergeOptions, Schemas, StateLimits};
use throng_wire::Tick;

use crate::properties::{ALL, some_update};
use crate::state_saved;
use crate::support::*;

fn schemas() -> Schemas {
    let mut schemas = Schemas::default();
    schemas.add_pool(pool());
    schemas
}

fn again(state: &DataState, schemas: &Schemas, options: MergeOptions) -> DataState {
    let mut saved = Vec::new();
    state.save(&mut saved);
    DataState::load(&saved, schemas, options, StateLimits::default()).expect("it was saved a moment ago")
}

/// The update that a reader at `since`, who is `reader`, gets.
fn sent(state: &DataState, since: Option<u64>, reader: u32) -> Receiver {
    let mut chunks = Chunks::new();
    state.encode(since.map(Tick), None, Some(reader), 60_000, &mut chunks);
    let mut receiver = Receiver::new("World", true);
    receiver.receive_all(&chunks);
    receiver
}

#[test]
fn a_loaded_state_sends_everybody_the_same_and_merges_the_same() {
    let schemas = schemas();
    throng_seeds::for_seeds(150, |seed| {
        let mut rng = Rng::with_seed(seed);
        let options = MergeOptions { merge_map_entries: Some(rng.bool()), ..removable() };
        let mut state = world(options);
        let (save_at, forget_at) = (rng.u64(1..50), rng.u64(1..60));
        let mut loaded = None;
        for tick in 1..60 {
            let (update, writer) = (some_update(&mut rng, ALL).0, rng.u32(1..5));
            let merged = state.merge(&update, &url("World"), writer, Tick(tick)).expect("it is sound");
            if let Some(loaded) = &mut loaded {
                let same: &mut DataState = loaded;
                let again = same.merge(&update, &url("World"), writer, Tick(tick)).expect("it is sound");
                assert_eq!((again.values, again.removed), (merged.values, merged.removed), "seed {seed}");
            }
            if tick == forget_at {
                for state in [Some(&mut state), loaded.as_mut()].into_iter().flatten() {
                    state.forget(Tick(tick / 2));
                }
            }
            if tick == save_at {
                loaded = Some(again(&state, &schemas, options));
            }
        }
        let loaded = loaded.expect("it was saved");
        let facts =
            |state: &DataState| (state.last_change(), state.value_count(), state.tombstone_count(), state.horizon());
        assert_eq!(facts(&loaded), facts(&state), "seed {seed}");
        for since in [None, Some(1), Some(save_at), Some(rng.u64(0..60))] {
            let reader = rng.u32(0..5);
            let (is, should) = (sent(&loaded, since, reader), sent(&state, since, reader));
            assert_same(&is.message, &should.message, &format!("seed {seed}, since {since:?}, reader {reader}"));
        }
    });
}

#[test]
fn a_state_without_a_schema_sends_the_same_bytes_after_it_was_loaded() {
    let schemas = Schemas::default();
    throng_seeds::for_seeds(100, |seed| {
        let mut rng = Rng::with_seed(seed);
        let limits = StateLimits { verbatim_occurrences: 4, ..StateLimits::default() };
        let mut state = DataState::new(None, &url("World"), MergeOptions::default(), limits, Tick(0));
        let save_at = rng.u64(1..50);
        let mut loaded = None;
        for tick in 1..60 {
            let (update, writer) = (some_update(&mut rng, ALL).0, rng.u32(1..5));
            for state in [Some(&mut state), loaded.as_mut()].into_iter().flatten() {
                state.merge(&update, &url("World"), writer, Tick(tick)).expect("it is sound");
            }
            if tick == save_at {
                let mut saved = Vec::new();
                state.save(&mut saved);
                loaded = DataState::load(&saved, &schemas, MergeOptions::default(), limits).ok();
            }
        }
        let loaded = loaded.expect("it was saved and loaded");
        for since in [None, Some(Tick(rng.u64(0..60)))] {
            let [is, should] = [&loaded, &state].map(|state| {
                let mut chunks = Chunks::new();
                state.encode(since, None, None, 60_000, &mut chunks);
                chunks.iter().flat_map(|chunk| chunk.value.to_vec()).collect::<Vec<u8>>()
            });
            assert_eq!(is, should, "seed {seed}, since {since:?}");
        }
    });
}

#[test]
fn a_type_that_is_defined_otherwise_by_now_takes_the_state_as_an_update() {
    let mut opaque = opaque();
    let update = message().text(5, "harbour").entry(1, 7, message().text(8, "ada")).0;
    opaque.merge(&update, &url("World"), 1, Tick(9)).expect("it is sound");
    let loaded = again(&opaque, &schemas(), MergeOptions::default());
    assert!(loaded.schema().is_some(), "the type is known by now");
    assert_same(&full(&loaded, "World", 60_000), &parse("World", &update), "as an update");
    assert_eq!(loaded.last_change(), Tick(9), "and not older than it was");

    // The other way round, and a definition that the state does not fit.
    let loaded = again(&loaded, &Schemas::default(), MergeOptions::default());
    assert!(loaded.schema().is_none());
    assert_same(&full(&loaded, "World", 60_000), &parse("World", &update), "the type is not known any more");
    let mut number = DataState::new(None, &url("World"), MergeOptions::default(), StateLimits::default(), Tick(0));
    number.merge(&message().bytes(5, &[0xFF]).0, &url("World"), 1, Tick(1)).expect("any bytes");
    let mut saved = Vec::new();
    number.save(&mut saved);
    let error = DataState::load(&saved, &schemas(), MergeOptions::default(), StateLimits::default());
    assert_eq!(error.expect_err("a title is text").tag(), "saved_other_schema");
}

#[test]
fn every_cut_of_a_saved_state_is_refused() {
    let mut state = world(removable());
    state.merge(&message().text(5, "harbour").entry(1, 7, moving(3.0)).0, &url("World"), 1, Tick(1)).expect("sound");
    let mut saved = Vec::new();
    state.save(&mut saved);
    for length in 0..saved.len() {
        let cut = DataState::load(&saved[..length], &schemas(), removable(), StateLimits::default());
        assert_eq!(cut.expect_err("it is cut off"), LoadError::Malformed, "after {length} bytes");
    }
    saved.push(0);
    assert!(DataState::load(&saved, &schemas(), removable(), StateLimits::default()).is_err(), "one byte too many");
}

#[test]
fn more_values_than_a_state_may_have_are_refused() {
    let mut state = world(removable());
    for key in 0..50 {
        state.merge(&message().entry(1, key, moving(3.0)).0, &url("World"), 1, Tick(1)).expect("sound");
    }
    let mut saved = Vec::new();
    state.save(&mut saved);
    let limits = StateLimits { entries: 100, ..StateLimits::default() };
    let error = DataState::load(&saved, &schemas(), removable(), limits).expect_err("there are hundreds");
    assert_eq!(error, LoadError::TooManyValues { limit: 100 });
}

#[test]
fn any_bytes_are_no_saved_state_or_one_that_works() {
    throng_seeds::for_seeds(400, |seed| {
        let mut rng = Rng::with_seed(seed);
        let length = rng.usize(0..600);
        let input: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(length).collect();
        state_saved::run(&input);
    });
}
