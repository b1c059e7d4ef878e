//! The view of each connection: cells by distance, and the channels that follow from them.

mod far;
mod others;
mod own;
mod seats;
mod turns;

use rustc_hash::FxHashMap;
use throng_interest::{
    CellId, InterestError, MAX_SHAPES, MAX_VIEWPOINTS, RingInterest, Scratch, Shape, Sink, Sources, Viewer,
};
use throng_replica::{ChannelKey, Replicator, SubscriberRow, SubscriptionId};
use throng_schema::Facet;
use throng_wire::{ConnectionId, ObjectId};

use crate::options::ServerOptions;
use far::{FAR_SUBSCRIPTIONS, FarCells};
use others::Others;
pub(crate) use own::ListPlaces;
use own::Own;
use seats::CalmBox;
pub(crate) use seats::Seats;
use turns::SendTurns;

/// The tag of a cell whose subscription could not be made because a limit was reached. It is tried again.
const NO_SUBSCRIPTION: u32 = 0;

/// The view of one connection.
pub(crate) struct View {
    pub(crate) connection: ConnectionId,
    /// The client can read everything.
    pub(crate) is_live: bool,
    /// The tick of the usual interval in which the client is sent to, once it is live.
    pub(crate) send_offset: Option<u32>,
    /// One for each grid.
    viewers: Vec<Viewer>,
    viewpoint: Option<[f64; 3]>,
    /// The viewpoints beside that one.
    more_viewpoints: Vec<[f64; 3]>,
    shapes: Vec<Shape>,
    /// Its viewpoints or shapes have changed since its cells were computed.
    pub(crate) viewpoint_moved: bool,
    /// Cells have come into view, have left it, or changed rings, since others' facets were last followed.
    cells_changed: bool,
    /// A cell in view has no subscription.
    has_refused: bool,
    /// An object in view lacks the subscription to its facet for others.
    lacks_others: bool,
    /// The game's explicit subscriptions, and the client's own channel if something has lived there, with their intervals. If such a
    /// cell is also in view, it has one subscription for both reasons: two subscriptions of one channel would disagree about its
    /// objects.
    pub(crate) explicit: FxHashMap<ChannelKey, (SubscriptionId, u16)>,
    /// `explicit` has changed since others' facets were last followed.
    pub(crate) explicit_changed: bool,
    /// The intervals in `explicit` may be others than when the send interval was set.
    pub(crate) intervals_changed: bool,
    pub(crate) own: Own,
    /// The game has unsubscribed the client from its own channel.
    pub(crate) leaves_own: bool,
    /// Others' facets that follow from the channels in view, and the interval at which each is sent.
    followed: FxHashMap<ObjectId, (SubscriptionId, u16)>,
    far: Option<FarCells>,
}

impl View {
    /// The subscription that a cell has because it is in view, and its ring.
    pub(crate) fn in_view(&self, key: ChannelKey) -> Option<(SubscriptionId, u8)> {
        let ChannelKey::Cell { grid, mut cell } = key else { return None };
        let far = self.far.as_ref().filter(|far| far.grid == grid);
        let part = far.map(|far| (far, far.take_part(&mut cell)));
        let [x, y, z] = cell;
        let held = self.viewers.get(usize::from(grid))?.find(CellId { x, y, z })?;
        if let Some((far, part)) = part {
            return Some((far.subscription(held.cell, part)?, held.ring));
        }
        let subscription = SubscriptionId::from_number(held.tag as u16);
        (u32::from(subscription.number()) != NO_SUBSCRIPTION).then_some((subscription, held.ring))
    }

    /// The subscription to an object's facet for others that follows from the view. It follows from there no longer.
    pub(crate) fn take_followed(&mut self, key: ChannelKey) -> Option<SubscriptionId> {
        let ChannelKey::Entity { object, facet: Facet::Others } = key else { return None };
        self.followed.remove(&object).map(|(subscription, _)| subscription)
    }

    /// Whether the client is sent what lives in a channel.
    pub(crate) fn reads(&self, key: ChannelKey) -> bool {
        let follows = |object: &ObjectId| self.followed.contains_key(object);
        self.explicit.contains_key(&key)
            || self.in_view(key).is_some()
            || matches!(&key, ChannelKey::Entity { object, facet: Facet::Others } if follows(object))
    }

