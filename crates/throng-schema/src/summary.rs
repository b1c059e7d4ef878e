//! The summary of a schema, which the ends exchange when their hashes differ, to say what differs:
//!
//! ```text
//! kinds: u16 | per kind, in order of ids:  length: u8 | name: length bytes of UTF-8 | hash: u64
//! ```
//!
//! Whole bytes, lowest byte first.

use crate::{Kind, MAX_KINDS, MAX_NAME_BYTES, SummaryError};
use std::collections::{HashMap, HashSet};
use std::fmt;
use throng_wire::KindId;

/// Name and hash of each kind of a schema, in order of their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    kinds: Vec<(String, u64)>,
}

impl Summary {
    pub(crate) fn of(kinds: &[Kind]) -> Summary {
        Summary { kinds: kinds.iter().map(|kind| (kind.name.to_owned(), kind.hash)).collect() }
    }

    /// Name and hash of each kind, in order of their ids.
    pub fn kinds(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        self.kinds.iter().map(|(name, hash)| (name.as_str(), *hash))
    }

    /// Appends the summary to `out`: 2 bytes, and for each kind 9 more than its name has.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.kinds.len() as u16).to_le_bytes());
        for (name, hash) in &self.kinds {
            out.push(name.len() as u8);
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(&hash.to_le_bytes());
        }
    }

    /// Reads what [`Summary::encode`] wrote. Allocates no more than a small multiple of the bytes that are there.
    ///
    /// # Errors
    /// If the bytes are not exactly one summary within [`MAX_KINDS`] and [`MAX_NAME_BYTES`], or a name is there twice.
    pub fn decode(bytes: &[u8]) -> Result<Summary, SummaryError> {
        let mut rest = bytes;
        let count = usize::from(u16::from_le_bytes(take(&mut rest)?));
        if count > MAX_KINDS {
            return Err(SummaryError::TooManyKinds { count });
        }
        let mut kinds = Vec::new();
        let mut names = HashSet::new();
        for kind in 0..count {
            let [length] = take(&mut rest)?;
            let (name, after) = rest.split_at_checked(length.into()).ok_or(SummaryError::UnexpectedEnd)?;
            rest = after;
            let hash = u64::from_le_bytes(take(&mut rest)?);
            let name = std::str::from_utf8(name).map_err(|_| SummaryError::InvalidName { kind })?;
            if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !names.insert(name) {
                return Err(SummaryError::InvalidName { kind });
            }
            kinds.push((name.to_owned(), hash));
        }
        if rest.is_empty() { Ok(Summary { kinds }) } else { Err(SummaryError::TrailingBytes) }
    }

    /// How `self`, the schema here, differs from that of a peer: kinds of this side in order, then what only the peer
    /// has.
    pub fn differences(&self, peer: &Summary) -> Vec<KindDifference> {
        let there = by_name(peer);
        let here = by_name(self);
        let mut differences = Vec::new();
        for (index, (name, hash)) in self.kinds().enumerate() {
            let name = name.to_owned();
            match there.get(name.as_str()) {
                None => differences.push(KindDifference::OnlyHere { name }),
                Some(&(_, other)) if other != hash => differences.push(KindDifference::Changed { name }),
                Some(&(other, _)) if other != index => differences.push(KindDifference::Renumbered {
                    name,
                    here: KindId(index as u16),
                    there: KindId(other as u16),
                }),
                Some(_) => {}
            }
        }
        let missing = peer.kinds().filter(|(name, _)| !here.contains_key(name));
        differences.extend(missing.map(|(name, _)| KindDifference::OnlyThere { name: name.to_owned() }));
        differences
    }
}

/// Index and hash of each kind.
fn by_name(summary: &Summary) -> HashMap<&str, (usize, u64)> {
    summary.kinds().enumerate().map(|(index, (name, hash))| (name, (index, hash))).collect()
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], SummaryError> {
    let (taken, after) = rest.split_first_chunk().ok_or(SummaryError::UnexpectedEnd)?;
    *rest = after;
    Ok(*taken)
}

/// One way in which the schemas of two ends differ. Shown as a sentence that names the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KindDifference {
    /// The peer does not have the kind.
    OnlyHere {
        /// Name of the kind.
        name: String,
    },
    /// Only the peer has the kind.
    OnlyThere {
        /// Name of the kind, as the peer wrote it.
        name: String,
    },
    /// Both have the kind, with different fields.
    Changed {
        /// Name of the kind.
        name: String,
    },
    /// Both have the kind, under different numbers: the kinds were added in another order.
    Renumbered {
        /// Name of the kind.
        name: String,
        /// Its number here.
        here: KindId,
        /// Its number at the peer.
        there: KindId,
    },
}

impl KindDifference {
    /// Name of the kind.
    pub fn name(&self) -> &str {
        match self {
            KindDifference::OnlyHere { name }
            | KindDifference::OnlyThere { name }
            | KindDifference::Changed { name }
            | KindDifference::Renumbered { name, .. } => name,
        }
    }

    /// A stable short name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            KindDifference::OnlyHere { .. } => "only_here",
            KindDifference::OnlyThere { .. } => "only_there",
            KindDifference::Changed { .. } => "changed",
            KindDifference::Renumbered { .. } => "renumbered",
        }
    }
}

impl fmt::Display for KindDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names of a peer end up in logs: escaped, they cannot forge lines.
        let name = self.name().escape_debug();
        match self {
            KindDifference::OnlyHere { .. } => write!(f, "kind `{name}` is missing at the peer"),
            KindDifference::OnlyThere { .. } => write!(f, "kind `{name}` exists only at the peer"),
            KindDifference::Changed { .. } => write!(f, "kind `{name}` has other fields at the peer"),
            KindDifference::Renumbered { here, there, .. } => {
                write!(f, "kind `{name}` is number {} here and {} at the peer: add kinds in one order", here.0, there.0)
            }
        }
    }
}
