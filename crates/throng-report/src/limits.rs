//! Limits of a run's figures, which its user sets, and the verdict on each.
//!
//! ```toml
//! [[limits]]
//! metric = "server.frame_ms.p99"
//! at_most = 12.0
//!
//! [[limits]]
//! metric = "server.held_hz"
//! at_least = 29.9
//! ```
//!
//! A metric is a path of the table of metrics, so a wrong name is found before the run. Only names of subsystems are not known
//! before. `subsystems.*.breaches` is that figure of all subsystems with a budget, a limit for each. The verdicts are in `limits.json` in the
//! folder of the run, and on top of its page.

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use throng_file::write_whole;

use crate::Figures;
use crate::junit::{Case, Outcome, Suite};
use crate::metric::{Kind, Metric, find, of_kind};
use crate::page::{Cell, Limit, Page, Table, Verdict};
use crate::text::markdown_cell;

/// The file with the verdicts, in the folder of a run.
pub const LIMITS_FILE: &str = "limits.json";
/// The most limits of a run.
pub const LIMITS_MAX: usize = 256;
/// The longest file with verdicts that is read, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// A limit of one figure. It has one bound, or both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricLimit {
    /// Path of a metric: `server.frame_ms.p99`.
    pub metric: String,
    /// The largest value that keeps the limit, in the metric's unit; a share is 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// The smallest value that keeps the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
}

/// Why a limit makes no sense. Each text is one line that says what to do.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The table of metrics has no such row.
    #[error("limit {metric}: a {} run has no such figure{}", kind.name(), near.map_or(String::new(), |near| format!("; is it {near}?")))]
    Unknown {
        /// The metric.
        metric: String,
        /// The kind of run.
        kind: Kind,
        /// The most similar one.
        near: Option<&'static str>,
    },
    /// It has no bound.
    #[error("limit {metric}: it needs at_most, at_least or both")]
    Unbounded {
        /// The metric.
        metric: String,
    },
    /// A bound is no finite number, or no value is within both.
    #[error("limit {metric}: no value is within its bounds")]
    Impossible {
        /// The metric.
        metric: String,
    },
    /// There are too many.
    #[error("{count} limits are more than {LIMITS_MAX}")]
    Many {
        /// So many.
        count: usize,
    },
    /// A limit on the command line is no comparison.
    #[error("{text:?} is no limit: use METRIC<=VALUE or METRIC>=VALUE, as server.frame_ms.p99<=12")]
    Text {
        /// The text.
        text: String,
    },
}

impl LimitError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            LimitError::Unknown { .. } => "unknown",
            LimitError::Unbounded { .. } => "unbounded",
            LimitError::Impossible { .. } => "impossible",
            LimitError::Many { .. } => "many",
            LimitError::Text { .. } => "text",
        }
    }
}

impl FromStr for MetricLimit {
    type Err = LimitError;

    /// `server.frame_ms.p99<=12` or `server.held_hz>=29.9`.
    fn from_str(text: &str) -> Result<MetricLimit, LimitError> {
        let wrong = || LimitError::Text { text: text.to_owned() };
        let (metric, value, is_most) = match (text.split_once("<="), text.split_once(">=")) {
            (Some((metric, value)), None) => (metric, value, true),
            (None, Some((metric, value))) => (metric, value, false),
            _ => return Err(wrong()),
        };
        let value: f64 = value.trim().parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(wrong)?;
        let metric = metric.trim().to_owned();
        let (at_most, at_least) = if is_most { (Some(value), None) } else { (None, Some(value)) };
        Ok(MetricLimit { metric, at_most, at_least })
    }
}

/// Checks limits before the run.
///
/// # Errors
/// One of them makes no sense for this kind of run.
pub fn check_limits(kind: Kind, limits: &[MetricLimit]) -> Result<(), LimitError> {
    if limits.len() > LIMITS_MAX {
        return Err(LimitError::Many { count: limits.len() });
    }
    limits.iter().try_for_each(|limit| limit.check(kind))
}

impl MetricLimit {
    fn check(&self, kind: Kind) -> Result<(), LimitError> {
        let metric = || self.metric.clone();
        if find(kind, &self.metric).is_none() {
            return Err(LimitError::Unknown { metric: metric(), kind, near: near(kind, &self.metric) });
        }
        let most = self.at_most.unwrap_or(f64::MAX);
        let least = self.at_least.unwrap_or(f64::MIN);
        match (self.at_most, self.at_least) {
            (None, None) => Err(LimitError::Unbounded { metric: metric() }),
            // NaN is above nothing.
            _ if least <= most && most.is_finite() && least.is_finite() => Ok(()),
            _ => Err(LimitError::Impossible { metric: metric() }),
        }
    }

