//! Files that grow by a line of JSON for each value, as the values come: a run that is killed has left them.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The file with a line for each second of the measured part.
pub const SECONDS_FILE: &str = "seconds.jsonl";

/// Such a file.
#[derive(Debug)]
pub struct LineFile {
    file: File,
    path: PathBuf,
    missing: Option<String>,
}

impl LineFile {
    /// A new file in the folder of a run.
    ///
    /// # Errors
    /// It is there already, or cannot be made. The error names it.
    pub fn create(folder: &Path, name: &str) -> io::Result<LineFile> {
        let path = folder.join(name);
        let file = OpenOptions::new().create_new(true).append(true).open(&path);
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()));
        Ok(LineFile { file: file.map_err(named)?, path, missing: None })
    }

    /// Adds a value. After an error, further ones are tried: a disk may have room again.
    pub fn push(&mut self, value: &impl Serialize) {
        let line = serde_json::to_string(value).map_err(io::Error::from);
        // In one piece: a line is whole, or not there.
        let written = line.and_then(|line| self.file.write_all(format!("{line}\n").as_bytes()));
        if let Err(error) = written {
            self.missing.get_or_insert(format!("{} is not whole: {error}", self.path.display()));
        }
    }

    /// Why it does not have all values, if it does not.
    pub fn missing(&self) -> Option<String> {
        self.missing.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_line_for_each_value_is_never_overwritten_and_says_if_it_is_not_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = LineFile::create(folder.path(), SECONDS_FILE).unwrap();
        file.push(&[1, 2]);
        file.push(&"a\nb");
        assert_eq!(std::fs::read_to_string(folder.path().join(SECONDS_FILE)).unwrap(), "[1,2]\n\"a\\nb\"\n");
        assert_eq!(file.missing(), None);
        let again = LineFile::create(folder.path(), SECONDS_FILE).unwrap_err().to_string();
        assert!(again.starts_with("cannot write ") && again.contains(SECONDS_FILE), "{again}");
        file.file = File::options().write(true).open("/dev/full").unwrap();
        file.push(&3);
        assert!(file.missing().is_some_and(|words| words.contains("seconds.jsonl is not whole")));
    }
}
