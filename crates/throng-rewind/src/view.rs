//! Which moment a shooter saw: the client's claim against the server's own estimate.

use crate::moment::Moment;
use crate::verdict::Flags;
use throng_wire::Tick;

/// No rule rewinds farther than this.
pub const MAX_REWIND_MS: f64 = 1_000.0;

/// Most ticks per second.
pub const MAX_TICKS_PER_S: u32 = 1_000;

/// The delays of a shooter, as the server measured them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Round trip time in microseconds.
    pub rtt_us: u32,
    /// Interpolation delay in microseconds: how far behind the newest state the client shows the world.
    pub interpolation_us: u32,
}

impl Latency {
    /// Half of the round trip, in milliseconds: the shot's way to the server.
    pub fn one_way_ms(&self) -> f64 {
        f64::from(self.rtt_us) / 2_000.0
    }

    /// The age of the picture when the shooter fired: RTT/2 + interpolation delay, in milliseconds.
    pub fn age_when_fired_ms(&self) -> f64 {
        self.one_way_ms() + f64::from(self.interpolation_us) / 1_000.0
    }

    /// The age of the picture when the server handles the shot, in milliseconds: its age when the shooter fired, and the
    /// shot's way, the other half of the round trip.
    pub fn age_when_handled_ms(&self) -> f64 {
        self.age_when_fired_ms() + self.one_way_ms()
    }
}

/// How far a claimed view time may be off, and how far anything is rewound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ViewRules {
    /// Ticks per second, 1 to [`MAX_TICKS_PER_S`].
    pub ticks_per_s: u32,
    /// A claim that is farther than this from the server's estimate is replaced by the estimate. Milliseconds, at least
    /// 0.
    pub tolerance_ms: f64,
    /// Longest rewind in milliseconds, 0 to [`MAX_REWIND_MS`].
    pub max_ms: f64,
}

impl Default for ViewRules {
    /// 128 Hz, 200 ms, 250 ms.
    fn default() -> ViewRules {
        ViewRules { ticks_per_s: 128, tolerance_ms: 200.0, max_ms: 250.0 }
    }
}

/// The moment at which a shot is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// The moment to which everything is rewound.
    pub moment: Moment,
    /// Milliseconds from there to the tick in which the shot is judged.
    pub rewound_ms: f64,
    /// Some of [`Flags::REPLACED`], [`Flags::FUTURE`] and [`Flags::CLAMPED`].
    pub flags: Flags,
}

impl ViewRules {
    /// Whether every number is in its range.
    pub fn is_valid(&self) -> bool {
        (1..=MAX_TICKS_PER_S).contains(&self.ticks_per_s)
            && self.tolerance_ms.is_finite()
            && self.tolerance_ms >= 0.0
            && (0.0..=MAX_REWIND_MS).contains(&self.max_ms)
    }

    /// Milliseconds of `ticks`.
    pub fn ms(&self, ticks: f64) -> f64 {
        ticks * 1_000.0 / f64::from(self.ticks_per_s)
    }

    /// Ticks in `ms` milliseconds.
    pub fn ticks(&self, ms: f64) -> f64 {
        ms * f64::from(self.ticks_per_s) / 1_000.0
    }

    /// The moment at which a shot is judged that is handled in the tick `now`. `claim` is a valid moment.
    ///
    /// A claim farther than the tolerance from the estimate is replaced by the estimate. The result is never in the
    /// future, and never farther back than the limit.
    pub fn decide(&self, claim: Moment, now: Tick, latency: Latency) -> View {
        let estimate_ms = latency.age_when_handled_ms();
        let claimed_ms = self.ms(Moment::at(now).ticks_since(claim));
        let mut flags = Flags::NONE;
        let mut rewound_ms = claimed_ms;
        if (claimed_ms - estimate_ms).abs() > self.tolerance_ms {
            flags |= Flags::REPLACED;
            rewound_ms = estimate_ms;
        }
        if rewound_ms < 0.0 {
            flags |= Flags::FUTURE;
            rewound_ms = 0.0;
        }
        if rewound_ms > self.max_ms {
            flags |= Flags::CLAMPED;
            rewound_ms = self.max_ms;
        }
        let moment = if flags == Flags::NONE { claim } else { Moment::at(now).before(self.ticks(rewound_ms)) };
        View { moment, rewound_ms, flags }
    }

