//! A match is played again from its input log, bit for bit.

use throng_match::{Flow, Game, InputLog, LogError, ReplayError, Scopes, Stage, TickInput};

use crate::balls::{Balls, Fault, RATE_HZ, Rules, Shared, World, recorded};

const TICKS: u64 = 10 * RATE_HZ as u64 + 7;

fn replay(log: &[u8], mut game: Balls) -> Result<throng_match::Replayed, ReplayError> {
    InputLog::open(log).map_err(ReplayError::from)?.replay(&mut game)
}

#[test]
fn a_recorded_match_is_replayed_identically() {
    throng_seeds::for_seeds(4, |seed| {
        let (log, world) = recorded(seed, TICKS);
        let counters = world.game.counters();
        assert!(counters.commands.taken > 6 * 400, "the clients steered: {counters:?}");
        let opened = InputLog::open(&log).expect("a log");
        let head = opened.head();
        assert_eq!((head.seed, head.rate_hz, head.seats, &head.settings[..]), (seed, RATE_HZ, 12, &b"twelve"[..]));
        assert_eq!(opened.check("build 1", "balls", 77), Ok(()));
        let mut again = Balls::new(head.seed, TICKS);
        let replayed = opened.replay(&mut again).expect("it is the same");
        assert_eq!((replayed.ticks, replayed.digests, replayed.is_over), (TICKS, 11, true));
        assert_eq!(again.digest(), world.game.game().digest());
        assert_eq!(replayed.outcome, world.game.end().expect("it has ended").outcome);
    });
}

#[test]
fn a_log_without_commands_would_be_another_match() {
    // The replay depends on the commands, so that its equality means something.
    let (_, world) = recorded(3, TICKS);
    let mut alone = Balls::new(3, TICKS);
    let input = TickInput::default();
    while alone.step(&input, &mut Scopes::off()) == Flow::Continue {}
    assert_ne!(alone.digest(), world.game.game().digest());
}

#[test]
fn another_seed_diverges_within_a_second() {
    let (log, _) = recorded(3, TICKS);
    let error = replay(&log, Balls::new(4, TICKS)).expect_err("another game");
    assert!(matches!(error, ReplayError::Diverged { tick, .. } if tick == u64::from(RATE_HZ)), "{error}");
    assert!(error.to_string().contains("after tick 64"), "{error}");
}

#[test]
fn a_game_that_ends_earlier_or_later_is_found() {
    let (log, _) = recorded(3, TICKS);
    let error = replay(&log, Balls::new(3, TICKS - 3)).expect_err("it is over too early");
    assert_eq!(error, ReplayError::Over { tick: TICKS - 3 });
    let error = replay(&log, Balls::new(3, TICKS + 3)).expect_err("it is not over");
    assert_eq!(error, ReplayError::Over { tick: TICKS });
}

#[test]
fn the_log_of_a_match_that_panicked_replays_to_the_panic() {
    let log = Shared::default();
    let broken = |fault| Balls { fault, ..Balls::new(2, 1_000) };
    let rules = Rules { sink: Some(Box::new(log.clone())), ..Rules::default() };
    let mut world = World::new(broken(Some((100, Fault::Panic))), rules);
    world.come(1);
    while world.step(|_| &[&[9, 9]]) == Stage::Playing {}
    let error = replay(&log.bytes(), broken(Some((100, Fault::Panic)))).expect_err("it panics again");
    assert!(matches!(error, ReplayError::Panicked { tick: 100, .. }), "{error}");
    // Once the fault is mended, the rest of the log is its end.
    let error = replay(&log.bytes(), broken(None)).expect_err("there is no more");
    assert_eq!(error, ReplayError::Log(LogError::CutShort { ticks: 100 }));
}

#[test]
fn a_replay_whose_game_panics_in_what_it_says_is_an_error() {
    let (log, _) = recorded(3, TICKS);
    for (tick, fault) in [(u64::from(RATE_HZ), Fault::PanicInDigest), (TICKS, Fault::PanicInOutcome)] {
        let error = replay(&log, Balls { fault: Some((tick, fault)), ..Balls::new(3, TICKS) }).expect_err("it panics");
        assert!(matches!(error, ReplayError::Panicked { tick: at, .. } if at == tick), "{error}");
    }
}

#[test]
fn a_stopped_match_has_a_whole_log() {
    let log = Shared::default();
    let mut world = World::new(Balls::new(2, 1_000), Rules { sink: Some(Box::new(log.clone())), ..Rules::default() });
    world.come(1);
    for _ in 0..100 {
        world.step(|_| &[&[9, 9]]);
    }
    let now = world.now;
    world.game.stop(now, "enough");
    let replayed = replay(&log.bytes(), Balls::new(2, 1_000)).expect("it is the same");
    assert_eq!((replayed.ticks, replayed.is_over, replayed.outcome), (100, false, None));
}

#[test]
fn an_outcome_that_is_long_or_empty_replays_as_the_log_has_it() {
    let long = "ü".repeat(600);
    for (said, told) in [(long.as_str(), Some(&long[..1_024])), ("", None), ("one wins", Some("one wins"))] {
        let game = || Balls { said: Some(said.to_owned()), ..Balls::new(2, 50) };
        let log = Shared::default();
        let mut world = World::new(game(), Rules { sink: Some(Box::new(log.clone())), ..Rules::default() });
        while world.step(|_| &[]) == Stage::Playing {}
        let replayed = replay(&log.bytes(), game()).expect("it is the same");
        assert_eq!((replayed.outcome.as_deref(), replayed.is_over), (told, true));
        assert_eq!(world.game.end().expect("it has ended").outcome.as_deref(), told);
    }
}
