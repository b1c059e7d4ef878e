//! How large a load is at each moment of the measured part: players of a crowd, clients of a gateway, or matches.
//!
//! ```text
//!  constant        ramp           step             staircase           spike
//!  ________           ____             _____             __               __
//!                    /                |               __|                |  |
//!                ___/             ____|            __|               ____|  |____
//! ```

use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A load profile. The largest number of players that is possible is the run's. Until the measured part begins, the first number
/// plays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Profile {
    /// All players, all the time.
    #[default]
    Constant,
    /// From one number to another, evenly, and then that one.
    Ramp {
        /// The first number, from 1.
        from: u32,
        /// The last number, from 1.
        to: u32,
        /// Length of the way.
        over_seconds: u32,
    },
    /// A number of players, and then another one that is held.
    Step {
        /// The first number, from 1.
        from: u32,
        /// The number that is held, from 1.
        to: u32,
        /// When it begins.
        at_seconds: u32,
    },
    /// Steps up to all players, each held.
    Staircase {
        /// The first number, from 1.
        from: u32,
        /// Each step adds so many.
        step: u32,
        /// Length of each hold.
        hold_seconds: u32,
    },
    /// A number of players, a larger one for a while, and the first one again.
    Spike {
        /// The number before and after, from 1.
        base: u32,
        /// The number of the spike.
        peak: u32,
        /// When it begins.
        at_seconds: u32,
        /// Its length; the time after it is as long.
        for_seconds: u32,
    },
    /// All players for hours.
    Soak {
        /// Length of the measured part, up to 24.
        hours: f64,
    },
}

/// A staircase has at most so many steps.
const STEPS_MAX: u32 = 200;
/// A ramp is judged in so many parts.
const RAMP_PARTS: u32 = 10;
/// This share of a level after a change is not judged: connections are made there.
const SETTLING_SHARE: f64 = 0.2;
/// But at most so long.
const SETTLING_MAX_S: f64 = 10.0;

impl Profile {
    /// The number of players at a moment of the measured part, if `all` is the largest.
    pub fn players_at(&self, all: u32, elapsed: Duration) -> u32 {
        let elapsed_s = elapsed.as_secs_f64();
        let players = match *self {
            Profile::Constant | Profile::Soak { .. } => all,
            Profile::Ramp { from, to, over_seconds } => {
                let share = (elapsed_s / f64::from(over_seconds.max(1))).min(1.0);
                (f64::from(from) + (f64::from(to) - f64::from(from)) * share).round() as u32
            }
            Profile::Step { from, to, at_seconds } => {
                if elapsed_s < f64::from(at_seconds) {
                    from
                } else {
                    to
                }
            }
            Profile::Staircase { from, step, hold_seconds } => {
                let steps = (elapsed.as_secs() / u64::from(hold_seconds.max(1))).min(u64::from(u32::MAX)) as u32;
                from.saturating_add(step.saturating_mul(steps))
            }
            Profile::Spike { base, peak, at_seconds, for_seconds } => {
                let spike = f64::from(at_seconds)..f64::from(at_seconds) + f64::from(for_seconds);
                if spike.contains(&elapsed_s) { peak } else { base }
            }
        };
        players.min(all)
    }

    /// Whether the number of players stays.
    pub fn is_constant(&self) -> bool {
        matches!(self, Profile::Constant | Profile::Soak { .. })
    }

    /// The number of players before the measured part, and at its beginning.
    pub fn first(&self, all: u32) -> u32 {
        self.players_at(all, Duration::ZERO)
    }

    /// The shortest measured part in which all of it is played.
    pub fn seconds(&self, all: u32) -> u32 {
        match *self {
            Profile::Constant => 0,
            Profile::Ramp { over_seconds, .. } => over_seconds,
            // Held as long as the number before it.
            Profile::Step { at_seconds, .. } => at_seconds.saturating_mul(2),
            Profile::Staircase { hold_seconds, .. } => hold_seconds.saturating_mul(self.levels(all)),
            Profile::Spike { at_seconds, for_seconds, .. } => at_seconds.saturating_add(for_seconds.saturating_mul(2)),
            Profile::Soak { hours } => (hours * 3_600.0).ceil() as u32,
        }
    }

