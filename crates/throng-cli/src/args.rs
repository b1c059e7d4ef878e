//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use throng_lab::Key;
use throng_lab::run::{WorkerPlace, WorkersOptions};
use throng_lab::scenario::{Cipher, Fault, Model, NetPreset, Overrides, Profile, Scratch};

use crate::ai_server::{self, AiServerArguments};
use crate::bake::{self, BakeArguments};
use crate::compare::CompareArguments;
use crate::doctor::{self, DoctorArguments};
use crate::exit::Failure;
use crate::gateway::GatewayArguments;
use crate::gateway_bench::{self, GatewayBenchArguments};
use crate::gateway_replay::GatewayReplayArguments;
use crate::lab::LabArguments;
use crate::live::LiveArgument;
use crate::matches::{self, DensityArguments, MatchArguments};
use crate::number::number;
use crate::play::OutputArguments;
use crate::scale::{self, ScaleArguments};
use crate::top::{self, TopArguments};

/// The largest town that can be asked for: baking it takes some 4 GB.
pub(crate) const TRIANGLES: RangeInclusive<usize> = 1..=4_000_000;

/// An address of this or another machine, with its port.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let expected = "an address with a port is expected, such as 127.0.0.1:7777 or [::1]:7777; names are not looked up";
    text.parse().map_err(|_| expected.to_owned())
}

/// The command that starts the bots' process of a run.
pub(crate) const BOTS_FOR_RUN: &str = "bots-for-run";
pub(crate) const EDGE_FOR_RUN: &str = "edge-for-run";
/// The option by which that process has the clock of another machine.
pub(crate) const CLOCK_AHEAD: &str = "--clock-ahead";
/// The name of its command for a further server.
pub(crate) const SERVER_FOR_RUN: &str = "server-for-run";

/// The default key of `serve` and `bots`. It is public: use it only between your own machines.
const LAB_KEY: [u8; 32] = *b"throng-lab-key-public-no-secret!";

const ABOUT: &str = "How many players does this machine hold in one place?";

const LONG_ABOUT: &str = "\
How many players does this machine hold in one place?

`throng crowd` runs a workload: a server, and bots in a second process that do everything a client does, over UDP on \
this machine. It prints a table and writes a report with plots.

  throng crowd                           1,000 players in 100 m x 100 m
  throng crowd --scenario dense --pin    100 players who all see each other; a core each
  throng crowd --players 300 --net wifi  fewer players, over a simulated Wi-Fi network
  throng crowd --scenario mine.toml      your own workload (scenarios/README.md)

`throng doctor` checks this machine's settings before you measure on it.";

const CROWD_EXAMPLES: &str = "\
Examples:
  throng crowd                           1,000 players in 100 m x 100 m for half a minute
  throng crowd --scenario dense --pin    100 players who all see each other; a core each
  throng crowd --players 300 --net wifi  fewer players, over a simulated Wi-Fi network
  throng crowd --profile staircase:100+100:30s     100 players, 200, 300 ... 1,000, each for half a minute";

const COMPLETIONS_EXAMPLE: &str = "\
Example:
  throng completions bash > ~/.local/share/bash-completion/completions/throng";

const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 the run failed; 2 an argument is wrong, or what it names cannot be used (file, folder, address); \
3 the run's figures are invalid, and the report says why; 4 a limit is exceeded; 130 interrupted twice.";

