//! Settings files and command lines of the gateway.
#![no_main]

#[path = "../bodies/channeld_settings.rs"]
mod channeld_settings;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| channeld_settings::run(input));
