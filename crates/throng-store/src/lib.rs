//! The run store: folders of runs in one place, a disk or an object store, with an index of one line for each run.
//!
//! ```text
//!  runs/20260131-120000-crowd/            <place>/20260131-120000-crowd/
//!    frames.parquet     --- upload --->     frames.parquet      each file checked by its size
//!    report.html                            report.html
//!    summary.json                           summary.json        last: without it, this is no run
//!                                         <place>/index.jsonl   one line for each run
//!  a folder of yours    <-- download --    the files with known names, each of bounded size
//! ```
//!
//! Nothing is overwritten but the index: a run whose name is there already is refused. An upload that was stopped goes on
//! where it ended. The place is a folder, `file:///folder`, or `s3://bucket/prefix` with endpoint and keys in the usual
//! variables `AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use throng_store::{RunAge, RunStore};
//!
//! let here = tempfile::tempdir()?;
//! let run = here.path().join("runs/20260131-120000-crowd");
//! std::fs::create_dir_all(&run)?;
//! std::fs::write(run.join("summary.json"), "{}")?;
//!
//! let go_on = AtomicBool::new(false);
//! let place = here.path().join("store");
//! let store = RunStore::open_to_write(place.to_str().expect("UTF-8"), &go_on)?;
//! let name = store.upload(&run, RunAge::Old, &go_on, &mut |_| ())?;
//! store.add_to_index(r#"{"name":"20260131-120000-crowd"}"#, &go_on)?;
//! assert_eq!(store.runs(&go_on)?, [name]);
//! assert_eq!(store.upload(&run, RunAge::Old, &go_on, &mut |_| ()).unwrap_err().tag(), "taken");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod error;
mod https;
mod index;
mod place;
mod store;
mod upload;

pub use error::StoreError;
pub use index::INDEX_FILE;
pub use place::is_address;
pub use store::{FILES, FILES_MAX, OBJECTS_MAX, RunName, RunStore};
pub use upload::{Progress, RunAge};
