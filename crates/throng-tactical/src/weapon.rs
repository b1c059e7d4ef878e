//! Weapons: what they do, and the state of one that somebody carries.

use throng::ReplicateEnum;

/// A kind of weapon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ReplicateEnum)]
pub enum Weapon {
    /// Everybody has one.
    #[default]
    Pistol,
    /// Fires on while the button is held, and climbs.
    Rifle,
    /// One hit is enough; slow, and useless on the move.
    Sniper,
}

/// Where a weapon is carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ReplicateEnum)]
pub enum Slot {
    /// A rifle or a sniper rifle, if one was bought.
    Primary,
    /// The pistol.
    #[default]
    Sidearm,
}

/// The properties of a kind of weapon. Angles are in radians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeaponFacts {
    /// Price in the buy phase.
    pub price: u32,
    /// Damage of a shot at the body, near.
    pub damage: f32,
    /// Damage at this distance is halved; it falls along a straight line up to here and stays there.
    pub half_at_m: f32,
    /// Nothing is hit beyond.
    pub range_m: f32,
    /// Time between two shots, in microseconds.
    pub interval_us: u32,
    /// Whether it fires on while the button is held.
    pub is_automatic: bool,
    /// Rounds in a magazine.
    pub magazine: u16,
    /// Rounds besides it at the beginning of a round.
    pub reserve: u16,
    /// Time to reload, in microseconds.
    pub reload_us: u32,
    /// Time to draw, in microseconds.
    pub draw_us: u32,
    /// Shots lie in a cone with this half angle if the shooter stands.
    pub spread: f32,
    /// Added to the half angle at full speed, in proportion to the speed.
    pub spread_moving: f32,
    /// Added in the air.
    pub spread_air: f32,
    /// Added for each shot of a burst, up to eight of them.
    pub spread_burst: f32,
    /// How far the n-th shot of a burst goes up and to the right; the last one counts for all further ones.
    pub recoil: &'static [[f32; 2]],
    /// Running speed with this weapon, in metres per second.
    pub speed: f32,
}

const fn mrad<const N: usize>(steps: [[i32; 2]; N]) -> [[f32; 2]; N] {
    let mut out = [[0.0; 2]; N];
    let mut i = 0;
    while i < N {
        out[i] = [steps[i][0] as f32 / 1_000.0, steps[i][1] as f32 / 1_000.0];
        i += 1;
    }
    out
}

/// Milliradians up and to the right for each shot of a burst.
const RIFLE_RECOIL: [[f32; 2]; 16] = mrad([
    [0, 0],
    [4, 0],
    [10, -1],
    [17, -2],
    [25, -1],
    [33, 2],
    [40, 6],
    [45, 11],
    [48, 16],
    [50, 12],
    [51, 5],
    [52, -3],
    [52, -11],
    [53, -17],
    [53, -20],
    [54, -16],
]);
const PISTOL_RECOIL: [[f32; 2]; 5] = mrad([[0, 0], [6, 1], [12, -1], [17, 2], [20, 0]]);
const SNIPER_RECOIL: [[f32; 2]; 2] = mrad([[0, 0], [30, 4]]);

const PISTOL: WeaponFacts = WeaponFacts {
    price: 0,
    damage: 30.0,
    half_at_m: 30.0,
    range_m: 120.0,
    interval_us: 150_000,
    is_automatic: false,
    magazine: 12,
    reserve: 48,
    reload_us: 1_500_000,
    draw_us: 400_000,
    spread: 0.004,
    spread_moving: 0.030,
    spread_air: 0.080,
    spread_burst: 0.002,
    recoil: &PISTOL_RECOIL,
    speed: 5.6,
};

const RIFLE: WeaponFacts = WeaponFacts {
    price: 2_700,
    damage: 39.0,
    half_at_m: 80.0,
    range_m: 250.0,
    interval_us: 102_000,
    is_automatic: true,
    magazine: 25,
    reserve: 75,
    reload_us: 2_300_000,
    draw_us: 700_000,
    spread: 0.0025,
    spread_moving: 0.050,
    spread_air: 0.120,
    spread_burst: 0.0012,
    recoil: &RIFLE_RECOIL,
    speed: 5.2,
};

