//! A hub whose connections several threads subscribe at once.

use rustc_hash::FxHashMap;
use throng_wire::Tick;

use super::{Channel, ChannelState, Hub};
use crate::key::ChannelKey;
use crate::reader::ConnectionSlot;
use crate::rows::RowChanges;

/// The tables of a hub: its channels by key, the channels, the tick of its last plan, and the connections.
pub(crate) type Tables<'a, S> = (&'a FxHashMap<ChannelKey, u32>, &'a [Channel<S>], Tick, &'a mut [ConnectionSlot]);

impl<S: ChannelState> Hub<S> {
    pub(crate) fn tables(&mut self) -> Tables<'_, S> {
        (&self.by_key, &self.channels, self.now, &mut self.connections)
    }

    pub(crate) fn note_row(&mut self, changes: &mut RowChanges) {
        changes.joined.drain(..).for_each(|channel| self.channels[channel as usize].subscribers += 1);
        changes.left.drain(..).for_each(|channel| self.channels[channel as usize].subscribers -= 1);
        self.counters.limit_reached += std::mem::take(&mut changes.limit_reached);
    }
}
