//! An engine from the records of a snapshot.
//!
//! It is as if every connection had been lost at the moment of the snapshot: who may come back is waited for, from now
//! on and as long as the settings say, and the channels of all others are given up as they are after a loss.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use throng_channeld::proto::{ChannelDataAccess, ChannelDataMergeOptions, ChannelType};
use throng_protostate::{DataState, Schemas};
use throng_replica::{ChannelIndex, Variant};
use throng_wire::{Tick, Time};

use super::Engine;
use super::channel::{Access, Creator, Wanted};
use super::ends::Ended;
use super::log::state_limits;
use super::lost::{Kept, Lost};
use super::port::{Key, Side};
use super::unborn::UNBORN_MAX;
use crate::group::{EntityGroupLimits, GroupKind};
use crate::settings::EngineSettings;
use crate::snapshot::{self, Kind, Record, SnapshotError, Survey};

/// Records that have been read, and can be decided on only at the end.
#[derive(Debug, Default)]
pub(super) struct Restoring {
    sessions: Vec<snapshot::Session>,
    /// The connection ids of the owners, by channel.
    owners: FxHashMap<u32, u32>,
    /// The servers of the world knew that all were there.
    is_ready: bool,
    /// Sessions may lack what had become well known while their clients were away.
    lacks_news: bool,
}

/// The amounts that an engine has begun with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Channels, GLOBAL included.
    pub channels: usize,
    /// Connections that may come back.
    pub sessions: usize,
    /// Channels whose owners cannot come back, and that are removed as after a loss.
    pub given_up: usize,
}

/// The creator of a channel that was made before the restart: no connection has this key.
const FORMER: Key = Key { index: u32::MAX, generation: u32::MAX };

impl Engine {
    /// As [`Engine::new`], for the records of a snapshot: to be [given](Self::restore) all of them in their order, and
    /// then to be [finished](Self::finish_restore).
    pub fn restored(
        settings: Arc<EngineSettings>,
        schemas: Arc<Schemas>,
        seed: u64,
        (now, unix_ns): (Time, i64),
        survey: &Survey,
    ) -> Engine {
        let first_tick = Tick(survey.next_tick(unix_ns));
        let mut engine = Engine::beginning_at(settings, schemas, seed, (now, unix_ns), first_tick);
        engine.connections.begin_after((survey.writers, survey.next_connection_id));
        // Everything comes back, also if the limits allow less by now.
        engine.entities.groups.set_limits(EntityGroupLimits { members_per_group: usize::MAX, entities: usize::MAX });
        engine.restoring = Some(Box::default());
        engine
    }

