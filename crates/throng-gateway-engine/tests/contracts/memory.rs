//! The memory of a removed channel.

use throng_channeld::proto::{Any, ChannelType, RemoveChannelMessage};
use throng_channeld::{Header, message_type};

use crate::counting::held_bytes;
use crate::stage;
use crate::state_support::message;

#[test]
fn a_removed_channel_gives_its_memory_back_at_once() {
    let mut stage = stage::Stage::new(stage::settings(&["-dev", "-chs=hifi"]));
    let owner = stage.server();
    let text = "x".repeat(20_000);
    let value = (1..100).fold(message(), |wire, key| wire.entry(1, key, message().text(8, &text)));
    let data = Any { type_url: "type.googleapis.com/game.World".into(), value: value.0.into() };
    let room = stage.create(&owner, ChannelType::Subworld, None);
    let keep = stage.create(&owner, ChannelType::Subworld, None);
    for channel in [room, keep] {
        stage.update(&owner, channel, data.clone());
    }
    stage.pass(2_000);
    stage.read(&owner);
    let (held, said) = (held_bytes(), stage.engine.state_bytes());
    stage.say(&owner, Header::new(0, message_type::REMOVE_CHANNEL), &RemoveChannelMessage { channel_id: room });
    let freed = held - held_bytes();
    assert!(freed > 1_900_000, "{freed} bytes are free");
    assert!(said - stage.engine.state_bytes() > 1_900_000, "and are counted as free");
}
