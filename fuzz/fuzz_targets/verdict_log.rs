//! Logs of verdicts on shots.
#![no_main]

#[path = "../bodies/verdict_log.rs"]
mod verdict_log;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| verdict_log::run(input));
