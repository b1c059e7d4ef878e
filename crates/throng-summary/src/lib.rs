//! The measurements of a run: a stable format for programs that read them.
//!
//! `docs/run-summary.md` documents every key with its unit; a test keeps it and these types the same. Figures that a run
//! could not measure are `null`, never made up. All numbers are finite.
#![forbid(unsafe_code)]

/// The fields of the stages of a [`Split`] or [`FrameSeries`], in the order of [`Split::ORDER`].
macro_rules! stages {
    ($of:ident, $value:expr) => {{
        let $of { simulate, interest, quantise, plan, encode, write, seal, send, receive, open, settle, other, .. } =
            $value;
        [simulate, interest, quantise, plan, encode, write, seal, send, receive, open, settle, other]
    }};
}

mod counted;
mod example;
pub mod frames;
pub mod neighbours;
mod published;
mod series;
mod targets;
mod workload;

use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng::meter::Subsystem;
use throng_crowd::scenario::{Fault, Model, Scenario};
use throng_report::{Kind, RunFile, RunFileError, RunHead, SUMMARY_FILE};

pub use counted::Counted;
pub use published::Published;
pub use series::{FrameSeries, Samples, Second, SecondSeries, Series};
pub use targets::{Bound, Target};
pub use throng_report::FrameHistogram;

/// Everything that a run measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSummary {
    /// The head that every kind of run has.
    #[serde(flatten)]
    pub head: RunHead,
    /// Name of the scenario.
    pub scenario: String,
    /// Cipher of the packets; empty in summaries of older revisions.
    #[serde(default)]
    pub cipher: String,
    /// Name of the server's replication model.
    #[serde(default = "our_model")]
    pub model: String,
    /// Bots that were asked to connect; with a load profile, the most at once.
    pub players: u32,
    /// Ticks per second.
    pub tick_hz: u32,
    /// The scenario with everything that the command line changed in it: keys of a scenario file.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub settings: Scenario,
    /// The server's work.
    pub server: Server,
    /// The cost of only encrypting and sending the same packets.
    pub floor: Floor,
    /// The parts of the load profile, one by one; a constant load has one part.
    #[serde(default)]
    pub steps: Vec<LoadStep>,
    /// The edges of the run, if it has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<EdgeFigures>,
    /// The servers of the run, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerFigures>,
    /// Losses and refusals of edges and servers: their counters above 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
    /// When the players were spread evenly over the servers for the rest of the measured part, in seconds from its beginning: none has
    /// more than 1.5 times the mean. `null` if they never were, or there is one server.
    #[serde(default)]
    pub servers_even_after_s: Option<f64>,
    /// The load workers that played its bots, if they were on other machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerFigures>,
    /// The faults that the run had on purpose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultFigures>,
    /// The data sent to a client.
    pub client: Client,
    /// The state of other characters at the decoding bots, by distance.
    pub neighbours: Neighbours,
    /// The bots' results.
    pub bots: Bots,
    /// State that a decoding client was sent, by kind and field, the largest first.
    #[serde(default)]
    pub fields: Vec<FieldBytes>,
    /// The clients that fare worst, five for each reason.
    #[serde(default)]
    pub worst_clients: Vec<WorstClient>,
    /// The first objects that differed from the servers' state, with all that is known of them: at most [`DIFFERENCES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
    /// Packets.
    pub network: Network,
    /// Counters of the replication core.
    pub replication: Replication,
    /// The stated targets for this scenario, and what was measured.
    pub targets: Vec<Target>,
    /// Figures published for comparable systems.
    pub published: Vec<Published>,
    /// Ticks by second; empty in older summaries.
    #[serde(default)]
    pub samples: Samples,
    /// Curves for plots; the published summaries have none.
    #[serde(default)]
    pub series: Series,
}

