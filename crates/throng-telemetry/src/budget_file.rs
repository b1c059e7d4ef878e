//! Budgets from a TOML file.
//!
//! ```toml
//! frame_ms = 2.34           # optional: a whole frame
//! slow_frame_ms = 4.0       # optional: a frame that the flight recorder writes down; without it, frame_ms
//!
//! [subsystem_ms]            # optional: milliseconds of each frame, exclusive
//! network = 0.30
//! physics = 0.25
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;
use throng_meter::{Budgets, Subsystem, Subsystems};
use toml::Spanned;

/// The largest budget that a file may name, in milliseconds: a minute.
const MAX_MS: f64 = 60_000.0;

/// How long frames and their subsystems may take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameBudgets {
    /// A whole frame, wall time, in nanoseconds.
    pub frame_ns: Option<u64>,
    /// From here on a frame is slow: its last seconds are written to a file.
    pub slow_frame_ns: Option<u64>,
    /// Each subsystem.
    pub subsystems: Budgets,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    frame_ms: Option<Spanned<f64>>,
    slow_frame_ms: Option<Spanned<f64>>,
    #[serde(default)]
    subsystem_ms: BTreeMap<Spanned<String>, Spanned<f64>>,
}

impl FrameBudgets {
    /// Reads a budget file.
    ///
    /// # Errors
    /// The file cannot be read, is no TOML, names a key or a subsystem that does not exist, or a time that is no budget.
    /// All are faults of the file; the message names it, with the line.
    pub fn read(path: &Path, subsystems: &Subsystems) -> Result<FrameBudgets, BudgetFileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| BudgetFileError::Unreadable { path: path.to_owned(), source })?;
        FrameBudgets::parse(&text, path, subsystems)
    }

    /// Reads the text of a budget file. `path` is for messages only.
    ///
    /// # Errors
    /// Like [`read`](FrameBudgets::read).
    pub fn parse(text: &str, path: &Path, subsystems: &Subsystems) -> Result<FrameBudgets, BudgetFileError> {
        let line_of = |span: Range<usize>| throng_file::line_of(text, span.start);
        let file: File = toml::from_str(text).map_err(|error| BudgetFileError::Malformed {
            path: path.to_owned(),
            line: line_of(error.span().unwrap_or_default()),
            message: throng_file::friendly(error.message()),
        })?;
        let ns = |key: &str, ms: &Spanned<f64>| {
            let value = *ms.get_ref();
            if (0.0..=MAX_MS).contains(&value) {
                return Ok((value * 1e6).round() as u64);
            }
            let (path, line) = (path.to_owned(), line_of(ms.span()));
            Err(BudgetFileError::Value { path, line, key: key.to_owned(), value })
        };
        let mut budgets = FrameBudgets {
            frame_ns: file.frame_ms.as_ref().map(|ms| ns("frame_ms", ms)).transpose()?,
            slow_frame_ns: file.slow_frame_ms.as_ref().map(|ms| ns("slow_frame_ms", ms)).transpose()?,
            subsystems: Budgets::new(),
        };
        for (name, ms) in &file.subsystem_ms {
            let subsystem: Subsystem = subsystems.find(name.get_ref()).ok_or_else(|| BudgetFileError::Unknown {
                path: path.to_owned(),
                line: line_of(name.span()),
                name: name.get_ref().clone(),
                known: subsystems.iter().map(|subsystem| subsystems.name(subsystem).to_owned()).collect(),
            })?;
            budgets.subsystems.set(subsystem, ns(name.get_ref(), ms)?);
        }
        Ok(budgets)
    }

    /// From how many nanoseconds on a frame is slow.
    pub fn slow_ns(&self) -> Option<u64> {
        self.slow_frame_ns.or(self.frame_ns)
    }
}

/// A budget file that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BudgetFileError {
    /// It cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// It is no TOML, or has a key that budget files do not have, or a value of another type.
    #[error("{}:{line}: {message}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The fault.
        message: String,
    },
    /// It names a subsystem that does not exist.
    #[error("{}:{line}: there is no subsystem \"{name}\"; there are {}", path.display(), known.join(", "))]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The name.
        name: String,
        /// All names that there are.
        known: Vec<String>,
    },
    /// A time is negative, endless or no number.
    #[error("{}:{line}: {key} = {value} is no budget: use milliseconds from 0 to {MAX_MS}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The owner of this time.
        key: String,
        /// The time.
        value: f64,
    },
}

impl BudgetFileError {
    /// A stable word for each kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            BudgetFileError::Unreadable { .. } => "unreadable",
            BudgetFileError::Malformed { .. } => "malformed",
            BudgetFileError::Unknown { .. } => "unknown_subsystem",
            BudgetFileError::Value { .. } => "value",
        }
    }
}
