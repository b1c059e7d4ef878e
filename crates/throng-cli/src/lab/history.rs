//! `throng lab compare`, `throng lab trend` and `throng lab bisect`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use anyhow::Error;
use clap::Args;
use throng_history::{BisectOptions, Comparison, HistoryError, Trend};
use throng_judge::TrendOptions;
use throng_report::{Cell, RunFile, SUMMARY_FILE, Table};

use crate::exit::{self, Failure, Outcome};
use crate::number::number;
use crate::{out, pages, store};

pub(super) const COMPARE_LONG_ABOUT: &str = "\
Is B slower than A, and in which subsystem?

A and B are folders with five runs or more. A difference within the noise is called no change. With fewer runs, nothing is \
decided; how much these runs differ is shown all the same.

  throng lab compare runs/20260131-120000-crowd runs/20260131-130000-crowd
  throng lab compare before/ after/ --gate          exit code 4 if a part became slower, 3 with too few runs
  throng lab compare before/ after/ --markdown      a table for a pull request
  throng lab compare before/ after/ --runs runs     also a page, runs/<stamp>-comparison/report.html";

pub(super) const TREND_LONG_ABOUT: &str = "\
Which revisions changed a part of the frame?

Reads all runs of a folder, puts those of one workload and one processor in a row by revision, and finds the changes of each \
part: by how much, and between which revisions.

  throng lab trend runs";

pub(super) const BISECT_LONG_ABOUT: &str = "\
Which revision made it slower?

Builds and measures revisions between a good and a bad one in a work tree of its own, until the first bad one is found. Your \
working files are not touched. Both commands run by `sh -c`; the second one prints a JSON object.

  throng lab bisect --good v1.2 --bad main --build 'cargo build --release' \\
      --run 'target/release/throng match --seconds 20 --no-check --no-report --json --quiet' --metric frame_ms.p50";

/// Arguments of `throng lab compare`.
#[derive(Debug, Args)]
pub(super) struct CompareArguments {
    /// The folder of a run, or one with several runs; or the address of such in a store
    first: String,
    /// The other side
    second: String,
    /// Smaller changes do not matter, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = number(0.0f64..=100.0))]
    least: f64,
    /// End with exit code 4 if a part became worse, or 3 if there are too few runs to tell
    #[arg(long)]
    gate: bool,
    /// Also write the comparison and its page to a new folder below this one
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// Print a table in Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print JSON (docs/history.md)
    #[arg(long)]
    json: bool,
}

/// Arguments of `throng lab trend`.
#[derive(Debug, Args)]
pub(super) struct TrendArguments {
    /// A folder with the folders of runs, or the address of a store
    #[arg(default_value = "runs")]
    runs: String,
    /// Smaller changes do not matter, in per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = number(0.0f64..=100.0))]
    least: f64,
    /// End with exit code 4 if the newest change of a part is for the worse
    #[arg(long)]
    gate: bool,
    /// Print JSON (docs/history.md)
    #[arg(long)]
    json: bool,
}

/// Arguments of `throng lab bisect`.
#[derive(Debug, Args)]
pub(super) struct BisectArguments {
    /// A revision that is quick
    #[arg(long, value_name = "REVISION")]
    good: String,
    /// A later revision that is slow
    #[arg(long, value_name = "REVISION")]
    bad: String,
    /// Builds a revision
    #[arg(long, value_name = "COMMAND", default_value = "")]
    build: String,
    /// Measures a revision, and prints a JSON object
    #[arg(long, value_name = "COMMAND")]
    run: String,
    /// Path of the figure in that object
    #[arg(long, value_name = "PATH", default_value = "frame_ms.p50")]
    metric: String,
    /// Runs of each revision
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number(5u32..=1_000))]
    repeats: u32,
    /// A build or a run that takes longer is ended
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = humantime::parse_duration)]
    patience: Duration,
    /// The repository
    #[arg(long, value_name = "DIR", default_value = ".")]
    repository: PathBuf,
    /// Print JSON (docs/history.md)
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

fn usage(error: HistoryError) -> Failure {
    match error {
        HistoryError::Stopped => Failure::Run(error.into()),
        _ => Failure::Usage(error.into()),
    }
}

fn code(is_worse: bool) -> ExitCode {
    if is_worse { ExitCode::from(exit::LIMIT) } else { ExitCode::SUCCESS }
}

/// The files of a run that a comparison reads.
const COMPARED: [&str; 2] = [SUMMARY_FILE, "frames.parquet"];

pub(super) fn compare(arguments: &CompareArguments, stop: &AtomicBool) -> Outcome {
    let least = arguments.least / 100.0;
    let runs = |place: &str| {
        let local = store::local(place, &COMPARED, stop)?;
        throng_history::runs(&local.path).map_err(usage)
    };
    let (first, second) = (runs(&arguments.first)?, runs(&arguments.second)?);
    let mut comparison = throng_history::compare(&first.runs, &second.runs, least).map_err(usage)?;
    for (side, found) in [("A", &first), ("B", &second)] {
        comparison.notes.extend(found.notes().into_iter().map(|note| format!("{side}: {note}")));
    }
    if let Some(runs) = &arguments.runs {
        keep(&comparison, runs)?;
    }
    match () {
        () if arguments.json => out::json(&comparison)?,
        () if arguments.markdown => out!("{}", markdown(&comparison)),
        () => out!("{}", table(&comparison)),
    }
    if arguments.gate && comparison.has_too_few_runs() {
        return Ok(ExitCode::from(exit::INVALID_RUN));
    }
    Ok(code(arguments.gate && comparison.worse().count() > 0))
}

