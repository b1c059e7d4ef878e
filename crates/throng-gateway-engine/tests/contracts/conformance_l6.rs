//! Level 6: who was lost comes back: world servers after a crash, clients after their network broke.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::stage::world::{Cut, ENTITY, FIRST, forwarded, middle, of_type, sphere, standing};
use super::stage::{Peer, Stage, every, open_settings};
use prost::Message as _;
use throng_channeld::proto::unrealpb::{
    ChannelRecoveryData, SpatialChannelData, SpatialEntityState, SpawnObjectMessage, UnrealObjectRef,
};
use throng_channeld::proto::{
    Any, ChannelDataMergeOptions, ChannelDataRecoveryMessage, ChannelDataUpdateMessage, ChannelSubscriptionOptions,
    ChannelType, CreateChannelMessage, CreateChannelResultMessage, DisconnectMessage, RemoveChannelMessage,
    SubscribedToChannelMessage, SubscribedToChannelResultMessage, TransformState, UnsubscribedFromChannelMessage,
    UnsubscribedFromChannelResultMessage,
};
use throng_channeld::{Header, Message, message_type};
use throng_gateway_engine::port::{AuthVerdict, EndCause, Side};

const TWO: Cut = Cut { cells: [4, 1, 0], servers: [2, 1, 0], border: 1 };

const RECOVERY: [&str; 2] = ["-scr", "-scrt=10000"];

fn recovered(messages: &[Message]) -> BTreeMap<u32, ChannelDataRecoveryMessage> {
    of_type::<ChannelDataRecoveryMessage>(messages, message_type::RECOVERY_CHANNEL_DATA).into_iter().collect()
}

fn x_of(data: Option<throng_channeld::proto::Any>) -> f32 {
    let state = TransformState::decode(data.expect("state").value).expect("a transform");
    state.position.expect("a position").x
}

/// Logs a server in under a name and returns everything that it received on the way.
fn come_back(stage: &mut Stage, side: Side, name: &str) -> (Peer, bool, Vec<Message>) {
    let mut peer = stage.connect(side);
    let auth = throng_channeld::proto::AuthMessage {
        player_identifier_token: name.into(),
        login_token: "new".into(),
        ..Default::default()
    };
    stage.say(&peer, Header::new(0, message_type::AUTH), &auth);
    let messages = stage.read(&peer);
    let answer: throng_channeld::proto::AuthResultMessage = messages[0].decode().expect("an answer");
    peer.id = answer.conn_id;
    (peer, answer.should_recover, messages)
}

#[test]
fn a_killed_server_comes_back_under_its_id_with_everything_and_the_clients_have_stayed() {
    let mut stage = Stage::world(TWO, &RECOVERY);
    let master = stage.master();
    let servers = stage.spatial_servers(TWO);
    let clients: Vec<Peer> = (0..20).map(|number| stage.join_as(Side::Client, &format!("c{number}"))).collect();
    for (number, client) in (0u32..).zip(&clients) {
        stage.set_interest(&servers[0], client, sphere(middle(1, 0), 30.0));
        stage.create_entity(&servers[0], FIRST + number % 2, ENTITY + number, Some(standing(middle(number % 2, 0))));
        let options = ChannelSubscriptionOptions { data_access: Some(2), ..every(50) };
        stage.subscribe(&servers[0], client, ENTITY + number, options);
    }
    let subscribed_ns = 1_000_000 * (stage.now.0 / 1_000 - 1_000_000);
    for step in 0..20u32 {
        for (number, client) in (0u32..).zip(&clients) {
            stage.walk(&servers[0], ENTITY + number, [(number % 2 * 10) as f32 + 1.0 + step as f32 / 10.0, 1.0, 5.0]);
            stage.say_bytes(client, Header::new(ENTITY + number, 102), vec![step as u8]);
        }
        stage.pass(33);
    }
    for client in &clients {
        stage.read(client);
    }
    // A process that is killed: its kernel closes the connection, without a close message.
    stage.drop_connection(&servers[0], EndCause::Lost);
    for (number, client) in (0u32..).zip(&clients) {
        let lost: Vec<u32> =
            stage.read_type(client, message_type::CHANNEL_OWNER_LOST).iter().map(|m| m.channel_id).collect();
        assert!(lost.contains(&(ENTITY + number)) && lost.contains(&FIRST), "{lost:?}");
    }
    assert_eq!(stage.audit(), 20);
    // Nobody can take its place; clients that may still write do, and one walks over to the other server.
    let other = stage.spatial_server("another");
    assert_eq!(stage.refused("spatial_slots_taken"), 1);
    for (number, client) in (0u32..).zip(&clients) {
        stage.say_bytes(client, Header::new(ENTITY + number, 102), vec![99]);
        stage.walk(client, ENTITY + number, [(number % 2 * 10) as f32 + 5.0, 1.0, 5.0]);
    }
    assert_eq!(stage.refused("no_owner"), 20, "what nobody can take is refused, and counted");
    stage.walk(&clients[7], ENTITY + 7, middle(2, 0));
    assert_eq!(stage.place_of(ENTITY + 7), Some((Some(servers[1].id), Some(FIRST + 2))));
    stage.pass(5_000);
    stage.audit();
    for client in &clients {
        assert!(!client.is_closed());
        stage.read(client);
    }

    let (back, should_recover, told) = come_back(&mut stage, Side::Server, "w0");
    assert_eq!((back.id, should_recover), (servers[0].id, true));
    let end = told.iter().position(|message| message.msg_type == message_type::RECOVERY_END).expect("an end");
    let last = told.iter().rposition(|m| m.msg_type == message_type::RECOVERY_CHANNEL_DATA).expect("channels");
    assert!(end > last);
    let channels = recovered(&told);
    for number in (0..20u32).filter(|&number| number != 7) {
        let channel = channels.get(&(ENTITY + number)).expect("each that it owned");
        assert_eq!((channel.owner_conn_id, channel.channel_type), (back.id, ChannelType::Entity.into()));
        assert_eq!(x_of(channel.channel_data.clone()), (number % 2 * 10) as f32 + 5.0, "the newest state");
        assert_eq!(channel.sub_options.as_ref().expect("options").data_access, Some(2));
        assert_eq!(channel.sub_time as u64 / 1_000_000, subscribed_ns / 1_000_000, "when it subscribed at first");
    }
    assert_eq!(channels[&FIRST].owner_conn_id, back.id);
    assert_eq!(channels[&(FIRST + 2)].owner_conn_id, servers[1].id, "its border");
    let gone = channels.get(&(ENTITY + 7)).expect("it sees the border");
    assert_eq!((gone.owner_conn_id, gone.sub_options.as_ref().expect("options").data_access), (servers[1].id, Some(1)));
    stage.audit();
    for (number, client) in (0u32..).zip(&clients).filter(|&(number, _)| number != 7) {
        let back: Vec<u32> =
            stage.read_type(client, message_type::CHANNEL_OWNER_RECOVERED).iter().map(|m| m.channel_id).collect();
        assert!(back.contains(&(ENTITY + number)) && back.contains(&FIRST));
        stage.say_bytes(client, Header::new(ENTITY + number, 102), vec![100]);
    }
    assert_eq!(stage.read_type(&back, 102).len(), 19, "it is reached again");
    stage.walk(&back, ENTITY, [8.0, 1.0, 5.0]);
    stage.pass(100);
    assert_eq!(stage.updates::<TransformState>(&clients[0], ENTITY).last().expect("one").position.expect("it").x, 8.0);
    // It may ask for its cells again, and gets them.
    stage.ask_for_cells(&back);
    assert_eq!(stage.read_type(&back, message_type::CREATE_SPATIAL_CHANNEL).len(), 1);
    assert_eq!(stage.engine.counters().recovered, 1);
    let _ = (master, other);
}

