//! What states keep, what they send to whom, what it costs, and what they do with bytes of any kind.
#![allow(missing_docs)]

mod allocation;
mod behaviour;
#[path = "../../../../fuzz/bodies/choices.rs"]
mod choices;
mod counting;
mod properties;
mod support;
mod work;
