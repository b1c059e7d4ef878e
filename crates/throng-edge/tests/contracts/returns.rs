//! Clients whose edge dies come back to another one as the same players.

use throng_edge::{Origin, OriginOptions};

use crate::stage::{Hero, Stage};

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
