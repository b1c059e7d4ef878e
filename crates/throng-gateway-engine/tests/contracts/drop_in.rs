//! The assumptions of clients and servers that were made for channeld.

use std::path::Path;

use super::stage::world::{Cut, ENTITY, FIRST, forwarded, middle};
use super::stage::{Stage, every, open_settings, settings_with};
use prost::Message as _;
use throng_channeld::proto::unrealpb::{ActorState, FVector, SpatialChannelData, SpawnObjectMessage, UnrealObjectRef};
use throng_channeld::proto::{
    Any, AuthMessage, ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType, CreateChannelMessage,
    CreateEntityChannelMessage, ListChannelMessage, ListChannelResultMessage, QuerySpatialChannelMessage,
    RefusedMessage, SubscribedToChannelMessage, UnsubscribedFromChannelMessage,
};
use throng_channeld::{Header, message_type};
use throng_gateway_engine::port::Side;
use throng_protostate::{MapKey, Schemas};

const CREATE: Header = Header { channel_id: 0, broadcast: 0, stub_id: 0, msg_type: message_type::CREATE_CHANNEL };

fn empty_create() -> CreateChannelMessage {
    CreateChannelMessage::default()
}

#[test]
fn what_is_refused_has_no_answer_with_or_without_a_stub() {
    let mut stage = Stage::new(open_settings());
    let client = stage.client();
    for stub_id in [0, 9] {
        let ask = |channel, msg_type| Header::new(channel, msg_type).with_stub(stub_id);
        let mut silence: Vec<usize> = Vec::new();
        silence.push(stage.ask(&client, ask(0, message_type::CREATE_CHANNEL), &empty_create()).len());
        let subscribe = SubscribedToChannelMessage::default();
        silence.push(stage.ask(&client, ask(77, message_type::SUB_TO_CHANNEL), &subscribe).len());
        let unsubscribe = UnsubscribedFromChannelMessage::default();
        silence.push(stage.ask(&client, ask(0, message_type::UNSUB_FROM_CHANNEL), &unsubscribe).len());
        let entity = CreateEntityChannelMessage { entity_id: 0x8_0001, ..Default::default() };
        silence.push(stage.ask(&client, ask(0, message_type::CREATE_ENTITY_CHANNEL), &entity).len());
        let query = QuerySpatialChannelMessage::default();
        silence.push(stage.ask(&client, ask(0, message_type::QUERY_SPATIAL_CHANNEL), &query).len());
        silence.push(stage.ask(&client, ask(1, message_type::LIST_CHANNEL), &ListChannelMessage::default()).len());
        assert_eq!(silence, [0; 6], "stub {stub_id}");
    }
}

#[test]
fn a_peer_that_asked_for_refusals_gets_each_with_its_reason() {
    let mut stage = Stage::new(open_settings());
    let curious = stage.connect(Side::Client);
    let auth = AuthMessage { player_identifier_token: "ada".into(), wants_refusals: true, ..Default::default() };
    stage.say(&curious, Header::new(0, message_type::AUTH), &auth);
    let told = stage.ask(&curious, Header::new(3, message_type::SUB_TO_CHANNEL).with_stub(5), &empty_create());
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].channel_id, told[0].stub_id, told[0].msg_type), (3, 5, message_type::REFUSED));
    let refused: RefusedMessage = told[0].decode().expect("a refusal");
    assert_eq!((refused.msg_type, &*refused.reason), (message_type::SUB_TO_CHANNEL, "unknown_channel"));
    // Messages that have no answer in the protocol have this one.
    let room = stage.create(&curious, ChannelType::Test, None);
    let update = ChannelDataUpdateMessage::default();
    let told = stage.ask(&curious, Header::new(room, message_type::CHANNEL_DATA_UPDATE), &update);
    let refused: RefusedMessage = told[0].decode().expect("a refusal");
    assert_eq!((refused.msg_type, &*refused.reason), (message_type::CHANNEL_DATA_UPDATE, "missing_data"));
}

