//! The hash changes with what both ends must agree about, and with nothing else; a mismatch names the kinds.

use crate::kinds::{Character, Everything};
use proptest::prelude::*;
use std::collections::HashSet;
use throng_schema::{
    Condition, Field, Kind, KindDifference, MAX_KINDS, Quantiser, Replicate, Schema, SchemaError, Summary, SummaryError,
};
use throng_wire::KindId;

fn fields() -> Vec<Field> {
    vec![
        Field::new("place", Quantiser::Position { step: 0.01 }),
        Field::new("speed", Quantiser::Fixed { min: 0.0, max: 40.0, step: 0.1 }),
        Field::new("yaw", Quantiser::Angle { bits: 9 }),
        Field::new("mode", Quantiser::Enum { count: 2 }).variants(&["Walking", "Running"]),
        Field::new("ammunition", Quantiser::Integer { min: 0, max: 30 }).elements(2),
        Field::new("name", Quantiser::Text { max_bytes: 10 }),
    ]
}

fn hash(change: impl FnOnce(&mut Vec<Field>)) -> u64 {
    let mut fields = fields();
    change(&mut fields);
    Kind::new("Car", fields).unwrap().hash
}

#[test]
fn the_hash_is_the_same_everywhere() {
    assert_eq!(Character::kind().hash, 0xa1c9_3c04_30f1_d7fe, "{:#018x}", Character::kind().hash);
    assert_eq!(Everything::kind().hash, 0xaa11_ca27_a81a_5043, "{:#018x}", Everything::kind().hash);
}

/// Adds two velocities, and predicts the position by one of them.
fn predicted(fields: &mut Vec<Field>, by: &'static str, error_m: f64) {
    let velocity = |name| Field::new(name, Quantiser::Fixed { min: -1.0, max: 1.0, step: 0.1 }).elements(3);
    fields[0] = fields[0].clone().predict(by, error_m);
    fields.extend([velocity("v"), velocity("w")]);
}

#[test]
fn everything_on_the_wire_changes_the_hash() {
    let changes: [fn(&mut Vec<Field>); 27] = [
        |_| (),
        |fields| fields[0].quantiser = Quantiser::Position { step: 0.02 },
        |fields| fields[0].name = "position",
        |fields| fields[1].quantiser = Quantiser::Fixed { min: 0.1, max: 40.0, step: 0.1 },
        |fields| fields[1].quantiser = Quantiser::Fixed { min: 0.0, max: 40.1, step: 0.1 },
        |fields| fields[1].quantiser = Quantiser::Fixed { min: 0.0, max: 40.0, step: 0.2 },
        |fields| fields[1].quantiser = Quantiser::Float16,
        |fields| fields[1].quantiser = Quantiser::Float32,
        |fields| fields[1].elements = 2,
        |fields| fields[2].quantiser = Quantiser::Angle { bits: 8 },
        |fields| fields[2].condition = Condition::OwnerOnly,
        |fields| fields[2].condition = Condition::SkipOwner,
        |fields| fields[2].condition = Condition::HideFromOwner,
        |fields| fields[2].condition = Condition::InitialOnly,
        |fields| fields[3].variants = &["Running", "Walking"],
        |fields| *fields = fields.drain(..3).chain([Field::new("mode", Quantiser::Bool)]).collect(),
        |fields| fields[4].quantiser = Quantiser::Integer { min: -1, max: 30 },
        |fields| fields[4].quantiser = Quantiser::Integer { min: 0, max: 31 },
        |fields| fields[5].quantiser = Quantiser::Bytes { max_bytes: 10 },
        |fields| fields[5].quantiser = Quantiser::Text { max_bytes: 11 },
        |fields| fields.swap(1, 2),
        |fields| fields.truncate(5),
        |fields| fields.push(Field::new("driver", Quantiser::ObjectRef)),
        |fields| fields.push(Field::new("v", Quantiser::Fixed { min: -1.0, max: 1.0, step: 0.1 }).elements(3)),
        |fields| predicted(fields, "v", 0.03),
        |fields| predicted(fields, "w", 0.03),
        |fields| predicted(fields, "v", 0.04),
    ];
    let mut hashes: HashSet<u64> = changes.iter().map(|&change| hash(change)).collect();
    assert_eq!(hashes.len(), changes.len());
    assert!(hashes.insert(Kind::new("Truck", fields()).unwrap().hash));
}

