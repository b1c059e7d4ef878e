//! Servers and edges that meet over a simulated bus alone: delay, lost and doubled messages, subjects that overtake each other, cuts, resets,
//! a bus that dies and returns, strangers who write on it, links that end and begin anew.
//!
//! The oracle stands outside. It writes down each datagram that a process sends, and knows each one that a process is given: none that
//! its sender has not sent there, none twice, none out of order, and none missing before a later one unless its receiver has counted a loss
//! since. It asks the games who is where, and compares all clients with them at the end.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use throng::Time;
use throng::net::{Driver, DriverCounters, ReceiveError, SendError, Transmit};
use throng_bus::envelope::{Envelope, Kind, Previous};
use throng_bus::sim::{SimBus, SimNet, Weather};
use throng_bus::{Bus, Limits, MemberId, Sequence, Subject};
use throng_edge::{BusDriver, BusNetwork, BusNetworkCounters, WorldName, edge_user_data};
use throng_seeds::{for_seeds, is_partial};

use crate::moves::{homes, pace, two_worlds};
use crate::stage::{Side, Stage, Word};

const ORIGINS: usize = 2;
const EDGES: usize = 2;
const CLIENTS: usize = 8;
/// Publishes as itself, and lies.
const RUDE: MemberId = MemberId(99);
/// Of one sender, so many datagrams and bytes wait for an endpoint at most.
const WAITING_MAX: (usize, usize) = (4_096, 4 << 20);

fn member_of(side: Side) -> MemberId {
    MemberId(match side {
        Side::Origin(number) => 1 + number as u64,
        Side::Edge(number) => 11 + number as u64,
    })
}

fn members() -> impl Iterator<Item = MemberId> {
    (0..ORIGINS).map(Side::Origin).chain((0..EDGES).map(Side::Edge)).map(member_of)
}

/// As docs/edges.md has it.
fn address_of((member, port): (MemberId, u16)) -> SocketAddr {
    let number: [u16; 4] = std::array::from_fn(|index| (member.0 >> (48 - 16 * index)) as u16);
    let [a, b, c, d] = number;
    (Ipv6Addr::new(0xFD74, 0x6872, 0x6F6E, 0x6700, a, b, c, d), port).into()
}

/// Datagrams of one endpoint for another one.
#[derive(Default)]
struct Stream {
    sent: Vec<Vec<u8>>,
    /// Those before it have arrived, or never will.
    next: usize,
    /// The losses that its receiver had counted when it had last been given everything that was there before the newest arrival.
    counted: u64,
}

/// Everything that was sent, and what came of it.
#[derive(Default)]
struct Ledger {
    streams: HashMap<(SocketAddr, SocketAddr), Stream>,
    arrived: u64,
    missing: u64,
    wrong: Option<String>,
}

impl Ledger {
    fn send(&mut self, from: SocketAddr, to: SocketAddr, datagrams: Vec<Vec<u8>>) {
        self.streams.entry((from, to)).or_default().sent.extend(datagrams);
    }

    /// `counted` is what the receiver counts as lost now, and `counted_before` what it did after its last look.
    fn receive(&mut self, from: SocketAddr, to: SocketAddr, datagram: &[u8], (counted_before, counted): (u64, u64)) {
        let stream = self.streams.entry((from, to)).or_default();
        let (before, after) = stream.sent.split_at(stream.next);
        let place = after.iter().position(|sent| sent == datagram);
        // A request for a connection is repeated byte for byte, so nobody can say which of them came.
        let passed_by = &after[..place.unwrap_or(0)];
        let missing = passed_by.iter().filter(|&sent| !before.contains(sent)).count();
        self.wrong = self.wrong.take().or_else(|| match place {
            None if before.iter().any(|sent| sent == datagram) => {
                Some(format!("a datagram from {from} came to {to} twice, or out of order"))
            }
            None => Some(format!("{from} has not sent a datagram that came to {to}")),
            Some(_) if missing > 0 && counted <= stream.counted => {
                Some(format!("{missing} datagrams from {from} to {to} are missing, and nothing counts them"))
            }
            Some(_) => None,
        });
        (self.arrived, self.missing) = (self.arrived + 1, self.missing + missing as u64);
        (stream.next, stream.counted) = (stream.next + place.map_or(0, |place| place + 1), counted_before);
    }
}

fn counted(network: &BusNetwork<SimBus>) -> u64 {
    let BusNetworkCounters { gaps, dropped, no_port, .. } = network.counters();
    gaps + dropped + no_port
}

