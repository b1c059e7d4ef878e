//! A run as one line of an index: its parts have their values, and no seconds.

use std::collections::BTreeSet;
use std::path::PathBuf;

use throng_report::printable;

use super::{Part, StoredRun};

/// A text or a name of an index is at most so long.
const TEXT_CHARS_MAX: usize = 200;
/// The words of a load tell each setting and each fault.
const WORKLOAD_CHARS_MAX: usize = 8_192;
/// A run has at most so many parts.
const PARTS_MAX: usize = 1_000;

impl StoredRun {
    /// The run as a line of JSON.
    pub fn to_line(&self) -> String {
        let mut run = self.clone();
        run.folder = PathBuf::from(self.name());
        run.parts.retain(|_, part| part.value.is_finite());
        serde_json::to_string(&run).unwrap_or_default()
    }

    /// The run of a line; `None` if it is damaged.
    pub fn from_line(line: &str) -> Option<StoredRun> {
        let run = serde_json::from_str::<StoredRun>(line).ok()?.printable();
        (run.parts.len() <= PARTS_MAX).then_some(run)
    }

    /// The run, which may come from anywhere, with texts that are fit for a terminal.
    pub(crate) fn printable(mut self) -> StoredRun {
        let plain = |text: &mut String| *text = printable(text).chars().take(TEXT_CHARS_MAX).collect();
        // Two runs may differ at the end of these words only.
        self.workload = printable(&self.workload).chars().take(WORKLOAD_CHARS_MAX).collect();
        [&mut self.revision, &mut self.started_at, &mut self.cpu].into_iter().for_each(plain);
        let is_plain = |name: &String| name.len() <= TEXT_CHARS_MAX && !name.contains(char::is_control);
        self.parts.retain(|name, _| is_plain(name));
        self.parts.values_mut().for_each(|part| plain(&mut part.unit));
        self
    }

    /// The figures of the run as a whole that it has, the most important first.
    pub fn main_figures(&self) -> impl Iterator<Item = (&'static str, &Part)> {
        // Kinds of runs share names.
        let mut told = BTreeSet::new();
        let names = throng_report::keys().map(|metric| metric.name).filter(move |name| told.insert(*name));
        names.filter_map(|name| Some((name, self.parts.get(name)?)))
    }

    /// The same run, in a folder of this name.
    pub fn named(self, name: &str) -> StoredRun {
        StoredRun { folder: self.folder.with_file_name(name), ..self }
    }

    /// The name of its folder.
    pub fn name(&self) -> String {
        self.folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}
