//! The store: which runs it has, and their files.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::future::Future;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};
use throng_report::{SUMMARY_BYTES_MAX, SUMMARY_FILE};
use tokio::runtime::Runtime;

use crate::StoreError;
use crate::place::{self, Place};

/// The files of a run that are ever read from a store, with their largest sizes in bytes. The summary is the last: a copy that
/// was stopped is no run either.
pub const FILES: [(&str, u64); 8] = [
    ("trials.jsonl", 256 << 20),
    ("samples.jsonl", 256 << 20),
    ("memory.jsonl", 256 << 20),
    ("frames.parquet", 16 << 30),
    ("trace.json", 512 << 20),
    ("inside.json", 64 << 20),
    ("report.html", 128 << 20),
    (SUMMARY_FILE, SUMMARY_BYTES_MAX),
];

/// The most files of a run.
pub const FILES_MAX: usize = 1_000;
/// The most files of a store that are looked at.
pub const OBJECTS_MAX: usize = 1_000_000;

const NAME_BYTES_MAX: usize = 120;
/// A file has this extension while it is read from a store.
const PART: &str = "part";
/// How often it is looked whether to stop.
pub(crate) const LOOK: Duration = Duration::from_millis(50);
/// A request, and each part of an answer, takes no longer.
pub(crate) const REQUEST: Duration = Duration::from_secs(300);

/// The name of a run: letters, digits, `.`, `_` and `-`, at most 120, the first a letter or a digit. So it is one folder
/// below its parent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunName(String);

