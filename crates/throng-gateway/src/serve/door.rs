//! What the tasks of one door share, and the life of a connection from the door to its end.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use throng_channeld::{Compression, Dialect};
use throng_wire::Time;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, error};

use super::counters::{Reason, ShellCounters, SideCounters, add};
use super::event::{Event, Events};
use super::gate::Gate;
use super::intake::Intake;
use super::options::{DoorLimits, DoorOptions};
use super::outbox::{Ending, Queue};
use super::ration::Ration;
use super::record::Recorder;
use crate::engine::port::{EndCause, Key, Side};

/// The shell's only clock: microseconds since it was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        Time(self.0.elapsed().as_micros() as u64)
    }

    /// The same moment as the system has it.
    pub(crate) fn instant(self, time: Time) -> Instant {
        self.0 + Duration::from_micros(time.0)
    }
}

/// What all doors share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) events: Events,
    pub(crate) counters: Arc<ShellCounters>,
    /// What peers bring about is written down, in moderation.
    pub(crate) ration: Arc<Ration>,
    /// True as long as clients have to wait for a server to own the GLOBAL channel.
    pub(crate) waits_for_master: Arc<AtomicBool>,
    /// Records what clients say.
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// Turns true when nothing more is to be let in.
    pub(crate) closing: watch::Receiver<bool>,
    /// How long connections may take to end when the gateway does.
    pub(crate) drain: Duration,
    /// Somebody was cut off since.
    pub(crate) has_cut_off: Arc<AtomicBool>,
    /// Ends when the engine does.
    pub(crate) engine_end: watch::Receiver<()>,
    /// Held by every connection: when all are gone, the last of it is gone. Doors hold it weakly.
    pub(crate) alive: mpsc::WeakSender<()>,
}

/// One door.
pub(crate) struct Door {
    pub(crate) side: Side,
    limits: watch::Sender<Arc<DoorLimits>>,
    /// [`DoorLimits::queued_bytes`], for the queues: they look at it whenever something is sent.
    queue_limit_bytes: Arc<AtomicUsize>,
    gate: Mutex<Gate>,
    shared: Shared,
}

/// How a connection came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer closed it in an orderly way.
    PeerClosed,
    /// The transport failed.
    Lost,
    /// The peer did what it may not.
    Refused(Reason),
    /// The engine wanted it, and everything has gone out.
    Done,
    /// The gateway is going down.
    Gone,
}

impl Door {
    pub(crate) fn new(options: &DoorOptions, shared: Shared) -> Arc<Door> {
        let limits = Arc::new(options.limits.clone());
        let gate = Mutex::new(Gate::new(Arc::clone(&limits)));
        let queue_limit_bytes = Arc::new(AtomicUsize::new(limits.queued_bytes));
        Arc::new(Door { side: options.side, gate, limits: watch::Sender::new(limits), queue_limit_bytes, shared })
    }

    /// A door of no gateway.
    #[cfg(test)]
    pub(crate) fn alone(side: Side) -> Arc<Door> {
        let options = DoorOptions::new(side, super::options::Transport::Tcp, SocketAddr::from(([127, 0, 0, 1], 0)));
        let shared = Shared {
            clock: Clock::start(),
            events: super::event::events(0).0,
            counters: Arc::default(),
            ration: Arc::default(),
            waits_for_master: Arc::default(),
            recorder: None,
            closing: watch::channel(false).1,
            drain: Duration::ZERO,
            has_cut_off: Arc::default(),
            engine_end: watch::channel(()).1,
            alive: mpsc::channel(1).0.downgrade(),
        };
        Door::new(&options, shared)
    }

    /// What a peer may do, as of now.
    pub(crate) fn limits(&self) -> Arc<DoorLimits> {
        Arc::clone(&self.limits.borrow())
    }

    /// Other limits from now on, for those who are inside too.
    pub(crate) fn set_limits(&self, limits: DoorLimits) {
        self.queue_limit_bytes.store(limits.queued_bytes, Ordering::Relaxed);
        let limits = Arc::new(limits);
        self.gate().set_limits(Arc::clone(&limits));
        self.limits.send_replace(limits);
    }

    /// The same for who wants to know when it changes.
    pub(crate) fn follow_limits(&self) -> watch::Receiver<Arc<DoorLimits>> {
        self.limits.subscribe()
    }

