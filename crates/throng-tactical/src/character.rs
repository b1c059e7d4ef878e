//! One player's character.

use glam::Vec3;
use throng::Tick;
use throng_match::{Digest, Seat};
use throng_rewind::BodyId;

use crate::ability::Dash;
use crate::command::{Buttons, Command, Item};
use crate::pose::Motion;
use crate::rules::{
    ARMOUR, ARMOUR_PRICE, CHARGES_MAX, DASH_PRICE, HEALTH, KIT_PRICE, MONEY_MAX, SMOKE_PRICE, WALL_PRICE,
};
use crate::senses::{Charges, Own, Team};
use crate::skeleton::Zone;
use crate::walk::Mover;
use crate::weapon::{Carried, Slot, Weapon};

/// The action of a player who holds the use button.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Work {
    #[default]
    Nothing,
    Planting,
    Defusing,
}

#[derive(Clone, Debug)]
pub(crate) struct Character {
    pub(crate) seat: Seat,
    pub(crate) team: Team,
    pub(crate) body: BodyId,
    pub(crate) mover: Mover,
    pub(crate) yaw: u16,
    pub(crate) pitch: i16,
    pub(crate) is_alive: bool,
    pub(crate) health: u8,
    pub(crate) armour: u8,
    pub(crate) weapons: [Option<Carried>; 2],
    pub(crate) hand: Slot,
    pub(crate) charges: Charges,
    pub(crate) has_kit: bool,
    pub(crate) money: u32,
    pub(crate) dash: Option<Dash>,
    pub(crate) work: Work,
    /// Ticks that the work has gone on.
    pub(crate) worked: u32,
    /// Ticks that the work takes.
    pub(crate) work_takes: u32,
    /// Buttons of the last command.
    pub(crate) held: Buttons,
    pub(crate) kills: u16,
    pub(crate) deaths: u16,
    /// When it died the last time.
    pub(crate) died: Tick,
    pub(crate) motion: Motion,
}

impl Character {
    pub(crate) fn new(seat: Seat, team: Team, body: BodyId, money: u32) -> Character {
        Character {
            seat,
            team,
            body,
            mover: Mover::at(Vec3::ZERO),
            yaw: 0,
            pitch: 0,
            is_alive: false,
            health: 0,
            armour: 0,
            weapons: [None, Some(Carried::new(Weapon::Pistol))],
            hand: Slot::Sidearm,
            charges: Charges::default(),
            has_kit: false,
            money,
            dash: None,
            work: Work::Nothing,
            worked: 0,
            work_takes: 1,
            held: Buttons::NONE,
            kills: 0,
            deaths: 0,
            died: Tick(0),
            motion: Motion::default(),
        }
    }

    /// A new round: those who lived keep what they have, the others begin anew.
    pub(crate) fn spawn(&mut self, feet: Vec3, yaw: u16) {
        if !self.is_alive {
            self.weapons[0] = None;
            self.hand = Slot::Sidearm;
            self.armour = 0;
            self.charges = Charges::default();
            self.has_kit = false;
        }
        self.weapons[1].get_or_insert(Carried::new(Weapon::Pistol));
        for carried in self.weapons.iter_mut().flatten() {
            *carried = Carried::new(carried.weapon);
        }
        self.is_alive = true;
        self.health = HEALTH;
        self.mover = Mover::at(feet);
        (self.yaw, self.pitch) = (yaw, 0);
        self.dash = None;
        self.stop_work();
        self.motion = Motion { way: [1.0, 0.0], time_s: self.motion.time_s, ..Motion::default() };
    }

    /// The weapon in the hand.
    pub(crate) fn carried(&self) -> Carried {
        self.weapons[self.hand as usize].unwrap_or(Carried::new(Weapon::Pistol))
    }

    pub(crate) fn carried_mut(&mut self) -> &mut Carried {
        self.weapons[self.hand as usize].get_or_insert(Carried::new(Weapon::Pistol))
    }

