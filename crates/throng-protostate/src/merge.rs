//! Applies an update to the tree. The update was checked: nothing here can fail.

use super::limits::{MergeOptions, Merged, StateLimits};
use super::map::{KeyRef, Map, MapKey};
use super::replace::Purge;
use super::schema::{FieldShape, Kind, Schema, Shape};
use super::tree::{
    Element, ElementValue, LIST_BYTES, List, MAP_BYTES, MESSAGE_BYTES, Message, PendingTags, Stamp, Usage, Value,
    allocated,
};
use super::wire::{self, BYTES, Raw, Reader, wire_of};

/// One merge.
#[derive(Debug)]
pub(super) struct Merge<'a> {
    pub(super) schema: Option<&'a Schema>,
    options: MergeOptions,
    pub(super) limits: &'a StateLimits,
    pub(super) stamp: Stamp,
    pub(super) writer: u32,
    /// The update is one map entry, which is to be removed.
    pub(super) removes: bool,
    /// The fields of the outermost message that are lists, if a field that comes twice in the update is none for that.
    pub(super) repeated: Option<&'a [u32]>,
    /// Merged values replace existing ones.
    replaces: bool,
    pub(super) usage: Usage,
    pub(super) merged: Merged,
    pub(super) latest_reset: Stamp,
}

