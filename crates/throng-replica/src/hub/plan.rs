//! A plan: which subscriptions are due, and the frames that they need.
//!
//! The readers are divided into rows of neighbours, one for each [`Part`] of the work, so that threads can share them:
//!
//! ```text
//!              row 0               row 1          ..
//! register     all rows, in order                     joins and leaves shared views; all who are in none
//! readers      | asks, sleepers    | asks, ..         each row by itself; nobody changes channels or views
//! views        | asks              | asks             the views that some reader of any row takes
//! merge        all rows, in order                     each frame is asked for once, sleepers are noted, views are left
//! ```
//! The same frames are asked for whatever the number of rows. The order differs, and nothing that is sent depends on it: an
//! *ask* has a number of its part, and [`Hub::numbers`] says which request it became.

use throng_wire::Tick;

use super::{
    BESIDE_BYTES, Channel, ChannelState, Due, ENDED_SLEEPERS, Executor, Hub, Inline, Request, SLEEPERS_KEPT, Sleeper,
    Turns,
};
use crate::connection::Ranks;
use crate::frame::{Since, Variant};
use crate::key::ChannelKey;
use crate::reader::{ConnectionSlot, Reader};
use crate::shared_view::SharedViews;

/// So many readers are fetched from memory together. See [`Reader::fetch_plan`].
const GROUP: usize = 16;

/// The same for those that register: in a crowd of shared views few of many do, and all where there are no views.
const REGISTER_GROUP: usize = 128;

/// The channels while readers plan: nobody changes them.
pub(crate) struct Scene<'a, S> {
    channels: &'a [Channel<S>],
    pub(crate) now: Tick,
}

impl<S> Clone for Scene<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Scene<'_, S> {}

impl<'a, S> Scene<'a, S> {
    pub(crate) fn state(self, channel: u32) -> &'a S {
        &self.channels[channel as usize].state
    }

    pub(crate) fn turns(self, channel: u32) -> Turns {
        self.channels[channel as usize].turns
    }

    pub(crate) fn key(self, channel: u32) -> ChannelKey {
        self.channels[channel as usize].key
    }
}

/// The hub as a [`Reader`] sees it while it joins and leaves views.
pub struct Registry<'a, S> {
    channels: &'a mut [Channel<S>],
    pub(crate) views: &'a mut SharedViews,
    pub(crate) now: Tick,
    /// The bytes that may be written to the present reader in this tick.
    pub(crate) allowance_bytes: usize,
}

impl<S> Registry<'_, S> {
    pub(crate) fn scene(&self) -> (Scene<'_, S>, &SharedViews) {
        (Scene { channels: self.channels, now: self.now }, self.views)
    }

    /// The same, when the views are to be changed.
    pub(crate) fn views_mut(&mut self) -> (Scene<'_, S>, &mut SharedViews) {
        (Scene { channels: self.channels, now: self.now }, self.views)
    }

    pub(crate) fn count_subscriber(&mut self, channel: u32) {
        self.channels[channel as usize].subscribers += 1;
    }

    pub(crate) fn leave_view(&mut self, number: u32) {
        leave_view(number, self.channels, self.views);
    }
}

fn leave_view<S>(number: u32, channels: &mut [Channel<S>], views: &mut SharedViews) {
    views.leave(number, |channel| channels[channel as usize].subscribers -= 1);
}

/// A frame that somebody needs.
#[derive(Clone, Copy, Debug)]
struct Ask {
    channel: u32,
    /// One more than the place of the ask before it for the same channel; 0 for none.
    older: u32,
    since: Since,
    variant: Variant,
}

/// The asks of a channel.
#[derive(Clone, Copy, Debug)]
struct Newest {
    /// One more than the place of the newest; 0 for none.
    ask: u32,
    /// The number of the last ask for changes, and its beginning. In a crowd it is what almost everybody asks for.
    usual: u32,
    since: Tick,
}

const NO_ASK: Newest = Newest { ask: 0, usual: 0, since: Tick(u64::MAX) };

