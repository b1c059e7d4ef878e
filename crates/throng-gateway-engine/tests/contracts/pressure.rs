//! Behaviour while little memory is left: refusals, states that stay as they are, and the order of disconnections.

use crate::stage::{Peer, Stage, every, open_settings, settings};
use prost::Message as _;
use throng_channeld::proto::unrealpb::{SpatialChannelData, SpatialEntityState, UnrealObjectRef};
use throng_channeld::proto::{
    Any, ChannelDataUpdateMessage, ChannelType, CreateChannelMessage, SubscribedToChannelMessage,
};
use throng_channeld::{Header, message_type};
use throng_gateway_engine::Pressure;
use throng_gateway_engine::port::Side;

/// One object with a name of so many bytes, of a type that the gateway knows.
fn object(id: u32, bytes: usize) -> Any {
    let reference = UnrealObjectRef { class_path: Some("x".repeat(bytes)), ..Default::default() };
    let entity = SpatialEntityState { obj_ref: Some(reference), ..Default::default() };
    Any::pack(&SpatialChannelData { entities: [(id, entity)].into() })
}

/// The same as a type that the gateway does not know.
fn unknown(object: Any) -> Any {
    Any { type_url: "type.googleapis.com/game.World".into(), ..object }
}

const KINDS: [fn(Any) -> Any; 2] = [|object| object, unknown];

/// The objects that a newcomer is told.
fn told(stage: &mut Stage, owner: &Peer, room: u32) -> usize {
    let newcomer = stage.client();
    stage.subscribe(owner, &newcomer, room, every(20));
    stage.pass(100);
    let updates = stage.read_type(&newcomer, message_type::CHANNEL_DATA_UPDATE);
    let data = updates.iter().map(|update| update.decode::<ChannelDataUpdateMessage>().expect("an update"));
    let values = data.map(|update| update.data.expect("data").value);
    values.map(|value| SpatialChannelData::decode(value).expect("objects").entities.len()).sum()
}

#[test]
fn under_pressure_a_state_stays_as_large_as_it_is_however_many_small_updates_come() {
    for kind in KINDS {
        let mut stage = Stage::new(open_settings());
        let (master, client) = (stage.master(), stage.client());
        let room = stage.create(&client, ChannelType::Test, None);
        (1..=100).for_each(|id| stage.update(&client, room, kind(object(id, 20))));
        stage.engine.set_pressure(Pressure::Clients);
        let before = stage.engine.state_bytes();
        (1_000..6_000).for_each(|id| stage.update(&client, room, kind(object(id, 1))));
        assert_eq!(stage.engine.state_bytes(), before);
        assert_eq!((stage.refused("memory"), stage.refused("values_dropped")), (5_000, 0));
        // Updates that only replace something are accepted.
        (1..=100).for_each(|id| stage.update(&client, room, kind(object(id, 20))));
        assert_eq!((stage.refused("memory"), stage.engine.state_bytes()), (5_000, before));
        stage.engine.set_pressure(Pressure::Nobody);
        assert_eq!(told(&mut stage, &master, room), 100, "nothing is lost");
    }
}

#[test]
fn a_client_whose_share_is_full_keeps_what_it_has_and_gets_no_more() {
    for kind in KINDS {
        let mut stage = Stage::new(settings(&[
            "-dev",
            "-cfsm=client_authoratative_fsm.json",
            "-limit",
            "max_client_state_bytes=65536",
        ]));
        let (master, client) = (stage.master(), stage.client());
        let empty = stage.engine.state_bytes();
        let room = stage.create(&client, ChannelType::Test, None);
        (1..=10_000).for_each(|id| stage.update(&client, room, kind(object(id, 1))));
        let bytes = stage.engine.state_bytes() - empty;
        assert!(bytes < 65_536 * 5 / 4, "{bytes} bytes");
        let refused = stage.refused("client_state_bytes");
        assert!(refused > 5_000 && stage.refused("values_dropped") == 0, "{refused} refused");
        assert_eq!(told(&mut stage, &master, room) as u64, 10_000 - refused, "what was accepted is there");
    }
}

#[test]
fn objects_can_be_removed_while_there_is_no_room_and_make_room() {
    let mut stage = Stage::new(open_settings());
    let client = stage.client();
    stage.create_with_removals(&client);
    let room = 1;
    (1..=100).for_each(|id| stage.update(&client, room, object(id, 500)));
    stage.engine.set_pressure(Pressure::Everybody);
    let before = stage.engine.state_bytes();
    for id in 1..=100 {
        let gone = SpatialEntityState { removed: true, ..Default::default() };
        stage.update(&client, room, Any::pack(&SpatialChannelData { entities: [(id, gone)].into() }));
    }
    assert_eq!(stage.refused("memory"), 0);
    let after = stage.engine.state_bytes();
    assert!(after + 50_000 < before, "{after} after {before}");
}

