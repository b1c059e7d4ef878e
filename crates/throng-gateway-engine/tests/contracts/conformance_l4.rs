//! Level 4: the spatial world and who is interested in which part of it.

use std::collections::{BTreeMap, BTreeSet};

use super::stage::world::{CELL_M, Cut, FIRST, flat, forwarded, middle, of_type, sphere, standing};
use super::stage::{Peer, Stage};
use throng_channeld::proto::spatial_interest_query::{BoxAoi, ConeAoi, SphereAoi, SpotsAoi};
use throng_channeld::proto::{
    CreateSpatialChannelsResultMessage, QuerySpatialChannelMessage, QuerySpatialChannelResultMessage,
    SpatialChannelsReadyMessage, SpatialInfo, SpatialInterestQuery, SpatialRegionsUpdateMessage,
    SubscribedToChannelResultMessage, UnsubscribedFromChannelResultMessage, UpdateSpatialInterestMessage,
};
use throng_channeld::{Broadcast, Header, Messages, message_type};

fn at(x: f64, y: f64, z: f64) -> SpatialInfo {
    SpatialInfo { x, y, z }
}

/// The intervals of a connection's cells, as it was notified, by cell.
fn seen(stage: &mut Stage, peer: &Peer) -> BTreeMap<u32, u32> {
    let messages = stage.read(peer);
    of_type::<SubscribedToChannelResultMessage>(&messages, message_type::SUB_TO_CHANNEL)
        .into_iter()
        .map(|(cell, result)| (cell - FIRST, result.sub_options.expect("options").fan_out_interval_ms()))
        .collect()
}

#[test]
fn servers_share_the_cells_whatever_the_numbers_and_are_told_when_all_are_there() {
    let cube = Cut { cells: [4, 3, 3], servers: [2, 1, 2], border: 1 };
    for cut in
        [flat([1, 1], [1, 1], 0), flat([2, 2], [2, 2], 1), flat([9, 9], [3, 3], 1), flat([5, 5], [3, 2], 1), cube]
    {
        let mut stage = Stage::world(cut, &[]);
        let master = stage.master();
        let mut owner_of: BTreeMap<u32, u32> = BTreeMap::new();
        let mut servers = Vec::new();
        for number in 0..cut.server_count() {
            let server = stage.spatial_server(&format!("w{number}"));
            let messages = stage.read(&server);
            let answer = messages.iter().find(|message| message.stub_id == 5).expect("an answer with the stub");
            assert_eq!(answer.msg_type, message_type::CREATE_SPATIAL_CHANNEL);
            let result: CreateSpatialChannelsResultMessage = answer.decode().expect("a result");
            assert_eq!(result.owner_conn_id, server.id);
            for cell in result.spatial_channel_id {
                assert_eq!(owner_of.insert(cell, server.id), None, "a cell has one owner");
            }
            let regions: Vec<(u32, SpatialRegionsUpdateMessage)> =
                of_type(&messages, message_type::SPATIAL_REGIONS_UPDATE);
            assert_eq!(regions[0].1.regions.len() as u32, cut.cell_count());
            let ready = messages.iter().filter(|m| m.msg_type == message_type::SPATIAL_CHANNELS_READY).count();
            assert_eq!(ready, usize::from(number + 1 == cut.server_count()), "not before all are there");
            servers.push((server, messages));
        }
        assert_eq!(owner_of.len() as u32, cut.cell_count());
        let told = stage.read(&master);
        let ready: Vec<(u32, SpatialChannelsReadyMessage)> = of_type(&told, message_type::SPATIAL_CHANNELS_READY);
        assert_eq!(ready[0].1.server_count, cut.server_count());
        assert_eq!(
            of_type::<CreateSpatialChannelsResultMessage>(&told, message_type::CREATE_SPATIAL_CHANNEL).len() as u32,
            cut.server_count(),
            "the master hears of each"
        );
        for (number, (server, first)) in servers.iter().enumerate().take(servers.len() - 1) {
            let more = stage.read(server);
            let ready: Vec<(u32, SpatialChannelsReadyMessage)> = of_type(&more, message_type::SPATIAL_CHANNELS_READY);
            assert_eq!((ready.len(), ready[0].1.server_index), (1, number as u32));
            let own = of_type::<SubscribedToChannelResultMessage>(first, message_type::SUB_TO_CHANNEL);
            assert!(own.iter().all(|(cell, _)| owner_of[cell] == server.id), "its own cells at once");
            let border = of_type::<SubscribedToChannelResultMessage>(&more, message_type::SUB_TO_CHANNEL);
            let border = border.iter().filter(|(_, result)| result.conn_id == server.id);
            assert!(border.clone().all(|(cell, _)| owner_of[cell] != server.id), "its border when all are there");
            assert_eq!(border.count() > 0, cut.border > 0);
        }
    }
}

