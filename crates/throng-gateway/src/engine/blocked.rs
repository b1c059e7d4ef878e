//! Who misbehaved and is not let in for a while.

use std::collections::{HashMap, VecDeque};

use throng_wire::Time;

use super::port::Side;

/// A door, and who somebody said it was there.
pub(super) type Who = (Side, String);

/// Names that are refused. Hashed with the standard library's keyed hash: peers choose their names.
#[derive(Debug, Default)]
pub(super) struct Blocked {
    until: HashMap<Who, Time>,
    /// As they came.
    order: VecDeque<(Time, Who)>,
}

impl Blocked {
    /// Refuses a name until a time. Of more than `limit` names the oldest are forgotten.
    pub(super) fn add(&mut self, who: Who, until: Time, limit: usize) {
        self.until.insert(who.clone(), until);
        self.order.push_back((until, who));
        while self.order.len() > limit {
            self.forget_first();
        }
    }

    /// Whether a name is refused now.
    pub(super) fn contains(&mut self, who: &Who, now: Time) -> bool {
        while self.order.front().is_some_and(|&(until, _)| until <= now) {
            self.forget_first();
        }
        self.until.get(who).is_some_and(|&until| until > now)
    }

    fn forget_first(&mut self) {
        let Some((until, who)) = self.order.pop_front() else { return };
        if self.until.get(&who) == Some(&until) {
            self.until.remove(&who);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(name: &str) -> Who {
        (Side::Client, name.to_owned())
    }

    #[test]
    fn names_are_refused_until_their_time_is_over() {
        let mut blocked = Blocked::default();
        blocked.add(who("ada"), Time(100), 10);
        blocked.add(who("ada"), Time(200), 10);
        assert!(blocked.contains(&who("ada"), Time(150)) && !blocked.contains(&who("bob"), Time(150)));
        assert!(!blocked.contains(&(Side::Server, "ada".into()), Time(150)), "that is another door");
        assert!(!blocked.contains(&who("ada"), Time(200)));
        assert!(blocked.until.is_empty() && blocked.order.is_empty());
    }

    #[test]
    fn of_too_many_the_oldest_are_forgotten() {
        let mut blocked = Blocked::default();
        for name in ["a", "b", "c"] {
            blocked.add(who(name), Time(100), 2);
        }
        assert!(!blocked.contains(&who("a"), Time(1)) && blocked.contains(&who("c"), Time(1)));
    }
}
