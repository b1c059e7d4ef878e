//! A channel's state and its updates, one behaviour at a time.

use crate::support::*;
use throng_protostate::{
    Chunks, DataState, FieldMask, Involvement, MapKey, MergeError, MergeOptions, Schemas, StateLimits, VectorPath,
};
use throng_wire::Tick;

fn merge(state: &mut DataState, update: Wire, writer: u32, tick: u64) {
    state.merge(&update.0, &url("World"), writer, Tick(tick)).unwrap();
}

fn received(chunks: &Chunks) -> prost_reflect::DynamicMessage {
    let mut receiver = Receiver::new("World", false);
    receiver.receive_all(chunks);
    receiver.message
}

#[test]
fn w4_an_update_without_data_is_refused() {
    let mut state = world(removable());
    assert_eq!(state.merge(&[], "", 1, Tick(1)), Err(MergeError::MissingData));
    assert!(state.is_empty());
}

#[test]
fn w5_an_update_of_another_known_type_is_refused() {
    let mut state = world(removable());
    merge(&mut state, message().text(5, "arena"), 1, 1);
    assert_eq!(state.merge(&moving(1.0).0, &url("Actor"), 1, Tick(2)), Err(MergeError::WrongType));
    assert_same(&full(&state, "World", 60_000), &parse("World", &message().text(5, "arena").0), "unchanged");
    assert!(state.merge(&[], "other.host/test.World", 1, Tick(2)).is_ok(), "only the name counts");
}

#[test]
fn w16_a_mask_of_one_subscriber_leaves_the_state_alone() {
    let mut state = world(removable());
    let update = message().entry(1, 1, moving(2.0).varint(2, 9)).text(5, "arena");
    merge(&mut state, update.clone(), 1, 1);
    let mask = state.resolve_mask(&["actors.owner"]).unwrap().unwrap();
    let mut chunks = Chunks::new();
    state.encode(None, Some(&mask), None, 60_000, &mut chunks);
    assert_same(&received(&chunks), &parse("World", &message().entry(1, 1, message().varint(2, 9)).0), "masked");
    assert_same(&full(&state, "World", 60_000), &parse("World", &update.0), "the others");
    // Unknown parts show nothing, and do not hide known ones: as in channeld.
    let mask = state.resolve_mask(&["actors.nonsense", "", "title"]).unwrap().unwrap();
    state.encode(None, Some(&mask), None, 60_000, &mut chunks);
    assert_same(&received(&chunks), &parse("World", &message().text(5, "arena").0), "masked");
    assert!(FieldMask::resolve(&["actors"], None).unwrap().is_some(), "nothing is shown");
}

#[test]
fn a_mask_goes_through_lists_and_spares_removals() {
    let mut state = world(removable());
    let chat = message().varint(1, 3).varint(2, 7).text(3, "hi");
    merge(&mut state, message().nested(2, chat).entry(1, 1, message().varint(2, 9)), 1, 1);
    merge(&mut state, message().entry(1, 1, message().varint(1, 1)), 1, 2);
    let mask = state.resolve_mask(&["chats.content", "actors.owner"]).unwrap().unwrap();
    let mut chunks = Chunks::new();
    state.encode(Some(Tick(0)), Some(&mask), None, 60_000, &mut chunks);
    let expected = message().nested(2, message().text(3, "hi")).entry(1, 1, message().varint(1, 1));
    assert_same(&received(&chunks), &parse("World", &expected.0), "masked");
}

#[test]
fn w17_a_state_of_2000_actors_reaches_a_late_joiner_in_chunks() {
    let mut state = world(removable());
    let update = (1..2_001).fold(message(), |wire, key| wire.entry(1, key, moving(key as f32)));
    merge(&mut state, update.clone(), 1, 1);
    let mut chunks = Chunks::new();
    state.encode(None, None, None, 20_000, &mut chunks);
    assert!(chunks.len() >= 5);
    assert!(chunks.iter().all(|chunk| chunk.value.len() <= 20_000));
    assert_eq!(chunks.oversized(), 0);
    assert_same(&received(&chunks), &parse("World", &update.0), "late joiner");
}