#[test]
fn state_and_references_of_more_than_a_packet_are_all_there() {
    let mut stage = Stage::world(Cut { cells: [1, 1, 0], servers: [1, 1, 0], border: 0 }, &RECOVERY);
    let server = stage.spatial_server("only");
    let path = "x".repeat(400);
    for number in 0..300 {
        stage.create_entity(&server, FIRST, ENTITY + number, Some(standing(middle(0, 0))));
        let obj =
            UnrealObjectRef { net_guid: Some(ENTITY + number), class_path: Some(path.clone()), ..Default::default() };
        let spawn = SpawnObjectMessage { obj: Some(obj), ..Default::default() };
        let header = Header { channel_id: FIRST, broadcast: 8, stub_id: 0, msg_type: message_type::UNREAL_SPAWN };
        stage.say(&server, header, &forwarded(0, spawn.encode_to_vec()));
    }
    stage.drop_connection(&server, EndCause::Lost);
    let (_, should_recover, told) = come_back(&mut stage, Side::Server, "only");
    assert!(should_recover);
    let mut references = BTreeMap::new();
    for message in told.iter().filter(|message| message.channel_id == FIRST) {
        assert!(message.body.len() < 65_000, "{} bytes", message.body.len());
        if message.msg_type == message_type::RECOVERY_CHANNEL_DATA {
            let part: ChannelDataRecoveryMessage = message.decode().expect("a recovery message");
            if let Some(data) = part.recovery_data {
                let data = ChannelRecoveryData::decode(data.value).expect("references");
                references.extend(data.obj_refs);
            }
        }
    }
    assert_eq!(references.len(), 300);
    assert!(references.iter().all(|(id, object)| object.net_guid == Some(*id) && object.class_path() == path));
    let updates = told.iter().filter(|m| m.channel_id == FIRST && m.msg_type == message_type::CHANNEL_DATA_UPDATE);
    assert!(updates.count() > 0, "the list of 300 with their references does not fit into one message");
}

#[test]
fn notices_of_loss_and_return_go_out_only_where_the_settings_say_so() {
    let mut stage =
        Stage::new(super::stage::settings(&["-dev", "-cfsm=client_authoratative_fsm.json", "-chs=ue", "-scr"]));
    let server = stage.join_as(Side::Server, "rooms");
    let create = CreateChannelMessage { channel_type: ChannelType::Global.into(), ..Default::default() };
    stage.say(&server, Header::new(0, message_type::CREATE_CHANNEL), &create);
    stage.read(&server);
    let quiet = stage.create(&server, ChannelType::Subworld, None);
    let client = stage.client();
    for channel in [0, quiet] {
        stage.subscribe(&server, &client, channel, every(50));
    }
    stage.read(&client);
    stage.drop_connection(&server, EndCause::Lost);
    stage.pass(60_000);
    let (_, _, _) = come_back(&mut stage, Side::Server, "rooms");
    let told: Vec<(u32, u32)> = stage.read(&client).iter().map(|m| (m.channel_id, m.msg_type)).collect();
    assert_eq!(told, [(0, message_type::CHANNEL_OWNER_LOST), (0, message_type::CHANNEL_OWNER_RECOVERED)]);
}

#[test]
fn a_server_that_replaces_a_lost_one_takes_over_its_entities() {
    for recovery in [&[][..], &RECOVERY[..]] {
        let mut stage = Stage::world(TWO, recovery);
        let servers = stage.spatial_servers(TWO);
        for number in 0..4 {
            let cell = number;
            let by = &servers[number as usize / 2];
            stage.create_entity(by, FIRST + cell, ENTITY + number, Some(standing(middle(cell, 0))));
        }
        let client = stage.client();
        stage.subscribe(&servers[0], &client, ENTITY, every(50));
        stage.read(&servers[1]);
        stage.drop_connection(&servers[0], EndCause::Lost);
        stage.audit();
        stage.walk(&servers[1], ENTITY + 2, middle(1, 0));
        stage.audit();
        stage.pass(10_100);
        let is_left = |id| stage.engine.entities().any(|known| known.channel == id);
        assert!(is_left(ENTITY) && is_left(ENTITY + 1), "entities outlive their server");
        stage.read(&client);
        stage.read(&servers[1]);
        let heir = stage.spatial_server("heir");
        let cells: Vec<u32> =
            stage.engine.cells().filter(|cell| cell.owner == Some(heir.id)).map(|cell| cell.channel - FIRST).collect();
        assert_eq!(cells.len(), 2);
        for number in 0..3 {
            assert_eq!(stage.place_of(ENTITY + number).expect("it exists").0, Some(heir.id), "{number}");
        }
        stage.audit();
        assert_eq!(stage.read_type(&client, message_type::CHANNEL_OWNER_RECOVERED).len(), 1);
        let ready = stage.read_type(&servers[1], message_type::SPATIAL_CHANNELS_READY).len();
        assert_eq!(ready, 1, "all are there again");
        stage.say_bytes(&client, Header::new(ENTITY, 102), vec![1]);
        assert_eq!(stage.read_type(&heir, 102).len(), 1);
        // The one that was given up comes too late.
        let (late, should_recover, _) = come_back(&mut stage, Side::Server, "w0");
        assert!(!should_recover && late.id != servers[0].id);
    }
}

