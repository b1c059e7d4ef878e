//! A comparison in the terminal.

use std::path::Path;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::{
    Comparison, Difference, Figures, GROWTHS, Measure, OUTGOING, OUTSIDE_KERNEL, Outcome, PublishedTable, Run, Sample,
    curves,
};
use super::{advantage, measures};
use throng_report::{figure, grouped};

/// The mark of a server that was overloaded.
pub const OVERLOADED: &str = "†";
/// The meaning of the mark.
const OVERLOADED_LEGEND: &str = "† overloaded: the server missed more than 1 % of its ticks. Its figures are for the ticks that it \
    played:\n  it sent less, its ages do not include missed ticks, and it is left out of the growth fit:\n";

/// Number of reasons in the table; the file has all of them.
const COMPLAINTS: usize = 8;

/// Every workload with its published table, growth, and what spoils the figures; with a line break at its end.
pub fn table(comparison: &Comparison, folder: Option<&Path>) -> String {
    let mut text = String::new();
    for workload in &comparison.workloads {
        match comparison.usual_size(workload) {
            Some(players) => text += &of_workload(comparison, workload, players),
            None => text += &format!("\n{workload}: no run with the scenario's number of players was completed\n"),
        }
        if comparison.sizes(workload).len() > 1 {
            text += &growth(comparison, workload);
        }
    }
    text += &verdict(comparison);
    if let Some(folder) = folder {
        text += &format!("folder: {}\n", folder.display());
    }
    text
}

fn of_workload(comparison: &Comparison, workload: &str, players: u32) -> String {
    let columns: Vec<Vec<&Run>> =
        comparison.contestants.iter().map(|who| comparison.counted(workload, players, who)).collect();
    let mut table = plain_table();
    table.add_row(header(comparison, (workload, players), &columns));
    for measure in measures(workload) {
        let samples: Vec<_> = columns.iter().map(|runs| sample(runs, &measure)).collect();
        // Distances without any character have no row.
        if samples.iter().any(Option::is_some) {
            table.add_row(row(measure.title(), samples));
        }
    }
    for (title, of) in advantages(comparison) {
        table.add_row(row(title, columns.iter().map(|ours| advantage(base(comparison, &columns), ours, of)).collect()));
    }
    let counted = columns.iter().map(|runs| runs.iter().filter(|run| run.valid).count().to_string());
    table.add_row(std::iter::once("valid runs".to_owned()).chain(counted));
    let mut text = headline(comparison, workload, players, &columns);
    text += &format!("{}\n", finish(table));
    text += &difference_lines(comparison, &columns);
    let published = comparison.published.iter().find(|table| table.workload == workload);
    text + &published.map(of_others).unwrap_or_default()
}

fn headline(comparison: &Comparison, workload: &str, players: u32, columns: &[Vec<&Run>]) -> String {
    let first = columns.iter().flatten().next();
    let (tick_hz, seconds) = first.map_or((0, 0.0), |run| (run.tick_hz, run.seconds));
    format!(
        "\n{workload}: {} players at {tick_hz} Hz for {} s, median (lowest–highest) of the rounds, revision {}\n{}\n",
        grouped(u64::from(players)),
        figure(seconds.round()),
        comparison.head.revision,
        "─".repeat(110)
    )
}

/// A title, and the function that reads its value from the figures.
type Titled = (String, fn(&Figures) -> Option<f64>);

/// The ratios of each contestant to the base.
fn advantages(comparison: &Comparison) -> [Titled; 3] {
    let base = comparison.base().unwrap_or("the first");
    [
        (format!("times less than {base}: outgoing"), OUTGOING.of),
        ("  outside the kernel".to_owned(), OUTSIDE_KERNEL.of),
        // A server that misses ticks sends less; that is not an advantage.
        ("  bytes".to_owned(), |figures| (!figures.is_overloaded()).then_some(figures.kbit_per_s)),
    ]
}

fn difference_lines(comparison: &Comparison, columns: &[Vec<&Run>]) -> String {
    let lines = differences_of(comparison, columns);
    if lines.is_empty() {
        return String::new();
    }
    let base = comparison.base().unwrap_or("the first");
    format!("\ndifferences from {base}, with 99 % certainty:\n  {}\n", lines.join("\n  "))
}

