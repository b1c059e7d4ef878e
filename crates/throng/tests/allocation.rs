//! A steady-state server tick allocates nothing, and a long life holds no more memory than a short one.

mod harness;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use harness::{PROTOCOL_ID, World, WorldOptions, server_address};
use throng::{
    ChannelKey, FarOptions, GridOptions, GridShape, Key, LooksFrom, ObjectId, Placement, Replicate, Ring, Schema,
    ServerEvent, TokenIssuer, Up,
};
use throng_counting::{allocations, first_allocation, held_bytes};
use throng_testkit::{Chat, Steering, Walker};

const GUESTS: usize = 64;
/// Everything repeats after this many ticks.
const ROUND_TICKS: u32 = 128;
/// Until every buffer of the pools has been used for the longest of its kind, and lists have given back what only the join needed:
/// that takes two whiles of `Room`.
const WARM_UP_TICKS: u32 = 18 * ROUND_TICKS;
const TICKS: u32 = 2 * ROUND_TICKS;

/// Everybody walks in the same circle, through several cells, and turns.
fn walk(world: &mut World, walkers: &[ObjectId], tick: u32) {
    for (number, &id) in walkers.iter().enumerate() {
        let angle = ((tick + number as u32 * 7) % ROUND_TICKS) as f32 / ROUND_TICKS as f32 * std::f32::consts::TAU;
        let walker = world.server.get_mut::<Walker>(id).expect("it is there");
        walker.position = [angle.cos() * 12.0, angle.sin() * 12.0, 1.0];
        walker.health = (tick % 1_000) as u16;
        walker.ammunition = tick;
        walker.yaw = angle;
        let position = walker.position.map(f64::from);
        let connection = world.connection(number);
        world.server.set_viewpoint(connection, position);
    }
}

/// A function of its own, so that its name is in the backtrace without debug information, too.
#[inline(never)]
fn allocates_once() {
    drop(std::hint::black_box(Box::new(1u8)));
}

#[test]
fn the_counting_allocator_counts() {
    assert_eq!(allocations(allocates_once), 1);
    assert!(first_allocation().contains("allocates_once"));
    assert_eq!(allocations(|| {}), 0);
}

#[test]
fn a_steady_state_tick_allocates_nothing() {
    steady_state(LooksFrom::Position);
}

#[test]
fn a_steady_state_tick_with_shared_views_allocates_nothing() {
    let views = steady_state(LooksFrom::Cell);
    assert!(views > 0, "no connections share a view");
}

/// Returns the number of shared views at the end.
fn steady_state(looks_from: LooksFrom) -> usize {
    let mut options = WorldOptions::new(3);
    options.server.grids[0].looks_from = looks_from;
    options.server.client_bytes_per_s = 250_000;
    // The clients' results are not checked here.
    options.client.decode = throng::Decode::Nothing;
    let mut world = World::with_guests(options, GUESTS);
    let walkers: Vec<ObjectId> = (0..GUESTS)
        .map(|guest| {
            let owner = Some(world.connection(guest));
            world.server.spawn_owned(Walker::default(), Placement::Cell(0), owner).expect("room")
        })
        .collect();
    let mut counted = 0;
    let mut ticks_with = 0;
    for tick in 0..WARM_UP_TICKS + TICKS {
        for guest in &mut world.guests {
            guest.client.send_typed_input(&Steering { number: tick, direction: 1.0 }).expect("connected");
            guest.client.flush(world.now);
        }
        world.now = world.now.after(std::time::Duration::from_micros(33_333));
        let now = world.now;
        let mut inputs = 0;
        let mut received = 0;
        received += allocations(|| world.server.receive(now).expect("in memory"));
        received += allocations(|| {
            while let Some((connection, input)) = world.server.poll_input() {
                assert!(world.server.read_input::<Steering>(&input).is_some(), "it is what the client sent");
                world.server.acknowledge_input(connection, input.number);
                inputs += 1;
            }
        });
        let walked = allocations(|| walk(&mut world, &walkers, tick));
        let sent = allocations(|| world.server.tick(now));
        for guest in &mut world.guests {
            guest.client.update(now).expect("in memory");
            while guest.client.poll_event().is_some() {}
        }
        if tick >= WARM_UP_TICKS {
            assert!(inputs >= GUESTS, "inputs arrive: {inputs}");
            assert_eq!(world.server.last_tick().counters.objects_quantised, GUESTS as u64);
            let all = received + walked + sent;
            if all > 0 && counted == 0 {
                eprintln!("tick {tick}: receive {received}, walk {walked}, tick {sent}\n{}", first_allocation());
            }
            ticks_with += u32::from(all > 0);
            counted += all;
        } else {
            first_allocation();
        }
    }
    let bytes = world.guests[0].client.replication_bytes() / u64::from(WARM_UP_TICKS + TICKS);
    assert!(bytes > 300, "clients see each other: {bytes} bytes per tick");
    assert_eq!(counted, 0, "{counted} allocations in {TICKS} ticks, in {ticks_with} of them");
    world.server.replicator().hub_ref().shared_views().0
}

