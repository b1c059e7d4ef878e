use std::str::FromStr;

/// The condition of a path in one direction.
///
/// ```text
/// in -> longest packet (mtu) -> bottleneck queue (rate) -> loss, bursts -> duplication -> delay + jitter, reordering -> out
/// ```
///
/// A round trip over two such paths takes twice the delay. The default is a perfect path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Condition {
    /// Time under way at least, one way, in microseconds.
    pub delay_us: u32,
    /// Further time under way, uniform from 0 to this, in microseconds; the mean is half of it. Datagrams pushed at the
    /// same instant get the same, and order is kept: a datagram never overtakes an earlier one because of jitter, it
    /// waits for it. (At intervals shorter than the jitter this waiting lengthens the mean.)
    pub jitter_us: u32,
    /// Probability, 0 to 1, that a datagram is lost independently of others.
    pub loss: f64,
    /// Losses that come in bursts.
    pub burst: Option<BurstLoss>,
    /// Probability, 0 to 1, that a datagram arrives twice. The copy has a jitter of its own.
    pub duplicate: f64,
    /// Datagrams that later ones overtake.
    pub reorder: Option<Reordering>,
    /// The bottleneck.
    pub rate: Option<RateLimit>,
    /// The longest IP packet that passes, in bytes: 28 more than the datagram. Longer ones are lost without a report.
    /// At least 68; `None` for no limit.
    pub mtu: Option<u16>,
}

/// Every IPv4 path carries packets of this length (RFC 791).
const LEAST_MTU: u16 = 68;

/// Losses in bursts: the model of Gilbert (1960) and Elliott (1963), stepped once per datagram.
///
/// The path is in a good or a bad state. In the good state [`Condition::loss`] applies, in the bad state `loss`. The
/// mean length of a bad period is `1 / leave` datagrams; the share of bad datagrams is `enter / (enter + leave)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstLoss {
    /// Probability, 0 to 1, to go from good to bad before a datagram.
    pub enter: f64,
    /// Probability, above 0 to 1, to go from bad to good before a datagram.
    pub leave: f64,
    /// Probability, 0 to 1, that a datagram of the bad state is lost.
    pub loss: f64,
}

/// Datagrams are taken out of the order and held back; those pushed meanwhile overtake them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reordering {
    /// Probability, 0 to 1, that a datagram is held back.
    pub probability: f64,
    /// How long, in microseconds, on top of delay and jitter.
    pub hold_us: u32,
}

/// A bottleneck: datagrams leave it one after the other; when its queue is full, the newest is dropped.
///
/// A datagram occupies its payload and 28 bytes of IPv4 and UDP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Bytes per second that pass. At least 1.
    pub bytes_per_s: u64,
    /// Bytes that may wait. A datagram that finds the bottleneck idle always passes.
    pub queue_bytes: u64,
}

/// A named condition.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Preset {
    /// The name that [`Condition::from_str`] understands.
    pub name: &'static str,
    /// Its condition.
    pub describe: &'static str,
    /// One way of it.
    pub condition: Condition,
}

