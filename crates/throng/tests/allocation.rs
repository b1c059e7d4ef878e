//! A steady-state server tick allocates nothing.
#![allow(unsafe_code, reason = "a global allocator that counts has to be one")]

mod counting;
mod harness;

use counting::{allocations, first_allocation};
use harness::{World, WorldOptions};
use throng::{ObjectId, Placement};
use throng_testkit::{Steering, Walker};

const GUESTS: usize = 64;
/// Everything repeats after this many ticks.
const ROUND_TICKS: u32 = 128;
/// Until every buffer of the pools has been used for the longest of its kind.
const WARM_UP_TICKS: u32 = 12 * ROUND_TICKS;
const TICKS: u32 = 2 * ROUND_TICKS;

/// Everybody walks in the same circle, through several cells, and turns.
fn walk(world: &mut World, walkers: &[ObjectId], tick: u32) {
    for (number, &id) in walkers.iter().enumerate() {
        let angle = ((tick + number as u32 * 7) % ROUND_TICKS) as f32 / ROUND_TICKS as f32 * std::f32::consts::TAU;
        let walker = world.server.get_mut::<Walker>(id).expect("it is there");
        walker.position = [angle.cos() * 12.0, angle.sin() * 12.0, 1.0];
        walker.health = (tick % 1_000) as u16;
        walker.ammunition = tick;
        walker.yaw = angle;
        let position = walker.position.map(f64::from);
        let connection = world.connection(number);
        world.server.set_viewpoint(connection, position);
    }
}

#[test]
fn the_counting_allocator_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1u8)))), 1);
    assert!(first_allocation().contains("the_counting_allocator_counts"));
    assert_eq!(allocations(|| {}), 0);
}

#[test]
fn a_steady_state_tick_allocates_nothing() {
    let mut options = WorldOptions::new(3);
    options.server.client_bytes_per_s = 250_000;
    // The clients' results are not checked here.
    options.client.decode = throng::Decode::Nothing;
    let mut world = World::with_guests(options, GUESTS);
    let walkers: Vec<ObjectId> = (0..GUESTS)
        .map(|guest| {
            let owner = Some(world.connection(guest));
            world.server.spawn_owned(Walker::default(), Placement::Cell(0), owner).expect("room")
        })
        .collect();
    let mut counted = 0;
    let mut ticks_with = 0;
    for tick in 0..WARM_UP_TICKS + TICKS {
        for guest in &mut world.guests {
            guest.client.send_typed_input(&Steering { number: tick, direction: 1.0 }).expect("connected");
            guest.client.flush(world.now);
        }
        world.now = world.now.after(std::time::Duration::from_micros(33_333));
        let now = world.now;
        let mut inputs = 0;
        let mut received = 0;
        received += allocations(|| world.server.receive(now).expect("in memory"));
        received += allocations(|| {
            while let Some((connection, input)) = world.server.poll_input() {
                world.server.acknowledge_input(connection, input.number);
                inputs += 1;
            }
        });
        let walked = allocations(|| walk(&mut world, &walkers, tick));
        let sent = allocations(|| world.server.tick(now));
        for guest in &mut world.guests {
            guest.client.update(now).expect("in memory");
            while guest.client.poll_event().is_some() {}
        }
        if tick >= WARM_UP_TICKS {
            assert!(inputs >= GUESTS, "inputs arrive: {inputs}");
            assert_eq!(world.server.last_tick().counters.objects_quantised, GUESTS as u64);
            let all = received + walked + sent;
            if all > 0 && counted == 0 {
                eprintln!("tick {tick}: receive {received}, walk {walked}, tick {sent}\n{}", first_allocation());
            }
            ticks_with += u32::from(all > 0);
            counted += all;
        } else {
            first_allocation();
        }
    }
    let bytes = world.guests[0].client.replication_bytes() / u64::from(WARM_UP_TICKS + TICKS);
    assert!(bytes > 300, "clients see each other: {bytes} bytes per tick");
    assert_eq!(counted, 0, "allocations in {TICKS} ticks, in {ticks_with} of them");
}
