//! Outgoing packets: write, seal and send, in small groups of connections so that the bytes stay in the cache.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rayon::ThreadPool;
use throng_link::session::{CloseCause, CloseCode, CloseReason, Delivery};
use throng_meter::{Lap, Subsystem};
use throng_net::{Driver, DriverCounters, LightUdpSocket, SendError, Transmit};
use throng_replica::Executor;
use throng_wire::{Tick, Time};

use crate::greeting::Stage;
use crate::held::{Held, Sent};
use crate::inbound::Peers;
use crate::peer::{Peer, Span};
use crate::replication::Replication;

/// Size of a group: all its connections are written, then all sealed, then all sent.
pub(crate) const GROUP: usize = 16;

/// The clock of the measurements: nanoseconds of work since the server was made. Stands still while the server waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch {
    start: Instant,
    waited: Duration,
    waiting_since: Option<Instant>,
}

impl Stopwatch {
    pub(crate) fn new() -> Stopwatch {
        Stopwatch { start: Instant::now(), waited: Duration::ZERO, waiting_since: None }
    }

    pub(crate) fn ns(self) -> u64 {
        let end = self.waiting_since.unwrap_or_else(Instant::now);
        (end - self.start - self.waited).as_nanos() as u64
    }

    pub(crate) fn stop(&mut self) {
        self.waiting_since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn go_on(&mut self) {
        if let Some(since) = self.waiting_since.take() {
            self.waited += since.elapsed();
        }
    }
}

/// The buffers of one thread that writes.
#[derive(Default)]
pub(crate) struct Worker {
    buffer: Vec<u8>,
    spans: Vec<Span>,
    pub(crate) lap: Lap,
    /// This thread's own handle of the socket; without one, the driver sends when all are done.
    sender: Option<LightUdpSocket>,
    keep_alive: Vec<u8>,
    held: Held,
    pub(crate) send_errors: u64,
    /// Datagrams for which the driver or the kernel had no room.
    pub(crate) send_dropped: u64,
}

/// Where datagrams go.
pub(crate) enum Way<'a> {
    /// Through the driver, at once.
    Driver(&'a mut dyn Driver),
    /// Through the worker's own socket, or into its buffer for later.
    Own,
}

/// Everything that the writers of one tick share.
pub(crate) struct Job<'a, R: Replication + 'a> {
    pub(crate) now: Time,
    pub(crate) tick: Tick,
    pub(crate) max_clients: u32,
    /// Packets may wait for calls between two ticks, for so long.
    pub(crate) spread_within: Duration,
    pub(crate) outgoing: R::Outgoing<'a>,
    pub(crate) stopwatch: Stopwatch,
}

impl<R: Replication> Clone for Job<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Replication> Copy for Job<'_, R> {}

impl Worker {
    pub(crate) fn with_sender(sender: Option<LightUdpSocket>) -> Worker {
        Worker { sender, ..Worker::default() }
    }

    /// Writes, seals and sends for these connections, the first of which has index `base`.
    pub(crate) fn serve<R: Replication>(
        &mut self,
        job: Job<'_, R>,
        base: usize,
        (peers, slots): (&mut [Option<Box<Peer>>], &mut [R::Slot]),
        mut way: Way<'_>,
    ) {
        self.lap.reset();
        self.buffer.clear();
        self.spans.clear();
        let keeps = matches!(way, Way::Own) && self.sender.is_none();
        for (group, (peers, slots)) in peers.chunks_mut(GROUP).zip(slots.chunks_mut(GROUP)).enumerate() {
            let base = base + group * GROUP;
            if !keeps {
                self.buffer.clear();
                self.spans.clear();
            }
            let first_span = self.spans.len();
            self.write_group(job, peers, slots);
            self.seal_group(job, base, peers, first_span);
            self.hold(job.now, base, peers, first_span);
            match &mut way {
                Way::Driver(driver) => self.send(job, base, &mut *peers, |transmit| driver.send(job.now, transmit)),
                Way::Own => {
                    if let Some(mut sender) = self.sender.take() {
                        self.send(job, base, &mut *peers, |transmit| sender.send(job.now, transmit));
                        self.sender = Some(sender);
                    }
                }
            }
        }
        self.lap.pause(job.stopwatch.ns());
    }