/// Everything comes and goes, on a network of phones. Objects live for some ticks, change their owner, and are seen in cells, in
/// channels that nobody used before, and alone. Players walk, and say something on each lane, which the server answers. They
/// crash, leave, or are thrown out, and others come in their place; one stays. Their rates do not suffice for all of it.
struct Lives {
    world: World,
    issuer: TokenIssuer,
    alive: VecDeque<ObjectId>,
    lives_per_tick: usize,
    lives: u32,
    messages: usize,
    inputs: usize,
}

impl Lives {
    const GUESTS: usize = 4;
    const LIFE_TICKS: usize = 6;
    const LIFE_OF_A_GUEST_TICKS: u32 = 150;
    const TALK_TICKS: u32 = 20;

    fn new(lives_per_tick: usize) -> Lives {
        let mut options = WorldOptions::new(5);
        options.server.client_bytes_per_s = 20_000;
        let mut world = World::new(options);
        world.set_condition("4g".parse().expect("a preset"));
        // A server remembers a token until it expires. It does so by the clock on the wall, which is slow here.
        let issuer = TokenIssuer { lifetime_s: 5, ..TokenIssuer::new(PROTOCOL_ID, Key::new([7; 32])) };
        let mut play =
            Lives { world, issuer, alive: VecDeque::new(), lives_per_tick, lives: 0, messages: 0, inputs: 0 };
        (0..Lives::GUESTS as u32).for_each(|guest| play.join(guest));
        play.world.connect_all();
        play
    }

    fn join(&mut self, tick: u32) {
        let client_id = 1_000 + u64::from(tick);
        let token = self.issuer.issue(client_id, &[server_address()]).expect("one server");
        let (schema, options) = (Arc::clone(&self.world.schema), self.world.options().client.clone());
        self.world.join_with(client_id, token, schema, options);
    }

    fn tick(&mut self, tick: u32) {
        self.world.begin_step();
        self.change_objects(tick);
        self.walk_and_talk(tick);
        self.world.end_step();
        self.messages += self.world.events.iter().filter(|event| matches!(event, ServerEvent::Message { .. })).count();
        self.inputs += self.world.inputs.len();
        self.world.events.clear();
        self.world.inputs.clear();
        self.world.guests.iter_mut().for_each(|guest| guest.events.clear());
        if tick.is_multiple_of(Self::TALK_TICKS) {
            let known = self.world.guests.iter().map(|guest| guest.client.objects::<Walker>().count()).max();
            let alive = self.alive.len();
            assert!(known.is_some_and(|known| known < 10 * alive), "tick {tick}: {known:?} objects of {alive}");
        }
        if tick % Self::LIFE_OF_A_GUEST_TICKS == Self::LIFE_OF_A_GUEST_TICKS - 1 {
            let now = self.world.now;
            match (tick / Self::LIFE_OF_A_GUEST_TICKS % 3, self.world.guests[1].connection) {
                (0, _) => self.world.guests[1].client.close(now, "had enough"),
                (1, Some(connection)) => self.world.server.disconnect(connection, now, "thrown out"),
                _ => {}
            }
            drop(self.world.kill(1));
            self.join(tick);
        }
    }

