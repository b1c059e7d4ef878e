//! The rest of a message after an update has replaced it.
//!
//! The update is merged into the old message first, so that repeated fields find their memory again; then everything
//! that the update did not write is taken out. Writing the same fields again and again allocates nothing.

use super::map::Map;
use super::tree::{List, Message, Stamp, Usage, Value};

/// Takes out what was not written at `stamp`.
pub(super) struct Purge {
    pub(super) stamp: Stamp,
    /// The memory that it used.
    pub(super) freed: Usage,
    /// Memory that maps take instead: they remember the places that have become free.
    pub(super) grown_bytes: usize,
    pub(super) steps: u64,
}

impl Purge {
    pub(super) fn message(&mut self, message: &mut Message) {
        self.steps += message.fields.len() as u64;
        let mut is_any_gone = false;
        for field in &mut message.fields {
            if field.stamp < self.stamp || matches!(field.value, Value::Gone) {
                field.value.count(&mut self.freed);
                field.value = Value::Gone;
                is_any_gone = true;
            } else {
                self.value(&mut field.value);
            }
        }
        // A receiver of the message gets all of it: that a oneof was left and entered again adds nothing.
        message.left = Stamp::NEVER;
        if !is_any_gone {
            return;
        }
        message.fields.retain(|field| !matches!(field.value, Value::Gone));
        message.unknown = None;
        if message.fields.capacity() > 2 * message.fields.len() + SPARE_FIELDS {
            let before = message.own_bytes();
            message.fields.shrink_to_fit();
            self.freed.bytes += before.saturating_sub(message.own_bytes());
        }
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::Message(message) => self.message(message),
            Value::List(list) => self.list(list),
            Value::Map(map) => self.map(map),
            Value::Gone | Value::Scalar(_) | Value::Bytes(_) => {}
        }
    }

    fn list(&mut self, list: &mut List) {
        let old = list.elements.partition_point(|element| element.stamp < self.stamp);
        self.steps += old as u64;
        for element in list.elements.drain(..old) {
            self.freed.add(element.value.own_bytes());
        }
    }

    fn map(&mut self, map: &mut Map) {
        while let Some((slot, entry)) = map.oldest()
            && entry.stamp < self.stamp
        {
            self.steps += 1;
            self.freed.tombstones += usize::from(entry.is_gone);
            entry.count(&mut self.freed);
            map.delete(slot);
        }
        if let Some(mut residue) = map.residue.take() {
            self.message(&mut residue);
            match residue.fields.is_empty() {
                true => Value::Message(residue).count(&mut self.freed),
                false => map.residue = Some(residue),
            }
        }
        map.each_value(|value| {
            self.steps += 1;
            self.value(value);
        });
        let (before, after) = map.resettle();
        self.freed.bytes += before;
        self.grown_bytes += after;
    }
}

/// This many more places than twice those in use are worth giving back.
const SPARE_FIELDS: usize = 16;
