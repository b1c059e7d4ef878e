//! Entities change cells, and with the cell perhaps their server.

use prost::Message as _;
use rustc_hash::FxHashSet;
use throng_channeld::proto::unrealpb::{SpatialChannelData, SpatialEntityState};
use throng_channeld::proto::{
    Any, ChannelDataAccess, ChannelDataHandoverMessage, ChannelSubscriptionOptions, ChannelType,
};
use throng_channeld::{Header, message_type, put_body};
use throng_replica::ChannelIndex;

use super::Engine;
use super::channel::Access;
use super::channels::Channels;
use super::connection::Cost;
use super::entities::Entities;
use super::log::state_limits;
use super::lost::LostOnes;
use super::pace::TOO_MANY_ACTIONS;
use super::place::{Party, Place};
use super::refusal::Refusal;
use super::writers::GATEWAY;
use crate::group::Movable;
use crate::spatial::{Action, Announced, Grant, HandoverPlan, HandoverView};
use throng_protostate::{MapKey, message_name};

/// The map of a cell's state: `SpatialChannelData.entities`.
pub(super) const ENTITIES_FIELD: u32 = 1;

/// The type of a cell's state, unless its game chooses another; then the gateway keeps no list there.
const CELL_STATE: &str = "unrealpb.SpatialChannelData";

/// `SpatialEntityState{removed: true}`.
const FAREWELL: [u8; 2] = [0x10, 1];

/// Entities in one notice: with everything around them, they fit into a packet.
const NOTICE_MAX_BYTES: usize = 48_000;

/// An entity with more state than this gets it as the first update of its channel, not with the notice.
const NOTICE_ENTITY_MAX_BYTES: usize = 32_000;

/// Notices are messages, which cannot wait as state can: the state that those of one handover bring is at most this part
/// of what may wait for a client at all. The rest comes as first updates.
const NOTICE_PART_OF_QUEUE: usize = 16;

/// Bytes around an entity in a notice: its id twice, tags and lengths.
const NOTICE_ENTITY_OVERHEAD_BYTES: usize = 24;

/// Subscriptions, ends of them and notices of handovers that cost a client as much as an ordinary request.
const ACTIONS_PER_REQUEST: u64 = 32;

/// The notices of a plan that were encoded last: many receivers get the same.
#[derive(Default)]
struct Notices {
    key: Option<(u32, Vec<u32>)>,
    entries: Vec<u8>,
    /// Entities whose state goes with notices, in ascending order. Subscribers without the other entities get those as
    /// first updates.
    carried: Vec<u32>,
}

impl Notices {
    fn carries(&self, entity: u32) -> bool {
        self.carried.binary_search(&entity).is_ok()
    }
}

impl Engine {
    /// As [`Engine::entity_moved`], because of what `from` wrote. A client pays for the handovers that it causes: one that
    /// carries an entity to and fro across a border makes everybody there subscribe and unsubscribe.
    pub(super) fn entity_moved_by(&mut self, from: Place, channel: ChannelIndex, context: u32) {
        if self.world.is_none() || self.channels.at(channel).kind != ChannelType::Entity {
            return;
        }
        if self.connections.at(from).is_server() {
            return self.entity_moved(channel, context);
        }
        let (now, per_s) = (self.clock.now(), self.settings.limits.max_client_requests_per_s);
        let id = self.channels.at(channel).id;
        let crosses = self.cell_of_data(channel) != self.entities.cell_of(id);
        if crosses && !self.connections.at_mut(from).requests.has(now, per_s) {
            self.counters.refuse(Refusal::Limit("client_requests"));
            return self.postpone(id, context);
        }
        let before = self.handover_actions();
        self.entity_moved(channel, context);
        let actions = self.handover_actions() - before;
        self.connections.at_mut(from).requests.charge(Cost::each(actions, ACTIONS_PER_REQUEST));
    }

    /// Subscriptions, ends of them and notices that handovers took so far.
    fn handover_actions(&self) -> u64 {
        self.world.as_ref().map_or(0, |world| world.pace.all_actions())
    }