/// A process between the server and its clients. All is 0 or `null` of one that did not report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EdgeFigures {
    /// Clients, mean.
    pub connections: f64,
    /// Working time of a tick, 99th percentile, in milliseconds.
    pub frame_p99_ms: Option<f64>,
    /// Working time per tick and client, in microseconds.
    pub us_per_connection: Option<f64>,
    /// Processor time by wall time.
    pub cpu_cores: f64,
    /// State that came from the server.
    pub kbit_per_s_from_server: f64,
    /// Objects of which it had a copy at the end.
    pub objects: u64,
    /// Inputs, messages and objects that it dropped or refused since its start.
    pub dropped: u64,
    /// How often it counted the server's ticks anew.
    pub recounts: u64,
    /// Ticks in which the newest news of a server was more than 3 ticks old.
    #[serde(default)]
    pub ticks_without_news: u64,
}

/// Something that an edge, or a server towards its edges, has lost or refused since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Loss {
    /// The process: `edge 1`, or `server 1`.
    pub process: String,
    /// The name of its counter: `inputs_dropped`.
    pub counter: String,
    /// How often.
    pub count: u64,
}

/// A load worker: a process, on another machine perhaps, that played a part of the bots. All is 0 or `null` of one that did not report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerFigures {
    /// Its address.
    pub address: String,
    /// Whether it has left no report.
    pub missing: bool,
    /// Bots that connected.
    pub connected: u32,
    /// Processor time of its bots by wall time.
    pub cpu_cores: f64,
    /// Inputs sent by inputs due.
    pub inputs_sent_ratio: f64,
    /// How late an input was sent, 99th percentile, in milliseconds.
    pub input_delay_p99_ms: Option<f64>,
    /// Whether it was too slow for valid measurements.
    pub saturated: bool,
    /// Its clock minus the clock of the run, in milliseconds, at the end.
    pub clock_offset_ms: Option<f64>,
    /// How far the offset was off at most in the measured part, in milliseconds: so far may each age of it be off.
    pub clock_error_ms: Option<f64>,
    /// Whether the ages of its bots are part of the figures. They are not if the error of the clock is larger than they are.
    pub ages_usable: bool,
    /// Snapshots of the server's state that it was sent.
    pub snapshots: u64,
}

/// A fault that the run had on purpose, and the bots that it met: those without service for more than 500 ms. Service is the
/// acknowledgement of an input of the last 500 ms for a bot that decodes, and a packet for the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FaultFigures {
    /// The fault, as it was asked for: `kill:edge-1:4s`.
    pub fault: String,
    /// Bots that it met.
    pub bots: u32,
    /// The longest time without service, in milliseconds; `null` if it met nobody.
    pub longest_gap_ms: Option<f64>,
    /// From the end of the fault until all bots that it met and that were served again were so, in milliseconds.
    pub served_again_ms: Option<f64>,
    /// Bots that were not served again before the end of the measured part.
    pub unserved: u32,
    /// Writes that a slow disk delayed, or datagrams that a slow consumer read late; `null` of other faults.
    #[serde(default)]
    pub delayed: Option<u64>,
    /// Frames and seconds that found no room while the disk was slow, or datagrams that found none while the consumer was;
    /// `null` of other faults.
    #[serde(default)]
    pub lost: Option<u64>,
}

/// One of several servers that share the area. All is 0 or `null` of one that did not report. The figures of one
/// that was restarted are those of its last process, but for `players_by_second`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerFigures {
    /// Players, mean.
    pub players: f64,
    /// Working time of a tick, 99th percentile, in milliseconds.
    pub frame_p99_ms: Option<f64>,
    /// Processor time by wall time.
    pub cpu_cores: f64,
    /// Ticks that were due and not played.
    pub missed_ticks: u64,
    /// Characters that came from other servers.
    pub arrived: u64,
    /// Characters that went on here as they were at a server that is gone.
    #[serde(default)]
    pub resumed: u64,
    /// Characters that went to other servers.
    pub released: u64,
    /// Players at the beginning of each second.
    #[serde(default)]
    pub players_by_second: Vec<u32>,
}

