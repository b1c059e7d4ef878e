//! A home's side of its [edges](crate::edge): their clients, and what they copy.
//!
//! ```text
//!  connection of a client   --- entries, end ------------+
//!  subscriptions of it      --- reads, reads not ----+   |
//!  a channel that it reads  --- changes, once -----+ |   |
//!                                                  v v   v
//!                                   one frame for each edge, at the end of the step: first what clients are sent
//! ```
//!
//! In the home's hub, a subscription of an edge's client only takes a number: it has its turns at the edge. The edge is sent a
//! channel's changes in each tick in which one of its readers has a turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use prost::Message as _;
use rustc_hash::FxHashMap;
use throng_channeld::{Messages, Packets};
use throng_replica::ChannelIndex;
use throng_wire::{Tick, Time};

use super::Engine;
use super::channel::{Access, Channel, Wanted};
use super::channels::Channels;
use super::connection::{Behind, Connection};
use super::fanout::Fanout;
use super::place::Place;
use super::port::{EndCause, Key, LoginNote, Outbox, Side};
use super::refusal::Refusal;
use crate::edge::records::{
    CHANGES, DOWN, ENTRIES, FIRST_TURN, FrameField, FrameFields, IS_LAST, Records, TURN, UP, UP_IS_LAST, begin_bytes,
    bytes_len, nonzero_len, put_nonzero, put_number,
};
use crate::edge::{
    Down, EdgeFault, EdgeKey, EdgeOutbox, FRAME_FULL_BYTES, RECORD_FULL_BYTES, TURN_MAX_TICKS, Up, down, up,
};
use throng_protostate::{MergeOptions, put_varint, varint_len};

/// The clients of this engine's edges, and the copies of its channels there.
#[derive(Default)]
pub(super) struct Edges {
    rows: BTreeMap<EdgeKey, Edge>,
    next_key: u32,
    copies: Copies,
    comings: VecDeque<Coming>,
}

/// One edge.
struct Edge {
    outbox: Box<dyn EdgeOutbox>,
    /// The entries for its clients.
    entries: Arc<Mutex<Records>>,
    /// Everything else.
    others: Records,
    /// By the edge's numbers. A client stays until the edge says that it is gone.
    clients: FxHashMap<u64, Key>,
    /// Copies of channels that have changed, by when they are told.
    due: BTreeSet<(Tick, ChannelIndex)>,
    /// The first and the last turn that copies were told of in this step.
    turns: Option<(Tick, Tick)>,
}

/// The copies of each channel, by its index: every change of a channel asks for them.
#[derive(Default)]
struct Copies {
    by_channel: Vec<Vec<Copy>>,
}

impl Copies {
    fn all(&mut self, index: ChannelIndex) -> &mut [Copy] {
        self.by_channel.get_mut(index.number()).map_or(&mut [], |copies| copies)
    }

    fn get(&self, index: ChannelIndex, edge: EdgeKey) -> Option<&Copy> {
        self.by_channel.get(index.number())?.iter().find(|copy| copy.edge == edge)
    }

    fn get_mut(&mut self, index: ChannelIndex, edge: EdgeKey) -> Option<&mut Copy> {
        self.all(index).iter_mut().find(|copy| copy.edge == edge)
    }

    fn get_or_add(&mut self, index: ChannelIndex, edge: EdgeKey) -> &mut Copy {
        if self.by_channel.len() <= index.number() {
            self.by_channel.resize_with(index.number() + 1, Vec::new);
        }
        let copies = &mut self.by_channel[index.number()];
        let place = copies.iter().position(|copy| copy.edge == edge).unwrap_or_else(|| {
            copies.push(Copy::new(edge));
            copies.len() - 1
        });
        &mut copies[place]
    }

    fn remove(&mut self, index: ChannelIndex, edge: EdgeKey) -> Option<Copy> {
        let copies = self.by_channel.get_mut(index.number())?;
        let place = copies.iter().position(|copy| copy.edge == edge)?;
        let copy = copies.swap_remove(place);
        if copies.is_empty() {
            *copies = Vec::new();
        }
        Some(copy)
    }

    /// An edge is gone, with all its copies.
    fn remove_edge(&mut self, edge: EdgeKey) {
        for copies in &mut self.by_channel {
            copies.retain(|copy| copy.edge != edge);
            if copies.is_empty() {
                *copies = Vec::new();
            }
        }
    }
}

