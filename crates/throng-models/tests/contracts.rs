//! The contracts of the older models, each in a module of its own.

mod any_bytes;
mod convergence;
#[path = "../../throng/tests/harness/mod.rs"]
mod harness;
mod oracle;
