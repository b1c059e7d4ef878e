//! Recordings of clients' packets: one `.cpr` file for each session, in channeld's format.
//!
//! ```text
//!   connections' tasks --> queue, bounded by bytes --> a thread of its own: files
//! ```
//! A disk may take seconds for a write, and the tasks' threads serve everybody. So they hand over the packets and
//! continue. If more data waits for the disk than allowed, the recording of the session that adds more ends: a
//! recording with a gap would be wrong, one that ends early is only short.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use throng_channeld::replay::{ReplayError, ReplayWriter};
use throng_wire::Time;
use tracing::warn;

use super::counters::{ShellCounters, add};
use super::memory::{Holding, Part};
use crate::calendar;

/// Where recordings go, and how much of them there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingOptions {
    /// The folder; it is made if it is not there.
    pub folder: PathBuf,
    /// Bytes of one recording. Then it ends, with what it has.
    pub session_bytes: u64,
    /// Recordings that are written at one time. Further sessions are not recorded.
    pub sessions: usize,
}

/// Bytes that may wait for the disk. At 2 Mbit/s of each of 256 clients, a quarter of a second.
const WAITING_BYTES: usize = 16 << 20;
/// The memory of a waiting packet besides its bytes.
const JOB_BYTES: usize = 128;

/// Begins recordings.
///
/// Names of files are those of no other process, on this machine or another one that shares the folder:
/// `session_<time of start>_<64 random bits>_<number>.cpr`.
#[derive(Debug)]
pub(crate) struct Recorder {
    options: RecordingOptions,
    counters: Arc<ShellCounters>,
    /// The prefix of all names.
    name: String,
    /// Recordings that are being written.
    open: Arc<AtomicUsize>,
    begun: AtomicUsize,
    waiting_bytes: Arc<AtomicUsize>,
    jobs: Sender<Job>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// One session's recording. The session continues, whatever ends the recording.
#[derive(Debug)]
pub(crate) struct Recording {
    recorder: Arc<Recorder>,
    number: usize,
    is_over: Arc<AtomicBool>,
    last: Time,
}

/// A task of the thread.
#[derive(Debug)]
enum Job {
    /// A session begins. There are never more of them than may be recorded at one time.
    Begin { number: usize, path: PathBuf, is_over: Arc<AtomicBool> },
    /// It sent something.
    Write { number: usize, offset_ns: i64, packet: Bytes, waiting: Waiting },
    /// It has ended.
    End { number: usize },
    /// So has the gateway.
    Stop,
}

/// Bytes that wait for the disk.
#[derive(Debug)]
struct Waiting {
    waiting_bytes: Arc<AtomicUsize>,
    bytes: usize,
    _holding: Holding,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.waiting_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Recorder {
    /// # Errors
    /// The folder cannot be made, the system has no random numbers, or no thread.
    pub(crate) fn new(options: RecordingOptions, counters: Arc<ShellCounters>) -> io::Result<Arc<Recorder>> {
        Recorder::with(options, counters, create)
    }

    /// The same with another way to make files.
    fn with(
        options: RecordingOptions,
        counters: Arc<ShellCounters>,
        create: impl Fn(&Path) -> io::Result<File> + Send + 'static,
    ) -> io::Result<Arc<Recorder>> {
        fs::create_dir_all(&options.folder)?;
        let random = getrandom::u64().map_err(io::Error::other)?;
        let name = format!("session_{}_{random:016x}", calendar::stamp(calendar::unix_s()));
        let (jobs, inbox) = channel();
        let open = Arc::<AtomicUsize>::default();
        let files = Files {
            create: Box::new(create),
            session_bytes: options.session_bytes,
            counters: Arc::clone(&counters),
            open: Arc::clone(&open),
            by_number: HashMap::new(),
        };
        let writer = thread::Builder::new().name("recorder".into()).spawn(move || files.run(&inbox))?;
        Ok(Arc::new(Recorder {
            options,
            counters,
            name,
            open,
            begun: AtomicUsize::new(0),
            waiting_bytes: Arc::default(),
            jobs,
            writer: Mutex::new(Some(writer)),
        }))
    }

    /// Begins the recording of a session, unless there are as many as allowed.
    pub(crate) fn begin(self: &Arc<Recorder>, now: Time) -> Option<Recording> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.options.sessions {
            self.open.fetch_sub(1, Ordering::Relaxed);
            add(&self.counters.recordings_limited, 1);
            return None;
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let path = self.options.folder.join(format!("{}_{number}.cpr", self.name));
        let is_over = Arc::<AtomicBool>::default();
        self.tell(Job::Begin { number, path, is_over: Arc::clone(&is_over) });
        Some(Recording { recorder: Arc::clone(self), number, is_over, last: now })
    }

    /// Writes what waits, and ends. Nothing is recorded any more.
    pub(crate) fn finish(&self) {
        self.tell(Job::Stop);
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }

    /// If the thread has ended, so has the gateway.
    fn tell(&self, job: Job) {
        let _ = self.jobs.send(job);
    }
}

impl Recording {
    /// Appends a packet as it came, unpacked.
    pub(crate) fn write(&mut self, now: Time, packet: &Bytes) {
        let offset_ns = now.micros_since(std::mem::replace(&mut self.last, now)) as i64 * 1_000;
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        let Recorder { waiting_bytes, counters, .. } = &*self.recorder;
        let bytes = packet.len() + JOB_BYTES;
        let waiting = Waiting {
            waiting_bytes: Arc::clone(waiting_bytes),
            bytes,
            _holding: Holding::new(&counters.memory, Part::Recordings, bytes),
        };
        if waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > WAITING_BYTES {
            self.is_over.store(true, Ordering::Relaxed);
            add(&counters.recordings_slow, 1);
            return;
        }
        self.recorder.tell(Job::Write { number: self.number, offset_ns, packet: packet.clone(), waiting });
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.recorder.tell(Job::End { number: self.number });
    }
}

/// Makes a file.
type Create = dyn Fn(&Path) -> io::Result<File> + Send;

/// The thread's side: the files that are open.
struct Files {
    create: Box<Create>,
    session_bytes: u64,
    counters: Arc<ShellCounters>,
    open: Arc<AtomicUsize>,
    by_number: HashMap<usize, Session>,
}

struct Session {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    writer: Option<ReplayWriter<BufWriter<File>>>,
}

impl Files {
    fn run(mut self, inbox: &Receiver<Job>) {
        while let Ok(job) = inbox.recv() {
            match job {
                Job::Begin { number, path, is_over } => self.begin(number, path, is_over),
                Job::Write { number, offset_ns, packet, waiting } => {
                    self.write(number, offset_ns, &packet);
                    drop(waiting);
                }
                Job::End { number } => self.end(number),
                Job::Stop => break,
            }
        }
        let numbers: Vec<usize> = self.by_number.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.end(number));
    }

