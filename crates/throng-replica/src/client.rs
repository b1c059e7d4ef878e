//! The client half: applies segments in whatever order they come, and ends with what the server holds.
//!
//! Frames may be lost, doubled and reordered. These rules make that harmless:
//!
//! 1. a field keeps the value of the newest tick;
//! 2. a facet's home is the slot of the newest introduction, also after it has left it again;
//! 3. a tombstone, or a roster in which the slot is empty, overrides older segments about the slot;
//! 4. a segment older than the channel's newest complete segment introduces nothing;
//! 5. a subscription number has a tick of opening: pieces from before it are of a former use, and ignored;
//! 6. an update for a slot that is not introduced yet is kept until it is;
//! 7. what the client owns it knows from its own records alone, of which the newest says everything. The first of them
//!    may be some ticks older than the state that the channel has told: state and input number belong together;
//! 8. an object that has ended never comes back, whatever late packets say;
//! 9. a reckoned position goes on from the tick of its statement with the velocity, to the newest tick of any packet. For its
//!    owner it does not; when the object has another owner, position and velocity are those that its channel has told.
//!
//! An object that moves to a neighbouring cell which the client is sent as well stays in sight until that cell's next
//! turn, for at most [`ClientOptions::limbo_ticks`]: the cell may be one that is sent more seldom.

use std::collections::HashMap;
use std::sync::Arc;

use thiserror::Error;
use throng_schema::{CodeCounts, Facet, FieldMask, Schema, Space, Values, ValuesMut};
use throng_wire::{BitReader, KindId, ObjectId, ReadError, Tick};

use crate::decode::{Item, KindBits, Scratch, SegmentError, SegmentReader};
use crate::grid::{CellGrid, GridError, GridShape};
use crate::key::{ChannelName, KeyError, decode_cell, narrow};
use crate::log::Fate;
use crate::objects::{Departure, HomeView, Objects, Reckoned, ReplicaObject};
use crate::own::RECORD;
use crate::own_view::OwnPlaces;
use crate::replicator::TICK_INTERVAL_US;
use crate::shared_view::{ReadMiddle, SHARED, SHARED_END};

/// How often packets may make a client add or pass over as many slots as it may hold, before others have paid for it.
const VISITS_PER_SLOT: usize = 4;

/// A packet pays for so many. An honest server passes over each slot of a channel once or twice, while it sends the channel.
const VISITS_PER_PACKET: usize = 4_096;

/// Bounds and times of a client.
///
/// ```
/// # use throng_replica::ClientOptions;
/// let defaults = ClientOptions::default();
/// assert_eq!((defaults.objects, defaults.slots), (1 << 17, 1 << 19));
/// assert_eq!(defaults.limbo_ticks, None);
/// assert_eq!(defaults.tick_interval_us, 33_333);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Objects at once.
    pub objects: usize,
    /// Slots of all channels together.
    pub slots: usize,
    /// How long an object that has moved to a neighbouring cell stays in sight while that cell says nothing. `None`: as
    /// long as the server's slowest ring takes, and [`LIMBO_SLACK_TICKS`] more.
    pub limbo_ticks: Option<u32>,
    /// Whether [`ReplicaClient::bits`] counts. Costs some nanoseconds for each field.
    pub counts_bits: bool,
    /// Counts the values that it is sent, to learn code tables from them: see [`ReplicaClient::code_counts`]. Costs time
    /// and memory.
    pub learns_codes: bool,
    /// Microseconds from one tick of the server to the next: positions with `predict` are reckoned by it. A `throng` client
    /// takes what its server says.
    pub tick_interval_us: u32,
}

/// Ticks by which a cell may be late before an object that has moved there is taken to be out of sight.
pub const LIMBO_SLACK_TICKS: u32 = 30;

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            objects: 1 << 17,
            slots: 1 << 19,
            limbo_ticks: None,
            counts_bits: false,
            learns_codes: false,
            tick_interval_us: TICK_INTERVAL_US,
        }
    }
}

