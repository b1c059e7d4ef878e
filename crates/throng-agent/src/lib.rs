//! Agents move and see with the parts of this crate: where a body can walk, ways from place to place, and who sees
//! whom.
//!
//! ```text
//!  Map --- survey, once ---> Navigation: cells of 0.5 m, several heights above each other, links to neighbours
//!                                |
//!                                v begin, advance by a number of nodes per tick
//!                            PathFinder ---> Path: few points, straight between them
//!
//!  Scene: eyes, points of bodies, smoke ---> Perception: pairs by importance, a budget of rays per tick
//!                                                |
//!                                                v
//!                                            Sighting of each pair: seen or not, and how old that is
//! ```
//!
//! **The promises.** A goal that cannot be reached is refused at once in nearly all cases, and after a bounded search in
//! the others. A call does no more work than its budget allows. A pair is looked at again within a stated time, or
//! [`Perception::new`] fails. Nothing here knows a clock or a random number: the same input gives the same answers. Path
//! finding and perception do not allocate once their buffers have grown.
//!
//! ```
//! use glam::vec3;
//! use throng_agent::{Navigation, NavigationOptions, Path, PathFinder, Progress};
//! use throng_sight::{bake, town};
//!
//! let map = bake(&town::town(7, 3_000))?;
//! let navigation = Navigation::survey(&map, &NavigationOptions::new(town::BODIES))?;
//! let place = |name: &str| map.marks().find(|mark| mark.name == name).map(|mark| mark.bounds[0].midpoint(mark.bounds[1]));
//! let (from, to) = (place("spawn/a").unwrap(), place("site/b").unwrap());
//! let (from, to) = (navigation.nearest(from, 3.0).unwrap(), navigation.nearest(to, 3.0).unwrap());
//!
//! let mut finder = PathFinder::new(&navigation);
//! let mut path = Path::default();
//! let mut progress = finder.begin(from, to);
//! while progress == Progress::Searching {
//!     progress = finder.advance(1_000); // as many nodes as this tick can afford
//! }
//! assert_eq!(progress, Progress::Found);
//! finder.path(&mut path);
//! assert_eq!(path.points().last(), Some(&navigation.point(to)));
//! assert!(path.length_m() > 10.0);
//! # let _ = vec3(0.0, 0.0, 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/agents.md` says how to choose the numbers.
#![forbid(unsafe_code)]

mod navigation;
mod path;
mod perception;

pub use navigation::{
    BodyShape, CELLS_MAX, COLUMNS_MAX, CellId, FLOORS_MAX, Link, Navigation, NavigationError, NavigationOptions, Reach,
    WORK_MAX,
};
pub use path::{Path, PathFinder, Progress};
pub use perception::{
    Look, PAIRS_MAX, POINTS_MAX, Pair, Perception, PerceptionCounters, PerceptionError, PerceptionOptions, Rays, Scene,
    Sighting,
};
