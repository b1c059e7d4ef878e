//! The folder of a run: a new one for each, and those of a folder of runs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use std::time::SystemTime;

use thiserror::Error;
use throng_machine::Moment;

use crate::run::SUMMARY_FILE;

/// A folder has at most so many runs that are read.
pub const RUNS_MAX: usize = 10_000;
/// How many runs may have one name, so those of one scenario that begin in one second.
const MAX_RUNS_OF_A_NAME: u32 = 100;

/// A folder could not be made.
#[derive(Debug, Error)]
#[error("cannot write {}: {source}; check the free space and the permissions, or choose another directory", path.display())]
pub struct FolderError {
    /// The folder.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}

fn make(runs: &Path) -> Result<(), FolderError> {
    let made = match runs.is_file() {
        true => Err(io::ErrorKind::NotADirectory.into()),
        false => fs::create_dir_all(runs),
    };
    made.map_err(|source| FolderError { path: runs.to_owned(), source })
}

/// Makes the folder of runs, if it is not there, and tries whether something can be written into it. For programs whose runs begin later.
///
/// # Errors
/// It cannot be made or written.
pub fn check_runs(runs: &Path) -> Result<(), FolderError> {
    make(runs)?;
    let trial = runs.join(format!(".trial-{}", std::process::id()));
    // Another process may do the same, with the same number in another container.
    let unless = |done: io::Result<()>, fine: io::ErrorKind| match done {
        Err(source) if source.kind() != fine => Err(FolderError { path: runs.to_owned(), source }),
        _ => Ok(()),
    };
    unless(fs::create_dir(&trial), io::ErrorKind::AlreadyExists)?;
    unless(fs::remove_dir(&trial), io::ErrorKind::NotFound)
}

/// `<runs>/<stamp>-<name>`, made new: `runs/20260131-120000-crowd`. Two runs of one second do not share a folder: the second
/// gets `20260131-120000-crowd-2`.
///
/// # Errors
/// The folder cannot be made.
pub fn new_folder(runs: &Path, now: SystemTime, name: &str) -> Result<PathBuf, FolderError> {
    let error = |path: &Path, source| FolderError { path: path.to_owned(), source };
    let name = format!("{}-{name}", Moment::of(now).short());
    make(runs)?;
    let mut dir = runs.join(&name);
    for number in 2..=MAX_RUNS_OF_A_NAME {
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => dir = runs.join(format!("{name}-{number}")),
            Err(source) => return Err(error(&dir, source)),
        }
    }
    Err(error(&dir, io::ErrorKind::AlreadyExists.into()))
}

/// Folders of runs.
#[derive(Debug)]
pub struct RunFolders {
    /// Those with the last names, in the order of names: a name begins with the moment of the run.
    pub folders: Vec<PathBuf>,
    /// So many earlier ones are left out.
    pub left_out: usize,
}

/// The newest [`RUNS_MAX`] folders in `runs` that have figures of a run.
///
/// # Errors
/// The folder cannot be read.
pub fn run_folders(runs: &Path) -> io::Result<RunFolders> {
    let (mut folders, mut left_out) = (BTreeSet::new(), 0);
    for entry in fs::read_dir(runs)? {
        let folder = entry?.path();
        if folder.join(SUMMARY_FILE).is_file() {
            folders.insert(folder);
        }
        if folders.len() > RUNS_MAX {
            folders.pop_first();
            left_out += 1;
        }
    }
    Ok(RunFolders { folders: folders.into_iter().collect(), left_out })
}
