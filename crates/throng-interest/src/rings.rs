//! Distance rings: how far each send rate reaches.

use smallvec::SmallVec;
use thiserror::Error;

/// Most rings that one list may have.
pub const MAX_RINGS: usize = 8;

/// The longest time between two sends of a ring, in ticks: subscriptions keep it in 16 bits.
pub const MAX_INTERVAL_TICKS: u32 = 65_535;

/// One distance ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ring {
    /// How far the ring reaches, in metres. Finite, above 0.
    pub radius_m: f64,
    /// Ticks between two sends: 1 to [`MAX_INTERVAL_TICKS`].
    pub interval_ticks: u32,
}

/// Why a list of rings is not valid. The caller's configuration is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum RingsError {
    /// The list is empty.
    #[error("a list of rings needs at least one ring")]
    Empty,
    /// More than [`MAX_RINGS`] rings.
    #[error("{rings} rings are more than {MAX_RINGS}: leave some out")]
    TooMany {
        /// Rings in the list.
        rings: usize,
    },
    /// A radius is not a finite number above 0.
    #[error("ring {ring} has a radius of {radius_m} m, which is not a finite number above 0")]
    Radius {
        /// Position in the list.
        ring: usize,
        /// The radius given, in metres.
        radius_m: f64,
    },
    /// A ring does not reach farther than the one before it.
    #[error("ring {ring} does not reach farther than the ring before it: sort them, nearest first")]
    RadiusOrder {
        /// Position in the list.
        ring: usize,
    },
    /// An interval is 0, above [`MAX_INTERVAL_TICKS`], or shorter than that of the ring before it.
    #[error(
        "ring {ring} has an interval of {interval_ticks} ticks: choose 1 to {MAX_INTERVAL_TICKS}, and not less than for \
         nearer rings"
    )]
    Interval {
        /// Position in the list.
        ring: usize,
        /// The interval given.
        interval_ticks: u32,
    },
}

impl RingsError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            RingsError::Empty => "rings_empty",
            RingsError::TooMany { .. } => "rings_too_many",
            RingsError::Radius { .. } => "rings_radius",
            RingsError::RadiusOrder { .. } => "rings_radius_order",
            RingsError::Interval { .. } => "rings_interval",
        }
    }
}

/// 1 to [`MAX_RINGS`] rings, nearest first.
///
/// A ring is named by its index in the list, as `u8`. Radii grow strictly and intervals never shrink, so a smaller
/// number always means nearer and at least as often.
#[derive(Clone, Debug, PartialEq)]
pub struct Rings {
    rings: SmallVec<[Ring; 3]>,
}

impl Rings {
    /// Checks a list of rings.
    ///
    /// # Errors
    /// One of [`RingsError`], for the first ring that is wrong.
    pub fn new(rings: &[Ring]) -> Result<Rings, RingsError> {
        if rings.is_empty() {
            return Err(RingsError::Empty);
        }
        if rings.len() > MAX_RINGS {
            return Err(RingsError::TooMany { rings: rings.len() });
        }
        let mut before = Ring { radius_m: 0.0, interval_ticks: 1 };
        for (ring, &now) in rings.iter().enumerate() {
            if !now.radius_m.is_finite() || now.radius_m <= 0.0 {
                return Err(RingsError::Radius { ring, radius_m: now.radius_m });
            }
            if now.radius_m <= before.radius_m {
                return Err(RingsError::RadiusOrder { ring });
            }
            if !(before.interval_ticks..=MAX_INTERVAL_TICKS).contains(&now.interval_ticks) {
                return Err(RingsError::Interval { ring, interval_ticks: now.interval_ticks });
            }
            before = now;
        }
        Ok(Rings { rings: SmallVec::from_slice(rings) })
    }

    /// The rings, nearest first.
    pub fn as_slice(&self) -> &[Ring] {
        &self.rings
    }

    /// Number of rings, 1 to [`MAX_RINGS`].
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.rings.len()
    }

    /// Ticks between two sends of a ring. A number past the last ring counts as the last ring.
    pub fn interval_ticks(&self, ring: u8) -> u32 {
        self.rings[usize::from(ring).min(self.rings.len() - 1)].interval_ticks
    }

    /// How far the farthest ring reaches, in metres.
    pub fn reach_m(&self) -> f64 {
        self.rings[self.rings.len() - 1].radius_m
    }

    /// The nearest ring that reaches beyond `distance_m`, with every radius longer by `margin_m`.
    pub(crate) fn ring_at(&self, distance_m: f64, margin_m: f64) -> Option<u8> {
        self.rings.iter().position(|ring| distance_m < ring.radius_m + margin_m).map(|ring| ring as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(list: &[(f64, u32)]) -> Result<Rings, RingsError> {
        let list: Vec<Ring> =
            list.iter().map(|&(radius_m, interval_ticks)| Ring { radius_m, interval_ticks }).collect();
        Rings::new(&list)
    }

    #[test]
    fn wrong_lists_are_refused_with_their_reason() {
        let tag = |list: &[(f64, u32)]| rings(list).unwrap_err().tag();
        assert_eq!(tag(&[]), "rings_empty");
        assert_eq!(tag(&[(1.0, 1); 9]), "rings_too_many");
        assert_eq!(tag(&[(0.0, 1)]), "rings_radius");
        assert_eq!(tag(&[(f64::INFINITY, 1)]), "rings_radius");
        assert_eq!(tag(&[(f64::NAN, 1)]), "rings_radius");
        assert_eq!(tag(&[(10.0, 1), (10.0, 2)]), "rings_radius_order");
        assert_eq!(tag(&[(10.0, 0)]), "rings_interval");
        assert_eq!(tag(&[(10.0, 3), (50.0, 2)]), "rings_interval");
    }

    #[test]
    fn a_distance_belongs_to_the_nearest_ring_that_reaches_it() {
        let rings = rings(&[(10.0, 1), (50.0, 3)]).unwrap();
        assert_eq!(rings.ring_at(0.0, 0.0), Some(0));
        assert_eq!(rings.ring_at(9.9, 0.0), Some(0));
        assert_eq!(rings.ring_at(10.0, 0.0), Some(1));
        assert_eq!(rings.ring_at(10.1, 1.0), Some(0));
        assert_eq!(rings.ring_at(50.0, 0.0), None);
        assert_eq!((rings.interval_ticks(0), rings.interval_ticks(1), rings.interval_ticks(9)), (1, 3, 3));
        assert_eq!((rings.len(), rings.reach_m()), (2, 50.0));
    }
}