#[derive(Debug, Parser)]
#[command(name = "throng", version, about = ABOUT, long_about = LONG_ABOUT, after_help = EXIT_CODES)]
// The options of a scenario file come before those of the command line, and the last one counts.
#[command(args_override_self = true, max_term_width = 120)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a workload with a server and bots on this machine, and write a report
    #[command(after_help = CROWD_EXAMPLES)]
    Crowd(Box<CrowdArguments>),
    /// Run a workload with several replication models, and print one table
    Compare(CompareArguments),
    /// Run the server of a workload, for bots on another machine
    Serve(ServeArguments),
    /// Run the bots of a workload against a server
    Bots(BotsArguments),
    /// Run a gateway between many servers and many clients; speaks channeld's protocol and takes its flags
    Gateway(GatewayArguments),
    /// Load-test a gateway (Throng's, or another one that speaks channeld's protocol), and write a report
    GatewayBench(Box<GatewayBenchArguments>),
    /// Replay a recorded session against a gateway
    GatewayReplay(GatewayReplayArguments),
    /// Watch a running gateway in the terminal
    #[command(long_about = top::LONG_ABOUT)]
    Top(TopArguments),
    /// Find out how many matches of agents a core carries
    #[command(long_about = ai_server::LONG_ABOUT)]
    AiServer(AiServerArguments),
    /// Bake a mesh, or a generated town, into a map file for ray queries
    #[command(long_about = bake::LONG_ABOUT)]
    Bake(BakeArguments),
    /// Play a match of the tactical game with ten bots over UDP, and write a report
    #[command(long_about = matches::LONG_ABOUT)]
    Match(Box<MatchArguments>),
    /// Find how many matches at once keep their frames within 2.34 ms
    #[command(long_about = matches::DENSITY_LONG_ABOUT)]
    Density(Box<DensityArguments>),
    /// Find out how much this machine holds, and which change made it slower
    Lab(Box<LabArguments>),
    /// Check this machine's settings, measure what one is worth, or find the programs that make frames slow
    #[command(long_about = doctor::LONG_ABOUT)]
    Doctor(DoctorArguments),
    /// Forecast processes, machines, bandwidth and price for many players, from measured unit costs
    #[command(long_about = scale::LONG_ABOUT)]
    Scale(ScaleArguments),
    /// Write report.html again from the summary.json of a run
    Report(ReportArguments),
    /// Print the completions of a shell
    #[command(after_help = COMPLETIONS_EXAMPLE)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The second process of `crowd`
    #[command(name = "bots-for-run", hide = true)]
    BotsForRun {
        /// The clock is ahead by so many milliseconds
        #[arg(long, default_value_t = 0, value_parser = number::<u64>(..))]
        clock_ahead: u64,
    },
    /// An edge of `crowd --edges`
    #[command(name = "edge-for-run", hide = true)]
    EdgeForRun,
    /// A further server of `crowd --servers`
    #[command(name = "server-for-run", hide = true)]
    ServerForRun,
    /// The bots' process of `match` and `density`
    #[command(name = matches::BOTS_FOR_MATCH, hide = true)]
    BotsForMatch,
    /// A process with one match of `match --processes`
    #[command(name = matches::SITE_FOR_MATCH, hide = true)]
    SiteForMatch,
    /// The world servers' process of `gateway-bench`
    #[command(name = gateway_bench::WORLD_FOR_BENCH, hide = true)]
    WorldForBench,
    /// The clients' process of `gateway-bench`
    #[command(name = gateway_bench::CLIENTS_FOR_BENCH, hide = true)]
    ClientsForBench,
}

/// The arguments of every command that runs a workload.
#[derive(Debug, Args)]
pub(crate) struct Workload {
    /// A named workload (crowd, crowd-10k, dense, erratic, sparse, sparse-10, sparse-20, converge, hot) or a TOML file
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "crowd")]
    pub(crate) scenario: String,
    /// Number of players (default: the scenario's, like all options without a default here)
    #[arg(long, value_name = "N", value_parser = number::<u32>(..))]
    players: Option<u32>,
    /// Ticks per second, and inputs per second of each player
    #[arg(long, value_name = "HZ", value_parser = number::<u32>(..))]
    rate: Option<u32>,
    /// Side of the square area, in metres
    #[arg(long, value_name = "M", value_parser = number::<f32>(..))]
    area: Option<f32>,
    /// Seed of all random numbers in the world and in the bots
    #[arg(long, value_name = "N", value_parser = number::<u64>(..))]
    seed: Option<u64>,
}

/// The arguments of every command that measures a workload.
#[derive(Debug, Args)]
pub(crate) struct Length {
    /// Length of the measured part, in seconds [default: the scenario's, or the profile's if that is longer]
    #[arg(long, value_name = "S", value_parser = number::<u32>(..))]
    seconds: Option<u32>,
    /// Number of players over time: constant, ramp:100..1000:60s, step:100..1000:20s, staircase:100+100:30s, spike:100..1000:20s:10s or soak:2h
    #[arg(long, value_name = "PROFILE")]
    profile: Option<Profile>,
    /// Length of the warm-up before the measured part, in seconds
    #[arg(long, value_name = "S", value_parser = number::<u32>(..))]
    warmup: Option<u32>,
}

