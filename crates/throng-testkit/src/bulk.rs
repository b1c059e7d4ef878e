//! Modelled TCP downloads: what a session meets at a bottleneck that it does not have to itself.
//!
//! Endless data, a receiver that acknowledges every segment selectively, and a sender whose acknowledgements clock it out.
//! Reno is RFC 5681 with the recovery of RFC 6675 (one reduction per window), Cubic is RFC 9438. Neither has pacing or
//! HyStart: what they do to a queue is what the plain standards do.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use throng_net::Bottleneck;
use throng_wire::Time;

/// A segment on the wire is 1,500 bytes long: so much, and the 28 that the bottleneck adds.
const SEGMENT_BYTES: usize = 1_472;
/// The initial window of RFC 6928, in segments.
const INITIAL_WINDOW: f64 = 10.0;
/// A segment is lost when this many sent after it have been acknowledged (RFC 5681 section 3.2).
const DUPLICATES: usize = 3;
/// A retransmission timeout is at least this above the round trip, as Linux has it.
const MIN_VARIANCE_US: f64 = 200_000.0;

/// How a download reacts to loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// RFC 5681.
    Reno,
    /// RFC 9438, with C = 0.4 and a multiplicative decrease of 0.7.
    Cubic,
}

/// One download through a [`Bottleneck`].
#[derive(Debug)]
pub struct Bulk {
    control: Control,
    bottleneck: Bottleneck,
    base_round_trip_us: u64,
    cwnd: f64,
    ssthresh: f64,
    cubic: Cubic,
    next_segment: u64,
    /// Sent and neither acknowledged nor given up.
    outstanding: BTreeSet<u64>,
    /// Acknowledgements under way: time, segment, and when the segment was sent.
    acknowledgements: BinaryHeap<Reverse<(Time, u64, Time)>>,
    /// Losses of segments before this one belong to a reduction that has been made.
    recovery_until: u64,
    smoothed_us: f64,
    variance_us: f64,
    timeout_at: Option<Time>,
    /// Timeouts in a row, each of which doubles the next (RFC 6298 section 5.5).
    timeouts: u32,
    acknowledged: u64,
    reductions: u64,
}

#[derive(Debug, Default)]
struct Cubic {
    epoch: Option<Time>,
    w_max: f64,
    k: f64,
    w_est: f64,
    cwnd_prior: f64,
}

const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;
const CUBIC_ALPHA: f64 = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);

impl Bulk {
    /// A download that begins with [`Bulk::advance`].
    pub fn new(control: Control, bottleneck: &Bottleneck, base_round_trip_us: u64) -> Bulk {
        Bulk {
            control,
            bottleneck: bottleneck.clone(),
            base_round_trip_us,
            cwnd: INITIAL_WINDOW,
            ssthresh: f64::INFINITY,
            cubic: Cubic::default(),
            next_segment: 0,
            outstanding: BTreeSet::new(),
            acknowledgements: BinaryHeap::new(),
            recovery_until: 0,
            smoothed_us: 0.0,
            variance_us: 0.0,
            timeout_at: None,
            timeouts: 0,
            acknowledged: 0,
            reductions: 0,
        }
    }

    /// Bytes that arrived, with headers.
    pub fn received_bytes(&self) -> u64 {
        self.acknowledged * (SEGMENT_BYTES as u64 + 28)
    }

    /// How often the window was reduced.
    pub fn reductions(&self) -> u64 {
        self.reductions
    }

    /// When it next has something to do.
    pub fn next_due(&self) -> Option<Time> {
        let acknowledgement = self.acknowledgements.peek().map(|Reverse((at, ..))| *at);
        if self.next_segment == 0 { Some(Time(0)) } else { acknowledgement.into_iter().chain(self.timeout_at).min() }
    }

    /// Does what is due at `now`, which never falls.
    pub fn advance(&mut self, now: Time) {
        while let Some(&Reverse((at, segment, sent_at))) = self.acknowledgements.peek() {
            if at > now {
                break;
            }
            self.acknowledgements.pop();
            self.take(at, segment, at.micros_since(sent_at));
        }
        if self.timeout_at.is_some_and(|at| at <= now) {
            self.time_out(now);
        }
        self.send(now);
    }

    fn take(&mut self, now: Time, segment: u64, round_trip_us: u64) {
        if !self.outstanding.remove(&segment) {
            return;
        }
        self.acknowledged += 1;
        self.measure(round_trip_us as f64);
        self.timeouts = 0;
        self.timeout_at = Some(Time(now.0 + self.timeout_us()));
        let older: Vec<u64> = self.outstanding.range(..segment).copied().collect();
        // The path keeps the order, so that every gap is a loss; it shows after three later ones.
        let lost: Vec<u64> = older.into_iter().filter(|older| segment - older >= DUPLICATES as u64).collect();
        for segment in &lost {
            self.outstanding.remove(segment);
        }
        if lost.iter().any(|&segment| segment >= self.recovery_until) {
            self.recovery_until = self.next_segment;
            self.reduce();
        } else if segment >= self.recovery_until {
            self.grow(now);
        }
    }

