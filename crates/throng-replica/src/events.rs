//! The events that a client has not returned to the game yet.
//!
//! An object is queued once, however often it changes; its event is the difference between the game's last known state
//! and the present one. So the queue is bounded by the objects, and nothing in it is ever dropped.

use std::collections::VecDeque;

use throng_wire::ObjectId;

use crate::client::{ClientEvent, DespawnReason};
use crate::objects::ReplicaObject;

#[derive(Debug, Default)]
pub(crate) struct Events {
    queue: VecDeque<Entry>,
    next_ticket: u64,
    /// How long the queue may grow before it is cleared of entries that mean nothing any more.
    clear_at: usize,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    /// There is something to tell of the object at this index, if it still holds the ticket.
    Object { index: u32, ticket: u64 },
    /// An object that the game knows has gone.
    Gone { id: ObjectId, reason: DespawnReason },
}

/// Entries beyond twice the objects before the queue is looked through.
const SLACK: usize = 16;

impl Events {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Queues an object. Returns the ticket that it has to hold.
    pub(crate) fn push_object(&mut self, index: u32) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.queue.push_back(Entry::Object { index, ticket });
        ticket
    }

    /// Queues the end of an object that the game knows: there are at most as many ends as known objects.
    pub(crate) fn push_gone(&mut self, id: ObjectId, reason: DespawnReason) {
        self.queue.push_back(Entry::Gone { id, reason });
    }

    /// Whether the queue is long enough for [`clear_ended`](Self::clear_ended).
    pub(crate) fn is_long(&self, objects: usize) -> bool {
        self.queue.len() >= self.clear_at.max(2 * objects + SLACK)
    }

    /// Removes entries of objects that do not hold their ticket.
    pub(crate) fn clear_ended(&mut self, ticket_of: impl Fn(u32) -> Option<u64>) {
        self.queue.retain(|entry| match *entry {
            Entry::Object { index, ticket } => ticket_of(index) == Some(ticket),
            Entry::Gone { .. } => true,
        });
        self.clear_at = 2 * self.queue.len() + SLACK;
    }

    /// The next event.
    pub(crate) fn poll(&mut self, objects: &mut [Option<ReplicaObject>]) -> Option<ClientEvent> {
        loop {
            let Some(&front) = self.queue.front() else {
                self.clear_at = 0;
                return None;
            };
            let (index, ticket) = match front {
                Entry::Object { index, ticket } => (index, ticket),
                Entry::Gone { id, reason } => {
                    self.queue.pop_front();
                    return Some(ClientEvent::Despawned { id, reason });
                }
            };
            let queued = objects.get_mut(index as usize).and_then(Option::as_mut);
            if let Some(queued) = queued.filter(|object| object.told.queued == Some(ticket)) {
                if let Some(event) = queued.next_event() {
                    return Some(event);
                }
                queued.told.queued = None;
            }
            self.queue.pop_front();
        }
    }
}
