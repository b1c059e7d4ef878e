//! Borders that follow the load.

use std::collections::BTreeSet;

use throng_bus::Bus;
use throng_edge::{
    Balance, BalanceCounters, BalanceOptions, BorderWatch, Division, EdgeOptions, Origin, OriginOptions,
    PlannerOptions, WorldName, edge_user_data,
};
use throng_seeds::for_seeds;

use crate::stage::{Hero, STEPS, Stage, World};

const PLAYERS: usize = 24;
const KEEP_TICKS: u32 = 2_000;

/// Four worlds with strips of 32 m, and two edges with all players.
fn four_worlds(condition: &str, seed: u64) -> Stage {
    let mut stage = Stage::with_origins(condition, seed, 4, EdgeOptions::default());
    (0..4).for_each(|number| join_world(&mut stage, number));
    (0..2).for_each(|_| stage.add_watching_edge(BorderWatch::new(name(), division())));
    stage.ticks(20);
    (0..PLAYERS).for_each(|number| stage.add_client(number % 2));
    stage.ticks(80);
    stage
}

fn name() -> WorldName {
    WorldName::new("stage").unwrap()
}

fn division() -> Division {
    Division::new(4, STEPS, 2).unwrap()
}

/// The process of a server joins the bus and knows nothing yet.
fn join_world(stage: &mut Stage, number: u16) {
    let bus = stage.join_bus();
    let planner = PlannerOptions { spare_load: 1, moved_load: 6, ..PlannerOptions::default() };
    let options = BalanceOptions { planner, ..BalanceOptions::new(name(), division(), number) };
    let mut balance = Balance::new(options, bus.member());
    balance.set_planning(false);
    let world = &mut stage.worlds[usize::from(number)];
    (world.balance, world.is_frozen) = (Some((balance, bus)), true);
    world.origin = Origin::new(OriginOptions { keep_ticks: KEEP_TICKS, ..OriginOptions::default() });
}

/// Everybody walks to a place of 8 m, and to and fro there.
fn gather(stage: &mut Stage, x: f32) {
    for world in &mut stage.worlds {
        world.is_frozen = false;
        let World { server, heroes, ghosts, .. } = world;
        for (_, (hero, id)) in heroes.iter().filter(|(player, _)| !ghosts.contains(player)) {
            let hero = server.get_mut::<Hero>(*hero).unwrap();
            let aim = x + (*id * 7 % 24) as f32 / 3.0;
            let turns =
                if hero.velocity[0] < 0.0 { hero.position[0] < aim - 1.0 } else { hero.position[0] < aim + 1.0 };
            hero.velocity = [if turns { 6.0 } else { -6.0 }, 0.0, 0.0];
        }
    }
}

fn balance(world: &World) -> &Balance {
    &world.balance.as_ref().unwrap().0
}

fn set_planning(stage: &mut Stage, plans: bool) {
    stage.worlds.iter_mut().for_each(|world| world.balance.as_mut().unwrap().0.set_planning(plans));
}

fn players(stage: &Stage) -> Vec<usize> {
    stage.worlds.iter().map(|world| world.heroes.len() - world.ghosts.len()).collect()
}

/// The players with more than one home.
fn doubled(stage: &Stage) -> Option<u64> {
    let of = |world: &World| {
        let heroes = world.heroes.iter().filter(|(player, _)| !world.ghosts.contains(player));
        heroes.map(|(_, &(_, id))| id).collect::<Vec<_>>()
    };
    let mut seen = BTreeSet::new();
    stage.worlds.iter().flat_map(of).find(|id| !seen.insert(*id))
}

#[test]
fn a_hot_place_is_divided_among_all_servers_and_nobody_has_two_homes_or_is_lost() {
    for_seeds(2, |seed| {
        // Where every message takes a second, borders are late, and nothing else.
        let is_bad = seed % 2 == 1;
        let mut stage = four_worlds(if is_bad { "bad" } else { "wifi" }, seed);
        set_planning(&mut stage, true);
        for (x, ticks) in [(-28.0, 450), (20.0, 500)] {
            for tick in 0..ticks {
                gather(&mut stage, x);
                stage.tick();
                if let Some(id) = doubled(&stage) {
                    return Err(format!("{id} has two homes in tick {tick}"));
                }
            }
            let players = players(&stage);
            let is_even = players.iter().all(|&players| players <= 11);
            // Some are on their way.
            if is_bad {
                continue;
            }
            if players.iter().sum::<usize>() < PLAYERS / 2 || !is_even {
                return Err(format!("{players:?} with {:?}", balance(&stage.worlds[0]).borders()));
            }
        }
        let counters: Vec<BalanceCounters> = stage.worlds.iter().map(|world| balance(world).counters()).collect();
        let deciders = counters.iter().filter(|counters| counters.plans > 0).count();
        if deciders != 1 || counters.iter().any(|counters| counters.refused + counters.overruled > 0) {
            return Err(format!("{counters:?}"));
        }
        set_planning(&mut stage, false);
        stage.settle();
        if !stage.ends.is_empty() {
            return Err(format!("{:?}", stage.ends));
        }
        (0..PLAYERS).try_for_each(|number| stage.check(number))
    });
}

