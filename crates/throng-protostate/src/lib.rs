//! A channel's state: any protobuf message, kept as a compacted log of its changes.
//!
//! ```text
//!  merge(update, writer, tick) ---> tree of values: each knows when it was last written, and by whom
//!                                      |
//!                                      |  encode(since): the values written after `since`, as they are now
//!                                      v
//!                                   chunks: messages that a receiver merges, in order
//!                                      |  parts: which bytes are whose
//!                                      v
//!                                   each subscriber: the chunks, or the chunks without its own parts
//! ```
//!
//! A subscriber needs one number: the tick up to which it has received everything. All subscribers at the same tick get
//! the same bytes. A late subscriber gets the newest values, once; old updates are never repeated. The memory is
//! bounded by the state, not by the slowest reader.
//!
//! ```
//! use throng_protostate::{Chunks, DataState, MergeOptions, StateLimits};
//! use throng_wire::Tick;
//!
//! let room = "type.googleapis.com/game.Room";
//! let mut state = DataState::new(None, room, MergeOptions::default(), StateLimits::default(), Tick(0));
//! state.merge(&[0x08, 5], room, 1, Tick(1)).expect("field 1 is 5");
//! state.merge(&[0x10, 7], room, 2, Tick(2)).expect("field 2 is 7");
//!
//! let mut chunks = Chunks::new();
//! state.encode(Some(Tick(1)), None, None, 1_000, &mut chunks);
//! let sent: Vec<&[u8]> = chunks.iter().map(|chunk| chunk.value).collect();
//! assert_eq!(sent, [[0x10, 7]], "a subscriber that stands at tick 1 lacks the second change alone");
//! ```
//!
//! # Merging
//!
//! The state is what a parser makes of all updates, one after the other: scalars and strings take the newest value,
//! messages merge, lists grow, of a oneof the newest member stays, unknown fields are kept, and so is a known field that
//! comes in another wire type. An entry of a map takes the place of the one with its key. Three things differ:
//!
//! - *Entries of maps with message values merge by key*, field by field, where the type is one of those whose games merge
//!   so, or [`MergeOptions::merge_map_entries`] says it. There a world server sends of each object only the fields that
//!   changed, `{7: {position}}`, and a replacement would lose all others for who comes late; a delta carries an entry's
//!   changed fields only. Where entries are replaced, a delta carries changed entries as a whole.
//! - *[`MergeOptions`]* replace or bound lists, and remove map entries whose value says `removed`; at every level, not
//!   only at the outermost one.
//! - Written values count as changed even if they are the same as before, as if each update were forwarded.
//!
//! A removal is sent to every subscriber before it: as the entry with `removed`, as it was received. If the key has
//! come back since, they get the removal in a first chunk and the new entry in a later one, because one message can say
//! only one thing about a key. The same holds for a message in a oneof that was left and entered again.
//!
//! # Without a schema
//!
//! See [`opaque`]: occurrences of fields are kept and merged by rules that hold for every schema, as far
//! as such rules exist.
//!
//! # Ticks
//!
//! `encode(since)` gives what was merged after tick `since`. So a cursor may be set to tick T only when nothing more
//! will be merged at T: merge at a tick newer than the last one that was encoded for.

#![forbid(unsafe_code)]

#[cfg(test)]
mod accounting;
mod check;
mod chunks;
mod encode;
mod limits;
mod map;
mod mask;
mod merge;
pub mod opaque;
mod opaque_growth;
mod replace;
mod save;
mod schema;
mod sweep;
mod tree;
mod vector;
mod wire;

use std::sync::Arc;

use throng_wire::Tick;

pub use self::chunks::{Chunk, Chunks, Involvement, Part};
pub use self::limits::{MergeError, MergeOptions, Merged, StateLimits};
pub use self::map::MapKey;
pub use self::mask::{FieldMask, MaskError};
pub use self::save::LoadError;
pub use self::schema::{Schema, SchemaError, Schemas, message_name};
pub use self::tree::allocated;
pub use self::vector::VectorPath;
pub use self::wire::{put_varint, varint_len};

use self::mask::MaskRef;
use self::merge::Merge;
use self::tree::{Message, Stamp, Usage, Value};

/// The state of one channel.
#[derive(Debug)]
pub struct DataState {
    schema: Option<Arc<Schema>>,
    type_url: String,
    options: MergeOptions,
    limits: StateLimits,
    root: Message,
    usage: Usage,
    /// The newest merge, or the beginning.
    newest: Stamp,
    /// Removals up to here may be forgotten.
    horizon: Stamp,
    /// Some were.
    has_forgotten: bool,
    /// The newest removal of a key that has come back.
    latest_reset: Stamp,
    /// No tombstone is older.
    oldest_tombstone: Stamp,
    scratch: Vec<u8>,
}