/// A copy of a channel at an edge.
struct Copy {
    edge: EdgeKey,
    /// Everything up to this tick was sent. `None`: nothing.
    point: Option<Tick>,
    /// The facts about merging and turns that the edge was told, and the type of the state.
    facts: Option<(MergeOptions, u32, u64)>,
    type_url: String,
    readers: FxHashMap<Place, Rhythm>,
    /// How many readers have it.
    rhythms: BTreeMap<Rhythm, u32>,
    due: Option<Tick>,
    /// The first change since it was told has made it due, and further ones need not.
    is_woken: bool,
    /// The updates since `point` and their writers, in order, if they are all that has changed and not too many.
    updates: Option<Vec<(u32, Bytes)>>,
    update_bytes: usize,
    /// Something was dropped when one of them was merged.
    has_dropped: bool,
}

/// When a reader has its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rhythm {
    interval: u64,
    /// Its turns are at this tick plus any number of intervals.
    phase: u64,
}

impl Rhythm {
    fn new(interval_ms: u32, anchor: Tick) -> Rhythm {
        let interval = u64::from(interval_ms.max(1));
        Rhythm { interval, phase: anchor.0 % interval }
    }

    /// The first turn at or after `now`, moved up to the channel's grid: as the hub counts turns.
    fn turn(self, now: Tick, grid: u64) -> Tick {
        let before = now.0.saturating_sub(1);
        let passed = before - before % grid;
        let beyond = (passed + self.interval - self.phase) % self.interval;
        Tick((passed + self.interval - beyond).next_multiple_of(grid))
    }
}

/// The first of some turns; or one of them that is not after `bound`, which ends the search.
fn earliest(turns: impl IntoIterator<Item = Tick>, bound: Tick) -> Option<Tick> {
    let mut first = None;
    for turn in turns {
        if first.is_none_or(|first| turn < first) {
            first = Some(turn);
        }
        if turn <= bound {
            break;
        }
    }
    first
}

/// Clients that are sent the same, by edge.
pub(super) type AtEdges = BTreeMap<EdgeKey, Vec<u64>>;

/// A client of an edge has come, or is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coming {
    /// It has come.
    Opened {
        /// Its connection.
        key: Key,
        /// Where it comes from.
        address: SocketAddr,
    },
    /// It is gone.
    Closed {
        /// Its connection.
        key: Key,
        /// Why.
        cause: EndCause,
    },
}

/// Where the entries of an edge's client go.
struct ClientOutbox {
    client: u64,
    entries: Arc<Mutex<Records>>,
}

impl ClientOutbox {
    fn push(&self, what: down::What) {
        lock(&self.entries).push(&Down { client: self.client, what: Some(what) });
    }
}

impl Outbox for ClientOutbox {
    /// The edge looks after that.
    fn queued_bytes(&self) -> usize {
        0
    }

    fn send(&self, entries: &mut Vec<u8>) {
        let put = |some: &[u8]| {
            lock(&self.entries).push_bytes(self.client, ENTRIES, some.len(), |out| out.extend_from_slice(some));
        };
        match entries.len() <= RECORD_FULL_BYTES {
            true => put(entries),
            false => Packets::new(entries, RECORD_FULL_BYTES).for_each(put),
        }
        entries.clear();
    }

    fn note_login(&self, note: LoginNote) {
        self.push(down::What::Login(note as u32));
    }

    fn close(&self) {
        self.push(down::What::Close(false));
    }

    fn abandon(&self) {
        self.push(down::What::Close(true));
    }
}

fn lock(entries: &Mutex<Records>) -> std::sync::MutexGuard<'_, Records> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While so many bytes wait for an edge, its copies are told nothing new.
const QUEUE_SOFT_BYTES: usize = 4 << 20;
/// With so many, the path is closed.
const QUEUE_HARD_BYTES: usize = 64 << 20;
/// Bytes of updates that are kept for a copy between two turns.
const UPDATES_MAX_BYTES: usize = 256 << 10;
/// Subscriptions that are looked at for each message that may wait for state.
const LOOK_MAX: usize = 32;
/// When a copy that was told nothing for that reason has its next turn.
const SLOW_TICKS: u32 = 50;

/// Bytes of the turns and the end of a frame, at most.
const TURNS_BYTES: usize = 24;

