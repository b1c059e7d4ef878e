//! A process that is an edge of a run: clients connect to it, and it connects to the server.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use throng::net::{Driver, UdpDriver, UdpOptions};
use throng::{Client, ClientOptions, CloseCause, EndReason, Key, Server, Tick, Time, TokenIssuer};
use throng_bus::Bus;
use throng_crowd::copies::{CopiesWriter, Original};
use throng_crowd::kinds;
use throng_crowd::regions::Regions;
use throng_crowd::scenario::Scenario;
use throng_crowd::world::spawn_point;
use throng_edge::{BorderWatch, DRIFT_TICKS, Edge, EdgeOptions, WorldName, edge_user_data};
use throng_machine::clock;
use throng_machine::piped::{answer, read_order};
use throng_summary::EdgeFigures;

use crate::bots::{EdgePoint, pin};
use crate::bus::{Access, BusOrder, tell_problem};
use crate::control::{Command, PartLine, listen, say_to_bus};
use crate::cut::Cut;
use crate::host::{server_options, wait_until};
use crate::losses::Losses;
use crate::pace::Pace;
use crate::slow_reader::{Read, SlowReader};

/// The largest rate to the server, in bytes per second: the inputs of all clients.
const UP_BYTES_PER_S: u32 = 12_500_000;
/// Numbers of edges in their tokens, apart from those of clients.
const FIRST_ID: u64 = 1 << 40;
/// Frames are told apart up to this length, in microseconds.
const FRAME_US_MAX: u64 = 60_000_000;
/// A drained edge goes on for so many ticks.
const FAREWELL_TICKS: u32 = 20;
/// Sockets of an edge are on this machine alone.
const LOCAL: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// The orders for an edge, as one line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EdgeOrder {
    pub(crate) number: u32,
    /// By number.
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) key: [u8; 32],
    pub(crate) scenario: Scenario,
    /// The core that it is pinned to.
    pub(crate) core: Option<usize>,
    /// `None` if there is one server only.
    pub(crate) bus: Option<BusOrder>,
}

/// The figures of an edge, and what became of datagrams while it was a slow reader.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct EdgeReport {
    pub(crate) figures: EdgeFigures,
    pub(crate) losses: Losses,
    pub(crate) read: Read,
}

/// A line of an edge.
pub(crate) type EdgeLine = PartLine<EdgePoint, EdgeReport>;

/// Runs as an edge of a run: it reads its order and commands from standard input, and writes to standard output. It ends
/// with its input.
///
/// # Errors
/// The order makes no sense, or the edge cannot start or go on. The process that started it gets the words too.
pub fn play_edge() -> anyhow::Result<()> {
    let played = play();
    if let Err(error) = &played {
        answer(&EdgeLine::Failed(format!("{error:#}")));
    }
    played
}

