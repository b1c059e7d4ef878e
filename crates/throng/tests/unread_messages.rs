//! A game that reads no messages for a while: they wait, and the world goes on.

use throng::net::Condition;
use throng::{ChannelKey, ClientEvent, Placement};
use throng_testkit::{Beacon, Chat};

use crate::harness::{World, WorldOptions};

/// Messages that the server sends meanwhile: more than may wait at the client and in the lane together.
const TICKS: u32 = 1_200;
const MESSAGES_PER_TICK: u32 = 4;

#[test]
fn the_world_goes_on_while_the_game_reads_no_messages() {
    for (loss, text_bytes) in [(0.0, 20), (0.0, 700), (0.05, 20)] {
        let mut options = WorldOptions::new(5);
        options.server.client_bytes_per_s = 250_000;
        let mut world = World::with_guests(options, 1);
        let connection = world.connection(0);
        world.server.subscribe(connection, ChannelKey::Global(0), 1).expect("room");
        let beacons: Vec<_> = (0..20)
            .map(|_| world.server.spawn(Beacon::default(), Placement::Channel(ChannelKey::Global(0))).expect("room"))
            .collect();
        let own = world.server.spawn_owned(Beacon::default(), Placement::Entity, Some(connection)).expect("room");
        world.set_condition(Condition { delay_us: 40_000, loss, ..Condition::NONE });
        world.steps(30);
        let mut sent = 0;
        let (mut oldest, mut oldest_own) = (0, 0);
        for tick in 1..=TICKS {
            world.begin_step();
            for &id in beacons.iter().chain([&own]) {
                world.server.get_mut::<Beacon>(id).expect("it is there").number = tick;
            }
            for _ in 0..MESSAGES_PER_TICK {
                let chat = Chat { number: sent, text: "x".repeat(text_bytes) };
                sent += u32::from(world.server.send(connection, 0, &chat).is_ok());
            }
            world.server.tick(world.now);
            let client = &mut world.guests[0].client;
            client.update(world.now).expect("in memory");
            client.send_input(&[tick as u8]).expect("connected");
            let shown = |id| client.get::<Beacon>(id).map_or(0, |beacon| beacon.number);
            if tick > 30 {
                oldest = oldest.max(tick - beacons.iter().map(|&id| shown(id)).min().expect("there are some"));
                oldest_own = oldest_own.max(tick - shown(own));
            }
        }
        let counters = world.guests[0].client.link_statistics().expect("connected").counters;
        println!(
            "loss {loss}, {text_bytes} bytes: state is up to {oldest} ticks old, own state {oldest_own}; {sent} messages \
             queued, {} packets refused; {:?}",
            counters.packets_refused,
            world
                .server
                .link_statistics(connection)
                .map(|link| (link.counters.packets_sent, link.counters.packets_lost))
        );
        assert!(sent < TICKS * MESSAGES_PER_TICK, "the queues are full, or this proves nothing");
        // Two ticks of delay, and what has to be sent again.
        let limit = if loss > 0.0 { 20 } else { 6 };
        assert!(oldest <= limit && oldest_own <= limit, "state is {oldest} ticks old, own state {oldest_own}");
        assert_eq!(world.inputs.last().map(|(_, input)| input.number).unwrap_or(0) / 100, (TICKS - 10) / 100);

        // The game reads again: everything that was queued comes, in order, once.
        world.steps(900);
        let numbers: Vec<u32> = world.guests[0]
            .events
            .iter()
            .filter_map(|event| match event {
                ClientEvent::Message { message, .. } => message.get::<Chat>().map(|chat| chat.number),
                _ => None,
            })
            .collect();
        assert!(numbers.iter().copied().eq(0..sent), "{} of {sent} messages came", numbers.len());
    }
}
