//! A simulated bus on virtual time, for tests of everything that stands on a bus.
//!
//! ```text
//!  SimBus a (its own clock) --\  delay, in order    +--------+  delay, in order per subject  /--> SimBus b
//!                              >------------------> | server | ------------------------------
//!  SimBus b                --/   cut, reset, late   | store  |  cut, lost, twice             \--> SimBus a
//!                                                   +--------+  killed, started again
//! ```
//!
//! The model follows a NATS server with a key-value store: one connection per member, at most once, no memory of messages.
//!
//! - A *cut* loses everything on the way, and nobody notices before [`Weather::notice`].
//! - A *reset* loses the answers, but commands that were on the way are still carried out: after the member knows of the
//!   loss, and perhaps after it has connected again.
//! - Messages of different subjects overtake each other; some arrive twice, the second time late.
//! - Clocks of members and of the server differ in speed, and the server's may jump.
//!
//! The same seed gives the same run. [`SimNet::writes`] is the store's own log: an oracle outside of the members.

mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use throng_wire::Time;

use crate::endpoint::{Endpoint, Outgoing};
use crate::store::{Change, Store};
use crate::{
    Bus, Command, CommandError, Counters, Event, Limits, MemberId, RequestError, Revision, Subject, SubscriptionId,
    Ticket, WatchId,
};
use server::Server;

/// The conditions of a simulated bus.
#[derive(Clone, Debug)]
pub struct Weather {
    /// The delay of one way, each time another one.
    pub delay: Range<Duration>,
    /// The share of messages that arrive twice: 0 to 1.
    pub twice: f64,
    /// The share of messages that are lost on the way to one subscriber: 0 to 1.
    pub lost: f64,
    /// The share of answers, of the store and to requests, that are lost alone, on a connection that goes on: 0 to 1.
    pub lost_answers: f64,
    /// The share of operations of the store that are lost alone and not carried out: 0 to 1.
    pub lost_operations: f64,
    /// By how many millionths each member's clock is faster or slower at most.
    pub drift_ppm: u32,
    /// The same for the server's clock.
    pub server_drift_ppm: u32,
    /// The time until a silent connection counts as lost.
    pub notice: Duration,
    /// The time between a loss and the next attempt to connect.
    pub retry: Duration,
}

impl Default for Weather {
    /// 0.2 to 2 ms, nothing lost or doubled, exact clocks.
    fn default() -> Weather {
        Weather {
            delay: Duration::from_micros(200)..Duration::from_millis(2),
            twice: 0.0,
            lost: 0.0,
            lost_answers: 0.0,
            lost_operations: 0.0,
            drift_ppm: 0,
            server_drift_ppm: 0,
            notice: Duration::from_secs(2),
            retry: Duration::from_millis(200),
        }
    }
}

/// A write that the server carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimWrite {
    /// When.
    pub at: Time,
    /// The member that wrote; `None` if the time of the entry was over.
    pub by: Option<MemberId>,
    /// The key.
    pub key: Subject,
    /// Its number.
    pub revision: Revision,
    /// The value; `None` if it was removed.
    pub value: Option<Bytes>,
}

/// A simulated network with a server. Clones are the same network.
#[derive(Clone, Debug)]
pub struct SimNet(Arc<Mutex<Net>>);

/// A member of a simulated bus. Dropping it kills the member: what it sent is still on its way.
#[derive(Debug)]
pub struct SimBus {
    net: SimNet,
    member: MemberId,
}

#[derive(Debug)]
struct Net {
    now: Time,
    rng: fastrand::Rng,
    weather: Weather,
    server: Server,
    nodes: BTreeMap<MemberId, Node>,
    due: BTreeMap<(Time, u64), Due>,
    scheduled: u64,
    writes: Vec<SimWrite>,
    lost: u64,
}

#[derive(Debug)]
struct Node {
    endpoint: Endpoint,
    drift_ppm: i64,
    /// Rises with each connection.
    connection: u64,
    is_cut: bool,
    /// Something was lost on this connection, so it cannot go on.
    is_doomed: bool,
    up_free: Time,
    down_free: FxHashMap<Lane, Time>,
}

/// Everything in one lane arrives in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Lane {
    Answers,
    Watch(WatchId),
    Subject(Subject),
}

