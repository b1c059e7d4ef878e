//! The guarantees of the packet writers: a share of the packet for every subscription, and nothing twice without need.

use std::collections::VecDeque;
use std::sync::Arc;

use throng_replica::{
    ChannelKey, ClientOptions, GridShape, Inline, LimitReached, Placement, ReplicaClient, Replicator,
    ReplicatorOptions, SubscriptionId, Up,
};
use throng_schema::{Replicate, Schema};
use throng_wire::{ConnectionId, ObjectId};

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Lamp {
    #[replicate(integer(min = 0, max = 65_535))]
    number: u32,
}

/// As long as an object may be.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Book {
    #[replicate(text(max_bytes = 900))]
    text: String,
}

#[derive(Clone, Debug, Default, PartialEq, Replicate)]
struct Walker {
    #[replicate(position(step = 0.01))]
    position: [f32; 3],
}

#[test]
fn a_member_that_ends_a_subscription_between_its_ticks_is_sent_no_more_of_it() {
    let mut house = House::new(256);
    house.server.begin_tick();
    let keys = [ChannelKey::Custom(1), ChannelKey::Custom(2)];
    let other = house.server.hub().connect().expect("room");
    let channels = keys.map(|key| house.server.channel(key).expect("room"));
    let [_, ended] = keys.map(|key| house.subscribe(key, 2).expect("room"));
    for channel in channels {
        house.server.hub().subscribe(other, channel, 2, 1).expect("room");
    }
    for id in [house.connection, other] {
        house.server.hub().connection_mut(id).expect("it is there").set_send_interval(2, 0);
    }
    let lamps = keys.map(|key| house.spawn(&Lamp { number: 1 }, key));
    let mut updates = Vec::new();
    for tick in 1..50u32 {
        house.update(lamps[1], &Lamp { number: tick });
        if tick == 31 {
            let connection = house.connection;
            house.server.hub().unsubscribe(connection, ended);
        }
        house.plan();
        let connections = [house.connection, other];
        for id in connections {
            let (outgoing, slots) = house.server.hub().writers();
            let mut connection = slots[id.index as usize].writer().expect("it stays");
            connection.begin_write(outgoing, 10_000);
            let written = connection.has_more() && connection.write_packet(outgoing, tick.into(), &mut [0; 1_150]) > 0;
            drop(connection);
            if written {
                house.server.hub().delivered(id, tick.into());
            }
        }
        let connection = house.server.hub_ref().connection(house.connection).expect("it stays");
        updates.push((connection.counters().object_updates, connection.counters().shared_segments));
        house.server.begin_tick();
    }
    let before = updates[29];
    assert!(before.1 > 5, "it is a member of a view: {updates:?}");
    assert!(updates[30..].iter().all(|now| now.0 == before.0), "it is sent what it has left: {updates:?}");
}

struct House {
    server: Replicator,
    client: ReplicaClient,
    connection: ConnectionId,
    sequence: u64,
}

impl House {
    fn new(retention_ticks: u32) -> House {
        let schema = Schema::builder().kind::<Lamp>().kind::<Book>().kind::<Walker>().build();
        let schema = Arc::new(schema.expect("good kinds"));
        let options = ReplicatorOptions { retention_ticks, ..ReplicatorOptions::default() };
        let mut server = Replicator::new(Arc::clone(&schema), options);
        let client = ReplicaClient::new(schema, &[], ClientOptions::default()).expect("no grids");
        let connection = server.hub().connect().expect("room");
        House { server, client, connection, sequence: 0 }
    }

    /// Two lamps in a channel that is sent in every tenth tick. The client has their first state.
    fn with_two_slow_lamps() -> (House, [ObjectId; 2]) {
        let mut house = House::new(256);
        house.server.begin_tick();
        let key = ChannelKey::Custom(1);
        house.subscribe(key, 10).expect("room");
        let lamps = [1, 1].map(|number| house.spawn(&Lamp { number }, key));
        house.plan();
        let packet = house.write(1_000);
        house.deliver(&packet);
        (house, lamps)
    }

    fn subscribe(&mut self, key: ChannelKey, interval_ticks: u16) -> Result<SubscriptionId, LimitReached> {
        let channel = self.server.channel(key).expect("room");
        self.server.hub().subscribe(self.connection, channel, interval_ticks, 1)
    }

    fn spawn<T: Replicate>(&mut self, value: &T, key: ChannelKey) -> ObjectId {
        let kind = self.server.store().schema().kind_id::<T>().expect("in the schema");
        self.server.spawn(kind, Placement::Channel(key), None, |to| value.quantise(to)).expect("room")
    }

    fn update<T: Replicate>(&mut self, id: ObjectId, value: &T) {
        self.server.update(id, |to| value.quantise(to)).expect("room");
    }

    fn plan(&mut self) {
        self.server.plan();
        self.server.encode(&Inline);
    }

    /// The next packet of this tick.
    fn write(&mut self, room: usize) -> Vec<u8> {
        let (outgoing, slots) = self.server.hub().writers();
        let mut connection = slots[self.connection.index as usize].writer().expect("it stays");
        connection.begin_write(outgoing, room);
        self.sequence += 1;
        let mut packet = vec![0; room];
        let written = connection.write_packet(outgoing, self.sequence, &mut packet);
        packet.truncate(written);
        packet
    }

