//! Message types, compiled from descriptors into tables that a merge can look things up in.

use std::collections::HashMap;
use std::sync::Arc;

use prost_reflect::{DescriptorPool, FieldDescriptor, Kind as Declared, MessageDescriptor};

use super::wire;

/// The message types that the gateway got at its start, by name.
#[derive(Debug, Default)]
pub struct Schemas {
    by_name: HashMap<String, Arc<Schema>>,
}

/// One message type with all that it contains.
///
/// It also says how its maps are merged if nobody else does: entries of messages in the packages `unrealpb` and `tpspb`,
/// and values of these packages and `channeldpb.TransformState` wherever they are, field by field as channeld's own code
/// for them does it; all others are replaced.
#[derive(Debug)]
pub struct Schema {
    name: String,
    /// Shape 0 is the type itself.
    shapes: Vec<Shape>,
}

/// Why message types could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The bytes are no `FileDescriptorSet`, or it is not complete.
    #[error("not a complete protobuf descriptor set: {0}")]
    DescriptorSet(#[from] prost_reflect::DescriptorError),
}

impl SchemaError {
    /// The label of this error in metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            SchemaError::DescriptorSet(_) => "descriptor_set",
        }
    }
}

impl Schemas {
    /// All message types of a serialised `google.protobuf.FileDescriptorSet`, as `protoc --include_imports -o` writes it.
    pub fn from_descriptor_set(bytes: &[u8]) -> Result<Schemas, SchemaError> {
        let mut schemas = Schemas::default();
        schemas.add_pool(&DescriptorPool::decode(bytes)?);
        Ok(schemas)
    }

    /// Adds all message types of a pool. Of two types of one name the later one counts.
    pub fn add_pool(&mut self, pool: &DescriptorPool) {
        for message in pool.all_messages().filter(|message| !message.is_map_entry()) {
            self.by_name.insert(message.full_name().to_owned(), Arc::new(Schema::compile(&message)));
        }
    }

    /// Adds all types of `other`. Of two types of one name that of `other` counts.
    pub fn add(&mut self, other: Schemas) {
        self.by_name.extend(other.by_name);
    }

    /// The type that an `Any`'s type url, or a full name, names.
    pub fn find(&self, type_url: &str) -> Option<&Arc<Schema>> {
        self.by_name.get(message_name(type_url))
    }

    /// A number of all types with their definitions: the same for two that keep states alike.
    pub fn fingerprint(&self) -> u64 {
        let mut types: Vec<(&str, u64)> =
            self.by_name.iter().map(|(name, schema)| (name.as_str(), schema.fingerprint())).collect();
        types.sort_unstable();
        let mut hash = Fnv::new();
        for (name, fingerprint) in types {
            name.bytes().for_each(|byte| hash.add(byte.into()));
            hash.add(fingerprint);
        }
        hash.0
    }

    /// Number of types.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

/// The full name of the message type in a type url such as `type.googleapis.com/package.Message`.
pub fn message_name(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or(type_url)
}

impl Schema {
    /// Compiles a message type and all types that its fields have.
    pub fn compile(message: &MessageDescriptor) -> Schema {
        let mut compiler = Compiler { shapes: Vec::new(), by_name: HashMap::new() };
        compiler.shape(message);
        Schema { name: message.full_name().to_owned(), shapes: compiler.shapes }
    }

    /// The type's full name: `package.Message`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A number of all that decides how states of this type are kept; another one for another definition, and never 0.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hash = Fnv::new();
        for shape in &self.shapes {
            hash.add(shape.fields.len() as u64);
            hash.add(shape.removed_tag.into());
            for field in &shape.fields {
                hash.add(field.tag.into());
                hash.add(u64::from(field.wire) << 16 | (field.kind as u64) << 8 | field.number_kind as u64);
                hash.add(field.shape.into());
                hash.add(u64::from(field.oneof) << 1 | u64::from(field.merges_entries));
            }
        }
        hash.0.max(1)
    }

    pub(super) fn root(&self) -> &Shape {
        &self.shapes[0]
    }

    #[inline]
    pub(super) fn shape(&self, index: u32) -> &Shape {
        &self.shapes[index as usize]
    }

    /// Number of the outermost message's field of this name, if it is a single message of this type.
    pub fn message_field(&self, name: &str, type_name: &str) -> Option<u32> {
        let field = self.root().field_named(name)?;
        let is_it = field.kind == Kind::Message && &*self.shape(field.shape).name == type_name;
        is_it.then(|| field.number())
    }

