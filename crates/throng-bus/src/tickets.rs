//! Requests and operations that wait for an answer.
//!
//! A caller's ticket may be used again as soon as its answer was handed out, which may be one that says that none came. So each
//! question also has a number of the bus, which is never used again, and an answer names that: a late one meets no later question.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use throng_wire::Time;

use crate::{CommandError, Event, RequestError, StoreError, Ticket};

/// The answer that an open ticket waits for, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// An answer to a request.
    Request(Time),
    /// An entry.
    Get(Time),
    /// The result of a write.
    Write(Time),
    /// Nothing more: the answer waits for [`Bus::poll_event`](crate::Bus::poll_event).
    Poll,
}

/// The deadline of an operation that always has an answer.
pub(crate) const NEVER: Time = Time(u64::MAX);

impl Waits {
    fn deadline(self) -> Option<Time> {
        match self {
            Waits::Request(at) | Waits::Get(at) | Waits::Write(at) => Some(at),
            Waits::Poll => None,
        }
    }

    /// The event for a ticket whose answer has not come; `None` if it has.
    fn without_answer(self, ticket: Ticket, error: RequestError) -> Option<Event> {
        match self {
            Waits::Request(_) => Some(Event::Answer { ticket, result: Err(error) }),
            Waits::Get(_) => Some(Event::Got { ticket, result: Err(StoreError::Unknown) }),
            Waits::Write(_) => Some(Event::Written { ticket, result: Err(StoreError::Unknown) }),
            Waits::Poll => None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct OpenTickets {
    open: FxHashMap<Ticket, Open>,
    /// The tickets of questions without an answer, by the bus's numbers.
    asked: FxHashMap<Ticket, Ticket>,
    deadlines: BTreeSet<(Time, Ticket)>,
    newest: u64,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    waits: Waits,
    /// The bus's number.
    number: Ticket,
}

impl OpenTickets {
    /// Nothing is open, and the bus's numbers begin after this one.
    pub(crate) fn after(newest: u64) -> OpenTickets {
        OpenTickets { newest, ..OpenTickets::default() }
    }

    /// Notes a question, and returns the number that its answer has to name.
    pub(crate) fn open(&mut self, ticket: Ticket, waits: Waits, most: usize) -> Result<Ticket, CommandError> {
        if self.open.len() >= most {
            return Err(CommandError::Limit { limit: "open_tickets" });
        }
        if self.open.contains_key(&ticket) {
            return Err(CommandError::Number);
        }
        self.newest += 1;
        let number = Ticket(self.newest);
        self.deadlines.extend(waits.deadline().map(|deadline| (deadline, ticket)));
        self.open.insert(ticket, Open { waits, number });
        self.asked.insert(number, ticket);
        Ok(number)
    }

    /// An event as it is to be handed out: an answer, which names the bus's number, only if it is the first, in time, and one to
    /// the question.
    pub(crate) fn answer(&mut self, mut event: Event) -> Option<Event> {
        let Some(number) = ticket_of(&mut event) else { return Some(event) };
        let ticket = *self.asked.get(number)?;
        *number = ticket;
        let is_answer = matches!(
            (self.open.get(&ticket)?.waits, &event),
            (Waits::Request(_), Event::Answer { .. })
                | (Waits::Get(_), Event::Got { .. })
                | (Waits::Write(_), Event::Written { .. })
        );
        if !is_answer {
            return None;
        }
        if let Some(deadline) = self.end(ticket)?.deadline() {
            self.deadlines.remove(&(deadline, ticket));
        }
        Some(event)
    }

    /// Frees the ticket of an answer that is handed out.
    pub(crate) fn close(&mut self, event: &mut Event) {
        if let Some(ticket) = ticket_of(event) {
            self.open.remove(ticket);
        }
    }

    /// A request or an operation whose time is over.
    pub(crate) fn poll_timed_out(&mut self, now: Time) -> Option<Event> {
        let &(deadline, ticket) = self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        self.deadlines.pop_first();
        self.end(ticket)?.without_answer(ticket, RequestError::TimedOut)
    }

    /// The answers to everything that is open when the connection is lost.
    pub(crate) fn lose(&mut self) -> Vec<Event> {
        self.deadlines.clear();
        let mut lost: Vec<Ticket> = self.asked.values().copied().collect();
        lost.sort();
        let end = |ticket| self.end(ticket)?.without_answer(ticket, RequestError::ConnectionLost);
        lost.into_iter().filter_map(end).collect()
    }

    /// The ticket waits for nothing more. Returns what it waited for.
    fn end(&mut self, ticket: Ticket) -> Option<Waits> {
        let open = self.open.get_mut(&ticket)?;
        self.asked.remove(&open.number);
        Some(std::mem::replace(&mut open.waits, Waits::Poll))
    }
}

fn ticket_of(event: &mut Event) -> Option<&mut Ticket> {
    match event {
        Event::Answer { ticket, .. } | Event::Got { ticket, .. } | Event::Written { ticket, .. } => Some(ticket),
        _ => None,
    }
}
