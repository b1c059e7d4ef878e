//! Entities: a channel each, in at most one cell of the world.

use throng_channeld::proto::{
    AddEntityGroupMessage, ChannelSubscriptionOptions, ChannelType, CreateEntityChannelMessage,
    RemoveEntityGroupMessage,
};
use throng_channeld::{GLOBAL_CHANNEL, Header, Message, message_type};
use throng_replica::ChannelIndex;

use super::Engine;
use super::place::Place;
use super::port::Side;
use super::position::Positions;
use super::refusal::Refusal;
use crate::group::GroupKind;
use crate::spatial::Position;

/// One entity, as an operator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityInfo {
    /// Its channel.
    pub channel: u32,
    /// The cell that lists it; `None` if its position is not known yet.
    pub cell: Option<u32>,
    /// The connection id of who decides over it; `None` if that is not there.
    pub owner: Option<u32>,
    /// Whether that was lost and may come back.
    pub is_awaited: bool,
}

/// A new client receives well-known entities this much later, in ms: after the data that it needs to understand them.
const WELL_KNOWN_DELAY_MS: i32 = 1_000;

/// An entity says that it is where no cell is.
pub(super) const OUTSIDE: Refusal = Refusal::Spatial("outside_world");

impl Engine {
    /// The entities, in no particular order.
    pub fn entities(&self) -> impl Iterator<Item = EntityInfo> + '_ {
        self.entities.iter().filter_map(|(id, entity)| {
            let channel = self.channels.named(id)?;
            Some(EntityInfo {
                channel: id,
                cell: entity.cell(),
                owner: channel.owner.map(|owner| self.connections.at(owner).id),
                is_awaited: channel.is_awaited,
            })
        })
    }

    pub(super) fn on_create_entity(
        &mut self,
        from: Place,
        through: ChannelIndex,
        message: &Message,
    ) -> Result<(), Refusal> {
        let wanted: CreateEntityChannelMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        if !self.may_make_entities(from) {
            return Err(Refusal::NotAllowed);
        }
        let through = self.channels.at(through);
        let (through_id, through_kind) = (through.id, through.kind);
        if !matches!(through_kind, ChannelType::Global | ChannelType::Spatial) {
            return Err(Refusal::WrongChannel);
        }
        if wanted.entity_id < self.settings.entity_channel_start {
            return Err(Refusal::NotAllowed);
        }
        self.check_may_create(from, &wanted.metadata)?;
        if !self.connections.at(from).is_server()
            && let Some(master) = self.master()
        {
            self.check_room_for_clients(master)?;
        }
        let channel = self.add_channel(wanted.entity_id, ChannelType::Entity, wanted.metadata.clone())?;
        self.count_created(from, channel);
        // It may have been spawned before: then it is known where it is, and how it is named.
        self.entities.unborn.remove(wanted.entity_id);
        self.entities.get_or_add(wanted.entity_id);
        let begun = self.begin_entity(from, message, (channel, through_id), wanted);
        if begun.is_err() {
            self.remove_channel(channel);
        }
        begun
    }

    fn begin_entity(
        &mut self,
        from: Place,
        message: &Message,
        (channel, through): (ChannelIndex, u32),
        wanted: CreateEntityChannelMessage,
    ) -> Result<(), Refusal> {
        if let Some(merge) = wanted.merge_options {
            self.set_merge_options(channel, merge);
        }
        match &wanted.data {
            Some(data) => self.begin_data(channel, from, data)?,
            None => self.begin_empty(channel),
        }
        self.tell_object(wanted.entity_id);
        let spawned_in = self.entities.cell_of(wanted.entity_id);
        let cell = match through {
            GLOBAL_CHANNEL => self.cell_of_data(channel).or(spawned_in),
            cell => Some(cell),
        };
        let cell_owner = cell.and_then(|cell| self.channels.named(cell)?.owner);
        let owner = match through {
            GLOBAL_CHANNEL => cell_owner.unwrap_or(from),
            _ => from,
        };
        let options = wanted.sub_options.unwrap_or_default();
        let subscribed = self.subscribe(from, channel, &options)?;
        self.channels.set_owner(&mut self.connections, channel, Some(owner));
        if let Some(cell) = cell {
            self.list(cell, wanted.entity_id);
        }
        let result = self.creation_result(channel, &wanted.metadata, owner);
        let header = Header::new(message.channel_id, message_type::CREATE_ENTITY_CHANNEL);
        self.send(from, header.with_stub(message.stub_id), &result);
        if let Some(master) = self.master().filter(|&master| master != from) {
            self.send(master, header, &result);
        }
        self.tell_subscribed(from, from, channel, subscribed, 0);
        if owner != from {
            let options = ChannelSubscriptionOptions {
                data_access: Some(throng_channeld::proto::ChannelDataAccess::WriteAccess.into()),
                ..options
            };
            // The entity is there, and the cell's owner decides over it: it sees less.
            if let Err(refusal) = self.subscribe_and_tell(owner, owner, channel, &options, 0) {
                self.counters.refuse(refusal);
            }
        }
        if wanted.is_well_known {
            self.make_well_known(channel, wanted.entity_id);
        }
        Ok(())
    }

    fn may_make_entities(&self, from: Place) -> bool {
        self.connections.at(from).is_server() || self.settings.client_rights.entity
    }

    /// All clients see it, those to come as well. Those that are away see it when they are back.
    pub(super) fn make_well_known(&mut self, channel: ChannelIndex, id: u32) {
        self.entities.get_or_add(id).is_well_known = true;
        self.channels.make_well_known(channel);
        let clients: Vec<Place> = self
            .connections
            .iter()
            .filter(|connection| connection.side == Side::Client && connection.is_member())
            .map(|connection| connection.place())
            .collect();
        for client in clients {
            self.show_well_known(client, channel, 0);
        }
        for client in self.lost.clients() {
            if let Err(refusal) = self.keep_and_tell(None, client, channel, &shown_after(0)) {
                self.counters.refuse(refusal);
            }
        }
    }

    /// Clients that are away see all that is well known when they are back, unless it was taken from them.
    pub(super) fn keep_what_is_well_known(&mut self) {
        for client in self.lost.clients() {
            for channel in self.channels.well_known().to_vec() {
                if self.lost.has_or_had(client, self.channels.identity(channel)) {
                    continue;
                }
                if let Err(refusal) = self.keep_and_tell(None, client, channel, &shown_after(0)) {
                    self.counters.refuse(refusal);
                }
            }
        }
    }

    pub(super) fn subscribe_to_well_known(&mut self, index: Place) {
        if self.connections.at(index).is_server() {
            return;
        }
        for channel in self.channels.well_known().to_vec() {
            self.show_well_known(index, channel, WELL_KNOWN_DELAY_MS);
        }
    }

    fn show_well_known(&mut self, client: Place, channel: ChannelIndex, delay_ms: i32) {
        if self.channels.at(channel).subscriber(client).is_some() {
            return;
        }
        if let Err(refusal) = self.subscribe_and_tell(client, client, channel, &shown_after(delay_ms), 0) {
            self.counters.refuse(refusal);
        }
    }

    /// A channel is removed. If it is that of an entity, the entity is forgotten too.
    pub(super) fn entity_channel_removed(&mut self, id: u32, index: ChannelIndex) {
        self.lost.disown(id);
        if self.entities.get(id).is_some_and(|entity| entity.is_well_known) {
            self.channels.forget_well_known(index);
        }
        self.forget_entity(id);
    }

    /// Forgets an entity: no cell lists it, and it is in no group.
    pub(super) fn forget_entity(&mut self, id: u32) {
        if let Some(cell) = self.entities.cell_of(id) {
            self.unlist(cell, id);
        }
        self.drop_entity(id);
        let freed = self.entities.groups.entity_gone(id);
        self.set_free(&freed);
    }

    /// No lock holds these any more: those that have crossed a border meanwhile go where they stand.
    pub(super) fn set_free(&mut self, freed: &[u32]) {
        let is_astray = |id: &u32| self.entities.is_astray(*id);
        let strays: Vec<u32> = freed.iter().copied().filter(is_astray).collect();
        for id in strays {
            // Another of its group may have taken it along.
            if self.entities.is_astray(id) {
                self.entity_moved_itself(id, 0);
            }
        }
    }

    pub(super) fn on_group_add(
        &mut self,
        from: Place,
        channel: ChannelIndex,
        message: &Message,
    ) -> Result<(), Refusal> {
        let wanted: AddEntityGroupMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        let (entity, kind) = self.group_of(from, channel, wanted.r#type)?;
        let mut named = wanted.entities_to_add;
        let all = named.len();
        named.retain(|&id| self.entities.has(id));
        if named.len() < all {
            // Nobody would take them out again.
            self.counters.refuse(Refusal::UnknownChannel);
        }
        let added = self.entities.groups.add(entity, kind, &named);
        added.map_err(|error| Refusal::Limit(error.tag()))
    }

    pub(super) fn on_group_remove(
        &mut self,
        from: Place,
        channel: ChannelIndex,
        message: &Message,
    ) -> Result<(), Refusal> {
        let wanted: RemoveEntityGroupMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        let (entity, kind) = self.group_of(from, channel, wanted.r#type)?;
        let freed = self.entities.groups.remove(entity, kind, &wanted.entities_to_remove);
        self.set_free(&freed);
        Ok(())
    }

    /// Only a server that owns the entity decides with whom it travels.
    fn group_of(&self, from: Place, channel: ChannelIndex, kind: i32) -> Result<(u32, GroupKind), Refusal> {
        let state = self.channels.at(channel);
        if state.kind != ChannelType::Entity {
            return Err(Refusal::WrongChannel);
        }
        if !state.is_owner(from) || !self.may_make_entities(from) {
            return Err(Refusal::NotAllowed);
        }
        Ok((state.id, GroupKind::from_wire(kind).ok_or(Refusal::Malformed)?))
    }

    /// As [`entity_moved`](Self::entity_moved), by the entity's id.
    pub(super) fn entity_moved_itself(&mut self, id: u32, context: u32) {
        if let Some(channel) = self.channels.find(id) {
            self.entity_moved(channel, context);
        }
    }

    /// An entity's state has changed: it may have crossed the border of its cell.
    pub(super) fn entity_moved(&mut self, channel: ChannelIndex, context: u32) {
        if self.world.is_none() || self.channels.at(channel).kind != ChannelType::Entity {
            return;
        }
        let id = self.channels.at(channel).id;
        let Some(destination) = self.cell_of_data(channel) else {
            match self.position_of(channel) {
                // It stays where it is listed.
                Some(_) => _ = self.counters.refuse(OUTSIDE),
                None => self.miss_position(channel),
            }
            return;
        };
        let listed = self.entities.get_or_add(id).cell();
        match listed {
            Some(source) if source == destination => {
                self.entities.has_come_home(id);
            }
            Some(source) => {
                self.hand_over(id, source, destination, context);
                // It may be locked, or have to wait, or no owner is there to take it.
                self.note_whether_astray(id);
            }
            None => {
                self.list(destination, id);
                self.find_home(channel);
            }
        }
    }

    /// The cell at the position that a channel's state gives.
    pub(super) fn cell_of_data(&self, channel: ChannelIndex) -> Option<u32> {
        self.cell_at(self.position_of(channel)?)
    }

    /// The state of a channel has got its type: from now on it is known where it says where it is.
    pub(super) fn learn_position(&mut self, channel: ChannelIndex) {
        let state = self.channels.at(channel);
        if self.world.is_none() || state.kind != ChannelType::Entity {
            return;
        }
        if let Some(data) = self.fanout.hub.state(channel).data() {
            self.entities.positions.learn(data, state.settings.position.as_ref());
        }
    }

    /// Settings have changed.
    pub(super) fn learn_positions_anew(&mut self) {
        self.entities.positions = Positions::default();
        let channels: Vec<ChannelIndex> = self.channels.indices().collect();
        for channel in channels {
            self.learn_position(channel);
        }
    }

    /// Where an entity says that it is.
    fn position_of(&self, channel: ChannelIndex) -> Option<Position> {
        let data = self.fanout.hub.state(channel).data()?;
        self.entities.positions.position_in(data, self.entities.is_spawned(self.channels.at(channel).id))
    }

    /// An entity has changed and does not say where it is.
    fn miss_position(&mut self, channel: ChannelIndex) {
        let is_spawned = self.entities.is_spawned(self.channels.at(channel).id);
        let Some(data) = self.fanout.hub.state(channel).data() else { return };
        if let Some(refusal) = self.entities.positions.miss(data, is_spawned) {
            self.counters.refuse(refusal);
        }
    }

    /// A position in the world's own axes.
    pub(super) fn cell_at(&self, position: Position) -> Option<u32> {
        self.world.as_ref()?.grid.channel_at(position)
    }
}

/// The options with which a client sees what is well known.
fn shown_after(delay_ms: i32) -> ChannelSubscriptionOptions {
    ChannelSubscriptionOptions { fan_out_delay_ms: Some(delay_ms), ..Default::default() }
}