/// How one update is merged.
#[derive(Clone, Copy, Debug)]
struct Manner<'a> {
    /// Bytes by which the state may grow.
    room_bytes: usize,
    /// The entries in it are removed.
    removes: bool,
    /// It is joined from many updates, and these fields of the outermost message are lists.
    repeated: Option<&'a [u32]>,
}

impl Manner<'_> {
    /// As the gateway itself changes a state.
    const SET: Manner<'static> = Manner { room_bytes: usize::MAX, removes: false, repeated: None };
}

/// Longest type url of an update. Every message to a subscriber repeats the url of the state, next to a value of up to
/// [`StateLimits::unit_bytes`].
const TYPE_URL_MAX_BYTES: usize = 512;
/// The number of the type url in an `Any`.
const TYPE_URL_FIELD: u32 = 1;

/// Memory of a state that has nothing in it.
const STATE_BYTES: usize = tree::allocated(size_of::<DataState>());

/// More than this is not kept from one use to the next.
const SCRATCH_BYTES: usize = 4 << 10;

impl DataState {
    /// An empty state at tick `now`.
    ///
    /// Without a `schema` the state is opaque. An empty `type_url` is filled in by the first update; with a schema it
    /// defaults to `type.googleapis.com/` and the schema's name.
    pub fn new(
        schema: Option<Arc<Schema>>,
        type_url: &str,
        options: MergeOptions,
        limits: StateLimits,
        now: Tick,
    ) -> DataState {
        let type_url = match &schema {
            Some(schema) if type_url.is_empty() => format!("type.googleapis.com/{}", schema.name()),
            _ => type_url.to_owned(),
        };
        let newest = Stamp::start_of(now);
        DataState {
            schema,
            type_url,
            options,
            limits,
            root: Message::default(),
            usage: Usage::default(),
            newest,
            horizon: newest,
            has_forgotten: false,
            latest_reset: Stamp::NEVER,
            oldest_tombstone: Stamp::FOREVER,
            scratch: Vec::new(),
        }
    }

    /// Merges the `value` of an `Any` of type `type_url` that connection `writer` sent, at tick `now`.
    ///
    /// An error leaves the state as it was. A tick older than the last one counts as the last one.
    pub fn merge(&mut self, update: &[u8], type_url: &str, writer: u32, now: Tick) -> Result<Merged, MergeError> {
        self.merge_within(usize::MAX, (update, type_url), writer, now)
    }

    /// The same if the state grows by at most `room_bytes`. With 0, only updates that replace something are merged.
    ///
    /// The growth is estimated; containers that grow may exceed `room_bytes` by a quarter of their size.
    pub fn merge_within(
        &mut self,
        room_bytes: usize,
        (update, type_url): (&[u8], &str),
        writer: u32,
        now: Tick,
    ) -> Result<Merged, MergeError> {
        self.merge_typed((update, type_url), writer, now, Manner { room_bytes, ..Manner::SET })
    }

    /// Merges a value that another copy of the state has [joined](Self::encode) from many updates. A field that comes twice in it may
    /// have come once in each of two updates, so it says nothing about lists. `repeated` has the numbers of those fields of the
    /// outermost message that are lists for the other copy, see [`repeated_fields`](Self::repeated_fields). In fields of inner messages
    /// that their schema does not know, what comes twice is still taken for a list.
    pub fn merge_joined(
        &mut self,
        (update, type_url): (&[u8], &str),
        repeated: &[u32],
        writer: u32,
        now: Tick,
    ) -> Result<Merged, MergeError> {
        self.merge_typed((update, type_url), writer, now, Manner { repeated: Some(repeated), ..Manner::SET })
    }

