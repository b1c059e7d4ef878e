//! The quantised copies of all objects: what the game's values were at the last commit, and when each field changed.
//!
//! ```text
//!  kind arena        row 0                row 1
//!  words             [w0 w1 w2 .. wn]     [w0 w1 ..]        quantised fixed-size fields
//!  blobs             [text, bytes]        [..]              strings and byte lists
//!  field_ticks       [t0 t1 .. tm]        [..]              when each field last changed
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use throng_schema::{Facet, FieldMask, Kind, Schema, Values, ValuesMut};
use throng_wire::{KindId, ObjectId, Tick};

use crate::grid::CellGrid;
use crate::limits::LimitReached;

/// Where a facet of an object lives at the moment: channel and slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) channel: u32,
    pub(crate) slot: u32,
}

/// All objects' quantised state.
#[derive(Debug)]
pub struct ObjectStore {
    schema: Arc<Schema>,
    grids: Vec<CellGrid>,
    arenas: Vec<Arena>,
    objects: Vec<ObjectEntry>,
    /// Slots to be used again, the one that rested longest first.
    free: VecDeque<u32>,
    limit: usize,
}

#[derive(Debug)]
pub(crate) struct ObjectEntry {
    pub(crate) generation: u32,
    pub(crate) alive: bool,
    pub(crate) kind: KindId,
    pub(crate) row: u32,
    pub(crate) homes: [Option<Home>; 3],
}

#[derive(Debug, Default)]
struct Arena {
    words: Vec<u32>,
    blobs: Vec<Vec<u8>>,
    field_ticks: Vec<Tick>,
    rows: u32,
    free: Vec<u32>,
    scratch_words: Vec<u32>,
    scratch_blobs: Vec<Vec<u8>>,
}

impl ObjectStore {
    pub(crate) fn new(schema: Arc<Schema>, limit: usize) -> ObjectStore {
        let arenas = schema.kinds().iter().map(Arena::new).collect();
        ObjectStore { schema, grids: Vec::new(), arenas, objects: Vec::new(), free: VecDeque::new(), limit }
    }

    /// The schema of all objects.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    pub(crate) fn add_grid(&mut self, grid: CellGrid) {
        self.grids.push(grid);
    }

    pub(crate) fn grids(&self) -> &[CellGrid] {
        &self.grids
    }

    /// Number of objects alive.
    pub fn object_count(&self) -> usize {
        self.objects.len() - self.free.len()
    }

    pub(crate) fn spawn(&mut self, kind: KindId, now: Tick) -> Result<ObjectId, LimitReached> {
        let index = match self.free.pop_front() {
            Some(index) => index,
            None if self.objects.len() < self.limit => {
                self.objects.push(ObjectEntry { generation: 0, alive: false, kind, row: 0, homes: [None; 3] });
                self.objects.len() as u32 - 1
            }
            None => return Err(LimitReached::Objects(self.limit)),
        };
        let row = self.arenas[usize::from(kind.0)].take_row(self.schema.kind(kind), now);
        let entry = &mut self.objects[index as usize];
        *entry = ObjectEntry { generation: entry.generation.wrapping_add(1), alive: true, kind, row, homes: [None; 3] };
        Ok(ObjectId { index, generation: entry.generation })
    }

    pub(crate) fn despawn(&mut self, id: ObjectId) {
        let entry = &mut self.objects[id.index as usize];
        entry.alive = false;
        self.arenas[usize::from(entry.kind.0)].free.push(entry.row);
        self.free.push_back(id.index);
    }

    /// Whether the object exists.
    pub fn contains(&self, id: ObjectId) -> bool {
        self.objects.get(id.index as usize).is_some_and(|o| o.alive && o.generation == id.generation)
    }

    /// The full id of the object at `index`.
    pub fn id_at(&self, index: u32) -> ObjectId {
        ObjectId { index, generation: self.objects[index as usize].generation }
    }

    pub(crate) fn entry_mut(&mut self, index: u32) -> &mut ObjectEntry {
        &mut self.objects[index as usize]
    }

    /// The objects alive, by index.
    pub fn ids(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.objects
            .iter()
            .enumerate()
            .filter(|(_, object)| object.alive)
            .map(|(index, object)| ObjectId { index: index as u32, generation: object.generation })
    }

    /// The kind of the object at `index`.
    pub fn kind_id(&self, index: u32) -> KindId {
        self.objects[index as usize].kind
    }

    pub(crate) fn kind(&self, index: u32) -> &Kind {
        self.schema.kind(self.kind_id(index))
    }

    /// The kind of the object at `index`, and its quantised values.
    #[inline]
    pub(crate) fn row(&self, index: u32) -> (KindId, &Kind, Values<'_>) {
        let entry = &self.objects[index as usize];
        let kind = self.schema.kind(entry.kind);
        (entry.kind, kind, self.arenas[usize::from(entry.kind.0)].values(kind, entry.row))
    }

    /// The quantised values of the object at `index`.
    pub fn values(&self, index: u32) -> Values<'_> {
        self.row(index).2
    }

    /// When each field of the object at `index` last changed.
    pub fn field_ticks(&self, index: u32) -> &[Tick] {
        let entry = &self.objects[index as usize];
        let fields = self.schema.kind(entry.kind).fields.len();
        let start = entry.row as usize * fields;
        &self.arenas[usize::from(entry.kind.0)].field_ticks[start..start + fields]
    }

    /// Quantises the object again by `quantise` and returns the fields that differ from before; those are now of tick
    /// `now`.
    pub(crate) fn update(&mut self, index: u32, now: Tick, quantise: impl FnOnce(ValuesMut<'_>)) -> FieldMask {
        let ObjectEntry { kind, row, .. } = self.objects[index as usize];
        self.arenas[usize::from(kind.0)].update(self.schema.kind(kind), row, now, quantise)
    }

    /// Where the object's position lies in the words, if its kind has one.
    pub(crate) fn position(&self, index: u32) -> Option<[i32; 3]> {
        let kind = self.kind(index);
        let word = usize::from(kind.fields[kind.position?].word);
        let words = &self.values(index).words[word..word + 3];
        Some([words[0] as i32, words[1] as i32, words[2] as i32])
    }

    pub(crate) fn home(&self, index: u32, facet: Facet) -> Option<Home> {
        self.objects[index as usize].homes[facet.index()]
    }
}

