//! Angles of directions, with the same bits on every machine.

use std::f32::consts::{FRAC_PI_2, PI, TAU};

use glam::Vec3;

/// The angle of the point (x, y), from -pi to pi; 0 for the origin. Exact to about 1e-7: a series after one halving.
pub(super) fn angle_of(y: f32, x: f32) -> f32 {
    let (far, near) = (x.abs().max(y.abs()), x.abs().min(y.abs()));
    if far == 0.0 {
        return 0.0;
    }
    let ratio = f64::from(near) / f64::from(far);
    // tan(pi / 8): above it, the angle is taken from the diagonal.
    let (base, rest) = match ratio > 0.414_213_562 {
        true => (std::f64::consts::FRAC_PI_4, (ratio - 1.0) / (ratio + 1.0)),
        false => (0.0, ratio),
    };
    let square = rest * rest;
    let series = [-1.0 / 15.0, 1.0 / 13.0, -1.0 / 11.0, 1.0 / 9.0, -1.0 / 7.0, 0.2, -1.0 / 3.0, 1.0];
    let eighth = (base + rest * series.iter().fold(0.0, |sum, factor| sum * square + factor)) as f32;
    let quarter = if x.abs() >= y.abs() { eighth } else { FRAC_PI_2 - eighth };
    let half = if x >= 0.0 { quarter } else { PI - quarter };
    if y >= 0.0 { half } else { -half }
}

/// An angle brought to -pi to pi.
pub(super) fn wrap(angle: f32) -> f32 {
    angle - (angle / TAU).round() * TAU
}

/// The yaw and the pitch in radians of a direction: yaw 0 along +z, a quarter along +x.
pub(super) fn look(direction: Vec3) -> [f32; 2] {
    let level = (direction.x * direction.x + direction.z * direction.z).sqrt();
    [angle_of(direction.x, direction.z), angle_of(direction.y, level)]
}

/// Radians as in a command.
pub(super) fn yaw(radians: f32) -> u16 {
    ((radians / TAU * 65_536.0).round() as i32).rem_euclid(65_536) as u16
}

/// Radians as in a command.
pub(super) fn pitch(radians: f32) -> i16 {
    let most = f32::from(i16::MAX);
    (radians / FRAC_PI_2 * most).round().clamp(-most, most) as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_are_those_of_the_standard_library() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut part = || 2.0 * random.f32() - 1.0;
            let (x, y) = (part(), part());
            assert!((angle_of(y, x) - y.atan2(x)).abs() < 1e-6, "{y} {x}");
        }
        for (y, x) in [(0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0), (1.0, 1.0), (-1.0, -1.0), (0.0, 0.0)] {
            assert!((angle_of(y, x) - f32::atan2(y, x)).abs() < 1e-6, "{y} {x}");
        }
    }

    #[test]
    fn a_look_in_a_command_is_the_direction() {
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..2_000 {
            let mut part = || 2.0 * random.f32() - 1.0;
            let direction = Vec3::new(part(), part(), part()).normalize_or(Vec3::X);
            let [turn, rise] = look(direction);
            let back = crate::angle::direction(yaw(turn), pitch(rise));
            assert!((back - direction).length() < 2e-4, "{direction} {back}");
        }
    }
}
