//! The engine's thread: waits for events and deadlines, and drives the engine.

use std::net::SocketAddr;
use std::time::Duration;

use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::counters::{Reason, ShellCounters};
use super::door::Clock;
use super::event::{Event, Gone, Inlet, Report};
use super::outbox::{Outbox, Queue};
use super::ration::Ration;
use crate::auth::{Answer, Desk};
use crate::engine::port::{AuthVerdict, EndCause, Key, Side};
use crate::engine::{Engine, Refusal};
use throng_wire::Time;
use tracing::info;

/// After as many events the engine gets to do what is due, however many more have come.
const EVENTS_PER_TURN: usize = 4_096;

/// Turns do not begin closer to each other than this.
const TURN_MIN: Duration = Duration::from_millis(1);

/// The engine and what it needs around it.
pub(crate) struct Turn {
    pub(crate) engine: Engine,
    pub(crate) inlet: Inlet,
    pub(crate) desk: Desk,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<ShellCounters>,
    pub(crate) ration: Arc<Ration>,
    pub(crate) members: FxHashMap<Key, Member>,
    pub(crate) is_closing: bool,
    /// See [`Shared`](super::door::Shared).
    pub(crate) waits_for_master: Arc<AtomicBool>,
    pub(crate) last_turn: Time,
}

/// What the shell remembers of a connection.
pub(crate) struct Member {
    side: Side,
    address: SocketAddr,
}

impl Turn {
    /// Runs until it is told to end.
    pub(crate) fn run(mut self) {
        while self.turn().is_ok() {}
    }

    fn turn(&mut self) -> Result<(), Gone> {
        let deadline = self.engine.next_deadline();
        let wait = deadline.map(|deadline| deadline.since(self.clock.now()));
        let mut event = self.inlet.wait(wait)?;
        self.gather();
        let begin = self.clock.now();
        self.last_turn = begin;
        let mut left = EVENTS_PER_TURN;
        while let Some(next) = event {
            self.handle(next)?;
            left -= 1;
            event = if left > 0 { self.inlet.next() } else { None };
        }
        self.engine.advance(self.clock.now());
        if self.waits_for_master.load(Ordering::Relaxed) && self.engine.has_master() {
            self.waits_for_master.store(false, Ordering::Relaxed);
        }
        self.ask();
        while let Some(notice) = self.engine.poll_notice() {
            self.ration.refused(begin, (notice.side, notice.address), notice.reason, &notice.identifier);
        }
        self.counters.step.record(self.clock.now().micros_since(begin), 1);
        Ok(())
    }

    /// Under load, lets some more events come: waking up and writing to sockets for each of them would cost more than
    /// what is to be done for it.
    fn gather(&self) {
        let since_last = self.clock.now().since(self.last_turn);
        if let Some(rest) = TURN_MIN.checked_sub(since_last) {
            std::thread::sleep(rest);
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), Gone> {
        let now = self.clock.now();
        match event {
            Event::Open { side, address, queue, reply } => {
                let result = self.open(side, address, &queue);
                if let Err(Ok(key)) = reply.send(result) {
                    self.members.remove(&key);
                    self.engine.closed(now, key, EndCause::Lost);
                }
            }
            Event::Messages { key, batch, _room } => {
                for message in batch {
                    self.engine.receive(now, key, message);
                }
            }
            Event::Settled { key } => self.engine.datagrams_settled(now, key),
            Event::Closed { key, cause } => {
                if let Some(Member { side: Side::Server, address }) = self.members.remove(&key) {
                    info!(%address, ?cause, "a world server's connection has ended");
                }
                self.engine.closed(now, key, cause);
            }
            Event::Answer(answer) => self.settle(&answer),
            Event::Report(reply) => {
                let report = Report { counters: self.engine.counters().clone(), occupancy: self.engine.occupancy() };
                let _ = reply.send(report);
            }
            Event::Reload(reload) => {
                self.engine.reload(reload.settings);
                self.desk.take_over(reload.staff, &reload.desk);
            }
            Event::ShutDown => {
                self.is_closing = true;
                self.engine.shut_down(now);
            }
            Event::End => return Err(Gone),
        }
        Ok(())
    }

    fn open(&mut self, side: Side, address: SocketAddr, queue: &Arc<Queue>) -> Result<Key, Refusal> {
        if self.is_closing {
            return Err(Refusal::Closing);
        }
        let outbox = Box::new(Outbox(Arc::clone(queue)));
        let key = self.engine.open(self.clock.now(), side, address, outbox)?;
        self.members.insert(key, Member { side, address });
        Ok(key)
    }

    /// Passes the engine's questions on, and quick answers back.
    fn ask(&mut self) {
        let mut has_answers = false;
        while let Some(request) = self.engine.poll_auth() {
            let Some(member) = self.members.get(&request.key) else { continue };
            if let Some(answer) = self.desk.ask(self.clock.now(), request, member.address) {
                self.settle(&answer);
                has_answers = true;
            }
        }
        if has_answers {
            self.engine.advance(self.clock.now());
        }
    }

    fn settle(&mut self, answer: &Answer) {
        let now = self.clock.now();
        let Some(member) = self.members.get(&answer.key) else { return };
        if answer.verdict.is_none() {
            self.counters.of(member.side).refuse(Reason::AuthUnavailable);
        }
        let verdict = self.desk.settle(now, answer);
        if verdict != AuthVerdict::Accepted {
            let reason = if answer.verdict.is_some() { "login" } else { Reason::AuthUnavailable.tag() };
            self.ration.refused(now, (member.side, member.address), reason, &answer.player);
        }
        self.engine.authenticated(now, answer.key, verdict);
    }
}
