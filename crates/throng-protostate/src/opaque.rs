//! States without a schema: what can be merged of a message when only its bytes are known.
//!
//! A parser that reads the concatenation of all updates sees the right state: that is how protobuf defines merging. So
//! to keep every occurrence of every field, in order, is always right, and grows without bound. The question is what
//! may be thrown away without any parser noticing, whatever its schema:
//!
//! | on the wire | may be | what is kept |
//! |---|---|---|
//! | varint, 4 or 8 bytes | a single number | the newest |
//! | bytes that read `1: varint or text, 2: anything` | a map entry | by key: the newest key, the values merged |
//! | | a message with two fields | the same; the entries follow each other in the order of change, so the newest wins |
//! | other bytes | text, a message, packed numbers; one, or one of a list | the last [`StateLimits::verbatim_occurrences`] as they came |
//! | | | what is older: see below |
//!
//! Older occurrences are *folded* into one message if they read like messages and never came more than one to an update:
//! then the field can be taken for a single message, of which parsers see the merge. If it is a list after all, to which
//! elements are appended one by one, its oldest elements run together; they would have had to be dropped anyway. Where
//! a field is a list, seen by two occurrences in one update, or reads like text, the oldest is dropped and counted. A copy
//! gets many updates joined into one and cannot see that. So the sender says which fields are lists.
//!
//! Within a folded message and within the value of a map entry a field is taken for a single one at once, unless it
//! comes twice in one message or reads like a map entry: objects that are updated thirty times a second must not grow.
//! Text replaces, messages merge. Bytes read like a message if they are one and do not look like text: text begins
//! with a character that is no control character, and then has none but tabs and line ends. Once a field was seen to be
//! a message it is one.
//!
//! Known limits: numbers repeated without packing (only the newest stays), lists of two-field messages whose first
//! field is not unique (they merge), text that looks like a message or the other way round, maps within a single
//! message (its occurrences are sent as they came, and of two entries with one key parsers keep the later one), oneofs
//! within folded messages, removal of map entries by a field `removed`. A schema does all of these.
//!
//! Everything is bounded by [`StateLimits::state_bytes`]: beyond it the oldest occurrences and entries go, counted. If a
//! state may not grow for another reason, such as a client's quota or low memory, an update that would make it grow is
//! refused and nothing is lost.
//!
//! [`StateLimits::state_bytes`]: super::StateLimits::state_bytes
//! [`StateLimits::verbatim_occurrences`]: super::StateLimits::verbatim_occurrences

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::limits::StateLimits;
use super::map::{KeyRef, Map};
use super::merge::{Merge, Places, write_farewell};
use super::tree::{MAP_BYTES, MESSAGE_BYTES, Message, Stamp, Usage, Value};
use super::wire::{self, BYTES, Raw, Reader, VARINT, wire_of};

/// The interpretation of an occurrence that reads like a map entry.
pub(super) struct EntryLike<'a> {
    pub(super) key: KeyRef<'a>,
    value_tag: u32,
    pub(super) value: Raw<'a>,
}

