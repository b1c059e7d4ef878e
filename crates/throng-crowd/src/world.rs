//! The small game that the lab plays: characters that walk, turn, jump and aim in a room with pillars.
//!
//! The server owns a [`World`] and moves it once per tick; bots own a [`BotBrain`] each and send [`BotInput`]s. Both
//! are deterministic: the same scenario, seed and inputs give the same motion, whatever the machine or the time.
//!
//! Most bots decode nothing and so do not know where they are. So the server does everything that needs a position: it
//! turns a character back at borders, pillars and the end of its leash, and steers it to the centre when its input says
//! [`BotInput::seek_centre`].
//!
//! ```text
//!            y
//!   ┌────────┼────────┐      origin: centre of the area, on the ground
//!   │   ▓    │        │      z: up
//!   │        └────────┼─ x   yaw: from x towards y, radians
//!   │             ▓   │      ▓ pillar, as high as the room
//!   └─────────────────┘
//! ```

mod brain;
mod character;
mod input;
mod objects;
mod pillars;
mod spawn;

use std::f32::consts::{PI, TAU};

use crate::scenario::Scenario;

pub use brain::BotBrain;
pub use character::{CharacterState, Mode};
pub use input::{BotInput, InputError};
pub use objects::{IdleObjects, chest_contents, chest_position};
pub use pillars::Pillar;

use character::{Character, LEN};
use pillars::Pillars;

/// Walking speed in metres per second.
pub const WALK_M_PER_S: f32 = 5.0;
/// Fastest turn that an input can ask for, in radians per second.
pub const MAX_TURN_RAD_PER_S: f32 = PI;
/// Upward speed at the start of a jump, in metres per second: about a second in the air, 1.3 m high.
pub const JUMP_M_PER_S: f32 = 5.0;
/// Downward acceleration in metres per second squared.
pub const GRAVITY_M_PER_S2: f32 = 9.81;
/// Largest pitch up or down, in radians.
pub const MAX_PITCH_RAD: f32 = 1.5;
/// Within this distance of the centre a character that seeks the centre mills about instead.
pub const MILL_RADIUS_M: f32 = 15.0;
/// A character that was turned back walks this long before it seeks the centre again, in seconds.
const DETOUR_S: f32 = 1.0;

/// Length of [`World::state_bytes`].
pub const STATE_BYTES: usize = LEN;

/// Where the character of a place starts, from the centre of the area.
pub fn spawn_point(scenario: &Scenario, place: u32) -> [f32; 2] {
    spawn::point(scenario, place)
}

/// A character of a [`World`]. Valid until it is despawned; the slot is then used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CharacterId(pub u32);

/// All characters, and the room in which they move.
///
/// Allocates when characters are spawned, never in [`World::step`].
#[derive(Clone, Debug)]
pub struct World {
    scenario: Scenario,
    pillars: Pillars,
    /// Slot by [`CharacterId`]; `None` after despawning.
    characters: Vec<Option<Character>>,
    free: Vec<u32>,
    room: Room,
}

/// The facts about its surroundings that a character needs to take a step.
#[derive(Clone, Copy, Debug)]
struct Room {
    tick_s: f32,
    half_m: [f32; 2],
    height_m: f32,
    /// Infinite where there is no leash.
    leash_m2: f32,
    detour_ticks: u16,
}

impl World {
    /// An empty room as the scenario describes it.
    pub fn new(scenario: &Scenario) -> World {
        let leash_m = if scenario.leash_m > 0.0 { scenario.leash_m } else { f32::INFINITY };
        World {
            pillars: Pillars::new(scenario),
            characters: Vec::with_capacity(scenario.players as usize),
            free: Vec::new(),
            room: Room {
                tick_s: scenario.tick_s(),
                half_m: scenario.area_m.map(|side| side / 2.0),
                height_m: scenario.height_m,
                leash_m2: leash_m * leash_m,
                detour_ticks: (DETOUR_S * scenario.tick_hz as f32).ceil() as u16,
            },
            scenario: scenario.clone(),
        }
    }

    /// A new character at the spawn point of the lowest free slot, standing still.
    pub fn spawn(&mut self) -> CharacterId {
        let place = self.free.last().copied().unwrap_or(self.characters.len() as u32);
        self.spawn_as(place)
    }

    /// A new character as the one of another slot would be: several servers that share a world number the places together.
    pub fn spawn_as(&mut self, place: u32) -> CharacterId {
        self.put(Character::new(spawn::point(&self.scenario, place), self.scenario.seed, place))
    }

    /// Everything of a character, for another server that goes on with it; `None` if it is gone.
    pub fn state_bytes(&self, id: CharacterId) -> Option<[u8; STATE_BYTES]> {
        Some(self.characters.get(id.0 as usize)?.as_ref()?.to_bytes())
    }

