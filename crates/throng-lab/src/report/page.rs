//! The HTML page. Everything in words and tables is made here, so that it can be read without scripts and on paper; the
//! curves are drawn by uPlot from the JSON in the page.

use std::collections::HashMap;

use minijinja::value::Serde;
use minijinja::{Environment, Value, context};

use crate::scenario::{Overrides, Scenario};
use crate::summary::{Band, Bytes, RunSummary, Split, Spread};
use crate::terminal::{bytes, figure, grouped, optional};

const TEMPLATE: &str = include_str!("../../assets/report.html.jinja");
const STYLE: &str = include_str!("../../assets/report.css");
const SCRIPT: &str = include_str!("../../assets/report.js");
const UPLOT_STYLE: &str = include_str!("../../assets/uplot/uPlot.min.css");
const UPLOT_SCRIPT: &str = include_str!("../../assets/uplot/uPlot.iife.min.js");
const UPLOT_LICENCE: &str = include_str!("../../assets/uplot/LICENSE");

/// The page for a summary.
///
/// # Errors
/// If the template does not fit the summary: a defect of this program.
pub fn render(summary: &RunSummary) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.add_filter("figure", |value: Option<f64>| optional(value));
    environment.add_filter("exact", |value: f64| if value < 1e3 { value.to_string() } else { figure(value) });
    environment.add_filter("count", |value: Option<f64>| value.map_or("–".to_owned(), |value| grouped(value as u64)));
    environment.add_filter("bytes", |value: f64| bytes(value));
    environment.add_filter("percent", |value: Option<f64>| {
        value.map_or("–".to_owned(), |value| format!("{} %", figure(value * 100.0)))
    });
    environment.add_template("report.html", TEMPLATE)?;
    environment.get_template("report.html")?.render(context! {
        run => Value::from(Serde(summary)),
        frame_bars => frame_bars(summary),
        subsystems => summary.server.us_per_connection.parts().map(|(part, _)| part.built_in_name()).collect::<Vec<_>>(),
        missed_targets => summary.missed_targets(),
        connection_bar => connection_bar(&summary.server.us_per_connection),
        byte_bars => byte_bars(summary),
        age_bars => band_bars(summary, "ms", |band| band.age_ms),
        error_bars => band_bars(summary, "m", |band| band.position_error_m),
        published => published(summary),
        origins => Value::from(Serde(origins(summary))),
        settings => settings(&summary.environment.settings),
        changes => changes(&summary.environment.settings),
        outgoing_us => summary.server.us_per_connection.outgoing(),
        style => STYLE,
        script => SCRIPT,
        uplot_style => UPLOT_STYLE,
        uplot_script => UPLOT_SCRIPT,
        uplot_licence => UPLOT_LICENCE,
        json => for_script(&summary.to_json()),
    })
}

