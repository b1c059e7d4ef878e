//! The bytes of fields, and the refused bytes.

use crate::kinds::{Character, Everything, Mode, Store};
use proptest::prelude::*;
use throng_schema::{DecodeError, FieldMask, Kind, Replicate, Space};
use throng_wire::{BitReader, BitWriter, ObjectId, ReadError};

fn encoded(kind: &Kind, mask: FieldMask, store: &Store, space: &Space) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    let mut w = BitWriter::new(&mut bytes);
    kind.encode(mask, store.values(), space, &mut w);
    let bits = w.bit_len();
    w.finish();
    (bytes, bits)
}

fn example() -> Everything {
    Everything {
        position: [12.34, -5.0, 1_000.0],
        velocity: [-40.0, 0.0, 40.0],
        server_secret: 0xFEED,
        yaw: -1.5,
        normal: [0.0, 1.0, 0.0],
        rotation: [0.5, -0.5, 0.5, 0.5],
        health: 77,
        experience: 0x0123_4567_89AB_CDEF,
        flags: [true, false, true],
        mode: Mode::Running,
        temperature: -2.5,
        stamina: 0.75,
        name: "Zoë".to_owned(),
        blob: vec![0xAA, 0xBB],
        targets: [ObjectId { index: 299, generation: 7 }, ObjectId::NONE],
        limbs: [[0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0]],
    }
}

#[test]
fn these_bytes_are_the_wire_format() {
    let kind = Everything::kind();
    let space = Space { origin: [1_000, -1_000, 99_000], bits: [10, 11, 32] };
    let (bytes, bits) = encoded(&kind, u64::MAX, &Store::of(&example()), &space);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(bits, 384);
    assert_eq!(hex, "ead0077d00000000c84036fc9fffa36d09dad2f7e6d5c4b3a291800a20180000e887b4de8657a5bacb2a7000f0dd7177");
}

#[test]
fn a_moving_character_takes_77_bits_in_a_cell_of_ten_metres() {
    let kind = Character::kind();
    let cell = Space { origin: [1_000, 0, -1_000], bits: [10, 8, 10] };
    let store = Store::of(&Character { position: [12.0, 1.0, -1.0], ..Character::default() });
    assert_eq!(encoded(&kind, kind.all_mask(), &store, &cell).1, 77);
    assert_eq!(encoded(&kind, 0, &store, &cell).1, 0);
    assert_eq!(encoded(&kind, Character::FIELD_MODE | 1 << 63, &store, &cell).1, 3);
}

#[test]
fn the_bits_of_fields_are_counted_where_they_are_read() {
    let kind = Everything::kind();
    let space = Space { origin: [1_000, -1_000, 99_000], bits: [10, 11, 32] };
    let (bytes, written) = encoded(&kind, u64::MAX, &Store::of(&example()), &space);
    let (mut plain, mut counted) = (Store::of(&Everything::default()), Store::of(&Everything::default()));
    kind.decode(u64::MAX, plain.values_mut(), &space, &mut BitReader::new(&bytes)).unwrap();
    let mut bits = vec![0; kind.fields.len()];
    for times in 1..3 {
        let mut r = BitReader::new(&bytes);
        kind.decode_counted(u64::MAX, counted.values_mut(), &space, &mut r, &mut bits).unwrap();
        assert_eq!(bits.iter().sum::<u64>(), times * written as u64);
    }
    assert_eq!((plain.values().words, plain.values().blobs), (counted.values().words, counted.values().blobs));
    let of = |name: &str| bits[kind.fields.iter().position(|field| field.name == name).unwrap()] / 2;
    // A blob of two bytes has its length in 3 bits before it.
    assert_eq!((of("flags"), of("experience"), of("blob")), (3, 64, 19));
}

fn any_everything() -> impl Strategy<Value = Everything> {
    let object = (0u32..=u32::MAX, any::<u32>()).prop_map(|(index, generation)| ObjectId { index, generation });
    let motion = ([-1e5..1e5f64, -1e5..1e5, -1e5..1e5], [-50.0..50.0f32, -50.0..50.0, -50.0..50.0], any::<f32>());
    let turned = (any::<[f32; 3]>(), any::<[f32; 4]>(), any::<[[f32; 4]; 2]>());
    let plain = (any::<i16>(), any::<u64>(), any::<[bool; 3]>(), 0u32..5, any::<f32>(), any::<f64>());
    let long = (any::<String>(), prop::collection::vec(any::<u8>(), 0..9), [object.clone(), object]);
    (motion, turned, plain, long).prop_map(|(motion, turned, plain, long)| Everything {
        position: motion.0,
        velocity: motion.1,
        server_secret: 1,
        yaw: motion.2,
        normal: turned.0,
        rotation: turned.1,
        health: plain.0,
        experience: plain.1,
        flags: plain.2,
        mode: throng_schema::ReplicateEnum::from_code(plain.3),
        temperature: plain.4,
        stamina: plain.5,
        name: long.0,
        blob: long.1,
        targets: long.2,
        limbs: turned.2,
    })
}

