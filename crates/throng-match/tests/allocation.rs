//! A frame of a match allocates nothing in the steady state.

mod balls;

use std::io::{self, Write};
use std::time::Duration;

use balls::{Balls, RATE_HZ, Rules, World};
use throng_counting::{allocations, first_allocation, largest_bytes};
use throng_match::{InputLog, Stage};

/// Until every buffer has been used for the longest of its kind.
const WARM_UP_FRAMES: u32 = 20 * RATE_HZ;
const FRAMES: u32 = 10 * RATE_HZ;

/// A log that goes nowhere, as a file's does for the allocator.
struct Nowhere;

impl Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A function of its own, so that its name is in the backtrace without debug information, too.
#[inline(never)]
fn allocates_once() {
    drop(std::hint::black_box(Box::new(1u8)));
}

#[test]
fn the_counting_allocator_counts() {
    assert_eq!(allocations(allocates_once), 1);
    assert!(first_allocation().contains("allocates_once"));
}

#[test]
fn a_frame_with_ten_players_and_a_log_allocates_nothing() {
    let rules = Rules { sink: Some(Box::new(Nowhere)), ..Rules::default() };
    let mut world = World::new(Balls::new(1, u64::MAX), rules);
    world.come_all(10);
    let (mut counted, mut taken) = (0, 0);
    for frame in 0..WARM_UP_FRAMES + FRAMES {
        world.now = world.now.after(Duration::from_micros(1_000_000 / u64::from(RATE_HZ)));
        let now = world.now;
        for (number, client) in world.clients.iter_mut().enumerate() {
            if client.is_connected() {
                // Up to two commands in a frame, so that lists have different lengths.
                for turn in 0..(frame + number as u32) % 3 {
                    client.send_input(&[frame as u8, turn as u8, 7]).expect("connected");
                }
            }
            client.update(now).expect("in memory");
            while client.poll_event().is_some() {}
        }
        let before = world.game.counters().commands.taken;
        let made = allocations(|| assert_eq!(world.game.frame(now, 1_000), Stage::Playing));
        if frame >= WARM_UP_FRAMES {
            if made > 0 && counted == 0 {
                eprintln!("frame {frame}: {}", first_allocation());
            }
            counted += made;
            taken += world.game.counters().commands.taken - before;
        } else {
            first_allocation();
        }
        if frame % 32 == 0 {
            world.telemetry.collect();
        }
    }
    assert!(taken > u64::from(FRAMES) * 8, "commands arrive: {taken}");
    assert_eq!(counted, 0, "allocations in {FRAMES} frames");
}

#[test]
fn reading_a_log_asks_for_no_more_memory_than_it_has_bytes() {
    let (log, _) = balls::recorded(1, 5 * u64::from(RATE_HZ));
    let mut game = Balls::new(1, 5 * u64::from(RATE_HZ));
    allocations(|| drop(InputLog::open(&log).expect("a log").replay(&mut game)));
    assert!(largest_bytes() < log.len(), "{} of {}", largest_bytes(), log.len());
    // Lengths and counts that are a lie.
    let mut bent = log[..100].to_vec();
    for place in 10..bent.len() - 4 {
        let honest = bent.clone();
        bent[place..place + 4].fill(0xFF);
        allocations(|| drop(InputLog::open(&bent).map(|log| log.replay(&mut game))));
        assert!(largest_bytes() <= bent.len(), "{} at byte {place}", largest_bytes());
        bent = honest;
    }
}