    fn begin(&mut self, number: usize, path: PathBuf, is_over: Arc<AtomicBool>) {
        let writer = match (self.create)(&path) {
            Ok(file) => {
                add(&self.counters.recordings, 1);
                Some(ReplayWriter::new(BufWriter::new(file), self.session_bytes))
            }
            Err(error) => {
                is_over.store(true, Ordering::Relaxed);
                self.fail(&path, &error.into());
                None
            }
        };
        self.by_number.insert(number, Session { path, is_over, writer });
    }

    fn write(&mut self, number: usize, offset_ns: i64, packet: &[u8]) {
        let Some(session) = self.by_number.get_mut(&number) else { return };
        let Some(writer) = &mut session.writer else { return };
        let Err(error) = writer.write(offset_ns, packet) else { return };
        session.is_over.store(true, Ordering::Relaxed);
        let (writer, path) = (session.writer.take(), session.path.clone());
        match error {
            ReplayError::Full { .. } => {
                add(&self.counters.recordings_limited, 1);
                self.close(&path, writer);
            }
            error => self.fail(&path, &error),
        }
    }

    fn end(&mut self, number: usize) {
        let Some(session) = self.by_number.remove(&number) else { return };
        self.close(&session.path, session.writer);
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn close(&self, path: &Path, writer: Option<ReplayWriter<BufWriter<File>>>) {
        if let Some(Err(error)) = writer.map(ReplayWriter::finish) {
            self.fail(path, &error);
        }
    }

    fn fail(&self, path: &Path, error: &ReplayError) {
        add(&self.counters.recordings_failed, 1);
        if self.counters.recordings_failed.load(Ordering::Relaxed).is_power_of_two() {
            warn!(path = %path.display(), tag = error.tag(), "a session is not recorded any further: {error}");
        }
    }
}

/// The clients' packets contain their login tokens: nobody else may read them.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_channeld::replay::ReplayReader;

    fn recorder(folder: &Path, sessions: usize) -> (Arc<Recorder>, Arc<ShellCounters>) {
        let options = RecordingOptions { folder: folder.join("sessions"), session_bytes: 40, sessions };
        let counters = Arc::new(ShellCounters::default());
        (Recorder::new(options, Arc::clone(&counters)).expect("the folder can be made"), counters)
    }

    fn counts(counters: &ShellCounters) -> [u64; 3] {
        let counts = [&counters.recordings, &counters.recordings_failed, &counters.recordings_limited];
        counts.map(|count| count.load(Ordering::Relaxed))
    }