fn play() -> anyhow::Result<()> {
    let order: EdgeOrder = read_order()?;
    pin(order.core.as_slice());
    let mut copies = CopiesWriter::create(order.servers.len())?;
    let cut = Cut::default();
    let access = order.bus.as_ref().map(|order| Access::new(order, &cut)).transpose()?;
    let mut links = Links::new(&order, &cut);
    let (commands, lines) = listen();
    let mut bus = match &access {
        Some(access) => Some(access.open(Box::new(say_to_bus), lines)?),
        None => None,
    };
    let shared = SharedBorders::new(&order)?;
    let mut edge = open(&order, (&links, access.as_ref()), &shared)?;
    answer(&EdgeLine::Ready(EdgePoint { address: edge.server().local_address(), copies: copies.path().to_owned() }));
    let mut pace = Pace::new(Duration::from_secs(1) / order.scenario.tick_hz, clock::now());
    let mut watch: Option<Watch> = None;
    let (mut figures, mut losses) = (EdgeFigures::default(), None);
    let mut farewells: Option<u32> = None;
    loop {
        wait_until(edge.server_mut(), &pace);
        let began = clock::now();
        let here = edge.server().current_tick();
        // A socket that fails now and then is a lossy network.
        let _ = edge.receive(began);
        if let Some(bus) = &mut bus {
            shared.follow(&mut **bus, &mut edge, began);
        }
        let received = clock::now();
        // Before anything is sent: whoever has a packet finds here what its objects are.
        while let Some(copied) = edge.poll_copied() {
            let there = edge.origin_tick(copied.origin).unwrap_or_default();
            let original = Original { origin: copied.origin, id: copied.there, since: here, there };
            copies.note(copied.here, original);
        }
        let mut beyond_most = 0;
        for origin in 0..order.servers.len() {
            let Some(there) = edge.origin_tick(origin) else { continue };
            copies.note_ticks(origin, here, there);
            let beyond = ticks_beyond_news(&edge, origin, there);
            if beyond > DRIFT_TICKS as u64 {
                copies.note_beyond(origin, here, beyond);
            }
            beyond_most = beyond_most.max(beyond);
        }
        copies.flush()?;
        let noted = clock::now();
        edge.tick(noted);
        let worked = received.since(began) + clock::now().since(noted);
        links.reconnect(&mut edge, (&shared, access.as_ref()), began)?;
        pace.finish(clock::now());
        if let Some(watch) = &mut watch {
            watch.take(&edge, worked, beyond_most);
        }
        match commands.try_recv() {
            Ok(Command::Measure) => watch = Some(Watch::begin(links.came_bytes(&edge))),
            Ok(Command::Settle) => {
                figures = watch.take().map_or(figures, |watch| watch.figures(&edge, &links));
                losses = Some(Losses::of(edge.counters().losses()));
            }
            Ok(Command::Drain) => {
                edge.drain(clock::now(), "this edge ends: connect to another one");
                farewells = Some(FAREWELL_TICKS);
            }
            Ok(Command::Cut) => cut.set(true),
            Ok(Command::Mend) => cut.set(false),
            Ok(Command::ReadSlowly) => links.slow.set(true),
            Ok(Command::ReadAll) => links.slow.set(false),
            Ok(Command::Stop) | Err(TryRecvError::Disconnected) => break,
            Ok(_) | Err(TryRecvError::Empty) => {}
        }
        match &mut farewells {
            Some(0) => break,
            Some(ticks) => *ticks -= 1,
            None => {}
        }
    }
    if let Some(line) = access.as_ref().and_then(Access::line) {
        eprintln!("edge {}: {line}", order.number + 1);
    }
    let figures = watch.map_or(figures, |watch| watch.figures(&edge, &links));
    let losses = losses.unwrap_or_else(|| Losses::of(edge.counters().losses()));
    answer(&EdgeLine::Done(EdgeReport { figures, losses, read: links.slow.read() }));
    Ok(())
}

/// How many ticks later the edge shows an origin's objects than the newest tick that has come from there.
fn ticks_beyond_news(edge: &Edge, origin: usize, there: Tick) -> u64 {
    let newest = edge.origin(origin).and_then(|client| client.server_tick());
    newest.map_or(0, |newest| there.0.saturating_sub(newest.0))
}

/// The edge with its server, and a client of each origin.
fn open(order: &EdgeOrder, (links, bus): (&Links, Option<&Access>), shared: &SharedBorders) -> anyhow::Result<Edge> {
    let scenario = &order.scenario;
    let options = server_options(scenario, &Key::new(order.key), None);
    let now = clock::now();
    let origins = (0..order.servers.len()).map(|origin| links.connect(origin, bus, now));
    let origins = origins.collect::<anyhow::Result<Vec<_>>>()?;
    let server = match options.threads {
        0 | 1 => Server::new(links.driver()?, kinds::schema(), options)?,
        // Each thread has a socket of its own, whose network cannot be cut.
        _ => Server::bind(LOCAL.into(), kinds::schema(), options)?,
    };
    Ok(Edge::new(server, origins, edge_options(scenario, shared))?)
}

/// The connections of an edge to its servers.
struct Links {
    /// In the edge's tokens.
    id: u64,
    issuer: TokenIssuer,
    servers: Vec<SocketAddr>,
    /// Bytes of state that came over connections that have ended.
    came_bytes: u64,
    /// The servers of which it has said why they do not fit. It connects again and again.
    said_unfit: BTreeSet<usize>,
    /// Of the network to the servers and to the clients.
    cut: Cut,
    /// Of what comes from the servers.
    slow: SlowReader,
}

