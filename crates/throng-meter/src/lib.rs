//! Where the time of a tick goes: every nanosecond belongs to a subsystem.
//!
//! A [`TickMeter`] is a stopwatch with one hand: at every moment of a tick exactly one [`Subsystem`] is charged, so the
//! parts add up to the frame, to the nanosecond. It asks no clock: timestamps (nanoseconds since any origin) come in as
//! arguments, and the finished [`TickRecord`]s go out by reference. Nothing is exported from here: `throng-telemetry` has
//! the clock, the scopes and the files.
//!
//! ```text
//!  begin     enter(SIMULATE)      enter(ENCODE)        enter(SEND)          end
//!    |  OTHER    |     SIMULATE       |     ENCODE         |      SEND       |
//!    |-----------|--------------------|--------------------|-----------------|--> ns
//!                  push     pop       | worker 1: ENCODE ENCODE WRITE        |
//!                  | PHYSICS |        | worker 2: ENCODE WRITE  WRITE        |   merge(&Lap), merge(&Lap):
//!                  '- interrupts -'   '- this section's wall time is shared -'   in the proportion of the work done
//! ```
//!
//! ```
//! use throng_meter::{Budgets, Subsystem, TickMeter};
//!
//! let mut budgets = Budgets::new();
//! budgets.set(Subsystem::ENCODE, 2_000);
//!
//! let mut meter = TickMeter::new();
//! meter.begin(7, 0); // tick 7; from the caller's clock
//! meter.enter(Subsystem::SIMULATE, 100);
//! meter.push(Subsystem::PHYSICS, 300);
//! meter.pop(700);
//! meter.enter(Subsystem::ENCODE, 1_100);
//! meter.counters().frames_encoded += 7;
//! let record = meter.end(4_000);
//!
//! assert_eq!(record.ns(Subsystem::OTHER), 100);
//! assert_eq!(record.ns(Subsystem::SIMULATE), 600);
//! assert_eq!(record.ns(Subsystem::PHYSICS), 400);
//! assert_eq!(record.subsystem_ns.iter().sum::<u64>(), record.total_ns);
//! assert_eq!(budgets.exceeded_by(Subsystem::ENCODE, record.ns(Subsystem::ENCODE)), Some(2_000)); // 2.9 µs of 2
//! ```
#![forbid(unsafe_code)]

mod budget;
mod histogram;
mod meter;
mod record;
mod subsystem;

pub use budget::Budgets;
pub use histogram::{HISTOGRAM_MAX, Histogram, Percentiles};
pub use meter::{Lap, MAX_DEPTH, TickMeter};
pub use record::{Counters, TickRecord};
pub use subsystem::{MAX_NAME_BYTES, MAX_SUBSYSTEMS, Subsystem, SubsystemError, Subsystems};
