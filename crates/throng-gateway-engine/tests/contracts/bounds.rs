//! Data that peers could make grow, and operations that must not stop half-way.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::stage::world::{Cut, ENTITY, FIRST, of_type, standing, world_settings};
use crate::stage::{Peer, Stage, every, open_settings, settings};
use throng_channeld::proto::{
    Any, ChannelDataRecoveryMessage, ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType,
    CreateChannelMessage, CreateSpatialChannelsResultMessage, SubscribedToChannelResultMessage,
};
use throng_channeld::{Header, message_type};
use throng_gateway_engine::port::{EndCause, Side};

const TWO: Cut = Cut { cells: [4, 1, 0], servers: [2, 1, 0], border: 1 };

#[test]
fn names_that_own_nothing_do_not_push_a_world_server_out_of_its_place() {
    let mut stage = Stage::new(world_settings(
        TWO,
        &["-scr", "-scrt=0", "-limit", "max_recoverable=8", "-limit", "max_connections=50"],
    ));
    let servers = stage.spatial_servers(TWO);
    stage.create_entity(&servers[0], FIRST, ENTITY, Some(standing([1.0, 1.0, 5.0])));
    stage.drop_connection(&servers[0], EndCause::Lost);
    for number in 0..200 {
        let stranger = stage.join_as(Side::Server, &format!("stranger{number}"));
        stage.drop_connection(&stranger, EndCause::Lost);
    }
    assert_eq!(stage.refused("recoverable"), 193, "one world server and 200 strangers, of which 8 are kept");
    let mut back = stage.connect(Side::Server);
    let answer = stage.authenticate(&mut back, "w0");
    assert!(answer.should_recover && back.id == servers[0].id);
    assert_eq!(stage.place_of(ENTITY), Some((Some(back.id), Some(FIRST))));
    // The kept ones can come back, too; the others are new.
    let mut comes_back = |name: &str| {
        let mut peer = stage.connect(Side::Server);
        stage.authenticate(&mut peer, name).should_recover
    };
    assert!(comes_back("stranger199") && !comes_back("stranger100"));
}

#[test]
fn of_world_servers_that_are_lost_for_ever_the_oldest_is_given_up() {
    let mut stage = Stage::new(settings(&["-dev", "-chs=ue", "-scr", "-scrt=0", "-limit", "max_recoverable=2"]));
    let watcher = stage.master();
    let rooms: Vec<u32> = (0..4)
        .map(|number| {
            let server = stage.join_as(Side::Server, &format!("w{number}"));
            let room = stage.create(&server, ChannelType::Subworld, None);
            stage.subscribe(&watcher, &watcher, room, crate::stage::every(20));
            stage.drop_connection(&server, EndCause::Lost);
            room
        })
        .collect();
    let removed: Vec<u32> =
        stage.read_type(&watcher, message_type::REMOVE_CHANNEL).iter().map(|message| message.channel_id).collect();
    assert_eq!(removed, rooms[..2], "the channels of those who will not come back go");
    assert_eq!(stage.refused("recoverable"), 2);
    let mut back = stage.connect(Side::Server);
    assert!(stage.authenticate(&mut back, "w3").should_recover);
}

