//! Clients whose edge dies come back to another one as the same players.

use throng::Client;
use throng_edge::{Origin, OriginOptions, edge_user_data};

use crate::moves::{hand_over, two_worlds};
use crate::stage::{Hero, Stage, Word, World};

const KEEP_TICKS: u32 = 90;

/// Three clients at the first of two edges, each of which has done something.
fn stage(condition: &str) -> Stage {
    let mut stage = Stage::new(condition, 3);
    stage.worlds[0].origin = Origin::new(OriginOptions { keep_ticks: KEEP_TICKS, ..OriginOptions::default() });
    (0..2).for_each(|_| stage.add_edge());
    stage.ticks(20);
    (0..3).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    for (number, client) in stage.clients.iter_mut().enumerate() {
        client.send_input(&[number as u8 + 5]).unwrap();
    }
    stage.ticks(20);
    stage
}

fn acts(stage: &Stage) -> Vec<(u64, u32)> {
    let mut acts: Vec<(u64, u32)> = stage.truth().iter().map(|(hero, id)| (*id, hero.acts)).collect();
    acts.sort_unstable();
    acts
}

#[test]
fn clients_of_an_edge_that_dies_go_on_at_another_one_before_anybody_has_noticed() {
    let mut stage = stage("none");
    stage.edges.remove(0);
    // The origin does not know yet that the edge is dead.
    (0..3).for_each(|number| stage.reconnect(number, 1));
    let mut seen_after = None;
    for tick in 0..30 {
        stage.tick();
        let all_own = stage.clients.iter().all(|client| client.owned_objects::<Hero>().next().is_some());
        seen_after = seen_after.or(all_own.then_some(tick));
    }
    assert!(seen_after.is_some_and(|ticks| ticks < 15), "they have their heroes after {seen_after:?} ticks");
    assert_eq!(acts(&stage), [(0, 5), (1, 6), (2, 7)]);
    for client in &mut stage.clients {
        client.send_input(&[1]).unwrap();
    }
    // The dead edge is given up, and nobody leaves with it.
    stage.ticks(500);
    stage.settle();
    assert_eq!(acts(&stage), [(0, 6), (1, 7), (2, 8)]);
    let world = &stage.worlds[0];
    assert_eq!((world.edges.len(), world.left.len(), world.away.len()), (1, 0, 0));
    (0..3).for_each(|number| stage.check(number).unwrap());
}

#[test]
fn who_does_not_come_back_in_time_leaves_and_who_does_goes_on() {
    let mut stage = stage("wifi");
    stage.edges.remove(0);
    stage.ticks_until(600, |stage| !stage.worlds[0].away.is_empty());
    assert_eq!((stage.worlds[0].away.len(), stage.worlds[0].heroes.len()), (3, 3), "all are away");
    stage.reconnect(1, 1);
    stage.ticks(KEEP_TICKS - 30);
    assert!(stage.worlds[0].left.is_empty(), "it is too early");
    stage.ticks(60);
    assert_eq!((stage.worlds[0].left.len(), acts(&stage)), (2, vec![(1, 6)]));
    stage.reconnect(0, 1);
    stage.ticks(60);
    stage.settle();
    assert_eq!(acts(&stage), [(0, 0), (1, 6)], "who comes back too late begins anew");
    [0, 1].into_iter().for_each(|number| stage.check(number).unwrap());
}

#[test]
fn who_says_goodbye_or_is_sent_away_leaves_at_once_and_who_connects_twice_goes_on() {
    let mut stage = stage("none");
    let now = stage.now;
    stage.clients[0].close(now, "enough");
    let world = &mut stage.worlds[0];
    let second = *world.heroes.iter().find(|(_, (_, id))| *id == 1).unwrap().0;
    world.origin.disconnect(second, "you have to go").unwrap();
    stage.reconnect(2, 0);
    stage.ticks(40);
    let world = &stage.worlds[0];
    assert_eq!((world.left.len(), world.heroes.len()), (2, 1));
    assert_eq!(acts(&stage), [(2, 7)]);
    stage.settle();
    stage.check(2).unwrap();
}

