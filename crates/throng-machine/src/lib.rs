//! The machine and the program of a measurement: facts, a clock that processes share, moments by calendar.
//!
//! ```text
//!  /proc, /sys ------> facts:  processor, kernel, memory ------.
//!  git, at the build > facts:  revision                        +--> summary.json of a run
//!  system clock -----> Moment: 2026-01-31T12:00:00Z -----------'
//!  monotonic clock --> clock:  the same microseconds in each process of the machine
//! ```
//!
//! [`subprocess`] ends a command with all processes that it started, [`bounded`] runs one with limits of its time and of
//! what it prints, and [`piped`] talks to one in lines.
//!
//! ```
//! use std::time::SystemTime;
//! use throng_machine::{Moment, clock};
//!
//! let began = clock::now();
//! assert!(clock::now() >= began);
//! assert_eq!(Moment::of(SystemTime::UNIX_EPOCH).long(), "1970-01-01T00:00:00Z");
//! assert!(!throng_machine::processor().is_empty());
//! ```

#![forbid(unsafe_code)]

pub mod bounded;
#[cfg(test)]
#[path = "../build/revision.rs"]
mod built_revision;
pub mod clock;
mod facts;
mod last_acts;
mod moment;
pub mod piped;
pub mod subprocess;

pub use facts::{
    HIDDEN, Throttled, UNKNOWN, arguments, boot_id, clocksource, cores, governor, is_virtual_machine, kernel, masked,
    masked_servers, memory_bytes, memory_limit_bytes, physical_cores, processor, profile, revision, rss_bytes,
    rss_bytes_of, target, threads_per_core, throttled,
};
pub use last_acts::{LastAct, TemporaryFolder, do_last_acts, last_act};
pub use moment::Moment;