#[test]
fn masked_subscriptions_that_are_refused_take_no_room_from_others() {
    let limits = ["max_mask_sets=1", "max_client_subscriptions=2", "client_resume_ms=60000"];
    let mut arguments = vec!["-dev", "-cfsm=client_authoratative_fsm.json"];
    limits.iter().for_each(|limit| arguments.extend(["-limit", *limit]));
    let mut stage = Stage::new(settings(&arguments));
    let masked =
        |paths: &[String]| ChannelSubscriptionOptions { data_field_masks: paths.to_vec(), ..crate::stage::every(20) };
    let (owner, other) = (stage.server(), stage.client());
    let [first, second, third] = [(); 3].map(|()| stage.create(&owner, ChannelType::Test, None));
    // A lost connection is awaited whose mask no other one has.
    let own = ["7.7".to_owned()];
    let ada = stage.join_as(Side::Client, "ada");
    stage.subscribe(&owner, &ada, second, masked(&own));
    stage.drop_connection(&ada, EndCause::Lost);
    let client = stage.client();
    stage.subscribe(&owner, &client, first, masked(&["1".to_owned()]));
    for room in [first, second] {
        stage.subscribe(&other, &other, room, crate::stage::every(20));
    }
    for number in 0..5_000 {
        let mask = masked(&[format!("6.{}", number + 1)]);
        stage.subscribe(&other, &other, first, mask.clone());
        stage.subscribe(&other, &other, third, mask);
    }
    assert_eq!((stage.refused("mask_sets"), stage.refused("client_subscriptions")), (5_000, 5_000));
    // Masks that are used and given up do not fill the table either, while a connection is awaited.
    for number in 0..5_000 {
        stage.pass(if number % 10 == 0 { 5 } else { 0 });
        stage.subscribe(&owner, &client, third, masked(&[format!("5.{}", number + 1)]));
    }
    assert_eq!(stage.refused("masks"), 0);
    let mut back = stage.connect(Side::Client);
    assert_eq!(stage.authenticate(&mut back, "ada").conn_id, ada.id);
    let subscribe = crate::stage::every(40);
    stage.subscribe(&owner, &back, second, ChannelSubscriptionOptions { data_access: Some(2), ..subscribe });
    let told: Vec<(u32, SubscribedToChannelResultMessage)> = of_type(&stage.read(&back), message_type::SUB_TO_CHANNEL);
    let (_, last) = told.last().expect("its rights have changed");
    assert_eq!(last.sub_options.as_ref().expect("they are told").data_field_masks, own, "its mask was kept");
}

#[test]
fn patience_ends_in_the_order_of_its_ends_after_a_reload_that_shortens_it() {
    let mut stage = Stage::new(settings(&["-dev", "-limit", "max_unauthenticated_ms=60000"]));
    let patient = stage.connect(Side::Client);
    stage.engine.reload(Arc::new(settings(&["-dev", "-limit", "max_unauthenticated_ms=1000"])));
    let hasty = stage.connect(Side::Client);
    stage.pass(900);
    assert!(!hasty.is_closed());
    stage.pass(200);
    assert!(hasty.is_closed() && !patient.is_closed(), "each has the time that held when it came");
    stage.pass(60_000);
    assert!(patient.is_closed());
    assert_eq!(stage.refused("unauthenticated"), 2);
}

#[test]
fn connections_that_logged_in_or_left_have_no_deadline() {
    let mut stage = Stage::new(open_settings());
    let client = stage.client();
    let gone = stage.connect(Side::Client);
    stage.drop_connection(&gone, EndCause::Lost);
    assert!(stage.is_at_rest(), "nothing is left to look at");
    assert!(!client.is_closed());
}

#[test]
fn an_entity_that_leaves_the_world_stays_listed_and_is_counted() {
    let mut stage = Stage::new(world_settings(TWO, &[]));
    let servers = stage.spatial_servers(TWO);
    stage.create_entity(&servers[0], FIRST, ENTITY, Some(standing([1.0, 1.0, 5.0])));
    stage.walk(&servers[0], ENTITY, [-50.0, 1.0, 5.0]);
    stage.walk(&servers[0], ENTITY, [1e30, 1.0, 5.0]);
    assert_eq!(stage.refused("outside_world"), 2);
    assert_eq!(stage.place_of(ENTITY), Some((Some(servers[0].id), Some(FIRST))));
    stage.walk(&servers[0], ENTITY, [15.0, 1.0, 5.0]);
    assert_eq!(stage.place_of(ENTITY), Some((Some(servers[0].id), Some(FIRST + 1))), "it has come back");
    stage.audit();
}

fn ask_with(stage: &mut Stage, server: &Peer, data: Option<Any>) -> Vec<CreateSpatialChannelsResultMessage> {
    let create = CreateChannelMessage { channel_type: ChannelType::Spatial.into(), data, ..Default::default() };
    let told = stage.ask(server, Header::new(0, message_type::CREATE_CHANNEL).with_stub(5), &create);
    let cells = of_type::<CreateSpatialChannelsResultMessage>(&told, message_type::CREATE_SPATIAL_CHANNEL);
    cells.into_iter().map(|(_, cells)| cells).collect()
}