impl Condition {
    /// The presets, from best to worst. They describe one way; a round trip suffers both.
    ///
    /// | name | delay | jitter to | loss | bursts: enter, mean length, loss within | twice | held back | rate, queue |
    /// |---|---|---|---|---|---|---|---|
    /// | `none` | 0 | 0 | 0 | - | 0 | - | - |
    /// | `lan` | 0.2 ms | 0.2 ms | 0 | - | 0 | - | - |
    /// | `wifi` | 10 ms | 8 ms | 0.2 % | 0.05 %, 5, 50 % | 0.02 % | 0.1 % for 5 ms | 20 Mbit/s, 64 KiB |
    /// | `4g` | 35 ms | 25 ms | 0.5 % | 0.2 %, 5, 60 % | 0.05 % | 0.5 % for 15 ms | 8 Mbit/s, 128 KiB |
    /// | `bad` | 100 ms | 60 ms | 5 % | 1 %, 6.7, 80 % | 1 % | 2 % for 40 ms | 1 Mbit/s, 64 KiB |
    ///
    /// The figures are round numbers for games in the middle of what such links show, not measurements of one.
    pub const PRESETS: [Preset; 5] = [
        Preset { name: "none", describe: "a perfect path", condition: Condition::NONE },
        Preset {
            name: "lan",
            describe: "a switch in the same house",
            condition: Condition { delay_us: 200, jitter_us: 200, ..Condition::NONE },
        },
        Preset {
            name: "wifi",
            describe: "home wireless and a server in the same country",
            condition: Condition {
                delay_us: 10_000,
                jitter_us: 8_000,
                loss: 0.002,
                burst: Some(BurstLoss { enter: 0.000_5, leave: 0.2, loss: 0.5 }),
                duplicate: 0.000_2,
                reorder: Some(Reordering { probability: 0.001, hold_us: 5_000 }),
                rate: Some(RateLimit { bytes_per_s: 2_500_000, queue_bytes: 64 << 10 }),
                mtu: None,
            },
        },
        Preset {
            name: "4g",
            describe: "a phone in town",
            condition: Condition {
                delay_us: 35_000,
                jitter_us: 25_000,
                loss: 0.005,
                burst: Some(BurstLoss { enter: 0.002, leave: 0.2, loss: 0.6 }),
                duplicate: 0.000_5,
                reorder: Some(Reordering { probability: 0.005, hold_us: 15_000 }),
                rate: Some(RateLimit { bytes_per_s: 1_000_000, queue_bytes: 128 << 10 }),
                mtu: None,
            },
        },
        Preset {
            name: "bad",
            describe: "a crowded link to another continent",
            condition: Condition {
                delay_us: 100_000,
                jitter_us: 60_000,
                loss: 0.05,
                burst: Some(BurstLoss { enter: 0.01, leave: 0.15, loss: 0.8 }),
                duplicate: 0.01,
                reorder: Some(Reordering { probability: 0.02, hold_us: 40_000 }),
                rate: Some(RateLimit { bytes_per_s: 125_000, queue_bytes: 64 << 10 }),
                mtu: None,
            },
        },
    ];

    /// A perfect path: what goes in comes out at once.
    pub const NONE: Condition = Condition {
        delay_us: 0,
        jitter_us: 0,
        loss: 0.0,
        burst: None,
        duplicate: 0.0,
        reorder: None,
        rate: None,
        mtu: None,
    };

    /// A path on which nothing arrives.
    pub const BLACKOUT: Condition = Condition { loss: 1.0, ..Condition::NONE };

    /// Whether the path does nothing at all.
    pub fn is_perfect(&self) -> bool {
        *self == Condition::NONE
    }

    /// The share of datagrams lost on the way in the long run, 0 to 1, without those that a full bottleneck drops.
    pub fn mean_loss(&self) -> f64 {
        match self.burst {
            Some(BurstLoss { enter, leave, loss }) if enter > 0.0 => {
                let bad = enter / (enter + leave);
                bad * loss + (1.0 - bad) * self.loss
            }
            _ => self.loss,
        }
    }

    /// Checks that every figure is in its range.
    ///
    /// # Errors
    ///
    /// [`ConditionError`], for the first that is not.
    pub fn check(&self) -> Result<(), ConditionError> {
        let burst = self.burst.unwrap_or(BurstLoss { enter: 0.0, leave: 1.0, loss: 0.0 });
        let probabilities = [
            ("loss", self.loss),
            ("burst.enter", burst.enter),
            ("burst.leave", burst.leave),
            ("burst.loss", burst.loss),
            ("duplicate", self.duplicate),
            ("reorder.probability", self.reorder.map_or(0.0, |reorder| reorder.probability)),
        ];
        for (field, value) in probabilities {
            if !(0.0..=1.0).contains(&value) {
                return Err(ConditionError::NotAProbability { field, value });
            }
        }
        if burst.leave == 0.0 {
            return Err(ConditionError::EndlessBurst);
        }
        if self.rate.is_some_and(|rate| rate.bytes_per_s == 0) {
            return Err(ConditionError::NoRate);
        }
        if let Some(mtu) = self.mtu.filter(|mtu| *mtu < LEAST_MTU) {
            return Err(ConditionError::SmallMtu { mtu });
        }
        Ok(())
    }
}

