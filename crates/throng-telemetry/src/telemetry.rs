//! The collector: takes frames from recorders, keeps figures and the last seconds, writes files.

use std::fmt::{self, Debug, Formatter};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use parquet::data_type::ByteArray;
use serde_json::{Map, Value};
use thiserror::Error;
use throng_meter::Subsystems;

use crate::exposition::{self, Around};
use crate::figures::{Distributions, Figures, RecorderFigures, RecorderSums, Snapshot};
use crate::flight::{Flight, FlightOptions, Occasion};
use crate::history::History;
use crate::measuring::{Measuring, Price};
use crate::recorder::{Batch, Line, Recorder};
use crate::table::Table;
use crate::trace::Trace;
use crate::{Clock, FrameBudgets};

/// The largest trace that is made on request, in bytes.
pub const TRACE_BYTES_MAX: usize = 256 << 20;

/// How often [`Telemetry::collect_in_background`] collects.
const COLLECT_INTERVAL: Duration = Duration::from_millis(100);

/// Runs before each write of the Parquet file, on the thread that writes: a lab makes the disk slow with it.
#[derive(Clone)]
pub struct BeforeWrite(Arc<dyn Fn() + Send + Sync>);

impl BeforeWrite {
    /// `run` may wait. Meanwhile frames wait to be taken, up to [`WAITING_FRAMES_MAX`](crate::WAITING_FRAMES_MAX).
    pub fn new(run: impl Fn() + Send + Sync + 'static) -> BeforeWrite {
        BeforeWrite(Arc::new(run))
    }

    pub(crate) fn run(&self) {
        (self.0)();
    }
}

impl Debug for BeforeWrite {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeWrite")
    }
}

/// The records, and where they go.
#[derive(Clone, Debug)]
pub struct TelemetryOptions {
    /// The subsystems, those of the game included.
    pub subsystems: Subsystems,
    /// How long they may take.
    pub budgets: FrameBudgets,
    /// The time of which every frame is kept in full, for [`Telemetry::trace`] and the flight recorder.
    pub keep: Duration,
    /// Writes the frames before a slow one into a folder.
    pub flight: Option<FlightOptions>,
    /// A Parquet file with every frame. A file of this name is replaced.
    pub table: Option<PathBuf>,
    /// Runs before each write of that file, but the first, which creates it.
    pub before_write: Option<BeforeWrite>,
    /// Whether frames are added up, for [`Telemetry::snapshot`], [`Telemetry::prometheus`] and the flight recorder: 250 KiB for
    /// each subsystem that runs.
    pub has_figures: bool,
}

impl Default for TelemetryOptions {
    /// The subsystems of [`Subsystems::new`], no budgets, five seconds, no files.
    fn default() -> TelemetryOptions {
        TelemetryOptions {
            subsystems: Subsystems::new(),
            budgets: FrameBudgets::default(),
            keep: Duration::from_secs(5),
            flight: None,
            table: None,
            before_write: None,
            has_figures: true,
        }
    }
}

/// Telemetry that cannot start. All are faults of the configuration.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The folder of the flight recorder cannot be written.
    #[error("{}: the flight recorder cannot write here: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The Parquet file cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The flight recorder does not know which frames are slow.
    #[error("the flight recorder needs a limit: set slow_frame_ms or frame_ms in the budget file")]
    NoLimit,
}

impl StartError {
    /// A stable word for each kind of error.
    pub fn tag(&self) -> &'static str {
        match self {
            StartError::Folder { .. } => "folder",
            StartError::Table { .. } => "table",
            StartError::NoLimit => "no_limit",
        }
    }
}

/// Collects the frames of all recorders. Clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct Telemetry {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    subsystems: Arc<Subsystems>,
    /// Recorders that the collector has not seen yet.
    new: Mutex<Vec<Arc<Line>>>,
    collector: Mutex<Collector>,
}

