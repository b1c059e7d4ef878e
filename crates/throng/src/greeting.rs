//! How a connection is opened above the link, as the server sees it: from the first packet to *live*.
//!
//! ```text
//! Unconfirmed --first packet--> Greeting --hello fits--> Welcomed --ready, or anything else of the game--> Live
//!                                  |  hello does not fit: refused        no hello, no ready for 5 s: ended
//! ```
//!
//! *Ready* is a message of lane 0, and lanes do not wait for each other. A client that has decoded the welcome may send
//! at once, so its first messages can arrive before its *ready*, and must not be lost. They mean the same as *ready*,
//! because only a client that has read the welcome may send. So any message of a welcomed client makes it live, and is
//! then handled.

use std::time::Duration;

use throng_link::session::{LaneId, LaneOptions};
use throng_schema::Schema;

use crate::handshake::{self, OpenError};

/// Our own lane for control messages; the game's lanes come after it.
pub(crate) const CONTROL: LaneId = LaneId(0);

/// A connection ends if its hello does not arrive in this time, or if it does not show in this time that it has read
/// the welcome.
pub(crate) const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The link is up; the client has not yet shown that it knows.
    Unconfirmed,
    /// Waiting for the hello.
    Greeting,
    /// The welcome is in flight.
    Welcomed,
    /// The client can read everything.
    Live,
}

/// The effect of a client's message.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Nothing: it repeats known facts.
    Nothing,
    /// Its hello fits: send the welcome.
    Welcome,
    /// Its hello does not fit: send it the reason and end the connection.
    Refuse(OpenError),
    /// It has read the welcome.
    GoLive,
    /// It has read the welcome, and this is a message for the game.
    GoLiveAndDeliver,
    /// A message for the game.
    Deliver,
    /// It broke the protocol.
    Misbehaved(&'static str),
}

/// The effect of a message on `lane` at this stage.
pub(crate) fn step(stage: Stage, lane: LaneId, bytes: &[u8], schema: &Schema, lanes: &[LaneOptions]) -> Step {
    match (stage, lane == CONTROL) {
        (Stage::Live, false) => Step::Deliver,
        (Stage::Welcomed, false) => Step::GoLiveAndDeliver,
        (Stage::Unconfirmed | Stage::Greeting, false) => Step::Misbehaved("a message came before the hello"),
        (Stage::Live, true) => Step::Nothing,
        (Stage::Welcomed, true) if handshake::is_ready(bytes) => Step::GoLive,
        (Stage::Welcomed, true) => Step::Nothing,
        (Stage::Unconfirmed | Stage::Greeting, true) => match handshake::check_hello(bytes, schema, lanes) {
            Ok(()) => Step::Welcome,
            Err(error) => Step::Refuse(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::default_lanes;

    #[test]
    fn whatever_a_welcomed_client_says_makes_it_live_and_is_heard() {
        let (schema, lanes) = (Schema::builder().build().expect("no kinds"), default_lanes());
        let hello = handshake::hello(&schema, &lanes);
        let says = |stage, lane, bytes: &[u8]| step(stage, LaneId(lane), bytes, &schema, &lanes);
        assert_eq!(says(Stage::Greeting, 0, &hello), Step::Welcome);
        assert_eq!(says(Stage::Welcomed, 0, &handshake::ready()), Step::GoLive);
        for lane in 1..4 {
            assert_eq!(says(Stage::Welcomed, lane, b"first words"), Step::GoLiveAndDeliver);
            assert_eq!(says(Stage::Live, lane, b"more words"), Step::Deliver);
            assert!(matches!(says(Stage::Greeting, lane, b"too early"), Step::Misbehaved(_)));
        }
        // Doubled or late control messages change nothing.
        assert_eq!(says(Stage::Welcomed, 0, &hello), Step::Nothing);
        assert_eq!(says(Stage::Live, 0, &handshake::ready()), Step::Nothing);
        assert!(matches!(says(Stage::Greeting, 0, &handshake::ready()), Step::Refuse(OpenError::Malformed)));
    }
}
