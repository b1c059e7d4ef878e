//! Rounds, money and the bomb.

use glam::{Vec3, vec3};
use throng_match::{Flow, Game};
use throng_tactical::command::{Buttons, Choice, Command, Item};
use throng_tactical::senses::{BombSeen, RoundPhase, Team};
use throng_tactical::{Ending, Event, Rules, Seat};

use crate::support::{Play, course, quick};

const SITE: Vec3 = vec3(-40.0, 0.0, 0.0);

fn carrier(play: &mut Play) -> u16 {
    (0..5).find(|seat| play.me(*seat).has_bomb).unwrap()
}

fn ending(play: &Play) -> Option<(Team, Ending)> {
    play.seen.iter().rev().find_map(|event| match event {
        Event::RoundEnded { winner, ending, .. } => Some((*winner, *ending)),
        _ => None,
    })
}

fn bomb(play: &mut Play, seat: u16) -> BombSeen {
    let Play { game, room, .. } = play;
    game.senses(Seat(seat), room).unwrap().bomb
}

/// The carrier plants at a site; who it was.
fn plant(play: &mut Play) -> u16 {
    let by = carrier(play);
    play.put(by, SITE, Vec3::X);
    play.hold(by, 460, |command| command.buttons = Buttons::USE);
    assert!(matches!(bomb(play, 9), BombSeen::Planted { .. }), "{:?}", bomb(play, 9));
    by
}

/// Somebody kills everybody of the other team.
fn eliminate(play: &mut Play, team: Team) {
    let (seats, by) = if team == Team::Attackers { (0..5, 5) } else { (5..10, 0) };
    for seat in seats {
        play.put(by, vec3(-50.0, 0.0, 20.0), Vec3::X);
        play.put(seat, vec3(-44.0, 0.0, 20.0), Vec3::X);
        play.hold(by, 20, |_| ());
        let dead = |play: &Play| play.count(|event| matches!(event, Event::Died { .. }));
        let before = dead(play);
        for _ in 0..16 {
            let target = play.me(seat).position + vec3(0.0, 1.3, 0.0);
            let eye = play.me(by).eye();
            play.hold(by, 1, |command| {
                command.look_along(target - eye);
                command.buttons = Buttons::FIRE;
            });
            if dead(play) > before {
                break;
            }
            play.hold(by, 40, |command| command.buttons = Buttons::NONE);
        }
        assert_eq!(dead(play), before + 1, "seat {seat} lives");
    }
}

#[test]
fn without_a_bomb_the_time_is_the_defenders() {
    let mut play = Play::live(Rules { live_s: 1.0, ..quick() });
    play.until(RoundPhase::End);
    assert_eq!(ending(&play), Some((Team::Defenders, Ending::Time)));
    assert_eq!(play.game.score(), [0, 1]);
    play.until(RoundPhase::Buy);
    assert_eq!((play.me(0).money, play.me(9).money), (800 + 1_900, 800 + 3_000));
    assert_eq!(play.game.round(), 2);
}

#[test]
fn a_planted_bomb_explodes_and_the_attackers_win() {
    let mut play = Play::live(Rules { fuse_s: 5.0, live_s: 20.0, ..quick() });
    play.put(7, SITE + vec3(3.0, 0.0, 0.0), Vec3::X);
    let by = plant(&mut play);
    assert!(!play.me(by).has_bomb);
    assert_eq!(play.count(|event| matches!(event, Event::Planted { site: 'a', .. })), 1);
    play.put(by, vec3(0.0, 0.0, -30.0), Vec3::X);
    let planted = play.tick;
    play.until(RoundPhase::End);
    assert!((570..=640).contains(&(play.tick - planted)), "{}", play.tick - planted);
    assert_eq!(ending(&play), Some((Team::Attackers, Ending::Exploded)));
    assert!(!play.me(7).is_alive, "a defender who stood beside it");
    assert!(play.me(by).is_alive && play.me(8).is_alive, "those who were far");
}

#[test]
fn a_bomb_is_defused_faster_with_a_kit() {
    let ticks = |has_kit: bool| {
        let rules = Rules { buy_s: 0.5, ..quick() };
        let mut play = Play::new(course(), rules, 1);
        if has_kit {
            play.hold(6, 1, |command| command.choice = Choice::Buy(Item::Kit));
        }
        play.until(RoundPhase::Live);
        plant(&mut play);
        let BombSeen::Planted { position, .. } = bomb(&mut play, 6) else { panic!("it is planted") };
        play.put(6, position + vec3(1.0, 0.0, 0.0), Vec3::NEG_X);
        // Others cannot do it, and from afar neither.
        play.hold(1, 10, |command| command.buttons = Buttons::USE);
        let from = play.tick;
        while play.game.round_phase() == RoundPhase::Live {
            play.hold(6, 1, |command| command.buttons = Buttons::USE);
        }
        assert_eq!(ending(&play), Some((Team::Defenders, Ending::Defused)));
        play.tick - from
    };
    assert!((896..=899).contains(&ticks(false)), "7 s: {}", ticks(false));
    assert!((448..=451).contains(&ticks(true)), "3.5 s: {}", ticks(true));
}

