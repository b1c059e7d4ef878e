//! The spatial world: cells as channels, the servers that own them, and the cells that each connection sees.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use throng_channeld::proto::{
    ChannelSubscriptionOptions, ChannelType, CreateChannelMessage, CreateSpatialChannelsResultMessage,
    QuerySpatialChannelMessage, QuerySpatialChannelResultMessage, SpatialChannelsReadyMessage,
    SpatialRegionsUpdateMessage, UpdateSpatialInterestMessage,
};
use throng_channeld::{GLOBAL_CHANNEL, Header, Message, message_type};
use throng_replica::ChannelIndex;

use super::Engine;
use super::handover::ENTITIES_FIELD;
use super::lifecycle::check_metadata;
use super::pace::Pace;
use super::place::{Party, Place};
use super::refusal::Refusal;
use crate::spatial::{Grid, Handovers, Interest, InterestLimits, InterestScratch, Position, Slots};
use throng_protostate::MapKey;

/// The world, if the gateway was given one.
pub(super) struct World {
    pub(super) grid: Arc<Grid>,
    /// By connection id: it stays the same when a lost server comes back.
    pub(super) slots: Slots<u32>,
    pub(super) handovers: Handovers<Party>,
    pub(super) pace: Pace,
    scratch: InterestScratch,
    found: Vec<Interest>,
}

impl World {
    pub(super) fn new(grid: Arc<Grid>) -> World {
        World {
            slots: Slots::new(&grid),
            grid,
            handovers: Handovers::new(),
            pace: Pace::default(),
            scratch: InterestScratch::default(),
            found: Vec::new(),
        }
    }
}

/// One cell of the world, as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellInfo {
    /// Its channel.
    pub channel: u32,
    /// The connection id of the server that decides over it; `None` if that is not there.
    pub owner: Option<u32>,
    /// Whether that server was lost and may come back.
    pub is_awaited: bool,
    /// The entities that its state lists, in ascending order.
    pub entities: Vec<u32>,
}

/// Cells in one table: each takes some 80 bytes, and a message has to fit into a packet.
const REGIONS_PER_MESSAGE: usize = 500;

/// Cells in one answer to the server that has got them: an id takes up to 5 bytes.
const CELLS_PER_MESSAGE: usize = 10_000;

const NO_WORLD: Refusal = Refusal::Spatial("no_spatial_world");

