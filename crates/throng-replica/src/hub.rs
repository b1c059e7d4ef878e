//! Channels, their frames of this tick, and the connections that read them; generic over what a channel holds.
//!
//! ```text
//!  plan(now)    each connection: which subscriptions are due -> requests (channel, since), each once
//!                                                               (parallel over connections)
//!  encode()     each request: one frame, shared by all who asked (parallel over requests)
//!  writers()    each connection: copy segments into packets    (parallel over connections)
//! ```

mod plan;
mod rows;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use throng_wire::{ConnectionId, Tick};

use crate::agenda::Agenda;
use crate::connection::{Connection, SubscriptionId};
use crate::frame::{Frame, FramePool, Since, Variant};
use crate::key::ChannelKey;
use crate::limits::{HubLimits, LimitReached};
use crate::reader::{ConnectionSlot, Reader, Regular};
use crate::shared_view::SharedViews;
pub(crate) use plan::Part;
pub(crate) use plan::Scene;
pub use plan::{Planner, Registry};

/// The state of a channel: a log of changes that can be asked for everything since a tick.
///
/// The one duty that keeps sharing safe: what [`encode`](ChannelState::encode) writes depends on the state, `since`,
/// the variant and `now` alone, never on who asks.
pub trait ChannelState: Send + Sync {
    /// The data that the state needs while it encodes.
    type Context: Sync;

    /// The tick of the newest change.
    fn last_change(&self) -> Tick;

    /// Whether something has changed after `since` that `writer` has not written itself. Without writers, that is every change.
    fn has_news_for(&self, writer: u32, since: Tick) -> bool {
        let _ = writer;
        self.last_change().is_newer_than(since)
    }

    /// A reader at or after this tick can be served with the changes only; a reader before it needs everything.
    fn horizon(&self) -> Tick;

    /// For how many ticks a slot of the channel keeps its meaning after its occupant has gone. A subscription that has
    /// something undelivered from before that time gets no new frame until it is delivered: otherwise an update could
    /// be taken for one of the slot's former occupant. `u32::MAX` where nothing is ever reused. The same for all channels
    /// that shared views may serve; they serve no subscription with an interval of more than half of it.
    fn retention_ticks(&self) -> u32;

    /// Whether there is nothing to send to a new reader.
    fn is_empty(&self) -> bool;

    /// Whether a removal has been forgotten: then a reader before the horizon may keep the removed object for ever, and
    /// a complete frame does not help it.
    fn has_forgotten(&self) -> bool {
        false
    }

    /// The newest tick in which so much came at once that no reader should receive it twice, if there was one.
    fn last_rush(&self) -> Option<Tick> {
        None
    }

    /// A frame with room for what the state usually writes, so that frames do not grow one by one while the world plays; with
    /// less if the hub [saves memory](Hub::saves_memory).
    fn new_frame(saves_memory: bool) -> Frame {
        let _ = saves_memory;
        Frame::default()
    }

    /// The frame for a reader at `since`, which is before the horizon: its beginning, and its form. Everything, unless
    /// the state can do with less.
    fn catch_up(&self, since: Tick) -> (Since, Variant) {
        let _ = since;
        (Since::Start, Variant::default())
    }

    /// Whether its frames are long: such frames are kept apart, so that not all in use grow to the size of the longest.
    fn is_large(&self) -> bool {
        false
    }

    /// Writes the changes in `(since, now]`, or everything, into an empty frame. [`Frame::variant`] says in which form.
    fn encode(&self, context: &Self::Context, since: Since, now: Tick, frame: &mut Frame);

    /// Whether everything that segment `segment` of `frame` says will be, or has been, said again by a later frame.
    fn is_superseded(&self, context: &Self::Context, frame: &Frame, segment: usize) -> bool;
}

/// Runs independent jobs, in any order, on any number of threads, and returns when all are done.
///
/// The core knows no threads: who embeds it decides.
pub trait Executor {
    /// Calls `job` once for each item.
    fn for_each<T: Send, F: Fn(&mut T) + Send + Sync>(&self, items: &mut [T], job: F);

