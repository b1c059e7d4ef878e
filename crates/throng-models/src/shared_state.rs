//! Iris's shape: what can be shared is shared, up to the bytes.
//!
//! ```text
//! shared               quantised values, exact masks of what changed        once for each object touched
//!                      cells: sets of the objects that can be seen from there, surely and perhaps
//! for each connection  scope = its cell's sets, what is really near enough, and for some ticks after
//!                      pending |= changed, for what is in scope
//!                      priority += by distance, for what is pending; due from 1 on
//!                      order, if room is short; write the pending fields from the quantised values
//! ```
//!
//! Sent fields are cleared from the pending mask; lost fields come back, unless they were sent again since.

mod filter;

use std::sync::Arc;

use throng::schema::{FieldMask, Schema};
use throng::{ServerOptions, StartError};

use crate::bits::{Bits, numbers_of};
use crate::due::DueList;
use crate::link::{Channel, Link, Stage};
use crate::modelled::{Model, Modelled, Place, Seat};
use crate::world::{Scope, World};
use filter::Filter;

/// The highest object index that a list made for each connection has room for, and with it the length of that list: at 8
/// bytes each, 524,280 bytes.
const SCRATCH_OBJECTS: usize = 65_535;

/// An object stays in scope for this many ticks after the filter has dropped it.
const HYSTERESIS_TICKS: u8 = 4;

/// Priority at which an object is sent.
const DUE: f32 = 1.0;

/// Where the list is in which a connection's objects are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scratch {
    /// Allocated for each connection and tick, and as long as there may be objects, as in the version published with
    /// Unreal 5.7.
    PerConnection,
    /// One for each connection that is kept, as after the published patch.
    Shared,
}

/// The options of [`SharedState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedStateOptions {
    /// Where the lists are.
    pub scratch: Scratch,
    /// Positions are written as distances from those that the client is known to hold, where that is shorter.
    pub has_baselines: bool,
}

/// Iris's shape.
pub type SharedState = Modelled<Method>;

impl SharedState {
    /// A world without objects.
    ///
    /// # Errors
    /// If the fields of a kind do not fit into a packet.
    pub fn new(
        schema: &Arc<Schema>,
        options: &ServerOptions,
        shared: SharedStateOptions,
    ) -> Result<SharedState, StartError> {
        let method = Method {
            options: shared,
            filter: Filter::new(&options.grids),
            dirty: Bits::default(),
            changed: Vec::new(),
        };
        Modelled::with(method, schema, options)
    }
}

/// How [`SharedState`] works.
#[derive(Debug)]
pub struct Method {
    options: SharedStateOptions,
    filter: Filter,
    /// Objects that changed since the last tick.
    dirty: Bits,
    /// Their changes, by object index.
    changed: Vec<FieldMask>,
}

/// A connection's data; all by object index.
#[derive(Debug, Default)]
pub struct Own {
    scope: Bits,
    /// The objects that pass the filter in this tick.
    seen: Bits,
    /// Objects in scope that are no longer visible.
    waning: Bits,
    /// Ticks for which that stays in scope.
    grace: Vec<u8>,
    /// Objects with pending fields, or to be opened.
    unsent: Bits,
    pending: Vec<FieldMask>,
    priorities: Vec<f32>,
}

impl Model for Method {
    type Own = Own;

    fn seated(&self, seat: &mut Seat<Own>) {
        seat.link.baselines = self.options.has_baselines.then(Box::default);
    }

    fn began(&mut self, world: &World, object: u32) {
        self.filter.insert(world, object);
        self.dirty.grow(world.len());
        self.changed.resize(world.len(), 0);
        self.changed[object as usize] = 0;
    }

    fn touched(&mut self, world: &World, object: u32, mask: FieldMask) {
        self.filter.touch(world, object);
        let kind = world.kind(object);
        let lasting = mask & !kind.initial_only_mask();
        if lasting != 0 {
            self.dirty.insert(object);
            self.changed[object as usize] |= lasting;
        }
    }

    fn moved(&mut self, world: &World, object: u32) {
        self.filter.remove(object);
        self.filter.insert(world, object);
    }

    fn ended(&mut self, _: &World, object: u32) {
        self.filter.remove(object);
        self.dirty.remove(object);
        self.changed[object as usize] = 0;
    }

    fn look(&mut self, world: &World, places: &mut [Place<Own>]) {
        for seat in places.iter_mut().filter_map(|place| place.seat.as_deref_mut()) {
            if seat.viewer.is_live {
                self.filter_for(world, seat);
            }
        }
    }

    fn encode(&mut self, world: &World, places: &mut [Place<Own>]) {
        for seat in places.iter_mut().filter_map(|place| place.seat.as_deref_mut()) {
            seat.own.take_changes(&self.dirty, &self.changed);
            prioritise(world, seat);
        }
        self.dirty.iter().for_each(|object| self.changed[object as usize] = 0);
        self.dirty.clear();
    }

    fn begin_write(&self, world: &World, seat: &mut Seat<Own>) {
        let Seat { own, link, due, .. } = seat;
        if self.options.scratch == Scratch::PerConnection {
            let mut list = DueList::with_room(SCRATCH_OBJECTS);
            own.collect_due(world, link, &mut list);
            due.copy_from(&list);
        } else {
            own.collect_due(world, link, due);
        }
    }