impl Edges {
    /// The first tick at which the home sends changes to a copy.
    pub(super) fn next_due(&self) -> Option<Tick> {
        self.rows.values().filter_map(|row| row.due.first()).map(|&(tick, _)| tick).min()
    }

    /// An edge has come.
    fn add(&mut self, outbox: Box<dyn EdgeOutbox>) -> EdgeKey {
        let key = EdgeKey(self.next_key);
        self.next_key = self.next_key.wrapping_add(1);
        let edge = Edge {
            outbox,
            entries: Arc::new(Mutex::new(Records::new(DOWN))),
            others: Records::new(DOWN),
            clients: FxHashMap::default(),
            due: BTreeSet::new(),
            turns: None,
        };
        self.rows.insert(key, edge);
        key
    }

    /// An edge has gone. Returns its clients.
    fn remove(&mut self, key: EdgeKey) -> Vec<Key> {
        let Some(edge) = self.rows.remove(&key) else { return Vec::new() };
        self.copies.remove_edge(key);
        let mut clients: Vec<Key> = edge.clients.into_values().collect();
        clients.sort_unstable();
        clients
    }

    fn client_of(&self, key: EdgeKey, client: u64) -> Option<Key> {
        self.rows.get(&key)?.clients.get(&client).copied()
    }

    /// Tells the edge of a client that has logged in.
    pub(super) fn tell_admitted(&self, connection: &Connection) {
        let admitted = down::Admitted { connection: connection.id, writer: connection.writer };
        let Some(Behind { edge, client }) = connection.behind else { return };
        if let Some(edge) = self.rows.get(&edge) {
            lock(&edge.entries).push(&Down { client, what: Some(down::What::Admitted(admitted)) });
        }
    }

    /// A client reads a channel from now on, if it is one of an edge. The edge has to know everything that was written so
    /// far: what the client itself wrote is not told to it later.
    pub(super) fn begin_read(
        &mut self,
        reader: &Connection,
        (index, channel): (ChannelIndex, &Channel),
        (wanted, anchor, changes): (Wanted, Tick, bool),
        fanout: &Fanout,
    ) {
        let Some(Behind { edge, client }) = reader.behind.filter(|_| wanted.access != Access::None) else { return };
        let rhythm = Rhythm::new(wanted.interval_ms, anchor);
        let reads = down::Reads {
            begins_with_changes: changes,
            masks: fanout.forms.paths(wanted.variant).to_vec(),
            ..reads_of(channel.id, wanted, anchor)
        };
        let Some(row) = self.rows.get_mut(&edge) else { return };
        let copy = self.copies.get_or_add(index, edge);
        copy.add(reader.place(), rhythm);
        row.tell_copy(copy, (index, channel), fanout);
        row.push(client, down::What::Reads(reads));
        // Its first turn may be none of the others: what it writes until then is in its first state.
        let now = fanout.hub.now();
        let first = anchor.after(wanted.interval_ms);
        let first = if first.is_newer_than(now) { rhythm.turn(first, channel.turn_grid()) } else { now.after(1) };
        row.put_due(copy, index, first);
    }

    /// It reads it at other intervals, or on another way. `tick` is the present one, `change_tick` that of changes made now.
    pub(super) fn change_read(
        &mut self,
        reader: &Connection,
        (index, channel): (ChannelIndex, &Channel),
        wanted: Wanted,
        (tick, change_tick): (Tick, Tick),
    ) {
        let Some(Behind { edge, client }) = reader.behind else { return };
        let Some(row) = self.rows.get_mut(&edge) else { return };
        let Some(copy) = self.copies.get_mut(index, edge) else { return };
        let Some(&former) = copy.readers.get(&reader.place()) else { return };
        // The new turns are counted from the last of the former ones.
        let last = tick.before(((tick.0 + former.interval - former.phase) % former.interval) as u32);
        let rhythm = Rhythm::new(wanted.interval_ms, last);
        copy.remove(reader.place());
        copy.add(reader.place(), rhythm);
        row.push(client, down::What::ReadsOtherwise(reads_of(channel.id, wanted, last)));
        row.put_due(copy, index, rhythm.turn(change_tick, channel.turn_grid()));
    }

    /// It does not read it any more.
    pub(super) fn end_read(&mut self, reader: &Connection, (index, channel): (ChannelIndex, &Channel)) {
        let Some(Behind { edge, client }) = reader.behind else { return };
        let Some(row) = self.rows.get_mut(&edge) else { return };
        let Some(copy) = self.copies.get_mut(index, edge) else { return };
        if !copy.remove(reader.place()) {
            return;
        }
        let is_last = copy.readers.is_empty();
        row.push(client, down::What::ReadsNot(channel.id));
        if is_last {
            self.drop_copy(edge, index, channel.id);
        }
    }