    fn has_more(&self) -> bool {
        self.server.hub_ref().connection(self.connection).expect("it stays").has_more()
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.client.apply(self.server.now(), packet).expect("genuine");
        self.server.hub().delivered(self.connection, self.sequence);
    }

    fn needs_full_packet(&mut self) -> bool {
        self.server.hub_ref().connection(self.connection).expect("it stays").needs_full_packet()
    }

    fn seen<T: Replicate + Default>(&self, id: ObjectId) -> Option<T> {
        let object = self.client.object(id)?;
        let mut value = T::default();
        value.apply(object.known_fields(), object.values());
        Some(value)
    }
}

#[test]
fn a_long_entry_waits_for_a_packet_of_its_own_and_lets_short_ones_pass() {
    let mut house = House::new(256);
    house.server.begin_tick();
    let lamps: Vec<ObjectId> = (0..20)
        .map(|number| {
            house.subscribe(ChannelKey::Custom(number), 1).expect("room");
            house.spawn(&Lamp { number: 0 }, ChannelKey::Custom(number))
        })
        .collect();
    let library = ChannelKey::Global(0);
    house.subscribe(library, 1).expect("room");
    let book = house.spawn(&Book { text: "x".repeat(890) }, library);
    let mut full_packets = 0;
    for tick in 1..60 {
        house.server.begin_tick();
        for &lamp in &lamps {
            house.update(lamp, &Lamp { number: tick });
        }
        house.plan();
        // A packet of the usual kind has no room for a book, whatever stands in it.
        let room = if house.needs_full_packet() { 1_100 } else { 400 };
        full_packets += u32::from(room == 1_100);
        let packet = house.write(room);
        house.deliver(&packet);
        if tick > 4 {
            let oldest = lamps.iter().map(|&lamp| tick - house.seen::<Lamp>(lamp).expect("seen").number).max();
            assert!(oldest <= Some(2), "tick {tick}: a lamp is {oldest:?} ticks old");
        }
        if tick == 6 {
            assert_eq!(house.seen::<Book>(book).map(|book| book.text.len()), Some(890), "the book has come");
        }
        if tick == 30 {
            house.update(book, &Book { text: "y".repeat(900) });
        }
        if tick == 36 {
            assert_eq!(house.seen::<Book>(book).map(|book| book.text.len()), Some(900), "so has its second edition");
        }
    }
    assert_eq!(full_packets, 2, "one for each edition");
}

#[test]
fn what_was_lost_and_has_been_overtaken_before_its_turn_is_not_sent_again() {
    let (mut house, [red, green]) = House::with_two_slow_lamps();
    // An update of both is lost, and one of the red lamp alone is on its way when that is known.
    let mut number = 1;
    let mut until_sent = |house: &mut House, lamps: &[ObjectId]| {
        loop {
            house.server.begin_tick();
            number += 1;
            lamps.iter().for_each(|&lamp| house.update(lamp, &Lamp { number }));
            house.plan();
            if !house.write(1_000).is_empty() {
                return house.sequence;
            }
        }
    };
    let lost = until_sent(&mut house, &[red, green]);
    until_sent(&mut house, &[red]);
    house.server.begin_tick();
    house.server.lost(house.connection, lost);
    // When it was lost, it alone spoke of the green lamp. Before it is its turn again, there is newer.
    house.update(green, &Lamp { number: 1_000 });
    house.plan();
    assert!(house.write(1_000).is_empty(), "nothing is sent before the turn of the class");
    let counters = house.server.hub_ref().connection(house.connection).expect("it stays").counters();
    assert_eq!((counters.resent_segments, counters.superseded_segments, counters.frames_taken_back), (0, 1, 0));
}

#[test]
fn in_place_of_a_lost_frame_the_next_one_is_given_which_says_more_and_newer() {
    let (mut house, [red, green]) = House::with_two_slow_lamps();
    let mut number = 1;
    for round in 1..4 {
        // An update of both is lost, three times.
        loop {
            house.server.begin_tick();
            number += 1;
            house.update(red, &Lamp { number });
            house.update(green, &Lamp { number: round });
            house.plan();
            if !house.write(1_000).is_empty() {
                break;
            }
        }
        let sequence = house.sequence;
        house.server.begin_tick();
        house.server.lost(house.connection, sequence);
    }
    // The red lamp changes once more. Both arrive at once, before the turn of the class, in one frame.
    house.update(red, &Lamp { number: 1_000 });
    house.plan();
    assert_eq!(house.server.hub_ref().counters().frames_encoded, 1);
    let packet = house.write(1_000);
    house.deliver(&packet);
    assert_eq!((house.seen(red), house.seen(green)), (Some(Lamp { number: 1_000 }), Some(Lamp { number: 3 })));
    let counters = house.server.hub_ref().connection(house.connection).expect("it stays").counters();
    assert_eq!((counters.resent_segments, counters.superseded_segments, counters.frames_taken_back), (0, 0, 3));
}

