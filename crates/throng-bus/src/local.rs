//! The bus in one process: the default.
//!
//! ```text
//!  LocalBus (member a)                        Hub                              LocalBus (member b)
//!  routes: subject -> mailboxes   <-- version --  subscriptions, store
//!       | publish: number, push  ------------------------------------------->  mailbox: bounded rows
//!                                                                              poll_event: takes a whole row at once
//! ```
//!
//! A message is a pointer in a row: no thread, no encoding, no copy of the payload. Its way is looked up once per subject.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rustc_hash::FxHashMap;
use throng_wire::Time;

use crate::store::{Change, Store};
use crate::tickets::{NEVER, OpenTickets, Waits};
use crate::waiting::Waiting;
use crate::{
    Bus, Command, CommandError, Counters, Event, Limits, MemberId, Message, Pattern, ReplyTo, RequestError, Sequence,
    Subject, SubscriptionId, Ticket, WatchId,
};

/// The numbers of questions of one member are below two to this power.
const TICKET_BITS: u32 = 40;

/// The middle of a bus in one process. Clones are the same bus.
#[derive(Clone, Debug, Default)]
pub struct LocalHub(Arc<Hub>);

#[derive(Debug, Default)]
struct Hub {
    /// Rises with each change of subscriptions: routes of older versions are looked up again.
    version: AtomicU64,
    shared: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// How often a member has joined.
    joins: u64,
    members: BTreeMap<MemberId, Arc<Mailbox>>,
    exact: FxHashMap<Subject, Vec<Target>>,
    wide: Vec<(Pattern, Target)>,
    watches: Vec<(Pattern, WatchId, Arc<Mailbox>)>,
    store: Store,
}

#[derive(Clone, Debug)]
struct Target {
    mailbox: Arc<Mailbox>,
    subscription: SubscriptionId,
}

#[derive(Debug)]
struct Mailbox {
    limits: Limits,
    has_any: AtomicBool,
    /// Its member has gone, or another one has its number.
    is_closed: AtomicBool,
    waiting: Mutex<Waiting>,
}

/// The routes of one subject.
#[derive(Debug, Default)]
struct Route {
    version: u64,
    newest: Sequence,
    targets: Vec<Target>,
}

/// A member of a bus in one process.
#[derive(Debug)]
pub struct LocalBus {
    hub: Arc<Hub>,
    member: MemberId,
    limits: Limits,
    mailbox: Arc<Mailbox>,
    /// Events that were taken out of the mailbox. It and the mailbox have the limits of [`Limits`] each.
    taken: Waiting,
    routes: FxHashMap<Subject, Route>,
    sequence: Sequence,
    subscriptions: FxHashMap<SubscriptionId, Pattern>,
    watches: FxHashMap<WatchId, Pattern>,
    open: OpenTickets,
    counters: Counters,
}

impl LocalHub {
    /// A bus with an empty store and without members.
    pub fn new() -> LocalHub {
        LocalHub::default()
    }

    /// A new member. A number that is in use already is taken over: the member that has it gets [`Event::Disconnected`], and hears and says
    /// nothing more.
    pub fn join(&self, member: MemberId, limits: Limits) -> LocalBus {
        let mut waiting = Waiting::default();
        waiting.push_control(Event::Connected);
        let mailbox = Arc::new(Mailbox {
            limits: limits.clone(),
            has_any: AtomicBool::new(true),
            is_closed: AtomicBool::new(false),
            waiting: Mutex::new(waiting),
        });
        let mut shared = lock(&self.0.shared);
        shared.joins += 1;
        // So an answer to a former member of this number names no question of this one.
        let open = OpenTickets::after(shared.joins << TICKET_BITS);
        if let Some(former) = shared.members.insert(member, mailbox.clone()) {
            shared.forget(&former);
            former.close(Some(Event::Disconnected));
            self.0.version.fetch_add(1, Ordering::AcqRel);
        }
        drop(shared);
        LocalBus {
            hub: self.0.clone(),
            member,
            limits,
            mailbox,
            taken: Waiting::default(),
            routes: FxHashMap::default(),
            sequence: Sequence(0),
            subscriptions: FxHashMap::default(),
            watches: FxHashMap::default(),
            open,
            counters: Counters::default(),
        }
    }
}

