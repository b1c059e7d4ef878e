//! The server's half of a connection's own records: the state of the objects that the client owns.
//!
//! A client predicts what it owns, so it has to know exactly which of its inputs are in the state that it holds. The
//! objects' cells cannot tell it: their frames are shared, cut, sent in parts and lost one by one. So each connection has a
//! *own record* beside its subscriptions, as Quake III's snapshots have a player state:
//!
//! ```text
//! record  [2][length of the body: varint][body]       no piece begins with a 2; the state is that of the packet's tick
//! body    [has_number: 1][number: 32]                 if has_number: the newest input that the game has acknowledged
//!         entries, in rising order of place, each
//!         [1: 1][places passed over: number][form: 2]
//!            form 0 changed       [kind: number][mask: one bit for each field that is sent again][the fields in it]
//!                 1 introduced    [kind: number][id][all fields but the hidden ones]
//!                 2 given away, 3 ended
//!         [0: 1][first: number][count: number]        the places that the record speaks of, zero bits to the byte
//! ```
//!
//! An id and a number without low bits are as in `encode.rs`.
//!
//! A *place* is a number for an object among those of its owner. A record says of each of its places everything that
//! has changed since the newest record that is known to have arrived, so none depends on another, a lost one needs no
//! resend, and what it does not mention has not changed: the state of a place, and the number, are those of the
//! record's tick together. Objects that do not fit into one packet are sent in several records of the same tick, or
//! continue in the next tick; then each object's state and number still belong together.
//!
//! Records go before everything else, because nothing is as near to a player as its own character, and take at most half
//! of what a tick may send. A long piece that found no room behind a record begins the next packet: otherwise records that
//! stand in every packet would keep it out for ever.

use std::collections::VecDeque;

use throng_schema::{FieldMask, Space};
use throng_wire::{BitWriter, ObjectId, Tick};

use crate::connection::Connection;
use crate::encode::{write_id, write_mask, write_number};
use crate::hub::Outgoing;
use crate::log::ObjectLog;
use crate::store::ObjectStore;

/// The byte that a record begins with.
pub(crate) const RECORD: u8 = 2;

/// The largest overhead of a record beside its entries: head, length, number, and the places.
const FRAME_BYTES: usize = 1 + 2 + 5 + 11;

/// So many places are made one by one.
const FEW_PLACES: usize = 4;

/// Shared data of a tick's writers: the frames of the channels, and the objects for their owners' records.
#[derive(Clone, Copy)]
pub struct ObjectsOutgoing<'a> {
    pub(crate) store: &'a ObjectStore,
    pub(crate) shared: Outgoing<'a, ObjectLog>,
}

impl Connection {
    /// [`Connection::begin_write`] for objects: what the connection owns goes before what it shares with others.
    pub fn begin_objects(&mut self, outgoing: ObjectsOutgoing<'_>, budget_bytes: usize) {
        if !self.begin_tick(outgoing.shared.now) {
            return;
        }
        self.own.begin(outgoing.store, budget_bytes / 2);
        self.begin_write(outgoing.shared, budget_bytes);
    }

    /// As [`Connection::fetch`], for the first of the objects that the client owns; most clients own one. Called after
    /// [`Connection::fetch_behind`].
    pub fn fetch_own(&self, outgoing: ObjectsOutgoing<'_>) -> u64 {
        if self.ticks.contains(outgoing.shared.now) { self.own.fetch_own(outgoing.store) } else { 0 }
    }

    /// Whether there is anything left to write this tick.
    pub fn has_more_objects(&self) -> bool {
        self.is_its_tick() && (self.own.is_due || self.has_more())
    }

