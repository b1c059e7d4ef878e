//! The server of a workload: a world that is replicated, tick by tick.

mod snapshot;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use throng::meter::{Subsystem, TickRecord};
use throng::net::{Driver, UdpDriver, UdpOptions};
use throng::{
    Channels, ConnectionId, Input, Key, ObjectId, Placement, Replication, Schema, Server, ServerEvent, ServerOptions,
    StartError, Tick, Time, TokenIssuer,
};
use throng_bus::Bus;
use throng_crowd::kinds::{self, Character, Chest, Prop};
use throng_crowd::pulse::Pulse;
use throng_crowd::regions::Regions;
use throng_crowd::scenario::Scenario;
use throng_crowd::talk::Talk;
use throng_crowd::truth::{GameObject, Plan};
use throng_crowd::world::{
    BotInput, CharacterId, CharacterState, IdleObjects, STATE_BYTES, World, chest_contents, chest_position,
};
use throng_edge::{Balance, BalanceOptions, Origin, OriginEvent, OriginOptions, PlayerId, WorldName};
use throng_machine::clock;

use crate::bus::{Access, tell_problem};
use crate::cut::Cut;
use crate::floor::{self, FloorTime, Recorder, Spent, Tape};
use crate::losses::Losses;
use crate::pace::{Finish, Pace};

/// Protocol id of the lab; its tokens work with no other protocol. Change it when the fields of `BotsReport` change.
pub const PROTOCOL_ID: u64 = 0x7468_726F_6E67_6C63;

/// Longest time between two reads of the socket.
const DRAIN_INTERVAL: Duration = Duration::from_millis(12);

/// The last part of a wait is spent awake: a sleeping thread is late by as much, and begins its tick on a processor that
/// has cooled down.
const SPIN: Duration = Duration::from_micros(300);
/// In a run with faults, who hears nothing for so long gives up its connection, in seconds.
const FAULT_TIMEOUT_S: i32 = 3;
/// In a run with faults, players are kept for so long, in seconds.
const KEEP_S: u32 = 30;

/// Number of clients that get the server's time, one after the other. They are served first in a tick, so that a pulse
/// leaves soon after its time was read.
const TOLD: usize = 8;

/// A server with a world behind it. `R` is its replication model.
pub struct Host<R = Channels> {
    server: Server<R>,
    world: World,
    scenario: Scenario,
    /// By connection index.
    players: Vec<Option<Player>>,
    /// The side of edges; `None`: the run has none.
    origin: Option<Origin>,
    /// Characters whose players are absent, by client id: of a snapshot, or of players who have left.
    saved: HashMap<u64, [u8; STATE_BYTES]>,
    keeps_the_absent: bool,
    /// The characters of players at edges.
    at_edges: HashMap<PlayerId, CharacterId>,
    /// Which of the servers that share the area this is.
    number: u16,
    regions: Regions,
    /// The borders to the other servers, and the bus over which they are agreed on. One server alone has none.
    world_bus: Option<(Balance, Box<dyn Bus + Send>)>,
    /// Characters whom another server is about to take over: they stand still until then.
    ghosts: HashMap<PlayerId, (ObjectId, Character)>,
    handovers: Handovers,
    /// By character.
    bodies: Vec<Option<Body>>,
    /// The objects that never change, in the order of [`IdleObjects`].
    props: Vec<ObjectId>,
    /// The last tick in which the contents of the chests changed.
    chests_changed: Option<Tick>,
    is_moving: bool,
    is_frozen: bool,
    tells_time: bool,
    pace: Pace,
    interval: Duration,
    last_finish: Finish,
    /// The recorded sends of the server; none if several threads send.
    tape: Option<Arc<Tape>>,
    cut: Cut,
    connected: u32,
    /// Connections that ended.
    ended: u32,
    bad_inputs: u64,
    /// Messages of bots on another machine.
    talks: VecDeque<(ConnectionId, Talk)>,
    /// Messages that are none, or that nobody has taken.
    bad_talks: u64,
}

/// Characters that went from server to server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handovers {
    /// That came.
    pub(crate) arrived: u64,
    /// That left.
    pub(crate) released: u64,
    /// That began here with a state from a snapshot, of before their player left, or from a server that died.
    pub(crate) resumed: u64,
}

/// Where the player of a character is.
#[derive(Clone, Copy)]
enum Seat {
    /// Connected to this server.
    Here(ConnectionId),
    /// Connected to an edge, with the client id of its token.
    Edge(PlayerId, u32),
}

impl Seat {
    /// The owner's name in the truth.
    fn owner(self) -> u32 {
        match self {
            Seat::Here(connection) => connection.index,
            Seat::Edge(_, client_id) => client_id,
        }
    }
}

