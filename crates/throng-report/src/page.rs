//! The parts of a page, without any HTML.

use serde::{Deserialize, Serialize};

use crate::metric::Kind;
use crate::picture::Picture;
use crate::text::{columns, markdown_cell};

/// The page of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// The kind of run.
    pub kind: Kind,
    /// Name of the run.
    pub title: String,
    /// Model, size and length, in a few words.
    pub subtitle: String,
    /// A description, in a sentence or two.
    pub lead: String,
    /// Moment, revision, machine.
    pub facts: Vec<String>,
    /// Whether the figures are valid; `None` if that is no question of this kind.
    pub validity: Option<Validity>,
    /// Limits and whether they were kept.
    pub limits: Vec<Limit>,
    /// A sentence below the limits.
    pub limits_note: String,
    /// The most important figures.
    pub tiles: Vec<Tile>,
    /// Everything else.
    pub sections: Vec<Section>,
    /// Path of the page of all runs, from this one.
    pub index: Option<String>,
    /// Where the figures are, in a sentence.
    pub source: String,
}

impl Page {
    /// An empty page.
    pub fn new(kind: Kind, title: &str) -> Page {
        Page {
            kind,
            title: title.to_owned(),
            subtitle: String::new(),
            lead: String::new(),
            facts: Vec::new(),
            validity: None,
            limits: Vec::new(),
            limits_note: String::new(),
            tiles: Vec::new(),
            sections: Vec::new(),
            index: None,
            source: String::new(),
        }
    }

    /// Limits that were measured and missed.
    pub fn missed(&self) -> usize {
        self.limits.iter().filter(|limit| limit.verdict == Verdict::Missed).count()
    }
}

/// Whether a run's figures are valid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Validity {
    /// Whether they are.
    pub is_valid: bool,
    /// The checks, in a sentence.
    pub words: String,
    /// The reasons, if they are not.
    pub reasons: Vec<String>,
}

/// How a value stands to its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It keeps the limit.
    Kept,
    /// It does not.
    Missed,
    /// Nobody knows.
    #[default]
    Unknown,
}

impl Verdict {
    /// The verdict of a load that was `accepted` or `rejected`; unknown of any other word.
    pub fn of_load(word: &str) -> Verdict {
        Verdict::of(["accepted", "rejected"].contains(&word).then(|| word == "accepted"))
    }

    /// The verdict of something that is met, missed, or not measured.
    pub fn of(met: Option<bool>) -> Verdict {
        match met {
            Some(true) => Verdict::Kept,
            Some(false) => Verdict::Missed,
            None => Verdict::Unknown,
        }
    }
}

/// A word with its explanation; the explanation is empty where the word says everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// The word.
    pub text: String,
    /// Its meaning.
    pub explanation: String,
}

impl Term {
    /// A word with its explanation.
    pub fn new(text: &str, explanation: &str) -> Term {
        Term { text: text.to_owned(), explanation: explanation.to_owned() }
    }

    /// The name of a part of a frame or of its bytes.
    pub fn part(name: &str) -> Term {
        Term::new(name, crate::parts::explanation(name))
    }
}

impl From<&str> for Term {
    fn from(text: &str) -> Term {
        Term::new(text, "")
    }
}

/// A limit and what was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The limited figure.
    pub term: Term,
    /// The limit, as `≤ 20 ms`.
    pub limit: String,
    /// The measured value.
    pub value: String,
    /// Whether it keeps the limit.
    pub verdict: Verdict,
}

/// A figure in large type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tile {
    /// Its name.
    pub term: Term,
    /// The value.
    pub value: String,
    /// Its unit.
    pub unit: String,
    /// Words below it.
    pub note: String,
    /// Whether it keeps its limit, if it has one.
    pub verdict: Option<Verdict>,
}

/// A part of the page under a heading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// Sentences below it.
    pub note: String,
    /// Its contents.
    pub blocks: Vec<Block>,
}

impl Section {
    /// An empty section.
    pub fn new(title: &str) -> Section {
        Section { title: title.to_owned(), ..Section::default() }
    }

    /// With sentences below the heading.
    #[must_use]
    pub fn note(mut self, note: &str) -> Section {
        note.clone_into(&mut self.note);
        self
    }

    /// With one more block. Charts, tables and bars without any values are left out.
    #[must_use]
    pub fn with(mut self, block: impl Into<Block>) -> Section {
        self.push(block);
        self
    }

