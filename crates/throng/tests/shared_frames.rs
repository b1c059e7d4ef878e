//! Frames stay few when clients are late: for lack of budget, or after losses.

use throng::net::Condition;
use throng::{Decode, GridOptions, ObjectId, Placement, Replication, Ring, Up};
use throng_testkit::Beacon;

use crate::harness::{World, WorldOptions};

/// The benchmark `cohorts` of throng-replica has 400. That many would take a minute here.
const PLAYERS: usize = 120;
const TICKS: u32 = 200;
/// The neighbours of every so many players are looked at.
const LOOKED_AT: usize = 6;

/// Frames and bytes that were encoded for one tick, and how old the clients' neighbours are.
#[derive(Debug)]
struct Encoded {
    /// Frames for each channel of which anything was encoded.
    frames: f64,
    bytes: u64,
    /// Ticks, of players within 20 m: mean and 99th percentile.
    near: [f64; 2],
    /// The same of all others.
    far: [f64; 2],
}

fn mean_and_p99(mut ages: Vec<u32>) -> [f64; 2] {
    ages.sort_unstable();
    let mean = ages.iter().map(|&age| f64::from(age)).sum::<f64>() / ages.len() as f64;
    [mean, f64::from(ages[ages.len() * 99 / 100])]
}

/// Players walk about in a square of 60 m, and see the nearest 20 m in every tick and the rest in every tenth.
fn encoded(bytes_per_s: u32, loss: f64) -> Encoded {
    let mut options = WorldOptions::new(3);
    options.server.grids = vec![GridOptions {
        rings: vec![Ring { radius_m: 20.0, interval_ticks: 1 }, Ring { radius_m: 100.0, interval_ticks: 10 }],
        bounds_m: Some([[0.0; 3], [60.0, 60.0, 20.0]]),
        ..GridOptions::new(Up::Z)
    }];
    options.server.max_clients = PLAYERS as u32;
    options.server.client_bytes_per_s = bytes_per_s;
    options.client.decode = Decode::Objects;
    let mut world = World::with_guests(options, PLAYERS);
    world.set_condition(Condition { delay_us: 30_000, loss, ..Condition::NONE });
    let mut place = || [world.rng.f32() * 60.0, world.rng.f32() * 60.0, 1.0];
    let places: Vec<[f32; 3]> = (0..PLAYERS).map(|_| place()).collect();
    let players: Vec<ObjectId> = (0..PLAYERS)
        .map(|player| {
            let beacon = Beacon { position: places[player], number: 0 };
            let owner = Some(world.connection(player));
            world.server.spawn_owned(beacon, Placement::Cell(0), owner).expect("room")
        })
        .collect();
    let (mut frames, mut channels, mut bytes) = (0, 0, 0);
    let mut ages = [Vec::new(), Vec::new()];
    for tick in 0..TICKS {
        world.begin_step();
        for (player, &id) in players.iter().enumerate() {
            let (x, y) = (world.rng.f32() * 0.4 - 0.2, world.rng.f32() * 0.4 - 0.2);
            let beacon = world.server.get_mut::<Beacon>(id).expect("it is there");
            beacon.position[0] = (beacon.position[0] + x).clamp(0.0, 59.9);
            beacon.position[1] = (beacon.position[1] + y).clamp(0.0, 59.9);
            beacon.number = tick;
            let position = beacon.position.map(f64::from);
            world.server.set_viewpoint(world.connection(player), position);
        }
        world.end_step();
        if tick >= TICKS / 2 {
            let counters = world.server.replication().counters();
            frames += counters.frames_encoded;
            channels += counters.channels_encoded;
            bytes += counters.frame_bytes;
            for player in (0..PLAYERS).step_by(LOOKED_AT) {
                note_ages(&world, &players, player, tick, &mut ages);
            }
        }
    }
    let [near, far] = ages.map(mean_and_p99);
    Encoded { frames: frames as f64 / channels as f64, bytes: bytes / u64::from(TICKS / 2), near, far }
}

/// Ages of the players whom one client holds. Those it does not hold are as old as the run.
fn note_ages(world: &World, players: &[ObjectId], viewer: usize, tick: u32, [near, far]: &mut [Vec<u32>; 2]) {
    let position = |id: ObjectId| world.server.get::<Beacon>(id).expect("it is there").position;
    let me = position(players[viewer]);
    for &id in players.iter().filter(|&&id| id != players[viewer]) {
        let age = world.guests[viewer].client.get::<Beacon>(id).map_or(tick, |seen| tick - seen.number);
        let [x, y] = [0, 1].map(|axis| position(id)[axis] - me[axis]);
        if x.hypot(y) <= 20.0 { near.push(age) } else { far.push(age) }
    }
}

#[test]
fn a_crowd_that_gets_less_than_it_wants_still_shares_its_frames() {
    let (enough, short) = (encoded(1_000_000, 0.0), encoded(8_000, 0.0));
    let (short_and_lossy, lossy) = (encoded(8_000, 0.1), encoded(1_000_000, 0.1));
    println!("with enough {enough:?}, with little {short:?}, {short_and_lossy:?} with losses; {lossy:?}");
    assert!(short.frames < 6.0, "{} frames of a channel in a tick", short.frames);
    // With enough, nearly all subscribers stand at one point.
    assert!(enough.frames < 1.5, "{enough:?}");
    assert!(short.bytes < 6 * enough.bytes, "{short:?}, {enough:?}");
    assert!(short_and_lossy.bytes < 2 * short.bytes, "{short_and_lossy:?}, {short:?}");
    // Losses are noticed at many times, so there are more points at which subscribers stand.
    assert!(lossy.frames < 3.0 && lossy.bytes < 2 * enough.bytes, "{lossy:?}, {enough:?}");
    // A frame that begins too early tells some clients what they know, and the others get theirs later.
    let is_within = |ages: [f64; 2], mean: f64, p99: f64| ages[0] <= mean && ages[1] <= p99;
    assert!(is_within(enough.near, 1.0, 1.0) && is_within(enough.far, 5.0, 10.0), "{enough:?}");
    assert!(is_within(lossy.near, 1.5, 4.0) && is_within(lossy.far, 5.5, 20.0), "{lossy:?}");
    assert!(is_within(short.near, 2.5, 6.0) && is_within(short.far, 12.0, 45.0), "{short:?}");
    assert!(
        is_within(short_and_lossy.near, 3.0, 10.0) && is_within(short_and_lossy.far, 13.0, 50.0),
        "{short_and_lossy:?}"
    );
}