impl Workload {
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            players: self.players,
            tick_hz: self.rate,
            input_hz: self.rate,
            area_m: self.area,
            seed: self.seed,
            ..Overrides::default()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct CrowdArguments {
    #[command(flatten)]
    pub(crate) workload: Workload,
    #[command(flatten)]
    length: Length,
    /// Largest rate to one client, headers included, in kbit/s (default: the scenario's)
    #[arg(long, value_name = "KBIT", value_parser = number::<u32>(..))]
    budget: Option<u32>,
    /// Simulated network of the bots: none, lan, wifi, 4g or bad
    #[arg(long, value_name = "PRESET", value_parser = one_of(&NetPreset::ALL))]
    net: Option<NetPreset>,
    /// Number of objects, spread over the area, that never change
    #[arg(long, value_name = "COUNT", value_parser = number::<u32>(..))]
    idle_objects: Option<u32>,
    /// Server threads for all work of each connection, from receiving to sending; the game's own thread is one of them
    #[arg(long, value_name = "T", value_parser = number::<u32>(..))]
    server_threads: Option<u32>,
    /// Start this many edges, processes between the server and its clients (docs/edges.md)
    #[arg(long, value_name = "M", value_parser = number::<u32>(..))]
    edges: Option<u32>,
    /// Have load workers play the bots: their addresses, or with --bus their names, with commas between them
    /// (docs/lab.md#load-workers)
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    workers: Vec<WorkerPlace>,
    /// With --workers: the address of this machine to which their bots connect
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", requires = "workers")]
    address: IpAddr,
    #[command(flatten)]
    key: KeyArgument,
    /// Snapshots of the server's state in a second that bots are compared with; with edges one in each tick
    #[arg(long, value_name = "HZ", hide_short_help = true, value_parser = number::<u32>(..))]
    truth_hz: Option<u32>,
    /// Let this many servers share the area, a process each, and hand characters over; needs --edges (docs/edges.md)
    #[arg(long, value_name = "N", value_parser = number::<u32>(..))]
    servers: Option<u32>,
    /// Let servers and edges meet at this nats-server, as nats://127.0.0.1:4222, instead of in the run itself; or find load workers
    /// there; needs --servers or --workers, and a build with --features nats (docs/edges.md, docs/lab.md)
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub(crate) bus: Option<String>,
    /// With --bus: let servers and edges send each other everything over it, without UDP between them (docs/edges.md)
    #[arg(long, requires = "bus", conflicts_with = "workers", hide_short_help = true)]
    pub(crate) bus_links: bool,
    /// Kill, restart, drain, pause, cut off or slow down a process while the run is measured, as kill:edge-1:4s,
    /// restart:server-2:4s:1s, cut:server-2:4s:2s, slow-consumer:edge-1:4s:3s or slow-disk:server:4s:3s; may be repeated
    /// (docs/edges.md)
    #[arg(long = "fault", value_name = "FAULT")]
    faults: Vec<Fault>,
    /// Reserve the first core for the server; the bots use the next one, or with --edges the last
    #[arg(long)]
    pin: bool,
    /// Cipher of the packets: chacha20-poly1305, aes-256-gcm, or the one that is the fastest here
    #[arg(long, value_name = "CIPHER", value_parser = one_of(&Cipher::ALL))]
    cipher: Option<Cipher>,
    /// The server's replication model: legacy, legacy-push, graph, shared-state or throng
    #[arg(long, value_name = "MODEL", value_parser = one_of(&Model::ALL))]
    model: Option<Model>,
    /// With --model shared-state: allocate its sort list for each connection (per-connection) or reuse one (shared)
    #[arg(long, value_name = "WHERE", value_parser = one_of(&Scratch::ALL))]
    scratch: Option<Scratch>,
    /// With --model shared-state: write positions as differences from positions that the client is known to hold
    #[arg(long)]
    baselines: bool,
    /// For tests of the lab: each send call of the server is made this many per cent slower
    #[arg(long, value_name = "PERCENT", hide_short_help = true, value_parser = number::<u32>(..))]
    send_slowdown: Option<u32>,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    /// Also write trace.json: the last frames by subsystem, for Perfetto
    #[arg(long)]
    pub(crate) trace: bool,
    /// Show metrics for Prometheus at http://ADDR/metrics while the run plays (docs/telemetry.md)
    #[arg(long, value_name = "ADDR", value_parser = crate::args::address)]
    pub(crate) metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) live: LiveArgument,
}

