//! A plain broadcast: the whole state, written once per tick, cut into packets, and copied to every client.
//!
//! No library: what is left out (who sees what, changes, acknowledgement, loss, priority, encryption) is the point. In the
//! sparse workloads it still sends everything to everyone, and its clients look at their own part only.

use peers_harness::{
    Arguments, Character, Clients, DENSE_BYTES, PACKET_BYTES, Packets, Part, SPARSE_BYTES, Server, Stopwatch, Terms,
    Units, Value, Workload, World, locked_version, run,
};

/// Object number, before the packed state.
const NUMBER_BYTES: usize = 2;
/// Object number and contents.
const CHEST_BYTES: usize = 4;
/// Kind of what follows, and the tick.
const HEADER_BYTES: usize = 5;

const CHARACTERS: u8 = 0;
const CHESTS: u8 = 1;

fn main() {
    let arguments = Arguments::from_command_line();
    let terms = Terms {
        peer: "naive broadcast",
        version: locked_version(env!("CARGO_PKG_NAME"), "peer-naive"),
        notes: "everything to everyone, no loss recovery, no encryption",
        is_paced: false,
    };
    let world = World::new(arguments.workload, arguments.players);
    match arguments.workload {
        Workload::Dense => {
            run(&arguments, &terms, Broadcast::<DENSE_BYTES>::default(), move || Mirrors::<DENSE_BYTES>::new(&world))
        }
        Workload::Sparse { .. } => {
            run(&arguments, &terms, Broadcast::<SPARSE_BYTES>::default(), move || Mirrors::<SPARSE_BYTES>::new(&world))
        }
    }
}

/// Characters are packed to this many bytes.
#[derive(Default)]
struct Broadcast<const BYTES: usize> {
    characters: Vec<Units>,
    chests: Vec<u16>,
    packet: Vec<u8>,
    shared: Packets,
}

impl<const BYTES: usize> Server for Broadcast<BYTES> {
    fn tick(&mut self, tick: u32, world: &World, _: &Packets, outgoing: &mut Packets, stopwatch: &mut Stopwatch) {
        stopwatch.enter(Part::Assign);
        self.characters.clear();
        self.characters.extend(world.characters().iter().map(Character::units));
        self.chests.clear();
        self.chests.extend_from_slice(world.chests());
        stopwatch.enter(Part::Replicate);
        self.encode(tick);
        for client in 0..world.players() {
            for packet in self.shared.iter() {
                outgoing.push(client, 0, packet.bytes);
            }
        }
    }

    fn is_ready(&self) -> bool {
        true
    }
}

impl<const BYTES: usize> Broadcast<BYTES> {
    fn encode(&mut self, tick: u32) {
        let (packet, shared) = (&mut self.packet, &mut self.shared);
        shared.clear();
        let mut number = 0u16;
        for characters in self.characters.chunks((PACKET_BYTES - HEADER_BYTES) / (NUMBER_BYTES + BYTES)) {
            begin(packet, CHARACTERS, tick);
            for character in characters {
                packet.extend_from_slice(&number.to_le_bytes());
                packet.extend_from_slice(&character.steps().pack::<BYTES>());
                number += 1;
            }
            shared.push(0, 0, packet);
        }
        for chests in self.chests.chunks((PACKET_BYTES - HEADER_BYTES) / CHEST_BYTES) {
            begin(packet, CHESTS, tick);
            for contents in chests {
                packet.extend_from_slice(&number.to_le_bytes());
                packet.extend_from_slice(&contents.to_le_bytes());
                number += 1;
            }
            shared.push(0, 0, packet);
        }
    }
}

fn begin(packet: &mut Vec<u8>, kind: u8, tick: u32) {
    packet.clear();
    packet.push(kind);
    packet.extend_from_slice(&tick.to_le_bytes());
}

struct Mirrors<const BYTES: usize> {
    /// By client.
    seen: Vec<Vec<Option<Value>>>,
    world: World,
}

impl<const BYTES: usize> Mirrors<BYTES> {
    fn new(world: &World) -> Mirrors<BYTES> {
        let seen = vec![vec![None; world.objects() as usize]; world.players() as usize];
        Mirrors { seen, world: world.clone() }
    }
}

impl<const BYTES: usize> Clients for Mirrors<BYTES> {
    fn tick(&mut self, _: u32, incoming: &Packets, _: &mut Packets) {
        for packet in incoming.iter() {
            let mirror = &mut self.seen[packet.client as usize];
            let (kind, body) = (packet.bytes[0], &packet.bytes[HEADER_BYTES..]);
            let each = if kind == CHARACTERS { NUMBER_BYTES + BYTES } else { CHEST_BYTES };
            for entry in body.chunks_exact(each) {
                let number = u16::from_le_bytes([entry[0], entry[1]]);
                let value = match kind {
                    CHARACTERS => {
                        let packed = entry[NUMBER_BYTES..].try_into().expect("so many bytes");
                        Value::Character(Character::unpack::<BYTES>(packed))
                    }
                    _ => Value::Chest(u16::from_le_bytes([entry[2], entry[3]])),
                };
                mirror[number as usize] = Some(value);
            }
        }
    }

    fn look(&mut self, client: u32, found: &mut dyn FnMut(u32, Value)) {
        for (number, value) in (0..).zip(&self.seen[client as usize]) {
            if let Some(value) = value.filter(|_| self.world.sees(client, number)) {
                found(number, value);
            }
        }
    }
}
