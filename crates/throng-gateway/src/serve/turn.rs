//! The thread of the first engine: waits for events and deadlines, drives the engine, and tells the [others](super::others)
//! what they have to know.

use std::net::SocketAddr;
use std::time::Duration;

use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::budget::{Budget, Pace};
use super::clock::Clock;
use super::counters::{Reason, ShellCounters};
use super::edge_path::PathOutbox;
use super::event::{Ask, Event, Events, Gone, Inlet, Report};
use super::health::Heart;
use super::memory::Holding;
use super::outbox::{Outbox, Queue};
use super::ration::{Party, Ration};
use crate::auth::{Answer, Desk};
use crate::recent::BanCounts;
use throng_gateway_engine::edge::{EdgeFault, EdgeOutbox as _};
use throng_gateway_engine::port::{AuthVerdict, EndCause, Key, LoginNote, Notice, Side};
use throng_gateway_engine::{Coming, Engine, Misrouted, Refusal};
use throng_wire::Time;
use tokio::sync::oneshot;
use tracing::{debug, info, warn};

/// Closed connections give their memory back within this time.
const SHED_PAUSE: Duration = Duration::from_millis(20);
/// With so many bytes that the home does not read, the path to it is closed.
const HOME_QUEUE_BYTES: usize = 64 << 20;
/// By how much an edge's clock is late beside its home's at first, in ms: a step of the home, and about the jitter of a data centre's
/// network.
const FIRST_SLACK_TICKS: u32 = 10;

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
    /// The engine has no place for another client.
    pub(crate) lacks_place: Arc<AtomicBool>,
    pub(super) pace: Pace,
    pub(crate) heart: Arc<Heart>,
    /// When connections may be ended again for want of memory.
    pub(crate) next_shed: Time,
    /// The ways to the other engines.
    pub(crate) events: Events,
    /// Which connection owns GLOBAL, as the other engines know.
    pub(crate) master: Option<u32>,
    /// The engine's memory.
    pub(crate) holding: Holding,
    /// See [`Shared`](super::door::Shared).
    pub(crate) lacks_home: Arc<AtomicBool>,
    /// The path to the home.
    pub(crate) home: Option<PathOutbox>,
    /// Waits until the home has let the clients go.
    pub(crate) leaver: Option<oneshot::Sender<()>>,
    /// A hash of the rules that a home and its edges share.
    pub(crate) edge_settings: Arc<AtomicU64>,
}

/// The shell's data about a connection.
pub(crate) struct Member {
    side: Side,
    address: SocketAddr,
    /// Its number in the protocol.
    connection: u32,
    /// Its last claimed name: the beginning of it. Only the engine knows servers that logged in without authentication.
    player: Box<str>,
    queue: Weak<Queue>,
}

impl Member {
    fn party(&self) -> Party<'_> {
        let Member { side, address, connection, ref player, .. } = *self;
        Party { side, address, connection: Some(connection), player }
    }
}

/// Under this reason the engine counts bans of names that it has forgotten.
const FORGOTTEN_BANS: &str = "bans";

/// Of longer names the beginning is kept for the log.
const NAME_CHARS: usize = 64;

impl Turn {
    /// Runs until it is stopped.
    pub(crate) fn run(mut self) {
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
        self.lacks_place.store(!self.engine.has_place_for_client(), Ordering::Relaxed);
        if self.waits_for_master.load(Ordering::Relaxed) && self.engine.has_master() {
            self.waits_for_master.store(false, Ordering::Relaxed);
        }
        self.ask();
        while let Some(notice) = self.engine.poll_notice() {
            let Notice { side, address, connection, identifier, reason } = &notice;
            let party = Party { connection: Some(*connection), player: identifier, ..Party::of(*side, *address) };
            self.ration.refused(begin, &party, reason);
        }
        self.say_up();
        self.tell_leaver();
        self.counters.step.record(self.clock.now().micros_since(begin), 1);
        Ok(())
    }

    /// Sends the home everything that the engine has for it.
    fn say_up(&mut self) {
        let Some(home) = &self.home else { return };
        while let Some(frame) = self.engine.poll_up() {
            home.send(frame);
        }
        if home.queued_bytes() > HOME_QUEUE_BYTES {
            home.close(EdgeFault::Slow);
        }
    }

