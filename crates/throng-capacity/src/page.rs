//! The page of a capacity measurement: a ladder of loads, and which of them kept their limits.

use serde_json::Value;
use throng_report::{
    Cell, Chart, Curve, Figures, Kind, Limit, Line, Page, Section, Table, Term, Verdict, bytes, figure, optional,
};

use crate::{Capacity, LimitFigures, Load, TrialFigures, names};

/// The page of a run.
pub fn page(capacity: &Capacity) -> Page {
    let json: Value = serde_json::to_value(capacity).unwrap_or_default();
    let figures = &Figures::new(Kind::Capacity, &json);
    let unit = &capacity.unit;
    let answer = capacity.kept.map_or("no load was kept".to_owned(), |kept| format!("{kept} {unit}"));
    let mut page = capacity.head.page(&format!("{}: {answer}", capacity.load), "All trials were played.");
    page.subtitle = format!("{}: {}", capacity.verdict, capacity.why);
    page.lead = format!("Method {}, {} trials.", capacity.method, capacity.trials.len());
    let answering = capacity.trials.iter().rfind(|trial| Some(trial.amount) == capacity.kept);
    if let Some(trial) = answering {
        page.limits = trial.limits.iter().map(|of| limit(capacity, of)).collect();
        page.limits_note = format!("The limits as the last trial with {} {unit} kept them.", trial.amount);
    }
    let beyond = capacity.beyond.map_or(String::new(), |beyond| format!("{beyond} are too many"));
    let limited = capacity.limited_by.as_ref().map_or(String::new(), |by| format!(", limited by {by}"));
    let estimate =
        capacity.estimate.map_or(String::new(), |load| format!("; best estimate without a bound: {load:.1}"));
    let machine = capacity.extrapolated_to_machine.map_or(String::new(), |of| {
        format!("{} on {} cores, as if they did not disturb each other: not measured", figure(of.amount), of.cores)
    });
    let in_units = |path: &str, note: String| throng_report::Tile { unit: unit.clone(), ..figures.tile(path, note) };
    page.tiles = vec![
        in_units("kept", format!("{beyond}{limited}{estimate}")),
        in_units("per_core", machine),
        in_units("per_physical_core", String::new()),
        figures.tile("memory_bytes_per_unit", String::new()),
        figures.tile("seconds", format!("{} s in all", figure(capacity.wall_s))),
    ];
    page.sections = vec![levels(capacity), trials(capacity)];
    if !capacity.growth.is_empty() {
        page.sections.push(growth(capacity));
    }
    if !capacity.memory.is_empty() {
        page.sections.push(memory(capacity));
    }
    page.sections.push(Section::new("Environment").with(capacity.head.machine()));
    page
}

/// The name of a limit with its description, if it is one of a load file of this program.
fn term(capacity: &Capacity, of: &LimitFigures) -> Term {
    // A name of a file is not followed.
    let load = names().contains(&&capacity.load[..]).then(|| Load::resolve(&capacity.load).ok()).flatten();
    let limit = load.and_then(|load| load.limits.into_iter().find(|limit| limit.name == of.name));
    Term::new(&of.name, &limit.map(|limit| limit.about).unwrap_or_default())
}

fn limit(capacity: &Capacity, of: &LimitFigures) -> Limit {
    Limit {
        term: term(capacity, of),
        limit: format!("≤ {}", of.show(of.at_most)),
        value: of.words(),
        verdict: Verdict::of_load(&of.verdict),
    }
}

/// A chart for each limit: its value by load, with the bounds in which the true value lies.
fn levels(capacity: &Capacity) -> Section {
    let mut section = Section::new("Levels by load").note(
        "Each point is a trial. The true value lies between the lower and the upper bound with a probability of 95 % each; a \
         load is accepted if the upper bound keeps the limit.",
    );
    let mut trials: Vec<&TrialFigures> = capacity.trials.iter().filter(|trial| trial.fault.is_none()).collect();
    trials.sort_by_key(|trial| trial.amount);
    for of in capacity.limits() {
        let factor = if of.unit.is_some() { 1.0 } else { 100.0 };
        let curve = |name: &str, ink: &str, value: fn(&LimitFigures) -> Option<f64>| {
            let values = trials.iter().map(|trial| {
                let limit = trial.limits.iter().find(|limit| limit.name == of.name)?;
                Some(value(limit)? * factor)
            });
            Curve { name: name.to_owned(), ink: ink.to_owned(), values: values.collect() }
        };
        section.push(Chart {
            terms: vec![term(capacity, of)],
            unit: of.unit.clone().unwrap_or_else(|| "%".to_owned()),
            axis: capacity.unit.clone(),
            x: trials.iter().map(|trial| f64::from(trial.amount)).collect(),
            curves: vec![
                curve("value", "send", |of| of.value),
                curve("lower bound", "receive", |of| of.low),
                curve("upper bound", "encode", |of| of.high),
            ],
            limit: Some(Line { value: of.at_most * factor, name: "limit".to_owned() }),
            is_points: true,
        });
    }
    section
}