/// The things that the plans of one row of readers ask for, and that they change elsewhere.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// Its place among all parts, and their number.
    place: u32,
    count: u32,
    asks: Vec<Ask>,
    /// By channel.
    newest: Vec<Newest>,
    sleepers: Vec<(u32, Sleeper)>,
    /// Views that have lost a member.
    left: Vec<u32>,
    /// By view: how many members take its pieces.
    takers: Vec<u32>,
    /// The views that any do.
    taken: Vec<u32>,
    /// Times a due subscription was given a frame.
    shared: u64,
    /// Readers that were not looked at.
    regular: u64,
    /// Scratch: the subscriptions of one connection that may be due.
    pub(crate) candidates: Vec<u16>,
    /// Scratch: the same by priority.
    pub(crate) ranks: Ranks,
    /// The due subscriptions of streams; those of one stream follow each other.
    dues: Vec<Due>,
}

impl Part {
    fn begin(&mut self, (place, count): (usize, usize), channels: usize, views: usize) {
        (self.place, self.count) = (place as u32, count as u32);
        for ask in self.asks.drain(..) {
            self.newest[ask.channel as usize] = NO_ASK;
        }
        for view in self.taken.drain(..) {
            self.takers[view as usize] = 0;
        }
        self.newest.resize(channels.max(self.newest.len()), NO_ASK);
        self.takers.resize(views.max(self.takers.len()), 0);
        self.dues.clear();
        (self.shared, self.regular) = (0, 0);
    }

    pub(crate) fn dues(&self) -> &[Due] {
        &self.dues
    }

    pub(crate) fn push_due(&mut self, due: Due) {
        self.dues.push(due);
    }

    /// The number of the ask for `(channel, since)` in the form `variant`.
    #[inline]
    pub(crate) fn request(&mut self, channel: u32, since: Since, variant: Variant) -> u32 {
        self.shared += 1;
        self.ask(channel, since, variant) * self.count + self.place
    }

    /// [`Part::request`] for the changes since a tick, in the ordinary form.
    #[inline]
    pub(crate) fn request_changes(&mut self, channel: u32, since: Tick) -> u32 {
        let newest = self.newest[channel as usize];
        if newest.since == since {
            self.shared += 1;
            return newest.usual;
        }
        let usual = self.request(channel, Since::Tick(since), Variant::default());
        let newest = &mut self.newest[channel as usize];
        (newest.usual, newest.since) = (usual, since);
        usual
    }

    /// The same for a view, which is no subscription: its members are counted.
    #[inline]
    pub(crate) fn request_for_view(&mut self, channel: u32, since: Since, variant: Variant) -> u32 {
        self.ask(channel, since, variant) * self.count + self.place
    }

    #[inline]
    fn ask(&mut self, channel: u32, since: Since, variant: Variant) -> u32 {
        let newest = &mut self.newest[channel as usize].ask;
        let mut next = *newest;
        while let Some(place) = next.checked_sub(1) {
            let ask = &self.asks[place as usize];
            if ask.since == since && ask.variant == variant {
                return place;
            }
            next = ask.older;
        }
        self.asks.push(Ask { channel, older: *newest, since, variant });
        *newest = self.asks.len() as u32;
        *newest - 1
    }
}

/// The hub as a [`Reader`] sees it while it plans.
pub struct Planner<'a, S> {
    scene: Scene<'a, S>,
    pub(crate) views: &'a SharedViews,
    pub(crate) part: &'a mut Part,
    pub(crate) now: Tick,
    /// The connection that is being planned.
    connection: u32,
    /// The bytes that may be written to it in this tick.
    pub(crate) allowance_bytes: usize,
}

impl<'a, S: ChannelState> Planner<'a, S> {
    fn new(scene: Scene<'a, S>, views: &'a SharedViews, part: &'a mut Part) -> Planner<'a, S> {
        Planner { scene, views, part, now: scene.now, connection: 0, allowance_bytes: usize::MAX }
    }

    pub(crate) fn scene(&self) -> Scene<'a, S> {
        self.scene
    }