/// A line for each contestant beside the base: what differs, and by how much figures would have to differ to be told apart.
pub fn differences(comparison: &Comparison, (workload, players): (&str, u32)) -> Vec<String> {
    let counted = |name: &String| comparison.counted(workload, players, name);
    let columns: Vec<Vec<&Run>> = comparison.contestants.iter().map(counted).collect();
    differences_of(comparison, &columns)
}

fn differences_of(comparison: &Comparison, columns: &[Vec<&Run>]) -> Vec<String> {
    let base_name = comparison.base().unwrap_or("the first");
    let base = base(comparison, columns);
    let others = comparison.contestants.iter().zip(columns).filter(|(name, _)| *name != base_name);
    let line = |(name, ours): (&String, &Vec<&Run>)| {
        let told = DIFFERENCES.iter().filter_map(|(measure, of)| {
            let difference = Difference::of(base, ours, *of)?;
            Some(format!("{measure} {}", told(&difference)))
        });
        let told: Vec<String> = told.collect();
        match told.is_empty() {
            true => format!("{name}: unknown, because the noise needs two valid rounds or more"),
            false => format!("{name}: {}", told.join("; ")),
        }
    };
    others.map(line).collect()
}

/// The name of a figure, and the function that reads it.
type Judged = (&'static str, fn(&Figures) -> Option<f64>);

/// The figures that are judged.
const DIFFERENCES: [Judged; 3] =
    [("frame", |figures| Some(figures.frame_ms)), ("outgoing", OUTGOING.of), ("outside the kernel", OUTSIDE_KERNEL.of)];

/// One difference in words.
fn told(difference: &Difference) -> String {
    let (low, high) = difference.interval;
    match difference.outcome() {
        Outcome::Less => {
            format!("{} times less ({}–{})", figure(difference.times_less), figure(low), figure(high))
        }
        Outcome::More => {
            format!("{} times more ({}–{})", figure(1.0 / difference.times_less), figure(1.0 / high), figure(1.0 / low))
        }
        Outcome::Same => format!("no difference (noise {} %)", figure(difference.noise() * 100.0)),
    }
}

fn base<'a, 'b>(comparison: &Comparison, columns: &'a [Vec<&'b Run>]) -> &'a [&'b Run] {
    let place = comparison.contestants.iter().position(|who| Some(who.as_str()) == comparison.base());
    place.and_then(|place| columns.get(place)).map_or(&[], Vec::as_slice)
}

/// Names, with marks for contestants without a valid run and for overloaded servers.
fn header(comparison: &Comparison, (workload, players): (&str, u32), columns: &[Vec<&Run>]) -> Vec<String> {
    let names = comparison.contestants.iter().zip(columns).map(|(name, runs)| {
        let is_valid = runs.iter().any(|run| run.valid);
        name.clone() + marks(is_valid, comparison.is_overloaded(workload, players, name))
    });
    std::iter::once(String::new()).chain(names).collect()
}

fn marks(is_valid: bool, is_overloaded: bool) -> &'static str {
    match (is_valid, is_overloaded) {
        (true, false) => "",
        (true, true) => " †",
        (false, false) => " !",
        (false, true) => " !†",
    }
}

fn sample(runs: &[&Run], measure: &Measure) -> Option<Sample> {
    Sample::of(runs.iter().filter_map(|run| run.figures.as_ref().and_then(measure.of)))
}

fn row(title: String, samples: Vec<Option<Sample>>) -> Vec<String> {
    std::iter::once(title).chain(samples.into_iter().map(spoken)).collect()
}

/// A figure of several runs in words: `12.3 (11.9–12.8)`, `12.3` of a single run, or a dash.
pub fn spoken(sample: Option<Sample>) -> String {
    let Some(Sample { median, min, max, runs }) = sample else { return "–".to_owned() };
    if runs < 2 || figure(min) == figure(max) {
        return figure(median);
    }
    format!("{} ({}–{})", figure(median), figure(min), figure(max))
}

