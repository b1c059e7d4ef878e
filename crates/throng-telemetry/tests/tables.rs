//! A Parquet file says what was recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use throng_meter::MAX_SUBSYSTEMS;
use throng_telemetry::{Clock, FrameBudgets, FrameTimes, Phase, Subsystem, Subsystems, Telemetry, TelemetryOptions};

const PHASES: [Phase; 2] = [Phase::new("buy"), Phase::new("live")];

/// A row: the columns with numbers, -1 for one that is empty, and those with text.
type Row = (Vec<i64>, Vec<String>);

fn read(path: &Path) -> (Vec<String>, Vec<Row>) {
    let reader = SerializedFileReader::new(File::open(path).expect("a file")).expect("a Parquet file");
    let columns = reader.metadata().file_metadata().schema().get_fields().iter().map(|field| field.name().to_owned());
    let rows = reader.get_row_iter(None).expect("rows").map(|row| {
        let (mut numbers, mut texts) = (Vec::new(), Vec::new());
        for (_, field) in row.expect("a row").get_column_iter() {
            match field {
                Field::Long(number) => numbers.push(*number),
                Field::Null => numbers.push(-1),
                Field::Str(text) => texts.push(text.clone()),
                other => panic!("{other:?} in a row"),
            }
        }
        (numbers, texts)
    });
    (columns.collect(), rows.collect())
}

#[test]
fn a_file_read_back_equals_what_was_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    throng_seeds::for_seeds(5, |seed| {
        let path = folder.path().join(format!("{seed}.parquet"));
        let mut random = fastrand::Rng::with_seed(seed);
        let (clock, hand) = Clock::manual();
        let mut subsystems = Subsystems::new();
        let bullets = subsystems.add("bullets").expect("a new name");
        let budgets =
            FrameBudgets::parse("[subsystem_ms]\nbullets = 0.001\n", Path::new("b"), &subsystems).expect("budgets");
        let options =
            TelemetryOptions { subsystems, budgets, table: Some(path.clone()), ..TelemetryOptions::default() };
        let telemetry = Telemetry::start_with_clock(options, clock).expect("a file");
        let mut recorder = telemetry.recorder("match 1");
        let mut expected: Vec<Row> = Vec::new();
        // Enough for more than one group of rows.
        for tick in 0..25_000_u64 {
            hand.wait(random.u64(..1_000_000));
            let phase = PHASES[random.usize(..2)];
            let mut frame = recorder.begin(tick, phase);
            hand.work(1);
            let own: Vec<(Subsystem, u64, u64)> = [(Subsystem::AI, 1), (bullets, 2)]
                .map(|(part, count)| (part, count, random.u64(..4_000)))
                .into_iter()
                .filter(|_| random.bool())
                .collect();
            for &(part, count, ns) in &own {
                (0..count).for_each(|_| frame.time(part, |_| hand.work(ns)));
            }
            let stopped_ns = random.u64(..3);
            hand.wait(stopped_ns);
            frame.note_lateness_ns(tick % 7);
            let times = frame.finish();
            let cpu_ns = times.wall_ns - stopped_ns;
            let mut row = |part: &str, self_ns: u64, scopes: u64, budget: i64| {
                let around = [tick, times.start_ns, times.wall_ns, cpu_ns, stopped_ns, tick % 7, self_ns, scopes];
                let numbers = around.iter().map(|&number| number as i64).chain([budget]).collect();
                expected.push((numbers, ["match 1", phase.name(), part].map(str::to_owned).to_vec()));
            };
            for &(part, count, ns) in &own {
                let budget = if part == bullets { 1_000 } else { -1 };
                row(telemetry.subsystems().name(part), count * ns, count, budget);
            }
            row("other", 1 + stopped_ns, 0, -1);
            if tick % 100 == 0 {
                telemetry.collect();
            }
        }
        telemetry.finish().expect("written");
        let (columns, rows) = read(&path);
        let page = include_str!("../../../docs/telemetry.md");
        for column in &columns {
            assert!(page.contains(&format!("| `{column}` |")), "docs/telemetry.md does not explain {column}");
        }
        assert_eq!(columns.len(), 12);
        assert_eq!(rows.len(), expected.len(), "seed {seed}");
        assert_means(&throng_telemetry::read_seconds(&path).expect("it is a file of frames"), &rows);
        assert_longest(&path, &rows);
        assert!(rows == expected, "seed {seed}: {:?}", rows.iter().zip(&expected).find(|(a, b)| a != b));
    });
}

