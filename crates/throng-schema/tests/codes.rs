//! Code tables: their text, their bytes, and the text and bytes that are refused.

use crate::kinds::{Everything, Mode, Store};
use proptest::prelude::*;
use throng_schema::{CodeCounts, DecodeError, Facet, Kind, Replicate, Schema, SchemaError, Space};
use throng_wire::{BitReader, BitWriter, KindId};

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Walker {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
    #[replicate(fixed(min = -20.0, max = 20.0, step = 0.1))]
    velocity: [f32; 2],
    #[replicate(text(max_bytes = 5))]
    name: String,
    #[replicate(bool, owner_only)]
    open: bool,
}

const CODES: &str = "
    kind Walker                           # who walks
    entries public 0=3 1=1 3=3 else=2
    gaps public 0=1 1/2=2 else=2
    field position 2 -300/8=2 0=1 else=2
    field velocity 1 196/2=2 200=1 else=2
";

fn schema(codes: &str) -> Result<Schema, SchemaError> {
    Schema::builder().kind::<Walker>().codes(codes).build()
}

fn bits(kind: &Kind, mask: u64, value: &Walker, space: &Space) -> String {
    let store = Store::of(value);
    let mut bytes = Vec::new();
    let mut w = BitWriter::new(&mut bytes);
    kind.encode(mask, store.values(), space, &mut w);
    let length = w.bit_len();
    w.finish();
    let text: String = (0..length).map(|bit| if bytes[bit / 8] >> (bit % 8) & 1 == 1 { '1' } else { '0' }).collect();
    let (mut read, mut r) = (Store::of(&Walker::default()), BitReader::new(&bytes));
    kind.decode(mask, read.values_mut(), space, &mut r).expect("what was written");
    assert_eq!((read.values().words, r.remaining_bits()), (store.values().words, bytes.len() * 8 - length));
    text
}

#[test]
fn common_values_are_short_and_all_others_have_the_escape_before_them() {
    let schema = schema(CODES).expect("good tables");
    let kind = schema.kind(KindId(0));
    let velocity = |y: f32| {
        bits(kind, Walker::FIELD_VELOCITY, &Walker { velocity: [-20.0, y], ..Walker::default() }, &Space::WORLD)
    };
    let x = "0".repeat(9);
    assert_eq!(velocity(0.0), format!("{x}0"), "200");
    assert_eq!(velocity(-0.3), format!("{x}1010"), "197: the code 10, and 1 of four, lowest bit first");
    assert_eq!(velocity(0.1), format!("{x}11100100110"), "201: the escape 11, and nine bits, lowest first");
    let cell = Space { origin: [0, 0, 0], bits: [1, 1, 4] };
    let z = |z: f32| {
        bits(kind, Walker::FIELD_POSITION, &Walker { position: [0.0, 0.0, z], ..Walker::default() }, &cell)[2..]
            .to_owned()
    };
    assert_eq!(z(0.0), "0");
    assert_eq!(z(-2.99), "1010000000", "the range reaches beyond the cell");
    assert_eq!(z(0.05), "111010", "5");
    let flat = Space { origin: [0, 0, 7], bits: [1, 1, 0] };
    let at = Walker { position: [0.0, 0.0, 0.07], ..Walker::default() };
    assert_eq!(bits(kind, Walker::FIELD_POSITION, &at, &flat), "00", "an axis that is not written has no code");
    assert_eq!(z(9.0), format!("111111{}", "00100001110000000000000000000000"), "900: not in the cell");
}

