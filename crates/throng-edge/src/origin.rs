//! The game's side: players who come through edges.

mod counters;
mod edge_seat;
mod error;
mod event;
mod let_go;
mod options;
mod seat;

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};
use throng::{ChannelKey, ConnectionId, ObjectId, Replicate, Replication, Server, ServerEvent, Tick, Time};

use crate::talk::{
    Arrival, BODY_MAX, CONNECTED_AGAIN, Down, GOES_ON, HasAnswer, LET_GO_ONLY, STATE_MAX, ToEdge, ToOrigin, Up,
    continues_bytes, is_edge, leaves_bytes, object_bytes, other_revision, read_inputs, read_looks, read_token_end,
    split_join, split_refusals,
};
pub use counters::OriginCounters;
use edge_seat::{EdgeSeat, UNSEEN_WAITING_MAX, WAITING_MAX};
pub use error::OriginError;
use event::About;
pub use event::OriginEvent;
use let_go::LetGo;
pub use options::OriginOptions;
use seat::{Away, Seat, Stage};

/// A player at an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlayerId {
    /// The connection of the edge.
    pub edge: ConnectionId,
    /// The number of the player there, which no other player of this edge's connection gets.
    pub session: u32,
}

/// Players who are here and away. More than so many are not kept.
const KEPT_MAX: usize = 1 << 17;

/// With fewer events than these, a closed origin does not look for those of players who have gone.
const FORGETS_AT_MIN: usize = 256;

/// The state of a player whose edge died on the way to another origin is kept for so many ticks at most.
const LET_GO_TICKS: u32 = 300;

/// A packet of an edge is half full at least, if it sends so much that the number of its packets is bounded.
const PACKET_BYTES: u32 = 600;

/// Why a connection ends for which there is no room.
const FULL: &str = "the server of this part of the world is full";

/// Bytes of messages, and of the states of players who arrive, that wait while an origin is closed.
const CLOSED_BYTES_MAX: usize = 64 << 20;

/// The players of edges, beside the game's server.
///
/// ```
/// # use throng::{Server, Placement, Replicate};
/// # use throng_edge::{Origin, OriginError, OriginEvent};
/// # #[derive(Clone, Default, Replicate)]
/// # struct Hero { #[replicate(position(step = 0.01))] position: [f32; 3] }
/// /// Once per tick, between `receive` and `tick`.
/// fn take_players(server: &mut Server, origin: &mut Origin, now: throng::Time) -> Result<(), OriginError> {
///     while let Some(event) = server.poll_event() {
///         if let Some(event) = origin.take(server, event, now) {
///             println!("a client without an edge: {event:?}");
///         }
///     }
///     while let Some(event) = origin.poll_event() {
///         match event {
///             OriginEvent::Joined { player, .. } => {
///                 let hero = server.spawn(Hero::default(), Placement::Cell(0))?;
///                 origin.give(server, player, hero)?;
///             }
///             OriginEvent::Left(player) => println!("{player:?} has left: despawn its objects"),
///             OriginEvent::Input { player, bytes, .. } => println!("{player:?} does {bytes:?}"),
///             _ => {}
///         }
///     }
///     origin.before_tick(server);
///     Ok(())
/// }
/// ```
///
/// A player who walks into the part of another server, and one who comes back through another edge:
///
/// ```
/// use std::collections::HashMap;
/// # use throng::{ObjectId, Placement, Replicate, Server};
/// # use throng_edge::{Origin, OriginEvent, PlayerId};
/// # #[derive(Clone, Default, Replicate)]
/// # struct Hero { #[replicate(position(step = 0.01))] position: [f32; 3] }
/// type Heroes = HashMap<PlayerId, ObjectId>;
///
/// fn take_event(server: &mut Server, origin: &mut Origin, heroes: &mut Heroes, event: OriginEvent) {
///     match event {
///         // Some ticks after `origin.hand_over(player, 1)`. From now on the hero stands still here.
///         OriginEvent::Free { player, .. } => {
///             let Some(hero) = server.get::<Hero>(heroes[&player]) else { return };
///             let state = hero.position.map(f32::to_le_bytes).concat();
///             // An error says that the player has just left.
///             let _ = origin.release(player, heroes[&player], &state);
///         }
///         // At server 1. The state has come through an edge: check it like any input. A player without an object has
///         // to go: its edge waits for one.
///         OriginEvent::Arrived { player, state, .. } => {
///             let numbers = <[[u8; 4]; 3]>::try_from(state.as_chunks::<4>().0);
///             let hero = numbers.map(|numbers| Hero { position: numbers.map(f32::from_le_bytes) });
///             let Some(hero) = hero.ok().and_then(|hero| server.spawn(hero, Placement::Cell(0)).ok()) else {
///                 let _ = origin.disconnect(player, "this server cannot take you in");
///                 return;
///             };
///             let _ = origin.give(server, player, hero);
///             heroes.insert(player, hero);
///         }
///         // With `OriginOptions::keep_ticks`.
///         OriginEvent::Returned { player, former } => {
///             let Some(hero) = heroes.remove(&former) else { return };
///             let _ = origin.give(server, player, hero);
///             heroes.insert(player, hero);
///         }
///         OriginEvent::Left(player) => {
///             if let Some(hero) = heroes.remove(&player) {
///                 server.despawn(hero);
///             }
///         }
///         _ => {}
///     }
/// }
/// ```
pub struct Origin {
    options: OriginOptions,
    /// By index of the connection.
    edges: FxHashMap<u32, EdgeSeat>,
    /// By client id: players who are here, and those who are away.
    clients: FxHashMap<u64, (PlayerId, Option<Away>)>,
    /// Edges of other revisions that are sent away.
    strangers: FxHashSet<ConnectionId>,
    /// Edges for which too many ends of clients wait. They are to be sent away.
    deaf: Vec<ConnectionId>,
    /// Players whom it has let go. Only if players are kept.
    let_go: LetGo,
    /// The tick of the newest [`before_tick`](Origin::before_tick).
    tick: Tick,
    events: VecDeque<OriginEvent>,
    /// It tells the game nothing yet.
    is_closed: bool,
    /// While it is closed: at so many events, those of players and edges that have gone are removed.
    forgets_at: usize,
    /// The players of those events.
    gone_unseen: FxHashSet<PlayerId>,
    /// Bytes of the messages and states that wait while it is closed.
    waiting_bytes: usize,
    /// It has told an event.
    has_told: bool,
    counters: OriginCounters,
}

