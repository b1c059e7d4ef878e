//! A state as bytes, to be kept in a file and read again: all that later merges and encodings depend on.
//!
//! ```text
//!  state    newest  horizon  latest_reset  has_forgotten  url  fingerprint of the schema (0: none)  message
//!  message  stated  writer  left  [tag if it ever left]  field ..  0
//!  field    tag  stamp  writer  value
//!  value    0 gone | 1 number | 2 bytes | 3 message | 4 list | 5 map
//!  list     wire type  replaced  count  (stamp  writer  number | bytes) ..
//!  map      tag of keys  flags  farewell  [message: the residue]  count  entry ..          first changed first
//!  entry    flags and kind of name  name  tag of value  stamp  writer  [when it was removed]  value
//!  stamp    0 never | 1 + zigzag(stamp of what it is in - stamp)
//! ```
//!
//! All numbers are varints. Values that were written together with what they are in have a stamp of one byte.
//!
//! The bytes that are read are not trusted: the shape of the tree is checked. If the schema is another one than that of the writer,
//! the tree would not fit it: then the state is taken as bytes, and merged as a first update.

use super::limits::{MergeError, MergeOptions, StateLimits};
use super::map::{Entry, KeyRef, Map, Name};
use super::schema::Schemas;
use super::tree::{Element, ElementValue, Field, List, Message, Stamp, Usage, Value};
use super::wire::{self, BYTES, FIXED32, FIXED64, Malformed, Raw, Reader, VARINT, wire_of};
use super::{DataState, TYPE_URL_MAX_BYTES, put_varint};

/// Why saved bytes are no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The bytes are not those of a saved state, or not all of them.
    #[error("the bytes are not a saved state")]
    Malformed,
    /// The state has more values than [`StateLimits::entries`] allows.
    #[error("the saved state has more than {limit} values")]
    TooManyValues {
        /// The bound.
        limit: usize,
    },
    /// Its type is defined otherwise than when it was saved, and the definition does not fit.
    #[error("the saved state does not fit the present definition of its type: {0}")]
    OtherSchema(MergeError),
}

impl LoadError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            LoadError::Malformed => "saved_malformed",
            LoadError::TooManyValues { .. } => "saved_too_many_values",
            LoadError::OtherSchema(_) => "saved_other_schema",
        }
    }
}

impl From<Malformed> for LoadError {
    fn from(_: Malformed) -> LoadError {
        LoadError::Malformed
    }
}

/// Values within each other. Merging allows 32 messages of a schema and 32 guessed ones in the last of them, each of which may
/// be the value of an entry of a map.
const DEPTH_MAX: u32 = 256;

/// The writer of a state that is merged anew: no connection has this number.
const NO_WRITER: u32 = u32::MAX - 1;

const GONE: u8 = 0;
const SCALAR: u8 = 1;
const TEXT: u8 = 2;
const MESSAGE: u8 = 3;
const LIST: u8 = 4;
const MAP: u8 = 5;

/// Flags of a map.
const ORDERED: u8 = 1;
const REPEATS: u8 = 2;
const RESIDUE: u8 = 4;

/// Flags of an entry, above the kind of its name.
const NAMELESS: u8 = 0;
const NUMBER: u8 = 1;
const WORD: u8 = 2;
const NAME_KINDS: u8 = 3;
const IS_GONE: u8 = 4;
const HAS_RETURNED: u8 = 8;

impl DataState {
    /// Appends the state as bytes for [`DataState::load`].
    pub fn save(&self, out: &mut Vec<u8>) {
        put_varint(out, self.newest.bits());
        put_varint(out, self.horizon.bits());
        put_varint(out, self.latest_reset.bits());
        out.push(u8::from(self.has_forgotten));
        wire::put_bytes(out, self.type_url.as_bytes());
        put_varint(out, self.schema.as_ref().map_or(0, |schema| schema.fingerprint()));
        save_message(&self.root, self.newest, out);
    }

