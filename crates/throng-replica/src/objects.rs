//! The objects of a client: values, ticks, homes, and which of them are in sight.
//!
//! An object is in sight while one of these holds: its public facet has a home, and the fields kept from owners have come
//! if there are any; it is the client's own; its far facet has a home; or one of the two has just moved to a neighbouring
//! cell that the client is sent as well, and that cell's next turn is awaited.
//!
//! It is *near* if it is in sight for another reason than its far facet. The fields of the far facet count only while it is
//! not near, and it forgets those of the public facet when it is near no longer.
//!
//! An object that has gone out of sight is remembered for as long as such a turn may take: packets that come late and tell
//! where it was before do not show it again.
//!
//! The client knows its own objects from its own records alone (see `own.rs`), because only there do state and input
//! number belong together. Meanwhile the state from the public facet's channel is kept aside, in case the object gets
//! another owner.

mod waits;

use std::collections::HashMap;
use std::sync::Arc;

use throng_schema::{Facet, FieldMask, Kind, Reckoning, Schema, Values, ValuesMut};
use throng_wire::{KindId, ObjectId, Tick};

use crate::client::{ApplyError, ClientEvent, DespawnReason};
use crate::events::Events;
use crate::store::seconds_between;
use waits::{Wait, Waits, awaits_turn};

/// One object as the client knows it.
#[derive(Debug)]
pub struct ReplicaObject {
    id: ObjectId,
    kind: KindId,
    shown: Known,
    /// The state from the channel of its public facet, while the object is the client's own.
    aside: Option<Box<Known>>,
    public: Option<HomeView>,
    others: Option<HomeView>,
    far: Option<HomeView>,
    /// Tick of the newest introduction of its public facet. Older records belong to a home that it has left.
    settled: Option<Tick>,
    /// The same for its far facet.
    far_settled: Option<Tick>,
    /// Its place among the client's own objects.
    own: Option<u32>,
    /// The kind has fields that are kept from owners: with the public ones alone the object is not whole.
    has_others: bool,
    /// It has been near since its public facet came.
    is_whole: bool,
    /// The fields of the far facet.
    far_mask: FieldMask,
    newest: Tick,
    /// Fields that changed since the last event of it was polled.
    pub(crate) changed: FieldMask,
    /// It has ended, and is kept only so that late packets do not bring it back.
    ended: bool,
    wait: Option<Wait>,
    /// The wait of its far facet.
    far_wait: Option<Wait>,
    /// The state of it that polled events have reported.
    pub(crate) told: Told,
    /// Slots of all subscriptions, and places of own objects, that point here.
    references: u32,
}

/// A position that a client reckons: see [`ReplicaClient::reckoned`](crate::ReplicaClient::reckoned).
#[derive(Clone, Copy, Debug)]
pub struct Reckoned<'a> {
    /// The arithmetic of the object's kind.
    pub reckoning: &'a Reckoning,
    words: &'a [u32],
    /// The tick of the position that the values hold.
    pub stated: Tick,
    newest: Tick,
    tick_interval_us: u32,
}

impl Reckoned<'_> {
    /// The position at the newest tick of any packet, in steps: what a client shows.
    pub fn now(&self) -> [i32; 3] {
        self.at(self.newest)
    }

    /// The position at a tick, in steps.
    pub fn at(&self, tick: Tick) -> [i32; 3] {
        let seconds = seconds_between(self.stated, tick, self.tick_interval_us);
        self.reckoning.after(self.reckoning.position(self.words), self.words, seconds)
    }
}

/// The state of an object that the game has received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    pub(crate) in_sight: bool,
    pub(crate) own: bool,
    /// The ticket of its entry in the queue of events.
    pub(crate) queued: Option<u64>,
}

/// Values, and the tick of each.
#[derive(Clone, Debug)]
struct Known {
    words: Vec<u32>,
    blobs: Vec<Vec<u8>>,
    ticks: Vec<Option<Tick>>,
    /// Those with a tick.
    fields: FieldMask,
}

/// Where a facet lives as far as the client knows, and the tick of that information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HomeView {
    pub(crate) subscription: u16,
    pub(crate) slot: u32,
    pub(crate) tick: Tick,
}

/// How a client sees an object.
#[derive(Clone, Copy, Debug)]
struct Sight {
    is_any: bool,
    is_near: bool,
}

