//! State replication for crowded worlds: the server and client that a game embeds.
//!
//! A game keeps its objects as plain structs in a [`Server`] and changes them there. Each [`Client`] holds a copy of
//! what it may see: near things often, far things seldom, private things only if they are its own. Data that many
//! clients need is encoded once and shared, so a thousand players in one place are an ordinary case.
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
//! struct Player {
//!     #[replicate(position(step = 0.01))]
//!     position: [f32; 3],
//!     #[replicate(integer(min = 0, max = 999), owner_only)]
//!     ammunition: u16,
//! }
//!
//! let schema = Arc::new(Schema::builder().kind::<Player>().build()?);
//! // A number for your game and its version, and a key that you share with the program that issues tokens.
//! // Positions are cut into cells; which axis points up is yours to say.
//! let grids = vec![GridOptions::new(Up::Y)];
//! let options = ServerOptions { grids, ..ServerOptions::new(0x6D79_6761_6D65_0001, random_key()) };
//! let issuer = options.token_issuer();
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
//! | things with a position, in crowds | [`Placement::Cell`], and [`GridOptions::rings`] for how far and how often |
//! | a thing that only chosen clients may see | [`Placement::Entity`], and [`Server::subscribe`] for each of them |
//! | state without a position: score, weather | [`Placement::Channel`] with [`ChannelKey::Global`], and [`Server::subscribe`] |
//! | state of a team or room | [`Placement::Channel`] with [`ChannelKey::Custom`], and [`Server::subscribe`] for its members |
//! | fields for the owner alone | `owner_only` on the field, and [`Server::spawn_owned`] |
//! | fields that the owner predicts itself | `skip_owner` on the field; the owner's client skips it, and keeps the values of [`ClientCore::predict`] |
//! | a secret from the owner | `hide_from_owner` on the field: costs a subscription for each viewer of each such object |
//! | "which one is me?" | [`ClientEvent::Owned`], [`ClientCore::owned`], [`ClientCore::is_mine`]; [`Server::owner`] |
//! | all objects of a type, or of an owner | [`Server::objects`], [`Server::owned`]; [`ClientCore::objects`], [`ClientCore::owned`] |
//! | something that happened, for one client | [`Server::send`] on a lane: it is delivered or the connection ends |
//! | the same for all, for a team, for those near a position | [`Server::broadcast`], [`Server::send_to_channel`], [`Server::send_near`]: encoded once |
//! | messages of several types on a lane | [`Received::kind`], [`Received::get`] |
//! | a split screen, a camera beside the player | [`Server::set_viewpoints`] |
//! | a scope, a room, an area that a player watches | [`Server::set_shapes`] |
//! | what a player does | [`ClientCore::send_typed_input`]: numbered, and repeated in the next packets instead of resent |
//! | prediction | [`Server::acknowledge_input`] and [`ClientCore::input_acked`]; see below |
//! | a loop that keeps time | [`Server::run`], or [`Server::step`] in a loop of your own |
//! | an end after everything has arrived | [`Server::disconnect_after_flush`], [`ClientCore::close_after_flush`] |
//! | a backend's data about a player | [`TokenIssuer::issue_with`]; [`ServerEvent::Connected`] has it |
//! | a test, or a world in one process | [`net::MemoryNetwork`] with [`Server::new`] and [`Client::new`] |
//! | thousands of clients in one process | [`ClientCore`] with [`net::LightUdpSocket`], and [`Decode::Nothing`] |
//! | to know where the time went | [`Server::last_tick`] |
//!
//! # What a client sees and receives
//!
//! An object is *in sight* while its state reaches the client. Then, and only then, [`ClientCore::get`] and
//! [`ClientCore::objects`] return it, with all fields that this client may know: never a part of it, never a place where it
//! was not. In sight is
//!
//! - what the client owns, wherever it is. Its state comes in a separate record, in each send tick of the client,
//!   before anything else and whatever the rings say, with public and owner's fields;
//! - what lives in a channel that the client is subscribed to, by its viewpoint or by [`Server::subscribe`];
//! - what has moved from such a channel into a neighbouring cell that the client is sent as well, until that cell's
//!   next turn. [`ClientCore::is_stale`] is true then. That lasts as long as the cell's interval, and at most as long
//!   as the slowest ring's, which the server tells in its welcome, and
//!   [`LIMBO_SLACK_TICKS`](replica::LIMBO_SLACK_TICKS) more.
//!
//! An object that goes anywhere else, or whose channel the client is no longer sent, is out of sight at once. One that
//! ends is gone as soon as any channel in which the client has known it tells so.
//!
//! Events tell the difference to what was polled before. For one object they come in this order:
//!
//! | event | means |
//! |---|---|
//! | [`Spawned`](ClientEvent::Spawned) | it is in sight, whole |
//! | [`Owned`](ClientEvent::Owned) | it belongs to this client from now on; right after `Spawned` if it did from the start |
//! | [`Changed`](ClientEvent::Changed) | fields have other values, or are no longer known; all changes since the last in one |
//! | [`Disowned`](ClientEvent::Disowned) | it is still in sight, and not this client's. Owner's fields are forgotten, as the next `Changed` says |
//! | [`Despawned`](ClientEvent::Despawned) | it is gone: *destroyed* is for ever; after *out of sight* it may be `Spawned` again |
//!
//! Events of different objects come in the order of their first unreported change. Objects that come and go between two
//! polls cause no event. However long the game does not poll, nothing is dropped: the queue is bounded by the objects.
//! Messages are not in order with the state: one may name an object that is not there yet, or has gone.
//!
//! # Prediction
//!
//! The server calls [`Server::acknowledge_input`] in the tick in which an input takes effect, also if it has none. At the
//! client, [`ClientCore::input_acked`] and the state of the objects that it owns change together: what `get` returns is
//! the state after exactly that input. Each frame: take it, play the inputs after that number on it once more, and
//! show the result. The example `prediction` does.
//!
//! Kinds, quantisers and conditions are described in [`schema`], drivers and network conditions in [`net`], what happens
//! underneath in [`replica`]. The folder `examples` has one idea per file.
#![forbid(unsafe_code)]

