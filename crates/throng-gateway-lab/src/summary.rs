//! The figures of a run, as `summary.json` has them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_report::RunHead;

use crate::load::{Scene, Transport, Victim};

/// Clients and world servers above this share of their one thread are not quick enough to be witnesses.
const DRIVER_CORES_MAX: f64 = 0.85;
/// Rounds of the clients that are later than this, at the 99th percentile, spoil latencies.
const LATE_P99_MAX_MS: f64 = 25.0;
/// Share of the due calls that have to be sent for the load to be what it is said to be.
const SENT_RATIO_MIN: f64 = 0.97;

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatewaySummary {
    /// The head that every kind of run has. The figures of parts of the load that are missing are the means of the seconds
    /// until they died, and 0 or `null` where a second has none.
    #[serde(flatten)]
    pub head: RunHead,
    /// The scene.
    pub scene: Scene,
    /// Clients that were to play at once, at the most.
    pub clients: u32,
    /// How many of them at each moment of the measured part, as on the command line.
    #[serde(default)]
    pub profile: String,
    /// Edges between the clients and the gateway; 0: none.
    #[serde(default)]
    pub edges: u32,
    /// How clients reach the gateway.
    #[serde(default)]
    pub transport: Transport,
    /// The gateway.
    pub gateway: GatewayFigures,
    /// The world servers.
    pub world: WorldFigures,
    /// The clients' results; `null` if they were silent or have not reported.
    pub client: Option<ClientFigures>,
    /// All messages and bytes through the gateway.
    pub traffic: TrafficFigures,
    /// Clients' calls of their servers; `null` if they make none or are not all reported.
    pub calls: Option<CallFigures>,
    /// The effect of a kill in mid-run; `null` unless it was requested and the clients have reported.
    #[serde(default)]
    pub outage: Option<OutageFigures>,
    /// The cost of idle connections; `null` unless it was requested.
    pub idle: Option<IdleFigures>,
    /// The load's own cost.
    pub driver: DriverFigures,
    /// Measurements from elsewhere.
    pub references: Vec<Reference>,
    /// One row for each second of the measured part.
    pub series: Vec<Second>,
}

/// A gateway under load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayFigures {
    /// The gateway: a command, or an address.
    pub name: String,
    /// Processor time by wall time; `null` if the process is not known.
    pub cpu_cores: Option<f64>,
    /// Resident memory at the end.
    pub rss_bytes: Option<u64>,
    /// Growth of resident memory since before the clients came, for each of them.
    pub rss_bytes_per_connection: Option<f64>,
    /// Processor time for a million updates that reached clients.
    pub cpu_s_per_million_updates: Option<f64>,
    /// The longest channel tick that it reported, in milliseconds; `null` without a report.
    pub channel_tick_max_ms: Option<f64>,
    /// Connections as it counts them.
    pub connections: Option<f64>,
    /// Channels as it counts them.
    pub channels: Option<f64>,
    /// Time in a second until it had answered what it counts, in milliseconds: the most that being measured can cost it.
    #[serde(default)]
    pub measuring_ms_per_s: Option<f64>,
    /// The same as a share of the time.
    #[serde(default)]
    pub measuring_share: Option<f64>,
}

/// World servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorldFigures {
    /// How many.
    pub servers: u32,
    /// Frames per second, the mean of the servers; 30 are due.
    pub frame_hz: f64,
    /// Frames that could not be played because the gateway had not taken the one before; `null` if the world servers have not
    /// reported.
    pub stalled_frames: Option<u64>,
    /// Entities that went to another cell, per second.
    pub handovers_per_s: f64,
    /// Subscriptions that were made, changed or ended, per second; `null` if the world servers have not reported.
    pub resubscriptions_per_s: Option<f64>,
}

