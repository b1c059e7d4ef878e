//! How far a measurement is, and how much time it takes yet.

use std::cell::Cell;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use throng_judge::{Left, Order};
use throng_report::duration;

use super::CapacityOptions;

/// Without a terminal, a line tells this often.
const LINES: Duration = Duration::from_secs(300);
/// With one, the bar is drawn this often.
const DRAWN: Duration = Duration::from_millis(200);
/// The command is expected to end by itself; the bar is not full before.
const PARTS: u64 = 1_000;

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
    bar: ProgressBar,
    note: fn(&str),
    hold: Duration,
    /// Expected until the end of this trial, and of the measurement.
    expected: (Duration, Duration),
    /// Reports so far, in drawings or in lines.
    told: Cell<u64>,
}

impl HoldProgress {
    pub(super) fn new(options: &CapacityOptions, order: Order, around: Around, left: Left) -> HoldProgress {
        let target = if options.shows_progress { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(PARTS), target);
        let style = ProgressStyle::with_template("  {bar:24} {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("━╸ "));
        let expected = (order.hold + around.mean(), around.left(left));
        HoldProgress { bar, note: options.note, hold: order.hold, expected, told: Cell::new(0) }
    }

    /// The command has run for so long.
    pub(super) fn show(&self, time: Duration) {
        let interval = if self.bar.is_hidden() { LINES } else { DRAWN };
        let due = (time.as_millis() / interval.as_millis()) as u64;
        if due <= self.told.replace(due) {
            return;
        }
        let text = self.words(time);
        if self.bar.is_hidden() {
            (self.note)(&format!("  {text}"));
            return;
        }
        self.bar.set_position((time.as_secs_f64() / self.expected.0.as_secs_f64() * PARTS as f64) as u64);
        self.bar.set_message(text);
    }

    fn words(&self, time: Duration) -> String {
        let left = self.expected.1.saturating_sub(time);
        format!("{} of a hold of {}; about {} left in all", duration(time), duration(self.hold), duration(left))
    }
}

impl Drop for HoldProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{Load, Method};
    use throng_judge::{HoldOptions, Purpose};

    static LINES_TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn without_a_terminal_a_long_hold_tells_every_five_minutes_how_much_is_left() {
        let hold = Duration::from_secs(3_600);
        let options = CapacityOptions {
            load: Load::resolve("ai").unwrap(),
            method: Method::Holds(HoldOptions { amounts: vec![8], repeats: 2, hold }),
            runs: "runs".into(),
            program: "throng".into(),
            note: |line| LINES_TOLD.lock().unwrap().push(line.to_owned()),
            shows_progress: false,
            live: None,
        };
        let order = Order { amount: 8, hold, purpose: Purpose::Hold };
        let mut around = Around::default();
        around.take(hold + Duration::from_secs(60), hold);
        around.take(hold + Duration::from_secs(120), hold);
        let left = Left { trials: 2, holds: 2 * hold };
        assert_eq!(around.left(left), Duration::from_secs(7_200 + 180));
        let progress = HoldProgress::new(&options, order, around, left);
        (0..=1_000).for_each(|second| progress.show(Duration::from_secs(second)));
        let told = LINES_TOLD.lock().unwrap().clone();
        assert_eq!(told.len(), 3, "{told:?}");
        assert_eq!(told[0], "  5 min of a hold of 60 min; about 118 min left in all");
    }
}
