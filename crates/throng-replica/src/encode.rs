//! How the changes of an object channel are written. All numbers lowest bit first.
//!
//! ```text
//! segment   [slot_bits: 5][complete: 1][tombstones: 1][roster: 1]    at most one of the three is set
//!           complete:    [first: 24][end: 24]     all live slots in [first, end) are listed here, in rising order;
//!                                                 others there are gone
//!           roster:      [first: 24][end: 24] then a bit for each slot in [first, end): 0 if nobody lives there;
//!                                                 zero bits to the byte
//!           tombstones:  [count - 1: 8] then for each
//!                        [slot: slot_bits][fate][has_id: 1], zero bits to the byte after the last
//!                        fate    [1: 1][axis: 2][down: 1]       moved to the next cell along the axis, up or down
//!                                [0: 1][0: 2] left  [0: 1][1: 2] ended
//!                                [0: 1][2: 2][x + 3: 3][y + 3: 3][z + 3: 3]     moved by so many cells of the grid
//!                        has_id: [id], if the reader may not know the occupant
//!           runs until the segment's end
//! run       [kind << 2 | facet: varint][count - 1: 8] then entries, zero bits to the byte
//! entry     [slot: slot_bits][introduced: 1]
//!           introduced:  [id] then all fields of the facet
//!           else:        [mask: one bit for each field of the facet but the initial-only ones] then the fields in it
//! ```
//!
//! An id is two numbers: its index with 10 low bits, and its generation less one with none. A number with `low` low bits:
//!
//! ```text
//! number    [1: one bit for each further bit][0: 1][further bits][low bits]     of number + 2^low, without its highest bit
//! ```
//!
//! A facet with code tables (see `throng_schema::CodeTable`) has these in place of slot, `introduced` and mask:
//!
//! ```text
//! gap       [the slots between this entry and the one before in the run, or the run's beginning: coded]
//!           after an escape [slot: slot_bits]
//! head      [0 if introduced, else the mask: coded]      after an escape [introduced: 1][mask, as above]
//! ```
//!
//! A new subscriber gets complete segments. A reader that has been away for longer than tombstones are kept gets the
//! changes and rosters: a bit for each slot instead of everything again.
//!
//! Fields are written as their quantisers say. Positions are relative to the channel's cell if it has one. A reckoned
//! position is written as readers reckon it for the frame's tick, never the true one: so no reader needs to know when it was
//! stated, and all are wrong by the same.

use throng_schema::{Facet, FieldMask, Kind, Space};
use throng_wire::{BitWriter, KindId, ObjectId, Tick};

use crate::frame::{Frame, FrameEntry, Segment, Since, Variant};
use crate::log::{Content, Fate, MOVE_BITS, MOVE_MAX_CELLS, ObjectLog};
use crate::store::ObjectStore;

/// Segments are cut at about this size: three of them, and what stands before each, fill a packet.
pub(crate) const SEGMENT_TARGET_BYTES: usize = 384;

/// The longest that one entry may be, so that it fits into a packet whatever stands before it, on every path: a frame is
/// shared, and what is cut for long packets is still to be sent when a path carries short ones only.
pub const ENTRY_MAX_BYTES: usize = 960;

const TOMBSTONES_PER_SEGMENT: usize = 64;
/// 256 bytes of a roster.
const ROSTER_SLOTS_PER_SEGMENT: u32 = 2_048;
const ENTRIES_PER_RUN: usize = 256;
/// The form of a frame that holds rosters: for who stands before the horizon.
pub(crate) const ROSTER: Variant = Variant(1);

/// Where `first` and `end` of a complete segment lie, from its start.
const RANGE_AT: usize = 1;

/// The head of a segment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Entries,
    Tombstones,
    Roster,
}

/// Writes what happened in the log after `since`, or all that lives in it, into `frame`.
pub(crate) fn encode(log: &ObjectLog, store: &ObjectStore, since: Since, frame: &mut Frame) {
    let mut order = std::mem::take(&mut frame.scratch);
    let with_roster = frame.variant == ROSTER;
    let mut segmenter = Segmenter::new(log, store, since, frame);
    if let Since::Tick(since) = since {
        segmenter.tombstones(since);
        if with_roster {
            segmenter.roster();
        }
    }
    segmenter.entries(&mut order);
    segmenter.finish();
    frame.scratch = order;
}