/// The clients' results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientFigures {
    /// Clients that played.
    pub joined: u32,
    /// Connections that ended early.
    pub lost: u32,
    /// Updates per second of the median client.
    pub update_hz_median: f64,
    /// Updates per second of the slowest client.
    pub update_hz_min: f64,
    /// Updates of all clients.
    pub updates: u64,
    /// Updates that there should have been. In the scene spatial, if anything but an edge is killed: as many per second as before.
    pub ideal_updates: f64,
    /// The one by the other.
    pub delivered_ratio: f64,
    /// New states of actors that decoding clients saw, by those that were written for them; `null` where it depends on who
    /// is near.
    pub actor_states_ratio: Option<f64>,
    /// Age of what decoding clients see, median, in milliseconds. Includes the fan-out's window and up to 2 ms until the
    /// client looks.
    pub latency_p50_ms: Option<f64>,
    /// 99th percentile.
    pub latency_p99_ms: Option<f64>,
    /// The oldest.
    pub latency_max_ms: Option<f64>,
}

/// The gateway's traffic, counted by the other ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficFigures {
    /// Messages to the gateway, per second.
    pub messages_in_per_s: f64,
    /// Messages from the gateway, per second.
    pub messages_out_per_s: f64,
    /// Bytes to the gateway, per second.
    pub bytes_in_per_s: f64,
    /// Bytes from the gateway, per second.
    pub bytes_out_per_s: f64,
}

/// Clients' numbered calls in all of the run: each is to arrive at exactly one world server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallFigures {
    /// Calls that clients made.
    pub made: u64,
    /// Those that arrived nowhere. Those under way in a process that is killed are among them.
    pub lost: u64,
    /// Arrivals of calls that had arrived already.
    pub doubled: u64,
    /// Arrivals after a later call of the same client. Two servers' sockets are not read in the order of sending, so a
    /// handover may make one of them without the gateway's doing.
    pub out_of_order: u64,
    /// Handovers meanwhile.
    pub handovers: u64,
    /// From the client to its server, median, in milliseconds.
    pub latency_p50_ms: Option<f64>,
    /// 99th percentile.
    pub latency_p99_ms: Option<f64>,
    /// Answers that reached clients, per second.
    pub answers_per_s: f64,
}

/// A process was killed with SIGKILL, and started again at once. World servers of the scene spatial share a process: one of them
/// has its socket closed without a word, forgets all, and comes back after a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutageFigures {
    /// Which one.
    pub killed: Victim,
    /// From the kill until the new process was there: the gateway answered, or the world server had got everything back.
    /// `null` if it has not come back.
    pub restart_ms: Option<f64>,
    /// The longest time without an update of the median client, in milliseconds. About 33 if nothing happens.
    pub silence_ms_median: f64,
    /// The same of the client that waited longest.
    pub silence_ms_max: f64,
    /// The longest time in which the server of a client did not answer its calls, of the median client, in milliseconds.
    /// `null` if no client has reported.
    pub unanswered_ms_median: Option<f64>,
    /// The same of the client that waited longest.
    pub unanswered_ms_max: Option<f64>,
    /// One world server of several: the longest way between where one of its players was last for the server, and where the
    /// gateway had kept it, in metres. A part of it is the way since the server's last frame.
    pub state_off_m_max: Option<f32>,
    /// Several world servers: players that two of them had, when one got its players back or at the end, by what the gateway had told
    /// each of them.
    pub owned_twice: Option<u32>,
    /// Several world servers: players that none of them had at the end.
    pub owned_by_none: Option<u32>,
    /// One world server of several: calls that were lost, without one row of successive calls of each client whose server had died.
    pub unexcused_calls_lost: Option<u64>,
    /// Players of all world servers before the kill.
    pub players_before: u32,
    /// Their players at the end.
    pub players_after: u32,
    /// Clients that are subscribed at the end.
    pub joined: u32,
    /// Connections of clients that broke and were not made again.
    pub connections_lost: u32,
}

/// The cost of idle connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IdleFigures {
    /// Processor time by wall time, before the clients came.
    pub cpu_cores_before: Option<f64>,
    /// Processor time by wall time, with all of them.
    pub cpu_cores: Option<f64>,
    /// Growth of resident memory for each of them.
    pub rss_bytes_per_connection: Option<f64>,
}

