//! The messages between an edge and its origin. Both have them in their schema: `.kind::<ToOrigin>().kind::<ToEdge>()`.
//!
//! ```text
//! inputs of a batch, each   [session: u32][number: u32][length: u8][bytes]
//! looks, each               [interval in ticks: u16, 0 for no longer][grid: u8][x: i32][y: i32][z: i32]
//! looks that are refused    [number of such messages so far: u32] and the same for each look
//! a version of the borders  [newest number of refused looks that the edge knows: u32]
//! a state that leaves       [object: u32, u32][state of the game]
//! a player who joins        [user data: 256][end of its token, unix s: u64]
//! a player who arrives      [user data: 256][end of its token, unix s: u64][origin it comes from: u16][object there: u32, u32][state of the game]
//! a player elsewhere        [end of its token, unix s: u64]
//! an object that leaves     [object: u32, u32][origin it goes to: u16]
//! an object that continues  [origin it comes from: u16][object there: u32, u32][object here: u32, u32]
//! ```
//!
//! An object is its index and its generation. Origins have the same numbers at all edges.
//!
//! A player who is handed over from origin A to origin B:
//!
//! ```text
//! A                               edge                                  B
//!   Move to B               ---->   holds back inputs and messages
//!   the last of its inputs  <----   Free
//!   State, and a ghost      ---->   Arrive, then what was held back ---->  spawns it
//!   Leaves, to all edges    ---->   the ghost becomes B's object    <----  Given; Continues, to all edges
//!   Left: despawns it       <----   Leave
//! ```
//!
//! A server cannot take an object of another one: it continues with a server only if its own server has said that it leaves for there.
//!
//! A client that connects to an edge may have a player already, with any of several servers: its former edge may have died. So the edge
//! asks all of them (`Seek`, `Has`), and lets the client join the one that has its player, or else the one of its entry. A server that has
//! let go of a player keeps its state until the player has arrived. It says so, and whether the edge that carried the state has gone. The
//! client joins that server if the other one, to which the player was on its way, says that it has not come.
//!
//! The edge alone decides where its player is, so there is one home at every moment. Each of the two
//! connections delivers in order, so no input and no message is lost or taken twice.
//!
//! An origin that cannot send some cells names them (`Unseen`), with the number of such messages so far. The edge asks for them again some
//! ticks later. In a `Looks` it says the newest of these numbers that it knows; the origin ignores a `Looks` with another number, because
//! the edge does not know yet what it cannot see.
//!
//! All numbers are little endian.

use throng::{ChannelKey, MAX_INPUT_BYTES, ObjectId, Replicate, USER_DATA_LEN};

/// The longest body of a message.
pub const BODY_MAX: usize = 128 << 10;

/// The lane between edges and origins takes messages of so many bytes at least: a body, and what stands around it.
pub const LANE_BYTES_MIN: usize = BODY_MAX + (1 << 10);

/// The first bytes of the user data in an edge's token. So the program that issues tokens decides which programs are edges.
/// The last byte is the revision of these messages: an origin sends away an edge of another one.
pub const EDGE_MARK: &[u8; 12] = b"throng-edge\x06";
/// The mark without the revision.
const EDGE_WORD: &[u8; 11] = b"throng-edge";

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

/// Why an edge of another revision cannot be served; `None` if it is no such edge.
pub(crate) fn other_revision(user_data: &[u8; USER_DATA_LEN]) -> Option<String> {
    let theirs = user_data[EDGE_WORD.len()];
    let ours = EDGE_MARK[EDGE_WORD.len()];
    let is_other = user_data.starts_with(EDGE_WORD) && theirs != ours;
    is_other.then(|| {
        format!("an edge of revision {theirs} cannot talk to a server of revision {ours}: run the same build of both")
    })
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
    /// The id of the client, of a join, an arrival and the like; the number of a batch; of a leave 1 if the client does not come back; the
    /// version of the borders that the edge looks by.
    #[replicate(integer)]
    pub number: u64,
    /// The lane of a message; of a join 1 if the client goes on with a state that this origin has kept; of a word that a player is elsewhere 1
    /// if it is about such a state alone.
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

/// The lane of an [`Up::Elsewhere`] that is about a kept state of the player alone.
pub(crate) const LET_GO_ONLY: u8 = 1;

/// Why a connection ends whose client has a newer one. The edge knows by it that no state of the player is of use any more.
pub(crate) const CONNECTED_AGAIN: &str = "you have connected again, to another edge";

/// The lane of a join that goes on with a kept state.
pub(crate) const GOES_ON: u8 = 1;

/// The answer of an origin that was asked for the player of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HasAnswer {
    /// It is not here.
    Not,
    /// It is here.
    Here,
    /// It was let go, to another origin.
    LetGo {
        /// Which one.
        to: u16,
        /// Nobody can deliver its state there any more.
        edge_is_gone: bool,
    },
}