    /// A character that another server has had; `None` if the bytes are not of [`state_bytes`](World::state_bytes).
    pub fn arrive(&mut self, bytes: &[u8]) -> Option<CharacterId> {
        Character::from_bytes(bytes, &self.room).map(|character| self.put(character))
    }

    fn put(&mut self, character: Character) -> CharacterId {
        let slot = self.free.pop().unwrap_or(self.characters.len() as u32);
        match self.characters.get_mut(slot as usize) {
            Some(place) => *place = Some(character),
            None => self.characters.push(Some(character)),
        }
        CharacterId(slot)
    }

    /// Removes a character. Nothing happens if there is none.
    pub fn despawn(&mut self, id: CharacterId) {
        if self.characters.get_mut(id.0 as usize).is_some_and(|place| place.take().is_some()) {
            self.free.push(id.0);
        }
    }

    /// Sets the character's actions from now on. Direction and aim hold until the next input; a jump is done once.
    pub fn apply(&mut self, id: CharacterId, input: BotInput) {
        if let Some(character) = self.character_mut(id) {
            character.take(input);
        }
    }

    /// Moves everything one tick on and calls `touched` with each character whose state changed.
    pub fn step(&mut self, mut touched: impl FnMut(CharacterId, &CharacterState)) {
        for (slot, character) in self.characters.iter_mut().enumerate() {
            let Some(character) = character else { continue };
            if character.step(&self.room, &self.pillars) {
                touched(CharacterId(slot as u32), &character.state);
            }
        }
    }

    /// Stops everything where it is, also in the air, and calls `touched` with each character.
    pub fn stop(&mut self, mut touched: impl FnMut(CharacterId, &CharacterState)) {
        for (slot, character) in self.characters.iter_mut().enumerate() {
            let Some(character) = character else { continue };
            character.state.velocity = [0.0; 3];
            touched(CharacterId(slot as u32), &character.state);
        }
    }

    /// The character's present state; `None` if it is gone.
    pub fn state(&self, id: CharacterId) -> Option<&CharacterState> {
        self.characters.get(id.0 as usize)?.as_ref().map(|character| &character.state)
    }

    /// Every character, by slot.
    pub fn characters(&self) -> impl Iterator<Item = (CharacterId, &CharacterState)> {
        let slots = (0..).map(CharacterId).zip(&self.characters);
        slots.filter_map(|(id, place)| Some((id, &place.as_ref()?.state)))
    }

    /// Number of characters.
    pub fn len(&self) -> usize {
        self.characters.len() - self.free.len()
    }

    /// Whether there are no characters.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The obstacles.
    pub fn pillars(&self) -> &[Pillar] {
        self.pillars.as_slice()
    }

    fn character_mut(&mut self, id: CharacterId) -> Option<&mut Character> {
        self.characters.get_mut(id.0 as usize)?.as_mut()
    }
}

