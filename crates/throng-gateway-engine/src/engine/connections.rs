//! The connections, by their place, their key and their number in the protocol; and what is to be done for them at the end
//! of the step.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};
use throng_channeld::Header;
use throng_wire::ConnectionId;

use super::absent;
use super::connection::Connection;
use super::counters::Counters;
use super::place::{Place, Table, Walk};
use super::port::{EndCause, Key, Notice};
use super::writers::GATEWAY;
use crate::settings::EngineSettings;

/// Notices that wait to be polled. Beyond, they are left out; what they tell of is counted.
const NOTICES_MAX: usize = 256;

/// All connections of an engine.
pub(super) struct Connections {
    /// By index in the hub.
    table: Table<Place, Connection>,
    by_id: FxHashMap<u32, Place>,
    next_id: u32,
    next_writer: u32,
    random: fastrand::Rng,
    /// Connections with something queued.
    dirty: FxHashSet<Place>,
    /// Connections that are to be ended at the end of the step.
    ending: Vec<(Key, EndCause)>,
    notices: VecDeque<Notice>,
}

impl Connections {
    /// None so far. `seed` decides their numbers.
    pub(super) fn new(settings: &EngineSettings, seed: u64) -> Connections {
        Connections {
            table: Table::new(absent::connection(settings)),
            by_id: FxHashMap::default(),
            next_id: 1,
            next_writer: 0,
            random: fastrand::Rng::with_seed(seed),
            dirty: FxHashSet::default(),
            ending: Vec::new(),
            notices: VecDeque::new(),
        }
    }

    pub(super) fn get(&self, at: Place) -> Option<&Connection> {
        self.table.get(at)
    }

    pub(super) fn get_mut(&mut self, at: Place) -> Option<&mut Connection> {
        self.table.get_mut(at)
    }

    /// One that is there. If it is not, that is [counted](Self::take_absences).
    pub(super) fn at(&self, at: Place) -> &Connection {
        self.table.at(at)
    }

    pub(super) fn at_mut(&mut self, at: Place) -> &mut Connection {
        self.table.at_mut(at)
    }

    /// How many were missing since the last time.
    pub(super) fn take_absences(&mut self) -> u64 {
        self.table.take_absences()
    }

    /// The one with this key, unless it has ended.
    pub(super) fn place(&self, key: Key) -> Option<Place> {
        let connection = self.table.get(Place::of(key))?;
        (connection.key == key).then_some(connection.place())
    }

    /// The hub's name of a connection.
    pub(super) fn hub_id(&self, at: Place) -> ConnectionId {
        self.at(at).hub_id()
    }

    /// The one with this number in the protocol.
    pub(super) fn find(&self, id: u32) -> Option<Place> {
        self.by_id.get(&id).copied()
    }

    /// The same, if it had logged in.
    pub(super) fn find_member(&self, id: u32) -> Option<Place> {
        self.find(id).filter(|&at| self.at(at).is_member())
    }

    /// How many have a number in the protocol.
    pub(super) fn numbered(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.table.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.table.iter_mut()
    }