#[test]
fn a_server_too_many_is_refused_and_one_that_asks_twice_gets_the_same_answer() {
    let cut = flat([4, 1], [2, 1], 0);
    let mut stage = Stage::world(cut, &[]);
    let servers = stage.spatial_servers(cut);
    let late = stage.spatial_server("late");
    assert_eq!(stage.read_type(&late, message_type::CREATE_SPATIAL_CHANNEL).len(), 0);
    assert_eq!(stage.refused("spatial_slots_taken"), 1);
    stage.ask_for_cells(&servers[0]);
    let again = stage.read(&servers[0]);
    let again: Vec<(u32, CreateSpatialChannelsResultMessage)> = of_type(&again, message_type::CREATE_SPATIAL_CHANNEL);
    assert_eq!(again[0].1.spatial_channel_id, [FIRST, FIRST + 1]);
    let client = stage.client();
    stage.ask_for_cells(&client);
    assert_eq!(stage.refused("not_allowed"), 1, "a client is no world server");
}

#[test]
fn a_table_of_cells_that_is_too_long_for_a_packet_comes_in_parts() {
    let mut stage = Stage::world(flat([60, 60], [1, 1], 0), &[]);
    let server = stage.spatial_server("only");
    let bytes = server.line.lock().unwrap().bytes.clone();
    let mut cells = 0;
    for message in Messages::new(bytes.into()) {
        let message = message.expect("sound");
        assert!(message.body.len() < 65_000, "{} bytes of type {}", message.body.len(), message.msg_type);
        if message.msg_type == message_type::SPATIAL_REGIONS_UPDATE {
            let part: SpatialRegionsUpdateMessage = message.decode().expect("regions");
            cells += part.regions.len();
        }
    }
    assert_eq!(cells, 3_600);
}

#[test]
fn positions_are_answered_with_their_cells_and_with_zero_outside_of_the_world() {
    let cut = flat([3, 2], [1, 1], 0);
    let mut stage = Stage::world(cut, &[]);
    let server = stage.spatial_servers(cut).remove(0);
    let spatial_info =
        vec![at(0.0, 5.0, 0.0), at(29.9, -1e9, 19.9), at(30.0, 0.0, 0.0), at(-0.1, 0.0, 5.0), at(f64::NAN, 0.0, 0.0)];
    let query = QuerySpatialChannelMessage { spatial_info };
    stage.say(&server, Header::new(0, message_type::QUERY_SPATIAL_CHANNEL).with_stub(9), &query);
    let answer = stage.read(&server).pop().expect("an answer");
    let result: QuerySpatialChannelResultMessage = answer.decode().expect("a result");
    assert_eq!((answer.stub_id, result.channel_id), (9, vec![FIRST, FIRST + 5, 0, 0, 0]));
    let many = QuerySpatialChannelMessage { spatial_info: vec![at(1.0, 1.0, 1.0); 5_000] };
    stage.say(&server, Header::new(0, message_type::QUERY_SPATIAL_CHANNEL).with_stub(9), &many);
    assert_eq!(stage.refused("query_positions"), 1);
}

