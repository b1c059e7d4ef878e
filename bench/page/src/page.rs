//! The text of the page's blocks.

use std::path::Path;

use super::blocks::Block;
use super::markdown::{cells, command, table};
use super::peers::{self, PeerRow, Peers};
use super::{Plot, Sources, demands, findings, losses, origin, plots};
use throng_lab::compare::{Comparison, Curve, GROWTHS, PublishedTable, Run, Sample, advantage, curves, measures};
use throng_lab::compare::{OUTGOING, OUTSIDE_KERNEL, OVERLOADED, spoken};
use throng_report::{figure, grouped};

const HOW_TO_READ: &str = "\
Figures are medians over the rounds, with the lowest and the highest in brackets. Rounds are interleaved, and every run is a
process of its own. Factors are taken within a round, because the machine is not equally fast at all times. *Outside the
kernel* is what a tick spends on a connection from interest to seal; *model alone* is the same without the seal. *The floor*
is sealing and sending the same packets with nothing else done, measured in the same run. The older models are written
leaner than the systems whose shape they have ([models.md](models.md)): what is compared is the shape.
";

const LOSSES: &str = "\
The table lists every figure in which another model or library does better. Figures of the peers are compared without the
seal, because no peer encrypts. Higher is better for updates to a client and for objects that it knows; lower is better for
everything else. A difference is listed if the rounds show it with 99 % certainty. With fewer than two rounds, and for times of
the peers, the difference must be more than a third. Runs that are not valid and servers that were overloaded are left out.
";

const FINDINGS: &str = "\
Each published ratio is compared with the same ratio measured here. *A tick* is all outgoing work; *a connection* is all that is done for one connection:
outgoing work without quantising and comparing, because models filter, mark and order at different stages. Judged by the
figures outside the kernel. The test in Unreal 5.3.2 (`dense`, `sparse`, chests) had push marks on every side; the one in
Unreal 5.7 (`converge`) does not say whether it had, so its base is `legacy`, without them.
";

const OVERLOADED_MEANS: &str = "\
† The server was overloaded: it missed more than 1 % of its ticks. Its figures are those of the ticks that it managed: the age
of what its clients hold is counted from those, less was sent, and what a whole second would have cost is not in them. Such
points are left out of the fitted exponents, and are rings in the plots.
";

/// The page's blocks and plots. Paths are given relative to `root`.
pub(super) fn render(sources: &Sources, root: &Path) -> (Vec<Block>, Vec<Plot>) {
    let (comparisons, rows) = (&sources.comparisons, &sources.peers.rows);
    let mut plots = Vec::new();
    let blocks = vec![
        ("origin", origin::render(sources, root)),
        ("demands", demanded(comparisons, rows)),
        ("findings", found(comparisons)),
        ("models", models(comparisons, root, &mut plots)),
        ("peers", of_peers(&sources.peers, &mut plots)),
        ("losses", lost(comparisons, rows)),
        ("spoilt", spoilt(comparisons)),
    ];
    (blocks, plots)
}

fn demanded(comparisons: &[Comparison], rows: &[PeerRow]) -> String {
    let rows: Vec<Vec<String>> = demands::all(comparisons, rows)
        .into_iter()
        .map(|demand| vec![demand.what, demand.limit, demand.measured, demand.from, demand.verdict.to_owned()])
        .collect();
    let rule = "Judged by valid runs of servers that were not overloaded, in the first run that has them.\n\n";
    rule.to_owned() + &table(&cells(["`throng` must be", "limit", "measured", "from", ""]), &rows)
}

/// Every workload of every comparison.
fn models(comparisons: &[Comparison], root: &Path, plots: &mut Vec<Plot>) -> String {
    let mut text = HOW_TO_READ.to_owned();
    if comparisons.iter().any(|comparison| !comparison.overloads().is_empty()) {
        text += &format!("\n{OVERLOADED_MEANS}");
    }
    for (number, comparison) in comparisons.iter().enumerate() {
        let origin = if comparisons.len() > 1 { format!(" (run {})", number + 1) } else { String::new() };
        for workload in &comparison.workloads {
            text += &of_workload(comparison, (workload, &origin), root, plots);
        }
    }
    text
}