impl Links {
    fn new(order: &EdgeOrder, cut: &Cut) -> Links {
        let issuer = crate::host::token_issuer(&order.scenario, &Key::new(order.key));
        let id = FIRST_ID + u64::from(order.number);
        Links {
            id,
            issuer,
            servers: order.servers.clone(),
            came_bytes: 0,
            said_unfit: BTreeSet::new(),
            cut: cut.clone(),
            slow: SlowReader::default(),
        }
    }

    fn driver(&self) -> anyhow::Result<Box<dyn Driver>> {
        Ok(Box::new(self.cut.driver(Box::new(UdpDriver::bind(LOCAL.into(), &UdpOptions::server())?))))
    }

    fn connect(&self, origin: usize, bus: Option<&Access>, now: Time) -> anyhow::Result<Client> {
        let token = self.issuer.issue_with(self.id, &[self.servers[origin]], &edge_user_data())?;
        let options = ClientOptions { bytes_per_s: UP_BYTES_PER_S, ..ClientOptions::default() };
        let driver = match bus.map(Access::endpoint).transpose()?.flatten() {
            Some(driver) => driver,
            None => self.driver()?,
        };
        let driver = Box::new(self.slow.driver(driver));
        Ok(Client::new(driver, token, kinds::schema(), options, now)?)
    }

    /// State that came so far.
    fn came_bytes(&self, edge: &Edge) -> u64 {
        let open = (0..).map_while(|number| edge.origin(number));
        self.came_bytes + open.map(|client| client.replication_bytes()).sum::<u64>()
    }

    /// A server that did not answer for a while may be there again, where its lease says. Each try ends after the timeout of its token.
    fn reconnect(
        &mut self,
        edge: &mut Edge,
        (shared, bus): (&SharedBorders, Option<&Access>),
        now: Time,
    ) -> anyhow::Result<()> {
        for origin in 0..self.servers.len() {
            let is_elsewhere = self.find(origin, shared);
            let end = edge.origin_end(origin);
            if let Some(line) = end.and_then(|end| self.line_of_unfit(origin, end)) {
                eprintln!("{line}");
            }
            if is_elsewhere || end.is_some() {
                self.came_bytes += edge.origin(origin).map_or(0, |client| client.replication_bytes());
                edge.replace_origin(origin, self.connect(origin, bus, now)?);
            }
        }
        Ok(())
    }

    /// Why a server does not fit, once: the edge connects to it again and again. It ends no other connection itself.
    fn line_of_unfit(&mut self, origin: usize, end: &EndReason) -> Option<String> {
        let is_unfit = matches!(end, EndReason::Closed(CloseCause::Local(_)));
        let (edge, server) = (self.id - FIRST_ID + 1, origin + 1);
        let is_news = is_unfit && self.said_unfit.insert(origin);
        is_news.then(|| format!("edge {edge}: the connection to server {server} has ended: {end}"))
    }

    /// Asks the leases where a server is. True if it is a new process somewhere else: nobody waits for the silence of the old one.
    fn find(&mut self, origin: usize, shared: &SharedBorders) -> bool {
        let Some(address) = shared.read().address(origin as u16) else { return false };
        std::mem::replace(&mut self.servers[origin], address) != address
    }
}

/// The borders between the servers, as far as the edge has heard. Its options ask them, while it runs.
#[derive(Clone)]
struct SharedBorders(Arc<RwLock<BorderWatch>>);

impl SharedBorders {
    fn new(order: &EdgeOrder) -> anyhow::Result<SharedBorders> {
        let world = WorldName::new(order.bus.as_ref().map_or("alone", |bus| &bus.world))?;
        let watch = BorderWatch::new(world, Regions::new(&order.scenario).division());
        Ok(SharedBorders(Arc::new(RwLock::new(watch))))
    }

    fn read(&self) -> RwLockReadGuard<'_, BorderWatch> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BorderWatch> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the bus says, and looks by it.
    fn follow(&self, bus: &mut (dyn Bus + Send), edge: &mut Edge, now: Time) {
        let mut watch = self.write();
        let before = watch.problem();
        watch.follow(bus, edge, now);
        tell_problem("edge", before, watch.problem());
    }
}

