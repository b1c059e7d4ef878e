//! The client's side: what a player may know, from what its client was sent.

use glam::Vec3;
use throng::{ClientCore, ClientEvent, Tick};
use throng_match::Seat;
use throng_wire::ShortTick;

use crate::ability::{SMOKE_RADIUS_M, WALL_SIZE_M};
use crate::arena::Arena;
use crate::kinds::{Board, BombNote, BombPlace, Feed, Figure, MateNote, News, SmokeNote, WallNote};
use crate::senses::{BombSeen, Charges, Mate, Own, RoundPhase, Seen, Senses, SmokeSeen, Team, WallSeen};
use crate::walk::eye_height_of;

/// Makes [`Senses`] of what a client was sent, and of nothing else. It needs the map for the places of the sites.
///
/// ```text
/// each frame:  client.update(now)
///              while let Some(event) = client.poll_event() { eyes.hear(&event); }
///              if let Some(senses) = eyes.look(&client) { client.send_input(&brain.act(&senses).encode()) }
/// ```
#[derive(Clone, Debug)]
pub struct Eyes {
    arena: Arena,
    round: u16,
    mates: Vec<Mate>,
    enemies: Vec<Seen>,
    smokes: Vec<SmokeSeen>,
    walls: Vec<WallSeen>,
}

impl Eyes {
    /// For a client of a match on this map.
    pub fn new(arena: Arena) -> Eyes {
        Eyes { arena, round: 0, mates: Vec::new(), enemies: Vec::new(), smokes: Vec::new(), walls: Vec::new() }
    }

    /// Takes an event of the client: the news tell which enemies have died.
    pub fn hear(&mut self, event: &ClientEvent) {
        let ClientEvent::Message { message, .. } = event else { return };
        if let Some(Feed { news: News::Died, about: Some(dead), .. }) = message.get::<Feed>() {
            self.enemies.retain(|enemy| enemy.seat.0 != u16::from(dead));
        }
    }

    /// The facts that the player may know now. `None` until the client has its character and the state of the match.
    pub fn look(&mut self, client: &ClientCore) -> Option<Senses<'_>> {
        let now = client.server_tick()?;
        let (_, board) = client.objects::<Board>().next()?;
        let (own_id, figure) = client.owned_objects::<Figure>().next()?;
        let team = team_of(figure.seat, board.team_size);
        if self.round != board.round {
            self.round = board.round;
            self.enemies.clear();
        }
        let bomb = client.objects::<BombNote>().next().map_or(BombSeen::Unknown, |(_, note)| bomb(&note, now));
        self.mates.clear();
        for (_, other) in client.objects::<Figure>().filter(|(id, _)| *id != own_id) {
            if team_of(other.seat, board.team_size) == team {
                self.mates.push(mate(&other));
            } else if other.is_alive {
                self.see(&other, now);
            }
        }
        for (_, note) in client.objects::<MateNote>() {
            if let Some(mate) = self.mates.iter_mut().find(|mate| mate.seat.0 == u16::from(note.seat)) {
                (mate.health, mate.has_bomb) = (note.health, note.has_bomb);
            }
        }
        self.mates.sort_unstable_by_key(|mate| mate.seat);
        self.enemies.sort_unstable_by_key(|enemy| enemy.seat);
        self.smokes.clear();
        self.smokes.extend(client.objects::<SmokeNote>().map(|(_, note)| SmokeSeen {
            middle: Vec3::from_array(note.middle),
            radius_m: SMOKE_RADIUS_M,
            ticks_left: left(note.until, now),
        }));
        self.walls.clear();
        self.walls.extend(client.objects::<WallNote>().map(|(_, note)| WallSeen {
            foot: Vec3::from_array(note.foot),
            yaw: note.yaw,
            size_m: WALL_SIZE_M,
            ticks_left: left(note.until, now),
        }));
        Some(Senses {
            tick: now,
            fraction: 0,
            tick_hz: board.tick_hz.into(),
            phase: board.phase,
            phase_ticks_left: if board.phase == RoundPhase::Over { 0 } else { left(board.ends, now) },
            round: board.round,
            score: board.score,
            me: own(&figure, team),
            mates: &self.mates,
            enemies: &self.enemies,
            bomb,
            smokes: &self.smokes,
            walls: &self.walls,
            sites: self.arena.sites(),
        })
    }

    fn see(&mut self, figure: &Figure, now: Tick) {
        let seen = Seen {
            seat: Seat(figure.seat.into()),
            feet: Vec3::from_array(figure.position),
            eye_height: eye_height_of(figure.crouch),
            velocity: Vec3::from_array(figure.velocity),
            yaw: figure.yaw << 4,
            weapon: figure.weapon,
            seen_at: now,
        };
        match self.enemies.iter_mut().find(|enemy| enemy.seat == seen.seat) {
            Some(enemy) => *enemy = seen,
            None => self.enemies.push(seen),
        }
    }
}

fn team_of(seat: u8, team_size: u8) -> Team {
    if seat < team_size { Team::Attackers } else { Team::Defenders }
}

/// Ticks from now to a tick of which the low half is known; 0 if it is over.
fn left(low_half: u32, now: Tick) -> u32 {
    ShortTick(low_half).near(now).since(now)
}

fn bomb(note: &BombNote, now: Tick) -> BombSeen {
    let position = Vec3::from_array(note.position);
    match note.place {
        BombPlace::Unknown => BombSeen::Unknown,
        BombPlace::Carried => BombSeen::Carried(Seat(note.carrier.into())),
        BombPlace::Dropped => BombSeen::Dropped(position),
        BombPlace::Planted => BombSeen::Planted {
            position,
            ticks_left: left(note.explodes, now),
            is_being_defused: note.is_being_defused,
        },
        BombPlace::Defused => BombSeen::Defused(position),
        BombPlace::Exploded => BombSeen::Exploded(position),
    }
}

fn mate(figure: &Figure) -> Mate {
    Mate {
        seat: Seat(figure.seat.into()),
        position: Vec3::from_array(figure.position),
        velocity: Vec3::from_array(figure.velocity),
        yaw: figure.yaw << 4,
        pitch: i16::from(figure.pitch) << 8,
        // Until the note of the team comes.
        health: if figure.is_alive { 100 } else { 0 },
        weapon: figure.weapon,
        has_bomb: false,
    }
}

fn own(figure: &Figure, team: Team) -> Own {
    let private = &figure.private;
    let [smoke, wall, dash] = private.charges;
    Own {
        seat: Seat(figure.seat.into()),
        team,
        position: Vec3::from_array(figure.position),
        velocity: Vec3::from_array(figure.velocity),
        eye_height: eye_height_of(figure.crouch),
        yaw: private.yaw,
        pitch: private.pitch,
        is_grounded: figure.is_grounded,
        is_alive: figure.is_alive,
        health: private.health,
        armour: private.armour,
        weapon: figure.weapon,
        primary: private.primary,
        ammunition: private.ammunition,
        reserve: private.reserve,
        is_reloading: private.is_reloading,
        money: private.money,
        has_bomb: private.has_bomb,
        has_kit: private.has_kit,
        charges: Charges { smoke, wall, dash },
        progress: private.progress,
    }
}
