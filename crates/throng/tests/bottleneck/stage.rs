//! Servers and clients of the product that share one bottleneck with each other and with modelled TCP, on virtual time.
//!
//! ```text
//! server 0 --+                                +--> client 0     each server has one client, a tick of its own
//! server 1 --+--> bottleneck, rate and queue -+--> client 1     and more to say than the path carries
//! TCP      --+                                +--> (modelled)
//! ```
//!
//! Everything that a session does here is done by the product's own loops with its own options: `Server::receive` and
//! `Server::tick` once per tick, `Server::drain_socket` between ticks, `Client::update` once per frame.

#![allow(unreachable_pub, reason = "this is a module of a test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use throng::net::{Bottleneck, Condition, MemoryNetwork, Policer, RateLimit};
use throng::{Client, ClientEvent, ConnectToken, ConnectionId, Server, ServerEvent, Time};
use throng_link::netcode::{ConnectTokenOptions, Suite, USER_DATA_LEN};
use throng_testkit::{Bulk, Chat, Control};

use crate::harness::{PROTOCOL_ID, WorldOptions};

/// A client looks at its socket once per frame.
const FRAME: Duration = Duration::from_micros(16_667);
/// A server drains its socket as often between two ticks. More often changes nothing here, and takes longer.
const DRAIN_US: u64 = 3_000;
/// Datagrams cost this beside the session's payload.
const OVERHEAD_BYTES: u64 = 48;
/// Most jitter of a datagram under way, and of a tick.
const JITTER_US: u64 = 2_000;
/// Machines begin within this time.
const START_US: u64 = 1_000_000;
/// The lane that never sends anything twice.
const UNRELIABLE: u8 = 2;

/// The path and what competes for it.
#[derive(Clone, Copy)]
pub struct Path {
    pub bytes_per_s: u64,
    pub queue_bytes: u64,
    pub round_trip: Duration,
    pub policer: Option<Policer>,
    /// Of the way to the clients, 0 to 1.
    pub random_loss: f64,
}

impl Path {
    /// Without policer and random loss, 50 ms both ways together.
    pub fn new(bytes_per_s: u64, queue_bytes: u64) -> Path {
        Path { bytes_per_s, queue_bytes, round_trip: Duration::from_millis(50), policer: None, random_loss: 0.0 }
    }

    /// With a queue that takes so long to leave.
    pub fn with_queue_ms(bytes_per_s: u64, queue_ms: u64) -> Path {
        Path::new(bytes_per_s, bytes_per_s * queue_ms / 1_000)
    }

    fn condition(&self) -> Condition {
        let delay_us = self.round_trip.as_micros() as u32 / 2;
        Condition { delay_us, jitter_us: JITTER_US as u32, loss: self.random_loss, ..Condition::NONE }
    }
}

/// One server with one client.
pub struct Seat {
    pub server: Server,
    pub client: Client,
    pub connection: Option<ConnectionId>,
    tick: Duration,
    due_tick: Time,
    tick_jitter: Duration,
    next_frame: Time,
    /// Bytes per second that the game has to say; `None` for more than any path carries.
    pub wants_bytes_per_s: Option<u32>,
    limit_bytes_per_s: u32,
    owed_bytes: f64,
    number: u32,
    way: Way,
    frame: Duration,
}

/// Which end has more to say than the path carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Down,
    Up,
}

/// The bytes that have passed by some moment.
#[derive(Clone, Copy, Default)]
struct Passed {
    sent: u64,
    received: u64,
    received_bytes: u64,
}

/// Everything at once.
pub struct Stage {
    pub network: MemoryNetwork,
    pub bottleneck: Bottleneck,
    pub seats: Vec<Seat>,
    pub bulks: Vec<Bulk>,
    pub now: Time,
    /// Whether the servers' sockets are drained between ticks.
    pub drains: bool,
    rng: fastrand::Rng,
    path: Path,
    waits_us: Vec<u64>,
    rates: Vec<Vec<u32>>,
    marked: Vec<Passed>,
    marked_bulks: Vec<u64>,
    marked_at: Time,
}

/// The measurements since the last mark.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Of the datagrams that the servers sent, 0 to 1.
    pub loss: f64,
    /// The queue that stands at the bottleneck.
    pub queue_median_ms: f64,
    pub queue_p95_ms: f64,
    /// Bytes per second that arrived, headers included.
    pub sessions: Vec<f64>,
    pub bulks: Vec<f64>,
    /// Of the sessions, by Jain, Chiu and Hawe 1984: 1 if all get the same.
    pub jain: f64,
}

