//! The contract of a bus: commands go in, events come out, and nothing waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use throng_wire::Time;

use crate::{Pattern, Subject};

/// A process on the bus. A new number for each start of the process, so that a restarted one is another member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

/// The number of a message: rising over all messages of its publisher, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// The number of a write in the store: rising over all writes to all keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// The caller's number for a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u32);

/// The caller's number for a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u32);

/// The caller's number for a request or an operation of the store. It comes back with the answer, and may be used again from then
/// on: an answer that comes later meets no other question. See [`Tickets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Hands out tickets for one of the state machines that share a bus.
#[derive(Clone, Debug)]
pub struct Tickets {
    desk: u16,
    next: u64,
}

impl Tickets {
    /// Tickets of desk `desk`. Each state machine on a bus needs a desk of its own.
    pub fn new(desk: u16) -> Tickets {
        Tickets { desk, next: 0 }
    }

    /// A ticket that was not handed out before.
    pub fn issue(&mut self) -> Ticket {
        self.next += 1;
        Ticket(u64::from(self.desk) << 48 | self.next)
    }

    /// Whether a ticket is of this desk.
    pub fn is_ours(&self, ticket: Ticket) -> bool {
        ticket.0 >> 48 == u64::from(self.desk)
    }
}

/// The state that an entry must have for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Any.
    Anything,
    /// The key has no value.
    Absent,
    /// The newest write of the key is this one.
    Revision(Revision),
}

/// The address for an answer to a request.
#[derive(Clone, PartialEq, Eq)]
pub struct ReplyTo {
    /// The member that asks.
    pub member: MemberId,
    /// Its bus's number for the request.
    pub ticket: Ticket,
    /// A subject of the implementation, where it needs one.
    pub address: Option<Arc<str>>,
}

/// Something that a caller wants.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// Send a message to all subscribers of a subject.
    Publish {
        /// The address.
        subject: Subject,
        /// The message.
        payload: Bytes,
    },
    /// Receive the messages of all subjects of a pattern.
    Subscribe {
        /// A number that is not in use.
        subscription: SubscriptionId,
        /// The subjects.
        pattern: Pattern,
    },
    /// End a subscription. Its messages under way may still arrive.
    Unsubscribe {
        /// The subscription.
        subscription: SubscriptionId,
    },
    /// Ask the subscribers of a subject. The first answer counts.
    Request {
        /// Comes back with the answer.
        ticket: Ticket,
        /// The address.
        subject: Subject,
        /// The question.
        payload: Bytes,
        /// The time after which the answer is [`RequestError::TimedOut`].
        patience: Duration,
    },
    /// Answer a request.
    Reply {
        /// The address that came with the request.
        to: ReplyTo,
        /// The answer.
        payload: Bytes,
    },
    /// Read an entry of the store.
    Get {
        /// Comes back with the answer.
        ticket: Ticket,
        /// The key.
        key: Subject,
    },
    /// Write an entry of the store.
    Put {
        /// Comes back with the answer.
        ticket: Ticket,
        /// The key.
        key: Subject,
        /// The value.
        value: Bytes,
        /// The state that the entry must have.
        expect: Expect,
        /// The time after which the store removes the entry, whole seconds, at least [`LEASE_MIN`]; or never.
        lives_for: Option<Duration>,
    },
    /// Remove an entry of the store.
    Delete {
        /// Comes back with the answer.
        ticket: Ticket,
        /// The key.
        key: Subject,
        /// The state that the entry must have.
        expect: Expect,
    },
    /// Be told all entries whose keys match, and all their changes from then on.
    Watch {
        /// A number that is not in use.
        watch: WatchId,
        /// The keys.
        pattern: Pattern,
    },
    /// End a watch.
    Unwatch {
        /// The watch.
        watch: WatchId,
    },
}

/// The shortest life of an entry: stores count whole seconds.
pub const LEASE_MIN: Duration = Duration::from_secs(1);

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The bus can be used. In process, this is the first event.
    Connected,
    /// The connection is lost. Commands are refused until the next [`Event::Connected`]; subscriptions and watches stay.
    Disconnected,
    /// A message of a subscription.
    Message(Message),
    /// Messages of a subscription are missing: ask their source for everything since the last known state.
    Gap(Gap),
    /// The answer to a request.
    Answer {
        /// The request.
        ticket: Ticket,
        /// The answer.
        result: Result<Bytes, RequestError>,
    },
    /// The answer to [`Command::Get`].
    Got {
        /// The operation.
        ticket: Ticket,
        /// The entry; `None` if there is none.
        result: Result<Option<Entry>, StoreError>,
    },
    /// The answer to [`Command::Put`] and [`Command::Delete`].
    Written {
        /// The operation.
        ticket: Ticket,
        /// The number of the write.
        result: Result<Revision, StoreError>,
    },
    /// An entry of a watch, as it is now.
    Changed {
        /// The watch.
        watch: WatchId,
        /// The entry's key.
        key: Subject,
        /// The number of the write, or the newest number that is known not to be newer than the removal.
        revision: Revision,
        /// Its value; `None` if it was removed or its time is over.
        value: Option<Bytes>,
    },
    /// All entries that existed have been told. Comes again after a connection was lost.
    Listed {
        /// The watch.
        watch: WatchId,
    },
    /// A watch has more keys than [`Limits::watched_keys`], or more than twice as many changes of it wait, or the store does not list it for
    /// some seconds. It was ended: what is known of its keys may be old. Watch again if they are still of use.
    WatchFailed {
        /// The watch.
        watch: WatchId,
    },
}