    /// `≤ 12 ms`, in the unit that terminals and pages show.
    fn words(&self, metric: Option<&Metric>) -> String {
        let show = |value: f64| {
            let shown = metric.map_or_else(|| crate::figure(value), |metric| metric.show(Some(value)));
            match shown.strip_prefix("0") {
                // A small limit is not 0.
                Some(unit) if value != 0.0 && unit.chars().next().is_none_or(char::is_whitespace) => {
                    let is_share = metric.is_some_and(|metric| metric.unit == "share");
                    format!("{}{unit}", if is_share { value * 100.0 } else { value })
                }
                _ => shown,
            }
        };
        match (self.at_most, self.at_least) {
            (Some(most), None) => format!("≤ {}", show(most)),
            (None, Some(least)) => format!("≥ {}", show(least)),
            (Some(most), Some(least)) => format!("{} to {}", show(least), show(most)),
            (None, None) => String::new(),
        }
    }
}

/// The metric that shares the longest end with a wrong path: people forget what stands before.
fn near(kind: Kind, path: &str) -> Option<&'static str> {
    let last = |path: &str| path.chars().rev().collect::<String>();
    let (wrong, common) = (last(path), |a: &str, b: &str| a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count());
    let best =
        of_kind(kind).map(|metric| (common(&last(metric.path), &wrong), metric.path)).max_by_key(|(count, _)| *count);
    best.filter(|(count, _)| *count >= 4).map(|(_, path)| path)
}

/// A limit with the run's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgedLimit {
    /// The limit.
    #[serde(flatten)]
    pub limit: MetricLimit,
    /// The run's value; `null` if it was not measured.
    pub value: Option<f64>,
    /// Whether the value keeps the limit.
    pub verdict: Verdict,
}

/// The verdicts on the limits of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdicts {
    /// The kind of run.
    pub kind: Kind,
    /// Name of the run, for reports to a build server.
    pub name: String,
    /// Why the figures of the run are not valid; empty if they are.
    pub invalid_reasons: Vec<String>,
    /// The limits.
    pub limits: Vec<JudgedLimit>,
}

impl Verdicts {
    /// Judges the figures of a run, `json`.
    pub fn new(
        kind: Kind,
        (name, invalid_reasons): (&str, &[String]),
        limits: &[MetricLimit],
        json: &Value,
    ) -> Verdicts {
        let figures = Figures::new(kind, json);
        // Without a budget there are no frames over it: that is no kept limit.
        let is_counted = |path: &str| {
            path.strip_suffix(".breaches").is_none_or(|part| figures.number(&format!("{part}.budget_ms")).is_some())
        };
        let mut judged = Vec::new();
        for limit in limits {
            let mut paths = figures.paths(&limit.metric);
            if paths.iter().any(|path| is_counted(path)) {
                paths.retain(|path| is_counted(path));
            }
            for metric in paths {
                let value = figures.number(&metric).filter(|_| is_counted(&metric));
                let keeps = |value: f64| {
                    limit.at_most.is_none_or(|most| value <= most) && limit.at_least.is_none_or(|least| value >= least)
                };
                let verdict = Verdict::of(value.map(keeps));
                judged.push(JudgedLimit { limit: MetricLimit { metric, ..limit.clone() }, value, verdict });
            }
        }
        Verdicts { kind, name: name.to_owned(), invalid_reasons: invalid_reasons.to_vec(), limits: judged }
    }

