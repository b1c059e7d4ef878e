//! A rate limit, for each reason, of log lines that peers cause.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustc_hash::FxHashMap;
use throng_wire::Time;
use tracing::{field, info, warn};

use throng_gateway_engine::port::Side;

/// Lines for one reason in one [`WINDOW`].
const LINES_PER_WINDOW: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);
/// Of a longer name only the beginning is written down.
const NAME_CHARS: usize = 64;

/// The lines written for each reason. Reasons are words of ours, so there are few of them.
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

    /// Writes down that a peer was refused something.
    pub(crate) fn refused(&self, now: Time, party: &Party<'_>, reason: &'static str) {
        let Some(left_out) = self.take(now, reason).map(some_of) else { return };
        let Party { side, address, connection, .. } = *party;
        let (side, player) = (side.tag(), party.player());
        // Text from a peer is written with its control characters escaped: it cannot forge lines.
        let player = player.as_deref().map(field::debug);
        warn!(target: "security", side, %address, connection, reason, player, left_out, "refused");
    }

    /// Logs that an address is banned for a while.
    pub(crate) fn shut_out(&self, now: Time, party: &Party<'_>) {
        let Some(left_out) = self.take(now, "shut_out").map(some_of) else { return };
        warn!(target: "security", side = party.side.tag(), address = %party.address.ip(), left_out, "shut out");
    }

    /// Writes down that a connection has ended in a way that is not usual.
    pub(crate) fn ended(&self, now: Time, party: &Party<'_>, reason: &'static str) {
        let Some(left_out) = self.take(now, reason).map(some_of) else { return };
        let Party { side, address, connection, .. } = *party;
        let (side, player) = (side.tag(), party.player());
        let player = player.as_deref().map(field::debug);
        info!(side, %address, connection, reason, player, left_out, "a connection has ended");
    }
}

/// The peer that a line of the log is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Party<'a> {
    pub(crate) side: Side,
    pub(crate) address: SocketAddr,
    /// Its number in the protocol, if it has one.
    pub(crate) connection: Option<u32>,
    /// Its claimed name, possibly empty. Anything that a peer may say.
    pub(crate) player: &'a str,
}

impl Party<'_> {
    /// Somebody of whom no more is known.
    pub(crate) fn of(side: Side, address: SocketAddr) -> Party<'static> {
        Party { side, address, connection: None, player: "" }
    }

    fn player(&self) -> Option<String> {
        (!self.player.is_empty()).then(|| self.player.chars().take(NAME_CHARS).collect())
    }
}

fn some_of(left_out: u64) -> Option<u64> {
    Some(left_out).filter(|&left_out| left_out > 0)
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
