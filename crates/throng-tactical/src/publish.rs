//! The state that clients are sent: objects when they change, subscriptions as the fog says, messages when something
//! happens.

use throng::{ChannelKey, ConnectionId, Facet, MessageError, ObjectId, Placement, Replicate, Server};
use throng_match::{GameError, Seat, Seats};

use crate::character::Character;
use crate::event::Event;
use crate::kinds::{
    Board, BombNote, BombPlace, EVERYBODY, Feed, Figure, HitMark, LANE_EVENTS, LANE_SHOTS, MateNote, News, Private,
    ShotFired, SmokeNote, WallNote, team_channel,
};
use crate::senses::{BombSeen, Team};
use crate::skeleton::Zone;
use crate::tactical::Tactical;

/// Counts of the work of publishing so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishCounters {
    /// Characters that were shown to a viewer.
    pub shown: u64,
    /// Characters that were hidden from a viewer.
    pub hidden: u64,
    /// Subscriptions that the server refused: they are tried again in the next tick.
    pub subscriptions_refused: u64,
    /// Messages that a client could not take, or that was gone.
    pub messages_refused: u64,
}

/// An object, and its value as the server has it.
#[derive(Debug)]
struct Shown<T> {
    id: ObjectId,
    value: T,
}

impl<T: Replicate + Clone + PartialEq> Shown<T> {
    fn spawn(server: &mut Server, value: T, placement: Placement) -> Result<Shown<T>, GameError> {
        Ok(Shown { id: server.spawn(value.clone(), placement)?, value })
    }

    /// Touches the object only if it has changed.
    fn set(&mut self, server: &mut Server, value: T) {
        if self.value == value {
            return;
        }
        if let Some(place) = server.get_mut::<T>(self.id) {
            place.clone_from(&value);
        }
        self.value = value;
    }
}

#[derive(Debug)]
struct Objects {
    board: Shown<Board>,
    figures: Vec<Shown<Figure>>,
    mates: Vec<Shown<MateNote>>,
    bombs: [Shown<BombNote>; 2],
}

/// The object of a smoke or a wall.
#[derive(Debug)]
struct PartShown {
    number: u32,
    id: ObjectId,
    /// The viewers who are subscribed, one bit for each seat.
    viewers: u32,
}

/// The state that has been published so far.
#[derive(Debug)]
pub(crate) struct Publication {
    objects: Option<Objects>,
    /// Smokes and walls.
    parts: Vec<PartShown>,
    connections: Vec<Option<ConnectionId>>,
    /// For each viewer: whether it has the channels of everybody and of its team.
    has_channels: Vec<bool>,
    /// For each viewer all characters: whether it is subscribed.
    is_subscribed: Vec<bool>,
    pub(crate) counters: PublishCounters,
}

impl Publication {
    pub(crate) fn new(seats: usize) -> Publication {
        Publication {
            objects: None,
            parts: Vec::new(),
            connections: vec![None; seats],
            has_channels: vec![false; seats],
            is_subscribed: vec![false; seats * seats],
            counters: PublishCounters::default(),
        }
    }
}

impl Tactical {
    /// Counts of the work of publishing so far.
    pub fn publish_counters(&self) -> PublishCounters {
        self.publication.counters
    }

    /// The object of a seat's character, after the first publishing.
    pub fn figure(&self, seat: Seat) -> Option<ObjectId> {
        Some(self.publication.objects.as_ref()?.figures.get(seat.index())?.id)
    }

    pub(crate) fn publish_once(&mut self, server: &mut Server, seats: &Seats) -> Result<(), GameError> {
        self.publish_objects(server)?;
        self.publish_parts(server)?;
        for seat in 0..self.characters.len() {
            self.publish_seat(server, seats, seat)?;
        }
        self.publish_events(server)
    }

    /// Spawns all objects in the first tick, and writes what has changed in all others.
    fn publish_objects(&mut self, server: &mut Server) -> Result<(), GameError> {
        let Some(mut objects) = self.publication.objects.take() else {
            self.publication.objects = Some(self.spawn_objects(server)?);
            return Ok(());
        };
        objects.board.set(server, self.board());
        for (seat, character) in self.characters.iter().enumerate() {
            let has_bomb = self.bomb.is_carried_by(character.seat);
            objects.figures[seat].set(server, figure(character, has_bomb));
            objects.mates[seat].set(server, mate(character, has_bomb));
        }
        for team in Team::BOTH {
            let note = self.bomb_note(team);
            objects.bombs[team as usize].set(server, note);
        }
        self.publication.objects = Some(objects);
        Ok(())
    }

