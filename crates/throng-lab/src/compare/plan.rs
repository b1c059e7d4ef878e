//! The order of all runs of a comparison.

use std::fmt;

use throng_crowd::scenario::{Overrides, Scenario, Scratch};

use super::{CompareOptions, Contestant};

/// One run that is to be played.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// Name or file of the scenario.
    pub workload: String,
    /// The contestant.
    pub contestant: Contestant,
    /// Which repetition, from 0.
    pub round: u32,
    /// Settings that override the scenario's, the contestant's model included.
    pub overrides: Overrides,
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let players = self.overrides.players.map(|players| format!(" with {players} players")).unwrap_or_default();
        write!(f, "{}{players}, {}, round {}", self.workload, self.contestant, self.round + 1)
    }
}

impl Turn {
    /// The number of players; 0 if there is no such scenario.
    pub fn players(&self) -> u32 {
        Scenario::resolve(&self.workload, &self.overrides).map_or(0, |scenario| scenario.players)
    }

    /// The length of the run with its warm-up, in seconds; 0 if there is no such scenario.
    pub fn seconds(&self) -> u32 {
        let scenario = Scenario::resolve(&self.workload, &self.overrides);
        scenario.map_or(0, |scenario| scenario.warmup_seconds + scenario.seconds)
    }
}

/// The workload whose runs are measured only when everybody has reached the middle.
const CONVERGE: &str = "converge";
/// By then all characters have reached the centre: they start at most 800 m away and run at 5 m/s.
const CONVERGE_WARMUP_S: u32 = 165;

/// Every run of a comparison, in order: round by round, and in each round every workload and size with every
/// contestant, so that all runs that are compared within a round ran close together. Growth is played in the first
/// workload, and not for a number of players that the workload itself is played with.
pub fn turns(options: &CompareOptions) -> Vec<Turn> {
    let cells = cells(options);
    let mut turns = Vec::new();
    for round in 0..options.repeat.max(1) {
        for &(workload, players) in &cells {
            add_round(options, (workload, players), round, &mut turns);
        }
    }
    turns
}

/// Workloads, each with the number of players that is not its own.
fn cells(options: &CompareOptions) -> Vec<(&str, Option<u32>)> {
    let mut cells: Vec<_> = options.workloads.iter().map(|workload| (workload.as_str(), None)).collect();
    let Some(first) = options.workloads.first() else { return cells };
    let already = Scenario::resolve(first, &options.overrides).map(|scenario| scenario.players).ok();
    let growth = options.growth.iter().filter(|&&players| Some(players) != already);
    cells.extend(growth.map(|&players| (first.as_str(), Some(players))));
    cells
}

fn add_round(options: &CompareOptions, (workload, players): (&str, Option<u32>), round: u32, turns: &mut Vec<Turn>) {
    let count = options.contestants.len();
    for place in 0..count {
        let contestant = options.contestants[(place + round as usize) % count];
        turns.push(Turn {
            workload: workload.to_owned(),
            contestant,
            round,
            overrides: overrides(options, workload, players, contestant),
        });
    }
}

fn overrides(options: &CompareOptions, workload: &str, players: Option<u32>, contestant: Contestant) -> Overrides {
    let mut overrides = options.overrides.clone();
    overrides.players = players.or(overrides.players);
    overrides.model = Some(contestant.model);
    // Left out if it has the default value, so that the command of a run stays short.
    overrides.scratch = Some(contestant.scratch).filter(|&scratch| scratch != Scratch::default());
    overrides.baselines = contestant.has_baselines;
    overrides.send_slowdown_percent = contestant.check.send_slowdown_percent();
    if workload == CONVERGE {
        overrides.warmup_seconds = overrides.warmup_seconds.or(Some(CONVERGE_WARMUP_S));
    }
    overrides
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn options(workloads: &[&str], repeat: u32, growth: &[u32]) -> CompareOptions {
        CompareOptions {
            workloads: workloads.iter().map(|&name| name.to_owned()).collect(),
            contestants: ["legacy", "throng"].map(|name| name.parse().unwrap()).to_vec(),
            repeat,
            overrides: Overrides { seconds: Some(4), ..Overrides::default() },
            growth: growth.to_vec(),
            runs: PathBuf::from("runs"),
        }
    }

    fn spoken(options: &CompareOptions) -> Vec<String> {
        turns(options).iter().map(Turn::to_string).collect()
    }

    #[test]
    fn rounds_are_interleaved_and_begin_with_another_contestant_each() {
        let expected = ["legacy, round 1", "throng, round 1", "throng, round 2", "legacy, round 2"];
        assert_eq!(spoken(&options(&["dense"], 2, &[])), expected.map(|text| format!("dense, {text}")));
    }

    #[test]
    fn a_round_plays_every_workload_and_size_before_the_next_begins() {
        let turns = turns(&options(&["dense", "sparse"], 3, &[25]));
        let rounds: Vec<u32> = turns.iter().map(|turn| turn.round).collect();
        assert_eq!(rounds, [[0; 6], [1; 6], [2; 6]].concat());
        let places = |round: usize| {
            turns[round * 6..][..6].iter().map(|turn| (turn.workload.clone(), turn.players())).collect::<Vec<_>>()
        };
        assert_eq!(places(0), places(2));
        assert_eq!((places(0)[0].1, places(0)[4].1), (100, 25));
    }

    #[test]
    fn growth_is_played_in_the_first_workload_and_not_twice_at_its_own_size() {
        let turns = spoken(&options(&["dense", "sparse"], 1, &[25, 100, 400]));
        assert_eq!(turns.len(), 2 + 2 + 2 + 2);
        assert!(turns[4].starts_with("dense with 25 players") && turns[6].starts_with("dense with 400 players"));
    }

    #[test]
    fn converge_is_measured_when_all_have_arrived() {
        let turns = turns(&options(&["converge", "dense"], 1, &[]));
        assert_eq!(turns[0].overrides.warmup_seconds, Some(165));
        assert_eq!(turns[2].overrides.warmup_seconds, None);
        assert_eq!(turns[0].overrides.seconds, Some(4));
        assert_eq!(turns[0].seconds(), 165 + 4);
        assert_eq!(Turn { workload: "nowhere".to_owned(), ..turns[0].clone() }.seconds(), 0);
    }
}
