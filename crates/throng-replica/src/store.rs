//! The quantised copies of all objects: what the game's values were at the last commit, and when each field changed.
//!
//! ```text
//!  kind arena        row 0                row 1
//!  words             [w0 w1 w2 .. wn]     [w0 w1 ..]        quantised fixed-size fields
//!  blobs             [text, bytes]        [..]              strings and byte lists
//!  field_ticks       [t0 t1 .. tm]        [..]              when each field was last stated: when it changed
//!  statements        [place, tick]        [..]              of kinds with a reckoned position
//! ```
//!
//! The words are the true values, but for those with a threshold, which are the ones that were sent last. A reckoned position (see [`Reckoning`]) is stated only when readers who compute it would
//! be wrong by too much, so its field tick may be older than its last change. Readers see an object move also when the game
//! does not touch it: [`ObjectStore::restate`] looks at such objects.

use std::collections::VecDeque;
use std::sync::Arc;

use throng_schema::{Facet, FieldMask, Kind, Reckoning, Schema, Values, ValuesMut};
use throng_wire::{KindId, ObjectId, Tick};

use crate::grid::CellGrid;
use crate::limits::LimitReached;

/// Where a facet of an object lives at the moment: channel and slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) channel: u32,
    pub(crate) slot: u32,
}

/// The field with the position by which a facet is placed into cells.
pub(crate) fn position_field(kind: &Kind, facet: Facet) -> Option<usize> {
    if facet == Facet::Far { kind.far_position } else { kind.position }
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
    tick_interval_us: u32,
}

#[derive(Debug)]
pub(crate) struct ObjectEntry {
    pub(crate) generation: u32,
    pub(crate) alive: bool,
    pub(crate) kind: KindId,
    pub(crate) row: u32,
    pub(crate) homes: [Option<Home>; Facet::ALL.len()],
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
    /// By row, if the kind has a reckoned position.
    statements: Vec<Statement>,
    /// By row and word with a threshold: its true value, and when that changed.
    exact: Vec<(u32, Tick)>,
    /// The rows of objects that readers see move, and some that have just stopped.
    moving: Vec<u32>,
}

/// The position of an object from which readers reckon.
#[derive(Clone, Copy, Debug)]
struct Statement {
    object: u32,
    position: [i32; 3],
    tick: Tick,
    /// The words of the true velocity: those of the object may be of an older one, within its threshold.
    velocity: [u32; 3],
    /// When the true position last changed.
    moved: Tick,
    /// When the true position was last compared with the reckoned one; `None` before the first statement.
    checked: Option<Tick>,
    /// Whether readers see the object move. Without that, a position that does not change needs no comparison.
    is_moving: bool,
    /// It is in [`Arena::moving`].
    is_listed: bool,
}

/// The result of an update, as sets of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Updated {
    /// The fields that differ from before.
    pub(crate) changed: FieldMask,
    /// The fields that readers have to be told: those that changed, but for a position that they reckon well enough.
    pub(crate) stated: FieldMask,
}

/// The seconds from one tick to another, which may be an earlier one.
pub(crate) fn seconds_between(from: Tick, to: Tick, tick_interval_us: u32) -> f64 {
    to.0.wrapping_sub(from.0) as i64 as f64 * (f64::from(tick_interval_us) / 1e6)
}

