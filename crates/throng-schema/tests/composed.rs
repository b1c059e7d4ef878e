//! Optional values, lists and nested structs as fields.

use proptest::prelude::*;
use throng_schema::{Condition, DecodeError, Facet, Field, Kind, Quantiser, Replicate, Schema, Space, ValuesMut};
use throng_wire::{BitReader, BitWriter, ObjectId};

use crate::kinds::{Mode, Store};

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Place {
    #[replicate(position(step = 0.5))]
    at: [f32; 3],
    #[replicate(angle(bits = 4), notify)]
    yaw: f32,
    #[replicate(skip)]
    visits: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Pocket {
    #[replicate(object)]
    item: Option<ObjectId>,
    #[replicate(text(max_bytes = 5))]
    label: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Pilgrim {
    #[replicate(integer(min = 0, max = 9))]
    age: u8,
    #[replicate(nested)]
    place: Place,
    #[replicate(integer(min = -3, max = 3))]
    mood: Option<i8>,
    #[replicate(integer(min = 0, max = 15), list(max = 3))]
    beads: Vec<u8>,
    #[replicate(nested, owner_only)]
    pocket: Pocket,
    #[replicate(fixed(min = 0, max = 1, step = 0.25), list(max = 2))]
    path: Vec<[f32; 2]>,
    #[replicate(enumeration)]
    mode: Option<Mode>,
    #[replicate(bytes(max_bytes = 3), hide_from_owner)]
    seal: Option<Vec<u8>>,
    #[replicate(bool)]
    steps: Option<[bool; 4]>,
}

fn pilgrim() -> Pilgrim {
    Pilgrim {
        age: 7,
        place: Place { at: [1.0, -2.5, 0.0], yaw: 0.0, visits: 5 },
        mood: Some(-2),
        beads: vec![9, 0, 15],
        pocket: Pocket { item: Some(ObjectId { index: 2, generation: 1 }), label: Some("ink".to_owned()) },
        path: vec![[0.25, 1.0]],
        mode: Some(Mode::Walking),
        seal: Some(vec![0xAB]),
        steps: Some([true, false, true, true]),
    }
}

fn encoded(value: &Pilgrim) -> Vec<u8> {
    let (kind, store) = (Pilgrim::kind(), Store::of(value));
    let mut bytes = Vec::new();
    let mut w = BitWriter::new(&mut bytes);
    kind.encode(kind.all_mask(), store.values(), &Space::WORLD, &mut w);
    w.finish();
    bytes
}

fn decoded(bytes: &[u8], onto: &Pilgrim) -> Result<(Pilgrim, u64), DecodeError> {
    let kind = Pilgrim::kind();
    let mut store = Store::of(onto);
    let before = Store::of(onto);
    kind.decode(kind.all_mask(), store.values_mut(), &Space::WORLD, &mut BitReader::new(bytes))?;
    let mut value = onto.clone();
    value.apply(kind.all_mask(), store.values());
    Ok((value, kind.compare(before.values(), store.values())))
}

#[test]
fn the_fields_of_nested_structs_are_fields_of_the_kind() {
    let kind = Pilgrim::kind();
    let layout: Vec<_> = kind.fields.iter().map(|field| (field.name, field.word, field.words, field.blob)).collect();
    assert_eq!(
        layout,
        [
            ("age", 0, 1, None),
            ("place.at", 1, 3, None),
            ("place.yaw", 4, 1, None),
            ("mood", 5, 2, None),
            ("beads", 7, 4, None),
            ("pocket.item", 11, 3, None),
            ("pocket.label", 14, 1, Some(0)),
            ("path", 15, 5, None),
            ("mode", 20, 2, None),
            ("seal", 22, 1, Some(1)),
            ("steps", 23, 5, None),
        ]
    );
    assert_eq!((kind.words, kind.blobs, kind.position), (28, 2, Some(1)));
    assert_eq!(kind.facet_mask(Facet::Owner), Pilgrim::FIELD_POCKET);
    assert_eq!(kind.facet_mask(Facet::Others), Pilgrim::FIELD_SEAL);
    assert_eq!(Pilgrim::FIELD_PLACE, 0b110);
    assert_eq!(kind.notify_mask(), Place::FIELD_YAW << Pilgrim::FIELD_PLACE.trailing_zeros());
    // A second call returns the same names, not new ones.
    let again = Pilgrim::kind();
    assert!(std::ptr::eq(kind.fields[1].name, again.fields[1].name));
}

#[test]
fn optional_values_and_lists_have_these_bytes() {
    // age: 7 in 4 bits; at: 2, -5, 0 in 32 bits each; yaw: 0 in 4.
    // mood: 1 | 1 of 0 to 6 in 3 bits. beads: 3 in 2 bits, 9, 0, 15 in 4 each.
    // item: 1 | varint 3 | varint 1. label: 1 | length 3 in 3 bits | "ink".
    // path: 1 in 2 bits | 1, 4 in 3 bits each. mode: 1 | 1 in 3 bits. seal: 1 | 1 in 2 bits | ab. steps: 1 | 1 0 1 1.
    let mut wanted = Vec::new();
    let mut w = BitWriter::new(&mut wanted);
    for (value, bits) in [(7, 4), (2, 32), (0xFFFF_FFFB, 32), (0, 32), (0, 4), (1, 1), (1, 3), (3, 2), (9, 4), (0, 4)] {
        w.write(value, bits);
    }
    let rest = [(15, 4), (1, 1), (3, 8), (1, 8), (1, 1), (3, 3), (0x69, 8), (0x6E, 8), (0x6B, 8), (1, 2), (1, 3)];
    for (value, bits) in rest {
        w.write(value, bits);
    }
    for (value, bits) in [(4, 3), (1, 1), (1, 3), (1, 1), (1, 2), (0xAB, 8), (1, 1), (0b1101, 4)] {
        w.write(value, bits);
    }
    w.finish();
    assert_eq!(encoded(&pilgrim()), wanted);
    // Nothing at all: one bit for each of five options, two for each of the lists.
    let nothing = encoded(&Pilgrim::default());
    assert_eq!(nothing.len(), (4 + 96 + 4 + 1 + 2 + 1 + 1 + 2 + 1 + 1 + 1usize).div_ceil(8));
}

#[test]
fn what_is_taken_away_leaves_no_trace() {
    let full = pilgrim();
    let (empty, _) = decoded(&encoded(&Pilgrim::default()), &full).expect("good bytes");
    let skipped = Place { visits: 5, ..Place::default() };
    assert_eq!(empty, Pilgrim { place: skipped, ..Pilgrim::default() });
    // Equal values have equal words, whatever was there before.
    let (again, differs) = decoded(&encoded(&full), &full).expect("good bytes");
    assert_eq!((again, differs), (full, 0));
    let longer = Pilgrim { beads: vec![1, 2, 3, 4, 5], path: vec![[0.0; 2]; 9], ..Pilgrim::default() };
    let (cut, _) = decoded(&encoded(&longer), &Pilgrim::default()).expect("good bytes");
    assert_eq!((cut.beads.as_slice(), cut.path.len()), ([1, 2, 3].as_slice(), 2), "a list that is too long is cut");
}

#[test]
fn only_the_inner_fields_that_changed_are_named_and_taken_over() {
    let kind = Pilgrim::kind();
    let (old, mut new) = (pilgrim(), pilgrim());
    new.place.yaw = 3.0;
    new.mood = None;
    new.pocket.label = None;
    let changed = kind.compare(Store::of(&old).values(), Store::of(&new).values());
    let yaw = Place::FIELD_YAW << Pilgrim::FIELD_PLACE.trailing_zeros();
    let label = Pocket::FIELD_LABEL << Pilgrim::FIELD_POCKET.trailing_zeros();
    assert_eq!(changed, yaw | Pilgrim::FIELD_MOOD | label);
    let mut seen = old.clone();
    seen.apply(label, Store::of(&new).values());
    assert_eq!(seen.pocket, Pocket { label: None, ..old.pocket.clone() });
    assert_eq!((&seen.place, seen.mood), (&old.place, old.mood));
}

#[test]
fn lists_and_their_bounds_count_for_the_hash() {
    let hash = |field: Field| Kind::new("Kind", vec![field]).expect("a good kind").hash;
    let field = || Field::new("x", Quantiser::Bool);
    let hashes =
        [field(), field().list(1), field().list(2), field().list(1).elements(2), field().elements(2)].map(hash);
    for (index, one) in hashes.iter().enumerate() {
        assert!(hashes[index + 1..].iter().all(|other| other != one), "{hashes:x?}");
    }
    let optional = hash(Field::new("x", Quantiser::Bool).list(1).condition(Condition::OwnerOnly));
    assert!(!hashes.contains(&optional));
}

#[test]
fn lists_that_cannot_be_are_refused() {
    let refused = |field: Field| Kind::new("Kind", vec![field]).is_err();
    let text = || Field::new("x", Quantiser::Text { max_bytes: 4 });
    assert!(!refused(text().list(1)) && refused(text().list(2)));
    assert!(refused(Field::new("x", Quantiser::Position { step: 1.0 }).list(1)));
    assert!(refused(Field::new("x", Quantiser::Bool).list(0)));
    assert!(refused(Field::new("x", Quantiser::Bool).elements(2).list(128)));
    assert!(!refused(Field::new("x", Quantiser::Bool).elements(2).list(127)));
}

#[test]
fn lent_values_have_the_shape_of_the_kind_however_many_words_it_has() {
    for words in 1..=127 {
        let list = Field::new("numbers", Quantiser::Bool).list(words - 1);
        let text = Field::new("name", Quantiser::Text { max_bytes: 4 });
        let flag = Field::new("flag", Quantiser::Bool);
        let kind =
            Kind::new("Kind", if words == 1 { vec![flag, text] } else { vec![list, text] }).expect("a good kind");
        let lent = kind.with_empty_values(|values| (values.words.to_vec(), values.blobs.to_vec()));
        assert_eq!(lent, kind.empty_values());
        assert_eq!(lent.1.len(), 1);
    }
}

#[test]
fn a_list_longer_than_its_maximum_is_the_writers_fault() {
    #[derive(Default, Replicate)]
    struct Purse {
        #[replicate(integer(min = 0, max = 15), list(max = 4))]
        coins: Vec<u8>,
    }
    let schema = Schema::builder().kind::<Purse>().build().expect("a good kind");
    let kind = schema.kind(schema.kind_id::<Purse>().expect("it is there"));
    // Three bits count to 4, and could count to 7.
    for (count, is_good) in [(0, true), (4, true), (5, false), (7, false)] {
        let mut bytes = Vec::new();
        let mut w = BitWriter::new(&mut bytes);
        w.write(count, 3);
        w.write(0, 40);
        w.finish();
        let (mut words, mut blobs) = kind.empty_values();
        let values = ValuesMut { words: &mut words, blobs: &mut blobs };
        let read = kind.decode(1, values, &Space::WORLD, &mut BitReader::new(&bytes));
        assert_eq!(read.is_ok(), is_good, "{count} items: {read:?}");
        assert!(is_good || read == Err(DecodeError::TooLong { field: "coins" }));
    }
}

fn pilgrims() -> impl Strategy<Value = Pilgrim> {
    let id = prop::option::of((0..1000u32, 0..5u32).prop_map(|(index, generation)| ObjectId { index, generation }));
    let pocket = (id, prop::option::of("[a-zü]{0,2}")).prop_map(|(item, label)| Pocket { item, label });
    let place =
        [-50..50i32, -50..50, -50..50].prop_map(|at| Place { at: at.map(|x| x as f32 / 2.0), ..Place::default() });
    let mode = prop::option::of(prop::sample::select(vec![Mode::Standing, Mode::Walking, Mode::Flying]));
    let path = prop::collection::vec([0..5u8, 0..5].prop_map(|at| at.map(|x| f32::from(x) / 4.0)), 0..=2);
    let numbers = (0..10u8, prop::option::of(-3..=3i8), prop::collection::vec(0..16u8, 0..=3));
    let rest = (prop::option::of(prop::collection::vec(any::<u8>(), 0..=3)), prop::option::of(any::<[bool; 4]>()));
    (numbers, place, pocket, path, mode, rest).prop_map(
        |((age, mood, beads), place, pocket, path, mode, (seal, steps))| Pilgrim {
            age,
            place,
            mood,
            beads,
            pocket,
            path,
            mode,
            seal,
            steps,
        },
    )
}

proptest! {
    #![proptest_config(throng_seeds::cases(512))]

    #[test]
    fn what_was_written_is_read_onto_anything(written in pilgrims(), onto in pilgrims()) {
        let (read, differs) = decoded(&encoded(&written), &onto).expect("good bytes");
        prop_assert_eq!(&read, &written);
        prop_assert_eq!(differs == 0, onto == written);
        prop_assert!(encoded(&written).len() as u64 * 8 <= Pilgrim::kind().max_bits(u64::MAX) + 7);
    }
}
