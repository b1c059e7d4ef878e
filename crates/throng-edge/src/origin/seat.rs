//! The knowledge of an origin about one player.

use throng::Tick;

use crate::talk::Former;

/// A player, as its origin knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seat {
    pub(super) client_id: u64,
    /// When the token of its connection ends: tells which of two connections is newer.
    pub(super) token_ends_s: u64,
    pub(super) stage: Stage,
    /// Its object elsewhere, as long as it has none here.
    pub(super) former: Option<Former>,
}

/// A player who is away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Away {
    /// It is kept until then.
    pub(super) until: Tick,
    /// As of its last [`Seat`].
    pub(super) token_ends_s: u64,
}

/// How far a player is on its way to another origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is here.
    #[default]
    Here,
    /// The edge was asked to hold back its inputs.
    Asked { to: u16 },
    /// It may be released.
    Free { to: u16 },
    /// Its state has left. Its objects stay until the other origin has it.
    Released,
}
