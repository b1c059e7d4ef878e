//! Packets for a `ReplicaClient` that no server wrote.
#![allow(dead_code)] // each target and test takes a part of it

use throng_replica::{ClientOptions, GridShape, ReplicaClient};
use throng_schema::Schema;
use throng_wire::Tick;

use super::choices::Choices;

const LIMBO_TICKS: u32 = 5;
pub(crate) const LIMITS: ClientOptions = ClientOptions {
    objects: 24,
    slots: 64,
    limbo_ticks: Some(LIMBO_TICKS),
    counts_bits: true,
    learns_codes: true,
    tick_interval_us: u32::MAX,
};
pub(crate) const GRID: GridShape =
    GridShape { cell_m: [8.0; 3], layers: throng_replica::Layers::Stacked, up: throng_replica::Up::Z };

/// Subscription numbers that pieces are for. There is no number 0.
const NUMBERS: [u64; 18] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 40, 200];

/// The low half of the tick comes round within the run.
const FIRST_TICK: Tick = Tick((1 << 32) - 100);

/// A sequence of packets, in any of three shapes: any bytes, pieces with a good head, and pieces with a good head and
/// the head of a good segment. After an error the client still works.
pub(crate) fn run(schema: &std::sync::Arc<Schema>, input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut client = ReplicaClient::new(schema.clone(), &[GRID], LIMITS).expect("a good grid");
    let mut tick = FIRST_TICK;
    let mut packet = Vec::new();
    while !choices.is_empty() {
        packet.clear();
        match choices.below(4) {
            0 => {
                let count = choices.below(64);
                packet.extend_from_slice(choices.bytes(count));
            }
            _ => (0..=choices.below(4)).for_each(|_| piece(&mut choices, &mut packet)),
        }
        tick = tick.after(choices.byte().into());
        apply(&mut client, tick, &packet);
        for _ in 0..choices.below(4) {
            client.poll_event();
        }
    }
    end(client, tick);
}

/// Applies a packet and looks at everything that can be looked at.
pub(crate) fn apply(client: &mut ReplicaClient, tick: Tick, packet: &[u8]) {
    if let Err(error) = client.apply(tick, packet) {
        assert!(!error.tag().is_empty() && !error.to_string().is_empty());
    }
    check(client);
}

/// The invariants after any input.
pub(crate) fn check(client: &ReplicaClient) {
    let held = client.occupancy();
    assert!(held.objects <= LIMITS.objects && held.slots <= LIMITS.slots, "{held:?}");
    assert!(held.waits <= 2 * LIMITS.objects + 16 && held.events <= 4 * LIMITS.objects + 48, "{held:?}");
    assert_eq!(client.objects().count(), client.object_count());
    for object in client.objects() {
        assert!(!object.is_awaited() || held.waits > 0, "{object:?} waits for nothing");
        let found = client.object(object.id()).expect("an object that is there is found by its id");
        assert_eq!(found.kind(), object.kind());
        let kind = client.schema().kind(object.kind());
        assert_eq!(kind.compare(object.values(), found.values()), 0);
        if let Some(reckoned) = client.reckoned(object) {
            assert!(kind.reckoning.is_some() && !object.is_own());
            let newest = client.newest_tick().expect("there is an object");
            assert_eq!(reckoned.now(), reckoned.at(newest));
        }
    }
}

/// When all subscriptions are closed, all own objects taken away and the wait is over, nothing is left: no object, no slot.
pub(crate) fn end(mut client: ReplicaClient, tick: Tick) {
    let tick = tick.after(1 << 20);
    client.apply(tick, &NUMBERS[1..].iter().copied().flat_map(close).collect::<Vec<u8>>()).expect("closes");
    if client.channels().next().is_some() {
        // A bent number is not among those that were closed: it can be any.
        client.apply(tick, &(1..1 << 14).flat_map(close).collect::<Vec<u8>>()).expect("closes");
    }
    client.apply(tick.after(LIMBO_TICKS + 1), &[]).expect("nothing");
    check(&client);
    assert_eq!(client.channels().count(), 0);
    let held = client.occupancy();
    // Nobody has taken the client's own objects from it, and there is nothing else.
    assert_eq!((held.slots, held.waits), (0, 0), "{held:?}");
    assert!(client.object_count() <= held.own_places && held.objects <= held.own_places, "{held:?}");
    assert!(client.objects().all(|object| object.is_own()), "{held:?}");
    while client.poll_event().is_some() {}
}

