//! Each shot with its verdict, and why.

use throng_report::{Cell, Section, Table};
use throng_rewind::{BodyId, Case, LogReader, Outcome};

use super::{clock, name};
use crate::watch::Watched;

/// Shots that are listed.
const SHOTS_LISTED: usize = 400;

pub(super) fn section(watched: &Watched, tick_hz: u32) -> Section {
    let section = Section::new("Shots");
    let Ok(mut reader) = LogReader::new(&watched.verdicts) else { return section.note("No shot was fired.") };
    let seats = watched.paths.len();
    let (mut case, mut counts) = (Case::new(), [0_usize; OUTCOMES.len()]);
    let mut shots = Table::new("", "time | by | at | verdict | why").wide();
    while let Ok(Some(verdict)) = reader.next(&mut case) {
        let tag = verdict.tag();
        if let Some(count) = OUTCOMES.iter().position(|(name, _)| *name == tag).and_then(|at| counts.get_mut(at)) {
            *count += 1;
        }
        if counts.iter().sum::<usize>() > SHOTS_LISTED {
            continue;
        }
        let (shot, why) = (case.shot(), verdict.why(reader.models()).to_string());
        let of = |body: BodyId| name(usize::from(body.0), seats);
        let target = match verdict.outcome {
            Outcome::Hit(struck) | Outcome::Blocked(struck) | Outcome::Escaped { struck, .. } => of(struck.body),
            Outcome::Missed(Some(near)) => of(near.body),
            Outcome::Missed(None) => "–".to_owned(),
        };
        shots.push([
            Cell::from(clock(shot.now.0, tick_hz)),
            Cell::from(of(shot.shooter)),
            Cell::from(target),
            Cell::from(tag),
            Cell::from(reason(&why, seats)),
        ]);
    }
    let total: usize = counts.iter().sum();
    let mut kinds = Table::new("", "verdict | #shots | meaning").wide();
    for ((tag, words), count) in OUTCOMES.iter().zip(counts) {
        kinds.push([Cell::from(*tag), Cell::number(count.to_string()), Cell::from(*words)]);
    }
    shots.note = match total {
        total if total > SHOTS_LISTED => format!("Listed: the first {SHOTS_LISTED} of {total}."),
        total => format!("Listed: all {total}."),
    };
    section
        .note(
            "The first match. The server judges each shot against the world that the shooter saw, so it turns the targets back \
             by the shooter's latency (rewound).",
        )
        .with(kinds)
        .with(shots)
}
/// The words of a verdict, and what they mean.
const OUTCOMES: [(&str, &str); 4] = [
    ("hit", "the shot met a capsule of a target"),
    ("blocked", "it would have met one, and the map or a raised wall was before it"),
    ("escaped", "it would have met one, and the target's dash had begun before the shot"),
    ("missed", "it met no target; with the nearest one, if that was within half a metre"),
];

/// The text of a verdict in the words of the page: names of players for the numbers of their bodies, and the map for one of
/// its surfaces. The game gives each seat the body of the same number.
fn reason(why: &str, seats: usize) -> String {
    let text =
        (0..seats).rev().fold(why.to_owned(), |text, seat| text.replace(&format!("body {seat}"), &name(seat, seats)));
    match text.split_once(" (surface ").and_then(|(before, rest)| Some((before, rest.split_once(')')?.1))) {
        Some((before, after)) => format!("{}{after}", before.replace("the world", "the map")),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_the_names_of_their_players() {
        assert_eq!(reason("hit head of body 10 at 3.20 m", 12), "hit head of D5 at 3.20 m");
        let blocked = "blocked by the world (surface 64) at 1.00 m, would have hit hand of body 3";
        assert_eq!(reason(blocked, 10), "blocked by the map at 1.00 m, would have hit hand of A4");
        assert_eq!(reason("missed by 0.1 m: hand of body 1", 12), "missed by 0.1 m: hand of A2");
    }
}