impl HasAnswer {
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            HasAnswer::Not => vec![0],
            HasAnswer::Here => vec![1],
            HasAnswer::LetGo { to, edge_is_gone } => {
                let [low, high] = to.to_le_bytes();
                vec![if edge_is_gone { 2 } else { 3 }, low, high]
            }
        }
    }

    pub(crate) fn read(body: &[u8]) -> Option<HasAnswer> {
        Some(match *body {
            [0] => HasAnswer::Not,
            [1] => HasAnswer::Here,
            [kind @ (2 | 3), low, high] => {
                HasAnswer::LetGo { to: u16::from_le_bytes([low, high]), edge_is_gone: kind == 2 }
            }
            _ => return None,
        })
    }
}

/// The meaning of a [`ToOrigin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Up {
    /// A client has connected: its id, its user data, and when its token ends. The lane is 1 if it goes on with the state that this origin has kept.
    Join,
    /// It has left for good, or does not answer any more.
    Leave,
    /// Inputs of several clients.
    Inputs,
    /// A message of a client.
    Say,
    /// Cells that are looked at from now on, or no longer.
    Look,
    /// Everything of a player who is to move was sent.
    Free,
    /// A player cannot move: the other origin is not there.
    Stay,
    /// A player comes from another origin: the client's id, its user data, when its token ends, where it comes from, and its state.
    Arrive,
    /// Does this origin have the player of a client: the client's id, and when its token ends.
    Seek,
    /// The edge looks by a version of the borders: all looks for it were sent, and none is refused of which it knows.
    Looks,
    /// The player of a client was at this origin while it was out of reach, and is at another one now: the client's id, and when its token
    /// ends. If the lane is 1, only a state is given up that the origin has kept of a player whom it has let go.
    Elsewhere,
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
    /// A player belongs to another origin from now on: which, as a u16.
    Move,
    /// The state of a player who moves.
    State,
    /// An object goes on as another one. It is not about a player.
    Continues,
    /// An object may go on at another origin. It is not about a player either.
    Leaves,
    /// Whether the player that was sought is here: a byte, 0 or 1; or 2 or 3 and the number of another origin as a u16. The player was let
    /// go to that one. 2: the edge that carried it cannot deliver it any more. 3: it may.
    Has,
    /// Cells that this origin cannot send. It is not about a player.
    Unseen,
}

impl Up {
    const ALL: [Up; 11] = [
        Up::Join,
        Up::Leave,
        Up::Inputs,
        Up::Say,
        Up::Look,
        Up::Free,
        Up::Stay,
        Up::Arrive,
        Up::Seek,
        Up::Looks,
        Up::Elsewhere,
    ];

    pub(crate) fn of(step: u8) -> Option<Up> {
        Up::ALL.get(usize::from(step)).copied()
    }
}

impl Down {
    const ALL: [Down; 10] = [
        Down::Given,
        Down::View,
        Down::Say,
        Down::End,
        Down::Move,
        Down::State,
        Down::Continues,
        Down::Leaves,
        Down::Has,
        Down::Unseen,
    ];

    pub(crate) fn of(step: u8) -> Option<Down> {
        Down::ALL.get(usize::from(step)).copied()
    }
}

/// Bytes of an object's index and generation.
pub(crate) const OBJECT_BYTES: usize = 8;
/// Bytes of the time at which a token ends.
const TOKEN_BYTES: usize = 8;
/// Length of the body of an [`Up::Join`].
#[cfg(test)]
pub(crate) const JOIN_BYTES: usize = USER_DATA_LEN + TOKEN_BYTES;
/// Bytes of the number of an origin.
const NUMBER_BYTES: usize = 2;
/// The longest state of a player: it fits into a message with all that is said beside it.
pub const STATE_MAX: usize = BODY_MAX - USER_DATA_LEN - TOKEN_BYTES - NUMBER_BYTES - OBJECT_BYTES;

