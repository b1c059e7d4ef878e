//! A client as its servers see it.

use super::stage::MASTER;
use crate::load::entity_of;
use crate::traffic::Pose;

pub(super) struct Player {
    pub(super) connection: u32,
    pub(super) pose: Pose,
    /// The server that plays its entity.
    pub(super) owner: usize,
    /// The server that the gateway has given its entity to, as the owner has heard. That one may not have heard it yet.
    pub(super) next: Option<usize>,
    /// The cell that its entity is in; 0 if there are none.
    pub(super) cell: u32,
    /// Whether its entity exists, or it needs none.
    pub(super) is_live: bool,
    /// The highest number of its calls.
    pub(super) last_call: Option<u32>,
    /// Whether its server has come back and does not know who sees it.
    pub(super) is_doubtful: bool,
}

impl Player {
    pub(super) fn new(connection: u32) -> Player {
        Player {
            connection,
            pose: Pose::default(),
            owner: MASTER,
            next: None,
            cell: 0,
            is_live: false,
            last_call: None,
            is_doubtful: false,
        }
    }

    /// The channel of its entity.
    pub(super) fn entity(&self) -> u32 {
        entity_of(self.connection)
    }
}
