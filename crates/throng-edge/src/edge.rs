//! The edge: clients of its own, and one connection to each origin.

mod counters;
mod moves;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use thiserror::Error;
use throng::{
    ChannelKey, Client, ClientEvent, CloseCause, CloseCode, ConnectionId, EndReason, Facet, GridShape, LaneKind,
    LaneOptions, MessageError, ObjectId, ReceiveError, Replicate, Schema, SendError, Server, ServerEvent, Tick, Time,
    USER_DATA_LEN,
};

use crate::mirror::{Mirror, position_m};
use crate::talk::{
    BODY_MAX, CONNECTED_AGAIN, Down, INPUT_HEAD, InputOf, LANE_BYTES_MIN, LOOKS_BYTES_MAX, ToEdge, ToOrigin, Up,
    join_bytes, push_input, push_look, read_looks, read_object, refusals_bytes, split_refusals,
};
pub use counters::EdgeCounters;
use moves::{Continuing, Leaving, Stage, leave, leave_former};

/// Ticks between two looks at what is read here.
const LOOK_TICKS: u64 = 2;
/// A cell that nobody reads any more stays subscribed for so many ticks: its readers may come back.
const LINGER_TICKS: u32 = 60;
/// A cell that an origin refuses is asked for again after so many ticks.
const LOOK_AGAIN_TICKS: u32 = 30;
/// A client waits for so many ticks for its first object, before it leaves an origin that has no part of the world.
const WAIT_TICKS: u32 = 45;
/// Messages that wait for one origin.
const WAITING_MAX: usize = 65_536;
/// Batches of inputs of which the origin has not said that they are in its state.
const BATCHES_MAX: usize = 1_024;
/// New copies that wait to be polled; the oldest beyond are forgotten.
const COPIES_MAX: usize = 1 << 20;
/// Clients of an origin that is gone, which have joined others; the oldest beyond are forgotten.
const ELSEWHERE_MAX: usize = 65_536;
/// The longest reason for which an origin ends a client, in bytes.
const REASON_BYTES: usize = 200;

/// Options of an edge.
#[derive(Clone)]
pub struct EdgeOptions {
    /// The lane to the origin: the same as [`OriginOptions::lane`](crate::OriginOptions::lane).
    pub lane: u8,
    /// Which origins have objects in a cell of a grid; several servers can share a world that way.
    pub homes: Homes,
    /// Which origin a client joins.
    pub entry: Entry,
    /// Whether an origin that is out of reach is gone: its clients join the one that `entry` names then. If it is not, they wait for it.
    pub is_gone: IsGone,
    /// Whether [`Edge::poll_copied`] tells which object here is a copy of which one there.
    pub tells_copies: bool,
}

/// Pushes the numbers of the origins that have objects in a cell of a grid. Near a border between two servers these are both: an
/// object that crosses it belongs to the first one until it is handed over.
pub type Homes = Arc<dyn Fn(u8, [i32; 3], &mut Vec<usize>) + Send + Sync>;

/// The number of the origin that a client joins, by its id and user data.
pub type Entry = Arc<dyn Fn(u64, &[u8; USER_DATA_LEN]) -> usize + Send + Sync>;

/// Whether the world goes on without an origin, by its number.
pub type IsGone = Arc<dyn Fn(usize) -> bool + Send + Sync>;

impl Default for EdgeOptions {
    /// Lane 0, a single origin that is never gone, and nothing told of copies.
    fn default() -> EdgeOptions {
        let homes: Homes = Arc::new(|_, _, homes| homes.push(0));
        EdgeOptions { lane: 0, homes, entry: Arc::new(|_, _| 0), is_gone: Arc::new(|_| false), tells_copies: false }
    }
}

/// Why an edge cannot begin, or cannot take part in the world of an origin.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EdgeError {
    /// A kind has fields that an edge cannot pass on.
    #[error("kind {kind} has {words} fields: an edge cannot pass them on")]
    Kind {
        /// The kind.
        kind: &'static str,
        /// The word of these fields.
        words: &'static str,
    },
    /// The schema lacks the messages of edges.
    #[error("the schema has no {0}: add .kind::<ToOrigin>().kind::<ToEdge>()")]
    Schema(&'static str),
    /// The edge has another tick interval than an origin.
    #[error("the edge ticks every {edge:?}, and this server every {origin:?}: give both the same tick interval")]
    TickInterval {
        /// The interval of the edge's server.
        edge: Duration,
        /// The interval of the origin.
        origin: Duration,
    },
    /// The lane to an origin cannot take all messages between edges and origins.
    #[error("lane {0} must be reliable and ordered, with message_bytes of at least {LANE_BYTES_MIN}")]
    Lane(u8),
    /// The edge has other grids than an origin.
    #[error("the grids of the edge differ from those of this server from grid {0} on: give both the same")]
    Grids(usize),
}

