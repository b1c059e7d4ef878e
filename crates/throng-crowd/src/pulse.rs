//! The server's clock, as bots on another machine know it.
//!
//! In each tick the server sends a *pulse* to one of its clients. It names times of the server's clock, and repeats which
//! input the server has read last. The bot knows when it sent that input, and when the pulse arrived:
//!
//! ```text
//! bots' clock      s  the input is sent                       a  the pulse arrives
//!                   \                                        /
//! server's clock     '--> the input is read: heard     sent --'
//!
//! offset := bots' clock - server's clock.      Nothing arrives before it was sent:   s - heard <= offset <= a - sent
//! ```
//!
//! The two bounds lie as far apart as the quickest way there and back takes, with the server's work in between. The offset
//! is taken from their middle, and half of their distance is its error: it contains the truth however unequal both ways
//! are. Clocks drift, so a bound loosens by 100 millionths of the time in which no
//! better one comes.

use std::collections::VecDeque;

use throng::{ConnectionId, MessageError, Replicate, Replication, Server, Tick, Time};

/// The most by which one clock runs faster than the other: 50 millionths, as quartz may, on either machine.
const DRIFT: f64 = 100e-6;
/// Both clocks count whole microseconds.
const ROUNDING_US: f64 = 1.0;
/// Ticks whose beginning is remembered.
const TICKS: usize = 512;
/// Inputs whose sending is remembered, by bot.
const INPUTS: usize = 64;
/// The lane of pulses: reliable, in any order.
const LANE: u8 = 1;

/// The message. Times are microseconds of the server's clock.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Pulse {
    /// The tick in which it is sent.
    #[replicate(integer)]
    pub tick: u64,
    /// When that tick began.
    #[replicate(integer)]
    pub began_us: u64,
    /// A moment before it was sent.
    #[replicate(integer)]
    pub sent_us: u64,
    /// The newest input of this client that has been read.
    #[replicate(integer)]
    pub heard_input: u32,
    /// A moment after that input had been read; 0 if there was none.
    #[replicate(integer)]
    pub heard_us: u64,
}

impl Pulse {
    /// Sends it with the packets of the tick.
    ///
    /// # Errors
    /// The connection takes no message now. The next pulse makes up for it.
    pub fn send(&self, server: &mut Server<impl Replication>, to: ConnectionId) -> Result<(), MessageError> {
        server.send(to, LANE, self)
    }
}

/// When a bot sent its last inputs.
#[derive(Clone, Debug, Default)]
pub struct SentInputs(VecDeque<(u32, Time)>);

impl SentInputs {
    /// An input with this number is sent now.
    pub fn note(&mut self, number: u32, now: Time) {
        if self.0.len() == INPUTS {
            self.0.pop_front();
        }
        self.0.push_back((number, now));
    }

    /// When the input with this number was sent; `None` if that was too long ago.
    pub fn time_of(&self, number: u32) -> Option<Time> {
        self.0.iter().find(|(known, _)| *known == number).map(|(_, time)| *time)
    }
}

/// A limit of the offset, valid at a moment of the bots' clock.
#[derive(Clone, Copy, Debug)]
struct Bound {
    at: Time,
    us: f64,
}

impl Bound {
    /// By how much it has loosened at `now`.
    fn slack_us(self, now: Time) -> f64 {
        now.0.abs_diff(self.at.0) as f64 * DRIFT
    }
}

/// A time on the bots' clock, or the length of time until then, with the error of both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// In microseconds.
    pub us: f64,
    /// The most by which it is wrong.
    pub error_us: f64,
}

/// How far one clock is ahead of another: two bounds, each from a message that cannot have arrived before it was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClockBounds {
    lower: Option<Bound>,
    upper: Option<Bound>,
}

impl ClockBounds {
    /// A question and its answer, by the moments at which the question was sent and the answer came here, and at which the question
    /// came and the answer was sent there. The [`offset`](Self::offset) is that clock minus this one. The quickest ways count.
    pub fn take_trip(&mut self, (sent, came): (Time, Time), (there, left): (Time, Time)) {
        self.bound_above(Bound { at: sent, us: difference(there.0, sent.0) });
        self.bound_below(Bound { at: came, us: difference(left.0, came.0) });
    }

