//! The report of a run: one HTML page that needs nothing else.
//!
//! ```text
//!  summary.json   the figures           --.
//!  inside.json    map, fog, shots, events +--> report.html, by throng-report
//!  frames.parquet each frame            --'
//! ```

mod fog;
mod plan;
mod shots;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use throng_match::Seat;
use throng_report::{
    Bars, Cell, Figures, Frames, Kind, LIMITS_FILE, Limit, Line, Page, RunFile, Section, Table, Term, Tile, Verdict,
    Verdicts, figure, metric,
};
use throng_tactical::Event;
use throng_telemetry::{LongFrame, read_longest};

use crate::check::Moments;
use crate::stage::file_error;
use crate::summary::{FRAME_GOAL_MS, MISSED_SHARE_MAX, Summary};
use crate::watch::Watched;
use crate::{RangeError, Stage};

/// The page.
const PAGE: &str = "report.html";
/// The sections about the first match from its inside.
const INSIDE: &str = "inside.json";
/// Each frame by subsystem.
const FRAMES: &str = "frames.parquet";
/// Most points of a curve.
const POINTS_MAX: usize = 2_000;
/// Files of a report are at most so long.
const BYTES_MAX: u64 = 64 << 20;

/// The facts about the first match from its inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside<'a> {
    /// Its events, paths and shots.
    pub(crate) watched: Option<&'a Watched>,
    /// The verdicts of its fog.
    pub(crate) fog: &'a Moments,
}

/// Writes the page and its files into a folder. Returns the page's path.
pub(crate) fn write(
    folder: &Path,
    summary: &Summary,
    inside: &Inside<'_>,
    stage: &Stage,
) -> Result<PathBuf, RangeError> {
    RunFile::write(folder, summary)?;
    if let Some(watched) = inside.watched {
        let sections = [
            plan::section(watched, stage),
            fog::section(inside.fog, watched),
            shots::section(watched, summary.tick_hz),
            feed(watched, summary.tick_hz),
        ];
        let json = serde_json::to_string(&sections).map_err(|error| file_error(folder, error.into()))?;
        put(&folder.join(INSIDE), &json)?;
    }
    rebuild(folder)
}

/// Writes the figures of several runs into a folder, with their page. Returns the page's path.
pub(crate) fn write_figures(folder: &Path, summary: &Summary) -> Result<PathBuf, RangeError> {
    RunFile::write(folder, summary)?;
    rebuild(folder)
}

/// Makes the page of a run again from its files. Returns its path.
///
/// # Errors
/// A file cannot be read or written, or is none of a run of matches.
pub fn rebuild(folder: &Path) -> Result<PathBuf, RangeError> {
    let summary: Summary = RunFile::figures(folder, Kind::Match)?;
    let path = folder.join(INSIDE);
    let inside: Vec<Section> = match path.is_file() {
        true => serde_json::from_str(&read(&path)?).map_err(|error| file_error(&path, error.into()))?,
        false => Vec::new(),
    };
    let path = folder.join(FRAMES);
    let seconds = match path.is_file() {
        true => frames(&path, &summary)?,
        false => Frames::default(),
    };
    let path = folder.join(PAGE);
    let mut page = page(&summary, inside, seconds);
    let verdicts = Verdicts::read(folder).map_err(|error| file_error(&folder.join(LIMITS_FILE), error))?;
    verdicts.inspect(|verdicts| verdicts.show_on(&mut page));
    let html = page.render();
    put(&path, &html.map_err(|error| file_error(&path, std::io::Error::other(error)))?)?;
    Ok(path)
}

fn read(path: &Path) -> Result<String, RangeError> {
    let error = |error| file_error(path, error);
    if std::fs::metadata(path).map_err(error)?.len() > BYTES_MAX {
        return Err(error(std::io::ErrorKind::FileTooLarge.into()));
    }
    std::fs::read_to_string(path).map_err(error)
}

fn put(path: &Path, text: &str) -> Result<(), RangeError> {
    throng_file::write_whole(path, text).map_err(|error| file_error(path, error))
}

