//! How much memory the states of channels take, with their metadata and the references of their objects, and whose they
//! are.
//!
//! ```text
//!  max_total_state_bytes
//!  |<------------------ channels of servers ------------------>|
//!  |<--- channels of clients: all but the reserve --->|reserve |
//!        each client: max_client_state_bytes
//! ```
//!
//! Clients fill their share and are refused; servers can still add state.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use throng_replica::ChannelIndex;
use throng_wire::Tick;

use super::Engine;
use super::channel::Creator;
use super::connections::Connections;
use super::entities::Entity;
use super::place::Place;
use super::port::Side;
use super::refusal::Refusal;
use crate::limits::Limits;
use crate::shards::Use;
use throng_protostate::allocated;

/// Bytes of all states, metadata and references.
#[derive(Debug, Default)]
pub(super) struct StateMemory {
    all_bytes: u64,
    /// Of these, those of channels that clients have created.
    client_bytes: u64,
    /// With several engines: which one this is, and what each of them uses.
    shared: Option<(usize, Arc<[Use]>)>,
}

impl StateMemory {
    pub(super) fn bytes(&self) -> u64 {
        self.all_bytes
    }

    /// From now on other engines share the bounds.
    pub(super) fn share(&mut self, number: usize, uses: Arc<[Use]>) {
        self.shared = Some((number, uses));
        self.change(0, 0, true);
    }

    /// So many channels are here.
    pub(super) fn note_channels(&self, channels: usize) {
        if let Some(own) = self.shared.as_ref().and_then(|(number, uses)| uses.get(*number)) {
            own.channels.store(channels as u64, Ordering::Relaxed);
        }
    }

    /// Channels of the other engines, without their GLOBAL.
    pub(super) fn channels_elsewhere(&self) -> usize {
        self.elsewhere(|other| other.channels.load(Ordering::Relaxed).saturating_sub(1)) as usize
    }

    fn elsewhere(&self, read: impl Fn(&Use) -> u64) -> u64 {
        let Some((number, uses)) = &self.shared else { return 0 };
        uses.iter().enumerate().filter(|(other, _)| other != number).map(|(_, other)| read(other)).sum()
    }

    /// Bytes of all states of all engines.
    fn everywhere_bytes(&self) -> u64 {
        self.all_bytes + self.elsewhere(|other| other.state_bytes.load(Ordering::Relaxed))
    }

    /// Of these, those of channels that clients have created.
    fn clients_everywhere_bytes(&self) -> u64 {
        self.client_bytes + self.elsewhere(|other| other.client_state_bytes.load(Ordering::Relaxed))
    }

    /// A state that took `before` bytes takes `after` bytes now.
    fn change(&mut self, before: u64, after: u64, is_clients: bool) {
        self.all_bytes = (self.all_bytes + after).saturating_sub(before);
        if is_clients {
            self.client_bytes = (self.client_bytes + after).saturating_sub(before);
        }
        if let Some(own) = self.shared.as_ref().and_then(|(number, uses)| uses.get(*number)) {
            own.state_bytes.store(self.all_bytes, Ordering::Relaxed);
            own.client_state_bytes.store(self.client_bytes, Ordering::Relaxed);
        }
    }

    /// How much the state of a channel that somebody has created may grow before all of them, those of its creator, or those
    /// of all clients are too large.
    pub(super) fn room_for(&self, limits: &Limits, connections: &Connections, creator: Option<Creator>) -> Room {
        let free_bytes = limits.max_total_state_bytes.saturating_sub(self.everywhere_bytes());
        let all = Room { bytes: free_bytes, refusal: Refusal::Limit("total_state_bytes") };
        let Some(creator) = creator.filter(|creator| creator.side == Side::Client) else {
            return all;
        };
        let of_clients = Room {
            bytes: clients_share(limits).saturating_sub(self.clients_everywhere_bytes()),
            refusal: Refusal::Limit("client_states_bytes"),
        };
        let used = connections.place(creator.key).map_or(0, |creator| connections.at(creator).state_bytes);
        let own = Room {
            bytes: limits.max_client_state_bytes.saturating_sub(used),
            refusal: Refusal::Limit("client_state_bytes"),
        };
        [own, of_clients, all].into_iter().min_by_key(|room| room.bytes).unwrap_or(all)
    }

