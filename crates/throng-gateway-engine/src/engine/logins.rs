//! Logins: connections that have not logged in yet, the bearers of names, and names that are refused.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use throng_wire::Time;

use super::blocked::Blocked;
use super::connection::Connection;
use super::port::{AuthRequest, Key, Side};

/// All that is known about logins.
#[derive(Default)]
pub(super) struct Logins {
    /// Connections that have not logged in, with their deadlines.
    strangers: BTreeSet<(Time, Key)>,
    /// The connection of each name: the last one of a name. Hashed with the standard library's keyed hash: peers choose
    /// their names.
    bearers: HashMap<(Side, String), Key>,
    /// Questions to the authentication provider.
    requests: VecDeque<AuthRequest>,
    /// Banned names.
    pub(super) blocked: Blocked,
}

impl Logins {
    /// Closes a connection unless it logs in in time.
    pub(super) fn begin_patience(&mut self, connection: &mut Connection, now: Time, patience: Option<Duration>) {
        let Some(patience) = patience else { return };
        let end = now.after(patience);
        connection.patience_end = Some(end);
        self.strangers.insert((end, connection.key));
    }

    /// Takes that back. The remaining time to log in.
    pub(super) fn stop_patience(&mut self, connection: &mut Connection, now: Time) -> Option<Duration> {
        let end = connection.patience_end.take()?;
        self.strangers.remove(&(end, connection.key));
        Some(end.since(now))
    }

    /// When the first of those who have not logged in is closed.
    pub(super) fn next_end(&self) -> Option<Time> {
        self.strangers.first().map(|&(end, _)| end)
    }

    /// One that has not logged in in time.
    pub(super) fn take_late(&mut self, now: Time) -> Option<Key> {
        self.strangers.first().filter(|&&(end, _)| end <= now)?;
        self.strangers.pop_first().map(|(_, key)| key)
    }

    /// A connection has logged in, and bears its name from now on.
    pub(super) fn admit(&mut self, connection: &Connection) {
        if !connection.identifier.is_empty() {
            self.bearers.insert((connection.side, connection.identifier.clone()), connection.key);
        }
    }

    /// The last connection of this name.
    pub(super) fn bearer(&self, name: &(Side, String)) -> Option<Key> {
        self.bearers.get(name).copied()
    }

    /// All names that somebody bears, in no particular order.
    pub(super) fn names(&self) -> impl Iterator<Item = &(Side, String)> {
        self.bearers.keys()
    }

    /// A connection has ended. Its name is gone then.
    pub(super) fn forget(&mut self, connection: &mut Connection) {
        if !connection.identifier.is_empty() {
            let name = (connection.side, std::mem::take(&mut connection.identifier));
            if self.bearers.get(&name) == Some(&connection.key) {
                self.bearers.remove(&name);
            }
        }
        if let Some(end) = connection.patience_end {
            self.strangers.remove(&(end, connection.key));
        }
    }

    /// The provider is to be asked.
    pub(super) fn ask(&mut self, request: AuthRequest) {
        self.requests.push_back(request);
    }

    /// The next question to it.
    pub(super) fn take_request(&mut self) -> Option<AuthRequest> {
        self.requests.pop_front()
    }
}
