//! All bots of a process, each at its own moment of the tick.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use throng::net::ReceiveBuffers;
use throng::{ClientOptions, Decode, Decoder, Schema, Time, TokenIssuer, replica};
use throng_crowd::kinds;
use throng_crowd::scenario::Scenario;
use throng_crowd::talk::{self, Talk};
use throng_crowd::truth::Snapshot;
use throng_machine::clock;

use super::bot::Bot;
use super::members::Rates;
use super::outage::Outages;
use super::port::{Port, SharedSockets};
use super::witness::{Eyes, FINAL_PATIENCE, Witness};
use super::{
    BotsError, BotsOptions, BotsReport, Brains, Gathered, Progress, SecondCounts, Share, allow_sockets, pin, share,
};
use throng_summary::neighbours::NeighbourLog;
use throng_summary::{Bots, Counted, STALL};

/// A decoding bot looks at its socket this often, as a game does that draws frames.
const LOOK_INTERVAL: Duration = Duration::from_millis(16);
/// Without any connection for this long, the server counts as absent.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bots are served in groups with this time between them, because a separate wait for each bot would keep the processor
/// busy.
const SHORTEST_SLEEP: Duration = Duration::from_micros(500);
const LONGEST_SLEEP: Duration = Duration::from_millis(2);
/// The headers of a datagram over IPv4, in bytes.
pub(super) const IP_UDP_BYTES: u64 = 28;
/// Number of bots that are served before the clock, the server's state and the commands are checked again.
const BATCH: usize = 64;
/// Bots whose memory is asked for at once, before the first of them is served.
const FETCHED: usize = 8;

/// All bots of a process; `D` fits to the server's replication model.
pub(crate) struct Fleet<D> {
    /// In the order in which they came.
    pub(super) bots: Vec<Bot<D>>,
    /// The places of those that decode, so that no turn looks through ten thousand bots for twenty.
    pub(super) decoders: Vec<u32>,
    /// So many are to play.
    pub(super) wanted: usize,
    /// Bots that were told to leave, and until when each is kept.
    pub(super) leaving: Vec<(Time, Bot<D>)>,
    /// When the next bot may come or leave.
    pub(super) next_change: Time,
    /// Bots that were opened so far.
    pub(super) opened: u64,
    /// Client ids are those of this share of the run.
    pub(super) share: Share,
    /// The numbers of its bots in the run, in the order in which they come.
    pub(super) numbers: Vec<u32>,
    pub(super) most_connected: u32,
    /// How often bots connected again.
    pub(super) reconnected: u32,
    outages: Outages,
    /// Indices of the bots in the order of their turns; empty while bots come and go.
    pub(super) order: Vec<u32>,
    pub(super) brains: Brains,
    pub(super) scenario: Scenario,
    pub(super) schema: Arc<Schema>,
    pub(super) options: [Arc<ClientOptions>; 2],
    pub(super) issuer: TokenIssuer,
    pub(super) server: SocketAddr,
    pub(super) edges: Vec<Gate>,
    witness: Witness,
    buffers: ReceiveBuffers,
    pub(super) shared: SharedSockets,
    pub(super) out: Vec<u8>,
    pub(super) started: Time,
    /// Place in the order.
    next: usize,
    next_look: Time,
    pub(super) interval: Duration,
    pub(super) measuring: Option<Measuring>,
    pub(super) measured: Measured,
    pub(super) second: Second,
}

/// An edge, as the bots see it.
pub(super) struct Gate {
    pub(super) address: SocketAddr,
    /// When a bot lost it last.
    pub(super) lost_at: Option<Time>,
}

/// Counted from the beginning of the measurement.
pub(super) struct Measuring {
    since: Time,
    cpu_s: f64,
}

/// The counters and their results.
pub(super) struct Measured {
    turns: TurnLog,
    cpu_cores: f64,
    pub(super) rates: Rates,
    /// Bots that were stalled, and have left.
    pub(super) stalled: u32,
    /// Why bots that have left had been disconnected before, and how many.
    pub(super) ends: Vec<(String, u32)>,
}

/// The timing of a bot's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    late: Duration,
    /// Planned turns that end with this one: itself, and missed ones before it.
    due: u64,
    /// The instant for which the next one is planned.
    next: Time,
}

impl Turn {
    fn of(planned: Time, now: Time, interval: Duration) -> Turn {
        let late = now.since(planned);
        let due = 1 + (late.as_micros() / interval.as_micros().max(1)) as u64;
        Turn { late, due, next: planned.after(interval * u32::try_from(due).unwrap_or(u32::MAX)) }
    }
}

