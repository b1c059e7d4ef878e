//! A page as HTML. Everything in words and tables is made here, so that it can be read without scripts and on paper; curves
//! are drawn by uPlot from the numbers in the page.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::Serde;
use minijinja::{Environment, Value, context};
use serde::Serialize;

use crate::page::{Bars, Block, Chart, Curve, Frames, Histogram, Page, Section, Term};
use crate::parts::{OTHERS, PARTS, ink};
use crate::picture::colour;
use crate::words::{figure, grouped};

const TEMPLATE: &str = include_str!("../assets/page.html.jinja");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");
/// The style of the plots, for other pages that draw with the same library.
pub const UPLOT_STYLE: &str = include_str!("../assets/uplot/uPlot.min.css");
/// The library that draws the plots, [uPlot](https://github.com/leeoniya/uPlot), for other pages.
pub const UPLOT_SCRIPT: &str = include_str!("../assets/uplot/uPlot.iife.min.js");
const UPLOT_LICENCE: &str = include_str!("../assets/uplot/LICENSE");

/// A part of a bar that is shorter than this share of the longest bar has no room for its name.
const LABEL_SHARE: f64 = 0.09;

/// A curve that moves by a smaller share than this stands still.
const STILL_SHARE: f64 = 0.002;

/// The template does not fit the page: a defect of this program.
pub type RenderError = minijinja::Error;

impl Page {
    /// The page as one HTML file that loads nothing from anywhere.
    ///
    /// # Errors
    /// The template does not fit: a defect of this program.
    pub fn render(&self) -> Result<String, RenderError> {
        let terms = Terms::default();
        let mut environment = Environment::new();
        let known = terms.clone();
        environment.add_function("term", move |text: String, explanation: String| known.button(&text, &explanation));
        environment.add_function("terms", move || Value::from(Serde(terms.all())));
        environment.add_filter("colour", |name: String| Value::from_safe_string(colour(&name)));
        environment.add_test("inside", |link: String| is_inside(&link));
        environment.add_template("page.html", TEMPLATE)?;
        let mut drawn = Vec::new();
        let sections: Vec<Value> = self
            .sections
            .iter()
            .map(|section| {
                let mut blocks: Vec<Value> = section.blocks.iter().filter_map(|block| view(block, &mut drawn)).collect();
                blocks.extend(constants(section));
                let id: String = section.title.chars().filter(char::is_ascii_alphanumeric).collect();
                context! { title => section.title.clone(), note => section.note.clone(), id => id.to_lowercase(), blocks }
            })
            .collect();
        let json = serde_json::to_string(&drawn).unwrap_or_default();
        environment.get_template("page.html")?.render(context! {
            page => Value::from(Serde(self)),
            kind => self.kind.name(),
            missed => self.missed(),
            has_plots => !drawn.is_empty(),
            sections,
            inks => inks(),
            style => STYLE,
            script => SCRIPT,
            uplot_style => UPLOT_STYLE,
            uplot_script => UPLOT_SCRIPT,
            uplot_licence => UPLOT_LICENCE,
            // `<` occurs in strings only, where an escape means the same.
            json => json.replace('<', "\\u003c"),
        })
    }
}

/// Text for HTML, also inside of an attribute.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Whether a link leads to another page of these folders: it has no scheme and no host.
fn is_inside(link: &str) -> bool {
    !link.starts_with('/') && !link.contains(':')
}

/// The words with explanations, in the order of the page, each once.
#[derive(Clone, Default)]
struct Terms(Arc<Mutex<Vec<Term>>>);