/// The longest frame of each time span, by subsystem.
fn frames(path: &Path, summary: &Summary) -> Result<Frames, RangeError> {
    let longest = read_longest(path, POINTS_MAX).map_err(|error| file_error(path, error))?;
    let names: BTreeSet<&String> = longest.iter().flat_map(|frame| frame.parts_ns.keys()).collect();
    let part_ms = |frame: &LongFrame, name: &str| frame.parts_ns.get(name).map_or(0.0, |ns| ms_of(*ns));
    let curve = |name: &&String| longest.iter().map(|frame| part_ms(frame, name)).collect::<Vec<f64>>();
    let mut parts: Vec<(String, Vec<f64>)> = names.iter().map(|name| ((*name).clone(), curve(name))).collect();
    parts.retain(|(_, ms)| ms.iter().any(|ms| *ms > 0.0));
    let sum = |(_, ms): &(String, Vec<f64>)| ms.iter().sum::<f64>();
    parts.sort_by(|a, b| sum(b).total_cmp(&sum(a)));
    Ok(Frames {
        x: longest.iter().map(|frame| (frame.start_ns as f64 / 1e6).round() / 1e3).collect(),
        total: longest.iter().map(|frame| ms_of(frame.total_ns())).collect(),
        parts,
        missed: Vec::new(),
        budget: Some(goal(summary)),
        point: "frame".to_owned(),
    })
}

/// Milliseconds, to a tenth of a microsecond.
fn ms_of(ns: u64) -> f64 {
    (ns as f64 / 1e2).round() / 1e4
}

/// The time that a frame may take.
fn goal(summary: &Summary) -> Line {
    Line { value: FRAME_GOAL_MS.min(1e3 / f64::from(summary.tick_hz.max(1))), name: "goal".to_owned() }
}

pub(crate) fn page(summary: &Summary, inside: Vec<Section>, frames: Frames) -> Page {
    let json = serde_json::to_value(summary).unwrap_or_default();
    let figures = Figures::new(Kind::Match, &json);
    let ended = "The match was ended without a result";
    let of_search = summary.density_answer.as_ref().map(|answer| format!("Density: {}", answer.why));
    let title = of_search.as_deref().or(summary.result.as_deref()).unwrap_or(ended);
    let checked = "All bots joined and kept up, and no frame of telemetry was lost.";
    let mut page = summary.head.page(title, checked);
    page.subtitle = format!(
        "{} of {} players{} at {} Hz for {} s",
        if summary.matches == 1 { "a match".to_owned() } else { format!("{} matches", summary.matches) },
        summary.players,
        if summary.matches == 1 { "" } else { " in all" },
        summary.tick_hz,
        figure(summary.head.seconds)
    );
    if !matches!(&summary.profile[..], "" | "constant") {
        page.subtitle += &format!(", {}", summary.profile);
    }
    page.facts.push(format!("workers: {}, as {}", summary.workers, summary.mode));
    page.limits = limits(summary);
    page.tiles = tiles(summary, &figures);
    page.sections.extend(steps(summary, &figures));
    page.sections.push(frame(summary, &figures, frames));
    if inside.is_empty() {
        page.sections.push(Section::new("Map").note(
            "Map, fog, shots and events are not known: the match was neither played in this process nor replayed. Run it \
             without --no-check.",
        ));
    }
    page.sections.extend(inside);
    page.sections.push(checks(&figures));
    page.sections.push(ends(summary));
    page.sections.push(Section::new("Environment").with(summary.head.machine()));
    page.index = Some("../index.html".to_owned());
    page
}

fn limits(summary: &Summary) -> Vec<Limit> {
    let term = |path: &str| metric(Kind::Match, path).term();
    let limit = |term: Term, limit: String, value: String, met: Option<bool>| Limit {
        term,
        limit,
        value,
        verdict: Verdict::of(met),
    };
    let frame = summary.frame_ms.p99;
    let played = summary.phases.values().map(|phase| phase.frames).sum::<u64>() + summary.missed_ticks;
    let missed = summary.missed_ticks as f64 / played.max(1) as f64;
    let hidden = summary.fog.hidden_but_visible;
    let replay = match summary.replay.identical {
        Some(true) => "identical",
        Some(false) => "differs",
        None => "not checked",
    };
    let mut limits = vec![
        limit(
            term("frame_ms.p99"),
            format!("≤ {FRAME_GOAL_MS} ms"),
            format!("{} ms", figure(frame)),
            Some(frame <= FRAME_GOAL_MS),
        ),
        limit(
            term("missed_ticks"),
            format!("≤ {} %", figure(MISSED_SHARE_MAX * 100.0)),
            format!("{} %", figure(missed * 100.0)),
            (played > 0).then_some(missed <= MISSED_SHARE_MAX),
        ),
        limit(
            term("fog.hidden_but_visible"),
            "0".to_owned(),
            hidden.map_or("–".to_owned(), |pairs| pairs.to_string()),
            hidden.map(|pairs| pairs == 0),
        ),
        limit(
            Term::new("replay", "the first match, played again from its input log, has the same digests, tick by tick"),
            "identical".to_owned(),
            replay.to_owned(),
            summary.replay.identical,
        ),
    ];
    for (name, subsystem) in &summary.subsystems {
        let Some(budget) = subsystem.budget_ms else { continue };
        limits.push(limit(
            Term::new(&format!("{name}, p99"), throng_report::explanation_of_part(name)),
            format!("≤ {budget} ms"),
            format!("{} ms", figure(subsystem.p99_ms)),
            Some(subsystem.p99_ms <= budget),
        ));
    }
    limits
}