impl<'a> Merge<'a> {
    pub(super) fn new(
        schema: Option<&'a Schema>,
        options: MergeOptions,
        limits: &'a StateLimits,
        stamp: Stamp,
        writer: u32,
    ) -> Merge<'a> {
        Merge {
            schema,
            options,
            limits,
            stamp,
            writer,
            removes: false,
            repeated: None,
            replaces: false,
            usage: Usage::default(),
            merged: Merged::default(),
            latest_reset: Stamp::NEVER,
        }
    }

    pub(super) fn root(&mut self, root: &mut Message, update: &[u8]) {
        match self.schema {
            Some(schema) => self.message(schema, root, schema.root(), update),
            None => self.opaque_root(root, update),
        }
    }

    fn message(&mut self, schema: &Schema, message: &mut Message, shape: &Shape, bytes: &[u8]) {
        if bytes.is_empty() {
            message.stated = self.stamp;
            message.stated_by = self.writer;
        }
        let mut reader = Reader::new(bytes);
        let mut places = Places::default();
        while let Some((tag, raw)) = reader.next() {
            let field = shape.field_of(tag);
            let slot_tag = field.map_or(tag, |field| field.tag);
            let Some(place) = self.place(message, Some(shape), slot_tag, reader, &mut places) else { continue };
            match field {
                Some(field) => self.field(schema, message, shape, field, raw, place),
                None => {
                    let repeats = self.repeats(tag, message.fields[place].stamp);
                    self.opaque_field(message, place, raw, repeats, 0);
                }
            }
        }
    }

    /// Whether a field that nothing is known of is a list. It was last written at `written`.
    pub(super) fn repeats(&self, tag: u32, written: Stamp) -> bool {
        match self.repeated {
            Some(repeated) => repeated.contains(&(tag >> 3)),
            None => written == self.stamp,
        }
    }

    /// Merges a message inside another one. It may be of the same type, but the lists that are known are not its own.
    fn inner(&mut self, schema: &Schema, message: &mut Message, shape: &Shape, bytes: &[u8]) {
        let repeated = self.repeated.take();
        self.message(schema, message, shape, bytes);
        self.repeated = repeated;
    }

    /// The place of the field with that tag. If there is none, places are made for it and for all that is left of the
    /// update; `None` if nothing is known of the field and there are as many of those as may be: it is dropped.
    #[inline]
    pub(super) fn place(
        &mut self,
        message: &mut Message,
        shape: Option<&Shape>,
        tag: u32,
        rest: Reader<'_>,
        places: &mut Places,
    ) -> Option<usize> {
        self.merged.steps += 1;
        let found = match message.find(tag, places.hint) {
            Ok(place) => Some(place),
            Err(_) if places.are_made || self.is_full_for(message, shape, tag) => None,
            Err(_) => {
                places.are_made = true;
                self.make_places(message, shape, tag, rest);
                message.find(tag, 0).ok()
            }
        };
        match found {
            Some(place) => places.hint = place + 1,
            None => self.merged.dropped += 1,
        }
        found
    }

    /// Whether nothing is known of a field that the message does not have, and there are as many of those as may be.
    fn is_full_for(&self, message: &mut Message, shape: Option<&Shape>, tag: u32) -> bool {
        let is_unknown = |tag: u32| shape.is_none_or(|shape| shape.field_of(tag).is_none());
        is_unknown(tag) && message.unknown_count(is_unknown) >= self.limits.unknown_fields
    }

    fn make_places(&mut self, message: &mut Message, shape: Option<&Shape>, first: u32, mut rest: Reader<'_>) {
        let (mut pending, mut unknown) = (PendingTags::new(), PendingTags::new());
        let mut note = |tag: u32| {
            let known = shape.and_then(|shape| shape.field_of(tag));
            let (tags, tag) = match known {
                Some(field) => (&mut pending, field.tag),
                None => (&mut unknown, tag),
            };
            if tags.last() != Some(&tag) {
                tags.push(tag);
            }
        };
        note(first);
        while let Some((tag, _)) = rest.next() {
            note(tag);
            self.merged.steps += 1;
        }
        if !unknown.is_empty() {
            unknown.sort_unstable();
            unknown.dedup();
            unknown.retain(|tag| message.find(*tag, 0).is_err());
            let is_unknown = |tag: u32| shape.is_none_or(|shape| shape.field_of(tag).is_none());
            let present = message.unknown_count(is_unknown);
            unknown.truncate(self.limits.unknown_fields.saturating_sub(present));
            message.unknown = Some((present + unknown.len()) as u32);
            pending.append(&mut unknown);
        }
        let before = message.own_bytes();
        message.make_places(&mut pending);
        self.usage.resize(before, message.own_bytes());
        self.merged.steps += message.fields.len() as u64;
    }

    #[inline]
    fn field(
        &mut self,
        schema: &Schema,
        message: &mut Message,
        shape: &Shape,
        field: &FieldShape,
        raw: Raw<'_>,
        place: usize,
    ) {
        let slot = &mut message.fields[place];
        let before = std::mem::replace(&mut slot.stamp, self.stamp);
        slot.writer = self.writer;
        let enters = field.oneof != 0 && matches!(slot.value, Value::Gone);
        match field.kind {
            Kind::Scalar | Kind::Text | Kind::Bytes | Kind::Message => self.single(schema, &mut slot.value, field, raw),
            Kind::Map => self.entry(schema, &mut slot.value, field, raw),
            _ => self.list(&mut slot.value, field, raw),
        }
        if enters {
            self.enter_oneof(message, shape, place, field.oneof, before);
        }
    }

    /// Writes a value that there is one of.
    #[inline]
    fn single(&mut self, schema: &Schema, value: &mut Value, field: &FieldShape, raw: Raw<'_>) {
        match (value, raw) {
            (Value::Scalar(old), Raw::Scalar(new)) => {
                *old = new;
                self.merged.values += 1;
            }
            (Value::Message(message), Raw::Bytes(content)) => {
                self.inner(schema, message, schema.shape(field.shape), content);
            }
            (value, Raw::Bytes(content)) if field.kind == Kind::Message => {
                let mut message = Box::new(Message::new(self.stamp, self.writer));
                self.usage.add(MESSAGE_BYTES);
                self.inner(schema, &mut message, schema.shape(field.shape), content);
                *value = Value::Message(message);
            }
            (value, raw) => self.leaf(value, raw),
        }
    }

    /// Writes a scalar or bytes.
    pub(super) fn leaf(&mut self, value: &mut Value, raw: Raw<'_>) {
        self.merged.values += 1;
        match (value, raw) {
            (Value::Scalar(old), Raw::Scalar(new)) => *old = new,
            (Value::Bytes(old), Raw::Bytes(new)) => {
                let before = allocated(old.capacity());
                if new.len() > old.capacity() || old.capacity() > 2 * new.len() + SPARE_BYTES {
                    *old = new.to_vec();
                } else {
                    old.clear();
                    old.extend_from_slice(new);
                }
                self.usage.resize(before, allocated(old.capacity()));
            }
            (value, raw) => {
                self.usage.remove(value.usage());
                *value = match raw {
                    Raw::Scalar(new) => Value::Scalar(new),
                    Raw::Bytes(new) => Value::Bytes(new.to_vec()),
                };
                value.count(&mut self.usage);
            }
        }
    }

    /// The field at `place`, which was not set since `before`, is now the one of its oneof.
    fn enter_oneof(&mut self, message: &mut Message, shape: &Shape, place: usize, oneof: u16, before: Stamp) {
        let own = message.fields[place].tag;
        let mut displaced = None;
        for &member in shape.members(oneof).iter().filter(|&&member| member != own) {
            self.merged.steps += 1;
            let Ok(other) = message.find(member, 0) else { continue };
            let other = &mut message.fields[other];
            if matches!(other.value, Value::Gone) {
                continue;
            }
            self.usage.remove(other.value.usage());
            other.value = Value::Gone;
            other.stamp = self.stamp;
            displaced = Some(member);
        }
        if let Value::Message(child) = &mut message.fields[place].value
            && let Some(displaced) = displaced
            && before > Stamp::NEVER
        {
            child.left = before;
            child.left_for = displaced;
            self.latest_reset = self.latest_reset.max(before);
        }
    }

    fn list(&mut self, value: &mut Value, field: &FieldShape, raw: Raw<'_>) {
        if !matches!(value, Value::List(_)) {
            *value = Value::List(Box::new(List::new(field.wire)));
            self.usage.add(LIST_BYTES);
        }
        let Value::List(list) = value else { return };
        if (self.options.replace_lists || self.replaces) && list.replaced != self.stamp {
            list.replaced = self.stamp;
            for element in list.elements.drain(..) {
                self.usage.remove(element_usage(&element.value));
            }
        }
        match raw {
            Raw::Bytes(content) if field.wire != BYTES => {
                let mut reader = Reader::new(content);
                while let Ok(number) = reader.scalar(field.wire) {
                    self.append(list, ElementValue::Scalar(number));
                }
            }
            Raw::Bytes(content) => self.append(list, ElementValue::Bytes(content.into())),
            Raw::Scalar(number) => self.append(list, ElementValue::Scalar(number)),
        }
        let own = list.own_bytes();
        self.usage.resize(list.counted, own);
        list.counted = own;
    }

    fn append(&mut self, list: &mut List, value: ElementValue) {
        let limit = self.options.list_size_limit as usize;
        if limit > 0 && list.elements.len() >= limit {
            if !self.options.truncate_top {
                self.merged.truncated += 1;
                return;
            }
            let surplus = list.elements.len() + 1 - limit;
            for element in list.elements.drain(..surplus) {
                self.usage.remove(element_usage(&element.value));
                self.merged.truncated += 1;
            }
        }
        self.merged.values += 1;
        self.merged.steps += 1;
        self.usage.add(value.own_bytes());
        if list.elements.len() == list.elements.capacity() {
            list.elements.reserve_exact((list.elements.len() / 4).max(1));
        }
        list.elements.push_back(Element { stamp: self.stamp, writer: self.writer, value });
    }

    fn entry(&mut self, schema: &Schema, value: &mut Value, field: &FieldShape, raw: Raw<'_>) {
        let Raw::Bytes(content) = raw else { return };
        let shape = schema.shape(field.shape);
        if !matches!(value, Value::Map(_)) {
            *value = Value::Map(Box::new(Map::new(shape.key().tag)));
            self.usage.add(MAP_BYTES);
        }
        let Value::Map(map) = value else { return };
        let (key, raw) = read_entry(shape, content);
        let removed_tag = removed_tag(schema, shape);
        let is_removal = self.removes || self.options.remove_map_entries && says_removed(removed_tag, raw);
        let slot = self.entry_slot(map, key, shape.value().tag);
        if is_removal {
            if map.farewell.is_empty() || self.removes {
                write_farewell(&mut map.farewell, removed_tag, raw);
            }
            self.remove(map, slot);
        } else if map.entry(slot).is_gone {
            self.revive(map, slot);
        }
        let is_replaced = shape.value().kind == Kind::Message && !self.options.merges_entries(field);
        if is_replaced && map.entry(slot).stamp == self.stamp {
            // Of two with one key in one update the second counts alone.
            self.empty(map, slot);
        }
        let entry = map.touch(slot, self.stamp, self.writer);
        let is_within = self.replaces;
        self.replaces |= is_replaced;
        self.single(schema, &mut entry.value, shape.value(), raw);
        self.replaces = is_within;
        if is_replaced && let Value::Message(message) = &mut entry.value {
            let mut purge = Purge { stamp: self.stamp, freed: Usage::default(), grown_bytes: 0, steps: 0 };
            purge.message(message);
            self.usage.bytes += purge.grown_bytes;
            self.usage.remove(purge.freed);
            self.merged.steps += purge.steps;
            // Told as a whole, even if nothing is in it.
            (message.stated, message.stated_by) = (self.stamp, self.writer);
        }
        if is_removal {
            map.bury(slot);
        }
        map.settle(&mut self.usage);
    }

    /// The slot of the entry with that key; a new one if there is none.
    pub(super) fn entry_slot(&mut self, map: &mut Map, key: KeyRef<'_>, value_tag: u32) -> u32 {
        match map.find(key) {
            Some(slot) => slot,
            None => {
                let slot = map.insert(key, value_tag);
                self.usage.add(map.entry(slot).name.own_bytes());
                slot
            }
        }
    }

    /// Empties an entry that is about to be removed.
    pub(super) fn remove(&mut self, map: &mut Map, slot: u32) {
        self.merged.removed += 1;
        if !map.entry(slot).is_gone {
            self.usage.tombstones += 1;
        }
        self.empty(map, slot);
    }

    /// Empties a removed entry that is about to be filled again.
    pub(super) fn revive(&mut self, map: &mut Map, slot: u32) {
        self.usage.tombstones = self.usage.tombstones.saturating_sub(1);
        self.empty(map, slot);
        map.revive(slot);
        self.latest_reset = self.latest_reset.max(map.entry(slot).removed);
    }

    fn empty(&mut self, map: &mut Map, slot: u32) {
        let entry = map.entry_mut(slot);
        self.usage.remove(entry.value.usage());
        entry.value = Value::Gone;
    }
}