impl Measured {
    /// The median of each figure.
    pub fn median(runs: &[Measured]) -> Measured {
        let of = |figure: &dyn Fn(&Measured) -> f64| median(runs.iter().map(figure));
        Measured {
            loss: of(&|run| run.loss),
            queue_median_ms: of(&|run| run.queue_median_ms),
            queue_p95_ms: of(&|run| run.queue_p95_ms),
            sessions: (0..runs[0].sessions.len()).map(|i| of(&|run| run.sessions[i])).collect(),
            bulks: (0..runs[0].bulks.len()).map(|i| of(&|run| run.bulks[i])).collect(),
            jain: of(&|run| run.jain),
        }
    }

    /// The share of the first session in what would be fair among all flows.
    pub fn share_of_fair(&self, bytes_per_s: u64) -> f64 {
        let flows = (self.sessions.len() + self.bulks.len()) as f64;
        self.sessions[0] / (bytes_per_s as f64 / flows)
    }
}

/// The middle one of some numbers.
pub fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_unstable_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kilo = |rates: &[f64]| rates.iter().map(|rate| format!("{:.1}", rate / 1e3)).collect::<Vec<_>>().join(" ");
        write!(
            f,
            "loss {:5.2} %, queue {:6.1} ms (p95 {:6.1}), Jain {:.3}, sessions {} kB/s, TCP {} kB/s",
            self.loss * 100.0,
            self.queue_median_ms,
            self.queue_p95_ms,
            self.jain,
            kilo(&self.sessions),
            kilo(&self.bulks)
        )
    }
}

impl Stage {
    /// An empty path. All that is left to chance depends on `seed`.
    pub fn new(path: Path, seed: u64) -> Stage {
        let network = MemoryNetwork::new(path.condition(), seed).expect("a good condition");
        let rate = RateLimit { bytes_per_s: path.bytes_per_s, queue_bytes: path.queue_bytes };
        Stage {
            network,
            bottleneck: Bottleneck::new(rate, path.policer).expect("a good rate"),
            seats: Vec::new(),
            bulks: Vec::new(),
            now: Time::from_secs(1),
            drains: true,
            rng: fastrand::Rng::with_seed(seed),
            path,
            waits_us: Vec::new(),
            rates: Vec::new(),
            marked: Vec::new(),
            marked_bulks: Vec::new(),
            marked_at: Time(0),
        }
    }

    /// One more server with one more client, which begins to connect within a second. The server may send `limit_bytes_per_s`.
    pub fn join(&mut self, hz: u32, limit_bytes_per_s: u32) -> usize {
        self.join_and_talk(Way::Down, hz, limit_bytes_per_s)
    }

    /// The same, and the bottleneck is on the way to the server: the client uploads.
    pub fn join_and_upload(&mut self, hz: u32, limit_bytes_per_s: u32) -> usize {
        self.join_and_talk(Way::Up, hz, limit_bytes_per_s)
    }

    fn join_and_talk(&mut self, way: Way, hz: u32, limit_bytes_per_s: u32) -> usize {
        let number = self.seats.len() as u8;
        let addresses: [SocketAddr; 2] =
            [([10, 0, 0, 1 + number], 40_000).into(), ([10, 1, 0, 1 + number], 50_000).into()];
        // No two machines' ticks keep their phase: a burst that always came just before another's would always find room.
        let tick = Duration::from_micros(1_000_000 * (1_000 + 3 * u64::from(number)) / (1_000 * u64::from(hz)));
        let mut options = WorldOptions::new(u64::from(number));
        options.server.tick_interval = tick;
        options.server.client_bytes_per_s = limit_bytes_per_s;
        if way == Way::Up {
            options.client.bytes_per_s = limit_bytes_per_s;
        }
        options.server.idle_timeout = Duration::from_secs(30);
        options.client.idle_timeout = Duration::from_secs(30);
        let mut rng = fastrand::Rng::with_seed(u64::from(number));
        let token = ConnectTokenOptions {
            protocol_id: PROTOCOL_ID,
            client_id: 1,
            create_unix_s: 4_000_000_000,
            expire_unix_s: 4_000_000_600,
            suite: Suite::default(),
            timeout_s: 30,
            servers: vec![addresses[0]],
            user_data: [0; USER_DATA_LEN],
        };
        let token = ConnectToken::generate(&token, &options.server.private_key, &mut |bytes| rng.fill(bytes));
        let endpoint = |at| Box::new(self.network.endpoint(at).expect("a free address"));
        let schema = || Arc::clone(&options.schema);
        let server = Server::new(endpoint(addresses[0]), schema(), options.server).expect("good options");
        let token = token.expect("good token options");
        let client = Client::new(endpoint(addresses[1]), token, Arc::clone(&options.schema), options.client, self.now)
            .expect("good options");
        let [from, to] = if way == Way::Down { addresses } else { [addresses[1], addresses[0]] };
        self.network.share_way(from, to, &self.bottleneck);
        let start = self.now.after(Duration::from_micros(self.rng.u64(..START_US)));
        let mut phase = |step: Duration| start.after(Duration::from_micros(self.rng.u64(..step.as_micros() as u64)));
        self.seats.push(Seat {
            server,
            client,
            connection: None,
            tick,
            due_tick: phase(tick),
            tick_jitter: Duration::ZERO,
            next_frame: phase(FRAME),
            wants_bytes_per_s: None,
            limit_bytes_per_s,
            owed_bytes: 0.0,
            number: 0,
            way,
            frame: if way == Way::Up { FRAME * (1_000 + 3 * u32::from(number)) / 1_000 } else { FRAME },
        });
        self.rates.push(Vec::new());
        self.seats.len() - 1
    }