    /// Moves an entity, and all that go with it, from one cell to another.
    pub(super) fn hand_over(&mut self, entity: u32, source: u32, destination: u32, context: u32) {
        let movers: Vec<u32> = match self.entities.groups.movable_with(entity) {
            Movable::Locked => return,
            Movable::Alone => vec![entity],
            Movable::Together(all) => all.to_vec(),
        };
        if let Err(refusal) = self.check_pace(entity, movers.len()) {
            self.counters.refuse(refusal);
            self.postpone(entity, context);
            return;
        }
        let Some(mut handovers) = self.world.as_mut().map(|world| std::mem::take(&mut world.handovers)) else { return };
        let view = View { channels: &self.channels, entities: &self.entities, lost: &self.lost };
        match handovers.plan(&view, source, destination, &movers) {
            Ok(plan) if !self.may_act(plan.actions().len()) => {
                self.counters.refuse(TOO_MANY_ACTIONS);
                self.postpone(entity, context);
            }
            Ok(plan) => {
                self.counters.handovers += plan.moved().len() as u64;
                self.note_moves(plan.moved(), plan.actions().len());
                self.carry_out(plan, context);
            }
            Err(refusal) => {
                self.counters.refuse(Refusal::Spatial(refusal.tag()));
            }
        }
        if let Some(world) = &mut self.world {
            world.handovers = handovers;
        }
    }

    /// Whether an entity may move now, together with this many others.
    fn check_pace(&self, entity: u32, movers: usize) -> Result<(), Refusal> {
        let (limits, second) = (&self.settings.limits, self.clock.second());
        if let Some(entity) = self.entities.get(entity) {
            entity.pace.check(second, limits)?;
        }
        self.world.as_ref().map_or(Ok(()), |world| world.pace.check(second, movers, limits))
    }

    /// Whether the actions of a handover have room in this second.
    fn may_act(&mut self, actions: usize) -> bool {
        let (limits, second) = (&self.settings.limits, self.clock.second());
        self.world.as_mut().is_none_or(|world| world.pace.may_act(second, actions, limits))
    }

    fn note_moves(&mut self, moved: &[u32], actions: usize) {
        let second = self.clock.second();
        if let Some(world) = &mut self.world {
            world.pace.note(second, moved.len(), actions);
        }
        for &entity in moved {
            if let Some(entity) = self.entities.get_mut(entity) {
                entity.pace.note(second);
            }
        }
    }

    /// The entity stays where it is listed until the second is over.
    fn postpone(&mut self, entity: u32, context: u32) {
        let most = self.settings.limits.max_channels as usize;
        let (Some(world), Some(known)) = (&mut self.world, self.entities.get_mut(entity)) else { return };
        world.pace.postpone((entity, &mut known.pace), context, (self.clock.next_second(), most));
    }

    /// Entities that had to wait go where they are now, each once, as far as this second allows.
    pub(super) fn make_up_for_moves(&mut self) {
        let now = self.clock.now();
        let Some(late) = self.world.as_mut().map(|world| world.pace.take_late(now)) else { return };
        for entity in late {
            let waits = self.entities.get_mut(entity).and_then(|entity| entity.pace.take_late());
            if let Some(context) = waits {
                self.entity_moved_itself(entity, context);
            }
        }
    }

    /// Cells have an owner again. It takes over the entities on their lists that have no owner, and entities at this
    /// place that had to stay on another list move to its list.
    pub(super) fn settle_cells(&mut self, cells: &[ChannelIndex]) {
        let ids: FxHashSet<u32> = cells.iter().map(|&cell| self.channels.at(cell).id).collect();
        let mut in_order: Vec<u32> = ids.iter().copied().collect();
        in_order.sort_unstable();
        for cell in in_order {
            let entities = self.entities.in_cell(cell);
            let present = self.listed_in(cell);
            for &entity in entities.iter().filter(|entity| present.binary_search(entity).is_err()) {
                self.list(cell, entity);
            }
            self.adopt(cell, &entities);
        }
        let stands_here = |id: &u32| self.stands_in(*id).is_some_and(|at| ids.contains(&at));
        let strays: Vec<u32> = self.entities.strays().filter(stands_here).collect();
        for entity in strays {
            self.entity_moved_itself(entity, 0);
        }
    }

    /// Remembers an entity that is listed in another cell than the one in which it stands, or forgets it.
    pub(super) fn note_whether_astray(&mut self, entity: u32) {
        let at = self.stands_in(entity);
        self.entities.note_place(entity, at);
    }

