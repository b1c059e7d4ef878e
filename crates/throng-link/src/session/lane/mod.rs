//! Lanes: messages over packets that may be lost.
//!
//! ```text
//! send -> queue of the lane -> pieces in packets -> reassembly -> [order] -> inbox -> poll
//!              ^                     |
//!              +--- pieces again ----+  verdict: lost
//! ```
//!
//! There are no timers per message: a piece is sent again when, and only when, the verdict on its packet is *lost*.
//! Among lanes with something to send, the one that has sent the least for its weight goes first (stride scheduling,
//! Waldspurger and Weihl 1995), so every lane gets its share.

mod buffers;
mod entry;
mod incoming;
mod outgoing;
mod reassembly;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use throng_wire::Time;

use super::error::{PacketError, SendError};
use super::flight::Flight;
use super::options::{LaneKind, SessionOptions};
use super::wire::ByteReader;
use buffers::{Buffers, FIRST_MESSAGES};
use entry::Entry;
pub(super) use entry::PieceRun;
use incoming::{ReliableIncoming, UnreliableIncoming};
use outgoing::Outgoing;

/// Messages of a reliable lane that may be under way, counted from the oldest that has not arrived.
pub const RELIABLE_WINDOW: usize = 512;
/// Unfinished messages of an unreliable lane. A further one displaces the oldest.
pub const MAX_UNRELIABLE_REASSEMBLIES: usize = 8;

/// Position of a lane in [`SessionOptions::lanes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u8);

/// Number of a message on its lane, wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(pub u32);

/// The result of queueing a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SendTally {
    pub(super) dropped: u64,
}

/// The result of reading a message section.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReceiveTally {
    pub(super) received: u64,
    pub(super) evicted: u64,
}

/// Received messages that wait to be polled.
#[derive(Debug, Default)]
struct Inbox {
    messages: VecDeque<(LaneId, Vec<u8>)>,
    bytes: usize,
    /// Where the messages that are entered come from.
    lane: u8,
    received: u64,
}

impl Inbox {
    fn push(&mut self, message: Vec<u8>) {
        self.bytes += message.len();
        self.received += 1;
        self.messages.push_back((LaneId(self.lane), message));
    }

    fn pop(&mut self) -> Option<(LaneId, Vec<u8>)> {
        let (lane, message) = self.messages.pop_front()?;
        self.bytes -= message.len();
        if self.messages.is_empty() && self.received <= u64::from(FIRST_MESSAGES) {
            self.messages = VecDeque::new();
        }
        Some((lane, message))
    }
}

/// The receiving half of a lane.
#[derive(Debug)]
enum Incoming {
    Reliable(ReliableIncoming),
    Unreliable(UnreliableIncoming),
}

impl Incoming {
    fn held_bytes(&self) -> usize {
        match self {
            Incoming::Reliable(incoming) => incoming.held_bytes(),
            Incoming::Unreliable(incoming) => incoming.held_bytes(),
        }
    }
}

/// A lane. Its halves take memory from their first message on.
#[derive(Debug, Default)]
struct Lane {
    outgoing: Option<Box<Outgoing>>,
    incoming: Option<Box<Incoming>>,
}

impl Lane {
    fn incoming(&mut self, kind: LaneKind, first_message: u32) -> &mut Incoming {
        self.incoming.get_or_insert_with(|| {
            Box::new(match kind {
                LaneKind::Unreliable => Incoming::Unreliable(UnreliableIncoming::default()),
                _ => Incoming::Reliable(ReliableIncoming::new(first_message)),
            })
        })
    }
}

/// All lanes of a session.
#[derive(Debug)]
pub(super) struct Lanes {
    options: Arc<SessionOptions>,
    lanes: Box<[Lane]>,
    /// Bit per lane that has something to write.
    due: u8,
    /// The peer has no room for messages.
    is_held: bool,
    /// Bit per lane that has an unfinished unreliable message.
    unfinished: u8,
    /// Virtual time of the lane that wrote last.
    pass: u64,
    inbox: Inbox,
    buffers: Buffers,
}

impl Lanes {
    /// See [`Session::fetch`](super::Session::fetch).
    pub(super) fn fetch(&self) -> u64 {
        self.pass ^ u64::from(self.due) ^ self.inbox.bytes as u64
    }

