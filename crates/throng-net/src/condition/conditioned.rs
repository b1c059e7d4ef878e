use std::net::SocketAddr;

use rustc_hash::FxHashMap;
use throng_wire::Time;

use super::{Condition, ConditionError, InFlight, InFlightLimit, PathModel};
use crate::seed::seed_for;
use crate::{ConditionCounters, Driver, ReceiveError, SendError, Transmit, Wrapper};

/// Peers with a path of their own under [`Scope::PerPeer`]. Those beyond share one.
const MAX_PATHS: usize = 65_536;

/// The options of [`Conditioned`].
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionedOptions {
    /// For datagrams that the driver sends.
    pub outgoing: Condition,
    /// For datagrams that the driver receives.
    pub incoming: Condition,
    /// The owner of the path.
    pub scope: Scope,
    /// Everything random derives from it.
    pub seed: u64,
    /// Datagrams under way, each direction for itself.
    pub limit: InFlightLimit,
}

impl ConditionedOptions {
    /// The same condition both ways, each peer on a path of its own.
    pub fn both_ways(condition: Condition, seed: u64) -> ConditionedOptions {
        ConditionedOptions {
            outgoing: condition.clone(),
            incoming: condition,
            scope: Scope::PerPeer,
            seed,
            limit: InFlightLimit::SERVER,
        }
    }
}

/// Whether peers share rate, order, jitter and bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each peer has a path of its own, seeded from its address; up to 65,536, those beyond share one. The condition
    /// describes the peers' connections to the internet.
    PerPeer,
    /// All peers share one path: the condition describes this host's connection.
    Shared,
}

/// A driver on a bad network.
///
/// Sent datagrams wait here until they are due: call [`flush`](Driver::flush) (or `receive`, which does it too) every
/// loop turn. Datagrams that were sent together and are due together leave in one system call again. A direction whose
/// condition is perfect is passed straight through.
///
/// [`counters`](Driver::counters) are those of the driver within; the conditions' are
/// [`outgoing_counters`](Conditioned::outgoing_counters) and [`incoming_counters`](Conditioned::incoming_counters).
pub struct Conditioned<D> {
    driver: D,
    outgoing: Direction,
    incoming: Direction,
    batch: Batch,
}

impl<D: Driver> Conditioned<D> {
    /// Wraps a driver.
    ///
    /// # Errors
    ///
    /// [`ConditionError`] when a figure of a condition is out of range.
    pub fn new(driver: D, options: &ConditionedOptions) -> Result<Conditioned<D>, ConditionError> {
        let outgoing = Direction::new(options.outgoing.clone(), options, options.seed)?;
        let incoming = Direction::new(options.incoming.clone(), options, !options.seed)?;
        Ok(Conditioned { driver, outgoing, incoming, batch: Batch::default() })
    }

    /// Counters of sent datagrams.
    pub fn outgoing_counters(&self) -> &ConditionCounters {
        &self.outgoing.counters
    }

    /// Counters of received datagrams.
    pub fn incoming_counters(&self) -> &ConditionCounters {
        &self.incoming.counters
    }

    /// The driver within.
    pub fn driver(&self) -> &D {
        &self.driver
    }
}

impl<D: Driver> Wrapper for Conditioned<D> {
    type Inner = D;

    fn inner(&self) -> &D {
        &self.driver
    }

