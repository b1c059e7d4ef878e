//! Channels are made, listed and removed.

use throng_channeld::proto::list_channel_result_message::ChannelInfo;
use throng_channeld::proto::{
    ChannelType, CreateChannelMessage, CreateChannelResultMessage, ListChannelMessage, ListChannelResultMessage,
    RemoveChannelMessage,
};
use throng_channeld::{GLOBAL_CHANNEL, Header, Message, message_type};
use throng_replica::ChannelIndex;

use super::Engine;
use super::channel::Channel;
use super::refusal::Refusal;

impl Engine {
    pub(super) fn on_create(&mut self, from: usize, message: &Message) -> Result<(), Refusal> {
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
    fn own_global(&mut self, from: usize, message: &Message, wanted: CreateChannelMessage) -> Result<(), Refusal> {
        if !self.connection(from).is_server() && !self.settings.client_rights.own_global {
            return Err(Refusal::NotAllowed);
        }
        let global = self.global();
        if self.channel(global).owner.is_some_and(|owner| owner != from) || self.channel(global).is_awaited {
            return Err(Refusal::ChannelExists);
        }
        self.begin_channel(from, message, global, wanted)
    }

    fn create_ordinary(
        &mut self,
        from: usize,
        message: &Message,
        kind: ChannelType,
        wanted: CreateChannelMessage,
    ) -> Result<(), Refusal> {
        if !self.connection(from).is_server() && !self.settings.client_rights.create {
            return Err(Refusal::NotAllowed);
        }
        self.check_may_create(from, &wanted.metadata)?;
        let id = self.free_channel_id().ok_or(Refusal::Limit("channel_ids"))?;
        let channel = self.add_channel(id, kind, wanted.metadata.clone())?;
        self.count_created(from, channel);
        let begun = self.begin_channel(from, message, channel, wanted);
        if begun.is_err() {
            self.remove_channel(channel);
        }
        begun
    }

    /// Whether a connection may have one more channel, rooms and entities alike.
    pub(super) fn check_may_create(&self, from: usize, metadata: &str) -> Result<(), Refusal> {
        let (connection, limits) = (self.connection(from), &self.settings.limits);
        let limit = if connection.is_server() { limits.max_server_channels } else { limits.max_client_channels };
        if connection.created >= limit as usize {
            return Err(Refusal::Limit("channels_created"));
        }
        match metadata.len() > limits.max_metadata_bytes as usize {
            true => Err(Refusal::Limit("metadata_bytes")),
            false => Ok(()),
        }
    }

    pub(super) fn count_created(&mut self, from: usize, channel: ChannelIndex) {
        self.channel_mut(channel).creator = Some(self.connection(from).key);
        self.connection_mut(from).created += 1;
    }

    /// Gives a channel its owner, its first data and its first subscriber, and tells those who have to know.
    pub(super) fn begin_channel(
        &mut self,
        from: usize,
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
        self.set_owner(channel, Some(from));
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
        owner: usize,
    ) -> CreateChannelResultMessage {
        let channel = self.channel(channel);
        CreateChannelResultMessage {
            channel_type: channel.kind.into(),
            metadata: metadata.to_owned(),
            owner_conn_id: self.connection(owner).id,
            channel_id: channel.id,
        }
    }

    /// Makes a connection decide over a channel, or nobody.
    pub(super) fn set_owner(&mut self, channel: ChannelIndex, owner: Option<usize>) {
        let former = std::mem::replace(&mut self.channel_mut(channel).owner, owner);
        if former == owner {
            return;
        }
        if let Some(former) = former.filter(|&former| self.connections[former].is_some()) {
            self.connection_mut(former).owned.retain(|&owned| owned != channel);
        }
        if let Some(owner) = owner {
            self.connection_mut(owner).owned.push(channel);
        }
    }

    pub(super) fn on_remove(&mut self, from: usize, message: &Message) -> Result<(), Refusal> {
        let wanted: RemoveChannelMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        let channel = *self.by_channel_id.get(&wanted.channel_id).ok_or(Refusal::UnknownChannel)?;
        if wanted.channel_id == GLOBAL_CHANNEL {
            return Err(Refusal::NotAllowed);
        }
        let rule = self.channel(channel).settings.acl.remove;
        if !self.is_allowed(rule, from, channel) {
            return Err(Refusal::NotAllowed);
        }
        // The sender gets the notice as its answer.
        self.unsubscribe(from, channel);
        self.remove_channel(channel);
        let header = Header::new(wanted.channel_id, message_type::REMOVE_CHANNEL).with_stub(message.stub_id);
        self.send(from, header, &wanted);
        Ok(())
    }

    /// Tells all subscribers, and forgets the channel.
    pub(super) fn remove_channel(&mut self, index: ChannelIndex) {
        let Some(mut channel) = self.channels[index.number()].take() else { return };
        let header = Header::new(channel.id, message_type::REMOVE_CHANNEL);
        for (connection, subscriber) in channel.subscribers.drain() {
            let hub = self.hub_id(connection as usize);
            self.hub.unsubscribe(hub, subscriber.id);
            self.connection_mut(connection as usize).forget_state_of(index);
            self.send(connection as usize, header, &RemoveChannelMessage { channel_id: channel.id });
        }
        if let Some(owner) = channel.owner
            && let Some(owner) = &mut self.connections[owner]
        {
            owner.owned.retain(|&owned| owned != index);
        }
        if let Some(creator) = channel.creator.and_then(|creator| self.place(creator)) {
            self.connection_mut(creator).created -= 1;
        }
        self.state_bytes = self.state_bytes.saturating_sub(self.hub.state(index).size_bytes() as u64);
        self.by_channel_id.remove(&channel.id);
        self.next_channel_id = self.next_channel_id.min(channel.id.max(1));
        self.hub.remove(index);
        self.forget_entity(channel.id, index);
    }

    /// The channels that fit the filters, in order of their ids; in several messages, all with the question's stub, if they
    /// are too many for one packet.
    pub(super) fn on_list(&mut self, from: usize, message: &Message) -> Result<(), Refusal> {
        let wanted: ListChannelMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        let is_wanted = |kind: i32, metadata: &str| {
            (wanted.type_filter == 0 || wanted.type_filter == kind)
                && (wanted.metadata_filters.is_empty()
                    || wanted.metadata_filters.iter().any(|filter| metadata.contains(filter.as_str())))
        };
        let all = self.channels.iter().flatten();
        let mut found: Vec<&Channel> =
            all.map(|channel| &**channel).filter(|channel| is_wanted(channel.kind as i32, &channel.metadata)).collect();
        found.sort_unstable_by_key(|channel| channel.id);
        let mut bytes = 0;
        let fitting = found.iter().take_while(|channel| {
            bytes += listed_bytes(channel);
            bytes <= self.settings.limits.max_list_bytes as usize
        });
        let fitting = fitting.count();
        let is_cut = fitting < found.len();
        let answers = listed(&found[..fitting]);
        if is_cut {
            self.count(Refusal::Limit("list_bytes"));
        }
        let header = Header::new(GLOBAL_CHANNEL, message_type::LIST_CHANNEL).with_stub(message.stub_id);
        for answer in answers {
            self.send(from, header, &answer);
        }
        Ok(())
    }

    /// Tells the sender of a request that it gets nothing: the answer's usual message, with nothing in it.
    ///
    /// Logins, lists and queries are always answered. What creates, subscribes and unsubscribes is answered to a stub
    /// only: without one the same message is news of something that has happened. An empty answer to REMOVE would say
    /// that GLOBAL is gone, so there is none.
    pub(super) fn answer_refusal(&mut self, from: usize, message: &Message, refusal: Refusal) {
        if matches!(refusal, Refusal::Closing | Refusal::StateMachine) {
            return;
        }
        let has_answer = match message.msg_type {
            message_type::AUTH => return self.answer_refused_login(from, message.stub_id),
            message_type::LIST_CHANNEL | message_type::QUERY_SPATIAL_CHANNEL => true,
            message_type::CREATE_CHANNEL
            | message_type::CREATE_SPATIAL_CHANNEL
            | message_type::CREATE_ENTITY_CHANNEL
            | message_type::SUB_TO_CHANNEL
            | message_type::UNSUB_FROM_CHANNEL => message.stub_id != 0,
            _ => false,
        };
        if has_answer {
            // All of these are empty when all of their fields are what proto3 leaves out.
            let header = Header::new(message.channel_id, message.msg_type).with_stub(message.stub_id);
            self.send_bytes(from, header, &[]);
        }
    }

    fn free_channel_id(&mut self) -> Option<u32> {
        let end = self.settings.spatial_channel_start;
        let id = (self.next_channel_id.max(1)..end).find(|id| !self.by_channel_id.contains_key(id))?;
        self.next_channel_id = id + 1;
        Some(id)
    }
}

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
