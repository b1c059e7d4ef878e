//! Unreal's Replication Graph: nodes that keep lists of objects from tick to tick, shared by connections.
//!
//! ```text
//! shared, kept         cells: objects visible from there, awake and dormant  |  names: objects visible by name
//! for each connection  the lists of the cell it looks from, of its names, of what it owns
//!     for each of them     near enough, and its period over? (zones of distance)         open its channel
//!     order, compare, write as Unreal's generic replication does, with push marks
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
use crate::link::{Channel, Stage};
use crate::modelled::{Model, Modelled, Seat};
use crate::world::{Scope, World};
use nodes::{DORMANT_TURNS, Nodes};

/// A channel is closed if its object was on no list for this many ticks; dormant objects are on lists in turns, and
/// have as many more.
const CHANNEL_TIMEOUT_TICKS: u32 = 4;

/// Channels are checked for that every this many ticks.
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

/// A connection's record.
#[derive(Debug, Default)]
pub struct Own {
    shadows: Shadows,
    /// By channel number.
    turns: Vec<Turn>,
    /// Scratch: the objects that the connection sees by name.
    names: Vec<ChannelKey>,
}

/// When a channel was brought by a list, and when it may be sent again.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    brought: Tick,
    next: Tick,
    /// Ticks between two updates in the zone that it was seen in.
    period_ticks: u32,
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

    fn begin_write(&self, world: &World, seat: &mut Seat<Own>) {
        if let Some(viewpoint_m) = seat.viewer.viewpoint_m {
            for grid in 0..world.grid_count() as u8 {
                let Some(cell) = self.nodes.cell(grid, viewpoint_m) else { continue };
                cell.awake.iter().for_each(|&object| consider_placed(world, seat, object, grid));
                cell.dormant(world.now()).iter().for_each(|&object| consider_dormant(world, seat, object, grid));
            }
        }
        let mut names = std::mem::take(&mut seat.own.names);
        names.extend(seat.viewer.names());
        for key in names.drain(..) {
            self.nodes.named(key, world.now()).for_each(|object| consider(world, seat, object));
        }
        seat.own.names = names;
        if seat.viewer.follows_cells() {
            (0..world.len() as u32).for_each(|object| consider(world, seat, object));
        }
        for &object in self.nodes.owned(seat.viewer.id) {
            consider(world, seat, object);
        }
        if world.now().0.is_multiple_of(u64::from(TIMEOUT_INTERVAL_TICKS)) {
            self.close_forgotten(world, seat);
        }
    }

    fn pending(&self, world: &World, seat: &mut Seat<Own>, channel: u32) -> FieldMask {
        seat.own.shadows.pending(world, &seat.link, channel, Detection::Push)
    }

    fn sent(&self, world: &World, seat: &mut Seat<Own>, channel: u32, mask: FieldMask) {
        seat.own.shadows.sent(world, &seat.link, channel, mask);
        let turn = &mut seat.own.turns[channel as usize];
        turn.next = world.now().after(turn.period_ticks);
    }

    fn freed(&self, own: &mut Own, channel: u32, state: &Channel) {
        own.shadows.freed(channel, state);
    }
}

/// A list of a cell has brought an object.
fn consider_placed(world: &World, seat: &mut Seat<Own>, object: u32, grid: u8) {
    let known = seat.link.find(object);
    let distance2 = seat.viewer.sees_place(world, world.position_m(object), grid, known.is_some());
    // A separate list brings the connection's own objects, wherever they are.
    if let Some(distance2) = distance2 {
        put(world, seat, object, known, Some((grid, distance2)));
    }
}

/// An object that has not changed for long is only checked for connections that do not have all of it.
fn consider_dormant(world: &World, seat: &mut Seat<Own>, object: u32, grid: u8) {
    if let Some(channel) = seat.link.find(object)
        && seat.link.is_told(object)
        && seat.link.channel(channel).resend == 0
        && seat.own.shadows.is_clean(world, object, channel)
        && seat.viewer.sees_place(world, world.position_m(object), grid, true).is_some()
    {
        seat.own.turns[channel as usize].brought = world.now();
        return;
    }
    consider_placed(world, seat, object, grid);
}

/// Another list has brought an object.
fn consider(world: &World, seat: &mut Seat<Own>, object: u32) {
    let known = seat.link.find(object);
    let Some(distance2) = seat.viewer.sees(world, object, known.is_some()) else { return };
    let place = match world.scope(object) {
        Scope::Place(grid) => Some((grid, distance2)),
        Scope::Nowhere | Scope::Named(_) => None,
    };
    put(world, seat, object, known, place);
}

/// The connection sees an object, from this distance if it has a position. Its turn may have come.
#[inline]
fn put(world: &World, seat: &mut Seat<Own>, object: u32, known: Option<u32>, place: Option<(u8, f32)>) {
    let channel = match known {
        Some(channel) => channel,
        None => match seat.link.open(world, object, world.is_owner(object, seat.viewer.id)) {
            Some(channel) => seat.own.begin_turns(channel, world.now()),
            None => return,
        },
    };
    let state = seat.link.channel(channel);
    if state.stage == Stage::Closing {
        return;
    }
    let turn = &mut seat.own.turns[channel as usize];
    if std::mem::replace(&mut turn.brought, world.now()) == world.now() || turn.next.is_newer_than(world.now()) {
        return;
    }
    let (period_ticks, share) = place.map_or((1, 1.0), |(grid, distance2)| {
        let reach = world.reach(grid);
        (reach.interval_ticks(distance2), nearness(reach, distance2))
    });
    turn.period_ticks = period_ticks;
    let waited_ticks = world.now().since(state.sent_at) as f32;
    seat.due.push(channel, waited_ticks * share, world.record_max_bits(state.kind));
}

impl Method {
    /// Closes the channels of objects that no list has brought for some ticks; dormant ones wait for their turn as long.
    fn close_forgotten(&self, world: &World, seat: &mut Seat<Own>) {
        for channel in 0..seat.own.turns.len() as u32 {
            let unbrought_ticks = world.now().since(seat.own.turns[channel as usize].brought);
            let object = seat.link.channel(channel).id.index;
            if unbrought_ticks > CHANNEL_TIMEOUT_TICKS
                && (unbrought_ticks > CHANNEL_TIMEOUT_TICKS + DORMANT_TURNS || !self.nodes.is_dormant(object))
            {
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
        self.turns[channel as usize] = Turn { brought: now.before(1), next: now, period_ticks: 1 };
        channel
    }
}
