//! How a session ends.

use std::fmt;
use std::time::Duration;

use super::wire::MAX_CLOSE_TEXT_BYTES;

/// Packets that carry the close reason, so that one of them arrives.
pub const CLOSE_PACKETS: u8 = 5;
/// Time between two of those packets.
pub const CLOSE_INTERVAL: Duration = Duration::from_millis(30);

/// Why a session was closed, as a number. Below 256 the numbers are the protocol's, from 256 on the application's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CloseCode(pub u16);

impl CloseCode {
    /// The application is done with the connection.
    pub const DONE: CloseCode = CloseCode(0);
    /// The peer broke the protocol.
    pub const PROTOCOL: CloseCode = CloseCode(1);
    /// The program ends.
    pub const SHUTDOWN: CloseCode = CloseCode(2);
    /// The peer cannot be served for lack of room or time.
    pub const OVERLOADED: CloseCode = CloseCode(3);
    /// The peer has to do something else first (another version, another server).
    pub const INCOMPATIBLE: CloseCode = CloseCode(4);
    /// A newer connection of the same client has taken the place of this one.
    pub const REPLACED: CloseCode = CloseCode(5);
    /// The first number that is the application's own.
    pub const APPLICATION: CloseCode = CloseCode(256);
}

/// Why a session was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseReason {
    /// For programs.
    pub code: CloseCode,
    text: Box<str>,
}

impl CloseReason {
    /// A reason. Of `text` at most [`MAX_CLOSE_TEXT_BYTES`] are kept.
    pub fn new(code: CloseCode, text: &str) -> CloseReason {
        let mut length = text.len().min(MAX_CLOSE_TEXT_BYTES);
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        CloseReason { code, text: text[..length].into() }
    }

    /// For people. From a peer: any text that is UTF-8, so do not trust it.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.code.0.to_le_bytes());
        out.push(self.text.len() as u8);
        out.extend_from_slice(self.text.as_bytes());
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", if self.text.is_empty() { "no reason given" } else { &self.text }, self.code.0)
    }
}

/// The cause of a session's end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseCause {
    /// We closed it.
    Local(CloseReason),
    /// The peer closed it.
    Peer(CloseReason),
    /// Nothing was received from the peer for the idle timeout.
    IdleTimeout,
}

impl CloseCause {
    /// A stable short name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            CloseCause::Local(_) => "local",
            CloseCause::Peer(_) => "peer",
            CloseCause::IdleTimeout => "idle_timeout",
        }
    }
}

impl fmt::Display for CloseCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseCause::Local(reason) => write!(f, "closed by us: {reason}"),
            CloseCause::Peer(reason) => write!(f, "closed by the peer: {reason}"),
            CloseCause::IdleTimeout => f.write_str("nothing was heard of the peer for too long"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let reason = CloseReason::new(CloseCode::DONE, &"ü".repeat(100));
        assert_eq!(reason.text(), "ü".repeat(64));
        let reason = CloseReason::new(CloseCode::DONE, &format!("x{}", "ü".repeat(100)));
        assert_eq!(reason.text().len(), 127);
    }
}
