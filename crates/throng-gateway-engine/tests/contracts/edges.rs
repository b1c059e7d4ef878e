//! Edges: what goes over the path to them, what happens when it ends, and that a bad path changes nothing but the time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throng_channeld::proto::unrealpb::SpatialChannelData;
use throng_channeld::proto::unrealpb::{SpatialEntityState, UnrealObjectRef};
use throng_channeld::proto::{Any, ChannelSubscriptionOptions, ChannelType, DisconnectMessage};
use throng_channeld::{Broadcast, Header, message_type};
use throng_gateway_engine::edge::EdgeFault;
use throng_gateway_engine::port::{EndCause, LoginNote, Side};

use crate::stage::{Peer, Stage, StageOf, every, settings};

type EdgeStage = StageOf<true>;

/// A message of the game.
const CALL: u32 = 150;

fn object(id: u32, stamp: u32) -> Any {
    let object = UnrealObjectRef { owning_conn_id: Some(stamp), ..Default::default() };
    let state = SpatialEntityState { obj_ref: Some(object), ..Default::default() };
    Any::pack(&SpatialChannelData { entities: [(id, state)].into() })
}

fn objects(states: impl IntoIterator<Item = SpatialChannelData>) -> BTreeMap<u32, u32> {
    let mut known = BTreeMap::new();
    for state in states {
        for (id, entity) in state.entities {
            match entity.removed {
                true => known.remove(&id),
                false => known.insert(id, entity.obj_ref.and_then(|object| object.owning_conn_id).unwrap_or_default()),
            };
        }
    }
    known
}

/// A room with an owner, and so many clients that read it every 50 ms.
fn room<const EDGE: bool>(readers: usize) -> (StageOf<EDGE>, Peer, u32, Vec<Peer>) {
    let mut stage = StageOf::<EDGE>::new(settings(&["-dev", "-cfsm=client_authoratative_fsm.json"]));
    let owner = stage.server();
    stage.create_with_removals(&owner);
    let clients: Vec<Peer> = (0..readers).map(|number| stage.join_as(Side::Client, &format!("c{number}"))).collect();
    for client in &clients {
        stage.subscribe(client, client, 1, every(50));
    }
    stage.pass(200);
    stage.read(&owner);
    (stage, owner, 1, clients)
}

#[test]
fn what_a_channel_costs_the_path_does_not_depend_on_how_many_read_it() {
    let bytes = |readers: usize| {
        let (mut stage, owner, channel, clients) = room::<true>(readers);
        let before = stage.edge.as_ref().expect("an edge").down_bytes;
        for number in 0..100 {
            stage.update(&owner, channel, object(number % 7, number));
            stage.pass(50);
        }
        for client in &clients {
            assert_eq!(objects(stage.updates(client, channel)).len(), 7);
        }
        stage.edge.as_ref().expect("an edge").down_bytes - before
    };
    let (one, many) = (bytes(1), bytes(60));
    assert!(one > 1_000 && many <= one, "{one} bytes for one reader, {many} for 60");
}

#[test]
fn a_home_counts_the_memory_of_the_clients_of_its_edges() {
    let counted = |clients: usize| {
        let mut stage = EdgeStage::new(settings(&["-dev"]));
        let peers: Vec<Peer> = (0..clients).map(|number| stage.join_as(Side::Client, &format!("c{number}"))).collect();
        stage.pass(2_000);
        let bytes = stage.engine.memory_bytes();
        drop(peers);
        bytes
    };
    let each = (counted(101) - counted(1)) / 100;
    assert!((600..4_000).contains(&each), "{each} bytes");
}

#[test]
fn a_message_to_all_goes_to_an_edge_once_and_keeps_its_place_among_the_others() {
    let told = |readers: usize| {
        let (mut stage, owner, channel, clients) = room::<true>(readers);
        let before = stage.edge.as_ref().expect("an edge").down_bytes;
        let to = |client: u32, number: u8| throng_channeld::proto::ServerForwardMessage {
            client_conn_id: client,
            payload: vec![number; 1_000].into(),
        };
        let header = |broadcast: Broadcast| Header { broadcast: broadcast.0, ..Header::new(channel, CALL) };
        // In one step: to one, to all, to one.
        stage.write_message(&owner, header(Broadcast::SINGLE_CONNECTION), &to(clients[0].id, 1));
        stage.write_message(&owner, header(Broadcast::ALL), &to(0, 2));
        stage.write_message(&owner, header(Broadcast::SINGLE_CONNECTION), &to(clients[0].id, 3));
        stage.settle();
        stage.pass(50);
        for (number, client) in clients.iter().enumerate() {
            let calls = stage.read_type(client, CALL).into_iter().map(|message| {
                let call: throng_channeld::proto::ServerForwardMessage = message.decode().expect("a call");
                call.payload[0]
            });
            assert_eq!(calls.collect::<Vec<u8>>(), if number == 0 { vec![1, 2, 3] } else { vec![2] });
        }
        stage.edge.as_ref().expect("an edge").down_bytes - before
    };
    let (few, many) = (told(2), told(60));
    assert!(many < few + 60 * 8, "{few} bytes for two readers, {many} for 60");
}

