//! Shared data of one door's tasks, and the life of a connection from its acceptance to its end.

use std::io;
use std::net::{IpAddr, SocketAddr};
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
use super::gate::{Ban, Claim, Gate};
use super::intake::Intake;
use super::memory::{Holding, Memory, Part};
use super::options::{DoorLimits, DoorOptions, Transport};
use super::outbox::{Ending, Queue};
use super::rate::Throttle;
use super::ration::{Party, Ration};
use super::record::Recorder;
use throng_gateway_engine::port::{EndCause, Key, Side};

/// The shell's only clock: microseconds since it was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    /// Microseconds, of which some pass with each look: for tests.
    #[cfg(test)]
    virtual_time: Option<(&'static std::sync::atomic::AtomicU64, u64)>,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            began: Instant::now(),
            #[cfg(test)]
            virtual_time: None,
        }
    }

    /// A clock that goes on by `step_us` whenever somebody looks at it.
    #[cfg(test)]
    pub(crate) fn stepping(step_us: u64) -> Clock {
        let micros = Box::leak(Box::new(std::sync::atomic::AtomicU64::new(0)));
        Clock { began: Instant::now(), virtual_time: Some((micros, step_us)) }
    }

    pub(crate) fn now(self) -> Time {
        #[cfg(test)]
        if let Some((micros, step_us)) = self.virtual_time {
            return Time(micros.fetch_add(step_us, Ordering::Relaxed) + step_us);
        }
        Time(self.began.elapsed().as_micros() as u64)
    }

    /// The same moment as the system has it.
    pub(crate) fn instant(self, time: Time) -> Instant {
        self.began + Duration::from_micros(time.0)
    }
}

/// Shared data of all doors.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    pub(crate) events: Events,
    pub(crate) counters: Arc<ShellCounters>,
    /// Events caused by peers are logged, at a limited rate.
    pub(crate) ration: Arc<Ration>,
    /// True as long as clients have to wait for a server to own the GLOBAL channel.
    pub(crate) waits_for_master: Arc<AtomicBool>,
    /// Records what clients say.
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// How fast clients come, whatever their addresses.
    pub(crate) arrivals: Arc<Throttle>,
    /// How fast encrypted connections of clients are begun.
    pub(crate) handshakes: Arc<Throttle>,
    /// Becomes true when no more connections are accepted.
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
    /// The memory of a silent connection.
    connection_bytes: usize,
    /// The kernel's memory for a peer that does not read.
    kernel_bytes: AtomicUsize,
    gate: Mutex<Gate>,
    shared: Shared,
}

/// The memory of an open, silent connection, as measured by a test ("memory" of the command's tests): its task, the
/// records of the engine and the socket's driver, and the buffers of its transport.
fn connection_bytes(options: &DoorOptions) -> usize {
    let transport = match &options.transport {
        Transport::Tcp => 9 << 10,
        Transport::WebSocket(_) => 12 << 10,
        Transport::Kcp => 16 << 10,
        Transport::Link(_) => 15 << 10,
    };
    transport + if options.tls.is_some() { 18 << 10 } else { 0 }
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

impl End {
    /// A stable name for logs.
    fn tag(self) -> &'static str {
        match self {
            End::PeerClosed => "closed_by_peer",
            End::Lost => "lost",
            End::Refused(reason) => reason.tag(),
            End::Done => "closed_by_us",
            End::Gone => "shut_down",
        }
    }
}

impl Door {
    pub(crate) fn new(options: &DoorOptions, shared: Shared) -> Arc<Door> {
        let limits = Arc::new(options.limits.clone());
        let gate = Mutex::new(Gate::new(Arc::clone(&limits)));
        let queue_limit_bytes = Arc::new(AtomicUsize::new(limits.queued_bytes));
        let connection_bytes = connection_bytes(options);
        let kernel_bytes = AtomicUsize::new(0);
        let limits = watch::Sender::new(limits);
        Arc::new(Door { side: options.side, gate, limits, queue_limit_bytes, connection_bytes, kernel_bytes, shared })
    }

    /// A door of no gateway.
    #[cfg(test)]
    pub(crate) fn alone(side: Side) -> Arc<Door> {
        let options = DoorOptions::new(side, super::options::Transport::Tcp, SocketAddr::from(([127, 0, 0, 1], 0)));
        let shared = Shared {
            clock: Clock::start(),
            events: super::event::events(0, Arc::default()).0,
            counters: Arc::default(),
            ration: Arc::default(),
            waits_for_master: Arc::default(),
            recorder: None,
            arrivals: Arc::new(Throttle::new()),
            handshakes: Arc::new(Throttle::new()),
            closing: watch::channel(false).1,
            drain: Duration::ZERO,
            has_cut_off: Arc::default(),
            engine_end: watch::channel(()).1,
            alive: mpsc::channel(1).0.downgrade(),
        };
        Door::new(&options, shared)
    }

