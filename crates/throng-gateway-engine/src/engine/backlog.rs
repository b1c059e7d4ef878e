//! State that is too large to be queued at once: the first state of a large channel, or of very many channels.
//!
//! Subscribers at the same point share the frames: a thousand new subscribers of a channel of 16 MB cost 16 MB. It is
//! cut between messages, never within one.

use std::collections::VecDeque;
use std::sync::Arc;

use throng_replica::{ChannelIndex, Frame};

/// Frames in the order in which they are sent.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    frames: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    channel: ChannelIndex,
    frame: Arc<Frame>,
    /// The first segment that was not sent.
    next: usize,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(super) fn push(&mut self, channel: ChannelIndex, frame: Arc<Frame>) {
        self.frames.push_back(Waiting { channel, frame, next: 0 });
    }

    /// Appends whole messages as long as they fit into `room_bytes`; the first even if it does not, provided that there is
    /// room at all: otherwise a message that is longer than a queue would wait for ever.
    pub(super) fn take(&mut self, room_bytes: usize, out: &mut Vec<u8>) {
        let begin = out.len();
        while let Some(waiting) = self.frames.front_mut() {
            while waiting.next < waiting.frame.segments.len() {
                let message = waiting.frame.segment_bytes(waiting.next);
                let taken = out.len() - begin;
                let is_first = taken == 0 && room_bytes > 0;
                if taken + message.len() > room_bytes && !is_first {
                    return;
                }
                out.extend_from_slice(message);
                waiting.next += 1;
            }
            self.frames.pop_front();
        }
    }

    /// Bytes of memory that are kept for these frames. Of a frame that several wait for, each has its share.
    pub(super) fn kept_bytes(&self) -> u64 {
        let share = |frame: &Arc<Frame>| frame.bytes.len() / Arc::strong_count(frame).max(1);
        self.frames.iter().map(|waiting| share(&waiting.frame) as u64).sum()
    }

    /// The rest of a channel's state is not sent.
    pub(super) fn forget(&mut self, channel: ChannelIndex) {
        self.frames.retain(|waiting| waiting.channel != channel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_channeld::proto::ChannelType;
    use throng_replica::{ChannelKey, Hub, HubLimits, Stream};
    use throng_wire::Tick;

    use crate::engine::log::ChannelLog;

    fn frame(messages: &[&[u8]]) -> Arc<Frame> {
        let mut frame = Frame::default();
        for message in messages {
            let start = frame.bytes.len();
            frame.bytes.extend_from_slice(message);
            frame.push_segment(start, 0, 1);
        }
        Arc::new(frame)
    }

    fn channels<const N: usize>() -> [ChannelIndex; N] {
        let limits = HubLimits { channels: 10, connections: 1, subscriptions_per_connection: 1 };
        let mut hub: Hub<ChannelLog, Stream> = Hub::new(limits, Tick(0));
        std::array::from_fn(|number| {
            let id = number as u32;
            hub.channel_or_insert(ChannelKey::Custom(id), || ChannelLog::new(id, ChannelType::Test))
                .expect("there is room")
        })
    }

    #[test]
    fn whole_messages_are_taken_in_order_as_long_as_there_is_room() {
        let [first, second] = channels();
        let mut backlog = Backlog::default();
        backlog.push(first, frame(&[b"aaaa", b"bbb"]));
        backlog.push(second, frame(&[b"cc"]));
        let mut out = b"before ".to_vec();
        backlog.take(0, &mut out);
        assert_eq!(out, b"before ");
        backlog.take(6, &mut out);
        assert_eq!(out, b"before aaaa");
        backlog.take(5, &mut out);
        assert_eq!(out, b"before aaaabbbcc");
        assert!(backlog.is_empty());
    }

    #[test]
    fn a_message_that_is_longer_than_any_room_is_taken_alone() {
        let [first] = channels();
        let mut backlog = Backlog::default();
        backlog.push(first, frame(&[b"long", b"longer"]));
        let mut out = Vec::new();
        backlog.take(1, &mut out);
        assert_eq!(out, b"long");
    }

    #[test]
    fn what_is_not_wanted_any_more_is_not_sent() {
        let [first, second] = channels();
        let mut backlog = Backlog::default();
        backlog.push(first, frame(&[b"a", b"b"]));
        backlog.push(second, frame(&[b"c"]));
        let mut out = Vec::new();
        backlog.take(1, &mut out);
        backlog.forget(first);
        backlog.take(10, &mut out);
        assert_eq!(out, b"ac");
    }
}
