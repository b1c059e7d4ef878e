//! Requests and operations that wait for an answer.

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
    open: FxHashMap<Ticket, Waits>,
    deadlines: BTreeSet<(Time, Ticket)>,
}

impl OpenTickets {
    pub(crate) fn open(&mut self, ticket: Ticket, waits: Waits, most: usize) -> Result<(), CommandError> {
        if self.open.len() >= most {
            return Err(CommandError::Limit { limit: "open_tickets" });
        }
        if self.open.contains_key(&ticket) {
            return Err(CommandError::Number);
        }
        self.deadlines.extend(waits.deadline().map(|deadline| (deadline, ticket)));
        self.open.insert(ticket, waits);
        Ok(())
    }

    /// Whether an event is to be handed out: an answer only if it is the first, in time, and one to the question.
    pub(crate) fn answer(&mut self, event: &Event) -> bool {
        let Some(ticket) = ticket_of(event) else { return true };
        let Some(waits) = self.open.get_mut(&ticket) else { return false };
        let is_answer = matches!(
            (*waits, event),
            (Waits::Request(_), Event::Answer { .. })
                | (Waits::Get(_), Event::Got { .. })
                | (Waits::Write(_), Event::Written { .. })
        );
        if is_answer && let Some(deadline) = std::mem::replace(waits, Waits::Poll).deadline() {
            self.deadlines.remove(&(deadline, ticket));
        }
        is_answer
    }

    /// Frees the number of an answer that is handed out.
    pub(crate) fn close(&mut self, event: &Event) {
        if let Some(ticket) = ticket_of(event) {
            self.open.remove(&ticket);
        }
    }

    /// A request or an operation whose time is over.
    pub(crate) fn poll_timed_out(&mut self, now: Time) -> Option<Event> {
        let &(deadline, ticket) = self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        self.deadlines.pop_first();
        self.open.insert(ticket, Waits::Poll)?.without_answer(ticket, RequestError::TimedOut)
    }

    /// The answers to everything that is open when the connection is lost.
    pub(crate) fn lose(&mut self) -> Vec<Event> {
        self.deadlines.clear();
        let is_open = |waits: &Waits| *waits != Waits::Poll;
        let mut lost: Vec<Ticket> =
            self.open.iter().filter(|(_, waits)| is_open(waits)).map(|(ticket, _)| *ticket).collect();
        lost.sort();
        lost.into_iter()
            .filter_map(|ticket| {
                self.open.insert(ticket, Waits::Poll)?.without_answer(ticket, RequestError::ConnectionLost)
            })
            .collect()
    }
}

fn ticket_of(event: &Event) -> Option<Ticket> {
    match event {
        Event::Answer { ticket, .. } | Event::Got { ticket, .. } | Event::Written { ticket, .. } => Some(*ticket),
        _ => None,
    }
}
