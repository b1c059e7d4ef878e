//! Whom the faults of a run met, and for how long.

use std::collections::HashSet;
use std::time::Duration;

use throng::Time;
use throng_crowd::scenario::Fault;
use throng_summary::FaultFigures;

/// A bot without service for longer than this was met by a fault.
pub(super) const GAP_MIN: Duration = Duration::from_millis(500);
/// A bot was served last so long before a fault at the most, and so long after its end if that was on its way.
const SLACK: Duration = Duration::from_millis(250);

/// How long a bot has been without service. A number changes with each service: of a bot that decodes, the newest input that its
/// server has acknowledged, if it is not older than [`GAP_MIN`]; of the others the packets that have come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    newest: Option<u64>,
    since: Time,
}

impl Service {
    pub(super) fn new(now: Time) -> Service {
        Service { newest: None, since: now }
    }

    /// When it was served last.
    pub(super) fn since(&self) -> Time {
        self.since
    }

    /// The bot connects again. That is no service yet.
    pub(super) fn reconnect(&mut self) {
        self.newest = None;
    }

    /// Looks at its number, `None` while it has none. Returns when the time without service began, if it ends now.
    pub(super) fn look(&mut self, newest: Option<u64>, now: Time) -> Option<Time> {
        if newest.is_none() || newest == self.newest {
            return None;
        }
        self.newest = newest;
        Some(std::mem::replace(&mut self.since, now))
    }
}

/// The faults of a run, with the bots that each has met, by client id.
#[derive(Debug, Default)]
pub(super) struct Outages(Vec<(Fault, FaultFigures, HashSet<u32>)>);

impl Outages {
    pub(super) fn new(faults: &[Fault]) -> Outages {
        let figures = |fault: &Fault| FaultFigures { fault: fault.to_string(), ..FaultFigures::default() };
        Outages(faults.iter().map(|fault| (*fault, figures(fault), HashSet::new())).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A bot was without service from one moment of the measured part to another, or until its end.
    pub(super) fn note(&mut self, client_id: u32, (from, until): (Duration, Duration), is_served: bool) {
        if until.saturating_sub(from) <= GAP_MIN {
            return;
        }
        let met = self.0.iter_mut().filter(|(fault, ..)| fault.at < until && from <= fault.ends() + SLACK);
        // The newest of those that had begun by then, or else the first one that came.
        let rank = |at: Duration| if at <= from + SLACK { (0, Duration::MAX - at) } else { (1, at) };
        let Some((fault, figures, bots)) = met.min_by_key(|(fault, ..)| rank(fault.at)) else { return };
        // A bot that one fault leaves without service twice is one bot.
        figures.bots += u32::from(bots.insert(client_id));
        let most = |most: Option<f64>, time: Duration| most.unwrap_or(0.0).max(time.as_secs_f64() * 1e3);
        figures.longest_gap_ms = Some(most(figures.longest_gap_ms, until - from));
        match is_served {
            true => figures.served_again_ms = Some(most(figures.served_again_ms, until.saturating_sub(fault.ends()))),
            false => figures.unserved += 1,
        }
    }

    pub(super) fn figures(&self) -> Vec<FaultFigures> {
        self.0.iter().map(|(_, figures, _)| figures.clone()).collect()
    }
}

/// Adds what another process says of the same faults.
pub(super) fn join(faults: &mut Vec<FaultFigures>, others: Vec<FaultFigures>) {
    for other in others {
        let Some(figures) = faults.iter_mut().find(|figures| figures.fault == other.fault) else {
            faults.push(other);
            continue;
        };
        let most = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        figures.bots = figures.bots.saturating_add(other.bots);
        figures.unserved = figures.unserved.saturating_add(other.unserved);
        figures.longest_gap_ms = most(figures.longest_gap_ms, other.longest_gap_ms);
        figures.served_again_ms = most(figures.served_again_ms, other.served_again_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bot_is_without_service_until_its_number_changes() {
        let mut service = Service::new(Time(5));
        assert_eq!(service.look(None, Time(10)), None);
        assert_eq!(service.look(Some(1), Time(20)), Some(Time(5)));
        assert_eq!(service.look(Some(1), Time(30)), None);
        assert_eq!(service.look(Some(2), Time(40)), Some(Time(20)));
        // At another edge numbers begin anew.
        service.reconnect();
        assert_eq!(service.look(None, Time(50)), None);
        assert_eq!(service.look(Some(2), Time(60)), Some(Time(40)));
    }

    #[test]
    fn times_without_service_belong_to_the_fault_that_they_overlap() {
        let ms = Duration::from_millis;
        let faults = ["kill:edge-1:4s", "pause:edge-2:10s:2s"].map(|text| text.parse().expect("a fault"));
        let mut outages = Outages::new(&faults);
        // Too short, before all faults, and long after one.
        for (from, until) in [(4_000, 4_500), (1_000, 3_000), (6_000, 9_000), (12_300, 14_000)] {
            outages.note(1, (ms(from), ms(until)), true);
        }
        assert!(outages.figures().iter().all(|figures| figures.bots == 0 && figures.served_again_ms.is_none()));
        outages.note(1, (ms(3_980), ms(7_200)), true);
        outages.note(2, (ms(4_200), ms(7_000)), true);
        outages.note(1, (ms(10_020), ms(12_050)), true);
        outages.note(2, (ms(12_000), ms(20_000)), false);
        // It overlaps both: the one that had begun when it began counts, or else the first.
        outages.note(3, (ms(4_000), ms(11_000)), true);
        outages.note(4, (ms(3_000), ms(11_500)), true);
        // The same bot again.
        outages.note(2, (ms(4_100), ms(4_700)), true);
        let figures = outages.figures();
        let of = |index: usize| {
            let of = &figures[index];
            (of.bots, of.longest_gap_ms, of.served_again_ms, of.unserved)
        };
        assert_eq!(of(0), (4, Some(8_500.0), Some(7_500.0), 0));
        assert_eq!(of(1), (2, Some(8_000.0), Some(50.0), 1));
        assert_eq!(figures[0].fault, "kill:edge-1:4s");
    }
}
