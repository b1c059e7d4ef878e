//! A lease: a key of the store that one member holds for a time, with a fencing number.
//!
//! ```text
//!            put if absent, lives for D             renew: put if unchanged, lives for D
//!  Free ------------------------------> Held(fence) ------------------------------------> Held(fence), later end
//!    ^                                     |
//!    +---- until: sent + D - margin -------+   the store removes the entry later than that: it counts from when it is written
//! ```
//!
//! The fencing number is the revision of the write that took the lease. Each holder has a higher one than those before it.
//! A holder stops by its own clock, before the store gives the lease to another. That holds as long as clocks differ in
//! speed, within one duration, by less than the margin. A holder that was stopped for longer than that between asking
//! [`Lease::fence`] and acting is stopped by its number: see [`FencedWrites`](crate::FencedWrites). The idea of fencing numbers
//! is that of Gray and Cheriton (leases, 1989) and of Burrows (sequencers of Chubby, 2006).
//!
//! Value of the entry: `version 1 (u8) | member (u64 LE) | fencing number, 0 for this write's revision (u64 LE) | note`.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use throng_wire::Time;

use crate::{Command, Event, Expect, LEASE_MIN, MemberId, Revision, StoreError, Subject, Ticket, Tickets};

/// Bytes of a lease's value without its note.
const HEAD_BYTES: usize = 17;

const VERSION: u8 = 1;

/// The number of one holding of a lease: higher than that of every holding before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub u64);

/// How long a lease is held, and when it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// The time after which the store removes the entry of a silent holder. Whole seconds, at least 1.
    pub duration: Duration,
    /// By how much earlier the holder stops: for clocks of different speed, and for wall clocks of a store of several servers
    /// that differ.
    pub margin: Duration,
    /// The time between two renewals, and between two attempts to get the lease.
    pub renew_every: Duration,
}

impl Default for LeaseOptions {
    /// 5 s, of which the holder uses 4, with a renewal each second.
    fn default() -> LeaseOptions {
        LeaseOptions {
            duration: Duration::from_secs(5),
            margin: Duration::from_secs(1),
            renew_every: Duration::from_secs(1),
        }
    }
}

impl LeaseOptions {
    /// The same times if they fit each other. If not, the duration is rounded up to whole seconds, at least 1. If the margin and a renewal
    /// still do not fit into it, each of them is a fifth of it.
    pub fn made_sound(self) -> LeaseOptions {
        let begun = u64::from(self.duration.subsec_nanos() > 0);
        let whole = Duration::from_secs(self.duration.as_secs().saturating_add(begun));
        let rounded = LeaseOptions { duration: whole.max(LEASE_MIN), ..self };
        let fifth = rounded.duration / 5;
        if rounded.has_room() { rounded } else { LeaseOptions { margin: fifth, renew_every: fifth, ..rounded } }
    }

    fn has_room(&self) -> bool {
        let needed = self.margin.checked_add(self.renew_every);
        needed.is_some_and(|needed| needed < self.duration) && self.renew_every > Duration::ZERO
    }
}

/// A holder of a lease, as its entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The member.
    pub member: MemberId,
    /// Its number.
    pub fence: Fence,
    /// Its words about itself.
    pub note: Bytes,
}

impl Holder {
    /// Reads an entry of the store, of anybody. `None` if it is no lease.
    pub fn read(value: &Bytes, revision: Revision) -> Option<Holder> {
        let number = |at: usize| Some(u64::from_le_bytes(value.get(at..at + 8)?.try_into().ok()?));
        if *value.first()? != VERSION {
            return None;
        }
        let (member, fence) = (number(1)?, number(9)?);
        if fence > revision.0 {
            return None; // A number of the future would shut all others out.
        }
        let fence = if fence == 0 { revision.0 } else { fence };
        Some(Holder { member: MemberId(member), fence: Fence(fence), note: value.slice(HEAD_BYTES..) })
    }
}

/// A change of a lease for its member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseChange {
    /// It is held from now on, with this number.
    Taken(Fence),
    /// It is not held any more.
    Lost(Fence),
}

