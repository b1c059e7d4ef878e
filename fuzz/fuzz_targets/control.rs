//! Whole client and whole server, each against a peer that says anything after the handshake.
#![no_main]

#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../bodies/control.rs"]
mod control;
#[path = "../bodies/kinds.rs"]
mod kinds;

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use throng_schema::Schema;

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(kinds::schema);

fuzz_target!(|input: &[u8]| control::run(&SCHEMA, input));
