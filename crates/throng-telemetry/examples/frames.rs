//! A game with a subsystem of its own, a budget file, and all outputs of telemetry.
//!
//! `cargo run --release -p throng-telemetry --example frames -- FOLDER` leaves the files in FOLDER.

use std::error::Error;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Duration;

use throng_telemetry::{
    FlightOptions, FrameBudgets, Phase, Scopes, Subsystem, Subsystems, Telemetry, TelemetryOptions,
};

const BUDGETS: &str = "
frame_ms = 2.34
slow_frame_ms = 20.0

[subsystem_ms]
animation = 0.5
bullets = 0.2
";

/// Stands for a game: some arithmetic in each part of its frame.
struct Game {
    bullets: Subsystem,
    sum: u64,
}

impl Game {
    fn step(&mut self, tick: u64, scopes: &mut Scopes) {
        let mut scopes = scopes.enter(Subsystem::GAMEPLAY);
        self.work(2_000);
        scopes.time(Subsystem::PHYSICS, |scopes| {
            self.work(10_000);
            scopes.time(self.bullets, |_| self.work(3_000));
        });
        // Poses are needed every fourth tick. Tick 100 loads a level, which should not happen in a frame.
        let scope = scopes.enter(Subsystem::ANIMATION);
        self.work(if tick.is_multiple_of(4) { 40_000 } else { 0 });
        let _scope = scope.then(Subsystem::AI);
        self.work(if tick == 100 { 60_000_000 } else { 5_000 });
    }

    fn work(&mut self, rounds: u64) {
        self.sum = (0..rounds).fold(self.sum, |sum, round| black_box(sum.rotate_left(5) ^ round));
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).map(PathBuf::from);
    let folder = folder
        .filter(|folder| folder.is_dir())
        .unwrap_or_else(|| std::env::temp_dir().join(format!("throng-frames-{}", std::process::id())));
    let mut subsystems = Subsystems::new();
    let bullets = subsystems.add("bullets")?;
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("budgets.toml"), BUDGETS)?;
    let budgets = FrameBudgets::read(&folder.join("budgets.toml"), &subsystems)?;

    let telemetry = Telemetry::start(TelemetryOptions {
        subsystems,
        budgets,
        flight: Some(FlightOptions::new(&folder)),
        table: Some(folder.join("frames.parquet")),
        ..TelemetryOptions::default()
    })?;
    let collecting = telemetry.collect_in_background()?;

    let mut recorder = telemetry.recorder("match 1");
    let mut game = Game { bullets, sum: 0 };
    for tick in 0..200 {
        let mut frame = recorder.begin(tick, Phase::new(if tick < 60 { "buy" } else { "live" }));
        game.step(tick, &mut frame);
        frame.finish();
        std::thread::sleep(Duration::from_millis(1));
    }

    let snapshot = telemetry.snapshot();
    println!("{:<12} {:>9} {:>9} {:>9} {:>9}", "subsystem", "mean ms", "p99 ms", "budget", "breaches");
    for part in &snapshot.subsystems {
        let (mean, p99) = (part.frame_ns.mean / 1e6, part.frame_ns.p99 as f64 / 1e6);
        let budget = part.budget_ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.2}", ns as f64 / 1e6));
        println!("{:<12} {mean:>9.4} {p99:>9.4} {budget:>9} {:>9}", part.name, part.breaches);
    }
    snapshot.breaches.iter().for_each(|breach| println!("{breach}"));
    std::fs::write(folder.join("last.trace.json"), telemetry.trace(Duration::from_secs(1)))?;
    std::fs::write(folder.join("metrics.txt"), telemetry.prometheus())?;
    drop((recorder, collecting));
    telemetry.finish()?;
    println!("files are in {}", folder.display());
    Ok(())
}