#[test]
fn a_server_whose_cells_cannot_all_be_made_has_none() {
    // GLOBAL does not count: there is room for three of four cells.
    let mut stage = Stage::new(world_settings(TWO, &["-limit", "max_channels=3"]));
    let servers = [stage.join_as(Side::Server, "w0"), stage.join_as(Side::Server, "w1")];
    assert_eq!(ask_with(&mut stage, &servers[0], None).len(), 1);
    assert_eq!(ask_with(&mut stage, &servers[1], None), []);
    assert_eq!(stage.refused("channels"), 1);
    let cells: BTreeSet<(u32, Option<u32>)> = stage.engine.cells().map(|cell| (cell.channel, cell.owner)).collect();
    assert_eq!(cells, [(FIRST, Some(servers[0].id)), (FIRST + 1, Some(servers[0].id))].into());
    // Another connection has room again.
    stage.engine.reload(Arc::new(world_settings(TWO, &["-limit", "max_channels=4"])));
    assert_eq!(ask_with(&mut stage, &servers[1], None).len(), 1);
    assert_eq!(stage.engine.cells().count(), 4);
}

#[test]
fn state_that_is_no_state_leaves_no_cell_behind() {
    let mut stage = Stage::new(world_settings(TWO, &[]));
    let server = stage.join_as(Side::Server, "w0");
    let nonsense =
        Any { type_url: "type.googleapis.com/unrealpb.SpatialChannelData".into(), value: vec![0xff; 9].into() };
    assert_eq!(ask_with(&mut stage, &server, Some(nonsense)), []);
    assert_eq!(stage.engine.cells().count(), 0);
    assert_eq!(ask_with(&mut stage, &server, None).len(), 1);
    assert_eq!(stage.engine.cells().count(), 2);
}

#[test]
fn a_recovered_server_is_told_each_of_its_channels_once() {
    let mut stage = Stage::new(world_settings(TWO, &["-scr"]));
    let servers = stage.spatial_servers(TWO);
    for number in 0..50 {
        stage.create_entity(&servers[0], FIRST, ENTITY + number, Some(standing([1.0, 1.0, 5.0])));
    }
    // A process that is killed: its kernel closes the connection, without a close message.
    stage.drop_connection(&servers[0], EndCause::Lost);
    let back = stage.connect(Side::Server);
    let auth = throng_channeld::proto::AuthMessage { player_identifier_token: "w0".into(), ..Default::default() };
    let told = stage.ask(&back, Header::new(0, message_type::AUTH), &auth);
    let channels = of_type::<ChannelDataRecoveryMessage>(&told, message_type::RECOVERY_CHANNEL_DATA);
    let entities: Vec<u32> = channels.iter().map(|&(id, _)| id).filter(|&id| id >= ENTITY).collect();
    assert_eq!(entities, (ENTITY..ENTITY + 50).collect::<Vec<_>>());
}

#[test]
fn a_channel_goes_on_after_somebody_names_its_type_with_a_url_that_fits_into_no_packet() {
    let mut stage = Stage::new(open_settings());
    let (writer, reader) = (stage.client(), stage.client());
    let room = stage.create(&writer, ChannelType::Test, None);
    stage.subscribe(&reader, &reader, room, every(20));
    for prefix_bytes in [600, 6_000, 1 << 20] {
        let type_url = format!("{}/game.World", "x".repeat(prefix_bytes));
        stage.update(&writer, room, Any { type_url, value: vec![0x08, 1].into() });
    }
    assert_eq!(stage.refused("undeliverable"), 3);
    let mut value = vec![0x0A, 0xF8, 0xD2, 0x03];
    value.resize(4 + 59_768, b'x');
    stage.update(&writer, room, Any { type_url: "type.googleapis.com/game.World".into(), value: value.clone().into() });
    stage.pass(100);
    let told = stage.read_type(&reader, message_type::CHANNEL_DATA_UPDATE);
    let data: Vec<Any> = told.iter().filter_map(|told| told.decode::<ChannelDataUpdateMessage>().ok()?.data).collect();
    assert_eq!(data.iter().map(|data| data.value.len()).max(), Some(value.len()));
    assert!(data.iter().all(|data| data.type_url == "type.googleapis.com/game.World"));
}
