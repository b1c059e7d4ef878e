//! The visible cells in the file of a map.
#![no_main]

#[path = "../bodies/cells.rs"]
mod cells;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| cells::run(input));
