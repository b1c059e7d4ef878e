//! Exit codes, and the error message: one line that says what to do.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | success, and the figures of a run are valid |
//! | 1 | the run failed; in a comparison: all runs of some workload and size failed |
//! | 2 | an argument is wrong, or what it names cannot be used (scenario, file, folder, address, store): nothing was measured |
//! | 3 | the run ended, but its figures are invalid; the report says why |
//! | 4 | everything was measured, and a limit is exceeded: a figure is beyond its own, no load keeps its limits, or a part became slower |
//! | 130 | interrupted twice |

use std::process::ExitCode;

use throng::StartError;
use throng::net::BindError;
use throng_lab::bots::BotsError;
use throng_range::RangeError;
use throng_report::{ArgumentError, FolderError, printable};

use crate::out;

pub(crate) const SUCCESS: u8 = 0;
pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const INVALID_RUN: u8 = 3;
/// A limit is exceeded. That is a result, and no failure.
pub(crate) const LIMIT: u8 = 4;
pub(crate) const INTERRUPTED: u8 = 130;

pub(crate) type Outcome = Result<ExitCode, Failure>;

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An argument is wrong, or what it names cannot be used.
    Usage(anyhow::Error),
    /// The arguments are right, but the command failed.
    Run(anyhow::Error),
    /// Another process has already printed the error.
    Silent,
}

/// Ends a command whose arguments cannot be used.
macro_rules! refuse {
    ($($text:tt)*) => { return Err($crate::exit::Failure::Usage(anyhow::anyhow!($($text)*))) };
}

impl Failure {
    /// An argument that cannot be used, or what it names.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Failure {
        Failure::Usage(error.into())
    }
}

impl From<anyhow::Error> for Failure {
    /// A folder that cannot be made, an address that cannot be opened, and what says so of itself, are wrong arguments.
    fn from(error: anyhow::Error) -> Failure {
        let is_of_an_argument = error.is::<ArgumentError>() || error.is::<FolderError>() || is_of_an_address(&error);
        if is_of_an_argument { Failure::Usage(error) } else { Failure::Run(error) }
    }
}

fn is_of_an_address(error: &anyhow::Error) -> bool {
    error.is::<BindError>()
        || matches!(error.downcast_ref(), Some(StartError::Bind(_)))
        || matches!(error.downcast_ref(), Some(BotsError::Bind(_)))
        || matches!(error.downcast_ref(), Some(RangeError::Server(StartError::Bind(_))))
}

/// Prints the error in one line, and returns the exit code. A result that could not be printed is an error, too.
pub(crate) fn report(outcome: Outcome) -> ExitCode {
    let printed = match out::error() {
        Some(error) => Err(Failure::Run(anyhow::Error::new(error).context("cannot write to the standard output"))),
        None => Ok(()),
    };
    match outcome.and_then(|code| printed.map(|()| code)) {
        Ok(code) => code,
        Err(Failure::Usage(error)) => say(&error, USAGE),
        Err(Failure::Run(error)) => say(&error, FAILED),
        Err(Failure::Silent) => ExitCode::from(FAILED),
    }
}

fn say(error: &anyhow::Error, code: u8) -> ExitCode {
    errln!("throng: {}", printable(&one_line(error)));
    ExitCode::from(code)
}

/// The error and its causes. Many messages contain the text of their cause, so a cause is added only if it is new.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_report::{RunFile, SUMMARY_FILE};

    #[test]
    fn each_cause_is_printed_once() {
        let folder = tempfile::tempdir().unwrap();
        let summary = folder.path().join(SUMMARY_FILE);
        std::fs::create_dir(&summary).unwrap();
        let read = one_line(&RunFile::open(folder.path()).unwrap_err().into());
        assert_eq!(read.matches("Is a directory").count(), 1, "{read}");
        std::fs::remove_dir(&summary).unwrap();
        std::fs::write(&summary, "{").unwrap();
        let parsed = one_line(&RunFile::open(folder.path()).unwrap_err().into());
        assert_eq!(parsed.matches("EOF while parsing").count(), 1, "{parsed}");
        let cause = anyhow::anyhow!("no space left").context("cannot write x");
        assert_eq!(one_line(&cause), "cannot write x: no space left");
    }
}
