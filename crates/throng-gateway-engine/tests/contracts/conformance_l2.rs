//! Level 2: channels, subscriptions, state and when it goes out.

use super::stage::{Peer, Stage, every, open_settings, settings, settings_with};
use throng_channeld::proto::unrealpb::unreal_object_ref::GuidCachedObject;
use throng_channeld::proto::unrealpb::{
    ActorState, FVector, SpatialChannelData, SpatialEntityState, SpawnObjectMessage, UnrealObjectRef,
};
use throng_channeld::proto::{
    Any, ChannelDataAccess, ChannelDataMergeOptions, ChannelSubscriptionOptions, ChannelType, ConnectionType,
    CreateChannelMessage, CreateChannelResultMessage, ListChannelMessage, ListChannelResultMessage,
    RemoveChannelMessage, SubscribedToChannelMessage, SubscribedToChannelResultMessage, UnsubscribedFromChannelMessage,
    UnsubscribedFromChannelResultMessage,
};
use throng_channeld::{Header, Message, message_type};
use throng_gateway_engine::port::EndCause;

fn number(value: u32) -> Any {
    Any::pack(&SpawnObjectMessage { channel_id: Some(value), ..Default::default() })
}

fn numbers(stage: &mut Stage, peer: &Peer, channel: u32) -> Vec<u32> {
    stage.updates::<SpawnObjectMessage>(peer, channel).iter().filter_map(|update| update.channel_id).collect()
}

fn creation(kind: ChannelType) -> CreateChannelMessage {
    CreateChannelMessage { channel_type: kind.into(), ..Default::default() }
}

const CREATE: Header = Header { channel_id: 0, broadcast: 0, stub_id: 0, msg_type: message_type::CREATE_CHANNEL };

fn kinds(messages: &[Message]) -> Vec<(u32, u32, u32)> {
    messages.iter().map(|message| (message.channel_id, message.msg_type, message.stub_id)).collect()
}

fn only<M: prost::Message + Default>(messages: &[Message]) -> M {
    let [message] = messages else { panic!("one message is expected: {messages:?}") };
    message.decode().expect("the message of that type")
}

fn access(access: ChannelDataAccess) -> ChannelSubscriptionOptions {
    ChannelSubscriptionOptions { data_access: Some(access.into()), ..Default::default() }
}

// Creating, listing, removing.

#[test]
fn a_creator_is_owner_and_first_subscriber_and_the_master_hears_of_it() {
    let mut stage = Stage::new(open_settings());
    let (master, host) = (stage.master(), stage.client());
    stage.read(&master);
    let create = CreateChannelMessage {
        channel_type: ChannelType::Subworld.into(),
        metadata: "castle".into(),
        sub_options: Some(every(50)),
        ..Default::default()
    };
    let to_host = stage.ask(&host, CREATE.with_stub(3), &create);
    assert_eq!(kinds(&to_host), [(0, message_type::CREATE_CHANNEL, 3), (1, message_type::SUB_TO_CHANNEL, 0)]);
    let created: CreateChannelResultMessage = to_host[0].decode().expect("a result");
    let expected = CreateChannelResultMessage {
        channel_type: ChannelType::Subworld.into(),
        metadata: "castle".into(),
        owner_conn_id: host.id,
        channel_id: 1,
    };
    assert_eq!(created, expected);
    let subscribed: SubscribedToChannelResultMessage = to_host[1].decode().expect("a result");
    assert_eq!((subscribed.conn_id, subscribed.conn_type()), (host.id, ConnectionType::Client));
    assert_eq!(subscribed.channel_type(), ChannelType::Subworld);
    let options = subscribed.sub_options.expect("those in effect");
    assert_eq!((options.fan_out_interval_ms(), options.data_access()), (50, ChannelDataAccess::ReadAccess));
    let to_master = stage.read(&master);
    assert_eq!(kinds(&to_master), [(0, message_type::CREATE_CHANNEL, 0)]);
    assert_eq!(to_master[0].decode::<CreateChannelResultMessage>().expect("a result"), expected);
}

#[test]
fn a_creation_is_answered_byte_for_byte() {
    let mut stage = Stage::new(open_settings());
    let host = stage.server();
    let create = CreateChannelMessage { metadata: "m".into(), ..creation(ChannelType::Test) };
    stage.say(&host, CREATE.with_stub(3), &create);
    let bytes = std::mem::take(&mut host.line.lock().unwrap().bytes);
    // MessagePack{stub 3, type 3, CreateChannelResultMessage{1: 100, 2: "m", 3: 1, 4: 1}}
    let created = [0x0A, 15, 0x18, 3, 0x20, 3, 0x2A, 9, 0x08, 100, 0x12, 1, b'm', 0x18, 1, 0x20, 1];
    // MessagePack{channel 1, type 6, SubscribedToChannelResultMessage{1: 1, 2: {1: READ, 3: 20 ms, 4: 0, 5: true, 6: false},
    //                                                                 3: SERVER, 4: 100}}
    let options = [0x08, 1, 0x18, 20, 0x20, 0, 0x28, 1, 0x30, 0];
    let subscribed = [&[0x0A, 24, 0x08, 1, 0x20, 6, 0x2A, 18, 0x08, 1, 0x12, 10][..], &options, &[0x18, 1, 0x20, 100]];
    assert_eq!(bytes, [&created[..], &subscribed.concat()].concat());
}

#[test]
fn what_cannot_be_created_is_refused_in_silence() {
    // An empty result would be the success of having created GLOBAL to existing clients.
    let mut stage = Stage::new(open_settings());
    let server = stage.master();
    for kind in [ChannelType::Unknown, ChannelType::Entity] {
        let answer: Option<CreateChannelResultMessage> = stage.answer(&server, CREATE, &creation(kind));
        assert_eq!(answer, None, "{kind:?}");
    }
    let unknown = CreateChannelMessage { channel_type: 4_711, ..Default::default() };
    assert_eq!(stage.ask(&server, CREATE, &unknown), [], "nobody waits");
    assert_eq!(stage.refused("not_allowed"), 3);
}

