//! The values of a state: a tree of messages, lists and maps in which each value knows when it was last written and by
//! whom.

use std::collections::VecDeque;

use smallvec::SmallVec;
use throng_wire::Tick;

use super::map::Map;
use super::wire;

/// When something was written: 44 bits of tick, which is 557 years of milliseconds, and 20 bits that count the merges of a
/// tick. So each merge has a stamp of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp(u64);

const MERGE_BITS: u32 = 20;
const MERGE_MASK: u64 = (1 << MERGE_BITS) - 1;
/// The last tick that has stamps of its own, and one.
const TICK_MAX: u64 = (1 << (64 - MERGE_BITS)) - 2;

/// Stamps in files are below: 278 years of milliseconds, and as much is left.
const STAMP_MAX_SAVED: u64 = 1 << 63;

impl Stamp {
    pub(super) const NEVER: Stamp = Stamp(0);
    pub(super) const FOREVER: Stamp = Stamp(u64::MAX);

    /// The first stamp of `tick`. Tick 0 has a stamp, too, that is newer than [`Stamp::NEVER`].
    pub(super) fn start_of(tick: Tick) -> Stamp {
        Stamp((tick.0 + 1).min(TICK_MAX) << MERGE_BITS)
    }

    /// The last stamp of `tick`.
    pub(super) fn end_of(tick: Tick) -> Stamp {
        Stamp(Stamp::start_of(tick).0 | MERGE_MASK)
    }

    /// The tick of a stamp.
    pub(super) fn tick(self) -> Tick {
        Tick((self.0 >> MERGE_BITS).saturating_sub(1))
    }

    /// For a file.
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    /// From a file, if there are stamps enough after it.
    pub(super) fn from_bits(bits: u64) -> Option<Stamp> {
        (bits < STAMP_MAX_SAVED).then_some(Stamp(bits))
    }

    /// The stamp of the next merge, at tick `now`, given that `self` is the newest stamp.
    pub(super) fn next(self, now: Tick) -> Stamp {
        match self < Stamp::start_of(now) {
            true => Stamp::start_of(now),
            false if self.0 & MERGE_MASK == MERGE_MASK => self,
            false => Stamp(self.0 + 1),
        }
    }
}

/// The memory of a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Bytes of memory: every allocation with its whole capacity and with what the allocator adds.
    pub(super) bytes: usize,
    pub(super) values: usize,
    pub(super) tombstones: usize,
}

/// Bytes of memory that an allocation takes: as glibc's malloc gives it out, with a word of its own, in steps of 16.
/// Other allocators are within a tenth of that for the sizes that states consist of.
pub const fn allocated(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=24 => 32,
        _ => (bytes + 23) & !15,
    }
}

impl Usage {
    /// One more value, and the memory that belongs to it alone.
    #[inline]
    pub(super) fn add(&mut self, bytes: usize) {
        self.values += 1;
        self.bytes += bytes;
    }

    /// Something that took `before` bytes takes `after` bytes now.
    #[inline]
    pub(super) fn resize(&mut self, before: usize, after: usize) {
        self.bytes = (self.bytes + after).saturating_sub(before);
    }

    pub(super) fn remove(&mut self, other: Usage) {
        self.values = self.values.saturating_sub(other.values);
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.tombstones = self.tombstones.saturating_sub(other.tombstones);
    }
}

/// A message: its fields sorted by tag.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
    /// When the message as such was last stated: when it came to be, or was sent empty.
    pub(super) stated: Stamp,
    pub(super) stated_by: u32,
    /// When it last left its oneof; [`Stamp::NEVER`] if it did not. Then `left_for` took its place.
    pub(super) left: Stamp,
    /// Tag of a field.
    pub(super) left_for: u32,
    /// Fields that its schema does not know. `None`: they have to be counted again.
    pub(super) unknown: Option<u32>,
}

impl Default for Message {
    fn default() -> Message {
        Message {
            fields: Vec::new(),
            stated: Stamp::NEVER,
            stated_by: 0,
            left: Stamp::NEVER,
            left_for: 0,
            unknown: Some(0),
        }
    }
}

#[derive(Debug)]
pub(super) struct Field {
    /// Number and wire type as it is written.
    pub(super) tag: u32,
    /// Its last writer. Of messages, lists and maps: see what is in them.
    pub(super) writer: u32,
    /// When anything in here was last written.
    pub(super) stamp: Stamp,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    /// Nothing: a member that left its oneof, or a place that is about to be filled.
    Gone,
    Scalar(u64),
    Bytes(Vec<u8>),
    Message(Box<Message>),
    List(Box<List>),
    Map(Box<Map>),
}

/// A list: in the order of the elements, which is also that of their stamps.
#[derive(Debug)]
pub(super) struct List {
    pub(super) elements: VecDeque<Element>,
    /// Wire type of an element.
    pub(super) wire: u8,
    /// When the list was last replaced as a whole.
    pub(super) replaced: Stamp,
    /// The part of `own_bytes` in the state's usage.
    pub(super) counted: usize,
}

#[derive(Debug)]
pub(super) struct Element {
    pub(super) stamp: Stamp,
    pub(super) writer: u32,
    pub(super) value: ElementValue,
}