impl Origin {
    /// Without edges.
    pub fn new(options: OriginOptions) -> Origin {
        Origin {
            options,
            edges: FxHashMap::default(),
            clients: FxHashMap::default(),
            strangers: FxHashSet::default(),
            deaf: Vec::new(),
            let_go: LetGo::default(),
            tick: Tick(0),
            events: VecDeque::new(),
            is_closed: false,
            forgets_at: 0,
            gone_unseen: FxHashSet::default(),
            waiting_bytes: 0,
            has_told: false,
            counters: OriginCounters::default(),
        }
    }

    /// Takes an event of the server if it is of an edge, and returns it if it is not.
    pub fn take<R: Replication>(
        &mut self,
        server: &mut Server<R>,
        event: ServerEvent,
        now: Time,
    ) -> Option<ServerEvent> {
        match event {
            ServerEvent::Connected { connection, ref user_data, .. } if is_edge(user_data) => {
                server.set_budget(connection, self.options.edge_bytes_per_s, now);
                server.set_packets_per_s(connection, self.options.edge_bytes_per_s / PACKET_BYTES, now);
                // So that the objects of its players come in every tick: a connection is sent to as often as its most frequent
                // channel wants. Nothing lives in this one, and a limit that refuses it costs freshness alone.
                let own = server.subscribe(connection, ChannelKey::Owner(connection), 1);
                self.counters.looks_refused += u64::from(own.is_err());
                self.edges.insert(connection.index, EdgeSeat::new(connection));
                self.events.push_back(OriginEvent::EdgeJoined(connection));
            }
            ServerEvent::Connected { connection, ref user_data, .. }
                if let Some(reason) = other_revision(user_data) =>
            {
                self.counters.refused += 1;
                self.strangers.insert(connection);
                server.disconnect(connection, now, &reason);
            }
            ServerEvent::Disconnected { connection, .. } if self.strangers.remove(&connection) => {}
            ServerEvent::Disconnected { connection, .. } if self.seat(connection).is_some() => self.end(connection),
            ServerEvent::Message { connection, ref message, lane } if self.seat(connection).is_some() => {
                let is_other_lane = lane != self.options.lane && message.kind() == Some(ToOrigin::KIND);
                if is_other_lane {
                    server.disconnect(connection, now, &other_lane(lane, self.options.lane));
                }
                let talk = message.get::<ToOrigin>().filter(|_| lane == self.options.lane);
                let is_known = talk.is_some_and(|talk| self.hear(server, connection, talk, now));
                self.counters.refused += u64::from(!is_known);
                for edge in self.deaf.drain(..) {
                    server.disconnect(edge, now, "you read nothing, and too many of your clients have to end");
                }
            }
            // A client that is no edge, and speaks as one.
            ServerEvent::Message { ref message, .. } if message.kind() == Some(ToOrigin::KIND) => {
                self.counters.refused += 1;
            }
            event => return Some(event),
        }
        None
    }

