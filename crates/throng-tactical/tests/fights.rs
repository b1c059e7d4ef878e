//! Weapons do what they should.

use glam::{Vec3, vec3};
use throng_tactical::command::{Buttons, Choice, Command, Item};
use throng_tactical::senses::RoundPhase;
use throng_tactical::weapon::{Slot, Weapon};
use throng_tactical::{Event, Rules, Zone};

use crate::support::{Play, course, quick};

/// Where bodies and heads are.
const CHEST: Vec3 = vec3(0.0, 1.02, 0.0);
const HEAD: Vec3 = vec3(0.0, 1.62, 0.02);

/// A live match in which seat 0 has a weapon in the hand, and seat 5 stands `away` metres before it.
fn range(item: Option<Item>, away: f32) -> Play {
    let mut play = Play::new(course(), Rules { buy_s: 0.5, money: 9_000, ..quick() }, 3);
    if let Some(item) = item {
        play.hold(0, 1, |command| command.choice = Choice::Buy(item));
    }
    play.until(RoundPhase::Live);
    play.put(0, vec3(-50.0, 0.0, 20.0), Vec3::X);
    play.put(5, vec3(-50.0 + away, 0.0, 20.0), Vec3::NEG_X);
    play.hold(0, 128, |_| ());
    play.seen.clear();
    play
}

/// Seat 0 looks at a part of seat 5.
fn aim(play: &mut Play, part: Vec3) -> Command {
    let target = play.me(5).position + part;
    let mut command = play.idle(0);
    command.look_along(target - play.me(0).eye());
    command
}

fn fire_once(play: &mut Play, part: Vec3) {
    let command = Command { buttons: Buttons::FIRE, ..aim(play, part) };
    play.send(0, command);
    play.step();
    let command = aim(play, part);
    play.send(0, command);
    play.step();
}

fn damage(play: &Play) -> Option<(Zone, u8)> {
    play.seen.iter().find_map(|event| match event {
        Event::Hit { zone, damage, .. } => Some((*zone, *damage)),
        _ => None,
    })
}

#[test]
fn zones_weapons_and_distances_decide_the_damage() {
    let shot = |item: Option<Item>, away: f32, part: Vec3| {
        let mut play = range(item, away);
        fire_once(&mut play, part);
        damage(&play).unwrap_or_else(|| panic!("{item:?} at {away} m, {part}, missed"))
    };
    assert_eq!(shot(Some(Item::Rifle), 8.0, CHEST), (Zone::Body, 37));
    assert_eq!(shot(Some(Item::Rifle), 8.0, HEAD), (Zone::Head, 100));
    assert_eq!(shot(Some(Item::Rifle), 8.0, vec3(0.0, 0.6, 0.1)).0, Zone::Leg);
    assert_eq!(shot(None, 8.0, CHEST), (Zone::Body, 26));
    assert_eq!(shot(Some(Item::Sniper), 60.0, CHEST), (Zone::Body, 100));
    let far = shot(Some(Item::Rifle), 40.0, CHEST);
    assert_eq!(far, (Zone::Body, 29), "three quarters at half of the way to half of the damage");
}

#[test]
fn a_rifle_kills_after_three_hits_and_pays_for_it() {
    let mut play = range(Some(Item::Rifle), 8.0);
    let money = play.me(0).money;
    for shot in 0..3 {
        assert!(play.me(5).is_alive, "shot {shot}");
        fire_once(&mut play, CHEST);
        play.hold(0, 64, |_| ());
    }
    assert!(!play.me(5).is_alive);
    assert_eq!(play.me(0).money, money + 300);
    assert_eq!(play.count(|event| matches!(event, Event::Died { by: Some(by), .. } if by.0 == 0)), 1);
    fire_once(&mut play, CHEST);
    assert_eq!(play.hits(), 3, "the dead are no targets");
    let own = play.idle(5);
    play.send(5, Command { buttons: Buttons::FIRE, forward: 127, ..own });
    let shots = play.shots();
    play.step();
    assert_eq!((play.shots(), play.me(5).velocity), (shots, play.me(5).velocity), "the dead neither shoot nor walk");
}

#[test]
fn holding_the_trigger_fires_at_the_rate_of_the_weapon() {
    let fired = |item: Option<Item>| {
        let mut play = range(item, 8.0);
        play.put(5, vec3(0.0, 0.0, -20.0), Vec3::X);
        play.hold(0, 256, |command| command.buttons = Buttons::FIRE);
        play.shots()
    };
    assert_eq!(fired(Some(Item::Rifle)), 20, "two seconds at 102 ms");
    assert_eq!(fired(None), 1, "a pistol fires once for each press");
    assert_eq!(fired(Some(Item::Sniper)), 1);
}

