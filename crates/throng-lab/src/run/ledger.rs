//! Everything that is counted on the server's side of a run.

use std::time::{Duration, SystemTime};

use throng::meter::{Subsystem, TickRecord};
use throng::{DriverCounters, DropReason, Replication, Server, Time};
use throng_crowd::scenario::Scenario;
use throng_edge::OriginOptions;
use throng_judge::quantile;
use throng_machine::clock::{self, MachineUse, UsedCores};
use throng_report::{Kind, RunHead};

use super::stages::{self, Stages};
use super::tally::Tally;
use crate::bots::{BotsReport, Progress};
use crate::floor::FloorTime;
use crate::host::Host;
use crate::loopback::Loopback;
use throng_summary::frames::{FrameLog, FrameTime};
use throng_summary::{
    Bots, Bytes, Client, Count, Floor, Mean, Network, Rate, Replication as ReplicationFigures, RunSummary, Samples,
    SecondSeries, SendOnLoopback, Series, Server as ServerFigures, Split, Spread,
};

/// Bytes of IP, UDP, netcode prefix and seal with each datagram, which the budget includes.
const DATAGRAM_OVERHEAD_BYTES: u64 = 47;
/// Unused budget that a connection may save up, as a share of a second's budget.
const BURST_S: f64 = 0.3;
/// If bots are later than this, at the 99th percentile, they sample the world too rarely for valid results.
const LATE_LIMIT_SHARE: f64 = 1.0;

pub(super) struct Ledger {
    scenario: Scenario,
    cores: usize,
    counts_allocations: bool,
    frames: FrameLog,
    rss_before: u64,
    is_measuring: bool,
    began: Time,
    ended: Time,
    cpu_s: f64,
    cpu_cores: f64,
    loopback: Loopback,
    /// The core that only the server uses.
    own_core: Option<usize>,
    send_on_loopback: SendOnLoopback,
    rss_after: u64,
    machine: MachineUse,
    used_cores: UsedCores,
    /// Skipped and late ticks, dropped events and unreadable inputs before the measured part, and then in it.
    misfortunes: Misfortunes,
    totals: Totals,
    tally: Tally,
    rtt_ms: Spread,
    subscriptions: f64,
    objects: f64,
    channels: f64,
    head: RunHead,
    second: Second,
    seconds: SecondSeries,
    samples: Samples,
    /// Seconds so far; one of each `stride` is kept.
    second_count: usize,
    second_stride: usize,
    budget_overruns: u64,
    latest_ms: f64,
    stages: Stages,
    /// Players that are to play, and the most that were.
    wanted: u32,
    most_wanted: u32,
}

/// Sums over the measured ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    ticks: u64,
    /// Ticks that were due: those that were played, and those that were skipped.
    due: u64,
    /// Of these, ticks that took longer than a tick, or were skipped.
    late: u64,
    connections: u64,
    send_ns: u64,
    packets_sent: u64,
    bytes_sent: u64,
    packets_received: u64,
    touched: u64,
    frames_encoded: u64,
    frames_shared: u64,
    channels_encoded: u64,
    allocations: u64,
    /// Time of measuring.
    measuring: Duration,
}

/// Events that should not happen. Counts since the start of the program, or of the measured part.
#[derive(Clone, Copy, Debug, Default)]
struct Misfortunes {
    skipped_ticks: u64,
    late_ticks: u64,
    events_dropped: u64,
    bad_inputs: u64,
    /// Datagrams that the kernel did not accept.
    send_errors: u64,
    /// Datagrams that were refused, in the order of [`DropReason::ALL`].
    refused: [u64; DropReason::ALL.len()],
}

impl Misfortunes {
    fn so_far(host: &Host<impl Replication>) -> Misfortunes {
        let mut refused = host.server().door_counters().drops().map(|(_, count)| count);
        let dropped = host.server().limits_reached().find(|(name, _)| *name == "events_dropped");
        Misfortunes {
            skipped_ticks: host.skipped_ticks(),
            late_ticks: host.late_ticks(),
            events_dropped: dropped.map_or(0, |(_, count)| count),
            bad_inputs: host.bad_inputs(),
            send_errors: send_errors(&host.server().driver_counters()),
            refused: std::array::from_fn(|_| refused.next().unwrap_or(0)),
        }
    }

    fn since(self, before: Misfortunes) -> Misfortunes {
        Misfortunes {
            skipped_ticks: self.skipped_ticks - before.skipped_ticks,
            late_ticks: self.late_ticks - before.late_ticks,
            events_dropped: self.events_dropped - before.events_dropped,
            bad_inputs: self.bad_inputs - before.bad_inputs,
            send_errors: self.send_errors - before.send_errors,
            refused: std::array::from_fn(|reason| self.refused[reason] - before.refused[reason]),
        }
    }
}

