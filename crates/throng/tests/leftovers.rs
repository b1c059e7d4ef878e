//! Nothing is left after all clients and objects have gone. A change that is taken back within a tick is not sent.

use std::collections::BTreeMap;

use crate::harness::storm::{Storm, StormOptions};
use crate::harness::{World, WorldOptions};
use throng::net::Condition;
use throng::{ChannelKey, Placement};
use throng_seeds::for_seeds;
use throng_testkit::Score;

#[test]
fn r30_after_everybody_and_everything_has_gone_nothing_is_left() {
    let mut highest = BTreeMap::new();
    for_seeds(60, |seed| {
        let mut options = WorldOptions::new(seed);
        options.server.replicator.retention_ticks = 30;
        let mut storm = Storm::new(options, StormOptions { clients: 8, ..StormOptions::default() });
        for step in 0..200 {
            if step % 40 == 0 {
                let condition = throng_testkit::storm(&mut storm.world.rng);
                storm.world.set_condition(condition);
            }
            storm.stormy_tick();
        }
        let before: Vec<_> = storm.world.server.records_held().collect();
        storm.world.set_condition(Condition::NONE);
        for id in storm.walkers.drain(..).chain(storm.scores.drain(..)).chain(storm.beacons.drain(..)) {
            storm.world.server.despawn(id);
        }
        // Half of them say good-bye, and the others are just gone.
        let now = storm.world.now;
        storm.world.guests.iter_mut().step_by(2).for_each(|guest| guest.client.close(now, "good-bye"));
        storm.world.steps(3);
        storm.world.guests.clear();
        storm.world.steps(600);
        let server = &storm.world.server;
        // The door remembers these until others take their places.
        let mut names: Vec<&str> = before.iter().map(|&(name, _)| name).collect();
        names.retain(|&name| !["used_tokens", "pending"].contains(&name));
        let left: Vec<_> = server.records_held().filter(|(name, count)| names.contains(name) && *count > 0).collect();
        for (name, count) in before {
            let highest = highest.entry(name).or_insert(0);
            *highest = count.max(*highest);
        }
        if left.is_empty() {
            return Ok(());
        }
        let keys: Vec<ChannelKey> = server.replicator().hub_ref().channels().map(|(key, _)| key).collect();
        Err(format!("{left:?} are left; {keys:?}"))
    });
    // These tables were in use.
    for name in ["connections", "addresses", "clients", "objects", "viewers", "subscribers", "sleepers", "frames"] {
        assert!(highest[name] > 0 || throng_seeds::is_partial(), "{name}: {highest:?}");
    }
}

/// A world with one score that the one client sees in every tenth tick.
fn with_slow_score() -> (World, throng::ObjectId) {
    let mut world = World::with_guests(WorldOptions::new(1), 1);
    let key = ChannelKey::Custom(1);
    let score = Score { points: 7, open: false };
    let id = world.server.spawn(score, Placement::Channel(key)).expect("room");
    let connection = world.connection(0);
    world.server.subscribe(connection, key, 10).expect("room");
    world.steps(60);
    world.guests[0].events.clear();
    (world, id)
}

fn updates(world: &World) -> u64 {
    world.server.replication_counters(world.connection(0)).expect("it is connected").object_updates
}

#[test]
fn r29_a_value_that_returns_within_a_tick_is_not_sent_and_between_two_turns_it_is_sent_once() {
    let (mut world, id) = with_slow_score();
    let before = updates(&world);
    for _ in 0..60 {
        world.begin_step();
        world.server.get_mut::<Score>(id).expect("it is there").points = 8;
        world.server.get_mut::<Score>(id).expect("it is there").points = 7;
        world.end_step();
    }
    assert_eq!(updates(&world), before, "nothing has changed at the end of any tick");

    // The two ticks lie between two turns of the channel, in whichever tick the turn lies: all ticks are tried.
    for _ in 0..10 {
        let before = updates(&world);
        for points in [8, 7] {
            world.begin_step();
            world.server.get_mut::<Score>(id).expect("it is there").points = points;
            world.end_step();
        }
        world.steps(19);
        let sent = updates(&world) - before;
        assert!((1..=2).contains(&sent), "{sent} updates");
        assert_eq!(world.guests[0].client.get::<Score>(id), Some(Score { points: 7, open: false }));
    }
}
