//! Which parts of a map can be seen from which: computed once, looked up in each tick.
//!
//! They are the last part of a map's file, or bytes of their own. Boxes of a few metres fill the map. Those in which somebody can stand are cells, from the lowest floor that was found
//! up to the top of the box. For each two cells there is a bit: zero if a [`Search`] proved that no line leads from any
//! point of one to any point of the other. So the answer is safe for boxes of any size, wherever somebody can stand: a
//! shaft is hidden if its ends lie within cells, and all pairs of these are hidden.
//!
//! ```text
//! header, 96 bytes; all numbers are little endian
//!     0  8   "THRNGVIS"
//!     8  4   version of the format: 1
//!    12  4   length of this header: 96
//!    16  8   length of the file
//!    24  8   XXH3-64 (seed 0) of all bytes from 32 to the end
//!    32  8   checksum of the map for which it was made: bytes 24 to 31 of the map's head
//!    40  4   C, the number of cells
//!    44  2   layers that block sight
//!    46  2   zeros
//!    48  12  lowest corner of the boxes, three f32: 0.5 m outside of the map's
//!    60  12  sides of a box, three f32
//!    72  12  X, Y, Z: how many boxes there are along each axis, u32
//!    84  12  zeros
//! boxes, X x Y x Z x 4 bytes, x fastest, then y, then z
//!     0  4   number of the cell; 0xffff_ffff if the box is none
//! floors, C x 4 bytes
//!     0  4   height at which the cell begins, f32: 2 mm below the lowest floor in it
//! rows, C x ceil(C / 8) bytes: one for each cell
//!     bit b % 8 of byte b / 8 of row a: 1 if something of cell b may be seen from cell a
//! ```

use glam::{UVec3, Vec3};

use super::search::{Answer, Memory, Search};
use super::shaft::{Shaft, Space};
use super::walls::FogWalls;
use crate::map::{Map, MapBytes, aligned};
use crate::ray::{Layers, Ray};

const MAGIC: [u8; 8] = *b"THRNGVIS";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 96;
const CHECKED_FROM: usize = 32;
const NO_CELL: u32 = u32::MAX;
/// Most boxes.
const BOXES_MAX: u64 = 1 << 22;
/// Most cells: their rows take 32 MiB.
const CELLS_MAX: usize = 1 << 14;
/// Floors are looked for at so many places along each side of a box.
const PLACES: u32 = 4;
/// A floor leans at most so much: the upward part of its normal.
const FLOOR: f32 = 0.7;
/// Boxes begin so far outside of the map's corners, in metres: so a body on its lowest ground lies within one.
const AROUND_M: f32 = 0.5;
/// A cell begins so far below its floor, in metres: more than rounding moves the feet that stand on it.
const SINK_M: f32 = 2e-3;
/// A shaft that touches more boxes is not looked up.
const TOUCHED_MAX: u32 = 64;

/// How cells are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellOptions {
    /// The sides of a cell, in metres; at least 1 each.
    pub sides_m: Vec3,
    /// Rays for each pair of cells. If they do not suffice, the pair may see each other.
    pub rays_max: u32,
    /// With more cells none are computed; at most 16,384. The time grows with the square of their number.
    pub cells_max: usize,
}

impl Default for CellOptions {
    /// Cells of 6 m and 3 m height, which is a storey, and 24 rays.
    fn default() -> CellOptions {
        CellOptions { sides_m: Vec3::new(6.0, 3.0, 6.0), rays_max: 24, cells_max: CELLS_MAX }
    }
}

/// Why there are no cells: bytes that cannot be used, or a map that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CellError {
    /// The bytes do not begin as cells do.
    #[error("this is no file of visible cells: bake one")]
    NotCells,
    /// The cells were baked by another version.
    #[error("the visible cells have format {found}, and this program reads format {VERSION}: bake them again")]
    OtherVersion {
        /// The version that the bytes name.
        found: u32,
    },
    /// The length is not what the head says.
    #[error("the visible cells have {found} bytes instead of {expected}: copy or bake them again")]
    WrongLength {
        /// The length that the head says, or that its counts need.
        expected: u64,
        /// The length of the bytes.
        found: u64,
    },
    /// The checksum does not fit the bytes.
    #[error("the visible cells are damaged: copy or bake them again")]
    Damaged,
    /// The checksum fits, but a part breaks the rules of the format: the program that wrote it is at fault.
    #[error("the visible cells break their format: {what}; bake them again")]
    Broken {
        /// The part and its fault.
        what: &'static str,
    },
    /// The cells belong to another map, or to other layers.
    #[error("the visible cells were baked for another map, or for other layers: bake them again")]
    OtherMap,
    /// The map is so large that cells of this size are too many.
    #[error("the map would have {found} cells, and {limit} is the limit: use larger ones")]
    TooMany {
        /// The number of cells, or of boxes.
        found: u64,
        /// The limit.
        limit: u64,
    },
}

