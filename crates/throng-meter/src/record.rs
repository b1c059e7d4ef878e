//! The record of one finished tick.

use crate::{MAX_SUBSYSTEMS, Subsystem};
use std::ops::AddAssign;

/// The work of a tick, in numbers. Each worker counts for itself; the meter adds up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams handed to the kernel.
    pub packets_sent: u64,
    /// Bytes in them, as sealed, without the headers of UDP and below.
    pub bytes_sent: u64,
    /// Datagrams taken from the kernel.
    pub packets_received: u64,
    /// Bytes in them, without the headers of UDP and below.
    pub bytes_received: u64,
    /// Segments copied into packets, resends included.
    pub segments_copied: u64,
    /// Frames that had to be encoded.
    pub frames_encoded: u64,
    /// Times that a subscription was served by a frame that had been encoded already.
    pub frames_shared: u64,
    /// Channels of which at least one frame was encoded.
    pub channels_encoded: u64,
    /// Objects quantised and compared.
    pub objects_quantised: u64,
    /// Segments sent again because they were lost.
    pub resends: u64,
    /// Connections served. A worker counts those that it serves.
    pub connections: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.packets_sent += other.packets_sent;
        self.bytes_sent += other.bytes_sent;
        self.packets_received += other.packets_received;
        self.bytes_received += other.bytes_received;
        self.segments_copied += other.segments_copied;
        self.frames_encoded += other.frames_encoded;
        self.frames_shared += other.frames_shared;
        self.channels_encoded += other.channels_encoded;
        self.objects_quantised += other.objects_quantised;
        self.resends += other.resends;
        self.connections += other.connections;
    }
}

/// One finished tick.
///
/// `subsystem_ns` adds up to `total_ns` exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickRecord {
    /// The tick's number.
    pub tick: u64,
    /// When it began, in nanoseconds since the caller's origin.
    pub start_ns: u64,
    /// Wall time from begin to end, in nanoseconds.
    pub total_ns: u64,
    /// Wall time by subsystem, in nanoseconds, at its [index](Subsystem::index). Exclusive: the time of a nested scope
    /// belongs to the nested subsystem alone.
    pub subsystem_ns: [u64; MAX_SUBSYSTEMS],
    /// The work.
    pub counters: Counters,
}

impl TickRecord {
    /// Wall time of a subsystem, in nanoseconds.
    pub fn ns(&self, subsystem: Subsystem) -> u64 {
        self.subsystem_ns[subsystem.index()]
    }
}

impl Default for TickRecord {
    fn default() -> TickRecord {
        TickRecord {
            tick: 0,
            start_ns: 0,
            total_ns: 0,
            subsystem_ns: [0; MAX_SUBSYSTEMS],
            counters: Counters::default(),
        }
    }
}