/// A message, or a request if `reply_to` is set. A request may arrive twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The subscription that it came for.
    pub subscription: SubscriptionId,
    /// Its address.
    pub subject: Subject,
    /// Its sender.
    pub publisher: MemberId,
    /// Its number. Rising for each publisher and subject. Of a request: another one, which tells requests of a publisher apart.
    pub sequence: Sequence,
    /// Its content.
    pub payload: Bytes,
    /// The address for an answer.
    pub reply_to: Option<ReplyTo>,
}

/// Which messages of a subscription are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// Where they are missing.
    pub missing: Missing,
}

/// Where messages are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Some of one publisher on one subject.
    Of {
        /// The subject.
        subject: Subject,
        /// The publisher.
        publisher: MemberId,
        /// The newest message that arrived before them; 0 if it is not known any more.
        after: Sequence,
    },
    /// Perhaps some of any subject of the subscription: the connection was lost, or too much was dropped to list it.
    Anywhere,
}

/// An entry of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its value.
    pub value: Bytes,
    /// The number of the newest write.
    pub revision: Revision,
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// Nobody has subscribed to the subject.
    #[error("nobody listens to this subject: check that the process which answers is running")]
    NobodyListens,
    /// No answer came in time. The request may have been carried out.
    #[error("no answer came in time: ask again if the request may be carried out twice")]
    TimedOut,
    /// The connection was lost. The request may have been carried out.
    #[error("the connection was lost before an answer came: ask again if the request may be carried out twice")]
    ConnectionLost,
}

impl RequestError {
    /// A stable word for each kind of error.
    pub fn tag(self) -> &'static str {
        match self {
            RequestError::NobodyListens => "nobody_listens",
            RequestError::TimedOut => "timed_out",
            RequestError::ConnectionLost => "connection_lost",
        }
    }
}

/// Why an operation of the store has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The entry has another state than expected.
    #[error("the entry has another state than expected: read it again and decide anew")]
    Refused,
    /// The answer is lost. A write may have been carried out, or may still be.
    #[error("the answer is lost, and the write may have been carried out: read the entry")]
    Unknown,
    /// The store holds as much as it may.
    #[error("the store is full: raise its limit, or remove entries")]
    Full,
}

impl StoreError {
    /// A stable word for each kind of error.
    pub fn tag(self) -> &'static str {
        match self {
            StoreError::Refused => "refused",
            StoreError::Unknown => "unknown",
            StoreError::Full => "full",
        }
    }
}

/// Why a command was not taken. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// There is no connection.
    #[error("the bus has no connection: wait for Event::Connected")]
    Disconnected,
    /// The payload or value is too long.
    #[error("a message has at most {most} bytes, and this one has {bytes}: send it in parts")]
    TooLong {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// A limit is reached.
    #[error("the limit `{limit}` of the bus is reached: slow down, or raise it")]
    Limit {
        /// The limit's name in [`Limits`].
        limit: &'static str,
    },
    /// The number of a subscription, watch or ticket is in use, or does not exist.
    #[error("the number of a subscription, watch or ticket is in use already, or does not exist")]
    Number,
    /// The life of an entry is shorter than [`LEASE_MIN`], or no whole number of seconds.
    #[error("an entry lives for a whole number of seconds, at least 1")]
    Life,
}

impl CommandError {
    /// A stable word for each kind of error.
    pub fn tag(self) -> &'static str {
        match self {
            CommandError::Disconnected => "disconnected",
            CommandError::TooLong { .. } => "too_long",
            CommandError::Limit { .. } => "limit",
            CommandError::Number => "number",
            CommandError::Life => "life",
        }
    }
}

/// Limits of one member of a bus. Reaching each of them is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a payload or value. NATS allows 1 MiB for a whole message by default, and 256 bytes of it are for its head.
    pub payload_bytes: usize,
    /// Most events that wait for [`Bus::poll_event`]. Then messages are dropped, and a gap stands in their place.
    pub waiting_events: usize,
    /// Most bytes of payloads in these events.
    pub waiting_bytes: usize,
    /// Most subscriptions.
    pub subscriptions: usize,
    /// Most watches.
    pub watches: usize,
    /// Most keys of one watch. Twice as many changes of it wait at most.
    pub watched_keys: usize,
    /// Most requests and operations of the store that wait for an answer.
    pub open_tickets: usize,
    /// An operation of the store that has no answer after this time ends with [`StoreError::Unknown`]: its answer was lost on the
    /// way, or a network or a server stands still that nobody has noticed yet.
    pub answer_patience: Duration,
    /// Most things that wait to be sent.
    pub outgoing: usize,
    /// Subjects for which a publisher remembers its newest number, and pairs of publisher and subject for which a subscriber
    /// does. Of forgotten ones the next message counts as after a gap, and one that arrives again counts as new.
    pub remembered_subjects: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            payload_bytes: 512 << 10,
            waiting_events: 65_536,
            waiting_bytes: 64 << 20,
            subscriptions: 65_536,
            watches: 64,
            watched_keys: 1 << 20,
            open_tickets: 4_096,
            answer_patience: Duration::from_secs(1),
            outgoing: 65_536,
            remembered_subjects: 1 << 18,
        }
    }
}