pub(crate) fn object_bytes(object: ObjectId) -> [u8; OBJECT_BYTES] {
    let mut bytes = [0; OBJECT_BYTES];
    bytes[..4].copy_from_slice(&object.index.to_le_bytes());
    bytes[4..].copy_from_slice(&object.generation.to_le_bytes());
    bytes
}

/// Reads an object; `None` if there are too few bytes.
pub(crate) fn split_object(body: &[u8]) -> Option<(ObjectId, &[u8])> {
    let (index, rest) = body.split_first_chunk::<4>()?;
    let (generation, rest) = rest.split_first_chunk::<4>()?;
    Some((ObjectId { index: u32::from_le_bytes(*index), generation: u32::from_le_bytes(*generation) }, rest))
}

/// Reads an object and nothing else.
pub(crate) fn read_object(body: &[u8]) -> Option<ObjectId> {
    split_object(body).filter(|(_, rest)| rest.is_empty()).map(|(object, _)| object)
}

/// Where an object was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Former {
    /// The number of the origin.
    pub origin: u16,
    /// The object there.
    pub object: ObjectId,
}

impl Former {
    fn bytes(self) -> [u8; NUMBER_BYTES + OBJECT_BYTES] {
        let mut bytes = [0; NUMBER_BYTES + OBJECT_BYTES];
        bytes[..NUMBER_BYTES].copy_from_slice(&self.origin.to_le_bytes());
        bytes[NUMBER_BYTES..].copy_from_slice(&object_bytes(self.object));
        bytes
    }

    fn split(body: &[u8]) -> Option<(Former, &[u8])> {
        let (origin, rest) = body.split_first_chunk::<NUMBER_BYTES>()?;
        let (object, rest) = split_object(rest)?;
        Some((Former { origin: u16::from_le_bytes(*origin), object }, rest))
    }
}

/// The user data of a client, and when its token ends.
pub(crate) fn join_bytes(user_data: &[u8; USER_DATA_LEN], token_ends_s: u64) -> Vec<u8> {
    [&user_data[..], &token_ends_s.to_le_bytes()].concat()
}

/// Reads what a client brings who joins; `None` if there are too few bytes.
pub(crate) fn split_join(body: &[u8]) -> Option<(&[u8; USER_DATA_LEN], u64, &[u8])> {
    let (user_data, rest) = body.split_first_chunk()?;
    let (token_ends_s, rest) = rest.split_first_chunk::<TOKEN_BYTES>()?;
    Some((user_data, u64::from_le_bytes(*token_ends_s), rest))
}

/// Reads when the token of a client ends, which is the body of [`Up::Seek`] and [`Up::Elsewhere`]; `None` if it is malformed.
pub(crate) fn read_token_end(body: &[u8]) -> Option<u64> {
    body.try_into().ok().map(u64::from_le_bytes)
}

/// A player who comes from another origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrival<'a> {
    pub(crate) user_data: &'a [u8; USER_DATA_LEN],
    /// Of two connections of a client, the one whose token ends later is the newer one.
    pub(crate) token_ends_s: u64,
    pub(crate) former: Former,
    pub(crate) state: &'a [u8],
}

impl<'a> Arrival<'a> {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [&join_bytes(self.user_data, self.token_ends_s)[..], &self.former.bytes(), self.state].concat()
    }

    pub(crate) fn read(body: &'a [u8]) -> Option<Arrival<'a>> {
        let (user_data, token_ends_s, rest) = split_join(body)?;
        let (former, state) = Former::split(rest)?;
        Some(Arrival { user_data, token_ends_s, former, state })
    }
}

pub(crate) fn continues_bytes(former: Former, object: ObjectId) -> Vec<u8> {
    [&former.bytes()[..], &object_bytes(object)].concat()
}

pub(crate) fn leaves_bytes(object: ObjectId, to: u16) -> Vec<u8> {
    [&object_bytes(object)[..], &to.to_le_bytes()].concat()
}

/// Reads which object leaves, and where it goes to; `None` if it is malformed.
pub(crate) fn read_leaves(body: &[u8]) -> Option<(ObjectId, u16)> {
    let (object, to) = split_object(body)?;
    Some((object, u16::from_le_bytes(to.try_into().ok()?)))
}