impl EdgeError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            EdgeError::Kind { .. } => "kind",
            EdgeError::Schema(_) => "schema",
            EdgeError::TickInterval { .. } => "tick_interval",
            EdgeError::Lane(_) => "lane",
            EdgeError::Grids(_) => "grids",
        }
    }
}

/// An object of an origin, and its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The number of the origin.
    pub origin: usize,
    /// The object's id at the origin.
    pub there: ObjectId,
    /// Its id at the edge and at the edge's clients.
    pub here: ObjectId,
}

/// A client of this edge.
struct Player {
    connection: ConnectionId,
    session: u32,
    client_id: u64,
    user_data: Box<[u8; USER_DATA_LEN]>,
    token_ends_s: u64,
    origin: usize,
    /// Objects that belong to it, by the origin's id: the client looks from the first.
    own: Vec<ObjectId>,
    /// Inputs that went to the origin: batch, number.
    sent: VecDeque<(u32, u32)>,
    stage: Stage,
    /// When it joined its origin, if that has given it nothing since then.
    waits_since: Option<Tick>,
    /// It is sent away because it takes nothing. It may come back as the same player.
    is_too_slow: bool,
}

/// A client whose player is at another origin.
#[derive(Clone, Copy)]
struct Elsewhere {
    client_id: u64,
    token_ends_s: u64,
    /// The lane of what the origin is to be told.
    lane: u8,
}

/// A connection to an origin.
struct Link {
    client: Client,
    is_live: bool,
    mirror: Mirror,
    /// The cells that it sends: interval, and until when without readers.
    looks: FxHashMap<ChannelKey, (u16, Tick)>,
    /// The cells that it has refused and that are read here: when it is asked again.
    refused: FxHashMap<ChannelKey, Tick>,
    /// How many messages with refused cells the newest of them counts.
    refusals: u32,
    /// Inputs of this tick.
    inputs: Vec<u8>,
    /// A batch goes out also without inputs: somebody waits for its acknowledgement.
    owes_batch: bool,
    batch: u32,
    waiting: VecDeque<ToOrigin>,
    /// Objects whose owner is known before they are.
    awaited: Vec<(ObjectId, u32)>,
    /// Clients that have joined another origin, or have arrived there, while this one was gone.
    elsewhere: VecDeque<Elsewhere>,
    /// The version by which it was told that it is looked at.
    looks_by: Option<u64>,
}

/// An edge: see the [front page](crate).
pub struct Edge {
    server: Server,
    links: Vec<Link>,
    options: EdgeOptions,
    /// By index of the connection.
    players: Vec<Option<Player>>,
    /// The connection of each session.
    by_session: FxHashMap<u32, ConnectionId>,
    next_session: u32,
    counters: EdgeCounters,
    /// New copies that were not polled yet.
    copied: VecDeque<Copied>,
    leaving: Leaving,
    continuing: Vec<Continuing>,
    /// The version by which the edge looks, as its program says.
    looks_by: Option<u64>,
    /// Why nobody may stay here.
    drained: Option<String>,
    /// Sums of links that were replaced.
    former: (u64, u64),
}

impl Edge {
    /// An edge with a server for its clients, and a client for each origin, which may still be connecting. Both have the game's
    /// schema with [`ToOrigin`] and [`ToEdge`], and the same grids and tick interval as the origins: the connection to another one ends, see
    /// [`origin_end`](Edge::origin_end).
    ///
    /// # Errors
    /// The schema lacks the messages, or has kinds that an edge cannot pass on. The lane to an origin is too small, or of another kind.
    pub fn new(server: Server, origins: Vec<Client>, options: EdgeOptions) -> Result<Edge, EdgeError> {
        check(server.schema())?;
        origins.iter().try_for_each(|client| check_lane(client, options.lane))?;
        let links = origins.into_iter().map(Link::new).collect();
        Ok(Edge {
            server,
            links,
            options,
            players: Vec::new(),
            by_session: FxHashMap::default(),
            next_session: 0,
            counters: EdgeCounters::default(),
            copied: VecDeque::new(),
            leaving: Leaving::default(),
            continuing: Vec::new(),
            looks_by: None,
            drained: None,
            former: (0, 0),
        })
    }

    /// The server of its clients.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The server of its clients, to end it for example.
    pub fn server_mut(&mut self) -> &mut Server {
        &mut self.server
    }