    /// [`Connection::write_packet`] for objects.
    pub fn write_objects(&mut self, outgoing: ObjectsOutgoing<'_>, sequence: u64, room: &mut [u8]) -> usize {
        let was_first = std::mem::take(&mut self.own.was_first);
        if was_first && self.needs_full_packet() {
            let shared_bytes = self.write_packet(outgoing.shared, sequence, room);
            let rest = &mut room[shared_bytes..];
            return shared_bytes + self.own.write(outgoing.store, outgoing.shared.now, sequence, rest);
        }
        let own_bytes = self.own.write(outgoing.store, outgoing.shared.now, sequence, room);
        self.own.was_first = own_bytes > 0;
        if own_bytes == 0 && self.own.is_due {
            // The next entry needs a fuller packet, and nothing goes before it.
            return 0;
        }
        own_bytes + self.write_packet(outgoing.shared, sequence, &mut room[own_bytes..])
    }
}

/// The objects that one connection owns, and what it knows of them.
#[derive(Debug, Default)]
pub(crate) struct OwnRecords {
    /// The client can read records.
    is_open: bool,
    places: Vec<Place>,
    free: Vec<u32>,
    /// The newest input that the game has acknowledged.
    number: Option<u32>,
    /// It has not been written since it changed, or what was written is lost.
    is_number_due: bool,
    /// Where the next record begins.
    cursor: usize,
    /// Where this round of the places ends. Places that were added since it began wait for the next one: otherwise a
    /// connection that is given objects faster than it can be told of them would never be told of the end of others.
    round_end: usize,
    /// There is something to write in this tick.
    is_due: bool,
    /// The last packet began with a record.
    was_first: bool,
    /// Bytes that records may still take in this tick.
    left_bytes: usize,
    /// Records whose fate is not known; at most one for each packet under way.
    sent: VecDeque<Sent>,
    scratch: Vec<u8>,
    /// Room for the values of an object.
    exact: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// `None` when the client is known to know that the place is empty.
    occupant: Option<Occupant>,
    /// The tick of the newest record of it that has arrived.
    delivered: Option<Tick>,
    /// The tick of the newest record of it that was written and is not known to be lost.
    written: Option<Tick>,
    /// The values that the client does not know, as [`OwnRecords::begin`] found it for this tick.
    news: Option<News>,
}

#[derive(Clone, Copy, Debug)]
struct Occupant {
    id: ObjectId,
    entered: Tick,
    /// When it left, and whether it has ended.
    left: Option<(Tick, bool)>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    sequence: u64,
    tick: Tick,
    first: u32,
    end: u32,
}

/// The part of a place that the client does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    Changed(FieldMask),
    Introduced,
    GivenAway,
    Ended,
}

impl OwnRecords {
    /// See [`Connection::fetch`].
    pub(crate) fn fetch(&self) -> u64 {
        u64::from(self.number.unwrap_or(0))
            ^ (self.cursor ^ self.places.len() ^ self.sent.len() ^ self.left_bytes) as u64
    }

    /// See [`Connection::fetch_behind`].
    pub(crate) fn fetch_behind(&self) -> u64 {
        let place = self.places.first().and_then(|place| place.written).map_or(0, |tick| tick.0);
        let scratch = u64::from(self.scratch.first().copied().unwrap_or(0)) ^ self.exact.len() as u64;
        place ^ scratch ^ self.sent.back().map_or(0, |sent| sent.sequence)
    }

    /// See [`Connection::fetch_own`].
    fn fetch_own(&self, store: &ObjectStore) -> u64 {
        let occupant = self.places.first().and_then(|place| place.occupant);
        occupant.map_or(0, |occupant| store.fetch(occupant.id.index))
    }

    /// From now on the client can read records.
    pub(crate) fn open(&mut self) {
        self.is_open = true;
    }

