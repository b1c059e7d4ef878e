//! Reckoned positions: between two statements of a position, both ends compute it from the velocity.
//!
//! ```text
//! stated    position p0 at tick t0, velocity v                            both ends know it
//! reckoned  p(t) = p0 + v * (t - t0) * tick interval, rounded to steps    both ends compute it, for any tick
//! stated again when the velocity changes, or the true position leaves p(t) by more than the threshold
//! ```
//!
//! The games' literature calls it dead reckoning; IEEE 1278.1 (DIS) has it with thresholds, as it is here.
//!
//! A reader is told p(T) of a tick T after t0, rounded, and goes on from there: its position at t differs from
//! p0 + v * (t - t0) * tick interval by at most half a step of that rounding and half a step of its own, together one step.
//! The server's p(t) is rounded once and differs by half a step. The reader's and the server's numbers are whole, so they
//! differ by at most one step: the threshold is one step below the error that is allowed.

use crate::arithmetic::Fixed;
use crate::{Condition, Field, Quantiser};

/// How a position is reckoned between two statements of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predict {
    /// Name of the field that is the velocity, in world units per second: three elements with the quantiser
    /// [`Quantiser::Fixed`], sent to the same audience as the position.
    pub by: &'static str,
    /// The most by which a reader's position may differ from the quantised one along an axis, in world units: at least one
    /// step of the position, and at most 2^30 of them.
    pub error_m: f64,
}

/// The reckoned position of a kind, ready to compute.
#[derive(Clone, Copy, Debug)]
pub struct Reckoning {
    /// Index of the position field.
    pub position: usize,
    /// Index of the velocity field.
    pub velocity: usize,
    /// The most steps by which a reader's position may differ from the quantised one along an axis; at least 1.
    pub error_steps: u32,
    position_word: usize,
    velocity_word: usize,
    speed: Fixed,
    step: f64,
}

/// The most steps that a reckoned position may be wrong by.
const ERROR_STEPS_MAX: f64 = (1 << 30) as f64;

impl Reckoning {
    /// The reckoned position of a kind whose fields have been checked and have their words.
    pub(crate) fn of(fields: &[Field]) -> Option<Reckoning> {
        let position = fields.iter().position(|field| field.predict.is_some())?;
        let (predict, quantiser) = (fields[position].predict?, fields[position].quantiser);
        let velocity = fields.iter().position(|field| field.name == predict.by)?;
        let (Quantiser::Position { step }, Quantiser::Fixed { min, max, step: speed_step }) =
            (quantiser, fields[velocity].quantiser)
        else {
            return None;
        };
        Some(Reckoning {
            position,
            velocity,
            error_steps: whole_steps(predict.error_m, step) as u32,
            position_word: usize::from(fields[position].word),
            velocity_word: usize::from(fields[velocity].word),
            speed: Fixed::new(min, max, speed_step),
            step,
        })
    }

    /// The position that the words of an object hold, in steps.
    ///
    /// # Panics
    /// If the words are not shaped like the kind; so do the other functions.
    #[inline]
    pub fn position(&self, words: &[u32]) -> [i32; 3] {
        std::array::from_fn(|axis| words[self.position_word + axis] as i32)
    }

    /// Replaces the position that the words hold.
    #[inline]
    pub fn set_position(&self, words: &mut [u32], position: [i32; 3]) {
        for (word, steps) in words[self.position_word..][..3].iter_mut().zip(position) {
            *word = steps as u32;
        }
    }

    /// The words of the velocity.
    #[inline]
    pub fn velocity_words(&self, words: &[u32]) -> [u32; 3] {
        std::array::from_fn(|axis| words[self.velocity_word + axis])
    }

    /// Replaces the words of the velocity.
    #[inline]
    pub fn set_velocity_words(&self, words: &mut [u32], velocity: [u32; 3]) {
        words[self.velocity_word..][..3].copy_from_slice(&velocity);
    }

    /// Where an object that was at `from`, in steps, is after some seconds with the velocity that its words hold. Beyond
    /// the world it stays at the end of it.
    #[inline]
    pub fn after(&self, from: [i32; 3], words: &[u32], seconds: f64) -> [i32; 3] {
        std::array::from_fn(|axis| {
            let speed = self.speed.value(words[self.velocity_word + axis]);
            // The cast saturates.
            (f64::from(from[axis]) + speed * seconds / self.step).round() as i32
        })
    }

    /// Whether the velocity that the words hold is not zero.
    #[inline]
    pub fn is_moving(&self, words: &[u32]) -> bool {
        words[self.velocity_word..][..3].iter().any(|&word| self.speed.value(word) != 0.0)
    }

