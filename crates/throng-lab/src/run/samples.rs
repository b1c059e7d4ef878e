//! Each frame by subsystem and each second, on their way to files. The thread of the frame hands them over and never waits; other
//! threads write them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use throng::meter::TickRecord;
use throng_telemetry::{
    BeforeWrite, Collecting, FrameTimes, Phase, Recorder, Telemetry, TelemetryOptions, read_seconds,
};

use throng_report::{LineFile, SECONDS_FILE};
use throng_summary::Second;

use super::disk::Disk;
use crate::pace::Finish;

/// The file with a row for each tick and subsystem.
const FRAMES_FILE: &str = "frames.parquet";
/// Seconds that may wait for the disk.
const SECONDS_WAITING: usize = 64;
/// The file with the last frames as a trace.
const TRACE_FILE: &str = "trace.json";
/// The time of the trace. It has at most 8,192 frames, about 20 MB.
const TRACED: Duration = Duration::from_secs(300);
/// All frames that are handed over are of this part of the run.
const MEASURED: Phase = Phase::new("measured");

pub(super) struct Samples {
    // In the order in which they have to end.
    recorder: Recorder,
    collecting: Collecting,
    telemetry: Telemetry,
    seconds: SyncSender<Second>,
    /// Writes the seconds, and ends with them.
    writer: JoinHandle<LineFile>,
    /// Seconds that found no room, because the disk is too slow.
    lost_seconds: u64,
    /// The trace to write, if there is to be one.
    trace: Option<PathBuf>,
}

/// The parts that are kept beside frames and seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    /// The last frames as a trace.
    pub(super) trace: bool,
    /// The distributions of the frames, for metrics.
    pub(super) distributions: bool,
}

/// The state of the files at the end.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Frames and seconds that are in no file, because too many waited for the disk.
    pub(super) lost: u64,
    /// The files that are not whole, in words.
    pub(super) missing: Vec<String>,
}

impl Samples {
    /// A new file in the run's folder on this disk. Its thread begins now, before that of the server has a core of its own.
    pub(super) fn create(folder: &Path, kept: Kept, disk: &Disk) -> Result<Samples> {
        let of_frames = disk.clone();
        let options = TelemetryOptions {
            table: Some(folder.join(FRAMES_FILE)),
            before_write: Some(BeforeWrite::new(move || of_frames.before_write())),
            // Else their distributions would be counted as the memory of connections.
            has_figures: kept.distributions,
            keep: if kept.trace { TRACED } else { Duration::ZERO },
            ..TelemetryOptions::default()
        };
        let telemetry = Telemetry::start(options)?;
        let collecting = telemetry.collect_in_background().context("cannot start the thread that writes frames")?;
        let trace = kept.trace.then(|| folder.join(TRACE_FILE));
        let mut file = LineFile::create(folder, SECONDS_FILE)?;
        let (seconds, received) = sync_channel::<Second>(SECONDS_WAITING);
        let writer = std::thread::Builder::new().name("seconds".to_owned());
        let disk = disk.clone();
        let work = move || {
            for second in &received {
                disk.before_write();
                file.push(&second);
            }
            file
        };
        let writer = writer.spawn(work).context("cannot start a thread")?;
        let recorder = telemetry.recorder("server");
        Ok(Samples { recorder, collecting, telemetry, seconds, writer, lost_seconds: 0, trace })
    }

    /// Hands over a frame that began so long after the beginning of the measured part. Does not allocate.
    pub(super) fn take(&mut self, record: &TickRecord, measured_for: Duration, finish: Finish) {
        let times = FrameTimes {
            tick: record.tick,
            phase: MEASURED,
            start_ns: measured_for.as_nanos() as u64,
            wall_ns: record.total_ns,
            cpu_ns: None,
            late_ns: (finish.after_plan.as_nanos() as u64).saturating_sub(record.total_ns),
        };
        self.recorder.add(times, &record.subsystem_ns);
    }

    /// Hands over a second, so that a run that is killed has it.
    pub(super) fn take_second(&mut self, second: &Second) {
        self.lost_seconds += u64::from(self.seconds.try_send(second.clone()).is_err());
    }

