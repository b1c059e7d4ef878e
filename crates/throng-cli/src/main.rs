//! The `throng` command.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod out;
#[macro_use]
mod exit;

mod agones;
mod ai_server;
mod allocation;
mod args;
mod bake;
mod compare;
mod doctor;
mod gateway;
mod gateway_bench;
mod gateway_memory;
mod gateway_profile;
mod gateway_replay;
mod lab;
mod large_pages;
mod limits;
mod live;
mod matches;
mod metrics_page;
mod number;
mod pages;
mod play;
mod scale;
mod scenario_file;
mod store;
mod toml_file;
mod top;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};
use clap::{CommandFactory, Parser};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use throng_gateway_lab::Part;
use throng_lab::bots::{self, BotsOptions, BotsReport, Progress};
use throng_lab::report;
use throng_lab::run::{self, BusOptions, RunOptions, RunResult, ServeOptions};
use throng_lab::scenario::Scenario;
use throng_machine::subprocess;
use throng_report::{Kind, MetricLimit, RunFile, RunHead};
use throng_summary::RunSummary;

use args::{Arguments, BotsArguments, Command, CrowdArguments, ReportArguments, ServeArguments};
use exit::{Failure, Outcome};
use play::{Figures, Load, Run};

#[global_allocator]
static ALLOCATOR: allocation::Counting = allocation::Counting;

fn main() -> ExitCode {
    let arguments = match scenario_file::expand(std::env::args_os().collect(), &Arguments::command()) {
        Ok(arguments) => Arguments::parse_from(arguments),
        Err(error) => return exit::report(Err(error)),
    };
    if matches!(arguments.command, Command::Crowd(_) | Command::Serve(_) | Command::Bots(_)) {
        large_pages::ask();
    }
    exit::report(execute(arguments.command))
}

fn execute(command: Command) -> Outcome {
    match command {
        Command::Crowd(arguments) => crowd(&arguments),
        Command::Compare(arguments) => compare::compare(&arguments),
        Command::Serve(arguments) => serve(&arguments),
        Command::Bots(arguments) => play(&arguments),
        Command::Gateway(arguments) => gateway::serve(&arguments),
        Command::GatewayBench(arguments) => gateway_bench::bench(&arguments),
        Command::GatewayReplay(arguments) => gateway_replay::replay(&arguments),
        Command::AiServer(arguments) => ai_server::measure(&arguments, &stop_on_interrupt()?),
        Command::Bake(arguments) => bake::bake(&arguments),
        Command::Match(arguments) => matches::run(&arguments, &stop_on_interrupt()?),
        Command::Density(arguments) => matches::find_density(&arguments, &stop_on_interrupt()?),
        Command::Lab(arguments) => lab::run(&arguments, stop_on_interrupt),
        Command::Scale(arguments) => scale::forecast(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Top(arguments) => top::watch(&arguments),
        Command::WorldForBench => gateway_bench::play(Part::World),
        Command::ClientsForBench => gateway_bench::play(Part::Clients),
        Command::Report(arguments) => rebuild(&arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut without_hidden(&Arguments::command()), "throng", &mut script);
            out!("{}", String::from_utf8_lossy(&script));
            Ok(ExitCode::SUCCESS)
        }
        Command::BotsForRun { clock_ahead } => {
            throng_machine::clock::set_ahead(Duration::from_millis(clock_ahead));
            play_for_host()
        }
        // The host process gets the error through the pipe and prints it.
        Command::ServerForRun => throng_lab::play_server().map(|()| ExitCode::SUCCESS).map_err(|_| Failure::Silent),
        Command::EdgeForRun => throng_lab::play_edge().map(|()| ExitCode::SUCCESS).map_err(|_| Failure::Silent),
        Command::BotsForMatch => matches::play_bots(),
        Command::SiteForMatch => matches::play_site(),
    }
}

/// The command with those subcommands that users call themselves.
fn without_hidden(command: &clap::Command) -> clap::Command {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    clap::Command::new("throng")
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments().cloned())
        .subcommands(shown)
}

