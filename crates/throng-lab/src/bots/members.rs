//! Bots that come and go while the fleet plays.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use throng::replica::KindBits;
use throng::{ClientCore, Decode, Decoder, Schema, Time};
use throng_crowd::pulse::SentInputs;
use throng_crowd::scenario::Scenario;

use super::BotsError;
use super::bot::{Bot, Link, Received};
use super::fleet::{Fleet, IP_UDP_BYTES};
use super::outage::Service;
use super::port::Port;

/// Time between two bots that begin to connect, or that leave.
const CHANGE_INTERVAL: Duration = Duration::from_micros(500);
/// A turn makes up for so much delay at most.
const CATCH_UP: Duration = Duration::from_millis(50);
/// A bot that leaves is kept for so long, so that its farewell passes a slow path, and its socket takes what is on its way.
const FAREWELL: Duration = Duration::from_secs(1);
/// The rate to a bot that was measured for a shorter time is not counted.
const MEASURED_MIN: Duration = Duration::from_secs(1);
/// An edge that a bot has lost is avoided for so long, as if a matchmaker knew.
const DOWN: Duration = Duration::from_secs(10);
/// The golden ratio's share of 2^32. Its multiples are spread evenly over the circle, however many there are (Knuth, The Art
/// of Computer Programming 3, section 6.4).
const GOLDEN: u32 = 2_654_435_769;

/// Payload to bots by time, with and without the headers of IP and UDP, in kbit/s.
#[derive(Debug, Default)]
pub(super) struct Rates {
    pub(super) of_bots: Vec<(f64, f64)>,
    /// The payload by index of the connection at the server.
    pub(super) by_client: Vec<(u32, f64)>,
    /// The state of the decoding bots by kind, and the sum of the times in which it came.
    bits: Vec<KindBits>,
    decoded_s: f64,
}

/// The bits before the fields of an object.
const HEAD: &str = "slot, id and mask";

impl Rates {
    /// The rate to a bot since it was measured.
    pub(super) fn take<D: Decoder>(&mut self, now: Time, bot: &Bot<D>) {
        let measured = now.since(bot.measured_from);
        if measured < MEASURED_MIN {
            return;
        }
        let rate = |bytes: u64| bytes as f64 * 8.0 / 1e3 / measured.as_secs_f64();
        let bytes = bot.received.bytes - bot.measured_from_bytes;
        let datagrams = bot.received.datagrams - bot.measured_from_datagrams;
        self.of_bots.push((rate(bytes), rate(bytes + datagrams * IP_UDP_BYTES)));
        self.by_client.extend(bot.connection.map(|client| (client, rate(bytes))));
        if bot.is_decoder && !bot.bits().is_empty() {
            self.decoded_s += measured.as_secs_f64();
            self.add_bits(bot.bits(), &bot.measured_from_bits);
        }
    }

    /// Adds the difference of two states of the counters.
    fn add_bits(&mut self, now: &[KindBits], before: &[KindBits]) {
        let none = KindBits::default();
        self.bits.resize(now.len().max(self.bits.len()), KindBits::default());
        for (number, (sum, now)) in self.bits.iter_mut().zip(now).enumerate() {
            let before = before.get(number).unwrap_or(&none);
            sum.updates += now.updates - before.updates;
            sum.head_bits += now.head_bits - before.head_bits;
            sum.field_bits.resize(now.field_bits.len(), 0);
            for (field, bits) in sum.field_bits.iter_mut().enumerate() {
                *bits += now.field_bits[field] - before.field_bits.get(field).unwrap_or(&0);
            }
        }
    }