    fn measure(&mut self, sample_us: f64) {
        if self.smoothed_us == 0.0 {
            (self.smoothed_us, self.variance_us) = (sample_us, sample_us / 2.0);
        } else {
            self.variance_us += ((self.smoothed_us - sample_us).abs() - self.variance_us) / 4.0;
            self.smoothed_us += (sample_us - self.smoothed_us) / 8.0;
        }
    }

    fn timeout_us(&self) -> u64 {
        (self.smoothed_us + (4.0 * self.variance_us).max(MIN_VARIANCE_US)) as u64
    }

    fn grow(&mut self, now: Time) {
        if self.cwnd < self.ssthresh {
            self.cwnd += 1.0;
            return;
        }
        match self.control {
            Control::Reno => self.cwnd += 1.0 / self.cwnd,
            Control::Cubic => self.cwnd = self.cubic.grown(now, self.cwnd, self.smoothed_us / 1e6),
        }
    }

    fn reduce(&mut self) {
        self.reductions += 1;
        let factor = match self.control {
            Control::Reno => 0.5,
            Control::Cubic => CUBIC_BETA,
        };
        self.cubic.note_reduction(self.cwnd);
        self.cwnd = (self.cwnd * factor).max(2.0);
        self.ssthresh = self.cwnd;
    }

    fn time_out(&mut self, now: Time) {
        self.outstanding.clear();
        self.acknowledgements.clear();
        self.reduce();
        self.cwnd = 1.0;
        self.recovery_until = self.next_segment;
        self.timeouts = (self.timeouts + 1).min(8);
        self.timeout_at = Some(Time(now.0 + (self.timeout_us() << self.timeouts)));
    }

    fn send(&mut self, now: Time) {
        while (self.outstanding.len() as f64) < self.cwnd.floor() {
            let segment = self.next_segment;
            self.next_segment += 1;
            self.outstanding.insert(segment);
            if let Some(left) = self.bottleneck.pass(now, SEGMENT_BYTES) {
                self.acknowledgements.push(Reverse((Time(left.0 + self.base_round_trip_us), segment, now)));
            }
            if self.timeout_at.is_none() {
                self.timeout_at = Some(Time(now.0 + 1_000_000));
            }
        }
    }
}

impl Cubic {
    /// RFC 9438 section 4.6 and 4.7.
    fn note_reduction(&mut self, cwnd: f64) {
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + CUBIC_BETA) / 2.0 } else { cwnd };
        self.cwnd_prior = cwnd;
        self.epoch = None;
    }

    /// The window after one more acknowledgement (RFC 9438 sections 4.2 to 4.5).
    fn grown(&mut self, now: Time, cwnd: f64, round_trip_s: f64) -> f64 {
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.k = ((self.w_max - cwnd).max(0.0) / CUBIC_C).cbrt();
            self.w_max = self.w_max.max(cwnd);
            self.w_est = cwnd;
            now
        });
        let alpha = if self.w_est < self.cwnd_prior { CUBIC_ALPHA } else { 1.0 };
        self.w_est += alpha / cwnd;
        let at = |t: f64| CUBIC_C * (t - self.k).powi(3) + self.w_max;
        let t = now.micros_since(epoch) as f64 / 1e6;
        if at(t) < self.w_est {
            return self.w_est.max(cwnd);
        }
        let target = at(t + round_trip_s).clamp(cwnd, 1.5 * cwnd);
        cwnd + (target - cwnd) / cwnd
    }
}

#[cfg(test)]
mod tests {
    use throng_net::RateLimit;

    use super::*;

    /// Runs a download alone. Returns its share of the rate after the first half, and the reductions in all.
    fn alone(control: Control, queue_bytes: u64, seconds: u64) -> (f64, u64) {
        let rate = RateLimit { bytes_per_s: 1_000_000, queue_bytes };
        let bottleneck = Bottleneck::new(rate, None).unwrap();
        let mut bulk = Bulk::new(control, &bottleneck, 50_000);
        let mut half = 0;
        while let Some(due) = bulk.next_due().filter(|due| *due < Time::from_secs(seconds)) {
            bulk.advance(due);
            if due < Time::from_secs(seconds / 2) {
                half = bulk.received_bytes();
            }
        }
        ((bulk.received_bytes() - half) as f64 / (seconds as f64 / 2.0) / 1e6, bulk.reductions())
    }

    #[test]
    fn a_download_alone_fills_a_pipe_with_a_buffer_of_its_round_trip() {
        for control in [Control::Reno, Control::Cubic] {
            let (share, reductions) = alone(control, 50_000, 60);
            assert!((0.95..=1.0).contains(&share), "{control:?}: {share}");
            assert!(reductions > 5, "{control:?}: {reductions}");
        }
    }

    #[test]
    fn without_a_buffer_reno_gets_three_quarters_and_cubic_more() {
        let (reno, cubic) = (alone(Control::Reno, 6_000, 120).0, alone(Control::Cubic, 6_000, 120).0);
        assert!((0.70..0.88).contains(&reno), "{reno}");
        assert!((0.78..0.95).contains(&cubic), "{cubic}");
    }

    #[test]
    fn the_sawtooth_of_reno_has_the_period_that_its_window_says() {
        // A window of 33 segments of bandwidth and 33 of buffer: from 33 to 66 takes 33 round trips of 50 to 100 ms.
        let (_, reductions) = alone(Control::Reno, 50_000, 250);
        assert!((80..130).contains(&reductions), "{reductions}");
    }
}
