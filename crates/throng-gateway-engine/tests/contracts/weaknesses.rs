//! Inputs that crash channeld, slow it down or make it lose data, and their results here: one test for each known
//! weakness, with the input that provokes it there.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::stage::{Peer, Stage, every, grid_file, open_settings, settings, settings_with};
use throng_channeld::proto::spatial_interest_query::SphereAoi;
use throng_channeld::proto::unrealpb::{
    DestroyObjectMessage, FVector, SpatialChannelData, SpatialEntityState, SpawnObjectMessage, UnrealObjectRef,
};
use throng_channeld::proto::{
    AddEntityGroupMessage, Any, ChannelDataAccess, ChannelDataHandoverMessage, ChannelDataMergeOptions,
    ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType, CreateChannelMessage,
    CreateChannelResultMessage, CreateEntityChannelMessage, CreateSpatialChannelsResultMessage, EntityGroupType,
    RemoveChannelMessage, ServerForwardMessage, SpatialInfo, SpatialInterestQuery, SubscribedToChannelMessage,
    SubscribedToChannelResultMessage, TransformState, UpdateSpatialInterestMessage, Vector3f,
};
use throng_channeld::{
    Compression, CompressionError, Dialect, FrameReader, Header, Messages, PacketError, PacketWriter, decompress,
    message_type, put_body, put_message,
};
use throng_gateway::auth;
use throng_gateway::serve::helpers;
use throng_gateway_engine::port::{EndCause, Side};

fn number(value: u32) -> Any {
    Any::pack(&SpawnObjectMessage { channel_id: Some(value), ..Default::default() })
}

fn numbers(stage: &mut Stage, peer: &Peer, channel: u32) -> Vec<u32> {
    stage.updates::<SpawnObjectMessage>(peer, channel).iter().filter_map(|update| update.channel_id).collect()
}

fn writing(interval_ms: u32) -> ChannelSubscriptionOptions {
    ChannelSubscriptionOptions { data_access: Some(ChannelDataAccess::WriteAccess.into()), ..every(interval_ms) }
}

const CREATE: Header = Header { channel_id: 0, broadcast: 0, stub_id: 0, msg_type: message_type::CREATE_CHANNEL };

/// The gateway still does what it is for.
fn is_alive(stage: &mut Stage) {
    let (server, client) = (stage.server(), stage.client());
    let channel = stage.create(&server, ChannelType::Test, Some(number(41)));
    assert_ne!(channel, 0, "channels can be made");
    stage.subscribe(&server, &client, channel, every(20));
    stage.subscribe(&client, &client, channel, every(20));
    stage.update(&server, channel, number(42));
    stage.pass(100);
    assert_eq!(numbers(stage, &client, channel).last(), Some(&42), "state reaches subscribers");
}

#[test]
fn w01_a_client_that_stops_reading_delays_nobody_and_logins_go_on() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    let clients: Vec<Peer> = (0..11).map(|_| stage.client()).collect();
    for client in &clients {
        stage.subscribe(client, client, 0, every(20));
    }
    stage.update(&owner, 0, number(0));
    stage.pass(50);
    let (stuck, healthy) = clients.split_last().expect("eleven");
    stuck.stop_reading();
    let blob = |value| SpawnObjectMessage {
        channel_id: Some(value),
        obj: Some(UnrealObjectRef { class_path: Some("x".repeat(5_000)), ..Default::default() }),
        ..Default::default()
    };
    let mut delivered = [0; 10];
    for frame in 1..=30 * 30 {
        stage.update(&owner, 0, Any::pack(&blob(frame)));
        stage.pass(33);
        for (count, client) in delivered.iter_mut().zip(healthy) {
            *count += numbers(&mut stage, client, 0).len();
        }
    }
    assert!(delivered.iter().all(|&count| count >= 895), "{delivered:?} of 900 in 30 s");
    assert!(stuck.line.lock().unwrap().bytes.len() < 200_000, "what waits is bounded");
    is_alive(&mut stage);
    stage.pass(5_000);
    assert!(stuck.is_closed(), "30 s of not reading are enough, even if nothing more happens");
}

