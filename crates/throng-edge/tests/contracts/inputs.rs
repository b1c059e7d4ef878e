//! Inputs and messages go up, and answers come down.

use throng::link::netcode::DropReason;
use throng::{Client, Placement, ServerOptions};
use throng_seeds::for_seeds;

use crate::stage::{Hero, Stage, Word, World, server_options};

#[test]
fn the_state_of_own_objects_is_that_after_exactly_the_acknowledged_inputs() {
    for_seeds(6, |seed| {
        let mut stage = Stage::new("wifi", seed);
        stage.add_edge();
        (0..3).for_each(|_| stage.add_client(0));
        stage.ticks(80);
        stage.network.set_condition("bad".parse().unwrap()).unwrap();
        let mut rng = fastrand::Rng::with_seed(seed);
        // The sum of all inputs up to a number, by client.
        let mut sums: Vec<Vec<(u32, u32)>> = vec![vec![]; 3];
        let (mut checked, mut last) = (0, vec![0; 3]);
        for _ in 0..250 {
            for (number, client) in stage.clients.iter_mut().enumerate() {
                let worth = rng.u8(1..50);
                if let Ok(input) = client.send_input(&[worth]) {
                    let sum = sums[number].last().map_or(0, |(_, sum)| *sum) + u32::from(worth);
                    sums[number].push((input, sum));
                }
            }
            stage.tick();
            for (number, client) in stage.clients.iter().enumerate() {
                let Some((_, hero)) = client.owned_objects::<Hero>().next() else { continue };
                let acked = client.input_acked();
                let sum = acked.and_then(|acked| sums[number].iter().find(|(input, _)| *input == acked));
                let expected = sum.map_or(0, |(_, sum)| *sum);
                // Lost inputs are missing in the sum.
                if hero.acts > expected || acked.is_none() && hero.acts > 0 {
                    return Err(format!("client {number} has {} of {expected} after {acked:?}", hero.acts));
                }
                if hero.secret != hero.acts * 7 {
                    return Err(format!("client {number}: {hero:?}"));
                }
                checked += u32::from(acked.is_some());
                last[number] = hero.acts;
            }
        }
        match checked > 200 && last.iter().all(|acts| *acts > 500) {
            true => Ok(()),
            false => Err(format!("{checked} states, {last:?}")),
        }
    });
}

/// An edge sends what all of its clients send, and more often than one of them may.
#[test]
fn an_edge_is_listened_to_more_than_one_client() {
    let mut stage = Stage::new("none", 4);
    stage.worlds.clear();
    let options = server_options(&stage.key);
    stage.revive_with(0, ServerOptions { client_packets_per_s: 12, ..options });
    stage.add_edge();
    stage.ticks(30);
    stage.add_client(0);
    stage.ticks(60);
    for _ in 0..120 {
        stage.clients[0].send_input(&[1]).unwrap();
        stage.tick();
    }
    stage.ticks(20);
    let counters = stage.worlds[0].server.door_counters();
    assert_eq!(counters.dropped(DropReason::TooManyPackets), 0, "{counters:?}");
    assert_eq!(stage.truth()[0].0.acts, 120);
    stage.settle();
    stage.check(0).unwrap();
}

/// Without loss nothing is missing: the state is that after exactly the acknowledged inputs.
#[test]
fn without_loss_no_input_is_missing() {
    let mut stage = Stage::new("none", 4);
    stage.add_edge();
    stage.add_client(0);
    stage.ticks(60);
    let (mut checked, mut first) = (0, None);
    for _ in 0..200 {
        // Each counts one.
        let number = stage.clients[0].send_input(&[1]).unwrap();
        let first = *first.get_or_insert(number);
        stage.tick();
        let client = &stage.clients[0];
        if let (Some(acked), Some((_, hero))) = (client.input_acked(), client.owned_objects::<Hero>().next()) {
            assert_eq!(hero.acts, acked - first + 1);
            checked += 1;
        }
    }
    assert!(checked > 150, "{checked}");
}

#[test]
fn an_object_that_is_given_to_somebody_else_is_nobody_elses_any_more() {
    let mut stage = Stage::new("wifi", 12);
    (0..2).for_each(|_| stage.add_edge());
    (0..3).for_each(|number| stage.add_client(usize::from(number == 2)));
    stage.ticks(80);
    stage.worlds[0].is_frozen = true;
    let world = &mut stage.worlds[0];
    let of = |id: u64| *world.heroes.iter().find(|(_, (_, known))| *known == id).unwrap().0;
    let (first, second, third) = (of(0), of(1), of(2));
    let hero = world.heroes[&first].0;
    world.server.get_mut::<Hero>(hero).unwrap().secret = 77;
    stage.ticks(40);
    let owners = |stage: &Stage| {
        let secret = |client: &throng::Client| {
            let mine = client.owned_objects::<Hero>().find(|(_, hero)| hero.name == 0);
            let shown = client.objects::<Hero>().find(|(_, hero)| hero.name == 0);
            (mine.is_some(), shown.map_or(0, |(_, hero)| hero.secret))
        };
        stage.clients.iter().map(secret).collect::<Vec<_>>()
    };
    let (mine, other) = ((true, 77), (false, 0));
    assert_eq!(owners(&stage), [mine, other, other]);
    // To another client of the same edge, to one of another edge, and to nobody.
    for (owner, expected) in [(second, [other, mine, other]), (third, [other, other, mine])] {
        let World { server, origin, .. } = &mut stage.worlds[0];
        origin.give(server, owner, hero).unwrap();
        stage.ticks(60);
        assert_eq!(owners(&stage), expected);
    }
    stage.worlds[0].server.set_owner(hero, None).unwrap();
    stage.ticks(60);
    assert_eq!(owners(&stage), [other, other, other]);
}