#[test]
fn a_login_on_another_channel_than_global_has_no_answer() {
    let mut stage = Stage::new(open_settings());
    let owner = stage.master();
    let room = stage.create(&owner, ChannelType::Test, None);
    let stranger = stage.connect(Side::Client);
    let auth = AuthMessage { player_identifier_token: "ada".into(), ..Default::default() };
    for channel in [room, 4_711] {
        assert_eq!(stage.ask(&stranger, Header::new(channel, message_type::AUTH).with_stub(2), &auth), []);
    }
    assert_eq!(stage.ask(&stranger, Header::new(0, message_type::AUTH).with_stub(2), &auth).len(), 1, "here it has");
}

#[test]
fn what_the_master_says_of_global_is_listed() {
    let mut stage = Stage::new(open_settings());
    let master = stage.server();
    let global = CreateChannelMessage {
        channel_type: ChannelType::Global.into(),
        metadata: "the old world".into(),
        ..Default::default()
    };
    stage.say(&master, CREATE, &global);
    let list = ListChannelMessage { metadata_filters: vec!["old".into()], ..Default::default() };
    let listed: ListChannelResultMessage =
        stage.answer(&master, Header::new(0, message_type::LIST_CHANNEL), &list).expect("a list");
    let found: Vec<(u32, &str)> = listed.channels.iter().map(|info| (info.channel_id, &*info.metadata)).collect();
    assert_eq!(found, [(0, "the old world")]);
    // Data beyond the limit is refused, and earlier data stays.
    let long = CreateChannelMessage { metadata: "x".repeat(5_000), ..global };
    stage.say(&master, CREATE, &long);
    assert_eq!(stage.refused("metadata_bytes"), 1);
}

#[test]
fn a_mask_with_unknown_and_empty_paths_shows_what_is_known_of_it() {
    let mut stage = Stage::new(open_settings());
    let (owner, client) = (stage.server(), stage.client());
    let actor = ActorState { local_role: Some(3), b_hidden: Some(true), ..Default::default() };
    let channel = stage.create(&owner, ChannelType::Test, Some(Any::pack(&actor)));
    let masked = |paths: &[&str]| ChannelSubscriptionOptions {
        data_field_masks: paths.iter().map(|path| (*path).to_owned()).collect(),
        ..every(20)
    };
    for (paths, expected) in [
        (&["localRole", "newerField", ""][..], ActorState { local_role: Some(3), ..Default::default() }),
        (&["newerField"], ActorState::default()),
        (&[""], actor.clone()),
    ] {
        stage.subscribe(&client, &client, channel, masked(paths));
        stage.pass(50);
        assert_eq!(stage.updates::<ActorState>(&client, channel), [expected], "{paths:?}");
        stage.say(
            &client,
            Header::new(channel, message_type::UNSUB_FROM_CHANNEL),
            &UnsubscribedFromChannelMessage::default(),
        );
    }
}

#[test]
fn a_mask_by_name_that_came_before_the_state_shows_what_it_names() {
    let mut stage = Stage::new(open_settings());
    let (owner, client) = (stage.server(), stage.client());
    let channel = stage.create(&owner, ChannelType::Test, None);
    let options = ChannelSubscriptionOptions { data_field_masks: vec!["localRole".into()], ..every(20) };
    stage.subscribe(&client, &client, channel, options);
    stage.pass(50);
    stage.update(
        &owner,
        channel,
        Any::pack(&ActorState { local_role: Some(3), b_hidden: Some(true), ..Default::default() }),
    );
    stage.pass(50);
    let seen = stage.updates::<ActorState>(&client, channel);
    assert_eq!(seen.last(), Some(&ActorState { local_role: Some(3), ..Default::default() }));
}

const ROOM: &str = r#"syntax = "proto3"; package room; message Player { uint32 score = 1; string name = 2; }
    message Room { map<uint32, Player> players = 1; }"#;