fn of_workload(
    comparison: &Comparison,
    (workload, origin): (&str, &str),
    root: &Path,
    plots: &mut Vec<Plot>,
) -> String {
    let Some(players) = comparison.usual_size(workload) else {
        return format!("\n### {workload}{origin}\n\nNo run of its own size ended.\n");
    };
    let mut text = format!("\n### {workload}, {} players{origin}\n\n", grouped(u64::from(players)));
    text += &play_alone(comparison, (workload, players), root);
    text += &of_models(comparison, workload, players);
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
fn play_alone(comparison: &Comparison, (workload, players): (&str, u32), root: &Path) -> String {
    let run = comparison.contestants.iter().flat_map(|who| comparison.counted(workload, players, who)).last();
    let Some(run) = run else { return String::new() };
    format!("One of its runs, alone:\n\n    {}\n\n", command(&run.command_line, root))
}

fn of_models(comparison: &Comparison, workload: &str, players: u32) -> String {
    let columns: Vec<_> = comparison.contestants.iter().map(|who| comparison.counted(workload, players, who)).collect();
    let mut rows = Vec::new();
    for measure in measures(workload) {
        let of = |runs: &Vec<&Run>| Sample::of(runs.iter().filter_map(|run| run.figures.as_ref().and_then(measure.of)));
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
    let names = comparison.contestants.iter().zip(&columns).map(|(who, runs)| {
        let is_valid = runs.iter().any(|run| run.valid);
        format!("`{who}`{}", marks(is_valid, comparison.is_overloaded(workload, players, who)))
    });
    table(&std::iter::once(String::new()).chain(names).collect::<Vec<_>>(), &rows)
}

/// The text behind a name or a figure.
fn marks(is_valid: bool, is_overloaded: bool) -> String {
    let overloaded = if is_overloaded { format!(" {OVERLOADED}") } else { String::new() };
    if is_valid { overloaded } else { format!(" (not valid){overloaded}") }
}

fn of_others(published: &PublishedTable) -> String {
    let (systems, measures) = (published.systems(), published.measures());
    let Some(origin) = published.origin() else {
        let rows: Vec<Vec<String>> = published
            .rows
            .iter()
            .map(|row| {
                let value = format!("{} {}", figure(row.value), row.unit);
                vec![row.measure.clone(), row.system.clone(), value, row.origin.clone()]
            })
            .collect();
        return format!("\nPublished by others:\n\n{}", table(&cells(["what", "system", "figure", "origin"]), &rows));
    };
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
        "\n#### {workload}: growth\n\nThe exponent is that of the number of players: least squares of the logarithms, through \
         the medians of valid runs of servers that were not overloaded.\n"
    );
    let left_out = left_out(comparison, workload);
    if !left_out.is_empty() {
        text += &format!("Left out of the fits: {}.\n", left_out.join("; "));
    }
    for measure in &GROWTHS {
        let header: Vec<String> = std::iter::once("players".to_owned())
            .chain(comparison.contestants.iter().map(|who| format!("`{who}`")))
            .collect();
        let curves = curves(comparison, workload, measure);
        let mut rows: Vec<Vec<String>> = Vec::new();
        for (place, players) in comparison.sizes(workload).into_iter().enumerate() {
            let values = curves.iter().map(|curve| {
                let point = curve.points[place];
                let mark = point.map_or(String::new(), |point| marks(point.is_valid, point.is_overloaded));
                spoken(point.map(|point| point.sample)) + &mark
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

/// The points that no fit goes through: who, and at which sizes.
fn left_out(comparison: &Comparison, workload: &str) -> Vec<String> {
    let of_curve = |curve: Curve| {
        let points = curve.points.iter().flatten().filter(|point| !point.is_fitted());
        let sizes: Vec<String> = points.map(|point| grouped(u64::from(point.players))).collect();
        (!sizes.is_empty()).then(|| format!("`{}` at {}", curve.contestant, sizes.join(" and ")))
    };
    curves(comparison, workload, &GROWTHS[0]).into_iter().filter_map(of_curve).collect()
}

fn found(comparisons: &[Comparison]) -> String {
    let rows: Vec<Vec<String>> = findings::all(comparisons)
        .into_iter()
        .map(|finding| {
            let [there, verdict] = [finding.there, finding.verdict].map(str::to_owned);
            vec![finding.what, there, finding.here, finding.outside_kernel, finding.from, verdict]
        })
        .collect();
    let header = cells(["finding", "there", "here", "here, outside the kernel", "from", ""]);
    format!("{FINDINGS}\n{}\n{}", findings::RULE, table(&header, &rows))
}

fn of_peers(peers: &Peers, plots: &mut Vec<Plot>) -> String {
    let rows = &peers.rows;
    if rows.is_empty() {
        return "Not run.\n".to_owned();
    }
    let mut text = "Server work only, in memory, every client checked; what is timed and how each library \
                    is used stands in `bench/peers/README.md`. *Replicate* is from \"values written\" to \"packets ready\", and \
                    *µs per client* is its share; the sum is receive, assign and replicate; *at a client* is not the \
                    server's. One command runs them all:\n\n    bench/peers/run\n"
        .to_owned();
    if let Some(plot) = plots::peers_growth(rows) {
        text += &shown(plots, plot);
    }
    for (workload, players) in peers::cases(rows) {
        text += &format!("\n### {workload}, {players} players, the peers\n\n");
        let lines: Vec<Vec<String>> = peers::of(rows, workload, players).into_iter().map(of_peer).collect();
        text += &table(&cells(PEER_COLUMNS), &lines);
        if workload != "dense" || players == 100 {
            text += &shown(plots, plots::peers(rows, (workload, players)));
        }
    }
    text
}

const PEER_COLUMNS: [&str; 10] = [
    "peer",
    "receive, ms per tick",
    "assign, ms per tick",
    "replicate, ms per tick",
    "sum, ms per tick",
    "µs per client",
    "at a client, µs",
    "allocations per tick",
    "B per client and tick",
    "age, ticks",
];

fn of_peer(row: &PeerRow) -> Vec<String> {
    if !row.checked {
        let nothing = std::iter::repeat_n("–".to_owned(), PEER_COLUMNS.len() - 2);
        return [row.name(), row.notes.clone()].into_iter().chain(nothing).collect();
    }
    let optional = |value: Option<f64>| value.map_or("–".to_owned(), figure);
    let range = row.ms_per_tick;
    vec![
        row.name(),
        optional(row.receive_ms_per_tick),
        optional(row.assign_ms_per_tick),
        format!("{} ({}–{})", figure(range.usual()), figure(range.min), figure(range.max)),
        optional(row.sum_ms()),
        figure(row.us_per_client),
        optional(row.client_us_per_client),
        optional(row.allocations_per_tick),
        figure(row.bytes_per_client_tick),
        figure(row.state_age_ticks),
    ]
}

fn lost(comparisons: &[Comparison], rows: &[PeerRow]) -> String {
    let mut lost = losses::models(comparisons);
    lost.extend(losses::peers(rows));
    let list =
        if lost.is_empty() { "Nothing that was measured.\n".to_owned() } else { table(&losses::header(), &lost) };
    format!("{LOSSES}\n{list}")
}

fn spoilt(comparisons: &[Comparison]) -> String {
    let lines: Vec<String> = comparisons.iter().flat_map(Comparison::complaints).collect();
    let (runs, count) = (comparisons.iter().map(|comparison| comparison.runs.len()).sum::<usize>(), lines.len());
    if lines.is_empty() {
        return format!("None of {runs}.\n");
    }
    let list: String = lines.iter().map(|line| format!("- {line}\n")).collect();
    format!("{count} of {runs}. Where a model has no other, they are shown, and marked.\n\n{list}")
}

/// A plot in the text, and among the files under a name that no other has.
fn shown(plots: &mut Vec<Plot>, mut plot: Plot) -> String {
    let stem = plot.name.trim_end_matches(".svg").to_owned();
    let mut others = 2;
    while plots.iter().any(|other| other.name == plot.name) {
        plot.name = format!("{stem}-{others}.svg");
        others += 1;
    }
    let text = format!("\n![{}]({})\n", plot.name.trim_start_matches("plots/").trim_end_matches(".svg"), plot.name);
    plots.push(plot);
    text
}