const SNIPER: WeaponFacts = WeaponFacts {
    price: 4_500,
    damage: 140.0,
    half_at_m: 300.0,
    range_m: 400.0,
    interval_us: 1_400_000,
    is_automatic: false,
    magazine: 5,
    reserve: 10,
    reload_us: 3_400_000,
    draw_us: 1_000_000,
    spread: 0.0006,
    spread_moving: 0.140,
    spread_air: 0.200,
    spread_burst: 0.0,
    recoil: &SNIPER_RECOIL,
    speed: 4.6,
};

impl Weapon {
    /// All weapons.
    pub const ALL: [Weapon; 3] = [Weapon::Pistol, Weapon::Rifle, Weapon::Sniper];

    /// Its properties.
    pub const fn facts(self) -> &'static WeaponFacts {
        match self {
            Weapon::Pistol => &PISTOL,
            Weapon::Rifle => &RIFLE,
            Weapon::Sniper => &SNIPER,
        }
    }

    /// Where it is carried.
    pub const fn slot(self) -> Slot {
        match self {
            Weapon::Pistol => Slot::Sidearm,
            Weapon::Rifle | Weapon::Sniper => Slot::Primary,
        }
    }
}

impl WeaponFacts {
    /// The part of the damage that is left at a distance: 1 near, 0.5 at [`WeaponFacts::half_at_m`] and beyond.
    pub fn falloff(&self, distance_m: f32) -> f32 {
        1.0 - 0.5 * (distance_m / self.half_at_m).clamp(0.0, 1.0)
    }
}

/// A burst cools down by a shot in this time, in microseconds, once no more are fired.
const COOL_US: u64 = 90_000;

/// A weapon that somebody carries. Times are microseconds of the match.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Carried {
    /// Which one.
    pub weapon: Weapon,
    /// Rounds in the magazine.
    pub loaded: u16,
    /// Rounds besides.
    pub reserve: u16,
    /// No shot before.
    pub(crate) ready_us: u64,
    /// When the running reload ends; 0 without one.
    pub(crate) reload_ends_us: u64,
    /// Shots of the burst that goes on.
    pub(crate) burst: u16,
    /// When the last shot was fired.
    pub(crate) fired_us: u64,
}

impl Carried {
    /// A full weapon.
    pub fn new(weapon: Weapon) -> Carried {
        let facts = weapon.facts();
        Carried {
            weapon,
            loaded: facts.magazine,
            reserve: facts.reserve,
            ready_us: 0,
            reload_ends_us: 0,
            burst: 0,
            fired_us: 0,
        }
    }

    /// Whether it is being reloaded.
    pub fn is_reloading(&self) -> bool {
        self.reload_ends_us != 0
    }

    /// Takes it into the hand.
    pub fn draw(&mut self, now_us: u64) {
        self.ready_us = self.ready_us.max(now_us + u64::from(self.weapon.facts().draw_us));
        self.reload_ends_us = 0;
        self.burst = 0;
    }

    /// Begins to reload, if that makes sense.
    pub fn reload(&mut self, now_us: u64) {
        let facts = self.weapon.facts();
        if !self.is_reloading() && self.reserve > 0 && self.loaded < facts.magazine && now_us >= self.ready_us {
            self.reload_ends_us = now_us + u64::from(facts.reload_us);
        }
    }

    /// Ends a reload that is due, and cools the burst down.
    pub fn settle(&mut self, now_us: u64) {
        if self.is_reloading() && now_us >= self.reload_ends_us {
            let rounds = (self.weapon.facts().magazine - self.loaded).min(self.reserve);
            self.loaded += rounds;
            self.reserve -= rounds;
            self.reload_ends_us = 0;
            self.burst = 0;
        }
        if self.burst > 0 && now_us >= self.ready_us + COOL_US {
            self.burst -= 1;
            // The next shot of the burst is forgotten after the same time again.
            self.ready_us = now_us;
        }
    }

    /// Whether a shot can be fired now.
    pub fn is_ready(&self, now_us: u64) -> bool {
        self.loaded > 0 && !self.is_reloading() && now_us >= self.ready_us
    }

    /// Takes a shot out of the magazine; its place in the burst. `tick_us` is the length of a tick: a weapon that became
    /// ready within the last tick has its full rate.
    pub fn fire(&mut self, now_us: u64, tick_us: u64) -> u16 {
        let facts = self.weapon.facts();
        self.loaded -= 1;
        self.ready_us = self.ready_us.max(now_us.saturating_sub(tick_us)) + u64::from(facts.interval_us);
        self.fired_us = now_us;
        let place = self.burst;
        self.burst = (self.burst + 1).min(facts.magazine);
        place
    }

