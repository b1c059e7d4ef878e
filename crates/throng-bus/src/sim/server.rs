//! The server of a simulated bus: subscriptions, watches, and the store.

use std::collections::BTreeMap;
use std::time::Duration;

use throng_wire::Time;

use super::{Down, Due, Lane, Net, SimWrite, Watchers, drifted};
use crate::endpoint::Outgoing;
use crate::envelope::{Envelope, Kind};
use crate::store::{Change, Store};
use crate::{Command, Event, MemberId, Pattern, RequestError, StoreError, Subject, SubscriptionId, WatchId};

#[derive(Debug)]
pub(super) struct Server {
    pub(super) is_up: bool,
    /// Rises with each stop and start.
    pub(super) life: u64,
    pub(super) jumped: Duration,
    drift_ppm: i64,
    pub(super) store: Store,
    subscriptions: BTreeMap<(MemberId, SubscriptionId), Pattern>,
    watches: BTreeMap<(MemberId, WatchId), (u32, Pattern)>,
}

impl Server {
    pub(super) fn new(drift_ppm: i64) -> Server {
        Server {
            is_up: true,
            life: 0,
            jumped: Duration::ZERO,
            drift_ppm,
            store: Store::default(),
            subscriptions: BTreeMap::new(),
            watches: BTreeMap::new(),
        }
    }

    pub(super) fn forget_members(&mut self) {
        self.subscriptions.clear();
        self.watches.clear();
    }

    pub(super) fn forget_member(&mut self, gone: MemberId) {
        self.subscriptions.retain(|(member, _), _| *member != gone);
        self.watches.retain(|(member, _), _| *member != gone);
    }

    pub(super) fn subscribers(&self, subject: &Subject) -> Vec<(MemberId, SubscriptionId)> {
        self.subscriptions.iter().filter(|(_, pattern)| pattern.matches(subject)).map(|(place, _)| *place).collect()
    }

    fn watchers(&self, key: &Subject) -> Watchers {
        let matching = self.watches.iter().filter(|(_, (_, pattern))| pattern.matches(key));
        matching.map(|(&(member, watch), (listing, _))| (member, watch, *listing)).collect()
    }

    fn clock(&self, now: Time) -> Time {
        drifted(now, self.drift_ppm).after(self.jumped)
    }
}

impl Net {
    pub(super) fn carry_out(&mut self, member: MemberId, connection: u64, packet: Outgoing) {
        // Subscriptions and watches end with their connection. Everything else happens, however late.
        let is_current = self.nodes.get(&member).is_some_and(|node| node.connection == connection);
        match packet {
            Outgoing::Publish { subject, bytes } => self.deliver(&subject, &bytes),
            Outgoing::Request { ticket, subject, bytes, .. } => {
                if self.server.subscribers(&subject).is_empty() {
                    let packet = Down::Answer { ticket, result: Err(RequestError::NobodyListens) };
                    self.send_down(member, Lane::Answers, packet);
                }
                self.deliver(&subject, &bytes);
            }
            Outgoing::Reply { to, bytes } => {
                // The server of NATS knows the way; here it stands in the envelope.
                let is_answer =
                    Envelope::decode(&bytes).is_ok_and(|envelope| matches!(envelope.kind, Kind::Answer { .. }));
                debug_assert!(is_answer, "an endpoint answers with answers");
                let packet = Down::Answer { ticket: to.ticket, result: Ok(bytes) };
                self.send_down(to.member, Lane::Answers, packet);
            }
            Outgoing::Subscribe { subscription, pattern } if is_current => {
                self.server.subscriptions.insert((member, subscription), pattern);
            }
            Outgoing::Unsubscribe { subscription } if is_current => {
                self.server.subscriptions.remove(&(member, subscription));
            }
            Outgoing::Watch { watch, pattern, listing } if is_current => self.list(member, watch, pattern, listing),
            Outgoing::Unwatch { watch } if is_current => {
                self.server.watches.remove(&(member, watch));
            }
            Outgoing::Store(command) => self.operate(member, connection, command),
            _ => {}
        }
    }

    /// Removes what has ended by the server's clock.
    pub(super) fn expire(&mut self) {
        if !self.server.is_up {
            return;
        }
        let clock = self.server.clock(self.now);
        while let Some(change) = self.server.store.expire(clock) {
            self.note(None, change);
        }
    }

    fn list(&mut self, member: MemberId, watch: WatchId, pattern: Pattern, listing: u32) {
        for change in self.server.store.list(&pattern) {
            self.send_down(member, Lane::Watch(watch), Down::Entry { watch, listing, change });
        }
        self.send_down(member, Lane::Watch(watch), Down::Listed { watch, listing });
        self.server.watches.insert((member, watch), (listing, pattern));
    }

    fn operate(&mut self, member: MemberId, connection: u64, command: Command) {
        self.expire();
        let clock = self.server.clock(self.now);
        let store = &mut self.server.store;
        let (ticket, result) = match command {
            Command::Get { ticket, key } => {
                let event = Event::Got { ticket, result: Ok(store.get(&key)) };
                self.answer(member, connection, event);
                return;
            }
            Command::Put { ticket, key, value, expect, lives_for } => {
                (ticket, store.put(clock, &key, value, expect, lives_for))
            }
            Command::Delete { ticket, key, expect } => (ticket, store.delete(&key, expect)),
            _ => return,
        };
        if let Ok(change) = result.clone() {
            self.note(Some(member), change);
            self.expect_end();
        }
        let result: Result<_, StoreError> = result.map(|change| change.revision);
        self.answer(member, connection, Event::Written { ticket, result });
    }

    fn answer(&mut self, member: MemberId, connection: u64, event: Event) {
        if self.nodes.get(&member).is_some_and(|node| node.connection == connection) {
            self.send_down(member, Lane::Answers, Down::Result(event));
        }
    }

    /// Logs a change and tells it to all that watch.
    fn note(&mut self, by: Option<MemberId>, change: Change) {
        let Change { key, revision, value } = change.clone();
        self.writes.push(SimWrite { at: self.now, by, key, revision, value });
        for (member, watch, listing) in self.server.watchers(&change.key) {
            let packet = Down::Entry { watch, listing, change: change.clone() };
            self.send_down(member, Lane::Watch(watch), packet);
        }
    }

    /// Comes back when the next entry ends, at the first microsecond at which the server's clock says so.
    fn expect_end(&mut self) {
        let Some(end) = self.server.store.next_end() else { return };
        let mut at = Time(self.now.0.max(end.0.saturating_sub(self.server.jumped.as_micros() as u64)));
        let error = end.since(self.server.clock(at));
        at = at.after(error);
        let early = self.server.clock(at).since(end);
        let at = Time(at.0.saturating_sub(early.as_micros() as u64)).max(self.now);
        self.schedule_at(at, Due::Expire);
        self.schedule_at(at.after(Duration::from_micros(50)), Due::Expire);
    }
}
