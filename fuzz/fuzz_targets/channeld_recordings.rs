//! Recorded sessions of channeld.
#![no_main]

#[path = "../bodies/channeld_recordings.rs"]
mod channeld_recordings;
#[path = "../bodies/choices.rs"]
mod choices;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| channeld_recordings::run(input));
