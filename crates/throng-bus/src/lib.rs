//! The bus: messages, requests, and a key-value store between the processes of one cluster.
//!
//! One contract, [`Bus`], and three implementations: [`LocalBus`] in one process, the default; `throng-bus-nats` over NATS; and
//! [`sim`] on virtual time, for tests.
//!
//! ```text
//!  your state machines, without sockets or clocks:   Lease    FencedWrites    the directory    a gateway
//!                                                      | poll_command  ^ handle_event
//!                                                      v               |
//!  Bus:                                             handle_command   poll_event
//!                       LocalBus                           NatsBus                       SimBus
//!                       pointers in rows                   Endpoint, NATS                Endpoint, virtual time
//! ```
//!
//! Commands go in, events come out, and nothing waits. Messages arrive at most once, in order for each publisher and subject.
//! A message that is missing is told as a [`Gap`]; the subscriber then asks its source for everything since. Writes to the
//! store have one order. A [`Lease`] has one holder at every moment, and its fencing number keeps out holders that do not
//! know yet that they are none any more.
//!
//! ```
//! use throng_bus::{Bus, Event, Limits, LocalHub, MemberId, Pattern, Subject, SubscriptionId};
//! use throng_wire::Time;
//!
//! let hub = LocalHub::new();
//! let mut gateway = hub.join(MemberId(1), Limits::default());
//! let mut world = hub.join(MemberId(2), Limits::default());
//! let now = Time(0); // microseconds, from your clock
//!
//! gateway.subscribe(now, SubscriptionId(1), &Pattern::new("channel.*")?)?;
//! world.publish(now, &Subject::new("channel.7")?, "three bears".into())?;
//!
//! while let Some(event) = gateway.poll_event(now) {
//!     match event {
//!         Event::Message(message) => assert_eq!(&message.payload[..], b"three bears"),
//!         Event::Gap(_) => { /* ask the source for everything since the last known state */ }
//!         _ => {}
//!     }
//! }
//! # assert_eq!(gateway.counters().delivered, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [docs/bus.md](https://github.com/throng/throng/blob/main/docs/bus.md) says what each implementation promises.
#![forbid(unsafe_code)]

pub mod endpoint;
pub mod envelope;
pub mod order;
pub mod sim;

mod cluster;
mod contract;
mod fenced;
mod lease;
mod local;
mod name;
mod store;
mod tickets;
mod view;
mod waiting;

pub use cluster::{CLUSTER_NAME_BYTES_MAX, Cluster, ClusterError, DIRECTORY_VERSION, Joining};
pub use contract::{
    Bus, Command, CommandError, Counters, Entry, Event, Expect, Gap, LEASE_MIN, Limits, MemberId, Message, Missing,
    ReplyTo, RequestError, Revision, Sequence, StoreError, SubscriptionId, Ticket, Tickets, WatchId,
};
pub use fenced::{FENCED_ATTEMPTS_MAX, FENCED_WRITES_MAX, Fenced, FencedError, FencedWrite, FencedWrites, WriteId};
pub use lease::{Fence, Holder, Lease, LeaseChange, LeaseOptions};
pub use local::{LocalBus, LocalHub};
pub use name::{NAME_BYTES_MAX, NAME_TOKENS_MAX, NameError, Pattern, Subject};
pub use store::STORE_BYTES_MAX;
pub use waiting::GAPS_MAX;