    /// A channel is removed.
    pub(super) fn forget(&mut self, index: ChannelIndex, id: u32) {
        while let Some(edge) = self.copies.all(index).first().map(|copy| copy.edge) {
            self.drop_copy(edge, index, id);
        }
    }

    fn drop_copy(&mut self, edge: EdgeKey, index: ChannelIndex, id: u32) {
        let Some(copy) = self.copies.remove(index, edge) else { return };
        let Some(row) = self.rows.get_mut(&edge) else { return };
        if let Some(due) = copy.due {
            row.due.remove(&(due, index));
        }
        row.push(0, down::What::Forget(id));
    }

    /// A channel has changed: each edge with a copy gets the changes at the next turn of one of the copy's readers.
    pub(super) fn wake(&mut self, (index, channel): (ChannelIndex, &Channel), change_tick: Tick) {
        let grid = channel.turn_grid();
        // After the first change a copy is due at the first turn of them all.
        for copy in self.copies.all(index).iter_mut().filter(|copy| !copy.is_woken) {
            let Some(row) = self.rows.get_mut(&copy.edge) else { continue };
            copy.is_woken = true;
            // A turn that is late takes this change along, as it does without an edge.
            let from = row.due.first().map_or(change_tick, |&(due, _)| due.min(change_tick));
            let turns = copy.rhythms.keys().map(|rhythm| rhythm.turn(from, grid));
            let Some(turn) = earliest(turns, Tick(from.0.next_multiple_of(grid))) else { continue };
            row.put_due(copy, index, turn);
        }
    }

    /// A channel was changed by an update; `None`: by the gateway itself. Changes are told as they are put together, which
    /// says who wrote what only if no two have written to one thing: then updates are told as they came. `has_dropped`: some values found
    /// no room, or took that of others.
    pub(super) fn note_update(&mut self, index: ChannelIndex, update: Option<(u32, &Bytes)>, has_dropped: bool) {
        for copy in self.copies.all(index) {
            copy.has_dropped |= has_dropped;
            match (&mut copy.updates, update) {
                (Some(updates), Some((writer, value))) if copy.update_bytes < UPDATES_MAX_BYTES => {
                    copy.update_bytes += value.len() + size_of::<(u32, Bytes)>();
                    updates.push((writer, value.clone()));
                }
                _ => copy.updates = None,
            }
        }
    }

    /// Sends entries to all that were noted: once to each edge.
    pub(super) fn send_to_many(&self, at_edges: AtEdges, entries: &[u8]) {
        for (edge, mut clients) in at_edges {
            if let Some(row) = self.rows.get(&edge) {
                clients.sort_unstable();
                let many = down::ToMany { clients, entries: Bytes::copy_from_slice(entries) };
                lock(&row.entries).push(&Down { client: 0, what: Some(down::What::ToMany(many)) });
            }
        }
    }

    /// When a client of an edge has its next turn in a channel that has changed, as far as its first channels show. A turn with the
    /// first changes that the edge is sent is soon enough.
    pub(super) fn next_for(
        &self,
        reader: &Connection,
        channels: &Channels,
        fanout: &Fanout,
        now: Tick,
    ) -> Option<Tick> {
        let edge = reader.behind?.edge;
        let &(first, _) = self.rows.get(&edge)?.due.first()?;
        let turn = |index: ChannelIndex| {
            let copy = self.copies.get(index, edge).filter(|copy| copy.due.is_some())?;
            Some(copy.readers.get(&reader.place())?.turn(now, channels.at(index).turn_grid()))
        };
        earliest(fanout.hub.channels_of(reader.hub_id()).take(LOOK_MAX).filter_map(turn), first.newest(now))
    }

