//! A network within the process.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use throng_wire::Time;

use crate::seed::seed_for;
use crate::{
    BindError, Bottleneck, Condition, ConditionCounters, ConditionError, Driver, DriverCounters, Fate, InFlight,
    InFlightLimit, LossCause, MAX_DATAGRAM_BYTES, PathModel, ReceiveError, SendError, Transmit,
};

/// A call of `receive` delivers no more than this: two endpoints whose sinks answer each other at once still come to
/// an end.
const RECEIVE_LIMIT_DATAGRAMS: usize = 65_536;

/// Datagrams that one `send` is asked to carry at best, as with a real socket.
const MAX_SEGMENTS: usize = 64;

/// A network of endpoints within this process, for tests and single-process worlds. A handle; clones share it.
///
/// Every ordered pair of endpoints has a path of its own, in a [`Condition`] and seeded from the network's seed and
/// both addresses. Time is whatever the callers say. With equal seeds and equal calls, equal datagrams arrive at
/// equal times. Each endpoint's inbox is bounded; what does not fit is dropped and counted.
///
/// ```text
/// endpoint A -- send --> path A to B --> inbox of B -- receive --> endpoint B
///            <-- receive -- inbox of A <-- path B to A <-- send --
/// ```
#[derive(Clone)]
pub struct MemoryNetwork {
    inner: Arc<Mutex<Inner>>,
}

/// One endpoint of a [`MemoryNetwork`]. Dropping it closes its address.
pub struct MemoryDriver {
    network: MemoryNetwork,
    local: SocketAddr,
    /// The datagram being delivered.
    scratch: Vec<u8>,
    counters: DriverCounters,
}

struct Inner {
    condition: Condition,
    seed: u64,
    inbox_limit: InFlightLimit,
    inboxes: FxHashMap<SocketAddr, InFlight<SocketAddr>>,
    paths: FxHashMap<Way, PathModel>,
    bottlenecks: FxHashMap<Way, Bottleneck>,
    counters: ConditionCounters,
}

/// From one endpoint to another.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Way {
    from: SocketAddr,
    to: SocketAddr,
}

impl MemoryNetwork {
    /// A network whose paths are all in `condition`, with room for [`InFlightLimit::SERVER`] in each inbox.
    ///
    /// # Errors
    ///
    /// [`ConditionError`] when a figure of `condition` is out of range.
    pub fn new(condition: Condition, seed: u64) -> Result<MemoryNetwork, ConditionError> {
        MemoryNetwork::with_inbox_limit(condition, seed, InFlightLimit::SERVER)
    }

    /// As [`new`](MemoryNetwork::new), with a limit for the datagrams on their way to one endpoint.
    ///
    /// # Errors
    ///
    /// [`ConditionError`] when a figure of `condition` is out of range.
    pub fn with_inbox_limit(
        condition: Condition,
        seed: u64,
        inbox_limit: InFlightLimit,
    ) -> Result<MemoryNetwork, ConditionError> {
        condition.check()?;
        let inner = Inner {
            condition,
            seed,
            inbox_limit,
            inboxes: FxHashMap::default(),
            paths: FxHashMap::default(),
            bottlenecks: FxHashMap::default(),
            counters: ConditionCounters::default(),
        };
        Ok(MemoryNetwork { inner: Arc::new(Mutex::new(inner)) })
    }

    /// Opens `address`.
    ///
    /// # Errors
    ///
    /// [`BindError::PortInUse`] when an endpoint has it, [`BindError::BadPeer`] when no datagram can be sent to it.
    pub fn endpoint(&self, address: SocketAddr) -> Result<MemoryDriver, BindError> {
        if address.port() == 0 || address.ip().is_unspecified() {
            return Err(BindError::BadPeer { address });
        }
        let mut inner = self.lock();
        if inner.inboxes.contains_key(&address) {
            return Err(BindError::PortInUse { address });
        }
        let inbox = InFlight::new(inner.inbox_limit);
        inner.inboxes.insert(address, inbox);
        drop(inner);
        let network = self.clone();
        Ok(MemoryDriver { network, local: address, scratch: Vec::new(), counters: DriverCounters::default() })
    }

    /// Changes the condition of every path, also of those set with [`set_way`](MemoryNetwork::set_way). Datagrams
    /// already under way keep their fate.
    ///
    /// # Errors
    ///
    /// [`ConditionError`]; nothing has changed then.
    pub fn set_condition(&self, condition: Condition) -> Result<(), ConditionError> {
        condition.check()?;
        let mut inner = self.lock();
        for path in inner.paths.values_mut() {
            path.set_condition(condition.clone())?;
        }
        inner.condition = condition;
        Ok(())
    }