#[test]
fn what_is_not_on_the_wire_does_not_change_the_hash() {
    assert_eq!(hash(|fields| fields[2].notify = true), hash(|_| ()));
    let minus_zero = Quantiser::Fixed { min: -0.0, max: 40.0, step: 0.1 };
    assert_eq!(hash(|fields| fields[1].quantiser = minus_zero), hash(|_| ()));

    mod server {
        #[derive(Default, throng_schema::Replicate)]
        pub(crate) struct Door {
            #[replicate(fixed(min = 0, max = 1, step = 0.5))]
            pub(crate) open: f64,
            #[replicate(skip)]
            pub(crate) _secret: String,
        }
    }
    mod client {
        #[derive(Default, throng_schema::Replicate)]
        #[replicate(name = "Door")]
        pub(crate) struct DoorView {
            #[replicate(fixed(min = 0.0, max = 1.0, step = 0.5), public, notify)]
            pub(crate) open: f32,
        }
    }
    assert_eq!(server::Door::kind().hash, client::DoorView::kind().hash);
    let server = Schema::builder().kind::<server::Door>().build().unwrap();
    let client = Schema::builder().kind::<client::DoorView>().build().unwrap();
    assert_eq!(server.hash(), client.hash());
    assert_eq!(server.differences(&client.summary()), []);
}

mod other {
    #[derive(Default, throng_schema::Replicate)]
    pub(crate) struct Character {
        #[replicate(bool)]
        pub(crate) alive: bool,
    }

    #[derive(Default, throng_schema::Replicate)]
    pub(crate) struct Tree {
        #[replicate(bool)]
        pub(crate) fallen: bool,
    }

    #[derive(Default, throng_schema::Replicate)]
    pub(crate) struct Rock {}
}

#[test]
fn a_mismatch_names_the_kinds_that_differ() {
    let server = Schema::builder().kind::<Character>().kind::<Everything>().kind::<other::Rock>().build().unwrap();
    let client =
        Schema::builder().kind::<other::Character>().kind::<other::Rock>().kind::<other::Tree>().build().unwrap();
    assert_ne!(server.hash(), client.hash());
    let differences = server.differences(&client.summary());
    let sentences: Vec<String> = differences.iter().map(KindDifference::to_string).collect();
    assert_eq!(
        sentences,
        [
            "kind `Character` has other fields at the peer",
            "kind `Everything` is missing at the peer",
            "kind `Rock` is number 2 here and 1 at the peer: add kinds in one order",
            "kind `Tree` exists only at the peer",
        ]
    );
    assert_eq!(server.differences(&server.summary()), []);
}

#[test]
fn the_order_of_kinds_counts() {
    let one = Schema::builder().kind::<other::Tree>().kind::<other::Rock>().build().unwrap();
    let two = Schema::builder().kind::<other::Rock>().kind::<other::Tree>().build().unwrap();
    assert_ne!(one.hash(), two.hash());
    assert_eq!(one.differences(&two.summary()).len(), 2);
}

#[test]
fn kinds_are_found_by_type_and_by_number() {
    let schema = Schema::builder().kind::<Character>().kind::<other::Rock>().build().unwrap();
    assert_eq!(schema.kind_id::<other::Rock>(), Some(KindId(1)));
    assert_eq!(schema.kind_id::<Everything>(), None);
    assert_eq!(schema.kind(KindId(1)).name, "Rock");
    assert_eq!(schema.get(KindId(0)).map(|kind| kind.name), Some("Character"));
    assert!(schema.get(KindId(2)).is_none());
    assert_eq!(schema.kinds().len(), 2);
}

