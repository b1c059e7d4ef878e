//! Changes of a channel's state.

use throng_channeld::Message;
use throng_channeld::proto::{Any, ChannelDataMergeOptions, ChannelDataUpdateMessage};
use throng_replica::ChannelIndex;

use super::Engine;
use super::channel::Access;
use super::log::state_limits;
use super::place::Place;
use super::refusal::Refusal;
use throng_protostate::MergeError;

impl Engine {
    pub(super) fn on_update(&mut self, from: Place, channel: ChannelIndex, message: &Message) -> Result<(), Refusal> {
        let writer = self.writer_of(from, channel)?;
        let update: ChannelDataUpdateMessage = message.decode().map_err(|_| Refusal::Malformed)?;
        let data = update.data.ok_or(Refusal::Data("missing_data"))?;
        let context = match self.connections.at(from).is_server() {
            true => update.context_conn_id,
            false => self.connections.at(from).id,
        };
        self.merge(channel, writer, &data)?;
        self.counters.updates += 1;
        self.entity_moved_by(from, channel, context);
        Ok(())
    }

    /// The writer of an update. The owner may write, and who was granted it. So may any other server as long as there
    /// is an owner; then it is as if the owner had said it.
    fn writer_of(&self, from: Place, channel: ChannelIndex) -> Result<Place, Refusal> {
        let channel = self.channels.at(channel);
        let is_writer = || channel.subscriber(from).is_some_and(|subscriber| subscriber.access() == Access::Write);
        // Most updates are the owner's.
        if channel.is_owner(from) || is_writer() {
            return Ok(from);
        }
        channel.owner.filter(|_| self.connections.at(from).is_server()).ok_or(Refusal::NoWriteAccess)
    }

    /// The state that a channel begins with. A type that was only expected gives way to the one that comes.
    pub(super) fn begin_data(&mut self, channel: ChannelIndex, from: Place, data: &Any) -> Result<(), Refusal> {
        if self.fanout.hub.state(channel).is_untouched() {
            let before = self.fanout.hub.state(channel).size_bytes() as u64;
            self.fanout.hub.state_mut(channel).clear();
            self.state_was_changed(channel, before);
        }
        self.merge(channel, from, data)
    }

    /// The empty state of the type in the settings, if there is one and nothing was written yet.
    pub(super) fn begin_empty(&mut self, channel: ChannelIndex) {
        let settings = &self.channels.at(channel).settings;
        let Some(name) = settings.data_msg_full_name.clone() else { return };
        let options = self.channels.at(channel).merge_options();
        let (tick, limits) = (self.fanout.change_tick(&self.clock), state_limits(&self.settings.limits));
        let schema = self.schemas.find(&name).cloned();
        let before = self.fanout.hub.state(channel).size_bytes() as u64;
        self.fanout.hub.state_mut(channel).begin_empty(&name, (schema, options, limits), tick);
        self.state_was_changed(channel, before);
        self.learn_position(channel);
    }

    /// How updates are merged from now on. In the gateway's list of a cell, who is `removed` is gone, whatever is asked for.
    pub(super) fn set_merge_options(&mut self, channel: ChannelIndex, mut options: ChannelDataMergeOptions) {
        options.should_check_removable_map_field |= self.is_cells_list(channel);
        self.channels.at_mut(channel).merge = options;
        let options = self.channels.at(channel).merge_options();
        self.fanout.hub.state_mut(channel).set_options(options);
    }

    pub(super) fn merge(&mut self, channel: ChannelIndex, from: Place, data: &Any) -> Result<(), Refusal> {
        let options = self.channels.at(channel).merge_options();
        let (tick, limits) = (self.fanout.change_tick(&self.clock), state_limits(&self.settings.limits));
        let writer = self.connections.at(from).writer;
        let is_short = self.pressure.is_on(self.connections.at(from).side);
        let room = self.memory.room_for(&self.settings.limits, &self.connections, self.channels.at(channel).creator);
        // An update that only replaces something needs no room.
        let room_bytes = if is_short { 0 } else { usize::try_from(room.bytes).unwrap_or(usize::MAX) };
        let state = self.fanout.hub.state_mut(channel);
        let had_data = state.data().is_some();
        let before = state.size_bytes() as u64;
        let merged = state.merge(data, room_bytes, (&self.schemas, options, limits), writer, tick);
        self.state_was_changed(channel, before);
        let merged = merged.map_err(|error| match error {
            MergeError::NoRoom { .. } if is_short => Refusal::Limit("memory"),
            MergeError::NoRoom { .. } => room.refusal,
            error => Refusal::Data(error.tag()),
        })?;
        self.edges.note_update(channel, Some((writer, &data.value)), merged.dropped > 0);
        if merged.dropped > 0 {
            self.counters.refuse(Refusal::Data("values_dropped"));
        }
        if !had_data {
            self.resolve_masks_anew(channel);
            self.learn_position(channel);
        }
        Ok(())
    }
}