#[test]
fn an_entry_larger_than_a_chunk_is_cut_and_a_string_is_reported() {
    let mut state = world(removable());
    let parts = (1..100).fold(message(), |wire, key| wire.entry(13, key, message().varint(2, u64::from(key))));
    merge(&mut state, message().entry(1, 1, parts.clone()), 1, 1);
    let mut chunks = Chunks::new();
    state.encode(None, None, None, 200, &mut chunks);
    assert!(chunks.iter().all(|chunk| chunk.value.len() <= 200));
    assert_eq!(chunks.oversized(), 0);
    assert_same(&received(&chunks), &parse("World", &message().entry(1, 1, parts).0), "cut");
    merge(&mut state, message().text(5, &"x".repeat(300)), 1, 2);
    state.encode(Some(Tick(1)), None, None, 200, &mut chunks);
    assert_eq!((chunks.len(), chunks.oversized()), (1, 1));
}

#[test]
fn a_removal_in_the_same_window_as_other_updates_reaches_every_subscriber() {
    let mut state = world(removable());
    let mut early = Receiver::new("World", true);
    merge(&mut state, message().entry(1, 1, moving(1.0)).entry(1, 2, moving(1.0)), 1, 1);
    early.receive_all(&delta(&state, 0));
    merge(&mut state, message().entry(1, 1, moving(2.0)), 1, 2);
    merge(&mut state, message().entry(1, 1, message().varint(1, 1)), 1, 3);
    merge(&mut state, message().entry(1, 2, moving(3.0)), 1, 4);
    early.receive_all(&delta(&state, 1));
    let expected = parse("World", &message().entry(1, 2, moving(3.0)).0);
    assert_same(&early.message, &expected, "subscriber");
    assert_same(&full(&state, "World", 60_000), &expected, "newcomer");
    assert_eq!(state.tombstone_count(), 1);
}

/// Merges what writers 1, 2 and 3 say, one after the other. Writer 1, which has received `before` and skips its own
/// updates, then gets the rest: it ends with the state.
fn a_subscriber_that_skips_itself_ends_with_the_state(before: Wire, said: &[(u32, Wire)]) {
    for max_bytes in [40, 60_000] {
        let mut state = world(removable());
        let (mut by_encoding, mut by_cutting) = (Receiver::new("World", true), Receiver::new("World", true));
        merge(&mut state, before.clone(), 9, 1);
        for receiver in [&mut by_encoding, &mut by_cutting] {
            receiver.receive_all(&delta(&state, 0));
        }
        for (tick, (writer, update)) in (2..).zip(said) {
            merge(&mut state, update.clone(), *writer, tick);
            if *writer == 1 {
                by_encoding.receive(&update.0);
                by_cutting.receive(&update.0);
            }
        }
        let expected = full(&state, "World", 60_000);
        let (mut own, mut shared) = (Chunks::new(), Chunks::new());
        state.encode(Some(Tick(1)), None, Some(1), max_bytes, &mut own);
        by_encoding.receive_all(&own);
        assert_same(&by_encoding.message, &expected, &format!("encoded without its own, chunks of {max_bytes}"));
        state.encode(Some(Tick(1)), None, None, max_bytes, &mut shared);
        match shared.involvement(1) {
            Involvement::Mixed => continue,
            _ => by_cutting.receive_without(&shared, 1),
        }
        assert_same(&by_cutting.message, &expected, &format!("its own cut out, chunks of {max_bytes}"));
    }
}

#[test]
fn a_writer_to_a_key_that_another_removed_gets_the_removal() {
    let before = || message().entry(1, 1, message().text(8, "old"));
    let removal = || message().entry(1, 1, message().varint(1, 1));
    let own = || message().entry(1, 1, message().varint(2, 5));
    a_subscriber_that_skips_itself_ends_with_the_state(before(), &[(2, removal()), (1, own())]);
    let of_third = || message().entry(1, 1, message().text(5, "third"));
    a_subscriber_that_skips_itself_ends_with_the_state(before(), &[(2, removal()), (1, own()), (3, of_third())]);
    a_subscriber_that_skips_itself_ends_with_the_state(before(), &[(2, removal()), (3, of_third()), (1, own())]);
    a_subscriber_that_skips_itself_ends_with_the_state(
        before(),
        &[(1, own()), (2, removal()), (1, own()), (3, of_third())],
    );
    a_subscriber_that_skips_itself_ends_with_the_state(
        before(),
        &[(2, removal()), (1, own()), (1, removal()), (3, of_third())],
    );
}

