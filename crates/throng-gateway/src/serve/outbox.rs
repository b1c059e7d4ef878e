//! Data that waits to be written to one connection: the engine adds it, the connection's task writes it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;

use super::counters::Reason;
use super::datagrams::DatagramQueue;
use super::direct::Direct;
use super::gate::Members;
use super::memory::{Holding, Memory, Part};
use super::pieces::{Piece, Pieces};
use throng_gateway_engine::port;

/// Entries that wait, and how the connection is to end.
///
/// Bytes count as queued until the path has taken them. Over TCP that is when the kernel has. A session of the link would
/// take them long before: there they count until they have arrived, which is known.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Sent data that is not [written](Queue::written). On the link: what was sent.
    unwritten_bytes: AtomicUsize,
    /// The door's bound, as it is now.
    limit_bytes: Arc<AtomicUsize>,
    /// The kernel's buffer, which fills before anything waits here.
    kernel_bytes: usize,
    is_admitted: AtomicBool,
    /// Counts the logged-in connections of its address.
    members: Option<Members>,
    /// If it is closed before login, that is not its fault: it waits for us, or was refused because of us.
    is_excused: AtomicBool,
    failed_logins: AtomicU32,
    /// The peer has logged in.
    admission: Notify,
    /// The way beside it for what may get lost.
    datagrams: OnceLock<Arc<DatagramQueue>>,
    /// There is something to write, or nothing will come any more.
    wake: Notify,
    /// The connection is to end.
    end: Notify,
}

struct State {
    pieces: Pieces,
    taken: Taken,
    /// Its whole memory.
    holding: Holding,
    /// The bytes that the kernel buffers before it accepts no more.
    kernel: Holding,
    /// The kernel takes no more of what the task writes.
    is_kernel_full: bool,
    ending: Option<Ending>,
    /// The socket, if entries need not wait for a task and the task does not have it.
    direct: Option<Direct>,
}

/// Entries that the task has taken and not yet written, and its memory.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// Bytes of entries that it is not done with.
    bytes: usize,
    /// The memory that they are in.
    held_bytes: usize,
    /// Memory that it writes with.
    buffer_bytes: usize,
}

/// How a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Queued data goes out before.
    Flush,
    /// At once.
    Now(Reason),
}

impl Queue {
    /// A queue that is never longer than `limit_bytes`, which may change at any time: what waits then is measured by it
    /// with the next that is sent. `members` counts it while it is open and logged in.
    pub(crate) fn new(
        limit_bytes: Arc<AtomicUsize>,
        members: Option<Members>,
        (memory, kernel_bytes): (&Arc<Memory>, usize),
    ) -> Arc<Queue> {
        let holding = Holding::new(memory, Part::Queues, 0);
        let kernel = Holding::new(memory, Part::Sockets, 0);
        let (pieces, taken) = (Pieces::default(), Taken::default());
        let state = State { pieces, taken, holding, kernel, is_kernel_full: false, ending: None, direct: None };
        Arc::new(Queue {
            kernel_bytes,
            members,
            is_excused: AtomicBool::new(false),
            failed_logins: AtomicU32::new(0),
            state: Mutex::new(state),
            unwritten_bytes: AtomicUsize::new(0),
            limit_bytes,
            is_admitted: AtomicBool::new(false),
            admission: Notify::new(),
            datagrams: OnceLock::new(),
            wake: Notify::new(),
            end: Notify::new(),
        })
    }

    /// From now on, sent entries go to the socket at once if it has room. The task is [`write_behind`](super::write_behind); it
    /// gives the socket back in this way when it has written a backlog.
    pub(crate) fn attach(&self, direct: Direct) {
        let mut state = self.lock();
        state.direct = Some(direct);
        state.is_kernel_full = false;
        state.taken = Taken::default();
        self.count(&mut state);
    }

    /// Waits until something is left over, and takes the socket. `None` once all is written and the connection is to end.
    pub(crate) async fn backlog(&self) -> Option<Direct> {
        loop {
            {
                let mut state = self.lock();
                let waits = !state.pieces.is_empty() || state.direct.as_ref().is_some_and(|d| d.rest_bytes() > 0);
                if waits && let Some(direct) = state.direct.take() {
                    state.is_kernel_full = direct.rest_bytes() > 0;
                    state.taken.bytes = direct.rest_bytes();
                    state.taken.buffer_bytes = direct.held_bytes();
                    self.count(&mut state);
                    return Some(direct);
                }
                if state.ending.is_some() {
                    return None;
                }
            }
            self.wake.notified().await;
        }
    }