/// A seed for the `stream`-th thing of a family, unlike its neighbours' (splitmix64, Steele, Lea and Flood 2014).
fn mix(seed: u64, family: u64, stream: u64) -> u64 {
    let mut z = seed ^ family.rotate_left(32) ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Families of random streams.
mod family {
    pub(super) const SPAWN: u64 = 1;
    pub(super) const PILLARS: u64 = 2;
    pub(super) const CHARACTER: u64 = 3;
    pub(super) const BRAIN: u64 = 4;
    pub(super) const CHEST: u64 = 5;
    pub(super) const IDLE: u64 = 6;
}

/// The same angle from −π up to π.
fn wrap(angle: f32) -> f32 {
    let wrapped = (angle + PI).rem_euclid(TAU) - PI;
    if wrapped >= PI { wrapped - TAU } else { wrapped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Movement, Overrides};

    fn scenario(name: &str, players: u32) -> Scenario {
        Scenario::resolve(name, &Overrides { players: Some(players), ..Overrides::default() }).unwrap()
    }

    /// A world full of characters with a brain each, run for some seconds; `look` sees it after every tick.
    fn play(scenario: &Scenario, seconds: u32, mut look: impl FnMut(&World)) -> World {
        let mut world = World::new(scenario);
        let ids: Vec<_> = (0..scenario.players).map(|_| world.spawn()).collect();
        let mut brains: Vec<_> = (0..scenario.players).map(|bot| BotBrain::new(scenario, bot)).collect();
        for _ in 0..seconds * scenario.tick_hz {
            for (id, brain) in ids.iter().zip(&mut brains) {
                world.apply(*id, brain.decide());
            }
            world.step(|_, _| {});
            look(&world);
        }
        world
    }

    fn distance_m(a: [f32; 3], b: [f32; 3]) -> f32 {
        (a[0] - b[0]).hypot(a[1] - b[1])
    }

    #[test]
    fn nobody_leaves_the_room_or_walks_into_a_pillar_or_stops_for_good() {
        let scenario = scenario("crowd", 200);
        let mut path_m = vec![0.0; 200];
        let mut before: Vec<[f32; 3]> = Vec::new();
        let mut entered = 0;
        let world = play(&scenario, 30, |world| {
            for (id, state) in world.characters() {
                let [x, y, z] = state.position;
                assert!(x.abs() <= 50.0 && y.abs() <= 50.0 && (0.0..=20.0).contains(&z), "{id:?} at {state:?}");
                let Some(&was) = before.get(id.0 as usize) else { continue };
                path_m[id.0 as usize] += distance_m(was, state.position);
                let inside = |[x, y, _]: [f32; 3]| world.pillars().iter().any(|pillar| pillar.holds([x, y]));
                entered += usize::from(inside(state.position) && !inside(was));
            }
            before = world.characters().map(|(_, state)| state.position).collect();
        });
        assert_eq!(world.pillars().len(), 12);
        assert_eq!(entered, 0);
        let shortest = path_m.iter().copied().fold(f32::INFINITY, f32::min);
        assert!(shortest > 0.8 * 30.0 * WALK_M_PER_S, "someone walked only {shortest} m");
    }

    #[test]
    fn one_in_ten_jumps_and_turns_each_second() {
        let scenario = scenario("dense", 400);
        let (mut jumps, mut airborne) = (0, vec![false; 400]);
        play(&scenario, 20, |world| {
            for (id, state) in world.characters() {
                let in_air = state.mode == Mode::Airborne;
                jumps += u32::from(in_air && !airborne[id.0 as usize]);
                airborne[id.0 as usize] = in_air;
            }
        });
        assert!((600..1000).contains(&jumps), "{jumps} jumps in 8,000 character seconds");
    }

    #[test]
    fn the_same_seed_gives_the_same_motion_and_another_seed_another() {
        let first = scenario("crowd", 30);
        let second = Scenario { seed: 2, ..first.clone() };
        let end = |scenario: &Scenario| -> Vec<CharacterState> {
            play(scenario, 5, |_| {}).characters().map(|(_, state)| *state).collect()
        };
        assert_eq!(end(&first), end(&first));
        assert_ne!(end(&first), end(&second));
    }

    #[test]
    fn converging_characters_reach_the_centre_and_mill_about() {
        let scenario = Scenario { tick_hz: 10, input_hz: 10, ..scenario("converge", 40) };
        let world = play(&scenario, 165, |_| {});
        let farthest = world.characters().map(|(_, state)| distance_m(state.position, [0.0; 3])).fold(0.0, f32::max);
        assert!(farthest < 2.0 * MILL_RADIUS_M, "one is still {farthest} m away");
        assert!(world.characters().all(|(_, state)| state.mode != Mode::Standing));
    }

    #[test]
    fn sparse_characters_never_come_into_each_others_sight() {
        let scenario = Scenario { tick_hz: 5, input_hz: 5, ..scenario("sparse", 100) };
        let sight_m = scenario.rings[0].radius_m;
        play(&scenario, 120, |world| {
            let all: Vec<_> = world.characters().map(|(_, state)| state.position).collect();
            for (i, &a) in all.iter().enumerate() {
                for &b in &all[..i] {
                    assert!(distance_m(a, b) > sight_m + scenario.cell_m[0].min(100.0));
                }
            }
        });
    }

    #[test]
    fn a_character_that_stands_still_is_not_touched() {
        let scenario = Scenario { movement: Movement::Idle, ..scenario("crowd", 10) };
        let mut world = World::new(&scenario);
        let ids: Vec<_> = (0..10).map(|_| world.spawn()).collect();
        let mut brain = BotBrain::new(&scenario, 0);
        let mut touched = 0;
        for _ in 0..60 {
            ids.iter().for_each(|&id| world.apply(id, brain.decide()));
            world.step(|_, _| touched += 1);
        }
        assert_eq!(touched, 0);
        world.apply(ids[3], BotInput { forward: true, ..BotInput::default() });
        world.step(|id, _| {
            assert_eq!(id, ids[3]);
            touched += 1;
        });
        assert_eq!(touched, 1);
    }

    #[test]
    fn slots_are_used_again_and_strangers_are_ignored() {
        let mut world = World::new(&scenario("crowd", 10));
        let (a, b) = (world.spawn(), world.spawn());
        world.despawn(a);
        world.despawn(a);
        world.despawn(CharacterId(99));
        world.apply(a, BotInput::default());
        assert_eq!((world.len(), world.state(a)), (1, None));
        assert_eq!(world.spawn(), a);
        assert_eq!(world.characters().map(|(id, _)| id).collect::<Vec<_>>(), [a, b]);
    }

    #[test]
    fn angles_wrap_to_the_half_open_circle() {
        assert_eq!(wrap(PI), -PI);
        assert!((wrap(3.0 * TAU + 1.0) - 1.0).abs() < 1e-5);
        for step in -2000..2000 {
            let angle = wrap(step as f32 * 0.1);
            assert!((-PI..PI).contains(&angle), "{angle}");
        }
    }
}
