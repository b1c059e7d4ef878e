//! Everything of one connection above the sealed packet: acknowledgement, delivery verdicts, message lanes, inputs,
//! pacing, keep-alive and close. The same code runs at both ends.
//!
//! A [`Session`] touches neither socket nor clock. Packets are numbered by whoever seals them (netcode carries the
//! number), and what a session does not know it leaves alone: the bytes behind its header belong to replication.
//!
//! ```text
//!  send, push_input      +---------+   begin_packet -> header, inputs, messages | caller appends replication bytes
//!  ------------------->  | Session |   finish_packet
//!  poll_message, _input  |         |   ------------------------------------------------------------------------->
//!  <-------------------  |         |   handle_packet -> tick, replication bytes
//!  poll_delivery, _close +---------+   <-------------------------------------------------------------------------
//! ```
//!
//! The methods are of four kinds: getters; commands of the application ([`Session::send`], [`Session::push_input`],
//! [`Session::close`], ...); `handle_*`, which take what comes in; and `poll_*`, which give what goes out to the
//! application. Once per tick:
//!
//! 1. [`Session::handle_packet`] for all packets that came. An acknowledgement reaches back over 64 packets: an end that
//!    may find more than that at once looks at [`Session::has_urgent`] in between and answers;
//! 2. [`Session::handle_timeout`];
//! 3. drain [`Session::poll_delivery`], [`Session::poll_message`], [`Session::poll_input`], then
//!    [`Session::poll_close`];
//! 4. while there is replication data or [`Session::has_pending`], within [`Session::sending_allowance_bytes`], and in any
//!    case if [`Session::has_urgent`]: [`Session::begin_packet`], append, [`Session::finish_packet`].
//!
//! `now` never falls from call to call.
//!
//! ```
//! use std::sync::Arc;
//! use throng_link::session::{LaneId, PacketPlan, Session, SessionOptions};
//! use throng_wire::{Tick, Time};
//!
//! let options = Arc::new(SessionOptions::default());
//! let mut server = Session::new(options.clone(), Time(0))?;
//! let mut client = Session::new(options, Time(0))?;
//!
//! server.send(LaneId(0), b"welcome")?;
//! let mut payload = Vec::new();
//! server.begin_packet(Time(0), PacketPlan::new(0, Tick(7)), &mut payload)?;
//! payload.extend_from_slice(b"world state");
//! server.finish_packet(payload.len());
//!
//! let packet = client.handle_packet(Time(0), 0, &payload)?.expect("it is new");
//! assert_eq!((packet.tick, packet.rest), (Tick(7), b"world state".as_slice()));
//! assert_eq!(client.poll_message(), Some((LaneId(0), b"welcome".to_vec())));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod close;
mod error;
mod flight;
mod inputs;
mod lane;
mod options;
mod pace;
mod receive;
mod received;
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
pub use error::{BeginError, Blame, InputError, OptionsError, PacketError, SendError};
pub use flight::Delivery;
pub use inputs::{Input, MAX_QUEUED_INPUTS};
pub use lane::{LaneId, MAX_UNRELIABLE_REASSEMBLIES, MessageId, RELIABLE_WINDOW};
pub use options::{
    LaneKind, LaneOptions, MAX_LANES, MAX_PACKETS_IN_FLIGHT, MAX_RELIABLE_MESSAGE_BYTES, MAX_UNRELIABLE_MESSAGE_BYTES,
    SessionOptions,
};
pub use receive::PacketInfo;
pub use statistics::{Counters, Statistics};
pub use transmit::{MIN_ROOM_BYTES, PacketPlan};
pub use wire::{MAX_CLOSE_TEXT_BYTES, MAX_INPUT_BYTES, MAX_INPUT_REDUNDANCY, MAX_PAYLOAD_BYTES};

use flight::{Flight, Patience};
use inputs::{InputReceiver, InputSender};
use lane::{Lanes, SendTally};
use pace::Pacer;
use received::Received;
use round_trip::RoundTrip;
use settle::Concerned;
use transmit::{Closing, OpenPacket};

/// An allowance that is worth waking up for when messages wait: room for a piece of one.
const MIN_MESSAGE_BYTES: usize = 320;

/// One end of a connection, above the sealed packet.
///
/// An idle session takes about 1 KiB; lanes, inputs and packet records take memory when they are first used, within
/// the limits of the [`SessionOptions`]. In the steady state no call allocates, except [`Session::poll_message`]'s
/// vectors that are not given back to [`Session::recycle`], and messages above 1 KiB or in several parts.
#[derive(Debug)]
pub struct Session {
    options: Arc<SessionOptions>,
    received: Received,
    flight: Flight,
    round_trip: RoundTrip,
    pacer: Pacer,
    lanes: Lanes,
    inputs_out: InputSender,
    inputs_in: InputReceiver,
    /// The newest input that the application has processed, told to the peer in every packet.
    input_ack: Option<u32>,
    counters: Counters,
    last_received_at: Time,
    /// When something that asks for an acknowledgement was last sent.
    last_eliciting_at: Time,
    /// The packet between begin and finish.
    open: Option<OpenPacket>,
    closing: Option<Box<Closing>>,
    /// Set once, never cleared.
    closed: Option<Box<CloseCause>>,
    is_close_polled: bool,
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
            lanes: Lanes::new(Arc::clone(&options)),
            inputs_out: InputSender::new(options.first_input, options.input_redundancy),
            inputs_in: InputReceiver::new(options.first_input),
            input_ack: None,
            counters: Counters::default(),
            last_received_at: now,
            last_eliciting_at: now,
            open: None,
            closing: None,
            closed: None,
            is_close_polled: false,
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