    fn tell_leaver(&mut self) {
        if self.engine.has_left()
            && let Some(leaver) = self.leaver.take()
        {
            let _ = leaver.send(());
        }
    }

    /// Notes which clients of edges have come and gone.
    fn note_comings(&mut self) {
        while let Some(coming) = self.engine.poll_coming() {
            match coming {
                Coming::Opened { key, address } => {
                    let connection = self.engine.number_of(key).unwrap_or_default();
                    let (side, player) = (Side::Client, Box::default());
                    self.members.insert(key, Member { side, address, connection, player, queue: Weak::new() });
                }
                Coming::Closed { key, cause } => {
                    if let Some(member) = self.members.remove(&key) {
                        self.note_end(self.clock.now(), &member, cause, "edge");
                    }
                }
            }
        }
    }

    fn advance(&mut self) {
        let now = self.clock.now();
        self.heart.beat(now);
        // The others have to know of a login before it is answered.
        self.share_out();
        // Before more is queued: by now most of what was queued last time has gone out.
        self.keep_to_the_budget();
        self.engine.advance(now);
    }

    /// Sees to it that no more memory is used than allowed.
    fn keep_to_the_budget(&mut self) {
        let memory = Arc::clone(&self.counters.memory);
        self.holding.set((self.engine.memory_bytes() + self.desk.held_bytes()) as usize);
        self.engine.set_pressure(memory.pressure());
        let surplus_bytes = memory.surplus_bytes();
        if surplus_bytes == 0 || self.clock.now() < self.next_shed {
            return;
        }
        let now = self.clock.now();
        self.next_shed = now.after(SHED_PAUSE);
        let ended = self.engine.shed(now, surplus_bytes);
        if ended > 0 {
            warn!(ended, surplus_bytes, "more memory is used than max_memory_bytes: the longest queues were ended");
            self.engine.advance(now);
        }
    }

    /// Tells the other engines what they have to know, in the order in which it happened.
    fn share_out(&mut self) {
        if self.events.engine_count() == 1 {
            return;
        }
        while let Some(joined) = self.engine.poll_member() {
            let known = self.members.get(&joined.key);
            let Some(queue) = known.and_then(|known| known.queue.upgrade()) else { continue };
            let joined = Arc::new(joined);
            self.events.send_to_others(|| Event::Join { member: Arc::clone(&joined), queue: Arc::clone(&queue) });
        }
        while let Some(Misrouted { key, to, message }) = self.engine.poll_misrouted() {
            // An engine that has ended takes the gateway with it.
            let _ = self.events.send_to(to as usize, Event::Misrouted { key, message });
        }
        let master = self.engine.master_id();
        if std::mem::replace(&mut self.master, master) != master {
            self.events.send_to_others(|| Event::Master(master));
        }
    }

