//! The ground of Throng's wire formats: ticks, times, ids, and bits.
//!
//! Everything above agrees on these few words. A [`Tick`] counts steps of the simulation, a [`Time`] is microseconds
//! since an origin that the caller chose, an [`ObjectId`] names a replicated thing, and [`BitWriter`] and
//! [`BitReader`] put values into bytes, lowest bit first:
//!
//! ```text
//! write(0b101, 3); write(0b11, 2)   ->   byte 0: ...11101
//! ```
//!
//! ```
//! use throng_wire::{BitReader, BitWriter};
//!
//! let mut bytes = Vec::new();
//! let mut w = BitWriter::new(&mut bytes);
//! w.write(5, 3);
//! w.write_varint(1_000);
//! w.finish();
//!
//! let mut r = BitReader::new(&bytes);
//! assert_eq!(r.read(3)?, 5);
//! assert_eq!(r.read_varint()?, 1_000);
//! # Ok::<(), throng_wire::ReadError>(())
//! ```
#![forbid(unsafe_code)]

mod bits;
mod id;
mod room;
mod tick;

pub use bits::{BitReader, BitWriter, Mark, ReadError};
pub use id::{ConnectionId, KindId, ObjectId};
pub use room::{Room, Roomy};
pub use tick::{ShortTick, Tick, Time};
