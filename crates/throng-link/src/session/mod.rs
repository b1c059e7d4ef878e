//! Everything of one connection above the sealed packet: acknowledgement, delivery verdicts, message lanes, inputs,
//! pacing, keep-alive and close. The same code runs at both ends.
//!
//! A [`Session`] touches neither socket nor clock. The layer that seals packets numbers them (netcode carries the
//! number), and a session ignores bytes that it does not know: the bytes behind its header belong to replication.
//!
//! ```text
//!  send, push_input      +---------+   poll_packet -> plan, begin -> header, inputs, messages | caller appends the rest
//!  ------------------->  | Session |   finish
//!  poll_message, _input  |         |   ------------------------------------------------------------------------------>
//!  <-------------------  |         |   handle_packet -> tick, the rest
//!  poll_delivery, _close +---------+   <------------------------------------------------------------------------------
//! ```
//!
//! The methods are of four kinds: getters; commands of the application ([`Session::send`], [`Session::push_input`],
//! [`Session::close`], ...); `handle_*`, which take what comes in; and `poll_*`, which give what goes out to the
//! application. Once per tick:
//!
//! 1. [`Session::handle_packet`] for all packets that came. An acknowledgement reaches back over 256 packets: an end
//!    that may find more than that at once polls packets in between;
//! 2. [`Session::handle_timeout`];
//! 3. drain [`Session::poll_delivery`], [`Session::poll_message`], [`Session::poll_input`], then
//!    [`Session::poll_close`];
//! 4. while [`Session::poll_packet`] gives a plan: begin the packet, append what there is of the rest, finish it, seal and
//!    send it.
//!
//! The session decides when a packet may be sent, how long it is and who may fill it ([`plan`]). Nothing but a plan can be
//! sent, and a plan sends one packet.
//!
//! `now` never falls from call to call.
//!
//! ```
//! use std::sync::Arc;
//! use throng_link::session::{Envelope, LaneId, Rest, Session, SessionOptions};
//! use throng_wire::{ShortTick, Tick, Time};
//!
//! let options = Arc::new(SessionOptions::default());
//! let mut server = Session::new(options.clone(), Time(0))?;
//! let mut client = Session::new(options, Time(0))?;
//!
//! server.send(LaneId(0), b"welcome")?;
//! let mut payload = Vec::new();
//! let plan = server.poll_packet(Time(0), Envelope::bare(0), Rest::Waiting).expect("there is something to send");
//! let mut packet = plan.begin(Tick(7), &mut payload);
//! packet.rest().0.extend_from_slice(b"world state");
//! packet.finish();
//!
//! let packet = client.handle_packet(Time(0), 0, &payload)?.expect("it is new");
//! assert_eq!((packet.tick, packet.rest), (ShortTick(7), b"world state".as_slice()));
//! assert_eq!(client.poll_message(), Some((LaneId(0), b"welcome".to_vec())));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod close;
mod control;
mod error;
mod flight;
mod inputs;
mod lane;
mod options;
mod pace;
mod path_size;
pub mod plan;
mod receive;
mod received;
mod room;
mod round_trip;
mod settle;
mod statistics;
mod transmit;
mod windowed_min;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use throng_wire::Time;

pub use close::{CLOSE_INTERVAL, CLOSE_PACKETS, CloseCause, CloseCode, CloseReason};
pub use error::{Blame, InputError, OptionsError, PacketError, SendError};
pub use flight::Delivery;
pub use inputs::{Input, MAX_QUEUED_INPUTS};
pub use lane::{LaneId, MAX_UNRELIABLE_REASSEMBLIES, MessageId, RELIABLE_WINDOW};
pub use options::{
    LaneKind, LaneOptions, MAX_LANES, MAX_PACKETS_IN_FLIGHT, MAX_RELIABLE_MESSAGE_BYTES, MAX_UNRELIABLE_MESSAGE_BYTES,
    SessionOptions,
};
pub use path_size::{MAX_DATAGRAM_BYTES, MIN_DATAGRAM_BYTES, MIN_REST_BYTES};
pub use plan::{Envelope, MAX_PACKETS_PER_FLUSH, OpenPacket, PacketPlan, Rest};
pub use receive::PacketInfo;
pub use statistics::{Counters, Statistics};
pub use wire::{MAX_CLOSE_TEXT_BYTES, MAX_INPUT_BYTES, MAX_INPUT_REDUNDANCY, MAX_PAYLOAD_BYTES};