#[test]
fn a_new_owner_that_did_not_see_the_entity_gets_its_whole_state() {
    let cut = Cut { border: 0, ..TWO };
    let mut stage = Stage::world(cut, &[]);
    let servers = stage.spatial_servers(cut);
    stage.create_entity(&servers[0], FIRST, ENTITY, Some(standing(middle(0, 0))));
    // Its maker owns it, not the owner of the cell, and is gone.
    let passer = stage.join_as(Side::Server, "passer");
    stage.create_entity(&passer, FIRST + 3, ENTITY + 1, Some(standing(middle(3, 0))));
    stage.drop_connection(&passer, EndCause::Lost);
    stage.drop_connection(&servers[0], EndCause::Lost);
    let heir = stage.spatial_server("heir");
    stage.audit();
    stage.pass(200);
    for (new_owner, entity, column) in [(&heir, ENTITY, 0), (&servers[1], ENTITY + 1, 3)] {
        assert_eq!(stage.place_of(entity).expect("it exists").0, Some(new_owner.id));
        let told = stage.updates::<TransformState>(new_owner, entity);
        let places: Vec<f32> = told.into_iter().map(|state| state.position.expect("a position").x).collect();
        assert_eq!(places, [middle(column, 0)[0]], "the whole state, once");
    }
}

#[test]
fn a_new_owner_that_sees_the_entity_does_not_get_it_twice() {
    let mut stage = Stage::world(TWO, &[]);
    let servers = stage.spatial_servers(TWO);
    let passer = stage.join_as(Side::Server, "passer");
    stage.create_entity(&passer, FIRST + 3, ENTITY, Some(standing(middle(3, 0))));
    stage.subscribe(&servers[1], &servers[1], ENTITY, every(50));
    stage.pass(200);
    assert_eq!(stage.updates::<TransformState>(&servers[1], ENTITY).len(), 1);
    stage.drop_connection(&passer, EndCause::Lost);
    assert_eq!(stage.place_of(ENTITY).expect("it exists").0, Some(servers[1].id));
    stage.pass(200);
    assert_eq!(stage.updates::<TransformState>(&servers[1], ENTITY).len(), 0);
}

#[test]
fn what_went_to_another_owner_is_not_taken_back_not_even_while_that_one_is_lost() {
    let cut = Cut { border: 0, ..TWO };
    let mut stage = Stage::world(cut, &RECOVERY);
    let servers = stage.spatial_servers(cut);
    let player = stage.client();
    stage.create_entity(&servers[0], FIRST + 1, ENTITY, Some(standing(middle(1, 0))));
    stage.subscribe(&servers[0], &player, ENTITY, ChannelSubscriptionOptions { data_access: Some(2), ..every(50) });
    stage.drop_connection(&servers[0], EndCause::Lost);
    stage.walk(&player, ENTITY, middle(2, 0));
    assert_eq!(stage.place_of(ENTITY).expect("it exists").0, Some(servers[1].id));
    stage.drop_connection(&servers[1], EndCause::Lost);
    stage.audit();
    let (first, _, told) = come_back(&mut stage, Side::Server, "w0");
    assert!(!recovered(&told).contains_key(&ENTITY), "it does not see it there");
    assert_eq!(stage.place_of(ENTITY), Some((None, Some(FIRST + 2))));
    stage.audit();
    let (second, _, told) = come_back(&mut stage, Side::Server, "w1");
    assert_eq!(recovered(&told)[&ENTITY].owner_conn_id, second.id);
    assert_ne!(first.id, second.id);
    stage.audit();
}

#[test]
fn a_world_that_becomes_complete_while_a_server_is_away_is_opened_when_it_is_back() {
    let mut stage = Stage::world(TWO, &RECOVERY);
    let first = stage.spatial_server("w0");
    stage.drop_connection(&first, EndCause::Lost);
    let second = stage.spatial_server("w1");
    assert_eq!(stage.read_type(&second, message_type::SPATIAL_CHANNELS_READY).len(), 0);
    let (_, _, told) = come_back(&mut stage, Side::Server, "w0");
    assert!(told.iter().any(|message| message.msg_type == message_type::SPATIAL_CHANNELS_READY));
    assert_eq!(stage.read_type(&second, message_type::SPATIAL_CHANNELS_READY).len(), 1);
}

#[test]
fn a_client_whose_network_broke_goes_on_where_it_was() {
    let settings =
        super::stage::settings(&["-dev", "-cfsm=client_authoratative_fsm.json", "-limit", "client_resume_ms=5000"]);
    let mut stage = Stage::new(settings);
    let owner = stage.master();
    let ada = stage.join_as(Side::Client, "ada");
    let room = stage.create(&owner, ChannelType::Subworld, Some(standing([1.0, 1.0, 1.0])));
    stage.subscribe(&owner, &ada, room, every(40));
    stage.pass(100);
    stage.read(&owner);
    stage.drop_connection(&ada, EndCause::Lost);
    assert_eq!(stage.read(&owner).len(), 0, "it may come back: nobody is told");
    stage.update(&owner, room, standing([2.0, 1.0, 1.0]));
    stage.pass(2_000);
    let (back, should_recover, told) = come_back(&mut stage, Side::Client, "ada");
    // It starts again, under its id, without waiting for RECOVERY_END, which is for servers.
    assert_eq!((back.id, should_recover), (ada.id, false));
    let in_room: Vec<u32> = told.iter().filter(|m| m.channel_id == room).map(|m| m.msg_type).collect();
    assert_eq!(in_room, [message_type::UNSUB_FROM_CHANNEL, message_type::SUB_TO_CHANNEL]);
    assert!(told.iter().all(|message| message.msg_type != message_type::RECOVERY_END));
    stage.pass(100);
    let states = stage.updates::<TransformState>(&back, room);
    assert_eq!(states.len(), 1, "everything, once");
    assert_eq!(states[0].position.expect("it").x, 2.0);
    stage.update(&owner, room, standing([3.0, 1.0, 1.0]));
    stage.pass(100);
    assert_eq!(stage.updates::<TransformState>(&back, room).len(), 1);
    stage.say_bytes(&back, Header::new(room, 150), vec![1]);
    assert_eq!(stage.read_type(&owner, 150).len(), 1);
    // The next time it does not come back in time.
    stage.drop_connection(&back, EndCause::Lost);
    stage.pass(5_100);
    let told = stage.read(&owner);
    let left: Vec<(u32, UnsubscribedFromChannelResultMessage)> = of_type(&told, message_type::UNSUB_FROM_CHANNEL);
    assert_eq!((left[0].0, left[0].1.conn_id), (room, ada.id));
    let (late, ..) = come_back(&mut stage, Side::Client, "ada");
    assert!(late.id != ada.id);
}