#[test]
fn a_copy_is_told_once_what_was_written_often_between_two_turns() {
    let (mut stage, owner, channel, clients) = room::<true>(3);
    let before = stage.edge.as_ref().expect("an edge").down_bytes;
    for number in 0..1_000 {
        stage.update(&owner, channel, object(1, number));
    }
    stage.pass(100);
    let bytes = stage.edge.as_ref().expect("an edge").down_bytes - before;
    assert!(bytes < 500, "{bytes} bytes for a thousand writes of one value");
    assert_eq!(objects(stage.updates(&clients[0], channel)), [(1, 999)].into());
}

/// Longer than removals are remembered.
const FOR_LONG_MS: u64 = 400_000;

fn remove(id: u32) -> Any {
    let state = SpatialEntityState { removed: true, ..Default::default() };
    Any::pack(&SpatialChannelData { entities: [(id, state)].into() })
}

#[test]
fn a_copy_that_was_quiet_for_long_is_told_what_changes_and_nothing_else() {
    let (mut stage, owner, channel, clients) = room::<true>(1);
    for id in 0..500 {
        stage.update(&owner, channel, object(id, id));
    }
    stage.update(&owner, channel, remove(7));
    stage.pass(FOR_LONG_MS);
    // Something else changes, so that removals are forgotten.
    let other = stage.create(&owner, ChannelType::Test, None);
    stage.subscribe(&owner, &owner, other, every(20));
    stage.update(&owner, other, object(1, 1));
    stage.pass(FOR_LONG_MS);
    stage.read(&clients[0]);
    let before = stage.edge.as_ref().expect("an edge").down_bytes;
    stage.update(&owner, channel, object(1, 77));
    stage.pass(100);
    assert!(stage.edge.as_ref().expect("an edge").down_bytes - before < 200);
    assert_eq!(objects(stage.updates(&clients[0], channel)), [(1, 77)].into());
}

#[test]
fn a_copy_that_has_missed_a_removal_begins_again_and_its_readers_too() {
    let (mut stage, owner, channel, clients) = room::<true>(1);
    stage.update(&owner, channel, object(1, 1));
    stage.update(&owner, channel, object(2, 2));
    stage.pass(100);
    assert_eq!(objects(stage.updates(&clients[0], channel)).len(), 2);
    // The path is too slow for the removal, until it is forgotten.
    let queued_bytes = Arc::clone(&stage.edge.as_ref().expect("an edge").queued_bytes);
    queued_bytes.store(8 << 20, std::sync::atomic::Ordering::Relaxed);
    stage.update(&owner, channel, remove(1));
    for second in 0..FOR_LONG_MS / 1_000 {
        stage.update(&owner, channel, object(2, second as u32));
        stage.pass(1_000);
    }
    assert_eq!(stage.read(&clients[0]), []);
    queued_bytes.store(0, std::sync::atomic::Ordering::Relaxed);
    stage.pass(200);
    let told = stage.read(&clients[0]);
    let kinds: Vec<u32> = told.iter().map(|message| message.msg_type).collect();
    let [update, end, begin] =
        [message_type::CHANNEL_DATA_UPDATE, message_type::UNSUB_FROM_CHANNEL, message_type::SUB_TO_CHANNEL];
    assert_eq!(kinds, [end, begin, update], "its copy is void");
    let update: throng_channeld::proto::ChannelDataUpdateMessage = told[2].decode().expect("an update");
    let state: SpatialChannelData = prost::Message::decode(update.data.expect("data").value).expect("its type");
    assert_eq!(objects([state]), [(2, (FOR_LONG_MS / 1_000 - 1) as u32)].into());
}

#[test]
fn more_updates_of_several_writers_than_are_kept_are_told_as_they_are_put_together() {
    let mut stage = EdgeStage::new(settings(&["-dev", "-cfsm=client_authoratative_fsm.json"]));
    let owner = stage.master();
    let (writer, reader) = (stage.client(), stage.client());
    let write = throng_channeld::proto::ChannelSubscriptionOptions {
        data_access: Some(throng_channeld::proto::ChannelDataAccess::WriteAccess.into()),
        ..every(1_000)
    };
    stage.subscribe(&writer, &writer, 0, write);
    stage.subscribe(&reader, &reader, 0, every(1_000));
    stage.update(&owner, 0, object(1, 1));
    stage.pass(1_100);
    // Two write to one object, half a megabyte in all.
    let long = |stamp: u32| {
        let object = UnrealObjectRef {
            class_path: Some(format!("{stamp:010000}")),
            owning_conn_id: stamp.is_multiple_of(2).then_some(stamp),
            ..Default::default()
        };
        let state = SpatialEntityState { obj_ref: Some(object), ..Default::default() };
        Any::pack(&SpatialChannelData { entities: [(1, state)].into() })
    };
    for stamp in 1..50_u32 {
        let from = if stamp.is_multiple_of(2) { &owner } else { &writer };
        stage.update(from, 0, long(stamp));
    }
    stage.pass(2_000);
    let updates = stage.updates::<SpatialChannelData>(&reader, 0);
    let last = updates.last().and_then(|state| state.entities[&1].obj_ref.clone()).expect("the edge sends it");
    assert_eq!((last.class_path, last.owning_conn_id), (Some(format!("{:010000}", 49)), Some(48)));
}