#[test]
fn global_belongs_to_the_first_server_that_asks_until_it_goes() {
    let mut stage = Stage::new(open_settings());
    let (first, second) = (stage.server(), stage.server());
    let global = creation(ChannelType::Global);
    let answer: CreateChannelResultMessage = stage.answer(&first, CREATE, &global).expect("a result");
    assert_eq!((answer.owner_conn_id, answer.channel_id, answer.channel_type()), (first.id, 0, ChannelType::Global));
    let answer: Option<CreateChannelResultMessage> = stage.answer(&second, CREATE, &global);
    assert_eq!(answer, None);
    stage.drop_connection(&first, EndCause::Lost);
    let answer: CreateChannelResultMessage = stage.answer(&second, CREATE, &global).expect("a result");
    assert_eq!(answer.owner_conn_id, second.id);
}

#[test]
fn ordinary_channels_take_the_first_free_number() {
    let mut stage = Stage::new(settings(&["-dev", "-chs=hifi"]));
    let server = stage.master();
    let ids: Vec<u32> = (0..4).map(|_| stage.create(&server, ChannelType::Private, None)).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
    let remove = RemoveChannelMessage { channel_id: 2 };
    stage.say(&server, Header::new(0, message_type::REMOVE_CHANNEL), &remove);
    assert_eq!(stage.create(&server, ChannelType::Subworld, None), 2);
    assert_eq!(stage.create(&server, ChannelType::Subworld, None), 5);
}

#[test]
fn channels_are_listed_by_type_and_by_any_part_of_their_metadata() {
    let mut stage = Stage::new(open_settings());
    let server = stage.master();
    for (kind, metadata) in [
        (ChannelType::Private, "red castle"),
        (ChannelType::Subworld, "blue castle"),
        (ChannelType::Subworld, "blue forest"),
    ] {
        stage.say(&server, CREATE, &CreateChannelMessage { metadata: metadata.into(), ..creation(kind) });
    }
    let client = stage.client();
    let mut list = |kind: i32, filters: &[&str]| -> Vec<u32> {
        let metadata_filters = filters.iter().map(|&filter| filter.to_owned()).collect();
        let wanted = ListChannelMessage { type_filter: kind, metadata_filters };
        let header = Header::new(0, message_type::LIST_CHANNEL);
        let answer: ListChannelResultMessage = stage.answer(&client, header, &wanted).expect("a list");
        answer.channels.iter().map(|info| info.channel_id).collect()
    };
    assert_eq!(list(0, &[]), [0, 1, 2, 3]);
    assert_eq!(list(ChannelType::Subworld.into(), &[]), [2, 3]);
    assert_eq!(list(0, &["castle"]), [1, 2]);
    assert_eq!(list(0, &["red", "forest"]), [1, 3]);
    assert_eq!(list(ChannelType::Subworld.into(), &["castle"]), [2]);
    assert_eq!(list(0, &["Castle"]), [0; 0]);
    assert_eq!(list(ChannelType::Entity.into(), &[]), [0; 0]);
}

#[test]
fn a_list_that_is_too_long_for_a_packet_comes_in_parts_that_all_repeat_the_stub() {
    let mut stage = Stage::new(open_settings());
    let server = stage.master();
    for _ in 0..30 {
        let create = CreateChannelMessage { metadata: "m".repeat(4_000), ..creation(ChannelType::Test) };
        stage.say(&server, CREATE, &create);
    }
    let header = Header::new(0, message_type::LIST_CHANNEL).with_stub(9);
    let answers = stage.ask(&server, header, &ListChannelMessage::default());
    assert!(answers.len() > 1 && answers.iter().all(|answer| answer.stub_id == 9 && answer.body.len() < 65_000));
    let lists = answers.iter().map(|answer| answer.decode::<ListChannelResultMessage>().expect("a list"));
    let ids: Vec<u32> = lists.flat_map(|list| list.channels).map(|info| info.channel_id).collect();
    assert_eq!(ids, (0..=30).collect::<Vec<_>>());
    assert_eq!(stage.refused("list_bytes"), 0);
}

#[test]
fn a_list_that_just_fits_into_a_message_comes_in_one() {
    let mut stage = Stage::new(open_settings());
    let server = stage.master();
    let wanted = ListChannelMessage { type_filter: ChannelType::Test.into(), ..Default::default() };
    let lengths = |stage: &mut Stage, channels: usize| -> Vec<usize> {
        for _ in 0..channels {
            // With 18 bytes around it, each is a sixtieth of a message.
            let create = CreateChannelMessage { metadata: "m".repeat(982), ..creation(ChannelType::Test) };
            stage.say(&server, CREATE, &create);
        }
        let answers = stage.ask(&server, Header::new(0, message_type::LIST_CHANNEL), &wanted);
        let lists = answers.iter().map(|answer| answer.decode::<ListChannelResultMessage>().expect("a list"));
        lists.map(|list| list.channels.len()).collect()
    };
    assert_eq!(lengths(&mut stage, 60), [60]);
    assert_eq!(lengths(&mut stage, 1), [60, 1]);
}

#[test]
fn a_list_ends_at_its_limit_and_what_is_left_out_is_counted() {
    let mut stage = Stage::new(settings(&["-dev", "-limit", "max_list_bytes=100000"]));
    let server = stage.master();
    for _ in 0..30 {
        let create = CreateChannelMessage { metadata: "m".repeat(4_000), ..creation(ChannelType::Test) };
        stage.say(&server, CREATE, &create);
    }
    let answers = stage.ask(&server, Header::new(0, message_type::LIST_CHANNEL), &ListChannelMessage::default());
    let bytes: usize = answers.iter().map(|answer| answer.body.len()).sum();
    assert!((90_000..=100_000).contains(&bytes), "{bytes}");
    assert_eq!(stage.refused("list_bytes"), 1);
}

