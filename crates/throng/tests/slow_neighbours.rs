//! A slow, a dead or a late client is its own problem: the healthy ones beside it notice nothing.
//!
//! "Nothing" is meant to the letter: every datagram that a healthy client is sent is the same, byte for byte, with and
//! without the sick one. Results that depend on bytes, like the age of the client's view, are then the same too.

use std::net::SocketAddr;

use crate::harness::oracle::{Audience, compare};
use crate::harness::{World, WorldOptions};
use throng::net::{Condition, RateLimit};
use throng::{ChannelKey, ObjectId, Placement};
use throng_testkit::{Beacon, Wire};

const HEALTHY: usize = 50;
const CROWD: ChannelKey = ChannelKey::Global(0);

fn options() -> WorldOptions {
    let mut options = WorldOptions::new(11);
    options.server.client_bytes_per_s = 40_000;
    options.server.replicator.retention_ticks = 60;
    options
}

/// Healthy clients that know a crowd of objects, a few of which move in each tick.
struct Scene {
    world: World,
    objects: Vec<ObjectId>,
    heard: Vec<Wire>,
    healthy: Vec<SocketAddr>,
    /// Ticks played so far.
    played: usize,
}

impl Scene {
    fn new(objects: u32) -> Scene {
        let mut world = World::with_guests(options(), HEALTHY);
        let spawn = |world: &mut World, number: u32| {
            let beacon = Beacon { position: [number as f32 * 0.1, 0.0, 0.0], number };
            world.server.spawn(beacon, Placement::Channel(CROWD)).expect("room")
        };
        let objects: Vec<ObjectId> = (0..objects).map(|number| spawn(&mut world, number)).collect();
        for guest in 0..HEALTHY {
            let connection = world.connection(guest);
            world.server.subscribe(connection, CROWD, 1).expect("room");
        }
        let all = objects.len();
        let knows = |world: &World, guest: usize| {
            world.guests[guest].client.replica().is_some_and(|replica| replica.object_count() == all)
        };
        world.steps_until(600, |world| (0..HEALTHY).all(|guest| knows(world, guest))).expect("they know the crowd");
        world.steps(60);
        world.tap.open();
        let healthy = world.guests.iter().map(|guest| guest.address).collect();
        Scene { world, objects, heard: Vec::new(), healthy, played: 0 }
    }

    /// Ticks in which some objects change, a few end, and a few come.
    fn play(&mut self, ticks: usize) {
        for tick in self.played..self.played + ticks {
            self.world.begin_step();
            for moved in 0..20 {
                let id = self.objects[(tick * 37 + moved * 11) % self.objects.len()];
                let beacon = self.world.server.get_mut::<Beacon>(id).expect("it is there");
                beacon.number = (beacon.number + 1) % 60_000;
            }
            if tick % 5 == 0 {
                let at = tick * 13 % self.objects.len();
                self.world.server.despawn(self.objects[at]);
                let beacon = Beacon { position: [1.0, 2.0, 3.0], number: tick as u32 };
                self.objects[at] = self.world.server.spawn(beacon, Placement::Channel(CROWD)).expect("room");
            }
            self.world.end_step();
            let healthy = &self.healthy;
            self.heard.extend(self.world.tap.take().into_iter().filter(|wire| healthy.contains(&wire.to)));
        }
        self.played += ticks;
    }

    /// One more client, which subscribes to the crowd as soon as it is connected.
    fn join(&mut self) -> usize {
        let guest = self.world.join();
        while self.world.guests[guest].connection.is_none() {
            self.play(1);
        }
        let connection = self.world.connection(guest);
        self.world.server.subscribe(connection, CROWD, 1).expect("room");
        guest
    }

    fn compare(&self, guest: usize) -> Result<(), String> {
        let audience = Audience { channels: [CROWD].into(), viewpoint: None };
        let world = &self.world;
        let grids = &options().server.grids;
        compare(&world.server, grids, &audience, world.connection(guest), &world.guests[guest].client)
    }
}

fn assert_unmoved(without: &Scene, with: &Scene) {
    assert!(without.heard.len() > HEALTHY * 100, "{} datagrams", without.heard.len());
    let differs = (0..without.heard.len()).find(|&at| without.heard.get(at) != with.heard.get(at));
    assert_eq!(differs, None, "a healthy client was sent something else");
    assert_eq!(without.heard.len(), with.heard.len());
    for guest in 0..HEALTHY {
        let age = |scene: &Scene| {
            let replica = scene.world.guests[guest].client.replica().expect("connected");
            scene.world.server.current_tick().since(replica.newest_tick().expect("heard"))
        };
        assert_eq!(age(without), 1, "guest {guest} is up to date");
        assert_eq!(age(with), 1);
    }
}

#[test]
fn r14_a_late_joiner_loads_a_crowd_of_ten_thousand_and_nobody_else_notices() {
    const TICKS: usize = 200;
    let mut without = Scene::new(10_000);
    without.play(TICKS);
    let mut with = Scene::new(10_000);
    let late = with.join();
    with.play(TICKS - with.played);
    assert_unmoved(&without, &with);
    // The crowd is more than a second's budget, so the join was a long frame; and it came through while things changed.
    let count = with.world.guests[late].client.replica().expect("connected").object_count();
    assert!(count >= 9_990, "the late joiner knows {count} of 10,000");
    with.world.steps(300);
    with.compare(late).expect("the late joiner knows all");
}

#[test]
fn r28_a_client_on_eight_kilobits_and_one_that_stops_reading_harm_nobody() {
    const TICKS: usize = 400;
    let mut without = Scene::new(400);
    without.play(TICKS);

    let mut with = Scene::new(400);
    let (slow, deaf) = (with.join(), with.join());
    let trickle = RateLimit { bytes_per_s: 1_000, queue_bytes: 4_000 };
    with.world.set_way_to(slow, Condition { rate: Some(trickle), delay_us: 20_000, ..Condition::NONE });
    with.world.guests[deaf].is_frozen = true;
    let deaf_connection = with.world.connection(deaf);
    let (mut most_in_flight, mut most_frames) = (0, 0);
    while with.played < TICKS {
        with.play(1);
        let server = &with.world.server;
        most_frames = most_frames.max(server.replicator().hub_ref().frames_held());
        for connection in with.world.guests.iter().filter_map(|guest| guest.connection) {
            let connection = server.replicator().hub_ref().connection(connection).expect("it is there");
            most_in_flight = most_in_flight.max(connection.packets_in_flight());
        }
    }
    assert_unmoved(&without, &with);

    // Nothing piles up for them, and the one that never answers is given up.
    assert!(most_in_flight <= 1_024, "{most_in_flight} packets in flight");
    assert!(most_frames <= 400, "{most_frames} frames held");
    assert_eq!(with.world.guests[deaf].connection, None);
    assert!(with.world.server.replicator().hub_ref().connection(deaf_connection).is_none());
    let sent = |guest| {
        let statistics = with.world.server.link_statistics(with.world.connection(guest)).expect("connected");
        statistics.counters.packets_sent
    };
    assert!(sent(slow) < 200 && sent(0) >= 400, "the slow one is sent {}, a healthy one {}", sent(slow), sent(0));

    // On a good path again, the slow one catches up.
    with.world.set_way_to(slow, Condition::NONE);
    with.world.steps(900);
    with.compare(slow).expect("it has caught up");
    assert!(with.world.server.replicator().hub_ref().frames_held() < 100);
}
