//! Shared frames say the same as a private encoder for each connection would.
//!
//! The oracle is [`throng_testkit::NaiveSender`]: it remembers what each connection was sent, and encodes for each one
//! what differs, from scratch.

use std::collections::BTreeMap;

use crate::harness::WorldOptions;
use crate::harness::oracle::{Sight, Verdict, sights};
use crate::harness::storm::{Storm, StormOptions};
use throng::{GridOptions, GridShape, Ring};
use throng_seeds::for_seeds;
use throng_testkit::{NaiveReplica, NaiveSender, NaiveSight};

/// Every tick is sent at once and nothing is lost, so that both paths can be compared after each tick.
fn plain(seed: u64) -> WorldOptions {
    let mut options = WorldOptions::new(seed);
    let rings = vec![Ring { radius_m: 20.0, interval_ticks: 1 }];
    options.server.grids =
        vec![GridOptions { shape: GridShape::stacked([8.0; 3]), rings, ..GridOptions::new(throng::Up::Z) }];
    options.server.client_bytes_per_s = 2_000_000;
    options
}

type Naive = BTreeMap<u64, (NaiveSender, NaiveReplica)>;

/// Sends this tick the naive way: to each client what differs from what it was sent before. Returns what each connected
/// client may see.
fn send_privately(
    storm: &Storm,
    grids: &[GridOptions],
    naive: &mut Naive,
) -> Result<BTreeMap<u64, Vec<Sight>>, String> {
    let (world, schema) = (&storm.world, &storm.world.schema);
    let store = world.server.replicator().store();
    let mut seen_by_client = BTreeMap::new();
    for guest in &world.guests {
        let Some(connection) = guest.connection else { continue };
        let audience = storm.audiences.get(&guest.client_id).cloned().unwrap_or_default();
        let seen: Vec<Sight> = sights(&world.server, grids, &audience, connection);
        let (sender, oracle) = naive
            .entry(guest.client_id)
            .or_insert_with(|| (NaiveSender::new(schema.clone()), NaiveReplica::new(schema.clone())));
        let chosen = seen.iter().filter(|sight| sight.verdict == Verdict::Must);
        let bytes = sender.encode(chosen.map(|sight| NaiveSight {
            id: sight.id,
            kind: store.kind_id(sight.id.index),
            visible: sight.fields,
            values: store.values(sight.id.index),
        }));
        oracle.apply(&bytes).map_err(|error| error.to_string())?;
        seen_by_client.insert(guest.client_id, seen);
    }
    Ok(seen_by_client)
}

/// Sends this tick the naive way, and compares what each client has. Returns the number of objects that were compared.
fn compare_tick(storm: &Storm, grids: &[GridOptions], naive: &mut Naive) -> Result<u64, String> {
    let (world, schema, mut compared) = (&storm.world, &storm.world.schema, 0);
    let seen_by_client = send_privately(storm, grids, naive)?;
    for guest in &world.guests {
        let (Some(seen), Some(replica)) = (seen_by_client.get(&guest.client_id), guest.client.replica()) else {
            continue;
        };
        let (_, oracle) = &naive[&guest.client_id];
        for (&id, private) in oracle.objects() {
            let kind = schema.kind(private.kind);
            let Some(shared) = replica.object(id) else {
                return Err(format!("client {}: only the private path has {id} ({})", guest.client_id, kind.name));
            };
            let difference = kind.compare(private.values(), shared.values()) & private.visible;
            if difference != 0 || private.visible & !shared.known_fields() != 0 {
                return Err(format!("client {}: {id} ({}) differs in {difference:b}", guest.client_id, kind.name));
            }
            compared += 1;
        }
        for shared in replica.objects() {
            let (id, kind) = (shared.id(), schema.kind(shared.kind()));
            let Some(sight) = seen.iter().find(|sight| sight.id == id && sight.verdict != Verdict::MustNot) else {
                return Err(format!("client {}: only the shared path has {id} ({})", guest.client_id, kind.name));
            };
            // A field that the owner predicts comes with the first record, and is the client's own from there on.
            let predicted = if sight.is_owner { kind.skip_owner_mask() } else { 0 };
            let private = oracle.objects().get(&id).map_or(!sight.forbidden, |private| private.visible | predicted);
            if shared.known_fields() & !private != 0 {
                let known = shared.known_fields();
                return Err(format!(
                    "client {}: {id} ({}) knows {known:b}, not {private:b}",
                    guest.client_id, kind.name
                ));
            }
        }
    }
    Ok(compared)
}

#[test]
fn r17_after_every_tick_both_paths_have_led_to_the_same_state() {
    let mut compared = 0;
    for_seeds(300, |seed| {
        let options = plain(seed);
        let grids = options.server.grids.clone();
        let storm_options =
            StormOptions { churn: seed % 3 == 0, weather: false, intervals_ticks: [1; 4], ..StormOptions::default() };
        let mut storm = Storm::new(options, storm_options);
        let mut naive = Naive::new();
        for _ in 0..120 {
            storm.stormy_tick();
            compared += compare_tick(&storm, &grids, &mut naive)
                .map_err(|difference| format!("tick {:?}: {difference}", storm.world.server.current_tick()))?;
        }
        Ok(())
    });
    assert!(compared > 5_000 || throng_seeds::is_partial(), "only {compared} objects were compared");
}

/// Frames are shared under difficulties: losses, little budget, slots that are used again soon, send ticks, and threads.
/// The private path has a perfect network. It is sent the same history tick by tick, and both must end in the same state.
#[test]
fn after_a_storm_over_a_bad_network_both_paths_agree() {
    let mut compared = 0;
    for_seeds(300, |seed| {
        let mut options = WorldOptions::new(seed + 50_000);
        options.server.client_bytes_per_s = [4_000, 8_000, 64_000][seed as usize % 3];
        options.server.replicator.retention_ticks = [8, 64][seed as usize % 2];
        options.server.send_interval_ticks = std::num::NonZeroU16::new(1 + seed as u16 % 4);
        options.server.threads = 1 + seed as usize % 2;
        let grids = options.server.grids.clone();
        let mut storm = Storm::new(options, StormOptions { calm_ticks: 3_000, ..StormOptions::default() });
        let mut naive = Naive::new();
        storm.run_watched(|storm| send_privately(storm, &grids, &mut naive).map(drop))?;
        compared += compare_tick(&storm, &grids, &mut naive)?;
        Ok(())
    });
    assert!(compared > 2_000 || throng_seeds::is_partial(), "only {compared} objects were compared");
}