/// The timing of all turns.
struct TurnLog {
    due: u64,
    sent: u64,
    late_us: Histogram<u64>,
}

impl TurnLog {
    /// Turns lost in one go that are counted one by one.
    const LOST_MAX: u64 = 100_000;

    fn new() -> TurnLog {
        TurnLog { due: 0, sent: 0, late_us: late_histogram() }
    }

    /// A turn that was lost counts as late as it was when the bot came back: the correction of HdrHistogram for
    /// coordinated omission.
    fn take(&mut self, turn: Turn, sent: bool, interval: Duration) {
        self.due += turn.due;
        self.sent += u64::from(sent);
        for lost in 0..turn.due.min(Self::LOST_MAX) {
            let late = turn.late.saturating_sub(interval * lost as u32);
            self.late_us.saturating_record(late.as_micros() as u64);
        }
    }

    #[cfg(test)]
    fn sent_ratio(&self) -> f64 {
        self.sent as f64 / self.due.max(1) as f64
    }

    #[cfg(test)]
    fn late_p99_ms(&self) -> Option<f64> {
        (!self.late_us.is_empty()).then(|| self.late_us.value_at_quantile(0.99) as f64 / 1e3)
    }
}

/// The last second.
pub(super) struct Second {
    pub(super) since: Time,
    cpu_s: f64,
    /// Received by the present bots until then.
    pub(super) bytes: u64,
    late_us: Histogram<u64>,
}

impl<D: Decoder> Fleet<D> {
    pub(crate) fn new(options: &BotsOptions) -> Result<Fleet<D>, BotsError> {
        let servers = std::iter::once(options.server).chain(options.edges.iter().map(|edge| edge.address));
        let shared = SharedSockets::new(&options.scenario, servers);
        let all_own = shared.most() == 0 || options.brains.look(&options.scenario);
        let own = if all_own { options.scenario.players } else { options.scenario.decoded_bots() };
        allow_sockets(u64::from(own) + shared.most() as u64 + 64)?;
        if let Some(cores) = &options.cores {
            pin(cores);
        }
        let scenario = options.scenario.clone();
        let light = ClientOptions { bytes_per_s: 64_000, decode: Decode::Nothing, ..ClientOptions::default() };
        let replica = replica::ClientOptions { counts_bits: true, ..replica::ClientOptions::default() };
        let decoding = ClientOptions { decode: Decode::Objects, replica, ..light.clone() };
        let (now, numbers) = (clock::now(), share::numbers(options.share, &scenario));
        Ok(Fleet {
            bots: Vec::with_capacity(scenario.players as usize),
            decoders: Vec::with_capacity(scenario.decoded_bots() as usize),
            wanted: numbers.partition_point(|number| *number < scenario.profile.first(scenario.players)),
            share: options.share,
            numbers,
            leaving: Vec::new(),
            next_change: now,
            opened: 0,
            most_connected: 0,
            reconnected: 0,
            outages: Outages::new(&options.scenario.faults),
            order: Vec::with_capacity(scenario.players as usize),
            brains: options.brains.clone(),
            schema: kinds::schema(),
            options: [Arc::new(light), Arc::new(decoding)],
            issuer: crate::host::token_issuer(&scenario, &options.key),
            server: options.server,
            edges: options.edges.iter().map(|edge| Gate { address: edge.address, lost_at: None }).collect(),
            witness: Witness::new(&options.truths, &options.edges, &scenario)?,
            buffers: ReceiveBuffers::new(4),
            shared,
            out: Vec::new(),
            started: now,
            next: 0,
            next_look: now,
            interval: Duration::from_secs(1) / scenario.input_hz.max(1),
            measuring: None,
            measured: Measured {
                turns: TurnLog::new(),
                cpu_cores: 0.0,
                rates: Rates::default(),
                stalled: 0,
                ends: Vec::new(),
            },
            second: Second { since: now, cpu_s: clock::process_cpu_s(), bytes: 0, late_us: late_histogram() },
            scenario,
        })
    }

    /// Lets every bot that is due take its turn, or waits a moment.
    pub(crate) fn turn(&mut self) -> Result<(), BotsError> {
        let now = clock::now();
        self.change_members(now)?;
        self.witness.look(clock::now, eyes(&self.bots, &self.decoders), self.measuring.is_some());
        self.look(now);
        let served = match self.is_complete() {
            true => self.serve_in_order(),
            false => self.serve_all(now),
        };
        self.reconnect_the_lost(now)?;
        if served == 0 {
            self.rest();
        }
        self.give_up_if_alone()
    }