#[test]
fn a_change_after_the_plan_of_a_tick_is_sent_in_the_next() {
    let mut house = House::new(256);
    house.server.begin_tick();
    let key = ChannelKey::Custom(1);
    house.subscribe(key, 1).expect("room");
    let lamp = house.spawn(&Lamp { number: 1 }, key);
    for number in 2..20 {
        house.plan();
        house.update(lamp, &Lamp { number });
        let packet = house.write(1_000);
        house.deliver(&packet);
        house.server.begin_tick();
        house.plan();
        let packet = house.write(1_000);
        house.deliver(&packet);
        assert_eq!(house.seen::<Lamp>(lamp), Some(Lamp { number }));
        house.server.begin_tick();
    }
}

#[test]
fn a_second_subscription_of_a_channel_is_refused() {
    let mut house = House::new(256);
    house.server.begin_tick();
    let first = house.subscribe(ChannelKey::Custom(1), 1).expect("room");
    assert_eq!(house.subscribe(ChannelKey::Custom(1), 5), Err(LimitReached::Subscribed));
    house.server.hub().unsubscribe(house.connection, first);
    assert!(house.subscribe(ChannelKey::Custom(1), 5).is_ok(), "once the first has ended there may be another");
}

#[test]
fn a_reader_that_comes_back_after_tombstones_were_forgotten_gets_a_roster_and_not_everything() {
    let mut house = House::new(4);
    house.server.begin_tick();
    let key = ChannelKey::Custom(1);
    house.subscribe(key, 1).expect("room");
    let mut lamps: Vec<ObjectId> = (0..20).map(|number| house.spawn(&Lamp { number }, key)).collect();
    house.plan();
    let complete = house.write(1_000);
    house.deliver(&complete);
    for _ in 0..70 {
        house.server.begin_tick();
        house.plan();
        house.write(1_000);
    }
    // Nothing is written while two lamps end, their tombstones are forgotten, and another comes.
    for gone in [3, 17] {
        house.server.begin_tick();
        house.server.despawn(lamps[gone]);
        house.update(lamps[0], &Lamp { number: 100 + gone as u32 });
    }
    for _ in 0..6 {
        house.server.begin_tick();
    }
    let newcomer = house.spawn(&Lamp { number: 77 }, key);
    house.plan();
    let roster = house.write(1_000);
    // Subscription 1; 14 bytes: 5 bits for a slot, a roster, of slots 0 to 20. Slot 3 belongs to the new object, and
    // slot 17 is empty.
    assert_eq!(roster[..2], [1 << 2, 10], "{roster:x?}");
    assert_eq!(roster[2..12], [0x85, 0, 0, 0, 20, 0, 0, 0xFF, 0xFF, 0x0D], "{roster:x?}");
    assert!(roster.len() < complete.len() / 2, "{} bytes, and {} for everything", roster.len(), complete.len());
    house.deliver(&roster);
    house.client.apply(house.server.now().after(100), &[]).expect("nothing");
    lamps[3] = newcomer;
    lamps.remove(17);
    assert_eq!(house.client.object_count(), lamps.len());
    assert!(lamps.iter().all(|&lamp| house.client.object(lamp).is_some()));
    assert_eq!(house.seen::<Lamp>(lamps[0]), Some(Lamp { number: 117 }));
}

#[test]
fn the_subscriptions_that_are_due_spread_over_the_ticks() {
    // The cells of `crowd`: 10 x 10, seen at intervals of 2, 6 and 30 ticks by distance, by 200 viewers.
    let schema = Arc::new(Schema::builder().kind::<Walker>().build().expect("a good kind"));
    let mut server = Replicator::new(schema, ReplicatorOptions::default());
    server.add_grid(GridShape::flat(Up::Z, [10.0, 10.0, 20.0])).expect("a good grid");
    let mut rng = fastrand::Rng::with_seed(1);
    let kind = server.store().schema().kind_id::<Walker>().expect("in the schema");
    let mut walkers = Vec::new();
    server.begin_tick();
    for _ in 0..200 {
        let position = [rng.f32() * 99.9, rng.f32() * 99.9, 0.0];
        let walker = Walker { position };
        walkers.push((server.spawn(kind, Placement::Cell(0), None, |to| walker.quantise(to)).expect("room"), position));
        let connection = server.hub().connect().expect("room");
        for (x, y) in (0..10).flat_map(|x| (0..10).map(move |y| (x, y))) {
            let beyond = |at: f32, cell: i32| (cell as f32 * 10.0 - at).max(at - cell as f32 * 10.0 - 10.0).max(0.0);
            let distance_m = beyond(position[0], x).hypot(beyond(position[1], y));
            let interval = if distance_m < 10.0 {
                2
            } else if distance_m < 50.0 {
                6
            } else {
                30
            };
            let channel = server.channel(ChannelKey::Cell { grid: 0, cell: [x, y, 0] }).expect("room");
            server.hub().subscribe(connection, channel, interval, 1).expect("room");
        }
    }
    let (mut given, mut sequence) = (Vec::new(), 0);
    for tick in 0..120u32 {
        for (id, position) in &walkers {
            let moved = Walker { position: [position[0], position[1], (tick % 2) as f32] };
            server.update(*id, |to| moved.quantise(to)).expect("room");
        }
        server.plan();
        server.encode(&Inline);
        let (outgoing, slots) = server.hub().writers();
        let mut ids = Vec::new();
        for (index, slot) in slots.iter_mut().enumerate() {
            let Some(mut connection) = slot.writer() else { continue };
            connection.begin_write(outgoing, 100_000);
            while connection.has_more() {
                sequence += 1;
                assert!(connection.write_packet(outgoing, sequence, &mut [0; 1_150]) > 0);
                ids.push((index, sequence));
            }
        }
        for (index, sequence) in ids {
            let id = ConnectionId { index: index as u32, generation: 1 };
            server.hub().delivered(id, sequence);
        }
        if tick >= 60 {
            given.push(server.hub_ref().counters().frames_shared);
        }
        server.begin_tick();
    }
    given.sort_unstable();
    let (median, most) = (given[given.len() / 2], given[given.len() - 1]);
    assert!(median > 1_000, "subscriptions are served: {given:?}");
    assert!(most * 10 <= median * 12, "{most} subscriptions in one tick, {median} in most: {given:?}");
}

