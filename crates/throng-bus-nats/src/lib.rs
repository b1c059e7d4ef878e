//! The bus over NATS: core messages, and JetStream's key-value store.
//!
//! ```text
//!  your loop                           a thread with a small runtime                     nats-server 2.11 or newer
//!  NatsBus: handle_command --> Endpoint --> driver: publish, subscribe, request    -->  throng.<cluster>.<subject>
//!           poll_event     <-- (locked) <--         put, get, watch                <--  bucket throng-<cluster>
//! ```
//!
//! Everything that can be decided without a network is decided in [`throng_bus::endpoint::Endpoint`], which the simulated bus
//! shares. The end of an entry (`lives_for`) is the time to live of a message in the bucket, which the server keeps over its
//! own end.
//!
//! ```no_run
//! use throng_bus::{Bus, Cluster, Limits, MemberId};
//! use throng_bus_nats::{NatsBus, NatsOptions};
//!
//! let cluster = Cluster::new("live", 0x5eed)?;
//! let member = MemberId(4711); // random, another one for each start of a process
//! let mut bus = NatsBus::start(NatsOptions::new("nats://127.0.0.1:4222", cluster, member))?;
//! # let now = throng_wire::Time(0);
//! while bus.wait(std::time::Duration::from_millis(5)) {
//!     while let Some(event) = bus.poll_event(now) { /* ... */ }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod bus;
mod driver;
mod error;
mod store;

pub use bus::{NatsBus, NatsOptions, SERVER_VERSION_MIN, Secret};
pub use error::StartError;
