//! Sends state: all due subscribers at the same point get the same frame, encoded once.

use std::time::Duration;

use throng_replica::{ChannelIndex, ConnectionSlot, Executor, Frame, Outgoing, Since, Stream};
use throng_wire::{Tick, Time};

use super::buffers::Buffers;
use super::channel::Channel;
use super::connection::Connection;
use super::log::{self, ChannelLog, Forms};
use super::place::{Place, Table};
use super::port::{EndCause, Key};
use super::refusal::Refusal;
use super::{Engine, STEP};
use crate::limits::Limits;

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
        self.next_fan_out().is_some_and(|due| due <= self.now)
    }

    /// When something may have to be sent: at the next turn of a subscription, but not more often than once per step.
    pub(super) fn next_fan_out(&self) -> Option<Time> {
        let step = self.next_step();
        if self.hub.is_disturbed() {
            return Some(step);
        }
        // There is no notification when the kernel has accepted data.
        let look = (!self.watched.is_empty()).then(|| self.last_plan.after(LOOK_AGAIN));
        let turn = self.hub.next_turn().map(|turn| self.time_of(turn).max(step));
        let copies = self.next_copy_due().map(|due| due.max(step));
        [look, turn, copies].into_iter().flatten().min()
    }

    /// Plans are made once between two points of a lattice: channels' ticks are mostly multiples of its steps, so a
    /// plan caused by a change does not delay a turn that is due a moment later.
    pub(super) fn next_step(&self) -> Time {
        let step_micros = STEP.as_micros() as u64;
        let steps = self.last_plan.micros_since(self.start) / step_micros + 1;
        Time(self.start.0 + steps * step_micros)
    }

    /// When a tick begins.
    pub(super) fn time_of(&self, tick: Tick) -> Time {
        Time(self.start.0.saturating_add(tick.0.saturating_sub(self.first_tick.0).saturating_mul(1_000)))
    }

    pub(super) fn fan_out(&mut self) {
        let tick = self.tick();
        if tick.is_newer_than(self.hub.now()) {
            self.fan_out_at(tick);
        }
    }

    /// Gives everybody the newest state, also out of turn. A connection that has not read its last update gets no more.
    pub(super) fn fan_out_for_the_last_time(&mut self) {
        for connection in self.connections.iter_mut() {
            // Data that is lost now is not sent again.
            connection.movement = None;
        }
        self.hub.hurry();
        let tick = self.change_tick();
        self.fan_out_at(tick);
        self.tell_copies(tick, true);
    }

    fn fan_out_at(&mut self, tick: Tick) {
        self.last_plan = self.now;
        self.counters.steps += 1;
        self.hold_back_the_slow();
        self.take_all_fates();
        self.hub.plan(tick);
        self.renew_the_outdated();
        // A delta may be little of a large state, but to find that out is to encode it.
        let state_bytes = self.hub.asked_for().map(|state| state.size_bytes()).sum();
        self.hub.encode(&self.forms, &self.threads.given(state_bytes));
        self.counters.frames += self.hub.counters().frames_encoded;
        self.write();
        self.tell_copies(tick, false);
        self.forget_removals(tick);
    }

    /// A connection that has not read its last update gets no more: missed changes are merged until it has read it.
    /// Only those are looked at who were behind when something was last handed to their outbox: by themselves queues do
    /// not grow.
    fn hold_back_the_slow(&mut self) {
        let mut watched = std::mem::take(&mut self.watched);
        watched.retain(|&key| self.place(key).is_some_and(|index| self.stays_behind(index)));
        self.watched.append(&mut watched);
        self.bound_backlogs();
    }

    /// Ends those for whom the most is kept, if it is too much for all together. Each second: there may be millions of
    /// frames to look at.
    fn bound_backlogs(&mut self) {
        let tick = self.tick();
        if self.watched.is_empty() || tick.since(self.last_backlog_look) < BACKLOG_LOOK_EVERY_MS {
            return;
        }
        self.last_backlog_look = tick;
        let kept = |&key: &Key| {
            let connection = self.connection(self.place(key)?);
            (!connection.is_ending).then(|| (connection.backlog_bytes(), key))
        };
        let mut kept: Vec<(u64, Key)> = self.watched.iter().filter_map(kept).collect();
        let all_bytes: u64 = kept.iter().map(|&(bytes, _)| bytes).sum();
        let mut surplus_bytes = all_bytes.saturating_sub(self.settings.limits.max_backlog_bytes);
        if surplus_bytes > 0 {
            kept.sort_unstable();
        }
        while surplus_bytes > 0
            && let Some((bytes, key)) = kept.pop()
        {
            surplus_bytes = surplus_bytes.saturating_sub(bytes);
            self.count(Refusal::Limit("backlog_bytes"));
            self.end_for(key, EndCause::Stalled);
        }
    }

    /// Looks at a connection that was behind, and sends it waiting state, if it has room. Returns whether to look at it
    /// again.
    fn stays_behind(&mut self, index: Place) -> bool {
        let limits = self.settings.limits;
        let now = self.now;
        let connection = self.connection_mut(index);
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
                self.dirty.insert(index);
            }
        }
        let connection = self.connection_mut(index);
        let lacks_state = is_slow || gives_up || connection.has_backlog();
        let is_behind = lacks_state || !connection.news.is_empty();
        connection.is_watched = is_behind;
        // Clients decide how many notices wait: an owner that reads some of them is not late.
        let since = connection.behind_since.filter(|_| lacks_state || told_bytes == 0);
        connection.behind_since = is_behind.then(|| since.unwrap_or(now));
        let hub = self.hub_id(index);
        if let Some(stream) = self.hub.connection_mut(hub) {
            stream.pause(lacks_state);
        }
        self.counters.paused += u64::from(is_slow);
        if let Some(limit) = stalled.filter(|_| !is_ending) {
            self.count(Refusal::Limit(limit));
            self.end_for(key, EndCause::Stalled);
        }
        is_behind
    }

    fn write(&mut self) {
        let (limits, buffers, now) = (&self.settings.limits, &self.buffers, self.now);
        let (outgoing, slots) = self.hub.visited_writers();
        let (channels, forms) = (&self.channels, &self.forms);
        let mut due_bytes = 0;
        let mut connections = self.connections.walk_mut();
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
                self.counters.side(connection.side).messages_out += share.updates;
                self.counters.delivered_updates += share.updates;
                self.counters.lag.record(u64::from(share.lag_ms) * 1_000, share.updates);
            }
            self.counters.side(connection.side).bytes_out += share.bytes;
            if connection.falls_behind(limits, now) {
                self.watched.push(connection.key);
            }
        }
    }

    /// Removals are remembered for as long as any subscriber may need them: a subscriber that waits for its turn, and
    /// then for the state before it to be read, is closed before they are forgotten.
    fn forget_removals(&mut self, tick: Tick) {
        if tick.since(self.last_forget) < FORGET_EVERY_MS {
            return;
        }
        self.last_forget = tick;
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
        channels: &Table<ChannelIndex, Channel>,
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
        let Some(value) = parts_of(log::NOBODY).next() else { continue };
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
