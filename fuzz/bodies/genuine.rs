//! Packets that a small server wrote, for a `ReplicaClient`: bent, or merely lost, doubled and reordered.
#![allow(dead_code)] // each target and test takes a part of it

use std::sync::Arc;

use throng_replica::{ChannelKey, ClientOptions, Inline, Placement, ReplicaClient, Replicator, ReplicatorOptions};
use throng_schema::{Facet, Replicate, Schema};
use throng_wire::{ConnectionId, ObjectId, Tick};

use super::choices::Choices;
use super::kinds::{Everything, Label, Score};
use super::segment::{GRID, LIMITS, apply, check, end};

/// Objects that the small server has at once: fewer than the client may hold.
const OBJECTS: usize = 8;
/// The low half of the tick comes round within the run.
const FIRST_TICK: Tick = Tick((1 << 32) - 20);

/// Ticks of one run.
const TICKS: u32 = 96;

/// A small world with one client, whose every move is a choice of the input.
struct World {
    server: Replicator,
    client: ConnectionId,
    objects: Vec<ObjectId>,
    sequence: u64,
    /// Packets whose fate the server does not know.
    unsettled: Vec<u64>,
}

/// A packet on its way.
#[derive(Clone)]
struct Sent {
    tick: Tick,
    sequence: u64,
    bytes: Vec<u8>,
}

/// Packets come as they were written, but lost, doubled and late as the input says: no error is possible, and no limit
/// is reached.
pub(crate) fn run_unbent(schema: &Arc<Schema>, input: &[u8]) {
    // Of the objects and slots that the tombstones and the wait hold on to, all fit.
    let roomy = ClientOptions { objects: 1 << 10, slots: 1 << 12, ..LIMITS };
    run(schema, input, roomy, |choices, client, world, packets| {
        for _ in 0..choices.below(4) {
            if packets.is_empty() {
                break;
            }
            let index = choices.below(packets.len().min(256));
            let packet = match choices.below(4) {
                0 => packets[index].clone(),
                _ => packets.remove(index),
            };
            let applied = client.apply(packet.tick, &packet.bytes);
            assert!(applied.is_ok(), "{applied:?} of a genuine packet");
            // The acknowledgement may be lost.
            if choices.below(4) != 0 {
                world.settle(packet.sequence, true);
            }
            if choices.below(8) == 0 {
                while client.poll_event().is_some() {}
            }
        }
        // A packet that counts as lost may still arrive.
        if choices.below(4) == 0 && !world.unsettled.is_empty() {
            let sequence = world.unsettled[choices.below(world.unsettled.len().min(256))];
            world.settle(sequence, false);
        }
    });
}

/// Packets come with a few bytes changed.
pub(crate) fn run_bent(schema: &Arc<Schema>, input: &[u8]) {
    let client = run(schema, input, LIMITS, |choices, client, world, packets| {
        for mut packet in packets.drain(..) {
            choices.bend(&mut packet.bytes);
            apply(client, packet.tick, &packet.bytes);
            world.settle(packet.sequence, choices.below(8) != 0);
        }
        check(client);
    });
    let newest = client.newest_tick().unwrap_or(FIRST_TICK);
    end(client, newest);
}