use control::PathTimes;
use flight::{Flight, Patience};
use inputs::{InputReceiver, InputSender};
use lane::{Lanes, SendTally};
use pace::Pacer;
use path_size::PathSize;
use received::Received;
use room::Room;
use round_trip::RoundTrip;
use settle::Concerned;
use transmit::Closing;

/// Probes in a row. After them, only other packets can bring the peer back.
const MAX_PROBES: u32 = 4;

/// One end of a connection, above the sealed packet.
///
/// An idle session takes 1.3 KiB; lanes, inputs and packet records take memory when they are first used, within
/// the limits of the [`SessionOptions`]. In the steady state no call allocates, except [`Session::poll_message`]'s
/// vectors, and messages above 1 KiB or in several parts.
#[derive(Debug)]
pub struct Session {
    options: Arc<SessionOptions>,
    received: Received,
    flight: Flight,
    round_trip: RoundTrip,
    pacer: Pacer,
    path_size: PathSize,
    lanes: Lanes,
    inputs_out: InputSender,
    inputs_in: InputReceiver,
    /// The newest input that the application has processed, told to the peer in every packet while the peer can expand
    /// its low half.
    input_ack: Option<u32>,
    counters: Counters,
    last_received_at: Time,
    /// As in the options, unless it was shortened.
    idle_timeout: Duration,
    /// When something that asks for an acknowledgement was last sent.
    last_eliciting_at: Time,
    /// When the peer is asked for the acknowledgement of what it was sent last; `None` while nothing waits for one.
    probe_at: Option<Time>,
    /// Such questions since anything was acknowledged.
    probes: u32,
    /// [`SessionOptions::packet_threshold`], or more on a path that reorders.
    packet_threshold: u32,
    /// By how many bytes messages are ahead of the rest, while both wait.
    message_lead_bytes: i32,
    /// Packets that were begun at this time.
    flushed_at: Time,
    flushed_packets: u16,
    closing: Option<Box<Closing>>,
    /// Set once, never cleared.
    closed: Option<Box<CloseCause>>,
    is_close_polled: bool,
    /// Of our own inbox.
    room: Room,
    /// Packets from this sequence on are newer than the one in which the peer last said whether it has room.
    room_heard_before: u64,
    /// See [`Session::refuse_rest`].
    refuses_rest: bool,
}

impl Session {
    /// A session that begins now.
    ///
    /// # Errors
    /// Options that are out of their range.
    pub fn new(options: Arc<SessionOptions>, now: Time) -> Result<Session, OptionsError> {
        options.check()?;
        Ok(Session {
            received: Received::default(),
            flight: Flight::new(options.max_in_flight),
            round_trip: RoundTrip::new(),
            pacer: Pacer::new(&options, now),
            path_size: PathSize::new(),
            lanes: Lanes::new(Arc::clone(&options)),
            inputs_out: InputSender::new(options.first_input, options.input_redundancy),
            inputs_in: InputReceiver::new(options.first_input),
            input_ack: None,
            counters: Counters::default(),
            last_received_at: now,
            idle_timeout: options.idle_timeout,
            last_eliciting_at: now,
            probe_at: None,
            probes: 0,
            packet_threshold: u32::from(options.packet_threshold),
            message_lead_bytes: 0,
            flushed_at: now,
            flushed_packets: 0,
            closing: None,
            closed: None,
            is_close_polled: false,
            room: Room::default(),
            room_heard_before: 0,
            refuses_rest: false,
            options,
        })
    }

