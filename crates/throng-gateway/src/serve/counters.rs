//! Counters of the shell: work and refusals.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use throng_http::ListenerCounters;
use throng_link::netcode::NetcodeCounters;

use super::draft::SnapshotCounters;
use super::memory::Memory;
use throng_gateway_engine::histogram::Histogram;
use throng_gateway_engine::port::Side;

/// Why the shell did not do what a peer asked for, or ended its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// As many connections as the door allows.
    TooManyConnections,
    /// As many connections from this address as the door allows.
    TooManyFromAddress,
    /// The address opens connections too fast.
    ArrivesTooFast,
    /// The address misbehaved too often.
    Banned,
    /// The engine has no room.
    NoRoom,
    /// The handshake of TLS or WebSocket failed.
    Handshake,
    /// The handshake of TLS or WebSocket took too long.
    HandshakeLate,
    /// The page of a WebSocket client is not on the list.
    Origin,
    /// Bytes that are no frames.
    BadFrame,
    /// A frame longer than allowed.
    FrameTooLong,
    /// A payload that would unpack to more than allowed.
    UnpackedTooLong,
    /// A payload that cannot be unpacked.
    BadCompression,
    /// A payload that is no packet.
    BadPacket,
    /// More messages or bytes in a second than allowed; they are read later.
    TooFast,
    /// Closed before login, or because of too many guesses.
    Stranger,
    /// More waits for the peer than allowed.
    TooSlow,
    /// The last bytes did not go out in time.
    FlushLate,
    /// Silent for too long.
    Silent,
    /// A message that is too long for any packet.
    MessageTooLong,
    /// The authentication provider did not answer, or too many questions wait for it.
    AuthUnavailable,
    /// Clients cannot log in before a server owns the GLOBAL channel.
    NoMaster,
    /// Accepting a connection failed, most often because there are too many open files.
    Accept,
    /// A datagram that no honest peer could have sent. Its address may be forged.
    BadDatagram,
    /// Came to a TLS or WebSocket door and left again, or asked for a page, without doing any harm: health checks do.
    Probe,
    /// Came to a door for proxies, and is none of those that are trusted.
    UntrustedProxy,
    /// A trusted proxy did not say for whom it speaks, or not in a way that can be read.
    BadProxyHeader,
    /// More connections or encrypted handshakes in a second than allowed, of all addresses together.
    Busy,
    /// There is no memory left for it: see [`Memory`].
    NoMemory,
    /// An edge lets nobody in while there is no path to its home.
    NoHome,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 29] = [
        Reason::TooManyConnections,
        Reason::TooManyFromAddress,
        Reason::ArrivesTooFast,
        Reason::Banned,
        Reason::NoRoom,
        Reason::Handshake,
        Reason::HandshakeLate,
        Reason::Origin,
        Reason::BadFrame,
        Reason::FrameTooLong,
        Reason::UnpackedTooLong,
        Reason::BadCompression,
        Reason::BadPacket,
        Reason::TooFast,
        Reason::Stranger,
        Reason::TooSlow,
        Reason::FlushLate,
        Reason::Silent,
        Reason::MessageTooLong,
        Reason::AuthUnavailable,
        Reason::NoMaster,
        Reason::Accept,
        Reason::BadDatagram,
        Reason::Probe,
        Reason::UntrustedProxy,
        Reason::BadProxyHeader,
        Reason::Busy,
        Reason::NoMemory,
        Reason::NoHome,
    ];

    /// A stable name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            Reason::TooManyConnections => "connections",
            Reason::TooManyFromAddress => "connections_per_address",
            Reason::ArrivesTooFast => "arrives_too_fast",
            Reason::Banned => "banned",
            Reason::NoRoom => "no_room",
            Reason::Handshake => "handshake",
            Reason::HandshakeLate => "handshake_late",
            Reason::Origin => "origin",
            Reason::BadFrame => "bad_frame",
            Reason::FrameTooLong => "frame_too_long",
            Reason::UnpackedTooLong => "unpacked_too_long",
            Reason::BadCompression => "bad_compression",
            Reason::BadPacket => "bad_packet",
            Reason::TooFast => "too_fast",
            Reason::Stranger => "stranger",
            Reason::TooSlow => "too_slow",
            Reason::FlushLate => "flush_late",
            Reason::Silent => "silent",
            Reason::MessageTooLong => "message_too_long",
            Reason::AuthUnavailable => "auth_unavailable",
            Reason::NoMaster => "no_master",
            Reason::Accept => "accept",
            Reason::BadDatagram => "bad_datagram",
            Reason::Probe => "probe",
            Reason::UntrustedProxy => "untrusted_proxy",
            Reason::BadProxyHeader => "bad_proxy_header",
            Reason::Busy => "busy",
            Reason::NoMemory => "no_memory",
            Reason::NoHome => "no_home",
        }
    }

    /// Whether a peer that does this often is banned.
    pub(crate) fn is_strike(self) -> bool {
        matches!(
            self,
            Reason::Handshake
                | Reason::HandshakeLate
                | Reason::BadFrame
                | Reason::FrameTooLong
                | Reason::UnpackedTooLong
                | Reason::BadCompression
                | Reason::BadPacket
                | Reason::Stranger
        )
    }
}