impl RunName {
    /// The name, if it is one.
    pub fn new(name: &str) -> Option<RunName> {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        let begins_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        (is_plain && begins_well && name.len() <= NAME_BYTES_MAX).then(|| RunName(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Folders of runs in one place. Calls wait for the store; those that take time end early with
/// [`StoreError::Stopped`] once their `stop` is set.
pub struct RunStore {
    /// The place as messages show it.
    pub(crate) place: String,
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) prefix: ObjectPath,
    /// The folder, if it is one.
    pub(crate) folder: Option<PathBuf>,
    runtime: Runtime,
}

impl RunStore {
    /// Opens a place to read from it: a folder, `file:///folder`, or `s3://bucket/prefix`. Asks nobody yet.
    ///
    /// # Errors
    /// The place makes no sense, or its folder is not there.
    pub fn open(place: &str) -> Result<RunStore, StoreError> {
        RunStore::over(place, place::open(place)?)
    }

    /// Opens a place to write to it. A folder is made and tried; another store is asked for its files.
    ///
    /// # Errors
    /// As [`RunStore::open`]; or it cannot be written, or does not answer.
    pub fn open_to_write(place: &str, stop: &AtomicBool) -> Result<RunStore, StoreError> {
        if let Some(folder) = place::folder(place)? {
            if folder.is_file() {
                return Err(StoreError::local(folder)(io::ErrorKind::NotADirectory.into()));
            }
            fs::create_dir_all(folder).map_err(StoreError::local(folder))?;
            let probe = folder.join(format!(".writable-{}", std::process::id()));
            fs::write(&probe, "").map_err(StoreError::local(&probe))?;
            fs::remove_file(&probe).map_err(StoreError::local(&probe))?;
        }
        let store = RunStore::open(place)?;
        // A folder has just been tried. One name in it that is no path of an object store would end its list.
        if store.folder.is_none() {
            store.wait(store.ask(stop, store.objects.list_with_delimiter(Some(&store.prefix))))?;
        }
        Ok(store)
    }

    /// A store over any other object store, as one in memory.
    ///
    /// # Errors
    /// The system has no room for a runtime.
    pub fn with_objects(place: &str, objects: Arc<dyn ObjectStore>) -> Result<RunStore, StoreError> {
        RunStore::over(place, Place { objects, prefix: ObjectPath::default(), folder: None })
    }

    fn over(place: &str, Place { objects, prefix, folder }: Place) -> Result<RunStore, StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(StoreError::local(place))?;
        Ok(RunStore { place: place.trim_end_matches('/').to_owned(), objects, prefix, folder, runtime })
    }

    /// Whether it is this folder of this machine.
    pub fn is_folder(&self, folder: &Path) -> bool {
        let real = |folder: &Path| folder.canonicalize().ok();
        self.folder.as_deref().and_then(real).is_some_and(|own| real(folder) == Some(own))
    }

    /// The place, as messages show it.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The runs that have a summary, in the order of their names. Other names are left out.
    ///
    /// # Errors
    /// The store does not answer, or has more than [`OBJECTS_MAX`] files.
    pub fn runs(&self, stop: &AtomicBool) -> Result<Vec<RunName>, StoreError> {
        let mut names = BTreeSet::new();
        if let Some(folder) = &self.folder {
            // One name that is no path of an object store would end its list.
            for (count, entry) in fs::read_dir(folder).map_err(StoreError::local(folder))?.enumerate() {
                if count == OBJECTS_MAX {
                    return Err(self.too_many());
                }
                let path = entry.map_err(StoreError::local(folder))?.path();
                if has_summary(&path) {
                    names.extend(path.file_name().and_then(|name| RunName::new(name.to_str()?)));
                }
            }
            return Ok(names.into_iter().collect());
        }
        let list = async {
            let mut objects = self.objects.list(Some(&self.prefix));
            let mut count = 0;
            while let Some(object) = self.ask(stop, async { objects.next().await.transpose() }).await? {
                count += 1;
                if count > OBJECTS_MAX {
                    return Err(self.too_many());
                }
                let Some(mut parts) = object.location.prefix_match(&self.prefix) else { continue };
                if let (Some(run), Some(file), None) = (parts.next(), parts.next(), parts.next())
                    && file.as_ref() == SUMMARY_FILE
                {
                    names.extend(RunName::new(run.as_ref()));
                }
            }
            Ok(())
        };
        self.wait(list)?;
        Ok(names.into_iter().collect())
    }

    fn too_many(&self) -> StoreError {
        StoreError::TooLarge { what: self.place.clone(), most: format!("{OBJECTS_MAX} files") }
    }

    /// Reads these files of a run into the folder `into/<run>`; files that it does not have are left out.
    ///
    /// # Errors
    /// It has no summary, or the folder has one; a file is larger than [`FILES`] allows, or something cannot be read or written.
    pub fn download(
        &self,
        run: &RunName,
        files: &[&str],
        into: &Path,
        stop: &AtomicBool,
    ) -> Result<PathBuf, StoreError> {
        let folder = into.join(run.as_str());
        self.wait(self.read_run(&self.prefix.clone().join(run.as_str()), files, &folder, stop))?;
        Ok(folder)
    }

    /// Reads these files of every run of the place, or of the run that the place itself is. The folder of that run, or `into`.
    /// Runs that are in `into` already are left as they are.
    ///
    /// # Errors
    /// As [`RunStore::runs`] and [`RunStore::download`].
    pub fn download_all(&self, files: &[&str], into: &Path, stop: &AtomicBool) -> Result<PathBuf, StoreError> {
        let name = self.place.rsplit('/').next().and_then(RunName::new);
        if let Some(name) = name
            && self.wait(self.is_run(&self.prefix, stop))?
        {
            let folder = into.join(name.as_str());
            if !has_summary(&folder) {
                self.wait(self.read_run(&self.prefix, files, &folder, stop))?;
            }
            return Ok(folder);
        }
        for run in self.runs(stop)?.iter().filter(|run| !has_summary(&into.join(run.as_str()))) {
            self.download(run, files, into, stop)?;
        }
        Ok(into.to_owned())
    }

    async fn read_run(
        &self,
        from: &ObjectPath,
        files: &[&str],
        folder: &Path,
        stop: &AtomicBool,
    ) -> Result<(), StoreError> {
        if !self.is_run(from, stop).await? {
            let reason = "it has no summary.json; `throng lab runs` lists the runs of a store";
            return Err(StoreError::NotARun {
                place: format!("{}/{}", self.place, from.filename().unwrap_or("")),
                reason,
            });
        }
        if has_summary(folder) {
            return Err(StoreError::local(folder)(std::io::ErrorKind::AlreadyExists.into()));
        }
        fs::create_dir_all(folder).map_err(StoreError::local(folder))?;
        for (name, most_bytes) in FILES.iter().filter(|(name, _)| files.contains(name)) {
            if *name == SUMMARY_FILE {
                bring_names_to_disk(folder)?;
            }
            self.read_file(&from.clone().join(*name), &folder.join(name), *most_bytes, stop).await?;
        }
        bring_names_to_disk(folder)
    }

    /// Brings the file to the disk before it has its name.
    async fn read_file(
        &self,
        from: &ObjectPath,
        to: &Path,
        most_bytes: u64,
        stop: &AtomicBool,
    ) -> Result<(), StoreError> {
        let Some(answer) = self.find(stop, self.objects.get(from)).await? else { return Ok(()) };
        let too_large = || StoreError::TooLarge { what: from.to_string(), most: format!("{most_bytes} bytes") };
        let there = answer.meta.size;
        if there > most_bytes {
            return Err(too_large());
        }
        // A file has its name once it is whole: a run is known by its summary.
        let part = to.with_extension(PART);
        let copy = async {
            let mut file = File::create(&part).map_err(StoreError::local(&part))?;
            let mut parts = answer.into_stream();
            let mut here = 0;
            while let Some(bytes) = self.ask(stop, async { parts.next().await.transpose() }).await? {
                here += bytes.len() as u64;
                if here > there {
                    return Err(too_large());
                }
                file.write_all(&bytes).map_err(StoreError::local(&part))?;
            }
            if here != there {
                return Err(StoreError::Differs { file: from.to_string(), there, here });
            }
            file.sync_all().map_err(StoreError::local(&part))?;
            fs::rename(&part, to).map_err(StoreError::local(to))
        };
        let copied = copy.await;
        if copied.is_err() {
            let _ = fs::remove_file(&part);
        }
        copied
    }

    /// Whether there is a summary below `path`.
    pub(crate) async fn is_run(&self, path: &ObjectPath, stop: &AtomicBool) -> Result<bool, StoreError> {
        Ok(self.size(&path.clone().join(SUMMARY_FILE), stop).await?.is_some())
    }

    /// The size of a file, if it is there.
    pub(crate) async fn size(&self, path: &ObjectPath, stop: &AtomicBool) -> Result<Option<u64>, StoreError> {
        Ok(self.find(stop, self.objects.head(path)).await?.map(|meta| meta.size))
    }

    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// The answer to a request.
    pub(crate) async fn ask<T>(
        &self,
        stop: &AtomicBool,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, StoreError> {
        self.try_to(stop, request).await?.map_err(|error| StoreError::remote(&self.place, &error))
    }

    /// The answer to a request for something that may not be there.
    pub(crate) async fn find<T>(
        &self,
        stop: &AtomicBool,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<Option<T>, StoreError> {
        match self.try_to(stop, request).await? {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(StoreError::remote(&self.place, &error)),
        }
    }

    /// The result of a request, unless `stop` is set before, or it takes too long.
    pub(crate) async fn try_to<T>(
        &self,
        stop: &AtomicBool,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<object_store::Result<T>, StoreError> {
        tokio::pin!(request);
        let since = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            tokio::select! {
                result = &mut request => return Ok(result),
                () = tokio::time::sleep(LOOK) => {}
            }
            if since.elapsed() > REQUEST {
                let reason = format!("no answer within {} s", REQUEST.as_secs());
                return Err(StoreError::Remote { place: self.place.clone(), reason });
            }
        }
        Err(StoreError::Stopped)
    }
}

/// Whether a folder of this machine is that of a run.
fn has_summary(folder: &Path) -> bool {
    folder.join(SUMMARY_FILE).exists()
}

/// The new names of a folder are on the disk with it. A system that does not open folders has its own ways.
fn bring_names_to_disk(folder: &Path) -> Result<(), StoreError> {
    File::open(folder).map_or(Ok(()), |folder| folder.sync_all()).map_err(StoreError::local(folder))
}

impl fmt::Debug for RunStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunStore").field("place", &self.place).finish_non_exhaustive()
    }
}