#[derive(Debug)]
struct Collector {
    budgets: FrameBudgets,
    price: Price,
    keep_ns: u64,
    has_figures: bool,
    figures: Figures,
    tracks: Vec<Track>,
    made: usize,
    /// The frames that are swapped with the waiting ones of a recorder.
    spare: Batch,
    flight: Option<Flight>,
    dumps: u64,
    table: Option<Table>,
    write_errors: u64,
    last_write_error: Option<String>,
}

/// A recorder, as the collector sees it.
#[derive(Debug)]
struct Track {
    line: Arc<Line>,
    number: usize,
    name: ByteArray,
    sums: RecorderSums,
    history: History,
}

impl Telemetry {
    /// Begins with the best clock of this machine.
    ///
    /// # Errors
    /// A file or folder of the options cannot be written.
    pub fn start(options: TelemetryOptions) -> Result<Telemetry, StartError> {
        Telemetry::start_with_clock(options, Clock::new())
    }

    /// Begins with a clock of the caller, as [`Clock::manual`] for tests.
    ///
    /// # Errors
    /// A file or folder of the options cannot be written.
    pub fn start_with_clock(options: TelemetryOptions, clock: Clock) -> Result<Telemetry, StartError> {
        #[cfg(feature = "tracy")]
        tracy_client::Client::start();
        if options.flight.is_some() && options.budgets.slow_ns().is_none() {
            return Err(StartError::NoLimit);
        }
        let flight = options.flight.map(|flight| {
            let folder = flight.folder.clone();
            Flight::new(flight).map_err(|source| StartError::Folder { folder, source })
        });
        let before_write = options.before_write;
        let table = options.table.map(|path| {
            let table = Table::create(&path, &options.subsystems, before_write);
            table.map_err(|source| StartError::Table { path, source })
        });
        let collector = Collector {
            budgets: options.budgets,
            price: Price::measure(&clock, options.subsystems.count()),
            keep_ns: options.keep.as_nanos() as u64,
            has_figures: options.has_figures,
            figures: Figures::new(&options.subsystems),
            tracks: Vec::new(),
            made: 0,
            spare: Batch::new(options.subsystems.count()),
            flight: flight.transpose()?,
            dumps: 0,
            table: table.transpose()?,
            write_errors: 0,
            last_write_error: None,
        };
        Ok(Telemetry {
            shared: Arc::new(Shared {
                clock,
                subsystems: Arc::new(options.subsystems),
                new: Mutex::default(),
                collector: Mutex::new(collector),
            }),
        })
    }

    /// The clock of all frames.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// The names of all subsystems.
    pub fn subsystems(&self) -> &Subsystems {
        &self.shared.subsystems
    }

    /// A recorder for one match. Its name is in files and figures, and need not be unique.
    pub fn recorder(&self, name: &str) -> Recorder {
        let count = self.shared.subsystems.count();
        let line = Arc::new(Line::new(name, count));
        self.shared.new.lock().unwrap_or_else(PoisonError::into_inner).push(line.clone());
        #[cfg_attr(not(feature = "tracy"), expect(unused_mut, reason = "only Tracy needs names"))]
        let mut recorder = Recorder::new(line, self.shared.clock.clone(), count);
        #[cfg(feature = "tracy")]
        recorder.set_names(self.shared.subsystems.clone());
        recorder
    }

    /// Takes the frames that wait, adds them up, and writes files where they ask for it. To be called at least twice a
    /// second on a thread that plays no match; [`collect_in_background`](Telemetry::collect_in_background) does it.
    pub fn collect(&self) {
        drop(self.collector());
    }

    /// Collects on a thread of its own until the result is dropped.
    ///
    /// # Errors
    /// The system has no room for a thread.
    pub fn collect_in_background(&self) -> io::Result<Collecting> {
        let (telemetry, is_over) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let ending = is_over.clone();
        let work = move || {
            while !ending.load(Ordering::Acquire) {
                telemetry.collect();
                std::thread::park_timeout(COLLECT_INTERVAL);
            }
            telemetry.collect();
        };
        let thread = std::thread::Builder::new().name("telemetry".to_owned()).spawn(work)?;
        Ok(Collecting { is_over, thread: Some(thread) })
    }