    pub(super) fn new(options: Arc<SessionOptions>) -> Lanes {
        let lanes = options.lanes.iter().map(|_| Lane::default()).collect();
        Lanes {
            options,
            lanes,
            due: 0,
            is_held: false,
            unfinished: 0,
            pass: 0,
            inbox: Inbox::default(),
            buffers: Buffers::default(),
        }
    }

    /// Whether a lane has something to write, and the peer has room for it.
    pub(super) fn is_due(&self) -> bool {
        self.due != 0 && !self.is_held
    }

    /// The peer has said whether it has no room for messages.
    pub(super) fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    pub(super) fn send(&mut self, lane: LaneId, content: &[u8], tally: &mut SendTally) -> Result<MessageId, SendError> {
        let index = usize::from(lane.0);
        let options = self.options.lanes.get(index).ok_or(SendError::UnknownLane)?;
        let first_message = self.options.first_message;
        let outgoing = self.lanes[index].outgoing.get_or_insert_with(|| Box::new(Outgoing::new(first_message)));
        if self.is_held && options.kind == LaneKind::Unreliable {
            // A waiting message would be stale when it may be sent.
            tally.dropped += outgoing.drop_all(&mut self.buffers);
        }
        let number = outgoing.push(options, content, &mut self.buffers, tally)?;
        self.refresh_due(index);
        Ok(MessageId(number))
    }

    /// Bytes of messages that wait to be sent or, on reliable lanes, delivered.
    pub(super) fn pending_bytes(&self) -> usize {
        self.lanes.iter().filter_map(|lane| lane.outgoing.as_ref()).map(|outgoing| outgoing.queued_bytes()).sum()
    }

    /// Memory of received messages: unfinished, waiting for their turn, or waiting to be polled.
    pub(super) fn received_bytes(&self) -> usize {
        let of_lanes: usize =
            self.lanes.iter().map(|lane| lane.incoming.as_deref().map_or(0, Incoming::held_bytes)).sum();
        of_lanes + self.inbox.bytes + self.inbox.messages.capacity() * size_of::<(LaneId, Vec<u8>)>()
    }

    /// Number of the oldest message that waits to be sent or, on reliable lanes, delivered.
    pub(super) fn first_undelivered(&self, lane: LaneId) -> u32 {
        let outgoing = self.lanes.get(usize::from(lane.0)).and_then(|lane| lane.outgoing.as_ref());
        outgoing.map_or(self.options.first_message, |outgoing| outgoing.first_undelivered())
    }

    fn refresh_due(&mut self, index: usize) {
        let Some(outgoing) = &mut self.lanes[index].outgoing else { return };
        let bit = 1 << index;
        if !outgoing.is_due() {
            self.due &= !bit;
        } else if self.due & bit == 0 {
            self.due |= bit;
            // A lane that was silent has not saved up a claim.
            outgoing.pass = outgoing.pass.max(self.pass);
        }
    }

    /// Appends entries of at most `room` bytes, and tells the flight what is in them.
    pub(super) fn write(&mut self, room: usize, out: &mut Vec<u8>, flight: &mut Flight) {
        let end = out.len() + room;
        let mut candidates = self.due;
        while candidates != 0 {
            let index = self.least_served(candidates);
            let kind = self.options.lanes[index].kind;
            let Some(outgoing) = &mut self.lanes[index].outgoing else { return };
            let start = out.len();
            let Some(run) = outgoing.write(kind, index as u8, end - start, out, &mut self.buffers) else {
                candidates &= !(1 << index);
                continue;
            };
            self.pass = outgoing.pass;
            outgoing.pass += ((out.len() - start) as u64) * 256 / u64::from(self.options.lanes[index].weight);
            if kind != LaneKind::Unreliable {
                flight.add_run(run);
            }
            self.refresh_due(index);
            candidates &= self.due | !(1 << index);
        }
    }

    fn least_served(&self, candidates: u8) -> usize {
        let pass = |index: usize| self.lanes[index].outgoing.as_ref().map_or(u64::MAX, |outgoing| outgoing.pass);
        (0..self.lanes.len())
            .filter(|index| candidates >> index & 1 == 1)
            .min_by_key(|&index| pass(index))
            .unwrap_or_default()
    }