    /// One record. With several engines each of them is given all, and takes those that concern it.
    ///
    /// # Errors
    /// It does not fit. The engine is of no use then.
    pub fn restore(&mut self, record: &Record) -> Result<(), SnapshotError> {
        let is_first = self.share.is_first();
        match record.kind {
            Kind::Head => self.check_head(&record.decode()?),
            Kind::Channel => self.restore_channel(record),
            Kind::Gone => {
                let gone: snapshot::Mark = record.decode()?;
                self.forget_restored(gone.id);
                Ok(())
            }
            Kind::World if is_first => self.check_world(&record.decode()?),
            Kind::Session if is_first => self.note_session(record.decode()?),
            Kind::Group if is_first => {
                let snapshot::Group { members } = record.decode()?;
                let Some((&first, others)) = members.split_first() else { return Ok(()) };
                let added = self.entities.groups.add(first, GroupKind::Handover, others);
                added.map_err(|_| SnapshotError::Misfit("it has more groups of entities than the limits allow"))
            }
            Kind::Lock if is_first => {
                let snapshot::Lock { entity, by } = record.decode()?;
                let added = self.entities.groups.add(by, GroupKind::Lock, &[entity]);
                added.map_err(|_| SnapshotError::Misfit("it has more locked entities than the limits allow"))
            }
            Kind::Unborn if is_first => {
                let snapshot::Unborn { id, entity } = record.decode()?;
                if !self.channels.has(id) {
                    self.entities.unborn.insert(id, self.clock.now().after(UNBORN_MAX));
                    self.restore_entity(id, entity.unwrap_or_default());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// After the last record. Returns what there is.
    pub fn finish_restore(&mut self) -> Restored {
        let Some(restoring) = self.restoring.take() else { return Restored::default() };
        let Restoring { sessions, owners, is_ready, lacks_news } = *restoring;
        self.put_groups_right();
        self.put_cells_right();
        let mut owned: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for (&channel, &owner) in &owners {
            owned.entry(owner).or_default().push(channel);
        }
        for session in sessions {
            self.await_session(session, &mut owned);
        }
        if lacks_news {
            self.keep_what_is_well_known();
        }
        if let Some(world) = self.world.as_mut().filter(|_| is_ready) {
            world.slots.set_ready();
        }
        let given_up = self.give_up_the_rest(&owners);
        self.forget_the_least();
        let share = &self.share;
        self.channels.restore_ids(self.settings.spatial_channel_start, |id| share.is_home_of(id));
        Restored { channels: self.channels.len(), sessions: self.lost.len(), given_up }
    }

    fn check_head(&mut self, head: &snapshot::Head) -> Result<(), SnapshotError> {
        let (scs, ecs) = (self.settings.spatial_channel_start, self.settings.entity_channel_start);
        if (head.spatial_channel_start, head.entity_channel_start) != (scs, ecs) {
            return Err(SnapshotError::Misfit("-scs and -ecs number channels otherwise than when it was written"));
        }
        if let Some(restoring) = &mut self.restoring {
            restoring.lacks_news |= !head.has_news;
        }
        Ok(())
    }

    fn check_world(&mut self, world: &snapshot::World) -> Result<(), SnapshotError> {
        let cut = self.world.as_ref().map(|world| world.grid.fingerprint());
        match cut {
            None => Err(SnapshotError::Misfit("it has a world of cells, and there is no -scc")),
            Some(cut) if cut != world.cut => Err(SnapshotError::Misfit("the file of -scc cuts the world otherwise")),
            Some(_) => {
                if let Some(restoring) = &mut self.restoring {
                    restoring.is_ready = world.is_ready;
                }
                Ok(())
            }
        }
    }

    fn restore_channel(&mut self, record: &Record) -> Result<(), SnapshotError> {
        let id = record.decode::<snapshot::Mark>()?.id;
        if !self.share.is_home_of(id) {
            return Ok(());
        }
        let saved: snapshot::Channel = record.decode()?;
        let damaged = |what| SnapshotError::Damaged { record: record.number(), what };
        let kind = ChannelType::try_from(saved.kind).map_err(|_| damaged("the type of a channel is not known"))?;
        if (kind == ChannelType::Global) != (id == throng_channeld::GLOBAL_CHANNEL) {
            return Err(damaged("the type of a channel does not fit its number"));
        }
        let metadata = saved.metadata;
        let index = match self.channels.find(id).filter(|_| kind == ChannelType::Global) {
            Some(global) => {
                self.set_metadata(global, metadata);
                global
            }
            None => self.add_channel(id, kind, metadata).map_err(|refusal| match refusal {
                super::Refusal::ChannelExists => damaged("a channel comes twice"),
                _ => SnapshotError::TooManyChannels,
            })?,
        };
        if let Some(side) = side_of(saved.created_by) {
            self.set_creator(index, Creator { key: FORMER, side });
        }
        let merge = saved.merge.map_or_else(ChannelDataMergeOptions::default, |merge| merge.to_wire());
        self.channels.at_mut(index).merge = merge;
        self.restore_state(index, saved.state.as_deref())?;
        self.set_merge_options(index, merge);
        if kind == ChannelType::Entity {
            self.restore_entity(id, saved.entity.unwrap_or_default());
        }
        if let Some(restoring) = self.restoring.as_mut().filter(|_| saved.owner != 0) {
            restoring.owners.insert(id, saved.owner);
        }
        Ok(())
    }

    fn restore_state(&mut self, index: ChannelIndex, saved: Option<&[u8]>) -> Result<(), SnapshotError> {
        let channel = self.channels.at(index).id;
        let (options, limits) = (self.channels.at(index).merge_options(), state_limits(&self.settings.limits));
        let load = |saved| DataState::load(saved, &self.schemas, options, limits);
        let data = saved.map(load).transpose().map_err(|error| SnapshotError::State { channel, error })?;
        let before = self.fanout.hub.state(index).size_bytes() as u64;
        let is_untold = data.is_none();
        self.fanout.hub.state_mut(index).set_data(data);
        self.state_was_changed(index, before);
        match is_untold {
            // The settings may name a type for it by now.
            true => self.begin_empty(index),
            false => self.learn_position(index),
        }
        Ok(())
    }

    fn restore_entity(&mut self, id: u32, saved: snapshot::EntityData) {
        self.entities.get_or_add(id);
        if !saved.object.is_empty() {
            self.keep_object(id, &saved.object);
        }
        self.entities.put_into(id, saved.cell);
        self.note_whether_astray(id);
        if let Some(channel) = self.channels.find(id).filter(|_| saved.is_well_known) {
            self.make_well_known(channel, id);
        }
    }

    /// A channel was removed after its record was written.
    fn forget_restored(&mut self, id: u32) {
        if let Some(channel) = self.channels.find(id).filter(|_| id != throng_channeld::GLOBAL_CHANNEL) {
            self.remove_channel(channel);
            if let Some(restoring) = &mut self.restoring {
                restoring.owners.remove(&id);
            }
        }
    }

    fn note_session(&mut self, session: snapshot::Session) -> Result<(), SnapshotError> {
        if session.connection_id > self.settings.connection_id_mask() {
            return Err(SnapshotError::Misfit("-mcb allows fewer connection ids than when it was written"));
        }
        if let Some(restoring) = &mut self.restoring {
            restoring.sessions.push(session);
        }
        Ok(())
    }

    /// Only entities that there are belong to groups, and the limits hold from now on.
    fn put_groups_right(&mut self) {
        let gone: Vec<u32> = self.entities.groups.ids().filter(|&id| !self.entities.has(id)).collect();
        for id in gone {
            self.entities.groups.entity_gone(id);
        }
        self.entities.groups.set_limits(super::group_limits(&self.settings.limits));
    }

    /// Cells list the entities that say that they are there, and no others.
    fn put_cells_right(&mut self) {
        let mut cells: Vec<u32> = self.cells().map(|cell| cell.channel).collect();
        cells.sort_unstable();
        for cell in cells {
            let listed = self.listed_in(cell);
            let here = self.entities.in_cell(cell);
            for entity in listed.iter().filter(|entity| here.binary_search(entity).is_err()) {
                self.unlist(cell, *entity);
            }
            for entity in here.iter().filter(|entity| listed.binary_search(entity).is_err()) {
                self.list(cell, *entity);
            }
        }
    }

    /// Waits for a connection that there was, if it may come back.
    fn await_session(&mut self, session: snapshot::Session, owned: &mut FxHashMap<u32, Vec<u32>>) {
        let snapshot::Session { is_server, name, connection_id, slot, subscriptions, ended, created } = session;
        let side = if is_server { Side::Server } else { Side::Client };
        let Some(patience) = self.settings.recovery_patience(side) else { return };
        if name.is_empty() || connection_id == 0 || self.lost.has_connection_id(connection_id) {
            return;
        }
        let owned = owned.remove(&connection_id).unwrap_or_default();
        for id in &owned {
            if let Some(channel) = self.channels.find(*id) {
                self.channels.at_mut(channel).is_awaited = true;
            }
        }
        if let (Some(slot), Some(world)) = (slot, &mut self.world) {
            world.slots.restore(slot, connection_id);
        }
        let mut ended: FxHashMap<u32, Ended> = ended.iter().map(|ended| (ended.channel, how_ended(ended))).collect();
        let mut kept = FxHashMap::default();
        for saved in subscriptions {
            match self.restore_subscription(&saved) {
                Some((id, subscription)) => drop(kept.insert(id, subscription)),
                None if saved.is_news => {}
                // It was made or removed while the snapshot was written, or is refused now.
                None => {
                    let channel = self.channels.named(saved.channel);
                    let how = channel.map_or(Ended::Removed, |channel| Ended::Unsubscribed(channel.kind));
                    ended.insert(saved.channel, how);
                }
            }
        }
        let until = patience.map(|patience| self.clock.now().after(patience));
        let owned = owned.into_iter().collect();
        let creator = Creator { key: Key { generation: connection_id, ..FORMER }, side };
        let created: FxHashSet<ChannelIndex> =
            created.into_iter().filter_map(|id| self.restore_creator(id, creator)).collect();
        let lost = Lost { connection_id, owned, subscriptions: kept, ended, key: creator.key, created, until };
        if let Some(former) = self.lost.insert((side, name), lost) {
            self.give_up(former);
        }
    }

    /// Marks a channel as created by a connection that may come back. `None` if the channel is gone, or is marked for another one.
    fn restore_creator(&mut self, id: u32, creator: Creator) -> Option<ChannelIndex> {
        let index = self.channels.find(id)?;
        let known = self.channels.at_mut(index).creator.as_mut();
        let known = known.filter(|known| known.key == FORMER && known.side == creator.side)?;
        known.key = creator.key;
        Some(index)
    }

    fn restore_subscription(&mut self, saved: &snapshot::Subscription) -> Option<(u32, Kept)> {
        let index = self.channels.find(saved.channel)?;
        let variant = match saved.masks.is_empty() {
            true => Variant::default(),
            false => match self.form_of(index, &saved.masks) {
                Ok(variant) => variant,
                Err(refusal) => {
                    self.counters.refuse(refusal);
                    return None;
                }
            },
        };
        let access = ChannelDataAccess::try_from(saved.access).unwrap_or_default();
        let wanted = Wanted {
            interval_ms: saved.interval_ms,
            delay_ms: saved.delay_ms,
            variant,
            access: Access::from_wire(access),
            skip_self: saved.skip_self,
            skip_first: saved.skip_first,
            reliable: saved.reliable,
        };
        let wanted = wanted.bounded(&self.settings.limits);
        let (channel, since) = (self.channels.at(index), Tick(saved.since.min(self.clock.tick().0)));
        Some((
            saved.channel,
            Kept { birth: channel.birth, kind: channel.kind, wanted, since, is_known: !saved.is_news },
        ))
    }

    /// Gives up the channels whose owners are not waited for; how many of them are gone.
    fn give_up_the_rest(&mut self, owners: &FxHashMap<u32, u32>) -> usize {
        let before = self.channels.len();
        let mut orphans: Vec<u32> = owners.keys().copied().collect();
        orphans.sort_unstable();
        for id in orphans {
            let Some(channel) = self.channels.find(id) else { continue };
            if !self.channels.at(channel).is_awaited {
                self.give_up_channel(channel);
            }
        }
        before - self.channels.len()
    }
}

fn how_ended(ended: &snapshot::EndedSubscription) -> Ended {
    match ended.kind {
        Some(kind) => Ended::Unsubscribed(ChannelType::try_from(kind).unwrap_or_default()),
        None => Ended::Removed,
    }
}

/// The side of a channel's creator, as a snapshot numbers it.
fn side_of(created_by: u32) -> Option<Side> {
    match created_by {
        1 => Some(Side::Server),
        2 => Some(Side::Client),
        _ => None,
    }
}