#[test]
fn what_a_client_has_created_counts_when_it_is_back_as_before() {
    let mut stage = Stage::new(super::stage::settings(&[
        "-dev",
        "-chs=hifi",
        "-cfsm=client_authoratative_fsm.json",
        "-limit=client_resume_ms=5000",
        "-limit=max_client_channels=2",
        "-limit=max_client_state_bytes=65536",
    ]));
    let master = stage.master();
    let mut ada = stage.join_as(Side::Client, "ada");
    let rooms = [(); 2].map(|()| stage.create(&ada, ChannelType::Private, None));
    let create = CreateChannelMessage { channel_type: ChannelType::Private.into(), ..Default::default() };
    let header = Header::new(0, message_type::CREATE_CHANNEL);
    let some = |version: u32| {
        let class_path = Some(format!("{version}{}", "x".repeat(20_000)));
        let object = UnrealObjectRef { net_guid: Some(version), class_path, ..Default::default() };
        let state = SpatialEntityState { obj_ref: Some(object), ..Default::default() };
        Any::pack(&SpatialChannelData { entities: [(version, state)].into() })
    };
    for time in 0..4 {
        assert_eq!(stage.answer::<CreateChannelResultMessage>(&ada, header, &create), None, "{time}");
        stage.update(&ada, rooms[0], some(time));
        stage.drop_connection(&ada, EndCause::Lost);
        ada = come_back(&mut stage, Side::Client, "ada").0;
    }
    assert_eq!((stage.refused("channels_created"), stage.refused("client_state_bytes")), (4, 1));
    for room in rooms {
        stage.say(&ada, Header::new(0, message_type::REMOVE_CHANNEL), &RemoveChannelMessage { channel_id: room });
    }
    stage.read(&ada);
    let again = [(); 2].map(|()| stage.create(&ada, ChannelType::Private, Some(some(9))));
    assert_eq!(stage.engine.occupancy().channels[&(ChannelType::Private as u32)], 2, "{again:?}");
    let _ = master;
}

#[test]
fn a_server_takes_a_channel_from_a_client_that_is_away() {
    let rules = r#"{"1": {"ACLSettings": {"Sub": 2, "Unsub": 2, "Remove": 2}}}"#;
    let words = ["-dev", "-cfsm=client_authoratative_fsm.json", "-chs=types.json", "-limit=client_resume_ms=5000"];
    let settings = super::stage::settings_with(&words, &[("types.json", rules)]);
    let mut stage = Stage::new(settings);
    let (owner, other) = (stage.master(), stage.server());
    let ada = stage.join_as(Side::Client, "ada");
    let room = stage.create(&owner, ChannelType::Subworld, Some(standing([1.0, 1.0, 1.0])));
    let own = stage.create(&ada, ChannelType::Subworld, None);
    stage.subscribe(&owner, &ada, room, every(40));
    stage.drop_connection(&ada, EndCause::Lost);
    let leave = UnsubscribedFromChannelMessage { conn_id: ada.id };
    stage.ask(&other, Header::new(room, message_type::UNSUB_FROM_CHANNEL), &leave);
    assert_eq!(stage.refused("not_allowed"), 1, "who may not take it from one that is there may not now");
    for channel in [room, own] {
        let header = Header::new(channel, message_type::UNSUB_FROM_CHANNEL);
        let left: UnsubscribedFromChannelResultMessage = stage.answer(&owner, header, &leave).expect("a result");
        assert_eq!((left.conn_id, left.channel_type), (ada.id, ChannelType::Subworld.into()));
        assert!(stage.answer::<UnsubscribedFromChannelResultMessage>(&owner, header, &leave).is_none());
    }
    let (back, _, told) = come_back(&mut stage, Side::Client, "ada");
    assert_eq!(back.id, ada.id);
    let of = |channel: u32| told.iter().filter(move |m| m.channel_id == channel).map(|m| m.msg_type);
    for channel in [room, own] {
        assert_eq!(of(channel).collect::<Vec<_>>(), [message_type::UNSUB_FROM_CHANNEL], "its copy ends");
    }
    stage.update(&owner, room, standing([2.0, 1.0, 1.0]));
    stage.pass(100);
    assert_eq!(stage.updates::<TransformState>(&back, room), []);
    stage.say_bytes(&owner, Header::new(own, 150), vec![1]);
    assert_eq!(stage.read_type(&back, 150).len(), 0, "it is not the owner any more");
}

#[test]
fn a_client_that_is_away_is_subscribed_and_comes_back_with_that() {
    let mut stage = Stage::new(super::stage::settings(&[
        "-dev",
        "-chs=ue",
        "-limit=client_resume_ms=5000",
        "-limit=max_client_subscriptions=4",
    ]));
    let (master, owner) = (stage.master(), stage.server());
    let ada = stage.join_as(Side::Client, "ada");
    let at = |x: f32| Some(standing([x, 1.0, 1.0]));
    let rooms: Vec<u32> = (0u8..6).map(|x| stage.create(&owner, ChannelType::Subworld, at(x.into()))).collect();
    let [before, removed, new, again, last, too_many] = rooms[..] else { unreachable!() };
    for room in [before, removed, again] {
        stage.subscribe(&owner, &ada, room, every(40));
    }
    stage.pass(100);
    stage.drop_connection(&ada, EndCause::Lost);
    stage.read(&owner);
    stage.say(&master, Header::new(0, message_type::REMOVE_CHANNEL), &RemoveChannelMessage { channel_id: removed });
    let leave = UnsubscribedFromChannelMessage { conn_id: ada.id };
    stage.ask(&master, Header::new(again, message_type::UNSUB_FROM_CHANNEL), &leave);
    let wanted = SubscribedToChannelMessage { conn_id: ada.id, sub_options: Some(every(60)) };
    for room in [new, again] {
        let header = Header::new(room, message_type::SUB_TO_CHANNEL);
        let begun: SubscribedToChannelResultMessage = stage.answer(&master, header, &wanted).expect("a result");
        assert_eq!((begun.conn_id, begun.sub_options.and_then(|o| o.fan_out_interval_ms)), (ada.id, Some(60)));
        let told: Vec<(u32, SubscribedToChannelResultMessage)> =
            of_type(&stage.read(&owner), message_type::SUB_TO_CHANNEL);
        assert_eq!(told.iter().map(|(id, told)| (*id, told.conn_id)).collect::<Vec<_>>(), [(room, ada.id)]);
        assert!(stage.answer::<SubscribedToChannelResultMessage>(&master, header, &wanted).is_none(), "no news");
    }
    // The removed one makes room for another.
    for room in [last, too_many] {
        stage.ask(&master, Header::new(room, message_type::SUB_TO_CHANNEL), &wanted);
    }
    assert_eq!(stage.refused("client_subscriptions"), 1);
    stage.update(&owner, new, standing([9.0, 1.0, 1.0]));
    let (back, _, told) = come_back(&mut stage, Side::Client, "ada");
    let of = |channel: u32| told.iter().filter(|m| m.channel_id == channel).map(|m| m.msg_type).collect::<Vec<_>>();
    let (begins, ends) = (message_type::SUB_TO_CHANNEL, message_type::UNSUB_FROM_CHANNEL);
    assert_eq!((of(before), of(again)), (vec![ends, begins], vec![ends, begins]));
    assert_eq!((of(new), of(last)), (vec![begins], vec![begins]));
    assert_eq!((of(removed), of(too_many)), (vec![message_type::REMOVE_CHANNEL], vec![]));
    stage.pass(200);
    let mut known = BTreeMap::new();
    for message in stage.read_type(&back, message_type::CHANNEL_DATA_UPDATE) {
        let update: ChannelDataUpdateMessage = message.decode().expect("an update");
        assert!(known.insert(message.channel_id, x_of(update.data)).is_none(), "everything, once");
    }
    assert_eq!(known, BTreeMap::from([(before, 0.0), (new, 9.0), (again, 3.0), (last, 4.0)]));
}

