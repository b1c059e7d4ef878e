//! Smokes, walls and dashes.

use glam::{Vec3, vec3};
use throng_tactical::command::{Buttons, Choice, Command, Item};
use throng_tactical::senses::RoundPhase;
use throng_tactical::{Rules, Seat};

use crate::support::{Play, course, quick};

/// A live match in which seat 0 has two charges of something and stands on the field, looking along +x.
fn with(item: Item) -> Play {
    let mut play = Play::new(course(), Rules { buy_s: 0.5, money: 9_000, ..quick() }, 1);
    for _ in 0..2 {
        play.hold(0, 1, |command| command.choice = Choice::Buy(item));
    }
    play.until(RoundPhase::Live);
    play.put(0, vec3(-50.0, 0.0, 20.0), Vec3::X);
    play.hold(0, 2, |_| ());
    play
}

#[test]
fn a_dash_goes_far_and_ends() {
    let mut play = with(Item::Dash);
    let from = play.me(0).position;
    play.press(0, Buttons::DASH);
    play.hold(0, 100, |_| ());
    let way = play.me(0).position - from;
    // 0.22 s at 13 m/s, and a little until it stands.
    assert!((2.8..5.0).contains(&way.x) && way.z.abs() < 0.01, "{way}");
    assert!(play.me(0).velocity.length() < 0.01, "{}", play.me(0).velocity);
    assert_eq!(play.me(0).charges.dash, 1);
    play.hold(0, 40, |command| command.buttons = Buttons::DASH);
    assert_eq!(play.me(0).charges.dash, 0);
    play.hold(0, 40, |_| ());
    let from = play.me(0).position;
    play.press(0, Buttons::DASH);
    play.hold(0, 40, |_| ());
    assert!(play.me(0).position.distance(from) < 0.01, "no charge, no dash");
}

#[test]
fn a_wall_stops_everybody_and_falls() {
    let mut play = with(Item::Wall);
    play.press(0, Buttons::WALL);
    let walls = |play: &mut Play| play.game.senses(Seat(9), &mut play.room).unwrap().walls.to_vec();
    let [wall] = walls(&mut play)[..] else { panic!("one wall") };
    assert!((wall.foot - vec3(-47.8, 0.0, 20.0)).length() < 0.05, "{:?}", wall.foot);
    play.hold(0, 128, |command| command.forward = 127);
    assert!((play.me(0).position.x - (-47.8 - 0.15 - 0.35)).abs() < 0.05, "{}", play.me(0).position);
    play.put(7, vec3(-44.0, 0.0, 20.0), Vec3::NEG_X);
    play.hold(7, 128, |command| command.forward = 127);
    assert!((play.me(7).position.x - (-47.8 + 0.5)).abs() < 0.05, "{}", play.me(7).position);
    // 14 s after it rose, it is gone.
    play.hold(0, 14 * 128 - 260, |_| ());
    assert_eq!(walls(&mut play).len(), 1);
    play.hold(0, 10, |_| ());
    assert_eq!(walls(&mut play).len(), 0);
    play.hold(0, 200, |command| command.forward = 127);
    assert!(play.me(0).position.x > -47.0);
}

#[test]
fn a_wall_needs_free_ground() {
    let mut play = with(Item::Wall);
    play.put(7, vec3(-47.8, 0.0, 20.3), Vec3::NEG_X);
    play.press(0, Buttons::WALL);
    assert_eq!(play.me(0).charges.wall, 2, "somebody stands there");
    play.put(7, vec3(0.0, 0.0, 20.3), Vec3::NEG_X);
    play.put(0, vec3(19.0, 0.0, 0.0), Vec3::X);
    play.press(0, Buttons::WALL);
    assert_eq!(play.me(0).charges.wall, 2, "behind a wall of the map");
    play.put(0, vec3(-29.0, 3.0, -30.0), Vec3::NEG_X);
    play.press(0, Buttons::WALL);
    assert_eq!(play.me(0).charges.wall, 2, "there is no ground as near");
}

#[test]
fn walls_of_many_rounds_take_no_more_room() {
    let rules = Rules { buy_s: 0.1, end_s: 0.1, live_s: 1.0, money: 9_000, rounds_to_win: 100, ..Rules::default() };
    let mut play = Play::new(course(), rules, 1);
    let mut raised = 0;
    for _ in 0..12 {
        for seat in 0..10 {
            for _ in 0..2 {
                play.send(seat, Command { choice: Choice::Buy(Item::Wall), ..Command::default() });
            }
        }
        play.until(RoundPhase::Live);
        for tick in 0..60 {
            for seat in 0..10 {
                let own = play.idle(seat);
                let buttons = if tick % 8 == 0 { Buttons::WALL } else { Buttons::NONE };
                play.send(seat, Command { buttons, yaw: own.yaw.wrapping_add(tick * 900), ..own });
            }
            play.step();
            raised = raised.max(play.game.senses(Seat(0), &mut play.room).unwrap().walls.len());
        }
        play.until(RoundPhase::Buy);
        assert_eq!(play.game.senses(Seat(0), &mut play.room).unwrap().walls.len(), 0);
    }
    assert!((4..=16).contains(&raised), "{raised}");
}

