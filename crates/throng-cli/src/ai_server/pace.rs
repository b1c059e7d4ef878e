//! When ticks of matches are planned, and which of them end too late. It is given the time, so it can be tried in virtual
//! time.
//!
//! ```text
//!  0            warm-up                                    the end of the hold
//!  |---------------|------ held, not counted ------|s|s|s|...|s|   the last samples: counted
//! ```
//!
//! No tick is left out: one that cannot begin before the hold has ended and its deadline has passed counts as late.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// So many samples at the end of a hold are counted, as in the published test.
pub(super) const SAMPLES: usize = 30;

/// The times of a hold, from its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) tick_hz: u32,
    /// A tick that ends later than this after its planned time is late.
    pub(super) deadline: Duration,
    pub(super) warm_up: Duration,
    /// Length of the hold without the warm-up, at least [`SAMPLES`] samples.
    pub(super) hold: Duration,
    pub(super) sample: Duration,
}

impl Timing {
    /// Ticks that are planned from here on count.
    pub(super) fn counted_from(&self) -> Duration {
        self.end().saturating_sub(self.sample * SAMPLES as u32)
    }

    /// No tick is planned for this time or later.
    pub(super) fn end(&self) -> Duration {
        self.warm_up + self.hold
    }

    /// Which sample a planned time belongs to.
    fn sample_of(&self, planned: Duration) -> Option<usize> {
        let since = planned.checked_sub(self.counted_from())?;
        let index = (since.as_nanos() / self.sample.as_nanos().max(1)) as usize;
        Some(index.min(SAMPLES - 1))
    }
}

/// Ticks of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) ticks: u64,
    /// Of these, ticks that ended after their deadline.
    pub(super) late: u64,
    /// Of these, ticks that had not begun by the end.
    pub(super) missed: u64,
}

/// A tick that is to be played at its planned time, not before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Planned {
    pub(super) at: Duration,
    /// The match.
    pub(super) index: usize,
}

/// The planned ticks of the matches of a thread.
pub(super) struct Pace {
    timing: Timing,
    interval: Duration,
    due: BinaryHeap<Reverse<Planned>>,
    samples: [Sample; SAMPLES],
}

impl Pace {
    /// A hold of so many matches. Their ticks are spread evenly over the interval.
    pub(super) fn new(timing: Timing, matches: usize) -> Pace {
        let interval = Duration::from_secs(1) / timing.tick_hz;
        let at = |index: usize| interval.mul_f64(index as f64 / matches as f64);
        let due = (0..matches).map(|index| Reverse(Planned { at: at(index), index })).collect();
        Pace { timing, interval, due, samples: [Sample::default(); SAMPLES] }
    }

    /// The tick to play next; `None` at the end of the hold.
    pub(super) fn poll_tick(&mut self, now: Duration) -> Option<Planned> {
        while let Some(Reverse(planned)) = self.due.pop() {
            if planned.at >= self.timing.end() {
                continue;
            }
            if now < self.timing.end() + self.timing.deadline {
                return Some(planned);
            }
            if let Some(sample) = self.sample(planned) {
                sample.missed += 1;
            }
            self.handle_done(planned, now);
        }
        None
    }

    /// A tick has been played, and plans the next one of its match.
    pub(super) fn handle_done(&mut self, planned: Planned, now: Duration) {
        let is_late = now.saturating_sub(planned.at) > self.timing.deadline;
        if let Some(sample) = self.sample(planned) {
            sample.ticks += 1;
            sample.late += u64::from(is_late);
        }
        self.due.push(Reverse(Planned { at: planned.at + self.interval, ..planned }));
    }

    /// The counts.
    pub(super) fn samples(&self) -> &[Sample; SAMPLES] {
        &self.samples
    }

    fn sample(&mut self, planned: Planned) -> Option<&mut Sample> {
        self.samples.get_mut(self.timing.sample_of(planned.at)?)
    }
}

#[cfg(test)]
mod tests {
    use throng_judge::{Outcome, StepOptions, StepPressure};

    use super::super::figures::{CountedSample, Step};
    use super::*;

    const TIMING: Timing = Timing {
        tick_hz: 20,
        deadline: Duration::from_millis(25),
        warm_up: Duration::from_secs(1),
        hold: Duration::from_secs(4),
        sample: Duration::from_millis(100),
    };

