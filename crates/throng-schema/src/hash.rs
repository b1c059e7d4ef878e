//! The hash of a kind: FNV-1a of 64 bits (Fowler, Noll, Vo; offset basis cbf29ce484222325, prime 100000001b3) over a
//! text that says everything that two ends must agree about, and nothing else:
//!
//! ```text
//! kind Character\n
//! field position position(step=3f847ae147ae147b) x3 public\n
//! field mode enumeration(Walking,Running) x1 public\n
//! field targets object x1 list(4) owner_only\n
//! field place position(step=3f847ae147ae147b) x3 public predict(by=speed,error_m=3f9eb851eb851eb8)\n
//! ```
//!
//! Optional values are lists of at most one item. The fields of a nested struct stand in the place of the struct, each with
//! the name `<struct's field>.<field>`.
//!
//! A kind with code tables has their text behind it, as [`Kind::codes_text`](crate::Kind::codes_text) writes it.
//!
//! Reals are the 16 hexadecimal digits of their binary64 form, whole numbers are decimal. The type of a field in Rust
//! (`f32` or `f64`), `notify` and skipped fields are not part of it, so either end may choose them for itself.
//!
//! The hash of a schema is FNV-1a over its kinds in order of their ids: the name, a zero byte, and the hash of the
//! kind, lowest byte first.

use crate::{Field, Kind, Predict, Quantiser};
use std::fmt::Write;

/// FNV-1a, 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fnv(u64);

impl Fnv {
    pub(crate) const fn new() -> Fnv {
        Fnv(0xCBF2_9CE4_8422_2325)
    }

    pub(crate) fn write(mut self, bytes: &[u8]) -> Fnv {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        self
    }

    pub(crate) fn finish(self) -> u64 {
        self.0
    }
}

/// The text whose hash is the kind's.
pub(crate) fn description(name: &str, fields: &[Field]) -> String {
    let mut text = format!("kind {name}\n");
    for field in fields {
        let quantiser = quantiser_text(field);
        // Writing to a string cannot fail.
        let _ = write!(text, "field {} {quantiser} x{} ", field.name, field.elements);
        if let Some(items) = field.list {
            let _ = write!(text, "list({items}) ");
        }
        let _ = write!(text, "{}", field.condition);
        if let Some(Predict { by, error_m }) = field.predict {
            let _ = write!(text, " predict(by={by},error_m={})", real(error_m));
        }
        text.push('\n');
    }
    text
}

/// The hash of a schema.
pub(crate) fn schema_hash(kinds: &[Kind]) -> u64 {
    kinds
        .iter()
        .fold(Fnv::new(), |hash, kind| hash.write(kind.name.as_bytes()).write(&[0]).write(&kind.hash.to_le_bytes()))
        .finish()
}

fn quantiser_text(field: &Field) -> String {
    match field.quantiser {
        Quantiser::Fixed { min, max, step } => {
            format!("fixed(min={},max={},step={})", real(min), real(max), real(step))
        }
        Quantiser::Position { step } => format!("position(step={})", real(step)),
        Quantiser::Angle { bits } => format!("angle(bits={bits})"),
        Quantiser::UnitVector { bits } => format!("unit_vector(bits={bits})"),
        Quantiser::Quaternion { bits } => format!("quaternion(bits={bits})"),
        Quantiser::Integer { min, max } => format!("integer(min={min},max={max})"),
        Quantiser::Bool => "bool".to_owned(),
        Quantiser::Enum { count } if field.variants.is_empty() => format!("enumeration({count})"),
        Quantiser::Enum { .. } => format!("enumeration({})", field.variants.join(",")),
        Quantiser::Float16 => "float16".to_owned(),
        Quantiser::Float32 => "float32".to_owned(),
        Quantiser::Text { max_bytes } => format!("text(max_bytes={max_bytes})"),
        Quantiser::Bytes { max_bytes } => format!("bytes(max_bytes={max_bytes})"),
        Quantiser::ObjectRef => "object".to_owned(),
    }
}

/// The bits of a number; -0 counts as 0.
fn real(value: f64) -> String {
    format!("{:016x}", (value + 0.0).to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_test_vectors_hold() {
        assert_eq!(Fnv::new().finish(), 0xCBF2_9CE4_8422_2325);
        assert_eq!(Fnv::new().write(b"a").finish(), 0xAF63_DC4C_8601_EC8C);
        assert_eq!(Fnv::new().write(b"foobar").finish(), 0x8594_4171_F739_67E8);
    }
}