    fn handle(&mut self, event: Event) -> Result<(), Gone> {
        let now = self.clock.now();
        self.heart.beat(now);
        match event {
            Event::Open { side, address, queue, reply } => {
                let result = self.open(side, address, &queue);
                if let Err(Ok((key, _))) = reply.send(result) {
                    self.members.remove(&key);
                    self.engine.closed(now, key, EndCause::Lost);
                }
            }
            Event::Messages { key, batch, is_sorted, _room } => {
                for message in batch {
                    match is_sorted {
                        true => self.engine.receive_sorted(now, key, message),
                        false => self.engine.receive(now, key, message),
                    }
                }
            }
            Event::Fence { key, reply } => {
                // Its earlier messages are on their way to the others when it has its session.
                self.share_out();
                let _ = reply.send(self.engine.session(key));
            }
            Event::Violated { key } => self.engine.violated(now, key),
            Event::Ban(ban) => self.engine.ban(now, &ban),
            Event::Settled { key } => self.engine.datagrams_settled(now, key),
            Event::Closed { key, cause, reason } => {
                if let Some(member) = self.members.remove(&key) {
                    self.note_end(now, &member, cause, reason);
                }
                self.engine.closed(now, key, cause);
                self.share_out();
                // How it ended counts here.
                self.events.send_to_others(|| Event::Closed { key, cause: EndCause::Ours, reason });
            }
            Event::Answer(answer) => self.settle(&answer),
            Event::EdgeOpened { outbox, reply } => {
                // Its clients would come before a server that hears of them.
                let waits = self.is_closing || self.waits_for_master.load(Ordering::Relaxed);
                let opened =
                    (!waits).then(|| (self.engine.open_edge(now, Box::new(outbox)), self.engine.edge_tick(now)));
                if let Err(Some((key, _))) = reply.send(opened) {
                    self.engine.close_edge(now, key);
                }
            }
            Event::EdgeSaid { key, frame, _room } => {
                // If there is a fault, the engine has closed the path, and its task logs it.
                let _ = self.engine.hear_edge(now, key, frame);
                self.note_comings();
            }
            Event::EdgeClosed { key } => {
                self.engine.close_edge(now, key);
                self.note_comings();
            }
            Event::Linked { tick, outbox } => {
                self.engine.linked(now, (tick, FIRST_SLACK_TICKS));
                self.home = Some(outbox);
                self.lacks_home.store(false, Ordering::Relaxed);
            }
            Event::HomeSaid { frame, _room } => {
                if let (Err(fault), Some(home)) = (self.engine.hear_home(now, frame), &self.home) {
                    home.close(fault);
                }
            }
            Event::Unlinked => {
                self.lacks_home.store(true, Ordering::Relaxed);
                self.home = None;
                self.engine.unlinked(now);
            }
            Event::Report(reply) => {
                let (edges, clients) = self.engine.edge_counts();
                let _ = reply.send(Report {
                    edges: [edges, clients],
                    is_linked: self.engine.is_edge().then(|| self.engine.is_linked()),
                    banned_addresses: BanCounts::default(),
                    banned_guessers: self.desk.ban_counts(now),
                    banned_names: self.ban_counts_of_names(),
                    counters: self.engine.counters().clone(),
                    occupancy: self.engine.occupancy(),
                    auth_pending: self.desk.pending(),
                });
            }
            Event::Admin(ask) => self.answer(ask),
            Event::Reload(reload) => {
                self.engine.reload(Arc::new(reload.settings.engine.clone()));
                self.edge_settings.store(self.engine.edge_settings(), Ordering::Relaxed);
                self.events.send_to_others(|| Event::Settings(Arc::clone(&reload.settings)));
                self.desk.take_over(now, reload.provider, &reload.desk);
            }
            Event::Snapshot(request) => request.answer(&mut self.engine, self.clock, &self.counters),
            Event::Leave(reply) => {
                self.lacks_home.store(true, Ordering::Relaxed);
                self.engine.leave(now);
                self.leaver = Some(reply);
            }
            Event::ShutDown(last_parts) => {
                self.is_closing = true;
                self.engine.shut_down(now);
                if let Some(last_parts) = last_parts {
                    last_parts.send_all(&mut self.engine);
                }
            }
            Event::End => return Err(Gone),
            // These are for the others.
            Event::Join { .. } | Event::Misrouted { .. } | Event::Master(_) => {}
            Event::Settings(_) | Event::LastFanOut(..) => {}
        }
        Ok(())
    }

    fn ban_counts_of_names(&mut self) -> BanCounts {
        let forgotten = self.engine.counters().refused.get(FORGOTTEN_BANS).copied().unwrap_or_default();
        BanCounts { present: self.engine.blocked_count(), forgotten }
    }

    /// An operator's request. A peer that has left meanwhile gets no answer.
    fn answer(&mut self, ask: Ask) {
        let now = self.clock.now();
        match ask {
            Ask::Slice { subject, from, rows, reply } => drop(reply.send(self.engine.slice(subject, from, rows))),
            Ask::Bans { limit, reply } => {
                let guessers = self.desk.bans(now).take(limit).collect();
                drop(reply.send((guessers, self.engine.blocked_names(limit))));
            }
            Ask::Kick { connection, reply } => drop(reply.send(self.engine.kick(now, connection))),
            Ask::UnbanAddress { address, reply } => drop(reply.send(self.desk.unban(address))),
            Ask::UnbanName { side, player, reply } => drop(reply.send(self.engine.unblock(side, &player))),
        }
    }

