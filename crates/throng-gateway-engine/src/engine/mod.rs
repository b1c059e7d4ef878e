//! The gateway itself, without sockets, clocks and threads.
//!
//! ```text
//!  open, receive, authenticated, closed          everything that has come, one thing at a time
//!        |  dispatch: may this connection say this now, and does the channel exist?
//!        v
//!  lifecycle, subscribe, update, forward,        each handler changes channels and queues answers
//!  spatial, entity, recovery, unreal
//!        |  state of channels                         |  answers, forwarded messages
//!        v                                            v
//!  Hub: who is due? one frame for each           Connection: entries to send
//!  (channel, since, form), shared                     |
//!        |  fanout: copied to each                    |
//!        +--------------------------------------------+--> Outbox, at the end of advance()
//! ```
//!
//! One tick of the hub is a millisecond since the gateway's start. Between two turns nothing is planned, so connections that have nothing to do cost
//! nothing.

mod absent;
mod backlog;
mod blocked;
mod buffers;
mod channel;
mod connection;
mod counters;
mod edges;
mod entity;
mod fanout;
mod forward;
mod handover;
mod hold;
mod home;
mod lifecycle;
mod log;
mod lost;
mod memory;
mod meters;
mod movement;
mod news;
mod pace;
mod place;
pub mod port;
mod position;
mod recovery;
mod refusal;
mod restore;
mod session;
mod share;
mod snapshot;
mod spatial;
mod state_memory;
mod subscribe;
mod threads;
mod unborn;
mod unreal;
mod update;
mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use throng_channeld::proto::ChannelType;
use throng_channeld::{GLOBAL_CHANNEL, Header, Message, message_type};
use throng_replica::{ChannelIndex, ChannelKey, Hub, HubLimits, Stream};
use throng_wire::{ConnectionId, Tick, Time};

use crate::fsm::Fsm;
use crate::group::{EntityGroupLimits, EntityGroups};
use crate::limits::Limits;
use crate::settings::EngineSettings;
use blocked::Blocked;
use buffers::Buffers;
use channel::{Channel, Subscribers};
use connection::Connection;
pub use connection::Tally;
pub use counters::{ConnectionInfo, Counters, Occupancy, SideCounters};
pub use edges::Coming;
use edges::Edges;
use entity::Entity;
pub use entity::EntityInfo;
use hold::Held;
use home::Home;
use lifecycle::ChannelIds;
use log::{ChannelLog, Forms};
use lost::LostOnes;
use memory::Counted;
pub use memory::Pressure;
pub use meters::{ChannelMeters, Stopwatch, TypeMeters};
pub use place::Place;
use place::Table;
use port::{AuthRequest, EndCause, Key, LoginNote, Notice, Outbox, Side};
use position::Positions;
pub use refusal::Refusal;
pub use restore::Restored;
use restore::Restoring;
use share::Share;
pub use share::{Ban, Member, Misrouted};
use snapshot::Taking;
pub use spatial::CellInfo;
use spatial::World;
use state_memory::StateMemory;
use threads::Threads;
pub use threads::{Alone, Helpers};
use throng_protostate::Schemas;
use unborn::Unborn;
pub use view::{BlockedName, CellRow, ChannelRow, ConnectionRow, EntityRow, Row, Slice, Subject};

/// More channels, connections and subscriptions of one connection than any setting allows.
const HUB_MAX: usize = 1 << 21;

/// Notices that wait to be [polled](Engine::poll_notice). Beyond, they are left out; what they tell of is counted.
const NOTICES_MAX: usize = 256;

/// The shortest time between two fan-outs. A subscriber that asks for less is served at most this often.
const STEP: Duration = Duration::from_millis(5);

