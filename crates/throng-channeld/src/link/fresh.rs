//! Decides which incoming movement a client may show, so that old state never replaces newer state.
//!
//! Movement overtakes and is overtaken: by other movement, and by what lane 0 says about the same channel. Two numbers
//! decide: that of the packet, and that of the message on lane 0. Old movement is discarded. Nothing is missing then:
//! the newer movement that overtook it holds all its changes, because movement always holds all changes since a state
//! that is known to have arrived.

use std::collections::HashMap;

use crate::message_type;
use crate::packet::Message;
use crate::proto::{AuthResultMessage, RemoveChannelMessage, UnsubscribedFromChannelResultMessage};

/// Channels that are remembered. Of others, movement is thrown away.
const CHANNELS_MAX: usize = 1 << 17;

/// The order of the messages that a client has received for each channel.
#[derive(Clone, Debug, Default)]
pub struct Freshness {
    connection_id: u32,
    /// Messages of lane 0 so far, wrapping.
    messages: u32,
    channels: HashMap<u32, Newest>,
}

/// The last accepted message of a channel.
#[derive(Clone, Copy, Debug)]
struct Newest {
    /// `messages` after the last state on lane 0.
    message: u32,
    /// The packet of the last movement since then.
    packet: Option<u64>,
}

impl Freshness {
    /// A message of lane 0 was polled: a packet of the protocol. Call [`Freshness::note`] with its content after this.
    pub fn next_packet(&mut self) {
        self.messages = self.messages.wrapping_add(1);
    }

    /// A message of the protocol that came on lane 0.
    pub fn note(&mut self, message: &Message) {
        match message.msg_type {
            message_type::CHANNEL_DATA_UPDATE => self.note_state(message.channel_id),
            message_type::UNSUB_FROM_CHANNEL => {
                let result = message.decode::<UnsubscribedFromChannelResultMessage>();
                if result.is_ok_and(|result| result.conn_id == self.connection_id) {
                    self.channels.remove(&message.channel_id);
                }
            }
            message_type::REMOVE_CHANNEL => {
                if let Ok(removed) = message.decode::<RemoveChannelMessage>() {
                    self.channels.remove(&removed.channel_id);
                }
            }
            message_type::AUTH => {
                if let Ok(result) = message.decode::<AuthResultMessage>() {
                    self.connection_id = result.conn_id;
                }
            }
            _ => {}
        }
    }

    fn note_state(&mut self, channel: u32) {
        if self.channels.len() < CHANNELS_MAX || self.channels.contains_key(&channel) {
            self.channels.insert(channel, Newest { message: self.messages, packet: None });
        }
    }

    /// Whether movement that came in packet `packet`, made when `after` messages of lane 0 were under way, is newer than
    /// all that was taken of its channel. If so it counts as taken.
    pub fn take(&mut self, packet: u64, after: u32, message: &Message) -> bool {
        if message.msg_type != message_type::CHANNEL_DATA_UPDATE {
            return false;
        }
        let Some(newest) = self.channels.get_mut(&message.channel_id) else { return false };
        // Ahead by less than half of all numbers: a newer state has come on lane 0.
        let is_outdone = newest.message.wrapping_sub(after) as i32 > 0;
        if is_outdone || newest.packet.is_some_and(|newest| newest > packet) {
            return false;
        }
        newest.packet = Some(packet);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Header, Messages, put_body};

    fn update(channel_id: u32) -> Message {
        Message { channel_id, msg_type: message_type::CHANNEL_DATA_UPDATE, ..Message::default() }
    }

    /// With the first state of channel 7 in message 1.
    fn fresh() -> Freshness {
        let mut fresh = Freshness { connection_id: 3, ..Freshness::default() };
        fresh.next_packet();
        fresh.note(&update(7));
        fresh
    }

    fn unsubscribed(conn_id: u32) -> Message {
        let mut entries = Vec::new();
        let result = UnsubscribedFromChannelResultMessage { conn_id, ..Default::default() };
        put_body(&mut entries, Header::new(7, message_type::UNSUB_FROM_CHANNEL), &result);
        Messages::new(entries.into()).next().expect("there is one").expect("it is sound")
    }

    #[test]
    fn what_is_overtaken_by_other_movement_is_thrown_away() {
        let mut fresh = fresh();
        assert!(fresh.take(5, 1, &update(7)));
        assert!(fresh.take(5, 1, &update(7)), "two messages in one packet");
        assert!(!fresh.take(4, 1, &update(7)));
        assert!(fresh.take(6, 1, &update(7)));
    }

    #[test]
    fn what_is_overtaken_by_the_reliable_lane_is_thrown_away() {
        let mut fresh = fresh();
        fresh.next_packet();
        fresh.note(&update(7));
        assert!(!fresh.take(5, 1, &update(7)));
        assert!(fresh.take(6, 2, &update(7)));
        fresh.next_packet();
        fresh.note(&update(8));
        assert!(fresh.take(7, 2, &update(7)), "another channel's state does not matter");
    }

    #[test]
    fn nothing_is_shown_of_a_channel_that_is_not_subscribed_to() {
        let mut fresh = fresh();
        assert!(!fresh.take(5, 1, &update(9)));
        fresh.note(&unsubscribed(4));
        assert!(fresh.take(6, 1, &update(7)), "somebody else has left it");
        fresh.note(&unsubscribed(3));
        assert!(!fresh.take(7, 1, &update(7)));
    }

    #[test]
    fn numbers_wrap_around() {
        let mut fresh = Freshness { messages: u32::MAX, ..Freshness::default() };
        fresh.next_packet();
        fresh.note(&update(7));
        assert!(!fresh.take(1, u32::MAX, &update(7)));
        assert!(fresh.take(2, 0, &update(7)));
    }
}
