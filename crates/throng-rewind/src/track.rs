//! The stored transforms of one thing with their ticks (its *places*), oldest first, and those around a moment.
//!
//! ```text
//! tick      96     100    104    108    112   114        stored every 4th tick, in a ring;
//!            o------o------o-|    o------o-----h          h: the head, the newest place between two stored ones
//!                            110 (teleport)
//! moment      ^ 97.5: between two           ^ 115: after the newest, held
//!                           ^ 109: after the last place before a break, held until the break; never mixed across it
//! ```

use crate::geometry::{Rotation, Transform, Vector, length, mixed, mixed_rotation, sub};
use crate::moment::Moment;
use crate::verdict::Flags;
use throng_wire::Tick;

/// The place has no successor to which it could be mixed.
const OPEN: u64 = u64::MAX;

/// How a thing's places are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cadence {
    pub(crate) every_ticks: u32,
    /// A power of two.
    pub(crate) places: usize,
    pub(crate) gaps: Gaps,
}

/// The meaning of ticks without a place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gaps {
    /// The thing did not move. It is recorded only when it moves.
    Rest,
    /// After more than `max_ticks`, or a step of more than `max_step_m`, nothing is known of the way between.
    Break { max_ticks: u32, max_step_m: f64 },
}

/// A stored transform with its tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) tick: u64,
    /// If the way to the next place is broken: the tick up to which the thing is held here. Otherwise [`OPEN`].
    pub(crate) until: u64,
    pub(crate) transform: Transform,
    /// No part of the thing is farther than this from the position, in metres.
    pub(crate) reach_m: f32,
}

/// Where the data that belong to a place have to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) slot: usize,
    /// The head was stored too: its data have to be copied from the head's slot to this one, before anything else.
    pub(crate) promoted: Option<usize>,
    /// A break was found between the last place and this one.
    pub(crate) is_break: bool,
}

/// The places around a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) before: usize,
    /// Equal to `before` if the thing is held.
    pub(crate) after: usize,
    /// Of the way from the one to the other: 0 to 1.
    pub(crate) part: f64,
    pub(crate) flags: Flags,
}

#[derive(Clone, Debug)]
pub(crate) struct Track {
    cadence: Cadence,
    /// The ring, and behind it one slot for the head.
    places: Box<[Place]>,
    /// Places stored since the beginning.
    stored: u64,
    len: usize,
    has_head: bool,
    /// Whether older places than the oldest one were overwritten.
    is_cut: bool,
    /// The newest break; 0 without one.
    last_break: u64,
}

impl Track {
    pub(crate) fn new(cadence: Cadence) -> Track {
        debug_assert!(cadence.places.is_power_of_two() && cadence.every_ticks > 0);
        let nowhere = Place { tick: 0, until: OPEN, transform: Transform::at([0.0; 3]), reach_m: 0.0 };
        Track {
            cadence,
            places: vec![nowhere; cadence.places + 1].into_boxed_slice(),
            stored: 0,
            len: 0,
            has_head: false,
            is_cut: false,
            last_break: 0,
        }
    }