#[test]
fn w02_an_interval_of_0_is_served_at_the_shortest_one_and_costs_no_more() {
    let mut stage = Stage::new(open_settings());
    let (owner, client) = (stage.master(), stage.client());
    let wanted = SubscribedToChannelMessage { conn_id: 0, sub_options: Some(every(0)) };
    let told = stage.ask(&client, Header::new(0, message_type::SUB_TO_CHANNEL), &wanted);
    let result: SubscribedToChannelResultMessage = told[0].decode().expect("a result");
    assert_eq!(result.sub_options.expect("those in effect").fan_out_interval_ms(), 5, "and it is told so");
    let before = stage.engine.counters().steps;
    for value in 0..1_000 {
        stage.update(&owner, 0, number(value));
        stage.pass(1);
    }
    assert!(stage.engine.counters().steps - before <= 201);
    assert!(
        numbers(&mut stage, &client, 0).last() >= Some(&980),
        "the last turn was a tick of the channel ago at most"
    );
    is_alive(&mut stage);
}

#[test]
fn w03_a_delay_far_in_the_past_brings_one_first_update_and_nothing_to_catch_up() {
    let mut stage = Stage::new(open_settings());
    let (owner, client) = (stage.master(), stage.client());
    stage.update(&owner, 0, number(3));
    let options = ChannelSubscriptionOptions { fan_out_delay_ms: Some(i32::MIN), ..every(1) };
    stage.subscribe(&client, &client, 0, options);
    let before = stage.engine.counters().steps;
    stage.pass(1_000);
    assert_eq!(numbers(&mut stage, &client, 0), [3]);
    assert!(stage.engine.counters().steps - before < 10);
    is_alive(&mut stage);
}

#[test]
fn w04_an_update_without_data_is_refused_and_nothing_ends() {
    let mut stage = Stage::new(open_settings());
    stage.master();
    let client = stage.client();
    let room = stage.create(&client, ChannelType::Test, None);
    let empty = ChannelDataUpdateMessage::default();
    stage.say(&client, Header::new(room, message_type::CHANNEL_DATA_UPDATE), &empty);
    let nothing = ChannelDataUpdateMessage { data: Some(Any::default()), context_conn_id: 0 };
    stage.say(&client, Header::new(room, message_type::CHANNEL_DATA_UPDATE), &nothing);
    assert_eq!(stage.refused("missing_data"), 2);
    is_alive(&mut stage);
}

#[test]
fn w05_an_update_of_another_known_type_is_refused_and_the_next_fan_out_is_sound() {
    let mut stage = Stage::new(open_settings());
    let (owner, client, reader) = (stage.master(), stage.client(), stage.client());
    stage.update(&owner, 0, number(1));
    stage.subscribe(&client, &client, 0, writing(20));
    stage.subscribe(&reader, &reader, 0, every(20));
    stage.update(&client, 0, Any::pack(&FVector { x: Some(1.0), ..Default::default() }));
    stage.update(&client, 0, Any::pack(&SpatialChannelData::default()));
    assert_eq!(stage.refused("wrong_type"), 2);
    stage.update(&client, 0, number(2));
    stage.pass(50);
    assert_eq!(numbers(&mut stage, &reader, 0), [2]);
    is_alive(&mut stage);
}

#[test]
fn w06_a_clients_destroy_is_a_message_for_the_owner_and_removes_nothing() {
    let mut stage = Stage::new(settings(&["-dev"]));
    let (master, client) = (stage.master(), stage.client());
    let room = stage.create(&master, ChannelType::Test, None);
    stage.read(&master);
    for id in [0, room] {
        let destroy = DestroyObjectMessage { net_id: id, reason: 0 };
        for body in [
            prost::Message::encode_to_vec(&destroy),
            prost::Message::encode_to_vec(&ServerForwardMessage {
                client_conn_id: 0,
                payload: prost::Message::encode_to_vec(&destroy).into(),
            }),
        ] {
            stage.say_bytes(&client, Header::new(0, message_type::UNREAL_DESTROY), body);
        }
    }
    assert_eq!(
        stage.read_type(&master, message_type::UNREAL_DESTROY).len(),
        4,
        "the owner may make of it what it likes"
    );
    // Not even a server can remove GLOBAL with it, or anything that is no entity.
    for id in [0, room] {
        let payload = prost::Message::encode_to_vec(&DestroyObjectMessage { net_id: id, reason: 0 }).into();
        let forward = ServerForwardMessage { client_conn_id: 0, payload };
        stage.say(&master, Header { broadcast: 2, ..Header::new(0, message_type::UNREAL_DESTROY) }, &forward);
    }
    assert_eq!(stage.engine.occupancy().channels.values().sum::<usize>(), 2);
    is_alive(&mut stage);
}

