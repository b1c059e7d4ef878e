//! The page of a comparison of models, and its text in the terminal: for each workload a table of medians, what differs, how cost
//! grows with the number of players, and published figures.

use throng_report::{Cell, Chart, Curve, Page, Section, Table, figure, grouped};

use crate::compare::{
    Comparison, Difference, Figures, GROWTHS, OUTGOING, OUTSIDE_KERNEL, Outcome, PublishedTable, Run, Sample,
    advantage, bytes_if_not_overloaded, curves, measures, spoken,
};

/// Colours of contestants, in their order.
const INKS: [&str; 7] = ["send", "encode", "seal", "quantise", "plan", "write", "open"];
/// Marks of a contestant.
const LEGEND: &str = "! marks figures without a valid run: do not quote them. † overloaded: the server missed more than 1 % of its \
    ticks. Its figures are for the ticks that it played: it sent less, its ages do not include missed ticks, and it is left out of the \
    growth fit.";

/// A figure, and the function that reads it.
type Titled = (String, fn(&Figures) -> Option<f64>);

/// A figure that is judged, and the function that reads it.
type Judged = (&'static str, fn(&Figures) -> Option<f64>);

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
    match comparison.usual_size(workload) {
        Some(players) => {
            let names = comparison.contestants.iter();
            let columns: Vec<Vec<&Run>> = names.map(|name| comparison.counted(workload, players, name)).collect();
            section.push(medians(comparison, (workload, players), &columns));
            section.push(differences(comparison, &columns));
        }
        None => section.push("No run with the scenario's number of players was completed.".to_owned()),
    }
    let sizes = comparison.sizes(workload);
    for measure in GROWTHS.iter().filter(|_| sizes.len() > 1) {
        let curves = curves(comparison, workload, measure);
        let mut table = Table::new(&format!("{workload}: growth of {}", measure.title()), "players").wide().brief();
        table.head.extend(comparison.contestants.iter().map(Cell::number));
        for (place, players) in sizes.iter().enumerate() {
            let cell = |curve: &crate::compare::Curve| {
                let point = curve.points[place];
                let mark = point.map_or("", |point| marks(point.is_valid, point.is_overloaded));
                Cell::number(spoken(point.map(|point| point.sample)) + mark)
            };
            let players = grouped(u64::from(*players));
            table.push(std::iter::once(Cell::from(players)).chain(curves.iter().map(cell)));
        }
        let exponents =
            curves.iter().map(|curve| curve.fit.map_or("–".to_owned(), |fit| format!("{:.2}", fit.exponent)));
        table.push(std::iter::once(Cell::from("exponent")).chain(exponents.map(Cell::number)));
        table.note =
            "The exponent is of the number of players: least squares in log-log through the medians of valid runs of \
            servers that were not overloaded."
                .to_owned();
        section.push(Chart {
            terms: vec![measure.name.into()],
            unit: measure.unit.to_owned(),
            axis: "players".to_owned(),
            x: sizes.iter().map(|size| f64::from(*size)).collect(),
            curves: curves.into_iter().enumerate().map(drawn).collect(),
            ..Chart::default()
        });
        section.push(table);
    }
    for table in comparison.published.iter().filter(|table| table.workload == workload) {
        section.push(published(table));
    }
    section
}

fn drawn((number, curve): (usize, crate::compare::Curve)) -> Curve {
    Curve {
        name: curve.fit.map_or(curve.contestant.clone(), |fit| format!("{} ^{:.2}", curve.contestant, fit.exponent)),
        ink: INKS[number % INKS.len()].to_owned(),
        values: curve.points.iter().map(|point| point.map(|point| point.sample.median)).collect(),
    }
}