/// Somebody else has a token for the same client, or the client has forgotten its former connection. Both edges live.
#[test]
fn a_client_that_is_at_two_edges_has_one_player_and_its_former_connection_ends() {
    for keep_ticks in [0, KEEP_TICKS] {
        let mut stage = Stage::new("none", 3);
        stage.worlds[0].origin = Origin::new(OriginOptions { keep_ticks, ..OriginOptions::default() });
        (0..2).for_each(|_| stage.add_edge());
        stage.ticks(20);
        (0..3).for_each(|_| stage.add_client(0));
        stage.ticks(60);
        stage.clients[2].send_input(&[5]).unwrap();
        stage.ticks(20);
        let mut former = stage.clients.pop().unwrap();
        let again = stage.connection_to_edge(2, 1);
        stage.clients.push(again);
        let mut heroes_most = 0;
        for _ in 0..40 {
            stage.tick();
            former.update(stage.now).unwrap();
            heroes_most = stage.worlds[0].heroes.len().max(heroes_most);
        }
        let told = format!("{keep_ticks} ticks");
        let end = former.end_reason().map(ToString::to_string).unwrap_or_default();
        assert!(end.contains("connected again"), "{told}: {end}");
        // Without time to come back in, it is a new player.
        let (own, left) = if keep_ticks == 0 { (0, 1) } else { (5, 0) };
        assert_eq!((acts(&stage).last(), heroes_most), (Some(&(2, own)), 3), "{told}");
        let world = &stage.worlds[0];
        assert_eq!((world.left.len(), world.away.len(), world.vain_inputs), (left, 0, 0), "{told}");
        assert_eq!((world.origin.counters().refused, stage.edges[0].counters().refused), (0, 0), "{told}");
        assert_eq!(stage.edges.iter().map(|edge| edge.counters().players).collect::<Vec<_>>(), [2, 1], "{told}");
        stage.settle();
        (0..3).for_each(|number| stage.check(number).unwrap());
    }
}

/// As before, and the player is with another server than that of its entry.
#[test]
fn a_client_that_is_at_two_edges_of_two_servers_has_one_player_also_on_its_way() {
    for keep_ticks in [0, 10_000] {
        // Its new connection begins so many ticks after it was to be handed over.
        for after in (-20..14).chain([40]) {
            let mut stage = two_edges_and_worlds_that_keep("none", keep_ticks);
            if after >= 0 {
                hand_over(&mut stage, 0, 5);
                stage.ticks(after as u32);
            }
            let mut former = stage.clients.pop().unwrap();
            let again = stage.connection_to_edge(5, 1);
            stage.clients.push(again);
            for tick in 0..80 {
                // With nothing kept, the former player has ended before the new one has come.
                let is_there = keep_ticks > 0 || acts(&stage).iter().any(|(id, _)| *id == 5);
                if after < 0 && tick == -after && is_there {
                    hand_over(&mut stage, 0, 5);
                }
                stage.tick();
                former.update(stage.now).unwrap();
            }
            let told = format!("{keep_ticks} ticks, {after} ticks after it was to be handed over");
            assert_eq!(acts(&stage).iter().filter(|(id, _)| *id == 5).count(), 1, "{told}");
            let end = former.end_reason().map(ToString::to_string).unwrap_or_default();
            assert!(end.contains("connected again"), "{told}: {end}");
            if (keep_ticks, after) == (0, 40) {
                assert_eq!(
                    stage.worlds[0].heroes.len(),
                    6,
                    "it begins anew where its entry says, and not where it was"
                );
            }
            stage.settle();
            (0..6).for_each(|number| stage.check(number).unwrap_or_else(|error| panic!("{told}: {error}")));
        }
    }
}

