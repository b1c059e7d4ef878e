//! Snapshots of a gateway.
#![no_main]

#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../bodies/snapshot.rs"]
mod snapshot;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| snapshot::run(input));