/// A median and a tail. `null` where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
}

/// A time of a frame, or of a connection's share of it, split by subsystem. The parts add up to `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Split {
    /// Game code: moving the characters.
    pub simulate: f64,
    /// Deciding who is subscribed to what.
    pub interest: f64,
    /// Quantising and comparing touched objects.
    pub quantise: f64,
    /// Deciding which updates are due.
    pub plan: f64,
    /// Encoding frames of channels.
    pub encode: f64,
    /// Putting segments into connections' packets.
    pub write: f64,
    /// Encrypting packets.
    pub seal: f64,
    /// Handing packets to the kernel.
    pub send: f64,
    /// Taking packets from the kernel.
    pub receive: f64,
    /// Finding the packets' connections, and decrypting them.
    pub open: f64,
    /// Acknowledgements, delivery records, inputs and messages.
    pub settle: f64,
    /// The rest of the frame.
    pub other: f64,
    /// The whole.
    pub total: f64,
}

/// The server's work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Server {
    /// Connections during the measured part (mean).
    pub connections: f64,
    /// Ticks in the measured part.
    pub ticks: u64,
    /// Ticks that were due and never played, because those before them took too long.
    pub missed_ticks: u64,
    /// Ticks that were played and ended after the next one was due.
    #[serde(default)]
    pub late_ticks: u64,
    /// Ticks played per second.
    #[serde(default)]
    pub held_hz: f64,
    /// How fast the world played: 1 is real time, less is slow motion.
    #[serde(default)]
    pub world_speed: f64,
    /// From the instant for which a tick was planned to its end, in milliseconds; ticks that were never played count too.
    #[serde(default)]
    pub after_plan_ms: FrameMs,
    /// Length of a tick.
    pub tick_ms: f64,
    /// Working time of a frame.
    pub frame_ms: FrameMs,
    /// How the frames at certain percentiles were made up.
    pub frames_at: Vec<FrameAt>,
    /// Mean per connection and tick, in microseconds.
    pub us_per_connection: Split,
    /// The halves of `send` on loopback, where the sender's core does the receiver's work too.
    pub send_on_loopback: SendOnLoopback,
    /// Processor time by wall time, 1 is one core.
    pub cpu_cores: f64,
    /// Resident memory at the end of the measured part.
    pub rss_bytes: u64,
    /// Growth of resident memory since before the first connection, by connection.
    pub rss_bytes_per_connection: f64,
    /// Events and inputs that were dropped because a limit was reached.
    #[serde(default)]
    pub events_dropped: u64,
    /// Time per tick that the lab spends outside of the frame on measuring.
    #[serde(default)]
    pub measuring_us_per_tick: Option<f64>,
    /// The same divided by the mean frame.
    #[serde(default)]
    pub measuring_share: Option<f64>,
    /// Heap allocations per tick in the measured part, if the program counts them.
    pub steady_state_allocations_per_tick: Option<f64>,
}

/// The halves of `send` on loopback, in microseconds per connection and tick. `null` if they cannot be told apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SendOnLoopback {
    /// The sender's work.
    pub local_us: Option<f64>,
    /// The receiver's work, which a real network leaves to the receiver's machine.
    pub receiver_us: Option<f64>,
    /// The error of both, two standard deviations.
    pub error_us: Option<f64>,
    /// Why they cannot be told apart.
    pub unknown_because: Option<String>,
}

/// Working time of a frame, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrameMs {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile; `null` with fewer than 1,000 frames.
    pub p999: Option<f64>,
    /// Longest.
    pub max: f64,
}

/// The frames around a percentile, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrameAt {
    /// `p50`, `p90`, `p99`, `p99.9` or `max`.
    pub percentile: String,
    /// Mean of the frames around it, in milliseconds.
    pub ms: Split,
}

