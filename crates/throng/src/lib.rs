//! State replication for crowded worlds: the server and client that a game embeds.
//!
//! A game keeps its objects as plain structs in a [`Server`] and changes them there. Each [`Client`] holds a copy of the
//! objects that it may see. Near objects are updated often, and far objects seldom. Private fields go to the owner only.
//! Data that many clients need is encoded once and shared, so a thousand players in one place are an ordinary case.
//!
//! ```text
//!   your loop, once per tick                                                 your loop, once per frame
//!
//!   server.receive(now)        datagrams in: inputs, messages, acknowledgements
//!   server.poll_event()        connections, messages                         client.update(now)
//!   server.poll_input()        actions of players              <~~~ UDP ~~~> client.poll_event()
//!   server.get_mut::<Player>() your game                                     client.get::<Player>(id)
//!   server.tick(now)           quantise, encode, write, seal, send           client.send_typed_input(&input)
//! ```
//!
//! The library works with or without an engine, an entity system or an async runtime: `now` comes from you, and nothing
//! blocks.
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
//! // A grid divides space into cells. You choose the axis that points up.
//! let grids = vec![GridOptions::new(Up::Y)];
//! let options = ServerOptions { grids, ..ServerOptions::new(0x6D79_6761_6D65_0001, random_key()) };
//! let issuer = options.token_issuer();
//!
//! // A network in memory, in virtual time. `Server::bind` and `Client::connect` take UDP instead.
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
//! # Which part to use
//!
//! | you have | use |
//! |---|---|
//! | objects with a position, in crowds | [`Placement::Cell`], and [`GridOptions::rings`] for distances and rates |
//! | everybody in a crowd, those far away roughly | `far` on some fields, and [`ServerOptions::far`] |
//! | an object that only chosen clients may see | [`Placement::Entity`], and [`Server::subscribe`] for each of them |
//! | state without a position: score, weather | [`Placement::Channel`] with [`ChannelKey::Global`], and [`Server::subscribe`] |
//! | state of a team or room | [`Placement::Channel`] with [`ChannelKey::Custom`], and [`Server::subscribe`] for its members |
//! | fields for the owner alone | `owner_only` on the field, and [`Server::spawn_owned`] |
//! | fields that the owner predicts itself | `skip_owner` on the field; the owner's client skips it, and keeps the values of [`ClientCore::predict`] |
//! | a secret from the owner | `hide_from_owner` on the field: costs a subscription for each viewer of each such object |
//! | "which one is me?" | [`ClientEvent::Owned`], [`ClientCore::owned`], [`ClientCore::is_mine`]; [`Server::owner`] |
//! | all objects of a type, or of an owner | [`Server::objects`], [`Server::owned`]; [`ClientCore::objects`], [`ClientCore::owned`] |
//! | an event for one client | [`Server::send`] on a lane: it is delivered or the connection ends |
//! | an event for all clients, for a team, for clients near a position | [`Server::broadcast`], [`Server::send_to_channel`], [`Server::send_near`]: encoded once |
//! | messages of several types on a lane | [`Received::kind`], [`Received::get`] |
//! | a split screen, a camera beside the player | [`Server::set_viewpoints`] |
//! | a scope, a room, an area that a player watches | [`Server::set_shapes`] |
//! | actions of a player | [`ClientCore::send_typed_input`]: numbered, and repeated in the next packets instead of resent |
//! | prediction | [`Server::acknowledge_input`] and [`ClientCore::input_acked`]; see below |
//! | a world that outlives its process | [`Server::snapshot`], [`SnapshotWriter`], [`Snapshot`] |
//! | a loop that keeps time | [`Server::run`], or [`Server::step`] in a loop of your own |
//! | a connection to close after everything has arrived | [`Server::disconnect_after_flush`], [`ClientCore::close_after_flush`] |
//! | a backend's data about a player | [`TokenIssuer::issue_with`]; [`ServerEvent::Connected`] has it |
//! | a test, or a world in one process | [`net::MemoryNetwork`] with [`Server::new`] and [`Client::new`] |
//! | thousands of clients in one process | [`ClientCore`] with [`net::LightUdpSocket`], and [`Decode::Nothing`] |
//! | a question about the time of a tick's parts | [`Server::last_tick`] |
//!
//! # Objects in sight
//!
//! An object is *in sight* while its state reaches the client. Then, and only then, [`ClientCore::get`] and
//! [`ClientCore::objects`] return it, with all fields that this client may know. The object is always complete, and its
//! position is one that it really had, to within the step of its quantiser. With `predict` or `threshold` it may be off by the error
//! that the field declares. These objects are in sight:
//!
//! - The client's own objects, wherever they are. Their state comes in a separate record, in each send tick of the
//!   client, before all other data and independent of rings, with public and owner's fields.
//! - Objects in a channel that the client is subscribed to, by its viewpoint or by [`Server::subscribe`].
//! - Objects that have moved from such a channel into a neighbouring cell that the client is sent too, until that cell's
//!   next turn. [`ClientCore::is_stale`] is true then. The wait takes at most the interval of the slowest ring, which is
//!   in the server's welcome, and [`LIMBO_SLACK_TICKS`](replica::LIMBO_SLACK_TICKS) more.
//!
//! An object that moves elsewhere, or whose channel the client is no longer sent, goes out of sight at once. An object
//! that ends is gone as soon as the client learns of it from any channel in which it has known the object.
//!
//! Events report the changes since the last poll. For one object they come in this order:
//!
//! | event | means |
//! |---|---|
//! | [`Spawned`](ClientEvent::Spawned) | it is in sight, whole |
//! | [`Owned`](ClientEvent::Owned) | it belongs to this client from now on; right after `Spawned` if it did from the start |
//! | [`Changed`](ClientEvent::Changed) | fields have other values, or are no longer known; one event for all changes since the last |
//! | [`Disowned`](ClientEvent::Disowned) | it is still in sight, but no longer this client's. Owner's fields are forgotten; the next `Changed` lists them |
//! | [`Despawned`](ClientEvent::Despawned) | it is gone: *destroyed* is for ever; after *out of sight* it may be `Spawned` again |
//!
//! Events of different objects come in the order of their first unreported change. Objects that come and go between two
//! polls cause no event. If the game does not poll for a long time, nothing is dropped: the queue is bounded by the
//! number of objects. Messages and state have no common order: a message may name an object that is not there yet, or has
//! gone.
//!
//! # Prediction
//!
//! The game calls [`Server::acknowledge_input`] in the tick that processes an input, also if the input has no effect. At
//! the client, [`ClientCore::input_acked`] and the state of its own objects change together: `get` returns the state after
//! exactly that input. In each frame, take this state, apply the inputs after that number again, and show the result. The
//! example `prediction` shows this.
//!
//! [`schema`] describes kinds, quantisers and conditions, [`net`] drivers and network conditions, and [`replica`] the
//! replication core. The folder `examples` has one idea per file.
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
mod intake;
mod message;
mod options;
mod outbound;
mod peer;
mod replication;
mod server;
mod snapshot;
mod token;
mod view;
mod watches;

