//! The folder of a run: a new one for each, and those of a folder of runs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use std::time::SystemTime;

use thiserror::Error;
use throng_machine::Moment;

use crate::run::SUMMARY_FILE;
use crate::words::counted;

/// A folder has at most so many runs that are read.
pub const RUNS_MAX: usize = 10_000;
/// How many runs may have one name, so those of one scenario that begin in one second.
const MAX_RUNS_OF_A_NAME: u32 = 100;

/// An argument names something that cannot be used, as a file or a server: nothing was begun. This stands before the cause.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct ArgumentError(pub String);

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
    /// So many have the name of a run and no figures: it is still played, or was killed.
    pub unfinished: usize,
}

/// The newest [`RUNS_MAX`] folders in `runs` that have figures of a run.
///
/// # Errors
/// The folder cannot be read.
pub fn run_folders(runs: &Path) -> io::Result<RunFolders> {
    let (mut folders, mut left_out, mut unfinished) = (BTreeSet::new(), 0, 0);
    for entry in fs::read_dir(runs)? {
        let folder = entry?.path();
        if folder.join(SUMMARY_FILE).is_file() {
            folders.insert(folder);
        } else if is_stamped(&folder) && folder.is_dir() {
            unfinished += 1;
        }
        if folders.len() > RUNS_MAX {
            folders.pop_first();
            left_out += 1;
        }
    }
    Ok(RunFolders { folders: folders.into_iter().collect(), left_out, unfinished })
}

impl RunFolders {
    /// Notes about what is not among the folders.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let left_out = (self.left_out > 0).then(|| {
            let left_out = counted(self.left_out as u64, "older run");
            format!("{left_out} left out: at most {RUNS_MAX} are read")
        });
        let unfinished = (self.unfinished > 0).then(|| {
            let folders = counted(self.unfinished as u64, "folder");
            format!("{folders} without figures: a run that is still played, or was killed")
        });
        left_out.into_iter().chain(unfinished)
    }
}

/// Whether a name begins as those that [`new_folder`] gives, as `20260131-120000-`.
fn is_stamped(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_place = |(place, letter): (usize, char)| match place {
        8 | 15 => letter == '-',
        _ => letter.is_ascii_digit(),
    };
    name.len() > 16 && name.chars().take(16).enumerate().all(is_place)
}
