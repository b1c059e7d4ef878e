//! Writing packets.

use throng_wire::{Tick, Time};

use super::Session;
use super::close::{CLOSE_INTERVAL, CLOSE_PACKETS, CloseReason};
use super::error::BeginError;
use super::wire::{MAX_CLOSE_TEXT_BYTES, MAX_PAYLOAD_BYTES, flag};

/// The least room for which a packet can be begun: the longest header, with a close reason.
pub const MIN_ROOM_BYTES: usize = MAX_HEADER_BYTES + 3 + MAX_CLOSE_TEXT_BYTES;

/// Flags, acknowledgement with 64 bits, tick, input acknowledgement.
const MAX_HEADER_BYTES: usize = 1 + 3 + 8 + 4 + 2;
/// The length of the message section stands before it.
const SECTION_HEAD_BYTES: usize = 2;

/// What the caller says about the packet that is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketPlan {
    /// The packet's number, above that of the packet before. Gaps are allowed.
    pub sequence: u64,
    /// The simulation tick, told to the peer.
    pub tick: Tick,
    /// Bytes that the payload may have in all, [`MIN_ROOM_BYTES`] to [`MAX_PAYLOAD_BYTES`]; more is taken for that.
    pub room_bytes: usize,
    /// Bytes of the room that messages may take. Below 300, messages longer than that may never be sent.
    pub message_bytes: usize,
}

impl PacketPlan {
    /// A full packet, all of which may be taken by messages.
    pub fn new(sequence: u64, tick: Tick) -> PacketPlan {
        PacketPlan { sequence, tick, room_bytes: MAX_PAYLOAD_BYTES, message_bytes: MAX_PAYLOAD_BYTES }
    }
}

/// A packet between begin and finish.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenPacket {
    now: Time,
    /// What the session wrote.
    bytes: usize,
}

/// The rest of a session that was told to close.
#[derive(Debug)]
pub(super) struct Closing {
    reason: CloseReason,
    packets_left: u8,
    next_at: Time,
    began: Time,
}

impl Closing {
    pub(super) fn new(now: Time, reason: CloseReason) -> Closing {
        Closing { reason, packets_left: CLOSE_PACKETS, next_at: now, began: now }
    }

    pub(super) fn next_at(&self) -> Time {
        self.next_at
    }

    /// When the session ends even if the caller sends no packets.
    pub(super) fn give_up_at(&self) -> Time {
        self.began.after(CLOSE_INTERVAL * (2 * u32::from(CLOSE_PACKETS)))
    }

    pub(super) fn into_reason(self) -> CloseReason {
        self.reason
    }
}

impl Session {
    /// Whether a packet should be sent even if there is no replication data: [`Session::has_urgent`], or messages wait.
    pub fn has_pending(&self, now: Time) -> bool {
        self.has_urgent(now) || (self.lanes.is_due() && !self.is_closing())
    }

    /// Whether a packet should be sent even if nothing may be sent within [`Session::sending_allowance_bytes`]: for
    /// inputs, a due acknowledgement, a keep-alive or a close reason. Such packets are small and few, and withholding
    /// them makes the path look worse than it is. Plan them with 0 message bytes when the allowance is used up.
    pub fn has_urgent(&self, now: Time) -> bool {
        if self.is_closed() {
            return false;
        }
        if let Some(closing) = &self.closing {
            return closing.next_at() <= now;
        }
        self.inputs_out.is_due() || self.is_acknowledgement_due(now) || self.is_keep_alive_due(now)
    }

    fn is_acknowledgement_due(&self, now: Time) -> bool {
        self.received.is_overdue()
            || self.received.waiting().is_some_and(|(_, since)| now.since(since) >= self.options.ack_delay)
    }

    fn is_keep_alive_due(&self, now: Time) -> bool {
        now.since(self.last_eliciting_at) >= self.options.keep_alive_interval
    }

    /// Appends the session's part of a packet to `out`: header, inputs, messages. Returns its length. The caller appends
    /// replication bytes, or none, and calls [`Session::finish_packet`] before anything else.
    ///
    /// # Errors
    /// The session is closed, the room too small, the sequence not above the last, or verdicts have not been drained for
    /// twice [`max_in_flight`](super::SessionOptions::max_in_flight) packets. Nothing is appended then.
    pub fn begin_packet(&mut self, now: Time, plan: PacketPlan, out: &mut Vec<u8>) -> Result<usize, BeginError> {
        if let Some(open) = self.open {
            self.finish_packet(open.bytes);
        }
        self.check_plan(&plan)?;
        let (flight, mut concerned) = self.flight_and_concerned();
        if flight.make_room(&mut concerned) {
            self.counters.packets_overflowed += 1;
        }
        self.flight.begin(plan.sequence, now, self.received.newest());
        let start = out.len();
        let room = plan.room_bytes.min(MAX_PAYLOAD_BYTES);
        self.write_header(now, plan.tick, out);
        if self.closing.is_some() {
            self.write_close(now, start, out);
        } else {
            self.write_inputs(start, room, out);
            self.write_messages(start, room, plan.message_bytes, out);
        }
        let bytes = out.len() - start;
        self.open = Some(OpenPacket { now, bytes });
        Ok(bytes)
    }