/// Where clients and edges come to a server, and the key of their tokens.
pub struct Door {
    /// Its socket.
    pub socket: Socket,
    /// The address under which clients know it, if that is another than its socket's.
    pub public: Option<SocketAddr>,
    /// The key.
    pub key: Key,
}

/// How clients and edges reach a server, by a network that can be cut.
pub struct Socket {
    way: Way,
    cut: Cut,
}

enum Way {
    /// A UDP socket, bound to this address.
    Udp(SocketAddr),
    /// The bus. The server has one thread.
    Bus(Box<dyn Driver>),
}

impl Socket {
    /// A UDP socket, bound to this address.
    pub fn udp(address: SocketAddr) -> Socket {
        Socket { way: Way::Udp(address), cut: Cut::default() }
    }

    /// Over the bus, if that carries the links of the run; a UDP socket at the address otherwise.
    ///
    /// # Errors
    /// There is no room for one more endpoint on the bus.
    pub(crate) fn open(bus: Option<&Access>, address: SocketAddr) -> anyhow::Result<Socket> {
        let Some(bus) = bus else { return Ok(Socket::udp(address)) };
        let way = match bus.endpoint()? {
            Some(driver) => Way::Bus(driver),
            None => Way::Udp(address),
        };
        Ok(Socket { way, cut: bus.cut.clone() })
    }
}

/// Messages of bots that wait to be taken.
const TALKS: usize = 64;

#[derive(Clone, Copy)]
struct Player {
    connection: ConnectionId,
    character: CharacterId,
    /// Its newest input, and a moment at which it had been read.
    heard: Option<(u32, Time)>,
}

struct Body {
    object: ObjectId,
    seat: Seat,
    chests: Vec<ObjectId>,
    /// The tick in which it entered.
    since: Tick,
}

impl Host {
    /// A server of our own model for the scenario at an address.
    ///
    /// `public` is the address under which clients know the server, if it is not the one that it is bound to.
    pub fn new(
        scenario: &Scenario,
        address: SocketAddr,
        public: Option<SocketAddr>,
        key: Key,
    ) -> Result<Host, StartError> {
        Host::with_model(scenario, (0, Tick(0)), Door { socket: Socket::udp(address), public, key }, Channels::new)
    }
}

impl<R: Replication> Host<R> {
    /// A server for the scenario, with the replication model that `model` makes for its schema and options. `number` says which of the scenario's servers it is,
    /// from 0, and `first_tick` where its ticks begin.
    pub fn with_model(
        scenario: &Scenario,
        (number, first_tick): (u16, Tick),
        Door { socket, public, key }: Door,
        model: impl FnOnce(&Arc<Schema>, &ServerOptions) -> Result<R, StartError>,
    ) -> Result<Host<R>, StartError> {
        let mut options = server_options(scenario, &key, public);
        options.replicator.first_tick = first_tick;
        let interval = options.tick_interval;
        let seats = options.max_clients as usize;
        let model = model(&kinds::schema(), &options)?;
        let Socket { way, cut } = socket;
        let (server, tape) = match (options.threads, way) {
            (0 | 1, way) => {
                let driver: Box<dyn Driver> = match way {
                    Way::Udp(address) => {
                        Box::new(cut.driver(Box::new(UdpDriver::bind(address, &UdpOptions::server())?)))
                    }
                    Way::Bus(driver) => driver,
                };
                let (recorder, tape) = Recorder::new(driver, scenario.send_slowdown_percent);
                (Server::with_replication(Box::new(recorder), model, options)?, Some(tape))
            }
            // Each thread has a socket of its own, past any recorder.
            (_, Way::Udp(address)) => (Server::bind_with(address, model, options)?, None),
            (_, Way::Bus(_)) => {
                return Err(StartError::Options("a server with several threads is reached by UDP only"));
            }
        };
        let regions = Regions::new(scenario);
        let mut host = Host {
            world_bus: None,
            regions,
            server,
            tape,
            cut,
            world: World::new(scenario),
            saved: HashMap::new(),
            keeps_the_absent: false,
            scenario: scenario.clone(),
            players: vec![None; seats],
            origin: (scenario.edges > 0).then(|| Origin::new(origin_options(scenario))),
            at_edges: HashMap::new(),
            number,
            ghosts: HashMap::new(),
            handovers: Handovers::default(),
            bodies: Vec::new(),
            props: Vec::with_capacity(scenario.idle_objects as usize),
            chests_changed: None,
            is_moving: false,
            is_frozen: false,
            tells_time: false,
            pace: Pace::new(interval, clock::now()),
            interval,
            last_finish: Finish { after_plan: Duration::ZERO, skipped: 0 },
            connected: 0,
            ended: 0,
            bad_inputs: 0,
            talks: VecDeque::new(),
            bad_talks: 0,
        };
        let own: Vec<[f32; 3]> = host.own_idle().collect();
        for position in own {
            let prop = host.server.spawn(Prop { position }, Placement::Cell(0));
            host.props
                .push(prop.map_err(|_| StartError::Options("there are more idle objects than the server takes"))?);
        }
        Ok(host)
    }

