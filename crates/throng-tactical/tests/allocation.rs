//! A match that has been played for a while allocates nothing in its steps.

mod support;

use throng::Tick;
use throng_counting::so_far;
use throng_match::{Game, Scopes, Seat, SeatCommand, SeatLatency, TickInput};
use throng_tactical::command::{Buttons, Choice, Command, Item};
use throng_tactical::senses::RoundPhase;
use throng_tactical::{Rules, SenseRoom, Tactical};

#[test]
fn steps_with_everything_on_allocate_nothing() {
    let rules = Rules { buy_s: 0.5, live_s: 4.0, end_s: 0.3, rounds_to_win: 100, money: 9_000, ..Rules::default() };
    let mut game = Tactical::new(support::small_town(), rules, 3).unwrap();
    let joined: Vec<Seat> = (0..10).map(Seat).collect();
    let latencies: Vec<SeatLatency> = joined.iter().map(|seat| SeatLatency { seat: *seat, rtt_us: 40_000 }).collect();
    let mut random = fastrand::Rng::with_seed(1);
    let mut headings = [0u16; 10];
    let mut room = SenseRoom::default();
    let mut log = Vec::with_capacity(1 << 20);
    let mut bytes = [[0u8; 16]; 10];
    let (mut shots, mut walls, mut rounds) = (0, 0, 0);
    let mut before = None;
    for tick in 1..1_800u64 {
        for (seat, heading) in headings.iter_mut().enumerate() {
            if random.u8(..40) == 0 {
                *heading = random.u16(..);
            }
            let mut command = Command { view_tick: tick as u32 - 1, forward: 127, yaw: *heading, ..Command::default() };
            if let Some(senses) = game.senses(Seat(seat as u16), &mut room) {
                command.place = Command::place_of(senses.me.position);
                walls = walls.max(senses.walls.len());
                if let Some(enemy) = senses.enemies.first() {
                    command.look_along(enemy.feet + glam::vec3(0.0, 1.2, 0.0) - senses.me.eye());
                }
            }
            if game.round_phase() == RoundPhase::Buy {
                command.choice = Choice::Buy(Item::ALL[random.usize(..Item::ALL.len())]);
            } else {
                let all = [Buttons::JUMP, Buttons::CROUCH, Buttons::SMOKE, Buttons::WALL, Buttons::DASH, Buttons::NONE];
                command.buttons = Buttons::FIRE | all[random.usize(..all.len())];
            }
            bytes[seat] = command.encode();
        }
        let commands: [SeatCommand<'_>; 10] = std::array::from_fn(|seat| SeatCommand {
            seat: Seat(seat as u16),
            number: tick as u32,
            bytes: &bytes[seat],
        });
        let joined = if tick == 1 { &joined[..] } else { &[] };
        let input = TickInput { tick: Tick(tick), joined, left: &[], commands: &commands, latencies: &latencies };
        if tick == 900 {
            before = Some((so_far(), game.counters().shots, game.round()));
        }
        game.step(&input, &mut Scopes::off());
        log.clear();
        game.take_verdicts(&mut log);
        if tick == 1_799 {
            let (allocations, shots_before, round) = before.unwrap();
            assert_eq!(so_far() - allocations, 0);
            (shots, rounds) = (game.counters().shots - shots_before, game.round() - round);
        }
    }
    assert!(shots > 50 && walls > 0 && rounds > 0, "{shots} shots, {walls} walls, {rounds} rounds: all of it happened");
}