    /// The state that was saved, with types from `schemas`. Its ticks are those of the time when it was saved: go on with
    /// later ones.
    ///
    /// # Errors
    /// The bytes are damaged, or the state does not fit the present schema.
    pub fn load(
        saved: &[u8],
        schemas: &Schemas,
        options: MergeOptions,
        limits: StateLimits,
    ) -> Result<DataState, LoadError> {
        let mut reader = Reader::new(saved);
        let newest = Stamp::from_bits(reader.varint()?).ok_or(LoadError::Malformed)?;
        let mut load = Load { reader, newest, values: 0, values_max: limits.entries, depth: 0 };
        let horizon = load.plain_stamp()?;
        let latest_reset = load.plain_stamp()?;
        let has_forgotten = load.byte()? != 0;
        let type_url = load.bytes()?;
        if type_url.len() > TYPE_URL_MAX_BYTES {
            return Err(LoadError::Malformed);
        }
        let type_url = std::str::from_utf8(type_url).map_err(|_| LoadError::Malformed)?;
        let fingerprint = load.reader.varint()?;
        let root = load.message(newest)?;
        if !load.reader.rest.is_empty() {
            return Err(LoadError::Malformed);
        }
        let schema = schemas.find(type_url).cloned();
        let state = DataState::new(schema, type_url, options, limits, newest.tick());
        let is_of_this_schema = state.schema.as_ref().map_or(0, |schema| schema.fingerprint()) == fingerprint;
        if !is_of_this_schema {
            return state.merged_anew(&root);
        }
        let mut usage = Usage::default();
        root.count(&mut usage);
        let oldest_tombstone = if usage.tombstones > 0 { Stamp::NEVER } else { Stamp::FOREVER };
        Ok(DataState { root, usage, newest, horizon, has_forgotten, latest_reset, oldest_tombstone, ..state })
    }

    /// With everything that is in a tree of another schema, as an update.
    fn merged_anew(mut self, root: &Message) -> Result<DataState, LoadError> {
        let mut whole = Vec::new();
        super::encode::whole(root, &mut whole);
        if !whole.is_empty() {
            let (type_url, now) = (self.type_url.clone(), self.newest.tick());
            self.merge(&whole, &type_url, NO_WRITER, now).map_err(LoadError::OtherSchema)?;
        }
        Ok(self)
    }
}

fn save_message(message: &Message, outer: Stamp, out: &mut Vec<u8>) {
    put_stamp(out, outer, message.stated);
    put_varint(out, message.stated_by.into());
    put_stamp(out, outer, message.left);
    if message.left > Stamp::NEVER {
        put_varint(out, message.left_for.into());
    }
    for field in &message.fields {
        put_varint(out, field.tag.into());
        put_stamp(out, outer, field.stamp);
        put_varint(out, field.writer.into());
        save_value(&field.value, field.stamp, out);
    }
    out.push(0);
}

fn save_value(value: &Value, outer: Stamp, out: &mut Vec<u8>) {
    match value {
        Value::Gone => out.push(GONE),
        Value::Scalar(number) => {
            out.push(SCALAR);
            put_varint(out, *number);
        }
        Value::Bytes(bytes) => {
            out.push(TEXT);
            wire::put_bytes(out, bytes);
        }
        Value::Message(message) => {
            out.push(MESSAGE);
            save_message(message, outer, out);
        }
        Value::List(list) => {
            out.push(LIST);
            save_list(list, outer, out);
        }
        Value::Map(map) => {
            out.push(MAP);
            save_map(map, outer, out);
        }
    }
}

fn save_list(list: &List, outer: Stamp, out: &mut Vec<u8>) {
    out.push(list.wire);
    put_stamp(out, outer, list.replaced);
    put_varint(out, list.elements.len() as u64);
    for element in &list.elements {
        put_stamp(out, outer, element.stamp);
        put_varint(out, element.writer.into());
        match &element.value {
            ElementValue::Scalar(number) => put_varint(out, *number),
            ElementValue::Bytes(bytes) => wire::put_bytes(out, bytes),
        }
    }
}

fn save_map(map: &Map, outer: Stamp, out: &mut Vec<u8>) {
    put_varint(out, map.key_tag.into());
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    out.push(flag(map.is_ordered, ORDERED) | flag(map.repeats, REPEATS) | flag(map.residue.is_some(), RESIDUE));
    wire::put_bytes(out, &map.farewell);
    if let Some(residue) = &map.residue {
        save_message(residue, outer, out);
    }
    put_varint(out, (map.live_count() + map.tombstone_count()) as u64);
    for entry in map.walk_from_oldest() {
        save_entry(entry, outer, out);
    }
}