    /// Cells in view that have no subscription.
    pub(crate) fn unsubscribed_cells(&self) -> u64 {
        let held = self.viewers.iter().flat_map(Viewer::held);
        held.filter(|held| held.tag == NO_SUBSCRIPTION).count() as u64
    }

    /// The shortest interval of the subscriptions that the game has made, in ticks.
    pub(crate) fn shortest_explicit_interval(&self) -> u16 {
        self.explicit.values().map(|&(_, interval)| interval).min().unwrap_or(u16::MAX)
    }

    /// Whether the client sees what lives in a channel, or will when there is room for a subscription.
    fn looks_into(&self, key: ChannelKey) -> bool {
        self.explicit.contains_key(&key) || matches!(key, ChannelKey::Cell { grid, cell } if self.holds(grid, cell))
    }

    /// Whether a cell is in view, or the cell of which this is a part.
    fn holds(&self, grid: u8, mut cell: [i32; 3]) -> bool {
        let is_part = match self.far.as_ref().filter(|far| far.grid == grid) {
            Some(far) => far.has_part(far.take_part(&mut cell)),
            None => true,
        };
        let [x, y, z] = cell;
        is_part && self.viewers.get(usize::from(grid)).is_some_and(|viewer| viewer.find(CellId { x, y, z }).is_some())
    }

    /// Whether the client looks from within `radius_m` of a position.
    pub(crate) fn looks_from_within(&self, place: [f64; 3], radius_m: f64) -> bool {
        self.viewpoints().any(|&from| is_within(from, place, radius_m))
    }

    fn viewpoints(&self) -> impl Iterator<Item = &[f64; 3]> {
        self.viewpoint.iter().chain(&self.more_viewpoints)
    }

    pub(crate) fn set_viewpoint(&mut self, position: [f64; 3]) {
        self.viewpoint = Some(position);
        self.more_viewpoints.clear();
        self.viewpoint_moved = true;
    }

    pub(crate) fn set_viewpoints(&mut self, positions: &[[f64; 3]]) -> Result<(), InterestError> {
        if positions.len() > MAX_VIEWPOINTS {
            return Err(InterestError::TooManyViewpoints { viewpoints: positions.len() });
        }
        self.viewpoint = positions.first().copied();
        self.more_viewpoints.clear();
        self.more_viewpoints.extend_from_slice(positions.get(1..).unwrap_or_default());
        self.viewpoint_moved = true;
        Ok(())
    }
}

/// Whether two positions are at most `radius_m` apart.
fn is_within(from: [f64; 3], place: [f64; 3], radius_m: f64) -> bool {
    let squared: f64 = from.iter().zip(place).map(|(from, to)| (from - to) * (from - to)).sum();
    squared <= radius_m * radius_m
}

/// One grid as viewers see it.
pub(crate) struct GridView {
    /// Its rings reach farther than the game asks for, by `stray_m`.
    pub(crate) interest: RingInterest,
    /// How far an object may be outside of the cell that it lives in.
    pub(crate) stray_m: f64,
}

/// The grids' rings, and how often a subscription was refused.
pub(crate) struct Views {
    grids: Vec<GridView>,
    /// When each client is sent to, unless the game subscribes it to something more frequent.
    pub(crate) turns: SendTurns,
    /// Without subscriptions.
    far: Option<FarCells>,
    /// Where each grid's world ends, in metres.
    bounds_m: Vec<Option<[[f64; 3]; 2]>>,
    /// The objects with fields for everyone but the owner.
    pub(crate) others: Others,
    pub(crate) refused: u64,
    /// Channels and objects that were looked at for the sake of fields for others.
    #[cfg(test)]
    pub(crate) looked_at: usize,
}

/// Follows what has changed about views: those of one row of connections.
#[derive(Default)]
pub(crate) struct Looker {
    /// Channels that were needed, and do not exist.
    pub(crate) missing: Vec<ChannelKey>,
    /// The connections that need them, by index, each with the number of cells that have come into view without one.
    pub(crate) waiting: Vec<(u32, u64)>,
    pub(crate) refused: u64,
    /// The offsets that clients had, and those that they have now: see [`SendTurns`].
    turned: Vec<(u32, u32)>,
    /// The number of cells that have come into view without a channel since the last look.
    unmade: u64,
    #[cfg(test)]
    looked_at: usize,
    scratch: Scratch,
    wanted: Vec<(ObjectId, u16)>,
    /// Scratch of [`Looker::weigh`].
    own_channels: Vec<ChannelKey>,
    /// Scratch of [`Looker::visit`].
    positions: Vec<[f64; 3]>,
    /// Scratch of [`Looker::visit`].
    shapes: Vec<Shape>,
}

