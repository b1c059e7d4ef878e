//! The state that is replicated, and how it changes.
//!
//! All values are whole steps of the lab's quantisers (`crates/throng-crowd/src/kinds.rs`), so that a peer that quantises and
//! one that sends floats end with exactly the same values. A character is 33 bytes as floats: position 12, velocity 12,
//! yaw 4, pitch 4, mode 1. **Every field of every character changes in every tick**, as does the contents of every chest.
//!
//! The motion is whole numbers only, so that it is the same in every language; `colyseus/world.js` repeats it.

use crate::arguments::Workload;

/// A step of position, in metres.
pub const STEP_M: f32 = 0.01;
/// Steps of yaw in a full turn.
pub const YAW_STEPS: u32 = 512;
/// Largest pitch, in steps of 0.02 rad.
pub const PITCH_LIMIT: i32 = 75;
/// The height of the world, in metres.
pub const HEIGHT_M: f32 = 20.0;
/// How far a character of the sparse workloads sees, in metres.
pub const SIGHT_M: f64 = 250.0;
/// Side of a cell in the sparse workloads, for peers that have cells, in metres.
pub const CELL_M: f64 = 250.0;

/// Distance between neighbours' homes in the sparse workloads, in steps.
const SPREAD: u32 = 80_000;
/// How far a character of the sparse workloads goes from home, in steps.
const LEASH: u32 = 6_000;
/// Side of the dense workload's square, in steps.
const SQUARE: u32 = 20_000;

/// A character's state, in steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Character {
    /// From the corner of the world, in steps of 1 cm.
    pub position: [u32; 3],
    /// In steps of 0.1 m/s, −200 to 200.
    pub velocity: [i32; 3],
    /// In 512ths of a turn.
    pub yaw: u32,
    /// In steps of 0.02 rad, −75 to 75.
    pub pitch: i32,
    /// 0, 1 or 2.
    pub mode: u32,
}

/// Bits of a packed character that are not its place in the plane: 8 of height (130 steps), 3 × 9 of velocity, 9 of yaw, 8 of
/// pitch, 2 of mode.
const UPRIGHT_BITS: u32 = 54;

/// The bytes of a packed character in the dense workload: 15 bits are enough for 20,000 steps, 17 are left for each axis.
pub const DENSE_BYTES: usize = 11;

/// The bytes of a packed character in the sparse workloads: 20 bits are enough for [`SPARSE_PLAYERS_MAX`], 21 are left for each
/// axis.
pub const SPARSE_BYTES: usize = 12;

/// So many homes lie within 2^20 steps of the world's corner: 13 by 13.
pub const SPARSE_PLAYERS_MAX: u32 = 169;

/// A character's state as a game holds it: 33 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Units {
    /// From the corner of the world.
    pub position_m: [f32; 3],
    /// Velocity.
    pub velocity_m_per_s: [f32; 3],
    /// 0 to 2π, or −π to π.
    pub yaw_rad: f32,
    /// Up is positive.
    pub pitch_rad: f32,
    /// 0, 1 or 2.
    pub mode: u8,
}

impl Units {
    /// The nearest steps.
    pub fn steps(&self) -> Character {
        let turn = (self.yaw_rad * (YAW_STEPS as f32 / std::f32::consts::TAU)).round() as i32;
        Character {
            position: self.position_m.map(|m| (m * 100.0).round().max(0.0) as u32),
            velocity: self.velocity_m_per_s.map(|v| (v * 10.0).round() as i32),
            yaw: turn.rem_euclid(YAW_STEPS as i32) as u32,
            pitch: (self.pitch_rad * 50.0).round() as i32,
            mode: u32::from(self.mode),
        }
    }
}

impl Character {
    /// As a game holds it.
    pub fn units(&self) -> Units {
        Units {
            position_m: self.position.map(|steps| steps as f32 * STEP_M),
            velocity_m_per_s: self.velocity.map(|steps| steps as f32 * 0.1),
            yaw_rad: self.yaw as f32 * (std::f32::consts::TAU / YAW_STEPS as f32),
            pitch_rad: self.pitch as f32 * 0.02,
            mode: self.mode as u8,
        }
    }

