//! The thread of an engine that is not the first one.
//!
//! ```text
//!   first engine's thread --- Join, Misrouted, Master, Closed ---+
//!                                                                v
//!   connections' tasks ------ Messages, sorted -------------> one queue --> engine --> the connections' outboxes
//! ```
//! It knows a connection by its key in the first engine. The first engine's thread reports about a connection in the
//! order in which things happened, and there is one queue, so this one hears of them in the same order.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use throng_gateway_engine::port::{Key, Notice};
use throng_gateway_engine::{Engine, Member};
use throng_wire::Time;
use tracing::warn;

use super::budget::{Budget, Pace};
use super::clock::Clock;
use super::counters::ShellCounters;
use super::event::{Ask, Event, Events, Gone, Inlet, Report};
use super::health::Heart;
use super::memory::Holding;
use super::outbox::{Outbox, Queue};
use super::ration::{Party, Ration};
use crate::recent::BanCounts;

/// An engine that has a part of the channels, and what it needs around it.
pub(crate) struct Other {
    pub(crate) engine: Engine,
    pub(crate) inlet: Inlet,
    pub(crate) events: Events,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<ShellCounters>,
    pub(crate) ration: Arc<Ration>,
    pub(crate) heart: Arc<Heart>,
    /// The engine's memory.
    pub(crate) holding: Holding,
    /// Its key of each connection, by that of the first engine.
    pub(crate) keys: FxHashMap<Key, Key>,
    pub(super) pace: Pace,
}

/// Ends the first engine, and so the gateway, when this one ends, in whatever way.
struct Last(Events);

impl Drop for Last {
    fn drop(&mut self) {
        let _ = self.0.send(Event::End);
    }
}

impl Other {
    /// Runs until it is stopped.
    pub(crate) fn run(mut self) {
        let _last = Last(self.events.clone());
        while self.turn().is_ok() {}
    }

    fn turn(&mut self) -> Result<(), Gone> {
        let deadline = self.engine.next_deadline();
        self.heart.rest();
        let (mut event, begin) = self.pace.begin(self.clock, &self.inlet, deadline)?;
        self.heart.beat(begin);
        let mut budget = Budget::new(begin);
        while let Some(next) = event {
            let messages = next.message_count();
            self.handle(next)?;
            event = if budget.spend(messages, self.clock.now()) { self.inlet.next() } else { None };
        }
        self.advance();
        while let Some(ban) = self.engine.poll_ban() {
            self.events.send(Event::Ban(ban))?;
        }
        while let Some(notice) = self.engine.poll_notice() {
            let Notice { side, address, connection, identifier, reason } = &notice;
            let party = Party { connection: Some(*connection), player: identifier, ..Party::of(*side, *address) };
            self.ration.refused(begin, &party, reason);
        }
        self.counters.step.record(self.clock.now().micros_since(begin), 1);
        Ok(())
    }

    fn advance(&mut self) {
        let now = self.clock.now();
        self.heart.beat(now);
        // The first engine ends the longest queues if there is no memory: it knows all connections.
        self.holding.set(self.engine.memory_bytes() as usize);
        self.engine.set_pressure(self.counters.memory.pressure());
        self.engine.advance(now);
    }

    fn handle(&mut self, event: Event) -> Result<(), Gone> {
        let now = self.clock.now();
        self.heart.beat(now);
        match event {
            Event::Join { member, queue } => self.join(now, &member, queue),
            Event::Messages { key, batch, _room, .. } => {
                let Some(&key) = self.keys.get(&key) else { return Ok(()) };
                for message in batch {
                    self.engine.receive_sorted(now, key, message);
                }
            }
            Event::Misrouted { key, message } => {
                if let Some(&key) = self.keys.get(&key) {
                    self.engine.receive_sorted(now, key, message);
                }
            }
            Event::Closed { key, cause, .. } => {
                if let Some(key) = self.keys.remove(&key) {
                    self.engine.closed(now, key, cause);
                }
            }
            Event::Master(connection) => self.engine.set_master(connection),
            Event::Settings(settings) => self.engine.reload(Arc::new(settings.engine.clone())),
            Event::Report(reply) => {
                let (counters, occupancy) = (self.engine.counters().clone(), self.engine.occupancy());
                let _ = reply.send(Report {
                    banned_addresses: BanCounts::default(),
                    banned_guessers: BanCounts::default(),
                    banned_names: BanCounts::default(),
                    counters,
                    occupancy,
                    auth_pending: [0; 2],
                    edges: [0; 2],
                    is_linked: None,
                });
            }
            Event::Admin(Ask::Slice { subject, from, rows, reply }) => {
                let _ = reply.send(self.engine.slice(subject, from, rows));
            }
            Event::Snapshot(ask) => ask.answer(&mut self.engine, self.clock, &self.counters),
            Event::LastFanOut(reply, last_parts) => {
                self.engine.shut_down(now);
                let _ = reply.send(());
                if let Some(last_parts) = last_parts {
                    last_parts.send_all(&mut self.engine);
                }
            }
            Event::End => return Err(Gone),
            // These are for the first engine.
            Event::Open { .. } | Event::Fence { .. } | Event::Violated { .. } | Event::Ban(_) => {}
            Event::EdgeOpened { .. } | Event::EdgeSaid { .. } | Event::EdgeClosed { .. } => {}
            Event::Linked { .. } | Event::HomeSaid { .. } | Event::Unlinked | Event::Leave(_) => {}
            Event::Settled { .. } | Event::Answer(_) | Event::Admin(_) | Event::Reload(_) | Event::ShutDown(_) => {}
        }
        Ok(())
    }

    fn join(&mut self, now: Time, member: &Member, queue: Arc<Queue>) {
        match self.engine.join(now, member, Box::new(Outbox(Arc::clone(&queue)))) {
            Ok(key) => drop(self.keys.insert(member.key, key)),
            Err(refusal) => {
                // It may not have part of the channels only.
                warn!(
                    connection = member.connection_id,
                    reason = refusal.tag(),
                    "an engine has no room for a connection"
                );
                queue.end(super::outbox::Ending::Flush);
            }
        }
    }
}