    /// The parts of `seconds` that are judged one by one: each level, and each tenth of a ramp.
    pub fn parts(&self, all: u32, seconds: u32) -> Vec<Range<f64>> {
        let mut ends: Vec<f64> = match *self {
            Profile::Constant | Profile::Soak { .. } => Vec::new(),
            Profile::Ramp { over_seconds, .. } => {
                (1..=RAMP_PARTS).map(|part| f64::from(over_seconds * part) / f64::from(RAMP_PARTS)).collect()
            }
            Profile::Step { at_seconds, .. } => vec![f64::from(at_seconds)],
            Profile::Staircase { hold_seconds, .. } => {
                (1..self.levels(all)).map(|level| f64::from(hold_seconds.saturating_mul(level))).collect()
            }
            Profile::Spike { at_seconds, for_seconds, .. } => {
                vec![f64::from(at_seconds), f64::from(at_seconds) + f64::from(for_seconds)]
            }
        };
        ends.retain(|end| *end < f64::from(seconds));
        ends.push(f64::from(seconds));
        let mut from = 0.0;
        ends.into_iter().map(|to| std::mem::replace(&mut from, to)..to).collect()
    }

    /// The judged time of each of these parts. Connections are made at the beginning of a level; the first one had the warm-up
    /// for that, and a ramp has no level.
    pub fn judged(&self, all: u32, seconds: u32) -> Vec<Range<f64>> {
        let is_ramp = matches!(self, Profile::Ramp { .. });
        let judged = |part: Range<f64>| {
            let settling_s = (SETTLING_SHARE * (part.end - part.start)).min(SETTLING_MAX_S);
            if is_ramp || part.start == 0.0 { part } else { part.start + settling_s..part.end }
        };
        self.parts(all, seconds).into_iter().map(judged).collect()
    }

    /// Levels of a staircase.
    fn levels(&self, all: u32) -> u32 {
        let Profile::Staircase { from, step, .. } = *self else { return 1 };
        1 + all.saturating_sub(from).div_ceil(step.max(1))
    }

    /// Why it is impossible with `all` players, or clients (`who` names them and their option), and a measured part of so many
    /// seconds, in words.
    pub fn fault(&self, (all, who): (u32, &str), seconds: u32) -> Option<String> {
        let is_zero = |name: &str, value: u32| (value == 0).then(|| format!("{name} must be at least 1"));
        let is_beyond =
            |name: &str, value: u32| (value > all).then(|| format!("{name} {value} is more than the {all} {who}"));
        let players = |name: &str, value: u32| is_zero(name, value).or_else(|| is_beyond(name, value));
        let own = match *self {
            Profile::Constant => None,
            Profile::Ramp { from, to, over_seconds } => players("from", from)
                .or_else(|| players("to", to))
                .or_else(|| is_zero("over_seconds", over_seconds))
                .or_else(|| (from == to).then(|| format!("a ramp from {from} to {to} goes nowhere"))),
            Profile::Step { from, to, at_seconds } => players("from", from)
                .or_else(|| players("to", to))
                .or_else(|| is_zero("at_seconds", at_seconds))
                .or_else(|| (from == to).then(|| format!("a step from {from} to {to} goes nowhere"))),
            Profile::Staircase { from, step, hold_seconds } => players("from", from)
                .or_else(|| is_zero("step", step))
                .or_else(|| is_zero("hold_seconds", hold_seconds))
                .or_else(|| {
                    let levels = self.levels(all);
                    (levels > STEPS_MAX).then(|| format!("{levels} steps are more than {STEPS_MAX}: give larger ones"))
                }),
            Profile::Spike { base, peak, at_seconds, for_seconds } => players("base", base)
                .or_else(|| players("peak", peak))
                .or_else(|| is_zero("at_seconds", at_seconds))
                .or_else(|| is_zero("for_seconds", for_seconds))
                .or_else(|| (peak <= base).then(|| format!("a peak of {peak} is not above the base of {base}"))),
            // NaN is in no range.
            Profile::Soak { hours } => {
                let is_possible = hours > 0.0 && hours <= 24.0;
                (!is_possible).then(|| format!("{hours} hours: a soak takes more than 0 and at most 24"))
            }
        };
        let needed = self.seconds(all);
        own.or_else(|| {
            (needed > seconds).then(|| format!("it takes {needed} s, but only {seconds} s are measured (--seconds)"))
        })
    }
}

