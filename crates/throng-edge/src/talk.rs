//! The messages between an edge and its origin. Both have them in their schema: `.kind::<ToOrigin>().kind::<ToEdge>()`.
//!
//! ```text
//! inputs of a batch, each   [session: u32][number: u32][length: u8][bytes]
//! looks, each               [interval in ticks: u16, 0 for no longer][grid: u8][x: i32][y: i32][z: i32]
//! ```
//!
//! All numbers are little endian.

use throng::{ChannelKey, MAX_INPUT_BYTES, Replicate, USER_DATA_LEN};

/// The longest body of a message.
pub const BODY_MAX: usize = 128 << 10;

/// The first bytes of the user data in an edge's token. So the program that issues tokens decides which programs are edges.
pub const EDGE_MARK: &[u8; 12] = b"throng-edge\x01";

/// The user data for the token of an edge.
pub fn edge_user_data() -> [u8; USER_DATA_LEN] {
    let mut data = [0; USER_DATA_LEN];
    data[..EDGE_MARK.len()].copy_from_slice(EDGE_MARK);
    data
}

/// Whether the user data of a token are those of an edge.
pub fn is_edge(user_data: &[u8; USER_DATA_LEN]) -> bool {
    user_data.starts_with(EDGE_MARK)
}

/// From an edge to its origin.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct ToOrigin {
    /// The number of its meaning.
    #[replicate(integer)]
    pub step: u8,
    /// The player at the edge.
    #[replicate(integer)]
    pub session: u32,
    /// The id of the client, of a join; the number of a batch.
    #[replicate(integer)]
    pub number: u64,
    /// The lane of a message.
    #[replicate(integer)]
    pub lane: u8,
    /// The content of the step.
    #[replicate(bytes(max_bytes = 131072))]
    pub body: Vec<u8>,
}

/// From an origin to an edge.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct ToEdge {
    /// The number of its meaning.
    #[replicate(integer)]
    pub step: u8,
    /// The player at the edge.
    #[replicate(integer)]
    pub session: u32,
    /// The lane of a message.
    #[replicate(integer)]
    pub lane: u8,
    /// The content of the step.
    #[replicate(bytes(max_bytes = 131072))]
    pub body: Vec<u8>,
}

/// The meaning of a [`ToOrigin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Up {
    /// A client has connected: its id and user data.
    Join,
    /// It has left.
    Leave,
    /// Inputs of several clients.
    Inputs,
    /// A message of a client.
    Say,
    /// Cells that are looked at from now on, or no longer.
    Look,
}

/// The meaning of a [`ToEdge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Down {
    /// An object belongs to this player: its index and generation.
    Given,
    /// A player looks from here: x, y and z in metres, as f64.
    View,
    /// A message for a player.
    Say,
    /// A player has to go: why.
    End,
}

impl Up {
    const ALL: [Up; 5] = [Up::Join, Up::Leave, Up::Inputs, Up::Say, Up::Look];

    pub(crate) fn of(step: u8) -> Option<Up> {
        Up::ALL.get(usize::from(step)).copied()
    }
}

impl Down {
    const ALL: [Down; 4] = [Down::Given, Down::View, Down::Say, Down::End];

    pub(crate) fn of(step: u8) -> Option<Down> {
        Down::ALL.get(usize::from(step)).copied()
    }
}

/// An input of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InputOf<'a> {
    pub(crate) session: u32,
    pub(crate) number: u32,
    pub(crate) bytes: &'a [u8],
}

/// Bytes before those of an input.
pub(crate) const INPUT_HEAD: usize = 9;

pub(crate) fn push_input(body: &mut Vec<u8>, input: InputOf<'_>) {
    body.extend_from_slice(&input.session.to_le_bytes());
    body.extend_from_slice(&input.number.to_le_bytes());
    // An input has at most 64 bytes.
    body.push(input.bytes.len() as u8);
    body.extend_from_slice(input.bytes);
}

/// Reads the inputs of a batch; `None` if it is malformed.
pub(crate) fn read_inputs(mut body: &[u8]) -> Option<Vec<InputOf<'_>>> {
    let mut inputs = Vec::new();
    while !body.is_empty() {
        let (session, rest) = body.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk::<4>()?;
        let (&length, rest) = rest.split_first()?;
        let (bytes, rest) = rest.split_at_checked(usize::from(length))?;
        if bytes.len() > MAX_INPUT_BYTES {
            return None;
        }
        let (session, number) = (u32::from_le_bytes(*session), u32::from_le_bytes(*number));
        inputs.push(InputOf { session, number, bytes });
        body = rest;
    }
    Some(inputs)
}

/// Length of one look.
const LOOK_BYTES: usize = 15;

/// The looks that fit into one message, in bytes.
pub(crate) const LOOKS_BYTES_MAX: usize = BODY_MAX / LOOK_BYTES * LOOK_BYTES;

/// A cell is looked at in this interval, or with 0 no longer. False if the channel is no cell.
pub(crate) fn push_look(body: &mut Vec<u8>, channel: ChannelKey, interval_ticks: u16) -> bool {
    let ChannelKey::Cell { grid, cell } = channel else { return false };
    body.extend_from_slice(&interval_ticks.to_le_bytes());
    body.push(grid);
    cell.iter().for_each(|number| body.extend_from_slice(&number.to_le_bytes()));
    true
}

/// Reads looks; `None` if they are malformed.
pub(crate) fn read_looks(body: &[u8]) -> Option<impl Iterator<Item = (ChannelKey, u16)> + '_> {
    let (looks, rest) = body.as_chunks::<LOOK_BYTES>();
    rest.is_empty().then(|| {
        looks.iter().map(|look| {
            let interval_ticks = u16::from_le_bytes([look[0], look[1]]);
            let number = |from: usize| i32::from_le_bytes([look[from], look[from + 1], look[from + 2], look[from + 3]]);
            (ChannelKey::Cell { grid: look[2], cell: [number(3), number(7), number(11)] }, interval_ticks)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_and_looks_are_read_as_they_were_written_and_nothing_else_is() {
        let mut body = Vec::new();
        let inputs = [
            InputOf { session: 7, number: u32::MAX, bytes: &[1, 2, 3] },
            InputOf { session: 0, number: 1, bytes: &[] },
        ];
        inputs.iter().for_each(|input| push_input(&mut body, *input));
        assert_eq!(read_inputs(&body).unwrap(), inputs);
        for length in (0..body.len()).filter(|length| ![0, 12].contains(length)) {
            assert_eq!(read_inputs(&body[..length]), None, "{length} bytes");
        }
        assert_eq!(read_inputs(&[0, 0, 0, 0, 0, 0, 0, 0, 65].into_iter().chain([0; 65]).collect::<Vec<u8>>()), None);

        let mut body = Vec::new();
        let cell = ChannelKey::Cell { grid: 3, cell: [-1, i32::MAX, 12] };
        assert!(push_look(&mut body, cell, 65_535) && !push_look(&mut body, ChannelKey::Global(0), 1));
        assert_eq!(read_looks(&body).unwrap().collect::<Vec<_>>(), [(cell, 65_535)]);
        assert!(read_looks(&body[1..]).is_none());
    }

    #[test]
    fn steps_have_the_numbers_of_their_order() {
        assert!(
            Up::ALL
                .iter()
                .enumerate()
                .all(|(number, &step)| step as usize == number && Up::of(number as u8) == Some(step))
        );
        assert!(
            Down::ALL
                .iter()
                .enumerate()
                .all(|(number, &step)| step as usize == number && Down::of(number as u8) == Some(step))
        );
        assert_eq!((Up::of(5), Down::of(4)), (None, None));
    }
}
