//! Checks whether an update can be merged, before anything is changed, so that a merge cannot fail half-way.

use smallvec::SmallVec;

use super::Manner;
use super::limits::{MergeError, MergeOptions, StateLimits};
use super::map::{Entry, INDEX_BYTES, KeyRef};
use super::merge::{read_entry, removes_entry};
use super::opaque_growth;
use super::schema::{FieldShape, Kind, Schema, Shape};
use super::tree::{
    Element, Field, LIST_BYTES, MAP_BYTES, MESSAGE_BYTES, Message, PendingTags, Usage, Value, allocated,
};
use super::wire::{BYTES, Malformed, Raw, Reader};

impl From<Malformed> for MergeError {
    fn from(_: Malformed) -> MergeError {
        MergeError::Malformed
    }
}

/// Memory that one value of an update takes at most, without its own bytes: a map with one entry, spread over the entry,
/// its key and its value.
const VALUE_BYTES_MAX: usize = 256;

/// Tag and length around a value in an encoded message, at most.
const AROUND_BYTES: usize = 10;

/// Checks form, depth and size of `update`, which is to be merged into `root`.
pub(super) fn check(
    root: &Message,
    (schema, options): (Option<&Schema>, MergeOptions),
    update: &[u8],
    usage: Usage,
    (limits, manner): (&StateLimits, Manner<'_>),
) -> Result<(), MergeError> {
    let room_bytes = manner.room_bytes;
    let Some(schema) = schema else { return check_opaque(root, update, limits, manner) };
    let values = Form { schema, options, limits }.message(schema.root(), update, (0, 0))?;
    let worst_bytes = 2 * update.len() + VALUE_BYTES_MAX * values;
    let is_small = worst_bytes <= room_bytes && usage.bytes + worst_bytes <= limits.state_bytes;
    if is_small && usage.values + values <= limits.entries {
        return Ok(());
    }
    let mut growth = Growth { schema, options, removes: manner.removes, usage: Usage::default() };
    growth.message(Some(root), schema.root(), update);
    // An update that only replaces something is accepted even if the state is a little over its limit.
    if growth.usage.bytes > 0 && usage.bytes + growth.usage.bytes > limits.state_bytes {
        Err(MergeError::TooLarge { limit_bytes: limits.state_bytes })
    } else if growth.usage.bytes > room_bytes {
        Err(MergeError::NoRoom { room_bytes })
    } else if usage.values + growth.usage.values > limits.entries {
        Err(MergeError::TooManyEntries { limit: limits.entries })
    } else {
        Ok(())
    }
}

/// The content of an opaque state's fields is guessed; only the fields themselves have to be right. A state that reaches
/// its own limits makes room for an update by giving up its oldest content. If only `room_bytes` is short, nothing is
/// given up and the update is refused.
fn check_opaque(root: &Message, update: &[u8], limits: &StateLimits, manner: Manner<'_>) -> Result<(), MergeError> {
    let room_bytes = manner.room_bytes;
    // Updates that were accepted one by one may be too long together.
    if manner.repeated.is_none() && 2 * update.len() > limits.state_bytes {
        return Err(MergeError::TooLarge { limit_bytes: limits.state_bytes });
    }
    let mut reader = Reader::new(update);
    let mut fields = 0;
    let mut tags = PendingTags::new();
    while let Some((tag, raw)) = reader.field()? {
        fields += 1;
        if let Raw::Bytes(content) = raw
            && content.len() + AROUND_BYTES > limits.unit_bytes
        {
            return Err(MergeError::Undeliverable { number: tag >> 3 });
        }
        if tags.last() != Some(&tag) {
            tags.push(tag);
        }
    }
    if fields > limits.entries {
        return Err(MergeError::TooManyEntries { limit: limits.entries });
    }
    tags.sort_unstable();
    tags.dedup();
    tags.retain(|tag| root.find(*tag, 0).is_err());
    let limit = limits.unknown_fields;
    if root.fields.len() + tags.len() > limit {
        return Err(MergeError::TooManyFields { limit });
    }
    // Taken apart, each two bytes may be a value.
    let worst_bytes = 2 * update.len() + VALUE_BYTES_MAX * (fields + update.len() / 2);
    match worst_bytes > room_bytes && opaque_growth::bytes(root, update, limits) > room_bytes {
        true => Err(MergeError::NoRoom { room_bytes }),
        false => Ok(()),
    }
}

/// Whether bytes are a message of a schema.
struct Form<'a> {
    schema: &'a Schema,
    options: MergeOptions,
    limits: &'a StateLimits,
}

