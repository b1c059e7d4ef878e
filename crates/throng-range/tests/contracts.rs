//! Whole matches with bots, and their figures.

mod runs;
