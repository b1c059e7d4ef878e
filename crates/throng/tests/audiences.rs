//! Messages to many: to all, to the readers of a channel, to clients near a position. Each is encoded once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use throng::schema::{Kind, Values, ValuesMut};
use throng::{
    ChannelKey, ClientEvent, FieldMask, LaneKind, LaneOptions, MessageError, Placement, Queued, Replicate, Schema,
    SendError, ServerEvent,
};
use throng_seeds::for_seeds;
use throng_testkit::{Beacon, Chat, Parcel, Score, Steering};

use crate::harness::{World, WorldOptions};

/// The numbers of the chats that each guest got since the last call.
fn heard(world: &mut World) -> Vec<Vec<u32>> {
    let of = |event: ClientEvent| match event {
        ClientEvent::Message { message, .. } => Some(message.get::<Chat>().expect("a chat").number),
        _ => None,
    };
    world.guests.iter_mut().map(|guest| guest.events.drain(..).filter_map(of).collect()).collect()
}

fn chat(number: u32) -> Chat {
    Chat { number, text: "to whom it concerns".to_owned() }
}

#[test]
fn all_hear_a_broadcast_and_only_its_readers_hear_what_is_sent_to_a_channel() {
    let mut world = World::with_guests(WorldOptions::new(1), 5);
    let team = ChannelKey::Custom(7);
    for guest in [1, 3] {
        world.server.subscribe(world.connection(guest), team, 1).expect("room");
    }
    assert_eq!(world.server.broadcast(0, &chat(1)), Ok(Queued { clients: 5, refused: 0 }));
    assert_eq!(world.server.send_to_channel(team, 0, &chat(2)), Ok(Queued { clients: 2, refused: 0 }));
    world.server.unsubscribe(world.connection(3), team);
    assert_eq!(world.server.send_to_channel(team, 0, &chat(3)), Ok(Queued { clients: 1, refused: 0 }));
    assert_eq!(world.server.send_to_channel(ChannelKey::Custom(8), 0, &chat(4)), Ok(Queued::default()));
    world.steps(10);
    let wanted: [&[u32]; 5] = [&[1], &[1, 2, 3], &[1], &[1, 2], &[1]];
    assert_eq!(heard(&mut world), wanted);
}

#[test]
fn those_who_see_a_cell_are_the_readers_of_its_channel() {
    let mut world = World::with_guests(WorldOptions::new(2), 3);
    for (guest, x_m) in [(0, 4.0), (1, 20.0), (2, 400.0)] {
        world.server.set_viewpoint(world.connection(guest), [x_m, 4.0, 4.0]);
    }
    world.step();
    let cell = ChannelKey::Cell { grid: 0, cell: [0; 3] };
    assert_eq!(world.server.send_to_channel(cell, 0, &chat(1)).expect("good").clients, 2);
    world.steps(10);
    assert_eq!(heard(&mut world), [vec![1], vec![1], vec![]]);
}

#[test]
fn whoever_looks_from_near_a_place_hears_it_and_nobody_else() {
    for_seeds(200, |seed| {
        let mut world = World::with_guests(WorldOptions::new(seed), 6);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut place = || [0.0; 3].map(|_: f64| rng.f64() * 40.0);
        // The last one looks from nowhere.
        let viewpoints: Vec<[f64; 3]> = (0..5).map(|_| place()).collect();
        for (guest, &viewpoint) in viewpoints.iter().enumerate() {
            world.server.set_viewpoint(world.connection(guest), viewpoint);
        }
        for number in 0..10 {
            let (centre, radius_m) = (place(), f64::from(number) * 4.0);
            let away_m = |from: &[f64; 3]| (0..3).map(|axis| (from[axis] - centre[axis]).powi(2)).sum::<f64>().sqrt();
            let near: Vec<bool> = viewpoints.iter().map(|from| away_m(from) <= radius_m).collect();
            let queued = world.server.send_near(centre, radius_m, 1, &chat(number)).expect("a good message");
            assert_eq!(queued.clients, near.iter().filter(|&&near| near).count());
            world.steps(4);
            let heard: Vec<bool> = heard(&mut world).iter().map(|numbers| numbers == &[number]).collect();
            assert_eq!((&heard[..5], heard[5]), (near.as_slice(), false), "message {number}");
        }
        Ok(())
    });
}