impl CellError {
    /// A stable name for metrics.
    pub fn tag(&self) -> &'static str {
        match self {
            CellError::NotCells => "cells_not_cells",
            CellError::OtherVersion { .. } => "cells_other_version",
            CellError::WrongLength { .. } => "cells_wrong_length",
            CellError::Damaged => "cells_damaged",
            CellError::Broken { .. } => "cells_broken",
            CellError::OtherMap => "cells_other_map",
            CellError::TooMany { .. } => "cells_too_many",
        }
    }
}

/// Which cells of a map can be seen from which. [`FogWalls::with_cells`] gives them to a fog.
#[derive(Clone)]
pub struct CellVisibility {
    bytes: MapBytes,
    /// Where they begin: after the other parts of a map.
    at: usize,
    head: Head,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    map: u64,
    sight: Layers,
    cells: u32,
    lowest: Vec3,
    sides: Vec3,
    counts: UVec3,
}

impl Head {
    fn boxes(&self) -> u64 {
        self.counts.to_array().into_iter().fold(1, |boxes: u64, count| boxes.saturating_mul(u64::from(count)))
    }

    fn row_bytes(&self) -> usize {
        (self.cells as usize).div_ceil(8)
    }

    fn file_bytes(&self) -> u64 {
        let rows = u64::from(self.cells) * (4 + self.row_bytes() as u64);
        rows.saturating_add(self.boxes().saturating_mul(4)).saturating_add(HEADER_BYTES as u64)
    }

    fn floors_at(&self) -> usize {
        HEADER_BYTES + 4 * self.boxes() as usize
    }

    fn rows_at(&self) -> usize {
        self.floors_at() + 4 * self.cells as usize
    }

    fn space(&self, place: UVec3) -> Space {
        let lowest = self.lowest + place.as_vec3() * self.sides;
        Space { lowest, highest: self.lowest + (place + 1).as_vec3() * self.sides }
    }

    fn index(&self, place: UVec3) -> usize {
        ((place.z * self.counts.y + place.y) * self.counts.x + place.x) as usize
    }

    fn places(&self) -> impl Iterator<Item = UVec3> + use<> {
        let UVec3 { x, y, z } = self.counts;
        (0..z).flat_map(move |z| (0..y).flat_map(move |y| (0..x).map(move |x| UVec3::new(x, y, z))))
    }
}

impl CellVisibility {
    /// Computes the cells of a map with these walls. Takes about 15 µs for each pair of cells: 20 s for a town of 200,000
    /// triangles with cells of 6 m.
    ///
    /// # Errors
    /// If there are too many cells.
    pub fn bake(map: &Map, walls: &FogWalls, options: &CellOptions) -> Result<CellVisibility, CellError> {
        let [lowest, highest] = map.bounds();
        let (lowest, highest) = (lowest - AROUND_M, highest + AROUND_M);
        let sides = options.sides_m.max(Vec3::ONE);
        let counts = ((highest - lowest) / sides).floor() + 1.0;
        let found = counts.as_dvec3().element_product();
        if found > BOXES_MAX as f64 {
            return Err(CellError::TooMany { found: found as u64, limit: BOXES_MAX });
        }
        let sight = walls.sight_layers;
        let mut head = Head { map: map.head_checksum(), sight, cells: 0, lowest, sides, counts: counts.as_uvec3() };
        let mut numbers = vec![NO_CELL; head.boxes() as usize];
        let mut cells: Vec<Space> = Vec::new();
        for place in head.places() {
            // A body stands in the box of its feet, and its head may be in the one above.
            let below = place.y.checked_sub(1).map(|y| head.space(UVec3 { y, ..place }));
            let space = head.space(place);
            let is_above_another = below.is_some_and(|below| floor(map, walls.body_layers, below).is_some());
            let begins = match floor(map, walls.body_layers, space) {
                _ if is_above_another => space.lowest.y,
                Some(floor) => (floor - SINK_M).max(space.lowest.y),
                None => continue,
            };
            numbers[head.index(place)] = cells.len() as u32;
            cells.push(Space { lowest: space.lowest.with_y(begins), ..space });
        }
        let limit = options.cells_max.min(CELLS_MAX);
        if cells.len() > limit {
            return Err(CellError::TooMany { found: cells.len() as u64, limit: limit as u64 });
        }
        head.cells = cells.len() as u32;
        let rows = rows(walls, &cells, options.rays_max, head.row_bytes());
        Ok(CellVisibility { bytes: aligned(&write(&head, &numbers, &cells, &rows)), at: 0, head })
    }