#[test]
fn who_has_given_its_object_to_somebody_of_the_same_edge_looks_from_there_no_longer() {
    let mut stage = Stage::new("none", 12);
    stage.add_edge();
    stage.ticks(20);
    (0..2).for_each(|_| stage.add_client(0));
    stage.worlds[0].is_frozen = true;
    stage.ticks(60);
    let World { server, origin, heroes, .. } = &mut stage.worlds[0];
    let of = |id: u64| heroes.iter().find(|(_, (_, known))| *known == id).map(|(player, (hero, _))| (*player, *hero));
    let ((first, hero), (second, _)) = (of(0).unwrap(), of(1).unwrap());
    let far = Hero { position: [60.0, 0.0, 1.0], name: 77, ..Hero::default() };
    server.spawn(far, Placement::Cell(0)).unwrap();
    origin.give(server, second, hero).unwrap();
    origin.look(first, [60.0, 0.0, 1.0]).unwrap();
    stage.ticks(60);
    let sees = |client: &Client| client.objects::<Hero>().map(|(_, hero)| hero.name).collect::<Vec<_>>();
    assert_eq!((sees(&stage.clients[0]), stage.clients[1].owned().count()), (vec![77], 2));
    // Its own inputs are acknowledged without an object.
    let number = stage.clients[0].send_input(&[1]).unwrap();
    stage.ticks(20);
    assert_eq!(stage.clients[0].input_acked(), Some(number));
}

#[test]
fn messages_go_both_ways_and_the_origin_can_end_a_client() {
    let mut stage = Stage::new("wifi", 8);
    stage.add_edge();
    (0..2).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    for (number, text) in [(0, "one"), (1, "two"), (0, "three")] {
        stage.clients[number].send(0, &Word { text: text.to_owned() }).unwrap();
    }
    stage.ticks(40);
    let mut heard = stage.heard.clone();
    heard.sort();
    assert_eq!(heard, [(0, "one!".to_owned()), (0, "three!".to_owned()), (1, "two!".to_owned())]);
    stage.clients[1].send(0, &Word { text: "bye".to_owned() }).unwrap();
    stage.ticks(60);
    assert!(stage.ends[&1].to_string().contains("you said bye"), "{}", stage.ends[&1]);
    assert_eq!((stage.worlds[0].left.len(), stage.edges[0].counters().players), (1, 1));
    stage.settle();
    stage.check(0).unwrap();
}

/// The game may answer an input of such a player with an object: a hero that rises again.
#[test]
fn inputs_of_who_owns_nothing_are_acknowledged_and_never_stop() {
    let mut stage = Stage::new("none", 5);
    stage.add_edge();
    (0..2).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    let World { server, heroes, .. } = &mut stage.worlds[0];
    let player = *heroes.iter().find(|(_, (_, id))| *id == 1).unwrap().0;
    server.despawn(heroes.remove(&player).unwrap().0);
    let mut last = None;
    for _ in 0..600 {
        (0..2).for_each(|_| last = stage.clients[1].send_input(&[1]).ok());
        stage.tick();
    }
    stage.ticks(20);
    assert_eq!((stage.worlds[0].vain_inputs, stage.edges[0].counters().inputs_dropped), (1_200, 0));
    assert_eq!(stage.clients[1].input_acked(), last);
}

#[test]
fn a_client_whose_lane_is_full_loses_its_connection_and_no_message_before_that() {
    let mut stage = Stage::new("none", 5);
    stage.add_edge();
    (0..2).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    // It does not answer for a while.
    let silent = stage.clients.pop().unwrap();
    let World { server, origin, heroes, .. } = &mut stage.worlds[0];
    let player = *heroes.iter().find(|(_, (_, id))| *id == 1).unwrap().0;
    for number in 0..1_100 {
        origin.send(server, player, 0, &Word { text: format!("{number}") }).unwrap();
    }
    stage.ticks(30);
    assert_eq!((stage.worlds[0].left.len(), stage.edges[0].counters().players), (1, 1));
    stage.clients.push(silent);
    stage.ticks(10);
    assert!(stage.ends[&1].to_string().contains("you take the messages too slowly"), "{}", stage.ends[&1]);
    let heard: Vec<String> = stage.heard.iter().map(|(_, text)| text.clone()).collect();
    assert_eq!(heard, (0..heard.len()).map(|number| number.to_string()).collect::<Vec<_>>());
    let counters = stage.edges[0].counters();
    assert_eq!((counters.clients_too_slow, counters.refused), (1, 0));
    stage.settle();
    stage.check(0).unwrap();
}