#[test]
fn refused_lists_queries_and_news_are_not_answered() {
    let mut stage = Stage::new(settings(&[
        "-dev",
        "-cfsm=client_authoratative_fsm.json",
        "-limit",
        "max_client_requests_per_s=1",
        "-clientrights=",
    ]));
    let client = stage.client();
    let list = Header::new(0, message_type::LIST_CHANNEL);
    assert_eq!(stage.ask(&client, list, &ListChannelMessage::default()).len(), 1);
    assert_eq!(stage.ask(&client, list, &ListChannelMessage::default()), [], "an empty list would be a list");
    assert_eq!(stage.refused("client_requests"), 1);
    let query = Header::new(0, message_type::QUERY_SPATIAL_CHANNEL);
    let server = stage.server();
    let answers = stage.ask(&server, query, &throng_channeld::proto::QuerySpatialChannelMessage::default());
    assert_eq!((answers.len(), stage.refused("no_spatial_world")), (0, 1));
    for stub_id in [0, 3] {
        stage.pass(2_000);
        assert_eq!(stage.ask(&client, CREATE.with_stub(stub_id), &creation(ChannelType::Test)), []);
    }
    assert_eq!(stage.refused("not_allowed"), 2);
}

#[test]
fn a_removal_is_told_to_every_subscriber_and_answered_to_the_sender() {
    let mut stage = Stage::new(settings(&["-dev", "-chs=hifi", "-cfsm=client_authoratative_fsm.json"]));
    let (master, owner, client) = (stage.master(), stage.server(), stage.client());
    let room = stage.create(&owner, ChannelType::Subworld, None);
    stage.subscribe(&client, &client, room, every(20));
    stage.read(&client);
    stage.read(&owner);
    let remove = RemoveChannelMessage { channel_id: room };
    // The master may: the setting says "owner or owner of GLOBAL".
    let answer = stage.ask(&master, Header::new(0, message_type::REMOVE_CHANNEL).with_stub(6), &remove);
    assert_eq!(kinds(&answer), [(room, message_type::REMOVE_CHANNEL, 6)]);
    for peer in [&owner, &client] {
        let told = stage.read(peer);
        assert_eq!(kinds(&told), [(room, message_type::REMOVE_CHANNEL, 0)]);
        assert_eq!(only::<RemoveChannelMessage>(&told), remove);
    }
    assert_eq!(stage.ask(&master, Header::new(0, message_type::REMOVE_CHANNEL), &remove), []);
    assert_eq!(stage.refused("unknown_channel"), 1);
}

#[test]
fn nobody_removes_global() {
    let everybody = r#"{"1": {"ACLSettings": {"Sub": 3, "Unsub": 3, "Remove": 3}}}"#;
    let mut stage = Stage::new(settings_with(&["-dev", "-chs=all.json"], &[("all.json", everybody)]));
    let (master, client) = (stage.master(), stage.client());
    stage.update(&master, 0, number(1));
    stage.subscribe(&master, &client, 0, every(20));
    stage.pass(50);
    assert_eq!(numbers(&mut stage, &client, 0), [1]);
    stage.say(&master, Header::new(0, message_type::REMOVE_CHANNEL), &RemoveChannelMessage { channel_id: 0 });
    assert_eq!(stage.refused("not_allowed"), 1);
    for peer in [&master, &client] {
        assert_eq!(stage.read_type(peer, message_type::REMOVE_CHANNEL), []);
    }
    // It is as it was: its owner writes, and its subscriber gets what changes.
    stage.update(&master, 0, number(2));
    stage.pass(50);
    assert_eq!(numbers(&mut stage, &client, 0), [2]);
}

// Subscribing.

#[test]
fn a_subscription_is_told_to_who_asked_who_it_concerns_and_the_owner() {
    let mut stage = Stage::new(settings(&["-dev", "-chs=hifi"]));
    let (owner, other, client) = (stage.server(), stage.server(), stage.client());
    let room = stage.create(&owner, ChannelType::Subworld, None);
    stage.read(&owner);
    let subscribe = SubscribedToChannelMessage { conn_id: client.id, sub_options: None };
    let header = Header::new(room, message_type::SUB_TO_CHANNEL);
    let to_other = stage.ask(&other, header.with_stub(8), &subscribe);
    let (to_client, to_owner) = (stage.read(&client), stage.read(&owner));
    assert_eq!(kinds(&to_other), [(room, message_type::SUB_TO_CHANNEL, 8)]);
    for copy in [&to_client, &to_owner] {
        assert_eq!(kinds(copy), [(room, message_type::SUB_TO_CHANNEL, 0)]);
        assert_eq!(copy[0].body, to_other[0].body);
    }
    let result: SubscribedToChannelResultMessage = only(&to_client);
    let defaults = ChannelSubscriptionOptions {
        data_access: Some(ChannelDataAccess::ReadAccess.into()),
        data_field_masks: Vec::new(),
        fan_out_interval_ms: Some(20),
        fan_out_delay_ms: Some(0),
        skip_self_update_fan_out: Some(true),
        skip_first_fan_out: Some(false),
        reliable_fan_out: None,
    };
    let expected = SubscribedToChannelResultMessage {
        conn_id: client.id,
        sub_options: Some(defaults),
        conn_type: ConnectionType::Client.into(),
        channel_type: ChannelType::Subworld.into(),
    };
    assert_eq!(result, expected);
}

#[test]
fn a_client_subscribes_itself_whomever_it_names() {
    let mut stage = Stage::new(open_settings());
    let (_, a, b) = (stage.master(), stage.client(), stage.client());
    let subscribe = SubscribedToChannelMessage { conn_id: b.id, sub_options: None };
    let answer = stage.ask(&a, Header::new(0, message_type::SUB_TO_CHANNEL), &subscribe);
    assert_eq!(only::<SubscribedToChannelResultMessage>(&answer).conn_id, a.id);
    assert_eq!(stage.read(&b), []);
}

