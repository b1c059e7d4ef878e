//! Sends state: all due subscribers at the same point get the same frame, encoded once.

use std::time::Duration;

use throng_channeld::proto::ChannelType;
use throng_replica::{
    ChannelIndex, ChannelKey, ConnectionSlot, Executor, Frame, Hub, HubLimits, Outgoing, Since, Stream,
};
use throng_wire::{Tick, Time};

use super::Engine;
use super::buffers::Buffers;
use super::channel::{Subscriber, Wanted};
use super::channels::Channels;
use super::clock::Clock;
use super::connection::Connection;
use super::connections::Connections;
use super::counters::Counters;
use super::log::{ChannelLog, Forms};
use super::place::Place;
use super::port::{EndCause, Key};
use super::refusal::Refusal;
use super::threads::{Alone, Helpers, Threads};
use super::writers::NOBODY;
use crate::limits::Limits;

/// The states of all channels, who has got how much of them, and what it takes to send the rest.
pub(super) struct Fanout {
    pub(super) hub: Hub<ChannelLog, Stream>,
    pub(super) forms: Forms,
    threads: Threads,
    buffers: Buffers,
    /// Connections that do not take what they were sent, or for whom state waits to be sent in slices: they are looked at
    /// again and again. The others are not.
    watched: Vec<Key>,
    /// Connections some of whose state may get lost on its way.
    movers: Vec<Key>,
    last_plan: Time,
    last_forget: Tick,
    last_reclaim: Tick,
    /// When the data kept for slow connections was last checked.
    last_backlog_look: Tick,
}

/// More channels, connections and subscriptions of one connection than any setting allows.
const HUB_MAX: usize = 1 << 21;

/// The shortest time between two fan-outs. A subscriber that asks for less is served at most this often.
const STEP: Duration = Duration::from_millis(5);

impl Fanout {
    /// No channels and no connections. Ticks begin with `first_tick`.
    pub(super) fn new(now: Time, first_tick: Tick) -> Fanout {
        // The limits of the settings are looked at elsewhere, because they may change; these are what none of them exceeds.
        let limits = HubLimits { channels: HUB_MAX, connections: HUB_MAX, subscriptions_per_connection: HUB_MAX };
        Fanout {
            hub: Hub::new(limits, first_tick),
            forms: Forms::default(),
            threads: Threads::new(Box::new(Alone)),
            buffers: Buffers::default(),
            watched: Vec::new(),
            movers: Vec::new(),
            last_plan: now,
            last_forget: Tick(0),
            last_reclaim: Tick(0),
            last_backlog_look: Tick(0),
        }
    }

    pub(super) fn set_helpers(&mut self, helpers: Box<dyn Helpers>) {
        self.threads = Threads::new(helpers);
    }

    /// Makes room for a connection.
    pub(super) fn connect(&mut self) -> Result<Key, Refusal> {
        let hub = self.hub.connect().map_err(|_| Refusal::Limit("connections"))?;
        Ok(Key { index: hub.index, generation: hub.generation })
    }

    /// Makes room for the state of a channel, whose turns are at multiples of `turn_ms`.
    pub(super) fn add_channel(&mut self, id: u32, kind: ChannelType, turn_ms: u32) -> Result<ChannelIndex, Refusal> {
        let index = self
            .hub
            .channel_or_insert(ChannelKey::Custom(id), || ChannelLog::new(id, kind))
            .map_err(|_| Refusal::Limit("channels"))?;
        self.hub.set_turn_grid(index, turn_ms);
        Ok(index)
    }

    /// The tick that changes made now belong to: later than all that was sent.
    pub(super) fn change_tick(&self, clock: &Clock) -> Tick {
        clock.tick().newest(self.first_unplanned())
    }

    /// The first tick that was not planned. An edge may plan turns before their time.
    pub(super) fn first_unplanned(&self) -> Tick {
        self.hub.now().after(1)
    }

    /// Everything that a subscriber is granted.
    pub(super) fn granted(&self, connections: &Connections, place: Place, subscriber: Subscriber) -> Wanted {
        let stream = self.hub.connection(connections.hub_id(place));
        let interval_ms = stream.and_then(|stream| stream.interval_ticks(subscriber.id));
        subscriber.wanted(interval_ms.unwrap_or_default())
    }

