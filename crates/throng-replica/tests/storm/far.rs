//! The walkers that clients see from afar.

use throng_replica::{ChannelKey, GridShape, Layers, ReplicaObject, Up};
use throng_schema::{Facet, Replicate, Schema};
use throng_wire::ObjectId;

use super::Walker;

/// The grid for far facets, in one layer.
pub(crate) const FAR_GRID: GridShape = GridShape { cell_m: [16.0; 3], layers: Layers::Single, up: Up::Z };
pub(crate) const FAR_GRID_NUMBER: u8 = 1;
/// All cells in which a walker can live.
pub(crate) const FAR_CELLS: [std::ops::Range<i32>; 2] = [-3..3, -1..1];

/// As [`Walker`] says.
const STEP_M: f64 = 0.5;
/// An object stays in its cell until it is so many steps outside: an eighth of the cell's 32, and one.
const STRAY_STEPS: f64 = 5.0;
const SLACK_M: f64 = 0.01;

/// The channels in which the far facet of a walker at this position may live.
pub(crate) fn homes(id: ObjectId, position_m: [f32; 3], parts: u16) -> impl Iterator<Item = ChannelKey> {
    let beyond_m = (STRAY_STEPS + 0.5) * STEP_M + SLACK_M;
    let is_near = move |cell: i32, axis: usize| {
        let (low, high) = (f64::from(cell) * 16.0 - beyond_m, f64::from(cell + 1) * 16.0 + beyond_m);
        (low..=high).contains(&f64::from(position_m[axis]))
    };
    let [columns, rows] = FAR_CELLS;
    let cells = columns.flat_map(move |x| rows.clone().map(move |y| [x, y]));
    let near = cells.filter(move |cell| is_near(cell[0], 0) && is_near(cell[1], 1));
    let part = if parts > 1 { (id.index % u32::from(parts)) as i32 } else { 0 };
    near.map(move |[x, y]| ChannelKey::Cell { grid: FAR_GRID_NUMBER, cell: [x, y, part] })
}

/// Whether the client is sent the public fields.
pub(crate) fn is_near(seen: &ReplicaObject) -> bool {
    seen.facets().any(|facet| facet == Facet::Public)
}

/// A client knows the fields for clients far away, and no public ones.
pub(crate) fn check(truth: &Walker, seen: &ReplicaObject, schema: &Schema) -> Result<(), String> {
    let kind = schema.kind(seen.kind());
    let known = seen.known_fields();
    let mut shown = Walker::default();
    shown.apply(known, seen.values());
    let is_there =
        (0..3).all(|axis| f64::from((shown.position[axis] - truth.position[axis]).abs()) < STEP_M / 2.0 + 1e-3);
    let has_far = kind.facet_mask(Facet::Far) & !known == 0;
    let has_others = known & (kind.facet_mask(Facet::Public) | kind.facet_mask(Facet::Owner)) != 0;
    match is_there && shown.health == truth.health && has_far && !has_others && !seen.is_awaited() && !seen.is_own() {
        true => Ok(()),
        false => Err(format!("is {truth:?}, not {shown:?} from afar, with the fields {known:b}")),
    }
}