    /// Takes the socket, finally. Without the other half, dropping it closes the connection.
    pub(crate) fn take_socket(&self) -> Option<Direct> {
        self.lock().direct.take()
    }

    /// Waits for entries. Data taken before is written. `None` once all is written and the connection is to end.
    pub(crate) async fn next(&self) -> Option<Piece> {
        loop {
            {
                let mut state = self.lock();
                match self.take_from(&mut state) {
                    None if state.ending.is_none() => {}
                    taken => return taken,
                }
            }
            self.wake.notified().await;
        }
    }

    /// The same without waiting.
    pub(crate) fn take(&self) -> Option<Piece> {
        self.take_from(&mut self.lock())
    }

    fn take_from(&self, state: &mut State) -> Option<Piece> {
        let entries = state.pieces.pop();
        state.taken.bytes = entries.as_ref().map_or(0, |piece| piece.len());
        state.taken.held_bytes = entries.as_ref().map_or(0, Piece::held_bytes);
        self.count(state);
        entries
    }

    /// The task writes with buffers of so many bytes.
    pub(crate) fn hold(&self, buffer_bytes: usize) {
        let mut state = self.lock();
        if state.taken.buffer_bytes != buffer_bytes {
            state.taken.buffer_bytes = buffer_bytes;
            self.count(&mut state);
        }
    }

    /// Waits for a write of the task. While the kernel has no room for it, what the kernel keeps counts.
    pub(crate) async fn writing<T>(&self, write: impl Future<Output = T>) -> T {
        let mut write = pin!(write);
        if let Poll::Ready(result) = poll_fn(|context| Poll::Ready(write.as_mut().poll(context))).await {
            self.note_kernel(false);
            return result;
        }
        self.note_kernel(true);
        let result = write.await;
        self.note_kernel(false);
        result
    }

    fn note_kernel(&self, is_full: bool) {
        let mut state = self.lock();
        if state.is_kernel_full != is_full {
            state.is_kernel_full = is_full;
            self.count(&mut state);
        }
    }

