//! The levels of a load profile, each judged by itself.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::meter::Histogram;
use throng_report::Profile;

use crate::site::Times;
use crate::summary::{MatchLevel, Percentiles};

/// Counts of a run that never fall: frames and their lateness, in nanoseconds with how often each, and what goes with them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) frame_ns: Vec<(u64, u64)>,
    pub(crate) late_ns: Vec<(u64, u64)>,
    pub(crate) missed_ticks: u64,
    pub(crate) cpu_s: f64,
}

impl Counts {
    /// Of several processes together.
    pub(crate) fn joined<'a>(parts: impl Iterator<Item = &'a Counts>) -> Counts {
        let (mut frames, mut late, mut joined) = (Histogram::new(), Histogram::new(), Counts::default());
        for part in parts {
            part.frame_ns.iter().for_each(|&(ns, count)| frames.record_many(ns, count));
            part.late_ns.iter().for_each(|&(ns, count)| late.record_many(ns, count));
            joined.missed_ticks = joined.missed_ticks.saturating_add(part.missed_ticks);
            joined.cpu_s += part.cpu_s;
        }
        Counts { frame_ns: frames.values().collect(), late_ns: late.values().collect(), ..joined }
    }
}

/// Takes the figures of each level of a profile while it is played.
pub(crate) struct Levels {
    profile: Profile,
    matches: u32,
    parts: std::vec::IntoIter<Range<f64>>,
    present: Option<Level>,
    done: Vec<MatchLevel>,
    /// Levels whose counts were not to be had.
    uncounted: u32,
}

/// The level that is played.
struct Level {
    /// Its judged time.
    judged: Range<f64>,
    /// When that began, and the counts then.
    began: Option<(f64, Counts)>,
}

impl Level {
    fn new(judged: Range<f64>) -> Level {
        Level { judged, began: None }
    }
}

impl Levels {
    /// Of a measured part of so many seconds.
    pub(crate) fn new(profile: Profile, matches: u32, seconds: u32) -> Levels {
        let mut parts = profile.judged(matches, seconds).into_iter();
        let present = parts.next().map(Level::new);
        Levels { profile, matches, parts, present, done: Vec::new(), uncounted: 0 }
    }

    /// To be called often: it is `at_s` seconds after the beginning. Asks for the counts where a level begins or ends.
    pub(crate) fn look(&mut self, at_s: f64, mut counts: impl FnMut() -> Option<Counts>) {
        while let Some(Level { judged, began }) = &mut self.present {
            if at_s >= judged.start && began.is_none() {
                // If there are none now, the level is judged from the next look on.
                *began = counts().map(|counts| (at_s, counts));
            }
            if at_s < judged.end {
                return;
            }
            self.close(at_s, &mut counts);
        }
    }

    /// The levels that have begun, and how many of them have no figures because there were no counts when they began or ended. The run
    /// ended `at_s` seconds after its beginning.
    pub(crate) fn end(mut self, at_s: f64, mut counts: impl FnMut() -> Option<Counts>) -> (Vec<MatchLevel>, u32) {
        self.look(at_s, &mut counts);
        self.close(at_s, &mut counts);
        (self.done, self.uncounted)
    }

    fn close(&mut self, at_s: f64, counts: &mut impl FnMut() -> Option<Counts>) {
        let next = self.parts.next().map(Level::new);
        let ended = std::mem::replace(&mut self.present, next);
        let Some(Level { judged: part, began }) = ended.filter(|level| level.judged.start <= at_s) else { return };
        let to_s = part.end.min(at_s);
        if began.as_ref().is_some_and(|(from_s, _)| to_s <= *from_s) {
            return;
        }
        let (Some((from_s, before)), Some(after)) = (began, counts()) else {
            self.uncounted += 1;
            return;
        };
        let between = |after: &[(u64, u64)], before: &[(u64, u64)], unit_ns: f64| {
            Percentiles::of(&Times::from(&since(after, before)), unit_ns)
        };
        // Of a ramp the number in the middle.
        let middle = Duration::from_secs_f64((part.start + part.end) / 2.0);
        self.done.push(MatchLevel {
            from_s: part.start,
            to_s,
            matches: self.profile.players_at(self.matches, middle),
            frame_ms: between(&after.frame_ns, &before.frame_ns, 1e6),
            lateness_us: between(&after.late_ns, &before.late_ns, 1e3),
            missed_ticks: after.missed_ticks.saturating_sub(before.missed_ticks),
            cpu_cores: (after.cpu_s - before.cpu_s) / (to_s - from_s),
        });
    }
}