    /// For a walk past some of them, in the order of their places.
    pub(super) fn walk_mut(&mut self) -> Walk<'_, Connection> {
        self.table.walk_mut()
    }

    /// Number of places so far.
    pub(super) fn slot_count(&self) -> usize {
        self.table.slot_count()
    }

    /// The one at this place.
    pub(super) fn nth(&self, number: usize) -> Option<&Connection> {
        self.table.nth(number)
    }

    /// Adds one that has no number in the protocol yet.
    pub(super) fn add_unnumbered(&mut self, connection: Connection) {
        self.table.put(connection.place(), connection);
    }

    /// Adds one under its number in the protocol.
    pub(super) fn add(&mut self, connection: Connection) {
        self.by_id.insert(connection.id, connection.place());
        self.add_unnumbered(connection);
    }

    /// Gives one another number in the protocol.
    pub(super) fn renumber(&mut self, at: Place, id: u32) {
        let former = std::mem::replace(&mut self.at_mut(at).id, id);
        if self.find(former) == Some(at) {
            self.by_id.remove(&former);
        }
        self.by_id.insert(id, at);
    }

    /// Takes one out.
    pub(super) fn take(&mut self, at: Place) -> Option<Box<Connection>> {
        let connection = self.table.take(at)?;
        if self.find(connection.id) == Some(at) {
            self.by_id.remove(&connection.id);
        }
        self.dirty.remove(&at);
        Some(connection)
    }

    /// The numbers that were given out last: of writers, and of connections.
    pub(super) fn last_numbers(&self) -> (u32, u32) {
        (self.next_writer, self.next_id)
    }

    /// After a restart: numbers begin after these.
    pub(super) fn begin_after(&mut self, (writer, id): (u32, u32)) {
        (self.next_writer, self.next_id) = (writer, id);
    }

    /// A number for what a connection writes, that no other had in the last four billion.
    pub(super) fn free_writer(&mut self) -> u32 {
        self.next_writer = (self.next_writer + 1) % GATEWAY;
        self.next_writer
    }

    /// An unused number in the protocol, one after the other or at random. The caller knows that there is one below
    /// `mask`.
    pub(super) fn free_id(&mut self, mask: u32, in_order: bool, is_taken: impl Fn(u32) -> bool) -> u32 {
        loop {
            let id = match in_order {
                true => {
                    self.next_id = (self.next_id + 1) & mask;
                    self.next_id.wrapping_sub(1) & mask
                }
                false => self.random.u32(..) & mask,
            };
            if id != 0 && !self.by_id.contains_key(&id) && !is_taken(id) {
                return id;
            }
        }
    }

    /// Queues a message.
    pub(super) fn send(&mut self, counters: &mut Counters, to: Place, header: Header, body: &impl prost::Message) {
        if let Some(connection) = self.table.get_mut(to) {
            connection.send(header, body);
            counters.side(connection.side).messages_out += 1;
            self.dirty.insert(to);
        }
    }

    /// The same on behalf of `from`: messages that clients cause for a connection are counted.
    pub(super) fn send_from(
        &mut self,
        counters: &mut Counters,
        (from, to): (Place, Place),
        header: Header,
        body: &impl prost::Message,
    ) {
        let is_client = self.get(from).is_some_and(|from| !from.is_server());
        let before = self.get(to).map_or(0, |to| to.out_bytes());
        self.send(counters, to, header, body);
        if let Some(connection) = self.get_mut(to).filter(|_| is_client) {
            let bytes = connection.out_bytes().saturating_sub(before);
            connection.from_clients.add(bytes);
        }
    }

    /// Something is queued for it: it goes out at the end of the step.
    pub(super) fn put_dirty(&mut self, at: Place) {
        self.dirty.insert(at);
    }

    pub(super) fn is_dirty(&self, at: Place) -> bool {
        self.dirty.contains(&at)
    }

    /// Does something for each connection with something queued; it has nothing queued then.
    pub(super) fn for_each_dirty(&mut self, mut flush: impl FnMut(&mut Connection)) {
        for at in self.dirty.drain() {
            if let Some(connection) = self.table.get_mut(at) {
                flush(connection);
            }
        }
    }

    /// Ends a connection at the end of the step. The first cause counts.
    pub(super) fn end_for(&mut self, key: Key, cause: EndCause) {
        let Some(at) = self.place(key) else { return };
        if !std::mem::replace(&mut self.at_mut(at).is_ending, true) {
            self.ending.push((key, cause));
        }
    }

    /// The same, because it is to go.
    pub(super) fn dismiss(&mut self, key: Key) {
        self.end_for(key, EndCause::Ours);
    }

    /// The last of those that are to be ended.
    pub(super) fn take_ending(&mut self) -> Option<(Key, EndCause)> {
        self.ending.pop()
    }

    /// Leaves a note about a connection for the log.
    pub(super) fn notice(&mut self, at: Place, identifier: String, reason: &'static str) {
        if self.notices.len() < NOTICES_MAX {
            let Connection { side, address, id, .. } = *self.at(at);
            self.notices.push_back(Notice { side, address, connection: id, identifier, reason });
        }
    }

    /// The next note.
    pub(super) fn take_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}
