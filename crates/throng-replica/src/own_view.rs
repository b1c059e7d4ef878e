//! The client's view of its own objects: the other side of `own.rs`, where the format is drawn.

use std::sync::Arc;

use throng_schema::{FieldMask, Space};
use throng_wire::{BitReader, KindId, ObjectId, Tick};

use crate::client::{ApplyError, ReplicaClient};
use crate::decode::{Scratch, SegmentError, read_id, read_number};
use crate::objects::ReplicaObject;

/// The places of a client's own objects.
#[derive(Debug, Default)]
pub(crate) struct OwnPlaces {
    places: Vec<OwnPlace>,
    /// The number of the newest record, whatever places it spoke of.
    newest: Option<(Tick, Option<u32>)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct OwnPlace {
    object: Option<u32>,
    /// The tick of the newest record that spoke of it, and the input that was acknowledged by then.
    known: Option<(Tick, Option<u32>)>,
}

impl OwnPlaces {
    /// Places that records have spoken of.
    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// The objects, by their index, with their places. An object that was given away and got back may be at two, until
    /// the record comes that empties the former.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.places.iter().enumerate().filter_map(|(place, own)| Some((place as u32, own.object?)))
    }

    /// The newest input whose effect is in the state of all own objects. With records that speak of all of them, the
    /// usual case, that is the number of the newest.
    pub(crate) fn input_acked(&self) -> Option<u32> {
        let (mut tick, mut number) = self.newest?;
        for (known, acked) in self.places.iter().filter(|place| place.object.is_some()).filter_map(|place| place.known)
        {
            if tick.is_newer_than(known) {
                (tick, number) = (known, acked);
            }
        }
        number
    }

    /// The newest input whose effect is in the state of the object at a place.
    pub(crate) fn input_acked_at(&self, place: u32) -> Option<u32> {
        self.places.get(place as usize)?.known?.1
    }

    fn is_news(&self, place: usize, tick: Tick) -> bool {
        let known = self.places.get(place).and_then(|place| place.known);
        known.is_none_or(|(known, _)| tick.is_newer_than(known))
    }
}

/// One statement of a record about a place.
enum Entry {
    Told { kind: KindId, introduced: Option<ObjectId>, mask: FieldMask },
    Gone { ended: bool },
}

