//! The progress output of a run.

use std::cell::Cell;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use throng_crowd::scenario::Scenario;

use super::ledger::Ledger;
use crate::bots::Progress;

/// Time between two updates of the progress bar.
const REDRAW: Duration = Duration::from_millis(200);

pub(super) struct Display {
    bar: ProgressBar,
    players: u32,
    drawn: Cell<Duration>,
}

impl Display {
    pub(super) fn new(shown: bool, scenario: &Scenario) -> Display {
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(100), target);
        let style = ProgressStyle::with_template("{prefix:>10} {bar:24} {msg}").expect("the template is possible");
        bar.set_style(style.progress_chars("━╸ "));
        Display { bar, players: scenario.players, drawn: Cell::new(Duration::ZERO) }
    }

    pub(super) fn connecting(&self, connected: u32) {
        if !self.bar.is_hidden() {
            self.phase("connecting", f64::from(connected) / f64::from(self.players.max(1)));
            self.bar.set_message(format!("{connected} of {} bots", self.players));
        }
    }

    pub(super) fn warming(&self, elapsed: Duration, length: Duration) {
        if self.is_due(elapsed) {
            self.phase("warm-up", elapsed.as_secs_f64() / length.as_secs_f64());
            self.bar.set_message("warming up, not measuring yet");
        }
    }

    pub(super) fn measuring(&self, elapsed: Duration, length: Duration, ledger: &Ledger, bots: Progress) {
        if !self.is_due(elapsed) {
            return;
        }
        self.phase("measuring", elapsed.as_secs_f64() / length.as_secs_f64());
        let age = bots.near_age_p99_ms.map_or("-".to_owned(), |age| format!("{age:.0} ms"));
        self.bar.set_message(format!(
            "{:.0}/{:.0} s  {} bots  frame {:.2} ms  {:.0} kbit/s each  age near p99 {age}  bots {:.2} cores",
            elapsed.as_secs_f64(),
            length.as_secs_f64(),
            bots.connected,
            ledger.latest_frame_ms(),
            bots.kbit_per_s,
            bots.cpu_cores,
        ));
    }

    pub(super) fn settling(&self) {
        self.phase("settling", 1.0);
        self.bar.set_message("comparing the bots' state with the server's");
    }

    fn phase(&self, name: &'static str, share: f64) {
        self.bar.set_prefix(name);
        self.bar.set_position((share * 100.0).clamp(0.0, 100.0) as u64);
    }

    fn is_due(&self, elapsed: Duration) -> bool {
        if self.bar.is_hidden() || elapsed.abs_diff(self.drawn.get()) < REDRAW {
            return false;
        }
        self.drawn.set(elapsed);
        true
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