#[test]
fn the_same_holds_for_a_key_within_an_entry_and_next_to_fields_of_its_own() {
    let part = |value: Wire| message().entry(1, 1, message().entry(13, 3, value));
    let before = part(message().varint(2, 7)).and(message().entry(1, 2, message().varint(2, 1)));
    let removal = part(message().varint(1, 1));
    let own = part(message().fixed64(3, 1.0f64.to_bits())).and(message().entry(1, 1, message().varint(2, 4)));
    a_subscriber_that_skips_itself_ends_with_the_state(before, &[(2, removal), (1, own)]);
}

#[test]
fn a_writer_that_returns_to_a_oneof_message_learns_that_another_had_left_it() {
    let chosen = |number: u32, field: u32| message().nested(number, message().float(field, 1.5));
    a_subscriber_that_skips_itself_ends_with_the_state(chosen(9, 1), &[(2, chosen(10, 1)), (1, chosen(9, 2))]);
    let within = |choice: Wire| message().entry(1, 1, choice);
    let (first, second) = (within(message().nested(10, message().varint(1, 3))), within(message().text(9, "other")));
    a_subscriber_that_skips_itself_ends_with_the_state(
        first,
        &[(2, second), (1, within(message().nested(10, message())))],
    );
}

#[test]
fn a_key_that_comes_back_has_nothing_of_its_former_value() {
    let mut state = world(removable());
    let mut subscriber = Receiver::new("World", true);
    merge(&mut state, message().entry(1, 1, message().varint(2, 5).text(8, "old")), 1, 1);
    subscriber.receive_all(&delta(&state, 0));
    merge(&mut state, message().entry(1, 1, message().varint(1, 1)), 1, 2);
    merge(&mut state, message().entry(1, 1, message().varint(2, 6)), 1, 3);
    let chunks = delta(&state, 1);
    assert_eq!(chunks.len(), 2, "the removal, then the new entry");
    subscriber.receive_all(&chunks);
    assert_same(&subscriber.message, &parse("World", &message().entry(1, 1, message().varint(2, 6)).0), "came back");
    assert_eq!(delta(&state, 2).len(), 1, "who knows of the removal is not told again");
}

#[test]
fn tombstones_are_forgotten_when_told_to_and_bounded_otherwise() {
    let limits = StateLimits { tombstones: 8, ..StateLimits::default() };
    let mut state = world_within(removable(), limits);
    let gone = |key| message().entry(1, key, message().varint(1, 1));
    for tick in 1..=8 {
        merge(&mut state, gone(tick), 1, u64::from(tick));
    }
    state.forget(Tick(3));
    assert_eq!((state.tombstone_count(), state.horizon()), (5, Tick(3)));
    let mut dropped = 0;
    for tick in 9..=20 {
        dropped += state.merge(&gone(tick).0, &url("World"), 1, Tick(tick.into())).unwrap().tombstones_dropped;
        assert!(state.tombstone_count() <= 8);
    }
    assert_eq!(dropped as usize, 5 + 12 - state.tombstone_count());
    assert!(state.horizon().is_newer_than(Tick(3)));
    state.forget(Tick(20));
    let empty = world_within(removable(), limits).size_bytes();
    assert_eq!((state.tombstone_count(), state.value_count()), (0, 1), "the map alone is left");
    assert!(state.size_bytes() < empty + 512, "{} bytes, of which {empty} belong to any state", state.size_bytes());
}

#[test]
fn list_options_are_obeyed() {
    let chat = |text: &str| message().nested(2, message().text(3, text));
    let texts = |state: &DataState| -> Vec<String> {
        let message = full(state, "World", 60_000);
        let list = message.get_field_by_name("chats").unwrap().into_owned();
        let text = |chat: &prost_reflect::Value| {
            chat.as_message().unwrap().get_field_by_name("content").unwrap().as_str().unwrap().to_owned()
        };
        list.as_list().unwrap().iter().map(text).collect()
    };
    for (options, expected) in [
        (MergeOptions::default(), vec!["a", "b", "c", "d"]),
        (MergeOptions { list_size_limit: 3, truncate_top: true, ..MergeOptions::default() }, vec!["b", "c", "d"]),
        (MergeOptions { list_size_limit: 3, ..MergeOptions::default() }, vec!["a", "b", "c"]),
        (MergeOptions { replace_lists: true, ..MergeOptions::default() }, vec!["c", "d"]),
    ] {
        let mut state = world(options);
        merge(&mut state, chat("a").and(chat("b")), 1, 1);
        merge(&mut state, chat("c").and(chat("d")), 1, 2);
        assert_eq!(texts(&state), expected, "{options:?}");
    }
}

