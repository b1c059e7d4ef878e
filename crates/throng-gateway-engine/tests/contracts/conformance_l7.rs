//! Level 7: what Unreal's servers say of objects, and what clients cannot say.

use super::stage::world::{Cut, ENTITY, FIRST, forwarded, middle, of_type, sphere, standing};
use super::stage::{Peer, Stage, every};
use prost::Message as _;
use throng_channeld::proto::unrealpb::{
    DestroyObjectMessage, FVector, SpatialChannelData, SpawnObjectMessage, UnrealObjectRef,
};
use throng_channeld::proto::{ChannelDataUpdateMessage, ChannelType, RemoveChannelMessage, ServerForwardMessage};
use throng_channeld::{Broadcast, Header, Message, message_type};

const TWO: Cut = Cut { cells: [4, 1, 0], servers: [2, 1, 0], border: 0 };

fn header(channel_id: u32, msg_type: u32) -> Header {
    Header { channel_id, broadcast: Broadcast::ALL_BUT_SENDER.0, stub_id: 0, msg_type }
}

fn spawn(entity: u32, location: Option<[f32; 3]>) -> SpawnObjectMessage {
    let obj = UnrealObjectRef {
        net_guid: Some(entity),
        class_path: Some("/Game/Pawn".into()),
        net_guid_bunch: Some(vec![1, 2, 3].into()),
        ..Default::default()
    };
    // Unreal's z is up.
    let location = location.map(|[x, y, z]| FVector { x: Some(x), y: Some(z), z: Some(y) });
    SpawnObjectMessage { obj: Some(obj), channel_id: Some(7), local_role: Some(3), location }
}

fn say_spawn(stage: &mut Stage, from: &Peer, channel: u32, payload: Vec<u8>) {
    stage.say(from, header(channel, message_type::UNREAL_SPAWN), &forwarded(0, payload));
}

fn payload(message: &Message) -> Vec<u8> {
    message.decode::<ServerForwardMessage>().expect("a forwarded message").payload.to_vec()
}

#[test]
fn a_spawn_goes_to_the_cell_where_it_happens_and_keeps_every_byte() {
    let mut stage = Stage::world(TWO, &["-limit", "max_hold_ms=0"]);
    let servers = stage.spatial_servers(TWO);
    let client = stage.client();
    stage.set_interest(&servers[0], &client, sphere(middle(1, 0), 3.0));
    stage.create_entity(&servers[0], FIRST, ENTITY, None);
    stage.pass(50);
    stage.read(&client);
    let mut sent = spawn(ENTITY, Some(middle(1, 0))).encode_to_vec();
    // Fields that we do not know, of a newer plugin.
    prost::encoding::encode_key(9, prost::encoding::WireType::LengthDelimited, &mut sent);
    sent.extend([3, b'n', b'e', b'w']);
    prost::encoding::encode_key(77, prost::encoding::WireType::Varint, &mut sent);
    sent.push(42);
    say_spawn(&mut stage, &servers[0], 0, sent.clone());
    let got = stage.read_type(&client, message_type::UNREAL_SPAWN);
    assert_eq!((got.len(), got[0].channel_id), (1, FIRST + 1));
    let bytes = payload(&got[0]);
    assert_eq!(bytes[..sent.len()], sent, "as it was sent, the channel behind it");
    let read = SpawnObjectMessage::decode(&bytes[..]).expect("a spawn");
    assert_eq!((read.channel_id, read.local_role), (Some(FIRST + 1), Some(3)));
    assert_eq!(stage.place_of(ENTITY), Some((Some(servers[0].id), Some(FIRST + 1))));
    stage.pass(50);
    let cell = stage.updates::<SpatialChannelData>(&client, FIRST + 1);
    let object = cell[0].entities[&ENTITY].obj_ref.clone().expect("its reference");
    assert_eq!((object.net_guid(), object.class_path(), object.net_guid_bunch().len()), (ENTITY, "/Game/Pawn", 3));
    stage.audit();
    // Without a position it goes where it was sent, and is listed there if that is a cell.
    stage.create_entity(&servers[0], FIRST, ENTITY + 1, None);
    let sent = spawn(ENTITY + 1, None).encode_to_vec();
    say_spawn(&mut stage, &servers[0], FIRST + 1, sent.clone());
    let got = stage.read_type(&client, message_type::UNREAL_SPAWN);
    assert_eq!((got[0].channel_id, payload(&got[0])), (FIRST + 1, sent));
    assert_eq!(stage.place_of(ENTITY + 1).expect("it exists").1, Some(FIRST + 1));
    stage.audit();
}

