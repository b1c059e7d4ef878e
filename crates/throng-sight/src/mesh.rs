//! Triangles before they are baked, and their faults.

use glam::Vec3;

use crate::format::NAME_BYTES_MAX;
use crate::ray::{COORDINATE_MAX_M, Layers};

/// The most triangles of a mesh.
pub const TRIANGLES_MAX: usize = 1 << 26;

/// The most named places of a mesh.
pub const MARKS_MAX: usize = 1 << 16;

/// A triangle whose height is below this part of its longest side counts as degenerate.
const HEIGHT_MIN: f64 = 1e-9;

/// Triangles to bake: corners by number, as most formats have them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mesh {
    /// Places in metres, each coordinate at most [`COORDINATE_MAX_M`] from zero.
    pub positions: Vec<Vec3>,
    /// The numbers of each triangle's corners in `positions`, counter-clockwise as seen from its front.
    pub triangles: Vec<[u32; 3]>,
    /// The layers of each triangle; or empty, and all triangles are in all layers.
    pub layers: Vec<Layers>,
    /// Named places: at most [`MARKS_MAX`], with names of at most 40 bytes and without a zero byte.
    pub marks: Vec<NamedBox>,
}

/// A named place of a mesh: it becomes a [`Mark`](crate::Mark).
#[derive(Clone, Debug, PartialEq)]
pub struct NamedBox {
    /// Its name.
    pub name: String,
    /// Lowest and highest corner; the same twice for a point.
    pub bounds: [Vec3; 2],
}

/// Why a mesh cannot be baked. Its author is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// There is nothing to bake.
    #[error("the mesh has no triangles")]
    Empty,
    /// More triangles than [`TRIANGLES_MAX`].
    #[error("the mesh has {found} triangles, and a map holds at most {TRIANGLES_MAX}: split it")]
    TooManyTriangles {
        /// The number of triangles.
        found: usize,
    },
    /// There are layers, but not one entry for each triangle.
    #[error("the mesh has {triangles} triangles and layers for {layers}: give each its layers, or none")]
    LayersMissing {
        /// The number of triangles.
        triangles: usize,
        /// The number of entries.
        layers: usize,
    },
    /// A triangle names a corner that does not exist.
    #[error("triangle {triangle} has corner number {corner}, and the mesh has {positions} positions")]
    NoSuchCorner {
        /// The number of the triangle.
        triangle: usize,
        /// The number that it names.
        corner: u32,
        /// The number of positions.
        positions: usize,
    },
    /// A corner is at no number, or infinitely far.
    #[error("triangle {triangle} has a corner that is not a number or infinite: repair it in the tool that made it")]
    NotFinite {
        /// The number of the triangle.
        triangle: usize,
    },
    /// A corner is more than [`COORDINATE_MAX_M`] from zero.
    #[error("triangle {triangle} has a corner more than 1,048,576 m from zero: move or scale the mesh")]
    TooFar {
        /// The number of the triangle.
        triangle: usize,
    },
    /// A triangle is a line or a point.
    #[error("triangle {triangle} has no area, and {others} others neither: remove them, or let the bake drop them")]
    Degenerate {
        /// The number of the first such triangle.
        triangle: usize,
        /// How many follow.
        others: usize,
    },
    /// There are more than [`MARKS_MAX`] marks.
    #[error("the mesh has {found} marks, and a map holds at most {MARKS_MAX}")]
    TooManyMarks {
        /// The number of marks.
        found: usize,
    },
    /// A mark has no place, or a name that cannot be stored.
    #[error("mark {mark} needs a finite place, and a name of 1 to 40 bytes without zeros")]
    BadMark {
        /// The number of the mark.
        mark: usize,
    },
    /// The tree needs more nodes or levels than the format holds.
    #[error("the mesh needs a tree beyond the limits of the format: split it")]
    TooLarge,
}

impl MeshError {
    /// A stable name for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            MeshError::Empty => "mesh_empty",
            MeshError::TooManyTriangles { .. } => "mesh_too_many_triangles",
            MeshError::LayersMissing { .. } => "mesh_layers_missing",
            MeshError::NoSuchCorner { .. } => "mesh_no_such_corner",
            MeshError::NotFinite { .. } => "mesh_not_finite",
            MeshError::TooFar { .. } => "mesh_too_far",
            MeshError::Degenerate { .. } => "mesh_degenerate",
            MeshError::TooManyMarks { .. } => "mesh_too_many_marks",
            MeshError::BadMark { .. } => "mesh_bad_mark",
            MeshError::TooLarge => "mesh_too_large",
        }
    }
}

