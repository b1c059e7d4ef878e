//! From a folder into the store.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use futures_util::StreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{Error, MultipartUpload, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use throng_report::SUMMARY_FILE;

use crate::StoreError;
use crate::store::{FILES_MAX, RunName, RunStore};

/// Files beyond this size are sent in parts of it.
const PART_BYTES: usize = 8 << 20;
/// Object stores take at most 10,000 parts.
const FILE_BYTES_MAX: u64 = 10_000 * PART_BYTES as u64;

/// So many runs of a store may have one name.
const SAME_NAME_MAX: u32 = 100;

/// When a run was played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAge {
    /// Just now: if the store has another run of its name, as one that another machine began in the same second, it gets a number
    /// behind it.
    New,
    /// Some time ago, and the store may have it.
    Old,
}

/// How far an upload is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The file that is being sent.
    pub file: String,
    /// Bytes of the run that the store has.
    pub bytes: u64,
    /// Bytes of the run.
    pub bytes_in_all: u64,
}

/// A file to send.
struct Item {
    name: String,
    path: PathBuf,
    bytes: u64,
}

impl RunStore {
    /// Copies the files of a run's folder into the store, the summary last, and checks the size of each. `shown` is told how
    /// far it is. The folder stays as it is. An upload that was stopped goes on with what is missing.
    ///
    /// # Errors
    /// The folder is none of a run; there is a run of its name, or of all names that a new one may have, or a file with other
    /// contents; something cannot be read or written; or it was stopped.
    pub fn upload(
        &self,
        folder: &Path,
        age: RunAge,
        stop: &AtomicBool,
        shown: &mut dyn FnMut(&Progress),
    ) -> Result<RunName, StoreError> {
        let (first, items) = contents(folder)?;
        let last = if age == RunAge::New { SAME_NAME_MAX } else { 1 };
        let numbered = (2..=last).filter_map(|number| RunName::new(&format!("{first}-{number}")));
        let mut taken = None;
        for name in std::iter::once(first.clone()).chain(numbered) {
            let to = self.prefix.clone().join(name.as_str());
            match self.wait(self.send_all(&items, &to, stop, shown)) {
                Err(error @ StoreError::Taken { .. }) => taken = Some(error),
                sent => return sent.map(|()| name),
            }
        }
        Err(taken.unwrap_or(StoreError::Stopped))
    }

    async fn send_all(
        &self,
        items: &[Item],
        to: &ObjectPath,
        stop: &AtomicBool,
        shown: &mut dyn FnMut(&Progress),
    ) -> Result<(), StoreError> {
        if self.is_run(to, stop).await? {
            return Err(self.taken(to));
        }
        let bytes_in_all = items.iter().map(|item| item.bytes).sum();
        let mut progress = Progress { bytes_in_all, ..Progress::default() };
        for item in items {
            progress.file.clone_from(&item.name);
            let before = progress.bytes;
            let target = to.clone().join(item.name.as_str());
            if item.bytes <= PART_BYTES as u64 {
                self.send_whole(item, &target, to, stop).await?;
            } else {
                self.send_in_parts(item, &target, to, stop, &mut |sent| {
                    progress.bytes = before + sent;
                    shown(&progress);
                })
                .await?;
            }
            let there = self.size(&target, stop).await?.unwrap_or(0);
            if there != item.bytes {
                return Err(StoreError::Differs { file: target.to_string(), there, here: item.bytes });
            }
            progress.bytes = before + item.bytes;
            shown(&progress);
        }
        Ok(())
    }