    fn write_group<R: Replication>(&mut self, job: Job<'_, R>, peers: &mut [Option<Box<Peer>>], slots: &mut [R::Slot]) {
        self.lap.enter(Subsystem::WRITE, job.stopwatch.ns());
        fetch::<R>(peers, slots);
        std::hint::black_box(slots.iter().fold(0, |sum, slot| sum ^ R::fetch_shared(slot, job.outgoing)));
        for (peer, slot) in peers.iter_mut().zip(slots) {
            let Some(peer) = peer else { continue };
            if peer.stage == Stage::Unconfirmed {
                self.write_keep_alive(job, peer);
            } else {
                let out = (&mut self.buffer, &mut self.spans);
                peer.write_packets::<R>(job.now, job.tick, slot, (job.outgoing, job.spread_within), out);
            }
        }
    }

    /// Until the client has answered, it may not know that it is connected. The packet comes sealed.
    fn write_keep_alive<R: Replication>(&mut self, job: Job<'_, R>, peer: &mut Peer) {
        if job.now < peer.next_keep_alive {
            return;
        }
        peer.next_keep_alive = job.now.after(throng_link::netcode::SEND_INTERVAL);
        if peer.sealer.seal_keep_alive(peer.id.index, job.max_clients, &mut self.keep_alive).is_err() {
            return;
        }
        let (start, len) = (self.buffer.len() as u32, self.keep_alive.len() as u32);
        let span = Span { peer: peer.id.index, start, len, wait_micros: 0 };
        self.buffer.extend_from_slice(&self.keep_alive);
        self.spans.push(span);
    }

    fn seal_group<R: Replication>(
        &mut self,
        job: Job<'_, R>,
        base: usize,
        peers: &mut [Option<Box<Peer>>],
        first_span: usize,
    ) {
        self.lap.enter(Subsystem::SEAL, job.stopwatch.ns());
        for spans in self.spans[first_span..].chunk_by(|one, next| one.peer == next.peer) {
            let Some(peer) = &mut peers[spans[0].peer as usize - base] else { continue };
            if peer.stage == Stage::Unconfirmed {
                continue;
            }
            let buffer = &mut self.buffer;
            let unsealed = peer.sealer.row(|row| {
                let mut unsealed = 0;
                for span in spans {
                    let packet = &mut buffer[span.start as usize..][..span.len as usize];
                    if row.seal_payload(packet).is_err() {
                        // Nothing is sent unencrypted: the packet is emptied, and the connection ends.
                        packet.fill(0);
                        unsealed += 1;
                    }
                }
                unsealed
            });
            if unsealed > 0 {
                self.send_errors += unsealed;
                peer.gone.get_or_insert(CloseCause::Local(CloseReason::new(CloseCode::PROTOCOL, "cannot be sealed")));
            }
        }
    }

    /// Takes the packets out that have to wait. A connection's packets that wait come after those that do not.
    fn hold(&mut self, now: Time, base: usize, peers: &[Option<Box<Peer>>], first_span: usize) {
        let Some(first) = self.spans[first_span..].iter().position(|span| span.wait_micros > 0) else { return };
        let first = first_span + first;
        let mut kept = first;
        for index in first..self.spans.len() {
            let span = self.spans[index];
            match &peers[span.peer as usize - base] {
                Some(peer) if span.wait_micros > 0 => {
                    let packet = &self.buffer[span.start as usize..][..span.len as usize];
                    self.held.push(now.after(Duration::from_micros(u64::from(span.wait_micros))), peer.id, packet);
                }
                _ => {
                    self.spans[kept] = span;
                    kept += 1;
                }
            }
        }
        self.spans.truncate(kept);
    }

