//! Whether an update can be merged: looked at before anything is changed, so that a merge cannot fail half-way.

use super::limits::{MergeError, StateLimits};
use super::map::KeyRef;
use super::merge::read_entry;
use super::schema::{FieldShape, Kind, Schema, Shape};
use super::tree::{Message, Usage, Value};
use super::wire::{BYTES, Malformed, Raw, Reader, wire_of};

impl From<Malformed> for MergeError {
    fn from(_: Malformed) -> MergeError {
        MergeError::Malformed
    }
}

/// Checks form, depth and size of `update`, which is to be merged into `root`.
pub(super) fn check(
    root: &Message,
    schema: Option<&Schema>,
    replaces_lists: bool,
    update: &[u8],
    usage: Usage,
    limits: &StateLimits,
) -> Result<(), MergeError> {
    let Some(schema) = schema else { return check_opaque(update, limits) };
    let values = Form { schema, depth_max: limits.depth }.message(schema.root(), update, 0)?;
    let worst_bytes = update.len() + 2 * Usage::OVERHEAD * values;
    if usage.bytes + worst_bytes <= limits.state_bytes && usage.values + values <= limits.entries {
        return Ok(());
    }
    let mut growth = Growth { schema, replaces_lists, usage: Usage::default() };
    growth.message(Some(root), schema.root(), update);
    if usage.bytes + growth.usage.bytes > limits.state_bytes {
        Err(MergeError::TooLarge { limit_bytes: limits.state_bytes })
    } else if usage.values + growth.usage.values > limits.entries {
        Err(MergeError::TooManyEntries { limit: limits.entries })
    } else {
        Ok(())
    }
}

/// What is in the fields of an opaque state is guessed; only the fields themselves have to be right. It makes room for
/// an update by giving up what is oldest.
fn check_opaque(update: &[u8], limits: &StateLimits) -> Result<(), MergeError> {
    if update.len() > limits.state_bytes {
        return Err(MergeError::TooLarge { limit_bytes: limits.state_bytes });
    }
    let mut reader = Reader::new(update);
    let mut fields = 0;
    while reader.field()?.is_some() {
        fields += 1;
    }
    if fields > limits.entries {
        return Err(MergeError::TooManyEntries { limit: limits.entries });
    }
    Ok(())
}

/// Whether bytes are a message of a schema.
struct Form<'a> {
    schema: &'a Schema,
    depth_max: u32,
}

impl Form<'_> {
    /// Returns the number of values at most.
    fn message(&self, shape: &Shape, bytes: &[u8], depth: u32) -> Result<usize, MergeError> {
        if depth > self.depth_max {
            return Err(MergeError::TooDeep);
        }
        let mut reader = Reader::new(bytes);
        let mut values = 0;
        while let Some((tag, raw)) = reader.field()? {
            values += 1;
            match (shape.field(tag >> 3), raw) {
                (Some(field), raw) => values += self.field(field, wire_of(tag), raw, depth)?,
                (None, Raw::Scalar(_)) => {}
                // Taken apart, it may turn out to be as many values as can be in there.
                (None, Raw::Bytes(content)) => values += content.len() / 2,
            }
        }
        Ok(values)
    }

    /// Returns the number of values within the field.
    #[inline]
    fn field(&self, field: &FieldShape, wire: u8, raw: Raw<'_>, depth: u32) -> Result<usize, MergeError> {
        let refused = Err(MergeError::WireType { number: field.number() });
        match (field.kind, raw) {
            (Kind::Scalar, Raw::Scalar(_)) if wire == field.wire => Ok(0),
            (Kind::PackedList | Kind::ScalarList, Raw::Scalar(_)) if wire == field.wire => Ok(0),
            (Kind::PackedList | Kind::ScalarList, Raw::Bytes(content)) => packed_len(field.wire, content),
            (Kind::Text | Kind::TextList, Raw::Bytes(content)) => match std::str::from_utf8(content) {
                Ok(_) => Ok(0),
                Err(_) => Err(MergeError::Malformed),
            },
            (Kind::Bytes | Kind::BytesList, Raw::Bytes(_)) => Ok(0),
            (Kind::Message | Kind::MessageList, Raw::Bytes(content)) => {
                self.message(self.schema.shape(field.shape), content, depth + 1)
            }
            // The entry, its key and its value, even if they are left out.
            (Kind::Map, Raw::Bytes(content)) => {
                Ok(self.message(self.schema.shape(field.shape), content, depth)?.max(2))
            }
            _ => refused,
        }
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
    replaces_lists: bool,
    usage: Usage,
}

