//! Reading segments: the other side of `encode.rs`, where the format is drawn.

use throng_schema::{CodeCounts, CodeTable, DecodeError, Facet, FieldMask, Kind, Schema, Space, Values, ValuesMut};
use throng_wire::{BitReader, KindId, ObjectId, ReadError};

use crate::encode::{INDEX_LOW_BITS, next_cell};
use crate::log::{Fate, MOVE_BITS, MOVE_MAX_CELLS};

/// One statement of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// Live slots in `first..end` that no entry of this segment names are gone.
    Range { first: u32, end: u32 },
    /// A roster says that the slot is empty.
    Absent { slot: u32 },
    /// The occupant of the slot left or ended. With an id, it is one that the slot may not be known to have had.
    Tombstone { slot: u32, fate: Fate, id: Option<ObjectId> },
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
    /// The range of a complete segment or of a roster is upside down.
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
    /// A slot, the head of an entry or a move is written in full although it has a short form, or slots are not in order.
    #[error("something that has a short form is written in full")]
    Uncoded,
    /// An entry introduces the id that no object has.
    #[error("an entry introduces no object")]
    NoObject,
    /// Bits that must be zero are not.
    #[error("reserved bits are set")]
    Reserved,
    /// A segment says that it is of several forms at once.
    #[error("a segment is of several forms at once")]
    Forms,
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
            SegmentError::Uncoded => "uncoded",
            SegmentError::NoObject => "no_object",
            SegmentError::Reserved => "reserved",
            SegmentError::Forms => "forms",
        }
    }
}

/// The state of one kind that a client was sent: [`ReplicaClient::bits`](crate::ReplicaClient::bits).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindBits {
    /// Updates of its objects.
    pub updates: u64,
    /// Bits before the fields: slots, ids and masks.
    pub head_bits: u64,
    /// Bits of each field, by its index.
    pub field_bits: Vec<u64>,
}

/// Room for the values of one entry.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    words: Vec<u32>,
    blobs: Vec<Vec<u8>>,
    /// By kind; empty if nothing is counted.
    bits: Vec<KindBits>,
    codes: Option<CodeCounts>,
}

impl Scratch {
    pub(crate) fn new(schema: &Schema, (counts_bits, learns_codes): (bool, bool)) -> Scratch {
        let bits = |kind: &Kind| KindBits { field_bits: vec![0; kind.fields.len()], ..KindBits::default() };
        let bits = if counts_bits { schema.kinds().iter().map(bits).collect() } else { Vec::new() };
        Scratch { bits, codes: learns_codes.then(|| CodeCounts::new(schema)), ..Scratch::default() }
    }

    pub(crate) fn codes(&self) -> Option<&CodeCounts> {
        self.codes.as_ref()
    }

    pub(crate) fn bits(&self) -> &[KindBits] {
        &self.bits
    }

    pub(crate) fn values(&self) -> Values<'_> {
        Values { words: &self.words, blobs: &self.blobs }
    }

    /// Reads the fields of `mask` of an object of a kind, which came after so many bits of the same entry.
    pub(crate) fn decode(
        &mut self,
        (id, kind): (KindId, &Kind),
        mask: FieldMask,
        space: &Space,
        r: &mut BitReader<'_>,
        head_bits: usize,
    ) -> Result<(), DecodeError> {
        if self.words.len() < kind.words {
            self.words.resize(kind.words, 0);
        }
        if self.blobs.len() < kind.blobs {
            self.blobs.resize_with(kind.blobs, Vec::new);
        }
        let values = ValuesMut { words: &mut self.words[..kind.words], blobs: &mut self.blobs[..kind.blobs] };
        match self.bits.get_mut(usize::from(id.0)) {
            None => kind.decode(mask, values, space, r),
            Some(bits) => {
                bits.updates += 1;
                bits.head_bits += head_bits as u64;
                kind.decode_counted(mask, values, space, r, &mut bits.field_bits)
            }
        }
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
    /// The slots of which the roster has not spoken yet.
    roster: std::ops::Range<u32>,
    run: Option<(KindId, Facet)>,
    entries: u32,
    /// One past the slot of the entry before, in the run.
    next_slot: u32,
}