    fn spawn_objects(&self, server: &mut Server) -> Result<Objects, GameError> {
        let bomb = |server: &mut Server, team: Team| {
            Shown::spawn(server, self.bomb_note(team), Placement::Channel(team_channel(team)))
        };
        let mut objects = Objects {
            board: Shown::spawn(server, self.board(), Placement::Channel(EVERYBODY))?,
            figures: Vec::with_capacity(self.characters.len()),
            mates: Vec::with_capacity(self.characters.len()),
            bombs: [bomb(server, Team::Attackers)?, bomb(server, Team::Defenders)?],
        };
        for character in &self.characters {
            let has_bomb = self.bomb.is_carried_by(character.seat);
            objects.figures.push(Shown::spawn(server, figure(character, has_bomb), Placement::Entity)?);
            let channel = Placement::Channel(team_channel(character.team));
            objects.mates.push(Shown::spawn(server, mate(character, has_bomb), channel)?);
        }
        Ok(objects)
    }

    fn board(&self) -> Board {
        Board {
            tick_hz: self.rules.tick_hz as u16,
            team_size: self.rules.team_size as u8,
            phase: self.round.phase,
            ends: self.round.ends.short().0,
            round: self.round.number,
            score: self.round.score,
        }
    }

    fn bomb_note(&self, team: Team) -> BombNote {
        let at = |place: BombPlace, position: glam::Vec3| BombNote {
            place,
            position: position.to_array(),
            ..BombNote::default()
        };
        match self.bomb_seen(team) {
            BombSeen::Unknown => BombNote::default(),
            BombSeen::Carried(seat) => {
                BombNote { place: BombPlace::Carried, carrier: seat.0 as u8, ..BombNote::default() }
            }
            BombSeen::Dropped(position) => at(BombPlace::Dropped, position),
            BombSeen::Planted { position, ticks_left, is_being_defused } => BombNote {
                explodes: self.now.after(ticks_left).short().0,
                is_being_defused,
                ..at(BombPlace::Planted, position)
            },
            BombSeen::Defused(position) => at(BombPlace::Defused, position),
            BombSeen::Exploded(position) => at(BombPlace::Exploded, position),
        }
    }

    /// Smokes and walls come and go.
    fn publish_parts(&mut self, server: &mut Server) -> Result<(), GameError> {
        let parts = &mut self.publication.parts;
        parts.retain(|part| {
            let is_there = self.smokes.iter().any(|smoke| smoke.number == part.number)
                || self.barriers.iter().any(|barrier| barrier.number == part.number);
            if !is_there {
                server.despawn(part.id);
            }
            is_there
        });
        let is_new = |parts: &[PartShown], number: u32| !parts.iter().any(|part| part.number == number);
        for smoke in self.smokes.iter().filter(|smoke| smoke.is_thick(self.now)) {
            if is_new(parts, smoke.number) {
                let note = SmokeNote { middle: smoke.middle.to_array(), until: smoke.until.short().0 };
                let id = server.spawn(note, Placement::Entity)?;
                parts.push(PartShown { number: smoke.number, id, viewers: 0 });
            }
        }
        for barrier in &self.barriers {
            if is_new(parts, barrier.number) {
                let (foot, yaw, until) = (barrier.foot.to_array(), barrier.yaw, barrier.until.short().0);
                let id = server.spawn(WallNote { foot, yaw, until }, Placement::Entity)?;
                parts.push(PartShown { number: barrier.number, id, viewers: 0 });
            }
        }
        Ok(())
    }

    /// Gives a connection its character and its channels, and shows it whom it may see.
    fn publish_seat(&mut self, server: &mut Server, seats: &Seats, seat: usize) -> Result<(), GameError> {
        let Some(objects) = &self.publication.objects else { return Ok(()) };
        let count = self.characters.len();
        let connection = seats.connection(Seat(seat as u16));
        if self.publication.connections[seat] != connection {
            // A new connection has none of the subscriptions of the one before.
            self.publication.connections[seat] = connection;
            self.publication.has_channels[seat] = false;
            self.publication.is_subscribed[seat * count..(seat + 1) * count].fill(false);
            self.publication.parts.iter_mut().for_each(|part| part.viewers &= !(1 << seat));
            server.set_owner(objects.figures[seat].id, connection)?;
        }
        let Some(connection) = connection else { return Ok(()) };
        let counters = &mut self.publication.counters;
        if !self.publication.has_channels[seat] {
            let team = team_channel(self.characters[seat].team);
            let all = [EVERYBODY, team].map(|channel| server.subscribe(connection, channel, 1).is_ok());
            self.publication.has_channels[seat] = all == [true; 2];
            counters.subscriptions_refused += all.iter().filter(|is_done| !**is_done).count() as u64;
        }
        for target in (0..count).filter(|target| *target != seat) {
            let may_see = self.vision.visible(seat, target);
            let is_subscribed = &mut self.publication.is_subscribed[seat * count + target];
            if *is_subscribed == may_see {
                continue;
            }
            let channel = ChannelKey::Entity { object: objects.figures[target].id, facet: Facet::Public };
            if !may_see {
                server.unsubscribe(connection, channel);
                (*is_subscribed, counters.hidden) = (false, counters.hidden + 1);
            } else if server.subscribe(connection, channel, 1).is_ok() {
                (*is_subscribed, counters.shown) = (true, counters.shown + 1);
            } else {
                counters.subscriptions_refused += 1;
            }
        }
        let is_news = |part: &&mut PartShown| part.viewers & (1 << seat) == 0;
        for part in self.publication.parts.iter_mut().filter(is_news) {
            if !self.vision.knows_part(seat, part.number) {
                continue;
            }
            let channel = ChannelKey::Entity { object: part.id, facet: Facet::Public };
            match server.subscribe(connection, channel, 1) {
                Ok(()) => part.viewers |= 1 << seat,
                Err(_) => counters.subscriptions_refused += 1,
            }
        }
        Ok(())
    }

