//! When a packet may be sent, how large it is, and who may fill it: the rules that every owner of a session keeps,
//! because nothing but a plan can be sent.
//!
//! ```text
//! poll_packet -> PacketPlan -> begin -> OpenPacket -> (append the rest) -> finish -> a datagram, ready to be sealed
//! ```
//!
//! There is a plan, in this order of precedence,
//!
//! 1. for a close reason that is due;
//! 2. for a probe of the path's size (`path_size.rs`), which nothing but an acknowledgement goes with. It waits for the
//!    allowance, and messages and the rest wait for it;
//! 3. for messages and the rest, as far as the allowance reaches and packets may be under way. If both wait, whichever was
//!    sent fewer bytes goes first: half of a packet for each, or packets in turn when the rest needs whole packets;
//! 4. for inputs, a due acknowledgement, a keep-alive or a probe of the tail, although the allowance is spent: such packets are small, and
//!    withholding them makes the path look worse than it is. They make a debt, which ends when it reaches a bound.

use std::time::Duration;

use throng_wire::{Tick, Time};

use super::Session;
use super::wire::MAX_PAYLOAD_BYTES;

/// Packets that [`Session::poll_packet`] plans for one value of `now`.
///
/// A peer that answers them with one acknowledgement can name them all: that reaches back over 256.
pub const MAX_PACKETS_PER_FLUSH: u16 = 192;

/// Below this room, no packet is begun for messages or the rest: a piece of a message and the headers fit.
pub(super) const MIN_DATA_ROOM_BYTES: usize = 384;

/// The most that inputs, acknowledgements and keep-alives may exceed the allowance by before they wait too, in bytes.
pub(super) const MAX_DEBT_BYTES: i64 = 640;

/// How far ahead either of messages and rest can get, in bytes.
pub(super) const MAX_LEAD_BYTES: i32 = 2 * MAX_PAYLOAD_BYTES as i32;

/// The data that the owner of a session has to send behind the session's own part of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing.
    Empty,
    /// Something, the next piece of which may fit into a part of a packet.
    Waiting,
    /// Something that did not fit into a part of a packet: it gets a whole one.
    Large,
}

/// The number of a packet, and what will surround its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The packet's number, above that of the packet before. Gaps are allowed.
    pub sequence: u64,
    /// Bytes that stand before the payload.
    pub head_bytes: usize,
    /// Bytes that stand behind it.
    pub tail_bytes: usize,
}

impl Envelope {
    /// Nothing around the payload.
    pub const fn bare(sequence: u64) -> Envelope {
        Envelope { sequence, head_bytes: 0, tail_bytes: 0 }
    }

    /// The payload of a datagram of this length.
    pub(super) fn payload_bytes(self, datagram_bytes: usize) -> usize {
        datagram_bytes.saturating_sub(self.head_bytes + self.tail_bytes).min(MAX_PAYLOAD_BYTES)
    }
}

/// The purpose of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Purpose {
    /// Bytes of the payload at most.
    pub(super) room_bytes: usize,
    /// Bytes of it that messages may take.
    pub(super) message_bytes: usize,
    /// Whether inputs are written. They are left out where the rest needs all of the packet.
    pub(super) takes_inputs: bool,
    /// Whether the owner of the session may append.
    pub(super) takes_rest: bool,
    /// Messages and the rest both wait.
    is_contended: bool,
    /// The packet is filled with zeros.
    pub(super) is_size_probe: bool,
}

impl Purpose {
    /// For the session alone: a close reason, inputs, an acknowledgement, a keep-alive.
    pub(super) fn session(room_bytes: usize) -> Purpose {
        Purpose {
            room_bytes,
            message_bytes: 0,
            takes_inputs: true,
            takes_rest: false,
            is_contended: false,
            is_size_probe: false,
        }
    }

    /// To find out whether a datagram with this payload arrives.
    pub(super) fn size_probe(payload_bytes: usize) -> Purpose {
        Purpose { takes_inputs: false, is_size_probe: true, ..Purpose::session(payload_bytes) }
    }

    /// For messages, if some wait, and the rest. `message_lead_bytes` is by how much more messages have had lately.
    pub(super) fn data(
        room_bytes: usize,
        full_bytes: usize,
        messages: bool,
        rest: Rest,
        message_lead_bytes: i32,
    ) -> Option<Purpose> {
        let all = Purpose {
            room_bytes,
            message_bytes: room_bytes,
            takes_inputs: true,
            takes_rest: true,
            is_contended: messages && rest != Rest::Empty,
            is_size_probe: false,
        };
        match rest {
            Rest::Empty => messages.then_some(all),
            Rest::Waiting if messages => {
                let share = (room_bytes as i32 - message_lead_bytes) / 2;
                Some(Purpose { message_bytes: share.clamp(0, room_bytes as i32) as usize, ..all })
            }
            Rest::Waiting => Some(all),
            Rest::Large if messages && message_lead_bytes < 0 => Some(Purpose { takes_rest: false, ..all }),
            // It waits for the allowance of a whole packet.
            Rest::Large if room_bytes < full_bytes => None,
            Rest::Large => Some(Purpose { message_bytes: 0, takes_inputs: false, ..all }),
        }
    }
}

