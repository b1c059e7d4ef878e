//! Sets that are not spatial: teams, rooms, parties.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use thiserror::Error;

/// A group, as the game numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// How large [`Groups`] may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// Most groups with at least one member.
    pub groups: usize,
    /// Most members of one group.
    pub members_per_group: usize,
    /// Most groups that one member is in.
    pub groups_per_member: usize,
}

impl Default for GroupLimits {
    /// 16,384 groups, 16,384 members in each, 64 groups for each member.
    fn default() -> GroupLimits {
        GroupLimits { groups: 16_384, members_per_group: 16_384, groups_per_member: 64 }
    }
}

/// Why a member was not added: a limit of [`GroupLimits`] is reached. Each is counted by [`Groups::refused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GroupsError {
    /// There are [`GroupLimits::groups`] groups already.
    #[error("there are {limit} groups already: remove one, or raise the limit")]
    TooManyGroups {
        /// The limit.
        limit: usize,
    },
    /// The group has [`GroupLimits::members_per_group`] members already.
    #[error("the group has {limit} members already: use another group, or raise the limit")]
    GroupFull {
        /// The limit.
        limit: usize,
    },
    /// The member is in [`GroupLimits::groups_per_member`] groups already.
    #[error("the member is in {limit} groups already: remove it from one, or raise the limit")]
    MemberFull {
        /// The limit.
        limit: usize,
    },
}

impl GroupsError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            GroupsError::TooManyGroups { .. } => "groups_too_many",
            GroupsError::GroupFull { .. } => "groups_group_full",
            GroupsError::MemberFull { .. } => "groups_member_full",
        }
    }
}

/// The members of each group. Members are `u32` keys chosen by the caller, such as connection slots.
///
/// A group exists while it has members. Both directions are kept sorted, so iteration has one order however the sets
/// came about. Adding and removing cost a search and a short copy.
#[derive(Clone, Debug)]
pub struct Groups {
    limits: GroupLimits,
    members: FxHashMap<GroupId, Vec<u32>>,
    groups: FxHashMap<u32, SmallVec<[GroupId; 4]>>,
    refused: u64,
}

impl Groups {
    /// No groups yet.
    pub fn new(limits: GroupLimits) -> Groups {
        Groups { limits, members: FxHashMap::default(), groups: FxHashMap::default(), refused: 0 }
    }

    /// Puts `member` into `group`. Returns whether it was not there before.
    ///
    /// # Errors
    /// A limit is reached; nothing has changed then but [`refused`](Groups::refused).
    pub fn add(&mut self, group: GroupId, member: u32) -> Result<bool, GroupsError> {
        if self.contains(group, member) {
            return Ok(false);
        }
        if let Err(error) = self.check_room(group, member) {
            self.refused += 1;
            return Err(error);
        }
        insert_sorted(self.members.entry(group).or_default(), member);
        let groups = self.groups.entry(member).or_default();
        let at = groups.partition_point(|&other| other < group);
        groups.insert(at, group);
        Ok(true)
    }

    /// Takes `member` out of `group`. Returns whether it was there.
    pub fn remove(&mut self, group: GroupId, member: u32) -> bool {
        let was_there = self.forget_member(group, member);
        if was_there {
            self.forget_group(group, member);
        }
        was_there
    }

    /// Takes `member` out of all its groups, as when a connection ends, and tells `left` each of them in order.
    pub fn remove_everywhere(&mut self, member: u32, mut left: impl FnMut(GroupId)) {
        for group in self.groups.remove(&member).unwrap_or_default() {
            self.forget_member(group, member);
            left(group);
        }
    }

    /// Ends `group` and tells `left` each of its members in order.
    pub fn dissolve(&mut self, group: GroupId, mut left: impl FnMut(u32)) {
        for member in self.members.remove(&group).unwrap_or_default() {
            self.forget_group(group, member);
            left(member);
        }
    }

    /// Whether `member` is in `group`.
    pub fn contains(&self, group: GroupId, member: u32) -> bool {
        self.members_of(group).binary_search(&member).is_ok()
    }

    /// The members of `group`, ascending; empty when there is no such group.
    pub fn members_of(&self, group: GroupId) -> &[u32] {
        self.members.get(&group).map_or(&[], Vec::as_slice)
    }

    /// The groups that `member` is in, ascending.
    pub fn groups_of(&self, member: u32) -> &[GroupId] {
        self.groups.get(&member).map_or(&[], SmallVec::as_slice)
    }

