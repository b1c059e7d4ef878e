//! The cells that a viewer holds, and how a new set of wanted cells is merged into them.

use std::cmp::Ordering;

use crate::grid::CellId;
use crate::stamp::{Extent, NO_RING, Viewpoint};
use smallvec::SmallVec;

/// Receives the results of a viewer's movement: subscribes, changes the rate, unsubscribes.
///
/// Within one update all `change` and `leave` calls come before the first `enter`. The first group comes in the order of
/// cells, the second in the order of rings, and within a ring in that of cells: a sink of bounded size never holds more
/// than the larger of the two sets, and has to refuse the farthest.
pub trait Sink {
    /// The viewer now wants `cell`, at `ring`. The returned tag is kept and handed back with every later call about
    /// this cell: typically the slot of the subscription.
    fn enter(&mut self, cell: CellId, ring: u8) -> u32;
    /// The viewer keeps `cell`, now at `ring`.
    fn change(&mut self, cell: CellId, tag: u32, ring: u8);
    /// The viewer does not want `cell` any more.
    fn leave(&mut self, cell: CellId, tag: u32);
}

/// A cell that a viewer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The cell.
    pub cell: CellId,
    /// The tag that [`Sink::enter`] returned for it.
    pub tag: u32,
    /// The ring at which it is held.
    pub ring: u8,
}

/// The cells that one connection holds.
///
/// Memory: 8 bytes a cell and about 120 bytes around it; 20 bytes a cell if the cells lie in a box of more than 256 cells on a
/// side. Nothing is allocated before the first update.
#[derive(Clone, Debug)]
pub struct Viewer {
    /// Positions for which, as the only ones, nothing changes.
    extent: Extent,
    held: List,
    /// Where the held cells were worked out for.
    viewpoints: SmallVec<[Viewpoint; 1]>,
    /// Whether `held` follows from `viewpoints` alone.
    settled: bool,
}

impl Viewer {
    /// A viewer that holds nothing and stands nowhere.
    pub fn new() -> Viewer {
        Viewer { extent: Extent::EMPTY, held: List::default(), viewpoints: SmallVec::new(), settled: false }
    }

    /// The held cells, in the order of cells.
    pub fn held(&self) -> impl ExactSizeIterator<Item = Held> + '_ {
        (0..self.held.len()).map(|index| self.held.at(index))
    }

    /// The held cell with this number, if it is held.
    pub fn find(&self, cell: CellId) -> Option<Held> {
        let (mut first, mut end) = (0, self.held.len());
        while first < end {
            let middle = first + (end - first) / 2;
            let held = self.held.at(middle);
            match held.cell.cmp(&cell) {
                Ordering::Less => first = middle + 1,
                Ordering::Equal => return Some(held),
                Ordering::Greater => end = middle,
            }
        }
        None
    }

    /// Bytes of memory beyond the struct's own.
    pub fn heap_bytes(&self) -> usize {
        self.held.heap_bytes()
    }

    /// Offers the held cells whose tag is `tag` again, nearest ring first, to a function that may [enter](Sink::enter)
    /// them now: for sinks that could not when they were asked. Ends when `enter` gives `None`; returns whether it did.
    pub fn offer_again(&mut self, tag: u32, mut enter: impl FnMut(CellId, u8) -> Option<u32>) -> bool {
        let farthest = self.held().filter(|held| held.tag == tag).map(|held| held.ring).max();
        for ring in 0..=farthest.unwrap_or_default() {
            for index in 0..self.held.len() {
                let held = self.held.at(index);
                if held.tag != tag || held.ring != ring {
                    continue;
                }
                match enter(held.cell, ring) {
                    Some(entered) => self.held.set_tag(index, entered),
                    None => return true,
                }
            }
        }
        false
    }

    /// The ring at which the viewer holds `cell`, if it does.
    pub fn ring_of(&self, cell: CellId) -> Option<u8> {
        Some(self.find(cell)?.ring)
    }

    /// Leaves every cell, in the order of cells, and forgets the position. Keeps its memory.
    pub fn clear(&mut self, sink: &mut impl Sink) {
        for held in self.held() {
            sink.leave(held.cell, held.tag);
        }
        self.held.replace(&[]);
        self.settle(&[], Extent::EMPTY, false);
    }

    /// The box in which an update to a single position changes nothing, in metres: its low corner belongs to it, its high one
    /// does not. Empty if no such box is known.
    pub fn calm_box(&self) -> [[f64; 3]; 2] {
        self.extent.corners()
    }

    /// Whether an update to this single position is known to change nothing.
    #[inline]
    pub(crate) fn is_calm_at(&self, position: [f64; 3]) -> bool {
        self.extent.contains(position)
    }

    /// Whether the held cells were worked out for exactly these viewpoints.
    pub(crate) fn stands_at(&self, viewpoints: &[Viewpoint]) -> bool {
        self.settled && self.viewpoints.as_slice() == viewpoints
    }

    /// Notes where the held cells have been worked out for, in which box a single position changes nothing, and whether
    /// no other wishes were involved.
    pub(crate) fn settle(&mut self, viewpoints: &[Viewpoint], extent: Extent, settled: bool) {
        self.extent = extent;
        self.viewpoints.clear();
        self.viewpoints.extend_from_slice(viewpoints);
        self.settled = settled;
    }

    /// Makes room for `cells` held cells, so that no later update has to.
    pub(crate) fn reserve(&mut self, cells: usize) {
        self.held.reserve(cells);
    }

    /// Replaces what is held by what is wanted (in the order of cells, each cell once) and tells the sink.
    pub(crate) fn merge(&mut self, wanted: impl Iterator<Item = Wanted>, work: &mut MergeSpace, sink: &mut impl Sink) {
        work.next.clear();
        work.entered.clear();
        let mut before = std::mem::take(&mut work.before);
        before.clear();
        before.extend(self.held());
        let mut held = before.as_slice();
        for want in wanted {
            // Most cells are held already, so equality is asked first.
            while let [had, rest @ ..] = held
                && had.cell != want.cell
                && had.cell < want.cell
            {
                sink.leave(had.cell, had.tag);
                held = rest;
            }
            match held {
                [had, rest @ ..] if had.cell == want.cell => {
                    work.keep(*had, want, sink);
                    held = rest;
                }
                _ if want.enter != NO_RING => work.add(want),
                _ => {}
            }
        }
        for gone in held {
            sink.leave(gone.cell, gone.tag);
        }
        work.entered.sort_unstable_by_key(|&index| (work.next[index as usize].ring, index));
        for &index in &work.entered {
            let new = &mut work.next[index as usize];
            new.tag = sink.enter(new.cell, new.ring);
        }
        work.before = before;
        self.held.replace(&work.next);
    }
}

