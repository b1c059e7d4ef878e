//! The published page: what it says of models and peers is made from the files of comparisons, and of the open peers' runs, by
//! a command and not by hand.
//!
//! ```text
//! runs/*-compare/summary.json ─────────┐
//!                                      ├─> blocks of docs/benchmarks/comparison.md, plots/*.svg
//! bench/peers/results/results.json ────┘
//! ```
//!
//! Everything that was measured is in it, and what was not is named. Rows in which we lose stay, and are listed once more by
//! themselves. Words around the blocks are their author's.

mod blocks;
mod coverage;
mod demands;
mod evidence;
mod findings;
mod losses;
mod markdown;
mod origin;
mod page;
mod peers;
mod plots;
mod svg;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use throng_lab::compare::Comparison;
use throng_report::RunFileError;

pub use peers::{PeerMachine, PeerRow, Peers, Range};

/// The folder of the plots, beside the page.
pub const PLOTS: &str = "plots";
/// The largest file of peers that is read, in bytes.
const MAX_PEERS_BYTES: u64 = 16 << 20;

/// Why there is no page. Each text is one line that says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PublishError {
    /// A comparison could not be read.
    #[error(transparent)]
    Comparison(#[from] RunFileError),
    /// The peers' rows could not be read.
    #[error("cannot read {}: {source}; run bench/peers/run first, or leave --peers away", path.display())]
    Peers {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Comparisons from different machines do not belong on one page.
    #[error("{} was run on another machine than the first: figures are compared only within one", path.display())]
    Machine {
        /// The folder.
        path: PathBuf,
    },
    /// The peers were run on another machine than the comparisons.
    #[error(
        "{} was run on \"{theirs}\", the comparisons on \"{ours}\": run bench/peers/run there, or leave --peers away",
        path.display()
    )]
    PeersMachine {
        /// The file.
        path: PathBuf,
        /// The processor that peers were run on.
        theirs: String,
        /// The processor of the comparisons.
        ours: String,
    },
    /// The page could not be read, or has not the marks between which its blocks are written.
    #[error("{} cannot take the blocks: {reason}", path.display())]
    Page {
        /// The page.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}; check the free space and the permissions", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl PublishError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            PublishError::Comparison(error) => error.tag(),
            PublishError::Peers { .. } => "peers",
            PublishError::Machine { .. } => "machine",
            PublishError::PeersMachine { .. } => "peers_machine",
            PublishError::Page { .. } => "page",
            PublishError::Write { .. } => "write",
        }
    }
}

/// The sources of the page.
pub struct Sources {
    comparisons: Vec<Comparison>,
    peers: Peers,
    /// Where the comparisons were read from.
    folders: Vec<PathBuf>,
    peers_file: Option<PathBuf>,
}

/// One file of the page: its name relative to the page's folder, and its text.
struct Plot {
    name: String,
    svg: String,
}

impl Sources {
    /// Reads the comparisons in these folders, and the peers' rows.
    ///
    /// # Errors
    /// If something cannot be read, or the machines differ.
    pub fn read(folders: &[PathBuf], peers: Option<&Path>) -> Result<Sources, PublishError> {
        let mut comparisons: Vec<Comparison> = Vec::new();
        for folder in folders {
            let comparison = Comparison::load(folder)?;
            let is_elsewhere =
                |first: &Comparison| !first.head.environment.is_same_machine(&comparison.head.environment);
            if comparisons.first().is_some_and(is_elsewhere) {
                return Err(PublishError::Machine { path: folder.clone() });
            }
            comparisons.push(comparison);
        }
        let peers_file = peers.map(Path::to_owned);
        let peers = peers.map(read_peers).transpose()?.unwrap_or_default();
        if let Some(path) = &peers_file {
            is_same_machine(&comparisons, &peers, path)?;
        }
        Ok(Sources { comparisons, peers, folders: folders.to_vec(), peers_file })
    }

    /// The arguments of the program that makes the page from the same files.
    fn arguments(&self) -> Vec<String> {
        let path = |path: &PathBuf| path.display().to_string();
        let peers = self.peers_file.iter().flat_map(|file| ["--peers".to_owned(), path(file)]);
        self.folders.iter().map(path).chain(peers).collect()
    }

    /// Writes the blocks into the page, or a new page if there is none, and the plots into the folder [`PLOTS`] beside it.
    /// Paths under `root`, the repository, are given relative to it. The paths of all files.
    ///
    /// # Errors
    /// If the page has not a place for each block, or a file cannot be written; what was written until then stays.
    pub fn publish(&self, page: &Path, root: &Path) -> Result<Vec<PathBuf>, PublishError> {
        let unfit = |reason: String| PublishError::Page { path: page.to_owned(), reason };
        let present = match fs::read_to_string(page) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(blocks::SKELETON.to_owned()),
            read => read.map_err(|error| unfit(error.to_string())),
        }?;
        let (blocks, plots) = page::render(self, root);
        let text = blocks::replaced(&present, &blocks).map_err(unfit)?;
        let beside = page.parent().unwrap_or(Path::new(""));
        let mut written = vec![page.to_owned()];
        write(page, &text)?;
        for plot in plots {
            let path = beside.join(&plot.name);
            write(&path, &plot.svg)?;
            written.push(path);
        }
        Ok(written)
    }
}

fn read_peers(path: &Path) -> Result<Peers, PublishError> {
    let read = || {
        if fs::metadata(path)?.len() > MAX_PEERS_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 16 MiB"));
        }
        Peers::from_json(&fs::read_to_string(path)?).map_err(io::Error::from)
    };
    read().map_err(|source| PublishError::Peers { path: path.to_owned(), source })
}

/// Refuses peers that were run on another processor. Where they do not say, or there are no comparisons' runs, there is
/// nothing to hold against each other.
fn is_same_machine(comparisons: &[Comparison], peers: &Peers, path: &Path) -> Result<(), PublishError> {
    let ours = comparisons.first().map(|comparison| &comparison.head.environment);
    let theirs = peers.machine.as_ref().filter(|machine| !machine.cpu.is_empty());
    match ours.zip(theirs) {
        Some((ours, theirs)) if ours.cpu.trim() != theirs.cpu.trim() => Err(PublishError::PeersMachine {
            path: path.to_owned(),
            theirs: theirs.cpu.clone(),
            ours: ours.cpu.clone(),
        }),
        _ => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), PublishError> {
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    written.map_err(|source| PublishError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