    /// Into how many parts a table is divided for [`for_each_part`](Self::for_each_part), at least 1.
    fn parts(&self) -> usize {
        1
    }

    /// Calls `job` once for each part of a table, of which there are at most [`parts`](Self::parts). A
    /// caller that divides the same table again should make the same rows, so that each stays in the cache of one core.
    fn for_each_part<T: Send>(&self, parts: impl Iterator<Item = T>, job: impl Fn(T) + Copy + Send) {
        parts.for_each(job);
    }
}

/// The executor that does everything in the calling thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline;

impl Executor for Inline {
    fn for_each<T: Send, F: Fn(&mut T) + Send + Sync>(&self, items: &mut [T], job: F) {
        items.iter_mut().for_each(job);
    }
}

/// A channel of a hub, valid until the channel is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelIndex(pub(crate) u32);

impl ChannelIndex {
    /// The index of the channel, for tables beside the hub's. Indices are small, and used again after a removal.
    pub fn number(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
pub(crate) struct Channel<S> {
    pub(crate) key: ChannelKey,
    pub(crate) state: S,
    pub(crate) turns: Turns,
    pub(crate) subscribers: u32,
    in_use: bool,
    /// The state may have changed since the last plan, and a subscription sleeps here.
    disturbed: bool,
    sleepers: Vec<Sleeper>,
}

impl<S> Channel<S> {
    /// Nobody sleeps here any more.
    fn forget_sleepers(&mut self, saves_memory: bool) {
        match saves_memory {
            true => self.sleepers = Vec::new(),
            false => self.sleepers.clear(),
        }
    }
}

/// A subscription that had everything at its last turn and is not looked at again before the channel changes. It may
/// have ended meanwhile: ask [`Connection::is_asleep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sleeper {
    connection: u32,
    subscription: u16,
}

/// Bytes of a tick that a member of a view needs beside the view's.
pub(crate) const BESIDE_BYTES: usize = 64;

/// If memory is saved, a channel without sleepers keeps that of so many: the cells beyond a crowd's edge are empty and have a
/// thousand, until somebody comes.
const SLEEPERS_KEPT: usize = 256;

/// Sleepers that have ended are cleared away when there are more than twice as many as subscribers, and at least this
/// many.
const ENDED_SLEEPERS: usize = 16;

/// One frame to be encoded.
#[derive(Debug)]
pub(crate) struct Request {
    channel: u32,
    since: Since,
    variant: Variant,
    pub(crate) frame: Arc<Frame>,
}

/// All channels and connections of a server. See the module's page for the order of calls.
///
/// `C` is the kind of path that frames take to the connections: packets that may be lost ([`Connection`]) or an ordered
/// stream ([`Stream`](crate::Stream)).
#[derive(Debug)]
pub struct Hub<S, C = Connection> {
    channels: Vec<Channel<S>>,
    free: Vec<u32>,
    by_key: FxHashMap<ChannelKey, u32>,
    connections: Vec<ConnectionSlot<C>>,
    /// The slots without a connection. [`Hub::connect`] takes the first, so that connections lie close together.
    free_slots: BTreeSet<u32>,
    requests: Vec<Request>,
    /// The place in `requests` of each frame that was asked for in this tick.
    numbers: Vec<u32>,
    views: SharedViews,
    /// Channels whose sleepers must be looked at.
    disturbed: Vec<u32>,
    pool: FramePool,
    limits: HubLimits,
    /// See [`ReplicatorOptions::saves_memory`](crate::ReplicatorOptions::saves_memory).
    pub(crate) saves_memory: bool,
    now: Tick,
    counters: HubCounters,
    /// The channel that the sweep looked at last.
    swept: usize,
    /// Channels that were made since the last sweep.
    made: usize,
    /// The bytes that may be written to each connection in the coming tick, by its index.
    allowances_bytes: Vec<usize>,
    /// Connections of which something was lost since the last review, by index.
    resending: Vec<u32>,
    /// The work of the last plan, one for each row of connections. At least one.
    parts: Vec<Part>,
    /// When readers have to be planned, if they say so ([`Reader::SAYS_WHEN`]).
    agenda: Agenda,
    /// The readers that the last plan has visited because their time had come, in their order.
    visited: Vec<u32>,
}

/// A subscription of a stream that has its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) number: u16,
    pub(crate) request: u32,
}

