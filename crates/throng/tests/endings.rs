//! How connections end, or never begin: both ends learn the right reason.

use std::sync::Arc;
use std::time::Duration;

use crate::harness::{World, WorldOptions};
use throng::net::Condition;
use throng::{
    ClientEvent, CloseCause, CloseCode, ConnectionId, EndReason, Key, OpenError, Replicate, Schema, ServerEvent,
};
use throng_link::netcode::ConnectError;
use throng_testkit::{Score, Walker};

fn end_of(world: &World, guest: usize) -> EndReason {
    let events = &world.guests[guest].events;
    let ends: Vec<&ClientEvent> = events.iter().filter(|event| matches!(event, ClientEvent::Ended(_))).collect();
    assert_eq!(ends.len(), 1, "the end is told once: {events:?}");
    let ClientEvent::Ended(reason) = ends[0] else { unreachable!("filtered") };
    assert_eq!(Some(reason), world.guests[guest].end());
    reason.clone()
}

fn cause_of(world: &World) -> CloseCause {
    let mut causes = world.events.iter().filter_map(|event| match event {
        ServerEvent::Disconnected { cause, .. } => Some(cause.clone()),
        _ => None,
    });
    let cause = causes.next().expect("the server was told");
    assert_eq!(causes.next(), None, "once");
    assert_eq!(world.server.connection_count(), 0);
    cause
}

/// Another kind of the same name.
#[derive(Default, Replicate)]
#[replicate(name = "Score")]
struct OtherScore {
    #[replicate(integer(min = 0, max = 99_999))]
    points: u32,
    #[replicate(bool)]
    open: bool,
}

/// A kind that the server does not know.
#[derive(Default, Replicate)]
struct Novelty {
    #[replicate(bool)]
    shiny: bool,
}

#[test]
fn r27_a_schema_mismatch_names_the_kinds_at_both_ends() {
    let mut options = WorldOptions::new(1);
    options.schema = Arc::new(Schema::builder().kind::<Walker>().kind::<Score>().build().expect("good kinds"));
    let client_options = options.client.clone();
    let mut world = World::new(options);
    let schema = Schema::builder().kind::<Walker>().kind::<OtherScore>().kind::<Novelty>().build().expect("good kinds");
    let token = world.token(9);
    let guest = world.join_with(9, token, Arc::new(schema), client_options);
    world.steps(60);
    let EndReason::Closed(CloseCause::Peer(reason)) = end_of(&world, guest) else {
        panic!("the server closed it: {:?}", end_of(&world, guest));
    };
    assert_eq!(reason.code, CloseCode::INCOMPATIBLE);
    let refusals: Vec<&ServerEvent> = world.events.iter().collect();
    let [ServerEvent::Refused { client_id: 9, error: error @ OpenError::Schema(_) }] = refusals[..] else {
        panic!("one refusal and nothing else: {refusals:?}");
    };
    for text in [error.to_string(), reason.text().to_owned()] {
        assert!(text.contains("Score") && text.contains("Novelty") && !text.contains("Walker"), "{text}");
    }
    assert_eq!(world.server.connection_count(), 0);
}

#[test]
fn a_token_of_another_key_opens_nothing() {
    let mut world = World::new(WorldOptions::new(2));
    let token = world.token_with(1, Key::new([8; 32]));
    let (schema, options) = (world.schema.clone(), WorldOptions::new(2).client);
    let guest = world.join_with(1, token, schema, options);
    world.steps(200);
    assert_eq!(end_of(&world, guest), EndReason::Connect(ConnectError::RequestTimedOut));
    assert!(world.events.is_empty());
    let refused = throng_link::netcode::DropReason::TokenNotAuthentic;
    assert!(world.server.door_counters().dropped(refused) > 10);
}

