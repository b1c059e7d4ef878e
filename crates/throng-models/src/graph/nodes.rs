//! The nodes: lists of objects that are kept from tick to tick.

use rustc_hash::FxHashMap;
use throng::{ChannelKey, ConnectionId, GridOptions, Tick};

use crate::world::{Scope, World};

/// An object that was not touched for this long goes to the dormant list of its cells.
const DORMANT_AFTER_TICKS: u32 = 60;

/// Dormant objects are brought in turns, each in one of this many ticks.
pub(super) const DORMANT_TURNS: u32 = 8;

/// Cells whose lists are empty stay, with their memory, until there are this many cells.
const CELLS_KEPT: usize = 4_096;

/// Objects looked at for that in each tick.
const DORMANCY_CHECKS: usize = 256;

/// A list of names longer than this is split into buckets, one of which is brought in each tick.
const BUCKET_OBJECTS: usize = 256;

/// An object must be brought before its channel times out.
const BUCKETS_MAX: usize = 4;

/// The objects that are visible from one cell, or from a part of it.
#[derive(Debug, Default)]
pub(super) struct Cell {
    pub(super) awake: Vec<u32>,
    /// By turn.
    dormant: [Vec<u32>; DORMANT_TURNS as usize],
}

/// The first and the last cell in which an object is listed, on both axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: [i32; 2],
    last: [i32; 2],
}

/// Where an object is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    Nowhere,
    Cells { grid: u8, span: Span, is_dormant: bool },
    Name(ChannelKey),
}

#[derive(Debug)]
struct Grid {
    /// As wide as sight: then an object is in 9 to 16 lists.
    cell_m: f32,
    reach_m: f32,
    cells: FxHashMap<[i32; 2], Cell>,
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    grids: Vec<Grid>,
    names: FxHashMap<ChannelKey, Vec<u32>>,
    owned: FxHashMap<ConnectionId, Vec<u32>>,
    /// By object index.
    listed: Vec<Listed>,
    owners: Vec<Option<ConnectionId>>,
    checked: usize,
}

impl Nodes {
    pub(super) fn new(grids: &[GridOptions]) -> Nodes {
        let grid = |grid: &GridOptions| {
            let reach_m = grid.rings.last().map_or(1.0, |ring| ring.radius_m as f32);
            Grid { cell_m: reach_m, reach_m: reach_m * 1.1, cells: FxHashMap::default() }
        };
        Nodes {
            grids: grids.iter().map(grid).collect(),
            names: FxHashMap::default(),
            owned: FxHashMap::default(),
            listed: Vec::new(),
            owners: Vec::new(),
            checked: 0,
        }
    }

    pub(super) fn insert(&mut self, world: &World, object: u32) {
        if self.listed.len() <= object as usize {
            self.listed.resize(world.len(), Listed::Nowhere);
            self.owners.resize(world.len(), None);
        }
        if let Some(owner) = world.object(world.id_at(object)).and_then(|object| object.owner) {
            self.owners[object as usize] = Some(owner);
            self.owned.entry(owner).or_default().push(object);
        }
        self.listed[object as usize] = match world.scope(object) {
            Scope::Nowhere => Listed::Nowhere,
            Scope::Named(key) => {
                self.names.entry(key).or_default().push(object);
                Listed::Name(key)
            }
            Scope::Place(grid) => {
                let span = self.grids[usize::from(grid)].span(*world.position_m(object));
                self.grids[usize::from(grid)].list(span, object, false);
                Listed::Cells { grid, span, is_dormant: false }
            }
        };
    }

    pub(super) fn remove(&mut self, object: u32) {
        if let Some(owner) = self.owners[object as usize].take()
            && let Some(owned) = self.owned.get_mut(&owner)
        {
            forget(owned, object);
            if owned.is_empty() {
                self.owned.remove(&owner);
            }
        }
        match std::mem::replace(&mut self.listed[object as usize], Listed::Nowhere) {
            Listed::Nowhere => {}
            Listed::Cells { grid, span, is_dormant } => self.grids[usize::from(grid)].unlist(span, object, is_dormant),
            Listed::Name(key) => {
                if let Some(list) = self.names.get_mut(&key) {
                    forget(list, object);
                    if list.is_empty() {
                        self.names.remove(&key);
                    }
                }
            }
        }
    }

    /// The game has touched an object: it is awake, and perhaps in other cells.
    pub(super) fn touch(&mut self, world: &World, object: u32) {
        let Listed::Cells { grid, span, is_dormant } = self.listed[object as usize] else { return };
        let present = self.grids[usize::from(grid)].span(*world.position_m(object));
        if present != span || is_dormant {
            self.relist(object, (grid, span, is_dormant), (present, false));
        }
    }

    /// Puts some of the objects that have not been touched for long to sleep, going round.
    pub(super) fn prepare(&mut self, world: &World) {
        for _ in 0..DORMANCY_CHECKS.min(self.listed.len()) {
            self.checked = (self.checked + 1) % self.listed.len();
            let object = self.checked as u32;
            if let Listed::Cells { grid, span, is_dormant: false } = self.listed[self.checked]
                && world.now().since(world.marked(object)) > DORMANT_AFTER_TICKS
            {
                self.relist(object, (grid, span, false), (span, true));
            }
        }
    }