    /// The bits of each kind and field, and the seconds in which decoding bots were sent them.
    pub(super) fn bits(&self, schema: &Schema) -> (Vec<(String, String, u64)>, f64) {
        let of_kind = |(kind, bits): (&throng::schema::Kind, &KindBits)| {
            let fields = kind.fields.iter().map(|field| field.name).zip(bits.field_bits.iter().copied());
            let all = fields.chain(std::iter::once((HEAD, bits.head_bits)));
            all.map(|(field, bits)| (kind.name.to_owned(), field.to_owned(), bits)).collect::<Vec<_>>()
        };
        (schema.kinds().iter().zip(&self.bits).flat_map(of_kind).collect(), self.decoded_s)
    }
}

/// The moment of the tick at which bot `number` takes its turns: those of the first n bots are spread evenly for each n.
pub(super) fn phase(interval: Duration, number: u32) -> Duration {
    Duration::from_micros(phase_of(interval.as_micros() as u64, number))
}

/// The part of a tick in which bot `number` takes its turns, if a tick has so many parts; counted from 0.
pub(super) fn phase_of(parts: u64, number: u32) -> u64 {
    (parts * u64::from(number.wrapping_mul(GOLDEN))) >> 32
}

/// The first moment from `now` on that lies `offset` behind a multiple of the interval.
pub(super) fn first_turn(started: Time, now: Time, interval: Duration, offset: Duration) -> Time {
    let interval_us = interval.as_micros().max(1) as u64;
    let first_us = started.0 + offset.as_micros() as u64;
    let rounds = now.0.saturating_sub(first_us).div_ceil(interval_us);
    Time(first_us + rounds * interval_us)
}

/// Whether bot `number` of `players` is one of the `witnesses` that decode what they are sent. They are spread evenly: the
/// server writes to its connections in the order in which they came, so that the first are served before the last.
pub(crate) fn is_witness(number: u32, witnesses: u32, players: u32) -> bool {
    witnesses_before(number.saturating_add(1), witnesses, players) > witnesses_before(number, witnesses, players)
}

/// The witnesses among the first `number` bots.
fn witnesses_before(number: u32, witnesses: u32, players: u32) -> u32 {
    (u64::from(number) * u64::from(witnesses) / u64::from(players.max(1))) as u32
}

/// To which of `count` edges, or load workers, bot `number` belongs. Witnesses take them in turn, and so do the others: if all did
/// together, the witnesses of a thousand bots, each fiftieth, would all be at the second of two edges.
pub(super) fn turn_of(number: u32, scenario: &Scenario, count: usize) -> usize {
    let (witnesses, players) = (scenario.decoded_bots(), scenario.players);
    let before = witnesses_before(number, witnesses, players);
    let turn = if is_witness(number, witnesses, players) { before } else { number - before };
    turn as usize % count.max(1)
}

impl<D: Decoder> Fleet<D> {
    /// So many bots are to play, at most as many as the scenario has: others connect, or the newest leave, one after the other.
    pub(crate) fn want(&mut self, players: u32) {
        let players = players.min(self.scenario.players);
        let wanted = self.numbers.partition_point(|number| *number < players);
        if std::mem::replace(&mut self.wanted, wanted) != wanted {
            self.next_change = self.next_change.max(throng_machine::clock::now());
        }
    }

    /// Whether as many bots play as are wanted.
    pub(super) fn is_complete(&self) -> bool {
        self.bots.len() == self.wanted
    }

    /// Lets bots come and go until there are as many as wanted.
    pub(super) fn change_members(&mut self, now: Time) -> Result<(), BotsError> {
        self.next_change = self.next_change.max(Time(now.0.saturating_sub(CATCH_UP.as_micros() as u64)));
        while !self.is_complete() && self.next_change <= now {
            self.next_change = self.next_change.after(CHANGE_INTERVAL);
            self.order.clear();
            match self.bots.len() < self.wanted {
                true => self.open(now)?,
                false => self.dismiss(now),
            }
        }
        self.see_off(now);
        Ok(())
    }

