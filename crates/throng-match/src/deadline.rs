//! When ticks are due: arithmetic alone, no clock.

/// Nanoseconds of a second.
const SECOND_NS: u128 = 1_000_000_000;

/// The highest rate, in ticks per second.
pub const RATE_MAX_HZ: u32 = 1_000;

/// The treatment of late ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overrun {
    /// Plays the newest tick that is due, late, and skips those before it. The match then runs behind real time by the
    /// skipped ticks.
    SkipLate,
    /// Plays up to this many late ticks one after the other, and skips those before them.
    CatchUp {
        /// Most late ticks that are made up for.
        at_most: u32,
    },
}

/// The deadlines of a match: `start + n / rate`, whatever time each frame takes. Times are nanoseconds of one clock.
///
/// ```
/// use throng_match::{Deadlines, Due, Overrun};
///
/// let mut deadlines = Deadlines::new(1_000, 128, Overrun::SkipLate);
/// assert_eq!(deadlines.next_ns(), 1_000);
/// assert_eq!(deadlines.begin(1_250), Due { late_ns: 250, skipped: 0 });
/// assert_eq!(deadlines.next_ns(), 1_000 + 7_812_500);
///
/// // The frame took 20 ms: the ticks due at 7.8 and 15.6 ms have passed. The first is skipped.
/// assert_eq!(deadlines.begin(20_001_000), Due { late_ns: 20_000_000 - 15_625_000, skipped: 1 });
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    start_ns: u64,
    rate_hz: u32,
    overrun: Overrun,
    /// The number of the next deadline.
    next: u64,
}

/// How a frame begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// How long after its deadline, in nanoseconds.
    pub late_ns: u64,
    /// Deadlines before it that are skipped.
    pub skipped: u64,
}

impl Deadlines {
    /// The first deadline is `start_ns`. `rate_hz` counts as at least 1 and at most [`RATE_MAX_HZ`].
    pub fn new(start_ns: u64, rate_hz: u32, overrun: Overrun) -> Deadlines {
        Deadlines { start_ns, rate_hz: rate_hz.clamp(1, RATE_MAX_HZ), overrun, next: 0 }
    }

    /// When the next frame is due.
    pub fn next_ns(&self) -> u64 {
        self.deadline_ns(self.next)
    }

    /// A frame begins now. One that begins before its deadline is not late.
    pub fn begin(&mut self, now_ns: u64) -> Due {
        let allowed = match self.overrun {
            Overrun::SkipLate => 0,
            Overrun::CatchUp { at_most } => u64::from(at_most),
        };
        let first = self.next.max(self.newest_due(now_ns).saturating_sub(allowed));
        let due = Due { late_ns: now_ns.saturating_sub(self.deadline_ns(first)), skipped: first - self.next };
        self.next = first + 1;
        due
    }

    /// The number of the newest deadline that has passed; 0 before the first.
    fn newest_due(&self, now_ns: u64) -> u64 {
        // The rounding of deadlines is downwards, so the quotient may be one too small.
        let since_ns = u128::from(now_ns.saturating_sub(self.start_ns));
        let number = (since_ns * u128::from(self.rate_hz) / SECOND_NS) as u64;
        number + u64::from(self.deadline_ns(number + 1) <= now_ns)
    }

    fn deadline_ns(&self, number: u64) -> u64 {
        self.start_ns + (u128::from(number) * SECOND_NS / u128::from(self.rate_hz)) as u64
    }
}

/// The part of a tick, 0 to 1, by which the `number`th match of a host is shifted, so that any number of matches is spread
/// over a tick evenly: multiples of the golden ratio (Weyl's sequence).
pub(crate) fn phase_of(number: u64) -> f64 {
    (number as f64 * 0.618_033_988_749_895).fract()
}