/// Which servers have a cell, and which one a client joins: the one where its character starts.
fn edge_options(scenario: &Scenario, shared: &SharedBorders) -> EdgeOptions {
    let (regions, scenario) = (Regions::new(scenario), scenario.clone());
    let (cells, shared, borders, strips) = (regions.clone(), shared.clone(), shared.clone(), shared.clone());
    EdgeOptions {
        tells_copies: true,
        homes: Arc::new(move |_, cell, homes| cells.of_cell(&borders.read(), cell, homes)),
        entry: Arc::new(move |client_id, _| {
            let [x, y] = spawn_point(&scenario, client_id as u32);
            let step = regions.step(scenario.from_corner([x, y, 0.0])[0]);
            shared.read().borders().home(step).into()
        }),
        // A server whose lease has ended has lost its strip.
        is_gone: Arc::new(move |origin| strips.read().is_gone(origin)),
        ..EdgeOptions::default()
    }
}

/// The work of an edge in the measured part.
struct Watch {
    began: throng::Time,
    cpu_s: f64,
    came_bytes: u64,
    ticks: u64,
    connections: u64,
    ticks_without_news: u64,
    worked: Duration,
    frame_us: Histogram<u64>,
}

impl Watch {
    fn begin(came_bytes: u64) -> Watch {
        Watch {
            began: clock::now(),
            cpu_s: clock::process_cpu_s(),
            came_bytes,
            ticks: 0,
            connections: 0,
            ticks_without_news: 0,
            worked: Duration::ZERO,
            frame_us: Histogram::new_with_bounds(1, FRAME_US_MAX, 2).expect("the bounds are possible"),
        }
    }

    fn take(&mut self, edge: &Edge, worked: Duration, beyond: u64) {
        self.ticks_without_news += u64::from(beyond > DRIFT_TICKS as u64);
        self.ticks += 1;
        self.connections += edge.counters().players;
        self.worked += worked;
        self.frame_us.saturating_record(worked.as_micros() as u64);
    }

    fn figures(self, edge: &Edge, links: &Links) -> EdgeFigures {
        let elapsed_s = clock::now().since(self.began).as_secs_f64().max(1e-6);
        let ticks = self.ticks.max(1) as f64;
        let counters = edge.counters();
        EdgeFigures {
            connections: self.connections as f64 / ticks,
            frame_p99_ms: (self.ticks > 0).then(|| self.frame_us.value_at_quantile(0.99) as f64 / 1e3),
            us_per_connection: (self.connections > 0)
                .then(|| self.worked.as_secs_f64() * 1e6 / self.connections as f64),
            cpu_cores: (clock::process_cpu_s() - self.cpu_s) / elapsed_s,
            kbit_per_s_from_server: (links.came_bytes(edge) - self.came_bytes) as f64 * 8.0 / 1e3 / elapsed_s,
            objects: counters.objects,
            dropped: counters.refused + counters.objects_refused + counters.inputs_dropped + counters.messages_dropped,
            recounts: counters.recounts,
            ticks_without_news: self.ticks_without_news,
        }
    }
}

#[cfg(test)]
mod tests {
    use throng::{Channels, ObjectId, Placement};
    use throng_crowd::kinds::{Character, Prop};
    use throng_crowd::scenario::Overrides;
    use throng_edge::{Origin, OriginEvent, OriginOptions};

    use super::*;
    use crate::host::{Door, Host, Socket};

    fn order(servers: Vec<SocketAddr>, count: u32) -> EdgeOrder {
        let (edges, players) = (Some(1), Some(4));
        let overrides = Overrides { edges, players, servers: Some(count), ..Overrides::default() };
        let scenario = Scenario { tick_hz: 200, ..Scenario::resolve("crowd", &overrides).unwrap() };
        EdgeOrder { number: 0, servers, key: [7; 32], scenario, core: None, bus: None }
    }

    fn host(order: &EdgeOrder, number: u16) -> Host {
        let door = Door { socket: Socket::udp(LOCAL.into()), public: None, key: Key::new(order.key) };
        Host::with_model(&order.scenario, (number, Tick(0)), door, Channels::new).unwrap()
    }

