//! Boxes, prisms and walls with openings.

use std::f32::consts::TAU;

use glam::{Vec3, vec3};

use crate::mesh::Mesh;
use crate::ray::Layers;

use super::SOLID;

/// Collects triangles.
#[derive(Default)]
pub(super) struct Shapes {
    pub(super) mesh: Mesh,
}

/// A hole in a wall: from where to where along it, and from which height to which.
#[derive(Clone, Copy)]
pub(super) struct Opening {
    pub(super) from: f32,
    pub(super) to: f32,
    pub(super) low: f32,
    pub(super) high: f32,
}

/// A wall that stands along an axis.
#[derive(Clone, Copy)]
pub(super) struct Wall {
    /// Its corner with the lowest coordinates.
    pub(super) corner: Vec3,
    /// Whether it runs along x; else along z.
    pub(super) along_x: bool,
    pub(super) length: f32,
    pub(super) height: f32,
    pub(super) thickness: f32,
}

impl Wall {
    /// A point of the wall: along it, up, across it.
    pub(super) fn place(&self, along: f32, up: f32, across: f32) -> Vec3 {
        self.corner + if self.along_x { vec3(along, up, across) } else { vec3(across, up, along) }
    }
}

impl Shapes {
    fn position(&mut self, place: Vec3) -> u32 {
        self.mesh.positions.push(place);
        self.mesh.positions.len() as u32 - 1
    }

    fn triangle(&mut self, corners: [u32; 3], layers: Layers) {
        self.mesh.triangles.push(corners);
        self.mesh.layers.push(layers);
    }

    /// Three corners, counter-clockwise as seen from the front.
    pub(super) fn face(&mut self, corners: [Vec3; 3]) {
        let corners = corners.map(|corner| self.position(corner));
        self.triangle(corners, SOLID);
    }

    /// Four corners, counter-clockwise as seen from the front.
    pub(super) fn quad(&mut self, corners: [Vec3; 4], layers: Layers) {
        let [a, b, c, d] = corners.map(|corner| self.position(corner));
        self.triangle([a, b, c], layers);
        self.triangle([a, c, d], layers);
    }

    /// A level floor of squares of about `tile_m`.
    pub(super) fn floor(&mut self, lowest: Vec3, size: [f32; 2], tile_m: f32) {
        let counts = size.map(|length| (length / tile_m).ceil().max(1.0) as u32);
        let first = self.mesh.positions.len() as u32;
        let step = [size[0] / counts[0] as f32, size[1] / counts[1] as f32];
        for row in 0..=counts[1] {
            for column in 0..=counts[0] {
                self.position(lowest + vec3(column as f32 * step[0], 0.0, row as f32 * step[1]));
            }
        }
        let number = |column: u32, row: u32| first + row * (counts[0] + 1) + column;
        for row in 0..counts[1] {
            for column in 0..counts[0] {
                let (a, b) = (number(column, row), number(column + 1, row));
                let (c, d) = (number(column + 1, row + 1), number(column, row + 1));
                self.triangle([a, d, c], SOLID);
                self.triangle([a, c, b], SOLID);
            }
        }
    }

    /// A box between two corners. Nothing if it has no volume.
    pub(super) fn cuboid(&mut self, lowest: Vec3, highest: Vec3) {
        if (highest - lowest).min_element() < 0.001 {
            return;
        }
        let corner: [u32; 8] = std::array::from_fn(|bits| {
            let pick = |bit: usize, axis: usize| if bits & bit == 0 { lowest[axis] } else { highest[axis] };
            self.position(vec3(pick(1, 0), pick(2, 1), pick(4, 2)))
        });
        // Each face counter-clockwise from outside: bit 0 is x, bit 1 is y, bit 2 is z.
        let faces = [[0, 4, 6, 2], [1, 3, 7, 5], [0, 1, 5, 4], [2, 6, 7, 3], [0, 2, 3, 1], [4, 5, 7, 6]];
        for [a, b, c, d] in faces.map(|face| face.map(|place| corner[place])) {
            self.triangle([a, b, c], SOLID);
            self.triangle([a, c, d], SOLID);
        }
    }

    /// An upright prism around `foot`.
    pub(super) fn prism(&mut self, foot: Vec3, radius: f32, height: f32, sides: u32) {
        let ring: Vec<(u32, u32)> = (0..sides)
            .map(|side| {
                let turn = TAU * side as f32 / sides as f32;
                let place = foot + vec3(radius * cosine(turn), 0.0, radius * cosine(turn - TAU / 4.0));
                (self.position(place), self.position(place + vec3(0.0, height, 0.0)))
            })
            .collect();
        let (bottom, top) = (self.position(foot), self.position(foot + vec3(0.0, height, 0.0)));
        for side in 0..ring.len() {
            let ((a, b), (c, d)) = (ring[side], ring[(side + 1) % ring.len()]);
            for corners in [[a, b, d], [a, d, c], [bottom, a, c], [top, d, b]] {
                self.triangle(corners, SOLID);
            }
        }
    }

    /// A wall with openings, which do not overlap and are sorted along it.
    pub(super) fn wall(&mut self, wall: Wall, openings: &[Opening]) {
        let mut solid = |from: f32, to: f32, low: f32, high: f32| {
            self.cuboid(wall.place(from, low, 0.0), wall.place(to, high, wall.thickness));
        };
        let mut from = 0.0;
        for opening in openings {
            solid(from, opening.from, 0.0, wall.height);
            solid(opening.from, opening.to, 0.0, opening.low);
            solid(opening.from, opening.to, opening.high, wall.height);
            from = opening.to;
        }
        solid(from, wall.length, 0.0, wall.height);
    }
}

/// The cosine by its series: the standard library's may differ in the last bit from machine to machine.
pub(super) fn cosine(angle: f32) -> f32 {
    let turns = angle / TAU;
    let part = (turns - turns.floor() - 0.5) * TAU;
    let square = part * part;
    let factors = [1.0 / 479_001_600.0, -1.0 / 3_628_800.0, 1.0 / 40_320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0];
    -factors.iter().fold(0.0, |sum: f32, factor| sum * square + factor)
}