/// The cost of only encrypting and sending the same packets, measured in the same run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Floor {
    /// Sealing and sending the packets of some of the run's ticks once more; never above what the run spent on it.
    pub ms_per_tick: Option<f64>,
    /// The run's own time for sealing and sending in those ticks.
    #[serde(default)]
    pub run_ms_per_tick: Option<f64>,
    /// The outgoing work of those ticks (interest, quantise, plan, encode, write, seal, send) by the
    /// floor: at least 1.
    pub ratio: Option<f64>,
    /// Datagrams per tick in both.
    pub packets_per_tick: f64,
}

/// A level of the load profile, or a tenth of a ramp. The first fifth of a level after a change (10 s at most) is not judged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadStep {
    /// The judged time begins here, in seconds since the start of the measured part.
    pub from_s: f64,
    /// It ends here.
    pub to_s: f64,
    /// Players that were to play (mean).
    pub players: f64,
    /// Connections (mean).
    pub connections: f64,
    /// Working time of a frame, in milliseconds.
    pub frame_ms: Spread,
    /// Of each second the 99th percentile of the age of near neighbours' state, and of those the median.
    pub near_age_p99_ms: Option<f64>,
    /// Processor time of the server by wall time.
    pub server_cpu_cores: f64,
    /// Ticks that were never played.
    pub missed_ticks: u64,
    /// From here on the means of frames by second are steady; `null` if they never are, or if there are fewer than 6 s.
    pub steady_from_s: Option<f64>,
}

/// The data sent to a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Client {
    /// UDP payload to a client.
    pub kbit_per_s: Rate,
    /// The same with the headers of IP and UDP, which the limit includes: the client at the 99th percentile.
    #[serde(default)]
    pub kbit_per_s_with_headers_p99: f64,
    /// The limit, with the headers of IP and UDP.
    pub budget_kbit_per_s: f64,
    /// Mean UDP payload to a client per second, by purpose.
    pub bytes_per_s: Bytes,
    /// Everything but packet header and seal, by object updates.
    pub object_update_bytes: Mean,
    /// UDP payload by object updates, by purpose.
    pub bytes_per_object_update: Bytes,
    /// Object updates to a client per second.
    pub object_updates_per_s: f64,
    /// Objects that a decoding client holds.
    pub known_objects: Known,
    /// Smallest share, over decoding clients and samples, of the objects within 40 m that the client held.
    pub known_within_40_m: Option<f64>,
}

/// A rate over all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// Mean of the clients.
    pub mean: f64,
    /// The client at the 99th percentile.
    pub p99: f64,
}

/// A mean. `null` where there was nothing to average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mean {
    /// Mean.
    pub mean: Option<f64>,
}

/// How many objects clients hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Known {
    /// 1st percentile over clients and samples.
    pub p1: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
}

/// Bytes by purpose. The parts add up to `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bytes {
    /// All other bytes: packet headers, encryption, messages, acknowledgements.
    pub header: f64,
    /// Object state, sent for the first time.
    pub object: f64,
    /// Object state, sent again.
    pub resend: f64,
    /// Ends of subscriptions.
    pub control: f64,
    /// The whole.
    pub total: f64,
}

/// The state of other characters at decoding bots, compared with the server's state at the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Neighbours {
    /// 0 to 10 m.
    pub near: Band,
    /// 10 to 50 m.
    pub middle: Band,
    /// Beyond.
    pub far: Band,
}

/// One distance band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Band {
    /// Age of the newest applied state.
    pub age_ms: Spread,
    /// Distance between the applied position and the true one.
    pub position_error_m: Spread,
    /// The number of samples.
    pub samples: u64,
}

