//! A crowd on a square, and the connections that watch it, tick by tick: what the benches of this crate measure.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::f32::consts::TAU;
use std::sync::Arc;

use fastrand::Rng;
use throng_replica::{
    ChannelKey, ClientOptions, GridShape, Inline, Placement, ReplicaClient, Replicator, ReplicatorOptions,
};
use throng_schema::{Replicate, ReplicateEnum, Schema};
use throng_wire::{ConnectionId, ObjectId, Tick};

/// Bytes of a packet that replication may fill.
pub(crate) const PACKET_ROOM_BYTES: usize = 1_160;
/// The overhead of a small packet beside its pieces.
const PACKET_OVERHEAD_BYTES: usize = 59;
/// Ticks between a packet and the verdict on it.
const ROUND_TRIP_TICKS: u32 = 3;
/// Ticks until every buffer has its working size.
const WARM_UP_TICKS: u32 = 90;
const WALK_M_PER_S: f32 = 4.0;

#[derive(Clone, Copy, Debug, Default, PartialEq, ReplicateEnum)]
pub(crate) enum Mode {
    #[default]
    Standing,
    Walking,
    Airborne,
}

/// The public state of a character.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub(crate) struct Character {
    #[replicate(position(step = 0.01))]
    pub(crate) position: [f32; 3],
    #[replicate(fixed(min = -40.0, max = 40.0, step = 0.1))]
    pub(crate) velocity: [f32; 3],
    #[replicate(angle(bits = 9))]
    pub(crate) yaw: f32,
    #[replicate(fixed(min = -1.5, max = 1.5, step = 0.025))]
    pub(crate) pitch: f32,
    #[replicate(enumeration)]
    pub(crate) mode: Mode,
}

/// Everything within `radius_m` is sent every `interval_ticks`.
pub(crate) type Ring = (f32, u16);

/// The viewers and their targets.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) players: usize,
    pub(crate) area_m: f32,
    pub(crate) cell_m: f32,
    pub(crate) tick_hz: f32,
    /// How far a character goes from where it began.
    pub(crate) leash_m: f32,
    pub(crate) budget_bytes: usize,
    pub(crate) rings: &'static [Ring],
}

/// 100 characters on 200 m, everybody is sent every change of everybody every tick.
pub(crate) const DENSE_100: Shape = Shape {
    players: 100,
    area_m: 200.0,
    cell_m: 100.0,
    tick_hz: 30.0,
    leash_m: f32::INFINITY,
    budget_bytes: 16_000,
    rings: &[(1_000.0, 1)],
};

/// 1,000 characters on 100 m, near ones often, far ones seldom, on 512 kbit/s.
pub(crate) const CROWD_1000: Shape = Shape {
    players: 1_000,
    area_m: 100.0,
    cell_m: 10.0,
    tick_hz: 30.0,
    leash_m: f32::INFINITY,
    budget_bytes: 2_133,
    rings: &[(10.0, 2), (50.0, 6), (150.0, 30)],
};

/// 10,000 characters on 300 m at 10 Hz on 256 kbit/s, each connection with about 130 subscriptions.
pub(crate) const CROWD_10K: Shape = Shape {
    players: 10_000,
    area_m: 300.0,
    cell_m: 10.0,
    tick_hz: 10.0,
    leash_m: f32::INFINITY,
    budget_bytes: 3_200,
    rings: &[(10.0, 1), (30.0, 10), (65.0, 60)],
};

/// A thousand characters at the same density, so that a benchmark of instructions takes a minute.
pub(crate) const CROWD_10HZ: Shape = Shape { players: 1_000, area_m: 95.0, ..CROWD_10K };

/// 400 characters on 60 m: near ones every tick, the others every tenth, on 64 kbit/s, a tenth of what that takes.
pub(crate) const CLOSE_400: Shape = Shape {
    players: 400,
    area_m: 60.0,
    cell_m: 10.0,
    tick_hz: 30.0,
    leash_m: f32::INFINITY,
    budget_bytes: 266,
    rings: &[(20.0, 1), (100.0, 10)],
};