    /// Checks `bytes` and makes them usable, for this map and these walls.
    ///
    /// # Errors
    /// If the bytes are not whole, undamaged cells of this version, or belong to another map or other layers. No bytes
    /// make this function or a later look-up panic.
    pub fn new(bytes: MapBytes, map: &Map, walls: &FogWalls) -> Result<CellVisibility, CellError> {
        let head = check((*bytes).as_ref())?;
        if head.map != map.head_checksum() || head.sight != walls.sight_layers {
            return Err(CellError::OtherMap);
        }
        Ok(CellVisibility { bytes, at: 0, head })
    }

    /// The cells from a place of a map's bytes on, which were checked with the map.
    pub(crate) fn within(bytes: &MapBytes, at: usize) -> Result<CellVisibility, CellError> {
        let head = head_of((**bytes).as_ref().get(at..).unwrap_or_default())?;
        Ok(CellVisibility { bytes: bytes.clone(), at, head })
    }

    /// The bytes for a map that has another checksum with them than without.
    pub(crate) fn bytes_for(&self, map: u64, with_cells: u64) -> Result<Vec<u8>, CellError> {
        if self.head.map != map {
            return Err(CellError::OtherMap);
        }
        let mut bytes = self.as_bytes().to_vec();
        bytes[32..40].copy_from_slice(&with_cells.to_le_bytes());
        seal(&mut bytes);
        Ok(bytes)
    }

    /// The layers that block sight.
    pub fn sight(&self) -> Layers {
        self.head.sight
    }

    /// The bytes: the content of a file.
    pub fn as_bytes(&self) -> &[u8] {
        (*self.bytes).as_ref().get(self.at..).unwrap_or_default()
    }

    /// The checksum of the bytes.
    pub(crate) fn checksum(&self) -> u64 {
        u64_at(self.as_bytes(), 24).unwrap_or_default()
    }

    /// The number of cells.
    pub fn cell_count(&self) -> u32 {
        self.head.cells
    }

    /// The share of pairs of cells that cannot see each other.
    pub fn hidden_share(&self) -> f64 {
        let pairs = f64::from(self.head.cells).powi(2);
        let rows = self.as_bytes().get(self.head.rows_at()..).unwrap_or_default();
        let visible: u64 = rows.iter().map(|byte| u64::from(byte.count_ones())).sum();
        1.0 - visible as f64 / pairs.max(1.0)
    }

    /// Whether a point may be seen from another one. True where there is no cell.
    pub fn may_see(&self, from: Vec3, to: Vec3) -> bool {
        !self.hides(&Shaft { from: Space::around(from, Vec3::ZERO), to: Space::around(to, Vec3::ZERO) })
    }

    /// Whether nothing is seen through a shaft.
    pub(super) fn hides(&self, shaft: &Shaft) -> bool {
        let (Some(from), Some(to)) = (self.touched(shaft.from), self.touched(shaft.to)) else { return false };
        each(from).all(|place| {
            let Some(row) = self.cell(place, shaft.from).and_then(|from| self.row(from)) else { return false };
            each(to).all(|place| {
                let Some(to) = self.cell(place, shaft.to) else { return false };
                row.get(to as usize / 8).is_some_and(|byte| byte >> (to % 8) & 1 == 0)
            })
        })
    }

