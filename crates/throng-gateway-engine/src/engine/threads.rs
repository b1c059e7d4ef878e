//! Divides a step's work among other threads if there is enough of it.
//!
//! Helpers are started for a part of the step and end with it. That takes about 30 us each, with the memory of a thread,
//! and is only done for work of milliseconds. The threads of a work-stealing pool would look for more to do after each
//! part before they sleep: with 200 clients who write 30 times a second, that took a tenth of the processor time.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use throng_replica::Executor;

/// The threads among which frames and connections are shared out.
pub(super) struct Threads {
    count: usize,
}

impl Threads {
    /// At most `count` threads, one of which is the caller's.
    pub(super) fn new(count: usize) -> Threads {
        Threads { count }
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
        let plan = Plan::of(items.len(), self.bytes, self.threads.count);
        share_out(items, plan, job);
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

/// Calls `job` for each thing. Should the system give no more threads, those that there are do it.
fn share_out<T: Send>(items: &mut [T], plan: Plan, job: impl Fn(&mut T) + Sync) {
    if plan.helpers == 0 {
        return items.iter_mut().for_each(job);
    }
    let runs = Mutex::new(items.chunks_mut(plan.run.get()));
    let next = || runs.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some(run) = next() {
            run.iter_mut().for_each(&job);
        }
    };
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().name("step".to_owned()).spawn_scoped(scope, work).ok();
        let helpers: Vec<_> = (0..plan.helpers).map_while(start).collect();
        work();
        // Unless it is joined, a thread that panics takes the reason with it.
        for helper in helpers {
            helper.join().unwrap_or_else(|cause| resume_unwind(cause));
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
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    /// Until when jobs wait for others. On a busy machine a thread that was started may come in late.
    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    /// Whether this many threads take part in this many jobs of this many bytes together. Jobs wait for all of them, and
    /// each waits a moment, so that one too many comes in as well.
    fn takes(threads: usize, items: usize, bytes: usize) -> bool {
        let (seen, deadline) = (Mutex::new(HashSet::new()), soon());
        let mut items = vec![(); items];
        Threads::new(2).given(bytes).for_each(&mut items, |()| {
            seen.lock().expect("no job panics").insert(thread::current().id());
            thread::sleep(Duration::from_micros(500));
            while seen.lock().expect("no job panics").len() < threads && Instant::now() < deadline {
                thread::sleep(Duration::from_micros(500));
            }
        });
        seen.into_inner().expect("no job panics").len() == threads
    }

    #[test]
    fn work_is_shared_out_by_its_bytes_not_by_the_number_of_things() {
        assert!(takes(1, 200, 0), "200 small ones");
        assert!(takes(1, 200, 200_000), "of a kilobyte each");
        assert!(takes(2, 20, 20 << 20), "20 of a megabyte each");
        assert!(takes(2, 255, 255 * 60_000), "255 subscribers who get 60 KB each");
        assert!(takes(2, 1_000, 0), "1,000 small ones");
        assert!(takes(1, 1, 64 << 20), "one cannot be shared out");
    }

    #[test]
    fn a_thread_more_is_started_for_each_two_milliseconds_of_work() {
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
    fn a_panic_keeps_its_reason_whoever_it_happens_to() {
        let here = thread::current().id();
        let (has_come, deadline) = (AtomicBool::new(false), soon());
        let mut items = [(); 64];
        let plan = Plan { helpers: 1, run: NonZero::<usize>::MIN };
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            share_out(&mut items, plan, |()| {
                let is_helper = thread::current().id() != here;
                has_come.fetch_or(is_helper, Ordering::Relaxed);
                assert!(!is_helper, "out of eggs");
                while !has_come.load(Ordering::Relaxed) && Instant::now() < deadline {
                    thread::sleep(Duration::from_micros(500));
                }
            });
        }));
        let cause = failed.expect_err("the helper has failed");
        assert_eq!(cause.downcast_ref::<&str>(), Some(&"out of eggs"));
    }

    #[test]
    fn everything_is_done_once_whoever_does_it() {
        for helpers in 0..4 {
            let mut items = vec![0; 1_000];
            share_out(&mut items, Plan { helpers, run: NonZero::new(7).expect("not 0") }, |item| *item += 1);
            assert!(items.iter().all(|&item| item == 1));
        }
    }
}
