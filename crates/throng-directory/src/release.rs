//! How a member gives a home up.
//!
//! ```text
//!  remove the entry, if it is still ours as it was --> removed, or another one: done
//!        ^                                         \-> the answer is lost, or the bus refuses
//!        +------------------- later -------------------+
//! ```
//!
//! It is sent until the outcome is known: while the member lives, nobody else may claim a home whose entry has stayed.

use throng_bus::{Command, Event, Expect, Fence, Revision, StoreError, Ticket, Tickets};
use throng_wire::Time;

use crate::HomeKey;
use crate::moves::RETRY_AFTER;

#[derive(Clone, Debug)]
pub(crate) struct Release {
    key: HomeKey,
    fence: Fence,
    ticket: Option<Ticket>,
    not_before: Time,
}

impl Release {
    pub(crate) fn new(key: HomeKey, fence: Fence) -> Release {
        Release { key, fence, ticket: None, not_before: Time(0) }
    }

    /// The next command, unless one is under way.
    pub(crate) fn poll_command(&mut self, now: Time, tickets: &mut Tickets) -> Option<Command> {
        if self.ticket.is_some() || now < self.not_before {
            return None;
        }
        let (ticket, expect) = (tickets.issue(), Expect::Revision(Revision(self.fence.0)));
        self.ticket = Some(ticket);
        Some(Command::Delete { ticket, key: self.key.home_subject(), expect })
    }

    /// The command was refused by the bus.
    pub(crate) fn handle_refusal(&mut self, now: Time) {
        (self.ticket, self.not_before) = (None, now.after(RETRY_AFTER));
    }

    /// Takes an answer. True if it says that the entry is not ours any more; any other answer to its command makes it try again.
    pub(crate) fn handle_answer(&mut self, now: Time, ticket: Ticket, event: &Event) -> bool {
        if self.ticket != Some(ticket) {
            return false;
        }
        let is_end = matches!(event, Event::Written { result: Ok(_) | Err(StoreError::Refused), .. });
        if !is_end {
            self.handle_refusal(now);
        }
        is_end
    }
}