#[test]
fn subscribing_again_lays_options_over_the_former_and_is_news_only_if_the_access_changes() {
    let mut stage = Stage::new(open_settings());
    let (_, client) = (stage.master(), stage.client());
    let header = Header::new(0, message_type::SUB_TO_CHANNEL);
    let mut subscribe = |options: ChannelSubscriptionOptions| {
        let wanted = SubscribedToChannelMessage { conn_id: 0, sub_options: Some(options) };
        stage.ask(&client, header, &wanted)
    };
    assert_eq!(subscribe(every(70)).len(), 1);
    assert_eq!(subscribe(every(90)), [], "nobody has to know how often");
    let skips = ChannelSubscriptionOptions { skip_self_update_fan_out: Some(false), ..Default::default() };
    assert_eq!(subscribe(skips), []);
    let told = subscribe(access(ChannelDataAccess::WriteAccess));
    let result: SubscribedToChannelResultMessage = only(&told);
    let options = result.sub_options.expect("those in effect");
    assert_eq!(options.fan_out_interval_ms(), 90);
    assert!(!options.skip_self_update_fan_out() && options.data_access() == ChannelDataAccess::WriteAccess);
    assert_eq!(subscribe(access(ChannelDataAccess::WriteAccess)), []);
}

#[test]
fn unsubscribing_is_told_to_the_same_three() {
    let mut stage = Stage::new(settings(&["-dev", "-chs=hifi"]));
    let (owner, other, client) = (stage.server(), stage.server(), stage.client());
    let room = stage.create(&owner, ChannelType::Subworld, None);
    stage.subscribe(&other, &client, room, every(20));
    stage.read(&client);
    stage.read(&owner);
    let header = Header::new(room, message_type::UNSUB_FROM_CHANNEL);
    let to_other = stage.ask(&other, header.with_stub(8), &UnsubscribedFromChannelMessage { conn_id: client.id });
    assert_eq!(kinds(&to_other), [(room, message_type::UNSUB_FROM_CHANNEL, 8)]);
    let expected = UnsubscribedFromChannelResultMessage {
        conn_id: client.id,
        conn_type: ConnectionType::Client.into(),
        channel_type: ChannelType::Subworld.into(),
    };
    for peer in [&client, &owner] {
        let told = stage.read(peer);
        assert_eq!(kinds(&told), [(room, message_type::UNSUB_FROM_CHANNEL, 0)]);
        assert_eq!(only::<UnsubscribedFromChannelResultMessage>(&told), expected);
    }
    stage.update(&owner, room, number(1));
    stage.pass(100);
    assert_eq!(stage.read(&client), []);
    assert_eq!(stage.ask(&other, header, &UnsubscribedFromChannelMessage { conn_id: client.id }), []);
}

#[test]
fn an_owner_that_unsubscribes_itself_leaves_the_channel_without_owner() {
    let mut stage = Stage::new(open_settings());
    let (owner, other) = (stage.server(), stage.server());
    let room = stage.create(&owner, ChannelType::Subworld, None);
    stage.update(&other, room, number(1));
    assert_eq!(stage.engine.counters().updates, 1, "a server speaks for the owner");
    let header = Header::new(room, message_type::UNSUB_FROM_CHANNEL);
    assert_eq!(stage.ask(&owner, header, &UnsubscribedFromChannelMessage { conn_id: owner.id }).len(), 1);
    for peer in [&owner, &other] {
        stage.update(peer, room, number(2));
    }
    assert_eq!(stage.refused("no_write_access"), 2);
    let client = stage.client();
    stage.say_bytes(&client, Header::new(room, 100), "anybody?");
    assert_eq!(stage.refused("no_owner"), 1);
}

#[test]
fn a_subscription_without_access_has_a_place_and_gets_nothing() {
    let mut stage = Stage::new(open_settings());
    let (owner, client) = (stage.master(), stage.client());
    stage.update(&owner, 0, number(1));
    stage.subscribe(&client, &client, 0, access(ChannelDataAccess::NoAccess));
    for value in 2..5 {
        stage.update(&owner, 0, number(value));
        stage.pass(50);
    }
    assert_eq!(numbers(&mut stage, &client, 0), [0; 0]);
    stage.subscribe(&client, &client, 0, access(ChannelDataAccess::ReadAccess));
    stage.pass(50);
    assert_eq!(numbers(&mut stage, &client, 0), [4], "everything, as it is by now");
}

// The content of a channel.

#[test]
fn the_first_update_becomes_the_state_if_nothing_is_said_of_its_type() {
    let mut stage = Stage::new(open_settings());
    let (owner, client) = (stage.master(), stage.client());
    stage.subscribe(&client, &client, 0, every(20));
    stage.pass(100);
    assert!(stage.read_type(&client, message_type::CHANNEL_DATA_UPDATE).is_empty());
    stage.update(&owner, 0, number(5));
    stage.pass(50);
    assert_eq!(numbers(&mut stage, &client, 0), [5]);
}

#[test]
fn a_channel_whose_type_is_known_begins_with_an_empty_state_of_it() {
    let typed = r#"{"1": {"DataMsgFullName": "unrealpb.SpawnObjectMessage"}}"#;
    let mut stage = Stage::new(settings_with(
        &["-dev", "-chs=typed.json", "-cfsm=client_authoratative_fsm.json"],
        &[("typed.json", typed)],
    ));
    let (owner, client) = (stage.master(), stage.client());
    stage.subscribe(&client, &client, 0, every(20));
    stage.pass(100);
    let first = stage.updates::<SpawnObjectMessage>(&client, 0);
    assert_eq!(first, [SpawnObjectMessage::default()], "everything, which is nothing yet");
    stage.update(&owner, 0, Any::pack(&FVector::default()));
    assert_eq!(stage.refused("wrong_type"), 1);
    stage.update(&owner, 0, number(5));
    stage.pass(50);
    assert_eq!(numbers(&mut stage, &client, 0), [5]);
    // Data that is given at creation outdoes the expectation.
    let room =
        stage.create(&owner, ChannelType::Test, Some(Any::pack(&FVector { x: Some(1.0), ..Default::default() })));
    stage.subscribe(&client, &client, room, every(20));
    stage.pass(50);
    assert_eq!(stage.updates::<FVector>(&client, room), [FVector { x: Some(1.0), ..Default::default() }]);
}

#[test]
fn data_given_at_creation_is_the_state() {
    let mut stage = Stage::new(open_settings());
    let (owner, client) = (stage.master(), stage.client());
    let room = stage.create(&owner, ChannelType::Test, Some(number(9)));
    stage.subscribe(&client, &client, room, every(20));
    stage.pass(50);
    assert_eq!(numbers(&mut stage, &client, room), [9]);
}

