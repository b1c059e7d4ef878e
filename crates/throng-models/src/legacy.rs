//! Unreal's generic replication: for each connection, every object is looked at.
//!
//! ```text
//! for each connection
//!     for each object          is it relevant: owned, let in, or near enough?       open or close its channel
//!     sort                     by priority: time since it was sent, times distance
//!     until there is no room   compare with what this connection was sent, write what differs
//! ```

use std::sync::Arc;

use throng::schema::{FieldMask, Schema};
use throng::{ServerOptions, StartError};

use crate::comparison::{Detection, Shadows};
use crate::link::Channel;
use crate::modelled::{Due, Model, Modelled, Seat, sort_by_priority};
use crate::world::{Scope, World};

/// An object at the end of what is seen counts so much; one in the same place counts 1. What the connection owns counts as
/// if it were there.
const FARTHEST_PRIORITY: f32 = 0.25;

/// Unreal's generic replication, with or without push marks.
pub type Legacy = Modelled<Method>;

impl Legacy {
    /// A world without objects.
    ///
    /// # Errors
    /// If the fields of a kind do not fit into a packet.
    pub fn new(schema: &Arc<Schema>, options: &ServerOptions, detection: Detection) -> Result<Legacy, StartError> {
        Modelled::with(Method { detection }, schema, options)
    }
}

/// How [`Legacy`] works.
#[derive(Debug)]
pub struct Method {
    detection: Detection,
}

impl Model for Method {
    type Own = Shadows;

    fn begin_write(&self, world: &World, seat: &mut Seat<Shadows>, _: usize) {
        for object in 0..world.len() as u32 {
            let known = seat.link.find(object);
            let Some(distance2) = seat.viewer.sees(world, object, known.is_some()) else {
                if let Some(channel) = known {
                    seat.link.close(channel);
                }
                continue;
            };
            let channel = match known {
                Some(channel) if seat.link.is_told(object) => channel,
                // Its former end is still on its way.
                Some(_) => continue,
                None => {
                    let is_owner = world.is_owner(object, seat.viewer.id);
                    match seat.link.open(world, object, is_owner) {
                        Some(channel) => channel,
                        None => continue,
                    }
                }
            };
            let waited_ticks = world.now().since(seat.link.channel(channel).sent_at) as f32;
            seat.due.push(Due { channel, priority: waited_ticks * nearness(world, object, distance2) });
        }
        sort_by_priority(&mut seat.due);
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

/// The share of an object's priority that its distance leaves: 1 here, [`FARTHEST_PRIORITY`] at the end of sight.
pub(crate) fn nearness(world: &World, object: u32, distance2: f32) -> f32 {
    let Scope::Place(grid) = world.scope(object) else { return 1.0 };
    let enter_m = world.reach(grid).enter_m;
    let share = (distance2 / (enter_m * enter_m)).min(1.0);
    1.0 - (1.0 - FARTHEST_PRIORITY) * share
}
