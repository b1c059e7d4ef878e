//! When each peer has to be served.

use std::collections::BTreeSet;

use throng_wire::Time;

use super::super::datagrams::PeerId;

/// One appointment at most for each peer, the earliest first. Peers remember theirs.
#[derive(Debug, Default)]
pub(super) struct Agenda(BTreeSet<(Time, PeerId)>);

impl Agenda {
    /// The first of all appointments.
    pub(super) fn first(&self) -> Option<Time> {
        self.0.first().map(|&(time, _)| time)
    }

    /// Sees to it that a peer is looked after at `wanted` at the latest. `appointed` is its present appointment: an
    /// earlier one stays, because most deadlines are postponed by the next event.
    pub(super) fn appoint(&mut self, peer: PeerId, appointed: &mut Option<Time>, wanted: Time) {
        if appointed.is_none_or(|time| wanted < time) {
            self.cancel(peer, appointed);
            self.0.insert((wanted, peer));
            *appointed = Some(wanted);
        }
    }

    /// A peer needs not be looked after.
    pub(super) fn cancel(&mut self, peer: PeerId, appointed: &mut Option<Time>) {
        if let Some(time) = appointed.take() {
            self.0.remove(&(time, peer));
        }
    }

    /// The next peer whose time has come. It has no appointment any more, and must be notified.
    pub(super) fn take_due(&mut self, now: Time) -> Option<PeerId> {
        let &(time, _) = self.0.first()?;
        if time > now {
            return None;
        }
        self.0.pop_first().map(|(_, peer)| peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u64) -> PeerId {
        PeerId(number)
    }

    fn due(agenda: &mut Agenda, now: u64) -> Vec<u64> {
        std::iter::from_fn(|| agenda.take_due(Time(now))).map(|peer| peer.0).collect()
    }

    #[test]
    fn those_whose_time_has_come_are_due_and_no_others() {
        let mut agenda = Agenda::default();
        for (number, time) in [(1, 30), (2, 10), (3, 20), (4, 20)] {
            agenda.appoint(peer(number), &mut None, Time(time));
        }
        assert_eq!(agenda.first(), Some(Time(10)));
        assert_eq!(due(&mut agenda, 9), [0; 0]);
        assert_eq!(due(&mut agenda, 20), [2, 3, 4]);
        assert_eq!(agenda.first(), Some(Time(30)));
    }

    #[test]
    fn a_peer_has_one_appointment_the_earliest_that_was_asked_for() {
        let mut agenda = Agenda::default();
        let mut appointed = None;
        for time in [30, 10, 20] {
            agenda.appoint(peer(1), &mut appointed, Time(time));
        }
        assert_eq!(appointed, Some(Time(10)));
        assert_eq!(due(&mut agenda, 100), [1]);
        agenda.appoint(peer(2), &mut None, Time(10));
        let mut appointed = None;
        agenda.appoint(peer(1), &mut appointed, Time(10));
        agenda.cancel(peer(1), &mut appointed);
        assert_eq!((appointed, due(&mut agenda, 100)), (None, vec![2]));
    }
}