#[test]
fn an_owner_that_subscribes_a_client_is_told_once_whether_the_client_is_here_or_away() {
    let mut stage = Stage::new(super::stage::settings(&["-dev", "-chs=ue", "-limit", "client_resume_ms=5000"]));
    let owner = stage.master();
    let ada = stage.join_as(Side::Client, "ada");
    for is_away in [false, true] {
        if is_away {
            stage.drop_connection(&ada, EndCause::Lost);
        }
        let room = stage.create(&owner, ChannelType::Subworld, Some(standing([1.0; 3])));
        stage.read(&owner);
        let wanted = SubscribedToChannelMessage { conn_id: ada.id, sub_options: Some(every(60)) };
        let begun = stage.ask(&owner, Header::new(room, message_type::SUB_TO_CHANNEL), &wanted);
        let leave = UnsubscribedFromChannelMessage { conn_id: ada.id };
        let ended = stage.ask(&owner, Header::new(room, message_type::UNSUB_FROM_CHANNEL), &leave);
        assert_eq!((begun.len(), ended.len()), (1, 1), "away: {is_away}");
    }
}

#[test]
fn an_owner_of_cells_keeps_them_whatever_it_is_said_to_see() {
    let mut stage = Stage::world(TWO, &RECOVERY);
    let servers = stage.spatial_servers(TWO);
    let sees = |stage: &Stage, id: u32| stage.engine.connections().find(|c| c.id == id).map(|c| c.subscriptions);
    let all = sees(&stage, servers[0].id);
    stage.set_interest(&servers[1], &servers[0], sphere(middle(2, 0), 3.0));
    assert_eq!(sees(&stage, servers[0].id), all, "two of its own, and the one at the border");
    stage.drop_connection(&servers[0], EndCause::Lost);
    stage.set_interest(&servers[1], &servers[0], sphere(middle(2, 0), 3.0));
    let (back, _, told) = come_back(&mut stage, Side::Server, "w0");
    assert_eq!(sees(&stage, back.id), all);
    let cells = recovered(&told);
    assert!([FIRST, FIRST + 1].iter().all(|cell| cells[cell].sub_options.is_some()));
    stage.audit();
}

/// Its network fails before the gateway notices, and again as soon as it is back.
#[test]
fn a_client_learns_of_what_ended_since_it_can_have_heard_the_last_message() {
    let mut stage = Stage::new(super::stage::settings(&[
        "-dev",
        "-chs=ue",
        "-limit=client_resume_ms=5000",
        "-limit=max_unreachable_ms=10000",
        "-limit=max_slow_ms=10000",
        "-limit=max_backlog_ms=10000",
    ]));
    let master = stage.master();
    let mut ada = stage.join_as(Side::Client, "ada");
    let rooms = [(); 4].map(|()| stage.create(&master, ChannelType::Subworld, Some(standing([1.0; 3]))));
    let [left, removed, again, stays] = rooms;
    for room in rooms {
        stage.subscribe(&master, &ada, room, every(40));
    }
    stage.pass(100);
    let leave = UnsubscribedFromChannelMessage { conn_id: ada.id };
    for room in [left, again] {
        stage.ask(&master, Header::new(room, message_type::UNSUB_FROM_CHANNEL), &leave);
    }
    stage.say(&master, Header::new(0, message_type::REMOVE_CHANNEL), &RemoveChannelMessage { channel_id: removed });
    stage.subscribe(&master, &ada, again, every(40));
    let (begins, ends) = (message_type::SUB_TO_CHANNEL, message_type::UNSUB_FROM_CHANNEL);
    let both = [ends, begins];
    for (wait_ms, at_left, at_removed) in [
        (9_000, &[ends][..], &[message_type::REMOVE_CHANNEL][..]),
        (0, &[ends], &[message_type::REMOVE_CHANNEL]),
        (11_000, &[], &[]),
    ] {
        stage.pass(wait_ms);
        stage.drop_connection(&ada, EndCause::Lost);
        let (back, _, told) = come_back(&mut stage, Side::Client, "ada");
        let of = |channel: u32| told.iter().filter(|m| m.channel_id == channel).map(|m| m.msg_type).collect::<Vec<_>>();
        assert_eq!((of(left), of(removed)), (at_left.to_vec(), at_removed.to_vec()), "after {wait_ms} ms");
        assert_eq!((of(again), of(stays)), (both.to_vec(), both.to_vec()), "after {wait_ms} ms");
        ada = back;
    }
}