#[test]
fn owners_write_and_writers_and_servers_as_long_as_there_is_an_owner() {
    let mut stage = Stage::new(open_settings());
    let (owner, server) = (stage.server(), stage.server());
    let (writer, reader, stranger) = (stage.client(), stage.client(), stage.client());
    let room = stage.create(&owner, ChannelType::Test, None);
    stage.subscribe(&writer, &writer, room, access(ChannelDataAccess::WriteAccess));
    stage.subscribe(&reader, &reader, room, access(ChannelDataAccess::ReadAccess));
    for (peer, may) in [(&owner, true), (&server, true), (&writer, true), (&reader, false), (&stranger, false)] {
        let before = stage.engine.counters().updates;
        stage.update(peer, room, number(peer.id));
        assert_eq!(stage.engine.counters().updates - before, u64::from(may), "{}", peer.id);
    }
    stage.drop_connection(&owner, EndCause::Lost);
    for (peer, may) in [(&server, false), (&writer, true)] {
        let before = stage.engine.counters().updates;
        stage.update(peer, room, number(peer.id));
        assert_eq!(stage.engine.counters().updates - before, u64::from(may), "{} without owner", peer.id);
    }
    assert_eq!(stage.refused("no_write_access"), 3);
}

#[test]
fn what_another_server_writes_counts_as_the_owners_word() {
    let mut stage = Stage::new(open_settings());
    let (owner, server, client) = (stage.server(), stage.server(), stage.client());
    let room = stage.create(&owner, ChannelType::Test, None);
    stage.subscribe(&server, &server, room, every(20));
    stage.subscribe(&client, &client, room, every(20));
    stage.pass(50);
    stage.update(&server, room, number(3));
    stage.pass(50);
    assert_eq!(numbers(&mut stage, &owner, room), [0; 0], "its own word is not told to it");
    assert_eq!(numbers(&mut stage, &server, room), [3], "the server that said it reads it like anybody");
    assert_eq!(numbers(&mut stage, &client, room), [3]);
}

fn tags(names: &[u32]) -> Any {
    let context = names.iter().map(|&name| GuidCachedObject { net_guid: name, ..Default::default() }).collect();
    Any::pack(&UnrealObjectRef { context, ..Default::default() })
}

#[test]
fn lists_grow_or_are_replaced_or_bounded_as_the_channel_was_told() {
    let usual = ChannelDataMergeOptions::default;
    let replace = ChannelDataMergeOptions { should_replace_list: true, ..usual() };
    let top = ChannelDataMergeOptions { list_size_limit: 3, truncate_top: true, ..usual() };
    let bottom = ChannelDataMergeOptions { list_size_limit: 3, truncate_top: false, ..usual() };
    for (options, expected) in
        [(usual(), &[1, 2, 3, 4, 5][..]), (replace, &[4, 5]), (top, &[3, 4, 5]), (bottom, &[1, 2, 3])]
    {
        let mut stage = Stage::new(open_settings());
        let (owner, late) = (stage.server(), stage.client());
        let create = CreateChannelMessage {
            data: Some(tags(&[1, 2])),
            merge_options: Some(options),
            ..creation(ChannelType::Test)
        };
        stage.say(&owner, CREATE, &create);
        stage.update(&owner, 1, tags(&[3]));
        stage.update(&owner, 1, tags(&[4, 5]));
        stage.subscribe(&late, &late, 1, every(20));
        stage.pass(50);
        let all: Vec<u32> = stage.updates::<UnrealObjectRef>(&late, 1).iter().flat_map(guids).collect();
        assert_eq!(all, expected, "{options:?}");
    }
}

fn guids(state: &UnrealObjectRef) -> Vec<u32> {
    state.context.iter().map(|object| object.net_guid).collect()
}

fn entity(id: u32, removed: bool) -> Any {
    let state = SpatialEntityState { removed, ..Default::default() };
    Any::pack(&SpatialChannelData { entities: [(id, state)].into() })
}

#[test]
fn map_entries_that_say_so_are_removed_if_the_channel_was_told() {
    for (checks, expected) in [(false, 2), (true, 1)] {
        let mut stage = Stage::new(open_settings());
        let (owner, late) = (stage.server(), stage.client());
        let options = ChannelDataMergeOptions { should_check_removable_map_field: checks, ..Default::default() };
        let create = CreateChannelMessage { merge_options: Some(options), ..creation(ChannelType::Test) };
        stage.say(&owner, CREATE, &create);
        for (id, removed) in [(1, false), (2, false), (1, true)] {
            stage.update(&owner, 1, entity(id, removed));
        }
        stage.subscribe(&late, &late, 1, every(20));
        stage.pass(50);
        let all = stage.updates::<SpatialChannelData>(&late, 1);
        assert_eq!(all.iter().map(|data| data.entities.len()).sum::<usize>(), expected, "{checks}");
    }
}

#[test]
fn the_master_may_say_later_how_global_is_merged() {
    let mut stage = Stage::new(open_settings());
    let (master, late) = (stage.master(), stage.client());
    stage.update(&master, 0, tags(&[1]));
    let replace = ChannelDataMergeOptions { should_replace_list: true, ..Default::default() };
    let again = CreateChannelMessage { merge_options: Some(replace), ..creation(ChannelType::Global) };
    stage.say(&master, CREATE, &again);
    stage.update(&master, 0, tags(&[2]));
    stage.subscribe(&late, &late, 0, every(20));
    stage.pass(50);
    let all: Vec<u32> = stage.updates::<UnrealObjectRef>(&late, 0).iter().flat_map(guids).collect();
    assert_eq!(all, [2]);
}

// When state goes out.

/// The results of a channel within some time, and after how many ms.
fn watch(stage: &mut Stage, ms: u64, peer: &Peer, channel: u32) -> Vec<(u64, u32)> {
    let mut seen = Vec::new();
    for at in 1..=ms {
        stage.pass(1);
        seen.extend(numbers(stage, peer, channel).into_iter().map(|value| (at, value)));
    }
    seen
}