#[test]
fn what_does_not_fit_lets_the_others_into_the_same_packet() {
    let mut house = House::new(256);
    house.server.begin_tick();
    house.subscribe(ChannelKey::Global(0), 1).expect("room");
    let book = house.spawn(&Book { text: "x".repeat(890) }, ChannelKey::Global(0));
    let lamps = [1, 2, 3].map(|number| {
        house.subscribe(ChannelKey::Custom(number), 1).expect("room");
        house.spawn(&Lamp { number }, ChannelKey::Custom(number))
    });
    house.plan();
    let packet = house.write(400);
    house.deliver(&packet);
    assert_eq!(house.seen::<Book>(book), None);
    assert_eq!(lamps.map(|lamp| house.seen(lamp)), [1, 2, 3].map(|number| Some(Lamp { number })));
}

#[test]
fn a_channel_with_more_weight_is_sent_more_often_and_no_other_starves() {
    more_weight_is_sent_more_often(4, None);
    // It gets its weight while others wait.
    more_weight_is_sent_more_often(1, Some(4));
}

fn more_weight_is_sent_more_often(first: u8, later: Option<u8>) {
    let mut house = House::new(256);
    house.server.begin_tick();
    const LIGHT: u32 = 31;
    let mut heavy = None;
    let lamps: Vec<ObjectId> = (0..=LIGHT)
        .map(|number| {
            let weight = if number == LIGHT { first } else { 1 };
            let channel = house.server.channel(ChannelKey::Custom(number)).expect("room");
            heavy = Some(house.server.hub().subscribe(house.connection, channel, 1, weight).expect("room"));
            house.spawn(&Lamp { number: 0 }, ChannelKey::Custom(number))
        })
        .collect();
    tick_with(SHORT, &mut house, &lamps, 0, |_| {});
    if let Some((subscription, weight)) = heavy.zip(later) {
        let connection = house.connection;
        house.server.hub().connection_mut(connection).expect("it stays").set_weight(subscription, weight);
    }
    let mut sent = vec![0; lamps.len()];
    for tick in 1..400 {
        tick_with(SHORT, &mut house, &lamps, tick, |_| {});
        for (sent, &lamp) in sent.iter_mut().zip(&lamps) {
            *sent += u32::from(house.seen(lamp) == Some(Lamp { number: tick }));
        }
    }
    let heavy = sent.pop().expect("it was pushed last");
    let (least, most) = (sent.iter().min().expect("there are 31"), sent.iter().max().expect("there are 31"));
    assert!(*least > 20 && *most <= *least * 5 / 4, "{sent:?}");
    assert!((5 * most..=10 * least).contains(&(2 * heavy)), "{heavy}, and the others {sent:?}");
}

/// So much that a tick has never room for all.
fn busy(house: &mut House) -> Vec<ObjectId> {
    (1_000..1_030)
        .map(|number| {
            house.subscribe(ChannelKey::Custom(number), 1).expect("room");
            house.spawn(&Lamp { number: 0 }, ChannelKey::Custom(number))
        })
        .collect()
}

/// Room for four lamps.
const SHORT: usize = 40;

/// A tick in which all lamps change, with so much room. `late` is done when the plan is made already.
fn tick_with(room: usize, house: &mut House, lamps: &[ObjectId], number: u32, late: impl FnOnce(&mut House)) {
    house.server.begin_tick();
    lamps.iter().for_each(|&lamp| house.update(lamp, &Lamp { number }));
    let connection = house.connection;
    house.server.hub().set_allowance(connection, room);
    house.plan();
    late(house);
    let packet = house.write(room);
    house.deliver(&packet);
}

