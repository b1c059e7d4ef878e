//! The page of a comparison of two sides of runs.

use throng_report::{Cell, Limit, Mark, Page, Picture, Section, Shape, Table, Term, Verdict, figure};

use throng_history::{Comparison, PartChange};

/// The picture of intervals: width, height of a row, and where names end.
const WIDTH: f32 = 900.0;
const ROW: f32 = 22.0;
const NAMES: f32 = 230.0;
/// Ratios beyond these are drawn at the border.
const RATIOS: (f64, f64) = (0.5, 2.0);

/// The page of a comparison.
pub(super) fn page(of: &Comparison) -> Page {
    let mut page = of.head.page(&of.head.workload, "There are enough runs for verdicts.");
    let (before, after) = of.runs;
    page.subtitle = format!("A {} ({before} runs), B {} ({after} runs)", of.first.join(", "), of.second.join(", "));
    let worse: Vec<&PartChange> = of.worse().collect();
    page.lead = match worse.len() {
        0 => "Nothing became worse.".to_owned(),
        count => format!("{count} parts became worse."),
    };
    let limit = |part: &&PartChange| Limit {
        term: Term::from(&part.name[..]),
        limit: "not worse".to_owned(),
        value: format!("{}: {}", part.verdict, part.words),
        verdict: Verdict::Missed,
    };
    page.limits = worse.iter().map(limit).collect();
    page.facts.extend(of.notes.iter().cloned());
    page.sections = vec![intervals(of), parts(of)];
    page
}

fn parts(of: &Comparison) -> Section {
    let mut table = Table::new("", "part | #A | #B | unit | #B by A | #interval of 95 % | verdict").wide();
    for part in &of.parts {
        let verdict = match &part.verdict[..] {
            "slower" | "worse" => Verdict::Missed,
            "faster" | "better" => Verdict::Kept,
            _ => Verdict::Unknown,
        };
        let interval = part.interval.map_or("–".to_owned(), |(low, high)| format!("{low:.3} to {high:.3}"));
        table.push([
            Cell::part(&part.name),
            Cell::number(figure(part.first)),
            Cell::number(figure(part.second)),
            Cell::from(&part.unit[..]),
            Cell::number(part.ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.3}"))),
            Cell::number(interval),
            Cell::verdict(verdict, &format!("{}: {}", part.verdict, part.words)),
        ]);
    }
    let note = format!(
        "Each value is one of the {}. Changes below {} % are called none.",
        of.values,
        figure(of.least * 100.0)
    );
    Section::new("Parts").note(&note).with(table)
}

/// A line for each part from the low to the high end of its interval, around the line of no change.
fn intervals(of: &Comparison) -> Section {
    let known: Vec<_> = of.parts.iter().filter_map(|part| Some((part, part.ratio?, part.interval?))).collect();
    let at = |ratio: f64| {
        let (low, high) = (RATIOS.0.ln(), RATIOS.1.ln());
        let share = (ratio.max(1e-9).ln().clamp(low, high) - low) / (high - low);
        NAMES + (WIDTH - NAMES - 20.0) * share as f32
    };
    let height = ROW * (known.len() as f32 + 1.5);
    let text = |x: f32, y: f32, words: String| Mark { shape: Shape::Text(x, y, 12.0, words), ..Mark::default() };
    let mut marks = Vec::new();
    for (ratio, words) in [(0.5, "half"), (0.8, "0.8"), (1.0, "no change"), (1.25, "1.25"), (2.0, "twice")] {
        let shape = Shape::Path(vec![(at(ratio), 0.0), (at(ratio), height - ROW)]);
        let line = if ratio == 1.0 { "ink" } else { "line" };
        marks.push(Mark { shape, line: line.to_owned(), ..Mark::default() });
        marks.push(text(at(ratio) - 18.0, height - 4.0, words.to_owned()));
    }
    for (row, (part, ratio, (low, high))) in known.iter().enumerate() {
        let y = ROW * (row as f32 + 0.7);
        let line = match &part.verdict[..] {
            "slower" | "worse" => "bad",
            "faster" | "better" => "good",
            _ => "soft",
        };
        let title = format!("{}: {ratio:.3} ({low:.3} to {high:.3})", part.name);
        let shape = Shape::Path(vec![(at(*low), y), (at(*high), y)]);
        marks.push(text(0.0, y + 4.0, part.name.clone()));
        marks.push(Mark { shape, line: line.to_owned(), width: 3.0, title: title.clone(), ..Mark::default() });
        marks.push(Mark { shape: Shape::Circle(at(*ratio), y, 4.5), fill: line.to_owned(), title, ..Mark::default() });
    }
    let picture = Picture {
        title: "B divided by A, with its interval of 95 %".to_owned(),
        alternative: "Intervals of the ratios of all parts; the table below has the numbers".to_owned(),
        size: (f64::from(WIDTH), f64::from(height)),
        least_width: 540,
        key: vec![],
        marks,
    };
    let section = Section::new("Changes");
    if known.is_empty() { section.note("No interval is known.") } else { section.with(picture) }
}