#[test]
fn w07_a_spawn_without_channel_is_a_message_like_any_other() {
    let grid = grid_file((3, 3), (1, 1));
    let mut stage = Stage::new(settings_with(&["-dev", "-scc=grid.json"], &[("grid.json", &grid)]));
    let (master, client) = (stage.master(), stage.client());
    let spawns = [
        SpawnObjectMessage::default(),
        SpawnObjectMessage { obj: Some(UnrealObjectRef::default()), ..Default::default() },
        SpawnObjectMessage {
            obj: Some(UnrealObjectRef { net_guid: Some(0x8_0000), ..Default::default() }),
            location: Some(FVector { x: Some(f32::NAN), y: Some(f32::INFINITY), z: None }),
            ..Default::default()
        },
    ];
    for spawn in spawns {
        let payload = prost::Message::encode_to_vec(&spawn);
        stage.say_bytes(&client, Header::new(0, message_type::UNREAL_SPAWN), payload.clone());
        let forward = ServerForwardMessage { client_conn_id: 0, payload: payload.into() };
        stage.say(&master, Header { broadcast: 2, ..Header::new(0, message_type::UNREAL_SPAWN) }, &forward);
    }
    assert_eq!(stage.read_type(&master, message_type::UNREAL_SPAWN).len(), 6);
    is_alive(&mut stage);
}

#[test]
fn w08_without_a_provider_the_gateway_says_so_at_the_start_and_lets_no_client_in() {
    let bare = throng_gateway::settings::load([""; 0]).expect("sound arguments");
    assert!(auth::from_settings(&bare).is_err_and(|error| error.tag() == "provider_missing"));
    assert!(bare.notes.iter().any(|note| note.to_string().contains("-auth")), "{:?}", bare.notes);
    let mut stage = Stage::new(bare.engine);
    let client = stage.connect(Side::Client);
    let login = throng_channeld::proto::AuthMessage::default();
    let message = throng_channeld::Message {
        channel_id: 0,
        broadcast: 0,
        stub_id: 0,
        msg_type: message_type::AUTH,
        body: prost::Message::encode_to_vec(&login).into(),
    };
    stage.engine.receive(stage.now, client.key, message);
    stage.engine.advance(stage.now);
    assert!(stage.engine.poll_auth().is_some(), "somebody would have to decide");
    assert_eq!(stage.engine.counters().of(Side::Client).admitted, 0);
    is_alive(&mut stage);
}

#[test]
fn w09_an_undecodable_payload_is_one_error_and_never_read_again() {
    let mut reader = FrameReader::new();
    let payload = [0x0A, 0xFF, 0xFF, 0xFF, 0x7F, 1, 2, 3];
    reader.push(&[0x43, 0x48, 0, payload.len() as u8, 0]).expect("room");
    reader.push(&payload).expect("room");
    let frame = reader.next_frame().expect("a frame").expect("all of it");
    let mut messages = Messages::new(frame.payload);
    assert!(matches!(messages.next(), Some(Err(PacketError::Cut))));
    assert!(messages.next().is_none() && reader.next_frame() == Ok(None) && reader.buffered_bytes() == 0);
    // That the connection ends then is shown with sockets, in limits.rs. A malformed body is counted.
    let mut stage = Stage::new(open_settings());
    let client = stage.client();
    stage.say_bytes(&client, Header::new(0, message_type::SUB_TO_CHANNEL), &b"\x08"[..]);
    assert_eq!(stage.refused("malformed"), 1);
    is_alive(&mut stage);
}

#[test]
fn w10_a_claimed_length_is_compared_before_anything_is_allocated() {
    // 4 GiB, in 12 bytes.
    let claim = [0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0, 0, 0, 0, 0, 0, 0];
    let error = decompress(Compression::Snappy, claim.to_vec().into(), 1 << 20).expect_err("it is too long");
    assert!(matches!(error, CompressionError::TooLong { declared_bytes: 0xFFFF_FFFF, limit_bytes: 0x10_0000 }));
}

#[test]
fn w11_strangers_are_sent_away_by_default_and_cost_nothing_until_then() {
    let mut stage = Stage::new(settings(&["-auth=none"]));
    let strangers: Vec<Peer> = (0..1_000).map(|_| stage.connect(Side::Client)).collect();
    let steps = stage.engine.counters().steps;
    stage.pass(4_900);
    assert_eq!(stage.engine.counters().steps, steps, "nothing is done for them");
    assert!(strangers.iter().all(|peer| !peer.is_closed()));
    stage.pass(200);
    assert!(strangers.iter().all(Peer::is_closed), "5 s are enough to say who one is");
    assert_eq!(stage.refused("unauthenticated"), 1_000);
    assert!(stage.is_at_rest());
    is_alive(&mut stage);
}