#[test]
fn a_mask_of_a_client_that_is_away_is_understood_when_the_type_of_the_state_is_known() {
    let mut stage = Stage::new(super::stage::settings(&["-dev", "-chs=ue", "-limit", "client_resume_ms=5000"]));
    let master = stage.master();
    let ada = stage.join_as(Side::Client, "ada");
    let room = stage.create(&master, ChannelType::Test, None);
    stage.subscribe(
        &master,
        &ada,
        room,
        ChannelSubscriptionOptions { data_field_masks: vec!["position".into()], ..every(40) },
    );
    stage.drop_connection(&ada, EndCause::Lost);
    stage.update(&master, room, standing([4.0, 1.0, 1.0]));
    let (back, ..) = come_back(&mut stage, Side::Client, "ada");
    stage.pass(100);
    let states = stage.updates::<TransformState>(&back, room);
    assert_eq!(states.iter().map(|state| state.position.map(|it| it.x)).collect::<Vec<_>>(), [Some(4.0)]);
}

#[test]
fn an_entity_that_came_to_the_border_of_a_server_that_was_away_is_told_to_it() {
    let mut stage = Stage::world(TWO, &RECOVERY);
    let servers = stage.spatial_servers(TWO);
    stage.create_entity(&servers[1], FIRST + 3, ENTITY, Some(standing(middle(3, 0))));
    stage.pass(100);
    stage.drop_connection(&servers[0], EndCause::Lost);
    stage.walk(&servers[1], ENTITY, middle(2, 0));
    assert_eq!(stage.place_of(ENTITY), Some((Some(servers[1].id), Some(FIRST + 2))));
    let (back, _, told) = come_back(&mut stage, Side::Server, "w0");
    let entity = recovered(&told).remove(&ENTITY).expect("it stands at the border");
    assert_eq!(entity.owner_conn_id, servers[1].id);
    stage.walk(&servers[1], ENTITY, [26.0, 1.0, 5.0]);
    stage.pass(100);
    assert_eq!(stage.updates::<TransformState>(&back, ENTITY).len(), 1);
    stage.audit();
}

#[test]
fn what_a_client_sees_changes_while_it_is_away() {
    let mut stage = Stage::world(TWO, &["-limit", "client_resume_ms=5000"]);
    let servers = stage.spatial_servers(TWO);
    let ada = stage.join_as(Side::Client, "ada");
    stage.create_entity(&servers[0], FIRST, ENTITY, Some(standing(middle(0, 0))));
    stage.set_interest(&servers[0], &ada, sphere(middle(0, 0), 3.0));
    stage.pass(100);
    stage.drop_connection(&ada, EndCause::Lost);
    // It walks to the other end of the world, and the entity follows. Owners of cells are told as if it were here.
    servers.iter().for_each(|server| drop(stage.read(server)));
    stage.set_interest(&servers[0], &ada, sphere(middle(3, 0), 3.0));
    let told = stage.read(&servers[1]);
    assert_eq!(of_type::<SubscribedToChannelResultMessage>(&told, message_type::SUB_TO_CHANNEL)[0].1.conn_id, ada.id);
    for cell in 1u8..=3 {
        stage.walk(&servers[usize::from(cell > 2)], ENTITY, middle(cell.into(), 0));
        stage.pass(40);
    }
    assert_eq!(stage.place_of(ENTITY), Some((Some(servers[1].id), Some(FIRST + 3))));
    let (back, _, told) = come_back(&mut stage, Side::Client, "ada");
    let of = |channel: u32| told.iter().filter(|m| m.channel_id == channel).map(|m| m.msg_type).collect::<Vec<_>>();
    let (begins, ends) = (message_type::SUB_TO_CHANNEL, message_type::UNSUB_FROM_CHANNEL);
    assert_eq!((of(FIRST), of(FIRST + 3), of(ENTITY)), (vec![ends], vec![begins], vec![begins]));
    stage.pass(200);
    let states = stage.updates::<TransformState>(&back, ENTITY);
    assert_eq!(states[0].position.expect("it").x, middle(3, 0)[0]);
    stage.audit();
}

#[test]
fn a_server_sends_a_client_away_that_is_away_already() {
    let settings =
        super::stage::settings(&["-dev", "-cfsm=client_authoratative_fsm.json", "-limit", "client_resume_ms=5000"]);
    let mut stage = Stage::new(settings);
    let owner = stage.master();
    let (ada, other) = (stage.join_as(Side::Client, "ada"), stage.client());
    let room = stage.create(&owner, ChannelType::Subworld, Some(standing([1.0, 1.0, 1.0])));
    stage.subscribe(&owner, &ada, room, every(40));
    stage.drop_connection(&ada, EndCause::Lost);
    stage.read(&owner);
    let end = DisconnectMessage { conn_id: ada.id };
    stage.say(&other, Header::new(0, message_type::DISCONNECT), &end);
    assert_eq!(stage.engine.occupancy().awaited, 1, "a client may not");
    let told = stage.ask(&owner, Header::new(0, message_type::DISCONNECT), &end);
    let left: Vec<(u32, UnsubscribedFromChannelResultMessage)> = of_type(&told, message_type::UNSUB_FROM_CHANNEL);
    assert_eq!((left[0].0, left[0].1.conn_id), (room, ada.id));
    assert_eq!(stage.engine.occupancy().awaited, 0);
    let (back, _, told) = come_back(&mut stage, Side::Client, "ada");
    assert!(back.id != ada.id && told.iter().all(|message| message.channel_id != room));
}