impl ReplicaClient {
    /// Applies the body of a record that was written at `tick`.
    pub(crate) fn apply_own(&mut self, tick: Tick, body: &[u8]) -> Result<(), ApplyError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let applied = self.apply_own_entries(tick, &mut BitReader::new(body), &mut scratch);
        self.scratch = scratch;
        applied
    }

    fn apply_own_entries(
        &mut self,
        tick: Tick,
        r: &mut BitReader<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ApplyError> {
        let number = if r.read_bool()? { Some(r.read(32)? as u32) } else { None };
        let schema = Arc::clone(&self.schema);
        let mut next = 0;
        while r.read_bool()? {
            let passed = read_number(r, 0)? as usize;
            // The first entry counts from the record's first place, which stands at the end: it is said in full.
            let place = self.check_place(passed.saturating_add(next))?;
            next = place + 1;
            match read_entry(&schema, scratch, r)? {
                Entry::Told { kind, introduced, mask } => {
                    self.apply_own_entry(tick, place, (kind, introduced, mask), scratch)?;
                }
                Entry::Gone { ended } if self.own.is_news(place, tick) => self.end_own(tick, place, ended),
                Entry::Gone { .. } => {}
            }
        }
        let first = read_number(r, 0)? as usize;
        let count = read_number(r, 0)? as usize;
        let end = first.saturating_add(count);
        if end > 0 {
            self.check_place(end - 1)?;
        }
        self.visit(count)?;
        if self.own.places.len() < end {
            self.own.places.resize(end, OwnPlace::default());
        }
        for place in &mut self.own.places[first.min(end)..end] {
            if place.known.is_none_or(|(known, _)| tick.is_newer_than(known)) {
                place.known = Some((tick, number));
            }
        }
        if self.own.newest.is_none_or(|(newest, _)| tick.is_newer_than(newest)) {
            self.own.newest = Some((tick, number));
        }
        self.counters.own_records += 1;
        Ok(())
    }

    fn check_place(&self, place: usize) -> Result<usize, ApplyError> {
        let limit = self.options.objects;
        if place < limit { Ok(place) } else { Err(ApplyError::Limit { what: "own objects", limit }) }
    }

    fn apply_own_entry(
        &mut self,
        tick: Tick,
        place: usize,
        (kind_id, introduced, mask): (KindId, Option<ObjectId>, FieldMask),
        scratch: &Scratch,
    ) -> Result<(), ApplyError> {
        if !self.own.is_news(place, tick) {
            return Ok(());
        }
        if self.own.places.len() <= place {
            self.own.places.resize(place + 1, OwnPlace::default());
        }
        let schema = Arc::clone(&self.schema);
        let kind = schema.kind(kind_id);
        let known = match introduced {
            Some(id) => self.objects.find(id),
            None => self.own.places[place].object,
        };
        if known.is_some_and(|object| self.is_of_a_former_place(object, place, introduced.is_some(), tick)) {
            return Ok(());
        }
        let object = match introduced {
            Some(id) => {
                let object = match self.objects.find(id) {
                    Some(known) => known,
                    None => self.objects.insert(kind, kind_id, id, self.options.objects)?,
                };
                if self.own.places[place].object != Some(object) {
                    self.objects.retain(object);
                    if let Some(former) = self.own.places[place].object.replace(object) {
                        self.objects.disown(former, place as u32);
                        self.objects.release(former);
                    }
                }
                object
            }
            None => self.own.places[place].object.ok_or(ApplyError::NotIntroduced(place))?,
        };
        if self.objects.kind(object) != Some(kind_id) {
            return Err(ApplyError::KindChanged(place as u32));
        }
        self.counters.updates += 1;
        self.objects.apply_own(object, kind, place as u32, introduced.is_some(), mask, (scratch.values(), tick));
        Ok(())
    }

    /// Whether an entry is about a former place of the object: the object was given away and back, and a record from
    /// before that is late.
    fn is_of_a_former_place(&self, object: u32, place: usize, introduced: bool, tick: Tick) -> bool {
        let present = self.objects.get(object).and_then(ReplicaObject::own_place);
        let Some(present) = present.filter(|&present| present as usize != place) else { return false };
        let known = self.own.places.get(present as usize).and_then(|present| present.known);
        !introduced || known.is_some_and(|(known, _)| !tick.is_newer_than(known))
    }

    fn end_own(&mut self, tick: Tick, place: usize, ended: bool) {
        let Some(object) = self.own.places.get_mut(place).and_then(|place| place.object.take()) else { return };
        match ended {
            true => self.objects.end(object, tick),
            false => self.objects.disown(object, place as u32),
        }
        self.objects.release(object);
    }
}

fn read_entry(
    schema: &throng_schema::Schema,
    scratch: &mut Scratch,
    r: &mut BitReader<'_>,
) -> Result<Entry, ApplyError> {
    let before = r.remaining_bits();
    let form = r.read(2)?;
    if form >= 2 {
        return Ok(Entry::Gone { ended: form == 3 });
    }
    let kind_id = u16::try_from(read_number(r, 0)?).ok().map(KindId).filter(|&kind| schema.get(kind).is_some());
    let kind_id = kind_id.ok_or(ApplyError::UnknownKind)?;
    let kind = schema.kind(kind_id);
    let (introduced, mask) = match form {
        1 => (Some(read_id(r)?), kind.own_mask()),
        _ => {
            let (mut mask, mut rest) = (0, kind.own_update_mask());
            while rest != 0 {
                mask |= u64::from(r.read_bool()?) << rest.trailing_zeros();
                rest &= rest - 1;
            }
            (None, mask)
        }
    };
    let head_bits = before - r.remaining_bits();
    scratch.decode((kind_id, kind), mask, &Space::WORLD, r, head_bits).map_err(SegmentError::from)?;
    Ok(Entry::Told { kind: kind_id, introduced, mask })
}