#[test]
fn w12_a_client_does_not_become_the_master() {
    let mut stage = Stage::new(open_settings());
    let client = stage.client();
    let global = CreateChannelMessage { channel_type: ChannelType::Global.into(), ..Default::default() };
    let answer: Option<CreateChannelResultMessage> = stage.answer(&client, CREATE, &global);
    assert_eq!(answer, None, "a refusal is silent");
    let master = stage.server();
    let answer: CreateChannelResultMessage = stage.answer(&master, CREATE, &global).expect("a result");
    assert_eq!(answer.owner_conn_id, master.id);
    stage.drop_connection(&master, EndCause::Lost);
    let answer: Option<CreateChannelResultMessage> = stage.answer(&client, CREATE, &global);
    assert_eq!(answer, None, "nor after the master is gone");
    // A peer can ask for it.
    let arguments = ["-dev", "-cfsm=client_authoratative_fsm.json", "-clientrights=create,write,own-global"];
    let mut stage = Stage::new(settings(&arguments));
    let client = stage.client();
    let answer: CreateChannelResultMessage = stage.answer(&client, CREATE, &global).expect("a result");
    assert_eq!(answer.owner_conn_id, client.id);
}

#[test]
fn w13_a_client_makes_no_entities_and_no_groups() {
    let mut stage = Stage::new(open_settings());
    let (server, client) = (stage.master(), stage.client());
    let create = CreateEntityChannelMessage { entity_id: 0x8_0007, ..Default::default() };
    let header = Header::new(0, message_type::CREATE_ENTITY_CHANNEL);
    let answer: Option<CreateChannelResultMessage> = stage.answer(&client, header, &create);
    assert_eq!(answer, None);
    let answer: CreateChannelResultMessage = stage.answer(&server, header, &create).expect("a result");
    assert_eq!((answer.channel_id, answer.owner_conn_id), (0x8_0007, server.id), "the id is still free for its server");
    let group = AddEntityGroupMessage { r#type: EntityGroupType::Lock.into(), entities_to_add: vec![0x8_0007] };
    stage.say(&client, Header::new(0x8_0007, message_type::ENTITY_GROUP_ADD), &group);
    assert_eq!(stage.refused("not_allowed"), 2);
}

#[test]
fn w14_a_single_message_to_the_owner_of_a_channel_without_one_is_dropped() {
    let mut stage = Stage::new(open_settings());
    let server = stage.server();
    let forward = ServerForwardMessage { client_conn_id: 0, payload: "x".into() };
    stage.say(&server, Header { broadcast: 1, ..Header::new(0, 100) }, &forward);
    assert_eq!(stage.refused("no_owner"), 1);
    is_alive(&mut stage);
}

/// A world of `cells` cells, with all its servers.
fn world(cells: (u32, u32), servers: (u32, u32)) -> (Stage, Vec<Peer>, Vec<CreateSpatialChannelsResultMessage>) {
    let grid = grid_file(cells, servers);
    // A query may look at four times as many samples as these worlds have cells, and at no more.
    let arguments = ["-dev", "-cfsm=client_authoratative_fsm.json", "-scc=grid.json", "-limit", "max_query_samples=64"];
    let mut stage = Stage::new(settings_with(&arguments, &[("grid.json", &grid)]));
    let create = CreateChannelMessage { channel_type: ChannelType::Spatial.into(), ..Default::default() };
    let mut results = Vec::new();
    let peers: Vec<Peer> = (0..servers.0 * servers.1).map(|_| stage.server()).collect();
    for peer in &peers {
        let told = stage.ask(peer, CREATE, &create);
        let result = told.iter().find(|message| message.msg_type == message_type::CREATE_SPATIAL_CHANNEL);
        results.push(result.expect("cells").decode().expect("a result"));
    }
    (stage, peers, results)
}

const CELL: u32 = 0x1_0000;

#[test]
fn w15_an_interest_without_centre_or_with_an_endless_radius_is_answered_in_bounded_time() {
    let (mut stage, servers, _) = world((4, 4), (1, 1));
    let client = stage.client();
    let header = Header::new(CELL, message_type::UPDATE_SPATIAL_INTEREST);
    let interest = |sphere: SphereAoi| UpdateSpatialInterestMessage {
        conn_id: client.id,
        query: Some(SpatialInterestQuery { sphere_aoi: Some(sphere), ..Default::default() }),
    };
    let here = Some(SpatialInfo { x: 5.0, y: 0.0, z: 5.0 });
    let nowhere = Some(SpatialInfo { x: f64::NAN, y: f64::NAN, z: f64::INFINITY });
    for (center, radius, tag) in [
        (None, 5.0, "interest_missing"),
        (here, f64::INFINITY, "interest_not_finite"),
        (here, f64::NAN, "interest_not_finite"),
        (here, -1.0, "interest_size"),
        (nowhere, 5.0, "interest_not_finite"),
    ] {
        let before = stage.refused(tag);
        stage.say(&servers[0], header, &interest(SphereAoi { center, radius }));
        assert_eq!(stage.refused(tag), before + 1, "radius {radius} around {center:?}");
        assert_eq!(stage.read(&client), []);
    }
    // The bound holds for a look at the whole world too, so it costs no more than its cells.
    for radius in [1e18, f64::MAX] {
        stage.say(&servers[0], header, &interest(SphereAoi { center: here, radius: 4.0 }));
        stage.read(&client);
        stage.say(&servers[0], header, &interest(SphereAoi { center: here, radius }));
        assert_eq!(stage.refused("interest_too_large"), 0, "radius {radius}");
        assert_eq!(stage.read_type(&client, message_type::SUB_TO_CHANNEL).len(), 15, "all cells but the one it saw");
    }
    is_alive(&mut stage);
}

#[test]
fn w16_a_masked_subscriber_takes_nothing_from_the_others() {
    let mut stage = Stage::new(open_settings());
    let (owner, masked, late) = (stage.master(), stage.client(), stage.client());
    let state = SpawnObjectMessage { channel_id: Some(1), local_role: Some(2), ..Default::default() };
    stage.update(&owner, 0, Any::pack(&state));
    let options = ChannelSubscriptionOptions { data_field_masks: vec!["localRole".into()], ..every(20) };
    stage.subscribe(&masked, &masked, 0, options);
    stage.pass(100);
    let part = SpawnObjectMessage { local_role: Some(2), ..Default::default() };
    assert_eq!(stage.updates::<SpawnObjectMessage>(&masked, 0), [part]);
    stage.subscribe(&late, &late, 0, every(20));
    stage.pass(100);
    assert_eq!(stage.updates::<SpawnObjectMessage>(&late, 0), [state]);
}

#[test]
fn w17_a_state_of_several_packets_reaches_late_joiners_whole() {
    let mut stage = Stage::new(open_settings());
    let (owner, late) = (stage.master(), stage.client());
    let actor = |id: u32| {
        let object = UnrealObjectRef { net_guid: Some(id), class_path: Some("p".repeat(90)), ..Default::default() };
        (id, SpatialEntityState { obj_ref: Some(object), ..Default::default() })
    };
    for some in 0..20 {
        let data = SpatialChannelData { entities: (some * 100..some * 100 + 100).map(actor).collect() };
        stage.update(&owner, 0, Any::pack(&data));
    }
    stage.subscribe(&late, &late, 0, every(20));
    stage.pass(100);
    let mut packets = Vec::new();
    let entries = late.line.lock().unwrap().bytes.clone();
    assert!(entries.len() > 200_000);
    PacketWriter::new().write(Dialect::Fixed, &entries, &mut packets);
    let mut known = BTreeMap::new();
    for data in stage.updates::<SpatialChannelData>(&late, 0) {
        known.extend(data.entities);
    }
    assert_eq!(known, (0..2_000).map(actor).collect());
    // The bytes for the network are the same, in frames that can be read.
    let mut reader = FrameReader::new();
    let (mut rest, mut bytes) = (&packets[..], 0);
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(60_000));
        reader.push(now).expect("frames are taken out");
        while let Some(frame) = reader.next_frame().expect("frames") {
            bytes += frame.payload.len();
        }
        rest = later;
    }
    assert_eq!(bytes, entries.len());
}