/// How the occupant of a slot left it, as far as it concerns a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// To somewhere, or nowhere that this client is sent.
    Away,
    /// To a channel that this subscription sends.
    To(u16),
    /// It has ended.
    Ended,
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

    /// The quantised values as they were stated; zero for unknown fields (see [`known_fields`](Self::known_fields)). Where
    /// the object is by now, [`ReplicaClient::reckoned`](crate::ReplicaClient::reckoned) says.
    pub fn values(&self) -> Values<'_> {
        self.shown.values()
    }

    /// The fields that the client may know and has received: those of the far facet only while it does not receive the
    /// public one.
    pub fn known_fields(&self) -> FieldMask {
        self.shown.fields() & if self.is_near() { !self.far_mask } else { self.far_mask }
    }

    /// The facets that the client receives at present. An object that is the client's own has no [`Facet::Others`] for
    /// it.
    pub fn facets(&self) -> impl Iterator<Item = Facet> + '_ {
        Facet::ALL.into_iter().filter(|facet| match facet {
            Facet::Public => self.is_near(),
            Facet::Owner => self.own.is_some(),
            Facet::Others => self.others.is_some(),
            Facet::Far => self.is_seen_from_afar(),
        })
    }

    /// Whether the client owns it.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Whether it has moved to a cell whose next turn has not come yet.
    pub fn is_awaited(&self) -> bool {
        self.own.is_none() && self.public.is_none() && awaits_turn(self.wait)
            || !self.is_near() && self.far.is_none() && awaits_turn(self.far_wait)
    }

    /// The tick of the newest news of it.
    pub fn newest_tick(&self) -> Tick {
        self.newest
    }

    /// The position, unless it is the client's own or not known.
    pub(crate) fn reckoned<'a>(
        &'a self,
        reckoning: &'a Reckoning,
        newest: Tick,
        tick_interval_us: u32,
    ) -> Option<Reckoned<'a>> {
        let stated = self.shown.ticks[reckoning.position].filter(|_| self.own.is_none())?;
        Some(Reckoned { reckoning, words: &self.shown.words, stated, newest, tick_interval_us })
    }

    pub(crate) fn own_place(&self) -> Option<u32> {
        self.own
    }

    pub(crate) fn is_in_sight(&self) -> bool {
        self.is_near() || self.is_seen_from_afar()
    }

    fn sight(&self) -> Sight {
        Sight { is_any: self.is_in_sight(), is_near: self.is_near() }
    }

    /// Whether news of `tick` comes from a home of its public facet that it has left, and whose fields are forgotten.
    fn is_forgotten(&self, facet: Facet, tick: Tick) -> bool {
        facet == Facet::Public && !self.is_near() && self.settled.is_some_and(|settled| settled.is_newer_than(tick))
    }

    /// Whether it is in sight for another reason than its far facet.
    fn is_near(&self) -> bool {
        let is_whole = self.is_whole || !self.has_others || self.others.is_some();
        !self.ended && (self.public.is_some() && is_whole || self.own.is_some() || awaits_turn(self.wait))
    }

    fn is_seen_from_afar(&self) -> bool {
        !self.ended && (self.far.is_some() || awaits_turn(self.far_wait))
    }
}

/// All objects of a client, by slab index and by id. Some have no id yet: they are known by a slot only.
#[derive(Debug)]
pub(crate) struct Objects {
    schema: Arc<Schema>,
    slab: Vec<Option<ReplicaObject>>,
    free: Vec<u32>,
    by_id: HashMap<ObjectId, u32>,
    in_sight: usize,
    events: Events,
    waits: Waits,
    /// The newest tick of any packet.
    now: Tick,
}

