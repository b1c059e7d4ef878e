//! State replication for crowded worlds: the server and client that a game embeds.
//!
//! A game keeps its objects as plain structs in a [`Server`] and changes them there. Each [`Client`] holds a copy of what
//! it may see: near things often, far things seldom, private things only if they are its own. What many clients need is
//! encoded once and shared, so a thousand people in one place are an ordinary case.
//!
//! ```text
//!   your loop, once per tick                                                 your loop, once per frame
//!
//!   server.receive(now)        datagrams in: inputs, messages, acknowledgements
//!   server.poll_event()        who came, who left, what was said             client.update(now)
//!   server.poll_input()        what players did                <~~~ UDP ~~~> client.poll_event()
//!   server.get_mut::<Player>() your game                                     client.get::<Player>(id)
//!   server.tick(now)           quantise, encode, write, seal, send           client.send_typed_input(&input)
//! ```
//!
//! No engine, entity system or async runtime is needed, and none is in the way: `now` comes from you, and nothing blocks.
//!
//! ```
//! use std::sync::Arc;
//! use throng::net::{Condition, MemoryNetwork};
//! use throng::prelude::*;
//!
//! #[derive(Default, Replicate)]
//! #[replicate(crate = "throng::schema")]
//! struct Player {
//!     #[replicate(position(step = 0.01))]
//!     position: [f32; 3],
//!     #[replicate(integer(min = 0, max = 999), owner_only)]
//!     ammunition: u16,
//! }
//!
//! let schema = Arc::new(Schema::builder().kind::<Player>().build()?);
//! let key = random_key(); // shared with whoever issues tokens
//! let options = ServerOptions { private_key: key.clone(), ..ServerOptions::default() };
//! let issuer = TokenIssuer::new(options.protocol_id, key);
//!
//! // A network in memory, where time is what we say. `Server::bind` and `Client::connect` take UDP instead.
//! let network = MemoryNetwork::new("wifi".parse::<Condition>()?, 7)?;
//! let address = "10.0.0.1:40000".parse()?;
//! let mut server = Server::new(Box::new(network.endpoint(address)?), Arc::clone(&schema), options)?;
//! let driver = Box::new(network.endpoint("10.0.0.2:50000".parse()?)?);
//! let token = issuer.issue(1, &[address])?;
//! let mut client = Client::new(driver, token, schema, ClientOptions::default(), Time(0))?;
//!
//! for tick in 0..60 {
//!     let now = Time::from_millis(tick * 33);
//!     server.receive(now)?;
//!     while let Some(event) = server.poll_event() {
//!         if let ServerEvent::Connected { connection, .. } = event {
//!             let hero = Player { position: [1.0, 2.0, 0.0], ammunition: 30 };
//!             server.spawn_owned(hero, Placement::Cell(0), Some(connection))?;
//!             server.set_viewpoint(connection, [1.0, 2.0, 0.0]);
//!         }
//!     }
//!     server.tick(now);
//!     client.update(now)?;
//! }
//!
//! let (_, hero) = client.objects::<Player>().next().ok_or("it is in sight")?;
//! assert_eq!((hero.position, hero.ammunition), ([1.0, 2.0, 0.0], 30));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What to use when
//!
//! | you have | use |
//! |---|---|
//! | things in a world with places, in crowds | [`Placement::Cell`], and [`GridOptions::rings`] for how far and how often |
//! | a thing that only chosen clients may see | [`Placement::Entity`], and [`Server::subscribe`] for each of them |
//! | state without a place: score, weather | [`Placement::Channel`] with [`ChannelKey::Global`], and [`Server::subscribe`] |
//! | state of a team or room | [`Placement::Channel`] with [`ChannelKey::Custom`], and [`Server::subscribe`] for its members |
//! | fields for the owner, or for all but the owner | `owner_only`, `skip_owner` on the field, and [`Server::spawn_owned`] |
//! | something that happened, for one client | [`Server::send`] on a lane: it is delivered or the connection ends |
//! | what a player does | [`ClientCore::send_typed_input`]: numbered, and repeated in the next packets instead of resent |
//! | prediction | [`Server::acknowledge_input`] and [`ClientCore::input_acked`] |
//! | a test, or a world in one process | [`net::MemoryNetwork`] with [`Server::new`] and [`Client::new`] |
//! | thousands of clients in one process | [`ClientCore`] with [`net::LightUdpSocket`], and [`Decode::Nothing`] |
//! | to know where the time went | [`Server::last_tick`] |
//!
//! Kinds, quantisers and conditions are described in [`schema`], drivers and network conditions in [`net`], what happens
//! underneath in [`replica`]. The folder `examples` has one idea per file.
#![forbid(unsafe_code)]

mod arena;
mod channels;
mod client;
mod decoder;
mod event;
mod handshake;
mod inbound;
mod message;
mod options;
mod outbound;
mod peer;
mod replication;
mod server;
mod token;
mod view;

pub use channels::Channels;
pub use client::{Client, ClientCore, ClientEvent, ClientOptions, ConnectStartError, Decode, EndReason};
pub use decoder::{Decoder, ObjectView};
pub use event::ServerEvent;
pub use handshake::OpenError;
pub use message::Received;
pub use options::{GridOptions, ServerOptions, default_lanes};
pub use replication::{Replicated, Replication};
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