/// The gateway: connections, channels, and what passes between them.
///
/// Calls in order: [`open`](Self::open), [`receive`](Self::receive), [`authenticated`](Self::authenticated) and
/// [`closed`](Self::closed) for everything that has come, then [`advance`](Self::advance), then
/// [`poll_auth`](Self::poll_auth) until `None`. `now` never falls. Call `advance` again at
/// [`next_deadline`](Self::next_deadline) at the latest.
pub struct Engine {
    settings: Arc<EngineSettings>,
    schemas: Arc<Schemas>,
    start: Time,
    /// The tick at the start.
    first_tick: Tick,
    unix_start_ns: i64,
    now: Time,
    hub: Hub<ChannelLog, Stream>,
    forms: Forms,
    threads: Threads,
    buffers: Buffers,
    /// By index in the hub; so are `channels`.
    connections: Table<Place, Connection>,
    by_connection_id: FxHashMap<u32, Place>,
    next_connection_id: u32,
    next_writer: u32,
    channels: Table<ChannelIndex, Channel>,
    by_channel_id: FxHashMap<u32, ChannelIndex>,
    /// How many channels of each type there are.
    channels_by_type: BTreeMap<u32, usize>,
    /// Channels made so far.
    births: u64,
    channel_ids: ChannelIds,
    /// Which of several engines this is.
    share: Share,
    /// Those that hold connections for this one.
    edges: Edges,
    /// The one that this one holds connections for.
    home: Option<Box<Home>>,
    /// The connection of each name: the last one of a name. Hashed with the standard library's keyed hash: peers choose
    /// their names.
    bearers: HashMap<(Side, String), Key>,
    auth_requests: VecDeque<AuthRequest>,
    notices: VecDeque<Notice>,
    /// Connections that have not logged in, with their deadlines.
    strangers: BTreeSet<(Time, Key)>,
    /// Connections that are to be ended at the end of the step.
    ending: Vec<(Key, EndCause)>,
    /// Connections with something queued.
    dirty: FxHashSet<Place>,
    held: Held,
    /// Connections that do not take what they were sent, or for whom state waits to be sent in slices: they are looked at
    /// again and again. The others are not.
    watched: Vec<Key>,
    /// Connections some of whose state may get lost on its way.
    movers: Vec<Key>,
    last_plan: Time,
    last_forget: Tick,
    last_reclaim: Tick,
    /// When the data kept for slow connections was last checked.
    last_backlog_look: Tick,
    memory: StateMemory,
    /// The peers that can add nothing more, because there is little memory left.
    pressure: Pressure,
    counted: Counted,
    /// Banned names.
    blocked: Blocked,
    world: Option<World>,
    /// By the id of its channel.
    entities: FxHashMap<u32, Entity>,
    /// The entities that cells list, by cell.
    by_cell: FxHashMap<u32, BTreeSet<u32>>,
    /// Entities that are listed in another cell than the one in which they stand: what keeps them there may end.
    strays: BTreeSet<u32>,
    /// Entities that were spawned and have no channel yet.
    unborn: Unborn,
    /// Where states of each type say where an entity is.
    positions: Positions,
    /// Subscriptions, ends of them and notices that handovers took.
    handover_actions: u64,
    /// Channels of entities that all clients see.
    well_known: Vec<ChannelIndex>,
    groups: EntityGroups,
    /// Lost connections that may come back.
    lost: LostOnes,
    /// A snapshot that is being made.
    taking: Option<Box<Taking>>,
    /// A snapshot that is being read.
    restoring: Option<Box<Restoring>>,
    counters: Counters,
    /// The type of the channel that the present message is about.
    concerned: ChannelType,
    random: fastrand::Rng,
    scratch: Vec<u8>,
    /// Stand-ins, and how often they were needed.
    no_connection: Box<Connection>,
    no_channel: Box<Channel>,
    absences: AtomicU64,
}

impl Engine {
    /// A gateway with the global channel and nothing else. `seed` decides the numbers that connections get;
    /// `unix_ns` is what the calendar says at `now`, in ns since 1970.
    pub fn new(settings: Arc<EngineSettings>, schemas: Arc<Schemas>, seed: u64, times: (Time, i64)) -> Engine {
        Engine::beginning_at(settings, schemas, seed, times, Tick(0))
    }