    /// The present limits of a peer.
    pub(crate) fn limits(&self) -> Arc<DoorLimits> {
        Arc::clone(&self.limits.borrow())
    }

    /// Other limits from now on, for existing connections too.
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

    /// The kernel's memory for a peer that does not read: known once there is a socket.
    pub(crate) fn kernel_bytes(&self) -> usize {
        self.kernel_bytes.load(Ordering::Relaxed)
    }

    /// Notes that.
    pub(crate) fn set_kernel_bytes(&self, bytes: usize) {
        self.kernel_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The budget of memory.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.shared.counters.memory
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

    /// Records the sessions of this door.
    pub(crate) fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.shared.recorder.as_ref().filter(|_| self.side == Side::Client)
    }

    /// Waits until the engine has ended, which is a failure as long as there are connections.
    async fn engine_end(&self) {
        let _ = self.shared.engine_end.clone().changed().await;
    }

    /// Whether the gateway is stopping: then no closed peer is at fault.
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
    pub(crate) fn enter(self: &Arc<Door>, address: SocketAddr) -> Result<Pass, Reason> {
        let mut pass = self.enter_unnamed(address)?;
        pass.claim(address)?;
        Ok(pass)
    }

    /// The same for a peer that tries again when clients come too fast.
    pub(crate) fn admit(self: &Arc<Door>, address: SocketAddr) -> Result<Pass, Reason> {
        let (now, per_s) = (self.now(), self.limits().all_arrivals_per_s);
        if self.side == Side::Server {
            return self.enter(address);
        }
        // A peer that is refused for another reason takes no turn of all addresses, however often it tries.
        if !self.shared.arrivals.has_turn(now, per_s) {
            self.refuse(&Party::of(self.side, address), Reason::Busy);
            return Err(Reason::Busy);
        }
        let pass = self.enter(address)?;
        self.shared.arrivals.take(now, per_s, Duration::MAX);
        Ok(pass)
    }

    /// The same for a proxy, which will say for whom it speaks.
    pub(crate) fn enter_unnamed(self: &Arc<Door>, address: SocketAddr) -> Result<Pass, Reason> {
        // There is none any more once the gateway waits for the last to leave.
        let alive = self.shared.alive.upgrade().ok_or(Reason::NoRoom)?;
        let waits_for_master = self.side == Side::Client && self.shared.waits_for_master.load(Ordering::Relaxed);
        let entered = match self.memory().has_room(self.side) {
            _ if waits_for_master => Err(Reason::NoMaster),
            false => Err(Reason::NoMemory),
            true => self.gate().enter(),
        };
        match entered {
            Ok(()) => {
                let holding = Holding::new(self.memory(), Part::Connections, self.connection_bytes);
                let door = Arc::clone(self);
                Ok(Pass { door, address, claim: None, is_accepted: false, _holding: holding, _alive: alive })
            }
            Err(reason) => {
                self.refuse(&Party::of(self.side, address), reason);
                Err(reason)
            }
        }
    }

    /// How long the next connection is not to be accepted, because clients come too fast.
    pub(crate) fn arrival_pause(&self) -> Duration {
        match self.side {
            Side::Server => Duration::ZERO,
            Side::Client => {
                let per_s = self.limits().all_arrivals_per_s;
                self.shared.arrivals.take(self.now(), per_s, Duration::MAX).unwrap_or_default()
            }
        }
    }

    /// How long an encrypted handshake has to wait for its turn. `None`: longer than it may take.
    pub(crate) fn handshake_pause(&self) -> Option<Duration> {
        let limits = self.limits();
        match self.side {
            Side::Server => Some(Duration::ZERO),
            Side::Client => self.shared.handshakes.take(self.now(), limits.handshakes_per_s, limits.handshake / 2),
        }
    }

    /// Whether there is room for another connection.
    pub(crate) fn has_room(&self) -> bool {
        self.gate().has_room()
    }

    /// The banned addresses, up to `limit`.
    pub(crate) fn bans(&self, limit: usize) -> Vec<Ban> {
        self.gate().bans(self.now()).take(limit).collect()
    }

    /// The number of banned addresses.
    pub(crate) fn ban_count(&self) -> usize {
        self.gate().ban_count(self.now())
    }

    /// Forgives an address. Returns whether there was anything to forgive.
    pub(crate) fn unban(&self, address: IpAddr) -> bool {
        self.gate().unban(address)
    }

