//! The frames between a gateway and its edges.
#![no_main]

#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../bodies/edge.rs"]
mod edge;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| edge::run(input));
