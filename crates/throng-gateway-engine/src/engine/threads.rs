//! Divides a step's work among threads that the caller keeps, if there is enough of it.
//!
//! The engine starts no threads: it is given [`Helpers`], and wakes them for work of milliseconds only. To wake one takes
//! some microseconds, and the shell's look for more to do for a while before they sleep: with 200 clients who write 30 times a
//! second, that would take a tenth of the processor time if each small step woke them.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};

use throng_replica::Executor;

/// Threads that somebody keeps for the engine.
pub trait Helpers: Send + Sync {
    /// Threads besides the caller's.
    fn count(&self) -> usize;

    /// Calls `work` in this thread, and in `helpers` others meanwhile, or as many as are free. Returns when all calls have.
    ///
    /// # Panics
    /// If one of the calls does.
    fn run(&self, helpers: usize, work: &(dyn Fn() + Sync));
}

/// No helpers: everything is done in the caller's thread.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Helpers for Alone {
    fn count(&self) -> usize {
        0
    }

    fn run(&self, _helpers: usize, work: &(dyn Fn() + Sync)) {
        work();
    }
}

/// The threads among which frames and connections are shared out.
pub(super) struct Threads {
    helpers: Box<dyn Helpers>,
}

impl Threads {
    /// These and the caller's.
    pub(super) fn new(helpers: Box<dyn Helpers>) -> Threads {
        Threads { helpers }
    }

    /// These threads for things of this many bytes together.
    pub(super) fn given(&self, bytes: usize) -> Given<'_> {
        Given { threads: self, bytes }
    }
}

/// Threads that know how much there is to do.
pub(super) struct Given<'a> {
    threads: &'a Threads,
    bytes: usize,
}

impl Executor for Given<'_> {
    fn for_each<T: Send, F: Fn(&mut T) + Send + Sync>(&self, items: &mut [T], job: F) {
        let helpers = &*self.threads.helpers;
        let plan = Plan::of(items.len(), self.bytes, helpers.count() + 1);
        share_out(items, (plan, helpers), job);
    }
}

/// How work is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// Threads besides the caller's.
    helpers: usize,
    /// Things that a thread takes at a time.
    run: NonZero<usize>,
}

impl Plan {
    /// This many things, and this many bytes in them, for at most this many threads.
    fn of(items: usize, bytes: usize, threads: usize) -> Plan {
        let work_bytes = items.saturating_mul(ITEM_BYTES).saturating_add(bytes);
        let run = NonZero::new(items.saturating_mul(RUN_BYTES) / work_bytes.max(1)).unwrap_or(NonZero::<usize>::MIN);
        let helpers = (work_bytes / SHARED_OUT_BYTES).min(threads.saturating_sub(1)).min(items.saturating_sub(1));
        Plan { helpers, run }
    }
}

/// Calls `job` for each thing.
fn share_out<T: Send>(items: &mut [T], (plan, helpers): (Plan, &dyn Helpers), job: impl Fn(&mut T) + Sync) {
    if plan.helpers == 0 {
        return items.iter_mut().for_each(job);
    }
    share_parts(items.chunks_mut(plan.run.get()), (plan.helpers, helpers), |run| run.iter_mut().for_each(&job));
}

/// Calls `job` for each part, in this thread and in so many helpers: who has done one takes the next.
pub fn share_parts<T>(
    parts: impl Iterator<Item = T> + Send,
    (count, helpers): (usize, &dyn Helpers),
    job: impl Fn(T) + Sync,
) {
    let parts = Mutex::new(parts);
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    helpers.run(count, &|| {
        while let Some(part) = next() {
            job(part);
        }
    });
}

/// The cost of one item besides its bytes, in bytes: a write to a socket takes 8 us, and 1 KB is copied or encoded in
/// about 1 us.
const ITEM_BYTES: usize = 8 * 1_024;

/// Work for one more thread: about 2 ms.
const SHARED_OUT_BYTES: usize = 256 * ITEM_BYTES;

/// The smallest amount of work that a thread takes at a time.
const RUN_BYTES: usize = 8 * ITEM_BYTES;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Helpers that work one after the other, and how many were asked for.
    #[derive(Clone, Default)]
    struct InTurn(Arc<AtomicUsize>);

    impl Helpers for InTurn {
        fn count(&self) -> usize {
            1
        }

        fn run(&self, helpers: usize, work: &(dyn Fn() + Sync)) {
            self.0.fetch_add(helpers, Ordering::Relaxed);
            (0..=helpers).for_each(|_| work());
        }
    }

    /// How many threads take part in this many jobs of this many bytes together.
    fn taking_part(items: usize, bytes: usize) -> usize {
        let helpers = InTurn::default();
        Threads::new(Box::new(helpers.clone())).given(bytes).for_each(&mut vec![(); items], |()| {});
        1 + helpers.0.load(Ordering::Relaxed)
    }

    #[test]
    fn work_is_shared_out_by_its_bytes_not_by_the_number_of_things() {
        assert_eq!(taking_part(200, 0), 1, "200 small ones");
        assert_eq!(taking_part(200, 200_000), 1, "of a kilobyte each");
        assert_eq!(taking_part(20, 20 << 20), 2, "20 of a megabyte each");
        assert_eq!(taking_part(255, 255 * 60_000), 2, "255 subscribers who get 60 KB each");
        assert_eq!(taking_part(1_000, 0), 2, "1,000 small ones");
        assert_eq!(taking_part(1, 64 << 20), 1, "one cannot be shared out");
    }

    #[test]
    fn a_thread_more_takes_part_for_each_two_milliseconds_of_work() {
        assert_eq!(Plan::of(255, 0, 64).helpers, 0);
        assert_eq!(Plan::of(256, 0, 64).helpers, 1);
        assert_eq!(Plan::of(1_024, 0, 64).helpers, 4);
        assert_eq!(Plan::of(1_024, 0, 2).helpers, 1);
        assert_eq!(Plan::of(2, 64 << 20, 64).helpers, 1, "no more than there are things");
        assert_eq!(Plan::of(0, 0, 0).helpers, 0);
    }

    #[test]
    fn threads_take_several_small_things_at_a_time_and_large_ones_one_by_one() {
        assert_eq!(Plan::of(256, 0, 2).run.get(), 8);
        assert_eq!(Plan::of(200, 200 << 20, 2).run.get(), 1);
        assert_eq!(Plan::of(usize::MAX, usize::MAX, 2).run.get(), 1);
    }

    #[test]
    fn everything_is_done_once_whoever_does_it() {
        for helpers in 0..4 {
            let mut items = vec![0; 1_000];
            let plan = Plan { helpers, run: NonZero::new(7).expect("not 0") };
            share_out(&mut items, (plan, &InTurn::default()), |item| *item += 1);
            assert!(items.iter().all(|&item| item == 1));
        }
    }
}