#[test]
fn a_message_to_many_that_cannot_be_is_refused_before_anybody_is_sent_it() {
    let mut options = WorldOptions::new(3);
    options.server.lanes = vec![LaneOptions { message_bytes: 100, ..LaneOptions::new(LaneKind::ReliableOrdered) }];
    options.client.lanes = options.server.lanes.clone();
    options.schema = Arc::new(Schema::builder().kind::<Chat>().kind::<Parcel>().build().expect("good kinds"));
    let mut world = World::with_guests(options, 2);
    let no_lane = Err(MessageError::Session(SendError::UnknownLane));
    assert_eq!(world.server.broadcast(1, &chat(1)), no_lane);
    assert_eq!(world.server.broadcast(255, &chat(1)), no_lane);
    assert_eq!(world.server.broadcast(0, &Score::default()), Err(MessageError::UnknownKind));
    let large = Parcel { number: 0, content: vec![0; 200] };
    let refusal = world.server.broadcast(0, &large).expect_err("too large");
    assert!(matches!(refusal, MessageError::Session(SendError::TooLarge { limit: 100, .. })), "{refusal}");
    world.steps(10);
    assert_eq!(heard(&mut world), [Vec::<u32>::new(), Vec::new()]);
    let refused = |world: &World| world.server.limits_reached().find(|(name, _)| *name == "messages_refused");
    assert_eq!(refused(&world), Some(("messages_refused", 0)));
}

#[test]
fn a_client_whose_lane_is_full_is_counted_and_keeps_nobody_else_from_hearing() {
    let mut options = WorldOptions::new(4);
    options.server.lanes[0].queue_messages = 10;
    options.client.lanes[0].queue_messages = 10;
    let mut world = World::with_guests(options, 3);
    // Whom nothing reaches any more, nothing can be taken from the queue of.
    world.guests[1].is_frozen = true;
    let mut refused = 0;
    for number in 0..20 {
        let queued = world.server.broadcast(0, &chat(number)).expect("a good message");
        assert_eq!(queued.clients + queued.refused, 3);
        refused += queued.refused;
        world.steps(3);
    }
    assert_eq!(refused, 10);
    let limits = world.server.limits_reached().find(|(name, _)| *name == "messages_refused");
    assert_eq!(limits, Some(("messages_refused", 10)));
    let all: Vec<u32> = (0..20).collect();
    assert_eq!(heard(&mut world), [all.clone(), vec![], all]);
}

/// Counts how often it is quantised.
#[derive(Default)]
struct Counted(Beacon);

static QUANTISED: AtomicUsize = AtomicUsize::new(0);

impl Replicate for Counted {
    const KIND: &'static str = Beacon::KIND;

    fn kind() -> Kind {
        Beacon::kind()
    }

    fn quantise(&self, to: ValuesMut<'_>) {
        QUANTISED.fetch_add(1, Ordering::Relaxed);
        self.0.quantise(to);
    }

    fn apply(&mut self, mask: FieldMask, from: Values<'_>) {
        self.0.apply(mask, from);
    }
}

#[test]
fn a_message_to_many_is_encoded_once() {
    let mut options = WorldOptions::new(5);
    options.schema = Arc::new(Schema::builder().kind::<Counted>().build().expect("a good kind"));
    let mut world = World::with_guests(options, 20);
    assert_eq!(world.server.broadcast(0, &Counted::default()).expect("a good message").clients, 20);
    assert_eq!(QUANTISED.load(Ordering::Relaxed), 1);
    world.steps(10);
    let came = |event: &ClientEvent| matches!(event, ClientEvent::Message { message, .. } if message.kind().is_some());
    assert!(world.guests.iter().all(|guest| guest.events.iter().filter(|event| came(event)).count() == 1));
}

#[test]
fn a_message_and_an_input_name_their_kind() {
    let mut world = World::with_guests(WorldOptions::new(6), 1);
    let client = &mut world.guests[0].client;
    client.send(0, &chat(3)).expect("connected");
    client.send(0, &Score { points: 5, open: true }).expect("connected");
    client.send_typed_input(&Steering { number: 9, direction: 0.0 }).expect("connected");
    client.send_input(&[0xFF; 3]).expect("connected");
    world.steps(5);
    let mut seen = Vec::new();
    for event in &world.events {
        let ServerEvent::Message { message, .. } = event else { continue };
        match message.kind() {
            Some(Chat::KIND) => seen.push(message.get::<Chat>().expect("a chat").number),
            Some(Score::KIND) => seen.push(message.get::<Score>().expect("a score").points),
            other => panic!("{other:?}"),
        }
        assert!(format!("{message:?}").contains(message.kind().expect("of the schema")));
    }
    assert_eq!(seen, [3, 5]);
    let kinds: Vec<_> = world.inputs.iter().map(|(_, input)| world.server.input_kind(input)).collect();
    assert_eq!(kinds, [Some(Steering::KIND), None]);
}

#[test]
fn counters_and_limits_print_their_names() {
    let mut world = World::with_guests(WorldOptions::new(7), 1);
    world.server.spawn(Score::default(), Placement::Entity).expect("room");
    world.steps(3);
    let door = format!("{:?}", world.server.door_counters());
    assert!(door.contains("\"accepted\": 1") && !door.contains("[0, 0"), "{door}");
}