#[test]
fn heads_and_gaps_have_codes_of_their_own() {
    let schema = schema(CODES).expect("good tables");
    let kind = schema.kind(KindId(0));
    assert!(kind.entry_codes(Facet::Others).is_none() && kind.gap_codes(Facet::Owner).is_none());
    let heads = kind.entry_codes(Facet::Public).expect("a table");
    let gaps = kind.gap_codes(Facet::Public).expect("a table");
    let written = |table: &throng_schema::CodeTable, value| {
        let mut bytes = Vec::new();
        let mut w = BitWriter::new(&mut bytes);
        let is_whole = table.write(value, &mut w);
        let length = w.bit_len();
        w.finish();
        assert_eq!(is_whole, table.is_coded(value));
        let mut r = BitReader::new(&bytes);
        assert_eq!(table.read(&mut r), Ok(is_whole.then_some(value)));
        assert_eq!(bytes.len() * 8 - r.remaining_bits(), length);
        length
    };
    assert_eq!([0, 1, 2, 3, 4, u32::MAX].map(|head| written(heads, head)), [3, 1, 2, 3, 2, 2]);
    assert_eq!([0, 1, 4, 5, 5_000].map(|gap| written(gaps, gap)), [1, 4, 4, 2, 2]);
    assert!(heads.read(&mut BitReader::new(&[])).is_err());
}

#[test]
fn the_text_comes_back_and_counts_for_the_hash() {
    let (plain, coded) = (schema("").expect("no tables"), schema(CODES).expect("good tables"));
    assert_eq!(plain.hash(), Schema::builder().kind::<Walker>().build().expect("a good kind").hash());
    assert_ne!(plain.hash(), coded.hash());
    let text = coded.kind(KindId(0)).codes_text();
    assert_eq!(
        text,
        "kind Walker\nentries public 0=3 1=1 3=3 else=2\ngaps public 0=1 1/2=2 else=2\n\
         field position 2 -300/8=2 0=1 else=2\nfield velocity 1 196/2=2 200=1 else=2\n"
    );
    assert_eq!(schema(&text).expect("the same").hash(), coded.hash());
    assert_ne!(schema(&text.replace("0=3 1=1 3=3", "0=3 1=1 2=3")).expect("others").hash(), coded.hash());
    assert_eq!(plain.differences(&coded.summary()).len(), 1);
}

#[test]
fn wrong_text_is_refused_with_its_line() {
    let refused = |text: &str| match schema(text) {
        Err(SchemaError::Codes { line, reason }) => format!("{line}: {reason}"),
        other => panic!("{text:?} gives {other:?}"),
    };
    let of = |line: &str| refused(&format!("kind Walker\n{line}"));
    assert_eq!(refused("\nkind Runner"), "2: the schema has no such kind");
    assert_eq!(refused("gaps public 0=1 else=1"), "1: a line `kind NAME` comes first");
    assert_eq!(refused("kind"), "1: a kind has a name");
    assert_eq!(of("slots 0=1"), "2: a line begins with `kind`, `entries`, `gaps` or `field`");
    assert_eq!(of("gaps 0=1 else=1"), "2: this is no facet");
    for facet in ["owner", "others"] {
        assert_eq!(of(&format!("gaps {facet} 0=1 else=1")), "2: no channel holds such fields of this kind");
    }
    assert_eq!(of("gaps public 16777216=1 else=1"), "2: a channel has at most 2^24 slots");
    assert_eq!(of("entries public 8=1 else=1"), "2: a mask has more bits than the facet has fields that change");
    assert_eq!(of("field speed 0 0=1 else=1"), "2: the kind has no such field");
    assert_eq!(of("field velocity 0=1 else=1"), "2: the number of an element comes after the field's name");
    assert_eq!(of("field velocity 2 0=1 else=1"), "2: the field has fewer elements");
    assert_eq!(of("field name 0 0=1 else=1"), "2: such a field has no code table");
    assert_eq!(of("field velocity 0 401=1 else=1"), "2: the field has no such values");
    assert_eq!(of("field velocity 0 0=1 else=1\nfield velocity 0 0=1 else=1"), "3: these values have a table already");
    let wrong = "2: a range is written FIRST=BITS or FIRST/SIZE=BITS, and `else=BITS` comes last";
    for table in [
        "0=1",
        "0 else=1",
        "else=1 0=1",
        "x=1 else=1",
        "0/x=1 else=1",
        "0=x else=1",
        "-1=1 else=1",
        "9999999999=1 else=1",
    ] {
        assert_eq!(of(&format!("gaps public {table}")), wrong, "{table}");
    }
    assert_eq!(of("gaps public else=1"), "2: a code table has 1 to 254 ranges");
    let many: String = (0..255).map(|first| format!(" {first}=8")).collect();
    assert_eq!(of(&format!("gaps public{many} else=8")), "2: a code table has 1 to 254 ranges");
    assert_eq!(of("gaps public 0/3=1 7=2 else=2"), "2: the ranges of a code table overlap, or are not in order");
    assert_eq!(of("gaps public 9=1 7=2 else=2"), "2: the ranges of a code table overlap, or are not in order");
    assert_eq!(of("gaps public 0/32=1 else=1"), "2: a range of a code table ends beyond 32 bits");
    assert_eq!(of("field position 0 2147483647/1=1 else=1"), "2: a range of a code table ends beyond 32 bits");
    for table in ["0=0 else=1", "0=11 else=1"] {
        assert_eq!(of(&format!("gaps public {table}")), "2: the codes of a table have 1 to 10 bits");
    }
    for table in ["0=2 else=1", "0=1 1=1 else=1"] {
        assert_eq!(
            of(&format!("gaps public {table}")),
            "2: the lengths of the codes are not those of a complete prefix code"
        );
    }
}