    /// Sends the changes to the copies that are due; to all copies with changes, if `is_last`.
    pub(super) fn tell_copies(&mut self, channels: &Channels, fanout: &Fanout, (tick, is_last): (Tick, bool)) {
        for (&edge, row) in &mut self.rows {
            let is_slow = !is_last && row.outbox.queued_bytes() > QUEUE_SOFT_BYTES;
            let mut due = Vec::new();
            let first_turn = row.due.first().map_or(tick, |&(turn, _)| turn);
            while let Some(&(turn, index)) = row.due.first()
                && (is_last || turn <= tick)
            {
                row.due.pop_first();
                due.push(index);
            }
            for &index in &due {
                let later = is_slow.then(|| tick.after(SLOW_TICKS));
                if let Some(copy) = self.copies.get_mut(index, edge) {
                    (copy.due, copy.is_woken) = (later, is_slow);
                    row.due.extend(later.map(|later| (later, index)));
                }
            }
            if !is_slow && !due.is_empty() {
                row.turns = Some((first_turn.clamp(tick.before(TURN_MAX_TICKS), tick), tick));
                for index in due {
                    if let Some(copy) = self.copies.get_mut(index, edge) {
                        row.tell_copy(copy, (index, channels.at(index)), fanout);
                    }
                }
            }
        }
    }

    /// Sends an edge the changes of all channels, also out of turn, and everything else for it.
    fn send_the_last(&mut self, edge: EdgeKey, channels: &Channels, fanout: &Fanout) {
        let Some(row) = self.rows.get_mut(&edge) else { return };
        while let Some((_, index)) = row.due.pop_first() {
            if let Some(copy) = self.copies.get_mut(index, edge) {
                (copy.due, copy.is_woken) = (None, false);
                row.tell_copy(copy, (index, channels.at(index)), fanout);
            }
        }
        row.send(true);
    }

    /// Hands each edge what there is to say, as frames.
    pub(super) fn send(&mut self, is_last: bool) {
        if self.rows.is_empty() {
            return;
        }
        for row in self.rows.values_mut() {
            row.send(is_last);
        }
    }
}

impl Engine {
    /// An edge has come.
    pub fn open_edge(&mut self, now: Time, outbox: Box<dyn EdgeOutbox>) -> EdgeKey {
        self.clock.set(now);
        self.edges.add(outbox)
    }

    /// The tick that an edge has to begin with.
    pub fn edge_tick(&self, now: Time) -> u64 {
        self.clock.tick_at(now).0
    }

    /// A hash of what a home and its edges have to agree on: the types of channels and of their states.
    pub fn edge_settings(&self) -> u64 {
        let text = format!("{:?} {:x}", self.settings.channel_types, self.schemas.fingerprint());
        xxhash_rust::xxh3::xxh3_64(text.as_bytes())
    }

    /// The path to an edge is over: its clients are lost.
    pub fn close_edge(&mut self, now: Time, key: EdgeKey) {
        self.clock.set(now);
        for client in self.edges.remove(key) {
            self.edges.comings.push_back(Coming::Closed { key: client, cause: EndCause::Lost });
            self.closed(now, client, EndCause::Lost);
        }
    }

    /// A frame of an edge has come.
    ///
    /// # Errors
    /// It is unsound. The path has to be closed.
    pub fn hear_edge(&mut self, now: Time, key: EdgeKey, frame: Bytes) -> Result<(), EdgeFault> {
        self.clock.set(now);
        let heard = self.hear_records(key, frame);
        if let (Err(fault), Some(edge)) = (heard, self.edges.rows.get(&key)) {
            edge.outbox.close(fault);
        }
        heard
    }

    fn hear_records(&mut self, key: EdgeKey, frame: Bytes) -> Result<(), EdgeFault> {
        let now = self.clock.now();
        let mut is_last = false;
        for field in FrameFields::new(UP, frame) {
            let record = match field? {
                FrameField::Record(record) => Up::decode(record).map_err(|_| EdgeFault::Malformed)?,
                FrameField::Number(UP_IS_LAST, value) => {
                    is_last = value != 0;
                    continue;
                }
                FrameField::Number(..) => continue,
            };
            match record.what.ok_or(EdgeFault::Malformed)? {
                up::What::Opened(address) => self.open_behind(key, record.client, &address)?,
                up::What::Said(entries) => {
                    let Some(client) = self.edges.client_of(key, record.client) else { continue };
                    for message in Messages::new(entries) {
                        self.receive(now, client, message.map_err(|_| EdgeFault::Malformed)?);
                    }
                }
                up::What::Closed(cause) => self.close_behind(key, record.client, cause),
            }
        }
        if is_last {
            self.let_go(key);
        }
        Ok(())
    }

