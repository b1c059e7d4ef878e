//! Files of maps: written whole or not at all, and read by mapping them into memory.

#![allow(unsafe_code, reason = "a file becomes memory")]

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{Mmap, MmapMut};
use throng_sight::{Map, MapError};

/// Why a map file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be opened, mapped or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The file is not a map that can be used.
    #[error("{}: {cause}", path.display())]
    Map {
        /// The file.
        path: PathBuf,
        /// The fault in the file.
        cause: MapError,
    },
}

impl FileError {
    /// A stable name for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            FileError::Io { .. } => "map_file_io",
            FileError::Map { cause, .. } => cause.tag(),
        }
    }
}

/// Opens a map file. Its pages are shared, read only, by all who open it: matches, threads and processes.
///
/// The file must not be changed while it is open; [`save`] does not change files, it replaces them. A file that another
/// program cuts short ends this process, as with every mapped file.
///
/// # Errors
/// If the file cannot be read, or is not a whole, undamaged map of this version.
pub fn open(path: &Path) -> Result<Map, FileError> {
    let bytes = mapped(path)?;
    Map::new(Arc::new(bytes)).map_err(|cause| FileError::Map { path: path.to_owned(), cause })
}

fn mapped(path: &Path) -> Result<Mmap, FileError> {
    let io = |cause| FileError::Io { path: path.to_owned(), cause };
    let file = File::open(path).map_err(io)?;
    // SAFETY: the mapping is private to readers: this process never writes to it, and `save` replaces map files by
    // renaming instead of writing into them. That no other program writes into the file is the condition of this
    // function, as it is for every mapped file. Each value in the bytes is checked before it is used.
    unsafe { Mmap::map(&file) }.map_err(io)
}

/// A copy of a map in memory of its own, in large pages where the system has them: rays through a large map then miss the
/// processor's table of pages less often. For 1,000,000 triangles (70 MB) that is 10 to 20 % more rays, for 240,000
/// (17 MB) nothing. The copy is shared by all clones in this process, and not with other processes.
///
/// # Errors
/// If there is not enough memory, or if the file of the map was changed while it was open.
pub fn in_large_pages(map: &Map) -> Result<Map, LargePagesError> {
    let bytes = map.as_bytes();
    let mut copy = MmapMut::map_anon(bytes.len())?;
    // Only advice: without large pages, the copy is as good as any other.
    #[cfg(target_os = "linux")]
    let _ = copy.advise(memmap2::Advice::HugePage);
    copy.copy_from_slice(bytes);
    Ok(Map::new(Arc::new(copy.make_read_only()?))?.with_processor(map.processor()))
}

/// Why a map cannot be copied into large pages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LargePagesError {
    /// There is not enough memory.
    #[error("there is no memory for a copy of the map: {0}")]
    Memory(#[from] io::Error),
    /// The bytes have been changed since the map was opened.
    #[error("the map was changed while it was open: {0}")]
    Map(#[from] MapError),
}

impl LargePagesError {
    /// A stable name for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            LargePagesError::Memory(_) => "no_memory",
            LargePagesError::Map(cause) => cause.tag(),
        }
    }
}

/// Writes a map to a file, which appears whole or not at all: it is written under another name and then renamed.
///
/// # Errors
/// If the file cannot be written.
pub fn save(map: &Map, path: &Path) -> Result<(), FileError> {
    write(map.as_bytes(), path)
}

fn write(bytes: &[u8], path: &Path) -> Result<(), FileError> {
    let io = |cause| FileError::Io { path: path.to_owned(), cause };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".throng-map-").tempfile_in(folder).map_err(io)?;
    file.write_all(bytes).map_err(io)?;
    file.as_file().sync_all().map_err(io)?;
    make_readable(file.as_file()).map_err(io)?;
    file.persist(path).map_err(|error| io(error.error))?;
    Ok(())
}

/// Temporary files are for their owner alone; a map is for every match server of the machine.
fn make_readable(file: &File) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
    }
    let _ = file;
    Ok(())
}