    /// Sends the packets that have waited until `due`.
    pub(crate) fn send_held(&mut self, now: Time, due: Time, peers: &mut Peers, driver: &mut dyn Driver) -> Sent {
        let mut total = Sent::default();
        for batch in self.held.take_due(due) {
            let Some(peer) = peers.get_mut(batch.to) else { continue };
            let all = Transmit { to: peer.address, bytes: batch.bytes, segment_bytes: batch.segment_bytes };
            let mut next = Some(all);
            while let Some(transmit) = next.take() {
                match driver.send(now, &transmit) {
                    Ok(sent) => {
                        let sent = sent.min(transmit.datagrams());
                        self.send_dropped += (transmit.datagrams() - sent) as u64;
                        total.packets += sent as u64;
                        total.bytes += transmit.bytes.len().min(sent * transmit.segment_bytes) as u64;
                    }
                    Err(error) => {
                        self.send_errors += u64::from(!is_mended(&error, now, peer));
                        if matches!(error, SendError::TooLarge { .. }) {
                            next = transmit.behind_first();
                        }
                    }
                }
            }
        }
        total
    }

    /// Sends what the buffer holds, all of it for these connections.
    fn send<R: Replication>(
        &mut self,
        job: Job<'_, R>,
        base: usize,
        peers: &mut [Option<Box<Peer>>],
        mut send: impl FnMut(&Transmit<'_>) -> Result<usize, SendError>,
    ) {
        self.lap.enter(Subsystem::SEND, job.stopwatch.ns());
        let mut rest = &self.spans[..];
        while !rest.is_empty() {
            let all = rest;
            let (batch, others) = all.split_at(batch_len(all));
            rest = others;
            let (first, last) = (batch[0], batch[batch.len() - 1]);
            let Some(peer) = &mut peers[first.peer as usize - base] else { continue };
            let bytes = &self.buffer[first.start as usize..(last.start + last.len) as usize];
            let transmit = Transmit { to: peer.address, bytes, segment_bytes: first.len as usize };
            let sent = match send(&transmit) {
                Ok(sent) => {
                    // A full socket says nothing about the path. Its packets wait, and are tried once more.
                    let later = rest.iter().take_while(|span| span.peer == first.peer && sent < batch.len()).count();
                    for span in batch.iter().skip(sent).chain(&rest[..later]) {
                        let packet = &self.buffer[span.start as usize..][..span.len as usize];
                        self.held.push(job.now, peer.id, packet);
                    }
                    rest = &rest[later..];
                    sent
                }
                Err(error) => {
                    // Each behind it is tried by itself: the last of a batch may be shorter, and pass.
                    if matches!(error, SendError::TooLarge { .. }) {
                        rest = &all[1..];
                    }
                    self.send_errors += u64::from(!is_mended(&error, job.now, peer));
                    0
                }
            };
            self.lap.counters.packets_sent += sent as u64;
            self.lap.counters.bytes_sent += bytes.len().min(sent * first.len as usize) as u64;
        }
    }

    /// Sends the kept datagrams, for drivers without a handle for each thread.
    pub(crate) fn send_kept<R: Replication>(
        &mut self,
        job: Job<'_, R>,
        peers: &mut [Option<Box<Peer>>],
        driver: &mut dyn Driver,
    ) {
        self.send(job, 0, peers, |transmit| driver.send(job.now, transmit));
        self.lap.pause(job.stopwatch.ns());
    }

    /// Counters of this thread's own handle of the socket.
    pub(crate) fn driver_counters(&self) -> DriverCounters {
        self.sender.as_ref().map(|sender| *sender.counters()).unwrap_or_default()
    }

    /// Whether packets wait for their time.
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    pub(crate) fn keeps(&self) -> bool {
        self.sender.is_none()
    }
}

/// Whether the next packets will not meet this error: they will be shorter.
fn is_mended(error: &SendError, now: Time, peer: &mut Peer) -> bool {
    match *error {
        SendError::TooLarge { bytes } => peer.session.handle_too_large(now, bytes),
        _ => false,
    }
}

/// How many of the first packets leave in one segmented send. A probe of the path's size is longer than the packets after it.
fn batch_len(spans: &[Span]) -> usize {
    let own = spans.iter().take_while(|span| span.peer == spans[0].peer);
    Transmit::fitting(own.map(|span| span.len as usize))
}

/// Reads a little of each connection of a group, so that the processor fetches them all at once instead of waiting for
/// memory at each in turn.
pub(crate) fn fetch<R: Replication>(peers: &[Option<Box<Peer>>], slots: &[R::Slot]) {
    let peers = peers.iter().flatten();
    let near = peers.clone().fold(0, |sum, peer| sum ^ peer.fetch());
    let near = slots.iter().fold(near, |sum, slot| sum ^ R::fetch(slot));
    let behind = peers.fold(0, |sum, peer| sum ^ peer.session.fetch_behind());
    let behind = slots.iter().fold(behind, |sum, slot| sum ^ R::fetch_behind(slot));
    std::hint::black_box((near, behind));
}

/// The threads that help the server's own: one fewer than the options say, since that one works too. If it only waited, the
/// scheduler could put all others on its processor for some milliseconds.
pub(crate) struct Helpers<'a>(pub(crate) &'a ThreadPool);

/// Items that a thread takes at once.
const CHUNK: usize = 8;

impl Executor for Helpers<'_> {
    fn for_each<T: Send, F: Fn(&mut T) + Send + Sync>(&self, items: &mut [T], job: F) {
        let chunks = Mutex::new(items.chunks_mut(CHUNK));
        let next = || chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            while let Some(chunk) = next() {
                chunk.iter_mut().for_each(&job);
            }
        };
        work_on(0..=self.0.current_num_threads(), Some(self), |_| work());
    }

    fn parts(&self) -> usize {
        self.0.current_num_threads() + 1
    }

    fn for_each_part<T: Send>(&self, parts: impl Iterator<Item = T>, job: impl Fn(T) + Copy + Send) {
        work_on(parts, Some(self), job);
    }
}

