//! A slow frame leaves one file, with the seconds before it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use throng_telemetry::{
    Clock, FlightOptions, FrameBudgets, ManualClock, Phase, Recorder, Subsystem, Telemetry, TelemetryOptions,
};

const LIVE: Phase = Phase::new("live");
/// A tick of 100 Hz.
const TICK_NS: u64 = 10_000_000;

fn start(flight: FlightOptions, keep: Duration) -> (Telemetry, ManualClock) {
    let (clock, hand) = Clock::manual();
    let budgets = FrameBudgets { slow_frame_ns: Some(4_000_000), ..FrameBudgets::default() };
    let options = TelemetryOptions { budgets, keep, flight: Some(flight), ..TelemetryOptions::default() };
    (Telemetry::start_with_clock(options, clock).expect("a folder"), hand)
}

/// One tick, with a frame of `work_ns` in some scopes.
fn play(recorder: &mut Recorder, hand: &ManualClock, tick: u64, work_ns: u64) {
    let mut frame = recorder.begin(tick, LIVE);
    for _ in 0..10 {
        frame.time(Subsystem::MOVEMENT, |scopes| scopes.time(Subsystem::PHYSICS, |_| hand.work(work_ns / 10)));
    }
    drop(frame);
    hand.wait(TICK_NS.saturating_sub(work_ns));
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn read(folder: &Path, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join(name)).expect("a file")).expect("JSON")
}

fn ticks(file: &Value) -> Vec<u64> {
    let events = file["traceEvents"].as_array().expect("events").iter();
    let mut ticks: Vec<u64> = events.filter_map(|event| event["args"]["tick"].as_u64()).collect();
    ticks.sort_unstable();
    ticks
}

#[test]
fn a_slow_frame_leaves_exactly_one_file_with_the_seconds_before_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (telemetry, hand) = start(FlightOptions::new(folder.path()), Duration::from_secs(1));
    let (mut slow, mut other) = (telemetry.recorder("match/7"), telemetry.recorder("other"));
    for tick in 0..300 {
        play(&mut slow, &hand, tick, if tick == 250 { 5_000_000 } else { 1_000_000 });
        play(&mut other, &hand, tick, 1_000_000);
        if tick % 20 == 0 {
            telemetry.collect();
        }
    }
    drop(slow);
    assert_eq!(telemetry.snapshot().dumps, [folder.path().join("slow-1-match-7-tick-250.trace.json")]);
    assert_eq!(files(folder.path()), ["slow-1-match-7-tick-250.trace.json"]);
    let file = read(folder.path(), "slow-1-match-7-tick-250.trace.json");
    // Two matches share the time, so a tick is 20 ms and a second has 50; one more lies across its beginning.
    assert_eq!(ticks(&file), (200..=250).collect::<Vec<_>>());
    let about = &file["otherData"];
    assert_eq!((&about["recorder"], &about["tick"], &about["phase"]), (&"match/7".into(), &250.into(), &"live".into()));
    assert_eq!((&about["cause"], &about["frame_ns"]), (&"slow".into(), &5_000_000.into()));
    assert_eq!((&about["frames"], &about["frames_left_out"]), (&51.into(), &0.into()));
    let spans = file["traceEvents"].as_array().expect("events").iter().filter(|event| event["name"] == "physics");
    assert_eq!(spans.count(), 51 * 10);
}

#[test]
fn many_slow_frames_leave_a_file_in_each_interval_and_the_newest_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = FlightOptions { interval: Duration::from_secs(2), files_max: 3, ..FlightOptions::new(folder.path()) };
    let (telemetry, hand) = start(options, Duration::from_millis(100));
    let mut recorder = telemetry.recorder("m");
    for tick in 0..1_000 {
        play(&mut recorder, &hand, tick, 5_000_000);
        if tick % 100 == 0 {
            telemetry.collect();
        }
    }
    // Ten seconds: ticks 0, 200, 400, 600 and 800.
    assert_eq!(telemetry.snapshot().dumps_suppressed, 995);
    let expected = ["slow-1-m-tick-400.trace.json", "slow-1-m-tick-600.trace.json", "slow-1-m-tick-800.trace.json"];
    assert_eq!(files(folder.path()), expected);
}

