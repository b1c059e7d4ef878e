//! Kinds, fields, quantisers, change masks and the schema hash.
//!
//! A game declares what is sent where it declares its structs. From that follows everything the replication core
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
//! Every field of a `#[derive(Replicate)]` struct says what happens to it, in `#[replicate(...)]`: a quantiser, and if
//! need be a condition and `notify`; or `skip` for what stays where it is. Numbers are literals.
//!
//! | quantiser | types | bits | error |
//! |---|---|---|---|
//! | `fixed(min = -40.0, max = 40.0, step = 0.1)` | `f32`, `f64` | as count the values | step / 2 |
//! | `position(step = 0.01)`, one per kind | `[f32; 3]`, `[f64; 3]` | as the [`Space`] says | step / 2 |
//! | `angle(bits = 9)`, radians, 1 to 22 bits | `f32`, `f64` | bits | π / 2^bits |
//! | `unit_vector(bits = 10)`, 2 to 16 bits | `[f32; 3]`, `[f64; 3]` | 2 * bits | 4.25 / (2^bits - 2) rad |
//! | `quaternion(bits = 10)`, x y z w, 2 to 16 bits | `[f32; 4]`, `[f64; 4]` | 2 + 3 * bits | 3.3 / (2^(bits - 1) - 1) rad |
//! | `integer(min = 0, max = 100)`, or `integer` for the whole type | integers of 64 bits and less | as count the values | none |
//! | `bool` | `bool` | 1 | none |
//! | `enumeration` | enums with `#[derive(ReplicateEnum)]` | as count the variants | none |
//! | `float16`, `float32` | `f32`, `f64` | 16, 32 | of the format |
//! | `text(max_bytes = 24)` | `String` | length and bytes | cut at the maximum |
//! | `bytes(max_bytes = 24)` | `Vec<u8>` | length and bytes | cut at the maximum |
//! | `object` | [`ObjectId`](throng_wire::ObjectId) | 8 for none, else 24 to 56 | none |
//!
//! An array of up to 255 of these is one field (positions, texts and byte strings excepted). Vector types of a game's
//! mathematics library implement [`arithmetic::Vector`]. [`arithmetic`] says what happens to NaN, infinities and values
//! out of range.
//!
//! | condition | sent to |
//! |---|---|
//! | `public` (the default) | everybody who may see the object |
//! | `owner_only` | the owner |
//! | `skip_owner` | everybody; the owner's client passes over it, because the owner predicts the value. No secret, and no cost of its own |
//! | `hide_from_owner` | everybody but the owner. A secret, which costs a channel for each object and a subscription for each viewer of it |
//! | `initial_only` | everybody, when the object is introduced, and never again |
//!
//! `notify` marks a field whose change raises an event on the client ([`Kind::notify_mask`]);
//! a kind that marks none tells of them all. For each field the struct gets a constant `FIELD_<NAME>`, its bit in a
//! [`FieldMask`], as visible as the struct itself.
//!
//! On the struct, `#[replicate(name = "...")]` names the kind (otherwise it is called like the type), and
//! `#[replicate(crate = "path")]`, also on enums, says under which path this crate is found.
//!
//! # Agreement
//!
//! [`Schema::hash`] is equal at both ends when they understand each other, whatever compiled them: it is FNV-1a over
//! the names of kinds, fields and variants, the quantisers with their parameters, numbers of elements and conditions
//! (`hash.rs` has the exact text). When it differs, [`Schema::summary`] and [`Schema::differences`] name the kinds.
#![forbid(unsafe_code)]

pub mod arithmetic;
mod condition;
mod error;
mod field;
mod hash;
mod kind;
mod quantiser;
mod replicate;
mod schema;
mod space;
mod summary;
mod values;
mod wire;

pub use condition::{Condition, Facet};
pub use error::{DecodeError, SchemaError, SummaryError};
pub use field::Field;
pub use kind::Kind;
pub use quantiser::Quantiser;
pub use replicate::{Replicate, ReplicateEnum};
pub use schema::{Schema, SchemaBuilder};
pub use space::Space;
pub use summary::{KindDifference, Summary};
/// Derives [`trait@Replicate`] for a struct with named fields; the crate's front page has the attributes.
pub use throng_schema_derive::Replicate;
/// Derives [`trait@ReplicateEnum`] for an enum without data.
pub use throng_schema_derive::ReplicateEnum;
pub use values::{Values, ValuesMut};

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