    /// Number of the outermost message's first field that is a single message of this type.
    pub(super) fn first_of_type(&self, type_name: &str) -> Option<u32> {
        let is_it = |field: &&FieldShape| field.kind == Kind::Message && &*self.shape(field.shape).name == type_name;
        self.root().fields.iter().find(is_it).map(FieldShape::number)
    }
}

/// FNV-1a with 64 bits: the same in every build, as a number in a file has to be.
struct Fnv(u64);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0xCBF2_9CE4_8422_2325)
    }

    fn add(&mut self, number: u64) {
        for byte in number.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}

/// Packages of messages that channeld merges by code of their own, entry by entry and field by field: what its Unreal
/// plugin sends, and what the plugin's demo makes of it.
const MERGING_PACKAGES: [&str; 2] = ["unrealpb", "tpspb"];

/// Values of maps that are merged in the same way wherever they are: an object in the Unity demos.
const MERGING_VALUES: [&str; 1] = ["channeldpb.TransformState"];

/// Whether channeld merges the entries of a map field by field. Where it has no code for a type, protobuf's own merge puts
/// the new value in the place of the old one.
fn merges_entries(map: &FieldDescriptor, within: &MessageDescriptor) -> bool {
    let Declared::Message(entry) = map.kind() else { return false };
    let Some(Declared::Message(value)) = entry.get_field(2).map(|value| value.kind()) else { return false };
    let is_merging = |message: &MessageDescriptor| MERGING_PACKAGES.contains(&message.package_name());
    is_merging(within) || is_merging(&value) || MERGING_VALUES.contains(&value.full_name())
}

/// The fields of one message type; of a map's entries: key and value.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// Full name of the message type.
    name: Box<str>,
    /// Sorted by number.
    pub(super) fields: Vec<FieldShape>,
    /// The tags of each oneof's members.
    oneofs: Vec<Vec<u32>>,
    /// Place in `fields` of the numbers below [`DENSE`]; [`ABSENT`] if there is none.
    dense: Vec<u8>,
    /// Tag of a boolean field `removed`; 0 if there is none.
    pub(super) removed_tag: u32,
}

const DENSE: usize = 64;
const ABSENT: u8 = u8::MAX;

#[derive(Debug)]
pub(super) struct FieldShape {
    /// Number and wire type as this field is written.
    pub(super) tag: u32,
    pub(super) kind: Kind,
    /// Wire type of one value.
    pub(super) wire: u8,
    /// For map keys: how the number is to be understood, so that one key has one form.
    pub(super) number_kind: NumberKind,
    /// Of messages: their shape. Of maps: that of their entries.
    pub(super) shape: u32,
    /// 1 and up: the oneof that it is a member of. 0: none.
    pub(super) oneof: u16,
    /// Of maps: entries are merged field by field unless options say otherwise.
    pub(super) merges_entries: bool,
    name: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Scalar,
    Text,
    Bytes,
    Message,
    PackedList,
    ScalarList,
    TextList,
    BytesList,
    MessageList,
    Map,
    /// A proto2 group, which nothing here can merge.
    Group,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberKind {
    Bool,
    Signed32,
    Unsigned32,
    Wide,
}

impl FieldShape {
    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.tag >> 3
    }

    /// Whether it is a list.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.kind, Kind::PackedList | Kind::ScalarList | Kind::TextList | Kind::BytesList | Kind::MessageList)
    }

    /// Whether a value of this wire type is one of this field. To parsers, any other is a field that they do not know.
    #[inline]
    pub(super) fn takes(&self, wire: u8) -> bool {
        match self.kind {
            Kind::Scalar => wire == self.wire,
            Kind::PackedList | Kind::ScalarList => wire == self.wire || wire == wire::BYTES,
            Kind::Group => false,
            _ => wire == wire::BYTES,
        }
    }

    /// The number in its one form: two encodings that parsers take for the same become the same.
    pub(super) fn normalize(&self, number: u64) -> u64 {
        match self.number_kind {
            NumberKind::Bool => u64::from(number != 0),
            NumberKind::Signed32 => i64::from(number as i32) as u64,
            NumberKind::Unsigned32 => u64::from(number as u32),
            NumberKind::Wide => number,
        }
    }
}

impl Shape {
    #[inline]
    pub(super) fn field(&self, number: u32) -> Option<&FieldShape> {
        if let Some(&place) = self.dense.get(number as usize) {
            return self.fields.get(place as usize);
        }
        let found = self.fields.binary_search_by_key(&number, FieldShape::number).ok()?;
        Some(&self.fields[found])
    }

