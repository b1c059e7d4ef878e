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
//! # Parts
//!
//! Each part owns its fields: no file but its own touches them, except where a field is a part with operations of its own,
//! as the hub is. An operation that concerns several parts belongs to one of them, and is given the others. The handlers,
//! which decide in which order things happen, belong to [`Engine`].
//!
//! | part | what it has |
//! |---|---|
//! | `clock` | the present time, and how ticks are counted |
//! | `connections` | connections by place, key and number; messages queued for them, and those that are to end |
//! | `logins` | who has not logged in yet, the bearers of names, banned names |
//! | `channels` | channels by index and id, their owners and subscribers, the ids that are free |
//! | `fanout` | the hub with all states and subscriptions, forms of frames, threads, readers that are behind |
//! | `held` | messages that wait for state that goes out soon |
//! | `entities`, `world` | entities and the cells that list them, groups, positions; the grid, servers and pace of handovers |
//! | `lost` | what lost connections have, until they come back |
//! | `memory` | the bytes of states, and whose they are |
//! | `share`, `edges`, `home` | other engines: beside this one, behind it, and in front of it |
//!
//! One tick of the hub is a millisecond since the gateway's start. Between two turns nothing is planned, so connections that have
//! nothing to do cost nothing.

mod absent;
mod away;
mod backlog;
mod blocked;
mod buffers;
mod channel;
mod channels;
mod clock;
mod connection;
mod connections;
mod counters;
mod edges;
mod ends;
mod entities;
mod entity;
mod fanout;
mod forward;
mod handover;
mod hold;
mod home;
mod lanes;
mod lifecycle;
mod log;
mod logins;
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
mod writers;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use throng_channeld::proto::ChannelType;
use throng_channeld::{GLOBAL_CHANNEL, Header, Message, message_type};
use throng_replica::ChannelIndex;
use throng_wire::{Tick, Time};

use crate::fsm::Fsm;
use crate::group::EntityGroupLimits;
use crate::limits::Limits;
use crate::settings::EngineSettings;
use channel::{Channel, Subscribers};
use channels::Channels;
use clock::Clock;
use connection::Connection;
pub use connection::Tally;
use connections::Connections;
pub use counters::{ConnectionInfo, Counters, Occupancy, SideCounters};
pub use edges::Coming;
use edges::Edges;
use entities::Entities;
pub use entity::EntityInfo;
use fanout::Fanout;
use hold::Held;
use home::Home;
use logins::Logins;
use lost::LostOnes;
use memory::Counted;
pub use memory::Pressure;
pub use meters::{ChannelMeters, Stopwatch, TypeMeters};
pub use place::Place;
use port::{AuthRequest, EndCause, Key, LoginNote, Notice, Outbox, Side};
pub use refusal::Refusal;
pub use restore::Restored;
use restore::Restoring;
use share::Share;
pub use share::{Ban, Member, Misrouted};
use snapshot::Taking;
pub use spatial::CellInfo;
use spatial::World;
use state_memory::StateMemory;
pub use threads::{Alone, Helpers, share_parts};
use throng_protostate::Schemas;
pub use view::{BlockedName, CellRow, ChannelRow, ConnectionRow, EntityRow, Row, Slice, Subject};

