//! Frames of channeld's protocol.
#![no_main]

#[path = "../bodies/channeld_frames.rs"]
mod channeld_frames;
#[path = "../bodies/choices.rs"]
mod choices;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| channeld_frames::run(input));
