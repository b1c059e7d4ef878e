//! Queries of interest in the gateway's grids.
#![no_main]

#[path = "../bodies/channeld_queries.rs"]
mod channeld_queries;
#[path = "../bodies/choices.rs"]
mod choices;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| channeld_queries::run(input));
