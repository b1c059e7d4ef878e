//! Makes the cells and the links of a grid, row by row: memory holds the triangles of two rows.

use std::ops::Range;

use glam::{Vec2, vec2, vec3};
use throng_sight::{COORDINATE_MAX_M, Map};

use super::clearance::{Face, Faces};
use super::{
    CELLS_MAX, Cell, DIRECTIONS, DROP, FACES_MAX, FLOORS_MAX, Grid, NO_LINK, NavigationError, SPOTS, WORK_MAX,
};

/// A body that is moved along a link goes this far at a time.
const STRIDE_M: f32 = 0.1;
/// How much the floor of an open cell may rise or fall from its point.
const UNEVEN_M: f32 = 0.15;
/// How well a walk has to end at the height of the cell that it leads to.
const MEET_M: f32 = 0.05;
/// Places of one column whose heights differ by less than this, plus a step, share a cell.
const APART_M: f32 = 0.2;

/// A place is better than another one of its cell if a body that is so much wider fits there: up to so many times.
const WIDER_M: f32 = 0.05;
const ROOM_MAX: u8 = 4;

/// The triangles near the columns of a row.
#[derive(Default)]
struct Row {
    faces: Vec<Face>,
    columns: Vec<Column>,
}

struct Column {
    faces: Range<usize>,
    floors: usize,
}

impl Row {
    fn near(&self, column: usize) -> Faces<'_> {
        let Column { faces, floors } = &self.columns[column];
        Faces { all: &self.faces[faces.clone()], floors: *floors }
    }
}

pub(super) fn survey(grid: &mut Grid, map: &Map) -> Result<(), NavigationError> {
    let spots = spots();
    let mut survey = Survey { grid, work: 0, rows: [Row::default(), Row::default()] };
    survey.grid.first.reserve_exact(survey.grid.columns * survey.grid.rows + 1);
    survey.grid.first.push(0);
    for row in 0..survey.grid.rows {
        survey.rows.swap(0, 1);
        survey.gather(map, row)?;
        for column in 0..survey.grid.columns {
            survey.stand(row * survey.grid.columns + column, &spots)?;
        }
        for column in 0..survey.grid.columns {
            survey.link_column(row * survey.grid.columns + column)?;
        }
    }
    Ok(())
}

/// The places of a cell, the nearest to its middle first.
fn spots() -> [u8; SPOTS * SPOTS] {
    let mut spots: [u8; SPOTS * SPOTS] = std::array::from_fn(|spot| spot as u8);
    let from_middle = |spot: u8| {
        let away = |place: usize| place.abs_diff(SPOTS / 2);
        away(spot as usize % SPOTS).pow(2) + away(spot as usize / SPOTS).pow(2)
    };
    spots.sort_by_key(|spot| from_middle(*spot));
    spots
}

/// How much room a place has: 0 if the body does not fit, else one more than the number of wider bodies that fit.
fn room(faces: Faces<'_>, place: Vec2, heights: [f32; 2], radius: f32) -> u8 {
    let most = radius + f32::from(ROOM_MAX - 1) * WIDER_M;
    faces.free_radius(place, heights, [radius, most]).map_or(0, |free| 1 + ((free - radius) / WIDER_M + 0.01) as u8)
}

struct Survey<'a> {
    grid: &'a mut Grid,
    work: u64,
    /// The row before, and the newest one.
    rows: [Row; 2],
}