/// Counts of one side since the start. Shared by all threads; each count is exact, two of them may be read at
/// different moments.
#[derive(Debug, Default)]
pub struct SideCounters {
    /// Frames that came.
    pub packets_in: AtomicU64,
    /// Frames that were sent.
    pub packets_out: AtomicU64,
    /// Bytes that came, headers included.
    pub bytes_in: AtomicU64,
    /// Bytes that were sent, headers included.
    pub bytes_out: AtomicU64,
    /// Reads that ended within a frame.
    pub packets_frag: AtomicU64,
    /// Frames that held more than one message.
    pub packets_comb: AtomicU64,
    /// Connections that were let through the door.
    pub accepted: AtomicU64,
    /// Connections that have ended.
    pub closed: AtomicU64,
    /// Strangers over KCP that were asked to show that their address is their own, once for each time they knocked.
    pub challenged: AtomicU64,
    refused: [AtomicU64; Reason::ALL.len()],
    link: Mutex<NetcodeCounters>,
}

impl SideCounters {
    /// How often something was refused for a reason.
    pub fn refused(&self, reason: Reason) -> u64 {
        self.refused[reason as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn refuse(&self, reason: Reason) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The outcomes of the datagrams that came over Throng's link, below the sessions.
    pub fn link(&self) -> NetcodeCounters {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds to them.
    pub(crate) fn note_link(&self, outcomes: &NetcodeCounters) {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).merge(outcomes);
    }

    /// Notes frames that have gone out, `bytes` long together.
    pub(crate) fn count_sent(&self, frames: usize, bytes: usize) {
        add(&self.packets_out, frames);
        add(&self.bytes_out, bytes);
    }

    /// Notes messages that could not be sent, because they fit into no packet.
    pub(crate) fn count_dropped(&self, messages: usize) {
        add(&self.refused[Reason::MessageTooLong as usize], messages);
    }
}

/// Counts of both sides.
#[derive(Debug, Default)]
pub struct ShellCounters {
    /// How long the engine's steps took.
    pub step: Histogram,
    /// Sessions that were recorded, or are.
    pub recordings: AtomicU64,
    /// Recordings that ended early, or never began, because their file cannot be written.
    pub recordings_failed: AtomicU64,
    /// Sessions that were not recorded, or not to their end, because of a limit.
    pub recordings_limited: AtomicU64,
    /// Recordings that ended early because the disk did not keep up.
    pub recordings_slow: AtomicU64,
    /// Edges that were let in.
    pub edges_accepted: AtomicU64,
    /// Edges, or who seemed to be one, that were not.
    pub edges_refused: AtomicU64,
    /// Paths of edges that could not be accepted, because the machine lacks something, most often file descriptors.
    pub edge_accepts_failed: AtomicU64,
    /// Paths between a home and an edge that were closed here, because of what the other end said, or because it did not read.
    pub edge_faults: AtomicU64,
    /// Paths between a home and an edge that have ended without the other end's last frame: it was killed, or is out of reach.
    pub edge_paths_cut: AtomicU64,
    /// How often an edge has lost its home, whether its path was cut or not.
    pub home_lost: AtomicU64,
    /// Snapshots of the engines.
    pub snapshots: SnapshotCounters,
    /// Connections to the pages for monitoring and administration that were closed.
    pub pages: Arc<ListenerCounters>,
    /// The budget of memory.
    pub memory: Arc<Memory>,
    servers: SideCounters,
    clients: SideCounters,
}

impl ShellCounters {
    /// Counts of a gateway that may use so much memory.
    pub(crate) fn new(memory: Memory) -> ShellCounters {
        ShellCounters { memory: Arc::new(memory), ..ShellCounters::default() }
    }

    /// The same to keep.
    pub(crate) fn at(self: &Arc<Self>, side: Side) -> DoorCounters {
        DoorCounters { all: Arc::clone(self), side }
    }

    /// The counts of one side.
    pub fn of(&self, side: Side) -> &SideCounters {
        match side {
            Side::Server => &self.servers,
            Side::Client => &self.clients,
        }
    }
}

/// The counts of one side, to keep.
#[derive(Clone, Debug)]
pub(crate) struct DoorCounters {
    all: Arc<ShellCounters>,
    side: Side,
}

impl DoorCounters {
    pub(crate) fn get(&self) -> &SideCounters {
        self.all.of(self.side)
    }
}

/// Adds to a count.
pub(crate) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_name_and_a_count_of_its_own() {
        let counters = SideCounters::default();
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
            (0..=index).for_each(|_| counters.refuse(reason));
        }
        let mut tags: Vec<&str> = Reason::ALL.map(Reason::tag).to_vec();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), Reason::ALL.len());
        assert!(Reason::ALL.into_iter().all(|reason| counters.refused(reason) == reason as u64 + 1));
    }
}