/// When the subscriptions of a channel have their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// Where the turns of an interval lie: differs between channels, so that these spread over ticks.
    pub(crate) phase: u32,
    /// Turns happen at multiples of this many ticks only; 1 for any tick.
    pub(crate) grid_ticks: u32,
}

/// The counters of the hub, in all and for this tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HubCounters {
    /// Frames encoded this tick.
    pub frames_encoded: u64,
    /// Times a subscription was due and was given a frame this tick; divided by the above: how well sharing works.
    pub frames_shared: u64,
    /// Channels for which at least one frame was encoded this tick.
    pub channels_encoded: u64,
    /// Bytes of the frames encoded this tick.
    pub frame_bytes: u64,
    /// Connections that this tick's plan did not look at, because they want nothing but what their view has.
    pub regular_connections: u64,
    /// Subscriptions refused because a limit was reached, since the start.
    pub limit_reached: u64,
}

/// Shared data of the writers: the frames of this tick.
#[derive(Debug)]
pub struct Outgoing<'a, S> {
    pub(crate) channels: &'a [Channel<S>],
    requests: &'a [Request],
    numbers: &'a [u32],
    pub(crate) views: &'a SharedViews,
    dues: &'a [Due],
    pub(crate) now: Tick,
}

impl<S> Clone for Outgoing<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Outgoing<'_, S> {}

impl<'a, S> Outgoing<'a, S> {
    /// The content of a channel.
    pub fn state(&self, channel: ChannelIndex) -> &'a S {
        &self.channels[channel.0 as usize].state
    }

    pub(crate) fn frame(&self, request: u32) -> &'a Arc<Frame> {
        &self.requests[self.numbers[request as usize] as usize].frame
    }

    /// The part of one stream.
    pub(crate) fn dues(&self, part: &Range<u32>) -> &'a [Due] {
        &self.dues[part.start as usize..part.end as usize]
    }
}

impl<S: ChannelState, C: Reader> Hub<S, C> {
    /// A hub without channels and connections, at tick `now`.
    pub fn new(limits: HubLimits, now: Tick) -> Hub<S, C> {
        Hub {
            channels: Vec::new(),
            free: Vec::new(),
            by_key: FxHashMap::default(),
            connections: Vec::new(),
            free_slots: BTreeSet::new(),
            requests: Vec::new(),
            numbers: Vec::new(),
            views: SharedViews::default(),
            disturbed: Vec::new(),
            pool: FramePool::default(),
            limits,
            saves_memory: true,
            now,
            counters: HubCounters::default(),
            swept: 0,
            made: 0,
            allowances_bytes: Vec::new(),
            resending: Vec::new(),
            parts: vec![Part::default()],
            agenda: Agenda::new(now),
            visited: Vec::new(),
        }
    }

    /// The tick of the last [`Hub::plan`].
    pub fn now(&self) -> Tick {
        self.now
    }

    /// The work so far.
    pub fn counters(&self) -> HubCounters {
        self.counters
    }

    /// Number of channels that exist.
    pub fn channel_count(&self) -> usize {
        self.channels.len() - self.free.len()
    }

    /// Frames that some packet or connection may still need.
    pub fn frames_held(&self) -> usize {
        self.pool.lent_count()
    }

    /// Subscriptions that sleep until their channel changes.
    pub fn sleeper_count(&self) -> usize {
        self.channels.iter().map(|channel| channel.sleepers.len()).sum()
    }

