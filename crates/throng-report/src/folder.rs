//! The folder of a run: a new one for each.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

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

/// `<runs>/<name>`, made new. Two runs of one name do not share a folder: the second gets `<name>-2`.
///
/// # Errors
/// The folder cannot be made.
pub fn new_folder(runs: &Path, name: &str) -> Result<PathBuf, FolderError> {
    let error = |path: &Path, source| FolderError { path: path.to_owned(), source };
    fs::create_dir_all(runs).map_err(|source| error(runs, source))?;
    let mut dir = runs.join(name);
    for number in 2..=MAX_RUNS_OF_A_NAME {
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => dir = runs.join(format!("{name}-{number}")),
            Err(source) => return Err(error(&dir, source)),
        }
    }
    Err(error(&dir, io::ErrorKind::AlreadyExists.into()))
}
