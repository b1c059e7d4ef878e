//! All verdicts in all orders over a few packets: exactly what is still missing is sent again.

use std::sync::Arc;

use throng_replica::{ChannelKey, ClientOptions, Inline, Placement, ReplicaClient, Replicator, ReplicatorOptions};
use throng_schema::{Replicate, Schema};
use throng_wire::{ConnectionId, ObjectId, Tick};

/// Two fields, which are two bits of the mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Replicate)]
struct Pair {
    #[replicate(integer)]
    left: u32,
    #[replicate(integer)]
    right: u32,
}

/// Bits 0 and 1 are the fields of the first object, bits 2 and 3 of the second.
type Changes = u8;

const PACKETS: usize = 4;
/// One field, another field of the same object, both of them, a field of each object, and the second object alone.
const PATTERNS: [Changes; 5] = [0b0001, 0b0010, 0b0011, 0b0101, 0b0100];
/// As many packets as can be played with verdicts at all moments.
const MIXED: usize = 3;

struct Model {
    server: Replicator,
    client: ReplicaClient,
    connection: ConnectionId,
    ids: [ObjectId; 2],
    values: [Pair; 2],
    sequence: u64,
}

impl Model {
    /// Both objects are there, and the client knows them.
    fn new(schema: &Arc<Schema>) -> Model {
        let mut server = Replicator::new(Arc::clone(schema), ReplicatorOptions::default());
        let client = ReplicaClient::new(Arc::clone(schema), &[], ClientOptions::default()).expect("no grids");
        let connection = server.hub().connect().expect("room");
        server.begin_tick();
        let key = ChannelKey::Custom(1);
        let channel = server.channel(key).expect("room");
        server.hub().subscribe(connection, channel, 1, 1).expect("room");
        let kind = schema.kind_id::<Pair>().expect("in the schema");
        let spawn =
            |_| server.spawn(kind, Placement::Channel(key), None, |to| Pair::default().quantise(to)).expect("room");
        let ids = [0, 1].map(spawn);
        let mut model = Model { server, client, connection, ids, values: [Pair::default(); 2], sequence: 0 };
        let packet = model.write();
        model.client.apply(model.server.now(), &packet).expect("genuine");
        model.server.hub().delivered(connection, model.sequence);
        model
    }

    fn change(&mut self, changes: Changes, value: u32) {
        for (place, pair) in self.values.iter_mut().enumerate() {
            let mine = changes >> (2 * place) & 0b11;
            pair.left = if mine & 1 != 0 { value } else { pair.left };
            pair.right = if mine & 2 != 0 { value } else { pair.right };
            self.server.update(self.ids[place], |to| pair.quantise(to)).expect("room");
        }
    }

    /// Ends the tick.
    fn write(&mut self) -> Vec<u8> {
        self.server.plan();
        self.server.encode(&Inline);
        let (outgoing, slots) = self.server.hub().writers();
        let mut connection = slots[self.connection.index as usize].writer().expect("it stays");
        self.sequence += 1;
        let mut packet = vec![0; 400];
        connection.begin_write(outgoing, packet.len());
        let written = connection.write_packet(outgoing, self.sequence, &mut packet);
        packet.truncate(written);
        packet
    }
}

fn seen(client: &ReplicaClient, ids: [ObjectId; 2]) -> [Pair; 2] {
    ids.map(|id| {
        let object = client.object(id).expect("it stays");
        let mut pair = Pair::default();
        pair.apply(object.known_fields(), object.values());
        pair
    })
}

/// The fields that differ from the first state.
fn changed(pairs: [Pair; 2]) -> Changes {
    let bits = |pair: Pair| u8::from(pair.left != 0) | u8::from(pair.right != 0) << 1;
    bits(pairs[0]) | bits(pairs[1]) << 2
}