    /// The connection to an origin.
    pub fn origin(&self, number: usize) -> Option<&Client> {
        self.links.get(number).map(|link| &link.client)
    }

    /// Why the connection to an origin has ended; `None` while it has not.
    pub fn origin_end(&self, number: usize) -> Option<&EndReason> {
        self.links.get(number)?.client.end_reason()
    }

    /// Goes on with another connection in the place of an origin that has ended, or is given up: its clients join there again, with
    /// new objects. False if there is no such origin.
    pub fn replace_origin(&mut self, number: usize, client: Client) -> bool {
        if self.links.get(number).is_some_and(|link| link.is_live) {
            // The end of a connection can be known before its event was polled, which then never is.
            self.lose(number);
        }
        let Some(link) = self.links.get_mut(number) else { return false };
        let elsewhere = std::mem::take(&mut link.elsewhere);
        let old = std::mem::replace(link, Link { elsewhere, ..Link::new(client) });
        self.former.0 += old.mirror.counters.refused;
        self.former.1 += old.mirror.counters.recounts;
        true
    }

    /// Sends all clients away, and everybody who still comes: the edge is to end. With
    /// [`OriginOptions::keep_ticks`](crate::OriginOptions::keep_ticks) the origins keep their players, so that each goes on when its client
    /// connects to another edge. Call [`step`](Edge::step) until [`EdgeCounters::players`] is 0, and some ticks longer: farewells may be lost.
    pub fn drain(&mut self, now: Time, reason: &str) {
        self.drained = Some(reason.to_owned());
        let all: Vec<ConnectionId> = self.server.connections().collect();
        all.into_iter().for_each(|connection| self.server.disconnect(connection, now, reason));
    }

    /// The next object that was copied, or goes on at another origin, if [`EdgeOptions::tells_copies`] is set: after the
    /// [`receive`](Edge::receive) of the tick in which clients may first be told of it.
    pub fn poll_copied(&mut self) -> Option<Copied> {
        self.copied.pop_front()
    }

    /// [`EdgeOptions::homes`] answers by this version of the borders from now on. The edge tells each origin the version
    /// ([`OriginEvent::Looks`](crate::OriginEvent::Looks)), after all cells that it looks at now.
    pub fn say_looks(&mut self, version: u64) {
        self.looks_by = Some(version);
    }

    /// The tick of an origin that the newest [`receive`](Edge::receive) stands for; `None` before anything came from there.
    pub fn origin_tick(&self, number: usize) -> Option<Tick> {
        self.links.get(number)?.mirror.tick()
    }

    /// Its counters.
    pub fn counters(&self) -> EdgeCounters {
        let sum = |of: fn(&Link) -> u64| self.links.iter().map(of).sum::<u64>();
        EdgeCounters {
            objects: sum(|link| link.mirror.len() as u64),
            looks: sum(|link| link.looks.len() as u64),
            players: self.players.iter().flatten().count() as u64,
            objects_refused: self.former.0 + sum(|link| link.mirror.counters.refused),
            recounts: self.former.1 + sum(|link| link.mirror.counters.recounts),
            ..self.counters
        }
    }

    /// One tick: what came from both sides, and everything that is due to both. The same as [`receive`](Edge::receive) and
    /// [`tick`](Edge::tick).
    ///
    /// # Errors
    /// A socket fails: of the server first, else of an origin. Everything else of the tick is done all the same, so a socket that
    /// fails now and then is a lossy network.
    pub fn step(&mut self, now: Time) -> Result<(), ReceiveError> {
        let received = self.receive(now);
        self.tick(now);
        received
    }

    /// Takes what came from both sides. Before clients are sent anything of it, [`poll_copied`](Edge::poll_copied) tells what is new.
    ///
    /// # Errors
    /// As of [`step`](Edge::step).
    pub fn receive(&mut self, now: Time) -> Result<(), ReceiveError> {
        let mut received = Ok(());
        for number in 0..self.links.len() {
            received = received.and(self.hear_origin(number, now));
        }
        received = self.server.receive(now).and(received);
        self.take_events(now);
        self.end_searches();
        self.leave_the_gone();
        self.take_inputs();
        self.continue_objects();
        for (origin, link) in self.links.iter_mut().enumerate().filter(|(_, link)| link.is_live) {
            let copied = &mut self.copied;
            let is_told = self.options.tells_copies;
            link.mirror.copy(&link.client, &mut self.server, |there, here| {
                if is_told {
                    copied.push_back(Copied { origin, there, here });
                }
            });
        }
        let too_many = self.copied.len().saturating_sub(COPIES_MAX);
        self.copied.drain(..too_many);
        self.settle_owners();
        self.end_moves(now);
        self.follow();
        self.acknowledge();
        received
    }

