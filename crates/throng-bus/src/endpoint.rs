//! The part of a bus over a network that does no input or output: order, gaps, answers, limits.
//!
//! ```text
//!  commands --> Endpoint --> poll_outgoing --> the network
//!  events  <-- poll_event <--   |          <-- handle_delivery, handle_answer, handle_result, handle_entry, ...
//! ```
//!
//! The simulated bus and the one over NATS are this and a way to send. Everything that arrives is taken as from a peer that
//! nobody trusts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throng_wire::Time;

use crate::envelope::{Envelope, Kind, Previous};
use crate::order::{Arrival, Numbering, Tracker};
use crate::store::Change;
use crate::tickets::{OpenTickets, Waits};
use crate::view::View;
use crate::waiting::Waiting;
use crate::{
    Command, CommandError, Counters, Event, Limits, MemberId, Message, Pattern, ReplyTo, RequestError, Revision,
    Sequence, Subject, SubscriptionId, Ticket, WatchId,
};

/// Something to be sent. Between two connections, what waits is dropped, and subscriptions and watches are sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outgoing {
    /// A message or a tip.
    Publish {
        /// The address.
        subject: Subject,
        /// The envelope.
        bytes: Bytes,
    },
    /// A request. Its end comes by [`Endpoint::handle_answer`].
    Request {
        /// The endpoint's own number for it, never used again.
        ticket: Ticket,
        /// The address.
        subject: Subject,
        /// The envelope.
        bytes: Bytes,
        /// The time after which nobody waits for an answer.
        patience: Duration,
    },
    /// An answer.
    Reply {
        /// The address.
        to: ReplyTo,
        /// The envelope.
        bytes: Bytes,
    },
    /// Messages of these subjects are wanted.
    Subscribe {
        /// The subscription.
        subscription: SubscriptionId,
        /// The subjects.
        pattern: Pattern,
    },
    /// They are not wanted any more.
    Unsubscribe {
        /// The subscription.
        subscription: SubscriptionId,
    },
    /// An operation of the store: a [`Command::Get`], [`Command::Put`] or [`Command::Delete`]. Its ticket is the endpoint's own
    /// number for it, never used again. Its end comes by [`Endpoint::handle_result`].
    Store(Command),
    /// A list of these entries and their changes from then on, by [`Endpoint::handle_entry`] and
    /// [`Endpoint::handle_listed`].
    Watch {
        /// The watch.
        watch: WatchId,
        /// The keys.
        pattern: Pattern,
        /// The number of the listing.
        listing: u32,
    },
    /// They are not wanted any more.
    Unwatch {
        /// The watch.
        watch: WatchId,
    },
}

/// One member's end of a bus over a network.
#[derive(Debug)]
pub struct Endpoint {
    member: MemberId,
    limits: Limits,
    is_connected: bool,
    numbering: Numbering,
    tracker: Tracker,
    subscriptions: BTreeMap<SubscriptionId, Pattern>,
    watches: BTreeMap<WatchId, View>,
    /// The number of the newest listing of any watch.
    listing: u32,
    open: OpenTickets,
    waiting: Waiting,
    outgoing: VecDeque<Outgoing>,
    counters: Counters,
}

impl Endpoint {
    /// Not connected yet.
    pub fn new(member: MemberId, limits: Limits) -> Endpoint {
        Endpoint {
            member,
            is_connected: false,
            numbering: Numbering::new(limits.remembered_subjects),
            tracker: Tracker::new(limits.remembered_subjects),
            subscriptions: BTreeMap::new(),
            watches: BTreeMap::new(),
            listing: 0,
            open: OpenTickets::default(),
            waiting: Waiting::default(),
            outgoing: VecDeque::new(),
            counters: Counters::default(),
            limits,
        }
    }

    /// This member.
    pub fn member(&self) -> MemberId {
        self.member
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        let forgotten_subjects = self.numbering.forgotten() + self.tracker.forgotten();
        Counters { dropped_slow: self.waiting.dropped, forgotten_subjects, ..self.counters }
    }

