//! Summaries of a peer's schema.
#![no_main]

#[path = "../bodies/kinds.rs"]
mod kinds;
#[path = "../bodies/summary.rs"]
mod summary;

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use throng_schema::Schema;

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(kinds::schema);

fuzz_target!(|input: &[u8]| summary::run(&SCHEMA, input));
