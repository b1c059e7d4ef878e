//! The options of a session.

use std::time::Duration;

use super::error::OptionsError;
use super::wire::MAX_INPUT_REDUNDANCY;

/// The most lanes of a session.
pub const MAX_LANES: usize = 8;
/// The longest message that a reliable lane can be configured to carry, in bytes.
pub const MAX_RELIABLE_MESSAGE_BYTES: usize = 4 << 20;
/// The longest message that an unreliable lane can be configured to carry, in bytes.
pub const MAX_UNRELIABLE_MESSAGE_BYTES: usize = 8 << 10;
/// The largest possible limit of packets that await their verdict.
pub const MAX_PACKETS_IN_FLIGHT: usize = 8192;

/// The guarantees of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaneKind {
    /// Every message exactly once, in the order in which they were sent.
    ReliableOrdered,
    /// Every message exactly once, as soon as it is complete.
    ReliableUnordered,
    /// Every message at most once, as soon as it is complete, in whatever order. A message is sent once and never
    /// again. A full queue drops its oldest message for the newest.
    Unreliable,
}

/// One lane. Both ends must be given the same list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneOptions {
    /// The guarantees of the lane.
    pub kind: LaneKind,
    /// The lane's share of the message bytes while several lanes have something to send, relative to the other lanes'
    /// weights; at least 1.
    pub weight: u8,
    /// The longest message, in bytes.
    pub message_bytes: usize,
    /// Messages that may wait for their first sending or, on a reliable lane, their delivery.
    pub queue_messages: usize,
    /// The bytes of those messages, less than 4 GiB. Also what the receiver holds of unfinished messages.
    pub queue_bytes: usize,
}

impl LaneOptions {
    /// A lane with the usual limits: messages of 256 KiB, a queue of 1,024 messages and 1 MiB; messages of 8 KiB and a
    /// queue of 256 messages and 64 KiB if unreliable.
    pub const fn new(kind: LaneKind) -> LaneOptions {
        match kind {
            LaneKind::ReliableOrdered | LaneKind::ReliableUnordered => {
                LaneOptions { kind, weight: 1, message_bytes: 256 << 10, queue_messages: 1024, queue_bytes: 1 << 20 }
            }
            LaneKind::Unreliable => LaneOptions {
                kind,
                weight: 1,
                message_bytes: MAX_UNRELIABLE_MESSAGE_BYTES,
                queue_messages: 256,
                queue_bytes: 64 << 10,
            },
        }
    }

    fn check(&self, lane: usize) -> Result<(), OptionsError> {
        let limit = match self.kind {
            LaneKind::Unreliable => MAX_UNRELIABLE_MESSAGE_BYTES,
            LaneKind::ReliableOrdered | LaneKind::ReliableUnordered => MAX_RELIABLE_MESSAGE_BYTES,
        };
        let what = if self.weight == 0 {
            "the weight must be at least 1"
        } else if self.message_bytes == 0 || self.message_bytes > limit {
            "the message limit is 0 or above what such a lane can carry"
        } else if self.queue_messages == 0 {
            "the queue must hold at least one message"
        } else if self.queue_bytes < self.message_bytes {
            "the queue must hold at least one message of full length"
        } else if u32::try_from(self.queue_bytes).is_err() {
            "the queue must hold less than 4 GiB"
        } else {
            return Ok(());
        };
        Err(OptionsError::BadLane { lane, what })
    }
}

