//! One connection for a client, many world servers behind it: channels in between, speaking channeld's protocol.
//!
//! ```text
//!  clients --- TCP, WebSocket, KCP, TLS, Throng's link ---+          +--- world servers
//!  clients --- edges (docs/gateway.md#edges) --- TCP -----+          |
//!                                          v                         v
//!                                   serve: sockets, threads, clocks, limits of the doors
//!                                          |  messages         ^ entries
//!                                          v                   |
//!   settings ---------------------> throng-gateway-engine: channels, subscriptions, fan-out, entities, recovery
//!   (channeld's files and flags)           |
//!                                          v
//!                                 throng-protostate: the state of each channel, as a log of changes
//! ```
//!
//! The engine knows no socket, no clock and no thread of its own: everything it does can be played in virtual time.
//!
//! ```
//! use throng_channeld::client::{Client, ClientOptions};
//! use throng_gateway::serve::Gateway;
//! use throng_gateway::settings;
//!
//! let settings = settings::load(["-dev", "-sa=127.0.0.1:0", "-ca=127.0.0.1:0", "-http="])?;
//! let gateway = Gateway::from_settings(settings, 1, 0)?;
//! let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
//! let mut server = Client::connect(gateway.addresses()[0], ClientOptions::default())?;
//! let answer = server.authenticate("world-1", "secret", deadline)?;
//! assert_eq!(answer.conn_id, 1);
//! assert!(gateway.shut_down(), "everybody was served to the end");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod auth;
mod calendar;
pub mod files;
pub mod log;
mod metrics;
mod place;
pub mod process;
pub mod protections;
mod recent;
pub mod serve;
pub mod settings;
mod snapshots;
mod start;

pub use start::StartError;