impl Mesh {
    /// The corners of a triangle.
    ///
    /// # Panics
    /// If there is no such triangle, or no such corner. The bake checks both.
    pub fn corners(&self, triangle: usize) -> [Vec3; 3] {
        self.triangles[triangle].map(|corner| self.positions[corner as usize])
    }

    /// The layers of a triangle.
    ///
    /// # Panics
    /// If there are layers, but none for this triangle.
    pub fn layers_of(&self, triangle: usize) -> Layers {
        if self.layers.is_empty() { Layers::ALL } else { self.layers[triangle] }
    }

    /// Takes the triangles without area out, and says how many they were.
    pub fn drop_degenerate(&mut self) -> usize {
        let before = self.triangles.len();
        let has_layers = self.layers.len() == before;
        let keeps: Vec<bool> = (0..before).map(|triangle| !self.is_degenerate(triangle)).collect();
        let (mut kept, mut kept_layers) = (keeps.iter(), keeps.iter());
        self.triangles.retain(|_| kept.next().copied().unwrap_or(true));
        if has_layers {
            self.layers.retain(|_| kept_layers.next().copied().unwrap_or(true));
        }
        before - self.triangles.len()
    }

    /// Whether the mesh can be baked.
    pub fn check(&self) -> Result<(), MeshError> {
        let count = self.triangles.len();
        if count == 0 {
            return Err(MeshError::Empty);
        }
        if count > TRIANGLES_MAX {
            return Err(MeshError::TooManyTriangles { found: count });
        }
        if !self.layers.is_empty() && self.layers.len() != count {
            return Err(MeshError::LayersMissing { triangles: count, layers: self.layers.len() });
        }
        for (triangle, corners) in self.triangles.iter().enumerate() {
            if let Some(corner) = corners.iter().find(|corner| **corner as usize >= self.positions.len()) {
                let positions = self.positions.len();
                return Err(MeshError::NoSuchCorner { triangle, corner: *corner, positions });
            }
            let coordinates = self.corners(triangle);
            if !coordinates.iter().all(|corner| corner.is_finite()) {
                return Err(MeshError::NotFinite { triangle });
            }
            if !coordinates.iter().all(|corner| corner.abs().max_element() <= COORDINATE_MAX_M) {
                return Err(MeshError::TooFar { triangle });
            }
        }
        self.check_marks()?;
        let mut degenerate = (0..count).filter(|triangle| self.is_degenerate(*triangle));
        match degenerate.next() {
            Some(triangle) => Err(MeshError::Degenerate { triangle, others: degenerate.count() }),
            None => Ok(()),
        }
    }

    fn check_marks(&self) -> Result<(), MeshError> {
        if self.marks.len() > MARKS_MAX {
            return Err(MeshError::TooManyMarks { found: self.marks.len() });
        }
        let is_fine = |mark: &NamedBox| {
            let places =
                mark.bounds.iter().all(|corner| corner.abs().max_element() <= COORDINATE_MAX_M && corner.is_finite());
            places && (1..=NAME_BYTES_MAX).contains(&mark.name.len()) && !mark.name.contains('\0')
        };
        match self.marks.iter().position(|mark| !is_fine(mark)) {
            Some(mark) => Err(MeshError::BadMark { mark }),
            None => Ok(()),
        }
    }

    /// Whether a triangle has corners that exist and are finite, and still no area.
    fn is_degenerate(&self, triangle: usize) -> bool {
        let corners = self.triangles[triangle].map(|corner| self.positions.get(corner as usize));
        let [Some(a), Some(b), Some(c)] = corners.map(|corner| corner.map(|place| place.as_dvec3())) else {
            return false;
        };
        let longest = (b - a).length_squared().max((c - a).length_squared()).max((c - b).length_squared());
        longest.is_finite() && (b - a).cross(c - a).length() <= longest * HEIGHT_MIN
    }
}
