//! Settings that are written and put back.
//!
//! Before a setting is written, a record with the former values goes to `/run/throng-doctor/CHECK`. That folder is empty
//! after a restart of the machine, as the settings themselves are the default again then.
//!
//! ```text
//!  path <tab> former value <newline>      for each file that was changed, in the order of writing
//! ```
//!
//! The machine may change in between: a processor goes offline, a process moves to another control group. So a record is
//! held against the paths that a check may ever write, not against those that it would write now. It stays until all
//! files have their former values.

use std::io::ErrorKind;

use thiserror::Error;

use crate::check::{Absent, Check, Files, Setting};
use crate::host::{Host, ReadError, reason};

const RECORDS: &str = "/run/throng-doctor";

/// A file, and the value that a check wants in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path on the machine.
    pub path: String,
    /// The value.
    pub value: String,
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The path on the machine.
    pub path: String,
    /// Its value before.
    pub before: String,
    /// Its value since then.
    pub now: String,
}

/// Why a setting was not written or not put back. Files that were written before the error are put back, but those of
/// [`ApplyError::NotBack`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ApplyError {
    /// The check only reports.
    #[error("{check} only reports: there is nothing to apply. To fix it: {fix}")]
    NothingToApply {
        /// The check.
        check: &'static str,
        /// Its advice.
        fix: &'static str,
    },
    /// A process sets it for itself.
    #[error("{check} is set by each process for itself: nothing on the host to apply. To fix it: {fix}")]
    PerProcess {
        /// The check.
        check: &'static str,
        /// Its advice.
        fix: &'static str,
    },
    /// All files have the value already.
    #[error("{check} is set already: nothing was changed")]
    SetAlready {
        /// The check.
        check: &'static str,
    },
    /// It was applied, and not undone since.
    #[error("{check} was applied before: `throng doctor --undo {check}` puts the former values back")]
    AppliedBefore {
        /// The check.
        check: &'static str,
    },
    /// There is no record.
    #[error("{check} was not applied since this machine started: nothing to undo")]
    NotApplied {
        /// The check.
        check: &'static str,
    },
    /// The user may not write.
    #[error("no right to write {path}: run this command as root")]
    NoRight {
        /// The path.
        path: String,
    },
    /// The system refused the value.
    #[error("cannot write \"{value}\" to {path}: {reason}")]
    Refused {
        /// The path.
        path: String,
        /// The value.
        value: String,
        /// The system's words.
        reason: String,
    },
    /// Some files do not have their former values. All others do, and the record stays.
    #[error(
        "{left} of {files} files are not back, the first because of: {first}. Mend that and run `throng doctor --undo \
         {check}`; a restart of the machine sets them back, too"
    )]
    NotBack {
        /// The check.
        check: &'static str,
        /// Files without their former value.
        left: usize,
        /// All files of the record.
        files: usize,
        /// The error of the first of them.
        first: Box<ApplyError>,
    },
    /// The setting cannot be read, so it could not be put back.
    #[error("cannot read what to change: {0}")]
    Unread(#[from] ReadError),
}

impl ApplyError {
    /// A short name for counters and JSON.
    pub fn tag(&self) -> &'static str {
        match self {
            ApplyError::NothingToApply { .. } => "nothing-to-apply",
            ApplyError::PerProcess { .. } => "per-process",
            ApplyError::SetAlready { .. } => "set-already",
            ApplyError::AppliedBefore { .. } => "applied-before",
            ApplyError::NotApplied { .. } => "not-applied",
            ApplyError::NoRight { .. } => "no-right",
            ApplyError::Refused { .. } => "refused",
            ApplyError::NotBack { .. } => "not-back",
            ApplyError::Unread(_) => "unread",
        }
    }

    fn of(path: &str, value: &str, error: &std::io::Error) -> ApplyError {
        let path = path.to_owned();
        match error.kind() {
            ErrorKind::PermissionDenied => ApplyError::NoRight { path },
            _ => ApplyError::Refused { path, value: value.to_owned(), reason: reason(error) },
        }
    }
}

fn files(check: &Check) -> Result<Files, ApplyError> {
    let (name, fix) = (check.name, check.fix);
    match check.setting {
        Setting::None => Err(ApplyError::NothingToApply { check: name, fix }),
        Setting::Process(_) => Err(ApplyError::PerProcess { check: name, fix }),
        Setting::Host(files) => Ok(files),
    }
}

