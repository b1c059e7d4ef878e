//! The rules of every quantiser: quantising a restored value changes nothing, and errors are bounded.

use proptest::prelude::*;
use std::f64::consts::{PI, TAU};
use throng_schema::Quantiser;
use throng_schema::arithmetic::{
    Angle, Element, Fixed, Float16, Float32, IntegerRange, Octahedral, Reference, SmallestThree, Steps, Text, Truth,
};
use throng_wire::ObjectId;

/// Stores, loads and stores again: gives the words and the value, having checked that the words stay the same.
fn through<T, E: Element<T>, const WORDS: usize>(element: &E, value: &T) -> ([u32; WORDS], T) {
    let mut words = [0xDEAD_BEEF; WORDS];
    element.store(value, &mut words);
    let restored = element.load(&words);
    let mut again = [0xDEAD_BEEF; WORDS];
    element.store(&restored, &mut again);
    assert_eq!(again, words, "quantising what was restored gave another code");
    (words, restored)
}

fn any_fixed() -> impl Strategy<Value = (f64, f64, f64)> {
    (-1e4..1e4f64, 1e-3..1e4f64, 1u32..100_000)
        .prop_map(|(min, range, count)| (min, min + range, range / f64::from(count) * 0.999))
}

fn any_direction() -> impl Strategy<Value = [f64; 3]> {
    let axis = || prop_oneof![4 => -1.0..1.0f64, 1 => Just(0.0), 1 => Just(-0.0), 1 => -1e-6..1e-6f64];
    [axis(), axis(), axis()].prop_filter("has a direction", |v| v.iter().any(|axis| *axis != 0.0))
}

fn any_rotation() -> impl Strategy<Value = [f64; 4]> {
    // Many ties: components of the same magnitude are the hard case.
    let component =
        || prop_oneof![4 => -1.0..1.0f64, 1 => Just(0.0), 2 => Just(0.5), 2 => Just(-0.5), 1 => 0.499..0.501];
    [component(), component(), component(), component()]
        .prop_filter("has a rotation", |q| q.iter().any(|component| component.abs() > 1e-3))
}

fn odd_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(-0.0),
        Just(f64::MAX),
        Just(f64::MIN),
        Just(f64::MIN_POSITIVE / 2.0),
        any::<f64>()
    ]
}

fn length<const N: usize>(v: [f64; N]) -> f64 {
    v.iter().map(|component| component * component).sum::<f64>().sqrt()
}

fn dot<const N: usize>(a: [f64; N], b: [f64; N]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / (length(a) * length(b))
}