    /// Whether readers who reckon so are near enough to the true position, their rounding included.
    #[inline]
    pub fn is_near(&self, reckoned: [i32; 3], truth: [i32; 3]) -> bool {
        reckoned.iter().zip(truth).all(|(reckoned, truth)| reckoned.abs_diff(truth) < self.error_steps)
    }
}

/// Checks the field that says `predict`, among the other fields of its kind.
pub(crate) fn check(field: &Field, fields: &[Field]) -> Result<(), &'static str> {
    let Some(predict) = field.predict else { return Ok(()) };
    let Quantiser::Position { step } = field.quantiser else { return Err("only a position can be predicted") };
    if matches!(field.condition, Condition::InitialOnly | Condition::OwnerOnly) {
        return Err("a position that is sent once, or to the owner alone, is exact and cannot be predicted");
    }
    if field.condition == Condition::Far {
        return Err("a position for clients far away cannot be predicted");
    }
    if !predict.error_m.is_finite() || !(1.0..=ERROR_STEPS_MAX).contains(&whole_steps(predict.error_m, step)) {
        return Err("the error of a predicted position must be 1 to 2^30 steps of it");
    }
    let Some(velocity) = fields.iter().find(|other| other.name == predict.by) else {
        return Err("predict: `by` must name a field of the same kind");
    };
    match velocity.quantiser {
        Quantiser::Fixed { .. } if velocity.elements == 3 && velocity.list.is_none() => {}
        _ => return Err("predict: the velocity must be an array of three elements with the quantiser `fixed`"),
    }
    match velocity.condition {
        Condition::InitialOnly => Err("predict: the velocity must not be sent once only"),
        condition if condition.facet() != field.condition.facet() => {
            Err("predict: the velocity must go to the same audience as the position")
        }
        _ => Ok(()),
    }
}