#[test]
fn a_file_has_a_largest_size_and_keeps_the_newest_frames() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = FlightOptions { bytes_max: 100_000, ..FlightOptions::new(folder.path()) };
    let (telemetry, hand) = start(options, Duration::from_secs(5));
    let mut recorder = telemetry.recorder(&"name".repeat(100));
    for tick in 0..=150 {
        play(&mut recorder, &hand, tick, if tick == 150 { 5_000_000 } else { 1_000_000 });
    }
    let path = telemetry.snapshot().dumps.pop().expect("a file");
    assert!(fs::metadata(&path).expect("a file").len() <= 100_000);
    let file: Value = serde_json::from_str(&fs::read_to_string(&path).expect("a file")).expect("JSON");
    let ticks = ticks(&file);
    assert!(
        ticks.len() > 5 && *ticks.last().unwrap() == 150 && ticks.windows(2).all(|pair| pair[0] + 1 == pair[1]),
        "{ticks:?}"
    );
    assert_eq!(file["otherData"]["frames_left_out"], 151 - ticks.len());
}

#[test]
fn a_folder_that_cannot_be_written_is_found_at_the_start() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let budgets = FrameBudgets { frame_ns: Some(1), ..FrameBudgets::default() };
    let folder = file.path().join("flight");
    let flight = Some(FlightOptions::new(&folder));
    let options = TelemetryOptions { budgets, flight, ..TelemetryOptions::default() };
    let error = Telemetry::start(options.clone()).expect_err("a file is no folder");
    assert_eq!(error.tag(), "folder");
    let expected =
        format!("{}: the flight recorder cannot write here: Not a directory (os error 20)", folder.display());
    assert_eq!(error.to_string(), expected);
    let error =
        Telemetry::start(TelemetryOptions { budgets: FrameBudgets::default(), ..options }).expect_err("no limit");
    assert_eq!(error.tag(), "no_limit");
}

#[test]
fn a_folder_that_goes_away_costs_a_file_and_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let gone = folder.path().join("flight");
    let (telemetry, hand) = start(FlightOptions::new(&gone), Duration::from_secs(1));
    fs::remove_dir(&gone).expect("it is empty");
    let mut recorder = telemetry.recorder("m");
    play(&mut recorder, &hand, 1, 5_000_000);
    let snapshot = telemetry.snapshot();
    assert_eq!((snapshot.write_errors, snapshot.dumps.len(), snapshot.slow_frames), (1, 0, 1));
    assert_eq!(snapshot.last_write_error.as_deref(), Some("No such file or directory (os error 2)"));
    // It is tried again soon, and not with every frame.
    play(&mut recorder, &hand, 2, 5_000_000);
    assert_eq!(telemetry.snapshot().write_errors, 1);
    hand.wait(1_000_000_000);
    fs::create_dir(&gone).expect("it was removed");
    play(&mut recorder, &hand, 3, 5_000_000);
    let snapshot = telemetry.snapshot();
    assert_eq!((snapshot.write_errors, snapshot.dumps), (1, vec![gone.join("slow-1-m-tick-3.trace.json")]));
}

#[test]
fn the_part_of_a_file_that_another_process_writes_stands_in_no_ones_way() {
    let folder = tempfile::tempdir().expect("a folder");
    let (telemetry, hand) = start(FlightOptions::new(folder.path()), Duration::from_secs(1));
    fs::create_dir(folder.path().join("slow-1-m-tick-1.trace.partial")).expect("a new name");
    let mut recorder = telemetry.recorder("m");
    play(&mut recorder, &hand, 1, 5_000_000);
    assert_eq!(telemetry.snapshot().write_errors, 0);
    assert_eq!(files(folder.path()), ["slow-1-m-tick-1.trace.json", "slow-1-m-tick-1.trace.partial"]);
}