/// A space that contains the position, and is otherwise arbitrary.
fn space_around(position: [i32; 3], bits: [u8; 3], at: [f64; 3]) -> Space {
    let origin = [0, 1, 2].map(|axis| {
        // All ones say that the position is outside.
        let room = ((1u64 << bits[axis].min(31)) - 1).saturating_sub(1) as f64;
        position[axis].saturating_sub((room * at[axis]) as i32)
    });
    Space { origin, bits }
}

proptest! {
    #![proptest_config(throng_seeds::cases(1_000))]

    #[test]
    fn what_is_encoded_is_decoded_in_any_space(
        object in any_everything(), before in any_everything(), mask: u64,
        bits in [0u8..=32, 0u8..=32, 0u8..=32], at in [0.0..=1.0f64, 0.0..=1.0, 0.0..=1.0], lead in 0u32..64,
    ) {
        let kind = Everything::kind();
        let (store, mut received) = (Store::of(&object), Store::of(&before));
        let space = space_around([0, 1, 2].map(|axis| store.words[axis] as i32), bits, at);
        prop_assert!(space.contains([0, 1, 2].map(|axis| store.words[axis] as i32)));
        let mut expected = received.clone();
        kind.copy(mask, store.values(), expected.values_mut());

        let mut bytes = Vec::new();
        let mut w = BitWriter::new(&mut bytes);
        w.write(0, lead);
        kind.encode(mask, store.values(), &space, &mut w);
        let written = w.bit_len() - lead as usize;
        w.finish();
        prop_assert!(written as u64 <= kind.max_bits(mask));

        let mut r = BitReader::new(&bytes);
        r.read(lead).unwrap();
        let available = r.remaining_bits();
        prop_assert_eq!(kind.decode(mask, received.values_mut(), &space, &mut r), Ok(()));
        prop_assert_eq!(available - r.remaining_bits(), written);
        prop_assert_eq!(&received, &expected);

        // Truncated anywhere, it is refused.
        if written > 8 {
            let mut r = BitReader::new(&bytes[..bytes.len() - 1 - (bytes.len() - 1) / 3]);
            r.read(lead.min(r.remaining_bits() as u32)).unwrap();
            prop_assert!(kind.decode(mask, received.values_mut(), &space, &mut r).is_err());
        }
    }

    #[test]
    fn any_bytes_are_decoded_to_something_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..120), mask: u64, origin: [i32; 3], bits in [0u8..=32, 0u8..=32, 0u8..=32],
    ) {
        let kind = Everything::kind();
        let mut store = Store::empty(&kind);
        let space = Space { origin, bits };
        let mut r = BitReader::new(&bytes);
        if kind.decode(mask, store.values_mut(), &space, &mut r).is_ok() {
            let (again, bits) = encoded(&kind, mask, &store, &space);
            let mut second = Store::empty(&kind);
            prop_assert_eq!(kind.decode(mask, second.values_mut(), &space, &mut BitReader::new(&again)), Ok(()));
            prop_assert_eq!(&second, &store);
            // Only a varint has longer forms.
            if mask & Everything::FIELD_TARGETS == 0 {
                prop_assert_eq!(bits, bytes.len() * 8 - r.remaining_bits());
            }
        }
        let mut object = Everything::default();
        object.apply(u64::MAX, store.values());
        let lengths = store.blobs.iter().map(Vec::len).collect::<Vec<_>>();
        prop_assert!(lengths[0] <= 12 && lengths[1] <= 5);
    }
}

/// Decodes one field from the given codes and widths.
fn decode_one(mask: FieldMask, codes: &[(u64, u32)]) -> Result<(), DecodeError> {
    let kind = Everything::kind();
    let mut bytes = Vec::new();
    let mut w = BitWriter::new(&mut bytes);
    codes.iter().for_each(|&(code, bits)| w.write(code, bits));
    w.finish();
    kind.decode(mask, Store::empty(&kind).values_mut(), &Space::WORLD, &mut BitReader::new(&bytes))
}

