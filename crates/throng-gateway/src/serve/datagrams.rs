//! State from the engine to the datagrams of one client, and the results of these datagrams.
//!
//! The engine's threads put frames in and take results out; the task of the socket does the opposite. A frame waits for
//! the next datagram, which usually goes out at once. If the path is too slow, only the newest frame of each
//! subscription waits and older ones are dropped, so the number of subscriptions bounds the waiting data.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::memory::Holding;
use super::wake::WakeList;
use throng_gateway_engine::port::{self, Fate, Ticket};

/// Frames that may wait; one more, and the oldest counts as lost.
const WAITING_MAX: usize = 256;
/// Buffers that are kept for further frames.
const SPARE_MAX: usize = 32;

/// A connection over the link, wherever it is. No other ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PeerId(pub(super) u64);

/// Tells the engine that something was lost.
type Tell = Box<dyn Fn() + Send + Sync>;

/// The queue between the engine and the datagrams of one client.
pub(crate) struct DatagramQueue {
    peer: PeerId,
    wake: Arc<WakeList<PeerId>>,
    /// Known once the engine knows the connection.
    tell: OnceLock<Tell>,
    /// The client understands movement.
    is_wanted: AtomicBool,
    settled_bytes: AtomicU64,
    /// The engine knows that there are losses, and has not fetched them yet.
    is_told: AtomicBool,
    state: Mutex<State>,
}

impl fmt::Debug for DatagramQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramQueue").field("peer", &self.peer).finish_non_exhaustive()
    }
}

struct State {
    waiting: VecDeque<Waiting>,
    fates: Vec<(Ticket, Fate)>,
    spare: Vec<Vec<u8>>,
    /// Bytes of the buffers of both lists.
    buffer_bytes: usize,
    holding: Holding,
}

/// A frame that was not sent yet.
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    /// See [`port::Datagrams::send`].
    pub(super) after_bytes: u64,
    pub(super) entries: Vec<u8>,
}

impl DatagramQueue {
    /// `holding` counts its memory.
    pub(super) fn new(peer: PeerId, wake: Arc<WakeList<PeerId>>, holding: Holding) -> Arc<DatagramQueue> {
        Arc::new(DatagramQueue {
            peer,
            wake,
            tell: OnceLock::new(),
            is_wanted: AtomicBool::new(false),
            settled_bytes: AtomicU64::new(0),
            is_told: AtomicBool::new(false),
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                fates: Vec::new(),
                spare: Vec::new(),
                buffer_bytes: 0,
                holding,
            }),
        })
    }

    /// The engine knows the connection, and is told of losses in this way.
    pub(super) fn introduce(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = self.tell.set(Box::new(tell));
    }

    /// Whether the client understands movement.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Acquire)
    }

    /// The client has said that it understands movement.
    pub(super) fn want(&self) {
        self.is_wanted.store(true, Ordering::Release);
    }

    /// How many of the bytes of the reliable lane the client has.
    pub(crate) fn settled_bytes(&self) -> u64 {
        self.settled_bytes.load(Ordering::Acquire)
    }

    /// The client has this many of the bytes of the reliable lane.
    pub(super) fn settle(&self, bytes: u64) {
        self.settled_bytes.store(bytes, Ordering::Release);
    }

    /// Whether a frame waits.
    pub(super) fn has_waiting(&self) -> bool {
        self.is_wanted() && !self.lock().waiting.is_empty()
    }

    /// Hands the frames that wait to `each`, oldest first, as long as it takes them.
    pub(super) fn drain(&self, mut each: impl FnMut(&Waiting) -> bool) {
        let mut state = self.lock();
        while state.waiting.front().is_some_and(&mut each) {
            state.recycle_front();
        }
    }

    /// Records the results of frames.
    pub(super) fn note(&self, fates: impl IntoIterator<Item = (Ticket, Fate)>) {
        let mut has_losses = false;
        self.lock().fates.extend(fates.into_iter().inspect(|(_, fate)| has_losses |= *fate == Fate::Lost));
        if has_losses
            && let Some(tell) = self.tell.get()
            && !self.is_told.swap(true, Ordering::AcqRel)
        {
            tell();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held; should it ever, what is inside is still a list of frames.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self) {
        self.holding.set_about(self.buffer_bytes);
    }

    fn recycle_front(&mut self) -> Option<Ticket> {
        let Waiting { ticket, mut entries, .. } = self.waiting.pop_front()?;
        match self.spare.len() < SPARE_MAX {
            true => {
                entries.clear();
                self.spare.push(entries);
            }
            false => {
                self.buffer_bytes -= entries.capacity();
                self.count();
            }
        }
        Some(ticket)
    }
}

