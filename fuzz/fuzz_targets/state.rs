//! Channel states of the gateway.
#![no_main]

#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../bodies/state.rs"]
mod state;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| state::run(input));