    fn change_objects(&mut self, tick: u32) {
        let owners: Vec<_> = self.world.guests.iter().filter_map(|guest| guest.connection).collect();
        for number in 0..self.lives_per_tick {
            let angle = self.lives as f32;
            let position = [angle.cos() * 10.0, angle.sin() * 10.0, 1.0];
            let name = "n".repeat(self.lives as usize % 40);
            let walker = Walker { position, name, ammunition: self.lives, ..Walker::default() };
            let placement = match self.lives % 5 {
                0 => Placement::Entity,
                1 => Placement::Channel(channel_of(tick)),
                _ => Placement::Cell(0),
            };
            let owner = owners.get(number).copied();
            self.alive.push_back(self.world.server.spawn_owned(walker, placement, owner).expect("room"));
            self.lives += 1;
        }
        for &id in self.alive.iter().rev().skip(self.lives_per_tick).take(self.lives_per_tick) {
            if let Some(walker) = self.world.server.get_mut::<Walker>(id) {
                walker.position[0] += 3.0;
            }
            self.world.server.set_owner(id, owners.first().copied()).expect("room");
        }
        while self.alive.len() > self.lives_per_tick * Self::LIFE_TICKS {
            self.world.server.despawn(self.alive.pop_front().expect("not empty"));
        }
    }

    fn walk_and_talk(&mut self, tick: u32) {
        let along_m = (f64::from(tick % ROUND_TICKS) / f64::from(ROUND_TICKS) * std::f64::consts::TAU).sin() * 20.0;
        for guest in &mut self.world.guests {
            let Some(connection) = guest.connection else { continue };
            self.world.server.set_viewpoint(connection, [along_m, 0.0, 0.0]);
            // The client may not know yet that it is connected.
            let _ = guest.client.send_typed_input(&Steering { number: tick, direction: 1.0 });
            if tick.is_multiple_of(Self::TALK_TICKS) {
                self.world.server.unsubscribe(connection, channel_of(tick.saturating_sub(Self::TALK_TICKS)));
                self.world.server.subscribe(connection, channel_of(tick), 1).expect("room");
                let lane = (tick / Self::TALK_TICKS % 3) as u8;
                // From nothing to several fragments.
                let chat = Chat { number: tick, text: "x".repeat(tick as usize * 37 % 900) };
                let _ = guest.client.send(lane, &chat);
                let _ = self.world.server.send(connection, lane, &chat);
            }
        }
    }
}

fn channel_of(tick: u32) -> ChannelKey {
    ChannelKey::Custom(tick / Lives::TALK_TICKS)
}

/// The mean of the bytes that this process holds in each of `records` spans of `record_ticks`: server, clients and network.
fn bytes_by_record(lives_per_tick: usize, records: u32, record_ticks: u32) -> Vec<i64> {
    let mut play = Lives::new(lives_per_tick);
    let mut means = Vec::with_capacity(records as usize);
    for record in 0..records {
        let mut sum = 0;
        for tick in record * record_ticks..(record + 1) * record_ticks {
            play.tick(tick);
            sum += held_bytes();
        }
        means.push(sum / i64::from(record_ticks));
        println!("{record:3} {:9} bytes, {:9} lives", means[record as usize], play.lives);
    }
    let ticks = (records * record_ticks) as usize;
    assert_eq!(play.lives as usize, lives_per_tick * ticks);
    assert!(play.inputs > 3 * ticks, "{} inputs arrive", play.inputs);
    assert!(play.messages > ticks / Lives::TALK_TICKS as usize * 3, "{} messages arrive", play.messages);
    assert!(play.world.guests[0].client.replication_bytes() > 10_000, "clients are told of it");
    means
}

/// The last fifth of the records has at most `limit_bytes` more than those from the first fifth to the second.
fn assert_flat(means: &[i64], limit_bytes: i64) {
    let fifth = means.len() / 5;
    let mean = |of: &[i64]| of.iter().sum::<i64>() / of.len() as i64;
    let (early, late) = (mean(&means[fifth..2 * fifth]), mean(&means[means.len() - fifth..]));
    assert!(late <= early + limit_bytes, "{early} bytes, and later {late}: {means:?}");
}

/// Less than 6 bytes for each object that has gone.
#[test]
fn memory_does_not_grow_with_the_number_of_lives() {
    assert_flat(&bytes_by_record(4, 10, 500), 64 << 10);
}

