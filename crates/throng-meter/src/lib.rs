//! Where the time of a tick goes: every nanosecond belongs to a subsystem.
//!
//! A [`TickMeter`] is a stopwatch with one hand: at every moment of a tick exactly one [`Subsystem`] is charged, so the
//! parts add up to the frame, to the nanosecond. It asks no clock: timestamps (nanoseconds since any origin) come in as
//! arguments, and the finished [`TickRecord`]s go out by reference. Nothing is exported from here; who wants a report
//! or a dashboard reads the [`History`].
//!
//! ```text
//!  begin     enter(Simulate)      enter(Encode)        enter(Send)          end
//!    |  Other    |     Simulate       |     Encode         |      Send       |
//!    |-----------|--------------------|--------------------|-----------------|--> ns
//!                                     | worker 1: Encode Encode Write        |
//!                                     | worker 2: Encode Write  Write        |   merge(&Lap), merge(&Lap):
//!                                     '- this section's wall time is shared -'   in the proportion of the work done
//! ```
//!
//! ```
//! use throng_meter::{Budget, Budgets, History, Subsystem, TickMeter};
//!
//! let mut meter = TickMeter::new();
//! let mut history = History::new(1_000);
//! let mut budgets = Budgets::new(&[Budget { subsystem: Subsystem::Encode, micros: 2 }]);
//!
//! for tick in 0..10 {
//!     let start_ns = u64::from(tick) * 33_000_000; // from the caller's clock
//!     meter.begin(tick, start_ns);
//!     meter.enter(Subsystem::Simulate, start_ns + 100);
//!     meter.enter(Subsystem::Encode, start_ns + 1_100);
//!     meter.counters().frames_encoded += 7;
//!     let record = meter.end(start_ns + 4_000);
//!
//!     assert_eq!(record.ns(Subsystem::Other), 100);
//!     assert_eq!(record.ns(Subsystem::Simulate), 1_000);
//!     assert_eq!(record.subsystem_ns.iter().sum::<u64>(), record.total_ns);
//!     assert!(budgets.check(record).contains(Subsystem::Encode)); // 2.9 µs of 2
//!     history.push(record);
//! }
//!
//! assert_eq!(budgets.times_exceeded(Subsystem::Encode), 10);
//! assert_eq!(history.percentiles(|record| record.total_ns).max, 4_000);
//! ```
#![forbid(unsafe_code)]

mod budget;
mod histogram;
mod history;
mod meter;
mod record;
mod subsystem;

pub use budget::{Budget, Budgets, Exceeded};
pub use histogram::{HISTOGRAM_MAX, Histogram, Percentiles};
pub use history::{History, MAX_HISTORY_TICKS};
pub use meter::{Lap, TickMeter};
pub use record::{Counters, TickRecord};
pub use subsystem::Subsystem;