#[test]
fn w18_no_delta_is_lost_and_none_comes_twice() {
    for writers in [20u32, 60] {
        let mut stage = Stage::new(settings(&["-dev", "-cfsm=client_authoratative_fsm.json", "-threads=1"]));
        stage.master();
        let clients: Vec<Peer> = (0..writers).map(|_| stage.client()).collect();
        for client in &clients {
            stage.subscribe(client, client, 0, writing(20));
        }
        let reader = stage.client();
        stage.subscribe(&reader, &reader, 0, every(20));
        stage.pass(100);
        let mut random = fastrand::Rng::with_seed(writers.into());
        for sequence in 0..300 {
            for (place, client) in clients.iter().enumerate() {
                // Each at its own moment of the 33 ms, as far as a millisecond has moments.
                if random.u32(..2) == 0 {
                    stage.pass(1);
                }
                let context = vec![throng_channeld::proto::unrealpb::unreal_object_ref::GuidCachedObject {
                    net_guid: place as u32,
                    outer_guid: sequence,
                    ..Default::default()
                }];
                stage.update(client, 0, Any::pack(&UnrealObjectRef { context, ..Default::default() }));
            }
        }
        stage.pass(200);
        let expect = |reader: Option<usize>, stage: &mut Stage, peer: &Peer| {
            let mut next = vec![0; writers as usize];
            for update in stage.updates::<UnrealObjectRef>(peer, 0) {
                for item in update.context {
                    let next = &mut next[item.net_guid as usize];
                    assert_eq!(item.outer_guid, *next, "{writers} writers: lost, doubled or out of order");
                    *next += 1;
                }
            }
            for (writer, &count) in next.iter().enumerate() {
                assert_eq!(count, if Some(writer) == reader { 0 } else { 300 }, "writer {writer}");
            }
        };
        expect(None, &mut stage, &reader);
        for (place, client) in clients.iter().enumerate() {
            expect(Some(place), &mut stage, client);
        }
    }
}