#[test]
fn a_wall_that_stood_at_the_end_of_a_round_stops_no_shot_of_the_next() {
    let rules = Rules { buy_s: 0.5, end_s: 0.1, live_s: 1.0, money: 9_000, ..Rules::default() };
    let mut play = Play::new(course(), rules, 1);
    play.hold(0, 1, |command| command.choice = Choice::Buy(Item::Wall));
    let stand = |play: &mut Play| {
        play.until(RoundPhase::Live);
        play.put(0, vec3(-50.0, 0.0, 20.0), Vec3::X);
        play.put(7, vec3(-44.0, 0.0, 20.0), Vec3::NEG_X);
        play.hold(0, 20, |_| ());
    };
    let fire = |play: &mut Play| {
        let ahead = vec3(-44.0, 1.25, 20.0) - play.me(0).eye();
        play.hold(0, 1, |command| {
            command.look_along(ahead);
            command.buttons = Buttons::FIRE;
        });
        (play.shots(), play.hits(), play.game.rewind_counters().blocked)
    };
    stand(&mut play);
    play.press(0, Buttons::WALL);
    play.hold(0, 40, |_| ());
    assert_eq!(fire(&mut play), (1, 0, 1), "it stops the shots of its round");
    play.until(RoundPhase::Buy);
    stand(&mut play);
    assert_eq!(fire(&mut play), (2, 1, 1), "nothing stands there any more");
}

#[test]
fn a_smoke_hangs_where_it_was_thrown_and_hides() {
    let mut play = with(Item::Smoke);
    play.put(7, vec3(-20.0, 0.0, 20.0), Vec3::NEG_X);
    play.hold(0, 20, |_| ());
    assert!(play.game.may_see(Seat(0), Seat(7)) && play.game.may_see(Seat(7), Seat(0)));
    play.hold(0, 1, |command| {
        command.look_along(Vec3::X);
        command.buttons = Buttons::SMOKE;
    });
    let smokes = |play: &mut Play| play.game.senses(Seat(9), &mut play.room).unwrap().smokes.to_vec();
    assert_eq!(smokes(&mut play).len(), 0, "it takes half a second");
    play.hold(0, 70, |_| ());
    let [smoke] = smokes(&mut play)[..] else { panic!("one smoke") };
    assert!((smoke.middle - vec3(-28.0, 1.62, 20.0)).length() < 0.1, "{:?}", smoke.middle);
    assert!(smoke.blocks(play.me(0).eye(), play.me(7).eye()));
    // The last look of the fog stays valid for a moment.
    play.hold(0, 64, |_| ());
    assert!(!play.game.may_see(Seat(0), Seat(7)) && !play.game.may_see(Seat(7), Seat(0)), "the smoke is between them");
    let remembered = play.game.senses(Seat(0), &mut play.room).unwrap().enemies.to_vec();
    let seen = remembered.iter().find(|seen| seen.seat == Seat(7)).unwrap();
    assert!(seen.seen_at.0 < play.tick && seen.feet.distance(vec3(-20.0, 0.0, 20.0)) < 0.1, "it is remembered");
    play.hold(0, 12 * 128, |_| ());
    assert_eq!(smokes(&mut play).len(), 0);
    assert!(play.game.may_see(Seat(0), Seat(7)));
}

#[test]
fn the_memory_of_a_hidden_enemy_is_the_last_place_in_which_it_was_seen() {
    let mut play = Play::live(quick());
    // The enemy runs behind the wall of the course, at x = 20 and z from -3 to 3.
    play.put(0, vec3(12.0, 0.0, 0.0), Vec3::X);
    play.put(7, vec3(26.0, 0.0, -14.0), Vec3::Z);
    play.hold(0, 2, |_| ());
    let mut shown = None;
    for _ in 0..400 {
        play.hold(7, 1, |command| command.forward = 127);
        let is_shown = play.game.may_see(Seat(0), Seat(7));
        let enemies = play.game.senses(Seat(0), &mut play.room).unwrap().enemies.to_vec();
        let now = *enemies.iter().find(|seen| seen.seat == Seat(7)).expect("seen or remembered");
        if !is_shown {
            assert_eq!(Some(now), shown, "in the first hidden tick");
            assert_eq!(now.seen_at.0, play.tick - 1);
            return;
        }
        assert_eq!(now.seen_at.0, play.tick);
        shown = Some(now);
    }
    panic!("it was never hidden");
}
