//! The flight recorder: the last seconds before a slow frame, in a file.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use throng_file::write_whole;
use throng_meter::Subsystems;

use crate::figures::Cause;
use crate::history::History;
use crate::recorder::FrameTimes;
use crate::trace::Trace;

/// After a file that could not be written, the next one is tried in this part of the interval.
const FAILED_PART: u32 = 10;

/// Where and how often slow frames are written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlightOptions {
    /// The folder of the files. Made if it is not there.
    pub folder: PathBuf,
    /// At most one file in this time of play, over all recorders. After one that could not be written it is a tenth of that.
    pub interval: Duration,
    /// The newest files that are kept; older ones of this process are removed.
    pub files_max: usize,
    /// The largest file. If the last seconds are more than that, the oldest frames are left out.
    pub bytes_max: usize,
}

impl FlightOptions {
    /// At most a file in ten seconds, 16 files of 16 MiB.
    pub fn new(folder: impl Into<PathBuf>) -> FlightOptions {
        FlightOptions { folder: folder.into(), interval: Duration::from_secs(10), files_max: 16, bytes_max: 16 << 20 }
    }
}

/// Writes files for slow frames.
#[derive(Debug)]
pub(crate) struct Flight {
    options: FlightOptions,
    /// The frame of the last file that was tried, and how long no other is after it.
    last: Option<(u64, Duration)>,
    pub(crate) files: VecDeque<PathBuf>,
    pub(crate) suppressed: u64,
}

/// The subject of a file.
#[derive(Clone, Copy)]
pub(crate) struct Occasion<'a> {
    pub(crate) recorder: (usize, &'a str),
    pub(crate) frame: &'a FrameTimes,
    pub(crate) limit_ns: u64,
    pub(crate) cause: Cause,
}

impl Flight {
    /// Makes the folder, and finds out whether files can be written there.
    pub(crate) fn new(options: FlightOptions) -> io::Result<Flight> {
        fs::create_dir_all(&options.folder)?;
        let probe = options.folder.join(format!(".throng-{}", std::process::id()));
        fs::write(&probe, b"")?;
        fs::remove_file(&probe)?;
        Ok(Flight { options, last: None, files: VecDeque::new(), suppressed: 0 })
    }

    /// Writes the history of the recorder whose newest frame is slow. False if a file was tried shortly before.
    pub(crate) fn write(&mut self, occasion: Occasion<'_>, history: &History, names: &Subsystems) -> io::Result<bool> {
        let at_ns = occasion.frame.start_ns;
        // Recorders are read one after the other, so this frame may also be somewhat older than the last.
        if self.last.is_some_and(|(last_ns, pause)| u128::from(at_ns.abs_diff(last_ns)) < pause.as_nanos()) {
            self.suppressed += 1;
            return Ok(false);
        }
        self.last = Some((at_ns, self.options.interval / FAILED_PART));
        let path = self.options.folder.join(file_name(&occasion));
        write_whole(&path, self.text(&occasion, history, names))?;
        self.last = Some((at_ns, self.options.interval));
        self.files.retain(|file| *file != path);
        self.files.push_back(path);
        while self.files.len() > self.options.files_max.max(1) {
            // A file that somebody removed is gone as well.
            let _ = self.files.pop_front().map(fs::remove_file);
        }
        Ok(true)
    }

    fn text(&self, occasion: &Occasion<'_>, history: &History, names: &Subsystems) -> String {
        let (number, name) = occasion.recorder;
        // Room for the description of the file.
        let mut trace = Trace::new(names, self.options.bytes_max.saturating_sub(1_024 + 2 * name.len()));
        trace.name(number, name);
        let written = history.newest_first(0).take_while(|frame| trace.add(number, frame)).count();
        let frame = occasion.frame;
        let about: [(&str, Value); 9] = [
            ("recorder", name.into()),
            ("tick", frame.tick.into()),
            ("phase", frame.phase.name().into()),
            ("frame_ns", frame.wall_ns.into()),
            ("limit_ns", occasion.limit_ns.into()),
            ("cpu_ns", frame.cpu_ns.into()),
            ("cause", occasion.cause.name().into()),
            ("frames", written.into()),
            ("frames_left_out", (history.len() - written).into()),
        ];
        trace.finish(about.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
    }
}

/// Letters, digits and `-` of the recorder's name, and the tick.
fn file_name(occasion: &Occasion<'_>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let (number, name) = occasion.recorder;
    let name: String = name.chars().take(48).map(plain).collect();
    format!("slow-{number}-{name}-tick-{}.trace.json", occasion.frame.tick)
}