    /// The channel with this key, made by `state` if there is none yet.
    pub fn channel_or_insert(
        &mut self,
        key: ChannelKey,
        state: impl FnOnce() -> S,
    ) -> Result<ChannelIndex, LimitReached> {
        if let Some(&index) = self.by_key.get(&key) {
            return Ok(ChannelIndex(index));
        }
        let channel = || Channel {
            key,
            state: state(),
            turns: Turns { phase: key.phase(), grid_ticks: 1 },
            subscribers: 0,
            in_use: true,
            disturbed: false,
            sleepers: Vec::new(),
        };
        let index = match self.free.pop() {
            Some(index) => {
                let slot = &mut self.channels[index as usize];
                let sleepers = std::mem::take(&mut slot.sleepers);
                *slot = Channel { sleepers, ..channel() };
                index
            }
            None if self.channels.len() < self.limits.channels => {
                self.channels.push(channel());
                // Room for all of them, so that no tick has to make it.
                self.disturbed.reserve(self.channels.len() - self.disturbed.len().min(self.channels.len()));
                self.channels.len() as u32 - 1
            }
            None => {
                self.counters.limit_reached += 1;
                return Err(LimitReached::Channels(self.limits.channels));
            }
        };
        self.by_key.insert(key, index);
        self.made = self.made.saturating_add(1);
        Ok(ChannelIndex(index))
    }

    /// The channel with this key.
    pub fn find(&self, key: ChannelKey) -> Option<ChannelIndex> {
        self.by_key.get(&key).map(|&index| ChannelIndex(index))
    }

    /// The channel's state.
    pub fn state(&self, channel: ChannelIndex) -> &S {
        &self.channels[channel.0 as usize].state
    }

    /// The channel's state, mutable.
    pub fn state_mut(&mut self, channel: ChannelIndex) -> &mut S {
        let slot = &mut self.channels[channel.0 as usize];
        if !slot.sleepers.is_empty() && !std::mem::replace(&mut slot.disturbed, true) {
            self.disturbed.push(channel.0);
        }
        &mut slot.state
    }