fn save_entry(entry: &Entry, outer: Stamp, out: &mut Vec<u8>) {
    let flags = if entry.is_gone { IS_GONE } else { 0 } | if entry.removed > Stamp::NEVER { HAS_RETURNED } else { 0 };
    match &entry.name {
        Name::Nameless => out.push(flags | NAMELESS),
        Name::Number(number) => {
            out.push(flags | NUMBER);
            put_varint(out, *number);
        }
        Name::Text(text) => {
            out.push(flags | WORD);
            wire::put_bytes(out, text);
        }
    }
    put_varint(out, entry.value_tag.into());
    put_stamp(out, outer, entry.stamp);
    put_varint(out, entry.writer.into());
    if flags & HAS_RETURNED != 0 {
        put_stamp(out, outer, entry.removed);
    }
    save_value(&entry.value, entry.stamp, out);
}

fn put_stamp(out: &mut Vec<u8>, outer: Stamp, stamp: Stamp) {
    if stamp == Stamp::NEVER {
        return out.push(0);
    }
    let before = outer.bits().wrapping_sub(stamp.bits()) as i64;
    put_varint(out, (((before << 1) ^ (before >> 63)) as u64).wrapping_add(1));
}

/// Reads a tree, and believes nothing.
struct Load<'a> {
    reader: Reader<'a>,
    newest: Stamp,
    values: usize,
    values_max: usize,
    depth: u32,
}

impl<'a> Load<'a> {
    fn byte(&mut self) -> Result<u8, LoadError> {
        let (&byte, rest) = self.reader.rest.split_first().ok_or(LoadError::Malformed)?;
        self.reader.rest = rest;
        Ok(byte)
    }

