//! Output of the program. The macros of the standard library panic when nobody reads any more, as after `| head`, or when
//! the disk is full.
//!
//! | macro | to | if it cannot be written |
//! |---|---|---|
//! | `out!`, `outln!` | standard output: results | a reader that has gone is fine; any other error is the program's error, see [`error`] |
//! | `err!`, `errln!` | standard error: progress, notes, errors | nothing: there is no place to say it |

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use serde::Serialize;

/// Prints a result.
macro_rules! out {
    ($($text:tt)*) => { $crate::out::print(format_args!($($text)*)) };
}

/// Prints a line of a result.
macro_rules! outln {
    ($($text:tt)*) => { $crate::out::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints something for the person who started the program.
macro_rules! err {
    ($($text:tt)*) => { $crate::out::note(format_args!($($text)*)) };
}

/// Prints a line for the person who started the program.
macro_rules! errln {
    ($($text:tt)*) => { $crate::out::note(format_args!("{}\n", format_args!($($text)*))) };
}

/// The first error of the standard output.
static ERROR: Mutex<Option<io::Error>> = Mutex::new(None);

pub(crate) fn print(text: Arguments<'_>) {
    let mut output = io::stdout().lock();
    if let Err(error) = output.write_fmt(text).and_then(|()| output.flush()) {
        keep(&ERROR, error);
    }
}

/// Prints a result as JSON.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    outln!("{}", serde_json::to_string_pretty(value).context("cannot write JSON")?);
    Ok(())
}

pub(crate) fn note(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// The first error of the standard output, if there was one. It is returned once.
pub(crate) fn error() -> Option<io::Error> {
    ERROR.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn keep(first: &Mutex<Option<io::Error>>, error: io::Error) {
    if error.kind() != ErrorKind::BrokenPipe {
        first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}
