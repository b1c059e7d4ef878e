use throng_crowd::scenario::{Overrides, Scenario};

use super::*;
use crate::frames::{FrameLog, FrameTime};

const TICKS: usize = 600;
const CONNECTIONS: f64 = 1000.0;

impl RunSummary {
    /// A made-up run of `crowd` with nothing wrong, marked as such: for previews of the report and for tests.
    ///
    /// # Panics
    /// Never: the scenario is part of the program.
    pub fn example() -> RunSummary {
        let frames = frames();
        let profile = frames.profile(1000.0 / 30.0);
        let settings = Scenario::resolve("crowd", &Overrides::default()).expect("crowd is part of the program");
        let mut run = RunSummary {
            head: RunHead { others_cpu_cores: Some(0.02), ..RunHead::example(Kind::Crowd) },
            scenario: settings.name.clone(),
            cipher: "aes-256-gcm".to_owned(),
            model: settings.model.name().to_owned(),
            players: settings.players,
            tick_hz: settings.tick_hz,
            settings,
            server: Server {
                connections: CONNECTIONS,
                ticks: TICKS as u64,
                held_hz: 30.0,
                world_speed: 1.0,
                after_plan_ms: profile.after_plan_ms,
                tick_ms: 1000.0 / 30.0,
                frame_ms: profile.frame_ms,
                frames_at: profile.frames_at,
                us_per_connection: profile.mean_ms.scaled(1000.0 / CONNECTIONS),
                send_on_loopback: SendOnLoopback {
                    local_us: Some(2.5),
                    receiver_us: Some(1.9),
                    error_us: Some(0.2),
                    unknown_because: None,
                },
                cpu_cores: 0.38,
                rss_bytes: 71_000_000,
                rss_bytes_per_connection: 38_400.0,
                measuring_us_per_tick: Some(31.0),
                measuring_share: Some(0.0028),
                steady_state_allocations_per_tick: Some(0.0),
                ..Server::default()
            },
            floor: Floor {
                ms_per_tick: Some(5.4),
                run_ms_per_tick: Some(5.9),
                ratio: Some(profile.mean_ms.outgoing() / 5.4),
                packets_per_tick: 1_870.0,
            },
            servers: vec![ServerFigures {
                players: 500.0,
                frame_p99_ms: Some(2.1),
                cpu_cores: 0.05,
                arrived: 120,
                released: 118,
                players_by_second: vec![480, 503, 500],
                ..ServerFigures::default()
            }],
            servers_even_after_s: Some(2.4),
            losses: vec![Loss { process: "edge 1".to_owned(), counter: "inputs_dropped".to_owned(), count: 3 }],
            faults: vec![FaultFigures {
                fault: "pause:edge-1:4s:2s".to_owned(),
                bots: 500,
                longest_gap_ms: Some(2_034.0),
                served_again_ms: Some(41.0),
                ..FaultFigures::default()
            }],
            workers: vec![WorkerFigures {
                address: "10.0.0.5:7790".to_owned(),
                connected: 500,
                cpu_cores: 0.4,
                inputs_sent_ratio: 1.0,
                input_delay_p99_ms: Some(0.6),
                clock_offset_ms: Some(81_402.3),
                clock_error_ms: Some(0.4),
                ages_usable: true,
                snapshots: 298,
                ..WorkerFigures::default()
            }],
            edges: vec![EdgeFigures {
                connections: 500.0,
                frame_p99_ms: Some(9.4),
                us_per_connection: Some(6.1),
                cpu_cores: 0.12,
                kbit_per_s_from_server: 2_900.0,
                objects: 1_000,
                recounts: 1,
                ..EdgeFigures::default()
            }],
            steps: vec![LoadStep {
                to_s: 20.0,
                players: CONNECTIONS,
                connections: CONNECTIONS,
                frame_ms: Spread { p50: Some(profile.frame_ms.p50), p99: Some(profile.frame_ms.p99) },
                near_age_p99_ms: Some(71.0),
                server_cpu_cores: 0.38,
                steady_from_s: Some(0.0),
                ..LoadStep::default()
            }],
            client: client(),
            neighbours: Neighbours {
                near: band(38.0, 74.0, 0.14, 0.41, 61_200),
                middle: band(108.0, 226.0, 0.52, 1.21, 902_400),
                far: band(520.0, 1_034.0, 2.4, 5.6, 480_100),
            },
            fields: [("position", 21_000.0), ("velocity", 14_000.0), ("slot, id and mask", 8_100.0), ("yaw", 5_200.0)]
                .map(|(field, bytes_per_s)| FieldBytes {
                    kind: "Character".to_owned(),
                    field: field.to_owned(),
                    bytes_per_s,
                })
                .to_vec(),
            worst_clients: vec![WorstClient {
                client: 417,
                because: "oldest state".to_owned(),
                kbit_per_s: Some(436.0),
                near_age_p99_ms: Some(81.0),
                known_within_40_m: Some(1.0),
            }],
            differences: vec![Difference {
                when: "in play".to_owned(),
                because: "other values".to_owned(),
                client: Some(417),
                edge: Some(2),
                object: Some("25.1".to_owned()),
                seen_tick: Some(297),
                seen_m: Some([28.97, 85.58, 0.0]),
                seen_words: vec![2_897, 8_558, 0, 1_000, 1_000, 1_000, 211, 56, 1, 0, 0, 0],
                server: Some(1),
                object_there: Some("20.1".to_owned()),
                seen_tick_there: Some(296),
                newest_tick_there: Some(303),
                server_is_gone: false,
                true_tick: Some(301),
                true_m: Some([28.54, 85.84, 0.0]),
                true_words: vec![2_854, 8_584, 0, 1_000, 1_000, 1_000, 211, 54, 1, 57, 172, 0],
                true_owner: None,
            }],
            bots: Bots {
                connected: 1000,
                decoded: 20,
                objects_compared: 20_000,
                compared_in_play: 190_000,
                cpu_cores: 0.62,
                cores_available: 1.0,
                inputs_sent_ratio: 0.9996,
                input_delay_p99_ms: Some(2.4),
                ..Bots::default()
            },
            network: Network {
                preset: "none".to_owned(),
                sent_packets: 1_122_000,
                received_packets: 600_100,
                loss_ratio: 0.0003,
                resent_segments: 214,
                superseded_segments: 122,
                rtt_ms: Spread { p50: Some(18.2), p99: Some(36.0) },
                refused: vec![Count { tag: "replayed".to_owned(), count: 2 }],
                send_errors: 0,
            },
            replication: Replication {
                objects: 1000.0,
                objects_touched_per_tick: 1000.0,
                channels: 100.0,
                subscriptions_per_connection: 98.2,
                frames_encoded_per_tick: 74.0,
                subscriptions_per_frame: 211.0,
                frames_shared_ratio: 0.993,
                cohorts_per_channel: 1.4,
                longest_wait_ticks: 41,
                budget_overruns: 0,
            },
            targets: Vec::new(),
            published: Vec::new(),
            samples: Samples { frames: vec![30; 20], late: vec![0; 20] },
            series: Series { frames: frames.series(), histogram: frames.histogram(), seconds: seconds() },
        };
        run.conclude();
        run.head.valid = false;
        run.head.invalid_reasons = vec!["these figures are made up, to show what a report looks like".to_owned()];
        run
    }
}