/// Its former edge stands still while it carries the player, and the client has connected to another one meanwhile.
#[test]
fn a_player_who_arrives_late_does_not_end_a_newer_connection_of_its_client() {
    let mut stage = two_edges_and_worlds("none");
    hand_over(&mut stage, 0, 5);
    stage.ticks(60);
    assert_eq!(stage.worlds[1].heroes.len(), 1);
    hand_over(&mut stage, 1, 5);
    stage.tick();
    // It has said that the player is free to go, and does not pass the state on.
    let stopped = stage.edges.remove(0);
    stage.tick();
    assert_eq!(stage.worlds[1].ghosts.len(), 1);
    let mut former = stage.clients.pop().unwrap();
    let again = stage.connection_to_edge(5, 1);
    stage.clients.push(again);
    stage.ticks_until(60, |stage| acts(stage).iter().any(|(id, _)| *id == 5));
    stage.edges.insert(0, stopped);
    former_connection_ends(&mut stage, &mut former);
    assert!(stage.worlds.iter().all(|world| world.ghosts.is_empty()));
    stage.settle();
    assert_eq!(acts(&stage).iter().filter(|(id, _)| *id == 5).count(), 1);
    (0..6).for_each(|number| stage.check(number).unwrap());
}

/// The former connection of a client hears that there is a newer one, and no other connection ends.
fn former_connection_ends(stage: &mut Stage, former: &mut Client) {
    for _ in 0..40 {
        stage.tick();
        former.update(stage.now).unwrap();
    }
    let end = former.end_reason().map(ToString::to_string).unwrap_or_default();
    assert!(end.contains("connected again"), "{end}");
    assert!(stage.ends.is_empty(), "{:?}", stage.ends);
}

/// Its edges are slow: the older of its two connections is the later one to come to the servers.
#[test]
fn a_newer_connection_stays_when_the_older_one_comes_last_through_another_edge() {
    for (keep_ticks, is_moved) in [(0, false), (0, true), (10_000, false), (10_000, true)] {
        let mut stage = two_edges_and_worlds_that_keep("none", keep_ticks);
        if is_moved {
            hand_over(&mut stage, 0, 5);
            stage.ticks(40);
        }
        let before = acts(&stage);
        let mut older = stage.connection_with_token(5, 1, 10);
        former_connection_ends(&mut stage, &mut older);
        assert_eq!(acts(&stage), before, "{keep_ticks} ticks, moved: {is_moved}");
        stage.settle();
        (0..6).for_each(|number| stage.check(number).unwrap());
    }
}

/// Its former edge has lost its server for a while, and tells it of all its clients again.
#[test]
fn a_client_that_joins_again_with_its_edge_does_not_end_a_newer_connection() {
    let mut stage = stage("none");
    let mut cut_off = stage.edges.remove(0);
    let mut former = stage.clients.pop().unwrap();
    let again = stage.connection_with_token(2, 1, 60);
    stage.clients.push(again);
    stage.ticks_until(60, |stage| stage.clients[2].owned_objects::<Hero>().next().is_some());
    let link = stage.connection_of_edge(0, 0, &edge_user_data());
    assert!(cut_off.replace_origin(0, link));
    stage.edges.insert(0, cut_off);
    former_connection_ends(&mut stage, &mut former);
    assert_eq!(acts(&stage), [(0, 5), (1, 6), (2, 7)]);
    stage.settle();
    (0..3).for_each(|number| stage.check(number).unwrap());
}