#[test]
fn what_is_near_is_updated_often_what_is_far_seldom_and_what_is_left_not_at_all() {
    let cut = flat([9, 1], [1, 1], 0);
    let mut stage = Stage::world(cut, &[]);
    let server = stage.spatial_servers(cut).remove(0);
    let client = stage.client();
    stage.set_interest(&server, &client, sphere(middle(4, 0), 40.0));
    let near = seen(&mut stage, &client);
    assert_eq!(near[&4], 20);
    assert_eq!((near[&3], near[&5]), (50, 50));
    assert_eq!((near[&2], near[&6]), (100, 100));
    assert_eq!(near.len(), 9);
    stage.set_interest(&server, &client, sphere(middle(0, 0), 9.0));
    let messages = stage.read(&client);
    let left: Vec<u32> = of_type::<UnsubscribedFromChannelResultMessage>(&messages, message_type::UNSUB_FROM_CHANNEL)
        .into_iter()
        .map(|(cell, _)| cell - FIRST)
        .collect();
    let mut left_in_order = left.clone();
    left_in_order.sort_unstable();
    assert_eq!(left_in_order, [2, 3, 4, 5, 6, 7, 8]);
    // The cell that was far is near now, and as fast.
    stage.create_entity(&server, FIRST, super::stage::world::ENTITY, Some(standing(middle(0, 0))));
    stage.pass(25);
    assert_eq!(stage.read_type(&client, message_type::CHANNEL_DATA_UPDATE).len(), 1, "within 20 ms");
}

#[test]
fn areas_of_all_shapes_are_united_in_layers_too() {
    let cut = Cut { cells: [5, 5, 5], servers: [1, 1, 1], border: 0 };
    let mut stage = Stage::world(cut, &[]);
    let server = stage.spatial_servers(cut).remove(0);
    let client = stage.client();
    let id = |x: u32, z: u32, y: u32| x + 5 * (z + 5 * y);
    let centre = Some(at(5.0, 5.0, 5.0));
    stage.set_interest(
        &server,
        &client,
        SpatialInterestQuery {
            spots_aoi: Some(SpotsAoi { spots: vec![at(45.0, 45.0, 45.0), at(999.0, 0.0, 0.0)], dists: vec![2] }),
            box_aoi: Some(BoxAoi { center: centre, extent: Some(at(1.0, 11.0, 1.0)) }),
            ..Default::default()
        },
    );
    let cells = seen(&mut stage, &client);
    assert_eq!(cells[&id(4, 4, 4)], 100, "a spot, as far away as it says");
    assert_eq!(cells[&id(0, 0, 0)], 20);
    assert!(cells.contains_key(&id(0, 0, 1)), "upwards");
    assert!(!cells.contains_key(&id(1, 0, 0)) && !cells.contains_key(&id(0, 1, 0)), "{cells:?}");
    stage.set_interest(
        &server,
        &client,
        SpatialInterestQuery {
            cone_aoi: Some(ConeAoi { center: centre, direction: Some(at(0.0, 1.0, 0.0)), angle: 0.2, radius: 35.0 }),
            ..Default::default()
        },
    );
    // A pillar of cells above the centre, and where it is wide enough its neighbours.
    let pillar = [id(0, 0, 0), id(0, 0, 1), id(0, 0, 2), id(0, 0, 3), id(1, 0, 3), id(0, 1, 3), id(0, 0, 4)];
    let mut sees: BTreeSet<u32> = cells.into_keys().collect();
    for message in stage.read(&client) {
        match message.msg_type {
            message_type::SUB_TO_CHANNEL => assert!(sees.insert(message.channel_id - FIRST), "{message:?}"),
            message_type::UNSUB_FROM_CHANNEL => assert!(sees.remove(&(message.channel_id - FIRST)), "{message:?}"),
            _ => {}
        }
    }
    assert_eq!(sees, BTreeSet::from(pillar));
    stage.create_entity(&server, FIRST + id(0, 0, 3), super::stage::world::ENTITY, Some(standing([5.0, 35.0, 5.0])));
    stage.create_entity(
        &server,
        FIRST + id(3, 0, 0),
        super::stage::world::ENTITY + 1,
        Some(standing([35.0, 5.0, 5.0])),
    );
    stage.pass(200);
    let updated: Vec<u32> =
        stage.read_type(&client, message_type::CHANNEL_DATA_UPDATE).iter().map(|m| m.channel_id - FIRST).collect();
    assert_eq!(updated, [id(0, 0, 3)], "the cone points upwards");
}