impl Views {
    /// Ticks between two sends of a cell at this ring; 1 for what is no cell.
    pub(crate) fn ring_interval(&self, key: ChannelKey, ring: u8) -> u16 {
        let ChannelKey::Cell { grid, .. } = key else { return 1 };
        self.grids.get(usize::from(grid)).map_or(1, |grid| grid.interest.rings().interval_ticks(ring) as u16)
    }

    pub(crate) fn new(grids: Vec<GridView>, options: &ServerOptions) -> Views {
        let bounds_m = options.grids.iter().map(|grid| grid.bounds_m).collect();
        let most_often = grids.iter().min_by_key(|grid| grid.interest.rings().interval_ticks(0));
        let column_m = most_often.map(|grid| grid.interest.grid().cell_m()[0]);
        let turns = SendTurns::new(options.usual_send_interval_ticks(), column_m);
        let far = options.far.map(|far| FarCells::new(far, &options.grids));
        Views {
            grids,
            far,
            turns,
            bounds_m,
            others: Others::default(),
            refused: 0,
            #[cfg(test)]
            looked_at: 0,
        }
    }

    /// Adds what a looker has counted.
    pub(crate) fn note_refused(&mut self, looker: &mut Looker) {
        self.refused += std::mem::take(&mut looker.refused);
        looker.turned.drain(..).for_each(|(from, to)| self.turns.note_moved(from, to));
        #[cfg(test)]
        {
            self.looked_at += std::mem::take(&mut looker.looked_at);
        }
    }

    /// An empty view.
    pub(crate) fn open(&self, connection: ConnectionId) -> View {
        View {
            connection,
            is_live: false,
            send_offset: None,
            viewers: vec![Viewer::new(); self.grids.len()],
            viewpoint: None,
            more_viewpoints: Vec::new(),
            shapes: Vec::new(),
            viewpoint_moved: false,
            cells_changed: false,
            has_refused: false,
            lacks_others: false,
            explicit: FxHashMap::default(),
            explicit_changed: false,
            intervals_changed: false,
            own: Own::default(),
            leaves_own: false,
            followed: FxHashMap::default(),
            far: self.far.clone(),
        }
    }

    /// From where a client that looks from a single viewpoint sees the same cells, in all grids.
    fn calm_box(&self, view: &View) -> Option<CalmBox> {
        let is_single = view.more_viewpoints.is_empty() && view.shapes.is_empty();
        if !is_single || !view.is_live || view.viewpoint_moved {
            return None;
        }
        let boxes = view.viewers.iter().map(Viewer::calm_box).chain(self.bounds_m.iter().flatten().copied());
        Some(boxes.fold(CalmBox::ALL, CalmBox::and))
    }

    /// Replaces the shapes that the client sees beside what is around its viewpoints.
    pub(crate) fn set_shapes(&self, view: &mut View, shapes: &[Shape]) -> Result<(), InterestError> {
        if shapes.len() > MAX_SHAPES {
            return Err(InterestError::TooManyShapes { shapes: shapes.len() });
        }
        for GridView { interest, stray_m } in &self.grids {
            for shape in shapes {
                interest.grid().cells_in(shape, interest.rings(), |_, _| {})?;
                interest.grid().cells_in(&grown(shape, *stray_m), interest.rings(), |_, _| {})?;
            }
        }
        view.shapes.clear();
        view.shapes.extend_from_slice(shapes);
        view.viewpoint_moved = true;
        Ok(())
    }
}

impl Looker {
    /// Follows what has changed about a view. Returns whether it has to be looked at again in the next tick, and from where
    /// the client sees the same cells.
    pub(crate) fn look(
        &mut self,
        views: &Views,
        (index, view): (u32, &mut View),
        row: &mut SubscriberRow<'_>,
    ) -> (bool, Option<CalmBox>) {
        let missing = self.missing.len();
        set_send_interval(views, view, row);
        self.weigh(view, row);
        self.update(views, view, row);
        self.update_others(views, view, row);
        if self.missing.len() > missing {
            self.waiting.push((index, std::mem::take(&mut self.unmade)));
        }
        let calm = views.calm_box(view);
        let waits = self.turn(views, (index, view), calm.as_ref(), row);
        (view.has_refused || view.lacks_others || waits, calm)
    }

