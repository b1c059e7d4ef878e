//! Which worker gets a match, and which match moves to another worker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Loads that differ by less than this share of a core are equal.
const DIFFERENCE_MIN: f64 = 0.1;

/// A worker whose frame takes longer gets no match: what it takes would wait behind that frame, perhaps for ever.
const HANGS_NS: u64 = 250_000_000;
/// No frame runs.
const BETWEEN_FRAMES: u64 = u64::MAX;

/// The state that workers share.
#[derive(Debug)]
pub(crate) struct Balance {
    loads: Mutex<Loads>,
    /// When the frame of each worker began.
    frames_ns: Vec<AtomicU64>,
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
        Balance {
            loads: Mutex::new(Loads { workers: vec![Load::default(); workers], may_move }),
            frames_ns: (0..workers).map(|_| AtomicU64::new(BETWEEN_FRAMES)).collect(),
        }
    }

    /// A frame of a worker begins, or has ended.
    pub(crate) fn note_frame(&self, worker: usize, began_ns: Option<u64>) {
        self.frames_ns[worker].store(began_ns.unwrap_or(BETWEEN_FRAMES), Ordering::Relaxed);
    }

    fn hangs(&self, worker: usize, now_ns: u64) -> bool {
        let began_ns = self.frames_ns[worker].load(Ordering::Relaxed);
        began_ns != BETWEEN_FRAMES && now_ns.saturating_sub(began_ns) > HANGS_NS
    }

    /// The worker for a new match: the one with the fewest matches, and of those the least busy one. One that hangs only if all do.
    pub(crate) fn place(&self, now_ns: u64) -> usize {
        let workers = &mut self.lock().workers;
        let key = |place: usize| {
            let load = workers[place];
            (self.hangs(place, now_ns), load.matches, (load.busy * 1e6) as u64)
        };
        let place = (0..workers.len()).min_by_key(|&place| key(place)).unwrap_or(0);
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
    pub(crate) fn report(
        &self,
        (worker, now_ns): (usize, u64),
        busy: f64,
        costs: &[f64],
        give: impl FnOnce(usize, usize),
    ) -> bool {
        let mut balance = self.lock();
        let may_move = balance.may_move;
        let may_take = |place: usize| may_move && !self.hangs(place, now_ns);
        let moved = report(&mut balance.workers, worker, busy, costs, may_take);
        // Under the lock, so that it happens before an end or not at all.
        moved.map(|(moved, target)| give(moved, target)).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Loads> {
        self.loads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn report(
    workers: &mut [Load],
    worker: usize,
    busy: f64,
    costs: &[f64],
    may_take: impl Fn(usize) -> bool,
) -> Option<(usize, usize)> {
    workers[worker].busy = busy;
    let loads: Vec<f64> = workers.iter().map(|load| load.busy).collect();
    let (moved, target) = choose(&loads, worker, costs, may_take)?;
    // At once, so that no other worker moves a match there for the same reason.
    workers[worker].busy -= costs[moved];
    workers[target].busy += costs[moved];
    workers[worker].matches = workers[worker].matches.saturating_sub(1);
    workers[target].matches += 1;
    Some((moved, target))
}

/// The match whose move to the least busy worker makes the two loads most equal.
fn choose(loads: &[f64], own: usize, costs: &[f64], may_take: impl Fn(usize) -> bool) -> Option<(usize, usize)> {
    let others = (0..loads.len()).filter(|&place| place != own && may_take(place));
    let target = others.min_by(|&a, &b| loads[a].total_cmp(&loads[b]))?;
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
        let choose = |loads: &[f64], own: usize, costs: &[f64]| super::choose(loads, own, costs, |_| true);
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
        let places: Vec<usize> = (0..6).map(|_| balance.place(0)).collect();
        assert_eq!(places, [0, 1, 2, 0, 1, 2]);
        balance.remove(1);
        assert_eq!(balance.place(0), 1);
        balance.report((0, 0), 0.9, &[], |_, _| {});
        assert_eq!([balance.place(0), balance.place(0)], [1, 2], "of equals, the less busy one");
    }

    #[test]
    fn two_busy_workers_do_not_overload_the_same_idle_one() {
        let balance = Balance::new(3, true);
        let moved = |worker, busy, costs: &[f64]| {
            let mut moved = None;
            let has_moved = balance.report((worker, 0), busy, costs, |place, target| moved = Some((place, target)));
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

    #[test]
    fn a_worker_that_hangs_gets_no_match_until_its_frame_has_ended() {
        let balance = Balance::new(2, true);
        balance.note_frame(0, Some(1_000));
        let soon_ns = 1_000 + HANGS_NS;
        assert_eq!(balance.place(soon_ns), 0, "a frame may be long");
        let late_ns = soon_ns + 1;
        assert_eq!([balance.place(late_ns), balance.place(late_ns)], [1, 1]);
        let gives = |now_ns: u64| balance.report((1, now_ns), 0.8, &[0.4, 0.4], |_, _| {});
        assert!(!gives(late_ns));
        balance.note_frame(0, None);
        assert!(gives(late_ns));
        // If all hang, one of them is as good as another.
        (0..2).for_each(|worker| balance.note_frame(worker, Some(0)));
        assert!(balance.place(late_ns) < 2);
    }
}
