//! Anything that comes from the bus to a server and an edge of a world.
#![no_main]

#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../bodies/world.rs"]
mod world;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| world::run(input));
