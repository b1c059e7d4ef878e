//! Players who walk from one server of a world to another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use throng::ObjectId;
use throng_edge::{EdgeOptions, OriginError, edge_user_data};
use throng_seeds::for_seeds;

use crate::stage::{Hero, Stage, Word, World};

/// Two worlds that share an area, with a border at x = 0.
fn two_worlds(condition: &str, seed: u64) -> Stage {
    let options = EdgeOptions {
        // The cells on both sides of the border have objects of both.
        homes: Arc::new(|_, cell, homes| match cell[0] {
            -1 | 0 => homes.extend([0, 1]),
            x => homes.push(usize::from(x > 0)),
        }),
        entry: Arc::new(|client_id, _| usize::from(client_id % 12 >= 6)),
        ..EdgeOptions::default()
    };
    let mut stage = Stage::with_origins(condition, seed, 2, options);
    for world in &mut stage.worlds {
        (world.has_border, world.is_frozen) = (true, true);
    }
    stage
}

/// Everybody walks up and down across the border.
fn pace(stage: &mut Stage, tick: u32) {
    let speed = if tick % 240 < 120 { 6.0 } else { -6.0 };
    for world in &mut stage.worlds {
        world.is_frozen = false;
        let World { server, heroes, ghosts, .. } = world;
        for (_, (hero, _)) in heroes.iter().filter(|(player, _)| !ghosts.contains(player)) {
            server.get_mut::<Hero>(*hero).unwrap().velocity = [speed, 0.0, 0.0];
        }
    }
}

/// The worlds that simulate a client's hero.
fn homes(stage: &Stage, client_id: u64) -> usize {
    let of = |world: &World| {
        let heroes = world.heroes.iter().filter(|(player, _)| !world.ghosts.contains(player));
        heroes.filter(|(_, (_, id))| *id == client_id).count()
    };
    stage.worlds.iter().map(of).sum()
}

#[test]
fn who_walks_over_a_border_has_one_server_at_every_moment_and_ends_as_it_is_there() {
    for_seeds(6, |seed| {
        let mut stage = two_worlds("wifi", seed);
        (0..2).for_each(|_| stage.add_edge());
        stage.ticks(20);
        (0..8).for_each(|number| stage.add_client(number % 2));
        stage.ticks(60);
        stage.network.set_condition("bad".parse().unwrap()).unwrap();
        for tick in 0..700 {
            pace(&mut stage, tick);
            stage.tick();
            if let Some(number) = (0..8).find(|&number| homes(&stage, number) > 1) {
                return Err(format!("{number} has two homes in tick {tick}"));
            }
        }
        let moved: u64 = stage.edges.iter().map(|edge| edge.counters().moved).sum();
        if moved < 8 {
            return Err(format!("{moved} moves"));
        }
        stage.settle();
        if !stage.ends.is_empty() {
            return Err(format!("{:?}", stage.ends));
        }
        (0..8).try_for_each(|number| stage.check(number))
    });
}

/// Without loss, nobody ever sees somebody twice, or lose its id, or stand far from where it is.
#[test]
fn for_clients_of_all_edges_who_walks_over_a_border_goes_on_as_the_same_object() {
    let mut stage = two_worlds("none", 3);
    (0..2).for_each(|_| stage.add_edge());
    stage.ticks(20);
    (0..8).for_each(|number| stage.add_client(number % 2));
    stage.ticks(80);
    let mut ids: BTreeMap<(usize, u32), BTreeSet<ObjectId>> = BTreeMap::new();
    for tick in 0..600 {
        pace(&mut stage, tick);
        stage.tick();
        for (number, client) in stage.clients.iter().enumerate() {
            let shown: Vec<(ObjectId, Hero)> = client.objects::<Hero>().collect();
            let names: BTreeSet<u32> = shown.iter().map(|(_, hero)| hero.name).collect();
            assert_eq!(names.len(), shown.len(), "client {number} sees somebody twice in tick {tick}");
            // Those that are within sight of each other all the time.
            let sees_all = number < 3 || (3..8).all(|name| names.contains(&name));
            assert!(sees_all, "client {number} sees {names:?} in tick {tick}");
            for (id, hero) in shown {
                ids.entry((number, hero.name)).or_default().insert(id);
            }
        }
    }
    assert!(stage.edges.iter().all(|edge| edge.counters().moved >= 4), "three of them cross the border");
    let changed: Vec<_> =
        ids.iter().filter(|((number, name), ids)| *number > 2 && *name > 2 && ids.len() > 1).collect();
    assert!(changed.is_empty(), "{changed:?}");
}