    /// The next received message and its lane.
    pub fn poll_message(&mut self) -> Option<(LaneId, Vec<u8>)> {
        self.lanes.poll()
    }

    /// Gives the buffer of a polled message back for reuse. Optional.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.lanes.recycle(buffer);
    }

    /// Bytes of messages that wait to be sent or, on reliable lanes, delivered. Whoever wants everything delivered waits
    /// for 0 before [`Session::close`].
    pub fn pending_message_bytes(&self) -> usize {
        self.lanes.pending_bytes()
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
    /// [`Session::input_acked`].
    pub fn set_input_ack(&mut self, number: u32) {
        self.input_ack = Some(number);
    }

    /// The newest of our inputs that the peer has processed: where prediction goes on from.
    pub fn input_acked(&self) -> Option<u32> {
        self.inputs_out.acked()
    }

    /// The next verdict on a packet, by its sequence. Every packet gets exactly one, at the latest 5 seconds after it was
    /// sent or with the end of the session, provided that [`Session::handle_timeout`] is called.
    pub fn poll_delivery(&mut self) -> Option<(u64, Delivery)> {
        self.flight.poll_verdict()
    }

    /// Payload bytes that may be sent now without exceeding the rate limit or what the path seems to carry. At least one
    /// full packet per [`SessionOptions::min_packet_interval`] comes together, unless the limit is lower.
    pub fn sending_allowance_bytes(&self, now: Time) -> usize {
        self.pacer.allowance_bytes(now)
    }

    /// Changes the rate limit, in payload bytes per second, at least 1.
    pub fn set_rate_limit(&mut self, now: Time, bytes_per_s: u32) {
        self.pacer.set_limit(now, bytes_per_s);
    }

    /// Does what is due by time alone: verdicts, the end of unfinished messages, the idle timeout.
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
        } else if now.since(self.last_received_at) >= self.options.idle_timeout {
            self.end(CloseCause::IdleTimeout);
        }
    }

    /// When [`Session::handle_timeout`] or [`Session::begin_packet`] next has something to do, if nothing happens before.
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
        let inputs = self.inputs_out.is_due().then_some(Time(0));
        let messages = self.lanes.is_due().then(|| self.pacer.allows_at(MIN_MESSAGE_BYTES));
        let always = after(self.last_eliciting_at, self.options.keep_alive_interval)
            .min(after(self.last_received_at, self.options.idle_timeout));
        let sometimes = [acknowledgement, unfinished, inputs, messages, self.flight.deadline()];
        Some(sometimes.into_iter().flatten().fold(always, Time::min))
    }

    /// Begins to close. The reason is sent in [`CLOSE_PACKETS`] packets, [`CLOSE_INTERVAL`] apart, while
    /// [`Session::has_pending`] says so; then the session is closed. What was not delivered by then is not delivered.
    pub fn close(&mut self, now: Time, reason: CloseReason) {
        if !self.is_closing() {
            self.closing = Some(Box::new(Closing::new(now, reason)));
        }
    }

    /// What ended the session, once.
    pub fn poll_close(&mut self) -> Option<CloseCause> {
        if self.is_close_polled {
            return None;
        }
        let cause = self.closed.as_deref()?.clone();
        self.is_close_polled = true;
        Some(cause)
    }

    /// What ended the session.
    pub fn close_cause(&self) -> Option<&CloseCause> {
        self.closed.as_deref()
    }

    /// Whether the session is closing or closed.
    pub fn is_closing(&self) -> bool {
        self.closing.is_some() || self.closed.is_some()
    }

    /// Whether the session is closed: it takes and gives no more packets. What came before can still be polled.
    pub fn is_closed(&self) -> bool {
        self.closed.is_some()
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
            packets_in_flight: self.flight.packets(),
            pending_message_bytes: self.lanes.pending_bytes(),
        }
    }

    fn end(&mut self, cause: CloseCause) {
        if self.closed.is_none() {
            self.closed = Some(Box::new(cause));
            let (flight, mut concerned) = self.flight_and_concerned();
            flight.discard(&mut concerned);
        }
    }

    fn end_closing(&mut self) {
        if let Some(closing) = self.closing.take() {
            self.end(CloseCause::Local(closing.into_reason()));
        }
    }

    fn detect_losses(&mut self, now: Time) {
        let patience = self.patience();
        let (flight, mut concerned) = self.flight_and_concerned();
        flight.detect_losses(now, patience, &mut concerned);
        self.pacer.advance(now, self.round_trip.smoothed_micros(), self.round_trip.smallest_micros());
    }

    fn patience(&self) -> Patience {
        Patience {
            packet_threshold: u64::from(self.options.packet_threshold),
            loss_delay_micros: self.round_trip.loss_delay_micros(),
            give_up_micros: self.round_trip.give_up_micros(self.options.ack_delay),
        }
    }

    fn flight_and_concerned(&mut self) -> (&mut Flight, Concerned<'_>) {
        let concerned = Concerned {
            received: &mut self.received,
            inputs: &mut self.inputs_out,
            lanes: &mut self.lanes,
            pacer: &mut self.pacer,
            counters: &mut self.counters,
        };
        (&mut self.flight, concerned)
    }
}