#[test]
fn each_writer_can_be_left_out_by_copying() {
    let mut state = world(removable());
    for writer in 1..=50 {
        merge(&mut state, message().entry(1, writer, moving(writer as f32)), writer, 1);
    }
    let chunks = delta(&state, 0);
    for writer in 1..=50 {
        assert_eq!(chunks.involvement(writer), Involvement::Parts);
        assert_eq!(chunks.chunk(0).parts_of(writer).len(), 1, "one stretch of bytes");
        let mut receiver = Receiver::new("World", false);
        receiver.receive_without(&chunks, writer);
        let others = (1..=50).filter(|&other| other != writer);
        let expected = others.fold(message(), |wire, key| wire.entry(1, key, moving(key as f32)));
        assert_same(&receiver.message, &parse("World", &expected.0), "without one");
    }
    assert_eq!(chunks.involvement(51), Involvement::None);
}

#[test]
fn an_entry_of_two_writers_is_mixed_and_encoded_for_each() {
    let mut state = world(removable());
    merge(&mut state, message().entry(1, 1, message().varint(2, 5)), 7, 1);
    merge(&mut state, message().entry(1, 1, message().text(8, "name")), 8, 2);
    let mut chunks = delta(&state, 0);
    assert_eq!(
        [7, 8, 9].map(|writer| chunks.involvement(writer)),
        [Involvement::Mixed, Involvement::Mixed, Involvement::None]
    );
    state.encode(Some(Tick(0)), None, Some(7), 60_000, &mut chunks);
    assert_same(&received(&chunks), &parse("World", &message().entry(1, 1, message().text(8, "name")).0), "for 7");
}

#[test]
fn entries_are_set_and_removed_by_the_gateway_itself() {
    for mut state in [world(MergeOptions::default()), opaque()] {
        let key = MapKey::from(70_000);
        state.set_entry(1, &key, &message().varint(2, 5).0, 0, Tick(1)).unwrap();
        assert!(state.has_entry(1, &key));
        assert!(state.keys(1).eq([key.clone()]));
        let mut value = Vec::new();
        assert!(state.entry(1, &key, &mut value));
        assert_eq!(value, message().varint(2, 5).0);
        state.remove_entry(1, &key, &[0x08, 1], 0, Tick(2)).unwrap();
        assert!(!state.has_entry(1, &key) && state.entry_count(1) == 0);
        let chunks = delta(&state, 1);
        assert_same(&received(&chunks), &parse("World", &message().entry(1, 70_000, message().varint(1, 1)).0), "told");
    }
    let mut state = world(MergeOptions::default());
    assert_eq!(state.set_entry(5, &MapKey::from(1), &[], 0, Tick(1)), Err(MergeError::NotAMap { number: 5 }));
    assert_eq!(state.set_entry(8, &MapKey::from(1), &[], 0, Tick(1)), Err(MergeError::NotAMap { number: 8 }));
}

#[test]
fn limits_refuse_and_leave_the_state_as_it_was() {
    let limits = StateLimits { state_bytes: 3_000, entries: 20, depth: 3, ..StateLimits::default() };
    let mut state = world_within(removable(), limits);
    merge(&mut state, message().text(5, "arena"), 1, 1);
    let deep = (0..4).fold(message(), |wire, _| message().nested(7, wire).nested(3, message()));
    let deep = message().nested(7, message().nested(3, message().nested(3, message().nested(3, deep))));
    let numbers = message().bytes(3, &[1; 30]);
    let long = message().text(5, &"x".repeat(3_200));
    let longer = message().text(5, &"x".repeat(60_000));
    let key = message().nested(8, message().text(1, &"k".repeat(1_025)).text(2, "v"));
    let bad_text = message().bytes(5, &[0xFF]);
    let unknown = (2_000..3_100).fold(message(), |wire, number| wire.varint(number, 1));
    for (update, tag) in [
        (deep, "too_deep"),
        (numbers, "too_many_entries"),
        (long, "too_large"),
        (longer, "undeliverable"),
        (key, "undeliverable"),
        (bad_text, "malformed"),
        (unknown, "too_many_fields"),
    ] {
        let update = message().fixed64(6, 1).and(update);
        assert_eq!(state.merge(&update.0, &url("World"), 1, Tick(2)).unwrap_err().tag(), tag);
        assert_same(&full(&state, "World", 60_000), &parse("World", &message().text(5, "arena").0), tag);
    }
    for tick in 3..200 {
        merge(&mut state, message().text(5, &"y".repeat(380)), 1, tick);
    }
}

