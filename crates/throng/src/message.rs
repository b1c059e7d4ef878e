//! Typed messages and inputs: any replicated kind can also be sent once.
//!
//! ```text
//! message   [kind: varint][all fields in order, as their quantisers say]
//! ```

use throng_schema::{Replicate, Schema, Space, ValuesMut};
use throng_wire::{BitReader, BitWriter, KindId};

/// A message or input as it came. Ask for it by type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    bytes: Vec<u8>,
}

impl Received {
    pub(crate) fn new(bytes: Vec<u8>) -> Received {
        Received { bytes }
    }

    /// The bytes as they came.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The value, if the message is of this type. `None` if it is of another, or malformed.
    pub fn get<T: Replicate>(&self, schema: &Schema) -> Option<T> {
        decode(schema, &self.bytes)
    }
}

/// Writes a value, with its kind before it. `None` if the schema does not have the type.
pub(crate) fn encode<T: Replicate>(schema: &Schema, value: &T, out: &mut Vec<u8>) -> Option<()> {
    let id = schema.kind_id::<T>()?;
    let kind = schema.kind(id);
    let (mut words, mut blobs) = kind.empty_values();
    let mut values = ValuesMut { words: &mut words, blobs: &mut blobs };
    value.quantise(values.reborrow());
    let mut w = BitWriter::new(out);
    w.write_varint(u64::from(id.0));
    kind.encode(kind.all_mask(), values.as_values(), &Space::WORLD, &mut w);
    w.finish();
    Some(())
}

/// Reads a value, if it is of this type.
pub(crate) fn decode<T: Replicate>(schema: &Schema, bytes: &[u8]) -> Option<T> {
    let id = schema.kind_id::<T>()?;
    let mut r = BitReader::new(bytes);
    if u16::try_from(r.read_varint().ok()?).ok().map(KindId) != Some(id) {
        return None;
    }
    let kind = schema.kind(id);
    let (mut words, mut blobs) = kind.empty_values();
    let mut values = ValuesMut { words: &mut words, blobs: &mut blobs };
    kind.decode(kind.all_mask(), values.reborrow(), &Space::WORLD, &mut r).ok()?;
    let mut value = T::default();
    value.apply(kind.all_mask(), values.as_values());
    Some(value)
}
