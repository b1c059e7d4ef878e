//! State replication for crowded worlds: the server and client that a game embeds.
#![forbid(unsafe_code)]

mod arena;
mod client;
mod event;
mod handshake;
mod inbound;
mod message;
mod options;
mod outbound;
mod peer;
mod server;
mod token;
mod view;

pub use client::{Client, ClientCore, ClientEvent, ClientOptions, ConnectStartError, Decode, EndReason};
pub use event::ServerEvent;
pub use handshake::OpenError;
pub use message::Received;
pub use options::{GridOptions, ServerOptions, default_lanes};
pub use server::{MessageError, Server, StartError};
pub use throng_interest::Ring;
pub use throng_link::netcode::{ConnectToken, Key};
pub use throng_link::session::{CloseCause, CloseCode, CloseReason, Input, LaneKind, LaneOptions, Statistics};
pub use throng_meter as meter;
pub use throng_net as net;
pub use throng_replica as replica;
pub use throng_replica::{ChannelKey, GridShape, Placement};
pub use throng_schema as schema;
pub use throng_schema::{Facet, FieldMask, Replicate, ReplicateEnum, Schema};
pub use throng_wire::{ConnectionId, ObjectId, Tick, Time};
pub use token::{TokenIssuer, random_key};

/// Everything that most programs need.
pub mod prelude {
    pub use crate::{
        ChannelKey, Client, ClientEvent, ClientOptions, ConnectionId, GridOptions, ObjectId, Placement, Replicate,
        ReplicateEnum, Ring, Schema, Server, ServerEvent, ServerOptions, Tick, Time, TokenIssuer, random_key,
    };
}