impl port::Datagrams for DatagramQueue {
    fn settled_bytes(&self) -> u64 {
        DatagramQueue::settled_bytes(self)
    }

    fn send(&self, ticket: Ticket, after_bytes: u64, entries: &[u8]) {
        let mut state = self.lock();
        if let Some(elder) = state.waiting.iter_mut().find(|waiting| waiting.ticket.is_sibling(&ticket)) {
            elder.ticket = ticket;
            elder.after_bytes = after_bytes;
            let before = elder.entries.capacity();
            elder.entries.clear();
            elder.entries.extend_from_slice(entries);
            let grown = elder.entries.capacity() - before;
            state.buffer_bytes += grown;
            return state.count();
        }
        let was_empty = state.waiting.is_empty();
        let displaced = if state.waiting.len() >= WAITING_MAX { state.recycle_front() } else { None };
        let mut buffer = state.spare.pop().unwrap_or_default();
        let before = buffer.capacity();
        buffer.extend_from_slice(entries);
        state.buffer_bytes += buffer.capacity() - before;
        state.count();
        state.waiting.push_back(Waiting { ticket, after_bytes, entries: buffer });
        drop(state);
        if let Some(ticket) = displaced {
            self.note([(ticket, Fate::Lost)]);
        }
        if was_empty {
            self.wake.add(self.peer);
        }
    }

    fn take_fates(&self, into: &mut Vec<(Ticket, Fate)>) {
        self.is_told.store(false, Ordering::Release);
        into.append(&mut self.lock().fates);
    }
}

#[cfg(test)]
mod tests {
    use throng_replica::SubscriptionId;
    use throng_wire::Tick;

    use super::*;
    use crate::serve::memory::{Memory, Part};
    use throng_gateway_engine::port::Datagrams as _;

    #[test]
    fn of_too_many_frames_the_oldest_is_lost() {
        let memory = Arc::<Memory>::default();
        let queue = DatagramQueue::new(PeerId(1), Arc::default(), Holding::new(&memory, Part::Queues, 0));
        let ticket = |number| Ticket { subscription: SubscriptionId::from_number(number), epoch: 1, tick: Tick(7) };
        for number in 0..WAITING_MAX as u16 + 2 {
            queue.send(ticket(number), 0, &[0]);
        }
        let mut fates = Vec::new();
        queue.take_fates(&mut fates);
        assert_eq!(fates, [(ticket(0), Fate::Lost), (ticket(1), Fate::Lost)]);
        let mut waiting = 0;
        queue.drain(|_| {
            waiting += 1;
            true
        });
        assert_eq!(waiting, WAITING_MAX);
    }

    #[test]
    fn frames_that_wait_for_a_slow_path_count_as_memory() {
        let memory = Arc::<Memory>::default();
        let queue = DatagramQueue::new(PeerId(1), Arc::default(), Holding::new(&memory, Part::Queues, 0));
        let ticket = |number| Ticket { subscription: SubscriptionId::from_number(number), epoch: 1, tick: Tick(7) };
        (0..WAITING_MAX as u16).for_each(|number| queue.send(ticket(number), 0, &[0; 1_000]));
        let held = memory.used_bytes();
        assert!((250_000..300_000).contains(&held), "{held}");
        queue.drain(|_| true);
        let kept = memory.used_bytes();
        assert!((28_000..40_000).contains(&kept), "{kept}");
    }
}