    /// The same, with another number for the first tick.
    fn beginning_at(
        settings: Arc<EngineSettings>,
        schemas: Arc<Schemas>,
        seed: u64,
        (now, unix_ns): (Time, i64),
        first_tick: Tick,
    ) -> Engine {
        // The limits of the settings are looked at here, because they may change; these are what none of them exceeds.
        let limits = HubLimits { channels: HUB_MAX, connections: HUB_MAX, subscriptions_per_connection: HUB_MAX };
        let mut engine = Engine {
            hub: Hub::new(limits, first_tick),
            forms: Forms::default(),
            threads: Threads::new(Box::new(Alone)),
            buffers: Buffers::default(),
            schemas,
            start: now,
            first_tick,
            unix_start_ns: unix_ns,
            now,
            connections: Table::default(),
            by_connection_id: FxHashMap::default(),
            next_connection_id: 1,
            next_writer: 0,
            channels: Table::default(),
            by_channel_id: FxHashMap::default(),
            channels_by_type: BTreeMap::new(),
            births: 0,
            channel_ids: ChannelIds::default(),
            share: Share::default(),
            edges: Edges::default(),
            home: None,
            bearers: HashMap::new(),
            auth_requests: VecDeque::new(),
            notices: VecDeque::new(),
            strangers: BTreeSet::new(),
            ending: Vec::new(),
            dirty: FxHashSet::default(),
            held: Held::default(),
            watched: Vec::new(),
            movers: Vec::new(),
            last_plan: now,
            last_forget: Tick(0),
            last_reclaim: Tick(0),
            last_backlog_look: Tick(0),
            memory: StateMemory::default(),
            pressure: Pressure::default(),
            counted: Counted::default(),
            blocked: Blocked::default(),
            world: settings.spatial.as_ref().map(|spatial| World::new(Arc::new(spatial.grid.clone()))),
            entities: FxHashMap::default(),
            by_cell: FxHashMap::default(),
            strays: BTreeSet::new(),
            unborn: Unborn::default(),
            positions: Positions::default(),
            handover_actions: 0,
            well_known: Vec::new(),
            groups: EntityGroups::new(group_limits(&settings.limits)),
            lost: LostOnes::default(),
            taking: None,
            restoring: None,
            counters: Counters::default(),
            concerned: ChannelType::Unknown,
            random: fastrand::Rng::with_seed(seed),
            scratch: Vec::new(),
            no_connection: absent::connection(&settings),
            no_channel: absent::channel(&settings),
            absences: AtomicU64::new(0),
            settings,
        };
        engine.counters.channels = Arc::clone(&engine.forms.meters);
        let global = engine.add_channel(GLOBAL_CHANNEL, ChannelType::Global, String::new());
        engine.begin_empty(global.expect("there is room for one"));
        engine
    }

    /// From now on the time of encodings is measured.
    pub fn set_stopwatch(&mut self, stopwatch: Stopwatch) {
        self.forms.stopwatch = stopwatch;
    }

    /// From now on these threads help with large steps.
    pub fn set_helpers(&mut self, helpers: Box<dyn Helpers>) {
        self.threads = Threads::new(helpers);
    }

    /// A connection has come in through the door of `side`.
    ///
    /// # Errors
    /// If there are as many as allowed. Nothing is kept of it then.
    pub fn open(
        &mut self,
        now: Time,
        side: Side,
        address: SocketAddr,
        outbox: Box<dyn Outbox>,
    ) -> Result<Key, Refusal> {
        self.now = now;
        if self.home.is_some() {
            return self.open_for_home(side, address, outbox);
        }
        let reserved = if side == Side::Client { self.reserved_for_servers() } else { 0 };
        if self.by_connection_id.len() + self.lost.len() + reserved >= self.connection_id_mask() as usize {
            return Err(self.count(Refusal::Limit("connection_ids")));
        }
        if self.by_connection_id.len() + reserved >= self.settings.limits.max_connections as usize {
            return Err(self.count(Refusal::Limit("connections")));
        }
        let hub = self.hub.connect().map_err(|_| self.count(Refusal::Limit("connections")))?;
        let key = Key { index: hub.index, generation: hub.generation };
        let id = self.free_connection_id();
        let fsm = Fsm::new(Arc::clone(match side {
            Side::Server => &self.settings.server_machine,
            Side::Client => &self.settings.client_machine,
        }));
        let index = Place::of(key);
        let numbers = (id, self.free_writer());
        self.connections.put(index, Connection::new(key, numbers, side, address, outbox, fsm));
        self.begin_patience(index, self.login_patience());
        self.by_connection_id.insert(id, index);
        self.counters.side(side).opened += 1;
        Ok(key)
    }

