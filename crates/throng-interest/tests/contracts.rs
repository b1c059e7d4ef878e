//! The contracts of interest, each in a module of its own.

mod rings;
mod shapes;
mod support;