impl Merge<'_> {
    pub(super) fn opaque_root(&mut self, root: &mut Message, update: &[u8]) {
        let mut reader = Reader::new(update);
        let mut places = Places::default();
        while let Some((tag, raw)) = reader.next() {
            let Some(place) = self.place(root, None, tag, reader, &mut places) else { continue };
            let repeats = self.repeats(tag, root.fields[place].stamp);
            self.opaque_field(root, place, raw, repeats, 0);
        }
    }

    /// Merges an occurrence of a field of which everything is kept as long as possible.
    pub(super) fn opaque_field(
        &mut self,
        message: &mut Message,
        place: usize,
        raw: Raw<'_>,
        repeats: bool,
        depth: u32,
    ) {
        let slot = &mut message.fields[place];
        let before = std::mem::replace(&mut slot.stamp, self.stamp);
        slot.writer = self.writer;
        match raw {
            Raw::Scalar(_) => self.leaf(&mut slot.value, raw),
            Raw::Bytes(content) => {
                let map = self.occurrences(&mut slot.value, before);
                map.repeats |= repeats;
                self.occurrence(map, content, depth);
                map.settle(&mut self.usage);
            }
        }
    }

    /// Merges a message into one of which only the newest values are kept.
    fn fold(&mut self, message: &mut Message, bytes: &[u8], depth: u32) {
        let repeated = repeated_numbers(bytes);
        let mut reader = Reader::new(bytes);
        let mut places = Places::default();
        while let Some((tag, raw)) = reader.next() {
            let Some(place) = self.place(message, None, tag, reader, &mut places) else { continue };
            let slot = &mut message.fields[place];
            let before = std::mem::replace(&mut slot.stamp, self.stamp);
            slot.writer = self.writer;
            let Raw::Bytes(content) = raw else {
                self.leaf(&mut slot.value, raw);
                continue;
            };
            let repeats = repeated >> (tag >> 3).min(63) & 1 != 0;
            if repeats || matches!(slot.value, Value::Map(_)) || entry_like(content).is_some() {
                let map = self.occurrences(&mut slot.value, before);
                map.repeats |= repeats;
                self.occurrence(map, content, depth);
                map.settle(&mut self.usage);
            } else {
                self.fold_value(&mut slot.value, content, depth);
            }
        }
    }

    /// Merges bytes into a value that there is one of.
    fn fold_value(&mut self, value: &mut Value, content: &[u8], depth: u32) {
        if let (Value::Message(message), []) = (&mut *value, content) {
            message.stated = self.stamp;
            message.stated_by = self.writer;
            return;
        }
        // A field that was a message before stays one, even if this piece of it happens to look like text.
        let is_message = match value {
            Value::Message(_) => is_message(content),
            _ => reads_like_message(content),
        };
        if depth >= self.limits.depth || !is_message {
            self.leaf(value, Raw::Bytes(content));
            return;
        }
        if !matches!(value, Value::Message(_)) {
            self.become_message(value, depth);
        }
        let Value::Message(message) = value else { return };
        self.fold(message, content, depth + 1);
    }

    /// Begins a message in place of what was there; bytes that are a message after all become its first fields.
    fn become_message(&mut self, value: &mut Value, depth: u32) {
        self.usage.remove(value.usage());
        self.usage.add(MESSAGE_BYTES);
        let mut message = Box::new(Message::new(self.stamp, self.writer));
        if let Value::Bytes(bytes) = value
            && is_message(bytes)
        {
            self.fold(&mut message, bytes, depth + 1);
        }
        *value = Value::Message(message);
    }

    /// The field as a sequence of occurrences; what it was so far, since `before`, becomes the first of them.
    fn occurrences<'v>(&mut self, value: &'v mut Value, before: Stamp) -> &'v mut Map {
        if !matches!(value, Value::Map(_)) {
            let mut map = Box::new(Map::new(wire::tag(1, VARINT)));
            map.is_ordered = true;
            self.usage.add(MAP_BYTES);
            match std::mem::replace(value, Value::Gone) {
                Value::Message(message) => map.residue = Some(message),
                Value::Bytes(bytes) => {
                    let slot = self.entry_slot(&mut map, KeyRef::Nameless, 0);
                    map.touch(slot, before, self.writer).value = Value::Bytes(bytes);
                }
                other => self.usage.remove(other.usage()),
            }
            *value = Value::Map(map);
        }
        match value {
            Value::Map(map) => map,
            _ => unreachable!("it was made a map above"),
        }
    }

    fn occurrence(&mut self, map: &mut Map, content: &[u8], depth: u32) {
        match entry_like(content) {
            Some(entry) => self.opaque_entry(map, entry, depth),
            None => {
                let slot = self.entry_slot(map, KeyRef::Nameless, 0);
                let entry = map.touch(slot, self.stamp, self.writer);
                self.leaf(&mut entry.value, Raw::Bytes(content));
                self.bound_occurrences(map, depth);
            }
        }
    }

    fn opaque_entry(&mut self, map: &mut Map, like: EntryLike<'_>, depth: u32) {
        let slot = self.entry_slot(map, like.key, like.value_tag);
        if self.removes {
            write_farewell(&mut map.farewell, 0, like.value);
            self.remove(map, slot);
        } else if map.entry(slot).is_gone {
            self.revive(map, slot);
        }
        let entry = map.touch(slot, self.stamp, self.writer);
        entry.value_tag = like.value_tag;
        match like.value {
            Raw::Scalar(_) => self.leaf(&mut entry.value, like.value),
            Raw::Bytes(content) => self.fold_value(&mut entry.value, content, depth + 1),
        }
        if self.removes {
            map.bury(slot);
        }
    }

    /// Folds or drops the oldest occurrence if there are too many.
    fn bound_occurrences(&mut self, map: &mut Map, depth: u32) {
        let (count, Some(slot)) = map.nameless() else { return };
        if count <= self.limits.verbatim_occurrences.max(1) {
            return;
        }
        let entry = map.entry(slot);
        let (stamp, writer) = (entry.stamp, entry.writer);
        let mut usage = Usage::default();
        entry.count(&mut usage);
        self.usage.remove(usage);
        let Value::Bytes(content) = map.delete(slot) else { return };
        if map.repeats || depth >= self.limits.depth || !reads_like_message(&content) {
            self.merged.dropped += 1;
            return;
        }
        let now = (self.stamp, self.writer);
        let values = self.merged.values;
        (self.stamp, self.writer) = (stamp, writer);
        if map.residue.is_none() {
            self.usage.add(MESSAGE_BYTES);
        }
        let residue = map.residue.get_or_insert_with(|| Box::new(Message::new(stamp, writer)));
        self.fold(residue, &content, depth + 1);
        (self.stamp, self.writer) = now;
        self.merged.values = values;
    }
}