#[derive(Debug)]
enum Due {
    Up { member: MemberId, connection: u64, life: u64, packet: Outgoing },
    Down { member: MemberId, connection: u64, packet: Down },
    Connect { member: MemberId },
    Notice { member: MemberId, connection: u64 },
    Expire,
}

#[derive(Clone, Debug)]
enum Down {
    Delivery { subscription: SubscriptionId, subject: Subject, bytes: Bytes },
    Answer { ticket: Ticket, result: Result<Bytes, RequestError> },
    Result(Event),
    Entry { watch: WatchId, listing: u32, change: Change },
    Listed { watch: WatchId, listing: u32 },
}

/// The content of a store. The default one is empty.
#[derive(Clone, Debug, Default)]
pub struct SimStore(Store);

impl SimNet {
    /// A network with a running server and an empty store.
    pub fn new(seed: u64, weather: Weather) -> SimNet {
        let mut rng = fastrand::Rng::with_seed(seed);
        let drift_ppm = drift(&mut rng, weather.server_drift_ppm);
        SimNet(Arc::new(Mutex::new(Net {
            now: Time::from_secs(1),
            rng,
            weather,
            server: Server::new(drift_ppm),
            nodes: BTreeMap::new(),
            due: BTreeMap::new(),
            scheduled: 0,
            writes: Vec::new(),
            lost: 0,
        })))
    }

    /// A new member, which connects by itself.
    pub fn join(&self, member: MemberId, limits: Limits) -> SimBus {
        let mut net = self.lock();
        let ppm = net.weather.drift_ppm;
        let drift_ppm = drift(&mut net.rng, ppm);
        let node = Node {
            endpoint: Endpoint::new(member, limits),
            drift_ppm,
            connection: 0,
            is_cut: false,
            is_doomed: false,
            up_free: Time(0),
            down_free: FxHashMap::default(),
        };
        net.nodes.insert(member, node);
        let delay = net.delay();
        net.schedule(delay, Due::Connect { member });
        drop(net);
        SimBus { net: self.clone(), member }
    }

    /// The true time.
    pub fn now(&self) -> Time {
        self.lock().now
    }

    /// Lets time pass.
    pub fn pass(&self, duration: Duration) {
        let mut net = self.lock();
        let end = net.now.after(duration);
        while let Some(entry) = net.due.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((at, _), due) = entry.remove_entry();
            net.now = net.now.max(at);
            net.handle(due);
        }
        net.now = end;
    }

    /// Changes the conditions. Clocks keep their speeds.
    pub fn set_weather(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.lock().weather);
    }

    /// Cuts a member off, or joins it again. Nobody is told.
    pub fn cut(&self, member: MemberId, is_cut: bool) {
        if let Some(node) = self.lock().nodes.get_mut(&member) {
            node.is_cut = is_cut;
        }
    }

    /// Ends a member's connection at once. Its commands on the way are still carried out.
    pub fn reset(&self, member: MemberId) {
        self.lock().disconnect(member);
    }

    /// Kills the server, with everything but the store, or starts it again.
    pub fn run_server(&self, runs: bool) {
        let mut net = self.lock();
        if net.server.is_up == runs {
            return;
        }
        net.server.is_up = runs;
        net.server.life += 1;
        net.server.forget_members();
        if runs {
            net.expire();
        } else {
            let members: Vec<MemberId> = net.nodes.keys().copied().collect();
            members.into_iter().for_each(|member| net.disconnect(member));
        }
    }

    /// A copy of the store as it is now.
    pub fn copy_store(&self) -> SimStore {
        SimStore(self.lock().server.store.clone())
    }

    /// The server, which does not run at the moment, starts with this store, as one whose disk was lost or restored.
    pub fn put_store(&self, store: SimStore) {
        self.lock().server.store = store.0;
    }

    /// Sets the server's clock forward, as when another server with another clock takes over.
    pub fn jump_server_clock(&self, by: Duration) {
        let mut net = self.lock();
        net.server.jumped += by;
        net.expire();
    }

    /// Everything that the store has done, in order.
    pub fn writes(&self) -> Vec<SimWrite> {
        self.lock().writes.clone()
    }

    /// How many messages were lost on the way so far.
    pub fn lost(&self) -> u64 {
        self.lock().lost
    }

    /// Puts any bytes on the way to all subscribers of a subject, as a hostile member would.
    pub fn forge(&self, subject: &Subject, bytes: Bytes) {
        self.lock().deliver(subject, &bytes);
    }

    fn lock(&self) -> MutexGuard<'_, Net> {
        // A test that has panicked lets go of its members in any state of the network.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimBus {
    /// The member's own clock.
    pub fn clock(&self) -> Time {
        let net = self.net.lock();
        net.nodes.get(&self.member).map_or(net.now, |node| drifted(net.now, node.drift_ppm))
    }
}