#[test]
fn the_fan_out_table_of_the_design_holds() {
    // Two subscribers of 50 and 100 ms, updates at 60, 120 and 240 ms, ticks of 10 ms.
    let ticks = r#"{"1": {"TickIntervalMs": 10}}"#;
    let arguments = ["-dev", "-chs=ticks.json", "-cfsm=client_authoratative_fsm.json"];
    let mut stage = Stage::new(settings_with(&arguments, &[("ticks.json", ticks)]));
    let owner = stage.server();
    let (fast, slow) = (stage.client(), stage.client());
    let channel = stage.create(&owner, ChannelType::Test, Some(number(0)));
    stage.subscribe(&fast, &fast, channel, every(50));
    stage.subscribe(&slow, &slow, channel, every(100));
    let mut seen = [Vec::new(), Vec::new()];
    for ms in 1..=400 {
        match ms {
            60 => stage.update(&owner, channel, number(1)),
            120 => stage.update(&owner, channel, number(2)),
            240 => stage.update(&owner, channel, number(3)),
            _ => {}
        }
        stage.pass(1);
        for (peer, seen) in [&fast, &slow].into_iter().zip(&mut seen) {
            seen.extend(numbers(&mut stage, peer, channel).into_iter().map(|value| (ms, value)));
        }
    }
    assert_eq!(seen[0], [(50, 0), (100, 1), (150, 2), (250, 3)]);
    assert_eq!(seen[1], [(100, 1), (200, 2), (300, 3)], "the first is everything, as it is by then");
}

#[test]
fn a_delay_puts_the_first_fan_out_off_and_a_negative_one_brings_it_forward() {
    for (delay_ms, first_at) in [(0, 50), (200, 250), (-30, 20), (-1_000, 1), (-10_000, 1)] {
        let mut stage = Stage::new(open_settings());
        let owner = stage.server();
        let client = stage.client();
        let channel = stage.create(&owner, ChannelType::Test, Some(number(7)));
        stage.pass(300);
        let options = ChannelSubscriptionOptions { fan_out_delay_ms: Some(delay_ms), ..every(50) };
        stage.subscribe(&client, &client, channel, options);
        let seen = watch(&mut stage, 400, &client, channel);
        assert_eq!(seen.len(), 1, "{delay_ms}: {seen:?}");
        assert!(seen[0].0.abs_diff(first_at) <= 20, "{delay_ms}: {seen:?}; the channel's tick is 20 ms");
    }
}

#[test]
fn a_subscriber_that_skips_the_first_fan_out_gets_only_changes() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.server();
    let client = stage.client();
    let channel = stage.create(&owner, ChannelType::Test, Some(number(7)));
    stage.pass(100);
    let options = ChannelSubscriptionOptions { skip_first_fan_out: Some(true), ..every(20) };
    stage.subscribe(&client, &client, channel, options);
    stage.pass(100);
    assert_eq!(numbers(&mut stage, &client, channel), [0; 0]);
    stage.update(&owner, channel, number(8));
    stage.pass(100);
    assert_eq!(numbers(&mut stage, &client, channel), [8]);
}

#[test]
fn a_subscriber_that_does_not_skip_its_own_updates_gets_them() {
    let mut stage = Stage::new(open_settings());
    let (owner, client) = (stage.master(), stage.client());
    let options = ChannelSubscriptionOptions {
        skip_self_update_fan_out: Some(false),
        fan_out_interval_ms: Some(20),
        ..access(ChannelDataAccess::WriteAccess)
    };
    stage.subscribe(&client, &client, 0, options);
    stage.update(&owner, 0, number(1));
    stage.pass(50);
    stage.read(&client);
    stage.update(&client, 0, number(2));
    stage.pass(50);
    assert_eq!(numbers(&mut stage, &client, 0), [2]);
}

#[test]
fn updates_that_their_only_reader_skips_are_encoded_for_nobody() {
    let mut stage = Stage::new(open_settings());
    let (owner, client) = (stage.master(), stage.client());
    let room = stage.create(&owner, ChannelType::Test, Some(number(7)));
    let skipping = |skips| ChannelSubscriptionOptions {
        skip_self_update_fan_out: Some(skips),
        fan_out_interval_ms: Some(20),
        ..access(ChannelDataAccess::WriteAccess)
    };
    stage.subscribe(&owner, &owner, room, skipping(true));
    stage.pass(100);
    stage.read(&owner);
    let write = |stage: &mut Stage, from: &Peer, values: std::ops::Range<u32>| {
        let before = stage.engine.counters().frames;
        for value in values {
            stage.update(from, room, number(value));
            stage.pass(50);
        }
        let frames = stage.engine.counters().frames - before;
        (frames, numbers(stage, &owner, room))
    };
    assert_eq!(write(&mut stage, &owner, 10..14), (0, vec![]));
    // The first writer is another one again and again.
    stage.subscribe(
        &owner,
        &client,
        room,
        ChannelSubscriptionOptions { data_access: skipping(true).data_access, ..every(60_000) },
    );
    stage.pass(100);
    stage.read(&client);
    assert_eq!(write(&mut stage, &client, 20..22), (2, vec![20, 21]));
    assert_eq!(write(&mut stage, &owner, 30..33), (0, vec![]));
    stage.update(&client, room, number(40));
    assert_eq!(write(&mut stage, &owner, 41..42), (1, vec![]), "nothing is left of what the other has written");
    // It wants its own from now on, and then does not.
    stage.subscribe(&owner, &owner, room, skipping(false));
    assert_eq!(write(&mut stage, &owner, 50..52), (2, vec![50, 51]));
    stage.subscribe(&owner, &owner, room, skipping(true));
    assert_eq!(write(&mut stage, &owner, 60..62), (0, vec![]));
}

