//! Recordings of what clients say: one `.cpr` file for each session, as channeld writes them.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use throng_channeld::replay::ReplayWriter;
use throng_wire::Time;

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
#[derive(Debug)]
pub(crate) struct Recorder {
    options: RecordingOptions,
    /// Recordings that are being written.
    open: AtomicUsize,
    begun: AtomicUsize,
}

/// One session's recording. A file that cannot be written any more ends it; the session goes on.
#[derive(Debug)]
pub(crate) struct Recording {
    recorder: Arc<Recorder>,
    writer: Option<ReplayWriter<BufWriter<File>>>,
    last: Time,
}

impl Recorder {
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn new(options: RecordingOptions) -> io::Result<Arc<Recorder>> {
        fs::create_dir_all(&options.folder)?;
        Ok(Arc::new(Recorder { options, open: AtomicUsize::new(0), begun: AtomicUsize::new(0) }))
    }

    /// Begins the recording of a session, unless there are as many as allowed or its file cannot be made.
    pub(crate) fn begin(self: &Arc<Recorder>, now: Time) -> Option<Recording> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.options.sessions {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let path = self.options.folder.join(format!("session_{}_{number}.cpr", std::process::id()));
        let writer =
            File::create_new(path).ok().map(|file| ReplayWriter::new(BufWriter::new(file), self.options.session_bytes));
        Some(Recording { recorder: Arc::clone(self), writer, last: now })
    }
}

impl Recording {
    /// Appends a packet as it came, unpacked.
    pub(crate) fn write(&mut self, now: Time, packet: &[u8]) {
        let Some(writer) = &mut self.writer else { return };
        let offset_ns = now.micros_since(std::mem::replace(&mut self.last, now)) as i64 * 1_000;
        if writer.write(offset_ns, packet).is_err() {
            self.end();
        }
    }

    fn end(&mut self) {
        if let Some(writer) = self.writer.take() {
            // What cannot be written is lost; there is nobody to tell.
            let _ = writer.finish();
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

    #[test]
    fn a_recording_reads_as_it_was_written_and_is_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = RecordingOptions { folder: folder.path().join("sessions"), session_bytes: 40, sessions: 1 };
        let recorder = Recorder::new(options).expect("the folder can be made");
        let mut recording = recorder.begin(Time(5)).expect("the first");
        assert!(recorder.begin(Time(5)).is_none(), "one at a time");
        recording.write(Time(7), b"\x0A\x02\x20\x64");
        recording.write(Time(9), &[0; 100]);
        recording.write(Time(9), b"\x0A\x02\x20\x65");
        drop(recording);
        assert!(recorder.begin(Time(9)).is_some());
        let path = folder.path().join("sessions").join(format!("session_{}_0.cpr", std::process::id()));
        let packets: Vec<_> = ReplayReader::new(File::open(path).expect("it is there")).collect();
        assert_eq!(packets.len(), 1, "it ended where it was full");
        let first = packets[0].as_ref().expect("sound");
        assert_eq!((first.offset_ns, &first.packet[..]), (2_000, &b"\x0A\x02\x20\x64"[..]));
    }
}