impl<'a, F: Fn(KindId, Facet) -> Space> SegmentReader<'a, F> {
    pub(crate) fn new(schema: &'a Schema, body: &'a [u8], space_of: F) -> Result<Self, SegmentError> {
        let mut r = BitReader::new(body);
        let slot_bits = r.read(5)? as u32;
        if slot_bits > 24 {
            return Err(SegmentError::SlotBits(slot_bits));
        }
        let complete = r.read_bool()?;
        let has_tombstones = r.read_bool()?;
        let has_roster = r.read_bool()?;
        if [complete, has_tombstones, has_roster].into_iter().filter(|form| *form).count() > 1 {
            return Err(SegmentError::Forms);
        }
        let (mut range, mut roster) = (None, 0..0);
        if complete || has_roster {
            let (first, end) = (r.read(24)? as u32, r.read(24)? as u32);
            if end < first {
                return Err(SegmentError::Range { first, end });
            }
            match complete {
                true => range = Some((first, end)),
                false if (end - first) as usize > r.remaining_bits() => return Err(ReadError::UnexpectedEnd.into()),
                false => roster = first..end,
            }
        }
        let tombstones = if has_tombstones { r.read(8)? as u32 + 1 } else { 0 };
        let listed = range;
        Ok(SegmentReader {
            r,
            schema,
            space_of,
            slot_bits,
            range,
            listed,
            tombstones,
            roster,
            run: None,
            entries: 0,
            next_slot: 0,
        })
    }

    /// The next item; the values of an entry are put into `scratch`.
    pub(crate) fn next(&mut self, scratch: &mut Scratch) -> Result<Option<Item>, SegmentError> {
        if let Some((first, end)) = self.range.take() {
            return Ok(Some(Item::Range { first, end }));
        }
        if self.tombstones > 0 {
            self.tombstones -= 1;
            let slot = self.r.read(self.slot_bits)? as u32;
            let fate = read_fate(&mut self.r)?;
            let id = if self.r.read_bool()? { Some(read_id(&mut self.r)?) } else { None };
            if self.tombstones == 0 {
                self.r.align();
            }
            return Ok(Some(Item::Tombstone { slot, fate, id }));
        }
        while let Some(slot) = self.roster.next() {
            let is_live = self.r.read_bool()?;
            if self.roster.is_empty() {
                self.r.align();
            }
            if !is_live {
                return Ok(Some(Item::Absent { slot }));
            }
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
        // Owner fields travel in the owner's records.
        let facet = Facet::ALL.get((run & 3) as usize).filter(|&&facet| facet != Facet::Owner);
        let (Some(kind), Some(&facet)) = (kind, facet) else { return Err(SegmentError::UnknownRun(run)) };
        self.entries = self.r.read(8)? as u32 + 1;
        self.run = Some((kind, facet));
        self.next_slot = 0;
        Ok(())
    }

    fn entry(&mut self, scratch: &mut Scratch) -> Result<Item, SegmentError> {
        let (kind_id, facet) = self.run.expect("an entry stands in a run");
        let kind = self.schema.kind(kind_id);
        let before = self.r.remaining_bits();
        let slot = self.read_slot(kind, facet)?;
        let gap = slot.wrapping_sub(std::mem::replace(&mut self.next_slot, slot + 1));
        if let Some((first, end)) = &mut self.listed {
            if !(*first..*end).contains(&slot) {
                return Err(SegmentError::SlotOrder(slot));
            }
            *first = slot + 1;
        }
        let (head, mut introduced) = (self.read_head(kind, facet)?, None);
        let mask = match head {
            Some(head) => expand_mask(kind.update_mask(facet), head),
            None => {
                introduced = Some(read_id(&mut self.r)?);
                kind.facet_mask(facet)
            }
        };
        let space = (self.space_of)(kind_id, facet);
        let head_bits = before - self.r.remaining_bits();
        scratch.decode((kind_id, kind), mask, &space, &mut self.r, head_bits)?;
        if let Some(codes) = &mut scratch.codes {
            let values = Values { words: &scratch.words[..kind.words], blobs: &scratch.blobs[..kind.blobs] };
            codes.note_fields(kind_id, mask, values, &space);
            codes.note_entry((kind_id, facet), head.unwrap_or(0), gap, self.slot_bits);
        }
        Ok(Item::Entry { slot, kind: kind_id, facet, mask, introduced })
    }
}

impl<F> SegmentReader<'_, F> {
    fn read_slot(&mut self, kind: &Kind, facet: Facet) -> Result<u32, SegmentError> {
        let Some(table) = kind.gap_codes(facet) else { return Ok(self.r.read(self.slot_bits)? as u32) };
        if let Some(gap) = table.read(&mut self.r)? {
            let slot = u64::from(self.next_slot) + u64::from(gap);
            return match slot < 1 << self.slot_bits {
                true => Ok(slot as u32),
                false => Err(SegmentError::SlotBits(self.slot_bits)),
            };
        }
        let slot = self.r.read(self.slot_bits)? as u32;
        match slot.checked_sub(self.next_slot).is_some_and(|gap| !table.is_coded(gap)) {
            true => Ok(slot),
            false => Err(SegmentError::Uncoded),
        }
    }