    /// Where its part of the objects that never change lie.
    fn own_idle(&self) -> impl Iterator<Item = [f32; 3]> + '_ {
        let all = IdleObjects::new(&self.scenario).map(|position| self.scenario.from_corner(position));
        all.filter(|position| self.regions.first(position[0]) == self.number)
    }

    /// The server.
    pub fn server(&self) -> &Server<R> {
        &self.server
    }

    /// The server, mutable.
    pub fn server_mut(&mut self) -> &mut Server<R> {
        &mut self.server
    }

    /// Clients that play.
    pub fn connected(&self) -> u32 {
        self.connected
    }

    /// Connections that ended.
    pub fn ended(&self) -> u32 {
        self.ended
    }

    /// Ticks that were due and never played, because those before them took too long.
    pub fn skipped_ticks(&self) -> u64 {
        self.pace.skipped()
    }

    /// Ticks that were played and ended after the next one was due.
    pub fn late_ticks(&self) -> u64 {
        self.pace.late()
    }

    /// How the last tick went against its plan.
    pub(crate) fn last_finish(&self) -> Finish {
        self.last_finish
    }

    /// When the next ticks are to begin; `None` while they come late.
    pub(crate) fn plan(&self) -> Option<Plan> {
        let (tick, interval) = (self.server.current_tick(), self.interval);
        let is_punctual = self.last_finish.after_plan <= interval;
        is_punctual.then(|| Plan { tick, time: self.pace.planned(), interval })
    }

    /// The same between [`play`](Host::play) and [`send`](Host::send), for the tick after the one that is played.
    fn plan_of_next(&self) -> Option<Plan> {
        let Plan { tick, time, interval } = self.plan()?;
        Some(Plan { tick: tick.after(1), time: time.after(interval), interval })
    }

    /// The next message of bots on another machine.
    pub(crate) fn take_talk(&mut self) -> Option<(ConnectionId, Talk)> {
        self.talks.pop_front()
    }

    /// Messages that were no talk, or came too many at once.
    pub(crate) fn bad_talks(&self) -> u64 {
        self.bad_talks
    }

    /// Whether this client still plays.
    pub(crate) fn has(&self, connection: ConnectionId) -> bool {
        let player = self.players.get(connection.index as usize).copied().flatten();
        player.is_some_and(|player| player.connection == connection)
    }

    /// Malformed inputs.
    pub fn bad_inputs(&self) -> u64 {
        self.bad_inputs
    }

    /// Records the sent packets of this many ticks, if one thread sends them.
    pub(crate) fn record(&self, ticks: usize) {
        if let Some(tape) = &self.tape {
            tape.begin(ticks, self.connected as usize);
        }
    }

    /// Measures what the recorded ticks cost when they are only sealed and sent.
    pub(crate) fn measure_floor(&mut self) -> Option<FloorTime> {
        let recording = self.tape.as_ref()?.take();
        let floor = floor::measure(self.server.driver_mut(), &recording, (self.interval, self.scenario.cipher.suite()));
        self.pace.restart(clock::now());
        floor
    }

    /// Whether enough clients have connected for the characters to move.
    pub fn is_moving(&self) -> bool {
        self.is_moving
    }

    /// The characters may move, however many there are.
    pub(crate) fn begin(&mut self) {
        self.is_moving = true;
        self.set_planning(true);
    }

    /// Shares the world of this name with the servers that are on the bus. Borders stay until all players are there.
    pub(crate) fn join_world(&mut self, world: &str, bus: Box<dyn Bus + Send>) -> anyhow::Result<()> {
        let options = BalanceOptions::new(WorldName::new(world)?, self.regions.division(), self.number);
        let address = Some(self.server.local_address());
        let balance = Balance::new(BalanceOptions { address, ..options }, bus.member());
        self.world_bus = Some((balance, bus));
        self.set_planning(false);
        Ok(())
    }

    fn set_planning(&mut self, plans: bool) {
        if let Some((balance, _)) = &mut self.world_bus {
            balance.set_planning(plans);
        }
    }

    /// Losses and refusals towards edges.
    pub(crate) fn losses(&self) -> Losses {
        Losses::of(self.origin.iter().flat_map(|origin| origin.counters().named()))
    }

    pub(crate) fn handovers(&self) -> Handovers {
        self.handovers
    }

    /// From now on the server sends its time to clients, for bots that do not share its clock.
    pub(crate) fn tell_time(&mut self) {
        self.tells_time = true;
    }

    /// Nothing moves any more, and no character says that it does: clients would see it move.
    pub fn freeze(&mut self) {
        self.set_planning(false);
        let Host { world, server, scenario, bodies, is_frozen, .. } = self;
        *is_frozen = true;
        world.stop(|character, state| show(server, scenario, bodies, (character, state)));
    }

    /// Everything moves again.
    pub(crate) fn thaw(&mut self) {
        self.is_frozen = false;
        self.set_planning(self.is_moving);
    }

    /// The characters as the game has them. One whom another server is about to take over has no owner.
    fn true_characters(&self) -> impl Iterator<Item = GameObject> + '_ {
        let ghosts = self.ghosts.values().map(|(object, value)| GameObject::character(*object, None, value));
        let states = self.world.characters();
        let characters = states.filter_map(|(character, state)| {
            let body = self.bodies.get(character.0 as usize)?.as_ref()?;
            let position = self.scenario.from_corner(state.position);
            let value = Character { position, ..Character::from(state) };
            Some(GameObject::character(body.object, Some(body.seat.owner()), &value))
        });
        characters.chain(ghosts)
    }

    /// Cuts the network of a server with one thread, or mends it.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.cut.set(is_cut);
    }

    /// The characters by number, with their positions from the corner of the area.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (u32, [f32; 3])> + '_ {
        self.world.characters().map(|(character, state)| (character.0, self.scenario.from_corner(state.position)))
    }

    /// All objects that ever change, as the game has them.
    pub(crate) fn true_changing(&self) -> impl Iterator<Item = GameObject> + '_ {
        let bodies = (0..).zip(&self.bodies).filter_map(|(slot, body)| Some((slot, body.as_ref()?)));
        let chests = bodies.flat_map(move |(slot, body)| {
            (0..).zip(&body.chests).map(move |(number, &chest)| {
                let position = self.scenario.from_corner(chest_position(&self.scenario, slot, number));
                let changed = self.chests_changed.filter(|&tick| tick >= body.since);
                let contents = changed.map_or(0, |tick| chest_contents(&self.scenario, tick.short().0, slot, number));
                GameObject::of(chest, None, &Chest { position, contents })
            })
        });
        self.true_characters().chain(chests)
    }

    /// All objects as the game has them.
    pub(crate) fn true_objects(&self) -> impl Iterator<Item = GameObject> + '_ {
        let props = self.own_idle().zip(&self.props);
        let props = props.map(|(position, &prop)| GameObject::of(prop, None, &Prop { position }));
        self.true_changing().chain(props)
    }

    /// Waits for the next tick to be due, and reads the socket meanwhile.
    pub fn wait(&mut self) {
        wait_until(&mut self.server, &self.pace);
    }

    /// Plays one tick, and returns its number.
    pub fn tick(&mut self) -> Tick {
        let tick = self.play();
        self.send();
        tick
    }

    /// Plays one tick, and has its state written before anything of it leaves, even if that fails: whoever is sent a state finds it in
    /// the file, also if this process is killed in between. Returns the time that writing took beside the number of the tick.
    pub(crate) fn tick_written(
        &mut self,
        write: impl FnOnce(&Host<R>, Tick, Option<Plan>) -> io::Result<()>,
    ) -> io::Result<(Tick, Duration)> {
        let tick = self.play();
        let played = clock::now();
        let written = write(self, tick, self.plan_of_next());
        let spent = clock::now().since(played);
        self.send();
        written.map(|()| (tick, spent))
    }

    /// The game's part of a tick: nothing of it leaves before [`send`](Host::send).
    fn play(&mut self) -> Tick {
        // A socket that fails now and then is a lossy network; one that always fails loses its clients.
        let began = clock::now();
        let _ = self.server.receive(began);
        let read = clock::now();
        self.take_events(began);
        self.take_players();
        while let Some((connection, input)) = self.server.poll_input() {
            self.take_input(connection, &input, read);
        }
        // Several servers begin when all of them together have enough.
        self.is_moving |= self.regions.is_whole() && self.connected >= self.scenario.start_at_connected();
        let tick = self.server.current_tick();
        if self.is_moving && !self.is_frozen {
            self.step(tick);
        }
        if self.tells_time {
            self.tell_one(tick, began);
        }
        self.settle_borders();
        self.hand_over();
        if let Some(origin) = &mut self.origin {
            origin.before_tick(&mut self.server);
        }
        tick
    }

    /// Sends what is due of the tick that was played.
    fn send(&mut self) {
        self.server.tick(clock::now());
        if let Some(tape) = self.tape.as_ref().filter(|tape| tape.is_on()) {
            tape.end_tick(spent(self.server.last_tick()));
        }
        self.last_finish = self.pace.finish(clock::now());
    }

    fn tell_one(&mut self, tick: Tick, began: Time) {
        let turn = tick.0 as usize % TOLD.min(self.players.len()).max(1);
        let Some(player) = self.players.get(turn).copied().flatten() else { return };
        let (heard_input, heard_us) = player.heard.map_or((0, 0), |(number, read)| (number, read.0));
        let pulse = Pulse { tick: tick.0, began_us: began.0, sent_us: clock::now().0, heard_input, heard_us };
        // A client that takes no message now is told another time.
        let _ = pulse.send(&mut self.server, player.connection);
    }

    fn step(&mut self, tick: Tick) {
        let (server, scenario, bodies) = (&mut self.server, &self.scenario, &self.bodies);
        self.world.step(|character, state| show(server, scenario, bodies, (character, state)));
        if self.scenario.chests_per_player > 0 && tick.0.is_multiple_of(self.scenario.chest_change_ticks.into()) {
            self.chests_changed = Some(tick);
            for (slot, body) in self.bodies.iter().enumerate() {
                let chests = body.iter().flat_map(|body| &body.chests);
                for (number, &chest) in chests.enumerate() {
                    if let Some(value) = self.server.get_mut::<Chest>(chest) {
                        value.contents = chest_contents(&self.scenario, tick.short().0, slot as u32, number as u32);
                    }
                }
            }
        }
    }

    fn take_events(&mut self, now: Time) {
        while let Some(event) = self.server.poll_event() {
            let event = match &mut self.origin {
                Some(origin) => match origin.take(&mut self.server, event, now) {
                    Some(event) => event,
                    None => continue,
                },
                None => event,
            };
            match event {
                ServerEvent::Connected { connection, .. } => self.enter(connection),
                ServerEvent::Disconnected { connection, client_id, .. } => self.leave(connection, client_id),
                ServerEvent::Message { connection, message, .. } => match message.get::<Talk>() {
                    Some(talk) if self.tells_time && self.talks.len() < TALKS => {
                        self.talks.push_back((connection, talk));
                    }
                    _ => self.bad_talks += 1,
                },
                _ => {}
            }
        }
    }

    /// Players who come through edges.
    fn take_players(&mut self) {
        let now = clock::now();
        while let Some(event) = self.origin.as_mut().and_then(Origin::poll_event) {
            if self.world_bus.as_mut().is_some_and(|(balance, _)| balance.take(&event, now)) {
                continue;
            }
            match event {
                OriginEvent::Joined { player, client_id, .. } => {
                    let client_id = client_id as u32;
                    let saved =
                        self.world_bus.as_mut().and_then(|(balance, _)| balance.take_saved(now, client_id.into()));
                    let gone_on = saved.and_then(|state| self.world.arrive(&state));
                    let character = match (gone_on, self.regions.is_whole()) {
                        (Some(character), _) => character,
                        (None, true) => self.world.spawn(),
                        (None, false) => self.world.spawn_as(client_id),
                    };
                    match self.embody_at_edge(character, player, client_id) {
                        true => self.handovers.resumed += u64::from(gone_on.is_some()),
                        false => self.send_away(player),
                    }
                }
                OriginEvent::Free { player, .. } => self.release(player),
                OriginEvent::Stays(_) | OriginEvent::Away(_) => {}
                OriginEvent::Returned { player, former } => self.give_back(player, former),
                OriginEvent::Arrived { player, client_id, state, .. } => {
                    let character = self.world.arrive(&state);
                    self.bad_inputs += u64::from(character.is_none());
                    match character.is_some_and(|character| self.embody_at_edge(character, player, client_id as u32)) {
                        true => self.handovers.arrived += 1,
                        false => self.send_away(player),
                    }
                }
                OriginEvent::Left(player) => {
                    if let Some((ghost, _)) = self.ghosts.remove(&player) {
                        self.server.despawn(ghost);
                    }
                    if let Some(character) = self.at_edges.remove(&player) {
                        self.disembody(character);
                    }
                }
                OriginEvent::Input { player, bytes, .. } => {
                    match (self.at_edges.get(&player), BotInput::decode(&bytes)) {
                        (Some(&character), Ok(decided)) => self.world.apply(character, decided),
                        (Some(_), Err(_)) => self.bad_inputs += 1,
                        (None, _) => {}
                    }
                }
                OriginEvent::Message { .. } => self.bad_talks += 1,
                OriginEvent::EdgeJoined(_) | OriginEvent::EdgeLeft(_) | OriginEvent::Looks { .. } => {}
            }
        }
    }

    /// Ends the connection of a player to its edge, which waits for an object.
    fn send_away(&mut self, player: PlayerId) {
        if let Some(origin) = &mut self.origin {
            // One that has just left does not wait any more.
            let _ = origin.disconnect(player, "this server cannot take you in");
        }
    }

    /// A player who has lost its edge has come through another one, and goes on with its character.
    fn give_back(&mut self, player: PlayerId, former: PlayerId) {
        let Host { origin: Some(origin), server, bodies, at_edges, .. } = self else { return };
        let Some(character) = at_edges.remove(&former) else { return };
        at_edges.insert(player, character);
        if let Some(Some(body)) = bodies.get_mut(character.0 as usize)
            && let Seat::Edge(seated, _) = &mut body.seat
        {
            *seated = player;
            // One that has just left again gets nothing.
            let _ = origin.give(server, player, body.object);
        }
    }

    /// Tells the other servers what it has, and decides on borders if that is its turn.
    fn settle_borders(&mut self) {
        let Host {
            origin: Some(origin),
            world_bus: Some((balance, bus)),
            number,
            world,
            scenario,
            regions,
            ghosts,
            bodies,
            ..
        } = self
        else {
            return;
        };
        let bodies = bodies.iter().enumerate().filter_map(|(slot, body)| Some((slot, body.as_ref()?)));
        let states = bodies.filter_map(|(slot, body)| match body.seat {
            Seat::Edge(_, client_id) => Some((u64::from(client_id), world.state_bytes(CharacterId(slot as u32))?)),
            Seat::Here(_) => None,
        });
        balance.save(clock::now(), states);
        let characters = world.characters().map(|(_, state)| scenario.from_corner(state.position));
        let all = characters.chain(ghosts.values().map(|(_, ghost)| ghost.position));
        let before = balance.problem();
        balance.settle(&mut **bus, origin, clock::now(), all.map(|position| regions.step(position[0])));
        tell_problem(format_args!("server {}", *number + 1), before, balance.problem());
    }

    /// Asks the edges for the players who are in the part of another server.
    fn hand_over(&mut self) {
        let Host {
            origin: Some(origin),
            world_bus: Some((balance, _)),
            world,
            scenario,
            regions,
            at_edges,
            number,
            ..
        } = self
        else {
            return;
        };
        for (&player, &character) in at_edges.iter() {
            let Some(state) = world.state(character) else { continue };
            let step = regions.beyond(balance.borders(), *number, scenario.from_corner(state.position)[0]);
            if let Some(to) = step.and_then(|step| balance.goes_to(step)) {
                // It may have been asked for already.
                let _ = origin.hand_over(player, to);
            }
        }
    }

    /// Lets go of a player: another server goes on with its character, and what clients see here stands still.
    fn release(&mut self, player: PlayerId) {
        let Host { origin: Some(origin), world, bodies, at_edges, ghosts, server, scenario, .. } = self else {
            return;
        };
        let Some(&character) = at_edges.get(&player) else { return };
        let body = bodies.get_mut(character.0 as usize);
        let (Some(state), Some(seat)) = (world.state_bytes(character), body) else { return };
        // A player who has just left is not released.
        let Some(body) = seat.take_if(|body| origin.release(player, body.object, &state).is_ok()) else { return };
        if let Some(state) = world.state(character) {
            let position = scenario.from_corner(state.position);
            let value = Character { position, velocity: [0.0; 3], ..Character::from(state) };
            if let Some(shown) = server.get_mut::<Character>(body.object) {
                shown.clone_from(&value);
            }
            ghosts.insert(player, (body.object, value));
        }
        at_edges.remove(&player);
        world.despawn(character);
        self.connected -= 1;
        self.handovers.released += 1;
    }

    fn enter(&mut self, connection: ConnectionId) {
        let client_id = self.server.client_id(connection);
        let saved = client_id.and_then(|client_id| self.saved.get(&client_id));
        let gone_on = saved.and_then(|state| self.world.arrive(state));
        let character = gone_on.unwrap_or_else(|| self.world.spawn());
        if let Some(character) = self.embody(character, Seat::Here(connection)) {
            self.players[connection.index as usize] = Some(Player { connection, character, heard: None });
            let is_back = client_id.is_some_and(|client_id| self.saved.remove(&client_id).is_some());
            self.handovers.resumed += u64::from(is_back && gone_on.is_some());
        }
    }

    /// Objects for the character of a player who has come through an edge. False if there is no room.
    fn embody_at_edge(&mut self, character: CharacterId, player: PlayerId, client_id: u32) -> bool {
        let Some(character) = self.embody(character, Seat::Edge(player, client_id)) else { return false };
        self.at_edges.insert(player, character);
        true
    }

    /// Objects for the character of a player who has come; `None` if there is no room.
    fn embody(&mut self, character: CharacterId, seat: Seat) -> Option<CharacterId> {
        let state = self.world.state(character)?;
        let position = self.scenario.from_corner(state.position);
        let placement = Placement::Cell(0);
        let character_value = Character { position, ..Character::from(state) };
        let Some(object) = self.spawn_for(seat, character_value) else {
            self.world.despawn(character);
            return None;
        };
        let chests = (0..self.scenario.chests_per_player).filter_map(|chest| {
            let position = self.scenario.from_corner(chest_position(&self.scenario, character.0, chest));
            self.server.spawn(Chest { position, contents: 0 }, placement).ok()
        });
        let chests = chests.collect();
        let body = Body { object, seat, chests, since: self.server.current_tick() };
        let slot = character.0 as usize;
        if self.bodies.len() <= slot {
            self.bodies.resize_with(slot + 1, || None);
        }
        self.bodies[slot] = Some(body);
        self.connected += 1;
        // Its state may be that of another server, or of the process before, in which it still moved.
        if self.is_frozen {
            self.freeze();
        }
        Some(character)
    }

    fn spawn_for(&mut self, seat: Seat, value: Character) -> Option<ObjectId> {
        let (placement, position) = (Placement::Cell(0), value.position);
        match seat {
            Seat::Here(connection) => {
                let object = self.server.spawn_owned(value, placement, Some(connection)).ok()?;
                self.server.set_viewpoint(connection, position.map(f64::from));
                Some(object)
            }
            Seat::Edge(player, _) => {
                let object = self.server.spawn(value, placement).ok()?;
                // The player looks from its first object.
                let given = self.origin.as_mut()?.give(&mut self.server, player, object);
                if given.is_err() {
                    self.server.despawn(object);
                }
                given.ok().map(|()| object)
            }
        }
    }

    fn leave(&mut self, connection: ConnectionId, client_id: u64) {
        let player = self.players[connection.index as usize].take_if(|player| player.connection == connection);
        if let Some(player) = player {
            self.keep(client_id, player.character);
            self.disembody(player.character);
        }
    }

    fn disembody(&mut self, character: CharacterId) {
        if let Some(body) = self.bodies[character.0 as usize].take() {
            self.server.despawn(body.object);
            body.chests.into_iter().for_each(|chest| self.server.despawn(chest));
        }
        self.world.despawn(character);
        self.connected -= 1;
        self.ended += 1;
    }

    fn take_input(&mut self, connection: ConnectionId, input: &Input, read: Time) {
        self.server.acknowledge_input(connection, input.number);
        let player = self.players.get_mut(connection.index as usize).and_then(Option::as_mut);
        match (player.filter(|player| player.connection == connection), BotInput::decode(input.bytes())) {
            (Some(player), Ok(decided)) => {
                player.heard = Some((input.number, read));
                self.world.apply(player.character, decided);
            }
            (Some(_), Err(_)) => self.bad_inputs += 1,
            (None, _) => {}
        }
    }
}