/// Whole steps in an error. A quotient that is whole but for the rounding of its parts counts as whole.
pub(crate) fn whole_steps(error: f64, step: f64) -> f64 {
    (error / step * (1.0 + 1e-9)).floor()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn fields(error_m: f64) -> Vec<Field> {
        vec![
            Field::new("health", Quantiser::Integer { min: 0, max: 9 }),
            Field::new("place", Quantiser::Position { step: 0.01 }).predict("speed", error_m),
            Field::new("speed", Quantiser::Fixed { min: -20.0, max: 20.0, step: 0.1 }).elements(3),
        ]
    }

    fn reckoning() -> Reckoning {
        Kind::new("Car", fields(0.03)).expect("a good kind").reckoning.expect("it has one")
    }

    /// The words of a car at a place in steps, with velocities in tenths of a metre per second.
    fn car(place: [i32; 3], speed: [i32; 3]) -> Vec<u32> {
        let place = place.map(|steps| steps as u32);
        let speed = speed.map(|tenths| (tenths + 200) as u32);
        [vec![7], place.to_vec(), speed.to_vec()].concat()
    }

    #[test]
    fn a_position_is_reckoned_along_the_velocity_and_rounded_once() {
        let car = car([100, -100, 0], [30, -30, 1]);
        let reckoning = reckoning();
        let from = reckoning.position(&car);
        assert_eq!(from, [100, -100, 0]);
        assert_eq!(reckoning.after(from, &car, 0.0), from);
        assert_eq!(reckoning.after(from, &car, 1.0), [400, -400, 10]);
        assert_eq!(reckoning.after(from, &car, 1.0 / 30.0), [110, -110, 0]);
        assert_eq!(reckoning.after(from, &car, 0.06), [118, -118, 1]);
        assert_eq!(reckoning.after(from, &car, -0.1), [70, -70, -1]);
        assert_eq!((reckoning.position, reckoning.velocity, reckoning.error_steps), (1, 2, 3));
    }

    #[test]
    fn a_place_is_written_over_without_touching_its_neighbours() {
        let mut words = car([1, 2, 3], [4, 5, 6]);
        reckoning().set_position(&mut words, [-1, i32::MIN, i32::MAX]);
        assert_eq!(words, car([-1, i32::MIN, i32::MAX], [4, 5, 6]));
    }

    #[test]
    fn an_object_that_stands_stays_where_it_is() {
        let (standing, reckoning) = (car([5, 6, 7], [0, 0, 0]), reckoning());
        assert!(!reckoning.is_moving(&standing));
        assert_eq!(reckoning.after([5, 6, 7], &standing, 1e9), [5, 6, 7]);
        assert!((0..3).all(|axis| reckoning.is_moving(&car([0; 3], std::array::from_fn(|at| i32::from(at == axis))))));
    }

    #[test]
    fn beyond_the_world_a_reckoned_object_stays_at_its_end() {
        let car = car([i32::MAX - 1, i32::MIN + 1, 0], [200, -200, 200]);
        let reckoning = reckoning();
        let from = reckoning.position(&car);
        assert_eq!(reckoning.after(from, &car, 1.0), [i32::MAX, i32::MIN, 2_000]);
        assert_eq!(reckoning.after(from, &car, f64::MAX), [i32::MAX, i32::MIN, i32::MAX]);
        assert_eq!(reckoning.after([i32::MIN, i32::MAX, 0], &car, 3.0e6)[0], i32::MAX);
    }

    #[test]
    fn the_threshold_leaves_a_step_for_the_rounding_of_readers() {
        let reckoning = reckoning();
        let truth = [10, 20, i32::MIN];
        assert!(reckoning.is_near([12, 18, i32::MIN + 2], truth));
        for (axis, away) in [(0, 13), (0, 7), (1, 17), (2, i32::MIN + 3), (2, i32::MAX)] {
            let mut reckoned = truth;
            reckoned[axis] = away;
            assert!(!reckoning.is_near(reckoned, truth), "{reckoned:?}");
        }
    }

    #[test]
    fn a_reader_that_goes_on_from_any_tick_is_within_the_error() {
        let reckoning = reckoning();
        let mut farthest = 0;
        throng_seeds::for_seeds(2_000, |seed| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let from = [0; 3].map(|_: i32| rng.i32(-1_000_000..1_000_000));
            let car = car(from, [0; 3].map(|_: i32| rng.i32(-200..=200)));
            let tick_s = f64::from(rng.u32(1_000..100_000)) / 1e6;
            let (told, now) = (rng.u32(..2_000), rng.u32(2_000..4_000));
            let seconds = |ticks: u32| f64::from(ticks) * tick_s;
            let told_position = reckoning.after(from, &car, seconds(told));
            let reader = reckoning.after(told_position, &car, seconds(now - told));
            let server = reckoning.after(from, &car, seconds(now));
            let apart = reader.iter().zip(server).map(|(reader, server)| reader.abs_diff(server)).max();
            farthest = farthest.max(apart.unwrap_or(0));
            if farthest <= 1 { Ok(()) } else { Err(format!("{farthest} steps apart")) }
        });
        assert!(farthest == 1 || throng_seeds::is_partial(), "the step that is left for rounding is needed");
    }

    #[test]
    fn a_kind_whose_prediction_is_not_possible_is_refused() {
        type Change = fn(&mut Vec<Field>);
        let changes: [(Change, &str); 12] = [
            (|fields| fields[0] = fields[0].clone().predict("speed", 1.0), "only a position"),
            (|fields| fields[1].condition = Condition::InitialOnly, "sent once"),
            (|fields| fields[1].condition = Condition::OwnerOnly, "owner alone"),
            (|fields| fields[1].predict = Some(Predict { by: "speed", error_m: 0.009 }), "1 to 2^30"),
            (|fields| fields[1].predict = Some(Predict { by: "speed", error_m: f64::NAN }), "1 to 2^30"),
            (|fields| fields[1].predict = Some(Predict { by: "speed", error_m: f64::INFINITY }), "1 to 2^30"),
            (|fields| fields[1].predict = Some(Predict { by: "sped", error_m: 0.03 }), "name a field"),
            (|fields| fields[2].elements = 2, "three elements"),
            (|fields| fields[2].list = Some(1), "three elements"),
            (|fields| fields[2].quantiser = Quantiser::Float32, "`fixed`"),
            (|fields| fields[2].condition = Condition::InitialOnly, "sent once only"),
            (|fields| fields[2].condition = Condition::HideFromOwner, "same audience"),
        ];
        for (change, reason) in changes {
            let mut fields = fields(0.03);
            change(&mut fields);
            let error = Kind::new("Car", fields).expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert_eq!(reckoning().error_steps, 3);
        for (error_m, steps) in [(0.01, 1), (0.019, 1), (0.07, 7), (0.29, 29), (1.0, 100)] {
            let kind = Kind::new("Car", fields(error_m)).expect("a good kind");
            assert_eq!(kind.reckoning.map(|reckoning| reckoning.error_steps), Some(steps), "{error_m}");
        }
    }
}
