//! A page in Prometheus' text format, as far as a view of it has to understand it.
//!
//! ```text
//! # TYPE messages_in counter
//! messages_in{connType="CLIENT"} 1000 [time stamp]
//! ```

use std::collections::BTreeMap;

/// Most samples that are kept of a page.
const SAMPLES_MAX: usize = 65_536;

/// The samples of a page, by name.
pub(super) struct Page {
    samples: BTreeMap<String, Vec<Sample>>,
}

struct Sample {
    labels: Vec<(String, String)>,
    value: f64,
}

impl Sample {
    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }
}

impl Page {
    /// Reads a page. Lines that are no samples are passed over.
    ///
    /// # Errors
    /// Not one line is a sample: this is some other page.
    pub(super) fn parse(text: &str) -> Result<Page, String> {
        let mut samples: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for (name, sample) in lines.filter_map(sample).take(SAMPLES_MAX) {
            samples.entry(name.to_owned()).or_default().push(sample);
        }
        if samples.is_empty() { Err("the page holds no metrics".to_owned()) } else { Ok(Page { samples }) }
    }

    /// The sum of all samples of a name.
    pub(super) fn total(&self, name: &str) -> Option<f64> {
        let samples = self.samples.get(name)?;
        Some(samples.iter().map(|sample| sample.value).sum())
    }

    /// The sum of the samples whose label has a value.
    pub(super) fn total_where(&self, name: &str, label: &str, value: &str) -> Option<f64> {
        let samples = self.samples.get(name)?.iter().filter(|sample| sample.label(label) == Some(value));
        samples.map(|sample| sample.value).reduce(|sum, value| sum + value)
    }

    /// The sums of the samples that have the same values of `labels`, by these values, which a space separates.
    pub(super) fn totals_by(&self, name: &str, labels: &[&str]) -> BTreeMap<String, f64> {
        let mut totals = BTreeMap::new();
        for sample in self.samples.get(name).into_iter().flatten() {
            let key: Vec<&str> = labels.iter().filter_map(|label| sample.label(label)).collect();
            *totals.entry(key.join(" ")).or_default() += sample.value;
        }
        totals
    }

    /// Upper bounds of a histogram's buckets, ascending, and what each holds together with all below it.
    pub(super) fn buckets(&self, name: &str) -> Vec<(f64, f64)> {
        let samples = self.samples.get(&format!("{name}_bucket")).into_iter().flatten();
        let bound = |sample: &Sample| sample.label("le")?.parse().ok().filter(|bound: &f64| !bound.is_nan());
        let mut buckets: Vec<(f64, f64)> = samples.filter_map(|sample| Some((bound(sample)?, sample.value))).collect();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        buckets
    }
}

fn sample(line: &str) -> Option<(&str, Sample)> {
    let end = line.find(|letter: char| letter == '{' || letter.is_ascii_whitespace())?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    (!name.is_empty() && value.is_finite()).then_some((name, Sample { labels, value }))
}

/// The labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = quoted(after)?;
        labels.push((name.trim().to_owned(), value));
        rest = after;
    }
}

/// A label's value up to its closing quote, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                escaped => value.push(escaped),
            },
            _ => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_labels_and_values_are_read() {
        let text =
            "# HELP a A.\n# TYPE a counter\na{x=\"1\",y=\"} \\\"\\\\ \",} 2.5 1700000000\na{x=\"2\"} 4\n\nb 7e1\n";
        let page = Page::parse(text).unwrap();
        assert_eq!(page.total("a"), Some(6.5));
        assert_eq!(page.total_where("a", "x", "1"), Some(2.5));
        assert_eq!(page.total_where("a", "y", "} \"\\ "), Some(2.5));
        assert_eq!(page.total_where("a", "x", "3"), None);
        assert_eq!(page.total("b"), Some(70.0));
        assert_eq!(page.total("c"), None);
        assert_eq!(page.totals_by("a", &["x"]), BTreeMap::from([("1".to_owned(), 2.5), ("2".to_owned(), 4.0)]));
    }

    #[test]
    fn buckets_come_in_order() {
        let page = Page::parse("h_bucket{le=\"+Inf\"} 9\nh_bucket{le=\"0.1\"} 3\nh_bucket{le=\"x\"} 5\n").unwrap();
        assert_eq!(page.buckets("h"), [(0.1, 3.0), (f64::INFINITY, 9.0)]);
    }

    #[test]
    fn what_is_no_page_of_metrics_is_refused() {
        let others = ["", "<html>", "ok\n", "a{b=\"c 1\n", "a{b 1\n", "a NaN\n", "{} 1\n", "a{b=\"\\"];
        for other in others {
            assert!(Page::parse(other).is_err(), "{other:?}");
        }
    }
}