    pub(crate) fn state(&self, channel: u32) -> &'a S {
        self.scene.state(channel)
    }

    pub(crate) fn turns(&self, channel: u32) -> Turns {
        self.scene.turns(channel)
    }

    /// Whether the present connection may be written what a view usually has in a tick.
    pub(crate) fn can_afford(&self, view: u32) -> bool {
        self.allowance_bytes >= self.views.usual_bytes(view) + BESIDE_BYTES
    }

    /// The present connection is a member of this view, and takes its pieces of this tick.
    #[inline]
    pub(crate) fn take_view(&mut self, view: u32) {
        let takers = &mut self.part.takers[view as usize];
        if *takers == 0 {
            self.part.taken.push(view);
        }
        *takers += 1;
    }

    /// The present connection is a member of this view no longer.
    pub(crate) fn leave_view(&mut self, view: u32) {
        self.part.left.push(view);
    }

    /// Remembers to wake a subscription of the present connection when the channel changes.
    pub(crate) fn sleep(&mut self, channel: u32, subscription: u16) {
        self.part.sleepers.push((channel, Sleeper { connection: self.connection, subscription }));
    }

    /// [`Planner::request`] for the changes since a tick, in the ordinary form.
    #[inline]
    pub(crate) fn request_changes(&mut self, channel: u32, since: Tick) -> u32 {
        self.part.request_changes(channel, since)
    }

    /// The number of the ask for `(channel, since)` in the form `variant`.
    pub(crate) fn request(&mut self, channel: u32, since: Since, variant: Variant) -> u32 {
        self.part.request(channel, since, variant)
    }

    fn plan<C: Reader>(&mut self, index: usize, slot: &mut ConnectionSlot<C>, allowances_bytes: &[usize]) {
        self.allowance_bytes = allowances_bytes.get(index).copied().unwrap_or(usize::MAX);
        if slot.regular.plan(self) {
            self.part.regular += 1;
            return;
        }
        self.connection = index as u32;
        if let Some(mut connection) = slot.writer() {
            let regular = connection.plan(self);
            *connection.regular = regular;
        }
    }
}

impl<S: ChannelState, C: Reader> Hub<S, C> {
    /// Decides which subscriptions are due at tick `now`, and asks for the frames that they need.
    ///
    /// `now` must be newer than at the last call.
    pub fn plan(&mut self, now: Tick) {
        self.plan_with(now, &Inline);
    }

    /// The same with the executor's help. The bytes that are sent do not depend on it.
    pub fn plan_with(&mut self, now: Tick, executor: &impl Executor) {
        self.take_back();
        self.wake_sleepers(now);
        self.now = now;
        self.find_due();
        self.register();
        // Readers that say when are few in each plan, and their dues lie one behind the other.
        let count = if C::SAYS_WHEN { 1 } else { executor.parts().max(1) };
        self.parts.resize_with(count, Part::default);
        for (place, part) in self.parts.iter_mut().enumerate() {
            part.begin((place, count), self.channels.len(), self.views.all_mut().len());
        }
        self.plan_readers(executor);
        self.plan_views(executor);
        self.merge();
    }

    /// Takes back the frames of the last plan that nobody holds any more.
    fn take_back(&mut self) {
        self.views.reclaim();
        self.pool.reclaim(2 * self.requests.len() + 64);
        let used = self.pool.lent_count() + self.requests.len();
        for request in self.requests.drain(..) {
            self.pool.take_back(request.frame);
        }
        self.pool.trim(used);
        if !self.saves_memory {
            self.pool.stock_up(|| S::new_frame(false));
        }
    }

    fn register(&mut self) {
        let Hub { channels, views, connections, allowances_bytes, now, .. } = self;
        let mut registry = Registry { channels, views, now: *now, allowance_bytes: usize::MAX };
        for (group, slots) in connections.chunks_mut(REGISTER_GROUP).enumerate() {
            let asking = slots.iter().filter(|slot| slot.regular.asks_at <= *now).filter_map(|slot| slot.reader());
            std::hint::black_box(asking.fold(0, |sum, reader| sum ^ reader.fetch_plan()));
            for (place, slot) in slots.iter_mut().enumerate().filter(|(_, slot)| slot.regular.asks_at <= *now) {
                let index = group * REGISTER_GROUP + place;
                registry.allowance_bytes = allowances_bytes.get(index).copied().unwrap_or(usize::MAX);
                if let Some(mut connection) = slot.writer() {
                    connection.register(&mut registry);
                }
            }
        }
    }

