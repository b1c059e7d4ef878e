//! Files that other processes read, and that end with the process that writes them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// A file without a name in any folder. Other processes of the same user, in the same PID namespace, open it by [`path`](Unnamed::path)
/// while its writer lives. It is gone with its writer, also if that is killed. A reader that has opened it can read on.
#[derive(Debug)]
pub(crate) struct Unnamed {
    file: File,
    path: PathBuf,
}

impl Unnamed {
    /// In memory, if the machine has a place for that.
    pub(crate) fn create() -> io::Result<Unnamed> {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        Unnamed::of(tempfile::tempfile_in(folder)?)
    }

    /// One that another process, which lives, has created. It stays when that process ends.
    pub(crate) fn join(path: &Path) -> io::Result<Unnamed> {
        Unnamed::of(File::options().read(true).write(true).open(path)?)
    }

    fn of(file: File) -> io::Result<Unnamed> {
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        // A system without /proc says so here, and not where the file is read.
        File::open(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        Ok(Unnamed { file, path })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_reader_sees_what_is_written_and_no_folder_has_the_file() {
        let written = Unnamed::create().unwrap();
        written.file().write_all(b"here").unwrap();
        let mut reader = File::open(written.path()).unwrap();
        written.file().write_all(b" and there").unwrap();
        let target = std::fs::read_link(written.path()).unwrap();
        assert!(!target.exists(), "{target:?} has a name");
        drop(written);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "here and there");
    }
}