impl Survey<'_> {
    fn count(&mut self, faces: usize) -> Result<(), NavigationError> {
        self.work += faces as u64;
        if self.work > WORK_MAX { Err(NavigationError::TooDense) } else { Ok(()) }
    }

    fn gather(&mut self, map: &Map, row: usize) -> Result<(), NavigationError> {
        let options = self.grid.options;
        self.rows[1].faces.clear();
        self.rows[1].columns.clear();
        let mut is_full = false;
        for x in 0..self.grid.columns {
            let corner = self.grid.origin + vec2(x as f32, row as f32) * options.cell_m;
            // A little more, for places on a border that rounding puts on its other side.
            let reach = options.body.radius_m + f32::from(ROOM_MAX) * WIDER_M + 0.01 * options.cell_m;
            let (low, high) = (corner - reach, corner + options.cell_m + reach);
            let height = 2.0 * COORDINATE_MAX_M;
            let faces = &mut self.rows[1].faces;
            let from = faces.len();
            map.for_each_triangle_in(
                vec3(low.x, -height, low.y),
                vec3(high.x, height, high.y),
                options.layers,
                |_, corners| {
                    is_full |= faces.len() >= FACES_MAX;
                    if !is_full {
                        faces.push(Face::new(corners));
                    }
                },
            );
            if is_full {
                return Err(NavigationError::TooDense);
            }
            faces[from..].sort_by_key(|face| !face.is_floor);
            let floors = faces[from..].partition_point(|face| face.is_floor);
            let count = faces.len() - from;
            self.rows[1].columns.push(Column { faces: from..from + count, floors });
            self.count(2 * count)?;
        }
        Ok(())
    }

    /// Finds the cells of a column of the newest row.
    fn stand(&mut self, column: usize, spots: &[u8]) -> Result<(), NavigationError> {
        let body = self.grid.options.body;
        let first = self.grid.cells.len();
        for spot in spots {
            let place = self.grid.spot(column, *spot);
            let mut top = f32::INFINITY;
            loop {
                let faces = self.rows[1].near(column % self.grid.columns);
                let count = faces.all.len();
                let Some(height_m) = faces.floor_below(place, top) else { break };
                top = height_m - MEET_M;
                let is_same = |cell: &Cell| (cell.height_m - height_m).abs() < body.step_m + APART_M;
                let known = self.grid.cells[first..].iter().position(is_same).map(|place| first + place);
                if known.is_some_and(|known| self.grid.cells[known].is_open) {
                    continue;
                }
                let heights = [height_m + body.step_m, height_m + body.height_m];
                let room = room(faces, place, heights, body.radius_m);
                match known {
                    Some(known) if room > self.grid.cells[known].room => {
                        let cell = &mut self.grid.cells[known];
                        (cell.height_m, cell.spot, cell.room) = (height_m, *spot, room);
                    }
                    None if room > 0 && self.grid.cells.len() - first < FLOORS_MAX => {
                        let (is_open, links) = (self.is_open(column, height_m), [NO_LINK; 8]);
                        let column = column as u32;
                        self.grid.cells.push(Cell { height_m, column, part: 0, links, spot: *spot, room, is_open });
                    }
                    _ => {}
                }
                self.count(4 * count)?;
            }
        }
        if self.grid.cells.len() > CELLS_MAX {
            return Err(NavigationError::TooManyCells);
        }
        self.grid.cells[first..].sort_by(|a, b| a.height_m.total_cmp(&b.height_m));
        self.grid.first.push(self.grid.cells.len() as u32);
        Ok(())
    }

    fn is_open(&self, column: usize, height_m: f32) -> bool {
        let (body, cell_m) = (self.grid.options.body, self.grid.options.cell_m);
        let faces = self.rows[1].near(column % self.grid.columns);
        let index = vec2((column % self.grid.columns) as f32, (column / self.grid.columns) as f32);
        let corner = self.grid.origin + index * cell_m;
        let is_level = |place: usize| {
            let place = corner + cell_m * vec2(0.02 + 0.48 * (place % 3) as f32, 0.02 + 0.48 * (place / 3) as f32);
            let floor = faces.floor_below(place, height_m + body.step_m);
            floor.is_some_and(|floor| (floor - height_m).abs() <= UNEVEN_M)
        };
        let heights = [height_m + body.step_m - UNEVEN_M, height_m + body.height_m + UNEVEN_M];
        (0..9).all(is_level) && faces.is_free_around(corner, corner + cell_m, heights, body.radius_m)
    }

    /// Links a column of the newest row with its neighbours in this row and in the row before.
    fn link_column(&mut self, column: usize) -> Result<(), NavigationError> {
        for direction in [4, 5, 6, 7] {
            let Some(other) = self.grid.neighbour(column, DIRECTIONS[direction]) else { continue };
            for from in self.grid.in_column(column) {
                for to in self.grid.in_column(other) {
                    // A level link works in both directions. A fall works in one, so each direction is tried.
                    if self.link(from, to, direction)? == Some(0) {
                        self.set(to, from, (direction + 4) % 8, 0);
                    } else {
                        self.link(to, from, (direction + 4) % 8)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Links two cells if the body gets from the one to the other; with which flags.
    fn link(&mut self, from: usize, to: usize, direction: usize) -> Result<Option<u8>, NavigationError> {
        let (start, end) = (self.grid.cells[from], self.grid.cells[to]);
        let flags = if self.is_level(&start, &end, direction) { Some(0) } else { self.walk(&start, &end)? };
        if let Some(flags) = flags {
            self.set(from, to, direction, flags);
        }
        Ok(flags)
    }

    fn set(&mut self, from: usize, to: usize, direction: usize, flags: u8) {
        let place = to - self.grid.first[self.grid.cells[to].column as usize] as usize;
        self.grid.cells[from].links[direction] = place as u8 | flags;
    }

    /// Whether the way leads through open cells of about the same height only, so that nothing has to be tried.
    fn is_level(&self, start: &Cell, end: &Cell, direction: usize) -> bool {
        let limit = self.grid.options.body.step_m - 2.0 * UNEVEN_M;
        let is_near = |cell: &Cell| cell.is_open && (cell.height_m - start.height_m).abs() <= limit;
        let is_beside = |direction: usize| {
            let column = self.grid.neighbour(start.column as usize, DIRECTIONS[direction % 8]);
            column.is_some_and(|column| self.grid.cells[self.grid.in_column(column)].iter().any(is_near))
        };
        let sides_are_open = direction.is_multiple_of(2) || (is_beside(direction + 7) && is_beside(direction + 1));
        start.is_open && is_near(end) && sides_are_open
    }

    /// Moves the body from cell to cell. Gives the flags of the link if it arrives.
    fn walk(&mut self, start: &Cell, end: &Cell) -> Result<Option<u8>, NavigationError> {
        let body = self.grid.options.body;
        let [from, to] = [start, end].map(|cell| self.grid.spot(cell.column as usize, cell.spot));
        let strides = (from.distance(to) / STRIDE_M).ceil().max(1.0);
        let climb = end.height_m - start.height_m;
        if climb > strides * body.step_m || -climb > body.drop_m + strides * body.step_m {
            return Ok(None);
        }
        let (mut height, mut has_dropped, mut hovers) = (start.height_m, false, 0);
        for stride in 1..=strides as usize {
            let place = from + (to - from) * (stride as f32 / strides);
            let Some(faces) = self.faces_at(place) else { return Ok(None) };
            let count = faces.all.len();
            let Some(floor) = faces.floor_below(place, height + body.step_m) else { return Ok(None) };
            let falls = floor < height - body.step_m;
            if falls && (has_dropped || height - floor > body.drop_m) {
                return Ok(None);
            }
            let is_free = |feet: f32| {
                let top = height.max(floor) + body.height_m;
                faces.is_free(place, [feet + body.step_m, top], body.radius_m)
            };
            if is_free(floor) {
                (height, has_dropped) = (floor, has_dropped || falls);
            } else if falls && hovers as f32 * STRIDE_M <= body.radius_m && is_free(height) {
                // The edge still carries the body: its middle is beyond, and a part of it is not.
                hovers += 1;
            } else {
                return Ok(None);
            }
            self.count(3 * count)?;
        }
        let arrives = (height - end.height_m).abs() <= MEET_M;
        Ok(arrives.then_some(if has_dropped { DROP } else { 0 }))
    }

    fn faces_at(&self, place: Vec2) -> Option<Faces<'_>> {
        let column = self.grid.column_at(place.x, place.y)?;
        let newest = self.grid.first.len() - 2;
        let back = newest / self.grid.columns - column / self.grid.columns;
        Some(self.rows.get(1_usize.checked_sub(back)?)?.near(column % self.grid.columns))
    }
}
