//! Equal inputs give equal matches, bit for bit.

use throng_tactical::command::{Buttons, Choice, Command, Item};
use throng_tactical::senses::{RoundPhase, Team};
use throng_tactical::{Arena, Event, Rules, Seat};

use crate::support::{Play, small_town};

/// Everybody runs about, buys, shoots at whoever is seen, and uses everything. `change` is a tick in which one command
/// differs by the least.
fn played(arena: Arena, seed: u64, change: Option<u64>) -> Play {
    let rules = Rules { buy_s: 0.3, live_s: 2.5, end_s: 0.2, rounds_to_win: 3, money: 5_000, ..Rules::default() };
    let mut play = Play::new(arena, rules, seed);
    let mut random = fastrand::Rng::with_seed(seed);
    for seat in 0..10 {
        play.rtt(seat, 100 * u32::from(seat) * 90);
    }
    let mut headings = [0u16; 10];
    while play.tick < 1_300 {
        for seat in 0..10u16 {
            let heading = &mut headings[usize::from(seat)];
            if random.u8(..40) == 0 {
                *heading = random.u16(..);
            }
            let mut command = Command { forward: 127, yaw: *heading, ..play.idle(seat) };
            command.view_tick = command.view_tick.saturating_sub(2);
            match play.game.round_phase() {
                RoundPhase::Buy => {
                    command.choice = Choice::Buy(Item::ALL[random.usize(..Item::ALL.len())]);
                }
                _ => {
                    let eye = play.me(seat).eye();
                    let enemies = play.game.senses(Seat(seat), &mut play.room).unwrap().enemies;
                    if let Some(enemy) = enemies.iter().find(|enemy| enemy.seen_at.0 + 1 >= play.tick) {
                        command.look_along(enemy.feet + glam::vec3(0.0, 1.2, 0.0) - eye);
                    }
                    let all =
                        [Buttons::FIRE, Buttons::CROUCH, Buttons::USE, Buttons::SMOKE, Buttons::WALL, Buttons::DASH];
                    command.buttons = all[random.usize(..all.len())] | Buttons::FIRE;
                }
            }
            if change == Some(play.tick) && seat == 4 {
                command.pitch ^= 1;
            }
            play.send(seat, command);
        }
        play.step();
        if play.game.events().contains(&Event::WentLive) {
            // Three attackers begin where they meet somebody.
            let places = play.game.arena().spawns(Team::Defenders).to_vec();
            for seat in 0..3 {
                play.put(seat, places[5 + usize::from(seat)], glam::Vec3::X);
            }
        }
    }
    play
}

#[test]
fn equal_inputs_give_equal_matches_and_any_difference_another_one() {
    let one = played(small_town(), 12, None);
    let kinds = [
        one.shots(),
        one.hits(),
        one.count(|event| matches!(event, Event::Died { .. })),
        one.count(|event| matches!(event, Event::Smoke { .. })),
        one.count(|event| matches!(event, Event::Wall { .. })),
        one.count(|event| matches!(event, Event::Dash { .. })),
        one.count(|event| matches!(event, Event::RoundEnded { .. })),
    ];
    assert!(kinds.iter().all(|count| *count > 0), "a match in which all of it happens: {kinds:?}");

    let again = played(small_town(), 12, None);
    assert_eq!(one.digests, again.digests);
    assert_eq!(one.seen, again.seen);

    let changed = played(small_town(), 12, Some(700));
    let first = one.digests.iter().zip(&changed.digests).position(|(a, b)| a != b);
    assert_eq!(first, Some(700), "the first difference is in the tick of the command");
    let other = Play::new(small_town(), throng_tactical::Rules::default(), 13);
    let same = Play::new(small_town(), throng_tactical::Rules::default(), 12);
    assert_ne!(other.digests, same.digests, "another seed");
    let rich = throng_tactical::Rules { money: 900, ..throng_tactical::Rules::default() };
    assert_ne!(Play::new(small_town(), rich, 12).digests, same.digests, "money counts");
}
