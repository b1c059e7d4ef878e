//! Which connection is which server of a grid.

use thiserror::Error;

use super::Grid;

/// Why a connection gets no cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SlotsError {
    /// All servers of the grid are there already.
    #[error("all {servers} servers of the grid are there already")]
    Taken {
        /// Servers of the grid.
        servers: u32,
    },
    /// The connection has a slot already.
    #[error("this connection is server {server} already")]
    Again {
        /// Which one.
        server: u32,
    },
}

impl SlotsError {
    /// A short stable name, for metric labels.
    pub fn tag(&self) -> &'static str {
        match self {
            SlotsError::Taken { .. } => "spatial_slots_taken",
            SlotsError::Again { .. } => "spatial_slot_again",
        }
    }
}

/// The server slots of a grid, one for each server, each for one connection. `C` is the caller's id of a connection.
#[derive(Clone, Debug)]
pub struct Slots<C> {
    places: Vec<Option<C>>,
    is_ready: bool,
}

impl<C: Copy + PartialEq> Slots<C> {
    /// All slots are free.
    pub fn new(grid: &Grid) -> Slots<C> {
        Slots { places: vec![None; grid.servers() as usize], is_ready: false }
    }

    /// Gives the first free slot to a connection, and says which server it is.
    ///
    /// # Errors
    /// There is none, or the connection has one. channeld gives a connection that asks twice two slots; then one
    /// server too few suffices for the world to count as complete.
    pub fn take(&mut self, connection: C) -> Result<u32, SlotsError> {
        if let Some(server) = self.server_of(connection) {
            return Err(SlotsError::Again { server });
        }
        let free = self.places.iter().position(Option::is_none);
        let free = free.ok_or(SlotsError::Taken { servers: self.places.len() as u32 })?;
        self.places[free] = Some(connection);
        Ok(free as u32)
    }

    /// The connection is gone and will not come back: its slot is free again. Returns which one it was.
    pub fn free(&mut self, connection: C) -> Option<u32> {
        let server = self.server_of(connection)?;
        self.places[server as usize] = None;
        self.is_ready = false;
        Some(server)
    }

    /// After a restart: the connection that has a slot, unless another one was said to have it.
    pub(crate) fn restore(&mut self, server: u32, connection: C) {
        if let Some(place) = self.places.get_mut(server as usize).filter(|place| place.is_none()) {
            *place = Some(connection);
        }
    }

    /// After a restart: if all slots are taken, the servers know it.
    pub(crate) fn set_ready(&mut self) {
        self.is_ready = self.is_complete();
    }

    /// Whether the servers were told that all slots are taken.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Another connection takes a slot over: a server that has come back.
    pub fn replace(&mut self, old: C, new: C) -> Option<u32> {
        let server = self.server_of(old)?;
        self.places[server as usize] = Some(new);
        Some(server)
    }

    /// Whether the last slot has just been taken. True once, until a slot becomes free: now the servers are to be
    /// subscribed to their borders and told that all are there.
    pub fn poll_complete(&mut self) -> bool {
        let is_complete = self.places.iter().all(Option::is_some);
        is_complete && !std::mem::replace(&mut self.is_ready, true)
    }

    /// Whether all slots are taken.
    pub fn is_complete(&self) -> bool {
        self.places.iter().all(Option::is_some)
    }

    /// Which server a connection is.
    pub fn server_of(&self, connection: C) -> Option<u32> {
        self.places.iter().position(|place| *place == Some(connection)).map(|server| server as u32)
    }

    /// Whether a connection is a server.
    pub fn connection(&self, server: u32) -> Option<C> {
        self.places.get(server as usize).copied().flatten()
    }

    /// The servers that are there, with their connections.
    pub fn iter(&self) -> impl Iterator<Item = (u32, C)> + '_ {
        (0u32..).zip(&self.places).filter_map(|(server, place)| Some((server, (*place)?)))
    }
}