/// The last second.
#[derive(Default)]
struct Second {
    since: Time,
    cpu_s: f64,
    totals: Totals,
    packets_sent: u64,
    packets_lost: u64,
    resent: u64,
}

impl Ledger {
    /// `own_core` is the one that only the server uses.
    pub(super) fn new(scenario: &Scenario, counts_allocations: bool, own_core: Option<usize>) -> Ledger {
        let scenario = scenario.clone();
        let frames = scenario.seconds as usize * scenario.tick_hz as usize + scenario.tick_hz as usize;
        let now = clock::now();
        Ledger {
            cores: core_affinity::get_core_ids().map_or(0, |cores| cores.len()),
            // The count is that of one thread.
            counts_allocations: counts_allocations && scenario.server_threads <= 1,
            frames: FrameLog::with_capacity(frames),
            rss_before: throng_machine::rss_bytes().unwrap_or(0),
            is_measuring: false,
            began: now,
            ended: now,
            cpu_s: 0.0,
            cpu_cores: 0.0,
            loopback: Loopback::begin(None, 1),
            own_core,
            send_on_loopback: SendOnLoopback::default(),
            rss_after: 0,
            machine: MachineUse::begin(),
            used_cores: UsedCores::default(),
            misfortunes: Misfortunes::default(),
            totals: Totals::default(),
            tally: Tally::default(),
            rtt_ms: Spread::default(),
            subscriptions: 0.0,
            objects: 0.0,
            channels: 0.0,
            head: RunHead::new(Kind::Crowd, &scenario.name, SystemTime::now()),
            second: Second { since: now, ..Second::default() },
            seconds: SecondSeries::with_room(),
            samples: Samples::with_room(scenario.seconds as usize + 1),
            second_count: 0,
            second_stride: 1,
            budget_overruns: 0,
            latest_ms: 0.0,
            stages: Stages::new(&scenario),
            wanted: 0,
            most_wanted: 0,
            scenario,
        }
    }

    /// Its memory has grown from where that of an earlier one began.
    pub(super) fn grow_from(&mut self, earlier: &Ledger) {
        self.rss_before = earlier.rss_before;
    }

    pub(super) fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    pub(super) fn begin(&mut self, host: &Host<impl Replication>) {
        self.is_measuring = true;
        self.began = clock::now();
        self.cpu_s = clock::process_cpu_s();
        self.loopback = Loopback::begin(self.own_core, self.scenario.server_threads);
        self.machine = MachineUse::begin();
        self.misfortunes = Misfortunes::so_far(host);
        self.tally.begin(host.server());
        let (since, cpu_s, totals) = (self.began, self.cpu_s, self.totals);
        self.second = Second { since, cpu_s, totals, ..Second::default() };
    }

    pub(super) fn end(&mut self, host: &Host<impl Replication>) {
        self.is_measuring = false;
        self.send_on_loopback = self.loopback.end(self.totals.send_ns as f64 / 1e9, self.totals.connections as f64);
        self.ended = clock::now();
        self.cpu_cores = (clock::process_cpu_s() - self.cpu_s) / self.seconds_measured().max(1e-9);
        self.used_cores = self.machine.so_far();
        self.misfortunes = Misfortunes::so_far(host).since(self.misfortunes);
        self.rss_after = throng_machine::rss_bytes().unwrap_or(0);
        self.tally.take(host.server(), |_| ());
        self.rtt_ms = round_trips(host.server());
        let replication = host.server().replication();
        let followed: Vec<usize> = host.server().connections().map(|id| replication.followed_count(id)).collect();
        self.subscriptions = followed.iter().sum::<usize>() as f64 / followed.len().max(1) as f64;
        self.objects = replication.objects().count() as f64;
        self.channels = replication.channel_count() as f64;
    }

    /// The time from the beginning of the measured part to `moment`; `None` outside of it.
    pub(super) fn place_of(&self, moment: Time) -> Option<Duration> {
        self.is_measuring.then(|| moment.since(self.began))
    }

