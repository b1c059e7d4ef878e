//! How a frame grows with the number of matches on a host, and what it grows by.
//!
//! ```text
//!  steps of a density ----> curve: base + slope x matches + bend x matches²  ----> forecast of the largest from the smaller ones
//!                     '---> mean frame of the smallest and of the largest:
//!                             not running   another thread had the processor, or another virtual machine   the scheduler's share
//!                             running       longer for the same work: caches, and a slower processor       the rest
//! ```
//!
//! Caches and a slower processor are told apart by counters of the processor alone.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_judge::{Curve, Point, median};
use throng_report::figure;

use crate::summary::Step;

/// The counters of the processor, if the kernel has them.
const COUNTERS: &str = "/sys/bus/event_source/devices/cpu";
/// Says which users may open them.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// A smaller growth of the mean frame, as a share of it, is no growth whose shares mean anything.
const GROWTH_MIN: f64 = 0.02;
/// A line needs two steps, and one more to be compared with its forecast.
const STEPS_MIN: usize = 3;

/// How the mean frame grows: `base_ms + slope_ms × matches + bend_ms × matches²`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Growth {
    /// The mean frame without others, by the curve.
    pub base_ms: f64,
    /// Growth for each match.
    pub slope_ms: f64,
    /// Growth of the growth; 0 of fewer than four steps.
    pub bend_ms: f64,
    /// The largest distance of a step from the curve, as a share of its mean frame.
    pub largest_error: f64,
    /// The mean frame of the largest step, as the smaller ones forecast it; `null` of fewer than three steps.
    pub forecast_ms: Option<f64>,
    /// The same, measured.
    pub measured_ms: f64,
    /// Part of the growth from the smallest to the largest step in which threads did not run; `null` if the frame did not grow.
    pub scheduler_share: Option<f64>,
    /// The rest of the growth: the same work took longer, by caches and by the processor together.
    pub running_share: Option<f64>,
    /// Why caches and processor are not told apart.
    pub counters: String,
}

/// The growth of the steps, smallest first; `None` of fewer than two.
pub(crate) fn of(steps: &[Step], root: &Path) -> Option<Growth> {
    let (points, waits) = points(steps);
    let curve = Curve::fit(&points)?;
    let (last, before) = points.split_last()?;
    let forecast = (points.len() >= STEPS_MIN).then(|| Curve::fit(before)).flatten().map(|of| of.forecast(last.load));
    let small = points.first()?.value;
    let grown = last.value - small;
    let waiting = (waits.last()? - waits.first()?).clamp(0.0, grown.max(0.0));
    let has_grown = grown > GROWTH_MIN * small;
    Some(Growth {
        base_ms: curve.base,
        slope_ms: curve.slope,
        bend_ms: curve.bend,
        largest_error: curve.largest_error,
        forecast_ms: forecast,
        measured_ms: last.value,
        scheduler_share: has_grown.then(|| waiting / grown),
        running_share: has_grown.then(|| 1.0 - waiting / grown),
        counters: counters(root),
    })
}

/// The mean frame of each number of matches, and the part of it in which threads did not run: medians of its valid steps.
fn points(steps: &[Step]) -> (Vec<Point>, Vec<f64>) {
    let valid: Vec<&Step> = steps.iter().filter(|step| step.is_valid).collect();
    let of = |alike: &[&Step]| {
        let median = |value: fn(&Step) -> f64| median(&alike.iter().map(|step| value(step)).collect::<Vec<f64>>());
        let point = Point { load: f64::from(alike.first()?.matches), value: median(|step| step.frame_ms.mean)? };
        Some((point, median(|step| step.not_running_ms)?))
    };
    valid.chunk_by(|a, b| a.matches == b.matches).filter_map(of).unzip()
}

/// Why this program does not count misses of caches.
fn counters(root: &Path) -> String {
    let under = |path: &str| root.join(path.trim_start_matches('/'));
    if !under(COUNTERS).exists() {
        return format!("cannot read: {COUNTERS} does not exist; the kernel or the host below has no counters for us");
    }
    let level = std::fs::read_to_string(under(PARANOID)).unwrap_or_default();
    let level = Some(level.trim()).filter(|level| !level.is_empty()).unwrap_or("unknown");
    format!(
        "cannot read: this program opens no counters; `perf stat -e LLC-load-misses,cycles -p PID` shows them \
         (perf_event_paranoid is {level})"
    )
}

