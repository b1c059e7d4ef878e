//! The errors of this crate.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use throng_agent::NavigationError;
use throng_map::FileError;
use throng_match::{HostError, LogError, ReplayError};
use throng_sight::MeshError;
use throng_tactical::{ArenaError, TacticalError};

/// Why matches could not be played, or not be replayed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RangeError {
    /// The map file cannot be used.
    #[error(transparent)]
    Map(#[from] FileError),
    /// The town could not be baked.
    #[error("the town cannot be baked: {0}")]
    Bake(#[from] MeshError),
    /// The map has no places for the game.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// Nobody can walk on the map.
    #[error("the map has no ground for bots: {0}")]
    Navigation(#[from] NavigationError),
    /// The rules are wrong.
    #[error(transparent)]
    Game(#[from] TacticalError),
    /// The workers could not be started.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A server could not be started.
    #[error("a server could not be started: {0}")]
    Server(#[from] throng::StartError),
    /// Telemetry could not be started.
    #[error(transparent)]
    Telemetry(#[from] throng_telemetry::StartError),
    /// The figures of a run could not be read or written.
    #[error(transparent)]
    Figures(#[from] throng_report::RunFileError),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The bots did not play.
    #[error("the bots failed: {0}")]
    Bots(String),
    /// A process could not be started.
    #[error("a process could not be started: {0}")]
    Process(String),
    /// The folder of the report cannot be made.
    #[error("{}: the report cannot be written here: {source}; name another folder with --runs, or use --no-report", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The input log cannot be used.
    #[error("{}: {source}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        source: LogError,
    },
    /// The replay is not the match.
    #[error("{}: {source}", path.display())]
    Replay {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ReplayError,
    },
    /// A number is out of its range.
    #[error("{0}")]
    Options(String),
}

impl RangeError {
    /// A stable word for each kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            RangeError::Map(_) => "map",
            RangeError::Bake(_) => "bake",
            RangeError::Arena(_) => "arena",
            RangeError::Navigation(_) => "navigation",
            RangeError::Game(_) => "game",
            RangeError::Host(_) => "host",
            RangeError::Server(_) => "server",
            RangeError::Telemetry(_) => "telemetry",
            RangeError::Figures(_) | RangeError::File { .. } => "file",
            RangeError::Bots(_) => "bots",
            RangeError::Process(_) => "process",
            RangeError::Folder { .. } => "folder",
            RangeError::Log { .. } => "log",
            RangeError::Replay { .. } => "replay",
            RangeError::Options(_) => "options",
        }
    }
}
