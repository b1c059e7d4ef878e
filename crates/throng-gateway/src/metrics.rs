//! The gateway's metrics for Prometheus.
//!
//! | name | type | labels | meaning |
//! |---|---|---|---|
//! | `connection_num` | gauge | `type` | open connections; channeld's name |
//! | `channel_num` | gauge | `type` | channels; channeld's name |
//! | `messages_in`, `messages_out` | counter | `connType` | messages; channeld's names |
//! | `packets_in`, `packets_out`, `packets_frag`, `packets_comb`, `packets_drop` | counter | `connType` | frames; channeld's names |
//! | `bytes_in`, `bytes_out` | counter | `connType` | bytes of frames below TLS, those of WebSocket with the heads of short ones; channeld's names |
//! | `connection_closed` | counter | `connType` | connections that ended; channeld's name |
//! | `channel_tick_duration` | gauge | `type` | ms of the last encoding of a channel of this type; channeld's name |
//! | `gateway_channel_tick_seconds` | histogram | `type` | how long it took to encode a channel's changes once |
//! | `gateway_channel_lag_seconds` | histogram | `type` | time from the arrival of an update until it is sent to the first subscribers |
//! | `gateway_channel_queue_depth` | histogram | `type` | updates that waited when a channel was encoded |
//! | `logs` | counter | `level` | lines of the log; channeld's name |
//! | `gateway_step_seconds` | histogram | | how long a step of the engine took: all channels, all that had come |
//! | `gateway_last_step_seconds` | gauge | | how long the last one took |
//! | `gateway_turn_lag_seconds` | histogram | | how much later than due a subscriber was served |
//! | `gateway_drops_total` | counter | `type`, `reason` | messages that were not done as asked, by type of channel and reason |
//! | `gateway_refused_total` | counter | `connType`, `reason` | what the doors refused, by reason |
//! | `gateway_page_connections_closed_total` | counter | `reason` | connections to the pages that were closed: `full` when they came, `idle` or `slow` later |
//! | `gateway_link_total` | counter | `connType`, `outcome` | datagrams over Throng's link that asked for a connection, or that were dropped, by outcome |
//! | `gateway_challenged_total` | counter | `connType` | challenges to KCP peers to prove their address |
//! | `gateway_updates_total`, `gateway_delivered_updates_total`, `gateway_frames_total` | counter | | updates merged, delivered, and encodings that took |
//! | `gateway_datagrams_delivered_total`, `gateway_datagrams_lost_total` | counter | | see the engine's counters |
//! | `gateway_handovers_total`, `gateway_recovered_total`, `gateway_superseded_total`, `gateway_renewed_total`, `gateway_too_slow_total`, `gateway_paused_total` | counter | | see the engine's counters |
//! | `gateway_recordings_total`, `gateway_recordings_failed_total`, `gateway_recordings_limited_total`, `gateway_recordings_slow_total` | counter | | sessions that were recorded, that could not be, that a limit or a slow disk cut off |
//! | `gateway_edges`, `gateway_edge_clients` | gauge | | edges of this gateway, and the clients that they have |
//! | `gateway_edges_accepted_total`, `gateway_edges_refused_total` | counter | | edges that were let in, and that were not |
//! | `gateway_edge_accepts_failed_total` | counter | | paths of edges that could not be accepted |
//! | `gateway_edge_faults_total` | counter | | paths between a home and an edge that were closed because of what the other end said |
//! | `gateway_edge_paths_cut_total` | counter | | paths between a home and an edge that ended without the other end's last frame |
//! | `gateway_home_linked` | gauge | | 0 while an edge has no path to its home; else 1 |
//! | `gateway_home_lost_total` | counter | | how often an edge has lost its home, for whatever reason |
//! | `gateway_snapshots_total`, `gateway_snapshots_failed_total` | counter | | snapshots that were written, and that were not |
//! | `gateway_snapshot_age_seconds`, `gateway_snapshot_bytes`, `gateway_snapshot_duration_seconds` | gauge | | the last snapshot: how old, how long, and how long it took |
//! | `gateway_snapshot_part_seconds` | histogram | | how long an engine was held up by a part of a snapshot |
//! | `gateway_queued_bytes` | gauge | | bytes that no kernel has taken yet |
//! | `gateway_memory_bytes` | gauge | `part` | memory that peers make the gateway hold, by what it is for |
//! | `gateway_memory_limit_bytes` | gauge | | what all of that may be |
//! | `gateway_state_bytes`, `gateway_state_limit_bytes` | gauge | | the states of all channels, and what they may be |
//! | `gateway_auth_pending` | gauge | `stage` | logins that the provider is asked about, and that wait for that |
//! | `gateway_bans` | gauge | `kind` | bans that hold, of addresses, of players that guess from an address, of names |
//! | `gateway_bans_forgotten_total` | counter | `kind` | bans that were forgotten before their end, because there were too many |
//! | `gateway_awaited` | gauge | `type` | lost servers and clients that are waited for |
//! | `gateway_build_info` | gauge | `version` | 1 |
//! | `process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_start_time_seconds`, `process_open_fds`, `process_max_fds` | | | see [`process`] |
//!
//! channeld's names are kept so that dashboards made for it still work; ours end in units and `_total`, as is the
//! custom today.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus::{Encoder, Gauge, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};
use throng_channeld::proto::ChannelType;
use throng_http::ListenerCounters;