    /// The numbers of the fields of the outermost message that have no schema and are lists: they have come twice in one update.
    pub fn repeated_fields(&self) -> impl Iterator<Item = u32> + '_ {
        self.root.fields.iter().filter_map(|field| match &field.value {
            Value::Map(map) if map.repeats => Some(field.tag >> 3),
            _ => None,
        })
    }

    /// Merges `value` into the entry with key `key` of the map in field `number` of the outermost message. The entry is
    /// made if there is none.
    pub fn set_entry(
        &mut self,
        number: u32,
        key: &MapKey,
        value: &[u8],
        writer: u32,
        now: Tick,
    ) -> Result<Merged, MergeError> {
        self.apply_entry(number, key, value, writer, (now, Manner::SET))
    }

    /// Removes the entry with key `key` of the map in field `number` of the outermost message. Subscribers that may
    /// know it get an entry of value `farewell`: for a message with `bool removed = 2` that is `[0x10, 1]`.
    pub fn remove_entry(
        &mut self,
        number: u32,
        key: &MapKey,
        farewell: &[u8],
        writer: u32,
        now: Tick,
    ) -> Result<Merged, MergeError> {
        self.apply_entry(number, key, farewell, writer, (now, Manner { removes: true, ..Manner::SET }))
    }

    /// The value of an entry of the map in field `number` of the outermost message, appended to `out`. Returns whether
    /// there is such an entry.
    pub fn entry(&self, number: u32, key: &MapKey, out: &mut Vec<u8>) -> bool {
        let Some(map) = self.root.map(number) else { return false };
        let Some(entry) = map.get(key) else { return false };
        encode::whole_value(entry, out);
        true
    }

    /// Whether the map in field `number` of the outermost message has an entry with that key.
    pub fn has_entry(&self, number: u32, key: &MapKey) -> bool {
        self.root.map(number).is_some_and(|map| map.get(key).is_some())
    }

    /// Entries of the map in field `number` of the outermost message, without those that were removed.
    pub fn entry_count(&self, number: u32) -> usize {
        self.root.map(number).map_or(0, |map| map.live_count())
    }

    /// The keys of the map in field `number` of the outermost message, last written first.
    pub fn keys(&self, number: u32) -> impl Iterator<Item = MapKey> + '_ {
        self.root.map(number).into_iter().flat_map(|map| map.live_keys())
    }

    /// The values that were written after tick `since`, or all of them, as messages of at most `max_value_bytes` that a
    /// receiver merges in order. `chunks` is cleared first.
    ///
    /// Values that `exclude_writer` wrote last are left out. A removal is in it only if `since` is given: a new
    /// subscriber has nothing to remove.
    ///
    /// A map entry that does not fit is cut into several, which only a receiver that merges entries puts together again;
    /// where entries are replaced, longer ones than [`StateLimits::unit_bytes`] are refused. A single string or list
    /// element that does not fit is sent too long and counted in [`Chunks::oversized`]; with `max_value_bytes` of at least
    /// [`StateLimits::unit_bytes`] there is none.
    pub fn encode(
        &self,
        since: Option<Tick>,
        mask: Option<&FieldMask>,
        exclude_writer: Option<u32>,
        max_value_bytes: usize,
        chunks: &mut Chunks,
    ) {
        chunks.clear();
        let since = since.map(Stamp::end_of);
        if since.is_some_and(|since| since >= self.newest) {
            return;
        }
        let mask = mask.map_or(MaskRef::ALL, FieldMask::root);
        let selection = encode::Selection { since, latest_reset: self.latest_reset, mask, exclude: exclude_writer };
        encode::encode(&self.root, selection, self.options.replace_lists, max_value_bytes, chunks);
    }

    /// Whether anything was removed after tick `since` and has come back: the two can only be told one after the other.
    pub fn has_returned_since(&self, since: Tick) -> bool {
        Stamp::end_of(since) < self.latest_reset
    }

    /// The whole state as one message, appended to `out`: the `value` of an `Any`.
    pub fn write_full(&self, out: &mut Vec<u8>) {
        encode::whole(&self.root, out);
    }

    /// The type url of the state; empty before the first write.
    pub fn type_url(&self) -> &str {
        &self.type_url
    }

    /// The schema, if the state has one.
    pub fn schema(&self) -> Option<&Arc<Schema>> {
        self.schema.as_ref()
    }

    /// The mask of these paths for this state; `None` if there are none.
    pub fn resolve_mask<P: AsRef<str>>(&self, paths: &[P]) -> Result<Option<FieldMask>, MaskError> {
        FieldMask::resolve(paths, self.schema.as_deref())
    }

    /// How updates are merged from now on.
    pub fn set_options(&mut self, options: MergeOptions) {
        self.options = options;
    }

    /// How updates are merged.
    pub fn options(&self) -> MergeOptions {
        self.options
    }

    /// The tick of the newest change; that of the start if there was none.
    pub fn last_change(&self) -> Tick {
        self.newest.tick()
    }

    /// Whether the state has no values, so that there is nothing to send to a new subscriber.
    pub fn is_empty(&self) -> bool {
        self.root.fields.is_empty()
    }

    /// Bytes of memory that the state takes: every allocation with its whole capacity, tombstones included.
    pub fn size_bytes(&self) -> usize {
        self.usage.bytes + STATE_BYTES + tree::allocated(self.type_url.capacity()) + self.scratch.capacity()
    }

    /// The same, counted again.
    #[cfg(test)]
    pub fn recounted(&self) -> usize {
        let mut usage = Usage::default();
        self.root.count(&mut usage);
        assert_eq!(usage.values, self.usage.values, "values");
        assert_eq!(usage.tombstones, self.usage.tombstones, "tombstones");
        usage.bytes + self.size_bytes() - self.usage.bytes
    }

    /// [`StateLimits::state_bytes`] of this state.
    pub fn state_bytes_limit(&self) -> usize {
        self.limits.state_bytes
    }

    /// From now on it may grow to this.
    pub fn set_state_bytes_limit(&mut self, bytes: usize) {
        self.limits.state_bytes = bytes;
    }

    /// Values of the state, of all levels together.
    pub fn value_count(&self) -> usize {
        self.usage.values
    }

    /// Removed map entries that are remembered.
    pub fn tombstone_count(&self) -> usize {
        self.usage.tombstones
    }

    /// Removals up to this tick may be forgotten: subscribers before it may keep entries that are gone. No message can
    /// take them away; such a subscriber has to subscribe again.
    pub fn horizon(&self) -> Tick {
        self.horizon.tick()
    }

    /// Whether any removal was forgotten. If not, no subscriber has the removed entry, at any point.
    pub fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }

    /// Forgets the removals up to and including tick `until`: all subscribers have received them.
    pub fn forget(&mut self, until: Tick) {
        let until = Stamp::end_of(until);
        if self.oldest_tombstone <= until {
            self.forget_tombstones(until);
        }
    }

    /// The vector at `path`, if at least one of its components is known; those that are not are 0. `None` also if one
    /// is not finite.
    pub fn vector(&self, path: &VectorPath) -> Option<[f64; 3]> {
        vector::read(&self.root, path)
    }

    /// The position of an Unreal actor: `replicatedMovement.location` (11.3) of the first message of the state that has
    /// one. A guess, for states that nothing is known of.
    pub fn unreal_location(&self) -> Option<[f64; 3]> {
        vector::unreal_location(&self.root)
    }

    fn check_type(&self, type_url: &str) -> Result<(), MergeError> {
        if type_url.is_empty() {
            return Err(MergeError::MissingData);
        }
        if type_url.len() > TYPE_URL_MAX_BYTES {
            return Err(MergeError::Undeliverable { number: TYPE_URL_FIELD });
        }
        // Nearly always it is the same url. Then it need not be searched for the names, which shows in a gateway's profile.
        let matches = self.type_url.is_empty()
            || *self.type_url == *type_url
            || message_name(&self.type_url) == message_name(type_url);
        if matches { Ok(()) } else { Err(MergeError::WrongType) }
    }

    fn apply_entry(
        &mut self,
        number: u32,
        key: &MapKey,
        value: &[u8],
        writer: u32,
        (now, manner): (Tick, Manner<'_>),
    ) -> Result<Merged, MergeError> {
        let mut update = std::mem::take(&mut self.scratch);
        update.clear();
        let result = match merge::write_entry(self.schema.as_deref(), number, key, value, &mut update) {
            Some(()) => self.apply(&update, writer, now, manner),
            None => Err(MergeError::NotAMap { number }),
        };
        if update.capacity() <= SCRATCH_BYTES {
            self.scratch = update;
        }
        result
    }

    /// Merges `content` into the message in field `number` of the outermost message.
    pub fn set_message(&mut self, number: u32, content: &[u8], writer: u32, now: Tick) -> Result<Merged, MergeError> {
        let mut update = Vec::with_capacity(content.len() + 16);
        put_varint(&mut update, u64::from(wire::tag(number, wire::BYTES)));
        wire::put_bytes(&mut update, content);
        self.apply(&update, writer, now, Manner::SET)
    }

    /// Merges a whole `Any`. The first one names the type of a state that has none.
    fn merge_typed(
        &mut self,
        (update, type_url): (&[u8], &str),
        writer: u32,
        now: Tick,
        manner: Manner<'_>,
    ) -> Result<Merged, MergeError> {
        self.check_type(type_url)?;
        let merged = self.apply(update, writer, now, manner)?;
        if self.type_url.is_empty() {
            self.type_url.push_str(type_url);
        }
        Ok(merged)
    }

    fn apply(&mut self, update: &[u8], writer: u32, now: Tick, manner: Manner<'_>) -> Result<Merged, MergeError> {
        let schema = self.schema.as_deref();
        check::check(&self.root, (schema, self.options), update, self.usage, (&self.limits, manner))?;
        let newest = self.newest.next(now);
        let mut merge = Merge::new(schema, self.options, &self.limits, newest, writer);
        merge.removes = manner.removes;
        merge.repeated = manner.repeated;
        merge.usage = self.usage;
        merge.root(&mut self.root, update);
        self.newest = newest;
        self.usage = merge.usage;
        self.latest_reset = self.latest_reset.max(merge.latest_reset);
        let mut merged = merge.merged;
        if schema.is_none() {
            let (dropped, steps) = opaque::evict(&mut self.root, &mut self.usage, &self.limits);
            merged.dropped += dropped;
            merged.steps += steps;
        }
        if merged.removed > 0 {
            self.oldest_tombstone = self.oldest_tombstone.min(newest);
            merged.tombstones_dropped = self.bound_tombstones();
        }
        Ok(merged)
    }
}