    /// An edge ends: it is sent everything that waits for its clients, who may go on at another edge from now on.
    fn let_go(&mut self, key: EdgeKey) {
        let clients: Vec<Key> =
            self.edges.rows.get(&key).into_iter().flat_map(|row| row.clients.values().copied()).collect();
        for client in clients {
            if let Some(place) = self.connections.place(client) {
                let connection = self.connections.at_mut(place);
                let bytes = self.fanout.flush_one(connection);
                self.counters.side(connection.side).bytes_out += bytes as u64;
            }
        }
        self.edges.send_the_last(key, &self.channels, &self.fanout);
        self.close_edge(self.clock.now(), key);
    }

    /// The next client of an edge that has come or is gone. To be polled until `None`.
    pub fn poll_coming(&mut self) -> Option<Coming> {
        self.edges.comings.pop_front()
    }

    /// Number of edges, and of the clients that they have.
    pub fn edge_counts(&self) -> (usize, usize) {
        (self.edges.rows.len(), self.edges.rows.values().map(|edge| edge.clients.len()).sum())
    }

    fn open_behind(&mut self, key: EdgeKey, client: u64, address: &str) -> Result<(), EdgeFault> {
        let address: SocketAddr = address.parse().map_err(|_| EdgeFault::Client)?;
        let Some(edge) = self.edges.rows.get(&key) else { return Ok(()) };
        if edge.clients.contains_key(&client) {
            return Err(EdgeFault::Client);
        }
        let outbox = ClientOutbox { client, entries: Arc::clone(&edge.entries) };
        let is_full = edge.clients.len() >= self.settings.limits.max_connections as usize;
        let opened = match is_full {
            true => Err(self.counters.refuse(Refusal::Limit("connections"))),
            false => self.open(self.clock.now(), Side::Client, address, Box::new(outbox)),
        };
        let Some(edge) = self.edges.rows.get_mut(&key) else { return Ok(()) };
        match opened {
            Ok(connection) => {
                edge.clients.insert(client, connection);
                self.connections.at_mut(Place::of(connection)).behind = Some(Behind { edge: key, client });
                self.edges.comings.push_back(Coming::Opened { key: connection, address });
            }
            Err(_) => edge.push(client, down::What::Close(false)),
        }
        Ok(())
    }

    fn close_behind(&mut self, key: EdgeKey, client: u64, cause: i32) {
        let Some(connection) = self.edges.rows.get_mut(&key).and_then(|edge| edge.clients.remove(&client)) else {
            return;
        };
        let cause = EndCause::from(up::Cause::try_from(cause).unwrap_or(up::Cause::Lost));
        self.edges.comings.push_back(Coming::Closed { key: connection, cause });
        self.closed(self.clock.now(), connection, cause);
    }

    /// Whether a connection is a client of an edge; then it is noted as one of those that are sent the same. Everything
    /// that was queued for it before is on its way then.
    pub(super) fn note_at_edge(&mut self, index: Place, at_edges: &mut AtEdges) -> bool {
        let Some(connection) = self.connections.get_mut(index).filter(|connection| !connection.is_closing) else {
            return false;
        };
        let Some(Behind { edge, client }) = connection.behind else { return false };
        let side = connection.side;
        let bytes = self.fanout.flush_one(connection);
        self.counters.side(side).bytes_out += bytes as u64;
        self.counters.side(side).messages_out += 1;
        at_edges.entry(edge).or_default().push(client);
        true
    }
}

impl Edge {
    fn push(&mut self, client: u64, what: down::What) {
        self.others.push(&Down { client, what: Some(what) });
    }

