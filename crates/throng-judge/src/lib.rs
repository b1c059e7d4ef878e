//! Verdicts on measurements: does a load keep its limits, how large a load does, is a run slower than another one, and
//! which revision made it slower.
//!
//! Everything here is a pure function or a state machine that is handed measurements. Nothing asks a clock or a server, so
//! a search of hours runs in a test in milliseconds.
//!
//! ```text
//!   Criterion + Samples --> Judged: estimate with bounds, accepted | rejected | undecided
//!        |
//!      Trial (one held load)           CapacitySearch  raise, narrow, confirm with bounds
//!        |---- handle_trial ---------> StepPressure    the published method: steps, then back
//!        '---------------------------> Holds           given loads: thresholds, and growth with a forecast
//!
//!      trials of a search  --> load_at_limits: the best estimate of the load that meets the first limit, without bounds
//!   values of A, values of B  --> Change: ratio with interval, none | higher | lower | undecided
//!   values by revision        --> ChangePoint: the range of revisions, and the size of the change
//!   load, value               --> Curve: fitted, with forecasts
//!   values by time            --> steady_from, Steadiness: how much of the beginning to leave out
//!                             --> Drift: growth with bounds, and its forecast
//! ```
//!
//! ```
//! use std::time::Duration;
//! use throng_judge::{CapacitySearch, Criterion, Samples, SearchOptions, Trial, Verdict};
//!
//! let options = SearchOptions { start: 50, most: 10_000, ..SearchOptions::default() };
//! let mut search = CapacitySearch::new(options);
//! while let Some(order) = search.poll_trial() {
//!     // Hold `order.amount` matches for `order.hold`. This server has room for 1,000: 85 % of its processor.
//!     let cpu_share = 0.85 * f64::from(order.amount) / 1_000.5;
//!     let processor = Criterion::new("processor", 0.85).judge(Samples::Level(vec![cpu_share; 60]));
//!     search.handle_trial(Trial::new(order.amount, order.hold, vec![processor]));
//! }
//! let outcome = search.outcome();
//! assert_eq!(outcome.verdict, Verdict::Accepted);
//! assert!((985..=1_000).contains(&outcome.kept.unwrap()));
//! ```
#![forbid(unsafe_code)]

mod change;
mod crossing;
mod curve;
mod drift;
mod holds;
mod ranks;
mod search;
mod stats;
mod steady;
mod steps;
mod trend;
mod trial;

pub use change::{Change, ChangeKind, ChangeOptions, VALUES_MIN, compare, compare_pairs, have_moved_together};
pub use crossing::load_at_limits;
pub use curve::{Curve, Point};
pub use drift::Drift;
pub use holds::{Growth, HoldOptions, Holds};
pub use search::{CapacitySearch, Left, Order, Outcome, Purpose, SearchOptions};
pub use stats::{Block, Estimate, level_estimate, mean, median, quantile, share_estimate};
pub use steady::{Steadiness, steady_from};
pub use steps::{STEP_SAMPLES, StepOptions, StepPressure};
pub use trend::{ChangePoint, TrendOptions, change_points};
pub use trial::{Criterion, Judged, Samples, Trial, Verdict};
