//! Typed messages on all lanes, both ways, and inputs that are sent several times.

use crate::harness::{World, WorldOptions};
use throng::net::Condition;
use throng::{ClientEvent, ServerEvent};
use throng_seeds::for_seeds;
use throng_testkit::{Chat, Score, Steering, storm};

const MESSAGES: u32 = 120;

/// The guarantees of each lane.
fn check(lane: u8, numbers: &[u32], sent: u32) -> Result<(), String> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() != numbers.len() {
        return Err(format!("lane {lane} brought a message twice: {numbers:?}"));
    }
    let all = sorted == (0..sent).collect::<Vec<_>>();
    let good = match lane {
        0 => all && numbers.is_sorted(),
        1 => all,
        // Some are lost, none is invented; a path that loses everything does not last for as long as the test.
        _ => sorted.last().is_some_and(|&last| last < sent) && sorted.len() * 5 > sent as usize,
    };
    if good { Ok(()) } else { Err(format!("lane {lane} brought {numbers:?} of {sent}")) }
}

fn text_of(number: u32) -> String {
    // From nothing to several fragments.
    "x".repeat((number as usize * 37) % 900)
}

#[test]
fn r09_every_lane_keeps_its_promise_both_ways() {
    let mut unreliable = 0;
    for_seeds(600, |seed| {
        let mut options = WorldOptions::new(seed);
        options.client.bytes_per_s = 200_000;
        options.server.client_bytes_per_s = 200_000;
        let mut world = World::with_guests(options, 2);
        let mut rng = fastrand::Rng::with_seed(seed);
        let connection = world.connection(1);
        for number in 0..MESSAGES {
            if number % 30 == 0 {
                world.set_condition(storm(&mut rng));
            }
            for lane in 0..3 {
                let chat = Chat { number, text: text_of(number) };
                world.server.send(connection, lane, &chat).map_err(|error| error.to_string())?;
                world.guests[1].client.send(lane, &chat).map_err(|error| error.to_string())?;
            }
            world.step();
        }
        world.set_condition(Condition::NONE);
        world.steps(400);
        let mut up: [Vec<u32>; 3] = Default::default();
        let mut down: [Vec<u32>; 3] = Default::default();
        for event in &world.events {
            if let ServerEvent::Message { connection: from, lane, message } = event {
                let chat: Chat = message.get().ok_or("a message of another type")?;
                assert_eq!(message.get::<Score>(), None);
                assert_eq!((*from, &chat.text), (connection, &text_of(chat.number)));
                up[usize::from(*lane)].push(chat.number);
            }
        }
        for event in &world.guests[1].events {
            if let ClientEvent::Message { lane, message } = event {
                let chat: Chat = message.get().ok_or("a message of another type")?;
                assert_eq!(chat.text, text_of(chat.number));
                down[usize::from(*lane)].push(chat.number);
            }
        }
        for lane in 0..3 {
            check(lane, &up[usize::from(lane)], MESSAGES).map_err(|error| format!("up: {error}"))?;
            check(lane, &down[usize::from(lane)], MESSAGES).map_err(|error| format!("down: {error}"))?;
        }
        unreliable += up[2].len() + down[2].len();
        Ok(())
    });
    assert!(unreliable > 5_000 || throng_seeds::is_partial(), "the unreliable lane brings {unreliable} messages");
}

#[test]
fn on_a_path_that_loses_nothing_every_lane_brings_everything() {
    let mut world = World::with_guests(WorldOptions::new(1), 1);
    world.set_condition(Condition { delay_us: 30_000, ..Condition::NONE });
    let connection = world.connection(0);
    for number in 0..MESSAGES {
        for lane in 0..3 {
            let chat = Chat { number, text: text_of(number % 10) };
            world.server.send(connection, lane, &chat).expect("room");
            world.guests[0].client.send(lane, &chat).expect("room");
        }
        world.step();
    }
    world.steps(60);
    let up = |lane: u8| {
        let came = |event: &ServerEvent| match event {
            ServerEvent::Message { lane: from, message, .. } if *from == lane => message.get::<Chat>(),
            _ => None,
        };
        world.events.iter().filter_map(came).map(|chat| chat.number).collect::<Vec<_>>()
    };
    let down = |lane: u8| {
        let came = |event: &ClientEvent| match event {
            ClientEvent::Message { lane: from, message } if *from == lane => message.get::<Chat>(),
            _ => None,
        };
        world.guests[0].events.iter().filter_map(came).map(|chat| chat.number).collect::<Vec<_>>()
    };
    let all: Vec<u32> = (0..MESSAGES).collect();
    for lane in 0..3 {
        assert_eq!((up(lane), down(lane)), (all.clone(), all.clone()), "lane {lane}");
    }
}

