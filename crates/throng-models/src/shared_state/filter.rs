//! The grid filter: for each cell, the sets of the objects that can be seen from there, from anywhere in it or from a part.

use rustc_hash::FxHashMap;
use throng::replica::Layers;
use throng::{ChannelKey, GridOptions};

use crate::bits::Bits;
use crate::viewer::Viewer;
use crate::world::{Scope, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    Nowhere,
    /// In the cells around this one.
    Around(u8, [i32; 2]),
    Name(ChannelKey),
}

/// The objects that are visible from a cell.
#[derive(Debug, Default)]
struct Cell {
    /// From anywhere in it.
    surely: Bits,
    /// From a part of it: the distance decides.
    perhaps: Bits,
    /// How many objects are in both.
    objects: u32,
}

#[derive(Debug)]
struct Grid {
    cell_m: f32,
    /// The cells from which an object may be seen, from the one that it is in on, and whether it surely is.
    around: Vec<([i32; 2], bool)>,
    cells: FxHashMap<[i32; 2], Cell>,
}

/// This many cells are as wide as sight. With more of them fewer distances are looked at and an object is in more lists.
const CELLS_IN_REACH: i32 = 3;

/// Cells whose sets are empty stay, with their memory, until there are this many cells.
const CELLS_KEPT: usize = 4_096;

