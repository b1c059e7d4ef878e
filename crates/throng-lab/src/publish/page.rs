//! The page's text.

use super::markdown::{cells, command, table};
use super::peers::{self, PeerRow};
use super::{Plot, demands, findings, losses, plots};
use crate::compare::{Comparison, GROWTHS, PublishedTable, Sample, advantage, curves, measures};
use crate::compare::{OUTGOING, OUTSIDE_KERNEL, spoken};
use crate::terminal::{bytes, figure, grouped};

const ABOUT: &str = "\
<!-- Written by `throng publish`; changes made by hand are lost. -->
# Models and peers, measured

The same worlds with one replication model after the other ([models.md](models.md)), and the same workload with open
libraries (`bench/peers`). Nothing was left out: rows in which we lose stay, and are listed once more at the end.
";

const HOW_TO_READ: &str = "\
Figures are medians over the rounds, with the lowest and the highest in brackets. Rounds are interleaved, and every run is a
process of its own. Factors are taken within a round, because the machine is not equally fast at all times. *Outside the
kernel* is what a tick spends on a connection from interest to seal; *model alone* is the same without the seal. *The floor*
is sealing and sending the same packets with nothing else done, measured in the same run. The older models are written
leaner than the systems whose shape they have: what is compared is the shape.
";

/// The page and its plots.
pub(super) fn render(comparisons: &[Comparison], rows: &[PeerRow]) -> (String, Vec<Plot>) {
    let mut plots = Vec::new();
    let mut text = ABOUT.to_owned();
    text += &origin(comparisons);
    text += HOW_TO_READ;
    text += &demanded(comparisons, rows);
    for comparison in comparisons {
        for workload in &comparison.workloads {
            text += &of_workload(comparison, workload, &mut plots);
        }
    }
    text += &found(comparisons);
    text += &of_peers(rows, &mut plots);
    text += &lost(comparisons, rows);
    text += &not_counted(comparisons);
    (text, plots)
}

/// Machine, revisions and commands.
fn origin(comparisons: &[Comparison]) -> String {
    let Some(machine) = comparisons.iter().find_map(|comparison| comparison.machine.as_ref()) else {
        return String::new();
    };
    let kind = if machine.virtual_machine { " (virtual)" } else { "" };
    let memory = bytes(machine.memory_bytes as f64);
    let mut text = format!(
        "\nMachine: {}, {} cores{kind}, {memory}, {}. throng {}.\n\n",
        machine.cpu, machine.cores, machine.kernel, machine.version
    );
    for comparison in comparisons {
        text += &format!("{}, revision {}:\n\n", comparison.started_at, comparison.revision);
        text += &format!("    {}\n\n", command(&comparison.command_line));
    }
    text
}

fn demanded(comparisons: &[Comparison], rows: &[PeerRow]) -> String {
    let rows: Vec<Vec<String>> = demands::all(comparisons, rows)
        .into_iter()
        .map(|demand| vec![demand.what, demand.limit, demand.measured, demand.verdict.to_owned()])
        .collect();
    format!("\n## What is demanded\n\n{}", table(&cells(["`throng` must be", "limit", "measured", ""]), &rows))
}

fn of_workload(comparison: &Comparison, workload: &str, plots: &mut Vec<Plot>) -> String {
    let Some(players) = comparison.usual_size(workload) else {
        return format!("\n## {workload}\n\nNo run ended.\n");
    };
    let mut text = format!("\n## {workload}, {} players\n\n", grouped(u64::from(players)));
    text += &play_alone(comparison, workload, players);
    text += &models(comparison, workload, players);
    text += &shown(plots, plots::workload(comparison, workload, players));
    if let Some(published) = comparison.published.iter().find(|published| published.workload == workload) {
        text += &of_others(published);
    }
    if comparison.sizes(workload).len() > 1 {
        text += &growth(comparison, workload);
        text += &shown(plots, plots::growth(comparison, workload));
    }
    text
}

