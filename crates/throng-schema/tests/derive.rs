//! The output of the derive for a struct.

use crate::kinds::{Character, Everything, Mode, Store};
use throng_schema::{Condition, Facet, FieldMask, Predict, Quantiser, Replicate, ReplicateEnum, ValuesMut};
use throng_wire::ObjectId;

fn names(mask: u64) -> Vec<&'static str> {
    let kind = Everything::kind();
    kind.fields.iter().enumerate().filter(|(index, _)| mask >> index & 1 == 1).map(|(_, field)| field.name).collect()
}

#[test]
fn fields_lie_one_after_the_other_in_order_of_declaration() {
    let kind = Everything::kind();
    assert_eq!(kind.name, "Everything");
    assert_eq!(kind.position, Some(0));
    let layout: Vec<_> = kind.fields.iter().map(|field| (field.name, field.word, field.words, field.blob)).collect();
    assert_eq!(
        layout,
        [
            ("position", 0, 3, None),
            ("velocity", 3, 3, None),
            ("yaw", 6, 1, None),
            ("normal", 7, 1, None),
            ("rotation", 8, 2, None),
            ("health", 10, 1, None),
            ("experience", 11, 2, None),
            ("flags", 13, 3, None),
            ("mode", 16, 1, None),
            ("temperature", 17, 1, None),
            ("stamina", 18, 1, None),
            ("name", 19, 0, Some(0)),
            ("blob", 19, 0, Some(1)),
            ("targets", 19, 4, None),
            ("limbs", 23, 4, None),
        ]
    );
    assert_eq!((kind.words, kind.blobs), (27, 2));
}

#[test]
fn every_field_is_in_the_facet_of_its_condition() {
    let kind = Everything::kind();
    assert_eq!(names(kind.facet_mask(Facet::Owner)), ["experience", "stamina", "blob"]);
    assert_eq!(names(kind.facet_mask(Facet::Others)), ["rotation"]);
    assert_eq!(names(kind.initial_only_mask()), ["name"]);
    assert_eq!(kind.own_mask(), kind.all_mask() & !kind.facet_mask(Facet::Others));
    assert_eq!(kind.own_update_mask(), kind.own_mask() & !kind.initial_only_mask());
    assert_eq!(names(kind.notify_mask()), ["position", "mode", "name"]);
    let public = kind.facet_mask(Facet::Public);
    assert_eq!(public & kind.initial_only_mask(), kind.initial_only_mask());
    let all = Facet::ALL.iter().map(|&facet| kind.facet_mask(facet)).sum::<u64>();
    assert_eq!(all, kind.all_mask());
    assert_eq!(all, (1 << kind.fields.len()) - 1);
}

#[test]
fn constants_name_the_fields_bits() {
    let kind = Everything::kind();
    assert_eq!(names(Everything::FIELD_YAW), ["yaw"]);
    assert_eq!(names(Everything::FIELD_POSITION | Everything::FIELD_LIMBS), ["position", "limbs"]);
    assert_eq!(Everything::FIELD_LIMBS, 1 << (kind.fields.len() - 1));
}

#[test]
fn ranges_of_integers_come_from_the_type_unless_they_are_stated() {
    let kind = Everything::kind();
    let quantiser = |name| kind.fields.iter().find(|field| field.name == name).unwrap().quantiser;
    assert_eq!(quantiser("health"), Quantiser::Integer { min: -5, max: 100 });
    assert_eq!(quantiser("experience"), Quantiser::Integer { min: i64::MIN, max: i64::MAX });
}

#[test]
fn what_is_applied_is_what_was_quantised() {
    let sent = Everything {
        position: [1_234.567, -0.004, 99_999.999],
        velocity: [1.23, -39.96, 1e9],
        server_secret: 7,
        yaw: 1.0,
        normal: [0.0, -3.0, 0.0],
        rotation: [0.0, 0.0, 0.0, -1.0],
        health: 500,
        experience: u64::MAX,
        flags: [true, false, true],
        mode: Mode::Swimming,
        temperature: 36.6,
        stamina: 0.1,
        name: "Zoë of Übersee".to_owned(),
        blob: vec![1, 2, 3, 4, 5, 6, 7],
        targets: [ObjectId { index: 3, generation: 9 }, ObjectId::NONE],
        limbs: [[0.0, 0.0, 0.0, 2.0], [1.0, 0.0, 0.0, 0.0]],
    };
    let mut received = Everything { server_secret: 99, ..Everything::default() };
    received.apply(u64::MAX, Store::of(&sent).values());
    let expected = Everything {
        position: [1_234.57, 0.0, 100_000.0],
        velocity: [1.2, -40.0, 40.0],
        server_secret: 99,
        yaw: received.yaw,
        normal: [0.0, -1.0, 0.0],
        rotation: [0.0, 0.0, 0.0, 1.0],
        health: 100,
        temperature: 36.59375,
        stamina: f64::from(0.1f32),
        name: "Zoë of Üb".to_owned() + "e",
        blob: vec![1, 2, 3, 4, 5],
        limbs: [[0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]],
        ..sent
    };
    assert_eq!(received, expected);
    assert!((received.yaw - 1.0).abs() < 0.0062);
}