    /// Turns were planned up to now.
    pub(super) fn note_plan(&mut self, now: Time) {
        self.last_plan = now;
    }

    /// Plans are made once between two points of a lattice: channels' ticks are mostly multiples of its steps, so a
    /// plan caused by a change does not delay a turn that is due a moment later.
    pub(super) fn next_step(&self, clock: &Clock) -> Time {
        clock.step_after(self.last_plan, STEP).max(clock.time_of(self.first_unplanned()))
    }

    /// When something may have to be sent: at the next turn of a subscription or of a copy at an edge, but not more often
    /// than once per step.
    pub(super) fn next(&self, clock: &Clock, next_copy: Option<Time>) -> Option<Time> {
        let step = self.next_step(clock);
        if self.hub.is_disturbed() {
            return Some(step);
        }
        // There is no notification when the kernel has accepted data.
        let look = || self.last_plan.after(LOOK_AGAIN).max(clock.time_of(self.first_unplanned()));
        let look = (!self.watched.is_empty()).then(look);
        let turn = self.hub.next_turn().map(|turn| clock.time_of(turn).max(step));
        let copies = next_copy.map(|due| due.max(step));
        [look, turn, copies].into_iter().flatten().min()
    }

    /// Looks at a connection again and again, until it takes what it is sent.
    pub(super) fn watch(&mut self, connection: &mut Connection) {
        if !std::mem::replace(&mut connection.is_watched, true) {
            self.watched.push(connection.key);
        }
    }

    /// Some state of a connection may get lost on its way from now on.
    pub(super) fn add_mover(&mut self, key: Key) {
        self.movers.push(key);
    }