    pub(super) fn field_named(&self, name: &str) -> Option<&FieldShape> {
        self.fields.iter().find(|field| &*field.name == name)
    }

    /// The field that a value with this tag belongs to.
    #[inline]
    pub(super) fn field_of(&self, tag: u32) -> Option<&FieldShape> {
        self.field(tag >> 3).filter(|field| field.takes(wire::wire_of(tag)))
    }

    /// The tags of all members of a oneof.
    pub(super) fn members(&self, oneof: u16) -> &[u32] {
        self.oneofs.get(usize::from(oneof).wrapping_sub(1)).map_or(&[], Vec::as_slice)
    }

    /// Of a map entry: its key.
    pub(super) fn key(&self) -> &FieldShape {
        &self.fields[0]
    }

    /// Of a map entry: its value.
    pub(super) fn value(&self) -> &FieldShape {
        &self.fields[1]
    }
}

struct Compiler {
    shapes: Vec<Shape>,
    by_name: HashMap<String, u32>,
}

impl Compiler {
    fn shape(&mut self, message: &MessageDescriptor) -> u32 {
        if let Some(&index) = self.by_name.get(message.full_name()) {
            return index;
        }
        let index = self.shapes.len() as u32;
        self.by_name.insert(message.full_name().to_owned(), index);
        self.shapes.push(Shape::default());
        let mut fields: Vec<FieldShape> = message.fields().map(|field| self.field(message, &field)).collect();
        fields.sort_unstable_by_key(FieldShape::number);
        let dense = match fields.len() < ABSENT as usize {
            true => (0..DENSE as u32)
                .map(|number| fields.iter().position(|field| field.number() == number).map_or(ABSENT, |at| at as u8))
                .collect(),
            false => Vec::new(),
        };
        let removed_tag = message
            .get_field_by_name("removed")
            .filter(|field| matches!(field.kind(), Declared::Bool) && !field.is_list())
            .map_or(0, |field| wire::tag(field.number(), wire::VARINT));
        let members = |oneof: usize| {
            let members = fields.iter().filter(|field| usize::from(field.oneof) == oneof + 1);
            members.map(|field| field.tag).collect()
        };
        let oneofs = (0..message.oneofs().count()).map(members).collect();
        let name = message.full_name().into();
        self.shapes[index as usize] = Shape { name, fields, oneofs, dense, removed_tag };
        index
    }

    fn field(&mut self, message: &MessageDescriptor, field: &FieldDescriptor) -> FieldShape {
        let declared = field.kind();
        let wire = wire_type(&declared);
        let kind = match &declared {
            _ if field.is_group() => Kind::Group,
            _ if field.is_map() => Kind::Map,
            Declared::Message(_) if field.is_list() => Kind::MessageList,
            Declared::Message(_) => Kind::Message,
            Declared::String if field.is_list() => Kind::TextList,
            Declared::String => Kind::Text,
            Declared::Bytes if field.is_list() => Kind::BytesList,
            Declared::Bytes => Kind::Bytes,
            _ if field.is_list() && field.is_packed() => Kind::PackedList,
            _ if field.is_list() => Kind::ScalarList,
            _ => Kind::Scalar,
        };
        let written = if kind == Kind::PackedList { wire::BYTES } else { wire };
        let oneof = field
            .containing_oneof()
            .filter(|oneof| oneof.fields().len() > 1)
            .and_then(|oneof| message.oneofs().position(|other| other == oneof));
        FieldShape {
            tag: wire::tag(field.number(), written),
            kind,
            wire,
            number_kind: match declared {
                Declared::Bool => NumberKind::Bool,
                Declared::Int32 | Declared::Enum(_) => NumberKind::Signed32,
                Declared::Uint32 | Declared::Sint32 => NumberKind::Unsigned32,
                _ => NumberKind::Wide,
            },
            shape: declared.as_message().map_or(0, |message| self.shape(message)),
            oneof: oneof.map_or(0, |place| place as u16 + 1),
            merges_entries: merges_entries(field, message),
            name: field.name().into(),
        }
    }
}

fn wire_type(kind: &Declared) -> u8 {
    match kind {
        Declared::Double | Declared::Fixed64 | Declared::Sfixed64 => wire::FIXED64,
        Declared::Float | Declared::Fixed32 | Declared::Sfixed32 => wire::FIXED32,
        Declared::String | Declared::Bytes | Declared::Message(_) => wire::BYTES,
        _ => wire::VARINT,
    }
}