    /// The objects that are visible from the cell of a position.
    pub(super) fn cell(&self, grid: u8, position_m: [f32; 3]) -> Option<&Cell> {
        let grid = &self.grids[usize::from(grid)];
        grid.cells.get(&[0, 1].map(|axis| grid.cell_at(position_m[axis])))
    }

    /// Whether an object is on a dormant list.
    pub(super) fn is_dormant(&self, object: u32) -> bool {
        matches!(self.listed.get(object as usize), Some(Listed::Cells { is_dormant: true, .. }))
    }

    /// The objects of a name whose turn it is in this tick.
    pub(super) fn named(&self, key: ChannelKey, now: Tick) -> impl Iterator<Item = u32> + '_ {
        let list = self.names.get(&key).map_or(&[][..], Vec::as_slice);
        let buckets = list.len().div_ceil(BUCKET_OBJECTS).clamp(1, BUCKETS_MAX);
        list.iter().copied().skip(now.0 as usize % buckets).step_by(buckets)
    }

    pub(super) fn owned(&self, connection: ConnectionId) -> &[u32] {
        self.owned.get(&connection).map_or(&[], Vec::as_slice)
    }

    fn relist(&mut self, object: u32, (grid, from, was_dormant): (u8, Span, bool), (to, is_dormant): (Span, bool)) {
        let cells = &mut self.grids[usize::from(grid)];
        cells.unlist(from, object, was_dormant);
        cells.list(to, object, is_dormant);
        self.listed[object as usize] = Listed::Cells { grid, span: to, is_dormant };
    }
}

impl Grid {
    fn cell_at(&self, position_m: f32) -> i32 {
        (position_m / self.cell_m).floor() as i32
    }

    /// The cells from which objects there may be visible.
    fn span(&self, position_m: [f32; 3]) -> Span {
        let at = |offset_m: f32| [0, 1].map(|axis| self.cell_at(position_m[axis] + offset_m));
        Span { first: at(-self.reach_m), last: at(self.reach_m) }
    }

    fn list(&mut self, span: Span, object: u32, is_dormant: bool) {
        for key in span.cells() {
            self.cells.entry(key).or_default().list_mut(object, is_dormant).push(object);
        }
    }

    fn unlist(&mut self, span: Span, object: u32, is_dormant: bool) {
        for key in span.cells() {
            let Some(cell) = self.cells.get_mut(&key) else { continue };
            forget(cell.list_mut(object, is_dormant), object);
            if cell.is_empty() && self.cells.len() > CELLS_KEPT {
                self.cells.remove(&key);
            }
        }
    }
}

impl Span {
    fn cells(self) -> impl Iterator<Item = [i32; 2]> {
        let columns = self.first[0]..=self.last[0];
        columns.flat_map(move |x| (self.first[1]..=self.last[1]).map(move |y| [x, y]))
    }
}

impl Cell {
    /// The dormant objects whose turn it is in this tick.
    pub(super) fn dormant(&self, now: Tick) -> &[u32] {
        &self.dormant[(now.0 % u64::from(DORMANT_TURNS)) as usize]
    }

    fn list_mut(&mut self, object: u32, is_dormant: bool) -> &mut Vec<u32> {
        if is_dormant { &mut self.dormant[(object % DORMANT_TURNS) as usize] } else { &mut self.awake }
    }

    fn is_empty(&self) -> bool {
        self.awake.is_empty() && self.dormant.iter().all(Vec::is_empty)
    }
}

fn forget(list: &mut Vec<u32>, object: u32) {
    if let Some(place) = list.iter().position(|&listed| listed == object) {
        list.swap_remove(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        Grid { cell_m: 10.0, reach_m: 11.0, cells: FxHashMap::default() }
    }

    #[test]
    fn each_dormant_object_has_its_turn_in_one_of_eight_ticks() {
        let mut grid = grid();
        let span = grid.span([5.0; 3]);
        (0..20).for_each(|object| grid.list(span, object, true));
        let cell = &grid.cells[&[0, 0]];
        let mut brought: Vec<u32> = (100..108).flat_map(|tick| cell.dormant(Tick(tick)).to_vec()).collect();
        brought.sort_unstable();
        assert_eq!(brought, (0..20).collect::<Vec<_>>());
        assert!((100..108).all(|tick| cell.dormant(Tick(tick)).len() <= 3));
    }

    #[test]
    fn empty_cells_are_kept_but_not_more_than_so_many() {
        let mut grid = grid();
        let spans: Vec<Span> = (0..2_000).map(|place| grid.span([place as f32 * 100.0, 5.0, 0.0])).collect();
        grid.list(spans[0], 7, false);
        grid.unlist(spans[0], 7, false);
        let kept = spans[0].cells().count();
        assert_eq!(grid.cells.len(), kept);
        assert!(grid.cells.values().all(|cell| cell.is_empty() && cell.awake.capacity() > 0));
        for span in spans {
            grid.list(span, 7, true);
            grid.unlist(span, 7, true);
        }
        assert!(grid.cells.len() <= CELLS_KEPT, "{}", grid.cells.len());
        assert!(grid.cells.len() + 2 * kept > CELLS_KEPT, "{}", grid.cells.len());
    }
}