mod arena;
mod channels;
mod client;
mod clock;
mod decoder;
mod event;
mod farewell;
mod greeting;
mod handshake;
mod held;
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
pub use clock::Clock;
pub use decoder::{Decoder, ObjectView};
pub use event::ServerEvent;
pub use handshake::{LaneDifference, OpenError};
pub use message::Received;
pub use options::{GridOptions, ServerOptions, default_lanes};
pub use replication::{Replicated, Replication};
pub use server::{MessageError, Queued, Server, StartError};
pub use throng_interest::{InterestError, Ring, Shape, ShapeError};
pub use throng_link as link;
pub use throng_link::netcode::{
    ConnectError, ConnectToken, ConnectTokenOptions, Denial, DropReason, Key, NetcodeCounters, SecondConnection,
    TokenError, USER_DATA_LEN,
};
pub use throng_link::session::{
    Blame, CloseCause, CloseCode, CloseReason, Input, InputError, LaneKind, LaneOptions, MAX_INPUT_BYTES, OptionsError,
    SendError, Statistics,
};
pub use throng_meter as meter;
pub use throng_meter::TickRecord;
pub use throng_net as net;
pub use throng_net::{BindError, DriverCounters, ReceiveError};
pub use throng_replica as replica;
pub use throng_replica::{
    ChannelKey, ConnectionCounters, DespawnReason, GridShape, HubCounters, Layers, LimitReached, Placement,
    ReplicatorOptions, Up,
};
pub use throng_schema as schema;
pub use throng_schema::traits::{Replicate, ReplicateEnum};
pub use throng_schema::{Facet, FieldMask, Schema, SchemaError};
pub use throng_schema_derive::{ReplicateEnumInThrong as ReplicateEnum, ReplicateInThrong as Replicate};
pub use throng_wire::{ConnectionId, ObjectId, Tick, Time};
pub use token::{TokenIssuer, random_key};

/// Everything that most programs need.
pub mod prelude {
    pub use crate::{
        ChannelKey, Client, ClientEvent, ClientOptions, Clock, ConnectionId, DespawnReason, GridOptions, ObjectId,
        Placement, Replicate, ReplicateEnum, Ring, Schema, Server, ServerEvent, ServerOptions, Tick, Time, TokenIssuer,
        Up, random_key,
    };
}