    fn inner_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Queues the datagrams, and sends those that are due. Accepts all of them.
    fn wrap_send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        if self.outgoing.is_idle_and_perfect() {
            return self.driver.send(now, transmit);
        }
        transmit.check()?;
        for datagram in transmit.iter() {
            self.outgoing.push(now, transmit.to, datagram);
        }
        // Datagrams that are due now may be from earlier transmits to other peers. That it fails is counted by the
        // driver within, and is no failure of this one.
        let _ = self.flush(now);
        Ok(transmit.datagrams())
    }

    fn wrap_receive(
        &mut self,
        now: Time,
        sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8]),
    ) -> Result<usize, ReceiveError> {
        // A failed send is counted by the driver within, and is no failure to receive.
        let _ = self.flush(now);
        if self.incoming.is_idle_and_perfect() {
            return self.driver.receive(now, sink);
        }
        let incoming = &mut self.incoming;
        let received = self.driver.receive(now, &mut |_, from, bytes| incoming.push(now, from, bytes));
        let mut delivered = 0;
        while let Some(arrival) = incoming.flight.pop(now) {
            incoming.counters.delivered += 1;
            delivered += 1;
            sink(arrival.at, arrival.tag, arrival.bytes);
        }
        received.map(|_| delivered)
    }

    fn wrap_flush(&mut self, now: Time) -> Result<usize, SendError> {
        let max_segments = self.driver.max_segments();
        let mut result = Ok(0);
        while let Some(arrival) = self.outgoing.flight.pop(now) {
            self.outgoing.counters.delivered += 1;
            if !self.batch.accepts(arrival.tag, arrival.bytes.len(), max_segments) {
                add(&mut result, self.batch.send(now, &mut self.driver));
            }
            self.batch.push(arrival.tag, arrival.bytes);
        }
        add(&mut result, self.batch.send(now, &mut self.driver));
        add(&mut result, self.driver.flush(now));
        result
    }

    fn wrap_next_due(&self) -> Option<Time> {
        [self.outgoing.flight.next_at(), self.incoming.flight.next_at(), self.driver.next_due()]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Sums up what was handed over; the first error stays.
fn add(total: &mut Result<usize, SendError>, sent: Result<usize, SendError>) {
    match (total, sent) {
        (Ok(total), Ok(sent)) => *total += sent,
        (total @ Ok(_), Err(error)) => *total = Err(error),
        (Err(_), _) => {}
    }
}

struct Direction {
    condition: Condition,
    seed: u64,
    shared: PathModel,
    /// `None` under [`Scope::Shared`].
    paths: Option<FxHashMap<SocketAddr, PathModel>>,
    flight: InFlight<SocketAddr>,
    counters: ConditionCounters,
}

impl Direction {
    fn new(condition: Condition, options: &ConditionedOptions, seed: u64) -> Result<Direction, ConditionError> {
        Ok(Direction {
            shared: PathModel::new(condition.clone(), seed)?,
            condition,
            seed,
            paths: (options.scope == Scope::PerPeer).then(FxHashMap::default),
            flight: InFlight::new(options.limit),
            counters: ConditionCounters::default(),
        })
    }

    fn is_idle_and_perfect(&self) -> bool {
        self.condition.is_perfect() && self.flight.is_empty()
    }

    fn push(&mut self, now: Time, peer: SocketAddr, bytes: &[u8]) {
        let fate = self.path(peer).fate(now, bytes.len());
        self.flight.follow(fate, peer, bytes, &mut self.counters);
    }

    fn path(&mut self, peer: SocketAddr) -> &mut PathModel {
        let Some(paths) = &mut self.paths else { return &mut self.shared };
        if paths.len() >= MAX_PATHS && !paths.contains_key(&peer) {
            self.counters.shared_overflow += 1;
            return &mut self.shared;
        }
        paths.entry(peer).or_insert_with(|| self.shared.reseeded(seed_for(self.seed, peer)))
    }
}

/// Datagrams for one peer that can leave in one call.
#[derive(Default)]
struct Batch {
    to: Option<SocketAddr>,
    bytes: Vec<u8>,
    segment_bytes: usize,
}

impl Batch {
    fn accepts(&self, to: SocketAddr, bytes: usize, max_segments: usize) -> bool {
        let whole_segments = self.segment_bytes > 0 && self.bytes.len().is_multiple_of(self.segment_bytes);
        self.to.is_none()
            || (self.to == Some(to)
                && whole_segments
                && (1..=self.segment_bytes).contains(&bytes)
                && self.bytes.len() / self.segment_bytes < max_segments)
    }

    fn push(&mut self, to: SocketAddr, bytes: &[u8]) {
        if self.to.replace(to).is_none() {
            self.segment_bytes = bytes.len();
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn send(&mut self, now: Time, driver: &mut impl Driver) -> Result<usize, SendError> {
        let Some(to) = self.to.take() else { return Ok(0) };
        let sent = driver.send(now, &Transmit { to, bytes: &self.bytes, segment_bytes: self.segment_bytes.max(1) });
        self.bytes.clear();
        sent
    }
}
