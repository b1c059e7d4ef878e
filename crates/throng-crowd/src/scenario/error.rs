use std::io;
use std::path::PathBuf;

use thiserror::Error;
use throng_file::{friendly, line_of, nearest};

/// Why a scenario cannot run. The user can correct each error; its text is one line that says how.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// No scenario has this name.
    #[error("there is no scenario `{name}`{}: choose one of {known}, or give the path of a .toml file", suggest(.nearest))]
    UnknownName {
        /// The name asked for.
        name: String,
        /// The known names, with commas.
        known: String,
        /// The known name that is most like it.
        nearest: Option<String>,
    },
    /// The file could not be read.
    #[error("cannot read scenario file {}: {source}; check the path and its permissions", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is longer than [`MAX_FILE_BYTES`](super::MAX_FILE_BYTES).
    #[error("{} is longer than 64 KiB: this is not a scenario file", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The file is not TOML, or not a scenario's.
    #[error("scenario {origin}, line {line}: {message}")]
    Malformed {
        /// Name or path.
        origin: String,
        /// Line, from 1.
        line: usize,
        /// The error there.
        message: String,
    },
    /// A value is out of its range, or two do not go together.
    #[error("scenario {origin}: {key}: {message}")]
    Invalid {
        /// Name or path.
        origin: String,
        /// The key (with the command-line option that sets it, if any).
        key: &'static str,
        /// The error, and the allowed values.
        message: String,
    },
}

impl ScenarioError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            ScenarioError::UnknownName { .. } => "unknown_scenario",
            ScenarioError::Unreadable { .. } => "unreadable",
            ScenarioError::TooLong { .. } => "too_long",
            ScenarioError::Malformed { .. } => "malformed",
            ScenarioError::Invalid { .. } => "invalid",
        }
    }

    pub(super) fn unknown_name(name: &str, known: impl Iterator<Item = &'static str>) -> ScenarioError {
        let known: Vec<&str> = known.collect();
        let nearest = nearest(name, &known).map(str::to_owned);
        ScenarioError::UnknownName { name: name.to_owned(), known: known.join(", "), nearest }
    }

    pub(super) fn malformed(origin: &str, text: &str, error: &toml::de::Error) -> ScenarioError {
        let line = line_of(text, error.span().unwrap_or_default().start);
        let message = friendly(error.message());
        ScenarioError::Malformed { origin: origin.to_owned(), line, message }
    }
}

fn suggest(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|nearest| format!(" (did you mean `{nearest}`?)")).unwrap_or_default()
}
