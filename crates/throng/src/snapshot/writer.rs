//! Snapshots to a file, without holding up the tick.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use throng_file::WholeFile;

/// Counters of a [`SnapshotWriter`], since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotCounters {
    /// Snapshots that are in the file, or were until a newer one.
    pub written: u64,
    /// Those that could not be written: the file still has the one before.
    pub failed: u64,
    /// Those that were not taken, or gave way to the last one, because the disk had not finished the one before.
    pub skipped: u64,
    /// Bytes of the newest one in the file.
    pub bytes: u64,
}

/// Writes snapshots to one file, by a thread of its own.
///
/// Each is written beside the file (with `.new` behind its name), brought to the disk, and takes its place then: whenever the process or
/// the machine ends, the file has a whole one. A file has one writer at a time, which locks a file beside it (`.lock`). Other users of the
/// machine cannot read it.
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("throng-snapshots-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let file = folder.join("world.snapshot");
/// use throng::SnapshotWriter;
///
/// let writer = SnapshotWriter::start(&file)?;
/// // Every N seconds: writer.write(server.snapshot(&[]))
/// # let bytes = vec![1, 2, 3];
/// let is_taken = writer.write(bytes);
/// assert!(is_taken); // false while the one before is still being written
/// # let bytes = vec![4, 5, 6];
/// writer.end_with(bytes)?; // at the end of the program: one more, whatever the disk does
/// # assert_eq!(std::fs::read(&file)?, [4, 5, 6]);
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct SnapshotWriter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    file: WholeFile,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Option<Vec<u8>>,
    is_writing: bool,
    is_ending: bool,
    counters: SnapshotCounters,
    /// Why the newest one was not written.
    error: Option<io::Error>,
}

impl State {
    fn is_free(&self) -> bool {
        self.waiting.is_none() && !self.is_writing
    }
}

impl SnapshotWriter {
    /// Begins, and sees that the file can be written: better now than with the first snapshot. A program that goes on from the file
    /// begins before it reads it: a process that ends may still write its last one.
    ///
    /// # Errors
    /// Nothing can be written beside `file`, another writer has it, or there is no thread.
    pub fn start(file: &Path) -> io::Result<SnapshotWriter> {
        let shared = Shared { file: WholeFile::claim(file)?, state: Mutex::default(), changed: Condvar::new() };
        let shared = Arc::new(shared);
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("snapshots".to_owned()).spawn(move || own.run())?;
        Ok(SnapshotWriter { shared, thread: Some(thread) })
    }

    /// Whether a snapshot would be taken now. Making one costs time: ask first.
    pub fn is_free(&self) -> bool {
        self.shared.state().is_free()
    }

    /// Why the newest snapshot was not written; `None` if it was.
    pub fn error(&self) -> Option<String> {
        self.shared.state().error.as_ref().map(io::Error::to_string)
    }

    /// Hands a snapshot to the thread. False, and it is counted as skipped, if the disk has not finished the one before.
    pub fn write(&self, snapshot: Vec<u8>) -> bool {
        let mut state = self.shared.state();
        let is_free = state.is_free();
        match is_free {
            true => state.waiting = Some(snapshot),
            false => state.counters.skipped += 1,
        }
        drop(state);
        self.shared.changed.notify_all();
        is_free
    }

    /// Its counters.
    pub fn counters(&self) -> SnapshotCounters {
        self.shared.state().counters
    }

    /// Writes one more snapshot, after the one that the disk has not finished, and waits until it is written. In place of one that
    /// waits for its turn.
    ///
    /// # Errors
    /// As [`end`](Self::end).
    pub fn end_with(self, last: Vec<u8>) -> io::Result<()> {
        let mut state = self.shared.state();
        state.counters.skipped += u64::from(state.waiting.replace(last).is_some());
        drop(state);
        self.end()
    }

    /// Waits until the snapshot that it has is written.
    ///
    /// # Errors
    /// The newest one was not written: the file has an older one, or none.
    pub fn end(mut self) -> io::Result<()> {
        if !self.finish() {
            return Err(io::Error::other("the thread that writes snapshots has failed"));
        }
        self.shared.state().error.take().map_or(Ok(()), Err)
    }

    /// False if the thread has failed.
    fn finish(&mut self) -> bool {
        self.shared.state().is_ending = true;
        self.shared.changed.notify_all();
        self.thread.take().is_none_or(|thread| thread.join().is_ok())
    }
}

impl Drop for SnapshotWriter {
    /// Waits as [`end`](SnapshotWriter::end) does.
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.state();
        loop {
            if let Some(snapshot) = state.waiting.take() {
                state.is_writing = true;
                drop(state);
                let written = write(&self.file, &snapshot);
                state = self.state();
                state.is_writing = false;
                match &written {
                    Ok(()) => {
                        state.counters.written += 1;
                        state.counters.bytes = snapshot.len() as u64;
                    }
                    Err(_) => state.counters.failed += 1,
                }
                state.error = written.err();
                continue;
            }
            if state.is_ending {
                return;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn write(file: &WholeFile, snapshot: &[u8]) -> io::Result<()> {
    let mut draft = file.begin()?;
    draft.write_all(snapshot)?;
    draft.complete()
}