#[test]
fn a_connection_that_lacks_room_sleeps_in_empty_channels_until_something_comes() {
    const EMPTY: u32 = 60;
    let mut house = House::new(256);
    house.server.begin_tick();
    let lamps = busy(&mut house);
    for number in 1..=10 {
        tick_with(SHORT, &mut house, &lamps, number, |_| {});
    }
    let mut subscriptions: Vec<SubscriptionId> =
        (0..EMPTY).map(|number| house.subscribe(ChannelKey::Custom(number), 5).expect("room")).collect();
    // The first ones while the client has not heard of their channels, others long after that; before a plan, and after it.
    let mut came = Vec::new();
    for tick in 11..400 {
        let number = tick - 11;
        let place = if tick >= 250 { tick - 250 + EMPTY / 2 } else { number };
        let comes = number < EMPTY / 2 || tick >= 250 && place < EMPTY;
        let mut come =
            |house: &mut House| came.push((place, house.spawn(&Lamp { number: place }, ChannelKey::Custom(place))));
        if comes && tick % 2 == 0 {
            come(&mut house);
        }
        tick_with(SHORT, &mut house, &lamps, tick, |house| {
            if comes && tick % 2 == 1 {
                come(house);
            }
        });
        // Some end in between, and begin again.
        if (150..155).contains(&tick) {
            let (place, connection) = ((tick - 150 + EMPTY / 2) as usize, house.connection);
            house.server.hub().unsubscribe(connection, subscriptions[place]);
            tick_with(SHORT, &mut house, &lamps, tick, |_| {});
            subscriptions[place] = house.subscribe(ChannelKey::Custom(place as u32), 5).expect("room");
        }
        if tick == 240 {
            let sleepers = house.server.hub_ref().sleeper_count();
            assert!(sleepers >= EMPTY as usize / 2, "{sleepers} sleep");
        }
    }
    assert_eq!(came.len(), EMPTY as usize);
    for (number, lamp) in came {
        assert_eq!(house.seen(lamp), Some(Lamp { number }), "in channel {number}");
    }
}

#[test]
fn a_connection_that_begins_to_lack_room_sleeps_at_once_where_nothing_is_new() {
    const QUIET: u32 = 40;
    let mut house = House::new(256);
    house.server.begin_tick();
    // Their next turn is far away.
    for number in 0..QUIET {
        house.subscribe(ChannelKey::Custom(number), 10_000).expect("room");
        house.spawn(&Lamp { number }, ChannelKey::Custom(number));
    }
    house.plan();
    let packet = house.write(1_100);
    house.deliver(&packet);
    let lamps = busy(&mut house);
    for number in 1..=4 {
        tick_with(SHORT, &mut house, &lamps, number, |_| {});
    }
    assert_eq!(house.server.hub_ref().sleeper_count(), QUIET as usize);
}

#[test]
fn a_tick_with_more_room_than_the_last_has_room_for_those_that_were_far_behind() {
    let mut house = House::new(256);
    house.server.begin_tick();
    let lamps = busy(&mut house);
    for number in 1..=100 {
        tick_with(SHORT, &mut house, &lamps, number, |_| {});
    }
    tick_with(1_000, &mut house, &lamps, 101, |_| {});
    let seen = lamps.iter().filter(|&&lamp| house.seen(lamp) == Some(Lamp { number: 101 })).count();
    assert_eq!(seen, lamps.len());
}

#[test]
fn a_shorter_interval_counts_from_the_next_tick_on() {
    let mut house = House::new(256);
    house.server.begin_tick();
    let key = ChannelKey::Custom(1);
    let subscription = house.subscribe(key, 30).expect("room");
    let lamp = house.spawn(&Lamp { number: 0 }, key);
    let sent_of_20 = |house: &mut House| {
        let mut is_sent = |number| {
            house.update(lamp, &Lamp { number });
            house.plan();
            let packet = house.write(1_000);
            house.deliver(&packet);
            house.server.begin_tick();
            !packet.is_empty()
        };
        (0..20).filter(|&number| is_sent(number)).count()
    };
    assert!(sent_of_20(&mut house) <= 2);
    let connection = house.connection;
    house.server.hub().connection_mut(connection).expect("it stays").set_interval(subscription, 1);
    assert!(sent_of_20(&mut house) >= 19);
}

#[test]
fn the_end_of_a_subscription_takes_four_bytes_of_room() {
    let mut house = House::new(256);
    house.server.begin_tick();
    let subscription = house.subscribe(ChannelKey::Custom(1), 1).expect("room");
    house.plan();
    house.write(1_000);
    let connection = house.connection;
    house.server.hub().unsubscribe(connection, subscription);
    house.server.begin_tick();
    house.plan();
    assert_eq!([3, 4].map(|room| house.write(room).len()), [0, 2]);
}

#[test]
fn bytes_that_are_sent_again_are_counted() {
    let mut house = House::new(256);
    house.server.begin_tick();
    let key = ChannelKey::Custom(1);
    house.subscribe(key, 1).expect("room");
    let lamps = [1, 2, 3].map(|number| house.spawn(&Lamp { number }, key));
    house.plan();
    let packet = house.write(1_000);
    house.deliver(&packet);
    // One lamp changes in each tick; what is said of the first two is lost.
    for lamp in lamps {
        house.server.begin_tick();
        house.update(lamp, &Lamp { number: 100 });
        house.plan();
        assert!(!house.write(1_000).is_empty());
    }
    for lost in [house.sequence - 2, house.sequence - 1] {
        house.server.lost(house.connection, lost);
    }
    house.server.begin_tick();
    house.plan();
    let again_bytes = house.write(1_000).len() as u64;
    let counters = house.server.hub_ref().connection(house.connection).expect("it stays").counters();
    assert_eq!((counters.resent_segments, counters.resent_bytes), (2, again_bytes));
}

