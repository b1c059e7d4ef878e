//! Runs in a store: sent there after they were played, and read from there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use throng_history::StoredRun;
use throng_machine::TemporaryFolder;
use throng_report::{Phases, ProgressLine, RUNS_MAX, SUMMARY_FILE, counted, run_folders};
use throng_store::{Progress, RunAge, RunName, RunStore, StoreError, is_address};

use crate::exit::Failure;

const SENDING: &str = "sending";

/// Where a run is kept beside its folder.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgument {
    /// Send the run's folder to a store when it is over: a folder, file:///folder or s3://bucket/prefix (docs/history.md)
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

impl StoreArgument {
    /// The store, which has been tried. It is opened before the run, so that a mistake costs no run.
    pub(crate) fn open(&self, stop: &AtomicBool) -> Result<Option<RunStore>, Failure> {
        let open = |place| {
            RunStore::open_to_write(place, stop).map_err(|error| match error {
                StoreError::Stopped => failure(error),
                _ => Failure::Usage(error.into()),
            })
        };
        self.store.as_deref().map(open).transpose()
    }
}

/// A mistake in the address, or another failure.
pub(crate) fn failure(error: StoreError) -> Failure {
    match error.tag() {
        "place" | "not_a_run" | "taken" => Failure::Usage(error.into()),
        _ => Failure::Run(error.into()),
    }
}

/// Sends a run to the store, and adds it to the index.
pub(crate) fn upload(
    store: &RunStore,
    folder: &Path,
    age: RunAge,
    is_quiet: bool,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let line = ProgressLine::new(!is_quiet, Phases(vec![(SENDING, Duration::ZERO)]));
    let sent = store.upload(folder, age, stop, &mut |Progress { file, bytes, bytes_in_all }| {
        let mb = |bytes: &u64| *bytes as f64 / 1e6;
        let words = || format!("{file}: {:.1} of {:.1} MB", mb(bytes), mb(bytes_in_all));
        line.show_share(SENDING, *bytes as f64 / (*bytes_in_all).max(1) as f64, words);
    });
    drop(line);
    let added = sent.and_then(|name| {
        let run = StoredRun::read(folder).ok().flatten().map(|run| run.named(name.as_str()));
        run.map_or(Ok(()), |run| store.add_to_index(&run.to_line(), stop))?;
        Ok(name)
    });
    let name = added.map_err(|error| {
        let (place, folder) = (store.place(), folder.display());
        match failure(error) {
            Failure::Run(error) => Failure::Run(anyhow!(
                "{error}; the run is in {folder}, and `throng lab upload {folder} --store {place}` sends it again"
            )),
            mistake => mistake,
        }
    })?;
    if !is_quiet {
        errln!("stored: {}/{name}", store.place());
    }
    Ok(())
}

/// Runs on this machine. Those of a store are copies, and gone when this is dropped.
pub(crate) struct Local {
    pub(crate) path: PathBuf,
    _copies: Option<TemporaryFolder>,
}

/// The folder of `place`, or these files of its runs if it is the address of a store.
pub(crate) fn local(place: &str, files: &[&str], stop: &AtomicBool) -> Result<Local, Failure> {
    if !is_address(place) {
        return Ok(Local { path: place.into(), _copies: None });
    }
    let copies = TemporaryFolder::new().context("there is no temporary folder")?;
    let path = RunStore::open(place).and_then(|store| store.download_all(files, copies.path(), stop));
    Ok(Local { path: path.map_err(failure)?, _copies: Some(copies) })
}

/// The files of which pages are made.
const SHOWN: [&str; 3] = [SUMMARY_FILE, "inside.json", "frames.parquet"];

/// The folder of a run, or of runs. Those of a store are copied into `runs` for good.
pub(crate) fn take(folder: &Path, stop: impl FnOnce() -> anyhow::Result<Arc<AtomicBool>>) -> Result<PathBuf, Failure> {
    let Some(place) = folder.to_str().filter(|place| is_address(place)) else { return Ok(folder.to_owned()) };
    let store = RunStore::open(place).map_err(failure)?;
    store.download_all(&SHOWN, Path::new("runs"), &*stop()?).map_err(failure)
}

