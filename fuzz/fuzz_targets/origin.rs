//! Anything that comes from edges to their origin.
#![no_main]

#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../bodies/origin.rs"]
mod origin;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| origin::run(input));
