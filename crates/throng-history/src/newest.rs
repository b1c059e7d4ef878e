//! The folders of runs in a folder: so many as a program can use, and never fewer without a word.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A folder has at most so many runs that are read.
pub const RUNS_MAX: usize = 10_000;

/// Folders of runs.
pub struct Newest {
    /// Those with the last names, in the order of names: a name begins with the moment of the run.
    pub folders: Vec<PathBuf>,
    /// So many earlier ones are left out.
    pub left_out: usize,
}

/// The newest [`RUNS_MAX`] folders in `parent` that have one of these files.
pub fn newest(parent: &Path, files: &[&str]) -> io::Result<Newest> {
    let (mut folders, mut left_out) = (BTreeSet::new(), 0);
    for entry in fs::read_dir(parent)? {
        let folder = entry?.path();
        if files.iter().any(|file| folder.join(file).is_file()) {
            folders.insert(folder);
        }
        if folders.len() > RUNS_MAX {
            folders.pop_first();
            left_out += 1;
        }
    }
    Ok(Newest { folders: folders.into_iter().collect(), left_out })
}