/// The bots' results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bots {
    /// Whether the bots' process ended without a report. Then its figures here and in `neighbours` say nothing.
    #[serde(default)]
    pub missing: bool,
    /// Bots that connected: of those that were there at the same time, the most.
    pub connected: u32,
    /// Connections that ended before the run did.
    pub disconnects: u32,
    /// How often bots connected again, to another edge, after a fault of the run.
    #[serde(default)]
    pub reconnected: u32,
    /// Inputs that the server could not read.
    #[serde(default)]
    pub bad_inputs: u64,
    /// Bots that decoded everything.
    pub decoded: u32,
    /// Objects whose decoded state differs from the server's state.
    pub state_mismatches: u64,
    /// Objects that were compared with the server's truth at the end, over all decoding bots; those near a bot that it
    /// does not hold count as different.
    pub objects_compared: u64,
    /// Bots that decode and were compared with nothing at the end: a server has left no last state, or they were not connected.
    #[serde(default)]
    pub not_compared: u32,
    /// Objects that were compared with the server's state while everything moved. Only on a path without loss.
    #[serde(default)]
    pub compared_in_play: u64,
    /// The bots had no way to know the server's state while everything moved: those of `throng bots`, which learn it at the end.
    #[serde(default)]
    pub without_truth_in_play: bool,
    /// Objects whose decoded state differed from the server's state while everything moved.
    #[serde(default)]
    pub mismatches_in_play: u64,
    /// Bots that were later than 250 ms with an input.
    #[serde(default)]
    pub stalled: u32,
    /// Processor time by wall time, 1 is one core.
    pub cpu_cores: f64,
    /// Cores that the bots may use.
    pub cores_available: f64,
    /// Inputs sent, divided by inputs due.
    pub inputs_sent_ratio: f64,
    /// How late a bot's input was, 99th percentile.
    pub input_delay_p99_ms: Option<f64>,
    /// Whether the bots were too slow for valid measurements.
    pub saturated: bool,
}

/// The state of a field of a kind, counted by the decoding bots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FieldBytes {
    /// Name of the kind.
    pub kind: String,
    /// Name of the field; `slot, id and mask` for the bits before the fields.
    pub field: String,
    /// Bytes per client and second.
    pub bytes_per_s: f64,
}

/// A client that fares worse than others. Figures that nobody measured are `null`: only decoding bots know ages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorstClient {
    /// Index of its connection at the server.
    pub client: u32,
    /// `most data`, `oldest state` or `least known`.
    pub because: String,
    /// UDP payload that it received.
    pub kbit_per_s: Option<f64>,
    /// Age of the newest applied state of characters within 10 m, 99th percentile.
    pub near_age_p99_ms: Option<f64>,
    /// Smallest share of the objects within 40 m that it held.
    pub known_within_40_m: Option<f64>,
}

/// The most differences that a summary has.
pub const DIFFERENCES: usize = 20;

/// An object of a decoding client that differed from the state of the servers. Values that are not known are `null` or empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// `in play` while everything moved, `at rest` at the end.
    pub when: String,
    /// The cause for which it counts as different, in words.
    pub because: String,
    /// The name of the client as an owner: its client id if the run has edges, else the index of its connection.
    pub client: Option<u32>,
    /// The client's edge, from 1.
    pub edge: Option<u32>,
    /// The object at the client: index and generation.
    pub object: Option<String>,
    /// The tick of its newest update at the client.
    pub seen_tick: Option<u64>,
    /// Where the client shows it, in metres.
    pub seen_m: Option<[f64; 3]>,
    /// Its quantised fields at the client.
    pub seen_words: Vec<u32>,
    /// The server that it belongs to, from 1.
    pub server: Option<u32>,
    /// The object at the server: index and generation.
    pub object_there: Option<String>,
    /// The tick of the server for `seen_tick`.
    pub seen_tick_there: Option<u64>,
    /// The newest tick of which the server has written its state.
    pub newest_tick_there: Option<u64>,
    /// Whether the server was killed, and has been away for a second.
    pub server_is_gone: bool,
    /// The newest tick, of those that are kept, in which the server has the object.
    pub true_tick: Option<u64>,
    /// Where the server has it then, in metres.
    pub true_m: Option<[f64; 3]>,
    /// Its quantised fields then.
    pub true_words: Vec<u32>,
    /// Its owner then. A character that is being handed over has none.
    pub true_owner: Option<u32>,
}