/// The cost of the load itself, and whether it was fast enough.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DriverFigures {
    /// Processor time of the clients by wall time; they have one thread.
    pub clients_cpu_cores: f64,
    /// Processor time of the world servers by wall time; they have one thread.
    pub world_cpu_cores: f64,
    /// How late the clients looked at their sockets, 99th percentile, in milliseconds; `null` if they have not reported.
    pub late_p99_ms: Option<f64>,
    /// Calls or updates that clients sent, by those that were due; `null` if they have not reported.
    pub sent_ratio: Option<f64>,
    /// Malformed frames; `null` if the clients have not reported.
    pub garbled: Option<u64>,
    /// Frames of the world servers that were begun in time, by those that were due; `null` if none was, or they have not reported.
    #[serde(default)]
    pub world_in_time_ratio: Option<f64>,
}

/// Figures from elsewhere, for orientation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reference {
    /// How many clients.
    pub clients: u32,
    /// Updates per second of the median client.
    pub update_hz_median: Option<f64>,
    /// Updates per second of the slowest client.
    pub update_hz_min: Option<f64>,
    /// Updates delivered by updates due.
    pub delivered_ratio: f64,
    /// Median age of an update, in milliseconds.
    pub latency_p50_ms: f64,
    /// 99th percentile.
    pub latency_p99_ms: f64,
    /// Messages from the gateway, per second.
    pub messages_out_per_s: f64,
    /// Processor time of the gateway by wall time.
    pub cpu_cores: f64,
    /// The measurement, and its place.
    pub origin: String,
}

/// A second of the measured part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    /// Since the measured part began.
    pub time_s: f64,
    /// Connections of clients that stand.
    pub connections: u32,
    /// Channels as the gateway counts them.
    pub channels: Option<f64>,
    /// Processor time of the gateway by wall time.
    pub gateway_cpu_cores: Option<f64>,
    /// Resident memory of the gateway.
    pub gateway_rss_bytes: Option<u64>,
    /// The longest of the gateway's last channel ticks, in milliseconds.
    pub channel_tick_ms: Option<f64>,
    /// Frames per second of a world server.
    pub world_frame_hz: f64,
    /// Messages to the gateway.
    pub messages_in_per_s: f64,
    /// Messages from the gateway.
    pub messages_out_per_s: f64,
    /// Bytes to the gateway.
    pub bytes_in_per_s: f64,
    /// Bytes from the gateway.
    pub bytes_out_per_s: f64,
    /// Entities that went to another cell.
    pub handovers_per_s: f64,
    /// Updates that reached clients.
    pub updates_per_s: f64,
    /// Updates that there should have been.
    pub ideal_updates_per_s: f64,
    /// Median age of what decoding clients saw, in milliseconds.
    pub latency_p50_ms: Option<f64>,
    /// 99th percentile.
    pub latency_p99_ms: Option<f64>,
    /// Processor time of the clients by wall time.
    pub clients_cpu_cores: f64,
    /// Processor time of the world servers by wall time.
    pub world_cpu_cores: f64,
}

impl GatewaySummary {
    /// Checks that the load was as planned. Bad results of the gateway do not make the run invalid: they are its
    /// result.
    pub(super) fn conclude(&mut self) {
        let driver = &self.driver;
        let mut reasons = Vec::new();
        for (name, cores) in [("clients", driver.clients_cpu_cores), ("world servers", driver.world_cpu_cores)] {
            if cores > DRIVER_CORES_MAX {
                reasons.push(format!("the {name} were overloaded: {cores:.2} of one core"));
            }
        }
        if let Some(late_ms) = driver.late_p99_ms.filter(|&late_ms| late_ms > LATE_P99_MAX_MS) {
            reasons.push(format!("the clients were late: p99 {late_ms:.1} ms"));
        }
        if let Some(sent) = driver.sent_ratio.filter(|&sent| sent < SENT_RATIO_MIN) {
            reasons.push(format!("only {:.1} % of the clients' messages were sent", sent * 100.0));
        }
        if let Some(in_time) = driver.world_in_time_ratio.filter(|&in_time| in_time < SENT_RATIO_MIN) {
            reasons.push(format!("the world servers began only {:.1} % of their frames in time", in_time * 100.0));
        }
        if let Some(garbled) = driver.garbled.filter(|&garbled| garbled > 0) {
            reasons.push(format!("the clients received {garbled} malformed frames"));
        }
        let silent = [
            ("how late the clients were", driver.late_p99_ms.is_none()),
            ("the share of their messages that were sent", driver.sent_ratio.is_none()),
            ("malformed frames", driver.garbled.is_none()),
        ];
        let silent: Vec<&str> = silent.into_iter().filter_map(|(name, is_silent)| is_silent.then_some(name)).collect();
        if !silent.is_empty() {
            reasons.push(format!("not measured: {}", silent.join(", ")));
        }
        self.head.conclude(reasons);
    }
}