    /// Sends everything that is due to both sides.
    pub fn tick(&mut self, now: Time) {
        if self.server.current_tick().0.is_multiple_of(LOOK_TICKS) {
            self.look();
        }
        self.server.tick(now);
        self.links.iter_mut().for_each(|link| link.flush(self.options.lane, now));
    }

    /// Takes what an origin says.
    fn hear_origin(&mut self, number: usize, now: Time) -> Result<(), ReceiveError> {
        let received = self.links[number].client.update(now);
        while let Some(event) = self.links[number].client.poll_event() {
            match event {
                ClientEvent::Connected { tick_interval, .. } => match self.compare(number, tick_interval) {
                    Ok(()) => self.begin(number),
                    Err(error) => {
                        self.counters.origins_unfit += 1;
                        self.links[number].client.close(now, &error.to_string());
                    }
                },
                ClientEvent::Despawned { id, .. } => self.links[number].mirror.remove(id, &mut self.server),
                ClientEvent::Message { message, lane } if lane == self.options.lane => {
                    let is_known = message.get::<ToEdge>().is_some_and(|talk| self.hear(number, &talk, now));
                    self.counters.refused += u64::from(!is_known);
                }
                ClientEvent::Message { .. } => self.counters.refused += 1,
                ClientEvent::Ended(_) => self.lose(number),
                // The copy is made from what is there.
                _ => {}
            }
        }
        received
    }

    /// Whether an origin has the settings of this edge.
    fn compare(&self, number: usize, tick_interval: Duration) -> Result<(), EdgeError> {
        check_lane(&self.links[number].client, self.options.lane)?;
        let own = self.server.tick_interval();
        if tick_interval != own {
            return Err(EdgeError::TickInterval { edge: own, origin: tick_interval });
        }
        let own: Vec<GridShape> = self.server.grids().collect();
        let of_origin = self.links[number].client.replica().into_iter().flat_map(|replica| replica.grids());
        let of_origin: Vec<GridShape> = of_origin.collect();
        let same = own.iter().zip(&of_origin).take_while(|(own, other)| own == other).count();
        if same == own.len().max(of_origin.len()) { Ok(()) } else { Err(EdgeError::Grids(same)) }
    }

    /// The origin is there: all clients join.
    fn begin(&mut self, number: usize) {
        let link = &mut self.links[number];
        link.is_live = true;
        // Before this edge asks it for any cell: this edge shows nobody a second player of these clients. Another one that comes
        // first does, until the origin hears that it has no part of the world (`Balance::settle`).
        for client in std::mem::take(&mut link.elsewhere) {
            link.tell_elsewhere(client);
        }
        let now = self.server.current_tick();
        let all = self.players.iter_mut().flatten();
        let joining = all.filter(|player| player.origin == number && !player.is_sought());
        joining.for_each(|player| link.say(player.join(now)));
    }

    /// The origin is gone: so is what it told.
    fn lose(&mut self, number: usize) {
        self.counters.origins_lost += 1;
        let link = &mut self.links[number];
        link.is_live = false;
        link.looks.clear();
        link.refused.clear();
        self.counters.count_lost(&link.waiting, &link.inputs);
        link.inputs.clear();
        link.waiting.clear();
        link.awaited.clear();
        link.looks_by = None;
        link.mirror.clear(&mut self.server);
        for player in self.players.iter_mut().flatten().filter(|player| player.origin == number) {
            player.own.clear();
            player.sent.clear();
        }
        self.lose_moves(number);
    }