    /// Counts what was refused, and writes it down.
    pub(crate) fn refuse(&self, party: &Party<'_>, reason: Reason) {
        self.counters().refuse(reason);
        self.shared.ration.refused(self.now(), party, reason.tag());
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

/// A connection that was let through the door. It no longer counts when this is dropped.
pub(crate) struct Pass {
    pub(crate) door: Arc<Door>,
    /// The client's, if a proxy said it.
    pub(crate) address: SocketAddr,
    claim: Option<Claim>,
    /// It counts as accepted.
    is_accepted: bool,
    /// Its memory.
    _holding: Holding,
    _alive: mpsc::Sender<()>,
}

impl Pass {
    /// Counts the connection for its address. Fails if the address is banned or may have no more connections. A connection
    /// that a proxy opens for itself counts for no address.
    pub(crate) fn claim(&mut self, address: SocketAddr) -> Result<(), Reason> {
        self.address = address;
        let claimed = self.door.gate().claim(self.door.now(), address.ip());
        match claimed {
            Ok(claim) => {
                self.claim = claim;
                self.accept();
                Ok(())
            }
            Err(reason) => {
                self.refuse(reason);
                Err(reason)
            }
        }
    }

    /// Counts it as accepted.
    pub(crate) fn accept(&mut self) {
        self.is_accepted = true;
        add(&self.door.counters().accepted, 1);
    }

    /// Counts the fault of a peer that has not logged in, and remembers it if it was more than bad luck.
    pub(crate) fn refuse(&self, reason: Reason) {
        self.refuse_as(&Party::of(self.door.side, self.address), reason, false);
    }

    fn refuse_as(&self, party: &Party<'_>, reason: Reason, is_member: bool) {
        self.door.refuse(party, reason);
        if matches!(reason, Reason::FlushLate | Reason::TooSlow) {
            self.door.note_cut_off();
        }
        if reason.is_strike() {
            let now = self.door.now();
            let is_shut_out = self.door.gate().strike(now, self.claim.as_ref(), is_member);
            if is_shut_out {
                self.door.shared.ration.shut_out(now, party);
            }
        }
    }

    /// Announces the connection to the engine.
    pub(crate) async fn open(self) -> Option<Opened> {
        let members = self.claim.as_ref().map(|claim| Arc::clone(&claim.members));
        let queue = Queue::new(
            Arc::clone(&self.door.queue_limit_bytes),
            members,
            (self.door.memory(), self.door.kernel_bytes()),
        );
        let (reply, answer) = oneshot::channel();
        let event = Event::Open { side: self.door.side, address: self.address, queue: Arc::clone(&queue), reply };
        self.door.events().send(event).ok()?;
        match answer.await {
            Ok(Ok((key, connection))) => {
                debug!(side = self.door.side.tag(), address = %self.address, connection, "a connection has come");
                Some(Opened { pass: self, key, connection, queue, manner: Arc::default() })
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
        if self.is_accepted {
            add(&self.door.counters().closed, 1);
        }
        self.door.gate().leave(self.claim.as_ref());
    }
}

/// A connection that the engine knows.
pub(crate) struct Opened {
    pub(crate) pass: Pass,
    pub(crate) key: Key,
    /// The number under which the protocol knows it.
    pub(crate) connection: u32,
    pub(crate) queue: Arc<Queue>,
    pub(crate) manner: Arc<Manner>,
}

impl Opened {
    pub(crate) fn intake(&self) -> Intake {
        Intake::new(self)
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
        let is_stranger = self.pass.door.side == Side::Client && !self.queue.is_admitted();
        let reason = match end {
            // It has waited for us, or for a provider that could not decide.
            End::Refused(Reason::Stranger) | End::Done if is_stranger && self.queue.is_excused() => None,
            End::Refused(reason) => Some(reason),
            // The engine closed a client before login, or after too many guesses.
            End::Done if is_stranger && !self.pass.door.is_closing() => Some(Reason::Stranger),
            // Or it left in time, to guess again with another connection. To mistype once is no crime.
            End::PeerClosed | End::Lost if is_stranger && self.queue.failed_logins() > 1 => Some(Reason::Stranger),
            _ => None,
        };
        if let Some(reason) = reason {
            let party =
                Party { connection: Some(self.connection), ..Party::of(self.pass.door.side, self.pass.address) };
            self.pass.refuse_as(&party, reason, self.queue.is_admitted());
        }
        let cause = match end {
            End::PeerClosed => EndCause::PeerClosed,
            End::Done | End::Gone | End::Refused(Reason::FlushLate) => EndCause::Ours,
            End::Refused(Reason::TooSlow) => EndCause::Stalled,
            End::Lost | End::Refused(_) => EndCause::Lost,
        };
        let _ = self.pass.door.events().send(Event::Closed {
            key: self.key,
            cause,
            reason: reason.map_or(end.tag(), Reason::tag),
        });
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
    /// How long a silent peer is waited for.
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