fn run(
    schema: &Arc<Schema>,
    input: &[u8],
    limits: ClientOptions,
    mut deliver: impl FnMut(&mut Choices<'_>, &mut ReplicaClient, &mut World, &mut Vec<Sent>),
) -> ReplicaClient {
    let mut choices = Choices::new(input);
    let mut world = World::new(schema);
    let mut client = ReplicaClient::new(schema.clone(), &[GRID], limits).expect("a good grid");
    let mut packets = Vec::new();
    for _ in 0..TICKS {
        if choices.is_empty() {
            break;
        }
        world.tick(&mut choices, &mut packets);
        deliver(&mut choices, &mut client, &mut world, &mut packets);
    }
    client
}

impl World {
    fn new(schema: &Arc<Schema>) -> World {
        let options = ReplicatorOptions { retention_ticks: 6, first_tick: FIRST_TICK, ..Default::default() };
        let mut server = Replicator::new(schema.clone(), options);
        server.add_grid(GRID).expect("a good grid");
        let client = server.hub().connect().expect("room for one");
        server.admit(client);
        let mut world = World { server, client, objects: Vec::new(), sequence: 0, unsettled: Vec::new() };
        for key in [ChannelKey::Global(0), ChannelKey::Owner(client), World::cell(0), World::cell(1)] {
            world.subscribe(key, 1);
        }
        world
    }

    fn cell(x: i32) -> ChannelKey {
        ChannelKey::Cell { grid: 0, cell: [x, 0, 0] }
    }

    fn subscribe(&mut self, key: ChannelKey, interval_ticks: u16) {
        let channel = self.server.channel(key).expect("few channels");
        let _ = self.server.hub().subscribe(self.client, channel, interval_ticks, 1);
    }

    /// Plays one tick and writes its packets, some of which never arrive.
    fn tick(&mut self, choices: &mut Choices<'_>, packets: &mut Vec<Sent>) {
        let tick = self.server.begin_tick();
        for _ in 0..choices.below(4) {
            self.change(choices);
        }
        if choices.below(2) == 0 {
            self.server.acknowledge_input(self.client, tick.0 as u32);
        }
        self.server.plan();
        self.server.encode(&Inline);
        let (outgoing, slots) = self.server.writers();
        let mut connection = slots[self.client.index as usize].writer().expect("it stays");
        let mut room = 1_150;
        connection.begin_objects(outgoing, room);
        while connection.has_more_objects() && room > 100 {
            let sequence = self.sequence;
            let mut bytes = vec![0; room];
            let written = connection.write_objects(outgoing, sequence, &mut bytes);
            if written == 0 {
                break;
            }
            room -= written;
            bytes.truncate(written);
            if choices.below(4) != 0 {
                packets.push(Sent { tick, sequence, bytes });
            }
            self.unsettled.push(sequence);
            self.sequence += 1;
        }
    }

    /// The server learns a packet's fate; the first report counts.
    fn settle(&mut self, sequence: u64, is_delivered: bool) {
        let Some(index) = self.unsettled.iter().position(|&known| known == sequence) else { return };
        self.unsettled.remove(index);
        match is_delivered {
            true => self.server.hub().delivered(self.client, sequence),
            false => self.server.lost(self.client, sequence),
        }
    }

    fn change(&mut self, choices: &mut Choices<'_>) {
        let what = choices.below(8);
        if self.objects.is_empty() || (what == 0 && self.objects.len() < OBJECTS) {
            return self.spawn(choices);
        }
        let index = choices.below(self.objects.len());
        let id = self.objects[index];
        match what {
            1 => {
                self.server.despawn(id);
                self.objects.remove(index);
            }
            2 => {
                let owner = (choices.below(2) == 0).then_some(self.client);
                self.server.set_owner(id, owner).expect("few channels");
            }
            3 => {
                let placement = self.placement(choices);
                // Some kinds have no position.
                let _ = self.server.set_placement(id, placement);
            }
            4 => {
                let facet = Facet::ALL[choices.below(3)];
                self.subscribe(ChannelKey::Entity { object: id, facet }, 2);
            }
            5 => {
                let subscription = throng_replica::SubscriptionId::from_number(choices.byte() as u16 % 8);
                self.server.hub().unsubscribe(self.client, subscription);
            }
            6 => self.subscribe(World::cell(choices.below(2) as i32), 3),
            _ => self.update(id, choices),
        }
    }

    fn spawn(&mut self, choices: &mut Choices<'_>) {
        let schema = self.server.store().schema().clone();
        let placement = self.placement(choices);
        let owner = (choices.below(2) == 0).then_some(self.client);
        let placeless = match placement {
            Placement::Cell(_) => Placement::Channel(ChannelKey::Global(0)),
            other => other,
        };
        let spawned = match choices.below(3) {
            0 => {
                let kind = schema.kind_id::<Score>().expect("in the schema");
                self.server.spawn(kind, placeless, owner, |to| Score::default().quantise(to))
            }
            1 => {
                let label = Label { text: "a label".to_owned() };
                let kind = schema.kind_id::<Label>().expect("in the schema");
                self.server.spawn(kind, placeless, owner, |to| label.quantise(to))
            }
            _ => {
                let kind = schema.kind_id::<Everything>().expect("in the schema");
                let everything = everything(choices);
                self.server.spawn(kind, placement, owner, |to| everything.quantise(to))
            }
        };
        self.objects.push(spawned.expect("few objects"));
    }

    fn update(&mut self, id: ObjectId, choices: &mut Choices<'_>) {
        let schema = self.server.store().schema().clone();
        let kind = self.server.store().kind_id(id.index);
        if Some(kind) == schema.kind_id::<Score>() {
            let score = Score { points: choices.byte().into(), open: choices.below(2) == 0 };
            self.server.update(id, |to| score.quantise(to)).expect("few channels");
        } else if Some(kind) == schema.kind_id::<Everything>() {
            let everything = everything(choices);
            self.server.update(id, |to| everything.quantise(to)).expect("few channels");
        }
    }

    fn placement(&mut self, choices: &mut Choices<'_>) -> Placement {
        match choices.below(3) {
            0 => Placement::Entity,
            1 => Placement::Cell(0),
            _ => Placement::Channel(ChannelKey::Global(0)),
        }
    }
}

fn everything(choices: &mut Choices<'_>) -> Everything {
    Everything {
        position: [f32::from(choices.byte()) / 16.0, 1.0, 1.0],
        health: i16::from(choices.byte() % 100),
        blob: vec![7; choices.below(40)],
        normal: [0.0, 0.0, 1.0],
        rotation: [0.0, 0.0, 0.0, 1.0],
        ..Everything::default()
    }
}