    fn publish_events(&mut self, server: &mut Server) -> Result<(), GameError> {
        for place in 0..self.events.len() {
            let event = self.events[place];
            let count = self.characters.len();
            let Publication { connections, counters, .. } = &mut self.publication;
            match event {
                Event::Shot { by, weapon, to, .. } => {
                    let message = ShotFired { by: by.0 as u8, weapon, to: to.to_array() };
                    // Whom it kills saw it, too, and sees nobody any more.
                    let is_struck = |viewer: usize| {
                        let is_it = |event: &Event| matches!(event, Event::Hit { by: other, target, .. } if *other == by && target.index() == viewer);
                        self.events.iter().any(is_it)
                    };
                    let sees = |viewer: &usize| {
                        *viewer == by.index() || self.vision.visible(*viewer, by.index()) || is_struck(*viewer)
                    };
                    let viewers = (0..count).filter(sees);
                    for connection in viewers.filter_map(|viewer| connections[viewer]) {
                        counters.messages_refused += send(server, connection, LANE_SHOTS, &message)?;
                    }
                }
                Event::Hit { by, target, zone, damage } => {
                    let message =
                        HitMark { by: by.0 as u8, target: target.0 as u8, is_head: zone == Zone::Head, damage };
                    for connection in [by, target].into_iter().filter_map(|seat| connections[seat.index()]) {
                        counters.messages_refused += send(server, connection, LANE_EVENTS, &message)?;
                    }
                }
                _ => {
                    if let Some(feed) = feed(&event) {
                        counters.messages_refused += server.broadcast(LANE_EVENTS, &feed)?.refused as u64;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Sends a message to one client. A client that is gone or does not read is no reason to end the match: 1 then.
fn send<T: Replicate>(server: &mut Server, to: ConnectionId, lane: u8, message: &T) -> Result<u64, GameError> {
    match server.send(to, lane, message) {
        Ok(()) => Ok(0),
        Err(error @ MessageError::UnknownKind) => Err(error.into()),
        Err(_) => Ok(1),
    }
}

/// The news of an event that everybody hears of.
fn feed(event: &Event) -> Option<Feed> {
    let seat = |seat: Seat| Some(seat.0 as u8);
    let news = |news: News| Feed { news, ..Feed::default() };
    Some(match *event {
        Event::RoundBegan { .. } => news(News::RoundBegan),
        Event::Died { seat: victim, by, weapon, .. } => {
            Feed { by: by.and_then(seat), about: seat(victim), weapon, ..news(News::Died) }
        }
        Event::Planted { by, .. } => Feed { by: seat(by), ..news(News::Planted) },
        Event::Defused { by } => Feed { by: seat(by), ..news(News::Defused) },
        Event::Exploded { .. } => news(News::Exploded),
        Event::RoundEnded { winner, ending, .. } => Feed { winner, ending, ..news(News::RoundEnded) },
        _ => return None,
    })
}

fn figure(character: &Character, has_bomb: bool) -> Figure {
    let own = character.own(has_bomb);
    Figure {
        seat: own.seat.0 as u8,
        position: own.position.to_array(),
        velocity: own.velocity.to_array(),
        yaw: own.yaw >> 4,
        pitch: (own.pitch >> 8) as i8,
        crouch: character.mover.crouch,
        is_grounded: own.is_grounded,
        is_alive: own.is_alive,
        weapon: own.weapon,
        private: Private {
            health: own.health,
            armour: own.armour,
            ammunition: own.ammunition,
            reserve: own.reserve,
            is_reloading: own.is_reloading,
            money: own.money,
            primary: own.primary,
            has_bomb: own.has_bomb,
            has_kit: own.has_kit,
            charges: [own.charges.smoke, own.charges.wall, own.charges.dash],
            progress: own.progress,
            yaw: own.yaw,
            pitch: own.pitch,
        },
    }
}

fn mate(character: &Character, has_bomb: bool) -> MateNote {
    MateNote { seat: character.seat.0 as u8, health: character.health, has_bomb }
}
