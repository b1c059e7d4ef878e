//! The gateway on loopback: doors, transports, limits of connections; and its settings.

mod admin_page;
mod beside;
#[path = "../../../fuzz/bodies/choices.rs"]
mod choices;
mod dialects;
mod edges;
mod engine_threads;
mod false_addresses;
mod farewells;
mod health;
mod limits;
mod link;
mod link_bottleneck;
mod link_door;
mod movement_link;
mod protections;
mod proxies;
mod reload;
mod serving;
mod settings_any_bytes;
mod settings_files;
mod settings_flags;
mod slow_readers;
mod snapshots;
#[path = "../../throng-gateway-engine/tests/contracts/stage/mod.rs"]
mod stage;
mod transports;
mod trust;