#[test]
fn what_finds_too_little_room_in_an_empty_packet_is_given_a_full_one() {
    let mut house = House::new(256);
    house.server.begin_tick();
    house.subscribe(ChannelKey::Global(0), 1).expect("room");
    // Less than half of a packet, so it would have had a place behind something short.
    let book = house.spawn(&Book { text: "x".repeat(300) }, ChannelKey::Global(0));
    house.plan();
    assert!(!house.needs_full_packet());
    assert_eq!(house.write(200), []);
    assert!(house.needs_full_packet());
    let packet = house.write(1_000);
    house.deliver(&packet);
    assert!(house.seen::<Book>(book).is_some() && !house.needs_full_packet());
}

#[test]
fn a_subscription_that_ends_after_the_plan_is_sent_its_end_alone() {
    let mut house = House::new(256);
    house.server.begin_tick();
    let key = ChannelKey::Custom(1);
    let subscription = house.subscribe(key, 1).expect("room");
    let lamp = house.spawn(&Lamp { number: 1 }, key);
    house.plan();
    let packet = house.write(1_000);
    house.deliver(&packet);
    house.server.begin_tick();
    house.update(lamp, &Lamp { number: 2 });
    house.plan();
    let connection = house.connection;
    house.server.hub().unsubscribe(connection, subscription);
    assert_eq!(house.write(1_000), [1 << 2, 0], "its number, which is 1, and nothing behind it");
}

/// Two clients in channel 1, where many lamps change in each tick. Their view serves both, and one shared packet of
/// the first has no fate yet.
struct UnderWay {
    house: House,
    other: ConnectionId,
    subscriptions: [SubscriptionId; 2],
    lamps: Vec<ObjectId>,
    sequence: u64,
}

impl UnderWay {
    fn new(retention_ticks: u32) -> UnderWay {
        let mut house = House::new(retention_ticks);
        house.server.begin_tick();
        let key = ChannelKey::Custom(1);
        let other = house.server.hub().connect().expect("room");
        let channel = house.server.channel(key).expect("room");
        let first = house.subscribe(key, 1).expect("room");
        let second = house.server.hub().subscribe(other, channel, 1, 1).expect("room");
        let lamps = (0..10).map(|number| house.spawn(&Lamp { number }, key)).collect();
        let mut this = UnderWay { house, other, subscriptions: [first, second], lamps, sequence: 0 };
        for number in 100..120 {
            let packet = this.tick(number);
            this.house.deliver(&packet);
        }
        let before = this.shared_segments();
        assert!(!this.tick(200).is_empty() && this.shared_segments() > before, "both are members");
        this.sequence = this.house.sequence;
        this
    }

    fn shared_segments(&self) -> u64 {
        self.house.server.hub_ref().connection(self.house.connection).expect("it stays").counters().shared_segments
    }

    /// The lamps change, and the tick is written: to the first client the packet that is returned.
    fn tick(&mut self, number: u32) -> Vec<u8> {
        self.house.server.begin_tick();
        self.lamps.iter().for_each(|&lamp| self.house.update(lamp, &Lamp { number }));
        self.house.plan();
        let packet = self.house.write(1_000);
        let (outgoing, slots) = self.house.server.hub().writers();
        let mut connection = slots[self.other.index as usize].writer().expect("it stays");
        connection.begin_write(outgoing, 1_000);
        connection.write_packet(outgoing, number.into(), &mut [0; 1_000]);
        drop(connection);
        self.house.server.hub().delivered(self.other, number.into());
        packet
    }

    fn lose(&mut self) -> (u64, u64) {
        self.house.server.lost(self.house.connection, self.sequence);
        let connection = self.house.server.hub_ref().connection(self.house.connection).expect("it stays");
        (connection.counters().superseded_segments, connection.counters().resent_segments)
    }
}

#[test]
fn a_member_whose_subscription_ends_after_the_plan_is_sent_its_end_alone_and_the_rest_in_the_next_tick() {
    let mut scene = UnderWay::new(256);
    // Another channel, in which nothing changes but for one tick.
    let key = ChannelKey::Custom(2);
    scene.house.subscribe(key, 1).expect("room");
    let channel = scene.house.server.channel(key).expect("room");
    scene.house.server.hub().subscribe(scene.other, channel, 1, 1).expect("room");
    let lamp = scene.house.spawn(&Lamp { number: 1 }, key);
    for number in 201..220 {
        let packet = scene.tick(number);
        scene.house.deliver(&packet);
    }
    let shared = scene.shared_segments();
    let packet = scene.tick(220);
    scene.house.deliver(&packet);
    assert!(scene.shared_segments() > shared, "both are members");

    let (connection, [first, _]) = (scene.house.connection, scene.subscriptions);
    scene.house.server.begin_tick();
    scene.lamps.iter().chain([&lamp]).for_each(|&lamp| scene.house.update(lamp, &Lamp { number: 221 }));
    scene.house.plan();
    scene.house.server.hub().unsubscribe(connection, first);
    let packet = scene.house.write(1_000);
    assert_eq!(packet, [1 << 2, 0], "its number, which is 1, and nothing behind it");
    assert!(!scene.house.has_more());
    scene.house.deliver(&packet);
    assert_eq!(scene.house.seen(lamp), Some(Lamp { number: 1 }));
    let packet = scene.tick(222);
    scene.house.deliver(&packet);
    assert_eq!(scene.house.seen(lamp), Some(Lamp { number: 221 }));
}