#[test]
fn states_and_messages_that_are_longer_than_a_frame_come_in_several() {
    let (mut stage, owner, channel, clients) = room::<true>(1);
    let long = |id: u32| {
        let object = UnrealObjectRef { class_path: Some("x".repeat(50_000)), ..Default::default() };
        let state = SpatialEntityState { obj_ref: Some(object), ..Default::default() };
        Any::pack(&SpatialChannelData { entities: [(id, state)].into() })
    };
    for id in 0..400 {
        stage.update(&owner, channel, long(id));
    }
    // 20 MB for a copy that has everything before, and for one that begins; and as much in messages.
    stage.pass(6_000);
    assert_eq!(objects(stage.updates(&clients[0], channel)).len(), 400);
    stage.exchange_edge(0);
    let reader = stage.client();
    stage.subscribe(&reader, &reader, channel, every(20));
    stage.pass(6_000);
    assert_eq!(objects(stage.updates(&reader, channel)).len(), 400);
    let header = Header { broadcast: Broadcast::SINGLE_CONNECTION.0, ..Header::new(channel, CALL) };
    let payload = vec![7; 50_000];
    let body = throng_channeld::proto::ServerForwardMessage { client_conn_id: reader.id, payload: payload.into() };
    for _ in 0..400 {
        stage.write_message(&owner, header, &body);
    }
    stage.settle();
    stage.pass(100);
    assert_eq!(stage.read_type(&reader, CALL).len(), 400);
}

#[test]
fn an_edge_that_reads_its_settings_again_merges_as_its_home_does() {
    let (mut stage, owner, channel, clients) = room::<true>(1);
    stage.update(&owner, channel, object(1, 1));
    stage.update(&owner, channel, object(2, 2));
    stage.pass(100);
    let again = Arc::new(settings(&["-dev", "-cfsm=client_authoratative_fsm.json"]));
    stage.engine_of(Side::Client).reload(again);
    stage.update(&owner, channel, remove(1));
    stage.pass(100);
    assert_eq!(objects(stage.updates(&clients[0], channel)), [(2, 2)].into());
    let late = stage.client();
    stage.subscribe(&late, &late, channel, every(20));
    stage.pass(100);
    assert_eq!(objects(stage.updates(&late, channel)), [(2, 2)].into());
}

#[test]
fn only_gateways_with_the_same_types_agree() {
    let number = |arguments: &[&str], schemas: throng_protostate::Schemas| {
        Stage::with_schemas(settings(&[&["-dev"], arguments].concat()), schemas).engine.edge_settings()
    };
    let usual = number(&[], throng_protostate::Schemas::default());
    assert_eq!(usual, number(&["-limit", "max_connections=9"], throng_protostate::Schemas::default()));
    assert_ne!(usual, number(&["-chs=ue"], throng_protostate::Schemas::default()));
    // One type of one name, with another field.
    let of = |field: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("room.proto");
        let text = format!("syntax = \"proto3\"; package game; message Room {{ {field} }}");
        std::fs::write(&file, text).expect("there is room");
        let types = protox::compile([&file], [folder.path()]).expect("a sound file");
        let types = prost::Message::encode_to_vec(&types);
        number(&[], throng_protostate::Schemas::from_descriptor_set(&types).expect("sound"))
    };
    assert_eq!(of("int32 a = 1;"), of("int32 a = 1;"));
    assert_ne!(of("int32 a = 1;"), of("int32 a = 2;"));
    assert_ne!(of("int32 a = 1;"), of("string a = 1;"));
    assert_ne!(of("int32 a = 1;"), usual);
}

/// A state of a game whose types the gateway does not know.
#[derive(Clone, PartialEq, prost::Message)]
struct Unknown {
    #[prost(message, optional, tag = "1")]
    hero: Option<Hero>,
    #[prost(message, repeated, tag = "2")]
    shots: Vec<Hero>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Hero {
    #[prost(string, optional, tag = "3")]
    name: Option<String>,
    #[prost(uint32, optional, tag = "4")]
    place: Option<u32>,
    #[prost(uint32, optional, tag = "5")]
    health: Option<u32>,
}

impl Unknown {
    fn any(&self) -> Any {
        Any { type_url: "game/unknown".into(), value: prost::Message::encode_to_vec(self).into() }
    }

