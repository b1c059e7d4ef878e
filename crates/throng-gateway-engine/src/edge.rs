//! Edges of a gateway: processes that hold the clients' connections and send them state, for a home that has the channels.
//!
//! ```text
//!   clients ====> edge  ---- opened, said, closed ---------------------------->  home  <==== world servers
//!   clients <==== edge  <--- answers and messages, for each client ------------  home
//!                 edge  <--- changes of a channel, once for all its readers ---  home
//!                 edge  <--- who reads which channel, and how often -----------  home
//! ```
//!
//! Both are an [`Engine`](crate::Engine). The home decides everything: logins, rights, channels, subscriptions, limits. The
//! [edge](crate::Engine::set_edge) passes its clients' messages to the home, and the home's answers to its clients. It has a copy
//! of each channel that one of its clients reads, with the writer of each value, and fans it out as the home would. So the cost
//! of a channel for the home and the network does not depend on the number of readers at an edge.
//!
//! # Frames
//!
//! A frame holds everything that one end sends in a step. It is a protobuf message: an [`UpFrame`] or a [`DownFrame`]. The path
//! keeps the order of frames and loses none. When the path ends, all clients of the edge are lost for the home, and the edge
//! ends their connections. An edge handles a whole frame before it sends its clients anything.
//!
//! An edge that ends says so in its last frame, and ends its clients' connections when it has the home's last frame. Until then
//! the home would take a client that comes back through another edge for a second client of the same name.
//!
//! Neither end trusts the other: a frame that is wrong is an [`EdgeFault`], and the path is closed.
//!
//! # Turns
//!
//! Changes are sent in the tick in which a reader has its turn, and the frame says that tick. When it has come, the edge serves all
//! readers whose turns are up to that tick. A reader may have its turn later than the first one, when no frame comes: for it the edge
//! counts the ticks itself. Its ticks are the home's, late by the time on the path and a little more, so that the edge has no turn
//! before the changes for it are there.

pub(crate) mod records;

use bytes::Bytes;
use prost::Message;
use thiserror::Error;
use throng_channeld::{Field, take_field};

use records::{IS_LAST, UP_IS_LAST};

/// The version of these frames. Ends of different versions do not speak to each other.
pub const VERSION: u32 = 4;

/// The longest frame, in bytes. The sender cuts longer ones.
pub const FRAME_MAX_BYTES: usize = 16 << 20;

/// A frame that is written ends after the record that reaches this.
pub(crate) const FRAME_FULL_BYTES: usize = 4 << 20;

/// Entries and changes are cut into records of about this, so that no frame is too long.
pub(crate) const RECORD_FULL_BYTES: usize = 1 << 20;

/// Everything that an edge sends in one step.
#[derive(Clone, PartialEq, Message)]
pub struct UpFrame {
    /// In order.
    #[prost(message, repeated, tag = "1")]
    pub records: Vec<Up>,
    /// The edge ends: the home sends its last frame, and lets the clients go on at another edge.
    #[prost(bool, tag = "2")]
    pub is_last: bool,
}

/// An end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathSide {
    /// The edge.
    Edge,
    /// Its home.
    Home,
}