    /// The channels whose subscribers move, once.
    pub(super) fn take_movers(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.movers)
    }

    /// Whether so many ticks have gone by since forms were last reclaimed. Then they are reclaimed now.
    pub(super) fn begins_to_reclaim(&mut self, tick: Tick, every_ms: u32) -> bool {
        let is_due = self.forms.is_full() && tick.since(self.last_reclaim) >= every_ms;
        if is_due {
            self.last_reclaim = tick;
        }
        is_due
    }

    /// Hands what was queued for a connection to its outbox. Returns how many bytes that were.
    pub(super) fn flush_one(&self, connection: &mut Connection) -> usize {
        connection.flush(&self.buffers)
    }

    /// The same, of messages alone.
    pub(super) fn flush_messages(&self, connection: &mut Connection) -> usize {
        connection.flush_messages(&self.buffers)
    }

    /// Hands what was queued for connections to their outboxes.
    pub(super) fn flush(&mut self, connections: &mut Connections, counters: &mut Counters, limits: &Limits, now: Time) {
        connections.for_each_dirty(|connection| {
            counters.side(connection.side).bytes_out += connection.flush_messages(&self.buffers) as u64;
            if connection.falls_behind(limits, now) {
                self.watched.push(connection.key);
            }
        });
    }

    /// Encodes what is due, each frame once.
    fn encode(&mut self, counters: &mut Counters) {
        // A delta may be little of a large state, but to find that out is to encode it.
        let state_bytes = self.hub.asked_for().map(|state| state.size_bytes()).sum();
        self.hub.encode(&self.forms, &self.threads.given(state_bytes));
        counters.frames += self.hub.counters().frames_encoded;
    }

    /// Copies what is due to those for whom it is due.
    fn write(
        &mut self,
        connections: &mut Connections,
        channels: &Channels,
        counters: &mut Counters,
        (limits, now): (&Limits, Time),
    ) {
        let (outgoing, slots) = self.hub.visited_writers();
        let (forms, buffers) = (&self.forms, &self.buffers);
        let mut due_bytes = 0;
        let mut connections = connections.walk_mut();
        let mut shares: Vec<Share<'_>> = slots
            .filter_map(|(index, slot)| {
                let has_due = slot.reader().is_some_and(|stream| stream.has_due());
                let connection = connections.at(index).filter(|_| has_due)?;
                if connection.is_slow(limits) {
                    // Missed changes are sent, merged, when it has caught up.
                    if connection.falls_behind(limits, now) {
                        self.watched.push(connection.key);
                    }
                    return None;
                }
                due_bytes += slot.reader().map_or(0, |stream| stream.due_bytes(outgoing));
                Some(Share { slot, connection, updates: 0, bytes: 0, lag_ms: 0 })
            })
            .collect();
        self.threads
            .given(due_bytes)
            .for_each(&mut shares, |share| share.write(outgoing, channels, (forms, limits, buffers)));
        for share in shares {
            let connection = share.connection;
            if share.updates > 0 {
                counters.side(connection.side).messages_out += share.updates;
                counters.delivered_updates += share.updates;
                counters.lag.record(u64::from(share.lag_ms) * 1_000, share.updates);
            }
            counters.side(connection.side).bytes_out += share.bytes;
            if connection.falls_behind(limits, now) {
                self.watched.push(connection.key);
            }
        }
    }

    /// Those who miss a forgotten removal, and in which channel.
    pub(super) fn take_outdated(&mut self, connections: &Connections) -> Vec<(Place, ChannelIndex)> {
        let (_, slots) = self.hub.visited_writers();
        let mut outdated = Vec::new();
        for (index, slot) in slots {
            if let (Some(mut stream), Some(connection)) = (slot.writer(), connections.nth(index)) {
                let place = connection.place();
                outdated.extend(stream.take_outdated().map(|channel| (place, channel)));
            }
        }
        outdated
    }

    /// Each second: those for whom the most is kept, if it is too much for all together, and the keys of as many of them
    /// as have to go. Not more often, because there may be millions of frames to look at.
    fn take_surplus(&mut self, connections: &Connections, most_bytes: u64, tick: Tick) -> Vec<Key> {
        if self.watched.is_empty() || tick.since(self.last_backlog_look) < BACKLOG_LOOK_EVERY_MS {
            return Vec::new();
        }
        self.last_backlog_look = tick;
        let kept = |&key: &Key| {
            let connection = connections.at(connections.place(key)?);
            (!connection.is_ending).then(|| (connection.backlog_bytes(), key))
        };
        let mut kept: Vec<(u64, Key)> = self.watched.iter().filter_map(kept).collect();
        let all_bytes: u64 = kept.iter().map(|&(bytes, _)| bytes).sum();
        let mut surplus_bytes = all_bytes.saturating_sub(most_bytes);
        if surplus_bytes > 0 {
            kept.sort_unstable();
        }
        let mut surplus = Vec::new();
        while surplus_bytes > 0
            && let Some((bytes, key)) = kept.pop()
        {
            surplus_bytes = surplus_bytes.saturating_sub(bytes);
            surplus.push(key);
        }
        surplus
    }

    /// Whether old removals are to be looked for now.
    fn begins_to_forget(&mut self, tick: Tick) -> bool {
        let is_due = tick.since(self.last_forget) >= FORGET_EVERY_MS;
        if is_due {
            self.last_forget = tick;
        }
        is_due
    }
}

/// The data given to one connection in a step.
struct Share<'a> {
    slot: &'a mut ConnectionSlot<Stream>,
    connection: &'a mut Connection,
    updates: u64,
    bytes: u64,
    /// How late the latest of them was.
    lag_ms: u32,
}

impl Engine {
    pub(super) fn is_fan_out_due(&self) -> bool {
        self.next_fan_out().is_some_and(|due| due <= self.clock.now())
    }

    pub(super) fn next_fan_out(&self) -> Option<Time> {
        self.fanout.next(&self.clock, self.edges.next_due().map(|due| self.clock.time_of(due)))
    }

    /// Sends what is due now; at an edge also what is due in the home's turn, whose changes may have come early.
    pub(super) fn fan_out(&mut self, home_turn: Option<Tick>) {
        let tick = home_turn.map_or(self.clock.tick(), |turn| turn.newest(self.clock.tick()));
        if tick.is_newer_than(self.fanout.hub.now()) {
            self.fan_out_at(tick);
        }
    }