/// The value of a file of the kernel: the word in brackets where it shows all of them.
fn current(host: &Host, path: &str) -> Result<String, ReadError> {
    let text = host.text(path)?;
    let line = text.trim();
    // Only a text that can be written back as it was.
    let is_plain = line.len() <= 256 && !line.contains(|c: char| c.is_control() || c == '\u{fffd}');
    let value = if line.contains('[') { host.chosen(path)? } else { line.to_owned() };
    (is_plain && !value.is_empty()).then_some(value).ok_or_else(|| ReadError::not_understood(path, &text))
}

fn record(check: &Check) -> String {
    format!("{RECORDS}/{}", check.name)
}

pub(crate) fn is_applied(host: &Host, check: &Check) -> bool {
    host.exists(&record(check))
}

/// Writes the setting of a check, and records the former values.
///
/// # Errors
///
/// The check has no setting of the host, it is set already, or the system refuses.
pub fn apply(host: &Host, check: &Check) -> Result<Vec<Written>, ApplyError> {
    let files = files(check)?;
    if is_applied(host, check) {
        return Err(ApplyError::AppliedBefore { check: check.name });
    }
    let mut due = Vec::new();
    for Change { path, value } in (files.wanted)(host)? {
        if !files.may_name(&path) {
            return Err(ReadError::not_understood(&path, "a path that a record cannot hold").into());
        }
        let before = current(host, &path)?;
        if before != value {
            due.push(Written { path, before, now: value });
        }
    }
    if due.is_empty() {
        return Err(ApplyError::SetAlready { check: check.name });
    }
    let record = record(check);
    let text: String = due.iter().map(|due| format!("{}\t{}\n", due.path, due.before)).collect();
    host.create(&record, &text).map_err(|error| ApplyError::of(&record, "the former values", &error))?;
    for (index, Written { path, now, .. }) in due.iter().enumerate() {
        if let Err(error) = write(host, path, now) {
            let former = due[..=index].iter().map(|due| (due.path.clone(), due.before.clone())).collect();
            put_back(host, check, former)?;
            return Err(error);
        }
    }
    Ok(due)
}

/// Writes a value and reads it back: the kernel takes some values without using them.
fn write(host: &Host, path: &str, value: &str) -> Result<(), ApplyError> {
    host.write(path, value).map_err(|error| ApplyError::of(path, value, &error))?;
    let kept = current(host, path)?;
    let reason = format!("the system keeps \"{kept}\"");
    let refused = || ApplyError::Refused { path: path.to_owned(), value: value.to_owned(), reason };
    (kept == value).then_some(()).ok_or_else(refused)
}

/// Puts the values back that [`apply`] found, in all files that have others. The record goes when all are back.
///
/// # Errors
///
/// The check has no record, the record names files that the check never writes, or the system refuses.
pub fn undo(host: &Host, check: &Check) -> Result<Vec<Written>, ApplyError> {
    let files = files(check)?;
    if !is_applied(host, check) {
        return Err(ApplyError::NotApplied { check: check.name });
    }
    let record = record(check);
    let text = host.text(&record)?;
    let mut former = Vec::new();
    for line in text.lines() {
        // A record that somebody else wrote leads to no other file.
        let known = line.split_once('\t').filter(|(path, _)| files.may_name(path));
        let (path, before) = known.ok_or_else(|| ReadError::not_understood(&record, line))?;
        former.push((path.to_owned(), before.to_owned()));
    }
    put_back(host, check, former)
}

/// Writes former values, the last one first, to the files that have others. A file that refuses does not keep the others
/// from it.
fn put_back(host: &Host, check: &Check, former: Vec<(String, String)>) -> Result<Vec<Written>, ApplyError> {
    let absent = files(check)?.absent;
    let (mut back, mut errors, count) = (Vec::new(), Vec::new(), former.len());
    for (path, now) in former.into_iter().rev() {
        match current(host, &path) {
            Ok(before) if before == now => {}
            Ok(before) => match write(host, &path, &now) {
                Ok(()) => back.push(Written { path, before, now }),
                Err(error) => errors.push(error),
            },
            Err(ReadError::Absent { .. }) if absent == Absent::IsBack => {}
            Err(error) => errors.push(error.into()),
        }
    }
    let left = errors.len();
    if let Some(first) = errors.into_iter().next() {
        return Err(ApplyError::NotBack { check: check.name, left, files: count, first: Box::new(first) });
    }
    let record = record(check);
    host.remove(&record).map_err(|error| ApplyError::of(&record, "", &error))?;
    back.reverse();
    Ok(back)
}
