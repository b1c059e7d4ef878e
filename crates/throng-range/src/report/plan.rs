//! The map from above, with the ways of the players.

use std::fmt::Write as _;

use glam::{Vec3, vec3};
use throng_sight::{Map, Ray, town};
use throng_tactical::{Event, SMOKE_RADIUS_M};

use super::name;
use crate::Stage;
use crate::watch::Watched;

/// Cells along the longer side.
const CELLS: usize = 160;
/// Width of the picture.
const WIDTH: f32 = 900.0;
/// Colours of the teams.
const ATTACKERS: &str = "#2f6fd0";
const DEFENDERS: &str = "#c8641a";
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

    fn at(&self, place: Vec3) -> (f32, f32) {
        ((place.x - self.low.x) * self.scale, (place.z - self.low.z) * self.scale)
    }
}

pub(super) fn section(watched: &Watched, stage: &Stage) -> String {
    let plan = Plan::new(stage.map());
    let mut svg = format!(
        "<h2 id=\"map\">The map from above</h2><p class=\"note\">The first match. Darker ground is higher. Ways of \
         <b style=\"color:{ATTACKERS}\">attackers</b> and <b style=\"color:{DEFENDERS}\">defenders</b>; a name where each way of a round ends. Thin lines: shots, from the eye to the point where they ended. Dots: deaths. Rings: \
         smokes. Bars: raised walls. Red square: the planted bomb. Point at a mark for its name.</p>\
         <svg viewBox=\"0 0 {WIDTH:.0} {:.0}\" style=\"background:#fff\">",
        plan.height
    );
    svg += &ground(stage.map(), &plan);
    let seats = watched.paths.len().max(1);
    for (seat, path) in watched.paths.iter().enumerate() {
        let colour = if seat < seats / 2 { ATTACKERS } else { DEFENDERS };
        for part in path.split(Option::is_none).filter(|part| part.len() > 1) {
            let points: String = part.iter().flatten().map(|place| point(&plan, *place)).collect();
            let _ = write!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\" stroke-opacity=\".6\" points=\"{points}\"><title>{}</title></polyline>",
                name(seat, seats)
            );
            let Some((x, y)) = part.iter().flatten().last().map(|place| plan.at(*place)) else { continue };
            let _ = write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"11\" fill=\"{colour}\">{}</text>",
                name(seat, seats)
            );
        }
    }
    for (_, event) in &watched.events {
        svg += &mark(event, &plan, seats);
    }
    svg + "</svg>"
}

fn mark(event: &Event, plan: &Plan, seats: usize) -> String {
    match event {
        Event::Shot { by, from, to, .. } => {
            let ((x, y), (to_x, to_y)) = (plan.at(*from), plan.at(*to));
            let colour = if by.index() < seats / 2 { ATTACKERS } else { DEFENDERS };
            format!(
                "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{to_x:.1}\" y2=\"{to_y:.1}\" stroke=\"{colour}\" stroke-width=\".5\" \
                 stroke-dasharray=\"3 2\"/>"
            )
        }
        Event::Died { seat, by, at, .. } => {
            let colour = if seat.index() < seats / 2 { "#163f82" } else { "#8f4209" };
            let (x, y) = plan.at(*at);
            let killer = by.map_or(String::new(), |by| format!(", killed by {}", name(by.index(), seats)));
            format!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\" stroke=\"#fff\"><title>{} dies{killer}\
                 </title></circle>",
                name(seat.index(), seats)
            )
        }
        Event::Smoke { by, at } => {
            let ((x, y), radius) = (plan.at(*at), SMOKE_RADIUS_M * plan.scale);
            format!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" fill=\"#7a8794\" fill-opacity=\".25\" stroke=\"#7a8794\">\
                 <title>smoke of {}</title></circle>",
                name(by.index(), seats)
            )
        }
        Event::Wall { by, at } => {
            let (x, y) = plan.at(*at);
            let (x, y) = (x - 6.0, y - 2.0);
            format!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"4\" fill=\"#6b3fa0\"><title>wall of {}</title></rect>",
                name(by.index(), seats)
            )
        }
        Event::Planted { by, at, site } => {
            let (x, y) = plan.at(*at);
            let (x, y) = (x - 6.0, y - 6.0);
            format!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\" fill=\"none\" stroke=\"#b3261e\" stroke-width=\"3\">\
                 <title>{} plants the bomb at {site}</title></rect>",
                name(by.index(), seats)
            )
        }
        _ => String::new(),
    }
}

fn point(plan: &Plan, place: Vec3) -> String {
    let (x, y) = plan.at(place);
    format!("{x:.1},{y:.1} ")
}

/// The heights seen from straight above, in steps of grey; equal neighbours in a row are one rectangle.
fn ground(map: &Map, plan: &Plan) -> String {
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
    let mut svg = String::new();
    let side = cell_m * plan.scale;
    for row in 0..rows {
        let mut column = 0;
        while column < columns {
            let (first, shade) = (column, grey(column, row));
            while column < columns && grey(column, row) == shade {
                column += 1;
            }
            let Some(shade) = shade else { continue };
            let level = 240 - shade * 34;
            let _ = write!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{side:.1}\" fill=\"rgb({level},{level},{level})\"/>",
                first as f32 * side,
                row as f32 * side,
                (column - first) as f32 * side
            );
        }
    }
    svg
}