    /// A part of what a channel of this creator takes was changed.
    pub(super) fn was_changed(
        &mut self,
        connections: &mut Connections,
        creator: Option<Creator>,
        (before, after): (u64, u64),
    ) {
        if after == before {
            return;
        }
        self.change(before, after, creator.is_some_and(|creator| creator.side == Side::Client));
        if let Some(place) = creator.and_then(|creator| connections.place(creator.key)) {
            let creator = connections.at_mut(place);
            creator.state_bytes = (creator.state_bytes + after).saturating_sub(before);
        }
    }

    /// A state is gone.
    pub(super) fn forget(&mut self, bytes: u64, is_clients: bool) {
        self.change(bytes, 0, is_clients);
    }
}

/// The limit that stops a state from growing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// The number of bytes by which a state may grow.
    pub(super) bytes: u64,
    /// Why not by more.
    pub(super) refusal: Refusal,
}

impl Engine {
    /// Whether there is room for so many bytes that a connection wants kept beside a state.
    pub(super) fn check_room_beside(&self, from: Place, bytes: usize) -> Result<(), Refusal> {
        let connection = self.connections.at(from);
        if bytes > 0 && self.pressure.is_on(connection.side) {
            return Err(Refusal::Limit("memory"));
        }
        let room = self.memory.room_for(
            &self.settings.limits,
            &self.connections,
            Some(Creator { key: connection.key, side: connection.side }),
        );
        match bytes as u64 > room.bytes {
            true => Err(room.refusal),
            false => Ok(()),
        }
    }

    /// Keeps the metadata of a channel.
    pub(super) fn set_metadata(&mut self, channel: ChannelIndex, metadata: String) {
        let (before, after) = (self.channels.at(channel).beside_bytes(), allocated(metadata.len()) as u64);
        self.channels.at_mut(channel).metadata = metadata;
        self.memory.was_changed(&mut self.connections, self.channels.at(channel).creator, (before, after));
    }

    /// Keeps how the object of an entity is named, if there is room. Nobody but servers names objects.
    pub(super) fn keep_object(&mut self, entity: u32, object: &Bytes) -> bool {
        let Some(known) = self.entities.get(entity).filter(|known| known.object != *object) else { return false };
        let (before, after) = (allocated(known.object.len()) as u64, allocated(object.len()) as u64);
        let grows_by = after.saturating_sub(before);
        if grows_by > 0 && self.pressure.is_on(Side::Server) {
            self.counters.refuse(Refusal::Limit("memory"));
            return false;
        }
        let room = self.memory.room_for(&self.settings.limits, &self.connections, None);
        if grows_by > room.bytes {
            self.counters.refuse(room.refusal);
            return false;
        }
        // Not the whole message that it came in.
        self.entities.get_or_add(entity).object = Bytes::copy_from_slice(object);
        self.memory.change(before, after, false);
        true
    }

    /// Forgets an entity.
    pub(super) fn drop_entity(&mut self, entity: u32) -> Option<Entity> {
        let entity = self.entities.remove(entity)?;
        self.memory.forget(allocated(entity.object.len()) as u64, false);
        Some(entity)
    }

    /// The state of a channel took `before` bytes, and was changed.
    pub(super) fn state_was_changed(&mut self, channel: ChannelIndex, before: u64) {
        let after = self.fanout.hub.state(channel).size_bytes() as u64;
        self.memory.was_changed(&mut self.connections, self.channels.at(channel).creator, (before, after));
        self.edges.wake((channel, self.channels.at(channel)), self.fanout.change_tick(&self.clock));
    }

    /// Forgets removals up to a tick in the states of all channels.
    pub(super) fn forget_removals_until(&mut self, until: Tick) {
        let mut freed: Vec<(u32, u64)> = Vec::new();
        for state in self.fanout.hub.states_quietly_mut() {
            let before = state.size_bytes() as u64;
            state.forget(until);
            if state.size_bytes() as u64 != before {
                freed.push((state.id(), before));
            }
        }
        for (id, before) in freed {
            if let Some(channel) = self.channels.find(id) {
                self.state_was_changed(channel, before);
            }
        }
    }
}

/// The memory that the channels of all clients may use together: never less than half.
fn clients_share(limits: &Limits) -> u64 {
    limits.max_total_state_bytes - limits.reserved_server_state_bytes.min(limits.max_total_state_bytes / 2)
}
