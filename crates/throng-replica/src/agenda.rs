//! When which reader has to be planned: a timer wheel, so that a plan visits those that are due and nobody else.
//!
//! ```text
//!            now
//!             v
//!   slots: [ .. ][ 7, 12 ][   ][ 3 ][   ] ...        SLOTS of them, one tick each; later laps lie in the same slots
//!                 due       +1   +2
//! ```
//! A reader is listed in one slot at most; the readers of a slot are a linked list through a table of all readers, so the
//! wheel takes no memory but that table. A reader that is changed is touched, and listed anew before the next plan.

use throng_wire::Tick;

/// Ticks of one lap: about a second of the gateway's.
const SLOTS: usize = 1_024;

/// No tick at all.
const NEVER: Tick = Tick(u64::MAX);

/// No reader.
const NOBODY: u32 = u32::MAX;

/// The readers by the tick in which they are due.
#[derive(Debug)]
pub(crate) struct Agenda {
    slots: Vec<Slot>,
    /// By 64 slots, a bit for each: 0 where nobody is listed.
    in_use: [u64; SLOTS / 64],
    /// By reader.
    listings: Vec<Listing>,
    /// Readers whose time may have changed since the last plan, each once.
    touched: Vec<u32>,
    /// Slots up to this tick were visited.
    visited: Tick,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    first: u32,
    /// No reader of the slot is due earlier.
    earliest: Tick,
}

/// Where a reader is listed.
#[derive(Clone, Copy, Debug)]
struct Listing {
    /// [`NEVER`]: nowhere.
    at: Tick,
    before: u32,
    behind: u32,
    is_touched: bool,
}

const UNLISTED: Listing = Listing { at: NEVER, before: NOBODY, behind: NOBODY, is_touched: false };

impl Agenda {
    pub(crate) fn new(now: Tick) -> Agenda {
        let slots = vec![Slot { first: NOBODY, earliest: NEVER }; SLOTS];
        Agenda { slots, in_use: [0; SLOTS / 64], listings: Vec::new(), touched: Vec::new(), visited: now }
    }

    /// The time of a reader may have changed.
    pub(crate) fn touch(&mut self, reader: u32) {
        let index = reader as usize;
        if self.listings.len() <= index {
            self.listings.resize(index + 1, UNLISTED);
            // Room for all of them, so that no plan has to make it.
            self.touched.reserve(self.listings.len() - self.touched.len());
        }
        if !std::mem::replace(&mut self.listings[index].is_touched, true) {
            self.touched.push(reader);
        }
    }

    /// The readers that are due at `now`, in their order, in place of what `due` held. `next_plan` says when a reader
    /// has to be planned next, if ever.
    pub(crate) fn take_due(&mut self, now: Tick, next_plan: impl Fn(u32) -> Option<Tick>, due: &mut Vec<u32>) {
        due.clear();
        due.reserve(self.listings.len());
        let mut touched = std::mem::take(&mut self.touched);
        for reader in touched.drain(..) {
            self.listings[reader as usize].is_touched = false;
            self.unlist(reader);
            match next_plan(reader) {
                Some(at) if at <= now => due.push(reader),
                Some(at) => self.list(reader, at),
                None => {}
            }
        }
        self.touched = touched;
        let passed = now.0.saturating_sub(self.visited.0).min(SLOTS as u64);
        for tick in now.0 - passed + 1..=now.0 {
            self.visit(tick as usize % SLOTS, now, due);
        }
        self.visited = now;
        due.sort_unstable();
    }

    /// Takes the readers of a slot that are due.
    fn visit(&mut self, slot: usize, now: Tick, due: &mut Vec<u32>) {
        if self.slots[slot].earliest > now {
            return;
        }
        let (mut reader, mut earliest) = (self.slots[slot].first, NEVER);
        while reader != NOBODY {
            let Listing { at, behind, .. } = self.listings[reader as usize];
            if at <= now {
                self.unlist(reader);
                due.push(reader);
            } else {
                earliest = earliest.min(at);
            }
            reader = behind;
        }
        self.slots[slot].earliest = earliest;
        if earliest == NEVER {
            self.in_use[slot / 64] &= !(1 << (slot % 64));
        }
    }

    fn list(&mut self, reader: u32, at: Tick) {
        let index = at.0 as usize % SLOTS;
        self.in_use[index / 64] |= 1 << (index % 64);
        let slot = &mut self.slots[index];
        let behind = std::mem::replace(&mut slot.first, reader);
        slot.earliest = slot.earliest.min(at);
        if let Some(next) = self.listings.get_mut(behind as usize) {
            next.before = reader;
        }
        let listing = &mut self.listings[reader as usize];
        (listing.at, listing.before, listing.behind) = (at, NOBODY, behind);
    }

    fn unlist(&mut self, reader: u32) {
        let Listing { at, before, behind, .. } = self.listings[reader as usize];
        if at == NEVER {
            return;
        }
        match self.listings.get_mut(before as usize) {
            Some(former) => former.behind = behind,
            None => self.slots[at.0 as usize % SLOTS].first = behind,
        }
        if let Some(next) = self.listings.get_mut(behind as usize) {
            next.before = before;
        }
        self.listings[reader as usize].at = NEVER;
    }

    /// The first tick at which some reader is due.
    pub(crate) fn first(&self, next_plan: impl Fn(u32) -> Option<Tick>) -> Option<Tick> {
        let mut first = self.touched.iter().filter_map(|&reader| next_plan(reader)).min().unwrap_or(NEVER);
        let mut next = self.visited.0 + 1;
        while next <= self.visited.0 + SLOTS as u64 && next < first.0 {
            let slot = next as usize % SLOTS;
            // The slots from here to the end of its 64.
            let in_use = self.in_use[slot / 64] >> (slot % 64);
            if in_use & 1 == 0 {
                next += u64::from(in_use.trailing_zeros().min(64 - slot as u32 % 64));
                continue;
            }
            next += 1;
            let slot = self.slots[slot];
            if slot.earliest >= first {
                continue;
            }
            let mut reader = slot.first;
            while let Some(listing) = self.listings.get(reader as usize) {
                if !listing.is_touched {
                    first = first.min(listing.at);
                }
                reader = listing.behind;
            }
        }
        (first != NEVER).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn exactly_those_are_due_whose_time_has_come_however_often_it_changes() {
        throng_seeds::for_seeds(30, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut times: BTreeMap<u32, Option<Tick>> = BTreeMap::new();
            let mut agenda = Agenda::new(Tick(5));
            let mut now = Tick(5);
            let mut due = Vec::new();
            for _ in 0..600 {
                for _ in 0..random.usize(..8) {
                    let reader = random.u32(..40);
                    let far = if random.u8(..6) == 0 { 9_000 } else { 60 };
                    let at = (random.u8(..5) > 0).then(|| Tick(now.0 + random.u64(..far)));
                    times.insert(reader, at);
                    agenda.touch(reader);
                }
                let first = times.values().flatten().min().copied();
                assert_eq!(agenda.first(|reader| times[&reader]), first);
                now = Tick(now.0 + 1 + if random.u8(..20) == 0 { random.u64(..5_000) } else { random.u64(..9) });
                let is_due = |at: &Option<Tick>| at.is_some_and(|at| at <= now);
                let expected: Vec<u32> = times.iter().filter(|(_, at)| is_due(at)).map(|(&reader, _)| reader).collect();
                agenda.take_due(now, |reader| times[&reader], &mut due);
                assert_eq!(due, expected);
                for &reader in &due {
                    times.insert(reader, None);
                    agenda.touch(reader);
                }
            }
        });
    }
}