// As protobuf's parsers have it; channeld refuses nothing for it.
#[test]
fn a_known_field_in_another_wire_type_is_an_unknown_field() {
    let mut state = world(removable());
    merge(&mut state, message().text(5, "arena").varint(6, 7).entry(1, 3, message().varint(8, 1)), 1, 1);
    merge(&mut state, message().varint(5, 9).fixed64(6, 1), 1, 2);
    let sun = message().nested(9, message().float(1, 1.0));
    merge(&mut state, sun.clone(), 1, 3);
    merge(&mut state, message().text(11, "no fog"), 1, 4);
    // Looked at as bytes: prost's own decoder, unlike others, refuses what this is about.
    let mut bytes = Vec::new();
    state.write_full(&mut bytes);
    let has = |wire: Wire| bytes.windows(wire.0.len()).any(|window| window == wire.0);
    assert!(has(message().text(5, "arena")) && has(message().fixed64(6, 1)), "the values of the right type");
    assert!(has(message().varint(5, 9)) && has(message().varint(6, 7)), "and the others beside them");
    assert!(state.has_entry(1, &MapKey::from(3)));
    // To a oneof they are unknown as well: the sun stays.
    assert!(has(sun) && has(message().text(11, "no fog")));
}

#[test]
fn an_entry_takes_the_place_of_the_one_with_its_key_unless_its_type_merges_entries() {
    let first = message().entry(1, 7, message().varint(2, 5).text(8, "name").text(6, "tag").entry(13, 1, message()));
    let second =
        message().entry(1, 7, message().text(6, "other").nested(11, message().nested(3, vector(1.0, 2.0, 3.0))));
    for (by_field, expected) in
        [(None, second.clone()), (Some(false), second.clone()), (Some(true), first.clone().and(second.clone()))]
    {
        let options = MergeOptions { merge_map_entries: by_field, ..MergeOptions::default() };
        let mut state = DataState::new(Some(schema("World")), "", options, StateLimits::default(), Tick(0));
        let mut early = Receiver { replaces: by_field != Some(true), ..Receiver::new("World", false) };
        merge(&mut state, first.clone(), 1, 1);
        early.receive_all(&delta(&state, 0));
        merge(&mut state, second.clone(), 2, 2);
        early.receive_all(&delta(&state, 1));
        let mut of_owner = Receiver { replaces: by_field != Some(true), ..Receiver::new("World", false) };
        of_owner.receive(&first.0);
        of_owner.receive(&second.0);
        assert_same(&early.message, &of_owner.message, &format!("{by_field:?}: by deltas"));
        assert_same(&full(&state, "World", 60_000), &of_owner.message, &format!("{by_field:?}: at once"));
        if by_field != Some(true) {
            assert_same(&of_owner.message, &parse("World", &expected.0), "protobuf's merge");
        }
    }
}

#[test]
fn a_field_of_a_replaced_entry_that_a_mask_hides_takes_the_shown_one_with_it() {
    let options = MergeOptions { merge_map_entries: Some(false), ..MergeOptions::default() };
    let mut state = world(options);
    let mut masked = Receiver { replaces: true, ..Receiver::new("World", false) };
    let mask = state.resolve_mask(&["actors.owner"]).unwrap();
    let mut chunks = Chunks::new();
    merge(&mut state, message().entry(1, 7, message().varint(2, 5).text(8, "name")), 1, 1);
    state.encode(None, mask.as_ref(), None, 60_000, &mut chunks);
    masked.receive_all(&chunks);
    merge(&mut state, message().entry(1, 7, message().text(8, "name")), 1, 2);
    state.encode(Some(Tick(1)), mask.as_ref(), None, 60_000, &mut chunks);
    masked.receive_all(&chunks);
    assert_same(&masked.message, &parse("World", &message().entry(1, 7, message()).0), "the owner is gone");
}

