//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use throng_lab::Key;
use throng_lab::scenario::{Model, NetPreset, Overrides, Scratch};

use crate::compare::CompareArguments;
use crate::gateway::GatewayArguments;
use crate::gateway_bench::{self, GatewayBenchArguments};
use crate::gateway_replay::GatewayReplayArguments;
use crate::publish::PublishArguments;
use crate::top::{self, TopArguments};

/// The command that the bots' process of a run is started with.
pub(crate) const BOTS_FOR_RUN: &str = "bots-for-run";

/// The key of `serve` and `bots` unless another is given: fit for a machine of one's own, and for nothing else.
const LAB_KEY: [u8; 32] = *b"throng-lab-key-public-no-secret!";

const ABOUT: &str = "How many players does this machine hold in one place?";

const LONG_ABOUT: &str = "\
How many players does this machine hold in one place?

`throng crowd` plays a workload: a server, and bots in a second process that do everything a client does, over UDP on
this machine. It prints a table and writes a report with plots.

  throng crowd                           1,000 players in 100 m x 100 m
  throng crowd --scenario dense --pin    100 players who all see each other; server and bots on cores of their own
  throng crowd --players 300 --net wifi  fewer, over a conditioned link
  throng crowd --scenario mine.toml      a workload of your own (scenarios/README.md)";

const EXIT_CODES: &str = "\
Exit codes: 0 all went well; 1 the run failed; 2 a wrong argument, scenario or folder; 3 the run's figures may not be
quoted, and the report says why; 130 interrupted twice.";

#[derive(Debug, Parser)]
#[command(name = "throng", version, about = ABOUT, long_about = LONG_ABOUT, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Play a workload with a server and bots on this machine, and report
    Crowd(CrowdArguments),
    /// Play a workload with one replication model after the other, and print one table
    Compare(CompareArguments),
    /// Make the published page from the folders of comparisons
    Publish(PublishArguments),
    /// Serve a workload, for bots that run elsewhere
    Serve(ServeArguments),
    /// Play the bots of a workload against a server
    Bots(BotsArguments),
    /// Join many servers and many clients; speaks channeld's protocol and takes its flags
    Gateway(GatewayArguments),
    /// Put a gateway under load, ours or another that speaks channeld's protocol, and report
    GatewayBench(Box<GatewayBenchArguments>),
    /// Play a session that a gateway has recorded against a gateway
    GatewayReplay(GatewayReplayArguments),
    /// Watch a running gateway in the terminal
    #[command(long_about = top::LONG_ABOUT)]
    Top(TopArguments),
    /// Make report.html anew from the summary.json of a run
    Report(ReportArguments),
    /// The second process of `crowd`
    #[command(name = "bots-for-run", hide = true)]
    BotsForRun,
    /// The world servers' process of `gateway-bench`
    #[command(name = gateway_bench::WORLD_FOR_BENCH, hide = true)]
    WorldForBench,
    /// The clients' process of `gateway-bench`
    #[command(name = gateway_bench::CLIENTS_FOR_BENCH, hide = true)]
    ClientsForBench,
}