/// An endpoint that the ledger looks at. It brings the bus to the time of its process.
struct Witnessed {
    driver: BusDriver<SimBus>,
    network: BusNetwork<SimBus>,
    net: SimNet,
    ledger: Arc<Mutex<Ledger>>,
    counted: u64,
}

impl Witnessed {
    fn pass(&self, now: Time) {
        self.net.pass(now.since(self.net.now()));
    }
}

impl Driver for Witnessed {
    fn send(&mut self, now: Time, transmit: &Transmit<'_>) -> Result<usize, SendError> {
        self.pass(now);
        let taken = self.driver.send(now, transmit)?;
        let datagrams = transmit.bytes.chunks(transmit.segment_bytes.max(1)).take(taken).map(<[u8]>::to_vec).collect();
        self.ledger.lock().unwrap().send(self.local_address(), transmit.to, datagrams);
        Ok(taken)
    }

    fn receive(&mut self, now: Time, sink: &mut dyn FnMut(Time, SocketAddr, &mut [u8])) -> Result<usize, ReceiveError> {
        self.pass(now);
        let (local, before, mut of_each) = (self.local_address(), self.counted, HashMap::new());
        let result = self.driver.receive(now, &mut |at, from, bytes| {
            // Everything waits already: nothing more is counted while it is handed over.
            self.ledger.lock().unwrap().receive(from, local, bytes, (before, counted(&self.network)));
            let (datagrams, length): &mut (usize, usize) = of_each.entry(from.ip()).or_default();
            (*datagrams, *length) = (*datagrams + 1, *length + bytes.len());
            sink(at, from, bytes);
        });
        self.counted = counted(&self.network);
        let is_beyond = |&&(datagrams, length): &&(usize, usize)| datagrams > WAITING_MAX.0 || length > WAITING_MAX.1;
        if let Some(beyond) = of_each.values().find(is_beyond) {
            self.ledger.lock().unwrap().wrong = Some(format!("{beyond:?} datagrams and bytes waited for {local}"));
        }
        result
    }

    fn local_address(&self) -> SocketAddr {
        self.driver.local_address()
    }

    fn max_segments(&self) -> usize {
        self.driver.max_segments()
    }

