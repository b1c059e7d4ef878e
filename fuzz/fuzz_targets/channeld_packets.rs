//! Packets of channeld's protocol.
#![no_main]

#[path = "../bodies/channeld_packets.rs"]
mod channeld_packets;
#[path = "../bodies/choices.rs"]
mod choices;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| channeld_packets::run(input));
