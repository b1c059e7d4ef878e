//! The objects of a client: values, ticks, homes, and the events that come of their changes.

use std::collections::{HashMap, VecDeque};

use throng_schema::{Facet, FieldMask, Kind, Values, ValuesMut};
use throng_wire::{KindId, ObjectId, Tick};

use crate::client::{ApplyError, ClientEvent};

/// One object as the client knows it.
#[derive(Debug)]
pub struct ReplicaObject {
    id: ObjectId,
    kind: KindId,
    words: Vec<u32>,
    blobs: Vec<Vec<u8>>,
    ticks: Vec<Option<Tick>>,
    homes: [Option<HomeView>; 3],
    newest: Tick,
    /// Fields that changed since the last event of it was polled.
    changed: FieldMask,
    /// Whether an event that will carry `changed` is queued.
    noted: bool,
    present: bool,
    /// The ticket of its wait for another home, if it has none.
    limbo: Option<u64>,
    /// Slots, of all subscriptions, that point here.
    references: u32,
}

/// Where a facet lives as far as the client knows, and which tick said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HomeView {
    pub(crate) subscription: u16,
    pub(crate) slot: u32,
    pub(crate) tick: Tick,
}

impl ReplicaObject {
    /// The object's id.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// The object's kind.
    pub fn kind(&self) -> KindId {
        self.kind
    }

    /// The quantised values; zero where nothing was told (see [`known_fields`](Self::known_fields)).
    pub fn values(&self) -> Values<'_> {
        Values { words: &self.words, blobs: &self.blobs }
    }

    /// The fields that were told at least once.
    pub fn known_fields(&self) -> FieldMask {
        self.ticks.iter().enumerate().fold(0, |mask, (field, tick)| mask | u64::from(tick.is_some()) << field)
    }

    /// The facets that the client may see at present. Empty for an object that has just left a channel and is kept
    /// for a while.
    pub fn facets(&self) -> impl Iterator<Item = Facet> + '_ {
        Facet::ALL.into_iter().filter(|facet| self.homes[facet.index()].is_some())
    }

    /// The tick of the newest news of it.
    pub fn newest_tick(&self) -> Tick {
        self.newest
    }

    pub(crate) fn is_present(&self) -> bool {
        self.present
    }
}

/// How many ended waits the queue of homeless objects may hold before it is cleared of them.
const LIMBO_SLACK: usize = 16;

/// All objects of a client, by slab index and by id. Some have no id yet: they are known by a slot only.
#[derive(Debug)]
pub(crate) struct Objects {
    slab: Vec<Option<ReplicaObject>>,
    free: Vec<u32>,
    by_id: HashMap<ObjectId, u32>,
    present: usize,
    events: VecDeque<ClientEvent>,
    events_limit: usize,
    events_dropped: u64,
    /// Objects without a home, in the order in which they lost it. Some have found another since.
    limbo: VecDeque<Homeless>,
    next_ticket: u64,
}

/// An object that lost its last home. The wait is over when the object no longer holds this ticket.
#[derive(Clone, Copy, Debug)]
struct Homeless {
    index: u32,
    ticket: u64,
    since: Tick,
}

impl Objects {
    pub(crate) fn new(events_limit: usize) -> Objects {
        Objects {
            slab: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::new(),
            present: 0,
            events: VecDeque::new(),
            events_limit: events_limit.max(1),
            events_dropped: 0,
            limbo: VecDeque::new(),
            next_ticket: 0,
        }
    }

    pub(crate) fn get(&self, index: u32) -> Option<&ReplicaObject> {
        self.slab.get(index as usize)?.as_ref()
    }

