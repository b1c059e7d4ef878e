use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::meter::Subsystem;
use throng_report::{FrameHistogram, with_room};

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

impl Samples {
    /// No seconds, with [room](with_room) for so many.
    pub fn with_room(seconds: usize) -> Samples {
        Samples { frames: with_room(seconds, u64::MAX), late: with_room(seconds, u64::MAX) }
    }
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

/// A [`Second`], and the same values of many seconds in a [`SecondSeries`].
macro_rules! seconds {
    ($($(#[$about:meta])* $name:ident: $kind:ty;)*) => {
        /// The values of one second.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct Second {
            $($(#[$about])* pub $name: $kind,)*
        }

        /// Values that are sampled once per second; in a long run, of every second, fourth, ... second.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        pub struct SecondSeries {
            $($(#[$about])* pub $name: Vec<$kind>,)*
        }

        impl SecondSeries {
            /// No seconds, with [room](with_room) for [`Series::MAX_POINTS`].
            pub fn with_room() -> SecondSeries {
                let filler = Second { $($name: <$kind>::from(f64::NAN),)* };
                SecondSeries { $($name: with_room(Series::MAX_POINTS, filler.$name),)* }
            }

            /// Adds a second.
            pub fn push(&mut self, second: &Second) {
                $(self.$name.push(second.$name);)*
            }

            /// Forgets every second point, the last one first if there is an even number of them.
            pub fn halve(&mut self) {
                $(thin(&mut self.$name);)*
            }
        }
    };
}

seconds! {
    /// Seconds since the start of the measured part.
    time_s: f64;
    /// Players that were to play.
    #[serde(default)]
    players_wanted: f64;
    /// Connections.
    connections: f64;
    /// Mean UDP payload to a client.
    kbit_per_s: f64;
    /// 99th percentile of the age of near neighbours' state; `null` without samples.
    near_age_p99_ms: Option<f64>;
    /// Datagrams that counted as lost, divided by datagrams sent.
    loss_ratio: f64;
    /// Segments sent again per second.
    resent_segments_per_s: f64;
    /// Cohorts per channel and frame.
    cohorts_per_channel: f64;
    /// Frames encoded per tick.
    frames_encoded_per_tick: f64;
    /// Frames sent to subscriptions, divided by frames encoded.
    subscriptions_per_frame: f64;
    /// Processor time of the server by wall time.
    server_cpu_cores: f64;
    /// Processor time of the bots by wall time.
    bots_cpu_cores: f64;
}

fn thin<T>(values: &mut Vec<T>) {
    let mut index = 0;
    values.retain(|_| {
        index += 1;
        index % 2 == 1
    });
}
