//! How late the commands of bots are, by the instants for which they are planned. It is given the time, so it can be tried in
//! virtual time.
//!
//! ```text
//!  planned   |   |   |   |   |   |   |   |          a stalled bot comes back at *
//!  made      |   |                       ||||  |    sent, each as late as it is: as many as a match takes in one tick
//!  missed            x   x   x           *          due and not sent, each as late as the bot is at *
//! ```

use throng::meter::Histogram;
use throng_match::{CommandLimits, Due, Overrun};

/// A command is late if it is made more than so many ticks after its time.
const LATE_TICKS: u64 = 1;

/// All planned commands of all bots.
pub(super) struct Planned {
    interval_ns: u64,
    pub(super) late_us: Histogram,
    /// Commands that were late, with those that were missed.
    pub(super) late: u64,
    /// Commands that were due and not sent.
    pub(super) missed: u64,
}

impl Planned {
    pub(super) fn new(tick_hz: u32) -> Planned {
        let interval_ns = 1_000_000_000 / u64::from(tick_hz.max(1));
        Planned { interval_ns, late_us: Histogram::new(), late: 0, missed: 0 }
    }

    /// How late commands are made: as many as a match takes of a seat in one tick. It would refuse the others.
    pub(super) fn overrun() -> Overrun {
        Overrun::CatchUp { at_most: u32::from(CommandLimits::default().per_tick) - 1 }
    }

    pub(super) fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Whether a command is late that is made so long after its time.
    pub(super) fn is_late(&self, late_ns: u64) -> bool {
        late_ns > LATE_TICKS * self.interval_ns
    }

    /// Counts a command that is made now, and those before it that never are.
    pub(super) fn take(&mut self, due: Due) {
        for before in 0..=due.skipped {
            let late_ns = due.late_ns + before * self.interval_ns;
            self.late_us.record(late_ns / 1_000);
            self.late += u64::from(self.is_late(late_ns));
        }
        self.missed += due.skipped;
    }
}

#[cfg(test)]
mod tests {
    use throng_match::Deadlines;

    use super::*;

    const TICK_NS: u64 = 10_000_000;

    /// A bot at 100 Hz for 100 ticks that stalls for `stalled` of them in the middle. Returns the counts, and the commands that
    /// it made.
    fn play(stalled: u64) -> (Planned, u64) {
        let (mut planned, mut deadlines) = (Planned::new(100), Deadlines::new(0, 100, Planned::overrun()));
        let (mut now_ns, mut made) = (0, 0);
        while deadlines.next_ns() < 100 * TICK_NS {
            now_ns = now_ns.max(deadlines.next_ns());
            planned.take(deadlines.begin(now_ns));
            made += 1;
            if now_ns == 50 * TICK_NS {
                now_ns += stalled * TICK_NS;
            }
        }
        (planned, made)
    }

    #[test]
    fn late_commands_are_made_and_as_late_as_their_planned_instants_say() {
        let (planned, made) = play(0);
        assert_eq!((made, planned.late, planned.missed, planned.late_us.quantile(1.0)), (100, 0, 0, 0));
        // Back at tick 53, with the commands of 51, 52 and 53 to make: 20, 10 and 0 ms late.
        let (planned, made) = play(3);
        assert_eq!((made, planned.late, planned.missed), (100, 1, 0));
        assert!(planned.late_us.quantile(1.0).abs_diff(20_000) < 500);
    }

    #[test]
    fn commands_beyond_the_bound_are_counted_as_late_as_the_bot_was() {
        // Back at tick 70, with 51 to 70 to make. 67 to 70 are sent. 51 to 66 are missed, 190 to 40 ms late.
        let (planned, made) = play(20);
        assert_eq!((made, planned.missed), (84, 16));
        assert_eq!(planned.late, 18, "those missed, and 67 and 68");
        assert_eq!(planned.late_us.len(), 100, "each planned command has its lateness");
        assert!(planned.late_us.quantile(1.0).abs_diff(190_000) < 4_000);
        assert!(planned.late_us.quantile(0.9).abs_diff(90_000) < 4_000, "a stall is in the tail with all of its ticks");
    }
}
