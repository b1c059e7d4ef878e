//! The record of every frame's time by subsystem, and what is made of it: percentiles, and curves for plots.

use std::ops::Range;

use crate::summary::{FrameAt, FrameMs, FrameSeries, Series, Split};

/// Frames in order. Its memory is taken at the start, so that pushing is part of a steady-state tick.
#[derive(Clone, Debug)]
pub struct FrameLog {
    frames_ms: Vec<Split>,
    dropped: u64,
}

/// What a [`FrameLog`] comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FrameProfile {
    /// Percentiles of the whole frame.
    pub frame_ms: FrameMs,
    /// The frames at some percentiles, by subsystem.
    pub frames_at: Vec<FrameAt>,
    /// Mean by subsystem.
    pub mean_ms: Split,
}

/// The percentiles that are taken apart.
const PERCENTILES: [(&str, f64); 5] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
/// One frame is an accident; a percentile's composition is the mean of those within this share around it.
const AROUND: f64 = 0.005;

impl FrameLog {
    /// Room for so many frames.
    pub fn with_capacity(frames: usize) -> FrameLog {
        FrameLog { frames_ms: Vec::with_capacity(frames), dropped: 0 }
    }

    /// Records a frame, in milliseconds. Does not allocate: a frame beyond the capacity is only counted.
    pub fn push(&mut self, frame_ms: Split) {
        if self.frames_ms.len() < self.frames_ms.capacity() {
            self.frames_ms.push(frame_ms);
        } else {
            self.dropped += 1;
        }
    }

    /// Number of frames recorded.
    pub fn len(&self) -> usize {
        self.frames_ms.len()
    }

    /// Whether no frame was recorded.
    pub fn is_empty(&self) -> bool {
        self.frames_ms.is_empty()
    }

    /// Frames that came when the log was full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Forgets all frames, at the end of the warm-up.
    pub fn clear(&mut self) {
        self.frames_ms.clear();
        self.dropped = 0;
    }

    /// Percentiles and means; all zero for an empty log.
    pub fn profile(&self) -> FrameProfile {
        if self.is_empty() {
            return FrameProfile::default();
        }
        let mut sorted = self.frames_ms.clone();
        sorted.sort_by(|a, b| a.total.total_cmp(&b.total));
        let at = |share: f64| sorted[rank(share, sorted.len())].total;
        let mean_ms = mean(&sorted);
        FrameProfile {
            frame_ms: FrameMs {
                mean: mean_ms.total,
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                p999: at(0.999),
                max: at(1.0),
            },
            frames_at: PERCENTILES.iter().map(|&(name, share)| frame_at(name, share, &sorted)).collect(),
            mean_ms,
        }
    }

    /// Curves of at most [`Series::MAX_POINTS`] points: each the longest frame of its stretch, so that no peak is lost.
    pub fn series(&self, tick_hz: u32) -> FrameSeries {
        let stretch = self.len().div_ceil(Series::MAX_POINTS).max(1);
        let mut series = FrameSeries::default();
        for (number, frames) in self.frames_ms.chunks(stretch).enumerate() {
            let longest = frames.iter().enumerate().max_by(|(_, a), (_, b)| a.total.total_cmp(&b.total));
            let Some((offset, frame)) = longest else { continue };
            let time_s = (number * stretch + offset) as f64 / f64::from(tick_hz.max(1));
            series.push(time_s, frame);
        }
        series
    }
}

impl FrameSeries {
    fn push(&mut self, time_s: f64, frame: &Split) {
        self.time_s.push(rounded(time_s));
        self.total.push(rounded(frame.total));
        let curves = [
            &mut self.simulate,
            &mut self.interest,
            &mut self.quantise,
            &mut self.encode,
            &mut self.write,
            &mut self.seal,
            &mut self.send,
            &mut self.receive,
            &mut self.other,
        ];
        for (curve, part) in curves.into_iter().zip(frame.parts()) {
            curve.push(rounded(part));
        }
    }
}

/// To the microsecond (of milliseconds and of seconds alike), to keep the file small.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
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

fn mean(frames: &[Split]) -> Split {
    let share = 1.0 / frames.len().max(1) as f64;
    let mut parts = [0.0; 8];
    let mut total = 0.0;
    for frame in frames {
        for (sum, part) in parts.iter_mut().zip(frame.parts()) {
            *sum += part * share;
        }
        total += frame.total * share;
    }
    Split::new(parts, total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of 1 to `count` milliseconds, in an order of their own, three quarters of each spent sending.
    fn log(count: usize) -> FrameLog {
        let mut order: Vec<usize> = (1..=count).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut order);
        let mut log = FrameLog::with_capacity(count);
        for ms in order {
            log.push(Split::new([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, ms as f64 * 0.75, 0.0], ms as f64));
        }
        log
    }

    #[test]
    fn percentiles_are_those_of_the_frames() {
        let profile = log(1000).profile();
        let frame = profile.frame_ms;
        assert_eq!((frame.p50, frame.p90, frame.p99, frame.p999, frame.max), (500.0, 900.0, 990.0, 999.0, 1000.0));
        assert!((frame.mean - 500.5).abs() < 1e-6);
        assert!((profile.mean_ms.other - 500.5 * 0.25).abs() < 1e-6);
    }

    #[test]
    fn a_percentile_is_made_up_of_the_frames_around_it() {
        let profile = log(1000).profile();
        let names: Vec<_> = profile.frames_at.iter().map(|at| at.percentile.as_str()).collect();
        assert_eq!(names, ["p50", "p90", "p99", "p99.9", "max"]);
        for (at, expected) in profile.frames_at.iter().zip([500.0, 900.0, 990.0, 999.0, 1000.0]) {
            assert!((at.ms.total - expected).abs() < 1e-6, "{at:?}");
            assert!((at.ms.send - 0.75 * expected).abs() < 1e-6, "{at:?}");
        }
    }

    #[test]
    fn one_frame_is_every_percentile() {
        let frame = log(1).profile().frame_ms;
        assert_eq!((frame.p50, frame.p999, frame.max), (1.0, 1.0, 1.0));
        assert_eq!(FrameLog::with_capacity(0).profile(), FrameProfile::default());
    }

    #[test]
    fn a_full_log_counts_what_it_drops_and_does_not_grow() {
        let mut log = FrameLog::with_capacity(4);
        let room = log.frames_ms.capacity();
        (0..room + 3).for_each(|_| log.push(Split::default()));
        assert_eq!((log.len(), log.dropped(), log.frames_ms.capacity()), (room, 3, room));
    }

    #[test]
    fn a_long_run_is_thinned_without_losing_its_longest_frame() {
        let log = log(10_001);
        let series = log.series(30);
        assert!(series.time_s.len() <= Series::MAX_POINTS && series.time_s.len() > Series::MAX_POINTS / 2);
        assert_eq!(series.total.len(), series.time_s.len());
        assert_eq!(series.send.len(), series.time_s.len());
        assert_eq!(series.total.iter().copied().fold(0.0, f64::max), 10_001.0);
        assert!(series.time_s.is_sorted());
    }
}
