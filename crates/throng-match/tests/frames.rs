//! A frame: its order, its records, and what players see of it.

use throng_match::{Seat, Seats, Stage, Subsystem};

use crate::balls::{BALLS, Ball, Balls, RATE_HZ, Rules, World};

#[test]
fn players_see_the_game_and_steer_it_to_its_end() {
    let mut world = World::new(Balls::new(5, 200), Rules::default());
    world.come_all(2);
    for _ in 0..100 {
        world.step(|_| &[&[127, 0]]);
    }
    let mut seen: Vec<Ball> = world.clients[0].objects::<Ball>().map(|(_, ball)| ball).collect();
    seen.sort_by_key(|ball| ball.number);
    assert_eq!(seen.len(), BALLS);
    assert_eq!(world.game.counters().joined, 2);
    assert!(world.clients[0].server_tick().is_some());
    while world.step(|_| &[]) != Stage::Ended {}
    let end = world.game.end().expect("it has ended");
    assert!(end.error.is_none() && end.log_error.is_none(), "{end}");
    let line = end.to_string();
    assert!(line.starts_with("match 1, tick 200: ball ") && line.lines().count() == 1, "{line}");
    assert_eq!(end.counters.ticks, 200);
    // The clients were told the result.
    world.idle(5);
    let reason = world.clients[0].end_reason().expect("it was sent away").to_string();
    assert!(reason.contains("bounced"), "{reason}");
    assert_eq!(world.idle(1), Stage::Ended, "an ended match stays ended");
}

#[test]
fn a_player_that_comes_after_the_end_is_told_so_and_holds_nobody_up() {
    let mut world = World::new(Balls::new(1, 10), Rules::default());
    world.come_all(1);
    while world.game.stage() == Stage::Playing {
        world.step(|_| &[]);
    }
    // One is silent, so the match waits for it for the whole farewell of two seconds.
    drop(world.clients.remove(0));
    let late = world.come(2);
    let mut frames = 0;
    while world.step(|_| &[]) != Stage::Ended {
        frames += 1;
    }
    world.idle(5);
    let reason = world.clients[late].end_reason().map(ToString::to_string);
    assert!(reason.as_ref().is_some_and(|reason| reason.contains("the match is over")), "{reason:?}");
    assert!(frames < RATE_HZ * 5 / 2, "{frames} frames: a second more is for connections that do not end");
    let end = world.game.end().expect("the match is over");
    assert_eq!(
        [world.game.counters(), end.counters].map(|counters| (counters.joined, counters.turned_away)),
        [(1, 1); 2]
    );
}

#[test]
fn a_player_that_comes_back_has_the_seat_that_it_had() {
    let mut world = World::new(Balls::new(5, 10_000), Rules { seats: Seats::open(2), ..Rules::default() });
    let first = world.come(70);
    world.idle(20);
    world.come(60);
    world.idle(20);
    assert_eq!((world.seat_of(70), world.seat_of(60)), (Some(Seat(0)), Some(Seat(1))));
    // It crashes without a word, and comes back from another address before the server has missed it.
    drop(world.clients.remove(first));
    let third = world.come(50);
    world.idle(20);
    assert!(world.clients[third].end_reason().is_some_and(|reason| reason.to_string().contains("no seat")));
    let again = world.come(70);
    for _ in 0..40 {
        world.step(|client| if client == again { &[&[1, 1]] } else { &[] });
    }
    assert_eq!(world.seat_of(70), Some(Seat(0)));
    assert!(world.game.seats().connection(Seat(0)).is_some());
    assert_eq!(world.clients[again].objects::<Ball>().count(), BALLS, "it sees the game again");
    let counters = world.game.counters();
    assert_eq!((counters.joined, counters.turned_away), (3, 1));
    assert!(counters.commands.taken > 20, "its commands count, though their numbers begin again: {counters:?}");
    // It leaves politely, and its seat waits.
    let now = world.now;
    world.clients[again].close(now, "later");
    world.idle(20);
    assert_eq!(world.game.seats().connection(Seat(0)), None);
    world.come(70);
    world.idle(20);
    assert!(world.game.seats().connection(Seat(0)).is_some());
}

#[test]
fn every_frame_is_recorded_with_lateness_phase_and_subsystems() {
    let mut world = World::new(Balls::new(5, 10_000), Rules::default());
    for tick in 0..20_u64 {
        world.hand.work(1_000);
        world.now = world.now.after(std::time::Duration::from_millis(15));
        world.game.frame(world.now, tick * 1_000);
    }
    let snapshot = world.telemetry.snapshot();
    assert_eq!(snapshot.frames, 20);
    assert_eq!((snapshot.late_ns.max, snapshot.late_ns.mean), (19_000, 9_500.0));
    let phases: Vec<_> = snapshot.phases.iter().map(|phase| (phase.phase.name(), phase.frames)).collect();
    assert_eq!(phases, [("warm_up", 9), ("live", 11)], "a frame has the phase in which its step left the match");
    let last = snapshot.recorders[0].last.expect("a frame");
    assert_eq!(last.tick, 20, "frames have the ticks that clients see");
}

#[test]
fn the_time_of_a_frame_belongs_to_network_replication_and_the_game() {
    // With a real clock: which parts there are, not how long they take.
    let telemetry = throng_telemetry::Telemetry::start(Default::default()).expect("no files");
    let server = throng::Server::bind(
        "127.0.0.1:0".parse().expect("an address"),
        crate::balls::schema(),
        crate::balls::server_options(),
    );
    let options = throng_match::MatchOptions { rate_hz: 64, ..throng_match::MatchOptions::new("m") };
    let recorder = telemetry.recorder("m");
    let game = Box::new(Balls::new(1, 1_000));
    let mut game = throng_match::Match::new(options, game, server.expect("a port"), recorder).expect("no log");
    for tick in 0..50 {
        game.frame(throng::Time::from_millis(tick * 16), 0);
    }
    let snapshot = telemetry.snapshot();
    let mean =
        |subsystem| snapshot.subsystems.iter().find(|one| one.subsystem == subsystem).map(|one| one.frame_ns.mean);
    for subsystem in [Subsystem::NETWORK, Subsystem::REPLICATION, Subsystem::GAMEPLAY, Subsystem::PHYSICS] {
        assert!(mean(subsystem).is_some_and(|mean_ns| mean_ns > 0.0), "{subsystem:?}: {snapshot:?}");
    }
    let sum: f64 = snapshot.subsystems.iter().map(|one| one.frame_ns.mean).sum();
    assert!((sum / snapshot.frame_ns.mean - 1.0).abs() < 0.01, "the parts add up to the frame");
}

#[test]
fn messages_are_counted_because_a_match_plays_by_commands() {
    let mut world = World::new(Balls::new(5, 10_000), Rules::default());
    let client = world.come(1);
    world.idle(20);
    world.clients[client].send(0, &Ball::default()).expect("connected");
    world.idle(10);
    assert_eq!(world.game.counters().messages_ignored, 1);
}
