//! Headers of the PROXY protocol at the gateway's doors.
#![no_main]

#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../bodies/proxy_header.rs"]
mod proxy_header;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| proxy_header::run(input));
