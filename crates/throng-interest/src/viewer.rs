//! The cells that a viewer holds, and how a new set of wanted cells is merged into them.

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

/// A cell that a viewer holds. 20 bytes.
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
/// Memory: 20 bytes a cell and about 120 bytes around it. Nothing is allocated before the first update.
#[derive(Clone, Debug)]
pub struct Viewer {
    /// Positions for which, as the only ones, nothing changes.
    extent: Extent,
    /// In the order of cells, each cell once.
    held: Vec<Held>,
    /// Where the held cells were worked out for.
    viewpoints: SmallVec<[Viewpoint; 1]>,
    /// Whether `held` follows from `viewpoints` alone.
    settled: bool,
}

impl Viewer {
    /// A viewer that holds nothing and stands nowhere.
    pub fn new() -> Viewer {
        Viewer { extent: Extent::EMPTY, held: Vec::new(), viewpoints: SmallVec::new(), settled: false }
    }

    /// The held cells, in the order of cells.
    pub fn held(&self) -> &[Held] {
        &self.held
    }

    /// Offers the held cells whose tag is `tag` again, nearest ring first, to a function that may [enter](Sink::enter)
    /// them now: for sinks that could not when they were asked. Ends when `enter` gives `None`; returns whether it did.
    pub fn offer_again(&mut self, tag: u32, mut enter: impl FnMut(CellId, u8) -> Option<u32>) -> bool {
        let farthest = self.held.iter().filter(|held| held.tag == tag).map(|held| held.ring).max();
        for ring in 0..=farthest.unwrap_or_default() {
            for held in self.held.iter_mut().filter(|held| held.tag == tag && held.ring == ring) {
                match enter(held.cell, ring) {
                    Some(entered) => held.tag = entered,
                    None => return true,
                }
            }
        }
        false
    }

    /// The ring at which the viewer holds `cell`, if it does.
    pub fn ring_of(&self, cell: CellId) -> Option<u8> {
        let index = self.held.binary_search_by_key(&cell, |held| held.cell).ok()?;
        Some(self.held[index].ring)
    }

    /// Leaves every cell, in the order of cells, and forgets the position. Keeps its memory.
    pub fn clear(&mut self, sink: &mut impl Sink) {
        for held in self.held.drain(..) {
            sink.leave(held.cell, held.tag);
        }
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
        self.held.reserve_exact(cells.saturating_sub(self.held.len()));
    }

    /// Replaces what is held by what is wanted (in the order of cells, each cell once) and tells the sink.
    pub(crate) fn merge(&mut self, wanted: impl Iterator<Item = Wanted>, work: &mut MergeSpace, sink: &mut impl Sink) {
        work.next.clear();
        work.entered.clear();
        let mut held = self.held.as_slice();
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
        // Copied, not swapped: buffers that wander between viewers all grow to the size of the largest.
        self.held.clear();
        self.held.extend_from_slice(&work.next);
    }
}

impl Default for Viewer {
    fn default() -> Viewer {
        Viewer::new()
    }
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
