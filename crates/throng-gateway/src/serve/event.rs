//! The way from the tasks to the engine's thread: a queue that is bounded by the bytes in it.
//!
//! Tasks wait for room, the engine's thread waits for events or for its next deadline. Room is counted in units of a
//! kibibyte; an event gives its room back when the engine has dealt with it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use smallvec::SmallVec;
use throng_channeld::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::auth::{Answer, DeskLimits, Provider};
use crate::settings::Settings;
use throng_gateway_engine::port::{EndCause, Key, Side};
use throng_gateway_engine::{BlockedName, Counters, Occupancy, Refusal, Slice, Subject};

use super::memory::{Memory, Part};
use super::outbox::Queue;

const UNIT_BYTES: usize = 1 << 10;

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
    /// A connection sent messages.
    Messages { key: Key, batch: Batch, _room: OwnedSemaphorePermit },
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
    /// Close all connections and accept no more.
    ShutDown,
    /// The engine's thread is to end.
    End,
}

impl Event {
    /// Messages of peers in it.
    pub(crate) fn message_count(&self) -> usize {
        match self {
            Event::Messages { batch, .. } => batch.len(),
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
    /// Banned addresses.
    pub bans: usize,
}

/// The tasks' end.
#[derive(Clone)]
pub(crate) struct Events {
    sender: Sender<Event>,
    room: Arc<Semaphore>,
    units: u32,
    memory: Arc<Memory>,
}

/// The engine's thread has ended: the gateway is going down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// A queue that holds `limit_bytes` of messages.
pub(crate) fn events(limit_bytes: usize, memory: Arc<Memory>) -> (Events, Inlet) {
    let (sender, receiver) = channel();
    let units = (limit_bytes / UNIT_BYTES).clamp(256, Semaphore::MAX_PERMITS.min(u32::MAX as usize)) as u32;
    let events = Events { sender, room: Arc::new(Semaphore::new(units as usize)), units, memory };
    (events, Inlet { receiver })
}

impl Events {
    /// Hands over messages, once there is room for them. `bytes` is what they take.
    pub(crate) async fn messages(&self, key: Key, batch: Batch, bytes: usize) -> Result<(), Gone> {
        let units = u32::try_from(1 + bytes / UNIT_BYTES).unwrap_or(u32::MAX).min(self.units);
        let room = Arc::clone(&self.room).acquire_many_owned(units).await.map_err(|_| Gone)?;
        self.count_waiting();
        self.send(Event::Messages { key, batch, _room: room })
    }

    /// Tells how much waits for the engine.
    pub(crate) fn count_waiting(&self) {
        let units = (self.units as usize).saturating_sub(self.room.available_permits());
        self.memory.set_part(Part::Waiting, (units * UNIT_BYTES) as u64);
    }

    /// Hands over anything else. There are never more of these than connections.
    pub(crate) fn send(&self, event: Event) -> Result<(), Gone> {
        self.sender.send(event).map_err(|_| Gone)
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