impl Terms {
    /// A word that shows its explanation when it is pointed at, focused or touched.
    fn button(&self, text: &str, explanation: &str) -> Value {
        if explanation.is_empty() {
            return Value::from_safe_string(escaped(text));
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = known.iter().position(|term| term.text == text && term.explanation == explanation);
        let place = place.unwrap_or_else(|| {
            known.push(Term::new(text, explanation));
            known.len() - 1
        });
        Value::from_safe_string(format!(
            "<button type=\"button\" class=\"term\" popovertarget=\"term-{place}\" popovertargetaction=\"show\">{}</button>",
            escaped(text)
        ))
    }

    fn all(&self) -> Vec<Term> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The colours of all parts: name, on light paper, on dark paper.
fn inks() -> Vec<(String, &'static str, &'static str)> {
    let own = PARTS.iter().map(|part| (part.name.to_owned(), part.light, part.dark));
    let others = (0..).zip(OTHERS).map(|(number, (light, dark))| (format!("other-{number}"), light, dark));
    own.chain(others).collect()
}

/// A plot for the script.
#[derive(Serialize)]
#[serde(tag = "plot", rename_all = "lowercase")]
enum Plot {
    Chart(Chart),
    Frames {
        #[serde(flatten)]
        frames: Frames,
        inks: Vec<String>,
    },
    Histogram(Histogram),
}

/// A block as the template shows it; what the script draws goes into `drawn`.
fn view(block: &Block, drawn: &mut Vec<Plot>) -> Option<Value> {
    let number = drawn.len();
    let view = match block {
        Block::Note(text) => context! { kind => "note", text },
        Block::Table(table) => context! { kind => "table", ..Value::from(Serde(table.clone())) },
        Block::Bars(bars) => {
            context! { kind => "bars", title => bars.title.clone(), note => bars.note.clone(), rows => rows_of(bars) }
        }
        Block::Picture(picture) => {
            context! {
                kind => "picture",
                title => picture.title.clone(),
                key => Value::from(Serde(picture.key.clone())),
                svg => Value::from_safe_string(picture.svg())
            }
        }
        Block::Chart(chart) if is_constant(chart) => return None,
        Block::Chart(chart) => {
            let chart = rounded(chart);
            let view = context! {
                kind => "chart",
                number,
                terms => Value::from(Serde(chart.terms.clone())),
                unit => chart.unit.clone(),
                curves => legend(&chart),
                words => in_words(&chart),
            };
            drawn.push(Plot::Chart(chart));
            view
        }
        Block::Frames(frames) => {
            let view = frames_view(frames, number);
            let inks = frames.parts.iter().map(|(name, _)| ink(name)).collect();
            drawn.push(Plot::Frames { frames: frames.clone(), inks });
            view
        }
        Block::Histogram(histogram) => {
            let width = histogram.from.get(1).copied().unwrap_or(1.0);
            let rows = histogram.from.iter().zip(&histogram.counts).filter(|(_, count)| **count > 0);
            let rows: Vec<Value> = rows
                .map(|(from, count)| context! { from => figure(*from), to => figure(from + width), count => grouped(*count) })
                .collect();
            drawn.push(Plot::Histogram(histogram.clone()));
            context! { kind => "histogram", number, rows, frames => grouped(histogram.counts.iter().sum()) }
        }
    };
    Some(view)
}

/// The curves of a section that never move, in a line: a chart of them says less than their values.
fn constants(section: &Section) -> Option<Value> {
    let charts = section.blocks.iter().filter_map(|block| match block {
        Block::Chart(chart) if is_constant(chart) => Some(chart),
        _ => None,
    });
    let value = |(curve, term, unit): (&Curve, &Term, &str)| {
        let value = curve.values.iter().flatten().next().copied()?;
        Some(context! { term => Value::from(Serde(term.clone())), value => with_unit(value, unit) })
    };
    let curves = charts
        .flat_map(|chart| chart.curves.iter().zip(&chart.terms).map(|(curve, term)| (curve, term, &chart.unit[..])));
    let values: Vec<Value> = curves.filter_map(value).collect();
    (!values.is_empty()).then(|| context! { kind => "constant", values })
}

fn with_unit(value: f64, unit: &str) -> String {
    format!("{} {unit}", figure(value)).trim_end().to_owned()
}

/// Whether no curve ever moves by more than [`STILL_SHARE`].
fn is_constant(chart: &Chart) -> bool {
    let is_flat = |values: &[Option<f64>]| {
        let known = || values.iter().flatten().copied();
        let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max));
        high - low <= STILL_SHARE * high.abs()
    };
    chart.curves.iter().all(|curve| is_flat(&curve.values))
}