    /// While bots come and go, turns are not in order.
    fn serve_all(&mut self, now: Time) -> usize {
        let mut served = 0;
        for index in 0..self.bots.len() {
            if self.bots[index].next_turn <= now {
                self.serve(index, now);
                served += 1;
            }
        }
        served
    }

    fn serve_in_order(&mut self) -> usize {
        if self.order.is_empty() {
            self.order.extend(0..self.bots.len() as u32);
            self.order.sort_by_key(|&index| self.bots[index as usize].next_turn);
            self.next = 0;
        }
        for served in 0..BATCH {
            if served % FETCHED == 0 {
                self.fetch();
            }
            let now = clock::now();
            let Some(index) = self.order.get(self.next).map(|&index| index as usize) else { return served };
            if self.bots[index].next_turn > now {
                return served;
            }
            self.serve(index, now);
            self.next = (self.next + 1) % self.order.len();
        }
        BATCH
    }

    /// Asks for the memory of the next bots, so that serving each of them does not wait for it in turn.
    fn fetch(&self) {
        let next = self.order[self.next..].iter().take(FETCHED).map(|&index| &self.bots[index as usize]);
        let near = next.clone().fold(0, |sum, bot| sum ^ bot.fetch());
        let behind = next.fold(0, |sum, bot| sum ^ bot.core.fetch_behind());
        std::hint::black_box((near, behind));
    }

    /// The figures of the last second, once a second.
    pub(crate) fn take_progress(&mut self) -> Option<SecondCounts> {
        let now = clock::now();
        let elapsed_s = now.since(self.second.since).as_secs_f64();
        if elapsed_s < 1.0 {
            return None;
        }
        self.note_connected();
        let cpu_s = clock::process_cpu_s();
        let bytes: u64 = self.bots.iter().map(|bot| bot.received.bytes).sum();
        let per_bot = bytes.saturating_sub(self.second.bytes) as f64 / self.connected().max(1) as f64;
        let near_ages = self.witness.take_near_ages();
        let progress = Progress {
            connected: self.connected(),
            ended: sum_of(&self.ends()),
            kbit_per_s: per_bot * 8.0 / 1e3 / elapsed_s,
            near_age_p99_ms: NeighbourLog::near_age_p99_ms(std::iter::once(&near_ages)),
            cpu_cores: (cpu_s - self.second.cpu_s) / elapsed_s,
            late_p99_ms: self.second.late_us.value_at_quantile(0.99) as f64 / 1e3,
        };
        self.second.late_us.reset();
        (self.second.since, self.second.cpu_s, self.second.bytes) = (now, cpu_s, bytes);
        Some(SecondCounts { progress, near_ages })
    }

    pub(crate) fn connected(&self) -> u32 {
        self.bots.iter().filter(|bot| bot.core.is_connected()).count() as u32
    }

    /// Whether every wanted bot is connected or has failed to.
    pub(crate) fn all_have_tried(&self) -> bool {
        self.is_complete() && self.bots.iter().all(|bot| bot.core.is_connected() || bot.has_ended())
    }

    pub(crate) fn begin_measurement(&mut self) {
        let now = clock::now();
        self.measuring = Some(Measuring { since: now, cpu_s: clock::process_cpu_s() });
        self.witness.begin();
        for bot in &mut self.bots {
            bot.measured_from = now;
            bot.measured_from_bytes = bot.received.bytes;
            bot.measured_from_datagrams = bot.received.datagrams;
            bot.measured_from_bits = bot.bits().to_vec();
        }
    }

    pub(crate) fn end_measurement(&mut self) {
        let Some(measuring) = self.measuring.take() else { return };
        let now = clock::now();
        let elapsed_s = now.since(measuring.since).as_secs_f64().max(1e-6);
        // A stall that lasts until the end has left no late turn behind.
        for bot in self.bots.iter_mut().filter(|bot| bot.connection.is_some()) {
            let turn = Turn::of(bot.next_turn, now, self.interval);
            if turn.due > 1 {
                self.measured.turns.take(turn, false, self.interval);
                bot.has_stalled |= turn.late > STALL;
            }
        }
        for bot in &self.bots {
            let times = (bot.service.since().since(measuring.since), now.since(measuring.since));
            self.outages.note(bot.client_id, times, false);
        }
        self.measured.cpu_cores = (clock::process_cpu_s() - measuring.cpu_s) / elapsed_s;
        self.bots.iter().for_each(|bot| self.measured.rates.take(now, bot));
    }