    /// Gives everybody the newest state, also out of turn. A connection that has not read its last update gets no more.
    pub(super) fn fan_out_for_the_last_time(&mut self) {
        for connection in self.connections.iter_mut() {
            // Data that is lost now is not sent again.
            connection.movement = None;
        }
        self.fanout.hub.hurry();
        let tick = self.fanout.change_tick(&self.clock);
        self.fan_out_at(tick);
        self.edges.tell_copies(&self.channels, &self.fanout, (tick, true));
    }

    fn fan_out_at(&mut self, tick: Tick) {
        self.fanout.note_plan(self.clock.now());
        self.counters.steps += 1;
        self.hold_back_the_slow();
        self.fanout.take_all_fates(&mut self.connections, &mut self.counters);
        self.fanout.hub.plan(tick);
        self.renew_the_outdated();
        self.fanout.encode(&mut self.counters);
        let (limits, now) = (&self.settings.limits, self.clock.now());
        self.fanout.write(&mut self.connections, &self.channels, &mut self.counters, (limits, now));
        self.edges.tell_copies(&self.channels, &self.fanout, (tick, false));
        self.forget_removals(tick);
    }

    /// A connection that has not read its last update gets no more: missed changes are merged until it has read it.
    /// Only those are looked at who were behind when something was last handed to their outbox: by themselves queues do
    /// not grow.
    fn hold_back_the_slow(&mut self) {
        let mut watched = std::mem::take(&mut self.fanout.watched);
        watched.retain(|&key| self.connections.place(key).is_some_and(|index| self.stays_behind(index)));
        self.fanout.watched.append(&mut watched);
        self.bound_backlogs();
    }

    /// Ends those for whom the most is kept, if it is too much for all together.
    fn bound_backlogs(&mut self) {
        let most_bytes = self.settings.limits.max_backlog_bytes;
        for key in self.fanout.take_surplus(&self.connections, most_bytes, self.clock.tick()) {
            self.counters.refuse(Refusal::Limit("backlog_bytes"));
            self.connections.end_for(key, EndCause::Stalled);
        }
    }

    /// Looks at a connection that was behind, and sends it waiting state, if it has room. Returns whether to look at it
    /// again.
    fn stays_behind(&mut self, index: Place) -> bool {
        let limits = self.settings.limits;
        let now = self.clock.now();
        let connection = self.connections.at_mut(index);
        let is_slow = connection.is_slow(&limits);
        connection.slow_since = is_slow.then(|| connection.slow_since.unwrap_or(now));
        let stalled = connection.has_stalled(&limits, now);
        let gives_up = stalled.is_some();
        let (key, is_ending) = (connection.key, connection.is_ending);
        let mut told_bytes = 0;
        if !is_slow {
            let fed_bytes = match connection.has_backlog() {
                true => connection.feed(&limits) + self.tell_more_of_what_was(index),
                false => 0,
            };
            told_bytes = self.tell_waiting_news(index);
            if fed_bytes + told_bytes > 0 {
                self.connections.put_dirty(index);
            }
        }
        let connection = self.connections.at_mut(index);
        let lacks_state = is_slow || gives_up || connection.has_backlog();
        let is_behind = lacks_state || !connection.news.is_empty();
        connection.is_watched = is_behind;
        // Clients decide how many notices wait: an owner that reads some of them is not late.
        let since = connection.behind_since.filter(|_| lacks_state || told_bytes == 0);
        connection.behind_since = is_behind.then(|| since.unwrap_or(now));
        let hub = self.connections.hub_id(index);
        if let Some(stream) = self.fanout.hub.connection_mut(hub) {
            stream.pause(lacks_state);
        }
        self.counters.paused += u64::from(is_slow);
        if let Some(limit) = stalled.filter(|_| !is_ending) {
            self.counters.refuse(Refusal::Limit(limit));
            self.connections.end_for(key, EndCause::Stalled);
        }
        is_behind
    }