impl PathSide {
    /// Whether a frame of this end is its last one. Allocates nothing; one step for each record.
    pub fn is_last(self, mut frame: &[u8]) -> bool {
        let flag = match self {
            PathSide::Edge => UP_IS_LAST,
            PathSide::Home => IS_LAST,
        };
        while !frame.is_empty() {
            match take_field(&mut frame) {
                Ok(Field::Number(number, value)) if number == flag && value != 0 => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        false
    }
}

/// One record of an edge.
#[derive(Clone, PartialEq, Message)]
pub struct Up {
    /// The edge's number of the client. Never used again for another one.
    #[prost(uint64, tag = "1")]
    pub client: u64,
    /// The content.
    #[prost(oneof = "up::What", tags = "2, 3, 4")]
    pub what: Option<up::What>,
}

/// The kinds of [`Up`].
pub mod up {
    use bytes::Bytes;

    use crate::port::EndCause;

    /// The content of an [`Up`](super::Up).
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum What {
        /// It has come, from this address: `203.0.113.7:40000`.
        #[prost(string, tag = "2")]
        Opened(String),
        /// It sent messages: entries of a packet.
        #[prost(bytes = "bytes", tag = "3")]
        Said(Bytes),
        /// It is gone.
        #[prost(enumeration = "Cause", tag = "4")]
        Closed(i32),
    }

    /// Why a client is gone: [`EndCause`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub enum Cause {
        /// The transport failed.
        Lost = 0,
        /// It said good-bye.
        PeerClosed = 1,
        /// It did not read.
        Stalled = 2,
        /// The edge ended it.
        Ours = 3,
    }

    impl From<EndCause> for Cause {
        fn from(cause: EndCause) -> Cause {
            match cause {
                EndCause::Lost => Cause::Lost,
                EndCause::PeerClosed => Cause::PeerClosed,
                EndCause::Stalled => Cause::Stalled,
                EndCause::Ours => Cause::Ours,
            }
        }
    }

    impl From<Cause> for EndCause {
        fn from(cause: Cause) -> EndCause {
            match cause {
                Cause::Lost => EndCause::Lost,
                Cause::PeerClosed => EndCause::PeerClosed,
                Cause::Stalled => EndCause::Stalled,
                Cause::Ours => EndCause::Ours,
            }
        }
    }
}

/// Everything that a home sends in one step.
#[derive(Clone, PartialEq, Message)]
pub struct DownFrame {
    /// Its tick, if all changes for the turns of readers up to that tick have come with this frame.
    #[prost(uint64, optional, tag = "1")]
    pub turn: Option<u64>,
    /// In order.
    #[prost(message, repeated, tag = "2")]
    pub records: Vec<Down>,
    /// The home ends, or the edge said that it does: all clients are sent what they lack before their connections end.
    #[prost(bool, tag = "3")]
    pub is_last: bool,
    /// The first tick in which a reader has a turn that changes in this step are for; at most a minute before `turn`.
    #[prost(uint64, optional, tag = "4")]
    pub first_turn: Option<u64>,
}

/// One record of a home.
#[derive(Clone, PartialEq, Message)]
pub struct Down {
    /// The edge's number of the client that this is about, or 0.
    #[prost(uint64, tag = "1")]
    pub client: u64,
    /// The content.
    #[prost(oneof = "down::What", tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12")]
    pub what: Option<down::What>,
}

/// The kinds of [`Down`].
pub mod down {
    use bytes::Bytes;

    /// The content of a [`Down`](super::Down).
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum What {
        /// The client is sent these entries.
        #[prost(bytes = "bytes", tag = "2")]
        Entries(Bytes),
        /// The client has logged in.
        #[prost(message, tag = "3")]
        Admitted(Admitted),
        /// The client's login: a [`LoginNote`](crate::port::LoginNote), by number.
        #[prost(uint32, tag = "4")]
        Login(u32),
        /// The client's connection ends, after what it was sent; or at once, and what waits is thrown away.
        #[prost(bool, tag = "5")]
        Close(bool),
        /// The facts about a channel that the edge needs before its state.
        #[prost(message, tag = "6")]
        Channel(Channel),
        /// Changes of a channel.
        #[prost(message, tag = "7")]
        Changes(Changes),
        /// The client reads a channel from now on.
        #[prost(message, tag = "8")]
        Reads(Reads),
        /// It reads it in another way than before.
        #[prost(message, tag = "9")]
        ReadsOtherwise(Reads),
        /// The client does not read this channel any more.
        #[prost(uint32, tag = "10")]
        ReadsNot(u32),
        /// No client of the edge reads this channel.
        #[prost(uint32, tag = "11")]
        Forget(u32),
        /// Several clients are sent the same entries.
        #[prost(message, tag = "12")]
        ToMany(ToMany),
    }

    /// Entries for several clients.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ToMany {
        /// The edge's numbers of them.
        #[prost(uint64, repeated, tag = "1")]
        pub clients: Vec<u64>,
        /// The entries.
        #[prost(bytes = "bytes", tag = "2")]
        pub entries: Bytes,
    }