    /// Gives the client the ticks of its place. True if it has to wait for the first of them.
    fn turn(
        &mut self,
        views: &Views,
        (index, view): (u32, &mut View),
        calm: Option<&CalmBox>,
        row: &mut SubscriberRow<'_>,
    ) -> bool {
        let (Some(has), Some(viewpoint)) = (view.send_offset, view.viewpoint) else { return false };
        let wanted = views.turns.offset_at(index, CalmBox::middle_x(calm, viewpoint));
        let Some(wanted) = wanted.filter(|wanted| *wanted != has) else { return false };
        if view.shortest_explicit_interval() < views.turns.interval() {
            return false;
        }
        let begins = views.turns.may_begin(wanted, row.tick());
        if begins {
            view.send_offset = Some(wanted);
            view.intervals_changed = true;
            self.turned.push((has, wanted));
            set_send_interval(views, view, row);
        }
        !begins
    }

    /// Gives the channels in which the connection's own objects live their weight, if one of them has moved.
    fn weigh(&mut self, view: &mut View, row: &mut SubscriberRow<'_>) {
        if !std::mem::take(&mut view.own.has_moved) {
            return;
        }
        let homes = view.own.objects().iter().filter_map(|&id| row.home(id, Facet::Public));
        self.own_channels.clear();
        self.own_channels.extend(homes.map(|home| row.key(home)));
        self.own_channels.sort_unstable();
        self.own_channels.dedup();
        std::mem::swap(&mut view.own.channels, &mut self.own_channels);
        let (now, before) = (&view.own.channels, &self.own_channels);
        let differs = |key: &&ChannelKey| now.binary_search(key).is_ok() != before.binary_search(key).is_ok();
        for &key in now.iter().chain(before).filter(differs) {
            let by_hand = view.explicit.get(&key).map(|&(subscription, _)| subscription);
            let subscription = by_hand.or(view.in_view(key).map(|(subscription, _)| subscription));
            if let (Some(subscription), Some(connection)) = (subscription, row.connection_mut(view.connection)) {
                connection.set_weight(subscription, view.own.weight(key));
            }
        }
    }

    /// Subscribes the connection to the cells around its viewpoint, if that has moved, and to those that were refused.
    fn update(&mut self, views: &Views, view: &mut View, row: &mut SubscriberRow<'_>) {
        let missing = self.missing.len();
        if view.is_live && std::mem::take(&mut view.viewpoint_moved) {
            self.visit(views, (view, row), Visit::Follow);
        }
        let has_room = || row.connection(view.connection).is_some_and(|connection| connection.has_room());
        // A cell that lacks its channel is asked for again when the channel has been made.
        if view.has_refused && self.missing.len() == missing && has_room() {
            view.has_refused = false;
            self.visit(views, (view, row), Visit::AskAgain);
        }
    }

