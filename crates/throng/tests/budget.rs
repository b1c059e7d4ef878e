//! No client gets more than the budget, headers included, and every client gets its share.
//!
//! The storms of `convergence.rs` are audited in the same way.

use std::collections::BTreeMap;

use crate::harness::storm::burst_bytes;
use crate::harness::{World, WorldOptions};
use throng::{ChannelKey, Facet, ObjectId, Placement};
use throng_seeds::for_seeds;
use throng_testkit::{Beacon, BudgetAudit, Steering};

/// One client that watches `objects` entity channels, in all of which something changes in every tick; with their intervals.
fn watched(seed: u64, client_bytes_per_s: u32, objects: u32) -> (World, Vec<(ObjectId, u16)>) {
    let mut options = WorldOptions::new(seed);
    options.server.client_bytes_per_s = client_bytes_per_s;
    let mut world = World::with_guests(options, 1);
    let connection = world.connection(0);
    let mut rng = fastrand::Rng::with_seed(seed);
    let ids = (0..objects)
        .map(|number| {
            let beacon = Beacon { position: [number as f32, 0.0, 0.0], number: 0 };
            let id = world.server.spawn(beacon, Placement::Entity).expect("room");
            let key = ChannelKey::Entity { object: id, facet: Facet::Public };
            let interval_ticks = [1, 2, 5, 15][rng.usize(..4)];
            world.server.subscribe(connection, key, interval_ticks).expect("room");
            (id, interval_ticks)
        })
        .collect();
    (world, ids)
}

fn change_all(world: &mut World, ids: &[ObjectId], number: u32) {
    for &id in ids {
        world.server.get_mut::<Beacon>(id).expect("it is there").number = number;
    }
}

#[test]
fn r13_however_much_there_is_to_say_every_window_keeps_to_the_budget() {
    for_seeds(120, |seed| {
        let rate = [3_000, 10_000, 40_000][seed as usize % 3];
        let (mut world, watched) = watched(seed, rate, [20, 300][seed as usize % 2]);
        let ids: Vec<ObjectId> = watched.into_iter().map(|(id, _)| id).collect();
        world.tap.open();
        let (mut audit, mut from) = (BudgetAudit::new(rate), None);
        for tick in 0..600 {
            world.begin_step();
            change_all(&mut world, &ids, tick);
            if seed % 4 < 2 {
                // Inputs have to be acknowledged, which costs packets.
                world.guests[0].client.send_typed_input(&Steering::default()).expect("connected");
            }
            world.end_step();
            for wire in world.tap.take() {
                from.get_or_insert(wire.at);
                audit.note(wire.at, wire.bytes.len());
            }
        }
        if audit.burst_bytes() > burst_bytes(rate) {
            return Err(format!("{} bytes beyond {rate} B/s, not {}", audit.burst_bytes(), burst_bytes(rate)));
        }
        let seconds = world.now.since(from.expect("something was sent")).as_secs_f64();
        let used = audit.total_bytes() as f64 / seconds / f64::from(rate);
        // 300 objects have little more to say than 40 kB/s, and in some seeds hardly that.
        let least = if rate < 40_000 { 0.85 } else { 0.75 };
        if ids.len() == 300 && used < least {
            return Err(format!("only {used:.2} of {rate} B/s are used although there is more to say"));
        }
        Ok(())
    });
}

#[test]
fn with_a_tenth_of_the_budget_needed_everybody_still_gets_a_turn() {
    for_seeds(80, |seed| {
        const RATE: u32 = 6_000;
        let (mut world, ids) = watched(seed, RATE, 300);
        let mut oldest = BTreeMap::new();
        for tick in 1..=900 {
            world.begin_step();
            change_all(&mut world, &ids.iter().map(|&(id, _)| id).collect::<Vec<_>>(), tick);
            world.end_step();
            // The first round introduces all of them with their names.
            for &(id, interval_ticks) in ids.iter().filter(|_| tick > 300) {
                let seen = world.guests[0].client.get::<Beacon>(id).ok_or("an object was never sent")?;
                let oldest = oldest.entry(interval_ticks).or_insert(0);
                *oldest = tick.saturating_sub(seen.number).max(*oldest);
            }
        }
        // The longest wait, as at the head of throng-replica's `connection.rs`: in units of their own intervals, all wait for
        // equally long. A piece is 3 bytes of a number that changes, and what stands before it. All packets cost 59 bytes
        // besides, and the smallest have 380.
        let wanted_bytes: f64 = ids.iter().map(|&(_, interval_ticks)| 9.0 / f64::from(interval_ticks)).sum();
        let intervals = wanted_bytes / (f64::from(RATE) / 30.0 * 380.0 / 440.0);
        for (interval_ticks, age_ticks) in oldest {
            let bound = (intervals + 1.0) * f64::from(interval_ticks) + 10.0;
            if f64::from(age_ticks) > bound {
                return Err(format!("every {interval_ticks} ticks, and {age_ticks} ticks old: more than {bound:.0}"));
            }
            assert!(
                age_ticks > 2 * u32::from(interval_ticks),
                "the budget is not short: {age_ticks} ticks at the most"
            );
            println!("seed {seed}: every {interval_ticks} ticks, at most {age_ticks} ticks old, {bound:.0} allowed");
        }
        Ok(())
    });
}

/// A phone beside a desktop.
#[test]
fn one_client_can_be_given_less_than_the_others() {
    const RATES: [u32; 2] = [40_000, 6_000];
    let mut options = WorldOptions::new(1);
    options.server.client_bytes_per_s = RATES[0];
    let mut world = World::with_guests(options, 2);
    let (phone, now) = (world.connection(1), world.now);
    world.server.set_budget(phone, RATES[1], now);
    world.steps(60);
    world.tap.open();
    let addresses = [0, 1].map(|guest| world.guests[guest].address);
    let mut audits = RATES.map(BudgetAudit::new);
    for guest in 0..2 {
        let text = "x".repeat(900);
        for _ in 0..200 {
            let message = throng_testkit::Chat { number: 0, text: text.clone() };
            world.server.send(world.connection(guest), 0, &message).expect("room");
        }
    }
    for _ in 0..120 {
        world.step();
        for wire in world.tap.take() {
            let guest = addresses.iter().position(|address| *address == wire.to).expect("one of the two");
            audits[guest].note(wire.at, wire.bytes.len());
        }
    }
    for (audit, rate) in audits.iter().zip(RATES) {
        assert!(audit.burst_bytes() <= burst_bytes(rate), "{} bytes beyond {rate} B/s", audit.burst_bytes());
        assert!(audit.total_bytes() as f64 > 3.0 * f64::from(rate), "{} bytes in 4 s", audit.total_bytes());
    }
}
