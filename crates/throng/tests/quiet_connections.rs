//! A connection over which nothing is said costs next to nothing, and stays open.

use std::time::Duration;

use crate::harness::{World, WorldOptions};
use throng_testkit::BudgetAudit;

/// The traffic of each end in a quiet minute, in bytes per second with all headers down to IP.
fn quiet_bytes_per_s(tick_interval: Duration, guests: usize) -> (f64, f64) {
    const SECONDS: u64 = 60;
    let mut options = WorldOptions::new(1);
    options.server.tick_interval = tick_interval;
    let mut world = World::with_guests(options, guests);
    world.steps(200);
    world.tap.open();
    world.client_tap.open();
    let (mut down, mut up) = (BudgetAudit::new(1), BudgetAudit::new(1));
    let end = world.now.after(Duration::from_secs(SECONDS));
    while world.now < end {
        world.step();
        world.tap.take().iter().for_each(|wire| down.note(wire.at, wire.bytes.len()));
        world.client_tap.take().iter().for_each(|wire| up.note(wire.at, wire.bytes.len()));
    }
    assert!(world.guests.iter().all(|guest| guest.connection.is_some()), "all stay connected");
    let per_s = |audit: BudgetAudit| audit.total_bytes() as f64 / SECONDS as f64 / guests as f64;
    (per_s(down), per_s(up))
}

#[test]
fn a_quiet_minute_costs_at_most_100_bytes_per_second_each_way() {
    for tick_ms in [10, 33, 100] {
        let (down, up) = quiet_bytes_per_s(Duration::from_millis(tick_ms), 3);
        println!("ticks of {tick_ms} ms: {down:.1} bytes per second to a client, {up:.1} from it");
        assert!(down <= 100.0 && up <= 100.0, "ticks of {tick_ms} ms: {down} and {up} bytes per second");
    }
}

#[test]
fn a_program_that_sleeps_until_the_next_deadline_tells_the_server_its_new_address_at_once() {
    let mut world = World::with_guests(WorldOptions::new(1), 1);
    world.steps(60);
    let (now, client) = (world.now, &mut world.guests[0].client);
    let quiet = client.poll_timeout().expect("it is connected");
    assert!(quiet > now, "there is nothing to do yet");
    client.on_address_changed(now);
    assert_eq!(client.poll_timeout(), Some(now), "it would have slept until {quiet:?}");
}
