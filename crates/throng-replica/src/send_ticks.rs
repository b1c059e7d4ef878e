//! The ticks in which a connection is sent state.

use throng_wire::Tick;

/// Every `interval`-th tick. Connections with different offsets share the work of an interval evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SendTicks {
    interval: u16,
    /// Less than `interval`.
    offset: u16,
}

impl Default for SendTicks {
    /// Every tick.
    fn default() -> SendTicks {
        SendTicks { interval: 1, offset: 0 }
    }
}

impl SendTicks {
    /// The ticks whose numbers are `offset` more than a multiple of `interval`, which counts as 1 if it is 0.
    pub(crate) fn new(interval: u16, offset: u32) -> SendTicks {
        let interval = interval.max(1);
        SendTicks { interval, offset: (offset % u32::from(interval)) as u16 }
    }

    pub(crate) fn contains(self, tick: Tick) -> bool {
        self.from(tick) == tick
    }

    /// The first of the ticks that is not before `tick`.
    #[inline]
    pub(crate) fn from(self, tick: Tick) -> Tick {
        if self.interval == 1 {
            return tick;
        }
        let interval = u64::from(self.interval);
        let past = (tick.0 + (interval - u64::from(self.offset))) % interval;
        if past == 0 { tick } else { Tick(tick.0 + interval - past) }
    }

    /// The newest of these ticks that is not after `newest`.
    pub(crate) fn until(self, newest: Tick) -> Tick {
        let next = self.from(newest);
        if next == newest { next } else { next.before(self.interval.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_with_different_offsets_divide_the_ticks_among_them() {
        for interval in 1..=7 {
            for tick in (0..50).map(Tick) {
                let owners = (100..100 + u32::from(interval)).filter(|&offset| {
                    let ticks = SendTicks::new(interval, offset);
                    let next = ticks.from(tick);
                    assert!(ticks.contains(next) && next >= tick && next.since(tick) < u32::from(interval));
                    ticks.contains(tick)
                });
                assert_eq!(owners.count(), 1, "tick {tick:?} of {interval}");
            }
        }
        assert_eq!(SendTicks::new(0, 5), SendTicks::default());
    }
}