fn crowd(arguments: &CrowdArguments) -> Outcome {
    let scenario = scenario(&arguments.workload.scenario, &arguments.overrides())?;
    let workers = arguments.workers()?;
    if let Some(workers) = &workers {
        workers.check(&scenario).map_err(Failure::Usage)?;
    }
    let stop = stop_on_interrupt()?;
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let output = &arguments.output;
    let bots = vec![program.clone().into(), args::BOTS_FOR_RUN.into()];
    // With load workers, the bus is for them alone: they play against one server.
    let bus = arguments.bus.clone().filter(|_| workers.is_none());
    let options = RunOptions {
        edge_command: vec![program.clone().into(), args::EDGE_FOR_RUN.into()],
        server_command: vec![program.into(), args::SERVER_FOR_RUN.into()],
        workers,
        show_progress: !output.quiet && std::io::stderr().is_terminal(),
        note: output.note(),
        allocations: Some(allocation::of_this_thread),
        trace: arguments.trace,
        metrics: arguments.metrics.map(metrics_page::of_crowd).transpose()?,
        bus: bus.map(|nats| BusOptions { nats, carries_links: arguments.bus_links }),
        live: arguments.live.address()?,
        ..RunOptions::new(scenario, output.runs.clone(), bots)
    };
    output.play(options, &stop)
}

impl Load for RunOptions {
    type Figures = RunSummary;

    const KIND: Kind = Kind::Crowd;

    fn name(&self) -> &str {
        &self.scenario.name
    }

    fn limits(&self) -> &[MetricLimit] {
        &self.scenario.limits
    }

    fn play(&mut self, stop: &Arc<AtomicBool>) -> Result<Run<RunSummary>, Failure> {
        let RunResult { summary: figures, folder, report } = run::run(self, stop)?;
        Ok(Run { figures, folder: Some(folder), page: Some(report.map_err(Into::into)) })
    }
}

impl Figures for RunSummary {
    fn head(&self) -> &RunHead {
        &self.head
    }

    fn text(&self) -> String {
        report::text(self)
    }
}

fn serve(arguments: &ServeArguments) -> Outcome {
    let scenario = scenario(&arguments.workload.scenario, &arguments.overrides())?;
    if arguments.listen.ip().is_unspecified() && arguments.public.is_none() {
        let listen = arguments.listen;
        refuse!("{listen} stands for every address of the machine: add --public with the address that clients use");
    }
    throng_report::check_runs(&arguments.runs).map_err(Failure::usage)?;
    let stop = stop_on_interrupt()?;
    let options = ServeOptions {
        scenario: &scenario,
        address: arguments.listen,
        public: arguments.public,
        key: arguments.key.get(),
        runs: &arguments.runs,
        snapshot: arguments.snapshot.as_deref(),
        snapshot_every: Duration::from_secs(arguments.snapshot_every),
        note: |line| errln!("{line}"),
    };
    run::serve(&options, &stop, |connected, longest_ms| {
        errln!("{connected} connected, longest frame of the last second {longest_ms:.2} ms");
    })?;
    Ok(ExitCode::SUCCESS)
}