use crate::log;
use crate::process;
use crate::serve::{Memory, Part, Reason, Report, ShellCounters, SnapshotCounters};
use throng_gateway_engine::TypeMeters;
use throng_gateway_engine::histogram::Histogram;
use throng_gateway_engine::histogram::write_head;
use throng_gateway_engine::port::Side;

const SIDES: [Side; 2] = [Side::Server, Side::Client];

/// The page `/metrics`.
pub(crate) fn render(report: &Report, shell: &ShellCounters) -> String {
    let page = Page { registry: Registry::new() };
    page.build();
    page.occupancy(report);
    page.memory(&shell.memory);
    page.traffic(report, shell);
    page.engine(report);
    page.doors(shell);
    page.pages(&shell.pages);
    page.recordings(shell);
    page.edges(report, shell);
    page.snapshots(&shell.snapshots);
    page.log();
    let mut text = Vec::new();
    // Writing to memory does not fail, and names are fixed.
    let _ = TextEncoder::new().encode(&page.registry.gather(), &mut text);
    let mut text = String::from_utf8(text).unwrap_or_default();
    shell.step.write("gateway_step_seconds", "How long a step of the engine took.", &mut text);
    if shell.snapshots.age().is_some() {
        let help = "How long an engine was held up by a part of a snapshot.";
        shell.snapshots.part.write("gateway_snapshot_part_seconds", help, &mut text);
    }
    report.counters.lag.write(
        "gateway_turn_lag_seconds",
        "How much later than due a subscriber was served.",
        &mut text,
    );
    write_channels(report, &mut text);
    process::write(&mut text);
    text
}

/// The histograms of channels. Types of which there never was a channel have none.
fn write_channels(report: &Report, text: &mut String) {
    type Read = fn(&TypeMeters) -> &Histogram;
    let histograms: [(&str, &str, Read); 3] = [
        ("gateway_channel_tick_seconds", "How long it took to encode a channel's changes once.", |meters| &meters.tick),
        ("gateway_channel_lag_seconds", "Time from the arrival of an update until it is sent.", |meters| &meters.lag),
        ("gateway_channel_queue_depth", "Updates that waited when a channel was encoded.", |meters| &meters.depth),
    ];
    for (name, help, read) in histograms {
        write_head(name, help, text);
        for (kind, meters) in report.counters.channels.iter().filter(|&(kind, _)| is_there(report, kind)) {
            read(meters).write_series(name, &format!("type=\"{}\"", kind.as_str_name()), text);
        }
    }
}

/// Whether there is a channel of this type, or was one with turns.
fn is_there(report: &Report, kind: ChannelType) -> bool {
    let turns = report.counters.channels.of(kind).tick.count();
    turns > 0 || report.occupancy.channels.contains_key(&(kind as i32 as u32))
}

