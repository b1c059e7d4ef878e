//! The JSON of a run, read by the table of metrics.

use serde_json::Value;

use crate::metric::{Kind, Metric, metric, of_kind};
use crate::page::{Cell, Chart, Curve, Table, Term, Tile};

/// The figures of a run: values by the paths of metrics.
#[derive(Clone, Copy, Debug)]
pub struct Figures<'a> {
    kind: Kind,
    json: &'a Value,
}

impl<'a> Figures<'a> {
    /// Figures of a run of this kind.
    pub fn new(kind: Kind, json: &'a Value) -> Figures<'a> {
        Figures { kind, json }
    }

    /// The value at a path; `None` if there is nothing.
    pub fn at(&self, path: &str) -> Option<&'a Value> {
        path.split('.').try_fold(self.json, |value, part| match part.parse::<usize>() {
            Ok(index) if value.is_array() => value.get(index),
            _ => value.get(part),
        })
    }

    /// The paths that a path stands for: with a star, one for each name that is there, or itself if there is none.
    pub fn paths(&self, path: &str) -> Vec<String> {
        let Some((start, end)) = path.split_once(".*.") else { return vec![path.to_owned()] };
        let names = self.at(start).and_then(Value::as_object).into_iter().flat_map(|names| names.keys());
        let paths: Vec<String> = names.map(|name| format!("{start}.{name}.{end}")).collect();
        if paths.is_empty() { vec![path.to_owned()] } else { paths }
    }

    /// The number at a path.
    pub fn number(&self, path: &str) -> Option<f64> {
        self.at(path)?.as_f64()
    }

    /// The text at a path; empty if there is none.
    pub fn text(&self, path: &str) -> &'a str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// The list of numbers at a path. A star stands for all elements of a list: `series.*.channels`.
    pub fn list(&self, path: &str) -> Vec<Option<f64>> {
        let (path, key) = path.split_once(".*.").unwrap_or((path, ""));
        let number = |value: &Value| if key.is_empty() { value.as_f64() } else { value.get(key)?.as_f64() };
        let list = self.at(path).and_then(Value::as_array);
        list.map(|list| list.iter().map(number).collect()).unwrap_or_default()
    }

    /// The metric at a path, and its value in words.
    ///
    /// # Panics
    /// The table has no such metric: a defect of the caller.
    pub fn fact(&self, path: &str) -> (Term, String) {
        let metric = self.metric(path);
        (metric.term(), metric.show(self.number(path)))
    }

    /// A table of metrics. A path that ends with a point stands for all metrics whose paths begin so.
    ///
    /// # Panics
    /// The table has no such metric: a defect of the caller.
    pub fn facts(&self, title: &str, paths: &[&str]) -> Table {
        let mut table = Table::new(title, "");
        for metric in paths.iter().flat_map(|path| self.below(path)) {
            table.push([Cell::of(metric.term()), Cell::number(metric.show(self.number(metric.path)))]);
        }
        table
    }

    fn below(&self, path: &str) -> Vec<Metric> {
        let below = of_kind(self.kind).filter(|metric| path.ends_with('.') && metric.path.starts_with(path));
        let below: Vec<Metric> = below.collect();
        if below.is_empty() { vec![self.metric(path)] } else { below }
    }

    /// A figure in large type, with a note below it.
    ///
    /// # Panics
    /// The table has no such metric: a defect of the caller.
    pub fn tile(&self, path: &str, note: String) -> Tile {
        let (metric, value) = (self.metric(path), self.number(path));
        let unit = value.map_or(String::new(), |value| metric.unit_shown(value));
        Tile { term: metric.term(), value: metric.number(value), unit, note, verdict: None }
    }

    /// Curves over time: lists at the paths of metrics, and the list of their times; without one, a value is a second.
    ///
    /// # Panics
    /// The table has no such metric: a defect of the caller.
    pub fn chart(&self, time: &str, curves: &[(&str, &str)]) -> Chart {
        let metrics: Vec<Metric> = curves.iter().map(|(path, _)| self.metric(path)).collect();
        let factor = if metrics[0].unit == "share" { 100.0 } else { 1.0 };
        let of = |(metric, (path, ink)): (&Metric, &(&str, &str))| Curve {
            name: metric.name.to_owned(),
            ink: (*ink).to_owned(),
            values: self.list(path).into_iter().map(|value| Some(value? * factor)).collect(),
        };
        let curves: Vec<Curve> = metrics.iter().zip(curves).map(of).collect();
        let x: Vec<f64> = match time {
            "" => (0..curves[0].values.len()).map(|second| second as f64 + 1.0).collect(),
            time => self.list(time).into_iter().flatten().collect(),
        };
        Chart {
            terms: metrics.iter().map(|metric| metric.term()).collect(),
            unit: if metrics[0].unit == "B" { "B".to_owned() } else { metrics[0].unit_shown(0.0) },
            x,
            curves,
            ..Chart::default()
        }
    }

    fn metric(&self, path: &str) -> Metric {
        metric(self.kind, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_names_a_group_of_metrics_by_what_their_paths_begin_with() {
        let json = serde_json::json!({ "replay": { "ticks": 7 } });
        let table = Figures::new(Kind::Match, &json).facts("", &["replay.", "cpu_cores", "lateness_us."]);
        let rows = table.rows.iter().map(|row| (row[0].term.text.as_str(), row[1].term.text.as_str()));
        let expected =
            [("ticks played again", "7 ticks"), ("server", "–"), ("lateness, median", "–"), ("lateness, p99", "–")];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }
}
