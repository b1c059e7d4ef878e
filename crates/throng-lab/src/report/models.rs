//! The page of a comparison of models: for each workload a table of medians, and how cost grows with the number of players.

use throng_report::{Cell, Chart, Curve, Page, Section, Table, grouped};

use crate::compare::{Comparison, GROWTHS, OVERLOADED, Sample, curves, differences, measures, spoken};

/// Colours of contestants, in their order.
const INKS: [&str; 7] = ["send", "encode", "seal", "quantise", "plan", "write", "open"];

/// The page of a comparison.
pub(super) fn page(comparison: &Comparison) -> Page {
    let mut page = comparison.head.page(&comparison.contestants.join(", "), "All runs are valid.");
    page.subtitle = comparison.workloads.join(", ");
    page.lead =
        format!("{} runs in turns on one machine; median (lowest–highest) of the rounds.", comparison.runs.len());
    page.sections = comparison.workloads.iter().map(|workload| section(comparison, workload)).collect();
    page.sections.push(Section::new("Environment").with(comparison.head.machine()));
    page.source += " Each run has a folder with a page of its own.";
    page
}

fn section(comparison: &Comparison, workload: &str) -> Section {
    let mut section = Section::new(workload);
    if let Some(players) = comparison.usual_size(workload) {
        section.push(table(comparison, (workload, players)));
        differences(comparison, (workload, players)).into_iter().for_each(|line| section.push(line));
    }
    let sizes = comparison.sizes(workload);
    for measure in GROWTHS.iter().filter(|_| sizes.len() > 1) {
        let curve = |(number, curve): (usize, crate::compare::Curve)| Curve {
            name: curve
                .fit
                .map_or(curve.contestant.clone(), |fit| format!("{} ^{:.2}", curve.contestant, fit.exponent)),
            ink: INKS[number % INKS.len()].to_owned(),
            values: curve.points.iter().map(|point| point.map(|point| point.sample.median)).collect(),
        };
        section.push(Chart {
            terms: vec![measure.name.into()],
            unit: measure.unit.to_owned(),
            axis: "players".to_owned(),
            x: sizes.iter().map(|size| f64::from(*size)).collect(),
            curves: curves(comparison, workload, measure).into_iter().enumerate().map(curve).collect(),
            ..Chart::default()
        });
    }
    let rows: Vec<(String, String, String)> = published(comparison, workload);
    let mut table = Table::new("Published figures", &["measure and system", "#value", "origin"]).wide();
    rows.into_iter()
        .for_each(|(what, value, origin)| table.push([Cell::from(what), Cell::number(value), Cell::from(origin)]));
    section.with(table)
}

fn table(comparison: &Comparison, (workload, players): (&str, u32)) -> Table {
    let mut table = Table::new(&format!("With {} players", grouped(players.into())), &["figure"]).wide();
    let names = comparison.contestants.iter().map(|name| match comparison.is_overloaded(workload, players, name) {
        true => format!("{name} {OVERLOADED}"),
        false => name.clone(),
    });
    table.head.extend(names.map(Cell::number));
    let columns: Vec<_> =
        comparison.contestants.iter().map(|name| comparison.counted(workload, players, name)).collect();
    for measure in measures(workload) {
        let sample = |runs: &Vec<&crate::compare::Run>| {
            Sample::of(runs.iter().filter_map(|run| run.figures.as_ref().and_then(measure.of)))
        };
        let samples: Vec<Option<Sample>> = columns.iter().map(sample).collect();
        // Distances without any character have no row.
        if samples.iter().any(Option::is_some) {
            let cells = samples.into_iter().map(|sample| Cell::number(spoken(sample)));
            table.push(std::iter::once(Cell::from(measure.title())).chain(cells));
        }
    }
    if !comparison.overloads().is_empty() {
        table.note = format!(
            "{OVERLOADED} overloaded: the server missed more than 1 % of its ticks. Its figures are for the ticks that it played."
        );
    }
    table
}

fn published(comparison: &Comparison, workload: &str) -> Vec<(String, String, String)> {
    let tables = comparison.published.iter().filter(|table| table.workload == workload);
    let rows = tables.flat_map(|table| &table.rows);
    rows.map(|row| {
        (format!("{}: {}", row.measure, row.system), format!("{} {}", row.value, row.unit), row.origin.clone())
    })
    .collect()
}