/// What every command that plays takes.
#[derive(Debug, Args)]
pub(crate) struct Workload {
    /// A named workload (crowd, crowd-10k, dense, sparse, sparse-10, sparse-20, converge) or a TOML file
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "crowd")]
    pub(crate) scenario: String,
    /// How many play
    #[arg(long, value_name = "N")]
    players: Option<u32>,
    /// Ticks, and inputs of each player, per second
    #[arg(long, value_name = "HZ")]
    rate: Option<u32>,
    /// Side of the square in which they play, in metres
    #[arg(long, value_name = "M")]
    area: Option<f32>,
    /// Length of the measured part, in seconds
    #[arg(long, value_name = "S")]
    seconds: Option<u32>,
    /// Length of the part before that is not measured, in seconds
    #[arg(long, value_name = "S")]
    warmup: Option<u32>,
    /// Seed of everything random in the world and in the bots
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl Workload {
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            players: self.players,
            tick_hz: self.rate,
            input_hz: self.rate,
            area_m: self.area,
            seconds: self.seconds,
            warmup_seconds: self.warmup,
            seed: self.seed,
            ..Overrides::default()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct CrowdArguments {
    #[command(flatten)]
    pub(crate) workload: Workload,
    /// What may be sent to one client, headers included, in kbit/s
    #[arg(long, value_name = "KBIT")]
    budget: Option<u32>,
    /// The link that the bots play over: none, lan, wifi, 4g or bad
    #[arg(long, value_name = "PRESET", value_parser = net_preset)]
    net: Option<NetPreset>,
    /// Objects all over the area that never change
    #[arg(long, value_name = "COUNT")]
    idle_objects: Option<u32>,
    /// Threads that the server encodes, writes, seals and sends with
    #[arg(long, value_name = "T")]
    server_threads: Option<u32>,
    /// Give the server the first core, and the bots the next
    #[arg(long)]
    pin: bool,
    /// The server's replication model: legacy, legacy-push, graph, shared-state or throng
    #[arg(long, value_name = "MODEL", value_parser = model)]
    model: Option<Model>,
    /// With --model shared-state: where its lists are, per-connection or shared
    #[arg(long, value_name = "WHERE", value_parser = scratch)]
    scratch: Option<Scratch>,
    /// With --model shared-state: write positions as distances from those that a client is known to hold
    #[arg(long)]
    baselines: bool,
    /// The folder in which the run's folder is made
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub(crate) runs: PathBuf,
    /// Print the summary as JSON (docs/run-summary.md) instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// Show no progress
    #[arg(long)]
    pub(crate) quiet: bool,
}

impl CrowdArguments {
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            budget_kbit_per_s: self.budget,
            net: self.net,
            idle_objects: self.idle_objects,
            server_threads: self.server_threads,
            pin: self.pin,
            model: self.model,
            scratch: self.scratch,
            baselines: self.baselines,
            ..self.workload.overrides()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) workload: Workload,
    /// The address to serve at
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7777")]
    pub(crate) listen: SocketAddr,
    /// The address under which clients know the server, if it is another: needed with 0.0.0.0
    #[arg(long, value_name = "ADDR")]
    pub(crate) public: Option<SocketAddr>,
    /// Threads that the server encodes, writes, seals and sends with
    #[arg(long, value_name = "T")]
    server_threads: Option<u32>,
    #[command(flatten)]
    key: KeyArgument,
}

impl ServeArguments {
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides { server_threads: self.server_threads, ..self.workload.overrides() }
    }

    pub(crate) fn key(&self) -> Key {
        self.key.get()
    }
}

#[derive(Debug, Args)]
pub(crate) struct BotsArguments {
    /// The server's address
    #[arg(long, value_name = "ADDR")]
    pub(crate) connect: SocketAddr,
    #[command(flatten)]
    pub(crate) workload: Workload,
    /// The link to play over: none, lan, wifi, 4g or bad
    #[arg(long, value_name = "PRESET", value_parser = net_preset)]
    net: Option<NetPreset>,
    /// The server is not on this machine, and it is yours to put under load
    #[arg(long)]
    pub(crate) i_own_this_target: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    key: KeyArgument,
}

impl BotsArguments {
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides { net: self.net, ..self.workload.overrides() }
    }

    pub(crate) fn key(&self) -> Key {
        self.key.get()
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// The folder of a run: runs/...
    pub(crate) folder: PathBuf,
    /// Print the table too
    #[arg(long)]
    pub(crate) table: bool,
}

#[derive(Debug, Args)]
struct KeyArgument {
    /// The key shared by server and bots, 64 hexadecimal digits; without it a public one, for a machine of your own
    #[arg(long, value_name = "HEX", value_parser = parse_key)]
    key: Option<[u8; 32]>,
}

impl KeyArgument {
    fn get(&self) -> Key {
        Key::new(self.key.unwrap_or(LAB_KEY))
    }
}

fn net_preset(text: &str) -> Result<NetPreset, String> {
    let known = NetPreset::ALL.iter().find(|(name, _)| *name == text);
    known.map(|&(_, preset)| preset).ok_or_else(|| "use none, lan, wifi, 4g or bad".to_owned())
}

fn model(text: &str) -> Result<Model, String> {
    let known = Model::ALL.iter().find(|(name, _)| *name == text);
    known.map(|&(_, model)| model).ok_or_else(|| "use legacy, legacy-push, graph, shared-state or throng".to_owned())
}

fn scratch(text: &str) -> Result<Scratch, String> {
    let known = Scratch::ALL.iter().find(|(name, _)| *name == text);
    known.map(|&(_, scratch)| scratch).ok_or_else(|| "use per-connection or shared".to_owned())
}

fn parse_key(text: &str) -> Result<[u8; 32], String> {
    let wrong = || "a key has 64 hexadecimal digits".to_owned();
    if text.len() != 64 || !text.is_ascii() {
        return Err(wrong());
    }
    let mut key = [0; 32];
    for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_key_is_hexadecimal() {
        assert_eq!(parse_key(&"0f".repeat(32)), Ok([15; 32]));
        assert!(
            parse_key("0f").is_err() && parse_key(&"zz".repeat(32)).is_err() && parse_key(&"é".repeat(32)).is_err()
        );
    }
}
