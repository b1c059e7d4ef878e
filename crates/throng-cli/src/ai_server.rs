//! `throng ai-server`: how many matches of agents one core carries.

pub(crate) mod cores;
mod embree;
mod figures;
mod load;
mod pace;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use throng_agent::Rays;
use throng_judge::{StepOptions, StepPressure};
use throng_report::{Kind, RunFile, RunHead};
use throng_sight::{Map, bake, town};
use throng_tactical::Arena;
use throng_tactical::brain::navigation;

use crate::exit::{Failure, Outcome};
use crate::number::number;
use crate::pages;
use crate::play::{self, OutputArguments};
use crate::scenario_file::ScenarioArgument;
use cores::Cores;
use figures::{Course, Figures, Workload};
use load::{HOLD_S_MAX, Load, Work};
use pace::{SAMPLES, Timing};

pub(crate) const LONG_ABOUT: &str = "\
Find out how many matches of agents a core carries

  throng ai-server                          5 agents a match, a town of 200,000 triangles, 20 decisions a second each
  throng ai-server --embree                 the same beside Embree 3 for the agents' rays, in turns
  throng ai-server --cores 2-3 --json       on two cores, figures as JSON (docs/match-summary.md)
  throng ai-server --start 50 --hold 600 --sample 10     the steps of the published test

Each match is a whole match of the tactical game, three against three, in which five players are agents and the sixth \
stands still. Matches are added in steps; each step is held, and its last 30 samples count. A decision whose tick ends \
later than its deadline is late. The load is raised while the processor's share is at most 85 % and at most 2 % of the \
decisions are late; then it is halved back towards the last good load, until the two are 1 % apart. Ctrl-C prints the \
figures so far.";

/// Agents of a match.
const AGENTS: usize = 5;

/// Arguments of `throng ai-server`.
#[derive(Debug, Args)]
pub(crate) struct AiServerArguments {
    #[command(flatten)]
    scenario: ScenarioArgument,
    /// Least number of triangles of the generated town
    #[arg(long, value_name = "N", default_value_t = 200_000, conflicts_with = "map", value_parser = number(crate::args::TRIANGLES))]
    triangles: usize,
    /// A baked map instead of a generated town
    #[arg(long, value_name = "FILE")]
    map: Option<PathBuf>,
    /// Decisions per second of each agent: its match has as many ticks
    #[arg(long, value_name = "HZ", default_value_t = 20, value_parser = number(10u32..=31))]
    rate: u32,
    /// Rays per decision that look how far the world is free; the rays that look for enemies come on top
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = number(0u32..=1024))]
    rays: u32,
    /// Time after its planned beginning at which a decision is late, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 25.0, value_parser = number(0.1f64..=1_000.0))]
    deadline_ms: f64,
    /// Cores to use, with one thread on each, as 1 or 0,2-3; without it, the last one that this process may use
    #[arg(long, value_name = "LIST", overrides_with = "cores")]
    cores: Option<Cores>,
    /// The first number of matches
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = number(1u32..))]
    start: u32,
    /// Matches that a step adds
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = number(1u32..))]
    step: u32,
    /// No more matches than that
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = number(1u32..))]
    most: u32,
    /// Hold the first number of matches, and look for no other one
    #[arg(long)]
    once: bool,
    /// How long each load is held, in seconds, without its warm-up
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = number(0.3f64..=HOLD_S_MAX as f64))]
    hold: f64,
    /// Length of a sample, in seconds: the last 30 of a hold count
    #[arg(long, value_name = "S", default_value_t = 0.1, value_parser = number(0.01f64..=60.0))]
    sample: f64,
    /// Time before each hold that does not count, in seconds
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = number(0.0f64..=600.0))]
    warm_up: f64,
    /// Measure in turns with Embree 3 for the agents' rays, and print the ratio
    #[arg(long)]
    embree: bool,
    /// Seed of the town, the matches and the agents
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u64>(..))]
    seed: u64,
    #[command(flatten)]
    output: OutputArguments,
    /// Leave no folder with figures and page
    #[arg(long, conflicts_with = "store")]
    no_report: bool,
}

impl AiServerArguments {
    fn timing(&self) -> Result<Timing> {
        let [sample, hold, warm_up, deadline] =
            [self.sample, self.hold, self.warm_up, self.deadline_ms / 1e3].map(Duration::from_secs_f64);
        if hold < sample * SAMPLES as u32 {
            return Err(anyhow!(
                "--hold {} is shorter than {SAMPLES} samples of {} s: raise it, or lower --sample",
                self.hold,
                self.sample
            ));
        }
        if self.warm_up + self.hold > HOLD_S_MAX as f64 {
            return Err(anyhow!(
                "--warm-up {} and --hold {}: at most {HOLD_S_MAX} s together",
                self.warm_up,
                self.hold
            ));
        }
        Ok(Timing { tick_hz: self.rate, deadline, warm_up, hold, sample })
    }

    fn steps(&self, hold: Duration) -> Result<StepOptions> {
        let Self { start, step, most, .. } = *self;
        if start > most {
            return Err(anyhow!("--start {start} is above --most {most}"));
        }
        Ok(StepOptions { start, step, most, hold })
    }
}