#[test]
fn a_query_that_makes_no_sense_changes_nothing_and_one_without_end_costs_no_more_than_the_world() {
    let cut = flat([9, 9], [1, 1], 0);
    // All cells of this world are fewer; the points of a cone that covers it are more.
    let mut stage = Stage::world(cut, &["-limit", "max_query_samples=200"]);
    let server = stage.spatial_servers(cut).remove(0);
    let client = stage.client();
    stage.set_interest(&server, &client, sphere(middle(4, 4), 4.0));
    assert_eq!(seen(&mut stage, &client).len(), 1);
    let ball = |center: Option<SpatialInfo>, radius: f64| SpatialInterestQuery {
        sphere_aoi: Some(SphereAoi { center, radius }),
        ..Default::default()
    };
    for (query, tag) in [
        (ball(None, 5.0), "interest_missing"),
        (ball(Some(at(f64::NAN, 0.0, 0.0)), 5.0), "interest_not_finite"),
        (ball(Some(at(45.0, 0.0, 45.0)), -1.0), "interest_size"),
        (ball(Some(at(-45.0, 0.0, 45.0)), 5.0), "interest_outside"),
        (
            SpatialInterestQuery {
                cone_aoi: Some(ConeAoi {
                    center: Some(at(45.0, 0.0, 45.0)),
                    direction: Some(at(1.0, 0.0, 0.0)),
                    angle: 3.2,
                    radius: 1e18,
                }),
                box_aoi: Some(BoxAoi { center: Some(at(45.0, 0.0, 45.0)), extent: Some(at(0.001, 1.0, 0.001)) }),
                ..Default::default()
            },
            "interest_too_large",
        ),
    ] {
        let before = stage.refused(tag);
        stage.set_interest(&server, &client, query.clone());
        assert_eq!(stage.refused(tag), before + 1, "{query:?}");
        assert_eq!(stage.read(&client).len(), 0, "{query:?}");
    }
    stage.set_interest(&server, &client, ball(Some(at(45.0, 0.0, 45.0)), 1e18));
    let whole = stage.engine.connections().find(|c| c.id == client.id).map(|c| c.subscriptions);
    assert_eq!(whole, Some(81), "the whole world");
    let nobody = UpdateSpatialInterestMessage { conn_id: 999, query: Some(sphere(middle(0, 0), 5.0)) };
    stage.say(&server, Header::new(FIRST, message_type::UPDATE_SPATIAL_INTEREST), &nobody);
    assert_eq!(stage.refused("unknown_connection"), 1);
    let none = UpdateSpatialInterestMessage { conn_id: client.id, query: None };
    stage.say(&server, Header::new(FIRST, message_type::UPDATE_SPATIAL_INTEREST), &none);
    assert_eq!(stage.refused("interest_no_query"), 1);
}

#[test]
fn neighbours_hear_a_message_once_however_many_of_the_cells_they_see() {
    let cut = flat([5, 5], [1, 1], 0);
    let mut stage = Stage::world(cut, &[]);
    let server = stage.spatial_servers(cut).remove(0);
    let [near, far, named] = [stage.client(), stage.client(), stage.client()];
    stage.set_interest(&server, &near, sphere(middle(2, 2), f64::from(CELL_M) * 1.2));
    stage.set_interest(&server, &far, sphere(middle(0, 0), 4.0));
    stage.set_interest(&server, &named, sphere(middle(2, 2), 4.0));
    for peer in [&near, &far, &named, &server] {
        stage.read(peer);
    }
    let flags = Broadcast::ADJACENT_CHANNELS.0 | Broadcast::ALL_BUT_SENDER.0;
    let header = Header { channel_id: FIRST + 12, broadcast: flags, stub_id: 0, msg_type: 150 };
    stage.say(&server, header, &forwarded(named.id, vec![1]));
    stage.let_go();
    let heard = [&near, &far, &named, &server].map(|peer| stage.read_type(peer, 150).len());
    assert_eq!(heard, [1, 0, 0, 0]);
}

#[test]
fn the_table_of_cells_is_for_developers_alone() {
    for (development, tables) in [(true, 1), (false, 0)] {
        let cut = flat([2, 2], [1, 1], 0);
        let mut settings = super::stage::world::world_settings(cut, &[]);
        settings.development = development;
        let mut stage = Stage::new(settings);
        let server = stage.server();
        stage.say_bytes(&server, Header::new(0, message_type::DEBUG_GET_SPATIAL_REGIONS), Vec::new());
        assert_eq!(stage.read_type(&server, message_type::SPATIAL_REGIONS_UPDATE).len(), tables);
    }
}