/// Writes the comparison and its page.
fn keep(comparison: &Comparison, runs: &Path) -> Result<(), Failure> {
    let folder = throng_report::new_folder(runs, SystemTime::now(), "comparison").map_err(Error::from)?;
    RunFile::write(&folder, comparison).map_err(Error::from)?;
    pages::write(&folder, runs, false);
    Ok(())
}

/// Four significant digits.
pub(super) fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let whole = value.abs().max(1e-12).log10().floor() as i32 + 1;
    format!("{value:.*}", (4 - whole).clamp(0, 6) as usize)
}

fn heading(comparison: &Comparison) -> String {
    let Comparison { head, first, second, runs: (before, after), .. } = comparison;
    let list = |revisions: &[String]| revisions.join(", ");
    let [before, after] = [before, after].map(|runs| throng_report::counted(*runs as u64, "run"));
    format!("{}: A {} ({before}), B {} ({after})", head.workload, list(first), list(second))
}

fn verdict(comparison: &Comparison) -> String {
    let worse: Vec<&str> = comparison.worse().map(|part| part.name.as_str()).collect();
    let undecided = comparison.parts.iter().filter(|part| part.verdict == "undecided").count();
    match (worse.len(), undecided) {
        _ if comparison.has_too_few_runs() => "undecided: too few runs".to_owned(),
        (0, 0) => "nothing became worse".to_owned(),
        (0, _) => format!("nothing is known to have become worse; {undecided} undecided"),
        _ => format!("worse: {}", worse.join(", ")),
    }
}

fn table(comparison: &Comparison) -> String {
    let (heading, verdict) = (heading(comparison), verdict(comparison));
    let mut text = format!("{heading}\n\n{}\n{verdict}\n", parts(comparison).text(" "));
    comparison.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    text
}

fn parts(comparison: &Comparison) -> Table {
    let mut table = Table::new("", "part | #A | #B | unit | verdict");
    for part in &comparison.parts {
        let words = match part.verdict.as_str() {
            "slower" | "worse" | "faster" | "better" => format!("{}: {}", part.verdict, part.words),
            _ => part.words.clone(),
        };
        let [first, second] = [part.first, part.second].map(|value| Cell::number(digits(value)));
        table.push([part.name[..].into(), first, second, part.unit[..].into(), words.into()]);
    }
    table
}

fn markdown(comparison: &Comparison) -> String {
    let (heading, verdict) = (heading(comparison), verdict(comparison));
    let mut text = format!("**{verdict}**\n\n{heading}\n{}", parts(comparison).markdown());
    comparison.notes.iter().for_each(|note| text += &format!("\n{note}\n"));
    text
}

pub(super) fn trend(arguments: &TrendArguments, stop: &AtomicBool) -> Outcome {
    let least = arguments.least / 100.0;
    let runs = if store::has_index(&arguments.runs) {
        let listed = store::list(&arguments.runs, false, stop)?;
        listed.notes.iter().for_each(|note| errln!("note: {note}"));
        listed.runs
    } else {
        let found = throng_history::runs(Path::new(&arguments.runs)).map_err(usage)?;
        found.notes().iter().for_each(|note| errln!("note: {note}"));
        found.runs
    };
    let trends =
        throng_history::trend(&runs, &TrendOptions { least, ..TrendOptions::default() }, stop).map_err(usage)?;
    if arguments.json {
        out::json(&trends)?;
    } else {
        trends.iter().for_each(|trend| out!("{}", trend_text(trend)));
    }
    let is_worse = trends.iter().any(|trend| {
        let newest = |index: usize| !trend.changes[index + 1..].iter().any(|of| of.part == trend.changes[index].part);
        trend.changes.iter().enumerate().any(|(index, change)| change.is_worse && newest(index))
    });
    Ok(code(arguments.gate && is_worse))
}

fn trend_text(trend: &Trend) -> String {
    let Trend { workload, cpu, revisions, runs, changes } = trend;
    let runs = throng_report::counted(*runs as u64, "run");
    let mut text =
        format!("{workload} on {cpu}: {}, {runs}\n", throng_report::counted(revisions.len() as u64, "revision"));
    changes.iter().for_each(|change| text += &format!("  {}\n", change.words()));
    if changes.is_empty() {
        let few = if revisions.len() < 6 { ": fewer than 6 revisions do not show any" } else { "" };
        text += &format!("  no change{few}\n");
    }
    text
}

pub(super) fn bisect(arguments: &BisectArguments, stop: &AtomicBool) -> Outcome {
    let options = BisectOptions {
        repository: arguments.repository.clone(),
        good: arguments.good.clone(),
        bad: arguments.bad.clone(),
        build: arguments.build.clone(),
        run: arguments.run.clone(),
        metric: arguments.metric.clone(),
        repeats: arguments.repeats,
        patience: arguments.patience,
        note: if arguments.quiet { |_| () } else { |line| errln!("{line}") },
    };
    let found = throng_history::bisect(&options, stop)?;
    let code = if found.partial { ExitCode::from(exit::FAILED) } else { ExitCode::SUCCESS };
    if arguments.json {
        out::json(&found)?;
        return Ok(code);
    }
    let percent = (found.ratio - 1.0) * 100.0;
    if found.between.is_empty() {
        outln!("{} made {} {percent:+.1} %: {}", found.first_bad, arguments.metric, found.subject);
    } else {
        let (from, to) = (&found.between[0], &found.first_bad);
        outln!("one of the revisions from {from} to {to} made {} {percent:+.1} %", arguments.metric);
        let why = if found.partial { "were not all measured: it was interrupted" } else { "could not be measured" };
        outln!("those between {} and {to} {why}", found.last_good);
    }
    outln!("{} is on the good side; the two differ: {}", found.last_good, found.certainty);
    outln!("{} revisions were measured", found.tried.len());
    found.skipped.iter().for_each(|revision| outln!("{revision} could not be measured"));
    Ok(code)
}
