//! A tick of an older model allocates nothing once everything has its size, so that what is measured is the model: but
//! shared state with lists made for each connection, whose point that is.

#[path = "../../throng/tests/harness/mod.rs"]
mod harness;
mod oracle;

use std::f32::consts::TAU;
use std::sync::Arc;

use harness::{Contender, World, WorldOptions};
use throng::{ObjectId, Placement, Schema, ServerOptions, StartError};
use throng_counting::{allocations, first_allocation, largest_bytes};
use throng_models::{Detection, Graph, Legacy, Scratch, SharedState, SharedStateOptions};
use throng_testkit::Walker;

const GUESTS: usize = 24;
/// Everything repeats after this many ticks.
const ROUND_TICKS: u32 = 128;
/// Until every buffer has been used for the longest of its kind.
const WARM_UP_TICKS: u32 = 8 * ROUND_TICKS;
const TICKS: u32 = 2 * ROUND_TICKS;

/// The allocations of the ticks after the warm-up.
#[derive(Debug, Default)]
struct Asked {
    allocations: u64,
    /// In one piece.
    largest_bytes: usize,
    /// Where the first came from.
    first: String,
}

/// Everybody walks in the same circle, through several cells, in and out of the others' sight.
fn walk<R: Contender>(world: &mut World<R>, walkers: &[ObjectId], tick: u32) {
    for (number, &id) in walkers.iter().enumerate() {
        let angle = ((tick + number as u32 * 7) % ROUND_TICKS) as f32 / ROUND_TICKS as f32 * TAU;
        let walker = world.server.get_mut::<Walker>(id).expect("it is there");
        walker.position = [angle.cos() * 16.0, angle.sin() * 16.0, 1.0];
        walker.health = (tick % 1_000) as u16;
        walker.ammunition = tick;
        walker.yaw = angle;
        let position = walker.position.map(f64::from);
        let connection = world.connection(number);
        world.server.set_viewpoint(connection, position);
    }
}

/// The allocations of a model in [`TICKS`] steady ticks.
fn asked<R: Contender>(model: impl FnOnce(&Arc<Schema>, &ServerOptions) -> Result<R, StartError>) -> Asked {
    let mut options = WorldOptions::new(3);
    options.server.client_bytes_per_s = 250_000;
    // The clients' results are not checked here.
    options.client.decode = throng::Decode::Nothing;
    let mut world = World::with_model(options, model);
    for _ in 0..GUESTS {
        world.join();
    }
    world.connect_all();
    let walkers: Vec<ObjectId> = (0..GUESTS)
        .map(|guest| {
            let owner = Some(world.connection(guest));
            world.server.spawn_owned(Walker::default(), Placement::Cell(0), owner).expect("room")
        })
        .collect();
    let mut asked = Asked::default();
    for tick in 0..WARM_UP_TICKS + TICKS {
        world.now = world.now.after(world.options().server.tick_interval);
        let now = world.now;
        first_allocation();
        let received = allocations(|| world.server.receive(now).expect("in memory"));
        assert!(world.server.poll_event().is_none(), "nothing happens but movement");
        walk(&mut world, &walkers, tick);
        let sent = allocations(|| world.server.tick(now));
        assert_eq!(world.server.last_tick().counters.objects_quantised, GUESTS as u64);
        if tick >= WARM_UP_TICKS {
            if asked.allocations == 0 {
                asked.first = first_allocation();
            }
            asked.allocations += received + sent;
            asked.largest_bytes = asked.largest_bytes.max(largest_bytes());
        }
        for guest in &mut world.guests {
            guest.client.update(now).expect("in memory");
            while guest.client.poll_event().is_some() {}
        }
    }
    let bytes = world.guests[0].client.replication_bytes() / u64::from(WARM_UP_TICKS + TICKS);
    assert!(bytes > 50, "clients see each other: {bytes} bytes per tick");
    asked
}

fn asks_for_nothing<R: Contender>(model: impl FnOnce(&Arc<Schema>, &ServerOptions) -> Result<R, StartError>) {
    let asked = asked(model);
    assert_eq!(asked.allocations, 0, "in {TICKS} ticks; the first:\n{}", asked.first);
}

fn shared(scratch: Scratch, has_baselines: bool) -> SharedStateOptions {
    SharedStateOptions { scratch, has_baselines }
}

#[test]
fn the_legacy_model_allocates_nothing() {
    asks_for_nothing(|schema, options| Legacy::new(schema, options, Detection::Poll));
}

#[test]
fn the_legacy_model_with_push_marks_allocates_nothing() {
    asks_for_nothing(|schema, options| Legacy::new(schema, options, Detection::Push));
}

#[test]
fn the_graph_allocates_nothing() {
    asks_for_nothing(Graph::new);
}

#[test]
fn shared_state_allocates_nothing() {
    asks_for_nothing(|schema, options| SharedState::new(schema, options, shared(Scratch::Shared, false)));
}

#[test]
fn shared_state_with_baselines_allocates_nothing() {
    asks_for_nothing(|schema, options| SharedState::new(schema, options, shared(Scratch::Shared, true)));
}

#[test]
fn shared_state_with_a_list_for_each_connection_allocates_that_list_each_time_and_nothing_else() {
    let asked = asked(|schema, options| SharedState::new(schema, options, shared(Scratch::PerConnection, false)));
    assert_eq!(asked.allocations, u64::from(TICKS) * GUESTS as u64, "one for each connection and tick");
    assert_eq!(asked.largest_bytes, 524_280, "the size that was published");
}
