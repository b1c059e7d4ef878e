//! Movement sections and what a client shows of them: any bytes, in any order with messages of the reliable lane.

use std::collections::HashMap;

use bytes::Bytes;
use throng_channeld::link::Freshness;
use throng_channeld::link::section::{Section, begin_movement};
use throng_channeld::{Header, Message, Messages, message_type, put_message};

use super::choices::Choices;

pub(crate) fn run(input: &[u8]) {
    read(input);
    order(&mut Choices::new(input));
}

/// Read movement equals written movement, except the length of empty content.
fn read(input: &[u8]) {
    let section = Section::read(input);
    let Some(movement) = section.movement else { return };
    let mut written = Vec::new();
    begin_movement(&mut written, movement.after, section.is_wanted);
    written.extend_from_slice(movement.entries);
    assert_eq!(written, input);
    for message in Messages::new(Bytes::copy_from_slice(movement.entries)).flatten() {
        assert!(!Freshness::default().take(1, movement.after, &message), "nothing is subscribed to");
    }
}

/// Of each channel, movement is shown in order of packets, and none that is older than the state on the reliable lane.
fn order(choices: &mut Choices<'_>) {
    let mut fresh = Freshness::default();
    let (mut messages, mut newest) = (0, HashMap::new());
    while !choices.is_empty() {
        let message = update(u32::from(choices.byte() % 3));
        match choices.byte() % 4 {
            0 => {
                messages += 1;
                fresh.next_packet();
                fresh.note(&message);
                newest.insert(message.channel_id, (messages, 0));
            }
            _ => {
                let (packet, after) = (u64::from(choices.byte()), u32::from(choices.byte() % 8));
                let known = newest.get_mut(&message.channel_id);
                let expected = known.as_ref().is_some_and(|known| known.0 <= after && known.1 <= packet);
                assert_eq!(fresh.take(packet, after, &message), expected);
                if let Some(known) = known.filter(|_| expected) {
                    known.1 = packet;
                }
            }
        }
    }
}

fn update(channel_id: u32) -> Message {
    let mut entries = Vec::new();
    put_message(&mut entries, Header::new(channel_id, message_type::CHANNEL_DATA_UPDATE), &[]);
    Messages::new(entries.into()).next().expect("there is one").expect("it is sound")
}