impl Growth {
    /// Lines for a terminal.
    pub(crate) fn words(&self, largest: u32) -> Vec<String> {
        let forecast =
            self.forecast_ms.map_or(String::new(), |ms| format!("; the smaller steps forecast {} ms", figure(ms)));
        let mut lines = vec![format!(
            "mean frame {} ms and {} ms for each match; with {largest} matches {} ms{forecast}",
            figure(self.base_ms),
            figure(self.slope_ms),
            figure(self.measured_ms)
        )];
        lines.push(match self.scheduler_share.zip(self.running_share) {
            Some((scheduler, running)) => format!(
                "of the growth, {:.0} % is time in which threads did not run, {:.0} % is longer work: caches and processor",
                scheduler * 100.0,
                running * 100.0
            ),
            None => "the mean frame did not grow".to_owned(),
        });
        lines.push(format!("caches and processor apart: {}", self.counters));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::Percentiles;

    fn step(matches: u32, mean: f64, not_running_ms: f64) -> Step {
        let frame_ms = Percentiles { mean, ..Percentiles::default() };
        Step { matches, frame_ms, not_running_ms, is_valid: true, ..Step::default() }
    }

    #[test]
    fn growth_is_waiting_and_longer_work() {
        // Each match adds 10 µs of work, and each but the first 30 µs of waiting.
        let of = |matches: u32| {
            let others = f64::from(matches - 1);
            step(matches, 0.2 + 0.01 * f64::from(matches) + 0.03 * others, 0.03 * others)
        };
        let growth = super::of(&[1, 2, 4].map(of), Path::new("/nowhere")).unwrap();
        assert!((growth.slope_ms - 0.04).abs() < 1e-6 && growth.largest_error < 1e-6, "{growth:?}");
        assert!(growth.forecast_ms.is_some_and(|ms| (ms - growth.measured_ms).abs() < 1e-6), "{growth:?}");
        assert_eq!((growth.scheduler_share, growth.running_share), (Some(0.75), Some(0.25)));
        // A number of matches that was played again is one point, not two.
        assert_eq!(super::of(&[1, 2, 2, 4, 4].map(of), Path::new("/nowhere")).unwrap(), growth);
        assert!(growth.counters.starts_with("cannot read: /sys/"), "{}", growth.counters);
        let words = growth.words(4).join("\n");
        assert!(words.contains("75 % is time in which threads did not run"), "{words}");
    }

    #[test]
    fn a_cache_that_is_full_shows_as_a_missed_forecast() {
        let steps = [step(8, 0.28, 0.0), step(16, 0.36, 0.0), step(32, 0.8, 0.0)];
        let growth = super::of(&steps, Path::new("/nowhere")).unwrap();
        assert!(growth.forecast_ms.is_some_and(|ms| ms < 0.7 * growth.measured_ms), "{growth:?}");
        assert_eq!((growth.scheduler_share, growth.running_share), (Some(0.0), Some(1.0)));
    }

    #[test]
    fn no_growth_has_no_shares_and_invalid_steps_do_not_count() {
        let invalid = Step { is_valid: false, ..step(32, 9.0, 8.0) };
        let steps = [step(1, 0.2, 0.01), step(2, 0.2, 0.05), invalid];
        let growth = super::of(&steps, Path::new("/nowhere")).unwrap();
        assert_eq!((growth.scheduler_share, growth.forecast_ms, growth.measured_ms), (None, None, 0.2));
        assert!(growth.words(2)[1].contains("did not grow"));
        assert_eq!(super::of(&steps[..1], Path::new("/nowhere")), None);
        assert_eq!(super::of(&[step(3, 0.2, 0.0), step(3, 0.3, 0.0)], Path::new("/nowhere")), None, "one load");
        assert_eq!(super::of(&[], Path::new("/nowhere")), None);
    }

    #[test]
    fn a_machine_with_counters_is_told_how_to_read_them() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join(COUNTERS.trim_start_matches('/'))).unwrap();
        let paranoid = root.path().join(PARANOID.trim_start_matches('/'));
        std::fs::create_dir_all(paranoid.parent().unwrap()).unwrap();
        std::fs::write(paranoid, "2\n").unwrap();
        let words = counters(root.path());
        assert!(words.contains("perf stat") && words.contains("perf_event_paranoid is 2"), "{words}");
    }
}
