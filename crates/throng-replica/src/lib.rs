//! Channels, frames, cohorts: the server half writes, the client half applies.
//!
//! In a crowd almost everybody needs the same bytes. So state lives in channels, and a channel is a log: its objects in
//! order of last change. A subscription that has everything up to tick `since` needs the changes after it, and all
//! subscriptions with the same `since` (a *cohort*) share one *frame*, encoded once. A connection is little more than a
//! list of points in logs.
//!
//! ```text
//!  spawn, update, despawn                                     subscribe(connection, channel, interval)
//!        |                                                              |
//!        v                                                              v
//!  ObjectStore  quantised values,         Hub   plan      who is due?   (channel, since) asked for, each once
//!        |      a tick for each field           encode    one Frame for each, cut into segments      in parallel
//!        v                                      writers   segments copied into packets               in parallel
//!  ObjectLog    one for each channel                |
//!                                                   v
//!                            packets  - - - - - - - - - - - - - ->  ReplicaClient::apply   lost, doubled, reordered:
//!                            delivered(sequence), lost(sequence)                           the same state in the end
//! ```
//!
//! The invariant that keeps sharing safe: a frame depends on the channel, `since` and now, never on who asks. Only
//! subscriptions decide who may see something.
//!
//! Nothing here knows a socket, a clock or a thread. Packets are byte slices, time is a [`Tick`](throng_wire::Tick),
//! the caller reports the fate of a packet, and an [`Executor`] runs everything that can run in parallel. The bytes do
//! not depend on the number of threads.
//!
//! ```
//! use std::sync::Arc;
//! use throng_replica::*;
//! use throng_schema::{Replicate, Schema};
//!
//! #[derive(Default, Replicate)]
//! struct Walker {
//!     #[replicate(position(step = 0.01))]
//!     position: [f32; 3],
//!     #[replicate(integer(min = 0, max = 100))]
//!     health: u8,
//! }
//!
//! let schema = Arc::new(Schema::builder().kind::<Walker>().build()?);
//! let kind = schema.kind_id::<Walker>().ok_or("it was added")?;
//! let grid = GridShape::flat(throng_replica::Up::Z, [10.0, 10.0, 20.0]);
//!
//! let mut server = Replicator::new(Arc::clone(&schema), ReplicatorOptions::default());
//! server.add_grid(grid)?;
//! let mut client = ReplicaClient::new(schema, &[grid], ClientOptions::default())?;
//!
//! // A walker in the cell that its position lies in, and a connection that is sent this cell every tick.
//! let mut walker = Walker { position: [3.0, 4.0, 0.0], health: 100 };
//! let id = server.spawn(kind, Placement::Cell(0), None, |to| walker.quantise(to))?;
//! let cell = server.channel(ChannelKey::Cell { grid: 0, cell: [0, 0, 0] })?;
//! let connection = server.hub().connect()?;
//! server.hub().subscribe(connection, cell, 1, 1)?;
//!
//! let mut sizes = Vec::new();
//! for sequence in 0..3 {
//!     let tick = server.begin_tick();
//!     walker.position[0] += 0.25;
//!     server.update(id, |to| walker.quantise(to))?;
//!     server.plan();
//!     server.encode(&Inline);
//!
//!     // One packet. Its bytes would go through a link; here they go straight to the client.
//!     let mut packet = [0; 1200];
//!     let (outgoing, slots) = server.hub().writers();
//!     let mut writer = slots[connection.index as usize].writer().ok_or("it is connected")?;
//!     writer.begin_write(outgoing, packet.len());
//!     let written = writer.write_packet(outgoing, sequence, &mut packet);
//!     drop(writer);
//!     client.apply(tick, &packet[..written])?;
//!     server.hub().delivered(connection, sequence);
//!     sizes.push(written);
//! }
//!
//! let mut copy = Walker::default();
//! let object = client.object(id).ok_or("it is in sight")?;
//! copy.apply(object.known_fields(), object.values());
//! assert_eq!((copy.position, copy.health), ([3.75, 4.0, 0.0], 100));
//! assert!(sizes[0] > sizes[1], "the first packet introduces the walker and names the channel");
//! assert!(sizes[2] <= 10, "a step: slot, mask and position, with {sizes:?}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The parts, from the inside out:
//!
//! | part | what |
//! |---|---|
//! | [`ObjectStore`] | objects as quantised numbers, with the tick of each field's last change |
//! | [`ObjectLog`] | one channel of objects: slots in order of last change, tombstones, retention |
//! | [`ChannelState`] | what the hub needs of a channel; [`ObjectLog`] is one kind, others may follow |
//! | [`Hub`] | channels, cohorts, frames of the tick, connections |
//! | [`Connection`] | subscriptions, priorities, packet records, resends; its part in a shared view |
//! | [`Replicator`] | all of it for objects: which part of an object lives in which channel |
//! | [`ReplicaClient`] | the other end |
//!
//! The bytes are drawn at the heads of `connection.rs`, `encode.rs` and `key.rs`, and together in docs/wire-format.md.
#![forbid(unsafe_code)]

mod agenda;
mod client;
mod connection;
mod decode;
mod encode;
mod events;
mod frame;
mod grid;
mod hub;
mod key;
mod lattice;
mod limits;
mod log;
mod objects;
mod own;
mod own_view;
mod piece;
mod reader;
mod replicator;
mod rows;
mod send_ticks;
mod shared_view;
mod store;
mod stream;
mod subscription;

pub use client::{
    ApplyError, ClientEvent, ClientOccupancy, ClientOptions, DespawnReason, LIMBO_SLACK_TICKS, ReplicaClient,
    ReplicaCounters,
};
pub use connection::{Connection, ConnectionCounters, SubscriptionId};
pub use decode::{KindBits, SegmentError};
pub use encode::ENTRY_MAX_BYTES;
pub use frame::{Frame, FrameEntry, FramePart, Segment, Since, Variant};
pub use grid::{CellGrid, GridError, GridShape, Layers, Up};
pub use hub::{ChannelIndex, ChannelState, Executor, Hub, HubCounters, Inline, Outgoing, Planner, Registry, Turns};
pub use key::{ChannelKey, ChannelName, KeyError};
pub use limits::{HubLimits, LimitReached};
pub use log::ObjectLog;
pub use objects::{Reckoned, ReplicaObject};
pub use own::ObjectsOutgoing;
pub use piece::PIECE_MAX_BYTES;
pub use reader::{ConnectionSlot, Reader, Regular, Writer};
pub use replicator::{EntryTooLong, Placed, Placement, RETENTION_TICKS_MAX, Replicator, ReplicatorOptions};
pub use rows::{RowChanges, SubscriberRow};
pub use shared_view::SharedViews;
pub use store::ObjectStore;
pub use stream::{Stream, StreamStart, StreamSubscription};