    pub(crate) fn draw(&mut self, slot: Slot, now_us: u64) {
        if slot != self.hand && self.weapons[slot as usize].is_some() {
            self.hand = slot;
            self.carried_mut().draw(now_us);
        }
    }

    /// Buys something. False if there is no money for it, or no use.
    pub(crate) fn buy(&mut self, item: Item) -> bool {
        let Charges { smoke, wall, dash } = self.charges;
        let (price, is_useful) = match item {
            Item::Rifle => (Weapon::Rifle.facts().price, !self.owns(Weapon::Rifle)),
            Item::Sniper => (Weapon::Sniper.facts().price, !self.owns(Weapon::Sniper)),
            Item::Armour => (ARMOUR_PRICE, self.armour < ARMOUR),
            Item::Smoke => (SMOKE_PRICE, smoke < CHARGES_MAX),
            Item::Wall => (WALL_PRICE, wall < CHARGES_MAX),
            Item::Dash => (DASH_PRICE, dash < CHARGES_MAX),
            Item::Kit => (KIT_PRICE, self.team == Team::Defenders && !self.has_kit),
        };
        if !is_useful || price > self.money {
            return false;
        }
        self.money -= price;
        match item {
            Item::Rifle => self.take(Weapon::Rifle),
            Item::Sniper => self.take(Weapon::Sniper),
            Item::Armour => self.armour = ARMOUR,
            Item::Smoke => self.charges.smoke += 1,
            Item::Wall => self.charges.wall += 1,
            Item::Dash => self.charges.dash += 1,
            Item::Kit => self.has_kit = true,
        }
        true
    }

    fn owns(&self, weapon: Weapon) -> bool {
        self.weapons[weapon.slot() as usize].is_some_and(|carried| carried.weapon == weapon)
    }

    fn take(&mut self, weapon: Weapon) {
        self.weapons[weapon.slot() as usize] = Some(Carried::new(weapon));
        self.hand = weapon.slot();
    }

    pub(crate) fn earn(&mut self, money: u32) {
        self.money = (self.money + money).min(MONEY_MAX);
    }

    /// Takes damage; what was really taken from the health.
    pub(crate) fn hurt(&mut self, damage: f32, zone: Zone) -> u8 {
        let mut damage = damage.max(0.0);
        if zone != Zone::Leg {
            let kept = (damage / 2.0).min(f32::from(self.armour));
            // Rounded up, so that armour ends.
            self.armour = self.armour.saturating_sub(kept.ceil() as u8);
            damage -= kept;
        }
        let taken = (damage.round().min(255.0) as u8).min(self.health);
        self.health -= taken;
        taken
    }

    pub(crate) fn stop_work(&mut self) {
        (self.work, self.worked, self.work_takes) = (Work::Nothing, 0, 1);
    }

    /// Buttons that are pressed now and were not before.
    pub(crate) fn pressed(&self, command: &Command) -> Buttons {
        command.buttons.without(self.held)
    }

    pub(crate) fn progress(&self) -> u8 {
        (self.worked * 255 / self.work_takes.max(1)).min(255) as u8
    }

    pub(crate) fn own(&self, has_bomb: bool) -> Own {
        let carried = self.carried();
        Own {
            seat: self.seat,
            team: self.team,
            position: self.mover.feet,
            velocity: self.mover.velocity,
            eye_height: self.mover.eye_height(),
            yaw: self.yaw,
            pitch: self.pitch,
            is_grounded: self.mover.is_grounded,
            is_alive: self.is_alive,
            health: self.health,
            armour: self.armour,
            weapon: carried.weapon,
            primary: self.weapons[0].map(|carried| carried.weapon),
            ammunition: carried.loaded,
            reserve: carried.reserve,
            is_reloading: carried.is_reloading(),
            money: self.money,
            has_bomb,
            has_kit: self.has_kit,
            charges: self.charges,
            progress: self.progress(),
        }
    }

