//! Edges and origins that die.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::stage::{Stage, Word};
use throng_edge::{EdgeOptions, Origin, OriginOptions, edge_user_data};

#[test]
fn the_players_of_an_edge_that_dies_leave_one_by_one() {
    let mut stage = Stage::new("none", 6);
    (0..2).for_each(|_| stage.add_edge());
    (0..10).for_each(|number| stage.add_client(number % 2));
    stage.ticks(60);
    assert_eq!((stage.worlds[0].edges.len(), stage.worlds[0].heroes.len()), (2, 10));
    stage.edges.pop();
    stage.ticks(400);
    let world = &stage.worlds[0];
    assert_eq!((world.edges.len(), world.heroes.len(), world.left.len()), (1, 5, 5));
    stage.settle();
    for number in (0..10).step_by(2) {
        stage.check(number).unwrap();
    }
}

#[test]
fn clients_stay_when_their_origin_dies_and_join_the_next_one() {
    let mut stage = Stage::new("none", 7);
    stage.add_edge();
    (0..6).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    let former = stage.worlds.pop().unwrap();
    drop(former);
    stage.ticks(400);
    assert!(stage.edges[0].origin_end(0).is_some());
    assert_eq!((stage.edges[0].counters().objects, stage.edges[0].counters().origins_lost), (0, 1));
    assert!(stage.ends.is_empty(), "no client has lost its connection");
    assert!(stage.clients.iter().all(|client| client.ids().count() == 0), "nothing is told that nobody knows");

    stage.revive(0);
    let client = stage.connection_to_origin(0, &edge_user_data());
    assert!(stage.edges[0].replace_origin(0, client));
    stage.ticks(60);
    stage.settle();
    for number in 0..6 {
        stage.check(number).unwrap();
    }
    let inputs = stage.clients[2].send_input(&[9]).is_ok();
    stage.ticks(20);
    let acts = stage.truth().iter().find(|(_, id)| *id == 2).map(|(hero, _)| hero.acts);
    assert_eq!((inputs, acts), (true, Some(9)));
    let client = stage.connection_to_origin(0, &edge_user_data());
    assert!(!stage.edges[0].replace_origin(1, client), "there is no second origin");
}

#[test]
fn what_clients_have_said_to_an_origin_that_is_given_up_before_it_was_sent_is_counted() {
    let mut stage = Stage::new("none", 8);
    stage.add_edge();
    (0..2).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    let dropped = |stage: &Stage| {
        let counters = stage.edges[0].counters();
        (counters.inputs_dropped, counters.messages_dropped)
    };
    stage.clients[0].send_input(&[1]).unwrap();
    stage.clients[1].send(0, &Word { text: "hello".to_owned() }).unwrap();
    stage.tick();
    let now = stage.now;
    stage.edges[0].receive(now).unwrap();
    assert_eq!(dropped(&stage), (0, 0), "both wait for the end of the tick");
    let client = stage.connection_of_edge(0, 0, &edge_user_data());
    assert!(stage.edges[0].replace_origin(0, client));
    assert_eq!(dropped(&stage), (1, 1));
    stage.ticks(60);
    assert_eq!((dropped(&stage), stage.worlds[0].words.len()), ((1, 1), 0), "they are lost, and counted once");
}

#[test]
fn a_server_that_was_out_of_reach_gives_up_the_players_whom_another_one_serves() {
    let is_cut_off = Arc::new(AtomicBool::new(false));
    let (is_gone, entry) = (is_cut_off.clone(), is_cut_off.clone());
    let options = EdgeOptions {
        homes: Arc::new(|_, _, homes| homes.extend([0, 1])),
        is_gone: Arc::new(move |origin| origin == 0 && is_gone.load(Ordering::Relaxed)),
        entry: Arc::new(move |_, _| entry.load(Ordering::Relaxed).into()),
        ..EdgeOptions::default()
    };
    let mut stage = Stage::with_origins("none", 7, 2, options);
    stage.worlds[0].origin = Origin::new(OriginOptions { keep_ticks: 9_000, ..OriginOptions::default() });
    stage.add_edge();
    stage.ticks(20);
    (0..2).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    let cut_off = stage.worlds.remove(0);
    is_cut_off.store(true, Ordering::Relaxed);
    stage.ticks_until(600, |stage| stage.worlds[0].heroes.len() == 2);
    stage.worlds.insert(0, cut_off);
    stage.ticks(5);
    assert_eq!((stage.worlds[0].away.len(), stage.worlds[0].left.len()), (2, 0));
    let link = stage.connection_of_edge(0, 0, &edge_user_data());
    assert!(stage.edges[0].replace_origin(0, link));
    stage.ticks(40);
    assert_eq!((stage.worlds[0].left.len(), stage.worlds[1].heroes.len()), (2, 2));
}