/// The types of a file, and of those that it imports from these folders.
fn compiled(file: &str, folders: &[&Path]) -> Schemas {
    let files = protox::compile([file], folders).expect("sound files");
    let mut schemas = Schemas::default();
    schemas.add_pool(&prost_reflect::DescriptorPool::from_file_descriptor_set(files).expect("sound files"));
    schemas
}

fn room_schemas() -> Schemas {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("room.proto"), ROOM).expect("it can be written to");
    compiled("room.proto", &[folder.path()])
}

#[test]
fn an_entry_of_a_games_own_type_is_replaced_unless_its_channels_merge_entries() {
    let types = |merge: &str| {
        format!(
            r#"{{"1": {{"TickIntervalMs": 10, "DefaultFanOutIntervalMs": 20{merge},
            "ACLSettings": {{"Sub": 3, "Unsub": 3, "Remove": 3}}}}}}"#
        )
    };
    // Room{players: {7: {..}}}
    let player = |fields: &[u8]| {
        let entry = [&[0x08, 7, 0x12, fields.len() as u8][..], fields].concat();
        let value = [&[0x0A, entry.len() as u8][..], &entry].concat();
        Any { type_url: "type.googleapis.com/room.Room".into(), value: value.into() }
    };
    for (merge, expected) in [("", &[0x12, 1, b'a'][..]), (r#", "MergeMapEntries": true"#, &[0x08, 5, 0x12, 1, b'a'])] {
        let settings = settings_with(&["-dev", "-chs=types.json"], &[("types.json", &types(merge))]);
        let mut stage = Stage::with_schemas(settings, room_schemas());
        let (owner, late) = (stage.server(), stage.client());
        let channel = stage.create(&owner, ChannelType::Test, Some(player(&[0x08, 5])));
        stage.update(&owner, channel, player(&[0x12, 1, b'a']));
        stage.subscribe(&owner, &late, channel, every(20));
        stage.pass(50);
        let got = stage.read_type(&late, message_type::CHANNEL_DATA_UPDATE);
        let update: ChannelDataUpdateMessage = got[0].decode().expect("an update");
        assert_eq!(update.data, Some(player(expected)), "{merge}");
    }
}

const TWO: Cut = Cut { cells: [4, 1, 0], servers: [2, 1, 0], border: 0 };

fn spawn(entity: u32, location: [f32; 3]) -> SpawnObjectMessage {
    let obj = UnrealObjectRef { net_guid: Some(entity), class_path: Some("/Game/Pawn".into()), ..Default::default() };
    // Unreal's z is up.
    let [x, y, z] = location;
    let location = Some(FVector { x: Some(x), y: Some(z), z: Some(y) });
    SpawnObjectMessage { obj: Some(obj), channel_id: None, local_role: None, location }
}

fn listed(stage: &Stage, cell: u32) -> Vec<u32> {
    let cells = stage.engine.cells();
    cells.filter(|info| info.channel == cell).flat_map(|info| info.entities).collect()
}

#[test]
fn an_object_that_is_spawned_before_its_channel_is_made_is_in_the_state_of_its_cell() {
    let mut stage = Stage::world(TWO, &[]);
    let servers = stage.spatial_servers(TWO);
    let client = stage.client();
    stage.subscribe(&servers[0], &client, FIRST + 1, every(20));
    let header = Header { broadcast: 4, ..Header::new(FIRST, message_type::UNREAL_SPAWN) };
    stage.say(&servers[0], header, &forwarded(0, spawn(ENTITY, middle(1, 0)).encode_to_vec()));
    assert_eq!(listed(&stage, FIRST + 1), [ENTITY]);
    stage.pass(50);
    let cell = stage.updates::<SpatialChannelData>(&client, FIRST + 1).pop().expect("the list of the cell");
    let object = cell.entities[&ENTITY].obj_ref.clone().expect("its reference");
    assert_eq!((object.net_guid(), object.class_path()), (ENTITY, "/Game/Pawn"));
    // The channel that is made for it belongs where the object is.
    stage.create_entity(&servers[0], 0, ENTITY, None);
    assert_eq!(stage.place_of(ENTITY), Some((Some(servers[0].id), Some(FIRST + 1))));
    stage.audit();
    // One that never gets a channel goes as it came.
    stage.say(&servers[0], header, &forwarded(0, spawn(ENTITY + 1, middle(0, 0)).encode_to_vec()));
    assert_eq!(listed(&stage, FIRST), [ENTITY + 1]);
    let gone = throng_channeld::proto::unrealpb::DestroyObjectMessage { net_id: ENTITY + 1, reason: 0 };
    let destroy = Header { broadcast: 4, ..Header::new(FIRST, message_type::UNREAL_DESTROY) };
    stage.say(&servers[0], destroy, &forwarded(0, gone.encode_to_vec()));
    assert!(listed(&stage, FIRST).is_empty());
}

