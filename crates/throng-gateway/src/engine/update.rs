//! Changes of a channel's state.

use throng_channeld::Message;
use throng_channeld::proto::{Any, ChannelDataMergeOptions, ChannelDataUpdateMessage};
use throng_replica::ChannelIndex;

use super::Engine;
use super::channel::Access;
use super::refusal::Refusal;
use crate::state::{MergeOptions, StateLimits};

impl Engine {
    pub(super) fn on_update(&mut self, from: usize, channel: ChannelIndex, message: &Message) -> Result<(), Refusal> {
        let writer = self.writer_of(from, channel)?;
        let update: ChannelDataUpdateMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        let data = update.data.ok_or(Refusal::Data("missing_data"))?;
        let context = match self.connection(from).is_server() {
            true => update.context_conn_id,
            false => self.connection(from).id,
        };
        self.merge(channel, writer, &data)?;
        self.counters.updates += 1;
        self.entity_moved(channel, context);
        Ok(())
    }

    /// Whose words an update is. The owner may write, and who was granted it. So may any other server as long as there
    /// is an owner; then it is as if the owner had said it.
    fn writer_of(&self, from: usize, channel: ChannelIndex) -> Result<usize, Refusal> {
        let channel = self.channel(channel);
        let is_writer = channel.subscriber(from).is_some_and(|subscriber| subscriber.access() == Access::Write);
        if channel.is_owner(from) || is_writer {
            return Ok(from);
        }
        channel.owner.filter(|_| self.connection(from).is_server()).ok_or(Refusal::NoWriteAccess)
    }

    /// The state that a channel begins with. A type that was only expected gives way to the one that comes.
    pub(super) fn begin_data(&mut self, channel: ChannelIndex, from: usize, data: &Any) -> Result<(), Refusal> {
        if self.hub.state(channel).is_untouched() {
            self.hub.state_mut(channel).clear();
        }
        self.merge(channel, from, data)
    }

    /// The empty state of the type that the settings name, if they do and nobody has said anything else.
    pub(super) fn begin_empty(&mut self, channel: ChannelIndex) {
        let settings = &self.channel(channel).settings;
        let Some(name) = settings.data_msg_full_name.clone() else { return };
        let options = merge_options(&self.channel(channel).merge);
        let (tick, limits) = (self.change_tick(), self.state_limits());
        let schema = self.schemas.find(&name).cloned();
        self.hub.state_mut(channel).begin_empty(&name, (schema, options, limits), tick);
    }

    /// How updates are merged from now on.
    pub(super) fn set_merge_options(&mut self, channel: ChannelIndex, options: ChannelDataMergeOptions) {
        self.channel_mut(channel).merge = options;
        self.hub.state_mut(channel).set_options(merge_options(&options));
    }

    /// What a state may grow to.
    pub(super) fn state_limits(&self) -> StateLimits {
        let bytes = usize::try_from(self.settings.limits.max_state_bytes).unwrap_or(usize::MAX);
        StateLimits { state_bytes: bytes, ..StateLimits::default() }
    }

    pub(super) fn merge(&mut self, channel: ChannelIndex, from: usize, data: &Any) -> Result<(), Refusal> {
        let options = merge_options(&self.channel(channel).merge);
        let (tick, limits) = (self.change_tick(), self.state_limits());
        let writer = self.connection(from).writer;
        if self.state_bytes + data.value.len() as u64 > self.settings.limits.max_total_state_bytes {
            return Err(Refusal::Limit("total_state_bytes"));
        }
        let state = self.hub.state_mut(channel);
        let before = state.size_bytes() as u64;
        let merged = state.merge(data, (&self.schemas, options, limits), writer, tick);
        self.state_bytes = (self.state_bytes + state.size_bytes() as u64).saturating_sub(before);
        merged.map_err(|error| Refusal::Data(error.tag()))
    }
}

fn merge_options(options: &ChannelDataMergeOptions) -> MergeOptions {
    MergeOptions {
        replace_lists: options.should_replace_list,
        list_size_limit: options.list_size_limit,
        truncate_top: options.truncate_top,
        remove_map_entries: options.should_check_removable_map_field,
    }
}