impl Form<'_> {
    /// Returns the number of values at most. It is `depth` messages deep, and `around` bytes are around it in every
    /// message that says one of its values.
    fn message(&self, shape: &Shape, bytes: &[u8], (depth, around): (u32, usize)) -> Result<usize, MergeError> {
        if depth > self.limits.depth {
            return Err(MergeError::TooDeep);
        }
        let mut reader = Reader::new(bytes);
        let mut values = 0;
        let mut unknown = PendingTags::new();
        let mut lists: SmallVec<[(u32, usize); 4]> = SmallVec::new();
        while let Some((tag, raw)) = reader.field()? {
            values += 1;
            let Some(field) = shape.field_of(tag) else {
                if unknown.last() != Some(&tag) {
                    unknown.push(tag);
                }
                values += self.unknown(tag, raw, around)?;
                continue;
            };
            values += self.field(field, raw, (depth, around))?;
            if let Raw::Bytes(content) = raw
                && self.options.replace_lists
                && field.is_list()
            {
                self.check_replaced_list(&mut lists, field, content.len() + around)?;
            }
        }
        if unknown.len() > self.limits.unknown_fields {
            unknown.sort_unstable();
            unknown.dedup();
            if unknown.len() > self.limits.unknown_fields {
                return Err(MergeError::TooManyFields { limit: self.limits.unknown_fields });
            }
        }
        Ok(values)
    }

    /// A list that replaces another is sent in one piece.
    fn check_replaced_list(
        &self,
        lists: &mut SmallVec<[(u32, usize); 4]>,
        field: &FieldShape,
        bytes: usize,
    ) -> Result<(), MergeError> {
        let place = lists.iter().position(|&(tag, _)| tag == field.tag).unwrap_or(lists.len());
        if place == lists.len() {
            lists.push((field.tag, 0));
        }
        lists[place].1 += bytes + AROUND_BYTES;
        self.check_unit(field.tag, lists[place].1)
    }

    fn check_unit(&self, tag: u32, bytes: usize) -> Result<(), MergeError> {
        match bytes + AROUND_BYTES > self.limits.unit_bytes {
            true => Err(MergeError::Undeliverable { number: tag >> 3 }),
            false => Ok(()),
        }
    }

    /// Returns the number of values within an unknown field: taken apart, it may turn out to be as many as can be in there.
    fn unknown(&self, tag: u32, raw: Raw<'_>, around: usize) -> Result<usize, MergeError> {
        let Raw::Bytes(content) = raw else { return Ok(0) };
        self.check_unit(tag, content.len() + around)?;
        Ok(content.len() / 2)
    }

    /// Returns the number of values within the field.
    #[inline]
    fn field(&self, field: &FieldShape, raw: Raw<'_>, (depth, around): (u32, usize)) -> Result<usize, MergeError> {
        let Raw::Bytes(content) = raw else { return Ok(0) };
        let inner = (depth + 1, around + AROUND_BYTES);
        match field.kind {
            // Said in runs of a few elements.
            Kind::PackedList | Kind::ScalarList => packed_len(field.wire, content),
            Kind::Text | Kind::TextList => {
                self.check_unit(field.tag, content.len() + around)?;
                std::str::from_utf8(content).map(|_| 0).map_err(|_| MergeError::Malformed)
            }
            Kind::Bytes | Kind::BytesList => self.check_unit(field.tag, content.len() + around).map(|()| 0),
            Kind::Message => self.message(self.schema.shape(field.shape), content, inner),
            Kind::MessageList => {
                self.check_unit(field.tag, content.len() + around)?;
                self.message(self.schema.shape(field.shape), content, inner)
            }
            Kind::Map => self.entry(field, content, (depth, around)),
            Kind::Scalar | Kind::Group => Ok(0),
        }
    }

    fn entry(&self, field: &FieldShape, content: &[u8], (depth, around): (u32, usize)) -> Result<usize, MergeError> {
        let shape = self.schema.shape(field.shape);
        let key_bytes = match read_entry(shape, content).0 {
            KeyRef::Text(text) => text.len(),
            _ => AROUND_BYTES,
        };
        if key_bytes > self.limits.key_bytes {
            return Err(MergeError::Undeliverable { number: field.number() });
        }
        let is_one_unit = shape.value().kind != Kind::Message || !self.options.merges_entries(field);
        if is_one_unit {
            self.check_unit(field.tag, content.len() + around)?;
        }
        // The entry, its key and its value, even if they are left out.
        let around = around + key_bytes + 2 * AROUND_BYTES;
        Ok(self.message(shape, content, (depth, around))?.max(2))
    }
}

