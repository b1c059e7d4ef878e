//! A file that is whole at every moment, whenever the process or the machine ends: for snapshots. Also the faults of files that people
//! write, each in one line: [`line_of`], [`friendly`], [`nearest`].
//!
//! ```text
//!  begin            FILE.new   created, or emptied
//!  write            FILE.new   grows
//!  complete         FILE.new   brought to the disk, renamed to FILE; then the folder is brought to the disk
//!
//!  claim            FILE.lock  locked by one process at a time, for as long as it has the file. It stays, and is empty
//! ```
//!
//! Two processes that write one file would empty each other's `FILE.new`, and could rename it half written. So the second one is
//! refused. Other users of the machine cannot read the file.
//!
//! ```
//! # let folder = std::env::temp_dir().join(format!("throng-file-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("world.snapshot");
//! use std::io::Write;
//! use throng_file::WholeFile;
//!
//! let file = WholeFile::claim(&path)?;
//! let mut draft = file.begin()?;
//! draft.write_all(b"everything")?;
//! assert!(!path.exists());
//! draft.complete()?;
//! assert_eq!(std::fs::read(&path)?, b"everything");
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), std::io::Error>(())
//! ```

#![forbid(unsafe_code)]

mod fault;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use fault::{friendly, line_of, nearest};

/// A file of this process. It stays this process's until this is dropped.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    newest: Mutex<Newest>,
    /// `None` where the file system has no locks.
    _lock: Option<File>,
}

/// The newest draft.
#[derive(Debug, Default)]
struct Newest {
    number: u64,
    /// Somebody has it, and may write to its file.
    is_open: bool,
}

/// The next version of a [`WholeFile`]. If it is dropped before it is complete, it is removed, and the file stays as it is.
#[derive(Debug)]
pub struct Draft<'a> {
    file: &'a WholeFile,
    number: u64,
    /// `None` once it is complete.
    out: Option<BufWriter<File>>,
}

impl WholeFile {
    /// Claims a file, and sees that it can be written: better now than with the first version.
    ///
    /// # Errors
    /// Another process has it, it is a folder, or nothing can be written beside it.
    pub fn claim(path: &Path) -> io::Result<WholeFile> {
        if path.is_dir() {
            return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder"));
        }
        let lock = private().write(true).create(true).truncate(false).open(beside(path, ".lock"))?;
        let lock = match lock.try_lock() {
            Ok(()) => Some(lock),
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(ErrorKind::ResourceBusy, "another process writes it"));
            }
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => None,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        let file = WholeFile { path: path.to_owned(), newest: Mutex::default(), _lock: lock };
        drop(file.begin()?);
        Ok(file)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins the next version. One that was begun before and is not complete is void: what is still written to it goes nowhere.
    ///
    /// # Errors
    /// Nothing can be written beside the file.
    pub fn begin(&self) -> io::Result<Draft<'_>> {
        let mut newest = self.newest();
        newest.number += 1;
        if newest.is_open {
            // A former draft is to keep out of the new one.
            fs::remove_file(self.draft_path()).or_else(|error| match error.kind() {
                ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
            newest.is_open = false;
        }
        let out = private().write(true).create(true).truncate(true).open(self.draft_path())?;
        newest.is_open = true;
        Ok(Draft { file: self, number: newest.number, out: Some(BufWriter::new(out)) })
    }

    /// One thread at a time holds it, and uses the draft's file meanwhile.
    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draft_path(&self) -> PathBuf {
        beside(&self.path, ".new")
    }
}

impl Draft<'_> {
    /// Brings it to the disk, and puts it in the place of the file.
    ///
    /// # Errors
    /// The file has the version of before, but for one case: the new one is in its place, and the disk did not take the folder. A draft that
    /// is void is an error, too.
    pub fn complete(mut self) -> io::Result<()> {
        let path = &self.file.path;
        let Some(out) = self.out.take() else { return Ok(()) };
        let on_disk = bring_to_disk(out);
        let mut newest = self.file.newest();
        if newest.number != self.number {
            return Err(io::Error::other("a newer version was begun before this one was complete"));
        }
        newest.is_open = false;
        if let Err(error) = on_disk.and_then(|()| fs::rename(self.file.draft_path(), path)) {
            let _ = fs::remove_file(self.file.draft_path());
            return Err(error);
        }
        drop(newest);
        // The new name of the file is on the disk with its folder. A system that does not open folders has its own ways.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).map_or(Ok(()), |folder| folder.sync_all())
    }
}

