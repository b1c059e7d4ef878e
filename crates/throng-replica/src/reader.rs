//! A connection as the hub sees it: a reader in a slot, which the hub's plan passes over while the reader is regular.

use std::ops::{Deref, DerefMut};

use throng_wire::Tick;

use crate::connection::Connection;
use crate::hub::{ChannelState, Planner, Registry, Turns};
use crate::send_ticks::SendTicks;
use crate::shared_view::SharedViews;

/// The subscriptions of one connection, as the hub sees them: whatever the way is on which frames travel.
pub trait Reader: Send {
    /// A connection without subscriptions that may have `limit` of them. If it `saves_memory`, it gives back what it does not
    /// need for a while.
    fn new(limit: usize, saves_memory: bool) -> Self;

    /// Whether [`next_plan`](Self::next_plan) says when a reader has to be planned. Then plans visit no others; readers
    /// that do not say so are visited by each plan.
    const SAYS_WHEN: bool = false;

    /// The first tick whose plan has to visit it. `None` for none, as long as nothing about it changes.
    fn next_plan(&self) -> Option<Tick> {
        Some(Tick(0))
    }

    /// Forgets what the last plan has found and nobody has taken.
    fn forget_due(&mut self) {}

    /// The channel of each open subscription.
    fn open_channels(&self) -> impl Iterator<Item = u32> + '_;

    /// Joins and leaves shared views, before any reader [plans](Self::plan). Called for readers that have changed, and for
    /// those that are in no view.
    fn register<S: ChannelState>(&mut self, registry: &mut Registry<'_, S>) {
        let _ = registry;
    }

    /// Reads a little of every part that a plan looks at, so that the processor fetches those of many readers at once. The
    /// value means nothing.
    fn fetch_plan(&self) -> u64 {
        0
    }

    /// Asks for the frames of the subscriptions that are due. Returns what later plans can do without it.
    fn plan<S: ChannelState>(&mut self, planner: &mut Planner<'_, S>) -> Regular;

    /// Its view was planned for it at `tick`, without a call of [`plan`](Reader::plan).
    fn take_up(&mut self, tick: Tick) {
        let _ = tick;
    }

    /// If everything that was planned is written: until when nothing that was written to it becomes too old.
    fn written_until(&self) -> Option<Tick> {
        None
    }

    /// The connection ends, and leaves its shared view. Returns the channels of one that has no members any more.
    fn leave(&mut self, views: &mut SharedViews) -> Vec<u32> {
        let _ = views;
        Vec::new()
    }

    /// Whether subscription `number` waits for `channel` to change.
    fn is_asleep(&self, number: u16, channel: u32) -> bool;

    /// The channel does not remember any more that subscription `number` waits for it to change.
    fn forget_sleep(&mut self, number: u16, channel: u32) {
        let _ = (number, channel);
    }

    /// The channel has changed since `unchanged_at`; its last change was at `changed_at`. The subscription had everything at
    /// `unchanged_at`. It takes part in the first turn of its class from `changed_at` on. If the plan comes after that turn, the
    /// subscription has its turn with this plan.
    fn wake(&mut self, number: u16, unchanged_at: Tick, changed_at: Tick, turns: Turns);
}

/// The slot of one connection, with or without a connection in it. Slots lie side by side; the connections themselves lie
/// elsewhere, so that a plan need not fetch those that want nothing but what their view has.
#[derive(Debug)]
pub struct ConnectionSlot<C = Connection> {
    pub(crate) generation: u32,
    pub(crate) regular: Regular,
    pub(crate) connection: Option<Box<C>>,
}

impl ConnectionSlot {
    /// A packet of the connection that lives here has arrived, as in [`Hub::delivered`](crate::Hub::delivered).
    pub fn delivered(&mut self, sequence: u64) {
        if let Some(connection) = &mut self.connection {
            connection.delivered(sequence);
        }
    }
}

impl<C> Default for ConnectionSlot<C> {
    fn default() -> ConnectionSlot<C> {
        ConnectionSlot { generation: 0, regular: Regular::default(), connection: None }
    }
}

impl<C: Reader> ConnectionSlot<C> {
    /// The connection that lives here, if any.
    pub fn reader(&self) -> Option<&C> {
        self.connection.as_deref()
    }