    /// A message of an origin. False if it makes no sense.
    fn hear(&mut self, number: usize, talk: &ToEdge, now: Time) -> bool {
        let step = Down::of(talk.step);
        match step {
            Some(Down::Continues) => return self.hear_continues(number, &talk.body),
            Some(Down::Leaves) => return self.hear_leaves(number, &talk.body),
            Some(Down::Unseen) => return self.hear_unseen(number, talk),
            _ => {}
        }
        let Some(&connection) = self.by_session.get(&talk.session) else {
            // Its client has left meanwhile.
            return step.is_some() && talk.session < self.next_session;
        };
        if step == Some(Down::Has) {
            return self.hear_has(number, connection, &talk.body);
        }
        // The client of a player who is on its way from there may have connected again, to another edge.
        let may_end = |player: &Player| matches!(player.stage, Stage::Moving { from, .. } if from == Some(number));
        let is_its = |player: &Player| player.origin == number || step == Some(Down::End) && may_end(player);
        if !self.player(connection).is_some_and(is_its) {
            return false;
        }
        match step {
            Some(Down::Given) => {
                let Some(object) = read_object(&talk.body) else { return false };
                self.links[number].awaited.push((object, talk.session));
                true
            }
            Some(Down::View) => {
                let Some(position) = position_of(&talk.body) else { return false };
                self.server.set_viewpoint(connection, position);
                true
            }
            Some(Down::Say) => match self.server.send_encoded(connection, talk.lane, &talk.body) {
                Ok(()) | Err(MessageError::UnknownConnection | MessageError::Session(SendError::Closed)) => true,
                // A reliable lane: the client gets all of its messages, or loses its connection.
                Err(MessageError::Session(SendError::QueueFull)) => {
                    self.counters.clients_too_slow += 1;
                    if let Some(player) = self.players[connection.index as usize].as_mut() {
                        player.is_too_slow = true;
                    }
                    self.server.disconnect(connection, now, "you take the messages too slowly");
                    true
                }
                Err(_) => false,
            },
            Some(Down::End) => {
                // With a newer connection the client has a newer state.
                if talk.body != CONNECTED_AGAIN.as_bytes() {
                    self.end_refused_move(number, connection);
                }
                let reason = String::from_utf8_lossy(&talk.body[..talk.body.len().min(REASON_BYTES)]).into_owned();
                self.server.disconnect(connection, now, &reason);
                true
            }
            Some(Down::Move) => self.begin_move(number, connection, &talk.body),
            Some(Down::State) => self.move_on(number, connection, &talk.body),
            Some(Down::Continues | Down::Leaves | Down::Has | Down::Unseen) | None => false,
        }
    }

    /// An origin does not send some cells. False if that makes no sense.
    fn hear_unseen(&mut self, number: usize, talk: &ToEdge) -> bool {
        let Some((refusals, looks)) = split_refusals(&talk.body) else { return false };
        let Some(looks) = read_looks(looks) else { return false };
        let again = self.server.current_tick().after(LOOK_AGAIN_TICKS);
        let link = &mut self.links[number];
        for (channel, _) in looks {
            // It may not be looked at any longer.
            if link.looks.remove(&channel).is_some() {
                link.refused.insert(channel, again);
            }
        }
        // The origin has ignored what was said of borders since then.
        (link.refusals, link.looks_by) = (refusals, None);
        true
    }