    /// The verdicts in the folder of a run; `None` without limits.
    ///
    /// # Errors
    /// The file cannot be read, or is none of this program's.
    pub fn read(folder: &Path) -> io::Result<Option<Verdicts>> {
        let path = folder.join(LIMITS_FILE);
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            Ok(file) if file.len() > BYTES_MAX => return Err(io::ErrorKind::FileTooLarge.into()),
            Ok(_) => {}
        }
        Ok(Some(serde_json::from_slice(&fs::read(&path)?)?))
    }

    /// Writes them to the folder of a run.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        write_whole(&folder.join(LIMITS_FILE), serde_json::to_string_pretty(self)?)
    }

    /// Limits that were measured and exceeded.
    pub fn exceeded(&self) -> usize {
        self.count(Verdict::Missed)
    }

    /// Limits of figures that were not measured.
    pub fn unknown(&self) -> usize {
        self.count(Verdict::Unknown)
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.limits.iter().filter(|of| of.verdict == verdict).count()
    }

    /// Puts the limits on top of a page, before those of the project.
    pub fn show_on(&self, page: &mut Page) {
        let rows = self.limits.iter().map(|of| {
            let metric = find(self.kind, &of.limit.metric);
            Limit {
                term: metric.map_or_else(|| of.limit.metric[..].into(), |metric| metric.term_at(&of.limit.metric)),
                limit: of.limit.words(metric.as_ref()),
                value: of.value_words(metric.as_ref()),
                verdict: of.verdict,
            }
        });
        let count = self.limits.len();
        page.limits.splice(0..0, rows);
        let own = match count {
            1 => "The first limit is one that was set for this run.".to_owned(),
            count => format!("The first {count} limits are those that were set for this run."),
        };
        page.limits_note = format!("{own} {}", page.limits_note).trim_end().to_owned();
    }

    /// The verdicts for a terminal: a line each.
    pub fn table(&self) -> String {
        self.as_table("").text(" limit  ")
    }

    /// The verdicts as a table in Markdown, for a pull request or the summary of a build.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("**{}: {}**\n", markdown_cell(&self.name), self.words());
        for reason in &self.invalid_reasons {
            let _ = write!(text, "\n- {}", markdown_cell(reason));
        }
        text += if self.invalid_reasons.is_empty() { "" } else { "\n" };
        if !self.limits.is_empty() {
            text += &self.as_table("figure | #limit | #measured | verdict").markdown();
        }
        text
    }

    /// The verdicts as JUnit XML, for a build server: a test case for each limit, one for the run's validity, and further ones.
    pub fn to_junit(&self, seconds: f64, further: impl IntoIterator<Item = Case>) -> String {
        let class = format!("{} {}", self.kind.name(), self.name);
        let case = |name: &str, outcome| Case { class: class.clone(), name: name.to_owned(), seconds: 0.0, outcome };
        let mut suite = Suite::new(&format!("throng {class}"), seconds);
        suite.push(case(
            "valid",
            match self.invalid_reasons.is_empty() {
                true => Outcome::Passed,
                false => Outcome::Error(self.invalid_reasons.join("; ")),
            },
        ));
        for (of, [_, limit, value, words]) in self.limits.iter().zip(self.rows()) {
            let words = format!("{value}, limit {limit}: {words}");
            suite.push(case(
                &of.limit.metric,
                match of.verdict {
                    Verdict::Kept => Outcome::Passed,
                    Verdict::Missed => Outcome::Failed(words),
                    Verdict::Unknown => Outcome::Error(words),
                },
            ));
        }
        further.into_iter().for_each(|case| suite.push(case));
        suite.into_xml()
    }

    /// All in a few words.
    pub fn words(&self) -> String {
        let (count, exceeded, unknown) = (self.limits.len(), self.exceeded(), self.unknown());
        match (self.invalid_reasons.is_empty(), exceeded, unknown) {
            (false, _, _) => "not valid, so its figures say nothing about the limits".to_owned(),
            (true, 0, 0) if count == 0 => "valid; no limits were set".to_owned(),
            (true, 0, 0) => format!("all {count} limits are kept"),
            (true, 0, unknown) => format!("{unknown} of {count} limits: not measured"),
            (true, exceeded, 0) => format!("{exceeded} of {count} limits exceeded"),
            (true, exceeded, unknown) => format!("{exceeded} of {count} limits exceeded, {unknown} not measured"),
        }
    }

    /// Figure, limit, value and verdict of each.
    fn rows(&self) -> impl Iterator<Item = [String; 4]> {
        self.limits.iter().map(|of| {
            let metric = find(self.kind, &of.limit.metric);
            let words = match of.verdict {
                Verdict::Kept => "kept",
                Verdict::Missed => "exceeded",
                Verdict::Unknown => "not measured",
            };
            let (limit, value) = (of.limit.words(metric.as_ref()), of.value_words(metric.as_ref()));
            [of.limit.metric.clone(), limit, value, words.to_owned()]
        })
    }

    fn as_table(&self, head: &str) -> Table {
        let mut table = Table::new("", head);
        for [name, limit, value, words] in self.rows() {
            table.push([name.into(), Cell::number(limit), Cell::number(value), words.into()]);
        }
        table
    }
}