    /// Queues a message. The bytes are copied.
    ///
    /// # Errors
    /// The session is closing, the lane does not exist, the message is too long, or the lane is full (an unreliable lane
    /// drops its oldest messages instead).
    pub fn send(&mut self, lane: LaneId, message: &[u8]) -> Result<MessageId, SendError> {
        if self.is_closing() {
            return Err(SendError::Closed);
        }
        let mut tally = SendTally::default();
        let result = self.lanes.send(lane, message, &mut tally);
        self.counters.messages_dropped += tally.dropped;
        match result {
            Ok(_) => self.counters.messages_sent += 1,
            Err(SendError::QueueFull) => self.counters.messages_refused += 1,
            Err(SendError::TooLarge { .. }) => self.counters.messages_too_large += 1,
            Err(_) => {}
        }
        result
    }

    /// Whether a received message waits to be polled.
    pub fn has_message(&self) -> bool {
        self.lanes.has_message()
    }

    /// The next received message and its lane.
    pub fn poll_message(&mut self) -> Option<(LaneId, Vec<u8>)> {
        let message = self.lanes.poll();
        if self.room.is_short() && self.lanes.is_inbox_drained() {
            self.room.set(false);
        }
        message
    }

    /// Says whether this end has no room for the rest of packets for now. Then a packet with a rest is not acknowledged, and
    /// gives out neither rest nor messages: the peer takes it for lost. Everything else in it takes effect.
    pub fn refuse_rest(&mut self, is_refused: bool) {
        self.refuses_rest = is_refused;
    }

    /// Bytes of messages that wait to be sent or, on reliable lanes, delivered. To be sure that everything is
    /// delivered, wait for 0 before [`Session::close`].
    pub fn pending_message_bytes(&self) -> usize {
        self.lanes.pending_bytes()
    }

    /// Memory of received messages, in bytes: of messages that are not complete, that wait for an earlier message, or that
    /// wait to be polled. [`LaneOptions::queue_bytes`] and [`SessionOptions::inbox_bytes`] bound it.
    pub fn received_message_bytes(&self) -> usize {
        self.lanes.received_bytes()
    }

    /// The oldest message of a reliable lane that has not arrived in full, or the number of the next one if all have.
    /// Everything before it can be polled at the other end. Of an unreliable lane: the oldest that was not sent.
    pub fn first_undelivered(&self, lane: LaneId) -> MessageId {
        MessageId(self.lanes.first_undelivered(lane))
    }

    /// Takes the next input to be sent. Returns its number.
    ///
    /// # Errors
    /// The session is closing, or the input is longer than [`MAX_INPUT_BYTES`].
    pub fn push_input(&mut self, input: &[u8]) -> Result<u32, InputError> {
        if self.is_closing() {
            return Err(InputError::Closed);
        }
        if input.len() > MAX_INPUT_BYTES {
            return Err(InputError::TooLarge);
        }
        Ok(self.inputs_out.push(input))
    }

    /// The next received input. Numbers rise from call to call; those that did not arrive are left out.
    pub fn poll_input(&mut self) -> Option<Input> {
        self.inputs_in.poll()
    }

    /// Notes the newest input whose effect is in the state that will be sent from now on. The peer finds it in
    /// [`Session::input_acked`]. A number that was not received, or that 16,384 inputs have followed, is not sent.
    pub fn set_input_ack(&mut self, number: u32) {
        self.input_ack = Some(number);
    }

    /// The newest of our inputs that the peer has processed: prediction continues from there.
    pub fn input_acked(&self) -> Option<u32> {
        self.inputs_out.acked()
    }

    /// Whether so many packets wait for an acknowledgement that one has to be sent before more are taken in: it reaches back
    /// over 256 packets only.
    pub fn is_answer_due(&self) -> bool {
        !self.is_closed() && self.received.is_overdue()
    }

