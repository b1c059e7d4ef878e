//! Owners of channels learn who has subscribed and who is gone, however many that are at once.

use std::collections::BTreeSet;

use super::stage::world::{ENTITY, flat, standing};
use super::stage::{Peer, Stage, every, settings};
use prost::Message as _;
use throng_channeld::proto::{
    ChannelType, CreateEntityChannelMessage, RemoveChannelMessage, SubscribedToChannelMessage,
    SubscribedToChannelResultMessage, UnsubscribedFromChannelMessage, UnsubscribedFromChannelResultMessage,
};
use throng_channeld::{Header, Message, message_type};
use throng_gateway_engine::port::{EndCause, Side};

const SOFT_BYTES: usize = 65_536;
const HARD_BYTES: usize = 1 << 20;

fn stage_with(more: &[&str]) -> Stage {
    let mut words = vec!["-dev", "-chs=hifi", "-cfsm=client_authoratative_fsm.json"];
    for limit in ["server_queue_soft_bytes=65536", "server_queue_hard_bytes=1048576", "max_backlog_ms=10000"] {
        words.extend(["-limit", limit]);
    }
    words.extend(more);
    Stage::new(settings(&words))
}

/// An owner of `rooms` channels, and `clients` that subscribe to all of them.
fn crowd(stage: &mut Stage, (clients, rooms): (u32, u32)) -> (Peer, Vec<u32>, Vec<Peer>) {
    let owner = stage.master();
    let rooms: Vec<u32> = (0..rooms).map(|_| stage.create(&owner, ChannelType::Subworld, None)).collect();
    let clients: Vec<Peer> = (0..clients).map(|number| stage.join_as(Side::Client, &format!("c{number}"))).collect();
    for client in &clients {
        for &channel_id in &rooms {
            let wanted = SubscribedToChannelMessage { conn_id: client.id, sub_options: Some(every(60_000)) };
            let (msg_type, body) = (message_type::SUB_TO_CHANNEL, wanted.encode_to_vec().into());
            let message = Message { channel_id, broadcast: 0, stub_id: 0, msg_type, body };
            stage.engine.receive(stage.now, owner.key, message);
        }
        stage.settle();
        stage.read(client);
    }
    stage.pass(2_000);
    stage.read(&owner);
    (owner, rooms, clients)
}

/// The channels and subscribers that an owner is told have ended, if it takes so many bytes at a time.
fn told_of_ends(stage: &mut Stage, owner: &Peer, bytes_per_step: usize) -> Vec<(u32, u32)> {
    let mut ends = Vec::new();
    for _ in 0..1_000 {
        owner.takes(bytes_per_step);
        stage.pass(20);
        let told = stage.read_type(owner, message_type::UNSUB_FROM_CHANNEL);
        let result = |message: &Message| message.decode::<UnsubscribedFromChannelResultMessage>().expect("a result");
        ends.extend(told.iter().map(|message| (message.channel_id, result(message).conn_id)));
        if told.is_empty() && owner.waiting() == 0 {
            break;
        }
    }
    ends
}

fn expect_each_once(ends: Vec<(u32, u32)>, rooms: &[u32], clients: &[Peer]) {
    let all: BTreeSet<(u32, u32)> =
        rooms.iter().flat_map(|&room| clients.iter().map(move |client| (room, client.id))).collect();
    assert_eq!(ends.len(), all.len(), "each once");
    assert_eq!(ends.into_iter().collect::<BTreeSet<_>>(), all);
}

#[test]
fn an_owner_learns_of_a_crowd_that_leaves_at_once_as_fast_as_it_reads() {
    let mut stage = stage_with(&[]);
    let (owner, rooms, clients) = crowd(&mut stage, (200, 300));
    owner.stop_reading();
    clients.iter().for_each(|client| stage.drop_connection(client, EndCause::PeerClosed));
    stage.pass(2_000);
    assert!(!owner.is_closed(), "it is not to blame for what its clients do");
    assert!(owner.waiting() < SOFT_BYTES + 1_000, "{} bytes wait in its queue", owner.waiting());
    // The rest is memory that is counted: 16 bytes for each notice.
    let kept = stage.engine.memory_bytes();
    let mut ends = told_of_ends(&mut stage, &owner, 20_000);
    owner.read_on();
    ends.extend(told_of_ends(&mut stage, &owner, 0));
    expect_each_once(ends, &rooms, &clients);
    stage.pass(2_000);
    let freed = kept - stage.engine.memory_bytes();
    assert!((900_000..1_200_000).contains(&freed), "{freed} bytes");
}

