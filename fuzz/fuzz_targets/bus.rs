//! Anything that comes from the bus.
#![no_main]

#[path = "../bodies/bus.rs"]
mod bus;
#[path = "../bodies/choices.rs"]
mod choices;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| bus::run(input));
