//! Saved channel states of the gateway.
#![no_main]

#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../bodies/state_saved.rs"]
mod state_saved;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| state_saved::run(input));