    /// The state of all channels, for changes that subscribers do not have to receive.
    pub fn states_quietly_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.channels.iter_mut().filter(|channel| channel.in_use).map(|channel| &mut channel.state)
    }

    /// The channels that a connection subscribes to.
    pub fn channels_of(&self, id: ConnectionId) -> impl Iterator<Item = ChannelIndex> + '_ {
        self.connection(id).into_iter().flat_map(|reader| reader.open_channels()).map(ChannelIndex)
    }

    /// Lets subscriptions of the channel have turns at multiples of `grid_ticks` only (streams; packets have phases).
    pub fn set_turn_grid(&mut self, channel: ChannelIndex, grid_ticks: u32) {
        self.channels[channel.0 as usize].turns.grid_ticks = grid_ticks.max(1);
    }

    /// Whether a channel in which a subscription waits for a change may have changed since the last plan.
    pub fn is_disturbed(&self) -> bool {
        !self.disturbed.is_empty()
    }

    pub(crate) fn turns(&self, channel: ChannelIndex) -> Turns {
        self.channels[channel.0 as usize].turns
    }

    /// Whether lists that are needed only now and then are given back in between. A hub does so, unless its replicator says otherwise:
    /// [`ReplicatorOptions::saves_memory`](crate::ReplicatorOptions::saves_memory).
    pub fn saves_memory(&self) -> bool {
        self.saves_memory
    }

    pub(crate) fn limits(&self) -> HubLimits {
        self.limits
    }

    /// Whether connections may become members of shared views; they may from the start. Clients end with the same state
    /// in any case.
    pub fn set_view_sharing(&mut self, is_on: bool) {
        if self.views.is_off == is_on {
            self.views.is_off = !is_on;
            self.connections.iter_mut().for_each(|slot| slot.regular.until = Tick(0));
        }
    }

    /// Shared views with members, and the bytes of memory that all take, about.
    pub fn shared_views(&self) -> (usize, usize) {
        (self.views.count(), self.views.memory_bytes())
    }

    pub(crate) fn readers_mut(&mut self) -> impl Iterator<Item = &mut C> {
        let agenda = &mut self.agenda;
        self.connections.iter_mut().enumerate().filter_map(|(index, slot)| {
            if C::SAYS_WHEN {
                agenda.touch(index as u32);
            }
            slot.changing()
        })
    }

    /// The first tick whose plan has to visit some reader.
    pub(crate) fn next_plan(&self) -> Option<Tick> {
        self.agenda.first(|reader| next_plan(&self.connections, reader))
    }

    pub(crate) fn count_subscriber(&mut self, channel: u32, change: i32) {
        let subscribers = &mut self.channels[channel as usize].subscribers;
        *subscribers = subscribers.wrapping_add_signed(change);
    }

    pub(crate) fn refuse(&mut self, limit: LimitReached) -> LimitReached {
        self.counters.limit_reached += 1;
        limit
    }

    /// The channel's key.
    pub fn key(&self, channel: ChannelIndex) -> ChannelKey {
        self.channels[channel.0 as usize].key
    }

    /// Number of open subscriptions of a channel.
    pub fn subscriber_count(&self, channel: ChannelIndex) -> u32 {
        self.channels[channel.0 as usize].subscribers
    }

    /// Checks the next `count` channels, going round, and removes those without subscribers for which `removable` says
    /// that they are empty. It checks twice as many as were made since the last call, if that is more. So in one round no more
    /// than half of the table is made anew, and the table does not grow for ever.
    pub fn sweep(&mut self, count: usize, removable: impl Fn(&S) -> bool) {
        let made = std::mem::take(&mut self.made);
        for _ in 0..count.max(made.saturating_mul(2)).min(self.channels.len()) {
            self.swept = (self.swept + 1) % self.channels.len();
            let channel = &mut self.channels[self.swept];
            if channel.in_use && channel.subscribers == 0 && removable(&channel.state) {
                channel.in_use = false;
                channel.forget_sleepers(self.saves_memory);
                self.by_key.remove(&channel.key);
                self.free.push(self.swept as u32);
            }
        }
    }

    /// Removes a channel without subscribers; its index may be used for another.
    ///
    /// # Panics
    /// If it has subscribers.
    pub fn remove(&mut self, channel: ChannelIndex) {
        let slot = &mut self.channels[channel.0 as usize];
        assert_eq!(slot.subscribers, 0, "a channel with subscribers is not removed");
        if std::mem::replace(&mut slot.in_use, false) {
            slot.forget_sleepers(self.saves_memory);
            self.by_key.remove(&slot.key);
            self.free.push(channel.0);
        }
    }

    /// All keys with their channels, in no particular order.
    pub fn channels(&self) -> impl Iterator<Item = (ChannelKey, ChannelIndex)> + '_ {
        self.by_key.iter().map(|(&key, &index)| (key, ChannelIndex(index)))
    }

    /// Makes room for a connection.
    pub fn connect(&mut self) -> Result<ConnectionId, LimitReached> {
        let index = match self.free_slots.first() {
            Some(&index) => index as usize,
            None if self.connections.len() < self.limits.connections => self.connections.len(),
            None => {
                self.counters.limit_reached += 1;
                return Err(LimitReached::Connections(self.limits.connections));
            }
        };
        Ok(self.connect_at(index))
    }

    /// Makes room for a connection in slot `index`, so that the caller's own tables have the same numbers.
    ///
    /// # Panics
    /// If the slot is taken.
    pub fn connect_at(&mut self, index: usize) -> ConnectionId {
        if self.connections.len() <= index {
            self.free_slots.extend(self.connections.len() as u32..index as u32);
            self.connections.resize_with(index + 1, ConnectionSlot::default);
        }
        self.free_slots.remove(&(index as u32));
        let slot = &mut self.connections[index];
        assert!(slot.connection.is_none(), "connection slot {index} is taken");
        slot.generation = slot.generation.wrapping_add(1);
        slot.connection = Some(Box::new(C::new(self.limits.subscriptions_per_connection, self.saves_memory)));
        slot.regular = Regular::default();
        if C::SAYS_WHEN {
            self.agenda.touch(index as u32);
        }
        if let Some(allowance_bytes) = self.allowances_bytes.get_mut(index) {
            *allowance_bytes = usize::MAX;
        }
        ConnectionId { index: index as u32, generation: slot.generation }
    }

    /// Forgets a connection and all its subscriptions.
    pub fn disconnect(&mut self, id: ConnectionId) {
        let Some(connection) = self.connection_mut(id) else { return };
        let channels: Vec<u32> = connection.open_channels().collect();
        let slot = &mut self.connections[id.index as usize];
        let connection = slot.connection.take();
        slot.regular = Regular::default();
        self.free_slots.insert(id.index);
        let viewed = connection.map(|mut connection| connection.leave(&mut self.views)).unwrap_or_default();
        for channel in channels.into_iter().chain(viewed) {
            self.channels[channel as usize].subscribers -= 1;
        }
    }

    /// The connection of that name, if it is still there.
    pub fn connection(&self, id: ConnectionId) -> Option<&C> {
        let slot = self.connections.get(id.index as usize)?;
        slot.reader().filter(|_| slot.generation == id.generation)
    }

    /// The connection of that name, if it is still there.
    pub fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut C> {
        // The agenda makes room for each reader that it hears of: only for those that exist.
        let slot = self.connections.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        if C::SAYS_WHEN {
            self.agenda.touch(id.index);
        }
        slot.changing()
    }

    /// The connection of that name, for a change that its next plan need not know.
    pub(crate) fn connection_quietly_mut(&mut self, id: ConnectionId) -> Option<&mut C> {
        self.slot_mut(id)?.connection.as_deref_mut()
    }

    fn slot_mut(&mut self, id: ConnectionId) -> Option<&mut ConnectionSlot<C>> {
        self.connections.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation)
    }

    /// Finds the readers that this plan has to visit.
    fn find_due(&mut self) {
        if !C::SAYS_WHEN {
            return;
        }
        for &index in &self.visited {
            if let Some(reader) = &mut self.connections[index as usize].connection {
                reader.forget_due();
            }
        }
        let connections = &self.connections;
        self.agenda.take_due(self.now, |reader| next_plan(connections, reader), &mut self.visited);
        // They are changed now, and again when their frames are taken.
        for &index in &self.visited {
            self.agenda.touch(index);
        }
    }

    /// Wakes the sleeping subscriptions of channels that have changed since the last plan.
    fn wake_sleepers(&mut self, now: Tick) {
        for index in self.disturbed.drain(..) {
            let channel = &mut self.channels[index as usize];
            channel.disturbed = false;
            let has_changed = channel.state.last_change().is_newer_than(self.now);
            // A change may be dated later than the plan.
            let changed_at = channel.state.last_change().min(now);
            channel.sleepers.sort_unstable();
            channel.sleepers.dedup();
            channel.sleepers.retain(|&Sleeper { connection: reader, subscription }| {
                let slot = self.connections.get_mut(reader as usize);
                let Some(connection) = slot.and_then(ConnectionSlot::changing) else { return false };
                let is_asleep = connection.is_asleep(subscription, index);
                if is_asleep && has_changed {
                    if C::SAYS_WHEN {
                        self.agenda.touch(reader);
                    }
                    connection.wake(subscription, self.now, changed_at, channel.turns);
                }
                let stays = is_asleep && !has_changed;
                if !stays {
                    connection.forget_sleep(subscription, index);
                }
                stays
            });
            if channel.sleepers.capacity() > SLEEPERS_KEPT && channel.sleepers.is_empty() {
                channel.forget_sleepers(self.saves_memory);
            }
        }
    }

    /// Encodes the frames that [`Hub::plan`] asked for.
    pub fn encode(&mut self, context: &S::Context, executor: &impl Executor) {
        let (channels, now) = (&self.channels, self.now);
        executor.for_each(&mut self.requests, |request| {
            let frame = Arc::get_mut(&mut request.frame).expect("a frame just taken from the pool has one owner");
            frame.tick = now;
            frame.variant = request.variant;
            channels[request.channel as usize].state.encode(context, request.since, now, frame);
        });
        let requests = &self.requests;
        let numbers = &self.numbers;
        executor.for_each(self.views.all_mut(), |view| view.write((requests, numbers), now));
        self.counters.frame_bytes = self.requests.iter().map(|request| request.frame.bytes.len() as u64).sum();
    }

    /// How much may be written to a connection in the coming tick: the next plan asks for no more frames than that needs,
    /// in order of priority. 0 for none at all. Without it, everything that is due is asked for.
    pub fn set_allowance(&mut self, id: ConnectionId, bytes: usize) {
        let index = id.index as usize;
        if self.allowances_bytes.len() <= index {
            self.allowances_bytes.resize(index + 1, usize::MAX);
        }
        self.allowances_bytes[index] = bytes;
    }

    /// The state behind each frame that the last plan asks for: what [`encode`](Hub::encode) will have to look at.
    pub fn asked_for(&self) -> impl Iterator<Item = &S> + '_ {
        self.requests.iter().map(|request| &self.channels[request.channel as usize].state)
    }

    /// The frames of this tick, and the connections to write them to: split so that connections can be shared out to
    /// threads.
    pub fn writers(&mut self) -> (Outgoing<'_, S>, &mut [ConnectionSlot<C>]) {
        let Hub { channels, requests, numbers, views, parts, now, .. } = self;
        let outgoing = Outgoing { channels, requests, numbers, views, dues: parts[0].dues(), now: *now };
        (outgoing, &mut self.connections)
    }

    /// The same for the connections that the last plan has visited alone, each with its index, in their order. For
    /// readers that [say when](Reader::SAYS_WHEN) they have to be planned.
    pub fn visited_writers(&mut self) -> (Outgoing<'_, S>, impl Iterator<Item = (usize, &mut ConnectionSlot<C>)>) {
        let Hub { channels, requests, numbers, views, parts, now, connections, visited, .. } = self;
        let outgoing = Outgoing { channels, requests, numbers, views, dues: parts[0].dues(), now: *now };
        let (mut rest, mut begin) = (connections.as_mut_slice(), 0);
        let slots = visited.iter().map_while(move |&index| {
            let index = index as usize;
            let (_, tail) = std::mem::take(&mut rest).split_at_mut_checked(index.checked_sub(begin)?)?;
            let (slot, tail) = tail.split_first_mut()?;
            (rest, begin) = (tail, index + 1);
            Some((index, slot))
        });
        (outgoing, slots)
    }
}