    /// The mask of an update, without gaps; `None` for an introduction.
    fn read_head(&mut self, kind: &Kind, facet: Facet) -> Result<Option<u64>, SegmentError> {
        let table = kind.entry_codes(facet);
        if let Some(table) = table
            && let Some(head) = table.read(&mut self.r)?
        {
            return Ok(if head == 0 { None } else { Some(head.into()) });
        }
        let head = match self.r.read_bool()? {
            true => None,
            false => Some(self.r.read(kind.update_mask(facet).count_ones())?),
        };
        // An update of no field has no code: zero introduces.
        let is_coded = |table: &CodeTable| table.is_coded(head.unwrap_or(0) as u32) && head != Some(0);
        match table.is_some_and(is_coded) {
            true => Err(SegmentError::Uncoded),
            false => Ok(head),
        }
    }
}

pub(crate) fn read_id(r: &mut BitReader<'_>) -> Result<ObjectId, SegmentError> {
    let index = read_number(r, INDEX_LOW_BITS)?;
    let id = ObjectId { index, generation: read_number(r, 0)?.wrapping_add(1) };
    if id.is_none() { Err(SegmentError::NoObject) } else { Ok(id) }
}

/// A number with so many low bits.
pub(crate) fn read_number(r: &mut BitReader<'_>, low_bits: u32) -> Result<u32, ReadError> {
    let mut further_bits = 0;
    while r.read_bool()? {
        further_bits += 1;
        if further_bits > u32::BITS {
            return Err(ReadError::VarintTooLong);
        }
    }
    let bits = further_bits + low_bits;
    let number = (1 << bits | r.read(bits)?) - (1 << low_bits);
    u32::try_from(number).map_err(|_| ReadError::VarintTooLong)
}

fn read_fate(r: &mut BitReader<'_>) -> Result<Fate, SegmentError> {
    if r.read_bool()? {
        let (axis, is_down) = (r.read(2)? as usize, r.read_bool()?);
        let mut cells = [0; 3];
        *cells.get_mut(axis).ok_or(SegmentError::Reserved)? = if is_down { -1 } else { 1 };
        return Ok(Fate::Moved(cells));
    }
    Ok(match r.read(2)? {
        0 => Fate::Left,
        1 => Fate::Destroyed,
        2 => {
            let mut axis = || Ok::<i8, ReadError>(r.read(MOVE_BITS)? as i8 - MOVE_MAX_CELLS as i8);
            let cells = [axis()?, axis()?, axis()?];
            match next_cell(cells) {
                Some(_) => return Err(SegmentError::Uncoded),
                None => Fate::Moved(cells),
            }
        }
        _ => return Err(SegmentError::Reserved),
    })
}

/// The mask whose bits for the fields of `of` are these, without gaps.
fn expand_mask(of: FieldMask, bits: u64) -> FieldMask {
    let (mut mask, mut rest, mut place) = (0, of, 0);
    while rest != 0 {
        mask |= (bits >> place & 1) << rest.trailing_zeros();
        place += 1;
        rest &= rest - 1;
    }
    mask
}