#[test]
fn a_value_that_has_a_code_is_not_read_after_an_escape() {
    let schema = schema(CODES).expect("good tables");
    let read = |y: u64| {
        let mut bytes = Vec::new();
        let mut w = BitWriter::new(&mut bytes);
        w.write(0, 9);
        w.write(0b11, 2);
        w.write(y, 9);
        w.finish();
        let mut store = Store::of(&Walker::default());
        schema.kind(KindId(0)).decode(
            Walker::FIELD_VELOCITY,
            store.values_mut(),
            &Space::WORLD,
            &mut BitReader::new(&bytes),
        )
    };
    let refused = Err(DecodeError::OutOfRange { field: "velocity" });
    assert_eq!([200, 196, 199, 401].map(read), [refused; 4]);
    assert_eq!([195, 201, 400].map(read), [Ok(()); 3]);
}

#[derive(Clone, Debug, Default, Replicate)]
struct Dial {
    #[replicate(integer(min = 0, max = 250))]
    number: u8,
}

#[derive(Clone, Debug, Default, Replicate)]
struct Switches {
    #[replicate(bool)]
    a: bool,
    #[replicate(bool)]
    b: bool,
    #[replicate(bool)]
    c: bool,
    #[replicate(bool)]
    d: bool,
    #[replicate(bool)]
    e: bool,
    #[replicate(bool)]
    f: bool,
    #[replicate(bool)]
    g: bool,
    #[replicate(bool)]
    h: bool,
}

#[derive(Clone, Debug, Default, Replicate)]
struct Board {
    #[replicate(nested)]
    one: Switches,
    #[replicate(nested)]
    two: Switches,
    #[replicate(nested)]
    three: Switches,
    #[replicate(nested)]
    four: Switches,
    #[replicate(nested)]
    five: Switches,
}

#[test]
fn learnt_tables_end_where_the_values_end() {
    let builder = || Schema::builder().kind::<Dial>().kind::<Board>();
    let plain = builder().build().expect("good kinds");
    let mut counts = CodeCounts::new(&plain);
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..100_000 {
        let number = if random.u32(..10) < 9 { 0 } else { random.u8(..=250) };
        let store = Store::of(&Dial { number });
        counts.note_fields(KindId(0), u64::MAX, store.values(), &Space::WORLD);
        let head = u64::from(random.u32(..10) == 0) << random.u32(..40);
        counts.note_entry((KindId(1), Facet::Public), head, 0, 24);
        counts.note_entry((KindId(0), Facet::Public), head & 1, 0, 24);
    }
    let text = counts.tables();
    assert!(text.contains("field number 0 "), "{text}");
    let coded = builder().codes(&text).build().unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(coded.kinds().iter().map(Kind::codes_text).collect::<String>(), text);
    assert!(coded.kinds()[1].entry_codes(Facet::Public).is_none(), "a mask of 40 bits has no code");
}