/// The others take over the clients of a server that is killed, and of one that is only out of reach: then it gives up their heroes.
#[test]
fn the_clients_of_a_server_that_is_gone_are_taken_over_and_nobody_is_there_twice() {
    for comes_back in [false, true] {
        let mut stage = four_worlds("none", 7);
        let World { server, heroes, .. } = &mut stage.worlds[1];
        let gone_with: BTreeSet<u64> = heroes.values().map(|&(_, id)| id).collect();
        server.objects_mut::<Hero>().for_each(|(_, hero)| hero.mood = "tired".to_owned());
        stage.ticks(40);
        set_planning(&mut stage, true);
        let before = players(&stage);
        assert!(before[1] > 2, "{before:?}");
        let gone = stage.worlds.remove(1);
        stage.ticks_until(700, |stage| stage.edges.iter().all(|edge| edge.origin_end(1).is_some()));
        stage.ticks(120);
        // They go on with all that they were a second before the end.
        let truth = stage.truth();
        let tired = truth.iter().filter(|(hero, _)| hero.mood == "tired").map(|&(_, id)| id);
        let resumed: usize = stage.worlds.iter().map(|world| world.resumed).sum();
        assert_eq!((tired.collect::<BTreeSet<u64>>(), resumed), (gone_with, before[1]));
        let taken_over: u64 = stage.edges.iter().map(|edge| edge.counters().taken_over).sum();
        assert_eq!(taken_over, before[1] as u64, "{:?}", balance(&stage.worlds[0]).borders());
        if comes_back {
            stage.worlds.insert(1, gone);
            for edge in 0..2 {
                let client = stage.connection_to_origin(1, &edge_user_data());
                assert!(stage.edges[edge].replace_origin(1, client));
            }
            stage.ticks(600);
        }
        stage.settle();
        assert_eq!((doubled(&stage), players(&stage).iter().sum::<usize>()), (None, PLAYERS));
        (0..PLAYERS).for_each(|number| stage.check(number).unwrap());
    }
}

/// The process of a server is killed, and another one begins at its address before the others know. The edges reach it before it has
/// its lease and knows its players.
#[test]
fn a_server_that_starts_again_at_once_goes_on_with_its_players() {
    for_seeds(12, |seed| {
        let mut stage = four_worlds(if seed % 2 == 0 { "none" } else { "wifi" }, seed);
        let World { server, heroes, .. } = &mut stage.worlds[1];
        let had: BTreeSet<u64> = heroes.values().map(|&(_, id)| id).collect();
        server.objects_mut::<Hero>().for_each(|(_, hero)| hero.mood = "tired".to_owned());
        stage.ticks(40);
        set_planning(&mut stage, true);
        drop(stage.worlds.remove(1));
        stage.ticks(seed as u32 * 5);
        stage.revive(1);
        join_world(&mut stage, 1);
        for edge in 0..2 {
            let client = stage.connection_to_origin(1, &edge_user_data());
            assert!(stage.edges[edge].replace_origin(1, client));
        }
        let clients: Vec<usize> = had.iter().map(|&id| id as usize).collect();
        let mut joined_after = None;
        for tick in 0..200_u32 {
            for &client in &clients {
                // Some find no room at the edge.
                let _ = stage.clients[client].send_input(&[1]);
            }
            stage.tick();
            let (heroes, is_ready) = (stage.worlds[1].heroes.len(), balance(&stage.worlds[1]).is_ready());
            if heroes > 0 && !is_ready {
                return Err("somebody has joined who may be elsewhere".to_owned());
            }
            joined_after = joined_after.or((heroes == had.len()).then_some(tick));
        }
        // The lease of the old process ends after 3 s.
        if joined_after.is_none_or(|ticks| ticks > 115) {
            return Err(format!("they have joined after {joined_after:?} ticks"));
        }
        let truth = stage.truth();
        let tired: BTreeSet<u64> = truth.iter().filter(|(hero, _)| hero.mood == "tired").map(|&(_, id)| id).collect();
        let resumed = stage.worlds[1].resumed;
        if (&tired, resumed) != (&had, had.len()) {
            return Err(format!("{tired:?} of {had:?} went on, {resumed} of them there"));
        }
        // Since they have joined.
        let idle = truth.iter().filter(|(hero, id)| had.contains(id) && hero.acts < 50).count();
        let counters = balance(&stage.worlds[1]).counters();
        if idle > 0 || counters.recalls_unanswered > 0 {
            return Err(format!("the inputs of {idle} are missing, {counters:?}"));
        }
        stage.settle();
        if doubled(&stage).is_some() || players(&stage).iter().sum::<usize>() != PLAYERS {
            return Err(format!("{:?}, {:?}", doubled(&stage), players(&stage)));
        }
        (0..PLAYERS).try_for_each(|number| stage.check(number))
    });
}