    pub(crate) fn digest(&self, hash: &mut Digest) {
        hash.add_f32s(&self.mover.feet.to_array());
        hash.add_f32s(&self.mover.velocity.to_array());
        hash.add_f32(self.mover.crouch);
        hash.add(self.mover.is_grounded.into());
        hash.add(u64::from(self.yaw) | u64::from(self.pitch.cast_unsigned()) << 16 | u64::from(self.held.bits()) << 32);
        hash.add_bytes(&[
            u8::from(self.is_alive),
            self.health,
            self.armour,
            self.hand as u8,
            self.charges.smoke,
            self.charges.wall,
            self.charges.dash,
            u8::from(self.has_kit),
            self.work as u8,
        ]);
        for carried in &self.weapons {
            hash.add(carried.is_some().into());
            if let Some(carried) = carried {
                hash.add(carried.weapon as u64 | u64::from(carried.loaded) << 8 | u64::from(carried.reserve) << 24);
                hash.add(carried.ready_us);
                hash.add(carried.reload_ends_us);
                hash.add(u64::from(carried.burst));
            }
        }
        hash.add(u64::from(self.money));
        hash.add(self.dash.is_some().into());
        if let Some(dash) = &self.dash {
            hash.add_f32s(&dash.velocity.to_array());
            hash.add(dash.until.0);
            hash.add(dash.escape.began.tick.0);
            hash.add_f32(dash.escape.began.fraction);
        }
        hash.add(u64::from(self.worked) | u64::from(self.work_takes) << 32);
        hash.add(u64::from(self.kills) | u64::from(self.deaths) << 16);
        hash.add(self.died.0);
        hash.add_f32(self.motion.stride);
        hash.add_f32(self.motion.air);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn somebody(team: Team) -> Character {
        let mut character = Character::new(Seat(0), team, BodyId(0), 3_000);
        character.spawn(Vec3::ZERO, 0);
        character
    }

    #[test]
    fn what_is_bought_is_paid_and_nothing_is_bought_twice() {
        let mut character = somebody(Team::Defenders);
        assert!(character.buy(Item::Rifle));
        assert_eq!((character.money, character.carried().weapon), (300, Weapon::Rifle));
        assert!(!character.buy(Item::Rifle) && !character.buy(Item::Armour) && !character.buy(Item::Sniper));
        assert!(character.buy(Item::Smoke) && !character.buy(Item::Smoke));
        assert_eq!((character.money, character.charges.smoke), (100, 1));
        let mut rich = somebody(Team::Attackers);
        rich.earn(100_000);
        assert_eq!(rich.money, MONEY_MAX);
        assert!(!rich.buy(Item::Kit), "only defenders defuse");
        assert!(rich.buy(Item::Dash) && rich.buy(Item::Dash) && !rich.buy(Item::Dash));
    }

    #[test]
    fn the_dead_lose_their_things_and_the_living_keep_them() {
        let mut character = somebody(Team::Defenders);
        character.buy(Item::Rifle);
        character.buy(Item::Smoke);
        character.carried_mut().fire(0, 0);
        character.health = 1;
        character.spawn(Vec3::X, 0);
        assert_eq!((character.carried().loaded, character.charges.smoke, character.health), (25, 1, 100));
        character.is_alive = false;
        character.spawn(Vec3::X, 0);
        assert_eq!(
            (character.carried().weapon, character.charges.smoke, character.weapons[0]),
            (Weapon::Pistol, 0, None)
        );
    }

    #[test]
    fn armour_takes_half_and_ends_and_protects_no_legs() {
        let mut character = somebody(Team::Attackers);
        character.armour = 50;
        assert_eq!(character.hurt(40.0, Zone::Body), 20);
        assert_eq!((character.health, character.armour), (80, 30));
        assert_eq!(character.hurt(20.0, Zone::Leg), 20);
        assert_eq!(character.hurt(100.0, Zone::Head), 60, "no more than there is");
        assert_eq!((character.health, character.armour), (0, 0));
    }
}
