//! How long does a comparison of two large runs take? Writes two runs with ten million rows of frames each, and compares them.
//!
//!     cargo run --release -p throng-history --example compare_large

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use throng_history::{compare, runs};
use throng_report::{Kind, RunFile, RunHead};
use throng_telemetry::{Clock, Phase, Subsystem, Telemetry, TelemetryOptions};

/// Frames of a run: more than four hours at 128 Hz.
const FRAMES: u64 = 2_000_000;
/// Subsystems of a frame beside the rest: a row for each, and one for the rest.
const PARTS: [Subsystem; 4] = [Subsystem::NETWORK, Subsystem::REPLICATION, Subsystem::FOG_OF_WAR, Subsystem::ANIMATION];
/// A tick at 128 Hz.
const TICK_NS: u64 = 7_812_500;

fn write(folder: &Path, seed: u64, slower_ns: u64) -> Result<(), Box<dyn std::error::Error>> {
    fs::create_dir_all(folder)?;
    let mean = |mean_ms: f64| serde_json::json!({ "mean_ms": mean_ms });
    let figures = serde_json::json!({ "subsystems": {
        "network": mean(0.05), "replication": mean(0.05), "fog_of_war": mean(0.05), "animation": mean(0.05),
        "other": mean(0.001),
    }});
    let head = RunHead { valid: true, ..RunHead::example(Kind::Match) };
    RunFile::write(folder, &head.with(figures))?;
    let (clock, hand) = Clock::manual();
    let options = TelemetryOptions { table: Some(folder.join("frames.parquet")), ..TelemetryOptions::default() };
    let telemetry = Telemetry::start_with_clock(options, clock)?;
    let mut recorder = telemetry.recorder("match 1");
    let mut random = fastrand::Rng::with_seed(seed);
    for tick in 0..FRAMES {
        hand.wait(TICK_NS / 2);
        let mut frame = recorder.begin(tick, Phase::new("live"));
        for part in PARTS {
            let extra_ns = if part == Subsystem::ANIMATION { slower_ns } else { 0 };
            frame.time(part, |_| hand.work(40_000 + extra_ns + random.u64(..20_000)));
        }
        hand.work(1_000);
        frame.finish();
        if tick.is_multiple_of(64) {
            telemetry.collect();
        }
    }
    telemetry.collect();
    telemetry.finish()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("throng-compare-large-{}", std::process::id()));
    let (first, second) = (folder.join("a"), folder.join("b"));
    write(&first, 1, 0)?;
    write(&second, 2, 4_000)?;
    let began = Instant::now();
    let comparison = compare(&runs(&first)?.runs, &runs(&second)?.runs, 0.03)?;
    let took: Duration = began.elapsed();
    let bytes = fs::metadata(first.join("frames.parquet"))?.len();
    fs::remove_dir_all(&folder)?;
    for part in &comparison.parts {
        println!("{:12} {}: {}", part.name, part.verdict, part.words);
    }
    let rows = FRAMES * (PARTS.len() as u64 + 1);
    println!("{rows} rows and {bytes} bytes on each side, compared in {:.2} s", took.as_secs_f64());
    Ok(())
}