#[test]
fn an_object_whose_channel_never_comes_is_given_up_and_only_a_short_reference_is_kept_of_it() {
    let mut stage = Stage::world(TWO, &[]);
    let servers = stage.spatial_servers(TWO);
    let header = Header { broadcast: 4, ..Header::new(FIRST, message_type::UNREAL_SPAWN) };
    let empty = stage.engine.memory_bytes();
    for number in 0..50 {
        let mut long = spawn(ENTITY + number, middle(0, 0));
        long.obj.as_mut().expect("it has one").class_path = Some("p".repeat(40_000));
        stage.say(&servers[0], header, &forwarded(0, long.encode_to_vec()));
    }
    stage.say(&servers[0], header, &forwarded(0, spawn(ENTITY + 50, middle(0, 0)).encode_to_vec()));
    assert_eq!(listed(&stage, FIRST).len(), 51);
    assert_eq!(stage.refused("spawned_objects"), 50, "their references are too long");
    stage.pass(2_000);
    let kept = stage.engine.memory_bytes() - empty;
    assert!((51 * 192..51 * 2_000).contains(&kept), "{kept} bytes");
    stage.pass(590_000);
    assert_eq!(listed(&stage, FIRST).len(), 51);
    stage.create_entity(&servers[0], 0, ENTITY + 50, None);
    stage.pass(10_000);
    assert_eq!(listed(&stage, FIRST), [ENTITY + 50], "its channel has come");
    assert_eq!(stage.refused("spawned_objects"), 100);
    stage.audit();
}

#[test]
fn the_longest_reference_that_is_kept_without_a_channel_has_4_kib() {
    let mut stage = Stage::world(TWO, &[]);
    let server = stage.spatial_servers(TWO).remove(0);
    let header = Header { broadcast: 4, ..Header::new(FIRST, message_type::UNREAL_SPAWN) };
    for (number, bytes, refused) in [(0, 4_096, 0), (1, 4_097, 1)] {
        let mut long = spawn(ENTITY + number, middle(0, 0));
        let object = long.obj.as_mut().expect("it has one");
        object.class_path = Some("p".repeat(4_000));
        let missing = bytes - object.encoded_len();
        object.class_path = Some("p".repeat(4_000 + missing));
        assert_eq!(object.encoded_len(), bytes);
        stage.say(&server, header, &forwarded(0, long.encode_to_vec()));
        assert_eq!(stage.refused("spawned_objects"), refused, "{bytes} bytes");
    }
}

const DEMO: &str = r#"syntax = "proto3"; package demo; import "unreal.proto";
    message EntityData { optional unrealpb.UnrealObjectRef objRef = 1; optional unrealpb.ActorState actor = 2; }"#;

#[derive(Clone, PartialEq, prost::Message)]
struct EntityData {
    #[prost(message, optional, tag = "1")]
    object: Option<UnrealObjectRef>,
    #[prost(message, optional, tag = "2")]
    actor: Option<ActorState>,
}

fn demo_schemas() -> Schemas {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("demo.proto"), DEMO).expect("it can be written to");
    let theirs = concat!(env!("CARGO_MANIFEST_DIR"), "/../throng-channeld/proto");
    compiled("demo.proto", &[folder.path(), Path::new(theirs)])
}