/// The same crowd with enough budget for everything.
pub(crate) const CLOSE_400_AMPLE: Shape = Shape { budget_bytes: 100_000, ..CLOSE_400 };

/// 100 characters far apart: each sees only itself.
pub(crate) const SPARSE_100: Shape = Shape {
    players: 100,
    area_m: 8_000.0,
    cell_m: 400.0,
    tick_hz: 30.0,
    leash_m: 100.0,
    budget_bytes: 4_000,
    rings: &[(1.0, 1)],
};

struct Watcher {
    id: ConnectionId,
    sequence: u64,
    /// Tick, sequence, whether it is lost.
    in_flight: VecDeque<(Tick, u64, bool)>,
    allowance_bytes: usize,
    looks_from: [f32; 3],
}

/// When a packet is begun: what is less than one in a tick is saved up.
#[derive(Clone, Copy)]
struct Packets {
    least_bytes: usize,
    overhead_bytes: usize,
    most_bytes: usize,
}

impl Packets {
    fn allowance(self, watcher: &Watcher, budget_bytes: usize) -> usize {
        (watcher.allowance_bytes + budget_bytes).min(self.most_bytes)
    }
}

pub(crate) struct Scene {
    shape: Shape,
    rng: Rng,
    server: Replicator,
    /// The third is where the character began.
    characters: Vec<(ObjectId, Character, [f32; 3])>,
    watchers: Vec<Watcher>,
    /// Lost packets of ten thousand.
    loss: u32,
    packet: Vec<u8>,
    /// The packets of the observed connections in this tick, by the observer's index.
    last_packets: Vec<(usize, Vec<u8>)>,
    /// The clients of the first connections.
    observers: Vec<ReplicaClient>,
    pub(crate) bytes_written: u64,
}

impl Scene {
    /// The scene after its warm-up.
    pub(crate) fn new(shape: Shape) -> Scene {
        Scene::observed(shape, 1)
    }

    /// The scene after its warm-up, in which the first `observers` connections have clients.
    pub(crate) fn observed(shape: Shape, observers: usize) -> Scene {
        let mut scene = Scene::cold(shape, observers);
        for _ in 0..WARM_UP_TICKS {
            scene.tick();
        }
        scene
    }

    fn cold(shape: Shape, observers: usize) -> Scene {
        let schema = Arc::new(Schema::builder().kind::<Character>().build().expect("a good schema"));
        let mut server = Replicator::new(Arc::clone(&schema), ReplicatorOptions::default());
        let cell_m = f64::from(shape.cell_m);
        let grid = GridShape::flat(throng_replica::Up::Z, [cell_m, cell_m, 20.0]);
        server.add_grid(grid).expect("a good grid");
        let mut scene = Scene {
            rng: Rng::with_seed(1),
            characters: Vec::new(),
            watchers: Vec::new(),
            loss: 0,
            packet: vec![0; PACKET_ROOM_BYTES],
            last_packets: Vec::new(),
            observers: (0..observers)
                .map(|_| {
                    let schema = Arc::clone(&schema);
                    ReplicaClient::new(schema, &[grid], ClientOptions::default()).expect("the same grid")
                })
                .collect(),
            bytes_written: 0,
            server,
            shape,
        };
        scene.server.begin_tick();
        for _ in 0..shape.players {
            scene.spawn();
        }
        scene
    }

