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

/// The purpose of a channel. Together with who subscribes, this decides who sees what lives in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChannelKey {
    /// A channel without a position. The number tells several of them apart.
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
    /// State for this connection only.
    Owner(ConnectionId),
    /// Any set that the game chooses: a team, a room, an explicit set.
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

    /// Where the channel's turns lie within any interval, as a fraction of it in units of 2^-32. The same in every run.
    ///
    /// Channels with neighbouring numbers get fractions that lie far apart, so that the turns of any group of neighbours
    /// spread evenly over the ticks of any interval: more evenly than a hash would. The numbers of each axis are
    /// multiplied with a constant whose multiples fill the unit interval (the R-sequences of Roberts, "The unreasonable
    /// effectiveness of quasirandom sequences", 2018).
    pub(crate) fn phase(self) -> u32 {
        let spread = |number: u32, step: f64| number.wrapping_mul((step * 4_294_967_296.0) as u32);
        match self {
            ChannelKey::Cell { grid, cell: [x, y, z] } => spread(x as u32, PLASTIC_1)
                .wrapping_add(spread(y as u32, PLASTIC_2))
                .wrapping_add(spread(z as u32, GOLDEN))
                .wrapping_add(spread(grid.into(), GOLDEN)),
            ChannelKey::Global(number) => spread(number.into(), GOLDEN),
            ChannelKey::Custom(number) => spread(number, GOLDEN),
            ChannelKey::Owner(connection) => spread(connection.index, GOLDEN),
            ChannelKey::Entity { object, facet } => {
                spread(object.index, GOLDEN).wrapping_add(spread(facet.index() as u32, PLASTIC_1))
            }
        }
    }
}

/// One through the golden ratio, and the first two powers of one through the plastic number.
const GOLDEN: f64 = 0.618_033_988_749_894_9;
const PLASTIC_1: f64 = 0.754_877_666_246_692_7;
const PLASTIC_2: f64 = 0.569_840_290_998_053_2;

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
                encode_cell(cell, w);
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
                ChannelName::Cell { grid, cell: decode_cell(r)? }
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

/// Writes the numbers of a cell.
pub(crate) fn encode_cell(cell: [i32; 3], w: &mut BitWriter<'_>) {
    cell.iter().for_each(|&axis| w.write_varint(zigzag(axis)));
}

pub(crate) fn decode_cell(r: &mut BitReader<'_>) -> Result<[i32; 3], KeyError> {
    let mut axis = || Ok::<i32, KeyError>(unzigzag(narrow(r.read_varint()?)?));
    Ok([axis()?, axis()?, axis()?])
}

pub(crate) fn narrow<T: TryFrom<u64>>(value: u64) -> Result<T, KeyError> {
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
    use throng_wire::Tick;

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

    #[test]
    fn what_is_not_a_name_is_refused_with_its_cause() {
        let refused = |bytes: &[u8]| ChannelName::decode(&mut BitReader::new(bytes)).map_err(KeyError::tag);
        assert_eq!(refused(&[200]), Err("unknown_tag"));
        assert_eq!(refused(&[0, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]), Err("out_of_range"));
        assert_eq!(refused(&[0]), Err("unexpected_end"));
    }

    /// How many of these channels have their turn at each tick of an interval.
    fn turns_per_tick(channels: impl Iterator<Item = ChannelKey>, interval_ticks: u16) -> Vec<u32> {
        let mut counts = vec![0; interval_ticks.into()];
        for channel in channels {
            let first = crate::lattice::next_turn(Tick(0), interval_ticks, channel.phase());
            counts[first.0 as usize % usize::from(interval_ticks)] += 1;
        }
        counts
    }

    /// The counts of `channels` thrown at random would lie within four standard deviations of their mean, and their
    /// squares would add up to at most the 99.9th percentile: these must do better.
    fn assert_spread(name: &str, interval_ticks: u16, counts: &[u32]) {
        let channels = f64::from(counts.iter().sum::<u32>());
        let bins = f64::from(interval_ticks);
        let mean = channels / bins;
        let deviation = (mean * (1.0 - 1.0 / bins)).sqrt();
        let furthest = counts.iter().map(|&count| (f64::from(count) - mean).abs()).fold(0.0, f64::max);
        assert!(furthest <= 4.0 * deviation + 1.0, "{name}, every {interval_ticks} ticks: {counts:?}");
        let chi_squared: f64 = counts.iter().map(|&count| (f64::from(count) - mean).powi(2) / mean).sum();
        // Wilson and Hilferty's approximation of the percentile.
        let freedom = bins - 1.0;
        let part = 2.0 / (9.0 * freedom);
        let limit = freedom * (1.0 - part + 3.09 * part.sqrt()).powi(3);
        assert!(chi_squared <= limit, "{name}, every {interval_ticks} ticks: {chi_squared} > {limit}: {counts:?}");
    }

    fn square(from: i32, cells: i32) -> impl Iterator<Item = ChannelKey> {
        let all = move || from..from + cells;
        all().flat_map(move |x| all().map(move |y| ChannelKey::Cell { grid: 0, cell: [x, y, 0] }))
    }

    #[test]
    fn the_turns_of_neighbours_spread_over_the_ticks_of_every_interval() {
        for interval in 2..=64 {
            for (from, cells) in [(-5, 10), (0, 10), (1_000, 10), (-16, 32), (-300_000, 50)] {
                let name = format!("{cells} x {cells} cells from {from}");
                assert_spread(&name, interval, &turns_per_tick(square(from, cells), interval));
            }
            let line = (-50..50).map(|x| ChannelKey::Cell { grid: 0, cell: [x, 7, 0] });
            assert_spread("a row of cells", interval, &turns_per_tick(line, interval));
            let column = (-50..50).map(|z| ChannelKey::Cell { grid: 1, cell: [3, 7, z] });
            assert_spread("a column of cells", interval, &turns_per_tick(column, interval));
            let customs = (0..200).map(ChannelKey::Custom);
            assert_spread("custom channels", interval, &turns_per_tick(customs, interval));
            let entity = |index| ChannelKey::Entity { object: ObjectId { index, generation: 1 }, facet: Facet::Public };
            assert_spread("entities", interval, &turns_per_tick((1_000..1_300).map(entity), interval));
        }
    }

    #[test]
    fn the_cells_of_one_view_have_their_turns_on_different_ticks() {
        // The cells of a ring of 5 x 5 that one client sees: its packets should be of equal size, too.
        for interval in [2, 3, 4, 5, 6, 10] {
            for from in [-3, 0, 10, 77, 12_345] {
                let counts = turns_per_tick(square(from, 5), interval);
                let (least, most) = (counts.iter().min().expect("turns"), counts.iter().max().expect("turns"));
                let even = 25.0 / f32::from(interval);
                assert!(
                    *most as f32 <= 1.5 * even + 2.0 && *least as f32 >= 0.5 * even - 1.0,
                    "{interval}: {counts:?}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(throng_seeds::cases(256))]

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