    /// The next event of edges and players. `None` while it is [closed](Origin::set_open).
    pub fn poll_event(&mut self) -> Option<OriginEvent> {
        if self.is_closed {
            return None;
        }
        let event = self.events.pop_front();
        self.has_told |= event.is_some();
        event
    }

    /// Closes or opens it. At first it is open, and once it has told an event it stays so. Edges and players that come while it is closed
    /// wait until it opens, and so do their messages. It drops their inputs and counts them. It tells nothing of edges and players that
    /// go before it opens. [`Balance::settle`](crate::Balance::settle) keeps the origin of a server that has just started closed, until the server knows what
    /// the process before it had.
    pub fn set_open(&mut self, is_open: bool) {
        let is_closed = !is_open && !self.has_told;
        if self.is_closed && !is_closed {
            self.forget_gone();
        }
        self.is_closed = is_closed;
        self.count_waiting();
    }

    /// A player or an edge has gone. While the origin is closed, the game does not know that it had come.
    fn tell_gone(&mut self, event: OriginEvent) {
        if !self.is_closed {
            return self.events.push_back(event);
        }
        if let About::Player(player) = event.about() {
            self.gone_unseen.insert(player);
        }
        if self.events.len() >= self.forgets_at {
            self.forget_gone();
            self.forgets_at = FORGETS_AT_MIN + 2 * self.events.len();
        }
    }

    /// Removes the events of players and edges that are not there any more.
    fn forget_gone(&mut self) {
        self.gone_unseen.clear();
        let Origin { edges, events, .. } = self;
        let edge_of =
            |connection: ConnectionId| edges.get(&connection.index).filter(|seat| seat.connection == connection);
        events.retain(|event| match event.about() {
            About::Edge(edge) => edge_of(edge).is_some(),
            About::Player(player) => {
                edge_of(player.edge).is_some_and(|seat| seat.players.contains_key(&player.session))
            }
        });
        self.count_waiting();
    }

    fn count_waiting(&mut self) {
        self.waiting_bytes = self.events.iter().map(OriginEvent::payload_bytes).sum();
    }

    /// To be called after all events were polled and their inputs applied, before the server's tick: the state of this tick
    /// includes them.
    pub fn before_tick<R: Replication>(&mut self, server: &mut Server<R>) {
        for seat in self.edges.values_mut() {
            if let Some(batch) = seat.batch.take() {
                server.acknowledge_input(seat.connection, batch);
            }
            seat.flush(server, self.options.lane);
        }
        self.tick = server.current_tick();
        self.forget();
    }

    /// Players who have been away for too long leave.
    fn forget(&mut self) {
        let tick = self.tick;
        self.let_go.sweep(tick);
        self.end_kept(|until| !until.is_newer_than(tick));
    }

    /// Of the players who are away, those leave whose last tick is such a one.
    fn end_kept(&mut self, is_over: impl Fn(Tick) -> bool) {
        let Origin { clients, events, .. } = self;
        clients.retain(|_, (player, away)| {
            let is_over = away.is_some_and(|away| is_over(away.until));
            if is_over {
                events.push_back(OriginEvent::Left(*player));
            }
            !is_over
        });
    }

    /// Gives an object to a player, who looks from there if it is the first. The player's edge gets its fields for the owner.
    ///
    /// # Errors
    /// The player has left, or there is no room.
    pub fn give<R: Replication>(
        &mut self,
        server: &mut Server<R>,
        player: PlayerId,
        object: ObjectId,
    ) -> Result<(), OriginError> {
        let edge = self.edge_of(player)?;
        server.set_owner(object, Some(edge))?;
        self.tell(player, (Down::Given, 0), object_bytes(object).to_vec())?;
        if let Some(former) = self.player(player).and_then(|seat| seat.former.take()) {
            self.tell_all(Down::Continues, &continues_bytes(former, object));
        }
        Ok(())
    }