#[test]
fn a_client_that_kept_its_copy_has_nothing_of_what_was_removed_meanwhile_and_no_list_twice() {
    let mut stage = Stage::new(super::stage::settings(&["-dev", "-chs=ue", "-limit", "client_resume_ms=5000"]));
    let owner = stage.master();
    let object = |id: u32| UnrealObjectRef {
        net_guid: Some(id),
        context: vec![throng_channeld::proto::unrealpb::unreal_object_ref::GuidCachedObject {
            net_guid: id,
            ..Default::default()
        }],
        ..Default::default()
    };
    let world = |entities: &[(u32, bool)]| {
        let state = |&(id, removed): &(u32, bool)| {
            let obj_ref = (!removed).then(|| object(id));
            (id, SpatialEntityState { obj_ref, removed, ..Default::default() })
        };
        Any::pack(&SpatialChannelData { entities: entities.iter().map(state).collect() })
    };
    let merge_options = ChannelDataMergeOptions { should_check_removable_map_field: true, ..Default::default() };
    let create = CreateChannelMessage {
        channel_type: ChannelType::Subworld.into(),
        merge_options: Some(merge_options),
        data: Some(world(&[(1, false), (2, false)])),
        ..Default::default()
    };
    stage.say(&owner, Header::new(0, message_type::CREATE_CHANNEL), &create);
    let room = of_type::<CreateChannelResultMessage>(&stage.read(&owner), message_type::CREATE_CHANNEL)[0].1.channel_id;
    let ada = stage.join_as(Side::Client, "ada");
    stage.subscribe(&owner, &ada, room, every(20));
    stage.pass(100);
    let mut copy = SpatialChannelData::default();
    let take = |told: Vec<Message>, copy: &mut SpatialChannelData| {
        for message in told.iter().filter(|message| message.channel_id == room) {
            match message.msg_type {
                message_type::UNSUB_FROM_CHANNEL => *copy = SpatialChannelData::default(),
                message_type::CHANNEL_DATA_UPDATE => {
                    let update: ChannelDataUpdateMessage = message.decode().expect("an update");
                    let bytes = update.data.expect("state").value;
                    let news = SpatialChannelData::decode(bytes).expect("the type of the room");
                    for (id, state) in news.entities {
                        let known = copy.entities.entry(id).or_default();
                        known.merge(&state.encode_to_vec()[..]).expect("it merges");
                    }
                    copy.entities.retain(|_, state| !state.removed);
                }
                _ => {}
            }
        }
    };
    take(stage.read(&ada), &mut copy);
    assert_eq!(copy.entities.len(), 2);
    stage.drop_connection(&ada, EndCause::Lost);
    stage.update(&owner, room, world(&[(2, true)]));
    stage.pass(1_000);
    let (back, _, told) = come_back(&mut stage, Side::Client, "ada");
    take(told, &mut copy);
    stage.pass(100);
    take(stage.read(&back), &mut copy);
    assert_eq!(copy.entities.keys().collect::<Vec<_>>(), [&1]);
    assert_eq!(copy.entities[&1].obj_ref, Some(object(1)), "each item of its list once");
}

// The unproven name of a client: with `-dev` everybody can log in under any name.
#[test]
fn a_connection_that_lives_is_not_taken_over_by_an_unproven_name() {
    let mut stage = Stage::new(super::stage::settings(&[
        "-dev",
        "-cfsm=client_authoratative_fsm.json",
        "-limit",
        "client_resume_ms=5000",
        "-scr",
    ]));
    let owner = stage.master();
    let room = stage.create(&owner, ChannelType::Subworld, Some(standing([1.0, 1.0, 1.0])));
    let ada = stage.join_as(Side::Client, "ada");
    stage.subscribe(&owner, &ada, room, every(40));
    let (twin, ..) = come_back(&mut stage, Side::Client, "ada");
    assert!(twin.id != ada.id);
    let subscriptions = |stage: &Stage, id| stage.engine.connections().find(|c| c.id == id).map(|c| c.subscriptions);
    assert_eq!((subscriptions(&stage, ada.id), subscriptions(&stage, twin.id)), (Some(1), Some(0)));
    let (server_twin, should_recover, _) = come_back(&mut stage, Side::Server, "ada");
    assert!(!should_recover, "another door");
    let myself = throng_channeld::proto::DisconnectMessage { conn_id: 0 };
    stage.say(&server_twin, Header::new(0, message_type::DISCONNECT), &myself);
    // A name on one side does not take what was lost on the other.
    stage.drop_connection(&ada, EndCause::Lost);
    let (_other_side, should_recover, _) = come_back(&mut stage, Side::Server, "ada");
    assert!(!should_recover);
    let (back, ..) = come_back(&mut stage, Side::Client, "ada");
    assert_eq!(back.id, ada.id);
    assert_eq!(subscriptions(&stage, twin.id), Some(0), "the twin is who it was");
    // Connections that we closed ourselves do not come back.
    stage.say(
        &owner,
        Header::new(0, message_type::DISCONNECT),
        &throng_channeld::proto::DisconnectMessage { conn_id: back.id },
    );
    stage.settle();
    assert_ne!(come_back(&mut stage, Side::Client, "ada").0.id, ada.id);
}

#[test]
fn a_player_who_proves_its_name_takes_the_place_of_its_old_connection() {
    let words =
        ["-cfsm=client_authoratative_fsm.json", "-auth=https://login.example", "-limit", "client_resume_ms=5000"];
    let mut stage = Stage::new(super::stage::settings(&words));
    let owner = stage.master();
    let room = stage.create(&owner, ChannelType::Subworld, Some(standing([1.0, 1.0, 1.0])));
    let ada = stage.join_as(Side::Client, "ada");
    stage.subscribe(&owner, &ada, room, every(40));
    stage.read(&owner);
    let (back, ..) = come_back(&mut stage, Side::Client, "ada");
    assert_eq!(back.id, ada.id, "it is who it was");
    assert!(ada.is_closed() && !back.is_closed());
    let of_ada: Vec<usize> =
        stage.engine.connections().filter(|c| c.id == ada.id).map(|connection| connection.subscriptions).collect();
    assert_eq!(of_ada, [1], "it is there once, with what it had");
    let left = stage.read_type(&owner, message_type::UNSUB_FROM_CHANNEL);
    assert_eq!(left, [], "nobody has left");
    assert_eq!(stage.engine.counters().superseded, 1);
    // The end of the old socket comes later, and means nothing any more.
    stage.drop_connection(&ada, EndCause::Lost);
    assert!(!back.is_closed());
    // A login that cannot prove the name changes nothing.
    stage.verdict = AuthVerdict::InvalidLogin;
    let mut thief = stage.connect(Side::Client);
    assert_ne!(stage.authenticate(&mut thief, "ada").result, 0);
    assert!(!back.is_closed());
}

#[test]
fn a_world_server_that_starts_again_elsewhere_takes_the_place_of_the_one_that_has_vanished() {
    let mut stage = Stage::new(super::stage::settings(&["-dev", "-scr"]));
    let master = stage.master();
    let room = stage.create(&master, ChannelType::Test, Some(standing([1.0, 1.0, 1.0])));
    let (back, should_recover, told) = come_back(&mut stage, Side::Server, "server");
    assert_eq!((back.id, should_recover), (master.id, true));
    assert!(master.is_closed());
    assert!(recovered(&told).contains_key(&room));
    stage.say_bytes(&back, Header::new(0, message_type::LIST_CHANNEL), Vec::new());
    assert!(stage.engine.has_master(), "it owns GLOBAL again");
    // Without -scr a name says nothing of a server: several may have the same.
    let mut stage = Stage::new(super::stage::settings(&["-dev"]));
    let (first, second) = (stage.server(), stage.server());
    assert!(first.id != second.id && !first.is_closed());
}