/// Six digits are more than anybody reads, and keep the file small.
fn rounded(chart: &Chart) -> Chart {
    let round = |value: f64| format!("{value:.5e}").parse().unwrap_or(value);
    let mut chart = chart.clone();
    chart.curves.iter_mut().flat_map(|curve| &mut curve.values).flatten().for_each(|value| *value = round(*value));
    chart
}

fn legend(chart: &Chart) -> Vec<Value> {
    let one = chart.curves.len() == 1;
    let entry = |(number, curve): (usize, &Curve)| {
        context! { name => curve.name.clone(), ink => curve.ink.clone(), dash => number % 4, is_alone => one }
    };
    chart.curves.iter().enumerate().map(entry).collect()
}

/// A chart for readers who do not see it.
fn in_words(chart: &Chart) -> String {
    let words = chart.curves.iter().filter_map(|curve| {
        let known: Vec<f64> = curve.values.iter().flatten().copied().collect();
        let low = known.iter().copied().reduce(f64::min)?;
        let high = known.iter().copied().reduce(f64::max)?;
        let mean = figure(known.iter().sum::<f64>() / known.len() as f64);
        let name = if chart.curves.len() > 1 { format!("{}: ", curve.name) } else { String::new() };
        Some(format!("{name}{} to {}, mean {mean}", figure(low), with_unit(high, &chart.unit)))
    });
    words.collect::<Vec<_>>().join("; ")
}

/// The table below the frames: each part's mean, and the longest frame until another one is chosen.
fn frames_view(frames: &Frames, number: usize) -> Value {
    let longest = (0..frames.total.len()).max_by(|&a, &b| frames.total[a].total_cmp(&frames.total[b])).unwrap_or(0);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let total = frames.total.get(longest).copied().unwrap_or(0.0);
    let rows: Vec<Value> = frames
        .parts
        .iter()
        .map(|(name, values)| {
            let value = values.get(longest).copied().unwrap_or(0.0);
            let share = if total > 0.0 { value / total * 100.0 } else { 0.0 };
            context! {
                term => Value::from(Serde(Term::part(name))),
                ink => ink(name),
                mean => figure(mean(values)),
                value => figure(value),
                share => format!("{share:.1}"),
            }
        })
        .collect();
    let missed: u64 = frames.missed.iter().sum();
    let worst = if frames.point == "frame" { "longest frame".to_owned() } else { format!("slowest {}", frames.point) };
    context! {
        kind => "frames",
        number,
        rows,
        longest,
        point => frames.point.clone(),
        at => figure(frames.x.get(longest).copied().unwrap_or(0.0)),
        total => figure(total),
        mean_total => figure(mean(&frames.total)),
        has_missed => !frames.missed.is_empty(),
        missed => grouped(missed),
        words => format!("A frame takes {} ms on average, the {worst} {} ms", figure(mean(&frames.total)), figure(total)),
        worst,
    }
}

fn rows_of(bars: &Bars) -> Vec<Value> {
    let sum = |parts: &[(String, f64)]| parts.iter().map(|(_, value)| value).sum::<f64>();
    let longest = bars.rows.iter().map(|(_, parts)| sum(parts)).fold(0.0, f64::max);
    let share = |value: f64| if longest > 0.0 { value / longest } else { 0.0 };
    let row = |(name, parts): &(String, Vec<(String, f64)>)| {
        let total = with_unit(sum(parts), &bars.unit);
        let mut words = String::new();
        let parts: Vec<Value> = parts
            .iter()
            .map(|(name, value)| {
                let shown = with_unit(*value, &bars.unit);
                let _ = write!(words, "{name} {shown}, ");
                context! {
                    name,
                    ink => ink(name),
                    shown,
                    width => format!("{:.3}", share(*value) * 100.0),
                    has_room => share(*value) >= LABEL_SHARE,
                }
            })
            .collect();
        context! { name, parts, total, words => words.trim_end_matches(", ") }
    };
    bars.rows.iter().map(row).collect()
}