impl ObjectStore {
    pub(crate) fn new(schema: Arc<Schema>, limit: usize, tick_interval_us: u32) -> ObjectStore {
        let arenas = schema.kinds().iter().map(Arena::new).collect();
        let (objects, free) = (Vec::new(), VecDeque::new());
        ObjectStore { schema, grids: Vec::new(), arenas, objects, free, limit, tick_interval_us }
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
                self.objects.push(ObjectEntry {
                    generation: 0,
                    alive: false,
                    kind,
                    row: 0,
                    homes: [None; Facet::ALL.len()],
                });
                self.objects.len() as u32 - 1
            }
            None => return Err(LimitReached::Objects(self.limit)),
        };
        let row = self.arenas[usize::from(kind.0)].take_row(self.schema.kind(kind), index, now);
        let entry = &mut self.objects[index as usize];
        *entry = ObjectEntry {
            generation: entry.generation.wrapping_add(1),
            alive: true,
            kind,
            row,
            homes: [None; Facet::ALL.len()],
        };
        Ok(ObjectId { index, generation: entry.generation })
    }

    pub(crate) fn despawn(&mut self, id: ObjectId) {
        let entry = &mut self.objects[id.index as usize];
        entry.alive = false;
        let arena = &mut self.arenas[usize::from(entry.kind.0)];
        arena.free.push(entry.row);
        if let Some(statement) = arena.statements.get_mut(entry.row as usize) {
            statement.is_moving = false;
        }
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

    /// The same values, as readers are to be told them at `tick`: with the position that they reckon for it. `words` is
    /// room for them.
    pub(crate) fn told<'a>(
        &'a self,
        index: u32,
        tick: Tick,
        words: &'a mut Vec<u32>,
    ) -> (KindId, &'a Kind, Values<'a>) {
        let (kind_id, kind, values) = self.row(index);
        let Some(reckoning) = &kind.reckoning else { return (kind_id, kind, values) };
        let row = self.objects[index as usize].row as usize;
        let statement = &self.arenas[usize::from(kind_id.0)].statements[row];
        words.clear();
        words.extend_from_slice(values.words);
        reckoning.set_position(words, statement.at(tick, reckoning, values.words, self.tick_interval_us));
        (kind_id, kind, Values { words, ..values })
    }

    /// The true values of the object at `index`, for its owner. `words` is room for them.
    pub(crate) fn exact<'a>(&'a self, index: u32, words: &'a mut Vec<u32>) -> (KindId, &'a Kind, Values<'a>) {
        let (kind_id, kind, values) = self.row(index);
        if kind.thresholds().is_empty() {
            return (kind_id, kind, values);
        }
        words.clear();
        words.extend_from_slice(values.words);
        for (threshold, &(exact, _)) in kind.thresholds().iter().zip(self.exact_of(index)) {
            words[threshold.word] = exact;
        }
        (kind_id, kind, Values { words, ..values })
    }

    /// The fields of the object at `index` with a threshold whose true values have changed after `since`, and when the newest of
    /// them did.
    pub(crate) fn exact_since(&self, index: u32, since: Option<Tick>) -> (FieldMask, Option<Tick>) {
        let kind = self.kind(index);
        let all = kind.thresholds().iter().zip(self.exact_of(index));
        let newer = all.filter(|(_, (_, tick))| since.is_none_or(|since| tick.is_newer_than(since)));
        newer.fold((0, None), |(mask, newest): (FieldMask, Option<Tick>), (threshold, &(_, tick))| {
            (mask | kind.word_bit(threshold.word), Some(newest.map_or(tick, |newest| newest.newest(tick))))
        })
    }

    fn exact_of(&self, index: u32) -> &[(u32, Tick)] {
        let entry = &self.objects[index as usize];
        let count = self.schema.kind(entry.kind).thresholds().len();
        &self.arenas[usize::from(entry.kind.0)].exact[entry.row as usize * count..][..count]
    }

    /// The reckoned field of the object at `index`, and when its true value last changed.
    pub(crate) fn moved(&self, index: u32) -> Option<(usize, Tick)> {
        let entry = &self.objects[index as usize];
        let reckoning = self.schema.kind(entry.kind).reckoning.as_ref()?;
        Some((reckoning.position, self.arenas[usize::from(entry.kind.0)].statements[entry.row as usize].moved))
    }

    /// Looks at the objects that readers see move and that were not updated in tick `now`. If the reckoned position of one
    /// is too far from the true one, it is stated again, and its home told to `touch`.
    pub(crate) fn restate(&mut self, now: Tick, mut touch: impl FnMut(Home)) {
        for (kind, arena) in self.schema.kinds().iter().zip(&mut self.arenas) {
            let Some(reckoning) = &kind.reckoning else { continue };
            let facet = kind.fields[reckoning.position].condition.facet();
            let mut moving = std::mem::take(&mut arena.moving);
            moving.retain(|&row| {
                let row = row as usize;
                let Statement { object, checked, is_moving, .. } = arena.statements[row];
                arena.statements[row].is_listed = is_moving;
                if is_moving && checked != Some(now) {
                    let stated = arena.reckon(kind, reckoning, row, 0, (now, self.tick_interval_us));
                    arena.note_fields(kind, row, stated, now);
                    if stated != 0 {
                        self.objects[object as usize].homes[facet.index()].into_iter().for_each(&mut touch);
                    }
                }
                is_moving
            });
            arena.moving = moving;
        }
    }

    /// Reads a little of every part of the object at `index`, as [`Connection::fetch`](crate::Connection::fetch) does.
    pub(crate) fn fetch(&self, index: u32) -> u64 {
        let entry = &self.objects[index as usize];
        let (kind, row) = (self.schema.kind(entry.kind), entry.row as usize);
        let arena = &self.arenas[usize::from(entry.kind.0)];
        let (words, fields, exact) = (kind.words, kind.fields.len(), kind.thresholds().len());
        let word = |place: usize| arena.words.get(row * words + place).map_or(0, |&word| u64::from(word));
        let tick = |field: usize| arena.field_ticks.get(row * fields + field).map_or(0, |tick| tick.0);
        let statement =
            arena.statements.get(row).map_or(0, |statement| statement.moved.0 ^ u64::from(statement.object));
        let exact = arena.exact.get(row * exact).map_or(0, |(word, _)| u64::from(*word));
        word(0) ^ word(words.saturating_sub(1)) ^ tick(0) ^ tick(fields.saturating_sub(1)) ^ statement ^ exact
    }

    /// When each field of the object at `index` last changed; for a reckoned position, when it was last stated.
    pub fn field_ticks(&self, index: u32) -> &[Tick] {
        let entry = &self.objects[index as usize];
        let fields = self.schema.kind(entry.kind).fields.len();
        let start = entry.row as usize * fields;
        &self.arenas[usize::from(entry.kind.0)].field_ticks[start..start + fields]
    }

    /// Quantises the object again by `quantise` and returns the fields that differ from before, and those that are to be
    /// told; these are now of tick `now`.
    pub(crate) fn update(&mut self, index: u32, now: Tick, quantise: impl FnOnce(ValuesMut<'_>)) -> Updated {
        let ObjectEntry { kind, row, .. } = self.objects[index as usize];
        let time = (now, self.tick_interval_us);
        self.arenas[usize::from(kind.0)].update(self.schema.kind(kind), row, time, quantise)
    }

    /// The object's position in a facet, in steps, if its kind has one there.
    pub(crate) fn position(&self, index: u32, facet: Facet) -> Option<[i32; 3]> {
        let kind = self.kind(index);
        let word = usize::from(kind.fields[position_field(kind, facet)?].word);
        let words = &self.values(index).words[word..word + 3];
        Some([words[0] as i32, words[1] as i32, words[2] as i32])
    }

    pub(crate) fn home(&self, index: u32, facet: Facet) -> Option<Home> {
        self.objects[index as usize].homes[facet.index()]
    }

    /// The channel in which a facet of an object lives; `None` too if there is no such object.
    pub(crate) fn channel_of(&self, id: ObjectId, facet: Facet) -> Option<u32> {
        let home = if self.contains(id) { self.home(id.index, facet) } else { None };
        home.map(|home| home.channel)
    }
}