    fn counters(&self) -> &DriverCounters {
        self.driver.counters()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kindness {
    /// No fault lasts for long enough to end a link.
    Gentle,
    /// A process is cut off for longer than a link lasts.
    Hard,
}

#[derive(Default)]
struct Figures {
    arrived: u64,
    missing: u64,
    moved: u64,
    gaps: u64,
    dropped: u64,
    forged: u64,
    ended: u64,
    heard: usize,
}

struct Storm {
    rng: fastrand::Rng,
    kindness: Kindness,
    net: SimNet,
    networks: BTreeMap<MemberId, BusNetwork<SimBus>>,
    ledger: Arc<Mutex<Ledger>>,
    rude: SimBus,
    stage: Stage,
    /// The member that is cut off, or `None` if the bus is away, until then.
    trouble: Option<(Option<MemberId>, Time)>,
    next_trouble: Time,
    said: [u32; CLIENTS],
    ended: u64,
}

impl Storm {
    fn new(seed: u64, kindness: Kindness) -> Storm {
        let mut rng = fastrand::Rng::with_seed(seed);
        let weather = Weather {
            delay: Duration::from_micros(100)..Duration::from_millis([2, 30, 80][rng.usize(..3)]),
            twice: rng.f64() * 0.3,
            lost: [0.0, rng.f64() * 0.15][rng.usize(..2)],
            ..Weather::default()
        };
        let net = SimNet::new(seed, weather);
        let world = WorldName::new("storm").unwrap();
        let networks: BTreeMap<MemberId, BusNetwork<SimBus>> =
            members().map(|member| (member, BusNetwork::new(net.join(member, Limits::default()), &world))).collect();
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let (of_stage, net_of_stage, ledger_of_stage) = (networks.clone(), net.clone(), ledger.clone());
        let mut stage = two_worlds("none", seed);
        stage.link_over(
            seed,
            Box::new(move |side| {
                let network = of_stage[&member_of(side)].clone();
                let (driver, counted) = (network.endpoint().unwrap(), counted(&network));
                let (net, ledger) = (net_of_stage.clone(), ledger_of_stage.clone());
                Box::new(Witnessed { driver, network, net, ledger, counted })
            }),
        );
        let rude = net.join(RUDE, Limits::default());
        (0..EDGES).for_each(|_| stage.add_edge());
        Storm {
            rng,
            kindness,
            net,
            networks,
            ledger,
            rude,
            stage,
            trouble: None,
            next_trouble: Time(0),
            said: [0; CLIENTS],
            ended: 0,
        }
    }

    /// Troubles follow each other with pauses, so that links that last for ten seconds go on.
    fn fault(&mut self) {
        let now = self.stage.now;
        if let Some((member, until)) = self.trouble.filter(|(_, until)| *until <= now) {
            self.end_trouble(member, until);
        }
        if self.rng.u8(..) == 0 {
            let member = self.anybody();
            self.net.reset(member);
        }
        if self.trouble.is_some() || now < self.next_trouble || self.rng.u8(..40) > 0 {
            return;
        }
        let longest = if self.kindness == Kindness::Hard { 14_000 } else { 2_500 };
        let until = now.after(Duration::from_millis(self.rng.u64(50..longest)));
        let member = (self.rng.u8(..4) > 0).then(|| self.anybody());
        match member {
            Some(member) => self.net.cut(member, true),
            None => self.net.run_server(false),
        }
        self.trouble = Some((member, until));
    }

    fn end_trouble(&mut self, member: Option<MemberId>, at: Time) {
        match member {
            Some(member) => self.net.cut(member, false),
            None => self.net.run_server(true),
        }
        // A connection that is lost is noticed after two seconds.
        (self.trouble, self.next_trouble) = (None, at.after(Duration::from_secs(6)));
    }

    fn anybody(&mut self) -> MemberId {
        let members: Vec<MemberId> = self.networks.keys().copied().collect();
        members[self.rng.usize(..members.len())]
    }

    /// A stranger writes to somebody: as itself, on the subject of another sender, or as another on its own subject.
    fn be_rude(&mut self) {
        let (to, other) = (self.anybody(), self.anybody());
        let datagram: Vec<u8> = (0..self.rng.usize(1..60)).map(|_| self.rng.u8(..)).collect();
        let head = [self.rng.u16(1..4), self.rng.u16(..4), datagram.len() as u16];
        let bytes: Bytes =
            head.iter().flat_map(|number| number.to_le_bytes()).chain(datagram.iter().copied()).collect();
        let subject = |from: MemberId| Subject::new(&format!("world.storm.link.{to}.{from}")).unwrap();
        let now = self.stage.now;
        match self.rng.u8(..3) {
            0 => {
                if self.rude.publish(now, &subject(RUDE), bytes).is_ok() {
                    let [from, to] = [(RUDE, head[0]), (to, head[1])].map(address_of);
                    self.ledger.lock().unwrap().send(from, to, vec![datagram]);
                }
            }
            1 => drop(self.rude.publish(now, &subject(other), bytes)),
            _ => {
                let kind = Kind::Message { sequence: Sequence(u64::MAX), previous: Previous::First };
                let envelope = Envelope { publisher: other, kind, payload: bytes };
                self.net.forge(&subject(RUDE), envelope.encode());
            }
        }
        self.rude.handle_timeout(now);
        while self.rude.poll_event(now).is_some() {}
    }

    /// The stranger writes more to somebody than may wait there.
    fn flood(&mut self) {
        let (to, now) = (self.anybody(), self.stage.now);
        let subject = Subject::new(&format!("world.storm.link.{to}.{RUDE}")).unwrap();
        let datagrams: Vec<Vec<u8>> = (0..90 * 64_u64).map(|number| number.to_le_bytes().to_vec()).collect();
        for some in datagrams.chunks(64) {
            let bytes: Vec<u8> = [7, 0, 1, 0, 8, 0].into_iter().chain(some.concat()).collect();
            if self.rude.publish(now, &subject, bytes.into()).is_ok() {
                self.ledger.lock().unwrap().send(address_of((RUDE, 7)), address_of((to, 1)), some.to_vec());
            }
        }
    }

    /// Edges begin links anew that have ended, and clients that an edge has sent away come back to it.
    fn reconnect(&mut self) {
        for (edge, origin) in (0..EDGES).flat_map(|edge| (0..ORIGINS).map(move |origin| (edge, origin))) {
            if self.stage.edges[edge].origin_end(origin).is_some() {
                let client = self.stage.connection_of_edge(edge, origin as u8, &edge_user_data());
                assert!(self.stage.edges[edge].replace_origin(origin, client));
                self.ended += 1;
            }
        }
        if self.kindness == Kindness::Hard {
            let away: Vec<usize> = self.stage.ends.keys().copied().collect();
            away.into_iter().for_each(|number| self.stage.reconnect(number, number % EDGES));
        }
    }

    fn tick(&mut self) -> Result<(), String> {
        self.stage.tick();
        self.reconnect();
        if let Some(wrong) = self.ledger.lock().unwrap().wrong.take() {
            return Err(wrong);
        }
        match (0..CLIENTS).find(|&number| homes(&self.stage, number as u64) > 1) {
            Some(number) if self.ended == 0 => Err(format!("{number} has two homes at {:?}", self.stage.now)),
            _ => Ok(()),
        }
    }

    fn run(mut self) -> Result<Figures, String> {
        for _ in 0..30 {
            self.tick()?;
        }
        (0..CLIENTS).for_each(|number| self.stage.add_client(number % EDGES));
        for _ in 0..60 {
            self.tick()?;
        }
        for tick in 0..500 {
            pace(&mut self.stage, tick);
            self.fault();
            if self.rng.u8(..4) == 0 {
                self.be_rude();
            }
            if tick == 250 {
                self.flood();
            }
            self.say();
            self.tick()?;
        }
        if let Some((member, _)) = self.trouble {
            self.end_trouble(member, self.stage.now);
        }
        self.net.set_weather(|weather| (weather.lost, weather.twice) = (0.0, 0.0));
        self.stage.worlds.iter_mut().for_each(|world| world.is_frozen = true);
        let calm = if self.kindness == Kindness::Hard { 900 } else { 300 };
        for _ in 0..calm {
            self.tick()?;
        }
        self.check()
    }

    /// Each client says numbered words.
    fn say(&mut self) {
        let number = self.rng.usize(..CLIENTS);
        let text = format!("{number} {}", self.said[number] + 1);
        let is_said = self.rng.u8(..3) == 0 && self.stage.clients[number].send(0, &Word { text }).is_ok();
        self.said[number] += u32::from(is_said);
    }

    fn check(self) -> Result<Figures, String> {
        let stage = &self.stage;
        if !stage.ends.is_empty() {
            return Err(format!("{:?}", stage.ends));
        }
        (0..CLIENTS).try_for_each(|number| stage.check(number))?;
        // The answers: all in their order, but after a link that ended only in order.
        for number in 0..CLIENTS {
            let heard = stage.heard.iter().filter(|(of, _)| *of == number);
            let heard: Vec<u32> = heard.map(|(_, text)| text[2..text.len() - 1].parse().unwrap()).collect();
            let expected: Vec<u32> = (1..=self.said[number]).collect();
            let is_in_order = heard.windows(2).all(|pair| pair[0] < pair[1]);
            if !is_in_order || (self.ended == 0 && heard != expected) {
                return Err(format!("{number} has said {} words, and heard {heard:?}", self.said[number]));
            }
        }
        if self.kindness == Kindness::Gentle && self.ended > 0 {
            return Err(format!("{} links have ended", self.ended));
        }
        let sum = |of: fn(BusNetworkCounters) -> u64| self.networks.values().map(|it| of(it.counters())).sum::<u64>();
        let ledger = self.ledger.lock().unwrap();
        Ok(Figures {
            arrived: ledger.arrived,
            missing: ledger.missing,
            moved: stage.edges.iter().map(|edge| edge.counters().moved).sum(),
            gaps: sum(|counters| counters.gaps),
            dropped: sum(|counters| counters.dropped),
            forged: sum(|counters| counters.forged),
            ended: self.ended,
            heard: stage.heard.len(),
        })
    }
}

fn run(seeds: u64, kindness: Kindness) -> (Figures, u64) {
    let (mut all, mut played) = (Figures::default(), 0);
    for_seeds(seeds, |seed| {
        let one = Storm::new(seed, kindness).run()?;
        played += 1;
        all.arrived += one.arrived;
        all.missing += one.missing;
        all.moved += one.moved;
        all.gaps += one.gaps;
        all.dropped += one.dropped;
        all.forged += one.forged;
        all.ended += one.ended;
        all.heard += one.heard;
        Ok(())
    });
    (all, played)
}

#[test]
fn a_world_over_a_stormy_bus_ends_as_its_servers_have_it_and_no_word_is_lost() {
    let (all, seeds) = run(5, Kindness::Gentle);
    if !is_partial() {
        assert!(all.arrived > 2_000 * seeds && all.missing > 20 * seeds, "{} of {}", all.missing, all.arrived);
        assert!(all.moved > 2 * seeds && all.gaps > seeds, "{} moves, {} gaps", all.moved, all.gaps);
        assert!(all.forged > 40 * seeds && all.dropped > 100 * seeds, "{} {}", all.forged, all.dropped);
        assert!(all.heard > 100 * seeds as usize, "{} words", all.heard);
    }
}

#[test]
fn links_over_the_bus_that_end_begin_anew_and_the_world_ends_as_its_servers_have_it() {
    let (all, seeds) = run(3, Kindness::Hard);
    if !is_partial() {
        assert!(all.ended >= seeds / 2, "{} links ended in {seeds} seeds", all.ended);
    }
}
