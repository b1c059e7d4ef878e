//! Connect tokens.
#![no_main]

#[path = "../bodies/token.rs"]
mod token;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| token::run(input));
