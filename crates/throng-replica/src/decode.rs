//! Reading segments: the other side of `encode.rs`, where the format is drawn.

use throng_schema::{DecodeError, Facet, FieldMask, Kind, Schema, Space, Values, ValuesMut};
use throng_wire::{BitReader, KindId, ObjectId, ReadError};

/// One statement of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Live slots in `first..end` that no entry of this segment names are gone.
    Range { first: u32, end: u32 },
    /// The occupant of the slot left or ended.
    Tombstone { slot: u32, destroyed: bool },
    /// Fields of the slot's occupant; the values are in the scratch. With an id, it is introduced.
    Entry { slot: u32, kind: KindId, facet: Facet, mask: FieldMask, introduced: Option<ObjectId> },
}

/// Why a segment could not be read. Always the peer's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The bytes ended early.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A field's value is not possible.
    #[error(transparent)]
    Field(#[from] DecodeError),
    /// Slot numbers are wider than the format allows.
    #[error("slot numbers of {0} bits are not possible")]
    SlotBits(u32),
    /// A run names a kind or facet that the schema does not have.
    #[error("run {0} names no kind and facet of the schema")]
    UnknownRun(u64),
    /// A complete segment's range is upside down.
    #[error("a segment lists slots {first} to {end}")]
    Range {
        /// Where it begins.
        first: u32,
        /// Where it ends.
        end: u32,
    },
    /// A complete segment names a slot outside of its range, or not in rising order.
    #[error("a complete segment names slot {0} out of order")]
    SlotOrder(u32),
    /// An entry introduces the id that no object has.
    #[error("an entry introduces no object")]
    NoObject,
    /// Bits that must be zero are not.
    #[error("reserved bits are set")]
    Reserved,
}

impl SegmentError {
    /// A stable short name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            SegmentError::Read(error) => error.tag(),
            SegmentError::Field(error) => error.tag(),
            SegmentError::SlotBits(_) => "slot_bits",
            SegmentError::UnknownRun(_) => "unknown_run",
            SegmentError::Range { .. } => "range",
            SegmentError::SlotOrder(_) => "slot_order",
            SegmentError::NoObject => "no_object",
            SegmentError::Reserved => "reserved",
        }
    }
}

/// Room for the values of one entry.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    words: Vec<u32>,
    blobs: Vec<Vec<u8>>,
}

impl Scratch {
    pub(crate) fn values(&self) -> Values<'_> {
        Values { words: &self.words, blobs: &self.blobs }
    }

    fn room(&mut self, kind: &Kind) -> ValuesMut<'_> {
        if self.words.len() < kind.words {
            self.words.resize(kind.words, 0);
        }
        if self.blobs.len() < kind.blobs {
            self.blobs.resize_with(kind.blobs, Vec::new);
        }
        ValuesMut { words: &mut self.words[..kind.words], blobs: &mut self.blobs[..kind.blobs] }
    }
}

/// Reads one segment, item by item.
pub(crate) struct SegmentReader<'a, F> {
    r: BitReader<'a>,
    schema: &'a Schema,
    space_of: F,
    slot_bits: u32,
    /// The range of a complete segment, until it has been handed out.
    range: Option<(u32, u32)>,
    /// The slots that a complete segment may still name.
    listed: Option<(u32, u32)>,
    tombstones: u32,
    run: Option<(KindId, Facet)>,
    entries: u32,
}

impl<'a, F: Fn(KindId) -> Space> SegmentReader<'a, F> {
    pub(crate) fn new(schema: &'a Schema, body: &'a [u8], space_of: F) -> Result<Self, SegmentError> {
        let mut r = BitReader::new(body);
        let slot_bits = r.read(5)? as u32;
        if slot_bits > 24 {
            return Err(SegmentError::SlotBits(slot_bits));
        }
        let complete = r.read_bool()?;
        let has_tombstones = r.read_bool()?;
        if r.read_bool()? {
            return Err(SegmentError::Reserved);
        }
        let mut range = None;
        if complete {
            let (first, end) = (r.read(24)? as u32, r.read(24)? as u32);
            if end < first {
                return Err(SegmentError::Range { first, end });
            }
            range = Some((first, end));
        }
        let tombstones = if has_tombstones { r.read(8)? as u32 + 1 } else { 0 };
        Ok(SegmentReader { r, schema, space_of, slot_bits, range, listed: range, tombstones, run: None, entries: 0 })
    }

    /// The next item; the values of an entry are put into `scratch`.
    pub(crate) fn next(&mut self, scratch: &mut Scratch) -> Result<Option<Item>, SegmentError> {
        if let Some((first, end)) = self.range.take() {
            return Ok(Some(Item::Range { first, end }));
        }
        if self.tombstones > 0 {
            self.tombstones -= 1;
            let slot = self.r.read(self.slot_bits)? as u32;
            let destroyed = self.r.read_bool()?;
            if self.tombstones == 0 {
                self.r.align();
            }
            return Ok(Some(Item::Tombstone { slot, destroyed }));
        }
        if self.entries == 0 {
            if self.r.remaining_bits() < 8 {
                return Ok(None);
            }
            self.begin_run()?;
        }
        self.entries -= 1;
        let item = self.entry(scratch)?;
        if self.entries == 0 {
            self.r.align();
        }
        Ok(Some(item))
    }

    fn begin_run(&mut self) -> Result<(), SegmentError> {
        let run = self.r.read_varint()?;
        let kind = u16::try_from(run >> 2).ok().map(KindId).filter(|&kind| self.schema.get(kind).is_some());
        let facet = Facet::ALL.get((run & 3) as usize);
        let (Some(kind), Some(&facet)) = (kind, facet) else { return Err(SegmentError::UnknownRun(run)) };
        self.entries = self.r.read(8)? as u32 + 1;
        self.run = Some((kind, facet));
        Ok(())
    }

    fn entry(&mut self, scratch: &mut Scratch) -> Result<Item, SegmentError> {
        let (kind_id, facet) = self.run.expect("an entry stands in a run");
        let kind = self.schema.kind(kind_id);
        let slot = self.r.read(self.slot_bits)? as u32;
        if let Some((first, end)) = &mut self.listed {
            if !(*first..*end).contains(&slot) {
                return Err(SegmentError::SlotOrder(slot));
            }
            *first = slot + 1;
        }
        let all = kind.facet_mask(facet);
        let mut introduced = None;
        let mask = if self.r.read_bool()? {
            let index = self.r.read_varint()?;
            let index = u32::try_from(index).map_err(|_| ReadError::VarintTooLong)?;
            let id = ObjectId { index, generation: self.r.read(16)? as u16 };
            if id.is_none() {
                return Err(SegmentError::NoObject);
            }
            introduced = Some(id);
            all
        } else {
            read_mask(all & !kind.initial_only_mask(), &mut self.r)?
        };
        let space = (self.space_of)(kind_id);
        kind.decode(mask, scratch.room(kind), &space, &mut self.r)?;
        Ok(Item::Entry { slot, kind: kind_id, facet, mask, introduced })
    }
}

fn read_mask(fields: FieldMask, r: &mut BitReader<'_>) -> Result<FieldMask, ReadError> {
    let bits = r.read(fields.count_ones())?;
    let (mut mask, mut rest, mut place) = (0, fields, 0);
    while rest != 0 {
        mask |= (bits >> place & 1) << rest.trailing_zeros();
        place += 1;
        rest &= rest - 1;
    }
    Ok(mask)
}