impl Limits {
    /// Checks what each command says for itself, as every implementation has to.
    ///
    /// # Errors
    /// If a payload is too long, or a life is none.
    pub fn check(&self, command: &Command) -> Result<(), CommandError> {
        let payload = match command {
            Command::Publish { payload, .. } | Command::Request { payload, .. } | Command::Reply { payload, .. } => {
                payload
            }
            Command::Put { value, lives_for, .. } => {
                if lives_for.is_some_and(|life| life < LEASE_MIN || life.subsec_nanos() != 0) {
                    return Err(CommandError::Life);
                }
                value
            }
            _ => return Ok(()),
        };
        if payload.len() > self.payload_bytes {
            return Err(CommandError::TooLong { bytes: payload.len(), most: self.payload_bytes });
        }
        Ok(())
    }
}

/// The counts of a member since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages published.
    pub published: u64,
    /// Messages and requests handed out as events.
    pub delivered: u64,
    /// Gaps told.
    pub gaps: u64,
    /// Messages that arrived again and were dropped.
    pub duplicates: u64,
    /// Messages dropped because too much waited: this member is a slow consumer.
    pub dropped_slow: u64,
    /// Messages, requests, answers and entries that could not be read.
    pub malformed: u64,
    /// Commands refused.
    pub refused: u64,
    /// Requests and operations of the store without an answer in time.
    pub timed_out: u64,
    /// Connections lost.
    pub disconnects: u64,
    /// Subjects whose newest number was forgotten.
    pub forgotten_subjects: u64,
    /// Watches that were ended because of their keys, or because the store did not list them.
    pub failed_watches: u64,
    /// Connections to servers that do not fit, which were given up.
    pub unfit_servers: u64,
}

impl Counters {
    /// All counters with stable names, for metrics.
    pub fn named(&self) -> [(&'static str, u64); 12] {
        [
            ("published", self.published),
            ("delivered", self.delivered),
            ("gaps", self.gaps),
            ("duplicates", self.duplicates),
            ("dropped_slow", self.dropped_slow),
            ("malformed", self.malformed),
            ("refused", self.refused),
            ("timed_out", self.timed_out),
            ("disconnects", self.disconnects),
            ("forgotten_subjects", self.forgotten_subjects),
            ("failed_watches", self.failed_watches),
            ("unfit_servers", self.unfit_servers),
        ]
    }
}

/// A member's end of a bus.
///
/// Nothing blocks. In each pass of your loop: [`Bus::handle_timeout`], [`Bus::poll_event`] until `None`, then commands.
/// `now` is the member's own clock; it never decreases.
///
/// These hold in every implementation:
///
/// - The messages of one publisher on one subject arrive in order, each at most once. Nothing is said about the order between
///   subjects or publishers.
/// - A message may be missing. Then an [`Event::Gap`] comes before the next message of its publisher and subject, or within
///   seconds.
/// - Writes to the store have one order, that of their revisions. A write with an expectation happens only if the entry is
///   as expected at that moment.
/// - Every request and every operation of the store ends with one event. One whose answer is lost ends with
///   [`StoreError::Unknown`], after [`Limits::answer_patience`] at the latest: it may have happened, or may still happen.
pub trait Bus {
    /// Takes a command.
    ///
    /// # Errors
    /// If it was not taken. Nothing was done then, and no event follows.
    fn handle_command(&mut self, now: Time, command: Command) -> Result<(), CommandError>;

    /// Does what is due.
    fn handle_timeout(&mut self, now: Time);

    /// The next event.
    fn poll_event(&mut self, now: Time) -> Option<Event>;

    /// This member.
    fn member(&self) -> MemberId;

    /// The counters.
    fn counters(&self) -> Counters;

    /// Sends a message to all subscribers of a subject.
    ///
    /// # Errors
    /// If it was not taken.
    fn publish(&mut self, now: Time, subject: &Subject, payload: Bytes) -> Result<(), CommandError> {
        self.handle_command(now, Command::Publish { subject: subject.clone(), payload })
    }

    /// Receives the messages of all subjects of a pattern.
    ///
    /// # Errors
    /// If there are too many, or the number is in use.
    fn subscribe(&mut self, now: Time, subscription: SubscriptionId, pattern: &Pattern) -> Result<(), CommandError> {
        self.handle_command(now, Command::Subscribe { subscription, pattern: pattern.clone() })
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{:x}", self.0)
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ReplyTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{}", self.member, self.ticket.0)
    }
}