#[test]
fn pressing_faster_than_the_weapon_fires_gains_nothing() {
    let mut play = range(None, 8.0);
    play.put(5, vec3(0.0, 0.0, -20.0), Vec3::X);
    for tick in 0..256 {
        let buttons = if tick % 2 == 0 { Buttons::FIRE } else { Buttons::NONE };
        play.hold(0, 1, |command| command.buttons = buttons);
    }
    // Every 150 ms, and the next press after that is at most two ticks later.
    assert!((11..=13).contains(&play.shots()), "{}", play.shots());
}

#[test]
fn an_empty_magazine_is_reloaded_and_ammunition_ends() {
    let mut play = range(Some(Item::Rifle), 8.0);
    play.put(5, vec3(0.0, 0.0, -20.0), Vec3::X);
    let trigger = |command: &mut Command| command.buttons = Buttons::FIRE;
    play.hold(0, 128 * 26, trigger);
    assert_eq!(play.shots(), 100);
    let me = play.me(0);
    assert_eq!((me.ammunition, me.reserve, me.is_reloading), (0, 0, false));
    play.hold(0, 1, |command| command.choice = Choice::Draw(Slot::Sidearm));
    play.hold(0, 128, |_| ());
    fire_once(&mut play, CHEST);
    assert_eq!((play.me(0).weapon, play.shots()), (Weapon::Pistol, 101));
}

#[test]
fn a_burst_climbs_and_a_run_spreads() {
    let ends = |is_running: bool| {
        let mut play = range(Some(Item::Rifle), 8.0);
        play.put(5, vec3(0.0, 0.0, -20.0), Vec3::X);
        play.hold(0, 128, |command| {
            command.buttons = Buttons::FIRE;
            command.look_along(Vec3::X);
            command.forward = if is_running { 127 } else { 0 };
        });
        let way = |event: &Event| match event {
            Event::Shot { from, to, .. } => Some((*to - *from).normalize()),
            _ => None,
        };
        play.seen.iter().filter_map(way).collect::<Vec<Vec3>>()
    };
    let still = ends(false);
    assert!(still[0].y.abs() < 0.003 && still[7].y > 0.03, "{still:?}");
    let off = |ways: &[Vec3]| ways.iter().map(|way| way.z.abs()).sum::<f32>() / ways.len() as f32;
    assert!(off(&ends(true)) > 2.0 * off(&still), "{} {}", off(&ends(true)), off(&still));
}

#[test]
fn team_mates_are_neither_hurt_nor_in_the_way() {
    let mut play = range(Some(Item::Rifle), 12.0);
    play.put(1, vec3(-45.0, 0.0, 20.0), Vec3::X);
    play.hold(0, 16, |_| ());
    fire_once(&mut play, CHEST);
    assert_eq!((play.hits(), play.me(1).health), (1, 100));
}

#[test]
fn a_wall_of_the_map_stops_shots() {
    let mut play = range(Some(Item::Rifle), 8.0);
    play.put(0, vec3(15.0, 0.0, 0.0), Vec3::X);
    play.put(5, vec3(25.0, 0.0, 0.0), Vec3::NEG_X);
    play.hold(0, 64, |_| ());
    fire_once(&mut play, CHEST);
    assert_eq!((play.shots(), play.hits()), (1, 0));
    let end = play.seen.iter().find_map(|event| match event {
        Event::Shot { to, .. } => Some(*to),
        _ => None,
    });
    assert!((end.unwrap().x - 20.0).abs() < 0.01, "{end:?}");
    assert_eq!(play.game.rewind_counters().blocked, 1);
}

#[test]
fn every_shot_leaves_a_record_that_is_judged_again_with_the_same_verdict() {
    let mut play = range(Some(Item::Rifle), 8.0);
    let mut log = Vec::new();
    for _ in 0..6 {
        fire_once(&mut play, CHEST);
        play.hold(0, 40, |_| ());
        // In pieces.
        play.game.take_verdicts(&mut log);
    }
    let summary = throng_rewind::replay(&log).unwrap();
    assert_eq!(summary.shots, play.game.counters().shots);
    assert!(summary.shots >= 6 && summary.identical == summary.shots, "{summary:?}");
    assert_eq!(play.game.counters().verdicts_dropped, 0);
}
