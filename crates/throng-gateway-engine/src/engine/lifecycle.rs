//! Channels are made, listed and removed.

use throng_channeld::proto::list_channel_result_message::ChannelInfo;
use throng_channeld::proto::{
    ChannelType, CreateChannelMessage, CreateChannelResultMessage, ListChannelMessage, ListChannelResultMessage,
    RefusedMessage, RemoveChannelMessage,
};
use throng_channeld::{GLOBAL_CHANNEL, Header, Message, message_type};
use throng_replica::ChannelIndex;

use super::Engine;
use super::channel::{Channel, Creator};
use super::connection::Cost;
use super::ends::Ended;
use super::place::Place;
use super::port::Side;
use super::refusal::Refusal;
use crate::limits::Limits;

impl Engine {
    pub(super) fn on_create(&mut self, from: Place, message: &Message) -> Result<(), Refusal> {
        let wanted: CreateChannelMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        let kind = ChannelType::try_from(wanted.channel_type).unwrap_or(ChannelType::Unknown);
        let kind = match message.msg_type {
            message_type::CREATE_SPATIAL_CHANNEL => ChannelType::Spatial,
            _ => kind,
        };
        match kind {
            ChannelType::Unknown | ChannelType::Entity => Err(Refusal::NotAllowed),
            ChannelType::Global => self.own_global(from, message, wanted),
            ChannelType::Spatial => self.create_spatial(from, message, wanted),
            _ => self.create_ordinary(from, message, kind, wanted),
        }
    }

    /// The master announces itself: a server, unless clients were given the right.
    fn own_global(&mut self, from: Place, message: &Message, wanted: CreateChannelMessage) -> Result<(), Refusal> {
        if !self.connections.at(from).is_server() && !self.settings.client_rights.own_global {
            return Err(Refusal::NotAllowed);
        }
        let global = self.channels.global();
        if self.channels.at(global).owner.is_some_and(|owner| owner != from) || self.channels.at(global).is_awaited {
            return Err(Refusal::ChannelExists);
        }
        check_metadata(&self.settings.limits, &wanted.metadata)?;
        let metadata = wanted.metadata.clone();
        self.check_room_beside(from, metadata.len())?;
        self.begin_channel(from, message, global, wanted)?;
        self.set_metadata(global, metadata);
        Ok(())
    }

    fn create_ordinary(
        &mut self,
        from: Place,
        message: &Message,
        kind: ChannelType,
        wanted: CreateChannelMessage,
    ) -> Result<(), Refusal> {
        if !self.connections.at(from).is_server() && !self.settings.client_rights.create {
            return Err(Refusal::NotAllowed);
        }
        self.check_may_create(from, &wanted.metadata)?;
        let is_client = !self.connections.at(from).is_server();
        if is_client && let Some(master) = self.master() {
            self.check_room_for_clients(master)?;
        }
        let reserved = if is_client { self.settings.limits.reserved_server_channel_ids } else { 0 };
        let (end, share) = (self.settings.spatial_channel_start, &self.share);
        let id = self.channels.take_id(end, reserved, |id| share.is_home_of(id));
        let id = id.ok_or(Refusal::Limit("channel_ids"))?;
        let added = self.add_channel(id, kind, wanted.metadata.clone());
        if added.is_err() {
            self.channels.give_back_id(id);
        }
        let channel = added?;
        self.count_created(from, channel);
        let begun = self.begin_channel(from, message, channel, wanted);
        if begun.is_err() {
            self.remove_channel(channel);
        }
        begun
    }

    /// Whether a connection may have one more channel, rooms and entities alike.
    pub(super) fn check_may_create(&self, from: Place, metadata: &str) -> Result<(), Refusal> {
        let (connection, limits) = (self.connections.at(from), &self.settings.limits);
        let limit = if connection.is_server() { limits.max_server_channels } else { limits.max_client_channels };
        if connection.created.len() >= limit as usize {
            return Err(Refusal::Limit("channels_created"));
        }
        check_metadata(limits, metadata)?;
        self.check_room_beside(from, metadata.len())
    }

    pub(super) fn count_created(&mut self, from: Place, channel: ChannelIndex) {
        let creator = self.connections.at_mut(from);
        creator.created.insert(channel);
        let creator = Creator { key: creator.key, side: creator.side };
        self.set_creator(channel, creator);
    }

    /// From now on a channel is the creator's, with the memory that it takes beside its state.
    pub(super) fn set_creator(&mut self, channel: ChannelIndex, creator: Creator) {
        let channel = self.channels.at_mut(channel);
        let bytes = channel.beside_bytes();
        let former = channel.creator.replace(creator);
        self.memory.was_changed(&mut self.connections, former, (bytes, 0));
        self.memory.was_changed(&mut self.connections, Some(creator), (0, bytes));
    }