#[test]
fn a_server_that_says_good_bye_is_not_waited_for() {
    for says_it in [false, true] {
        let mut stage = Stage::world(TWO, &["-scr"]);
        let servers = stage.spatial_servers(TWO);
        match says_it {
            true => {
                let myself = throng_channeld::proto::DisconnectMessage { conn_id: 0 };
                stage.say(&servers[1], Header::new(0, message_type::DISCONNECT), &myself);
            }
            false => stage.drop_connection(&servers[1], EndCause::PeerClosed),
        }
        assert!(stage.engine.cells().all(|cell| !cell.is_awaited), "its cells are free");
        let newcomer = stage.spatial_server("another");
        assert!(stage.engine.cells().any(|cell| cell.owner == Some(newcomer.id)));
    }
}

#[test]
fn an_id_that_was_used_again_meanwhile_is_another_channel() {
    let mut settings = open_settings();
    settings.limits.client_resume_ms = 5_000;
    let mut stage = Stage::new(settings);
    let owner = stage.master();
    let ada = stage.join_as(Side::Client, "ada");
    let room = stage.create(&owner, ChannelType::Private, None);
    let own = stage.create(&ada, ChannelType::Private, None);
    stage.subscribe(&owner, &ada, room, every(40));
    stage.drop_connection(&ada, EndCause::Lost);
    for id in [room, own] {
        let remove = throng_channeld::proto::RemoveChannelMessage { channel_id: id };
        stage.say(&owner, Header::new(0, message_type::REMOVE_CHANNEL), &remove);
    }
    let again = [stage.create(&owner, ChannelType::Private, None), stage.create(&owner, ChannelType::Private, None)];
    assert_eq!(again, [room, own]);
    let third = stage.create(&owner, ChannelType::Private, None);
    // A subscription that begins and ends while it is away is no concern of its.
    for id in [third, room] {
        stage.subscribe(&owner, &ada, id, every(40));
    }
    let leave = UnsubscribedFromChannelMessage { conn_id: ada.id };
    stage.ask(&owner, Header::new(third, message_type::UNSUB_FROM_CHANNEL), &leave);
    let (back, _, told) = come_back(&mut stage, Side::Client, "ada");
    assert_eq!(back.id, ada.id);
    let subscriptions = stage.engine.connections().find(|c| c.id == back.id).map(|c| c.subscriptions);
    assert_eq!(subscriptions, Some(1), "it never was in the other one");
    let of = |channel: u32| told.iter().filter(|m| m.channel_id == channel).map(|m| m.msg_type).collect::<Vec<_>>();
    assert_eq!(of(room), [message_type::REMOVE_CHANNEL, message_type::SUB_TO_CHANNEL]);
    assert_eq!((of(own), of(third)), (vec![message_type::REMOVE_CHANNEL], vec![]));
}

#[test]
fn a_server_that_may_not_subscribe_to_all_it_owns_any_more_is_told_the_time_of_its_return() {
    let with = |limit: &str| super::stage::settings(&["-dev", "-chs=ue", "-scr", "-limit", limit]);
    let mut stage = Stage::new(with("max_server_subscriptions=100"));
    let _master = stage.master();
    let server = stage.join_as(Side::Server, "rooms");
    let rooms = [(); 2].map(|()| stage.create(&server, ChannelType::Subworld, None));
    stage.pass(2_000);
    stage.drop_connection(&server, EndCause::Lost);
    stage.engine.reload(Arc::new(with("max_server_subscriptions=1")));
    stage.pass(3_000);
    let (back, _, told) = come_back(&mut stage, Side::Server, "rooms");
    let channels = rooms.map(|room| recovered(&told).remove(&room).expect("each that it owned"));
    assert!(channels.iter().all(|channel| channel.owner_conn_id == back.id));
    assert_eq!(channels.each_ref().map(|channel| channel.sub_options.is_some()), [true, false]);
    // The calendar of these tests begins at 0 with the gateway's start, 5 s ago.
    assert_eq!(channels.map(|channel| channel.sub_time), [0, 5_000_000_000]);
}

#[test]
fn a_server_that_saw_only_some_fields_is_told_which_when_it_comes_back() {
    let mut stage = Stage::world(TWO, &RECOVERY);
    let servers = stage.spatial_servers(TWO);
    stage.create_entity(&servers[1], FIRST + 3, ENTITY, Some(standing(middle(3, 0))));
    let masks = vec!["position.x".to_owned(), "rotation".to_owned()];
    let options = ChannelSubscriptionOptions { data_field_masks: masks.clone(), ..every(50) };
    stage.subscribe(&servers[0], &servers[0], ENTITY, options);
    stage.drop_connection(&servers[0], EndCause::Lost);
    let (_, _, told) = come_back(&mut stage, Side::Server, "w0");
    let options = recovered(&told)[&ENTITY].sub_options.clone().expect("it subscribes");
    assert_eq!((options.fan_out_interval_ms, options.data_field_masks), (Some(50), masks));
}

#[test]
fn references_that_do_not_fit_into_one_message_with_another_come_one_by_one() {
    let mut stage = Stage::world(Cut { cells: [1, 1, 0], servers: [1, 1, 0], border: 0 }, &RECOVERY);
    let server = stage.spatial_server("only");
    for number in 0..3 {
        stage.create_entity(&server, FIRST, ENTITY + number, Some(standing(middle(0, 0))));
        let class_path = Some("x".repeat(19_000));
        let obj = UnrealObjectRef { net_guid: Some(ENTITY + number), class_path, ..Default::default() };
        let spawn = SpawnObjectMessage { obj: Some(obj), ..Default::default() };
        let header = Header { channel_id: FIRST, broadcast: 8, stub_id: 0, msg_type: message_type::UNREAL_SPAWN };
        stage.say(&server, header, &forwarded(0, spawn.encode_to_vec()));
    }
    stage.drop_connection(&server, EndCause::Lost);
    let (_, _, told) = come_back(&mut stage, Side::Server, "only");
    let parts = of_type::<ChannelDataRecoveryMessage>(&told, message_type::RECOVERY_CHANNEL_DATA);
    let references = parts.into_iter().filter(|(id, _)| *id == FIRST).filter_map(|(_, part)| part.recovery_data);
    let mut ids: Vec<Vec<u32>> = references
        .map(|data| ChannelRecoveryData::decode(data.value).expect("references").obj_refs.into_keys().collect())
        .collect();
    ids.sort();
    assert_eq!(ids, [[ENTITY], [ENTITY + 1], [ENTITY + 2]]);
}