/// The changes of an object since the last poll of events.
///
/// Of one object: `Spawned` first, then `Owned`, `Changed` and `Disowned` as it goes, `Despawned` last, and after it
/// perhaps `Spawned` again if it was out of sight only. Events of different objects come in the order in which there
/// was first something to tell of each. Objects that come and go between two polls cause no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// It is in sight, with all fields that this client may know.
    Spawned(ObjectId),
    /// It belongs to this client from now on, and has the state of the client's own record. If packets overtake each
    /// other, the first such state may be some ticks older than the state before.
    Owned(ObjectId),
    /// It is still in sight, and belongs to this client no longer: the fields for its owner are forgotten.
    Disowned(ObjectId),
    /// Fields have new values, or are no longer known: those marked `notify`, or any if the kind marks none.
    Changed {
        /// The object.
        id: ObjectId,
        /// The fields, since the last such event.
        fields: FieldMask,
    },
    /// It is gone, and no longer this client's if it was.
    Despawned {
        /// The object.
        id: ObjectId,
        /// Why.
        reason: DespawnReason,
    },
}

/// Why an object is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DespawnReason {
    /// The server has ended it. It never comes back.
    Destroyed,
    /// It went to a channel that this client does not receive, or receives so seldom that the next update is later than
    /// the slowest ring's interval allows. It may come back, and may have ended unseen.
    OutOfSight,
}

/// Why a packet could not be applied. The connection should be closed: what it said is lost.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// A piece's frame is broken: peer malformed.
    #[error("a piece of the packet is malformed: {0}")]
    Piece(#[from] ReadError),
    /// A channel's name is broken: peer malformed.
    #[error("a channel name is malformed: {0}")]
    Name(#[from] KeyError),
    /// A segment is broken: peer malformed.
    #[error("a segment is malformed: {0}")]
    Segment(#[from] SegmentError),
    /// A channel lies in a grid that was not agreed on: peer misbehaved.
    #[error("grid {0} is not known")]
    UnknownGrid(u8),
    /// A piece names subscription 0, which does not exist: peer malformed.
    #[error("a piece of the packet names subscription 0: the first is number 1")]
    NoSubscription,
    /// A piece says that it or its subscription is older than the first tick, or than a server can say: peer malformed.
    #[error("an age of {0} ticks is not possible")]
    Age(u64),
    /// Shared pieces name an offset that does not exist, or no middle: peer malformed.
    #[error("{0} is no offset from the middle of shared pieces")]
    Offset(u8),
    /// A record of own objects names a kind that does not exist: peer malformed.
    #[error("a record of own objects names no kind of the schema")]
    UnknownKind,
    /// A record changes an own object that was never introduced: peer misbehaved.
    #[error("own object {0} was never introduced")]
    NotIntroduced(usize),
    /// One slot was said to be of two kinds: peer misbehaved.
    #[error("slot {0} changes its kind")]
    KindChanged(u32),
    /// There is more than this client is willing to hold.
    #[error("the server sends more {what} than the limit of {limit}")]
    Limit {
        /// The kind of things.
        what: &'static str,
        /// The bound reached.
        limit: usize,
    },
}

impl ApplyError {
    /// A stable short name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            ApplyError::Piece(_) => "piece",
            ApplyError::Name(_) => "name",
            ApplyError::Segment(_) => "segment",
            ApplyError::UnknownGrid(_) => "unknown_grid",
            ApplyError::NoSubscription => "no_subscription",
            ApplyError::Age(_) => "age",
            ApplyError::Offset(_) => "offset",
            ApplyError::UnknownKind => "unknown_kind",
            ApplyError::NotIntroduced(_) => "not_introduced",
            ApplyError::KindChanged(_) => "kind_changed",
            ApplyError::Limit { .. } => "limit",
        }
    }
}

/// The state of the world at one client.
#[derive(Debug)]
pub struct ReplicaClient {
    pub(crate) schema: Arc<Schema>,
    grids: Vec<CellGrid>,
    pub(crate) options: ClientOptions,
    limbo_ticks: u32,
    /// By subscription number.
    readers: Vec<ReaderSlot>,
    /// The subscription that sends each channel.
    by_name: HashMap<ChannelName, u16>,
    pub(crate) objects: Objects,
    pub(crate) own: OwnPlaces,
    pub(crate) scratch: Scratch,
    slots_used: usize,
    /// Slots that packets may add or pass over.
    visits_left: usize,
    newest_tick: Option<Tick>,
    pub(crate) counters: ReplicaCounters,
}

