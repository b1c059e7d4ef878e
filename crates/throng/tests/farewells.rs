//! Either end can leave after everything has arrived, within a given time.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use throng::net::Condition;
use throng::{
    ClientEvent, Clock, CloseCause, EndReason, ReceiveError, Schema, Server, ServerEvent, ServerOptions, Time,
    random_key,
};
use throng_seeds::for_seeds;
use throng_testkit::{Chat, storm};

use crate::harness::{World, WorldOptions};

const MESSAGES: u32 = 60;

fn say_all(mut say: impl FnMut(&Chat)) {
    (0..MESSAGES).for_each(|number| say(&Chat { number, text: "x".repeat(500) }));
}

fn limit(world: &World, name: &str) -> u64 {
    world.server.limits_reached().find(|(limit, _)| *limit == name).expect("a limit of that name").1
}

#[test]
fn what_a_server_said_before_it_disconnected_after_flush_arrives_in_any_weather() {
    for_seeds(200, |seed| {
        let mut world = World::with_guests(WorldOptions::new(seed), 2);
        world.set_condition(storm(&mut fastrand::Rng::with_seed(seed)));
        let connection = world.connection(0);
        say_all(|chat| world.server.send(connection, 0, chat).expect("room"));
        world.server.disconnect_after_flush(connection, world.now, "done", Duration::from_secs(60));
        // The second call changes nothing.
        world.server.disconnect_after_flush(connection, world.now, "other", Duration::ZERO);
        world.steps_until(2_000, |world| world.guests[0].connection.is_none()).ok_or("it does not end")?;
        world.set_condition(Condition::NONE);
        world.steps(60);
        let of = |event: &ClientEvent| match event {
            ClientEvent::Message { message, .. } => Some(message.get::<Chat>().expect("a chat").number),
            _ => None,
        };
        let heard: Vec<u32> = world.guests[0].events.iter().filter_map(of).collect();
        assert_eq!(heard, (0..MESSAGES).collect::<Vec<_>>());
        // The storm may swallow all packets that tell why.
        if let Some(EndReason::Closed(CloseCause::Peer(reason))) = world.guests[0].end() {
            assert!(["done", "disconnected"].contains(&reason.text()), "{reason}");
        }
        assert_eq!(limit(&world, "flushes_timed_out"), 0);
        Ok(())
    });
}

#[test]
fn what_a_client_said_before_it_closed_after_flush_arrives_in_any_weather() {
    let mut cut_off = 0;
    for_seeds(200, |seed| {
        let mut world = World::with_guests(WorldOptions::new(seed), 1);
        world.set_condition(storm(&mut fastrand::Rng::with_seed(seed)));
        let (client, now) = (&mut world.guests[0].client, world.now);
        say_all(|chat| client.send(0, chat).expect("room"));
        client.close_after_flush(now, "done", Duration::from_secs(60));
        client.close_after_flush(now, "other", Duration::ZERO);
        assert!(!client.is_over());
        world.steps_until(2_000, |world| world.guests[0].client.is_over()).ok_or("it does not end")?;
        world.set_condition(Condition::NONE);
        world.steps_until(200, |world| world.server.connection_count() == 0).ok_or("the server keeps it")?;
        if matches!(world.guests[0].client.end_reason(), Some(EndReason::Closed(CloseCause::IdleTimeout))) {
            // The storm let nothing through for as long as a connection lives in silence.
            cut_off += 1;
            return Ok(());
        }
        let of = |event: &ServerEvent| match event {
            ServerEvent::Message { message, .. } => Some(message.get::<Chat>().expect("a chat").number),
            _ => None,
        };
        let heard: Vec<u32> = world.events.iter().filter_map(of).collect();
        assert_eq!(heard, (0..MESSAGES).collect::<Vec<_>>());
        Ok(())
    });
    assert!(cut_off <= 2, "{cut_off} connections were cut off");
}

#[test]
fn an_end_that_cannot_be_flushed_comes_when_its_time_is_over() {
    let mut options = WorldOptions::new(1);
    options.server.idle_timeout = Duration::from_secs(20);
    options.client.idle_timeout = Duration::from_secs(20);
    let mut world = World::with_guests(options, 2);
    let (connection, begin) = (world.connection(0), world.now);
    world.set_condition(Condition { loss: 1.0, ..Condition::NONE });
    world.server.send(connection, 0, &Chat::default()).expect("room");
    world.server.disconnect_after_flush(connection, begin, "done", Duration::from_secs(2));
    world.guests[1].client.send(0, &Chat::default()).expect("room");
    world.guests[1].client.close_after_flush(begin, "done", Duration::from_secs(3));
    world.steps_until(300, |world| world.guests[0].connection.is_none()).expect("the server ends it");
    let took = world.now.since(begin);
    assert!((Duration::from_secs(2)..Duration::from_millis(2_600)).contains(&took), "{took:?}");
    assert_eq!(limit(&world, "flushes_timed_out"), 1);
    world.steps_until(300, |world| world.guests[1].client.is_over()).expect("the client ends");
    let took = world.now.since(begin);
    assert!((Duration::from_secs(3)..Duration::from_millis(3_600)).contains(&took), "{took:?}");
    let reason = world.guests[1].end().expect("it is over");
    assert!(matches!(reason, EndReason::Closed(CloseCause::Local(reason)) if reason.text() == "done"), "{reason}");
}

