//! The limits of peers' requests to the gateway.
//!
//! All limits are on by default. Each can be set on the command line, `-limit max_radius=500`, or in a JSON file that
//! `-limits` names: an object of names and numbers. A number that is out of its range is refused.

use crate::config_file::{Document, FileError, Note};

/// The description of a limit.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LimitInfo {
    /// As in files and on the command line.
    pub name: &'static str,
    /// Its meaning, its unit, and the reason for its default.
    pub text: &'static str,
    /// The default.
    pub default: i64,
    /// The least that can be set.
    pub min: i64,
    /// The most that can be set.
    pub max: i64,
}

/// Why a limit was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitRefusal {
    /// There is no such limit.
    Unknown,
    /// It has to lie between these.
    Range(i64, i64),
}

macro_rules! limits {
    ($( $(#[doc = $text:literal])+ $name:ident: $kind:ty = $default:literal, $min:literal..=$max:literal; )+) => {
        /// Limits, each with its unit and the reason for its default. 0 means *none* only if the text says so.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Limits {
            $( $(#[doc = $text])+ pub $name: $kind, )+
        }

        impl Default for Limits {
            fn default() -> Limits {
                Limits { $( $name: $default, )+ }
            }
        }

        impl Limits {
            /// Each limit as large as it may be set.
            pub(crate) const LARGEST: Limits = Limits { $( $name: $max as $kind, )+ };

            /// All limits, in the order of the documentation.
            pub const ALL: &[LimitInfo] = &[
                $( LimitInfo {
                    name: stringify!($name),
                    text: concat!($($text),+),
                    default: $default,
                    min: $min,
                    max: $max,
                }, )+
            ];

            /// All limits by name, as they are set.
            pub fn values(&self) -> impl Iterator<Item = (&'static str, i64)> {
                [ $( (stringify!($name), i64::try_from(self.$name).unwrap_or(i64::MAX)), )+ ].into_iter()
            }

            /// Sets a limit by its name.
            ///
            /// # Errors
            /// If there is no such limit, or the value is out of its range.
            pub fn set(&mut self, name: &str, value: i64) -> Result<(), LimitRefusal> {
                match name {
                    $( stringify!($name) => {
                        let range = LimitRefusal::Range($min, $max);
                        if !($min..=$max).contains(&value) {
                            return Err(range);
                        }
                        self.$name = <$kind>::try_from(value).map_err(|_| range)?;
                    } )+
                    _ => return Err(LimitRefusal::Unknown),
                }
                Ok(())
            }
        }
    };
}

limits! {
    /// Shortest fan-out interval of a subscription, in ms. channeld spins for ever on 0; below 5 ms a subscriber gets
    /// little but packet headers.
    min_interval_ms: u32 = 5, 1..=60_000;
    /// Longest fan-out interval of a subscription, in ms. For slower updates, clients should poll.
    max_interval_ms: u32 = 60_000, 1..=3_600_000;
    /// Most negative fan-out delay of a subscription, in ms. channeld loops over every interval since then.
    min_delay_ms: i32 = -10_000, -3_600_000..=0;
    /// Longest fan-out delay of a subscription, in ms.
    max_delay_ms: i32 = 60_000, 0..=3_600_000;
    /// Field masks of one subscription. Each different set of masks is encoded separately.
    max_field_masks: u32 = 32, 0..=1_024;
    /// Different sets of field masks that a channel encodes for. Each is one more encoding per update.
    max_mask_sets: u32 = 16, 0..=255;
    /// Bytes of one field mask. Paths of ten names fit.
    max_field_mask_bytes: u32 = 256, 1..=4_096;
    /// Channels that one client is subscribed to. Enough for a client that sees 4,096 entities and their cells.
    max_client_subscriptions: u32 = 8_192, 1..=65_534;
    /// Channels that one server is subscribed to. A server sees everything that it simulates; subscriptions are numbered
    /// with two bytes.
    max_server_subscriptions: u32 = 65_534, 1..=65_534;
    /// Channels that one client has created and that still exist. Rooms, not worlds.
    max_client_channels: u32 = 16, 0..=1_048_576;
    /// Channels that one server has created and that still exist: every entity is one.
    max_server_channels: u32 = 131_072, 1..=1_048_576;
    /// Channels of the gateway. At about 1 KiB each before their state.
    max_channels: u32 = 262_144, 1..=1_048_576;
    /// Bytes of a channel's metadata. It is sent with every subscription and listing.
    max_metadata_bytes: u32 = 4_096, 0..=60_000;
    /// Bytes of memory of a channel's state: for small values about ten times its size on the wire.
    max_state_bytes: u64 = 67_108_864, 4_096..=1_073_741_824;
    /// All memory that peers can make the gateway use, in bytes: states, data that waits to be written and to be read,
    /// connections; 0: three quarters of the memory of the machine or of the process's control group (container). When
    /// seven eighths are used, clients can add nothing more; the last eighth is for world servers. Above the whole, the
    /// connections with the longest queues are closed.
    max_memory_bytes: u64 = 0, 0..=1_099_511_627_776;
    /// Bytes of memory of the states of all channels.
    max_total_state_bytes: u64 = 4_294_967_296, 1_048_576..=1_099_511_627_776;
    /// The part of them that is reserved for channels of servers, so that clients cannot stop the world. Never more
    /// than half.
    reserved_server_state_bytes: u64 = 2_147_483_648, 0..=1_099_511_627_776;
    /// Bytes of memory of the states of all channels that one client has created.
    max_client_state_bytes: u64 = 16_777_216, 4_096..=1_073_741_824;
    /// Ids of ordinary channels, of 65,535, that are reserved for servers. Never more than half.
    reserved_server_channel_ids: u32 = 4_096, 0..=65_535;
    /// Filters of one `LIST_CHANNEL`. Each is searched in the metadata of each channel.
    max_list_filters: u32 = 16, 0..=1_024;
    /// Bytes of one such filter.
    max_list_filter_bytes: u32 = 64, 1..=4_096;
    /// Messages per second from one client, averaged over `client_burst`. Unreal clients send about 60.
    max_client_messages_per_s: u32 = 500, 1..=1_000_000;
    /// Messages that a client may send in a burst: as many as pile up in a few seconds without network.
    client_burst_messages: u32 = 2_000, 1..=10_000_000;
    /// Bytes per second from one client; of compressed packets as many as they unpack to. User messages are small; this
    /// is 2 Mbit/s.
    max_client_bytes_per_s: u32 = 262_144, 1_024..=1_073_741_824;
    /// Bytes that a client may send in a burst.
    client_burst_bytes: u32 = 1_048_576, 65_536..=1_073_741_824;
    /// Messages per second from one server. One process can hardly write more.
    max_server_messages_per_s: u32 = 1_000_000, 1..=100_000_000;
    /// Small requests per second from one client that cause much work: lists, queries of positions, channels created
    /// and removed. A long search or answer counts as several. 256 subscriptions or unsubscriptions count as one, and
    /// so does each MiB of state that a subscription begins with.
    max_client_requests_per_s: u32 = 50, 1..=1_000_000;
    /// Largest radius or half size of an area of interest, in the units of the grid. Larger ones are cut down.
    max_radius: u32 = 1_000_000, 1..=4_294_967_295;
    /// Points and cells that a query of interest examines. A few milliseconds of work at most.
    max_query_samples: u32 = 65_536, 16..=16_777_216;
    /// Positions of one `QUERY_SPATIAL_CHANNEL`.
    max_query_positions: u32 = 4_096, 1..=65_536;
    /// Entities of one handover or lock group. Each handover examines all of them.
    max_group_entities: u32 = 4_096, 2..=65_536;
    /// Entities that are in a group or locked.
    max_grouped_entities: u32 = 262_144, 2..=1_048_576;
    /// Handovers per second of one entity. An entity with more jitters on a border: it stays in its cell until the
    /// second is over.
    max_entity_handovers_per_s: u32 = 20, 1..=1_000;
    /// Handovers per second of the gateway. The rest waits for the next update of its entity.
    max_handovers_per_s: u32 = 20_000, 1..=10_000_000;
    /// Subscriptions, unsubscriptions and notices per second for handovers of the gateway. Further handovers wait for
    /// the next second. A group whose handover takes more than this has a second for itself.
    max_handover_actions_per_s: u32 = 200_000, 100..=100_000_000;
    /// How long a connection may take to log in, in ms; 0: for ever. The time that the provider needs does not count.
    /// channeld's `-cat`.
    max_unauthenticated_ms: u32 = 5_000, 0..=3_600_000;
    /// Failed logins of a connection before it is closed and refused for a while; 0: any number. channeld's `-mfaa`.
    max_failed_auth: u32 = 5, 0..=1_000_000;
    /// Messages within `violation_window_ms` that the state machine forbids before the connection is closed and refused
    /// for a while; 0: any number. Servers that have logged in are never closed for it. channeld's `-mfd`.
    max_fsm_violations: u32 = 10, 0..=1_000_000;
    /// Malformed messages of a client within `violation_window_ms` before it is disconnected and refused for a while;
    /// 0: any number.
    max_malformed: u32 = 10, 0..=1_000_000;
    /// Time, in ms, in which that many violations are forgotten, one after the other. An honest client that asks too
    /// early asks once in a second or two; an attacker is faster.
    violation_window_ms: u32 = 10_000, 100..=3_600_000;
    /// How often client connections from one address may misbehave before it is banned; 0: any number. Misbehaviour is:
    /// bytes of an unknown protocol, malformed packets, no login in time, too many wrong tokens. In `block_ms` as many
    /// strikes are forgotten, one after the other. Strikes of connections that have not logged in do not count while
    /// another client from the same address is logged in. A connection that opens and closes without sending anything,
    /// as health checks do, gets no strike.
    max_strikes: u32 = 5, 0..=1_000_000;
    /// How long an address or a player is banned after that, in ms. Addresses change their users.
    block_ms: u32 = 300_000, 0..=86_400_000;
    /// Addresses and players that are banned at one time. The oldest bans end first.
    max_blocked: u32 = 65_536, 1..=1_048_576;
    /// Bytes of a player identifier, and of a login token. They arrive before authentication.
    max_token_bytes: u32 = 4_096, 16..=65_000;
    /// Uncompressed bytes that are read from a connection before login; a login with the longest tokens always fits. If
    /// a peer sends more, the rest waits until it has logged in.
    max_unauthenticated_bytes: u32 = 16_384, 1_024..=1_048_576;
    /// Logins that wait for a slow provider. Further logins are answered with *not now*, which does not count as a
    /// failed login.
    max_pending_auth: u32 = 4_096, 1..=65_536;
    /// How many of them may be from one address; 0: any number. As the queue fills, an address with many logins gets
    /// less of it than addresses with few.
    max_pending_auth_per_address: u32 = 32, 0..=65_536;
    /// Requests to such a provider at one time. With answers in 100 ms, 256 handle 2,560 logins per second.
    max_auth_calls: u32 = 256, 1..=65_536;
    /// How long a login may wait before the provider is asked, in ms; then it is answered with *not now*.
    max_auth_wait_ms: u32 = 30_000, 100..=60_000;
    /// How long the provider may take for an answer, in ms; then the answer is *not now*.
    auth_timeout_ms: u32 = 5_000, 100..=60_000;
    /// Connections of all listeners.
    max_connections: u32 = 20_000, 1..=1_048_576;
    /// How many of them, and of the connection ids, are reserved for servers, so that clients cannot lock them out.
    /// Never more than half.
    reserved_server_connections: u32 = 256, 0..=1_048_576;
    /// How long a TCP peer may be unreachable before its connection counts as lost, in ms; 0: the system's setting,
    /// which may be hours. If a peer's machine fails, no close message arrives. Until the connection counts as lost, a
    /// server that restarts elsewhere does not get its channels back. A peer may also read nothing for this time at
    /// most.
    max_unreachable_ms: u32 = 30_000, 0..=7_200_000;
    /// Client connections from one address; 0: any number. A whole school may share one address.
    max_connections_per_address: u32 = 64, 0..=1_048_576;
    /// New client connections per second from one address; 0: any number.
    max_new_connections_per_address_per_s: u32 = 20, 0..=1_048_576;
    /// New client connections per second from all addresses together; 0: any number. Over TCP, further connections wait
    /// in the kernel's queue; over UDP they try again, as clients of KCP and of Throng's link do by themselves.
    max_new_connections_per_s: u32 = 2_000, 0..=1_048_576;
    /// TLS handshakes of clients begun per second; 0: any number. One costs 0.2 to 1 ms of processor time, on the
    /// threads that also read all other connections. Further handshakes wait for up to half of the 5 s that a handshake
    /// may take.
    max_handshakes_per_s: u32 = 500, 0..=1_048_576;
    /// Bytes that wait for a client before it gets no more state. Missed changes are merged until it catches up.
    queue_soft_bytes: u32 = 131_072, 4_096..=1_073_741_824;
    /// Bytes that wait for a client before it is disconnected: messages cannot be merged.
    queue_hard_bytes: u32 = 4_194_304, 65_536..=1_073_741_824;
    /// Bytes that wait for a server before it gets no more state.
    server_queue_soft_bytes: u32 = 4_194_304, 4_096..=1_073_741_824;
    /// Bytes that wait for a server before it is disconnected. Notices about subscribers of its channels wait in a
    /// separate list of this size; further notices are left out.
    server_queue_hard_bytes: u32 = 67_108_864, 65_536..=1_073_741_824;
    /// Bytes of clients' messages, and of notices about clients, that wait for one server. Above this, clients'
    /// messages to it are dropped: a server is never disconnected because of its clients.
    server_queue_client_bytes: u32 = 4_194_304, 4_096..=1_073_741_824;
    /// How long messages to a client may wait for its next state, so that both are written at once, in ms; 0: not at
    /// all.
    max_hold_ms: u32 = 20, 0..=1_000;
    /// How long a connection may be above its soft bound without a pause before it is disconnected, in ms.
    max_slow_ms: u32 = 30_000, 100..=3_600_000;
    /// How long a connection may take for state that is larger than its queue, without catching up once, in ms; then it
    /// is disconnected. Removals are remembered for longer. At 2 Mbit/s, 30 MB arrive in this time.
    max_backlog_ms: u32 = 120_000, 1_000..=3_600_000;
    /// Bytes of such state that are kept for all connections together; shared bytes count once. Above this, the
    /// connections with the most bytes are disconnected.
    max_backlog_bytes: u64 = 1_073_741_824, 1_048_576..=68_719_476_736;
    /// Bytes of a packet once it is decompressed. A packet is 64 KiB at most; text shrinks to a fifth.
    max_decompressed_bytes: u32 = 1_048_576, 65_536..=67_108_864;
    /// Messages that wait for the engine. Above this, connections are not read until the engine catches up.
    max_inbound_events: u32 = 16_384, 16..=1_048_576;
    /// Bytes of one session's recording. Then the recording ends.
    max_recording_bytes: u64 = 67_108_864, 1_024..=17_179_869_184;
    /// Sessions that are recorded at one time.
    max_recordings: u32 = 256, 1..=65_536;
    /// Bytes of a snapshot of the gateway. A longer one is not written, and the one before it stays: the disk must not
    /// fill up.
    max_snapshot_bytes: u64 = 17_179_869_184, 65_536..=1_099_511_627_776;
    /// How long the session of a lost client is kept, in ms; 0: not at all. Off by default, because owners learn of a
    /// loss only after this time.
    client_resume_ms: u32 = 0, 0..=3_600_000;
    /// Lost servers and clients that the gateway waits for at one time. Those that own nothing are forgotten first,
    /// then the oldest: names cost nothing.
    max_recoverable: u32 = 4_096, 1..=1_048_576;
    /// Bytes of an answer to `LIST_CHANNEL`, in as many messages as needed. The rest is left out, and counted.
    max_list_bytes: u32 = 1_048_576, 60_000..=67_108_864;
    /// How long the gateway continues as before after SIGTERM, in ms, except that `/readyz` answers 503: load balancers
    /// have to notice before connections are refused. A second signal, or Ctrl-C, ends this time at once.
    lame_duck_ms: u32 = 0, 0..=600_000;
    /// How long connections may take to end when the gateway stops, in ms.
    drain_ms: u32 = 10_000, 0..=600_000;
}

impl Limits {
    /// Reads the text of a file over `self`. `file` is its name, for complaints. A limit that does not exist is noted.
    ///
    /// # Errors
    /// A text that is not a JSON object of whole numbers, or a number out of its range.
    pub fn read(&mut self, file: &str, text: &[u8], notes: &mut Vec<Note>) -> Result<(), FileError> {
        let document = Document::parse(file, text)?;
        for (name, node) in document.root().members()? {
            let value = node.integer(i64::MIN..=i64::MAX)?;
            match self.set(name, value) {
                Ok(()) => {}
                Err(LimitRefusal::Unknown) => notes.push(node.note("there is no such limit")),
                Err(LimitRefusal::Range(min, max)) => {
                    return Err(node.error(format!("a whole number from {min} to {max} is expected here")));
                }
            }
        }
        Ok(())
    }

    /// Limits that contradict each other: the names of a lower bound and an upper bound, if the lower one is higher.
    pub fn contradiction(&self) -> Option<(&'static str, &'static str)> {
        if self.min_interval_ms > self.max_interval_ms {
            return Some(("min_interval_ms", "max_interval_ms"));
        }
        if self.queue_soft_bytes > self.queue_hard_bytes {
            return Some(("queue_soft_bytes", "queue_hard_bytes"));
        }
        if self.server_queue_soft_bytes > self.server_queue_hard_bytes {
            return Some(("server_queue_soft_bytes", "server_queue_hard_bytes"));
        }
        None
    }
}