/// Medians with their spread, and ratios to the base.
fn medians(comparison: &Comparison, (workload, players): (&str, u32), columns: &[Vec<&Run>]) -> Table {
    let first = columns.iter().flatten().next();
    let (tick_hz, seconds) = first.map_or((0, 0.0), |run| (run.tick_hz, run.seconds));
    let (size, seconds) = (grouped(players.into()), figure(seconds.round()));
    let title =
        format!("{workload}: {size} players at {tick_hz} Hz for {seconds} s, median (lowest–highest) of the rounds");
    let mut table = Table::new(&title, "figure").wide().brief();
    let names = comparison.contestants.iter().zip(columns).map(|(name, runs)| {
        let is_valid = runs.iter().any(|run| run.valid);
        name.clone() + marks(is_valid, comparison.is_overloaded(workload, players, name))
    });
    table.head.extend(names.map(Cell::number));
    let mut row = |title: String, values: &mut dyn Iterator<Item = String>| {
        table.push(std::iter::once(Cell::from(title)).chain(values.map(Cell::number)));
    };
    for measure in measures(workload) {
        let sample =
            |runs: &Vec<&Run>| Sample::of(runs.iter().filter_map(|run| run.figures.as_ref().and_then(measure.of)));
        let samples: Vec<Option<Sample>> = columns.iter().map(sample).collect();
        // Distances without any character have no row.
        if samples.iter().any(Option::is_some) {
            row(measure.title(), &mut samples.into_iter().map(spoken));
        }
    }
    for (title, of) in advantages(comparison) {
        let base = base(comparison, columns);
        row(title, &mut columns.iter().map(|ours| spoken(advantage(base, ours, of))));
    }
    let valid = |runs: &Vec<&Run>| runs.iter().filter(|run| run.valid).count().to_string();
    row("valid runs".to_owned(), &mut columns.iter().map(valid));
    let overloads = comparison.overloads();
    if !overloads.is_empty() || !comparison.complaints().is_empty() {
        table.note = LEGEND.to_owned();
    }
    if !overloads.is_empty() {
        table.note += &format!(" Overloaded: {}.", overloads.join("; "));
    }
    table
}

/// The ratios of each contestant to the base.
fn advantages(comparison: &Comparison) -> [Titled; 3] {
    let base = comparison.base().unwrap_or("the first");
    [
        (format!("times less than {base}: outgoing"), OUTGOING.of),
        ("  outside the kernel".to_owned(), OUTSIDE_KERNEL.of),
        ("  bytes".to_owned(), bytes_if_not_overloaded),
    ]
}

/// For each contestant beside the base: what differs, and by how much figures would have to differ to be told apart.
fn differences(comparison: &Comparison, columns: &[Vec<&Run>]) -> Table {
    const JUDGED: [Judged; 3] = [
        ("frame", |figures| Some(figures.frame_ms)),
        ("outgoing", OUTGOING.of),
        ("outside the kernel", OUTSIDE_KERNEL.of),
    ];
    let base_name = comparison.base().unwrap_or("the first");
    let base = base(comparison, columns);
    let mut table =
        Table::new(&format!("Differences from {base_name}, with 99 % certainty"), "contestant").wide().brief();
    table.head.extend(JUDGED.map(|(name, _)| Cell::from(name)));
    for (name, ours) in comparison.contestants.iter().zip(columns).filter(|(name, _)| *name != base_name) {
        let told = |of| Difference::of(base, ours, of).map_or("unknown".to_owned(), |difference| told(&difference));
        table.push(std::iter::once(Cell::from(&name[..])).chain(JUDGED.map(|(_, of)| Cell::from(told(of)))));
    }
    table.note = "The noise needs two valid rounds or more.".to_owned();
    table
}

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

/// Marks for contestants without a valid run, and for overloaded servers.
fn marks(is_valid: bool, is_overloaded: bool) -> &'static str {
    match (is_valid, is_overloaded) {
        (true, false) => "",
        (true, true) => " †",
        (false, false) => " !",
        (false, true) => " !†",
    }
}

