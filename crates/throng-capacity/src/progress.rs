//! How far a measurement is, and how much time it takes yet.

use std::time::Duration;

use throng_judge::{Left, Order};
use throng_report::{Phases, ProgressLine, duration};

use super::CapacityOptions;

const TRIAL: &str = "trial";

/// The time that trials took beside their holds: starting, connecting, warming up, comparing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around {
    sum: Duration,
    trials: u32,
}

impl Around {
    /// A trial took so long beside its hold.
    pub(super) fn take(&mut self, wall: Duration, hold: Duration) {
        self.sum += wall.saturating_sub(hold);
        self.trials += 1;
    }

    /// Of one trial; nothing is known before the first.
    fn mean(&self) -> Duration {
        self.sum / self.trials.max(1)
    }

    /// The time of all that is left.
    pub(super) fn left(&self, left: Left) -> Duration {
        left.holds.saturating_add(self.mean().saturating_mul(left.trials))
    }
}

/// Of a trial that is held.
pub(super) struct HoldProgress {
    line: ProgressLine,
    hold: Duration,
}

impl HoldProgress {
    pub(super) fn new(options: &CapacityOptions, order: Order, around: Around, left: Left) -> HoldProgress {
        let trial = order.hold + around.mean();
        let phases = vec![(TRIAL, trial), ("later", around.left(left).saturating_sub(trial))];
        let line = ProgressLine::new(options.shows_progress, Phases(phases)).or_lines(options.note);
        HoldProgress { line, hold: order.hold }
    }

    /// The command has run for so long.
    pub(super) fn show(&self, time: Duration) {
        self.line.show(TRIAL, time, || format!("{} of a hold of {}", duration(time), duration(self.hold)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_has_the_time_around_each_hold() {
        let hold = Duration::from_secs(3_600);
        let mut around = Around::default();
        around.take(hold + Duration::from_secs(60), hold);
        around.take(hold + Duration::from_secs(120), hold);
        assert_eq!(around.left(Left { trials: 2, holds: 2 * hold }), Duration::from_secs(7_200 + 180));
    }
}
