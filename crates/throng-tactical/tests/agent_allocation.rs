//! A match of agents does not allocate once its buffers have grown.

use std::sync::{Arc, Mutex};

use throng::Tick;
use throng_agent::PathFinder;
use throng_counting::so_far;
use throng_match::{Game, Scopes, TickInput};
use throng_sight::{bake, town};
use throng_tactical::brain::{Skill, Squad, SquadOptions, Stage, navigation};
use throng_tactical::{Arena, Event, Rules, Tactical};

/// Deaths in the ticks of all matches.
fn play(games: &mut [Tactical], ticks: std::ops::Range<u64>) -> usize {
    let mut deaths = 0;
    for tick in ticks {
        for game in games.iter_mut() {
            game.step(&TickInput { tick: Tick(tick), ..TickInput::default() }, &mut Scopes::off());
            deaths += game.events().iter().filter(|event| matches!(event, Event::Died { .. })).count();
        }
    }
    deaths
}

/// As `throng ai-server` plays them. Twenty matches meet seldom cases that one does not.
#[test]
fn twenty_matches_of_agents_allocate_nothing_after_their_first_second() {
    let arena = Arena::new(bake(&town::town(1, 5_000)).unwrap()).unwrap();
    let navigation = navigation(arena.map()).unwrap();
    let finder = Arc::new(Mutex::new(PathFinder::new(&navigation)));
    let rules = Rules { tick_hz: 20, team_size: 3, rounds_to_win: 100, buy_s: 2.0, live_s: 30.0, ..Rules::default() };
    let new_match = |seed: u64| {
        let stage = Stage { arena: &arena, navigation: &navigation, seats: 6, tick_hz: 20, seed };
        let skill = Skill { fan_rays: 32, ..Skill::default() };
        let options = SquadOptions { rays_per_tick: 72, agents_max: 5, skill, ..SquadOptions::default() };
        let squad = Squad::new(&stage, options).unwrap().with_finder(Arc::clone(&finder));
        Tactical::new(arena.clone(), rules, seed).unwrap().with_agents(Box::new(squad))
    };
    let mut games: Vec<Tactical> = (0..20).map(new_match).collect();
    play(&mut games, 1..20);
    let before = so_far();
    let deaths = play(&mut games, 20..2_000);
    let after = so_far();
    assert!(before > 0 && deaths > 200, "{deaths} deaths: the matches were played");
    assert_eq!(after, before, "allocations in 1,980 ticks of 20 matches");
}
