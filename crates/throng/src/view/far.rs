//! The cells for what is seen from afar: each has several channels, its parts, and so several subscriptions.

use rustc_hash::FxHashMap;
use throng_interest::CellId;
use throng_replica::{ChannelKey, SubscriptionId};

use crate::options::{FarOptions, GridOptions};

/// The tag of a cell that has its subscriptions.
pub(super) const FAR_SUBSCRIPTIONS: u32 = 1;

/// The cells that hold far facets, and the subscriptions of each that is in view: one for each of its parts.
#[derive(Clone)]
pub(super) struct FarCells {
    pub(super) grid: u8,
    pub(super) parts: u16,
    /// The axis along which parts are counted: see `Replicator::set_far_grid`.
    up: usize,
    pub(super) subscriptions: FxHashMap<CellId, Box<[SubscriptionId]>>,
}

impl FarCells {
    pub(super) fn new(FarOptions { grid, parts }: FarOptions, grids: &[GridOptions]) -> FarCells {
        let up = grids.get(usize::from(grid)).map_or(2, |grid| grid.shape.up.axis());
        FarCells { grid, parts, up, subscriptions: FxHashMap::default() }
    }

    /// The channels of a cell.
    pub(super) fn keys(&self, cell: CellId) -> impl Iterator<Item = ChannelKey> + use<> {
        let (grid, up, parts) = (self.grid, self.up, self.parts);
        let cell = [cell.x, cell.y, cell.z];
        let key = move |part: u16| {
            let along = |axis| if axis == up && parts > 1 { i32::from(part) } else { cell[axis] };
            ChannelKey::Cell { grid, cell: std::array::from_fn(along) }
        };
        (0..parts).map(key)
    }

    /// The channels of a cell with their subscriptions, if it is in view.
    pub(super) fn held(&self, cell: CellId) -> impl Iterator<Item = (ChannelKey, SubscriptionId)> + '_ {
        let subscriptions = self.subscriptions.get(&cell).into_iter().flatten();
        self.keys(cell).zip(subscriptions.copied())
    }

    /// Turns the numbers of a channel into those of its cell, and returns its part.
    pub(super) fn take_part(&self, cell: &mut [i32; 3]) -> i32 {
        if self.parts > 1 { std::mem::take(&mut cell[self.up]) } else { 0 }
    }

    pub(super) fn has_part(&self, part: i32) -> bool {
        (0..i32::from(self.parts)).contains(&part)
    }

    pub(super) fn subscription(&self, cell: CellId, part: i32) -> Option<SubscriptionId> {
        self.subscriptions.get(&cell)?.get(usize::try_from(part).ok()?).copied()
    }
}
