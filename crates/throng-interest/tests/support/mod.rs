//! A sink that checks how it is called and keeps what a real one would.
#![allow(dead_code, unreachable_pub, reason = "shared by several test programs, none of which uses everything")]

use std::collections::BTreeMap;
use throng_interest::{CellId, Sink, Viewer};

/// Keeps every subscription and fails on an invalid call.
#[derive(Debug, Default)]
pub struct Ledger {
    pub held: BTreeMap<CellId, (u32, u8)>,
    pub enters: u32,
    pub changes: u32,
    pub leaves: u32,
    /// The last call of this update, to check the order of calls.
    last: Option<(bool, u8, CellId)>,
}

impl Ledger {
    /// Starts a new update and forgets the counts.
    pub fn start(&mut self) {
        (self.enters, self.changes, self.leaves, self.last) = (0, 0, 0, None);
    }

    pub fn calls(&self) -> u32 {
        self.enters + self.changes + self.leaves
    }

    /// Fails unless the viewer holds exactly the cells that the sink has.
    pub fn assert_agrees_with(&self, viewer: &Viewer) {
        let told: Vec<_> = self.held.iter().map(|(&cell, &(tag, ring))| (cell, tag, ring)).collect();
        let holds: Vec<_> = viewer.held().map(|held| (held.cell, held.tag, held.ring)).collect();
        assert_eq!(told, holds);
    }

    /// Cells come in order; those that are entered nearest ring first.
    fn called(&mut self, is_enter: bool, cell: CellId, ring: u8) {
        let now = Some((is_enter, ring, cell));
        assert!(self.last < now, "{now:?} was called after {:?}", self.last);
        self.last = now;
    }
}

impl Sink for Ledger {
    fn enter(&mut self, cell: CellId, ring: u8) -> u32 {
        self.called(true, cell, ring);
        self.enters += 1;
        let tag = (cell.x as u32).wrapping_mul(31).wrapping_add(cell.y as u32).wrapping_mul(31) ^ cell.z as u32;
        assert_eq!(self.held.insert(cell, (tag, ring)), None, "{cell} was entered twice");
        tag
    }

    fn change(&mut self, cell: CellId, tag: u32, ring: u8) {
        self.called(false, cell, 0);
        self.changes += 1;
        let held = self.held.get_mut(&cell).expect("a changed cell is held");
        assert_eq!(held.0, tag, "{cell} came back with another tag");
        assert_ne!(held.1, ring, "{cell} changed to the ring it had");
        held.1 = ring;
    }

    fn leave(&mut self, cell: CellId, tag: u32) {
        self.called(false, cell, 0);
        self.leaves += 1;
        assert_eq!(self.held.remove(&cell).expect("a left cell is held").0, tag);
    }
}