impl JudgedLimit {
    fn value_words(&self, metric: Option<&Metric>) -> String {
        match metric {
            Some(metric) => metric.show(self.value),
            None => crate::optional(self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn limit(text: &str) -> MetricLimit {
        text.parse().unwrap()
    }

    fn verdicts(limits: &[&str], reasons: &[&str]) -> Verdicts {
        let limits: Vec<MetricLimit> = limits.iter().map(|text| limit(text)).collect();
        let reasons: Vec<String> = reasons.iter().map(|reason| (*reason).to_owned()).collect();
        let json = json!({ "server": { "frame_ms": { "p99": 12.5 }, "held_hz": 30.0, "world_speed": null } });
        Verdicts::new(Kind::Crowd, ("a|b <c>", &reasons), &limits, &json)
    }

    #[test]
    fn a_small_limit_is_not_shown_as_none() {
        let words = |text: &str| {
            let limit = limit(text);
            let metric = of_kind(Kind::Crowd).find(|metric| metric.path == limit.metric);
            limit.words(metric.as_ref())
        };
        assert_eq!(words("server.frame_ms.p99<=0.0001"), "≤ 0.0001 ms");
        assert_eq!(words("server.frame_ms.p99<=0"), "≤ 0 ms");
        assert_eq!(words("server.cpu_cores<=1"), "≤ 1 core");
        assert_eq!(words("server.cpu_cores<=0.5"), "≤ 0.5 cores");
    }

    #[test]
    fn a_value_at_its_bound_keeps_it_and_one_beyond_does_not() {
        let of = |text: &str| verdicts(&[text], &[]).limits[0].verdict;
        assert_eq!(of("server.frame_ms.p99<=12.5"), Verdict::Kept);
        assert_eq!(of("server.frame_ms.p99<=12.49"), Verdict::Missed);
        assert_eq!(of("server.held_hz>=30"), Verdict::Kept);
        assert_eq!(of("server.held_hz >= 30.1"), Verdict::Missed);
        assert_eq!(of("server.world_speed>=0.99"), Verdict::Unknown);
        let both = MetricLimit { at_most: Some(13.0), ..limit("server.frame_ms.p99>=12.6") };
        let json = json!({ "server": { "frame_ms": { "p99": 12.5 } } });
        let judged = Verdicts::new(Kind::Crowd, ("crowd", &[]), &[both], &json);
        assert_eq!(judged.limits[0].verdict, Verdict::Missed);
    }

    #[test]
    fn limits_that_make_no_sense_are_refused_before_the_run() {
        let tag = |limit: MetricLimit| check_limits(Kind::Crowd, &[limit]).map_err(|error| error.tag());
        assert_eq!(tag(limit("server.frame_ms.p99<=1")), Ok(()));
        assert_eq!(tag(limit("frame_ms.p99<=1")), Err("unknown"));
        let error = check_limits(Kind::Crowd, &[limit("frame_ms.p99<=1")]).unwrap_err().to_string();
        assert!(error.contains("is it server.frame_ms.p99?"), "{error}");
        let bare = MetricLimit { at_most: None, ..limit("server.held_hz<=1") };
        assert_eq!(tag(bare), Err("unbounded"));
        let crossed = MetricLimit { at_least: Some(2.0), ..limit("server.held_hz<=1") };
        assert_eq!(tag(crossed), Err("impossible"));
        let nan = MetricLimit { at_most: Some(f64::NAN), ..limit("server.held_hz<=1") };
        assert_eq!(tag(nan), Err("impossible"));
        let many = vec![limit("server.held_hz<=1"); LIMITS_MAX + 1];
        assert_eq!(check_limits(Kind::Crowd, &many).unwrap_err().tag(), "many");
        for wrong in ["server.held_hz", "server.held_hz<=", "server.held_hz<=inf", "a<=1>=2"] {
            assert_eq!(wrong.parse::<MetricLimit>().unwrap_err().tag(), "text", "{wrong}");
        }
    }

    #[test]
    fn a_star_stands_for_all_subsystems_and_each_has_a_verdict_of_its_own() {
        let all = limit("subsystems.*.breaches<=0");
        assert_eq!(check_limits(Kind::Match, std::slice::from_ref(&all)), Ok(()));
        assert_eq!(check_limits(Kind::Match, &[limit("subsystems.physics.p99_ms<=0.5")]), Ok(()));
        for wrong in ["subsystems.physics.p98_ms<=1", "subsystems.physics<=1", "subsystems.physics.p99_ms.more<=1"] {
            assert!(check_limits(Kind::Match, &[limit(wrong)]).is_err(), "{wrong}");
        }
        let json = json!({ "subsystems": {
            "ai": { "breaches": 0, "budget_ms": 0.5 }, "physics": { "breaches": 7, "budget_ms": 0.5 },
            "other": { "breaches": 0, "budget_ms": null },
        } });
        let judged = Verdicts::new(Kind::Match, ("match", &[]), std::slice::from_ref(&all), &json);
        let verdicts: Vec<(&str, Verdict)> =
            judged.limits.iter().map(|of| (&of.limit.metric[..], of.verdict)).collect();
        assert_eq!(
            verdicts,
            [("subsystems.ai.breaches", Verdict::Kept), ("subsystems.physics.breaches", Verdict::Missed)]
        );
        let other = Verdicts::new(Kind::Match, ("match", &[]), &[limit("subsystems.other.breaches<=0")], &json);
        assert_eq!(other.unknown(), 1, "without a budget, nothing is known");
        let mut page = Page::new(Kind::Match, "match");
        judged.show_on(&mut page);
        assert_eq!(page.limits[1].term.text, "physics: frames over the subsystem's budget");
        assert_eq!(Verdicts::new(Kind::Match, ("match", &[]), &[all], &json!({})).unknown(), 1);
    }

    #[test]
    fn the_limits_of_the_documents_are_limits() {
        let text = include_str!("../../../docs/lab.md");
        let mut checked = 0;
        for line in text.lines() {
            let kind = if line.contains("match") { Kind::Match } else { Kind::Crowd };
            let on_command_line = line.split("--limit '").skip(1).filter_map(|rest| rest.split('\'').next());
            for written in on_command_line {
                assert_eq!(check_limits(kind, &[limit(written)]), Ok(()), "{written}");
                checked += 1;
            }
            if let Some(path) = line.strip_prefix("metric = \"").and_then(|rest| rest.strip_suffix('"')) {
                assert!(find(kind, path).is_some(), "{path}");
                checked += 1;
            }
        }
        assert!(checked >= 5, "{checked}");
    }

    #[test]
    fn a_build_server_is_told_of_each_limit_and_of_a_run_that_is_not_valid() {
        let all = ["server.frame_ms.p99<=12", "server.held_hz>=30", "server.world_speed>=0.99"];
        let junit = verdicts(&all, &["packets \"lost\""]).to_junit(7.0, []);
        assert!(
            junit.contains("tests=\"4\"") && junit.contains("failures=\"1\"") && junit.contains("errors=\"2\""),
            "{junit}"
        );
        assert!(junit.contains("12.5 ms, limit ≤ 12 ms: exceeded") && !junit.contains("<c>"), "{junit}");
        let text = verdicts(&all, &[]).to_markdown();
        assert!(text.starts_with("**a\\|b <c>: 1 of 3 limits exceeded, 1 not measured**"), "{text}");
        assert!(text.contains("| server.held_hz | ≥ 30 Hz | 30 Hz | kept |"), "{text}");
        assert_eq!(verdicts(&all[1..2], &[]).words(), "all 1 limits are kept");
        let case = |name: &str, outcome| Case { class: "c".to_owned(), name: name.to_owned(), seconds: 1.0, outcome };
        let further = [case("one", Outcome::Skipped("open".to_owned())), case("two", Outcome::Passed)];
        let none = verdicts(&[], &[]);
        assert!(none.to_junit(7.0, further).contains("tests=\"3\" skipped=\"1\" failures=\"0\" errors=\"0\""));
        assert_eq!(none.to_markdown(), "**a\\|b <c>: valid; no limits were set**\n");
    }

    #[test]
    fn verdicts_are_in_the_folder_of_the_run_and_on_top_of_its_page() {
        let folder = std::env::temp_dir().join(format!("throng-limits-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(Verdicts::read(&folder).unwrap(), None);
        let judged = verdicts(&["server.frame_ms.p99<=12"], &[]);
        judged.write(&folder).unwrap();
        assert_eq!(Verdicts::read(&folder).unwrap().as_ref(), Some(&judged));
        fs::write(folder.join(LIMITS_FILE), "{").unwrap();
        assert!(Verdicts::read(&folder).is_err());
        fs::remove_dir_all(&folder).unwrap();
        let mut page = Page::new(Kind::Crowd, "crowd");
        judged.show_on(&mut page);
        assert!(page.missed() == 1 && page.limits[0].value == "12.5 ms", "{:?}", page.limits);
        assert!(judged.table().contains("server.frame_ms.p99  ≤ 12 ms  12.5 ms  exceeded"), "{}", judged.table());
    }
}
