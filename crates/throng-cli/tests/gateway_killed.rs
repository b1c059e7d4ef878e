//! SIGKILL, with real processes and sockets: what is left of a world when a world server or the gateway itself dies.
//!
//! The gateway is `throng gateway`; the world server is this test program once more, as a process of its own that can
//! be killed; the players are threads with a connection each.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::outage::world::{self, ENTITIES, World};
use crate::outage::{GatewayProcess, PLAYERS, Players, soon};

/// A world server that is not one of the tests: the tests start it.
#[test]
#[ignore = "the program of the world server that the other tests start and kill"]
fn world_server() {
    world::play();
}

#[test]
fn a_killed_world_server_comes_back_under_its_id_while_its_players_stay() {
    let gateway = GatewayProcess::start(&["-scr", "-scrt=60000"]);
    let mut world = World::start(&gateway);
    world.wait_for("begun", soon());
    let players = Players::join(&gateway);
    players.wait_until("everybody sees everything move", |view| view.sees_all_beyond(20));
    world.kill();
    players.wait_until("everybody is told", |view| view.owners_lost > 0);
    let before = players.newest();
    std::thread::sleep(Duration::from_millis(300));
    let killed_at = Instant::now();

    let mut world = World::start(&gateway);
    let recovered = world.wait_for("recovered", soon());
    let outage = Instant::now();
    let ids: BTreeSet<u32> = recovered.entities.keys().copied().collect();
    assert_eq!(ids, world::entities().collect(), "no entity is lost, and none is new");
    assert_eq!(recovered.doubled, 0, "each channel is told once");
    for (entity, &step) in &recovered.entities {
        let seen = before[entity];
        assert!(step >= seen, "{entity} came back at step {step}, but somebody has seen {seen}");
    }
    assert!(recovered.is_under_former_id, "the restarted server has the connection id of the killed one");
    players.wait_until("everything moves on", |view| view.has_passed(&recovered.entities));
    println!(
        "world server killed: back {} ms after its restart, players see everything move after {} ms",
        outage.duration_since(killed_at).as_millis(),
        killed_at.elapsed().as_millis()
    );
    let ends = players.end();
    for view in &ends {
        assert_eq!(view.connections, 1, "nobody had to come again");
        assert_eq!(view.removed, 0, "nothing was taken away");
        assert_eq!(view.went_back, 0, "nothing old came after something new");
        assert!(view.owners_back > 0, "everybody is told that the owner is there again");
    }
}

#[test]
fn a_killed_gateway_is_replaced_and_everybody_resumes_with_what_the_servers_know() {
    // Clients can log in once a server owns GLOBAL, which then subscribes them.
    let mut gateway = GatewayProcess::start(&["-scr", "-cwm"]);
    let mut world = World::start(&gateway);
    world.wait_for("begun", soon());
    let players = Players::join(&gateway);
    players.wait_until("everybody sees everything move", |view| view.sees_all_beyond(20));
    for life in 1..=2 {
        gateway.kill();
        let before = players.newest();
        let killed_at = Instant::now();
        gateway.restart();
        let again = world.wait_for("begun", soon());
        let ids: BTreeSet<u32> = again.entities.keys().copied().collect();
        assert_eq!(ids, world::entities().collect());
        players.wait_until("everybody sees everything move again", |view| {
            view.connections == life + 1 && view.has_passed(&before)
        });
        let outage = killed_at.elapsed();
        println!(
            "gateway killed: {PLAYERS} players see {ENTITIES} entities move again after {} ms",
            outage.as_millis()
        );
        // It is well below a second; processes and threads of a machine that is busy may be late by many times that.
        assert!(outage < Duration::from_secs(30), "{outage:?}");
    }
    for view in players.end() {
        assert_eq!(view.went_back, 0, "nothing old came after something new");
        assert_eq!(view.removed, 0, "nothing was taken away");
    }
}

#[test]
fn after_gateway_and_server_were_killed_everything_goes_on_from_the_snapshot() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("state");
    let snapshot = format!("-snapshot={}", file.display());
    let more = ["-scr", "-limit=client_resume_ms=60000", &snapshot, "-snapshot-every=50ms"];
    let mut gateway = GatewayProcess::start(&more);
    let mut world = World::start(&gateway);
    world.wait_for("begun", soon());
    let players = Players::join(&gateway);
    players.wait_until("everybody sees everything move", |view| view.sees_all_beyond(20));
    let before = players.newest();
    // One that was begun before may be complete only now.
    (0..2).for_each(|_| wait_for_another(&file));
    world.kill();
    gateway.kill();

    let killed_at = Instant::now();
    gateway.restart();
    let knows_all = |view: &crate::outage::player::View| {
        view.connections == 2 && before.iter().all(|(entity, step)| view.since_login.get(entity) >= Some(step))
    };
    players.wait_until("who comes back finds the states while no server is there", knows_all);
    let mut world = World::start(&gateway);
    let recovered = world.wait_for("recovered", soon());
    let ids: BTreeSet<u32> = recovered.entities.keys().copied().collect();
    assert_eq!(ids, world::entities().collect(), "no entity is lost, and none is new");
    assert_eq!(recovered.doubled, 0, "each channel is told once");
    assert!(recovered.is_under_former_id, "the server has its connection id");
    for (entity, step) in &recovered.entities {
        assert!(step >= &before[entity], "{entity} is at {step}, and was at {} before the snapshot", before[entity]);
    }
    players.wait_until("everything moves on", |view| view.has_passed(&recovered.entities));
    println!("gateway and server killed: {PLAYERS} players see everything move after {:?}", killed_at.elapsed());
    assert!(players.end().iter().all(|view| view.owners_back > 0), "everybody is told that the owner is there again");
}

/// Waits until another snapshot has taken the place of the present one.
fn wait_for_another(file: &Path) {
    let written = || std::fs::metadata(file).and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let (present, deadline) = (written(), soon());
    while written() == present {
        assert!(Instant::now() < deadline, "no snapshot is written");
        std::thread::sleep(Duration::from_millis(5));
    }
}
