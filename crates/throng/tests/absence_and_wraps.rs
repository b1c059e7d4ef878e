//! Long absences, names that are used again, and counters that come round.

use std::time::Duration;

use crate::harness::storm::{Storm, StormOptions};
use crate::harness::{World, WorldOptions};
use throng::net::{Condition, Reordering};
use throng::{ChannelKey, ObjectId, Placement, ServerEvent, Tick};
use throng_seeds::for_seeds;
use throng_testkit::{Chat, Score, Steering};

/// No connection times out, and the channels' memory is short: changes in the dark are long forgotten.
fn patient(seed: u64) -> WorldOptions {
    let mut options = WorldOptions::new(seed);
    options.server.idle_timeout = Duration::from_secs(600);
    options.client.idle_timeout = Duration::from_secs(600);
    options.server.replicator.retention_ticks = 16;
    options
}

fn steady() -> StormOptions {
    StormOptions { churn: false, weather: false, changes_per_tick: 12, calm_ticks: 2_000, ..StormOptions::default() }
}

#[test]
fn r04_a_client_that_heard_nothing_for_long_finds_back() {
    for_seeds(40, |seed| {
        let mut storm = Storm::new(patient(seed), steady());
        storm.world.connect_all();
        (0..60).for_each(|_| storm.stormy_tick());
        // Dark for one of them: only what the server sends is lost, or both ways.
        if seed % 2 == 0 {
            storm.world.set_way_to(0, Condition::BLACKOUT);
        } else {
            storm.world.set_condition(Condition::BLACKOUT);
        }
        let received = |storm: &Storm| {
            let statistics = storm.world.guests[0].client.link_statistics().expect("open");
            statistics.counters.packets_received
        };
        storm.calm_tick();
        let before = received(&storm);
        (0..[40, 200, 700][seed as usize % 3]).for_each(|_| storm.stormy_tick());
        if received(&storm) != before {
            return Err("something came through".to_owned());
        }
        storm.run().map(drop)
    });
}

#[test]
fn r03_names_are_used_again_while_packets_about_their_former_owners_are_under_way() {
    for_seeds(40, |seed| {
        let mut options = patient(seed);
        options.server.replicator.retention_ticks = [2, 8, 32][seed as usize % 3];
        let mut world = World::with_guests(options, 2);
        for guest in 0..2 {
            let connection = world.connection(guest);
            world.server.subscribe(connection, ChannelKey::Custom(1), 1).expect("room");
            world.server.subscribe(connection, ChannelKey::Custom(2), 3).expect("room");
        }
        // Every other packet is held back for more than a second, longer than any slot rests.
        let hold = Reordering { probability: 0.5, hold_us: 1_300_000 };
        world.set_condition(Condition { reorder: Some(hold), duplicate: 0.3, ..Condition::NONE });
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut objects: Vec<ObjectId> = Vec::new();
        let mut indices = std::collections::BTreeMap::<u32, u32>::new();
        for _ in 0..200 {
            world.begin_step();
            for _ in 0..3 {
                if objects.len() > 4 {
                    let id = objects.swap_remove(rng.usize(..objects.len()));
                    world.server.despawn(id);
                }
                let key = ChannelKey::Custom(rng.u32(1..3));
                let score = Score { points: rng.u32(..100_000), open: rng.bool() };
                let id = world.server.spawn(score, Placement::Channel(key)).expect("room");
                *indices.entry(id.index).or_default() += 1;
                objects.push(id);
            }
            let id = objects[rng.usize(..objects.len())];
            world.server.get_mut::<Score>(id).expect("it is there").points = rng.u32(..100_000);
            world.end_step();
        }
        assert!(indices.len() < 12 && indices.values().all(|&uses| uses > 10), "indices are used again: {indices:?}");
        world.set_condition(Condition::NONE);
        world.steps(300);
        for guest in &world.guests {
            let replica = guest.client.replica().expect("connected");
            let mut seen: Vec<(ObjectId, u32)> =
                guest.client.objects::<Score>().map(|(id, score)| (id, score.points)).collect();
            let mut expected: Vec<(ObjectId, u32)> =
                objects.iter().map(|&id| (id, world.server.get::<Score>(id).expect("it is there").points)).collect();
            seen.sort_unstable();
            expected.sort_unstable();
            if seen != expected || replica.object_count() != expected.len() {
                return Err(format!("client {} holds {seen:?}, not {expected:?}", guest.client_id));
            }
        }
        Ok(())
    });
}

#[test]
fn sequences_inputs_messages_and_ticks_come_round_together() {
    // The wire carries 16 bits of sequence, input and message numbers; the tick begins just before its end.
    const STEPS: u32 = 67_000;
    let mut options = WorldOptions::new(5);
    options.server.replicator.first_tick = Tick((1 << 32) - 30_000);
    options.server.client_bytes_per_s = 400_000;
    options.client.bytes_per_s = 400_000;
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let score = world.server.spawn(Score::default(), Placement::Channel(ChannelKey::Global(0))).expect("room");
    world.server.subscribe(connection, ChannelKey::Global(0), 1).expect("room");
    let (mut next_input, mut next_message, mut heard) = (0, 0, 0);
    for step in 0..STEPS {
        if step == 30_000 {
            let reorder = Some(Reordering { probability: 0.1, hold_us: 50_000 });
            world.set_condition(Condition { delay_us: 10_000, reorder, duplicate: 0.1, ..Condition::NONE });
        }
        if step == 66_500 {
            world.set_condition(Condition::NONE);
        }
        world.begin_step();
        for (_, input) in world.inputs.drain(..) {
            assert!(input.number >= next_input, "input {} came after {next_input}", input.number);
            let steering: Steering = world.server.read_input(&input).expect("an input");
            assert_eq!(steering.number, input.number);
            next_input = input.number + 1;
            world.server.acknowledge_input(connection, input.number);
        }
        for event in world.events.drain(..) {
            if let ServerEvent::Message { message, .. } = event {
                assert_eq!(message.get::<Chat>().expect("a message").number, next_message);
                next_message += 1;
            }
        }
        world.server.get_mut::<Score>(score).expect("it is there").points = step;
        let chat = Chat { number: step, text: String::new() };
        world.server.send(connection, 0, &chat).expect("a place in the queue");
        let client = &mut world.guests[0].client;
        client.send_typed_input(&Steering { number: step, direction: 0.0 }).expect("connected");
        client.send(0, &chat).expect("a place in the queue");
        world.end_step();
        for event in world.guests[0].events.drain(..) {
            if let throng::ClientEvent::Message { message, .. } = event {
                assert_eq!(message.get::<Chat>().expect("a message").number, heard);
                heard += 1;
            }
        }
    }
    world.steps(10);
    let statistics = world.server.link_statistics(connection).expect("connected");
    assert!(statistics.counters.packets_sent > 66_000, "{} packets", statistics.counters.packets_sent);
    assert!(world.server.current_tick() > Tick(1 << 32), "the low half of the tick has come round");
    assert!(next_input > 66_900 && next_message > 66_900 && heard > 66_900, "{next_input} {next_message} {heard}");
    assert_eq!(world.guests[0].client.get::<Score>(score).map(|score| score.points), Some(STEPS - 1));
    let client = &world.guests[0].client;
    assert!(client.input_acked().is_some_and(|acked| acked > 66_900), "{:?}", client.input_acked());
}
