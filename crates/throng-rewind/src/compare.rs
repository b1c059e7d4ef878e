//! Two ways of judging the same shots, compared.

use crate::geometry::{length, sub};
use crate::moment::Moment;
use crate::pose::Interpolation;
use crate::rewind::Rewind;
use crate::verdict::{BodyId, Outcome, Verdict};

/// Counts how often two rewinds agree, for example one with every 4th pose and one with all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Pairs of verdicts.
    pub shots: u64,
    /// Pairs with the same outcome and the same body.
    pub equal: u64,
    /// Of these, pairs that also name the same bone.
    pub same_bone: u64,
    /// The largest distance between the positions of one bone in the two rewinds, in metres.
    pub largest_bone_error_m: f64,
}

impl Comparison {
    /// Counts one pair.
    pub fn add(&mut self, one: &Verdict, other: &Verdict) {
        self.shots += 1;
        let (is_equal, is_same_bone) = match (&one.outcome, &other.outcome) {
            (Outcome::Hit(a), Outcome::Hit(b)) | (Outcome::Blocked(a), Outcome::Blocked(b)) => {
                (a.body == b.body, a.bone == b.bone)
            }
            (Outcome::Escaped { struck: a, .. }, Outcome::Escaped { struck: b, .. }) => {
                (a.body == b.body, a.bone == b.bone)
            }
            (Outcome::Missed(_), Outcome::Missed(_)) => (true, true),
            _ => (false, false),
        };
        self.equal += u64::from(is_equal);
        self.same_bone += u64::from(is_equal && is_same_bone);
    }

    /// Compares all bones of a body at a moment. Nothing if the body is not there in one of the two.
    ///
    /// Allocates; not for use in every tick.
    pub fn add_bones(&mut self, one: &Rewind, other: &Rewind, body: BodyId, moment: Moment) {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let sample = |rewind: &Rewind, bones: &mut Vec<_>| {
            rewind.body(body).is_some_and(|history| history.sample(moment, Interpolation::Linear, bones))
        };
        if sample(one, &mut a) && sample(other, &mut b) {
            for (a, b) in a.iter().zip(&b) {
                let error_m = length(sub(a.position_m, b.position_m));
                self.largest_bone_error_m = self.largest_bone_error_m.max(error_m);
            }
        }
    }

    /// The share of pairs with the same outcome and body; 1 without any.
    pub fn equal_share(&self) -> f64 {
        if self.shots == 0 { 1.0 } else { self.equal as f64 / self.shots as f64 }
    }
}
