//! The enemies that the fog hid: from which viewers, and when.

use throng_report::{Cell, Mark, Picture, Section, Shape, Table};
use throng_tactical::Event;

use super::name;
use crate::check::{Moments, Veil};
use crate::watch::Watched;

/// The time line: width of the picture, of its names, and height of a row.
const WIDTH: f32 = 900.0;
const NAMES: f32 = 60.0;
const ROW: f32 = 11.0;
/// Space above the first row, for the numbers of the rounds.
const HEAD: f32 = 18.0;

const SHOWN: [(Veil, &str, &str); 4] = [
    (Veil::Sent, "seal", "the enemy was sent"),
    (Veil::Map, "grey-3", "hidden by the map"),
    (Veil::Ability, "quantise", "hidden by a smoke or a raised wall"),
    (Veil::Fault, "bad", "hidden although in sight: a fault"),
];

pub(super) fn section(moments: &Moments, watched: &Watched) -> Section {
    let section = Section::new("Fog");
    if moments.ticks.is_empty() {
        return section.note("Not known: the match was not replayed, or no round was live.");
    }
    let note = format!(
        "What the fog hid from whom. The replay of the first match looks at each living viewer and each living enemy every {:.3} s \
         of the live phases. An enemy is hidden if the viewer's client was sent nothing about it. 18 rays from the viewer's \
         eye to the enemy's body say why.",
        moments.step_s
    );
    let half = moments.seats / 2;
    section
        .note(&note)
        .with(matrix(moments, 0..half, half..moments.seats))
        .with(matrix(moments, half..moments.seats, 0..half))
        .with(time_line(moments, watched))
}

fn matrix(moments: &Moments, viewers: std::ops::Range<usize>, enemies: std::ops::Range<usize>) -> Table {
    let mut table = Table::new("Seconds hidden, of those in which both lived", "");
    table.head = std::iter::once(Cell::from("viewer"))
        .chain(enemies.clone().map(|enemy| Cell::number(name(enemy, moments.seats))))
        .collect();
    for viewer in viewers {
        let cells = enemies.clone().map(|enemy| {
            let seconds = |is: fn(Veil) -> bool| {
                moments.of(viewer, enemy).filter(|veil| is(*veil)).count() as f64 * moments.step_s
            };
            let both = seconds(|veil| veil != Veil::None);
            let hidden = seconds(|veil| !matches!(veil, Veil::None | Veil::Sent));
            let ability = seconds(|veil| veil == Veil::Ability);
            let brackets = if ability > 0.0 { format!(" ({ability:.1})") } else { String::new() };
            let shade = (both > 0.0).then(|| hidden / both);
            Cell { shade, ..Cell::number(format!("{hidden:.1} of {both:.1}{brackets}")) }
        });
        table.push(std::iter::once(Cell::from(name(viewer, moments.seats))).chain(cells));
    }
    table.note = "A row for each viewer, a column for each enemy. In brackets: of the hidden seconds, those by smokes and raised walls alone.".to_owned();
    table
}

/// A row for each pair, with a bar for each stretch of equal veils.
fn time_line(moments: &Moments, watched: &Watched) -> Picture {
    let half = moments.seats / 2;
    let pairs = (0..moments.seats).flat_map(|viewer| {
        let enemies = if viewer < half { half..moments.seats } else { 0..half };
        enemies.map(move |enemy| (viewer, enemy))
    });
    let pairs: Vec<(usize, usize)> = pairs.collect();
    let count = moments.ticks.len() as f32;
    let at = |place: f32| NAMES + (WIDTH - NAMES) * place / count;
    let height = HEAD + ROW * pairs.len() as f32;
    let line = |points: [(f32, f32); 2], ink: &str| Mark {
        shape: Shape::Path(points.to_vec()),
        line: ink.to_owned(),
        width: 0.7,
        ..Mark::default()
    };
    let text =
        |x: f32, y: f32, size: f32, words: String| Mark { shape: Shape::Text(x, y, size, words), ..Mark::default() };
    let (mut marks, mut row_y, mut former) = (Vec::new(), HEAD, usize::MAX);
    for (viewer, enemy) in pairs {
        if viewer != former {
            former = viewer;
            marks.push(line([(0.0, row_y), (WIDTH, row_y)], "line"));
        }
        let names = (name(viewer, moments.seats), name(enemy, moments.seats));
        marks.push(text(0.0, row_y + ROW - 2.0, 9.0, format!("{} of {}", names.0, names.1)));
        let veils: Vec<Veil> = moments.of(viewer, enemy).collect();
        let mut from = 0;
        for stretch in veils.chunk_by(|a, b| a == b) {
            if let Some((_, ink, words)) = SHOWN.iter().find(|(veil, _, _)| *veil == stretch[0]) {
                let seconds = stretch.len() as f64 * moments.step_s;
                marks.push(Mark {
                    shape: Shape::Box(at(from as f32), row_y + 1.5, at(stretch.len() as f32) - NAMES, ROW - 3.0),
                    fill: (*ink).to_owned(),
                    title: format!("{} and {}: {words}, {seconds:.1} s", names.0, names.1),
                    ..Mark::default()
                });
            }
            from += stretch.len();
        }
        row_y += ROW;
    }
    for (number, tick) in live_rounds(watched) {
        let x = at(moments.ticks.partition_point(|moment| *moment < tick) as f32);
        marks.push(line([(x, 0.0), (x, height)], "ink"));
        marks.push(text(x + 3.0, 11.0, 11.0, format!("round {number}")));
    }
    Picture {
        title: "When: a row for each viewer and enemy (A1 of D1: what A1 was sent of D1), live phases only; empty: one of the two is dead".to_owned(),
        alternative: "Time line of what each viewer was sent of each enemy; the tables above have the sums".to_owned(),
        size: (f64::from(WIDTH), f64::from(height)),
        least_width: 540,
        key: SHOWN.map(|(_, ink, words)| (ink.to_owned(), words.to_owned())).to_vec(),
        marks,
    }
}

/// Rounds with the ticks in which they went live.
fn live_rounds(watched: &Watched) -> Vec<(u16, u64)> {
    let mut number = 0;
    let live = |(tick, event): &(u64, Event)| match event {
        Event::RoundBegan { round } => {
            number = *round;
            None
        }
        Event::WentLive => Some((number, *tick)),
        _ => None,
    };
    watched.events.iter().filter_map(live).collect()
}