fn tiles(summary: &Summary, figures: &Figures<'_>) -> Vec<Tile> {
    let optional = throng_report::optional;
    let frame = summary.frame_ms;
    let tiles = [
        ("frame_ms.p99", format!("median {} ms, longest {} ms", figure(frame.p50), figure(frame.max))),
        (
            "lateness_us.p99",
            format!("median {} µs; {} ticks missed", figure(summary.lateness_us.p50), summary.missed_ticks),
        ),
        ("cpu_cores", format!("fog of war: {} % of a core per match", figure(summary.fog.cpu_share * 100.0))),
        ("matches_per_core", "shown by this run, and not extrapolated".to_owned()),
        ("rewind.us_per_shot", format!("{} shots, {} hits", summary.rewind.shots, summary.rewind.hits)),
        ("sight.rays_per_s", format!("{} times Embree", optional(summary.sight.ratio_to_embree))),
    ];
    let limits = limits(summary);
    let of = |(path, note): (&str, String)| {
        let mut tile = figures.tile(path, note);
        tile.verdict = limits.iter().find(|limit| limit.term == tile.term).map(|limit| limit.verdict);
        tile
    };
    tiles.map(of).into()
}

/// The name of a player: A1 to A5 attack, D1 to D5 defend.
fn name(seat: usize, seats: usize) -> String {
    let half = seats / 2;
    if seat < half { format!("A{}", seat + 1) } else { format!("D{}", seat - half + 1) }
}

/// A moment as minutes and seconds since the first tick.
fn clock(tick: u64, tick_hz: u32) -> String {
    let tenths = tick * 10 / u64::from(tick_hz.max(1));
    format!("{}:{:02}.{}", tenths / 600, tenths / 10 % 60, tenths % 10)
}

fn frame(summary: &Summary, figures: &Figures<'_>, frames: Frames) -> Section {
    let mut rows: Vec<_> = summary.subsystems.iter().collect();
    rows.sort_by(|a, b| b.1.mean_ms.total_cmp(&a.1.mean_ms));
    let mut table = Table::new("By subsystem", "subsystem | #mean ms | #p99 ms | #budget ms | #breaches").brief();
    for (name, subsystem) in &rows {
        let verdict = if subsystem.breaches > 0 { Verdict::Missed } else { Verdict::Kept };
        table.push([
            Cell::part(name),
            Cell::number(ms(subsystem.mean_ms)),
            Cell::number(ms(subsystem.p99_ms)),
            Cell::number(subsystem.budget_ms.map_or("none".to_owned(), |budget| budget.to_string())),
            Cell { is_number: true, ..Cell::verdict(verdict, &subsystem.breaches.to_string()) },
        ]);
    }
    table.note = "A breach is a frame in which a subsystem took longer than its budget.".to_owned();
    let mut phases = Table::new("By phase of the round", "phase | #frames | #mean ms | #p99 ms");
    for (name, phase) in &summary.phases {
        let cells = [phase.frames.to_string(), ms(phase.mean_ms), ms(phase.p99_ms)].map(Cell::number);
        phases.push(std::iter::once(Cell::from(&name[..])).chain(cells));
    }
    let bars = Bars {
        title: "Mean frame".to_owned(),
        unit: "ms".to_owned(),
        rows: vec![("mean".to_owned(), rows.iter().map(|(name, of)| ((*name).clone(), of.mean_ms)).collect())],
        note: String::new(),
    };
    let histogram = summary.histogram.bars(Some(goal(summary)));
    let measuring =
        throng_report::measuring(summary.measuring_us_per_frame.zip(summary.measuring_share), "frame", "a mean frame");
    let chart = |curves: &[(&str, &str)]| figures.chart("", curves);
    let mut section = Section::new("Frame")
        .note(&format!("Exclusive time; the parts add up to the frame. The goal of a frame is {FRAME_GOAL_MS} ms. Each point is the longest frame of its time span."))
        .with(frames)
        .with(measuring)
        .with(histogram)
        .with(bars)
        .with(table)
        .with(phases)
        .with(chart(&[("samples.cpu_share", "send")]))
        .with(chart(&[("samples.frames_over", "encode")]))
        .with(figures.facts(
            "Frames",
            &[
                "frame_ms.",
                "measuring_us_per_frame",
                "measuring_share",
                "not_running_ms",
                "missed_ticks",
                "lateness_us.p99",
                "wake_lateness_us.p99",
            ],
        ));
    if !summary.density.is_empty() {
        section.push(density(summary));
    }
    if let (Some(growth), Some(largest)) = (&summary.density_growth, summary.density.last()) {
        let mut table = Table::new("", "growth over these steps").brief();
        growth.words(largest.matches).into_iter().for_each(|line| table.push([Cell::from(line)]));
        section.push(table);
    }
    section
}