    pub(super) fn on_delivered(&mut self, run: PieceRun) {
        let index = usize::from(run.lane);
        if let Some(outgoing) = &mut self.lanes[index].outgoing {
            outgoing.on_delivered(run, &mut self.buffers);
            self.refresh_due(index);
        }
    }

    /// Returns the bytes that will be sent again.
    pub(super) fn on_lost(&mut self, run: PieceRun) -> usize {
        let index = usize::from(run.lane);
        let Some(outgoing) = &mut self.lanes[index].outgoing else { return 0 };
        let bytes = outgoing.on_lost(run);
        self.refresh_due(index);
        bytes
    }

    /// Whether so much waits to be polled that no more may be taken in.
    pub(super) fn has_message(&self) -> bool {
        !self.inbox.messages.is_empty()
    }

    pub(super) fn is_inbox_full(&self) -> bool {
        self.inbox.bytes >= self.options.inbox_bytes || self.inbox.messages.len() >= self.options.inbox_messages
    }

    /// Whether the peer should send no more messages for now: what is under way still finds room.
    pub(super) fn is_inbox_filling(&self) -> bool {
        2 * self.inbox.bytes >= self.options.inbox_bytes || 2 * self.inbox.messages.len() >= self.options.inbox_messages
    }

    /// Whether the peer may send messages again. Far from the bound of [`Lanes::is_inbox_filling`], so that a level near
    /// that one costs no packets.
    pub(super) fn is_inbox_drained(&self) -> bool {
        4 * self.inbox.bytes <= self.options.inbox_bytes && 4 * self.inbox.messages.len() <= self.options.inbox_messages
    }

    /// Takes in a message section.
    pub(super) fn take(&mut self, now: Time, section: &[u8], tally: &mut ReceiveTally) -> Result<(), PacketError> {
        let received_before = self.inbox.received;
        let result = self.take_entries(now, section, tally);
        tally.received += self.inbox.received - received_before;
        result
    }

    fn take_entries(&mut self, now: Time, section: &[u8], tally: &mut ReceiveTally) -> Result<(), PacketError> {
        let Lanes { options, lanes, unfinished, inbox, buffers, .. } = self;
        let is_reliable = |lane: u8| options.lanes.get(usize::from(lane)).map(|lane| lane.kind != LaneKind::Unreliable);
        let mut reader = ByteReader::new(section);
        while !reader.is_empty() {
            let entry = Entry::read(&mut reader, is_reliable)?;
            let index = usize::from(entry.lane);
            let (Some(lane), Some(lane_options)) = (lanes.get_mut(index), options.lanes.get(index)) else {
                return Err(PacketError::UnknownLane);
            };
            let message_bytes = entry.part.map_or(entry.bytes.len(), |part| part.message_bytes as usize);
            if message_bytes > lane_options.message_bytes {
                return Err(PacketError::MessageTooLarge);
            }
            inbox.lane = entry.lane;
            match lane.incoming(lane_options.kind, options.first_message) {
                Incoming::Reliable(incoming) => incoming.take(lane_options, &entry, buffers, inbox)?,
                Incoming::Unreliable(incoming) => {
                    let evicted = incoming.take(lane_options, now, &entry, buffers, inbox);
                    *unfinished &= !(1 << index);
                    *unfinished |= u8::from(incoming.oldest().is_some()) << index;
                    tally.evicted += evicted?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn poll(&mut self) -> Option<(LaneId, Vec<u8>)> {
        self.inbox.pop()
    }

    /// Gives up unreliable messages that have been unfinished for `patience`.
    pub(super) fn expire(&mut self, now: Time, patience: Duration) -> u64 {
        let mut expired = 0;
        self.unfinished = 0;
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if let Some(Incoming::Unreliable(incoming)) = lane.incoming.as_deref_mut() {
                expired += incoming.expire(now, patience, &mut self.buffers);
                self.unfinished |= u8::from(incoming.oldest().is_some()) << index;
            }
        }
        expired
    }

    /// When the oldest unfinished unreliable message began.
    pub(super) fn oldest_unfinished(&self) -> Option<Time> {
        if self.unfinished == 0 {
            return None;
        }
        let oldest = |lane: &Lane| match lane.incoming.as_deref() {
            Some(Incoming::Unreliable(incoming)) => incoming.oldest(),
            _ => None,
        };
        self.lanes.iter().filter_map(oldest).min()
    }
}