    /// Writes down how a connection has ended: of servers always, of clients at a lower level if that is usual.
    fn note_end(&self, now: Time, member: &Member, cause: EndCause, reason: &'static str) {
        let Member { side, address, connection, ref player, .. } = *member;
        let is_usual = matches!(cause, EndCause::PeerClosed | EndCause::Ours);
        match side {
            Side::Server => {
                info!(%address, connection, reason, player, ?cause, "a world server's connection has ended")
            }
            Side::Client if is_usual => {
                debug!(side = side.tag(), %address, connection, reason, ?player, "a connection has ended");
            }
            Side::Client => self.ration.ended(now, &member.party(), reason),
        }
    }

    fn open(&mut self, side: Side, address: SocketAddr, queue: &Arc<Queue>) -> Result<(Key, u32), Refusal> {
        if self.is_closing {
            return Err(Refusal::Closing);
        }
        let outbox = Box::new(Outbox(Arc::clone(queue)));
        let key = self.engine.open(self.clock.now(), side, address, outbox)?;
        let connection = self.engine.number_of(key).unwrap_or_default();
        let member = Member { side, address, connection, player: Box::default(), queue: Arc::downgrade(queue) };
        self.members.insert(key, member);
        Ok((key, connection))
    }

    /// Passes the engine's questions on, and quick answers back.
    fn ask(&mut self) {
        let mut has_answers = false;
        while let Some(request) = self.engine.poll_auth() {
            let Some(member) = self.members.get_mut(&request.key) else { continue };
            member.player = request.player_identifier_token.chars().take(NAME_CHARS).collect();
            // As long as it waits for an answer, it does so for us.
            self.engine.note_login(request.key, LoginNote::Waits);
            let address = member.address;
            if let Some(answer) = self.desk.ask(self.clock.now(), request, address) {
                self.settle(&answer);
                has_answers = true;
            }
        }
        let now = self.clock.now();
        while let Some(answer) = self.desk.next(now, |key| self.members.contains_key(&key)) {
            self.settle(&answer);
            has_answers = true;
        }
        if has_answers {
            self.advance();
        }
    }