/// Its server was silent while the client connected again and has begun anew at another server, to which it now hands the former player over.
#[test]
fn the_state_of_a_player_who_is_turned_away_for_a_newer_connection_is_not_used_later() {
    let mut stage = two_edges_and_worlds("none");
    stage.clients[5].send_input(&[9]).unwrap();
    hand_over(&mut stage, 0, 5);
    stage.ticks(60);
    let silent = stage.worlds.pop().unwrap();
    let mut former = stage.clients.pop().unwrap();
    let again = stage.connection_with_token(5, 1, 60);
    stage.clients.push(again);
    stage.ticks(60);
    assert_eq!(acts(&stage).last(), Some(&(5, 0)));
    stage.worlds.push(silent);
    stage.ticks(5);
    hand_over(&mut stage, 1, 5);
    for _ in 0..40 {
        stage.tick();
        former.update(stage.now).unwrap();
    }
    let end = former.end_reason().map(ToString::to_string).unwrap_or_default();
    assert!(end.contains("connected again"), "{end}");
    assert!(stage.ends.is_empty() && stage.worlds[1].heroes.is_empty(), "{:?}", stage.ends);
    let now = stage.now;
    stage.clients[5].close(now, "enough");
    stage.ticks(20);
    stage.reconnect(5, 1);
    stage.ticks(60);
    assert_eq!(acts(&stage).last(), Some(&(5, 0)));
}

/// Its next server takes nobody in. The former one still has its state.
#[test]
fn who_gets_nothing_from_its_next_server_goes_on_when_it_comes_again() {
    for is_told in [false, true] {
        let mut stage = two_edges_and_worlds("none");
        stage.clients[5].send_input(&[9]).unwrap();
        stage.ticks(20);
        (stage.worlds[1].ignores_arrivals, stage.worlds[1].refuses_arrivals) = (!is_told, is_told);
        hand_over(&mut stage, 0, 5);
        stage.ticks(if is_told { 40 } else { 940 });
        assert_eq!((stage.ends.keys().collect::<Vec<_>>(), acts(&stage).len()), (vec![&5], 5));
        (stage.worlds[1].ignores_arrivals, stage.worlds[1].refuses_arrivals) = (false, false);
        stage.reconnect(5, 1);
        stage.ticks(60);
        assert_eq!(acts(&stage).last(), Some(&(5, 9)), "told: {is_told}");
        stage.settle();
        (0..6).for_each(|number| stage.check(number).unwrap());
    }
}

/// A client that takes nothing is sent away before its connection times out.
#[test]
fn who_is_silent_while_it_is_sent_much_comes_back_as_the_same_player() {
    let mut stage = stage("none");
    let silent = stage.clients.pop().unwrap();
    let World { server, origin, heroes, .. } = &mut stage.worlds[0];
    let player = *heroes.iter().find(|(_, (_, id))| *id == 2).unwrap().0;
    for number in 0..1_100 {
        origin.send(server, player, 0, &Word { text: format!("{number}") }).unwrap();
    }
    stage.ticks(30);
    assert_eq!((stage.edges[0].counters().clients_too_slow, stage.edges[0].counters().players), (1, 2));
    assert_eq!((stage.worlds[0].away.len(), stage.worlds[0].left.len()), (1, 0));
    stage.clients.push(silent);
    stage.reconnect(2, 1);
    stage.ticks(40);
    assert_eq!(acts(&stage), [(0, 5), (1, 6), (2, 7)]);
    stage.settle();
    stage.check(2).unwrap();
}

/// Six clients at the first of two edges, and at the first of two servers, which keep players for long.
fn two_edges_and_worlds(condition: &str) -> Stage {
    two_edges_and_worlds_that_keep(condition, 10_000)
}

fn two_edges_and_worlds_that_keep(condition: &str, keep_ticks: u32) -> Stage {
    let mut stage = two_worlds(condition, 5);
    for world in &mut stage.worlds {
        world.origin = Origin::new(OriginOptions { keep_ticks, ..OriginOptions::default() });
        world.has_border = false;
    }
    (0..2).for_each(|_| stage.add_edge());
    stage.ticks(20);
    (0..6).for_each(|_| stage.add_client(0));
    stage.ticks(60);
    stage
}

