//! Which plots the page has.

use super::Plot;
use super::peers::{self, PeerRow};
use super::svg::{Dot, Line, Spot, Titles, dots, lines};
use throng_lab::compare::{Comparison, GROWTHS, OUTSIDE_KERNEL, Sample, curves};

/// Axis title of times outside the kernel.
const COST: &str = "µs per connection and tick, outside the kernel";

/// The contestants' cost in a workload.
pub(super) fn workload(comparison: &Comparison, workload: &str, players: u32) -> Plot {
    let dot = |who: &String| {
        let runs = comparison.counted(workload, players, who);
        let sample = Sample::of(runs.iter().filter_map(|run| run.figures.as_ref().and_then(OUTSIDE_KERNEL.of)));
        let (value, range) = sample.map_or((0.0, [0.0; 2]), |sample| (sample.median, [sample.min, sample.max]));
        let is_hollow = comparison.is_overloaded(workload, players, who);
        let mark = if is_hollow { " †" } else { "" };
        Dot { name: format!("{who}{mark}"), value, range, is_hollow }
    };
    let all: Vec<Dot> = comparison.contestants.iter().map(dot).collect();
    let title = format!(
        "{workload}, {players} players: cost of a connection by replication model{}",
        legend(&all, |dot| dot.is_hollow)
    );
    let svg = dots(&Titles { plot: &title, x: &format!("{COST} (median and range)"), y: "" }, &all);
    Plot { name: name(&format!("models-{workload}-{players}")), svg }
}

/// The contestants' cost as the number of players grows.
pub(super) fn growth(comparison: &Comparison, workload: &str) -> Plot {
    let all = curves(comparison, workload, &GROWTHS[0]).into_iter().map(|curve| {
        let exponent = curve.fit.map(|fit| format!(" ({:.2})", fit.exponent)).unwrap_or_default();
        let points = curve.points.iter().flatten().map(|point| Spot {
            x: f64::from(point.players),
            y: point.sample.median,
            is_hollow: !point.is_fitted(),
        });
        Line { name: format!("{}{exponent}", curve.contestant), points: points.collect() }
    });
    let all: Vec<Line> = all.collect();
    let rings = legend(&all, |line| line.points.iter().any(|spot| spot.is_hollow));
    let title = format!("{workload}: growth with the number of players (exponent){rings}");
    let svg = lines(&Titles { plot: &title, x: "players", y: COST }, &all);
    Plot { name: name(&format!("growth-{workload}")), svg }
}

/// The peers' cost in `dense` as the number of players grows; `None` if fewer than two sizes were run.
pub(super) fn peers_growth(rows: &[PeerRow]) -> Option<Plot> {
    let dense: Vec<&PeerRow> = rows.iter().filter(|row| row.workload == "dense" && row.checked).collect();
    let mut names: Vec<String> = Vec::new();
    for row in &dense {
        if !names.contains(&row.name()) {
            names.push(row.name());
        }
    }
    let line = |name: String| {
        let mut points: Vec<Spot> = dense
            .iter()
            .filter(|row| row.name() == name)
            .map(|row| Spot { x: f64::from(row.players), y: row.us_per_client, is_hollow: false })
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Line { name, points }
    };
    let all: Vec<Line> = names.into_iter().map(line).collect();
    let has_growth = all.iter().any(|line| line.points.len() > 1);
    let titles =
        Titles { plot: "dense: the open peers beside us", x: "players", y: "µs per client and tick, in memory" };
    has_growth.then(|| Plot { name: name("peers-dense"), svg: lines(&titles, &all) })
}

/// The peers' cost in a case.
pub(super) fn peers(rows: &[PeerRow], case: (&str, u32)) -> Plot {
    let (workload, players) = case;
    let dot = |row: &PeerRow| {
        let clients = f64::from(players.max(1)) / 1e3;
        let range = [row.ms_per_tick.min / clients, row.ms_per_tick.max / clients];
        let value = if row.checked { row.us_per_client } else { 0.0 };
        Dot { name: row.name(), value, range, is_hollow: false }
    };
    let all: Vec<Dot> = peers::of(rows, workload, players).into_iter().map(dot).collect();
    let title = format!("{workload}, {players} players: the open peers beside us");
    let svg = dots(&Titles { plot: &title, x: "µs per client and tick, in memory (median and range)", y: "" }, &all);
    Plot { name: name(&format!("peers-{workload}-{players}")), svg }
}

/// The meaning of rings, if there are any.
fn legend<T>(all: &[T], has_ring: impl Fn(&T) -> bool) -> &'static str {
    if all.iter().any(has_ring) { "; ring: overloaded or not valid" } else { "" }
}

/// A workload may be the path of a file.
fn name(stem: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    format!("{}/{}.svg", super::PLOTS, stem.chars().map(letter).collect::<String>())
}
