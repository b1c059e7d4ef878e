//! Requests and operations that wait for an answer.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use throng_wire::Time;

use crate::{CommandError, Event, RequestError, StoreError, Ticket};

/// The answer that an open ticket waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// An answer to a request, until then.
    Request(Time),
    /// An entry.
    Get,
    /// The result of a write.
    Write,
    /// Nothing more: the answer waits for [`Bus::poll_event`](crate::Bus::poll_event).
    Poll,
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
        if let Waits::Request(deadline) = waits {
            self.deadlines.insert((deadline, ticket));
        }
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
                | (Waits::Get, Event::Got { .. })
                | (Waits::Write, Event::Written { .. })
        );
        if is_answer && let Waits::Request(deadline) = std::mem::replace(waits, Waits::Poll) {
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

    /// A request whose time is over.
    pub(crate) fn poll_timed_out(&mut self, now: Time) -> Option<Event> {
        let &(deadline, ticket) = self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        self.deadlines.pop_first();
        self.open.insert(ticket, Waits::Poll);
        Some(Event::Answer { ticket, result: Err(RequestError::TimedOut) })
    }

    /// The answers to everything that is open when the connection is lost.
    pub(crate) fn lose(&mut self) -> Vec<Event> {
        self.deadlines.clear();
        let is_open = |waits: &Waits| *waits != Waits::Poll;
        let mut lost: Vec<Ticket> =
            self.open.iter().filter(|(_, waits)| is_open(waits)).map(|(ticket, _)| *ticket).collect();
        lost.sort();
        lost.into_iter()
            .map(|ticket| match self.open.insert(ticket, Waits::Poll) {
                Some(Waits::Get) => Event::Got { ticket, result: Err(StoreError::Unknown) },
                Some(Waits::Write) => Event::Written { ticket, result: Err(StoreError::Unknown) },
                _ => Event::Answer { ticket, result: Err(RequestError::ConnectionLost) },
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
