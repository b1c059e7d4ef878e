//! The facts that a player may know, from the state of the match.

use throng_match::Seat;

use crate::ability::{SMOKES_MAX, WALLS_MAX};
use crate::bomb::Bomb;
use crate::character::Work;
use crate::rules::SEATS_MAX;
use crate::senses::{BombSeen, Mate, Seen, Senses, SmokeSeen, Team, WallSeen};
use crate::tactical::Tactical;
use crate::vision::seen;

/// Memory for the lists of [`Senses`]: keep one, so that nothing is allocated in each tick.
#[derive(Clone, Debug)]
pub struct SenseRoom {
    mates: Vec<Mate>,
    enemies: Vec<Seen>,
    smokes: Vec<SmokeSeen>,
    walls: Vec<WallSeen>,
}

impl Default for SenseRoom {
    /// Room for everything that a match can have.
    fn default() -> SenseRoom {
        SenseRoom {
            mates: Vec::with_capacity(SEATS_MAX),
            enemies: Vec::with_capacity(SEATS_MAX),
            smokes: Vec::with_capacity(SMOKES_MAX),
            walls: Vec::with_capacity(WALLS_MAX),
        }
    }
}

impl Tactical {
    /// The facts that a seat may know after the last step; `None` if there is no such seat.
    ///
    /// It is as much as a client of this seat is sent, and not more. Allocates only when `room` grows.
    pub fn senses<'a>(&'a self, seat: Seat, room: &'a mut SenseRoom) -> Option<Senses<'a>> {
        let place = seat.index();
        let me = self.characters.get(place)?;
        room.mates.clear();
        room.enemies.clear();
        for (other, character) in self.characters.iter().enumerate() {
            if other == place {
                continue;
            }
            if character.team == me.team {
                room.mates.push(Mate {
                    seat: character.seat,
                    position: character.mover.feet,
                    velocity: character.mover.velocity,
                    yaw: character.yaw,
                    pitch: character.pitch,
                    health: character.health,
                    weapon: character.carried().weapon,
                    has_bomb: self.bomb.is_carried_by(character.seat),
                });
            } else if self.vision.visible(place, other) {
                room.enemies.push(seen(character, self.now));
            } else {
                room.enemies.extend(self.vision.remembered(place, other));
            }
        }
        let knows = |number: u32| self.vision.knows_part(place, number);
        room.smokes.clear();
        room.smokes.extend(self.smokes.iter().filter(|smoke| knows(smoke.number)).map(|smoke| smoke.seen(self.now)));
        room.walls.clear();
        room.walls
            .extend(self.barriers.iter().filter(|barrier| knows(barrier.number)).map(|barrier| barrier.seen(self.now)));
        Some(Senses {
            tick: self.now,
            fraction: 0,
            tick_hz: self.rules.tick_hz,
            phase: self.round.phase,
            phase_ticks_left: self.round.ends.since(self.now),
            round: self.round.number,
            score: self.round.score,
            me: me.own(self.bomb.is_carried_by(seat)),
            mates: &room.mates,
            enemies: &room.enemies,
            bomb: self.bomb_seen(me.team),
            smokes: &room.smokes,
            walls: &room.walls,
            sites: self.arena.sites(),
        })
    }

    /// The facts that a team knows of the bomb. Attackers know where it is, and defenders what everybody hears.
    /// Attackers do not
    /// hear that it is being defused: it would tell them where a hidden defender is.
    pub(crate) fn bomb_seen(&self, team: Team) -> BombSeen {
        match self.bomb {
            Bomb::Planted { at, explodes, .. } => BombSeen::Planted {
                position: at,
                ticks_left: explodes.since(self.now),
                is_being_defused: team == Team::Defenders
                    && self.characters.iter().any(|character| character.work == Work::Defusing),
            },
            Bomb::Defused(at) => BombSeen::Defused(at),
            Bomb::Exploded(at) => BombSeen::Exploded(at),
            Bomb::Carried(seat) if team == Team::Attackers => BombSeen::Carried(seat),
            Bomb::Dropped(at) if team == Team::Attackers => BombSeen::Dropped(at),
            Bomb::Carried(_) | Bomb::Dropped(_) | Bomb::Nowhere => BombSeen::Unknown,
        }
    }
}
