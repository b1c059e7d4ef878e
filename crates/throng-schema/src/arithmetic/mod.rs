//! The arithmetic of the quantisers, one type each.
//!
//! Derived code holds these as constants and calls them field by field. Games use them to round as the wire does, for
//! example when they predict: `Fixed::new(-40.0, 40.0, 0.1)` gives on the client exactly what the server will send.
//!
//! The rules of all of them:
//!
//! - quantising what was restored gives the same words again: `words(restore(words(x))) == words(x)`, as long as the
//!   type can tell neighbouring values apart;
//! - equal words mean equal values, and values that no code can tell apart give equal words: `-0` is `0`;
//! - nothing panics: values out of range become the nearest border, infinities too, and NaN becomes zero (or what
//!   stands for it: straight up for a direction, the identity for a rotation).

mod angle;
mod blob;
mod fixed;
mod float;
mod integer;
mod octahedral;
mod plain;
mod smallest_three;
mod steps;
mod traits;
mod vectors;

pub use angle::Angle;
pub(crate) use angle::angle_step;
pub use blob::{ByteString, Text};
pub use fixed::Fixed;
pub use float::{Float16, Float32};
pub use integer::IntegerRange;
pub use octahedral::Octahedral;
pub use plain::{Enumeration, Reference, Truth};
pub use smallest_three::SmallestThree;
pub use steps::Steps;
pub use traits::{Element, Real, Vector, Whole};

/// Bits that tell `last + 1` codes apart.
pub(crate) const fn bits_for(last: u64) -> u32 {
    64 - last.leading_zeros()
}