#[test]
fn only_the_fields_of_the_mask_are_applied() {
    let sent = Everything { yaw: 1.0, health: 50, name: "Ann".to_owned(), ..Everything::default() };
    let mut received = Everything { health: 3, ..Everything::default() };
    received.apply(Everything::FIELD_YAW | Everything::FIELD_NAME, Store::of(&sent).values());
    assert_eq!((received.health, received.name.as_str()), (3, "Ann"));
    assert!(received.yaw > 0.9);
}

/// Changes one field.
type Change = fn(&mut Everything);

#[test]
fn comparing_finds_exactly_the_fields_that_changed() {
    let old = Everything::default();
    let changes: [(FieldMask, Change); 15] = [
        (Everything::FIELD_POSITION, |it| it.position[2] = 0.01),
        (Everything::FIELD_VELOCITY, |it| it.velocity[1] = 0.1),
        (Everything::FIELD_YAW, |it| it.yaw = -1.0),
        (Everything::FIELD_NORMAL, |it| it.normal = [1.0, 0.0, 0.0]),
        (Everything::FIELD_ROTATION, |it| it.rotation = [1.0, 0.0, 0.0, 0.0]),
        (Everything::FIELD_HEALTH, |it| it.health = 1),
        (Everything::FIELD_EXPERIENCE, |it| it.experience = 1 << 40),
        (Everything::FIELD_FLAGS, |it| it.flags[2] = true),
        (Everything::FIELD_MODE, |it| it.mode = Mode::Walking),
        (Everything::FIELD_TEMPERATURE, |it| it.temperature = 1.0),
        (Everything::FIELD_STAMINA, |it| it.stamina = 1.0),
        (Everything::FIELD_NAME, |it| it.name.push('x')),
        (Everything::FIELD_BLOB, |it| it.blob.push(0)),
        (Everything::FIELD_TARGETS, |it| it.targets[1] = ObjectId { index: 0, generation: 0 }),
        (Everything::FIELD_LIMBS, |it| it.limbs[1][0] = 1.0),
    ];
    let kind = Everything::kind();
    assert_eq!(changes.len(), kind.fields.len());
    // Every subset of a few, and each alone: neighbours do not hide each other.
    for subset in 0u32..1 << changes.len() {
        if subset.count_ones() > 3 {
            continue;
        }
        let mut new = Everything { server_secret: u128::from(subset), ..old.clone() };
        let mut expected = 0;
        for (index, (mask, change)) in changes.iter().enumerate() {
            if subset >> index & 1 == 1 {
                change(&mut new);
                expected |= mask;
            }
        }
        assert_eq!(kind.compare(Store::of(&old).values(), Store::of(&new).values()), expected, "subset {subset:b}");
    }
}

#[test]
fn copying_moves_the_fields_of_the_mask_and_no_others() {
    let kind = Everything::kind();
    let from = Store { words: (100..127).collect(), blobs: vec![b"Ann".to_vec(), vec![9]] };
    let mut to = Store::empty(&kind);
    let mask = Everything::FIELD_VELOCITY | Everything::FIELD_BLOB | Everything::FIELD_LIMBS;
    kind.copy(mask, from.values(), to.values_mut());
    assert_eq!(kind.compare(Store::empty(&kind).values(), to.values()), mask);
    assert_eq!(kind.compare(from.values(), to.values()), kind.all_mask() & !mask);
}

#[test]
fn changes_below_half_a_step_are_no_changes() {
    let old = Character { position: [5.0, 0.0, -5.0], yaw: 2.0, ..Character::default() };
    let new = Character { position: [5.004, 0.0, -5.004], yaw: 2.001 + std::f32::consts::TAU, ..old.clone() };
    assert_eq!(Character::kind().compare(Store::of(&old).values(), Store::of(&new).values()), 0);
}

#[test]
fn enums_count_their_variants_in_order() {
    assert_eq!(Mode::VARIANTS, ["Standing", "Walking", "Running", "Swimming", "Flying"]);
    assert_eq!(Mode::Running.code(), 2);
    for code in 0..5 {
        assert_eq!(Mode::from_code(code).code(), code);
    }
    assert_eq!(Mode::from_code(5), Mode::Standing);
}

mod elsewhere {
    pub(crate) mod schema {
        pub(crate) use throng_schema::*;
    }
}

#[derive(Default, throng_schema::Replicate)]
#[replicate(name = "Tür", crate = "elsewhere::schema")]
struct Door {
    #[replicate(bool, public)]
    r#type: bool,
    #[replicate(integer(min = 0, max = 4294967296), skip_owner)]
    opened: usize,
}

