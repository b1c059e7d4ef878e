//! Movement sections of the link to a gateway.
#![no_main]

#[path = "../bodies/channeld_movement.rs"]
mod channeld_movement;
#[path = "../bodies/choices.rs"]
mod choices;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| channeld_movement::run(input));
