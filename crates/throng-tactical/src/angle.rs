//! Directions of looking, from the numbers of a command, with the same bits on every machine.
//!
//! The functions of the standard library may differ in the last bit from machine to machine. Here are series of
//! additions and multiplications, which IEEE 754 defines exactly.

use std::f32::consts::{FRAC_PI_2, TAU};

use glam::Vec3;

/// A yaw of a command in radians, 0 to 2 pi.
pub fn yaw_rad(yaw: u16) -> f32 {
    f32::from(yaw) / 65_536.0 * TAU
}

/// A pitch of a command in radians, positive upwards.
pub fn pitch_rad(pitch: i16) -> f32 {
    f32::from(pitch) / f32::from(i16::MAX) * FRAC_PI_2
}

/// Sine of an angle between -pi/4 and pi/4.
fn small_sine(angle: f64) -> f64 {
    let square = angle * angle;
    let series = [1.0 / 362_880.0, -1.0 / 5_040.0, 1.0 / 120.0, -1.0 / 6.0, 1.0];
    angle * series.iter().fold(0.0, |sum, factor| sum * square + factor)
}

/// Cosine of an angle between -pi/4 and pi/4.
fn small_cosine(angle: f64) -> f64 {
    let square = angle * angle;
    let series = [-1.0 / 3_628_800.0, 1.0 / 40_320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0];
    series.iter().fold(0.0, |sum, factor| sum * square + factor)
}

/// Sine and cosine of any finite angle in radians; exact to about 1e-8.
pub fn sine_cosine_of(radians: f32) -> (f32, f32) {
    let quarters = (f64::from(radians) / std::f64::consts::FRAC_PI_2).round();
    let rest = f64::from(radians) - quarters * std::f64::consts::FRAC_PI_2;
    let (sine, cosine) = (small_sine(rest) as f32, small_cosine(rest) as f32);
    match (quarters as i64).rem_euclid(4) {
        0 => (sine, cosine),
        1 => (cosine, -sine),
        2 => (-sine, -cosine),
        _ => (-cosine, sine),
    }
}

/// Sine and cosine of a yaw.
pub fn sine_cosine(yaw: u16) -> (f32, f32) {
    sine_cosine_of(yaw_rad(yaw))
}

/// The direction to the right of a yaw.
pub fn right_of(sine: f32, cosine: f32) -> Vec3 {
    Vec3::new(-cosine, 0.0, sine)
}

/// The unit vector of a yaw and a pitch: yaw 0 looks along +z, a quarter along +x.
pub fn direction(yaw: u16, pitch: i16) -> Vec3 {
    let (sine, cosine) = sine_cosine(yaw);
    let (up, level) = sine_cosine_of(pitch_rad(pitch));
    Vec3::new(sine * level, up, cosine * level)
}

/// The way that a command wants to go, in shares of full speed: level, at most 1 long.
pub fn level(yaw: u16, forward: i8, right: i8) -> Vec3 {
    let (sine, cosine) = sine_cosine(yaw);
    let (ahead, aside) = (f32::from(forward) / 127.0, f32::from(right) / 127.0);
    let way = Vec3::new(sine, 0.0, cosine) * ahead + right_of(sine, cosine) * aside;
    let square = way.length_squared();
    if square > 1.0 { way / square.sqrt() } else { way }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sines_and_cosines_are_those_of_the_standard_library() {
        for yaw in 0..=u16::MAX {
            let (sine, cosine) = sine_cosine(yaw);
            let angle = yaw_rad(yaw);
            assert!((sine - angle.sin()).abs() < 2e-7 && (cosine - angle.cos()).abs() < 2e-7, "{yaw}");
        }
        let (sine, cosine) = sine_cosine_of(-1_000.25);
        assert!((sine - (-1_000.25f32).sin()).abs() < 1e-6 && (cosine - (-1_000.25f32).cos()).abs() < 1e-6);
    }

    #[test]
    fn right_is_where_a_person_who_looks_along_z_has_the_right_hand() {
        // y is up, so x = y cross z: who looks along +z has +x at the left hand.
        assert!((level(0, 0, 127) - Vec3::NEG_X).length() < 1e-6);
        assert!((level(16_384, 127, 0) - Vec3::X).length() < 1e-6);
        assert!(level(5_000, 127, 127).length() < 1.0 + 1e-6);
    }
}