#[test]
fn codes_that_no_value_has_are_refused() {
    // Field, the last good code, a bad one, and their width. The following bits are zero, which is valid everywhere.
    let cases = [
        ("velocity", 800, 801, 10),
        ("normal", 1022 << 10, 1023 << 10, 20),
        ("rotation", 1022 << 12, 1023 << 12, 32),
        ("health", 105, 106, 7),
        ("mode", 4, 5, 3),
        ("temperature", 0x7C00, 0x7C01, 16),
        ("stamina", 0xFF80_0000, 0xFF80_0001, 32),
        // Varints of five groups: 2^32 - 1 and 2^32.
        ("targets", 0x0F_FFFF_FFFF, 0x10_8080_8080, 40),
        ("limbs", 14 << 2, 15 << 2, 14),
    ];
    let kind = Everything::kind();
    for (field, good, bad, bits) in cases {
        let mask = 1 << kind.fields.iter().position(|known| known.name == field).unwrap();
        assert_eq!(decode_one(mask, &[(good, bits), (0, 64)]), Ok(()), "{field}");
        assert_eq!(decode_one(mask, &[(bad, bits), (0, 64)]), Err(DecodeError::OutOfRange { field }), "{field}");
    }
}

#[test]
fn positions_beyond_the_world_are_refused() {
    let kind = Character::kind();
    // Three steps are left of the world; 7 would be a position outside of the space.
    let edge = Space { origin: [i32::MAX - 2, 0, 0], bits: [3, 0, 0] };
    let mut store = Store::empty(&kind);
    let mut decode =
        |code| kind.decode(Character::FIELD_POSITION, store.values_mut(), &edge, &mut BitReader::new(&[code]));
    assert_eq!(decode(2), Ok(()));
    assert_eq!(decode(3), Err(DecodeError::OutOfRange { field: "position" }));
}

#[test]
fn blobs_are_bounded_and_text_is_text() {
    let name = |length, byte| decode_one(Everything::FIELD_NAME, &[(length, 4), (byte, 8), (0, 64), (0, 64)]);
    assert_eq!(name(12, 0x41), Ok(()));
    assert_eq!(name(13, 0x41), Err(DecodeError::TooLong { field: "name" }));
    assert_eq!(name(1, 0xFF), Err(DecodeError::InvalidText { field: "name" }));
    assert_eq!(decode_one(Everything::FIELD_BLOB, &[(6, 3), (0, 64)]), Err(DecodeError::TooLong { field: "blob" }));
    let short = decode_one(Everything::FIELD_BLOB, &[(5, 3), (0, 29)]);
    assert_eq!(short, Err(DecodeError::Read(ReadError::UnexpectedEnd)));
}

#[test]
fn what_lies_outside_of_a_space_is_read_as_it_was_and_costs_32_bits_an_axis() {
    let kind = Character::kind();
    let space = Space { origin: [100, -50, 0], bits: [10, 1, 31] };
    let inside = [100, -50, 7];
    for (place, outside) in [(0, [99, 1_123, 1_124, i32::MIN, i32::MAX]), (1, [-51, -49, 0, i32::MIN, i32::MAX])] {
        for coordinate in outside {
            let mut position = inside;
            position[place] = coordinate;
            assert!(space.contains(inside) && !space.contains(position), "{position:?}");
            let mut store = Store::empty(&kind);
            store.words[..3].copy_from_slice(&position.map(|steps| steps as u32));
            let (bytes, bits) = encoded(&kind, Character::FIELD_POSITION, &store, &space);
            let mut received = Store::empty(&kind);
            let mut r = BitReader::new(&bytes);
            kind.decode(Character::FIELD_POSITION, received.values_mut(), &space, &mut r).unwrap();
            assert_eq!((bits, &received), (42 + 32, &store));
        }
    }
}

#[test]
fn the_whole_world_reaches_every_position() {
    let kind = Character::kind();
    for coordinate in [i32::MIN, -1, 0, i32::MAX] {
        for origin in [i32::MIN, 0, 5, i32::MAX] {
            let mut store = Store::empty(&kind);
            store.words[..3].fill(coordinate as u32);
            let space = Space { origin: [origin; 3], ..Space::WORLD };
            let (bytes, bits) = encoded(&kind, Character::FIELD_POSITION, &store, &space);
            let mut received = Store::empty(&kind);
            let mut r = BitReader::new(&bytes);
            kind.decode(Character::FIELD_POSITION, received.values_mut(), &space, &mut r).unwrap();
            assert_eq!((bits, &received), (96, &store));
        }
    }
}