impl CrowdArguments {
    /// The load workers, if there are any.
    pub(crate) fn workers(&self) -> Result<Option<WorkersOptions>, Failure> {
        if self.workers.is_empty() {
            if self.key.is_given() {
                refuse!("--key is for load workers: add --workers, or leave it out");
            }
            return Ok(None);
        }
        self.key.check(&self.workers)?;
        let (places, nats) = (self.workers.clone(), self.bus.clone());
        Ok(Some(WorkersOptions { places, nats, key: self.key.get(), server: self.address }))
    }

    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            budget_kbit_per_s: self.budget,
            net: self.net,
            idle_objects: self.idle_objects,
            server_threads: self.server_threads,
            edges: self.edges,
            servers: self.servers,
            truth_hz: self.truth_hz,
            faults: self.faults.clone(),
            pin: self.pin,
            cipher: self.cipher,
            model: self.model,
            scratch: self.scratch,
            baselines: self.baselines,
            send_slowdown_percent: self.send_slowdown,
            seconds: self.length.seconds,
            profile: self.length.profile,
            warmup_seconds: self.length.warmup,
            ..self.workload.overrides()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) workload: Workload,
    /// The address at which the server listens
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7777", value_parser = crate::args::address)]
    pub(crate) listen: SocketAddr,
    /// The address that clients use for the server, if it differs from --listen; required with 0.0.0.0
    #[arg(long, value_name = "ADDR", value_parser = crate::args::address)]
    pub(crate) public: Option<SocketAddr>,
    /// Server threads for all work of each connection, from receiving to sending; the game's own thread is one of them
    #[arg(long, value_name = "T", value_parser = number::<u32>(..))]
    server_threads: Option<u32>,
    /// Folder in which each group of bots that measures leaves the folder of a run
    #[arg(long, value_name = "DIR", default_value = "runs")]
    pub(crate) runs: PathBuf,
    /// File in which the characters of connected players are saved, and from which they go on when the server starts again
    #[arg(long, value_name = "FILE")]
    pub(crate) snapshot: Option<PathBuf>,
    /// Seconds between two snapshots; one more is written at the end
    #[arg(long, value_name = "S", default_value = "30", value_parser = number(1u64..=86_400), requires = "snapshot")]
    pub(crate) snapshot_every: u64,
    #[command(flatten)]
    pub(crate) key: KeyArgument,
}

impl ServeArguments {
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides { server_threads: self.server_threads, ..self.workload.overrides() }
    }
}

#[derive(Debug, Args)]
pub(crate) struct BotsArguments {
    /// The server's address
    #[arg(long, value_name = "ADDR", value_parser = crate::args::address)]
    pub(crate) connect: SocketAddr,
    #[command(flatten)]
    pub(crate) workload: Workload,
    #[command(flatten)]
    length: Length,
    /// Simulated network: none, lan, wifi, 4g or bad
    #[arg(long, value_name = "PRESET", value_parser = one_of(&NetPreset::ALL))]
    net: Option<NetPreset>,
    /// Allow a server on another machine: confirms that you own it and may put it under load
    #[arg(long)]
    pub(crate) i_own_this_target: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) key: KeyArgument,
}

impl BotsArguments {
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            net: self.net,
            seconds: self.length.seconds,
            profile: self.length.profile,
            warmup_seconds: self.length.warmup,
            ..self.workload.overrides()
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Folder of a run: runs/..., or its address in a store, from which it is copied to runs/
    pub(crate) folder: PathBuf,
    /// Print the table too; for runs of `crowd` only
    #[arg(long)]
    pub(crate) table: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArgument {
    /// The key shared by server and bots, or with load workers, 64 hexadecimal digits; the default is a public key, only
    /// for your own machines
    #[arg(long, value_name = "HEX", value_parser = parse_key)]
    key: Option<[u8; 32]>,
}

impl KeyArgument {
    pub(crate) fn get(&self) -> Key {
        Key::new(self.key.unwrap_or(LAB_KEY))
    }

    fn is_given(&self) -> bool {
        self.key.is_some()
    }

    /// The public key is refused where others could reach one of these load workers. Those on a bus are reached by all who use it.
    pub(crate) fn check<'a>(&self, places: impl IntoIterator<Item = &'a WorkerPlace>) -> Result<(), Failure> {
        let mut far = places
            .into_iter()
            .filter(|place| !matches!(place, WorkerPlace::Address(address) if address.ip().is_loopback()));
        match far.next() {
            Some(place) if self.key.is_none_or(|key| key == LAB_KEY) => {
                let error = anyhow::anyhow!(
                    "others can reach a load worker at {place}: give it and the run a --key of your own"
                );
                Err(Failure::Usage(error))
            }
            _ => Ok(()),
        }
    }
}

/// Takes one of these names.
fn one_of<T: Copy + Send + Sync>(
    all: &'static [(&'static str, T)],
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let known = all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        let mut names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let last = names.pop().unwrap_or_default();
        known.ok_or_else(|| format!("use {} or {last}", names.join(", ")))
    }
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
