//! Kinds that several tests use.
#![allow(dead_code)]

use throng_schema::{Kind, Replicate, ReplicateEnum, Values, ValuesMut};
use throng_wire::ObjectId;

#[derive(Clone, Copy, Debug, Default, PartialEq, ReplicateEnum)]
pub(crate) enum Mode {
    #[default]
    Standing,
    Walking,
    Running = 17,
    Swimming,
    Flying,
}

/// A field of every quantiser and every condition, arrays, and fields that are not sent.
#[derive(Clone, Debug, PartialEq, Replicate)]
pub(crate) struct Everything {
    #[replicate(position(step = 0.01), notify)]
    pub(crate) position: [f64; 3],
    #[replicate(fixed(min = -40, max = 40.0, step = 0.1))]
    pub(crate) velocity: [f32; 3],
    #[replicate(skip)]
    pub(crate) server_secret: u128,
    #[replicate(angle(bits = 9))]
    pub(crate) yaw: f32,
    #[replicate(unit_vector(bits = 10))]
    pub(crate) normal: [f32; 3],
    #[replicate(quaternion(bits = 10), hide_from_owner)]
    pub(crate) rotation: [f32; 4],
    #[replicate(integer(min = -5, max = 100))]
    pub(crate) health: i16,
    #[replicate(integer, owner_only)]
    pub(crate) experience: u64,
    #[replicate(bool)]
    pub(crate) flags: [bool; 3],
    #[replicate(enumeration, notify)]
    pub(crate) mode: Mode,
    #[replicate(float16)]
    pub(crate) temperature: f32,
    #[replicate(float32, owner_only)]
    pub(crate) stamina: f64,
    #[replicate(text(max_bytes = 12), initial_only, notify)]
    pub(crate) name: String,
    #[replicate(bytes(max_bytes = 5), owner_only)]
    pub(crate) blob: Vec<u8>,
    #[replicate(object)]
    pub(crate) targets: [ObjectId; 2],
    #[replicate(quaternion(bits = 4))]
    pub(crate) limbs: [[f32; 4]; 2],
}

impl Default for Everything {
    fn default() -> Everything {
        Everything {
            position: [0.0; 3],
            velocity: [0.0; 3],
            server_secret: 0,
            yaw: 0.0,
            normal: [0.0, 0.0, 1.0],
            rotation: [0.0, 0.0, 0.0, 1.0],
            health: 0,
            experience: 0,
            flags: [false; 3],
            mode: Mode::Standing,
            temperature: 0.0,
            stamina: 0.0,
            name: String::new(),
            blob: Vec::new(),
            targets: [ObjectId::NONE; 2],
            limbs: [[0.0, 0.0, 0.0, 1.0]; 2],
        }
    }
}

/// The moving character of the documentation.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Character {
    #[replicate(position(step = 0.01))]
    pub(crate) position: [f32; 3],
    #[replicate(fixed(min = -40.0, max = 40.0, step = 0.1))]
    pub(crate) velocity: [f32; 3],
    #[replicate(angle(bits = 9))]
    pub(crate) yaw: f32,
    #[replicate(fixed(min = -1.5, max = 1.5, step = 0.025))]
    pub(crate) pitch: f32,
    #[replicate(enumeration)]
    pub(crate) mode: Mode,
}

/// The quantised fields of one object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Store {
    pub(crate) words: Vec<u32>,
    pub(crate) blobs: Vec<Vec<u8>>,
}

impl Store {
    pub(crate) fn empty(kind: &Kind) -> Store {
        let (words, blobs) = kind.empty_values();
        Store { words, blobs }
    }

    pub(crate) fn of<T: Replicate>(object: &T) -> Store {
        let mut store = Store::empty(&T::kind());
        object.quantise(store.values_mut());
        store
    }

    pub(crate) fn values(&self) -> Values<'_> {
        Values { words: &self.words, blobs: &self.blobs }
    }

    pub(crate) fn values_mut(&mut self) -> ValuesMut<'_> {
        ValuesMut { words: &mut self.words, blobs: &mut self.blobs }
    }
}