impl Default for Viewer {
    fn default() -> Viewer {
        Viewer::new()
    }
}

/// The cells that a viewer holds, in the order of cells, each cell once.
#[derive(Clone, Debug)]
enum List {
    /// Counted from a corner of the box in which all of them lie.
    Near {
        from: CellId,
        cells: Vec<Near>,
    },
    Wide(Vec<Held>),
}

/// A cell that is so far from the corner that the list counts from, along each axis. A connection has a hundred of them.
#[derive(Clone, Copy, Debug)]
struct Near {
    offset: [u8; 3],
    ring: u8,
    tag: u32,
}

const _: () = assert!(size_of::<Near>() == 8);

impl Default for List {
    fn default() -> List {
        List::Near { from: CellId::default(), cells: Vec::new() }
    }
}

impl List {
    fn len(&self) -> usize {
        match self {
            List::Near { cells, .. } => cells.len(),
            List::Wide(cells) => cells.len(),
        }
    }

    #[inline]
    fn at(&self, index: usize) -> Held {
        match self {
            List::Wide(cells) => cells[index],
            List::Near { from, cells } => {
                let Near { offset: [x, y, z], ring, tag } = cells[index];
                let cell = CellId { x: from.x + i32::from(x), y: from.y + i32::from(y), z: from.z + i32::from(z) };
                Held { cell, tag, ring }
            }
        }
    }

    fn set_tag(&mut self, index: usize, to: u32) {
        match self {
            List::Near { cells, .. } => cells[index].tag = to,
            List::Wide(cells) => cells[index].tag = to,
        }
    }

    /// Makes room for so many cells that lie near each other.
    fn reserve(&mut self, count: usize) {
        if let List::Near { cells, .. } = self {
            cells.reserve_exact(count.saturating_sub(cells.len()));
        }
    }

    /// Copied, not swapped: buffers that wander between viewers all grow to the size of the largest.
    fn replace(&mut self, by: &[Held]) {
        let corner = corner_of(by);
        match (&mut *self, corner) {
            (List::Near { from, cells }, Some(corner)) => {
                cells.clear();
                cells.extend(by.iter().map(|held| near(held, corner)));
                *from = corner;
            }
            (List::Wide(cells), None) => {
                cells.clear();
                cells.extend_from_slice(by);
            }
            (List::Wide(_), Some(from)) => {
                *self = List::Near { from, cells: by.iter().map(|held| near(held, from)).collect() };
            }
            (List::Near { .. }, None) => *self = List::Wide(by.to_vec()),
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            List::Near { cells, .. } => cells.capacity() * size_of::<Near>(),
            List::Wide(cells) => cells.capacity() * size_of::<Held>(),
        }
    }
}

/// The lowest corner of the box around these cells, if the box has at most 256 cells on a side.
fn corner_of(cells: &[Held]) -> Option<CellId> {
    let (mut low, mut high) = ([i32::MAX; 3], [i32::MIN; 3]);
    for &Held { cell: CellId { x, y, z }, .. } in cells {
        for (axis, along) in [x, y, z].into_iter().enumerate() {
            (low[axis], high[axis]) = (low[axis].min(along), high[axis].max(along));
        }
    }
    let is_near = |axis: usize| high[axis].wrapping_sub(low[axis]) as u32 <= u32::from(u8::MAX);
    let [x, y, z] = if cells.is_empty() { [0; 3] } else { low };
    (cells.is_empty() || (0..3).all(is_near)).then_some(CellId { x, y, z })
}

