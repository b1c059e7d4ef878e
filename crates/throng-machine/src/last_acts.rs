//! A program that its user ends at once still ends its commands, and removes folders that would stay for ever.
//!
//! ```
//! let folder = std::env::temp_dir().join(format!("throng-last-acts-{}", std::process::id()));
//! std::fs::create_dir(&folder)?;
//! let path = folder.clone();
//! let act = throng_machine::last_act(move || drop(std::fs::remove_dir(path)));
//! // A handler of Ctrl-C calls it.
//! throng_machine::do_last_acts();
//! assert!(!folder.exists());
//! drop(act);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

type Act = Box<dyn FnOnce() + Send>;

static ACTS: Mutex<Vec<(u64, Act)>> = Mutex::new(Vec::new());
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// An act that is done if the program ends at once while this is there.
#[derive(Debug)]
#[must_use = "the act is forgotten when this is dropped"]
pub struct LastAct(u64);

/// Remembers an act. It runs on the thread that ends the program, beside all others: it takes no lock that they hold for long.
pub fn last_act(act: impl FnOnce() + Send + 'static) -> LastAct {
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    ACTS.lock().unwrap_or_else(PoisonError::into_inner).push((number, Box::new(act)));
    LastAct(number)
}

/// Does all acts, the newest first: a command ends before the folder goes in which it runs. Call it once, before the process ends.
pub fn do_last_acts() {
    let acts = std::mem::take(&mut *ACTS.lock().unwrap_or_else(PoisonError::into_inner));
    acts.into_iter().rev().for_each(|(_, act)| act());
}

impl Drop for LastAct {
    fn drop(&mut self) {
        ACTS.lock().unwrap_or_else(PoisonError::into_inner).retain(|(number, _)| *number != self.0);
    }
}

/// A folder that goes when this is dropped, or when the program ends at once.
#[derive(Debug)]
pub struct TemporaryFolder {
    folder: tempfile::TempDir,
    _act: LastAct,
}

impl TemporaryFolder {
    /// Makes one, in the system's place for such.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> io::Result<TemporaryFolder> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().to_owned();
        Ok(TemporaryFolder { folder, _act: last_act(move || drop(std::fs::remove_dir_all(path))) })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// From now on libraries make this process's temporary files here, if they ask `tempfile` and name no folder. It has
    /// to stay as long as the process makes any.
    ///
    /// # Errors
    /// Another folder has been chosen before. The first one holds.
    pub fn take_others_files(&self) -> io::Result<()> {
        let taken = tempfile::env::override_temp_dir(self.path());
        taken.map_err(|path| io::Error::other(format!("temporary files are in {} already", path.display())))
    }
}
