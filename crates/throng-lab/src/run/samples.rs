//! Each frame by subsystem, on its way to a file. The thread of the frame hands it over and never waits; another thread
//! writes it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use throng::meter::TickRecord;
use throng_telemetry::{Collecting, FrameTimes, Phase, Recorder, Telemetry, TelemetryOptions, read_seconds};

use crate::pace::Finish;
use throng_summary::Second;

/// The file with a row for each tick and subsystem.
const FRAMES_FILE: &str = "frames.parquet";
/// The file with a line for each second.
const SECONDS_FILE: &str = "seconds.jsonl";
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
    seconds: File,
    /// A second could not be written.
    fault: Option<io::Error>,
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
        let seconds = File::create_new(folder.join(SECONDS_FILE)).context("cannot write the seconds")?;
        Ok(Samples { recorder: telemetry.recorder("server"), collecting, telemetry, seconds, fault: None, trace })
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

    /// Writes a second, so that a run that is killed has it.
    pub(super) fn take_second(&mut self, second: &Second) {
        let written = serde_json::to_string(second).map_err(io::Error::from);
        let written = written.and_then(|line| self.seconds.write_all(format!("{line}\n").as_bytes()));
        if let Err(error) = written {
            self.fault.get_or_insert(error);
        }
    }

    pub(super) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Writes the trace, and the rest of the frames.
    pub(super) fn finish(self) -> io::Result<()> {
        let Samples { recorder, collecting, telemetry, seconds: _, fault, trace } = self;
        // The frames of a recorder that has ended are in no trace.
        let traced = trace.map_or(Ok(()), |path| fs::write(path, telemetry.trace(TRACED)));
        drop(recorder);
        drop(collecting);
        telemetry.finish().and(traced).and(fault.map_or(Ok(()), Err))
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
