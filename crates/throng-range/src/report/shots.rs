//! Each shot with its verdict, and why.

use std::fmt::Write as _;

use throng_rewind::{BodyId, Case, LogReader, Outcome};

use super::{clock, escaped, name};
use crate::watch::Watched;

/// Shots that are listed.
const SHOTS_LISTED: usize = 400;

pub(super) fn section(watched: &Watched, tick_hz: u32) -> String {
    let title = "<h2 id=\"shots\">Shots and verdicts</h2>";
    let Ok(mut reader) = LogReader::new(&watched.verdicts) else {
        return format!("{title}<p>No shot was fired.</p>");
    };
    let seats = watched.paths.len();
    let (mut case, mut rows, mut counts) = (Case::new(), String::new(), [0_usize; OUTCOMES.len()]);
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
        let _ = write!(
            rows,
            "<tr><td>{}<td>{}<td>{target}<td class=\"text {tag}\">{tag}<td class=\"text\">{}",
            clock(shot.now.0, tick_hz),
            of(shot.shooter),
            escaped(&reason(&why, seats))
        );
    }
    let total: usize = counts.iter().sum();
    let kinds = OUTCOMES.iter().zip(counts).map(|((tag, words), count)| {
        format!("<tr><td class=\"text {tag}\">{tag}<td>{count}<td class=\"text\">{words}")
    });
    let kinds: String = kinds.collect();
    let listed =
        if total > SHOTS_LISTED { format!("the first {SHOTS_LISTED} of {total}") } else { format!("all {total}") };
    format!(
        "{title}<p class=\"note\">The first match. The server judges each shot against the world that the shooter saw, so \
         it turns the targets back by the shooter's latency (<i>rewound</i>).</p>\
         <div class=\"wide\"><table><tr><th>Verdict<th>shots<th class=\"text\">meaning{kinds}</table></div>\
         <p class=\"note\">Listed: {listed}.</p>\
         <div class=\"wide\"><table><tr><th>Time<th>by<th>at<th class=\"text\">verdict<th class=\"text\">why{rows}</table></div>"
    )
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