/// Frames that breathe, with a slow one now and then.
fn frames() -> FrameLog {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut log = FrameLog::with_capacity(TICKS);
    for tick in 0..TICKS {
        let swell = 1.0 + 0.12 * (tick as f64 / 60.0).sin() + 0.1 * rng.f64();
        let spike = if tick % 151 == 150 { 1.7 } else { 1.0 };
        let parts = [
            (Subsystem::SIMULATE, 0.05),
            (Subsystem::INTEREST, 0.22),
            (Subsystem::QUANTISE, 0.06),
            (Subsystem::PLAN, 0.17),
            (Subsystem::ENCODE, 0.31),
            (Subsystem::WRITE, 0.61),
            (Subsystem::SEAL, 1.72),
            (Subsystem::SEND, 4.1 * spike),
            (Subsystem::RECEIVE, 0.9 * spike),
            (Subsystem::OPEN, 0.8),
            (Subsystem::SETTLE, 1.2),
        ];
        let parts = parts.map(|(subsystem, ms)| (subsystem, ms * swell));
        let total = parts.iter().map(|(_, ms)| ms).sum::<f64>() + 0.21;
        let time = FrameTime { at_s: tick as f64 / 30.0, after_plan_ms: total + 0.05, skipped: 0 };
        log.push(Split::new(parts, total), time);
    }
    log
}

fn client() -> Client {
    Client {
        kbit_per_s: Rate { mean: 431.0, p99: 498.0 },
        kbit_per_s_with_headers_p99: 509.0,
        budget_kbit_per_s: 512.0,
        bytes_per_s: Bytes::new(2_350.0, 50_900.0, 120.0, 505.0),
        object_update_bytes: Mean { mean: Some(10.4) },
        bytes_per_object_update: Bytes::new(0.48, 10.3, 0.02, 0.1),
        object_updates_per_s: 4_940.0,
        known_objects: Known { p1: Some(998.0), p50: Some(1000.0) },
        known_within_40_m: Some(1.0),
    }
}

fn band(age_p50: f64, age_p99: f64, error_p50: f64, error_p99: f64, samples: u64) -> Band {
    Band {
        age_ms: Spread { p50: Some(age_p50), p99: Some(age_p99) },
        position_error_m: Spread { p50: Some(error_p50), p99: Some(error_p99) },
        samples,
    }
}

fn seconds() -> SecondSeries {
    let curve = |mean: f64, swing: f64, period: f64| -> Vec<f64> {
        (0..20).map(|second| mean + swing * (f64::from(second) / period).sin()).collect()
    };
    SecondSeries {
        time_s: (1..=20).map(f64::from).collect(),
        players_wanted: vec![CONNECTIONS; 20],
        connections: vec![CONNECTIONS; 20],
        kbit_per_s: curve(431.0, 12.0, 2.0),
        near_age_p99_ms: curve(72.0, 6.0, 1.3).into_iter().map(Some).collect(),
        loss_ratio: curve(0.0003, 0.0003, 0.9),
        resent_segments_per_s: curve(11.0, 9.0, 0.9),
        cohorts_per_channel: curve(1.4, 0.2, 1.7),
        frames_encoded_per_tick: curve(74.0, 3.0, 1.7),
        subscriptions_per_frame: curve(211.0, 8.0, 1.7),
        server_cpu_cores: curve(0.38, 0.03, 2.3),
        bots_cpu_cores: curve(0.62, 0.04, 2.9),
    }
}