    /// The first and the last box that a space touches.
    fn touched(&self, space: Space) -> Option<[UVec3; 2]> {
        let place = |corner: Vec3| (corner - self.head.lowest) / self.head.sides;
        let (low, high) = (place(space.lowest), place(space.highest));
        // A hair more on both sides: rounding must not hide a box that is touched.
        let (low, high) = ((low - 1e-3).floor(), (high + 1e-3).floor());
        let is_inside = low.cmpge(Vec3::ZERO).all() && high.cmplt(self.head.counts.as_vec3()).all();
        let range = [low.as_uvec3(), high.as_uvec3()];
        (is_inside && (range[1] - range[0].min(range[1]) + 1).element_product() <= TOUCHED_MAX).then_some(range)
    }

    /// The cell of a box, if what of `space` is in the box is in the cell too.
    fn cell(&self, place: UVec3, space: Space) -> Option<u32> {
        let number = u32_at(self.as_bytes(), HEADER_BYTES + 4 * self.head.index(place))?;
        let floor = f32::from_bits(u32_at(self.as_bytes(), self.head.floors_at() + 4 * number as usize)?);
        (number < self.head.cells && space.lowest.y.max(self.head.space(place).lowest.y) >= floor).then_some(number)
    }

    fn row(&self, cell: u32) -> Option<&[u8]> {
        let at = self.head.rows_at() + cell as usize * self.head.row_bytes();
        self.as_bytes().get(at..at + self.head.row_bytes())
    }
}

impl std::fmt::Debug for CellVisibility {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("CellVisibility").field("head", &self.head).finish_non_exhaustive()
    }
}

fn each([first, last]: [UVec3; 2]) -> impl Iterator<Item = UVec3> {
    (first.z..=last.z)
        .flat_map(move |z| (first.y..=last.y).flat_map(move |y| (first.x..=last.x).map(move |x| UVec3::new(x, y, z))))
}

/// The lowest of the floors on which somebody could stand in a box.
fn floor(map: &Map, bodies: Layers, space: Space) -> Option<f32> {
    let (step, height) = ((space.highest - space.lowest) / PLACES as f32, space.highest.y - space.lowest.y);
    let mut lowest: Option<f32> = None;
    for place in 0..PLACES * PLACES {
        let way = Vec3::new((place % PLACES) as f32 + 0.5, 0.0, (place / PLACES) as f32 + 0.5);
        let top = (space.lowest + way * step).with_y(space.highest.y);
        let Ok(down) = Ray::new(top, -Vec3::Y, height) else { continue };
        let Some(hit) = map.closest(&down, bodies) else { continue };
        let is_floor = map.normal_against(hit.triangle, -Vec3::Y).is_some_and(|normal| normal.y >= FLOOR);
        let height = down.at(hit.distance_m).y;
        if is_floor && lowest.is_none_or(|lowest| height < lowest) {
            lowest = Some(height);
        }
    }
    lowest
}

fn rows(walls: &FogWalls, cells: &[Space], rays_max: u32, row_bytes: usize) -> Vec<u8> {
    let mut rows = vec![0_u8; cells.len() * row_bytes];
    let mut search = Search::new(rays_max);
    for (from, space) in cells.iter().enumerate() {
        // Walls near the cell hide many others too.
        let mut memory = Memory::NOTHING;
        for (to, other) in cells.iter().enumerate().skip(from) {
            memory.forget_the_free_line();
            let answer = search.run(Shaft { from: *space, to: *other }, walls, &[], &mut memory);
            if !matches!(answer, Answer::Hidden { .. }) {
                rows[from * row_bytes + to / 8] |= 1 << (to % 8);
                rows[to * row_bytes + from / 8] |= 1 << (from % 8);
            }
        }
    }
    rows
}

fn write(head: &Head, numbers: &[u32], cells: &[Space], rows: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(head.file_bytes() as usize);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((HEADER_BYTES as u32).to_le_bytes());
    bytes.extend(head.file_bytes().to_le_bytes());
    bytes.extend([0; 8]);
    bytes.extend(head.map.to_le_bytes());
    bytes.extend(head.cells.to_le_bytes());
    bytes.extend(head.sight.0.to_le_bytes());
    bytes.extend([0; 2]);
    for part in [head.lowest, head.sides] {
        part.to_array().into_iter().for_each(|part| bytes.extend(part.to_le_bytes()));
    }
    head.counts.to_array().into_iter().for_each(|count| bytes.extend(count.to_le_bytes()));
    bytes.extend([0; 12]);
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    cells.iter().for_each(|cell| bytes.extend(cell.lowest.y.to_le_bytes()));
    bytes.extend(rows);
    seal(&mut bytes);
    bytes
}