/// Client 5 was handed over to the second of two servers, and the edge of all dies. There is another one.
fn moved_and_cut_off() -> Stage {
    let mut stage = two_edges_and_worlds("none");
    hand_over(&mut stage, 0, 5);
    stage.ticks(30);
    stage.clients[5].send_input(&[9]).unwrap();
    stage.ticks(20);
    assert_eq!((stage.worlds[0].heroes.len(), stage.worlds[1].heroes.len()), (5, 1));
    stage.edges.remove(0);
    stage
}

/// Client 5 has done something. The first of two servers is its entry. It is handed over from there, or back to it, and so many ticks later its edge
/// dies. Returns whether the player was on the way then.
fn cut_off_on_the_way(condition: &str, from: usize, ticks: u32) -> (Stage, bool) {
    let mut stage = two_edges_and_worlds(condition);
    stage.clients[5].send_input(&[9]).unwrap();
    stage.ticks(20);
    if from == 1 {
        hand_over(&mut stage, 0, 5);
        stage.ticks(60);
    }
    hand_over(&mut stage, from, 5);
    stage.ticks(ticks);
    stage.edges.remove(0);
    let is_on_the_way = acts(&stage).iter().all(|(id, _)| *id != 5);
    (stage, is_on_the_way)
}

/// The player of client 5 leaves for good. A client with this id is new, although states are kept for 300 ticks after about 300 in which
/// servers do not notice that an edge is dead. So the caller has waited for about 460 ticks since then.
fn leaves_nothing(stage: &mut Stage, told: &str) {
    let now = stage.now;
    stage.clients[5].close(now, "enough");
    stage.ticks(40);
    assert_eq!(acts(stage).len(), 5, "{told}");
    stage.reconnect(5, 1);
    stage.ticks(60);
    assert_eq!(acts(stage).last(), Some(&(5, 0)), "{told}");
}

/// For some of these ticks, one server has let go of the player, and the other one has not heard of it.
#[test]
fn who_is_on_the_way_between_servers_when_its_edge_dies_goes_on_at_another_one() {
    for (condition, most) in [("none", 5), ("4g", 30)] {
        for from in 0..2 {
            let mut on_the_way = 0;
            for ticks in 0..most {
                let (mut stage, is_on_the_way) = cut_off_on_the_way(condition, from, ticks);
                on_the_way += u32::from(is_on_the_way);
                // Both servers notice.
                stage.ticks(400);
                (0..6).for_each(|number| stage.reconnect(number, 1));
                stage.ticks(60);
                let told = format!("{condition}, {ticks} ticks after server {from} was asked");
                assert_eq!(acts(&stage), [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 9)], "{told}");
                leaves_nothing(&mut stage, &told);
                stage.settle();
                (0..6).for_each(|number| stage.check(number).unwrap_or_else(|error| panic!("{told}: {error}")));
            }
            println!("{condition}: of {most} edges, {on_the_way} had the player of server {from} with them");
            assert!(on_the_way > 0, "{condition}: no edge had the player of server {from} with it");
        }
    }
}

/// Its servers have not noticed yet that the edge is dead, so the state may still come. It begins anew rather than twice.
#[test]
fn who_comes_back_before_the_servers_notice_is_there_once_and_finds_no_old_state_later() {
    let (mut begins_anew, mut goes_on) = (0, 0);
    for from in 0..2 {
        for ticks in 0..30 {
            let (mut stage, _) = cut_off_on_the_way("4g", from, ticks);
            (0..6).for_each(|number| stage.reconnect(number, 1));
            stage.ticks(60);
            let of_five: Vec<(u64, u32)> = acts(&stage).into_iter().filter(|(id, _)| *id == 5).collect();
            let told = format!("{ticks} ticks after server {from} was asked: {of_five:?}");
            match of_five[..] {
                [(5, 0)] => begins_anew += 1,
                [(5, 9)] => goes_on += 1,
                _ => panic!("{told}"),
            }
            stage.ticks(400);
            leaves_nothing(&mut stage, &told);
        }
    }
    println!("{begins_anew} begin anew, {goes_on} go on");
    assert!(begins_anew > 0 && goes_on > 30, "{begins_anew} begin anew, {goes_on} go on");
}

