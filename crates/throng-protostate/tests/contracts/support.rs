//! Shared parts of the tests of channel states: a schema, a builder of wire bytes, and a receiver to compare with.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::sync::{Arc, LazyLock};

use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, ReflectMessage, Value};
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};
use throng_protostate::{Chunks, DataState, MergeOptions, Schema, StateLimits};
use throng_wire::Tick;

/// The types of the tests, with every kind of field that there is.
pub const PROTO: &str = r#"
syntax = "proto3";
package test;
import "tps.proto";

message Vector { optional float x = 1; optional float y = 2; optional float z = 3; }
message Movement { Vector linearVelocity = 1; Vector angularVelocity = 2; Vector location = 3; Vector rotation = 4; bool sleeps = 5; }
enum Role { NONE = 0; PROXY = 1; AUTHORITY = 3; }
message Actor {
  bool removed = 1;
  uint32 owner = 2;
  optional bool replicates = 3;
  Role role = 4;
  bytes blob = 5;
  repeated string tags = 6;
  map<string, sint32> scores = 7;
  string name = 8;
  oneof weapon { string blade = 9; Gun gun = 10; uint32 wand = 12; }
  Movement replicatedMovement = 11;
  map<uint32, Part> parts = 13;
}
message Gun { uint32 ammo = 1; string model = 2; }
message Part { bool removed = 1; uint32 kind = 2; double heat = 3; }
message Chat { uint32 sender = 1; int64 sendTime = 2; string content = 3; }
message World {
  map<uint32, Actor> actors = 1;
  repeated Chat chats = 2;
  repeated sint32 numbers = 3;
  repeated fixed32 loose = 4 [packed = false];
  string title = 5;
  fixed64 big = 6;
  Inner inner = 7;
  map<string, string> labels = 8;
  oneof weather { Sun sun = 9; Rain rain = 10; uint32 fog = 11; }
  map<uint32, Squad> squads = 12;
}
message Squad { map<uint32, tpspb.Soldier> soldiers = 1; }
message Inner { map<uint32, Actor> actors = 1; optional int32 level = 2; Inner inner = 3; repeated bytes blobs = 4; }
message Sun { optional float heat = 1; optional float light = 2; }
message Rain { optional float mm = 1; }
message Entity { Actor actor = 1; Movement movement = 2; }
"#;

/// A type whose game merges map entries field by field.
const MERGING_PROTO: &str = r#"
syntax = "proto3";
package tpspb;

message Soldier { uint32 health = 1; uint32 ammo = 2; }
"#;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(compile);

pub fn pool() -> &'static DescriptorPool {
    &POOL
}

fn compile() -> DescriptorPool {
    struct Source;
    impl FileResolver for Source {
        fn open_file(&self, name: &str) -> Result<File, protox::Error> {
            match name {
                "test.proto" => File::from_source(name, PROTO),
                "tps.proto" => File::from_source(name, MERGING_PROTO),
                _ => Err(protox::Error::file_not_found(name)),
            }
        }
    }
    let mut resolver = ChainFileResolver::new();
    resolver.add(Source);
    resolver.add(GoogleFileResolver::new());
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).open_file("test.proto").unwrap();
    // The compiler's own pool does not know the options of fields yet, `packed` for example.
    DescriptorPool::decode(compiler.encode_file_descriptor_set().as_slice()).unwrap()
}

pub fn descriptor(name: &str) -> MessageDescriptor {
    pool().get_message_by_name(&format!("test.{name}")).unwrap()
}

pub fn schema(name: &str) -> Arc<Schema> {
    Arc::new(Schema::compile(&descriptor(name)))
}

pub fn url(name: &str) -> String {
    format!("type.googleapis.com/test.{name}")
}

/// An empty state of type `test.World` at tick 0, whose maps are merged field by field unless the options say otherwise.
pub fn world(options: MergeOptions) -> DataState {
    world_within(options, StateLimits::default())
}

