//! Which cluster a bus belongs to. Wrong settings end here, each with one line.
//!
//! The key `cluster` of the store holds `"THRONG" | version of the directory (u16 LE) | id of the cluster (u64 LE)`.

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use crate::{Command, Event, Expect, StoreError, Subject, Ticket, Tickets};

/// The version of everything that lies in the store.
pub const DIRECTORY_VERSION: u16 = 1;
/// Most bytes of a cluster's name.
pub const CLUSTER_NAME_BYTES_MAX: usize = 32;

const MAGIC: &[u8; 6] = b"THRONG";
const ATTEMPTS_MAX: u8 = 5;
const KEY: &str = "cluster";

/// The name and id of a cluster. Names are first parts of subjects, so two clusters of one server need two names. The id
/// tells whether two clusters have one name: choose it once for each deployment, and give it to all its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    name: String,
    id: u64,
}

/// Wrong settings of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The name cannot be a part of a subject.
    #[error(
        "`{name}` is no name for a cluster: use 1 to {CLUSTER_NAME_BYTES_MAX} characters of a-z, 0-9 and -, beginning with a letter"
    )]
    Name {
        /// The name, cut to 64 characters.
        name: String,
    },
    /// There is no cluster of this name.
    #[error(
        "no cluster has the name `{name}` here{}: correct the name, or let the first process create it",
        there_are(known)
    )]
    Unknown {
        /// The name.
        name: String,
        /// The names that there are, as far as the store can tell.
        known: Vec<String>,
    },
    /// The cluster was made by another version of Throng.
    #[error(
        "the cluster `{name}` has a directory of version {found}, and this program needs {DIRECTORY_VERSION}: use one version of Throng in a cluster"
    )]
    Version {
        /// The name.
        name: String,
        /// The version in the store.
        found: u16,
    },
    /// Another cluster has the name.
    #[error(
        "the name `{name}` belongs to another cluster (id {found:016x}, and ours is {ours:016x}): give one of them another name"
    )]
    Taken {
        /// The name.
        name: String,
        /// The id in the store.
        found: u64,
        /// Our id.
        ours: u64,
    },
    /// The entry is none of Throng's.
    #[error("the key `{KEY}` of the cluster `{name}` was not written by Throng: choose another name")]
    Foreign {
        /// The name.
        name: String,
    },
    /// The store did not answer.
    #[error("the store of the cluster `{name}` did not answer in {ATTEMPTS_MAX} attempts: check the server's log")]
    NoAnswer {
        /// The name.
        name: String,
    },
}

impl ClusterError {
    /// A stable word for each kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            ClusterError::Name { .. } => "name",
            ClusterError::Unknown { .. } => "unknown",
            ClusterError::Version { .. } => "version",
            ClusterError::Taken { .. } => "taken",
            ClusterError::Foreign { .. } => "foreign",
            ClusterError::NoAnswer { .. } => "no_answer",
        }
    }
}

fn there_are(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!("; there are {}", known.join(", ")) }
}

impl Cluster {
    /// Checks a name.
    ///
    /// # Errors
    /// If it cannot be a part of a subject.
    pub fn new(name: &str, id: u64) -> Result<Cluster, ClusterError> {
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        if !begins || name.len() > CLUSTER_NAME_BYTES_MAX || !name.bytes().all(is_allowed) {
            return Err(ClusterError::Name { name: name.escape_debug().take(64).collect() });
        }
        Ok(Cluster { name: name.to_owned(), id })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Compares the entry of a cluster with ours.
    ///
    /// # Errors
    /// If it is of another version or cluster, or cannot be read.
    pub fn compare(&self, value: &[u8]) -> Result<(), ClusterError> {
        let name = self.name.clone();
        let rest = value.strip_prefix(MAGIC).and_then(|rest| rest.split_first_chunk::<2>());
        let Some((version, id)) = rest else { return Err(ClusterError::Foreign { name }) };
        let found = u16::from_le_bytes(*version);
        if found != DIRECTORY_VERSION {
            return Err(ClusterError::Version { name, found });
        }
        let Ok(id) = <[u8; 8]>::try_from(id) else { return Err(ClusterError::Foreign { name }) };
        let found = u64::from_le_bytes(id);
        if found != self.id {
            return Err(ClusterError::Taken { name, found, ours: self.id });
        }
        Ok(())
    }

    /// The entry of this cluster.
    pub fn value(&self) -> Bytes {
        let mut value = BytesMut::new();
        value.extend_from_slice(MAGIC);
        value.extend_from_slice(&DIRECTORY_VERSION.to_le_bytes());
        value.extend_from_slice(&self.id.to_le_bytes());
        value.freeze()
    }
}

/// The first thing that a member does: compares its settings with the store, or writes them there if it may create the
/// cluster.
#[derive(Debug)]
pub struct Joining {
    cluster: Cluster,
    creates: bool,
    tickets: Tickets,
    key: Subject,
    open: Option<Ticket>,
    next: Step,
    attempts: u8,
    is_connected: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Look,
    Create,
    Wait,
}

impl Joining {
    /// Begins. `creates` says whether the cluster is made if there is none.
    ///
    /// # Panics
    /// Never: the key is a valid name.
    pub fn new(cluster: Cluster, creates: bool, desk: u16) -> Joining {
        let key = Subject::new(KEY).expect("the key is a valid name");
        let tickets = Tickets::new(desk);
        Joining { cluster, creates, tickets, key, open: None, next: Step::Look, attempts: 0, is_connected: false }
    }