    /// All figures, with those of the frames that waited.
    pub fn snapshot(&self) -> Snapshot {
        self.collector().snapshot(&self.shared.subsystems)
    }

    /// The distributions behind the figures of a [`snapshot`](Telemetry::snapshot), to be joined with those of other
    /// processes.
    pub fn distributions(&self) -> Distributions {
        let collector = self.collector();
        collector.figures.distributions(&self.shared.subsystems, &collector.budgets)
    }

    /// The text of Prometheus: what a server answers at `/metrics`, as `text/plain; version=0.0.4`.
    pub fn prometheus(&self) -> String {
        let collector = self.collector();
        let around = Around {
            recorders: collector.tracks.len(),
            dumps: collector.dumps,
            dumps_suppressed: collector.flight.as_ref().map_or(0, |flight| flight.suppressed),
            write_errors: collector.write_errors,
        };
        exposition::text(&collector.figures, &around, &self.shared.subsystems, &collector.budgets)
    }

    /// The newest frames of all recorders that have not ended, as a trace for Perfetto: those that began in the last
    /// `time` before the newest, as far as they are kept. Stops at [`TRACE_BYTES_MAX`].
    pub fn trace(&self, time: Duration) -> String {
        let collector = self.collector();
        let newest = collector.tracks.iter().filter_map(|track| track.sums.last).map(|frame| frame.start_ns).max();
        let from_ns = newest.unwrap_or(0).saturating_sub(time.as_nanos() as u64);
        let mut trace = Trace::new(&self.shared.subsystems, TRACE_BYTES_MAX);
        for track in &collector.tracks {
            trace.name(track.number, &track.line.name);
            for frame in track.history.newest_first(from_ns) {
                trace.add(track.number, &frame);
            }
        }
        trace.finish(Map::from_iter([("clock".to_owned(), Value::from(self.shared.clock.source()))]))
    }

    /// Forgets all figures, as after a warm-up. Files, and the last seconds, stay.
    pub fn reset_figures(&self) {
        let mut collector = self.collector();
        collector.figures = Figures::new(&self.shared.subsystems);
        collector.tracks.iter_mut().for_each(|track| track.sums = RecorderSums::default());
    }

    /// Writes the end of the Parquet file, without which nobody can read it. Later frames are in no file. The last handle
    /// does it too when it is dropped, but cannot say what went wrong. A file that cannot be written stays open: another call
    /// tries again.
    ///
    /// # Errors
    /// The file could not be written, now or before.
    pub fn finish(&self) -> io::Result<()> {
        let mut collector = self.collector();
        if let Some(table) = &mut collector.table {
            table.finish()?;
            collector.table = None;
        }
        match &collector.last_write_error {
            Some(error) => Err(io::Error::other(error.clone())),
            None => Ok(()),
        }
    }

    /// The collector, which has collected.
    fn collector(&self) -> MutexGuard<'_, Collector> {
        let mut collector = self.shared.collector.lock().unwrap_or_else(PoisonError::into_inner);
        let new = std::mem::take(&mut *self.shared.new.lock().unwrap_or_else(PoisonError::into_inner));
        collector.adopt(new, self.shared.subsystems.count());
        let before_ns = self.shared.clock.thread_cpu_ns();
        collector.collect(&self.shared.subsystems);
        let spent_ns = before_ns.zip(self.shared.clock.thread_cpu_ns()).map(|(from, to)| to.saturating_sub(from));
        if let Some(spent_ns) = spent_ns {
            *collector.figures.collector_ns.get_or_insert_default() += spent_ns;
        }
        collector
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let collector = self.collector.get_mut().unwrap_or_else(PoisonError::into_inner);
        let new = std::mem::take(self.new.get_mut().unwrap_or_else(PoisonError::into_inner));
        collector.adopt(new, self.subsystems.count());
        collector.collect(&self.subsystems);
        if let Some(mut table) = collector.table.take() {
            let _ = table.finish();
        }
    }
}