/// The means by second are those of the rows.
fn assert_means(means: &BTreeMap<String, Vec<f64>>, rows: &[Row]) {
    let mut seconds: BTreeMap<i64, (BTreeSet<i64>, BTreeMap<&str, i64>)> = BTreeMap::new();
    for (numbers, texts) in rows {
        let second = seconds.entry(numbers[1] / 1_000_000_000).or_default();
        second.0.insert(numbers[0]);
        *second.1.entry(&texts[2]).or_default() += numbers[6];
        *second.1.entry("frame").or_default() += numbers[6];
    }
    assert!(seconds.len() > 5, "the test needs some seconds");
    for name in ["frame", "ai", "bullets", "other"] {
        let of = |(ticks, sums): &(BTreeSet<i64>, BTreeMap<&str, i64>)| {
            sums.get(name).map_or(0.0, |ns| *ns as f64 / ticks.len() as f64)
        };
        let expected: Vec<f64> = seconds.values().map(of).collect();
        assert_eq!(means[name], expected, "{name}");
    }
}

/// The longest frames are those of the shortest spans of a power of two of milliseconds that are not too many.
fn assert_longest(path: &Path, rows: &[Row]) {
    let mut frames: BTreeMap<i64, BTreeMap<String, u64>> = BTreeMap::new();
    for (numbers, texts) in rows {
        frames.entry(numbers[1]).or_default().insert(texts[2].clone(), numbers[6] as u64);
    }
    for spans_max in [1, 7, 100] {
        let spans = |span_ns: i64| frames.keys().map(|start| start / span_ns).collect::<BTreeSet<i64>>();
        let span_ns =
            (0..40).map(|power| 1_000_000 << power).find(|ns| spans(*ns).len() <= spans_max).expect("one fits");
        let longest = throng_telemetry::read_longest(path, spans_max).expect("it is a file of frames");
        assert_eq!(longest.len(), spans(span_ns).len());
        let first = frames.keys().next().expect("a frame");
        for (frame, span) in longest.iter().zip(spans(span_ns)) {
            let start_ns = frame.start_ns as i64;
            let of_span = || frames.iter().filter(|(start, _)| **start / span_ns == span);
            let most = of_span().map(|(_, parts)| parts.values().sum::<u64>()).max();
            assert_eq!(Some(frame.total_ns()), most, "span {span} of {span_ns} ns");
            let is_there =
                |(start, parts): (&i64, &BTreeMap<String, u64>)| start - first == start_ns && *parts == frame.parts_ns;
            assert!(of_span().any(is_there), "{frame:?}");
        }
        assert!(longest.is_sorted_by_key(|frame| frame.start_ns));
    }
}