    /// The offset as it is known at `now`; `None` before both bounds are.
    pub fn offset(&self, now: Time) -> Option<Estimate> {
        let (lower, upper) = (self.lower?, self.upper?);
        let (low, high) = (lower.us - lower.slack_us(now), upper.us + upper.slack_us(now));
        Some(Estimate { us: (low + high) / 2.0, error_us: (high - low) / 2.0 + ROUNDING_US })
    }

    fn bound_above(&mut self, new: Bound) {
        if self.upper.is_none_or(|old| new.us <= old.us + old.slack_us(new.at)) {
            self.upper = Some(new);
            self.lower = self.lower.filter(|lower| lower.us - lower.slack_us(new.at) <= new.us + ROUNDING_US);
        }
    }

    fn bound_below(&mut self, new: Bound) {
        if self.lower.is_none_or(|old| new.us >= old.us - old.slack_us(new.at)) {
            self.lower = Some(new);
            // Bounds that contradict each other: a clock was set, and only the new one holds.
            self.upper = self.upper.filter(|upper| upper.us + upper.slack_us(new.at) >= new.us - ROUNDING_US);
        }
    }
}

/// The server's clock and its ticks. All bots of a process share one.
#[derive(Clone, Debug, Default)]
pub struct RemoteClock {
    /// Of the bots' clock before the server's.
    bounds: ClockBounds,
    /// When ticks began on the server's clock, in the order of ticks.
    ticks: VecDeque<(Tick, u64)>,
}

impl RemoteClock {
    /// A pulse has arrived at a bot that has sent these inputs.
    pub fn take(&mut self, pulse: &Pulse, arrived: Time, sent: &SentInputs) {
        self.bounds.bound_above(Bound { at: arrived, us: difference(arrived.0, pulse.sent_us) });
        let asked = (pulse.heard_us > 0).then(|| sent.time_of(pulse.heard_input)).flatten();
        if let Some(asked) = asked {
            self.bounds.bound_below(Bound { at: asked, us: difference(asked.0, pulse.heard_us) });
        }
        let tick = Tick(pulse.tick);
        let place = self.ticks.partition_point(|(known, _)| tick.is_newer_than(*known));
        if self.ticks.get(place).is_none_or(|(known, _)| *known != tick) {
            self.ticks.insert(place, (tick, pulse.began_us));
        }
        if self.ticks.len() > TICKS {
            self.ticks.pop_front();
        }
    }

    /// The age of what the server sent in `tick`, at `now` of the bots' clock. `None` until enough is known.
    /// State from before all remembered ticks is at least as old as the oldest of them: the worst ages count.
    pub fn age(&self, tick: Tick, now: Time) -> Option<Estimate> {
        let offset = self.bounds.offset(now)?;
        let age_us = |place: usize| difference(now.0, self.ticks[place].1) - offset.us;
        let us = match self.ticks.binary_search_by(|(known, _)| known.cmp(&tick)) {
            Ok(place) => age_us(place),
            // A tick that began after that moment does not tell how old it was.
            Err(0) if !self.may_know(tick) => Some(age_us(0)).filter(|us| *us > 0.0)?,
            Err(_) => return None,
        };
        Some(Estimate { us, error_us: offset.error_us })
    }

    /// Whether [`age`](Self::age) can still become known for this tick.
    pub fn may_know(&self, tick: Tick) -> bool {
        self.ticks.len() < TICKS || self.ticks.front().is_none_or(|(oldest, _)| tick.is_newer_than(*oldest))
    }
}