    /// The moment at which the shooter fired, by the server's estimate: half of the round trip before `now`, at most half
    /// of the limit. So nobody fires earlier by answering late.
    pub fn fired(&self, now: Tick, latency: Latency) -> Moment {
        Moment::at(now).before(self.ticks(latency.one_way_ms().min(self.max_ms / 2.0)))
    }

    /// The most that a client gains by lying about what it saw, in milliseconds, if its true picture is `true_ms` old
    /// when the server handles its shots, and the server's estimate is right.
    ///
    /// It is the distance from the true view time to the farthest one that this type accepts: back in time at most the
    /// tolerance and never beyond the limit, or forward at most the tolerance and never beyond the present.
    pub fn most_gained_by_lying_ms(&self, true_ms: f64) -> f64 {
        let honest_ms = true_ms.min(self.max_ms);
        let back_ms = (true_ms + self.tolerance_ms).min(self.max_ms) - honest_ms;
        let forward_ms = honest_ms - (true_ms - self.tolerance_ms).max(0.0).min(self.max_ms);
        back_ms.max(forward_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Tick = Tick(1_000);
    const HOME: Latency = Latency { rtt_us: 40_000, interpolation_us: 10_000 };

    /// The view of somebody who claims to have seen the world `ago_ms` ago.
    fn view(ago_ms: f64) -> View {
        let rules = ViewRules { ticks_per_s: 100, ..ViewRules::default() };
        let claim = if ago_ms < 0.0 {
            Moment::at(NOW.after((-ago_ms / 10.0) as u32))
        } else {
            Moment::at(NOW).before(rules.ticks(ago_ms))
        };
        rules.decide(claim, NOW, HOME)
    }

    #[test]
    fn an_honest_claim_is_taken_as_it_is() {
        let view = view(52.5);
        assert_eq!((view.moment, view.rewound_ms, view.flags), (Moment::new(Tick(994), 0.75), 52.5, Flags::NONE));
    }

    #[test]
    fn a_claim_far_from_the_estimate_is_replaced() {
        assert_eq!(HOME.age_when_handled_ms(), 50.0);
        assert_eq!((view(250.0).rewound_ms, view(250.0).flags), (250.0, Flags::NONE));
        assert_eq!((view(260.0).rewound_ms, view(260.0).flags), (50.0, Flags::REPLACED));
        assert_eq!((view(1e6).rewound_ms, view(1e6).moment), (50.0, Moment::at(Tick(995))));
        assert_eq!((view(-160.0).rewound_ms, view(-160.0).flags), (50.0, Flags::REPLACED));
    }

    #[test]
    fn nobody_sees_the_future() {
        let view = view(-100.0);
        assert_eq!((view.moment, view.rewound_ms, view.flags), (Moment::at(NOW), 0.0, Flags::FUTURE));
    }

    #[test]
    fn a_long_way_is_clamped() {
        let rules = ViewRules::default();
        let far = Latency { rtt_us: 600_000, interpolation_us: 0 };
        let claim = Moment::at(NOW).before(rules.ticks(600.0));
        let view = rules.decide(claim, NOW, far);
        assert_eq!((view.moment, view.rewound_ms, view.flags), (Moment::at(Tick(968)), 250.0, Flags::CLAMPED));
        let replaced = rules.decide(Moment::at(Tick(0)), NOW, far);
        assert_eq!((replaced.rewound_ms, replaced.flags), (250.0, Flags::CLAMPED | Flags::REPLACED));
    }

    #[test]
    fn a_client_that_answers_late_has_not_fired_earlier_than_half_of_the_limit() {
        let rules = ViewRules { ticks_per_s: 1_000, ..ViewRules::default() };
        let fired = |rtt_ms: u32| rules.fired(NOW, Latency { rtt_us: rtt_ms * 1_000, interpolation_us: 0 });
        assert_eq!(fired(100), Moment::at(NOW.before(50)));
        assert_eq!(fired(250), Moment::at(NOW.before(125)));
        assert_eq!(fired(1_000), Moment::at(NOW.before(125)));
    }

    #[test]
    fn ticks_beyond_four_billion_compare_as_numbers() {
        let now = Tick(1 << 40);
        let view = ViewRules::default().decide(Moment::new(now.before(6), 0.5), now, HOME);
        assert_eq!((view.moment, view.flags), (Moment::new(now.before(6), 0.5), Flags::NONE));
        let view = ViewRules::default().decide(Moment::at(Tick(u64::MAX)), now, HOME);
        assert_eq!(view.flags, Flags::REPLACED);
    }
}