/// One member's end of a lease: gets it, renews it, gets it again.
///
/// In each pass: [`Lease::handle_event`] for all events of the bus, [`Lease::handle_timeout`], [`Lease::poll_change`] until
/// `None`, then [`Lease::poll_command`] until `None`.
#[derive(Debug)]
pub struct Lease {
    key: Subject,
    member: MemberId,
    note: Bytes,
    options: LeaseOptions,
    tickets: Tickets,
    held: Option<Held>,
    asked: Option<Asked>,
    /// The entry as it was last seen, if it is ours: its revision.
    revision: Option<Revision>,
    /// The revision in the command that was polled last, if that removes the entry.
    deleted: Option<Revision>,
    next_attempt: Time,
    is_connected: bool,
    is_released: bool,
    changes: VecDeque<LeaseChange>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    fence: Fence,
    until: Time,
    /// When the oldest renewal was sent of which nobody knows whether it happened.
    unsure_since: Option<Time>,
}

/// The operation under way. At most one.
#[derive(Clone, Copy, Debug)]
struct Asked {
    ticket: Ticket,
    sent: Time,
    is_sent: bool,
    operation: Operation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// A write that takes the lease.
    Take(Expect),
    /// A write that renews it.
    Renew(Revision),
    /// A look at the entry, after an answer that left doubts.
    Look,
}

impl Lease {
    /// A lease that is not held yet. `desk` is the desk of its tickets, see [`Tickets`]; `note` is shown to others. If the times do not
    /// fit each other, they are [changed](LeaseOptions::made_sound).
    pub fn new(key: Subject, member: MemberId, note: Bytes, options: LeaseOptions, desk: u16) -> Lease {
        Lease {
            key,
            member,
            note,
            options: options.made_sound(),
            tickets: Tickets::new(desk),
            held: None,
            asked: None,
            revision: None,
            deleted: None,
            next_attempt: Time(0),
            is_connected: false,
            is_released: false,
            changes: VecDeque::new(),
        }
    }

    /// The fencing number, while the lease is held at `now`. Ask anew before each act that needs the lease.
    #[inline]
    pub fn fence(&self, now: Time) -> Option<Fence> {
        self.held.filter(|held| now < held.until).map(|held| held.fence)
    }

    /// The time until which it is held if nothing renews it.
    pub fn until(&self) -> Option<Time> {
        self.held.map(|held| held.until)
    }

    /// Tries to get the lease at once: somebody saw that it is free.
    pub fn try_now(&mut self, now: Time) {
        if self.held.is_none() {
            self.next_attempt = now;
        }
    }

    /// Gives the lease up, for good. Others get it as soon as the store has removed the entry.
    pub fn release(&mut self) {
        (self.is_released, self.next_attempt) = (true, Time(0));
        self.lose();
    }

    /// Whether it was given up.
    pub fn is_released(&self) -> bool {
        self.is_released
    }

    /// Takes an event of the bus. Events of others are ignored.
    pub fn handle_event(&mut self, now: Time, event: &Event) {
        match event {
            Event::Connected => {
                self.is_connected = true;
                self.next_attempt = now;
            }
            Event::Disconnected => self.is_connected = false,
            Event::Written { ticket, result } => {
                if let Some(asked) = self.take_asked(*ticket) {
                    self.handle_written(now, asked, *result);
                }
            }
            Event::Got { ticket, result } => {
                if let Some(asked) = self.take_asked(*ticket) {
                    match result {
                        Ok(entry) => {
                            let entry = entry.as_ref().map(|entry| (&entry.value, entry.revision));
                            self.handle_seen(now, asked, entry);
                        }
                        Err(_) => self.look(now),
                    }
                }
            }
            _ => {}
        }
    }