    /// Adds a block, if it has anything to show.
    pub fn push(&mut self, block: impl Into<Block>) {
        let block = block.into();
        let is_empty = match &block {
            Block::Note(text) => text.is_empty(),
            Block::Table(table) => table.rows.is_empty(),
            Block::Bars(bars) => bars.rows.is_empty(),
            Block::Chart(chart) => chart.is_empty(),
            Block::Frames(frames) => frames.x.len() < 2,
            Block::Histogram(histogram) => histogram.counts.is_empty(),
            Block::Picture(_) => false,
        };
        if !is_empty {
            self.blocks.push(block);
        }
    }
}

/// Something that a section shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Block {
    /// Sentences.
    Note(String),
    /// A table.
    Table(Table),
    /// Horizontal bars of parts.
    Bars(Bars),
    /// Curves.
    Chart(Chart),
    /// Frames by their parts.
    Frames(Frames),
    /// How many frames took how long.
    Histogram(Histogram),
    /// A drawing, as a map.
    Picture(Picture),
}

macro_rules! blocks {
    ($($name:ident),*) => { $(impl From<$name> for Block { fn from(block: $name) -> Block { Block::$name(block) } })* };
}
blocks!(Table, Bars, Chart, Frames, Histogram, Picture);

impl From<&str> for Block {
    fn from(text: &str) -> Block {
        Block::Note(text.to_owned())
    }
}

impl From<String> for Block {
    fn from(text: String) -> Block {
        Block::Note(text)
    }
}

/// A table. A wide one scrolls in a box of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Its heading; empty for none.
    pub title: String,
    /// Names of columns; empty for none.
    pub head: Vec<Cell>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
    /// Whether it takes the whole width of the page.
    pub is_wide: bool,
    /// Whether the terminal shows it too.
    #[serde(default)]
    pub is_brief: bool,
    /// Sentences below it.
    pub note: String,
}

impl Table {
    /// An empty table. `head` has the names of its columns with bars between them; one that begins with `#` is of numbers. An empty
    /// text is no head.
    pub fn new(title: &str, head: &str) -> Table {
        let cell = |name: &str| match name.strip_prefix('#') {
            Some(name) => Cell::number(name),
            None => Cell::from(name),
        };
        let head = if head.is_empty() { Vec::new() } else { head.split(" | ").map(cell).collect() };
        Table { title: title.to_owned(), head, ..Table::default() }
    }

    /// Over the whole width of the page.
    #[must_use]
    pub fn wide(mut self) -> Table {
        self.is_wide = true;
        self
    }

    /// In the terminal too.
    #[must_use]
    pub fn brief(mut self) -> Table {
        self.is_brief = true;
        self
    }

    /// Its head and its rows as lines for a terminal, each after `begin`.
    pub fn text(&self, begin: &str) -> String {
        let head = std::iter::once(&self.head).filter(|head| !head.is_empty());
        let rows: Vec<Vec<Cell>> = head.chain(&self.rows).cloned().collect();
        columns(&rows).lines().map(|line| format!("{begin}{line}\n")).collect()
    }

    /// The same in Markdown.
    pub fn markdown(&self) -> String {
        let row = |cells: &[Cell]| {
            let cells: Vec<String> = cells.iter().map(|cell| markdown_cell(&cell.term.text)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let sides: String = self.head.iter().map(|cell| if cell.is_number { "---:|" } else { "---|" }).collect();
        let rows: String = self.rows.iter().map(|cells| row(cells)).collect();
        format!("\n{}|{sides}\n{rows}", row(&self.head))
    }

    /// Adds a row.
    pub fn push(&mut self, row: impl IntoIterator<Item = Cell>) {
        self.rows.push(row.into_iter().collect());
    }
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The text, and its explanation.
    pub term: Term,
    /// Whether it is a number, which stands to the right.
    pub is_number: bool,
    /// A verdict: the text has its colour and its sign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Path of another page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The colour of a part, shown before the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ink: Option<String>,
    /// Share of the cell that is shaded, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shade: Option<f64>,
}

impl Cell {
    /// A word with an explanation.
    pub fn of(term: Term) -> Cell {
        Cell { term, ..Cell::default() }
    }

    /// A number.
    pub fn number(text: impl Into<String>) -> Cell {
        Cell { term: Term { text: text.into(), explanation: String::new() }, is_number: true, ..Cell::default() }
    }

    /// The name of a part, with its colour.
    pub fn part(name: &str) -> Cell {
        Cell { ink: Some(crate::parts::ink(name)), ..Cell::of(Term::part(name)) }
    }

    /// A verdict in words.
    pub fn verdict(verdict: Verdict, text: &str) -> Cell {
        Cell { verdict: Some(verdict), ..Cell::from(text) }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::of(Term::from(text))
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::from(text.as_str())
    }
}

/// Horizontal bars, each of parts, all on one scale.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bars {
    /// Its heading; empty for none.
    pub title: String,
    /// Unit of the values.
    pub unit: String,
    /// The bars: a name, and the parts with their values.
    pub rows: Vec<(String, Vec<(String, f64)>)>,
    /// Sentences below it.
    pub note: String,
}

/// Curves over one axis. Charts of the same axis share cursor and zoom.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// The metrics of the curves.
    pub terms: Vec<Term>,
    /// Unit of the values.
    pub unit: String,
    /// Unit of the axis; empty: seconds of the run.
    pub axis: String,
    /// Places on the axis, rising.
    pub x: Vec<f64>,
    /// The curves.
    pub curves: Vec<Curve>,
    /// A limit.
    pub limit: Option<Line>,
    /// Whether places are marked by points, and not joined.
    pub is_points: bool,
}

