//! Errors in settings.

use std::io;

use thiserror::Error;
use throng_gateway_engine::config_file::FileError;

/// Why the gateway does not start, or keeps the settings that it has. The author of the settings is at fault.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// `-help`. Not an error: [`usage`](super::usage) is to be printed.
    #[error("help is wanted")]
    HelpWanted,
    /// More words than anybody writes.
    #[error("the command line has more than {limit} words")]
    TooManyWords {
        /// The limit.
        limit: usize,
    },
    /// A word where a flag is expected.
    #[error("\"{word}\" is not a flag; to turn a switch off, use -name=false")]
    UnexpectedWord {
        /// The word.
        word: String,
    },
    /// There is no such flag.
    #[error("there is no flag -{flag}; -help lists all flags")]
    UnknownFlag {
        /// Its name.
        flag: String,
    },
    /// The last word is a flag that needs a value.
    #[error("-{flag} needs a value")]
    MissingValue {
        /// Its name.
        flag: String,
    },
    /// A flag's value is invalid.
    #[error("-{flag}={value}: expected {expected}")]
    FlagValue {
        /// Its name.
        flag: String,
        /// The given value.
        value: String,
        /// The expected value.
        expected: String,
    },
    /// Two settings contradict each other.
    #[error("{first} and {second} contradict each other: {reason}")]
    Contradiction {
        /// One of them.
        first: String,
        /// The other one.
        second: String,
        /// In which way.
        reason: String,
    },
    /// A setting is of no use without another one.
    #[error("{setting} needs {needed}: {reason}")]
    Missing {
        /// The one that was given.
        setting: String,
        /// The one that is missing.
        needed: String,
        /// Its purpose.
        reason: String,
    },
    /// A file cannot be read.
    #[error("-{flag}: cannot read {file}: {error}")]
    Read {
        /// The flag that names it.
        flag: &'static str,
        /// Its name.
        file: String,
        /// The system's error.
        error: io::Error,
    },
    /// A file does not say what it should.
    #[error(transparent)]
    File(#[from] FileError),
}

impl SettingsError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            SettingsError::HelpWanted => "settings_help",
            SettingsError::TooManyWords { .. } => "settings_too_many_words",
            SettingsError::UnexpectedWord { .. } => "settings_unexpected_word",
            SettingsError::UnknownFlag { .. } => "settings_unknown_flag",
            SettingsError::MissingValue { .. } => "settings_missing_value",
            SettingsError::FlagValue { .. } => "settings_flag_value",
            SettingsError::Contradiction { .. } => "settings_contradiction",
            SettingsError::Missing { .. } => "settings_missing",
            SettingsError::Read { .. } => "settings_read",
            SettingsError::File(error) => error.tag(),
        }
    }
}
