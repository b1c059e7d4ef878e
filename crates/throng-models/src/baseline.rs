//! Positions that a client is known to hold, so that later ones can be written as the distance from them.
//!
//! ```text
//! server                                               client, for each object
//! position P, kept in slot 0  ---------------------->  slot 0 = P
//!                             <-- acknowledged
//! distance from slot 0        ---------------------->  slot 0 + distance
//! distance from slot 0, kept in slot 1 ------------->  slot 1 = slot 0 + distance
//! ```
//!
//! A position is counted from a slot only after a packet that filled it is known to have arrived, and a slot is filled
//! again only after the other one is in use. A late record is older than the record that has filled its slot since, and
//! so older than the position that the client has.

use throng::Tick;

/// A slot is filled again after this many ticks.
const KEEP_INTERVAL_TICKS: u32 = 16;

/// The part of a record about baselines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Basis {
    /// The position is counted from here, which is in `slot`.
    pub(crate) from: Option<[i32; 3]>,
    /// Which slot it is counted from; if from none, which one it is kept in.
    pub(crate) slot: u8,
    /// The position is to be kept: in the other slot than that which it is counted from.
    pub(crate) is_kept: bool,
}

impl Basis {
    /// The slot that the position is kept in.
    pub(crate) fn kept_slot(&self) -> u8 {
        if self.from.is_some() { 1 - self.slot } else { self.slot }
    }
}

/// A channel's baseline.
#[derive(Clone, Copy, Debug, Default)]
struct Baseline {
    /// Which use of the channel's number.
    serial: u32,
    /// The position that the client is known to hold, and its slot.
    held: Option<([i32; 3], u8)>,
    /// A position on its way, and the number of the record that brings it.
    on_its_way: Option<([i32; 3], u64)>,
    /// When the last one was sent.
    kept_at: Tick,
}

/// The baselines of all channels of one connection.
#[derive(Debug, Default)]
pub(crate) struct Baselines {
    /// By channel number.
    channels: Vec<Baseline>,
}

impl Baselines {
    /// The record for the next position of a channel, if there is one.
    pub(crate) fn basis(&mut self, channel: u32, serial: u32, now: Tick) -> Option<Basis> {
        if self.channels.len() <= channel as usize {
            self.channels.resize(channel as usize + 1, Baseline::default());
        }
        let baseline = &mut self.channels[channel as usize];
        if baseline.serial != serial {
            *baseline = Baseline { serial, ..Baseline::default() };
        }
        let is_old = baseline.held.is_none() || now.since(baseline.kept_at) >= KEEP_INTERVAL_TICKS;
        let is_kept = is_old && baseline.on_its_way.is_none();
        match baseline.held {
            Some((from, slot)) => Some(Basis { from: Some(from), slot, is_kept }),
            None => is_kept.then_some(Basis { from: None, slot: 0, is_kept }),
        }
    }

    /// A record has been written that keeps a position.
    pub(crate) fn sent(&mut self, channel: u32, record: u64, position: [i32; 3], now: Tick) {
        let baseline = &mut self.channels[channel as usize];
        (baseline.on_its_way, baseline.kept_at) = (Some((position, record)), now);
    }

    /// The fate of a record is known.
    pub(crate) fn settled(&mut self, channel: u32, serial: u32, record: u64, has_arrived: bool) {
        let Some(baseline) = self.channels.get_mut(channel as usize) else { return };
        let is_awaited = baseline.on_its_way.is_some_and(|(_, awaited)| awaited == record);
        if baseline.serial != serial || !is_awaited {
            return;
        }
        let position = baseline.on_its_way.take().map(|(position, _)| position);
        if has_arrived {
            let slot = baseline.held.map_or(0, |(_, slot)| 1 - slot);
            baseline.held = position.map(|position| (position, slot));
        }
    }
}

/// A client's record of one object.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slots([Option<(Tick, [i32; 3])>; 2]);

impl Slots {
    /// The content of a slot: when it was written, and the position.
    pub(crate) fn get(&self, slot: u8) -> Option<(Tick, [i32; 3])> {
        self.0[usize::from(slot & 1)]
    }

    /// Fills a slot, unless it was filled by something newer.
    pub(crate) fn keep(&mut self, slot: u8, tick: Tick, position: [i32; 3]) {
        let place = &mut self.0[usize::from(slot & 1)];
        if place.is_none_or(|(present, _)| tick.is_newer_than(present)) {
            *place = Some((tick, position));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_counted_from_only_after_it_has_arrived() {
        let mut baselines = Baselines::default();
        let first = baselines.basis(3, 1, Tick(10)).unwrap();
        assert_eq!((first, first.kept_slot()), (Basis { from: None, slot: 0, is_kept: true }, 0));
        baselines.sent(3, 7, [1, 2, 3], Tick(10));
        assert_eq!(baselines.basis(3, 1, Tick(11)), None, "it is on its way");
        baselines.settled(3, 1, 6, true);
        assert_eq!(baselines.basis(3, 1, Tick(11)), None, "another record has arrived");
        baselines.settled(3, 1, 7, true);
        let second = Basis { from: Some([1, 2, 3]), slot: 0, is_kept: false };
        assert_eq!(baselines.basis(3, 1, Tick(12)), Some(second));
        let third = baselines.basis(3, 1, Tick(26)).unwrap();
        assert_eq!((third.from, third.is_kept, third.kept_slot()), (Some([1, 2, 3]), true, 1));
        assert_eq!(baselines.basis(3, 2, Tick(27)), Some(first), "another use of the number begins anew");
    }

    #[test]
    fn what_was_lost_is_sent_again_into_the_same_slot() {
        let mut baselines = Baselines::default();
        baselines.basis(0, 1, Tick(0));
        baselines.sent(0, 0, [5; 3], Tick(0));
        baselines.settled(0, 1, 0, false);
        let again = baselines.basis(0, 1, Tick(1)).unwrap();
        assert!(again.is_kept && again.kept_slot() == 0);
    }

    #[test]
    fn what_arrives_late_fills_no_slot() {
        let mut slots = Slots::default();
        slots.keep(1, Tick(9), [9; 3]);
        slots.keep(1, Tick(8), [8; 3]);
        assert_eq!((slots.get(0), slots.get(1)), (None, Some((Tick(9), [9; 3]))));
    }
}