/// How a profile is written on the command line.
const PROFILE_FORMS: &str =
    "constant, ramp:100..1000:60s, step:100..1000:20s, staircase:100+100:30s, spike:100..1000:20s:10s or soak:2h";

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Profile, String> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            ["constant"] => Ok(Profile::Constant),
            ["ramp", players, over] => {
                let (from, to) = pair(players, "..")?;
                Ok(Profile::Ramp { from, to, over_seconds: seconds(over)? })
            }
            ["step", players, at] => {
                let (from, to) = pair(players, "..")?;
                Ok(Profile::Step { from, to, at_seconds: seconds(at)? })
            }
            ["staircase", players, hold] => {
                let (from, step) = pair(players, "+")?;
                Ok(Profile::Staircase { from, step, hold_seconds: seconds(hold)? })
            }
            ["spike", players, at, length] => {
                let (base, peak) = pair(players, "..")?;
                Ok(Profile::Spike { base, peak, at_seconds: seconds(at)?, for_seconds: seconds(length)? })
            }
            ["soak", length] => Ok(Profile::Soak { hours: f64::from(seconds(length)?) / 3_600.0 }),
            _ => Err(format!("a profile is one of {PROFILE_FORMS}")),
        }
    }
}

/// As on the command line.
impl Display for Profile {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Profile::Constant => write!(f, "constant"),
            Profile::Ramp { from, to, over_seconds } => write!(f, "ramp:{from}..{to}:{over_seconds}s"),
            Profile::Step { from, to, at_seconds } => write!(f, "step:{from}..{to}:{at_seconds}s"),
            Profile::Staircase { from, step, hold_seconds } => write!(f, "staircase:{from}+{step}:{hold_seconds}s"),
            Profile::Spike { base, peak, at_seconds, for_seconds } => {
                write!(f, "spike:{base}..{peak}:{at_seconds}s:{for_seconds}s")
            }
            Profile::Soak { hours } => write!(f, "soak:{hours}h"),
        }
    }
}

fn pair(text: &str, between: &str) -> Result<(u32, u32), String> {
    let number = |text: &str| text.parse().ok().filter(|number: &u32| *number > 0);
    let numbers = text.split_once(between).and_then(|(first, second)| number(first).zip(number(second)));
    numbers.ok_or_else(|| format!("`{text}`: two numbers from 1 are expected, as 100{between}1000"))
}