/// The reasons for which a frame or a message is refused, and not a connection.
const OF_FRAMES: [Reason; 6] = [
    Reason::BadFrame,
    Reason::FrameTooLong,
    Reason::UnpackedTooLong,
    Reason::BadCompression,
    Reason::BadPacket,
    Reason::MessageTooLong,
];

struct Page {
    registry: Registry,
}

impl Page {
    fn occupancy(&self, report: &Report) {
        let connections = self.gauges("connection_num", "Open connections.", "type");
        // World servers connect to the home. A 0 of an edge would say that its clients have none.
        if report.is_linked.is_none() {
            connections.with_label_values(&[Side::Server.tag()]).set(report.occupancy.servers as i64);
        }
        connections.with_label_values(&[Side::Client.tag()]).set(report.occupancy.clients as i64);
        let channels = self.gauges("channel_num", "Channels.", "type");
        for (&kind, &count) in &report.occupancy.channels {
            channels.with_label_values(&[channel_type(kind)]).set(count as i64);
        }
        let occupancy = &report.occupancy;
        self.gauge("gateway_state_bytes", "Memory of the states of all channels.", occupancy.state_bytes as f64);
        self.gauge("gateway_state_limit_bytes", "What these may be.", occupancy.state_limit_bytes as f64);
        let awaited = self.gauges("gateway_awaited", "Lost servers and clients that are waited for.", "type");
        let servers = occupancy.awaited_servers;
        awaited.with_label_values(&[Side::Server.tag()]).set(servers as i64);
        awaited.with_label_values(&[Side::Client.tag()]).set(occupancy.awaited.saturating_sub(servers) as i64);
        self.bans(report);
        let pending = self.gauges("gateway_auth_pending", "Logins that are being decided.", "stage");
        for (stage, count) in ["asked", "waiting"].into_iter().zip(report.auth_pending) {
            pending.with_label_values(&[stage]).set(count as i64);
        }
    }

    fn pages(&self, pages: &ListenerCounters) {
        let help =
            "Connections to the pages that were closed: too many were open, no request came, or the peer was too slow.";
        let closed = self.counters("gateway_page_connections_closed_total", help, &["reason"]);
        for (reason, count) in pages.named() {
            closed.with_label_values(&[reason]).inc_by(count);
        }
    }

    fn bans(&self, report: &Report) {
        let present = self.gauges("gateway_bans", "Bans that hold.", "kind");
        let forgotten = self.counters("gateway_bans_forgotten_total", "Bans that made room for others.", &["kind"]);
        let kinds =
            [("address", report.banned_addresses), ("guesser", report.banned_guessers), ("name", report.banned_names)];
        for (kind, bans) in kinds {
            present.with_label_values(&[kind]).set(bans.present as i64);
            forgotten.with_label_values(&[kind]).inc_by(bans.forgotten);
        }
    }

    fn memory(&self, memory: &Memory) {
        let bytes = self.gauges("gateway_memory_bytes", "Memory that peers make the gateway hold.", "part");
        for part in Part::ALL {
            bytes.with_label_values(&[part.tag()]).set(memory.part_bytes(part) as i64);
        }
        self.gauge("gateway_memory_limit_bytes", "What all of that may be.", memory.limit_bytes() as f64);
        let queued_bytes = memory.part_bytes(Part::Queues);
        self.gauge("gateway_queued_bytes", "Bytes that no kernel has taken yet.", queued_bytes as f64);
    }

    fn build(&self) {
        let info = self.gauges("gateway_build_info", "The version of the program.", "version");
        info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
    }