/// Gives the server the state of a character.
fn show<R: Replication>(
    server: &mut Server<R>,
    scenario: &Scenario,
    bodies: &[Option<Body>],
    (character, state): (CharacterId, &CharacterState),
) {
    let Some(Some(body)) = bodies.get(character.0 as usize) else { return };
    let position = scenario.from_corner(state.position);
    if let Some(value) = server.get_mut::<Character>(body.object) {
        *value = Character { position, ..Character::from(state) };
    }
    if let Seat::Here(connection) = body.seat {
        server.set_viewpoint(connection, position.map(f64::from));
    }
}

/// The options of the server of a run, or of an edge before it.
pub(crate) fn server_options(scenario: &Scenario, key: &Key, public: Option<SocketAddr>) -> ServerOptions {
    ServerOptions {
        public_addresses: public.into_iter().collect(),
        tick_interval: Duration::from_secs(1) / scenario.tick_hz,
        max_clients: scenario.players.max(scenario.edges),
        client_bytes_per_s: scenario.budget_bytes_per_s(),
        grids: scenario.grids(),
        far: scenario.far_options(),
        threads: scenario.server_threads as usize,
        ..ServerOptions::new(PROTOCOL_ID, key.clone())
    }
}

/// The issuer of tokens for that server.
pub(crate) fn token_issuer(scenario: &Scenario, key: &Key) -> TokenIssuer {
    let issuer = TokenIssuer { suite: scenario.cipher.suite(), ..TokenIssuer::new(PROTOCOL_ID, key.clone()) };
    match scenario.faults.is_empty() {
        true => issuer,
        // Everybody is to be served again within 5 s of a fault, and has to notice it first.
        false => TokenIssuer { timeout_s: FAULT_TIMEOUT_S, ..issuer },
    }
}