impl Growth<'_> {
    fn message(&mut self, message: Option<&Message>, shape: &Shape, bytes: &[u8]) {
        let mut reader = Reader::new(bytes);
        let mut last_list = 0;
        while let Some((tag, raw)) = reader.next() {
            let Some(field) = shape.field(tag >> 3) else {
                self.unknown(raw);
                continue;
            };
            let value =
                message.and_then(|message| message.value(field.tag)).filter(|value| !matches!(value, Value::Gone));
            if self.replaces_lists
                && std::mem::replace(&mut last_list, field.tag) != field.tag
                && let Some(value @ Value::List(_)) = value
            {
                self.usage.remove(value.usage());
            }
            self.value(value, field, raw);
        }
    }

    fn unknown(&mut self, raw: Raw<'_>) {
        match raw {
            Raw::Scalar(_) => self.usage.add(Usage::OVERHEAD),
            Raw::Bytes(content) => {
                self.usage.values += content.len() / 2;
                self.usage.add(content.len() * (1 + Usage::OVERHEAD));
            }
        }
    }

    fn value(&mut self, value: Option<&Value>, field: &FieldShape, raw: Raw<'_>) {
        match (field.kind, raw) {
            (Kind::Scalar, _) if value.is_none() => self.usage.add(Usage::OVERHEAD),
            (Kind::Text | Kind::Bytes, Raw::Bytes(content)) => match value {
                Some(Value::Bytes(old)) => self.usage.bytes += content.len().saturating_sub(old.len()),
                _ => self.usage.add(content.len()),
            },
            (Kind::Message, Raw::Bytes(content)) => {
                let child = match value {
                    Some(Value::Message(message)) => Some(&**message),
                    _ => None,
                };
                if child.is_none() {
                    self.usage.add(0);
                }
                self.message(child, self.schema.shape(field.shape), content);
            }
            (Kind::PackedList | Kind::ScalarList, Raw::Bytes(content)) if field.wire != BYTES => {
                let count = packed_len(field.wire, content).unwrap_or(0);
                (0..=count).for_each(|_| self.usage.add(Usage::OVERHEAD));
            }
            (Kind::PackedList | Kind::ScalarList, _) => self.usage.add(2 * Usage::OVERHEAD),
            (Kind::TextList | Kind::BytesList | Kind::MessageList, Raw::Bytes(content)) => {
                self.usage.add(content.len() + Usage::OVERHEAD);
            }
            (Kind::Map, Raw::Bytes(content)) => self.entry(value, field, content),
            _ => {}
        }
    }

    fn entry(&mut self, value: Option<&Value>, field: &FieldShape, content: &[u8]) {
        let shape = self.schema.shape(field.shape);
        let (key, raw) = read_entry(shape, content);
        let found = match value {
            Some(Value::Map(map)) => map.find(key).map(|slot| map.entry(slot)).filter(|entry| !entry.is_gone),
            _ => {
                self.usage.add(0);
                None
            }
        };
        if found.is_none() {
            self.usage.add(match key {
                KeyRef::Text(text) => text.len(),
                _ => Usage::OVERHEAD,
            });
        }
        self.value(found.map(|entry| &entry.value), shape.value(), raw);
    }
}