    /// The connection owns an object from now on. Returns the object's place.
    pub(crate) fn enter(&mut self, id: ObjectId, now: Tick) -> u32 {
        let occupant = Some(Occupant { id, entered: now, left: None });
        let entered = Place { occupant, delivered: None, written: None, news: None };
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = entered;
                place
            }
            None => {
                if self.places.len() == self.places.capacity() && self.places.len() < FEW_PLACES {
                    // Most clients own one object.
                    self.places.reserve_exact(1);
                }
                self.places.push(entered);
                self.places.len() as u32 - 1
            }
        }
    }

    /// The connection no longer owns what is at `place`.
    pub(crate) fn leave(&mut self, place: u32, ended: bool, now: Tick) {
        if let Some(occupant) = &mut self.places[place as usize].occupant {
            occupant.left = Some((now, ended));
        }
    }

    /// The state of this tick has the effect of all inputs up to `number`.
    pub(crate) fn acknowledge_input(&mut self, number: u32) {
        self.is_number_due |= self.number != Some(number);
        self.number = Some(number);
    }

    /// Bytes of memory beyond the struct's own, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>()
            + self.sent.capacity() * size_of::<Sent>()
            + self.free.capacity() * size_of::<u32>()
            + self.scratch.capacity()
    }

    /// Looks for what the client does not know and was not told, in a tick in which records may take `limit_bytes`.
    fn begin(&mut self, store: &ObjectStore, limit_bytes: usize) {
        self.left_bytes = limit_bytes;
        self.is_due = false;
        if self.is_open {
            self.is_due = self.is_number_due;
            for place in &mut self.places {
                let news = place.news(store);
                place.news = news.map(|(news, _)| news);
                let is_untold = |(_, changed): (News, Tick)| place.written.is_none_or(|w| changed.is_newer_than(w));
                self.is_due |= news.is_some_and(is_untold);
            }
        }
    }

    /// Writes a record into `room`. Returns its length; 0 if there is nothing to say, or the first entry does not fit.
    fn write(&mut self, store: &ObjectStore, now: Tick, sequence: u64, room: &mut [u8]) -> usize {
        if !self.is_due || room.len() < FRAME_BYTES {
            return 0;
        }
        let room_bytes = (room.len() - FRAME_BYTES).min(self.left_bytes.max(1));
        let full_bytes = room.len() - FRAME_BYTES;
        if self.cursor >= self.round_end {
            (self.cursor, self.round_end) = (0, self.places.len());
        }
        let first = self.cursor;
        self.scratch.clear();
        let mut w = BitWriter::new(&mut self.scratch);
        w.write_bool(self.number.is_some());
        if let Some(number) = self.number {
            w.write(number.into(), 32);
        }
        let (mut next, mut entries, mut end) = (0, 0, first);
        for (number, place) in self.places[..self.round_end].iter().enumerate().skip(first) {
            if let Some(news) = place.news {
                let mark = w.mark();
                write_entry((store, &mut self.exact), place, news, number - next, &mut w);
                // One entry is written whatever the limit of the tick, so that even a long one is sent.
                let allowed_bytes = if entries == 0 { full_bytes } else { room_bytes };
                if w.byte_len() > allowed_bytes {
                    w.rewind(mark);
                    break;
                }
                entries += 1;
                next = number + 1;
            }
            end = number + 1;
        }
        if end == first && end < self.round_end {
            return 0;
        }
        w.write_bool(false);
        write_number(first as u32, 0, &mut w);
        write_number((end - first) as u32, 0, &mut w);
        w.finish();
        self.finish_record(now, sequence, (first, end));
        let mut head = [RECORD, 0, 0];
        let length = self.scratch.len();
        let head_bytes = match length {
            0..0x80 => 2,
            _ => 3,
        };
        head[1] = if head_bytes == 2 { length as u8 } else { length as u8 | 0x80 };
        head[2] = (length >> 7) as u8;
        room[..head_bytes].copy_from_slice(&head[..head_bytes]);
        room[head_bytes..head_bytes + length].copy_from_slice(&self.scratch);
        head_bytes + length
    }

    /// Notes that the places from `first` up to `end` were written.
    fn finish_record(&mut self, now: Tick, sequence: u64, (first, end): (usize, usize)) {
        for place in &mut self.places[first..end] {
            place.written = Some(now);
        }
        self.sent.push_back(Sent { sequence, tick: now, first: first as u32, end: end as u32 });
        self.left_bytes = self.left_bytes.saturating_sub(self.scratch.len());
        self.cursor = end;
        if end == self.round_end {
            self.is_due = false;
            // Places before `first` may have been sent with an older number.
            self.is_number_due &= first > 0;
        } else {
            self.is_due = self.left_bytes > 0;
        }
    }

    pub(crate) fn delivered(&mut self, sequence: u64) {
        let Some(sent) = self.take_sent(sequence) else { return };
        for number in sent.first..sent.end {
            let place = &mut self.places[number as usize];
            if place.delivered.is_none_or(|delivered| sent.tick.is_newer_than(delivered)) {
                place.delivered = Some(sent.tick);
            }
            if place
                .occupant
                .is_some_and(|occupant| occupant.left.is_some_and(|(left, _)| !left.is_newer_than(sent.tick)))
            {
                place.occupant = None;
                self.free.push(number);
            }
        }
    }

    pub(crate) fn lost(&mut self, sequence: u64) {
        let Some(sent) = self.take_sent(sequence) else { return };
        for place in &mut self.places[sent.first as usize..sent.end as usize] {
            if place.written == Some(sent.tick) {
                place.written = None;
            }
        }
        self.is_number_due = self.number.is_some();
    }

    fn take_sent(&mut self, sequence: u64) -> Option<Sent> {
        let first = self.sent.front()?;
        if first.sequence >= sequence {
            return if first.sequence == sequence { self.sent.pop_front() } else { None };
        }
        let index = self.sent.binary_search_by_key(&sequence, |sent| sent.sequence).ok()?;
        self.sent.remove(index)
    }
}