#[test]
fn w19_a_peer_of_the_old_header_logs_in_with_a_short_token_and_two_packets_in_one_read() {
    let mut entries = Vec::new();
    let login = throng_channeld::proto::AuthMessage { player_identifier_token: "tok4".into(), ..Default::default() };
    put_body(&mut entries, Header::new(0, message_type::AUTH), &login);
    let mut bytes = Vec::new();
    PacketWriter::new().write(Dialect::Legacy, &entries, &mut bytes);
    assert_eq!(bytes[2], 0x4E, "the old short form");
    entries.clear();
    put_message(&mut entries, Header::new(0, 150), b"second packet");
    PacketWriter::new().write(Dialect::Legacy, &entries, &mut bytes);
    let mut stage = Stage::new(open_settings());
    let (master, client) = (stage.master(), stage.connect(Side::Client));
    let mut reader = FrameReader::new();
    reader.push(&bytes).expect("room");
    while let Some(frame) = reader.next_frame().expect("frames") {
        for message in Messages::new(frame.payload) {
            stage.engine.receive(stage.now, client.key, message.expect("a message"));
            stage.settle();
        }
    }
    assert_eq!(stage.read_type(&client, message_type::AUTH).len(), 1);
    assert_eq!(stage.read_type(&master, 150).len(), 1, "the second packet is not thrown away");
}

#[test]
fn w20_who_is_late_gets_the_newest_state_once_and_no_replay() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    let clients: Vec<Peer> = (0..150).map(|_| stage.client()).collect();
    for client in &clients {
        stage.subscribe(client, client, 0, every(20));
    }
    stage.update(&owner, 0, number(0));
    stage.pass(100);
    for client in &clients {
        stage.read(client);
    }
    // The machine does nothing for 5 s while updates come in: 250 windows are missed.
    for value in 1..=150 {
        stage.now = stage.now.after(Duration::from_millis(33));
        let update = ChannelDataUpdateMessage { data: Some(number(value)), context_conn_id: 0 };
        let message = throng_channeld::Message {
            channel_id: 0,
            broadcast: 0,
            stub_id: 0,
            msg_type: message_type::CHANNEL_DATA_UPDATE,
            body: prost::Message::encode_to_vec(&update).into(),
        };
        stage.engine.receive(stage.now, owner.key, message);
    }
    let before = stage.engine.counters().clone();
    stage.pass(100);
    for client in &clients {
        assert_eq!(numbers(&mut stage, client, 0), [150]);
    }
    let after = stage.engine.counters();
    assert!(after.frames - before.frames <= 2, "one frame for all of them");
    assert!(after.steps - before.steps <= 4);
}