    fn pending(&self, world: &World, seat: &mut Seat<Own>, channel: u32) -> FieldMask {
        let state = seat.link.channel(channel);
        let object = state.id.index;
        (seat.own.pending[object as usize] | state.resend) & world.visible(object, state.is_owner)
    }

    fn sent(&self, _: &World, seat: &mut Seat<Own>, channel: u32, _: FieldMask) {
        let object = seat.link.channel(channel).id.index;
        seat.own.pending[object as usize] = 0;
        seat.own.priorities[object as usize] = 0.0;
        seat.own.unsent.remove(object);
    }

    fn lost(&self, own: &mut Own, _: u32, state: &Channel) {
        own.unsent.insert(state.id.index);
    }

    fn freed(&self, own: &mut Own, _: u32, state: &Channel) {
        // The number may belong to another object by now, which has to be opened like any new object.
        own.leave(state.id.index);
    }

    fn role_changed(&self, own: &mut Own, _: u32, state: &Channel) {
        own.unsent.insert(state.id.index);
    }
}

impl Method {
    /// The connection's objects in this tick: new channels are opened, channels out of scope are closed.
    fn filter_for(&self, world: &World, seat: &mut Seat<Own>) {
        seat.own.grow(world.len());
        let Seat { viewer, own, link, .. } = seat;
        self.filter.see(world, viewer, &mut own.seen);
        for at in 0..own.seen.words() {
            let (seen, before) = (own.seen.word(at), own.scope.word(at));
            if seen | before == 0 {
                continue;
            }
            own.waning.remove_word(at, seen);
            for object in numbers_of(at as u32, seen & !before) {
                if let Some(channel) = link.open(world, object, world.is_owner(object, viewer.id)) {
                    own.enter(object);
                    debug_assert_eq!(link.channel(channel).id.index, object);
                }
            }
            for object in numbers_of(at as u32, before & !seen) {
                if !own.waning.contains(object) {
                    own.waning.insert(object);
                    own.grace[object as usize] = HYSTERESIS_TICKS;
                }
                own.grace[object as usize] -= 1;
                if own.grace[object as usize] == 0 || !world.is_alive(object) {
                    own.leave(object);
                    if let Some(channel) = link.find(object) {
                        link.close(channel);
                    }
                }
            }
        }
    }
}

/// Adds this tick's priority to everything that has something to tell.
fn prioritise(world: &World, seat: &mut Seat<Own>) {
    let Seat { viewer, own, .. } = seat;
    let viewpoint_m = viewer.viewpoint_m.unwrap_or_default();
    for at in 0..own.unsent.words() {
        for object in numbers_of(at as u32, own.unsent.word(at)) {
            own.priorities[object as usize] += priority(world, object, viewpoint_m);
        }
    }
}

/// The priority that an object gains in a tick: 1 in the innermost ring; in the others it makes the object due as often
/// as its ring says.
fn priority(world: &World, object: u32, viewpoint_m: [f32; 3]) -> f32 {
    let Scope::Place(grid) = world.scope(object) else { return DUE };
    let reach = world.reach(grid);
    let interval_ticks = match reach.only_interval_ticks() {
        Some(interval_ticks) => interval_ticks,
        None => reach.interval_ticks(reach.distance2(world.position_m(object), &viewpoint_m)),
    };
    DUE / interval_ticks as f32
}

impl Own {
    fn grow(&mut self, len: usize) {
        if self.pending.len() < len {
            let sets = [&mut self.scope, &mut self.seen, &mut self.waning, &mut self.unsent];
            sets.into_iter().for_each(|bits| bits.grow(len));
            self.grace.resize(len, 0);
            self.pending.resize(len, 0);
            self.priorities.resize(len, 0.0);
        }
    }

    /// Changes of the objects in scope have to be sent.
    fn take_changes(&mut self, dirty: &Bits, changed: &[FieldMask]) {
        for at in 0..self.scope.words().min(dirty.words()) {
            let affected = dirty.word(at) & self.scope.word(at);
            self.unsent.unite_word(at, affected);
            for object in numbers_of(at as u32, affected) {
                self.pending[object as usize] |= changed[object as usize];
            }
        }
    }

    fn enter(&mut self, object: u32) {
        self.scope.insert(object);
        self.unsent.insert(object);
        self.pending[object as usize] = 0;
        // Newcomers do not wait for their turn.
        self.priorities[object as usize] = DUE;
    }

    fn leave(&mut self, object: u32) {
        self.scope.remove(object);
        self.waning.remove(object);
        self.unsent.remove(object);
        self.pending[object as usize] = 0;
        self.priorities[object as usize] = 0.0;
    }

    /// The channels of everything whose priority has come to [`DUE`].
    fn collect_due(&self, world: &World, link: &Link, due: &mut DueList) {
        for object in self.unsent.iter() {
            let priority = self.priorities[object as usize];
            // Thirds and sevenths do not quite add up to a whole.
            if priority >= DUE * 0.999
                && let Some(channel) = link.find(object)
                && link.channel(channel).stage != Stage::Closing
            {
                due.push(channel, priority, world.record_max_bits(link.channel(channel).kind));
            }
        }
    }
}