#[test]
fn names_and_paths_can_be_given() {
    let kind = Door::kind();
    assert_eq!(kind.name, "Tür");
    assert_eq!(kind.fields[0].name, "type");
    assert_eq!(kind.fields[1].condition, Condition::SkipOwner);
    assert_eq!(kind.fields[1].words, 2);
    assert_eq!(kind.skip_owner_mask(), Door::FIELD_OPENED);
    assert_eq!(kind.facet_mask(Facet::Public), kind.all_mask(), "everybody is sent it, and the owner passes over it");
    assert_eq!(kind.own_update_mask(), Door::FIELD_TYPE);
    assert_eq!(Door::FIELD_TYPE, 1);
    let mut there = Door::default();
    there.apply(3, Store::of(&Door { r#type: true, opened: 1 << 32 }).values());
    assert!(there.r#type);
    assert_eq!(there.opened, 1 << 32);
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Vec3(f64, f64, f64);

impl throng_schema::arithmetic::Vector<3> for Vec3 {
    fn components(&self) -> [f64; 3] {
        [self.0, self.1, self.2]
    }
    fn from_components([x, y, z]: [f64; 3]) -> Vec3 {
        Vec3(x, y, z)
    }
}

type Speed = f64;
const WHEELS: usize = 4;

#[derive(Default, Replicate)]
struct Car {
    #[replicate(position(step = 0.5))]
    place: Vec3,
    #[replicate(fixed(min = 0, max = 300, step = 1))]
    speed: Speed,
    #[replicate(unit_vector(bits = 8))]
    axles: [Vec3; 2],
    #[replicate(fixed(min = 0, max = 1, step = 0.25))]
    wear: [Speed; WHEELS],
}

#[test]
fn vector_types_aliases_and_constant_lengths_of_the_game_are_taken() {
    let kind = Car::kind();
    assert_eq!((kind.words, kind.fields[2].elements, kind.fields[3].elements), (3 + 1 + 2 + 4, 2, 4));
    let car = Car {
        place: Vec3(1.2, -7.0, 0.0),
        speed: 99.6,
        axles: [Vec3(0.0, 0.0, -2.0), Vec3(5.0, 0.0, 0.0)],
        wear: [0.0, 0.3, 0.9, 2.0],
    };
    let mut there = Car::default();
    there.apply(u64::MAX, Store::of(&car).values());
    assert_eq!(there.place, Vec3(1.0, -7.0, 0.0));
    assert_eq!(there.speed, 100.0);
    assert_eq!(there.axles, [Vec3(0.0, 0.0, -1.0), Vec3(1.0, 0.0, 0.0)]);
    assert_eq!(there.wear, [0.0, 0.25, 1.0, 1.0]);
}

#[derive(Default, Replicate)]
struct Marker {}

#[test]
fn a_kind_without_fields_is_only_there_or_not() {
    let kind = Marker::kind();
    assert_eq!((kind.words, kind.blobs, kind.all_mask()), (0, 0, 0));
    Marker {}.quantise(Store::empty(&kind).values_mut());
}

#[derive(Default, Replicate)]
struct Motion {
    #[replicate(position(step = 0.5), predict(by = "speed", error_m = 2.2), hide_from_owner)]
    place: [f64; 3],
    #[replicate(fixed(min = -4, max = 4, step = 0.25), hide_from_owner)]
    speed: [f64; 3],
}

#[derive(Default, Replicate)]
struct Ship {
    #[replicate(bool)]
    is_sunk: bool,
    #[replicate(nested)]
    motion: Motion,
}

#[test]
fn a_position_says_what_predicts_it_also_in_a_nested_struct() {
    assert!(Everything::kind().reckoning.is_none());
    for (kind, by, position) in [(Motion::kind(), "speed", 0), (Ship::kind(), "motion.speed", 1)] {
        assert_eq!(kind.fields[position].predict, Some(Predict { by, error_m: 2.2 }));
        let reckoning = kind.reckoning.expect("it has one");
        assert_eq!((reckoning.position, reckoning.velocity, reckoning.error_steps), (position, position + 1, 4));
    }
    let motion = Motion { place: [3.0, -1.0, 0.0], speed: [1.0, 0.0, -4.0] };
    let kind = Motion::kind();
    let (mut words, mut blobs) = kind.empty_values();
    motion.quantise(ValuesMut { words: &mut words, blobs: &mut blobs });
    let reckoning = kind.reckoning.expect("it has one");
    assert_eq!(reckoning.after(reckoning.position(&words), &words, 2.0), [10, -2, -16]);
}

/// Names that the derived code could have for its own constants.
const FIELDS: usize = 4;
const WORDS: usize = 2;
const ELEMENTS_0: usize = 3;
const BIT_END_1: usize = 5;

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Plate {
    #[replicate(integer)]
    first: [u8; FIELDS],
    #[replicate(bool)]
    second: [bool; WORDS],
    #[replicate(integer)]
    third: [u16; ELEMENTS_0],
    #[replicate(bool)]
    fourth: [bool; BIT_END_1],
}

#[test]
fn constants_of_the_game_may_have_any_name() {
    let elements: Vec<usize> = Plate::kind().fields.iter().map(|field| field.elements.into()).collect();
    assert_eq!(elements, [4, 2, 3, 5]);
    let plate = Plate { first: [1, 2, 3, 4], second: [true; 2], third: [7, 8, 9], fourth: [true; 5] };
    let mut received = Plate::default();
    received.apply(u64::MAX, Store::of(&plate).values());
    assert_eq!(received, plate);
}