impl Statement {
    fn new(object: u32, now: Tick) -> Statement {
        let (position, velocity) = ([0; 3], [0; 3]);
        Statement {
            object,
            position,
            tick: now,
            velocity,
            moved: now,
            checked: None,
            is_moving: false,
            is_listed: false,
        }
    }

    /// Where readers take the object to be at `tick`, by the velocity in its words.
    fn at(&self, tick: Tick, reckoning: &Reckoning, words: &[u32], tick_interval_us: u32) -> [i32; 3] {
        reckoning.after(self.position, words, seconds_between(self.tick, tick, tick_interval_us))
    }
}

impl Arena {
    fn new(kind: &Kind) -> Arena {
        Arena { scratch_words: vec![0; kind.words], scratch_blobs: vec![Vec::new(); kind.blobs], ..Arena::default() }
    }

    fn take_row(&mut self, kind: &Kind, object: u32, now: Tick) -> u32 {
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
        let thresholds = kind.thresholds().len();
        self.exact.resize(self.rows as usize * thresholds, (0, now));
        self.exact[row_at * thresholds..][..thresholds].fill((0, now));
        if kind.reckoning.is_some() {
            self.statements.resize(self.rows as usize, Statement::new(object, now));
            let is_listed = self.statements[row_at].is_listed;
            self.statements[row_at] = Statement { is_listed, ..Statement::new(object, now) };
        }
        row
    }

