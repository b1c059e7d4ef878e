//! Whether triangles of one plane cover a rectangle of it.
//!
//! The rectangle is a polygon; each triangle cuts away what it covers; nothing may be left.

use glam::{Vec2, Vec3};

use super::shaft::{EDGE_M, FLAT_M, Plane, Rect, Shaft};
use crate::map::Map;
use crate::ray::Layers;

/// A rectangle that is covered is tried again with so much more on each side, so that it serves later shafts too.
const ROOM_M: f32 = 0.4;
const CORNERS_MAX: usize = 10;
const PIECES_MAX: usize = 48;
const TRIANGLES_MAX: usize = 96;

/// A rectangle of a plane that is covered by triangles: no line goes through it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Patch {
    pub(super) plane: Plane,
    pub(super) rect: Rect,
}

impl Patch {
    /// Whether each line of the shaft goes through the rectangle.
    pub(super) fn covers(&self, shaft: &Shaft) -> bool {
        self.plane.crossing(shaft).is_some_and(|rect| self.rect.grown(EDGE_M).holds(rect))
    }
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    len: usize,
    corners: [Vec2; CORNERS_MAX],
}

/// Memory for the work, allocated once.
#[derive(Clone, Debug)]
pub(super) struct Cover {
    triangles: Vec<[Vec2; 3]>,
    pieces: Vec<Piece>,
    next: Vec<Piece>,
}

impl Cover {
    pub(super) fn new() -> Cover {
        Cover {
            triangles: Vec::with_capacity(TRIANGLES_MAX),
            pieces: Vec::with_capacity(PIECES_MAX),
            next: Vec::with_capacity(PIECES_MAX),
        }
    }

    /// A covered rectangle of the plane through which each line of the shaft goes.
    pub(super) fn patch(&mut self, map: &Map, layers: Layers, plane: Plane, shaft: &Shaft) -> Option<Patch> {
        let rect = plane.crossing(shaft)?;
        if !self.is_covered(map, layers, plane, rect) {
            return None;
        }
        let roomy = rect.grown(ROOM_M);
        let rect = if self.is_covered(map, layers, plane, roomy) { roomy } else { rect };
        Some(Patch { plane, rect })
    }

    /// Whether triangles of `layers` in the plane cover the rectangle.
    pub(super) fn is_covered(&mut self, map: &Map, layers: Layers, plane: Plane, rect: Rect) -> bool {
        self.gather(map, layers, plane, rect);
        let mut whole = Piece { len: 4, corners: [Vec2::ZERO; CORNERS_MAX] };
        whole.corners[..4].copy_from_slice(&rect.corners());
        self.pieces.clear();
        self.pieces.push(whole);
        for triangle in &self.triangles {
            self.next.clear();
            for piece in &self.pieces {
                if !cut(*piece, triangle, &mut self.next) {
                    return false;
                }
            }
            std::mem::swap(&mut self.pieces, &mut self.next);
            if self.pieces.is_empty() {
                return true;
            }
        }
        false
    }

    fn gather(&mut self, map: &Map, layers: Layers, plane: Plane, rect: Rect) {
        let (mut lowest, mut highest) = (Vec3::INFINITY, Vec3::NEG_INFINITY);
        for place in rect.corners() {
            let point = plane.point(place);
            (lowest, highest) = (lowest.min(point), highest.max(point));
        }
        self.triangles.clear();
        let triangles = &mut self.triangles;
        map.for_each_triangle_in(lowest - FLAT_M, highest + FLAT_M, layers, |_, corners| {
            let is_flat = corners.iter().all(|corner| plane.height(*corner).abs() <= f64::from(FLAT_M));
            if is_flat && triangles.len() < TRIANGLES_MAX {
                let [a, b, c] = corners.map(|corner| plane.place(corner));
                // Counter-clockwise, whichever side is seen.
                triangles.push(if (b - a).perp_dot(c - a) < 0.0 { [a, c, b] } else { [a, b, c] });
            }
        });
    }
}

/// Pushes what the triangle leaves of a piece. False if there is no room for it.
fn cut(mut piece: Piece, triangle: &[Vec2; 3], left: &mut Vec<Piece>) -> bool {
    let (low, high) = piece.bounds();
    let [a, b, c] = *triangle;
    let is_apart = a.min(b).min(c).cmpgt(high).any() || a.max(b).max(c).cmplt(low).any();
    if is_apart {
        return keep(piece, left);
    }
    let before = left.len();
    let whole = piece;
    for (from, to) in [(a, b), (b, c), (c, a)] {
        let Some(way) = (to - from).try_normalize() else {
            left.truncate(before);
            return keep(whole, left);
        };
        // Above zero: outside of this edge.
        let outside = |point: Vec2| (point - from).perp_dot(way) - FLAT_M;
        match piece.split(outside) {
            Split::Inside => {}
            Split::Outside => {
                left.truncate(before);
                return keep(whole, left);
            }
            Split::Both(inner, outer) => {
                if !keep(outer, left) {
                    return false;
                }
                piece = inner;
            }
            Split::TooMany => return false,
        }
    }
    true
}

fn keep(piece: Piece, left: &mut Vec<Piece>) -> bool {
    let has_room = left.len() < PIECES_MAX;
    if has_room {
        left.push(piece);
    }
    has_room
}

enum Split {
    Inside,
    Outside,
    Both(Piece, Piece),
    TooMany,
}

impl Piece {
    fn bounds(&self) -> (Vec2, Vec2) {
        let corners = &self.corners[..self.len];
        corners
            .iter()
            .fold((Vec2::INFINITY, Vec2::NEG_INFINITY), |(low, high), corner| (low.min(*corner), high.max(*corner)))
    }

    /// The parts where `outside` is at most zero, and above.
    fn split(&self, outside: impl Fn(Vec2) -> f32) -> Split {
        let heights: [f32; CORNERS_MAX] = std::array::from_fn(|corner| outside(self.corners[corner]));
        let heights = &heights[..self.len];
        if heights.iter().all(|height| *height <= 0.0) {
            return Split::Inside;
        }
        if heights.iter().all(|height| *height >= 0.0) {
            return Split::Outside;
        }
        let mut parts = [Piece { len: 0, corners: [Vec2::ZERO; CORNERS_MAX] }; 2];
        for corner in 0..self.len {
            let next = (corner + 1) % self.len;
            let (height, next_height) = (heights[corner], heights[next]);
            let place = self.corners[corner];
            let mut is_kept = true;
            if height <= 0.0 {
                is_kept &= parts[0].push(place);
            }
            if height >= 0.0 {
                is_kept &= parts[1].push(place);
            }
            if height * next_height < 0.0 {
                let crossing = place + height / (height - next_height) * (self.corners[next] - place);
                is_kept &= parts[0].push(crossing) & parts[1].push(crossing);
            }
            if !is_kept {
                return Split::TooMany;
            }
        }
        let [inner, outer] = parts;
        Split::Both(inner, outer)
    }

    fn push(&mut self, corner: Vec2) -> bool {
        let has_room = self.len < CORNERS_MAX;
        if has_room {
            self.corners[self.len] = corner;
            self.len += 1;
        }
        has_room
    }
}