struct Segmenter<'a> {
    log: &'a ObjectLog,
    store: &'a ObjectStore,
    since: Since,
    w: BitWriter<'a>,
    segments: &'a mut Vec<Segment>,
    written: &'a mut Vec<FrameEntry>,
    slot_bits: u32,
    /// The tick of the frame.
    now: Tick,
    /// Room for the values of an entry.
    words: &'a mut Vec<u32>,
    open: Option<OpenSegment>,
    /// In a complete frame: where the next segment's range begins.
    covered: u32,
}

struct OpenSegment {
    start: usize,
    first_entry: usize,
    updates: u32,
    run: Option<OpenRun>,
}

#[derive(Clone, Copy)]
struct OpenRun {
    key: u32,
    count_at: usize,
    count: usize,
    /// One past the slot of the entry before.
    next_slot: u32,
}

/// The order of entries in a frame, and what they are: complete frames go by slot, so that a segment covers a range;
/// others by kind and facet, so that runs are long.
fn sort_key(run: u32, slot: u32, complete: bool) -> u64 {
    match complete {
        true => u64::from(slot) << 32 | u64::from(run),
        false => u64::from(run) << 32 | u64::from(slot),
    }
}

impl<'a> Segmenter<'a> {
    fn new(log: &'a ObjectLog, store: &'a ObjectStore, since: Since, frame: &'a mut Frame) -> Segmenter<'a> {
        let last_slot = (log.slot_count().max(1) - 1) as u32;
        Segmenter {
            log,
            store,
            since,
            w: BitWriter::new(&mut frame.bytes),
            segments: &mut frame.segments,
            written: &mut frame.entries,
            slot_bits: 32 - last_slot.leading_zeros(),
            now: frame.tick,
            words: &mut frame.words,
            open: None,
            covered: 0,
        }
    }

    fn is_complete(&self) -> bool {
        self.since == Since::Start
    }

    fn begin_segment(&mut self, form: Form) -> &mut OpenSegment {
        let start = self.w.byte_len();
        self.w.write(u64::from(self.slot_bits), 5);
        self.w.write_bool(self.is_complete());
        self.w.write_bool(form == Form::Tombstones);
        self.w.write_bool(form == Form::Roster);
        if self.is_complete() {
            self.w.write(u64::from(self.covered), 24);
            self.w.write(0, 24);
        }
        self.open.insert(OpenSegment { start, first_entry: self.written.len(), updates: 0, run: None })
    }

    fn tombstones(&mut self, since: Tick) {
        if !self.log.has_tombstones() {
            return;
        }
        let gone = |slot: &crate::log::Slot| match slot.content {
            Content::Tombstone { index, generation, again, fate, entered } => {
                // An occupant that has come since the reader's point is not known to the reader by its slot.
                let is_known = !again && !entered.is_newer_than(since);
                Some((fate, (!is_known).then_some(ObjectId { index, generation })))
            }
            _ => None,
        };
        let log = self.log;
        let recent = || log.walk().take_while(|(_, slot)| slot.changed.is_newer_than(since));
        let mut rest = recent().filter(|(_, slot)| gone(slot).is_some()).count();
        if rest == 0 {
            return;
        }
        let mut tombstones = recent().filter_map(|(number, slot)| Some((number, gone(slot)?)));
        while rest > 0 {
            let count = rest.min(TOMBSTONES_PER_SEGMENT);
            self.close_segment(0);
            // Changes follow in the last of these segments.
            self.begin_segment(Form::Tombstones);
            self.w.write(count as u64 - 1, 8);
            for (slot, (fate, id)) in tombstones.by_ref().take(count) {
                self.w.write(u64::from(slot), self.slot_bits);
                write_fate(fate, &mut self.w);
                self.w.write_bool(id.is_some());
                if let Some(id) = id {
                    write_id(id, &mut self.w);
                }
                self.written.push(FrameEntry { slot, mask: 0 });
            }
            self.w.align();
            rest -= count;
        }
    }

    /// Says for each slot whether it has an occupant. These segments have no entries: they are never overtaken.
    fn roster(&mut self) {
        let slots = self.log.slot_count() as u32;
        for first in (0..slots).step_by(ROSTER_SLOTS_PER_SEGMENT as usize) {
            self.close_segment(0);
            self.begin_segment(Form::Roster);
            let end = slots.min(first + ROSTER_SLOTS_PER_SEGMENT);
            self.w.write(u64::from(first), 24);
            self.w.write(u64::from(end), 24);
            for slot in first..end {
                self.w.write_bool(matches!(self.log.slot(slot).content, Content::Live { .. }));
            }
        }
        self.close_segment(0);
    }

    fn entries(&mut self, order: &mut Vec<u64>) {
        let complete = self.is_complete();
        // The processor fetches all objects at once instead of waiting for memory at each in turn.
        let mut fetched = 0;
        for (number, slot) in self.log.walk() {
            if let Since::Tick(since) = self.since
                && !slot.changed.is_newer_than(since)
            {
                break;
            }
            if let Content::Live { object, facet, .. } = slot.content {
                let run = u32::from(self.store.kind_id(object).0) << 2 | facet.index() as u32;
                order.push(sort_key(run, number, complete));
                fetched ^= self.store.fetch(object);
            }
        }
        std::hint::black_box(fetched);
        order.sort_unstable();
        for &key in order.iter() {
            let (run, slot) = match complete {
                true => (key as u32, (key >> 32) as u32),
                false => ((key >> 32) as u32, key as u32),
            };
            self.entry(run, slot);
        }
        order.clear();
    }

    fn entry(&mut self, run: u32, slot: u32) {
        let Content::Live { object, facet, entered } = self.log.slot(slot).content else { return };
        let kind = self.store.kind(object);
        let introduced = match self.since {
            Since::Start => true,
            Since::Tick(since) => entered.is_newer_than(since),
        };
        let mask = match self.since {
            Since::Tick(since) if !introduced => {
                changed(kind.update_mask(facet), self.store.field_ticks(object), since)
            }
            _ => kind.facet_mask(facet),
        };
        if mask == 0 && !introduced {
            return;
        }
        let mark = self.w.mark();
        let run_before = self.open.as_ref().and_then(|open| open.run);
        self.write_entry(run, slot, introduced, mask);
        let open = self.open.as_ref().expect("an entry opens a segment");
        let alone = self.written.len() == open.first_entry;
        if !alone && self.w.byte_len() - open.start > SEGMENT_TARGET_BYTES {
            self.w.rewind(mark);
            self.open.as_mut().expect("still open").run = run_before;
            self.close_segment(slot);
            self.write_entry(run, slot, introduced, mask);
        }
        self.open.as_mut().expect("an entry opens a segment").updates += 1;
        self.written.push(FrameEntry { slot, mask: if introduced { 0 } else { mask } });
    }

    fn write_entry(&mut self, run: u32, slot: u32, introduced: bool, mask: FieldMask) {
        self.open_run(run);
        let Content::Live { object, facet, .. } = self.log.slot(slot).content else { return };
        let (kind_id, kind, values) = self.store.told(object, self.now, self.words);
        let run = self.open.as_mut().and_then(|open| open.run.as_mut()).expect("opened above");
        let gap = slot - std::mem::replace(&mut run.next_slot, slot + 1);
        if !kind.gap_codes(facet).is_some_and(|table| table.write(gap, &mut self.w)) {
            self.w.write(u64::from(slot), self.slot_bits);
        }
        write_head(kind, facet, (!introduced).then_some(mask), &mut self.w);
        if introduced {
            write_id(self.store.id_at(object), &mut self.w);
        }
        let space = space_of(self.log, self.store, kind_id, facet);
        kind.encode(mask, values, &space, &mut self.w);
    }

    /// Makes sure that a segment and, in it, a run of this kind and facet with room for one more is open.
    fn open_run(&mut self, key: u32) {
        if self.open.is_none() {
            self.begin_segment(Form::Entries);
        }
        let run = self.open.as_mut().and_then(|open| open.run.as_mut());
        if let Some(run) = run
            && run.key == key
            && run.count < ENTRIES_PER_RUN
        {
            run.count += 1;
            return;
        }
        self.close_run();
        self.w.write_varint(u64::from(key));
        let count_at = self.w.byte_len();
        self.w.write(0, 8);
        self.open.as_mut().expect("opened above").run = Some(OpenRun { key, count_at, count: 1, next_slot: 0 });
    }

    /// Pads the run that is open. Its count stays known: a segment that is rewound takes it up again.
    fn close_run(&mut self) {
        if let Some(run) = self.open.as_mut().and_then(|open| open.run.take()) {
            self.w.align();
            self.w.patch_byte(run.count_at, (run.count - 1) as u8);
        }
    }

    /// Ends the open segment, if any. In a complete frame it covers all slots up to `end`.
    fn close_segment(&mut self, end: u32) {
        self.close_run();
        let Some(open) = self.open.take() else { return };
        self.w.align();
        if self.is_complete() {
            for (index, byte) in end.to_le_bytes()[..3].iter().enumerate() {
                self.w.patch_byte(open.start + RANGE_AT + 3 + index, *byte);
            }
            self.covered = end;
        }
        let bytes = open.start..self.w.byte_len();
        let entries = open.first_entry..self.written.len();
        self.segments.push(Segment::new(bytes, entries, open.updates));
    }

    fn finish(mut self) {
        let slots = self.log.slot_count() as u32;
        if self.is_complete() && self.open.is_none() {
            // The slot is empty: a reader that had an object there must learn that it is gone.
            self.begin_segment(Form::Entries);
        }
        self.close_segment(slots);
        self.w.finish();
    }
}

fn write_fate(fate: Fate, w: &mut BitWriter<'_>) {
    match fate {
        Fate::Left => w.write(0, 3),
        Fate::Destroyed => w.write(1 << 1, 3),
        Fate::Moved(cells) => {
            if let Some((axis, is_down)) = next_cell(cells) {
                w.write(1 | (axis as u64) << 1 | u64::from(is_down) << 3, 4);
                return;
            }
            w.write(2 << 1, 3);
            cells.iter().for_each(|cells| w.write((i64::from(*cells) + i64::from(MOVE_MAX_CELLS)) as u64, MOVE_BITS));
        }
    }
}

/// The axis along which a move leads to the next cell, and whether downwards; `None` for farther ones.
pub(crate) fn next_cell(cells: [i8; 3]) -> Option<(usize, bool)> {
    let axis = cells.iter().position(|&cells| cells != 0)?;
    let is_next = cells[axis].abs() == 1 && cells[axis + 1..].iter().all(|&cells| cells == 0);
    is_next.then_some((axis, cells[axis] < 0))
}

/// The low bits of the index of an id: the ids of 1,024 objects take 12 bits, those of a million 32.
pub(crate) const INDEX_LOW_BITS: u32 = 10;

pub(crate) fn write_id(id: ObjectId, w: &mut BitWriter<'_>) {
    write_number(id.index, INDEX_LOW_BITS, w);
    write_number(id.generation.wrapping_sub(1), 0, w);
}

/// An exponential Golomb code of that order.
pub(crate) fn write_number(number: u32, low_bits: u32, w: &mut BitWriter<'_>) {
    let number = u64::from(number) + (1 << low_bits);
    let further_bits = number.ilog2() - low_bits;
    w.write((1 << further_bits) - 1, further_bits + 1);
    w.write(number, further_bits + low_bits);
}

/// The fields of `mask` that changed after `since`.
fn changed(mask: FieldMask, ticks: &[Tick], since: Tick) -> FieldMask {
    let mut changed = 0;
    let mut rest = mask;
    while rest != 0 {
        let field = rest.trailing_zeros();
        if ticks[field as usize].is_newer_than(since) {
            changed |= 1 << field;
        }
        rest &= rest - 1;
    }
    changed
}

/// Writes the head of an entry: the mask of an update, or none for an introduction.
#[inline]
fn write_head(kind: &Kind, facet: Facet, update: Option<FieldMask>, w: &mut BitWriter<'_>) {
    let of = kind.update_mask(facet);
    let mask = compact_mask(of, update.unwrap_or(0));
    if let Some(table) = kind.entry_codes(facet)
        && table.write(mask as u32, w)
    {
        return;
    }
    w.write_bool(update.is_none());
    if update.is_some() {
        w.write(mask, of.count_ones());
    }
}

/// Writes one bit of `mask` for each field of `of`.
#[inline]
pub(crate) fn write_mask(of: FieldMask, mask: FieldMask, w: &mut BitWriter<'_>) {
    w.write(compact_mask(of, mask), of.count_ones());
}

/// One bit of `mask` for each field of `of`, without gaps.
#[inline]
fn compact_mask(of: FieldMask, mask: FieldMask) -> u64 {
    if of & of.wrapping_add(1) == 0 {
        // The first fields and no others: most kinds are like that.
        return mask & of;
    }
    let mut rest = of;
    let (mut bits, mut count) = (0u64, 0);
    while rest != 0 {
        bits |= (mask >> rest.trailing_zeros() & 1) << count;
        count += 1;
        rest &= rest - 1;
    }
    bits
}

fn space_of(log: &ObjectLog, store: &ObjectStore, kind: KindId, facet: Facet) -> Space {
    match log.cell() {
        Some((grid, cell)) => store.grids()[usize::from(grid)].space(usize::from(kind.0), facet, cell),
        None => Space::WORLD,
    }
}
