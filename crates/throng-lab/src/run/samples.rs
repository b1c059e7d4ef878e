//! Each frame by subsystem, on its way to a file. The thread of the frame hands it over and never waits; another thread
//! writes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use throng::meter::TickRecord;
use throng_telemetry::{Collecting, FrameTimes, Phase, Recorder, Telemetry, TelemetryOptions, read_seconds};

use crate::pace::Finish;

/// The file with a row for each tick and subsystem.
const FRAMES_FILE: &str = "frames.parquet";
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
        Ok(Samples { recorder: telemetry.recorder("server"), collecting, telemetry, trace })
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

    pub(super) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Writes the trace, and the rest of the frames.
    pub(super) fn finish(self) -> std::io::Result<()> {
        let Samples { recorder, collecting, telemetry, trace } = self;
        // The frames of a recorder that has ended are in no trace.
        let traced = trace.map_or(Ok(()), |path| fs::write(path, telemetry.trace(TRACED)));
        drop(recorder);
        drop(collecting);
        telemetry.finish().and(traced)
    }
}

/// Removes the folder of a run that has failed before its first measured frame.
pub(super) fn remove_empty(folder: &Path) {
    let path = folder.join(FRAMES_FILE);
    if read_seconds(&path).is_ok_and(|seconds| seconds.is_empty()) {
        // A file that cannot be removed stays: the run has failed for another reason.
        let _ = fs::remove_file(&path);
        let _ = fs::remove_dir(folder);
    }
}