    fn traffic(&self, report: &Report, shell: &ShellCounters) {
        type Read = fn(&Report, &ShellCounters, Side) -> u64;
        let traffic: [(&str, &str, Read); 11] = [
            ("messages_in", "Messages that came.", |report, _, side| report.counters.of(side).messages_in),
            ("messages_out", "Messages that were sent.", |report, _, side| report.counters.of(side).messages_out),
            ("packets_in", "Frames that came.", |_, shell, side| load(&shell.of(side).packets_in)),
            ("packets_out", "Frames that were sent.", |_, shell, side| load(&shell.of(side).packets_out)),
            ("packets_frag", "Reads that ended within a frame.", |_, shell, side| load(&shell.of(side).packets_frag)),
            ("packets_comb", "Frames with several messages.", |_, shell, side| load(&shell.of(side).packets_comb)),
            ("packets_drop", "Frames and messages that were refused at the door.", |_, shell, side| {
                OF_FRAMES.iter().map(|&reason| shell.of(side).refused(reason)).sum()
            }),
            ("bytes_in", "Bytes that came.", |_, shell, side| load(&shell.of(side).bytes_in)),
            ("bytes_out", "Bytes that were sent.", |_, shell, side| load(&shell.of(side).bytes_out)),
            ("connection_closed", "Connections that ended.", |report, _, side| report.counters.of(side).closed),
            ("gateway_challenged_total", "Strangers over KCP who were asked for a proof.", |_, shell, side| {
                load(&shell.of(side).challenged)
            }),
        ];
        for (name, help, read) in traffic {
            let counter = self.counters(name, help, &["connType"]);
            for side in SIDES {
                counter.with_label_values(&[side.tag()]).inc_by(read(report, shell, side));
            }
        }
        let duration =
            self.gauge_of("channel_tick_duration", "Milliseconds of the last encoding of a channel.", "type");
        for (kind, meters) in report.counters.channels.iter().filter(|&(kind, _)| is_there(report, kind)) {
            duration.with_label_values(&[kind.as_str_name()]).set(meters.tick.last_s() * 1_000.0);
        }
        self.gauge("gateway_last_step_seconds", "How long the last step of the engine took.", shell.step.last_s());
    }

    fn engine(&self, report: &Report) {
        let counters = &report.counters;
        let drops = self.counters("gateway_drops_total", "Messages that were not done as asked.", &["type", "reason"]);
        for (&(kind, reason), &count) in &counters.refused_by_type {
            drops.with_label_values(&[channel_type(kind as u32), reason]).inc_by(count);
        }
        let totals = [
            ("gateway_updates_total", "State updates merged.", counters.updates),
            ("gateway_delivered_updates_total", "State updates delivered to subscribers.", counters.delivered_updates),
            ("gateway_frames_total", "Encodings of state for subscribers.", counters.frames),
            ("gateway_handovers_total", "Entities that went to another cell.", counters.handovers),
            (
                "gateway_superseded_total",
                "Connections whose place a newcomer of the same name has taken.",
                counters.superseded,
            ),
            ("gateway_recovered_total", "Lost connections that came back.", counters.recovered),
            (
                "gateway_datagrams_delivered_total",
                "Frames sent on ways where some get lost that arrived.",
                counters.datagrams_delivered,
            ),
            (
                "gateway_datagrams_lost_total",
                "Frames sent on ways where some get lost that did not arrive.",
                counters.datagrams_lost,
            ),
            ("gateway_renewed_total", "Subscriptions made anew for a removal that was forgotten.", counters.renewed),
            ("gateway_too_slow_total", "Connections ended because they did not read.", counters.too_slow),
            ("gateway_paused_total", "How often a slow connection was sent no state.", counters.paused),
        ];
        for (name, help, count) in totals {
            self.counters(name, help, &[]).with_label_values::<&str>(&[]).inc_by(count);
        }
    }

    fn doors(&self, shell: &ShellCounters) {
        let refused = self.counters("gateway_refused_total", "What the doors refused.", &["connType", "reason"]);
        for side in SIDES {
            for reason in Reason::ALL {
                refused.with_label_values(&[side.tag(), reason.tag()]).inc_by(shell.of(side).refused(reason));
            }
        }
        let help = "Datagrams over Throng's link that asked for a connection, or that were dropped.";
        let link = self.counters("gateway_link_total", help, &["connType", "outcome"]);
        for (outcome, count) in shell.of(Side::Client).link().entries() {
            link.with_label_values(&[Side::Client.tag(), outcome]).inc_by(count);
        }
    }

