//! Writing packets.

use throng_wire::{Tick, Time};

use super::Session;
use super::close::{CLOSE_INTERVAL, CLOSE_PACKETS, CloseReason};
use super::plan::{
    Envelope, MAX_DEBT_BYTES, MAX_LEAD_BYTES, MAX_PACKETS_PER_FLUSH, MIN_DATA_ROOM_BYTES, PacketPlan, Purpose, Rest,
};
use super::wire::{HEADER_MAX_BYTES, NO_ROOM, SECTION_HEAD_BYTES, flag};

/// The rest of a session after [`close`](super::Session::close).
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
    /// The packet that is to be sent now, if any: see [`plan`](super::plan). `envelope` says its number and what will
    /// surround it, `rest` what the caller has to send behind the session's part. Call it until `None`; that comes after
    /// at most [`MAX_PACKETS_PER_FLUSH`] packets for one value of `now`.
    ///
    /// There is no plan either for a number that is not above the last; nor, except for a close reason, while as many
    /// packets are under way as may be, or while [`Session::poll_delivery`] has not been drained for twice as many.
    pub fn poll_packet(&mut self, now: Time, envelope: Envelope, rest: Rest) -> Option<PacketPlan<'_>> {
        let is_rising = self.flight.newest_sent().is_none_or(|newest| newest < envelope.sequence);
        if !is_rising || self.is_flushed(now) {
            return None;
        }
        let full_bytes = envelope.payload_bytes(self.path_size.datagram_bytes());
        let purpose = self.purpose(now, envelope, rest, self.pacer.balance_bytes(now))?;
        Some(PacketPlan::new(self, now, envelope, full_bytes, purpose))
    }

    /// Bytes that the rest may take now: the allowance, or none if there is no packet for it.
    pub fn rest_allowance_bytes(&self, now: Time, envelope: Envelope) -> usize {
        let mut balance_bytes = self.pacer.balance_bytes(now);
        let (waits, size_probe) = self.size_probe(now, envelope, balance_bytes);
        if let Some(size_probe) = size_probe {
            balance_bytes -= self.pacer.cost_bytes(size_probe.room_bytes);
        }
        let full_bytes = envelope.payload_bytes(self.path_size.datagram_bytes());
        let purpose = match self.is_stopped(now) || self.closing.is_some() || waits {
            true => None,
            false => self.data_purpose(full_bytes, Rest::Waiting, balance_bytes),
        };
        if purpose.is_some_and(|purpose| purpose.takes_rest) { balance_bytes.max(0) as usize } else { 0 }
    }

    /// Whether no more packets are sent at this time.
    fn is_flushed(&self, now: Time) -> bool {
        self.flushed_at == now && self.flushed_packets >= MAX_PACKETS_PER_FLUSH
    }

    /// Whether nothing is sent now, except a close reason.
    fn is_stopped(&self, now: Time) -> bool {
        self.is_closed() || self.is_flushed(now) || self.flight.is_full(0) || self.flight.is_undrained()
    }

    /// Whether messages or inputs wait to be sent.
    pub(super) fn has_own_data(&self) -> bool {
        self.lanes.is_due() || self.inputs_out.is_due()
    }

    /// The purpose of the next packet, if there is one with this many bytes left to send.
    pub(super) fn purpose(&self, now: Time, envelope: Envelope, rest: Rest, balance_bytes: i64) -> Option<Purpose> {
        let full_bytes = envelope.payload_bytes(self.path_size.datagram_bytes());
        if let Some(closing) = &self.closing {
            // No acknowledgement has to come first: these few packets go beyond the bound of those under way.
            let is_due = closing.next_at() <= now && !self.is_closed() && !self.is_flushed(now);
            return is_due.then_some(Purpose::session(full_bytes));
        }
        if self.is_stopped(now) {
            return None;
        }
        let (waits, size_probe) = self.size_probe(now, envelope, balance_bytes);
        if size_probe.is_some() {
            return size_probe;
        }
        if !waits && let Some(purpose) = self.data_purpose(full_bytes, rest, balance_bytes) {
            return Some(purpose);
        }
        let is_urgent = self.has_urgent(now) && balance_bytes > -MAX_DEBT_BYTES;
        is_urgent.then_some(Purpose::session(full_bytes))
    }

    /// The purpose of the next packet if it takes messages or the rest.
    fn data_purpose(&self, full_bytes: usize, rest: Rest, balance_bytes: i64) -> Option<Purpose> {
        let room_bytes = (balance_bytes - self.pacer.cost_bytes(0)).clamp(0, full_bytes as i64) as usize;
        if room_bytes < MIN_DATA_ROOM_BYTES || self.flight.is_full(self.spare_packets()) {
            return None;
        }
        Purpose::data(room_bytes, full_bytes, self.lanes.is_due(), rest, self.message_lead_bytes)
    }

    /// Whether a probe of the path's size waits for the allowance, and the probe if it can be sent now.
    fn size_probe(&self, now: Time, envelope: Envelope, balance_bytes: i64) -> (bool, Option<Purpose>) {
        let Some((bytes, _)) = self.path_size.due().filter(|&(_, at)| at <= now) else { return (false, None) };
        let is_pinging = self.is_probe_due(now) || self.is_keep_alive_due(now);
        if is_pinging || self.flight.is_full(self.spare_packets()) {
            // The first packets are small, and arrive.
            return (false, None);
        }
        let payload_bytes = envelope.payload_bytes(bytes);
        let is_allowed = balance_bytes >= self.pacer.cost_bytes(payload_bytes);
        (!is_allowed, is_allowed.then(|| Purpose::size_probe(payload_bytes)))
    }

    /// Packets that are kept for what is urgent.
    pub(super) fn spare_packets(&self) -> usize {
        self.flight.limit() / 8
    }

    /// The rest of the balance after a packet with this much payload.
    pub(super) fn balance_after(&self, now: Time, payload_bytes: usize) -> i64 {
        self.pacer.balance_bytes(now) - self.pacer.cost_bytes(payload_bytes)
    }

    /// Whether inputs, a due acknowledgement or a keep-alive are to be sent.
    fn has_urgent(&self, now: Time) -> bool {
        self.inputs_out.is_due()
            || self.is_acknowledgement_due(now)
            || self.is_keep_alive_due(now)
            || self.is_probe_due(now)
            || self.room.is_untold()
    }

    fn is_acknowledgement_due(&self, now: Time) -> bool {
        self.received.is_overdue()
            || self.received.waiting().is_some_and(|(_, since)| now.since(since) >= self.options.ack_delay)
    }

    fn is_probe_due(&self, now: Time) -> bool {
        self.probe_at.is_some_and(|at| at <= now)
    }

    fn is_keep_alive_due(&self, now: Time) -> bool {
        self.keep_alive_at() <= now
    }

    /// When both directions will have been quiet for so long that something is to be said. An end that receives packets
    /// from the other need not ask. The timeout of a connect token may be shorter than the interval.
    pub(super) fn keep_alive_at(&self) -> Time {
        let interval = self.options.keep_alive_interval.min(self.idle_timeout / 2);
        self.last_eliciting_at.max(self.last_received_at).after(interval)
    }

    /// Appends the session's part of a packet: header, inputs, messages. Returns the bytes of the last. The caller
    /// appends the rest, or none, and calls [`Session::note_sending`] and [`Session::finish_packet`].
    pub(super) fn begin_packet(
        &mut self,
        (now, departs): (Time, Time),
        sequence: u64,
        tick: Tick,
        purpose: Purpose,
        out: &mut Vec<u8>,
    ) -> usize {
        if self.flushed_at != now {
            (self.flushed_at, self.flushed_packets) = (now, 0);
        }
        self.flushed_packets += 1;
        self.flight.begin(sequence, departs, self.received.newest());
        let start = out.len();
        self.write_header(now, tick, purpose.is_size_probe, out);
        if purpose.is_size_probe {
            return 0;
        }
        if self.closing.is_some() {
            self.write_close(now, start, out);
            return 0;
        }
        if purpose.takes_inputs {
            self.write_inputs(start, purpose.room_bytes, out);
        }
        let before = out.len();
        // A packet that the rest needs as a whole has a place for the head of a section, unless the acknowledgement is wide.
        let has_place = purpose.takes_inputs || before - start + SECTION_HEAD_BYTES <= HEADER_MAX_BYTES;
        if has_place && (self.room.is_unknown() || self.lanes.is_due()) {
            self.write_messages((start, sequence), purpose.room_bytes, purpose.message_bytes, out);
        }
        out.len() - before
    }

    /// Notes whether the packet that was begun asks for an acknowledgement, be it for the rest in it.
    pub(super) fn note_sending(&mut self, now: Time, has_rest: bool) {
        if let Some(sent) = self.flight.newest_mut() {
            sent.is_eliciting |= has_rest;
            if sent.is_eliciting {
                self.last_eliciting_at = now;
            }
        }
    }

    /// Notes how a packet was shared out, if messages and the rest both wait.
    pub(super) fn note_shares(&mut self, is_contended: bool, message_bytes: usize, rest_bytes: usize) {
        self.message_lead_bytes = match is_contended {
            true => self.message_lead_bytes + message_bytes as i32 - rest_bytes as i32,
            false => 0,
        };
        self.message_lead_bytes = self.message_lead_bytes.clamp(-MAX_LEAD_BYTES, MAX_LEAD_BYTES);
    }

    /// Ends the packet that was begun, whose payload has become `total_bytes` long.
    pub(super) fn finish_packet(&mut self, now: Time, envelope: Envelope, purpose: Purpose, total_bytes: usize) {
        let probe_micros = self.round_trip.probe_micros(self.options.ack_delay);
        let give_up_micros = self.round_trip.give_up_micros(self.options.ack_delay);
        let datagram_bytes = envelope.head_bytes + total_bytes + envelope.tail_bytes;
        self.pacer.on_sent(now, total_bytes);
        if purpose.is_size_probe {
            self.pacer.on_size_probe(now, total_bytes);
            self.path_size.on_probe(envelope.sequence);
            self.counters.size_probes_sent += 1;
            self.last_eliciting_at = now;
        } else if 4 * datagram_bytes >= 3 * self.path_size.datagram_bytes() {
            self.path_size.on_full();
        }
        let mut is_eliciting = false;
        if let Some(sent) = self.flight.newest_mut() {
            sent.bytes = total_bytes as u16;
            sent.datagram_bytes = datagram_bytes.min(usize::from(u16::MAX)) as u16;
            sent.is_size_probe = purpose.is_size_probe;
            is_eliciting = sent.is_eliciting;
            if is_eliciting && !purpose.is_size_probe {
                sent.stamp =
                    self.pacer.on_eliciting((now, sent.sent_at), total_bytes, self.round_trip.smoothed_micros());
            }
        }
        self.flight.finish(give_up_micros);
        if is_eliciting {
            self.arm_probe(now, probe_micros);
        }
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += total_bytes as u64;
        if self.closing.as_ref().is_some_and(|closing| closing.packets_left == 0) {
            self.end_closing();
        }
    }

    fn mark_eliciting(&mut self) {
        if let Some(sent) = self.flight.newest_mut() {
            sent.is_eliciting = true;
        }
    }

    fn write_header(&mut self, now: Time, tick: Tick, is_size_probe: bool, out: &mut Vec<u8>) {
        let ack = self.received.acknowledge(now);
        if !is_size_probe {
            // The content of a probe may be lost, and is repeated in the next packet.
            self.received.note_answered();
        }
        let mut flags = 0;
        if let Some(ack) = &ack {
            flags |= flag::ACK | ack.width.code() << flag::WIDTH_SHIFT;
        }
        let input_ack = self.input_ack.and_then(|number| self.inputs_in.short_ack(number));
        if input_ack.is_some() {
            flags |= flag::INPUT_ACK;
        }
        if is_size_probe {
            flags |= flag::PING;
            self.mark_eliciting();
        }
        if self.is_probe_due(now) {
            self.probes += 1;
            self.probe_at = None;
            flags |= flag::PING;
            self.mark_eliciting();
        }
        if self.is_keep_alive_due(now) {
            flags |= flag::PING;
            self.mark_eliciting();
        }
        out.push(flags);
        if let Some(ack) = ack {
            ack.write(out);
        }
        out.extend_from_slice(&tick.short().0.to_le_bytes());
        if let Some(low) = input_ack {
            out.extend_from_slice(&low.to_le_bytes());
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

    /// Writes the message section, which also says whether there is room for the peer's messages.
    fn write_messages(&mut self, (start, sequence): (usize, u64), room: usize, share: usize, out: &mut Vec<u8>) {
        let head = out.len();
        let Some(room) = (room - (head - start)).checked_sub(SECTION_HEAD_BYTES) else { return };
        out.extend_from_slice(&[0; SECTION_HEAD_BYTES]);
        if self.lanes.is_due() {
            self.lanes.write(room.min(share.saturating_sub(SECTION_HEAD_BYTES)), out, &mut self.flight);
        }
        let length = out.len() - head - SECTION_HEAD_BYTES;
        if length == 0 && !self.room.is_unknown() {
            out.truncate(head);
            return;
        }
        let no_room = if self.room.is_short() { NO_ROOM } else { 0 };
        out[head..head + SECTION_HEAD_BYTES].copy_from_slice(&(length as u16 | no_room).to_le_bytes());
        out[start] |= flag::MESSAGES;
        self.room.on_said(sequence);
        if let Some(sent) = self.flight.newest_mut() {
            sent.says_room = true;
            sent.is_eliciting = true;
        }
    }
}