fn packed_len(wire: u8, content: &[u8]) -> Result<usize, MergeError> {
    let mut reader = Reader::new(content);
    let mut values = 0;
    while !reader.rest.is_empty() {
        reader.scalar(wire)?;
        values += 1;
    }
    Ok(values)
}

/// By how much a state would grow. Only asked near the limits; what is replaced by something shorter counts as staying.
struct Growth<'a> {
    schema: &'a Schema,
    options: MergeOptions,
    /// All entries of the update are removed, whatever they say.
    removes: bool,
    usage: Usage,
}

impl Growth<'_> {
    fn message(&mut self, message: Option<&Message>, shape: &Shape, bytes: &[u8]) {
        let mut reader = Reader::new(bytes);
        let mut replaced: SmallVec<[u32; 8]> = SmallVec::new();
        while let Some((tag, raw)) = reader.next() {
            let field = shape.field_of(tag);
            let slot = message.and_then(|message| message.value(field.map_or(tag, |field| field.tag)));
            if slot.is_none() {
                self.usage.bytes += size_of::<Field>();
            }
            let Some(field) = field else {
                self.unknown(raw);
                continue;
            };
            let value = slot.filter(|value| !matches!(value, Value::Gone));
            if self.options.replace_lists
                && let Some(value @ Value::List(_)) = value
                && !replaced.contains(&field.tag)
            {
                replaced.push(field.tag);
                self.usage.remove(value.usage());
            }
            self.value(value, field, raw);
        }
    }

    fn unknown(&mut self, raw: Raw<'_>) {
        self.usage.add(0);
        if let Raw::Bytes(content) = raw {
            self.usage.values += content.len() / 2;
            // As occurrences in a map; taken apart, a field for each two bytes.
            self.usage.bytes += MAP_BYTES + 2 * size_of::<Entry>() + content.len() * size_of::<Field>() / 2;
        }
    }

    fn value(&mut self, value: Option<&Value>, field: &FieldShape, raw: Raw<'_>) {
        match (field.kind, raw) {
            (Kind::Scalar, _) if value.is_none() => self.usage.add(0),
            (Kind::Text | Kind::Bytes, Raw::Bytes(content)) => match value {
                Some(Value::Bytes(old)) => {
                    self.usage.bytes += allocated(content.len()).saturating_sub(allocated(old.capacity()));
                }
                _ => self.usage.add(allocated(content.len())),
            },
            (Kind::Message, Raw::Bytes(content)) => {
                let child = match value {
                    Some(Value::Message(message)) => Some(&**message),
                    _ => None,
                };
                if child.is_none() {
                    self.usage.add(MESSAGE_BYTES);
                }
                self.message(child, self.schema.shape(field.shape), content);
            }
            (Kind::PackedList | Kind::ScalarList, raw) => {
                self.begin_list(value);
                let count = match raw {
                    Raw::Bytes(content) if field.wire != BYTES => packed_len(field.wire, content).unwrap_or(0),
                    _ => 1,
                };
                (0..count).for_each(|_| self.usage.add(size_of::<Element>()));
            }
            (Kind::TextList | Kind::BytesList | Kind::MessageList, Raw::Bytes(content)) => {
                self.begin_list(value);
                self.usage.add(size_of::<Element>() + allocated(content.len()));
            }
            (Kind::Map, Raw::Bytes(content)) => self.entry(value, field, content),
            _ => {}
        }
    }

    fn begin_list(&mut self, value: Option<&Value>) {
        if value.is_none() {
            self.usage.add(LIST_BYTES);
        }
    }

    fn entry(&mut self, value: Option<&Value>, field: &FieldShape, content: &[u8]) {
        let shape = self.schema.shape(field.shape);
        let (key, raw) = read_entry(shape, content);
        let found = match value {
            Some(Value::Map(map)) => map.find(key).map(|slot| map.entry(slot)).filter(|entry| !entry.is_gone),
            _ => {
                self.usage.add(MAP_BYTES);
                None
            }
        };
        if found.is_none() {
            let text_bytes = match key {
                KeyRef::Text(text) => allocated(text.len()),
                _ => 0,
            };
            self.usage.add(size_of::<Entry>() + INDEX_BYTES + text_bytes);
        } else if self.removes || self.options.remove_map_entries && removes_entry(self.schema, shape, raw) {
            // A removal makes room.
            return;
        }
        self.value(found.map(|entry| &entry.value), shape.value(), raw);
    }
}