#[test]
fn a_lane_that_does_not_exist_and_a_type_that_is_unknown_are_errors() {
    let mut world = World::with_guests(WorldOptions::new(1), 1);
    let connection = world.connection(0);
    let chat = Chat::default();
    assert!(world.server.send(connection, 3, &chat).is_err());
    assert!(world.server.send(connection, 255, &chat).is_err());
    assert!(world.guests[0].client.send(3, &chat).is_err());
    assert!(world.guests[0].client.send(255, &chat).is_err());
    let gone = throng::ConnectionId { index: 0, generation: connection.generation + 1 };
    assert_eq!(world.server.send(gone, 0, &chat).unwrap_err(), throng::MessageError::UnknownConnection);
    world.steps(10);
    assert_eq!(world.server.connections().count(), 1);
}

/// How many of `count` inputs arrive over a path that loses 20 %, each sent `redundancy` times.
fn inputs_arrived(seed: u64, redundancy: usize, count: u32) -> usize {
    let mut options = WorldOptions::new(seed);
    options.server.input_redundancy = redundancy;
    options.client.input_redundancy = redundancy;
    let mut world = World::with_guests(options, 1);
    let delayed = Condition { loss: 0.2, delay_us: 40_000, jitter_us: 20_000, duplicate: 0.1, ..Condition::NONE };
    world.set_condition(delayed);
    let first = world.guests[0].client.send_typed_input(&Steering::default()).expect("connected") + 1;
    for number in 0..count {
        let steering = Steering { number, direction: 1.0 };
        assert_eq!(world.guests[0].client.send_typed_input(&steering), Ok(first + number));
        world.step();
    }
    world.set_condition(Condition::NONE);
    world.steps(30);
    let mut newest = None;
    for (connection, input) in &world.inputs {
        assert_eq!(*connection, world.connection(0));
        assert!(newest.is_none_or(|newest| input.number > newest), "in order, each once");
        newest = Some(input.number);
        let steering: Steering = world.server.read_input(input).expect("a steering");
        assert!(input.number == 0 || steering.number == input.number - first);
    }
    world.inputs.len()
}

#[test]
fn inputs_survive_losses_by_being_sent_again() {
    for_seeds(100, |seed| {
        let (once, often) = (inputs_arrived(seed, 1, 300), inputs_arrived(seed, 4, 300));
        // With four chances each, one in 625 is lost; with one, one in five.
        if !(once < 275 && often >= 292) {
            return Err(format!("{once} arrive when sent once, {often} when sent four times"));
        }
        Ok(())
    });
}

#[test]
fn a_client_learns_which_of_its_inputs_are_in_the_state() {
    let mut world = World::with_guests(WorldOptions::new(2), 1);
    let connection = world.connection(0);
    assert_eq!(world.guests[0].client.input_acked(), None);
    for number in 0..80 {
        if number < 40 {
            assert_eq!(world.guests[0].client.send_input(&[1, 2, 3]), Ok(number));
        }
        world.begin_step();
        for (_, input) in world.inputs.drain(..) {
            assert_eq!(input.bytes(), [1, 2, 3]);
            world.server.acknowledge_input(connection, input.number);
        }
        world.end_step();
    }
    assert_eq!(world.guests[0].client.input_acked(), Some(39));
    assert!(world.guests[0].client.send_input(&[0; 300]).is_err());
}
