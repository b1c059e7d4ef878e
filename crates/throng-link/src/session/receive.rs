//! Taking packets in.

use throng_wire::{ShortTick, Time};

use super::Session;
use super::close::{CloseCause, CloseCode, CloseReason};
use super::error::PacketError;
use super::flight::{Acknowledged, CheckedAck};
use super::lane::ReceiveTally;
use super::received::Novelty;
use super::wire::{Ack, Payload};

/// The content of a packet for the layers above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketInfo<'a> {
    /// The low half of the sender's simulation tick.
    pub tick: ShortTick,
    /// Replication bytes; zeros at the end are padding.
    pub rest: &'a [u8],
}

/// Even if the path reorders, a packet counts as lost when a packet this many sequences newer has been acknowledged.
const MAX_PACKET_THRESHOLD: u32 = 64;

impl Session {
    /// Takes in a packet that was opened and so comes from the peer. `None` for one that brings nothing: received
    /// before, too old to tell, or after the end.
    ///
    /// # Errors
    /// The packet breaks the protocol, and the session should be closed: what stood before the fault may have taken
    /// effect.
    pub fn handle_packet<'a>(
        &mut self,
        now: Time,
        sequence: u64,
        payload: &'a [u8],
    ) -> Result<Option<PacketInfo<'a>>, PacketError> {
        self.handle_packet_of(now, now, sequence, payload)
    }

    /// As [`Session::handle_packet`], with the time at which the packet came to this machine: at or before `now`. How long
    /// it waited to be read is then neither taken for delay of the path nor told to the peer as such.
    ///
    /// # Errors
    /// As [`Session::handle_packet`].
    pub fn handle_packet_of<'a>(
        &mut self,
        now: Time,
        arrived: Time,
        sequence: u64,
        payload: &'a [u8],
    ) -> Result<Option<PacketInfo<'a>>, PacketError> {
        let arrived = arrived.min(now);
        if self.is_closed() {
            return Ok(None);
        }
        match self.received.novelty(sequence) {
            Novelty::New => {}
            Novelty::Duplicate => {
                self.counters.packets_duplicate += 1;
                return Ok(None);
            }
            Novelty::TooOld => {
                self.counters.packets_too_old += 1;
                return Ok(None);
            }
        }
        let result = self.take_packet(now, arrived, sequence, payload);
        self.counters.packets_bad += u64::from(result.is_err());
        result.map(Some)
    }

    fn take_packet<'a>(
        &mut self,
        now: Time,
        arrived: Time,
        sequence: u64,
        bytes: &'a [u8],
    ) -> Result<PacketInfo<'a>, PacketError> {
        let payload = Payload::read(bytes)?;
        let ack = match &payload.ack {
            Some(ack) => Some((ack, self.flight.check(ack)?)),
            None => None,
        };
        if payload.input_ack.is_some_and(|low| !self.inputs_out.on_processed(low)) {
            return Err(PacketError::AckOfUnsentInput);
        }
        if let Some(has_no_room) = payload.has_no_room
            && sequence >= self.room_heard_before
        {
            self.room_heard_before = sequence.saturating_add(1);
            self.lanes.hold(has_no_room);
        }
        // Without room for its messages or its rest, a packet is not acknowledged, so that the peer sends them again.
        // Everything else in it takes effect: it may come twice.
        let has_room = (payload.messages.is_empty() || !self.lanes.is_inbox_full())
            && !(self.refuses_rest && payload.rest.iter().any(|&byte| byte != 0));
        match has_room {
            true => self.note_received(now, arrived, sequence, bytes.len(), payload.is_eliciting),
            false => {
                self.last_received_at = now;
                self.counters.packets_refused += 1;
            }
        }
        if let Some((ack, checked)) = ack {
            self.take_ack(now, arrived, ack, checked);
        }
        if let Some(section) = &payload.inputs {
            let tally = self.inputs_in.take(section);
            self.counters.inputs_received += tally.received;
            self.counters.inputs_lost += tally.lost;
            self.counters.inputs_overflowed += tally.overflowed;
        }
        if has_room {
            self.take_messages(now, payload.messages)?;
        }
        if let Some((code, text)) = payload.close {
            self.end(CloseCause::Peer(CloseReason::new(CloseCode(code), text)));
        }
        let rest = if self.refuses_rest { &[][..] } else { payload.rest };
        Ok(PacketInfo { tick: payload.tick, rest })
    }

    fn note_received(&mut self, now: Time, arrived: Time, sequence: u64, bytes: usize, is_eliciting: bool) {
        let next_sent = self.flight.newest_sent().map_or(0, |newest| newest + 1);
        self.received.insert(arrived, sequence, next_sent);
        if is_eliciting {
            self.received.note_waiting(now);
        }
        self.last_received_at = now;
        self.counters.packets_received += 1;
        self.counters.bytes_received += bytes as u64;
    }

    fn take_ack(&mut self, now: Time, arrived: Time, ack: &Ack, checked: CheckedAck) {
        let delivered = self.counters.packets_delivered;
        let (flight, mut concerned) = self.flight_and_concerned(now);
        let Acknowledged { newest, oldest_at, spurious } = flight.acknowledge(checked, &mut concerned);
        self.counters.packets_spurious += spurious;
        if spurious > 0 {
            self.pacer.on_spurious(spurious);
            // The path changes the order of packets: wait for more before one is called lost (RFC 8985 section 6.2 step 4).
            self.packet_threshold = (self.packet_threshold * 2).min(MAX_PACKET_THRESHOLD);
        }
        if self.counters.packets_delivered > delivered {
            self.pacer.on_heard(now);
            self.probes = 0;
            match self.flight.is_waiting() {
                true => self.arm_probe(now, self.round_trip.probe_micros(self.options.ack_delay)),
                false => self.probe_at = None,
            }
        }
        if let (Some(sent), Some(delay)) = (newest, ack.delay.micros()) {
            let micros = self.round_trip.sample(now, arrived.micros_since(sent.sent_at), delay);
            if let Some(stamp) = sent.stamp {
                self.pacer.on_round_trip(now, stamp, micros, self.round_trip.smallest_micros());
            }
        }
        if let Some(sent_at) = oldest_at {
            // Also what waited longer than an acknowledgement can say.
            let path_micros = u64::from(self.round_trip.smoothed_micros());
            self.round_trip.note_held(now.micros_since(sent_at).saturating_sub(path_micros));
        }
        self.detect_losses(now);
    }

    fn take_messages(&mut self, now: Time, section: &[u8]) -> Result<(), PacketError> {
        if section.is_empty() {
            return Ok(());
        }
        let mut tally = ReceiveTally::default();
        let result = self.lanes.take(now, section, &mut tally);
        self.counters.messages_received += tally.received;
        self.counters.reassemblies_evicted += tally.evicted;
        if self.lanes.is_inbox_filling() {
            self.room.set(true);
        }
        result
    }
}
