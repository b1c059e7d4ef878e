//! Decides which cells a viewer subscribes to, and at which rate: grids, rings, shapes, groups.
//!
//! Space is cut into the cells of a [`Grid`]. A viewer wants the cells around it, the near ones often and the far ones
//! rarely: [`Rings`] says how far each rate reaches. [`RingInterest`] turns a moving position into the few calls that
//! matter, *enter*, *change ring* and *leave*, made on a [`Sink`]. The contents of a cell, its readers and the meaning
//! of the sink's `u32` tags are not known here: this crate knows cells and numbers, no objects, sockets or clocks.
//!
//! ```text
//!   1 1 1 1 1 1 1      0  within 10 m of the viewer: every tick
//!   1 1 1 1 1 1 1      1  within 30 m: every third tick
//!   1 1 0 0 0 1 1
//!   1 1 0 @ 0 1 1      @  the viewer's own cell, cut into 4 x 4 sub-cells:    +-+-+-+-+
//!   1 1 0 0 0 1 1         inside one sub-cell nothing is computed,            | | | | |
//!   1 1 1 1 1 1 1         crossing into the next one merges two               +-+-+-+-+
//!   1 1 1 1 1 1 1         short sorted lists: "had" and "wants"               | |@| | |
//! ```
//!
//! **The promise.** Everything within `radius_m` of a viewer is in a cell of that ring or a nearer one. It holds at
//! every moment, because the list of cells (the *stamp*) of a sub-cell counts distance from the nearest point of that
//! sub-cell. The price is that a ring reaches up to one cell and one sub-cell farther than asked.
//!
//! **No flapping.** A cell that is held leaves its ring only beyond `radius_m` + [`RingOptions::margin_m`]. With the
//! automatic margin a viewer that jitters on a border, or on a corner, settles after one call per cell.
//!
//! ```
//! use throng_interest::{CellId, Grid, Ring, RingInterest, RingOptions, Rings, Scratch, Sink, Viewer};
//!
//! /// Counts what a real sink would subscribe to.
//! #[derive(Default)]
//! struct Subscriptions(Vec<CellId>);
//!
//! impl Sink for Subscriptions {
//!     fn enter(&mut self, cell: CellId, _ring: u8) -> u32 {
//!         self.0.push(cell);
//!         self.0.len() as u32 - 1 // the tag: comes back with every later call about this cell
//!     }
//!     fn change(&mut self, cell: CellId, tag: u32, _ring: u8) {
//!         assert_eq!(self.0[tag as usize], cell);
//!     }
//!     fn leave(&mut self, cell: CellId, tag: u32) {
//!         assert_eq!(self.0[tag as usize], cell);
//!     }
//! }
//!
//! let grid = Grid::new([10.0, 10.0, f64::INFINITY])?; // 10 m squares, one layer for all heights
//! let rings = Rings::new(&[
//!     Ring { radius_m: 10.0, interval_ticks: 1 },
//!     Ring { radius_m: 50.0, interval_ticks: 3 },
//! ])?;
//! let interest = RingInterest::new(grid, rings, RingOptions::default())?;
//!
//! let (mut viewer, mut scratch, mut sink) = (Viewer::new(), Scratch::new(), Subscriptions::default());
//! assert!(interest.update(&mut viewer, [12.0, 3.0, 1.8], &mut scratch, &mut sink));
//! assert!(!interest.update(&mut viewer, [12.1, 3.0, 1.8], &mut scratch, &mut sink)); // same sub-cell: nothing to do
//!
//! assert_eq!(viewer.ring_of(grid.cell_of([20.0, 3.0, 0.0])), Some(0)); // 8 m away
//! assert_eq!(viewer.ring_of(grid.cell_of([60.0, 3.0, 0.0])), Some(1)); // 48 m away
//! assert_eq!(viewer.ring_of(grid.cell_of([90.0, 3.0, 0.0])), None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Besides positions a viewer can want the cells of a [`Shape`] (sphere, box, cone) and cells named one by one: see
//! [`Sources`]. Sets that are not spatial, such as teams and rooms, are [`Groups`].
#![forbid(unsafe_code)]

mod grid;
mod groups;
mod interest;
mod rings;
mod shape;
mod stamp;
mod viewer;

pub use grid::{CellBounds, CellId, Grid, GridError};
pub use groups::{GroupId, GroupLimits, Groups, GroupsError};
pub use interest::{InterestError, MAX_EXPLICIT_CELLS, MAX_SHAPES, MAX_VIEWPOINTS, RingInterest, RingOptions, Sources};
pub use rings::{MAX_INTERVAL_TICKS, MAX_RINGS, Ring, Rings, RingsError};
pub use shape::{MAX_SHAPE_CELLS, Shape, ShapeError};
pub use stamp::{MAX_STAMP_CELLS, MAX_SUBCELLS};
pub use viewer::{Held, Scratch, Sink, Viewer};
