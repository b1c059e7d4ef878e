//! The contracts of channeld's protocol, each in a module of its own.

mod any_bytes;
mod any_recording;
#[path = "../../../fuzz/bodies/choices.rs"]
mod choices;
mod golden_bytes;
mod link_end;