/// The server to which the player was on the way does not say that it has not come: it may have it.
#[test]
fn a_state_that_was_let_go_is_not_given_while_the_other_server_is_silent() {
    let mut on_the_way = 0;
    for ticks in 0..30 {
        let (mut stage, is_on_the_way) = cut_off_on_the_way("4g", 0, ticks);
        if !is_on_the_way {
            continue;
        }
        on_the_way += 1;
        // The servers notice that the first edge is dead. Then the second server dies, and the other edge has not noticed.
        stage.ticks(400);
        stage.worlds.pop();
        stage.reconnect(5, 1);
        stage.ticks(90);
        assert_eq!(acts(&stage).last(), Some(&(5, 0)), "{ticks} ticks");
    }
    assert!(on_the_way > 0);
}

#[test]
fn who_comes_back_finds_its_player_with_whatever_server_it_is() {
    // At once, and after both servers have noticed.
    for ticks in [0, 500] {
        let mut stage = moved_and_cut_off();
        stage.ticks(ticks);
        (0..6).for_each(|number| stage.reconnect(number, 1));
        // Its inputs of the time until then are not lost.
        let mut sent = 0;
        for _ in 0..40 {
            stage.tick();
            sent += u32::from(stage.clients[5].send_input(&[1]).is_ok());
        }
        stage.ticks(30);
        assert_eq!((stage.worlds[0].heroes.len(), stage.worlds[1].heroes.len()), (5, 1), "after {ticks} ticks");
        let (hero, _) = stage.truth().into_iter().find(|(_, id)| *id == 5).unwrap();
        assert_eq!(hero.acts, 9 + sent, "after {ticks} ticks");
        stage.settle();
        (0..6).for_each(|number| stage.check(number).unwrap());
        let counters = stage.edges[0].counters();
        assert_eq!((counters.refused, counters.inputs_dropped), (0, 0));
        assert!(stage.worlds.iter().all(|world| world.origin.counters().refused == 0));
    }
}

#[test]
fn a_server_that_does_not_answer_keeps_nobody_from_joining_another_one() {
    let mut stage = moved_and_cut_off();
    // The second server is silent, and nobody has noticed.
    stage.worlds.pop();
    stage.reconnect(5, 1);
    stage.clients[5].send_input(&[4]).unwrap_err();
    let (mut joined_after, mut sent) = (None, 0);
    for tick in 0..80 {
        stage.tick();
        sent += u32::from(stage.clients[5].send_input(&[1]).is_ok());
        if tick == 10 {
            stage.clients[5].send(0, &Word { text: "I wait".to_owned() }).unwrap();
        }
        joined_after = joined_after.or((stage.worlds[0].heroes.len() == 6).then_some(tick));
    }
    stage.ticks(20);
    // Nothing of what it did and said before it had joined is lost.
    let (hero, _) = stage.truth().into_iter().find(|(_, id)| *id == 5).unwrap();
    assert!(sent > 70 && hero.acts == sent, "{} of {sent}", hero.acts);
    assert!(stage.heard.contains(&(5, "I wait!".to_owned())), "{:?}", stage.heard);
    assert!(joined_after.is_some_and(|ticks| (30..50).contains(&ticks)), "{joined_after:?}");
    // Somebody who leaves while its player is sought leaves nothing behind.
    stage.reconnect(4, 1);
    stage.ticks(8);
    let now = stage.now;
    stage.clients[4].close(now, "enough");
    stage.ticks(60);
    assert_eq!(stage.worlds[0].origin.counters().refused, 0);
    assert_eq!(stage.edges[0].counters().players, 1);
}