    fn moved(place: u32) -> Any {
        Unknown { hero: Some(Hero { place: Some(place), ..Hero::default() }), shots: Vec::new() }.any()
    }
}

#[test]
fn a_copy_of_an_unknown_type_keeps_what_the_home_keeps() {
    // The state of one who comes late, after so many updates between two turns.
    fn told<const EDGE: bool>(at_once: u32) -> (Option<Hero>, Vec<Option<u32>>) {
        let mut stage = StageOf::<EDGE>::new(settings(&["-dev", "-cfsm=client_authoratative_fsm.json"]));
        let owner = stage.server();
        let hero = Hero { name: Some("ada".into()), place: Some(0), health: Some(100) };
        let shot = |number: u32| Hero { place: Some(number), ..Hero::default() };
        let begin = Unknown { hero: Some(hero), shots: vec![shot(1), shot(2)] };
        let channel = stage.create(&owner, ChannelType::Subworld, Some(begin.any()));
        for place in 1..100 {
            stage.update(&owner, channel, Unknown::moved(place));
        }
        let early = stage.client();
        stage.subscribe(&early, &early, channel, every(20));
        stage.pass(100);
        for place in 100..300 {
            stage.update(&owner, channel, Unknown::moved(place));
            if place % at_once == 0 {
                stage.update(&owner, channel, Unknown { hero: None, shots: vec![shot(place)] }.any());
                stage.pass(20);
            }
        }
        let late = stage.client();
        stage.subscribe(&late, &late, channel, every(20));
        stage.pass(100);
        let mut state = Unknown::default();
        for update in stage.updates::<Unknown>(&late, channel) {
            prost::Message::merge(&mut state, &prost::Message::encode_to_vec(&update)[..]).expect("sound");
        }
        (state.hero, state.shots.into_iter().map(|shot| shot.place).collect())
    }
    for at_once in [1, 3, 7] {
        let direct = told::<false>(at_once);
        assert_eq!(direct.0.as_ref().and_then(|hero| hero.name.as_deref()), Some("ada"));
        assert_eq!(told::<true>(at_once), direct, "{at_once} updates between two turns");
    }
}

#[test]
fn a_copy_may_get_at_once_what_its_home_got_piece_by_piece() {
    let usual = ["-dev", "-cfsm=client_authoratative_fsm.json", "-limit=max_state_bytes=65536"];
    let mut stage = EdgeStage::new(settings(&usual));
    let owner = stage.server();
    let channel = stage.create(&owner, ChannelType::Subworld, None);
    for field in [3, 4] {
        let text = prost::bytes::BytesMut::new();
        let mut value = text;
        prost::encoding::string::encode(field, &"x".repeat(20_000), &mut value);
        stage.update(&owner, channel, Any { type_url: "game/unknown".into(), value: value.freeze() });
    }
    let client = stage.client();
    stage.subscribe(&client, &client, channel, every(20));
    stage.pass(100);
    let read = stage.read_type(&client, message_type::CHANNEL_DATA_UPDATE);
    assert!(read.iter().map(|message| message.body.len()).sum::<usize>() > 40_000, "all of it comes");
}

/// A newer state of a game, with a list that the gateway's descriptor of `unrealpb.SpatialChannelData` does not have.
#[derive(Clone, PartialEq, prost::Message)]
struct Newer {
    #[prost(message, repeated, tag = "77")]
    shots: Vec<Hero>,
}

#[test]
fn a_copy_of_a_known_type_keeps_the_lists_that_its_schema_does_not_know() {
    fn told<const EDGE: bool>() -> Vec<Option<u32>> {
        let mut stage = StageOf::<EDGE>::new(settings(&["-dev", "-cfsm=client_authoratative_fsm.json"]));
        let owner = stage.server();
        let channel = stage.create(&owner, ChannelType::Subworld, Some(object(1, 1)));
        let early = stage.client();
        stage.subscribe(&early, &early, channel, every(20));
        let type_url = object(1, 1).type_url;
        for number in 0..150 {
            let shots = [number, number + 1_000].map(|place| Hero { place: Some(place), ..Hero::default() }).to_vec();
            let value = prost::Message::encode_to_vec(&Newer { shots }).into();
            stage.update(&owner, channel, Any { type_url: type_url.clone(), value });
            if number % 5 == 0 {
                stage.pass(20);
            }
        }
        let late = stage.client();
        stage.subscribe(&late, &late, channel, every(20));
        stage.pass(100);
        let states = stage.updates::<Newer>(&late, channel);
        states.into_iter().flat_map(|state| state.shots).map(|shot| shot.place).collect()
    }
    let direct = told::<false>();
    assert!(direct.len() > 10);
    assert_eq!(told::<true>(), direct);
}

#[test]
fn an_edge_follows_a_home_that_allows_more() {
    let more = ["-limit=max_field_masks=64", "-limit=max_field_mask_bytes=512", "-limit=max_mask_sets=20"];
    let usual = ["-dev", "-cfsm=client_authoratative_fsm.json"];
    let mut stage = EdgeStage::new(settings(&[&usual[..], &more].concat()));
    let small = ["-limit=max_state_bytes=4096", "-limit=max_channels=1"];
    stage.engine_of(Side::Client).reload(Arc::new(settings(&[&usual[..], &small].concat())));
    let owner = stage.server();
    let channels = [1, 2].map(|_| stage.create(&owner, ChannelType::Subworld, None));
    let client = stage.client();
    for channel in channels {
        for id in 0..200 {
            stage.update(&owner, channel, object(id, id));
        }
        let masks = (0..40).map(|number| format!("entities.{}{number}", "x".repeat(300))).collect();
        stage.subscribe(&client, &client, channel, ChannelSubscriptionOptions { data_field_masks: masks, ..every(20) });
        let other = stage.client();
        stage.subscribe(&other, &other, channel, every(20));
        stage.pass(200);
        assert_eq!(objects(stage.updates(&other, channel)).len(), 200);
    }
    assert_eq!(stage.edge.as_ref().expect("an edge").engine.occupancy().clients, 3, "nobody was cut off");
}

#[test]
fn nothing_is_copied_that_nobody_reads() {
    let (mut stage, owner, channel, clients) = room::<true>(2);
    for client in &clients {
        let leave = throng_channeld::proto::UnsubscribedFromChannelMessage { conn_id: 0 };
        stage.say(client, Header::new(channel, message_type::UNSUB_FROM_CHANNEL), &leave);
    }
    stage.pass(100);
    let before = stage.edge.as_ref().expect("an edge").down_bytes;
    for number in 0..50 {
        stage.update(&owner, channel, object(number, number));
        stage.pass(20);
    }
    let edge = stage.edge.as_ref().expect("an edge");
    assert_eq!(edge.down_bytes, before);
    assert_eq!(edge.engine.occupancy().channels.values().sum::<usize>(), 1, "GLOBAL alone");
    stage.subscribe(&clients[0], &clients[0], channel, every(20));
    stage.pass(100);
    assert_eq!(objects(stage.updates(&clients[0], channel)).len(), 50);
}

#[test]
fn a_client_whose_edge_is_lost_goes_on_at_another_one_as_who_it_was() {
    let arguments = ["-dev", "-cfsm=client_authoratative_fsm.json", "-limit", "client_resume_ms=5000"];
    let mut stage = EdgeStage::new(settings(&arguments));
    let owner = stage.master();
    let client = stage.join_as(Side::Client, "ada");
    let own = stage.create(&client, ChannelType::Subworld, Some(object(1, 1)));
    stage.subscribe(&client, &client, 0, every(20));
    stage.update(&owner, 0, object(5, 5));
    stage.pass(100);
    stage.read(&owner);
    stage.exchange_edge(0);
    assert_eq!(stage.engine.edge_counts(), (1, 0));
    stage.update(&owner, 0, object(6, 6));
    stage.pass(1_000);
    assert_eq!(stage.read(&owner), [], "a client that may come back causes no message");
    let mut back = stage.connect(Side::Client);
    let auth = throng_channeld::proto::AuthMessage {
        player_identifier_token: "ada".into(),
        login_token: "secret".into(),
        ..Default::default()
    };
    stage.say(&back, Header::new(0, message_type::AUTH), &auth);
    stage.pass(100);
    back.id = client.id;
    let told = stage.read(&back);
    let answer: throng_channeld::proto::AuthResultMessage = told[0].decode().expect("an answer");
    assert_eq!(answer.conn_id, client.id);
    let updates = told.iter().filter(|message| message.msg_type == message_type::CHANNEL_DATA_UPDATE);
    let of_global = updates.filter(|message| message.channel_id == 0).map(|message| {
        let update: throng_channeld::proto::ChannelDataUpdateMessage = message.decode().expect("an update");
        prost::Message::decode(update.data.expect("data").value).expect("the type of the channel")
    });
    assert_eq!(objects(of_global), [(5, 5), (6, 6)].into());
    // It still owns its channel.
    stage.update(&back, own, object(2, 2));
    assert_eq!(stage.refused("no_write_access"), 0);
}

#[test]
fn an_edge_that_ends_sends_its_clients_what_waits_and_hears_when_they_may_go() {
    let (mut stage, owner, channel, clients) = room::<true>(3);
    stage.update(&owner, channel, object(1, 1));
    stage.pass(51);
    stage.update(&owner, channel, object(2, 2));
    for client in &clients {
        assert_eq!(objects(stage.updates(client, channel)), [(1, 1)].into(), "the next turn is later");
    }
    let now = stage.now;
    let edge = stage.edge.as_mut().expect("an edge");
    assert!(!edge.engine.has_left());
    edge.engine.leave(now);
    let outbox = Box::new(crate::stage::LineOutbox(Arc::default()));
    let refusal = edge.engine.open(now, Side::Client, "127.0.0.1:1".parse().expect("an address"), outbox);
    assert_eq!(refusal.map_err(|refusal| refusal.tag()), Err("no_home"));
    assert!(!edge.engine.has_left(), "the home has not heard of it");
    // A client's message comes too late for the home.
    stage.say(&clients[0], Header::new(0, message_type::DISCONNECT), &DisconnectMessage::default());
    assert!(stage.edge.as_ref().expect("an edge").engine.has_left());
    assert_eq!((stage.engine.edge_counts(), stage.engine.occupancy().clients), ((0, 0), 0));
    for client in &clients {
        assert!(!client.is_closed(), "the edge ends them when it is asked to");
        assert_eq!(objects(stage.updates(client, channel)), [(2, 2)].into(), "without waiting for their turn");
    }
    // An edge without a path has nobody to ask.
    let edge = stage.edge.as_mut().expect("an edge");
    edge.engine.linked(now, (0, 0));
    assert!(!edge.engine.has_left());
    edge.engine.unlinked(now);
    edge.engine.leave(now);
    assert!(edge.engine.has_left() && edge.engine.poll_up().is_none());
}

#[test]
fn a_home_that_ends_by_itself_has_not_answered_an_edge_that_asks_later() {
    let (mut stage, _, _, clients) = room::<true>(1);
    let now = stage.now;
    stage.engine.shut_down(now);
    stage.settle();
    let edge = stage.edge.as_mut().expect("an edge");
    assert!(!edge.engine.has_left() && edge.engine.is_linked());
    edge.engine.leave(now);
    assert!(edge.engine.poll_up().is_some() && !edge.engine.has_left());
    edge.engine.unlinked(now);
    edge.engine.advance(now);
    assert!(edge.engine.has_left() && clients[0].is_closed());
}

#[test]
fn a_lost_path_ends_the_connections_at_the_edge_and_a_new_one_lets_clients_in() {
    let (mut stage, owner, channel, clients) = room::<true>(3);
    let now = stage.now;
    let edge = stage.edge.as_mut().expect("an edge");
    edge.engine.unlinked(now);
    edge.engine.advance(now);
    assert!(clients.iter().all(Peer::is_closed));
    let outbox = Box::new(crate::stage::LineOutbox(Arc::default()));
    let refusal = edge.engine.open(now, Side::Client, "127.0.0.1:1".parse().expect("an address"), outbox);
    assert_eq!(refusal.map_err(|refusal| refusal.tag()), Err("no_home"));
    assert_eq!(edge.engine.poll_up(), None, "there is nobody to say it to");
    let key = edge.key;
    stage.engine.close_edge(now, key);
    assert_eq!(stage.engine.occupancy().clients, 0);
    let tick = stage.engine.edge_tick(now);
    let edge = stage.edge.as_mut().expect("an edge");
    edge.engine.linked(now, (tick, 0));
    edge.key = stage
        .engine
        .open_edge(now, Box::new(crate::stage::Down(Arc::clone(&edge.down), Arc::clone(&edge.queued_bytes))));
    let back = stage.client();
    stage.subscribe(&back, &back, channel, every(20));
    stage.update(&owner, channel, object(3, 3));
    stage.pass(100);
    assert_eq!(objects(stage.updates(&back, channel)), [(3, 3)].into());
}

#[test]
fn who_goes_and_who_is_sent_away_is_gone_at_both_ends() {
    let (mut stage, _, _, clients) = room::<true>(3);
    stage.drop_connection(&clients[0], EndCause::PeerClosed);
    assert_eq!((stage.engine.edge_counts(), stage.engine.occupancy().clients), ((1, 2), 2));
    assert!(stage.engine.kick(stage.now, clients[1].id));
    stage.settle();
    assert!(clients[1].is_closed() && !clients[2].is_closed());
    assert_eq!((stage.engine.edge_counts(), stage.engine.occupancy().clients), ((1, 1), 1));
}

#[test]
fn a_slow_client_of_an_edge_is_ended_there_and_nobody_else_is_delayed() {
    let (mut stage, owner, channel, clients) = room::<true>(2);
    clients[0].stall(64 << 20);
    stage.update(&owner, channel, object(1, 1));
    stage.pass(200);
    assert!(clients[0].is_closed() && !clients[1].is_closed());
    assert_eq!(stage.engine.occupancy().clients, 1);
    assert_eq!(objects(stage.updates(&clients[1], channel)), [(1, 1)].into());
}

#[test]
fn unsound_frames_are_faults() {
    let (mut stage, ..) = room::<true>(1);
    let now = stage.now;
    let key = stage.edge.as_ref().expect("an edge").key;
    let hear = |stage: &mut EdgeStage, frame: &[u8]| stage.engine.hear_edge(now, key, Bytes::copy_from_slice(frame));
    assert_eq!(hear(&mut stage, &[0xFF]), Err(EdgeFault::Malformed));
    // A record that says nothing; an address that is none; a client that is there.
    assert_eq!(hear(&mut stage, &[0x0A, 0]), Err(EdgeFault::Malformed));
    assert_eq!(hear(&mut stage, b"\x0A\x05\x08\x09\x12\x01x"), Err(EdgeFault::Client));
    let opened = b"\x0A\x0F\x08\x09\x12\x0B127.0.0.1:7";
    assert_eq!(hear(&mut stage, opened), Ok(()));
    assert_eq!(hear(&mut stage, opened), Err(EdgeFault::Client));
    // It is known, and its bytes are no entries.
    assert_eq!(hear(&mut stage, b"\x0A\x05\x08\x09\x1A\x01\xFF"), Err(EdgeFault::Malformed));
    // Somebody unknown says something, and goes: that may have crossed its end.
    assert_eq!(hear(&mut stage, b"\x0A\x05\x08\x63\x1A\x01\xFF"), Ok(()));
    assert_eq!(hear(&mut stage, b"\x0A\x04\x08\x63\x20\x00"), Ok(()));
    let edge = &mut stage.edge.as_mut().expect("an edge").engine;
    // Changes of a channel that was not named.
    let changes = b"\x12\x06\x08\x00\x3A\x02\x08\x63";
    assert_eq!(edge.hear_home(now, Bytes::from_static(changes)), Err(EdgeFault::Change));
    // Turns that are far away, one without the first, and a first one that is later, or much earlier.
    for turns in [
        &b"\x08\x80\x80\x80\x80\x80\x80\x80\x02\x20\x80\x80\x80\x80\x80\x80\x80\x02"[..],
        b"\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01\x20\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01",
        b"\x08\x05",
        b"\x08\x05\x20\x06",
        b"\x08\xE9\xD4\x03\x20\x00",
    ] {
        assert_eq!(edge.hear_home(now, Bytes::from_static(turns)), Err(EdgeFault::Malformed), "{turns:?}");
    }
    assert_eq!(edge.hear_home(now, Bytes::from_static(b"\x08\x05\x20\x05")), Ok(()));
}

#[test]
fn an_update_after_a_long_silence_is_not_late() {
    let (mut stage, owner, channel, clients) = room::<true>(1);
    stage.subscribe(&clients[0], &clients[0], channel, every(50));
    stage.pass(60_000);
    stage.write(&owner, channel, object(1, 1));
    stage.pass(200);
    assert_eq!(objects(stage.updates::<SpatialChannelData>(&clients[0], channel)).get(&1), Some(&1));
    let lag = &stage.edge.as_ref().expect("an edge").engine.counters().lag;
    assert!(lag.count() > 0 && lag.last_s() <= 0.01, "{} s", lag.last_s());
}

#[test]
fn a_home_that_stood_still_for_long_keeps_its_edge_and_tells_it_what_was_due_before() {
    let (mut stage, owner, channel, clients) = room::<true>(1);
    stage.subscribe(&clients[0], &clients[0], channel, every(50));
    stage.pass(200);
    stage.write(&owner, channel, object(1, 1));
    // Longer than the longest time before `turn` that a frame may say.
    stage.now = stage.now.after(Duration::from_secs(70));
    stage.pass(20);
    assert_eq!(objects(stage.updates::<SpatialChannelData>(&clients[0], channel)).get(&1), Some(&1));
    assert!(stage.edge.as_ref().expect("an edge").engine.is_linked());
}

#[test]
fn any_frames_are_survived() {
    throng_seeds::for_seeds(150, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let input: Vec<u8> = (0..2_000).map(|_| random.u8(..)).collect();
        crate::edge_body::run(&input);
    });
}

