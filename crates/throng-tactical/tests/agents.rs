//! Ten agents play whole matches: to a result, with the objective, and twice the same.

use throng::Tick;
use throng_match::{Flow, Game, Scopes, SeatCommand, TickInput};
use throng_sight::{bake, town};
use throng_tactical::brain::{Player, PlayerError, Skill, Squad, SquadOptions, Stage, navigation};
use throng_tactical::command::COMMAND_BYTES;
use throng_tactical::{Arena, Ending, Event, Rules, Seat, SenseRoom, Tactical};

/// The result of a match.
#[derive(Clone, Debug, Default, PartialEq)]
struct Story {
    outcome: Option<String>,
    digests: Vec<u64>,
    kills: u32,
    plants: u32,
    defusals: u32,
    explosions: u32,
    rounds: u32,
    ticks: u64,
}

fn arena(seed: u64, triangles: usize) -> Arena {
    Arena::new(bake(&town::town(seed, triangles)).expect("a town is a valid mesh")).expect("the town has all places")
}

fn play(arena: &Arena, rules: Rules, seed: u64) -> Story {
    let navigation = navigation(arena.map()).expect("a town can be walked");
    let stage = Stage { arena, navigation: &navigation, seats: rules.seats(), tick_hz: rules.tick_hz, seed };
    let squad = Squad::new(&stage, SquadOptions::default()).expect("the rays suffice");
    let mut game = Tactical::new(arena.clone(), rules, seed).expect("good rules").with_agents(Box::new(squad));
    let mut story = Story::default();
    let mut scopes = Scopes::off();
    let most = u64::from(rules.ticks(200.0)) * 2 * u64::from(rules.rounds_to_win);
    for tick in 1..most {
        let flow = game.step(&TickInput { tick: Tick(tick), ..TickInput::default() }, &mut scopes);
        for event in game.events() {
            match event {
                Event::Died { .. } => story.kills += 1,
                Event::Planted { .. } => story.plants += 1,
                Event::RoundEnded { ending, .. } => {
                    story.rounds += 1;
                    story.defusals += u32::from(*ending == Ending::Defused);
                    story.explosions += u32::from(*ending == Ending::Exploded);
                }
                _ => {}
            }
        }
        if tick % u64::from(rules.tick_hz) == 0 {
            story.digests.push(game.digest());
        }
        story.ticks = tick;
        if flow == Flow::Over {
            break;
        }
    }
    story.outcome = game.outcome();
    story
}

#[test]
fn ten_agents_play_a_match_to_its_result_and_again_the_same() {
    let arena = arena(1, 5_000);
    let rules = Rules { tick_hz: 64, rounds_to_win: 2, ..Rules::default() };
    let story = play(&arena, rules, 7);
    assert!(story.outcome.is_some(), "no result after {} ticks", story.ticks);
    assert!(story.kills >= 5, "{} kills in {} rounds", story.kills, story.rounds);
    assert_eq!(play(&arena, rules, 7), story, "the same match twice");
    assert_ne!(play(&arena, rules, 8).digests, story.digests, "another seed is another match");
}

#[test]
fn agents_plant_and_kill_in_many_matches() {
    let arena = arena(2, 45_000);
    let rules = Rules { tick_hz: 32, rounds_to_win: 2, ..Rules::default() };
    let (mut kills, mut plants) = (0, 0);
    for number in 0..3 {
        let story = play(&arena, rules, number);
        assert!(story.outcome.is_some(), "match {number} has no result");
        kills += story.kills;
        plants += story.plants;
    }
    assert!(kills >= 30 && plants >= 2, "{kills} kills, {plants} plants");
}

/// The commands of players who are on the way for a while, oldest first.
type Wire = Vec<[[u8; COMMAND_BYTES]; 10]>;

#[test]
fn players_whose_commands_arrive_late_kill_and_come_to_a_result() {
    const DELAY_TICKS: usize = 3;
    let arena = arena(1, 5_000);
    let rules = Rules { tick_hz: 64, rounds_to_win: 1, ..Rules::default() };
    let navigation = navigation(arena.map()).expect("a town can be walked");
    let stage = Stage { arena: &arena, navigation: &navigation, seats: 10, tick_hz: 64, seed: 3 };
    let seats: Vec<Seat> = (0..10).map(Seat).collect();
    let player = |seat: &Seat| Player::new(&stage, *seat, Skill::default()).expect("a seat of the match");
    let mut players: Vec<Player> = seats.iter().map(player).collect();
    let mut game = Tactical::new(arena.clone(), rules, 3).expect("good rules");
    let (mut room, mut kills, mut wire) = (SenseRoom::default(), 0, Wire::new());
    for tick in 1..20_000 {
        let mut bytes = [[0; COMMAND_BYTES]; 10];
        for (player, (seat, bytes)) in players.iter_mut().zip(seats.iter().zip(&mut bytes)) {
            *bytes = player.tick(&game.senses(*seat, &mut room).expect("a seat of the match")).encode();
        }
        wire.push(bytes);
        let arrived = if wire.len() > DELAY_TICKS { Some(wire.remove(0)) } else { None };
        let command = |seat: &Seat| {
            let bytes = &arrived.as_ref()?[seat.index()];
            Some(SeatCommand { seat: *seat, number: tick as u32, bytes })
        };
        let commands: Vec<SeatCommand<'_>> = seats.iter().filter_map(command).collect();
        let joined = if tick == 1 { &seats[..] } else { &[] };
        let input = TickInput { tick: Tick(tick), joined, commands: &commands, ..TickInput::default() };
        let flow = game.step(&input, &mut Scopes::off());
        kills += game.events().iter().filter(|event| matches!(event, Event::Died { .. })).count();
        if flow == Flow::Over {
            break;
        }
    }
    assert!(game.outcome().is_some() && kills >= 3, "{:?} after {kills} kills", game.outcome());
}

#[test]
fn a_player_without_a_seat_is_refused() {
    let arena = arena(1, 5_000);
    let navigation = navigation(arena.map()).expect("a town can be walked");
    let stage = Stage { arena: &arena, navigation: &navigation, seats: 10, tick_hz: 64, seed: 3 };
    let refused = |stage: &Stage<'_>, seat| Player::new(stage, Seat(seat), Skill::default()).map(|_| ()).unwrap_err();
    assert_eq!(refused(&stage, 10), PlayerError::Seat { seat: Seat(10), seats: 10 });
    assert_eq!(refused(&Stage { seats: 100, ..stage }, 3), PlayerError::Seat { seat: Seat(3), seats: 100 });
    assert!(matches!(refused(&Stage { tick_hz: 1, ..stage }, 3), PlayerError::Perception(_)));
}