#[test]
fn a_file_can_be_read_while_it_grows_but_for_the_last_five_seconds() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("frames.parquet");
    let options = TelemetryOptions { table: Some(path.clone()), ..TelemetryOptions::default() };
    let telemetry = Telemetry::start_with_clock(options, Clock::system()).expect("a file");
    assert_eq!(read(&path).1.len(), 0, "it can be read before the first frame");
    let mut recorder = telemetry.recorder("server");
    let mut parts_ns = [0; MAX_SUBSYSTEMS];
    // 100 Hz with three rows for each frame: 90,000 rows, more than a group.
    for tick in 0..30_000_u64 {
        let times =
            FrameTimes { tick, phase: PHASES[1], start_ns: tick * 10_000_000, wall_ns: 6, cpu_ns: None, late_ns: 0 };
        for (part, ns) in [(Subsystem::OPEN, 1), (Subsystem::SEAL, 2), (Subsystem::SEND, 3)] {
            parts_ns[part.index()] = ns;
        }
        recorder.add(times, &parts_ns);
        if tick % 100 == 0 {
            telemetry.collect();
        }
        if tick % 1_700 == 0 || (21_700..22_300).contains(&tick) && tick % 100 == 0 {
            let (_, rows) = read(&path);
            let ticks: Vec<i64> = rows.iter().map(|(numbers, _)| numbers[0]).collect();
            let expected: Vec<i64> = (0..ticks.len() as i64).map(|row| row / 3).collect();
            assert!(ticks == expected, "tick {tick}");
            assert!(ticks.len() as u64 + 3 * (500 + 100) > 3 * tick, "tick {tick}: {} rows", ticks.len());
            assert!(rows.iter().all(|(numbers, texts)| numbers[7] == 0 && texts[0] == "server"), "tick {tick}");
            throng_telemetry::read_seconds(&path).expect("it is a file of frames");
        }
    }
    drop(recorder);
    telemetry.finish().expect("written");
    let (_, rows) = read(&path);
    assert_eq!(rows.len(), 90_000);
    assert_eq!(rows.iter().map(|(numbers, _)| numbers[6]).sum::<i64>(), 30_000 * 6);
}

/// Set in the process of its own that plays the test: the bound on the length of files is that of a process.
#[cfg(target_os = "linux")]
const FULL_DISK: &str = "THRONG_TEST_FULL_DISK";
/// Its value if there is room again before a group of rows is full. Otherwise there is room after it, and the recording ends with
/// the group.
#[cfg(target_os = "linux")]
const EARLY: &str = "early";

/// This process can write files up to such a length, as if the disk were full then.
#[cfg(target_os = "linux")]
fn let_files_grow_to(length: &str) {
    let id = std::process::id().to_string();
    let status = std::process::Command::new("prlimit").args(["--pid", &id, &format!("--fsize={length}:")]).status();
    assert!(status.expect("prlimit is there").success());
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_stays_whole_while_the_disk_is_full_and_goes_on_afterwards() {
    if let Some(room_comes) = std::env::var_os(FULL_DISK) {
        play_with_a_full_disk(room_comes == EARLY);
        return;
    }
    if std::process::Command::new("prlimit").arg("--version").output().is_err() {
        println!("\n!!! prlimit is missing (util-linux): a full disk is NOT tested\n");
        return;
    }
    // A write beyond the bound is an error only to a process that ignores the signal.
    let begin = |room_comes| {
        std::process::Command::new("sh")
            .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().expect("a test"))
            .args([
                "--exact",
                "--nocapture",
                "tables::a_file_stays_whole_while_the_disk_is_full_and_goes_on_afterwards",
            ])
            .env(FULL_DISK, room_comes)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("a shell")
    };
    for played in [EARLY, "late"].map(begin).map(std::process::Child::wait_with_output) {
        let played = played.expect("it ends");
        let (told, errors) = (String::from_utf8_lossy(&played.stdout), String::from_utf8_lossy(&played.stderr));
        assert!(played.status.success() && told.contains("1 passed"), "{told}{errors}");
    }
}