pub fn world_within(options: MergeOptions, limits: StateLimits) -> DataState {
    let options = MergeOptions { merge_map_entries: options.merge_map_entries.or(Some(true)), ..options };
    DataState::new(Some(schema("World")), "", options, limits, Tick(0))
}

pub fn opaque() -> DataState {
    DataState::new(None, &url("World"), MergeOptions::default(), StateLimits::default(), Tick(0))
}

pub fn removable() -> MergeOptions {
    MergeOptions { remove_map_entries: true, ..MergeOptions::default() }
}

/// Builds messages by field number.
#[derive(Clone, Default)]
pub struct Wire(pub Vec<u8>);

pub fn message() -> Wire {
    Wire::default()
}

impl Wire {
    fn raw(mut self, number: u32, wire: u32, bytes: &[u8]) -> Wire {
        put(&mut self.0, u64::from(number << 3 | wire));
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn varint(self, number: u32, value: u64) -> Wire {
        let mut bytes = Vec::new();
        put(&mut bytes, value);
        self.raw(number, 0, &bytes)
    }

    pub fn float(self, number: u32, value: f32) -> Wire {
        self.raw(number, 5, &value.to_le_bytes())
    }

    pub fn fixed32(self, number: u32, value: u32) -> Wire {
        self.raw(number, 5, &value.to_le_bytes())
    }

    pub fn fixed64(self, number: u32, value: u64) -> Wire {
        self.raw(number, 1, &value.to_le_bytes())
    }

    pub fn bytes(self, number: u32, content: &[u8]) -> Wire {
        let mut bytes = Vec::new();
        put(&mut bytes, content.len() as u64);
        bytes.extend_from_slice(content);
        self.raw(number, 2, &bytes)
    }

    pub fn text(self, number: u32, content: &str) -> Wire {
        self.bytes(number, content.as_bytes())
    }

    pub fn nested(self, number: u32, content: Wire) -> Wire {
        self.bytes(number, &content.0)
    }

    /// An entry of a map with integer keys and message values.
    pub fn entry(self, number: u32, key: u32, value: Wire) -> Wire {
        self.nested(number, message().varint(1, u64::from(key)).nested(2, value))
    }

    pub fn and(mut self, other: Wire) -> Wire {
        self.0.extend_from_slice(&other.0);
        self
    }
}

pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub fn vector(x: f32, y: f32, z: f32) -> Wire {
    message().float(1, x).float(2, y).float(3, z)
}

/// An `Actor` with a velocity and a location: six floats.
pub fn moving(value: f32) -> Wire {
    message().nested(11, message().nested(1, vector(value, value, value)).nested(3, vector(value, -value, 0.5)))
}

/// A subscriber's copy: it parses each message and merges it as game clients do, map entries field by field.
pub struct Receiver {
    pub message: DynamicMessage,
    pub removable: bool,
    /// It puts new map entries in the place of old ones, as protobuf's merge does.
    pub replaces: bool,
}

impl Receiver {
    pub fn new(name: &str, removable: bool) -> Receiver {
        Receiver { message: DynamicMessage::new(descriptor(name)), removable, replaces: false }
    }

    pub fn receive(&mut self, bytes: &[u8]) {
        let update = DynamicMessage::decode(self.message.descriptor(), bytes).expect("what is sent is a message");
        merge(&mut self.message, &update, (self.removable, self.replaces));
    }

    pub fn receive_all(&mut self, chunks: &Chunks) {
        chunks.iter().for_each(|chunk| self.receive(chunk.value));
    }

