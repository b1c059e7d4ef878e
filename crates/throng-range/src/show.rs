//! Figures for the live page, of matches in this process.

use std::net::SocketAddr;
use std::time::Instant;

use throng_live::{Feed, Hello, Sample, Subsystem};
use throng_telemetry::Snapshot;

/// Shows matches from the first snapshot on.
pub(crate) struct Show {
    address: SocketAddr,
    matches: u32,
    tick_hz: u32,
    began: Instant,
    /// With the snapshot before; `None` before the first one, or if there is no live page.
    feed: Option<(Feed, Snapshot)>,
    has_begun: bool,
}

impl Show {
    pub(crate) fn new(address: SocketAddr, matches: u32, tick_hz: u32) -> Show {
        Show { address, matches, tick_hz, began: Instant::now(), feed: None, has_begun: false }
    }

    /// Shows the frames since the snapshot before, of so many matches. The error is for the first one: there is no live page.
    pub(crate) fn take(&mut self, snapshot: &Snapshot, playing: u32) -> Result<(), throng_live::FeedError> {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.feed = Some((Feed::connect(self.address, self.hello(snapshot))?, snapshot.clone()));
            return Ok(());
        }
        let Some((feed, before)) = &mut self.feed else { return Ok(()) };
        let frames = snapshot.frames.saturating_sub(before.frames);
        if frames > 0 {
            feed.sample(sample(snapshot, before, (playing, self.began.elapsed().as_secs_f64())));
        }
        *before = snapshot.clone();
        Ok(())
    }

    fn hello(&self, snapshot: &Snapshot) -> Hello {
        let ms = |ns: u64| ns as f64 / 1e6;
        let subsystems = snapshot.subsystems.iter();
        Hello {
            workload: "match".to_owned(),
            unit: if self.matches == 1 { "match" } else { "matches" }.to_owned(),
            tick_hz: self.tick_hz,
            budget_ms: snapshot.frame_budget_ns.map(ms),
            subsystems: subsystems
                .map(|of| Subsystem { name: of.name.clone(), budget_ms: of.budget_ns.map(ms) })
                .collect(),
            ..Hello::default()
        }
    }
}

/// Means are of the frames since the snapshot before, percentiles of all frames.
fn sample(now: &Snapshot, before: &Snapshot, (matches, time_s): (u32, f64)) -> Sample {
    let ms = |ns: u64| ns as f64 / 1e6;
    let frames = (now.frames - before.frames) as f64;
    let mean_ms = |name: &str, mean: f64| {
        let was = before.subsystems.iter().find(|of| of.name == name).map_or(0.0, |of| of.frame_ns.mean);
        let since = mean * now.frames as f64 - was * before.frames as f64;
        (since / frames / 1e6).max(0.0)
    };
    let subsystems = now.subsystems.iter().map(|of| (of.name.clone(), mean_ms(&of.name, of.frame_ns.mean)));
    Sample {
        time_s,
        wanted: matches,
        connected: now.recorders.len() as u32,
        frame_p50_ms: ms(now.frame_ns.p50),
        frame_p99_ms: ms(now.frame_ns.p99),
        frame_max_ms: ms(now.frame_ns.max),
        subsystems_ms: subsystems.collect(),
        breaches: now.frame_breaches,
        ..Sample::default()
    }
}
