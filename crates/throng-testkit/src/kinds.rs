//! Kinds with every sort of audience, a message and an input.

use std::sync::Arc;

use throng_schema::{Replicate, ReplicateEnum, Schema};
use throng_wire::ObjectId;

/// How a [`Walker`] moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ReplicateEnum)]
pub enum Mode {
    /// Not at all.
    #[default]
    Standing,
    /// On foot.
    Walking,
    /// Through the air.
    Flying,
}

/// Somebody with a position, and fields for every audience.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Walker {
    /// Where, in metres.
    #[replicate(position(step = 0.01), notify)]
    pub position: [f32; 3],
    /// For everybody.
    #[replicate(integer(min = 0, max = 1000), notify)]
    pub health: u16,
    /// For everybody.
    #[replicate(enumeration)]
    pub mode: Mode,
    /// For everybody, of changing length.
    #[replicate(text(max_bytes = 40))]
    pub name: String,
    /// For everybody.
    #[replicate(object)]
    pub target: ObjectId,
    /// For everybody, once.
    #[replicate(integer(min = 0, max = 9), initial_only)]
    pub team: u8,
    /// For the owner.
    #[replicate(integer, owner_only)]
    pub ammunition: u32,
    /// For the owner: room for a marker.
    #[replicate(bytes(max_bytes = 16), owner_only)]
    pub secret: Vec<u8>,
    /// For everybody; the owner's client passes over it.
    #[replicate(angle(bits = 9), skip_owner)]
    pub yaw: f32,
    /// For everybody, and kept from the owner: room for a marker.
    #[replicate(bytes(max_bytes = 16), hide_from_owner)]
    pub rumour: Vec<u8>,
    /// For no peer.
    #[replicate(skip)]
    pub server_only: Vec<u8>,
}

/// Something without a position.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Score {
    /// For everybody.
    #[replicate(integer(min = 0, max = 100_000))]
    pub points: u32,
    /// For everybody.
    #[replicate(bool)]
    pub open: bool,
}

/// The smallest thing with a position: a crowd of these is cheap to make.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Beacon {
    /// Where, in metres.
    #[replicate(position(step = 0.01))]
    pub position: [f32; 3],
    /// A number to change.
    #[replicate(integer(min = 0, max = 65_535))]
    pub number: u32,
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Chat {
    /// Counts the messages of a test.
    #[replicate(integer)]
    pub number: u32,
    /// Content.
    #[replicate(text(max_bytes = 900))]
    pub text: String,
}

/// A message as long as a lane can carry, and no object.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Parcel {
    /// Counts the messages of a test.
    #[replicate(integer)]
    pub number: u32,
    /// Content.
    #[replicate(bytes(max_bytes = 4_194_304))]
    pub content: Vec<u8>,
}

/// An input.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Steering {
    /// Counts the inputs of a test.
    #[replicate(integer)]
    pub number: u32,
    /// Where to.
    #[replicate(angle(bits = 9))]
    pub direction: f32,
}

/// A schema of all of these, in the order [`Walker`], [`Score`], [`Beacon`], [`Chat`], [`Steering`], [`Parcel`].
pub fn schema() -> Arc<Schema> {
    let objects = Schema::builder().kind::<Walker>().kind::<Score>().kind::<Beacon>();
    Arc::new(objects.kind::<Chat>().kind::<Steering>().kind::<Parcel>().build().expect("the kinds are good"))
}