/// When a reader has to be planned, if it is there.
fn next_plan<C: Reader>(connections: &[ConnectionSlot<C>], reader: u32) -> Option<Tick> {
    connections.get(reader as usize)?.connection.as_ref()?.next_plan()
}

impl<S: ChannelState> Hub<S> {
    /// Calls `each` for each channel that somebody is subscribed to, with the shortest interval. Takes a look at all
    /// subscriptions.
    pub fn intervals(&self, mut each: impl FnMut(ChannelIndex, u16)) {
        // 0 where nobody is subscribed: no interval is 0.
        let mut shortest = vec![0; self.channels.len()];
        for connection in self.connections.iter().filter_map(ConnectionSlot::reader) {
            for (channel, interval_ticks) in connection.intervals() {
                let known = &mut shortest[channel as usize];
                *known = if *known == 0 { interval_ticks } else { interval_ticks.min(*known) };
            }
        }
        for (index, interval_ticks) in (0..).zip(shortest).filter(|(_, interval_ticks)| *interval_ticks > 0) {
            each(ChannelIndex(index), interval_ticks);
        }
    }

    /// Subscribes a connection to a channel: every `interval_ticks` ticks it is sent what changed. The first frame,
    /// with everything, is due at once.
    ///
    /// `weight` raises the subscription's priority when the budget is short; 1 is ordinary. A connection has at most one
    /// subscription of a channel: two would be at odds over who lives there.
    pub fn subscribe(
        &mut self,
        id: ConnectionId,
        channel: ChannelIndex,
        interval_ticks: u16,
        weight: u8,
    ) -> Result<SubscriptionId, LimitReached> {
        if self.connection(id).is_some_and(|connection| connection.is_subscribed(channel.0)) {
            return Err(LimitReached::Subscribed);
        }
        self.subscribe_unseen(id, channel, interval_ticks, weight)
    }