impl Engine {
    /// The cells of the world that exist, in no particular order.
    pub fn cells(&self) -> impl Iterator<Item = CellInfo> + '_ {
        self.channels.iter().filter(|channel| channel.kind == ChannelType::Spatial).map(|channel| CellInfo {
            channel: channel.id,
            owner: channel.owner.map(|owner| self.connections.at(owner).id),
            is_awaited: channel.is_awaited,
            entities: self.listed_in(channel.id),
        })
    }

    /// The entities that the state of a cell lists, in ascending order.
    pub(super) fn listed_in(&self, cell: u32) -> Vec<u32> {
        let data = self.channels.find(cell).and_then(|cell| self.fanout.hub.state(cell).data());
        let keys = data.into_iter().flat_map(|data| data.keys(ENTITIES_FIELD));
        let mut entities: Vec<u32> = keys
            .filter_map(|key| match key {
                MapKey::Number(number) => u32::try_from(number).ok(),
                _ => None,
            })
            .collect();
        entities.sort_unstable();
        entities
    }

    /// A world server announces itself: it gets the next free server slot and its cells. A server that has a
    /// slot, because it asks twice or has come back, gets the same answer again.
    pub(super) fn create_spatial(
        &mut self,
        from: Place,
        message: &Message,
        wanted: CreateChannelMessage,
    ) -> Result<(), Refusal> {
        if !self.connections.at(from).is_server() {
            return Err(Refusal::NotAllowed);
        }
        check_metadata(&self.settings.limits, &wanted.metadata)?;
        let id = self.connections.at(from).id;
        let world = self.world.as_mut().ok_or(NO_WORLD)?;
        let former = world.slots.server_of(id);
        let server = match former {
            Some(server) => server,
            None => world.slots.take(id).map_err(|error| Refusal::Spatial(error.tag()))?,
        };
        let grid = Arc::clone(&world.grid);
        let cells = match self.own_cells(from, &grid, server, &wanted) {
            Ok(cells) => cells,
            Err(refusal) => {
                if let Some(world) = self.world.as_mut().filter(|_| former.is_none()) {
                    world.slots.free(id);
                }
                return Err(refusal);
            }
        };
        self.tell_of_cells(from, message.stub_id, &cells, &wanted);
        let options = wanted.sub_options.unwrap_or_default();
        for &cell in &cells {
            if let Err(refusal) = self.subscribe_and_tell(from, from, cell, &options, 0) {
                self.counters.refuse(refusal);
            }
        }
        self.send_regions(from, 0);
        self.settle_cells(&cells);
        self.open_the_borders();
        Ok(())
    }

    fn tell_of_cells(&mut self, from: Place, stub_id: u32, cells: &[ChannelIndex], wanted: &CreateChannelMessage) {
        let header = Header::new(GLOBAL_CHANNEL, message_type::CREATE_SPATIAL_CHANNEL);
        let owner_conn_id = self.connections.at(from).id;
        let master = self.master().filter(|&master| master != from);
        for (number, cells) in cells.chunks(CELLS_PER_MESSAGE).enumerate() {
            let result = CreateSpatialChannelsResultMessage {
                spatial_channel_id: cells.iter().map(|&cell| self.channels.at(cell).id).collect(),
                metadata: wanted.metadata.clone(),
                owner_conn_id,
            };
            let stub_id = if number == 0 { stub_id } else { 0 };
            self.send(from, header.with_stub(stub_id), &result);
            if let Some(master) = master {
                self.send(master, header, &result);
            }
        }
    }

    /// Makes a server decide over its cells. Those that do not exist yet are made first, and nothing is left of them if
    /// one cannot be made.
    fn own_cells(
        &mut self,
        from: Place,
        grid: &Grid,
        server: u32,
        wanted: &CreateChannelMessage,
    ) -> Result<Vec<ChannelIndex>, Refusal> {
        let is_there = |id: &u32| self.channels.has(*id);
        let missing: Vec<u32> = grid.cells_of(server).filter(|id| !is_there(id)).collect();
        self.check_room_beside(from, missing.len() * wanted.metadata.len())?;
        let mut made = Vec::new();
        for id in missing {
            if let Err(refusal) = self.make_cell(from, id, wanted, &mut made) {
                for cell in made {
                    self.remove_channel(cell);
                }
                return Err(refusal);
            }
        }
        let made: FxHashSet<usize> = made.into_iter().map(ChannelIndex::number).collect();
        let is_new = |cell: &ChannelIndex| made.contains(&cell.number());
        let cells: Vec<ChannelIndex> = grid.cells_of(server).filter_map(|id| self.channels.find(id)).collect();
        for &cell in &cells {
            if let Some(merge) = wanted.merge_options {
                self.set_merge_options(cell, merge);
            }
            let was_lost = !is_new(&cell) && self.channels.at(cell).owner.is_none();
            self.channels.at_mut(cell).is_awaited = false;
            self.channels.set_owner(&mut self.connections, cell, Some(from));
            if was_lost {
                self.tell_owner_is_back(cell);
            }
        }
        Ok(cells)
    }

    fn make_cell(
        &mut self,
        from: Place,
        id: u32,
        wanted: &CreateChannelMessage,
        made: &mut Vec<ChannelIndex>,
    ) -> Result<(), Refusal> {
        let cell = self.add_channel(id, ChannelType::Spatial, wanted.metadata.clone())?;
        made.push(cell);
        if let Some(merge) = wanted.merge_options {
            self.set_merge_options(cell, merge);
        }
        match &wanted.data {
            Some(data) => self.begin_data(cell, from, data),
            None => Ok(()),
        }
    }

    /// When the last server has come, each gets the cells around its own ones, and all are notified. While one is lost
    /// and awaited, this waits too, because it could not be notified.
    pub(super) fn open_the_borders(&mut self) {
        let Some(world) = self.world.as_mut() else { return };
        let is_everybody_there = world.slots.iter().all(|(_, id)| self.connections.find(id).is_some());
        if !is_everybody_there || !world.slots.poll_complete() {
            return;
        }
        let grid = Arc::clone(&world.grid);
        let servers: Vec<(u32, u32)> = world.slots.iter().collect();
        let options = ChannelSubscriptionOptions::default();
        for &(server, id) in &servers {
            let Some(connection) = self.connections.find(id) else { continue };
            for cell in grid.border_of(server) {
                if let Some(cell) = self.channels.find(cell) {
                    // A server that has no room for its border sees less of it; the limit is counted.
                    if let Err(refusal) = self.subscribe_and_tell(connection, connection, cell, &options, 0) {
                        self.counters.refuse(refusal);
                    }
                }
            }
        }
        let header = Header::new(GLOBAL_CHANNEL, message_type::SPATIAL_CHANNELS_READY);
        let server_count = servers.len() as u32;
        for &(server_index, id) in &servers {
            if let Some(connection) = self.connections.find(id) {
                self.send(connection, header, &SpatialChannelsReadyMessage { server_index, server_count });
            }
        }
        if let Some(master) =
            self.master().filter(|&master| !servers.iter().any(|s| s.1 == self.connections.at(master).id))
        {
            self.send(master, header, &SpatialChannelsReadyMessage { server_index: 0, server_count });
        }
    }

    /// The table of cells; in several messages if it is too long for one.
    fn send_regions(&mut self, to: Place, stub_id: u32) {
        let Some(world) = &self.world else { return };
        let grid = Arc::clone(&world.grid);
        let mut regions = grid.regions().peekable();
        let header = Header::new(GLOBAL_CHANNEL, message_type::SPATIAL_REGIONS_UPDATE);
        while regions.peek().is_some() {
            let part = SpatialRegionsUpdateMessage { regions: regions.by_ref().take(REGIONS_PER_MESSAGE).collect() };
            self.send(to, header.with_stub(stub_id), &part);
        }
    }

    pub(super) fn on_debug_regions(&mut self, from: Place, message: &Message) -> Result<(), Refusal> {
        if !self.settings.development {
            return Err(Refusal::NotAllowed);
        }
        if self.world.is_none() {
            return Err(NO_WORLD);
        }
        self.send_regions(from, message.stub_id);
        Ok(())
    }

    pub(super) fn on_query(&mut self, from: Place, message: &Message) -> Result<(), Refusal> {
        let wanted: QuerySpatialChannelMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        if wanted.spatial_info.len() > self.settings.limits.max_query_positions as usize {
            return Err(Refusal::Limit("query_positions"));
        }
        let world = self.world.as_ref().ok_or(NO_WORLD)?;
        let cell =
            |info: &throng_channeld::proto::SpatialInfo| world.grid.channel_at(Position::from(*info)).unwrap_or(0);
        let result = QuerySpatialChannelResultMessage { channel_id: wanted.spatial_info.iter().map(cell).collect() };
        let header = Header::new(message.channel_id, message_type::QUERY_SPATIAL_CHANNEL);
        self.send(from, header.with_stub(message.stub_id), &result);
        Ok(())
    }

    /// The view of a connection has changed: it leaves cells, enters cells, and gets others more or less often.
    pub(super) fn on_update_interest(&mut self, from: Place, message: &Message) -> Result<(), Refusal> {
        let wanted: UpdateSpatialInterestMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        if !self.connections.at(from).is_server() {
            return Err(Refusal::NotAllowed);
        }
        let target = self.party(wanted.conn_id)?;
        let query = wanted.query.ok_or(Refusal::Spatial("interest_no_query"))?;
        let limits = InterestLimits {
            samples: self.settings.limits.max_query_samples,
            radius_m: self.settings.limits.max_radius,
        };
        let world = self.world.as_mut().ok_or(NO_WORLD)?;
        let mut found = std::mem::take(&mut world.found);
        let answer = world.grid.interest(&query, &limits, &mut world.scratch, &mut found);
        if answer.is_ok() {
            self.see(from, target, &found);
        }
        if let Some(world) = &mut self.world {
            world.found = found;
        }
        answer.map_err(|error| Refusal::Spatial(error.tag()))
    }

    fn see(&mut self, from: Place, target: Party, found: &[Interest]) {
        for cell in self.cells_seen_by(target) {
            let channel = self.channels.at(cell);
            let is_owner = match target {
                Party::Here(place) => channel.is_owner(place),
                Party::Away(away) => self.lost.owner_of(channel.id) == Some(away),
            };
            if found.binary_search_by_key(&channel.id, |interest| interest.channel).is_err() && !is_owner {
                let left = match target {
                    Party::Here(place) => self.unsubscribe_and_tell(from, place, cell, 0),
                    Party::Away(away) => self.unsubscribe_away((from, 0), away, cell),
                };
                debug_assert!(left.is_ok());
            }
        }
        for interest in found {
            let Some((cell, options)) = self.sight_of(interest) else { continue };
            let begun = match target {
                Party::Here(place) => self.subscribe_and_tell(from, place, cell, &options, 0),
                Party::Away(away) => self.keep_and_tell(Some((from, 0)), away, cell, &options),
            };
            if let Err(refusal) = begun {
                self.counters.refuse(refusal);
            }
        }
    }

    /// The cells that a party is subscribed to, always in the same order.
    fn cells_seen_by(&self, party: Party) -> Vec<ChannelIndex> {
        match party {
            Party::Here(place) => {
                let seen = self.fanout.hub.channels_of(self.connections.hub_id(place));
                seen.filter(|&channel| self.channels.at(channel).kind == ChannelType::Spatial).collect()
            }
            Party::Away(away) => {
                let mut cells: Vec<(u32, u64)> = self.lost.cells_of(away).collect();
                cells.sort_unstable();
                cells.into_iter().filter_map(|(id, birth)| self.channels.born(id, birth)).collect()
            }
        }
    }

    /// A cell that is seen, and how it is subscribed to.
    fn sight_of(&self, interest: &Interest) -> Option<(ChannelIndex, ChannelSubscriptionOptions)> {
        let cell = self.channels.find(interest.channel)?;
        let damped = self.world.as_ref().and_then(|world| world.grid.damping().interval_ms(interest.distance));
        let interval = damped.unwrap_or(self.channels.at(cell).settings.default_fan_out_interval_ms);
        Some((cell, ChannelSubscriptionOptions { fan_out_interval_ms: Some(interval), ..Default::default() }))
    }

    /// A cell and its neighbours, as far as they exist.
    pub(super) fn cells_around(&self, channel: ChannelIndex) -> Result<Vec<ChannelIndex>, Refusal> {
        let world = self.world.as_ref().ok_or(NO_WORLD)?;
        let id = self.channels.at(channel).id;
        if !world.grid.channels().contains(&id) {
            return Err(Refusal::WrongChannel);
        }
        let around = world.grid.adjacent(id).filter_map(|id| self.channels.find(id));
        Ok(std::iter::once(channel).chain(around).collect())
    }
}
