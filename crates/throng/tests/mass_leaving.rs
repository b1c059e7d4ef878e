//! A view that ends while thousands of objects wait in it.

use throng::{GridOptions, GridShape, ObjectId, Placement, Ring, Up};
use throng_testkit::Beacon;

use crate::harness::{World, WorldOptions};

#[test]
fn a_viewer_who_is_carried_away_while_a_crowd_changes_cells_stays_connected() {
    const CROWD: usize = 600;
    let mut options = WorldOptions::new(1);
    options.server.grids = vec![GridOptions {
        shape: GridShape::flat(Up::Z, [8.0, 8.0, 8.0]),
        rings: vec![Ring { radius_m: 12.0, interval_ticks: 1 }, Ring { radius_m: 60.0, interval_ticks: 60 }],
        ..GridOptions::new(Up::Z)
    }];
    options.server.client_bytes_per_s = 2_000_000;
    // Twice as many as are ever in use. One packet may pass over four times as many.
    options.client.replica.slots = 4 * CROWD;
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    world.server.set_viewpoint(connection, [4.0, 4.0, 1.0]);
    let at = |x: f32| Beacon { position: [x, 4.0, 1.0], ..Beacon::default() };
    let crowd: Vec<ObjectId> =
        (0..CROWD).map(|_| world.server.spawn(at(12.0), Placement::Cell(0)).expect("room")).collect();
    world.steps(130);
    assert_eq!(world.guests[0].client.ids().count(), CROWD);
    let held = |world: &World| world.guests[0].client.replica().expect("connected").occupancy();
    let cells = world.guests[0].client.replica().expect("connected").channels().count();
    world.begin_step();
    for &id in &crowd {
        world.server.get_mut::<Beacon>(id).expect("it is there").position[0] = 28.0;
    }
    world.end_step();
    world.steps_until(10, |world| held(world).waits >= CROWD).expect("all wait for the far cell's turn");
    assert!(cells * CROWD > 4 * 4 * CROWD, "{cells} cells are too few to prove anything");
    world.server.set_viewpoint(connection, [100_000.0, 4.0, 1.0]);
    world.steps(30);
    assert_eq!(world.guests[0].end(), None, "{cells} cells have ended beside {CROWD} waits");
    assert_eq!(world.guests[0].client.ids().count(), 0);
    world.server.set_viewpoint(connection, [4.0, 4.0, 1.0]);
    world.steps(130);
    assert_eq!(world.guests[0].client.ids().count(), CROWD);
}
