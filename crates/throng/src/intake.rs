//! One thread's part of what comes in: the datagrams of its connections, and what their sessions have to say.
//!
//! ```text
//!                        connections 0 .. share            share .. 2 * share        one thread each
//! datagrams    keep      | a | c | d | ..                  | b | e | ..              by the address's connection
//!              fetch     ---------------- up to BATCH      ----------------          their memory is asked for at once,
//!              open      ----------------                  ----------------          they are opened where they lie,
//!              settle    ----------------                  ----------------          and handled
//! sessions     settle    0, 1, 2, ..                       share, ..                 once in a tick, by index
//! ```
//! The order of what the server is told is that of the connections' indices, whatever the number of threads.

use throng_link::netcode::{DropReason, Opened};
use throng_link::session::Input;
use throng_meter::{Lap, Subsystem};
use throng_wire::{ConnectionId, Tick, Time};

use crate::greeting::Stage;
use crate::options::ServerOptions;
use crate::outbound::{GROUP, Stopwatch, fetch, is_delivered};
use crate::peer::Peer;
use crate::replication::Replication;

/// Datagrams that are opened before the first of them is handled. To read the clock twice for so many costs 2 ns for each, and
/// their connections are still in the cache when they are handled.
const BATCH: usize = 32;

/// A datagram that waits to be opened.
struct Waiting {
    peer: u32,
    arrived: Time,
    /// Where it ends among the others. It begins where the one before it ends.
    end: usize,
}

/// Everything that the threads share while they take in.
#[derive(Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now: Time,
    /// The last tick that was sent to the clients.
    pub(crate) sent_tick: Tick,
    pub(crate) stopwatch: Stopwatch,
}

/// The buffers of one thread that takes in.
#[derive(Default)]
pub(crate) struct Intake {
    waiting: Vec<Waiting>,
    bytes: Vec<u8>,
    /// Acknowledgements that cannot wait for the tick, and the connections they are for.
    pub(crate) answers: Vec<(u32, Vec<u8>)>,
    pub(crate) dropped: Vec<DropReason>,
    /// Inputs that sessions have received, for the game.
    pub(crate) inputs: Vec<(ConnectionId, Input)>,
    /// Packets whose fate is known. Those that have arrived only if the replication cannot be told by slots.
    pub(crate) fates: Vec<(ConnectionId, u64, bool)>,
    /// How much may be written to live connections.
    pub(crate) allowances: Vec<(ConnectionId, usize)>,
    /// Connections that have something else to say, by index.
    pub(crate) calls: Vec<u32>,
    pub(crate) lap: Lap,
}

impl Intake {
    /// Keeps a datagram for [`settle_datagrams`](Self::settle_datagrams).
    pub(crate) fn keep(&mut self, arrived: Time, peer: u32, datagram: &[u8]) {
        self.bytes.extend_from_slice(datagram);
        self.waiting.push(Waiting { peer, arrived, end: self.bytes.len() });
    }

