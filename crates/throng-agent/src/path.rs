//! Paths: A* over the cells of a grid (Hart, Nilsson and Raphael 1968), a bounded number of nodes per call.
//!
//! Costs are whole millimetres and the estimate is the straight distance, rounded down. So the path that is found is a
//! cheapest one over the links, and each cell is expanded once.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use glam::Vec3;

use crate::navigation::{CellId, Navigation, Reach, length_mm};

/// How far ahead a straight way is tried, in cells.
const AHEAD_CELLS: usize = 48;
/// Room for a path of so many cells is there from the beginning.
const TRAIL_CELLS: usize = 1 << 13;
/// Borders that such a way may cross.
const CROSSED_MAX: usize = 3 * AHEAD_CELLS;

/// How far a search has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It needs another call of [`PathFinder::advance`].
    Searching,
    /// [`PathFinder::path`] gives the path.
    Found,
    /// There is no way, or no search was begun.
    Unreachable,
}

/// A way: points with straight lines between them. Keep it and have it filled again; it then does not allocate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path {
    points: Vec<Vec3>,
    cost_mm: u32,
}

impl Path {
    /// A path that has room for so many points.
    pub fn with_capacity(points: usize) -> Path {
        Path { points: Vec::with_capacity(points), cost_mm: 0 }
    }

    /// Where the feet go, from the point of the first cell to the point of the last.
    pub fn points(&self) -> &[Vec3] {
        &self.points
    }

    /// The sum of the costs of the links of the cheapest way over the cells, before it was straightened.
    pub fn cost_mm(&self) -> u32 {
        self.cost_mm
    }

    /// The length of the straightened way in metres.
    pub fn length_m(&self) -> f32 {
        self.points.windows(2).map(|pair| pair[0].distance(pair[1])).sum()
    }

    /// Forgets the points and keeps the memory.
    pub fn clear(&mut self) {
        self.points.clear();
        self.cost_mm = 0;
    }
}

/// Searches paths, one at a time. It keeps 12 bytes for each cell of the grid; one for each thread or match is enough.
#[derive(Clone, Debug)]
pub struct PathFinder {
    navigation: Navigation,
    nodes: Vec<Node>,
    /// Nodes with another mark are of an earlier search.
    mark: u32,
    queue: BinaryHeap<Reverse<Entry>>,
    from: CellId,
    to: CellId,
    progress: Progress,
    expanded: u64,
    trail: Vec<CellId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    mark: u32,
    cost_mm: u32,
    before: u32,
}

/// Ordered by the cost of a way through the cell, then by what is left of it: of equal ways the one that is nearer to the
/// goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    total_mm: u32,
    left_mm: u32,
    cell: CellId,
}

impl PathFinder {
    /// A finder for a grid.
    pub fn new(navigation: &Navigation) -> PathFinder {
        PathFinder {
            navigation: navigation.clone(),
            nodes: vec![Node::default(); navigation.cell_count()],
            mark: 0,
            queue: BinaryHeap::with_capacity(navigation.cell_count() / 4 + 64),
            from: CellId(0),
            to: CellId(0),
            progress: Progress::Unreachable,
            expanded: 0,
            trail: Vec::with_capacity(navigation.cell_count().min(TRAIL_CELLS)),
        }
    }

    /// Begins a search; an earlier one is given up. Says [`Progress::Unreachable`] at once for nearly all goals that are
    /// ([`Navigation::reach`]).
    pub fn begin(&mut self, from: CellId, to: CellId) -> Progress {
        (self.from, self.to) = (from, to);
        self.queue.clear();
        self.progress = Progress::Unreachable;
        if self.navigation.reach(from, to) != Reach::No {
            self.mark = self.mark.wrapping_add(1);
            if self.mark == 0 {
                // Marks begin again: no node of long ago may look new.
                self.nodes.fill(Node::default());
                self.mark = 1;
            }
            self.progress = Progress::Searching;
            self.improve(from, 0, from);
        }
        self.progress
    }

    /// Goes on with the search, by at most `nodes_max` cells.
    pub fn advance(&mut self, nodes_max: u32) -> Progress {
        let mut left = nodes_max;
        while self.progress == Progress::Searching && left > 0 {
            let Some(Reverse(Entry { total_mm, left_mm, cell })) = self.queue.pop() else {
                self.progress = Progress::Unreachable;
                break;
            };
            let cost_mm = self.nodes[cell.0 as usize].cost_mm;
            if total_mm != cost_mm.saturating_add(left_mm) {
                continue; // A better way to this cell was found since.
            }
            if cell == self.to {
                self.progress = Progress::Found;
                break;
            }
            self.expand(cell, cost_mm);
            self.expanded += 1;
            left -= 1;
        }
        self.progress
    }

    /// Searches to the end. At most all cells of the grid are expanded.
    pub fn find(&mut self, from: CellId, to: CellId) -> Progress {
        self.begin(from, to);
        self.advance(u32::MAX)
    }

    /// The state of the search.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// How many cells were expanded since the finder was made.
    pub fn expanded(&self) -> u64 {
        self.expanded
    }

    /// Writes the path that was found, straightened: a body can walk each line without turning. Clears `path` if none was
    /// found.
    pub fn path(&mut self, path: &mut Path) {
        path.clear();
        if self.progress != Progress::Found {
            return;
        }
        self.trace();
        path.cost_mm = self.nodes[self.to.0 as usize].cost_mm;
        let mut at = 0;
        path.points.push(self.navigation.point(self.from));
        while at + 1 < self.trail.len() {
            at = self.straight_from(at);
            path.points.push(self.navigation.point(self.trail[at]));
        }
    }

    /// The cells of the path that was found, before it was straightened. Empty before [`PathFinder::path`].
    pub fn cells(&self) -> &[CellId] {
        &self.trail
    }

    fn expand(&mut self, cell: CellId, cost_mm: u32) {
        let lowest = self.navigation.part(self.to);
        for direction in 0..8 {
            if let Some(link) = self.navigation.link_towards(cell, direction)
                && self.navigation.part(link.to) >= lowest
            {
                self.improve(link.to, cost_mm.saturating_add(link.cost_mm), cell);
            }
        }
    }

    fn improve(&mut self, cell: CellId, cost_mm: u32, before: CellId) {
        let node = &mut self.nodes[cell.0 as usize];
        if node.mark == self.mark && node.cost_mm <= cost_mm {
            return;
        }
        *node = Node { mark: self.mark, cost_mm, before: before.0 };
        let left_mm = length_mm(self.navigation.point(cell), self.navigation.point(self.to)) as u32;
        self.queue.push(Reverse(Entry { total_mm: cost_mm.saturating_add(left_mm), left_mm, cell }));
    }

    fn trace(&mut self) {
        self.trail.clear();
        let mut cell = self.to;
        self.trail.push(cell);
        while cell != self.from {
            cell = CellId(self.nodes[cell.0 as usize].before);
            self.trail.push(cell);
        }
        self.trail.reverse();
    }

    /// The place in the trail of the farthest cell to which a straight way leads from the one at `at`. Looks on until the
    /// first to which none leads.
    fn straight_from(&self, at: usize) -> usize {
        let is_straight =
            |place: &usize| self.navigation.is_open_between(self.trail[at], self.trail[*place], CROSSED_MAX);
        let last = self.trail.len() - 1;
        let farther = (at + 2..=last.min(at + AHEAD_CELLS)).take_while(is_straight).last();
        farther.unwrap_or(at + 1)
    }
}