/// A published table, with systems as columns.
fn of_others(published: &PublishedTable) -> String {
    let (systems, measures) = (published.systems(), published.measures());
    let Some(origin) = published.origin() else { return list_of_others(published) };
    let mut table = plain_table();
    table.add_row(std::iter::once("published").chain(systems.iter().copied()));
    for (measure, unit) in measures {
        let values = systems.iter().map(|system| {
            let value = published.value(system, measure);
            value.map_or("–".to_owned(), |value| value.to_string())
        });
        table.add_row(std::iter::once(format!("  {measure}, {unit}")).chain(values));
    }
    format!("\n{}\n  origin: {origin}\n", finish(table))
}

/// Figures that do not make a table: one to a line, each with its own origin.
fn list_of_others(published: &PublishedTable) -> String {
    let mut table = plain_table();
    table.add_row(["published", "", "", "origin"]);
    for row in &published.rows {
        let value = format!("{} {}", figure(row.value), row.unit);
        table.add_row([format!("  {}", row.measure), row.system.clone(), value, row.origin.clone()]);
    }
    format!("\n{}\n", table.trim_fmt())
}

fn growth(comparison: &Comparison, workload: &str) -> String {
    let mut text = format!("\n{workload}: growth\n");
    for measure in &GROWTHS {
        let curves = curves(comparison, workload, measure);
        let mut table = plain_table();
        table.add_row(std::iter::once(measure.title()).chain(comparison.contestants.iter().cloned()));
        for (place, players) in comparison.sizes(workload).into_iter().enumerate() {
            let values = curves.iter().map(|curve| {
                let point = curve.points[place];
                let mark = point.map_or("", |point| marks(point.is_valid, point.is_overloaded));
                spoken(point.map(|point| point.sample)) + mark
            });
            table.add_row(std::iter::once(format!("  {} players", grouped(u64::from(players)))).chain(values));
        }
        let exponents =
            curves.iter().map(|curve| curve.fit.map_or("–".to_owned(), |fit| format!("{:.2}", fit.exponent)));
        table.add_row(std::iter::once("  exponent".to_owned()).chain(exponents));
        text += &format!("{}\n", finish(table));
    }
    text + "exponent: of the number of players, least squares in log-log through the medians of valid runs of servers that \
            were not overloaded\n"
}