pub(crate) fn measure(arguments: &AiServerArguments, stop: &Arc<AtomicBool>) -> Outcome {
    let timing = arguments.timing().map_err(Failure::Usage)?;
    let steps = arguments.steps(timing.hold).map_err(Failure::Usage)?;
    let cores = cores::choose(arguments.cores.as_ref()).map_err(Failure::Usage)?;
    arguments.output.play(Matches { arguments, timing, steps, cores }, stop)
}

/// Matches of agents, in steps.
struct Matches<'a> {
    arguments: &'a AiServerArguments,
    timing: Timing,
    steps: StepOptions,
    cores: Vec<usize>,
}

impl play::Load for Matches<'_> {
    type Figures = Figures;

    const KIND: Kind = Kind::Ai;

    fn name(&self) -> &str {
        "ai-server"
    }

    fn play(&mut self, stop: &Arc<AtomicBool>) -> Result<play::Run<Figures>, Failure> {
        let began = SystemTime::now();
        let Matches { arguments, timing, steps, ref cores } = *self;
        let embree = arguments.embree.then(embree::load).transpose().map_err(Failure::Usage)?;
        let map = map(arguments)?;
        let arena = Arena::new(map.clone()).context("the map is no arena").map_err(Failure::Usage)?;
        let navigation = navigation(&map).context("the map cannot be walked").map_err(Failure::Usage)?;
        let folder = (!arguments.no_report)
            .then(|| throng_report::new_folder(&arguments.output.runs, began, "ai-server"))
            .transpose()
            .map_err(Error::from)?;
        let own = Work {
            arena,
            navigation,
            rays: None,
            fan_rays: arguments.rays,
            timing,
            seed: arguments.seed,
            stop: Arc::clone(stop),
        };
        let mut runs = vec![Run::new("own rays", &own, steps, cores)?];
        if let Some(embree) = embree {
            let rays: Arc<dyn Rays + Send + Sync> = Arc::new(embree::rays(&embree, &map));
            runs.push(Run::new("Embree's rays", &Work { rays: Some(rays), ..own.clone() }, steps, cores)?);
        }
        let is_partial = !hold(&mut runs, arguments.once, !arguments.output.quiet)?;
        let mut courses = runs.into_iter().map(Run::course);
        let own = courses.next().context("there is no run")?;
        let (triangles, deadline_ms) = (map.triangle_count(), arguments.deadline_ms);
        let load = if arguments.once { arguments.start.to_string() } else { "by steps".to_owned() };
        let (tick_hz, fan_rays, cores) = (arguments.rate, arguments.rays, cores.clone());
        let workload = Workload { began, load, fan_rays, triangles, tick_hz, deadline_ms, cores };
        let figures = Figures::new(workload, own, courses.next(), is_partial);
        let page = folder.as_ref().map(|folder| {
            RunFile::write(folder, &figures)?;
            pages::rebuild(folder)
        });
        Ok(play::Run { figures, folder, page })
    }
}

impl play::Figures for Figures {
    fn head(&self) -> &RunHead {
        &self.head
    }

    fn text(&self) -> String {
        self.to_text()
    }
}

fn map(arguments: &AiServerArguments) -> Result<Map, Failure> {
    match &arguments.map {
        Some(file) => throng_map::open(file).map_err(Failure::usage),
        None => {
            let town = town::town(arguments.seed, arguments.triangles);
            Ok(bake(&town).context("the town cannot be baked")?)
        }
    }
}

/// The matches with one engine for rays, and the search for their number.
struct Run {
    name: &'static str,
    load: Load,
    course: Course,
}

impl Run {
    fn new(name: &'static str, work: &Work, steps: StepOptions, cores: &[usize]) -> Result<Run> {
        let course = Course { search: StepPressure::new(steps), steps: Vec::new(), bytes_per_match: None };
        Ok(Run { name, load: Load::start(work, cores)?, course })
    }

    /// Holds the next load. Says whether it was held to the end.
    fn hold(&mut self, shows: bool) -> Result<bool> {
        let Some(order) = self.course.search.poll_trial() else { return Ok(true) };
        let Some(step) = self.load.hold(order.amount as usize)? else { return Ok(false) };
        if shows {
            errln!("{}: {step}", self.name);
        }
        self.course.search.handle_trial(step.trial(order));
        self.course.steps.push(step);
        Ok(true)
    }

    fn course(self) -> Course {
        Course { bytes_per_match: self.load.bytes_per_match(), ..self.course }
    }
}

/// Holds loads of all runs in turns until all searches are over, or one round; every other round goes backwards. `false` if it was
/// interrupted.
fn hold(runs: &mut [Run], is_one_round: bool, shows: bool) -> Result<bool> {
    let mut is_backwards = false;
    while runs.iter().any(|run| run.course.search.poll_trial().is_some()) {
        for index in 0..runs.len() {
            let index = if is_backwards { runs.len() - 1 - index } else { index };
            if !runs[index].hold(shows)? {
                return Ok(false);
            }
        }
        if is_one_round {
            break;
        }
        is_backwards = !is_backwards;
    }
    Ok(true)
}
