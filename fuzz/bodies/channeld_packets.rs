//! Packets of channeld's protocol: any bytes, read by us and by a protobuf decoder; and entries cut into packets.

use bytes::Bytes;
use prost::Message as _;
use throng_channeld::proto::Packet;
use throng_channeld::{Message, Messages, Packets};

use super::choices::Choices;

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let max_bytes = 2 + usize::from(choices.byte());
    let count = input.len();
    let payload = Bytes::copy_from_slice(choices.bytes(count));
    read(&payload);
    cut(&payload, max_bytes);
}

/// We accept and read all bytes that a protobuf decoder accepts, except groups, which nobody sends.
fn read(payload: &Bytes) {
    let ours: Result<Vec<Message>, _> = Messages::new(payload.clone()).collect();
    match (&ours, Messages::check(payload)) {
        (Ok(messages), Ok(count)) => assert_eq!(messages.len(), count),
        (Err(error), Err(checked)) => assert!(*error == checked && !error.tag().is_empty()),
        (ours, checked) => panic!("read {ours:?}, checked {checked:?}"),
    }
    let (Ok(ours), Ok(theirs)) = (ours, Packet::decode(payload.clone())) else { return };
    assert_eq!(ours.len(), theirs.messages.len());
    for (ours, theirs) in ours.iter().zip(&theirs.messages) {
        let theirs_numbers = (theirs.channel_id, theirs.broadcast, theirs.stub_id, theirs.msg_type);
        assert_eq!((ours.channel_id, ours.broadcast, ours.stub_id, ours.msg_type), theirs_numbers);
        assert_eq!(ours.body, theirs.msg_body);
    }
}

/// Pieces are never too long, and hold everything but what was left out, in order.
fn cut(entries: &[u8], max_bytes: usize) {
    let mut packets = Packets::new(entries, max_bytes);
    let (mut bytes, mut last_end) = (0, 0);
    for packet in packets.by_ref() {
        assert!(!packet.is_empty() && packet.len() <= max_bytes);
        let begin = packet.as_ptr() as usize - entries.as_ptr() as usize;
        assert!(begin >= last_end);
        last_end = begin + packet.len();
        bytes += packet.len();
    }
    assert!(packets.rest().is_empty());
    assert_eq!(bytes < entries.len(), packets.dropped() > 0);
}