    /// Takes an event of the bus. The result, once there is one.
    pub fn handle_event(&mut self, event: &Event) -> Option<Result<(), ClusterError>> {
        match event {
            Event::Connected => self.is_connected = true,
            Event::Disconnected => self.is_connected = false,
            Event::Got { ticket, result } if self.open == Some(*ticket) => {
                self.open = None;
                return match result {
                    Ok(Some(entry)) => Some(self.cluster.compare(&entry.value)),
                    Ok(None) if self.creates => {
                        self.next = Step::Create;
                        None
                    }
                    Ok(None) => Some(Err(ClusterError::Unknown { name: self.cluster.name.clone(), known: Vec::new() })),
                    Err(_) => self.again(),
                };
            }
            Event::Written { ticket, result } if self.open == Some(*ticket) => {
                self.open = None;
                return match result {
                    Ok(_) => Some(Ok(())),
                    Err(StoreError::Refused | StoreError::Unknown | StoreError::Full) => self.again(),
                };
            }
            _ => {}
        }
        None
    }

    /// The next command for the bus. If the bus refuses it, call [`Joining::handle_refusal`].
    pub fn poll_command(&mut self) -> Option<Command> {
        if !self.is_connected || self.next == Step::Wait {
            return None;
        }
        let ticket = self.tickets.issue();
        self.open = Some(ticket);
        let key = self.key.clone();
        Some(match std::mem::replace(&mut self.next, Step::Wait) {
            Step::Create => {
                Command::Put { ticket, key, value: self.cluster.value(), expect: Expect::Absent, lives_for: None }
            }
            _ => Command::Get { ticket, key },
        })
    }

    /// Says that the bus refused the command that was polled last: it comes again. That is no attempt, so poll no more in this pass.
    pub fn handle_refusal(&mut self, command: &Command) {
        self.open = None;
        self.next = if matches!(command, Command::Put { .. }) { Step::Create } else { Step::Look };
    }

    fn again(&mut self) -> Option<Result<(), ClusterError>> {
        self.attempts += 1;
        self.next = Step::Look;
        let is_over = self.attempts >= ATTEMPTS_MAX;
        is_over.then(|| Err(ClusterError::NoAnswer { name: self.cluster.name.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_setting_is_one_line_that_names_the_next_step() {
        let ours = Cluster::new("live", 1).unwrap();
        let mut future = ours.value().to_vec();
        future[6] = 9;
        let errors = [
            (Cluster::new("Live.eu", 1).unwrap_err(), "name", "use 1 to 32 characters"),
            (Cluster::new("", 1).unwrap_err(), "name", "use 1 to 32 characters"),
            (Cluster::new("a\n", 1).unwrap_err(), "name", "use 1 to 32 characters"),
            (ours.compare(&future).unwrap_err(), "version", "one version of Throng"),
            (ours.compare(&Cluster::new("live", 2).unwrap().value()).unwrap_err(), "taken", "another name"),
            (ours.compare(b"hello").unwrap_err(), "foreign", "choose another name"),
            (ours.compare(&ours.value()[..12]).unwrap_err(), "foreign", "choose another name"),
            (
                ClusterError::Unknown { name: "liev".to_owned(), known: vec!["live".to_owned()] },
                "unknown",
                "there are live: correct the name",
            ),
        ];
        for (error, tag, step) in errors {
            let text = error.to_string();
            assert_eq!(error.tag(), tag);
            assert!(text.contains(step) && !text.contains('\n'), "{text}");
        }
        assert_eq!(ours.compare(&ours.value()), Ok(()));
    }
}
