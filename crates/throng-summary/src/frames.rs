//! The record of every frame's time by subsystem, and what is made of it: percentiles, and curves for plots.

use std::ops::Range;

use hdrhistogram::Histogram;
use throng_report::with_room;

use crate::{FrameAt, FrameHistogram, FrameMs, FrameSeries, Series, Split};

/// Frames in order. Its memory is taken at the start, so that pushing is part of a steady-state tick.
///
/// It keeps at most [`FRAMES_MAX`] frames. When it is full, every second one is forgotten, and from then on every second, fourth,
/// ... frame is kept, for the percentiles. Number, mean, longest frame, curves and histogram are those of all frames,
/// and so is the curve of those that were never played.
#[derive(Clone, Debug)]
pub struct FrameLog {
    frames_ms: Vec<Split>,
    times: Vec<FrameTime>,
    /// The longest frame from each frame that is kept to the next one, and when it began.
    longest: Vec<(f64, Split)>,
    /// The work of all frames, in nanoseconds.
    all_ns: Histogram<u64>,
    /// The frames that were never played, from each frame that is kept to the next one.
    missed: Vec<u64>,
    /// The most frames that are kept.
    capacity: usize,
    /// Every so many frames, one is kept.
    stride: u64,
    count: u64,
    sum_ms: Split,
    longest_ms: Split,
    latest_after_plan_ms: f64,
}

/// The most frames that are kept: a quarter of an hour at 30 Hz, in 8 MB. All frames are in the run's `frames.parquet`.
pub const FRAMES_MAX: usize = 30_000;

/// The longest work that the histogram tells from a longer one: a minute.
const WORK_MAX_NS: u64 = 60_000_000_000;

/// When a frame was, on the clock of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FrameTime {
    /// When it began, in seconds from the beginning of the measured part.
    pub at_s: f64,
    /// From the instant for which it was planned to its end, in milliseconds.
    pub after_plan_ms: f64,
    /// Frames that were due meanwhile and never played.
    pub skipped: u64,
}

/// The summary of a [`FrameLog`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameProfile {
    /// Percentiles of the work of a frame.
    pub frame_ms: FrameMs,
    /// Percentiles of the time from the planned instant to the end. A frame that was never played counts as late as the
    /// frame that came in its place.
    pub after_plan_ms: FrameMs,
    /// The frames at some percentiles, by subsystem.
    pub frames_at: Vec<FrameAt>,
    /// Mean by subsystem.
    pub mean_ms: Split,
}

/// The percentiles that are taken apart.
const PERCENTILES: [(&str, f64); 5] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
/// A single frame may be an exception, so a percentile's composition is the mean of the frames within this share around
/// it.
const AROUND: f64 = 0.005;

impl FrameLog {
    /// [Room](with_room) for this many frames, but for 2 at least and for [`FRAMES_MAX`] at most.
    pub fn with_capacity(frames: usize) -> FrameLog {
        let capacity = frames.clamp(2, FRAMES_MAX);
        let (frame_ms, time) =
            (Split { total: 1.0, ..Split::default() }, FrameTime { skipped: 1, ..FrameTime::default() });
        FrameLog {
            frames_ms: with_room(capacity, frame_ms),
            times: with_room(capacity, time),
            longest: with_room(capacity, (1.0, frame_ms)),
            missed: with_room(capacity, 1),
            ..FrameLog::of_capacity(capacity)
        }
    }

    /// Without memory for frames.
    fn of_capacity(capacity: usize) -> FrameLog {
        FrameLog {
            frames_ms: Vec::new(),
            times: Vec::new(),
            longest: Vec::new(),
            all_ns: Histogram::new_with_bounds(1, WORK_MAX_NS, 3).expect("the bounds are possible"),
            missed: Vec::new(),
            capacity,
            stride: 1,
            count: 0,
            sum_ms: Split::default(),
            longest_ms: Split::default(),
            latest_after_plan_ms: 0.0,
        }
    }

    /// Records a frame, in milliseconds. Does not allocate.
    pub fn push(&mut self, frame_ms: Split, time: FrameTime) {
        let is_kept = self.count.is_multiple_of(self.stride);
        self.count += 1;
        self.sum_ms = sum(&self.sum_ms, &frame_ms);
        if frame_ms.total >= self.longest_ms.total {
            self.longest_ms = frame_ms;
        }
        self.latest_after_plan_ms = self.latest_after_plan_ms.max(time.after_plan_ms);
        self.all_ns.saturating_record((frame_ms.total * 1e6) as u64);
        if !is_kept {
            self.note_forgotten(&frame_ms, &time);
            return;
        }
        if self.frames_ms.len() == self.capacity {
            self.halve();
            // With an odd number of frames, the new stride leaves this one out.
            if !(self.count - 1).is_multiple_of(self.stride) {
                self.note_forgotten(&frame_ms, &time);
                return;
            }
        }
        self.frames_ms.push(frame_ms);
        self.times.push(time);
        self.longest.push((time.at_s, frame_ms));
        self.missed.push(time.skipped);
    }