#[test]
fn the_shell_hears_of_logins_through_the_edge() {
    #[derive(Default)]
    struct Notes(std::sync::Mutex<Vec<LoginNote>>);
    struct NoteOutbox(Arc<Notes>);
    impl throng_gateway_engine::port::Outbox for NoteOutbox {
        fn queued_bytes(&self) -> usize {
            0
        }
        fn send(&self, entries: &mut Vec<u8>) {
            entries.clear();
        }
        fn note_login(&self, note: LoginNote) {
            self.0.0.lock().unwrap().push(note);
        }
        fn close(&self) {}
    }
    let (mut stage, ..) = room::<true>(0);
    let notes = Arc::<Notes>::default();
    let now = stage.now;
    let edge = &mut stage.edge.as_mut().expect("an edge").engine;
    let address = "127.0.0.1:40001".parse().expect("an address");
    edge.open(now, Side::Client, address, Box::new(NoteOutbox(Arc::clone(&notes)))).expect("room");
    stage.settle();
    let coming = stage.engine.poll_coming();
    let Some(throng_gateway_engine::Coming::Opened { key, address: from }) = coming else { panic!("{coming:?}") };
    assert_eq!(from, address);
    stage.engine.note_login(key, LoginNote::Waits);
    stage.engine.note_login(key, LoginNote::Guessed);
    stage.settle();
    assert_eq!(*notes.0.lock().unwrap(), [LoginNote::Waits, LoginNote::Guessed]);
}

