//! Positions that clients compute from a velocity, as a game sees them through the library.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use throng::net::Condition;
use throng::{ClientEvent, ObjectId, Placement, Replicate, Schema, Tick};

use crate::harness::{World, WorldOptions};

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Cart {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.05))]
    position: [f64; 3],
    #[replicate(fixed(min = -50.0, max = 50.0, step = 0.1))]
    velocity: [f64; 3],
}

/// Not the interval that the options begin with: the client has to take the server's.
const TICK: Duration = Duration::from_micros(20_000);

/// A world in which a client looks at a cart, and owns another one.
fn world() -> (World, ObjectId, ObjectId) {
    let schema = Schema::builder().kind::<Cart>().build().expect("a good kind");
    let mut options = WorldOptions { schema: Arc::new(schema), ..WorldOptions::new(4) };
    options.server.tick_interval = TICK;
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let cart = Cart { position: [1.0, 1.0, 1.0], velocity: [0.0; 3] };
    let seen = world.server.spawn(cart.clone(), Placement::Cell(0)).expect("room");
    let own = world.server.spawn_owned(cart, Placement::Cell(0), Some(connection)).expect("room");
    world.server.set_viewpoint(connection, [1.0; 3]);
    world.steps(20);
    (world, seen, own)
}

#[test]
fn a_game_gets_positions_of_the_newest_tick_that_its_client_has_heard_of() {
    let (mut world, seen, own) = world();
    let mut history: BTreeMap<Tick, Cart> = BTreeMap::new();
    world.set_condition(Condition { delay_us: 35_000, ..Condition::NONE });
    let (mut statements, mut looks, mut ticks) = (0, 0, Vec::new());
    for step in 0..300 {
        let mut cart = world.server.get::<Cart>(seen).expect("it is there").clone();
        // Round in circles of short straight ways.
        if step % 50 == 0 {
            let angle = f64::from(step) / 50.0;
            cart.velocity = [3.0 * angle.cos(), 3.0 * angle.sin(), 0.0].map(|v| (v * 10.0).round() / 10.0);
        }
        (0..3).for_each(|axis| cart.position[axis] += cart.velocity[axis] * TICK.as_secs_f64());
        *world.server.get_mut::<Cart>(seen).expect("it is there") = cart.clone();
        *world.server.get_mut::<Cart>(own).expect("it is there") = cart.clone();
        history.insert(world.server.replicator().now(), cart);
        world.step();
        let guest = &mut world.guests[0];
        let is_told = |event: &ClientEvent| matches!(event, ClientEvent::Changed { id, .. } if *id == seen);
        statements += guest.events.drain(..).filter(is_told).count();
        let Some(truth) = guest.client.server_tick().and_then(|tick| history.get(&tick)) else { continue };
        ticks.extend(guest.client.server_tick());
        let (shown, mine) = (guest.client.get::<Cart>(seen).expect("in sight"), guest.client.get::<Cart>(own));
        let mine = mine.expect("in sight");
        let listed: BTreeMap<ObjectId, Cart> = guest.client.objects::<Cart>().collect();
        assert_eq!((&listed[&seen], &listed[&own]), (&shown, &mine));
        for axis in 0..3 {
            let away_m = (shown.position[axis] - truth.position[axis]).abs();
            assert!(away_m < 0.055_1, "step {step}: {away_m} m: {shown:?} is {truth:?}");
            assert!((mine.position[axis] - truth.position[axis]).abs() < 0.005_1, "{mine:?} is {truth:?}");
        }
        assert!((0..3).all(|axis| (shown.velocity[axis] - truth.velocity[axis]).abs() < 1e-6));
        looks += 1;
    }
    assert!((6..20).contains(&statements), "{statements} statements of 6 straight ways");
    ticks.dedup();
    assert!(looks > 250 && ticks.len() > 250, "{looks} looks at {} ticks", ticks.len());
}