    fn recordings(&self, shell: &ShellCounters) {
        let totals = [
            ("gateway_recordings_total", "Sessions that were recorded.", &shell.recordings),
            ("gateway_recordings_failed_total", "Recordings that cannot be written.", &shell.recordings_failed),
            ("gateway_recordings_limited_total", "Recordings that a limit cut off.", &shell.recordings_limited),
            ("gateway_recordings_slow_total", "Recordings that a slow disk cut off.", &shell.recordings_slow),
        ];
        self.totals(&totals);
    }

    fn edges(&self, report: &Report, shell: &ShellCounters) {
        let [edges, clients] = report.edges;
        self.gauge("gateway_edges", "Edges of this gateway.", edges as f64);
        self.gauge("gateway_edge_clients", "Clients that edges have.", clients as f64);
        let is_linked = report.is_linked.unwrap_or(true);
        self.gauge("gateway_home_linked", "0 while an edge has no path to its home.", u8::from(is_linked).into());
        let totals = [
            ("gateway_edges_accepted_total", "Edges that were let in.", &shell.edges_accepted),
            ("gateway_edges_refused_total", "Edges that were not let in.", &shell.edges_refused),
            (
                "gateway_edge_accepts_failed_total",
                "Paths of edges that could not be accepted.",
                &shell.edge_accepts_failed,
            ),
            ("gateway_edge_faults_total", "Paths that were closed because of the other end.", &shell.edge_faults),
            (
                "gateway_edge_paths_cut_total",
                "Paths that ended without the other end's last word.",
                &shell.edge_paths_cut,
            ),
            ("gateway_home_lost_total", "How often the home was lost.", &shell.home_lost),
        ];
        self.totals(&totals);
    }

    /// Nothing if no snapshots are made.
    fn snapshots(&self, snapshots: &SnapshotCounters) {
        let Some(age) = snapshots.age() else { return };
        let totals = [
            ("gateway_snapshots_total", "Snapshots that were written.", &snapshots.written),
            ("gateway_snapshots_failed_total", "Snapshots that were not written.", &snapshots.failed),
        ];
        self.totals(&totals);
        let took_s = load(&snapshots.took_ms) as f64 / 1_000.0;
        self.gauge("gateway_snapshot_age_seconds", "Time since the last snapshot, or the start.", age.as_secs_f64());
        self.gauge("gateway_snapshot_bytes", "Length of the last snapshot.", load(&snapshots.bytes) as f64);
        self.gauge("gateway_snapshot_duration_seconds", "How long it took to make the last snapshot.", took_s);
    }

    fn log(&self) {
        let logs = self.counters("logs", "Lines of the log.", &["level"]);
        for (level, lines) in log::lines() {
            logs.with_label_values(&[level]).inc_by(lines);
        }
    }

    /// Counters without labels: name, help and value.
    fn totals(&self, totals: &[(&str, &str, &AtomicU64)]) {
        for (name, help, count) in totals {
            self.counters(name, help, &[]).with_label_values::<&str>(&[]).inc_by(load(count));
        }
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        let counters = IntCounterVec::new(Opts::new(name, help), labels).expect("the names above are valid");
        self.registry.register(Box::new(counters.clone())).expect("each name is registered once");
        counters
    }

    fn gauges(&self, name: &str, help: &str, label: &str) -> IntGaugeVec {
        let gauges = IntGaugeVec::new(Opts::new(name, help), &[label]).expect("the names above are valid");
        self.registry.register(Box::new(gauges.clone())).expect("each name is registered once");
        gauges
    }

    fn gauge_of(&self, name: &str, help: &str, label: &str) -> prometheus::GaugeVec {
        let gauges = prometheus::GaugeVec::new(Opts::new(name, help), &[label]).expect("the names above are valid");
        self.registry.register(Box::new(gauges.clone())).expect("each name is registered once");
        gauges
    }

    fn gauge(&self, name: &str, help: &str, value: f64) {
        let gauge = Gauge::new(name, help).expect("the names above are valid");
        gauge.set(value);
        self.registry.register(Box::new(gauge)).expect("each name is registered once");
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// channeld's names of channel types; user types by their number's name in the protocol.
fn channel_type(kind: u32) -> &'static str {
    ChannelType::try_from(kind as i32).map_or("UNKNOWN", |kind| kind.as_str_name())
}
