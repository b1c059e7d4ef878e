//! Why the store cannot do what it was asked for.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A failed operation of the store. Each text is one line that says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The place makes no sense, or its settings do not.
    #[error("{place} is no run store: {reason}")]
    Place {
        /// The place as it was given.
        place: String,
        /// The mistake, and what to give.
        reason: String,
    },
    /// A folder has no summary, or is no folder of a run.
    #[error("{place} is no run: {reason}")]
    NotARun {
        /// The folder, or the place.
        place: String,
        /// The reason.
        reason: &'static str,
    },
    /// There is a run of this name.
    #[error("{place}/{run} is there already, and was not changed; rename the folder here, or choose another --store")]
    Taken {
        /// The store.
        place: String,
        /// The run.
        run: String,
    },
    /// A file or folder of this machine cannot be read or written.
    #[error("{}: {source}", path.display())]
    Local {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The store does not answer, or refuses.
    #[error("{place}: {reason}")]
    Remote {
        /// The store.
        place: String,
        /// Its reason.
        reason: String,
    },
    /// Something in the store is larger than it may be.
    #[error("{what} has more than {most}: it is not read")]
    TooLarge {
        /// The file, or the store.
        what: String,
        /// The limit with its unit.
        most: String,
    },
    /// A file has another size there than here.
    #[error("{file} has {there} bytes in the store and {here} here: upload the run again under another name")]
    Differs {
        /// The file.
        file: String,
        /// Bytes in the store.
        there: u64,
        /// Bytes on this machine.
        here: u64,
    },
    /// It was stopped.
    #[error("stopped before the end")]
    Stopped,
}

impl StoreError {
    /// A stable word for each kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            StoreError::Place { .. } => "place",
            StoreError::NotARun { .. } => "not_a_run",
            StoreError::Taken { .. } => "taken",
            StoreError::Local { .. } => "local",
            StoreError::Remote { .. } => "remote",
            StoreError::TooLarge { .. } => "too_large",
            StoreError::Differs { .. } => "differs",
            StoreError::Stopped => "stopped",
        }
    }

    pub(crate) fn local(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.into();
        |source| StoreError::Local { path, source }
    }

    pub(crate) fn remote(place: &str, error: &object_store::Error) -> StoreError {
        let reason: String =
            error.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect();
        StoreError::Remote { place: place.to_owned(), reason }
    }
}
