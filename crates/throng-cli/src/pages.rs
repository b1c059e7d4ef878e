//! `throng report` and `throng lab report`: pages made again from the figures of runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Error};
use clap::Args;
use throng_lab::report;
use throng_report::{Kind, RunFile, SUMMARY_FILE, run_folders};

use crate::exit::{Failure, Outcome};
use crate::store;

pub(crate) const LONG_ABOUT: &str = "\
Pages of runs, made again from their figures.

Of the folder of a run: its page, report.html. Of a folder with runs: the page of each, and index.html, which lists all runs \
of the folder with their key figures.

  throng lab report                              runs/index.html and the pages of all runs
  throng lab report runs/20260131-120000-crowd   the page of one run";

/// Arguments of `throng lab report`.
#[derive(Debug, Args)]
pub(crate) struct PagesArguments {
    /// The folder of a run, or one with the folders of runs; or their address in a store, from which they are copied to runs/
    #[arg(default_value = "runs")]
    folder: PathBuf,
}

pub(crate) fn rebuild_all(
    arguments: &PagesArguments,
    stop: impl FnOnce() -> anyhow::Result<Arc<AtomicBool>>,
) -> Outcome {
    let runs = store::take(&arguments.folder, stop)?;
    if runs.join(SUMMARY_FILE).is_file() {
        outln!("{}", page(&runs)?.display());
        return Ok(ExitCode::SUCCESS);
    }
    let found = run_folders(&runs).with_context(|| format!("cannot read {}", runs.display()));
    let found = found.map_err(Failure::Usage)?;
    found.notes().for_each(|note| errln!("note: {note}"));
    for folder in found.folders {
        // A damaged run does not keep the others from their pages.
        if let Err(error) = rebuild(&folder) {
            errln!("note: {error}");
        }
    }
    outln!("{}", report::write_index(&runs).map_err(Failure::usage)?.display());
    Ok(ExitCode::SUCCESS)
}

/// The same, for a folder that the command line names.
pub(crate) fn page(folder: &Path) -> Result<PathBuf, Failure> {
    rebuild(folder).map_err(Failure::Usage)
}

/// Makes the page of a run of any kind again.
pub(crate) fn rebuild(folder: &Path) -> Result<PathBuf, Error> {
    match RunFile::open(folder)?.head.kind {
        Kind::Match => Ok(throng_range::rebuild(folder)?),
        _ => Ok(report::rebuild(folder)?),
    }
}

/// Writes the page of a new run, and lists the run on the page of all runs. Its figures are whole without both, so a failure
/// is a note.
pub(crate) fn write(folder: &Path, runs: &Path, is_quiet: bool) {
    match rebuild(folder) {
        Ok(_) if is_quiet => {}
        Ok(page) => errln!("report: {}", page.display()),
        Err(error) => errln!("note: {error}"),
    }
    list(runs);
}

/// Lists a new run on the page of all runs.
pub(crate) fn list(runs: &Path) {
    if let Err(error) = report::write_index(runs) {
        errln!("note: {error}");
    }
}