impl Bus for SimBus {
    fn handle_command(&mut self, now: Time, command: Command) -> Result<(), CommandError> {
        self.net.lock().with(self.member, |node| node.endpoint.handle_command(now, command))
    }

    fn handle_timeout(&mut self, now: Time) {
        self.net.lock().with(self.member, |node| node.endpoint.handle_timeout(now));
    }

    fn poll_event(&mut self, _: Time) -> Option<Event> {
        self.net.lock().with(self.member, |node| node.endpoint.poll_event())
    }

    fn member(&self) -> MemberId {
        self.member
    }

    fn counters(&self) -> Counters {
        self.net.lock().with(self.member, |node| node.endpoint.counters())
    }
}

impl Drop for SimBus {
    fn drop(&mut self) {
        let mut net = self.net.lock();
        net.nodes.remove(&self.member);
        net.server.forget_member(self.member);
    }
}

impl Net {
    /// Does something with a member, and sends what comes of it.
    ///
    /// # Panics
    /// If the member does not exist: the bus of another network.
    fn with<T>(&mut self, member: MemberId, act: impl FnOnce(&mut Node) -> T) -> T {
        let node = self.nodes.get_mut(&member).expect("a bus and its node live as long as each other");
        let result = act(node);
        let mut packets = Vec::new();
        while let Some(packet) = node.endpoint.poll_outgoing() {
            packets.push(packet);
        }
        let connection = node.connection;
        for packet in packets {
            let delay = self.delay();
            let arrival = self.now.after(delay);
            let Some(node) = self.nodes.get_mut(&member) else { break };
            node.up_free = node.up_free.max(arrival);
            let (at, life) = (node.up_free, self.server.life);
            self.schedule_at(at, Due::Up { member, connection, life, packet });
        }
        result
    }

    fn handle(&mut self, due: Due) {
        match due {
            Due::Up { member, connection, life, packet } => self.arrive_up(member, connection, life, packet),
            Due::Down { member, connection, packet } => self.arrive_down(member, connection, packet),
            Due::Connect { member } => self.connect(member),
            Due::Notice { member, connection } => {
                if self.nodes.get(&member).is_some_and(|node| node.connection == connection) {
                    self.disconnect(member);
                }
            }
            Due::Expire => self.expire(),
        }
    }

    fn arrive_up(&mut self, member: MemberId, connection: u64, life: u64, packet: Outgoing) {
        let is_cut = self.nodes.get(&member).is_some_and(|node| node.is_cut);
        if is_cut || life != self.server.life || !self.server.is_up {
            self.doom(member, connection);
            return;
        }
        let may_be_lost = self.weather.lost_operations > 0.0 && matches!(packet, Outgoing::Store(_));
        if may_be_lost && self.rng.f64() < self.weather.lost_operations {
            self.lost += 1;
            return;
        }
        self.carry_out(member, connection, packet);
    }

    fn arrive_down(&mut self, member: MemberId, connection: u64, packet: Down) {
        let Some(node) = self.nodes.get(&member) else { return };
        if node.connection != connection || !node.endpoint.is_connected() {
            return;
        }
        if node.is_cut || node.is_doomed {
            self.lost += 1;
            self.doom(member, connection);
            return;
        }
        self.with(member, |node| {
            let endpoint = &mut node.endpoint;
            match packet {
                Down::Delivery { subscription, subject, bytes } => {
                    endpoint.handle_delivery(subscription, subject.as_str(), &bytes, None);
                }
                Down::Answer { ticket, result } => {
                    endpoint.handle_answer(ticket, result.as_ref().map_err(|error| *error))
                }
                Down::Result(event) => endpoint.handle_result(event),
                Down::Entry { watch, listing, change } => {
                    endpoint.handle_entry(watch, listing, change.key.as_str(), change.revision, change.value);
                }
                Down::Listed { watch, listing } => endpoint.handle_listed(watch, listing),
            }
        });
    }