    /// Packs the state as a careful user of a library without quantisers does by hand. The user knows the world's bounds and
    /// takes as few whole bytes as possible: [`DENSE_BYTES`] or [`SPARSE_BYTES`]. x and y get all bits that are left:
    ///
    /// ```text
    /// bits   8   9   9   9   9    8     2    (8 × BYTES − 54) / 2 each
    ///        z | vx  vy  vz  yaw  pitch mode | x y                       from the lowest bit up
    /// ```
    pub fn pack<const BYTES: usize>(&self) -> [u8; BYTES] {
        let [x, y, z] = self.position.map(u64::from);
        let [vx, vy, vz] = self.velocity.map(|v| (v + 200) as u64);
        let fields = [
            (z, 8),
            (vx, 9),
            (vy, 9),
            (vz, 9),
            (u64::from(self.yaw), 9),
            ((self.pitch + 128) as u64, 8),
            (u64::from(self.mode), 2),
        ];
        let upright = fields.into_iter().rev().fold(0, |bits, (value, width)| bits << width | value);
        let plane = x | y << plane_bits(BYTES);
        let bits = u128::from(upright) | u128::from(plane) << UPRIGHT_BITS;
        let mut packed = [0; BYTES];
        packed.copy_from_slice(&bits.to_le_bytes()[..BYTES]);
        packed
    }

    /// Reads the output of [`pack`](Self::pack).
    pub fn unpack<const BYTES: usize>(packed: &[u8; BYTES]) -> Character {
        let mut bytes = [0; 16];
        bytes[..BYTES].copy_from_slice(packed);
        let mut bits = u128::from_le_bytes(bytes);
        let mut next = |width: u32| {
            let value = bits & ((1 << width) - 1);
            bits >>= width;
            value as i32
        };
        let z = next(8) as u32;
        let velocity = std::array::from_fn(|_| next(9) - 200);
        let (yaw, pitch, mode) = (next(9) as u32, next(8) - 128, next(2) as u32);
        let [x, y] = std::array::from_fn(|_| next(plane_bits(BYTES)) as u32);
        Character { position: [x, y, z], velocity, yaw, pitch, mode }
    }
}

/// Bits of each axis of the plane in a packed character of this many bytes.
const fn plane_bits(bytes: usize) -> u32 {
    (8 * bytes as u32 - UPRIGHT_BITS) / 2
}

/// The state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of a character.
    Character(Character),
    /// The contents of a chest, the only thing about it that changes.
    Chest(u16),
}

/// All objects. The first are the characters, the number of a character is that of its client. Then come the chests, those of
/// the first character first.
#[derive(Clone, Debug)]
pub struct World {
    workload: Workload,
    tick: u32,
    walkers: Vec<Walker>,
    characters: Vec<Character>,
    chests: Vec<u16>,
}

#[derive(Clone, Debug)]
struct Walker {
    /// Lowest and highest position.
    bounds: [[u32; 2]; 2],
    /// Steps per tick.
    pace: [i32; 2],
    rises: bool,
    pitches_up: bool,
    turn: u32,
}

impl World {
    /// The world before the first tick.
    pub fn new(workload: Workload, players: u32) -> World {
        let mut world = World { workload, tick: 0, walkers: Vec::new(), characters: Vec::new(), chests: Vec::new() };
        for number in 0..players {
            let (walker, character) = begin(workload, players, number);
            world.walkers.push(walker);
            world.characters.push(character);
        }
        world.chests = vec![0; (players * workload.chests()) as usize];
        world
    }

    /// Which it is.
    pub fn workload(&self) -> Workload {
        self.workload
    }

