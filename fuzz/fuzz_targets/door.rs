//! Strangers at a server's door.
#![no_main]

#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../bodies/door.rs"]
mod door;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| door::run(input));
