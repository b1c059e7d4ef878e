//! The shell's only clock.

#[cfg(test)]
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use throng_wire::Time;

/// The shell's only clock: microseconds since it was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    /// Microseconds, of which some pass with each look: for tests.
    #[cfg(test)]
    virtual_time: Option<(&'static std::sync::atomic::AtomicU64, u64)>,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock {
            began: Instant::now(),
            #[cfg(test)]
            virtual_time: None,
        }
    }

    /// A clock that goes on by `step_us` whenever somebody looks at it.
    #[cfg(test)]
    pub(crate) fn stepping(step_us: u64) -> Clock {
        let micros = Box::leak(Box::new(std::sync::atomic::AtomicU64::new(0)));
        Clock { began: Instant::now(), virtual_time: Some((micros, step_us)) }
    }

    pub(crate) fn now(self) -> Time {
        #[cfg(test)]
        if let Some((micros, step_us)) = self.virtual_time {
            return Time(micros.fetch_add(step_us, Ordering::Relaxed) + step_us);
        }
        Time(self.began.elapsed().as_micros() as u64)
    }

    /// The same moment as the system has it.
    pub(crate) fn instant(self, time: Time) -> Instant {
        self.began + Duration::from_micros(time.0)
    }
}