    /// Notes the tick that the host has just played, which began at `began`.
    pub(super) fn take_tick(&mut self, host: &Host<impl Replication>, began: Time, allocations: Option<u64>) {
        let record: &TickRecord = host.server().last_tick();
        self.latest_ms = record.total_ns as f64 / 1e6;
        if !self.is_measuring {
            return;
        }
        let parts = Subsystem::STAGES.map(|subsystem| (subsystem, record.ns(subsystem) as f64 / 1e6));
        let finish = host.last_finish();
        let time = FrameTime {
            at_s: began.since(self.began).as_secs_f64(),
            after_plan_ms: finish.after_plan.as_secs_f64() * 1e3,
            skipped: finish.skipped,
        };
        self.frames.push(Split::new(parts, self.latest_ms), time);
        self.stages.take_tick(time.at_s, self.latest_ms, finish.skipped);
        let (totals, counters) = (&mut self.totals, &record.counters);
        let (skipped, tick_ns) = (finish.skipped, 1_000_000_000 / u64::from(self.scenario.tick_hz));
        totals.ticks += 1;
        totals.due += 1 + skipped;
        totals.late += u64::from(record.total_ns > tick_ns) + skipped;
        totals.connections += counters.connections;
        totals.send_ns += record.ns(Subsystem::SEND);
        totals.packets_sent += counters.packets_sent;
        totals.bytes_sent += counters.bytes_sent;
        totals.packets_received += counters.packets_received;
        totals.touched += counters.objects_quantised;
        totals.frames_encoded += counters.frames_encoded;
        totals.frames_shared += counters.frames_shared;
        totals.channels_encoded += counters.channels_encoded;
        totals.allocations += allocations.unwrap_or(0);
    }

    /// Notes time that measuring took outside of the frame.
    pub(super) fn note_measuring(&mut self, spent: Duration) {
        if self.is_measuring {
            self.totals.measuring += spent;
        }
    }