#[test]
fn a_client_that_stays_is_heard_while_its_owner_has_yet_to_learn_of_a_crowd_that_left() {
    let mut stage = stage_with(&["-limit", "server_queue_client_bytes=524288"]);
    let stays = stage.join_as(Side::Client, "stays");
    let (owner, _, clients) = crowd(&mut stage, (200, 300));
    owner.stop_reading();
    clients.iter().for_each(|client| stage.drop_connection(client, EndCause::PeerClosed));
    stage.pass(2_000);
    stage.say_bytes(&stays, Header::new(0, 101), vec![1]);
    assert_eq!(stage.refused("owner_queue"), 0);
    owner.read_on();
    stage.pass(2_000);
    assert_eq!(stage.read_type(&owner, 101).len(), 1);
}

#[test]
fn an_owner_learns_of_lost_clients_that_are_given_up_at_once_as_fast_as_it_reads() {
    let mut stage = stage_with(&["-limit", "client_resume_ms=3000"]);
    let (owner, rooms, clients) = crowd(&mut stage, (200, 300));
    clients.iter().for_each(|client| stage.drop_connection(client, EndCause::Lost));
    stage.pass(1_000);
    assert_eq!(stage.read_type(&owner, message_type::UNSUB_FROM_CHANNEL), [], "they may come back");
    owner.stop_reading();
    stage.pass(4_000);
    assert!(!owner.is_closed() && owner.waiting() < SOFT_BYTES + 1_000, "{} bytes wait", owner.waiting());
    owner.read_on();
    expect_each_once(told_of_ends(&mut stage, &owner, 0), &rooms, &clients);
}

#[test]
fn an_owner_that_reads_late_learns_who_was_subscribed_while_being_away() {
    let rules = r#"{"1": {"ACLSettings": {"Sub": 3, "Unsub": 3, "Remove": 3}}}"#;
    let words = ["-dev", "-chs=types.json", "-limit=client_resume_ms=60000", "-limit=server_queue_soft_bytes=65536"];
    let mut stage = Stage::new(super::stage::settings_with(&words, &[("types.json", rules)]));
    let (owner, rooms, _) = crowd(&mut stage, (1, 2));
    let asker = stage.server();
    let ada = stage.join_as(Side::Client, "ada");
    stage.drop_connection(&ada, EndCause::Lost);
    owner.stall(1 << 20);
    for &room in &rooms {
        stage.subscribe(&asker, &ada, room, every(40));
    }
    let leave = UnsubscribedFromChannelMessage { conn_id: ada.id };
    stage.say(&asker, Header::new(rooms[0], message_type::UNSUB_FROM_CHANNEL), &leave);
    assert_eq!(stage.read_type(&owner, message_type::SUB_TO_CHANNEL).len(), 0);
    owner.read_on();
    stage.pass(100);
    let told = stage.read_type(&owner, message_type::SUB_TO_CHANNEL);
    let told: Vec<(u32, SubscribedToChannelResultMessage)> =
        told.iter().map(|message| (message.channel_id, message.decode().expect("a result"))).collect();
    assert_eq!((told.len(), told[0].0, told[0].1.conn_id), (1, rooms[1], ada.id));
}