#[cfg(any(test, feature = "examples"))]
impl GatewaySummary {
    /// A run with nothing wrong.
    pub fn example(scene: Scene) -> GatewaySummary {
        GatewaySummary {
            head: RunHead::example(throng_report::Kind::Gateway),
            scene,
            clients: 450,
            profile: "constant".to_owned(),
            edges: 0,
            transport: Transport::Tcp,
            gateway: GatewayFigures {
                name: "throng gateway".to_owned(),
                cpu_cores: Some(0.75),
                rss_bytes: Some(40 << 20),
                rss_bytes_per_connection: Some(81_920.0),
                cpu_s_per_million_updates: Some(12.5),
                channel_tick_max_ms: Some(3.25),
                measuring_ms_per_s: Some(0.6),
                measuring_share: Some(0.0006),
                ..GatewayFigures::default()
            },
            world: WorldFigures {
                servers: 1,
                frame_hz: 30.0,
                stalled_frames: Some(0),
                handovers_per_s: 0.0,
                resubscriptions_per_s: Some(0.0),
            },
            client: Some(ClientFigures {
                joined: 450,
                update_hz_median: 30.0,
                update_hz_min: 29.9,
                updates: 135_000,
                ideal_updates: 135_000.0,
                delivered_ratio: 1.0,
                latency_p50_ms: Some(23.4),
                latency_p99_ms: Some(41.5),
                latency_max_ms: Some(55.0),
                ..ClientFigures::default()
            }),
            traffic: TrafficFigures { messages_out_per_s: 40_500.0, ..TrafficFigures::default() },
            calls: Some(CallFigures { made: 202_500, lost: 3, ..CallFigures::default() }),
            outage: None,
            idle: None,
            driver: DriverFigures {
                clients_cpu_cores: 0.3,
                late_p99_ms: Some(0.5),
                sent_ratio: Some(1.0),
                garbled: Some(0),
                world_in_time_ratio: Some(1.0),
                ..DriverFigures::default()
            },
            references: super::published::references(scene),
            series: vec![Second::default()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_from_json_as_it_was() {
        let run = GatewaySummary::example(Scene::Spatial);
        let back: GatewaySummary = serde_json::from_str(&throng_report::to_json(&run)).unwrap();
        assert_eq!(back, run);
    }

    #[test]
    fn a_load_that_is_too_slow_makes_no_valid_run_and_a_gateway_that_is_does() {
        let concluded = |change: fn(&mut GatewaySummary)| {
            let mut run = GatewaySummary::example(Scene::SingleUnreal);
            change(&mut run);
            run.conclude();
            (run.head.valid, run.head.invalid_reasons)
        };
        let slow_gateway = concluded(|run| run.client.as_mut().unwrap().delivered_ratio = 0.1);
        assert!(slow_gateway.0, "{:?}", slow_gateway.1);
        let changes: [fn(&mut GatewaySummary); 9] = [
            |run| run.driver.world_in_time_ratio = Some(0.67),
            |run| run.head.others_cpu_cores = Some(0.5),
            |run| run.driver.clients_cpu_cores = 0.99,
            |run| run.driver.world_cpu_cores = 0.99,
            |run| run.driver.late_p99_ms = Some(60.0),
            |run| run.driver.sent_ratio = Some(0.5),
            |run| run.driver.garbled = Some(1),
            |run| (run.driver.late_p99_ms, run.driver.sent_ratio, run.driver.garbled) = (None, None, None),
            |run| run.head.environment.profile = "debug".to_owned(),
        ];
        for change in changes {
            let (valid, reasons) = concluded(change);
            assert!(!valid && reasons.len() == 1, "{reasons:?}");
        }
    }
}