    fn bytes(&mut self) -> Result<&'a [u8], LoadError> {
        match self.reader.value(BYTES)? {
            Raw::Bytes(bytes) => Ok(bytes),
            Raw::Scalar(_) => Err(LoadError::Malformed),
        }
    }

    fn small(&mut self) -> Result<u32, LoadError> {
        u32::try_from(self.reader.varint()?).map_err(|_| LoadError::Malformed)
    }

    /// The tag of a field, whose number is one and whose wire type is known.
    fn checked_tag(tag: u32) -> Result<u32, LoadError> {
        let is_known = matches!(wire_of(tag), VARINT | FIXED32 | FIXED64 | BYTES);
        if tag >> 3 > 0 && is_known { Ok(tag) } else { Err(LoadError::Malformed) }
    }

    fn plain_stamp(&mut self) -> Result<Stamp, LoadError> {
        let stamp = Stamp::from_bits(self.reader.varint()?).ok_or(LoadError::Malformed)?;
        if stamp <= self.newest { Ok(stamp) } else { Err(LoadError::Malformed) }
    }

    fn stamp(&mut self, outer: Stamp) -> Result<Stamp, LoadError> {
        let code = self.reader.varint()?;
        let Some(zigzag) = code.checked_sub(1) else { return Ok(Stamp::NEVER) };
        let before = (zigzag >> 1) ^ (zigzag & 1).wrapping_neg();
        let stamp = Stamp::from_bits(outer.bits().wrapping_sub(before)).ok_or(LoadError::Malformed)?;
        if stamp <= self.newest { Ok(stamp) } else { Err(LoadError::Malformed) }
    }

    fn count_value(&mut self) -> Result<(), LoadError> {
        self.values += 1;
        if self.values <= self.values_max {
            return Ok(());
        }
        Err(LoadError::TooManyValues { limit: self.values_max })
    }

    fn message(&mut self, outer: Stamp) -> Result<Message, LoadError> {
        let stated = self.stamp(outer)?;
        let mut message = Message { stated_by: self.small()?, unknown: None, ..Message::new(stated, 0) };
        message.left = self.stamp(outer)?;
        if message.left > Stamp::NEVER {
            message.left_for = Load::checked_tag(self.small()?)?;
        }
        loop {
            let tag = self.small()?;
            if tag == 0 {
                break;
            }
            if message.fields.last().is_some_and(|last| last.tag >= tag) {
                return Err(LoadError::Malformed);
            }
            let tag = Load::checked_tag(tag)?;
            let stamp = self.stamp(outer)?;
            let writer = self.small()?;
            let value = self.value(wire_of(tag), stamp)?;
            message.fields.push(Field { tag, writer, stamp, value });
        }
        message.fields.shrink_to_fit();
        Ok(message)
    }

    /// A value that is written with this wire type.
    fn value(&mut self, wire: u8, outer: Stamp) -> Result<Value, LoadError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(LoadError::Malformed);
        }
        let kind = self.byte()?;
        if kind != GONE {
            self.count_value()?;
        }
        let value = match kind {
            GONE => Value::Gone,
            SCALAR if wire != BYTES => Value::Scalar(self.reader.varint()?),
            TEXT if wire == BYTES => Value::Bytes(self.bytes()?.to_vec()),
            MESSAGE if wire == BYTES => Value::Message(Box::new(self.message(outer)?)),
            LIST => Value::List(Box::new(self.list(wire, outer)?)),
            MAP if wire == BYTES => Value::Map(Box::new(self.map(outer)?)),
            _ => return Err(LoadError::Malformed),
        };
        self.depth -= 1;
        Ok(value)
    }

    fn list(&mut self, written: u8, outer: Stamp) -> Result<List, LoadError> {
        let wire = self.byte()?;
        let is_packed = written == BYTES;
        if !matches!(wire, VARINT | FIXED32 | FIXED64 | BYTES) || wire != written && !is_packed {
            return Err(LoadError::Malformed);
        }
        let mut list = List::new(wire);
        list.replaced = self.stamp(outer)?;
        for _ in 0..self.reader.varint()? {
            self.count_value()?;
            let stamp = self.stamp(outer)?;
            let writer = self.small()?;
            let value = match wire {
                BYTES => ElementValue::Bytes(self.bytes()?.into()),
                _ => ElementValue::Scalar(self.reader.varint()?),
            };
            list.elements.push_back(Element { stamp, writer, value });
        }
        list.elements.shrink_to_fit();
        list.counted = list.own_bytes();
        Ok(list)
    }

    fn map(&mut self, outer: Stamp) -> Result<Map, LoadError> {
        let mut map = Map::new(Load::checked_tag(self.small()?)?);
        let flags = self.byte()?;
        map.is_ordered = flags & ORDERED != 0;
        map.repeats = flags & REPEATS != 0;
        map.farewell = self.bytes()?.to_vec();
        if flags & RESIDUE != 0 {
            self.count_value()?;
            self.depth += 1;
            map.residue = Some(Box::new(self.message(outer)?));
            self.depth -= 1;
        }
        for _ in 0..self.reader.varint()? {
            self.entry(&mut map, outer)?;
        }
        map.resettle();
        Ok(map)
    }

    fn entry(&mut self, map: &mut Map, outer: Stamp) -> Result<(), LoadError> {
        let flags = self.byte()?;
        let key = match flags & NAME_KINDS {
            NAMELESS => KeyRef::Nameless,
            NUMBER => KeyRef::Number(self.reader.varint()?),
            WORD => KeyRef::Text(self.bytes()?),
            _ => return Err(LoadError::Malformed),
        };
        let is_known = key != KeyRef::Nameless && map.find(key).is_some();
        // Only a state without a schema has entries that cannot be named, in the order in which they came.
        let is_misplaced = key == KeyRef::Nameless && (!map.is_ordered || flags & IS_GONE != 0);
        if is_known || is_misplaced {
            return Err(LoadError::Malformed);
        }
        let value_tag = match key {
            KeyRef::Nameless => self.small()?,
            _ => Load::checked_tag(self.small()?)?,
        };
        let stamp = self.stamp(outer)?;
        let writer = self.small()?;
        let removed = if flags & HAS_RETURNED != 0 { self.stamp(outer)? } else { Stamp::NEVER };
        let wire = if key == KeyRef::Nameless { BYTES } else { wire_of(value_tag) };
        let value = self.value(wire, stamp)?;
        if key == KeyRef::Nameless && !matches!(value, Value::Bytes(_)) {
            return Err(LoadError::Malformed);
        }
        let slot = map.insert(key, value_tag);
        let entry = map.touch(slot, stamp, writer);
        (entry.removed, entry.value) = (removed, value);
        if flags & IS_GONE != 0 {
            map.bury(slot);
        }
        Ok(())
    }
}
