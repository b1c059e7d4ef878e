//! Baked maps.
#![no_main]

#[path = "../bodies/map.rs"]
mod map;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| map::run(input));
