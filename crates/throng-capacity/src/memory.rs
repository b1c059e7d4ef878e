//! The memory of this process and of all that it has started, sampled while a load is held.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_judge::{Drift, Estimate, Point, Verdict};
use throng_report::LineFile;

/// The file with a line for each sample, written as they come.
pub const MEMORY_FILE: &str = "memory.jsonl";
/// Samples are taken this often at the most.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// And so many are taken in all, unless that is more often.
const SAMPLES: u32 = 1_000;
/// The sampler looks so often whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Processes of at most so many names are judged. All are in the file.
const NAMES_MAX: usize = 64;
const HOUR_S: f64 = 3_600.0;
const DAY_S: f64 = 24.0 * HOUR_S;

/// A line of the file.
#[derive(Serialize)]
struct Sample<'a> {
    time_s: f64,
    bytes: &'a BTreeMap<String, u64>,
}

/// The memory of processes of one name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryFigures {
    /// Program and subcommand. Processes of one name are added up.
    pub name: String,
    /// Samples of the whole time.
    pub samples: u32,
    /// Resident memory in the newest samples.
    pub bytes: f64,
    /// Growth by hour in the first half of the samples.
    pub first_half_bytes_per_hour: Option<f64>,
    /// Growth by hour in the second half, which is judged.
    pub bytes_per_hour: Option<f64>,
    /// It is not below this, with 95 % probability; `null` if nothing is known.
    pub low: Option<f64>,
    /// It is not above this, with 95 % probability; `null` if nothing is known.
    pub high: Option<f64>,
    /// Memory after 24 more hours, if it grows as in the second half. Not measured.
    pub forecast_bytes: Option<f64>,
    /// `accepted`, `rejected` or `undecided`.
    pub verdict: String,
}

/// The samples, judged.
#[derive(Default)]
pub(super) struct Watched {
    pub(super) memory: Vec<MemoryFigures>,
    /// Why the file does not have all samples.
    pub(super) missing: Option<String>,
}

/// Samples while `hold` runs, into a file in `folder`, and judges: growth in 24 hours is at most this share of the memory. If
/// the file cannot be written any more, sampling goes on.
pub(super) fn watch<T>(
    folder: &Path,
    length: Duration,
    growth_max: f64,
    hold: impl FnOnce() -> T,
) -> Result<(T, Watched)> {
    let mut file = LineFile::create(folder, MEMORY_FILE)?;
    let interval = (length / SAMPLES).max(INTERVAL_MIN);
    let (is_over, series) = (AtomicBool::new(false), Mutex::new(Series::new()));
    let held = std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        scope.spawn(|| sample(&mut file, (interval, length), &is_over, &series));
        hold()
    });
    let series = series.into_inner().unwrap_or_default();
    // This process is in all samples. Helpers that were there for a moment say nothing about the memory of a load.
    let samples = series.values().map(Vec::len).max().unwrap_or(0);
    let lasting = series.into_iter().filter(|(_, points)| 2 * points.len() >= samples);
    let memory = lasting.map(|(name, points)| figures(name, &points, growth_max)).collect();
    Ok((held, Watched { memory, missing: file.missing() }))
}

/// Ends the sampler, also when the hold panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) type Series = BTreeMap<String, Vec<Point>>;

/// Samples until it is over.
pub(super) fn sample(
    file: &mut LineFile,
    (interval, length): (Duration, Duration),
    is_over: &AtomicBool,
    series: &Mutex<Series>,
) {
    let began = Instant::now();
    for number in 1u32.. {
        // In the middle of each interval: at the end of the last one, the load's processes end.
        let is_over = || is_over.load(Ordering::Relaxed);
        while began.elapsed() + interval / 2 < interval.saturating_mul(number) && !is_over() {
            std::thread::sleep(LOOK.min(interval));
        }
        if is_over() {
            return;
        }
        let (time_s, bytes) = (began.elapsed().as_secs_f64(), resident());
        file.push(&Sample { time_s, bytes: &bytes });
        // A load that is slow to end is in the file. Its growth is judged while it was held.
        if began.elapsed() > length {
            continue;
        }
        let Ok(mut series) = series.lock() else { return };
        for (name, value) in bytes {
            // Helpers that are there for a moment may have a name of their own each.
            if series.len() == NAMES_MAX && !series.contains_key(&name) {
                continue;
            }
            series.entry(name).or_default().push(Point { load: time_s, value: value as f64 });
        }
    }
}

fn figures(name: String, points: &[Point], growth_max: f64) -> MemoryFigures {
    let (first, second) = points.split_at(points.len() / 2);
    let hourly = |drift: &Drift| drift.slope.value * HOUR_S;
    let drift = Drift::fit(second);
    let (verdict, bytes) = match &drift {
        Some(drift) => (judge(drift, growth_max), drift.level),
        None => (Verdict::Undecided, points.last().map_or(0.0, |point| point.value)),
    };
    let bound =
        |of: fn(&Estimate) -> f64| drift.map(|drift| of(&drift.slope) * HOUR_S).filter(|bound| bound.is_finite());
    MemoryFigures {
        name,
        samples: points.len() as u32,
        bytes,
        first_half_bytes_per_hour: Drift::fit(first).as_ref().map(hourly),
        bytes_per_hour: drift.as_ref().map(hourly),
        low: bound(|slope| slope.low),
        high: bound(|slope| slope.high),
        forecast_bytes: drift.map(|drift| drift.forecast(DAY_S).value.max(0.0)),
        verdict: verdict.name().to_owned(),
    }
}