/// A time in whole seconds, from 1 s to a day.
fn seconds(text: &str) -> Result<u32, String> {
    let units = [('s', 1.0), ('m', 60.0), ('h', 3_600.0)];
    let written = units.iter().find_map(|&(unit, length_s)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * length_s)
    });
    // NaN is in no range.
    let time = written.filter(|seconds| (1.0..=86_400.0).contains(seconds));
    time.map(|seconds| seconds.round() as u32)
        .ok_or_else(|| format!("`{text}`: a time from 1s to 24h is expected, as 90s, 10m or 2h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAYERS: (u32, &str) = (1_000, "players (--players)");

    fn at(profile: &str, seconds: f64) -> u32 {
        let profile: Profile = profile.parse().unwrap();
        profile.players_at(1_000, Duration::from_secs_f64(seconds))
    }

    #[test]
    fn each_profile_has_its_course() {
        assert_eq!((at("constant", 0.0), at("soak:2h", 7_000.0)), (1_000, 1_000));
        let ramp = |seconds| at("ramp:100..900:60s", seconds);
        assert_eq!((ramp(0.0), ramp(30.0), ramp(60.0), ramp(1e9)), (100, 500, 900, 900));
        assert_eq!(at("ramp:900..100:1m", 15.0), 700);
        let step = |seconds| at("step:100..700:20s", seconds);
        assert_eq!((step(19.9), step(20.0), step(1e9)), (100, 700, 700));
        let stairs = |seconds| at("staircase:400+250:30s", seconds);
        assert_eq!((stairs(29.9), stairs(30.0), stairs(60.0), stairs(90.0)), (400, 650, 900, 1_000));
        let spike = |seconds| at("spike:100..1000:20s:10s", seconds);
        assert_eq!((spike(0.0), spike(20.0), spike(29.9), spike(30.0)), (100, 1_000, 1_000, 100));
    }

    #[test]
    fn a_profile_is_written_as_it_is_read_and_knows_its_length() {
        for (text, length) in [
            ("constant", 0),
            ("ramp:100..1000:60s", 60),
            ("step:1000..100:20s", 40),
            ("staircase:400+250:30s", 120),
            ("staircase:1000+1:30s", 30),
            ("spike:100..1000:20s:10s", 40),
            ("soak:2h", 7_200),
        ] {
            let profile: Profile = text.parse().unwrap();
            assert_eq!((profile.to_string().as_str(), profile.seconds(1_000)), (text, length));
            assert_eq!(profile.fault(PLAYERS, 7_200), None);
        }
    }

    #[test]
    fn parts_cover_the_measured_part_without_gaps() {
        for text in
            ["constant", "ramp:1..1000:60s", "staircase:100+300:20s", "step:1..2:20s", "spike:1..2:20s:10s", "soak:2m"]
        {
            let profile: Profile = text.parse().unwrap();
            let parts = profile.parts(1_000, 120);
            assert_eq!((parts[0].start, parts[parts.len() - 1].end), (0.0, 120.0), "{text}");
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{text}: {parts:?}");
        }
        let stairs: Profile = "staircase:100+300:20s".parse().unwrap();
        assert_eq!(stairs.parts(1_000, 80), [0.0..20.0, 20.0..40.0, 40.0..60.0, 60.0..80.0]);
        assert_eq!(stairs.judged(1_000, 80), [0.0..20.0, 24.0..40.0, 44.0..60.0, 64.0..80.0]);
        let step: Profile = "step:1..2:100s".parse().unwrap();
        assert_eq!(step.judged(2, 200), [0.0..100.0, 110.0..200.0], "10 s at most");
        let ramp: Profile = "ramp:1..1000:60s".parse().unwrap();
        assert_eq!(ramp.judged(1_000, 60), ramp.parts(1_000, 60));
    }

    #[test]
    fn nonsense_is_refused_in_one_line_that_says_how_it_is_written() {
        for text in [
            "",
            "ramp",
            "wave:1..2:3s",
            "ramp:100:60s",
            "ramp:0..100:60s",
            "ramp:-5..100:60s",
            "ramp:NaN..100:60s",
            "ramp:100..1000:60",
            "ramp:100..1000:NaNs",
            "ramp:100..1000:-3s",
            "ramp:100..1000:0s",
            "soak:infh",
            "ramp:100..99999999999:60s",
            "step:100..1000",
            "step:100+1000:5s",
            "staircase:100:30s",
            "spike:100..1000:20s",
            "soak:25h",
            "soak:",
        ] {
            let error = text.parse::<Profile>().unwrap_err();
            assert!(error.contains("as ") || error.contains("one of"), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let fault = |text: &str| text.parse::<Profile>().unwrap().fault(PLAYERS, 120).unwrap_or_default();
        assert_eq!(fault("ramp:100..1200:60s"), "to 1200 is more than the 1000 players (--players)");
        assert!(fault("ramp:100..100:60s").contains("goes nowhere") && fault("step:9..9:5s").contains("goes nowhere"));
        assert!(fault("step:100..1001:5s").contains("to 1001 is more"));
        assert!(fault("staircase:100+100:60s").contains("it takes 600 s, but only 120 s"));
        assert!(fault("staircase:1+1:1s").contains("larger ones"));
        assert!(fault("spike:500..400:10s:10s").contains("not above"));
        let zero = Profile::Staircase { from: 100, step: 0, hold_seconds: 5 };
        assert_eq!(zero.fault(PLAYERS, 120).as_deref(), Some("step must be at least 1"));
        assert!(Profile::Soak { hours: f64::NAN }.fault(PLAYERS, 120).is_some_and(|fault| fault.contains("NaN hours")));
    }
}