    pub(crate) fn find(&self, id: ObjectId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ReplicaObject> {
        self.slab.iter().flatten()
    }

    pub(crate) fn id(&self, index: u32) -> ObjectId {
        self.get(index).map_or(ObjectId::NONE, |object| object.id)
    }

    pub(crate) fn kind(&self, index: u32) -> Option<KindId> {
        self.get(index).map(|object| object.kind)
    }

    pub(crate) fn newest(&self, index: u32) -> Tick {
        self.get(index).map_or(Tick(0), |object| object.newest)
    }

    pub(crate) fn present_count(&self) -> usize {
        self.present
    }

    pub(crate) fn held_count(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    pub(crate) fn waiting_events(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn homeless_count(&self) -> usize {
        self.limbo.len()
    }

    pub(crate) fn events_dropped(&self) -> u64 {
        self.events_dropped
    }

    /// Adds an object that nothing points to yet.
    pub(crate) fn insert(
        &mut self,
        kind: &Kind,
        kind_id: KindId,
        id: ObjectId,
        limit: usize,
    ) -> Result<u32, ApplyError> {
        let object = ReplicaObject {
            id,
            kind: kind_id,
            words: vec![0; kind.words],
            blobs: vec![Vec::new(); kind.blobs],
            ticks: vec![None; kind.fields.len()],
            homes: [None; 3],
            newest: Tick(0),
            changed: 0,
            noted: false,
            present: false,
            limbo: None,
            references: 0,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.slab[index as usize] = Some(object);
                index
            }
            None if self.slab.len() < limit => {
                self.slab.push(Some(object));
                self.slab.len() as u32 - 1
            }
            None => return Err(ApplyError::Limit { what: "objects", limit }),
        };
        if !id.is_none() {
            self.by_id.insert(id, index);
        }
        Ok(index)
    }

    pub(crate) fn retain(&mut self, index: u32) {
        if let Some(object) = self.get_mut(index) {
            object.references += 1;
        }
    }

    /// One slot less points to the object.
    pub(crate) fn release(&mut self, index: u32) {
        if let Some(object) = self.get_mut(index) {
            object.references -= 1;
            self.forget_if_unused(index);
        }
    }

    /// Takes over the fields of `mask` that are newer than what is known.
    pub(crate) fn apply(&mut self, index: u32, kind: &Kind, mask: FieldMask, values: Values<'_>, tick: Tick) {
        let Some(object) = self.get_mut(index) else { return };
        let first_news = object.ticks.iter().all(Option::is_none);
        if first_news || tick.is_newer_than(object.newest) {
            object.newest = tick;
        }
        let newer = newer_fields(&object.ticks, mask, tick);
        let values = Values { words: &values.words[..kind.words], blobs: &values.blobs[..kind.blobs] };
        object.take(kind, newer, values, |_| tick);
        self.note_change(index);
    }

    /// Gives what is known of an object without an id to the object that it turned out to be.
    pub(crate) fn merge(&mut self, from: u32, to: u32, kind: &Kind) {
        let Some(nameless) = self.slab.get_mut(from as usize).and_then(Option::take) else { return };
        if let Some(object) = self.get_mut(to) {
            let told = nameless.known_fields();
            let newer = (0..kind.fields.len()).fold(0, |mask, field| {
                let newer = match (nameless.ticks[field], object.ticks[field]) {
                    (Some(new), Some(old)) => new.is_newer_than(old),
                    (new, _) => new.is_some(),
                };
                mask | u64::from(newer) << field
            });
            if told != 0 {
                object.newest = object.newest.newest(nameless.newest);
            }
            object.take(kind, newer, nameless.values(), |field| nameless.ticks[field].unwrap_or_default());
            self.note_change(to);
        }
        self.slab[from as usize] = Some(nameless);
    }

    /// A facet was introduced at this place.
    pub(crate) fn settle(&mut self, index: u32, facet: Facet, home: HomeView) {
        let Some(object) = self.get_mut(index) else { return };
        let present_home = &mut object.homes[facet.index()];
        if present_home.is_some_and(|present| present.tick.is_newer_than(home.tick)) {
            return;
        }
        *present_home = Some(home);
        object.limbo = None;
        if !object.present {
            object.present = true;
            object.changed = 0;
            let id = object.id;
            self.present += 1;
            self.push_event(ClientEvent::Spawned(id));
        }
    }

    /// A facet is no longer at this place. Without effect if it lives elsewhere by now.
    pub(crate) fn leave(&mut self, index: u32, facet: usize, place: HomeView, destroyed: bool) {
        let Some(object) = self.get_mut(index) else { return };
        let lived_here =
            object.homes[facet].is_some_and(|home| (home.subscription, home.slot) == (place.subscription, place.slot));
        if !lived_here {
            return;
        }
        object.homes[facet] = None;
        if !object.present || object.homes.iter().any(Option::is_some) {
            return;
        }
        if destroyed {
            self.remove(index);
        } else {
            self.await_home(index, place.tick);
        }
    }

    /// Removes the objects that have been without a home for longer than `limbo_ticks`.
    pub(crate) fn end_limbo(&mut self, now: Tick, limbo_ticks: u32) {
        while let Some(&homeless) = self.limbo.front() {
            if now.since(homeless.since) <= limbo_ticks {
                return;
            }
            self.limbo.pop_front();
            if self.is_waiting(homeless) {
                self.remove(homeless.index);
                self.forget_if_unused(homeless.index);
            }
        }
    }

    /// Queues an object that has just lost its last home. The queue stays in proportion to the objects, however often
    /// they come and go in between.
    fn await_home(&mut self, index: u32, since: Tick) {
        if self.limbo.len() >= 2 * self.slab.len() + LIMBO_SLACK {
            let mut limbo = std::mem::take(&mut self.limbo);
            limbo.retain(|&homeless| self.is_waiting(homeless));
            self.limbo = limbo;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        if let Some(object) = self.get_mut(index) {
            object.limbo = Some(ticket);
            self.limbo.push_back(Homeless { index, ticket, since });
        }
    }

    fn is_waiting(&self, homeless: Homeless) -> bool {
        self.get(homeless.index).is_some_and(|object| object.limbo == Some(homeless.ticket))
    }

    /// The next event; a change carries all fields changed since the last.
    pub(crate) fn poll_event(&mut self) -> Option<ClientEvent> {
        loop {
            let event = self.events.pop_front()?;
            let ClientEvent::Changed { id, .. } = event else { return Some(event) };
            let Some(object) = self.find(id).and_then(|index| self.get_mut(index)) else { continue };
            object.noted = false;
            let fields = std::mem::take(&mut object.changed);
            if fields != 0 {
                return Some(ClientEvent::Changed { id, fields });
            }
        }
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut ReplicaObject> {
        self.slab.get_mut(index as usize)?.as_mut()
    }

    fn remove(&mut self, index: u32) {
        let Some(object) = self.get_mut(index) else { return };
        if !std::mem::take(&mut object.present) {
            return;
        }
        object.limbo = None;
        object.changed = 0;
        let id = object.id;
        self.present -= 1;
        self.push_event(ClientEvent::Despawned(id));
    }

    fn forget_if_unused(&mut self, index: u32) {
        let Some(object) = self.get(index) else { return };
        if object.references > 0 || object.present {
            return;
        }
        if !object.id.is_none() {
            let id = object.id;
            self.by_id.remove(&id);
        }
        self.slab[index as usize] = None;
        self.free.push(index);
    }

    /// Queues the event of a change, once until it is polled.
    fn note_change(&mut self, index: u32) {
        let Some(object) = self.get_mut(index) else { return };
        if !object.present {
            object.changed = 0;
        } else if object.changed != 0 && !object.noted {
            object.noted = true;
            let id = object.id;
            self.push_event(ClientEvent::Changed { id, fields: 0 });
        }
    }

    fn push_event(&mut self, event: ClientEvent) {
        if self.events.len() == self.events_limit {
            self.events_dropped += 1;
            if let Some(ClientEvent::Changed { id, .. }) = self.events.pop_front()
                && let Some(object) = self.find(id).and_then(|index| self.get_mut(index))
            {
                object.noted = false;
            }
        }
        self.events.push_back(event);
    }
}

impl ReplicaObject {
    fn take(&mut self, kind: &Kind, mask: FieldMask, values: Values<'_>, tick_of: impl Fn(usize) -> Tick) {
        self.changed |= kind.compare(self.values(), values) & mask & told_of(kind);
        kind.copy(mask, values, ValuesMut { words: &mut self.words, blobs: &mut self.blobs });
        let mut rest = mask;
        while rest != 0 {
            let field = rest.trailing_zeros() as usize;
            self.ticks[field] = Some(tick_of(field));
            rest &= rest - 1;
        }
    }
}

/// The fields whose changes are told: those marked `notify`, or all if the kind marks none.
fn told_of(kind: &Kind) -> FieldMask {
    match kind.notify_mask() {
        0 => FieldMask::MAX,
        marked => marked,
    }
}

fn newer_fields(ticks: &[Option<Tick>], mask: FieldMask, tick: Tick) -> FieldMask {
    let (mut newer, mut rest) = (0, mask);
    while rest != 0 {
        let field = rest.trailing_zeros();
        if ticks[field as usize].is_none_or(|known| tick.is_newer_than(known)) {
            newer |= 1 << field;
        }
        rest &= rest - 1;
    }
    newer
}
