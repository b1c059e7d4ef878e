//! Bots of one's own: all run to one corner of the area.
//!
//! A run has two processes, the server and the bots. This program is both: with the argument `bots` it plays the bots.
//!
//! ```text
//! cargo run --release -p throng-lab --example corner
//! ```

use std::f32::consts::{PI, TAU};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use throng_lab::bots::{self, Brain, Brains, View};
use throng_lab::report;
use throng_lab::run::{self, RunOptions};
use throng_lab::scenario::{Overrides, Scenario};
use throng_lab::world::{BotInput, MAX_TURN_RAD_PER_S};
use throng_summary::RunSummary;

/// The argument of the bots' process.
const BOTS: &str = "bots";
/// The bots correct their direction within about so many seconds.
const CORRECTION_S: f32 = 0.25;

struct ToTheCorner;

impl Brain for ToTheCorner {
    fn looks(&self) -> bool {
        true
    }

    fn input(&mut self, view: &View<'_>) -> BotInput {
        // Before the first state has arrived, it stands still.
        let Some(own) = view.own() else { return BotInput::default() };
        let [width, depth] = view.scenario().area_m;
        let wanted = (depth / 2.0 - own.position[1]).atan2(width / 2.0 - own.position[0]);
        let off = (wanted - own.yaw + PI).rem_euclid(TAU) - PI;
        let turn = off / (MAX_TURN_RAD_PER_S * CORRECTION_S);
        BotInput { forward: true, turn: (turn.clamp(-1.0, 1.0) * 127.0) as i8, ..BotInput::default() }
    }
}

/// Plays with 20 bots, and writes the report into a folder of `runs`.
pub(crate) fn play(runs: &Path) -> anyhow::Result<RunSummary> {
    let overrides = Overrides {
        players: Some(20),
        area_m: Some(24.0),
        warmup_seconds: Some(8),
        seconds: Some(2),
        ..Overrides::default()
    };
    let scenario = Scenario { name: "corner".to_owned(), obstacles: 0, ..Scenario::resolve("crowd", &overrides)? };
    let bots = vec![std::env::current_exe()?.into(), BOTS.into()];
    let options = RunOptions { note: |line| eprintln!("{line}"), ..RunOptions::new(scenario, runs.to_owned(), bots) };
    Ok(run::run(&options, &AtomicBool::new(false))?.summary)
}

/// The bots' process; `None` if this process is the run.
pub(crate) fn play_bots() -> Option<anyhow::Result<()>> {
    (std::env::args().nth(1).as_deref() == Some(BOTS)).then(|| {
        let brains = Brains::new(|_scenario, _bot| Box::new(ToTheCorner));
        Ok(bots::play_for_host(&bots::BotsOptions { brains, ..run::read_order()? })?)
    })
}

fn main() -> anyhow::Result<()> {
    if let Some(played) = play_bots() {
        return played;
    }
    print!("{}", report::text(&play(Path::new("runs"))?));
    Ok(())
}