#[test]
fn positions_are_read_by_name_by_number_and_by_guess() {
    let update = message().nested(1, moving(4.0));
    let schema_of_entity = schema("Entity");
    let named = VectorPath::resolve("actor.replicatedMovement.location", Some(&schema_of_entity)).unwrap();
    let numbered = VectorPath::resolve("1.11.3", None).unwrap();
    for schema in [Some(schema_of_entity.clone()), None] {
        let mut state =
            DataState::new(schema, &url("Entity"), MergeOptions::default(), StateLimits::default(), Tick(0));
        assert_eq!(state.unreal_location(), None);
        state.merge(&update.0, &url("Entity"), 1, Tick(1)).unwrap();
        let expected = Some([4.0, -4.0, 0.5]);
        assert_eq!(
            (state.vector(&named), state.vector(&numbered), state.unreal_location()),
            (expected, expected, expected)
        );
        let only_x = message().nested(1, message().nested(11, message().nested(3, message().float(1, 9.0))));
        state.merge(&only_x.0, &url("Entity"), 1, Tick(2)).unwrap();
        assert_eq!(state.vector(&named), Some([9.0, -4.0, 0.5]));
        let nan = message().nested(1, message().nested(11, message().nested(3, message().float(1, f32::NAN))));
        state.merge(&nan.0, &url("Entity"), 1, Tick(3)).unwrap();
        assert_eq!(state.vector(&named), None);
    }
    assert!(VectorPath::resolve("actor.nonsense", Some(&schema_of_entity)).is_err());
}

#[test]
fn chats_appended_one_by_one_arrive_once_each_without_a_schema() {
    let mut state = opaque();
    let mut receiver = Receiver::new("World", false);
    for tick in 1..=300 {
        let chat = message().varint(1, tick).varint(2, 7).text(3, "hello");
        merge(&mut state, message().nested(2, chat), 1, tick);
        if tick % 20 == 0 {
            receiver.receive_all(&delta(&state, tick - 20));
        }
    }
    assert_eq!(receiver.message.get_field_by_name("chats").unwrap().as_list().unwrap().len(), 300);
}

#[test]
fn an_object_that_moves_for_long_does_not_grow_without_a_schema() {
    let mut state = DataState::new(None, &url("Entity"), MergeOptions::default(), StateLimits::default(), Tick(0));
    state.merge(&message().nested(1, moving(1.0).varint(2, 77)).0, &url("Entity"), 1, Tick(1)).unwrap();
    for tick in 2..5_000 {
        state.merge(&message().nested(1, moving(tick as f32)).0, &url("Entity"), 1, Tick(tick)).unwrap();
    }
    // 64 occurrences as they came, and what was folded: memory, not bytes on the wire.
    assert!(state.size_bytes() < 20_000, "{} bytes", state.size_bytes());
    let expected = parse("Entity", &message().nested(1, moving(4_999.0).varint(2, 77)).0);
    assert_same(&full(&state, "Entity", 60_000), &expected, "the first update's field is still there");
}

#[test]
fn a_state_goes_on_after_2_to_the_32_ticks() {
    let start = Tick((1 << 32) - 2);
    let mut state = DataState::new(Some(schema("World")), "", removable(), StateLimits::default(), start);
    let mut chunks = Chunks::new();
    for step in 1..6 {
        let tick = start.after(step);
        state.merge(&message().varint(11, u64::from(step)).0, &url("World"), 1, tick).unwrap();
        state.encode(Some(tick.before(1)), None, None, 60_000, &mut chunks);
        assert_eq!(chunks.len(), 1, "{tick:?}");
        state.encode(Some(tick), None, None, 60_000, &mut chunks);
        assert!(chunks.is_empty(), "{tick:?}");
    }
    assert_eq!(state.last_change(), Tick((1 << 32) + 3));
}

#[test]
fn schemas_are_found_by_type_url() {
    let mut schemas = Schemas::default();
    schemas.add_pool(pool());
    assert_eq!(schemas.find(&url("World")).map(|schema| schema.name().to_owned()), Some("test.World".to_owned()));
    assert!(schemas.find("type.googleapis.com/test.Nothing").is_none());
    let set = Schemas::from_descriptor_set(&pool().encode_to_vec()).unwrap();
    assert_eq!(set.len(), schemas.len());
    assert_eq!(Schemas::from_descriptor_set(&[0xFF]).unwrap_err().tag(), "descriptor_set");
}

#[test]
fn the_longest_type_url_has_512_bytes() {
    let named = |bytes: usize| format!("{}/test.World", "x".repeat(bytes - "/test.World".len()));
    let mut state = world(removable());
    let update = message().text(5, "arena").0;
    assert_eq!(state.merge(&update, &named(513), 1, Tick(1)), Err(MergeError::Undeliverable { number: 1 }));
    assert!(state.merge(&update, &named(512), 1, Tick(1)).is_ok());
}