fn judge(drift: &Drift, growth_max: f64) -> Verdict {
    let limit = drift.level * growth_max;
    match drift.forecast(DAY_S) {
        forecast if forecast.high - drift.level <= limit => Verdict::Accepted,
        forecast if forecast.low - drift.level > limit => Verdict::Rejected,
        _ => Verdict::Undecided,
    }
}

/// Resident bytes of this process and its descendants, by name.
fn resident() -> BTreeMap<String, u64> {
    let mut parents: Vec<(u32, u32)> = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        parents.extend(parent(pid).map(|parent| (pid, parent)));
    }
    let mut family = vec![std::process::id()];
    let mut next = 0;
    while let Some(&of) = family.get(next) {
        family.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
        next += 1;
    }
    let mut bytes = BTreeMap::new();
    for pid in family {
        // A process may have ended meanwhile.
        let Some((name, resident)) = name(pid).zip(throng_machine::rss_bytes_of(&pid.to_string())) else {
            continue;
        };
        *bytes.entry(name).or_insert(0) += resident;
    }
    bytes
}

/// The process that has started this one. The name in brackets may have spaces and brackets of its own.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Program and subcommand.
fn name(pid: u32) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    let program = words.next().filter(|program| !program.is_empty())?;
    let program = Path::new(&*program).file_name()?.to_string_lossy().into_owned();
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    Some(match words.next().filter(|word| is_word(word) && !word.starts_with('-')) {
        Some(subcommand) => format!("{program} {subcommand}"),
        None => program,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(value: impl Fn(f64) -> f64) -> Vec<Point> {
        (0..200).map(|number| Point { load: f64::from(number) * 30.0, value: value(f64::from(number)) }).collect()
    }

    #[test]
    fn growth_of_the_second_half_is_judged_by_its_forecast() {
        let verdict = |points: &[Point]| figures("server".to_owned(), points, 0.1);
        let flat = verdict(&points(|_| 5e7));
        assert_eq!(
            (flat.verdict.as_str(), flat.bytes_per_hour, flat.forecast_bytes),
            ("accepted", Some(0.0), Some(5e7))
        );
        // It has started, and then stands still.
        let started = verdict(&points(|number| 5e7 - 1e7 * (-number / 10.0).exp()));
        assert!(started.verdict == "accepted" && started.first_half_bytes_per_hour > Some(1e6), "{started:?}");
        // 2.5 kB/s are 216 MB a day.
        let grows = verdict(&points(|number| 5e7 + 2_500.0 * 30.0 * number));
        assert_eq!(grows.verdict, "rejected");
        assert!(grows.bytes_per_hour.is_some_and(|growth| (growth - 9e6).abs() < 1.0), "{grows:?}");
        let hourly = [grows.bytes_per_hour, grows.low, grows.high];
        assert!(hourly.iter().flatten().all(|bytes| (bytes / 9e6 - 1.0).abs() < 1e-3), "{grows:?}");
        let short = verdict(&points(|_| 5e7)[..10]);
        assert!(short.verdict == "undecided" && short.bytes_per_hour.is_none(), "{short:?}");
    }

    /// A load that gets smaller in the last half interval, or ends later than it should, has not done so while it was held.
    #[test]
    fn samples_are_of_the_time_in_which_the_load_is_held() {
        let folder = tempfile::tempdir().expect("there is a temporary folder");
        let length = Duration::from_secs(3);
        let hold = || std::thread::sleep(length + Duration::from_millis(1_700));
        let (_, watched) = watch(folder.path(), length, 0.1, hold).expect("it can be written");
        assert!(watched.memory.iter().all(|of| of.samples <= 3), "{:?}", watched.memory);
        let lines = fs::read_to_string(folder.path().join(MEMORY_FILE)).expect("samples");
        let times: Vec<f64> = lines
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).expect("JSON")["time_s"].as_f64().expect("a time")
            })
            .collect();
        assert!(
            times.len() >= 4 && times.iter().zip(0u32..).all(|(&time, number)| time >= f64::from(number) + 0.5),
            "{times:?}"
        );
    }

    #[test]
    fn this_process_and_its_children_are_seen() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("it starts");
        let until = Instant::now() + Duration::from_secs(20);
        while !resident().contains_key("sleep") {
            assert!(Instant::now() < until, "{:?}", resident());
            std::thread::sleep(LOOK);
        }
        assert!(resident().values().all(|&bytes| bytes > 0) && resident().len() >= 2, "{:?}", resident());
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }
}