impl Place {
    /// The fields that the client may not know, and the tick of the newest of them.
    fn news(&self, store: &ObjectStore) -> Option<(News, Tick)> {
        let Occupant { id, entered, left } = self.occupant?;
        if let Some((left, ended)) = left {
            // It is also sent to a client that seems not to know it: an earlier record may still arrive.
            return Some((if ended { News::Ended } else { News::GivenAway }, left));
        }
        let (kind, ticks) = (store.kind(id.index), store.field_ticks(id.index));
        // The owner is told true values whenever they change: it does not reckon its own objects, and has no thresholds.
        let moved = store.moved(id.index);
        let since = self.delivered.filter(|&delivered| !entered.is_newer_than(delivered));
        let (exact, exact_newest) = store.exact_since(id.index, since);
        let mut mask = exact & kind.own_update_mask();
        let mut newest = exact_newest.filter(|_| mask != 0).map_or(entered, |newest| newest.newest(entered));
        let mut rest = kind.own_update_mask() & !kind.threshold_mask();
        while rest != 0 {
            let field = rest.trailing_zeros();
            let tick = moved.filter(|moved| moved.0 == field as usize).map_or(ticks[field as usize], |moved| moved.1);
            if since.is_none_or(|since| tick.is_newer_than(since)) {
                mask |= 1 << field;
                newest = newest.newest(tick);
            }
            rest &= rest - 1;
        }
        match since {
            None => Some((News::Introduced, newest)),
            Some(_) if mask != 0 => Some((News::Changed(mask), newest)),
            Some(_) => None,
        }
    }
}

fn write_entry(
    (store, exact): (&ObjectStore, &mut Vec<u32>),
    place: &Place,
    news: News,
    passed: usize,
    w: &mut BitWriter<'_>,
) {
    let Some(Occupant { id, .. }) = place.occupant else { return };
    w.write_bool(true);
    write_number(passed as u32, 0, w);
    let mask = match news {
        News::GivenAway => return w.write(2, 2),
        News::Ended => return w.write(3, 2),
        News::Changed(mask) => mask,
        News::Introduced => store.kind(id.index).own_mask(),
    };
    let (kind_id, kind, values) = store.exact(id.index, exact);
    w.write(u64::from(news == News::Introduced), 2);
    write_number(kind_id.0.into(), 0, w);
    if news == News::Introduced {
        write_id(id, w);
    } else {
        write_mask(kind.own_update_mask(), mask, w);
    }
    kind.encode(mask, values, &Space::WORLD, w);
}