pub use channels::Channels;
pub use client::{
    Client, ClientCore, ClientCounters, ClientEvent, ClientOptions, ConnectStartError, Decode, EndReason,
};
pub use clock::Clock;
pub use decoder::{Decoder, ObjectView};
pub use event::ServerEvent;
pub use handshake::{LaneDifference, OpenError};
pub use message::Received;
pub use options::{FarOptions, GridOptions, LooksFrom, ServerOptions, default_lanes};
pub use replication::{Replicated, Replication};
pub use server::{MessageError, Queued, Server, StartError};
pub use snapshot::{SavedObject, Snapshot, SnapshotCounters, SnapshotError, SnapshotWriter};
pub use throng_interest::{InterestError, Ring, Shape, ShapeError};
pub use throng_link as link;
pub use throng_link::netcode::{
    ConnectError, ConnectToken, ConnectTokenOptions, Denial, DropReason, Key, NetcodeCounters, SecondConnection, Suite,
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
pub use throng_wire::{ConnectionId, KindId, ObjectId, Tick, Time};
pub use token::{TokenIssuer, fastest_suite, random_key};

/// Everything that most programs need.
pub mod prelude {
    pub use crate::{
        ChannelKey, Client, ClientEvent, ClientOptions, Clock, ConnectionId, DespawnReason, GridOptions, LooksFrom,
        ObjectId, Placement, Replicate, ReplicateEnum, Ring, Schema, Server, ServerEvent, ServerOptions, Tick, Time,
        TokenIssuer, Up, random_key,
    };
}