#[test]
fn inputs_of_a_client_whose_servers_are_all_gone_are_counted() {
    let mut stage = moved_and_cut_off();
    // The first server is known to be gone, the second one is not.
    stage.worlds.remove(0);
    stage.ticks_until(600, |stage| stage.edges[0].counters().origins_lost == 1);
    stage.worlds.pop();
    stage.reconnect(5, 1);
    let mut sent = 0;
    for _ in 0..30 {
        stage.tick();
        sent += u64::from(stage.clients[5].send_input(&[1]).is_ok());
    }
    stage.ticks(30);
    assert!(sent > 10 && stage.edges[0].counters().inputs_dropped == sent, "{sent}: {:?}", stage.edges[0].counters());
}

#[test]
fn a_drained_edge_loses_no_player_and_takes_nobody_in() {
    let mut stage = stage("none");
    let now = stage.now;
    stage.edges[0].drain(now, "it is restarted");
    stage.ticks(10);
    assert_eq!((stage.ends.len(), stage.edges[0].counters().players), (3, 0));
    assert!(stage.ends[&0].to_string().contains("it is restarted"), "{}", stage.ends[&0]);
    assert_eq!((stage.worlds[0].away.len(), stage.worlds[0].left.len()), (3, 0));
    // It is too late to come here.
    stage.reconnect(0, 0);
    stage.ticks(10);
    assert!(stage.ends[&0].to_string().contains("it is restarted"), "{}", stage.ends[&0]);
    (0..3).for_each(|number| stage.reconnect(number, 1));
    stage.ticks(15);
    assert!(stage.clients.iter().all(|client| client.owned_objects::<Hero>().next().is_some()));
    assert_eq!(acts(&stage), [(0, 5), (1, 6), (2, 7)]);
    stage.edges.remove(0);
    stage.ticks(20);
    stage.settle();
    (0..3).for_each(|number| stage.check(number).unwrap());
}

#[test]
fn players_wait_while_an_origin_is_closed_and_nothing_is_told_of_those_who_go() {
    let mut stage = Stage::new("wifi", 5);
    stage.worlds[0].origin = Origin::new(OriginOptions { keep_ticks: KEEP_TICKS, ..OriginOptions::default() });
    stage.worlds[0].origin.set_open(false);
    (0..2).for_each(|_| stage.add_edge());
    stage.ticks(20);
    (0..4).for_each(|number| stage.add_client(number / 2));
    for tick in 0..60 {
        if tick == 30 {
            // Its clients are at the other edge before anybody has noticed.
            stage.edges.remove(0);
            stage.reconnect(0, 1);
            let now = stage.now;
            stage.clients[3].close(now, "enough");
        }
        // Some are not connected yet.
        for client in &mut stage.clients {
            let _ = client.send_input(&[1]);
        }
        if tick == 50 {
            stage.clients[2].send(0, &Word { text: "I wait".to_owned() }).unwrap();
        }
        stage.tick();
    }
    let world = &mut stage.worlds[0];
    assert_eq!((world.heroes.len(), world.edges.len(), world.left.len()), (0, 0, 0));
    assert!(world.origin.counters().dropped > 100, "inputs of two seconds");
    world.origin.set_open(true);
    stage.ticks(5);
    for client in [0, 2] {
        stage.clients[client].send_input(&[3]).unwrap();
    }
    stage.ticks(25);
    // Client 1 has nothing but a dead edge, and it is not known to be dead yet.
    assert!(stage.heard.contains(&(2, "I wait!".to_owned())), "{:?}", stage.heard);
    let acted = acts(&stage);
    assert_eq!(acted.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 1, 2]);
    // Those on their way when it opened came, too.
    assert!(acted.iter().all(|&(id, acts)| if id == 1 { acts == 0 } else { (3..12).contains(&acts) }), "{acted:?}");
    stage.ticks_until(600, |stage| stage.worlds[0].left.len() == 1);
    stage.settle();
    [0, 2].into_iter().for_each(|number| stage.check(number).unwrap());
}
