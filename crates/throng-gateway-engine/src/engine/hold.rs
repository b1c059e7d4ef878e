//! Forwarded messages wait a little for the client's next state, so that both take one write.
//!
//! A write to a socket costs as much as all work for a message before it. If a client's next state is due within
//! `max_hold_ms`, messages from others go out with that state. The gateway's own answers, and messages for servers, go
//! out at once, with everything before them.

use std::time::Duration;

use throng_wire::Time;

use super::Engine;
use super::place::Place;
use super::port::Key;

/// Connections with messages that wait.
#[derive(Default)]
pub(super) struct Held {
    waiting: Vec<Waiting>,
    /// When the first of them has to be looked at.
    first: Option<Time>,
}

struct Waiting {
    key: Key,
    /// Until when it need not be looked at.
    until: Time,
    /// It was looked at, and has waited since.
    has_waited: bool,
}

/// More bytes than these do not wait for a client: they are worth a write of their own.
const HELD_BYTES_MAX: usize = 4 << 10;

impl Held {
    fn put(&mut self, waiting: Waiting) {
        self.first = Some(self.first.map_or(waiting.until, |first| first.min(waiting.until)));
        self.waiting.push(waiting);
    }

    /// The time when a message has waited long enough.
    pub(super) fn next(&self) -> Option<Time> {
        self.first
    }
}

impl Engine {
    /// Something was queued for a connection that may wait for the next state, if there is some soon.
    pub(super) fn has_forwarded(&mut self, to: Place) {
        let limits = self.settings.limits;
        let is_dirty = self.connections.is_dirty(to);
        let Some(connection) = self.connections.get_mut(to) else { return };
        if connection.is_server() || limits.max_hold_ms == 0 || connection.out_bytes() > HELD_BYTES_MAX {
            self.connections.put_dirty(to);
        } else if connection.held_since.is_none() && !is_dirty {
            connection.held_since = Some(self.clock.now());
            if !std::mem::replace(&mut connection.is_listed, true) {
                let key = connection.key;
                self.held.put(Waiting { key, until: self.clock.now(), has_waited: false });
            }
        }
    }

    /// Decides who waits on; the others' messages go out at the end of the step.
    pub(super) fn release(&mut self) {
        if self.held.first.is_none_or(|first| first > self.clock.now()) {
            return;
        }
        let held = std::mem::take(&mut self.held);
        let mut waiting = held.waiting;
        for place in (0..waiting.len()).rev() {
            if waiting[place].until > self.clock.now() {
                continue;
            }
            let Waiting { key, has_waited, .. } = waiting[place];
            match self.waits_until(key, has_waited) {
                Some(until) => waiting[place] = Waiting { key, until, has_waited: true },
                None => self.strike_out(waiting.swap_remove(place).key),
            }
        }
        self.held = Held { first: waiting.iter().map(|waiting| waiting.until).min(), waiting };
    }

    fn strike_out(&mut self, key: Key) {
        if let Some(index) = self.connections.place(key) {
            self.connections.at_mut(index).is_listed = false;
        }
    }

    /// Until when a connection's messages wait. `None` if they have gone out, or are to go out now.
    fn waits_until(&mut self, key: Key, has_waited: bool) -> Option<Time> {
        let index = self.connections.place(key)?;
        let connection = self.connections.at(index);
        let end = connection.held_since?.after(Duration::from_millis(self.settings.limits.max_hold_ms.into()));
        // An edge's client has its state at the edge: what has waited here for its turn goes with the changes for it.
        let is_over = has_waited && connection.behind.is_some();
        let turn = if is_over { None } else { self.next_state_for(index, end) };
        if turn.is_none() {
            self.connections.put_dirty(index);
        }
        turn
    }

    /// When a connection may be sent state next, if that is not later than `end`.
    fn next_state_for(&self, index: Place, end: Time) -> Option<Time> {
        let stream = self.fanout.hub.connection(self.connections.hub_id(index))?;
        let step = self.fanout.next_step(&self.clock);
        let is_in_time = |&turn: &Time| turn > self.clock.now() && turn <= end;
        if self.connections.at(index).behind.is_some() {
            return self
                .edges
                .next_for(
                    self.connections.at(index),
                    &self.channels,
                    &self.fanout,
                    self.fanout.change_tick(&self.clock),
                )
                .map(|turn| self.clock.time_of(turn).max(step))
                .filter(is_in_time);
        }
        let turn = stream.next_turn(self.fanout.hub.now()).map(|turn| self.clock.time_of(turn).max(step));
        // The next turn of a reader that a change wakes up is not known before the next step.
        let woken = || (self.fanout.hub.is_disturbed() && stream.waits_for_change()).then_some(step);
        turn.filter(is_in_time).or_else(|| woken().filter(is_in_time))
    }
}