    fn values(&self, kind: &Kind, row: u32) -> Values<'_> {
        let row = row as usize;
        Values {
            words: &self.words[row * kind.words..][..kind.words],
            blobs: &self.blobs[row * kind.blobs..][..kind.blobs],
        }
    }

    fn update(
        &mut self,
        kind: &Kind,
        row: u32,
        (now, tick_interval_us): (Tick, u32),
        quantise: impl FnOnce(ValuesMut<'_>),
    ) -> Updated {
        let row = row as usize;
        let words = &mut self.words[row * kind.words..][..kind.words];
        let blobs = &mut self.blobs[row * kind.blobs..][..kind.blobs];
        quantise(ValuesMut { words: &mut self.scratch_words, blobs: &mut self.scratch_blobs });
        if let Some(reckoning) = &kind.reckoning {
            self.statements[row].velocity = reckoning.velocity_words(&self.scratch_words);
        }
        let exact = &mut self.exact[row * kind.thresholds().len()..][..kind.thresholds().len()];
        for (threshold, exact) in kind.thresholds().iter().zip(exact) {
            let word = self.scratch_words[threshold.word];
            if exact.0 != word {
                *exact = (word, now);
            }
        }
        kind.hold(words, &mut self.scratch_words);
        let new = Values { words: &self.scratch_words, blobs: &self.scratch_blobs };
        let changed = kind.compare(Values { words, blobs }, new);
        if changed != 0 {
            kind.copy(changed, new, ValuesMut { words, blobs });
        }
        let mut updated = Updated { changed, stated: changed };
        if let Some(reckoning) = &kind.reckoning {
            let stated = self.reckon(kind, reckoning, row, changed, (now, tick_interval_us));
            updated.changed |= stated & 1 << reckoning.velocity;
            updated.stated = changed & !(1 << reckoning.position) | stated;
        }
        self.note_fields(kind, row, updated.stated, now);
        updated
    }

    /// The fields of `mask` of a row were stated.
    fn note_fields(&mut self, kind: &Kind, row: usize, mask: FieldMask, now: Tick) {
        let ticks = &mut self.field_ticks[row * kind.fields.len()..][..kind.fields.len()];
        let mut rest = mask;
        while rest != 0 {
            ticks[rest.trailing_zeros() as usize] = now;
            rest &= rest - 1;
        }
    }

    /// Compares the true position of a row, of which these fields have just changed, with what readers reckon. If it is
    /// too far from that, or the velocity is new, the true one is stated, and the true velocity with it. Returns the fields of the
    /// two that readers have to be told.
    fn reckon(
        &mut self,
        kind: &Kind,
        reckoning: &Reckoning,
        row: usize,
        changed: FieldMask,
        (now, tick_interval_us): (Tick, u32),
    ) -> FieldMask {
        let words = &mut self.words[row * kind.words..][..kind.words];
        let (statement, truth) = (&mut self.statements[row], reckoning.position(words));
        if changed >> reckoning.position & 1 == 1 {
            statement.moved = now;
        }
        let is_first = statement.checked.replace(now).is_none();
        let is_stated = is_first
            || changed >> reckoning.velocity & 1 == 1
            || !reckoning.is_near(statement.at(now, reckoning, words, tick_interval_us), truth);
        if !is_stated {
            return 0;
        }
        (statement.position, statement.tick) = (truth, now);
        let is_new = reckoning.velocity_words(words) != statement.velocity;
        reckoning.set_velocity_words(words, statement.velocity);
        statement.is_moving = reckoning.is_moving(words);
        if statement.is_moving && !std::mem::replace(&mut statement.is_listed, true) {
            self.moving.push(row as u32);
        }
        1 << reckoning.position | FieldMask::from(is_new) << reckoning.velocity
    }
}