    /// The next verdict on a packet, by its sequence. Every packet gets exactly one, at the latest 5 seconds after it was
    /// sent or with the end of the session, provided that [`Session::handle_timeout`] is called.
    pub fn poll_delivery(&mut self) -> Option<(u64, Delivery)> {
        self.flight.poll_verdict()
    }

    /// Reads a little of every part, so that the processor fetches the whole session at once instead of waiting for memory
    /// at each part in turn. The value means nothing. For a caller that is about to work on many sessions: it calls this for
    /// all of them, then [`Session::fetch_behind`] for all.
    pub fn fetch(&self) -> u64 {
        let counters = &self.counters;
        let counted = counters.packets_sent ^ counters.packets_lost ^ counters.packets_bad ^ counters.inputs_received;
        let numbers = u64::from(self.probes ^ self.packet_threshold ^ u32::from(self.flushed_packets));
        let parts = self.received.fetch() ^ self.flight.fetch() ^ self.pacer.fetch() ^ self.lanes.fetch();
        let asked = self.last_eliciting_at.0 ^ self.probe_at.map_or(0, |at| at.0);
        let times = self.last_received_at.0 ^ self.flushed_at.0 ^ asked ^ u64::from(self.closing.is_some());
        let measured = u64::from(self.round_trip.smoothed_micros()) ^ self.path_size.datagram_bytes() as u64;
        let inputs = self.inputs_in.fetch() ^ self.inputs_out.fetch();
        parts ^ counted ^ numbers ^ times ^ measured ^ inputs ^ self.room_heard_before
    }

    /// As [`Session::fetch`], for what lies behind pointers.
    pub fn fetch_behind(&self) -> u64 {
        self.flight.fetch_behind() ^ self.pacer.fetch_behind() ^ self.inputs_out.fetch_behind()
    }

    /// Bytes that may be sent now without exceeding the rate limit or what the path seems to carry: payload, and
    /// [`packet_overhead_bytes`](SessionOptions::packet_overhead_bytes) for each packet. At least one full packet per
    /// [`SessionOptions::min_packet_interval`] comes together, unless the limit is lower. [`Session::poll_packet`]
    /// respects it in any case; the value is for callers that select what to send first.
    pub fn sending_allowance_bytes(&self, now: Time) -> usize {
        self.pacer.balance_bytes(now).max(0) as usize
    }

    /// The rate at which the session may send, in bytes per second: the lower of limit and congestion estimate.
    pub fn sending_rate(&self) -> u32 {
        self.pacer.rate()
    }

    /// Changes the rate limit, at least 1: bytes per second of the same kind as
    /// [`SessionOptions::rate_bytes_per_s`], each packet's overhead included.
    pub fn set_rate_limit(&mut self, now: Time, bytes_per_s: u32) {
        self.pacer.set_limit(now, bytes_per_s);
    }

    /// Takes over what a handshake has found out. Its round trip is assumed until the first acknowledgement. The connect
    /// token may have a timeout of its own: it counts if it is shorter, and then half of it bounds
    /// [`SessionOptions::keep_alive_interval`].
    pub fn follow_handshake(&mut self, round_trip: Duration, timeout: Option<Duration>) {
        self.round_trip.assume(round_trip.as_micros() as u64);
        self.idle_timeout = timeout.into_iter().fold(self.idle_timeout, Duration::min);
    }

    /// The packets take another path from now on, with this round trip if it is known. Measurements of the old path are
    /// discarded. Packets in flight on it count as lost, but neither their loss nor a late acknowledgement of them is held
    /// against the new path.
    pub fn on_new_path(&mut self, now: Time, round_trip: Option<Duration>) {
        let (flight, mut concerned) = self.flight_and_concerned(now);
        flight.give_up_all(&mut concerned);
        self.round_trip = RoundTrip::new();
        self.path_size = PathSize::new();
        self.pacer.on_new_path(&self.options, now);
        self.packet_threshold = u32::from(self.options.packet_threshold);
        (self.probe_at, self.probes) = (None, 0);
        if let Some(round_trip) = round_trip {
            self.round_trip.assume(round_trip.as_micros() as u64);
        }
    }