impl Bus for LocalBus {
    fn handle_command(&mut self, now: Time, command: Command) -> Result<(), CommandError> {
        let result = match command {
            _ if self.mailbox.is_closed.load(Ordering::Relaxed) => Err(CommandError::Disconnected),
            Command::Publish { subject, payload } => self.send(&subject, payload),
            other => self.limits.check(&other).and_then(|()| self.handle_rare(now, other)),
        };
        self.counters.refused += u64::from(result.is_err());
        result
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(event) = self.open.poll_timed_out(now) {
            self.counters.timed_out += 1;
            self.taken.push_control(event);
        }
        let mut shared = lock(&self.hub.shared);
        while let Some(change) = shared.store.expire(now) {
            shared.tell(&change);
        }
    }

    #[inline]
    fn poll_event(&mut self, _: Time) -> Option<Event> {
        loop {
            let event = match self.taken.pop() {
                Some(event) => event,
                None if self.mailbox.has_any.load(Ordering::Acquire) => {
                    let mut waiting = lock(&self.mailbox.waiting);
                    self.mailbox.has_any.store(false, Ordering::Release);
                    self.counters.dropped_slow += std::mem::take(&mut waiting.dropped);
                    std::mem::swap(&mut self.taken, &mut *waiting);
                    continue;
                }
                None => return None,
            };
            match &event {
                Event::Message(_) => self.counters.delivered += 1,
                Event::Gap(_) => self.counters.gaps += 1,
                Event::Disconnected => {
                    self.counters.disconnects += 1;
                    self.open.lose().into_iter().for_each(|lost| self.taken.push_control(lost));
                }
                Event::WatchFailed { watch } => {
                    self.counters.failed_watches += 1;
                    self.watches.remove(watch);
                }
                _ => match self.answer(event) {
                    Some(event) => return Some(event),
                    None => continue,
                },
            }
            return Some(event);
        }
    }

