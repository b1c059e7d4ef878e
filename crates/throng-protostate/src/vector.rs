//! Positions in a state.

use super::map::{Map, Name};
use super::mask::{MaskError, numbers_of};
use super::schema::Schema;
use super::tree::{Message, Value};
use super::wire::{self, BYTES, FIXED32, FIXED64, Raw, Reader};

/// Where a vector is: a message with the components in its fields 1, 2 and 3, each a `float` or a `double`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorPath {
    numbers: Vec<u32>,
}

impl VectorPath {
    /// The vector at a path of field names, or numbers, from the outermost message inwards: `actor.location`, `2.11.3`.
    /// It must not lead through a list or a map.
    pub fn resolve(path: &str, schema: Option<&Schema>) -> Result<VectorPath, MaskError> {
        Ok(VectorPath { numbers: numbers_of(path, schema)? })
    }

    /// Where the location of an Unreal actor is in messages of this schema: `replicatedMovement.location` of the first
    /// `unrealpb.ActorState`, or of the message itself if it is one.
    pub fn unreal(schema: &Schema) -> Option<VectorPath> {
        let numbers = match schema.name() {
            UNREAL_ACTOR => UNREAL_LOCATION.to_vec(),
            _ => [&[schema.first_of_type(UNREAL_ACTOR)?][..], &UNREAL_LOCATION].concat(),
        };
        Some(VectorPath { numbers })
    }
}

/// The replicated part of every Unreal actor.
const UNREAL_ACTOR: &str = "unrealpb.ActorState";

/// `replicatedMovement` of Unreal's `ActorState` and `location` in it.
const UNREAL_LOCATION: [u32; 2] = [11, 3];

type Components = [Option<f64>; 3];

pub(super) fn read(root: &Message, path: &VectorPath) -> Option<[f64; 3]> {
    let mut components = Components::default();
    in_message(root, &path.numbers, &mut components);
    known(components)
}

pub(super) fn unreal_location(root: &Message) -> Option<[f64; 3]> {
    root.fields.iter().find_map(|field| {
        let mut components = Components::default();
        in_value(&field.value, &UNREAL_LOCATION, &mut components);
        known(components)
    })
}

fn known(components: Components) -> Option<[f64; 3]> {
    let vector = components.map(Option::unwrap_or_default);
    (components.iter().any(Option::is_some) && vector.iter().all(|component| component.is_finite())).then_some(vector)
}

fn in_message(message: &Message, path: &[u32], components: &mut Components) {
    match path {
        [] => read_components(message, components),
        [number, rest @ ..] => {
            if let Some(value) = message.value(wire::tag(*number, BYTES)) {
                in_value(value, rest, components);
            }
        }
    }
}

fn in_value(value: &Value, path: &[u32], components: &mut Components) {
    match value {
        Value::Message(message) => in_message(message, path, components),
        Value::Map(map) if map.is_ordered => in_occurrences(map, path, components),
        _ => {}
    }
}

/// The newest occurrence counts; what it does not say is looked for in older ones.
fn in_occurrences(map: &Map, path: &[u32], components: &mut Components) {
    for (_, entry) in map.walk() {
        if components.iter().all(Option::is_some) {
            return;
        }
        if let (Name::Nameless, Value::Bytes(content)) = (&entry.name, &entry.value) {
            in_bytes(content, path, components);
        }
    }
    if let Some(residue) = &map.residue {
        in_message(residue, path, components);
    }
}

fn read_components(message: &Message, components: &mut Components) {
    for (number, component) in (1..).zip(components) {
        if component.is_some() {
            continue;
        }
        let scalar = |wire| match message.value(wire::tag(number, wire)) {
            Some(&Value::Scalar(bits)) => number_of(wire, bits),
            _ => None,
        };
        *component = scalar(FIXED32).or_else(|| scalar(FIXED64));
    }
}

fn in_bytes(bytes: &[u8], path: &[u32], components: &mut Components) {
    // Of several occurrences within one message the last one counts.
    let mut found = Components::default();
    let mut reader = Reader::new(bytes);
    while let Some((tag, raw)) = reader.next() {
        match (path, raw) {
            ([], Raw::Scalar(bits)) if (1..=3).contains(&(tag >> 3)) => {
                if let Some(number) = number_of(wire::wire_of(tag), bits) {
                    found[(tag >> 3) as usize - 1] = Some(number);
                }
            }
            ([number, rest @ ..], Raw::Bytes(content)) if tag >> 3 == *number => {
                let mut newer = Components::default();
                in_bytes(content, rest, &mut newer);
                fill(&mut newer, found);
                found = newer;
            }
            _ => {}
        }
    }
    fill(components, found);
}

fn fill(components: &mut Components, from: Components) {
    for (component, other) in components.iter_mut().zip(from) {
        *component = component.or(other);
    }
}

fn number_of(wire: u8, bits: u64) -> Option<f64> {
    match wire {
        FIXED32 => Some(f64::from(f32::from_bits(bits as u32))),
        FIXED64 => Some(f64::from_bits(bits)),
        _ => None,
    }
}
