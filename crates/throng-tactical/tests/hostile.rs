//! Clients that lie are refused, counted by reason, and gain nothing.

use glam::{Vec3, vec3};
use throng::Tick;
use throng_match::{Game, Scopes, Seat, SeatCommand, SeatLatency, TickInput};
use throng_tactical::command::{Buttons, Command};
use throng_tactical::{Rules, Tactical};

use crate::support::{Play, course, quick};

/// A live match in which seat 0 can hit seat 5.
fn range() -> Play {
    let mut play = Play::live(quick());
    play.put(0, vec3(-50.0, 0.0, 20.0), Vec3::X);
    play.put(5, vec3(-42.0, 0.0, 20.0), Vec3::NEG_X);
    play.hold(0, 64, |_| ());
    play.seen.clear();
    play
}

/// Seat 0 fires at seat 5 with a command that a cheat has changed; whether there was a shot.
fn shot(play: &mut Play, cheat: impl Fn(&mut Command)) -> bool {
    play.hold(0, 30, |_| ());
    let mut command = play.idle(0);
    let (eye, target) = (play.me(0).eye(), play.me(5).position + vec3(0.0, 1.3, 0.0));
    command.look_along(target - eye);
    command.buttons = Buttons::FIRE;
    cheat(&mut command);
    let before = play.shots();
    play.send(0, command);
    play.step();
    play.shots() > before
}

#[test]
fn shots_from_the_future_are_refused() {
    let mut play = range();
    assert!(shot(&mut play, |_| ()));
    for ahead in [2, 10, 1_000, 1 << 30] {
        assert!(!shot(&mut play, |command| command.view_tick = command.view_tick.wrapping_add(ahead)), "{ahead}");
    }
    assert_eq!(play.game.refusals().from_future, 4);
}

#[test]
fn views_that_are_older_than_everything_are_refused_and_other_lies_are_bounded() {
    let mut play = range();
    play.hold(0, 200, |_| ());
    assert!(!shot(&mut play, |command| command.view_tick -= 130));
    assert!(!shot(&mut play, |command| command.view_tick = command.view_tick.wrapping_sub(1 << 30)));
    assert_eq!(play.game.refusals().view_too_old, 2);
    // Half a second is within the history, far from the measured latency, and replaced by it.
    assert!(shot(&mut play, |command| command.view_tick -= 64));
    assert_eq!(play.game.rewind_counters().replaced, 1);
    // Every one of them is in the counts, and the match goes on.
    assert!(shot(&mut play, |_| ()));
}

#[test]
fn shots_from_where_the_shooter_is_not_are_refused() {
    let mut play = range();
    let place = |away: f32| Command::place_of(vec3(-50.0 + away, 0.0, 20.0));
    assert!(shot(&mut play, |command| command.place = place(0.5)), "a client may be a little behind");
    for away in [4.0, -6.0, 11.0] {
        assert!(!shot(&mut play, |command| command.place = place(away)), "{away} m");
    }
    assert_eq!(play.game.refusals().far_origin, 3);
    // With a delay the client's knowledge is older.
    play.rtt(0, 300_000);
    assert!(shot(&mut play, |command| command.place = place(3.5)));
}

#[test]
fn more_commands_than_ticks_gain_no_way_and_no_shots() {
    let way = |commands_per_tick: u32| {
        let mut play = range();
        play.put(0, vec3(-50.0, 0.0, -20.0), Vec3::X);
        play.hold(0, 2, |_| ());
        let from = play.me(0).position;
        for _ in 0..256 {
            for number in 0..commands_per_tick {
                let own = play.idle(0);
                let buttons = if number % 2 == 0 { Buttons::FIRE } else { Buttons::NONE };
                play.send(0, Command { forward: 127, buttons, ..own });
            }
            play.step();
        }
        (play.me(0).position.distance(from), play.shots(), play.game.refusals().too_fast)
    };
    let (honest_m, _, refused) = way(1);
    assert_eq!(refused, 0);
    let (cheat_m, shots, refused) = way(6);
    assert!(cheat_m <= honest_m + 0.05, "{cheat_m} instead of {honest_m}");
    assert!(shots <= 14 && refused > 1_200, "{shots} shots, {refused} refused");
}

#[test]
fn commands_out_of_order_are_refused() {
    let mut play = range();
    let bytes = |play: &mut Play, forward: i8| Command { forward, ..play.idle(0) }.encode().to_vec();
    for (number, forward) in [(1_000, 10), (999, 20), (1_000, 30), (5, 40), (1_001, 50)] {
        let bytes = bytes(&mut play, forward);
        play.send_numbered(0, number, bytes);
    }
    play.step();
    assert_eq!(play.game.refusals().out_of_order, 3);
}

