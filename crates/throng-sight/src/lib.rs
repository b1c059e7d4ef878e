//! The static world of a match: baked maps, and rays through them.
//!
//! A [`Mesh`] is baked once into a [`Map`]: a tree of boxes with eight children per node, and below it the triangles in
//! blocks of four. The map is one run of bytes that never changes and holds no addresses. So a file with these bytes can
//! be mapped into memory and used as it is, and all matches on a machine share one copy of it.
//!
//! ```text
//!              +---------------------------+     a ray tests eight boxes at once,
//!              | 8 boxes, one byte a side  |     the nearest first ...
//!              +---+-------+-------+-------+
//!                  |       |       |
//!              +---+--+ +--+---+ +-+---------------+
//!              | ...  | | ...  | | 4 triangles     |     ... then four triangles at once
//!              +------+ +------+ +-----------------+
//! ```
//!
//! **The promises.** Answers do not depend on the processor, on the order of tests, or on whether rays come alone or in
//! batches: they are equal bit for bit, so a replay on another machine sees the same. A ray does not slip through an edge
//! or a corner that triangles share. No bytes make [`Map::new`] or a query panic, read elsewhere or run without end. No
//! query allocates.
//!
//! ```
//! use glam::{Vec3, vec3};
//! use throng_sight::{Layers, Ray, bake, town};
//!
//! let map = bake(&town::town(7, 5_000))?;
//!
//! // How high is the ground below this point?
//! let down = Ray::new(vec3(0.0, 50.0, 0.0), -Vec3::Y, 100.0)?;
//! let hit = map.closest(&down, town::BODIES).expect("there is ground everywhere");
//! let ground = down.at(hit.distance_m);
//!
//! // Are these lines of sight free? Through window panes, but not through leaves.
//! let eyes = [vec3(-15.0, 1.6, 0.0), vec3(15.0, 1.6, 0.0), ground + 1.6 * Vec3::Y];
//! let lines = [Ray::between(eyes[0], eyes[1])?, Ray::between(eyes[0], eyes[2])?];
//! let mut is_blocked = [false; 2];
//! map.is_blocked_batch(&lines, town::SIGHT, &mut is_blocked);
//! assert_eq!(is_blocked[0], map.is_blocked(&lines[0], town::SIGHT));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Files are opened by `throng-map`, which also reads meshes of other tools; this crate knows bytes and numbers, no files,
//! clocks or threads. The bytes are drawn in docs/sight.md.
#![forbid(unsafe_code)]

mod bake;
mod batch;
pub mod fog;
mod format;
mod lanes;
mod map;
mod mesh;
mod overlap;
mod ray;
mod single;
pub mod town;

pub use bake::bake;
pub use lanes::Processor;
pub use map::{Map, MapBytes, MapError, Mark, aligned};
pub use mesh::{MARKS_MAX, Mesh, MeshError, NamedBox, TRIANGLES_MAX};
pub use ray::{COORDINATE_MAX_M, Hit, Layers, Ray, RayError, TriangleId};