#[test]
fn a_member_that_is_given_the_interval_that_it_has_stays_regular() {
    let mut scene = UnderWay::new(256);
    let (connection, [first, _]) = (scene.house.connection, scene.subscriptions);
    for intervals in [&[][..], &[1], &[5, 1], &[0, 5, 3, 1]] {
        for &interval_ticks in intervals {
            let connection = scene.house.server.hub().connection_mut(connection).expect("it stays");
            connection.set_interval(first, interval_ticks);
        }
        for number in 300..305 {
            let packet = scene.tick(number);
            scene.house.deliver(&packet);
        }
        let regular = scene.house.server.hub_ref().counters().regular_connections;
        assert_eq!(regular, 2, "after the intervals {intervals:?}");
    }
}

#[test]
fn a_shared_packet_may_be_lost_when_the_number_of_its_channel_means_another_one() {
    let mut scene = UnderWay::new(8);
    scene.lamps.drain(..).for_each(|lamp| scene.house.server.despawn(lamp));
    let [first, second] = scene.subscriptions;
    let connection = scene.house.connection;
    scene.house.server.hub().unsubscribe(connection, first);
    scene.house.server.hub().unsubscribe(scene.other, second);
    for number in 201..220 {
        scene.tick(number);
        scene.house.server.sweep(100);
    }
    assert_eq!(scene.house.server.hub_ref().channel_count(), 0, "nobody holds the channel");
    let other = scene.house.server.channel(ChannelKey::Custom(2)).expect("room");
    scene.house.spawn(&Lamp { number: 1 }, ChannelKey::Custom(2));
    assert_eq!(other.number(), 0, "another channel has its number");
    assert_eq!(scene.lose(), (0, 0), "nothing that was lost is of use");
}

#[test]
fn a_packet_lost_from_before_a_subscription_is_not_sent_again_to_it() {
    let mut scene = UnderWay::new(256);
    let [first, _] = scene.subscriptions;
    let connection = scene.house.connection;
    scene.house.server.hub().unsubscribe(connection, first);
    // The lamps stay as they are: nothing overtakes what the packet said.
    scene.lamps.clear();
    let packet = scene.tick(201);
    scene.house.deliver(&packet);
    scene.house.subscribe(ChannelKey::Custom(1), 1).expect("room");
    let packet = scene.tick(202);
    scene.house.deliver(&packet);
    scene.lose();
    assert_eq!(scene.tick(203), [], "the first frame of the new subscription said all of it");
}

/// Two clients in one channel that changes in each tick. The second acknowledges everything. The first does so until
/// `silent_from`, and nobody knows the fate of its packets after that. Returns how many shared segments the first had been
/// sent by each tick.
fn with_a_silent_member(retention_ticks: u32, silent_from: u64) -> Vec<u64> {
    let mut house = House::new(retention_ticks);
    house.server.begin_tick();
    let key = ChannelKey::Custom(1);
    let other = house.server.hub().connect().expect("room");
    let channel = house.server.channel(key).expect("room");
    house.subscribe(key, 1).expect("room");
    house.server.hub().subscribe(other, channel, 1, 1).expect("room");
    let lamp = house.spawn(&Lamp { number: 0 }, key);
    let mut shared = Vec::new();
    for tick in 1..60 {
        house.update(lamp, &Lamp { number: tick });
        house.plan();
        let packet = house.write(1_000);
        match u64::from(tick) < silent_from {
            true => house.deliver(&packet),
            false => house.client.apply(house.server.now(), &packet).expect("genuine"),
        }
        let (outgoing, slots) = house.server.hub().writers();
        let mut connection = slots[other.index as usize].writer().expect("it stays");
        connection.begin_write(outgoing, 1_000);
        assert!(
            connection.write_packet(outgoing, tick.into(), &mut [0; 1_000]) > 0,
            "the other is sent to in each tick"
        );
        drop(connection);
        house.server.hub().delivered(other, tick.into());
        shared.push(house.server.hub_ref().connection(house.connection).expect("it stays").counters().shared_segments);
        house.server.begin_tick();
    }
    assert!(house.seen::<Lamp>(lamp).is_some());
    shared
}

#[test]
fn a_member_of_a_shared_view_is_held_back_like_everybody() {
    let (retention_ticks, silent_from) = (12, 30);
    let shared = with_a_silent_member(retention_ticks, silent_from);
    let sent_by = |tick: u64| shared[tick as usize - 1];
    assert!(sent_by(silent_from) > 15, "both are members: {shared:?}");
    let last = silent_from + u64::from(retention_ticks) - 1;
    assert_eq!(
        sent_by(last),
        sent_by(silent_from) + last - silent_from,
        "as long as slots keep their meaning: {shared:?}"
    );
    assert_eq!(sent_by(59), sent_by(last), "and no longer: {shared:?}");
}

