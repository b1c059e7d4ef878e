//! The counters of a session.

use std::time::Duration;

/// Counters of a session since its start. Each names one thing that happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets written.
    pub packets_sent: u64,
    /// Their payload bytes.
    pub bytes_sent: u64,
    /// Packets taken in.
    pub packets_received: u64,
    /// Their payload bytes.
    pub bytes_received: u64,
    /// Packets whose verdict was *delivered*.
    pub packets_delivered: u64,
    /// Packets whose verdict was *lost*.
    pub packets_lost: u64,
    /// Packets that were acknowledged after they had been declared lost.
    pub packets_spurious: u64,
    /// Packets of padding that were sent to find out whether so long a datagram arrives.
    pub size_probes_sent: u64,
    /// Those of them whose verdict was *lost*.
    pub size_probes_lost: u64,
    /// Times that the path no longer carried datagrams as long as before.
    pub path_shrinks: u64,
    /// Packets received twice, dropped.
    pub packets_duplicate: u64,
    /// Packets so old that it is unknown whether they were received before, dropped.
    pub packets_too_old: u64,
    /// Packets whose messages were refused because the inbox was full, or their rest because its owner had no room
    /// ([`Session::refuse_rest`](super::Session::refuse_rest)). The peer counts them as lost.
    pub packets_refused: u64,
    /// Packets that ended in an error that is the peer's.
    pub packets_bad: u64,
    /// Messages queued.
    pub messages_sent: u64,
    /// Messages received in full.
    pub messages_received: u64,
    /// Messages refused because they were too long.
    pub messages_too_large: u64,
    /// Messages refused because their lane was full.
    pub messages_refused: u64,
    /// Unreliable messages dropped from a full queue for a newer one.
    pub messages_dropped: u64,
    /// Bytes of reliable messages queued again because their packet was lost.
    pub message_bytes_resent: u64,
    /// Unfinished unreliable messages given up after their time.
    pub reassemblies_expired: u64,
    /// Unfinished unreliable messages given up for a newer one.
    pub reassemblies_evicted: u64,
    /// Inputs received.
    pub inputs_received: u64,
    /// Inputs that never came, or came after a newer one.
    pub inputs_lost: u64,
    /// Inputs dropped because they were not polled.
    pub inputs_overflowed: u64,
}

/// A session as it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// Counters since the start.
    pub counters: Counters,
    /// Smoothed round trip; `None` before the first acknowledgement.
    pub round_trip: Option<Duration>,
    /// Mean deviation of the round trip.
    pub round_trip_variance: Duration,
    /// Smallest round trip of the last 10 to 20 seconds.
    pub round_trip_min: Duration,
    /// The rate at which the session may send: the lower of limit and congestion estimate.
    pub sending_rate_bytes_per_s: u32,
    /// The acknowledged bytes per second in the last full round of the congestion controller. A pause of more than a second after the last
    /// packet of a round is left out, so that of somebody who speaks now and then it is the speed of a burst.
    pub delivered_bytes_per_s: u32,
    /// The length of full datagrams, as far as the path is known:
    /// [`MIN_DATAGRAM_BYTES`](super::MIN_DATAGRAM_BYTES) to [`MAX_DATAGRAM_BYTES`](super::MAX_DATAGRAM_BYTES).
    pub datagram_bytes: usize,
    /// Packets without verdict.
    pub packets_in_flight: usize,
    /// Bytes of messages that wait to be sent or, on reliable lanes, delivered.
    pub pending_message_bytes: usize,
}
