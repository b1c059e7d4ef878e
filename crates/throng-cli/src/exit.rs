//! How the program ends, and what it says then: one line that tells what to do.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | all went well, and a run's figures may be quoted |
//! | 1 | the run failed; of a comparison, everybody's of a workload and size |
//! | 2 | a wrong argument, scenario or folder |
//! | 3 | the run ended, but its figures may not be quoted; the report says why |
//! | 130 | interrupted twice |

use std::process::ExitCode;

pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const INVALID_RUN: u8 = 3;
pub(crate) const INTERRUPTED: u8 = 130;

pub(crate) type Outcome = Result<ExitCode, Failure>;

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked for is not possible.
    Usage(anyhow::Error),
    /// It was possible, and went wrong.
    Run(anyhow::Error),
    /// Somebody else has said it already.
    Silent,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Run(error)
    }
}

/// Says what went wrong, in one line, and with which code to exit.
pub(crate) fn report(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(Failure::Usage(error)) => say(&error, USAGE),
        Err(Failure::Run(error)) => say(&error, FAILED),
        Err(Failure::Silent) => ExitCode::from(FAILED),
    }
}

fn say(error: &anyhow::Error, code: u8) -> ExitCode {
    eprintln!("throng: {error:#}");
    ExitCode::from(code)
}
