//! Updates of the same shape, merged and encoded, allocate nothing once the first few are behind them; and states take the
//! memory that they say they take.
use crate::counting::{allocations, held_bytes};
use crate::support::*;
use throng_protostate::{Chunks, DataState, MapKey, MergeOptions, Schemas, StateLimits};
use throng_wire::Tick;

#[test]
fn a_world_in_motion_allocates_nothing() {
    let mut state = world(MergeOptions::default());
    let type_url = url("World");
    let all = (1..201).fold(message(), |wire, key| wire.entry(1, key, moving(key as f32).text(8, "name")));
    let one: Vec<Wire> = (1..201).map(|key| message().entry(1, key, moving(2.0))).collect();
    let mut chunks = Chunks::new();
    let mut frame = |tick: u64| {
        state.merge(&all.0, &type_url, 1, Tick(2 * tick)).unwrap();
        for (writer, update) in (1..).zip(&one) {
            state.merge(&update.0, &type_url, writer, Tick(2 * tick + 1)).unwrap();
        }
        state.encode(Some(Tick(2 * tick)), None, None, 2_000, &mut chunks);
        state.encode(Some(Tick(2 * tick - 2)), None, Some(9), 60_000, &mut chunks);
        state.encode(None, None, None, 4_000, &mut chunks);
    };
    (1..10).for_each(&mut frame);
    let before = allocations();
    (10..30).for_each(&mut frame);
    assert_eq!(allocations() - before, 0);
}

#[test]
fn a_world_whose_entries_are_replaced_allocates_nothing_either() {
    let mut state = world(MergeOptions { merge_map_entries: Some(false), ..MergeOptions::default() });
    let type_url = url("World");
    let all = (1..201).fold(message(), |wire, key| wire.entry(1, key, moving(key as f32).text(8, "name")));
    let mut chunks = Chunks::new();
    let mut frame = |tick: u64| {
        state.merge(&all.0, &type_url, 1, Tick(tick)).unwrap();
        state.encode(Some(Tick(tick - 1)), None, None, 60_000, &mut chunks);
    };
    (1..10).for_each(&mut frame);
    let before = allocations();
    (10..30).for_each(&mut frame);
    assert_eq!(allocations() - before, 0);
}

/// The memory that a state reports, and its real memory: the growth of this thread's memory since before it was made.
#[track_caller]
fn takes_what_it_says(shape: &str, fill: impl FnOnce() -> DataState) {
    let before = held_bytes();
    let state = Box::new(fill());
    let held = held_bytes() - before;
    let said = state.size_bytes() as i64;
    drop(state);
    let left = held_bytes() - before;
    assert!(held > 20_000, "{shape}: too little to say anything");
    assert!((said - held).abs() * 5 <= held, "{shape}: {said} bytes said, {held} held");
    assert_eq!(left, 0, "{shape}: it gives all of it back");
    println!("{shape}: {said} bytes said, {held} held");
}

fn of_updates(mut state: DataState, updates: impl Iterator<Item = Wire>) -> DataState {
    let type_url = state.type_url().to_owned();
    for (tick, update) in (1..).zip(updates) {
        state.merge(&update.0, &type_url, 1, Tick(tick)).expect("it is merged");
    }
    state
}

/// An empty state whose schema is shared: the schema is no part of the state.
fn of(name: &'static str, options: MergeOptions) -> DataState {
    use std::collections::HashMap;
    use std::sync::{Arc, LazyLock, Mutex};
    static SCHEMAS: LazyLock<Mutex<HashMap<&str, Arc<throng_protostate::Schema>>>> = LazyLock::new(Mutex::default);
    let schema = Arc::clone(SCHEMAS.lock().unwrap().entry(name).or_insert_with(|| schema(name)));
    let options = MergeOptions { merge_map_entries: Some(true), ..options };
    DataState::new(Some(schema), "", options, StateLimits::default(), Tick(0))
}

#[test]
fn states_take_the_memory_that_they_say_they_take() {
    let _ = (of("World", removable()), of("Entity", removable()), std::hash::RandomState::new());
    takes_what_it_says("scalars that nothing is known of", || {
        let fields = |from: u32| (from..from + 1_000).fold(message(), |wire, number| wire.varint(number, 1));
        let actors = (0..100).map(|key| message().entry(1, key, fields(100)));
        of_updates(of("World", MergeOptions::default()), actors)
    });
    takes_what_it_says("empty sub-messages", || {
        let guns = (0..2_000).map(|key| message().entry(1, key, message().nested(10, message())));
        of_updates(of("World", MergeOptions::default()), guns)
    });
    takes_what_it_says("maps of numbers", || {
        let parts =
            (0..5_000).map(|key| message().nested(1, message().varint(1, key).nested(2, message().varint(2, 7))));
        of_updates(of("World", MergeOptions::default()), parts)
    });
    takes_what_it_says("maps of texts", || {
        let labels = (0..3_000).map(|key| {
            let entry = message().text(1, &format!("a key of some length {key}")).text(2, &"v".repeat(key % 90));
            message().nested(8, entry)
        });
        of_updates(of("World", MergeOptions::default()), labels)
    });
    takes_what_it_says("actors that move", || {
        let actors = (0..2_000).map(|key| message().entry(1, key % 500, moving(key as f32).text(8, "an actor")));
        of_updates(of("World", MergeOptions::default()), actors)
    });
    takes_what_it_says("entities of one actor, without a schema", || {
        let mut state = DataState::new(None, &url("Entity"), MergeOptions::default(), StateLimits::default(), Tick(0));
        for tick in 1..2_000 {
            let actor = message().nested(tick as u32 % 200 + 1, moving(tick as f32));
            state.merge(&actor.0, &url("Entity"), 1, Tick(tick)).expect("it is merged");
        }
        state
    });
    takes_what_it_says("large bytes", || {
        let blobs = (0..40).map(|key| message().entry(1, key, message().bytes(5, &vec![7; 30_000])));
        of_updates(of("World", MergeOptions::default()), blobs)
    });
    takes_what_it_says("lists", || {
        let lists = (0..3_000).map(|number| {
            message().bytes(3, &[1, 2, 3]).nested(2, message().varint(1, number).text(3, "something was said here"))
        });
        of_updates(of("World", MergeOptions::default()), lists)
    });
    takes_what_it_says("what was removed", || {
        let gone = (0..4_000).map(|key| message().entry(1, key, message().varint(1, 1)));
        of_updates(of("World", removable()), gone)
    });
    let schemas = Schemas::from_descriptor_set(throng_channeld::proto::DESCRIPTORS).expect("our own files");
    let cell = schemas.find("unrealpb.SpatialChannelData").expect("it is there").clone();
    takes_what_it_says("the list of a cell", || {
        let schema = std::sync::Arc::clone(&cell);
        let mut state = DataState::new(Some(schema), "", MergeOptions::default(), StateLimits::default(), Tick(0));
        for key in 0..3_000u32 {
            let reference = message().nested(1, message().varint(1, u64::from(key)).text(6, "/Game/Pawns/Hero.Hero_C"));
            state.set_entry(1, &MapKey::from(key), &reference.0, 1, Tick(u64::from(key) + 1)).expect("it is set");
        }
        state
    });
    takes_what_it_says("maps within a message", || {
        let mut last = of("Entity", MergeOptions::default());
        for tick in 1..400 {
            let update = message().nested(1, message().entry(13, tick as u32, message().varint(2, 4)));
            last.merge(&update.0, &url("Entity"), 1, Tick(tick)).expect("it is merged");
        }
        last
    });
}