    fn visit(&mut self, views: &Views, (view, row): (&mut View, &mut SubscriberRow<'_>), visit: Visit) {
        let (refused, missing) = (self.refused, self.missing.len());
        let single = view.viewpoint.filter(|_| view.more_viewpoints.is_empty() && view.shapes.is_empty());
        for (number, (grid, viewer)) in views.grids.iter().zip(&mut view.viewers).enumerate() {
            let mut sink = CellSink {
                connection: view.connection,
                grid: number as u8,
                interest: &grid.interest,
                explicit: &view.explicit,
                own: &view.own,
                far: view.far.as_mut().filter(|far| usize::from(far.grid) == number),
                row,
                changed: &mut view.cells_changed,
                refused: &mut self.refused,
                missing: &mut self.missing,
                unmade: &mut self.unmade,
            };
            let bounds_m = views.bounds_m[number];
            match (visit, single) {
                (Visit::AskAgain, _) => {
                    view.has_refused |= viewer.offer_again(NO_SUBSCRIPTION, |cell, ring| sink.try_enter(cell, ring));
                }
                (Visit::Follow, Some(viewpoint)) => {
                    grid.interest.update(viewer, within(viewpoint, bounds_m), &mut self.scratch, &mut sink);
                }
                (Visit::Follow, None) => {
                    let viewpoints = view.viewpoint.iter().chain(&view.more_viewpoints);
                    self.positions.clear();
                    self.positions.extend(viewpoints.map(|&viewpoint| within(viewpoint, bounds_m)));
                    self.shapes.clear();
                    self.shapes.extend(view.shapes.iter().map(|shape| grown(shape, grid.stray_m)));
                    let sources = Sources { positions: &self.positions, shapes: &self.shapes, cells: &[] };
                    let updated = grid.interest.update_from(viewer, &sources, &mut self.scratch, &mut sink);
                    debug_assert!(updated.is_ok(), "viewpoints and shapes were checked when they were set");
                    self.refused += u64::from(updated.is_err());
                }
            }
        }
        view.has_refused |= self.refused > refused || self.missing.len() > missing;
    }
}

/// Sends to the connection as often as its most frequent subscription needs it, if that may have changed.
fn set_send_interval(views: &Views, view: &mut View, row: &mut SubscriberRow<'_>) {
    if !std::mem::take(&mut view.intervals_changed) {
        return;
    }
    let interval = view.shortest_explicit_interval().min(views.turns.interval());
    let offset = view.send_offset.unwrap_or_default();
    if let Some(connection) = row.connection_mut(view.connection) {
        connection.set_send_interval(interval, offset);
    }
}

/// An object outside of the world's bounds is shown at the border, so a viewer there looks from the border.
fn within(viewpoint: [f64; 3], bounds_m: Option<[[f64; 3]; 2]>) -> [f64; 3] {
    let Some([low, high]) = bounds_m else { return viewpoint };
    std::array::from_fn(|axis| viewpoint[axis].min(high[axis]).max(low[axis]))
}

/// The shape with everything around it that is at most so far away: what stands in the shape may live in a cell that the
/// shape does not touch.
fn grown(shape: &Shape, by_m: f64) -> Shape {
    match *shape {
        Shape::Sphere { centre, radius_m } => Shape::Sphere { centre, radius_m: radius_m + by_m },
        Shape::Box { min, max } => Shape::Box { min: min.map(|at| at - by_m), max: max.map(|at| at + by_m) },
        Shape::Cone { apex, axis, half_angle_rad, range_m } => {
            // The same cone from so far behind that its sides have moved outwards by this much. The direction is scaled by its
            // largest part first: the square of a huge or a tiny part would leave the range of an f64.
            let largest = axis.iter().fold(0.0f64, |largest, along| largest.max(along.abs()));
            let scaled = axis.map(|along| along / largest);
            let length = scaled.iter().map(|along| along * along).sum::<f64>().sqrt();
            let back_m = by_m / half_angle_rad.sin();
            let apex = std::array::from_fn(|along| apex[along] - scaled[along] / length * back_m);
            Shape::Cone { apex, axis, half_angle_rad, range_m: range_m + back_m + by_m }
        }
    }
}

/// Subscribes a connection to a channel by name.
pub(crate) fn subscribe(
    replicator: &mut Replicator,
    connection: ConnectionId,
    key: ChannelKey,
    interval_ticks: u16,
    weight: u8,
) -> Option<SubscriptionId> {
    let channel = replicator.channel(key).ok()?;
    replicator.hub().subscribe(connection, channel, interval_ticks, weight).ok()
}

/// Why the cells in view are gone through.
#[derive(Clone, Copy)]
enum Visit {
    /// The viewpoint has moved.
    Follow,
    /// Those that have no subscription are tried, nearest ring first.
    AskAgain,
}

/// Subscribes a connection to the cells of one grid.
struct CellSink<'a, 'r> {
    connection: ConnectionId,
    grid: u8,
    interest: &'a RingInterest,
    explicit: &'a FxHashMap<ChannelKey, (SubscriptionId, u16)>,
    own: &'a Own,
    /// If the grid is the one for far facets.
    far: Option<&'a mut FarCells>,
    row: &'a mut SubscriberRow<'r>,
    changed: &'a mut bool,
    refused: &'a mut u64,
    missing: &'a mut Vec<ChannelKey>,
    unmade: &'a mut u64,
}

impl CellSink<'_, '_> {
    fn key(&self, cell: CellId) -> ChannelKey {
        ChannelKey::Cell { grid: self.grid, cell: [cell.x, cell.y, cell.z] }
    }

