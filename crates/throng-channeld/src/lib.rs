//! channeld's wire protocol: what its clients, its servers and its Unreal plugin say to a gateway, byte for byte.
//!
//! A connection carries *frames*. A frame's payload is a *packet*, perhaps compressed; a packet is any number of
//! *messages*, and what a message's body means depends on its type:
//!
//! ```text
//!   TCP, KCP, WebSocket      "CH" length compression | payload          frame         two dialects of the header
//!                                                         |
//!                                                         v
//!                                   0A len pack   0A len pack   ...     packet        concatenation is a packet
//!                                            |
//!                                            v
//!                      channel, broadcast flags, stub, type, body       message       body: protobuf, or a game's own
//! ```
//!
//! Reading copies nothing: a [`Message`]'s body is a slice of the bytes that came from the network. Writing goes the
//! other way with [`put_message`], and [`PacketWriter`] cuts what was put into packets and frames. Nothing here
//! trusts a length that a peer names.
//!
//! ```
//! use throng_channeld::{Dialect, FrameReader, Header, Messages, PacketWriter, message_type, put_body};
//! use throng_channeld::proto::AuthMessage;
//!
//! let auth = AuthMessage { player_identifier_token: "ada".into(), login_token: "secret".into(), ..Default::default() };
//! let mut entries = Vec::new();
//! put_body(&mut entries, Header::new(0, message_type::AUTH), &auth);
//!
//! let mut bytes = Vec::new();
//! PacketWriter::new().write(Dialect::Legacy, &entries, &mut bytes);
//!
//! let mut reader = FrameReader::new();
//! reader.push(&bytes)?;
//! let frame = reader.next_frame()?.expect("it is complete");
//! assert_eq!(reader.dialect(), Dialect::Legacy);
//! for message in Messages::new(frame.payload) {
//!     assert_eq!(message?.msg_type, message_type::AUTH);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod client;
pub mod compression;
pub mod frame;
mod ids;
pub mod link;
pub mod message_type;
pub mod packet;
pub mod proto;
pub mod replay;
mod varint;
mod websocket;
mod writer;

pub use compression::{Compression, CompressionError, decompress};
pub use frame::{Dialect, Frame, FrameError, FrameReader};
pub use ids::{Broadcast, DEFAULT_CONNECTION_ID_BITS, FIRST_ENTITY_CHANNEL, FIRST_SPATIAL_CHANNEL, GLOBAL_CHANNEL};
pub use packet::{
    Field, Header, Message, Messages, PacketError, Packets, begin_message, entry_len, put_body, put_message, take_field,
};
pub use writer::{PacketWriter, Written};