    /// Hands a player over to another server of the same world, `to` by its number at the edges. The player stays as it is until
    /// [`OriginEvent::Free`] comes.
    ///
    /// # Errors
    /// The player has left, or is handed over already, or its edge takes no more messages now.
    pub fn hand_over(&mut self, player: PlayerId, to: u16) -> Result<(), OriginError> {
        self.at_stage(player, |stage| stage == Stage::Here)?;
        self.tell(player, (Down::Move, 0), to.to_le_bytes().to_vec())?;
        self.set_stage(player, Stage::Asked { to });
        Ok(())
    }

    /// Lets go of a player after [`OriginEvent::Free`], with all that the other server has to know of it. `object` goes on there.
    /// Let it stand still, and despawn it with [`OriginEvent::Left`]: until the other server has it, clients are shown this one.
    ///
    /// # Errors
    /// The player has left, or is not free to go, or its edge takes no more messages now, or the state is longer than
    /// [`STATE_MAX`].
    pub fn release(&mut self, player: PlayerId, object: ObjectId, state: &[u8]) -> Result<(), OriginError> {
        let Seat { stage, client_id, .. } = *self.player(player).ok_or(OriginError::UnknownPlayer)?;
        let Stage::Free { to } = stage else { return Err(OriginError::Moving) };
        if state.len() > STATE_MAX {
            return Err(OriginError::TooLong(state.len()));
        }
        self.tell(player, (Down::State, 0), [&object_bytes(object)[..], state].concat())?;
        self.tell_all(Down::Leaves, &leaves_bytes(object, to));
        self.set_stage(player, Stage::Released);
        if self.options.keep_ticks > 0 {
            let is_kept = self.let_go.keep(client_id, (player, to), state);
            self.counters.let_go_refused += u64::from(!is_kept);
        }
        Ok(())
    }

    /// Lets a player without objects look from a position, in metres.
    ///
    /// # Errors
    /// The player has left, or its edge takes no more messages now.
    pub fn look(&mut self, player: PlayerId, position: [f64; 3]) -> Result<(), OriginError> {
        let body = position.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.tell(player, (Down::View, 0), body)
    }

    /// Sends a message to a player, on a lane of the edge's server.
    ///
    /// # Errors
    /// The player has left, the type is not in the schema, the message is too long, or its edge takes no more now.
    pub fn send<T: Replicate, R: Replication>(
        &mut self,
        server: &Server<R>,
        player: PlayerId,
        lane: u8,
        message: &T,
    ) -> Result<(), OriginError> {
        let body = server.encoded(message)?;
        self.tell(player, (Down::Say, lane), body)
    }

    /// Ends a player's connection to its edge; [`OriginEvent::Left`] follows.
    ///
    /// # Errors
    /// The player has left, or its edge takes no more messages now.
    pub fn disconnect(&mut self, player: PlayerId, reason: &str) -> Result<(), OriginError> {
        self.tell(player, (Down::End, 0), reason.as_bytes().to_vec())
    }