    /// The cell at the position that an entity's state gives.
    fn stands_in(&self, entity: u32) -> Option<u32> {
        self.cell_of_data(self.channels.find(entity)?)
    }

    /// An entity's owner is gone and will not come back: the owner of its cell takes over, if it is present.
    pub(super) fn find_home(&mut self, channel: ChannelIndex) {
        let id = self.channels.at(channel).id;
        if let Some(cell) = self.entities.cell_of(id) {
            self.adopt(cell, &[id]);
        }
    }

    /// The owner of a cell takes over those of the cell's entities that have no owner and do not wait for one.
    fn adopt(&mut self, cell: u32, listed: &[u32]) {
        let Some(owner) = self.channels.named(cell).and_then(|cell| cell.owner) else { return };
        let is_awaited = |entity: &u32| self.channels.named(*entity).is_none_or(|channel| channel.is_awaited);
        let orphans: Vec<u32> = listed.iter().copied().filter(|entity| !is_awaited(entity)).collect();
        let Some(mut handovers) = self.world.as_mut().map(|world| std::mem::take(&mut world.handovers)) else { return };
        let view = View { channels: &self.channels, entities: &self.entities, lost: &self.lost };
        let plan = handovers.adopt(&view, Party::Here(owner), &orphans);
        self.carry_out(plan, 0);
        if let Some(world) = &mut self.world {
            world.handovers = handovers;
        }
    }

    fn carry_out(&mut self, plan: &HandoverPlan<Party>, context: u32) {
        let mut notices = Notices { carried: self.carried_by_notices(plan), ..Notices::default() };
        let mut taken = Vec::new();
        for action in plan.actions() {
            match action {
                Action::Unsubscribe { connection: Party::Here(place), entity } => {
                    if let Some(channel) = self.channels.find(*entity) {
                        // The plan has looked: it is subscribed.
                        let _ = self.unsubscribe_and_tell(*place, *place, channel, 0);
                    }
                }
                Action::Own { connection: Party::Here(place), entity } => {
                    if self.make_owner(*place, *entity) {
                        taken.push(*entity);
                    }
                }
                Action::Unlist { cell, entity } => self.unlist(*cell, *entity),
                Action::List { cell, entity } => self.list(*cell, *entity),
                Action::Subscribe { connection, entity, grant } => {
                    self.grant_entity((*connection, *entity), *grant, notices.carries(*entity));
                }
                Action::Announce(notice) => {
                    if let Party::Here(place) = notice.connection {
                        self.announce(plan, (place, notice), context, &mut notices);
                    }
                }
                // Present and future owners are never away.
                Action::Unsubscribe { .. } | Action::Own { .. } => {}
            }
        }
        // Now that they are listed where they are.
        for entity in taken {
            self.take_from_lost(entity);
        }
    }

    /// Whether the entity is one that a lost server had.
    fn make_owner(&mut self, connection: Place, entity: u32) -> bool {
        let Some(channel) = self.channels.find(entity) else { return false };
        let had_none = self.channels.at(channel).owner.is_none();
        let was_awaited = std::mem::take(&mut self.channels.at_mut(channel).is_awaited);
        self.channels.set_owner(&mut self.connections, channel, Some(connection));
        if had_none {
            self.tell_owner_is_back(channel);
        }
        was_awaited
    }

    /// Which of the entities that move have their state in the notices of the move: as many as fit, in the order of the
    /// plan. The same for all receivers. A new owner of unmoved entities gets no notice: the state comes as the first
    /// update then.
    fn carried_by_notices(&self, plan: &HandoverPlan<Party>) -> Vec<u32> {
        if !plan.has_notices() {
            return Vec::new();
        }
        let mut room_bytes = self.settings.limits.queue_hard_bytes as usize / NOTICE_PART_OF_QUEUE;
        let fits = |entity: &u32| {
            let channel = self.channels.find(*entity);
            let bytes = channel.map_or(0, |channel| self.fanout.hub.state(channel).size_bytes());
            let fits = bytes <= NOTICE_ENTITY_MAX_BYTES.min(room_bytes);
            room_bytes -= if fits { bytes } else { 0 };
            fits
        };
        let mut carried: Vec<u32> = plan.moved().iter().copied().filter(fits).collect();
        carried.sort_unstable();
        carried
    }

