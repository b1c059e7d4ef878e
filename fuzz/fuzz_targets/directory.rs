//! Anything that comes from the bus to a directory.
#![no_main]

#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../bodies/directory.rs"]
mod directory;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| directory::run(input));