/// The state that a client has applied so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaCounters {
    /// Segments applied.
    pub segments: u64,
    /// Segments of former uses of a subscription number, and shared ones of channels that the client does not have,
    /// ignored.
    pub stale_segments: u64,
    /// Object updates applied, introductions included.
    pub updates: u64,
    /// Records of own objects applied.
    pub own_records: u64,
    /// Bytes of replication read, those of refused packets included.
    pub bytes: u64,
}

/// How much a client holds at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientOccupancy {
    /// Objects, those included that are not in sight yet, and those that have gone or ended within the last
    /// [`ClientOptions::limbo_ticks`]; at most [`ClientOptions::objects`].
    pub objects: usize,
    /// Slots of all channels together; at most [`ClientOptions::slots`].
    pub slots: usize,
    /// Own objects, those included that have ended and whose owner was not told yet; each is one of `objects`.
    pub own_places: usize,
    /// Objects of which there is something to tell; at most about four times [`ClientOptions::objects`].
    pub events: usize,
    /// Length of the queue of objects that wait for a cell's turn, have ended or have gone; at most about four times the
    /// objects.
    pub waits: usize,
}

/// The uses of one subscription number: the present one, and when the last one ended.
#[derive(Debug, Default)]
struct ReaderSlot {
    reader: Option<Reader>,
    /// Pieces up to this tick belong to a use that has ended, even if they come late and carry a name.
    closed: Option<Tick>,
}

/// One subscription as the client sees it.
#[derive(Debug)]
struct Reader {
    name: ChannelName,
    opened: Tick,
    complete: Option<Tick>,
    slots: Vec<SlotView>,
    /// Slots with an object.
    occupied: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct SlotView {
    /// Tick of the introduction that is in force.
    introduced: Option<Tick>,
    /// Tick of the newest tombstone.
    gone: Option<Tick>,
    facet: usize,
    /// The object, perhaps still without an id.
    object: Option<u32>,
}

/// The part of a piece that stands before its body.
struct PieceHead {
    number: u16,
    tick: Tick,
    name: Option<(ChannelName, Tick)>,
    length: usize,
}

impl ReplicaClient {
    /// A client that knows nothing yet. `grids` must be those of the server, in the same order.
    pub fn new(schema: Arc<Schema>, grids: &[GridShape], options: ClientOptions) -> Result<ReplicaClient, GridError> {
        let grids = grids.iter().map(|&shape| CellGrid::new(shape, &schema)).collect::<Result<_, _>>()?;
        Ok(ReplicaClient {
            grids,
            options,
            limbo_ticks: options.limbo_ticks.unwrap_or(LIMBO_SLACK_TICKS),
            readers: Vec::new(),
            by_name: HashMap::new(),
            objects: Objects::new(Arc::clone(&schema)),
            scratch: Scratch::new(&schema, (options.counts_bits, options.learns_codes)),
            own: OwnPlaces::default(),
            schema,
            slots_used: 0,
            visits_left: options.slots.saturating_mul(VISITS_PER_SLOT),
            newest_tick: None,
            counters: ReplicaCounters::default(),
        })
    }

    /// The grids of the server, by number.
    pub fn grids(&self) -> impl ExactSizeIterator<Item = GridShape> + '_ {
        self.grids.iter().map(CellGrid::shape)
    }

    /// Applies the replication part of a packet that the server wrote at `tick`.
    pub fn apply(&mut self, tick: Tick, bytes: &[u8]) -> Result<(), ApplyError> {
        self.counters.bytes += bytes.len() as u64;
        self.pay_for_visits();
        let mut r = BitReader::new(bytes);
        while r.remaining_bits() > 0 && r.rest()[0] != 0 {
            if r.rest()[0] == RECORD {
                r = BitReader::new(&r.rest()[1..]);
                let length = usize::try_from(r.read_varint()?).unwrap_or(usize::MAX);
                let body = r.rest().get(..length).ok_or(ReadError::UnexpectedEnd)?;
                r = BitReader::new(&r.rest()[length..]);
                self.apply_own(tick, body)?;
                continue;
            }
            if r.rest()[0] == SHARED {
                r = self.apply_shared(tick, &r.rest()[1..])?;
                continue;
            }
            let head = read_head(&mut r, tick)?;
            let body = r.rest().get(..head.length).ok_or(ReadError::UnexpectedEnd)?;
            r = BitReader::new(&r.rest()[head.length..]);
            self.apply_piece(&head, body)?;
        }
        if self.newest_tick.is_none_or(|newest| tick.is_newer_than(newest)) {
            self.newest_tick = Some(tick);
            self.objects.end_waits(tick, self.limbo_ticks);
        }
        Ok(())
    }

