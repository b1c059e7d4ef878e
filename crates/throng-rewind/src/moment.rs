//! A time within the simulation: a tick and a part of the next one.

use throng_wire::Tick;

/// A tick, and how much of the way to the next tick has passed.
///
/// Clients show the world between two ticks, so this is how they name what they see. Differences are counted in 64-bit
/// ticks and fractions of them, never in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Moment {
    /// The last tick that had begun.
    pub tick: Tick,
    /// From 0 to below 1. Another value, NaN for example, makes the moment invalid; whatever takes moments from
    /// clients refuses it.
    pub fraction: f32,
}

impl Moment {
    /// The beginning of a tick.
    pub const fn at(tick: Tick) -> Moment {
        Moment { tick, fraction: 0.0 }
    }

    /// A tick and a fraction from 0 to below 1.
    pub const fn new(tick: Tick, fraction: f32) -> Moment {
        Moment { tick, fraction }
    }

    /// Whether the fraction is from 0 to below 1.
    pub fn is_valid(self) -> bool {
        (0.0..1.0).contains(&self.fraction)
    }

    /// Ticks from `older` to this moment; negative if `older` is later.
    #[inline]
    pub fn ticks_since(self, older: Moment) -> f64 {
        let whole = if self.tick >= older.tick {
            (self.tick.0 - older.tick.0) as f64
        } else {
            -((older.tick.0 - self.tick.0) as f64)
        };
        whole + (f64::from(self.fraction) - f64::from(older.fraction))
    }

    /// The moment `ticks` earlier, at least the beginning of tick 0. `ticks` is at least 0 and not NaN.
    pub fn before(self, ticks: f64) -> Moment {
        let whole = ticks.floor();
        let rest = f64::from(self.fraction) - (ticks - whole);
        let (whole, rest) = if rest < 0.0 { (whole + 1.0, rest + 1.0) } else { (whole, rest) };
        if whole > self.tick.0 as f64 {
            return Moment::at(Tick(0));
        }
        let tick = self.tick.0 - whole as u64;
        let fraction = rest as f32;
        if fraction < 1.0 { Moment::new(Tick(tick), fraction) } else { Moment::at(Tick(tick + 1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_count_ticks_and_fractions() {
        let moment = Moment::new(Tick(10), 0.25);
        assert_eq!(moment.ticks_since(Moment::new(Tick(8), 0.75)), 1.5);
        assert_eq!(Moment::new(Tick(8), 0.75).ticks_since(moment), -1.5);
        assert_eq!(Moment::at(Tick(u64::MAX)).ticks_since(Moment::at(Tick(u64::MAX - 3))), 3.0);
    }

    #[test]
    fn going_back_crosses_ticks_and_ends_at_zero() {
        let moment = Moment::new(Tick(10), 0.25);
        assert_eq!(moment.before(0.0), moment);
        assert_eq!(moment.before(0.25), Moment::at(Tick(10)));
        assert_eq!(moment.before(0.5), Moment::new(Tick(9), 0.75));
        assert_eq!(moment.before(3.25), Moment::at(Tick(7)));
        assert_eq!(moment.before(11.0), Moment::at(Tick(0)));
        assert_eq!(moment.before(f64::INFINITY), Moment::at(Tick(0)));
        // A rest that rounds up to a whole tick is that tick.
        assert_eq!(Moment::at(Tick(10)).before(1e-12), Moment::at(Tick(10)));
    }
}
