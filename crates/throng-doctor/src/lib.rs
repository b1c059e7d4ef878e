//! The doctor: what the settings of a machine cost a match server, from its files in /proc and /sys.
//!
//! ```text
//!  Host::at("/")  --files-->  CHECKS: one row each  --examine-->  Report: text, JSON
//!  LiveProbes     --calls-->    read, why, worth, source          |
//!  a process      --files-->  PROCESS_CHECKS  --examine_process---'
//!                               fix, undo, setting  --apply-->  files, with a record  --undo-->  files
//!
//!  loads of your own, A B A B A    --compare-->  worth on this machine, or none
//!  frames, processor use           --rank----->  programs that make frames slow
//! ```
//!
//! Nothing is changed but by [`apply`] and [`undo`]. A file may hold anything: every read is bounded, and a check that
//! cannot read says why. A recorded machine is a folder:
//!
//! ```
//! use throng_doctor::{Host, NoProbes, Verdict, examine};
//!
//! let folder = tempfile::tempdir()?;
//! let clock = folder.path().join("sys/devices/system/clocksource/clocksource0");
//! std::fs::create_dir_all(&clock)?;
//! std::fs::write(clock.join("current_clocksource"), "xen\n")?;
//! std::fs::write(clock.join("available_clocksource"), "xen tsc hpet\n")?;
//!
//! let report = examine(&Host::at(folder.path()), &NoProbes);
//! let row = report.rows.iter().find(|row| row.check == "clock").expect("a check of this name");
//! assert_eq!((row.verdict, &*row.read), (Verdict::Warning, "xen; offered: xen tsc hpet"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [docs/doctor.md](https://github.com/throng/throng/blob/main/docs/doctor.md) has all checks, and the shape of the JSON.
#![forbid(unsafe_code)]

mod apply;
mod check;
mod checks;
mod host;
mod machine;
mod neighbours;
mod probes;
mod programs;
mod report;
mod sampler;
mod subject;
mod trial;

pub use apply::{ApplyError, Change, Written, apply, undo};
pub use check::{CHECKS, Check, Files, PROCESS_CHECKS, PerProcess, Setting, Source, Verdict, check};
pub use host::{CPUS_MAX, FILE_BYTES_MAX, Host, NAMES_MAX, ReadError, cpu_list};
pub use machine::{Topology, allowed_cpus};
pub use neighbours::{Frame, Ranking, Samples, Suspect, Usage, Window, rank};
pub use probes::{LiveProbes, NoProbes, Probes};
pub use programs::{Program, programs};
pub use report::{Report, Row, WIDTH, examine, examine_process, wrapped};
pub use sampler::Sampler;
pub use trial::{Comparison, REPEATS, REPEATS_MIN, Trial, compare};