    /// All players, in no particular order.
    pub fn players(&self) -> impl Iterator<Item = PlayerId> + '_ {
        let of = |seat: &EdgeSeat| seat.connection;
        self.edges
            .values()
            .flat_map(move |seat| seat.players.keys().map(move |&session| PlayerId { edge: of(seat), session }))
    }

    /// Its counters of refused messages.
    pub fn counters(&self) -> OriginCounters {
        self.counters
    }

    fn seat(&mut self, connection: ConnectionId) -> Option<&mut EdgeSeat> {
        self.edges.get_mut(&connection.index).filter(|seat| seat.connection == connection)
    }

    fn player(&mut self, player: PlayerId) -> Option<&mut Seat> {
        self.seat(player.edge)?.players.get_mut(&player.session)
    }

    fn at_stage(&mut self, player: PlayerId, is_right: impl FnOnce(Stage) -> bool) -> Result<(), OriginError> {
        let seat = self.player(player).ok_or(OriginError::UnknownPlayer)?;
        if is_right(seat.stage) { Ok(()) } else { Err(OriginError::Moving) }
    }

    fn set_stage(&mut self, player: PlayerId, stage: Stage) {
        if let Some(seat) = self.player(player) {
            seat.stage = stage;
        }
    }

    /// The edge of a player who is here.
    fn edge_of(&mut self, player: PlayerId) -> Result<ConnectionId, OriginError> {
        self.at_stage(player, |stage| stage != Stage::Released)?;
        Ok(player.edge)
    }

    /// Queues a message. It leaves with the next tick.
    fn tell(&mut self, player: PlayerId, (step, lane): (Down, u8), body: Vec<u8>) -> Result<(), OriginError> {
        self.edge_of(player)?;
        if body.len() > BODY_MAX {
            return Err(OriginError::TooLong(body.len()));
        }
        let seat = self.seat(player.edge).filter(|seat| seat.waiting.len() < WAITING_MAX);
        let talk = ToEdge { step: step as u8, session: player.session, lane, body };
        seat.ok_or(OriginError::Full)?.waiting.push_back(talk);
        Ok(())
    }

    /// Queues a message to all edges. One that takes no more goes without: nothing but smoothness is lost.
    fn tell_all(&mut self, step: Down, body: &[u8]) {
        for seat in self.edges.values_mut().filter(|seat| seat.waiting.len() < WAITING_MAX) {
            seat.waiting.push_back(ToEdge { step: step as u8, body: body.to_vec(), ..ToEdge::default() });
        }
    }

    /// An edge has gone, and its players with it.
    fn end(&mut self, connection: ConnectionId) {
        let Some(seat) = self.edges.remove(&connection.index) else { return };
        let mut players: Vec<(u32, Seat)> = seat.players.into_iter().collect();
        players.sort_unstable_by_key(|(session, _)| *session);
        for (session, seat) in players {
            self.part(PlayerId { edge: connection, session }, seat, true);
        }
        self.tell_gone(OriginEvent::EdgeLeft(connection));
    }

    /// Takes a message of an edge. False if it makes no sense.
    fn hear<R: Replication>(&mut self, server: &mut Server<R>, edge: ConnectionId, talk: ToOrigin, now: Time) -> bool {
        let player = PlayerId { edge, session: talk.session };
        match Up::of(talk.step) {
            Some(Up::Join) => self.join(player, &talk),
            // A client that says goodbye does not come back.
            Some(Up::Leave) => self.leave(player, talk.number == 0),
            Some(Up::Inputs) => self.take_inputs(edge, talk.number, &talk.body),
            Some(Up::Say) => {
                let is_known = self.edge_of(player).is_ok();
                if !is_known {
                    return self.is_gone(player);
                }
                if self.has_room_for(talk.body.len()) {
                    let (lane, message) = (talk.lane, server.received(talk.body));
                    self.push(OriginEvent::Message { player, lane, message });
                } else {
                    self.counters.dropped += 1;
                }
                true
            }
            Some(Up::Look) => self.look_at(server, edge, &talk.body, now),
            Some(Up::Free) => self.set_free(player),
            Some(Up::Stay) => {
                let is_asked = self.at_stage(player, |stage| matches!(stage, Stage::Asked { .. })).is_ok();
                if is_asked {
                    self.set_stage(player, Stage::Here);
                    self.events.push_back(OriginEvent::Stays(player));
                }
                is_asked
            }
            Some(Up::Arrive) => self.arrive(player, &talk),
            Some(Up::Seek) => self.tell_whether_it_is_here(player, &talk),
            Some(Up::Elsewhere) => {
                let Some(token_ends_s) = read_token_end(&talk.body) else { return false };
                self.forget_client(talk.number, token_ends_s, talk.lane);
                true
            }
            Some(Up::Looks) => {
                let version = talk.number;
                let Some((refusals, [])) = split_refusals(&talk.body) else { return false };
                // It does not know yet of cells that it does not see. It says its version again when it sees them.
                if self.seat(edge).is_none_or(|seat| !seat.accept_looks(refusals)) {
                    return true;
                }
                let of_edge =
                    |event: &&mut OriginEvent| matches!(event, OriginEvent::Looks { edge: of, .. } if *of == edge);
                match self.events.iter_mut().filter(|_| self.is_closed).find(of_edge) {
                    Some(waiting) => *waiting = OriginEvent::Looks { edge, version },
                    None => self.push(OriginEvent::Looks { edge, version }),
                }
                true
            }
            None => false,
        }
    }

    /// False if a message or state finds no room at a closed origin.
    fn has_room_for(&mut self, bytes: usize) -> bool {
        if !self.is_closed {
            return true;
        }
        if self.waiting_bytes + bytes > CLOSED_BYTES_MAX && !self.gone_unseen.is_empty() {
            self.forget_gone();
        }
        let has_room = self.waiting_bytes + bytes <= CLOSED_BYTES_MAX;
        if has_room {
            self.waiting_bytes += bytes;
        }
        has_room
    }

    fn join(&mut self, player: PlayerId, talk: &ToOrigin) -> bool {
        let Some((&user_data, token_ends_s, [])) = split_join(&talk.body) else { return false };
        let client_id = talk.number;
        // An edge that has lost its connection for a while tells of clients again that have connected to another one meanwhile.
        if self.is_known_by_newer(client_id, token_ends_s) {
            return self.turn_away(player, CONNECTED_AGAIN);
        }
        if !self.seat_player(player, Seat { client_id, token_ends_s, ..Seat::default() }) {
            return self.turn_away(player, FULL);
        }
        let arrived = self.take_arrived(client_id);
        let goes_on = talk.lane == GOES_ON;
        let let_go = self.let_go.take(client_id).filter(|_| goes_on);
        self.let_go.forget(client_id);
        if let Some(former) = self.note_client(client_id, player) {
            self.events.push_back(OriginEvent::Returned { player, former });
            return true;
        }
        if let Some(OriginEvent::Arrived { client_id, user_data, former, state, .. }) = arrived {
            self.events.push_back(OriginEvent::Arrived { player, client_id, user_data, former, state });
            // The bytes may have been counted anew without it.
            self.count_waiting();
            return true;
        }
        let user_data = Box::new(user_data);
        // As many as there can be players.
        self.events.push_back(match let_go {
            Some(state) => OriginEvent::Arrived { player, client_id, user_data, former: None, state },
            None => OriginEvent::Joined { player, client_id, user_data },
        });
        true
    }

    /// While it is closed: the event of the client's player that has come from another origin, and was at an edge that may be dead.
    fn take_arrived(&mut self, client_id: u64) -> Option<OriginEvent> {
        if !self.is_closed || !self.clients.contains_key(&client_id) {
            return None;
        }
        let is_of_client =
            |event: &OriginEvent| matches!(event, OriginEvent::Arrived { client_id: of, .. } if *of == client_id);
        let place = self.events.iter().position(is_of_client)?;
        self.events.remove(place)
    }

    /// Answers an edge to which a client has just come. False if the question makes no sense, or there is no room for the answer.
    fn tell_whether_it_is_here(&mut self, player: PlayerId, talk: &ToOrigin) -> bool {
        let (client_id, Some(token_ends_s)) = (talk.number, read_token_end(&talk.body)) else { return false };
        let known =
            self.clients.get(&client_id).copied().filter(|&(known, away)| {
                away.is_some() || self.at_stage(known, |stage| stage != Stage::Released).is_ok()
            });
        // A client by a newer connection stays: the edge sends the older one here, and `join` turns it away.
        let is_here =
            known.is_some() && (self.options.keep_ticks > 0 || self.is_known_by_newer(client_id, token_ends_s));
        if let Some((former, _)) = known.filter(|_| !is_here) {
            // A client of which nothing is kept begins anew where its entry says, and not here.
            self.clients.remove(&client_id);
            self.unseat(former, CONNECTED_AGAIN);
            self.tell_gone(OriginEvent::Left(former));
        }
        let answer = match self.let_go.find(client_id) {
            _ if is_here => HasAnswer::Here,
            None => HasAnswer::Not,
            Some((to, edge_is_gone)) => HasAnswer::LetGo { to, edge_is_gone },
        };
        let Some(seat) = self.seat(player.edge).filter(|seat| seat.waiting.len() < WAITING_MAX) else { return false };
        let (step, session, body) = (Down::Has as u8, player.session, answer.bytes());
        seat.waiting.push_back(ToEdge { step, session, body, ..ToEdge::default() });
        true
    }

    /// The seat of a client that is here. A player who is released has one until its edge says that it has arrived.
    fn seat_of(&mut self, client_id: u64) -> Option<Seat> {
        let (known, _) = *self.clients.get(&client_id).filter(|(_, away)| away.is_none())?;
        self.player(known).copied()
    }

    /// Whether a client's player is here or away whose connection has, or had, a newer token than this.
    fn is_known_by_newer(&mut self, client_id: u64, token_ends_s: u64) -> bool {
        let is_here = self.seat_of(client_id).is_some_and(|seat| seat.token_ends_s > token_ends_s);
        is_here || self.is_away_by_newer(client_id, token_ends_s)
    }

    /// Whether a client's player is away whose connection had a newer token than this: its client may come back.
    fn is_away_by_newer(&self, client_id: u64, token_ends_s: u64) -> bool {
        let away = self.clients.get(&client_id).and_then(|(_, away)| *away);
        away.is_some_and(|away| away.token_ends_s > token_ends_s)
    }

    /// A client is this player from now on. Returns the player that it was, if that is kept for it.
    fn note_client(&mut self, client_id: u64, player: PlayerId) -> Option<PlayerId> {
        let (former, away) = self.clients.insert(client_id, (player, None))?;
        if away.is_some() {
            return Some(former);
        }
        let seat = self.unseat(former, CONNECTED_AGAIN)?;
        if self.is_closed || self.options.keep_ticks == 0 || seat.stage == Stage::Released {
            self.tell_gone(OriginEvent::Left(former));
            return None;
        }
        Some(former)
    }

    /// Its edge may be dead, and nobody has noticed yet. One that lives ends the connection.
    fn unseat(&mut self, former: PlayerId, reason: &'static str) -> Option<Seat> {
        let seat = self.seat(former.edge)?.players.remove(&former.session)?;
        self.end_session(former, reason);
        Some(seat)
    }

    /// Ends the client of a player who has no seat.
    fn end_session(&mut self, player: PlayerId, reason: &'static str) {
        if self.seat(player.edge).is_some_and(|seat| !seat.end_session(player.session, reason)) {
            self.deaf.push(player.edge);
        }
    }

    /// A player has lost its seat. It is kept if it `may_return`.
    fn part(&mut self, player: PlayerId, seat: Seat, may_return: bool) {
        let is_known = self.clients.get(&seat.client_id).is_some_and(|(known, _)| *known == player);
        let keep_ticks = self.options.keep_ticks;
        match may_return {
            true => self.let_go.lose_edge(seat.client_id, player, self.tick.after(keep_ticks.min(LET_GO_TICKS))),
            false => self.let_go.end(seat.client_id, player),
        }
        let may_be_kept = may_return && keep_ticks > 0 && is_known && seat.stage != Stage::Released && !self.is_closed;
        let has_room = self.clients.len() <= KEPT_MAX;
        self.counters.kept_refused += u64::from(may_be_kept && !has_room);
        if may_be_kept && has_room {
            let away = Away { until: self.tick.after(keep_ticks), token_ends_s: seat.token_ends_s };
            self.clients.insert(seat.client_id, (player, Some(away)));
            self.events.push_back(OriginEvent::Away(player));
        } else {
            if is_known {
                self.clients.remove(&seat.client_id);
            }
            self.tell_gone(OriginEvent::Left(player));
        }
    }

    /// The player of a client is at another origin, or was there after it was let go.
    fn forget_client(&mut self, client_id: u64, token_ends_s: u64, lane: u8) {
        self.let_go.forget(client_id);
        // An edge may say it much later. The client of a player by a newer connection has come back since then.
        if lane != LET_GO_ONLY && !self.is_away_by_newer(client_id, token_ends_s) {
            self.give_up_away(client_id);
        }
    }

    /// The client of a player who is away has one at another origin. One who is here stays: its client has come back before.
    fn give_up_away(&mut self, client_id: u64) {
        if let Some(&(player, Some(_))) = self.clients.get(&client_id) {
            self.clients.remove(&client_id);
            self.events.push_back(OriginEvent::Left(player));
        }
    }

    /// All players who are away leave: others have taken over the part of the world of this server, and serve their clients.
    pub fn give_up_kept(&mut self) {
        self.end_kept(|_| true);
    }

    /// Gives a new player a seat. False if it has one, or there is no room.
    fn seat_player(&mut self, player: PlayerId, new: Seat) -> bool {
        // A player of this number was here before, and the game was not told of it.
        if self.gone_unseen.contains(&player) {
            self.forget_gone();
        }
        let players_max = self.options.players_max;
        let Some(seat) = self.seat(player.edge) else { return false };
        if seat.players.contains_key(&player.session) {
            return false;
        }
        let has_room = seat.players.len() < players_max;
        if has_room {
            seat.gone.remove(&player.session);
            seat.players.insert(player.session, new);
        } else {
            self.counters.players_refused += 1;
        }
        has_room
    }

    /// Ends a player who got no seat. False if it has one already.
    fn turn_away(&mut self, player: PlayerId, reason: &'static str) -> bool {
        if self.player(player).is_some() {
            return false;
        }
        self.end_session(player, reason);
        true
    }

    fn set_free(&mut self, player: PlayerId) -> bool {
        let Some(Stage::Asked { to }) = self.player(player).map(|seat| seat.stage) else { return false };
        self.set_stage(player, Stage::Free { to });
        self.events.push_back(OriginEvent::Free { player, to });
        true
    }

    /// A player comes from another origin, or back from the way to one that is gone.
    fn arrive(&mut self, player: PlayerId, talk: &ToOrigin) -> bool {
        let Some(Arrival { user_data, token_ends_s, former, state }) = Arrival::read(&talk.body) else { return false };
        if self.at_stage(player, |stage| stage == Stage::Released).is_ok() {
            self.leave(player, false);
        }
        // The client has joined by another connection while this player was on the way. Of two tokens of the same second, the one of the
        // player who arrives has been in use for longer, unless the other player has gone on its way before.
        let is_older = self.seat_of(talk.number).is_some_and(|seat| {
            seat.token_ends_s > token_ends_s || seat.token_ends_s == token_ends_s && seat.stage != Stage::Released
        });
        if is_older || self.is_away_by_newer(talk.number, token_ends_s) {
            return self.turn_away(player, CONNECTED_AGAIN);
        }
        // A state that this origin has let go of before is older.
        self.let_go.forget(talk.number);
        let seat = Seat { client_id: talk.number, token_ends_s, former: Some(former), ..Seat::default() };
        if !self.seat_player(player, seat) {
            return self.turn_away(player, FULL);
        }
        if !self.has_room_for(state.len()) {
            self.counters.arrivals_refused += 1;
            self.unseat(player, FULL);
            return true;
        }
        if let Some(former) = self.note_client(talk.number, player) {
            // The one that arrives is not older than the one that was kept.
            self.events.push_back(OriginEvent::Left(former));
        }
        let (user_data, state, former) = (Box::new(*user_data), state.to_vec(), Some(former));
        self.events.push_back(OriginEvent::Arrived { player, client_id: talk.number, user_data, former, state });
        true
    }

    fn leave(&mut self, player: PlayerId, may_return: bool) -> bool {
        let Some(edge) = self.seat(player.edge) else { return false };
        let was_gone = edge.gone.remove(&player.session);
        let seat = edge.players.remove(&player.session);
        if let Some(seat) = seat {
            self.part(player, seat, may_return);
        }
        was_gone || seat.is_some()
    }

    /// Whether a player has no seat, and its edge may not know it yet.
    fn is_gone(&mut self, player: PlayerId) -> bool {
        self.seat(player.edge).is_some_and(|seat| seat.gone.contains(&player.session))
    }

    fn take_inputs(&mut self, edge: ConnectionId, batch: u64, body: &[u8]) -> bool {
        let (Ok(batch), Some(inputs)) = (u32::try_from(batch), read_inputs(body)) else { return false };
        let Some(seat) = self.seat(edge) else { return false };
        seat.batch = Some(batch);
        let mut is_sound = true;
        for input in inputs {
            let player = PlayerId { edge, session: input.session };
            match self.edge_of(player) {
                // The game could not use the inputs of some seconds at once.
                Ok(_) if self.is_closed => self.counters.dropped += 1,
                Ok(_) => {
                    let (number, bytes) = (input.number, input.bytes.to_vec());
                    self.push(OriginEvent::Input { player, number, bytes });
                }
                Err(_) => is_sound &= self.is_gone(player),
            }
        }
        is_sound
    }

    fn look_at<R: Replication>(&mut self, server: &mut Server<R>, edge: ConnectionId, body: &[u8], now: Time) -> bool {
        let (Some(looks), counters) = (read_looks(body), &mut self.counters) else { return false };
        let Some(seat) = self.edges.get_mut(&edge.index).filter(|seat| seat.connection == edge) else { return false };
        for (channel, interval_ticks) in looks {
            seat.unseen.remove(&channel);
            if interval_ticks == 0 {
                server.unsubscribe(edge, channel);
            } else if server.subscribe(edge, channel, interval_ticks).is_err() {
                counters.looks_refused += 1;
                if seat.unseen.len() >= UNSEEN_WAITING_MAX {
                    server.disconnect(edge, now, "you read nothing, and ask for more cells than you may have");
                    return true;
                }
                seat.unseen.insert(channel, interval_ticks);
            }
        }
        true
    }

    /// Queues an event that may be dropped.
    fn push(&mut self, event: OriginEvent) {
        if self.events.len() < self.options.events_max {
            self.events.push_back(event);
        } else {
            self.counters.dropped += 1;
            self.waiting_bytes = self.waiting_bytes.saturating_sub(event.payload_bytes());
        }
    }
}

/// Why an edge cannot be served that speaks on another lane. Without a word, its clients would wait for ever.
fn other_lane(theirs: u8, ours: u8) -> String {
    format!("this edge speaks on lane {theirs}, and this server hears edges on lane {ours}: give both the same lane")
}

#[cfg(test)]
mod tests;