    /// The first frame is always kept.
    fn note_forgotten(&mut self, frame_ms: &Split, time: &FrameTime) {
        if let (Some(missed), Some(longest)) = (self.missed.last_mut(), self.longest.last_mut()) {
            *missed += time.skipped;
            *longest = longer(*longest, (time.at_s, *frame_ms));
        }
    }

    /// Forgets every second frame.
    fn halve(&mut self) {
        let kept = self.frames_ms.len().div_ceil(2);
        for index in 0..kept {
            self.frames_ms[index] = self.frames_ms[2 * index];
            self.times[index] = self.times[2 * index];
            let own = self.longest[2 * index];
            self.longest[index] = self.longest.get(2 * index + 1).map_or(own, |next| longer(own, *next));
            let forgotten = self.missed.get(2 * index + 1).copied().unwrap_or_default();
            self.missed[index] = self.missed[2 * index] + forgotten;
        }
        self.frames_ms.truncate(kept);
        self.times.truncate(kept);
        self.longest.truncate(kept);
        self.missed.truncate(kept);
        self.stride *= 2;
    }

    /// Number of frames that are kept.
    pub fn len(&self) -> usize {
        self.frames_ms.len()
    }

    /// Whether no frame was recorded.
    pub fn is_empty(&self) -> bool {
        self.frames_ms.is_empty()
    }

    /// Forgets all frames, at the end of the warm-up.
    pub fn clear(&mut self) {
        *self = FrameLog {
            frames_ms: std::mem::take(&mut self.frames_ms),
            times: std::mem::take(&mut self.times),
            longest: std::mem::take(&mut self.longest),
            missed: std::mem::take(&mut self.missed),
            ..FrameLog::of_capacity(self.capacity)
        };
        self.frames_ms.clear();
        self.times.clear();
        self.longest.clear();
        self.missed.clear();
    }

    /// Percentiles and means; all zero for an empty log. `tick_ms` is the time between planned instants.
    pub fn profile(&self, tick_ms: f64) -> FrameProfile {
        if self.is_empty() {
            return FrameProfile::default();
        }
        let mut sorted = self.frames_ms.clone();
        sorted.sort_by(|a, b| a.total.total_cmp(&b.total));
        let mean_ms = self.sum_ms.scaled(1.0 / self.count.max(1) as f64);
        let work: Vec<f64> = sorted.iter().map(|frame| frame.total).collect();
        if let Some(last) = sorted.last_mut() {
            *last = self.longest_ms;
        }
        FrameProfile {
            frame_ms: FrameMs { mean: mean_ms.total, max: self.longest_ms.total, ..percentiles(&work) },
            after_plan_ms: FrameMs { max: self.latest_after_plan_ms, ..percentiles(&self.after_plan(tick_ms)) },
            frames_at: PERCENTILES
                .iter()
                .filter(|(_, share)| carries(*share, sorted.len()))
                .map(|&(name, share)| frame_at(name, share, &sorted))
                .collect(),
            mean_ms,
        }
    }

    /// Curves of at most [`Series::MAX_POINTS`] points: each is the longest frame of its time span, so that no peak is
    /// lost.
    pub fn series(&self) -> FrameSeries {
        let stretch = self.len().div_ceil(Series::MAX_POINTS).max(1);
        let mut series = FrameSeries::default();
        for (longest, missed) in self.longest.chunks(stretch).zip(self.missed.chunks(stretch)) {
            let Some((at_s, frame)) = longest.iter().copied().reduce(longer) else { continue };
            series.push(at_s, &frame);
            series.missed.push(missed.iter().sum());
        }
        series
    }

    /// The frames by their working time, in at most 60 bars.
    pub fn histogram(&self) -> FrameHistogram {
        let totals: Vec<(f64, u64)> = match self.stride {
            1 => self.frames_ms.iter().map(|frame| (frame.total, 1)).collect(),
            // To a thousandth.
            _ => {
                let all = self.all_ns.iter_recorded();
                all.map(|step| (step.value_iterated_to() as f64 / 1e6, step.count_since_last_iteration())).collect()
            }
        };
        FrameHistogram::of(&totals)
    }