/// Packets, counted by the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Network {
    /// Preset of the link conditioner.
    pub preset: String,
    /// Datagrams to clients.
    pub sent_packets: u64,
    /// Datagrams from clients.
    pub received_packets: u64,
    /// Datagrams that counted as lost, divided by datagrams sent.
    pub loss_ratio: f64,
    /// Segments that were sent again.
    pub resent_segments: u64,
    /// Lost segments that needed no resend because newer state was on its way.
    pub superseded_segments: u64,
    /// Round-trip time as the server estimates it.
    pub rtt_ms: Spread,
    /// Datagrams that the server refused in the measured part, by reason.
    pub refused: Vec<Count>,
    /// Datagrams that the server's kernel did not accept in the measured part.
    #[serde(default)]
    pub send_errors: u64,
}

/// How often something happened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Count {
    /// The stable name of what happened.
    pub tag: String,
    /// How often.
    pub count: u64,
}

/// Counters of the replication core. Means over the ticks of the measured part, unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Replication {
    /// Objects that exist.
    pub objects: f64,
    /// Objects that the game touched per tick.
    pub objects_touched_per_tick: f64,
    /// Channels with at least one subscriber.
    pub channels: f64,
    /// Subscriptions by connections.
    pub subscriptions_per_connection: f64,
    /// Frames encoded per tick.
    pub frames_encoded_per_tick: f64,
    /// Frames sent to subscriptions, divided by frames encoded.
    pub subscriptions_per_frame: f64,
    /// Share of the used frames that another subscription had requested before.
    pub frames_shared_ratio: f64,
    /// Cohorts per channel and frame.
    pub cohorts_per_channel: f64,
    /// Longest delay of a due update in the whole run.
    pub longest_wait_ticks: u64,
    /// Number of seconds, summed over connections, in which a connection was sent more than its budget, in the
    /// measured part.
    pub budget_overruns: u64,
}

/// The model of summaries that do not name one.
fn our_model() -> String {
    Model::Throng.name().to_owned()
}

impl RunSummary {
    /// A summary from JSON. Keys that this version does not know are ignored.
    ///
    /// # Errors
    /// If the text is not a summary, or one of a format that this program does not read.
    pub fn from_json(text: &str) -> Result<RunSummary, RunFileError> {
        RunFile::parse(text, Path::new(SUMMARY_FILE))?.into_figures(Kind::Crowd)
    }

    /// Fills in the targets and the published figures that belong to the scenario, and marks the run invalid for
    /// everything that makes its figures unfit to quote. To be called last.
    pub fn conclude(&mut self) {
        self.published = published::for_run(self);
        self.targets = targets::for_run(self);
        self.head.workload = self.workload();
        let reasons = reasons_against(self);
        self.head.conclude(reasons);
    }
}

impl Split {
    /// The subsystems in the order in which a frame sends and receives, as tables and plots show them.
    pub const ORDER: [Subsystem; Subsystem::STAGES.len()] = [
        Subsystem::SIMULATE,
        Subsystem::INTEREST,
        Subsystem::QUANTISE,
        Subsystem::PLAN,
        Subsystem::ENCODE,
        Subsystem::WRITE,
        Subsystem::SEAL,
        Subsystem::SEND,
        Subsystem::RECEIVE,
        Subsystem::OPEN,
        Subsystem::SETTLE,
        Subsystem::OTHER,
    ];

    /// A split of `total`. A subsystem that is not among the parts has 0, and what is missing from `total` is `other`. If
    /// the parts are longer than `total`, their sum is the total.
    pub fn new(parts: impl IntoIterator<Item = (Subsystem, f64)>, total: f64) -> Split {
        let mut split = Split::default();
        let mut sum = 0.0;
        for (subsystem, value) in parts {
            // A part that is given as other belongs to the rest.
            if let Some(place) = Split::place(subsystem).filter(|_| subsystem != Subsystem::OTHER) {
                *stages!(Split, &mut split)[place] += value;
                sum += value;
            }
        }
        (split.other, split.total) = ((total - sum).max(0.0), total.max(sum));
        split
    }