    fn spawn(&mut self) {
        let half = self.shape.area_m / 2.0;
        let mut position = [(self.rng.f32() * 2.0 - 1.0) * half, (self.rng.f32() * 2.0 - 1.0) * half, 0.0];
        if self.shape.leash_m < self.shape.cell_m {
            // In the middle of a cell, so that the leash keeps the character there.
            for at in &mut position[..2] {
                *at = ((*at / self.shape.cell_m).floor() + 0.5) * self.shape.cell_m;
            }
        }
        let mut character = Character { position, mode: Mode::Walking, ..Character::default() };
        turn(&mut character, self.rng.f32() * TAU);
        let kind = self.server.store().schema().kind_id::<Character>().expect("in the schema");
        let object = self.server.spawn(kind, Placement::Cell(0), None, |to| character.quantise(to)).expect("room");
        self.characters.push((object, character, position));
        let id = self.server.hub().connect().expect("room");
        let in_flight = VecDeque::new();
        self.watchers.push(Watcher { id, sequence: 0, in_flight, allowance_bytes: 0, looks_from: position });
        self.look(id, position);
    }

    /// Subscribes a connection to the cells around a position.
    fn look(&mut self, id: ConnectionId, [x, y, _]: [f32; 3]) {
        let size = self.shape.cell_m;
        let cells = (self.shape.area_m / 2.0 / size).ceil() as i32;
        for (cx, cy) in (-cells..cells).flat_map(|cx| (-cells..cells).map(move |cy| (cx, cy))) {
            let beyond = |at: f32, cell: i32| {
                let low = cell as f32 * size;
                (low - at).max(at - low - size).max(0.0)
            };
            let distance_m = beyond(x, cx).hypot(beyond(y, cy));
            let Some(&(_, interval)) = self.shape.rings.iter().find(|ring| distance_m < ring.0) else { continue };
            let channel = self.server.channel(ChannelKey::Cell { grid: 0, cell: [cx, cy, 0] }).expect("room");
            self.server.hub().subscribe(id, channel, interval, 1).expect("room");
        }
    }

