//! Snapshots of a server.
#![no_main]

#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../bodies/kinds.rs"]
mod kinds;
#[path = "../bodies/world_snapshot.rs"]
mod world_snapshot;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| world_snapshot::run(input));