    fn open(&mut self, now: Time) -> Result<(), BotsError> {
        let place = self.bots.len();
        let Some(&number) = self.numbers.get(place) else { return Ok(()) };
        let is_decoder = is_witness(number, self.scenario.decoded_bots(), self.scenario.players);
        self.opened += 1;
        let edge = (!self.edges.is_empty()).then(|| turn_of(number, &self.scenario, self.edges.len()));
        let server = edge.map_or(self.server, |edge| self.edges[edge].address);
        let client_id = self.share.client_id(self.opened);
        let token = self.issuer.issue(client_id, &[server]).expect("one server, in order");
        let brain = self.brains.make(&self.scenario, number);
        let options = Arc::clone(&self.options[usize::from(is_decoder || brain.looks())]);
        let core = ClientCore::with_decoder(token, Arc::clone(&self.schema), Arc::clone(&options), now)
            .expect("default options");
        let port = self.port(place as u32, options.decode, server)?;
        if is_decoder {
            self.decoders.push(place as u32);
        }
        self.bots.push(Bot {
            core,
            port,
            link: Link::new(self.scenario.net, self.scenario.seed, number),
            brain,
            sequence: 0,
            inputs: SentInputs::default(),
            next_turn: first_turn(self.started, now, self.interval, phase(self.interval, number)),
            is_decoder,
            has_stalled: false,
            edge,
            client_id: client_id as u32,
            connection: None,
            end: None,
            service: Service::new(now),
            received: Received::default(),
            measured_from: now,
            measured_from_bytes: 0,
            measured_from_datagrams: 0,
            measured_from_bits: Vec::new(),
            heard: Vec::new(),
        });
        Ok(())
    }

    /// A port from which nobody has sent to the server before.
    fn port(&mut self, number: u32, decode: Decode, server: SocketAddr) -> Result<Port, BotsError> {
        let shared = if decode == Decode::Nothing { self.shared.port(number, server)? } else { None };
        Ok(shared.map_or_else(|| Port::own(server), Ok)?)
    }

    /// A bot that has lost its edge connects to the next one, as the same client.
    pub(super) fn reconnect(&mut self, index: usize, now: Time) -> Result<(), BotsError> {
        let bot = &mut self.bots[index];
        let lost = bot.edge.unwrap_or(0);
        self.edges[lost].lost_at = Some(now);
        let others = (1..self.edges.len()).map(|steps| (lost + steps) % self.edges.len());
        let is_up = |edge: &usize| self.edges[*edge].lost_at.is_none_or(|lost_at| now.since(lost_at) > DOWN);
        let edge = others.clone().find(is_up).or(others.clone().next()).unwrap_or(lost);
        let server = self.edges[edge].address;
        let token = self.issuer.issue(u64::from(bot.client_id), &[server]).expect("one server, in order");
        // The counters of state begin anew with the decoder.
        if self.measuring.is_some() {
            self.measured.rates.take(now, bot);
        }
        bot.measured_from = now;
        bot.measured_from_bytes = bot.received.bytes;
        bot.measured_from_datagrams = bot.received.datagrams;
        bot.measured_from_bits.clear();
        let options = Arc::clone(&self.options[usize::from(bot.is_decoder || bot.brain.looks())]);
        let decode = options.decode;
        bot.core = ClientCore::with_decoder(token, Arc::clone(&self.schema), options, now).expect("default options");
        self.shared.forget(&bot.port);
        let port = self.port(index as u32, decode, server)?;
        let bot = &mut self.bots[index];
        bot.port = port;
        (bot.edge, bot.connection, bot.end, bot.inputs) = (Some(edge), None, None, SentInputs::default());
        bot.service.reconnect();
        self.reconnected += 1;
        Ok(())
    }