    /// A download begins.
    pub fn download(&mut self, control: Control) {
        self.bulks.push(Bulk::new(control, &self.bottleneck, self.path.round_trip.as_micros() as u64));
    }

    /// Time advances.
    pub fn run(&mut self, duration: Duration) {
        let end = self.now.after(duration);
        while self.now < end {
            self.now = self.now.after(Duration::from_millis(1));
            for bulk in &mut self.bulks {
                while let Some(due) = bulk.next_due().filter(|due| *due <= self.now) {
                    bulk.advance(due.max(Time(self.now.0 - 1_000)));
                }
            }
            for (seat, rates) in self.seats.iter_mut().zip(&mut self.rates) {
                seat.advance(self.now, self.drains, &mut self.rng, rates);
            }
            self.waits_us.push(self.bottleneck.wait_us(self.now));
        }
    }

    /// Measuring begins.
    pub fn mark(&mut self) {
        self.waits_us.clear();
        self.rates.iter_mut().for_each(Vec::clear);
        self.marked = self.seats.iter().map(Seat::passed).collect();
        self.marked_bulks = self.bulks.iter().map(Bulk::received_bytes).collect();
        self.marked_at = self.now;
    }

    /// Runs and measures.
    pub fn measure(&mut self, duration: Duration) -> Measured {
        self.mark();
        self.run(duration);
        let seconds = self.now.since(self.marked_at).as_secs_f64();
        let passed: Vec<Passed> =
            self.seats.iter().zip(&self.marked).map(|(seat, mark)| seat.passed() - *mark).collect();
        let (sent, received) = passed.iter().fold((0, 0), |sum, one| (sum.0 + one.sent, sum.1 + one.received));
        let sessions: Vec<f64> = passed.iter().map(|one| one.received_bytes as f64 / seconds).collect();
        // The standing queue is the rest after a tick's packets have gone: the least in 100 ms (RFC 8289 section 3.2).
        let mut waits: Vec<u64> = self.waits_us.chunks(100).filter_map(|waits| waits.iter().min().copied()).collect();
        waits.sort_unstable();
        // Full packets that a queue drops say nothing about the length that the path carries.
        let shrinks: u64 = self.seats.iter().map(Seat::path_shrinks).sum();
        assert_eq!(shrinks, 0, "a loss was taken for a shorter path");
        let quantile = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize] as f64 / 1e3;
        let squares: f64 = sessions.iter().map(|rate| rate * rate).sum();
        Measured {
            loss: 1.0 - received as f64 / sent as f64,
            queue_median_ms: quantile(0.5),
            queue_p95_ms: quantile(0.95),
            jain: sessions.iter().sum::<f64>().powi(2) / (sessions.len() as f64 * squares),
            bulks: self
                .bulks
                .iter()
                .zip(&self.marked_bulks)
                .map(|(bulk, mark)| (bulk.received_bytes() - mark) as f64 / seconds)
                .collect(),
            sessions,
        }
    }

    /// The session's own sending rate since the mark, at each tick.
    pub fn rates(&self, seat: usize) -> &[u32] {
        &self.rates[seat]
    }

    /// Nothing arrives any more, or everything does again.
    pub fn set_outage(&self, is_out: bool) {
        let condition = if is_out { Condition::BLACKOUT } else { self.path.condition() };
        self.network.set_condition(condition).expect("a good condition");
    }

    /// The path becomes longer or shorter; what is under way keeps its time.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.path.round_trip = round_trip;
        self.network.set_condition(self.path.condition()).expect("a good condition");
    }

    /// The bottleneck becomes another one.
    pub fn set_rate(&mut self, bytes_per_s: u64, queue_bytes: u64) {
        self.bottleneck.set_rate(RateLimit { bytes_per_s, queue_bytes }).expect("a good rate");
    }

    /// The session of a seat, as its server sees it.
    pub fn statistics(&self, seat: usize) -> throng::Statistics {
        let seat = &self.seats[seat];
        seat.server.link_statistics(seat.connection.expect("connected")).expect("connected")
    }
}

