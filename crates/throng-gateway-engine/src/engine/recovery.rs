//! Lost connections that may come back: a crashed world server with its channels, a client whose network broke.
//!
//! The belongings of a lost connection are kept under its name. A login under the same name, through a door of the same
//! side, gets its connection id, its channels and its subscriptions back. Until then its channels have no owner, and
//! nobody else can take them; but an entity that moves to the cell of a present server gets that owner.
//!
//! A login under the name of a live connection ends that connection first, as if it were lost, and then takes over what
//! it had. The name has to be proven for that: a client's by the authentication provider, a server's by `-scr`. Without
//! proof the former connection keeps its belongings, and the other login becomes another connection, with a new id and
//! nothing to take over. If several were lost under one name, only the last one can come back, once.

use bytes::Bytes;
use rustc_hash::FxHashMap;
use throng_channeld::proto::{
    Any, ChannelDataRecoveryMessage, ChannelDataUpdateMessage, ChannelOwnerLostMessage, ChannelOwnerRecoveredMessage,
    ChannelSubscriptionOptions, ChannelType, EndRecoveryMesssage,
};
use throng_channeld::{GLOBAL_CHANNEL, Header, message_type};
use throng_replica::{ChannelIndex, StreamStart};

use super::Engine;
use super::channel::Creator;
use super::ends::Ended;
use super::lost::{Kept, Lost};
use super::place::Place;
use super::port::{EndCause, Side};
use super::refusal::Refusal;

/// State in one recovery message; more of it follows as updates.
const RECOVERY_VALUE_MAX_BYTES: usize = 24_000;

/// State and references in one recovery message together: with everything around them, they fit into a packet.
const RECOVERY_MAX_BYTES: usize = 48_000;

impl Engine {
    /// Whether a connection that has just been lost may come back; then what it had is kept. And who was lost under the
    /// same name before, and is to be given up when this one has gone.
    pub(super) fn remember_for_recovery(&mut self, index: Place, cause: EndCause) -> (bool, Option<Lost>) {
        let connection = self.connections.at(index);
        let is_lost = match cause {
            EndCause::Lost | EndCause::Stalled => true,
            // A server that says good-bye has left its channels; a client that does may reload its page.
            EndCause::PeerClosed => connection.side == Side::Client,
            EndCause::Ours => false,
        };
        let Some(patience) = self.settings.recovery_patience(connection.side).filter(|_| is_lost) else {
            return (false, None);
        };
        if connection.identifier.is_empty() || !connection.is_member() {
            return (false, None);
        }
        let (subscriptions, ended) = self.subscriptions_of(index);
        let lost = Lost {
            connection_id: connection.id,
            owned: connection.owned.iter().map(|&owned| self.channels.at(owned).id).collect(),
            subscriptions,
            ended,
            key: connection.key,
            created: connection.created.clone(),
            until: patience.map(|patience| self.clock.now().after(patience)),
        };
        let key = (connection.side, connection.identifier.clone());
        (true, self.lost.insert(key, lost))
    }

    /// The subscriptions of a connection, and those that its client may believe to have, as if it were lost now.
    pub(super) fn subscriptions_of(&self, index: Place) -> (FxHashMap<u32, Kept>, FxHashMap<u32, Ended>) {
        let subscription = |channel: ChannelIndex| {
            let channel = self.channels.at(channel);
            let subscriber = *channel.subscriber(index)?;
            let wanted = self.fanout.granted(&self.connections, index, subscriber);
            let (birth, kind, since) = (channel.birth, channel.kind, subscriber.since);
            Some((channel.id, Kept { birth, kind, wanted, since, is_known: true }))
        };
        let channels = self.fanout.hub.channels_of(self.connections.hub_id(index));
        let subscriptions: FxHashMap<u32, Kept> = channels.filter_map(subscription).collect();
        let ended = self.connections.at(index).ends.since(self.heard_until());
        let ended = ended.filter(|(id, _)| !subscriptions.contains_key(id)).collect();
        (subscriptions, ended)
    }