    pub fn receive_without(&mut self, chunks: &Chunks, writer: u32) {
        for chunk in chunks.iter() {
            let bytes: Vec<u8> = chunk.without(writer).flatten().copied().collect();
            assert_eq!(bytes.len(), chunk.len_without(writer));
            self.receive(&bytes);
        }
    }
}

/// Merges message by message, list by list, map entry by map entry.
fn merge(into: &mut DynamicMessage, update: &DynamicMessage, (removable, replaces): (bool, bool)) {
    let fields: Vec<_> = update.fields().map(|(field, value)| (field, value.clone())).collect();
    for (field, value) in fields {
        match value {
            Value::Message(new) => match into.has_field(&field).then(|| into.get_field_mut(&field)) {
                Some(Value::Message(old)) => merge(old, &new, (removable, replaces)),
                _ => {
                    let mut fresh = DynamicMessage::new(new.descriptor());
                    merge(&mut fresh, &new, (removable, replaces));
                    into.set_field(&field, Value::Message(fresh));
                }
            },
            Value::List(new) => into.get_field_mut(&field).as_list_mut().unwrap().extend(new),
            Value::Map(new) => {
                let map = into.get_field_mut(&field).as_map_mut().unwrap();
                for (key, value) in new {
                    let Value::Message(value) = value else {
                        map.insert(key, value);
                        continue;
                    };
                    if removable && says_removed(&value) {
                        map.remove(&key);
                    } else if let Some(Value::Message(old)) = map.get_mut(&key).filter(|_| !replaces) {
                        merge(old, &value, (removable, replaces));
                    } else {
                        let mut fresh = DynamicMessage::new(value.descriptor());
                        merge(&mut fresh, &value, (removable, replaces));
                        map.insert(key, Value::Message(fresh));
                    }
                }
            }
            value => into.set_field(&field, value),
        }
    }
}

fn says_removed(value: &DynamicMessage) -> bool {
    value.get_field_by_name("removed").is_some_and(|removed| removed.as_bool() == Some(true))
}

/// The whole state, as a new subscriber gets it in chunks of `max_bytes`.
pub fn full(state: &DataState, name: &str, max_bytes: usize) -> DynamicMessage {
    let mut chunks = Chunks::new();
    state.encode(None, None, None, max_bytes, &mut chunks);
    let mut receiver = Receiver::new(name, true);
    receiver.receive_all(&chunks);
    receiver.message
}

pub fn delta(state: &DataState, since: u64) -> Chunks {
    let mut chunks = Chunks::new();
    state.encode(Some(Tick(since)), None, None, 60_000, &mut chunks);
    chunks
}

pub fn parse(name: &str, bytes: &[u8]) -> DynamicMessage {
    DynamicMessage::decode(descriptor(name), bytes).unwrap()
}

/// Fails if two messages are not equal, and says in which fields of the outermost message.
#[track_caller]
pub fn assert_same(actual: &DynamicMessage, expected: &DynamicMessage, context: &str) {
    // Parsed again, so that an empty map is the same as none.
    let (actual, expected) = (&again(actual), &again(expected));
    if actual == expected {
        return;
    }
    for field in expected.descriptor().fields() {
        let (actual, expected) = (actual.get_field(&field), expected.get_field(&field));
        if actual != expected {
            eprintln!("{}\n  is     {}\n  not    {}", field.name(), show(&actual), show(&expected));
        }
    }
    panic!("two messages differ: {context}");
}

fn again(message: &DynamicMessage) -> DynamicMessage {
    DynamicMessage::decode(message.descriptor(), message.encode_to_vec().as_slice()).unwrap()
}

/// As text: the descriptors' own way of printing does not come to an end with recursive types.
fn show(value: &Value) -> String {
    match value {
        Value::Message(message) => {
            let fields: Vec<String> =
                message.fields().map(|(field, value)| format!("{}: {}", field.name(), show(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::List(list) => format!("[{}]", list.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let mut entries: Vec<String> =
                map.iter().map(|(key, value)| format!("{key:?} => {}", show(value))).collect();
            entries.sort();
            format!("<{}>", entries.join(", "))
        }
        value => format!("{value:?}"),
    }
}
