//! The cost of merging into a channel's state and of encoding its changes.
//!
//! - `entity`: the state of one moving actor, six floats in an update of about 50 bytes
//! - `world`: a map of 450 such actors in one update, and of 2,000 of which 3 change
#![allow(missing_docs)]

#[path = "../tests/contracts/support.rs"]
mod support;

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use support::*;
use throng_protostate::{Chunks, DataState, MergeOptions, StateLimits};
use throng_wire::Tick;

fn entity_update(value: f32) -> Vec<u8> {
    message().nested(1, moving(value)).0
}

fn world_update(actors: impl Iterator<Item = u32>, value: f32) -> Vec<u8> {
    actors.fold(message(), |wire, key| wire.entry(1, key, moving(value + key as f32))).0
}

fn state(name: &str) -> DataState {
    DataState::new(Some(schema(name)), "", MergeOptions::default(), StateLimits::default(), Tick(0))
}

fn merges(criterion: &mut Criterion, name: &str, mut state: DataState, type_name: &str, update: &[u8]) {
    let type_url = url(type_name);
    let mut tick = 0;
    criterion.bench_function(name, |bencher| {
        bencher.iter(|| {
            tick += 1;
            state.merge(black_box(update), &type_url, 7, Tick(tick)).unwrap()
        });
    });
}

fn encodes(criterion: &mut Criterion, name: &str, state: &DataState, since: Option<u64>) {
    let mut chunks = Chunks::new();
    criterion.bench_function(name, |bencher| {
        bencher.iter(|| {
            state.encode(black_box(since.map(Tick)), None, None, 60_000, &mut chunks);
            chunks.len_bytes()
        });
    });
}

fn entity(criterion: &mut Criterion) {
    let update = entity_update(1.5);
    merges(criterion, "entity/merge", state("Entity"), "Entity", &update);
    let opaque = DataState::new(None, &url("Entity"), MergeOptions::default(), StateLimits::default(), Tick(0));
    merges(criterion, "entity/merge opaque", opaque, "Entity", &update);
    let mut moved = state("Entity");
    moved.merge(&update, &url("Entity"), 7, Tick(1)).unwrap();
    moved.merge(&update, &url("Entity"), 7, Tick(2)).unwrap();
    encodes(criterion, "entity/encode delta", &moved, Some(1));
    criterion.bench_function("entity/location", |bencher| bencher.iter(|| black_box(&moved).unreal_location()));
}

fn world(criterion: &mut Criterion) {
    let update = world_update(1..451, 1.5);
    merges(criterion, "world/merge 450", state("World"), "World", &update);
    let mut moved = state("World");
    moved.merge(&update, &url("World"), 7, Tick(1)).unwrap();
    encodes(criterion, "world/encode 450", &moved, Some(0));

    let mut crowded = state("World");
    crowded.merge(&world_update(1..2_001, 1.5), &url("World"), 7, Tick(1)).unwrap();
    crowded.merge(&world_update([5, 900, 1_800].into_iter(), 2.5), &url("World"), 7, Tick(2)).unwrap();
    encodes(criterion, "world/encode 3 of 2000", &crowded, Some(1));
    encodes(criterion, "world/encode all 2000", &crowded, None);

    let mut relayed = state("World");
    for key in 1..451 {
        let update = message().entry(1, key, moving(1.5));
        relayed.merge(&update.0, &url("World"), key, Tick(1)).unwrap();
    }
    encodes(criterion, "world/encode 450 of 450 writers", &relayed, Some(0));
    let mut chunks = Chunks::new();
    relayed.encode(Some(Tick(0)), None, None, 60_000, &mut chunks);
    let mut out = Vec::new();
    criterion.bench_function("world/copy without own", |bencher| {
        bencher.iter(|| {
            out.clear();
            black_box(&chunks)
                .iter()
                .for_each(|chunk| chunk.without(77).for_each(|bytes| out.extend_from_slice(bytes)));
            out.len()
        });
    });
}

criterion_group!(benches, entity, world);
criterion_main!(benches);
