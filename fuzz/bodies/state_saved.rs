//! Saved states of the gateway's channels: genuine ones with any bytes changed, and any bytes.
//!
//! The checks: nothing panics; a state that was loaded takes updates, sends its changes, forgets removals, and is saved
//! and loaded as the same again; its values are limited.

use std::sync::LazyLock;

use throng_protostate::{Chunks, DataState, MergeOptions, Schemas, StateLimits};
use throng_wire::Tick;

use super::choices::Choices;

const TYPE: &str = "type.googleapis.com/unrealpb.SpatialChannelData";

static SCHEMAS: LazyLock<Schemas> = LazyLock::new(|| {
    Schemas::from_descriptor_set(throng_channeld::proto::DESCRIPTORS).expect("our own files are sound")
});

/// Later ticks than a gateway lives to see: saved states end at 2^43.
const TICK_MAX: u64 = 1 << 42;

const OPTIONS: MergeOptions = MergeOptions {
    replace_lists: false,
    list_size_limit: 0,
    truncate_top: false,
    remove_map_entries: true,
    merge_map_entries: None,
};

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let limits = StateLimits { entries: 2_000, ..StateLimits::default() };
    let has_schema = choices.byte() & 1 != 0;
    let mut saved = match choices.below(4) {
        0 => choices.bytes(usize::MAX).to_vec(),
        _ => genuine(&mut choices, has_schema, limits),
    };
    choices.bend(&mut saved);
    let none = Schemas::default();
    let schemas = if has_schema { &*SCHEMAS } else { &none };
    let mut state = match DataState::load(&saved, schemas, OPTIONS, limits) {
        Ok(state) => state,
        Err(error) => return assert!(!error.tag().is_empty() && !error.to_string().contains('\n')),
    };
    let mut chunks = Chunks::new();
    for since in [None, Some(Tick(0)), Some(Tick(3))] {
        state.encode(since, None, Some(1), limits.unit_bytes, &mut chunks);
    }
    assert_eq!(facts(&state), facts(&again(&state, schemas, limits)), "saved and loaded once more");
    let tick = state.last_change().after(1);
    if tick.0 >= TICK_MAX {
        return;
    }
    for _ in 0..4 {
        let update = choices.bytes(60);
        let _ = state.merge(update, TYPE, 2, tick);
    }
    state.encode(None, None, None, limits.unit_bytes, &mut chunks);
    state.forget(tick);
    state.unreal_location();
    let _ = again(&state, schemas, limits);
}

fn facts(state: &DataState) -> (Tick, usize, usize, usize) {
    let mut whole = Vec::new();
    state.write_full(&mut whole);
    (state.last_change(), state.value_count(), state.tombstone_count(), whole.len())
}

fn again(state: &DataState, schemas: &Schemas, limits: StateLimits) -> DataState {
    let mut saved = Vec::new();
    state.save(&mut saved);
    let limits = StateLimits { entries: 10 * limits.entries, ..limits };
    DataState::load(&saved, schemas, OPTIONS, limits).expect("what was saved can be loaded")
}

/// A state of a few updates, some of which remove entries.
fn genuine(choices: &mut Choices<'_>, has_schema: bool, limits: StateLimits) -> Vec<u8> {
    let schema = SCHEMAS.find(TYPE).filter(|_| has_schema).cloned();
    let mut state = DataState::new(schema, TYPE, OPTIONS, limits, Tick(0));
    for tick in 1..=6 {
        let (key, content) = (choices.byte() & 7, choices.byte());
        // SpatialChannelData.entities: {key: {objRef: {netGuid}}} or {key: {removed}}
        let value = if content & 1 == 0 { vec![0x0A, 2, 8, content & 0x7F] } else { vec![0x10, 1] };
        let entry = [&[0x08, key, 0x12, value.len() as u8][..], &value].concat();
        let update = [&[0x0A, entry.len() as u8][..], &entry].concat();
        let _ = state.merge(&update, TYPE, u32::from(content & 3), Tick(tick));
    }
    let mut saved = Vec::new();
    state.save(&mut saved);
    saved
}