impl Objects {
    pub(crate) fn new(schema: Arc<Schema>) -> Objects {
        Objects {
            schema,
            slab: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::new(),
            in_sight: 0,
            events: Events::default(),
            waits: Waits::default(),
            now: Tick(0),
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

    pub(crate) fn in_sight_count(&self) -> usize {
        self.in_sight
    }

    pub(crate) fn held_count(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    pub(crate) fn waiting_events(&self) -> usize {
        self.events.len()
    }

    /// Adds an object that nothing points to yet.
    pub(crate) fn insert(
        &mut self,
        kind: &Kind,
        kind_id: KindId,
        id: ObjectId,
        limit: usize,
    ) -> Result<u32, ApplyError> {
        if self.free.is_empty() && self.slab.len() >= limit {
            self.forget_a_remembered_one();
        }
        let object = ReplicaObject {
            id,
            kind: kind_id,
            shown: Known::of(kind),
            aside: None,
            public: None,
            others: None,
            far: None,
            settled: None,
            far_settled: None,
            own: None,
            has_others: kind.facet_mask(Facet::Others) != 0,
            is_whole: false,
            far_mask: kind.facet_mask(Facet::Far),
            newest: Tick(0),
            changed: 0,
            ended: false,
            wait: None,
            far_wait: None,
            told: Told::default(),
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
        self.change(index, |object| object.references += 1);
    }

    /// One thing less points to the object.
    pub(crate) fn release(&mut self, index: u32) {
        if self.change(index, |object| object.references -= 1).is_some() {
            self.forget_if_unused(index);
        }
    }

    /// Takes over the fields of `mask`, told by a channel, that are newer than what is known.
    pub(crate) fn apply(
        &mut self,
        index: u32,
        kind: &Kind,
        (facet, mask): (Facet, FieldMask),
        values: Values<'_>,
        tick: Tick,
    ) {
        let Some(object) = self.get_mut(index).filter(|object| !object.ended) else { return };
        let values = cut(kind, values);
        if object.is_forgotten(facet, tick) {
            return;
        }
        let first_news = object.shown.fields() == 0;
        let counts = (facet == Facet::Far) != object.is_near();
        if (counts || !object.is_in_sight())
            && object.own.is_none()
            && (first_news || tick.is_newer_than(object.newest))
        {
            object.newest = tick;
        }
        let target = match (&mut object.aside, facet) {
            (Some(aside), Facet::Public) => aside,
            _ => &mut object.shown,
        };
        let newer = target.newer_fields(mask, tick);
        let changed = target.take(kind, newer, values, |_| tick);
        if counts && (facet != Facet::Public || object.aside.is_none()) {
            object.changed |= changed & told_of(kind);
        }
        self.note(index);
    }

    /// Gives what is known of an object without an id to the object that it turned out to be.
    pub(crate) fn merge(&mut self, from: u32, to: u32, facet: usize, kind: &Kind) {
        let Some(nameless) = self.slab.get_mut(from as usize).and_then(Option::take) else { return };
        let is_public = facet == Facet::Public.index();
        let told_in = if is_public { Facet::Public } else { Facet::Far };
        let is_forgotten = |object: &ReplicaObject| object.is_forgotten(told_in, nameless.newest);
        if let Some(object) = self.get_mut(to).filter(|object| !object.ended && !is_forgotten(object)) {
            let counts = (facet == Facet::Far.index()) != object.is_near();
            let is_shown = object.aside.is_none() || !is_public;
            let target = if is_shown { &mut object.shown } else { object.aside.as_mut().expect("just looked at") };
            let newer = (0..kind.fields.len()).fold(0, |mask, field| {
                let newer = match (nameless.shown.ticks[field], target.ticks[field]) {
                    (Some(new), Some(old)) => new.is_newer_than(old),
                    (new, _) => new.is_some(),
                };
                mask | u64::from(newer) << field
            });
            let changed =
                target.take(kind, newer, nameless.values(), |field| nameless.shown.ticks[field].unwrap_or_default());
            if is_shown && counts {
                object.changed |= changed & told_of(kind);
                if nameless.shown.fields() != 0 && object.own.is_none() {
                    object.newest = object.newest.newest(nameless.newest);
                }
            }
            self.note(to);
        }
        self.slab[from as usize] = Some(nameless);
    }

    /// A facet was introduced in this channel.
    pub(crate) fn settle(&mut self, index: u32, facet: Facet, home: HomeView) {
        let Some(object) = self.get_mut(index).filter(|object| !object.ended) else { return };
        let before = object.sight();
        let known = match facet {
            Facet::Others => object.others.map(|present| present.tick),
            Facet::Far => object.far_settled,
            _ => object.settled,
        };
        if known.is_some_and(|known| known.is_newer_than(home.tick)) {
            return;
        }
        match facet {
            Facet::Others => object.others = Some(home),
            Facet::Far => (object.far, object.far_settled) = (Some(home), Some(home.tick)),
            _ => (object.public, object.settled) = (Some(home), Some(home.tick)),
        }
        if facet != Facet::Others {
            self.set_wait(index, facet, None);
        }
        self.look_again(index, before, DespawnReason::OutOfSight);
    }

    /// A facet is no longer in this channel. Without effect if it lives elsewhere by now, unless the object has ended.
    pub(crate) fn leave(&mut self, index: u32, facet: usize, place: HomeView, departure: Departure) {
        if departure == Departure::Ended {
            return self.end(index, place.tick);
        }
        let schema = Arc::clone(&self.schema);
        let Some(object) = self.get_mut(index) else { return };
        let (kind, before) = (schema.kind(object.kind), object.sight());
        let lived_here =
            |home: Option<HomeView>| home.is_some_and(|h| (h.subscription, h.slot) == (place.subscription, place.slot));
        if facet == Facet::Others.index() {
            if lived_here(object.others) {
                object.others = None;
                // It forgets fields that it may no longer know.
                object.changed |= object.shown.forget(kind, kind.facet_mask(Facet::Others));
                self.note(index);
            }
            return;
        }
        let facet = if facet == Facet::Far.index() { Facet::Far } else { Facet::Public };
        let (home, awaits) = match facet {
            Facet::Far => (&mut object.far, true),
            _ => (&mut object.public, object.own.is_none()),
        };
        if !lived_here(*home) {
            return;
        }
        *home = None;
        if let (Departure::To(subscription), true) = (departure, awaits) {
            self.await_turn((index, facet), subscription, place.tick);
        }
        self.look_again(index, before, DespawnReason::OutOfSight);
    }

    /// The object has ended, whatever later segments hold.
    pub(crate) fn end(&mut self, index: u32, tick: Tick) {
        let Some(object) = self.get_mut(index).filter(|object| !object.ended) else { return };
        let before = object.sight();
        object.ended = true;
        (object.public, object.others, object.far, object.own, object.aside) = (None, None, None, None, None);
        self.set_wait(index, Facet::Far, None);
        self.remember(index, tick);
        self.look_again(index, before, DespawnReason::Destroyed);
    }

    /// A channel says of an object that it never introduced that it has left that channel again.
    pub(crate) fn pass_on(&mut self, index: u32, from: u16, tick: Tick, departure: Departure) {
        if departure == Departure::Ended {
            return self.end(index, tick);
        }
        let Some(object) = self.get_mut(index) else { return };
        let waits = [(Facet::Public, object.public, object.wait), (Facet::Far, object.far, object.far_wait)];
        for (facet, home, wait) in waits {
            if home.is_some() || wait.is_none_or(|wait| wait.subscription != Some(from)) {
                continue;
            }
            match departure {
                Departure::To(subscription) => self.await_turn((index, facet), subscription, tick),
                _ => self.end_wait(index, facet),
            }
        }
    }

    /// Takes over what a record says of an object that the client owns. It is newer than all records before it.
    pub(crate) fn apply_own(
        &mut self,
        index: u32,
        kind: &Kind,
        place: u32,
        introduced: bool,
        mask: FieldMask,
        (values, tick): (Values<'_>, Tick),
    ) {
        let Some(object) = self.get_mut(index).filter(|object| !object.ended) else { return };
        let before = object.sight();
        let mut mask = mask;
        if introduced && object.own.is_some() {
            // Said again, because the first saying may be lost. The fields that the owner predicts have the client's
            // own values by then.
            mask &= !kind.skip_owner_mask();
        }
        if introduced {
            object.own = Some(place);
            if object.aside.is_none() {
                let mut aside = object.shown.clone();
                aside.forget(kind, !kind.facet_mask(Facet::Public));
                object.aside = Some(Box::new(aside));
            }
        }
        object.newest = tick;
        let changed = object.shown.take(kind, mask, cut(kind, values), |_| tick);
        object.changed |= changed & told_of(kind);
        if introduced {
            self.set_wait(index, Facet::Public, None);
        }
        self.look_again(index, before, DespawnReason::OutOfSight);
    }

    /// The object at this place of the client's own objects has another owner. Owner fields are forgotten, and the
    /// values from the object's channel count again.
    pub(crate) fn disown(&mut self, index: u32, place: u32) {
        let schema = Arc::clone(&self.schema);
        let Some(object) = self.get_mut(index).filter(|object| object.own == Some(place)) else { return };
        let (kind, before) = (schema.kind(object.kind), object.sight());
        object.own = None;
        let mut changed = object.shown.forget(kind, kind.facet_mask(Facet::Owner));
        if let Some(aside) = object.aside.take() {
            // A reckoned position belongs to the statement that its channel made, and to the velocity of that: from the true
            // position in a record, readers would not go along the line that the server compares with the truth. So it is with
            // values that have a threshold.
            let predicted = kind.skip_owner_mask() | stated_mask(kind);
            let newer = (0..kind.fields.len()).fold(0, |mask, field| {
                let is_newer = match (aside.ticks[field], object.shown.ticks[field]) {
                    (Some(new), Some(old)) => new.is_newer_than(old) || predicted >> field & 1 == 1,
                    (new, _) => new.is_some(),
                };
                mask | u64::from(is_newer) << field
            });
            changed |= object.shown.take(kind, newer, aside.values(), |field| aside.ticks[field].unwrap_or_default());
        }
        object.changed |= changed & told_of(kind);
        self.look_again(index, before, DespawnReason::OutOfSight);
    }

    /// Replaces the fields that the owner predicts itself by what it has predicted. False if the object is not its own.
    pub(crate) fn predict(&mut self, index: u32, kind: &Kind, write: impl FnOnce(ValuesMut<'_>)) -> bool {
        let Some(object) = self.get_mut(index).filter(|object| object.own.is_some()) else { return false };
        let (mut words, mut blobs) = kind.empty_values();
        write(ValuesMut { words: &mut words, blobs: &mut blobs });
        let to = ValuesMut { words: &mut object.shown.words, blobs: &mut object.shown.blobs };
        kind.copy(kind.skip_owner_mask(), Values { words: &words, blobs: &blobs }, to);
        true
    }

    /// The next event.
    pub(crate) fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.poll(&mut self.slab)
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut ReplicaObject> {
        self.slab.get_mut(index as usize)?.as_mut()
    }

    /// Notes whether the object has come into sight or gone out of it, or nearer or farther away.
    fn look_again(&mut self, index: u32, before: Sight, reason: DespawnReason) {
        let Some(object) = self.slab.get_mut(index as usize).and_then(Option::as_mut) else { return };
        let after = object.sight();
        object.is_whole = after.is_near;
        if before.is_near != after.is_near {
            let kind = self.schema.kind(object.kind);
            object.changed |= object.shown.fields() & told_of(kind);
            if !after.is_near {
                object.shown.forget(kind, kind.facet_mask(Facet::Public));
            }
            // The fields that do not count any more are no news of it.
            if object.own.is_none() {
                let counting = if after.is_near { !object.far_mask } else { object.far_mask };
                object.newest = object.shown.newest(counting).unwrap_or(object.newest);
            }
        }
        match (before.is_any, after.is_any) {
            (false, true) => self.in_sight += 1,
            (true, false) => {
                self.in_sight -= 1;
                object.changed = 0;
                if std::mem::take(&mut object.told).in_sight {
                    self.events.push_gone(object.id, reason);
                }
                return;
            }
            _ => {}
        }
        self.note(index);
    }

    /// Queues the object if there is something to tell of it.
    fn note(&mut self, index: u32) {
        let slab_len = self.slab.len();
        let Some(object) = self.slab.get_mut(index as usize).and_then(Option::as_mut) else { return };
        if !object.is_in_sight() {
            object.changed = 0;
            return;
        }
        let is_news = !object.told.in_sight || object.told.own != object.own.is_some() || object.changed != 0;
        if is_news && object.told.queued.is_none() {
            object.told.queued = Some(self.events.push_object(index));
        }
        if self.events.is_long(slab_len) {
            let slab = &self.slab;
            self.events.clear_ended(|index| slab.get(index as usize)?.as_ref()?.told.queued);
        }
    }

    /// Forgets an object to which nothing points any more: at once, if its home was never known.
    fn forget_if_unused(&mut self, index: u32) {
        if !self.is_unused(index) {
            return;
        }
        match self.get(index).is_some_and(|object| object.settled.is_some() || object.far_settled.is_some()) {
            true => self.remember(index, self.now),
            false => self.forget(index),
        }
    }

    fn is_unused(&self, index: u32) -> bool {
        let is_unused = |object: &ReplicaObject| {
            let waits = object.wait.is_some() || object.far_wait.is_some();
            object.references == 0 && !object.is_in_sight() && !waits
        };
        self.get(index).is_some_and(is_unused)
    }

    fn forget(&mut self, index: u32) {
        let Some(object) = self.slab[index as usize].take() else { return };
        if !object.id.is_none() {
            self.by_id.remove(&object.id);
        }
        self.free.push(index);
    }
}

impl Known {
    fn of(kind: &Kind) -> Known {
        let (words, blobs) = kind.empty_values();
        Known { words, blobs, ticks: vec![None; kind.fields.len()], fields: 0 }
    }

    fn values(&self) -> Values<'_> {
        Values { words: &self.words, blobs: &self.blobs }
    }

    fn fields(&self) -> FieldMask {
        self.fields
    }

    /// The newest tick of a field of `mask`.
    fn newest(&self, mask: FieldMask) -> Option<Tick> {
        let of_mask = self.ticks.iter().enumerate().filter(|(field, _)| mask >> field & 1 == 1);
        of_mask.filter_map(|(_, tick)| *tick).reduce(Tick::newest)
    }

    /// The fields of `mask` of which nothing as new as `tick` is known.
    fn newer_fields(&self, mask: FieldMask, tick: Tick) -> FieldMask {
        let (mut newer, mut rest) = (0, mask);
        while rest != 0 {
            let field = rest.trailing_zeros();
            if self.ticks[field as usize].is_none_or(|known| tick.is_newer_than(known)) {
                newer |= 1 << field;
            }
            rest &= rest - 1;
        }
        newer
    }

    /// Takes over the fields of `mask`. Returns those that differ from before.
    fn take(&mut self, kind: &Kind, mask: FieldMask, values: Values<'_>, tick_of: impl Fn(usize) -> Tick) -> FieldMask {
        let changed = kind.compare(self.values(), values) & mask;
        kind.copy(mask, values, ValuesMut { words: &mut self.words, blobs: &mut self.blobs });
        self.fields |= mask;
        let mut rest = mask;
        while rest != 0 {
            let field = rest.trailing_zeros() as usize;
            self.ticks[field] = Some(tick_of(field));
            rest &= rest - 1;
        }
        changed
    }

    /// Forgets the fields of `mask`. Returns those that were known.
    fn forget(&mut self, kind: &Kind, mask: FieldMask) -> FieldMask {
        let forgotten = self.fields() & mask;
        if forgotten != 0 {
            let (words, blobs) = kind.empty_values();
            let to = ValuesMut { words: &mut self.words, blobs: &mut self.blobs };
            kind.copy(forgotten, Values { words: &words, blobs: &blobs }, to);
            for (field, tick) in self.ticks.iter_mut().enumerate() {
                *tick = tick.filter(|_| forgotten >> field & 1 == 0);
            }
            self.fields &= !forgotten;
        }
        forgotten
    }
}

impl ReplicaObject {
    /// The next event, and marks it as returned.
    pub(crate) fn next_event(&mut self) -> Option<ClientEvent> {
        if !self.is_in_sight() {
            return None;
        }
        let id = self.id;
        if !self.told.in_sight {
            self.told.in_sight = true;
            self.changed = 0;
            return Some(ClientEvent::Spawned(id));
        }
        if self.told.own != self.own.is_some() {
            self.told.own = self.own.is_some();
            return Some(if self.told.own { ClientEvent::Owned(id) } else { ClientEvent::Disowned(id) });
        }
        let fields = std::mem::take(&mut self.changed);
        (fields != 0).then_some(ClientEvent::Changed { id, fields })
    }
}

fn cut<'a>(kind: &Kind, values: Values<'a>) -> Values<'a> {
    Values { words: &values.words[..kind.words], blobs: &values.blobs[..kind.blobs] }
}

/// The fields from which a position is reckoned, and those with a threshold.
fn stated_mask(kind: &Kind) -> FieldMask {
    kind.threshold_mask() | kind.reckoning.map_or(0, |reckoning| 1 << reckoning.position | 1 << reckoning.velocity)
}

/// The fields whose changes cause events: those marked `notify`, or all if the kind marks none.
fn told_of(kind: &Kind) -> FieldMask {
    match kind.notify_mask() {
        0 => FieldMask::MAX,
        marked => marked,
    }
}
