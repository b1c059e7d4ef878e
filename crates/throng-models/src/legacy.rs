//! Unreal's generic replication: for each connection, every object is looked at.
//!
//! ```text
//! once a tick                  the list of what is considered: dormant objects only now and then
//! for each connection
//!     for each on the list     is it relevant: owned, by name, or near enough?      open or close its channel
//!     order, if room is short  by priority: time since it was sent, times distance
//!     until there is no room   compare with what this connection was sent, write what differs
//! ```

use std::sync::Arc;

use throng::schema::{FieldMask, Schema};
use throng::{ServerOptions, StartError, Tick};

use crate::comparison::{Detection, Shadows};
use crate::link::{Channel, Stage};
use crate::modelled::{Model, Modelled, Place, Seat};
use crate::world::{Reach, Scope, World};

/// An object at the end of what is seen counts so much; one in the same place counts 1. The connection's own objects
/// count as near.
const FARTHEST_PRIORITY: f32 = 0.25;

/// Unreal's generic replication, with or without push marks.
pub type Legacy = Modelled<Method>;

impl Legacy {
    /// A world without objects.
    ///
    /// # Errors
    /// If the fields of a kind do not fit into a packet.
    pub fn new(schema: &Arc<Schema>, options: &ServerOptions, detection: Detection) -> Result<Legacy, StartError> {
        Legacy::with_intervals(schema, options, detection, Vec::new())
    }

    /// The same with an update interval for each kind, by its number, in ticks: an object is considered in one of this
    /// many ticks. Kinds that are not listed are considered in every tick, as 0 and 1 are.
    ///
    /// # Errors
    /// If the fields of a kind do not fit into a packet.
    pub fn with_intervals(
        schema: &Arc<Schema>,
        options: &ServerOptions,
        detection: Detection,
        intervals_ticks: Vec<u32>,
    ) -> Result<Legacy, StartError> {
        Modelled::with(Method { detection, intervals_ticks, considered: Vec::new() }, schema, options)
    }
}

/// How [`Legacy`] works.
#[derive(Debug)]
pub struct Method {
    detection: Detection,
    /// By kind.
    intervals_ticks: Vec<u32>,
    /// The objects that are considered for every connection in this tick.
    considered: Vec<Considered>,
}

/// An object, with everything that is asked of it for every connection.
#[derive(Clone, Copy, Debug)]
struct Considered {
    object: u32,
    /// Index of the connection that owns it.
    owner: u32,
    /// The grid in which it has a position; `None` if it is found by name.
    grid: Option<u8>,
    position_m: [f32; 3],
}

/// An object that was not touched for this long is dormant.
const DORMANT_AFTER_TICKS: u32 = 60;
/// Dormant objects are considered in turns, each in one of this many ticks.
const DORMANT_TURNS: u32 = 8;

impl Model for Method {
    type Own = Shadows;

    fn look(&mut self, world: &World, _: &mut [Place<Shadows>]) {
        self.considered.clear();
        for object in 0..world.len() as u32 {
            let grid = match world.scope(object) {
                Scope::Nowhere => continue,
                Scope::Place(grid) => Some(grid),
                Scope::Named(_) => None,
            };
            let is_dormant = world.now().since(world.marked(object)) > DORMANT_AFTER_TICKS;
            let interval_ticks = self.intervals_ticks.get(usize::from(world.kind_id(object).0)).copied().unwrap_or(1);
            if has_turn((object, world.now()), interval_ticks, is_dormant) {
                let (owner, position_m) = (world.owner_index(object), *world.position_m(object));
                self.considered.push(Considered { object, owner, grid, position_m });
            }
        }
    }

    fn begin_write(&self, world: &World, seat: &mut Seat<Shadows>) {
        self.considered.iter().for_each(|considered| consider(world, seat, considered));
    }

    fn pending(&self, world: &World, seat: &mut Seat<Shadows>, channel: u32) -> FieldMask {
        seat.own.pending(world, &seat.link, channel, self.detection)
    }

    fn sent(&self, world: &World, seat: &mut Seat<Shadows>, channel: u32, mask: FieldMask) {
        seat.own.sent(world, &seat.link, channel, mask);
    }

    fn freed(&self, own: &mut Shadows, channel: u32, state: &Channel) {
        own.freed(channel, state);
    }
}

/// Whether an object is considered in this tick: in one of its kind's interval, and if it is dormant, of [`DORMANT_TURNS`]
/// at least.
fn has_turn((object, now): (u32, Tick), interval_ticks: u32, is_dormant: bool) -> bool {
    let turns = if is_dormant { interval_ticks.max(DORMANT_TURNS) } else { interval_ticks.max(1) };
    object.wrapping_add(now.short().0).is_multiple_of(turns)
}

fn consider(world: &World, seat: &mut Seat<Shadows>, considered: &Considered) {
    let &Considered { object, owner, grid, ref position_m } = considered;
    let known = seat.link.find(object);
    let distance2 = match grid {
        Some(grid) if owner != seat.viewer.id.index => seat.viewer.sees_place(world, position_m, grid, known.is_some()),
        _ => seat.viewer.sees(world, object, known.is_some()),
    };
    let Some(distance2) = distance2 else {
        if let Some(channel) = known {
            seat.link.close(channel);
        }
        return;
    };
    let Some(channel) = known.or_else(|| seat.link.open(world, object, world.is_owner(object, seat.viewer.id))) else {
        return;
    };
    let state = seat.link.channel(channel);
    // If it is closing, its former end is still on its way.
    if state.stage != Stage::Closing {
        let waited_ticks = world.now().since(state.sent_at) as f32;
        let priority = waited_ticks * grid.map_or(1.0, |grid| nearness(world.reach(grid), distance2));
        seat.due.push(channel, priority, world.record_max_bits(state.kind));
    }
}

/// The share of an object's priority that its distance leaves: 1 here, [`FARTHEST_PRIORITY`] at the end of sight.
#[inline]
pub(crate) fn nearness(reach: &Reach, distance2: f32) -> f32 {
    let share = (distance2 / (reach.enter_m * reach.enter_m)).min(1.0);
    1.0 - (1.0 - FARTHEST_PRIORITY) * share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_considered_once_in_the_interval_of_its_kind() {
        let turns = |interval_ticks, is_dormant| {
            (0..240).filter(|&tick| has_turn((7, Tick(tick)), interval_ticks, is_dormant)).count()
        };
        assert_eq!([turns(0, false), turns(1, false), turns(3, false), turns(12, false)], [240, 240, 80, 20]);
        assert_eq!([turns(1, true), turns(3, true), turns(12, true)], [30, 30, 20]);
    }
}
