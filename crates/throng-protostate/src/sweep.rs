//! Forgetting of tombstones.

use super::DataState;
use super::tree::{Message, Stamp, Usage, Value};

impl DataState {
    /// Takes out all tombstones up to `until`.
    pub(super) fn forget_tombstones(&mut self, until: Stamp) {
        let mut sweep = Sweep {
            until,
            newest_forgotten: Stamp::NEVER,
            oldest_left: Stamp::FOREVER,
            freed: Usage::default(),
            grown_bytes: 0,
        };
        sweep.message(&mut self.root);
        self.usage.bytes += sweep.grown_bytes;
        self.usage.remove(sweep.freed);
        self.horizon = self.horizon.max(sweep.newest_forgotten);
        self.has_forgotten |= sweep.newest_forgotten > Stamp::NEVER;
        self.oldest_tombstone = sweep.oldest_left;
    }

    /// Keeps the number of tombstones within its limit. If it is exceeded the oldest quarter goes, so that the work is
    /// not done for each one of them. Returns how many went.
    pub(super) fn bound_tombstones(&mut self) -> u32 {
        let count = self.usage.tombstones;
        if count <= self.limits.tombstones {
            return 0;
        }
        let mut stamps = Vec::with_capacity(count);
        collect_stamps(&self.root, &mut stamps);
        let surplus = stamps.len().saturating_sub(self.limits.tombstones - self.limits.tombstones / 4);
        let Some(last) = surplus.checked_sub(1) else { return 0 };
        let (_, &mut until, _) = stamps.select_nth_unstable(last);
        self.forget_tombstones(until);
        (count - self.usage.tombstones) as u32
    }
}

struct Sweep {
    until: Stamp,
    newest_forgotten: Stamp,
    oldest_left: Stamp,
    freed: Usage,
    /// Memory that maps take instead: they remember the places that have become free.
    grown_bytes: usize,
}

impl Sweep {
    fn message(&mut self, message: &mut Message) {
        for field in &mut message.fields {
            self.value(&mut field.value);
        }
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::Message(message) => self.message(message),
            Value::Map(map) => {
                while let Some(slot) = map.next_departed(self.until) {
                    let entry = map.entry(slot);
                    self.newest_forgotten = self.newest_forgotten.max(entry.stamp);
                    entry.count(&mut self.freed);
                    self.freed.tombstones += 1;
                    map.delete(slot);
                }
                let (before, after) = map.resettle();
                self.freed.bytes += before;
                self.grown_bytes += after;
                if let Some(oldest) = map.tombstone_stamps().next() {
                    self.oldest_left = self.oldest_left.min(oldest);
                }
                if let Some(residue) = &mut map.residue {
                    self.message(residue);
                }
                map.each_value(|value| self.value(value));
            }
            _ => {}
        }
    }
}

fn collect_stamps(message: &Message, stamps: &mut Vec<Stamp>) {
    for field in &message.fields {
        collect_of_value(&field.value, stamps);
    }
}

fn collect_of_value(value: &Value, stamps: &mut Vec<Stamp>) {
    match value {
        Value::Message(message) => collect_stamps(message, stamps),
        Value::Map(map) => {
            stamps.extend(map.tombstone_stamps());
            if let Some(residue) = &map.residue {
                collect_stamps(residue, stamps);
            }
            map.walk().for_each(|(_, entry)| collect_of_value(&entry.value, stamps));
        }
        _ => {}
    }
}
