//! The ticks that are turns of a channel, and the ticks at which frames begin.
//!
//! All subscriptions of one interval have their turns in the same ticks, so that they share frames. Each
//! channel shifts its turns by a phase of its own: see [`ChannelKey::phase`](crate::ChannelKey).
//!
//! **A subscription can use every frame that begins at or before its own point.** Receiving a change twice does no
//! harm, because a field keeps the newest tick. So a channel does not need a frame for every possible point of a
//! subscription. A subscription that is late, for lack of budget, after a loss, or because its interval has changed,
//! gets a frame that begins at a point of a lattice: the newest multiple of 1, 4, 8, 16 or 32 ticks that is not after
//! its own point. How coarse depends on how late it is, so that it receives less than a quarter more than it has
//! missed. Subscriptions that are a little late get exactly the missed changes: they are readers of near objects, and
//! lack bytes.
//!
//! ```text
//! late by      1 to 15       16 to 31     32 to 63     64 to 127     128 and more
//! multiple     1             4            8            16            32
//! frames       1 each        4 or 5       4 or 5       4 or 5        one for 32 ticks
//! ```
//!
//! Subscriptions under the same conditions are late by about the same time. So with any number of readers, a channel has
//! five frames in a tick if the budget is short, and eight if a tenth of the packets is lost too. A
//! subscription that keeps up with its class is at the last turn of the class, and receives nothing twice.

use throng_wire::Tick;

/// The coarsest points of the lattice are 2^5 ticks apart: for subscriptions that are 2^7 ticks late or more.
const COARSEST_LOG2: u32 = 5;

/// A subscription that is late by less gets exactly the missed changes.
const EXACT_TICKS: u32 = 16;

/// The next tick after `now` at which a channel of this phase has its turn for an interval.
pub(crate) fn next_turn(now: Tick, interval_ticks: u16, phase: u32) -> Tick {
    now.after(u32::from(interval_ticks.max(1)) - past_turn(now, interval_ticks, phase))
}

/// The last turn at or before `now`.
pub(crate) fn last_turn(now: Tick, interval_ticks: u16, phase: u32) -> Tick {
    now.before(past_turn(now, interval_ticks, phase))
}

/// Ticks from the last turn at or before `now` to `now`.
fn past_turn(now: Tick, interval_ticks: u16, phase: u32) -> u32 {
    let interval = u64::from(interval_ticks.max(1));
    let offset = (u64::from(phase) * interval) >> 32;
    ((now.0 + offset) % interval) as u32
}

/// Whether a subscription at `since` that has its turn at `now` stands where everybody of its class stands.
#[inline]
pub(crate) fn is_in_step(since: Tick, interval_ticks: u16, now: Tick) -> bool {
    since.0 + u64::from(interval_ticks) == now.0
}

/// Where the frame begins that a subscription at `since` is given at `now`: at `since` or before it.
pub(crate) fn beginning(since: Tick, interval_ticks: u16, now: Tick, phase: u32) -> Tick {
    if is_in_step(since, interval_ticks, now) {
        return since;
    }
    let late_ticks = now.since(since);
    let newest = now.before(1);
    let own = newest.before(past_turn(newest, interval_ticks, phase));
    let step_log2 = if late_ticks < EXACT_TICKS { 0 } else { (late_ticks.ilog2() - 2).min(COARSEST_LOG2) };
    // From channel to channel, the lattice is shifted, so that not all of them pass a point of it in the same tick.
    let number = since.short().0.wrapping_add(phase >> (32 - COARSEST_LOG2));
    let point = since.before(number & ((1 << step_log2) - 1));
    match own.is_newer_than(since) {
        true => point,
        false => point.newest(own),
    }
}

/// `begins`, but not before `rush` if that is at or before `since`: what came in masses is not told twice.
pub(crate) fn not_before(begins: Tick, rush: Tick, since: Tick) -> Tick {
    if rush.is_newer_than(since) { begins } else { begins.newest(rush) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn turns_of_an_interval_fall_on_the_same_ticks() {
        for phase in [0, 1, 1 << 31, u32::MAX, 0x9E37_79B9] {
            for interval in [1, 2, 5, 30, 64, 300] {
                let first = next_turn(Tick(99), interval, phase);
                for now in 100..1_000 {
                    let turn = next_turn(Tick(now), interval, phase);
                    assert!(turn.since(Tick(now)) >= 1 && turn.since(Tick(now)) <= u32::from(interval));
                    assert_eq!(turn.since(first) % u32::from(interval), 0);
                }
            }
        }
    }

    #[test]
    fn a_frame_begins_at_or_before_the_point_of_its_reader_and_not_far_before() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let (now, phase) = (Tick(rng.u64(1_000..1 << 40)), rng.u32(..));
            let late = rng.u32(1..400);
            let since = now.before(late);
            let begins = beginning(since, rng.u16(1..100), now, phase);
            assert!(!begins.is_newer_than(since), "{begins:?} after {since:?}");
            let before = since.since(begins);
            assert!(before < 32 && 4 * before <= late, "{late} ticks late, and told of {before} more");
        }
    }

    #[test]
    fn a_subscription_that_keeps_up_receives_nothing_twice() {
        for interval in [1, 3, 6, 30, 100] {
            let mut turn = next_turn(Tick(5_000), interval, 0x1234_5678);
            for _ in 0..100 {
                let next = next_turn(turn, interval, 0x1234_5678);
                assert_eq!(beginning(turn, interval, next, 0x1234_5678), turn);
                turn = next;
            }
        }
    }

    #[test]
    fn however_many_late_readers_it_has_a_channel_has_few_frames() {
        for usually_late in [3, 6, 13, 30, 50] {
            let mut frames = 0;
            for now in 1_000..2_000 {
                let from = usually_late / 2..usually_late * 3 / 2 + 1;
                let readers = from.map(|late| beginning(Tick(now).before(late), 1, Tick(now), 0xABCD_EF01).0);
                frames += readers.collect::<BTreeSet<_>>().len();
            }
            assert!(frames <= 13_000, "{frames} frames in 1,000 ticks for readers who are about {usually_late} late");
        }
    }

    #[test]
    fn what_came_in_masses_is_not_told_twice() {
        let since = Tick(1_000);
        assert_eq!(not_before(Tick(960), Tick(990), since), Tick(990));
        assert_eq!(not_before(Tick(960), since, since), since);
        assert_eq!(not_before(Tick(960), Tick(950), since), Tick(960));
        assert_eq!(not_before(Tick(960), Tick(1_001), since), Tick(960), "it is still to be told");
    }

    #[test]
    fn late_readers_share_as_many_frames_as_the_table_says() {
        for (late, most) in [(1..16, 15), (16..32, 5), (32..64, 5), (64..128, 5), (128..160, 2)] {
            for now in 1_000..1_100 {
                let begins = late.clone().map(|late| beginning(Tick(now).before(late), 1, Tick(now), 0xABCD_EF01).0);
                let frames = begins.collect::<BTreeSet<_>>().len();
                assert!(frames <= most, "{frames} frames for readers who are {late:?} ticks late");
            }
        }
    }
}