#[derive(Debug)]
pub(super) enum ElementValue {
    Scalar(u64),
    /// A string, bytes or a message: elements are never changed, so there is no need to look inside.
    Bytes(Box<[u8]>),
}

impl Message {
    /// A message that `writer` begins at `stamp`.
    pub(super) fn new(stamp: Stamp, writer: u32) -> Message {
        Message { stated: stamp, stated_by: writer, ..Message::default() }
    }

    /// The field with that tag. Fields mostly come in order, so the place after the last one found is tried first.
    #[inline]
    pub(super) fn find(&self, tag: u32, hint: usize) -> Result<usize, usize> {
        match self.fields.get(hint) {
            Some(field) if field.tag == tag => Ok(hint),
            _ => self.fields.binary_search_by_key(&tag, |field| field.tag),
        }
    }

    /// Makes a place for a field of each of these tags, which may be there already, come twice and in any order. New ones
    /// are [`Value::Gone`]. One pass over the fields, however many are new: a peer that sends its fields in falling order
    /// must not cost more than one that sends them in rising order.
    pub(super) fn make_places(&mut self, tags: &mut PendingTags) {
        tags.sort_unstable();
        tags.dedup();
        tags.retain(|tag| self.fields.binary_search_by_key(tag, |field| field.tag).is_err());
        let Some(&first) = tags.first() else { return };
        let is_in_order = self.fields.last().is_none_or(|last| last.tag < first);
        // As many as are needed and no more: few messages get further fields later.
        self.fields.reserve_exact(tags.len());
        self.fields.extend(tags.iter().map(|&tag| Field { tag, writer: 0, stamp: Stamp::NEVER, value: Value::Gone }));
        if !is_in_order {
            // Two sorted runs, which the standard library's stable sort merges in one pass.
            self.fields.sort_by_key(|field| field.tag);
        }
    }

    /// Fields that its schema does not know, which is what `is_unknown` says of their tags. Looks at all fields only after
    /// some were taken out.
    pub(super) fn unknown_count(&mut self, is_unknown: impl Fn(u32) -> bool) -> usize {
        let count = || self.fields.iter().filter(|field| is_unknown(field.tag)).count() as u32;
        let count = self.unknown.unwrap_or_else(count);
        self.unknown = Some(count);
        count as usize
    }

    /// Bytes of the memory for the fields, without what is in them.
    #[inline]
    pub(super) fn own_bytes(&self) -> usize {
        allocated(self.fields.capacity() * size_of::<Field>())
    }

    /// The field with that tag, if it is set.
    #[inline]
    pub(super) fn value(&self, tag: u32) -> Option<&Value> {
        self.find(tag, 0).ok().map(|place| &self.fields[place].value)
    }

    /// The map in field `number`.
    pub(super) fn map(&self, number: u32) -> Option<&Map> {
        match self.value(wire::tag(number, wire::BYTES)) {
            Some(Value::Map(map)) => Some(map),
            _ => None,
        }
    }

    pub(super) fn count(&self, usage: &mut Usage) {
        usage.bytes += self.own_bytes();
        for field in &self.fields {
            field.value.count(usage);
        }
    }
}

/// Tags of fields that an update is about to write.
pub(super) type PendingTags = SmallVec<[u32; 32]>;

/// Memory of a message that is a value, without its fields.
pub(super) const MESSAGE_BYTES: usize = allocated(size_of::<Message>());
/// Memory of a list without its elements.
pub(super) const LIST_BYTES: usize = allocated(size_of::<List>());
/// Memory of a map without its entries.
pub(super) const MAP_BYTES: usize = allocated(size_of::<Map>());

impl Value {
    /// The memory of the value, itself included.
    pub(super) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        self.count(&mut usage);
        usage
    }

    pub(super) fn count(&self, usage: &mut Usage) {
        match self {
            Value::Gone => {}
            Value::Scalar(_) => usage.add(0),
            Value::Bytes(bytes) => usage.add(allocated(bytes.capacity())),
            Value::Message(message) => {
                usage.add(MESSAGE_BYTES);
                message.count(usage);
            }
            Value::List(list) => {
                usage.add(LIST_BYTES + list.counted);
                list.elements.iter().for_each(|element| usage.add(element.value.own_bytes()));
            }
            Value::Map(map) => {
                usage.add(MAP_BYTES);
                map.count(usage);
            }
        }
    }
}

impl ElementValue {
    /// Bytes of memory beside the element.
    pub(super) fn own_bytes(&self) -> usize {
        match self {
            ElementValue::Scalar(_) => 0,
            ElementValue::Bytes(bytes) => allocated(bytes.len()),
        }
    }
}

impl List {
    pub(super) fn new(wire: u8) -> List {
        List { elements: VecDeque::new(), wire, replaced: Stamp::NEVER, counted: 0 }
    }

    /// Bytes of the memory for the elements, without what is in them.
    pub(super) fn own_bytes(&self) -> usize {
        allocated(self.elements.capacity() * size_of::<Element>())
    }

    /// Place of the first element that was appended after `since`.
    pub(super) fn first_after(&self, since: Stamp) -> usize {
        self.elements.partition_point(|element| element.stamp <= since)
    }
}