fn trials(capacity: &Capacity) -> Section {
    let names: Vec<&LimitFigures> = capacity.limits();
    let mut table = Table::new("", "").wide().brief();
    let steady = Term::new(
        "steady",
        "From when on the samples of all limits agree with the rest: only these are judged, except by the published method.",
    );
    table.head = vec![Cell::number(&capacity.unit[..]), Cell::from("why"), Cell::number("held"), Cell::of(steady)];
    table.head.extend(names.iter().map(|of| Cell { is_number: true, ..Cell::of(term(capacity, of)) }));
    table.head.push(Cell::from("verdict"));
    // In a column of their own they would be narrow and long.
    let mut faults = Table::new("Trials that say nothing about the server", "").brief();
    faults.head = vec![Cell::number(&capacity.unit[..]), Cell::from("why")];
    for trial in &capacity.trials {
        let mut row = vec![
            Cell::number(trial.amount.to_string()),
            Cell::from(&trial.purpose[..]),
            Cell::number(format!("{} s", figure(trial.held_s))),
            Cell::from(trial.steady_words()),
        ];
        row.extend(names.iter().map(|of| {
            let limit = trial.limits.iter().find(|limit| limit.name == of.name);
            let text = limit.map_or("–".to_owned(), LimitFigures::words);
            let verdict = limit.map(|limit| Verdict::of_load(&limit.verdict));
            Cell { is_number: true, verdict, ..Cell::from(text) }
        }));
        let (kind, words) = match &trial.fault {
            Some(_) => (Verdict::Unknown, "invalid"),
            None => (Verdict::of_load(&trial.verdict), &trial.verdict[..]),
        };
        row.push(Cell::verdict(kind, words));
        table.push(row);
        if let Some(fault) = &trial.fault {
            faults.push([Cell::number(trial.amount.to_string()), Cell::from(&fault[..])]);
        }
    }
    let section = Section::new("Trials").with(table);
    if faults.rows.is_empty() { section } else { section.with(faults) }
}

/// The growth of memory in a soak.
fn memory(capacity: &Capacity) -> Section {
    let head = "process | #samples | #memory | #growth by hour | #bounds of it | #in 24 more hours | verdict";
    let mut table = Table::new("", head).wide().brief();
    for of in &capacity.memory {
        let shown = |value: Option<f64>| value.map_or("–".to_owned(), bytes);
        table.push([
            Cell::from(&of.name[..]),
            Cell::number(of.samples.to_string()),
            Cell::number(bytes(of.bytes)),
            Cell::number(shown(of.bytes_per_hour)),
            Cell::number(format!("{} to {}", shown(of.low), shown(of.high))),
            Cell::number(shown(of.forecast_bytes)),
            Cell::verdict(Verdict::of_load(&of.verdict), &of.verdict),
        ]);
    }
    Section::new("Memory")
        .note("Growth in the second half of the samples; the true value lies above the lower and below the upper bound with a probability of 95 % each. The forecast is not measured.")
        .with(table)
}

fn growth(capacity: &Capacity) -> Section {
    let head =
        "limit | #without load | #for each | #largest load | #forecast there | #measured there | #error of the curve";
    let mut table = Table::new("", head).wide().brief();
    for of in &capacity.growth {
        let (factor, unit) = of.unit.as_deref().map_or((100.0, "%"), |unit| (1.0, unit));
        let shown = |value: f64| Cell::number(format!("{} {unit}", optional(Some(value * factor))));
        table.push([
            Cell::from(&of.name[..]),
            shown(of.base),
            shown(of.slope),
            Cell::number(of.largest.to_string()),
            shown(of.forecast),
            shown(of.measured),
            Cell::number(format!("{} %", figure(of.largest_error * 100.0))),
        ]);
    }
    Section::new("Growth").note("A curve through each level; the forecast is that of the smaller loads.").with(table)
}