    async fn send_whole(
        &self,
        item: &Item,
        target: &ObjectPath,
        run: &ObjectPath,
        stop: &AtomicBool,
    ) -> Result<(), StoreError> {
        let bytes = fs::read(&item.path).map_err(StoreError::local(&item.path))?;
        let put = |mode| {
            let options = PutOptions { mode, ..PutOptions::default() };
            self.objects.put_opts(target, PutPayload::from(bytes.clone()), options)
        };
        match self.try_to(stop, put(PutMode::Create)).await? {
            Ok(_) => Ok(()),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                self.is_same(item, target, run, stop).await
            }
            // A store without conditions: a second upload at this moment is not seen.
            Err(Error::NotImplemented { .. } | Error::NotSupported { .. }) => {
                if self.size(target, stop).await?.is_some() {
                    return self.is_same(item, target, run, stop).await;
                }
                self.ask(stop, put(PutMode::Overwrite)).await.map(drop)
            }
            Err(error) => Err(StoreError::remote(&self.place, &error)),
        }
    }

    async fn send_in_parts(
        &self,
        item: &Item,
        target: &ObjectPath,
        run: &ObjectPath,
        stop: &AtomicBool,
        sent: &mut dyn FnMut(u64),
    ) -> Result<(), StoreError> {
        if self.size(target, stop).await?.is_some() {
            return self.is_same(item, target, run, stop).await;
        }
        let mut upload = self.ask(stop, self.objects.put_multipart(target)).await?;
        let outcome = self.send_parts(item, &mut *upload, stop, sent).await;
        if outcome.is_err() {
            // Parts that stay cost money. It is tried once, and the error tells more than a second one would.
            let _ = self.ask(&AtomicBool::new(false), upload.abort()).await;
        }
        outcome
    }

    async fn send_parts(
        &self,
        item: &Item,
        upload: &mut dyn MultipartUpload,
        stop: &AtomicBool,
        sent: &mut dyn FnMut(u64),
    ) -> Result<(), StoreError> {
        let mut file = File::open(&item.path).map_err(StoreError::local(&item.path))?;
        let mut count = 0;
        loop {
            let part = part_of(&mut file).map_err(StoreError::local(&item.path))?;
            if part.is_empty() {
                break;
            }
            count += part.len() as u64;
            if count > item.bytes {
                return Err(StoreError::Differs { file: item.name.clone(), there: item.bytes, here: count });
            }
            self.ask(stop, upload.put_part(PutPayload::from(part))).await?;
            sent(count);
        }
        self.ask(stop, upload.complete()).await.map(drop)
    }

    /// A file that a stopped upload has left is taken, if it is the same.
    async fn is_same(
        &self,
        item: &Item,
        target: &ObjectPath,
        run: &ObjectPath,
        stop: &AtomicBool,
    ) -> Result<(), StoreError> {
        let Some(answer) = self.find(stop, self.objects.get(target)).await? else { return Err(self.taken(run)) };
        let mut file = File::open(&item.path).map_err(StoreError::local(&item.path))?;
        let mut parts = answer.into_stream();
        let mut own = Vec::new();
        let mut count = 0;
        while let Some(part) = self.ask(stop, async { parts.next().await.transpose() }).await? {
            own.resize(part.len(), 0);
            count += part.len() as u64;
            if file.read_exact(&mut own).is_err() || own != part {
                return Err(self.taken(run));
            }
        }
        if count == item.bytes { Ok(()) } else { Err(self.taken(run)) }
    }

    fn taken(&self, run: &ObjectPath) -> StoreError {
        StoreError::Taken { place: self.place.clone(), run: run.filename().unwrap_or_default().to_owned() }
    }
}

/// The name of a run, and its files.
fn contents(folder: &Path) -> Result<(RunName, Vec<Item>), StoreError> {
    let not_a_run = |reason| StoreError::NotARun { place: folder.display().to_string(), reason };
    let full = folder.canonicalize().map_err(StoreError::local(folder))?;
    let name = full.file_name().and_then(|name| RunName::new(name.to_str()?));
    let name = name.ok_or_else(|| not_a_run("its name has more than letters, digits, `.`, `_` and `-`"))?;
    let items = items(&full)?;
    if items.is_empty() { Err(not_a_run("it has no summary.json")) } else { Ok((name, items)) }
}

/// The next part of a file; empty at its end.
fn part_of(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut part = Vec::new();
    file.take(PART_BYTES as u64).read_to_end(&mut part)?;
    Ok(part)
}

/// The files of a run, the summary last; none if it has no summary. Folders and links in it stay here.
fn items(folder: &Path) -> Result<Vec<Item>, StoreError> {
    let mut items = Vec::new();
    for entry in fs::read_dir(folder).map_err(StoreError::local(folder))? {
        let entry = entry.map_err(StoreError::local(folder))?;
        let (name, path) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
        let meta = fs::symlink_metadata(&path).map_err(StoreError::local(&path))?;
        if !meta.is_file() || RunName::new(&name).is_none() {
            continue;
        }
        if meta.len() > FILE_BYTES_MAX || items.len() == FILES_MAX {
            let (what, most) = match items.len() {
                FILES_MAX => (folder.display().to_string(), format!("{FILES_MAX} files")),
                _ => (path.display().to_string(), format!("{FILE_BYTES_MAX} bytes")),
            };
            return Err(StoreError::TooLarge { what, most });
        }
        items.push(Item { name, path, bytes: meta.len() });
    }
    let is_summary = |item: &Item| item.name == SUMMARY_FILE;
    items.sort_by_cached_key(|item| (is_summary(item), item.name.clone()));
    if !items.last().is_some_and(is_summary) {
        items.clear();
    }
    Ok(items)
}