    /// Changes the condition of one way between two endpoints.
    ///
    /// # Errors
    ///
    /// [`ConditionError`]; nothing has changed then.
    pub fn set_way(&self, from: SocketAddr, to: SocketAddr, condition: Condition) -> Result<(), ConditionError> {
        self.lock().path(Way { from, to }).set_condition(condition)
    }

    /// Sends one way through a bottleneck, before its own condition. Several ways through the same one compete there.
    pub fn share_way(&self, from: SocketAddr, to: SocketAddr, bottleneck: &Bottleneck) {
        self.lock().bottlenecks.insert(Way { from, to }, bottleneck.clone());
    }

    /// Puts a datagram into an inbox as if `from` had sent it: a forged sender, a replay. It takes no path and arrives
    /// at `now`. Returns whether there was such an inbox, with room.
    pub fn inject(&self, now: Time, from: SocketAddr, to: SocketAddr, bytes: &[u8]) -> bool {
        bytes.len() <= MAX_DATAGRAM_BYTES
            && self.lock().inboxes.get_mut(&to).is_some_and(|inbox| inbox.push(now, from, bytes))
    }

    /// When the next datagram arrives anywhere: the time to which a test may jump.
    pub fn next_due(&self) -> Option<Time> {
        self.lock().inboxes.values().filter_map(InFlight::next_at).min()
    }

    /// Counters of all paths together.
    pub fn counters(&self) -> ConditionCounters {
        self.lock().counters
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No user code runs under the lock, so a panic elsewhere leaves the state whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn path(&mut self, way: Way) -> &mut PathModel {
        let seed = seed_for(seed_for(self.seed, way.from), way.to);
        let condition = &self.condition;
        self.paths.entry(way).or_insert_with(|| PathModel::fresh(condition.clone(), seed))
    }

    /// Returns false when no endpoint has the address.
    fn carry(&mut self, now: Time, way: Way, datagram: &[u8]) -> bool {
        if !self.inboxes.contains_key(&way.to) {
            return false;
        }
        let leaves = match self.bottlenecks.get(&way) {
            Some(bottleneck) => bottleneck.pass(now, datagram.len()),
            None => Some(now),
        };
        let fate = match leaves {
            Some(at) => self.path(way).fate(at, datagram.len()),
            None => Fate::Lost(LossCause::QueueFull),
        };
        if let Some(inbox) = self.inboxes.get_mut(&way.to) {
            inbox.follow(fate, way.from, datagram, &mut self.counters);
        }
        true
    }

    /// Moves the next datagram for `local` into `contents`, and returns its arrival and its sender.
    fn take(&mut self, now: Time, local: SocketAddr, contents: &mut Vec<u8>) -> Option<(Time, SocketAddr)> {
        let arrival = self.inboxes.get_mut(&local)?.pop(now)?;
        contents.clear();
        contents.extend_from_slice(arrival.bytes);
        self.counters.delivered += 1;
        Some((arrival.at, arrival.tag))
    }

    fn close(&mut self, address: SocketAddr) {
        self.inboxes.remove(&address);
        self.paths.retain(|way, _| way.from != address && way.to != address);
        self.bottlenecks.retain(|way, _| way.from != address && way.to != address);
    }
}

impl Driver for MemoryDriver {
    /// All datagrams are taken. Those for an unused address are lost and counted as
    /// [`refused`](DriverCounters::refused).
    fn send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        transmit.check()?;
        let way = Way { from: self.local, to: transmit.to };
        let mut inner = self.network.lock();
        for datagram in transmit.iter() {
            if !inner.carry(now, way, datagram) {
                self.counters.refused += 1;
            }
        }
        self.counters.send_calls += 1;
        self.counters.count_sent(transmit.datagrams(), transmit.bytes.len());
        Ok(transmit.datagrams())
    }

    /// Delivers at most 65,536 datagrams per call.
    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8])) -> Result<usize, ReceiveError> {
        self.counters.receive_calls += 1;
        for delivered in 0..RECEIVE_LIMIT_DATAGRAMS {
            // The lock is released before the sink runs: it may send through another endpoint.
            let taken = self.network.lock().take(now, self.local, &mut self.scratch);
            let Some((arrived, from)) = taken else { return Ok(delivered) };
            self.counters.count_received(self.scratch.len());
            sink(arrived, from, &mut self.scratch);
        }
        self.counters.receive_limited += 1;
        Ok(RECEIVE_LIMIT_DATAGRAMS)
    }

    fn next_due(&self) -> Option<Time> {
        self.network.lock().inboxes.get(&self.local).and_then(InFlight::next_at)
    }

    fn local_address(&self) -> SocketAddr {
        self.local
    }

    fn max_segments(&self) -> usize {
        MAX_SEGMENTS
    }

    fn counters(&self) -> &DriverCounters {
        &self.counters
    }
}

impl Drop for MemoryDriver {
    fn drop(&mut self) {
        self.network.lock().close(self.local);
    }
}