    /// [`subscribe`](Hub::subscribe) for callers who know that the connection has no open subscription of the channel. To
    /// find that out takes a look at all that it has.
    pub fn subscribe_unseen(
        &mut self,
        id: ConnectionId,
        channel: ChannelIndex,
        interval_ticks: u16,
        weight: u8,
    ) -> Result<SubscriptionId, LimitReached> {
        let (opened, key) = (self.now.after(1), self.key(channel));
        let retention_ticks = self.state(channel).retention_ticks();
        let Some(connection) = self.connection_mut(id) else { return Err(LimitReached::UnknownConnection) };
        match connection.open((channel, key), retention_ticks, interval_ticks, weight, opened) {
            Ok(subscription) => {
                self.channels[channel.0 as usize].subscribers += 1;
                Ok(subscription)
            }
            Err(error) => {
                self.counters.limit_reached += 1;
                Err(error)
            }
        }
    }

    /// Ends a subscription. The end is sent to the client, again and again until the client has acknowledged it.
    pub fn unsubscribe(&mut self, id: ConnectionId, subscription: SubscriptionId) {
        let Some(connection) = self.connection_mut(id) else { return };
        if let Some(channel) = connection.unsubscribe(subscription) {
            self.channels[channel as usize].subscribers -= 1;
        }
    }

