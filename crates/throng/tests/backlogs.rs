//! Waiting data of one client does not delay the data of others.

use std::time::Duration;

use crate::harness::{World, WorldOptions};
use throng::{ChannelKey, ClientEvent, ObjectId, Placement};
use throng_testkit::{Beacon, Chat};

/// A facet that fills a packet.
fn large(number: u32) -> Chat {
    let letter = char::from(b'a' + (number % 26) as u8);
    Chat { number, text: letter.to_string().repeat(880) }
}

#[test]
fn a_backlog_of_messages_and_a_facet_that_fills_a_packet_do_not_block_each_other() {
    for rate in [8_000, 64_000] {
        let mut options = WorldOptions::new(1);
        options.server.client_bytes_per_s = rate;
        let mut world = World::with_guests(options, 1);
        let connection = world.connection(0);
        world.server.set_viewpoint(connection, [0.0; 3]);
        world.server.subscribe(connection, ChannelKey::Global(0), 1).expect("room");
        let placement = Placement::Channel(ChannelKey::Global(0));
        let board = world.server.spawn(large(0), placement).expect("room");
        let beacon = world.server.spawn(Beacon::default(), Placement::Cell(0)).expect("room");
        world.steps(60);

        // 256 KiB of messages, which take a third of the rate while the board has more to say than its half.
        const MESSAGES: u32 = 300;
        for number in 0..MESSAGES {
            world.server.send(connection, 0, &large(number)).expect("a place in the queue");
        }
        let bytes = MESSAGES * 900;
        let ticks = 4 * bytes * 30 / rate;
        let (mut board_age, mut beacon_age) = (0, 0);
        for tick in 1..=ticks {
            world.begin_step();
            world.server.get_mut::<Beacon>(beacon).expect("it is there").number = tick;
            // As often as half of the rate has room for it.
            let board_interval = 2 * 1_000 * 30 / rate + 2;
            if tick % board_interval == 0 {
                *world.server.get_mut::<Chat>(board).expect("it is there") = large(tick);
            }
            world.end_step();
            let seen = |number: Option<u32>| tick - number.unwrap_or(0);
            board_age = board_age.max(seen(world.guests[0].client.get::<Chat>(board).map(|chat| chat.number)));
            beacon_age = beacon_age.max(seen(world.guests[0].client.get::<Beacon>(beacon).map(|beacon| beacon.number)));
        }
        let got = world.guests[0].events.iter().filter(|event| matches!(event, ClientEvent::Message { .. })).count();
        println!("{rate} B/s: the board is up to {board_age} ticks old, the beacon {beacon_age}; {got} messages");
        // A packet takes 5 ticks at 8,000 B/s, and three kinds share the packets: messages, the board, and small objects.
        let packet_ticks = 1_248 * 30 / rate + 1;
        assert!(board_age <= 12 * packet_ticks, "{rate} B/s: the board is {board_age} ticks old");
        assert!(beacon_age <= 12 * packet_ticks, "{rate} B/s: the beacon is {beacon_age} ticks old");
        assert_eq!(got, MESSAGES as usize, "{rate} B/s");
    }
}

#[test]
fn a_long_text_of_a_channel_arrives_beside_large_own_objects_that_change_in_every_tick() {
    // A tick has room for one packet at most. Of four own objects, one fits into the half of it that is theirs.
    for (own_bytes, rate) in [(400, 64_000), (400, 20_000), (860, 64_000)] {
        let mut options = WorldOptions::new(1);
        options.server.tick_interval = Duration::from_micros(16_667);
        options.server.client_bytes_per_s = rate;
        let mut world = World::with_guests(options, 1);
        let connection = world.connection(0);
        world.server.subscribe(connection, ChannelKey::Global(0), 1).expect("room");
        let page = |number: u32, bytes: usize| {
            let letter = char::from(b'a' + (number % 26) as u8);
            Chat { number, text: letter.to_string().repeat(bytes) }
        };
        let placement = |number| Placement::Channel(ChannelKey::Custom(number));
        let own: Vec<_> = (0..4)
            .map(|number| world.server.spawn_owned(page(0, own_bytes), placement(number), Some(connection)))
            .map(|spawned| spawned.expect("room"))
            .collect();
        let board = Placement::Channel(ChannelKey::Global(0));
        let boards: Vec<_> = (0..2).map(|_| world.server.spawn(page(0, 890), board).expect("room")).collect();
        // A packet takes so many ticks, and nothing waits for more than the five others with one of their own.
        let packet_ticks = 1_248 * 60 / rate + 1;
        let board_interval = 8 * packet_ticks;
        let (mut board_age, mut own_age) = (0, 0);
        for tick in 1..=1_000u32 {
            world.begin_step();
            for &id in &own {
                *world.server.get_mut::<Chat>(id).expect("it is there") = page(tick, own_bytes);
            }
            for &id in boards.iter().filter(|_| tick % board_interval == 0) {
                *world.server.get_mut::<Chat>(id).expect("it is there") = page(tick, 890);
            }
            world.end_step();
            if tick < 120 {
                continue;
            }
            let client = &world.guests[0].client;
            let oldest = |ids: &[ObjectId]| {
                let shown = |&id: &ObjectId| client.get::<Chat>(id).map_or(0, |chat| chat.number);
                tick - ids.iter().map(shown).min().unwrap_or(0)
            };
            own_age = own_age.max(oldest(&own));
            board_age = board_age.max(oldest(&boards));
        }
        println!("{own_bytes} bytes, {rate} B/s: a board is up to {board_age} ticks old, an own object {own_age}");
        assert!(board_age < 2 * board_interval, "{own_bytes} bytes, {rate} B/s: a board is {board_age} ticks old");
        assert!(own_age <= 10 * packet_ticks, "{own_bytes} bytes, {rate} B/s: an own object is {own_age} ticks old");
    }
}
