//! Space: which cell a position is in, who owns which cells, who wants to see which cells, and what happens when an
//! entity goes from one cell to another.
//!
//! ```text
//!      z ^   +-----+-----+-----+-----+      a Grid of 4 x 3 cells, each of them a channel:
//!        |   |  8     9  | 10    11  |      number = first_channel + column + row * columns (+ layer * columns * rows)
//!        |   +  server 2 + server 3  +
//!        |   |  4     5  |  6     7  |      2 x 2 servers: blocks of 2 x 2 cells, of 2 x 1 where the grid ends.
//!        |   +-----+-----+-----+-----+      Slots: which connection is which server.
//!        |   |  0     1  |  2     3  |      interest: an area -> cells and how far away they are, in cells.
//!        |   +  server 0 + server 1  +      Handovers: entities, from where, to where -> what is to be done, in order.
//!        |   +-----+-----+-----+-----+
//!        +---------------------------> x    seen from above; y is up
//! ```
//!
//! All of it is arithmetic: no sockets, clocks or threads, and nothing here keeps a connection or a channel.

mod config;
mod grid;
mod handover;
mod query;
mod slots;

pub use config::{MAX_DAMPING_STEPS, SpatialConfig};
pub use grid::{Axis, Damping, Grid, GridError, MAX_CELLS, Position};
pub use handover::{Action, Announced, Grant, HandoverPlan, HandoverRefusal, HandoverView, Handovers};
pub use query::{Interest, InterestError, InterestLimits, InterestScratch};
pub use slots::{Slots, SlotsError};