/// The settings of a session, usually shared by all sessions of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionOptions {
    /// The lanes, at most [`MAX_LANES`]. Both ends must be given the same list.
    pub lanes: Vec<LaneOptions>,
    /// The most bytes to send per second: payload, and [`packet_overhead_bytes`](Self::packet_overhead_bytes) for each
    /// packet.
    pub rate_bytes_per_s: u32,
    /// The congestion estimate to begin with, in the same bytes per second.
    pub initial_rate_bytes_per_s: u32,
    /// The overhead of a packet beside its payload: seal and headers down to the layer for which the rates are meant. 0
    /// if they are meant for payload alone; at most 256.
    pub packet_overhead_bytes: u16,
    /// Congestion never throttles below one full packet per this interval.
    pub min_packet_interval: Duration,
    /// Unused sending allowance is kept for this long: some ticks, so that a burst per tick fits. Never more than 192 full
    /// packets, because an acknowledgement reaches back over 256: this, per tick, is also the most that a session sends.
    pub burst: Duration,
    /// The rise of the round trip that is taken for a queue. Must be above the time for which packets wait at either end
    /// without its knowledge: nothing where the driver knows when they came
    /// ([`Session::handle_packet_of`](super::Session::handle_packet_of)), else the interval at which the ends look at their
    /// sockets.
    pub queue_delay_tolerance: Duration,
    /// A packet is lost when one this many sequences newer has been acknowledged; at least 3.
    pub packet_threshold: u8,
    /// Packets that may await their verdict, at most [`MAX_PACKETS_IN_FLIGHT`]. With this many, none is sent but
    /// the [`CLOSE_PACKETS`](super::CLOSE_PACKETS) of the end; an eighth of them is reserved for inputs, acknowledgements and
    /// keep-alives.
    pub max_in_flight: usize,
    /// The longest time for which this end withholds an acknowledgement, and expects its peer to do so.
    pub ack_delay: Duration,
    /// When neither end has said anything for this long, an acknowledgement is asked for. If one end waits half as long
    /// again as the other, the two do not ask at the same time, and each sends one packet per interval. At most half of
    /// [`idle_timeout`](Self::idle_timeout) counts.
    pub keep_alive_interval: Duration,
    /// A session that receives nothing for this long closes. Above 0.
    pub idle_timeout: Duration,
    /// An unfinished unreliable message is given up after this time.
    pub reassembly_timeout: Duration,
    /// Inputs that each packet carries: the newest, and those before it that may not have arrived. 1 to
    /// [`MAX_INPUT_REDUNDANCY`].
    pub input_redundancy: usize,
    /// Bytes of received messages that may wait to be polled. From half of it on, the peer is asked to send no messages for
    /// now. Above the limit, the messages in a packet are refused, and come again; all other sections take effect.
    pub inbox_bytes: usize,
    /// Received messages that may wait to be polled, with the same consequences.
    pub inbox_messages: usize,
    /// Number of the first message of each lane. Both ends must be given the same.
    pub first_message: u32,
    /// Number of the first input. Both ends must be given the same.
    pub first_input: u32,
}

impl Default for SessionOptions {
    /// One lane of each kind (0 ordered, 1 unordered, 2 unreliable), 1 Mbit/s, 10 s idle timeout.
    fn default() -> SessionOptions {
        SessionOptions {
            lanes: vec![
                LaneOptions::new(LaneKind::ReliableOrdered),
                LaneOptions::new(LaneKind::ReliableUnordered),
                LaneOptions::new(LaneKind::Unreliable),
            ],
            rate_bytes_per_s: 125_000,
            initial_rate_bytes_per_s: 125_000,
            packet_overhead_bytes: 0,
            min_packet_interval: Duration::from_millis(250),
            burst: Duration::from_millis(250),
            queue_delay_tolerance: Duration::from_millis(40),
            packet_threshold: 3,
            max_in_flight: 1024,
            ack_delay: Duration::from_millis(50),
            keep_alive_interval: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(10),
            reassembly_timeout: Duration::from_secs(2),
            input_redundancy: 4,
            inbox_bytes: 1 << 20,
            inbox_messages: 1024,
            first_message: 0,
            first_input: 0,
        }
    }
}

impl SessionOptions {
    /// Whether a session can be made with these options.
    ///
    /// # Errors
    /// The first thing that is out of its range.
    pub fn check(&self) -> Result<(), OptionsError> {
        if self.lanes.len() > MAX_LANES {
            return Err(OptionsError::TooManyLanes);
        }
        for (lane, options) in self.lanes.iter().enumerate() {
            options.check(lane)?;
        }
        let what = if self.rate_bytes_per_s == 0 || self.initial_rate_bytes_per_s == 0 {
            "the sending rate must be above 0"
        } else if self.packet_overhead_bytes > 256 {
            "a packet's overhead is at most 256 bytes"
        } else if self.min_packet_interval.is_zero() || self.burst.is_zero() {
            "the packet interval and the burst must be above 0"
        } else if self.packet_threshold < 3 {
            "the packet threshold must be at least 3"
        } else if !(16..=MAX_PACKETS_IN_FLIGHT).contains(&self.max_in_flight) {
            "16 to 8192 packets can be in flight"
        } else if !(1..=MAX_INPUT_REDUNDANCY).contains(&self.input_redundancy) {
            "1 to 16 inputs can be in a packet"
        } else if self.idle_timeout.is_zero() {
            "the idle timeout must be above 0"
        } else if self.idle_timeout < 2 * self.keep_alive_interval {
            "the idle timeout must be at least twice the keep-alive interval"
        } else if self.inbox_bytes == 0 || self.inbox_messages == 0 {
            "the inbox must hold at least one message"
        } else {
            return Ok(());
        };
        Err(OptionsError::OutOfRange { what })
    }
}
