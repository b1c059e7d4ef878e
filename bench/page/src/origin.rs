//! Where the figures are from: machine, revisions and commands; what was run, and what was not.

use std::path::Path;

use super::evidence::rounds;
use super::markdown::{command, program};
use super::peers::Peers;
use super::{Sources, coverage};
use throng_report::bytes;

/// The suffix of a revision whose sources were changed.
const DIRTY: &str = "-dirty";

pub(super) fn render(sources: &Sources, root: &Path) -> String {
    let comparisons = &sources.comparisons;
    let Some(machine) = comparisons.first().map(|comparison| &comparison.head.environment) else {
        return format!("Nothing was run.\n\n{}", coverage::render(comparisons, &sources.peers.rows));
    };
    let kind = if machine.virtual_machine { " (virtual)" } else { "" };
    let memory = bytes(machine.memory_bytes as f64);
    let mut text = format!(
        "Machine: {}, {} cores{kind}, {memory}, {}. throng {}. The blocks on models and peers were written by\n\n    {}\n\n\
         from the files of these runs; a revision in bold is not that of the other runs, or its sources were changed:\n\n",
        machine.cpu,
        machine.cores,
        machine.kernel,
        machine.version,
        program(&sources.arguments(), root)
    );
    let mut revisions: Vec<&str> = comparisons.iter().map(|comparison| comparison.head.revision.as_str()).collect();
    revisions.extend(Some(sources.peers.revision.as_str()).filter(|revision| !revision.is_empty()));
    for (number, comparison) in comparisons.iter().enumerate() {
        let revision = emphasised(&comparison.head.revision, &revisions);
        text += &format!("{}. {}, revision {revision}:\n\n", number + 1, comparison.head.started_at);
        text += &format!("       {}\n\n", command(&comparison.head.environment.command_line, root));
    }
    text += &of_peers(&sources.peers, &revisions, comparisons.len() + 1);
    text + &coverage::render(comparisons, &sources.peers.rows)
}

fn of_peers(peers: &Peers, revisions: &[&str], number: usize) -> String {
    let Some(count) = peers.rows.iter().map(|row| row.rounds).max() else { return String::new() };
    let mut text = format!("{number}. the open peers, {}", rounds(count as usize));
    if !peers.started_at.is_empty() {
        text += &format!(", {}", peers.started_at);
    }
    match peers.revision.as_str() {
        "" => text += ", revision **not noted**",
        revision => text += &format!(", revision {}", emphasised(revision, revisions)),
    }
    if let Some(machine) = &peers.machine {
        text += &format!(", on {}, {} cores, {}", machine.cpu, machine.cores, machine.kernel);
    }
    let command = if peers.command_line.is_empty() { "bench/peers/run" } else { &peers.command_line };
    text + &format!(":\n\n       {command}\n\n")
}

/// A revision; in bold if it is not known, if its sources were changed, or if most of all are others.
fn emphasised(revision: &str, all: &[&str]) -> String {
    let commit = |revision: &str| revision.trim_end_matches(DIRTY).to_owned();
    // One is written with more digits than another.
    let is_same =
        |other: &str| commit(other).starts_with(&commit(revision)) || commit(revision).starts_with(&commit(other));
    let same = all.iter().filter(|other| is_same(other)).count();
    let is_odd = same * 2 <= all.len() && all.len() > 1;
    match revision.ends_with(DIRTY) || revision == throng_machine::UNKNOWN || is_odd {
        true => format!("**{revision}**"),
        false => revision.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_that_are_dirty_or_not_those_of_the_others_are_in_bold() {
        let of = |all: &[&str]| all.iter().map(|revision| emphasised(revision, all)).collect::<Vec<_>>();
        assert_eq!(of(&["aaaa", "aaaa"]), ["aaaa", "aaaa"]);
        assert_eq!(of(&["aaaa", "aaaa-dirty"]), ["aaaa", "**aaaa-dirty**"]);
        assert_eq!(of(&["aaaa", "aaaa", "bbbb"]), ["aaaa", "aaaa", "**bbbb**"]);
        assert_eq!(of(&["aaaa", "bbbb"]), ["**aaaa**", "**bbbb**"]);
        assert_eq!(of(&["aaaa", "aaaa99"]), ["aaaa", "aaaa99"], "one commit, in more digits");
        assert_eq!(of(&["unknown"]), ["**unknown**"]);
    }
}
