//! Kinds with every sort of field, and some that invite trouble.
#![allow(dead_code)] // each target and test takes a part of it

use std::sync::Arc;

use throng_schema::{Replicate, Schema};
use throng_wire::ObjectId;

/// A field of every quantiser, in every facet.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Everything {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03))]
    pub(crate) position: [f32; 3],
    #[replicate(fixed(min = -40.0, max = 40.0, step = 0.1))]
    pub(crate) velocity: [f32; 3],
    #[replicate(angle(bits = 9), skip_owner)]
    pub(crate) yaw: f32,
    #[replicate(unit_vector(bits = 10))]
    pub(crate) normal: [f32; 3],
    #[replicate(quaternion(bits = 10), skip_owner)]
    pub(crate) rotation: [f32; 4],
    #[replicate(integer(min = -5, max = 100))]
    pub(crate) health: i16,
    #[replicate(integer, owner_only)]
    pub(crate) experience: u64,
    #[replicate(bool)]
    pub(crate) flags: [bool; 3],
    #[replicate(float16)]
    pub(crate) temperature: f32,
    #[replicate(float32, owner_only)]
    pub(crate) stamina: f64,
    #[replicate(text(max_bytes = 12), initial_only)]
    pub(crate) name: String,
    #[replicate(bytes(max_bytes = 300))]
    pub(crate) blob: Vec<u8>,
    #[replicate(object)]
    pub(crate) targets: [ObjectId; 2],
}

/// A part of others.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Slot {
    #[replicate(object)]
    pub(crate) item: Option<ObjectId>,
    #[replicate(integer(min = 1, max = 99))]
    pub(crate) counts: [u8; 2],
}

/// Everything that can be there or not, and structs in structs.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Composed {
    #[replicate(nested)]
    pub(crate) hand: Slot,
    #[replicate(fixed(min = -40.0, max = 40.0, step = 0.1), list(max = 5))]
    pub(crate) path: Vec<[f32; 3]>,
    #[replicate(text(max_bytes = 12))]
    pub(crate) title: Option<String>,
    #[replicate(nested, owner_only)]
    pub(crate) pocket: Slot,
    #[replicate(integer, list(max = 3), hide_from_owner)]
    pub(crate) debts: Vec<i64>,
    #[replicate(quaternion(bits = 4))]
    pub(crate) aim: Option<[f32; 4]>,
}

/// A kind without a position, all of it public: its other facets have no fields, and entries of two bits.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Score {
    #[replicate(integer(min = 0, max = 100_000))]
    pub(crate) points: u32,
    #[replicate(bool)]
    pub(crate) open: bool,
}

/// A kind whose only field is sent once.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Label {
    #[replicate(text(max_bytes = 30), initial_only)]
    pub(crate) text: String,
}

const CODES: &str = "
    kind Everything
    entries public 0=2 1=2 3/1=2 else=2
    gaps public 0=1 1/1=2 else=2
    field position 0 -256/8=2 0/8=1 else=2
    field position 2 0/4=1 else=1
    field health 0 5=1 6/3=2 else=2
    field flags 1 1=1 else=1
    kind Score
    entries public 1=1 else=1
    field points 0 0=1 1/4=2 else=2
";

pub(crate) fn schema() -> Arc<Schema> {
    schema_with("")
}

/// The same with code tables for some of the fields.
pub(crate) fn coded_schema() -> Arc<Schema> {
    schema_with(CODES)
}

fn schema_with(codes: &str) -> Arc<Schema> {
    let schema = Schema::builder().kind::<Everything>().kind::<Score>().kind::<Label>().kind::<Composed>();
    Arc::new(schema.codes(codes).build().expect("four good kinds"))
}