/// A text that was longer than twice the present one by this many bytes gives its memory back.
const SPARE_BYTES: usize = 64;

/// Where the fields of an update were found in a message so far.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The next one is probably here: fields mostly come in order.
    pub(super) hint: usize,
    /// Places for all that was missing were made.
    pub(super) are_made: bool,
}

impl MergeOptions {
    /// Whether the messages in a map are merged field by field.
    pub(super) fn merges_entries(&self, map: &FieldShape) -> bool {
        self.merge_map_entries.unwrap_or(map.merges_entries)
    }
}

/// Key and value of a map entry, with their defaults if they are left out.
pub(super) fn read_entry<'b>(shape: &Shape, content: &'b [u8]) -> (KeyRef<'b>, Raw<'b>) {
    let mut key = match shape.key().wire {
        BYTES => KeyRef::Text(&[]),
        _ => KeyRef::Number(0),
    };
    let mut value = match shape.value().wire {
        BYTES => Raw::Bytes(&[]),
        _ => Raw::Scalar(0),
    };
    let mut reader = Reader::new(content);
    while let Some((tag, raw)) = reader.next() {
        match (tag >> 3, raw) {
            (1, Raw::Scalar(number)) if shape.key().takes(wire_of(tag)) => {
                key = KeyRef::Number(shape.key().normalize(number));
            }
            (1, Raw::Bytes(text)) if shape.key().takes(wire_of(tag)) => key = KeyRef::Text(text),
            (2, raw) if shape.value().takes(wire_of(tag)) => value = raw,
            _ => {}
        }
    }
    (key, value)
}

