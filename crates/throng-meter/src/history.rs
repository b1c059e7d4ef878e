//! The last ticks.

use crate::{Percentiles, TickRecord};

/// Most ticks that a [`History`] can keep: 36 minutes at 30 Hz, 16 MiB.
pub const MAX_HISTORY_TICKS: usize = 65_536;

/// The records of the last ticks, oldest first. When it is full the oldest record makes room, and is counted.
#[derive(Clone, Debug)]
pub struct History {
    /// A ring once it is full: the oldest record is then at `oldest`.
    records: Vec<TickRecord>,
    capacity: usize,
    oldest: usize,
    dropped: u64,
}

impl History {
    /// Room for the last `ticks` ticks: at least 1, at most [`MAX_HISTORY_TICKS`]. Allocates all of it.
    pub fn new(ticks: usize) -> History {
        let capacity = ticks.clamp(1, MAX_HISTORY_TICKS);
        History { records: Vec::with_capacity(capacity), capacity, oldest: 0, dropped: 0 }
    }

    /// Keeps a copy of `record`.
    pub fn push(&mut self, record: &TickRecord) {
        if self.records.len() < self.capacity {
            self.records.push(*record);
            return;
        }
        self.records[self.oldest] = *record;
        self.oldest = (self.oldest + 1) % self.capacity;
        self.dropped += 1;
    }

    /// The records kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &TickRecord> {
        let (newer, older) = self.records.split_at(self.oldest);
        older.iter().chain(newer)
    }

    /// The newest record.
    pub fn newest(&self) -> Option<&TickRecord> {
        // Just before the oldest, around the end; the last one while there is still room.
        let before_oldest = (self.oldest + self.records.len()).checked_sub(1)?;
        self.records.get(before_oldest % self.records.len())
    }

    /// Number of records kept.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether no tick has been kept.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How many ticks this has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many records had to make room for newer ones.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Forgets all records, as after a warm-up. Keeps the memory.
    pub fn clear(&mut self) {
        self.records.clear();
        (self.oldest, self.dropped) = (0, 0);
    }

    /// The distribution over the records kept of one of their values. Allocates; for use after a run.
    pub fn percentiles(&self, value: impl Fn(&TickRecord) -> u64) -> Percentiles {
        Percentiles::from_values(self.iter().map(value))
    }
}