    /// The same, to write to it.
    #[inline]
    pub fn writer(&mut self) -> Option<Writer<'_, C>> {
        let ConnectionSlot { regular, connection, .. } = self;
        let connection = connection.as_deref_mut()?;
        if let Some(tick) = regular.untaken.take() {
            connection.take_up(tick);
        }
        Some(Writer { regular, connection })
    }

    /// The connection, for a change after which its next plan has to look at it.
    pub(crate) fn changing(&mut self) -> Option<&mut C> {
        (self.regular.until, self.regular.asks_at) = (Tick(0), Tick(0));
        self.connection.as_deref_mut()
    }
}

/// A connection to write to. When the writing ends, its slot learns whether everything was written.
#[derive(Debug)]
pub struct Writer<'a, C: Reader> {
    pub(crate) regular: &'a mut Regular,
    connection: &'a mut C,
}

impl<C: Reader> Deref for Writer<'_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.connection
    }
}

impl<C: Reader> DerefMut for Writer<'_, C> {
    fn deref_mut(&mut self) -> &mut C {
        self.connection
    }
}

impl<C: Reader> Drop for Writer<'_, C> {
    #[inline]
    fn drop(&mut self) {
        match self.connection.written_until() {
            Some(until) => (self.regular.is_written, self.regular.until) = (true, self.regular.until.min(until)),
            None => self.regular.is_written = false,
        }
    }
}

/// The regular case of a connection, in which a plan need not look at it: it is a member of a shared view, and wants nothing
/// else. A connection is a view, plus its exceptions; this is the view.
#[derive(Clone, Copy, Debug)]
pub struct Regular {
    /// The last tick for which this holds, unless the connection changes before.
    pub(crate) until: Tick,
    /// From this tick on, the connection may have to join or leave a view.
    pub(crate) asks_at: Tick,
    /// The view was planned for it in this tick, and it does not know that yet.
    untaken: Option<Tick>,
    view: u32,
    ticks: SendTicks,
    /// It was written everything that was planned.
    is_written: bool,
}

impl Default for Regular {
    fn default() -> Regular {
        Regular {
            until: Tick(0),
            asks_at: Tick(0),
            untaken: None,
            view: 0,
            ticks: SendTicks::default(),
            is_written: false,
        }
    }
}

impl Regular {
    /// A connection that wants nothing but what its view has, up to `until`.
    pub(crate) fn new(until: Tick, view: u32, ticks: SendTicks) -> Regular {
        Regular { until, view, ticks, asks_at: Tick(u64::MAX), ..Regular::default() }
    }

    /// A connection that the next plan has to look at. It stays in its view, or by itself, until `asks_at`.
    pub(crate) fn irregular(asks_at: Tick) -> Regular {
        Regular { asks_at, ..Regular::default() }
    }

    /// Whether the plan of `now` will have to look at the connection, as far as can be seen from here.
    #[inline]
    pub(crate) fn is_over(&self, now: Tick) -> bool {
        now > self.until || !self.is_written
    }

    /// Plans the tick of a connection without a look at it. False if it has to be looked at.
    #[inline]
    pub(crate) fn plan<S: ChannelState>(&mut self, planner: &mut Planner<'_, S>) -> bool {
        if self.is_over(planner.now) {
            return false;
        }
        if self.ticks.contains(planner.now) {
            if !planner.can_afford(self.view) {
                return false;
            }
            planner.take_view(self.view);
            (self.untaken, self.is_written) = (Some(planner.now), false);
        }
        true
    }
}