proptest! {
    #![proptest_config(throng_seeds::cases(2_000))]

    #[test]
    fn r25_fixed_point_is_off_by_at_most_half_a_step((min, max, step) in any_fixed(), at in 0.0..=1.0f64) {
        prop_assert_eq!(Quantiser::Fixed { min, max, step }.check(), Ok(()));
        let fixed = Fixed::new(min, max, step);
        let value = (min + (max - min) * at).clamp(min, max);
        let ([code], restored) = through::<f64, _, 1>(&fixed, &value);
        prop_assert!(code <= fixed.last());
        prop_assert!((restored - value).abs() <= step * 0.500_01, "{value} became {restored}");
        prop_assert!(restored >= min - step * 1e-5 && restored <= max);
    }

    #[test]
    fn fixed_point_moves_what_lies_outside_to_the_border((min, max, step) in any_fixed(), beyond in 0.0..1e9f64) {
        let fixed = Fixed::new(min, max, step);
        prop_assert_eq!(fixed.code(min - beyond), 0);
        prop_assert_eq!(fixed.code(max + beyond), fixed.last());
        prop_assert_eq!(fixed.code(f64::INFINITY), fixed.last());
        prop_assert_eq!(fixed.code(f64::NEG_INFINITY), 0);
        prop_assert_eq!(fixed.code(f64::NAN), fixed.code(0.0));
        prop_assert_eq!(fixed.code(-0.0), fixed.code(0.0));
    }

    #[test]
    fn fixed_point_keeps_single_precision(code in 0u32..=800) {
        let fixed = Fixed::new(-40.0, 40.0, 0.1);
        let restored: f32 = fixed.load(&[code]);
        let ([again], _) = through::<f32, _, 1>(&fixed, &restored);
        prop_assert_eq!(again, code);
    }

    #[test]
    fn positions_are_off_by_at_most_half_a_step(step in 1e-3..10.0f64, at in [-1.0..1.0f64, -1.0..1.0f64, -1.0..1.0f64]) {
        let steps = Steps::new(step);
        let position = at.map(|axis| axis * step * 2_147_483_647.0);
        let (_, restored) = through::<[f64; 3], _, 3>(&steps, &position);
        for axis in 0..3 {
            prop_assert!((restored[axis] - position[axis]).abs() <= step * 0.500_001);
        }
        let near = at.map(|axis| (axis * step * 8_388_607.0) as f32);
        let (_, restored) = through::<[f32; 3], _, 3>(&steps, &near);
        for axis in 0..3 {
            prop_assert!((restored[axis] - near[axis]).abs() <= (step * 1.01) as f32);
        }
    }

    #[test]
    fn angles_are_off_by_at_most_half_a_step_and_turns_do_not_count(
        bits in 1u32..=22, radians in -PI..PI, turns in -1_000i32..1_000,
    ) {
        let angle = Angle::new(bits);
        let ([code], restored) = through::<f64, _, 1>(&angle, &radians);
        prop_assert!(code < 1 << bits);
        prop_assert!((-PI..PI).contains(&restored));
        let step = TAU / f64::from(1u32 << bits);
        let error = (restored - radians + PI).rem_euclid(TAU) - PI;
        prop_assert!(error.abs() <= step * 0.500_01, "{radians} became {restored}");
        let turned = angle.value(angle.code(radians + f64::from(turns) * TAU));
        let error = (turned - radians + PI).rem_euclid(TAU) - PI;
        prop_assert!(error.abs() <= step * 0.500_01 + 1e-9, "{turns} turns made {turned} of {radians}");
        through::<f32, _, 1>(&angle, &(radians as f32));
    }

    #[test]
    fn directions_keep_their_bound(bits in 2u32..=16, direction in any_direction()) {
        let octahedral = Octahedral::new(bits);
        let ([code], restored) = through::<[f64; 3], _, 1>(&octahedral, &direction);
        prop_assert!(octahedral.is_code(code));
        prop_assert!((length(restored) - 1.0).abs() < 1e-12);
        let unit = direction.map(|axis| axis / length(direction));
        let chord = length([0, 1, 2].map(|axis| unit[axis] - restored[axis]));
        prop_assert!(chord <= 4.25 / f64::from((1u32 << bits) - 2), "{direction:?} became {restored:?}: {chord}");
        through::<[f32; 3], _, 1>(&octahedral, &direction.map(|axis| axis as f32));
    }

    #[test]
    fn rotations_keep_their_bound(bits in 2u32..=16, rotation in any_rotation()) {
        let three = SmallestThree::new(bits);
        let ([low, high], restored) = through::<[f64; 4], _, 2>(&three, &rotation);
        prop_assert!(three.is_code(u64::from(low) | u64::from(high) << 32));
        prop_assert!((length(restored) - 1.0).abs() < 1e-12);
        let radians = 2.0 * dot(rotation, restored).abs().min(1.0).acos();
        let middle = f64::from((1u32 << (bits - 1)) - 1);
        let mut magnitudes = rotation.map(|component| component.abs() / length(rotation));
        magnitudes.sort_by(f64::total_cmp);
        let clear = (magnitudes[3] - magnitudes[2]) * middle * std::f64::consts::SQRT_2 > 2.5;
        let bound = if clear { 2.5 } else { 3.3 } / middle;
        prop_assert!(radians <= bound + 1e-7, "{rotation:?} became {restored:?}: {radians}, bound {bound}");
        let (words, _) = through::<[f32; 4], _, 2>(&three, &rotation.map(|component| component as f32));
        let negated: [f32; 4] = rotation.map(|component| -component as f32);
        prop_assert_eq!(through::<[f32; 4], _, 2>(&three, &negated).0, words, "q and -q are the same rotation");
    }

    #[test]
    fn any_code_of_a_rotation_settles(bits in 2u32..=16, code: u64) {
        let three = SmallestThree::new(bits);
        let restored = three.value(code & ((1 << (2 + 3 * bits)) - 1)).map(|component| component as f32);
        let (words, _) = through::<[f32; 4], _, 2>(&three, &restored);
        prop_assert!(three.is_code(u64::from(words[0]) | u64::from(words[1]) << 32));
    }

    #[test]
    fn integers_are_exact_in_their_range(a: i64, b: i64, value: i64) {
        prop_assume!(a != b);
        let (min, max) = (a.min(b), a.max(b));
        let range = IntegerRange::new(min, max);
        let (_, restored) = through::<i64, _, 2>(&range, &value);
        prop_assert_eq!(restored, if range.last() == u64::MAX { value } else { value.clamp(min, max) });
        prop_assert!(range.code(value) <= range.last());
    }

    #[test]
    fn the_range_of_64_bits_carries_both_signs(value: u64) {
        let range = IntegerRange::new(i64::MIN, i64::MAX);
        prop_assert_eq!(through::<u64, _, 2>(&range, &value).1, value);
        prop_assert_eq!(through::<i64, _, 2>(&range, &(value as i64)).1, value as i64);
    }

    #[test]
    fn narrow_integers_are_exact(value: i8, wide: u32) {
        prop_assert_eq!(through::<i8, _, 1>(&IntegerRange::new(-128, 127), &value).1, value);
        prop_assert_eq!(through::<u32, _, 1>(&IntegerRange::new(0, u32::MAX.into()), &wide).1, wide);
        prop_assert_eq!(through::<u64, _, 1>(&IntegerRange::new(0, 10), &u64::from(wide)).1, u64::from(wide.min(10)));
    }

    #[test]
    fn floats_are_the_nearest_of_their_precision(value in -60_000.0..60_000.0f64) {
        let ([code], restored) = through::<f64, _, 1>(&Float16, &value);
        prop_assert!(Float16.is_code(code));
        prop_assert!((restored - value).abs() <= (value.abs() * 2f64.powi(-11) * 1.001).max(2f64.powi(-24)));
        let ([code], restored) = through::<f64, _, 1>(&Float32, &value);
        prop_assert!(Float32.is_code(code));
        prop_assert_eq!(restored, f64::from(value as f32));
    }

    #[test]
    fn odd_numbers_have_codes_that_stay(value in odd_number(), other in odd_number(), bits in 2u32..=16) {
        through::<f64, _, 1>(&Fixed::new(-40.0, 40.0, 0.1), &value);
        through::<f64, _, 1>(&Angle::new(bits), &value);
        let (words, _) = through::<[f64; 3], _, 3>(&Steps::new(0.01), &[value, other, 1.0]);
        prop_assert_eq!(words[2], 100);
        let ([code], _) = through::<[f64; 3], _, 1>(&Octahedral::new(bits), &[value, other, 1.0]);
        prop_assert!(Octahedral::new(bits).is_code(code));
        let ([low, high], _) = through::<[f64; 4], _, 2>(&SmallestThree::new(bits), &[value, other, 1.0, value]);
        prop_assert!(SmallestThree::new(bits).is_code(u64::from(low) | u64::from(high) << 32));
        let ([code], _) = through::<f64, _, 1>(&Float16, &value);
        prop_assert!(Float16.is_code(code) && code != 0x8000);
        let ([code], _) = through::<f64, _, 1>(&Float32, &value);
        prop_assert!(Float32.is_code(code) && code != 0x8000_0000);
    }

    #[test]
    fn text_is_cut_between_characters(text: String, max_bytes in 1u32..40) {
        let mut blob = vec![1, 2, 3];
        Text::new(max_bytes).store(&text, &mut blob);
        let kept = std::str::from_utf8(&blob).unwrap();
        prop_assert!(text.starts_with(kept) && kept.len() <= max_bytes as usize);
        let next = text[kept.len()..].chars().next();
        prop_assert!(next.is_none_or(|next| kept.len() + next.len_utf8() > max_bytes as usize));
    }
}

