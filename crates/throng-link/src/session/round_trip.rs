//! The round trip estimate, after RFC 6298 and RFC 9002 section 5.

use std::time::Duration;

use throng_wire::Time;

use super::windowed_min::WindowedMin;

/// Assumed before the first sample (RFC 9002 section 6.2.2).
const INITIAL_MICROS: u32 = 333_000;
/// The span over which the smallest round trip is remembered: paths change.
const MIN_SPAN_MICROS: u64 = 10_000_000;
/// The loss timer never runs shorter than this.
const GRANULARITY_MICROS: u32 = 1_000;
/// No packet waits longer for its verdict.
const MAX_VERDICT_MICROS: u64 = 5_000_000;

/// The estimate.
#[derive(Debug)]
pub(super) struct RoundTrip {
    latest: u32,
    smoothed: u32,
    variance: u32,
    smallest: WindowedMin,
    has_sample: bool,
    /// The longest that the ends held packets lately, beside the round trip; fades.
    held: u32,
    /// It was measured before the session began.
    is_assumed: bool,
}

impl RoundTrip {
    pub(super) fn new() -> RoundTrip {
        RoundTrip {
            latest: INITIAL_MICROS,
            smoothed: INITIAL_MICROS,
            variance: INITIAL_MICROS / 2,
            smallest: WindowedMin::new(MIN_SPAN_MICROS, u32::MAX),
            has_sample: false,
            held: 0,
            is_assumed: false,
        }
    }

    /// Enters a round trip of `micros`, of which the peer says it spent `delay_micros` itself. Returns the sample as
    /// it counts.
    pub(super) fn sample(&mut self, now: Time, micros: u64, delay_micros: u64) -> u32 {
        let raw = micros.min(60_000_000) as u32;
        // RFC 9002 distrusts a delay that brings the sample below the smallest round trip. Here a peer that answers once
        // per tick delays every single acknowledgement, so it is believed: a peer that lies about it shortens our
        // patience with its own packets, within the rate that it is allowed anyway.
        let micros = u64::from(raw).saturating_sub(delay_micros).max(u64::from(GRANULARITY_MICROS).min(micros)) as u32;
        self.smallest.sample(now.0, micros);
        self.latest = micros;
        if self.has_sample {
            let off = self.smoothed.abs_diff(micros);
            self.variance = (self.variance / 4) * 3 + off / 4;
            self.smoothed = (self.smoothed / 8) * 7 + micros / 8;
        } else {
            self.has_sample = true;
            self.smoothed = micros;
            self.variance = micros / 2;
        }
        micros
    }

    /// Takes `micros` for the round trip until there is a sample, if that is shorter than what is assumed anyway: it may
    /// hold waiting and repetitions.
    pub(super) fn assume(&mut self, micros: u64) {
        if !self.has_sample {
            let micros = micros.clamp(u64::from(GRANULARITY_MICROS), u64::from(INITIAL_MICROS)) as u32;
            (self.latest, self.smoothed, self.variance) = (micros, micros, micros / 2);
            self.is_assumed = true;
        }
    }

    pub(super) fn smoothed_micros(&self) -> u32 {
        self.smoothed
    }

    /// The smallest of the last 10 to 20 seconds.
    pub(super) fn smallest_micros(&self) -> u32 {
        if self.has_sample { self.smallest.value() } else { INITIAL_MICROS }
    }

    pub(super) fn has_sample(&self) -> bool {
        self.has_sample
    }

    pub(super) fn variance_micros(&self) -> u32 {
        self.variance
    }

    /// How long a packet may be out once a newer one has been acknowledged (RFC 9002 section 6.1.2).
    pub(super) fn loss_delay_micros(&self) -> u64 {
        let longest = u64::from(self.smoothed.max(self.latest).max(GRANULARITY_MICROS));
        (longest + longest / 8).min(MAX_VERDICT_MICROS)
    }

    /// Notes for how long the ends together held a packet and its acknowledgement: the peer until its next tick, and we
    /// until ours.
    pub(super) fn note_held(&mut self, micros: u64) {
        self.held = (self.held - self.held / 16).max(micros.min(MAX_VERDICT_MICROS) as u32);
    }

    /// How long an acknowledgement may take before a probe is sent (RFC 9002 section 6.2.1).
    pub(super) fn probe_micros(&self, ack_delay: Duration) -> u64 {
        let delay = (ack_delay.as_micros() as u64).max(u64::from(self.held));
        let micros =
            u64::from(self.smoothed) + u64::from(self.variance.saturating_mul(4).max(GRANULARITY_MICROS)) + delay;
        micros.min(MAX_VERDICT_MICROS)
    }

    /// How long a packet may be out in any case: three probe timeouts (RFC 9002 section 7.6.1). Less than one until the
    /// first acknowledgement, if the round trip was measured before: what is under way then opens the connection, and the
    /// player waits for it.
    pub(super) fn give_up_micros(&self, ack_delay: Duration) -> u64 {
        if self.is_assumed && !self.has_sample {
            return u64::from(self.smoothed) + 2 * u64::from(self.variance) + ack_delay.as_micros() as u64;
        }
        (3 * self.probe_micros(ack_delay)).min(MAX_VERDICT_MICROS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_settles_on_a_steady_round_trip() {
        let mut rtt = RoundTrip::new();
        for i in 0..100 {
            rtt.sample(Time::from_millis(i * 10), 60_000, 10_000);
        }
        assert!((49_000..52_000).contains(&rtt.smoothed_micros()), "{}", rtt.smoothed_micros());
        assert!(rtt.variance_micros() < 2_000);
    }

    #[test]
    fn a_probe_waits_for_the_ticks_of_both_ends() {
        let mut rtt = RoundTrip::new();
        for i in 0..100 {
            rtt.sample(Time::from_millis(i * 10), 50_000, 0);
        }
        let quick = rtt.probe_micros(Duration::from_millis(50));
        assert!((100_000..110_000).contains(&quick), "{quick}");
        rtt.note_held(300_000);
        assert_eq!(rtt.probe_micros(Duration::from_millis(50)), quick + 250_000);
        for _ in 0..100 {
            rtt.note_held(20_000);
        }
        assert_eq!(rtt.probe_micros(Duration::from_millis(50)), quick);
    }

    #[test]
    fn a_claimed_delay_never_makes_the_round_trip_vanish() {
        let mut rtt = RoundTrip::new();
        assert_eq!(rtt.sample(Time(0), 50_000, 90_000), GRANULARITY_MICROS);
        assert_eq!(rtt.sample(Time(0), 300, 0), 300);
    }
}