    /// Gives up the least important losses while there are more than allowed: a name costs a peer nothing.
    pub(super) fn forget_the_least(&mut self) {
        while self.lost.len() > self.settings.limits.max_recoverable as usize {
            let Some(((side, _), lost)) = self.lost.take_least() else { return };
            self.counters.refuse(Refusal::Limit("recoverable"));
            self.tell_owners_of_loss(side, &lost);
            self.give_up(lost);
        }
    }

    /// The channel's owner is lost and may come back.
    pub(super) fn await_owner(&mut self, index: ChannelIndex) {
        self.channels.at_mut(index).is_awaited = true;
        self.tell_subscribers(index, message_type::CHANNEL_OWNER_LOST, &ChannelOwnerLostMessage {});
    }

    fn tell_subscribers(&mut self, index: ChannelIndex, msg_type: u32, body: &impl prost::Message) {
        let channel = self.channels.at(index);
        if !channel.settings.send_owner_lost_and_recovered {
            return;
        }
        let (id, owner) = (channel.id, channel.owner);
        let others: Vec<Place> = channel.subscribers.places().filter(|&place| Some(place) != owner).collect();
        self.send_to_all(others, Header::new(id, msg_type), body);
    }

    /// Gives a new connection the connection id of its lost predecessor; whether there was one.
    pub(super) fn take_over(&mut self, index: Place) -> bool {
        let connection = self.connections.at(index);
        let key = (connection.side, connection.identifier.clone());
        let Some(lost) = self.lost.get(&key) else { return false };
        self.connections.renumber(index, lost.connection_id);
        true
    }

    /// The messages to a connection that has come back.
    pub(super) fn welcome(&mut self, index: Place, recovers: bool) {
        match recovers {
            // With all that has become well known meanwhile, and without what a server has taken from it.
            true => self.give_back_all(index),
            false => self.subscribe_to_well_known(index),
        }
    }

    fn give_back_all(&mut self, index: Place) {
        let key = (self.connections.at(index).side, self.connections.at(index).identifier.clone());
        let Some(lost) = self.lost.take(&key) else { return };
        let owned = self.return_channels(index, &lost);
        self.return_created(index, &lost);
        self.return_subscriptions(index, &lost);
        if self.connections.at(index).is_server() {
            self.tell_what_was(index);
        }
        for &channel in &owned {
            self.tell_owner_is_back(channel);
        }
        self.counters.recovered += 1;
        let is_cell = |channel: &ChannelIndex| self.channels.at(*channel).kind == ChannelType::Spatial;
        let cells: Vec<ChannelIndex> = owned.into_iter().filter(is_cell).collect();
        if !cells.is_empty() {
            self.settle_cells(&cells);
            self.open_the_borders();
        }
    }

    /// The channels that it owned and that have no new owner, in the order of ids.
    fn return_channels(&mut self, index: Place, lost: &Lost) -> Vec<ChannelIndex> {
        let mut ids: Vec<u32> = lost.owned.iter().copied().collect();
        ids.sort_unstable();
        let mut owned: Vec<ChannelIndex> = ids.iter().filter_map(|id| self.channels.find(*id)).collect();
        owned.retain(|&channel| std::mem::take(&mut self.channels.at_mut(channel).is_awaited));
        for &channel in &owned {
            self.channels.set_owner(&mut self.connections, channel, Some(index));
        }
        owned
    }

    /// The channels that it has created count as its own again.
    fn return_created(&mut self, index: Place, lost: &Lost) {
        let (key, side) = (self.connections.at(index).key, self.connections.at(index).side);
        for &channel in &lost.created {
            let Some(state) = self.channels.get_mut(channel) else { continue };
            if state.creator.is_none_or(|creator| creator.key != lost.key) {
                continue;
            }
            state.creator = Some(Creator { key, side });
            let bytes = state.beside_bytes() + self.fanout.hub.state(channel).size_bytes() as u64;
            let creator = self.connections.at_mut(index);
            creator.created.insert(channel);
            creator.state_bytes += bytes;
        }
    }

