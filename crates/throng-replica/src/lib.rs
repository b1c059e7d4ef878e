//! Channels, frames, cohorts: the server half writes, the client half applies.
#![forbid(unsafe_code)]

mod client;
mod connection;
mod decode;
mod encode;
mod frame;
mod grid;
mod hub;
mod key;
mod limits;
mod log;
mod objects;
mod replicator;
mod store;
mod subscription;

pub use client::{ApplyError, ClientCounters, ClientEvent, ClientOptions, ReplicaClient};
pub use connection::{Connection, ConnectionCounters, PIECE_MAX_BYTES, SubscriptionId};
pub use decode::SegmentError;
pub use encode::ENTRY_MAX_BYTES;
pub use frame::{Frame, FrameEntry, Segment, Since};
pub use grid::{CellGrid, GridError, GridShape, Layers};
pub use hub::{ChannelIndex, ChannelState, ConnectionSlot, Executor, Hub, HubCounters, Inline, Outgoing};
pub use key::{ChannelKey, ChannelName, KeyError};
pub use limits::{HubLimits, LimitReached};
pub use log::ObjectLog;
pub use objects::ReplicaObject;
pub use replicator::{EntryTooLong, Placed, Placement, Replicator, ReplicatorOptions};
pub use store::ObjectStore;