/// In a run with faults, players who have lost an edge are kept for a while.
fn origin_options(scenario: &Scenario) -> OriginOptions {
    let keep_ticks = if scenario.faults.is_empty() { 0 } else { KEEP_S * scenario.tick_hz };
    OriginOptions { keep_ticks, ..OriginOptions::default() }
}

/// Waits for the next tick to be due. Meanwhile the server reads its socket now and then, because the packets of ten thousand
/// clients in a tick do not fit into the kernel's buffer.
pub(crate) fn wait_until<R: Replication>(server: &mut Server<R>, pace: &Pace) {
    loop {
        server.wait();
        let left = pace.planned().since(clock::now());
        if left <= DRAIN_INTERVAL {
            std::thread::sleep(left.saturating_sub(SPIN));
            while clock::now() < pace.planned() {
                std::hint::spin_loop();
            }
            return;
        }
        std::thread::sleep(DRAIN_INTERVAL);
        // A failed receive can succeed later.
        let _ = server.drain_socket(clock::now());
    }
}

fn spent(tick: &TickRecord) -> Spent {
    let ns = |parts: &[Subsystem]| parts.iter().map(|&part| tick.ns(part)).sum();
    let before = [Subsystem::INTEREST, Subsystem::QUANTISE, Subsystem::PLAN, Subsystem::ENCODE, Subsystem::WRITE];
    let seal_and_send_ns: u64 = ns(&[Subsystem::SEAL, Subsystem::SEND]);
    Spent { seal_and_send_ns, outgoing_ns: seal_and_send_ns + ns(&before) }
}

