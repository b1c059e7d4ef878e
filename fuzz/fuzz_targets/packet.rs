//! Packets of a session, sealed and open.
#![no_main]

#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../bodies/packet.rs"]
mod packet;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| packet::run(input));