impl Arena {
    fn new(kind: &Kind) -> Arena {
        Arena { scratch_words: vec![0; kind.words], scratch_blobs: vec![Vec::new(); kind.blobs], ..Arena::default() }
    }

    fn take_row(&mut self, kind: &Kind, now: Tick) -> u32 {
        let row = self.free.pop().unwrap_or_else(|| {
            self.rows += 1;
            self.words.resize(self.words.len() + kind.words, 0);
            self.blobs.resize_with(self.blobs.len() + kind.blobs, Vec::new);
            self.field_ticks.resize(self.field_ticks.len() + kind.fields.len(), now);
            self.rows - 1
        });
        let row_at = row as usize;
        self.words[row_at * kind.words..][..kind.words].fill(0);
        self.blobs[row_at * kind.blobs..][..kind.blobs].iter_mut().for_each(Vec::clear);
        self.field_ticks[row_at * kind.fields.len()..][..kind.fields.len()].fill(now);
        row
    }

    fn values(&self, kind: &Kind, row: u32) -> Values<'_> {
        let row = row as usize;
        Values {
            words: &self.words[row * kind.words..][..kind.words],
            blobs: &self.blobs[row * kind.blobs..][..kind.blobs],
        }
    }

    fn update(&mut self, kind: &Kind, row: u32, now: Tick, quantise: impl FnOnce(ValuesMut<'_>)) -> FieldMask {
        let row = row as usize;
        let words = &mut self.words[row * kind.words..][..kind.words];
        let blobs = &mut self.blobs[row * kind.blobs..][..kind.blobs];
        quantise(ValuesMut { words: &mut self.scratch_words, blobs: &mut self.scratch_blobs });
        let new = Values { words: &self.scratch_words, blobs: &self.scratch_blobs };
        let mask = kind.compare(Values { words, blobs }, new);
        if mask == 0 {
            return 0;
        }
        kind.copy(mask, new, ValuesMut { words, blobs });
        let ticks = &mut self.field_ticks[row * kind.fields.len()..][..kind.fields.len()];
        let mut rest = mask;
        while rest != 0 {
            ticks[rest.trailing_zeros() as usize] = now;
            rest &= rest - 1;
        }
        mask
    }
}