#[test]
fn another_interval_holds_at_once() {
    let mut stage = Stage::new(open_settings());
    let (owner, client) = (stage.master(), stage.client());
    stage.update(&owner, 0, number(0));
    stage.subscribe(&client, &client, 0, every(1_000));
    stage.pass(1_100);
    stage.read(&client);
    stage.update(&owner, 0, number(1));
    stage.subscribe(&client, &client, 0, every(50));
    let seen = watch(&mut stage, 100, &client, 0);
    assert!(matches!(seen[..], [(..=60, 1)]), "{seen:?}");
    stage.subscribe(&client, &client, 0, every(1_000));
    stage.update(&owner, 0, number(2));
    stage.pass(60);
    stage.read(&client);
    stage.update(&owner, 0, number(3));
    let seen = watch(&mut stage, 1_100, &client, 0);
    assert!(matches!(seen[..], [(900.., 3)]), "{seen:?}");
}

#[test]
fn intervals_and_delays_beyond_the_limits_are_cut_and_the_answer_says_so() {
    let mut stage = Stage::new(open_settings());
    let (_, client) = (stage.master(), stage.client());
    for (asked, delay, given) in [(0, i32::MIN, (5, -10_000)), (u32::MAX, i32::MAX, (60_000, 60_000))] {
        let room = stage.create(&client, ChannelType::Test, None);
        let other = stage.client();
        let options = ChannelSubscriptionOptions { fan_out_delay_ms: Some(delay), ..every(asked) };
        let wanted = SubscribedToChannelMessage { conn_id: 0, sub_options: Some(options) };
        let told = stage.ask(&other, Header::new(room, message_type::SUB_TO_CHANNEL), &wanted);
        let options = only::<SubscribedToChannelResultMessage>(&told).sub_options.expect("those in effect");
        assert_eq!((options.fan_out_interval_ms(), options.fan_out_delay_ms()), given);
    }
}

fn actor() -> ActorState {
    let owner = UnrealObjectRef { net_guid: Some(7), class_path: Some("/Game/Hero".into()), ..Default::default() };
    ActorState { owning_conn_id: Some(1), local_role: Some(3), owner: Some(owner), ..Default::default() }
}

fn masked(paths: &[&str]) -> ChannelSubscriptionOptions {
    let masks = paths.iter().map(|&path| path.to_owned()).collect();
    ChannelSubscriptionOptions { data_field_masks: masks, ..every(20) }
}

#[test]
fn field_masks_show_each_subscriber_its_own_part() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.server();
    let (some, all) = (stage.client(), stage.client());
    let channel = stage.create(&owner, ChannelType::Test, Some(Any::pack(&actor())));
    stage.subscribe(&some, &some, channel, masked(&["localRole", "owner.netGUID"]));
    stage.subscribe(&all, &all, channel, every(20));
    stage.pass(50);
    let part = ActorState {
        local_role: Some(3),
        owner: Some(UnrealObjectRef { net_guid: Some(7), ..Default::default() }),
        ..Default::default()
    };
    assert_eq!(stage.updates::<ActorState>(&some, channel), [part]);
    assert_eq!(stage.updates::<ActorState>(&all, channel), [actor()]);
    let change = ActorState { owning_conn_id: Some(2), ..Default::default() };
    stage.update(&owner, channel, Any::pack(&change));
    stage.pass(50);
    assert_eq!(stage.updates::<ActorState>(&some, channel), []);
    assert_eq!(stage.updates::<ActorState>(&all, channel), [change]);
    stage.subscribe(&some, &some, channel, masked(&["owningConnId"]));
    stage.pass(50);
    let widened = ActorState { owning_conn_id: Some(2), ..Default::default() };
    assert_eq!(stage.updates::<ActorState>(&some, channel), [widened], "what was hidden before has to be told");
}

#[test]
fn field_masks_are_bounded() {
    let limits = ["max_field_masks=2", "max_field_mask_bytes=20", "max_mask_sets=1"];
    let mut arguments = vec!["-dev", "-cfsm=client_authoratative_fsm.json"];
    limits.iter().for_each(|limit| arguments.extend(["-limit", *limit]));
    let mut stage = Stage::new(settings(&arguments));
    let owner = stage.server();
    let (a, b) = (stage.client(), stage.client());
    let channel = stage.create(&owner, ChannelType::Test, Some(Any::pack(&actor())));
    for (paths, tag) in
        [(&["localRole", "owner", "bHidden"][..], "field_masks"), (&["owner.netGUID.netGUID"], "field_mask_bytes")]
    {
        stage.subscribe(&a, &a, channel, masked(paths));
        assert_eq!(stage.refused(tag), 1, "{tag}");
    }
    stage.subscribe(&a, &a, channel, masked(&["localRole"]));
    stage.subscribe(&b, &b, channel, masked(&["bHidden"]));
    assert_eq!(stage.refused("mask_sets"), 1);
    stage.subscribe(&b, &b, channel, masked(&["localRole"]));
    stage.pass(50);
    for peer in [&a, &b] {
        let part = ActorState { local_role: Some(3), ..Default::default() };
        assert_eq!(stage.updates::<ActorState>(peer, channel), [part]);
    }
}

#[test]
fn masks_that_nobody_uses_any_more_make_room_for_others() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.server();
    let client = stage.client();
    let channel = stage.create(&owner, ChannelType::Test, Some(Any::pack(&actor())));
    // More different ones than the gateway keeps at once; field numbers are understood where names are.
    for mask in 0..10_000 {
        stage.subscribe(&client, &client, channel, masked(&["1", &format!("6.{}", mask + 100)]));
        if mask % 10 == 0 {
            stage.pass(10);
        }
    }
    assert_eq!(stage.refused("masks"), 0);
    stage.subscribe(&client, &client, channel, masked(&["localRole"]));
    stage.read(&client);
    stage.pass(50);
    let part = ActorState { local_role: Some(3), ..Default::default() };
    assert_eq!(stage.updates::<ActorState>(&client, channel), [part]);
}

// When connections go.

