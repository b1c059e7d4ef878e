//! The grid filter: for each cell, the set of the objects that can be seen from there.

use rustc_hash::FxHashMap;
use throng::{ChannelKey, GridOptions};

use crate::bits::Bits;
use crate::viewer::Viewer;
use crate::world::{Scope, World};

/// The first and the last cell of an object on both axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: [i32; 2],
    last: [i32; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    Nowhere,
    Cells(u8, Span),
    Name(ChannelKey),
}

#[derive(Debug)]
struct Grid {
    /// As wide as sight.
    cell_m: f32,
    cells: FxHashMap<[i32; 2], Bits>,
}

/// All grids, and what is let in by name.
#[derive(Debug)]
pub(super) struct Filter {
    grids: Vec<Grid>,
    names: FxHashMap<ChannelKey, Bits>,
    /// By connection index.
    owned: FxHashMap<u32, Bits>,
    /// By object index.
    listed: Vec<Listed>,
    owners: Vec<Option<u32>>,
}

impl Filter {
    pub(super) fn new(grids: &[GridOptions]) -> Filter {
        let reach_m = |grid: &GridOptions| grid.rings.last().map_or(1.0, |ring| ring.radius_m as f32);
        let grid = |grid: &GridOptions| Grid { cell_m: reach_m(grid), cells: FxHashMap::default() };
        Filter {
            grids: grids.iter().map(grid).collect(),
            names: FxHashMap::default(),
            owned: FxHashMap::default(),
            listed: Vec::new(),
            owners: Vec::new(),
        }
    }

    pub(super) fn insert(&mut self, world: &World, object: u32) {
        self.listed.resize(world.len(), Listed::Nowhere);
        self.owners.resize(world.len(), None);
        if let Some(owner) = world.object(world.id_at(object)).and_then(|object| object.owner) {
            self.owners[object as usize] = Some(owner.index);
            add(self.owned.entry(owner.index).or_default(), object);
        }
        self.listed[object as usize] = match world.scope(object) {
            Scope::Nowhere => Listed::Nowhere,
            Scope::Named(key) => {
                add(self.names.entry(key).or_default(), object);
                Listed::Name(key)
            }
            Scope::Place(grid) => {
                let span = self.grids[usize::from(grid)].span(world.position_m(object));
                self.grids[usize::from(grid)].list(span, object);
                Listed::Cells(grid, span)
            }
        };
    }

    pub(super) fn remove(&mut self, object: u32) {
        if let Some(owned) = self.owners[object as usize].take().and_then(|owner| self.owned.get_mut(&owner)) {
            owned.remove(object);
        }
        match std::mem::replace(&mut self.listed[object as usize], Listed::Nowhere) {
            Listed::Nowhere => {}
            Listed::Cells(grid, span) => self.grids[usize::from(grid)].unlist(span, object),
            Listed::Name(key) => {
                if let Some(bits) = self.names.get_mut(&key) {
                    bits.remove(object);
                }
            }
        }
    }

    /// An object may have moved.
    pub(super) fn touch(&mut self, world: &World, object: u32) {
        let Listed::Cells(grid, span) = self.listed[object as usize] else { return };
        let grid_cells = &mut self.grids[usize::from(grid)];
        let present = grid_cells.span(world.position_m(object));
        if present != span {
            grid_cells.unlist(span, object);
            grid_cells.list(present, object);
            self.listed[object as usize] = Listed::Cells(grid, present);
        }
    }

    /// Puts what a connection sees into `seen`, which has room for all objects.
    pub(super) fn see(&self, world: &World, viewer: &Viewer, seen: &mut Bits) {
        seen.clear();
        if let Some(viewpoint_m) = viewer.viewpoint_m {
            for (number, grid) in (0..).zip(&self.grids) {
                let key = [0, 1].map(|axis| grid.cell_at(viewpoint_m[axis]));
                let Some(cell) = grid.cells.get(&key) else { continue };
                let reach = world.reach(number);
                // The cells are coarse: what is in them counts only if it is really near enough.
                for object in cell.iter() {
                    if reach.distance2(world.position_m(object), viewpoint_m) <= reach.enter_m * reach.enter_m {
                        seen.insert(object);
                    }
                }
            }
        }
        viewer.names().filter_map(|key| self.names.get(&key)).for_each(|named| seen.unite(named));
        if let Some(owned) = self.owned.get(&viewer.id.index) {
            owned.iter().filter(|&object| world.is_owner(object, viewer.id)).for_each(|object| seen.insert(object));
        }
        if viewer.follows_cells() {
            let all = 0..world.len() as u32;
            all.filter(|&object| viewer.sees(world, object, false).is_some()).for_each(|object| seen.insert(object));
        }
    }
}

impl Grid {
    fn cell_at(&self, position_m: f32) -> i32 {
        (position_m / self.cell_m).floor() as i32
    }

    /// The cells from which somebody may see what is there.
    fn span(&self, position_m: [f32; 3]) -> Span {
        let at = |offset_m: f32| [0, 1].map(|axis| self.cell_at(position_m[axis] + offset_m));
        Span { first: at(-self.cell_m), last: at(self.cell_m) }
    }

    fn list(&mut self, span: Span, object: u32) {
        for key in span.cells() {
            add(self.cells.entry(key).or_default(), object);
        }
    }

    fn unlist(&mut self, span: Span, object: u32) {
        for key in span.cells() {
            if let Some(bits) = self.cells.get_mut(&key) {
                bits.remove(object);
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

fn add(bits: &mut Bits, object: u32) {
    bits.grow(object as usize + 1);
    bits.insert(object);
}
