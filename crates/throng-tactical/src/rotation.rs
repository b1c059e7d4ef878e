//! Rotations of bones, with a fixed order of operations: the same bits on every machine.

use glam::Vec3;

use crate::angle::sine_cosine_of;

/// A quaternion x, y, z, w of length 1.
pub(crate) type Rotation = [f32; 4];

/// No rotation.
pub(crate) const UNTURNED: Rotation = [0.0, 0.0, 0.0, 1.0];

/// Around one axis (0 x, 1 y, 2 z) by an angle in radians.
pub(crate) fn around(axis: usize, radians: f32) -> Rotation {
    let (sine, cosine) = sine_cosine_of(radians / 2.0);
    let mut rotation = [0.0, 0.0, 0.0, cosine];
    rotation[axis] = sine;
    rotation
}

/// First `b`, then `a`.
pub(crate) fn product(a: Rotation, b: Rotation) -> Rotation {
    let [ax, ay, az, aw] = a;
    let [bx, by, bz, bw] = b;
    [
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by + ay * bw + az * bx - ax * bz,
        aw * bz + az * bw + ax * by - ay * bx,
        aw * bw - ax * bx - ay * by - az * bz,
    ]
}

/// A vector, turned.
pub(crate) fn turned(by: Rotation, vector: Vec3) -> Vec3 {
    let axis = Vec3::new(by[0], by[1], by[2]);
    let twice = 2.0 * axis.cross(vector);
    vector + twice * by[3] + axis.cross(twice)
}

/// With length 1 again.
pub(crate) fn unit(of: Rotation) -> Rotation {
    let length = (of[0] * of[0] + of[1] * of[1] + of[2] * of[2] + of[3] * of[3]).sqrt();
    if length > 1e-6 { of.map(|part| part / length) } else { UNTURNED }
}

/// Adds a share of a rotation to a sum, on the side of the sum that is nearer.
pub(crate) fn add_share(sum: &mut Rotation, of: Rotation, share: f32) {
    let same = sum[0] * of[0] + sum[1] * of[1] + sum[2] * of[2] + sum[3] * of[3];
    let share = if same < 0.0 { -share } else { share };
    for part in 0..4 {
        sum[part] += of[part] * share;
    }
}

/// Around x, then y, then z, in degrees.
pub(crate) fn of_degrees(degrees: [f32; 3]) -> Rotation {
    let [x, y, z] = degrees.map(f32::to_radians);
    product(around(2, z), product(around(1, y), around(0, x)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_right_handed() {
        let quarter = std::f32::consts::FRAC_PI_2;
        assert!((turned(around(1, quarter), Vec3::Z) - Vec3::X).length() < 1e-6);
        assert!((turned(around(0, quarter), Vec3::Y) - Vec3::Z).length() < 1e-6);
        let both = product(around(1, quarter), around(0, quarter));
        assert!((turned(both, Vec3::Y) - Vec3::X).length() < 1e-6, "first around x, then around y");
        assert!((turned(of_degrees([90.0, 90.0, 0.0]), Vec3::Y) - Vec3::X).length() < 1e-6);
    }

    #[test]
    fn a_mix_of_two_equal_rotations_is_the_same_rotation() {
        let one = of_degrees([10.0, 20.0, 30.0]);
        let mut sum = [0.0; 4];
        add_share(&mut sum, one, 0.4);
        add_share(&mut sum, one.map(|part| -part), 0.6);
        let mixed = unit(sum);
        assert!(mixed.iter().zip(one).all(|(a, b)| (a - b).abs() < 1e-6), "{mixed:?} {one:?}");
    }
}