impl Collector {
    fn adopt(&mut self, lines: Vec<Arc<Line>>, subsystems: usize) {
        for line in lines {
            self.made += 1;
            let name = ByteArray::from(line.name.as_str());
            let history = History::new(self.keep_ns, subsystems);
            self.tracks.push(Track { line, number: self.made, name, sums: RecorderSums::default(), history });
        }
    }

    fn collect(&mut self, names: &Subsystems) {
        let mut tracks = std::mem::take(&mut self.tracks);
        let mut spare = std::mem::take(&mut self.spare);
        tracks.retain_mut(|track| {
            // Asked first: a recorder hands over its last frame before it says that it has ended.
            let has_ended = track.line.has_ended.load(Ordering::Acquire);
            std::mem::swap(&mut *track.line.waiting(), &mut spare);
            self.take(track, &spare, names);
            spare.clear();
            !has_ended
        });
        (self.tracks, self.spare) = (tracks, spare);
    }

    fn take(&mut self, track: &mut Track, batch: &Batch, names: &Subsystems) {
        self.figures.lost_frames += batch.lost_frames;
        self.figures.spans += batch.heads.iter().map(|head| u64::from(head.borders / 2 + head.skipped)).sum::<u64>();
        let mut borders = &batch.borders[..];
        for (head, parts_ns) in batch.heads.iter().zip(batch.parts_ns.chunks_exact(names.count())) {
            let (own, later) = borders.split_at(head.borders as usize);
            borders = later;
            let frame = &head.times;
            track.history.push(*head, parts_ns, own);
            track.sums.frames += 1;
            track.sums.last = Some(*frame);
            track.sums.sum_ns += frame.wall_ns;
            track.sums.max_ns = track.sums.max_ns.max(frame.wall_ns);
            let adds = |figures: &mut Figures| figures.add((&track.line.name, frame), parts_ns, (names, &self.budgets));
            let slow = Some(&mut self.figures).filter(|_| self.has_figures).and_then(adds);
            let limit_ns = self.budgets.slow_ns();
            if let (Some(cause), Some(limit_ns), Some(flight)) = (slow, limit_ns, &mut self.flight) {
                let occasion = Occasion { recorder: (track.number, &track.line.name), frame, limit_ns, cause };
                let written = flight.write(occasion, &track.history, names);
                self.dumps += u64::from(matches!(written, Ok(true)));
                self.note(written.map(|_| ()));
            }
            if let Some(table) = &mut self.table {
                let parts = (parts_ns, own, head.skipped == 0);
                let added = table.add((&track.name, frame), parts, &self.budgets.subsystems, names);
                self.note(added);
            }
        }
    }

    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.write_errors += 1;
            self.last_write_error = Some(error.to_string());
        }
    }

    fn snapshot(&self, names: &Subsystems) -> Snapshot {
        let recorder = |track: &Track| RecorderFigures {
            name: track.line.name.clone(),
            frames: track.sums.frames,
            last: track.sums.last,
            mean_frame_ns: track.sums.sum_ns as f64 / track.sums.frames.max(1) as f64,
            max_frame_ns: track.sums.max_ns,
        };
        Snapshot {
            recorders: self.tracks.iter().map(recorder).collect(),
            dumps: self.flight.iter().flat_map(|flight| flight.files.iter().cloned()).collect(),
            dumps_suppressed: self.flight.as_ref().map_or(0, |flight| flight.suppressed),
            write_errors: self.write_errors,
            last_write_error: self.last_write_error.clone(),
            measuring: Measuring {
                scopes_ns: self.price.of(self.figures.frames, self.figures.spans),
                collector_ns: self.figures.collector_ns,
            },
            ..self.figures.snapshot(names, &self.budgets)
        }
    }
}

/// A thread that collects. It stops, after a last time, when this is dropped.
#[derive(Debug)]
pub struct Collecting {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Collecting {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the collector was printed; the matches are unharmed.
            let _ = thread.join();
        }
    }
}
