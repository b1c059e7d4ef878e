//! Messages that make no sense, from either side.

use std::sync::Arc;
use std::time::Duration;

use throng::prelude::*;
use throng::{LaneKind, LaneOptions};
use throng_edge::{
    Edge, EdgeError, EdgeOptions, LANE_BYTES_MIN, Origin, OriginOptions, ToEdge, ToOrigin, edge_user_data,
};
use throng_seeds::for_seeds;

use crate::stage::{PROTOCOL, Stage, edge_address, schema, server_options};

#[test]
fn a_client_that_is_no_edge_cannot_speak_as_one() {
    let mut stage = Stage::new("none", 1);
    let mut stranger = stage.connection_to_origin(0, &[0; 256]);
    for _ in 0..30 {
        stage.tick();
        stranger.update(stage.now).unwrap();
    }
    stranger.send(0, &ToOrigin { step: 0, session: 1, number: 7, lane: 0, body: vec![7; 256] }).unwrap();
    for _ in 0..10 {
        stranger.update(stage.now).unwrap();
        stage.tick();
    }
    let world = &stage.worlds[0];
    assert_eq!((world.heroes.len(), world.edges.len(), world.origin.counters().refused), (0, 0, 1));
}

#[test]
fn an_edge_of_another_revision_is_sent_away_and_told_why() {
    let mut stage = Stage::new("none", 1);
    let mut user_data = edge_user_data();
    user_data[11] -= 1;
    let mut former = stage.connection_to_origin(0, &user_data);
    for _ in 0..30 {
        stage.tick();
        former.update(stage.now).unwrap();
    }
    let end = former.end_reason().map(ToString::to_string).unwrap_or_default();
    assert!(end.contains("revision 5") && end.contains("revision 6"), "{end}");
    let world = &stage.worlds[0];
    assert_eq!((world.heroes.len(), world.edges.len(), world.origin.counters().refused), (0, 0, 1));
}

/// Cells, inputs and messages of the greatest length would be missing without a word.
#[test]
fn an_edge_whose_lane_is_too_small_or_not_ordered_is_refused_at_the_start() {
    let edge_over = |lanes: Vec<LaneOptions>, lane: u8| {
        let mut stage = Stage::new("none", 1);
        stage.lanes = lanes;
        let origin = stage.connection_to_origin(0, &edge_user_data());
        let driver = Box::new(stage.network.endpoint(edge_address(0)).unwrap());
        let server = Server::new(driver, schema(), server_options(&stage.key)).unwrap();
        Edge::new(server, vec![origin], EdgeOptions { lane, ..EdgeOptions::default() }).err()
    };
    let of = |kind, message_bytes| vec![LaneOptions { message_bytes, ..LaneOptions::new(kind) }];
    assert_eq!(edge_over(of(LaneKind::ReliableOrdered, LANE_BYTES_MIN), 0), None);
    for (lanes, lane) in [
        (of(LaneKind::ReliableOrdered, LANE_BYTES_MIN - 1), 0),
        (of(LaneKind::ReliableUnordered, LANE_BYTES_MIN), 0),
        (of(LaneKind::ReliableOrdered, LANE_BYTES_MIN), 1),
    ] {
        let error = edge_over(lanes, lane).expect("it does not begin");
        assert_eq!((error.clone(), error.tag()), (EdgeError::Lane(lane), "lane"));
        assert!(error.to_string().contains("132096"), "{error}");
    }
}

/// The next connection to an origin is another one.
#[test]
fn an_edge_leaves_an_origin_that_it_reaches_by_a_lane_that_is_too_small() {
    let mut stage = Stage::new("none", 1);
    stage.add_edge();
    stage.ticks(20);
    stage.lanes[0].message_bytes = LANE_BYTES_MIN - 1;
    stage.worlds.clear();
    let options = ServerOptions { lanes: stage.lanes.clone(), ..server_options(&stage.key) };
    stage.revive_with(0, options);
    let client = stage.connection_to_origin(0, &edge_user_data());
    assert!(stage.edges[0].replace_origin(0, client));
    stage.ticks(40);
    let end = stage.edges[0].origin_end(0).map(ToString::to_string).unwrap_or_default();
    assert!(end.contains("lane 0 must be reliable"), "{end}");
    assert_eq!(stage.edges[0].counters().origins_unfit, 1);
}

#[test]
fn an_edge_that_speaks_on_another_lane_than_its_origin_hears_is_sent_away_and_told_why() {
    let mut stage = Stage::with_origins("none", 1, 1, EdgeOptions { lane: 1, ..EdgeOptions::default() });
    stage.lanes = vec![LaneOptions::new(LaneKind::ReliableOrdered); 2];
    stage.worlds.clear();
    let options = ServerOptions { lanes: stage.lanes.clone(), ..server_options(&stage.key) };
    stage.revive_with(0, options);
    stage.add_edge();
    stage.add_client(0);
    stage.ticks(60);
    let end = stage.edges[0].origin_end(0).map(ToString::to_string).unwrap_or_default();
    assert!(end.contains("lane 1, and") && end.contains("lane 0: give both the same lane"), "{end}");
    let world = &stage.worlds[0];
    assert!(world.heroes.is_empty() && world.edges.is_empty() && world.origin.counters().refused >= 1);
}