#[test]
fn an_object_that_appears_in_the_cell_of_another_server_is_that_ones() {
    let mut stage = Stage::world(TWO, &[]);
    let servers = stage.spatial_servers(TWO);
    stage.create_entity(&servers[0], FIRST, ENTITY, None);
    stage.read(&servers[1]);
    say_spawn(&mut stage, &servers[0], FIRST, spawn(ENTITY, Some(middle(3, 0))).encode_to_vec());
    assert_eq!(stage.place_of(ENTITY), Some((Some(servers[1].id), Some(FIRST + 3))));
    let told = stage.read(&servers[1]);
    let kinds: Vec<u32> = told.iter().map(|message| message.msg_type).collect();
    assert_eq!(
        kinds,
        [message_type::SUB_TO_CHANNEL, message_type::CHANNEL_DATA_HANDOVER, message_type::UNREAL_SPAWN],
        "it owns it before it hears of it"
    );
    stage.audit();
}

#[test]
fn what_is_destroyed_is_told_first_and_then_its_channel_is_removed() {
    let mut stage = Stage::world(TWO, &[]);
    let servers = stage.spatial_servers(TWO);
    let client = stage.client();
    stage.set_interest(&servers[0], &client, sphere(middle(1, 0), 3.0));
    stage.create_entity(&servers[0], FIRST + 1, ENTITY, Some(standing(middle(1, 0))));
    stage.subscribe(&servers[0], &client, ENTITY, every(50));
    stage.pass(100);
    stage.read(&client);
    let gone = DestroyObjectMessage { net_id: ENTITY, reason: 2 };
    stage.say(&servers[0], header(FIRST + 1, message_type::UNREAL_DESTROY), &forwarded(0, gone.encode_to_vec()));
    stage.pass(50);
    let all = stage.read(&client);
    let (changes, told): (Vec<Message>, Vec<Message>) =
        all.into_iter().partition(|message| message.msg_type == message_type::CHANNEL_DATA_UPDATE);
    let kinds: Vec<(u32, u32)> = told.iter().map(|m| (m.channel_id, m.msg_type)).collect();
    assert_eq!(kinds, [(FIRST + 1, message_type::UNREAL_DESTROY), (ENTITY, message_type::REMOVE_CHANNEL)]);
    assert_eq!(payload(&told[0]), gone.encode_to_vec());
    let removed: Vec<(u32, RemoveChannelMessage)> = of_type(&told, message_type::REMOVE_CHANNEL);
    assert_eq!(removed[0].1.channel_id, ENTITY);
    assert_eq!(stage.place_of(ENTITY), None);
    assert_eq!(changes.len(), 1);
    let change: ChannelDataUpdateMessage = changes[0].decode().expect("an update");
    let cell = SpatialChannelData::decode(change.data.expect("data").value).expect("the list of a cell");
    assert!(cell.entities[&ENTITY].removed);
    assert_eq!(stage.audit(), 0);
    stage.create_entity(&servers[0], FIRST + 1, ENTITY, Some(standing(middle(1, 0))));
    assert_eq!(stage.audit(), 1, "the id is free again");
}

#[test]
fn only_the_channels_of_entities_are_removed_by_a_destroy() {
    let mut stage = Stage::world(TWO, &[]);
    let master = stage.master();
    let servers = stage.spatial_servers(TWO);
    let room = stage.create(&master, ChannelType::Subworld, None);
    let channels = stage.engine.occupancy().channels;
    let watcher = stage.client();
    for channel in [0, room, FIRST, FIRST + 3] {
        stage.subscribe(&master, &watcher, channel, every(50));
    }
    let subscribed = stage.read_type(&watcher, message_type::SUB_TO_CHANNEL);
    assert_eq!(subscribed.iter().map(|told| told.channel_id).collect::<Vec<_>>(), [0, room, FIRST, FIRST + 3]);
    for net_id in [0, room, FIRST, FIRST + 3, 4_000_000_000] {
        let gone = DestroyObjectMessage { net_id, reason: 0 };
        stage.say(&servers[0], header(0, message_type::UNREAL_DESTROY), &forwarded(0, gone.encode_to_vec()));
    }
    assert_eq!(stage.engine.occupancy().channels, channels);
    for peer in [&master, &servers[0], &servers[1], &watcher] {
        let told = stage.read(peer);
        let taken = told
            .iter()
            .filter(|told| matches!(told.msg_type, message_type::REMOVE_CHANNEL | message_type::UNSUB_FROM_CHANNEL));
        assert_eq!(taken.count(), 0, "nobody loses a channel");
    }
}

