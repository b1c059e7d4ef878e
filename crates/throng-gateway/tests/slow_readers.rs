//! Clients that take less than there is: when they read on they get the newest state soon, over every transport on which
//! the gateway itself keeps what was not taken.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use throng_channeld::client::{Client, ClientOptions};
use throng_channeld::link::LinkClient;
use throng_channeld::proto::{
    Any, AuthMessage, ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType, CreateChannelMessage,
    CreateChannelResultMessage, SubscribedToChannelMessage,
};
use throng_channeld::{Header, Message, message_type};
use throng_gateway::auth::AcceptAll;
use throng_gateway::serve::{Gateway, LinkOptions, Transport};

use crate::serving::kcp::KcpClient;
use crate::serving::{LINK_KEY, bare, soon, token};

const UPDATES: u32 = 150;
const UPDATE_BYTES: usize = 20_000;
/// The engine's bound, with what a path and a socket hold. All updates together are ten times as much.
const STALE_BYTES_MAX: usize = 300_000;

/// A large state with a number in it.
fn state(number: u32) -> Any {
    let text = format!("{number:0width$}", width = UPDATE_BYTES);
    Any::pack(&AuthMessage { player_identifier_token: text, ..Default::default() })
}

fn number(message: &Message) -> Option<u32> {
    if message.msg_type != message_type::CHANNEL_DATA_UPDATE {
        return None;
    }
    let update: ChannelDataUpdateMessage = message.decode().expect("an update");
    let state = <AuthMessage as prost::Message>::decode(update.data.expect("data").value).expect("its type");
    Some(state.player_identifier_token.parse().expect("a number"))
}

/// A world server with one channel.
struct World {
    server: Client,
    channel: u32,
}

impl World {
    fn new(gateway: &Gateway) -> World {
        let mut server = Client::connect(gateway.addresses()[0], ClientOptions::default()).expect("the door is open");
        server.authenticate("world", "", soon()).expect("servers are let in");
        let mut channel = 0;
        for kind in [ChannelType::Global, ChannelType::Test] {
            let create = CreateChannelMessage { channel_type: kind.into(), data: Some(state(0)), ..Default::default() };
            server.send(Header::new(0, message_type::CREATE_CHANNEL), &create).expect("connected");
            let created = server.wait_for(message_type::CREATE_CHANNEL, soon()).expect("it is made");
            channel = created.decode::<CreateChannelResultMessage>().expect("an answer").channel_id;
        }
        World { server, channel }
    }

    fn subscribe(&mut self, conn_id: u32) {
        let sub_options = Some(ChannelSubscriptionOptions { fan_out_interval_ms: Some(10), ..Default::default() });
        let subscribe = SubscribedToChannelMessage { conn_id, sub_options };
        self.server.send(Header::new(self.channel, message_type::SUB_TO_CHANNEL), &subscribe).expect("connected");
    }

    /// Changes all of the state again and again.
    fn write(&mut self) {
        for number in 1..=UPDATES {
            let update = ChannelDataUpdateMessage { data: Some(state(number)), context_conn_id: 0 };
            self.server.send(Header::new(self.channel, message_type::CHANNEL_DATA_UPDATE), &update).expect("connected");
            sleep(Duration::from_millis(10));
        }
    }
}

/// Reads until the newest state comes, and says how many bytes of older ones came before.
fn stale_bytes(mut next: impl FnMut() -> Option<Message>) -> usize {
    let deadline = soon();
    let mut updates = 0;
    loop {
        assert!(Instant::now() < deadline, "the newest state has not come after {updates} updates");
        match next().as_ref().and_then(number) {
            Some(UPDATES) => return updates * UPDATE_BYTES,
            Some(_) => updates += 1,
            None => {}
        }
    }
}

/// Waits until the client has received something, lets the world write all its updates, and checks the results.
fn is_told_the_newest_soon(world: &mut World, mut poll: impl FnMut() -> Option<Message>) {
    while poll().as_ref().and_then(number).is_none() {}
    world.write();
    let stale = stale_bytes(poll);
    println!("{stale} bytes of old state came first");
    assert!(stale <= STALE_BYTES_MAX, "{stale} bytes of old state came first");
}

/// A part of a test of `beside`.
pub(crate) fn the_link_gives_a_slow_reader_the_newest_state() {
    let gateway = bare(Transport::Link(LinkOptions::new(LINK_KEY)), &[], Arc::new(AcceptAll), |_| {});
    let mut world = World::new(&gateway);
    let mut client =
        LinkClient::connect_with(token(gateway.addresses()[1], 1), false, soon()).expect("the door is open");
    client.authenticate("slow", "", soon()).expect("everybody is let in");
    world.subscribe(client.connection_id());
    let poll = || client.poll(Instant::now() + Duration::from_millis(20)).expect("connected");
    is_told_the_newest_soon(&mut world, poll);
    gateway.shut_down();
}

/// A part of a test of `beside`.
pub(crate) fn kcp_gives_a_slow_reader_the_newest_state() {
    let gateway = bare(Transport::Kcp, &[], Arc::new(AcceptAll), |_| {});
    let mut world = World::new(&gateway);
    let mut client = KcpClient::connect(gateway.addresses()[1], 7, usize::MAX);
    world.subscribe(client.join());
    let poll = || {
        client.turn();
        (!client.received.is_empty()).then(|| client.received.remove(0))
    };
    is_told_the_newest_soon(&mut world, poll);
    gateway.shut_down();
}