    /// The local interface has refused a datagram of this length. False if it is no longer than
    /// [`MIN_DATAGRAM_BYTES`]: then there is no packet that would pass.
    pub fn handle_too_large(&mut self, now: Time, datagram_bytes: usize) -> bool {
        self.path_size.on_refused(datagram_bytes, now)
    }

    /// Does the work that is due at `now`: verdicts, the end of unfinished messages, the idle timeout.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.is_closed() {
            return;
        }
        if self.flight.deadline().is_some_and(|deadline| deadline <= now) {
            self.detect_losses(now);
        }
        if self.lanes.oldest_unfinished().is_some() {
            self.counters.reassemblies_expired += self.lanes.expire(now, self.options.reassembly_timeout);
        }
        if self.closing.as_ref().is_some_and(|closing| closing.give_up_at() <= now) {
            self.end_closing();
        } else if now.since(self.last_received_at) >= self.idle_timeout {
            self.end(CloseCause::IdleTimeout);
        }
    }

    /// When [`Session::handle_timeout`] or [`Session::poll_packet`] next has something to do, if nothing happens before.
    /// `None` once closed. A server that looks after every session each tick does not need it.
    pub fn next_deadline(&self) -> Option<Time> {
        if self.is_closed() {
            return None;
        }
        let after = |time: Time, duration| time.after(duration);
        if let Some(closing) = &self.closing {
            return Some(closing.next_at());
        }
        let acknowledgement = self.received.waiting().map(|(_, since)| match self.received.is_overdue() {
            true => since,
            false => after(since, self.options.ack_delay),
        });
        let unfinished = self.lanes.oldest_unfinished().map(|began| after(began, self.options.reassembly_timeout));
        let inputs = (self.inputs_out.is_due() || self.room.is_untold()).then_some(Time(0));
        // With too many packets under way, the next verdict comes first.
        let (has_place, has_place_for_data) = (!self.flight.is_full(0), !self.flight.is_full(self.spare_packets()));
        let urgent = [acknowledgement, inputs].into_iter().flatten().fold(self.keep_alive_at(), Time::min);
        let urgent = has_place.then(|| urgent.max(self.pacer.allows_at(1 - plan::MAX_DEBT_BYTES)));
        let allows = |payload_bytes: usize| self.pacer.allows_at(self.pacer.cost_bytes(payload_bytes));
        let size_probe = self.path_size.due().filter(|_| has_place_for_data);
        let size_probe = size_probe.map(|(bytes, at)| (at, at.max(allows(bytes.min(MAX_PAYLOAD_BYTES)))));
        let messages = (self.lanes.is_due() && has_place_for_data).then(|| allows(plan::MIN_DATA_ROOM_BYTES));
        // Messages wait for a probe that is due.
        let messages = messages.map(|at| match size_probe {
            Some((due_at, sent_at)) if due_at <= at => at.max(sent_at),
            _ => at,
        });
        let idle = after(self.last_received_at, self.idle_timeout);
        let size_probe = size_probe.map(|(_, at)| at);
        let sometimes = [urgent, unfinished, messages, size_probe, self.flight.deadline(), self.probe_at];
        Some(sometimes.into_iter().flatten().fold(idle, Time::min))
    }

    /// Begins to close. The reason is sent in [`CLOSE_PACKETS`] packets, [`CLOSE_INTERVAL`] apart, as
    /// [`Session::poll_packet`] plans them; then the session is closed. Data that is not delivered by then is lost.
    pub fn close(&mut self, now: Time, reason: CloseReason) {
        if !self.is_closing() {
            self.closing = Some(Box::new(Closing::new(now, reason)));
        }
    }

    /// The cause of the session's end, once.
    pub fn poll_close(&mut self) -> Option<CloseCause> {
        if self.is_close_polled {
            return None;
        }
        let cause = self.closed.as_deref()?.clone();
        self.is_close_polled = true;
        Some(cause)
    }

    /// The cause of the session's end.
    pub fn close_cause(&self) -> Option<&CloseCause> {
        self.closed.as_deref()
    }

    /// Whether the session is closing or closed.
    pub fn is_closing(&self) -> bool {
        self.closing.is_some() || self.closed.is_some()
    }

    /// Whether the session is closed: it takes and gives no more packets. Earlier data can still be polled.
    pub fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// The counters as they stand: less memory to fetch than for [`statistics`](Session::statistics), where there are many sessions.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The counters and estimates as they stand.
    pub fn statistics(&self) -> Statistics {
        let micros = |micros: u32| Duration::from_micros(u64::from(micros));
        Statistics {
            counters: self.counters,
            round_trip: self.round_trip.has_sample().then(|| micros(self.round_trip.smoothed_micros())),
            round_trip_variance: micros(self.round_trip.variance_micros()),
            round_trip_min: micros(self.round_trip.smallest_micros()),
            sending_rate_bytes_per_s: self.pacer.rate(),
            delivered_bytes_per_s: self.pacer.delivered_bytes_per_s(),
            datagram_bytes: self.path_size.datagram_bytes(),
            packets_in_flight: self.flight.packets(),
            pending_message_bytes: self.lanes.pending_bytes(),
        }
    }

    fn end(&mut self, cause: CloseCause) {
        if self.closed.is_none() {
            self.closed = Some(Box::new(cause));
            let (flight, mut concerned) = self.flight_and_concerned(self.last_received_at);
            flight.discard(&mut concerned);
        }
    }

    fn end_closing(&mut self) {
        if let Some(closing) = self.closing.take() {
            self.end(CloseCause::Local(closing.into_reason()));
        }
    }

    fn detect_losses(&mut self, now: Time) {
        if !self.flight.is_empty() {
            let patience = self.patience();
            let (flight, mut concerned) = self.flight_and_concerned(now);
            flight.detect_losses(now, patience, &mut concerned);
        }
        if !self.pacer.may_judge() {
            return;
        }
        let times = PathTimes {
            smoothed_micros: self.round_trip.smoothed_micros(),
            smallest_micros: self.round_trip.smallest_micros(),
            silence_micros: self.round_trip.give_up_micros(self.options.ack_delay),
        };
        self.pacer.advance(now, times);
    }

    /// Decides when the tail of what was sent is probed (RFC 9002 section 6.2). A stream that continues needs no
    /// probes.
    fn arm_probe(&mut self, now: Time, probe_micros: u64) {
        let at = || Time(self.last_eliciting_at.0.saturating_add(probe_micros << self.probes)).max(now);
        self.probe_at = (self.flight.is_waiting() && self.probes < MAX_PROBES).then(at);
    }

    fn patience(&self) -> Patience {
        Patience {
            packet_threshold: u64::from(self.packet_threshold),
            loss_delay_micros: self.round_trip.loss_delay_micros(),
            give_up_micros: self.round_trip.give_up_micros(self.options.ack_delay),
        }
    }

    fn flight_and_concerned(&mut self, now: Time) -> (&mut Flight, Concerned<'_>) {
        let concerned = Concerned {
            received: &mut self.received,
            inputs: &mut self.inputs_out,
            lanes: &mut self.lanes,
            room: &mut self.room,
            pacer: &mut self.pacer,
            path_size: &mut self.path_size,
            now,
            newest_sent: self.flight.newest_sent().unwrap_or_default(),
            counters: &mut self.counters,
        };
        (&mut self.flight, concerned)
    }
}