/// Reads which object goes on as which; `None` if it is malformed.
pub(crate) fn read_continues(body: &[u8]) -> Option<(Former, ObjectId)> {
    let (former, rest) = Former::split(body)?;
    Some((former, read_object(rest)?))
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

/// Bytes of the number of messages with refused looks.
const REFUSALS_BYTES: usize = 4;

/// The refused looks that fit into one message.
pub(crate) const UNSEEN_MAX: usize = (BODY_MAX - REFUSALS_BYTES) / LOOK_BYTES;

/// The body of [`Up::Looks`], and the beginning of that of [`Down::Unseen`].
pub(crate) fn refusals_bytes(refusals: u32) -> [u8; REFUSALS_BYTES] {
    refusals.to_le_bytes()
}

/// Reads the number of messages with refused looks; `None` if there are too few bytes.
pub(crate) fn split_refusals(body: &[u8]) -> Option<(u32, &[u8])> {
    let (refusals, rest) = body.split_first_chunk::<REFUSALS_BYTES>()?;
    Some((u32::from_le_bytes(*refusals), rest))
}

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
        let unseen = [&refusals_bytes(258)[..], &body].concat();
        assert_eq!(unseen, [2, 1, 0, 0, 255, 255, 3, 255, 255, 255, 255, 255, 255, 255, 127, 12, 0, 0, 0]);
        assert_eq!(split_refusals(&unseen), Some((258, &body[..])));
        assert_eq!((split_refusals(&unseen[..4]), split_refusals(&unseen[..3])), (Some((258, &[][..])), None));
        const { assert!(REFUSALS_BYTES + UNSEEN_MAX * LOOK_BYTES <= BODY_MAX) };
    }

    #[test]
    fn an_edge_of_another_revision_is_known_and_told_so() {
        let (ours, mut other) = (edge_user_data(), edge_user_data());
        other[11] -= 1;
        assert!(is_edge(&ours) && !is_edge(&other));
        assert_eq!((other_revision(&ours), other_revision(&[0; USER_DATA_LEN])), (None, None));
        assert!(other_revision(&other).is_some_and(|reason| reason.contains("revision 5")));
    }

    #[test]
    fn what_is_said_of_a_move_is_read_as_it_was_written_and_nothing_shorter_is() {
        let object = |index| ObjectId { index, generation: u32::MAX - index };
        let former = Former { origin: 513, object: object(7) };
        let arrival = Arrival { user_data: &[9; USER_DATA_LEN], token_ends_s: 1 << 40, former, state: &[1, 2, 3] };
        let body = arrival.bytes();
        assert_eq!(Arrival::read(&body), Some(arrival));
        assert_eq!(Arrival::read(&body[..body.len() - 4]), None);
        let body = continues_bytes(former, object(8));
        assert_eq!(read_continues(&body), Some((former, object(8))));
        for length in 0..body.len() {
            assert_eq!(read_continues(&body[..length]), None, "{length} bytes");
        }
        let leaves = leaves_bytes(object(7), 513);
        assert_eq!(read_leaves(&leaves), Some((object(7), 513)));
        assert_eq!(read_leaves(&leaves[..9]).or(read_leaves(&[0; 11])), None);
        assert_eq!((read_object(&object_bytes(object(1))), read_object(&[0; 9])), (Some(object(1)), None));
        assert_eq!(split_object(&body).map(|(_, rest)| rest.len()), Some(body.len() - OBJECT_BYTES));
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
        assert_eq!((Up::of(12), Down::of(10)), (None, None));
    }

    #[test]
    fn answers_to_a_search_are_read_as_they_are_written_and_nothing_else_is() {
        let let_go = |to, edge_is_gone| HasAnswer::LetGo { to, edge_is_gone };
        for answer in [HasAnswer::Not, HasAnswer::Here, let_go(0, true), let_go(258, false), let_go(u16::MAX, true)] {
            assert_eq!(HasAnswer::read(&answer.bytes()), Some(answer));
        }
        assert_eq!(let_go(258, true).bytes(), [2, 2, 1]);
        for body in [&[][..], &[2], &[3], &[4], &[0, 0], &[1, 0, 0], &[2, 0], &[2, 0, 0, 0], &[4, 0, 0], &[0, 0, 0]] {
            assert_eq!(HasAnswer::read(body), None, "{body:?}");
        }
    }
}