#[test]
fn what_a_client_sends_under_these_numbers_is_a_message_for_the_owner_and_nothing_else() {
    let mut stage = Stage::world(TWO, &[]);
    let master = stage.master();
    let servers = stage.spatial_servers(TWO);
    stage.create_entity(&servers[0], FIRST, ENTITY, Some(standing(middle(0, 0))));
    let (client, watcher) = (stage.client(), stage.client());
    stage.set_interest(&servers[0], &watcher, sphere(middle(0, 0), 30.0));
    for peer in [&master, &servers[0], &servers[1], &watcher] {
        stage.read(peer);
    }
    let channels = stage.engine.occupancy().channels;
    let place = stage.place_of(ENTITY);
    let bodies = [
        DestroyObjectMessage { net_id: 0, reason: 0 }.encode_to_vec(),
        DestroyObjectMessage { net_id: ENTITY, reason: 0 }.encode_to_vec(),
        forwarded(0, DestroyObjectMessage { net_id: ENTITY, reason: 0 }.encode_to_vec()).encode_to_vec(),
        spawn(ENTITY, Some(middle(3, 0))).encode_to_vec(),
        forwarded(0, spawn(ENTITY, Some(middle(3, 0))).encode_to_vec()).encode_to_vec(),
        SpawnObjectMessage::default().encode_to_vec(),
        vec![0xFF; 20],
    ];
    for body in &bodies {
        for msg_type in [message_type::UNREAL_SPAWN, message_type::UNREAL_DESTROY] {
            for flags in [0, 1, 2, 64] {
                let header = Header { channel_id: ENTITY, broadcast: flags, stub_id: 0, msg_type };
                stage.say_bytes(&client, header, body.clone());
                let at_owner = stage.read(&servers[0]);
                assert_eq!(at_owner.len(), 1);
                let wrapped: ServerForwardMessage = at_owner[0].decode().expect("it is wrapped");
                assert_eq!((wrapped.client_conn_id, &wrapped.payload[..]), (client.id, &body[..]));
                assert_eq!(at_owner[0].channel_id, ENTITY, "not rerouted");
            }
        }
    }
    assert_eq!(stage.place_of(ENTITY), place);
    assert_eq!(stage.engine.occupancy().channels, channels);
    stage.pass(100);
    let others = [&watcher, &servers[1], &master]
        .map(|peer| stage.read(peer).iter().filter(|message| message_type::is_user(message.msg_type)).count());
    assert_eq!(others, [0, 0, 0]);
    stage.audit();
}

#[test]
fn what_does_not_read_as_an_object_is_passed_on_and_so_is_everything_if_nobody_is_unreal() {
    let mut stage = Stage::world(TWO, &[]);
    let servers = stage.spatial_servers(TWO);
    let client = stage.client();
    stage.subscribe(&servers[0], &client, FIRST, every(50));
    stage.create_entity(&servers[0], FIRST, ENTITY, Some(standing(middle(0, 0))));
    stage.read(&client);
    for body in [Vec::new(), vec![0x0A, 0x05], SpawnObjectMessage::default().encode_to_vec()] {
        for msg_type in [message_type::UNREAL_SPAWN, message_type::UNREAL_DESTROY] {
            stage.say(&servers[0], header(FIRST, msg_type), &forwarded(0, body.clone()));
            stage.let_go();
            let got = stage.read_type(&client, msg_type);
            assert_eq!((got.len(), payload(&got[0])), (1, body.clone()));
        }
    }
    assert_eq!(stage.audit(), 1);

    let mut stage = Stage::world(TWO, &["-unreal=false"]);
    let servers = stage.spatial_servers(TWO);
    stage.create_entity(&servers[0], FIRST, ENTITY, Some(standing(middle(0, 0))));
    let gone = DestroyObjectMessage { net_id: ENTITY, reason: 2 };
    stage.say(&servers[0], header(FIRST, message_type::UNREAL_DESTROY), &forwarded(0, gone.encode_to_vec()));
    say_spawn(&mut stage, &servers[0], FIRST, spawn(ENTITY, Some(middle(3, 0))).encode_to_vec());
    assert_eq!(stage.place_of(ENTITY), Some((Some(servers[0].id), Some(FIRST))));
}