/// The tag of `removed` in the values of a map; 0 if they have none.
fn removed_tag(schema: &Schema, entry: &Shape) -> u32 {
    match entry.value().kind {
        Kind::Message => schema.shape(entry.value().shape).removed_tag,
        _ => 0,
    }
}

/// Whether the value of a map entry says that the entry is removed.
pub(super) fn removes_entry(schema: &Schema, entry: &Shape, value: Raw<'_>) -> bool {
    says_removed(removed_tag(schema, entry), value)
}

fn says_removed(removed_tag: u32, value: Raw<'_>) -> bool {
    let Raw::Bytes(content) = value else { return false };
    let mut is_removed = false;
    let mut reader = Reader::new(content);
    while removed_tag != 0
        && let Some((tag, raw)) = reader.next()
    {
        if let Raw::Scalar(number) = raw
            && tag == removed_tag
        {
            is_removed = number != 0;
        }
    }
    is_removed
}

/// The content of a removal when nothing but its existence is known.
pub(super) fn write_farewell(farewell: &mut Vec<u8>, removed_tag: u32, sent: Raw<'_>) {
    farewell.clear();
    match sent {
        _ if removed_tag != 0 => {
            wire::put_varint(farewell, u64::from(removed_tag));
            farewell.push(1);
        }
        Raw::Bytes(content) => farewell.extend_from_slice(content),
        Raw::Scalar(_) => {}
    }
}

fn element_usage(value: &ElementValue) -> Usage {
    let mut usage = Usage::default();
    usage.add(value.own_bytes());
    usage
}

/// Writes an update that holds one map entry. `None` if the field is no map with such keys.
pub(super) fn write_entry(
    schema: Option<&Schema>,
    number: u32,
    key: &MapKey,
    value: &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    let key_wire = match key {
        MapKey::Number(_) => wire::VARINT,
        MapKey::Text(_) => BYTES,
    };
    let (key_tag, value_tag) = match schema {
        Some(schema) => {
            let field = schema.root().field(number).filter(|field| field.kind == Kind::Map)?;
            let shape = schema.shape(field.shape);
            if (shape.key().wire == BYTES) != (key_wire == BYTES) {
                return None;
            }
            (shape.key().tag, shape.value().tag)
        }
        None => (wire::tag(1, key_wire), wire::tag(2, BYTES)),
    };
    wire::put_varint(out, u64::from(wire::tag(number, BYTES)));
    let start = wire::begin_length(out);
    wire::put_varint(out, u64::from(key_tag));
    match key {
        MapKey::Number(number) => wire::put_scalar(out, wire::wire_of(key_tag), *number),
        MapKey::Text(text) => wire::put_bytes(out, text),
    }
    wire::put_varint(out, u64::from(value_tag));
    match wire::wire_of(value_tag) {
        BYTES => wire::put_bytes(out, value),
        _ => out.extend_from_slice(value),
    }
    wire::end_length(out, start);
    Some(())
}
