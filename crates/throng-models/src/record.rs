//! How a packet tells of objects: records, bit after bit, until a zero byte or the packet's end.
//!
//! ```text
//! [object index + 1 : varint]
//! [form : 2]                      0 update, 1 opening, 2 close, 3 update with a baseline
//! [kind]                          updates and opening: as many bits as the schema's highest kind has
//! [generation : varint]             opening only
//! [is yours : 1]                  updates and opening, if the kind has fields for its owner or for all others
//! [mask : a bit for each field]   updates and opening
//! [is distance : 1]               form 3: the position is the distance from that in a slot (baseline.rs)
//! [is kept : 1]                   form 3: it is to be kept, in the other slot if it is a distance
//! [slot : 1]                      form 3
//! [bits - 1 : 5]                  if the mask has the position: how many bits each of its axes takes
//! [values]                        the fields of the mask, as their quantisers say
//! ```
//!
//! Until a packet with an opening is known to have arrived, every record of the object is one. Updates name the kind so
//! that one that comes after the object's end can be passed over. A position is written with
//! as many bits as its largest axis needs, as Unreal's quantised vectors are.

use crate::baseline::{Basis, Slots};
use throng::Facet;
use throng::schema::{DecodeError, FieldMask, Kind, Schema, Space, Values, ValuesMut};
use throng_wire::{BitReader, BitWriter, KindId, ReadError};

const UPDATE: u64 = 0;
const OPENING: u64 = 1;
const CLOSE: u64 = 2;
const BASED: u64 = 3;

/// The largest index that is written.
const INDEX_MAX: u64 = 1 << 24;

