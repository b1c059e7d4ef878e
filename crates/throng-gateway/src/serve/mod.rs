//! The shell: sockets, threads and clocks around the engine.
//!
//! ```text
//!   doors: TCP, WebSocket, TLS, KCP, Throng's link                     HTTP: health, readiness, metrics
//!     |  one task for each connection: reads, frames, unpacks, limits        |
//!     v                                                                      v
//!   events, bounded by bytes  ---->  engine's thread  ---->  queues of what is to be written, bounded by bytes
//!     ^                                |        ^                            |
//!     |                                v        |                            v
//!     |                          authentication desk         cut, pack, frame, write: plain TCP by the engine's threads as
//!     |                                                      long as the kernel takes all, everything else by the same tasks
//!     +--- a full queue is waited for, so a peer is read as fast as the engine takes
//! ```
//! There may be several engines with a thread and a queue each, which share the channels out: tasks sort what their peers
//! say, and all engines write to the same queues of what is to be written.
//!
//! A gateway may be the home of [edges](throng_gateway_engine::edge), or one of them: then what its clients say is passed to the
//! home, over a path that one task keeps.
//!
//! One more thread writes [snapshots](SnapshotOptions) of the engines, if they are wanted.
//!
//! Nothing here polls: tasks wait for sockets and queues, the engine's thread for events and its next deadline. A
//! connection that is silent costs memory and nothing else.

mod admin;
mod budget;
mod clock;
mod configure;
mod counted;
mod counters;
mod datagrams;
mod direct;
mod door;
mod draft;
mod edge_door;
mod edge_frames;
mod edge_path;
mod end;
mod error;
mod event;
mod gate;
mod gateway;
mod health;
mod helpers;
mod home_path;
mod http;
mod inflow;
mod intake;
mod kcp;
mod life;
mod link;
mod manner;
mod memory;
mod options;
mod others;
mod outbox;
mod part;
mod pieces;
mod proxy;
mod rate;
mod ration;
mod record;
mod signals;
mod snapshots;
mod stream;
mod tcp;
mod tls;
mod turn;
mod udp;
mod wake;
mod websocket;
mod write_behind;

pub use crate::recent::BanCounts;
pub use counters::{Reason, ShellCounters, SideCounters};
pub use draft::{SnapshotCounters, SnapshotOptions};
pub use error::ServeError;
pub use event::Report;
pub use gateway::{Gateway, Parts};
pub use helpers::helpers;
pub use http::RenderMetrics;
pub use memory::{Memory, Part};
pub use options::{
    DoorLimits, DoorOptions, EdgeSecret, EdgesOptions, HomeOptions, LinkOptions, ServeOptions, TlsFiles, Transport,
    WebSocketOptions,
};
pub use proxy::{ProxyError, ProxyHeader};
pub use record::RecordingOptions;
pub use signals::Signals;
pub use throng_channeld::link::session_options as link_session_options;
pub use tls::TlsError;