    pub(super) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Writes the trace, and the rest of the frames.
    pub(super) fn finish(self) -> Written {
        let Samples { recorder, collecting, telemetry, seconds, writer, lost_seconds, trace } = self;
        // The frames of a recorder that has ended are in no trace.
        let traced = trace.map_or(Ok(()), |path| fs::write(path, telemetry.trace(TRACED)));
        drop(recorder);
        drop(collecting);
        drop(seconds);
        let written = match writer.join() {
            Ok(file) => file.missing().map_or(Ok(()), |words| Err(io::Error::other(words))),
            Err(_) => Err(io::Error::other("the thread that writes seconds has failed")),
        };
        let lost_frames = telemetry.snapshot().lost_frames;
        let of_frames = telemetry.finish();
        let mut missing = Vec::new();
        for (file, result, (lost, what)) in [
            (FRAMES_FILE, of_frames, (lost_frames, "frames")),
            (SECONDS_FILE, written, (lost_seconds, "seconds")),
            (TRACE_FILE, traced, (0, "frames")),
        ] {
            missing.extend(result.err().map(|error| format!("{file} is not whole: {error}")));
            if lost > 0 {
                missing.push(format!("{file} is not whole: {lost} {what} found no room while the disk was slow"));
            }
        }
        Written { lost: lost_frames + lost_seconds, missing }
    }
}

/// Removes the folder of a run that has failed before its first measured frame.
pub(super) fn remove_empty(folder: &Path) {
    let path = folder.join(FRAMES_FILE);
    if read_seconds(&path).is_ok_and(|seconds| seconds.is_empty()) {
        // A file that cannot be removed stays: the run has failed for another reason.
        let _ = fs::remove_file(&path);
        let _ = fs::remove_file(folder.join(SECONDS_FILE));
        let _ = fs::remove_dir(folder);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use throng_telemetry::WAITING_FRAMES_MAX;

    use super::*;

    /// More than may wait, while each write takes as long as `slow_write` says.
    fn write_behind(slow_write: Duration) -> (Written, Duration, [usize; 2], u64) {
        const FRAMES: u64 = 2 * WAITING_FRAMES_MAX as u64;
        const SECONDS: usize = 2 * SECONDS_WAITING;
        let folder = tempfile::tempdir().expect("a folder");
        let disk = Disk::with(slow_write);
        let mut samples = Samples::create(folder.path(), Kept::default(), &disk).expect("files");
        let mut record = TickRecord::default();
        record.subsystem_ns[0] = 1;
        let finish = Finish { after_plan: Duration::ZERO, skipped: 0 };
        // The second frame is so much later that the collector writes, and waits for the disk.
        let mut frame = |samples: &mut Samples, number: u64| {
            record.tick = number;
            samples.take(&record, Duration::from_millis(number + if number == 0 { 0 } else { 10_000 }), finish);
        };
        disk.set_slow(true);
        samples.take_second(&Second::default());
        (0..2).for_each(|number| frame(&mut samples, number));
        let until = Instant::now() + Duration::from_secs(20);
        while disk.delayed() < 2 {
            assert!(Instant::now() < until, "nobody writes");
            std::thread::sleep(Duration::from_millis(1));
        }
        let began = Instant::now();
        (2..2 + FRAMES).for_each(|number| frame(&mut samples, number));
        (0..SECONDS).for_each(|_| samples.take_second(&Second::default()));
        let took = began.elapsed();
        disk.set_slow(false);
        let written = samples.finish();
        let lines = fs::read_to_string(folder.path().join(SECONDS_FILE)).expect("it is there").lines().count();
        // Each frame is in a millisecond of its own.
        let frames = throng_telemetry::read_longest(&folder.path().join(FRAMES_FILE), 20_000);
        (written, took, [frames.expect("a whole file").len(), lines], FRAMES + SECONDS as u64 + 3)
    }

    #[test]
    fn a_slow_disk_is_not_waited_for_and_what_finds_no_room_is_counted() {
        let (written, took, [frames, lines], all) = write_behind(Duration::from_millis(400));
        assert!(took < Duration::from_millis(300), "the tick waits for the disk: {took:?}");
        // 256 frames and 64 seconds may wait, and a few are on their way.
        assert!((WAITING_FRAMES_MAX..WAITING_FRAMES_MAX + 32).contains(&frames), "{frames} frames");
        assert!((SECONDS_WAITING..SECONDS_WAITING + 4).contains(&lines), "{lines} seconds");
        assert_eq!(written.lost + (frames + lines) as u64, all, "each is either written or counted: {written:?}");
        let [of_frames, of_seconds] = &written.missing[..] else { panic!("{written:?}") };
        assert!(
            of_frames.contains("frames.parquet is not whole") && of_seconds.contains("seconds.jsonl"),
            "{written:?}"
        );
    }
}