    /// The place of a stage in [`Split::ORDER`].
    fn place(subsystem: Subsystem) -> Option<usize> {
        Split::ORDER.iter().position(|stage| *stage == subsystem)
    }

    /// One part; `None` for a subsystem that is no stage of the server.
    pub fn part(&self, subsystem: Subsystem) -> Option<f64> {
        Some(stages!(Split, *self)[Split::place(subsystem)?])
    }

    /// The parts, in the order of [`Split::ORDER`].
    pub fn parts(&self) -> impl Iterator<Item = (Subsystem, f64)> + '_ {
        Split::ORDER.into_iter().filter_map(|subsystem| Some((subsystem, self.part(subsystem)?)))
    }

    /// Every part times `factor`.
    pub fn scaled(&self, factor: f64) -> Split {
        Split::new(self.parts().map(|(subsystem, part)| (subsystem, part * factor)), self.total * factor)
    }

    /// The work of sending state: interest, quantise, plan, encode, write, seal and send.
    pub fn outgoing(&self) -> f64 {
        self.replicating() + self.interest + self.seal + self.send
    }

    /// The work of replication itself: quantise, plan, encode and write.
    pub fn replicating(&self) -> f64 {
        self.quantise + self.plan + self.encode + self.write
    }

    /// The work of receiving: receive, open and settle.
    pub fn incoming(&self) -> f64 {
        self.receive + self.open + self.settle
    }
}

impl RunSummary {
    /// The work of encryption in words, with the cipher where the summary has it.
    pub fn encryption(&self) -> String {
        match &*self.cipher {
            "" => "encrypt".to_owned(),
            cipher => format!("encrypt with {cipher}"),
        }
    }
}

impl SendOnLoopback {
    /// The halves cannot be told apart, for this reason.
    pub fn unknown(why: &str) -> SendOnLoopback {
        SendOnLoopback { unknown_because: Some(why.to_owned()), ..SendOnLoopback::default() }
    }
}

impl Bytes {
    /// Parts and their sum.
    pub fn new(header: f64, object: f64, resend: f64, control: f64) -> Bytes {
        Bytes { header, object, resend, control, total: header + object + resend + control }
    }
}

/// A bot that is later than this with an input was stalled: its samples say nothing about the server.
pub const STALL: Duration = Duration::from_millis(250);
/// Loopback loses no packets while the receiver keeps up, but a very late acknowledgement may still count as a loss.
const CLEAN_LOSS_MAX: f64 = 0.005;
/// A busy machine keeps an edge waiting for a server now and then.
const WITHOUT_NEWS_MAX: f64 = 0.01;
/// The share of due inputs below which the bots were too slow.
pub const INPUTS_SENT_MIN: f64 = 0.98;