    /// Disconnects.
    pub(crate) fn leave(&mut self) {
        let now = clock::now();
        for bot in &mut self.bots {
            bot.core.close(now, "the run is over");
            bot.transmit(now, &mut self.out, &mut self.shared);
        }
    }

    /// One bot says this to the server, for all. False if none can.
    pub(super) fn say(&mut self, talk: &Talk) -> bool {
        let speaker = self.bots.iter_mut().find(|bot| bot.core.is_connected());
        speaker.is_some_and(|bot| bot.core.send(talk::LANE, talk).is_ok())
    }

    /// Messages of the server since the last call.
    pub(super) fn hear(&mut self) -> Vec<Talk> {
        self.bots.iter_mut().flat_map(|bot| std::mem::take(&mut bot.heard)).collect()
    }

    /// Learns the server's last state, which came from another machine.
    pub(super) fn learn_truth(&mut self, truth: &Snapshot) {
        self.witness.tell(truth);
    }

    /// Compares with the server's final state, if there is one, and returns all counts.
    pub(crate) fn gather(&mut self, compare: bool) -> Gathered {
        let ends = self.ends();
        self.note_connected();
        if compare {
            self.witness.compare_final(eyes(&self.bots, &self.decoders), FINAL_PATIENCE);
        }
        let stalled = self.bots.iter().filter(|bot| bot.has_stalled).count() as u32;
        let measured = &self.measured;
        let (bits, decoded_s) = measured.rates.bits(&self.schema);
        let (at_rest, in_play) = (self.witness.at_rest(), self.witness.in_play());
        let bots = Bots {
            connected: self.most_connected,
            disconnects: sum_of(&ends),
            reconnected: self.reconnected,
            decoded: self.decoders.len() as u32,
            state_mismatches: at_rest.mismatches,
            objects_compared: at_rest.objects,
            not_compared: self.witness.not_compared(),
            compared_in_play: in_play.objects,
            without_truth_in_play: !self.witness.had_truth_in_play(),
            mismatches_in_play: in_play.mismatches,
            stalled: stalled + measured.stalled,
            cpu_cores: measured.cpu_cores,
            ..Bots::default()
        };
        let report = BotsReport {
            bots,
            faults: self.outages.figures(),
            ends,
            without_last: self.witness.without_last().to_vec(),
            differences: self.witness.differences(),
            cpu_cores_of: vec![(throng_machine::boot_id(), measured.cpu_cores)],
            known_within_40_m: self.witness.known_within_40_m(),
            age_error_ms: self.witness.age_error_ms(),
            worst: self.witness.sights().worst(&measured.rates.by_client),
            ..BotsReport::default()
        };
        Gathered {
            report,
            inputs_due: measured.turns.due,
            inputs_sent: measured.turns.sent,
            late_us: vec![Counted::of(&measured.turns.late_us)],
            rates: measured.rates.of_bots.clone(),
            known: vec![self.witness.known()],
            looks: vec![self.witness.looks()],
            bits,
            decoded_s,
        }
    }

    /// Why connections ended, and how many.
    fn ends(&self) -> Vec<(String, u32)> {
        let mut ends = self.measured.ends.clone();
        for bot in &self.bots {
            bot.count_end(&mut ends);
        }
        ends
    }

    /// Decoding bots handle received datagrams between their turns.
    fn look(&mut self, now: Time) {
        if now < self.next_look {
            return;
        }
        self.next_look = now.after(LOOK_INTERVAL);
        for &place in &self.decoders {
            self.bots[place as usize].receive(now, &mut self.buffers, self.witness.clock());
        }
    }

    fn serve(&mut self, index: usize, now: Time) {
        if let Port::Shared { socket, .. } = self.bots[index].port {
            self.empty(socket, now);
        }
        let bot = &mut self.bots[index];
        let turn = Turn::of(bot.next_turn, now, self.interval);
        bot.next_turn = turn.next;
        bot.receive(now, &mut self.buffers, self.witness.clock());
        let sent = bot.send_input(now, &self.scenario);
        bot.transmit(now, &mut self.out, &mut self.shared);
        if !self.outages.is_empty()
            && let Some(from) = bot.service.look(bot.served(now), now)
            && let Some(measuring) = &self.measuring
        {
            self.outages.note(bot.client_id, (from.since(measuring.since), now.since(measuring.since)), true);
        }
        self.second.late_us.saturating_record(turn.late.as_micros() as u64);
        if self.measuring.is_some() && bot.connection.is_some() {
            self.measured.turns.take(turn, sent, self.interval);
            bot.has_stalled |= turn.late > STALL;
        }
    }