    /// A core in virtual time: one tick after the other, each as long as `cost` says. The part of the counted time in
    /// which it worked, and all samples together.
    fn play(mut pace: Pace, cost: impl Fn(Planned) -> Duration) -> (f64, Sample) {
        let (mut now, mut busy) = (Duration::ZERO, Duration::ZERO);
        let (from, to) = (TIMING.counted_from(), TIMING.end());
        while let Some(planned) = pace.poll_tick(now) {
            let began = now.max(planned.at);
            now = began + cost(planned);
            busy += now.clamp(from, to).saturating_sub(began.clamp(from, to));
            pace.handle_done(planned, now);
        }
        let mut all = Sample::default();
        for sample in pace.samples() {
            all.ticks += sample.ticks;
            all.late += sample.late;
            all.missed += sample.missed;
        }
        (busy.as_secs_f64() / (to - from).as_secs_f64(), all)
    }

    /// The search of `throng ai-server`, with the bounds that it has.
    fn search(cost: impl Fn(Planned) -> Duration) -> Outcome {
        let options = StepOptions { start: 100, step: 50, most: 5_000, hold: TIMING.hold };
        let mut search = StepPressure::new(options);
        while let Some(order) = search.poll_trial() {
            let (cpu_share, all) = play(Pace::new(TIMING, order.amount as usize), &cost);
            assert_eq!(all.ticks, 60 * u64::from(order.amount), "3 s of 20 ticks per second and match");
            let samples = vec![CountedSample { cpu_share, decisions: all.ticks, late: all.late }];
            search.handle_trial(Step { samples, ..Step::default() }.trial(order));
        }
        search.outcome()
    }

    #[test]
    fn the_knee_of_the_processor_is_found_within_two_per_cent() {
        for cost_us in [37_u64, 100, 150, 800] {
            // A tick of 50 ms has room for so many within 85 %.
            let knee = 0.85 * 50_000.0 / cost_us as f64;
            let search = search(|_| Duration::from_micros(cost_us));
            let kept = f64::from(search.kept.unwrap());
            assert!(kept <= knee && kept > 0.98 * knee - 1.0, "{kept} of {knee}");
            assert_eq!(search.limit.as_deref(), Some("processor"));
        }
    }

    #[test]
    fn the_knee_of_late_decisions_is_found_within_two_per_cent() {
        // Once a second a tick of the first match takes 30 ms, all others 0.1 ms.
        let cost = |planned: Planned| {
            let is_stall = planned.index == 0 && planned.at.subsec_nanos() == 0;
            Duration::from_micros(if is_stall { 30_000 } else { 100 })
        };
        // A tick that is planned t after the stall begins ends 30 ms - t + 0.1 ms * (n t / 50 ms) later, too late until
        // t = 5 ms / (1 - n / 500): n t / 50 ms of 20 n ticks, so 2 % at n = 500 * (1 - 5 / (50 * 20 * 0.02)).
        let knee = 500.0 * (1.0 - 5.0 / (50.0 * 20.0 * 0.02));
        let search = search(cost);
        let kept = f64::from(search.kept.unwrap());
        assert!((kept / knee - 1.0).abs() < 0.02, "{kept} of {knee}");
        assert_eq!(search.limit.as_deref(), Some("late"));
    }

    #[test]
    fn a_planted_delay_makes_exactly_the_ticks_late_that_waited_too_long() {
        // Ten matches, a tick every 5 ms. One tick takes 60 ms; the others 1 ms.
        let delayed = Planned { at: Duration::from_secs(3), index: 0 };
        let (_, all) =
            play(Pace::new(TIMING, 10), |planned| Duration::from_millis(if planned == delayed { 60 } else { 1 }));
        // It ends 60 ms late. The tick of 5 k ms later begins at 60 + k - 1 and ends 60 + k - 5 k after its time: more than
        // 25 ms for k up to 8.
        assert_eq!(all, Sample { ticks: 600, late: 9, missed: 0 });
        let (_, all) = play(Pace::new(TIMING, 10), |_| Duration::from_millis(1));
        assert_eq!(all, Sample { ticks: 600, late: 0, missed: 0 });
    }

    #[test]
    fn delays_in_the_warm_up_and_before_the_samples_do_not_count() {
        for at_ms in [0, 500, 1_500] {
            let delayed = Planned { at: Duration::from_millis(at_ms), index: 0 };
            let (_, all) =
                play(Pace::new(TIMING, 10), |planned| Duration::from_millis(if planned == delayed { 100 } else { 1 }));
            assert_eq!(all, Sample { ticks: 600, late: 0, missed: 0 }, "{at_ms} ms");
        }
    }

    #[test]
    fn a_core_with_twice_too_much_to_do_misses_ticks_and_counts_all() {
        // 100 matches, 2,000 ticks per second of 1 ms each: 5,025 of 10,000 ticks begin in time.
        let (cpu_share, all) = play(Pace::new(TIMING, 100), |_| Duration::from_millis(1));
        assert!(cpu_share > 0.999);
        assert_eq!((all.ticks, all.late, all.missed), (6_000, 6_000, 10_000 - 5_025));
    }
}