#[test]
fn inputs_and_messages_arrive_once_and_in_order_while_their_client_moves() {
    for_seeds(6, |seed| {
        let mut stage = two_worlds(if seed % 2 == 0 { "none" } else { "wifi" }, seed);
        stage.add_edge();
        stage.ticks(20);
        (0..8).for_each(|_| stage.add_client(0));
        stage.ticks(60);
        let (mut sent, mut said, mut heard) = (vec![0; 8], vec![0; 8], vec![Vec::new(); 8]);
        for tick in 0..500 {
            pace(&mut stage, tick);
            for (number, client) in stage.clients.iter_mut().enumerate() {
                sent[number] += u32::from(client.send_input(&[1]).is_ok());
                if tick % 3 == 0 && client.send(0, &Word { text: format!("{}", said[number]) }).is_ok() {
                    said[number] += 1;
                }
            }
            stage.tick();
            stage.heard.drain(..).for_each(|(number, text)| heard[number].push(text));
        }
        stage.settle();
        stage.heard.drain(..).for_each(|(number, text)| heard[number].push(text));
        if stage.edges[0].counters().moved < 8 {
            return Err(format!("{:?}", stage.edges[0].counters()));
        }
        for number in 0..8 {
            let expected: Vec<String> = (0..said[number]).map(|word| format!("{word}!")).collect();
            if heard[number] != expected {
                return Err(format!("client {number} heard {:?} of {}", heard[number], said[number]));
            }
            let acts = stage.truth().iter().find(|(_, id)| *id == number as u64).map(|(hero, _)| hero.acts);
            // Inputs are lost with their datagrams only, and each goes in several.
            if acts.is_none_or(|acts| acts > sent[number] || acts + 5 < sent[number]) {
                return Err(format!("client {number} did {acts:?} of {}", sent[number]));
            }
            stage.check(number)?;
        }
        Ok(())
    });
}

#[test]
fn a_server_that_is_gone_gets_nobody_and_who_is_on_the_way_comes_back() {
    let mut stage = two_worlds("none", 5);
    stage.add_edge();
    stage.ticks(20);
    (0..2).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    stage.worlds.pop();
    // The second server is silent, and the edge does not know it yet: players are handed over all the same.
    for _ in 0..120 {
        pace(&mut stage, 0);
        stage.tick();
    }
    let counters = stage.edges[0].counters();
    assert_eq!((counters.moved, counters.players), (0, 2));
    stage.ticks(300);
    assert_eq!(stage.edges[0].counters().origins_lost, 1);
    assert!(stage.worlds[0].ghosts.is_empty(), "nobody is kept as a ghost");

    // It comes back, empty: they join it.
    stage.revive(1);
    stage.worlds[1].has_border = true;
    let client = stage.connection_to_origin(1, &edge_user_data());
    assert!(stage.edges[0].replace_origin(1, client));
    stage.ticks(60);
    stage.settle();
    (0..2).for_each(|number| stage.check(number).unwrap());

    // And when it is known to be gone, who wants there stays.
    stage.worlds.pop();
    stage.ticks(400);
    stage.revive(1);
    stage.add_client(0);
    stage.ticks(60);
    for _ in 0..200 {
        pace(&mut stage, 0);
        stage.tick();
    }
    assert_eq!((homes(&stage, 2), stage.worlds[0].ghosts.len()), (1, 0));
    stage.settle();
    stage.check(2).unwrap();
}

#[test]
fn a_player_is_handed_over_by_the_steps_in_their_order_alone() {
    let mut stage = two_worlds("none", 5);
    stage.add_edge();
    stage.ticks(20);
    stage.add_client(0);
    stage.ticks(60);
    stage.worlds.iter_mut().for_each(|world| world.has_border = false);
    let World { server, origin, heroes, .. } = &mut stage.worlds[0];
    let (player, (hero, _)) = heroes.first_key_value().map(|(player, hero)| (*player, *hero)).unwrap();
    assert_eq!(origin.release(player, hero, &[]), Err(OriginError::Moving));
    let stranger = throng_edge::PlayerId { session: 99, ..player };
    assert_eq!(origin.hand_over(stranger, 1), Err(OriginError::UnknownPlayer));
    origin.hand_over(player, 1).unwrap();
    assert_eq!(origin.hand_over(player, 1), Err(OriginError::Moving));
    assert_eq!(origin.release(player, hero, &[]), Err(OriginError::Moving));
    assert!(origin.give(server, player, hero).is_ok(), "it is still here");
    stage.ticks(20);
    // The first world's game has released it, and the second has it.
    let World { server, origin, heroes, .. } = &mut stage.worlds[0];
    assert!(heroes.is_empty());
    assert_eq!(origin.give(server, player, hero), Err(OriginError::UnknownPlayer));
    assert_eq!(stage.worlds[1].heroes.len(), 1);
    // There is no third world: it stays, and can be handed over again.
    let World { origin, heroes, .. } = &mut stage.worlds[1];
    let player = *heroes.first_key_value().unwrap().0;
    origin.hand_over(player, 2).unwrap();
    stage.ticks(20);
    assert!(stage.worlds[1].origin.hand_over(player, 0).is_ok());
    assert_eq!(stage.edges[0].counters().refused, 0);
}

#[test]
fn a_client_that_leaves_on_its_way_leaves_both_servers() {
    for steps in 0..8 {
        let mut stage = two_worlds("none", steps);
        stage.add_edge();
        stage.ticks(20);
        stage.add_client(0);
        stage.ticks(60);
        let World { origin, heroes, .. } = &mut stage.worlds[0];
        origin.hand_over(*heroes.first_key_value().unwrap().0, 1).unwrap();
        stage.ticks(steps as u32);
        let now = stage.now;
        stage.clients[0].close(now, "enough");
        stage.ticks(40);
        let heroes: Vec<usize> = stage.worlds.iter().map(|world| world.heroes.len() + world.ghosts.len()).collect();
        assert_eq!(heroes, [0, 0], "after {steps} ticks");
        assert_eq!(stage.edges[0].counters().objects, 0);
    }
}