impl Seat {
    fn advance(&mut self, now: Time, drains: bool, rng: &mut fastrand::Rng, rates: &mut Vec<u32>) {
        if now >= self.due_tick.after(self.tick_jitter) {
            self.due_tick = self.due_tick.after(self.tick);
            self.tick_jitter = Duration::from_micros(rng.u64(..=JITTER_US));
            self.server.receive(now).expect("in memory");
            while let Some(event) = self.server.poll_event() {
                if let ServerEvent::Connected { connection, .. } = event {
                    self.connection = Some(connection);
                }
            }
            if self.way == Way::Down {
                self.offer(rates);
            }
            self.server.tick(now);
        } else if drains && now.0.is_multiple_of(DRAIN_US) {
            self.server.drain_socket(now).expect("in memory");
        }
        if now >= self.next_frame {
            let jitter_us = if self.way == Way::Up { rng.u64(..=JITTER_US) } else { 0 };
            self.next_frame = self.next_frame.after(self.frame + Duration::from_micros(jitter_us));
            if self.way == Way::Up {
                self.upload(rates);
            }
            self.client.update(now).expect("in memory");
            while let Some(event) = self.client.poll_event() {
                assert!(!matches!(event, ClientEvent::Ended(_)), "{event:?}");
            }
        }
    }

    /// The game says something: as much as it wants to, or always more than may be sent.
    fn offer(&mut self, rates: &mut Vec<u32>) {
        let Some(connection) = self.connection else { return };
        let statistics = self.server.link_statistics(connection).expect("connected");
        rates.push(statistics.sending_rate_bytes_per_s);
        let tick_s = self.tick.as_secs_f64();
        let enough_bytes = (1.5 * f64::from(self.limit_bytes_per_s) * tick_s).min(60_000.0);
        self.owed_bytes = match self.wants_bytes_per_s {
            Some(wanted) => self.owed_bytes + f64::from(wanted) * tick_s,
            None => enough_bytes - statistics.pending_message_bytes as f64,
        };
        while self.owed_bytes > 0.0 {
            self.number += 1;
            let chat = Chat { number: self.number, text: "x".repeat(900) };
            self.server.send(connection, UNRELIABLE, &chat).expect("an unreliable lane takes everything");
            self.owed_bytes -= 900.0;
        }
    }

    /// The client always has more to say than may be sent.
    fn upload(&mut self, rates: &mut Vec<u32>) {
        let Some(statistics) = self.client.link_statistics() else { return };
        rates.push(statistics.sending_rate_bytes_per_s);
        let enough_bytes = (1.5 * f64::from(self.limit_bytes_per_s) * FRAME.as_secs_f64()).min(60_000.0);
        let mut owed_bytes = enough_bytes - statistics.pending_message_bytes as f64;
        while owed_bytes > 0.0 && self.client.is_connected() {
            self.number += 1;
            let chat = Chat { number: self.number, text: "x".repeat(900) };
            self.client.send(UNRELIABLE, &chat).expect("an unreliable lane takes everything");
            owed_bytes -= 900.0;
        }
    }

    /// Of both ends.
    fn path_shrinks(&self) -> u64 {
        let ours = self.connection.and_then(|connection| self.server.link_statistics(connection));
        ours.into_iter().chain(self.client.link_statistics()).map(|one| one.counters.path_shrinks).sum()
    }

    fn passed(&self) -> Passed {
        let server = self.connection.and_then(|connection| self.server.link_statistics(connection));
        let (sent, received) = match self.way {
            Way::Down => (server, self.client.link_statistics()),
            Way::Up => (self.client.link_statistics(), server),
        };
        let received = received.map(|statistics| statistics.counters).unwrap_or_default();
        Passed {
            sent: sent.map_or(0, |statistics| statistics.counters.packets_sent),
            received: received.packets_received,
            received_bytes: received.bytes_received + OVERHEAD_BYTES * received.packets_received,
        }
    }
}

impl std::ops::Sub for Passed {
    type Output = Passed;

    fn sub(self, other: Passed) -> Passed {
        Passed {
            sent: self.sent - other.sent,
            received: self.received - other.received,
            received_bytes: self.received_bytes - other.received_bytes,
        }
    }
}