    /// The side of the square in which everything happens, in metres.
    pub fn side_m(&self) -> f64 {
        let steps = match self.workload {
            Workload::Dense => SQUARE,
            Workload::Sparse { .. } => SPREAD * columns(self.players()),
        };
        f64::from(steps) / 100.0
    }

    /// Everything changes.
    pub fn step(&mut self) {
        self.tick += 1;
        for (walker, character) in self.walkers.iter_mut().zip(&mut self.characters) {
            walker.step(self.tick, character);
        }
        for (number, contents) in self.chests.iter_mut().enumerate() {
            *contents = (self.tick * 7 + number as u32) as u16;
        }
    }

    /// How often [`step`](Self::step) was called.
    pub fn tick(&self) -> u32 {
        self.tick
    }

    /// Clients, and characters.
    pub fn players(&self) -> u32 {
        self.characters.len() as u32
    }

    /// The characters, by number.
    pub fn characters(&self) -> &[Character] {
        &self.characters
    }

    /// The chests; the first has the number of [`players`](Self::players).
    pub fn chests(&self) -> &[u16] {
        &self.chests
    }

    /// Where a chest stands, in metres: it never moves.
    pub fn chest_position_m(&self, chest: u32) -> [f32; 3] {
        let owner = chest / self.workload.chests().max(1);
        let [x, y] = home(self.players(), owner);
        let place = chest % self.workload.chests().max(1);
        [(x + 100 * (place % 5)) as f32 * STEP_M, (y + 100 * (place / 5)) as f32 * STEP_M, 0.0]
    }

    /// The character beside which a chest stands.
    pub fn chest_owner(&self, chest: u32) -> u32 {
        chest / self.workload.chests().max(1)
    }

    /// How many objects there are.
    pub fn objects(&self) -> u32 {
        (self.characters.len() + self.chests.len()) as u32
    }

    /// The state of an object.
    pub fn value(&self, object: u32) -> Value {
        match self.characters.get(object as usize) {
            Some(character) => Value::Character(*character),
            None => Value::Chest(self.chests[object as usize - self.characters.len()]),
        }
    }

    /// Whether a client is to have an object.
    pub fn sees(&self, client: u32, object: u32) -> bool {
        match self.workload {
            Workload::Dense => true,
            Workload::Sparse { .. } if object < self.players() => client == object,
            Workload::Sparse { .. } => client == self.chest_owner(object - self.players()),
        }
    }
}

/// Homes are in a square of this many by this many.
fn columns(players: u32) -> u32 {
    (1..).find(|side| side * side >= players).unwrap_or(1)
}

fn home(players: u32, number: u32) -> [u32; 2] {
    let columns = columns(players);
    [number % columns, number / columns].map(|place| place * SPREAD + SPREAD / 2)
}

/// Unlike its neighbours' numbers (the mixing step of Numerical Recipes' linear congruential generator).
fn scatter(number: u32) -> u32 {
    let mixed = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (mixed ^ mixed >> 15).wrapping_mul(1_664_525) >> 8
}

fn begin(workload: Workload, players: u32, number: u32) -> (Walker, Character) {
    let (r, s) = (scatter(number), scatter(number + 100_000));
    let (bounds, at) = match workload {
        Workload::Dense => ([[0, SQUARE - 1]; 2], [r % SQUARE, s % SQUARE]),
        Workload::Sparse { .. } => {
            let home = home(players, number);
            (home.map(|at| [at - LEASH, at + LEASH]), home)
        }
    };
    let walker = Walker {
        bounds,
        pace: [1 + (r % 15) as i32, -1 - (s % 15) as i32],
        rises: true,
        pitches_up: true,
        turn: 1 + number % 7,
    };
    let character = Character {
        position: [at[0], at[1], r % 130],
        velocity: [0; 3],
        yaw: r % YAW_STEPS,
        pitch: (s % 150) as i32 - PITCH_LIMIT,
        mode: number % 3,
    };
    (walker, character)
}