    fn plan_readers(&mut self, executor: &impl Executor) {
        let Hub { channels, views, connections, parts, allowances_bytes, now, visited, .. } = self;
        let (scene, views, allowances_bytes) = (Scene { channels, now: *now }, &*views, &allowances_bytes[..]);
        if C::SAYS_WHEN {
            let mut planner = Planner::new(scene, views, &mut parts[0]);
            for &index in &*visited {
                planner.plan(index as usize, &mut connections[index as usize], allowances_bytes);
            }
            return;
        }
        let row = connections.len().div_ceil(parts.len()).max(1);
        let rows = parts.iter_mut().zip(connections.chunks_mut(row)).enumerate();
        executor.for_each_part(rows, |(place, (part, slots))| {
            let mut planner = Planner::new(scene, views, part);
            for (group, slots) in slots.chunks_mut(GROUP).enumerate() {
                let looked_at = slots.iter().filter(|slot| slot.regular.is_over(scene.now));
                let near = looked_at.filter_map(|slot| slot.reader()).fold(0, |sum, reader| sum ^ reader.fetch_plan());
                std::hint::black_box(near);
                let first = place * row + group * GROUP;
                (first..).zip(slots).for_each(|(index, slot)| planner.plan(index, slot, allowances_bytes));
            }
        });
    }

    /// Plans the views that any reader takes.
    fn plan_views(&mut self, executor: &impl Executor) {
        let Hub { channels, views, parts, now, .. } = self;
        let scene = Scene { channels, now: *now };
        views.release();
        for &view in parts.iter().flat_map(|part| &part.taken) {
            views.begin_plan(view, *now);
        }
        let all = views.all_mut();
        let row = all.len().div_ceil(parts.len()).max(1);
        executor.for_each_part(parts.iter_mut().zip(all.chunks_mut(row)), |(part, views)| {
            views.iter_mut().for_each(|view| view.plan(scene, part));
        });
    }

    /// Brings together what the parts have found.
    fn merge(&mut self) {
        let Hub { channels, views, parts, requests, numbers, pool, disturbed, counters, saves_memory, .. } = self;
        let taken = |part: &Part, view: &u32| u64::from(part.takers[*view as usize]) * views.due_count(*view);
        let by_views = |part: &Part| part.taken.iter().map(|view| taken(part, view)).sum::<u64>();
        counters.frames_shared = parts.iter().map(|part| part.shared + by_views(part)).sum();
        counters.regular_connections = parts.iter().map(|part| part.regular).sum();
        for part in &mut *parts {
            for (channel, sleeper) in part.sleepers.drain(..) {
                note_sleeper((channel, &mut channels[channel as usize]), sleeper, disturbed);
            }
            part.left.drain(..).for_each(|view| leave_view(view, channels, views));
        }
        number(parts, numbers);
        let asks = &parts[0].asks;
        let to_request = |&Ask { channel, since, variant, .. }: &Ask| {
            let frame = pool.take(channels[channel as usize].state.is_large(), || S::new_frame(*saves_memory));
            Request { channel, since, variant, frame }
        };
        requests.extend(asks.iter().map(to_request));
        counters.frames_encoded = requests.len() as u64;
        counters.channels_encoded = asks.iter().filter(|ask| ask.older == 0).count() as u64;
    }
}

/// Gives the asks of all parts their places among the requests: those of the first part are there in the end, each once.
fn number(parts: &mut [Part], numbers: &mut Vec<u32>) {
    let (longest, count) = (parts.iter().map(|part| part.asks.len()).max().unwrap_or(0), parts.len());
    numbers.clear();
    numbers.resize(longest * count, 0);
    let Some((first, others)) = parts.split_first_mut() else { return };
    for place in 0..first.asks.len() {
        numbers[place * count] = place as u32;
    }
    for (part, other) in (1..).zip(others) {
        for (place, ask) in other.asks.iter().enumerate() {
            numbers[place * count + part] = first.ask(ask.channel, ask.since, ask.variant);
        }
    }
}

fn note_sleeper<S>((index, slot): (u32, &mut Channel<S>), sleeper: Sleeper, disturbed: &mut Vec<u32>) {
    if slot.sleepers.len() == slot.sleepers.capacity() {
        // For as many as there may be before those that have ended are cleared away, if these are not very many.
        let all = 2 * slot.subscribers as usize + ENDED_SLEEPERS + 1;
        slot.sleepers.reserve(all.min(SLEEPERS_KEPT.max(slot.sleepers.len() / 2)));
    }
    slot.sleepers.push(sleeper);
    let many = slot.sleepers.len() > 2 * slot.subscribers as usize + ENDED_SLEEPERS;
    if many && !std::mem::replace(&mut slot.disturbed, true) {
        disturbed.push(index);
    }
}