    /// Sends the changes of a channel that its copy does not have.
    fn tell_copy(&mut self, copy: &mut Copy, (index, channel): (ChannelIndex, &Channel), fanout: &Fanout) {
        let turn_ticks = channel.settings.tick_interval_ms;
        let log = fanout.hub.state(index);
        let options = log.data().map_or_else(|| channel.merge_options(), |data| data.options());
        // Updates that were merged by other rules would become something else at the edge.
        let has_other_rules = copy.facts.is_some_and(|(told, ..)| told != options);
        let state_bytes = log.data().map_or(0, |data| data.state_bytes_limit() as u64);
        if copy.facts != Some((options, turn_ticks, state_bytes)) || copy.type_url != log.type_url() {
            copy.facts = Some((options, turn_ticks, state_bytes));
            log.type_url().clone_into(&mut copy.type_url);
            let facts = down::Channel {
                id: channel.id,
                kind: channel.kind.into(),
                replaces_lists: options.replace_lists,
                list_size_limit: options.list_size_limit,
                truncates_top: options.truncate_top,
                removes_map_entries: options.remove_map_entries,
                merges_map_entries: options.merge_map_entries,
                turn_ticks,
                state_bytes,
                type_url: copy.type_url.clone(),
            };
            self.others.push(&Down { client: 0, what: Some(down::What::Channel(facts)) });
        }
        if log.data().is_none() {
            // Nothing yet: all that comes is a change.
            copy.point = copy.point.or(Some(fanout.hub.now()));
            copy.begin_updates();
            return;
        }
        let is_exact = !has_other_rules && !copy.has_dropped;
        let updates = copy.begin_updates();
        let Some(changes) = log.changes_for_edge(copy.point, &fanout.forms, (updates, is_exact)) else { return };
        copy.point = Some(changes.point);
        let mut is_whole = changes.is_whole;
        let mut rest = &changes.values[..];
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |(_, value): &&(u32, Bytes)| {
                let begins = bytes < RECORD_FULL_BYTES;
                bytes += value.len();
                begins
            };
            let (some, others) = rest.split_at(rest.iter().take_while(fits).count());
            rest = others;
            let facts = (channel.id, std::mem::take(&mut is_whole));
            put_changes(&mut self.others, facts, some, &changes.repeated_fields);
        }
    }

    /// Hands over what there is to say, as frames.
    fn send(&mut self, is_last: bool) {
        let turns = self.turns.take();
        let mut entries = lock(&self.entries);
        if entries.is_empty() && self.others.is_empty() && !is_last {
            return;
        }
        let room = entries.len() + self.others.len() + TURNS_BYTES;
        let mut frame = Vec::with_capacity(room.min(2 * FRAME_FULL_BYTES));
        let first_turn = |frame: &mut Vec<u8>| {
            if let Some((first, _)) = turns {
                put_number(FIRST_TURN, first.0, frame);
            }
        };
        for records in [&mut *entries, &mut self.others] {
            while records.move_to(&mut frame) {
                if frame.len() >= FRAME_FULL_BYTES {
                    first_turn(&mut frame);
                    self.outbox.send(std::mem::take(&mut frame).into());
                }
            }
        }
        first_turn(&mut frame);
        // Nobody has a turn before the last frame of the step.
        if let Some((_, turn)) = turns {
            put_number(TURN, turn.0, &mut frame);
        }
        put_nonzero(IS_LAST, is_last.into(), &mut frame);
        self.outbox.send(frame.into());
        if self.outbox.queued_bytes() > QUEUE_HARD_BYTES {
            self.outbox.close(EdgeFault::Slow);
        }
    }

    /// Makes a copy due at this turn, unless it is due earlier.
    fn put_due(&mut self, copy: &mut Copy, index: ChannelIndex, turn: Tick) {
        if copy.due.is_some_and(|due| due <= turn) {
            return;
        }
        if let Some(due) = copy.due.replace(turn) {
            self.due.remove(&(due, index));
        }
        self.due.insert((turn, index));
    }
}

/// Appends a [`down::Changes`] of the channel with this id; the flag says whether it is the whole state.
fn put_changes(records: &mut Records, (id, is_whole): (u32, bool), values: &[(u32, Bytes)], repeated_fields: &[u32]) {
    let value_len = |(writer, value): &(u32, Bytes)| {
        nonzero_len((*writer).into()) + if value.is_empty() { 0 } else { bytes_len(value.len()) }
    };
    let values_len: usize = values.iter().map(|value| bytes_len(value_len(value))).sum();
    let fields_len = repeated_fields.iter().map(|&field| varint_len(field.into())).sum();
    let length = nonzero_len(id.into())
        + nonzero_len(is_whole.into())
        + values_len
        + if repeated_fields.is_empty() { 0 } else { bytes_len(fields_len) };
    records.push_bytes(0, CHANGES, length, |out| {
        put_nonzero(1, id.into(), out);
        put_nonzero(2, is_whole.into(), out);
        for value in values {
            begin_bytes(3, value_len(value), out);
            let (writer, value) = value;
            put_nonzero(1, (*writer).into(), out);
            if !value.is_empty() {
                begin_bytes(2, value.len(), out);
                out.extend_from_slice(value);
            }
        }
        if !repeated_fields.is_empty() {
            begin_bytes(4, fields_len, out);
            repeated_fields.iter().for_each(|&field| put_varint(out, field.into()));
        }
    });
}