    fn return_subscriptions(&mut self, index: Place, lost: &Lost) {
        let is_server = self.connections.at(index).is_server();
        if !is_server {
            self.tell_what_ended(index, &lost.ended);
        }
        let mut subscriptions: Vec<(u32, Kept)> = lost.subscriptions.iter().map(|(&id, &kept)| (id, kept)).collect();
        subscriptions.sort_unstable_by_key(|&(id, _)| id);
        for (id, kept) in subscriptions {
            let Some(channel) = self.channels.born(id, kept.birth) else {
                if !is_server && kept.is_known {
                    self.tell_end(index, id, Ended::Removed);
                }
                continue;
            };
            let kept_as = (self.resolved(channel, kept.wanted), kept.since);
            if is_server {
                // It gets changes from now on. It gets the state at the channel's turn, and then the changes since that.
                self.serve_again(index, channel, kept_as, StreamStart::Changes);
            } else if kept.is_known {
                // It finds the state in its first update, and may have kept what was removed meanwhile.
                self.subscribe_anew(index, channel, kept_as);
            } else if self.serve_again(index, channel, kept_as, StreamStart::Everything) {
                self.tell_begun(index, channel);
            }
        }
    }

    /// Somebody else decides over a channel that a lost server owned. If that comes back it sees the entity only as one
    /// that sees the cell.
    pub(super) fn take_from_lost(&mut self, id: u32) {
        let cell = self.entities.cell_of(id);
        let cell = cell.and_then(|cell| Some((cell, self.channels.named(cell)?.birth)));
        self.lost.take_over(id, cell);
    }

    /// The channel has an owner again.
    pub(super) fn tell_owner_is_back(&mut self, channel: ChannelIndex) {
        self.tell_subscribers(channel, message_type::CHANNEL_OWNER_RECOVERED, &ChannelOwnerRecoveredMessage {});
    }

    /// The state of all channels that a recovered server owns or subscribes to.
    fn tell_what_was(&mut self, index: Place) {
        let hub = self.connections.hub_id(index);
        let mut channels: Vec<ChannelIndex> = self.fanout.hub.channels_of(hub).collect();
        channels.extend(self.connections.at(index).owned.iter().copied());
        channels.sort_unstable_by_key(|channel| self.channels.at(*channel).id);
        channels.dedup();
        let ids = channels.into_iter().map(|channel| self.channels.at(channel).id).collect();
        self.connections.at_mut(index).recovery = Some(ids);
        self.tell_more_of_what_was(index);
    }

    /// Tells a recovered server of as many channels as there is room for, and of the end after the last. The rest waits
    /// until it has taken these: a large world is more than may wait for one connection. The bytes queued.
    pub(super) fn tell_more_of_what_was(&mut self, index: Place) -> usize {
        let room_bytes = self.connections.at(index).room_bytes(&self.settings.limits);
        let before = self.connections.at_mut(index).out_bytes();
        while self.connections.at_mut(index).out_bytes() <= room_bytes {
            let Some(waiting) = &mut self.connections.at_mut(index).recovery else { break };
            let Some(id) = waiting.pop_front() else {
                self.connections.at_mut(index).recovery = None;
                self.send(index, Header::new(GLOBAL_CHANNEL, message_type::RECOVERY_END), &EndRecoveryMesssage {});
                break;
            };
            let Some(channel) = self.channels.find(id) else { continue };
            if self.begin_from_here(index, channel) || self.channels.at(channel).is_owner(index) {
                self.tell_recovered_channel(index, channel);
            }
        }
        self.connections.at_mut(index).out_bytes() - before
    }

    /// A subscription begins with changes from now on. Returns whether there is one.
    fn begin_from_here(&mut self, index: Place, channel: ChannelIndex) -> bool {
        let Some(former) = self.channels.at(channel).subscriber(index).copied() else { return false };
        let wanted = self.fanout.granted(&self.connections, index, former);
        self.unsubscribe(index, channel);
        self.serve_again(index, channel, (wanted, former.since), StreamStart::Changes)
    }