#[cfg(target_os = "linux")]
fn play_with_a_full_disk(has_room_early: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let ticks: u64 = if has_room_early { 20_000 } else { 40_000 };
    let path = folder.path().join("frames.parquet");
    let options = TelemetryOptions { table: Some(path.clone()), ..TelemetryOptions::default() };
    let telemetry = Telemetry::start_with_clock(options, Clock::system()).expect("a file");
    let mut recorder = telemetry.recorder("server");
    let mut parts_ns = [0; MAX_SUBSYSTEMS];
    [Subsystem::OPEN, Subsystem::SEAL, Subsystem::SEND].iter().for_each(|part| parts_ns[part.index()] = 2);
    let length = || std::fs::metadata(&path).expect("it is there").len();
    for tick in 0..ticks {
        let start_ns = tick * 10_000_000 + tick * tick % 1_000_000;
        let times = FrameTimes { tick, phase: PHASES[1], start_ns, wall_ns: 6, cpu_ns: None, late_ns: tick % 997 };
        recorder.add(times, &parts_ns);
        if tick % 100 != 0 {
            continue;
        }
        telemetry.collect();
        let is_full = (13_000..if has_room_early { 15_000 } else { 30_000 }).contains(&tick);
        match tick {
            // The first group is full after 10,923 ticks.
            13_000 => let_files_grow_to(&(length() + 500).to_string()),
            15_000 if has_room_early => let_files_grow_to("unlimited"),
            30_000 => let_files_grow_to("unlimited"),
            _ => {}
        }
        if tick % 1_000 == 0 || is_full && tick < 15_000 {
            let (_, rows) = read(&path);
            assert!((0..).zip(&rows).all(|(row, (numbers, _))| numbers[0] == row / 3), "tick {tick}: it has gaps");
            let least = if tick < 13_000 { 3 * tick.saturating_sub(600) } else { 32_768 };
            assert!(rows.len() as u64 >= least, "tick {tick}: {} rows", rows.len());
            throng_telemetry::read_seconds(&path).expect("it is a file of frames");
        }
    }
    drop(recorder);
    assert_eq!(telemetry.snapshot().write_errors, 1, "one error is counted");
    telemetry.finish().expect_err("the file has an error");
    let (_, rows) = read(&path);
    assert!((0..).zip(&rows).all(|(row, (numbers, _))| numbers[0] == row / 3), "it has gaps");
    let expected = if has_room_early { 3 * ticks as usize } else { 65_538 };
    assert_eq!(rows.len(), expected);
}

#[test]
fn what_is_no_file_of_frames_or_damaged_anywhere_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("frames.parquet");
    let options = TelemetryOptions { table: Some(path.clone()), ..TelemetryOptions::default() };
    let telemetry = Telemetry::start_with_clock(options, Clock::system()).expect("a file");
    let mut recorder = telemetry.recorder("m");
    (0..100).for_each(|tick| drop(recorder.begin(tick, PHASES[0])));
    drop((recorder, telemetry));
    let whole = std::fs::read(&path).expect("it is there");
    let seconds = throng_telemetry::read_seconds(&path).expect("it is whole");
    let longest = throng_telemetry::read_longest(&path, 10).ok();
    // Cut short anywhere: an error. With one byte changed anywhere: an error, or the same numbers.
    let mut same = 0;
    for at in 0..whole.len() {
        std::fs::write(&path, &whole[..at]).expect("written");
        assert!(throng_telemetry::read_seconds(&path).is_err(), "cut at {at}");
        let mut changed = whole.clone();
        changed[at] ^= 0x55;
        std::fs::write(&path, &changed).expect("written");
        if let Ok(read) = throng_telemetry::read_seconds(&path) {
            assert_eq!(read, seconds, "byte {at} is damaged");
            assert_eq!(throng_telemetry::read_longest(&path, 10).ok(), longest, "byte {at} is damaged");
            same += 1;
        }
    }
    assert!(same < whole.len() / 3, "{same} of {} bytes may change without a word", whole.len());
}

#[test]
fn a_file_that_is_dropped_can_be_read_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("frames.parquet");
    let options = TelemetryOptions { table: Some(path.clone()), ..TelemetryOptions::default() };
    let telemetry = Telemetry::start_with_clock(options, Clock::system()).expect("a file");
    let mut recorder = telemetry.recorder("m");
    drop(recorder.begin(3, PHASES[0]));
    drop((recorder, telemetry));
    assert_eq!(read(&path).1[0].0[0], 3);
}

#[test]
fn a_file_that_cannot_be_written_is_found_at_the_start() {
    let path = Path::new("/no/folder/frames.parquet");
    let options = TelemetryOptions { table: Some(path.to_owned()), ..TelemetryOptions::default() };
    let error = Telemetry::start_with_clock(options, Clock::system()).expect_err("there is no such folder");
    assert_eq!(error.tag(), "table");
    let expected = "/no/folder/frames.parquet: cannot be written: No such file or directory (os error 2)";
    assert_eq!(error.to_string(), expected);
}