    /// Sends something down to a member, in order with the rest of its lane.
    fn send_down(&mut self, member: MemberId, lane: Lane, packet: Down) {
        let is_answer = matches!(packet, Down::Result(_) | Down::Answer { .. });
        let may_be_lost = self.weather.lost_answers > 0.0 && is_answer;
        if may_be_lost && self.rng.f64() < self.weather.lost_answers {
            self.lost += 1;
            return;
        }
        let delay = self.delay();
        let arrival = self.now.after(delay);
        let Some(node) = self.nodes.get_mut(&member) else { return };
        let free = node.down_free.entry(lane).or_default();
        *free = arrival.max(*free);
        let (at, connection) = (*free, node.connection);
        self.schedule_at(at, Due::Down { member, connection, packet });
    }

    fn deliver(&mut self, subject: &Subject, bytes: &Bytes) {
        for (member, subscription) in self.server.subscribers(subject) {
            if self.rng.f64() < self.weather.lost {
                self.lost += 1;
                continue;
            }
            let packet = Down::Delivery { subscription, subject: subject.clone(), bytes: bytes.clone() };
            if self.rng.f64() < self.weather.twice
                && let Some(connection) = self.nodes.get(&member).map(|node| node.connection)
            {
                let late = self.weather.delay.end * self.rng.u32(1..20);
                self.schedule(late, Due::Down { member, connection, packet: packet.clone() });
            }
            self.send_down(member, Lane::Subject(subject.clone()), packet);
        }
    }

    fn connect(&mut self, member: MemberId) {
        let is_up = self.server.is_up;
        let Some(node) = self.nodes.get_mut(&member) else { return };
        if node.endpoint.is_connected() {
            return;
        }
        if !is_up || node.is_cut {
            let retry = self.weather.retry;
            self.schedule(retry, Due::Connect { member });
            return;
        }
        node.connection += 1;
        node.is_doomed = false;
        node.down_free.clear();
        let clock = drifted(self.now, node.drift_ppm);
        self.server.forget_member(member);
        self.with(member, |node| node.endpoint.handle_connected(clock));
    }

    fn disconnect(&mut self, member: MemberId) {
        self.server.forget_member(member);
        let Some(node) = self.nodes.get_mut(&member) else { return };
        if node.endpoint.is_connected() {
            node.endpoint.handle_disconnected();
            let retry = self.weather.retry;
            self.schedule(retry, Due::Connect { member });
        }
    }

    /// A connection that lost something ends when somebody notices.
    fn doom(&mut self, member: MemberId, connection: u64) {
        let notice = self.weather.notice;
        let Some(node) = self.nodes.get_mut(&member) else { return };
        if node.connection == connection && !node.is_doomed {
            node.is_doomed = true;
            self.schedule(notice, Due::Notice { member, connection });
        }
    }

    fn delay(&mut self) -> Duration {
        let Range { start, end } = self.weather.delay;
        Duration::from_micros(self.rng.u64(start.as_micros() as u64..=end.as_micros() as u64))
    }

    fn schedule(&mut self, after: Duration, due: Due) {
        self.schedule_at(self.now.after(after), due);
    }

    fn schedule_at(&mut self, at: Time, due: Due) {
        self.scheduled += 1;
        self.due.insert((at, self.scheduled), due);
    }
}

fn drift(rng: &mut fastrand::Rng, ppm: u32) -> i64 {
    rng.i64(-i64::from(ppm)..=i64::from(ppm))
}

/// The time of a clock that is faster by some millionths.
fn drifted(time: Time, ppm: i64) -> Time {
    Time(time.0.saturating_add_signed(time.0 as i64 / 1_000_000 * ppm))
}

/// The members that are told of a change, each once per watch.
type Watchers = BTreeSet<(MemberId, WatchId, u32)>;
