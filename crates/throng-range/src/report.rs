//! The report of a run: one HTML page that needs nothing else.

mod plan;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use throng_rewind::{Case, LogReader};
use throng_tactical::Event;

use crate::stage::file_error;
use crate::summary::{FRAME_GOAL_MS, Summary};
use crate::watch::Watched;
use crate::{RangeError, Stage};

/// The page.
const PAGE: &str = "report.html";
/// The figures.
const FIGURES: &str = "summary.json";
/// Shots that are listed.
const SHOTS_LISTED: usize = 200;

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1b2430; }
h1, h2 { line-height: 1.2; } table { border-collapse: collapse; margin: 1rem 0; }
td, th { padding: .2rem .8rem; border-bottom: 1px solid #d8dee6; text-align: right; }
td:first-child, th:first-child { text-align: left; } .bar { background: #3b7dd8; height: .8rem; }
.over { color: #b3261e; font-weight: 600; } .note { color: #5a6675; } svg { max-width: 100%; height: auto; }
td.text { text-align: left; }";

/// Writes the page and the figures into a folder. Returns the page's path.
pub(crate) fn write(
    folder: &Path,
    summary: &Summary,
    watched: Option<&Watched>,
    stage: &Stage,
) -> Result<PathBuf, RangeError> {
    let json = serde_json::to_string_pretty(summary).map_err(|error| file_error(folder, error.into()))?;
    let figures = folder.join(FIGURES);
    std::fs::write(&figures, json + "\n").map_err(|error| file_error(&figures, error))?;
    let path = folder.join(PAGE);
    std::fs::write(&path, page(summary, watched, stage)).map_err(|error| file_error(&path, error))?;
    Ok(path)
}

fn page(summary: &Summary, watched: Option<&Watched>, stage: &Stage) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>throng match</title><style>{STYLE}</style>\
         <h1>{}</h1>",
        escaped(summary.result.as_deref().unwrap_or("No result"))
    );
    if !summary.valid {
        page += "<p class=\"over\">The figures of this run are not valid:</p><ul>";
        summary.invalid_reasons.iter().for_each(|reason| page += &format!("<li>{}</li>", escaped(reason)));
        page += "</ul>";
    }
    page += &overview(summary);
    page += &subsystems(summary);
    if let Some(watched) = watched {
        page += &plan::section(watched, stage);
        page += &shots(watched);
        page += &feed(watched);
    }
    page += "<h2>Ends</h2><ul>";
    summary.ends.iter().for_each(|end| page += &format!("<li>{}</li>", escaped(end)));
    page += "</ul>";
    if !summary.breaches.is_empty() {
        page += "<h2>Breaches of budgets, the newest</h2><ul>";
        summary.breaches.iter().for_each(|breach| page += &format!("<li>{}</li>", escaped(breach)));
        page += "</ul>";
    }
    page + "</html>\n"
}

fn overview(summary: &Summary) -> String {
    let or_unknown =
        |value: Option<f64>, unit: &str| value.map_or("unknown".to_owned(), |value| format!("{value}{unit}"));
    let rows = [
        ("Matches, players", format!("{}, {}", summary.matches, summary.players)),
        ("Ticks per second", summary.tick_hz.to_string()),
        ("Measured", format!("{} s", summary.seconds)),
        ("Frame, mean / p50 / p99 / longest", {
            let frame = summary.frame_ms;
            format!("{} / {} / {} / {} ms", frame.mean, frame.p50, frame.p99, frame.max)
        }),
        ("Of it not running, mean", format!("{} ms", summary.not_running_ms)),
        ("Late begin of frames, p99", format!("{} µs", summary.lateness_us.p99)),
        ("Missed ticks", summary.missed_ticks.to_string()),
        ("Time per shot", or_unknown(summary.rewind.us_per_shot, " µs")),
        ("Verdicts equal with a pose for each tick", or_unknown(summary.rewind.verdicts_equal_share, "")),
        ("Fog: enemies hidden who could be seen", or_unknown(summary.fog.hidden_but_visible.map(|n| n as f64), "")),
        ("Fog: share sent needlessly", or_unknown(summary.fog.sent_needlessly_share, "")),
        ("Fog: share of a core per match", summary.fog.cpu_share.to_string()),
        ("Rays per second, one core", or_unknown(summary.sight.rays_per_s, "")),
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
    format!("<table>{rows}</table>")
}

fn subsystems(summary: &Summary) -> String {
    let mut rows: Vec<_> = summary.subsystems.iter().collect();
    rows.sort_by(|a, b| b.1.mean_ms.total_cmp(&a.1.mean_ms));
    let largest = rows.first().map_or(1.0, |(_, subsystem)| subsystem.mean_ms.max(1e-9));
    let mut text = format!(
        "<h2>Frame by subsystem</h2><p class=\"note\">Exclusive time; the parts add up to the frame. The goal of a frame \
         is {FRAME_GOAL_MS} ms.</p><table><tr><th>Subsystem<th>mean ms<th>p99 ms<th>budget ms<th>breaches<th>"
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
            subsystem.mean_ms,
            subsystem.p99_ms,
            subsystem.breaches
        );
    }
    text += "</table><table><tr><th>Phase<th>frames<th>mean ms<th>p99 ms";
    for (name, phase) in &summary.phases {
        let _ = write!(text, "<tr><td>{}<td>{}<td>{}<td>{}", escaped(name), phase.frames, phase.mean_ms, phase.p99_ms);
    }
    text + "</table>"
}

/// The newest shots with their verdicts.
fn shots(watched: &Watched) -> String {
    let mut text =
        format!("<h2>Shots and verdicts</h2><p class=\"note\">The first {SHOTS_LISTED} of the first match.</p>");
    let Ok(mut reader) = LogReader::new(&watched.verdicts) else { return text + "<p>No shot was fired.</p>" };
    let mut case = Case::new();
    text += "<table><tr><th>Tick<th>player<th class=\"text\">verdict";
    for _ in 0..SHOTS_LISTED {
        let Ok(Some(verdict)) = reader.next(&mut case) else { break };
        let (shot, why) = (case.shot(), verdict.why(reader.models()));
        let _ = write!(
            text,
            "<tr><td>{}<td>{}<td class=\"text\">{}",
            shot.now.0,
            shot.shooter.0,
            escaped(&why.to_string())
        );
    }
    text + "</table>"
}

fn feed(watched: &Watched) -> String {
    let mut text = "<h2>What happened</h2><table><tr><th>Tick<th class=\"text\">event".to_owned();
    for (tick, event) in &watched.events {
        let line = match event {
            Event::RoundBegan { round } => format!("round {round} begins"),
            Event::WentLive => "the round is live".to_owned(),
            Event::Died { seat, by: Some(by), weapon, is_headshot, .. } => {
                let head = if *is_headshot { ", head" } else { "" };
                format!("{by} kills {seat} ({weapon:?}{head})")
            }
            Event::Died { seat, by: None, .. } => format!("{seat} dies"),
            Event::Planted { by, site, .. } => format!("{by} plants the bomb at {site}"),
            Event::Defused { by } => format!("{by} defuses the bomb"),
            Event::Exploded { .. } => "the bomb explodes".to_owned(),
            Event::Escaped { by, target } => format!("{target} escapes a shot of {by} by a dash"),
            Event::RoundEnded { winner, ending, score } => {
                format!("{} win the round ({ending:?}): {} to {}", winner.name(), score[0], score[1])
            }
            _ => continue,
        };
        let _ = write!(text, "<tr><td>{tick}<td class=\"text\">{}", escaped(&line));
    }
    text + "</table>"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