    /// Removals are remembered for as long as any subscriber may need them: a subscriber that waits for its turn, and
    /// then for the state before it to be read, is closed before they are forgotten.
    fn forget_removals(&mut self, tick: Tick) {
        if !self.fanout.begins_to_forget(tick) {
            return;
        }
        let limits = &self.settings.limits;
        let turn_ms = limits.max_interval_ms.saturating_add(limits.max_delay_ms.unsigned_abs());
        let path_ms = limits.max_slow_ms.saturating_add(limits.max_backlog_ms);
        let retention = turn_ms.saturating_add(path_ms).saturating_add(MARGIN_MS);
        self.forget_removals_until(tick.before(retention));
    }
}

/// How much longer removals are kept than any subscriber can be behind.
const MARGIN_MS: u32 = 10_000;

/// How often the data kept for slow connections is checked.
const BACKLOG_LOOK_EVERY_MS: u32 = 1_000;

/// How often connections that do not read are checked while nothing else happens.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Interval of the search for old removals.
const FORGET_EVERY_MS: u32 = 10_000;

impl Share<'_> {
    fn write(
        &mut self,
        outgoing: Outgoing<'_, ChannelLog>,
        channels: &Channels,
        (forms, limits, buffers): (&Forms, &Limits, &Buffers),
    ) {
        let Share { slot, connection, updates, bytes, lag_ms } = self;
        let Some(mut stream) = slot.writer() else { return };
        let (place, me) = (connection.place(), connection.writer);
        let mut ways = connection.ways(limits, buffers);
        stream.drain(outgoing, |index, frame, (since, lag)| {
            *lag_ms = lag.max(*lag_ms);
            // A first frame has all state, of every writer.
            let is_own = since != Since::Start && frame.parts.iter().any(|part| part.writer == me);
            let subscriber = || channels.get(index)?.subscriber(place);
            let skips = is_own && subscriber().is_some_and(|subscriber| subscriber.skips_self());
            if !skips && ways.puts_off(index, frame) {
                if let (Some(movement), Some(to)) = (&mut ways.movement, subscriber()) {
                    movement.put_off(to.id, frame);
                }
                *updates += frame.segments.len() as u64;
                return;
            }
            let out = &mut *ways.out;
            let start = out.len();
            let count = match skips {
                false => {
                    out.extend_from_slice(&frame.bytes);
                    frame.segments.len() as u64
                }
                true if is_mixed(frame, me) => {
                    let state = outgoing.state(index);
                    u64::from(state.encode_for(forms, (since, frame.variant), me, out))
                }
                true => without_own(frame, outgoing.state(index), me, out),
            };
            let is_under_way = match &mut ways.movement {
                None => true,
                Some(movement) => subscriber().is_none_or(|to| movement.take(to.id, frame, since, (out, start))),
            };
            *updates += if is_under_way { count } else { 0 };
        });
        if let Some(movement) = ways.movement {
            movement.finish(&mut stream, outgoing);
        }
        *bytes = connection.flush(buffers) as u64;
    }
}

/// Whether what `me` wrote cannot be cut out: such a part has no bytes.
fn is_mixed(frame: &Frame, me: u32) -> bool {
    frame.parts.iter().any(|part| part.writer == me && part.start == part.end)
}

/// Copies a frame without what `me` wrote.
fn without_own(frame: &Frame, state: &ChannelLog, me: u32, out: &mut Vec<u8>) -> u64 {
    let mut written = 0;
    for number in 0..frame.segments.len() {
        let parts_of = |writer| frame.parts.iter().filter(move |p| p.segment == number as u32 && p.writer == writer);
        let Some(value) = parts_of(NOBODY).next() else { continue };
        let own = parts_of(me);
        let own_bytes: u32 = own.clone().map(|part| part.end - part.start).sum();
        let kept = (value.end - value.start - own_bytes) as usize;
        if kept == 0 {
            continue;
        }
        state.begin_update(kept, out);
        let mut at = value.start;
        for part in own {
            out.extend_from_slice(&frame.bytes[at as usize..part.start as usize]);
            at = part.end;
        }
        out.extend_from_slice(&frame.bytes[at as usize..value.end as usize]);
        written += 1;
    }
    written
}
