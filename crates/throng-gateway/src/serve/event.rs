//! The ways from the tasks to the engines' threads: a queue for each engine. All of them together are bounded by the
//! bytes in them.
//!
//! Tasks wait for room, an engine's thread waits for events or for its next deadline. Room is counted in units of a
//! kibibyte; an event gives its room back when the engine has dealt with it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use throng_channeld::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::auth::{Answer, DeskLimits, Provider};
use crate::recent::BanCounts;
use crate::settings::Settings;
use throng_gateway_engine::edge::EdgeKey;
use throng_gateway_engine::port::{EndCause, Key, Side};
use throng_gateway_engine::shards::Session;
use throng_gateway_engine::{Ban, BlockedName, Counters, Member, Occupancy, Refusal, Slice, Subject};

use super::edge_path::PathOutbox;
use super::memory::{Memory, Part};
use super::outbox::Queue;
use super::part::{LastParts, PartRequest};

const UNIT_BYTES: usize = 1 << 10;

/// A message among others, about.
const MESSAGE_BYTES: usize = 128;

/// Messages of one read. Most reads bring one.
pub(crate) type Batch = SmallVec<[Message; 2]>;

/// Something that has come.
pub(crate) enum Event {
    /// A connection came through a door.
    /// Its key and its number in the protocol are the answer.
    Open {
        side: Side,
        address: std::net::SocketAddr,
        queue: Arc<Queue>,
        reply: oneshot::Sender<Result<(Key, u32), Refusal>>,
    },
    /// A connection sent messages; `is_sorted` if its session has sent them to this engine. Its key is always that in the
    /// first engine.
    Messages { key: Key, batch: Batch, is_sorted: bool, _room: OwnedSemaphorePermit },
    /// To the first engine: all that a connection said before is in front of this. Its session is the answer.
    Fence { key: Key, reply: oneshot::Sender<Option<Session>> },
    /// To the first engine: a connection said what its state machine forbids.
    Violated { key: Key },
    /// To the others: a connection has logged in.
    Join { member: Arc<Member>, queue: Arc<Queue> },
    /// To the others: what a connection said before it had a session.
    Misrouted { key: Key, message: Message },
    /// To the others: this connection owns GLOBAL.
    Master(Option<u32>),
    /// To the first engine: a client misbehaved at another one.
    Ban(Ban),
    /// Some of what a connection was sent on the way for what may get lost was lost. At most one for each connection,
    /// until the engine has looked.
    Settled { key: Key },
    /// A connection has ended; `reason` is a stable name of why.
    Closed { key: Key, cause: EndCause, reason: &'static str },
    /// The authentication provider has answered.
    Answer(Answer),
    /// Somebody wants to know how things are.
    Report(oneshot::Sender<Report>),
    /// An operator looks at something, or wants something.
    Admin(Ask),
    /// The settings have changed.
    Reload(Box<Reload>),
    /// To the others: the same.
    Settings(Arc<Settings>),
    /// A part of a snapshot is wanted.
    Snapshot(PartRequest),
    /// An edge has come. Its key and the engine's tick are the answer; none if it comes too late.
    EdgeOpened { outbox: PathOutbox, reply: oneshot::Sender<Option<(EdgeKey, u64)>> },
    /// An edge says something.
    EdgeSaid { key: EdgeKey, frame: Bytes, _room: OwnedSemaphorePermit },
    /// The path to an edge is over.
    EdgeClosed { key: EdgeKey },
    /// To an edge: there is a path to its home, which is at this tick.
    Linked { tick: u64, outbox: PathOutbox },
    /// To an edge: its home says something.
    HomeSaid { frame: Bytes, _room: OwnedSemaphorePermit },
    /// To an edge: the path to its home is over.
    Unlinked,
    /// To an edge: its home is to let the clients go. Answered when it has, or when there is no path to it.
    Leave(oneshot::Sender<()>),
    /// Close all connections and accept no more; then write down what there is.
    ShutDown(Option<LastParts>),
    /// To the others, before that: send everybody the newest state, and write down what there is.
    LastFanOut(oneshot::Sender<()>, Option<LastParts>),
    /// The engine's thread is to end.
    End,
}

impl Event {
    /// Messages of peers in it.
    pub(crate) fn message_count(&self) -> usize {
        match self {
            Event::Messages { batch, .. } => batch.len(),
            Event::Misrouted { .. } => 1,
            Event::EdgeSaid { frame, .. } | Event::HomeSaid { frame, .. } => 1 + frame.len() / MESSAGE_BYTES,
            _ => 0,
        }
    }
}

/// Addresses that have guessed too often, and the rest of their bans.
pub(crate) type Guessers = Vec<(IpAddr, Duration)>;

/// A question to the engine's thread.
pub(crate) enum Ask {
    /// Rows of a table.
    Slice { subject: Subject, from: usize, rows: usize, reply: oneshot::Sender<Slice> },
    /// Bans: addresses that have guessed too often, and names.
    Bans { limit: usize, reply: oneshot::Sender<(Guessers, Vec<BlockedName>)> },
    /// End a connection.
    Kick { connection: u32, reply: oneshot::Sender<bool> },
    /// Forgive an address that has guessed too often.
    UnbanAddress { address: IpAddr, reply: oneshot::Sender<bool> },
    /// Forgive a name.
    UnbanName { side: Side, player: String, reply: oneshot::Sender<bool> },
}

/// Changes for the engine's thread.
pub(crate) struct Reload {
    pub(crate) settings: Arc<Settings>,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) desk: DeskLimits,
}

