//! `throng gateway-bench`: its arguments, and what they lead to.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Error, anyhow};
use clap::{Args, ValueEnum};
use throng_gateway_lab::{
    self as gateway, BenchOptions, BenchResult, GatewaySummary, Part, Scene, Target, Transport, Victim,
};
use throng_report::{Kind, Profile, RunHead};

use crate::exit::{Failure, Outcome};
use crate::number::number;
use crate::pages;
use crate::play::{Figures, Load, OutputArguments, Run};
use crate::scenario_file::ScenarioArgument;

/// The command that starts the world servers' process of a run.
pub(crate) const WORLD_FOR_BENCH: &str = "world-for-bench";
/// The command that starts the clients' process of a run.
pub(crate) const CLIENTS_FOR_BENCH: &str = "clients-for-bench";

/// Length of the measured part, unless it is given or the profile takes longer.
const SECONDS: u32 = 10;

const LONG_ABOUT: &str = "\
How much load can a gateway take?

`throng gateway-bench` starts a gateway, world servers that behave like Unreal's plugin, and clients, each in a separate \
process. It measures delivered updates, their delay, and the cost.

  throng gateway-bench single                    150 clients in one channel; the server writes one update per frame
  throng gateway-bench single --traffic relay    the same, but each client writes its own state
  throng gateway-bench spatial --clients 500     9 servers, 225 cells, handovers, spheres of interest
  throng gateway-bench entity-lod                a channel for each client; distant clients get fewer updates
  throng gateway-bench single --edges 2          clients connect to two edges of the gateway
  throng gateway-bench single --transport throng    clients connect over Throng's own link: encrypted datagrams
  throng gateway-bench single --profile staircase:50+50:20s   50 clients, 100, 150, each for 20 s
  throng gateway-bench single --kill server      length of an outage, and number of recovered clients; or --kill gateway

To put another gateway that speaks channeld's protocol under the identical load:

  throng gateway-bench single --gateway-servers 127.0.0.1:11288 --gateway-clients 127.0.0.1:12108 --gateway-pid PID

Start that gateway again before each run, with -mcb=13. The folder of each run has settings files that fit the scene.";

/// Arguments of `throng gateway-bench`.
#[derive(Debug, Args)]
#[command(long_about = LONG_ABOUT)]
pub(crate) struct GatewayBenchArguments {
    /// Scene to run
    scene: SceneName,
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// Number of clients [default: 150, entity-lod 1000]
    #[arg(long, value_name = "N", value_parser = number(1u32..=8_000))]
    clients: Option<u32>,
    /// Number of clients over time, in the scene single: constant, ramp:100..1000:60s, step:100..1000:20s, staircase:100+100:30s,
    /// spike:100..1000:20s:10s or soak:2h; --clients is the largest number
    #[arg(long, value_name = "PROFILE", default_value = "constant")]
    profile: Profile,
    /// The writer of the single channel's state
    #[arg(long, value_enum, default_value = "unreal")]
    traffic: Traffic,
    /// Length of the measured part, in seconds [default: 10, or the profile's if that is longer]
    #[arg(long, value_name = "S", value_parser = number(1u32..=86_400))]
    seconds: Option<u32>,
    /// Length of the warm-up before the measured part, in seconds
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = number(0u32..=3_600))]
    warmup: u32,
    /// Number of edges: processes that hold the clients' connections for the gateway
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "gateway_servers", value_parser = number(0u32..=16))]
    edges: u32,
    /// How clients connect
    #[arg(long, value_enum, default_value = "tcp")]
    transport: TransportName,
    /// Kill this in mid-run and restart it: measures the outage (time without updates and answers). Processes get SIGKILL
    #[arg(long, value_enum, conflicts_with_all = ["gateway_servers", "connect_only"])]
    kill: Option<KillName>,
    /// Clients connect and send nothing: measures the cost of idle connections
    #[arg(long)]
    connect_only: bool,
    /// Address for world servers of a gateway that is already running
    #[arg(long, value_name = "ADDR", requires = "gateway_clients", value_parser = crate::args::address)]
    gateway_servers: Option<SocketAddr>,
    /// Its address for clients
    #[arg(long, value_name = "ADDR", requires = "gateway_servers", value_parser = crate::args::address)]
    gateway_clients: Option<SocketAddr>,
    /// Its process id, to sample processor time and memory
    #[arg(long, value_name = "PID", requires = "gateway_servers", value_parser = number(1u32..))]
    gateway_pid: Option<u32>,
    /// Address of its /metrics page
    #[arg(long, value_name = "ADDR", requires = "gateway_servers", value_parser = crate::args::address)]
    gateway_metrics: Option<SocketAddr>,
    /// Further argument for the started gateway; may be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, conflicts_with = "gateway_servers")]
    gateway_arg: Vec<OsString>,
    /// Allow a gateway on another machine: confirms that you own it and may put it under load
    #[arg(long)]
    i_own_this_target: bool,
    #[command(flatten)]
    output: OutputArguments,
}