    fn grant_entity(&mut self, (reader, entity): (Party, u32), grant: Grant, is_carried: bool) {
        let Some(channel) = self.channels.find(entity) else { return };
        let access = match grant {
            Grant::Write => ChannelDataAccess::WriteAccess,
            Grant::Read | Grant::Nothing => ChannelDataAccess::ReadAccess,
        };
        let mut options = ChannelSubscriptionOptions {
            data_access: Some(access.into()),
            skip_self_update_fan_out: Some(true),
            ..Default::default()
        };
        let granted = match reader {
            Party::Here(place) => {
                let is_new = self.channels.at(channel).subscriber(place).is_none();
                options.skip_first_fan_out = (is_new && is_carried).then_some(true);
                self.subscribe_and_tell(place, place, channel, &options, 0)
            }
            Party::Away(away) => self.keep_and_tell(None, away, channel, &options),
        };
        if let Err(refusal) = granted {
            self.counters.refuse(refusal);
        }
    }

    fn announce(
        &mut self,
        plan: &HandoverPlan<Party>,
        (receiver, notice): (Place, &Announced<Party>),
        context: u32,
        notices: &mut Notices,
    ) {
        let with_data = plan.with_data(notice);
        let is_same = notices.key.as_ref().is_some_and(|(source, data)| *source == notice.source && data == with_data);
        if !is_same {
            notices.key = Some((notice.source, with_data.to_vec()));
            notices.entries.clear();
            self.encode_notices(plan, notice, context, notices);
        }
        self.send_entry(receiver, &notices.entries);
    }

    fn encode_notices(
        &self,
        plan: &HandoverPlan<Party>,
        notice: &Announced<Party>,
        context: u32,
        notices: &mut Notices,
    ) {
        let with_data = plan.with_data(notice);
        let header = Header::new(notice.destination, message_type::CHANNEL_DATA_HANDOVER);
        let put = |data: &SpatialChannelData, entries: &mut Vec<u8>| {
            let message = ChannelDataHandoverMessage {
                src_channel_id: notice.source,
                dst_channel_id: notice.destination,
                context_conn_id: context,
                data: Some(Any::pack(data)),
            };
            put_body(entries, header, &message);
        };
        let (mut part, mut bytes) = (SpatialChannelData::default(), 0);
        for &entity in plan.entities(notice) {
            let is_told = with_data.binary_search(&entity).is_ok() && notices.carries(entity);
            let data = is_told.then(|| self.entity_data(entity)).flatten();
            let state = self.entity_state(entity, data);
            let state_bytes = state.encoded_len() + NOTICE_ENTITY_OVERHEAD_BYTES;
            if bytes > 0 && bytes + state_bytes > NOTICE_MAX_BYTES {
                put(&part, &mut notices.entries);
                part.entities.clear();
                bytes = 0;
            }
            part.entities.insert(entity, state);
            bytes += state_bytes;
        }
        put(&part, &mut notices.entries);
    }

    fn entity_data(&self, entity: u32) -> Option<Any> {
        self.fanout.hub.state(self.channels.find(entity)?).full()
    }

    fn entity_state(&self, entity: u32, entity_data: Option<Any>) -> SpatialEntityState {
        let object = self.entities.object_of(entity);
        let obj_ref = match object.is_empty() {
            true => throng_channeld::proto::unrealpb::UnrealObjectRef { net_guid: Some(entity), ..Default::default() },
            false => throng_channeld::proto::unrealpb::UnrealObjectRef::decode(object).unwrap_or_default(),
        };
        SpatialEntityState { obj_ref: Some(obj_ref), removed: false, entity_data }
    }

    /// Puts an entity on a cell's list.
    pub(super) fn list(&mut self, cell: u32, entity: u32) {
        let former = self.entities.put_into(entity, Some(cell));
        self.note_whether_astray(entity);
        if let Some(former) = former.filter(|&former| former != cell) {
            self.unlist(former, entity);
        }
        let value = self.entity_state(entity, None).encode_to_vec();
        self.change_list(cell, |data, tick| {
            data.set_entry(ENTITIES_FIELD, &MapKey::Number(entity.into()), &value, GATEWAY, tick)
        });
    }