    /// Connections that are reserved for servers: without servers there is no world.
    fn reserved_for_servers(&self) -> usize {
        let limits = &self.settings.limits;
        let servers = self.counters.of(Side::Server);
        let present = servers.opened.saturating_sub(servers.closed);
        let places = limits.max_connections.min(self.connection_id_mask());
        u64::from(limits.reserved_server_connections.min(places / 2)).saturating_sub(present) as usize
    }

    /// A message has come.
    pub fn receive(&mut self, now: Time, key: Key, message: Message) {
        self.now = now;
        let Some(from) = self.place(key) else { return };
        let side = self.connection(from).side;
        self.counters.side(side).messages_in += 1;
        if self.home.is_some() {
            return self.pass_up(from, &message);
        }
        let channel = self.by_channel_id.get(&message.channel_id);
        self.concerned = channel.map_or(ChannelType::Unknown, |&channel| self.channel(channel).kind);
        if let Err(refusal) = self.dispatch(from, &message) {
            self.count(refusal);
            self.answer_refusal(from, &message, refusal);
            if matches!(refusal, Refusal::Malformed | Refusal::Data("malformed")) {
                self.note_nonsense(from);
            }
        }
        self.concerned = ChannelType::Unknown;
    }

    /// A connection is over.
    pub fn closed(&mut self, now: Time, key: Key, cause: EndCause) {
        self.now = now;
        if let Some(index) = self.place(key) {
            self.counters.too_slow += u64::from(cause == EndCause::Stalled);
            self.end(index, cause);
        }
    }

    /// Does all due work: ends waits that are over, fans out state, and hands all queued entries to the outboxes.
    pub fn advance(&mut self, now: Time) {
        self.now = now;
        match std::mem::take(self.absences.get_mut()) {
            0 => {}
            count => *self.counters.refused.entry("not_there").or_default() += count,
        }
        self.end_patience();
        self.surrender();
        self.give_up_the_unborn();
        self.make_up_for_moves();
        if self.is_fan_out_due() {
            self.fan_out();
        }
        self.release();
        self.flush();
        while let Some((key, cause)) = self.ending.pop() {
            self.closed(now, key, cause);
            self.flush();
        }
        self.send_to_edges(false);
    }