#[test]
fn w21_several_threads_send_what_one_would() {
    let run = |threads: u32| {
        let mut stage = Stage::new(settings(&["-dev", "-cfsm=client_authoratative_fsm.json"]));
        stage.engine.set_helpers(helpers(threads).expect("there are threads"));
        stage.master();
        let clients: Vec<Peer> = (0..80).map(|_| stage.client()).collect();
        let rooms: Vec<u32> = (0..12).map(|room| stage.create(&clients[room], ChannelType::Test, None)).collect();
        for (place, client) in clients.iter().enumerate() {
            for room in &rooms {
                stage.subscribe(client, client, *room, writing(10 + 5 * (place as u32 % 4)));
            }
        }
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..400 {
            let (client, room) = (random.usize(..80), rooms[random.usize(..12)]);
            let state = SpatialEntityState { removed: random.u8(..5) == 0, ..Default::default() };
            let data = SpatialChannelData { entities: [(random.u32(..6), state)].into() };
            stage.update(&clients[client], room, Any::pack(&data));
            stage.pass(random.u64(..8));
        }
        stage.pass(100);
        let sent = |peer: &Peer| std::mem::take(&mut peer.line.lock().unwrap().bytes);
        clients.iter().map(sent).collect::<Vec<_>>()
    };
    let one = run(1);
    assert!(one.iter().map(Vec::len).sum::<usize>() > 100_000);
    assert!(one == run(4));
}

// Found later.

#[test]
fn a_map_removal_reaches_subscribers_whatever_else_happens_in_its_window() {
    let mut stage = Stage::new(open_settings());
    let (owner, client) = (stage.server(), stage.client());
    let options = ChannelDataMergeOptions { should_check_removable_map_field: true, ..Default::default() };
    let create = CreateChannelMessage {
        channel_type: ChannelType::Test.into(),
        merge_options: Some(options),
        ..Default::default()
    };
    stage.say(&owner, CREATE, &create);
    stage.subscribe(&client, &client, 1, every(100));
    let entity = |id: u32, removed: bool| {
        let object = UnrealObjectRef { net_guid: Some(id), ..Default::default() };
        Any::pack(&SpatialChannelData {
            entities: [(id, SpatialEntityState { removed, obj_ref: Some(object), entity_data: None })].into(),
        })
    };
    (1..=5).for_each(|id| stage.update(&owner, 1, entity(id, false)));
    stage.pass(200);
    stage.read(&client);
    for update in [entity(1, false), entity(2, true), entity(3, false), entity(6, false), entity(6, true)] {
        stage.update(&owner, 1, update);
    }
    stage.pass(200);
    let mut known: BTreeMap<u32, bool> = (1..=5).map(|id| (id, false)).collect();
    for update in stage.updates::<SpatialChannelData>(&client, 1) {
        known.extend(update.entities.into_iter().map(|(id, state)| (id, state.removed)));
    }
    known.retain(|_, removed| !*removed);
    assert_eq!(known.into_keys().collect::<Vec<_>>(), [1, 3, 4, 5]);
}

#[test]
fn a_room_that_goes_with_its_owner_is_announced_as_a_removal_on_its_own_channel() {
    let mut stage = Stage::new(settings(&["-dev", "-chs=hifi", "-cfsm=client_authoratative_fsm.json"]));
    let (owner, client) = (stage.server(), stage.client());
    let room = stage.create(&owner, ChannelType::Private, None);
    stage.subscribe(&client, &client, room, every(20));
    stage.read(&client);
    stage.drop_connection(&owner, EndCause::Lost);
    let told = stage.read(&client);
    assert_eq!((told.len(), told[0].channel_id, told[0].msg_type), (1, room, message_type::REMOVE_CHANNEL));
    assert_eq!(told[0].decode::<RemoveChannelMessage>().expect("a notice").channel_id, room);
}

fn at(x: f32, z: f32) -> Any {
    let position = Some(Vector3f { x, y: 0.0, z });
    Any::pack(&TransformState { position, ..Default::default() })
}

fn make_entity(stage: &mut Stage, server: &Peer, id: u32, place: Any) {
    let create = CreateEntityChannelMessage { entity_id: id, data: Some(place), ..Default::default() };
    stage.say(server, Header::new(0, message_type::CREATE_ENTITY_CHANNEL), &create);
    stage.read(server);
}