/// One packet that may be sent now. It is written by [`PacketPlan::begin`]; one that is dropped instead has cost nothing.
#[must_use = "a plan sends nothing before it is begun"]
#[derive(Debug)]
pub struct PacketPlan<'a> {
    session: &'a mut Session,
    now: Time,
    envelope: Envelope,
    /// Bytes of payload in a packet of full length.
    full_bytes: usize,
    purpose: Purpose,
    /// When it will be sent.
    departs: Time,
}

impl<'a> PacketPlan<'a> {
    pub(super) fn new(
        session: &'a mut Session,
        now: Time,
        envelope: Envelope,
        full_bytes: usize,
        purpose: Purpose,
    ) -> PacketPlan<'a> {
        PacketPlan { session, now, envelope, full_bytes, purpose, departs: now }
    }

    /// The number of the packet.
    pub fn sequence(&self) -> u64 {
        self.envelope.sequence
    }

    /// Whether the packet takes something of the [`Rest`].
    pub fn takes_rest(&self) -> bool {
        self.purpose.takes_rest
    }

    /// When the packet would leave in an even stream: now, or at most `within` later if the path has no room for all
    /// packets at once. The caller promises to send it then, and not now.
    pub fn spread(&mut self, within: Duration) -> Time {
        let within_micros = within.as_micros().min(u128::from(u32::MAX)) as u64;
        self.departs = self.session.pacer.departs(self.now, within_micros);
        self.departs
    }

    /// Appends the packet to `out`: room for what stands before the payload, and the session's part of it: header,
    /// inputs, messages. `tick` is the simulation tick; the packet carries its low half.
    pub fn begin(self, tick: Tick, out: &'a mut Vec<u8>) -> OpenPacket<'a> {
        let PacketPlan { session, now, envelope, full_bytes, purpose, departs } = self;
        let start = out.len();
        let body = start + envelope.head_bytes;
        out.resize(body, 0);
        let message_bytes = session.begin_packet((now, departs), envelope.sequence, tick, purpose, out);
        let own_bytes = out.len() - body;
        OpenPacket { session, out, now, envelope, full_bytes, purpose, body, own_bytes, message_bytes, is_open: true }
    }
}

/// A packet between begin and finish. One that is dropped is finished as it is.
#[derive(Debug)]
pub struct OpenPacket<'a> {
    session: &'a mut Session,
    out: &'a mut Vec<u8>,
    now: Time,
    envelope: Envelope,
    full_bytes: usize,
    purpose: Purpose,
    /// Where the payload begins.
    body: usize,
    /// The bytes that the session wrote.
    own_bytes: usize,
    /// Of that, messages.
    message_bytes: usize,
    is_open: bool,
}

impl OpenPacket<'_> {
    /// The number of the packet.
    pub fn sequence(&self) -> u64 {
        self.envelope.sequence
    }

    /// The buffer, and the length up to which the rest may be appended to it. Longer data is cut off.
    pub fn rest(&mut self) -> (&mut Vec<u8>, usize) {
        let end = match self.purpose.takes_rest {
            true => self.body + self.purpose.room_bytes,
            false => self.body + self.own_bytes,
        };
        (self.out, end)
    }

    /// Ends the packet. The bytes that [`PacketPlan::begin`] and the caller have appended to the buffer are now a
    /// datagram that is ready to be sealed.
    pub fn finish(mut self) {
        self.close(None);
    }

    /// The same for a packet in a row of packets of one length: if another follows it now, with `rest` left to send,
    /// zeros are appended up to the full length. They count as sent. A shorter packet ends the row: there is no other
    /// plan for the same `now`.
    pub fn finish_in_row(mut self, rest: Rest) {
        self.close(Some(rest));
    }

    fn close(&mut self, row: Option<Rest>) {
        self.is_open = false;
        let end = self.rest().1;
        debug_assert!(self.out.len() <= end, "{} bytes too many were appended", self.out.len() - end);
        self.out.truncate(end);
        let mut bytes = self.out.len() - self.body;
        if self.purpose.is_size_probe {
            // It stands beside the row.
            return self.seal_off(bytes.max(self.purpose.room_bytes));
        }
        self.session.note_shares(self.purpose.is_contended, self.message_bytes, bytes - self.own_bytes);
        self.session.note_sending(self.now, bytes > self.own_bytes);
        let is_full_length = self.purpose.room_bytes == self.full_bytes;
        // All urgent data was written into this packet: another one follows it only for data.
        let has_data = |rest| rest != Rest::Empty || self.session.has_own_data();
        if let Some(rest) = row.filter(|rest| is_full_length && bytes < self.full_bytes && has_data(*rest)) {
            let balance_bytes = self.session.balance_after(self.now, self.full_bytes);
            if self.session.purpose(self.now, self.envelope, rest, balance_bytes).is_some() {
                bytes = self.full_bytes;
                self.session.note_sending(self.now, true);
            }
        }
        if row.is_some() && bytes < self.full_bytes {
            // Bytes after a shorter packet would be cut at the wrong places. Less was paid for than foreseen, so there
            // may be an allowance left; it keeps.
            self.session.flushed_packets = MAX_PACKETS_PER_FLUSH;
        }
        self.seal_off(bytes);
    }

    /// The payload has `bytes` in all; those that are missing are zeros.
    fn seal_off(&mut self, bytes: usize) {
        self.session.finish_packet(self.now, self.envelope, self.purpose, bytes);
        self.out.resize(self.body + bytes + self.envelope.tail_bytes, 0);
    }
}

impl Drop for OpenPacket<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.close(None);
        }
    }
}
