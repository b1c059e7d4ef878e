//! The progress of a run in the terminal, and the line that announces a run.

use std::cell::Cell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::words::duration;

/// Time between two drawings of the bar.
const REDRAW: Duration = Duration::from_millis(200);
/// Without a terminal, a line tells this often, where lines are wanted.
const LINES: Duration = Duration::from_secs(300);

/// Of a phase without a length so much is over before the time that is left can be told.
const SHARE_TOLD: f64 = 0.001;

/// The phases of a run in their order, with the time that each is expected to take; 0: nobody knows, and it goes on as so far.
#[derive(Clone, Debug)]
pub struct Phases(pub Vec<(&'static str, Duration)>);

impl Phases {
    /// The phase before the measured part.
    pub const WARM_UP: &str = "warm-up";
    /// The measured part.
    pub const MEASURING: &str = "measuring";
    /// After the measured part, until nothing moves any more.
    pub const SETTLING: &str = "settling";

    /// The first line of a run: `what` is played, and how long it takes.
    pub fn announcement(&self, what: &str) -> String {
        let of = |name| self.0.iter().filter(|phase| phase.0 == name).map(|phase| phase.1.as_secs()).sum::<u64>();
        let (warmup_s, measured_s) = (of(Phases::WARM_UP), of(Phases::MEASURING));
        let total_s = self.0.iter().map(|phase| phase.1.as_secs_f64()).sum::<f64>().ceil();
        format!("{what}; {warmup_s} s of warm-up, {measured_s} s measured, about {total_s} s in all")
    }

    fn length(&self, phase: &str) -> Duration {
        self.0.iter().find(|(name, _)| *name == phase).map_or(Duration::ZERO, |(_, length)| *length)
    }

    /// The time until the end of the run, when `share` of this phase is over after so long.
    fn left(&self, phase: &str, share: f64, elapsed: Duration) -> Duration {
        let mut rest = self.0.iter().skip_while(|(name, _)| *name != phase).map(|(_, length)| *length);
        let own = match rest.next().unwrap_or_default() {
            Duration::ZERO if share >= SHARE_TOLD => elapsed.div_f64(share),
            own => own,
        };
        own.mul_f64(1.0 - share) + rest.sum::<Duration>()
    }
}

/// A line in the terminal with phase, bar, the time that is left, and figures. It goes when this is dropped.
pub struct ProgressLine {
    bar: ProgressBar,
    phases: Phases,
    began: Instant,
    /// Gets lines where there is no terminal.
    note: Option<fn(&str)>,
    /// The phase that was shown last, and which of its intervals.
    shown: Cell<(&'static str, u128)>,
}

impl ProgressLine {
    /// Nothing is drawn unless `is_shown` and the standard error is a terminal.
    pub fn new(is_shown: bool, phases: Phases) -> ProgressLine {
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(100), target);
        let style = ProgressStyle::with_template("{prefix:>10} {bar:24} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸ "));
        ProgressLine { bar, phases, began: Instant::now(), note: None, shown: Cell::new(("", 0)) }
    }

    /// Where nothing is drawn, `note` gets a line every five minutes.
    pub fn or_lines(mut self, note: fn(&str)) -> ProgressLine {
        self.note = Some(note);
        self
    }

    /// This phase goes on for so long. Asks for the figures only if they are shown: five times a second at most.
    pub fn show(&self, phase: &'static str, elapsed: Duration, figures: impl FnOnce() -> String) {
        let length = self.phases.length(phase);
        self.draw((phase, elapsed.div_duration_f64(length)), elapsed, figures);
    }

    /// `share` of a phase is over, 0 to 1, whose end is no matter of time.
    pub fn show_share(&self, phase: &'static str, share: f64, figures: impl FnOnce() -> String) {
        self.draw((phase, share), self.began.elapsed(), figures);
    }

    /// The warm-up goes on for so long.
    pub fn warm_up(&self, elapsed: Duration) {
        self.show(Phases::WARM_UP, elapsed, || "warming up, not measuring yet".to_owned());
    }

    fn draw(&self, (phase, share): (&'static str, f64), elapsed: Duration, figures: impl FnOnce() -> String) {
        let is_hidden = self.bar.is_hidden();
        let due = elapsed.as_millis() / if is_hidden { LINES } else { REDRAW }.as_millis();
        let first = if is_hidden { (phase, 0) } else { ("", 0) };
        if self.shown.replace((phase, due)) == (phase, due) || (phase, due) == first {
            return;
        }
        // NaN is the share of a phase without length.
        let share = if share >= 0.0 { share.min(1.0) } else { 0.0 };
        let left = duration(self.phases.left(phase, share, elapsed));
        match self.note.filter(|_| is_hidden) {
            Some(note) => note(&format!("  {}; about {left} left", figures())),
            None if is_hidden => {}
            None => {
                self.bar.set_prefix(phase);
                self.bar.set_position((share * 100.0) as u64);
                self.bar.set_message(format!("{left} left  {}", figures()));
            }
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn without_a_terminal_a_long_phase_tells_every_five_minutes_how_much_is_left() {
        static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let line = ProgressLine::new(false, Phases(vec![("trial", minutes(60)), ("later", minutes(63))]));
        let line = line.or_lines(|line| TOLD.lock().unwrap().push(line.to_owned()));
        (0..=1_000).for_each(|second| line.show("trial", Duration::from_secs(second), || "of a hold".to_owned()));
        let told = TOLD.lock().unwrap().clone();
        assert_eq!((told.len(), &*told[0]), (3, "  of a hold; about 118 min left"), "{told:?}");
    }

    #[test]
    fn the_time_that_is_left_is_that_of_the_phases_to_come() {
        let lengths = [("connecting", 2), (Phases::WARM_UP, 5), (Phases::MEASURING, 60), ("settling", 4)];
        let phases = Phases(lengths.map(|(name, length_s)| (name, Duration::from_secs(length_s))).to_vec());
        assert_eq!(phases.announcement("crowd"), "crowd; 5 s of warm-up, 60 s measured, about 71 s in all");
        for (phase, share, left_s) in [("connecting", 0.5, 70), ("measuring", 0.25, 49), ("settling", 1.0, 0)] {
            assert_eq!(phases.left(phase, share, Duration::ZERO), Duration::from_secs(left_s), "{phase}");
        }
        let unknown = Phases(vec![("sending", Duration::ZERO)]);
        let left = |share| unknown.left("sending", share, Duration::from_secs(10));
        assert_eq!((left(0.25), left(1.0)), (Duration::from_secs(30), Duration::ZERO));
        assert_eq!((left(0.0), left(1e-300)), (Duration::ZERO, Duration::ZERO), "too early to tell");
    }
}