fn difference(bots_us: u64, server_us: u64) -> f64 {
    i128::from(bots_us).saturating_sub(i128::from(server_us)) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK_US: u64 = 33_333;

    /// Two machines: the server's clock is true time.
    struct Machines {
        offset_us: f64,
        drift: f64,
        /// Shortest delays to the server and back.
        ways_us: [u64; 2],
        jitter_us: u64,
        rng: fastrand::Rng,
    }

    impl Machines {
        fn bots_time(&self, server_us: u64) -> Time {
            Time((server_us as f64 * (1.0 + self.drift) + self.offset_us).round() as u64)
        }

        fn way(&mut self, way: usize) -> u64 {
            self.ways_us[way] + self.rng.u64(0..=self.jitter_us)
        }

        /// Plays, and returns the largest error that was told after the first seconds.
        fn play(mut self, seconds: u64) -> f64 {
            let (mut clock, mut sent) = (RemoteClock::default(), SentInputs::default());
            let (mut largest_us, mut known) = (0f64, 0);
            let from_us = 1_000_000_000;
            for number in 0..seconds * 30 {
                let began_us = from_us + number * TICK_US;
                // An input at any moment of the tick before is read at the beginning of this one, if it has arrived.
                let asked_us = began_us - self.rng.u64(1..TICK_US);
                sent.note(number as u32, self.bots_time(asked_us));
                let arrived_us = asked_us + self.way(0);
                let read_us = began_us + 900;
                let heard_us = if arrived_us <= read_us { read_us } else { 0 };
                let sent_us = began_us + 3_000;
                let pulse = Pulse { tick: number, began_us, sent_us, heard_input: number as u32, heard_us };
                let at_us = sent_us + self.rng.u64(200..2_000) + self.way(1);
                clock.take(&pulse, self.bots_time(at_us), &sent);
                let look_us = at_us + self.rng.u64(0..50_000);
                let Some(age) = clock.age(Tick(number), self.bots_time(look_us)) else { continue };
                let truth_us = (look_us - began_us) as f64;
                // The bots' clock is the measure, and 50 millionths of a tenth of a second are 5 µs.
                assert!(
                    (age.us - truth_us).abs() <= age.error_us + truth_us * DRIFT,
                    "tick {number}: {truth_us} µs in truth, {} ± {} µs",
                    age.us,
                    age.error_us
                );
                known += 1;
                if number > 150 {
                    largest_us = largest_us.max(age.error_us);
                }
            }
            assert!(known > seconds * 25, "the age is known in {known} ticks only");
            largest_us
        }
    }

    #[test]
    fn the_stated_error_contains_the_truth_with_offset_drift_and_unequal_ways() {
        throng_seeds::for_seeds(20, |seed| {
            for offset_us in [0.0, 7_500_000_000.0, -400_000_000.0] {
                for drift in [0.0, 50e-6, -50e-6] {
                    for ways_us in [[40, 40], [20_000, 1_000], [500, 30_000]] {
                        let rng = fastrand::Rng::with_seed(seed);
                        let machines = Machines { offset_us, drift, ways_us, jitter_us: 4_000, rng };
                        let largest_us = machines.play(20);
                        // Half of the shortest way there and back, with the server's work of 3 ms, and what drift and
                        // chance add.
                        let least_us = (ways_us[0] + ways_us[1]) as f64 / 2.0;
                        assert!(
                            (least_us..least_us + 4_500.0).contains(&largest_us),
                            "{ways_us:?}: an error of {largest_us} µs is told"
                        );
                    }
                }
            }
        });
    }

    #[test]
    fn nothing_is_known_before_both_bounds_are() {
        let mut clock = RemoteClock::default();
        let mut sent = SentInputs::default();
        let pulse = Pulse { tick: 9, began_us: 1_000, sent_us: 2_000, heard_input: 4, heard_us: 1_500 };
        assert_eq!(clock.age(Tick(9), Time(99_000)), None);
        clock.take(&pulse, Time(50_000), &sent);
        assert_eq!(clock.age(Tick(9), Time(99_000)), None, "that input was never sent");
        sent.note(4, Time(40_000));
        clock.take(&pulse, Time(50_000), &sent);
        // Between 40,000 - 1,500 and 50,000 - 2,000.
        let age = clock.age(Tick(9), Time(50_000)).expect("both bounds");
        assert!((age.us - (50_000.0 - 1_000.0 - 43_250.0)).abs() < 1.0, "{age:?}");
        assert!((4_750.0..4_753.0).contains(&age.error_us), "{age:?}");
        assert_eq!(clock.age(Tick(8), Time(50_000)), None, "nobody told of that tick");
    }

    #[test]
    fn the_offset_of_a_clock_is_known_to_half_of_the_quickest_way_there_and_back() {
        throng_seeds::for_seeds(20, |seed| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let offset_us = rng.i64(-90_000_000..90_000_000);
            let there = |here_us: u64| Time(here_us.saturating_add_signed(offset_us));
            let (mut bounds, mut now_us, mut quickest_us) = (ClockBounds::default(), 1_000_000_000, u64::MAX);
            for _ in 0..20 {
                let [way, work, back] = [rng.u64(100..5_000), rng.u64(0..20_000), rng.u64(100..30_000)];
                quickest_us = quickest_us.min(way + back);
                let came_us = now_us + way + work + back;
                bounds.take_trip((Time(now_us), Time(came_us)), (there(now_us + way), there(now_us + way + work)));
                now_us = came_us + 10_000;
            }
            let offset = bounds.offset(Time(now_us)).expect("both bounds");
            assert!((offset.us - offset_us as f64).abs() <= offset.error_us, "{offset:?}, {offset_us} in truth");
            // The clocks may have drifted for a second.
            assert!(offset.error_us <= quickest_us as f64 / 2.0 + 150.0, "{offset:?}, {quickest_us}");
        });
    }

    #[test]
    fn a_clock_that_was_set_is_learnt_anew() {
        let (mut clock, mut sent) = (RemoteClock::default(), SentInputs::default());
        for (number, offset_us) in [(0, 5_000_000), (1, 5_000_000), (2, 9_000_000), (3, 9_000_000)] {
            let began_us = 1_000_000 + number * TICK_US;
            sent.note(number as u32, Time(began_us - 100 + offset_us));
            let pulse =
                Pulse { tick: number, began_us, sent_us: began_us, heard_input: number as u32, heard_us: began_us };
            clock.take(&pulse, Time(began_us + 100 + offset_us), &sent);
        }
        let offset = clock.bounds.offset(Time(11_000_000)).expect("both bounds");
        assert!((offset.us - 9_000_000.0).abs() <= offset.error_us && offset.error_us < 200.0, "{offset:?}");
    }

    #[test]
    fn ticks_are_remembered_in_their_order_and_the_oldest_are_forgotten() {
        let mut clock = RemoteClock::default();
        let told = |clock: &mut RemoteClock, tick: u64| {
            let pulse = Pulse { tick, began_us: tick * 10, ..Pulse::default() };
            clock.take(&pulse, Time(0), &SentInputs::default());
        };
        [3, 1, 2, 2, 7].into_iter().for_each(|tick| told(&mut clock, tick));
        assert_eq!(clock.ticks, [(Tick(1), 10), (Tick(2), 20), (Tick(3), 30), (Tick(7), 70)]);
        assert!(clock.may_know(Tick(0)));
        (10..10 + TICKS as u64).for_each(|tick| told(&mut clock, tick));
        assert_eq!((clock.ticks.len(), clock.ticks.front()), (TICKS, Some(&(Tick(10), 100))));
        assert!(!clock.may_know(Tick(9)) && clock.may_know(Tick(11)));
    }

    #[test]
    fn state_of_a_tick_that_is_forgotten_is_as_old_as_the_oldest_that_is_not() {
        let (mut clock, mut sent) = (RemoteClock::default(), SentInputs::default());
        let told = |clock: &mut RemoteClock, sent: &mut SentInputs, ticks: std::ops::Range<u64>| {
            for tick in ticks {
                let began_us = 1_000 + tick * TICK_US;
                sent.note(tick as u32, Time(began_us));
                let (heard_input, heard_us, sent_us) = (tick as u32, began_us, began_us);
                clock.take(&Pulse { tick, began_us, sent_us, heard_input, heard_us }, Time(began_us), sent);
            }
        };
        let time = |tick: u64| Time(1_000 + tick * TICK_US);
        told(&mut clock, &mut sent, 5..TICKS as u64);
        assert_eq!(clock.age(Tick(4), time(600)), None, "it may still be told");
        told(&mut clock, &mut sent, TICKS as u64..600);
        let age_ms = |tick, now| clock.age(Tick(tick), now).map(|age| (age.us / 1e3).round());
        let oldest = 600 - TICKS as u64;
        let of_oldest = age_ms(oldest, time(600));
        assert_eq!(of_oldest, Some((TICKS as f64 * TICK_US as f64 / 1e3).round()));
        assert_eq!([age_ms(oldest - 1, time(600)), age_ms(4, time(600))], [of_oldest; 2]);
        assert_eq!(age_ms(4, time(6)), None, "the look was before the oldest of them");
    }
}
