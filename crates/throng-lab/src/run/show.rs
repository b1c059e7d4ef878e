//! Figures and points of a run for the live page.

use std::net::SocketAddr;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use throng::meter::Subsystem;
use throng::{Replication, Time};
use throng_crowd::scenario::Scenario;
use throng_live::{Feed, FeedError, Hello, Load, Map, Point, Sample};
use throng_machine::clock;

use crate::bots::{Progress, is_witness};
use crate::host::Host;

/// Time between two samples.
const SAMPLES: Duration = Duration::from_millis(500);
/// Time between two pictures of the map.
const PICTURES: Duration = Duration::from_millis(100);
/// The most points of a picture.
const POINTS_MAX: usize = 10_000;
/// Kinds of points.
const PLAYER: u8 = 0;
const WITNESS: u8 = 1;

pub(super) struct Show {
    feed: Feed,
    map: Map,
    /// A frame may take so long.
    budget: Duration,
    scenario: Scenario,
    began: Time,
    sample_due: Time,
    picture_due: Time,
    /// Of the frames since the last sample: whole times, and sums by stage.
    frames_ns: Vec<u64>,
    stages_ns: [u64; Subsystem::STAGES.len()],
    breaches: u64,
}

impl Show {
    /// Shows a run at a hub. Also returns the numbers of players that viewers want.
    pub(super) fn begin(address: SocketAddr, scenario: &Scenario) -> Result<(Show, Option<Receiver<u32>>), FeedError> {
        let budget = Duration::from_secs(1) / scenario.tick_hz;
        let [width_m, height_m] = scenario.area_m.map(f64::from);
        let map = Map { left_m: 0.0, bottom_m: 0.0, width_m, height_m };
        let subsystem =
            |stage: &Subsystem| throng_live::Subsystem { name: stage.built_in_name().to_owned(), budget_ms: None };
        let mut feed = Feed::connect(
            address,
            Hello {
                workload: scenario.name.clone(),
                unit: "players".to_owned(),
                tick_hz: scenario.tick_hz,
                budget_ms: Some(budget.as_secs_f64() * 1e3),
                subsystems: Subsystem::STAGES.iter().map(subsystem).collect(),
                map: Some(map),
                load: Some(Load { least: 1, most: scenario.players }),
                ..Hello::default()
            },
        )?;
        let wanted = feed.take_wanted();
        let now = clock::now();
        let show = Show {
            feed,
            map,
            budget,
            scenario: scenario.clone(),
            began: now,
            sample_due: now.after(SAMPLES),
            picture_due: now,
            // Room for a sample of the fastest server, so that no frame has to make it.
            frames_ns: Vec::with_capacity(256),
            stages_ns: [0; Subsystem::STAGES.len()],
            breaches: 0,
        };
        Ok((show, wanted))
    }

    /// Something happened.
    pub(super) fn mark(&mut self, text: &str) {
        self.feed.mark(text);
    }

    /// Takes the tick that the host has just played.
    pub(super) fn take(&mut self, host: &Host<impl Replication>, bots: Progress, wanted: u32) {
        let record = host.server().last_tick();
        self.frames_ns.push(record.total_ns);
        self.breaches += u64::from(record.total_ns > self.budget.as_nanos() as u64);
        for (sum, stage) in self.stages_ns.iter_mut().zip(Subsystem::STAGES) {
            *sum += record.ns(stage);
        }
        let now = clock::now();
        if now >= self.sample_due {
            self.sample_due = now.after(SAMPLES);
            self.sample(now, host, bots, wanted);
        }
        if now >= self.picture_due {
            self.picture_due = now.after(PICTURES);
            if self.feed.is_watched() {
                self.picture(now, host);
            }
        }
    }

    fn sample(&mut self, now: Time, host: &Host<impl Replication>, bots: Progress, wanted: u32) {
        self.frames_ns.sort_unstable();
        let frames = self.frames_ns.len();
        let ms = |ns: u64| ns as f64 / 1e6;
        let at = |part: f64| ms(self.frames_ns[((frames - 1) as f64 * part).round() as usize]);
        let mean = |sum: &u64| ms(*sum) / frames as f64;
        let names = Subsystem::STAGES.iter().map(|stage| stage.built_in_name().to_owned());
        self.feed.sample(Sample {
            time_s: now.since(self.began).as_secs_f64(),
            wanted,
            connected: host.connected(),
            frame_p50_ms: at(0.5),
            frame_p99_ms: at(0.99),
            frame_max_ms: at(1.0),
            subsystems_ms: names.zip(self.stages_ns.iter().map(mean)).collect(),
            breaches: self.breaches,
            missed_ticks: Some(host.skipped_ticks()),
            kbit_per_s: Some(bots.kbit_per_s),
            near_age_p99_ms: bots.near_age_p99_ms,
            generator_cores: Some(bots.cpu_cores),
        });
        self.frames_ns.clear();
        self.stages_ns = Default::default();
    }

    fn picture(&mut self, now: Time, host: &Host<impl Replication>) {
        let step = (host.connected() as usize).div_ceil(POINTS_MAX).max(1);
        let points: Vec<Point> = host
            .positions()
            .step_by(step)
            .map(|(number, [x, y, _])| {
                let decodes = is_witness(number, self.scenario.decoded_bots(), self.scenario.players);
                let kind = if decodes { WITNESS } else { PLAYER };
                self.map.point([f64::from(x), f64::from(y)], kind)
            })
            .collect();
        self.feed.points(now.since(self.began).as_secs_f64(), points);
    }
}