impl Walker {
    fn step(&mut self, tick: u32, character: &mut Character) {
        for axis in 0..2 {
            let [low, high] = self.bounds[axis].map(|bound| bound as i32);
            let at = character.position[axis] as i32 + self.pace[axis];
            if at < low || at > high {
                self.pace[axis] = -self.pace[axis];
            }
            character.position[axis] = (character.position[axis] as i32 + self.pace[axis]) as u32;
            character.velocity[axis] = 3 * self.pace[axis] + (tick % 3) as i32 - 1;
        }
        let height = character.position[2] as i32 + if self.rises { 3 } else { -3 };
        if !(0..=130).contains(&height) {
            self.rises = !self.rises;
        }
        character.position[2] = (character.position[2] as i32 + if self.rises { 3 } else { -3 }) as u32;
        character.velocity[2] = if self.rises { 9 } else { -9 } + (tick % 2) as i32;
        character.yaw = (character.yaw + self.turn) % YAW_STEPS;
        let pitch = character.pitch + if self.pitches_up { 1 } else { -1 };
        if pitch.abs() > PITCH_LIMIT {
            self.pitches_up = !self.pitches_up;
        }
        character.pitch += if self.pitches_up { 1 } else { -1 };
        character.mode = (character.mode + 1) % 3;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_changes_in_every_tick_and_stays_in_its_range() {
        for workload in [Workload::Dense, Workload::Sparse { chests: 2 }] {
            let mut world = World::new(workload, 40);
            world.step();
            for _ in 0..20_000 {
                let before = world.clone();
                world.step();
                for (old, new) in before.characters.iter().zip(&world.characters) {
                    for axis in 0..3 {
                        assert_ne!(old.position[axis], new.position[axis]);
                        assert_ne!(old.velocity[axis], new.velocity[axis], "{old:?} {new:?}");
                        assert!(f64::from(new.position[axis]) / 100.0 < world.side_m());
                    }
                    assert!(old.yaw != new.yaw && old.pitch != new.pitch && old.mode != new.mode);
                    assert!(new.pitch.abs() <= PITCH_LIMIT && new.position[2] <= 130);
                }
                assert!(before.chests.iter().zip(&world.chests).all(|(old, new)| old != new));
            }
        }
    }

    fn check_packing<const BYTES: usize>(mut world: World) {
        for _ in 0..500 {
            world.step();
            for character in world.characters() {
                assert_eq!(Character::unpack(&character.pack::<BYTES>()), *character);
                assert_eq!(character.units().steps(), *character);
            }
        }
    }

    #[test]
    fn packing_and_units_lose_nothing() {
        check_packing::<DENSE_BYTES>(World::new(Workload::Dense, 400));
        check_packing::<SPARSE_BYTES>(World::new(Workload::Sparse { chests: 0 }, SPARSE_PLAYERS_MAX));
    }

    #[test]
    fn a_byte_less_would_not_hold_a_character() {
        let widest = |side_m: f64| (side_m * 100.0).log2().ceil() as u32;
        let dense = widest(World::new(Workload::Dense, 1).side_m());
        let sparse = widest(World::new(Workload::Sparse { chests: 0 }, SPARSE_PLAYERS_MAX).side_m());
        assert_eq!((dense, sparse), (15, 20));
        assert_eq!((2 * dense + UPRIGHT_BITS).div_ceil(8) as usize, DENSE_BYTES);
        assert_eq!((2 * sparse + UPRIGHT_BITS).div_ceil(8) as usize, SPARSE_BYTES);
    }

    #[test]
    fn nobody_comes_into_anothers_sight_when_sparse() {
        let world = World::new(Workload::Sparse { chests: 0 }, 100);
        let widest_cell_m = CELL_M * 2f64.sqrt();
        assert!(f64::from(SPREAD - 2 * LEASH) / 100.0 > SIGHT_M + widest_cell_m);
        assert!((0..100).all(|client| (0..100).all(|object| world.sees(client, object) == (client == object))));
    }
}