#[test]
fn nothing_and_nan_have_a_stated_code() {
    for zero in [[0.0f32; 3], [f32::NAN; 3], [f32::INFINITY, 0.0, 0.0]] {
        assert_eq!(through::<[f32; 3], _, 1>(&Octahedral::new(7), &zero).1, [0.0, 0.0, 1.0]);
    }
    for zero in [[0.0f32; 4], [f32::NAN; 4], [f32::INFINITY, 0.0, 0.0, 0.0]] {
        assert_eq!(through::<[f32; 4], _, 2>(&SmallestThree::new(7), &zero).1, [0.0, 0.0, 0.0, 1.0]);
    }
    assert_eq!(through::<f32, _, 1>(&Float32, &f32::NAN).1, 0.0);
    assert_eq!(through::<f32, _, 1>(&Float16, &f32::NEG_INFINITY).1, f32::NEG_INFINITY);
    assert_eq!(through::<f64, _, 1>(&Angle::new(8), &f64::NAN).1, 0.0);
    assert_eq!(
        through::<[f64; 3], _, 3>(&Steps::new(1.0), &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]).1,
        [0.0, 2_147_483_647.0, -2_147_483_648.0]
    );
}

#[test]
fn zero_is_exact_in_a_symmetric_range() {
    for (limit, step) in [(40.0, 0.1), (0.7, 0.1), (0.3, 0.1), (1.5, 0.025), (3.0, 0.3)] {
        assert_eq!(through::<f64, _, 1>(&Fixed::new(-limit, limit, step), &0.0).1, 0.0);
    }
}

#[test]
fn rings_of_codes_settle_wherever_components_tie() {
    // All rotations whose components are multiples of one another: the worst case for which one is left out.
    for bits in 2..=16 {
        let three = SmallestThree::new(bits);
        for pattern in 0..5i32.pow(4) {
            let component = |index: u32| ((pattern / 5i32.pow(index)) % 5 - 2) as f32 * 0.5;
            through::<[f32; 4], _, 2>(&three, &[component(0), component(1), component(2), component(3)]);
        }
    }
}

#[test]
fn references_and_truth_are_exact() {
    assert!(through::<bool, _, 1>(&Truth, &true).1);
    for id in
        [ObjectId { index: 0, generation: 0 }, ObjectId { index: u32::MAX - 1, generation: u32::MAX }, ObjectId::NONE]
    {
        assert_eq!(through::<ObjectId, _, 2>(&Reference, &id).1, id);
    }
    let stray = ObjectId { index: u32::MAX, generation: 3 };
    assert_eq!(through::<ObjectId, _, 2>(&Reference, &stray).1, ObjectId::NONE);
}
