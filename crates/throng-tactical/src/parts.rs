//! Which smokes and walls a player knows: those of the own team, and those that it has seen.
//!
//! A wall stands close to its maker, and a smoke within a throw: whoever knew of all of them would know where hidden
//! enemies are.

use throng::Tick;
use throng_match::Digest;
use throng_sight::fog::{Fog, FogOptions, FogWorld, Target, Viewer};

use glam::Vec3;

use crate::ability::{Barrier, SMOKE_RADIUS_M, SMOKES_MAX, Smoke, WALL_SIZE_M, WALLS_MAX};
use crate::angle::sine_cosine;
use crate::character::Character;

const PARTS_MAX: usize = SMOKES_MAX + WALLS_MAX;
/// A part that was seen stays known: it is not looked at again while it stands.
const FOR_EVER_TICKS: u32 = u32::MAX;
/// Parts stand still, so that a look at one counts for longer than one at an enemy.
const INTERVAL_TICKS: u32 = 4;
/// Parts are larger than enemies and few. More rays leave fewer doubts, and on doubt a part is shown.
const RAYS_MAX: u32 = 64;

/// The parts of a match, and who knows them.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    fog: Fog,
    /// The numbers of the parts; 0 is no part.
    numbers: Vec<u32>,
    /// For each part the players who know it, one bit for each seat.
    known: Vec<u32>,
    targets: Vec<Option<Target>>,
}

impl Parts {
    pub(crate) fn new(options: FogOptions, seats: usize) -> Parts {
        let options = FogOptions {
            interval_ticks: INTERVAL_TICKS,
            linger_ticks: FOR_EVER_TICKS,
            doubt_ticks: FOR_EVER_TICKS,
            rays_max: RAYS_MAX,
            ..options
        };
        Parts {
            fog: Fog::new(options, seats, PARTS_MAX),
            numbers: vec![0; PARTS_MAX],
            known: vec![0; PARTS_MAX],
            targets: vec![None; PARTS_MAX],
        }
    }

    /// Whether a player knows the smoke or the wall with this number.
    pub(crate) fn knows(&self, viewer: usize, number: u32) -> bool {
        let place = self.numbers.iter().position(|known| *known == number);
        place.is_some_and(|place| self.known[place] & (1 << viewer) != 0)
    }

    /// Everybody who is alive and has a free line to a part knows it from now on. Without `world` all know all.
    pub(crate) fn update(
        &mut self,
        now: Tick,
        (smokes, barriers): (&[Smoke], &[Barrier]),
        (characters, viewers): (&[Character], &[Option<Viewer>]),
        world: Option<&FogWorld<'_>>,
    ) {
        if smokes.is_empty() && barriers.is_empty() && self.numbers.iter().all(|number| *number == 0) {
            return;
        }
        let smokes = smokes.iter().filter(|smoke| smoke.is_thick(now));
        let there = smokes
            .map(|smoke| (smoke.number, smoke.maker, of_smoke(smoke)))
            .chain(barriers.iter().map(|barrier| (barrier.number, barrier.maker, of_barrier(barrier))));
        self.place(there.map(|(number, maker, space)| {
            let team = characters.get(maker.index()).map_or(u8::MAX, |character| character.team as u8);
            (number, still(team, space))
        }));
        if let Some(world) = world {
            self.fog.update(now.0, world, viewers, &self.targets);
        }
        for (place, known) in self.known.iter_mut().enumerate() {
            let Some(target) = self.targets[place] else { continue };
            for (seat, character) in characters.iter().enumerate() {
                // The dead of a team know what it does, as they see its members.
                let is_own = character.team as u8 == target.group;
                if is_own || world.is_none() || self.fog.may_see(seat, place) {
                    *known |= 1 << seat;
                }
            }
        }
    }

    /// Notes which parts there are. A part that is new gets a place that was free in the tick before, so that the fog
    /// keeps nothing of the part that had the place.
    fn place(&mut self, there: impl Iterator<Item = (u32, Target)> + Clone) {
        for (number, target) in there.clone().filter(|(number, _)| *number != 0) {
            if self.numbers.contains(&number) {
                continue;
            }
            if let Some(place) = self.numbers.iter().position(|number| *number == 0) {
                (self.numbers[place], self.targets[place], self.known[place]) = (number, Some(target), 0);
            }
        }
        for (place, number) in self.numbers.iter_mut().enumerate() {
            if *number != 0 && !there.clone().any(|(known, _)| known == *number) {
                (*number, self.targets[place], self.known[place]) = (0, None, 0);
            }
        }
    }

    pub(crate) fn digest(&self, hash: &mut Digest) {
        for (number, known) in self.numbers.iter().zip(&self.known).filter(|(number, _)| **number != 0) {
            hash.add(u64::from(*number) << 32 | u64::from(*known));
        }
    }
}

fn still(group: u8, [lowest, highest]: [Vec3; 2]) -> Target {
    Target { group, lowest, highest, velocity: Vec3::ZERO, speed_max_mps: 0.0 }
}

fn of_smoke(smoke: &Smoke) -> [Vec3; 2] {
    [smoke.middle - SMOKE_RADIUS_M, smoke.middle + SMOKE_RADIUS_M]
}

/// The wall when it stands: it rises into this box.
fn of_barrier(barrier: &Barrier) -> [Vec3; 2] {
    let (sine, cosine) = sine_cosine(barrier.yaw);
    let (sine, cosine) = (sine.abs(), cosine.abs());
    let wide =
        Vec3::new(WALL_SIZE_M.x * cosine + WALL_SIZE_M.z * sine, 0.0, WALL_SIZE_M.x * sine + WALL_SIZE_M.z * cosine);
    [barrier.foot - wide, barrier.foot + wide + Vec3::new(0.0, WALL_SIZE_M.y, 0.0)]
}
