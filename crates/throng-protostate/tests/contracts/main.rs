//! States: the content that they keep, the updates for each subscriber, their cost, and bytes of any kind.
#![allow(missing_docs)]

mod allocation;
mod behaviour;
#[path = "../../../../fuzz/bodies/choices.rs"]
mod choices;
mod counting;
mod properties;
mod saved;
#[path = "../../../../fuzz/bodies/state_saved.rs"]
mod state_saved;
mod support;
mod work;