    /// Number of groups with at least one member.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are no groups.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// How often a limit refused a member.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn check_room(&self, group: GroupId, member: u32) -> Result<(), GroupsError> {
        let GroupLimits { groups, members_per_group, groups_per_member } = self.limits;
        let size = self.members_of(group).len();
        if size == 0 && self.len() >= groups {
            return Err(GroupsError::TooManyGroups { limit: groups });
        }
        if size >= members_per_group {
            return Err(GroupsError::GroupFull { limit: members_per_group });
        }
        if self.groups_of(member).len() >= groups_per_member {
            return Err(GroupsError::MemberFull { limit: groups_per_member });
        }
        Ok(())
    }

    /// Removes the entry in the direction group to member.
    fn forget_member(&mut self, group: GroupId, member: u32) -> bool {
        let Some(members) = self.members.get_mut(&group) else { return false };
        let Ok(at) = members.binary_search(&member) else { return false };
        members.remove(at);
        if members.is_empty() {
            self.members.remove(&group);
        }
        true
    }

    /// Removes the entry in the direction member to group.
    fn forget_group(&mut self, group: GroupId, member: u32) {
        let Some(groups) = self.groups.get_mut(&member) else { return };
        groups.retain(|&mut other| other != group);
        if groups.is_empty() {
            self.groups.remove(&member);
        }
    }
}

impl Default for Groups {
    /// No groups yet, with the default limits.
    fn default() -> Groups {
        Groups::new(GroupLimits::default())
    }
}

fn insert_sorted(members: &mut Vec<u32>, member: u32) {
    let at = members.partition_point(|&other| other < member);
    members.insert(at, member);
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: GroupId = GroupId(1);
    const BLUE: GroupId = GroupId(2);

    #[test]
    fn members_come_back_sorted_and_once() {
        let mut groups = Groups::default();
        for (member, is_new) in [(5, true), (3, true), (9, true), (3, false)] {
            assert_eq!(groups.add(RED, member), Ok(is_new));
        }
        assert_eq!(groups.members_of(RED), [3, 5, 9]);
        assert!(groups.remove(RED, 5));
        assert!(!groups.remove(RED, 5));
        assert!(!groups.remove(BLUE, 3));
        assert_eq!(groups.members_of(RED), [3, 9]);
        assert_eq!(groups.groups_of(5), []);
    }

    #[test]
    fn a_member_that_leaves_everything_is_nowhere() {
        let mut groups = Groups::default();
        groups.add(BLUE, 7).unwrap();
        groups.add(RED, 7).unwrap();
        groups.add(RED, 8).unwrap();
        let mut left = Vec::new();
        groups.remove_everywhere(7, |group| left.push(group));
        assert_eq!(left, [RED, BLUE]);
        assert_eq!((groups.members_of(RED), groups.members_of(BLUE)), (&[8][..], &[][..]));
        assert_eq!(groups.len(), 1, "an empty group does not exist");
    }

    #[test]
    fn a_dissolved_group_is_forgotten_by_its_members() {
        let mut groups = Groups::default();
        for member in [2, 1] {
            groups.add(RED, member).unwrap();
        }
        groups.add(BLUE, 1).unwrap();
        let mut left = Vec::new();
        groups.dissolve(RED, |member| left.push(member));
        assert_eq!(left, [1, 2]);
        assert_eq!((groups.groups_of(1), groups.groups_of(2)), (&[BLUE][..], &[][..]));
    }

    #[test]
    fn each_limit_refuses_and_counts() {
        let mut groups = Groups::new(GroupLimits { groups: 2, members_per_group: 2, groups_per_member: 1 });
        groups.add(RED, 1).unwrap();
        groups.add(RED, 2).unwrap();
        assert_eq!(groups.add(RED, 3).unwrap_err().tag(), "groups_group_full");
        assert_eq!(groups.add(BLUE, 1).unwrap_err().tag(), "groups_member_full");
        groups.add(BLUE, 3).unwrap();
        assert_eq!(groups.add(GroupId(3), 4).unwrap_err().tag(), "groups_too_many");
        assert_eq!(groups.add(RED, 1), Ok(false), "who is there already needs no room");
        assert_eq!(groups.refused(), 3);
        assert_eq!(groups.members_of(GroupId(3)), []);
    }
}