impl Write for Draft<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.as_mut().map_or(Ok(0), |out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.as_mut().map_or(Ok(()), |out| out.flush())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if self.out.take().is_none() {
            return;
        }
        let mut newest = self.file.newest();
        if newest.number == self.number {
            newest.is_open = false;
            // The room on the disk is of more use to the next one.
            let _ = fs::remove_file(self.file.draft_path());
        }
    }
}

fn bring_to_disk(out: BufWriter<File>) -> io::Result<()> {
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Writes a file that is whole at every moment, and that nobody has to claim: a full disk or a killed process leaves the one of before,
/// or none. Two threads or processes that write it at once leave that of one of them. Its folder is not brought to the disk.
///
/// # Errors
/// It cannot be written.
pub fn write_whole(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    static PARTS: AtomicU64 = AtomicU64::new(0);
    let number = PARTS.fetch_add(1, Ordering::Relaxed);
    let part = beside(path, &format!(".{}-{number}.part", std::process::id()));
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(bytes.as_ref())?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&part)))
}

/// Only the user of this process may read what is created.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_has_the_last_complete_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("world");
        let file = WholeFile::claim(&path).unwrap();
        assert_eq!(names(folder.path()), ["world.lock"], "to claim a file leaves nothing beside it");
        for version in [&b"first, and a long one"[..], b"second"] {
            let mut draft = file.begin().unwrap();
            draft.write_all(version).unwrap();
            draft.complete().unwrap();
            assert_eq!(fs::read(&path).unwrap(), version);
        }
        let mut draft = file.begin().unwrap();
        draft.write_all(b"third").unwrap();
        drop(draft);
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(names(folder.path()), ["world", "world.lock"]);
        // A process that was killed leaves a draft behind.
        fs::write(folder.path().join("world.new"), b"a long text that nobody has completed").unwrap();
        let mut draft = file.begin().unwrap();
        draft.write_all(b"fourth").unwrap();
        draft.complete().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"fourth");
    }

    #[test]
    fn a_draft_that_was_begun_before_another_is_void_and_leaves_that_one_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("world");
        let file = WholeFile::claim(&path).unwrap();
        let mut drafts: Vec<Draft<'_>> = (0..3).map(|_| file.begin().unwrap()).collect();
        for (draft, bytes) in drafts.iter_mut().zip([&b"first, and a long one"[..], b"second", b"third"]) {
            draft.write_all(bytes).unwrap();
            draft.flush().unwrap();
        }
        drop(drafts.remove(0));
        let error = drafts.remove(0).complete().unwrap_err().to_string();
        assert!(error.contains("a newer version was begun"), "{error}");
        assert_eq!(names(folder.path()), ["world.lock", "world.new"]);
        drafts.remove(0).complete().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"third");
        assert_eq!(names(folder.path()), ["world", "world.lock"]);
    }

    #[test]
    fn a_file_has_one_writer_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("world");
        let first = WholeFile::claim(&path).unwrap();
        let mut draft = first.begin().unwrap();
        draft.write_all(b"whole").unwrap();
        let refused = WholeFile::claim(&path).unwrap_err();
        assert_eq!(
            (refused.kind(), refused.to_string().as_str()),
            (ErrorKind::ResourceBusy, "another process writes it")
        );
        draft.complete().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole", "the second one has not emptied it");
        drop(first);
        WholeFile::claim(&path).unwrap();
    }

    #[test]
    fn what_cannot_be_written_is_said_at_once() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(WholeFile::claim(folder.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(WholeFile::claim(&folder.path().join("no/world")).unwrap_err().kind(), ErrorKind::NotFound);
        fs::create_dir(folder.path().join("world.new")).unwrap();
        assert!(WholeFile::claim(&folder.path().join("world")).is_err());
    }

    #[test]
    fn threads_that_write_one_file_at_once_leave_the_whole_file_of_one_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        let texts = [vec![b'a'; 3_000], vec![b'b'; 5_000], vec![b'c'; 7_000]];
        std::thread::scope(|scope| {
            for text in &texts {
                let path = &path;
                scope.spawn(move || (0..50).for_each(|_| write_whole(path, text).unwrap()));
            }
        });
        assert!(texts.contains(&fs::read(&path).unwrap()));
        assert_eq!(names(folder.path()), ["report"]);
    }

    #[cfg(unix)]
    #[test]
    fn other_users_cannot_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("world");
        WholeFile::claim(&path).unwrap().begin().unwrap().complete().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
