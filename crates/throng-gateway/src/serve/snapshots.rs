//! Snapshots of the engines in a file: when they are written, and how.
//!
//! ```text
//!   the writer's thread                           the engines' threads
//!   every so often, one engine after the other:
//!     asks for a part  -------------------------> makes it between two events
//!     writes it, and rests nine times as long <-- as that took
//!   FILE.new, fsync; renamed to FILE
//!
//!   at the end, when connections are closed:  <-- all parts at once
//! ```
//!
//! A snapshot that cannot be written leaves the last one as it is, and is counted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use thiserror::Error;
use throng_gateway_engine::Engine;
use throng_gateway_engine::histogram::Histogram;
use throng_gateway_engine::snapshot::{Framing, Part};
use tracing::{debug, error};

use super::clock::Clock;
use super::counters::ShellCounters;
use super::event::{Event, Events};

/// Where and when snapshots are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// The file.
    pub file: PathBuf,
    /// From the end of one to the beginning of the next; `None`: one at the end, and no other.
    pub every: Option<Duration>,
    /// A longer one is given up.
    pub max_bytes: u64,
}

/// Bytes of one part: a fraction of a millisecond of an engine's time.
const PART_BYTES: usize = 32 << 10;

/// An engine gives this part of its time at most.
const ENGINE_SHARE: u32 = 10;

/// Parts that may wait for the disk when everything ends.
const LAST_PARTS: usize = 64;

/// The time that the engines may take for a part. A busy one answers after its step.
const ANSWER: Duration = Duration::from_secs(60);

/// How snapshots went.
#[derive(Debug, Default)]
pub struct SnapshotCounters {
    /// Snapshots that were written.
    pub written: AtomicU64,
    /// Snapshots that were not.
    pub failed: AtomicU64,
    /// Bytes of the last one.
    pub bytes: AtomicU64,
    /// How long it took to make the last one, in ms.
    pub took_ms: AtomicU64,
    /// How long engines were held up by one part.
    pub part: Histogram,
    /// When the last one was complete, or the gateway began to make them. `None`: it makes none.
    since: Mutex<Option<Instant>>,
}

impl SnapshotCounters {
    /// The age of the last snapshot; before the first one, the time since the start. `None` if none are made.
    pub fn age(&self) -> Option<Duration> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }

    fn begin_to_age(&self) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// Why a snapshot was not written.
#[derive(Debug, Error)]
enum WriteError {
    #[error("the file cannot be written: {0}")]
    File(#[from] io::Error),
    #[error("it would have more than max_snapshot_bytes = {limit_bytes}")]
    TooLong { limit_bytes: u64 },
    #[error("an engine does not answer")]
    NoAnswer,
    #[error("the gateway ends")]
    Ended,
}

/// To an engine: a part is wanted.
pub(crate) struct Ask {
    begins: bool,
    reply: Sender<(Part, Duration)>,
}

impl Ask {
    /// Makes the part. Who asked may be gone.
    pub(crate) fn answer(self, engine: &mut Engine, clock: Clock, counters: &ShellCounters) {
        let begin = clock.now();
        if self.begins {
            engine.begin_snapshot();
        }
        let part = engine.snapshot_part(PART_BYTES);
        let took_us = clock.now().micros_since(begin);
        counters.snapshots.part.record(took_us, 1);
        let _ = self.reply.send((part, Duration::from_micros(took_us)));
    }
}

/// Where the last parts go.
#[derive(Clone)]
pub(crate) struct LastParts(SyncSender<Part>);

impl LastParts {
    /// All parts of an engine that does nothing more. Without somebody who takes them it ends at once.
    pub(crate) fn send_all(self, engine: &mut Engine) {
        engine.begin_snapshot();
        loop {
            let part = engine.snapshot_part(PART_BYTES);
            let is_last = part.is_last();
            if self.0.send(part).is_err() || is_last {
                return;
            }
        }
    }
}

/// A snapshot that is being written.
struct Draft<'a> {
    options: &'a SnapshotOptions,
    out: BufWriter<File>,
    framing: Framing,
    buffer: Vec<u8>,
    bytes: u64,
}

impl Draft<'_> {
    fn begin(options: &SnapshotOptions) -> Result<Draft<'_>, WriteError> {
        let mut buffer = Vec::new();
        let framing = Framing::begin(&mut buffer);
        let out = BufWriter::new(create(&draft_of(&options.file))?);
        let mut draft = Draft { options, out, framing, buffer, bytes: 0 };
        draft.flush()?;
        Ok(draft)
    }

    fn put(&mut self, part: &Part) -> Result<(), WriteError> {
        self.framing.put(part, &mut self.buffer);
        self.flush()
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        self.bytes += self.buffer.len() as u64;
        if self.bytes > self.options.max_bytes {
            return Err(WriteError::TooLong { limit_bytes: self.options.max_bytes });
        }
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// The file takes the place of the one before it; its length.
    fn complete(mut self) -> Result<u64, WriteError> {
        let framing = std::mem::take(&mut self.framing);
        framing.end(&mut self.buffer);
        self.flush()?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(draft_of(&self.options.file), &self.options.file)?;
        // The name has to be on the disk as well.
        File::open(folder_of(&self.options.file))?.sync_all()?;
        Ok(self.bytes)
    }
}

