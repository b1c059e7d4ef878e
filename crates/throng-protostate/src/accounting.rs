//! The memory that a state reports equals a new count, after any merging, replacing, removing, dropping and forgetting.

use fastrand::Rng;
use throng_wire::Tick;

use super::{DataState, MergeOptions, Schemas, StateLimits, put_varint};

fn put(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    put_varint(out, u64::from(number << 3 | 2));
    put_varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// A message with small numbers of fields and keys, so that things are found again.
fn some_message(random: &mut Rng, depth: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..random.usize(0..7) {
        let most = if random.bool() { 4 } else { 13 };
        let number = random.u32(1..most);
        match random.u32(0..5) {
            0 => out.extend([(number << 3) as u8, random.u8(0..100)]),
            1 => put(&mut out, number, &vec![b'x'; random.usize(0..200)]),
            2 if depth < 4 => {
                let mut entry = vec![0x08, random.u8(0..5)];
                put(&mut entry, 2, &some_message(random, depth + 1));
                put(&mut out, number, &entry);
            }
            _ if depth < 4 => put(&mut out, number, &some_message(random, depth + 1)),
            _ => put(&mut out, number, &[]),
        }
    }
    out
}

#[test]
fn the_running_count_is_what_is_there() {
    let schemas = Schemas::from_descriptor_set(throng_channeld::proto::DESCRIPTORS).expect("our own files are sound");
    let types = ["unrealpb.SpatialChannelData", "unrealpb.ActorState", "channeldpb.CreateChannelMessage"];
    let mut merges = 0;
    throng_seeds::for_seeds(600, |seed| {
        let mut random = Rng::with_seed(seed);
        let schema = schemas.find(types[random.usize(0..3)]).filter(|_| random.u32(0..3) > 0).cloned();
        let options = MergeOptions {
            replace_lists: random.bool(),
            list_size_limit: random.u32(0..4),
            truncate_top: random.bool(),
            remove_map_entries: random.bool(),
            merge_map_entries: Some(random.bool()),
        };
        let limits = StateLimits {
            state_bytes: [20_000, 1 << 20][random.usize(0..2)],
            entries: [60, 10_000][random.usize(0..2)],
            tombstones: 3,
            verbatim_occurrences: 3,
            unknown_fields: 5,
            ..StateLimits::default()
        };
        let mut state = DataState::new(schema, "x/y", options, limits, Tick(0));
        for tick in 1..40 {
            let update = some_message(&mut random, 0);
            merges += u32::from(state.merge(&update, "x/y", random.u32(0..3), Tick(tick)).is_ok());
            if random.u32(0..10) == 0 {
                state.forget(Tick(tick.saturating_sub(5)));
            }
            assert_eq!(state.recounted(), state.size_bytes(), "seed {seed}, tick {tick}");
        }
    });
    assert!(merges > 5_000 || throng_seeds::is_partial(), "only {merges} updates were merged");
}