/// Does the parts of a job: the caller's thread the first, the helpers the others, or the caller's thread all.
pub(crate) fn work_on<T: Send>(
    parts: impl Iterator<Item = T>,
    helpers: Option<&Helpers<'_>>,
    job: impl Fn(T) + Copy + Send,
) {
    let Some(helpers) = helpers else { return parts.for_each(job) };
    let mut parts = parts;
    let first = parts.next();
    helpers.0.in_place_scope(|scope| {
        for part in parts {
            scope.spawn(move |_| job(part));
        }
        if let Some(part) = first {
            job(part);
        }
    });
}

/// The effect of a packet's verdict on replication.
pub(crate) fn is_delivered(delivery: Delivery) -> Option<bool> {
    match delivery {
        Delivery::Delivered => Some(true),
        Delivery::Lost => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_one_length_and_a_shorter_one_leave_together() {
        let lengths = |lens: &[(u32, u32)]| {
            let spans: Vec<Span> =
                lens.iter().map(|&(peer, len)| Span { peer, start: 0, len, wait_micros: 0 }).collect();
            batch_len(&spans)
        };
        assert_eq!(lengths(&[(1, 9), (1, 9), (1, 5), (1, 5)]), 3);
        assert_eq!(lengths(&[(1, 9), (1, 9), (2, 9)]), 2);
        assert_eq!(lengths(&[(1, 9), (2, 5)]), 1);
        assert_eq!(lengths(&[(1, 7), (1, 9), (1, 7)]), 1);
        assert_eq!(lengths(&[(1, 9), (1, 7), (1, 7)]), 2);
    }
}