#[test]
fn an_edge_leaves_an_origin_with_another_tick_interval_or_other_grids_and_says_why() {
    let other_ticks = |options: &mut ServerOptions| options.tick_interval = Duration::from_millis(50);
    let other_cells = |options: &mut ServerOptions| options.grids[0].shape.cell_m[0] = 20.0;
    let one_more = |options: &mut ServerOptions| options.grids.push(options.grids[0].clone());
    type Change<'a> = &'a dyn Fn(&mut ServerOptions);
    let cases: [(Change<'_>, &str); 3] = [
        (&other_ticks, "the edge ticks every 33ms, and this server every 50ms"),
        (&other_cells, "from grid 0 on"),
        (&one_more, "from grid 1 on"),
    ];
    for (change, words) in cases {
        let mut stage = Stage::new("none", 1);
        stage.worlds.clear();
        let mut options = server_options(&stage.key);
        change(&mut options);
        stage.revive_with(0, options);
        stage.add_edge();
        stage.add_client(0);
        stage.ticks(60);
        let end = stage.edges[0].origin_end(0).map(ToString::to_string).unwrap_or_default();
        assert!(end.contains(words), "{end}");
        let counters = stage.edges[0].counters();
        assert_eq!((counters.origins_unfit, counters.origins_lost, stage.worlds[0].heroes.len()), (1, 1, 0));
    }
}

#[test]
fn any_messages_of_an_edge_are_refused_or_harmless() {
    for_seeds(12, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut stage = Stage::new("none", seed);
        stage.add_edge();
        stage.add_client(0);
        let mut hostile = stage.connection_to_origin(0, &edge_user_data());
        for _ in 0..40 {
            stage.tick();
            hostile.update(stage.now).unwrap();
        }
        let mut said = 0;
        for _ in 0..200 {
            let body: Vec<u8> = (0..rng.usize(0..60)).map(|_| rng.u8(..)).collect();
            // Never a message that the test's own game would take for a word, nor a join of full length.
            let step = [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 255][rng.usize(..11)];
            let talk = ToOrigin { step, session: rng.u32(..3), number: rng.u64(..), lane: rng.u8(..), body };
            said += u64::from(hostile.send(0, &talk).is_ok());
            hostile.update(stage.now).unwrap();
            stage.tick();
        }
        let counters = stage.worlds[0].origin.counters();
        if said < 150 || counters.refused < said / 2 {
            return Err(format!("{counters:?} of {said}"));
        }
        // The honest edge goes on as before.
        stage.settle();
        stage.check(0)
    });
}

#[test]
fn any_messages_of_an_origin_are_refused_or_harmless() {
    for_seeds(12, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut stage = Stage::new("none", seed);
        stage.add_edge();
        stage.add_client(0);
        stage.ticks(60);
        for _ in 0..200 {
            let length = [rng.usize(0..40), 1, 2, 10, 18][rng.usize(..5)];
            let body: Vec<u8> = (0..length).map(|_| rng.u8(..3)).collect();
            // Never the end of a client.
            let step = [0, 1, 4, 5, 6, 7, 8, 77][rng.usize(..8)];
            let talk = ToEdge { step, session: rng.u32(..3), lane: rng.u8(..), body };
            let edge = stage.worlds[0].edges[0];
            stage.worlds[0].server.send(edge, 0, &talk).map_err(|error| error.to_string())?;
            stage.tick();
        }
        let refused = stage.edges[0].counters().refused;
        if refused < 80 {
            return Err(format!("{refused} refused"));
        }
        stage.settle();
        stage.check(0)
    });
}

/// A kind with a field that its owner predicts.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Predicted {
    #[replicate(position(step = 0.01), skip_owner)]
    position: [f32; 3],
}

/// A kind with a secret from its owner.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Hidden {
    #[replicate(integer, hide_from_owner)]
    trap: u32,
}

#[test]
fn a_schema_that_an_edge_cannot_pass_on_is_refused_at_the_start() {
    let stage = Stage::new("none", 1);
    let mut number = 100;
    let mut error = |schema: Schema| {
        number += 1;
        let driver = Box::new(stage.network.endpoint(([10, 3, 0, number], 40_000).into()).unwrap());
        let options = ServerOptions { ..server_options(&stage.key) };
        assert_eq!(options.protocol_id, PROTOCOL);
        let server = Server::new(driver, Arc::new(schema), options).unwrap();
        Edge::new(server, Vec::new(), EdgeOptions::default()).err()
    };
    let talking = || Schema::builder().kind::<ToOrigin>().kind::<ToEdge>();
    let predicted = error(talking().kind::<Predicted>().build().unwrap()).unwrap();
    assert_eq!(predicted, EdgeError::Kind { kind: "Predicted", words: "skip_owner" });
    let hidden = error(talking().kind::<Hidden>().build().unwrap()).unwrap();
    assert_eq!((hidden.tag(), hidden.to_string().contains("hide_from_owner")), ("kind", true));
    assert_eq!(error(Schema::builder().kind::<ToEdge>().build().unwrap()), Some(EdgeError::Schema("ToOrigin")));
    assert_eq!(error(Arc::try_unwrap(schema()).unwrap_or_else(|_| unreachable!())), None);
}

#[test]
fn who_joins_a_server_that_is_full_is_told_so() {
    let mut stage = Stage::new("none", 1);
    stage.worlds[0].origin = Origin::new(OriginOptions { players_max: 1, ..OriginOptions::default() });
    stage.add_edge();
    stage.ticks(20);
    stage.add_client(0);
    stage.ticks(20);
    stage.add_client(0);
    stage.ticks(60);
    assert!(stage.ends.get(&1).is_some_and(|end| end.to_string().contains("is full")), "{:?}", stage.ends);
    let counters = stage.worlds[0].origin.counters();
    assert_eq!((counters.players_refused, counters.refused, stage.ends.len()), (1, 0, 1));
    stage.settle();
    stage.check(0).unwrap();
}