#[test]
fn the_owner_learns_who_is_gone() {
    let mut stage = Stage::new(open_settings());
    let (owner, client) = (stage.server(), stage.client());
    let room = stage.create(&owner, ChannelType::Test, None);
    stage.subscribe(&client, &client, room, every(20));
    stage.read(&owner);
    stage.drop_connection(&client, EndCause::Lost);
    let told = stage.read(&owner);
    assert_eq!(kinds(&told), [(room, message_type::UNSUB_FROM_CHANNEL, 0)]);
    let result: UnsubscribedFromChannelResultMessage = only(&told);
    assert_eq!((result.conn_id, result.conn_type()), (client.id, ConnectionType::Client));
}

#[test]
fn a_channel_stays_or_goes_with_its_owner_as_its_type_says() {
    // hifi: private rooms and subworlds go, GLOBAL and entities stay, tests are like GLOBAL.
    for (kind, goes) in [(ChannelType::Private, true), (ChannelType::Subworld, true), (ChannelType::Test, false)] {
        let mut stage = Stage::new(settings(&["-dev", "-chs=hifi", "-cfsm=client_authoratative_fsm.json"]));
        let (owner, client) = (stage.server(), stage.client());
        let room = stage.create(&owner, kind, Some(number(1)));
        stage.subscribe(&client, &client, room, every(20));
        stage.pass(50);
        stage.read(&client);
        stage.drop_connection(&owner, EndCause::Lost);
        let expected: &[_] = if goes { &[(room, message_type::REMOVE_CHANNEL, 0)] } else { &[] };
        assert_eq!(kinds(&stage.read(&client)), expected, "{kind:?}");
        let list = Header::new(0, message_type::LIST_CHANNEL);
        let answer: ListChannelResultMessage = stage.answer(&client, list, &ListChannelMessage::default()).expect("it");
        assert_eq!(answer.channels.len(), if goes { 1 } else { 2 }, "{kind:?}");
        assert_eq!(stage.create(&client, kind, None), if goes { room } else { room + 1 });
    }
}

#[test]
fn what_was_created_counts_until_it_is_gone() {
    let mut stage = Stage::new(settings(&[
        "-dev",
        "-chs=hifi",
        "-cfsm=client_authoratative_fsm.json",
        "-limit",
        "max_client_channels=2",
    ]));
    let (_, client) = (stage.master(), stage.client());
    let rooms = [(); 2].map(|()| stage.create(&client, ChannelType::Private, None));
    let answer: Option<CreateChannelResultMessage> = stage.answer(&client, CREATE, &creation(ChannelType::Private));
    assert_eq!((answer, stage.refused("channels_created")), (None, 1));
    let remove = RemoveChannelMessage { channel_id: rooms[0] };
    stage.say(&client, Header::new(0, message_type::REMOVE_CHANNEL), &remove);
    assert_eq!(stage.create(&client, ChannelType::Private, None), rooms[0]);
}

#[test]
fn the_limits_of_subscriptions_channels_and_state_are_kept() {
    let limits =
        ["max_client_subscriptions=2", "max_channels=4", "max_total_state_bytes=1048576", "max_metadata_bytes=8"];
    let mut arguments = vec!["-dev", "-chs=hifi", "-cfsm=client_authoratative_fsm.json"];
    limits.iter().for_each(|limit| arguments.extend(["-limit", *limit]));
    let mut stage = Stage::new(settings(&arguments));
    let (server, client) = (stage.master(), stage.client());
    let rooms: Vec<u32> = (0..4).map(|_| stage.create(&server, ChannelType::Private, None)).collect();
    let answer: Option<CreateChannelResultMessage> = stage.answer(&server, CREATE, &creation(ChannelType::Private));
    assert_eq!((answer, stage.refused("channels")), (None, 1));
    for &room in &rooms[..3] {
        stage.subscribe(&client, &client, room, every(20));
    }
    assert_eq!(stage.refused("client_subscriptions"), 1);
    let long = CreateChannelMessage { metadata: "too long!".into(), ..creation(ChannelType::Private) };
    stage.say(&server, CREATE, &long);
    assert_eq!(stage.refused("metadata_bytes"), 1);
    let big = |bytes: usize| Any::pack(&UnrealObjectRef { class_path: Some("x".repeat(bytes)), ..Default::default() });
    // 55,000 bytes are what one message can bring; a state may have many of them.
    let many = |bytes: usize| {
        let context =
            (0..bytes / 50_000).map(|_| GuidCachedObject { path_name: "x".repeat(50_000), ..Default::default() });
        Any::pack(&UnrealObjectRef { context: context.collect(), ..Default::default() })
    };
    for &room in &rooms[..3] {
        stage.update(&server, room, many(400_000));
    }
    assert_eq!(stage.refused("total_state_bytes"), 1);
    stage.update(&server, rooms[0], big(10));
    let used = stage.engine.state_bytes();
    stage.say(&server, Header::new(0, message_type::REMOVE_CHANNEL), &RemoveChannelMessage { channel_id: rooms[0] });
    assert!(stage.engine.state_bytes() + 400_000 <= used);
    stage.update(&server, rooms[2], many(400_000));
    assert_eq!(stage.refused("total_state_bytes"), 1, "there is room again");
}

#[test]
fn new_settings_hold_for_what_exists() {
    let slow = r#"{"1": {"TickIntervalMs": 100, "ACLSettings": {"Sub": 0, "Unsub": 0, "Remove": 0}}}"#;
    let open = r#"{"1": {"TickIntervalMs": 10, "ACLSettings": {"Sub": 3, "Unsub": 3, "Remove": 3}}}"#;
    let read = |text: &str| settings_with(&["-dev", "-chs=types.json"], &[("types.json", text)]);
    let mut stage = Stage::new(read(slow));
    let (owner, other, client) = (stage.server(), stage.server(), stage.client());
    let room = stage.create(&owner, ChannelType::Test, None);
    stage.subscribe(&other, &client, room, every(20));
    assert_eq!(stage.refused("not_allowed"), 1);
    stage.engine.reload(std::sync::Arc::new(read(open)));
    stage.subscribe(&other, &client, room, every(20));
    assert_eq!(stage.read(&client).len(), 1);
    stage.update(&owner, room, number(1));
    let seen = watch(&mut stage, 90, &client, room);
    assert!(matches!(seen[..], [(..=50, 1)]), "{seen:?}");
}