    /// Some of what [`Queue::next`] gave has gone to the kernel.
    pub(crate) fn written(&self, bytes: usize) {
        self.unwritten_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Waits until the connection is to end.
    pub(crate) async fn ending(&self) -> Ending {
        loop {
            if let Some(ending) = self.lock().ending {
                return ending;
            }
            self.end.notified().await;
        }
    }

    /// Waits until the connection is to end at once.
    pub(crate) async fn ending_now(&self) -> Reason {
        loop {
            if let Some(reason) = self.ended_now() {
                return reason;
            }
            self.end.notified().await;
        }
    }

    /// Why the connection was to end at once, if it was.
    pub(crate) fn ended_now(&self) -> Option<Reason> {
        match self.lock().ending {
            Some(Ending::Now(reason)) => Some(reason),
            _ => None,
        }
    }

    /// Ends the connection. The harsher of two ways counts.
    pub(crate) fn end(&self, ending: Ending) {
        let mut state = self.lock();
        if !matches!(state.ending, Some(Ending::Now(_))) {
            state.ending = Some(ending);
        }
        if ending != Ending::Flush {
            state.pieces = Pieces::default();
            self.count(&mut state);
        }
        drop(state);
        self.wake.notify_one();
        self.end.notify_one();
    }

    /// Notes that the peer has logged in.
    fn admit(&self) {
        if !self.is_admitted.swap(true, Ordering::Relaxed)
            && let Some(members) = &self.members
        {
            members.fetch_add(1, Ordering::Relaxed);
        }
        self.admission.notify_one();
    }

    /// Waits until the peer was believed. For one task.
    pub(crate) async fn admitted(&self) {
        while !self.is_admitted() {
            self.admission.notified().await;
        }
    }

    /// Whether the peer was believed.
    pub(crate) fn is_admitted(&self) -> bool {
        self.is_admitted.load(Ordering::Relaxed)
    }

    /// From now on a failed login is our fault, or is not.
    pub(crate) fn excuse(&self, is_excused: bool) {
        self.is_excused.store(is_excused, Ordering::Relaxed);
    }

    /// The peer has guessed wrong.
    pub(crate) fn note_failed_login(&self) {
        self.failed_logins.fetch_add(1, Ordering::Relaxed);
    }

    /// How often the peer has guessed wrong.
    pub(crate) fn failed_logins(&self) -> u32 {
        self.failed_logins.load(Ordering::Relaxed)
    }

    /// Whether a failed login is our fault.
    pub(crate) fn is_excused(&self) -> bool {
        self.is_excused.load(Ordering::Relaxed)
    }

    /// Notes the way for what may get lost. The first one counts.
    pub(crate) fn set_datagrams(&self, datagrams: Arc<DatagramQueue>) {
        let _ = self.datagrams.set(datagrams);
    }

    fn queued_bytes(&self) -> usize {
        let arrived_bytes = self.datagrams.get().map_or(0, |datagrams| datagrams.settled_bytes() as usize);
        self.unwritten_bytes.load(Ordering::Relaxed).saturating_sub(arrived_bytes)
    }

    fn send(&self, entries: &mut Vec<u8>) {
        let bytes = entries.len();
        let mut state = self.lock();
        if bytes == 0 || state.ending.is_some() {
            entries.clear();
            return;
        }
        let mut waiting_bytes = bytes;
        let mut done_bytes = 0;
        if state.pieces.is_empty()
            && let Some(direct) = &mut state.direct
            && direct.is_prompt()
        {
            done_bytes = direct.write(entries);
            waiting_bytes = direct.rest_bytes() + bytes - done_bytes;
        }
        if waiting_bytes == 0 {
            entries.clear();
            return;
        }
        self.unwritten_bytes.fetch_add(waiting_bytes, Ordering::Relaxed);
        if self.queued_bytes() > self.limit_bytes.load(Ordering::Relaxed) {
            drop(state);
            entries.clear();
            return self.end(Ending::Now(Reason::TooSlow));
        }
        state.pieces.push(&entries[done_bytes..]);
        entries.clear();
        self.count(&mut state);
        drop(state);
        self.wake.notify_one();
    }

    /// Counts what the queue costs: the memory that entries are in, and what writes them. Data that a session of the
    /// link has taken and not delivered is nowhere else.
    fn count(&self, state: &mut State) {
        let (rest_bytes, buffer_bytes) = match &state.direct {
            Some(direct) => (direct.rest_bytes(), direct.held_bytes()),
            None => (0, state.taken.buffer_bytes),
        };
        let waiting_bytes = state.pieces.bytes() + state.taken.bytes + rest_bytes;
        let beyond_bytes = match state.ending {
            Some(Ending::Now(_)) => 0,
            _ => self.queued_bytes().saturating_sub(waiting_bytes),
        };
        state.holding.set(state.pieces.held_bytes() + state.taken.held_bytes + buffer_bytes + beyond_bytes);
        // Entries that the task has not tried to write do not tell whether the kernel is full.
        let is_kernel_full = rest_bytes > 0 || state.is_kernel_full;
        state.kernel.set(if is_kernel_full { self.kernel_bytes } else { 0 });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held; should it ever, what is inside is still a list of entries.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if *self.is_admitted.get_mut()
            && let Some(members) = &self.members
        {
            members.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The engine's end of a [`Queue`].
pub(crate) struct Outbox(pub(crate) Arc<Queue>);

impl port::Outbox for Outbox {
    fn queued_bytes(&self) -> usize {
        self.0.queued_bytes()
    }

    fn send(&self, entries: &mut Vec<u8>) {
        self.0.send(entries);
    }

    fn admitted(&self) {
        self.0.admit();
    }

    fn note_login(&self, note: port::LoginNote) {
        match note {
            port::LoginNote::Waits => self.0.excuse(true),
            port::LoginNote::Guessed => {
                self.0.excuse(false);
                self.0.note_failed_login();
            }
        }
    }

    fn close(&self) {
        self.0.end(Ending::Flush);
    }

    fn abandon(&self) {
        self.0.end(Ending::Now(Reason::NoMemory));
    }

    fn datagrams(&self) -> Option<&dyn port::Datagrams> {
        let datagrams = self.0.datagrams.get().filter(|datagrams| datagrams.is_wanted())?;
        Some(&**datagrams)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::pieces::ALLOCATION_BYTES;
    use super::*;
    use throng_gateway_engine::port::Outbox as _;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    fn next(queue: &Queue) -> Option<Vec<u8>> {
        block_on(queue.next()).map(|piece| piece.to_vec())
    }

    fn bound(bytes: usize) -> Arc<AtomicUsize> {
        Arc::new(AtomicUsize::new(bytes))
    }

    #[test]
    fn what_is_sent_is_taken_in_order() {
        let queue = Queue::new(bound(100), None, (&Arc::default(), 0));
        let outbox = Outbox(Arc::clone(&queue));
        let mut buffer = vec![1, 2];
        outbox.send(&mut buffer);
        assert!(buffer.is_empty());
        buffer.push(3);
        outbox.send(&mut buffer);
        assert_eq!(outbox.queued_bytes(), 3);
        assert_eq!(next(&queue), Some(vec![1, 2, 3]));
        queue.written(3);
        assert_eq!(outbox.queued_bytes(), 0);
        outbox.close();
        assert_eq!(next(&queue), None);
    }

    #[test]
    fn what_waits_is_counted_once_whether_the_task_has_it_or_not() {
        let memory = Arc::<Memory>::default();
        let queue = Queue::new(bound(100_000), None, (&memory, 70));
        let outbox = Outbox(Arc::clone(&queue));
        let counted = || memory.part_bytes(Part::Queues) as usize;
        outbox.send(&mut vec![1; 10_000]);
        let piece = 10_000 + ALLOCATION_BYTES;
        let list = counted() - piece;
        assert!(list <= 4 * size_of::<Piece>(), "{list}");
        let taken = block_on(queue.next()).expect("it waits");
        assert_eq!((taken.len(), counted()), (10_000, piece), "the task has it");
        queue.hold(300);
        assert_eq!(counted(), piece + 300, "and writes it with a buffer");
        outbox.send(&mut vec![2; 20_000]);
        assert_eq!(counted(), piece + 300 + 20_480 + list, "in pages");
        queue.written(10_000);
        drop(taken);
        let _taken = block_on(queue.next()).expect("it waits");
        assert_eq!(counted(), 20_480 + 300);
        queue.written(20_000);
        assert!(queue.take().is_none());
        assert_eq!(counted(), 300);
        outbox.abandon();
        drop((outbox, queue));
        assert_eq!(counted(), 0);
    }

    #[tokio::test]
    async fn a_kernel_that_takes_what_is_written_is_not_counted_as_full() {
        let memory = Arc::<Memory>::default();
        let queue = Queue::new(bound(100_000), None, (&memory, 70));
        let counted = || memory.part_bytes(Part::Sockets);
        let (mut writer, mut reader) = tokio::io::duplex(16);
        Outbox(Arc::clone(&queue)).send(&mut vec![1; 10]);
        assert_eq!(counted(), 0, "nobody has tried to write yet");
        let entries = queue.next().await.expect("it waits");
        queue.writing(writer.write_all(&entries)).await.expect("there is room");
        assert_eq!(counted(), 0, "the peer has room for it");
        let write = async { queue.writing(writer.write_all(&entries)).await.expect("there is room in the end") };
        let read = async {
            let full = counted();
            reader.read_exact(&mut [0; 20]).await.expect("it comes");
            full
        };
        assert_eq!(tokio::join!(write, read).1, 70, "the peer does not read");
        assert_eq!(counted(), 0);
    }

    #[test]
    fn what_was_sent_before_the_end_goes_out() {
        let queue = Queue::new(bound(100), None, (&Arc::default(), 0));
        let outbox = Outbox(Arc::clone(&queue));
        outbox.send(&mut vec![1]);
        outbox.close();
        outbox.send(&mut vec![2]);
        assert_eq!(block_on(queue.ending()), Ending::Flush);
        assert_eq!(next(&queue), Some(vec![1]));
        assert_eq!(next(&queue), None);
    }

    #[test]
    fn more_than_the_limit_ends_the_connection_at_once() {
        let queue = Queue::new(bound(10), None, (&Arc::default(), 0));
        let outbox = Outbox(Arc::clone(&queue));
        outbox.send(&mut vec![0; 6]);
        outbox.send(&mut vec![0; 6]);
        assert_eq!(block_on(queue.ending()), Ending::Now(Reason::TooSlow));
        outbox.close();
        assert_eq!(block_on(queue.ending()), Ending::Now(Reason::TooSlow));
    }

    #[test]
    fn another_limit_holds_for_what_waits_already() {
        let limit = bound(10);
        let queues = [(); 2].map(|()| Queue::new(Arc::clone(&limit), None, (&Arc::default(), 0)));
        let outboxes = queues.clone().map(Outbox);
        outboxes.iter().for_each(|outbox| outbox.send(&mut vec![0; 8]));
        limit.store(20, Ordering::Relaxed);
        outboxes.iter().for_each(|outbox| outbox.send(&mut vec![0; 8]));
        assert!(queues.iter().all(|queue| queue.ended_now().is_none()), "there is room now");
        limit.store(5, Ordering::Relaxed);
        outboxes[0].send(&mut vec![0]);
        let ends = queues.map(|queue| queue.ended_now());
        assert_eq!(ends, [Some(Reason::TooSlow), None], "who is sent nothing is not asked for more room");
    }
}