/// All orders of numbers that each come `times` times.
fn orders(numbers: usize, times: usize) -> Vec<Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..numbers * times {
        let longer = |order: Vec<usize>| {
            let is_left = |number: &usize| order.iter().filter(|&it| it == number).count() < times;
            let next: Vec<usize> = (0..numbers).filter(is_left).collect();
            next.into_iter().map(move |number| order.iter().copied().chain([number]).collect::<Vec<_>>())
        };
        orders = orders.into_iter().flat_map(longer).collect();
    }
    orders
}

/// All choices of a pattern for each of `N` packets.
fn choices<const N: usize>() -> impl Iterator<Item = [Changes; N]> {
    let place = |code: usize, packet: usize| code / PATTERNS.len().pow(packet as u32) % PATTERNS.len();
    (0..PATTERNS.len().pow(N as u32)).map(move |code| std::array::from_fn(|packet| PATTERNS[place(code, packet)]))
}

/// The fields that the model says have to be sent again: those of each lost packet of which at least one field has not
/// been changed since. A packet is sent again whole or not at all.
fn missing(patterns: &[Changes; PACKETS], lost: u32) -> Changes {
    (0..PACKETS)
        .filter(|packet| lost >> packet & 1 != 0)
        .filter(|packet| patterns[packet + 1..].iter().fold(patterns[*packet], |left, newer| left & !newer) != 0)
        .fold(0, |all, packet| all | patterns[packet])
}

fn play(schema: &Arc<Schema>, patterns: &[Changes; PACKETS], lost: u32, order: &[usize]) -> Result<(), String> {
    let mut model = Model::new(schema);
    // It knows the first state only, and is given nothing but what is sent again.
    let mut witness = Model::new(schema).client;
    let mut sequences = [0; PACKETS];
    let mut packets = Vec::new();
    for (packet, &changes) in patterns.iter().enumerate() {
        model.server.begin_tick();
        model.change(changes, packet as u32 + 1);
        packets.push((model.server.now(), model.write()));
        sequences[packet] = model.sequence;
    }
    model.server.begin_tick();
    for &packet in order {
        if lost >> packet & 1 == 0 {
            let (tick, bytes) = &packets[packet];
            model.client.apply(*tick, bytes).map_err(|error| error.to_string())?;
            model.server.hub().delivered(model.connection, sequences[packet]);
        } else {
            model.server.lost(model.connection, sequences[packet]);
        }
    }
    for _ in 0..3 {
        let packet = model.write();
        for client in [&mut model.client, &mut witness] {
            client.apply(model.server.now(), &packet).map_err(|error| error.to_string())?;
        }
        model.server.hub().delivered(model.connection, model.sequence);
        model.server.begin_tick();
    }
    if seen(&model.client, model.ids) != model.values {
        return Err(format!("the client has {:?}, not {:?}", seen(&model.client, model.ids), model.values));
    }
    let (sent, expected) = (changed(seen(&witness, model.ids)), missing(patterns, lost));
    if sent != expected {
        return Err(format!("{sent:04b} were sent again, not {expected:04b}"));
    }
    let connection = model.server.hub_ref().connection(model.connection).expect("it stays");
    match connection.packets_in_flight() {
        0 => Ok(()),
        left => Err(format!("{left} packets are still remembered")),
    }
}

/// A packet of the mixed play whose verdict is not known yet.
struct Sent {
    sequence: u64,
    tick: Tick,
    bytes: Vec<u8>,
    contents: Changes,
}

