//! Parts of the world that move: doors, lifts, walls made by abilities.

use crate::geometry::{Ray, Rotation, Transform, Vector, rotate_back, sub};
use crate::models::ShapeId;
use crate::moment::Moment;
use crate::pose::{Break, HistoryOptions, RecordError};
use crate::track::{Cadence, Found, Gaps, Place, Track, between};
use throng_wire::Tick;

/// The stored transforms of one part of the world.
///
/// A part is recorded when it moves. A tick without a record means that it stood still.
///
/// Allocates when it is made, and never again.
#[derive(Clone, Debug)]
pub struct PartHistory {
    track: Track,
    shape: ShapeId,
    mask: u32,
    reach_m: f32,
}

impl PartHistory {
    /// No transforms yet: the part is nowhere. `reach_m` is that of the shape.
    pub(crate) fn new(shape: ShapeId, mask: u32, reach_m: f64, options: HistoryOptions) -> PartHistory {
        let cadence = Cadence { every_ticks: options.every_ticks, places: options.poses, gaps: Gaps::Rest };
        PartHistory { track: Track::new(cadence), shape, mask, reach_m: (reach_m as f32).next_up() }
    }

    /// The shape.
    pub fn shape(&self) -> ShapeId {
        self.shape
    }

    /// The kinds of rays that it stops.
    pub fn mask(&self) -> u32 {
        self.mask
    }

    /// Bytes of this history, allocated memory included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<PartHistory>() + self.track.memory_bytes()
    }

    /// Records where the part is at the end of `tick`.
    ///
    /// # Errors
    /// See [`RecordError`]. Nothing has changed then.
    pub fn record(&mut self, tick: Tick, transform: &Transform) -> Result<(), RecordError> {
        if !transform.is_valid() {
            return Err(RecordError::Value);
        }
        if !self.track.accepts(tick) {
            let newest = self.track.newest().map_or(0, |slot| self.track.place(slot).tick);
            return Err(RecordError::Order { tick, newest: Tick(newest) });
        }
        self.track.record(tick, *transform, self.reach_m);
        Ok(())
    }

    /// Breaks the way at `tick`. After a [`Break::Death`] the part is nowhere until it is recorded again, and earlier
    /// moments still show it: so a wall that falls stays in the view of those who still see it.
    pub fn break_at(&mut self, tick: Tick, cause: Break) {
        if cause == Break::Spawn {
            self.track.clear();
        } else {
            self.track.break_at(tick);
        }
    }

    /// Where the part was; `None` while it was nowhere.
    pub fn sample(&self, moment: Moment) -> Option<Transform> {
        let (position, rotation) = self.between(&self.track.find(moment)?);
        Some(Transform { position_m: position, rotation: rotation.map(|value| value as f32) })
    }

    /// The transforms around the moment, if the part was there and the ray comes near it.
    #[inline]
    pub(crate) fn near(&self, ray: &Ray, moment: Moment) -> Option<(Found, &Place, &Place)> {
        let found = self.track.find(moment)?;
        let (before, after) = (self.track.place(found.before), self.track.place(found.after));
        let position = crate::geometry::mixed(before.transform.position_m, after.transform.position_m, found.part);
        let reach_m = f64::from(self.reach_m);
        (ray.nearest(position).1 <= reach_m * reach_m).then_some((found, before, after))
    }

    fn between(&self, found: &Found) -> (Vector, Rotation) {
        let (before, after) = (self.track.place(found.before), self.track.place(found.after));
        between(&before.transform, &after.transform, found.part)
    }
}

/// A ray in the coordinates of something that stands at `position`.
#[inline]
pub(crate) fn local(ray: &Ray, along_m: f64, position: Vector, rotation: Rotation) -> (Vector, Vector) {
    (rotate_back(rotation, sub(ray.at(along_m), position)), rotate_back(rotation, ray.direction))
}