/// A path on which frames take a while, and their order stays.
struct Path {
    frames: VecDeque<(u64, Bytes)>,
    last: u64,
}

impl Path {
    fn put(&mut self, now_ms: u64, delay_ms: u64, frame: Bytes) {
        self.last = self.last.max(now_ms + delay_ms);
        self.frames.push_back((self.last, frame));
    }

    fn take(&mut self, now_ms: u64) -> Option<Bytes> {
        self.frames.front().filter(|(at, _)| *at <= now_ms)?;
        self.frames.pop_front().map(|(_, frame)| frame)
    }
}

/// Two clients, one at the gateway, one at an edge behind a path of 1 to 6 ms, read the same. How much later the one at the
/// edge receives each change, in ms, in ascending order.
fn delays(seed: u64, pauses_ms: std::ops::RangeInclusive<u64>) -> Vec<u64> {
    let (mut direct, owner, channel, _) = room::<false>(1);
    let reader = direct.client();
    direct.subscribe(&reader, &reader, channel, every(50));
    let (mut far, far_owner, ..) = room::<true>(0);
    far.exchange_edge(10);
    let far_reader = far.client();
    far.subscribe(&far_reader, &far_reader, channel, every(50));
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut up, mut down) = (Path { frames: VecDeque::new(), last: 0 }, Path { frames: VecDeque::new(), last: 0 });
    let (mut seen, mut far_seen) = (BTreeMap::new(), BTreeMap::new());
    let (mut next_write, mut stamp) = (0, 0);
    for ms in 0..20_000_u64 {
        if ms >= next_write && ms < 19_000 {
            stamp += 1;
            let id = random.u32(..5);
            direct.update(&owner, channel, object(id, stamp));
            far.write(&far_owner, channel, object(id, stamp));
            next_write = ms + random.u64(pauses_ms.clone());
        }
        direct.pass(1);
        far.now = far.now.after(Duration::from_millis(1));
        far.advance_apart(&mut |is_up, frame| {
            let delay = random.u64(1..=6);
            if is_up { up.put(ms, delay, frame) } else { down.put(ms, delay, frame) }
        });
        while let Some(frame) = up.take(ms) {
            far.hear_edge(frame);
        }
        while let Some(frame) = down.take(ms) {
            far.hear_home(frame);
        }
        for (stage_seen, states) in [
            (&mut seen, direct.updates::<SpatialChannelData>(&reader, channel)),
            (&mut far_seen, far.updates::<SpatialChannelData>(&far_reader, channel)),
        ] {
            for (_, stamp) in objects(states) {
                stage_seen.entry(stamp).or_insert(ms);
            }
        }
    }
    assert!(seen.len() > 50);
    let mut delays = Vec::new();
    // The edge's clock has found its place by then.
    for (stamp, at) in seen.iter().filter(|(_, at)| **at > 2_000) {
        // It may have been overwritten between two turns of the one that are not those of the other.
        if let Some(far_at) = far_seen.get(stamp) {
            delays.push(far_at.saturating_sub(*at));
        }
    }
    assert!(delays.len() * 10 > seen.len() * 8, "{} of {}", delays.len(), seen.len());
    assert_eq!(seen.last_key_value().map(|(stamp, _)| stamp), far_seen.last_key_value().map(|(stamp, _)| stamp));
    delays.sort_unstable();
    delays
}