#[test]
fn an_entry_that_is_replaced_as_a_whole_has_to_fit_into_a_message() {
    // No string in it is too long, but all of them are.
    let parts = message().text(8, &"n".repeat(40_000)).text(9, &"b".repeat(40_000));
    let update = message().entry(1, 7, parts).0;
    for (by_field, expected) in [(false, Some(MergeError::Undeliverable { number: 1 })), (true, None)] {
        let mut state = world(MergeOptions { merge_map_entries: Some(by_field), ..MergeOptions::default() });
        assert_eq!(state.merge(&update, &url("World"), 1, Tick(1)).err(), expected, "by field: {by_field}");
        assert_eq!(state.is_empty(), expected.is_some());
    }
}

#[test]
fn a_message_inside_a_state_counts_towards_its_limit() {
    let limits = StateLimits { state_bytes: 8_000, ..StateLimits::default() };
    let mut state = world_within(MergeOptions::default(), limits);
    merge(&mut state, message().nested(7, message().varint(2, 1)), 1, 1);
    let before = state.size_bytes();
    let large = message().nested(7, message().entry(1, 7, message().text(8, &"n".repeat(10_000))));
    assert_eq!(
        state.merge(&large.0, &url("World"), 1, Tick(2)),
        Err(MergeError::TooLarge { limit_bytes: limits.state_bytes })
    );
    assert_eq!(state.size_bytes(), before);
}

#[test]
fn entries_with_long_keys_may_fill_a_state_up_to_its_limit() {
    let labels = |numbers: std::ops::Range<u32>| {
        numbers.fold(message(), |wire, number| {
            let key = format!("{number:04}{}", "k".repeat(300));
            wire.nested(8, message().text(1, &key).text(2, "v"))
        })
    };
    let mut state = world(MergeOptions::default());
    merge(&mut state, labels(0..100), 1, 1);
    let needed = state.size_bytes();
    // A fifth more than what it takes.
    let limits = StateLimits { state_bytes: needed + needed / 5, ..StateLimits::default() };
    let mut state = world_within(MergeOptions::default(), limits);
    merge(&mut state, labels(0..50), 1, 1);
    merge(&mut state, labels(50..100), 1, 2);
    assert_eq!(state.keys(8).count(), 100);
    let limits = StateLimits { state_bytes: needed / 2, ..StateLimits::default() };
    let refused = world_within(MergeOptions::default(), limits).merge(&labels(0..100).0, &url("World"), 1, Tick(1));
    assert_eq!(refused, Err(MergeError::TooLarge { limit_bytes: limits.state_bytes }));
}

#[test]
fn a_replaced_entry_keeps_nothing_of_the_old_one_not_even_in_maps_that_merge() {
    let soldier = |fields: Wire| message().entry(12, 1, message().entry(1, 7, fields));
    let mut state = DataState::new(Some(schema("World")), "", MergeOptions::default(), StateLimits::default(), Tick(0));
    merge(&mut state, soldier(message().varint(1, 100).varint(2, 30)), 1, 1);
    merge(&mut state, soldier(message().varint(1, 90)), 1, 2);
    let expected = parse("World", &soldier(message().varint(1, 90)).0);
    assert_same(&full(&state, "World", 60_000), &expected, "the squad is replaced, with its soldiers");
}

#[test]
fn an_entry_of_which_two_wrote_fields_needs_no_message_of_its_own() {
    let mut state = world(MergeOptions::default());
    let names = (1..=3).fold(message(), |wire, key| wire.entry(1, key, message().text(8, "name")));
    merge(&mut state, names, 2, 1);
    merge(&mut state, message().entry(1, 2, message().varint(2, 5)), 1, 2);
    let chunks = delta(&state, 0);
    assert_eq!((chunks.len(), chunks.mixed_writers()), (1, &[1, 2][..]));
    assert_same(&received(&chunks), &full(&state, "World", 60_000), "all of it");
}

#[test]
fn a_list_is_sent_in_the_form_that_its_type_declares() {
    let mut state = world(MergeOptions::default());
    let loose = message().fixed32(4, 7).fixed32(4, 8);
    merge(&mut state, loose.clone(), 1, 1);
    let packed = message().bytes(3, &[2, 4]);
    merge(&mut state, packed.clone(), 1, 2);
    let mut whole = Vec::new();
    state.write_full(&mut whole);
    assert_eq!(whole, packed.and(loose).0);
}