    /// Notices that the time is over.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.held.is_some_and(|held| now >= held.until) {
            self.lose();
            self.next_attempt = now;
        }
    }

    /// The next change.
    pub fn poll_change(&mut self) -> Option<LeaseChange> {
        self.changes.pop_front()
    }

    /// The next command for the bus. If the bus refuses it, call [`Lease::handle_refusal`].
    pub fn poll_command(&mut self, now: Time) -> Option<Command> {
        if !self.is_connected {
            return None;
        }
        if self.is_released {
            if now < self.next_attempt {
                return None;
            }
            return self.poll_delete().or_else(|| self.poll_look(now));
        }
        if self.asked.is_none() && now >= self.next_attempt {
            let operation = match (self.held, self.revision) {
                (Some(_), Some(revision)) => Operation::Renew(revision),
                (None, Some(revision)) => Operation::Take(Expect::Revision(revision)),
                (_, None) => Operation::Take(Expect::Absent),
            };
            self.ask(now, operation);
            self.next_attempt = now.after(self.options.renew_every);
        }
        let asked = self.asked.as_mut().filter(|asked| !asked.is_sent)?;
        (asked.is_sent, asked.sent) = (true, now);
        let Asked { ticket, operation, .. } = *asked;
        let fence = self.held.map_or(0, |held| held.fence.0);
        let key = self.key.clone();
        let life = Some(self.options.duration);
        let put = |expect, fence| Command::Put { ticket, key, value: self.value(fence), expect, lives_for: life };
        Some(match operation {
            Operation::Take(expect) => put(expect, 0),
            Operation::Renew(revision) => put(Expect::Revision(revision), fence),
            Operation::Look => Command::Get { ticket, key: self.key.clone() },
        })
    }

    /// Says that the bus refused the command that was polled last: it is tried again.
    pub fn handle_refusal(&mut self, now: Time) {
        if let Some(revision) = self.deleted.take() {
            self.revision = self.revision.or(Some(revision));
        } else {
            self.asked.take_if(|asked| !self.is_released || asked.operation != Operation::Look);
            self.asked.iter_mut().for_each(|asked| asked.is_sent = false);
        }
        self.next_attempt = now.after(self.options.renew_every);
    }

    /// When to come back at the latest.
    pub fn next_timeout(&self) -> Time {
        let is_asking = self.asked.is_some_and(|asked| asked.is_sent || !self.is_released);
        let is_done = self.is_released && self.revision.is_none() && self.asked.is_none();
        let attempt = if is_asking || is_done { Time(u64::MAX) } else { self.next_attempt };
        self.held.map_or(attempt, |held| held.until.min(attempt))
    }

    /// Whether a write that was under way has happened after all.
    fn poll_look(&mut self, now: Time) -> Option<Command> {
        let is_look = |asked: &&mut Asked| !asked.is_sent && asked.operation == Operation::Look;
        let asked = self.asked.as_mut().filter(is_look)?;
        (asked.is_sent, asked.sent, self.deleted) = (true, now, None);
        Some(Command::Get { ticket: asked.ticket, key: self.key.clone() })
    }

    fn poll_delete(&mut self) -> Option<Command> {
        let revision = self.revision.take()?;
        self.deleted = Some(revision);
        let ticket = self.tickets.issue();
        Some(Command::Delete { ticket, key: self.key.clone(), expect: Expect::Revision(revision) })
    }

    fn handle_written(&mut self, now: Time, asked: Asked, result: Result<Revision, StoreError>) {
        let until = asked.sent.after(self.options.duration - self.options.margin);
        match (result, asked.operation) {
            (Ok(revision), Operation::Take(_)) => {
                self.revision = Some(revision);
                self.hold(now, Fence(revision.0), until);
            }
            (Ok(revision), Operation::Renew(_)) => {
                self.revision = Some(revision);
                if let Some(held) = &mut self.held {
                    (held.until, held.unsure_since) = (until, None);
                }
            }
            // A look is answered with the entry.
            (Ok(_), Operation::Look) => {}
            (Err(error), operation) => {
                if let (Operation::Renew(_), Some(held), StoreError::Unknown) = (operation, &mut self.held, error) {
                    held.unsure_since.get_or_insert(asked.sent);
                }
                // Somebody else holds it, or an earlier write of ours happened after all.
                self.look(now);
            }
        }
    }

    /// The entry, read after doubts. A write of ours whose answer was lost shows here, or will make the next one fail.
    fn handle_seen(&mut self, now: Time, asked: Asked, entry: Option<(&Bytes, Revision)>) {
        let ours = entry.and_then(|(value, revision)| {
            let holder = Holder::read(value, revision).filter(|holder| holder.member == self.member)?;
            Some((holder.fence, revision))
        });
        let Some((fence, revision)) = ours else {
            self.revision = None;
            self.lose();
            self.next_attempt = now.after(self.options.renew_every);
            return;
        };
        match &mut self.held {
            Some(held) if held.fence == fence => {
                // The renewal that made this revision was sent at `unsure_since` or later.
                if self.revision != Some(revision)
                    && let Some(sent) = held.unsure_since.take()
                {
                    held.until = held.until.max(sent.after(self.options.duration - self.options.margin));
                }
            }
            // An entry of an earlier holding of ours: nobody else could take it, so it is taken anew, with a new number.
            _ => self.lose(),
        }
        self.revision = Some(revision);
        self.next_attempt = asked.sent;
    }

    fn hold(&mut self, now: Time, fence: Fence, until: Time) {
        if now >= until || self.is_released {
            return; // The answer came too late to be of use. The next attempt takes the entry anew, or removes it.
        }
        self.held = Some(Held { fence, until, unsure_since: None });
        self.changes.push_back(LeaseChange::Taken(fence));
    }

    fn lose(&mut self) {
        if let Some(held) = self.held.take() {
            self.changes.push_back(LeaseChange::Lost(held.fence));
        }
    }

    fn look(&mut self, now: Time) {
        self.ask(now, Operation::Look);
    }

    fn ask(&mut self, now: Time, operation: Operation) {
        let ticket = self.tickets.issue();
        self.asked = Some(Asked { ticket, sent: now, is_sent: false, operation });
    }

    fn take_asked(&mut self, ticket: Ticket) -> Option<Asked> {
        self.asked.take_if(|asked| asked.is_sent && asked.ticket == ticket)
    }

    fn value(&self, fence: u64) -> Bytes {
        let mut value = BytesMut::with_capacity(HEAD_BYTES + self.note.len());
        value.extend_from_slice(&[VERSION]);
        value.extend_from_slice(&self.member.0.to_le_bytes());
        value.extend_from_slice(&fence.to_le_bytes());
        value.extend_from_slice(&self.note);
        value.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_do_not_fit_each_other_are_made_to() {
        let of = |duration_ms, margin_ms, renew_ms| {
            let [duration, margin, renew_every] = [duration_ms, margin_ms, renew_ms].map(Duration::from_millis);
            LeaseOptions { duration, margin, renew_every }
        };
        for (given, made) in [
            (of(5_000, 1_000, 1_000), of(5_000, 1_000, 1_000)),
            (of(1_000, 0, 999), of(1_000, 0, 999)),
            (of(4_001, 1_000, 1_000), of(5_000, 1_000, 1_000)),
            (of(0, 0, 100), of(1_000, 0, 100)),
            (of(5_000, 6_000, 1_000), of(5_000, 1_000, 1_000)),
            (of(5_000, 4_000, 1_000), of(5_000, 1_000, 1_000)),
            (of(5_000, 1_000, 0), of(5_000, 1_000, 1_000)),
            (LeaseOptions { margin: Duration::MAX, ..of(2_000, 0, 1) }, of(2_000, 400, 400)),
        ] {
            assert_eq!((given.made_sound(), made.made_sound()), (made, made), "{given:?}");
            let is_whole = made.duration >= LEASE_MIN && made.duration.subsec_nanos() == 0;
            assert!(is_whole && made.has_room(), "{made:?}");
        }
        let endless = LeaseOptions { duration: Duration::MAX, ..LeaseOptions::default() };
        assert!(endless.made_sound().duration >= Duration::from_secs(u64::MAX));
    }

    #[test]
    fn a_lease_with_a_margin_longer_than_itself_is_taken_and_ends_before_the_entry() {
        let options = LeaseOptions { margin: Duration::from_secs(9), ..LeaseOptions::default() };
        let key = Subject::new("lease.world").expect("a name");
        let mut lease = Lease::new(key, MemberId(1), Bytes::new(), options, 0);
        lease.handle_event(Time(0), &Event::Connected);
        let Some(Command::Put { ticket, lives_for: Some(life), .. }) = lease.poll_command(Time(0)) else {
            panic!("it asks for the lease");
        };
        lease.handle_event(Time(1), &Event::Written { ticket, result: Ok(Revision(7)) });
        assert_eq!(lease.fence(Time(1)), Some(Fence(7)));
        assert!(lease.until().is_some_and(|until| until < Time(0).after(life)));
    }
}
