//! A match of agents does not allocate once its buffers have grown.
#![allow(unsafe_code, reason = "an allocator that counts has to be an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use throng::Tick;
use throng_match::{Game, Scopes, TickInput};
use throng_sight::{bake, town};
use throng_tactical::brain::{Squad, SquadOptions, Stage, navigation};
use throng_tactical::{Arena, Event, Rules, Tactical};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory came from `alloc` above, that is from the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn agents_that_have_played_for_a_while_allocate_nothing() {
    let arena = Arena::new(bake(&town::town(1, 5_000)).unwrap()).unwrap();
    let navigation = navigation(arena.map()).unwrap();
    let rules = Rules { tick_hz: 32, rounds_to_win: 100, buy_s: 2.0, live_s: 30.0, ..Rules::default() };
    let stage = Stage { arena: &arena, navigation: &navigation, seats: 10, tick_hz: 32, seed: 3 };
    let squad = Squad::new(&stage, SquadOptions::default()).unwrap();
    let mut game = Tactical::new(arena.clone(), rules, 3).unwrap().with_agents(Box::new(squad));
    let mut deaths = 0;
    let mut play = |from: u64, to: u64| {
        for tick in from..to {
            game.step(&TickInput { tick: Tick(tick), ..TickInput::default() }, &mut Scopes::off());
            deaths += game.events().iter().filter(|event| matches!(event, Event::Died { .. })).count();
        }
    };
    play(1, 2_000);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    play(2_000, 5_000);
    let after = ALLOCATIONS.load(Ordering::Relaxed);
    assert!(deaths > 10, "{deaths} deaths: the match was played");
    assert_eq!(after, before, "allocations in 3,000 ticks");
}