/// The command of one of the runs.
fn play_alone(comparison: &Comparison, workload: &str, players: u32) -> String {
    let run = comparison.contestants.iter().flat_map(|who| comparison.counted(workload, players, who)).last();
    let Some(run) = run else { return String::new() };
    format!("One of its runs, alone:\n\n    {}\n\n", command(&run.command_line))
}

fn models(comparison: &Comparison, workload: &str, players: u32) -> String {
    let columns: Vec<_> = comparison.contestants.iter().map(|who| comparison.counted(workload, players, who)).collect();
    let mut rows = Vec::new();
    for measure in measures(workload) {
        let of = |runs: &Vec<&crate::compare::Run>| {
            Sample::of(runs.iter().filter_map(|run| run.figures.as_ref().and_then(measure.of)))
        };
        let samples: Vec<_> = columns.iter().map(of).collect();
        if samples.iter().any(Option::is_some) {
            rows.push(std::iter::once(measure.title()).chain(samples.into_iter().map(spoken)).collect());
        }
    }
    let base = comparison.base().unwrap_or_default();
    let base_runs = comparison.counted(workload, players, base);
    for (what, measure) in [("outgoing", OUTGOING), ("outside the kernel", OUTSIDE_KERNEL)] {
        let factors = columns.iter().map(|runs| spoken(advantage(&base_runs, runs, measure.of)));
        rows.push(std::iter::once(format!("times less than `{base}`: {what}")).chain(factors).collect());
    }
    let header: Vec<String> = std::iter::once(String::new())
        .chain(comparison.contestants.iter().zip(&columns).map(|(who, runs)| {
            let is_valid = runs.iter().any(|run| run.valid);
            if is_valid { format!("`{who}`") } else { format!("`{who}` (not valid)") }
        }))
        .collect();
    table(&header, &rows)
}

fn of_others(published: &PublishedTable) -> String {
    let origin = published.rows.first().map_or("", |row| row.origin.as_str());
    let (systems, measures) = (published.systems(), published.measures());
    if !published.is_table() {
        let rows: Vec<Vec<String>> = published
            .rows
            .iter()
            .map(|row| {
                let value = format!("{} {}", figure(row.value), row.unit);
                vec![row.measure.clone(), row.system.clone(), value, row.origin.clone()]
            })
            .collect();
        return format!("\nPublished by others:\n\n{}", table(&cells(["what", "system", "figure", "origin"]), &rows));
    }
    let header: Vec<String> = std::iter::once("").chain(systems.iter().copied()).map(str::to_owned).collect();
    let row = |(measure, unit): &(&str, &str)| {
        let values = systems.iter().map(|system| published.value(system, measure));
        let values = values.map(|value| value.map_or("–".to_owned(), |value| value.to_string()));
        std::iter::once(format!("{measure}, {unit}")).chain(values).collect()
    };
    let rows: Vec<Vec<String>> = measures.iter().map(row).collect();
    format!("\nPublished by others ({origin}), for orientation:\n\n{}", table(&header, &rows))
}

fn growth(comparison: &Comparison, workload: &str) -> String {
    let mut text = format!(
        "\n### {workload}: growth\n\nThe exponent is that of the number of players: least squares of the logarithms, through \
         the medians of valid runs.\n"
    );
    for measure in &GROWTHS {
        let header: Vec<String> = std::iter::once("players".to_owned())
            .chain(comparison.contestants.iter().map(|who| format!("`{who}`")))
            .collect();
        let curves = curves(comparison, workload, measure);
        let mut rows: Vec<Vec<String>> = Vec::new();
        for (place, players) in comparison.sizes(workload).into_iter().enumerate() {
            let values = curves.iter().map(|curve| {
                let point = curve.points[place];
                let mark = if point.is_some_and(|point| !point.is_valid) { " (not valid)" } else { "" };
                spoken(point.map(|point| point.sample)) + mark
            });
            rows.push(std::iter::once(grouped(u64::from(players))).chain(values).collect());
        }
        let exponents =
            curves.iter().map(|curve| curve.fit.map_or("–".to_owned(), |fit| format!("{:.2}", fit.exponent)));
        rows.push(std::iter::once("exponent".to_owned()).chain(exponents).collect());
        text += &format!("\n{}:\n\n{}", measure.title().trim(), table(&header, &rows));
    }
    text
}

