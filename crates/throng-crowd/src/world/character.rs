use serde::{Deserialize, Serialize};

use super::input::BotInput;
use super::pillars::Pillars;
use super::{GRAVITY_M_PER_S2, JUMP_M_PER_S, MAX_TURN_RAD_PER_S, MILL_RADIUS_M, Room, WALK_M_PER_S, family, mix, wrap};

/// The public state of a character.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CharacterState {
    /// Feet, in metres from the centre of the area.
    pub position: [f32; 3],
    /// Metres per second.
    pub velocity: [f32; 3],
    /// Where the character looks and walks, from x towards y, −π up to π.
    pub yaw: f32,
    /// Up positive, at most [`MAX_PITCH_RAD`](super::MAX_PITCH_RAD) either way.
    pub pitch: f32,
    /// The state of the legs.
    pub mode: Mode,
}

/// The state of a character's legs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Mode {
    /// On the ground, not moving.
    #[default]
    Standing = 0,
    /// On the ground, moving.
    Walking = 1,
    /// In the air.
    Airborne = 2,
}

/// A character with what only the server knows of it.
#[derive(Clone, Debug)]
pub(super) struct Character {
    pub(super) state: CharacterState,
    input: BotInput,
    /// Cosine and sine of the yaw: in most ticks it does not change.
    direction: [f32; 2],
    home: [f32; 2],
    detour_ticks: u16,
    rng: fastrand::Rng,
}

/// Bytes of [`Character::to_bytes`].
pub(super) const LEN: usize = 63;

impl Character {
    pub(super) fn new(home: [f32; 2], seed: u64, slot: u32) -> Character {
        let mut rng = fastrand::Rng::with_seed(mix(seed, family::CHARACTER, u64::from(slot)));
        let mut character = Character {
            state: CharacterState { position: [home[0], home[1], 0.0], ..CharacterState::default() },
            input: BotInput::default(),
            direction: [1.0, 0.0],
            home,
            detour_ticks: 0,
            rng: rng.fork(),
        };
        character.face(rng.f32() * std::f32::consts::TAU);
        character
    }

    /// Everything of it, for another server that goes on with it:
    ///
    /// ```text
    /// position, velocity, yaw, pitch, direction, home: 12 x f32, mode: u8, input: 4 bytes, detour: u16, random numbers: u64
    /// ```
    pub(super) fn to_bytes(&self) -> [u8; LEN] {
        let CharacterState { position: [x, y, z], velocity: [u, v, w], yaw, pitch, mode } = self.state;
        let ([d, e], [h, i]) = (self.direction, self.home);
        let mut bytes = [0; LEN];
        for (place, number) in bytes.chunks_exact_mut(4).zip([x, y, z, u, v, w, yaw, pitch, d, e, h, i]) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes[48] = mode as u8;
        bytes[49..53].copy_from_slice(&self.input.encode());
        bytes[53..55].copy_from_slice(&self.detour_ticks.to_le_bytes());
        bytes[55..].copy_from_slice(&self.rng.get_seed().to_le_bytes());
        bytes
    }