#[test]
fn a_channel_with_turns_farther_apart_than_slots_rest_holds_back_no_other_channel() {
    const ROUND_TRIP_TICKS: usize = 4;
    let mut house = House::new(12);
    house.server.begin_tick();
    let other = house.server.hub().connect().expect("room");
    let channels = [(ChannelKey::Custom(1), 1), (ChannelKey::Custom(2), 20)];
    let [_, slow] = channels.map(|(key, interval_ticks)| {
        let channel = house.server.channel(key).expect("room");
        let subscription = house.subscribe(key, interval_ticks).expect("room");
        (house.server.hub().subscribe(other, channel, interval_ticks, 1).expect("room"), subscription)
    });
    let lamps = channels.map(|(key, _)| house.spawn(&Lamp { number: 0 }, key));
    let (mut under_way, mut shared) = (VecDeque::new(), Vec::new());
    for tick in 1..160u32 {
        // Between, it is as frequent as the other one.
        if let Some(interval_ticks) = [(60, 1), (90, 20)].into_iter().find_map(|(at, to)| (at == tick).then_some(to)) {
            for (id, subscription) in [(other, slow.0), (house.connection, slow.1)] {
                let connection = house.server.hub().connection_mut(id).expect("it is there");
                connection.set_interval(subscription, interval_ticks);
            }
        }
        lamps.iter().for_each(|&lamp| house.update(lamp, &Lamp { number: tick }));
        house.plan();
        let packet = house.write(1_000);
        house.client.apply(house.server.now(), &packet).expect("genuine");
        let (outgoing, slots) = house.server.hub().writers();
        let mut connection = slots[other.index as usize].writer().expect("it stays");
        connection.begin_write(outgoing, 1_000);
        connection.write_packet(outgoing, tick.into(), &mut [0; 1_000]);
        drop(connection);
        under_way.push_back((house.sequence, tick));
        if under_way.len() > ROUND_TRIP_TICKS {
            let (sequence, of_other) = under_way.pop_front().expect("several");
            house.server.hub().delivered(house.connection, sequence);
            house.server.hub().delivered(other, of_other.into());
        }
        let ages = lamps.map(|lamp| tick - house.seen::<Lamp>(lamp).map_or(0, |lamp| lamp.number));
        assert_eq!(ages[0], 0, "tick {tick}");
        // Its own last frame has to arrive first.
        let most = if (65..90).contains(&tick) { 0 } else { 20 };
        assert!(ages[1] <= most, "tick {tick}: {ages:?}");
        shared.push(house.server.hub_ref().connection(house.connection).expect("it stays").counters().shared_segments);
        house.server.begin_tick();
    }
    let in_ticks = |from: usize, to: usize| shared[to] - shared[from];
    assert!(in_ticks(20, 58) >= 30 && in_ticks(100, 158) >= 50, "the frequent channel is shared: {shared:?}");
    assert!(in_ticks(70, 88) >= 30, "both are: {shared:?}");
}

#[test]
fn what_a_member_was_sent_before_it_became_one_counts_too() {
    // Silent from the first tick on that it has acknowledged the name in: all that is unknown was sent to it alone.
    for silent_from in 2..10 {
        let shared = with_a_silent_member(12, silent_from);
        let last = silent_from as usize + 11;
        assert_eq!(shared[58], shared[last - 1], "silent from {silent_from}: {shared:?}");
    }
}

#[test]
fn a_member_that_is_not_written_all_of_a_tick_is_told_the_rest_later() {
    let mut house = House::new(256);
    house.server.begin_tick();
    let key = ChannelKey::Custom(1);
    let other = house.server.hub().connect().expect("room");
    let channel = house.server.channel(key).expect("room");
    house.subscribe(key, 1).expect("room");
    house.server.hub().subscribe(other, channel, 1, 1).expect("room");
    let lamps: Vec<_> = (0..400).map(|number| house.spawn(&Lamp { number }, key)).collect();
    let mut regular = Vec::new();
    for tick in 1..80 {
        house.update(lamps[0], &Lamp { number: tick });
        let is_rush = tick == 40;
        if is_rush {
            lamps.iter().for_each(|&lamp| house.update(lamp, &Lamp { number: 10_000 }));
        }
        house.plan();
        regular.push(house.server.hub_ref().counters().regular_connections);
        // In the tick of the rush it is written a part, or nothing at all.
        let packet = house.write(1_150);
        house.deliver(&packet);
        let (outgoing, slots) = house.server.hub().writers();
        let mut connection = slots[other.index as usize].writer().expect("it stays");
        connection.begin_write(outgoing, 100_000);
        let before = tick * 100;
        let mut sequence = before;
        while connection.has_more() {
            sequence += 1;
            assert!(connection.write_packet(outgoing, sequence.into(), &mut [0; 1_150]) > 0);
        }
        drop(connection);
        (before + 1..=sequence).for_each(|sequence| house.server.hub().delivered(other, sequence.into()));
        house.server.begin_tick();
    }
    assert_eq!(regular[37], 2, "both are members, and the plan looks at neither: {regular:?}");
    for &lamp in &lamps[1..] {
        assert_eq!(house.seen::<Lamp>(lamp), Some(Lamp { number: 10_000 }));
    }
}