    /// The newest bot is told to leave. That is no disconnect.
    fn dismiss(&mut self, now: Time) {
        self.note_connected();
        let Some(mut bot) = self.bots.pop() else { return };
        self.decoders.pop_if(|place| *place as usize == self.bots.len());
        self.measured.stalled += u32::from(bot.has_stalled);
        bot.count_end(&mut self.measured.ends);
        if self.measuring.is_some() {
            self.measured.rates.take(now, &bot);
        }
        self.second.bytes = self.second.bytes.saturating_sub(bot.received.bytes);
        bot.core.close(now, "it was told to leave");
        self.shared.forget(&bot.port);
        self.leaving.push((now.after(FAREWELL), bot));
    }

    /// Sends the farewells of bots that leave.
    fn see_off(&mut self, now: Time) {
        for (_, bot) in &mut self.leaving {
            bot.transmit(now, &mut self.out, &mut self.shared);
        }
        self.leaving.retain(|(until, _)| *until > now);
    }

    /// Remembers the most bots that were connected at once.
    pub(super) fn note_connected(&mut self) {
        let connected = self.bots.iter().filter(|bot| bot.connection.is_some()).count() as u32;
        self.most_connected = self.most_connected.max(connected);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use throng::Key;
    use throng::replica::ReplicaClient;
    use throng_crowd::scenario::{Overrides, Scenario};

    use super::*;
    use crate::bots::BotsOptions;
    use crate::bots::fleet::Gate;

    /// Each bot is sent what comes for it, and nobody what comes for one that has left. Those that decode are known.
    fn check_places(fleet: &Fleet<ReplicaClient>) {
        let mut addresses: Vec<(Ipv4Addr, u32)> = fleet.shared.addresses().collect();
        let of_bot = |(number, bot): (u32, &Bot<ReplicaClient>)| Some((bot.port.shared_address()?, number));
        let mut expected: Vec<(Ipv4Addr, u32)> = (0..).zip(&fleet.bots).filter_map(of_bot).collect();
        addresses.sort_unstable();
        expected.sort_unstable();
        assert_eq!(addresses, expected);
        let decoders = (0..).zip(&fleet.bots).filter(|(_, bot)| bot.is_decoder).map(|(place, _)| place);
        assert_eq!(fleet.decoders, decoders.collect::<Vec<u32>>());
    }

    /// Its server is a socket that says nothing.
    fn fleet(players: u32) -> (Fleet<ReplicaClient>, std::net::UdpSocket) {
        let silent = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let overrides = Overrides { players: Some(players), ..Overrides::default() };
        let scenario = Scenario::resolve("crowd", &overrides).expect("a scenario");
        let options = BotsOptions::new(silent.local_addr().expect("an address"), Key::new([7; 32]), scenario);
        (Fleet::new(&options).expect("sockets"), silent)
    }

    #[test]
    fn a_connection_that_has_ended_counts_in_all_seconds_also_after_its_bot_was_told_to_leave() {
        let (mut fleet, _silent) = fleet(3);
        let mut now = throng_machine::clock::now();
        let mut ended = |fleet: &mut Fleet<ReplicaClient>, wanted| {
            fleet.want(wanted);
            while !fleet.is_complete() {
                now = now.after(CHANGE_INTERVAL);
                fleet.change_members(now).expect("sockets");
            }
            if wanted == 3 {
                fleet.bots[2].end = Some(throng::EndReason::Malformed(String::new()));
            }
            fleet.second.since = Time(0);
            fleet.take_progress().map(|counts| counts.progress.ended)
        };
        assert_eq!([3, 1, 2].map(|wanted| ended(&mut fleet, wanted)), [Some(1); 3]);
        let report = fleet.gather(false).report();
        assert_eq!((report.bots.disconnects, report.cpu_cores_here()), (1, Some(report.bots.cpu_cores)));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn shared_sockets_know_the_bots_that_play_and_no_others() {
        const PLAYERS: u32 = 60;
        let (mut fleet, _silent) = fleet(PLAYERS);
        fleet.edges.extend([fleet.server; 2].map(|address| Gate { address, lost_at: None }));
        let mut now = throng_machine::clock::now();
        let mut given = Vec::new();
        for wanted in [PLAYERS, 20, PLAYERS, 1, 40] {
            fleet.want(wanted);
            while !fleet.is_complete() {
                now = now.after(CHANGE_INTERVAL);
                fleet.change_members(now).expect("sockets");
            }
            check_places(&fleet);
            fleet.reconnect(0, now).expect("a socket");
            check_places(&fleet);
            given.extend(fleet.shared.addresses());
        }
        // An address is that of one bot for ever.
        assert!(given.len() >= PLAYERS as usize, "addresses of 127.0.0.0/8 can be used: {given:?}");
        given.sort_unstable();
        given.dedup();
        assert!(given.windows(2).all(|pair| pair[0].0 != pair[1].0), "{given:?}");
    }

    #[test]
    fn witnesses_sit_in_every_part_of_the_order_in_which_bots_are_served() {
        for (witnesses, players) in [(20, 1_000), (10, 100), (32, 10_000), (7, 100), (1, 3), (5, 5), (0, 50)] {
            let seats: Vec<u32> = (0..players).filter(|&number| is_witness(number, witnesses, players)).collect();
            assert_eq!(seats.len() as u32, witnesses, "{witnesses} of {players}");
            let longest = players.div_ceil(witnesses.max(1));
            for pair in seats.windows(2) {
                assert!(pair[1] - pair[0] <= longest, "{witnesses} of {players}: nobody between {pair:?}");
            }
            if let (Some(first), Some(last)) = (seats.first(), seats.last()) {
                assert!(
                    *first < longest && players - 1 - last < longest,
                    "{witnesses} of {players}: {first} to {last}"
                );
            }
        }
    }

    #[test]
    fn witnesses_are_at_all_edges_and_so_are_the_others() {
        for (players, edges) in [(60, 2), (1_000, 2), (1_000, 3), (1_400, 4), (300, 6), (7, 2)] {
            let scenario = Scenario::resolve("crowd", &Overrides { players: Some(players), ..Overrides::default() });
            let scenario = scenario.expect("a scenario");
            let witnesses = scenario.decoded_bots();
            let mut bots = vec![[0u32; 2]; edges];
            for number in 0..players {
                let is_witness = is_witness(number, witnesses, players);
                bots[turn_of(number, &scenario, edges)][usize::from(is_witness)] += 1;
            }
            for kind in [0, 1] {
                let (least, most) = bots
                    .iter()
                    .map(|bots| bots[kind])
                    .fold((u32::MAX, 0), |(least, most), of| (least.min(of), most.max(of)));
                assert!(most - least <= 1, "{players} players, {edges} edges: {bots:?}");
            }
        }
    }

    #[test]
    fn turns_are_spread_over_the_tick_however_many_bots_there_are() {
        let interval = Duration::from_micros(33_333);
        for bots in [3, 10, 100, 337, 1_000, 10_000u32] {
            let mut turns: Vec<Duration> = (0..bots).map(|number| phase(interval, number)).collect();
            turns.sort_unstable();
            assert!(turns[0] < interval && turns[bots as usize - 1] < interval);
            let longest = turns.windows(2).map(|pair| pair[1] - pair[0]).max().expect("several bots");
            assert!(longest <= interval * 5 / 2 / bots + Duration::from_micros(2), "{bots} bots: {longest:?}");
        }
    }

    #[test]
    fn the_first_turn_is_never_in_the_past() {
        let interval = Duration::from_millis(20);
        let first = |now, offset_ms| first_turn(Time(1_000), Time(now), interval, Duration::from_millis(offset_ms)).0;
        assert_eq!(first(1_000, 0), 1_000);
        assert_eq!(first(1_001, 0), 21_000);
        assert_eq!(first(1_000, 5), 6_000);
        assert_eq!(first(6_001, 5), 26_000);
        // After a day of 50 turns a second.
        assert_eq!(first(86_400_000_000, 5), 86_400_006_000);
    }
}
