//! The parts of a load profile, each judged by itself.

use std::ops::Range;

use hdrhistogram::Histogram;
use throng_crowd::scenario::Scenario;
use throng_judge::{mean, median, steady_from};

use throng_report::with_room;
use throng_summary::{LoadStep, Spread};

/// Of a long level, so many of the newest seconds decide whether it is steady.
const SECONDS_MAX: usize = 3_600;

/// Figures that are gathered while a run is measured.
pub(super) struct Stages {
    /// The judged time of each part.
    judged: Vec<Range<f64>>,
    done: Vec<LoadStep>,
    /// Place of the present part.
    place: usize,
    present: Stage,
    /// Frames of the present second: their sum in milliseconds, and their number.
    frames: (f64, u32),
}

/// One part.
struct Stage {
    judged_from_s: f64,
    to_s: f64,
    frame_us: Histogram<u64>,
    seconds: Vec<Second>,
    missed_ticks: u64,
}

/// A second of a part.
#[derive(Clone, Copy)]
pub(super) struct Second {
    pub(super) wanted: u32,
    pub(super) connections: u32,
    pub(super) near_age_p99_ms: Option<f64>,
    pub(super) cpu_cores: f64,
    pub(super) frame_ms: f64,
}

impl Second {
    const FILLER: Second = Second { wanted: 1, connections: 1, near_age_p99_ms: None, cpu_cores: 1.0, frame_ms: 1.0 };
}

impl Stage {
    fn new(judged: &Range<f64>) -> Stage {
        Stage {
            judged_from_s: judged.start,
            to_s: judged.end,
            frame_us: Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are possible"),
            seconds: with_room(SECONDS_MAX.min((judged.end - judged.start) as usize + 1), Second::FILLER),
            missed_ticks: 0,
        }
    }

    /// Its figures, if there is anything to judge. It ended at `ended_s`.
    fn figures(&self, ended_s: f64) -> Option<LoadStep> {
        let of = |value: fn(&Second) -> f64| mean(&self.seconds.iter().map(value).collect::<Vec<_>>());
        let at = |share| (!self.frame_us.is_empty()).then(|| self.frame_us.value_at_quantile(share) as f64 / 1e3);
        let ages: Vec<f64> = self.seconds.iter().filter_map(|second| second.near_age_p99_ms).collect();
        let frames: Vec<f64> = self.seconds.iter().map(|second| second.frame_ms).collect();
        Some(LoadStep {
            from_s: self.judged_from_s,
            to_s: self.to_s.min(ended_s),
            players: of(|second| f64::from(second.wanted))?,
            connections: of(|second| f64::from(second.connections))?,
            frame_ms: Spread { p50: at(0.5), p99: at(0.99) },
            near_age_p99_ms: median(&ages),
            server_cpu_cores: of(|second| second.cpu_cores)?,
            missed_ticks: self.missed_ticks,
            steady_from_s: steady_from(&frames).map(|seconds| self.judged_from_s + seconds as f64),
        })
    }
}

impl Stages {
    pub(super) fn new(scenario: &Scenario) -> Stages {
        let judged = scenario.profile.judged(scenario.players, scenario.seconds);
        Stages { present: Stage::new(&judged[0]), judged, done: Vec::new(), place: 0, frames: (0.0, 0) }
    }

    /// A frame that began at `at_s`.
    pub(super) fn take_tick(&mut self, at_s: f64, frame_ms: f64, missed: u64) {
        while at_s >= self.present.to_s && self.place + 1 < self.judged.len() {
            self.place += 1;
            let next = Stage::new(&self.judged[self.place]);
            let ended = std::mem::replace(&mut self.present, next);
            self.done.extend(ended.figures(at_s));
        }
        if at_s >= self.present.judged_from_s {
            self.present.frame_us.saturating_record((frame_ms * 1e3) as u64);
            self.present.missed_ticks += missed;
        }
        self.frames = (self.frames.0 + frame_ms, self.frames.1 + 1);
    }

    /// The second before `at_s`. Its mean frame is counted here.
    pub(super) fn take_second(&mut self, at_s: f64, second: Second) {
        let (sum_ms, frames) = std::mem::take(&mut self.frames);
        let frame_ms = sum_ms / f64::from(frames.max(1));
        if at_s - 1.0 < self.present.judged_from_s {
            return;
        }
        if self.present.seconds.len() == SECONDS_MAX {
            self.present.seconds.remove(0);
        }
        self.present.seconds.push(Second { frame_ms, ..second });
    }

    /// The figures of all parts that have begun; the measured part ended at `ended_s`.
    pub(super) fn figures(&self, ended_s: f64) -> Vec<LoadStep> {
        self.done.iter().cloned().chain(self.present.figures(ended_s)).collect()
    }
}