/// Published figures: with systems as columns if all are of one origin, else one to a line.
fn published(published: &PublishedTable) -> Table {
    let Some(origin) = published.origin() else {
        let mut table = Table::new("Published figures", "measure | system | #value | origin").wide().brief();
        for row in &published.rows {
            let value = Cell::number(format!("{} {}", figure(row.value), row.unit));
            table.push([Cell::from(&row.measure[..]), Cell::from(&row.system[..]), value, Cell::from(&row.origin[..])]);
        }
        return table;
    };
    let (systems, measures) = (published.systems(), published.measures());
    let mut table = Table::new("Published figures", "measure").wide().brief();
    table.head.extend(systems.iter().map(|system| Cell::number(*system)));
    for (measure, unit) in measures {
        let value =
            |system: &&str| published.value(system, measure).map_or("–".to_owned(), |value| value.to_string());
        let values = systems.iter().map(|system| Cell::number(value(system)));
        table.push(std::iter::once(Cell::from(format!("{measure}, {unit}"))).chain(values));
    }
    table.note = format!("Origin: {origin}");
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::example;

    fn shown(comparison: &Comparison) -> String {
        page(comparison).text()
    }

    #[test]
    fn a_comparison_is_one_table_with_ratios_and_the_published_one_beside_it() {
        let text = shown(&example());
        for part in [
            "dense: 100 players at 30 Hz for 4 s",
            "frame, ms",
            "outgoing by the floor",
            "times less than legacy: outgoing",
            "age within 10 m, p50, ms",
            "Legacy + Replication Graph",
            "Threadripper",
            "exponent",
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
        let text = shown(&comparison);
        assert!(!text.contains("\n  origin: "), "{text}");
        for (system, origin) in [("Unity Netcode", "bound by bandwidth"), ("EVE Online", "a tenth of normal speed")] {
            let line = text.lines().find(|line| line.contains(system)).unwrap();
            assert!(line.contains(origin), "{line}");
        }
    }

    #[test]
    fn rows_show_median_and_spread_and_ratios_are_taken_from_the_base() {
        let text = shown(&example());
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
        let text = shown(&comparison);
        let line = |start: &str| text.lines().find(|line| line.trim_start().starts_with(start)).unwrap().to_owned();
        assert_eq!(line("throng:again   no").matches("no difference (noise ").count(), 3, "{text}");
        assert_eq!(line("throng:slower  1").matches("1.2 times more (1.").count(), 3, "{text}");
        assert!(text.contains("Differences from throng, with 99 % certainty"), "{text}");
        comparison.runs.retain(|run| run.round == 0);
        assert!(shown(&comparison).contains("throng:again   unknown"));
    }

    #[test]
    fn an_overloaded_server_is_marked_wherever_its_figures_stand() {
        let mut comparison = example();
        for run in comparison.runs.iter_mut().filter(|run| run.contestant == "legacy" && run.players == 400) {
            run.figures.as_mut().unwrap().missed_ticks = 400;
        }
        let text = shown(&comparison);
        assert!(text.contains("† overloaded") && text.contains("dense with 400: legacy"), "{text}");
        assert!(text.contains("204 (200–208) †") && !text.contains("legacy †"), "{text}");
        for run in comparison.runs.iter_mut().filter(|run| run.contestant == "legacy") {
            run.figures.as_mut().unwrap().missed_ticks = 400;
        }
        assert!(shown(&comparison).contains("legacy †"));
        assert!(!shown(&example()).contains('†'));
    }

    #[test]
    fn runs_that_do_not_count_are_marked_and_said_so() {
        let mut comparison = example();
        for run in comparison.runs.iter_mut().filter(|run| run.contestant == "throng") {
            (run.valid, run.invalid_reasons) = (false, vec!["the bots were saturated".to_owned()]);
        }
        comparison.conclude();
        let text = shown(&comparison);
        assert!(text.contains("throng !") && text.contains("do not quote them"), "{text}");
        assert!(text.contains("dense with 100, throng, round 1: not valid: the bots were saturated"), "{text}");
        assert!(!comparison.is_complete() && example().is_complete());
    }

    #[test]
    fn it_fits_a_wide_terminal() {
        let widest = shown(&example()).lines().map(|line| line.trim_end().chars().count()).max().unwrap();
        assert!(widest <= 130, "{widest} columns");
    }
}
