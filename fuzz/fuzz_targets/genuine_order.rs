//! A server's replication packets, lost, doubled and reordered: never refused.
#![no_main]

#[path = "../bodies/choices.rs"]
mod choices;
#[path = "../bodies/genuine.rs"]
mod genuine;
#[path = "../bodies/kinds.rs"]
mod kinds;
#[path = "../bodies/segment.rs"]
mod segment;

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use throng_schema::Schema;

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(kinds::schema);

fuzz_target!(|input: &[u8]| genuine::run_unbent(&SCHEMA, input));
