//! Shared data of one door's tasks: limits, counters, bans, and whether there is room.

use std::io;
use std::net::IpAddr;
#[cfg(test)]
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use throng_gateway_engine::port::Side;
use throng_wire::Time;
use tokio::sync::{mpsc, watch};
use tracing::error;

use super::clock::Clock;
use super::counters::{DoorCounters, Reason, ShellCounters, SideCounters};
use super::event::Events;
use super::gate::{Ban, Gate};
use super::memory::Memory;
use super::options::{DoorLimits, DoorOptions, Transport};
use super::rate::Throttle;
use super::ration::{Party, Ration};
use super::record::Recorder;
use crate::recent::BanCounts;

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
    /// The engine has no place for another client.
    pub(crate) lacks_place: Arc<AtomicBool>,
    /// True as long as an edge has no path to its home.
    pub(crate) lacks_home: Arc<AtomicBool>,
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
    pub(super) queue_limit_bytes: Arc<AtomicUsize>,
    /// The memory of a silent connection.
    pub(super) connection_bytes: usize,
    /// The kernel's memory for a peer that does not read.
    kernel_bytes: AtomicUsize,
    /// That of all doors of a side: limits and bans of an address hold at each of them.
    gate: Arc<Mutex<Gate>>,
    pub(super) shared: Shared,
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
    transport + if options.tls.is_some() { 14 << 10 } else { 0 }
}

impl Door {
    /// `beside` is another door of its side.
    pub(crate) fn new(options: &DoorOptions, shared: Shared, beside: Option<&Door>) -> Arc<Door> {
        let limits = Arc::new(options.limits.clone());
        let own = || Arc::new(Mutex::new(Gate::new(Arc::clone(&limits))));
        let gate = beside.map_or_else(own, |door| Arc::clone(&door.gate));
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
            events: super::event::events(0, Arc::default(), 1).0,
            counters: Arc::default(),
            ration: Arc::default(),
            waits_for_master: Arc::default(),
            lacks_place: Arc::default(),
            lacks_home: Arc::default(),
            recorder: None,
            arrivals: Arc::new(Throttle::new()),
            handshakes: Arc::new(Throttle::new()),
            closing: watch::channel(false).1,
            drain: Duration::ZERO,
            has_cut_off: Arc::default(),
            engine_end: watch::channel(()).1,
            alive: mpsc::channel(1).0.downgrade(),
        };
        Door::new(&options, shared, None)
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

    /// The same to keep.
    pub(crate) fn side_counters(&self) -> DoorCounters {
        self.shared.counters.at(self.side)
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
    pub(super) async fn engine_end(&self) {
        let _ = self.shared.engine_end.clone().changed().await;
    }

    /// Whether the gateway is stopping: then no closed peer is at fault.
    pub(super) fn is_closing(&self) -> bool {
        *self.shared.closing.borrow()
    }

    /// How long the last bytes of a connection may take. When the gateway ends, as long as that may take.
    pub(super) fn farewell(&self) -> Duration {
        match self.is_closing() {
            true => self.shared.drain,
            false => self.limits().flush,
        }
    }

    /// Somebody may lack something. That is noted while the gateway ends.
    pub(super) fn note_cut_off(&self) {
        if self.is_closing() {
            self.shared.has_cut_off.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.shared.closing.clone()
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

    /// One door of each side: these know what all doors of theirs know.
    pub(crate) fn of_sides(doors: &[Arc<Door>]) -> impl Iterator<Item = &Arc<Door>> {
        [Side::Server, Side::Client].into_iter().filter_map(|side| doors.iter().find(|door| door.side == side))
    }

    /// The banned addresses, up to `limit`.
    pub(crate) fn bans(&self, limit: usize) -> Vec<Ban> {
        self.gate().bans(self.now()).take(limit).collect()
    }

    /// How many addresses are banned at all doors together, and how many bans were forgotten.
    pub(crate) fn ban_counts(doors: &[Arc<Door>]) -> BanCounts {
        let of_sides = Door::of_sides(doors).map(|door| door.gate().ban_counts(door.now()));
        of_sides.fold(BanCounts::default(), BanCounts::plus)
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

    pub(super) fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
