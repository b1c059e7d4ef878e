//! The price of measuring: what scopes and the collector cost.

use std::sync::Arc;
use std::time::Instant;

use throng_meter::Subsystem;

use crate::Clock;
use crate::recorder::{Line, Phase, Recorder};

/// Spans of the frames by which the price of a span is found.
const SPANS: u64 = 16;
/// Frames of a round.
const FRAMES: u64 = 64;
/// The fastest round counts: the others were disturbed.
const ROUNDS: u32 = 5;

/// Time that measuring took, over all frames of a [`Snapshot`](crate::Snapshot).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measuring {
    /// In the frames: their number and that of their scopes, each times its price. The price was measured on this machine
    /// when telemetry started.
    pub scopes_ns: u64,
    /// Of the collector, with the files that it writes: processor time of its thread. `None` where the system does not tell it.
    pub collector_ns: Option<u64>,
}

impl Measuring {
    /// The sum of what is known.
    pub fn total_ns(self) -> u64 {
        self.scopes_ns + self.collector_ns.unwrap_or(0)
    }
}

/// The prices of a frame and of a span.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Price {
    frame_ns: f64,
    span_ns: f64,
}

impl Price {
    /// Measures both, in about a millisecond.
    pub(crate) fn measure(clock: &Clock, subsystems: usize) -> Price {
        let fastest = |spans: u64| {
            let rounds = (0..ROUNDS).map(|_| frame_ns(clock, subsystems, spans));
            rounds.fold(f64::INFINITY, f64::min)
        };
        let (bare_ns, full_ns) = (fastest(0), fastest(SPANS));
        Price { frame_ns: bare_ns, span_ns: (full_ns - bare_ns).max(0.0) / SPANS as f64 }
    }

    pub(crate) fn of(self, frames: u64, spans: u64) -> u64 {
        (self.frame_ns * frames as f64 + self.span_ns * spans as f64) as u64
    }
}

/// The time of a frame that does nothing but open and close scopes.
fn frame_ns(clock: &Clock, subsystems: usize, spans: u64) -> f64 {
    let mut recorder = Recorder::new(Arc::new(Line::new("", subsystems)), clock.clone(), subsystems);
    let began = Instant::now();
    for tick in 0..FRAMES {
        let mut frame = recorder.begin(tick, Phase::new(""));
        (0..spans).for_each(|_| frame.time(Subsystem::AI, |_| ()));
        frame.finish();
    }
    began.elapsed().as_nanos() as f64 / FRAMES as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_spans_have_a_price_and_more_of_them_cost_more() {
        let price = Price::measure(&Clock::new(), 30);
        // A span reads the clock twice; nothing reads it in less than a nanosecond, and nobody would accept 20 µs.
        assert!((2.0..20_000.0).contains(&price.span_ns) && price.frame_ns < 1e6, "{price:?}");
        let cost = Price { frame_ns: 300.0, span_ns: 50.5 };
        assert_eq!((cost.of(0, 0), cost.of(2, 0), cost.of(2, 10)), (0, 600, 1_105));
    }
}