#[test]
fn while_little_is_left_clients_get_nothing_new_and_world_servers_go_on() {
    let mut stage = Stage::new(open_settings());
    let (master, client) = (stage.master(), stage.client());
    let room = stage.create(&master, ChannelType::Test, Some(object(1, 100)));
    let channels = |stage: &Stage| stage.engine.occupancy().channels.values().sum::<usize>();
    let create = CreateChannelMessage { channel_type: ChannelType::Test.into(), ..Default::default() };
    let subscribe = SubscribedToChannelMessage { conn_id: client.id, sub_options: Some(every(20)) };
    let wishes = |stage: &mut Stage, from: &Peer| {
        let (before, refused) = (channels(stage), stage.refused("memory"));
        stage.say(from, Header::new(0, message_type::CREATE_CHANNEL), &create);
        stage.say(from, Header::new(room, message_type::SUB_TO_CHANNEL), &subscribe);
        (channels(stage) - before, stage.refused("memory") - refused)
    };
    for (pressure, of_client, of_server) in
        [(Pressure::Clients, (0, 2), (1, 0)), (Pressure::Everybody, (0, 2), (0, 2)), (Pressure::Nobody, (1, 0), (1, 0))]
    {
        stage.engine.set_pressure(pressure);
        assert_eq!(wishes(&mut stage, &client), of_client, "a client under {pressure:?}");
        assert_eq!(wishes(&mut stage, &master), of_server, "a server under {pressure:?}");
    }
    // A message that needs no memory still arrives.
    stage.engine.set_pressure(Pressure::Everybody);
    stage.read(&master);
    stage.say_bytes(&client, Header::new(0, 100), vec![1]);
    assert_eq!(stage.read_type(&master, 100).len(), 1);
}

#[test]
fn those_for_whom_most_waits_are_ended_first_and_servers_last() {
    let mut stage = Stage::new(open_settings());
    let server = stage.server();
    let clients: Vec<Peer> = (0..4).map(|number| stage.join_as(Side::Client, &format!("c{number}"))).collect();
    server.stall(3 << 20);
    let waiting = [100_000, 300_000, 200_000, 1_000];
    clients.iter().zip(waiting).for_each(|(client, bytes)| client.stall(bytes));
    let closed = |stage: &mut Stage| {
        stage.settle();
        let of_clients: Vec<bool> = clients.iter().map(Peer::is_closed).collect();
        (of_clients, server.is_closed())
    };
    assert_eq!(stage.engine.shed(stage.now, 250_000), 1);
    assert_eq!(closed(&mut stage), (vec![false, true, false, false], false));
    assert_eq!(stage.engine.shed(stage.now, 200_001), 2);
    assert_eq!(closed(&mut stage), (vec![true, true, true, false], false));
    assert_eq!(stage.engine.shed(stage.now, 1), 1, "for want of clients a server");
    assert_eq!(closed(&mut stage), (vec![true, true, true, false], true));
    assert_eq!(stage.engine.shed(stage.now, 1), 0, "nothing waits for who is left");
    assert_eq!(stage.refused("memory"), 4);
}

#[test]
fn once_enough_is_free_nobody_else_is_ended() {
    let mut stage = Stage::new(open_settings());
    let master = stage.master();
    let late: Vec<Peer> = (0..6).map(|number| stage.join_as(Side::Client, &format!("c{number}"))).collect();
    for client in &late {
        let room = stage.create(&master, ChannelType::Test, None);
        (1..=80).for_each(|id| stage.update(&master, room, object(id, 50_000)));
        client.stop_reading();
        stage.subscribe(&master, client, room, every(20));
    }
    stage.pass(2_000);
    let limit = stage.engine.memory_bytes() - 1;
    let mut ended = 0;
    // The engine's thread does the same, for half a second.
    for _ in 0..25 {
        let surplus = stage.engine.memory_bytes().saturating_sub(limit);
        if surplus > 0 {
            ended += stage.engine.shed(stage.now, surplus);
        }
        stage.pass(20);
    }
    assert_eq!(ended, 1);
}

#[test]
fn what_waits_for_who_is_ended_for_lack_of_memory_is_thrown_away_at_once() {
    let mut stage = Stage::new(open_settings());
    let (stuck, kicked) = (stage.client(), stage.client());
    [&stuck, &kicked].into_iter().for_each(|client| client.stall(100_000));
    assert!(stage.engine.kick(stage.now, kicked.id));
    assert_eq!(stage.engine.shed(stage.now, 1), 1);
    stage.settle();
    let is_abandoned = |peer: &Peer| peer.line.lock().unwrap().is_abandoned;
    assert_eq!((is_abandoned(&stuck), is_abandoned(&kicked)), (true, false));
    assert!(stuck.is_closed() && kicked.is_closed());
}
