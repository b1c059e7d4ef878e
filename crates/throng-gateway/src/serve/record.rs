//! Recordings of what clients say: one `.cpr` file for each session, as channeld writes them.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use throng_channeld::replay::{ReplayError, ReplayWriter};
use throng_wire::Time;
use tracing::warn;

use super::counters::{ShellCounters, add};
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

/// Begins recordings.
///
/// Names of files are those of no other process, on this machine or another one that shares the folder:
/// `session_<time of start>_<64 random bits>_<number>.cpr`.
#[derive(Debug)]
pub(crate) struct Recorder {
    options: RecordingOptions,
    counters: Arc<ShellCounters>,
    /// What all names begin with.
    name: String,
    /// Recordings that are being written.
    open: AtomicUsize,
    begun: AtomicUsize,
}

/// One session's recording. A file that cannot be written any more ends it; the session goes on.
#[derive(Debug)]
pub(crate) struct Recording {
    recorder: Arc<Recorder>,
    path: PathBuf,
    writer: Option<ReplayWriter<BufWriter<File>>>,
    last: Time,
}

impl Recorder {
    /// # Errors
    /// The folder cannot be made, or the system has no random numbers.
    pub(crate) fn new(options: RecordingOptions, counters: Arc<ShellCounters>) -> io::Result<Arc<Recorder>> {
        fs::create_dir_all(&options.folder)?;
        let random = getrandom::u64().map_err(io::Error::other)?;
        let name = format!("session_{}_{random:016x}", calendar::stamp(calendar::unix_s()));
        Ok(Arc::new(Recorder { options, counters, name, open: AtomicUsize::new(0), begun: AtomicUsize::new(0) }))
    }

    /// Begins the recording of a session, unless there are as many as allowed or its file cannot be made.
    pub(crate) fn begin(self: &Arc<Recorder>, now: Time) -> Option<Recording> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.options.sessions {
            self.open.fetch_sub(1, Ordering::Relaxed);
            add(&self.counters.recordings_limited, 1);
            return None;
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let path = self.options.folder.join(format!("{}_{number}.cpr", self.name));
        let mut recording = Recording { recorder: Arc::clone(self), path, writer: None, last: now };
        match create(&recording.path) {
            Ok(file) => {
                add(&self.counters.recordings, 1);
                recording.writer = Some(ReplayWriter::new(BufWriter::new(file), self.options.session_bytes));
                Some(recording)
            }
            Err(error) => {
                recording.fail(&error.into());
                None
            }
        }
    }
}

/// What clients say holds what they log in with: nobody else may read it.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

impl Recording {
    /// Appends a packet as it came, unpacked.
    pub(crate) fn write(&mut self, now: Time, packet: &[u8]) {
        let Some(writer) = &mut self.writer else { return };
        let offset_ns = now.micros_since(std::mem::replace(&mut self.last, now)) as i64 * 1_000;
        match writer.write(offset_ns, packet) {
            Ok(()) => {}
            Err(ReplayError::Full { .. }) => {
                add(&self.recorder.counters.recordings_limited, 1);
                self.end();
            }
            Err(error) => {
                self.fail(&error);
                self.writer = None;
            }
        }
    }

    fn end(&mut self) {
        if let Some(Err(error)) = self.writer.take().map(ReplayWriter::finish) {
            self.fail(&error);
        }
    }

    fn fail(&self, error: &ReplayError) {
        add(&self.recorder.counters.recordings_failed, 1);
        if self.recorder.counters.recordings_failed.load(Ordering::Relaxed).is_power_of_two() {
            warn!(path = %self.path.display(), tag = error.tag(), "a session is not recorded any further: {error}");
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.end();
        self.recorder.open.fetch_sub(1, Ordering::Relaxed);
    }
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
        recording.write(Time(7), b"\x0A\x02\x20\x64");
        recording.write(Time(9), &[0; 100]);
        recording.write(Time(9), b"\x0A\x02\x20\x65");
        let path = recording.path.clone();
        drop(recording);
        assert!(recorder.begin(Time(9)).is_some());
        assert_eq!(counts(&counters), [2, 0, 2]);
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
        assert_eq!(fs::read_dir(folder.path().join("sessions")).expect("it is there").count(), 8);
    }

    #[test]
    fn a_file_that_cannot_be_made_is_counted_and_takes_no_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let (recorder, counters) = recorder(folder.path(), 1);
        fs::remove_dir_all(folder.path().join("sessions")).expect("it was made");
        assert!((0..3).all(|_| recorder.begin(Time(0)).is_none()));
        assert_eq!(counts(&counters), [0, 3, 0]);
    }
}