impl FromStr for Condition {
    type Err = UnknownPreset;

    /// A preset by its name, in lower case.
    fn from_str(name: &str) -> Result<Condition, UnknownPreset> {
        let found = Condition::PRESETS.into_iter().find(|preset| preset.name == name);
        found.map(|preset| preset.condition).ok_or_else(|| UnknownPreset { name: name.chars().take(32).collect() })
    }
}

/// A name that is no preset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no network called \"{name}\": choose none, lan, wifi, 4g or bad")]
pub struct UnknownPreset {
    /// The name, cut at 32 characters.
    pub name: String,
}

/// Our misuse: a condition that no path can have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionError {
    /// Outside of 0 to 1.
    #[error("{field} is {value}: it is a probability and must lie between 0 and 1 (0.05 is 5 %)")]
    NotAProbability {
        /// The field of [`Condition`].
        field: &'static str,
        /// Its value.
        value: f64,
    },
    /// The bad state would never end.
    #[error("burst.leave is 0: bursts would never end; 0.2 makes them 5 datagrams long on average")]
    EndlessBurst,
    /// The bottleneck would never pass anything.
    #[error("rate.bytes_per_s is 0: leave the rate out for no limit, or set loss to 1 for a dead path")]
    NoRate,
    /// No IPv4 path has it.
    #[error("mtu is {mtu}: every path carries IP packets of at least 68 bytes; leave the mtu out for no limit")]
    SmallMtu {
        /// The value.
        mtu: u16,
    },
}

impl ConditionError {
    /// A stable name for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            ConditionError::NotAProbability { .. } => "not_a_probability",
            ConditionError::EndlessBurst => "endless_burst",
            ConditionError::NoRate => "no_rate",
            ConditionError::SmallMtu { .. } => "small_mtu",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_valid_and_found_by_its_name() {
        for preset in Condition::PRESETS {
            assert_eq!(preset.condition.check(), Ok(()), "{}", preset.name);
            assert_eq!(preset.name.parse(), Ok(preset.condition));
        }
    }

    #[test]
    fn an_unknown_preset_lists_the_names() {
        let error = "wlan".parse::<Condition>().unwrap_err().to_string();
        for preset in Condition::PRESETS {
            assert!(error.contains(preset.name), "{error}");
        }
        assert!("x".repeat(1_000).parse::<Condition>().unwrap_err().to_string().len() < 120);
    }

    #[test]
    fn impossible_conditions_are_refused() {
        let tag = |condition: Condition| condition.check().map_err(|error| error.tag());
        assert_eq!(tag(Condition { loss: 1.5, ..Condition::NONE }), Err("not_a_probability"));
        assert_eq!(tag(Condition { duplicate: f64::NAN, ..Condition::NONE }), Err("not_a_probability"));
        let burst = Some(BurstLoss { enter: 0.1, leave: 0.0, loss: 1.0 });
        assert_eq!(tag(Condition { burst, ..Condition::NONE }), Err("endless_burst"));
        let rate = Some(RateLimit { bytes_per_s: 0, queue_bytes: 1 });
        assert_eq!(tag(Condition { rate, ..Condition::NONE }), Err("no_rate"));
        assert_eq!(tag(Condition { mtu: Some(67), ..Condition::NONE }), Err("small_mtu"));
        assert_eq!(tag(Condition::BLACKOUT), Ok(()));
    }

    #[test]
    fn mean_loss_weighs_both_states() {
        let burst = Some(BurstLoss { enter: 0.01, leave: 0.19, loss: 0.5 });
        let mean = Condition { loss: 0.1, burst, ..Condition::NONE }.mean_loss();
        assert!((mean - (0.05 * 0.5 + 0.95 * 0.1)).abs() < 1e-12);
    }
}