    /// The times from planned instant to end, sorted, with one for each frame that was never played. The results of
    /// such a frame came with the end of the next frame, one interval less late for each frame later. This is
    /// HdrHistogram's correction for coordinated omission.
    fn after_plan(&self, tick_ms: f64) -> Vec<f64> {
        let mut all = Vec::with_capacity(self.times.len());
        for time in &self.times {
            let skipped = time.skipped.min(SKIPPED_MAX);
            all.extend((0..=skipped).map(|number| (time.after_plan_ms - number as f64 * tick_ms).max(0.0)));
        }
        all.sort_by(f64::total_cmp);
        all
    }
}

/// The longer one of two frames; of equal ones, the first.
fn longer(one: (f64, Split), other: (f64, Split)) -> (f64, Split) {
    if other.1.total > one.1.total { other } else { one }
}

impl FrameSeries {
    fn push(&mut self, time_s: f64, frame: &Split) {
        self.time_s.push(rounded(time_s));
        self.total.push(rounded(frame.total));
        for (curve, (_, part)) in stages!(FrameSeries, &mut *self).into_iter().zip(frame.parts()) {
            curve.push(rounded(part));
        }
    }
}

/// To a tenth of a microsecond of milliseconds, and of a millisecond of seconds, to keep the file small.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Frames skipped in one go that are counted one by one: more than an hour at 60 Hz says nothing new.
const SKIPPED_MAX: u64 = 250_000;

/// Of sorted values; zero for none.
fn percentiles(sorted: &[f64]) -> FrameMs {
    if sorted.is_empty() {
        return FrameMs::default();
    }
    let at = |share: f64| sorted[rank(share, sorted.len())];
    let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
    FrameMs {
        mean,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: carries(0.999, sorted.len()).then(|| at(0.999)),
        max: at(1.0),
    }
}

/// Whether so many values tell anything of a percentile: of fewer than a thousand, 99.9 % would be the maximum.
fn carries(share: f64, len: usize) -> bool {
    share != 0.999 || len >= 1_000
}

/// Index of the smallest of `len` sorted values that is not below `share` of them.
fn rank(share: f64, len: usize) -> usize {
    ((share * len as f64).ceil() as usize).clamp(1, len) - 1
}

fn frame_at(name: &str, share: f64, sorted: &[Split]) -> FrameAt {
    let around = if share < 1.0 { around(share, sorted.len()) } else { sorted.len() - 1..sorted.len() };
    FrameAt { percentile: name.to_owned(), ms: mean(&sorted[around]) }
}

fn around(share: f64, len: usize) -> Range<usize> {
    let middle = rank(share, len);
    let reach = ((AROUND * len as f64) as usize).min(len - 1 - middle).min(middle);
    middle - reach..middle + reach + 1
}

fn sum(sum: &Split, frame: &Split) -> Split {
    Split::new(sum.parts().chain(frame.parts()), sum.total + frame.total)
}

