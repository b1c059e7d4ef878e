//! Typed messages and inputs.
#![no_main]

#[path = "../bodies/kinds.rs"]
mod kinds;
#[path = "../bodies/values.rs"]
mod values;

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use throng_schema::Schema;

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(kinds::schema);

fuzz_target!(|input: &[u8]| values::run(&SCHEMA, input));