/// Why a packet could not be read. Peer malformed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The bits end early, or a number is invalid.
    #[error("a record is malformed: {0}")]
    Read(#[from] ReadError),
    /// A field is invalid.
    #[error("a record is malformed: {0}")]
    Field(#[from] DecodeError),
    /// An index, kind or baseline that does not exist.
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
    Based { index: u32, kind: KindId },
    Opening { index: u32, generation: u32, kind: KindId },
    Close { index: u32 },
}

impl Head {
    pub(crate) fn write(self, schema: &Schema, w: &mut BitWriter<'_>) {
        let (Head::Update { index, .. }
        | Head::Based { index, .. }
        | Head::Opening { index, .. }
        | Head::Close { index }) = self;
        w.write_varint(u64::from(index) + 1);
        match self {
            Head::Update { kind, .. } | Head::Based { kind, .. } => {
                w.write(if matches!(self, Head::Based { .. }) { BASED } else { UPDATE }, 2);
                w.write(kind.0.into(), kind_bits(schema));
            }
            Head::Opening { generation, kind, .. } => {
                w.write(OPENING, 2);
                w.write(kind.0.into(), kind_bits(schema));
                w.write_varint(generation.into());
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
                let generation = u32::try_from(r.read_varint()?).map_err(|_| RecordError::Unknown("a generation"))?;
                Head::Opening { index, generation, kind }
            }
            CLOSE => Head::Close { index },
            _ => Head::Based { index, kind: read_kind(schema, r)? },
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

/// Writes what comes after the head of an update or opening; `basis` belongs to an update with a baseline.
pub(crate) fn write_body(
    kind: &Kind,
    is_owner: bool,
    mask: FieldMask,
    values: Values<'_>,
    basis: Option<&Basis>,
    w: &mut BitWriter<'_>,
) {
    if has_roles(kind) {
        w.write_bool(is_owner);
    }
    w.write(mask, kind.fields.len() as u32);
    if let Some(basis) = basis {
        w.write_bool(basis.from.is_some());
        w.write_bool(basis.is_kept);
        w.write(basis.slot.into(), 1);
    }
    let mut space = Space::WORLD;
    if let Some(position) = position_of(kind, mask, values) {
        let from = basis.and_then(|basis| basis.from).unwrap_or_default();
        let bits = (0..3).map(|axis| bits_of(position[axis].wrapping_sub(from[axis]))).max().unwrap_or(1);
        w.write(u64::from(bits) - 1, 5);
        space = space_of(bits, from);
    }
    kind.encode(mask, values, &space, w);
}

/// The content behind the head of an update or opening.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) is_owner: bool,
    pub(crate) mask: FieldMask,
    /// Of an update with a baseline.
    pub(crate) basis: Option<Basis>,
}

/// Reads what [`write_body`] wrote; the fields go to `values`. `slots` are there for an update with a baseline; a distance
/// from an empty slot is counted from 0.
pub(crate) fn read_body(
    kind: &Kind,
    values: ValuesMut<'_>,
    slots: Option<Slots>,
    r: &mut BitReader<'_>,
) -> Result<Body, RecordError> {
    let is_owner = has_roles(kind) && r.read_bool()?;
    let mask = r.read(kind.fields.len() as u32)?;
    let basis = slots.map(|slots| read_basis(&slots, r)).transpose()?;
    let has_position = kind.position.is_some_and(|field| mask >> field & 1 == 1);
    let from = basis.and_then(|basis| basis.from).unwrap_or_default();
    let space = if has_position { space_of(r.read(5)? as u8 + 1, from) } else { Space::WORLD };
    kind.decode(mask, values, &space, r)?;
    Ok(Body { is_owner, mask, basis })
}

fn read_basis(slots: &Slots, r: &mut BitReader<'_>) -> Result<Basis, RecordError> {
    let (is_distance, is_kept, slot) = (r.read_bool()?, r.read_bool()?, r.read(1)? as u8);
    let from = is_distance.then(|| slots.get(slot).map_or([0; 3], |(_, position)| position));
    Ok(Basis { from, slot, is_kept })
}

/// The position, if it is in the mask.
pub(crate) fn position_of(kind: &Kind, mask: FieldMask, values: Values<'_>) -> Option<[i32; 3]> {
    let field = kind.position.filter(|&field| mask >> field & 1 == 1)?;
    let word = usize::from(kind.fields[field].word);
    Some(std::array::from_fn(|axis| values.words[word + axis] as i32))
}

/// Whether `position` can be written as the distance from another, which takes fewer bits than itself.
pub(crate) fn is_shorter_from(position: [i32; 3], from: [i32; 3]) -> bool {
    let bits =
        |of: &dyn Fn(usize) -> i64| (0..3).map(|axis| i32::try_from(of(axis)).map_or(33, bits_of)).max().unwrap_or(1);
    // Half of what can be counted in i32: the ends of the space are still in it.
    let is_central = from.iter().all(|axis| axis.unsigned_abs() < 1 << 30);
    let distance = bits(&|axis| i64::from(position[axis]) - i64::from(from[axis]));
    is_central && distance < 30 && distance < bits(&|axis| i64::from(position[axis]))
}

/// The most bits that a record with all fields of a kind takes.
pub(crate) fn max_bits(schema: &Schema, kind: &Kind) -> u32 {
    /// Index, form, generation, role, baseline and the position's size.
    const HEAD: u64 = 40 + 2 + 40 + 1 + 3 + 5;
    let bits = HEAD + u64::from(kind_bits(schema)) + kind.fields.len() as u64 + kind.max_bits(kind.all_mask());
    u32::try_from(bits).unwrap_or(u32::MAX)
}

/// Whether the kind looks different to its owner.
pub(crate) fn has_roles(kind: &Kind) -> bool {
    (kind.facet_mask(Facet::Owner) | kind.facet_mask(Facet::Others) | kind.skip_owner_mask()) != 0
}

/// Bits of a number in two's complement, 1 to 32. The largest number of each size but 32 is left to the next size: its
/// code says that a coordinate lies outside the space.
fn bits_of(value: i32) -> u8 {
    let magnitude = if value < 0 { !value } else { value.saturating_add(1) };
    33 - magnitude.leading_zeros().max(1) as u8
}

/// Distances of this many bits in two's complement.
fn space_of(bits: u8, from: [i32; 3]) -> Space {
    Space { origin: from.map(|axis| axis.wrapping_add((-1i64 << (bits - 1)) as i32)), bits: [bits; 3] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_takes_as_many_bits_as_its_largest_axis_needs() {
        for (value, bits) in
            [(0, 2), (-1, 1), (1, 3), (-2, 2), (126, 8), (127, 9), (-128, 8), (i32::MAX, 32), (i32::MIN, 32)]
        {
            assert_eq!(bits_of(value), bits, "{value}");
            assert!(space_of(bits, [0; 3]).contains([value; 3]), "{value}");
        }
    }
}
