//! A game that fails ends its own match, with one line, and nothing else.

use throng_match::{MatchError, Stage};

use crate::balls::{Ball, Balls, Fault, Rules, Shared, World};

/// A match with one client, in which something goes wrong in step 40.
fn broken(fault: Fault) -> World {
    let game = Balls { fault: Some((40, fault)), ..Balls::new(9, 1_000) };
    let mut world = World::new(game, Rules::default());
    world.come(1);
    for _ in 0..39 {
        assert_eq!(world.step(|_| &[&[1, 1]]), Stage::Playing);
    }
    world
}

#[test]
fn a_panic_ends_the_match_with_one_line_that_says_where() {
    for fault in [Fault::Panic, Fault::PanicInPublish] {
        let mut world = broken(fault);
        assert_eq!(world.step(|_| &[]), Stage::Leaving);
        let end = world.game.end().expect("it has ended");
        let line = end.to_string();
        assert!(line.starts_with("match 1, tick 40: the game panicked: "), "{line}");
        assert!(line.contains("balls/mod.rs:") && line.lines().count() == 1, "{line}");
        assert_eq!(end.error.as_ref().map(MatchError::tag), Some("panicked"));
        // The client is told, and the match is done.
        for _ in 0..20 {
            world.step(|_| &[]);
        }
        assert_eq!(world.game.stage(), Stage::Ended);
        let reason = world.clients[0].end_reason().expect("it was sent away").to_string();
        assert!(reason.contains("ended with an error"), "{reason}");
    }
}

#[test]
fn an_error_of_the_game_ends_the_match() {
    let mut world = broken(Fault::Fail);
    assert_eq!(world.clients[0].objects::<Ball>().count(), crate::balls::BALLS);
    assert_eq!(world.step(|_| &[]), Stage::Leaving);
    let line = world.game.end().expect("it has ended").to_string();
    assert_eq!(line, "match 1, tick 40: the game cannot go on: the balls are flat");
}

#[test]
fn a_game_that_panics_when_it_is_dropped_does_no_harm() {
    let mut world = broken(Fault::PanicInDrop);
    assert_eq!(world.step(|_| &[]), Stage::Playing);
    let now = world.now;
    world.game.stop(now, "enough");
    let World { game, .. } = world;
    let end = game.into_end(|| unreachable!("it was stopped"));
    assert_eq!(end.to_string(), "match 1, tick 40: stopped: enough");
}

#[test]
fn a_stopped_match_tells_its_clients_why() {
    let mut world = broken(Fault::Hang);
    let now = world.now;
    world.game.stop(now, "the server closes");
    world.game.stop(now, "a second time");
    for _ in 0..20 {
        world.step(|_| &[]);
    }
    assert_eq!(world.game.stage(), Stage::Ended);
    let reason = world.clients[0].end_reason().expect("it was sent away").to_string();
    assert!(reason.contains("the server closes"), "{reason}");
}

#[test]
fn a_game_that_panics_when_its_match_is_stopped_has_panicked() {
    for fault in [Fault::PanicInDigest, Fault::PanicInOutcome] {
        let game = Balls { fault: Some((50, fault)), ..Balls::new(1, 1_000) };
        let mut world = World::new(game, Rules { sink: Some(Box::new(Shared::default())), ..Rules::default() });
        for _ in 0..50 {
            world.step(|_| &[]);
        }
        let now = world.now;
        world.game.stop(now, "enough");
        let end = world.game.end().expect("it has ended");
        assert_eq!(end.error.as_ref().map(MatchError::tag), Some("panicked"), "{end}");
    }
}