fn reads_of(channel: u32, wanted: Wanted, anchor: Tick) -> down::Reads {
    down::Reads {
        channel,
        interval_ms: wanted.interval_ms,
        anchor: anchor.0,
        delay_ms: wanted.delay_ms,
        begins_with_changes: false,
        skips_self: wanted.skip_self,
        is_reliable: wanted.reliable,
        may_write: wanted.access == Access::Write,
        masks: Vec::new(),
    }
}

impl Copy {
    fn new(edge: EdgeKey) -> Copy {
        Copy {
            edge,
            point: None,
            facts: None,
            type_url: String::new(),
            readers: FxHashMap::default(),
            rhythms: BTreeMap::new(),
            due: None,
            is_woken: false,
            updates: None,
            update_bytes: 0,
            has_dropped: false,
        }
    }

    fn add(&mut self, reader: Place, rhythm: Rhythm) {
        self.remove(reader);
        self.readers.insert(reader, rhythm);
        *self.rhythms.entry(rhythm).or_default() += 1;
    }

    /// The updates that it was not told, if they are known. Those that come are kept for the next time.
    fn begin_updates(&mut self) -> Option<Vec<(u32, Bytes)>> {
        (self.update_bytes, self.has_dropped) = (0, false);
        self.updates.replace(Vec::new())
    }

    /// Whether it was there.
    fn remove(&mut self, reader: Place) -> bool {
        let Some(rhythm) = self.readers.remove(&reader) else { return false };
        if let Some(count) = self.rhythms.get_mut(&rhythm) {
            *count -= 1;
            if *count == 0 {
                self.rhythms.remove(&rhythm);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_written_as_prost_writes_them() {
        let values = |count: u32| (0..count).map(|number| (number, vec![7; number as usize * 90].into()));
        for (id, is_whole, count, repeated_fields) in
            [(0, false, 0, vec![]), (9, true, 3, vec![]), (1 << 31, false, 1, vec![1, 300])]
        {
            let values: Vec<(u32, Bytes)> = values(count).collect();
            let mut written = Records::new(DOWN);
            put_changes(&mut written, (id, is_whole), &values, &repeated_fields);
            let values = values.into_iter().map(|(writer, value)| down::Value { writer, value }).collect();
            let changes = down::Changes { channel: id, is_whole, values, repeated_fields };
            let mut expected = Records::new(DOWN);
            expected.push(&Down { client: 0, what: Some(down::What::Changes(changes)) });
            let bytes = [&mut written, &mut expected].map(|records| {
                let mut frame = Vec::new();
                records.move_to(&mut frame);
                frame
            });
            assert_eq!(bytes[0], bytes[1], "{id}");
        }
    }

    #[test]
    fn the_search_for_the_earliest_turn_ends_where_none_can_be_earlier() {
        let mut looked = 0;
        let mut first = |turns: [u64; 4], bound| {
            looked = 0;
            let turns = turns.into_iter().inspect(|_| looked += 1).map(Tick);
            (earliest(turns, Tick(bound)).map(|turn| turn.0), looked)
        };
        assert_eq!(first([9, 7, 8, 6], 5), (Some(6), 4));
        assert_eq!(first([9, 5, 8, 6], 5), (Some(5), 2));
        assert_eq!(first([5, 9, 8, 6], 5), (Some(5), 1));
        assert_eq!(earliest([], Tick(5)), None);
    }

    #[test]
    fn turns_are_those_of_a_lattice_moved_up_to_the_grid() {
        let rhythm = Rhythm::new(50, Tick(1_020));
        let turns = |now: u64, grid| rhythm.turn(Tick(now), grid).0;
        assert_eq!((turns(1_020, 1), turns(1_021, 1), turns(1_070, 1), turns(1_071, 1)), (1_020, 1_070, 1_070, 1_120));
        // Points 1,020, 1,070, 1,120... are moved up to 1,023, 1,089, 1,122 on a grid of 33.
        assert_eq!(
            (turns(1_023, 33), turns(1_024, 33), turns(1_089, 33), turns(1_090, 33)),
            (1_023, 1_089, 1_089, 1_122)
        );
        assert_eq!(Rhythm::new(50, Tick(30)).turn(Tick(1), 1), Tick(30));
    }
}
