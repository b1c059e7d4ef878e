//! The choice of things to buy.

use fastrand::Rng;

use crate::command::Item;
use crate::senses::{Own, Team};
use crate::weapon::Weapon;

/// Time between two purchases, in seconds.
const PAUSE_S: f32 = 0.3;

/// The things that are still to be bought in this round.
#[derive(Clone, Debug, Default)]
pub(super) struct Basket {
    items: [Option<Item>; 7],
    next: usize,
    pause_s: f32,
}

impl Basket {
    /// Decides at the beginning of the buy phase: in the order of use, and with what is there. The server refuses what the
    /// money does not cover, so nobody has to know all prices.
    pub(super) fn fill(&mut self, me: &Own, random: &mut Rng) {
        *self = Basket::default();
        let mut wishes: [Option<Item>; 7] = [None; 7];
        let (rifle, sniper) = (Weapon::Rifle.facts().price, Weapon::Sniper.facts().price);
        let gun = match me.money {
            money if me.primary.is_none() && money >= sniper + 650 && random.u8(..8) == 0 => Some(Item::Sniper),
            money if me.primary.is_none() && money >= rifle => Some(Item::Rifle),
            _ => None,
        };
        let has_gun = gun.is_some() || me.primary.is_some();
        wishes[0] = gun;
        // Without a gun the money is kept for the next round, but for one small thing.
        if has_gun || me.money < 1_000 {
            wishes[1] = has_gun.then_some(Item::Armour);
            wishes[2] = Some([Item::Smoke, Item::Dash][random.usize(..2)]);
        }
        if has_gun {
            wishes[3] = (me.team == Team::Defenders && !me.has_kit).then_some(Item::Kit);
            wishes[4] = Some(Item::Smoke);
            wishes[5] = Some(Item::Dash);
            wishes[6] = Some(Item::Wall);
        }
        self.items = wishes;
        self.pause_s = PAUSE_S * (1.0 + random.f32());
    }

    /// The purchase of this tick, if there is one.
    pub(super) fn take(&mut self, tick_s: f32) -> Option<Item> {
        self.pause_s -= tick_s;
        if self.pause_s > 0.0 {
            return None;
        }
        let item = self.items.get(self.next..)?.iter().position(Option::is_some)?;
        let place = self.next + item;
        self.next = place + 1;
        self.pause_s = PAUSE_S;
        self.items.get_mut(place)?.take()
    }
}