/// The values that have come between two moments.
fn since(after: &[(u64, u64)], before: &[(u64, u64)]) -> Histogram {
    let mut all = Histogram::new();
    let mut before = before.iter().peekable();
    for &(value, count) in after {
        let known = before.next_if(|(known, _)| *known == value).map_or(0, |(_, count)| *count);
        all.record_many(value, count.saturating_sub(known));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of 1 ms for each match, 100 in a second: counts in the moment `at_s` of a load of 1, then 3 matches.
    fn counts(at_s: f64) -> Counts {
        let (one, three) = ((at_s.min(20.0) * 100.0) as u64, ((at_s - 20.0).max(0.0) * 100.0) as u64);
        let of = |value: u64, count: u64| (count > 0).then_some((value, count));
        Counts {
            frame_ns: [of(1_000_000, one), of(3_000_000, three)].into_iter().flatten().collect(),
            late_ns: vec![(5_000, one + three)],
            missed_ticks: three,
            cpu_s: at_s.min(20.0) * 0.1 + (at_s - 20.0).max(0.0) * 0.3,
        }
    }

    #[test]
    fn each_level_has_the_figures_of_its_judged_time_alone() {
        let profile: Profile = "step:1..3:20s".parse().expect("a profile");
        let mut levels = Levels::new(profile, 3, 40);
        for look in 0..800 {
            let at_s = f64::from(look) * 0.05;
            levels.look(at_s, || Some(counts(at_s)));
        }
        let (steps, uncounted) = levels.end(40.0, || Some(counts(40.0)));
        assert_eq!(uncounted, 0);
        let brief: Vec<_> = steps.iter().map(|step| (step.from_s, step.to_s, step.matches)).collect();
        assert_eq!(brief, [(0.0, 20.0, 1), (24.0, 40.0, 3)]);
        let within = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.02;
        assert!(within(steps[0].frame_ms.p99, 1.0) && within(steps[1].frame_ms.p50, 3.0), "{steps:?}");
        assert!(within(steps[1].missed_ticks as f64, 1_600.0) && steps[0].missed_ticks == 0, "{steps:?}");
        assert!(within(steps[0].cpu_cores, 0.1) && within(steps[1].cpu_cores, 0.3), "{steps:?}");
    }

    #[test]
    fn a_run_that_ends_early_has_the_levels_that_were_judged() {
        let stairs: Profile = "staircase:1+1:10s".parse().expect("a profile");
        let mut levels = Levels::new(stairs, 3, 30);
        levels.look(0.0, || Some(counts(0.0)));
        // Nobody looked for long: the first level is judged, and the second one has not been looked at.
        let (steps, _) = levels.end(15.0, || Some(counts(15.0)));
        assert_eq!(steps.iter().map(|step| (step.matches, step.to_s)).collect::<Vec<_>>(), [(1, 10.0)]);
    }

    #[test]
    fn a_level_without_counts_has_no_figures_and_one_that_is_counted_late_has_those_from_then_on() {
        let stairs: Profile = "staircase:1+1:10s".parse().expect("a profile");
        let mut levels = Levels::new(stairs, 3, 30);
        // No answer in the first second, and between 19 and 21 s, when the second level ends.
        for look in 0..300 {
            let at_s = f64::from(look) * 0.1;
            levels.look(at_s, || (at_s >= 1.0 && !(19.0..21.0).contains(&at_s)).then(|| counts(at_s)));
        }
        let (steps, uncounted) = levels.end(30.0, || Some(counts(30.0)));
        assert_eq!((steps.iter().map(|step| step.matches).collect::<Vec<_>>(), uncounted), (vec![1, 3], 1));
        assert!((steps[0].cpu_cores - 0.1).abs() < 0.01, "{steps:?}");
    }
}
