//! The time of a frame by subsystem, cheap enough to stay on: scopes, budgets, a flight recorder, and files.
//!
//! A game passes [`Scopes`] through its frame and says which [`Subsystem`] each part belongs to. Time is exclusive, so
//! the parts add up to the frame, to the nanosecond. A [`Recorder`] belongs to a match, and goes with it from thread to
//! thread. It hands finished frames to the collector and never waits for it; all that costs more happens there.
//!
//! ```text
//!  thread of the match                        any other thread
//!  -------------------                        ----------------
//!  recorder.begin(tick, phase)
//!    scopes.enter(PHYSICS) ... drop           figures: per subsystem, phase, recorder ---> snapshot(), prometheus()
//!    scopes.enter(AI) ...... drop             budgets: breaches with subsystem, phase and tick
//!  frame.finish() ----- try_lock -----------> the last seconds in full -----> trace(); a file for each slow frame
//!                       once per frame        one row per tick and subsystem ----> Parquet
//! ```
//!
//! ```
//! use throng_telemetry::{Phase, Subsystem, Subsystems, Telemetry, TelemetryOptions};
//!
//! let mut subsystems = Subsystems::new();
//! let bullets = subsystems.add("bullets")?;
//!
//! let telemetry = Telemetry::start(TelemetryOptions { subsystems, ..TelemetryOptions::default() })?;
//! let mut recorder = telemetry.recorder("match 1");
//! for tick in 0..10 {
//!     let mut frame = recorder.begin(tick, Phase::new("live"));
//!     {
//!         let mut scopes = frame.enter(Subsystem::PHYSICS);
//!         scopes.time(bullets, |_| (0..100).sum::<u64>());
//!     }
//!     frame.finish();
//! }
//!
//! let snapshot = telemetry.snapshot();
//! assert_eq!(snapshot.frames, 10);
//! assert!(snapshot.subsystems.iter().any(|figures| figures.name == "bullets" && figures.frame_ns.max > 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [docs/telemetry.md](https://github.com/throng/throng/blob/main/docs/telemetry.md) has the budget file, and every
//! column and metric with its unit.
#![forbid(unsafe_code)]

mod budget_file;
mod checksum;
mod clock;
mod exposition;
mod figures;
mod flight;
mod history;
mod measuring;
mod recorder;
mod scopes;
mod table;
mod table_reader;
mod telemetry;
mod trace;

pub use budget_file::{BudgetFileError, FrameBudgets};
pub use clock::{Clock, ManualClock};
pub use figures::{
    BREACHES_KEPT, Breach, Cause, Distributions, PHASES_MAX, PhaseFigures, RecorderFigures, Snapshot, SubsystemFigures,
};
pub use flight::FlightOptions;
pub use history::HISTORY_FRAMES_MAX;
pub use measuring::Measuring;
pub use recorder::{Frame, FrameTimes, Phase, Recorder, WAITING_FRAMES_MAX};
pub use scopes::{Scope, Scopes};
pub use table_reader::{LongFrame, WHOLE_FRAME, read_longest, read_seconds};
pub use telemetry::{BeforeWrite, Collecting, StartError, TRACE_BYTES_MAX, Telemetry, TelemetryOptions};
pub use throng_meter::{Percentiles, Subsystem, SubsystemError, Subsystems};