    /// Clients that come, go and speak.
    fn take_events(&mut self, now: Time) {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Connected { connection, client_id, user_data } => {
                    self.join(connection, client_id, user_data, now);
                }
                ServerEvent::Disconnected { connection, cause, .. } => {
                    // A client that does not answer, or connects a second time, may come back as the same player.
                    let is_over = match cause {
                        CloseCause::Peer(_) => true,
                        CloseCause::Local(reason) => reason.code != CloseCode::REPLACED && self.drained.is_none(),
                        _ => false,
                    };
                    self.leave(connection, is_over);
                }
                ServerEvent::Message { connection, lane, message } => {
                    let said = self.pass_on(connection, lane, message.bytes());
                    self.counters.messages_dropped += u64::from(!said);
                }
                _ => {}
            }
        }
    }

    fn join(&mut self, connection: ConnectionId, client_id: u64, user_data: Box<[u8; USER_DATA_LEN]>, now: Time) {
        if let Some(reason) = &self.drained {
            return self.server.disconnect(connection, now, reason);
        }
        let origin = (self.options.entry)(client_id, &user_data);
        if origin >= self.links.len() || self.next_session == u32::MAX {
            return self.server.disconnect(connection, now, "this edge has no origin for you");
        }
        let session = self.next_session;
        self.next_session += 1;
        let token_ends_s = self.server.token_expires_unix_s(connection).unwrap_or_default();
        let stage = self.seek(session, (client_id, token_ends_s), origin);
        let (own, sent) = (Vec::new(), VecDeque::new());
        let (waits_since, is_too_slow) = (None, false);
        let mut player = Player {
            connection,
            session,
            client_id,
            user_data,
            token_ends_s,
            origin,
            own,
            sent,
            stage,
            waits_since,
            is_too_slow,
        };
        let now = self.server.current_tick();
        let link = &mut self.links[origin];
        if link.is_live && !player.is_sought() {
            link.say(player.join(now));
        }
        let index = connection.index as usize;
        if self.players.len() <= index {
            self.players.resize_with(index + 1, || None);
        }
        self.by_session.insert(session, connection);
        self.players[index] = Some(player);
    }

    /// Clients whose origin is gone join another one. A new process in its place has no part of the world, and may never get one. So
    /// clients that have joined it leave, too, if it has given them nothing for a while.
    fn leave_the_gone(&mut self) {
        let Edge { server, links, players, options, counters, .. } = self;
        let now = server.current_tick();
        for player in players.iter_mut().flatten() {
            let is_live = links[player.origin].is_live;
            let is_waiting = player.waits_since.is_some_and(|since| now.since(since) > WAIT_TICKS);
            let is_here = is_live && !is_waiting || !matches!(player.stage, Stage::Home);
            if is_here || !(options.is_gone)(player.origin) {
                continue;
            }
            let origin = (options.entry)(player.client_id, &player.user_data);
            if origin == player.origin || links.get(origin).is_none_or(|link| !link.is_live) {
                continue;
            }
            if is_live {
                leave(&mut links[player.origin], player, true);
                player.sent.clear();
            } else {
                links[player.origin].tell_elsewhere(player.elsewhere(0));
            }
            player.origin = origin;
            links[origin].say(player.join(now));
            counters.taken_over += 1;
        }
    }

    fn leave(&mut self, connection: ConnectionId, is_over: bool) {
        let seat = self.players.get_mut(connection.index as usize);
        let Some(player) = seat.and_then(|seat| seat.take_if(|player| player.connection == connection)) else { return };
        self.by_session.remove(&player.session);
        if player.is_sought() {
            return;
        }
        leave(&mut self.links[player.origin], &player, is_over && !player.is_too_slow);
        if let Stage::Moving { from, .. } = player.stage {
            leave_former(&mut self.links, &player, from, true);
        }
    }

    fn player(&self, connection: ConnectionId) -> Option<&Player> {
        let player = self.players.get(connection.index as usize)?.as_ref()?;
        (player.connection == connection).then_some(player)
    }

    /// False if the message cannot be passed on.
    fn pass_on(&mut self, connection: ConnectionId, lane: u8, bytes: &[u8]) -> bool {
        let player = self.players.get_mut(connection.index as usize).and_then(Option::as_mut);
        let Some(player) = player.filter(|player| player.connection == connection) else { return false };
        let session = player.session;
        if let Stage::Held(held) | Stage::Sought(held, _) = &mut player.stage {
            return bytes.len() <= BODY_MAX && held.message(lane, bytes);
        }
        let link = &mut self.links[player.origin];
        let fits = bytes.len() <= BODY_MAX && link.has_room();
        if fits {
            link.say(ToOrigin { step: Up::Say as u8, session, lane, body: bytes.to_vec(), ..ToOrigin::default() });
        }
        fits
    }

    fn take_inputs(&mut self) {
        while let Some((connection, input)) = self.server.poll_input() {
            let player = self.players.get_mut(connection.index as usize).and_then(Option::as_mut);
            let Some(player) = player.filter(|player| player.connection == connection) else { continue };
            if let Stage::Held(held) | Stage::Sought(held, _) = &mut player.stage {
                let is_held = held.input(input.number, input.bytes());
                self.counters.inputs_dropped += u64::from(!is_held);
                continue;
            }
            let link = &mut self.links[player.origin];
            if !link.has_room() || player.sent.len() >= BATCHES_MAX {
                self.counters.inputs_dropped += 1;
                continue;
            }
            link.input(player, input.number, input.bytes());
        }
    }

    /// Gives objects to the clients that they belong to, as soon as they are known.
    fn settle_owners(&mut self) {
        let Edge { server, links, players, by_session, counters, .. } = self;
        // The new owners of objects that may have belonged to other clients of this edge before.
        let mut given = FxHashMap::default();
        for (number, link) in links.iter_mut().enumerate() {
            let Link { awaited, mirror, client, .. } = link;
            awaited.retain(|&(object, session)| {
                let player = by_session.get(&session).and_then(|owner| players[owner.index as usize].as_mut());
                let Some(player) = player.filter(|player| player.origin == number) else { return false };
                if !client.is_mine(object) {
                    // It is not here yet, or belongs to somebody else by now.
                    return true;
                }
                match mirror.set_owner(object, Some(player.connection), server) {
                    Ok(true) => {
                        player.own.retain(|own| *own != object);
                        player.own.push(object);
                        given.insert((number, object), session);
                        player.waits_since = None;
                        false
                    }
                    Ok(false) => true,
                    Err(_) => {
                        counters.refused += 1;
                        false
                    }
                }
            });
            // Objects that never come.
            let too_many = awaited.len().saturating_sub(WAITING_MAX);
            awaited.drain(..too_many);
        }
        for player in players.iter_mut().flatten() {
            let Link { client, mirror, .. } = &links[player.origin];
            player.own.retain(|&object| {
                if given.get(&(player.origin, object)).is_some_and(|&owner| owner != player.session) {
                    return false;
                }
                let is_own = client.is_mine(object);
                if !is_own {
                    // It may still be there, and belong to somebody else.
                    let _ = mirror.set_owner(object, None, server);
                }
                is_own
            });
        }
    }

    /// Each client looks from the first of its objects.
    fn follow(&mut self) {
        let Edge { server, links, players, .. } = self;
        for player in players.iter().flatten() {
            let Some(&object) = player.own.first() else { continue };
            if let Some(position) = position_m(&links[player.origin].client, object) {
                server.set_viewpoint(player.connection, position);
            }
        }
    }

    /// The inputs that are in the state of a client's objects.
    fn acknowledge(&mut self) {
        let Edge { server, links, players, .. } = self;
        for player in players.iter_mut().flatten() {
            let client = &links[player.origin].client;
            let of = |object: &ObjectId| client.input_acked_by(*object);
            // A client that owns nothing has no older state than the newest that came.
            let owns_nothing = player.own.is_empty() && matches!(player.stage, Stage::Home);
            let batch =
                if owns_nothing { client.input_acked() } else { player.own.iter().filter_map(of).reduce(oldest) };
            let Some(batch) = batch else { continue };
            let mut newest = None;
            while let Some(&(sent, number)) = player.sent.front()
                && batch.wrapping_sub(sent) < u32::MAX / 2
            {
                newest = Some(number);
                player.sent.pop_front();
            }
            if let Some(number) = newest {
                server.acknowledge_input(player.connection, number);
            }
        }
    }

    /// Looks at what is read here, and tells the origins.
    fn look(&mut self) {
        let now = self.server.current_tick();
        let mut wanted: Vec<FxHashMap<ChannelKey, u16>> = vec![FxHashMap::default(); self.links.len()];
        let mut homes = Vec::new();
        for (channel, interval_ticks) in self.server.channels_read() {
            let ChannelKey::Cell { grid, cell } = channel else { continue };
            homes.clear();
            (self.options.homes)(grid, cell, &mut homes);
            for &home in &homes {
                if let Some(wanted) = wanted.get_mut(home) {
                    wanted.insert(channel, interval_ticks);
                }
            }
        }
        for (link, wanted) in self.links.iter_mut().zip(wanted) {
            if link.is_live && link.has_room() {
                link.look(&wanted, now);
                let is_new = link.refused.is_empty() && link.looks_by != self.looks_by;
                if let Some(version) = self.looks_by.filter(|_| is_new) {
                    link.looks_by = self.looks_by;
                    let (number, body) = (version, refusals_bytes(link.refusals).to_vec());
                    link.say(ToOrigin { step: Up::Looks as u8, number, body, ..ToOrigin::default() });
                }
            }
        }
    }
}