    /// The words with which a client of the edge is sent away, while the servers play their ticks.
    fn words_of_end(order: &EdgeOrder, client_id: u64, mut servers: impl FnMut()) -> String {
        let (links, shared) = (Links::new(order, &Cut::default()), SharedBorders::new(order).unwrap());
        let mut edge = open(order, (&links, None), &shared).unwrap();
        let issuer = crate::host::token_issuer(&order.scenario, &Key::new(order.key));
        let token = issuer.issue(client_id, &[edge.server().local_address()]).unwrap();
        let mut client = Client::connect(token, kinds::schema(), ClientOptions::default(), clock::now()).unwrap();
        for _ in 0..4_000 {
            servers();
            edge.receive(clock::now()).unwrap();
            edge.tick(clock::now());
            client.update(clock::now()).unwrap();
            if let Some(end) = client.end_reason() {
                return end.to_string();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it is not sent away");
    }

    const WORDS: &str = "this server cannot take you in";

    #[test]
    fn a_player_for_whom_a_server_has_no_room_is_sent_away() {
        let mut host = host(&order(Vec::new(), 1), 0);
        let order = order(vec![host.server().local_address()], 1);
        let [x, y] = spawn_point(&order.scenario, 0);
        let position = order.scenario.from_corner([x, y, 0.0]);
        while host.server_mut().spawn(Prop { position }, Placement::Cell(0)).is_ok() {}
        let end = words_of_end(&order, 1, || {
            host.tick();
        });
        assert!(end.contains(WORDS), "{end}");
        assert_eq!(host.connected(), 0);
    }

    #[test]
    fn a_player_who_comes_with_a_state_that_is_none_is_sent_away() {
        let mut host = host(&order(Vec::new(), 2), 1);
        let options = server_options(&order(Vec::new(), 2).scenario, &Key::new([7; 32]), None);
        let mut server = Server::bind(LOCAL.into(), kinds::schema(), options).unwrap();
        let order = order(vec![server.local_address(), host.server().local_address()], 2);
        let regions = Regions::new(&order.scenario);
        let starts_here = |id: &u64| {
            let [x, y] = spawn_point(&order.scenario, *id as u32);
            regions.first(order.scenario.from_corner([x, y, 0.0])[0]) == 0
        };
        let client_id = (0..1_000).find(starts_here).unwrap();
        let (mut origin, mut object) = (Origin::new(OriginOptions::default()), ObjectId::default());
        let end = words_of_end(&order, client_id, || {
            host.tick();
            let now = clock::now();
            server.receive(now).unwrap();
            while let Some(event) = server.poll_event() {
                origin.take(&mut server, event, now);
            }
            while let Some(event) = origin.poll_event() {
                match event {
                    OriginEvent::Joined { player, .. } => {
                        object = server.spawn(Character::default(), Placement::Cell(0)).unwrap();
                        origin.give(&mut server, player, object).unwrap();
                        origin.hand_over(player, 1).unwrap();
                    }
                    OriginEvent::Free { player, .. } => origin.release(player, object, b"none").unwrap(),
                    _ => {}
                }
            }
            origin.before_tick(&mut server);
            server.tick(now);
        });
        assert!(end.contains(WORDS), "{end}");
        assert_eq!((host.connected(), host.bad_inputs()), (0, 1));
    }

    #[test]
    fn an_edge_says_once_why_a_server_does_not_fit() {
        let mut links = Links::new(&order(vec![LOCAL.into(); 2], 2), &Cut::default());
        let unfit =
            EndReason::Closed(CloseCause::Local(throng::CloseReason::new(throng::CloseCode::DONE, "another grid")));
        let told = "edge 1: the connection to server 2 has ended: closed by us: another grid (code 0)";
        assert_eq!(links.line_of_unfit(1, &EndReason::Closed(CloseCause::IdleTimeout)), None);
        assert_eq!(links.line_of_unfit(1, &unfit).as_deref(), Some(told));
        assert_eq!(links.line_of_unfit(1, &unfit), None);
        assert!(links.line_of_unfit(0, &unfit).is_some(), "another server");
    }
}
