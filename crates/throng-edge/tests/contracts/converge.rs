//! Clients at edges end with the state of their origins.

use std::sync::Arc;

use throng_edge::EdgeOptions;
use throng_seeds::for_seeds;

use crate::stage::{Stage, distance};

#[test]
fn clients_of_two_edges_end_with_the_origins_state_after_a_storm() {
    for_seeds(6, |seed| {
        let mut stage = Stage::new("wifi", seed);
        (0..2).for_each(|_| stage.add_edge());
        stage.ticks(40);
        (0..14).for_each(|number| stage.add_client(number % 2));
        stage.ticks(60);
        stage.network.set_condition("bad".parse().unwrap()).unwrap();
        stage.ticks(200);
        // One edge's client sees those of the other move all the time.
        let seen: usize = stage.clients.iter().map(|client| client.ids().count()).sum();
        if seen < 14 * 3 {
            return Err(format!("the clients see {seen} in all"));
        }
        stage.settle();
        (0..14).try_for_each(|number| stage.check(number))
    });
}

#[test]
fn positions_are_near_the_truth_while_everybody_moves() {
    let mut stage = Stage::new("none", 3);
    stage.add_edge();
    (0..6).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    let (mut compared, mut moving) = (0, 0);
    for _ in 0..120 {
        stage.tick();
        let truth = stage.truth();
        for client in &stage.clients {
            for (_, shown) in client.objects::<crate::stage::Hero>() {
                let (hero, _) = truth.iter().find(|(hero, _)| hero.name == shown.name).unwrap();
                // 4 m/s along each axis, two ticks of way, and who walks on a border waits for a turn of three ticks.
                let error_m = distance(hero, &shown);
                assert!(error_m < 1.2, "{error_m} m: {shown:?}, {hero:?}");
                compared += 1;
                moving += u32::from(hero.velocity != [0.0; 3]);
            }
        }
    }
    assert!(compared > 2_000 && moving > 1_500, "{moving} of {compared}");
    // A steady network needs no recount, but the first.
    assert_eq!(stage.edges[0].counters().recounts, 1);
}

/// Bytes of replication to two clients of one edge in two seconds, beside those at rest, while two of another edge walk on.
fn bytes_of_walking(condition: &str) -> u64 {
    let mut stage = Stage::new(condition, 5);
    (0..2).for_each(|_| stage.add_edge());
    (0..4).for_each(|number| stage.add_client(number / 2));
    stage.ticks(90);
    stage.worlds[0].is_frozen = true;
    stage.ticks(40);
    let bytes = |stage: &Stage| stage.clients[..2].iter().map(|client| client.replication_bytes()).sum::<u64>();
    let before = bytes(&stage);
    stage.ticks(60);
    let at_rest = bytes(&stage) - before;
    let mut before = 0;
    for tick in 0..90 {
        if tick == 30 {
            // The beginning is over.
            before = bytes(&stage);
        }
        stage.worlds[0].walk_on(tick);
        stage.tick();
    }
    (bytes(&stage) - before).saturating_sub(at_rest)
}

#[test]
fn characters_that_walk_straight_are_not_stated_again_by_the_edge_whatever_the_jitter() {
    let (steady, jittery) = (bytes_of_walking("none"), bytes_of_walking("wifi"));
    // Two walkers for each of two clients: stated in each tick they would be 60 x 4 x 10 bytes.
    assert!(steady < 1_000 && jittery < 1_200, "{steady} bytes, {jittery} with jitter");
}

#[test]
fn two_origins_share_a_world_and_each_sends_its_own_cells() {
    let options = EdgeOptions {
        homes: Arc::new(|_, cell, homes| homes.push(usize::from(cell[0] >= 0))),
        entry: Arc::new(|client_id, _| usize::from(client_id % 12 >= 6)),
        ..EdgeOptions::default()
    };
    let mut stage = Stage::with_origins("wifi", 9, 2, options);
    stage.add_edge();
    stage.worlds.iter_mut().for_each(|world| world.is_frozen = true);
    (0..12).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    stage.settle();
    for number in 0..12 {
        stage.check(number).unwrap();
    }
    let of = |number: usize| stage.worlds[number].heroes.len();
    assert_eq!((of(0), of(1)), (6, 6));
    // The two beside the border see three of the other side.
    let names: Vec<u32> = stage.clients[5].objects::<crate::stage::Hero>().map(|(_, hero)| hero.name).collect();
    assert!([6, 7, 8].iter().all(|name| names.contains(name)), "{names:?}");
}