/// Edges reach the new process, and the bus does not: its origin never opens.
#[test]
fn a_server_that_starts_again_without_a_lease_keeps_nobody_waiting() {
    let mut stage = four_worlds("none", 7);
    set_planning(&mut stage, true);
    let before = players(&stage);
    drop(stage.worlds.remove(1));
    stage.revive(1);
    stage.worlds[1].origin.set_open(false);
    for edge in 0..2 {
        let client = stage.connection_to_origin(1, &edge_user_data());
        assert!(stage.edges[edge].replace_origin(1, client));
    }
    let taken_over = |stage: &Stage| stage.edges.iter().map(|edge| edge.counters().taken_over).sum::<u64>();
    stage.ticks(40);
    assert_eq!(taken_over(&stage), 0, "it may still get its lease");
    stage.ticks_until(200, |stage| taken_over(stage) == before[1] as u64);
    stage.settle();
    let resumed: usize = stage.worlds.iter().map(|world| world.resumed).sum();
    assert_eq!((doubled(&stage), players(&stage).iter().sum::<usize>(), resumed), (None, PLAYERS, before[1]));
    (0..PLAYERS).for_each(|number| stage.check(number).unwrap());
}

/// One edge reaches the server first that comes back, and the other one has not said yet whose clients it serves.
#[test]
fn a_server_that_comes_back_gives_up_its_players_as_soon_as_it_hears_that_it_has_no_part() {
    let mut stage = four_worlds("none", 7);
    set_planning(&mut stage, true);
    let gone = stage.worlds.remove(1);
    stage.ticks_until(700, |stage| stage.edges.iter().all(|edge| edge.origin_end(1).is_some()));
    stage.ticks(120);
    stage.worlds.insert(1, gone);
    let client = stage.connection_to_origin(1, &edge_user_data());
    assert!(stage.edges[0].replace_origin(1, client));
    // The next report of the others is a third of a second away, and the connection takes some ticks.
    stage.ticks_until(60, |stage| balance(&stage.worlds[1]).has_no_part());
    stage.ticks(2);
    assert_eq!(doubled(&stage), None, "{:?}", players(&stage));
}

/// An edge that never says how it looks does not keep everybody where they are.
#[test]
fn an_edge_that_does_not_follow_the_borders_holds_nobody_up() {
    let mut stage = four_worlds("none", 9);
    stage.add_edge();
    set_planning(&mut stage, true);
    for _ in 0..900 {
        gather(&mut stage, -28.0);
        stage.tick();
    }
    let plans: u64 = stage.worlds.iter().map(|world| balance(world).counters().plans).sum();
    assert!(plans > 2, "{plans}");
    let most = *players(&stage).iter().max().unwrap();
    assert!(most <= 14, "{:?} with {:?}", players(&stage), balance(&stage.worlds[0]).borders());
}

/// Without loss, nobody is invisible or seen twice while borders move over them.
#[test]
fn clients_see_everybody_once_while_borders_move() {
    let mut stage = four_worlds("none", 5);
    // All come together while borders stay.
    for _ in 0..420 {
        gather(&mut stage, -28.0);
        stage.tick();
    }
    assert_eq!(players(&stage)[1], PLAYERS, "{:?}", players(&stage));
    set_planning(&mut stage, true);
    let mut even_after = None;
    for tick in 0..300 {
        gather(&mut stage, -28.0);
        stage.tick();
        let is_even = players(&stage).iter().all(|&players| players <= 9);
        even_after = even_after.or(is_even.then_some(tick));
        for (number, client) in stage.clients.iter().enumerate() {
            let shown: Vec<u32> = client.objects::<Hero>().map(|(_, hero)| hero.name).collect();
            let names: BTreeSet<u32> = shown.iter().copied().collect();
            assert_eq!((names.len(), shown.len()), (PLAYERS, PLAYERS), "client {number} in tick {tick}: {shown:?}");
        }
    }
    // Three quarters have moved, six in a plan of half a second.
    assert!(even_after.is_some_and(|ticks| ticks < 200), "{even_after:?}: {:?}", players(&stage));
}
