//! `throng scale`: a forecast for many players, from unit costs.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use serde_json::json;
use throng_scale::{Bound, Part, Placement, Plan, Scenario, ScenarioError, plan};

use crate::exit::{self, Failure, Outcome};
use crate::number::number;
use crate::out;

pub(crate) const LONG_ABOUT: &str = "\
Forecast processes, machines, bandwidth and price for many players, from measured unit costs

Players are placed in zones and on edges, what each process sends and receives is counted, and multiplied by what one act costs. \
Processes are added until all are within their limits. If that does not help, the table says what breaks.

  throng scale                       a million players with the costs of docs/benchmarks/unit-costs.toml
  throng scale --print > mine.toml   that file, to put in your own figures
  throng scale mine.toml --players 20000
  throng scale --edges random        players come to any edge, as behind a load balancer
  throng scale --json                the same for programs

A forecast is no measurement: docs/scale.md says what was measured, with how many processes.

Exit codes: 0 all is within its limits; 2 a wrong argument or file; 4 something breaks before the number of players is reached.";

/// The file that stands in docs/benchmarks.
const UNIT_COSTS: &str = include_str!("../../../docs/benchmarks/unit-costs.toml");
/// Bytes of a file that are read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The fewest players of the table.
const PLAYERS_FIRST: u32 = 1_000;

#[derive(Debug, Args)]
pub(crate) struct ScaleArguments {
    /// Unit costs, limits and prices, as --print prints them
    #[arg(value_name = "FILE.toml")]
    file: Option<PathBuf>,
    /// Players at once; zones are added with them
    #[arg(long, value_name = "N", value_parser = number(1u32..=Scenario::PLAYERS_MAX))]
    players: Option<u32>,
    /// Which edge a player connects to
    #[arg(long, value_name = "HOW")]
    edges: Option<Edges>,
    /// Print the file, and forecast nothing
    #[arg(long, conflicts_with_all = ["players", "edges", "json"])]
    print: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Which edge a player connects to.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Edges {
    /// One with players of the same zone
    ByZone,
    /// Any
    Random,
}

pub(crate) fn forecast(arguments: &ScaleArguments) -> Outcome {
    let text = match &arguments.file {
        Some(path) => read(path).map_err(Failure::Usage)?,
        None => UNIT_COSTS.to_owned(),
    };
    let name = arguments.file.as_deref().map_or("the built-in file".to_owned(), |path| path.display().to_string());
    let usage = |error: ScenarioError| Failure::Usage(anyhow!("{name}: {error}"));
    let mut scenario = Scenario::parse(&text).map_err(usage)?;
    if arguments.print {
        out!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(edges) = arguments.edges {
        scenario.world.placement = match edges {
            Edges::ByZone => Placement::ByZone,
            Edges::Random => Placement::Random,
        };
    }
    let most = arguments.players.unwrap_or(scenario.world.players);
    let mut plans = Vec::new();
    for players in steps(most) {
        plans.push((players, plan(&scenario.with_players(players).map_err(usage)?)));
    }
    if arguments.json {
        print_json(&scenario, &plans)?;
    } else {
        print_table(&scenario, &plans);
    }
    let holds = plans.iter().all(|(_, plan)| plan.holds);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(exit::LIMIT) })
}

fn read(path: &Path) -> Result<String> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text)
}

/// Ten times as many each, and then the number itself.
fn steps(most: u32) -> Vec<u32> {
    let below = std::iter::successors(Some(PLAYERS_FIRST), |players| players.checked_mul(10));
    below.take_while(|players| *players < most).chain([most]).collect()
}

/// The largest of a figure of all subjects.
fn most(plan: &Plan, figure: fn(&throng_scale::SubjectLoad) -> f64) -> f64 {
    plan.load.subjects.iter().map(figure).fold(0.0, f64::max)
}

/// Cores of the rented machines that all processes use.
fn cores(scenario: &Scenario, plan: &Plan) -> f64 {
    plan.load.cores() / scenario.machine.speed
}

fn print_table(scenario: &Scenario, plans: &[(u32, Plan)]) {
    outln!("FORECAST on {}: no measurement (docs/scale.md)", scenario.machine.name);
    outln!("");
    outln!(
        "    players  homes   bus  edges    cores  machines  bus out  a subject   read by  per player-hour  fullest"
    );
    for (players, plan) in plans {
        let bus_out: f64 = plan.load.bus_servers.iter().map(|load| load.out_bytes_per_s).sum();
        let (part, bound, share) = plan.fullest;
        outln!(
            "{players:>11} {:>6} {:>5} {:>6} {:>8.1} {:>9} {:>8} {:>10} {:>9} {:>16.6}  {} {:.0} % of their {}{}",
            plan.layout.homes,
            plan.layout.bus_servers,
            plan.layout.edges,
            cores(scenario, plan),
            plan.machines,
            bits(bus_out),
            bits(most(plan, |subject| subject.published_bytes_per_s)),
            most(plan, |subject| f64::from(subject.edges)),
            plan.price_per_player_hour,
            part_name(part),
            share * 100.0,
            if bound == Bound::Cores { "cores" } else { "network" },
            if plan.holds { "" } else { ": BREAKS, more of them do not help" },
        );
    }
    outln!("");
    outln!(
        "A subject: the most that one zone publishes. Read by: the most edges that one zone has. Bits are per second."
    );
    outln!("Homes: what the bus costs them. Their game is not in these figures.");
}

fn part_name(part: Part) -> &'static str {
    match part {
        Part::Homes => "homes:",
        Part::BusServers => "bus servers:",
        Part::Edges => "edges:",
    }
}

fn bits(bytes_per_s: f64) -> String {
    let bits = bytes_per_s * 8.0;
    match bits {
        ..1e6 => format!("{:.0} kbit", bits / 1e3),
        1e6..1e9 => format!("{:.0} Mbit", bits / 1e6),
        _ => format!("{:.1} Gbit", bits / 1e9),
    }
}

fn print_json(scenario: &Scenario, plans: &[(u32, Plan)]) -> Result<()> {
    let rows: Vec<_> = plans
        .iter()
        .map(|(players, plan)| {
            let bus_out: f64 = plan.load.bus_servers.iter().map(|load| load.out_bytes_per_s).sum();
            json!({
                "players": players,
                "plan": plan,
                "cores": cores(scenario, plan),
                "bus_out_bytes_per_s": bus_out,
                "player_bytes_per_s": plan.load.player_bytes_per_s,
                "subject_bytes_per_s_max": most(plan, |subject| subject.published_bytes_per_s),
                "subject_edges_max": most(plan, |subject| f64::from(subject.edges)),
            })
        })
        .collect();
    out::json(&json!({ "forecast": rows }))
}
