//! The readings of each check, and the files that its setting writes. The texts are in the table.

pub(crate) mod memory;
pub(crate) mod process;
pub(crate) mod processor;
pub(crate) mod scheduler;
pub(crate) mod system;

use std::str::FromStr;

use crate::apply::Change;
use crate::host::{Host, ReadError};

/// The same value for those of the files that exist.
fn all(host: &Host, paths: impl IntoIterator<Item = String>, value: &str) -> Result<Vec<Change>, ReadError> {
    let mut absent = String::new();
    let mut changes = Vec::new();
    for path in paths {
        if host.exists(&path) {
            changes.push(Change { path, value: value.to_owned() });
        } else {
            absent = path;
        }
    }
    if changes.is_empty() { Err(ReadError::Absent { path: absent }) } else { Ok(changes) }
}

/// Without the files whose value is good enough as it is.
fn lacking<T: FromStr>(host: &Host, mut changes: Vec<Change>, is_enough: impl Fn(T) -> bool) -> Vec<Change> {
    changes.retain(|change| !host.value(&change.path).is_ok_and(&is_enough));
    changes
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// `1 thing`, `2 things`.
fn count(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