#[test]
fn an_owner_of_what_everybody_sees_is_told_of_everybody_as_fast_as_it_reads() {
    let cut = flat([1, 1], [1, 1], 0);
    let mut stage = Stage::world(cut, &["-limit", "server_queue_soft_bytes=4096"]);
    let owner = stage.spatial_servers(cut).remove(0);
    let clients: Vec<Peer> = (0..500).map(|number| stage.join_as(Side::Client, &format!("c{number}"))).collect();
    stage.read(&owner);
    owner.stop_reading();
    // Another server makes it: the owner of its cell is told by the gateway.
    let maker = stage.join_as(Side::Server, "maker");
    let create = CreateEntityChannelMessage {
        entity_id: ENTITY,
        is_well_known: true,
        data: Some(standing([5.0, 0.0, 5.0])),
        ..Default::default()
    };
    stage.say(&maker, Header::new(0, message_type::CREATE_ENTITY_CHANNEL), &create);
    stage.pass(100);
    assert!(owner.waiting() < 8_192, "{} bytes wait", owner.waiting());
    owner.read_on();
    stage.pass(1_000);
    let told = stage.read_type(&owner, message_type::SUB_TO_CHANNEL);
    let told: BTreeSet<u32> = told
        .iter()
        .filter(|message| message.channel_id == ENTITY)
        .map(|message| message.decode::<SubscribedToChannelResultMessage>().expect("a result"))
        .map(|result| result.conn_id)
        .collect();
    assert!(clients.iter().all(|client| told.contains(&client.id)), "{} of 500", told.len());
}

#[test]
fn notices_that_waited_come_in_order_and_none_of_a_channel_that_is_gone() {
    let mut stage = stage_with(&[]);
    let (owner, rooms, clients) = crowd(&mut stage, (1, 2));
    let other = stage.join_as(Side::Server, "other");
    let settled = |stage: &mut Stage, begins: bool, room: u32| match begins {
        true => stage.subscribe(&other, &clients[0], room, every(50)),
        false => {
            let leave = UnsubscribedFromChannelMessage { conn_id: clients[0].id };
            stage.say(&other, Header::new(room, message_type::UNSUB_FROM_CHANNEL), &leave);
        }
    };
    owner.stall(SOFT_BYTES);
    for begins in [false, true, false, true] {
        settled(&mut stage, begins, rooms[0]);
    }
    settled(&mut stage, false, rooms[1]);
    let remove = RemoveChannelMessage { channel_id: rooms[1] };
    stage.say(&owner, Header::new(0, message_type::REMOVE_CHANNEL), &remove);
    stage.read(&owner);
    owner.read_on();
    stage.pass(100);
    let told: Vec<(u32, u32)> =
        stage.read(&owner).iter().map(|message| (message.channel_id, message.msg_type)).collect();
    let (begun, ended) = (message_type::SUB_TO_CHANNEL, message_type::UNSUB_FROM_CHANNEL);
    assert_eq!(told, [ended, begun, ended, begun].map(|msg_type| (rooms[0], msg_type)));
}

#[test]
fn notices_that_wait_are_bounded_and_what_is_left_out_is_counted() {
    let mut stage = stage_with(&["-limit", "server_queue_hard_bytes=65536"]);
    let (owner, _, clients) = crowd(&mut stage, (100, 100));
    owner.stall(SOFT_BYTES);
    clients.iter().for_each(|client| stage.drop_connection(client, EndCause::PeerClosed));
    stage.pass(1_000);
    assert!(!owner.is_closed());
    assert_eq!(stage.refused("owner_notices"), 10_000 - 65_536 / 16);
    owner.read_on();
    assert_eq!(told_of_ends(&mut stage, &owner, 0).len(), 65_536 / 16);
}

#[test]
fn an_owner_that_reads_slowly_stays_and_one_that_reads_nothing_is_lost() {
    for reads in [true, false] {
        let mut stage = stage_with(&[]);
        let (owner, _, clients) = crowd(&mut stage, (200, 300));
        owner.stop_reading();
        clients.iter().for_each(|client| stage.drop_connection(client, EndCause::PeerClosed));
        for _ in 0..15 {
            owner.takes(if reads { 10_000 } else { 0 });
            stage.pass(1_000);
        }
        assert_eq!(owner.is_closed(), !reads);
        assert!(owner.waiting() < HARD_BYTES);
    }
}
