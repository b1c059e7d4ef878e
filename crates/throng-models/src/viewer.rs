//! The view of one connection.

use rustc_hash::FxHashSet;
use throng::{ChannelKey, ConnectionId};

use crate::world::{Scope, World};

/// The position from which a connection looks, and the names that it subscribes to.
#[derive(Debug)]
pub(crate) struct Viewer {
    pub(crate) id: ConnectionId,
    /// The client can read everything.
    pub(crate) is_live: bool,
    pub(crate) viewpoint_m: Option<[f32; 3]>,
    names: FxHashSet<ChannelKey>,
    /// How many of the names are cells.
    cells: usize,
}

impl Viewer {
    pub(crate) fn new(id: ConnectionId) -> Viewer {
        Viewer { id, is_live: false, viewpoint_m: None, names: FxHashSet::default(), cells: 0 }
    }

    pub(crate) fn follow(&mut self, key: ChannelKey) {
        if self.names.insert(key) {
            self.cells += usize::from(matches!(key, ChannelKey::Cell { .. }));
        }
    }

    pub(crate) fn unfollow(&mut self, key: ChannelKey) {
        if self.names.remove(&key) {
            self.cells -= usize::from(matches!(key, ChannelKey::Cell { .. }));
        }
    }

    /// The names that it subscribes to.
    pub(crate) fn names(&self) -> impl Iterator<Item = ChannelKey> + '_ {
        self.names.iter().copied()
    }

    /// Whether it subscribes to any cell by name.
    pub(crate) fn follows_cells(&self) -> bool {
        self.cells > 0
    }

    /// The squared distance of an object that it sees; 0 for what it sees from anywhere. `known` objects stay visible a
    /// little farther.
    #[inline]
    pub(crate) fn sees(&self, world: &World, index: u32, known: bool) -> Option<f32> {
        match world.scope(index) {
            Scope::Nowhere => None,
            _ if world.is_owner(index, self.id) => Some(0.0),
            Scope::Place(grid) => self.sees_place(world, world.position_m(index), grid, known),
            Scope::Named(key) => self.names.contains(&key).then_some(0.0),
        }
    }

    /// The same for an object with a position that has another owner, or none.
    ///
    /// Most of what a legacy model does in an empty world is this, so what hardly ever happens is kept out of it.
    #[inline]
    pub(crate) fn sees_place(&self, world: &World, position_m: &[f32; 3], grid: u8, known: bool) -> Option<f32> {
        if let Some(viewpoint_m) = &self.viewpoint_m {
            let reach = world.reach(grid);
            let distance2 = reach.distance2(viewpoint_m, position_m);
            let limit_m = if known { reach.leave_m } else { reach.enter_m };
            if distance2 <= limit_m * limit_m {
                return Some(distance2);
            }
        }
        (self.cells > 0 && self.is_let_in(world, position_m, grid)).then_some(0.0)
    }

    /// Whether it subscribes by name to the cell of a position.
    #[cold]
    fn is_let_in(&self, world: &World, position_m: &[f32; 3], grid: u8) -> bool {
        self.names.contains(&ChannelKey::Cell { grid, cell: world.cell_of(grid, position_m) })
    }
}
