//! How a packet tells of objects: records, bit after bit, until a zero byte or the packet's end.
//!
//! ```text
//! [object index + 1 : varint]
//! [form : 2]                      0 update, 1 opening, 2 close
//! [kind]                          update and opening: as many bits as the schema's highest kind has
//! [generation : 16]               opening only
//! [is yours : 1]                  update and opening, if the kind has fields for its owner or for all others
//! [mask : a bit for each field]   update and opening
//! [bits - 1 : 5]                  if the mask has the position: how many bits each of its axes takes
//! [values]                        the fields of the mask, as their quantisers say
//! ```
//!
//! Until a packet with an opening is known to have arrived, every record of the object is one. Updates name the kind so
//! that one that comes after the object's end can be passed over. A position is written with
//! as many bits as its largest axis needs, as Unreal's quantised vectors are.

use throng::Facet;
use throng::schema::{DecodeError, FieldMask, Kind, Schema, Space, Values, ValuesMut};
use throng_wire::{BitReader, BitWriter, KindId, ReadError};

const UPDATE: u64 = 0;
const OPENING: u64 = 1;
const CLOSE: u64 = 2;

/// The largest index that is written.
const INDEX_MAX: u64 = 1 << 24;

/// Why a packet could not be read. Peer malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The bits end early, or a number makes no sense.
    #[error("a record is malformed: {0}")]
    Read(#[from] ReadError),
    /// A field makes no sense.
    #[error("a record is malformed: {0}")]
    Field(#[from] DecodeError),
    /// A form, index or kind that does not exist.
    #[error("a record has {0}, which does not exist")]
    Unknown(&'static str),
    /// An update for an object that was never opened, or of another kind.
    #[error("an update for object {0}, which is not open")]
    NotOpen(u32),
    /// There is more than this client is willing to hold.
    #[error("the server sends more objects than the limit of {0}")]
    Limit(usize),
}

impl RecordError {
    /// A stable short name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            RecordError::Read(_) => "read",
            RecordError::Field(_) => "field",
            RecordError::Unknown(_) => "unknown",
            RecordError::NotOpen(_) => "not_open",
            RecordError::Limit(_) => "limit",
        }
    }
}

/// The part of a record before its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Update { index: u32, kind: KindId },
    Opening { index: u32, generation: u16, kind: KindId },
    Close { index: u32 },
}

impl Head {
    pub(crate) fn write(self, schema: &Schema, w: &mut BitWriter<'_>) {
        let (Head::Update { index, .. } | Head::Opening { index, .. } | Head::Close { index }) = self;
        w.write_varint(u64::from(index) + 1);
        match self {
            Head::Update { kind, .. } => {
                w.write(UPDATE, 2);
                w.write(kind.0.into(), kind_bits(schema));
            }
            Head::Opening { generation, kind, .. } => {
                w.write(OPENING, 2);
                w.write(kind.0.into(), kind_bits(schema));
                w.write(generation.into(), 16);
            }
            Head::Close { .. } => w.write(CLOSE, 2),
        }
    }

    /// The head of the next record, `None` at the end of the packet.
    pub(crate) fn read(schema: &Schema, r: &mut BitReader<'_>) -> Result<Option<Head>, RecordError> {
        if r.remaining_bits() < 8 {
            return Ok(None);
        }
        let index = match r.read_varint()? {
            0 => return Ok(None),
            number @ 1..=INDEX_MAX => (number - 1) as u32,
            _ => return Err(RecordError::Unknown("an index")),
        };
        Ok(Some(match r.read(2)? {
            UPDATE => Head::Update { index, kind: read_kind(schema, r)? },
            OPENING => {
                let kind = read_kind(schema, r)?;
                Head::Opening { index, generation: r.read(16)? as u16, kind }
            }
            CLOSE => Head::Close { index },
            _ => return Err(RecordError::Unknown("a form")),
        }))
    }
}

fn kind_bits(schema: &Schema) -> u32 {
    usize::BITS - schema.kinds().len().saturating_sub(1).leading_zeros()
}

fn read_kind(schema: &Schema, r: &mut BitReader<'_>) -> Result<KindId, RecordError> {
    let kind = KindId(r.read(kind_bits(schema))? as u16);
    schema.get(kind).map(|_| kind).ok_or(RecordError::Unknown("a kind"))
}

/// Writes what comes after the head of an update or opening.
pub(crate) fn write_body(kind: &Kind, is_owner: bool, mask: FieldMask, values: Values<'_>, w: &mut BitWriter<'_>) {
    if has_roles(kind) {
        w.write_bool(is_owner);
    }
    w.write(mask, kind.fields.len() as u32);
    let mut space = Space::WORLD;
    if let Some(field) = kind.position.filter(|&field| mask >> field & 1 == 1) {
        let word = usize::from(kind.fields[field].word);
        let bits = values.words[word..word + 3].iter().map(|&axis| bits_of(axis as i32)).max().unwrap_or(1);
        w.write(u64::from(bits) - 1, 5);
        space = space_of(bits);
    }
    kind.encode(mask, values, &space, w);
}

/// Reads what [`write_body`] wrote: whether the object is the reader's, and the mask; the fields go to `values`.
pub(crate) fn read_body(
    kind: &Kind,
    values: ValuesMut<'_>,
    r: &mut BitReader<'_>,
) -> Result<(bool, FieldMask), RecordError> {
    let is_owner = has_roles(kind) && r.read_bool()?;
    let mask = r.read(kind.fields.len() as u32)?;
    let has_position = kind.position.is_some_and(|field| mask >> field & 1 == 1);
    let space = if has_position { space_of(r.read(5)? as u8 + 1) } else { Space::WORLD };
    kind.decode(mask, values, &space, r)?;
    Ok((is_owner, mask))
}

/// The most bits that a record with all fields of a kind takes.
pub(crate) fn max_bits(schema: &Schema, kind: &Kind) -> u32 {
    /// Index, form, generation, role and the position's size.
    const HEAD: u64 = 32 + 2 + 16 + 1 + 5;
    let bits = HEAD + u64::from(kind_bits(schema)) + kind.fields.len() as u64 + kind.max_bits(kind.all_mask());
    u32::try_from(bits).unwrap_or(u32::MAX)
}

/// Whether the kind looks different to its owner.
pub(crate) fn has_roles(kind: &Kind) -> bool {
    (kind.facet_mask(Facet::Owner) | kind.facet_mask(Facet::Others)) != 0
}

/// Bits of a number in two's complement: 1 to 32.
fn bits_of(value: i32) -> u8 {
    33 - (value ^ (value >> 31)).leading_zeros().max(1) as u8
}

/// Numbers of so many bits in two's complement.
fn space_of(bits: u8) -> Space {
    Space { origin: [(-1i64 << (bits - 1)) as i32; 3], bits: [bits; 3] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_takes_as_many_bits_as_its_largest_axis_needs() {
        for (value, bits) in
            [(0, 1), (-1, 1), (1, 2), (-2, 2), (127, 8), (-128, 8), (128, 9), (i32::MAX, 32), (i32::MIN, 32)]
        {
            assert_eq!(bits_of(value), bits, "{value}");
            assert!(space_of(bits).contains([value; 3]), "{value}");
        }
    }
}