    /// Gives a channel its owner, its first data and its first subscriber, and notifies the others concerned.
    pub(super) fn begin_channel(
        &mut self,
        from: Place,
        message: &Message,
        channel: ChannelIndex,
        wanted: CreateChannelMessage,
    ) -> Result<(), Refusal> {
        if let Some(merge) = wanted.merge_options {
            self.set_merge_options(channel, merge);
        }
        match &wanted.data {
            Some(data) => self.begin_data(channel, from, data)?,
            None => self.begin_empty(channel),
        }
        let options = wanted.sub_options.unwrap_or_default();
        let subscribed = self.subscribe(from, channel, &options)?;
        self.channels.set_owner(&mut self.connections, channel, Some(from));
        let result = self.creation_result(channel, &wanted.metadata, from);
        let header = Header::new(GLOBAL_CHANNEL, message.msg_type);
        self.send(from, header.with_stub(message.stub_id), &result);
        if let Some(master) = self.master().filter(|&master| master != from) {
            self.send(master, header, &result);
        }
        self.tell_subscribed(from, from, channel, subscribed, 0);
        Ok(())
    }

    pub(super) fn creation_result(
        &self,
        channel: ChannelIndex,
        metadata: &str,
        owner: Place,
    ) -> CreateChannelResultMessage {
        let channel = self.channels.at(channel);
        CreateChannelResultMessage {
            channel_type: channel.kind.into(),
            metadata: metadata.to_owned(),
            owner_conn_id: self.connections.at(owner).id,
            channel_id: channel.id,
        }
    }

    pub(super) fn on_remove(&mut self, from: Place, message: &Message) -> Result<(), Refusal> {
        let wanted: RemoveChannelMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        let channel = self.channels.find(wanted.channel_id).ok_or(Refusal::UnknownChannel)?;
        if wanted.channel_id == GLOBAL_CHANNEL {
            return Err(Refusal::NotAllowed);
        }
        let rule = self.channels.at(channel).settings.acl.remove;
        if !self.is_allowed(rule, from, channel) {
            return Err(Refusal::NotAllowed);
        }
        // The sender gets the notice as its answer.
        if self.unsubscribe(from, channel) {
            self.note_end(from, wanted.channel_id, Ended::Removed);
        }
        self.remove_channel(channel);
        let header = Header::new(wanted.channel_id, message_type::REMOVE_CHANNEL).with_stub(message.stub_id);
        self.send(from, header, &wanted);
        Ok(())
    }

    /// Tells all subscribers, and forgets the channel.
    pub(super) fn remove_channel(&mut self, index: ChannelIndex) {
        let Some(mut channel) = self.channels.take(index) else { return };
        self.edges.forget(index, channel.id);
        if let Some(taking) = &mut self.taking {
            taking.note_gone(channel.id);
        }
        for (connection, subscriber) in channel.subscribers.drain() {
            let hub = self.connections.hub_id(connection);
            self.fanout.hub.unsubscribe(hub, subscriber.id);
            self.connections.at_mut(connection).forget_state_of(index);
            self.tell_end(connection, channel.id, Ended::Removed);
        }
        if let Some(owner) = channel.owner
            && let Some(owner) = self.connections.get_mut(owner)
        {
            owner.owned.remove(&index);
        }
        if let Some(creator) = channel.creator.and_then(|creator| self.connections.place(creator.key)) {
            let bytes = self.fanout.hub.state(index).size_bytes() as u64 + channel.beside_bytes();
            let creator = self.connections.at_mut(creator);
            creator.created.remove(&index);
            creator.state_bytes = creator.state_bytes.saturating_sub(bytes);
        }
        // Its memory is free now, and not only when another channel takes the slot.
        let state = self.fanout.hub.state_mut(index);
        let bytes = state.size_bytes() as u64 + channel.beside_bytes();
        state.clear();
        self.memory.forget(bytes, channel.creator.is_some_and(|creator| creator.side == Side::Client));
        self.memory.note_channels(self.channels.len());
        if channel.id < self.settings.spatial_channel_start {
            self.channels.give_back_id(channel.id);
        }
        self.fanout.hub.remove(index);
        self.entity_channel_removed(channel.id, index);
    }