    /// A client that has logged in.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Admitted {
        /// Its number in the protocol.
        #[prost(uint32, tag = "1")]
        pub connection: u32,
        /// The number under which changes say that it wrote them.
        #[prost(uint32, tag = "2")]
        pub writer: u32,
    }

    /// A channel, without its state.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Channel {
        /// Its id.
        #[prost(uint32, tag = "1")]
        pub id: u32,
        /// Its type.
        #[prost(int32, tag = "2")]
        pub kind: i32,
        /// Lists are replaced.
        #[prost(bool, tag = "3")]
        pub replaces_lists: bool,
        /// The longest list; 0: any.
        #[prost(uint32, tag = "4")]
        pub list_size_limit: u32,
        /// Too long lists lose what came first.
        #[prost(bool, tag = "5")]
        pub truncates_top: bool,
        /// Entries of maps that say so are removed.
        #[prost(bool, tag = "6")]
        pub removes_map_entries: bool,
        /// Messages in maps are merged field by field.
        #[prost(bool, optional, tag = "7")]
        pub merges_map_entries: Option<bool>,
        /// How many ticks lie between its turns.
        #[prost(uint32, tag = "8")]
        pub turn_ticks: u32,
        /// Bytes of memory that the home gives the state; 0 before the first write. A state without a schema loses its oldest
        /// occurrences beyond that.
        #[prost(uint64, tag = "9")]
        pub state_bytes: u64,
        /// The type of the state; empty before the first write.
        #[prost(string, tag = "10")]
        pub type_url: String,
    }

    /// Changes of a channel: all since those before, or everything.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Changes {
        /// The channel.
        #[prost(uint32, tag = "1")]
        pub channel: u32,
        /// This is the whole state, and the copy so far is void.
        #[prost(bool, tag = "2")]
        pub is_whole: bool,
        /// To be merged in order.
        #[prost(message, repeated, tag = "3")]
        pub values: Vec<Value>,
        /// The numbers of the fields of the outermost message that have no schema and are lists for the home. Values are joined, so the
        /// edge cannot see it.
        #[prost(uint32, repeated, tag = "4")]
        pub repeated_fields: Vec<u32>,
    }

    /// The changes that one connection wrote.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Value {
        /// Its number as a writer.
        #[prost(uint32, tag = "1")]
        pub writer: u32,
        /// A message of the state's type.
        #[prost(bytes = "bytes", tag = "2")]
        pub value: Bytes,
    }

    /// How a client reads a channel.
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Reads {
        /// The channel.
        #[prost(uint32, tag = "1")]
        pub channel: u32,
        /// Ticks between its turns.
        #[prost(uint32, tag = "2")]
        pub interval_ms: u32,
        /// The home's tick from which they are counted.
        #[prost(uint64, tag = "3")]
        pub anchor: u64,
        /// The delay that was asked for, in ms.
        #[prost(sint32, tag = "4")]
        pub delay_ms: i32,
        /// It is not sent what is there, but what changes.
        #[prost(bool, tag = "5")]
        pub begins_with_changes: bool,
        /// It is not sent what it wrote itself.
        #[prost(bool, tag = "6")]
        pub skips_self: bool,
        /// Nothing of it may get lost.
        #[prost(bool, tag = "7")]
        pub is_reliable: bool,
        /// It may write.
        #[prost(bool, tag = "8")]
        pub may_write: bool,
        /// The fields that it wants; none: all.
        #[prost(string, repeated, tag = "9")]
        pub masks: Vec<String>,
    }
}

/// Why the path to the other end has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EdgeFault {
    /// The bytes are no frame. The other end's fault.
    #[error("bytes that are no frame")]
    Malformed,
    /// A client was opened twice, or its address cannot be read. The other end's fault.
    #[error("a client that cannot be")]
    Client,
    /// A change that does not fit the copy. The ends have different settings or versions.
    #[error("a change that does not fit the copy of its channel")]
    Change,
    /// The other end does not read.
    #[error("too much waits for the other end")]
    Slow,
}

impl EdgeFault {
    /// A stable name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            EdgeFault::Malformed => "malformed",
            EdgeFault::Client => "client",
            EdgeFault::Change => "change",
            EdgeFault::Slow => "slow",
        }
    }
}

/// An edge, as its home knows it. Never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EdgeKey(pub(crate) u32);

/// The path from a home to one of its edges.
pub trait EdgeOutbox: Send {
    /// Bytes that were sent and are not on their way yet.
    fn queued_bytes(&self) -> usize;

    /// Takes one frame.
    fn send(&self, frame: Bytes);

    /// Ends the path, because of this fault.
    fn close(&self, fault: EdgeFault);
}

/// By how much an edge's ticks are late beside the home's, as seen from the edge: changed a little at a time, so that the edge has
/// hardly a turn by its own clock before the changes for it have come.
///
/// A frame's *lead* is the edge's tick when it comes, less the first turn that it is about: above 0 it comes too late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slack {
    /// The least and the greatest lead since the window began.
    leads: Option<(i64, i64)>,
    /// The least of the window before.
    former_least: Option<i64>,
    /// The tick at which the window ends.
    window_end: u64,
}

/// A home says no turn that is further ahead of the edge's clock than this, and no first turn that is longer over, however late it is.
pub(crate) const TURN_MAX_TICKS: u32 = 60_000;