    /// Whether the measured part has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.totals.ticks > 0
    }

    /// Time since the measured part began; zero before.
    pub(super) fn measured_for(&self) -> Duration {
        if self.is_measuring { clock::now().since(self.began) } else { Duration::ZERO }
    }

    /// So many players are to play.
    pub(super) fn note_wanted(&mut self, wanted: u32) {
        self.wanted = wanted;
        self.most_wanted = self.most_wanted.max(wanted);
    }

    pub(super) fn second_is_over(&self) -> bool {
        clock::now().since(self.second.since) >= Duration::from_secs(1)
    }

    /// The values of the second that is over.
    pub(super) fn take_second(&mut self, host: &Host<impl Replication>, bots: Progress) -> throng_summary::Second {
        let now = clock::now();
        let elapsed_s = now.since(self.second.since).as_secs_f64();
        let (cpu_s, totals) = (clock::process_cpu_s(), self.totals);
        // Connections that were sent more in this second than their budget and what they had saved.
        let (allowed, overruns) = (self.allowed_bytes(elapsed_s), &mut self.budget_overruns);
        self.tally.take(host.server(), |sent| {
            let bytes = sent.bytes_sent + sent.packets_sent * DATAGRAM_OVERHEAD_BYTES;
            *overruns += u64::from(bytes as f64 > allowed);
        });
        let counts = *self.tally.sum();
        let (packets_sent, packets_lost) = (counts.packets_sent, counts.packets_lost);
        let resent = counts.replicated.resent_segments;
        let before = std::mem::replace(
            &mut self.second,
            Second { since: now, cpu_s, totals, packets_sent, packets_lost, resent },
        );
        self.samples.frames.push(totals.due - before.totals.due);
        self.samples.late.push(totals.late - before.totals.late);
        let (time_s, cpu_cores) = (now.since(self.began).as_secs_f64(), (cpu_s - before.cpu_s) / elapsed_s);
        self.stages.take_second(
            time_s,
            stages::Second {
                wanted: self.wanted,
                connections: host.connected(),
                near_age_p99_ms: bots.near_age_p99_ms,
                cpu_cores,
                frame_ms: 0.0,
            },
        );
        let ticks = (totals.ticks - before.totals.ticks).max(1) as f64;
        let encoded = (totals.frames_encoded - before.totals.frames_encoded) as f64;
        let shared = (totals.frames_shared - before.totals.frames_shared) as f64;
        let channels = (totals.channels_encoded - before.totals.channels_encoded) as f64;
        let bytes = (totals.bytes_sent - before.totals.bytes_sent) as f64;
        let connections = f64::from(host.connected()).max(1.0);
        let (lost, sent) = (packets_lost - before.packets_lost, packets_sent - before.packets_sent);
        let second = throng_summary::Second {
            time_s,
            players_wanted: f64::from(self.wanted),
            connections: f64::from(host.connected()),
            kbit_per_s: bytes * 8.0 / 1e3 / elapsed_s / connections,
            near_age_p99_ms: bots.near_age_p99_ms,
            loss_ratio: ratio(lost as f64, sent as f64),
            resent_segments_per_s: (resent - before.resent) as f64 / elapsed_s,
            cohorts_per_channel: ratio(encoded, channels),
            frames_encoded_per_tick: encoded / ticks,
            subscriptions_per_frame: ratio(shared, encoded),
            server_cpu_cores: cpu_cores,
            bots_cpu_cores: bots.cpu_cores,
        };
        if self.seconds.time_s.len() == Series::MAX_POINTS {
            self.seconds.halve();
            self.second_stride *= 2;
        }
        if self.second_count.is_multiple_of(self.second_stride) {
            self.seconds.push(&second);
        }
        self.second_count += 1;
        second
    }

    pub(super) fn latest_frame_ms(&self) -> f64 {
        self.latest_ms
    }

    pub(super) fn summary(&self, bots: &BotsReport, floor: Option<FloorTime>) -> RunSummary {
        let tick_ms = 1e3 / f64::from(self.scenario.tick_hz);
        let profile = self.frames.profile(tick_ms);
        let ticks = self.totals.ticks.max(1) as f64;
        let connections = self.totals.connections as f64 / ticks;
        let growth = self.rss_after.saturating_sub(self.rss_before) as f64;
        let measuring_us = self.totals.measuring.as_secs_f64() * 1e6 / ticks;
        RunSummary {
            head: RunHead {
                seconds: self.seconds_measured(),
                others_cpu_cores: bots
                    .cpu_cores_here()
                    .and_then(|bots| self.used_cores.of_others([bots, self.cpu_cores])),
                ..self.head.clone()
            },
            scenario: self.scenario.name.clone(),
            cipher: self.scenario.cipher.name().to_owned(),
            model: self.scenario.model.name().to_owned(),
            players: self.most_wanted,
            tick_hz: self.scenario.tick_hz,
            settings: self.scenario.clone(),
            server: ServerFigures {
                connections,
                ticks: self.totals.ticks,
                missed_ticks: self.misfortunes.skipped_ticks,
                late_ticks: self.misfortunes.late_ticks,
                held_hz: self.totals.ticks as f64 / self.seconds_measured().max(1e-9),
                world_speed: self.totals.ticks as f64 * tick_ms / 1e3 / self.seconds_measured().max(1e-9),
                after_plan_ms: profile.after_plan_ms,
                tick_ms,
                frame_ms: profile.frame_ms,
                frames_at: profile.frames_at,
                us_per_connection: profile.mean_ms.scaled(1e3 / connections.max(1.0)),
                send_on_loopback: self.send_on_loopback.clone(),
                cpu_cores: self.cpu_cores,
                rss_bytes: self.rss_after,
                rss_bytes_per_connection: growth / connections.max(1.0),
                events_dropped: self.misfortunes.events_dropped,
                measuring_us_per_tick: (self.totals.ticks > 0).then_some(measuring_us),
                measuring_share: (profile.frame_ms.mean > 0.0).then(|| measuring_us / 1e3 / profile.frame_ms.mean),
                steady_state_allocations_per_tick: self
                    .counts_allocations
                    .then_some(self.totals.allocations as f64 / ticks),
            },
            floor: Floor {
                ms_per_tick: floor.map(|floor| floor.floor_ms),
                run_ms_per_tick: floor.map(|floor| floor.run_ms),
                ratio: floor.map(|floor| floor.ratio),
                packets_per_tick: self.totals.packets_sent as f64 / ticks,
            },
            steps: self.stages.figures(self.seconds_measured()),
            edges: Vec::new(),
            losses: Vec::new(),
            servers: Vec::new(),
            workers: Vec::new(),
            faults: Vec::new(),
            servers_even_after_s: None,
            client: self.client(connections, bots),
            neighbours: bots.neighbours,
            bots: self.bots(bots),
            fields: bots.fields.clone(),
            worst_clients: bots.worst.clone(),
            differences: bots.differences.clone(),
            network: self.network(),
            replication: self.replication(),
            targets: Vec::new(),
            published: Vec::new(),
            samples: self.samples.clone(),
            series: Series {
                frames: self.frames.series(),
                histogram: self.frames.histogram(),
                seconds: self.seconds.clone(),
            },
        }
    }

    fn client(&self, connections: f64, bots: &BotsReport) -> Client {
        let counted = &self.tally.sum().replicated;
        let (object, resend) = (counted.object_bytes as f64, counted.resent_bytes as f64);
        let (control, updates) = (counted.control_bytes as f64, counted.object_updates as f64);
        let header = (self.totals.bytes_sent as f64 - object - resend - control).max(0.0);
        let split = |by: f64| {
            let by = by.max(1e-9);
            Bytes::new(header / by, object / by, resend / by, control / by)
        };
        let client_seconds = connections * self.seconds_measured();
        Client {
            kbit_per_s: Rate { mean: bots.kbit_per_s.0, p99: bots.kbit_per_s.1 },
            kbit_per_s_with_headers_p99: bots.kbit_per_s_with_headers_p99,
            budget_kbit_per_s: f64::from(self.scenario.budget_kbit_per_s),
            bytes_per_s: split(client_seconds),
            object_update_bytes: Mean { mean: (updates > 0.0).then_some((object + resend + control) / updates) },
            bytes_per_object_update: if updates > 0.0 { split(updates) } else { Bytes::default() },
            object_updates_per_s: updates / client_seconds.max(1e-9),
            known_objects: bots.known,
            known_within_40_m: bots.known_within_40_m,
        }
    }

    fn bots(&self, bots: &BotsReport) -> Bots {
        let cores_available = if self.scenario.pin { self.cores.saturating_sub(1).max(1) } else { self.cores.max(1) };
        Bots {
            missing: false,
            bad_inputs: self.misfortunes.bad_inputs,
            // The bots of a process play in one thread.
            cores_available: (cores_available as f64).min(1.0),
            saturated: is_too_late(&self.scenario, bots.bots.input_delay_p99_ms),
            ..bots.bots
        }
    }

    fn network(&self) -> Network {
        let counts = self.tally.sum();
        let refused = DropReason::ALL.into_iter().zip(self.misfortunes.refused).filter(|(_, count)| *count > 0);
        Network {
            preset: self.scenario.net.name().to_owned(),
            sent_packets: self.totals.packets_sent,
            received_packets: self.totals.packets_received,
            loss_ratio: ratio(counts.packets_lost as f64, counts.packets_sent as f64),
            resent_segments: counts.replicated.resent_segments,
            superseded_segments: counts.replicated.superseded_segments,
            rtt_ms: self.rtt_ms,
            refused: refused.map(|(reason, count)| Count { tag: reason.tag().to_owned(), count }).collect(),
            send_errors: self.misfortunes.send_errors,
        }
    }

    fn replication(&self) -> ReplicationFigures {
        let ticks = self.totals.ticks.max(1) as f64;
        let (encoded, shared) = (self.totals.frames_encoded as f64, self.totals.frames_shared as f64);
        ReplicationFigures {
            objects: self.objects,
            objects_touched_per_tick: self.totals.touched as f64 / ticks,
            channels: self.channels,
            subscriptions_per_connection: self.subscriptions,
            frames_encoded_per_tick: encoded / ticks,
            subscriptions_per_frame: ratio(shared, encoded),
            frames_shared_ratio: ratio(shared - encoded, shared),
            cohorts_per_channel: ratio(encoded, self.totals.channels_encoded as f64),
            longest_wait_ticks: u64::from(self.tally.sum().replicated.longest_wait_ticks),
            budget_overruns: self.budget_overruns,
        }
    }

    pub(super) fn seconds_measured(&self) -> f64 {
        self.ended.since(self.began).as_secs_f64()
    }

    /// So much may be sent to a connection in a time.
    fn allowed_bytes(&self, elapsed_s: f64) -> f64 {
        let budget = match self.scenario.edges {
            0 => self.scenario.budget_bytes_per_s(),
            // Its connections are edges then.
            _ => OriginOptions::default().edge_bytes_per_s,
        };
        f64::from(budget) * (elapsed_s + BURST_S)
    }
}

/// Whether bots whose inputs are so late are too slow for valid measurements.
pub(super) fn is_too_late(scenario: &Scenario, input_delay_p99_ms: Option<f64>) -> bool {
    let turn_ms = 1e3 / f64::from(scenario.input_hz.max(1));
    input_delay_p99_ms.is_some_and(|late_ms| late_ms > turn_ms * LATE_LIMIT_SHARE)
}

fn send_errors(counters: &DriverCounters) -> u64 {
    let DriverCounters { send_dropped, too_large, bad_destination, unreachable, not_permitted, socket_errors, .. } =
        *counters;
    send_dropped + too_large + bad_destination + unreachable + not_permitted + socket_errors
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn round_trips(server: &Server<impl Replication>) -> Spread {
    let round_trips = server.connections().filter_map(|id| server.link_statistics(id)?.round_trip);
    let ms: Vec<f64> = round_trips.map(|round_trip| round_trip.as_secs_f64() * 1e3).collect();
    Spread { p50: quantile(&ms, 0.5), p99: quantile(&ms, 0.99) }
}