    fn check_plan(&self, plan: &PacketPlan) -> Result<(), BeginError> {
        if self.is_closed() {
            return Err(BeginError::Closed);
        }
        if plan.room_bytes < MIN_ROOM_BYTES {
            return Err(BeginError::RoomTooSmall);
        }
        if self.flight.newest_sent().is_some_and(|newest| plan.sequence <= newest) {
            return Err(BeginError::SequenceNotRising);
        }
        if self.flight.is_undrained() {
            return Err(BeginError::VerdictsNotDrained);
        }
        Ok(())
    }

    /// Ends the packet that was begun, with what the caller appended `total_bytes` long.
    pub fn finish_packet(&mut self, total_bytes: usize) {
        debug_assert!(total_bytes <= MAX_PAYLOAD_BYTES, "a packet of {total_bytes} bytes");
        let Some(open) = self.open.take() else {
            debug_assert!(false, "no packet was begun");
            return;
        };
        let patience = self.patience();
        if let Some(sent) = self.flight.newest_mut() {
            sent.bytes = total_bytes.min(MAX_PAYLOAD_BYTES) as u16;
            sent.is_eliciting |= total_bytes > open.bytes;
            if sent.is_eliciting {
                self.last_eliciting_at = open.now;
            }
        }
        self.flight.finish(patience);
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += total_bytes as u64;
        self.pacer.on_sent(open.now, total_bytes);
        if self.closing.as_ref().is_some_and(|closing| closing.packets_left == 0) {
            self.end_closing();
        }
    }

    fn mark_eliciting(&mut self) {
        if let Some(sent) = self.flight.newest_mut() {
            sent.is_eliciting = true;
        }
    }

    fn write_header(&mut self, now: Time, tick: Tick, out: &mut Vec<u8>) {
        let ack = self.received.acknowledge(now);
        let mut flags = 0;
        if let Some(ack) = &ack {
            flags |= flag::ACK | (ack.width as u8) << flag::WIDTH_SHIFT;
        }
        if self.input_ack.is_some() {
            flags |= flag::INPUT_ACK;
        }
        if self.is_keep_alive_due(now) {
            flags |= flag::PING;
            self.mark_eliciting();
        }
        out.push(flags);
        if let Some(ack) = ack {
            ack.write(out);
        }
        out.extend_from_slice(&tick.0.to_le_bytes());
        if let Some(number) = self.input_ack {
            out.extend_from_slice(&(number as u16).to_le_bytes());
        }
    }

    fn write_close(&mut self, now: Time, start: usize, out: &mut Vec<u8>) {
        if let Some(closing) = &mut self.closing {
            out[start] |= flag::CLOSE;
            closing.reason.write(out);
            closing.packets_left = closing.packets_left.saturating_sub(1);
            closing.next_at = now.after(CLOSE_INTERVAL);
        }
    }

    fn write_inputs(&mut self, start: usize, room: usize, out: &mut Vec<u8>) {
        let used = out.len() - start;
        let Some(newest) = self.inputs_out.write(room - used, out) else { return };
        out[start] |= flag::INPUTS;
        if let Some(sent) = self.flight.newest_mut() {
            sent.newest_input = Some(newest);
            sent.is_eliciting = true;
        }
    }

    fn write_messages(&mut self, start: usize, room: usize, share: usize, out: &mut Vec<u8>) {
        if !self.lanes.is_due() {
            return;
        }
        let head = out.len();
        let room = (room - (head - start)).min(share);
        let Some(room) = room.checked_sub(SECTION_HEAD_BYTES) else { return };
        out.extend_from_slice(&[0; SECTION_HEAD_BYTES]);
        self.lanes.write(room, out, &mut self.flight);
        let length = out.len() - head - SECTION_HEAD_BYTES;
        if length == 0 {
            out.truncate(head);
            return;
        }
        out[head..head + SECTION_HEAD_BYTES].copy_from_slice(&(length as u16).to_le_bytes());
        out[start] |= flag::MESSAGES;
        self.mark_eliciting();
    }
}