    pub(crate) fn counters(&self) -> &SideCounters {
        self.shared.counters.of(self.side)
    }

    pub(crate) fn events(&self) -> &Events {
        &self.shared.events
    }

    pub(crate) fn now(&self) -> Time {
        self.shared.clock.now()
    }

    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.shared.clock.instant(time)
    }

    /// What records the sessions of this door.
    pub(crate) fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.shared.recorder.as_ref().filter(|_| self.side == Side::Client)
    }

    /// Waits until the engine has ended, which is a failure as long as there are connections.
    async fn engine_end(&self) {
        let _ = self.shared.engine_end.clone().changed().await;
    }

    /// Whether the gateway is going down: then nobody who is ended is at fault.
    fn is_closing(&self) -> bool {
        *self.shared.closing.borrow()
    }

    /// How long the last bytes of a connection may take. When the gateway ends, as long as that may take.
    fn farewell(&self) -> Duration {
        match self.is_closing() {
            true => self.shared.drain,
            false => self.limits().flush,
        }
    }

    /// Somebody may lack something. That is noted while the gateway ends.
    fn note_cut_off(&self) {
        if self.is_closing() {
            self.shared.has_cut_off.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.shared.closing.clone()
    }

    /// Lets a peer through, unless there are too many or it misbehaved.
    pub(crate) fn enter(self: &Arc<Door>, address: SocketAddr) -> Option<Pass> {
        // There is none any more once the gateway waits for the last to leave.
        let alive = self.shared.alive.upgrade()?;
        if self.side == Side::Client && self.shared.waits_for_master.load(Ordering::Relaxed) {
            self.refuse(address, Reason::NoMaster);
            return None;
        }
        match self.gate().enter(self.now(), address.ip()) {
            Ok(()) => {
                add(&self.counters().accepted, 1);
                Some(Pass { door: Arc::clone(self), address, _alive: alive })
            }
            Err(reason) => {
                self.refuse(address, reason);
                None
            }
        }
    }

    /// Counts what was refused, and writes it down.
    pub(crate) fn refuse(&self, address: SocketAddr, reason: Reason) {
        self.counters().refuse(reason);
        self.shared.ration.refused(self.now(), (self.side, address), reason.tag(), "");
    }

    /// A connection could not be accepted: the machine lacks something, most often file descriptors.
    pub(crate) fn fail_to_accept(&self, cause: &io::Error) {
        self.counters().refuse(Reason::Accept);
        if let Some(left_out) = self.shared.ration.take(self.now(), Reason::Accept.tag()) {
            error!(side = self.side.tag(), %cause, left_out, "a connection cannot be accepted");
        }
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that was let through the door. Its place is free again when this is dropped.
pub(crate) struct Pass {
    pub(crate) door: Arc<Door>,
    pub(crate) address: SocketAddr,
    _alive: mpsc::Sender<()>,
}

impl Pass {
    /// Counts what the peer did, and remembers it if it was more than bad luck.
    pub(crate) fn refuse(&self, reason: Reason) {
        self.door.refuse(self.address, reason);
        if matches!(reason, Reason::FlushLate | Reason::TooSlow) {
            self.door.note_cut_off();
        }
        if reason.is_strike() {
            self.door.gate().strike(self.door.now(), self.address.ip());
        }
    }

    /// Announces the connection to the engine.
    pub(crate) async fn open(self) -> Option<Opened> {
        let queue = Queue::new(Arc::clone(&self.door.queue_limit_bytes));
        let (reply, answer) = oneshot::channel();
        let event = Event::Open { side: self.door.side, address: self.address, queue: Arc::clone(&queue), reply };
        self.door.events().send(event).ok()?;
        match answer.await {
            Ok(Ok(key)) => {
                debug!(side = self.door.side.tag(), address = %self.address, %key, "a connection has come");
                Some(Opened { pass: self, key, queue, manner: Arc::default() })
            }
            Ok(Err(_)) => {
                self.refuse(Reason::NoRoom);
                None
            }
            Err(_) => None,
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        add(&self.door.counters().closed, 1);
        self.door.gate().leave(self.address.ip());
    }
}

/// A connection that the engine knows.
pub(crate) struct Opened {
    pub(crate) pass: Pass,
    pub(crate) key: Key,
    pub(crate) queue: Arc<Queue>,
    pub(crate) manner: Arc<Manner>,
}

impl Opened {
    pub(crate) fn intake(&self) -> Intake {
        Intake::new(&self.pass, (self.key, Arc::clone(&self.queue)), Arc::clone(&self.manner))
    }

    /// Reads and writes until one of the two ends, or the engine wants an end; then tells the engine.
    ///
    /// Both are pinned by the caller, who drops them afterwards: the end is on record then, and with them goes the socket,
    /// and the peer notices. Were they handed over, the task would have room for each of them three times.
    pub(crate) async fn run(
        self,
        mut read: Pin<&mut impl Future<Output = End>>,
        mut write: Pin<&mut impl Future<Output = End>>,
    ) -> Ended {
        let end = tokio::select! {
            end = &mut read => end,
            end = &mut write => end,
            end = self.ending() => end,
            () = self.pass.door.engine_end() => End::Gone,
        };
        // The writer may have seen first that there is nothing more to write.
        let end = self.queue.ended_now().map_or(end, End::Refused);
        match end {
            End::Refused(reason) => self.pass.refuse(reason),
            // The engine turned away a client before it had said who it is, or after it had guessed too often.
            End::Done
                if self.pass.door.side == Side::Client && !self.queue.is_admitted() && !self.pass.door.is_closing() =>
            {
                self.pass.refuse(Reason::Stranger);
            }
            _ => {}
        }
        let cause = match end {
            End::PeerClosed => EndCause::PeerClosed,
            End::Done | End::Gone | End::Refused(Reason::FlushLate) => EndCause::Ours,
            End::Refused(Reason::TooSlow) => EndCause::Stalled,
            End::Lost | End::Refused(_) => EndCause::Lost,
        };
        debug!(side = self.pass.door.side.tag(), address = %self.pass.address, ?end, "a connection has ended");
        let _ = self.pass.door.events().send(Event::Closed { key: self.key, cause });
        // The engine holds the queue a little longer; the peer need not wait for that.
        drop(self.queue.take_socket());
        Ended { pass: self.pass, end }
    }

    /// Ends a connection whose peer does not take the last bytes, or too few of them.
    async fn ending(&self) -> End {
        if self.queue.ending().await == Ending::Flush {
            tokio::select! {
                () = sleep(self.pass.door.farewell()) => return End::Refused(Reason::FlushLate),
                reason = self.queue.ending_now() => return End::Refused(reason),
            }
        }
        End::Refused(self.queue.ending_now().await)
    }
}

/// A connection that is over for the engine.
pub(crate) struct Ended {
    pass: Pass,
    end: End,
}

impl Ended {
    /// Who says nothing for so long is not waited for.
    pub(crate) fn patience(&self) -> Duration {
        self.pass.door.limits().flush
    }

    /// Waits until the peer has closed its end as well, after everything and our own end went out. `discard` reads what
    /// the peer still sends, and ends with it. For a socket that is closed while input waits in it, or comes later, is
    /// reset, and what the kernel has not delivered by then is lost (RFC 1122, 4.2.2.13).
    pub(crate) async fn linger(&self, discard: impl Future<Output = ()>) {
        if self.end == End::Done {
            let _ = timeout(self.pass.door.farewell(), discard).await;
        }
    }
}

/// How a peer writes its frames, and so how it is written to: told by what is read, used by what is written.
#[derive(Debug, Default)]
pub(crate) struct Manner {
    dialect: AtomicU8,
    compression: AtomicU8,
}

impl Manner {
    pub(crate) fn learn(&self, dialect: Dialect, compression: Compression) {
        self.dialect.store(dialect as u8, Ordering::Relaxed);
        if compression != Compression::None {
            self.compression.store(compression.to_byte(), Ordering::Relaxed);
        }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        const FIXED: u8 = Dialect::Fixed as u8;
        const LEGACY: u8 = Dialect::Legacy as u8;
        match self.dialect.load(Ordering::Relaxed) {
            FIXED => Dialect::Fixed,
            LEGACY => Dialect::Legacy,
            _ => Dialect::Undecided,
        }
    }

    pub(crate) fn compression(&self) -> Compression {
        Compression::from_byte(self.compression.load(Ordering::Relaxed))
    }
}
