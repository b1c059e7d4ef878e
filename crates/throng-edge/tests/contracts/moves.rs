//! Players who walk from one server of a world to another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use throng::{ObjectId, Placement};
use throng_edge::{EdgeOptions, Origin, OriginError, OriginOptions, ToEdge, edge_user_data};
use throng_seeds::for_seeds;

use crate::stage::{Hero, Stage, Word, World};

/// Two worlds that share an area, with a border at x = 0.
pub(crate) fn two_worlds(condition: &str, seed: u64) -> Stage {
    two_worlds_with(condition, seed, EdgeOptions::default())
}

fn two_worlds_with(condition: &str, seed: u64, options: EdgeOptions) -> Stage {
    let options = EdgeOptions {
        // The cells on both sides of the border have objects of both.
        homes: Arc::new(|_, cell, homes| match cell[0] {
            -1 | 0 => homes.extend([0, 1]),
            x => homes.push(usize::from(x > 0)),
        }),
        entry: Arc::new(|client_id, _| usize::from(client_id % 12 >= 6)),
        ..options
    };
    let mut stage = Stage::with_origins(condition, seed, 2, options);
    for world in &mut stage.worlds {
        (world.has_border, world.is_frozen) = (true, true);
    }
    stage
}

/// Everybody walks up and down across the border.
pub(crate) fn pace(stage: &mut Stage, tick: u32) {
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
pub(crate) fn homes(stage: &Stage, client_id: u64) -> usize {
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

/// A world in which client 5 stands 5 m before the border and the others do not come near it.
fn near_the_border(condition: &str) -> Stage {
    near_the_border_with(condition, EdgeOptions::default())
}

fn near_the_border_with(condition: &str, options: EdgeOptions) -> Stage {
    let mut stage = two_worlds_with(condition, 5, options);
    stage.add_edge();
    stage.ticks(20);
    (0..6).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    stage.worlds.iter_mut().for_each(|world| world.has_border = false);
    stage
}

pub(crate) fn hand_over(stage: &mut Stage, from: usize, client_id: u64) {
    let World { origin, heroes, .. } = &mut stage.worlds[from];
    let player = *heroes.iter().find(|(_, (_, id))| *id == client_id).unwrap().0;
    origin.hand_over(player, 1 - from as u16).unwrap();
}

/// The second server is silent, and the edge does not know it yet: players are handed over all the same.
fn on_the_way_to_a_dead_server() -> Stage {
    let mut stage = near_the_border("none");
    stage.worlds.pop();
    hand_over(&mut stage, 0, 5);
    stage.ticks(60);
    assert_eq!((homes(&stage, 5), stage.worlds[0].ghosts.len()), (0, 1), "it waits for a server that is dead");
    stage
}

#[test]
fn who_is_on_the_way_to_a_server_that_dies_joins_the_next_one_there_and_leaves_no_ghost() {
    let mut stage = on_the_way_to_a_dead_server();
    stage.ticks(400);
    let counters = stage.edges[0].counters();
    assert_eq!((counters.origins_lost, counters.moved, counters.players), (1, 0, 6));
    assert!(stage.worlds[0].ghosts.is_empty(), "nobody is kept as a ghost");
    // It comes back, empty: the player joins it.
    stage.revive(1);
    let client = stage.connection_to_origin(1, &edge_user_data());
    assert!(stage.edges[0].replace_origin(1, client));
    stage.ticks(60);
    stage.settle();
    assert_eq!(stage.worlds[1].heroes.len(), 1);
    (0..6).for_each(|number| stage.check(number).unwrap());
}

/// A program that asks for the end of a connection can know it before the edge has polled its event.
#[test]
fn who_is_on_the_way_to_a_server_that_is_replaced_before_its_end_was_heard_leaves_no_ghost() {
    let mut stage = on_the_way_to_a_dead_server();
    // Nobody answers yet.
    let client = stage.connection_to_origin(1, &edge_user_data());
    assert!(stage.edges[0].replace_origin(1, client));
    stage.ticks(60);
    assert_eq!((stage.edges[0].counters().origins_lost, stage.worlds[0].ghosts.len()), (1, 0));
    stage.revive(1);
    stage.ticks(60);
    stage.settle();
    assert_eq!(homes(&stage, 5), 1);
    (0..6).for_each(|number| stage.check(number).unwrap());
}

#[test]
fn who_is_let_go_when_the_other_server_is_dead_comes_back_or_stays() {
    let mut stage = near_the_border("none");
    stage.clients[5].send_input(&[9]).unwrap();
    stage.ticks(10);
    stage.worlds.pop();
    stage.ticks(200);
    // The edge lets go of the player while the server seems to be there, and the game is slow.
    stage.worlds[0].holds_back = true;
    hand_over(&mut stage, 0, 5);
    stage.ticks_until(600, |stage| stage.edges[0].counters().origins_lost > 0);
    let World { server, origin, heroes, .. } = &mut stage.worlds[0];
    let (player, hero) = heroes.iter().find(|(_, (_, id))| *id == 5).map(|(player, hero)| (*player, hero.0)).unwrap();
    let state = crate::stage::state_of(server.get::<Hero>(hero).unwrap());
    origin.release(player, hero, &state).unwrap();
    stage.worlds[0].ghosts.insert(player);
    for tick in 0..30 {
        stage.tick();
        let shown = stage.clients[4].objects::<Hero>().filter(|(_, hero)| hero.name == 5).count();
        assert_eq!(shown, 1, "client 4 sees it once in tick {tick}");
    }
    assert_eq!((stage.edges[0].counters().returned, homes(&stage, 5), stage.worlds[0].ghosts.len()), (1, 1, 0));
    assert!(stage.truth().iter().any(|(hero, id)| *id == 5 && hero.acts == 9), "with all that it has done");
    // Now the edge knows that the server is dead: who wants there stays.
    stage.worlds[0].holds_back = false;
    hand_over(&mut stage, 0, 4);
    stage.ticks(30);
    assert_eq!((homes(&stage, 4), stage.edges[0].counters().moved, stage.edges[0].counters().returned), (1, 0, 1));
    stage.settle();
    (0..6).for_each(|number| stage.check(number).unwrap());
}

#[test]
fn a_game_that_never_releases_a_player_costs_that_player_its_connection_and_nobody_else() {
    let mut stage = near_the_border("none");
    stage.worlds[0].holds_back = true;
    hand_over(&mut stage, 0, 5);
    stage.ticks(280);
    assert!(stage.ends.is_empty());
    stage.ticks(80);
    assert_eq!(stage.ends.len(), 1);
    assert!(stage.ends[&5].to_string().contains("did not hand you over in time"), "{}", stage.ends[&5]);
    assert_eq!((stage.worlds[0].left.len(), stage.worlds[0].heroes.len()), (1, 5));
}

#[test]
fn who_gets_nothing_from_its_next_server_is_sent_away_and_leaves_no_ghost() {
    let mut stage = near_the_border("none");
    stage.worlds[1].ignores_arrivals = true;
    hand_over(&mut stage, 0, 5);
    stage.ticks(860);
    assert_eq!((stage.ends.len(), stage.worlds[0].ghosts.len(), stage.worlds[1].origin.players().count()), (0, 1, 1));
    stage.ticks(80);
    assert_eq!(stage.ends.keys().collect::<Vec<_>>(), [&5]);
    assert!(stage.ends[&5].to_string().contains("gave you nothing in time"), "{}", stage.ends[&5]);
    assert_eq!((stage.worlds[0].ghosts.len(), stage.worlds[0].left.len(), stage.worlds[1].left.len()), (0, 1, 1));
    assert_eq!((stage.edges[0].counters().moved, stage.edges[0].counters().players), (0, 5));
    stage.settle();
    (0..5).for_each(|number| stage.check(number).unwrap());
}

/// The former server dies while the next one gives nothing.
#[test]
fn who_gets_nothing_from_its_next_server_is_sent_away_also_if_the_former_one_is_gone() {
    let mut stage = near_the_border("none");
    stage.worlds[1].ignores_arrivals = true;
    hand_over(&mut stage, 0, 5);
    stage.ticks(20);
    drop(stage.worlds.remove(0));
    stage.ticks_until(400, |stage| stage.edges[0].origin_end(0).is_some());
    assert_eq!(stage.ends.len(), 0);
    stage.ticks_until(940, |stage| !stage.ends.is_empty());
    assert_eq!(stage.ends.keys().collect::<Vec<_>>(), [&5]);
    assert!(stage.ends[&5].to_string().contains("gave you nothing in time"), "{}", stage.ends[&5]);
    // One that does get its object has arrived.
    let mut stage = near_the_border("none");
    stage.worlds[1].ignores_arrivals = true;
    hand_over(&mut stage, 0, 5);
    stage.ticks(20);
    drop(stage.worlds.remove(0));
    stage.ticks_until(400, |stage| stage.edges[0].origin_end(0).is_some());
    let World { server, origin, heroes, .. } = &mut stage.worlds[0];
    let player = origin.players().next().unwrap();
    let hero = server.spawn(Hero { name: 5, ..Hero::default() }, Placement::Cell(0)).unwrap();
    origin.give(server, player, hero).unwrap();
    heroes.insert(player, (hero, 5));
    stage.ticks(1_000);
    assert_eq!((stage.ends.len(), stage.edges[0].counters().moved, homes(&stage, 5)), (0, 1, 1));
}

/// A new process answers in the place of a server that the others have given up.
#[test]
fn who_gets_nothing_from_a_next_server_that_is_gone_joins_another_one_and_leaves_no_ghost() {
    let options = EdgeOptions { is_gone: Arc::new(|origin| origin == 1), ..EdgeOptions::default() };
    let mut stage = near_the_border_with("none", options);
    stage.worlds[1].ignores_arrivals = true;
    hand_over(&mut stage, 0, 5);
    stage.ticks(860);
    assert_eq!((homes(&stage, 5), stage.worlds[0].ghosts.len()), (0, 1));
    stage.ticks(80);
    assert_eq!((homes(&stage, 5), stage.worlds[0].ghosts.len(), stage.worlds[1].left.len()), (1, 0, 1));
    assert_eq!((stage.edges[0].counters().moved, stage.edges[0].counters().taken_over, stage.ends.len()), (0, 1, 0));
    stage.settle();
    (0..6).for_each(|number| stage.check(number).unwrap());
}

/// It is found somewhere else while the old connection still holds.
#[test]
fn what_is_on_the_way_from_a_server_ends_with_a_connection_that_is_replaced_while_it_holds() {
    let mut stage = near_the_border("none");
    stage.worlds[0].holds_back = true;
    hand_over(&mut stage, 0, 5);
    stage.ticks(30);
    assert!(stage.edges[0].origin_end(0).is_none(), "the connection holds");
    let client = stage.connection_to_origin(0, &edge_user_data());
    assert!(stage.edges[0].replace_origin(0, client));
    assert_eq!(stage.edges[0].counters().origins_lost, 1);
    stage.ticks(400);
    assert!(stage.ends.is_empty(), "nobody waits for a state that never comes: {:?}", stage.ends);
    assert_eq!(stage.edges[0].counters().players, 6);
}

#[test]
fn an_edge_that_dies_takes_ghosts_with_it_also_where_players_are_kept() {
    let mut stage = two_worlds("none", 5);
    stage.worlds[0].origin = Origin::new(OriginOptions { keep_ticks: 10_000, ..OriginOptions::default() });
    stage.add_edge();
    stage.ticks(20);
    (0..6).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    stage.worlds.iter_mut().for_each(|world| world.has_border = false);
    stage.worlds.pop();
    hand_over(&mut stage, 0, 5);
    stage.ticks(30);
    assert_eq!(stage.worlds[0].ghosts.len(), 1);
    stage.edges.pop();
    stage.ticks(500);
    let world = &stage.worlds[0];
    assert_eq!((world.ghosts.len(), world.left.len(), world.away.len(), world.heroes.len()), (0, 1, 5, 5));
}

#[test]
fn acknowledged_inputs_are_exact_while_their_client_moves() {
    let mut stage = near_the_border("none");
    stage.worlds.iter_mut().for_each(|world| world.has_border = true);
    let (mut first, mut checked) = (None, 0);
    for tick in 0..480 {
        pace(&mut stage, tick);
        let number = stage.clients[5].send_input(&[1]).unwrap();
        let first = *first.get_or_insert(number);
        stage.tick();
        let client = &stage.clients[5];
        if let (Some(acked), Some((_, hero))) = (client.input_acked(), client.owned_objects::<Hero>().next()) {
            assert_eq!(hero.acts, acked - first + 1, "in tick {tick}");
            // Some ticks on both ways, and a few more while it moves.
            assert!(number - acked < 16, "input {number} and {acked} in tick {tick}");
            checked += 1;
        }
    }
    assert!(checked > 450 && stage.edges[0].counters().moved >= 6, "{checked}: {:?}", stage.edges[0].counters());
}

#[test]
fn an_input_is_acknowledged_whenever_it_came_and_if_no_other_follows() {
    for ticks in 0..12 {
        let mut stage = near_the_border("none");
        // So that batches of both servers have numbers that are far apart.
        for _ in 0..40 {
            stage.clients[0].send_input(&[1]).unwrap();
            stage.tick();
        }
        stage.ticks(10);
        let before = ticks < 4;
        let number = before.then(|| stage.clients[5].send_input(&[7]).unwrap());
        stage.ticks(if before { ticks } else { 0 });
        hand_over(&mut stage, 0, 5);
        stage.ticks(if before { 0 } else { ticks - 4 });
        let number = number.unwrap_or_else(|| stage.clients[5].send_input(&[7]).unwrap());
        stage.ticks(40);
        let client = &stage.clients[5];
        let acts = client.owned_objects::<Hero>().next().map(|(_, hero)| hero.acts);
        assert_eq!((client.input_acked(), acts), (Some(number), Some(7)), "case {ticks}");
        assert_eq!((stage.edges[0].counters().moved, homes(&stage, 5)), (1, 1));
    }
}

/// The acknowledgement of the first server may be lost on its way, and the player is with the second one then.
#[test]
fn inputs_that_the_first_server_has_taken_are_acknowledged_by_the_second() {
    let mut moved = 0;
    for_seeds(30, |seed| {
        let mut stage = near_the_border("none");
        for _ in 0..40 {
            stage.clients[0].send_input(&[1]).unwrap();
            stage.tick();
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        stage.network.set_condition("bad".parse().unwrap()).unwrap();
        let mut last = None;
        let moves_at = rng.u32(2..9);
        for tick in 0..10 {
            // Some send nothing any more, and nobody else does.
            if tick < moves_at || seed % 2 == 0 {
                last = stage.clients[5].send_input(&[1]).ok().or(last);
            }
            if tick == moves_at {
                hand_over(&mut stage, 0, 5);
            }
            stage.tick();
        }
        stage.ticks(20);
        stage.settle();
        moved += stage.edges[0].counters().moved;
        match stage.clients[5].input_acked() {
            acked if acked == last => Ok(()),
            acked => Err(format!("{acked:?} of {last:?}")),
        }
    });
    assert!(moved >= 20, "{moved}");
}

/// An object of the first server that comes to the player's edge late does not count as one of the second.
#[test]
fn an_object_that_is_given_at_the_last_moment_does_not_end_the_move() {
    let mut stage = near_the_border("none");
    stage.worlds[0].gives_late = true;
    hand_over(&mut stage, 0, 5);
    let shown = |stage: &Stage, name| stage.clients[4].objects::<Hero>().filter(|(_, hero)| hero.name == name).count();
    for tick in 0..60 {
        stage.tick();
        assert_eq!(shown(&stage, 5), 1, "in tick {tick}");
    }
    assert_eq!((stage.edges[0].counters().moved, shown(&stage, 99)), (1, 0));
    stage.settle();
    (0..6).for_each(|number| stage.check(number).unwrap());
}

#[test]
fn a_server_has_no_say_about_the_players_and_objects_of_another_one() {
    let mut stage = near_the_border("none");
    fn says(stage: &mut Stage, step: u8, body: Vec<u8>) {
        let World { server, edges, .. } = &mut stage.worlds[1];
        server.send(edges[0], 0, &ToEdge { step, session: 0, lane: 0, body }).unwrap();
        stage.ticks(5);
    }
    (0..6).for_each(|step| says(&mut stage, step, vec![0; 8]));
    stage.settle();
    stage.check(0).unwrap();
    // It has an object that client 4 sees too, and would like to be another server's.
    let (_, &(there, _)) = stage.worlds[0].heroes.iter().find(|(_, (_, id))| *id == 5).unwrap();
    let at = stage.worlds[0].server.get::<Hero>(there).unwrap().clone();
    let own = stage.worlds[1].server.spawn(Hero { name: 77, ..at }, throng::Placement::Cell(0)).unwrap();
    let bytes = |object: ObjectId| [object.index.to_le_bytes(), object.generation.to_le_bytes()].concat();
    let names = |stage: &Stage| -> BTreeSet<u32> {
        stage.clients[4].objects::<Hero>().map(|(_, hero)| hero.name).filter(|name| [5, 77].contains(name)).collect()
    };
    // A leave that is not its own to say, and then the object that is to go on.
    says(&mut stage, 7, [bytes(there), vec![1, 0]].concat());
    says(&mut stage, 6, [vec![0, 0], bytes(there), bytes(own)].concat());
    assert_eq!(names(&stage), [5, 77].into());
    // Its own server may say it, and says for where.
    for (to, shown) in [(0, BTreeSet::from([5, 77])), (1, [77].into())] {
        let World { server, edges, .. } = &mut stage.worlds[0];
        let body = [bytes(there), vec![to, 0]].concat();
        server.send(edges[0], 0, &ToEdge { step: 7, session: 0, lane: 0, body }).unwrap();
        stage.ticks(5);
        assert_eq!(names(&stage), shown);
    }
    assert_eq!((stage.edges[0].counters().refused, stage.ends.len(), stage.worlds[0].left.len()), (6, 0, 0));
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

/// 480 inputs of 64 bytes of each of 6 clients are more than a message has room for.
#[test]
fn held_inputs_that_are_too_many_for_one_message_go_in_several() {
    let mut stage = near_the_border("none");
    stage.worlds[0].holds_back = true;
    (0..6).for_each(|client_id| hand_over(&mut stage, 0, client_id));
    stage.ticks(10);
    let (mut last, mut count) = (vec![None; 6], 0);
    for _ in 0..160 {
        for (number, client) in stage.clients.iter_mut().enumerate() {
            (0..3).for_each(|_| last[number] = client.send_input(&[1; 64]).ok());
        }
        count += 3;
        stage.tick();
    }
    stage.ticks(10);
    let World { server, origin, heroes, ghosts, .. } = &mut stage.worlds[0];
    for (player, (hero, _)) in heroes.iter() {
        let state = crate::stage::state_of(server.get::<Hero>(*hero).unwrap());
        origin.release(*player, *hero, &state).unwrap();
        ghosts.insert(*player);
    }
    stage.ticks(60);
    let mut acts: Vec<(u64, u32)> = stage.truth().iter().map(|(hero, id)| (*id, hero.acts)).collect();
    acts.sort_unstable();
    assert_eq!(acts, (0..6).map(|id| (id, count)).collect::<Vec<_>>());
    let acked: Vec<_> = stage.clients.iter().map(|client| client.input_acked()).collect();
    assert_eq!((acked, stage.worlds[1].origin.counters().refused), (last, 0));
    assert_eq!((stage.edges[0].counters().moved, stage.edges[0].counters().inputs_dropped), (6, 0));
}

#[test]
fn a_state_that_is_too_long_to_arrive_is_refused_and_not_cut() {
    let mut stage = near_the_border("none");
    stage.worlds[0].holds_back = true;
    hand_over(&mut stage, 0, 5);
    stage.ticks(10);
    let World { server, edges, heroes, .. } = &mut stage.worlds[0];
    let session = heroes.iter().find(|(_, (_, id))| *id == 5).unwrap().0.session;
    let talk = ToEdge { step: 5, session, lane: 0, body: vec![0; throng_edge::BODY_MAX] };
    server.send(edges[0], 0, &talk).unwrap();
    stage.ticks(60);
    assert_eq!((stage.edges[0].counters().refused, homes(&stage, 5)), (1, 1));
    assert_eq!(stage.worlds[1].origin.players().count(), 0, "nobody arrives with a part of a state");
}
