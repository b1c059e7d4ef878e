//! Kinds, fields, quantisers, change masks and the schema hash.
//!
//! A game declares the data to send with its structs. The declaration gives the replication core everything that it
//! needs: a row of numbers per object that can be compared, copied and written without knowing the struct.
//!
//! ```text
//!   struct --quantise--> words, blobs --compare--> mask of changed fields --encode--> bits
//!                                                                                      |
//!   struct <--apply----- words, blobs <------------------- decode --------------------+
//! ```
//!
//! Quantising comes first and once. From then on, all comparing and sending uses the numbers that the client will hold.
//! So a change too small to be sent is no change, and server and client agree about every bit.
//!
//! ```
//! use throng_schema::{Replicate, ReplicateEnum, Schema, Space, Values, ValuesMut};
//! use throng_wire::{BitReader, BitWriter};
//!
//! #[derive(Clone, Copy, Debug, Default, PartialEq, ReplicateEnum)]
//! enum Mode {
//!     #[default]
//!     Walking,
//!     Swimming,
//! }
//!
//! #[derive(Default, Replicate)]
//! struct Character {
//!     #[replicate(position(step = 0.01))]
//!     position: [f32; 3],
//!     #[replicate(angle(bits = 9))]
//!     yaw: f32,
//!     #[replicate(enumeration, notify)]
//!     mode: Mode,
//!     #[replicate(integer(min = 0, max = 30), owner_only)]
//!     ammunition: u8,
//!     #[replicate(text(max_bytes = 24), initial_only)]
//!     name: String,
//!     #[replicate(skip)]
//!     path: Vec<[f32; 3]>,
//! }
//!
//! let schema = Schema::builder().kind::<Character>().build()?;
//! let kind = schema.kind(schema.kind_id::<Character>().unwrap());
//!
//! // The server quantises what was touched, and compares it with what it holds.
//! let mut object = Character { position: [3.0, 0.0, 4.0], ..Character::default() };
//! let (mut old_words, mut old_blobs) = kind.empty_values();
//! object.quantise(ValuesMut { words: &mut old_words, blobs: &mut old_blobs });
//! object.position[0] = 3.5;
//! object.yaw = 0.001; // less than half a step
//! object.mode = Mode::Swimming;
//! let (mut words, mut blobs) = kind.empty_values();
//! object.quantise(ValuesMut { words: &mut words, blobs: &mut blobs });
//! let old = Values { words: &old_words, blobs: &old_blobs };
//! let new = Values { words: &words, blobs: &blobs };
//! let changed = kind.compare(old, new);
//! assert_eq!(changed, Character::FIELD_POSITION | Character::FIELD_MODE);
//!
//! // In a cell of 10 m, a position is 10 bits per axis.
//! let cell = Space { origin: [0; 3], bits: [10; 3] };
//! let mut bytes = Vec::new();
//! let mut w = BitWriter::new(&mut bytes);
//! kind.encode(changed, new, &cell, &mut w);
//! assert_eq!(w.bit_len(), 3 * 10 + 1);
//! w.finish();
//!
//! // The client reads the same fields, and takes them over.
//! let (mut words, mut blobs) = kind.empty_values();
//! let mut values = ValuesMut { words: &mut words, blobs: &mut blobs };
//! kind.decode(changed, values.reborrow(), &cell, &mut BitReader::new(&bytes))?;
//! let mut copy = Character::default();
//! copy.apply(changed, values.as_values());
//! assert_eq!((copy.position, copy.mode), ([3.5, 0.0, 4.0], Mode::Swimming));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The attribute
//!
//! Every field of a `#[derive(Replicate)]` struct says what happens to it, in `#[replicate(...)]`. All quantisers,
//! conditions and defaults are listed at the macro: [`Replicate`](derive@Replicate). Vector types of a game's mathematics
//! library implement [`arithmetic::Vector`]. [`arithmetic`] says what happens to NaN, infinities and values out of range.
//!
//! # Agreement
//!
//! [`Schema::hash`] is equal at both ends when they understand each other, whatever compiled them: it is FNV-1a over
//! the names of kinds, fields and variants, the quantisers with their parameters, numbers of elements, conditions,
//! and code tables
//! (`hash.rs` has the exact text). When it differs, [`Schema::summary`] and [`Schema::differences`] name the kinds.
#![forbid(unsafe_code)]

pub mod arithmetic;
mod codes;
mod condition;
mod error;
mod field;
mod hash;
mod kind;
mod quantiser;
mod reckoning;
mod replicate;
mod schema;
mod space;
mod summary;
mod values;
mod wire;

pub use codes::{CodeCounts, CodeTable};
pub use condition::{Condition, Facet};
pub use error::{DecodeError, SchemaError, SummaryError};
pub use field::Field;
pub use kind::{Kind, Threshold};
pub use quantiser::Quantiser;
pub use reckoning::{Predict, Reckoning};
pub use replicate::{Nested, Replicate, ReplicateEnum, nested_fields};
pub use schema::{Schema, SchemaBuilder};
pub use space::Space;
pub use summary::{KindDifference, Summary};
pub use throng_schema_derive::{Replicate, ReplicateEnum};
pub use values::{Values, ValuesMut};

/// The traits without the derive macros of the same names: for crates that export macros of their own under these names.
pub mod traits {
    pub use crate::replicate::{Replicate, ReplicateEnum};
}

/// A set of fields of a kind: bit `i` stands for field `i`.
pub type FieldMask = u64;

/// Most fields of a kind: as many as a [`FieldMask`] has bits.
pub const MAX_FIELDS: usize = 64;

/// Most kinds of a schema.
pub const MAX_KINDS: usize = 1024;

/// The longest text or byte list that a field may be declared to hold, in bytes: as much as a message can carry.
/// Objects are replicated in packets, so the fields of one that go to the same audience have to be much shorter
/// together.
pub const MAX_BLOB_BYTES: u32 = 4 << 20;
/// Longest name of a kind, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 64;