impl Chart {
    /// With a limit.
    #[must_use]
    pub fn limit(mut self, value: f64, name: &str) -> Chart {
        self.limit = Some(Line { value, name: name.to_owned() });
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.x.len() < 2 || self.curves.iter().all(|curve| curve.values.iter().all(Option::is_none))
    }
}

/// A curve.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Its name.
    pub name: String,
    /// Its colour: the name of a part.
    pub ink: String,
    /// A value for each place of the axis.
    pub values: Vec<Option<f64>>,
}

/// A line across a chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Where it is.
    pub value: f64,
    /// Its name.
    pub name: String,
}

/// The time of frames by part. A click on a frame shows its parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Frames {
    /// Seconds since the run began.
    pub x: Vec<f64>,
    /// Names of the parts with a value for each frame, in milliseconds; lowest in the stack first.
    pub parts: Vec<(String, Vec<f64>)>,
    /// Whole frames in milliseconds.
    pub total: Vec<f64>,
    /// Frames that were due and not played before each one; empty if that is not known.
    pub missed: Vec<u64>,
    /// The budget of a frame in milliseconds.
    pub budget: Option<Line>,
    /// The name of a point, as `frame`.
    pub point: String,
}

/// How many frames took how long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Where each bar begins, in milliseconds; all are as wide as the first.
    pub from: Vec<f64>,
    /// How many are in each bar.
    pub counts: Vec<u64>,
    /// The budget of a frame.
    pub budget: Option<Line>,
}

/// Bars of a histogram, at most and two thirds of it about.
const BARS: usize = 60;

impl Histogram {
    /// Of values in milliseconds, each with how often.
    pub fn of(values: &[(f64, u64)], budget: Option<Line>) -> Histogram {
        let longest = values.iter().map(|(value, _)| *value).fold(0.0, f64::max);
        let width = round_width(longest / BARS as f64);
        let bar = |value: f64| (value / width) as usize;
        let mut counts = vec![0; values.iter().map(|(value, _)| bar(*value) + 1).max().unwrap_or(0)];
        values.iter().for_each(|&(value, count)| counts[bar(value)] += count);
        // To a tenth of a microsecond, to keep files small.
        let from = (0..counts.len()).map(|number| (number as f64 * width * 1e4).round() / 1e4).collect();
        Histogram { from, counts, budget }
    }
}

/// The bars of a histogram of frames, as a summary has them. A curve of thousands of frames hides that there are two kinds of them;
/// this shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FrameHistogram {
    /// Where each bar begins, in milliseconds. It ends where the next one begins.
    pub from_ms: Vec<f64>,
    /// Frames of each bar.
    pub frames: Vec<u64>,
}

impl FrameHistogram {
    /// Of times of frames in milliseconds, each with how often.
    pub fn of(values: &[(f64, u64)]) -> FrameHistogram {
        let Histogram { from: from_ms, counts: frames, .. } = Histogram::of(values, None);
        FrameHistogram { from_ms, frames }
    }

    /// The bars on a page.
    pub fn bars(&self, budget: Option<Line>) -> Histogram {
        Histogram { from: self.from_ms.clone(), counts: self.frames.clone(), budget }
    }
}

/// The next of 1, 2 and 5 times a power of ten that is not below `width`, and at least a microsecond of milliseconds.
fn round_width(width: f64) -> f64 {
    let power = 10f64.powf(width.max(1e-3).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|&round| round >= width).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_bar_however_large() {
        for longest in [1e-6, 0.013, 1.0, 59.9, 60.0, 33_000.0, 1e9] {
            let values: Vec<(f64, u64)> =
                (1..=50_u32).map(|number| (longest * f64::from(number) / 50.0, number.into())).collect();
            let Histogram { from, counts, .. } = Histogram::of(&values, None);
            assert_eq!(counts.iter().sum::<u64>(), 50 * 51 / 2);
            assert!(counts.len() <= BARS + 1 && from.len() == counts.len(), "{longest}: {} bars", counts.len());
        }
        assert_eq!(Histogram::of(&[], None), Histogram::default());
    }
}