#[test]
fn work_that_is_interrupted_begins_anew() {
    let mut play = Play::live(quick());
    let by = carrier(&mut play);
    play.put(by, SITE, Vec3::X);
    play.hold(by, 400, |command| command.buttons = Buttons::USE);
    assert!(play.me(by).progress > 200);
    play.hold(by, 2, |_| ());
    assert_eq!(play.me(by).progress, 0);
    play.hold(by, 400, |command| command.buttons = Buttons::USE);
    assert!(play.me(by).has_bomb, "half of it twice is not all of it");
    play.put(by, vec3(0.0, 0.0, 0.0), Vec3::X);
    play.hold(by, 500, |command| command.buttons = Buttons::USE);
    assert!(play.me(by).has_bomb, "not at a site");
}

#[test]
fn the_bomb_of_the_dead_is_taken_by_a_team_mate() {
    let mut play = Play::live(quick());
    let by = carrier(&mut play);
    let other = (by + 1) % 5;
    play.put(by, vec3(-44.0, 0.0, 20.0), Vec3::X);
    play.put(5, vec3(-50.0, 0.0, 20.0), Vec3::X);
    for _ in 0..8 {
        let (target, eye) = (play.me(by).position + vec3(0.0, 1.3, 0.0), play.me(5).eye());
        play.hold(5, 1, |command| {
            command.look_along(target - eye);
            command.buttons = Buttons::FIRE;
        });
        play.hold(5, 40, |_| ());
    }
    assert!(!play.me(by).is_alive);
    let BombSeen::Dropped(at) = bomb(&mut play, other) else { panic!("{:?}", bomb(&mut play, other)) };
    assert_eq!(bomb(&mut play, 9), BombSeen::Unknown, "defenders do not know where it lies");
    play.put(6, at, Vec3::X);
    play.hold(6, 4, |_| ());
    assert!(!play.me(6).has_bomb, "it is not for defenders");
    play.put(other, at, Vec3::X);
    play.hold(other, 2, |_| ());
    assert!(play.me(other).has_bomb);
    assert_eq!(bomb(&mut play, by), BombSeen::Carried(Seat(other)));
}

#[test]
fn a_bomb_whose_carrier_dies_in_a_fall_lies_on_the_ground() {
    let mut play = Play::live(quick());
    let by = carrier(&mut play);
    play.put(5, vec3(-50.0, 0.0, 20.0), Vec3::X);
    for _ in 0..8 {
        play.put(by, vec3(-44.0, 5.0, 20.0), Vec3::X);
        // A shooter sees the past, in which he was elsewhere.
        play.hold(5, 8, |_| ());
        let (target, eye) = (play.me(by).position + vec3(0.0, 1.3, 0.0), play.me(5).eye());
        play.hold(5, 1, |command| {
            command.look_along(target - eye);
            command.buttons = Buttons::FIRE;
        });
        if !play.me(by).is_alive {
            break;
        }
        play.hold(5, 40, |_| ());
    }
    assert!(!play.me(by).is_alive && play.me(by).position.y > 2.0, "{:?}", play.me(by).position);
    let BombSeen::Dropped(at) = bomb(&mut play, (by + 1) % 5) else { panic!("it is not dropped") };
    assert!(at.y.abs() < 0.1, "{at}");
}

#[test]
fn a_match_is_played_to_its_result() {
    let mut play = Play::live(Rules { rounds_to_win: 2, ..quick() });
    eliminate(&mut play, Team::Defenders);
    assert_eq!(ending(&play), Some((Team::Attackers, Ending::Eliminated)));
    play.until(RoundPhase::Live);
    assert!(play.me(7).is_alive && play.me(7).health == 100, "everybody lives again");
    eliminate(&mut play, Team::Attackers);
    assert_eq!(ending(&play), Some((Team::Defenders, Ending::Eliminated)));
    play.until(RoundPhase::Live);
    eliminate(&mut play, Team::Defenders);
    assert_eq!(play.game.outcome(), None, "the end phase is part of it");
    let mut steps = 0;
    while play.step() == Flow::Continue {
        steps += 1;
        assert!(steps < 100);
    }
    assert_eq!(play.game.outcome().as_deref(), Some("attackers win 2 to 1"));
    assert_eq!((play.game.phase().name(), play.game.score()), ("over", [2, 1]));
    assert_eq!(play.step(), Flow::Over);
}

#[test]
fn attackers_are_not_told_that_the_bomb_is_being_defused() {
    let mut play = Play::live(quick());
    plant(&mut play);
    let BombSeen::Planted { position, .. } = bomb(&mut play, 7) else { panic!("it is planted") };
    play.put(7, position + vec3(1.0, 0.0, 0.0), Vec3::NEG_X);
    play.hold(7, 40, |command| command.buttons = Buttons::USE);
    let mut is_told = |seat: u16| match bomb(&mut play, seat) {
        BombSeen::Planted { is_being_defused, .. } => is_being_defused,
        other => panic!("{other:?}"),
    };
    assert!(is_told(5) && is_told(7));
    assert!((0..5).all(|seat| !is_told(seat)), "a defender who defuses is close to the bomb");
}

#[test]
fn things_are_bought_in_the_buy_phase_only() {
    let mut play = Play::new(course(), Rules { buy_s: 0.5, money: 3_000, ..quick() }, 1);
    let buy = |item: Item| move |command: &mut Command| command.choice = Choice::Buy(item);
    play.hold(0, 1, buy(Item::Rifle));
    assert_eq!((play.me(0).money, play.me(0).weapon), (300, throng_tactical::weapon::Weapon::Rifle));
    play.until(RoundPhase::Live);
    play.hold(0, 1, buy(Item::Smoke));
    assert_eq!((play.me(0).money, play.me(0).charges.smoke), (300, 0));
    assert_eq!(play.count(|event| matches!(event, Event::Bought { .. })), 1);
}