fn handovers(stage: &mut Stage, peer: &Peer) -> Vec<ChannelDataHandoverMessage> {
    let messages = stage.read_type(peer, message_type::CHANNEL_DATA_HANDOVER);
    messages.iter().map(|message| message.decode().expect("a handover")).collect()
}

#[test]
fn a_handover_says_on_whose_behalf_it_happened() {
    let (mut stage, servers, _) = world((2, 1), (2, 1));
    make_entity(&mut stage, &servers[0], 0x8_0001, at(5.0, 5.0));
    let update = ChannelDataUpdateMessage { data: Some(at(15.0, 5.0)), context_conn_id: 77 };
    stage.say(&servers[0], Header::new(0x8_0001, message_type::CHANNEL_DATA_UPDATE), &update);
    let told = handovers(&mut stage, &servers[1]);
    assert_eq!(told.len(), 1);
    let expected = (CELL, CELL + 1, 77);
    assert_eq!((told[0].src_channel_id, told[0].dst_channel_id, told[0].context_conn_id), expected);
}

#[test]
fn a_lock_group_locks_without_a_handover_group() {
    let (mut stage, servers, _) = world((2, 1), (2, 1));
    for id in [0x8_0001, 0x8_0002] {
        make_entity(&mut stage, &servers[0], id, at(5.0, 5.0));
    }
    let lock =
        AddEntityGroupMessage { r#type: EntityGroupType::Lock.into(), entities_to_add: vec![0x8_0001, 0x8_0002] };
    stage.say(&servers[0], Header::new(0x8_0001, message_type::ENTITY_GROUP_ADD), &lock);
    stage.update(&servers[0], 0x8_0001, at(15.0, 5.0));
    assert_eq!(handovers(&mut stage, &servers[1]), []);
    assert_eq!(stage.engine.counters().handovers, 0);
}

#[test]
fn a_type_without_settings_has_the_access_rules_of_global() {
    let global = r#"{"1": {"ACLSettings": {"Sub": 3, "Unsub": 3, "Remove": 3}}}"#;
    let mut stage = Stage::new(settings_with(&["-dev", "-chs=types.json"], &[("types.json", global)]));
    let (owner, other, client) = (stage.server(), stage.server(), stage.client());
    let room = stage.create(&owner, ChannelType::Private, None);
    stage.subscribe(&other, &client, room, every(20));
    assert_eq!(stage.read_type(&client, message_type::SUB_TO_CHANNEL).len(), 1);
}

#[test]
fn a_grid_that_does_not_divide_by_its_servers_is_shared_out_whole() {
    for (cells, servers) in [((5, 5), (3, 2)), ((7, 3), (2, 2)), ((8, 1), (3, 1))] {
        let (_, _, results) = world(cells, servers);
        let mut owned: Vec<u32> = results.into_iter().flat_map(|result| result.spatial_channel_id).collect();
        owned.sort_unstable();
        assert_eq!(owned, (CELL..CELL + cells.0 * cells.1).collect::<Vec<_>>(), "{cells:?} {servers:?}");
    }
}

#[test]
fn channels_in_which_nothing_happens_cost_nothing_and_a_client_makes_few() {
    let mut stage = Stage::new(open_settings());
    let (server, client) = (stage.master(), stage.client());
    for _ in 0..5_000 {
        let create = CreateChannelMessage { channel_type: ChannelType::Test.into(), ..Default::default() };
        stage.say(&client, CREATE, &create);
    }
    assert_eq!(stage.engine.occupancy().channels.values().sum::<usize>(), 1 + 16);
    for _ in 0..5_000 {
        stage.create(&server, ChannelType::Test, Some(number(1)));
    }
    stage.pass(6_000);
    let steps = stage.engine.counters().steps;
    stage.pass(60_000);
    assert_eq!(stage.engine.counters().steps, steps);
    assert!(stage.is_at_rest());
}

#[test]
fn an_interval_of_50_days_is_cut_to_a_minute_and_keeps_no_updates() {
    let mut stage = Stage::new(open_settings());
    let (owner, client) = (stage.master(), stage.client());
    stage.subscribe(&client, &client, 0, every(u32::MAX));
    stage.pass(61_000);
    for value in 0..10_000 {
        stage.update(&owner, 0, number(value));
        stage.pass(2);
    }
    stage.pass(60_000);
    let bytes = client.line.lock().unwrap().bytes.len();
    assert_eq!(numbers(&mut stage, &client, 0), [9_999], "they were merged as they came");
    assert!(bytes < 200, "{bytes}");
}