/// The runs of a store, oldest first, and notes about what is wrong.
pub(crate) struct Listed {
    pub(crate) runs: Vec<StoredRun>,
    pub(crate) notes: Vec<String>,
}

/// Whether runs are listed by their index, and not by reading their folders.
pub(crate) fn has_index(place: &str) -> bool {
    is_address(place) || Path::new(place).join(throng_store::INDEX_FILE).is_file()
}

/// The runs of a store by its index. Runs that the index lacks are read; `rebuild` reads all, and writes the index again.
pub(crate) fn list(place: &str, rebuild: bool, stop: &AtomicBool) -> Result<Listed, Failure> {
    let store = RunStore::open(place).map_err(failure)?;
    // Before the runs: the line of a run that comes meanwhile is none of these, and is kept.
    let before = if rebuild { store.index(stop).map_err(failure)? } else { Vec::new() };
    let mut names = store.runs(stop).map_err(failure)?;
    // After the runs: the index does not lack one that comes meanwhile.
    let lines = if rebuild { Vec::new() } else { store.index(stop).map_err(failure)? };
    // Names begin with the moment of the run.
    let older = names.len().saturating_sub(RUNS_MAX);
    names.drain(..older);
    let mut known: Vec<StoredRun> = lines.iter().filter_map(|line| StoredRun::from_line(line)).collect();
    known.sort_by_cached_key(StoredRun::name);
    let mut notes = Vec::new();
    let damaged = lines.len() - known.len();
    if damaged > 0 {
        notes.push(format!("the index has {}; --rebuild writes it again", counted(damaged as u64, "damaged line")));
    }
    if older > 0 && is_address(place) {
        notes.push(format!("{} left out: at most {RUNS_MAX} are listed", counted(older as u64, "older run")));
    }
    let mut listed = Listed { runs: Vec::new(), notes };
    let mut unknown = 0;
    for name in &names {
        match known.binary_search_by(|run| run.name().as_str().cmp(name.as_str())) {
            Ok(index) => listed.runs.push(known[index].clone()),
            Err(_) => match read(&store, place, name, stop)? {
                Ok(run) => {
                    // A comparison of two sides is in no index.
                    unknown += usize::from(run.is_some());
                    listed.runs.extend(run);
                }
                Err(reason) => listed.notes.push(format!("{name} is left out: {reason}")),
            },
        }
    }
    if rebuild {
        let lines: Vec<String> = listed.runs.iter().map(StoredRun::to_line).collect();
        store.replace_index(&before, &lines, stop).map_err(failure)?;
    } else if unknown > 0 && has_index(place) {
        listed.notes.push(format!("the index lacks {}; --rebuild writes it again", counted(unknown as u64, "run")));
    }
    if !is_address(place) {
        let found = run_folders(Path::new(place)).with_context(|| format!("cannot read {place}"))?;
        listed.notes.extend(found.notes());
    }
    listed.runs.sort_by(|a, b| (&a.started_at, &a.folder).cmp(&(&b.started_at, &b.folder)));
    Ok(listed)
}

/// A run by its summary, or why it has none that can be read; `None` of a comparison.
fn read(
    store: &RunStore,
    place: &str,
    name: &RunName,
    stop: &AtomicBool,
) -> Result<Result<Option<StoredRun>, String>, Failure> {
    if stop.load(Ordering::Relaxed) {
        return Err(failure(StoreError::Stopped));
    }
    let copies;
    let folder = if is_address(place) {
        copies = TemporaryFolder::new().context("there is no temporary folder")?;
        match store.download(name, &[SUMMARY_FILE], copies.path(), stop) {
            Ok(folder) => folder,
            Err(error) if ["remote", "stopped", "local"].contains(&error.tag()) => return Err(failure(error)),
            Err(error) => return Ok(Err(error.to_string())),
        }
    } else {
        Path::new(place).join(name.as_str())
    };
    let run = StoredRun::read_summary(&folder).map_err(|error| error.to_string());
    // A line of the index is the form in which it is known: its texts are fit for a terminal.
    Ok(run.map(|run| run.and_then(|run| StoredRun::from_line(&run.to_line()))))
}
