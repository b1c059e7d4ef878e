//! The values of a state: a tree of messages, lists and maps in which each value knows when it was last written and by
//! whom.

use std::collections::VecDeque;

use throng_wire::Tick;

use super::map::Map;
use super::wire;

/// When something was written: 44 bits of tick, which do not wrap around, and 20 bits that count the merges of a tick.
/// So each merge has a stamp of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp(u64);

const MERGE_BITS: u32 = 20;
const MERGE_MASK: u64 = (1 << MERGE_BITS) - 1;

impl Stamp {
    pub(super) const NEVER: Stamp = Stamp(0);
    pub(super) const FOREVER: Stamp = Stamp(u64::MAX);

    /// The stamp of a state that begins at tick `now`, before anything is merged. Far enough from 0 that ticks before
    /// it have stamps too.
    pub(super) fn start(now: Tick) -> Stamp {
        Stamp(((1 << 32) + u64::from(now.0)) << MERGE_BITS)
    }

    /// The last stamp of `tick`, given that `self` is the newest stamp and is of `newest`.
    pub(super) fn end_of(self, tick: Tick, newest: Tick) -> Stamp {
        let now = self.0 >> MERGE_BITS;
        let steps = tick.0.wrapping_sub(newest.0) as i32;
        Stamp(now.saturating_add_signed(i64::from(steps)) << MERGE_BITS | MERGE_MASK)
    }

    /// The tick of `stamp`, given that `self` is the newest stamp and is of `newest`.
    pub(super) fn tick_of(self, stamp: Stamp, newest: Tick) -> Tick {
        newest.before(((self.0 >> MERGE_BITS) - (stamp.0 >> MERGE_BITS).min(self.0 >> MERGE_BITS)) as u32)
    }

    /// The stamp of the next merge, at tick `now`, given that `self` is the newest stamp and is of `newest`.
    pub(super) fn next(self, now: Tick, newest: Tick) -> Stamp {
        match now.since(newest) {
            0 if self.0 & MERGE_MASK == MERGE_MASK => self,
            0 => Stamp(self.0 + 1),
            steps => Stamp(((self.0 >> MERGE_BITS) + u64::from(steps)) << MERGE_BITS),
        }
    }
}

/// What a state takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) bytes: usize,
    pub(super) values: usize,
    pub(super) tombstones: usize,
}

impl Usage {
    /// Bookkeeping of one value, in bytes: about its tag, length and the like.
    pub(super) const OVERHEAD: usize = 4;

    #[inline]
    pub(super) fn add(&mut self, payload_bytes: usize) {
        self.values += 1;
        self.bytes += Usage::OVERHEAD + payload_bytes;
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
}

impl Default for Message {
    fn default() -> Message {
        Message { fields: Vec::new(), stated: Stamp::NEVER, stated_by: 0, left: Stamp::NEVER, left_for: 0 }
    }
}

#[derive(Debug)]
pub(super) struct Field {
    /// Number and wire type as it is written.
    pub(super) tag: u32,
    /// Who wrote it last. Of messages, lists and maps: see what is in them.
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
    /// A string, bytes or a message: elements are never changed, so nobody has to look inside.
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

    /// The place of the field with that tag; a new one is [`Value::Gone`]. `hint` moves on.
    #[inline]
    pub(super) fn place(&mut self, tag: u32, hint: &mut usize) -> usize {
        let place = match self.find(tag, *hint) {
            Ok(place) => place,
            Err(place) => {
                let field = Field { tag, writer: 0, stamp: Stamp::NEVER, value: Value::Gone };
                self.fields.insert(place, field);
                place
            }
        };
        *hint = place + 1;
        place
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
        for field in &self.fields {
            field.value.count(usage);
        }
    }
}

impl Value {
    /// What the value takes, itself included.
    pub(super) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        self.count(&mut usage);
        usage
    }

    pub(super) fn count(&self, usage: &mut Usage) {
        match self {
            Value::Gone => {}
            Value::Scalar(_) => usage.add(Usage::OVERHEAD),
            Value::Bytes(bytes) => usage.add(bytes.len()),
            Value::Message(message) => {
                usage.add(0);
                message.count(usage);
            }
            Value::List(list) => {
                usage.add(0);
                list.elements.iter().for_each(|element| usage.add(element.value.len_bytes()));
            }
            Value::Map(map) => {
                usage.add(0);
                map.count(usage);
            }
        }
    }
}

impl ElementValue {
    pub(super) fn len_bytes(&self) -> usize {
        match self {
            ElementValue::Scalar(_) => Usage::OVERHEAD,
            ElementValue::Bytes(bytes) => bytes.len(),
        }
    }
}

impl List {
    pub(super) fn new(wire: u8) -> List {
        List { elements: VecDeque::new(), wire, replaced: Stamp::NEVER }
    }

    /// Place of the first element that was appended after `since`.
    pub(super) fn first_after(&self, since: Stamp) -> usize {
        self.elements.partition_point(|element| element.stamp <= since)
    }
}