fn create(draft: &Path) -> io::Result<File> {
    // States and names of players are nobody else's business.
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(draft)
}

/// The name of a file until it is complete.
fn draft_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes snapshots, until the gateway ends.
pub(crate) struct Snapshots {
    writer: Arc<Writer>,
    thread: JoinHandle<()>,
    stop: Sender<()>,
}

struct Writer {
    options: SnapshotOptions,
    events: Events,
    counters: Arc<ShellCounters>,
}

impl Snapshots {
    /// Begins to write them.
    pub(crate) fn start(
        options: SnapshotOptions,
        events: Events,
        counters: Arc<ShellCounters>,
    ) -> io::Result<Snapshots> {
        // Better now than in half a minute.
        create(&draft_of(&options.file))?;
        fs::remove_file(draft_of(&options.file))?;
        counters.snapshots.begin_to_age();
        let (stop, stopped) = mpsc::channel();
        let writer = Arc::new(Writer { options, events, counters });
        let own = Arc::clone(&writer);
        let thread = thread::Builder::new().name("snapshots".into()).spawn(move || own.run(&stopped))?;
        Ok(Snapshots { writer, thread, stop })
    }

    /// From now on only the last one is written: the parts that all engines send when they are told where to.
    pub(crate) fn begin_last(self) -> io::Result<(LastParts, JoinHandle<()>)> {
        let writer = self.stop();
        let (sender, parts) = mpsc::sync_channel(LAST_PARTS);
        let last = thread::Builder::new().name("snapshot".into()).spawn(move || writer.write_last(&parts))?;
        Ok((LastParts(sender), last))
    }

    /// Writes no more, not even one at the end.
    pub(crate) fn end(self) {
        self.stop();
    }

    fn stop(self) -> Arc<Writer> {
        drop(self.stop);
        let _ = self.thread.join();
        self.writer
    }
}

impl Writer {
    fn run(&self, stopped: &Receiver<()>) {
        let Some(every) = self.options.every else {
            // There is nothing to do before the end.
            let _ = stopped.recv();
            return;
        };
        while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            let begin = Instant::now();
            let result = self.write(stopped);
            self.note(begin, result);
        }
    }

    fn write(&self, stopped: &Receiver<()>) -> Result<u64, WriteError> {
        let mut draft = Draft::begin(&self.options)?;
        for engine in 0..self.events.engine_count() {
            let mut begins = true;
            loop {
                let (part, took) = self.ask(engine, std::mem::take(&mut begins))?;
                draft.put(&part)?;
                if part.is_last() {
                    break;
                }
                match stopped.try_recv() {
                    Err(TryRecvError::Empty) => thread::sleep(took * (ENGINE_SHARE - 1)),
                    _ => return Err(WriteError::Ended),
                }
            }
        }
        draft.complete()
    }

    fn ask(&self, engine: usize, begins: bool) -> Result<(Part, Duration), WriteError> {
        let (reply, answer) = mpsc::channel();
        self.events.send_to(engine, Event::Snapshot(Ask { begins, reply })).map_err(|_| WriteError::NoAnswer)?;
        answer.recv_timeout(ANSWER).map_err(|_| WriteError::NoAnswer)
    }

    /// The one at the end, of the parts of all engines.
    fn write_last(&self, parts: &Receiver<Part>) {
        let begin = Instant::now();
        let result = self.put_last(parts);
        self.note(begin, result);
    }

    fn put_last(&self, parts: &Receiver<Part>) -> Result<u64, WriteError> {
        let mut draft = Draft::begin(&self.options)?;
        let mut complete = 0;
        for part in parts {
            draft.put(&part)?;
            complete += usize::from(part.is_last());
        }
        match complete == self.events.engine_count() {
            true => draft.complete(),
            false => Err(WriteError::NoAnswer),
        }
    }

    fn note(&self, begin: Instant, result: Result<u64, WriteError>) {
        let counters = &self.counters.snapshots;
        match result {
            Ok(bytes) => {
                let took_ms = begin.elapsed().as_millis() as u64;
                counters.written.fetch_add(1, Ordering::Relaxed);
                counters.bytes.store(bytes, Ordering::Relaxed);
                counters.took_ms.store(took_ms, Ordering::Relaxed);
                counters.begin_to_age();
                debug!(bytes, took_ms, "a snapshot was written");
            }
            Err(cause) => {
                let _ = fs::remove_file(draft_of(&self.options.file));
                if !matches!(cause, WriteError::Ended) {
                    counters.failed.fetch_add(1, Ordering::Relaxed);
                    error!(file = %self.options.file.display(), "a snapshot was not written: {cause}");
                }
            }
        }
    }
}
