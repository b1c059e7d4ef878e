//! The progress output of a run.

use std::time::Duration;

use throng_crowd::scenario::Scenario;
use throng_report::{Phases, ProgressLine};

use super::ledger::Ledger;
use super::{FLOOR, SECOND, settling};
use crate::bots::Progress;
use crate::floor;

/// Time for starting all processes and for reports.
const AROUND: Duration = Duration::from_secs(3);
/// Bots that connect in a second.
const CONNECTS_PER_S: u32 = 1_000;
const CONNECTING: &str = "connecting";

/// The phases of a scenario.
pub(super) fn phases(scenario: &Scenario) -> Phases {
    let connecting_s = scenario.profile.first(scenario.players).div_ceil(CONNECTS_PER_S);
    let floor_s = FLOOR.as_secs_f64().ceil() as u32 * floor::ROUNDS as u32;
    Phases(vec![
        (CONNECTING, SECOND * connecting_s),
        (Phases::WARM_UP, SECOND * scenario.warmup_seconds),
        (Phases::MEASURING, SECOND * scenario.seconds),
        ("floor", SECOND * floor_s),
        (Phases::SETTLING, SECOND * settling(scenario).as_secs() as u32),
        ("reports", AROUND),
    ])
}

/// So many bots are connected.
pub(super) fn connecting(line: &ProgressLine, connected: u32, players: u32) {
    let share = f64::from(connected) / f64::from(players.max(1));
    line.show_share(CONNECTING, share, || format!("{connected} of {players} bots"));
}

/// The measured part goes on for so long.
pub(super) fn measuring(line: &ProgressLine, elapsed: Duration, ledger: &Ledger, bots: Progress) {
    line.show(Phases::MEASURING, elapsed, || {
        let age = bots.near_age_p99_ms.map_or("-".to_owned(), |age| format!("{age:.0} ms"));
        format!(
            "{} bots  frame {:.2} ms  {:.0} kbit/s each  age near p99 {age}  bots {:.2} cores",
            bots.connected,
            ledger.latest_frame_ms(),
            bots.kbit_per_s,
            bots.cpu_cores,
        )
    });
}