    /// The character of these bytes, within the room; `None` if they are none.
    pub(super) fn from_bytes(bytes: &[u8], room: &Room) -> Option<Character> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let numbers: [f32; 12] = std::array::from_fn(|at| {
            bytes[at * 4..].first_chunk::<4>().map_or(f32::NAN, |number| f32::from_le_bytes(*number))
        });
        let [x, y, z, u, v, w, yaw, pitch, d, e, h, i] = numbers;
        let mode = [Mode::Standing, Mode::Walking, Mode::Airborne].into_iter().find(|mode| *mode as u8 == bytes[48])?;
        if !numbers.iter().all(|number| number.abs() < 1e6) {
            return None;
        }
        let [half_x, half_y] = room.half_m;
        let position = [x.clamp(-half_x, half_x), y.clamp(-half_y, half_y), z.clamp(0.0, room.height_m)];
        Some(Character {
            state: CharacterState { position, velocity: [u, v, w], yaw: wrap(yaw), pitch, mode },
            input: BotInput::decode(&bytes[49..53]).ok()?,
            direction: [d, e],
            home: [h, i],
            detour_ticks: u16::from_le_bytes([bytes[53], bytes[54]]),
            rng: fastrand::Rng::with_seed(u64::from_le_bytes(*bytes.last_chunk()?)),
        })
    }

    /// A jump that has not been done yet is kept.
    pub(super) fn take(&mut self, input: BotInput) {
        let jump = self.input.jump || input.jump;
        self.input = BotInput { jump, ..input };
    }

    /// Plays one tick. Returns whether the state changed.
    pub(super) fn step(&mut self, room: &Room, pillars: &Pillars) -> bool {
        let before = self.state;
        self.steer(room);
        self.walk(room, pillars);
        self.fall(room);
        self.state.pitch = self.input.pitch_rad();
        self.state.mode = if self.state.position[2] > 0.0 {
            Mode::Airborne
        } else if self.input.forward {
            Mode::Walking
        } else {
            Mode::Standing
        };
        self.state != before
    }

    fn steer(&mut self, room: &Room) {
        let turn = self.input.turn_share();
        if turn != 0.0 {
            self.face(self.state.yaw + turn * MAX_TURN_RAD_PER_S * room.tick_s);
        }
        if self.detour_ticks > 0 {
            self.detour_ticks -= 1;
        } else if self.input.seek_centre {
            self.seek_centre();
        }
    }

    fn seek_centre(&mut self) {
        let [x, y, _] = self.state.position;
        let distance_m2 = x * x + y * y;
        if distance_m2 > MILL_RADIUS_M * MILL_RADIUS_M {
            let distance_m = distance_m2.sqrt();
            self.direction = [-x / distance_m, -y / distance_m];
            self.state.yaw = wrap((-y).atan2(-x));
        }
    }

    fn walk(&mut self, room: &Room, pillars: &Pillars) {
        let speed = if self.input.forward { WALK_M_PER_S } else { 0.0 };
        let [vx, vy] = self.direction.map(|share| share * speed);
        let [x, y, z] = self.state.position;
        self.state.velocity[0] = vx;
        self.state.velocity[1] = vy;
        if speed == 0.0 {
            return;
        }
        let next = [x + vx * room.tick_s, y + vy * room.tick_s];
        if self.may_go([x, y], next, room, pillars) {
            self.state.position = [next[0], next[1], z];
        } else {
            self.turn_back(room);
        }
    }

    /// A character that is already beyond a border, in a pillar or beyond the leash may move, but not farther out.
    fn may_go(&self, from: [f32; 2], to: [f32; 2], room: &Room, pillars: &Pillars) -> bool {
        let within = |at: f32, half_m: f32| at.abs() <= half_m;
        let leash_m2 = |at: [f32; 2]| (at[0] - self.home[0]).powi(2) + (at[1] - self.home[1]).powi(2);
        let straying = leash_m2(to);
        within(to[0], room.half_m[0])
            && within(to[1], room.half_m[1])
            && (straying <= room.leash_m2 || straying < leash_m2(from))
            && (!pillars.block(to) || pillars.block(from))
    }

    /// About face, give or take 60 degrees, so that no character paces up and down between two walls.
    fn turn_back(&mut self, room: &Room) {
        let off_course = (self.rng.f32() * 2.0 - 1.0) * std::f32::consts::FRAC_PI_3;
        self.face(self.state.yaw + std::f32::consts::PI + off_course);
        self.detour_ticks = room.detour_ticks;
    }

    fn fall(&mut self, room: &Room) {
        let grounded = self.state.position[2] <= 0.0 && self.state.velocity[2] <= 0.0;
        let jump = std::mem::take(&mut self.input.jump);
        if grounded && !jump {
            return;
        }
        let rise = if grounded { JUMP_M_PER_S } else { self.state.velocity[2] - GRAVITY_M_PER_S2 * room.tick_s };
        let z = self.state.position[2] + rise * room.tick_s;
        (self.state.position[2], self.state.velocity[2]) = match z {
            z if z <= 0.0 => (0.0, 0.0),
            z if z >= room.height_m => (room.height_m, 0.0),
            z => (z, rise),
        };
    }

    fn face(&mut self, yaw: f32) {
        self.state.yaw = wrap(yaw);
        let (sin, cos) = self.state.yaw.sin_cos();
        self.direction = [cos, sin];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room =
        Room { tick_s: 1.0 / 30.0, half_m: [50.0; 2], height_m: 20.0, leash_m2: f32::INFINITY, detour_ticks: 30 };

    fn nobody() -> Character {
        Character::new([0.0, 0.0], 1, 0)
    }

    #[test]
    fn a_jump_goes_up_for_about_a_second_and_comes_down_to_the_ground() {
        let mut character = nobody();
        character.take(BotInput { jump: true, ..BotInput::default() });
        let mut highest: f32 = 0.0;
        let mut ticks = 0;
        while character.step(&ROOM, &Pillars::default()) {
            highest = highest.max(character.state.position[2]);
            ticks += 1;
            assert!(ticks < 100, "never landed");
        }
        assert!((1.0..1.6).contains(&highest), "{highest} m high");
        assert!((28..36).contains(&ticks), "{ticks} ticks in the air");
        assert_eq!((character.state.position[2], character.state.velocity[2]), (0.0, 0.0));
        assert_eq!(character.state.mode, Mode::Standing);
    }

    #[test]
    fn a_jump_survives_a_newer_input_in_the_same_tick() {
        let mut character = nobody();
        character.take(BotInput { jump: true, ..BotInput::default() });
        character.take(BotInput::default());
        character.step(&ROOM, &Pillars::default());
        assert_eq!(character.state.mode, Mode::Airborne);
    }

    #[test]
    fn a_full_turn_takes_two_seconds_at_the_largest_rate() {
        let mut character = nobody();
        let start = character.state.yaw;
        character.take(BotInput { turn: 127, ..BotInput::default() });
        for _ in 0..60 {
            character.step(&ROOM, &Pillars::default());
        }
        assert!(wrap(character.state.yaw - start).abs() < 1e-3);
    }

    #[test]
    fn another_server_goes_on_with_a_character_as_if_it_had_never_left() {
        let room = Room { leash_m2: 9.0, ..ROOM };
        let mut stays = nobody();
        stays.take(BotInput { forward: true, jump: true, turn: 20, pitch: -60, sequence: 9, ..BotInput::default() });
        for _ in 0..45 {
            stays.step(&room, &Pillars::default());
        }
        stays.take(BotInput { forward: true, jump: true, ..BotInput::default() });
        let mut moves = Character::from_bytes(&stays.to_bytes(), &room).unwrap();
        for _ in 0..300 {
            stays.step(&room, &Pillars::default());
            moves.step(&room, &Pillars::default());
            assert_eq!(stays.state, moves.state);
        }
    }

    #[test]
    fn bytes_that_are_no_character_are_refused_and_one_outside_comes_in() {
        let bytes = nobody().to_bytes();
        let read = |change: fn(&mut [u8; LEN])| {
            let mut bytes = bytes;
            change(&mut bytes);
            Character::from_bytes(&bytes, &ROOM)
        };
        assert!(Character::from_bytes(&bytes[1..], &ROOM).is_none());
        assert!(read(|bytes| bytes[48] = 3).is_none(), "there is no such mode");
        assert!(read(|bytes| bytes[49] = 255).is_none(), "there are no such actions");
        assert!(read(|bytes| bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes())).is_none());
        assert!(read(|bytes| bytes[12..16].copy_from_slice(&f32::INFINITY.to_le_bytes())).is_none());
        let outside = read(|bytes| bytes[..4].copy_from_slice(&9_000.0_f32.to_le_bytes())).unwrap();
        assert_eq!(outside.state.position, [50.0, 0.0, 0.0]);
    }

    #[test]
    fn a_leash_holds() {
        let room = Room { leash_m2: 9.0, ..ROOM };
        let mut character = nobody();
        character.take(BotInput { forward: true, ..BotInput::default() });
        let mut farthest: f32 = 0.0;
        for _ in 0..600 {
            character.step(&room, &Pillars::default());
            farthest = farthest.max(character.state.position[0].hypot(character.state.position[1]));
        }
        assert!((2.8..=3.0).contains(&farthest), "{farthest}");
    }
}
