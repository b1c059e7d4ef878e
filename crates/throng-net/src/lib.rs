//! Drivers: what moves datagrams between this process and its peers, on real sockets and in memory, on good networks
//! and on bad ones.
//!
//! The protocol crates produce and consume bytes and never touch a socket. A [`Driver`] is the other half: it takes
//! batches of datagrams for an address and brings those that arrived. For a server that fans out to a crowd the system
//! calls are the largest cost of all, so the interface speaks in batches: a [`Transmit`] is everything for one peer in
//! this tick, equal lengths back to back, and goes to the kernel in one call.
//!
//! ```text
//!  Transmit: | datagram | datagram | rest |            sink(arrived, from, datagram)
//!                     |                                        ^
//!  Conditioned        v   delay, jitter, loss, bursts,         |       optional, around any driver
//!                     |   duplication, reordering, rate        |
//!  Routed             v   a token behind each datagram         |       optional, for proxies
//!  ------------------ v -------------------------------------- | -----------------------------------
//!  UdpDriver          one GSO send per Transmit     batched receive, GRO trains split
//!  LightUdpSocket     the same, receive buffers shared by thousands of sockets
//!  MemoryDriver       MemoryNetwork: a path per pair of endpoints, virtual time
//! ```
//!
//! Time is an argument everywhere, so a whole network runs on virtual time:
//!
//! ```
//! use throng_net::{Condition, Driver, MemoryNetwork, Transmit};
//! use throng_wire::Time;
//!
//! let network = MemoryNetwork::new("wifi".parse::<Condition>()?, 7)?;
//! let mut server = network.endpoint("10.0.0.1:40000".parse()?)?;
//! let mut client = network.endpoint("10.0.0.2:50000".parse()?)?;
//!
//! // Three datagrams of 4, 4 and 2 bytes, sent as one.
//! let transmit = Transmit { to: client.local_address(), bytes: b"onceupon a", segment_bytes: 4 };
//! assert_eq!(server.send(Time(0), &transmit)?, 3);
//!
//! let mut story = Vec::new();
//! assert_eq!(client.receive(Time::from_millis(9), &mut |_, _, _| unreachable!("wifi takes 10 ms"))?, 0);
//! client.receive(Time::from_millis(30), &mut |_arrived, _from, bytes| story.extend_from_slice(bytes))?;
//! assert_eq!(story, b"onceupon a");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On real sockets only the first lines differ:
//!
//! ```
//! use throng_net::{Driver, Transmit, UdpDriver, UdpOptions};
//! use throng_wire::Time;
//!
//! let mut server = UdpDriver::bind("127.0.0.1:0".parse()?, &UdpOptions::server())?;
//! let mut client = UdpDriver::connect(server.local_address(), &UdpOptions::client())?;
//! client.send(Time(0), &Transmit::single(server.local_address(), b"hello"))?;
//! server.receive(Time(0), &mut |_arrived, from, bytes| println!("{from}: {} bytes", bytes.len()))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod condition;
mod counters;
mod driver;
mod memory;
mod routed;
mod seed;
mod udp;

pub use condition::{
    Arrival, Bottleneck, BurstLoss, Condition, ConditionError, Conditioned, ConditionedOptions, Conditioner, Fate,
    InFlight, InFlightLimit, LossCause, PathModel, Policer, Preset, RateLimit, Reordering, Scope, UnknownPreset,
};
pub use counters::{ConditionCounters, DriverCounters};
pub use driver::{Driver, MAX_DATAGRAM_BYTES, ReceiveError, SendError, Transmit, Wrapper};
pub use memory::{MemoryDriver, MemoryNetwork};
pub use routed::{Routed, RoutingToken, RoutingTokenError};
pub use udp::{
    Addressed, BindError, LightUdpSocket, ReceiveBuffers, Segmentation, SocketBuffers, UdpDriver, UdpOptions,
};