fn reasons_against(run: &RunSummary) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut unless = |holds: bool, reason: String| {
        if !holds {
            reasons.push(reason);
        }
    };
    if !run.bots.missing {
        against_bots(run, &mut unless);
    }
    for worker in run.workers.iter().filter(|worker| !worker.missing) {
        let WorkerFigures { address, inputs_sent_ratio, saturated, ages_usable, clock_error_ms, .. } = worker;
        let late_ms = worker.input_delay_p99_ms.unwrap_or(0.0);
        unless(!saturated, format!("load worker {address} was overloaded: inputs were late by {late_ms:.1} ms (p99)"));
        unless(
            *inputs_sent_ratio >= INPUTS_SENT_MIN,
            format!("load worker {address} sent only {:.1} % of its inputs", inputs_sent_ratio * 100.0),
        );
        let error_ms = clock_error_ms.unwrap_or(f64::INFINITY);
        unless(
            *ages_usable,
            format!("the ages of load worker {address} are unusable: its clock is known to {error_ms:.1} ms only"),
        );
    }
    // Packets to a process that is killed or stands still are lost. A slow disk loses none.
    let loses = |figures: &FaultFigures| figures.fault.parse::<Fault>().is_ok_and(|fault| fault.kind.loses_packets());
    let is_clean = run.network.preset == "none" && !run.faults.iter().any(loses);
    for FaultFigures { fault, unserved, .. } in &run.faults {
        unless(*unserved == 0, format!("{unserved} bots were not served again after {fault}"));
    }
    unless(run.server.ticks > 0, "the run ended during the warm-up, before the measured part".to_owned());
    let lost = run.network.loss_ratio;
    unless(
        !is_clean || lost <= CLEAN_LOSS_MAX,
        format!("{:.2} % of the packets were lost on a network without simulated loss", lost * 100.0),
    );
    let refused: Vec<String> =
        run.network.refused.iter().map(|refused| format!("{} {}", refused.count, refused.tag)).collect();
    unless(
        !is_clean || refused.is_empty(),
        format!("the server refused datagrams on a network without simulated loss: {}", refused.join(", ")),
    );
    let errors = run.network.send_errors;
    unless(!is_clean || errors == 0, format!("the server's kernel, or its bus, did not accept {errors} datagrams"));
    let without_news: u64 = run.edges.iter().map(|edge| edge.ticks_without_news).sum();
    let share = without_news as f64 / (run.server.ticks.max(1) as f64 * run.edges.len().max(1) as f64);
    unless(
        !is_clean || share <= WITHOUT_NEWS_MAX,
        format!(
            "edges had no news of a server in {:.1} % of the ticks: states were compared less strictly there",
            share * 100.0
        ),
    );
    let dropped = run.server.events_dropped;
    unless(dropped == 0, format!("the server dropped {dropped} events and inputs because its queues were full"));
    unless(run.bots.bad_inputs == 0, format!("the server could not read {} inputs", run.bots.bad_inputs));
    reasons
}

/// By the bots' own report.
fn against_bots(run: &RunSummary, unless: &mut impl FnMut(bool, String)) {
    let bots = &run.bots;
    unless(
        !bots.saturated,
        format!(
            "the bots were overloaded: inputs were late by {:.1} ms (p99), with {:.2} of {} cores",
            bots.input_delay_p99_ms.unwrap_or(0.0),
            bots.cpu_cores,
            bots.cores_available
        ),
    );
    unless(
        bots.inputs_sent_ratio >= INPUTS_SENT_MIN,
        format!("the bots sent only {:.1} % of their inputs", bots.inputs_sent_ratio * 100.0),
    );
    unless(bots.connected >= run.players, format!("only {} of {} bots connected", bots.connected, run.players));
    unless(bots.disconnects == 0, format!("{} connections ended before the run did", bots.disconnects));
    // Bots that decode can have left by the end, and then nothing is compared either.
    unless(
        bots.objects_compared > 0 || bots.missing || bots.decoded.max(run.settings.decoded_bots()) == 0,
        "no decoded object was compared with the server's state".to_owned(),
    );
    unless(
        bots.not_compared == 0,
        format!("{} bots that decode were compared with nothing at the end", bots.not_compared),
    );
    unless(
        bots.state_mismatches == 0,
        format!("{} decoded objects differed from the server's state", bots.state_mismatches),
    );
    let neighbours = [run.neighbours.near, run.neighbours.middle, run.neighbours.far];
    let has_seen_any = neighbours.iter().any(|band| band.samples > 0);
    unless(
        bots.compared_in_play > 0 || bots.without_truth_in_play || !has_seen_any || run.network.preset != "none",
        "no decoded object was compared with the server's state while everything moved".to_owned(),
    );
    unless(
        bots.mismatches_in_play == 0,
        format!("{} decoded objects differed from the server's state while everything moved", bots.mismatches_in_play),
    );
    unless(bots.stalled == 0, format!("{} bots were stalled for more than {} ms", bots.stalled, STALL.as_millis()));
}

#[cfg(test)]
mod tests;
