//! The index: one line of text for each run, in the order of their uploads. Its lines are the caller's.
//!
//! That of an object store is changed by conditional writes. That of a folder is changed under the lock of a file beside it, which stays,
//! and is empty.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures_util::StreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{Error, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};

use crate::StoreError;
use crate::store::{LOOK, REQUEST, RunStore};

/// The file with the index.
pub const INDEX_FILE: &str = "index.jsonl";
/// In a folder, a process that changes the index locks this file.
const LOCK_FILE: &str = "index.jsonl.lock";

/// So much of an index is read, of its newest lines: some ten thousand runs at least.
const INDEX_BYTES_MAX: usize = 64 << 20;
/// Others who write at the same time are waited for so often.
const TRIES: usize = 20;

impl RunStore {
    /// The newest lines of the index, up to 64 MiB; none if there is no index.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn index(&self, stop: &AtomicBool) -> Result<Vec<String>, StoreError> {
        let (text, _) = self.wait(self.read_index(stop))?;
        Ok(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
    }

    /// Adds a line to the index. Lines that others add at the same time are kept. That of an object store is written anew, without the
    /// lines that nobody reads.
    ///
    /// # Errors
    /// The store cannot be written, or others write without end.
    pub fn add_to_index(&self, line: &str, stop: &AtomicBool) -> Result<(), StoreError> {
        let line = format!("{}\n", line.trim().replace('\n', " "));
        let _lock = self.lock_index(stop)?;
        if let Some(folder) = &self.folder {
            let path = folder.join(INDEX_FILE);
            let add = || {
                let mut file = OpenOptions::new().create(true).read(true).append(true).open(&path)?;
                // A line that was cut off stays alone.
                let end = if is_torn(&mut file)? { "\n" } else { "" };
                file.write_all(format!("{end}{line}").as_bytes())
            };
            return add().map_err(StoreError::local(&path));
        }
        self.wait(async {
            for _ in 0..TRIES {
                let (mut text, version) = self.read_index(stop).await?;
                if !text.is_empty() && !text.ends_with('\n') {
                    text.push('\n');
                }
                text += &line;
                if self.write_index(text, version.map_or(PutMode::Create, PutMode::Update), stop).await? {
                    return Ok(());
                }
            }
            Err(self.changed_too_often())
        })
    }

    /// Writes the whole index anew. `before` is the index as it was read before the caller looked for runs: lines that others have
    /// added since then are kept, after the new ones, also those that were in `before` already.
    ///
    /// # Errors
    /// As [`add_to_index`](Self::add_to_index).
    pub fn replace_index(&self, before: &[String], lines: &[String], stop: &AtomicBool) -> Result<(), StoreError> {
        let made: HashSet<&str> = lines.iter().map(String::as_str).collect();
        let _lock = self.lock_index(stop)?;
        self.wait(async {
            for _ in 0..TRIES {
                let (present, version) = self.read_index(stop).await?;
                // Each line of `before` stands for one: a run that was removed and is sent again has the line that it had before.
                let mut known: HashMap<&str, usize> = HashMap::new();
                before.iter().for_each(|line| *known.entry(line).or_default() += 1);
                let added = present.lines().filter(|line| match known.get_mut(line) {
                    Some(left) if *left > 0 => {
                        *left -= 1;
                        false
                    }
                    _ => !line.trim().is_empty() && !made.contains(line),
                });
                let text = lines.iter().map(String::as_str).chain(added).flat_map(|line| [line, "\n"]).collect();
                if self.write_index(text, version.map_or(PutMode::Create, PutMode::Update), stop).await? {
                    return Ok(());
                }
            }
            Err(self.changed_too_often())
        })
    }

    fn changed_too_often(&self) -> StoreError {
        let reason =
            format!("the index was changed {TRIES} times meanwhile; `throng lab runs --rebuild` makes it again");
        StoreError::Remote { place: self.place.clone(), reason }
    }

    /// Waits until no other process changes the index of a folder. `None` for an object store, and where the file system has no locks.
    fn lock_index(&self, stop: &AtomicBool) -> Result<Option<File>, StoreError> {
        let Some(path) = self.folder.as_ref().map(|folder| folder.join(LOCK_FILE)) else { return Ok(None) };
        let open = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = open.map_err(StoreError::local(&path))?;
        let since = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(StoreError::local(&path)(error)),
                Err(TryLockError::WouldBlock) if since.elapsed() > REQUEST => {
                    return Err(StoreError::local(&path)(ErrorKind::ResourceBusy.into()));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            }
        }
        Err(StoreError::Stopped)
    }

    fn index_path(&self) -> ObjectPath {
        self.prefix.clone().join(INDEX_FILE)
    }

    async fn read_index(&self, stop: &AtomicBool) -> Result<(String, Option<UpdateVersion>), StoreError> {
        let path = self.index_path();
        let Some(answer) = self.find(stop, self.objects.get(&path)).await? else { return Ok((String::new(), None)) };
        let version = UpdateVersion { e_tag: answer.meta.e_tag.clone(), version: answer.meta.version.clone() };
        let mut bytes = Vec::new();
        let mut parts = answer.into_stream();
        while let Some(part) = self.ask(stop, async { parts.next().await.transpose() }).await? {
            bytes.extend_from_slice(&part);
            if bytes.len() > 2 * INDEX_BYTES_MAX {
                keep_newest(&mut bytes);
            }
        }
        keep_newest(&mut bytes);
        Ok((String::from_utf8_lossy(&bytes).into_owned(), Some(version)))
    }

    /// Whether it was written; not if another one has changed it.
    async fn write_index(&self, text: String, mode: PutMode, stop: &AtomicBool) -> Result<bool, StoreError> {
        let path = self.index_path();
        let payload = PutPayload::from(text.into_bytes());
        let is_update = matches!(mode, PutMode::Update(_));
        let put = |mode| {
            let options = PutOptions { mode, ..PutOptions::default() };
            self.objects.put_opts(&path, payload.clone(), options)
        };
        match self.try_to(stop, put(mode)).await? {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            // Another one has removed the index. Without an index to change, there is no such bucket.
            Err(Error::NotFound { .. }) if is_update => Ok(false),
            // A store without conditions: a line that another one adds at this moment may be lost, and found by a rebuild.
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                self.ask(stop, put(PutMode::Overwrite)).await.map(|_| true)
            }
            Err(error) => Err(StoreError::remote(&self.place, &error)),
        }
    }
}

/// Cuts whole lines from the beginning.
fn keep_newest(bytes: &mut Vec<u8>) {
    let Some(over) = bytes.len().checked_sub(INDEX_BYTES_MAX).filter(|over| *over > 0) else { return };
    let end = bytes[over..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |place| over + place + 1);
    bytes.drain(..end);
}

/// Whether the last line of a file does not end.
fn is_torn(file: &mut File) -> std::io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}