    fn settle(&mut self, answer: &Answer) {
        let now = self.clock.now();
        let verdict = self.desk.settle(now, answer);
        let Some(member) = self.members.get(&answer.key) else { return };
        let reason = match verdict {
            AuthVerdict::Accepted => None,
            AuthVerdict::Unavailable => {
                self.counters.of(member.side).refuse(Reason::AuthUnavailable);
                Some(Reason::AuthUnavailable.tag())
            }
            _ => {
                self.engine.note_login(answer.key, LoginNote::Guessed);
                Some("login")
            }
        };
        if let Some(reason) = reason {
            self.ration.refused(now, &member.party(), reason);
        }
        self.engine.authenticated(now, answer.key, verdict);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::runtime::{Builder, Runtime};

    use super::super::counters::add;
    use super::super::event::{Events, events};
    use super::super::memory::{Memory, Part};
    use super::*;
    use crate::auth::{AcceptAll, DeskLimits, FixedPassword};
    use throng_gateway_engine::Ban;
    use throng_gateway_engine::port::AuthRequest;
    use throng_protostate::Schemas;

    /// An engine loop on a clock that moves by 20 µs whenever it is read, and the way to its queue.
    fn turn_on_virtual_time() -> (Turn, Events, Runtime) {
        let counters = Arc::new(ShellCounters::new(Memory::new(1 << 30)));
        let (events, mut inlets) = events(1 << 20, Arc::clone(&counters.memory), 1);
        let holding = Holding::new(&counters.memory, Part::Engine, 0);
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let settings = Arc::new(crate::settings::load(["-dev"]).expect("sound arguments").engine);
        let schemas = Schemas::from_descriptor_set(throng_channeld::proto::DESCRIPTORS).expect("sound");
        let turn = Turn {
            engine: Engine::new(settings, Arc::new(schemas), 7, (Time(0), 0)),
            inlet: inlets.remove(0),
            desk: Desk::new(Arc::new(AcceptAll), &DeskLimits::default(), runtime.handle().clone(), |_| {}),
            clock: Clock::stepping(20),
            counters,
            ration: Arc::default(),
            members: FxHashMap::default(),
            is_closing: false,
            waits_for_master: Arc::default(),
            lacks_place: Arc::default(),
            pace: Pace::new(Time(0)),
            heart: Arc::new(Heart::new()),
            next_shed: Time(0),
            events: events.clone(),
            master: None,
            holding,
            lacks_home: Arc::default(),
            home: None,
            leaver: None,
            edge_settings: Arc::default(),
        };
        (turn, events, runtime)
    }

    #[test]
    fn under_a_flood_the_due_work_is_done_every_ten_milliseconds() {
        const FLOOD: usize = 10_000;
        let (mut turn, events, _runtime) = turn_on_virtual_time();
        let nobody = turn.open(Side::Client, ([127, 0, 0, 1], 9).into(), &queue(&turn)).expect("there is room").0;
        (0..FLOOD).for_each(|_| events.send(Event::Settled { key: nobody }).expect("it lives"));
        let mut turns = 0;
        loop {
            let before = turn.clock.now();
            turn.turn().expect("it goes on");
            let took = turn.clock.now().since(before);
            assert!(took < Duration::from_millis(10), "turn {turns} took {took:?}");
            turns += 1;
            let Some(next) = turn.inlet.next() else { break };
            events.send(next).expect("it lives");
        }
        assert!(turns > FLOOD / 500, "{turns} turns");
    }

    #[test]
    fn bans_of_guessers_and_names_are_among_the_metrics() {
        let (mut turn, events, runtime) = turn_on_virtual_time();
        let limits = DeskLimits { failures: 1, ..DeskLimits::default() };
        turn.desk = Desk::new(Arc::new(FixedPassword("open".into())), &limits, runtime.handle().clone(), |_| {});
        let address = SocketAddr::from(([203, 0, 113, 1], 9));
        let key = Key { index: 1, generation: 1 };
        let (player_identifier_token, login_token) = ("ada".to_owned(), "a guess".to_owned());
        let request = AuthRequest { key, side: Side::Client, player_identifier_token, login_token };
        let answer = turn.desk.ask(Time(0), request, address).expect("at once");
        turn.desk.settle(Time(0), &answer);
        turn.engine.ban(Time(0), &Ban { side: Side::Client, address, identifier: "bob".into() });
        let (reply, answer) = oneshot::channel();
        events.send(Event::Report(reply)).expect("it lives");
        turn.turn().expect("it goes on");
        let text = crate::metrics::render(&answer.blocking_recv().expect("an answer"), &turn.counters);
        for (kind, bans) in [("address", 0), ("guesser", 1), ("name", 1)] {
            assert!(text.contains(&format!("gateway_bans{{kind=\"{kind}\"}} {bans}\n")), "{kind}: {text}");
            assert!(text.contains(&format!("gateway_bans_forgotten_total{{kind=\"{kind}\"}} 0\n")), "{kind}");
        }
    }

    #[test]
    fn connections_to_the_pages_that_were_closed_are_among_the_metrics() {
        let (mut turn, events, _runtime) = turn_on_virtual_time();
        add(&turn.counters.pages.full, 3);
        add(&turn.counters.pages.slow, 2);
        let (reply, answer) = oneshot::channel();
        events.send(Event::Report(reply)).expect("it lives");
        turn.turn().expect("it goes on");
        let text = crate::metrics::render(&answer.blocking_recv().expect("an answer"), &turn.counters);
        for (reason, count) in [("full", 3), ("idle", 0), ("slow", 2)] {
            let line = format!("gateway_page_connections_closed_total{{reason=\"{reason}\"}} {count}\n");
            assert!(text.contains(&line), "{line}: {text}");
        }
    }

    fn queue(turn: &Turn) -> Arc<Queue> {
        Queue::new(Arc::new(AtomicUsize::new(1 << 20)), None, (&turn.counters.memory, 0))
    }
}