/// The gateway: connections, channels, and what passes between them.
///
/// Calls in order: [`open`](Self::open), [`receive`](Self::receive), [`authenticated`](Self::authenticated) and
/// [`closed`](Self::closed) for everything that has come, then [`advance`](Self::advance), then
/// [`poll_auth`](Self::poll_auth) until `None`. `now` never falls. Call `advance` again at
/// [`next_deadline`](Self::next_deadline) at the latest.
pub struct Engine {
    settings: Arc<EngineSettings>,
    schemas: Arc<Schemas>,
    clock: Clock,
    connections: Connections,
    logins: Logins,
    channels: Channels,
    fanout: Fanout,
    /// Messages that wait for state.
    held: Held,
    entities: Entities,
    /// The cells, if there are some.
    world: Option<World>,
    /// Lost connections that may come back.
    lost: LostOnes,
    /// A snapshot that is being made.
    taking: Option<Box<Taking>>,
    /// A snapshot that is being read.
    restoring: Option<Box<Restoring>>,
    memory: StateMemory,
    /// The peers that can add nothing more, because there is little memory left.
    pressure: Pressure,
    counted: Counted,
    /// Which of several engines this is.
    share: Share,
    /// Those that hold connections for this one.
    edges: Edges,
    /// The one that this one holds connections for.
    home: Option<Box<Home>>,
    counters: Counters,
    scratch: Vec<u8>,
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
        times: (Time, i64),
        first_tick: Tick,
    ) -> Engine {
        let mut engine = Engine {
            clock: Clock::new(times, first_tick),
            connections: Connections::new(&settings, seed),
            logins: Logins::default(),
            channels: Channels::new(&settings),
            fanout: Fanout::new(times.0, first_tick),
            held: Held::default(),
            entities: Entities::new(group_limits(&settings.limits)),
            world: settings.spatial.as_ref().map(|spatial| World::new(Arc::new(spatial.grid.clone()))),
            lost: LostOnes::default(),
            taking: None,
            restoring: None,
            memory: StateMemory::default(),
            pressure: Pressure::default(),
            counted: Counted::default(),
            share: Share::default(),
            edges: Edges::default(),
            home: None,
            counters: Counters::default(),
            scratch: Vec::new(),
            schemas,
            settings,
        };
        engine.counters.channels = Arc::clone(&engine.fanout.forms.meters);
        let global = engine.add_channel(GLOBAL_CHANNEL, ChannelType::Global, String::new());
        engine.begin_empty(global.expect("there is room for one"));
        engine
    }

    /// From now on the time of encodings is measured.
    pub fn set_stopwatch(&mut self, stopwatch: Stopwatch) {
        self.fanout.forms.stopwatch = stopwatch;
    }

    /// From now on these threads help with large steps.
    pub fn set_helpers(&mut self, helpers: Box<dyn Helpers>) {
        self.fanout.set_helpers(helpers);
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
        self.clock.set(now);
        if self.home.is_some() {
            return self.open_for_home(side, address, outbox);
        }
        if let Some(limit) = self.lacks_place(side) {
            return Err(self.counters.refuse(Refusal::Limit(limit)));
        }
        let key = self.fanout.connect().map_err(|refusal| self.counters.refuse(refusal))?;
        let (mask, lost) = (self.settings.connection_id_mask(), &self.lost);
        let id = self.connections.free_id(mask, self.settings.development, |id| lost.has_connection_id(id));
        let fsm = Fsm::new(Arc::clone(match side {
            Side::Server => &self.settings.server_machine,
            Side::Client => &self.settings.client_machine,
        }));
        let numbers = (id, self.connections.free_writer());
        let mut connection = Connection::new(key, numbers, side, address, outbox, fsm);
        self.logins.begin_patience(&mut connection, now, self.settings.login_patience());
        self.connections.add(connection);
        self.counters.side(side).opened += 1;
        Ok(key)
    }

    /// Whether another client could connect now.
    pub fn has_place_for_client(&self) -> bool {
        self.home.is_some() || self.lacks_place(Side::Client).is_none()
    }

    /// The limit for which there is no place for another connection.
    fn lacks_place(&self, side: Side) -> Option<&'static str> {
        let reserved = if side == Side::Client { self.reserved_for_servers() } else { 0 };
        let taken = self.connections.numbered() + reserved;
        if taken + self.lost.len() >= self.settings.connection_id_mask() as usize {
            return Some("connection_ids");
        }
        (taken >= self.settings.limits.max_connections as usize).then_some("connections")
    }

    /// Connections that are reserved for servers: without servers there is no world.
    fn reserved_for_servers(&self) -> usize {
        let limits = &self.settings.limits;
        let servers = self.counters.of(Side::Server);
        let present = servers.opened.saturating_sub(servers.closed);
        let places = limits.max_connections.min(self.settings.connection_id_mask());
        u64::from(limits.reserved_server_connections.min(places / 2)).saturating_sub(present) as usize
    }

    /// A message has come.
    pub fn receive(&mut self, now: Time, key: Key, message: Message) {
        self.clock.set(now);
        let Some(from) = self.connections.place(key) else { return };
        let side = self.connections.at(from).side;
        self.counters.side(side).messages_in += 1;
        if self.home.is_some() {
            return self.pass_up(from, &message);
        }
        let channel = self.channels.named(message.channel_id);
        self.counters.concerned = channel.map_or(ChannelType::Unknown, |channel| channel.kind);
        if let Err(refusal) = self.dispatch(from, &message) {
            self.counters.refuse(refusal);
            self.answer_refusal(from, &message, refusal);
            if matches!(refusal, Refusal::Malformed | Refusal::Data("malformed")) {
                self.note_nonsense(from);
            }
        }
        self.counters.concerned = ChannelType::Unknown;
    }

    /// A connection is over.
    pub fn closed(&mut self, now: Time, key: Key, cause: EndCause) {
        self.clock.set(now);
        if let Some(index) = self.connections.place(key) {
            self.counters.too_slow += u64::from(cause == EndCause::Stalled);
            self.end(index, cause);
        }
    }

    /// Does all due work: ends waits that are over, fans out state, and hands all queued entries to the outboxes.
    pub fn advance(&mut self, now: Time) {
        self.clock.set(now);
        self.counters.note_absences(self.connections.take_absences() + self.channels.take_absences());
        self.end_patience();
        self.surrender();
        self.give_up_the_unborn();
        self.make_up_for_moves();
        let home_turn = self.home.as_mut().and_then(|home| home.take_turn());
        if home_turn.is_some() || self.is_fan_out_due() {
            self.fan_out(home_turn);
        }
        self.release();
        self.flush();
        while let Some((key, cause)) = self.connections.take_ending() {
            self.closed(now, key, cause);
            self.flush();
        }
        self.edges.send(false);
    }

    /// When [`Engine::advance`] has something to do, if nothing comes before. `None`: never.
    pub fn next_deadline(&self) -> Option<Time> {
        [
            self.logins.next_end(),
            self.lost.next_end(),
            self.entities.unborn.next_end(),
            self.world.as_ref().and_then(|world| world.pace.retry_at()),
            self.next_fan_out(),
            self.held.next(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The next question to the authentication provider.
    pub fn poll_auth(&mut self) -> Option<AuthRequest> {
        self.logins.take_request()
    }

    /// The next of the refused or closed connections. Up to 256 wait.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.connections.take_notice()
    }

    /// New settings, as read from changed files. Existing channels keep their ids, and connections stay; intervals,
    /// limits, access rules and state machines are the new ones from now on.
    pub fn reload(&mut self, settings: Arc<EngineSettings>) {
        self.settings = match &self.home {
            Some(_) => home::settings_of_edge(settings),
            None => self.share.own_settings(settings),
        };
        self.entities.groups.set_limits(group_limits(&self.settings.limits));
        for connection in self.connections.iter_mut() {
            connection.fsm.reload(Arc::clone(match connection.side {
                Side::Server => &self.settings.server_machine,
                Side::Client => &self.settings.client_machine,
            }));
            // The bounds may be others now.
            self.fanout.watch(connection);
        }
        if self.home.is_some() {
            // The home says how copies are merged.
            return;
        }
        let channels: Vec<ChannelIndex> = self.channels.indices().collect();
        for index in channels {
            let settings = {
                let kind = self.channels.at(index).kind;
                Arc::clone(self.settings.channel_types.of(kind.into()))
            };
            self.fanout.hub.set_turn_grid(index, settings.tick_interval_ms);
            self.channels.at_mut(index).settings = settings;
            let options = self.channels.at(index).merge_options();
            self.fanout.hub.state_mut(index).set_options(options);
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
            subscriptions: self
                .fanout
                .hub
                .connection(self.connections.hub_id(connection.place()))
                .map_or(0, |s| s.subscription_count()),
        })
    }

    /// The number under which the protocol knows a connection.
    pub fn number_of(&self, key: Key) -> Option<u32> {
        self.connections.place(key).map(|index| self.connections.at(index).id)
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
        let mut channels = self.channels.by_type().clone();
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
            awaited_servers: self.lost.names().filter(|(side, _)| *side == Side::Server).count(),
        }
    }

    /// Ends all connections, after the newest state and what is queued for them has gone out. With several engines the
    /// first one ends them, when the others were shut down.
    pub fn shut_down(&mut self, now: Time) {
        self.clock.set(now);
        self.fan_out_for_the_last_time();
        if let Some(home) = &mut self.home {
            home.leave();
        }
        if !self.share.is_first() {
            for connection in self.connections.iter_mut() {
                let bytes = self.fanout.flush_messages(connection);
                self.counters.side(connection.side).bytes_out += bytes as u64;
            }
            return;
        }
        for connection in self.connections.iter_mut() {
            let bytes = connection.close();
            self.counters.side(connection.side).bytes_out += bytes as u64;
        }
        self.edges.send(true);
    }

    /// The shell has noted something about a connection's login.
    pub fn note_login(&self, key: Key, note: LoginNote) {
        if let Some(index) = self.connections.place(key) {
            self.connections.at(index).note_login(note);
        }
    }

    /// Which messages a peer may send, and where they go.
    fn dispatch(&mut self, from: Place, message: &Message) -> Result<(), Refusal> {
        self.check_closing(from)?;
        // A session has checked what it has sorted.
        if !self.share.is_sorted() {
            self.check_fsm(from, message.msg_type)?;
        }
        if message.msg_type != message_type::AUTH && !self.connections.at(from).is_member() {
            // Nobody may act before login, even if a state machine allows it.
            return Err(Refusal::StateMachine);
        }
        self.check_memory(from, message.msg_type)?;
        if self.share.passes_on(self.connections.at(from), message) {
            return Ok(());
        }
        let channel = self.channels.find(message.channel_id).ok_or(Refusal::UnknownChannel)?;
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
        let connection = self.connections.at(from);
        if connection.is_closing || connection.is_ending { Err(Refusal::Closing) } else { Ok(()) }
    }

    fn check_fsm(&mut self, from: Place, msg_type: u32) -> Result<(), Refusal> {
        let connection = self.connections.at_mut(from);
        if connection.fsm.accepts(msg_type) {
            connection.fsm.received(msg_type);
            return Ok(());
        }
        self.note_violation(from);
        Err(Refusal::StateMachine)
    }

    /// A connection has sent what its state machine forbids.
    fn note_violation(&mut self, from: Place) {
        let (now, limits) = (self.clock.now(), self.settings.limits);
        let window = Duration::from_millis(limits.violation_window_ms.into());
        let connection = self.connections.at_mut(from);
        // A logged-in server's mistakes are forgiven, because its world depends on the connection.
        if connection.violations.add(now, limits.max_fsm_violations, window) && !connection.is_trusted() {
            self.send_away(from, "fsm_violations");
        }
    }

    /// A client has sent a malformed message. A server's mistakes are counted, and no more.
    fn note_nonsense(&mut self, from: Place) {
        let (now, limits) = (self.clock.now(), self.settings.limits);
        let window = Duration::from_millis(limits.violation_window_ms.into());
        let connection = self.connections.at_mut(from);
        if connection.malformed.add(now, limits.max_malformed, window) && !connection.is_server() {
            self.send_away(from, "malformed");
        }
    }

    /// Closes a connection that misbehaves, and bans its name for a while.
    fn send_away(&mut self, index: Place, reason: &'static str) {
        self.connections.notice(index, self.connections.at(index).identifier.clone(), reason);
        let connection = self.connections.at(index);
        let key = connection.key;
        if connection.is_member() && !connection.identifier.is_empty() {
            self.block(index);
        }
        self.connections.dismiss(key);
    }

    /// Whether a client may ask for something costly now. Servers always may.
    fn check_allowance(&mut self, from: Place) -> Result<(), Refusal> {
        let (now, per_s) = (self.clock.now(), self.settings.limits.max_client_requests_per_s);
        let connection = self.connections.at_mut(from);
        match connection.is_server() || connection.requests.take(now, per_s) {
            true => Ok(()),
            false => Err(Refusal::Limit("client_requests")),
        }
    }

    fn end_patience(&mut self) {
        while let Some(key) = self.logins.take_late(self.clock.now()) {
            if let Some(index) = self.connections.place(key) {
                self.connections.at_mut(index).patience_end = None;
                self.counters.refuse(Refusal::Unauthenticated);
                self.connections.dismiss(key);
            }
        }
    }

    fn flush(&mut self) {
        self.fanout.flush(&mut self.connections, &mut self.counters, &self.settings.limits, self.clock.now());
    }

    /// The master: who owns the global channel.
    fn master(&self) -> Option<Place> {
        // Only the first engine has the true GLOBAL; the others know its owner.
        match self.share.is_first() {
            true => self.channels.at(self.channels.global()).owner,
            false => self.connections.find_member(self.share.master_id()?),
        }
    }

    /// Queues a message for a connection.
    fn send(&mut self, to: Place, header: Header, body: &impl prost::Message) {
        self.connections.send(&mut self.counters, to, header, body);
    }

    /// The same on behalf of `from`.
    fn send_from(&mut self, from: Place, to: Place, header: Header, body: &impl prost::Message) {
        self.connections.send_from(&mut self.counters, (from, to), header, body);
    }

    /// Passes on a connection's message. It may [wait](hold) for state that goes out soon.
    fn forward(&mut self, to: Place, header: Header, body: &[u8]) {
        if let Some(connection) = self.connections.get_mut(to) {
            connection.send_bytes(header, body);
            self.counters.side(connection.side).messages_out += 1;
            self.has_forwarded(to);
        }
    }

    /// Makes a channel without owner, subscribers and data.
    fn add_channel(&mut self, id: u32, kind: ChannelType, metadata: String) -> Result<ChannelIndex, Refusal> {
        if self.channels.has(id) {
            return Err(Refusal::ChannelExists);
        }
        // One more than allowed: GLOBAL does not count. A snapshot has no more than was allowed.
        let all = self.channels.len() + self.memory.channels_elsewhere();
        if all > self.settings.limits.max_channels as usize && self.restoring.is_none() {
            return Err(Refusal::Limit("channels"));
        }
        let settings = Arc::clone(self.settings.channel_types.of(kind.into()));
        let index = self.fanout.add_channel(id, kind, settings.tick_interval_ms)?;
        let channel = Channel {
            id,
            birth: self.channels.next_birth(),
            kind,
            metadata: String::new(),
            settings,
            owner: None,
            subscribers: Subscribers::default(),
            merge: Default::default(),
            creator: None,
            is_awaited: false,
        };
        self.channels.add(index, channel);
        self.memory.note_channels(self.channels.len());
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
