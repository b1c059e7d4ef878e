//! The map from above, with the ways of the players.

use glam::{Vec3, vec3};
use throng_report::{Mark, Picture, Section, Shape};
use throng_sight::{Map, Ray, town};
use throng_tactical::{Event, SMOKE_RADIUS_M};

use super::name;
use crate::Stage;
use crate::watch::Watched;

/// Cells along the longer side.
const CELLS: usize = 160;
/// Width of the picture.
const WIDTH: f32 = 900.0;
/// Steps of grey.
const GREYS: usize = 5;

struct Plan {
    low: Vec3,
    scale: f32,
    height: f32,
}

impl Plan {
    fn new(map: &Map) -> Plan {
        let [low, high] = map.bounds();
        let size = high - low;
        let scale = WIDTH / size.x.max(1.0);
        Plan { low, scale, height: size.z * scale }
    }

    /// To a tenth of a point, which keeps the file small.
    fn at(&self, place: Vec3) -> (f32, f32) {
        (tenths((place.x - self.low.x) * self.scale), tenths((place.z - self.low.z) * self.scale))
    }
}

fn tenths(value: f32) -> f32 {
    (value * 10.0).round() / 10.0
}

/// The colour of a seat's team.
fn team(seat: usize, seats: usize) -> String {
    if seat < seats / 2 { "attackers" } else { "defenders" }.to_owned()
}

pub(super) fn section(watched: &Watched, stage: &Stage) -> Section {
    let plan = Plan::new(stage.map());
    let seats = watched.paths.len().max(1);
    let mut marks = ground(stage.map(), &plan);
    for (seat, path) in watched.paths.iter().enumerate() {
        for part in path.split(Option::is_none).filter(|part| part.len() > 1) {
            let points: Vec<(f32, f32)> = part.iter().flatten().map(|place| plan.at(*place)).collect();
            let Some(&(x, y)) = points.last() else { continue };
            marks.push(Mark {
                shape: Shape::Path(points),
                line: team(seat, seats),
                width: 1.2,
                opacity: 0.6,
                title: name(seat, seats),
                ..Mark::default()
            });
            let text = Shape::Text(x, y, 11.0, name(seat, seats));
            marks.push(Mark { shape: text, fill: team(seat, seats), ..Mark::default() });
        }
    }
    marks.extend(watched.events.iter().filter_map(|(_, event)| mark(event, &plan, seats)));
    let picture = Picture {
        title: String::new(),
        alternative: "The map from above with the ways of all players; the events below tell the same in words"
            .to_owned(),
        size: (f64::from(WIDTH), f64::from(plan.height)),
        least_width: 0,
        key: [
            ("attackers", "attackers, A1 to A5"),
            ("defenders", "defenders, D1 to D5"),
            ("quantise", "a raised wall"),
            ("bad", "the bomb"),
        ]
        .map(|(ink, words)| (ink.to_owned(), words.to_owned()))
        .to_vec(),
        marks,
    };
    Section::new("Map")
        .note(
            "The first match. Ground and roofs have shades by their height. A name stands where each way of a round ends. Thin \
             broken lines: shots, from the eye to the point where they ended. Dots: deaths. Rings: smokes. Bars: raised walls. \
             Square: the planted bomb. Point at a mark for its name.",
        )
        .with(picture)
}

fn mark(event: &Event, plan: &Plan, seats: usize) -> Option<Mark> {
    let mark = match event {
        Event::Shot { by, from, to, .. } => {
            let ((x, y), (to_x, to_y)) = (plan.at(*from), plan.at(*to));
            Mark {
                shape: Shape::Dashes(x, y, to_x, to_y),
                line: team(by.index(), seats),
                width: 0.5,
                ..Mark::default()
            }
        }
        Event::Died { seat, by, at, .. } => {
            let (x, y) = plan.at(*at);
            let killer = by.map_or(String::new(), |by| format!(", killed by {}", name(by.index(), seats)));
            Mark {
                shape: Shape::Circle(x, y, 5.0),
                fill: team(seat.index(), seats),
                line: "ink".to_owned(),
                title: format!("{} dies{killer}", name(seat.index(), seats)),
                ..Mark::default()
            }
        }
        Event::Smoke { by, at } => {
            let (x, y) = plan.at(*at);
            Mark {
                shape: Shape::Circle(x, y, tenths(SMOKE_RADIUS_M * plan.scale)),
                fill: "movement".to_owned(),
                line: "ink".to_owned(),
                opacity: 0.3,
                title: format!("smoke of {}", name(by.index(), seats)),
                ..Mark::default()
            }
        }
        Event::Wall { by, at } => {
            let (x, y) = plan.at(*at);
            let title = format!("wall of {}", name(by.index(), seats));
            Mark {
                shape: Shape::Box(x - 6.0, y - 2.0, 12.0, 4.0),
                fill: "quantise".to_owned(),
                title,
                ..Mark::default()
            }
        }
        Event::Planted { by, at, site } => {
            let (x, y) = plan.at(*at);
            let title = format!("{} plants the bomb at {site}", name(by.index(), seats));
            let shape = Shape::Box(x - 6.0, y - 6.0, 12.0, 12.0);
            Mark { shape, line: "bad".to_owned(), width: 3.0, title, ..Mark::default() }
        }
        _ => return None,
    };
    Some(mark)
}

/// The heights seen from straight above, in steps of grey; equal neighbours in a row are one rectangle.
fn ground(map: &Map, plan: &Plan) -> Vec<Mark> {
    let [low, high] = map.bounds();
    let cell_m = (high - low).x.max((high - low).z).max(1.0) / CELLS as f32;
    let (columns, rows) = (((high - low).x / cell_m).ceil() as usize, ((high - low).z / cell_m).ceil() as usize);
    let grey = |column: usize, row: usize| {
        let above = vec3(low.x + (column as f32 + 0.5) * cell_m, high.y + 1.0, low.z + (row as f32 + 0.5) * cell_m);
        let ray = Ray::new(above, Vec3::NEG_Y, high.y - low.y + 2.0).ok()?;
        let height = ray.at(map.closest(&ray, town::BODIES)?.distance_m).y - low.y;
        // The lowest steps are ground, and the rest are walls and roofs.
        Some(((height / 3.0) as usize).min(GREYS - 1))
    };
    let mut marks = Vec::new();
    let side = cell_m * plan.scale;
    for row in 0..rows {
        let mut column = 0;
        while column < columns {
            let (first, shade) = (column, grey(column, row));
            while column < columns && grey(column, row) == shade {
                column += 1;
            }
            let Some(shade) = shade else { continue };
            let [x, y, width] = [first as f32 * side, row as f32 * side, (column - first) as f32 * side].map(tenths);
            let shape = Shape::Box(x, y, width, tenths(side));
            marks.push(Mark { shape, fill: format!("grey-{shade}"), ..Mark::default() });
        }
    }
    marks
}
