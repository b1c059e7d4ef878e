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
use throng_telemetry::{Collecting, FrameTimes, Phase, Recorder, Telemetry, TelemetryOptions, read_seconds};

use throng_report::{LineFile, SECONDS_FILE};
use throng_summary::Second;

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
    lost: u64,
    /// The trace to write, if there is to be one.
    trace: Option<PathBuf>,
}

impl Samples {
    /// A new file in the run's folder. Its thread begins now, before that of the server has a core of its own.
    pub(super) fn create(folder: &Path, is_traced: bool, has_figures: bool) -> Result<Samples> {
        let options = TelemetryOptions {
            table: Some(folder.join(FRAMES_FILE)),
            // Else their distributions would be counted as the memory of connections.
            has_figures,
            keep: if is_traced { TRACED } else { Duration::ZERO },
            ..TelemetryOptions::default()
        };
        let telemetry = Telemetry::start(options)?;
        let collecting = telemetry.collect_in_background().context("cannot start the thread that writes frames")?;
        let trace = is_traced.then(|| folder.join(TRACE_FILE));
        let mut file = LineFile::create(folder, SECONDS_FILE)?;
        let (seconds, received) = sync_channel::<Second>(SECONDS_WAITING);
        let writer = std::thread::Builder::new().name("seconds".to_owned());
        let work = move || {
            received.iter().for_each(|second| file.push(&second));
            file
        };
        let writer = writer.spawn(work).context("cannot start a thread")?;
        let recorder = telemetry.recorder("server");
        Ok(Samples { recorder, collecting, telemetry, seconds, writer, lost: 0, trace })
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
        self.lost += u64::from(self.seconds.try_send(second.clone()).is_err());
    }

    pub(super) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Writes the trace, and the rest of the frames.
    pub(super) fn finish(self) -> io::Result<()> {
        let Samples { recorder, collecting, telemetry, seconds, writer, lost, trace } = self;
        // The frames of a recorder that has ended are in no trace.
        let traced = trace.map_or(Ok(()), |path| fs::write(path, telemetry.trace(TRACED)));
        drop(recorder);
        drop(collecting);
        drop(seconds);
        let written = match writer.join() {
            Ok(file) => file.missing().map_or(Ok(()), |words| Err(io::Error::other(words))),
            Err(_) => Err(io::Error::other("the thread that writes seconds has failed")),
        };
        let whole = if lost == 0 { Ok(()) } else { Err(io::Error::other(format!("{lost} seconds are missing"))) };
        telemetry.finish().and(traced).and(written).and(whole)
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