/// Plays packets and verdicts in one order: the first time that a number comes the packet is written, the second time its
/// verdict is heard. Each packet holds what is new, and of each loss that was heard since the last packet what nothing
/// else says; it holds nothing that is neither new nor lost.
fn play_mixed(schema: &Arc<Schema>, patterns: &[Changes; MIXED], lost: u32, order: &[usize]) -> Result<(), String> {
    let mut model = Model::new(schema);
    let mut sent: Vec<Option<Sent>> = (0..MIXED).map(|_| None).collect();
    // By field: its newest change, and the packets that carry it and are not known to be lost.
    let (mut newest, mut carriers) = ([0u32; 4], [0u32; 4]);
    // The fields of the losses that no packet has answered yet.
    let mut owed: Changes = 0;
    let mut written = 0;
    let fields = |mask: Changes| (0..4).filter(move |field| mask >> field & 1 != 0);
    for &packet in order {
        let Some(former) = sent[packet].take() else {
            written += 1;
            model.server.begin_tick();
            let changes = patterns[packet];
            model.change(changes, written);
            fields(changes).for_each(|field| (newest[field], carriers[field]) = (written, 0));
            let bytes = model.write();
            let mut witness = Model::new(schema).client;
            witness.apply(model.server.now(), &bytes).map_err(|error| error.to_string())?;
            let pairs = seen(&witness, model.ids);
            let (contents, values) = (changed(pairs), pairs.map(|pair| [pair.left, pair.right]).concat());
            let missing = fields(owed).filter(|&field| newest[field] != 0 && carriers[field] == 0);
            let needed = missing.fold(changes, |mask, field| mask | 1 << field);
            if needed & !contents != 0 || contents & !(changes | owed) != 0 {
                return Err(format!("packet {packet} holds {contents:04b}, not {needed:04b}; {owed:04b} were lost"));
            }
            owed = 0;
            let values: [u32; 4] = values.try_into().expect("two fields of two objects");
            for field in fields(contents).filter(|&field| values[field] == newest[field]) {
                carriers[field] |= 1 << packet;
            }
            let (sequence, tick) = (model.sequence, model.server.now());
            sent[packet] = Some(Sent { sequence, tick, bytes, contents });
            continue;
        };
        if lost >> packet & 1 == 0 {
            model.client.apply(former.tick, &former.bytes).map_err(|error| error.to_string())?;
            model.server.hub().delivered(model.connection, former.sequence);
        } else {
            model.server.lost(model.connection, former.sequence);
            owed |= former.contents;
            fields(former.contents).for_each(|field| carriers[field] &= !(1 << packet));
        }
    }
    for _ in 0..3 {
        model.server.begin_tick();
        let packet = model.write();
        model.client.apply(model.server.now(), &packet).map_err(|error| error.to_string())?;
        model.server.hub().delivered(model.connection, model.sequence);
    }
    if seen(&model.client, model.ids) != model.values {
        return Err(format!("the client has {:?}, not {:?}", seen(&model.client, model.ids), model.values));
    }
    let connection = model.server.hub_ref().connection(model.connection).expect("it stays");
    match connection.packets_in_flight() {
        0 => Ok(()),
        left => Err(format!("{left} packets are still remembered")),
    }
}

#[test]
fn r19_after_all_verdicts_in_any_order_exactly_what_is_missing_is_sent_again() {
    let schema = Arc::new(Schema::builder().kind::<Pair>().build().expect("a good kind"));
    let orders = orders(PACKETS, 1);
    assert_eq!(orders.len(), 24);
    for patterns in choices::<PACKETS>() {
        for lost in 0..1 << PACKETS {
            for order in &orders {
                if let Err(fault) = play(&schema, &patterns, lost, order) {
                    panic!("changes {patterns:?}, lost {lost:04b}, verdicts in the order {order:?}: {fault}");
                }
            }
        }
    }
}

#[test]
fn r19_a_verdict_between_two_packets_adds_what_is_missing_to_the_next_one() {
    let schema = Arc::new(Schema::builder().kind::<Pair>().build().expect("a good kind"));
    let orders = orders(MIXED, 2);
    assert_eq!(orders.len(), 90);
    for patterns in choices::<MIXED>() {
        for lost in 0..1 << MIXED {
            for order in &orders {
                if let Err(fault) = play_mixed(&schema, &patterns, lost, order) {
                    panic!("changes {patterns:?}, lost {lost:03b}, packets and verdicts {order:?}: {fault}");
                }
            }
        }
    }
}