/// Less than a bit for each object, and 23 bytes for each client, that has gone. docs/capacity.md has what it measured.
#[test]
#[ignore = "plays a day of virtual time, which takes some minutes"]
fn memory_stands_still_for_a_day() {
    const TICKS_PER_HOUR: u32 = 30 * 3_600;
    assert_flat(&bytes_by_record(4, 24, TICKS_PER_HOUR), 256 << 10);
}

/// Everybody in a crowd of this kind.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Stroller {
    #[replicate(position(step = 0.01), predict(by = "velocity", error_m = 0.03), far(step = 0.5))]
    position: [f32; 3],
    #[replicate(fixed(min = -40.0, max = 40.0, step = 0.02))]
    velocity: [f32; 3],
    #[replicate(angle(bits = 9))]
    yaw: f32,
}

/// Bytes that the server gives back when it ends: all that it holds, and nothing of the clients or the network. The rings are
/// those of the scenario `crowd-10k`, and so is the density.
fn held_by_server(guests: usize) -> usize {
    const DENSITY_PER_M2: f64 = 0.11;
    const SPEED_M_PER_S: f32 = 4.0;
    let ring = |radius_m: f64, interval_ticks: u32| Ring { radius_m, interval_ticks };
    let grid = |cell_m: f64, rings: Vec<Ring>| GridOptions {
        shape: GridShape::flat(Up::Z, [cell_m, cell_m, 20.0]),
        rings,
        looks_from: LooksFrom::Cell,
        ..GridOptions::new(Up::Z)
    };
    let schema = Arc::new(Schema::builder().kind::<Stroller>().build().expect("a good kind"));
    let mut options = WorldOptions { schema, ..WorldOptions::new(7) };
    options.server.grids = vec![grid(10.0, vec![ring(9.0, 2), ring(49.0, 10)]), grid(300.0, vec![ring(450.0, 100)])];
    options.server.grids[1].bounds_m = Some([[0.0; 3], [299.0, 299.0, 19.0]]);
    options.server.far = Some(FarOptions { grid: 1, parts: 50 });
    options.server.tick_interval = Duration::from_millis(100);
    // With so many seats the keys are bare.
    options.server.max_clients = 4_096;
    options.client.decode = throng::Decode::Nothing;
    let side_m = (guests as f64 / DENSITY_PER_M2).sqrt();
    let mut world = World::with_guests(options, guests);
    let strollers: Vec<ObjectId> = (0..guests)
        .map(|guest| {
            let [x, y] = [(); 2].map(|()| (world.rng.f64() * side_m) as f32);
            let stroller = Stroller { position: [x, y, 1.0], ..Stroller::default() };
            let owner = Some(world.connection(guest));
            world.server.spawn_owned(stroller, Placement::Cell(0), owner).expect("room")
        })
        .collect();
    // Two rounds of the census of send ticks, and a rest.
    for tick in 0..260 {
        for (guest, &id) in strollers.iter().enumerate() {
            // To and fro: everybody steps into another cell now and then.
            let along = if (tick / 20 + guest) % 2 == 0 { SPEED_M_PER_S } else { -SPEED_M_PER_S };
            let stroller = world.server.get_mut::<Stroller>(id).expect("it is there");
            stroller.position[0] += along / 10.0;
            stroller.velocity[0] = along;
            let position = stroller.position.map(f64::from);
            let connection = world.connection(guest);
            world.server.set_viewpoint(connection, position);
        }
        world.step();
    }
    if guests > 0 {
        assert!(world.server.replicator().hub_ref().shared_views().0 > guests / 10, "clients share views");
    }
    let before = held_bytes();
    drop(world.server);
    usize::try_from(before - held_bytes()).expect("a server holds memory")
}

/// All that exists for a connection's sake: session, keys, subscriptions, and its part of views, frames, cells and objects. In so
/// small a crowd each connection has a larger part of cells and views than among ten thousand. A change that needs more than the
/// limit says in docs/benchmarks.md what for.
#[test]
fn a_connection_in_a_crowd_is_small() {
    const GUESTS: usize = 200;
    const LIMIT_BYTES: usize = 30_000;
    let bytes = (held_by_server(GUESTS) - held_by_server(0)) / GUESTS;
    assert!(bytes <= LIMIT_BYTES, "{bytes} bytes for each connection");
}
