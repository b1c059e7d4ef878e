//! The contracts of navigation, paths and perception, each in a module of its own.

mod navigation;
mod paths;
mod perception;
mod support;