/// The first deadline of a match that is added at `now_ns`. It is counted from the beginning of the clock, so that matches which are added
/// at different times are spread over a tick as well.
pub(crate) fn first_deadline_ns(now_ns: u64, interval_ns: f64, phase: f64) -> u64 {
    let ticks = (now_ns as f64 / interval_ns - phase).ceil().max(0.0);
    (((ticks + phase) * interval_ns) as u64).max(now_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_that_are_added_at_any_time_are_spread_over_the_tick() {
        let interval_ns = 1e9 / 128.0;
        let mut random = fastrand::Rng::with_seed(5);
        let mut now_ns = 0;
        let mut phases: Vec<f64> = (0..16)
            .map(|number| {
                now_ns += random.u64(0..3_000_000_000);
                let first_ns = first_deadline_ns(now_ns, interval_ns, phase_of(number));
                assert!(first_ns >= now_ns && first_ns - now_ns <= interval_ns as u64 + 1);
                (first_ns as f64 / interval_ns).fract()
            })
            .collect();
        phases.sort_by(f64::total_cmp);
        let gaps = phases.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.fold(1.0, f64::min) > 0.5 / 16.0, "{phases:?}");
    }

    const MS: u64 = 1_000_000;

    /// Plays frames of the given lengths on virtual time. Returns start, lateness and skipped deadlines of each.
    fn play(mut deadlines: Deadlines, work_ms: &[u64]) -> Vec<(u64, u64, u64)> {
        let mut now_ns = 0;
        let mut frames = Vec::new();
        for work in work_ms {
            now_ns = deadlines.next_ns().max(now_ns);
            let due = deadlines.begin(now_ns);
            frames.push((now_ns / MS, due.late_ns / MS, due.skipped));
            now_ns += work * MS;
        }
        frames
    }

    #[test]
    fn deadlines_do_not_drift_at_rates_that_do_not_divide_a_second() {
        for rate_hz in [1, 7, 30, 60, 128, 144, 1_000] {
            let mut deadlines = Deadlines::new(5, rate_hz, Overrun::SkipLate);
            for second in 0..1_000_u64 {
                assert_eq!(deadlines.next_ns(), 5 + second * 1_000 * MS, "{rate_hz} Hz");
                for _ in 0..rate_hz {
                    let now_ns = deadlines.next_ns();
                    assert_eq!(deadlines.begin(now_ns), Due { late_ns: 0, skipped: 0 });
                }
            }
        }
    }

    #[test]
    fn a_late_frame_is_played_at_once_and_the_next_one_has_its_own_deadline() {
        let frames = play(Deadlines::new(0, 100, Overrun::SkipLate), &[4, 16, 3, 1]);
        assert_eq!(frames, [(0, 0, 0), (10, 0, 0), (26, 6, 0), (30, 0, 0)]);
    }

    #[test]
    fn skip_late_plays_the_newest_tick_that_is_due() {
        let frames = play(Deadlines::new(0, 100, Overrun::SkipLate), &[57, 1, 1]);
        assert_eq!(frames, [(0, 0, 0), (57, 7, 4), (60, 0, 0)]);
        // A deadline that has just come is not skipped over.
        let frames = play(Deadlines::new(0, 100, Overrun::SkipLate), &[50, 1]);
        assert_eq!(frames, [(0, 0, 0), (50, 0, 4)]);
    }

    #[test]
    fn catch_up_plays_as_many_late_ticks_as_it_may_and_skips_the_rest() {
        let catch_up = |at_most| Deadlines::new(0, 100, Overrun::CatchUp { at_most });
        let frames = play(catch_up(2), &[57, 1, 1, 1, 1]);
        assert_eq!(frames, [(0, 0, 0), (57, 27, 2), (58, 18, 0), (59, 9, 0), (60, 0, 0)]);
        let frames = play(catch_up(100), &[57, 1, 1, 1, 1, 1, 1]);
        assert_eq!(frames[1], (57, 47, 0));
        assert_eq!(frames[6], (62, 2, 0));
        assert_eq!(frames.iter().map(|frame| frame.2).sum::<u64>(), 0);
    }

    #[test]
    fn every_deadline_is_played_or_skipped_once_whatever_happens() {
        throng_seeds::for_seeds(200, |seed| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let overrun = match rng.u32(0..4) {
                0 => Overrun::SkipLate,
                at_most => Overrun::CatchUp { at_most },
            };
            let rate_hz = rng.u32(1..=300);
            let mut deadlines = Deadlines::new(rng.u64(0..1 << 40), rate_hz, overrun);
            let start_ns = deadlines.next_ns();
            let (mut now_ns, mut passed) = (start_ns, 0);
            for _ in 0..200 {
                now_ns = now_ns.max(deadlines.next_ns());
                let due = deadlines.begin(now_ns);
                passed += due.skipped;
                let deadline_ns = start_ns + (u128::from(passed) * SECOND_NS / u128::from(rate_hz)) as u64;
                assert_eq!(now_ns - due.late_ns, deadline_ns);
                if overrun == Overrun::SkipLate {
                    assert!(due.late_ns <= 1_000 * MS / u64::from(rate_hz) + 1, "{due:?} at {rate_hz} Hz");
                }
                passed += 1;
                now_ns += rng.u64(0..50 * MS);
            }
        });
    }

    #[test]
    fn phases_are_spread_for_any_number_of_matches() {
        for count in [2, 5, 12, 100] {
            let mut phases: Vec<f64> = (0..count).map(phase_of).collect();
            phases.sort_by(f64::total_cmp);
            phases.push(1.0 + phases[0]);
            let widest = phases.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
            assert!(widest < 2.0 / count as f64, "{count} matches leave a gap of {widest}");
        }
    }
}