#[cfg(test)]
mod tests {
    use throng_schema::Replicate;

    use super::*;

    #[derive(Clone, Debug, Default, PartialEq, Replicate)]
    struct Kite {
        #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03))]
        position: [f64; 3],
        #[replicate(fixed(min = -9, max = 9, step = 0.1))]
        velocity: [f64; 3],
    }

    #[test]
    fn an_object_that_has_ended_states_nothing_and_the_next_in_its_row_begins_anew() {
        let schema = Arc::new(Schema::builder().kind::<Kite>().build().expect("a good kind"));
        let mut store = ObjectStore::new(schema, 1, 100_000);
        let home = Home { channel: 3, slot: 4 };
        let restated = |store: &mut ObjectStore, now: u64| {
            let mut homes = Vec::new();
            store.restate(Tick(now), |home| homes.push(home));
            homes
        };
        let kite = Kite { position: [1.0; 3], velocity: [0.0, 2.0, 0.0] };
        let spawn = |store: &mut ObjectStore, now: u64| {
            let id = store.spawn(KindId(0), Tick(now)).expect("room");
            store.entry_mut(id.index).homes[Facet::Public.index()] = Some(home);
            id
        };
        let id = spawn(&mut store, 1);
        assert_eq!(store.update(id.index, Tick(1), |to| kite.quantise(to)), Updated { changed: 3, stated: 3 });
        assert_eq!(restated(&mut store, 1), [], "it was updated in this tick");
        assert_eq!(restated(&mut store, 2), [home]);
        assert_eq!(restated(&mut store, 2), [], "it was looked at");
        store.despawn(id);
        assert_eq!(restated(&mut store, 9), []);
        let id = spawn(&mut store, 10);
        assert_eq!(restated(&mut store, 11), [], "it has no values yet");
        let resting = Kite { position: [0.01; 3], ..Kite::default() };
        assert_eq!(store.update(id.index, Tick(12), |to| resting.quantise(to)), Updated { changed: 3, stated: 3 });
        assert_eq!((restated(&mut store, 13), store.moved(id.index)), (Vec::new(), Some((0, Tick(12)))));
        let nudged = Kite { position: [0.02; 3], ..Kite::default() };
        assert_eq!(store.update(id.index, Tick(14), |to| nudged.quantise(to)), Updated { changed: 1, stated: 0 });
        assert_eq!((store.field_ticks(id.index)[0], store.moved(id.index)), (Tick(12), Some((0, Tick(14)))));
        let mut words = Vec::new();
        assert_eq!(store.told(id.index, Tick(14), &mut words).2.words[..3], [1, 1, 1]);
        assert_eq!((store.values(id.index).words[0], store.position(id.index, Facet::Public)), (2, Some([2; 3])));
        store.despawn(id);
        // The words of the lowest velocity are those of an empty row: it is the first statement that counts.
        let id = spawn(&mut store, 20);
        let falling = Kite { position: [0.01; 3], velocity: [-9.0; 3] };
        assert_eq!(store.update(id.index, Tick(21), |to| falling.quantise(to)), Updated { changed: 1, stated: 1 });
        assert_eq!(restated(&mut store, 22), [home]);
    }

    #[test]
    fn only_objects_that_move_are_looked_at_in_each_tick() {
        let schema = Arc::new(Schema::builder().kind::<Kite>().build().expect("a good kind"));
        let mut store = ObjectStore::new(schema, 100, 100_000);
        let ids: Vec<ObjectId> = (0..100).map(|_| store.spawn(KindId(0), Tick(1)).expect("room")).collect();
        let set = |store: &mut ObjectStore, at: usize, speed: f64| {
            let kite = Kite { position: [at as f64; 3], velocity: [speed, 0.0, 0.0] };
            store.update(ids[at].index, Tick(2), |to| kite.quantise(to));
        };
        (0..100).for_each(|at| set(&mut store, at, f64::from(at % 10 == 0)));
        (0..3).for_each(|_| set(&mut store, 0, 1.0));
        assert_eq!(store.arenas[0].moving.len(), 10);
        set(&mut store, 10, 0.0);
        set(&mut store, 20, 0.0);
        set(&mut store, 20, 1.0);
        store.restate(Tick(3), |_| {});
        assert_eq!(store.arenas[0].moving.len(), 9);
        set(&mut store, 10, 1.0);
        assert_eq!(store.arenas[0].moving.len(), 10);
    }

