//! Threads that help the engine, or a door, with large steps. They are kept: between two steps they sleep.

use std::num::NonZero;

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use throng_gateway_engine::{Alone, Helpers};

/// The threads of a pool.
struct Pool(ThreadPool);

impl Helpers for Pool {
    fn count(&self) -> usize {
        self.0.current_num_threads()
    }

    fn run(&self, helpers: usize, work: &(dyn Fn() + Sync)) {
        self.0.in_place_scope(|scope| {
            (0..helpers).for_each(|_| scope.spawn(|_| work()));
            work();
        });
    }
}

/// Helpers, so that with the engine's own thread there are `threads`; 0: one for each core.
///
/// # Errors
/// If the system gives no more threads.
pub fn helpers(threads: u32) -> Result<Box<dyn Helpers>, ThreadPoolBuildError> {
    at_most(usize::MAX, threads)
}

/// The same, but with not more threads than `most`.
pub(super) fn at_most(most: usize, threads: u32) -> Result<Box<dyn Helpers>, ThreadPoolBuildError> {
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        threads => threads as usize,
    };
    let threads = threads.min(most);
    if threads <= 1 {
        return Ok(Box::new(Alone));
    }
    let named = ThreadPoolBuilder::new().thread_name(|_| "step".to_owned());
    Ok(Box::new(Pool(named.num_threads(threads - 1).build()?)))
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn helpers_work_beside_the_caller_as_many_as_are_wanted() {
        let helpers = helpers(3).expect("there are threads");
        assert_eq!(helpers.count(), 2);
        for wanted in 0..=2 {
            // All have to be there at one time, or this waits for ever.
            let (barrier, calls) = (Barrier::new(wanted + 1), AtomicUsize::new(0));
            helpers.run(wanted, &|| {
                barrier.wait();
                calls.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(calls.into_inner(), wanted + 1, "all calls are over");
        }
    }

    #[test]
    fn a_panic_keeps_its_reason_whoever_it_happens_to() {
        let (helpers, here) = (helpers(2).expect("there are threads"), thread::current().id());
        let both = Barrier::new(2);
        let failed = catch_unwind(AssertUnwindSafe(|| {
            helpers.run(1, &|| {
                both.wait();
                assert!(thread::current().id() == here, "out of eggs");
            });
        }));
        let cause = failed.expect_err("the helper has failed");
        assert_eq!(cause.downcast_ref::<&str>(), Some(&"out of eggs"));
    }

    #[test]
    fn one_thread_needs_no_helpers() {
        assert_eq!(helpers(1).expect("nothing is started").count(), 0);
    }
}