    /// When [`Engine::advance`] has something to do, if nothing comes before. `None`: never.
    pub fn next_deadline(&self) -> Option<Time> {
        let patience = self.strangers.first().map(|&(end, _)| end);
        [
            patience,
            self.lost.next_end(),
            self.unborn.next_end(),
            self.next_make_up(),
            self.next_fan_out(),
            self.next_release(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The next question to the authentication provider.
    pub fn poll_auth(&mut self) -> Option<AuthRequest> {
        self.auth_requests.pop_front()
    }

    /// The next of the refused or closed connections. Up to 256 wait.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// New settings, as read from changed files. Existing channels keep their ids, and connections stay; intervals,
    /// limits, access rules and state machines are the new ones from now on.
    pub fn reload(&mut self, settings: Arc<EngineSettings>) {
        self.settings = self.own_settings(settings);
        self.groups.set_limits(group_limits(&self.settings.limits));
        for connection in self.connections.iter_mut() {
            connection.fsm.reload(Arc::clone(match connection.side {
                Side::Server => &self.settings.server_machine,
                Side::Client => &self.settings.client_machine,
            }));
            // The bounds may be others now.
            if !std::mem::replace(&mut connection.is_watched, true) {
                self.watched.push(connection.key);
            }
        }
        if self.home.is_some() {
            // The home says how copies are merged.
            return;
        }
        let channels: Vec<ChannelIndex> = self.by_channel_id.values().copied().collect();
        for index in channels {
            let settings = {
                let kind = self.channel(index).kind;
                Arc::clone(self.settings.channel_types.of(kind.into()))
            };
            self.hub.set_turn_grid(index, settings.tick_interval_ms);
            self.channel_mut(index).settings = settings;
            let options = self.merge_options(index);
            self.hub.state_mut(index).set_options(options);
        }
        self.learn_positions_anew();
    }

    /// The connections that are there, in no particular order.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionInfo> + '_ {
        self.connections.iter().map(|connection| ConnectionInfo {
            id: connection.id,
            side: connection.side,
            address: connection.address,
            is_admitted: connection.is_member(),
            queued_bytes: connection.queued_bytes(),
            subscriptions: self.hub.connection(self.hub_id(connection.place())).map_or(0, |s| s.subscription_count()),
        })
    }

    /// The number under which the protocol knows a connection.
    pub fn number_of(&self, key: Key) -> Option<u32> {
        self.place(key).map(|index| self.connection(index).id)
    }

    /// Whether the GLOBAL channel has an owner.
    pub fn has_master(&self) -> bool {
        self.master().is_some()
    }

    /// Bytes of memory that the states of all channels take, tombstones, metadata and references of objects included. True
    /// within a fifth.
    pub fn state_bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Work and refusals so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The present numbers.
    pub fn occupancy(&self) -> Occupancy {
        let open = |side| {
            let counters = self.counters.of(side);
            counters.opened.saturating_sub(counters.closed) as usize
        };
        let mut channels = self.channels_by_type.clone();
        if !self.share.is_first() {
            // The true one is in the first engine.
            channels.remove(&(ChannelType::Global as i32 as u32));
        }
        Occupancy {
            servers: open(Side::Server),
            clients: open(Side::Client),
            channels,
            state_bytes: self.state_bytes(),
            state_limit_bytes: self.settings.limits.max_total_state_bytes,
            awaited: self.lost.len(),
        }
    }

    /// Ends all connections, after the newest state and what is queued for them has gone out. With several engines the
    /// first one ends them, when the others were shut down.
    pub fn shut_down(&mut self, now: Time) {
        self.now = now;
        self.fan_out_for_the_last_time();
        self.leave_home();
        if !self.share.is_first() {
            for connection in self.connections.iter_mut() {
                let bytes = connection.flush_messages(&self.buffers);
                self.counters.side(connection.side).bytes_out += bytes as u64;
            }
            return;
        }
        for connection in self.connections.iter_mut() {
            let bytes = connection.close();
            self.counters.side(connection.side).bytes_out += bytes as u64;
        }
        self.send_to_edges(true);
    }

    /// The shell has noted something about a connection's login.
    pub fn note_login(&self, key: Key, note: LoginNote) {
        if let Some(index) = self.place(key) {
            self.connection(index).note_login(note);
        }
    }

    /// Which messages a peer may send, and where they go.
    fn dispatch(&mut self, from: Place, message: &Message) -> Result<(), Refusal> {
        self.check_closing(from)?;
        // A session has checked what it has sorted.
        if !self.share.is_sorted {
            self.check_fsm(from, message.msg_type)?;
        }
        if message.msg_type != message_type::AUTH && !self.connection(from).is_member() {
            // Nobody may act before login, even if a state machine allows it.
            return Err(Refusal::StateMachine);
        }
        self.check_memory(from, message.msg_type)?;
        if self.passes_on(from, message) {
            return Ok(());
        }
        let channel = *self.by_channel_id.get(&message.channel_id).ok_or(Refusal::UnknownChannel)?;
        let is_global = message.channel_id == GLOBAL_CHANNEL;
        let globally = || if is_global { Ok(()) } else { Err(Refusal::WrongChannel) };
        match message.msg_type {
            message_type::AUTH => globally().and_then(|()| self.on_auth(from, message)),
            message_type::CREATE_CHANNEL | message_type::CREATE_SPATIAL_CHANNEL => {
                globally()?;
                self.check_allowance(from)?;
                self.on_create(from, message)
            }
            message_type::REMOVE_CHANNEL => {
                self.check_allowance(from)?;
                self.on_remove(from, message)
            }
            message_type::LIST_CHANNEL => {
                globally()?;
                self.check_allowance(from)?;
                self.on_list(from, message)
            }
            message_type::SUB_TO_CHANNEL => self.on_subscribe(from, channel, message),
            message_type::UNSUB_FROM_CHANNEL => self.on_unsubscribe(from, channel, message),
            message_type::CHANNEL_DATA_UPDATE => self.on_update(from, channel, message),
            message_type::CREATE_ENTITY_CHANNEL => self.on_create_entity(from, channel, message),
            message_type::ENTITY_GROUP_ADD => self.on_group_add(from, channel, message),
            message_type::ENTITY_GROUP_REMOVE => self.on_group_remove(from, channel, message),
            message_type::QUERY_SPATIAL_CHANNEL => {
                globally()?;
                self.check_allowance(from)?;
                self.on_query(from, message)
            }
            message_type::UPDATE_SPATIAL_INTEREST => self.on_update_interest(from, message),
            message_type::DEBUG_GET_SPATIAL_REGIONS => globally().and_then(|()| self.on_debug_regions(from, message)),
            message_type::DISCONNECT => globally().and_then(|()| self.on_disconnect(from, message)),
            message_type::USER_SPACE_START.. => self.on_user_message(from, channel, message),
            _ => Err(Refusal::UnknownType),
        }
    }

    fn check_closing(&self, from: Place) -> Result<(), Refusal> {
        let connection = self.connection(from);
        if connection.is_closing || connection.is_ending { Err(Refusal::Closing) } else { Ok(()) }
    }

    fn check_fsm(&mut self, from: Place, msg_type: u32) -> Result<(), Refusal> {
        let connection = self.connection_mut(from);
        if connection.fsm.accepts(msg_type) {
            connection.fsm.received(msg_type);
            return Ok(());
        }
        self.note_violation(from);
        Err(Refusal::StateMachine)
    }

    /// A connection has sent what its state machine forbids.
    fn note_violation(&mut self, from: Place) {
        let (now, limits) = (self.now, self.settings.limits);
        let window = Duration::from_millis(limits.violation_window_ms.into());
        let connection = self.connection_mut(from);
        // A logged-in server's mistakes are forgiven, because its world depends on the connection.
        if connection.violations.add(now, limits.max_fsm_violations, window) && !connection.is_trusted() {
            self.send_away(from, "fsm_violations");
        }
    }

    /// A client has sent a malformed message. A server's mistakes are counted, and no more.
    fn note_nonsense(&mut self, from: Place) {
        let (now, limits) = (self.now, self.settings.limits);
        let window = Duration::from_millis(limits.violation_window_ms.into());
        let connection = self.connection_mut(from);
        if connection.malformed.add(now, limits.max_malformed, window) && !connection.is_server() {
            self.send_away(from, "malformed");
        }
    }

    /// Closes a connection that misbehaves, and bans its name for a while.
    fn send_away(&mut self, index: Place, reason: &'static str) {
        self.notice(index, self.connection(index).identifier.clone(), reason);
        let connection = self.connection(index);
        let key = connection.key;
        if connection.is_member() && !connection.identifier.is_empty() {
            self.block(index);
        }
        self.dismiss(key);
    }

    /// Leaves a note about a connection for the log.
    fn notice(&mut self, index: Place, identifier: String, reason: &'static str) {
        if self.notices.len() < NOTICES_MAX {
            let Connection { side, address, id, .. } = *self.connection(index);
            self.notices.push_back(Notice { side, address, connection: id, identifier, reason });
        }
    }

    /// Whether a client may ask for something costly now. Servers always may.
    fn check_allowance(&mut self, from: Place) -> Result<(), Refusal> {
        let (now, per_s) = (self.now, self.settings.limits.max_client_requests_per_s);
        let connection = self.connection_mut(from);
        match connection.is_server() || connection.requests.take(now, per_s) {
            true => Ok(()),
            false => Err(Refusal::Limit("client_requests")),
        }
    }

    pub(crate) fn count(&mut self, refusal: Refusal) -> Refusal {
        *self.counters.refused.entry(refusal.tag()).or_default() += 1;
        *self.counters.refused_by_type.entry((self.concerned.into(), refusal.tag())).or_default() += 1;
        refusal
    }

    /// Ends a connection at the end of the step, because it is to go.
    fn dismiss(&mut self, key: Key) {
        self.end_for(key, EndCause::Ours);
    }

    /// Ends a connection at the end of the step. The first cause counts.
    fn end_for(&mut self, key: Key, cause: EndCause) {
        let Some(index) = self.place(key) else { return };
        if !std::mem::replace(&mut self.connection_mut(index).is_ending, true) {
            self.ending.push((key, cause));
        }
    }

    fn end_patience(&mut self) {
        while let Some(&(end, key)) = self.strangers.first() {
            if end > self.now {
                return;
            }
            self.strangers.pop_first();
            if let Some(index) = self.place(key) {
                self.connection_mut(index).patience_end = None;
                self.count(Refusal::Unauthenticated);
                self.dismiss(key);
            }
        }
    }

    fn flush(&mut self) {
        let limits = &self.settings.limits;
        for index in self.dirty.drain() {
            if let Some(connection) = self.connections.get_mut(index) {
                let side = connection.side;
                self.counters.side(side).bytes_out += connection.flush_messages(&self.buffers) as u64;
                if connection.falls_behind(limits, self.now) {
                    self.watched.push(connection.key);
                }
            }
        }
    }

    fn tick(&self) -> Tick {
        self.tick_at(self.now)
    }

    fn tick_at(&self, now: Time) -> Tick {
        Tick(self.first_tick.0 + now.micros_since(self.start) / 1_000)
    }

    /// The tick that changes made now belong to: later than all that was sent.
    fn change_tick(&self) -> Tick {
        self.tick().newest(self.hub.now().after(1))
    }

    /// Nanoseconds since 1970, as far as the caller of [`Engine::new`] knew.
    fn unix_ns(&self) -> i64 {
        self.unix_start_ns.saturating_add(self.now.micros_since(self.start) as i64 * 1_000)
    }

    fn place(&self, key: Key) -> Option<Place> {
        let connection = self.connections.get(Place::of(key))?;
        (connection.key == key).then_some(connection.place())
    }

    fn connection(&self, index: Place) -> &Connection {
        self.connections.get(index).unwrap_or_else(|| {
            self.absences.fetch_add(1, Ordering::Relaxed);
            &self.no_connection
        })
    }

    fn connection_mut(&mut self, index: Place) -> &mut Connection {
        match self.connections.get_mut(index) {
            Some(connection) => connection,
            None => {
                *self.absences.get_mut() += 1;
                &mut self.no_connection
            }
        }
    }

    fn hub_id(&self, index: Place) -> ConnectionId {
        let key = self.connection(index).key;
        ConnectionId { index: key.index, generation: key.generation }
    }

    fn channel(&self, index: ChannelIndex) -> &Channel {
        self.channels.get(index).unwrap_or_else(|| {
            self.absences.fetch_add(1, Ordering::Relaxed);
            &self.no_channel
        })
    }

    fn channel_mut(&mut self, index: ChannelIndex) -> &mut Channel {
        match self.channels.get_mut(index) {
            Some(channel) => channel,
            None => {
                *self.absences.get_mut() += 1;
                &mut self.no_channel
            }
        }
    }

    fn global(&self) -> ChannelIndex {
        self.by_channel_id[&GLOBAL_CHANNEL]
    }

    /// The master: who owns the global channel.
    fn master(&self) -> Option<Place> {
        // Only the first engine has the true GLOBAL; the others know its owner.
        match self.share.is_first() {
            true => self.channel(self.global()).owner,
            false => self.member_by_id(self.share.master_id?),
        }
    }

    fn connection_by_id(&self, id: u32) -> Option<Place> {
        self.by_connection_id.get(&id).copied()
    }

    /// The same, if it had logged in.
    fn member_by_id(&self, id: u32) -> Option<Place> {
        self.connection_by_id(id).filter(|&index| self.connection(index).is_member())
    }

    /// Queues a message for a connection.
    fn send(&mut self, to: Place, header: Header, body: &impl prost::Message) {
        if let Some(connection) = self.connections.get_mut(to) {
            connection.send(header, body);
            self.counters.side(connection.side).messages_out += 1;
            self.dirty.insert(to);
        }
    }

    /// The same on behalf of `from`: messages that clients cause for a connection are counted.
    fn send_from(&mut self, from: Place, to: Place, header: Header, body: &impl prost::Message) {
        let is_client = self.connections.get(from).is_some_and(|from| !from.is_server());
        let before = self.connections.get(to).map_or(0, |to| to.out_bytes());
        self.send(to, header, body);
        if let Some(connection) = self.connections.get_mut(to).filter(|_| is_client) {
            let bytes = connection.out_bytes().saturating_sub(before);
            connection.from_clients.add(bytes);
        }
    }

    /// Passes on a connection's message. It may [wait](hold) for state that goes out soon.
    fn forward(&mut self, to: Place, header: Header, body: &[u8]) {
        if let Some(connection) = self.connections.get_mut(to) {
            connection.send_bytes(header, body);
            self.counters.side(connection.side).messages_out += 1;
            self.has_forwarded(to);
        }
    }

    fn connection_id_mask(&self) -> u32 {
        u32::MAX >> (32 - self.settings.connection_id_bits.clamp(8, 32))
    }

    /// A number for what a connection writes, that no other had in the last four billion.
    fn free_writer(&mut self) -> u32 {
        self.next_writer = (self.next_writer + 1) % handover::GATEWAY;
        self.next_writer
    }

    /// An unused id. There is one: [`Engine::open`] has counted.
    fn free_connection_id(&mut self) -> u32 {
        let mask = self.connection_id_mask();
        loop {
            let id = match self.settings.development {
                true => {
                    self.next_connection_id = (self.next_connection_id + 1) & mask;
                    self.next_connection_id.wrapping_sub(1) & mask
                }
                false => self.random.u32(..) & mask,
            };
            if id != 0 && !self.by_connection_id.contains_key(&id) && !self.lost.has_connection_id(id) {
                return id;
            }
        }
    }

    /// Makes a channel without owner, subscribers and data.
    fn add_channel(&mut self, id: u32, kind: ChannelType, metadata: String) -> Result<ChannelIndex, Refusal> {
        if self.by_channel_id.contains_key(&id) {
            return Err(Refusal::ChannelExists);
        }
        // One more than allowed: GLOBAL does not count.
        let all = self.by_channel_id.len() + self.memory.channels_elsewhere();
        if all > self.settings.limits.max_channels as usize {
            return Err(Refusal::Limit("channels"));
        }
        let settings = Arc::clone(self.settings.channel_types.of(kind.into()));
        let index = self
            .hub
            .channel_or_insert(ChannelKey::Custom(id), || ChannelLog::new(id, kind))
            .map_err(|_| Refusal::Limit("channels"))?;
        self.hub.set_turn_grid(index, settings.tick_interval_ms);
        self.births += 1;
        let channel = Channel {
            id,
            birth: self.births,
            kind,
            metadata: String::new(),
            settings,
            owner: None,
            subscribers: Subscribers::default(),
            merge: Default::default(),
            creator: None,
            is_awaited: false,
        };
        self.channels.put(index, channel);
        self.by_channel_id.insert(id, index);
        self.memory.note_channels(self.by_channel_id.len());
        *self.channels_by_type.entry(kind as i32 as u32).or_default() += 1;
        self.set_metadata(index, metadata);
        Ok(index)
    }
}

fn group_limits(limits: &Limits) -> EntityGroupLimits {
    EntityGroupLimits {
        members_per_group: limits.max_group_entities as usize,
        entities: limits.max_grouped_entities as usize,
    }
}