impl Player {
    /// Whether it is not known yet which origin has it.
    fn is_sought(&self) -> bool {
        matches!(self.stage, Stage::Sought(..))
    }

    fn elsewhere(&self, lane: u8) -> Elsewhere {
        Elsewhere { client_id: self.client_id, token_ends_s: self.token_ends_s, lane }
    }

    fn join(&mut self, now: Tick) -> ToOrigin {
        self.waits_since = Some(now);
        let body = join_bytes(&self.user_data, self.token_ends_s);
        ToOrigin { step: Up::Join as u8, session: self.session, number: self.client_id, body, ..ToOrigin::default() }
    }
}

impl Link {
    fn new(client: Client) -> Link {
        Link {
            client,
            is_live: false,
            mirror: Mirror::default(),
            looks: FxHashMap::default(),
            refused: FxHashMap::default(),
            refusals: 0,
            inputs: Vec::new(),
            owes_batch: false,
            batch: 1,
            waiting: VecDeque::new(),
            awaited: Vec::new(),
            elsewhere: VecDeque::new(),
            looks_by: None,
        }
    }

    /// Whether messages may be queued that may as well be dropped.
    fn has_room(&self) -> bool {
        self.is_live && self.waiting.len() < WAITING_MAX
    }

    /// Queues a message. Joins and leaves are always taken: there are as many as clients.
    fn say(&mut self, talk: ToOrigin) {
        self.waiting.push_back(talk);
    }

    /// Adds an input to the batch of this tick. A batch that is full leaves before.
    fn input(&mut self, player: &mut Player, number: u32, bytes: &[u8]) {
        if self.inputs.len() + INPUT_HEAD + bytes.len() > BODY_MAX {
            self.end_batch();
        }
        player.sent.push_back((self.batch, number));
        push_input(&mut self.inputs, InputOf { session: player.session, number, bytes });
    }