    /// Hands out what has come at a shared socket.
    fn empty(&mut self, socket: usize, now: Time) {
        let Fleet { bots, shared, .. } = self;
        let Some(numbers) = shared.begin_to_empty(socket, now) else { return };
        std::hint::black_box(numbers.fold(0, |sum, number| sum ^ bots[number as usize].core.fetch()));
        shared.empty(socket, now, &mut |number, way, datagram| {
            bots[number as usize].take(now, way, datagram);
        });
    }

    /// In a run with faults, bots that have lost their edge come back through another one.
    fn reconnect_the_lost(&mut self, now: Time) -> Result<(), BotsError> {
        if self.outages.is_empty() || self.edges.len() < 2 {
            return Ok(());
        }
        for index in 0..self.bots.len() {
            if self.bots[index].has_ended() {
                self.reconnect(index, now)?;
            }
        }
        Ok(())
    }

    fn rest(&self) {
        let next = self.order.get(self.next).map_or(self.next_look, |&index| self.bots[index as usize].next_turn);
        let pause = next.min(self.next_look).since(clock::now());
        std::thread::sleep(pause.clamp(SHORTEST_SLEEP, LONGEST_SLEEP));
    }

    fn give_up_if_alone(&self) -> Result<(), BotsError> {
        // A share of few players may have no bot yet.
        if self.bots.is_empty() {
            return Ok(());
        }
        let waited = clock::now().since(self.started);
        if waited > PATIENCE && self.most_connected == 0 && self.bots.iter().all(|bot| bot.connection.is_none()) {
            return Err(BotsError::NoAnswer { server: self.server, waited_s: waited.as_secs() });
        }
        Ok(())
    }
}

/// The decoders of the decoding bots. A bot whose connection has ended has none.
fn eyes<'a, D: Decoder>(bots: &'a [Bot<D>], decoders: &'a [u32]) -> impl Iterator<Item = Eyes<'a, D>> {
    decoders.iter().map(|&place| &bots[place as usize]).map(|bot| {
        let is_connected = bot.core.is_connected();
        Eyes { replica: bot.core.replica(), connection: bot.connection.filter(|_| is_connected), edge: bot.edge }
    })
}

fn sum_of(ends: &[(String, u32)]) -> u32 {
    ends.iter().map(|(_, count)| count).sum()
}

pub(super) fn late_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 2).expect("the bounds are possible")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bot_that_stands_still_for_two_seconds_in_twenty_is_seen() {
        let interval = Duration::from_millis(33);
        let mut log = TurnLog::new();
        let (mut now, mut planned, mut stalled) = (Time(0), Time(0), false);
        while now < Time(20_000_000) {
            now = now.max(planned).after(if now > Time(9_000_000) && !stalled {
                Duration::from_secs(2)
            } else {
                Duration::from_micros(500)
            });
            let turn = Turn::of(planned, now, interval);
            planned = turn.next;
            stalled |= turn.late > STALL;
            log.take(turn, true, interval);
        }
        assert!(stalled);
        // 60 of 606 turns were lost.
        assert!((0.89..0.91).contains(&log.sent_ratio()), "{}", log.sent_ratio());
        // A tenth of the turns fell into the stall, evenly over 2 s of lateness: a hundredth is later than 1.8 s.
        let p99_ms = log.late_p99_ms().expect("turns");
        assert!((1_750.0..1_850.0).contains(&p99_ms), "{p99_ms}");
    }

    #[test]
    fn a_bot_that_keeps_its_plan_is_never_late() {
        let interval = Duration::from_millis(20);
        let mut log = TurnLog::new();
        for number in 0..500u64 {
            let planned = Time(number * 20_000);
            let turn = Turn::of(planned, planned.after(Duration::from_micros(300)), interval);
            assert_eq!((turn.due, turn.next), (1, Time(planned.0 + 20_000)));
            log.take(turn, true, interval);
        }
        assert_eq!((log.sent_ratio(), log.late_p99_ms().map(f64::round)), (1.0, Some(0.0)));
    }
}
