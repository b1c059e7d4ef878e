//! Which worker gets a match, and which match moves to another worker.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Loads that differ by less than this share of a core are equal.
const DIFFERENCE_MIN: f64 = 0.1;

/// The state that workers share.
#[derive(Debug)]
pub(crate) struct Balance {
    loads: Mutex<Loads>,
}

#[derive(Debug)]
struct Loads {
    workers: Vec<Load>,
    /// Whether matches move.
    may_move: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Share of the last second in frames.
    busy: f64,
    matches: usize,
}

impl Balance {
    pub(crate) fn new(workers: usize, may_move: bool) -> Balance {
        Balance { loads: Mutex::new(Loads { workers: vec![Load::default(); workers], may_move }) }
    }

    /// The worker for a new match: the one with the fewest matches, and of those the least busy one.
    pub(crate) fn place(&self) -> usize {
        let workers = &mut self.lock().workers;
        let key = |load: &Load| (load.matches, (load.busy * 1e6) as u64);
        let place = (0..workers.len()).min_by_key(|&place| key(&workers[place])).unwrap_or(0);
        workers[place].matches += 1;
        place
    }

    /// A worker has a match less.
    pub(crate) fn remove(&self, worker: usize) {
        let matches = &mut self.lock().workers[worker].matches;
        *matches = matches.saturating_sub(1);
    }

    /// From now on no match moves: what is sent to workers later comes after all matches that have moved.
    pub(crate) fn end(&self) {
        self.lock().may_move = false;
    }

    /// A worker was busy for this share of the last second. Calls `give` if one of its matches, by the place of its cost,
    /// is to move to another worker. Returns whether it did.
    pub(crate) fn report(&self, worker: usize, busy: f64, costs: &[f64], give: impl FnOnce(usize, usize)) -> bool {
        let mut balance = self.lock();
        let may_move = balance.may_move;
        let moved = report(&mut balance.workers, worker, busy, costs, may_move);
        // Under the lock, so that it happens before an end or not at all.
        moved.map(|(moved, target)| give(moved, target)).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Loads> {
        self.loads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn report(workers: &mut [Load], worker: usize, busy: f64, costs: &[f64], may_move: bool) -> Option<(usize, usize)> {
    workers[worker].busy = busy;
    if !may_move {
        return None;
    }
    let loads: Vec<f64> = workers.iter().map(|load| load.busy).collect();
    let (moved, target) = choose(&loads, worker, costs)?;
    // At once, so that no other worker moves a match there for the same reason.
    workers[worker].busy -= costs[moved];
    workers[target].busy += costs[moved];
    workers[worker].matches = workers[worker].matches.saturating_sub(1);
    workers[target].matches += 1;
    Some((moved, target))
}

/// The match whose move to the least busy worker makes the two loads most equal.
fn choose(loads: &[f64], own: usize, costs: &[f64]) -> Option<(usize, usize)> {
    let target = (0..loads.len()).filter(|&place| place != own).min_by(|&a, &b| loads[a].total_cmp(&loads[b]))?;
    let difference = loads[own] - loads[target];
    if difference < DIFFERENCE_MIN {
        return None;
    }
    let left_over = |cost: f64| (difference - 2.0 * cost).abs();
    let moved = (0..costs.len()).min_by(|&a, &b| left_over(costs[a]).total_cmp(&left_over(costs[b])))?;
    // A move has to be worth it: it must take at least a tenth of the difference away.
    (left_over(costs[moved]) <= difference * 0.9).then_some((moved, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_match_that_evens_the_loads_moves_to_the_least_busy_worker() {
        assert_eq!(choose(&[0.8, 0.5, 0.2], 0, &[0.1, 0.3, 0.4]), Some((1, 2)));
        assert_eq!(choose(&[0.8, 0.75], 0, &[0.4, 0.4]), None, "nearly equal");
        assert_eq!(choose(&[0.2, 0.8], 0, &[0.2]), None, "the other one is busier");
        assert_eq!(choose(&[0.8, 0.0], 0, &[0.8]), None, "one match would only change its place");
        assert_eq!(choose(&[0.8], 0, &[0.4, 0.4]), None, "there is no other worker");
        assert_eq!(choose(&[0.8, 0.1], 0, &[0.0, 0.0]), None, "idle matches change nothing");
    }

    #[test]
    fn new_matches_go_where_the_fewest_are() {
        let balance = Balance::new(3, true);
        let places: Vec<usize> = (0..6).map(|_| balance.place()).collect();
        assert_eq!(places, [0, 1, 2, 0, 1, 2]);
        balance.remove(1);
        assert_eq!(balance.place(), 1);
        balance.report(0, 0.9, &[], |_, _| {});
        assert_eq!([balance.place(), balance.place()], [1, 2], "of equals, the less busy one");
    }

    #[test]
    fn two_busy_workers_do_not_overload_the_same_idle_one() {
        let balance = Balance::new(3, true);
        let moved = |worker, busy, costs: &[f64]| {
            let mut moved = None;
            let has_moved = balance.report(worker, busy, costs, |place, target| moved = Some((place, target)));
            assert_eq!(has_moved, moved.is_some());
            moved
        };
        assert_eq!(moved(0, 0.2, &[0.1, 0.1]), Some((0, 1)), "nothing is known of the others yet");
        assert_eq!(moved(2, 0.0, &[]), None);
        assert_eq!(moved(1, 0.8, &[0.4, 0.4]), Some((0, 2)));
        // The idle worker has the load of the match already.
        assert_eq!(moved(0, 0.45, &[0.2, 0.2]), None);
        balance.end();
        assert_eq!(moved(0, 0.9, &[0.4, 0.4]), None, "the host ends");
    }
}
