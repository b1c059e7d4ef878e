//! Entities that move from cell to cell together, and entities that must stay.
//!
//! A **handover group** is a set of entities that move together. Every entity is in at most one. Adding an entity that
//! is in another group *merges* the two groups: entities that had to move together still do. Removing an entity takes
//! that one out; the others stay together.
//!
//! A **lock** belongs to an entity: while any entity of a handover group is locked, no entity of the group changes
//! cells; a locked entity without a group does not either. The lock lasts until the entity is removed from a lock
//! group, until the entity is gone, or until the entity through whose channel it was last locked is gone.

use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};
use thiserror::Error;

/// The two kinds of groups, as `EntityGroupType` numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// 0: moves together.
    Handover,
    /// 1: does not move.
    Lock,
}

impl GroupKind {
    /// From the number on the wire.
    pub fn from_wire(number: i32) -> Option<GroupKind> {
        match number {
            0 => Some(GroupKind::Handover),
            1 => Some(GroupKind::Lock),
            _ => None,
        }
    }
}

/// The entities that move together with an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movable<'a> {
    /// Nothing: the entity or one of its group is locked.
    Locked,
    /// The entity alone.
    Alone,
    /// All of these, in ascending order, the entity among them.
    Together(&'a [u32]),
}

/// How large [`EntityGroups`] may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityGroupLimits {
    /// Most entities of one handover group. Each handover looks at all of them.
    pub members_per_group: usize,
    /// Most entities that are in a handover group or locked.
    pub entities: usize,
}

impl Default for EntityGroupLimits {
    /// 4,096 in a group, 262,144 in all.
    fn default() -> EntityGroupLimits {
        EntityGroupLimits { members_per_group: 4_096, entities: 262_144 }
    }
}

/// Why entities were not added. Nothing has been changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EntityGroupError {
    /// The group would have more than [`EntityGroupLimits::members_per_group`] members.
    #[error("the group would have more than {limit} members")]
    GroupFull {
        /// The limit.
        limit: usize,
    },
    /// There would be more than [`EntityGroupLimits::entities`] entities with a group or a lock.
    #[error("more than {limit} entities would be grouped or locked")]
    TooManyEntities {
        /// The limit.
        limit: usize,
    },
}

impl EntityGroupError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            EntityGroupError::GroupFull { .. } => "entity_group_full",
            EntityGroupError::TooManyEntities { .. } => "entity_groups_full",
        }
    }
}

/// All handover groups and locks of a gateway.
#[derive(Clone, Debug, Default)]
pub struct EntityGroups {
    limits: EntityGroupLimits,
    /// By entity: where its group is in `groups`.
    group_of: FxHashMap<u32, u32>,
    /// Members in ascending order, at least two. Empty places are listed in `vacant`.
    groups: Vec<Vec<u32>>,
    vacant: Vec<u32>,
    /// By locked entity: through whose channel it was locked last.
    locked_by: FxHashMap<u32, u32>,
    /// The same the other way round.
    locked: FxHashMap<u32, FxHashSet<u32>>,
}

impl EntityGroups {
    /// No groups.
    pub fn new(limits: EntityGroupLimits) -> EntityGroups {
        EntityGroups { limits, ..EntityGroups::default() }
    }

    /// Other limits from now on. Groups that are larger stay as they are, and do not grow.
    pub fn set_limits(&mut self, limits: EntityGroupLimits) {
        self.limits = limits;
    }