/// JSON that cannot end the script element it stands in: `<` occurs in strings only, where an escape means the same.
fn for_script(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// A horizontal bar of parts.
fn bar(label: &str, unit: &str, parts: &[(&str, f64)], total: f64, scale: f64) -> Value {
    let share = |value: f64| if scale > 0.0 { value / scale * 100.0 } else { 0.0 };
    let parts: Vec<Value> = parts
        .iter()
        .map(|&(name, value)| context! { name, value => figure(value), width => format!("{:.3}", share(value)) })
        .collect();
    context! { label, unit, parts, total => figure(total) }
}

fn named(split: &Split) -> Vec<(&'static str, f64)> {
    split.parts().map(|(subsystem, part)| (subsystem.built_in_name(), part)).collect()
}

/// The frames at some percentiles, all on the scale of the longest.
fn frame_bars(summary: &RunSummary) -> Vec<Value> {
    let frames = &summary.server.frames_at;
    let longest = frames.iter().map(|frame| frame.ms.total).fold(0.0, f64::max);
    frames.iter().map(|frame| bar(&frame.percentile, "ms", &named(&frame.ms), frame.ms.total, longest)).collect()
}

fn connection_bar(split: &Split) -> Value {
    bar("connection", "µs", &named(split), split.total, split.total)
}

fn byte_bars(summary: &RunSummary) -> Vec<Value> {
    let parts = |bytes: &Bytes| {
        [("object", bytes.object), ("header", bytes.header), ("resend", bytes.resend), ("control", bytes.control)]
    };
    let client = &summary.client;
    let (second, update) = (client.bytes_per_s, client.bytes_per_object_update);
    vec![
        bar("per client and second", "B", &parts(&second), second.total, second.total),
        bar("per object update", "B", &parts(&update), update.total, update.total),
    ]
}

/// One bar per distance band: to the median, and on to the 99th percentile.
fn band_bars(summary: &RunSummary, unit: &str, spread: impl Fn(&Band) -> Spread) -> Vec<Value> {
    let neighbours = &summary.neighbours;
    let bands = [("0 to 10 m", neighbours.near), ("10 to 50 m", neighbours.middle), ("beyond", neighbours.far)];
    let spreads = bands.map(|(label, band)| (label, spread(&band)));
    let longest = spreads.iter().filter_map(|(_, spread)| spread.p99).fold(0.0, f64::max);
    let bars = spreads.iter().filter_map(|&(label, Spread { p50, p99 })| {
        let (p50, p99) = (p50?, p99?);
        Some(bar(label, unit, &[("p50", p50), ("p99", (p99 - p50).max(0.0))], p99, longest))
    });
    bars.collect()
}

/// Where the published figures come from, each once.
fn origins(summary: &RunSummary) -> Vec<&str> {
    let mut origins: Vec<&str> = Vec::new();
    for row in &summary.published {
        if !origins.contains(&row.origin.as_str()) {
            origins.push(&row.origin);
        }
    }
    origins
}

/// The published figures, each with the number of its origin, from 1.
fn published(summary: &RunSummary) -> Vec<Value> {
    let origins = origins(summary);
    let number = |origin: &str| origins.iter().position(|known| *known == origin).map(|index| index + 1);
    let rows = summary.published.iter();
    rows.map(|row| context! { number => number(&row.origin), ..Value::from(Serde(row)) }).collect()
}

/// The effective settings as key and value, by key.
fn settings(scenario: &Scenario) -> Vec<(String, String)> {
    let text = toml::to_string(scenario).unwrap_or_default();
    let table: toml::Table = text.parse().unwrap_or_default();
    table.into_iter().map(|(key, value)| (key, value.to_string())).collect()
}

/// The settings that differ from those of the shipped scenario of that name: key, its value, and the run's.
fn changes(played: &Scenario) -> Vec<(String, String, String)> {
    let Ok(shipped) = Scenario::resolve(&played.name, &Overrides::default()) else { return Vec::new() };
    let shipped: HashMap<String, String> = settings(&shipped).into_iter().collect();
    let changed = settings(played).into_iter().filter_map(|(key, value)| {
        let of_scenario = shipped.get(&key).map_or("nothing", String::as_str);
        (of_scenario != value).then(|| (key, of_scenario.to_owned(), value))
    });
    changed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_other_settings_says_so_below_its_name() {
        let lead = |overrides: Overrides| {
            let mut run = RunSummary::example();
            run.environment.settings = Scenario::resolve("crowd", &overrides).unwrap();
            let page = render(&run).unwrap();
            let lead = page.split("<p class=\"lead\">").nth(1).unwrap().split("</p>").next().unwrap();
            lead.to_owned()
        };
        assert!(!lead(Overrides::default()).contains("instead of"));
        let changed = lead(Overrides { players: Some(300), ..Overrides::default() });
        assert!(changed.ends_with("<code>players</code> 300 instead of 1000."), "{changed}");
    }

    #[test]
    fn the_page_loads_nothing_from_anywhere() {
        let page = render(&RunSummary::example()).unwrap();
        let own = page.replace(UPLOT_SCRIPT, "").replace("http://www.w3.org/2000/svg", "");
        for sign in ["http://", "https://", " src=", "@import", "url(", "<link"] {
            assert!(!own.contains(sign), "the page contains {sign}");
        }
        assert!(page.contains("Leon Sorokin"), "uPlot's licence travels with it");
    }

    #[test]
    fn text_from_outside_cannot_become_markup() {
        let mut run = RunSummary::example();
        let attack = "</script><script>alert(1)</script><!--";
        run.environment.cpu = attack.to_owned();
        run.environment.command_line = vec![attack.to_owned()];
        run.environment.settings.description = attack.to_owned();
        run.invalid_reasons = vec![attack.to_owned()];
        run.revision = attack.to_owned();
        let clean = render(&RunSummary::example()).unwrap();
        let page = render(&run).unwrap();
        assert_eq!(page.matches("<script").count(), clean.matches("<script").count());
        assert_eq!(page.matches("</script").count(), clean.matches("</script").count());
        assert!(!page.contains("<!--"));
    }

    #[test]
    fn the_json_in_the_page_is_the_summary() {
        let mut run = RunSummary::example();
        run.environment.cpu = "a <b> & \"c\"".to_owned();
        let page = render(&run).unwrap();
        let (_, rest) = page.split_once("<script type=\"application/json\" id=\"summary\">").unwrap();
        let (json, _) = rest.split_once("</script>").unwrap();
        assert_eq!(RunSummary::from_json(json).unwrap().to_json(), run.to_json());
    }

    #[test]
    fn a_run_without_measurements_still_makes_a_page() {
        let mut run = RunSummary::example();
        run.server.frames_at.clear();
        run.server.us_per_connection = Split::default();
        run.client = crate::summary::Client::default();
        run.neighbours = crate::summary::Neighbours::default();
        run.floor = crate::summary::Floor::default();
        run.series = crate::summary::Series::default();
        run.conclude();
        let page = render(&run).unwrap();
        assert!(!page.contains("NaN") || UPLOT_SCRIPT.contains("NaN"));
        assert!(page.contains("–"));
    }
}