#[test]
fn any_bytes_of_anybody_harm_no_match() {
    let mut random = fastrand::Rng::with_seed(8);
    let mut play = Play::new(course(), quick(), 2);
    let mut honest = Play::new(course(), quick(), 2);
    for tick in 0..1_200u64 {
        for _ in 0..random.usize(..6) {
            let length = if random.bool() { 16 } else { random.usize(..40) };
            let mut bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            if length == 16 && random.bool() {
                (bytes[5], bytes[13]) = (random.u8(..3), random.u8(..2));
                if random.bool() {
                    bytes[..4].copy_from_slice(&(tick as u32).to_le_bytes());
                }
            }
            let seat = random.u16(..14);
            play.send_numbered(seat, random.u32(..), bytes);
        }
        play.step();
        honest.step();
        for seat in 0..10 {
            let me = play.me(seat);
            assert!(me.position.is_finite() && me.velocity.is_finite(), "tick {tick}, seat {seat}: {me:?}");
            assert!(me.position.abs().max_element() < 61.0, "tick {tick}, seat {seat}: {me:?}");
        }
    }
    let refusals = play.game.refusals();
    assert!(refusals.malformed > 500 && refusals.unknown_seat > 300 && refusals.from_future > 10, "{refusals:?}");
    assert_eq!(play.game.round_phase(), honest.game.round_phase());
    assert!(refusals.all().iter().map(|(_, count)| count).sum::<u64>() > 1_000);
}

#[test]
fn nonsense_of_the_runtime_harms_no_match() {
    let mut game = Tactical::new(course(), Rules::default(), 1).unwrap();
    let bytes = [0; 16];
    for tick in [1, 1, 2, 3, 1 << 40] {
        let input = TickInput {
            tick: Tick(tick),
            joined: &[Seat(3), Seat(3), Seat(999)],
            left: &[Seat(3), Seat(77)],
            commands: &[SeatCommand { seat: Seat(4), number: 0, bytes: &bytes }],
            latencies: &[
                SeatLatency { seat: Seat(500), rtt_us: u32::MAX },
                SeatLatency { seat: Seat(3), rtt_us: u32::MAX },
            ],
        };
        game.step(&input, &mut Scopes::off());
    }
    assert_eq!(game.refusals().unknown_seat, 5, "seat 4 has no player");
}

#[test]
fn a_player_who_leaves_stops_and_comes_back_with_a_new_numbering() {
    let mut play = range();
    play.hold(0, 10, |command| command.forward = 127);
    let step = |play: &mut Play, joined: &[Seat], left: &[Seat], commands: &[SeatCommand<'_>]| {
        play.tick += 1;
        let input = TickInput { tick: Tick(play.tick), joined, left, commands, latencies: &[] };
        play.game.step(&input, &mut Scopes::off());
    };
    step(&mut play, &[], &[Seat(0)], &[]);
    for _ in 0..60 {
        step(&mut play, &[], &[], &[]);
    }
    let still = play.me(0);
    assert!(still.velocity.length() < 0.01 && still.is_alive);
    let walk = Command { forward: 127, ..play.idle(0) }.encode();
    step(&mut play, &[], &[], &[SeatCommand { seat: Seat(0), number: 900, bytes: &walk }]);
    assert_eq!(play.game.refusals().unknown_seat, 1);
    step(&mut play, &[Seat(0)], &[], &[]);
    step(&mut play, &[], &[], &[SeatCommand { seat: Seat(0), number: 0, bytes: &walk }]);
    assert!(play.me(0).velocity.length() > 0.1);
}

#[test]
fn the_latency_of_a_player_who_has_left_is_not_that_of_the_next_one() {
    for leaves in [false, true] {
        let mut play = range();
        let step = |play: &mut Play, input: &TickInput<'_>| {
            play.tick += 1;
            play.game.step(&TickInput { tick: Tick(play.tick), ..*input }, &mut Scopes::off());
        };
        let latencies = [SeatLatency { seat: Seat(0), rtt_us: 300_000 }];
        step(&mut play, &TickInput { latencies: &latencies, ..TickInput::default() });
        if leaves {
            step(&mut play, &TickInput { left: &[Seat(0)], ..TickInput::default() });
            step(&mut play, &TickInput { joined: &[Seat(0)], ..TickInput::default() });
        }
        // Only with a delay may a client be so far behind.
        let place = Command::place_of(vec3(-46.5, 0.0, 20.0));
        let bytes = Command { buttons: Buttons::FIRE, place, ..play.idle(0) }.encode();
        let commands = [SeatCommand { seat: Seat(0), number: 10_000, bytes: &bytes }];
        step(&mut play, &TickInput { commands: &commands, ..TickInput::default() });
        assert_eq!(play.game.refusals().far_origin, u64::from(leaves));
    }
}
