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

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use throng_file::WholeFile;
use throng_gateway_engine::snapshot::Part;
use tracing::{debug, error};

use super::counters::ShellCounters;
use super::draft::{Draft, SnapshotOptions, WriteError};
use super::event::{Event, Events};
use super::part::{LastParts, PartRequest};

/// An engine gives this part of its time at most.
const ENGINE_SHARE: u32 = 10;

/// Parts that may wait for the disk when everything ends.
const LAST_PARTS: usize = 64;

/// The time that the engines may take for a part. A busy one answers after its step.
const ANSWER: Duration = Duration::from_secs(60);

/// Writes snapshots, until the gateway ends.
pub(crate) struct Snapshots {
    writer: Arc<Writer>,
    thread: JoinHandle<()>,
    stop: Sender<()>,
}

struct Writer {
    every: Option<Duration>,
    /// A longer snapshot is given up.
    max_bytes: AtomicU64,
    file: WholeFile,
    events: Events,
    counters: Arc<ShellCounters>,
}

impl Snapshots {
    /// Begins to write them, to a file that was claimed before or is claimed now.
    pub(crate) fn start(
        options: SnapshotOptions,
        claimed: Option<WholeFile>,
        events: Events,
        counters: Arc<ShellCounters>,
    ) -> io::Result<Snapshots> {
        let file = claimed.map_or_else(|| WholeFile::claim(&options.file), Ok)?;
        counters.snapshots.begin_to_age();
        let (stop, stopped) = mpsc::channel();
        let SnapshotOptions { every, max_bytes, .. } = options;
        let writer = Arc::new(Writer { every, max_bytes: max_bytes.into(), file, events, counters });
        let own = Arc::clone(&writer);
        let thread = thread::Builder::new().name("snapshots".into()).spawn(move || own.run(&stopped))?;
        Ok(Snapshots { writer, thread, stop })
    }

    /// From the next one on, a snapshot may have so many bytes.
    pub(crate) fn set_max_bytes(&self, max_bytes: u64) {
        self.writer.max_bytes.store(max_bytes, Ordering::Relaxed);
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
        let Some(every) = self.every else {
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
        let mut draft = Draft::begin(&self.file, self.max_bytes.load(Ordering::Relaxed))?;
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
        self.events
            .send_to(engine, Event::Snapshot(PartRequest { begins, reply }))
            .map_err(|_| WriteError::NoAnswer)?;
        answer.recv_timeout(ANSWER).map_err(|_| WriteError::NoAnswer)
    }

    /// The one at the end, of the parts of all engines.
    fn write_last(&self, parts: &Receiver<Part>) {
        let begin = Instant::now();
        let result = self.put_last(parts);
        self.note(begin, result);
    }

    fn put_last(&self, parts: &Receiver<Part>) -> Result<u64, WriteError> {
        let mut draft = Draft::begin(&self.file, self.max_bytes.load(Ordering::Relaxed))?;
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
                if !matches!(cause, WriteError::Ended) {
                    counters.failed.fetch_add(1, Ordering::Relaxed);
                    error!(file = %self.file.path().display(), "a snapshot was not written: {cause}");
                }
            }
        }
    }
}
