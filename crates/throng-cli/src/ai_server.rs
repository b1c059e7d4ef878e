//! `throng ai-server`: how many matches of agents one core carries.

mod embree;
mod figures;
mod load;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use clap::Args;
use throng_agent::Rays;
use throng_sight::{Map, bake, town};
use throng_tactical::Arena;
use throng_tactical::brain::navigation;

use crate::exit::{self, Failure, Outcome};
use figures::{Figures, Limit, Search};
use load::{Load, Work};

pub(crate) const LONG_ABOUT: &str = "\
Find out how many matches of agents a core carries

  throng ai-server                          5 agents a match, a town of 200,000 triangles, 20 decisions a second each
  throng ai-server --json                   the figures as JSON (docs/agents.md)
  throng ai-server --embree                 the same again with Embree 3 for the agents' rays
  throng ai-server --step 50 --hold 600     the steps of the published test

Each match is a whole match of the tactical game, three against three, in which five players are agents and the sixth
stands still. Matches are added in steps; each step is held. A decision whose tick ends later than its deadline is late.
The load is raised while the processor's share is at most 85 % and at most 2 % of the decisions are late; then matches
are taken away until both hold again.";

/// Agents of a match.
const AGENTS: usize = 5;

/// Arguments of `throng ai-server`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AiServerArguments {
    /// Least number of triangles of the generated town
    #[arg(long, value_name = "N", default_value_t = 200_000, conflicts_with = "map")]
    triangles: usize,
    /// A baked map instead of a generated town
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Decisions per second of each agent, which are ticks of the matches
    #[arg(long, value_name = "HZ", default_value_t = 20, value_parser = clap::value_parser!(u32).range(10..=128))]
    rate: u32,
    /// Rays per decision that look how far the world is free; the rays that look for enemies come on top
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(0..=1024))]
    rays: u32,
    /// Time after its planned beginning at which a decision is late, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 25.0)]
    deadline_ms: f64,
    /// Matches that a step adds
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    step: u32,
    /// Length of the measured part of a step, in seconds
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    hold: f64,
    /// No more matches than that
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..))]
    most: u32,
    /// Threads that play matches; without it, one for each core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Run it once more with Embree 3 for the agents' rays, if it is installed
    #[arg(long)]
    embree: bool,
    /// Seed of the town, the matches and the agents
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn measure(arguments: &AiServerArguments, stop: &Arc<AtomicBool>) -> Outcome {
    let is_time = |number: f64, most: f64| number > 0.0 && number <= most;
    if !is_time(arguments.deadline_ms, 1_000.0) || !is_time(arguments.hold, 3_600.0) {
        let error = anyhow!("--deadline-ms goes from above 0 to 1000, --hold from above 0 to 3600 seconds");
        return Err(Failure::Usage(error));
    }
    let map = map(arguments)?;
    let arena = Arena::new(map.clone()).context("the map is no arena").map_err(Failure::Usage)?;
    let navigation = navigation(&map).context("the map cannot be walked").map_err(Failure::Usage)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.unwrap_or(cores).clamp(1, 1_024);
    let work = Work {
        arena,
        navigation,
        rays: None,
        fan_rays: arguments.rays,
        tick_hz: arguments.rate,
        deadline_us: (arguments.deadline_ms * 1e3) as u64,
        seed: arguments.seed,
    };
    let own = search(arguments, work.clone(), threads, stop)?;
    let mut figures = Figures::new(&map, arguments.rate, arguments.deadline_ms, threads, own);
    if arguments.embree && !stop.load(Ordering::Relaxed) {
        match embree::rays(&map) {
            Ok(rays) => {
                let rays: Arc<dyn Rays + Send + Sync> = Arc::new(rays);
                figures.embree = Some(search(arguments, Work { rays: Some(rays), ..work }, threads, stop)?);
            }
            Err(error) => figures.notes.push(format!("no comparison: {error}")),
        }
    }
    if stop.load(Ordering::Relaxed) {
        figures.invalid_reasons.push("interrupted".to_owned());
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&figures.to_json()).context("cannot write JSON")?);
    } else {
        print!("{}", figures.to_text());
    }
    Ok(if figures.is_valid() { ExitCode::SUCCESS } else { ExitCode::from(exit::INVALID_RUN) })
}

fn map(arguments: &AiServerArguments) -> Result<Map, Failure> {
    match &arguments.map {
        Some(file) => throng_map::open(file).map_err(|error| Failure::Usage(error.into())),
        None => {
            let town = town::town(arguments.seed, arguments.triangles);
            Ok(bake(&town).context("the town cannot be baked")?)
        }
    }
}

/// Raises the load by steps, and takes a step back.
fn search(
    arguments: &AiServerArguments,
    work: Work,
    threads: usize,
    stop: &Arc<AtomicBool>,
) -> Result<Search, Failure> {
    let mut load = Load::start(&work, threads)?;
    let mut search = Search::default();
    let mut count = 0;
    let hold = |load: &mut Load, count: u32, search: &mut Search| {
        load.resize(count as usize)?;
        let step = load.hold(arguments.hold)?;
        if !arguments.quiet {
            eprintln!("{step}");
        }
        let limit = step.limit();
        search.steps.push(step);
        anyhow::Ok(limit)
    };
    while search.limit.is_none() && !stop.load(Ordering::Relaxed) {
        count = (count + arguments.step).min(arguments.most);
        search.limit = hold(&mut load, count, &mut search)?;
        if search.limit.is_none() && count == arguments.most {
            search.limit = Some(Limit::Matches);
        }
    }
    // Back in finer steps, until both hold.
    let back = (arguments.step / 5).max(count / 20).max(1);
    while matches!(search.limit, Some(Limit::Processor | Limit::Late)) && !stop.load(Ordering::Relaxed) {
        if count <= back {
            return Ok(search);
        }
        count -= back;
        if hold(&mut load, count, &mut search)?.is_none() {
            break;
        }
    }
    search.held = search.steps.last().filter(|step| step.limit().is_none()).cloned();
    Ok(search)
}