    fn end_batch(&mut self) {
        let (number, body) = (u64::from(self.batch), std::mem::take(&mut self.inputs));
        self.say(ToOrigin { step: Up::Inputs as u8, number, body, ..ToOrigin::default() });
        self.batch = self.batch.wrapping_add(1);
    }

    /// Tells the origin that the player of a client is at another one: now, or when the origin is there again.
    fn tell_elsewhere(&mut self, client: Elsewhere) {
        if self.is_live {
            let Elsewhere { client_id: number, token_ends_s, lane } = client;
            let (step, body) = (Up::Elsewhere as u8, token_ends_s.to_le_bytes().to_vec());
            return self.say(ToOrigin { step, number, lane, body, ..ToOrigin::default() });
        }
        if self.elsewhere.len() >= ELSEWHERE_MAX {
            self.elsewhere.pop_front();
        }
        self.elsewhere.push_back(client);
    }

    /// Subscribes to what is wanted, and after a while no longer to what is not.
    fn look(&mut self, wanted: &FxHashMap<ChannelKey, u16>, now: Tick) {
        let mut body = Vec::new();
        self.refused.retain(|&channel, again| {
            let is_wanted = wanted.contains_key(&channel);
            if !is_wanted {
                push_look(&mut body, channel, 0);
            }
            is_wanted && again.is_newer_than(now)
        });
        for (&channel, &interval_ticks) in wanted.iter().filter(|(channel, _)| !self.refused.contains_key(channel)) {
            let until = now.after(LINGER_TICKS);
            let known = self.looks.insert(channel, (interval_ticks, until));
            if known.is_none_or(|(known_ticks, _)| known_ticks != interval_ticks) {
                push_look(&mut body, channel, interval_ticks);
            }
        }
        self.looks.retain(|&channel, &mut (_, until)| {
            let stays = wanted.contains_key(&channel) || until.is_newer_than(now);
            if !stays {
                push_look(&mut body, channel, 0);
            }
            stays
        });
        for part in body.chunks(LOOKS_BYTES_MAX) {
            self.say(ToOrigin { step: Up::Look as u8, body: part.to_vec(), ..ToOrigin::default() });
        }
    }

    /// Sends everything that waits, as far as there is room.
    fn flush(&mut self, lane: u8, now: Time) {
        if self.is_live {
            if !self.inputs.is_empty() || std::mem::take(&mut self.owes_batch) {
                self.end_batch();
            }
            while let Some(talk) = self.waiting.front() {
                if self.client.send(lane, talk).is_err() {
                    break;
                }
                self.waiting.pop_front();
            }
        }
        self.client.flush(now);
    }
}

/// The earlier of two batches, whose numbers wrap.
fn oldest(a: u32, b: u32) -> u32 {
    if a.wrapping_sub(b) < u32::MAX / 2 { b } else { a }
}

fn position_of(body: &[u8]) -> Option<[f64; 3]> {
    let (numbers, rest) = body.as_chunks::<8>();
    let numbers: [f64; 3] = <[[u8; 8]; 3]>::try_from(numbers).ok()?.map(f64::from_le_bytes);
    (rest.is_empty() && numbers.iter().all(|number| number.is_finite())).then_some(numbers)
}

/// Whether all messages of edges fit into a lane. The origin has the same lanes, or it refuses the connection.
fn check_lane(client: &Client, lane: u8) -> Result<(), EdgeError> {
    let fits = |lane: &LaneOptions| lane.kind == LaneKind::ReliableOrdered && lane.message_bytes >= LANE_BYTES_MIN;
    if client.lanes().get(usize::from(lane)).is_some_and(fits) { Ok(()) } else { Err(EdgeError::Lane(lane)) }
}

/// Whether an edge can pass on all kinds.
fn check(schema: &Schema) -> Result<(), EdgeError> {
    let missing =
        [ToOrigin::KIND, ToEdge::KIND].into_iter().find(|name| !schema.kinds().iter().any(|kind| kind.name == *name));
    if let Some(name) = missing {
        return Err(EdgeError::Schema(name));
    }
    for kind in schema.kinds() {
        let words = match () {
            () if kind.skip_owner_mask() != 0 => "skip_owner",
            () if kind.facet_mask(Facet::Others) != 0 => "hide_from_owner",
            () => continue,
        };
        return Err(EdgeError::Kind { kind: kind.name, words });
    }
    Ok(())
}
