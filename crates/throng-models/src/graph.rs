//! Unreal's Replication Graph: nodes that keep lists of objects from tick to tick, shared by connections.
//!
//! ```text
//! shared, kept         cells: what can be seen from there, awake and dormant  |  names: what is let in by name
//! for each connection  the lists of the cell it looks from, of its names, of what it owns
//!     for each of them     near enough, and its period over? (zones of distance)         open its channel
//!     sort, compare, write as Unreal's generic replication does, with push marks
//! ```
//!
//! An object is in the list of every cell from which it can be seen, so a connection needs to look at one cell only.
//! Channels of objects that no list has brought for some ticks are closed.

mod nodes;

use std::sync::Arc;

use throng::schema::{FieldMask, Schema};
use throng::{ChannelKey, ServerOptions, StartError, Tick};

use crate::comparison::{Detection, Shadows};
use crate::legacy::nearness;
use crate::link::Channel;
use crate::modelled::{Due, Model, Modelled, Seat, sort_by_priority};
use crate::world::{Scope, World};
use nodes::Nodes;

/// A channel whose object no list has brought for so many ticks is closed.
const CHANNEL_TIMEOUT_TICKS: u32 = 4;

/// Channels are looked through for that every so many ticks.
const TIMEOUT_INTERVAL_TICKS: u32 = 4;

/// Unreal's Replication Graph.
pub type Graph = Modelled<Method>;

impl Graph {
    /// A world without objects.
    ///
    /// # Errors
    /// If the fields of a kind do not fit into a packet.
    pub fn new(schema: &Arc<Schema>, options: &ServerOptions) -> Result<Graph, StartError> {
        Modelled::with(Method { nodes: Nodes::new(&options.grids) }, schema, options)
    }
}

/// How [`Graph`] works.
#[derive(Debug)]
pub struct Method {
    nodes: Nodes,
}

/// What is kept for a connection.
#[derive(Debug, Default)]
pub struct Own {
    shadows: Shadows,
    /// By channel number.
    turns: Vec<Turn>,
    /// Scratch: what the connection is let in to by name.
    names: Vec<ChannelKey>,
}

/// When a channel was brought by a list, and when it may be sent again.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    brought: Tick,
    next: Tick,
}

impl Model for Method {
    type Own = Own;

    fn began(&mut self, world: &World, object: u32) {
        self.nodes.insert(world, object);
    }

    fn touched(&mut self, world: &World, object: u32, _: FieldMask) {
        self.nodes.touch(world, object);
    }

    fn moved(&mut self, world: &World, object: u32) {
        self.nodes.remove(object);
        self.nodes.insert(world, object);
    }

    fn ended(&mut self, _: &World, object: u32) {
        self.nodes.remove(object);
    }

    fn look(&mut self, world: &World, _: &mut [crate::modelled::Place<Own>]) {
        self.nodes.prepare(world);
    }

    fn begin_write(&self, world: &World, seat: &mut Seat<Own>, _: usize) {
        if let Some(viewpoint_m) = seat.viewer.viewpoint_m {
            for grid in 0..world.grid_count() as u8 {
                let Some(cell) = self.nodes.cell(grid, viewpoint_m) else { continue };
                cell.awake.iter().for_each(|&object| self.consider(world, seat, object));
                for &object in &cell.dormant {
                    self.consider_dormant(world, seat, object);
                }
            }
        }
        let mut names = std::mem::take(&mut seat.own.names);
        names.extend(seat.viewer.names());
        for key in names.drain(..) {
            self.nodes.named(key, world.now()).for_each(|object| self.consider(world, seat, object));
        }
        seat.own.names = names;
        if seat.viewer.follows_cells() {
            (0..world.len() as u32).for_each(|object| self.consider(world, seat, object));
        }
        for &object in self.nodes.owned(seat.viewer.id) {
            self.consider(world, seat, object);
        }
        if world.now().0.is_multiple_of(TIMEOUT_INTERVAL_TICKS) {
            self.close_forgotten(world, seat);
        }
        sort_by_priority(&mut seat.due);
    }

    fn pending(&self, world: &World, seat: &mut Seat<Own>, channel: u32) -> FieldMask {
        seat.own.shadows.pending(world, &seat.link, channel, Detection::Push)
    }

    fn sent(&self, world: &World, seat: &mut Seat<Own>, channel: u32, mask: FieldMask) {
        seat.own.shadows.sent(world, &seat.link, channel, mask);
        let object = seat.link.channel(channel).id.index;
        let distance2 = seat.viewer.sees(world, object, true).unwrap_or(0.0);
        seat.own.turns[channel as usize].next = world.now().after(period_ticks(world, object, distance2));
    }

    fn freed(&self, own: &mut Own, channel: u32, state: &Channel) {
        own.shadows.freed(channel, state);
    }
}

impl Method {
    /// A list has brought an object.
    fn consider(&self, world: &World, seat: &mut Seat<Own>, object: u32) {
        let known = seat.link.find(object);
        let Some(distance2) = seat.viewer.sees(world, object, known.is_some()) else { return };
        let channel = match known {
            Some(channel) if seat.link.is_told(object) => channel,
            Some(_) => return,
            None => {
                let is_owner = world.is_owner(object, seat.viewer.id);
                match seat.link.open(world, object, is_owner) {
                    Some(channel) => seat.own.begin_turns(channel, world.now()),
                    None => return,
                }
            }
        };
        let turn = &mut seat.own.turns[channel as usize];
        if std::mem::replace(&mut turn.brought, world.now()) == world.now() || turn.next.is_newer_than(world.now()) {
            return;
        }
        let waited_ticks = world.now().since(seat.link.channel(channel).sent_at) as f32;
        seat.due.push(Due { channel, priority: waited_ticks * nearness(world, object, distance2) });
    }

    /// An object that has not changed for long is looked at for those only who do not have all of it.
    fn consider_dormant(&self, world: &World, seat: &mut Seat<Own>, object: u32) {
        if let Some(channel) = seat.link.find(object)
            && seat.link.is_told(object)
            && seat.link.channel(channel).resend == 0
            && seat.own.shadows.is_clean(world, object, channel)
            && seat.viewer.sees(world, object, true).is_some()
        {
            seat.own.turns[channel as usize].brought = world.now();
            return;
        }
        self.consider(world, seat, object);
    }

    fn close_forgotten(&self, world: &World, seat: &mut Seat<Own>) {
        for channel in 0..seat.own.turns.len() as u32 {
            if world.now().since(seat.own.turns[channel as usize].brought) > CHANNEL_TIMEOUT_TICKS {
                seat.link.close(channel);
            }
        }
    }
}

impl Own {
    /// The channel is new, and has its first turn now.
    fn begin_turns(&mut self, channel: u32, now: Tick) -> u32 {
        if self.turns.len() <= channel as usize {
            self.turns.resize(channel as usize + 1, Turn::default());
        }
        self.turns[channel as usize] = Turn { brought: now.before(1), next: now };
        channel
    }
}

/// Ticks between two sends of an object at a distance: the zones are the rings.
fn period_ticks(world: &World, object: u32, distance2: f32) -> u32 {
    let Scope::Place(grid) = world.scope(object) else { return 1 };
    let rings = &world.grid(grid).rings;
    let ring = rings.iter().find(|ring| f64::from(distance2) <= ring.radius_m * ring.radius_m).or(rings.last());
    ring.map_or(1, |ring| ring.interval_ticks.max(1))
}
