//! The contracts of the directory, each in a module of its own.

mod any_bytes;
mod limits;
mod node;
mod storms;