/// A piece that closes a subscription.
fn close(number: u64) -> Vec<u8> {
    [varint(number << 2), vec![0]].concat()
}

/// A piece with a good head, a name for the most part, and a body that begins like a segment for the most part.
fn piece(choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    let shape = choices.byte();
    if shape == 0xFF {
        return record(choices, out);
    }
    let number = match shape & 3 {
        3 => NUMBERS[choices.below(NUMBERS.len())],
        low => u64::from(low) + 1,
    };
    let age = (shape >> 2 & 1 == 1).then(|| age(choices));
    let named = shape >> 3 & 3 != 3;
    out.extend(varint(number << 2 | u64::from(named) << 1 | u64::from(age.is_some())));
    out.extend(age.into_iter().flat_map(varint));
    if named {
        name(choices, out);
        out.extend(varint(age.unwrap_or(0) + u64::from(choices.byte())));
    }
    let mut body = Vec::new();
    match shape >> 5 {
        0 => {}
        1 => {
            let count = choices.below(40);
            body.extend_from_slice(choices.bytes(count));
        }
        _ => segment(choices, &mut body),
    }
    out.extend(varint(body.len() as u64));
    out.extend(body);
}

/// A record of own objects with a good head and number, and a body that begins like one.
fn record(choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    let mut body = vec![choices.byte()];
    let count = choices.below(60);
    body.extend_from_slice(choices.bytes(count));
    out.push(2);
    out.extend(varint(body.len() as u64));
    out.extend(body);
}

fn age(choices: &mut Choices<'_>) -> u64 {
    match choices.below(8) {
        0 => u64::from(choices.number()),
        _ => u64::from(choices.byte()),
    }
}

fn name(choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    match choices.below(6) {
        0 => out.extend([0, choices.byte() & 0x7F]),
        1 => {
            out.extend([1, 0]);
            (0..3).for_each(|_| out.extend(varint(u64::from(choices.number() & 0x3F))));
        }
        2 => {
            out.extend([1, choices.byte() & 1]);
            (0..3).for_each(|_| out.extend(varint(u64::from(choices.number()))));
        }
        3 => out.extend([2, choices.byte() & 0x7F, 0, choices.byte() & 3]),
        4 => out.push(3),
        _ => {
            let count = choices.below(8);
            out.extend_from_slice(choices.bytes(count));
        }
    }
}

/// `[slot_bits: 5][complete: 1][tombstones: 1][roster: 1]`, what belongs to it, and then a run of any bytes.
fn segment(choices: &mut Choices<'_>, out: &mut Vec<u8>) {
    let flags = choices.byte();
    let slot_bits = [0, 2, 3, 4, 6, 16, 24, 25][usize::from(flags & 7)];
    // Several forms at once are an error, and not worth more than one input in eight.
    let (complete, tombstones, roster) = match flags >> 5 {
        7 => (0x20, 0x40, 0x80),
        forms => [(0, 0, 0), (0x20, 0, 0), (0, 0x40, 0), (0, 0, 0x80)][usize::from(forms & 3)],
    };
    out.push(slot_bits | complete | tombstones | roster);
    if complete != 0 {
        let (first, end) = if flags & 8 == 0 { (0, choices.number()) } else { (choices.number(), choices.number()) };
        out.extend_from_slice(&first.to_le_bytes()[..3]);
        out.extend_from_slice(&end.to_le_bytes()[..3]);
    }
    if tombstones != 0 {
        let count = choices.below(6);
        out.push(count as u8);
        out.extend_from_slice(choices.bytes(((count + 1) * (usize::from(slot_bits) + 1)).div_ceil(8)));
    }
    if roster != 0 {
        let (first, slots) =
            (choices.number() & if flags & 8 == 0 { 0x3F } else { 0xFF_FFFF }, choices.below(256) as u32);
        out.extend_from_slice(&first.to_le_bytes()[..3]);
        out.extend_from_slice(&(first + slots).to_le_bytes()[..3]);
        out.extend_from_slice(choices.bytes(slots.div_ceil(8) as usize));
    }
    for _ in 0..choices.below(4) {
        out.extend([choices.byte() % 13, choices.byte() % 9]);
        let count = choices.below(48);
        out.extend_from_slice(choices.bytes(count));
    }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}