    #[test]
    fn a_recording_reads_as_it_was_written_and_is_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let (recorder, counters) = recorder(folder.path(), 1);
        let mut recording = recorder.begin(Time(5)).expect("the first");
        assert!(recorder.begin(Time(5)).is_none(), "one at a time");
        recording.write(Time(7), &Bytes::from_static(b"\x0A\x02\x20\x64"));
        recording.write(Time(9), &vec![0; 100].into());
        recording.write(Time(9), &Bytes::from_static(b"\x0A\x02\x20\x65"));
        drop(recording);
        while recorder.open.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        assert!(recorder.begin(Time(9)).is_some());
        recorder.finish();
        assert_eq!(counts(&counters), [2, 0, 2]);
        assert_eq!(counters.memory.used_bytes(), 0, "nothing waits");
        let path = recorder.options.folder.join(format!("{}_0.cpr", recorder.name));
        let packets: Vec<_> = ReplayReader::new(File::open(path).expect("it is there")).collect();
        assert_eq!(packets.len(), 1, "it ended where it was full");
        let first = packets[0].as_ref().expect("sound");
        assert_eq!((first.offset_ns, &first.packet[..]), (2_000, &b"\x0A\x02\x20\x64"[..]));
    }

    #[test]
    fn two_gateways_that_share_a_folder_do_not_get_into_each_others_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let gateways = [(); 2].map(|()| recorder(folder.path(), 8));
        let recordings: Vec<Recording> =
            gateways.iter().flat_map(|(recorder, _)| [(); 4].map(|()| recorder.begin(Time(0)))).flatten().collect();
        assert_eq!(recordings.len(), 8);
        drop(recordings);
        gateways.iter().for_each(|(recorder, _)| recorder.finish());
        assert_eq!(fs::read_dir(folder.path().join("sessions")).expect("it is there").count(), 8);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_counted_and_takes_no_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let (recorder, counters) = recorder(folder.path(), 1);
        fs::remove_dir_all(folder.path().join("sessions")).expect("it was made");
        for _ in 0..3 {
            while recorder.open.load(Ordering::Relaxed) > 0 {
                thread::yield_now();
            }
            assert!(recorder.begin(Time(0)).is_some());
        }
        recorder.finish();
        assert_eq!(counts(&counters), [0, 3, 0]);
    }

    #[test]
    fn a_disk_that_takes_its_time_holds_up_no_session() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = RecordingOptions { folder: folder.path().into(), session_bytes: 1 << 20, sessions: 2 };
        let (release, released) = channel::<()>();
        let is_late = Arc::new(AtomicBool::new(false));
        let slow = {
            let is_late = Arc::clone(&is_late);
            move |path: &Path| {
                let waited = released.recv_timeout(std::time::Duration::from_secs(20));
                is_late.fetch_or(waited.is_err(), Ordering::Relaxed);
                create(path)
            }
        };
        let recorder = Recorder::with(options, Arc::default(), slow).expect("the folder can be made");
        let mut recordings = [(); 2].map(|()| recorder.begin(Time(0)).expect("there is room"));
        for recording in &mut recordings {
            recording.write(Time(1), &Bytes::from_static(b"\x0A\x02\x20\x64"));
        }
        drop(recordings);
        (0..2).for_each(|_| release.send(()).expect("it waits"));
        recorder.finish();
        assert!(!is_late.load(Ordering::Relaxed), "sessions have waited for the disk");
        let files = fs::read_dir(folder.path()).expect("it is there").flatten();
        let bytes: Vec<u64> = files.map(|file| file.metadata().expect("a file").len()).collect();
        assert!(bytes.len() == 2 && bytes.iter().all(|&bytes| bytes > 4), "{bytes:?}");
    }

    #[test]
    fn a_disk_that_does_not_keep_up_ends_recordings_and_holds_up_nobody() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = RecordingOptions { folder: folder.path().into(), session_bytes: 1 << 40, sessions: 2 };
        let counters = Arc::new(ShellCounters::default());
        let recorder = Recorder::new(options, Arc::clone(&counters)).expect("the folder can be made");
        let mut recording = recorder.begin(Time(0)).expect("the first");
        // As if this much waited already.
        recorder.waiting_bytes.fetch_add(WAITING_BYTES - 10_000, Ordering::Relaxed);
        let packet = Bytes::from(vec![7; 50_000]);
        (0..100).for_each(|_| recording.write(Time(1), &packet));
        assert_eq!(counters.recordings_slow.load(Ordering::Relaxed), 1, "it ended once");
        recorder.finish();
        assert_eq!(counters.memory.used_bytes(), 0);
    }
}