/// The levels of a load profile.
fn steps(summary: &Summary, figures: &Figures<'_>) -> Option<Section> {
    let head = "#from | #to | #matches | #frame p50 | #frame p99 | #late p99 | #cores | #missed ticks";
    let mut table = Table::new("", head).wide().brief();
    for step in &summary.steps {
        let cells = [
            format!("{} s", figure(step.from_s)),
            format!("{} s", figure(step.to_s)),
            step.matches.to_string(),
            format!("{} ms", ms(step.frame_ms.p50)),
            format!("{} ms", ms(step.frame_ms.p99)),
            format!("{} µs", figure(step.lateness_us.p99)),
            figure(step.cpu_cores),
            step.missed_ticks.to_string(),
        ];
        table.push(cells.map(Cell::number));
    }
    table.note = "The first fifth of a level after a change (10 s at most) is not judged.".to_owned();
    let curves = [("samples.matches", "send"), ("samples.matches_wanted", "encode")];
    let section = Section::new("Load steps").with(table).with(figures.chart("", &curves));
    (!summary.steps.is_empty()).then_some(section)
}

fn density(summary: &Summary) -> Table {
    let head = "#matches | #frame p50 | #frame p99 | #late p99 | #missed ticks | purpose | verdict";
    let mut table = Table::new("Steps of the search", head).brief();
    for step in &summary.density {
        table.push([
            Cell::number(step.matches.to_string()),
            Cell::number(format!("{} ms", ms(step.frame_ms.p50))),
            Cell::number(format!("{} ms", ms(step.frame_ms.p99))),
            Cell::number(format!("{} µs", figure(step.lateness_p99_us))),
            Cell::number(step.missed_ticks.to_string()),
            Cell::from(step.purpose.clone()),
            Cell::verdict(Verdict::of_load(&step.verdict), &step.verdict),
        ]);
    }
    table
}

fn checks(figures: &Figures<'_>) -> Section {
    Section::new("Checks and counts")
        .with(figures.facts("Shots", &["rewind."]))
        .with(figures.facts("Fog of war", &["fog.", "sight."]))
        .with(figures.facts("Bots and commands", &["bots.", "ai.", "commands."]))
        .with(figures.facts("Poses and replay", &["animation.", "replay."]))
}

fn ends(summary: &Summary) -> Section {
    let list = |title: &str, lines: &[String]| {
        let mut table = Table::new(title, "");
        lines.iter().for_each(|line| table.push([Cell::from(&line[..])]));
        table
    };
    Section::new("Ends")
        .with(list("How each match ended", &summary.ends))
        .with(list("Breaches of budgets, the newest", &summary.breaches))
}

fn feed(watched: &Watched, tick_hz: u32) -> Section {
    let seats = watched.paths.len();
    let name = |seat: &Seat| name(seat.index(), seats);
    let mut table = Table::new("", "time | event").wide();
    for (tick, event) in &watched.events {
        let line = match event {
            Event::RoundBegan { round } => format!("round {round} begins"),
            Event::WentLive => "the round is live".to_owned(),
            Event::Died { seat, by: Some(by), weapon, is_headshot, .. } => {
                let head = if *is_headshot { ", head" } else { "" };
                format!("{} kills {} ({weapon:?}{head})", name(by), name(seat))
            }
            Event::Died { seat, by: None, .. } => format!("{} dies", name(seat)),
            Event::Smoke { by, .. } => format!("{} throws a smoke", name(by)),
            Event::Wall { by, .. } => format!("{} raises a wall", name(by)),
            Event::Planted { by, site, .. } => format!("{} plants the bomb at {site}", name(by)),
            Event::Defused { by } => format!("{} defuses the bomb", name(by)),
            Event::Exploded { .. } => "the bomb explodes".to_owned(),
            Event::Escaped { by, target } => format!("{} escapes a shot of {} by a dash", name(target), name(by)),
            Event::RoundEnded { winner, ending, score } => {
                format!("{} win the round ({ending:?}): {} to {}", winner.name(), score[0], score[1])
            }
            _ => continue,
        };
        table.push([Cell::from(clock(*tick, tick_hz)), Cell::from(line)]);
    }
    Section::new("Events").with(table)
}

/// Milliseconds, to a microsecond.
fn ms(value: f64) -> String {
    format!("{value:.3}")
}