    /// The channels that fit the filters, in order of their ids; in several messages, all with the question's stub, if they
    /// are too many for one packet.
    pub(super) fn on_list(&mut self, from: Place, message: &Message) -> Result<(), Refusal> {
        let wanted: ListChannelMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        let limits = self.settings.limits;
        let is_too_long = |filter: &String| filter.len() > limits.max_list_filter_bytes as usize;
        if wanted.metadata_filters.len() > limits.max_list_filters as usize
            || wanted.metadata_filters.iter().any(is_too_long)
        {
            return Err(Refusal::Limit("list_filters"));
        }
        let mut looked_at_bytes = 0;
        // Servers may look at everything; they are trusted with what it costs.
        let look_at_bytes_max = if self.connections.at(from).is_server() { u64::MAX } else { LOOK_AT_BYTES_MAX };
        let mut is_wanted = |kind: i32, metadata: &str| {
            looked_at_bytes += 16;
            if wanted.type_filter != 0 && wanted.type_filter != kind || looked_at_bytes > look_at_bytes_max {
                return false;
            }
            let mut filters = wanted.metadata_filters.iter();
            wanted.metadata_filters.is_empty()
                || filters.any(|filter| {
                    looked_at_bytes += metadata.len() as u64;
                    metadata.contains(filter.as_str())
                })
        };
        let all = self.channels.iter();
        let mut found: Vec<&Channel> = all
            .filter(|channel| self.share.is_home_of(channel.id) && is_wanted(channel.kind as i32, &channel.metadata))
            .collect();
        found.sort_unstable_by_key(|channel| channel.id);
        let mut bytes = 0;
        let fitting = found.iter().take_while(|channel| {
            bytes += listed_bytes(channel);
            bytes <= self.settings.limits.max_list_bytes as usize
        });
        let fitting = fitting.count();
        let is_cut = fitting < found.len() || looked_at_bytes > look_at_bytes_max;
        let answers = listed(&found[..fitting]);
        let cost = Cost::each(looked_at_bytes, LOOK_AT_BYTES_PER_REQUEST)
            .and(Cost::each(bytes as u64, LIST_BYTES_PER_REQUEST));
        self.connections.at_mut(from).requests.charge(cost);
        if is_cut {
            self.counters.refuse(Refusal::Limit("list_bytes"));
        }
        let header = Header::new(GLOBAL_CHANNEL, message_type::LIST_CHANNEL).with_stub(message.stub_id);
        for answer in answers {
            self.send(from, header, &answer);
        }
        Ok(())
    }

    /// Answers the sender of a refused message with the reason, if it has asked for such answers.
    ///
    /// To everybody else a refusal is silent, as in channeld: existing clients take an empty result for a success on
    /// channel 0. Logins are answered in any case, because their answer can say *no*; on another channel than 0 they are
    /// no logins.
    pub(super) fn answer_refusal(&mut self, from: Place, message: &Message, refusal: Refusal) {
        if refusal == Refusal::Closing {
            return;
        }
        if message.msg_type == message_type::AUTH && refusal != Refusal::StateMachine {
            match message.channel_id {
                GLOBAL_CHANNEL => self.answer_refused_login(from, message.stub_id),
                _ => self.note_failed_login(from),
            }
        }
        if self.connections.at(from).wants_refusals {
            let header = Header::new(message.channel_id, message_type::REFUSED).with_stub(message.stub_id);
            self.send(from, header, &RefusedMessage { msg_type: message.msg_type, reason: refusal.tag().to_owned() });
        }
    }

    /// Whether an owner has room for one more notice about a client.
    pub(super) fn check_room_for_clients(&mut self, owner: Place) -> Result<(), Refusal> {
        let limits = self.settings.limits;
        match self.connections.at_mut(owner).has_room_for_clients(&limits) {
            true => Ok(()),
            false => Err(Refusal::Limit("owner_queue")),
        }
    }
}

/// Whether the metadata of a channel may be so long.
pub(super) fn check_metadata(limits: &Limits, metadata: &str) -> Result<(), Refusal> {
    match metadata.len() > limits.max_metadata_bytes as usize {
        true => Err(Refusal::Limit("metadata_bytes")),
        false => Ok(()),
    }
}

/// Bytes of metadata that are searched for one list of a client at most.
const LOOK_AT_BYTES_MAX: u64 = 16 << 20;

/// Bytes of metadata to be searched that cost a client as much as an ordinary request: some ten microseconds.
const LOOK_AT_BYTES_PER_REQUEST: u64 = 64 << 10;

/// Bytes of an answer that cost as much.
const LIST_BYTES_PER_REQUEST: u64 = 32 << 10;

/// A list as messages, each of which fits into a packet; one at least.
fn listed(channels: &[&Channel]) -> Vec<ListChannelResultMessage> {
    let mut answers = vec![ListChannelResultMessage::default()];
    let mut bytes = 0;
    for channel in channels {
        bytes += listed_bytes(channel);
        if bytes > LIST_MAX_BYTES {
            bytes = listed_bytes(channel);
            answers.push(ListChannelResultMessage::default());
        }
        let info = ChannelInfo {
            channel_id: channel.id,
            channel_type: channel.kind.into(),
            metadata: channel.metadata.clone(),
        };
        if let Some(answer) = answers.last_mut() {
            answer.channels.push(info);
        }
    }
    answers
}

fn listed_bytes(channel: &Channel) -> usize {
    channel.metadata.len() + LISTED_CHANNEL_BYTES
}

/// Bytes of one message of a list: with everything around it, it fits into a packet. Longer metadata than this is allowed
/// by no setting.
const LIST_MAX_BYTES: usize = 60_000;

/// An entry of the list without its metadata: tags, lengths, an id and a type.
const LISTED_CHANNEL_BYTES: usize = 18;
