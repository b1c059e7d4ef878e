//! Maps outside of the core: their files, and meshes that other tools wrote.
//!
//! ```text
//!  map.obj, map.gltf, map.glb -- read_mesh --> Mesh -- throng_sight::bake --> Map -- save --> out.map
//!  out.map -- open --> Map: the file itself as memory, shared by all processes that open it
//! ```
//!
//! ```
//! use throng_sight::{Layers, Ray, town};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("town.map");
//! throng_map::save(&throng_sight::bake(&town::town(7, 5_000))?, &path)?;
//!
//! let map = throng_map::open(&path)?;
//! let down = Ray::new([0.0, 50.0, 0.0].into(), [0.0, -1.0, 0.0].into(), 100.0)?;
//! assert!(map.is_blocked(&down, Layers::ALL));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "embree")]
pub mod embree;
mod file;
mod mesh;

pub use file::{FileError, LargePagesError, in_large_pages, open, save};
pub use mesh::{ReadError, ReadOptions, read_mesh};