    /// The entities that move when `entity` does.
    pub fn movable_with(&self, entity: u32) -> Movable<'_> {
        let members = self.group_of.get(&entity).map(|&group| self.groups[group as usize].as_slice());
        let company = members.unwrap_or(std::slice::from_ref(&entity));
        if !self.locked_by.is_empty() && company.iter().any(|member| self.locked_by.contains_key(member)) {
            return Movable::Locked;
        }
        members.map_or(Movable::Alone, Movable::Together)
    }

    /// Whether the entity itself is locked.
    pub fn is_locked(&self, entity: u32) -> bool {
        self.locked_by.contains_key(&entity)
    }

    /// All handover groups: the members of each.
    pub(crate) fn groups(&self) -> impl Iterator<Item = Vec<u32>> + '_ {
        self.groups.iter().filter(|members| !members.is_empty()).cloned()
    }

    /// All locked entities, and through whose channel each was locked last.
    pub(crate) fn locks(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.locked_by.iter().map(|(&entity, &by)| (entity, by))
    }

    /// `ENTITY_GROUP_ADD` on the channel of `entity`. For a handover group `entity` itself belongs to it, named or not.
    /// A lock takes hold of those that are named.
    ///
    /// # Errors
    /// A limit is reached; the sender asked for too much.
    pub fn add(&mut self, entity: u32, kind: GroupKind, named: &[u32]) -> Result<(), EntityGroupError> {
        match kind {
            GroupKind::Handover => self.join(entity, named),
            GroupKind::Lock => self.lock(entity, named),
        }
    }

    /// `ENTITY_GROUP_REMOVE` on the channel of `entity`. Those that are not in its group stay where they are; those
    /// that are not locked are no matter. Returns those concerned that may move now, in ascending order.
    pub fn remove(&mut self, entity: u32, kind: GroupKind, named: &[u32]) -> Vec<u32> {
        match kind {
            GroupKind::Handover => {
                let Some(&group) = self.group_of.get(&entity) else { return Vec::new() };
                let before = self.groups[group as usize].clone();
                for member in named {
                    if self.group_of.get(member) == Some(&group) {
                        self.leave(*member);
                    }
                }
                self.movable_of(&before)
            }
            GroupKind::Lock => {
                let unlocked: Vec<u32> = named.iter().copied().filter(|&member| self.unlock(member)).collect();
                self.movable_of(&unlocked)
            }
        }
    }

    /// The entity is gone: it leaves its group, and the locks that were set through it end. Returns those concerned that
    /// may move now, in ascending order.
    pub fn entity_gone(&mut self, entity: u32) -> Vec<u32> {
        let mut concerned: Vec<u32> = match self.unlock(entity) {
            true => self.group_of.get(&entity).map_or_else(Vec::new, |&group| self.groups[group as usize].clone()),
            false => Vec::new(),
        };
        self.leave(entity);
        for member in self.locked.remove(&entity).into_iter().flatten() {
            self.locked_by.remove(&member);
            concerned.push(member);
        }
        concerned.retain(|&member| member != entity);
        self.movable_of(&concerned)
    }

    /// All ids that belong to a group, are locked or lock others; some of them more than once.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.group_of.keys().chain(self.locked_by.keys()).chain(self.locked.keys()).copied()
    }

    /// These and those that move with them, as far as no lock holds them, in ascending order.
    fn movable_of(&self, concerned: &[u32]) -> Vec<u32> {
        let mut movable = Vec::new();
        let mut seen: FxHashSet<u32> = FxHashSet::default();
        for &entity in concerned {
            // Each group once.
            if self.group_of.get(&entity).is_some_and(|&group| !seen.insert(group)) {
                continue;
            }
            match self.movable_with(entity) {
                Movable::Locked => {}
                Movable::Alone => movable.push(entity),
                Movable::Together(all) => movable.extend_from_slice(all),
            }
        }
        movable.sort_unstable();
        movable.dedup();
        movable
    }

    fn lock(&mut self, entity: u32, named: &[u32]) -> Result<(), EntityGroupError> {
        self.check_room(named.len())?;
        for &member in named {
            self.unlock(member);
            self.locked_by.insert(member, entity);
            self.locked.entry(entity).or_default().insert(member);
        }
        Ok(())
    }

    /// Whether the entity was locked.
    fn unlock(&mut self, entity: u32) -> bool {
        let Some(by) = self.locked_by.remove(&entity) else { return false };
        if let Entry::Occupied(mut locked) = self.locked.entry(by) {
            locked.get_mut().remove(&entity);
            if locked.get().is_empty() {
                locked.remove();
            }
        }
        true
    }

    fn join(&mut self, entity: u32, named: &[u32]) -> Result<(), EntityGroupError> {
        self.check_room(named.len().saturating_add(1))?;
        let mut members = Vec::with_capacity(named.len() + 1);
        let mut merged: Vec<u32> = Vec::new();
        for member in named.iter().copied().chain([entity]) {
            match self.group_of.get(&member) {
                Some(group) if merged.contains(group) => {}
                Some(&group) => {
                    merged.push(group);
                    members.extend_from_slice(&self.groups[group as usize]);
                }
                None => members.push(member),
            }
            // Each merged group has two members or more, so this also bounds the search above.
            if members.len() > self.limits.members_per_group.saturating_mul(2) {
                return Err(self.group_full());
            }
        }
        members.sort_unstable();
        members.dedup();
        if members.len() > self.limits.members_per_group {
            return Err(self.group_full());
        }
        if members.len() > 1 {
            self.replace(&merged, members);
        }
        Ok(())
    }

    fn replace(&mut self, merged: &[u32], members: Vec<u32>) {
        for &group in merged {
            self.groups[group as usize].clear();
            self.vacant.push(group);
        }
        let group = self.vacant.pop().unwrap_or_else(|| {
            self.groups.push(Vec::new());
            (self.groups.len() - 1) as u32
        });
        self.group_of.extend(members.iter().map(|&member| (member, group)));
        self.groups[group as usize] = members;
    }

    fn leave(&mut self, entity: u32) {
        let Some(group) = self.group_of.remove(&entity) else { return };
        let members = &mut self.groups[group as usize];
        members.retain(|&member| member != entity);
        if members.len() == 1 {
            self.group_of.remove(&members[0]);
            members.clear();
            self.vacant.push(group);
        }
    }

    fn check_room(&self, added: usize) -> Result<(), EntityGroupError> {
        let limit = self.limits.entities;
        let entities = self.group_of.len() + self.locked_by.len();
        if added > limit.saturating_sub(entities) { Err(EntityGroupError::TooManyEntities { limit }) } else { Ok(()) }
    }

    fn group_full(&self) -> EntityGroupError {
        EntityGroupError::GroupFull { limit: self.limits.members_per_group }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use GroupKind::{Handover, Lock};

    #[test]
    fn adding_a_member_of_another_group_merges_the_two() {
        let mut groups = EntityGroups::default();
        assert_eq!(groups.movable_with(1), Movable::Alone);
        groups.add(1, Handover, &[2, 2]).unwrap();
        groups.add(10, Handover, &[11]).unwrap();
        groups.add(20, Handover, &[2, 10]).unwrap();
        for entity in [1, 2, 10, 11, 20] {
            assert_eq!(groups.movable_with(entity), Movable::Together(&[1, 2, 10, 11, 20]));
        }
        groups.remove(1, Handover, &[2, 99]);
        assert_eq!(groups.movable_with(2), Movable::Alone);
        assert_eq!(groups.movable_with(20), Movable::Together(&[1, 10, 11, 20]));
    }

    #[test]
    fn removal_is_confined_to_the_own_group_and_a_group_of_one_is_none() {
        let mut groups = EntityGroups::default();
        groups.add(1, Handover, &[2]).unwrap();
        groups.add(3, Handover, &[4]).unwrap();
        groups.remove(1, Handover, &[4]);
        assert_eq!(groups.movable_with(4), Movable::Together(&[3, 4]));
        groups.entity_gone(3);
        assert_eq!(groups.movable_with(4), Movable::Alone);
        groups.add(5, Handover, &[]).unwrap();
        assert_eq!(groups.movable_with(5), Movable::Alone);
        assert_eq!(groups.groups.len(), 2);
        groups.add(6, Handover, &[7]).unwrap();
        assert_eq!(groups.groups.len(), 2, "the vacant place is used again");
    }

    #[test]
    fn w_9_1b_a_lock_group_without_a_handover_group_locks() {
        let mut groups = EntityGroups::default();
        groups.add(1, Lock, &[1, 2]).unwrap();
        assert_eq!(groups.movable_with(1), Movable::Locked);
        assert_eq!(groups.movable_with(2), Movable::Locked);
        groups.add(2, Handover, &[3]).unwrap();
        assert_eq!(groups.movable_with(3), Movable::Locked, "one locked member holds all");
        groups.remove(3, Lock, &[2]);
        assert_eq!(groups.movable_with(3), Movable::Together(&[2, 3]));
    }

    #[test]
    fn a_lock_ends_with_the_entity_and_with_who_locked() {
        let mut groups = EntityGroups::default();
        groups.add(1, Lock, &[2, 3]).unwrap();
        groups.add(9, Lock, &[3]).unwrap();
        groups.add(2, Handover, &[4]).unwrap();
        assert_eq!(groups.entity_gone(1), [2, 4], "who moves with a freed entity is free, too");
        assert!(!groups.is_locked(2) && groups.is_locked(3));
        assert_eq!(groups.entity_gone(3), [] as [u32; 0]);
        assert!(!groups.is_locked(3) && groups.locked.is_empty());
    }

    #[test]
    fn other_limits_hold_from_now_on() {
        let mut groups = EntityGroups::new(EntityGroupLimits { members_per_group: 2, entities: 8 });
        assert!(groups.add(1, Handover, &[2, 3]).is_err());
        groups.set_limits(EntityGroupLimits { members_per_group: 3, entities: 8 });
        groups.add(1, Handover, &[2, 3]).expect("there is room now");
    }

    #[test]
    fn limits_refuse_and_change_nothing() {
        let limits = EntityGroupLimits { members_per_group: 3, entities: 8 };
        let mut groups = EntityGroups::new(limits);
        groups.add(1, Handover, &[2]).unwrap();
        groups.add(3, Handover, &[4]).unwrap();
        assert_eq!(groups.add(1, Handover, &[3]).unwrap_err().tag(), "entity_group_full");
        assert_eq!(groups.movable_with(1), Movable::Together(&[1, 2]));
        assert_eq!(groups.add(7, Lock, &[5, 6, 7, 8, 9]).unwrap_err().tag(), "entity_groups_full");
        assert_eq!(groups.movable_with(7), Movable::Alone);
    }

    /// Sets of entities, searched from end to end.
    #[derive(Default)]
    struct Slow(Vec<BTreeSet<u32>>);

    impl Slow {
        fn take(&mut self, entity: u32) -> BTreeSet<u32> {
            let at = self.0.iter().position(|group| group.contains(&entity));
            at.map_or(BTreeSet::from([entity]), |at| self.0.remove(at))
        }

        fn join(&mut self, entities: &[u32]) {
            let joined = entities.iter().flat_map(|&entity| self.take(entity)).collect();
            self.0.push(joined);
        }

        fn leave(&mut self, entity: u32) {
            let mut rest = self.take(entity);
            rest.remove(&entity);
            self.0.push(rest);
        }
    }

    #[test]
    fn groups_are_what_slow_sets_are() {
        throng_seeds::for_seeds(200, |seed| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut groups, mut slow) = (EntityGroups::default(), Slow::default());
            for step in 0..60 {
                let [entity, other, third] = [0; 3].map(|_| rng.u32(0..12));
                match rng.u32(0..5) {
                    0..2 => {
                        groups.add(entity, Handover, &[other, third]).unwrap();
                        slow.join(&[entity, other, third]);
                    }
                    2..4 => {
                        let is_together = slow.0.iter().any(|group| group.contains(&entity) && group.contains(&other));
                        groups.remove(entity, Handover, &[other]);
                        if is_together {
                            slow.leave(other);
                        }
                    }
                    _ => {
                        groups.entity_gone(entity);
                        slow.leave(entity);
                    }
                }
                for entity in 0..12 {
                    let found = match groups.movable_with(entity) {
                        Movable::Together(all) => all.to_vec(),
                        _ => vec![entity],
                    };
                    let expected = slow.0.iter().find(|group| group.contains(&entity));
                    let expected = expected.map_or(vec![entity], |group| group.iter().copied().collect());
                    assert_eq!(found, expected, "seed {seed}, step {step}, entity {entity}");
                }
            }
        });
    }
}