    /// From now on some packets are lost: this many of ten thousand.
    pub(crate) fn lose(&mut self, of_10_000: u32) {
        self.loss = of_10_000;
        for _ in 0..30 {
            self.tick();
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.watchers.len()
    }

    /// Mean bytes of memory of a connection.
    pub(crate) fn memory_bytes(&self) -> usize {
        let all = self.watchers.iter().filter_map(|watcher| self.server.hub_ref().connection(watcher.id));
        all.map(|connection| connection.memory_bytes()).sum::<usize>() / self.watchers.len()
    }

    /// Mean number of subscriptions of a connection.
    pub(crate) fn subscriptions(&self) -> usize {
        let all = self.watchers.iter().filter_map(|watcher| self.server.hub_ref().connection(watcher.id));
        all.map(|connection| connection.subscription_count()).sum::<usize>() / self.watchers.len()
    }

    /// One whole tick.
    pub(crate) fn tick(&mut self) {
        self.settle();
        self.simulate();
        self.commit();
        self.plan();
        self.encode();
        self.write();
        self.apply();
    }

    /// Everybody walks on; now and then a character turns.
    pub(crate) fn simulate(&mut self) {
        self.server.begin_tick();
        let (half, step) = (self.shape.area_m / 2.0, 1.0 / self.shape.tick_hz);
        for (_, character, home) in &mut self.characters {
            if self.rng.u32(..50) == 0 {
                turn(character, self.rng.f32() * TAU);
            }
            let axes = character.position.iter_mut().zip(&mut character.velocity).zip(&*home).take(2);
            for ((position, velocity), home) in axes {
                let next = *position + *velocity * step;
                if next.abs() > half || (next - home).abs() > self.shape.leash_m {
                    *velocity = -*velocity;
                } else {
                    *position = next;
                }
            }
        }
    }

    /// Quantises and compares what was touched: everything.
    pub(crate) fn commit(&mut self) {
        for (object, character, _) in &self.characters {
            self.server.update(*object, |to| character.quantise(to)).expect("room");
        }
    }

    pub(crate) fn plan(&mut self) {
        let packets = self.packets();
        for watcher in &self.watchers {
            let allowance = packets.allowance(watcher, self.shape.budget_bytes);
            let allowance = if allowance < packets.least_bytes { 0 } else { allowance };
            self.server.hub().set_allowance(watcher.id, allowance);
        }
        self.server.plan();
    }

    pub(crate) fn encode(&mut self) {
        self.server.encode(&Inline);
    }

    /// Writes the packets of all connections. The packets of the observed connections are kept for [`Scene::apply`].
    pub(crate) fn write(&mut self) {
        let (now, packets) = (self.server.now(), self.packets());
        let (outgoing, slots) = self.server.hub().writers();
        self.last_packets.clear();
        for (index, watcher) in self.watchers.iter_mut().enumerate() {
            let mut connection = slots[watcher.id.index as usize].writer().expect("connected");
            let mut budget = packets.allowance(watcher, self.shape.budget_bytes);
            connection.begin_write(outgoing, budget);
            while connection.has_more() && budget >= packets.least_bytes {
                let room = (budget - packets.overhead_bytes).min(PACKET_ROOM_BYTES);
                let written = connection.write_packet(outgoing, watcher.sequence, &mut self.packet[..room]);
                if written == 0 {
                    break;
                }
                let is_lost = self.loss > 0 && self.rng.u32(..10_000) < self.loss;
                if index < self.observers.len() && !is_lost {
                    self.last_packets.push((index, self.packet[..written].to_vec()));
                }
                watcher.in_flight.push_back((now, watcher.sequence, is_lost));
                watcher.sequence += 1;
                budget -= written + packets.overhead_bytes;
                self.bytes_written += written as u64;
            }
            watcher.allowance_bytes = budget;
        }
    }

    fn packets(&self) -> Packets {
        match self.shape.budget_bytes < PACKET_ROOM_BYTES {
            true => {
                Packets { least_bytes: 440, overhead_bytes: PACKET_OVERHEAD_BYTES, most_bytes: 2 * PACKET_ROOM_BYTES }
            }
            false => Packets { least_bytes: 301, overhead_bytes: 0, most_bytes: self.shape.budget_bytes },
        }
    }

    /// Reports the verdicts on the packets of some ticks ago to the hub.
    pub(crate) fn settle(&mut self) {
        let now = self.server.now();
        for watcher in &mut self.watchers {
            while let Some(&(_, sequence, is_lost)) =
                watcher.in_flight.front().filter(|sent| now.since(sent.0) + 1 >= ROUND_TRIP_TICKS)
            {
                watcher.in_flight.pop_front();
                match is_lost {
                    true => self.server.lost(watcher.id, sequence),
                    false => self.server.hub().delivered(watcher.id, sequence),
                }
            }
        }
    }

    /// Applies at the clients what the observed connections were sent.
    pub(crate) fn apply(&mut self) {
        let now = self.server.now();
        for (observer, packet) in &self.last_packets {
            self.observers[*observer].apply(now, packet).expect("just written");
        }
        for client in &mut self.observers {
            while client.poll_event().is_some() {}
        }
    }

    /// Frames encoded in this tick, and how often a connection was given one.
    pub(crate) fn frames(&self) -> (u64, u64) {
        let counters = self.server.hub_ref().counters();
        (counters.frames_encoded, counters.frames_shared)
    }

    /// How old, in ticks, what the observers know of the characters in their nearest ring is, and of those beyond it.
    /// A character that an observer does not know counts as infinitely old.
    pub(crate) fn ages(&self, near: &mut Vec<u32>, far: &mut Vec<u32>) {
        let now = self.server.now();
        let near_m = self.shape.rings[0].0;
        for (client, watcher) in self.observers.iter().zip(&self.watchers) {
            for (id, character, _) in &self.characters {
                let [x, y, _] = watcher.looks_from;
                let distance_m = (character.position[0] - x).hypot(character.position[1] - y);
                let age = client.object(*id).map_or(u32::MAX, |object| now.since(object.newest_tick()));
                if distance_m < near_m { near.push(age) } else { far.push(age) }
            }
        }
    }
}

fn turn(character: &mut Character, yaw: f32) {
    character.yaw = yaw;
    character.velocity = [WALK_M_PER_S * yaw.cos(), WALK_M_PER_S * yaw.sin(), 0.0];
}
