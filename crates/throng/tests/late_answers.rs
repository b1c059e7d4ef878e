//! A server that stands still for a while still answers for everything that came meanwhile.

use std::time::Duration;

use throng::{LaneKind, LaneOptions};
use throng_testkit::Parcel;

use crate::harness::{World, WorldOptions};

#[test]
fn a_client_that_uploads_while_the_server_hitches_is_told_of_no_lost_packet() {
    const RATE_BYTES_PER_S: u32 = 2_400_000;
    const PARCEL_BYTES: usize = 100_000;
    let mut options = WorldOptions::new(1);
    let lane = LaneOptions {
        message_bytes: PARCEL_BYTES + 100,
        queue_bytes: 20 * PARCEL_BYTES,
        ..LaneOptions::new(LaneKind::ReliableOrdered)
    };
    options.server.lanes[0] = lane;
    options.client.lanes[0] = lane;
    options.client.bytes_per_s = RATE_BYTES_PER_S;
    options.server.client_packets_per_s = 10_000;
    let mut world = World::with_guests(options, 1);
    let mut number = 0;
    let mut upload = |world: &mut World| {
        while world.guests[0].client.send(0, &Parcel { number, content: vec![7; PARCEL_BYTES] }).is_ok() {
            number += 1;
        }
    };
    let link = |world: &World| world.guests[0].client.link_statistics().expect("connected");
    for _ in 0..600 {
        upload(&mut world);
        world.step();
        if link(&world).sending_rate_bytes_per_s == RATE_BYTES_PER_S {
            break;
        }
    }
    // A fifth of a second: the client gives up what is unanswered for a quarter, on so short a path.
    let before = link(&world).counters;
    for _ in 0..12 {
        upload(&mut world);
        world.now = world.now.after(Duration::from_micros(16_667));
        world.guests[0].client.update(world.now).expect("in memory");
    }
    let waiting = link(&world).counters.packets_sent - before.packets_sent;
    world.steps(90);
    let after = link(&world).counters;
    println!("{waiting} packets waited for the server, {} of {} were lost", after.packets_lost, after.packets_sent);
    assert!(waiting > 256, "only {waiting} packets waited: one acknowledgement names them all");
    assert_eq!(after.packets_lost, 0, "on a path that loses nothing");
}
