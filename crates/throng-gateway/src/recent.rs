//! Facts about peers that are remembered for a while, in bounded space, without a sweep in any call.
//!
//! ```text
//!   touched --> young --(young is half of the bound, or its time is over)--> old --(the same again)--> forgotten
//! ```
//! An entry is remembered for one to two lifetimes after it was last written, unless it has to make room for others:
//! then the entries that were not written for longest go first, half of them at once.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::Hash;
use std::mem;
use std::time::Duration;

use throng_wire::Time;

/// Entries by key. Hashed with the standard library's keyed hash: peers choose their addresses and names.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    young: HashMap<K, V, RandomState>,
    old: HashMap<K, V, RandomState>,
    bound: usize,
    lifetime: Duration,
    /// When the young ones become old.
    turns_at: Time,
}

/// Bans of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BanCounts {
    /// Those that hold.
    pub present: usize,
    /// Those that were forgotten before their end since the start, because there were too many.
    pub forgotten: u64,
}

impl BanCounts {
    pub(crate) fn plus(self, other: BanCounts) -> BanCounts {
        BanCounts { present: self.present + other.present, forgotten: self.forgotten + other.forgotten }
    }
}

impl<K: Copy + Eq + Hash, V: Copy> Recent<K, V> {
    /// Never more than `bound` entries (at least 2), each remembered for `lifetime` at least if there is room.
    pub(crate) fn new(bound: usize, lifetime: Duration) -> Recent<K, V> {
        Recent { young: HashMap::new(), old: HashMap::new(), bound, lifetime, turns_at: Time(0).after(lifetime) }
    }

    /// Other bounds from now on.
    pub(crate) fn set_bounds(&mut self, bound: usize, lifetime: Duration) {
        (self.bound, self.lifetime) = (bound, lifetime);
    }

    /// The entry of a key.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.young.get(key).or_else(|| self.old.get(key)).copied()
    }

    /// Remembers a value under a key, in place of another one.
    pub(crate) fn insert(&mut self, now: Time, key: K, value: V) {
        let is_turn_due = self.is_turn_due(now, &key);
        self.remove(&key);
        if is_turn_due {
            self.turn(now);
        }
        self.young.insert(key, value);
    }

    /// The same. Returns the value that the key had, and hands each value that is forgotten for it to `forgotten`: each once.
    pub(crate) fn replace(&mut self, now: Time, key: K, value: V, forgotten: impl FnMut(V)) -> Option<V> {
        let former = self.get(&key);
        self.old.remove(&key);
        if self.is_turn_due(now, &key) {
            self.old.values().copied().for_each(forgotten);
        }
        self.insert(now, key, value);
        former
    }

    fn is_turn_due(&self, now: Time, key: &K) -> bool {
        now >= self.turns_at || (self.young.len() >= (self.bound / 2).max(1) && !self.young.contains_key(key))
    }

    /// Forgets a key.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let old = self.old.remove(key);
        self.young.remove(key).or(old)
    }

    /// All entries, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.young.iter().chain(&self.old)
    }

    /// The young ones become old. Copies need no destructor, so clearing is a matter of some kilobytes.
    fn turn(&mut self, now: Time) {
        self.old.clear();
        mem::swap(&mut self.young, &mut self.old);
        self.turns_at = now.after(self.lifetime);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(60);

    #[test]
    fn an_entry_is_remembered_for_its_lifetime_and_not_for_ever() {
        let mut recent = Recent::new(100, LIFETIME);
        recent.insert(Time::from_secs(59), 1, 'a');
        recent.insert(Time::from_secs(60), 2, 'b');
        recent.insert(Time::from_secs(118), 3, 'c');
        assert_eq!([1, 2, 3].map(|key| recent.get(&key)), [Some('a'), Some('b'), Some('c')]);
        recent.insert(Time::from_secs(120), 4, 'd');
        assert_eq!([1, 2, 3, 4].map(|key| recent.get(&key)), [None, Some('b'), Some('c'), Some('d')]);
    }

    #[test]
    fn a_flood_of_keys_is_bounded_and_forgets_the_oldest_first() {
        let mut recent = Recent::new(1_000, LIFETIME);
        for key in 0..100_000 {
            recent.insert(Time(0), key, key);
            recent.insert(Time(0), 0, key);
            assert!(recent.iter().count() <= 1_000 || key % 997 != 0);
        }
        assert!(recent.iter().count() <= 1_000);
        assert_eq!(recent.get(&0), Some(99_999), "what is written again and again stays");
        assert_eq!(recent.get(&99_999), Some(99_999));
        assert_eq!(recent.get(&50_000), None);
    }

    #[test]
    fn a_key_has_one_value() {
        let mut recent = Recent::new(4, LIFETIME);
        for key in [1, 2, 3, 1] {
            recent.insert(Time(0), key, key);
        }
        assert_eq!(recent.iter().filter(|&(&key, _)| key == 1).count(), 1);
        assert_eq!((recent.remove(&1), recent.get(&1)), (Some(1), None));
        // Also one that is written again when the young ones become old.
        recent.insert(Time::from_secs(30), 4, 4);
        recent.insert(Time::from_secs(60), 4, 5);
        assert_eq!(recent.iter().filter(|&(&key, _)| key == 4).count(), 1);
    }

    #[test]
    fn each_value_that_goes_is_handed_over_once() {
        let mut recent = Recent::new(100, LIFETIME);
        let (mut held, mut random) = (0, fastrand::Rng::with_seed(1));
        for second in 0..10_000 {
            let mut forgotten = 0;
            let key = random.u32(0..150);
            let former = recent.replace(Time::from_secs(second), key, second, |_| forgotten += 1);
            held = held + 1 - forgotten - usize::from(former.is_some());
            assert_eq!(recent.iter().count(), held);
        }
    }
}
