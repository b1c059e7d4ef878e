use crate::MAX_BLOB_BYTES;
use crate::arithmetic::{Fixed, IntegerRange, bits_for};

/// How an element of a field becomes a number of few bits. The [`arithmetic`](crate::arithmetic) module computes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantiser {
    /// Fixed point in a range, from `f32` or `f64`. 1 word; as few bits as count the values.
    Fixed {
        /// Lowest value.
        min: f64,
        /// Highest value, above `min`.
        max: f64,
        /// Distance between neighbouring values, above 0; at most 2^32 of them fit in the range.
        step: f64,
    },
    /// World position, from a vector of three. 3 words, one `i32` per axis; bits as the channel's
    /// [`Space`](crate::Space) says. At most one per kind, never an array.
    Position {
        /// Distance between neighbouring values in world units, above 0.
        step: f64,
    },
    /// Radians, from `f32` or `f64`; wraps around. 1 word.
    Angle {
        /// Bits, 1 to 22; a full turn has 2^bits values.
        bits: u32,
    },
    /// Direction, from a vector of three; octahedral. 1 word, `2 * bits` bits.
    UnitVector {
        /// Bits per coordinate of the unfolded octahedron, 2 to 16.
        bits: u32,
    },
    /// Rotation, from a quaternion x, y, z, w; smallest three. 2 words, `2 + 3 * bits` bits.
    Quaternion {
        /// Bits per component, 2 to 16.
        bits: u32,
    },
    /// Whole number in a range, from any integer type. 1 word, or 2 for a range of more than 32 bits.
    Integer {
        /// Lowest value.
        min: i64,
        /// Highest value, above `min`. A range of all 64 bits also stands for a whole `u64`.
        max: i64,
    },
    /// `bool`. 1 word, 1 bit.
    Bool,
    /// Enum without data. 1 word; as few bits as count the variants.
    Enum {
        /// Number of variants, 1 to 65,536.
        count: u32,
    },
    /// Half precision, from `f32` or `f64`. 1 word, 16 bits.
    Float16,
    /// Single precision, from `f32` or `f64`. 1 word, 32 bits.
    Float32,
    /// UTF-8 text, from `String`. 1 blob.
    Text {
        /// Most bytes, 1 to [`MAX_BLOB_BYTES`](crate::MAX_BLOB_BYTES).
        max_bytes: u32,
    },
    /// Byte string, from `Vec<u8>`. 1 blob.
    Bytes {
        /// Most bytes, 1 to [`MAX_BLOB_BYTES`](crate::MAX_BLOB_BYTES).
        max_bytes: u32,
    },
    /// Reference to an object, from `ObjectId`. 2 words; 8 bits for none, 16 to 80 for others.
    ObjectRef,
}

impl Quantiser {
    /// Words that one element takes. A position counts as one element here.
    pub fn words(&self) -> usize {
        match *self {
            Quantiser::Position { .. } => 3,
            Quantiser::Quaternion { .. } | Quantiser::ObjectRef => 2,
            Quantiser::Integer { min, max } => IntegerRange::new(min, max).words(),
            Quantiser::Text { .. } | Quantiser::Bytes { .. } => 0,
            _ => 1,
        }
    }

    /// Whether the field is a byte string instead of words.
    pub fn is_blob(&self) -> bool {
        matches!(self, Quantiser::Text { .. } | Quantiser::Bytes { .. })
    }

    /// The most bits that one element can take on the wire, a position in the widest space.
    pub fn max_bits(&self) -> u32 {
        match *self {
            Quantiser::Fixed { min, max, step } => bits_for(u64::from(Fixed::new(min, max, step).last())),
            Quantiser::Position { .. } => 3 * 63,
            Quantiser::Angle { bits } => bits,
            Quantiser::UnitVector { bits } => 2 * bits,
            Quantiser::Quaternion { bits } => 2 + 3 * bits,
            Quantiser::Integer { min, max } => bits_for(IntegerRange::new(min, max).last()),
            Quantiser::Bool => 1,
            Quantiser::Enum { count } => bits_for(u64::from(count.saturating_sub(1))),
            Quantiser::Float16 => 16,
            Quantiser::Float32 => 32,
            Quantiser::Text { max_bytes } | Quantiser::Bytes { max_bytes } => {
                bits_for(u64::from(max_bytes)) + 8 * max_bytes
            }
            Quantiser::ObjectRef => 80,
        }
    }

    /// Whether the parameters are in the ranges that the variants state.
    ///
    /// # Errors
    /// The error, as half a sentence.
    pub fn check(&self) -> Result<(), &'static str> {
        let good = |condition: bool, otherwise: &'static str| if condition { Ok(()) } else { Err(otherwise) };
        match *self {
            Quantiser::Fixed { min, max, step } => {
                good(min.is_finite() && max.is_finite() && min < max, "min must be below max")?;
                good(step.is_finite() && step > 0.0, "step must be above 0")?;
                let values = (max - min) / step;
                good(values >= 1.0, "step must not be larger than the range")?;
                good(values <= f64::from(u32::MAX), "the range must have at most 2^32 steps")?;
                let farthest = min.abs().max(max.abs()) / step;
                good(farthest <= (1u64 << 48) as f64, "the range must lie within 2^48 steps of zero")
            }
            Quantiser::Position { step } => good(step.is_normal() && step > 0.0, "step must be above 0"),
            Quantiser::Angle { bits } => good((1..=22).contains(&bits), "bits must be 1 to 22"),
            Quantiser::UnitVector { bits } | Quantiser::Quaternion { bits } => {
                good((2..=16).contains(&bits), "bits must be 2 to 16")
            }
            Quantiser::Integer { min, max } => good(min < max, "min must be below max"),
            Quantiser::Enum { count } => good((1..=65_536).contains(&count), "an enum has 1 to 65,536 variants"),
            Quantiser::Text { max_bytes } | Quantiser::Bytes { max_bytes } => {
                good((1..=MAX_BLOB_BYTES).contains(&max_bytes), "max_bytes must be 1 to 4,194,304")
            }
            Quantiser::Bool | Quantiser::Float16 | Quantiser::Float32 | Quantiser::ObjectRef => Ok(()),
        }
    }
}
