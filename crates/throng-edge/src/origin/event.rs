//! The events of an origin.

use throng::{ConnectionId, Received, USER_DATA_LEN};

use super::PlayerId;
use crate::talk::Former;

/// The news of edges and their players. Poll until `None` in each tick, before [`Origin::before_tick`](crate::Origin::before_tick).
#[derive(Clone, Debug, PartialEq)]
pub enum OriginEvent {
    /// An edge has connected.
    EdgeJoined(ConnectionId),
    /// An edge has gone. All its players have left before.
    EdgeLeft(ConnectionId),
    /// A player has come.
    Joined {
        /// The player from now on.
        player: PlayerId,
        /// The client's id, from its token.
        client_id: u64,
        /// The user data of its token.
        user_data: Box<[u8; USER_DATA_LEN]>,
    },
    /// A player has left, or another origin has it now, or without [`OriginOptions::keep_ticks`](crate::OriginOptions::keep_ticks) its client has connected to another edge:
    /// despawn its objects.
    Left(PlayerId),
    /// A player has lost its edge, and may come back to any other: see [`OriginOptions::keep_ticks`](crate::OriginOptions::keep_ticks). It is told nothing, and its
    /// objects stay. [`OriginEvent::Returned`] follows, or [`OriginEvent::Left`].
    Away(PlayerId),
    /// A player has come back. Give it its objects again: its new edge does not know them.
    Returned {
        /// The player from now on.
        player: PlayerId,
        /// The player until now.
        former: PlayerId,
    },
    /// A player whom [`Origin::hand_over`](crate::Origin::hand_over) wants to move can: all its inputs and messages were told. Answer with
    /// [`Origin::release`](crate::Origin::release).
    Free {
        /// The player.
        player: PlayerId,
        /// The number of the other origin.
        to: u16,
    },
    /// A player whom [`Origin::hand_over`](crate::Origin::hand_over) wanted to move stays for now: the other origin is not there, or the player has just
    /// come from there. It can be handed over again.
    Stays(PlayerId),
    /// A player has come from another origin, or comes back with the state that this origin has [released](crate::Origin::release) before. Spawn
    /// its object and [`give`](crate::Origin::give) it: for clients it goes on as the former one, if that is known. Or
    /// [`disconnect`](crate::Origin::disconnect) the player: a client without an object is shown the former one for 30 s, and then its
    /// edge sends it away.
    Arrived {
        /// The player from now on.
        player: PlayerId,
        /// The client's id, from its token.
        client_id: u64,
        /// The user data of its token.
        user_data: Box<[u8; USER_DATA_LEN]>,
        /// Its object at the other origin; `None` of a player whom this origin has let go, and whose edge died on the way.
        former: Option<Former>,
        /// The state that the other origin's game has released.
        state: Vec<u8>,
    },
    /// An input of a player. Changes that the world makes for it are part of this tick.
    Input {
        /// The player.
        player: PlayerId,
        /// The client's number of it.
        number: u32,
        /// The input.
        bytes: Vec<u8>,
    },
    /// A message of a player.
    Message {
        /// The player.
        player: PlayerId,
        /// The lane that it came on.
        lane: u8,
        /// The message.
        message: Received,
    },
    /// An edge looks at this server by a version of the borders ([`Edge::say_looks`](crate::Edge::say_looks)).
    /// [`Balance::take`](crate::Balance::take) takes it.
    Looks {
        /// The edge.
        edge: ConnectionId,
        /// The version.
        version: u64,
    },
}

/// The edge or player that an event is about.
pub(super) enum About {
    Edge(ConnectionId),
    Player(PlayerId),
}

impl OriginEvent {
    /// The length of a player's message or state.
    pub(super) fn payload_bytes(&self) -> usize {
        match self {
            OriginEvent::Message { message, .. } => message.bytes().len(),
            OriginEvent::Arrived { state, .. } => state.len(),
            _ => 0,
        }
    }

    pub(super) fn about(&self) -> About {
        match *self {
            OriginEvent::EdgeJoined(edge) | OriginEvent::EdgeLeft(edge) | OriginEvent::Looks { edge, .. } => {
                About::Edge(edge)
            }
            OriginEvent::Left(player)
            | OriginEvent::Away(player)
            | OriginEvent::Stays(player)
            | OriginEvent::Joined { player, .. }
            | OriginEvent::Returned { player, .. }
            | OriginEvent::Free { player, .. }
            | OriginEvent::Arrived { player, .. }
            | OriginEvent::Input { player, .. }
            | OriginEvent::Message { player, .. } => About::Player(player),
        }
    }
}