/// Gives up the oldest of what can be given up until the state is within its limits. Returns how much that was, and the
/// work that it took.
pub(super) fn evict(root: &mut Message, usage: &mut Usage, limits: &StateLimits) -> (u32, u64) {
    let (mut dropped, mut steps) = (0, 0);
    let is_within = |usage: &Usage| usage.bytes <= limits.state_bytes && usage.values <= limits.entries;
    if is_within(usage) {
        return (0, 0);
    }
    // The map with the oldest content first.
    let mut maps: BinaryHeap<Reverse<(Stamp, usize)>> = BinaryHeap::new();
    for (place, field) in root.fields.iter().enumerate() {
        steps += 1;
        if let Value::Map(map) = &field.value
            && let Some(age) = age(map)
        {
            maps.push(Reverse((age, place)));
        }
    }
    while !is_within(usage) {
        let Some(Reverse((_, place))) = maps.pop() else { break };
        let Value::Map(map) = &mut root.fields[place].value else { continue };
        steps += 1;
        let mut freed = Usage::default();
        if let Some(residue) = map.residue.take() {
            Value::Message(residue).count(&mut freed);
        } else if let Some((slot, entry)) = map.oldest() {
            freed.tombstones += usize::from(entry.is_gone);
            entry.count(&mut freed);
            map.delete(slot);
        }
        usage.remove(freed);
        map.settle(usage);
        dropped += 1;
        if let Some(age) = age(map) {
            maps.push(Reverse((age, place)));
        }
    }
    (dropped, steps)
}

/// When the oldest content of a map was written; `None` if it has none.
fn age(map: &Map) -> Option<Stamp> {
    match (&map.residue, map.oldest()) {
        (Some(_), _) => Some(Stamp::NEVER),
        (None, oldest) => oldest.map(|(_, entry)| entry.stamp),
    }
}

/// Whether the bytes are one key, a number or text, and one value.
pub(super) fn entry_like(content: &[u8]) -> Option<EntryLike<'_>> {
    let mut reader = Reader::new(content);
    let key = match reader.field().ok()?? {
        (tag, Raw::Scalar(number)) if tag == wire::tag(1, VARINT) => KeyRef::Number(number),
        (tag, Raw::Bytes(text)) if tag == wire::tag(1, BYTES) && is_text(text) => KeyRef::Text(text),
        _ => return None,
    };
    let (value_tag, value) = reader.field().ok()??;
    (value_tag >> 3 == 2 && reader.rest.is_empty()).then_some(EntryLike { key, value_tag, value })
}

pub(super) fn reads_like_message(content: &[u8]) -> bool {
    !content.is_empty() && !reads_like_text(content) && is_message(content)
}

pub(super) fn is_message(content: &[u8]) -> bool {
    let mut reader = Reader::new(content);
    loop {
        match reader.field() {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn reads_like_text(content: &[u8]) -> bool {
    content.first().is_some_and(|&first| first >= 0x20) && is_text(content)
}

fn is_text(content: &[u8]) -> bool {
    content.iter().all(|byte| *byte >= 0x20 || matches!(byte, b'\t' | b'\n' | b'\r'))
        && std::str::from_utf8(content).is_ok()
}

/// The numbers of the length-delimited fields that occur more than once, as bits; all from 63 on share one.
pub(super) fn repeated_numbers(bytes: &[u8]) -> u64 {
    let (mut once, mut twice) = (0_u64, 0_u64);
    let mut reader = Reader::new(bytes);
    while let Some((tag, _)) = reader.next() {
        if wire_of(tag) == BYTES {
            let bit = 1 << (tag >> 3).min(63);
            twice |= once & bit;
            once |= bit;
        }
    }
    twice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_entries_are_told_from_other_messages() {
        assert!(entry_like(&[0x08, 7, 0x12, 0]).is_some());
        assert!(entry_like(&[0x0A, 1, b'x', 0x10, 5]).is_some());
        let others: [&[u8]; 6] =
            [&[], &[0x08, 7], &[0x12, 0], &[0x08, 7, 0x12, 0, 0x18, 1], &[0x12, 0, 0x08, 7], &[0x0A, 1, 0xFF, 0x10, 5]];
        for other in others {
            assert!(entry_like(other).is_none(), "{other:02X?}");
        }
    }

    #[test]
    fn text_is_told_from_messages() {
        for text in ["H1", "hello world", "Grüße", "a\tb\n", "{\"x\": 1}"] {
            assert!(!reads_like_message(text.as_bytes()), "{text}");
        }
        let messages: [&[u8]; 3] = [&[0x08, 1], &[0x0D, 0, 0, 0x80, 0x3F], &[0x5A, 2, 0x08, 1]];
        for message in messages {
            assert!(reads_like_message(message), "{message:02X?}");
        }
    }
}
