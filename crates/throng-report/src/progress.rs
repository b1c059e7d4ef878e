//! The progress of a run in the terminal, and the line that announces a run.

use std::cell::Cell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::words::duration;

/// Time between two drawings of the bar.
const REDRAW: Duration = Duration::from_millis(200);

/// The phases of a run in their order, with the time that each is expected to take.
#[derive(Clone, Debug)]
pub struct Phases(pub Vec<(&'static str, Duration)>);

impl Phases {
    /// The phase before the measured part.
    pub const WARM_UP: &str = "warm-up";
    /// The measured part.
    pub const MEASURING: &str = "measuring";

    /// The first line of a run: `what` is played, and how long it takes.
    pub fn announcement(&self, what: &str) -> String {
        let of = |name| self.0.iter().filter(|phase| phase.0 == name).map(|phase| phase.1.as_secs()).sum::<u64>();
        let (warmup_s, measured_s) = (of(Phases::WARM_UP), of(Phases::MEASURING));
        let total_s = self.0.iter().map(|phase| phase.1.as_secs_f64()).sum::<f64>().ceil();
        format!("{what}; {warmup_s} s of warm-up, {measured_s} s measured, about {total_s} s in all")
    }

    /// The time until the end of the run, when `share` of this phase is over.
    fn left(&self, phase: &str, share: f64) -> Duration {
        let mut rest = self.0.iter().skip_while(|(name, _)| *name != phase).map(|(_, length)| *length);
        let own = rest.next().unwrap_or_default();
        own.mul_f64(1.0 - share) + rest.sum::<Duration>()
    }
}

/// A line in the terminal with phase, bar, the time that is left, and figures. It goes when this is dropped.
pub struct ProgressLine {
    bar: ProgressBar,
    phases: Phases,
    /// The phase that was drawn last, and when.
    drawn: Cell<Option<(&'static str, Instant)>>,
}

impl ProgressLine {
    /// Nothing is drawn unless `is_shown` and the standard error is a terminal.
    pub fn new(is_shown: bool, phases: Phases) -> ProgressLine {
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(100), target);
        let style = ProgressStyle::with_template("{prefix:>10} {bar:24} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸ "));
        ProgressLine { bar, phases, drawn: Cell::new(None) }
    }

    /// `share` of this phase is over, 0 to 1. Draws at most five times a second, and asks for the figures only then.
    pub fn show(&self, phase: &'static str, share: f64, figures: impl FnOnce() -> String) {
        let is_early = |(name, at): (&str, Instant)| name == phase && at.elapsed() < REDRAW;
        if self.bar.is_hidden() || self.drawn.get().is_some_and(is_early) {
            return;
        }
        self.drawn.set(Some((phase, Instant::now())));
        // NaN is the share of a phase without length.
        let share = if share >= 0.0 { share.min(1.0) } else { 0.0 };
        self.bar.set_prefix(phase);
        self.bar.set_position((share * 100.0) as u64);
        self.bar.set_message(format!("{} left  {}", duration(self.phases.left(phase, share)), figures()));
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_is_that_of_the_phases_to_come() {
        let lengths = [("connecting", 2), (Phases::WARM_UP, 5), (Phases::MEASURING, 60), ("settling", 4)];
        let phases = Phases(lengths.map(|(name, length_s)| (name, Duration::from_secs(length_s))).to_vec());
        assert_eq!(phases.announcement("crowd"), "crowd; 5 s of warm-up, 60 s measured, about 71 s in all");
        for (phase, share, left_s) in [("connecting", 0.5, 70), ("measuring", 0.25, 49), ("settling", 1.0, 0)] {
            assert_eq!(phases.left(phase, share), Duration::from_secs(left_s), "{phase}");
        }
    }
}
