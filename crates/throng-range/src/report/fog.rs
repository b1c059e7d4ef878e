//! The enemies that the fog hid: from which viewers, and when.

use std::fmt::Write as _;

use throng_tactical::Event;

use super::name;
use crate::check::{Moments, Veil};
use crate::watch::Watched;

/// The time line: width of the picture, of its names, and height of a row.
const WIDTH: f64 = 900.0;
const NAMES: f64 = 60.0;
const ROW: f64 = 11.0;
/// Space above the first row, for the numbers of the rounds.
const HEAD: f64 = 18.0;

const SHOWN: [(Veil, &str, &str); 4] = [
    (Veil::Sent, "#2e9e57", "the enemy was sent"),
    (Veil::Map, "#55606e", "hidden by the map"),
    (Veil::Ability, "#8e5cc9", "hidden by a smoke or a raised wall"),
    (Veil::Fault, "#e02020", "hidden although in sight: a fault"),
];

pub(super) fn section(moments: &Moments, watched: &Watched) -> String {
    let mut text = "<h2 id=\"fog\">What the fog hid from whom</h2>".to_owned();
    if moments.ticks.is_empty() {
        return text + "<p>Not known: the match was not replayed, or no round was live.</p>";
    }
    let _ = write!(
        text,
        "<p class=\"note\">The replay of the first match looks at each living viewer and each living enemy every \
         {:.3} s of the live phases. An enemy is hidden if the viewer's client was sent nothing about it. 18 rays from \
         the viewer's eye to the enemy's body say why.</p><h3>Seconds hidden, of the seconds in which both lived</h3>\
         <p class=\"note\">A row for each viewer, a column for each enemy. In brackets: of the hidden seconds, those by smokes \
         and raised walls alone.</p>",
        moments.step_s
    );
    let half = moments.seats / 2;
    text += &matrix(moments, 0..half, half..moments.seats);
    text += &matrix(moments, half..moments.seats, 0..half);
    text + &time_line(moments, watched)
}

fn matrix(moments: &Moments, viewers: std::ops::Range<usize>, enemies: std::ops::Range<usize>) -> String {
    let mut text = "<div class=\"wide\"><table><tr><th>Viewer".to_owned();
    for enemy in enemies.clone() {
        let _ = write!(text, "<th>{}", name(enemy, moments.seats));
    }
    for viewer in viewers {
        let _ = write!(text, "<tr><td>{}", name(viewer, moments.seats));
        for enemy in enemies.clone() {
            let seconds = |is: fn(Veil) -> bool| {
                moments.of(viewer, enemy).filter(|veil| is(*veil)).count() as f64 * moments.step_s
            };
            let both = seconds(|veil| veil != Veil::None);
            let hidden = seconds(|veil| !matches!(veil, Veil::None | Veil::Sent));
            let ability = seconds(|veil| veil == Veil::Ability);
            let share = if both > 0.0 { hidden / both } else { 0.0 };
            let brackets = if ability > 0.0 { format!(" ({ability:.1})") } else { String::new() };
            let _ = write!(
                text,
                "<td class=\"matrix\" style=\"background:rgba(85,96,110,{:.2})\">{hidden:.1} of {both:.1}{brackets}",
                share * 0.45
            );
        }
    }
    text + "</table></div>"
}

/// A row for each pair, with a bar for each stretch of equal veils.
fn time_line(moments: &Moments, watched: &Watched) -> String {
    let half = moments.seats / 2;
    let pairs = (0..moments.seats).flat_map(|viewer| {
        let enemies = if viewer < half { half..moments.seats } else { 0..half };
        enemies.map(move |enemy| (viewer, enemy))
    });
    let pairs: Vec<(usize, usize)> = pairs.collect();
    let count = moments.ticks.len() as f64;
    let at = |place: f64| NAMES + (WIDTH - NAMES) * place / count;
    let height = HEAD + ROW * pairs.len() as f64;
    let mut svg =
        "<h3>When</h3><p class=\"note\">A row for each viewer and enemy (<i>A1 of D1</i>: what A1 was sent of D1); live phases only, one after the other. White: one of the two is dead."
            .to_owned();
    for (_, colour, words) in SHOWN {
        let _ = write!(
            svg,
            " <span class=\"words\"><span class=\"key\" style=\"background:{colour}\"></span>{words}</span>"
        );
    }
    let _ =
        write!(svg, "</p><div class=\"wide\"><svg viewBox=\"0 0 {WIDTH:.0} {height:.0}\" style=\"min-width:34rem\">");
    let (mut row_y, mut former) = (HEAD, usize::MAX);
    for (viewer, enemy) in pairs {
        if viewer != former {
            former = viewer;
            let _ = write!(svg, "<path d=\"M0 {row_y:.1}H{WIDTH:.0}\" stroke=\"#c6cdd6\"/>");
        }
        let names = (name(viewer, moments.seats), name(enemy, moments.seats));
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{:.1}\" font-size=\"9\">{} of {}</text>",
            row_y + ROW - 2.0,
            names.0,
            names.1
        );
        let veils: Vec<Veil> = moments.of(viewer, enemy).collect();
        let mut from = 0;
        for stretch in veils.chunk_by(|a, b| a == b) {
            let shown = SHOWN.iter().find(|(veil, _, _)| *veil == stretch[0]);
            if let Some((_, colour, words)) = shown {
                let (x, width) = (at(from as f64), at(stretch.len() as f64) - NAMES);
                let _ = write!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{colour}\"><title>{} and {}: {words}, \
                     {:.1} s</title></rect>",
                    row_y + 1.5,
                    ROW - 3.0,
                    names.0,
                    names.1,
                    stretch.len() as f64 * moments.step_s
                );
            }
            from += stretch.len();
        }
        row_y += ROW;
    }
    for (number, tick) in live_rounds(watched) {
        let x = at(moments.ticks.partition_point(|moment| *moment < tick) as f64);
        let _ = write!(
            svg,
            "<path d=\"M{x:.1} 0V{height:.0}\" stroke=\"#1b2430\" stroke-width=\".7\"/><text x=\"{:.1}\" y=\"11\" \
             font-size=\"11\">round {number}</text>",
            x + 3.0
        );
    }
    svg + "</svg></div>"
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