    #[derive(Clone, Debug, Default, PartialEq, Replicate)]
    struct Turret {
        #[replicate(fixed(min = -90, max = 90, step = 0.5), threshold = 2.0)]
        angles: [f64; 2],
        #[replicate(integer)]
        shells: u8,
    }

    #[test]
    fn a_value_with_a_threshold_stays_what_it_was_until_it_differs_by_more() {
        let schema = Arc::new(Schema::builder().kind::<Turret>().build().expect("a good kind"));
        let mut store = ObjectStore::new(schema, 1, 100_000);
        let id = store.spawn(KindId(0), Tick(1)).expect("room");
        let mut set = |now: u64, angles: [f64; 2], shells: u8| {
            let turret = Turret { angles, shells };
            let changed = store.update(id.index, Tick(now), |to| turret.quantise(to)).changed;
            let mut held = Turret::default();
            held.apply(FieldMask::MAX, store.values(id.index));
            (changed, held.angles, held.shells)
        };
        let (angles, shells) = (Turret::FIELD_ANGLES, Turret::FIELD_SHELLS);
        assert_eq!(set(1, [10.0, -20.0], 7), (angles | shells, [10.0, -20.0], 7));
        assert_eq!(set(2, [12.0, -22.0], 6), (shells, [10.0, -20.0], 6));
        assert_eq!(set(3, [8.0, -20.5], 6), (0, [10.0, -20.0], 6));
        assert_eq!(set(4, [12.5, -22.0], 6), (angles, [12.5, -20.0], 6), "each element by itself");
        assert_eq!(set(5, [12.5, -22.5], 6), (angles, [12.5, -22.5], 6));
        // Slow drift is sent as soon as it has gone far enough from what was sent.
        let drift: Vec<f64> = (1..=10).map(|step| set(5 + step, [12.5 + step as f64 * 0.5, -22.5], 6).1[0]).collect();
        assert_eq!(drift, [12.5, 12.5, 12.5, 12.5, 15.0, 15.0, 15.0, 15.0, 15.0, 17.5]);
    }

    #[derive(Clone, Debug, Default, PartialEq, Replicate)]
    struct Ship {
        #[replicate(angle(bits = 8), threshold = 0.1)]
        heading: f64,
    }

    #[test]
    fn the_last_code_of_an_angle_is_next_to_the_first() {
        let schema = Arc::new(Schema::builder().kind::<Ship>().build().expect("a good kind"));
        let mut store = ObjectStore::new(schema, 1, 100_000);
        let id = store.spawn(KindId(0), Tick(1)).expect("room");
        // A step is 0.0245, so the threshold is four steps.
        let mut steps = |now: u64, steps: i32| {
            let ship = Ship { heading: f64::from(steps) * std::f64::consts::TAU / 256.0 };
            let changed = store.update(id.index, Tick(now), |to| ship.quantise(to)).changed;
            (changed != 0, store.values(id.index).words[0])
        };
        // Its first value is 0: two steps from 254.
        assert_eq!(steps(1, 254), (false, 0));
        assert_eq!((steps(1, 100), steps(1, 254)), ((true, 100), (true, 254)));
        assert_eq!((steps(2, 258), steps(3, 250)), ((false, 254), (false, 254)), "four steps on either side");
        assert_eq!(steps(4, 259), (true, 3));
        assert_eq!((steps(5, -1), steps(6, 7)), ((false, 3), (false, 3)));
        assert_eq!(steps(7, -2), (true, 254));
        assert_eq!(steps(8, 126), (true, 126), "the other way");
    }
}