fn found(comparisons: &[Comparison]) -> String {
    let rows: Vec<Vec<String>> = findings::all(comparisons)
        .into_iter()
        .map(|finding| {
            let [what, there, verdict] = [finding.what, finding.there, finding.verdict].map(str::to_owned);
            vec![what, there, finding.here, finding.outside_kernel, verdict]
        })
        .collect();
    let header = cells(["finding", "there", "here, outgoing", "here, outside the kernel", ""]);
    format!(
        "\n## Published findings, looked for here\n\nThe published tests ran with push marks on every side: legacy is \
         `legacy-push` here. Judged by the figures outside the kernel.\n\n{}",
        table(&header, &rows)
    )
}

fn of_peers(rows: &[PeerRow], plots: &mut Vec<Plot>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text =
        "\n## Open peers\n\nServer work only, in memory, every client checked; what is timed and how each library \
                    is used stands in `bench/peers/README.md`. One command runs them all:\n\n    bench/peers/run\n"
            .to_owned();
    if let Some(plot) = plots::peers_growth(rows) {
        text += &shown(plots, plot);
    }
    for (workload, players) in peers::cases(rows) {
        text += &format!("\n### {workload}, {players} players\n\n");
        let lines: Vec<Vec<String>> = peers::of(rows, workload, players).into_iter().map(of_peer).collect();
        let header = cells([
            "peer",
            "ms per tick",
            "µs per client",
            "allocations per tick",
            "B per client and tick",
            "age, ticks",
        ]);
        text += &table(&header, &lines);
        if workload != "dense" || players == 100 {
            text += &shown(plots, plots::peers(rows, (workload, players)));
        }
    }
    text
}

fn of_peer(row: &PeerRow) -> Vec<String> {
    if !row.checked {
        return vec![row.name(), row.notes.clone(), "–".into(), "–".into(), "–".into(), "–".into()];
    }
    let range = row.ms_per_tick;
    vec![
        row.name(),
        format!("{} ({}–{})", figure(range.median), figure(range.min), figure(range.max)),
        figure(row.us_per_client),
        row.allocations_per_tick.map_or("–".to_owned(), figure),
        figure(row.bytes_per_client_tick),
        figure(row.state_age_ticks),
    ]
}

fn lost(comparisons: &[Comparison], rows: &[PeerRow]) -> String {
    let mut lost = losses::models(comparisons);
    lost.extend(losses::peers(rows));
    let list =
        if lost.is_empty() { "Nothing that was measured.\n".to_owned() } else { table(&losses::header(), &lost) };
    format!(
        "\n## What we lose at\n\nEvery figure in which another does better, by more than 3 %: the best of the others beside \
         `throng` (against the peers: without the seal, which none of them has).\n\n{list}"
    )
}

fn not_counted(comparisons: &[Comparison]) -> String {
    let lines: Vec<String> = comparisons.iter().flat_map(Comparison::complaints).collect();
    let (runs, count) = (comparisons.iter().map(|comparison| comparison.runs.len()).sum::<usize>(), lines.len());
    if lines.is_empty() {
        return format!("\n## Runs that do not count\n\nNone of {runs}.\n");
    }
    let list: String = lines.iter().map(|line| format!("- {line}\n")).collect();
    format!(
        "\n## Runs that do not count\n\n{count} of {runs}. Where a model has no other, they are shown, and marked.\n\n{list}"
    )
}

/// A plot in the text, and among the files.
fn shown(plots: &mut Vec<Plot>, plot: Plot) -> String {
    let text = format!("\n![{}]({})\n", plot.name.trim_start_matches("plots/").trim_end_matches(".svg"), plot.name);
    plots.push(plot);
    text
}