    /// Takes a command of the caller. See [`Bus::handle_command`](crate::Bus::handle_command).
    ///
    /// # Errors
    /// If it was not taken.
    pub fn handle_command(&mut self, now: Time, command: Command) -> Result<(), CommandError> {
        let result = self.limits.check(&command).and_then(|()| self.take(now, command));
        self.counters.refused += u64::from(result.is_err());
        result
    }

    /// Times out requests, and says numbers again.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(event) = self.open.poll_timed_out(now) {
            self.counters.timed_out += 1;
            self.waiting.push_control(event);
        }
        while self.is_connected && self.outgoing.len() < self.limits.outgoing {
            let Some((subject, sequence)) = self.numbering.poll_tip(now) else { return };
            let bytes = self.envelope(Kind::Tip { sequence }, Bytes::new());
            self.outgoing.push_back(Outgoing::Publish { subject, bytes });
        }
    }

    /// The next event for the caller.
    pub fn poll_event(&mut self) -> Option<Event> {
        let mut event = self.waiting.pop()?;
        match &mut event {
            Event::Message(_) => self.counters.delivered += 1,
            Event::Gap(_) => self.counters.gaps += 1,
            other => self.open.close(other),
        }
        Some(event)
    }

    /// The next thing to send.
    pub fn poll_outgoing(&mut self) -> Option<Outgoing> {
        self.outgoing.pop_front()
    }

    /// There is a new connection. Subscriptions and watches go out again, and each subscription that was there before has a
    /// gap.
    pub fn handle_connected(&mut self, now: Time) {
        self.is_connected = true;
        self.outgoing.clear();
        self.waiting.push_control(Event::Connected);
        for (&subscription, pattern) in &self.subscriptions {
            self.outgoing.push_back(Outgoing::Subscribe { subscription, pattern: pattern.clone() });
            self.waiting.push_wide_gap(subscription);
        }
        for (&watch, view) in &mut self.watches {
            let listing = view.begin(&mut self.listing);
            self.outgoing.push_back(Outgoing::Watch { watch, pattern: view.pattern.clone(), listing });
        }
        self.numbering.say_again(now);
    }

    /// The connection is lost. Everything that waits for an answer gets one.
    pub fn handle_disconnected(&mut self) {
        if std::mem::replace(&mut self.is_connected, false) {
            self.counters.disconnects += 1;
            self.outgoing.clear();
            self.waiting.push_control(Event::Disconnected);
            for event in self.open.lose() {
                self.waiting.push_control(event);
            }
        }
    }

    /// The server that is connected does not fit: nothing can be done over this connection.
    pub fn handle_unfit(&mut self) {
        self.counters.unfit_servers += 1;
        self.handle_disconnected();
    }

    /// The network dropped messages before they came here, and does not say of which subscription.
    pub fn handle_dropped(&mut self) {
        for &subscription in self.subscriptions.keys() {
            self.waiting.push_wide_gap(subscription);
        }
    }

    /// Whether a subscription has not been ended.
    pub fn is_subscribed(&self, subscription: SubscriptionId) -> bool {
        self.subscriptions.contains_key(&subscription)
    }

    /// Bytes for a subscription. `reply_address` is the network's own address for an answer.
    pub fn handle_delivery(
        &mut self,
        subscription: SubscriptionId,
        subject: &str,
        bytes: &Bytes,
        reply_address: Option<Arc<str>>,
    ) {
        if !self.subscriptions.contains_key(&subscription) {
            return;
        }
        match (Subject::new(subject), Envelope::decode(bytes)) {
            (Ok(subject), Ok(envelope)) if envelope.payload.len() <= self.limits.payload_bytes => {
                self.take_envelope(subscription, subject, envelope, reply_address);
            }
            _ => self.counters.malformed += 1,
        }
    }

    /// An answer to a request, as bytes of the peer, or the reason why there is none.
    pub fn handle_answer(&mut self, ticket: Ticket, result: Result<&Bytes, RequestError>) {
        let result = match result.map(Envelope::decode) {
            Ok(Ok(Envelope { kind: Kind::Answer { ticket: answered }, payload, .. })) if answered == ticket => {
                Ok(payload)
            }
            Ok(_) => {
                self.counters.malformed += 1;
                return;
            }
            Err(error) => Err(error),
        };
        self.push_answer(Event::Answer { ticket, result });
    }

    /// The result of an operation of the store: an [`Event::Got`] or an [`Event::Written`].
    pub fn handle_result(&mut self, event: Event) {
        if matches!(event, Event::Got { .. } | Event::Written { .. }) {
            self.push_answer(event);
        }
    }

    /// An entry of a watch, or its removal.
    pub fn handle_entry(&mut self, watch: WatchId, listing: u32, key: &str, revision: Revision, value: Option<Bytes>) {
        let Some(view) = self.watches.get_mut(&watch).filter(|view| view.is_current(listing)) else { return };
        let Some(key) = Subject::new(key).ok().filter(|key| view.pattern.matches(key)) else {
            self.counters.malformed += 1;
            return;
        };
        let change = Change { key, revision, value };
        let fits = match view.handle(&change, self.limits.watched_keys) {
            Ok(true) => self.waiting.push_change(watch, change, &self.limits),
            Ok(false) => true,
            Err(()) => false,
        };
        if !fits {
            self.fail_watch(watch);
        }
    }

    /// All entries of a watch have been handed to [`Endpoint::handle_entry`].
    pub fn handle_listed(&mut self, watch: WatchId, listing: u32) {
        let Some(view) = self.watches.get_mut(&watch).filter(|view| view.is_current(listing)) else { return };
        let fits = view.listed().into_iter().all(|change| self.waiting.push_change(watch, change, &self.limits));
        if fits {
            self.waiting.push_listed(watch);
        } else {
            self.fail_watch(watch);
        }
    }

    /// The network refuses a watch: it has too many keys, or cannot be listed. It is ended.
    pub fn handle_refused_watch(&mut self, watch: WatchId, listing: u32) {
        if self.watches.get(&watch).is_some_and(|view| view.is_current(listing)) {
            self.fail_watch(watch);
        }
    }

    /// A listing of a watch was interrupted. The number of the next one, unless another one has begun, or the watch has ended.
    pub fn relist(&mut self, watch: WatchId, interrupted: u32) -> Option<u32> {
        let view = self.watches.get_mut(&watch).filter(|view| view.is_current(interrupted))?;
        Some(view.begin(&mut self.listing))
    }

    fn take(&mut self, now: Time, command: Command) -> Result<(), CommandError> {
        let is_ending = matches!(command, Command::Unsubscribe { .. } | Command::Unwatch { .. });
        let is_lasting = is_ending || matches!(command, Command::Subscribe { .. } | Command::Watch { .. });
        if !self.is_connected && !is_lasting {
            return Err(CommandError::Disconnected);
        }
        if self.outgoing.len() >= self.limits.outgoing {
            return Err(CommandError::Limit { limit: "outgoing" });
        }
        let (most, until) = (self.limits.open_tickets, now.after(self.limits.answer_patience));
        let outgoing = match command {
            Command::Publish { subject, payload } => {
                let (sequence, previous) = self.numbering.number(now, &subject);
                self.counters.published += 1;
                Outgoing::Publish { subject, bytes: self.envelope(Kind::Message { sequence, previous }, payload) }
            }
            Command::Request { ticket, subject, payload, patience } => {
                let ticket = self.open.open(ticket, Waits::Request(now.after(patience)), most)?;
                let bytes = self.envelope(Kind::Request { ticket }, payload);
                Outgoing::Request { ticket, subject, bytes, patience }
            }
            Command::Reply { to, payload } => {
                let bytes = self.envelope(Kind::Answer { ticket: to.ticket }, payload);
                Outgoing::Reply { to, bytes }
            }
            Command::Get { ticket, key } => {
                let ticket = self.open.open(ticket, Waits::Get(until), most)?;
                Outgoing::Store(Command::Get { ticket, key })
            }
            Command::Put { ticket, key, value, expect, lives_for } => {
                let ticket = self.open.open(ticket, Waits::Write(until), most)?;
                Outgoing::Store(Command::Put { ticket, key, value, expect, lives_for })
            }
            Command::Delete { ticket, key, expect } => {
                let ticket = self.open.open(ticket, Waits::Write(until), most)?;
                Outgoing::Store(Command::Delete { ticket, key, expect })
            }
            other => self.take_lasting(other)?,
        };
        if self.is_connected {
            self.outgoing.push_back(outgoing);
        }
        Ok(())
    }

    fn take_lasting(&mut self, command: Command) -> Result<Outgoing, CommandError> {
        Ok(match command {
            Command::Subscribe { subscription, pattern } => {
                if self.subscriptions.contains_key(&subscription) {
                    return Err(CommandError::Number);
                }
                if self.subscriptions.len() >= self.limits.subscriptions {
                    return Err(CommandError::Limit { limit: "subscriptions" });
                }
                self.subscriptions.insert(subscription, pattern.clone());
                Outgoing::Subscribe { subscription, pattern }
            }
            Command::Unsubscribe { subscription } => {
                self.subscriptions.remove(&subscription).ok_or(CommandError::Number)?;
                self.tracker.forget(subscription);
                Outgoing::Unsubscribe { subscription }
            }
            Command::Watch { watch, pattern } => {
                if self.watches.contains_key(&watch) {
                    return Err(CommandError::Number);
                }
                if self.watches.len() >= self.limits.watches {
                    return Err(CommandError::Limit { limit: "watches" });
                }
                let mut view = View::new(pattern.clone());
                let listing = view.begin(&mut self.listing);
                self.watches.insert(watch, view);
                Outgoing::Watch { watch, pattern, listing }
            }
            Command::Unwatch { watch } => {
                self.watches.remove(&watch).ok_or(CommandError::Number)?;
                self.waiting.forget_watch(watch);
                Outgoing::Unwatch { watch }
            }
            _ => return Err(CommandError::Number),
        })
    }

    fn take_envelope(
        &mut self,
        subscription: SubscriptionId,
        subject: Subject,
        envelope: Envelope,
        reply_address: Option<Arc<str>>,
    ) {
        let Envelope { publisher, kind, payload } = envelope;
        let mut known = Sequence(0);
        let (arrival, sequence, reply_to) = match kind {
            Kind::Message { sequence, previous } => {
                if let Previous::Is(previous) = previous {
                    known = previous;
                }
                let said = (sequence, previous);
                (self.tracker.message(subscription, publisher, &subject, said), sequence, None)
            }
            Kind::Tip { sequence } => {
                if let Arrival::AfterGap(known) = self.tracker.tip(subscription, publisher, &subject, sequence) {
                    self.waiting.push_gap(subscription, publisher, subject, known);
                }
                return;
            }
            Kind::Request { ticket } => {
                let reply_to = ReplyTo { member: publisher, ticket, address: reply_address };
                (Arrival::InOrder, Sequence(ticket.0), Some(reply_to))
            }
            Kind::Answer { .. } => {
                self.counters.malformed += 1;
                return;
            }
        };
        match arrival {
            Arrival::Duplicate => {
                self.counters.duplicates += 1;
                return;
            }
            Arrival::AfterGap(known) => self.waiting.push_gap(subscription, publisher, subject.clone(), known),
            Arrival::InOrder => {}
        }
        let message = Message { subscription, subject, publisher, sequence, payload, reply_to };
        self.waiting.push_message(message, known, &self.limits);
    }

    fn push_answer(&mut self, event: Event) {
        if let Some(event) = self.open.answer(event) {
            self.waiting.push_control(event);
        }
    }

    fn fail_watch(&mut self, watch: WatchId) {
        self.counters.failed_watches += 1;
        self.watches.remove(&watch);
        self.waiting.fail_watch(watch);
        self.outgoing.push_back(Outgoing::Unwatch { watch });
    }

    fn envelope(&self, kind: Kind, payload: Bytes) -> Bytes {
        Envelope { publisher: self.member, kind, payload }.encode()
    }
}
