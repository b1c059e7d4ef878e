//! How a member becomes the home of something that has none.
//!
//! ```text
//!  read the entry --> none: write it if absent
//!       ^        \--> of a member: read that member's lease --> it holds: refused
//!       |                                                  \--> it has ended: write the entry if unchanged
//!       +-- the entry changed, or an answer is lost                     |
//!                                        put our number on the checkpoint, read it --> the home is ours
//! ```
//!
//! A term that has ended never begins again, so it is safe to look at the lease after the entry.
//!
//! An entry that is ours before the claim has written is written anew: a removal of it may still be on its way to the store. It
//! expects the entry as it was, so after our write it does nothing. Before our write it makes that one fail.

use throng_bus::{Command, Entry, Event, Expect, Fence, Holder, MemberId, Revision, Subject, Ticket, Tickets};
use throng_wire::Time;

use crate::HomeKey;
use crate::moves::RETRY_AFTER;
use crate::record::Home;

/// Most attempts of a claim. Then it ends as refused, and may be made again.
pub const CLAIM_ATTEMPTS_MAX: u8 = 8;

#[derive(Clone, Debug)]
pub(crate) struct Claim {
    key: HomeKey,
    member: MemberId,
    /// Our term. The claim is void when it ends.
    pub(crate) term: Fence,
    step: Step,
    ticket: Option<Ticket>,
    not_before: Time,
    attempts: u8,
    /// Our own entry that this claim writes anew.
    replaces: Option<Fence>,
}

#[derive(Clone, Debug)]
enum Step {
    Look,
    LookAtOwner(Home),
    Write(Expect),
}

/// The end of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// The entry is ours, with this number.
    Ours(Fence),
    /// The home was moved to us meanwhile.
    Arrived(Home),
    /// Another member has it, as far as is known.
    Refused(Option<MemberId>),
}

/// The entry with a member's lease.
pub(crate) fn lease_subject(member: MemberId) -> Subject {
    Subject::new(&format!("member.{member}")).unwrap_or_else(|error| unreachable!("a number is a name: {error}"))
}

impl Claim {
    pub(crate) fn new(key: HomeKey, member: MemberId, term: Fence) -> Claim {
        Claim { key, member, term, step: Step::Look, ticket: None, not_before: Time(0), attempts: 0, replaces: None }
    }

    /// The next command, unless one is under way.
    pub(crate) fn poll_command(&mut self, now: Time, tickets: &mut Tickets) -> Option<Command> {
        if self.ticket.is_some() || now < self.not_before {
            return None;
        }
        let ticket = tickets.issue();
        self.ticket = Some(ticket);
        let key = self.key.home_subject();
        Some(match &self.step {
            Step::Look => Command::Get { ticket, key },
            Step::LookAtOwner(home) => Command::Get { ticket, key: lease_subject(home.owner) },
            Step::Write(expect) => {
                let value = Home::value(self.member, self.term, 0);
                Command::Put { ticket, key, value, expect: *expect, lives_for: None }
            }
        })
    }

    pub(crate) fn is_waiting_for(&self, ticket: Ticket) -> bool {
        self.ticket == Some(ticket)
    }

    /// The command was refused by the bus. It is no attempt.
    pub(crate) fn handle_refusal(&mut self, now: Time) {
        (self.ticket, self.not_before) = (None, now.after(RETRY_AFTER));
    }

    /// Takes the answer to its command.
    pub(crate) fn handle_event(&mut self, event: &Event) -> Option<Claimed> {
        match (self.step.clone(), event) {
            (Step::Look, Event::Got { result: Ok(entry), .. }) => self.handle_entry(entry.as_ref()),
            (Step::LookAtOwner(home), Event::Got { result: Ok(entry), .. }) => {
                let holder = entry.as_ref().and_then(|entry| Holder::read(&entry.value, entry.revision));
                if holder.is_some_and(|holder| holder.fence == home.term) {
                    return Some(Claimed::Refused(Some(home.owner)));
                }
                self.go(Step::Write(Expect::Revision(Revision(home.fence.0))))
            }
            (Step::Write(_), Event::Written { result: Ok(revision), .. }) => Some(Claimed::Ours(Fence(revision.0))),
            _ => self.again(None),
        }
    }

    /// Writes an entry of ours anew.
    pub(crate) fn replace(&mut self, old: Fence) {
        self.replaces = Some(old);
        self.go(Step::Write(Expect::Revision(Revision(old.0))));
    }

    fn handle_entry(&mut self, entry: Option<&Entry>) -> Option<Claimed> {
        let Some(entry) = entry else { return self.go(Step::Write(Expect::Absent)) };
        match Home::read(&entry.value, entry.revision) {
            Some(home) if (home.owner, home.term) == (self.member, self.term) => match self.replaces {
                _ if home.offer != 0 => Some(Claimed::Arrived(home)),
                // The write of this claim, whose answer was lost.
                Some(old) if old != home.fence => Some(Claimed::Ours(home.fence)),
                _ => {
                    self.replace(home.fence);
                    None
                }
            },
            Some(home) if home.owner == self.member => self.go(Step::Write(Expect::Revision(entry.revision))),
            Some(home) => self.go(Step::LookAtOwner(home)),
            // Nobody serves an entry that cannot be read.
            None => self.go(Step::Write(Expect::Revision(entry.revision))),
        }
    }

    fn go(&mut self, step: Step) -> Option<Claimed> {
        (self.step, self.ticket) = (step, None);
        None
    }

    fn again(&mut self, owner: Option<MemberId>) -> Option<Claimed> {
        self.attempts += 1;
        if self.attempts >= CLAIM_ATTEMPTS_MAX {
            return Some(Claimed::Refused(owner));
        }
        self.go(Step::Look)
    }
}