    /// The object of that id, if it is in sight.
    pub fn object(&self, id: ObjectId) -> Option<&ReplicaObject> {
        self.objects.find(id).and_then(|index| self.objects.get(index)).filter(|object| object.is_in_sight())
    }

    /// All objects that are in sight.
    pub fn objects(&self) -> impl Iterator<Item = &ReplicaObject> {
        self.objects.iter().filter(|object| object.is_in_sight())
    }

    /// Where an object is, by the position and velocity that the client was told last. `None` if its values say it: the
    /// kind's position has no `predict`, or the object is the client's own.
    pub fn reckoned<'a>(&'a self, object: &'a ReplicaObject) -> Option<Reckoned<'a>> {
        let reckoning = self.schema.kind(object.kind()).reckoning.as_ref()?;
        object.reckoned(reckoning, self.newest_tick?, self.options.tick_interval_us)
    }

    /// Number of objects that are in sight.
    pub fn object_count(&self) -> usize {
        self.objects.in_sight_count()
    }

    /// The objects that belong to this client. All of them are in sight.
    pub fn owned(&self) -> impl Iterator<Item = &ReplicaObject> {
        let objects = self.own.objects().map(|(place, index)| (place, self.objects.get(index)));
        objects.filter_map(|(place, object)| object.filter(|object| object.own_place() == Some(place)))
    }

    /// The newest input that the server had acknowledged in the tick whose state of the own objects is held: the two
    /// change together. If there are more own objects than fit into a packet, that of the object with the oldest
    /// record.
    pub fn input_acked(&self) -> Option<u32> {
        self.own.input_acked()
    }

    /// The newest input that the server had acknowledged in the tick whose state of this object is held. `None` if there
    /// was none, or the object is not this client's.
    pub fn input_acked_by(&self, id: ObjectId) -> Option<u32> {
        self.own.input_acked_at(self.object(id)?.own_place()?)
    }

    /// Replaces the `skip_owner` fields of an object of this client by what the client has predicted: the server does
    /// not tell it. `write` is given room for all fields. False, without effect, if the object is not its own.
    pub fn predict(&mut self, id: ObjectId, write: impl FnOnce(ValuesMut<'_>)) -> bool {
        let Some(index) = self.objects.find(id) else { return false };
        let schema = Arc::clone(&self.schema);
        self.objects.kind(index).is_some_and(|kind| self.objects.predict(index, schema.kind(kind), write))
    }

    /// The next event. Poll until `None` after each batch of packets.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.objects.poll_event()
    }

    /// The newest tick of any received packet.
    pub fn newest_tick(&self) -> Option<Tick> {
        self.newest_tick
    }

    /// How much is held.
    pub fn occupancy(&self) -> ClientOccupancy {
        ClientOccupancy {
            objects: self.objects.held_count(),
            slots: self.slots_used,
            own_places: self.own.objects().count(),
            events: self.objects.waiting_events(),
            waits: self.objects.wait_count(),
        }
    }