    /// Takes an entity off a cell's list.
    pub(super) fn unlist(&mut self, cell: u32, entity: u32) {
        if self.entities.cell_of(entity) == Some(cell) {
            self.entities.put_into(entity, None);
            self.note_whether_astray(entity);
        }
        self.change_list(cell, |data, tick| {
            data.remove_entry(ENTITIES_FIELD, &MapKey::Number(entity.into()), &FAREWELL, GATEWAY, tick)
        });
    }

    fn change_list(
        &mut self,
        cell: u32,
        change: impl FnOnce(
            &mut throng_protostate::DataState,
            throng_wire::Tick,
        ) -> Result<throng_protostate::Merged, throng_protostate::MergeError>,
    ) {
        let Some(channel) = self.channels.find(cell) else { return };
        let Some(schema) = self.schemas.find(CELL_STATE).cloned() else { return };
        let is_empty = self.fanout.hub.state(channel).type_url().is_empty();
        if !is_empty && !self.is_cells_list(channel) {
            return;
        }
        self.change_state(channel, &schema, change);
        let merge = self.channels.at(channel).merge;
        if !merge.should_check_removable_map_field {
            self.set_merge_options(channel, merge);
        }
    }

    /// Whether a channel is a cell whose state is of the gateway's own type: a list of entities.
    pub(super) fn is_cells_list(&self, channel: ChannelIndex) -> bool {
        let present = self.fanout.hub.state(channel).type_url();
        self.channels.at(channel).kind == ChannelType::Spatial && message_name(present) == CELL_STATE
    }

    /// Changes the state of a channel on the gateway's own behalf; an empty one of this type is made if there is none.
    pub(super) fn change_state(
        &mut self,
        channel: ChannelIndex,
        schema: &std::sync::Arc<throng_protostate::Schema>,
        change: impl FnOnce(
            &mut throng_protostate::DataState,
            throng_wire::Tick,
        ) -> Result<throng_protostate::Merged, throng_protostate::MergeError>,
    ) {
        let (tick, limits) = (self.fanout.change_tick(&self.clock), state_limits(&self.settings.limits));
        let log = self.fanout.hub.state_mut(channel);
        let before = log.size_bytes() as u64;
        let tick = log.date(tick);
        let changed = change(log.data_or_new(schema, limits, tick), tick);
        if changed.is_ok() {
            log.unseal();
        }
        self.state_was_changed(channel, before);
        self.edges.note_update(channel, None, false);
        if let Err(error) = changed {
            self.counters.refuse(Refusal::Data(error.tag()));
        }
    }
}

/// The facts by which a handover is planned.
struct View<'a> {
    channels: &'a Channels,
    entities: &'a Entities,
    lost: &'a LostOnes,
}

impl HandoverView for View<'_> {
    type Connection = Party;

    fn cell_owner(&self, cell: u32) -> Option<Party> {
        self.channels.named(cell)?.owner.map(Party::Here)
    }

    fn cell_subscribers(&self, cell: u32, subscribers: &mut Vec<Party>) {
        if let Some(channel) = self.channels.named(cell) {
            subscribers.extend(channel.subscribers.places().map(Party::Here));
            subscribers.extend(self.lost.viewers_of((cell, channel.birth)).map(Party::Away));
        }
    }

    fn sees_cell(&self, connection: Party, cell: u32) -> bool {
        self.channels.named(cell).is_some_and(|channel| match connection {
            Party::Here(place) => channel.subscriber(place).is_some(),
            Party::Away(away) => self.lost.kept(away, (cell, channel.birth)).is_some(),
        })
    }

    fn hears(&self, connection: Party) -> bool {
        matches!(connection, Party::Here(_))
    }

    fn cell_listing(&self, entity: u32) -> Option<Option<u32>> {
        Some(self.entities.get(entity)?.cell())
    }

    fn entity_owner(&self, entity: u32) -> Option<Party> {
        self.channels.named(entity)?.owner.map(Party::Here)
    }

    fn grant(&self, entity: u32, connection: Party) -> Option<Grant> {
        let channel = self.channels.named(entity)?;
        let access = match connection {
            Party::Here(place) => channel.subscriber(place)?.access(),
            Party::Away(away) => self.lost.kept(away, (entity, channel.birth))?.wanted.access,
        };
        Some(match access {
            Access::None => Grant::Nothing,
            Access::Read => Grant::Read,
            Access::Write => Grant::Write,
        })
    }
}