#[test]
fn what_was_written_while_a_subscriber_was_behind_reaches_it_though_only_the_newest_pieces_are_kept_as_they_came() {
    let limits = StateLimits { verbatim_occurrences: 2, ..StateLimits::default() };
    let mut state = DataState::new(None, &url("World"), MergeOptions::default(), limits, Tick(0));
    let gun = |fields: Wire| message().entry(1, 1, message().nested(10, fields));
    let model = |name: &str| gun(message().text(2, name));
    let all = [gun(message().varint(1, 5).text(2, "x")), model("a"), model("b"), model("c")];
    let later = [gun(message().varint(1, 9)), model("d"), model("e")];
    let mut subscriber = Receiver::new("World", false);
    for (tick, update) in (1..).zip(all) {
        merge(&mut state, update, 1, tick);
    }
    subscriber.receive_all(&delta(&state, 0));
    for (tick, update) in (5..).zip(later) {
        merge(&mut state, update, 1, tick);
    }
    subscriber.receive_all(&delta(&state, 4));
    let expected = gun(message().varint(1, 9).text(2, "e"));
    assert_same(&subscriber.message, &parse("World", &expected.0), "by deltas");
}

#[test]
fn where_no_schema_is_known_a_new_piece_takes_the_room_of_the_oldest() {
    let limits = StateLimits { verbatim_occurrences: 4, ..StateLimits::default() };
    let mut state = DataState::new(None, &url("World"), MergeOptions::default(), limits, Tick(0));
    let mut add = |room_bytes: usize, tick: u64| {
        let update = message().text(5, &format!("piece {tick}"));
        state.merge_within(room_bytes, (&update.0, &url("World")), 1, Tick(tick)).is_ok()
    };
    assert!((1..=3).all(|tick| add(usize::MAX, tick)));
    assert!(!add(0, 4), "there is a place for it, and no memory");
    assert!(add(usize::MAX, 4) && add(0, 5) && add(0, 6));
}

/// Which fields are lists at the other copy says nothing of fields of inner messages, also if they have the same number.
#[test]
fn a_joined_update_is_merged_as_any_other_below_the_outermost_message() {
    let limits = StateLimits { verbatim_occurrences: 2, ..StateLimits::default() };
    let piece = |number: u64| message().nested(100, message().varint(3, number));
    let cases = [("World", 7), ("Inner", 3)].map(|outer| [(outer, false, &[100][..]), (outer, true, &[])]);
    for ((outer, field), are_lists, repeated) in cases.into_iter().flatten() {
        let new = || DataState::new(Some(schema(outer)), "", MergeOptions::default(), limits, Tick(0));
        let [mut single, mut joined] = [new(), new()];
        let mut dropped = 0;
        for tick in 1..=5 {
            let pieces = if are_lists { piece(tick).and(piece(100 + tick)) } else { piece(tick) };
            let update = message().nested(field, pieces).0;
            let merged = single.merge(&update, &url(outer), 1, Tick(tick)).unwrap();
            assert_eq!(joined.merge_joined((&update, &url(outer)), repeated, 1, Tick(tick)), Ok(merged));
            dropped += merged.dropped;
        }
        let whole = [&single, &joined].map(|state| {
            let mut whole = Vec::new();
            state.write_full(&mut whole);
            whole
        });
        assert_eq!(whole[0], whole[1]);
        assert_eq!(dropped > 0, are_lists, "what is a list loses its oldest, what may be a message is joined");
    }
}

#[test]
fn the_places_of_a_map_count_as_memory() {
    let mut state = world(MergeOptions::default());
    let labels = |count: u32| {
        (0..count)
            .fold(message(), |wire, number| wire.nested(8, message().text(1, &format!("{number:04}")).text(2, "v")))
    };
    merge(&mut state, labels(1), 1, 1);
    let one = state.size_bytes();
    merge(&mut state, labels(1_001), 1, 2);
    let each = (state.size_bytes() - one) / 1_000;
    // Key and value take 32 bytes each; the entry that holds them has two stamps, two neighbours, a name and a value.
    assert!((140..400).contains(&each), "{each} bytes");
}

#[test]
fn types_are_there_once_they_are_read() {
    let mut schemas = Schemas::default();
    assert!(schemas.is_empty());
    schemas.add(Schemas::from_descriptor_set(throng_channeld::proto::DESCRIPTORS).unwrap());
    assert!(!schemas.is_empty() && schemas.len() > 50);
}