/// How things are in the engine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The work so far.
    pub counters: Counters,
    /// The present numbers.
    pub occupancy: Occupancy,
    /// Logins that are being decided, and those that wait for that.
    pub auth_pending: [usize; 2],
    /// Bans of addresses that misbehaved. Only the pages count them: the doors have them.
    pub banned_addresses: BanCounts,
    /// Bans of players that guessed too often from an address.
    pub banned_guessers: BanCounts,
    /// Bans of names.
    pub banned_names: BanCounts,
    /// Edges, and the clients that they have.
    pub edges: [usize; 2],
    /// Whether there is a path to the home; `None` if this is no edge.
    pub is_linked: Option<bool>,
}

impl Report {
    /// Adds the figures of another engine.
    pub(crate) fn add(&mut self, other: &Report) {
        self.counters.add(&other.counters);
        self.occupancy.add(&other.occupancy);
    }
}

/// The tasks' end.
#[derive(Clone)]
pub(crate) struct Events {
    /// By engine.
    senders: Arc<[Sender<Event>]>,
    room: Arc<Semaphore>,
    units: u32,
    memory: Arc<Memory>,
}

/// Where messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    /// To the first engine, which passes on what is for others.
    First,
    /// To the engine that the connection's session has named.
    Sorted(u32),
}

/// The engine's thread has ended: the gateway is going down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// Queues for so many engines that hold `limit_bytes` of messages together.
pub(crate) fn events(limit_bytes: usize, memory: Arc<Memory>, engines: usize) -> (Events, Vec<Inlet>) {
    let (senders, inlets): (Vec<_>, Vec<_>) =
        (0..engines.max(1)).map(|_| channel()).map(|(sender, receiver)| (sender, Inlet { receiver })).unzip();
    let units = (limit_bytes / UNIT_BYTES).clamp(256, Semaphore::MAX_PERMITS.min(u32::MAX as usize)) as u32;
    let events = Events { senders: senders.into(), room: Arc::new(Semaphore::new(units as usize)), units, memory };
    (events, inlets)
}

impl Events {
    /// Number of engines.
    pub(crate) fn engine_count(&self) -> usize {
        self.senders.len()
    }

    /// Hands messages over to the engine that `to` names, once there is room for them. `bytes` is what they take.
    pub(crate) async fn messages(&self, to: To, key: Key, (batch, bytes): (Batch, usize)) -> Result<(), Gone> {
        let room = self.room(bytes).await?;
        let (engine, is_sorted) = match to {
            To::First => (0, false),
            To::Sorted(engine) => (engine as usize, true),
        };
        self.send_to(engine, Event::Messages { key, batch, is_sorted, _room: room })
    }

    /// Waits for room for so many bytes.
    pub(crate) async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Gone> {
        let units = u32::try_from(1 + bytes / UNIT_BYTES).unwrap_or(u32::MAX).min(self.units);
        let room = Arc::clone(&self.room).acquire_many_owned(units).await.map_err(|_| Gone)?;
        self.count_waiting();
        Ok(room)
    }

    /// Tells how much waits for the engine.
    pub(crate) fn count_waiting(&self) {
        let units = (self.units as usize).saturating_sub(self.room.available_permits());
        self.memory.set_part(Part::Waiting, (units * UNIT_BYTES) as u64);
    }

    /// Hands anything else over to the first engine. There are never more of these than connections.
    pub(crate) fn send(&self, event: Event) -> Result<(), Gone> {
        self.send_to(0, event)
    }

    /// The same for any engine.
    pub(crate) fn send_to(&self, engine: usize, event: Event) -> Result<(), Gone> {
        self.senders.get(engine).ok_or(Gone)?.send(event).map_err(|_| Gone)
    }

    /// The same for each engine but the first.
    pub(crate) fn send_to_others(&self, event: impl Fn() -> Event) {
        // One that has ended takes the gateway with it.
        self.senders.iter().skip(1).for_each(|sender| drop(sender.send(event())));
    }

    /// The answers of all engines, the first one first.
    pub(crate) fn ask_all<T>(&self, ask: impl Fn(oneshot::Sender<T>) -> Event) -> Vec<oneshot::Receiver<T>> {
        let ask_one = |sender: &Sender<Event>| {
            let (reply, answer) = oneshot::channel();
            drop(sender.send(ask(reply)));
            answer
        };
        self.senders.iter().map(ask_one).collect()
    }
}

/// The engine's end.
pub(crate) struct Inlet {
    receiver: Receiver<Event>,
}

impl Inlet {
    /// The next event, or `None` when `wait` is over. Without `wait` it waits for an event.
    pub(crate) fn wait(&self, wait: Option<Duration>) -> Result<Option<Event>, Gone> {
        let event = match wait {
            Some(wait) => self.receiver.recv_timeout(wait),
            None => self.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match event {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Gone),
        }
    }

    /// The next event, if it has come already.
    pub(crate) fn next(&self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn what_waits_for_all_engines_together_is_bounded_and_who_has_no_room_waits() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let memory = Arc::<Memory>::default();
        let (events, inlets) = events(256 * UNIT_BYTES, Arc::clone(&memory), 2);
        let key = Key { index: 1, generation: 1 };
        runtime.block_on(async {
            // Half of the room each, and nothing is left for either.
            for engine in [0, 1] {
                events.messages(To::Sorted(engine), key, (Batch::new(), 127 * UNIT_BYTES)).await.expect("it lives");
            }
            assert_eq!(memory.part_bytes(Part::Waiting), 256 << 10);
            let mut more = std::pin::pin!(events.messages(To::Sorted(1), key, (Batch::new(), 1)));
            assert!(timeout(Duration::from_millis(20), &mut more).await.is_err(), "there is no room");
            drop(inlets[0].next().expect("the first batch"));
            more.await.expect("the other engine's room is everybody's");
        });
    }
}