#[test]
fn a_full_server_says_so() {
    let mut options = WorldOptions::new(3);
    options.server.max_clients = 2;
    let mut world = World::with_guests(options, 2);
    let guest = world.join();
    world.steps(60);
    assert_eq!(end_of(&world, guest), EndReason::Connect(ConnectError::Denied(throng::Denial::Full)));
    assert_eq!(world.server.connection_count(), 2);

    // A seat that becomes free is given to the next client.
    let now = world.now;
    world.guests[0].client.close(now, "bye");
    world.steps(20);
    let late = world.join();
    world.steps(20);
    assert!(world.guests[late].client.is_connected());
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let mut world = World::new(WorldOptions::new(4));
    world.set_condition(Condition::BLACKOUT);
    let guest = world.join();
    world.steps(200);
    assert_eq!(end_of(&world, guest), EndReason::Connect(ConnectError::RequestTimedOut));
}

#[test]
fn silence_ends_a_connection_at_both_ends() {
    let mut world = World::with_guests(WorldOptions::new(5), 1);
    world.set_condition(Condition::BLACKOUT);
    let limit = world.now.after(Duration::from_millis(5_500));
    while world.now < limit {
        world.step();
    }
    assert_eq!(end_of(&world, 0), EndReason::Closed(CloseCause::IdleTimeout));
    assert_eq!(cause_of(&world), CloseCause::IdleTimeout);
}

#[test]
fn a_quiet_connection_stays_open() {
    let mut world = World::with_guests(WorldOptions::new(6), 3);
    world.steps(1_200);
    assert!(world.guests.iter().all(|guest| guest.client.is_connected() && guest.end().is_none()));
    assert_eq!(world.server.connections().count(), 3);
}

#[test]
fn the_server_says_why_it_throws_out() {
    let mut world = World::with_guests(WorldOptions::new(7), 1);
    let (connection, now) = (world.connection(0), world.now);
    world.server.disconnect(connection, now, "cheating at cards");
    world.steps(30);
    let EndReason::Closed(CloseCause::Peer(reason)) = end_of(&world, 0) else { panic!("{:?}", end_of(&world, 0)) };
    assert_eq!((reason.code, reason.text()), (CloseCode::DONE, "cheating at cards"));
    assert!(matches!(cause_of(&world), CloseCause::Local(reason) if reason.text() == "cheating at cards"));
}

#[test]
fn the_client_says_why_it_leaves_over_a_lossy_path() {
    throng_seeds::for_seeds(10, |seed| {
        let mut world = World::with_guests(WorldOptions::new(seed), 1);
        world.set_condition(Condition { loss: 0.3, delay_us: 30_000, ..Condition::NONE });
        let now = world.now;
        world.guests[0].client.close(now, "dinner");
        world.steps(40);
        let EndReason::Closed(CloseCause::Local(reason)) = end_of(&world, 0) else { panic!("{:?}", end_of(&world, 0)) };
        assert_eq!(reason.text(), "dinner");
        assert!(matches!(cause_of(&world), CloseCause::Peer(reason) if reason.text() == "dinner"), "seed {seed}");
    });
}

#[test]
fn a_shutdown_reaches_everybody() {
    let mut world = World::with_guests(WorldOptions::new(8), 5);
    let now = world.now;
    world.server.shut_down(now, "maintenance");
    let ticks = world.steps_until(60, |world| world.server.connection_count() == 0);
    assert!(ticks.is_some());
    world.steps(5);
    for guest in 0..5 {
        let EndReason::Closed(CloseCause::Peer(reason)) = end_of(&world, guest) else { panic!("another end") };
        assert_eq!((reason.code, reason.text()), (CloseCode::SHUTDOWN, "maintenance"));
    }
    assert_eq!(world.server.replicator().hub_ref().frames_held(), 0);
}

