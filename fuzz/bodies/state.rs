//! Channel states: any bytes merged as updates, with and without a schema, then encoded with and without masks.
//!
//! The checks: nothing panics; a refused update changes nothing; an accepted update can be delivered; and the work of a
//! merge is at most a small multiple of the received bytes, however they are arranged. Work is counted in steps,
//! because a clock would tell of the machine.

use std::sync::{Arc, LazyLock};

use throng_protostate::{Chunks, DataState, FieldMask, MergeOptions, Schema, Schemas, StateLimits};
use throng_wire::Tick;

use super::choices::Choices;

/// A type with maps, lists, messages and single values.
const TYPES: [&str; 4] = [
    "unrealpb.SpatialChannelData",
    "unrealpb.ActorState",
    "channeldpb.CreateChannelMessage",
    "unrealpb.ChannelRecoveryData",
];

static SCHEMAS: LazyLock<Schemas> = LazyLock::new(|| {
    Schemas::from_descriptor_set(throng_channeld::proto::DESCRIPTORS).expect("our own files are sound")
});

/// Steps for each byte of an update and for each value that it may throw away.
const STEPS_PER_BYTE: u64 = 8;

/// Further steps that a merge may take: one look at the fields of each message, and removals from a full map.
const STEPS_MORE: u64 = 20_000;

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let settings = choices.byte();
    let name = TYPES[choices.below(TYPES.len())];
    let schema: Option<Arc<Schema>> = (settings & 1 != 0).then(|| SCHEMAS.find(name).expect("it is there").clone());
    let options = MergeOptions {
        replace_lists: settings & 2 != 0,
        list_size_limit: u32::from(settings >> 6) * 3,
        truncate_top: settings & 4 != 0,
        remove_map_entries: settings & 8 != 0,
        merge_map_entries: [None, Some(true), Some(false)][choices.below(3)],
    };
    let limits = match settings & 16 {
        0 => StateLimits::default(),
        _ => StateLimits {
            state_bytes: 20_000,
            depth: 5,
            entries: 300,
            tombstones: 6,
            verbatim_occurrences: 3,
            unknown_fields: 8,
            unit_bytes: 400,
            key_bytes: 20,
        },
    };
    let mut state = DataState::new(schema.clone(), "type.googleapis.com/x", options, limits, Tick(0));
    let mut chunks = Chunks::new();
    let mut all_bytes = 0;
    for tick in 1.. {
        if choices.is_empty() || tick > 64 {
            break;
        }
        let count = choices.number() as usize % (1 << 17);
        let update = choices.bytes(count);
        all_bytes += update.len();
        let mut before = Vec::new();
        state.write_full(&mut before);
        let values = state.value_count() as u64;
        match state.merge(update, "type.googleapis.com/x", u32::from(settings & 3), Tick(tick)) {
            Ok(merged) => {
                let bound = STEPS_PER_BYTE * update.len() as u64 + values + STEPS_MORE;
                assert!(merged.steps <= bound, "{} steps for {} bytes", merged.steps, update.len());
            }
            Err(error) => {
                let mut after = Vec::new();
                state.write_full(&mut after);
                assert!(before == after && !error.tag().is_empty(), "a refusal has changed something");
            }
        }
        assert!(state.value_count() <= limits.entries);
        // An empty value may take some hundred bytes where two were sent.
        assert!(state.size_bytes() <= 400 * all_bytes + 4_096, "{} bytes of {all_bytes}", state.size_bytes());
        state.unreal_location();
    }
    let paths = [format!("{}", choices.byte()), "1.2.1".to_owned(), "entities.objRef".to_owned(), String::new()];
    let mask = FieldMask::resolve(&paths[..choices.below(5)], schema.as_deref()).expect("few and short paths");
    let since = Some(Tick(u64::from(choices.byte()))).filter(|_| settings & 32 != 0);
    for exclude in [None, Some(1)] {
        state.encode(since, mask.as_ref(), exclude, limits.unit_bytes, &mut chunks);
        assert_eq!(chunks.oversized(), 0, "what was accepted cannot be delivered");
        assert!(chunks.iter().all(|chunk| chunk.value.len() <= limits.unit_bytes));
        // Around each piece of a large entry is its key, and the messages that it is in.
        assert!(chunks.len_bytes() <= 200 * all_bytes + 4_096, "{} bytes of {all_bytes}", chunks.len_bytes());
    }
    state.forget(Tick(64));
}
