//! Lines of the log that peers bring about: so many for each reason, and no more, however often it happens.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;
use throng_wire::Time;
use tracing::warn;

use crate::engine::port::Side;

/// Lines for one reason in one [`WINDOW`].
const LINES_PER_WINDOW: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);
/// Of a longer name only the beginning is written down.
const NAME_CHARS: usize = 64;

/// What was written for each reason. Reasons are words of ours, so there are few of them.
#[derive(Debug, Default)]
pub(crate) struct Ration {
    shares: Mutex<FxHashMap<&'static str, Share>>,
}

#[derive(Debug, Default)]
struct Share {
    until: Time,
    lines: u32,
    left_out: u64,
}

impl Ration {
    /// Whether a line for this reason may be written now; then, how many before it may not.
    pub(crate) fn take(&self, now: Time, reason: &'static str) -> Option<u64> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let share = shares.entry(reason).or_default();
        if share.until <= now {
            (share.until, share.lines) = (now.after(WINDOW), 0);
        }
        if share.lines >= LINES_PER_WINDOW {
            share.left_out += 1;
            return None;
        }
        share.lines += 1;
        Some(std::mem::take(&mut share.left_out))
    }

    /// Writes down that a peer was refused something. `player` is who it says it is, possibly nothing.
    pub(crate) fn refused(&self, now: Time, (side, address): (Side, SocketAddr), reason: &'static str, player: &str) {
        let Some(left_out) = self.take(now, reason) else { return };
        let player: String = player.chars().take(NAME_CHARS).collect();
        let side = side.tag();
        // What comes from a peer is written with its control characters escaped: it cannot make lines of its own.
        match (player.is_empty(), left_out) {
            (true, 0) => warn!(target: "security", side, %address, reason, "refused"),
            (true, _) => warn!(target: "security", side, %address, reason, left_out, "refused"),
            (false, 0) => warn!(target: "security", side, %address, reason, ?player, "refused"),
            (false, _) => warn!(target: "security", side, %address, reason, ?player, left_out, "refused"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_for_one_reason_is_ten_lines_and_a_number() {
        let ration = Ration::default();
        let now = Time::from_secs(100);
        let written = (0..100_000).filter(|_| ration.take(now, "banned").is_some()).count();
        assert_eq!(written, LINES_PER_WINDOW as usize);
        assert_eq!(ration.take(now, "bad_frame"), Some(0), "other reasons have lines of their own");
        assert_eq!(ration.take(now.after(WINDOW), "banned"), Some(100_000 - 10));
        assert_eq!(ration.take(now.after(WINDOW), "banned"), Some(0));
    }
}