/// A client that updates seldom and polls later still: the last words came together with the end.
#[test]
fn the_last_words_of_a_server_are_heard_before_the_end() {
    use std::net::SocketAddr;
    use throng::net::MemoryNetwork;
    use throng::{Client, ClientOptions, Server, ServerOptions, Time};

    let schema = Arc::new(Schema::builder().kind::<Score>().build().expect("good kinds"));
    let network = MemoryNetwork::new(Condition::NONE, 1).expect("no condition");
    let home: SocketAddr = "10.0.0.1:1".parse().expect("an address");
    let options = ServerOptions::new(3, Key::new([3; 32]));
    let issuer = options.token_issuer();
    let driver = network.endpoint(home).expect("free");
    let mut server = Server::new(Box::new(driver), Arc::clone(&schema), options).expect("a server");
    let driver = network.endpoint("10.0.0.2:1".parse().expect("an address")).expect("free");
    let token = issuer.issue(1, &[home]).expect("a token");
    let mut client =
        Client::new(Box::new(driver), token, Arc::clone(&schema), ClientOptions::default(), Time(0)).expect("a client");

    let mut connection = None;
    let mut events = Vec::new();
    for tick in 1..200u64 {
        let now = Time::from_millis(tick * 33);
        server.receive(now).expect("memory does not fail");
        while let Some(event) = server.poll_event() {
            if let ServerEvent::Connected { connection: id, .. } = event {
                connection = Some(id);
            }
        }
        match connection {
            Some(id) if tick == 40 => server.send(id, 0, &Score { points: 7, open: true }).expect("room"),
            // A farewell cuts off what is not sent yet.
            Some(id) if tick == 42 => server.disconnect(id, now, "enough"),
            _ => {}
        }
        server.tick(now);
        // From the farewell on, the client looks at what came only after all of it is there.
        if tick < 40 || tick % 50 == 0 {
            client.update(now).expect("memory does not fail");
        }
    }
    while let Some(event) = client.poll_event() {
        events.push(event);
    }
    assert!(connection.is_some(), "the client was there");
    assert!(matches!(events.last(), Some(ClientEvent::Ended(_))), "{events:?}");
    let score = events.iter().find_map(|event| match event {
        ClientEvent::Message { message, .. } => message.get::<Score>(),
        _ => None,
    });
    assert_eq!(score.map(|score| score.points), Some(7), "{events:?}");
}

/// Time passes, and the server receives. The game polls nothing.
fn receive(world: &mut World) {
    world.now = world.now.after(world.options().server.tick_interval);
    world.server.receive(world.now).expect("the network is in memory");
}

/// The connections of which the game gets inputs after it has polled all events, and how many events are *disconnected*.
fn inputs_after_events(world: &mut World) -> (Vec<ConnectionId>, usize) {
    let mut ends = 0;
    while let Some(event) = world.server.poll_event() {
        ends += usize::from(matches!(event, ServerEvent::Disconnected { .. }));
    }
    (std::iter::from_fn(|| world.server.poll_input()).map(|(connection, _)| connection).collect(), ends)
}

#[test]
fn no_input_of_a_client_comes_after_its_end() {
    let mut world = World::with_guests(WorldOptions::new(31), 2);
    let stays = world.connection(1);
    for guest in &mut world.guests {
        guest.client.send_input(&[1]).expect("connected");
        guest.client.update(world.now).expect("the network is in memory");
    }
    let leaving = &mut world.guests[0].client;
    leaving.close(world.now, "bye");
    leaving.update(world.now).expect("the network is in memory");
    receive(&mut world);
    assert_eq!(inputs_after_events(&mut world), (vec![stays], 1), "the input of the client that stays, and one end");
}

#[test]
fn no_input_of_a_replaced_connection_comes_after_its_end() {
    let mut world = World::with_guests(WorldOptions::new(32), 2);
    let stays = world.connection(1);
    for guest in &mut world.guests {
        guest.client.send_input(&[1]).expect("connected");
        guest.client.update(world.now).expect("the network is in memory");
    }
    receive(&mut world);
    assert_eq!(world.server.records_held().find(|(name, _)| *name == "inputs"), Some(("inputs", 2)), "both wait");
    let (client_id, schema, options) =
        (world.guests[0].client_id, world.schema.clone(), world.options().client.clone());
    let token = world.token(client_id);
    world.join_with(client_id, token, schema, options);
    for _ in 0..20 {
        world.end_step();
        receive(&mut world);
    }
    assert_eq!(inputs_after_events(&mut world), (vec![stays], 1), "the input of the client that stays, and one end");
}
