//! The gateway without sockets, clocks and threads: connections, channels, fan-out, entities in cells, recovery.
//!
//! ```text
//!   a shell: sockets, threads, clocks        messages, answers of the provider, the time
//!        |                                          ^
//!        v                                          |  Outbox: entries for each connection
//!   Engine  <---- EngineSettings: limits, channel types, state machines, the grid
//!        |            |             |
//!        |            |             +--> spatial, group: cells, interest, handover
//!        |            +--> throng-replica: who is due, one frame for all who need the same
//!        +--> throng-protostate: the state of each channel
//! ```
//!
//! Everything it does can be played in virtual time: the caller says what has come and how late it is.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use throng_channeld::proto::{AuthMessage, AuthResultMessage};
//! use throng_channeld::{Header, Messages, message_type, put_body};
//! use throng_gateway_engine::port::{Outbox, Side};
//! use throng_gateway_engine::{Engine, settings::EngineSettings};
//! use throng_protostate::Schemas;
//! use throng_wire::Time;
//!
//! struct Sent(Arc<Mutex<Vec<u8>>>);
//!
//! impl Outbox for Sent {
//!     fn queued_bytes(&self) -> usize {
//!         0
//!     }
//!
//!     fn send(&self, entries: &mut Vec<u8>) {
//!         self.0.lock().expect("nobody panics").append(entries);
//!     }
//!
//!     fn close(&self) {}
//! }
//!
//! let settings = EngineSettings { development: true, ..EngineSettings::default() };
//! let mut engine = Engine::new(Arc::new(settings), Arc::new(Schemas::default()), 1, (Time(0), 0));
//! let sent = Arc::new(Mutex::new(Vec::new()));
//! let outbox = Box::new(Sent(Arc::clone(&sent)));
//! let server = engine.open(Time(0), Side::Server, "127.0.0.1:40000".parse()?, outbox)?;
//!
//! let (mut packet, name) = (Vec::new(), "world-1".to_string());
//! let login = AuthMessage { player_identifier_token: name, ..AuthMessage::default() };
//! put_body(&mut packet, Header::new(0, message_type::AUTH), &login);
//! for message in Messages::new(packet.into()) {
//!     engine.receive(Time(0), server, message?);
//! }
//! engine.advance(Time(0));
//!
//! let entries = std::mem::take(&mut *sent.lock().expect("nobody panics"));
//! let answer = Messages::new(entries.into()).next().expect("an answer")?;
//! assert_eq!(answer.decode::<AuthResultMessage>()?.conn_id, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod bans;
pub mod channel_types;
pub mod config_file;
pub mod edge;
mod engine;
pub mod fsm;
pub mod group;
pub mod histogram;
pub mod limits;
pub mod settings;
pub mod shards;
pub mod snapshot;
pub mod spatial;

pub use bans::Census;
pub use engine::*;