/// The scene of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SceneName {
    /// One world server, one channel for all
    Single,
    /// 3 x 3 world servers, 15 x 15 cells, handovers
    Spatial,
    /// One world server, a channel for each client
    EntityLod,
}

/// How clients connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TransportName {
    /// A stream for each client, not encrypted
    Tcp,
    /// Throng's own link: encrypted datagrams
    Throng,
}

/// The process to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KillName {
    /// The world server; it gets its channel back. In the scene spatial one of nine, which is no process of its own: it
    /// loses its connection and all that it knows, and comes back after a second
    Server,
    /// The process of all ten world servers of the scene spatial
    Servers,
    /// The gateway; all clients reconnect to it
    Gateway,
    /// One of the edges; its clients go on at another one
    Edge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Traffic {
    /// Each client writes its own actor
    Relay,
    /// Clients send calls to the server, which writes all actors once per frame
    Unreal,
}

impl GatewayBenchArguments {
    fn scene(&self) -> Result<Scene, Failure> {
        match (self.scene, self.traffic) {
            (SceneName::Single, Traffic::Unreal) => Ok(Scene::SingleUnreal),
            (SceneName::Single, Traffic::Relay) => Ok(Scene::SingleRelay),
            (SceneName::Spatial, Traffic::Unreal) => Ok(Scene::Spatial),
            (SceneName::EntityLod, Traffic::Unreal) => Ok(Scene::EntityLod),
            (_, Traffic::Relay) => Err(Failure::Usage(anyhow!("--traffic relay works only with the scene single"))),
        }
    }

    fn victim(&self) -> Option<Victim> {
        self.kill.map(|name| match name {
            KillName::Server => Victim::Server,
            KillName::Servers => Victim::Servers,
            KillName::Gateway => Victim::Gateway,
            KillName::Edge => Victim::Edge,
        })
    }

    fn target(&self, program: &OsString) -> Result<Target, Failure> {
        let (Some(servers), Some(players)) = (self.gateway_servers, self.gateway_clients) else {
            return Ok(Target::Start {
                command: vec![program.clone(), "gateway".into()],
                extra: self.gateway_arg.clone(),
            });
        };
        let addresses = [Some(servers), Some(players), self.gateway_metrics];
        for address in addresses.into_iter().flatten() {
            throng_lab::bots::check_target(address, self.i_own_this_target).map_err(Failure::usage)?;
        }
        Ok(Target::Running { servers, players, pid: self.gateway_pid, metrics: self.gateway_metrics })
    }
}

/// Executes a run and prints its result.
pub(crate) fn bench(arguments: &GatewayBenchArguments) -> Outcome {
    let scene = arguments.scene()?;
    let program: OsString = std::env::current_exe().context("the path of this program is unknown")?.into();
    let target = arguments.target(&program)?;
    let stop = crate::stop_on_interrupt()?;
    let output = &arguments.output;
    let clients = arguments.clients.unwrap_or(if scene == Scene::EntityLod { 1_000 } else { 150 });
    let options = BenchOptions {
        scene,
        clients,
        profile: arguments.profile,
        warmup_s: arguments.warmup,
        seconds: arguments.seconds.unwrap_or(arguments.profile.seconds(clients).max(SECONDS)),
        connect_only: arguments.connect_only,
        edges: arguments.edges,
        transport: match arguments.transport {
            TransportName::Tcp => Transport::Tcp,
            TransportName::Throng => Transport::Throng,
        },
        kill: arguments.victim(),
        target,
        parts: [WORLD_FOR_BENCH, CLIENTS_FOR_BENCH].map(|part| vec![program.clone(), part.into()]),
        runs: output.runs.clone(),
        show_progress: !output.quiet && std::io::stderr().is_terminal(),
        note: output.note(),
    };
    options.check().map_err(Failure::Usage)?;
    output.play(options, &stop)
}

impl Load for BenchOptions {
    type Figures = GatewaySummary;

    const KIND: Kind = Kind::Gateway;

    fn name(&self) -> &str {
        self.scene.name()
    }

    fn play(&mut self, stop: &Arc<AtomicBool>) -> Result<Run<GatewaySummary>, Failure> {
        let BenchResult { summary: figures, folder, written } = gateway::run(self, stop)?;
        let page = written.map_err(Error::from).and_then(|()| pages::rebuild(&folder));
        Ok(Run { figures, folder: Some(folder), page: Some(page) })
    }
}

impl Figures for GatewaySummary {
    fn head(&self) -> &RunHead {
        &self.head
    }

    fn text(&self) -> String {
        gateway::page(self).text()
    }
}

/// Executes a part of a run for the parent process.
pub(crate) fn play(part: Part) -> Outcome {
    // The parent process gets the error through the pipe and prints it.
    gateway::play(part).map_err(|_| Failure::Silent)?;
    Ok(ExitCode::SUCCESS)
}
