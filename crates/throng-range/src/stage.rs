//! The map of the matches, ready to play on.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use throng_agent::Navigation;
use throng_machine::TemporaryFolder;
use throng_sight::{Map, aligned, bake, town};
use throng_tactical::{Arena, brain};

use crate::RangeError;

/// Where the map comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapSource {
    /// A map file.
    File(PathBuf),
    /// A generated town.
    Town {
        /// The seed.
        seed: u64,
        /// Triangles at least.
        triangles: usize,
    },
}

/// A map file, mapped into memory, and the places of the game on it.
#[derive(Debug)]
pub struct Stage {
    /// The places.
    pub arena: Arena,
    /// The file, for other processes.
    pub path: PathBuf,
    /// The ground on which agents walk, once somebody has asked for it.
    navigation: OnceLock<Navigation>,
    /// Holds the file of a generated town.
    _folder: Option<TemporaryFolder>,
}

impl Stage {
    /// Opens a map, or makes one. A town becomes a file too, so that all processes share its memory.
    ///
    /// # Errors
    /// The file is no map, or the map is no arena.
    pub fn open(source: &MapSource) -> Result<Stage, RangeError> {
        let (path, folder) = match source {
            MapSource::File(path) => (path.clone(), None),
            MapSource::Town { seed, triangles } => {
                let folder = TemporaryFolder::new().map_err(|source| file_error(&std::env::temp_dir(), source))?;
                let path = folder.path().join("town.map");
                throng_map::save(&bake(&town::town(*seed, *triangles))?, &path)?;
                (path, Some(folder))
            }
        };
        Ok(Stage { _folder: folder, ..Stage::of_file(&path, false)? })
    }

    /// Opens a map file. `is_copied` reads it into memory of this process, instead of sharing it: for comparison.
    ///
    /// # Errors
    /// As [`Stage::open`].
    pub fn of_file(path: &Path, is_copied: bool) -> Result<Stage, RangeError> {
        let map = if is_copied {
            let bytes = std::fs::read(path).map_err(|source| file_error(path, source))?;
            Map::new(aligned(&bytes)).map_err(|error| RangeError::Options(error.to_string()))?
        } else {
            throng_map::open(path)?
        };
        Ok(Stage { arena: Arena::new(map)?, path: path.to_owned(), navigation: OnceLock::new(), _folder: None })
    }

    /// The ground on which agents walk. The first call surveys the map.
    ///
    /// # Errors
    /// Nobody can walk on the map.
    pub fn navigation(&self) -> Result<&Navigation, RangeError> {
        if let Some(navigation) = self.navigation.get() {
            return Ok(navigation);
        }
        let surveyed = brain::navigation(self.map())?;
        Ok(self.navigation.get_or_init(|| surveyed))
    }

    /// The map.
    pub fn map(&self) -> &Map {
        self.arena.map()
    }
}

pub(crate) fn file_error(path: &Path, source: std::io::Error) -> RangeError {
    RangeError::File { path: path.to_owned(), source }
}