    fn member(&self) -> MemberId {
        self.member
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

impl LocalBus {
    /// An answer as it is handed out: with the caller's ticket. One that says that none came has it already.
    fn answer(&mut self, event: Event) -> Option<Event> {
        let is_late =
            matches!(event, Event::Answer { result: Err(RequestError::TimedOut | RequestError::ConnectionLost), .. });
        let mut event = if is_late { event } else { self.open.answer(event)? };
        self.open.close(&mut event);
        Some(event)
    }

    #[inline]
    fn send(&mut self, subject: &Subject, payload: Bytes) -> Result<(), CommandError> {
        if payload.len() > self.limits.payload_bytes {
            return Err(CommandError::TooLong { bytes: payload.len(), most: self.limits.payload_bytes });
        }
        self.sequence.0 += 1;
        let sequence = self.sequence;
        let version = self.hub.version.load(Ordering::Acquire);
        if self.routes.get(subject).is_none_or(|route| route.version != version) {
            self.look_up(subject, version);
        }
        let Some(route) = self.routes.get_mut(subject) else { return Ok(()) };
        let known = std::mem::replace(&mut route.newest, sequence);
        for target in &route.targets {
            let message = Message {
                subscription: target.subscription,
                subject: subject.clone(),
                publisher: self.member,
                sequence,
                payload: payload.clone(),
                reply_to: None,
            };
            target.mailbox.push(|waiting, limits| waiting.push_message(message, known, limits));
        }
        self.counters.published += 1;
        Ok(())
    }

    #[cold]
    fn look_up(&mut self, subject: &Subject, version: u64) {
        if self.routes.len() >= self.limits.remembered_subjects && !self.routes.contains_key(subject) {
            // In process a route can be looked up again; only the number that a gap begins after is forgotten.
            self.counters.forgotten_subjects += self.routes.len() as u64;
            self.routes.clear();
        }
        let targets = lock(&self.hub.shared).targets(subject);
        let route = self.routes.entry(subject.clone()).or_default();
        (route.version, route.targets) = (version, targets);
    }

    fn handle_rare(&mut self, now: Time, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Publish { subject, payload } => self.send(&subject, payload),
            Command::Subscribe { subscription, pattern } => self.subscribe_to(subscription, pattern),
            Command::Unsubscribe { subscription } => self.unsubscribe(subscription),
            Command::Request { ticket, subject, payload, patience } => {
                let ticket = self.open.open(ticket, Waits::Request(now.after(patience)), self.limits.open_tickets)?;
                self.ask(ticket, &subject, &payload);
                Ok(())
            }
            Command::Reply { to, payload } => {
                if let Some(mailbox) = lock(&self.hub.shared).members.get(&to.member) {
                    let event = Event::Answer { ticket: to.ticket, result: Ok(payload) };
                    mailbox.push(|waiting, _| waiting.push_control(event));
                }
                Ok(())
            }
            Command::Watch { watch, pattern } => self.watch(now, watch, pattern),
            Command::Unwatch { watch } => self.unwatch(watch),
            Command::Get { ticket, key } => {
                let ticket = self.open.open(ticket, Waits::Get(NEVER), self.limits.open_tickets)?;
                let result = Ok(lock(&self.hub.shared).store_at(now).get(&key));
                self.taken.push_control(Event::Got { ticket, result });
                Ok(())
            }
            Command::Put { ticket, key, value, expect, lives_for } => {
                self.write(now, ticket, |store| store.put(now, &key, value, expect, lives_for))
            }
            Command::Delete { ticket, key, expect } => self.write(now, ticket, |store| store.delete(&key, expect)),
        }
    }

    fn write(
        &mut self,
        now: Time,
        ticket: Ticket,
        write: impl FnOnce(&mut Store) -> Result<Change, crate::StoreError>,
    ) -> Result<(), CommandError> {
        let ticket = self.open.open(ticket, Waits::Write(NEVER), self.limits.open_tickets)?;
        let mut shared = lock(&self.hub.shared);
        let result = write(shared.store_at(now));
        if let Ok(change) = &result {
            shared.tell(change);
        }
        drop(shared);
        self.taken.push_control(Event::Written { ticket, result: result.map(|change| change.revision) });
        Ok(())
    }

    fn subscribe_to(&mut self, subscription: SubscriptionId, pattern: Pattern) -> Result<(), CommandError> {
        if self.subscriptions.contains_key(&subscription) {
            return Err(CommandError::Number);
        }
        if self.subscriptions.len() >= self.limits.subscriptions {
            return Err(CommandError::Limit { limit: "subscriptions" });
        }
        let target = Target { mailbox: self.mailbox.clone(), subscription };
        let mut shared = lock(&self.hub.shared);
        match Subject::new(pattern.as_str()) {
            Ok(subject) => shared.exact.entry(subject).or_default().push(target),
            Err(_) => shared.wide.push((pattern.clone(), target)),
        }
        self.hub.version.fetch_add(1, Ordering::AcqRel);
        drop(shared);
        self.subscriptions.insert(subscription, pattern);
        Ok(())
    }

    fn unsubscribe(&mut self, subscription: SubscriptionId) -> Result<(), CommandError> {
        let pattern = self.subscriptions.remove(&subscription).ok_or(CommandError::Number)?;
        let is_it =
            |target: &Target| target.subscription == subscription && Arc::ptr_eq(&target.mailbox, &self.mailbox);
        let mut shared = lock(&self.hub.shared);
        if let Ok(subject) = Subject::new(pattern.as_str()) {
            if let Some(targets) = shared.exact.get_mut(&subject) {
                targets.retain(|target| !is_it(target));
                if targets.is_empty() {
                    shared.exact.remove(&subject);
                }
            }
        } else {
            shared.wide.retain(|(_, target)| !is_it(target));
        }
        self.hub.version.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn ask(&mut self, ticket: Ticket, subject: &Subject, payload: &Bytes) {
        let targets = lock(&self.hub.shared).targets(subject);
        if targets.is_empty() {
            let result = Err(RequestError::NobodyListens);
            self.taken.push_control(Event::Answer { ticket, result });
        }
        for target in targets {
            let message = Message {
                subscription: target.subscription,
                subject: subject.clone(),
                publisher: self.member,
                sequence: Sequence(ticket.0),
                payload: payload.clone(),
                reply_to: Some(ReplyTo { member: self.member, ticket, address: None }),
            };
            target.mailbox.push(|waiting, limits| waiting.push_message(message, Sequence(0), limits));
        }
    }

    fn watch(&mut self, now: Time, watch: WatchId, pattern: Pattern) -> Result<(), CommandError> {
        if self.watches.contains_key(&watch) {
            return Err(CommandError::Number);
        }
        if self.watches.len() >= self.limits.watches {
            return Err(CommandError::Limit { limit: "watches" });
        }
        let mut shared = lock(&self.hub.shared);
        let list = shared.store_at(now).list(&pattern);
        // Further on, the keys are those of the store, which has a limit of its own; what waits of them has one too.
        if list.len() > self.limits.watched_keys {
            self.counters.failed_watches += 1;
            return Err(CommandError::Limit { limit: "watched_keys" });
        }
        let mut fits = true;
        self.mailbox.push(|waiting, limits| {
            fits = list.into_iter().all(|change| waiting.push_change(watch, change, limits));
            if fits {
                waiting.push_listed(watch);
            }
        });
        if fits {
            shared.watches.push((pattern.clone(), watch, self.mailbox.clone()));
        }
        drop(shared);
        self.watches.insert(watch, pattern);
        Ok(())
    }

    fn unwatch(&mut self, watch: WatchId) -> Result<(), CommandError> {
        self.watches.remove(&watch).ok_or(CommandError::Number)?;
        lock(&self.hub.shared)
            .watches
            .retain(|(_, other, mailbox)| *other != watch || !Arc::ptr_eq(mailbox, &self.mailbox));
        self.taken.forget_watch(watch);
        self.mailbox.push(|waiting, _| waiting.forget_watch(watch));
        Ok(())
    }
}

impl Drop for LocalBus {
    fn drop(&mut self) {
        let mut shared = lock(&self.hub.shared);
        if shared.members.get(&self.member).is_some_and(|mailbox| Arc::ptr_eq(mailbox, &self.mailbox)) {
            shared.members.remove(&self.member);
        }
        shared.forget(&self.mailbox);
        // Ways that others have looked up still lead there.
        self.mailbox.close(None);
        self.hub.version.fetch_add(1, Ordering::AcqRel);
    }
}

impl Shared {
    /// Nothing is for this mailbox any more.
    fn forget(&mut self, mailbox: &Arc<Mailbox>) {
        let is_it = |other: &Arc<Mailbox>| Arc::ptr_eq(other, mailbox);
        self.watches.retain(|(_, _, mailbox)| !is_it(mailbox));
        self.wide.retain(|(_, target)| !is_it(&target.mailbox));
        self.exact.retain(|_, targets| {
            targets.retain(|target| !is_it(&target.mailbox));
            !targets.is_empty()
        });
    }

    fn targets(&self, subject: &Subject) -> Vec<Target> {
        let wide = self.wide.iter().filter(|(pattern, _)| pattern.matches(subject)).map(|(_, target)| target);
        self.exact.get(subject).into_iter().flatten().chain(wide).cloned().collect()
    }

    /// The store, without what has ended by now.
    fn store_at(&mut self, now: Time) -> &mut Store {
        while let Some(change) = self.store.expire(now) {
            self.tell(&change);
        }
        &mut self.store
    }

    fn tell(&mut self, change: &Change) {
        self.watches.retain(|(pattern, watch, mailbox)| {
            let mut stays = true;
            if pattern.matches(&change.key) {
                mailbox.push(|waiting, limits| stays = waiting.push_change(*watch, change.clone(), limits));
            }
            stays
        });
    }
}

impl Mailbox {
    #[inline]
    fn push(&self, push: impl FnOnce(&mut Waiting, &Limits)) {
        let mut waiting = lock(&self.waiting);
        if !self.is_closed.load(Ordering::Relaxed) {
            push(&mut waiting, &self.limits);
            drop(waiting);
            self.has_any.store(true, Ordering::Release);
        }
    }

    /// Forgets what waits. It takes this last event, and nothing more.
    fn close(&self, last: Option<Event>) {
        let mut waiting = lock(&self.waiting);
        self.is_closed.store(true, Ordering::Relaxed);
        *waiting = Waiting::default();
        last.into_iter().for_each(|last| waiting.push_control(last));
        drop(waiting);
        self.has_any.store(true, Ordering::Release);
    }
}

/// A lock of a thread that panicked is taken over: each change of what it protects is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