    /// The channels subscribed to, as far as the client knows.
    pub fn channels(&self) -> impl Iterator<Item = ChannelName> + '_ {
        self.readers.iter().filter_map(|slot| Some(slot.reader.as_ref()?.name))
    }

    /// Counters of applied data.
    pub fn counters(&self) -> ReplicaCounters {
        self.counters
    }

    /// The length of all state that was read, by kind and field: an element for each kind of the schema, in its order. Empty
    /// without [`ClientOptions::counts_bits`].
    pub fn bits(&self) -> &[KindBits] {
        self.scratch.bits()
    }

    /// The values that it has been sent in channels, to learn code tables from them; `None` without
    /// [`ClientOptions::learns_codes`].
    pub fn code_counts(&self) -> Option<&CodeCounts> {
        self.scratch.codes()
    }

    /// The schema of all objects.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Applies shared pieces (`shared_view.rs`), and returns what stands behind them.
    fn apply_shared<'b>(&mut self, tick: Tick, bytes: &'b [u8]) -> Result<BitReader<'b>, ApplyError> {
        let mut r = BitReader::new(bytes);
        let grid_and_plane = r.read_varint()?;
        let (grid, plane) = (narrow(grid_and_plane >> 2)?, (grid_and_plane & 3) as u8);
        let middle = ReadMiddle { grid, cell: decode_cell(&mut r)?, plane };
        while r.remaining_bits() > 0 {
            let offset = r.read(8)? as u8;
            if offset == SHARED_END {
                break;
            }
            let name = match ReadMiddle::is_named(offset) {
                true => ChannelName::decode(&mut r)?,
                false => middle.name_at(offset).ok_or(ApplyError::Offset(offset))?,
            };
            let length = usize::try_from(r.read_varint()?).unwrap_or(usize::MAX);
            let body = r.rest().get(..length).ok_or(ReadError::UnexpectedEnd)?;
            r = BitReader::new(&r.rest()[length..]);
            match self.by_name.get(&name).copied() {
                Some(number) if length > 0 => {
                    self.apply_piece(&PieceHead { number, tick, name: None, length }, body)?;
                }
                // A channel that the client does not have, or not yet: it is sent it by itself.
                _ => self.counters.stale_segments += 1,
            }
        }
        Ok(BitReader::new(r.rest()))
    }

    fn apply_piece(&mut self, head: &PieceHead, body: &[u8]) -> Result<(), ApplyError> {
        let index = usize::from(head.number);
        if self.readers.len() <= index {
            self.readers.resize_with(index + 1, ReaderSlot::default);
        }
        if head.length == 0 {
            self.close(head.number, head.tick);
            return Ok(());
        }
        if let Some((name, opened)) = head.name {
            self.open(head, name, opened)?;
        }
        let Some(mut reader) = self.readers[index].reader.take_if(|reader| !reader.opened.is_newer_than(head.tick))
        else {
            // Late mail for a use of the number that has ended.
            self.counters.stale_segments += 1;
            return Ok(());
        };
        let applied = self.apply_segment(&mut reader, head, body);
        self.readers[index].reader = Some(reader);
        applied
    }

    fn open(&mut self, head: &PieceHead, name: ChannelName, opened: Tick) -> Result<(), ApplyError> {
        if let ChannelName::Cell { grid, .. } = name
            && usize::from(grid) >= self.grids.len()
        {
            return Err(ApplyError::UnknownGrid(grid));
        }
        let slot = &self.readers[usize::from(head.number)];
        let known = slot.reader.as_ref().is_some_and(|present| !opened.is_newer_than(present.opened));
        let ended = slot.closed.is_some_and(|closed| !opened.is_newer_than(closed));
        if known || ended {
            return Ok(());
        }
        self.end_reader(head.number, opened);
        // The first packet of an older subscription may come after that of a newer one.
        let holder = self.by_name.get(&name).and_then(|&holder| self.readers[usize::from(holder)].reader.as_ref());
        if holder.is_none_or(|holder| !holder.opened.is_newer_than(opened)) {
            self.by_name.insert(name, head.number);
        }
        self.readers[usize::from(head.number)].reader =
            Some(Reader { name, opened, complete: None, slots: Vec::new(), occupied: 0 });
        Ok(())
    }

    fn close(&mut self, number: u16, tick: Tick) {
        let slot = &mut self.readers[usize::from(number)];
        if slot.closed.is_none_or(|closed| tick.is_newer_than(closed)) {
            slot.closed = Some(tick);
        }
        if slot.reader.as_ref().is_some_and(|reader| !reader.opened.is_newer_than(tick)) {
            self.end_reader(number, tick);
        }
    }

    /// Forgets a subscription. Objects that lived there and nowhere else are out of sight. Its slots and waits were
    /// counted when they came, so the work is paid for.
    fn end_reader(&mut self, number: u16, tick: Tick) {
        let Some(reader) = self.readers[usize::from(number)].reader.take() else { return };
        if self.by_name.get(&reader.name) == Some(&number) {
            self.by_name.remove(&reader.name);
        }
        self.slots_used -= reader.slots.len();
        for (slot, view) in reader.slots.iter().enumerate() {
            if let Some(object) = view.object {
                let home = HomeView { subscription: number, slot: slot as u32, tick };
                self.objects.leave(object, view.facet, home, Departure::Away);
                self.objects.release(object);
            }
        }
        self.objects.end_waits_for(number);
    }

    fn apply_segment(&mut self, reader: &mut Reader, head: &PieceHead, body: &[u8]) -> Result<(), ApplyError> {
        let schema = Arc::clone(&self.schema);
        let mut scratch = std::mem::take(&mut self.scratch);
        let cell = match reader.name {
            ChannelName::Cell { grid, cell } => Some((grid, cell)),
            _ => None,
        };
        let grids = std::mem::take(&mut self.grids);
        let space_of = |kind: KindId, facet: Facet| match cell {
            Some((grid, cell)) => grids[usize::from(grid)].space(usize::from(kind.0), facet, cell),
            None => Space::WORLD,
        };
        let result = self.apply_items(reader, head, SegmentReader::new(&schema, body, space_of), &mut scratch);
        self.scratch = scratch;
        self.grids = grids;
        self.counters.segments += 1;
        result
    }

    fn apply_items<F: Fn(KindId, Facet) -> Space>(
        &mut self,
        reader: &mut Reader,
        head: &PieceHead,
        items: Result<SegmentReader<'_, F>, SegmentError>,
        scratch: &mut Scratch,
    ) -> Result<(), ApplyError> {
        let mut items = items?;
        let mut range = None;
        while let Some(item) = items.next(scratch)? {
            match item {
                Item::Range { first, end } => {
                    range = Some((first, end));
                    if reader.complete.is_none_or(|newest| head.tick.is_newer_than(newest)) {
                        reader.complete = Some(head.tick);
                    }
                }
                Item::Absent { slot } => self.bury(reader, head, slot, Fate::Left, None)?,
                Item::Tombstone { slot, fate, id } => self.bury(reader, head, slot, fate, id)?,
                Item::Entry { .. } => {
                    if let (Some((first, end)), Item::Entry { slot, .. }) = (&mut range, item) {
                        self.bury_unlisted(reader, head, *first, slot.min(*end))?;
                        *first = slot.saturating_add(1);
                    }
                    self.apply_entry(reader, head, item, scratch.values())?;
                }
            }
        }
        if let Some((first, end)) = range {
            self.bury_unlisted(reader, head, first, end)?;
        }
        Ok(())
    }

    /// A complete segment covered these slots: objects that it does not list are gone.
    fn bury_unlisted(&mut self, reader: &mut Reader, head: &PieceHead, first: u32, end: u32) -> Result<(), ApplyError> {
        if reader.occupied == 0 {
            return Ok(());
        }
        let slots = first as usize..(end as usize).min(reader.slots.len());
        self.visit(slots.len())?;
        for slot in slots {
            if reader.slots[slot].object.is_some() {
                self.bury_at(reader, head, slot as u32, Departure::Away);
            }
        }
        Ok(())
    }

    fn bury(
        &mut self,
        reader: &mut Reader,
        head: &PieceHead,
        slot: u32,
        fate: Fate,
        id: Option<ObjectId>,
    ) -> Result<(), ApplyError> {
        self.slot_view(reader, slot)?;
        let departure = match fate {
            Fate::Left => Departure::Away,
            Fate::Destroyed => Departure::Ended,
            Fate::Moved(cells) => self.destination(reader.name, cells),
        };
        // A slot may have had several occupants while this client was away. The last one's fate is not that of the one
        // that the client knows: of that, it only follows that it is no longer here.
        let known = reader.slots[slot as usize].object.map(|object| self.objects.id(object));
        let is_another = id.is_some() && known != id;
        self.bury_at(reader, head, slot, if is_another { Departure::Away } else { departure });
        if let Some(index) = id.and_then(|id| self.objects.find(id)) {
            self.objects.pass_on(index, head.number, head.tick, departure);
        }
        Ok(())
    }

    /// The effect on this client when an object has moved this many cells away from this channel's cell.
    fn destination(&self, from: ChannelName, cells: [i8; 3]) -> Departure {
        let ChannelName::Cell { grid, cell } = from else { return Departure::Away };
        let cell = std::array::from_fn(|axis| cell[axis].wrapping_add(cells[axis].into()));
        self.by_name.get(&ChannelName::Cell { grid, cell }).map_or(Departure::Away, |&number| Departure::To(number))
    }

    fn bury_at(&mut self, reader: &mut Reader, head: &PieceHead, slot: u32, departure: Departure) {
        let view = &mut reader.slots[slot as usize];
        if view.gone.is_none_or(|gone| head.tick.is_newer_than(gone)) {
            view.gone = Some(head.tick);
        }
        let Some(object) = view.object else { return };
        let stands_since = view.introduced.unwrap_or(self.objects.newest(object));
        if stands_since.is_newer_than(head.tick) {
            return;
        }
        let facet = view.facet;
        view.object = None;
        view.introduced = None;
        reader.occupied -= 1;
        let home = HomeView { subscription: head.number, slot, tick: head.tick };
        self.objects.leave(object, facet, home, departure);
        self.objects.release(object);
    }

    fn apply_entry(
        &mut self,
        reader: &mut Reader,
        head: &PieceHead,
        item: Item,
        values: Values<'_>,
    ) -> Result<(), ApplyError> {
        let Item::Entry { slot, kind, facet, mask, introduced } = item else { return Ok(()) };
        let view = *self.slot_view(reader, slot)?;
        // An update older than the occupant's introduction is about the previous occupant, or holds nothing new.
        let is_before = |tick: Tick| tick.is_newer_than(head.tick);
        let overtaken = view.gone.is_some_and(|gone| !head.tick.is_newer_than(gone))
            || (view.object.is_none() && reader.complete.is_some_and(is_before))
            || (introduced.is_none() && view.introduced.is_some_and(is_before));
        if overtaken {
            return Ok(());
        }
        self.counters.updates += 1;
        let object = match introduced {
            Some(id) => match self.introduce(reader, head, (slot, facet), id, kind)? {
                Some(object) => object,
                None => return Ok(()),
            },
            None => self.occupant(reader, slot, kind, facet)?,
        };
        if self.objects.kind(object) != Some(kind) {
            return Err(ApplyError::KindChanged(slot));
        }
        self.objects.apply(object, self.schema.kind(kind), (facet, mask), values, head.tick);
        if introduced.is_some() {
            self.objects.settle(object, facet, HomeView { subscription: head.number, slot, tick: head.tick });
        }
        Ok(())
    }

    /// The object that an update without an id speaks of: the one introduced, or one still without a name.
    fn occupant(&mut self, reader: &mut Reader, slot: u32, kind: KindId, facet: Facet) -> Result<u32, ApplyError> {
        if let Some(object) = reader.slots[slot as usize].object {
            return Ok(object);
        }
        let object = self.objects.insert(self.schema.kind(kind), kind, ObjectId::NONE, self.options.objects)?;
        let view = &mut reader.slots[slot as usize];
        view.object = Some(object);
        view.facet = facet.index();
        reader.occupied += 1;
        self.objects.retain(object);
        Ok(object)
    }

    /// Binds the slot to the object with this id; `None` if a newer occupant is known already.
    fn introduce(
        &mut self,
        reader: &mut Reader,
        head: &PieceHead,
        (slot, facet): (u32, Facet),
        id: ObjectId,
        kind: KindId,
    ) -> Result<Option<u32>, ApplyError> {
        let view = reader.slots[slot as usize];
        if let (Some(introduced), Some(object)) = (view.introduced, view.object) {
            if self.objects.id(object) == id && view.facet == facet.index() {
                let view = &mut reader.slots[slot as usize];
                view.introduced = Some(introduced.newest(head.tick));
                return Ok(Some(object));
            }
            if introduced.is_newer_than(head.tick) {
                return Ok(None);
            }
        }
        let nameless = view.object.filter(|_| view.introduced.is_none());
        if nameless.is_some_and(|nameless| self.objects.kind(nameless) != Some(kind)) {
            return Err(ApplyError::KindChanged(slot));
        }
        let known = match self.objects.find(id) {
            Some(known) => known,
            None => self.objects.insert(self.schema.kind(kind), kind, id, self.options.objects)?,
        };
        if self.objects.kind(known) != Some(kind) {
            return Err(ApplyError::KindChanged(slot));
        }
        self.objects.retain(known);
        if let Some(former) = view.object {
            match view.introduced {
                Some(_) => {
                    let home = HomeView { subscription: head.number, slot, tick: head.tick };
                    self.objects.leave(former, view.facet, home, Departure::Away);
                }
                None => self.objects.merge(former, known, view.facet, self.schema.kind(kind)),
            }
            self.objects.release(former);
        }
        let view = &mut reader.slots[slot as usize];
        reader.occupied += usize::from(view.object.replace(known).is_none());
        view.facet = facet.index();
        view.introduced = Some(head.tick);
        Ok(Some(known))
    }

    /// Another packet has come. An honest one has at most one record of own objects, which passes over the places of these.
    fn pay_for_visits(&mut self) {
        let paid = self.visits_left.saturating_add(VISITS_PER_PACKET).saturating_add(self.own.count());
        self.visits_left = paid.min(self.visits_limit());
    }

    fn visits_limit(&self) -> usize {
        self.options.slots.saturating_mul(VISITS_PER_SLOT)
    }

    /// Counts slots that a few bytes make us look at: many at once are paid for over several packets, so that no server keeps a
    /// client busy by a few bytes in each.
    pub(crate) fn visit(&mut self, slots: usize) -> Result<(), ApplyError> {
        match self.visits_left.checked_sub(slots) {
            Some(left) => {
                self.visits_left = left;
                Ok(())
            }
            None => Err(ApplyError::Limit { what: "slots to look at in a few packets", limit: self.visits_limit() }),
        }
    }

    fn slot_view<'r>(&mut self, reader: &'r mut Reader, slot: u32) -> Result<&'r mut SlotView, ApplyError> {
        let needed = (slot as usize + 1).saturating_sub(reader.slots.len());
        if needed > 0 {
            if self.slots_used + needed > self.options.slots {
                return Err(ApplyError::Limit { what: "slots", limit: self.options.slots });
            }
            self.visit(needed)?;
            self.slots_used += needed;
            reader.slots.resize(slot as usize + 1, SlotView::default());
        }
        Ok(&mut reader.slots[slot as usize])
    }
}