#[test]
fn wrong_kinds_and_schemas_are_refused() {
    let twice = Schema::builder().kind::<other::Rock>().kind::<other::Rock>().build();
    assert_eq!(twice.unwrap_err(), SchemaError::DuplicateType { kind: "Rock".to_owned() });
    let same_name = Schema::builder().kind::<Character>().kind::<other::Character>().build();
    assert_eq!(same_name.unwrap_err(), SchemaError::DuplicateName { kind: "Character".to_owned() });

    let refused = |name, fields| Kind::new(name, fields).unwrap_err().tag();
    assert_eq!(refused("", fields()), "kind_name");
    let double = vec![Field::new("a", Quantiser::Bool), Field::new("a", Quantiser::Bool)];
    assert_eq!(refused("K", double), "duplicate_field");
    let position = |name| Field::new(name, Quantiser::Position { step: 1.0 });
    assert_eq!(refused("K", vec![position("a"), position("b")]), "two_positions");
    assert_eq!(refused("K", vec![position("a").elements(6)]), "field");
    assert_eq!(refused("K", vec![Field::new("a", Quantiser::Bool).elements(0)]), "field");
    assert_eq!(refused("K", vec![Field::new("a", Quantiser::Text { max_bytes: 9 }).elements(2)]), "field");
    let names: Vec<&'static str> = (0..65).map(|index| &*Box::leak(format!("f{index}").into_boxed_str())).collect();
    let many = |count| names[..count].iter().map(|name| Field::new(name, Quantiser::Bool)).collect::<Vec<_>>();
    assert_eq!(refused("K", many(65)), "too_many_fields");
    assert_eq!(Kind::new("K", many(64)).unwrap().all_mask(), u64::MAX);
    for quantiser in [
        Quantiser::Fixed { min: 1.0, max: 1.0, step: 0.1 },
        Quantiser::Fixed { min: 0.0, max: 1.0, step: 0.0 },
        Quantiser::Fixed { min: 0.0, max: 1.0, step: 1e-12 },
        Quantiser::Fixed { min: 0.0, max: f64::INFINITY, step: 1.0 },
        Quantiser::Fixed { min: 0.0, max: f64::NAN, step: 1.0 },
        Quantiser::Fixed { min: 0.0, max: 1.0, step: 1.5 },
        Quantiser::Fixed { min: 1e16, max: 1e16 + 4.0, step: 1.0 },
        Quantiser::Position { step: -1.0 },
        Quantiser::Position { step: f64::NAN },
        Quantiser::Angle { bits: 0 },
        Quantiser::Angle { bits: 23 },
        Quantiser::UnitVector { bits: 1 },
        Quantiser::Quaternion { bits: 17 },
        Quantiser::Integer { min: 3, max: 3 },
        Quantiser::Enum { count: 0 },
        Quantiser::Enum { count: 65_537 },
        Quantiser::Text { max_bytes: 0 },
        Quantiser::Bytes { max_bytes: (4 << 20) + 1 },
    ] {
        let result = Kind::new("K", vec![Field::new("a", quantiser)]);
        assert!(matches!(result, Err(SchemaError::Field { .. })), "{quantiser:?} was accepted");
    }
}

fn summary_bytes(schema: &Schema) -> Vec<u8> {
    let mut bytes = Vec::new();
    schema.summary().encode(&mut bytes);
    bytes
}

#[test]
fn summaries_survive_the_wire_and_broken_ones_are_refused() {
    let schema = Schema::builder().kind::<other::Rock>().kind::<Everything>().build().unwrap();
    let bytes = summary_bytes(&schema);
    assert_eq!(&bytes[..7], [2, 0, 4, b'R', b'o', b'c', b'k']);
    assert_eq!(Summary::decode(&bytes), Ok(schema.summary()));
    for length in 0..bytes.len() {
        assert_eq!(Summary::decode(&bytes[..length]), Err(SummaryError::UnexpectedEnd));
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert_eq!(Summary::decode(&longer), Err(SummaryError::TrailingBytes));
    let many = (MAX_KINDS as u16 + 1).to_le_bytes();
    assert_eq!(Summary::decode(&many), Err(SummaryError::TooManyKinds { count: MAX_KINDS + 1 }));
    let kind = |name: &[u8]| [&[name.len() as u8], name, &[0; 8]].concat();
    let invalid = |names: &[&[u8]]| {
        let kinds = names.iter().flat_map(|name| kind(name));
        Summary::decode(&[names.len() as u8, 0].into_iter().chain(kinds).collect::<Vec<_>>())
    };
    assert!(invalid(&[b"a", b"b"]).is_ok());
    assert_eq!(invalid(&[b"a", b"a"]), Err(SummaryError::InvalidName { kind: 1 }));
    assert_eq!(invalid(&[b""]), Err(SummaryError::InvalidName { kind: 0 }));
    assert_eq!(invalid(&[&[0xFF]]), Err(SummaryError::InvalidName { kind: 0 }));
    assert_eq!(invalid(&[&[b'a'; 65]]), Err(SummaryError::InvalidName { kind: 0 }));
}

#[test]
fn names_of_a_peer_cannot_forge_lines() {
    let ours = Schema::builder().kind::<other::Rock>().build().unwrap();
    let theirs = [&[1, 0, 3][..], b"a\nb", &[0; 8]].concat();
    let differences = ours.differences(&Summary::decode(&theirs).unwrap());
    assert!(differences.iter().all(|difference| !difference.to_string().contains('\n')));
    assert_eq!(differences.len(), 2);
}

proptest! {
    #![proptest_config(throng_seeds::cases(256))]

    #[test]
    fn any_bytes_are_a_summary_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100), count in 0u8..4) {
        let bytes = [&[count, 0], bytes.as_slice()].concat();
        if let Ok(summary) = Summary::decode(&bytes) {
            let mut again = Vec::new();
            summary.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}