    /// Datagrams that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Opens the datagrams that wait, and hands their packets to these connections, the first of which has index `base`, in
    /// the order in which they came.
    pub(crate) fn settle_datagrams(&mut self, moment: Moment, base: usize, peers: &mut [Option<Box<Peer>>]) {
        let mut bytes = std::mem::take(&mut self.bytes);
        let waiting = std::mem::take(&mut self.waiting);
        let (mut rest, mut start) = (&mut bytes[..], 0);
        for batch in waiting.chunks(BATCH) {
            self.lap.enter(Subsystem::OPEN, moment.stopwatch.ns());
            fetch_named(base, peers, batch);
            let mut opened: [Option<(usize, Time, Opened<'_>)>; BATCH] = [const { None }; BATCH];
            for (waiting, opened) in batch.iter().zip(&mut opened) {
                let (datagram, behind) = std::mem::take(&mut rest).split_at_mut(waiting.end - start);
                (rest, start) = (behind, waiting.end);
                let place = waiting.peer as usize - base;
                let Some(peer) = &mut peers[place] else { continue };
                match peer.open(moment.now, datagram) {
                    Ok(packet) => *opened = Some((place, waiting.arrived, packet)),
                    Err(reason) => self.dropped.push(reason),
                }
            }
            self.lap.enter(Subsystem::SETTLE, moment.stopwatch.ns());
            for (place, arrived, packet) in opened.into_iter().flatten() {
                let Some(peer) = &mut peers[place] else { continue };
                self.settle_packet(moment, arrived, packet, peer);
            }
        }
        self.lap.pause(moment.stopwatch.ns());
        (self.bytes, self.waiting) = (bytes, waiting);
        self.bytes.clear();
        self.waiting.clear();
    }

    /// Hands an opened packet to its connection.
    pub(crate) fn settle_packet(&mut self, moment: Moment, arrived: Time, packet: Opened<'_>, peer: &mut Peer) {
        peer.settle(moment.now, arrived, packet);
        // After a pause, more packets may be waiting than one acknowledgement can name.
        if peer.session.is_answer_due() {
            let mut answer = Vec::new();
            if peer.answer(moment.now, moment.sent_tick, &mut answer) {
                self.answers.push((peer.id.index, answer));
            }
        }
    }

    /// Takes what the sessions of these connections have to say. `slots` are theirs, if the replication can be told by slots
    /// what has arrived.
    pub(crate) fn settle_sessions<R: Replication>(
        &mut self,
        (now, tick, options, stopwatch): (Time, Tick, &ServerOptions, Stopwatch),
        peers: &mut [Option<Box<Peer>>],
        mut slots: Option<&mut [R::Slot]>,
    ) {
        self.lap.enter(Subsystem::SETTLE, stopwatch.ns());
        for (group, peers) in peers.chunks_mut(GROUP).enumerate() {
            let start = group * GROUP;
            // There may be fewer slots than seats: those that were taken so far.
            let mut slots = slots.as_deref_mut().and_then(|slots| slots.get_mut(start..));
            let near = slots.as_deref().unwrap_or_default();
            fetch::<R>(peers, &near[..near.len().min(peers.len())]);
            for (place, peer) in peers.iter_mut().enumerate() {
                let Some(peer) = peer else { continue };
                let slot = slots.as_deref_mut().and_then(|slots| slots.get_mut(place));
                self.settle_session::<R>((now, tick, options), peer, slot);
            }
        }
        self.lap.pause(stopwatch.ns());
    }

    fn settle_session<R: Replication>(
        &mut self,
        (now, tick, options): (Time, Tick, &ServerOptions),
        peer: &mut Peer,
        mut slot: Option<&mut R::Slot>,
    ) {
        peer.session.handle_timeout(now);
        while let Some((sequence, delivery)) = peer.session.poll_delivery() {
            match (is_delivered(delivery), &mut slot) {
                (Some(true), Some(slot)) => R::settle(slot, sequence),
                (Some(has_arrived), _) => self.fates.push((peer.id, sequence, has_arrived)),
                (None, _) => {}
            }
        }
        if peer.stage != Stage::Live {
            self.calls.push(peer.id.index);
            return;
        }
        // Data that the game does not need yet waits in the session, which is bounded.
        while peer.waiting.may_take_input(tick, options.inputs_per_tick)
            && let Some(input) = peer.session.poll_input()
        {
            peer.waiting.take_input();
            self.inputs.push((peer.id, input));
        }
        self.allowances.push((peer.id, peer.replication_allowance_bytes(now)));
        let has_message = peer.session.has_message() && peer.waiting.has_room(options);
        if has_message || peer.session.is_closed() || peer.gone.is_some() {
            self.calls.push(peer.id.index);
        }
    }
}

/// As [`fetch`], for the connections of these datagrams.
fn fetch_named(base: usize, peers: &[Option<Box<Peer>>], batch: &[Waiting]) {
    let peers = batch.iter().filter_map(|waiting| peers[waiting.peer as usize - base].as_deref());
    let near = peers.clone().fold(0, |sum, peer| sum ^ peer.fetch());
    let behind = peers.fold(0, |sum, peer| sum ^ peer.session.fetch_behind());
    std::hint::black_box((near, behind));
}

/// How the connections are shared out to threads: in rows of neighbours, so that a connection is always the same thread's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    /// Connections of each thread but the last.
    len: usize,
    threads: usize,
}

impl Shares {
    /// `seats` connections for `threads` threads, at least 1.
    pub(crate) fn new(seats: usize, threads: usize) -> Shares {
        Shares { len: seats.div_ceil(threads).max(1), threads }
    }

    /// The thread of a connection.
    pub(crate) fn thread_of(self, index: usize) -> usize {
        (index / self.len).min(self.threads - 1)
    }

    /// Divides a table of the connections: each part with the index of its first.
    pub(crate) fn divide<T>(self, table: &mut [T]) -> impl Iterator<Item = (usize, &mut [T])> {
        let mut rest = table;
        (0..self.threads).map(move |thread| {
            let len = if thread + 1 == self.threads { rest.len() } else { self.len.min(rest.len()) };
            let (part, behind) = std::mem::take(&mut rest).split_at_mut(len);
            rest = behind;
            (thread * self.len, part)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_is_in_the_part_of_its_thread() {
        for seats in [0, 1, 2, 7, 64, 100] {
            for threads in 1..9 {
                let shares = Shares::new(seats, threads);
                // A table may have more connections than were counted: they came since.
                let mut table: Vec<usize> = (0..seats + 3).collect();
                let parts: Vec<(usize, Vec<usize>)> =
                    shares.divide(&mut table).map(|(base, part)| (base, part.to_vec())).collect();
                assert_eq!(parts.len(), threads);
                assert_eq!(parts.iter().map(|(_, part)| part.len()).sum::<usize>(), seats + 3);
                for (thread, (base, part)) in parts.iter().enumerate() {
                    for (place, &index) in part.iter().enumerate() {
                        assert_eq!((shares.thread_of(index), base + place), (thread, index), "{seats} for {threads}");
                    }
                }
            }
        }
    }
}
