//! Writes what was changed since a tick.
//!
//! ```text
//!  state            what is written
//!  -----            ---------------
//!  { a: 1           a                      a field of the outermost message is a unit
//!    b: {           b { c }                so is a field of a message in it: b can be said in pieces, parsers merge them
//!      c: 2         b { d { 7: .. } }      a map entry is a unit as a whole: of two with one key parsers keep one
//!      d: {7: ..}}} b { d { 8: .. } }
//! ```
//!
//! Units are written one after the other. Between two units of different writers, and where a chunk is full, the open
//! messages are closed and opened again; two units of one writer share them. So parts begin and end between fields of
//! the outermost message.
//!
//! A removed value that has come back since is sent to everybody, its writers included: a writer may not have known of
//! the removal, and once it receives the removal it has lost its own fields as well.

use smallvec::SmallVec;

use super::chunks::Chunks;
use super::map::{Entry, Map, Name};
use super::mask::MaskRef;
use super::tree::{ElementValue, Field, List, Message, Stamp, Value};
use super::wire::{self, BYTES, Raw, Reader, wire_of};

/// The content to write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection<'a> {
    /// Only values written after this; `None` for all.
    pub(super) since: Option<Stamp>,
    /// The newest removal of a key that has come back.
    pub(super) latest_reset: Stamp,
    pub(super) mask: MaskRef<'a>,
    pub(super) exclude: Option<u32>,
}

/// Elements of a packed list that are written as one unit.
const PACKED_RUN: usize = 64;

/// No writer has this number.
const NOBODY: u64 = u64::MAX;

/// Bytes by which one open message's length may grow when it is filled in.
const LENGTH_GROWTH: usize = 4;

pub(super) fn encode(
    root: &Message,
    selection: Selection<'_>,
    replaces_lists: bool,
    max_value_bytes: usize,
    chunks: &mut Chunks,
) {
    let mut encoder = Encoder::new(chunks, selection.since, selection.exclude);
    encoder.replaces_lists = replaces_lists;
    encoder.max_bytes = max_value_bytes;
    if selection.since.is_some_and(|since| since < selection.latest_reset) {
        encoder.resets = true;
        encoder.fields(root, selection.mask);
        encoder.cut();
        encoder.resets = false;
    }
    encoder.fields(root, selection.mask);
    encoder.cut();
    chunks.finish();
}

/// The whole message in one piece, appended to `out`.
pub(super) fn whole(message: &Message, out: &mut Vec<u8>) {
    let mut chunks = Chunks::new();
    chunks.bytes = std::mem::take(out);
    Encoder::new(&mut chunks, None, None).message(message, MaskRef::ALL);
    *out = chunks.bytes;
}

/// The content of a value, appended to `out`.
pub(super) fn whole_value(entry: &Entry, out: &mut Vec<u8>) {
    match &entry.value {
        Value::Message(message) => whole(message, out),
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Scalar(number) => wire::put_scalar(out, wire_of(entry.value_tag), *number),
        _ => {}
    }
}

struct Encoder<'c> {
    out: &'c mut Chunks,
    since: Stamp,
    is_full: bool,
    exclude: u64,
    /// Writes only what subscribers must undo before the changes.
    resets: bool,
    replaces_lists: bool,
    max_bytes: usize,
    /// The messages that the next unit is in, outermost first. The first `open` of them are open.
    path: SmallVec<[Step; 4]>,
    open: usize,
    /// Steps of the path that must not be closed between two writers.
    sticky: usize,
    part: Label,
    part_start: usize,
    units: usize,
    /// Values left out because of who wrote them.
    excluded: usize,
    /// Within something that was removed and has come back: nothing is left out because of who wrote it.
    for_all: bool,
    /// The writer of the unit that is being written.
    label: Label,
}

/// The writers of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Nobody,
    One(u32),
    Several,
    /// For all subscribers, with any writer.
    Everybody,
}

/// A message on the way to a unit.
struct Step {
    tag: u32,
    /// The bytes before the content proper: the key, if this is a map entry.
    head: SmallVec<[u8; 16]>,
    /// Where the content starts, if it is open.
    start: usize,
}