#[test]
fn nothing_to_flush_ends_at_once_and_so_does_a_client_that_is_not_connected() {
    let mut world = World::with_guests(WorldOptions::new(2), 2);
    world.steps(5);
    let connection = world.connection(0);
    world.server.disconnect_after_flush(connection, world.now, "done", Duration::from_secs(60));
    let now = world.now;
    world.guests[1].client.close_after_flush(now, "bye", Duration::from_secs(60));
    world.steps_until(10, |world| world.guests.iter().all(|guest| guest.connection.is_none())).expect("both end");
    world.steps(10);
    let last = world.guests.iter().map(|guest| guest.end().expect("it is over").to_string()).collect::<Vec<_>>();
    assert!(last[0].contains("done") && last[1].contains("bye"), "{last:?}");

    let early = world.join();
    world.guests[early].client.close_after_flush(world.now, "changed my mind", Duration::from_secs(60));
    assert!(world.guests[early].client.is_over());
}

#[test]
fn the_game_hears_all_that_a_client_said_before_it_left_however_little_may_wait() {
    let mut options = WorldOptions::new(3);
    options.server.waiting_messages = 10;
    options.client.bytes_per_s = 10_000_000;
    let mut world = World::with_guests(options, 1);
    world.steps(10);
    let (client, now) = (&mut world.guests[0].client, world.now);
    say_all(|chat| client.send(1, chat).expect("room"));
    client.close_after_flush(now, "done", Duration::from_secs(10));
    // The game is busy: all of it is there, and the good-bye too, before it polls.
    for _ in 0..30 {
        world.now = world.now.after(Duration::from_millis(33));
        world.server.receive(world.now).expect("the network is in memory");
        world.server.tick(world.now);
        world.guests[0].client.update(world.now).expect("the network is in memory");
    }
    world.steps(20);
    assert_eq!(world.server.connection_count(), 0);
    let heard = world.events.iter().filter(|event| matches!(event, ServerEvent::Message { .. })).count();
    assert_eq!(heard, MESSAGES as usize);
    let last = world.events.last().expect("events");
    assert!(matches!(last, ServerEvent::Disconnected { .. }), "{last:?}");
}

/// A server of empty ticks on a real socket.
fn idle_server(tick_interval: Duration) -> Server {
    let schema = Arc::new(Schema::builder().build().expect("no kinds"));
    let options = ServerOptions { tick_interval, ..ServerOptions::new(1, random_key()) };
    Server::bind("127.0.0.1:0".parse().expect("an address"), schema, options).expect("a socket")
}

#[test]
fn a_server_that_runs_keeps_the_times_of_its_ticks_and_ends_when_the_game_says_so() {
    let mut server = idle_server(Duration::from_millis(5));
    let clock = Clock::start();
    let begin = clock.now();
    let mut times: Vec<Time> = Vec::new();
    let ran = server.run(&clock, |server, now| {
        assert_eq!(server.current_tick().0, times.len() as u64 + 1);
        times.push(now);
        // One tick takes as long as two.
        if times.len() == 5 {
            std::thread::sleep(Duration::from_millis(8));
        }
        Ok::<_, ReceiveError>(if times.len() < 20 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    });
    assert!(ran.is_ok());
    // A machine that is busy makes ticks late, never early.
    for (number, time) in times.iter().enumerate() {
        assert!(time.since(begin) >= Duration::from_millis(5) * number as u32, "{begin:?}: {times:?}");
    }
    let gap_after_the_long_one = times[5].since(times[4]);
    assert!(gap_after_the_long_one >= Duration::from_millis(8), "{times:?}");
}

#[test]
fn a_game_that_fails_ends_the_run_with_its_error() {
    #[derive(Debug, PartialEq)]
    struct Broken;
    impl From<ReceiveError> for Broken {
        fn from(_: ReceiveError) -> Broken {
            Broken
        }
    }
    let mut server = idle_server(Duration::from_millis(1));
    assert_eq!(server.run(&Clock::start(), |_, _| Err(Broken)), Err(Broken));
    assert_eq!(server.current_tick().0, 2, "the tick was ended");
}