    /// The slots of all connections by index, to divide among threads: see [`ConnectionSlot::delivered`].
    pub fn slots(&mut self) -> &mut [ConnectionSlot] {
        &mut self.connections
    }

    /// A packet has arrived.
    pub fn delivered(&mut self, id: ConnectionId, sequence: u64) {
        if let Some(connection) = self.connection_quietly_mut(id) {
            connection.delivered(sequence);
        }
    }

    /// A packet counts as lost: segments that are not outdated are sent again.
    pub fn lost(&mut self, context: &S::Context, id: ConnectionId, sequence: u64) {
        let slot = self.connections.get_mut(id.index as usize).filter(|slot| slot.generation == id.generation);
        let Some(connection) = slot.and_then(ConnectionSlot::changing) else { return };
        let channels = &self.channels;
        let had_resends = connection.has_resends();
        connection.lost(sequence, self.now, |channel, frame, segment| {
            channels[channel as usize].state.is_superseded(context, frame, segment)
        });
        if !had_resends && connection.has_resends() {
            self.resending.push(id.index);
        }
    }

    /// Forgets what was lost and waits to be sent again where it has been overtaken since. To be called before each
    /// [`plan`](Hub::plan).
    pub fn review(&mut self, context: &S::Context) {
        let (channels, connections) = (&self.channels, &mut self.connections);
        self.resending.retain(|&index| {
            let slot = connections.get_mut(index as usize);
            let Some(connection) = slot.and_then(ConnectionSlot::changing) else { return false };
            connection.review_resends(|channel, frame, segment| {
                channels[channel as usize].state.is_superseded(context, frame, segment)
            });
            connection.has_resends()
        });
    }
}