    fn set_interval(&mut self, subscription: SubscriptionId, interval_ticks: u16) {
        if let Some(connection) = self.row.connection_mut(self.connection) {
            connection.set_interval(subscription, interval_ticks);
        }
    }
}

impl CellSink<'_, '_> {
    /// The tag of a cell that has its subscription.
    fn try_enter(&mut self, cell: CellId, ring: u8) -> Option<u32> {
        let interval = self.interest.rings().interval_ticks(ring) as u16;
        if let Some(far) = self.far.take() {
            let has_entered = self.try_enter_far(far, cell, interval);
            self.far = Some(far);
            return has_entered.then_some(FAR_SUBSCRIPTIONS);
        }
        Some(u32::from(self.enter_channel(self.key(cell), interval)?.number()))
    }

    /// Subscribes to all parts of a cell, or to none.
    fn try_enter_far(&mut self, far: &mut FarCells, cell: CellId, interval_ticks: u16) -> bool {
        let missing = self.missing.len();
        let exists = |key: &ChannelKey| self.explicit.contains_key(key) || self.row.find(*key).is_some();
        self.missing.extend(far.keys(cell).filter(|key| !exists(key)));
        if self.missing.len() > missing {
            return false;
        }
        // To begin and to end some of them in each tick, until there is room for all, would cost bytes for nothing.
        let needed = far.keys(cell).filter(|key| !self.explicit.contains_key(key)).count();
        if self.row.connection(self.connection).is_none_or(|connection| connection.room() < needed) {
            return false;
        }
        let mut subscriptions = Vec::with_capacity(far.parts.into());
        for key in far.keys(cell) {
            match self.enter_channel(key, interval_ticks) {
                Some(subscription) => subscriptions.push(subscription),
                None => {
                    far.keys(cell).zip(subscriptions).for_each(|(key, entered)| self.leave_channel(key, entered));
                    return false;
                }
            }
        }
        far.subscriptions.insert(cell, subscriptions.into());
        true
    }

    fn enter_channel(&mut self, key: ChannelKey, interval_ticks: u16) -> Option<SubscriptionId> {
        if let Some(&(subscription, by_hand)) = self.explicit.get(&key) {
            self.set_interval(subscription, interval_ticks.min(by_hand));
            return Some(subscription);
        }
        // The cell was not in view, and is not subscribed to by hand.
        let Some(channel) = self.row.find(key) else {
            self.missing.push(key);
            return None;
        };
        self.row.subscribe_unseen(self.connection, channel, interval_ticks, self.own.weight(key)).ok()
    }

    fn change_channel(&mut self, key: ChannelKey, subscription: SubscriptionId, interval_ticks: u16) {
        let by_hand = self.explicit.get(&key).map_or(interval_ticks, |&(_, by_hand)| by_hand);
        self.set_interval(subscription, interval_ticks.min(by_hand));
    }

    fn leave_channel(&mut self, key: ChannelKey, subscription: SubscriptionId) {
        match self.explicit.get(&key) {
            Some(&(by_hand, interval)) if by_hand == subscription => self.set_interval(subscription, interval),
            _ => self.row.unsubscribe(self.connection, subscription),
        }
    }
}

impl Sink for CellSink<'_, '_> {
    fn enter(&mut self, cell: CellId, ring: u8) -> u32 {
        *self.changed = true;
        let missing = self.missing.len();
        self.try_enter(cell, ring).unwrap_or_else(|| {
            match self.missing.len() == missing {
                true => *self.refused += 1,
                false => *self.unmade += 1,
            }
            NO_SUBSCRIPTION
        })
    }

    fn change(&mut self, cell: CellId, tag: u32, ring: u8) {
        *self.changed = true;
        let interval = self.interest.rings().interval_ticks(ring) as u16;
        match self.far.take() {
            None => self.change_channel(self.key(cell), SubscriptionId::from_number(tag as u16), interval),
            Some(far) => {
                far.held(cell).for_each(|(key, subscription)| self.change_channel(key, subscription, interval));
                self.far = Some(far);
            }
        }
    }

    fn leave(&mut self, cell: CellId, tag: u32) {
        *self.changed = true;
        match self.far.take() {
            None => self.leave_channel(self.key(cell), SubscriptionId::from_number(tag as u16)),
            Some(far) => {
                far.held(cell).for_each(|(key, subscription)| self.leave_channel(key, subscription));
                far.subscriptions.remove(&cell);
                self.far = Some(far);
            }
        }
    }
}