/// All grids, and the objects visible by name.
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
        Filter {
            grids: grids.iter().map(Grid::new).collect(),
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
                let cell = self.grids[usize::from(grid)].cell_at(*world.position_m(object));
                self.grids[usize::from(grid)].list(cell, object);
                Listed::Around(grid, cell)
            }
        };
    }

    pub(super) fn remove(&mut self, object: u32) {
        if let Some(owner) = self.owners[object as usize].take() {
            take(&mut self.owned, owner, object);
        }
        match std::mem::replace(&mut self.listed[object as usize], Listed::Nowhere) {
            Listed::Nowhere => {}
            Listed::Around(grid, cell) => self.grids[usize::from(grid)].unlist(cell, object),
            Listed::Name(key) => take(&mut self.names, key, object),
        }
    }

    /// An object may have moved.
    pub(super) fn touch(&mut self, world: &World, object: u32) {
        let Listed::Around(number, former) = self.listed[object as usize] else { return };
        let grid = &mut self.grids[usize::from(number)];
        let present = grid.cell_at(*world.position_m(object));
        if present != former {
            grid.unlist(former, object);
            grid.list(present, object);
            self.listed[object as usize] = Listed::Around(number, present);
        }
    }

    /// Puts what a connection sees into `seen`, which has room for all objects.
    pub(super) fn see(&self, world: &World, viewer: &Viewer, seen: &mut Bits) {
        seen.clear();
        if let Some(viewpoint_m) = viewer.viewpoint_m {
            for (number, grid) in (0..).zip(&self.grids) {
                let Some(cell) = grid.cells.get(&grid.cell_at(viewpoint_m)) else { continue };
                let reach = world.reach(number);
                let is_near = |object: &u32| {
                    reach.distance2(world.position_m(*object), &viewpoint_m) <= reach.enter_m * reach.enter_m
                };
                seen.unite(&cell.surely);
                cell.perhaps.iter().filter(is_near).for_each(|object| seen.insert(object));
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
    fn new(options: &GridOptions) -> Grid {
        let reach_m = options.rings.last().map_or(1.0, |ring| ring.radius_m as f32);
        let cell_m = reach_m / CELLS_IN_REACH as f32;
        // Heights are not in the cells, so where they count only the distance knows.
        let is_flat = options.shape.layers == Layers::Single;
        let offsets = -CELLS_IN_REACH - 1..=CELLS_IN_REACH + 1;
        let all = offsets.clone().flat_map(|x| offsets.clone().map(move |y| [x, y]));
        let within = |offset: [i32; 2], more: i32| {
            let [x, y] = offset.map(|axis| (axis.abs() + more).max(0));
            x * x + y * y <= CELLS_IN_REACH * CELLS_IN_REACH
        };
        // The nearest corners of two cells are one cell less apart than the cells are, and the farthest one more.
        let seen = all.filter(|&offset| within(offset, -1));
        let around = seen.map(|offset| (offset, is_flat && within(offset, 1))).collect();
        Grid { cell_m, around, cells: FxHashMap::default() }
    }

    fn cell_at(&self, position_m: [f32; 3]) -> [i32; 2] {
        [0, 1].map(|axis| (position_m[axis] / self.cell_m).floor() as i32)
    }

    fn list(&mut self, [x, y]: [i32; 2], object: u32) {
        for &([dx, dy], is_sure) in &self.around {
            let cell = self.cells.entry([x.saturating_add(dx), y.saturating_add(dy)]).or_default();
            add(if is_sure { &mut cell.surely } else { &mut cell.perhaps }, object);
            cell.objects += 1;
        }
    }

    fn unlist(&mut self, [x, y]: [i32; 2], object: u32) {
        for &([dx, dy], is_sure) in &self.around {
            let key = [x.saturating_add(dx), y.saturating_add(dy)];
            let Some(cell) = self.cells.get_mut(&key) else { continue };
            if is_sure {
                cell.surely.remove(object)
            } else {
                cell.perhaps.remove(object)
            }
            cell.objects -= 1;
            if cell.objects == 0 && self.cells.len() > CELLS_KEPT {
                self.cells.remove(&key);
            }
        }
    }
}

fn add(bits: &mut Bits, object: u32) {
    bits.grow(object as usize + 1);
    bits.insert(object);
}

/// Takes an object out of a set, which goes when it is empty.
fn take<K: std::hash::Hash + Eq>(sets: &mut FxHashMap<K, Bits>, key: K, object: u32) {
    if let Some(bits) = sets.get_mut(&key) {
        bits.remove(object);
        if bits.is_empty() {
            sets.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng::Ring;

    fn grid() -> Grid {
        let rings = vec![Ring { radius_m: 30.0, interval_ticks: 1 }];
        Grid::new(&GridOptions { rings, ..GridOptions::new(throng::Up::Z) })
    }

    #[test]
    fn the_sets_of_a_cell_agree_with_the_distances() {
        let grid = grid();
        let place = |random: &mut fastrand::Rng| [0; 3].map(|_| random.f32() * 200.0 - 100.0);
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let (object, viewer) = (place(&mut random), place(&mut random));
            let distance_m = (object[0] - viewer[0]).hypot(object[1] - viewer[1]);
            let [from, to] = [grid.cell_at(object), grid.cell_at(viewer)];
            let offset = [to[0] - from[0], to[1] - from[1]];
            match grid.around.iter().find(|(around, _)| *around == offset) {
                Some((_, true)) => assert!(distance_m <= 30.001, "{object:?} {viewer:?}"),
                Some((_, false)) => {}
                None => assert!(distance_m >= 29.999, "{object:?} {viewer:?}"),
            }
        }
    }

    #[test]
    fn empty_cells_are_kept_but_not_more_than_so_many() {
        let mut grid = grid();
        grid.list([0, 0], 70);
        grid.unlist([0, 0], 70);
        assert_eq!(grid.cells.len(), grid.around.len());
        assert!(grid.cells.values().all(|cell| cell.objects == 0 && cell.surely.is_empty() && cell.perhaps.is_empty()));
        for place in 0..1_000 {
            grid.list([place * 100, 0], 3);
            grid.unlist([place * 100, 0], 3);
        }
        assert!(grid.cells.len() <= CELLS_KEPT, "{}", grid.cells.len());
        assert!(grid.cells.len() + 2 * grid.around.len() > CELLS_KEPT, "{}", grid.cells.len());
    }
}
