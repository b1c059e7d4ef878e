//! By how much an update would make a state without a schema grow. Decides like [`opaque`](super::opaque), and changes
//! nothing.

use std::collections::HashSet;

use super::limits::StateLimits;
use super::map::{Entry, INDEX_BYTES, KeyRef, Map};
use super::opaque::{entry_like, is_message, reads_like_message, repeated_numbers};
use super::tree::{Field, MAP_BYTES, MESSAGE_BYTES, Message, Value, allocated};
use super::wire::{Raw, Reader};

/// Bytes of memory that the state would take more, at most; containers that grow may exceed this by a quarter. A value
/// that is replaced by a shorter one counts as unchanged.
pub(super) fn bytes(root: &Message, update: &[u8], limits: &StateLimits) -> usize {
    let mut growth = Growth { limits, bytes: 0 };
    let mut seen = HashSet::new();
    let mut reader = Reader::new(update);
    while let Some((tag, raw)) = reader.next() {
        let value = root.value(tag);
        if value.is_none() {
            growth.bytes += size_of::<Field>();
        }
        if let Raw::Bytes(content) = raw {
            // The oldest occurrence gives way once.
            growth.occurrence(value, content, (0, seen.insert(tag)));
        }
    }
    growth.bytes
}

struct Growth<'a> {
    limits: &'a StateLimits,
    bytes: usize,
}

impl Growth<'_> {
    fn occurrence(&mut self, value: Option<&Value>, content: &[u8], (depth, gives_way): (u32, bool)) {
        let map = match value {
            Some(Value::Map(map)) => Some(&**map),
            _ => {
                self.bytes += MAP_BYTES + size_of::<Entry>();
                None
            }
        };
        let Some(like) = entry_like(content) else {
            let full = map.filter(|map| gives_way && map.nameless().0 >= self.limits.verbatim_occurrences.max(1));
            match full {
                Some(map) => self.rotation(map, content, depth),
                None => self.bytes += size_of::<Entry>() + size_of::<u32>() + allocated(content.len()),
            }
            return;
        };
        let found = map.and_then(|map| map.find(like.key).map(|slot| map.entry(slot))).filter(|entry| !entry.is_gone);
        if found.is_none() {
            let text_bytes = match like.key {
                KeyRef::Text(text) => allocated(text.len()),
                _ => 0,
            };
            self.bytes += size_of::<Entry>() + INDEX_BYTES + text_bytes;
        }
        if let Raw::Bytes(content) = like.value {
            self.fold_value(found.map(|entry| &entry.value), content, depth + 1);
        }
    }

    /// An occurrence is added, and the oldest one is folded or dropped.
    fn rotation(&mut self, map: &Map, content: &[u8], depth: u32) {
        let oldest = map.nameless().1.map(|slot| &map.entry(slot).value);
        let Some(Value::Bytes(oldest)) = oldest else { return };
        self.bytes += allocated(content.len()).saturating_sub(allocated(oldest.capacity()));
        if !map.repeats && depth < self.limits.depth && reads_like_message(oldest) {
            if map.residue.is_none() {
                self.bytes += MESSAGE_BYTES;
            }
            self.fold(map.residue.as_deref(), oldest, depth + 1);
        }
    }

    fn fold(&mut self, message: Option<&Message>, bytes: &[u8], depth: u32) {
        let repeated = repeated_numbers(bytes);
        let mut reader = Reader::new(bytes);
        while let Some((tag, raw)) = reader.next() {
            let value = message.and_then(|message| message.value(tag));
            if value.is_none() {
                self.bytes += size_of::<Field>();
            }
            let Raw::Bytes(content) = raw else { continue };
            let repeats = repeated >> (tag >> 3).min(63) & 1 != 0;
            if repeats || matches!(value, Some(Value::Map(_))) || entry_like(content).is_some() {
                self.occurrence(value, content, (depth, false));
            } else {
                self.fold_value(value, content, depth);
            }
        }
    }

    fn fold_value(&mut self, value: Option<&Value>, content: &[u8], depth: u32) {
        let message = match value {
            Some(Value::Message(message)) => Some(&**message),
            _ => None,
        };
        let is_merged = match message {
            Some(_) => is_message(content),
            None => reads_like_message(content),
        };
        if depth >= self.limits.depth || !is_merged {
            let before = match value {
                Some(Value::Bytes(old)) => allocated(old.capacity()),
                _ => 0,
            };
            self.bytes += allocated(content.len()).saturating_sub(before);
            return;
        }
        if message.is_none() {
            self.bytes += MESSAGE_BYTES;
            if let Some(Value::Bytes(old)) = value
                && is_message(old)
            {
                self.fold(None, old, depth + 1);
            }
        }
        self.fold(message, content, depth + 1);
    }
}