fn mean(frames: &[Split]) -> Split {
    let total = frames.iter().map(|frame| frame.total).sum();
    Split::new(frames.iter().flat_map(Split::parts), total).scaled(1.0 / frames.len().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use throng::meter::Subsystem;

    use super::*;

    /// Frames of 1 to `count` milliseconds, in an order of their own, three quarters of each spent sending.
    fn log(count: usize) -> FrameLog {
        let mut order: Vec<usize> = (1..=count).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut order);
        let mut log = FrameLog::with_capacity(count);
        for ms in order {
            let frame = Split::new([(Subsystem::SEND, ms as f64 * 0.75)], ms as f64);
            let time = FrameTime { at_s: log.len() as f64 / 30.0, after_plan_ms: ms as f64 + 1.0, skipped: 0 };
            log.push(frame, time);
        }
        log
    }

    #[test]
    fn percentiles_are_those_of_the_frames() {
        let profile = log(1000).profile(33.0);
        let frame = profile.frame_ms;
        assert_eq!(
            (frame.p50, frame.p90, frame.p99, frame.p999, frame.max),
            (500.0, 900.0, 990.0, Some(999.0), 1000.0)
        );
        assert!((frame.mean - 500.5).abs() < 1e-6);
        assert!((profile.mean_ms.other - 500.5 * 0.25).abs() < 1e-6);
    }

    /// Pages of memory that this thread has used for the first time.
    #[cfg(target_os = "linux")]
    fn new_pages() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("Linux has it");
        let after_name = stat.rsplit_once(')').expect("a name in brackets").1;
        after_name.split_whitespace().nth(7).expect("the tenth field").parse().expect("a number")
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn all_memory_of_a_long_run_is_taken_before_it_begins() {
        let mut log = FrameLog::with_capacity(FRAMES_MAX);
        let before = new_pages();
        for _ in 0..FRAMES_MAX {
            log.push(Split::default(), FrameTime::default());
        }
        // The two large lists have more than 1,000 pages.
        let pages = new_pages() - before;
        assert!(pages < 200, "{pages} pages");
    }

    #[test]
    fn a_run_of_a_day_takes_no_more_memory_than_one_of_an_hour() {
        // 2.6 million frames: a day at 30 Hz. Every tenth takes long, and one of them longest.
        let mut log = FrameLog::with_capacity(usize::MAX);
        let room = (log.frames_ms.capacity(), log.times.capacity());
        let count = 24 * 3_600 * 30;
        let mut random = fastrand::Rng::with_seed(3);
        for number in 0..count {
            let ms = if number == 1_234_567 {
                99.0
            } else if random.u8(..10) == 0 {
                20.0
            } else {
                10.0
            };
            let frame = Split::new([(Subsystem::SEND, ms * 0.5)], ms);
            log.push(frame, FrameTime { at_s: number as f64 / 30.0, after_plan_ms: ms + 1.0, skipped: 0 });
        }
        assert_eq!((log.frames_ms.capacity(), log.times.capacity()), room, "it has not grown");
        assert!((FRAMES_MAX / 2..=FRAMES_MAX).contains(&log.len()), "{}", log.len());
        let profile = log.profile(33.0);
        assert_eq!((profile.frame_ms.p50, profile.frame_ms.p99, profile.frame_ms.max), (10.0, 20.0, 99.0));
        assert_eq!(profile.after_plan_ms.max, 100.0);
        assert!((profile.frame_ms.mean - 11.0).abs() < 0.01, "of all frames: {}", profile.frame_ms.mean);
        assert!((profile.mean_ms.send - 5.5).abs() < 0.005, "{:?}", profile.mean_ms);
        let times = log.series().time_s;
        assert!(times[0] < 60.0 && *times.last().unwrap() > 86_300.0, "the curve goes from the beginning to the end");
        assert!(times.is_sorted());
    }

    #[test]
    fn the_curve_has_all_missed_ticks_of_a_run_that_is_thinned() {
        for capacity in [2, 3, 4, 7, 64] {
            let mut log = FrameLog::with_capacity(capacity);
            let mut pushed = 0;
            for number in 0..1_000_u64 {
                let skipped = number % 5;
                pushed += skipped;
                log.push(Split::default(), FrameTime { at_s: number as f64, skipped, ..FrameTime::default() });
                assert_eq!(log.series().missed.iter().sum::<u64>(), pushed, "{number} of room for {capacity}");
            }
            log.clear();
            log.push(Split::default(), FrameTime { skipped: 3, ..FrameTime::default() });
            assert_eq!(log.series().missed, [3]);
        }
    }

    #[test]
    fn small_logs_keep_every_second_fourth_and_eighth_frame() {
        for capacity in 2..9 {
            let mut log = FrameLog::with_capacity(capacity);
            for number in 0..100_u32 {
                log.push(Split::new([], f64::from(number)), FrameTime { at_s: number.into(), ..FrameTime::default() });
                let kept: Vec<f64> = log.times.iter().map(|time| time.at_s).collect();
                let expected: Vec<f64> = (0..=number).step_by(log.stride as usize).map(f64::from).collect();
                assert_eq!(kept, expected, "room for {capacity}");
            }
        }
    }

    #[test]
    fn a_percentile_is_made_up_of_the_frames_around_it() {
        let profile = log(1000).profile(33.0);
        let names: Vec<_> = profile.frames_at.iter().map(|at| at.percentile.as_str()).collect();
        assert_eq!(names, ["p50", "p90", "p99", "p99.9", "max"]);
        for (at, expected) in profile.frames_at.iter().zip([500.0, 900.0, 990.0, 999.0, 1000.0]) {
            assert!((at.ms.total - expected).abs() < 1e-6, "{at:?}");
            assert!((at.ms.send - 0.75 * expected).abs() < 1e-6, "{at:?}");
        }
    }

    #[test]
    fn two_kinds_of_frames_are_two_humps() {
        let mut log = FrameLog::with_capacity(200);
        for number in 0..200 {
            let ms = if number % 2 == 0 { 15.0 } else { 6.0 };
            log.push(Split::new([], ms), FrameTime::default());
        }
        let histogram = log.histogram();
        let humps: Vec<(f64, u64)> =
            histogram.from_ms.iter().copied().zip(histogram.frames).filter(|&(_, frames)| frames > 0).collect();
        assert_eq!(humps, [(6.0, 100), (15.0, 100)]);
        assert_eq!(FrameLog::with_capacity(1).histogram(), FrameHistogram::default());
    }

    #[test]
    fn one_frame_is_every_percentile() {
        let profile = log(1).profile(33.0);
        assert_eq!((profile.frame_ms.p50, profile.frame_ms.p99, profile.frame_ms.max), (1.0, 1.0, 1.0));
        assert_eq!(FrameLog::with_capacity(0).profile(33.0), FrameProfile::default());
    }

    #[test]
    fn a_full_log_does_not_grow() {
        let mut log = FrameLog::with_capacity(4);
        let room = log.frames_ms.capacity();
        (0..room + 3).for_each(|_| log.push(Split::default(), FrameTime::default()));
        assert_eq!((log.len(), log.frames_ms.capacity()), (room, room));
    }

    #[test]
    fn a_long_run_is_thinned_without_losing_its_longest_frame() {
        let log = log(10_001);
        let series = log.series();
        assert!(series.time_s.len() <= Series::MAX_POINTS && series.time_s.len() > Series::MAX_POINTS / 2);
        assert_eq!(series.total.len(), series.time_s.len());
        assert_eq!(series.send.len(), series.time_s.len());
        assert_eq!(series.total.iter().copied().fold(0.0, f64::max), 10_001.0);
        assert!(series.time_s.is_sorted());
    }

    #[test]
    fn each_frame_of_a_run_that_is_thinned_is_in_its_curve_and_its_histogram() {
        let mut log = FrameLog::with_capacity(8);
        let frames: u32 = 1_000;
        // One long frame in each hundred, none of which is the first of its block.
        let is_long = |number: u32| number % 100 == 77;
        for number in 0..frames {
            let total = if is_long(number) { 50.0 + f64::from(number / 100) } else { 1.0 };
            let time = FrameTime { at_s: f64::from(number), ..FrameTime::default() };
            log.push(Split { total, ..Split::default() }, time);
        }
        assert!(log.len() <= 8, "it is thinned");
        let series = log.series();
        // A block of 128 or 256 frames has a long one, unless it is the rest at the end.
        let peaks = series.total.iter().filter(|total| **total >= 50.0).count();
        assert!(peaks >= series.total.len() - 1, "{:?}", series.total);
        assert!(series.time_s.iter().zip(&series.total).all(|(at_s, total)| is_long(*at_s as u32) == (*total >= 50.0)));
        let histogram = log.histogram();
        assert_eq!(histogram.frames.iter().sum::<u64>(), u64::from(frames));
        let above = |bar: &(&f64, &u64)| *bar.0 >= 40.0;
        let long: u64 = histogram.from_ms.iter().zip(&histogram.frames).filter(above).map(|bar| *bar.1).sum();
        assert_eq!(long, 10);
    }

    #[test]
    fn too_few_frames_have_no_percentile_that_would_be_their_maximum() {
        let profile = log(999).profile(33.0);
        assert_eq!(profile.frame_ms.p999, None);
        assert!(profile.frames_at.iter().all(|at| at.percentile != "p99.9"));
    }

    #[test]
    fn frames_that_were_never_played_count_as_late_as_what_came_instead() {
        let mut log = FrameLog::with_capacity(100);
        for number in 0..96 {
            let time = FrameTime { at_s: f64::from(number) / 10.0, after_plan_ms: 20.0, skipped: 0 };
            log.push(Split::default(), time);
        }
        let stall = FrameTime { at_s: 9.6, after_plan_ms: 450.0, skipped: 3 };
        log.push(Split::default(), stall);
        let after_plan = log.profile(100.0).after_plan_ms;
        // 96 frames on time, and four for the stall: 450, 350, 250 and 150 ms.
        assert_eq!((after_plan.p50, after_plan.p90, after_plan.max), (20.0, 20.0, 450.0));
        assert_eq!(after_plan.p99, 350.0);
        assert!((after_plan.mean - (96.0 * 20.0 + 1_200.0) / 100.0).abs() < 1e-9);
    }

    #[test]
    fn curves_are_drawn_over_the_real_time_of_a_slow_run() {
        let mut log = FrameLog::with_capacity(10);
        for number in 0..10 {
            let time = FrameTime { at_s: f64::from(number) * 0.25, after_plan_ms: 0.0, skipped: 0 };
            log.push(Split::default(), time);
        }
        assert_eq!(log.series().time_s.last(), Some(&2.25), "four frames a second, whatever was planned");
    }
}