fn read_head(r: &mut BitReader<'_>, packet_tick: Tick) -> Result<PieceHead, ApplyError> {
    let head = r.read_varint()?;
    let number = head >> 2;
    if number == 0 {
        return Err(ApplyError::NoSubscription);
    }
    if number > 0x3FFF {
        return Err(ApplyError::Limit { what: "subscriptions", limit: 0x3FFF });
    }
    let tick = if head & 1 == 1 { read_tick(r, packet_tick, PIECE_AGE_MAX)? } else { packet_tick };
    let name = match head & 2 {
        0 => None,
        _ => Some((ChannelName::decode(r)?, read_tick(r, packet_tick, OPENED_AGE_MAX)?)),
    };
    let length = r.read_varint()?;
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    Ok(PieceHead { number: number as u16, tick, name, length })
}

/// The most ticks from a segment to the packet that it is sent in.
const PIECE_AGE_MAX: u64 = 1 << 30;
/// The most ticks from the opening of a subscription to a packet that says it: servers keep the low half of the tick.
const OPENED_AGE_MAX: u64 = u32::MAX as u64;

/// A tick that is written as its distance from the packet's.
fn read_tick(r: &mut BitReader<'_>, packet_tick: Tick, age_max: u64) -> Result<Tick, ApplyError> {
    let age = r.read_varint()?;
    let tick = packet_tick.0.checked_sub(age).filter(|_| age <= age_max);
    tick.map(Tick).ok_or(ApplyError::Age(age))
}