/// How long leads are looked at together.
const WINDOW_TICKS: u64 = 10_000;
/// No frame waits longer than this for its turn because others are late, in ticks.
const SLACK_MAX_TICKS: i64 = 10;
/// Less than this is left alone, in ticks.
const SLACK_KEPT_TICKS: i64 = 3;

impl Slack {
    /// A frame has come at this tick with this lead. By how many ticks the edge's clock is to be set back; below 0: forward.
    pub(crate) fn note(&mut self, tick: u64, lead: i64) -> i64 {
        let (least, greatest) =
            self.leads.map_or((lead, lead), |(least, greatest)| (least.min(lead), greatest.max(lead)));
        self.leads = Some((least, greatest));
        if lead > 0 {
            // A frame that is late for another reason than the usual one does not delay all others.
            let best = self.former_least.map_or(least, |former| former.min(least)).min(0);
            let back = lead.min(SLACK_MAX_TICKS + best).max(0);
            self.leads = Some((least - back, greatest - back));
            self.former_least = self.former_least.map(|former| former - back);
            return back;
        }
        if tick < self.window_end {
            return 0;
        }
        let forward = (-greatest - SLACK_KEPT_TICKS).max(0);
        *self = Slack { leads: None, former_least: Some(least + forward), window_end: tick + WINDOW_TICKS };
        -forward
    }
}

/// A tick of the edge that is like one of the home's, however the intervals of channels divide it: at or after `after`.
pub(crate) fn like_tick(home_tick: u64, after: u64) -> u64 {
    let ahead = after.saturating_sub(home_tick);
    home_tick.saturating_add(ahead.next_multiple_of(COMMON_TICKS))
}

/// Divisible by the usual intervals: 1 to 16, 20, 25, 30, 33, 40, 50, 60, 66, 100.
const COMMON_TICKS: u64 = 3_603_600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_knows_the_last_frame_of_the_other_one() {
        let records = vec![Up { client: 1, what: Some(up::What::Said(Bytes::from_static(b"entries"))) }; 3];
        for is_last in [false, true] {
            let up = UpFrame { records: records.clone(), is_last }.encode_to_vec();
            let down =
                DownFrame { turn: Some(3), is_last, first_turn: Some(2), ..DownFrame::default() }.encode_to_vec();
            assert_eq!([PathSide::Edge.is_last(&up), PathSide::Home.is_last(&down)], [is_last; 2]);
            assert!(!PathSide::Edge.is_last(&up[..up.len() - 1]) && !PathSide::Home.is_last(&[]));
        }
    }

    /// Frames each 20 ticks over a path on which they take 2 to 5 ticks, by clocks that drift apart by 100 ppm.
    #[test]
    fn nearly_all_frames_come_before_their_turn_whatever_the_clocks_do() {
        for drift_ppm in [-100_i64, 0, 100] {
            let mut slack = Slack::default();
            let (mut back, mut late, mut waits) = (0_i64, 0, 0_i64);
            let mut random = fastrand::Rng::with_seed(7);
            for number in 0..50_000_i64 {
                let home = number * 20;
                let now = home + home * drift_ppm / 1_000_000 + random.i64(2..=5);
                let lead = now - back - home;
                late += i64::from(lead > 0);
                waits += (-lead).max(0);
                back += slack.note(now as u64, lead);
            }
            assert!(late < 1_000, "{drift_ppm}: {late} of 50,000 are late");
            assert!(waits < 50_000 * 7, "{drift_ppm}: {} ticks", waits as f64 / 50_000.0);
        }
    }

    #[test]
    fn one_frame_that_is_very_late_delays_no_other() {
        let mut slack = Slack::default();
        assert_eq!(slack.note(0, 0), 0);
        assert_eq!(slack.note(20, 2_000), 10);
        assert_eq!(slack.note(40, 1_990), 0);
        // After a window without such a frame, what is more than enough is taken back.
        assert_eq!((0..490).map(|number| slack.note(60 + number * 20, -10)).sum::<i64>(), 0);
        assert_eq!((0..1_000).map(|number| slack.note(9_980 + number * 20, -10)).sum::<i64>(), -7);
    }

    #[test]
    fn ticks_of_the_edge_are_like_those_of_the_home() {
        for (home, after) in [(0, 0), (5, 0), (0, 5), (7, 3_603_607), (7, 3_603_608), (1_000, 999)] {
            let tick = like_tick(home, after);
            assert!(tick >= after && tick >= home && (tick - home).is_multiple_of(50 * 33));
            assert!(tick < after.max(home) + COMMON_TICKS);
        }
    }
}
