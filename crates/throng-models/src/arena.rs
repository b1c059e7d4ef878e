//! The quantised values of many objects of one kind, in rows.

use throng::schema::{FieldMask, Kind, Quantiser, Values, ValuesMut};

/// The values of all objects of one kind, in rows.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    words: Vec<u32>,
    blobs: Vec<Vec<u8>>,
    rows: u32,
    free: Vec<u32>,
    scratch_words: Vec<u32>,
    scratch_blobs: Vec<Vec<u8>>,
    /// Metres per step, if the kind has a position.
    step_m: Option<f64>,
}

impl Arena {
    pub(crate) fn new(kind: &Kind) -> Arena {
        let (scratch_words, scratch_blobs) = kind.empty_values();
        let step_m = kind.position.and_then(|field| match kind.fields[field].quantiser {
            Quantiser::Position { step } => Some(step),
            _ => None,
        });
        Arena { scratch_words, scratch_blobs, step_m, ..Arena::default() }
    }

    /// A row of zeros.
    pub(crate) fn take_row(&mut self, kind: &Kind) -> u32 {
        let row = self.free.pop().unwrap_or_else(|| {
            self.rows += 1;
            self.words.resize(self.words.len() + kind.words, 0);
            self.blobs.resize_with(self.blobs.len() + kind.blobs, Vec::new);
            self.rows - 1
        });
        let values = self.values_mut(kind, row);
        values.words.fill(0);
        values.blobs.iter_mut().for_each(Vec::clear);
        row
    }

    pub(crate) fn free_row(&mut self, row: u32) {
        self.free.push(row);
    }

    /// Metres per step of the kind's position, if it has one.
    pub(crate) fn step_m(&self) -> Option<f64> {
        self.step_m
    }

    pub(crate) fn values(&self, kind: &Kind, row: u32) -> Values<'_> {
        let row = row as usize;
        Values {
            words: &self.words[row * kind.words..][..kind.words],
            blobs: &self.blobs[row * kind.blobs..][..kind.blobs],
        }
    }

    pub(crate) fn values_mut(&mut self, kind: &Kind, row: u32) -> ValuesMut<'_> {
        let row = row as usize;
        ValuesMut {
            words: &mut self.words[row * kind.words..][..kind.words],
            blobs: &mut self.blobs[row * kind.blobs..][..kind.blobs],
        }
    }

    /// Quantises a row again. Returns the fields that differ from before.
    pub(crate) fn update(&mut self, kind: &Kind, row: u32, quantise: impl FnOnce(ValuesMut<'_>)) -> FieldMask {
        let (mut words, mut blobs) = (std::mem::take(&mut self.scratch_words), std::mem::take(&mut self.scratch_blobs));
        quantise(ValuesMut { words: &mut words, blobs: &mut blobs });
        let new = Values { words: &words, blobs: &blobs };
        let present = self.values_mut(kind, row);
        let mask = kind.compare(present.as_values(), new);
        if mask != 0 {
            kind.copy(mask, new, present);
        }
        (self.scratch_words, self.scratch_blobs) = (words, blobs);
        mask
    }
}