    /// A channel's state and the references of its objects, as far as they fit into one message. References that do not
    /// go ahead in messages of the same kind without state, so that objects are known before their state comes; state
    /// that does not follows as updates.
    fn tell_recovered_channel(&mut self, index: Place, channel: ChannelIndex) {
        let log = self.fanout.hub.state(channel);
        let type_url = log.type_url().to_owned();
        let any = |value: Bytes| Any { type_url: type_url.clone(), value };
        let mut values = log.full_in_pieces(RECOVERY_VALUE_MAX_BYTES).into_iter().map(any);
        let first = values.next();
        let first_bytes = first.as_ref().map_or(0, |first| first.value.len());
        let mut references = self.object_references(channel);
        let last = references.pop();
        let (last, own) = match last {
            Some(last) if last.value.len() + first_bytes > RECOVERY_MAX_BYTES => (None, Some(last)),
            last => (last, None),
        };
        let state = self.channels.at(channel);
        let subscriber = state.subscriber(index);
        let message = ChannelDataRecoveryMessage {
            channel_id: state.id,
            channel_type: state.kind.into(),
            metadata: state.metadata.clone(),
            owner_conn_id: state.owner.map_or(0, |owner| self.connections.at(owner).id),
            sub_time: subscriber.map_or(self.clock.unix_ns(), |subscriber| self.clock.unix_ns_at(subscriber.since)),
            sub_options: subscriber.map(|subscriber| ChannelSubscriptionOptions {
                data_field_masks: self.fanout.forms.paths(subscriber.variant).to_vec(),
                ..self.fanout.granted(&self.connections, index, *subscriber).to_wire()
            }),
            channel_data: first,
            recovery_data: last,
        };
        let id = state.id;
        let header = Header::new(id, message_type::RECOVERY_CHANNEL_DATA);
        for references in references.into_iter().chain(own) {
            let channel_data = Some(any(Bytes::new()));
            let ahead = ChannelDataRecoveryMessage { channel_data, recovery_data: Some(references), ..message.clone() };
            self.send(index, header, &ahead);
        }
        self.send(index, header, &message);
        for data in values {
            let update = ChannelDataUpdateMessage { data: Some(data), context_conn_id: 0 };
            self.send(index, Header::new(id, message_type::CHANNEL_DATA_UPDATE), &update);
        }
    }

    /// Gives up lost connections that have not come back in time.
    pub(super) fn surrender(&mut self) {
        while let Some(((side, _), lost)) = self.lost.take_late(self.clock.now()) {
            self.tell_owners_of_loss(side, &lost);
            self.give_up(lost);
        }
    }

    /// The owners of what a lost connection had subscribed to were not told while it could have come back.
    pub(super) fn tell_owners_of_loss(&mut self, side: Side, lost: &Lost) {
        for (id, kept) in &lost.subscriptions {
            if let Some(channel) = self.channels.born(*id, kept.birth) {
                self.tell_owner_of_end(channel, (lost.connection_id, side));
            }
        }
    }

    pub(super) fn give_up(&mut self, lost: Lost) {
        if let Some(world) = &mut self.world {
            world.slots.free(lost.connection_id);
        }
        let mut owned: Vec<u32> = lost.owned.into_iter().collect();
        owned.sort_unstable();
        for id in owned {
            let Some(channel) = self.channels.find(id) else { continue };
            if !std::mem::take(&mut self.channels.at_mut(channel).is_awaited) {
                continue;
            }
            self.give_up_channel(channel);
        }
    }

    /// Decides about a channel whose owner will not come back.
    pub(super) fn give_up_channel(&mut self, channel: ChannelIndex) {
        let removes = self.channels.at(channel).settings.remove_channel_after_owner_removed;
        if removes && self.channels.at(channel).id != GLOBAL_CHANNEL {
            self.remove_channel(channel);
        } else {
            self.find_home(channel);
        }
    }
}
