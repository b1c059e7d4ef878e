use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::meter::Subsystem;

use crate::Split;

/// Ticks of each second of the measured part, whole and exact: what thresholds are judged by. A run has at most 86,400 seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Samples {
    /// Ticks that were due.
    pub frames: Vec<u64>,
    /// Of these, ticks that took longer than a tick, or were never played.
    pub late: Vec<u64>,
}

/// Curves for plots. All lists of a group are of the same length, at most [`Series::MAX_POINTS`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Frame times; where there are more frames than points, the longest frame of each stretch.
    pub frames: FrameSeries,
    /// How many frames took how long.
    #[serde(default)]
    pub histogram: FrameHistogram,
    /// One point per second, or per two, four, ... seconds.
    pub seconds: SecondSeries,
}

impl Series {
    /// Most points of a curve.
    pub const MAX_POINTS: usize = 2000;
}

/// Frame times by subsystem, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the subsystems are described at Split")]
pub struct FrameSeries {
    /// Seconds since the start of the measured part.
    pub time_s: Vec<f64>,
    pub simulate: Vec<f64>,
    pub interest: Vec<f64>,
    pub quantise: Vec<f64>,
    pub plan: Vec<f64>,
    pub encode: Vec<f64>,
    pub write: Vec<f64>,
    pub seal: Vec<f64>,
    pub send: Vec<f64>,
    pub receive: Vec<f64>,
    pub open: Vec<f64>,
    pub settle: Vec<f64>,
    pub other: Vec<f64>,
    pub total: Vec<f64>,
    /// Ticks that were due and not played since the point before; empty in older summaries.
    #[serde(default)]
    pub missed: Vec<u64>,
}

impl FrameSeries {
    /// The curve of a subsystem; that of `other` for one that is no stage of the server.
    pub fn curve(&self, subsystem: Subsystem) -> &[f64] {
        let place = Split::place(subsystem).unwrap_or(Split::ORDER.len() - 1);
        stages!(FrameSeries, self)[place]
    }
}

/// Frames by their working time, in bars of equal width. A curve of thousands of frames hides that there are two kinds of
/// them; this shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrameHistogram {
    /// Where each bar begins, in milliseconds. It ends where the next one begins.
    pub from_ms: Vec<f64>,
    /// Frames of each bar.
    pub frames: Vec<u64>,
}

/// The values of one second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds since the start of the measured part.
    pub time_s: f64,
    /// Players that were to play.
    pub players_wanted: f64,
    /// Connections.
    pub connections: f64,
    /// Mean UDP payload to a client.
    pub kbit_per_s: f64,
    /// 99th percentile of the age of near neighbours' state; `null` without samples.
    pub near_age_p99_ms: Option<f64>,
    /// Datagrams that counted as lost, divided by datagrams sent.
    pub loss_ratio: f64,
    /// Segments sent again per second.
    pub resent_segments_per_s: f64,
    /// Cohorts per channel and frame.
    pub cohorts_per_channel: f64,
    /// Frames encoded per tick.
    pub frames_encoded_per_tick: f64,
    /// Frames sent to subscriptions, divided by frames encoded.
    pub subscriptions_per_frame: f64,
    /// Processor time of the server by wall time.
    pub server_cpu_cores: f64,
    /// Processor time of the bots by wall time.
    pub bots_cpu_cores: f64,
}

/// Values that are sampled once per second; in a long run, of every second, fourth, ... second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecondSeries {
    /// Seconds since the start of the measured part.
    pub time_s: Vec<f64>,
    /// Players that were to play.
    #[serde(default)]
    pub players_wanted: Vec<f64>,
    /// Connections.
    pub connections: Vec<f64>,
    /// Mean UDP payload to a client.
    pub kbit_per_s: Vec<f64>,
    /// 99th percentile of the age of near neighbours' state; `null` without samples.
    pub near_age_p99_ms: Vec<Option<f64>>,
    /// Datagrams that counted as lost, divided by datagrams sent.
    pub loss_ratio: Vec<f64>,
    /// Segments sent again per second.
    pub resent_segments_per_s: Vec<f64>,
    /// Cohorts per channel and frame.
    pub cohorts_per_channel: Vec<f64>,
    /// Frames encoded per tick.
    pub frames_encoded_per_tick: Vec<f64>,
    /// Frames sent to subscriptions, divided by frames encoded.
    pub subscriptions_per_frame: Vec<f64>,
    /// Processor time of the server by wall time.
    pub server_cpu_cores: Vec<f64>,
    /// Processor time of the bots by wall time.
    pub bots_cpu_cores: Vec<f64>,
}

impl SecondSeries {
    /// Adds a second.
    pub fn push(&mut self, second: &Second) {
        self.time_s.push(second.time_s);
        self.players_wanted.push(second.players_wanted);
        self.connections.push(second.connections);
        self.kbit_per_s.push(second.kbit_per_s);
        self.near_age_p99_ms.push(second.near_age_p99_ms);
        self.loss_ratio.push(second.loss_ratio);
        self.resent_segments_per_s.push(second.resent_segments_per_s);
        self.cohorts_per_channel.push(second.cohorts_per_channel);
        self.frames_encoded_per_tick.push(second.frames_encoded_per_tick);
        self.subscriptions_per_frame.push(second.subscriptions_per_frame);
        self.server_cpu_cores.push(second.server_cpu_cores);
        self.bots_cpu_cores.push(second.bots_cpu_cores);
    }

    /// Forgets every second point, the last one first if there is an even number of them.
    pub fn halve(&mut self) {
        thin(&mut self.near_age_p99_ms);
        for curve in [
            &mut self.time_s,
            &mut self.players_wanted,
            &mut self.connections,
            &mut self.kbit_per_s,
            &mut self.loss_ratio,
            &mut self.resent_segments_per_s,
            &mut self.cohorts_per_channel,
            &mut self.frames_encoded_per_tick,
            &mut self.subscriptions_per_frame,
            &mut self.server_cpu_cores,
            &mut self.bots_cpu_cores,
        ] {
            thin(curve);
        }
    }
}

fn thin<T>(values: &mut Vec<T>) {
    let mut index = 0;
    values.retain(|_| {
        index += 1;
        index % 2 == 1
    });
}