fn near(held: &Held, from: CellId) -> Near {
    let CellId { x, y, z } = held.cell;
    let offset = [x - from.x, y - from.y, z - from.z].map(|along| along as u8);
    Near { offset, ring: held.ring, tag: held.tag }
}

/// A cell that is wanted: entered at `enter` (or not at all), and once held not let go nearer than `hold`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) cell: CellId,
    pub(crate) enter: u8,
    pub(crate) hold: u8,
}

impl Wanted {
    /// Two wishes for the same cell: the nearer ring wins.
    fn union(self, other: Wanted) -> Wanted {
        Wanted { cell: self.cell, enter: self.enter.min(other.enter), hold: self.hold.min(other.hold) }
    }
}

/// Buffers for [`Viewer::merge`].
#[derive(Debug, Default)]
pub(crate) struct MergeSpace {
    before: Vec<Held>,
    next: Vec<Held>,
    /// Which of `next` are new.
    entered: Vec<u32>,
}

impl MergeSpace {
    #[inline]
    fn keep(&mut self, had: Held, want: Wanted, sink: &mut impl Sink) {
        let ring = had.ring.clamp(want.hold, want.enter);
        if ring != had.ring {
            sink.change(had.cell, had.tag, ring);
        }
        self.next.push(Held { ring, ..had });
    }

    #[inline]
    fn add(&mut self, want: Wanted) {
        self.entered.push(self.next.len() as u32);
        self.next.push(Held { cell: want.cell, tag: 0, ring: want.enter });
    }
}

/// Buffers for updates, shared by all viewers that one thread updates. They grow to what the largest update needs.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) merge: MergeSpace,
    pub(crate) union: Union,
}

impl Scratch {
    /// Buffers of no size yet.
    pub fn new() -> Scratch {
        Scratch::default()
    }
}

/// A growing union of sorted wish lists.
#[derive(Debug, Default)]
pub(crate) struct Union {
    wanted: Vec<Wanted>,
    spare: Vec<Wanted>,
    pub(crate) unsorted: Vec<Wanted>,
}

impl Union {
    pub(crate) fn clear(&mut self) {
        self.wanted.clear();
        self.unsorted.clear();
    }

    /// The union so far, in the order of cells, each cell once.
    pub(crate) fn wanted(&self) -> &[Wanted] {
        &self.wanted
    }

    /// Adds a list that is in the order of cells.
    pub(crate) fn add_sorted(&mut self, list: impl Iterator<Item = Wanted>) {
        self.spare.clear();
        let mut before = self.wanted.iter().copied().peekable();
        for want in list {
            while let Some(earlier) = before.next_if(|earlier| earlier.cell < want.cell) {
                self.spare.push(earlier);
            }
            let same = before.next_if(|same| same.cell == want.cell);
            self.spare.push(same.map_or(want, |same| same.union(want)));
        }
        self.spare.extend(before);
        std::mem::swap(&mut self.wanted, &mut self.spare);
    }

    /// Adds what was pushed to `unsorted`, in any order and any number of times.
    pub(crate) fn add_unsorted(&mut self) {
        let mut list = std::mem::take(&mut self.unsorted);
        list.sort_unstable_by_key(|want| want.cell);
        list.dedup_by(|later, earlier| {
            let same = later.cell == earlier.cell;
            if same {
                *earlier = earlier.union(*later);
            }
            same
        });
        self.add_sorted(list.drain(..));
        self.unsorted = list;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_holds_the_same_cells_wherever_they_lie() {
        throng_seeds::for_seeds(50, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut list = List::default();
            for side in [3, 255, 256, 1 << 30, 200, 1] {
                let corner: [i32; 3] = std::array::from_fn(|_| random.i32(i32::MIN..i32::MAX - side));
                let mut cells: Vec<CellId> = Vec::new();
                for _ in 0..random.usize(0..40) {
                    let [x, y, z] = corner.map(|low| low + random.i32(0..=side));
                    cells.push(CellId { x, y, z });
                }
                cells.sort_unstable();
                cells.dedup();
                let held: Vec<Held> =
                    cells.into_iter().map(|cell| Held { cell, tag: random.u32(..), ring: random.u8(..) }).collect();
                list.replace(&held);
                let viewer = Viewer { held: list, ..Viewer::new() };
                assert_eq!(viewer.held().collect::<Vec<_>>(), held);
                assert!(held.iter().all(|had| viewer.find(had.cell) == Some(*had)));
                let absent = CellId { x: i32::MAX, y: i32::MAX, z: i32::MAX };
                assert_eq!(viewer.find(absent), None);
                if side < 256 {
                    assert!(matches!(viewer.held, List::Near { .. }), "a box of {side} cells and one more on a side");
                }
                list = viewer.held;
            }
        });
    }
}
