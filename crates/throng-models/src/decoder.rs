//! The client's end of all older models.
//!
//! Packets may be lost, doubled and reordered. A field keeps the value of the newest tick; a close outranks everything
//! that was written before it.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use throng::replica::{ClientEvent, ClientOptions, DespawnReason};
use throng::schema::{FieldMask, Kind, Schema, Values, ValuesMut};
use throng::{Decoder, Facet, GridShape, ObjectId, ObjectView, Tick};
use throng_wire::{BitReader, KindId};

use crate::baseline::{Basis, Slots};
use crate::record::{Body, Head, RecordError, has_roles, position_of, read_body};

/// The end of an object is remembered for this many ticks, so that late packets cannot bring it back.
const LATE_TICKS: u32 = 1_024;

/// Events that wait to be polled; beyond, the oldest are dropped.
const EVENTS_MAX: usize = 1 << 18;

/// The state of the world at a client of an older model.
#[derive(Debug)]
pub struct RecordDecoder {
    schema: Arc<Schema>,
    limit: usize,
    /// By object index.
    places: FxHashMap<u32, Place>,
    present: usize,
    events: VecDeque<ClientEvent>,
    events_limit: usize,
    words: Vec<u32>,
    blobs: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Place {
    /// Records up to this tick belong to an object that has ended.
    closed: Option<Tick>,
    object: Option<Box<Known>>,
}

#[derive(Debug)]
struct Known {
    id: ObjectId,
    kind: KindId,
    words: Vec<u32>,
    blobs: Vec<Vec<u8>>,
    /// When each field was last sent.
    ticks: Vec<Option<Tick>>,
    is_owner: bool,
    newest: Tick,
    /// Fields that changed since the last event of it was polled.
    changed: FieldMask,
    slots: Slots,
}

impl RecordDecoder {
    fn read(&mut self, tick: Tick, bytes: &[u8]) -> Result<(), RecordError> {
        let schema = Arc::clone(&self.schema);
        let mut r = BitReader::new(bytes);
        while let Some(head) = Head::read(&schema, &mut r)? {
            match head {
                Head::Close { index } => self.close(index, tick)?,
                Head::Opening { index, generation, kind } => {
                    let Body { is_owner, mask, .. } = self.read_fields(schema.kind(kind), None, &mut r)?;
                    if self.open(&schema, ObjectId { index, generation }, kind, tick)? {
                        self.take(&schema, index, is_owner, mask, tick);
                    }
                }
                Head::Update { index, kind } | Head::Based { index, kind } => {
                    let object = self.places.get(&index).and_then(|place| place.object.as_ref());
                    let slots = object.map_or(Slots::default(), |object| object.slots);
                    let slots = matches!(head, Head::Based { .. }).then_some(slots);
                    let Body { is_owner, mask, basis } = self.read_fields(schema.kind(kind), slots, &mut r)?;
                    let place = self.places.get(&index).ok_or(RecordError::NotOpen(index))?;
                    match &place.object {
                        _ if place.is_over(tick) => {}
                        Some(object) if object.kind == kind => {
                            let mask = self.settle(&schema, index, (mask, basis), tick)?;
                            self.take(&schema, index, is_owner, mask, tick);
                        }
                        _ => return Err(RecordError::NotOpen(index)),
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads fields to `words` and `blobs`.
    fn read_fields(&mut self, kind: &Kind, slots: Option<Slots>, r: &mut BitReader<'_>) -> Result<Body, RecordError> {
        if self.words.len() < kind.words {
            self.words.resize(kind.words, 0);
        }
        if self.blobs.len() < kind.blobs {
            self.blobs.resize_with(kind.blobs, Vec::new);
        }
        let values = ValuesMut { words: &mut self.words[..kind.words], blobs: &mut self.blobs[..kind.blobs] };
        read_body(kind, values, slots, r)
    }

    /// Keeps a position that was read, if it is to be kept. Returns the fields that can be trusted: not a distance from what
    /// the slot held before something newer.
    fn settle(
        &mut self,
        schema: &Schema,
        index: u32,
        (mask, basis): (FieldMask, Option<Basis>),
        tick: Tick,
    ) -> Result<FieldMask, RecordError> {
        let Some(basis) = basis else { return Ok(mask) };
        let Some(object) = self.places.get_mut(&index).and_then(|place| place.object.as_mut()) else { return Ok(mask) };
        let kind = schema.kind(object.kind);
        let values = Values { words: &self.words[..kind.words], blobs: &self.blobs[..kind.blobs] };
        let Some(position) = position_of(kind, mask, values) else { return Ok(mask) };
        if basis.from.is_some() {
            let (filled, _) = object.slots.get(basis.slot).ok_or(RecordError::Unknown("a baseline"))?;
            if !tick.is_newer_than(filled) {
                return Ok(mask & !kind.position.map_or(0, |field| 1 << field));
            }
        }
        if basis.is_kept {
            object.slots.keep(basis.kept_slot(), tick, position);
        }
        Ok(mask)
    }

    /// Makes the object, if it is not there. False if it has ended since.
    fn open(&mut self, schema: &Schema, id: ObjectId, kind: KindId, tick: Tick) -> Result<bool, RecordError> {
        let place = self.place(id.index, tick)?;
        if place.is_over(tick) {
            return Ok(false);
        }
        if let Some(object) = &place.object {
            return if object.id == id && object.kind == kind { Ok(true) } else { Err(RecordError::NotOpen(id.index)) };
        }
        let (words, blobs) = schema.kind(kind).empty_values();
        let ticks = vec![None; schema.kind(kind).fields.len()];
        place.object = Some(Box::new(Known {
            id,
            kind,
            words,
            blobs,
            ticks,
            is_owner: false,
            newest: tick,
            changed: 0,
            slots: Slots::default(),
        }));
        self.present += 1;
        self.push_event(ClientEvent::Spawned(id));
        Ok(true)
    }

    fn close(&mut self, index: u32, tick: Tick) -> Result<(), RecordError> {
        let place = self.place(index, tick)?;
        if place.is_over(tick) {
            return Ok(());
        }
        place.closed = Some(tick);
        if let Some(object) = place.object.take() {
            self.present -= 1;
            // These models do not say whether it has ended.
            self.push_event(ClientEvent::Despawned { id: object.id, reason: DespawnReason::OutOfSight });
        }
        Ok(())
    }

    /// Takes over what was read, as far as it is newer than what is known.
    fn take(&mut self, schema: &Schema, index: u32, is_owner: bool, mask: FieldMask, tick: Tick) {
        let Some(object) = self.places.get_mut(&index).and_then(|place| place.object.as_mut()) else { return };
        let kind = schema.kind(object.kind);
        if tick == object.newest || tick.is_newer_than(object.newest) {
            object.newest = tick;
            object.is_owner = is_owner;
        }
        let mut newer = 0;
        for (field, _) in kind.fields_of(mask) {
            if object.ticks[field].is_none_or(|known| tick.is_newer_than(known)) {
                object.ticks[field] = Some(tick);
                newer |= 1 << field;
            }
        }
        let from = Values { words: &self.words[..kind.words], blobs: &self.blobs[..kind.blobs] };
        let to = ValuesMut { words: &mut object.words, blobs: &mut object.blobs };
        let told = if kind.notify_mask() == 0 { FieldMask::MAX } else { kind.notify_mask() };
        let changed = kind.compare(to.as_values(), from) & newer & told;
        kind.copy(newer, from, to);
        let (is_noted, id) = (object.changed != 0, object.id);
        object.changed |= changed;
        if changed != 0 && !is_noted {
            self.push_event(ClientEvent::Changed { id, fields: 0 });
        }
    }

    /// The entry of an index, made if there is none and the limit allows.
    fn place(&mut self, index: u32, now: Tick) -> Result<&mut Place, RecordError> {
        if !self.places.contains_key(&index) && self.places.len() >= self.limit {
            let is_needed = |place: &Place| {
                place.object.is_some() || place.closed.is_some_and(|closed| now.since(closed) <= LATE_TICKS)
            };
            self.places.retain(|_, place| is_needed(place));
            if self.places.len() >= self.limit {
                return Err(RecordError::Limit(self.limit));
            }
        }
        Ok(self.places.entry(index).or_default())
    }

    fn push_event(&mut self, event: ClientEvent) {
        if self.events.len() == self.events_limit
            && let Some(ClientEvent::Changed { id, .. }) = self.events.pop_front()
            && let Some(object) = self.known_mut(id)
        {
            // The next change is sent again.
            object.changed = 0;
        }
        self.events.push_back(event);
    }

    fn known_mut(&mut self, id: ObjectId) -> Option<&mut Known> {
        self.places.get_mut(&id.index)?.object.as_deref_mut().filter(|object| object.id == id)
    }
}

impl Place {
    /// Whether what was written at `tick` is of an object that has ended.
    fn is_over(&self, tick: Tick) -> bool {
        self.closed.is_some_and(|closed| !tick.is_newer_than(closed))
    }
}

impl Known {
    fn view(&self, schema: &Schema) -> ObjectView<'_> {
        let has_roles = has_roles(schema.kind(self.kind));
        let mut facets = [true, false, false, false];
        facets[Facet::Owner.index()] = has_roles && self.is_owner;
        facets[Facet::Others.index()] = has_roles && !self.is_owner;
        let known_fields =
            self.ticks.iter().enumerate().fold(0, |mask, (field, tick)| mask | u64::from(tick.is_some()) << field);
        ObjectView {
            id: self.id,
            kind: self.kind,
            values: Values { words: &self.words, blobs: &self.blobs },
            known_fields,
            facets,
            is_awaited: false,
            newest_tick: self.newest,
            reckoned: None,
        }
    }
}

impl Decoder for RecordDecoder {
    fn open(schema: &Arc<Schema>, _: &[GridShape], options: ClientOptions) -> Result<Self, String> {
        Ok(RecordDecoder {
            schema: Arc::clone(schema),
            limit: options.objects,
            places: FxHashMap::default(),
            present: 0,
            events: VecDeque::new(),
            events_limit: EVENTS_MAX,
            words: Vec::new(),
            blobs: Vec::new(),
        })
    }

    fn apply(&mut self, tick: Tick, bytes: &[u8]) -> Result<(), String> {
        self.read(tick, bytes).map_err(|error| error.to_string())
    }

    fn poll_event(&mut self) -> Option<ClientEvent> {
        loop {
            let event = self.events.pop_front()?;
            let ClientEvent::Changed { id, .. } = event else { return Some(event) };
            let fields = self.known_mut(id).map_or(0, |object| std::mem::take(&mut object.changed));
            if fields != 0 {
                return Some(ClientEvent::Changed { id, fields });
            }
        }
    }

    fn view(&self, id: ObjectId) -> Option<ObjectView<'_>> {
        let object = self.places.get(&id.index)?.object.as_ref()?;
        (object.id == id).then(|| object.view(&self.schema))
    }

    fn views(&self) -> impl Iterator<Item = ObjectView<'_>> {
        let objects = self.places.values().filter_map(|place| place.object.as_ref());
        objects.map(|object| object.view(&self.schema))
    }

    fn count(&self) -> usize {
        self.present
    }
}
