//! Typed messages and inputs: any replicated kind can also be sent once.
//!
//! ```text
//! message   [kind: varint][all fields in order, as their quantisers say]
//! ```

use std::fmt;
use std::sync::Arc;

use throng_schema::{Kind, Replicate, Schema, Space, Values};
use throng_wire::{BitReader, BitWriter, KindId};

/// A received message.
///
/// ```
/// # use throng::{Received, Replicate};
/// # #[derive(Default, Replicate)]
/// # struct Chat {
/// #     #[replicate(text(max_bytes = 80))]
/// #     text: String,
/// # }
/// # #[derive(Default, Replicate)]
/// # struct Fire {
/// #     #[replicate(angle(bits = 9))]
/// #     direction: f32,
/// # }
/// # fn say(_: &str) {}
/// # fn fire(_: f32) {}
/// fn on_message(message: &Received) {
///     match message.kind() {
///         Some(Chat::KIND) => message.get::<Chat>().into_iter().for_each(|chat| say(&chat.text)),
///         Some(Fire::KIND) => message.get::<Fire>().into_iter().for_each(|shot| fire(shot.direction)),
///         _ => {} // a kind that we do not expect, or no message at all: the peer is at fault
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Received {
    bytes: Vec<u8>,
    schema: Arc<Schema>,
}

impl Received {
    pub(crate) fn new(bytes: Vec<u8>, schema: &Arc<Schema>) -> Received {
        Received { bytes, schema: Arc::clone(schema) }
    }

    /// The bytes as they came.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The name of its kind: compare it with [`Replicate::KIND`] of a type. `None` if the message names none of the schema.
    pub fn kind(&self) -> Option<&'static str> {
        kind(&self.schema, &self.bytes)
    }

    /// The value, if the message is of this type. `None` if it is of another, or malformed.
    pub fn get<T: Replicate>(&self) -> Option<T> {
        decode(&self.schema, &self.bytes)
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received").field("kind", &self.kind()).field("bytes", &self.bytes).finish()
    }
}

/// Two messages are equal if their bytes are.
impl PartialEq for Received {
    fn eq(&self, other: &Received) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Received {}

/// The name of the kind of a value that [`encode`] wrote.
pub(crate) fn kind(schema: &Schema, bytes: &[u8]) -> Option<&'static str> {
    let id = u16::try_from(BitReader::new(bytes).read_varint().ok()?).ok()?;
    schema.get(KindId(id)).map(|kind| kind.name)
}

/// Writes a value, with its kind before it. `None` if the schema does not have the type.
pub(crate) fn encode<T: Replicate>(schema: &Schema, value: &T, out: &mut Vec<u8>) -> Option<()> {
    let id = schema.kind_id::<T>()?;
    let kind = schema.kind(id);
    kind.with_empty_values(|mut values| {
        value.quantise(values.reborrow());
        let mut w = BitWriter::new(out);
        w.write_varint(u64::from(id.0));
        kind.encode(kind.all_mask(), values.as_values(), &Space::WORLD, &mut w);
        w.finish();
    });
    Some(())
}

/// Reads a value, if it is of this type.
pub(crate) fn decode<T: Replicate>(schema: &Schema, bytes: &[u8]) -> Option<T> {
    let id = schema.kind_id::<T>()?;
    let mut r = BitReader::new(bytes);
    if u16::try_from(r.read_varint().ok()?).ok().map(KindId) != Some(id) {
        return None;
    }
    read(schema.kind(id), &mut r)
}

/// Reads all fields of a value of this kind.
pub(crate) fn read<T: Replicate>(kind: &Kind, r: &mut BitReader<'_>) -> Option<T> {
    read_values(kind, r, |values| {
        let mut value = T::default();
        value.apply(kind.all_mask(), values);
        value
    })
}

/// Reads all fields of a kind, and hands them on as they are quantised.
pub(crate) fn read_values<A>(kind: &Kind, r: &mut BitReader<'_>, take: impl FnOnce(Values<'_>) -> A) -> Option<A> {
    kind.with_empty_values(|mut values| {
        kind.decode(kind.all_mask(), values.reborrow(), &Space::WORLD, r).ok()?;
        Some(take(values.as_values()))
    })
}