    /// The slots that exist: those of the ring and the one of the head.
    pub(crate) fn slots(cadence: Cadence) -> usize {
        cadence.places + 1
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.places)
    }

    #[inline]
    pub(crate) fn place(&self, slot: usize) -> &Place {
        &self.places[slot]
    }

    pub(crate) fn set_reach(&mut self, slot: usize, reach_m: f32) {
        self.places[slot].reach_m = reach_m;
    }

    /// The slot of the `index`-th place, the oldest first, the head last.
    #[inline]
    fn slot(&self, index: usize) -> usize {
        if index == self.len {
            return self.cadence.places;
        }
        (self.stored as usize).wrapping_sub(self.len - index) & (self.cadence.places - 1)
    }

    fn count(&self) -> usize {
        self.len + usize::from(self.has_head)
    }

    /// The slots of all places, oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.count()).map(|index| self.slot(index))
    }

    /// The newest place.
    pub(crate) fn newest(&self) -> Option<usize> {
        self.count().checked_sub(1).map(|index| self.slot(index))
    }

    /// The newest place of the ring.
    pub(crate) fn newest_stored(&self) -> Option<usize> {
        self.len.checked_sub(1).map(|index| self.slot(index))
    }

    /// Whether a place at `tick` would be stored, and not only be the head.
    pub(crate) fn is_due(&self, tick: Tick) -> bool {
        self.newest_stored().is_none_or(|slot| {
            let place = &self.places[slot];
            place.until != OPEN || tick.0.saturating_sub(place.tick) >= u64::from(self.cadence.every_ticks)
        })
    }

    /// Whether a place at `tick` would come after all others.
    pub(crate) fn accepts(&self, tick: Tick) -> bool {
        let Some(slot) = self.newest() else { return true };
        let newest = &self.places[slot];
        // At the tick of a break there are two places: the last of the old way and the first of the new one.
        if newest.until == OPEN { tick.0 > newest.tick } else { tick.0 >= newest.until }
    }

    /// Takes a place that [`Track::accepts`].
    pub(crate) fn record(&mut self, tick: Tick, transform: Transform, reach_m: f32) -> Written {
        let (mut promoted, mut is_break) = (None, false);
        if let Some(newest) = self.newest().map(|slot| self.places[slot]).filter(|newest| newest.until == OPEN) {
            let ticks = tick.0 - newest.tick;
            match self.cadence.gaps {
                Gaps::Rest if ticks > u64::from(self.cadence.every_ticks) => {
                    promoted = self.promote();
                    self.push(Place { tick: tick.0 - 1, ..newest });
                }
                Gaps::Rest => {}
                Gaps::Break { max_ticks, max_step_m } => {
                    let step_m = length(sub(transform.position_m, newest.transform.position_m));
                    is_break = ticks > u64::from(max_ticks) || step_m > max_step_m;
                    if is_break {
                        promoted = self.break_at(tick);
                    }
                }
            }
        }
        let place = Place { tick: tick.0, until: OPEN, transform, reach_m };
        let slot = if self.is_due(tick) {
            self.has_head = false;
            self.push(place)
        } else {
            self.has_head = true;
            self.places[self.cadence.places] = place;
            self.cadence.places
        };
        Written { slot, promoted, is_break }
    }

    /// Ends the way at `tick`: what comes later is not mixed with what was before. Returns the slot to which the head
    /// went, if there was one.
    pub(crate) fn break_at(&mut self, tick: Tick) -> Option<usize> {
        let promoted = self.promote();
        if let Some(slot) = self.newest_stored() {
            let newest = &mut self.places[slot];
            if newest.until == OPEN {
                newest.until = tick.0.max(newest.tick);
                self.last_break = self.last_break.max(newest.until);
            }
        }
        promoted
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        (self.stored, self.len, self.has_head, self.is_cut, self.last_break) = (0, 0, false, false, 0);
    }

    fn promote(&mut self) -> Option<usize> {
        if !self.has_head {
            return None;
        }
        self.has_head = false;
        Some(self.push(self.places[self.cadence.places]))
    }

    fn push(&mut self, place: Place) -> usize {
        let slot = self.stored as usize & (self.cadence.places - 1);
        self.is_cut |= self.len == self.cadence.places;
        self.len = (self.len + 1).min(self.cadence.places);
        self.stored += 1;
        self.places[slot] = place;
        slot
    }

    /// The places around a moment; `None` where the thing was not there.
    ///
    /// Nothing is extrapolated: after the newest place, and before a break, the thing is held where it was. Before the
    /// oldest place it was not there, unless older places were overwritten: then it is held at the oldest.
    #[inline]
    pub(crate) fn find(&self, moment: Moment) -> Option<Found> {
        let count = self.count();
        let (mut low, mut high) = (0, count);
        // Places are mostly stored at an even pace: then one look finds the one after the moment.
        if let Some(newest) = self.newest_stored() {
            let back = self.places[newest].tick.saturating_sub(moment.tick.0).div_ceil(self.cadence.every_ticks.into());
            let guess = self.len.saturating_sub(usize::try_from(back).unwrap_or(usize::MAX));
            let is_past = |index: usize| self.places[self.slot(index)].tick <= moment.tick.0;
            if (1..self.len).contains(&guess) && is_past(guess - 1) && !is_past(guess) {
                (low, high) = (guess, guess);
            }
        }
        while low < high {
            let middle = (low + high) / 2;
            if self.places[self.slot(middle)].tick <= moment.tick.0 { low = middle + 1 } else { high = middle }
        }
        let broken = if moment.tick.0 < self.last_break { Flags::DISCONTINUITY } else { Flags::NONE };
        let held = |slot: usize, flags: Flags| Found { before: slot, after: slot, part: 0.0, flags: flags | broken };
        let Some(index) = low.checked_sub(1) else {
            return (count > 0 && self.is_cut).then(|| held(self.slot(0), Flags::HISTORY_SHORT));
        };
        let slot = self.slot(index);
        let place = &self.places[slot];
        let past = (moment.tick.0 - place.tick) as f64 + f64::from(moment.fraction);
        if place.until != OPEN || low == count {
            let flags = if past > 0.0 { Flags::HELD } else { Flags::NONE };
            return (moment.tick.0 < place.until).then(|| held(slot, flags));
        }
        let after = self.slot(low);
        let span = (self.places[after].tick - place.tick) as f64;
        Some(Found { before: slot, after, part: past / span, flags: broken })
    }
}

/// The place between two places. Positions are mixed straight, rotations on the shorter way, and normalised.
#[inline]
pub(crate) fn between(before: &Transform, after: &Transform, part: f64) -> (Vector, Rotation) {
    let position = mixed(before.position_m, after.position_m, part);
    (position, mixed_rotation(before.rotation.map(f64::from), after.rotation.map(f64::from), part))
}