#[test]
fn an_update_comes_through_an_edge_at_most_ten_milliseconds_later_than_without() {
    let pauses_ms = [30..=70, 1..=20, 100..=300];
    throng_seeds::for_seeds(3, |seed| {
        let delays = delays(seed, pauses_ms[seed as usize % 3].clone());
        let p99 = delays[delays.len() * 99 / 100];
        let mean = delays.iter().sum::<u64>() as f64 / delays.len() as f64;
        assert!(p99 <= 8 && mean <= 4.5, "p99 {p99} ms over a path of 1 to 6 ms; mean {mean}");
    });
}

#[test]
fn a_message_to_all_reaches_the_clients_of_an_edge_and_theirs_reach_the_owner() {
    let (mut stage, owner, channel, clients) = room::<true>(3);
    clients.iter().for_each(|client| drop(stage.read(client)));
    let header = Header { broadcast: Broadcast::ALL.0, ..Header::new(channel, CALL) };
    let body = throng_channeld::proto::ServerForwardMessage { client_conn_id: 0, payload: b"all".as_slice().into() };
    stage.say(&owner, header, &body);
    for client in &clients {
        assert_eq!(stage.read_type(client, CALL).len(), 1);
    }
    stage.read(&owner);
    stage.say_bytes(&clients[2], Header::new(channel, CALL), b"hello".as_slice());
    let heard = stage.read_type(&owner, CALL);
    let forwarded: throng_channeld::proto::ServerForwardMessage = heard[0].decode().expect("a forwarded message");
    assert_eq!((forwarded.client_conn_id, &forwarded.payload[..]), (clients[2].id, &b"hello"[..]));
}