    /// How far the shot at a place of a burst goes up and to the right.
    pub fn recoil(&self, place: u16) -> [f32; 2] {
        let pattern = self.weapon.facts().recoil;
        pattern[usize::from(place).min(pattern.len() - 1)]
    }

    /// Half the angle of the cone of a shot. `pace` is the speed as a part of full speed.
    pub fn spread(&self, place: u16, pace: f32, is_grounded: bool, is_crouched: bool) -> f32 {
        let facts = self.weapon.facts();
        // The first quarter of the speed costs nothing: so a player who stops can shoot at once.
        let moving = ((pace - 0.25) / 0.75).clamp(0.0, 1.0);
        let still = facts.spread * if is_crouched { 0.7 } else { 1.0 };
        let air = if is_grounded { 0.0 } else { facts.spread_air };
        still + moving * facts.spread_moving + air + f32::from(place.min(8)) * facts.spread_burst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of shots while the button is held for `us`, at `hz` ticks.
    fn shots(weapon: Weapon, us: u64, hz: u64) -> Vec<u64> {
        let mut carried = Carried::new(weapon);
        let mut times = Vec::new();
        for tick in 0..us * hz / 1_000_000 {
            let now_us = tick * 1_000_000 / hz;
            carried.settle(now_us);
            if carried.is_ready(now_us) {
                carried.fire(now_us, 1_000_000 / hz);
                times.push(now_us);
            }
        }
        times
    }

    #[test]
    fn the_rate_of_fire_does_not_depend_on_the_tick_rate() {
        for hz in [60, 128, 500] {
            let times = shots(Weapon::Rifle, 2_000_000, hz);
            assert_eq!(times.len(), 20, "{hz} Hz: {times:?}");
            assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 102_000 - 1_000_000 / hz), "{hz} Hz: {times:?}");
        }
    }

    #[test]
    fn a_magazine_ends_and_a_reload_takes_its_time() {
        let mut carried = Carried::new(Weapon::Pistol);
        carried.reload(0);
        assert!(!carried.is_reloading(), "a full magazine is not reloaded");
        let mut now_us = 0;
        while carried.loaded > 0 {
            assert!(carried.is_ready(now_us));
            carried.fire(now_us, 7_812);
            now_us += 150_000;
        }
        assert!(!carried.is_ready(now_us));
        carried.reload(now_us);
        carried.settle(now_us + 1_499_999);
        assert!(carried.is_reloading() && !carried.is_ready(now_us + 1_499_999));
        carried.settle(now_us + 1_500_000);
        assert_eq!((carried.loaded, carried.reserve, carried.is_ready(now_us + 1_500_000)), (12, 36, true));
    }

    #[test]
    fn bursts_climb_and_cool_down() {
        let mut carried = Carried::new(Weapon::Rifle);
        let places: Vec<u16> = (0..20).map(|shot| carried.fire(shot * 102_000, 7_812)).collect();
        assert_eq!(places, (0..20).collect::<Vec<u16>>());
        assert_eq!(carried.recoil(0), [0.0, 0.0]);
        assert_eq!(carried.recoil(19), carried.recoil(15));
        assert!(carried.recoil(8)[0] > carried.recoil(3)[0]);
        for tick in 0..400 {
            carried.settle(20 * 102_000 + tick * 7_812);
        }
        assert_eq!(carried.burst, 0);
    }

    #[test]
    fn who_runs_jumps_or_holds_the_trigger_hits_less() {
        let rifle = Carried::new(Weapon::Rifle);
        let still = rifle.spread(0, 0.2, true, false);
        assert_eq!(still, 0.0025);
        assert!(rifle.spread(0, 0.0, true, true) < still);
        assert!(rifle.spread(0, 1.0, true, false) > 10.0 * still);
        assert!(rifle.spread(0, 0.0, false, false) > rifle.spread(0, 1.0, true, false));
        assert!(rifle.spread(20, 0.0, true, false) > still);
    }

    #[test]
    fn damage_falls_to_half_and_stays_there() {
        let facts = Weapon::Rifle.facts();
        assert_eq!(facts.falloff(0.0), 1.0);
        assert_eq!(facts.falloff(40.0), 0.75);
        assert_eq!((facts.falloff(80.0), facts.falloff(200.0)), (0.5, 0.5));
    }
}
