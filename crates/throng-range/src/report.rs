//! The report of a run: one HTML page that needs nothing else.

mod fog;
mod plan;
mod shots;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use throng_match::Seat;
use throng_tactical::Event;

use crate::check::Moments;
use crate::stage::file_error;
use crate::summary::{FRAME_GOAL_MS, Summary};
use crate::watch::Watched;
use crate::{RangeError, Stage};

/// The page.
const PAGE: &str = "report.html";
/// The figures.
const FIGURES: &str = "summary.json";
const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1b2430; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.5rem; } table { border-collapse: collapse; margin: 1rem 0; }
td, th { padding: .2rem .8rem; border-bottom: 1px solid #d8dee6; text-align: right; vertical-align: top; }
td:first-child, th:first-child, td.text, th.text { text-align: left; } .bar { background: #3b7dd8; height: .8rem; }
.over { color: #b3261e; font-weight: 600; } .note { color: #5a6675; max-width: 48rem; } svg { width: 100%; height: auto; }
.wide { overflow-x: auto; } .key { display: inline-block; width: .9em; height: .9em; margin: 0 .3em 0 .8em; }
nav a { margin-right: 1rem; } td.matrix { text-align: center; padding: .2rem .5rem; }
td.matrix, .words { white-space: nowrap; }
.hit { color: #1d7a3e; font-weight: 600; } .blocked { color: #8a5a00; } .escaped { color: #6b3fa0; font-weight: 600; }
@media (max-width: 600px) { body { margin: 1rem auto; padding: 0 .6rem; } h1 { font-size: 1.5rem; }
td, th { padding: .15rem .4rem; } .facts td { display: block; border: 0; text-align: left; padding: 0 .2rem; }
.facts td:last-child { border-bottom: 1px solid #d8dee6; padding-bottom: .3rem; } .facts td:first-child { color: #5a6675; } }";

/// The facts about the first match from its inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inside<'a> {
    /// Its events, paths and shots.
    pub(crate) watched: Option<&'a Watched>,
    /// The verdicts of its fog.
    pub(crate) fog: &'a Moments,
}

/// Writes the page and the figures into a folder. Returns the page's path.
pub(crate) fn write(
    folder: &Path,
    summary: &Summary,
    inside: &Inside<'_>,
    stage: &Stage,
) -> Result<PathBuf, RangeError> {
    let json = serde_json::to_string_pretty(summary).map_err(|error| file_error(folder, error.into()))?;
    let figures = folder.join(FIGURES);
    std::fs::write(&figures, json + "\n").map_err(|error| file_error(&figures, error))?;
    let path = folder.join(PAGE);
    std::fs::write(&path, page(summary, inside, stage)).map_err(|error| file_error(&path, error))?;
    Ok(path)
}

fn page(summary: &Summary, inside: &Inside<'_>, stage: &Stage) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>throng match</title><style>{STYLE}</style><h1>{}</h1>",
        escaped(summary.result.as_deref().unwrap_or("The match was ended without a result"))
    );
    if !summary.valid {
        page += "<p class=\"over\">This run is not valid. Its figures prove nothing:</p><ul>";
        summary.invalid_reasons.iter().for_each(|reason| page += &format!("<li>{}</li>", escaped(reason)));
        page += "</ul>";
    }
    page += "<nav><a href=\"#frame\">Frame</a><a href=\"#map\">Map</a><a href=\"#fog\">Fog</a>\
             <a href=\"#shots\">Shots</a><a href=\"#events\">Events</a></nav>";
    page += &overview(summary);
    page += &subsystems(summary);
    match inside.watched {
        Some(watched) => {
            page += &plan::section(watched, stage);
            page += &fog::section(inside.fog, watched);
            page += &shots::section(watched, summary.tick_hz);
            page += &feed(watched, summary.tick_hz);
        }
        None => {
            page += "<h2 id=\"map\">The match from its inside</h2><p>Map, fog, shots and events are not known: the \
                     match was neither played in this process nor replayed. Run it without --no-check.</p>";
        }
    }
    page += "<h2>How each match ended</h2><ul>";
    summary.ends.iter().for_each(|end| page += &format!("<li>{}</li>", escaped(end)));
    page += "</ul>";
    if !summary.breaches.is_empty() {
        page += "<h2>Breaches of budgets, the newest</h2><ul>";
        summary.breaches.iter().for_each(|breach| page += &format!("<li>{}</li>", escaped(breach)));
        page += "</ul>";
    }
    page + "</html>\n"
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

fn overview(summary: &Summary) -> String {
    let or_unknown =
        |value: Option<f64>, unit: &str| value.map_or("unknown".to_owned(), |value| format!("{value}{unit}"));
    let percent = |share: f64| (share * 10_000.0).round() / 100.0;
    let rows = [
        ("Matches, players", format!("{}, {}", summary.matches, summary.players)),
        ("Ticks per second", summary.tick_hz.to_string()),
        ("Measured", format!("{:.1} s", summary.seconds)),
        ("Frame, mean / p50 / p99 / longest", {
            let frame = summary.frame_ms;
            format!("{} / {} / {} / {} ms", ms(frame.mean), ms(frame.p50), ms(frame.p99), ms(frame.max))
        }),
        ("Part of it in which the thread did not run, mean", format!("{} ms", ms(summary.not_running_ms))),
        ("Frames began late by, p99", format!("{:.0} µs", summary.lateness_us.p99)),
        ("Missed ticks", summary.missed_ticks.to_string()),
        ("Time per shot", or_unknown(summary.rewind.us_per_shot.map(hundredths), " µs")),
        (
            "Verdicts equal with a pose for each tick",
            or_unknown(
                summary.rewind.verdicts_equal_share.map(percent),
                &format!(" % of {} shots", summary.rewind.compared_shots),
            ),
        ),
        ("Fog: enemies hidden who could be seen, and must not be", {
            or_unknown(
                summary.fog.hidden_but_visible.map(|n| n as f64),
                &format!(" of {} looks", summary.fog.pairs_checked),
            )
        }),
        ("Fog: share of the sent enemies who could not be seen at that moment", {
            or_unknown(summary.fog.sent_needlessly_share.map(percent), " %")
        }),
        ("Fog: share of a core per match", format!("{} %", percent(summary.fog.cpu_share))),
        (
            "Rays through the map, one core",
            or_unknown(summary.sight.rays_per_s.map(|rate| hundredths(rate / 1e6)), " million per second"),
        ),
        (
            "Replay",
            match summary.replay.identical {
                Some(true) => format!("identical, {} ticks", summary.replay.ticks),
                Some(false) => "differs".to_owned(),
                None => "not checked".to_owned(),
            },
        ),
        ("Poses evaluated / spared by cadence / by phase", {
            let poses = summary.animation;
            format!("{} / {} / {}", poses.poses, poses.saved_by_cadence, poses.saved_by_phase)
        }),
        ("Commands taken / refused / refused by the game", {
            let commands = summary.commands;
            format!("{} / {} / {}", commands.taken, commands.refused, commands.refused_by_game)
        }),
        (
            "Machine",
            format!("{}, {} cores, {}", summary.environment.cpu, summary.environment.cores, summary.environment.kernel),
        ),
    ];
    let rows: String = rows.iter().map(|(name, value)| format!("<tr><td>{name}<td>{}", escaped(value))).collect();
    format!("<table class=\"facts\">{rows}</table>")
}

fn subsystems(summary: &Summary) -> String {
    let mut rows: Vec<_> = summary.subsystems.iter().collect();
    rows.sort_by(|a, b| b.1.mean_ms.total_cmp(&a.1.mean_ms));
    let largest = rows.first().map_or(1.0, |(_, subsystem)| subsystem.mean_ms.max(1e-9));
    let mut text = format!(
        "<h2 id=\"frame\">Frame by subsystem</h2><p class=\"note\">Exclusive time; the parts add up to the frame. The goal of a frame \
         is {FRAME_GOAL_MS} ms.</p><div class=\"wide\"><table><tr><th>Subsystem<th>mean ms<th>p99 ms<th>budget ms<th>breaches<th>"
    );
    for (name, subsystem) in rows {
        let budget = subsystem.budget_ms.map_or("none".to_owned(), |budget| budget.to_string());
        let class = if subsystem.breaches > 0 { " class=\"over\"" } else { "" };
        let width = 12.0 * subsystem.mean_ms / largest;
        let _ = write!(
            text,
            "<tr><td>{}<td>{}<td>{}<td>{budget}<td{class}>{}<td class=\"text\"><div class=\"bar\" style=\"width:{width:.2}rem\">\
             </div>",
            escaped(name),
            ms(subsystem.mean_ms),
            ms(subsystem.p99_ms),
            subsystem.breaches
        );
    }
    text += "</table></div><p class=\"note\">A breach is a frame in which a subsystem took longer than its budget. The same \
             frames by phase of the round:</p><table><tr><th>Phase<th>frames<th>mean ms<th>p99 ms";
    for (name, phase) in &summary.phases {
        let _ = write!(
            text,
            "<tr><td>{}<td>{}<td>{}<td>{}",
            escaped(name),
            phase.frames,
            ms(phase.mean_ms),
            ms(phase.p99_ms)
        );
    }
    text + "</table>"
}

fn feed(watched: &Watched, tick_hz: u32) -> String {
    let seats = watched.paths.len();
    let name = |seat: &Seat| name(seat.index(), seats);
    let mut text = "<h2 id=\"events\">What happened</h2><table><tr><th>Time<th class=\"text\">event".to_owned();
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
        let _ = write!(text, "<tr><td>{}<td class=\"text\">{}", clock(*tick, tick_hz), escaped(&line));
    }
    text + "</table>"
}

/// Milliseconds, to a microsecond.
fn ms(value: f64) -> String {
    format!("{value:.3}")
}

fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