#[cfg(test)]
mod tests {
    use throng::{Client, ClientOptions};
    use throng_crowd::scenario::Overrides;

    use super::*;

    #[test]
    fn the_state_of_a_tick_is_written_before_any_of_it_leaves() {
        let scenario = Scenario::resolve("crowd", &Overrides { players: Some(1), ..Overrides::default() }).unwrap();
        let (scenario, key) = (Scenario { tick_hz: 200, ..scenario }, Key::new([7; 32]));
        let mut host = Host::new(&scenario, ([127, 0, 0, 1], 0).into(), None, key.clone()).unwrap();
        let token = token_issuer(&scenario, &key).issue(1, &[host.server().local_address()]).unwrap();
        let mut client = Client::connect(token, kinds::schema(), ClientOptions::default(), clock::now()).unwrap();
        host.begin();
        let mut arrived = 0;
        for _ in 0..1_000 {
            host.wait();
            let written = host.tick_written(|host, tick, plan| {
                assert_eq!(
                    (host.server().current_tick(), plan.is_none_or(|plan| plan.tick == tick.after(1))),
                    (tick, true)
                );
                // Loopback delivers at once what is sent.
                let _ = client.update(clock::now());
                let known = client.server_tick();
                assert!(
                    known.is_none_or(|known| tick.is_newer_than(known)),
                    "{known:?} has left before {tick:?} was written"
                );
                arrived += u32::from(known.is_some_and(|known| known.after(1) == tick));
                Ok(())
            });
            written.unwrap();
            if arrived > 2 {
                return;
            }
        }
        panic!("{arrived} ticks have arrived");
    }

    #[test]
    fn a_tick_whose_state_cannot_be_written_leaves_all_the_same() {
        let scenario = Scenario::resolve("crowd", &Overrides { players: Some(1), ..Overrides::default() }).unwrap();
        let mut host = Host::new(&scenario, ([127, 0, 0, 1], 0).into(), None, Key::new([7; 32])).unwrap();
        let before = host.server().current_tick();
        assert!(host.tick_written(|_, _, _| Err(io::ErrorKind::StorageFull.into())).is_err());
        assert_eq!(host.server().current_tick(), before.after(1));
    }
}