/// Where a unit begins, to be taken back.
#[derive(Clone, Copy)]
struct Mark {
    bytes: usize,
    open: usize,
    unit: usize,
}

impl<'c> Encoder<'c> {
    fn new(out: &'c mut Chunks, since: Option<Stamp>, exclude: Option<u32>) -> Encoder<'c> {
        Encoder {
            out,
            since: since.unwrap_or(Stamp::NEVER),
            is_full: since.is_none(),
            exclude: exclude.map_or(NOBODY, u64::from),
            resets: false,
            replaces_lists: false,
            max_bytes: usize::MAX,
            path: SmallVec::new(),
            open: 0,
            sticky: 0,
            part: Label::Nobody,
            part_start: 0,
            units: 0,
            excluded: 0,
            for_all: false,
            label: Label::Nobody,
        }
    }

    /// Writes the fields of a message as units.
    fn fields(&mut self, message: &Message, mask: MaskRef<'_>) {
        for field in &message.fields {
            if field.stamp <= self.since {
                continue;
            }
            let Some(mask) = mask.field(field.tag >> 3) else { continue };
            match &field.value {
                Value::Gone => {}
                Value::Scalar(_) | Value::Bytes(_) => {
                    if !self.resets && self.wants(field.writer) {
                        let mark = self.begin(field.writer);
                        self.note(field.writer);
                        self.leaf(field);
                        if let Fit::TooLong(_) = self.end(mark) {
                            self.out.oversized += 1;
                        }
                    }
                }
                Value::Message(child) => self.nested(field.tag, child, mask),
                Value::List(list) => self.list(field.tag, list, mask),
                Value::Map(map) => self.map(field.tag, map, mask),
            }
        }
    }

    fn nested(&mut self, tag: u32, child: &Message, mask: MaskRef<'_>) {
        let for_all = self.tell_all_if(child.left > self.since);
        match self.resets && child.left > self.since {
            true => self.unit(child.stated_by, |encoder| encoder.displacement(child)),
            false => self.nested_fields(tag, child, mask),
        }
        self.for_all = for_all;
    }

    fn nested_fields(&mut self, tag: u32, child: &Message, mask: MaskRef<'_>) {
        let (units, excluded) = (self.units, self.excluded);
        self.path.push(Step { tag, head: SmallVec::new(), start: 0 });
        self.fields(child, mask);
        self.pop();
        if self.units == units && self.states(child, excluded) {
            self.unit(child.stated_by, |encoder| {
                encoder.note(child.stated_by);
                wire::put_varint(&mut encoder.out.bytes, u64::from(tag));
                encoder.out.bytes.push(0);
                true
            });
        }
    }

    fn list(&mut self, tag: u32, list: &List, mask: MaskRef<'_>) {
        if self.resets {
            return;
        }
        let first = list.first_after(self.since);
        let end = list.elements.len();
        let Some(newest) = list.elements.back() else { return };
        if self.replaces_lists {
            // A receiver that replaces lists as well must get this one in one piece.
            let mark = self.begin(newest.writer);
            if !self.elements(tag, list, first..end, mask) {
                return self.take_back(mark);
            }
            match self.end(mark) {
                Fit::Fits => return,
                Fit::TooLong(mark) => self.take_back(mark),
            }
        }
        self.out.appends = true;
        let run = if is_packed(tag, list) { PACKED_RUN } else { 1 };
        let mut from = first;
        while from < end {
            let writer = list.elements[from].writer;
            let same = list.elements.range(from..end.min(from + run)).take_while(|element| element.writer == writer);
            let until = from + same.count();
            self.unit(writer, |encoder| encoder.elements(tag, list, from..until, mask));
            from = until;
        }
    }

    fn map(&mut self, tag: u32, map: &Map, mask: MaskRef<'_>) {
        if let Some(residue) = &map.residue {
            self.nested(tag, residue, mask);
        }
        let base = self.out.slots.len();
        let mut several = false;
        let mut writer = None;
        for (slot, entry) in map.walk() {
            if entry.stamp <= self.since {
                break;
            }
            if !(self.is_full && entry.is_gone) {
                several |= writer.is_some_and(|writer| writer != entry.writer);
                writer = Some(entry.writer);
                self.out.slots.push(slot);
            }
        }
        if several && !map.is_ordered {
            self.out.slots[base..].sort_unstable_by_key(|&slot| (map.entry(slot).writer, slot));
        }
        for index in (base..self.out.slots.len()).rev() {
            let entry = map.entry(self.out.slots[index]);
            let for_all = self.tell_all_if(self.has_returned(entry));
            let mark = self.begin(entry.writer);
            if !self.entry(tag, map, entry, mask) {
                self.take_back(mark);
            } else if let Fit::TooLong(mark) = self.end(mark) {
                self.long_entry(mark, tag, map, entry, mask);
            }
            self.for_all = for_all;
        }
        self.out.slots.truncate(base);
    }

    /// An entry that does not fit into a chunk: its value is said in pieces, each under its key.
    fn long_entry(&mut self, mark: Mark, tag: u32, map: &Map, entry: &Entry, mask: MaskRef<'_>) {
        let (Value::Message(value), Some(mask), false) = (&entry.value, mask.field(entry.value_tag >> 3), self.resets)
        else {
            self.out.oversized += 1;
            return;
        };
        self.take_back(mark);
        let mask = if entry.is_gone { MaskRef::ALL } else { mask };
        let mut key = Vec::new();
        put_key(&mut key, map, entry);
        self.path.push(Step { tag, head: SmallVec::from_vec(key), start: 0 });
        self.path.push(Step { tag: entry.value_tag, head: SmallVec::new(), start: 0 });
        self.sticky += 2;
        self.fields(value, mask);
        self.pop();
        self.pop();
        self.sticky -= 2;
    }

    // Within a unit: everything below appends to the bytes and says whether there was anything to say.

    fn message(&mut self, message: &Message, mask: MaskRef<'_>) -> bool {
        let mut any = false;
        for field in &message.fields {
            if field.stamp <= self.since {
                continue;
            }
            let Some(mask) = mask.field(field.tag >> 3) else { continue };
            any |= match &field.value {
                Value::Gone => false,
                Value::Scalar(_) | Value::Bytes(_) => {
                    let wanted = !self.resets && self.wants(field.writer);
                    if wanted {
                        self.note(field.writer);
                        self.leaf(field);
                    }
                    wanted
                }
                Value::Message(child) => self.child(field.tag, child, mask),
                Value::List(list) if !self.resets => {
                    self.out.appends |= !self.replaces_lists;
                    self.elements(field.tag, list, list.first_after(self.since)..list.elements.len(), mask)
                }
                Value::List(_) => false,
                Value::Map(map) => self.entries(field.tag, map, mask),
            };
        }
        any
    }

    fn child(&mut self, tag: u32, child: &Message, mask: MaskRef<'_>) -> bool {
        let for_all = self.tell_all_if(child.left > self.since);
        let written = match self.resets && child.left > self.since {
            true => self.displacement(child),
            false => self.child_fields(tag, child, mask),
        };
        self.for_all = for_all;
        written
    }

    fn child_fields(&mut self, tag: u32, child: &Message, mask: MaskRef<'_>) -> bool {
        let (before, excluded) = (self.out.bytes.len(), self.excluded);
        wire::put_varint(&mut self.out.bytes, u64::from(tag));
        let start = wire::begin_length(&mut self.out.bytes);
        if self.message(child, mask) || self.states_in_unit(child, excluded) {
            wire::end_length(&mut self.out.bytes, start);
            true
        } else {
            self.out.bytes.truncate(before);
            false
        }
    }

    fn entries(&mut self, tag: u32, map: &Map, mask: MaskRef<'_>) -> bool {
        let mut any = match &map.residue {
            Some(residue) if residue_is_newer(residue, self.since) => self.child(tag, residue, mask),
            _ => false,
        };
        let base = self.out.slots.len();
        for (slot, entry) in map.walk() {
            if entry.stamp <= self.since {
                break;
            }
            if !(self.is_full && entry.is_gone) {
                self.out.slots.push(slot);
            }
        }
        for index in (base..self.out.slots.len()).rev() {
            let before = self.out.bytes.len();
            let written = self.entry(tag, map, map.entry(self.out.slots[index]), mask);
            if !written {
                self.out.bytes.truncate(before);
            }
            any |= written;
        }
        self.out.slots.truncate(base);
        any
    }

    /// If it returns false, it has written nothing of use, and its bytes must be taken back.
    fn entry(&mut self, tag: u32, map: &Map, entry: &Entry, mask: MaskRef<'_>) -> bool {
        wire::put_varint(&mut self.out.bytes, u64::from(tag));
        if let Name::Nameless = entry.name {
            return self.nameless(entry, mask);
        }
        let for_all = self.tell_all_if(self.has_returned(entry));
        let start = wire::begin_length(&mut self.out.bytes);
        put_key(&mut self.out.bytes, map, entry);
        let written = match mask.field(entry.value_tag >> 3) {
            _ if self.resets && self.has_returned(entry) => self.reset(map, entry),
            // A removal is sent as it was received, whatever the mask shows of the value.
            Some(_) if entry.is_gone => self.entry_value(entry, MaskRef::ALL),
            Some(mask) => self.entry_value(entry, mask),
            None => false,
        };
        wire::end_length(&mut self.out.bytes, start);
        self.for_all = for_all;
        written
    }

    /// Whether the entry was removed and has come back since.
    fn has_returned(&self, entry: &Entry) -> bool {
        entry.removed > self.since && !entry.is_gone
    }

    /// From now on everybody gets everything, if the following value has come back; returns the former setting. In a
    /// whole state nothing has come back.
    fn tell_all_if(&mut self, has_returned: bool) -> bool {
        let for_all = self.for_all || has_returned && !self.is_full;
        std::mem::replace(&mut self.for_all, for_all)
    }

    fn entry_value(&mut self, entry: &Entry, mask: MaskRef<'_>) -> bool {
        if let Value::Message(message) = &entry.value {
            return self.child(entry.value_tag, message, mask);
        }
        if self.resets || !self.wants(entry.writer) {
            return false;
        }
        self.note(entry.writer);
        let out = &mut self.out.bytes;
        wire::put_varint(out, u64::from(entry.value_tag));
        match &entry.value {
            Value::Bytes(bytes) => wire::put_bytes(out, bytes),
            Value::Scalar(number) => wire::put_scalar(out, wire_of(entry.value_tag), *number),
            _ => return false,
        }
        true
    }

    /// The removal of an entry that has come back since.
    fn reset(&mut self, map: &Map, entry: &Entry) -> bool {
        if !self.wants(entry.writer) || map.farewell.is_empty() {
            return false;
        }
        self.note(entry.writer);
        wire::put_varint(&mut self.out.bytes, u64::from(entry.value_tag));
        wire::put_bytes(&mut self.out.bytes, &map.farewell);
        true
    }

    /// The field that once took the place of `child` in its oneof, so that what the receiver has of it goes.
    fn displacement(&mut self, child: &Message) -> bool {
        if !self.wants(child.stated_by) {
            return false;
        }
        self.note(child.stated_by);
        let out = &mut self.out.bytes;
        wire::put_varint(out, u64::from(child.left_for));
        match wire_of(child.left_for) {
            BYTES => out.push(0),
            wire => wire::put_scalar(out, wire, 0),
        }
        true
    }

    fn nameless(&mut self, entry: &Entry, mask: MaskRef<'_>) -> bool {
        let Value::Bytes(content) = &entry.value else { return false };
        if self.resets || !self.wants(entry.writer) {
            return false;
        }
        self.note(entry.writer);
        put_masked(&mut self.out.bytes, content, mask);
        true
    }

    fn elements(&mut self, tag: u32, list: &List, range: std::ops::Range<usize>, mask: MaskRef<'_>) -> bool {
        let mut any = false;
        let before = self.out.bytes.len();
        let packed = is_packed(tag, list);
        let mut start = 0;
        if packed {
            wire::put_varint(&mut self.out.bytes, u64::from(tag));
            start = wire::begin_length(&mut self.out.bytes);
        }
        for element in list.elements.range(range) {
            if !self.wants(element.writer) {
                continue;
            }
            any = true;
            self.note(element.writer);
            if !packed {
                wire::put_varint(&mut self.out.bytes, u64::from(tag));
            }
            match &element.value {
                ElementValue::Scalar(number) => wire::put_scalar(&mut self.out.bytes, list.wire, *number),
                ElementValue::Bytes(bytes) => put_masked(&mut self.out.bytes, bytes, mask),
            }
        }
        if packed {
            wire::end_length(&mut self.out.bytes, start);
        }
        if !any {
            self.out.bytes.truncate(before);
        }
        any
    }

    #[inline]
    fn leaf(&mut self, field: &Field) {
        let out = &mut self.out.bytes;
        wire::put_varint(out, u64::from(field.tag));
        match &field.value {
            Value::Scalar(number) => wire::put_scalar(out, wire_of(field.tag), *number),
            Value::Bytes(bytes) => wire::put_bytes(out, bytes),
            _ => {}
        }
    }

    #[inline]
    fn wants(&mut self, writer: u32) -> bool {
        let wants = self.for_all || u64::from(writer) != self.exclude;
        self.excluded += usize::from(!wants);
        wants
    }

    /// Whether a message, of whose fields there was nothing to be said, has to be said itself. Not if something of it
    /// was left out, as it was at `excluded`: then the receiver has the message.
    fn states(&mut self, message: &Message, excluded: usize) -> bool {
        !self.resets && message.stated > self.since && self.excluded == excluded && self.wants(message.stated_by)
    }

    fn states_in_unit(&mut self, message: &Message, excluded: usize) -> bool {
        let states = self.states(message, excluded);
        if states {
            self.note(message.stated_by);
        }
        states
    }

    /// Notes a writer of the unit that is being written.
    #[inline]
    fn note(&mut self, writer: u32) {
        match self.label {
            Label::Nobody => self.label = self.label_by(writer),
            Label::Several | Label::Everybody if self.for_all => {}
            Label::One(one) if self.for_all => {
                self.out.mixed.push(one);
                self.label = Label::Several;
            }
            Label::One(one) if one == writer => {}
            Label::Everybody => {
                self.out.mixed.push(writer);
                self.label = Label::Several;
            }
            Label::One(one) => {
                self.out.mixed.extend([one, writer]);
                self.label = Label::Several;
            }
            Label::Several if self.out.mixed.last() != Some(&writer) => self.out.mixed.push(writer),
            Label::Several => {}
        }
    }

    // Units, parts and chunks.

    fn unit(&mut self, writer: u32, write: impl FnOnce(&mut Self) -> bool) {
        let mark = self.begin(writer);
        if !write(self) {
            self.take_back(mark);
        } else if let Fit::TooLong(_) = self.end(mark) {
            self.out.oversized += 1;
        }
    }

    /// Makes ready for a unit that `writer`, most likely, wrote.
    #[inline]
    fn begin(&mut self, writer: u32) -> Mark {
        let label = self.label_of(self.label_by(writer));
        if self.part != label {
            self.end_part(label);
        }
        self.label = Label::Nobody;
        let (bytes, open) = (self.out.bytes.len(), self.open);
        self.open_path();
        Mark { bytes, open, unit: self.out.bytes.len() }
    }

    /// Ends a unit. If it turned out to have been written by others, or is too much for the chunk, it moves.
    #[inline]
    fn end(&mut self, mark: Mark) -> Fit {
        self.units += 1;
        if self.sticky > 0
            && let Label::One(writer) = self.label
        {
            self.out.mixed.push(writer);
        }
        let label = self.label_of(self.label);
        let is_first = mark.bytes == self.out.open_start();
        let fits = self.fits();
        if label == self.part && (fits || is_first) {
            return if fits { Fit::Fits } else { Fit::TooLong(mark) };
        }
        self.relocate(mark, label, !fits && !is_first)
    }

    fn relocate(&mut self, mark: Mark, label: Label, new_chunk: bool) -> Fit {
        let mut tail = std::mem::take(&mut self.out.tail);
        tail.clear();
        tail.extend_from_slice(&self.out.bytes[mark.unit..]);
        self.out.bytes.truncate(mark.bytes);
        self.open = mark.open;
        self.end_part(label);
        if new_chunk {
            self.out.end_chunk();
            self.part_start = self.out.bytes.len();
        }
        let (bytes, open) = (self.out.bytes.len(), self.open);
        self.open_path();
        let unit = self.out.bytes.len();
        self.out.bytes.extend_from_slice(&tail);
        self.out.tail = tail;
        match self.fits() {
            true => Fit::Fits,
            false if new_chunk || bytes == self.out.open_start() => Fit::TooLong(Mark { bytes, open, unit }),
            // Closing the path took the room that was left.
            false => self.relocate(Mark { bytes, open, unit }, label, true),
        }
    }

    fn take_back(&mut self, mark: Mark) {
        self.out.bytes.truncate(mark.bytes);
        self.open = mark.open;
    }

    fn fits(&self) -> bool {
        let bytes = self.out.bytes.len() - self.out.open_start();
        bytes <= self.max_bytes.saturating_sub(LENGTH_GROWTH * self.open)
    }

    fn label_by(&self, writer: u32) -> Label {
        if self.for_all { Label::Everybody } else { Label::One(writer) }
    }

    fn label_of(&self, label: Label) -> Label {
        if self.sticky > 0 { Label::Several } else { label }
    }

    fn open_path(&mut self) {
        for step in &mut self.path[self.open..] {
            wire::put_varint(&mut self.out.bytes, u64::from(step.tag));
            step.start = wire::begin_length(&mut self.out.bytes);
            self.out.bytes.extend_from_slice(&step.head);
        }
        self.open = self.path.len();
    }

    fn close(&mut self, open: usize) {
        while self.open > open {
            self.open -= 1;
            wire::end_length(&mut self.out.bytes, self.path[self.open].start);
        }
    }

    fn pop(&mut self) {
        self.close(self.path.len() - 1);
        self.path.pop();
    }

    /// Ends the bytes of one writer; those of `next` follow.
    fn end_part(&mut self, next: Label) {
        self.close(0);
        if let Label::One(writer) = self.part {
            let start = self.part_start - self.out.open_start();
            self.out.push_part(writer, start);
        }
        self.part = next;
        self.part_start = self.out.bytes.len();
    }

    /// Ends the chunk.
    fn cut(&mut self) {
        self.end_part(Label::Nobody);
        self.out.end_chunk();
        self.part_start = self.out.bytes.len();
    }
}

/// Whether a unit is where it belongs.
#[must_use]
enum Fit {
    Fits,
    /// It is alone in its chunk and still too long.
    TooLong(Mark),
}

fn is_packed(tag: u32, list: &List) -> bool {
    wire_of(tag) == BYTES && list.wire != BYTES
}

fn residue_is_newer(residue: &Message, since: Stamp) -> bool {
    residue.stated > since || residue.fields.iter().any(|field| field.stamp > since)
}

fn put_key(out: &mut Vec<u8>, map: &Map, entry: &Entry) {
    match &entry.name {
        Name::Number(number) => {
            wire::put_varint(out, u64::from(map.key_tag));
            wire::put_scalar(out, wire_of(map.key_tag), *number);
        }
        Name::Text(text) => {
            wire::put_varint(out, u64::from(wire::tag(1, BYTES)));
            wire::put_bytes(out, text);
        }
        Name::Nameless => {}
    }
}

/// Writes length and content, or what a mask lets through of a message.
fn put_masked(out: &mut Vec<u8>, content: &[u8], mask: MaskRef<'_>) {
    if mask.is_all() {
        return wire::put_bytes(out, content);
    }
    let start = wire::begin_length(out);
    let mut reader = Reader::new(content);
    loop {
        let before = reader.rest;
        let Some((tag, raw)) = reader.next() else { break };
        match (mask.field(tag >> 3), raw) {
            (Some(inner), Raw::Bytes(content)) if !inner.is_all() => {
                wire::put_varint(out, u64::from(tag));
                put_masked(out, content, inner);
            }
            (Some(_), _) => out.extend_from_slice(&before[..before.len() - reader.rest.len()]),
            (None, _) => {}
        }
    }
    wire::end_length(out, start);
}