/// Objects, of which many have common values.
fn any_objects() -> impl Strategy<Value = Vec<Everything>> {
    let number = prop_oneof![Just(0.0f32), -2.0..2.0f32, -50.0..50.0f32];
    let position = [number.clone(), number.clone(), number.clone()];
    let object =
        (position, [number.clone(), number.clone(), number], any::<i16>(), any::<[bool; 3]>(), 0u32..5, any::<f32>());
    let object = object.prop_map(|(position, velocity, health, flags, mode, yaw)| Everything {
        position: position.map(f64::from),
        velocity,
        yaw,
        health: health % 20,
        flags,
        mode: throng_schema::ReplicateEnum::from_code(mode),
        ..Everything::default()
    });
    prop::collection::vec(object, 1..60)
}

proptest! {
    #![proptest_config(throng_seeds::cases(200))]

    #[test]
    fn learnt_tables_change_the_length_and_nothing_else(
        learnt_from in any_objects(), objects in any_objects(), mask: u64, bits in [0u8..=32, 0u8..=32, 0u8..=32],
        noise in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let plain = Schema::builder().kind::<Everything>().build().unwrap();
        let space = Space { origin: [-700, 0, 40], bits };
        let mut counts = CodeCounts::new(&plain);
        let mut more = CodeCounts::new(&plain);
        for (number, object) in learnt_from.iter().enumerate() {
            let counts = if number % 2 == 0 { &mut counts } else { &mut more };
            counts.note_fields(KindId(0), u64::MAX, Store::of(object).values(), &space);
            counts.note_entry((KindId(0), Facet::Public), number as u64 % 3, number as u32 % 5, 6);
        }
        counts.add(&more);
        let text = counts.tables();
        let coded = Schema::builder().kind::<Everything>().codes(&text).build();
        let coded = coded.map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
        prop_assert_eq!(coded.kinds()[0].codes_text(), text);
        let kind = &coded.kinds()[0];
        // An axis of no bits is not written where there is no table.
        let space = Space { bits: space.bits.map(|bits| bits.max(1)), ..space };
        for object in &objects {
            let store = Store::of(object);
            let mut bytes = Vec::new();
            let mut w = BitWriter::new(&mut bytes);
            kind.encode(mask, store.values(), &space, &mut w);
            let written = w.bit_len();
            w.finish();
            prop_assert!(written as u64 <= kind.max_bits(mask), "{} bits", written);
            let mut read = Store::of(&Everything { mode: Mode::Running, ..Everything::default() });
            let mut expected = read.clone();
            kind.copy(mask, store.values(), expected.values_mut());
            let mut r = BitReader::new(&bytes);
            prop_assert_eq!(kind.decode(mask, read.values_mut(), &space, &mut r), Ok(()));
            prop_assert_eq!(bytes.len() * 8 - r.remaining_bits(), written);
            prop_assert_eq!((read.values().words, read.values().blobs), (expected.values().words, expected.values().blobs));
        }
        // The bytes that can be read are those that would be written.
        let (mut read, mut r) = (Store::of(&Everything::default()), BitReader::new(&noise));
        let fields = Everything::FIELD_VELOCITY | Everything::FIELD_HEALTH | Everything::FIELD_FLAGS | Everything::FIELD_MODE;
        if kind.decode(fields, read.values_mut(), &space, &mut r).is_ok() {
            let length = noise.len() * 8 - r.remaining_bits();
            let mut again = Vec::new();
            let mut w = BitWriter::new(&mut again);
            kind.encode(fields, read.values(), &space, &mut w);
            prop_assert_eq!(w.bit_len(), length);
            w.finish();
            let mut first = BitReader::new(&noise);
            let mut second = BitReader::new(&again);
            for _ in 0..length {
                prop_assert_eq!(first.read_bool(), second.read_bool());
            }
        }
    }
}
