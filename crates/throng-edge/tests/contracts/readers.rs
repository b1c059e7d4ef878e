//! The origin's work depends on what is looked at, not on how many look.

use crate::stage::{Stage, server_options};

/// Subscriptions, and bytes of replication that an origin sends in a second, for an edge with so many clients in the same
/// place.
fn upstream(readers: usize) -> (usize, u64) {
    let mut stage = Stage::new("none", 11);
    stage.add_edge();
    // Two who walk, and belong to another edge.
    stage.add_edge();
    (0..2).for_each(|_| stage.add_client(1));
    for _ in 0..readers {
        stage.add_client(0);
    }
    stage.ticks(60);
    // Readers have no character, and look all from one place.
    let world = &mut stage.worlds[0];
    let players: Vec<_> = world.origin.players().filter(|player| player.edge == world.edges[0]).collect();
    assert_eq!(players.len(), readers);
    for player in &players {
        let (hero, _) = world.heroes.remove(player).unwrap();
        world.server.despawn(hero);
        // All come from far away, so that none holds a cell from before.
        world.origin.look(*player, [5_000.0, 0.0, 1.0]).unwrap();
    }
    stage.ticks(90);
    let world = &mut stage.worlds[0];
    for player in players {
        world.origin.look(player, [-45.0, 0.0, 1.0]).unwrap();
    }
    world.begin_anew(3);
    stage.ticks(200);
    let edge = stage.worlds[0].edges[0];
    let replicator = stage.worlds[0].server.replicator();
    let subscriptions = replicator.hub_ref().channels_of(edge).count();
    let bytes = |stage: &Stage| stage.edges[0].origin(0).unwrap().replication_bytes();
    let before = bytes(&stage);
    stage.ticks(30);
    // Each of them sees both.
    for client in &stage.clients[2..] {
        assert_eq!(client.ids().count(), 2);
    }
    (subscriptions, bytes(&stage) - before)
}

#[test]
fn what_goes_to_an_edge_does_not_depend_on_the_number_of_its_clients() {
    let one = upstream(1);
    assert!(one.0 > 10 && one.1 > 20, "{one:?}");
    for readers in [10, 100] {
        let (subscriptions, bytes) = upstream(readers);
        assert_eq!(subscriptions, one.0);
        // Ids of objects are longer where there were more.
        assert!(bytes.abs_diff(one.1) <= 8, "{bytes} bytes for {readers}, {} for one", one.1);
    }
}

#[test]
fn a_cell_is_sent_in_the_shortest_interval_of_its_readers() {
    let mut stage = Stage::new("none", 4);
    (0..2).for_each(|_| stage.add_edge());
    (0..2).for_each(|_| stage.add_client(1));
    (0..2).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    let world = &mut stage.worlds[0];
    let readers = world.heroes.iter().filter(|(_, (_, id))| *id >= 2).map(|(player, _)| *player);
    let readers: Vec<_> = readers.collect();
    for player in &readers {
        let (hero, _) = world.heroes.remove(player).unwrap();
        world.server.despawn(hero);
    }
    // How many bytes come in two seconds if the two look from so far.
    let mut bytes_from = |places: [f64; 2]| {
        for (player, x) in readers.iter().zip(places) {
            stage.worlds[0].origin.look(*player, [-45.0, x, 1.0]).unwrap();
        }
        stage.worlds[0].is_frozen = true;
        stage.worlds[0].is_restless = true;
        stage.worlds[0].begin_anew(8);
        stage.ticks(120);
        let bytes = |stage: &Stage| stage.edges[0].origin(0).unwrap().replication_bytes();
        let before = bytes(&stage);
        stage.ticks(90);
        bytes(&stage) - before
    };
    let (far, near, mixed) = (bytes_from([36.0, 36.0]), bytes_from([0.0, 0.0]), bytes_from([0.0, 36.0]));
    assert!(near > far * 3 / 2, "{near} bytes near, {far} far");
    assert!(mixed.abs_diff(near) * 5 < near, "{mixed} bytes if one is near, {near} if both are");
}

#[test]
fn cells_without_readers_are_not_sent_any_more() {
    let mut stage = Stage::new("none", 2);
    stage.add_edge();
    stage.add_client(0);
    stage.ticks(60);
    let looks = stage.edges[0].counters().looks;
    assert!(looks > 10, "{looks}");
    stage.clients.pop();
    // The client is silent until its connection times out.
    stage.ticks(500);
    let counters = stage.edges[0].counters();
    assert_eq!((counters.looks, counters.objects, counters.players), (0, 0, 0));
    assert_eq!(stage.worlds[0].left.len(), 1);
}

/// A cell that a server refuses is asked for again, and until it is sent the edge does not look by newer borders.
#[test]
fn cells_that_a_server_refuses_are_asked_for_again_and_no_version_is_said_before_they_are_sent() {
    let mut stage = Stage::new("none", 2);
    stage.worlds.clear();
    let mut options = server_options(&stage.key);
    // Enough for two places, and not for three.
    options.replicator.limits.subscriptions_per_connection = 180;
    stage.revive_with(0, options);
    (0..2).for_each(|_| stage.add_edge());
    stage.ticks(20);
    (0..2).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    // Two readers without a character, far away from all.
    let world = &mut stage.worlds[0];
    let mut readers = Vec::new();
    while let Some((reader, (hero, _))) = world.heroes.pop_first() {
        world.server.despawn(hero);
        world.origin.look(reader, [5_000.0 + 1_000.0 * readers.len() as f64, 0.0, 1.0]).unwrap();
        readers.push(reader);
    }
    let refused = |stage: &Stage| stage.worlds[0].origin.counters().looks_refused;
    stage.ticks(300);
    let before = refused(&stage);
    stage.ticks(60);
    assert_eq!(refused(&stage), before);
    (0..2).for_each(|number| stage.add_client(number));
    stage.worlds[0].is_frozen = true;
    for version in 1..=120 {
        stage.edges[0].say_looks(version);
        let said = stage.worlds[0].looks.len();
        stage.tick();
        let is_said_in_vain = stage.worlds[0].looks.len() > said && refused(&stage) > before;
        assert!(!is_said_in_vain, "version {version} was believed, and cells were refused");
    }
    let said = stage.worlds[0].looks.len();
    assert!(said > 0 && refused(&stage) - before > 40, "{said} versions");
    // The first place is free again.
    stage.worlds[0].origin.look(readers[0], [-32.0, 0.0, 1.0]).unwrap();
    stage.ticks(150);
    stage.check(2).unwrap();
    assert_eq!(stage.worlds[0].looks[said..], [120]);
    let before = refused(&stage);
    stage.ticks(60);
    assert_eq!((refused(&stage), stage.edges[0].counters().refused), (before, 0));
}