#[test]
fn the_reference_of_a_spawned_object_is_in_the_state_of_its_channel() {
    let cut = TWO;
    for spawns_first in [false, true] {
        let settings = super::stage::world::world_settings(cut, &[]);
        let mut stage = Stage::with_schemas(settings, demo_schemas());
        let servers = stage.spatial_servers(cut);
        let actor = EntityData { object: None, actor: Some(ActorState { local_role: Some(2), ..Default::default() }) };
        let data = Any { type_url: "type.googleapis.com/demo.EntityData".into(), value: actor.encode_to_vec().into() };
        let header = Header { broadcast: 4, ..Header::new(FIRST, message_type::UNREAL_SPAWN) };
        let body = forwarded(0, spawn(ENTITY, middle(1, 0)).encode_to_vec());
        if spawns_first {
            stage.say(&servers[0], header, &body);
        }
        stage.create_entity(&servers[0], FIRST + 1, ENTITY, Some(data));
        if !spawns_first {
            stage.say(&servers[0], header, &body);
        }
        // Said twice, it is there once.
        stage.say(&servers[0], header, &body);
        let late = stage.client();
        stage.subscribe(&servers[0], &late, ENTITY, every(20));
        stage.pass(50);
        let state = stage.updates::<EntityData>(&late, ENTITY).pop().expect("the state of the entity");
        let object = state.object.expect("its reference");
        assert_eq!((object.net_guid(), object.class_path()), (ENTITY, "/Game/Pawn"), "spawned first: {spawns_first}");
        assert_eq!(state.actor.expect("the actor").local_role, Some(2));
    }
}

#[test]
fn entities_of_unreals_layout_change_cells_with_and_without_a_descriptor() {
    for knows_type in [false, true] {
        let settings = super::stage::world::world_settings(TWO, &["-chs=hifi"]);
        let schemas = if knows_type { demo_schemas() } else { Schemas::default() };
        let mut stage = Stage::with_schemas(settings, schemas);
        let servers = stage.spatial_servers(TWO);
        let at = |x: f32| {
            let location = Some(FVector { x: Some(x), y: Some(5.0), z: Some(1.0) });
            let movement = throng_channeld::proto::unrealpb::FRepMovement { location, ..Default::default() };
            let actor = ActorState { replicated_movement: Some(movement), ..Default::default() };
            let data = EntityData { object: None, actor: Some(actor) };
            Any { type_url: "type.googleapis.com/demo.EntityData".into(), value: data.encode_to_vec().into() }
        };
        stage.create_entity(&servers[0], FIRST, ENTITY, Some(at(5.0)));
        let header = Header { broadcast: 4, ..Header::new(FIRST, message_type::UNREAL_SPAWN) };
        stage.say(&servers[0], header, &forwarded(0, spawn(ENTITY, middle(0, 0)).encode_to_vec()));
        stage.update(&servers[0], ENTITY, at(15.0));
        assert_eq!(stage.place_of(ENTITY).expect("it exists").1, Some(FIRST + 1), "descriptor: {knows_type}");
    }
}

#[test]
fn the_list_of_a_cell_still_merges_its_entries_by_field() {
    let schemas = Schemas::from_descriptor_set(throng_channeld::proto::DESCRIPTORS).expect("our own files");
    let cell = schemas.find("unrealpb.SpatialChannelData").expect("it is there").clone();
    let mut state = throng_protostate::DataState::new(
        Some(cell),
        "",
        throng_protostate::MergeOptions::default(),
        throng_protostate::StateLimits::default(),
        throng_wire::Tick(0),
    );
    let key = MapKey::from(5);
    state.set_entry(1, &key, &[0x0A, 2, 0x08, 9], 1, throng_wire::Tick(1)).expect("a reference");
    state.set_entry(1, &key, &[0x1A, 0], 1, throng_wire::Tick(2)).expect("data");
    let mut value = Vec::new();
    assert!(state.entry(1, &key, &mut value));
    assert_eq!(value, [0x0A, 2, 0x08, 9, 0x1A, 0]);
}