fn verdict(comparison: &Comparison) -> String {
    let complaints = comparison.complaints();
    let mut overloads: String = comparison.overloads().iter().map(|line| format!("    {line}\n")).collect();
    if !overloads.is_empty() {
        overloads = format!("\n{OVERLOADED_LEGEND}{overloads}");
    }
    if complaints.is_empty() {
        return format!("{overloads}\nall runs are valid\n");
    }
    let mut text = overloads;
    text += &format!("\n{} of {} runs are not valid:\n", complaints.len(), comparison.runs.len());
    complaints.iter().take(COMPLAINTS).for_each(|line| text += &format!("  {line}\n"));
    if complaints.len() > COMPLAINTS {
        text += &format!("  and {} more, see {}\n", complaints.len() - COMPLAINTS, throng_report::SUMMARY_FILE);
    }
    text + "! marks figures without a valid run: do not quote them\n"
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// Figures to the right, names to the left.
fn finish(mut table: Table) -> String {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::example;

    #[test]
    fn a_comparison_is_one_table_with_ratios_and_the_published_one_beside_it() {
        let text = table(&example(), Some(Path::new("runs/20260131-120000-compare")));
        for part in [
            "dense: 100 players at 30 Hz for 4 s",
            "frame, ms",
            "outgoing by the floor",
            "times less than legacy: outgoing",
            "age within 10 m, p50, ms",
            "Legacy + Replication Graph",
            "Threadripper",
            "exponent",
            "folder: runs/20260131-120000-compare",
        ] {
            assert!(text.contains(part), "no {part} in:\n{text}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn published_figures_of_several_origins_each_keep_their_own() {
        let mut comparison = example();
        let mut crowd = throng_summary::RunSummary::example();
        crowd.conclude();
        comparison.published.clear();
        comparison.note_published("dense", &crowd);
        let text = table(&comparison, None);
        assert!(!text.contains("\n  origin: "), "{text}");
        for (system, origin) in [("Unity Netcode", "bound by bandwidth"), ("EVE Online", "a tenth of normal speed")] {
            let line = text.lines().find(|line| line.contains(system)).unwrap();
            assert!(line.contains(origin), "{line}");
        }
    }

    #[test]
    fn rows_show_median_and_spread_and_ratios_are_taken_from_the_base() {
        let text = table(&example(), None);
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let line = |start: &str| {
            lines.iter().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start} in:\n{text}"))
        };
        assert_eq!(line("outside the kernel, µs"), "outside the kernel, µs 51 (50–52) 1.02 (1–1.04)");
        assert_eq!(line("outside the kernel 1"), "outside the kernel 1 50");
        assert_eq!(line("valid runs"), "valid runs 2 2");
    }

    #[test]
    fn a_contestant_against_itself_shows_no_difference_and_a_slowed_one_does() {
        let mut comparison = example();
        comparison.contestants = ["throng", "throng:again", "throng:slower"].map(str::to_owned).to_vec();
        let runs: Vec<Run> = comparison.runs.iter().filter(|run| run.contestant == "throng").cloned().collect();
        comparison.runs.clear();
        for (name, work, scatter) in
            [("throng", 1.0, 0.01), ("throng:again", 1.0, -0.02), ("throng:slower", 1.2, 0.015)]
        {
            for mut run in runs.iter().chain(&runs).cloned() {
                let played = comparison.runs.iter().filter(|known| known.contestant == name).count();
                run.round += 2 * (played / runs.len()) as u32;
                let factor = work * (1.0 + scatter * f64::from(run.round % 2));
                let figures = run.figures.as_mut().unwrap();
                figures.frame_ms *= factor;
                figures.us_per_connection = figures.us_per_connection.scaled(factor);
                comparison.runs.push(Run { contestant: name.to_owned(), ..run });
            }
        }
        let text = table(&comparison, None);
        let line = |start: &str| text.lines().find(|line| line.trim_start().starts_with(start)).unwrap().to_owned();
        assert_eq!(line("throng:again:").matches("no difference (noise ").count(), 3, "{text}");
        assert_eq!(line("throng:slower:").matches("1.2 times more (1.").count(), 3, "{text}");
        assert!(text.contains("differences from throng, with 99 % certainty"), "{text}");
        comparison.runs.retain(|run| run.round == 0);
        assert!(table(&comparison, None).contains("throng:again: unknown, because"));
    }

    #[test]
    fn an_overloaded_server_is_marked_wherever_its_figures_stand() {
        let mut comparison = example();
        for run in comparison.runs.iter_mut().filter(|run| run.contestant == "legacy" && run.players == 400) {
            run.figures.as_mut().unwrap().missed_ticks = 400;
        }
        let text = table(&comparison, None);
        assert!(text.contains("† overloaded") && text.contains("dense with 400: legacy"), "{text}");
        assert!(text.contains("204 (200–208) †") && !text.contains("legacy †"), "{text}");
        for run in comparison.runs.iter_mut().filter(|run| run.contestant == "legacy") {
            run.figures.as_mut().unwrap().missed_ticks = 400;
        }
        assert!(table(&comparison, None).contains("legacy †"));
        assert!(!table(&example(), None).contains('†'));
    }

    #[test]
    fn runs_that_do_not_count_are_marked_and_said_so() {
        let mut comparison = example();
        for run in comparison.runs.iter_mut().filter(|run| run.contestant == "throng") {
            (run.valid, run.invalid_reasons) = (false, vec!["the bots were saturated".to_owned()]);
        }
        let text = table(&comparison, None);
        assert!(text.contains("throng !") && text.contains("do not quote them"), "{text}");
        assert!(text.contains("dense with 100, throng, round 1: not valid: the bots were saturated"), "{text}");
        assert!(!comparison.is_complete() && example().is_complete());
    }

    #[test]
    fn a_single_run_has_no_spread_and_nothing_has_a_dash() {
        assert_eq!(spoken(Sample::of([3.0])), "3");
        assert_eq!(spoken(Sample::of([3.0, 4.0])), "3.5 (3–4)");
        assert_eq!(spoken(None), "–");
    }

    #[test]
    fn it_fits_a_wide_terminal() {
        let widest = table(&example(), None).lines().map(|line| line.trim_end().chars().count()).max().unwrap();
        assert!(widest <= 130, "{widest} columns");
    }
}