fn play(arguments: &BotsArguments) -> Outcome {
    let scenario = scenario(&arguments.workload.scenario, &arguments.overrides())?;
    bots::check_target(arguments.connect, arguments.i_own_this_target).map_err(Failure::usage)?;
    let stop = stop_on_interrupt()?;
    let players = scenario.players;
    let options = BotsOptions::new(arguments.connect, arguments.key.get(), scenario);
    let report = bots::play(&options, &stop, show_progress).map_err(Error::from)?;
    if arguments.json {
        out::json(&report)?;
    } else {
        show_report(arguments.connect, &report);
    }
    match fault_of(&report, players) {
        Some(fault) if !stop.load(Ordering::Relaxed) => {
            errln!("these figures may not be quoted: {fault}");
            Ok(ExitCode::from(exit::INVALID_RUN))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Why a load was not the one that was asked for.
fn fault_of(report: &BotsReport, players: u32) -> Option<String> {
    if report.bots.connected < players {
        return Some(format!("{} of {players} bots connected", report.bots.connected));
    }
    if report.bots.disconnects > 0 {
        return Some(format!("{} connections ended early", report.bots.disconnects));
    }
    let is_short = report.bots.inputs_sent_ratio < throng_summary::INPUTS_SENT_MIN;
    is_short.then(|| format!("the bots sent {:.1} % of their inputs", report.bots.inputs_sent_ratio * 100.0))
}

fn play_for_host() -> Outcome {
    let options = run::read_order()?;
    // The host process gets the error through the pipe and prints it.
    bots::play_for_host(&options).map_err(|_| Failure::Silent)?;
    Ok(ExitCode::SUCCESS)
}

fn rebuild(arguments: &ReportArguments) -> Outcome {
    let folder = store::take(&arguments.folder, stop_on_interrupt)?;
    // Before the page is written: only a crowd has this table.
    let figures = arguments.table.then(|| crowd_of(&folder)).transpose().map_err(Failure::Usage)?;
    outln!("{}", pages::page(&folder)?.display());
    if let Some(figures) = figures {
        out!("{}", report::text(&figures));
    }
    Ok(ExitCode::SUCCESS)
}

fn crowd_of(folder: &Path) -> Result<RunSummary> {
    let file = RunFile::open(folder)?;
    if file.head.kind != Kind::Crowd {
        bail!("--table is for runs of crowd only, and {} is of {}", folder.display(), file.head.kind.name());
    }
    Ok(file.into_figures(Kind::Crowd)?)
}

fn scenario(name: &str, overrides: &throng_lab::scenario::Overrides) -> Result<Scenario, Failure> {
    Scenario::resolve(name, overrides).map_err(Failure::usage)
}

/// A flag that the first Ctrl-C sets, as [`on_interrupt`] says; the second Ctrl-C ends the program at once.
fn stop_on_interrupt() -> Result<Arc<AtomicBool>> {
    on_interrupt("stopping; press Ctrl-C again to end at once", || {
        throng_machine::do_last_acts();
        std::process::exit(i32::from(exit::INTERRUPTED));
    })
}

/// A flag that the first Ctrl-C, SIGTERM or SIGHUP sets, with these words; what each further Ctrl-C or SIGTERM does.
fn on_interrupt(words: &'static str, further: fn()) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // A shell that starts a program in the background lets it ignore SIGINT. The programs of this workspace take it all the
    // same, because they ask each other by it.
    let hang_up = (!subprocess::ignores_hang_ups()).then_some(SIGHUP);
    let mut signals =
        Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up)).context("cannot install a handler for Ctrl-C")?;
    let listen = move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            match first {
                None => {
                    first = Some(Instant::now());
                    flag.store(true, Ordering::Relaxed);
                    errln!("{words}");
                }
                // A terminal that is closed may send several, and after a SIGTERM a service manager may, too.
                Some(first) if signal != SIGHUP && first.elapsed() > subprocess::ONE_REQUEST => further(),
                Some(_) => {}
            }
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(listen).context("no thread for signals")?;
    Ok(stop)
}

fn show_progress(progress: &Progress) {
    errln!(
        "{} connected, {} ended, {:.0} kbit/s each, {:.2} cores, inputs late by {:.1} ms (p99)",
        progress.connected,
        progress.ended,
        progress.kbit_per_s,
        progress.cpu_cores,
        progress.late_p99_ms
    );
}

fn show_ages(report: &BotsReport) {
    let Some(error_ms) = report.age_error_ms else {
        outln!("  ages of neighbours unknown: no sample, or the server does not tell its time");
        return;
    };
    outln!("  age of the state of moving neighbours, each ± {error_ms:.1} ms (the server's clock is estimated):");
    let neighbours = &report.neighbours;
    for (name, band) in [("0 to 10 m", neighbours.near), ("10 to 50 m", neighbours.middle), ("beyond", neighbours.far)]
    {
        if let (Some(p50), Some(p99)) = (band.age_ms.p50, band.age_ms.p99) {
            outln!("    {name:<10}  p50 {p50:.0} ms  p99 {p99:.0} ms  ({} samples)", band.samples);
        }
    }
}

fn show_report(server: SocketAddr, report: &BotsReport) {
    outln!("{} bots connected to {server}, {} connections ended early", report.bots.connected, report.bots.disconnects);
    for (reason, count) in &report.ends {
        outln!("  {count} x {reason}");
    }
    outln!("  {:.0} kbit/s to each (p99 {:.0})", report.kbit_per_s.0, report.kbit_per_s.1);
    show_ages(report);
    outln!(
        "  {:.1} % of the due inputs sent, {:.2} cores",
        report.bots.inputs_sent_ratio * 100.0,
        report.bots.cpu_cores
    );
    match &report.kept_in {
        Some(folder) => outln!("  the whole report is on the server's machine, in its folder {folder}"),
        None => outln!("  the server has named no report of this"),
    }
}
