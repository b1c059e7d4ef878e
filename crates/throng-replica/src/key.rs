//! The name of a channel, and how it is written into a packet (see docs/wire-format.md):
//!
//! ```text
//! [tag: 8] then
//!   0 Global  [number: varint]
//!   1 Cell    [grid: varint][x: zigzag varint][y: zigzag varint][z: zigzag varint]
//!   2 Entity  [index: varint][generation: varint][facet: varint]
//!   3 Owner
//!   4 Custom  [number: varint]
//! ```
//!
//! An owner channel names no connection on the wire: the only reader is the owner.

use throng_schema::Facet;
use throng_wire::{BitReader, BitWriter, ConnectionId, ObjectId, ReadError};

/// What a channel is for. Together with who subscribes, this decides who sees what lives in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChannelKey {
    /// A channel that belongs to no place. The number tells several of them apart.
    Global(u16),
    /// One cell of a grid.
    Cell {
        /// Which grid, in order of registration.
        grid: u8,
        /// Cell number along x, y and z; the cell covers `[n * cell, (n + 1) * cell)`.
        cell: [i32; 3],
    },
    /// One facet of one object.
    Entity {
        /// The sole member.
        object: ObjectId,
        /// Which part of it.
        facet: Facet,
    },
    /// What only this connection may know.
    Owner(ConnectionId),
    /// Whatever the game decides: a team, a room, an explicit set.
    Custom(u32),
}

/// A channel key as its reader sees it: an owner channel is simply "mine".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChannelName {
    /// See [`ChannelKey::Global`].
    Global(u16),
    /// See [`ChannelKey::Cell`].
    Cell {
        /// Which grid.
        grid: u8,
        /// Cell numbers.
        cell: [i32; 3],
    },
    /// See [`ChannelKey::Entity`].
    Entity {
        /// The sole member.
        object: ObjectId,
        /// Which part of it.
        facet: Facet,
    },
    /// The reader's own channel.
    Owner,
    /// See [`ChannelKey::Custom`].
    Custom(u32),
}

/// Longest form of a key in bytes: tag, grid and three 5-byte numbers.
pub(crate) const KEY_MAX_BYTES: usize = 18;

impl ChannelKey {
    /// The key as the subscriber gets to know it.
    pub fn name(self) -> ChannelName {
        match self {
            ChannelKey::Global(number) => ChannelName::Global(number),
            ChannelKey::Cell { grid, cell } => ChannelName::Cell { grid, cell },
            ChannelKey::Entity { object, facet } => ChannelName::Entity { object, facet },
            ChannelKey::Owner(_) => ChannelName::Owner,
            ChannelKey::Custom(number) => ChannelName::Custom(number),
        }
    }

    /// A number that differs between channels and is the same in every run: the source of a channel's phase.
    pub(crate) fn spread(self) -> u32 {
        let mut bytes = Vec::with_capacity(KEY_MAX_BYTES);
        let mut w = BitWriter::new(&mut bytes);
        self.name().encode(&mut w);
        w.finish();
        // FNV-1a, 32 bit (Fowler, Noll, Vo): short, portable, and good enough to spread phases.
        bytes.iter().fold(0x811C_9DC5, |hash: u32, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }
}

impl ChannelName {
    pub(crate) fn encode(self, w: &mut BitWriter<'_>) {
        match self {
            ChannelName::Global(number) => {
                w.write(0, 8);
                w.write_varint(u64::from(number));
            }
            ChannelName::Cell { grid, cell } => {
                w.write(1, 8);
                w.write_varint(u64::from(grid));
                for axis in cell {
                    w.write_varint(zigzag(axis));
                }
            }
            ChannelName::Entity { object, facet } => {
                w.write(2, 8);
                w.write_varint(u64::from(object.index));
                w.write_varint(u64::from(object.generation));
                w.write_varint(facet.index() as u64);
            }
            ChannelName::Owner => w.write(3, 8),
            ChannelName::Custom(number) => {
                w.write(4, 8);
                w.write_varint(u64::from(number));
            }
        }
    }

    pub(crate) fn decode(r: &mut BitReader<'_>) -> Result<ChannelName, KeyError> {
        Ok(match r.read(8)? {
            0 => ChannelName::Global(narrow(r.read_varint()?)?),
            1 => {
                let grid = narrow(r.read_varint()?)?;
                let mut cell = [0; 3];
                for axis in &mut cell {
                    *axis = unzigzag(narrow(r.read_varint()?)?);
                }
                ChannelName::Cell { grid, cell }
            }
            2 => {
                let object = ObjectId { index: narrow(r.read_varint()?)?, generation: narrow(r.read_varint()?)? };
                let facet = r.read_varint()? as usize;
                ChannelName::Entity { object, facet: *Facet::ALL.get(facet).ok_or(KeyError::OutOfRange)? }
            }
            3 => ChannelName::Owner,
            4 => ChannelName::Custom(narrow(r.read_varint()?)?),
            tag => return Err(KeyError::UnknownTag(tag as u8)),
        })
    }
}

/// Why a channel name could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The bytes ended early.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The first byte names no form of channel.
    #[error("channel tag {0} is not known")]
    UnknownTag(u8),
    /// A number does not fit its field.
    #[error("a number in a channel name is out of range")]
    OutOfRange,
}

impl KeyError {
    /// A stable short name, for metric labels.
    pub fn tag(self) -> &'static str {
        match self {
            KeyError::Read(error) => error.tag(),
            KeyError::UnknownTag(_) => "unknown_tag",
            KeyError::OutOfRange => "out_of_range",
        }
    }
}

fn narrow<T: TryFrom<u64>>(value: u64) -> Result<T, KeyError> {
    T::try_from(value).map_err(|_| KeyError::OutOfRange)
}

fn zigzag(value: i32) -> u64 {
    u64::from(((value << 1) ^ (value >> 31)) as u32)
}

fn unzigzag(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of(name: ChannelName) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut w = BitWriter::new(&mut bytes);
        name.encode(&mut w);
        w.finish();
        bytes
    }

    #[test]
    fn golden_bytes() {
        assert_eq!(bytes_of(ChannelName::Global(5)), [0, 5]);
        assert_eq!(bytes_of(ChannelName::Cell { grid: 1, cell: [0, -1, 64] }), [1, 1, 0, 1, 0x80, 1]);
        assert_eq!(bytes_of(ChannelName::Owner), [3]);
        let object = ObjectId { index: 300, generation: 2 };
        assert_eq!(bytes_of(ChannelName::Entity { object, facet: Facet::Others }), [2, 0xAC, 2, 2, 2]);
    }

    proptest! {
        #[test]
        fn cells_survive(grid: u8, cell: [i32; 3]) {
            let name = ChannelName::Cell { grid, cell };
            let bytes = bytes_of(name);
            prop_assert!(bytes.len() <= KEY_MAX_BYTES);
            prop_assert_eq!(ChannelName::decode(&mut BitReader::new(&bytes)), Ok(name));
        }

        #[test]
        fn any_bytes_are_a_name_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..24)) {
            if let Ok(name) = ChannelName::decode(&mut BitReader::new(&bytes)) {
                let again = bytes_of(name);
                prop_assert_eq!(ChannelName::decode(&mut BitReader::new(&again)), Ok(name));
            }
        }
    }
}