fn seal(bytes: &mut [u8]) {
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes[CHECKED_FROM..]);
    bytes[24..32].copy_from_slice(&sum.to_le_bytes());
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Checks the cells of a map with this checksum.
pub(crate) fn check_for(bytes: &[u8], map: u64) -> Result<(), CellError> {
    if check(bytes)?.map == map { Ok(()) } else { Err(CellError::OtherMap) }
}

fn check(bytes: &[u8]) -> Result<Head, CellError> {
    let found = bytes.len() as u64;
    if !bytes.starts_with(&MAGIC) {
        return Err(CellError::NotCells);
    }
    let short = CellError::WrongLength { expected: HEADER_BYTES as u64, found };
    let number = |at: usize| u32_at(bytes, at).ok_or(short.clone());
    let long = |at: usize| u64_at(bytes, at).ok_or(short.clone());
    let version = number(8)?;
    if version != VERSION || number(12)? as usize != HEADER_BYTES {
        return Err(CellError::OtherVersion { found: version });
    }
    let expected = long(16)?;
    if expected != found || found < HEADER_BYTES as u64 {
        return Err(CellError::WrongLength { expected, found });
    }
    if xxhash_rust::xxh3::xxh3_64(&bytes[CHECKED_FROM..]) != long(24)? {
        return Err(CellError::Damaged);
    }
    let head = head_of(bytes)?;
    let boxes = bytes[HEADER_BYTES..].chunks_exact(4).take(head.boxes() as usize);
    for number in boxes.filter_map(|number| u32_at(number, 0)) {
        if number >= head.cells && number != NO_CELL {
            return Err(CellError::Broken { what: "unknown cell of a box" });
        }
    }
    let mut floors = bytes[head.floors_at()..head.rows_at()].chunks_exact(4);
    if floors.any(|floor| !u32_at(floor, 0).is_some_and(|floor| f32::from_bits(floor).is_finite())) {
        return Err(CellError::Broken { what: "the floor of a cell is no number" });
    }
    Ok(head)
}

/// The values of the head, if they are within the limits and fit the length.
fn head_of(bytes: &[u8]) -> Result<Head, CellError> {
    let found = bytes.len() as u64;
    let short = CellError::WrongLength { expected: HEADER_BYTES as u64, found };
    let number = |at: usize| u32_at(bytes, at).ok_or(short.clone());
    let vector = |at: usize| Ok(Vec3::new(real(bytes, at)?, real(bytes, at + 4)?, real(bytes, at + 8)?));
    let head = Head {
        map: u64_at(bytes, 32).ok_or(short.clone())?,
        sight: Layers(number(44)? as u16),
        cells: number(40)?,
        lowest: vector(48)?,
        sides: vector(60)?,
        counts: UVec3::new(number(72)?, number(76)?, number(80)?),
    };
    let zeros = bytes.get(46..48).into_iter().chain(bytes.get(84..HEADER_BYTES)).flatten();
    let faults = [
        (head.cells as usize > CELLS_MAX, "number of cells"),
        (head.boxes() == 0 || head.boxes() > BOXES_MAX, "number of boxes"),
        (!head.sides.cmpge(Vec3::ONE).all(), "sides of the boxes"),
        (zeros.into_iter().any(|byte| *byte != 0), "reserved bytes of the head"),
    ];
    if let Some((_, what)) = faults.into_iter().find(|(is_fault, _)| *is_fault) {
        return Err(CellError::Broken { what });
    }
    if head.file_bytes() != found {
        return Err(CellError::WrongLength { expected: head.file_bytes(), found });
    }
    Ok(head)
}

fn real(bytes: &[u8], at: usize) -> Result<f32, CellError> {
    let number = u32_at(bytes, at).map(f32::from_bits).filter(|number| number.is_finite());
    number.ok_or(CellError::Broken { what: "a place that is no number" })
}
