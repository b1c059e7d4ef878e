//! Several engines behind real sockets: the order within each channel, ends, figures, refused combinations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use throng_channeld::client::{Client, ClientOptions};
use throng_channeld::proto::{
    Any, ChannelDataUpdateMessage, ChannelSubscriptionOptions, ChannelType, CreateChannelMessage,
    CreateChannelResultMessage, ListChannelMessage, ListChannelResultMessage, RemoveChannelMessage,
    ServerForwardMessage, SubscribedToChannelMessage,
};
use throng_channeld::{Header, Message, message_type};
use throng_gateway::auth::AcceptAll;
use throng_gateway::serve::{Gateway, Transport};
use throng_gateway::settings;

use crate::serving::{bare, eventually, soon};

const THREADS: &[&str] = &["-engine-threads=3", "-unreal=false", "-cfsm=client_authoratative_fsm.json"];
const ROOMS: usize = 6;
const CLIENTS: usize = 4;
const CALL: u32 = message_type::USER_SPACE_START + 7;

fn gateway() -> Gateway {
    bare(Transport::Tcp, THREADS, Arc::new(AcceptAll), |_| {})
}

/// A world server, and its rooms.
fn world(gateway: &Gateway) -> (Client, Vec<u32>) {
    let mut world = Client::connect(gateway.addresses()[0], ClientOptions::default()).expect("the door is open");
    world.authenticate("world", "", soon()).expect("it is let in");
    let room = |_| {
        let wanted = CreateChannelMessage { channel_type: ChannelType::Subworld.into(), ..Default::default() };
        world.send(Header::new(0, message_type::CREATE_CHANNEL), &wanted).expect("connected");
        let result = world.wait_for(message_type::CREATE_CHANNEL, soon()).expect("an answer");
        result.decode::<CreateChannelResultMessage>().expect("a result").channel_id
    };
    let rooms: Vec<u32> = (0..ROOMS).map(room).collect();
    let homes: std::collections::BTreeSet<u32> = rooms.iter().map(|room| room % 3).collect();
    assert_eq!(homes.len(), 3, "the rooms are spread over all engines: {rooms:?}");
    (world, rooms)
}

fn update(world: &mut Client, room: u32, number: u32) {
    let data = Any::pack(&RemoveChannelMessage { channel_id: number });
    let body = ChannelDataUpdateMessage { data: Some(data), context_conn_id: 0 };
    world.send(Header::new(room, message_type::CHANNEL_DATA_UPDATE), &body).expect("connected");
}

fn subscribe(client: &mut Client, room: u32) {
    let options = ChannelSubscriptionOptions { fan_out_interval_ms: Some(5), ..Default::default() };
    let body = SubscribedToChannelMessage { conn_id: 0, sub_options: Some(options) };
    client.send(Header::new(room, message_type::SUB_TO_CHANNEL), &body).expect("connected");
}

fn number(message: &Message) -> Option<u32> {
    let update: ChannelDataUpdateMessage = message.decode().ok()?;
    RemoveChannelMessage::decode(update.data?.value).ok().map(|body| body.channel_id)
}

/// Reads updates until `last` has come in each room. Each room's numbers never fall.
fn read_updates(client: &mut Client, last: u32) {
    let mut seen = BTreeMap::<u32, u32>::new();
    let deadline = soon();
    while seen.len() < ROOMS || seen.values().any(|&number| number < last) {
        let message = client.poll(deadline).expect("connected").expect("all of it comes");
        if message.msg_type == message_type::CHANNEL_DATA_UPDATE
            && let Some(number) = number(&message)
        {
            let before = seen.insert(message.channel_id, number).unwrap_or(0);
            assert!(before <= number, "room {}: {before} before {number}", message.channel_id);
        }
    }
}

#[test]
fn over_sockets_each_channel_has_its_order_whoever_speaks() {
    let gateway = gateway();
    let (mut world, rooms) = world(&gateway);
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|_| Client::connect(gateway.addresses()[1], ClientOptions::default()).expect("the door is open"))
        .collect();
    let call = |client: &mut Client, number: u32| {
        let body = SubscribedToChannelMessage { conn_id: number, ..Default::default() };
        client.send(Header::new(rooms[number as usize % ROOMS], CALL), &body).expect("connected");
    };
    for client in &mut clients {
        client.authenticate("ada", "", soon()).expect("it is let in");
        rooms.iter().for_each(|&room| subscribe(client, room));
        (1..=30).for_each(|number| call(client, number));
    }
    for step in 1..=60 {
        rooms.iter().for_each(|&room| update(&mut world, room, step));
        for client in &mut clients {
            call(client, 30 + step);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut heard = BTreeMap::<(u32, u32), Vec<u32>>::new();
    let mut count = 0;
    while count < CLIENTS * 90 {
        let message = world.wait_for(CALL, soon()).expect("all of them come");
        let forwarded: ServerForwardMessage = message.decode().expect("wrapped");
        let said = SubscribedToChannelMessage::decode(forwarded.payload).expect("ours");
        heard.entry((forwarded.client_conn_id, message.channel_id)).or_default().push(said.conn_id);
        count += 1;
    }
    assert_eq!(heard.len(), CLIENTS * ROOMS);
    assert!(heard.values().all(|said| said.is_sorted()), "{heard:?}");
    clients.iter_mut().for_each(|client| read_updates(client, 60));
    gateway.shut_down();
}

#[test]
fn the_figures_of_all_engines_are_told_together_and_who_leaves_is_forgotten_by_all() {
    let gateway = gateway();
    let (mut world, rooms) = world(&gateway);
    let mut client = Client::connect(gateway.addresses()[1], ClientOptions::default()).expect("the door is open");
    client.authenticate("ada", "", soon()).expect("it is let in");
    rooms.iter().for_each(|&room| subscribe(&mut client, room));
    rooms.iter().for_each(|&room| update(&mut world, room, 1));
    read_updates(&mut client, 1);
    let report = gateway.report().expect("all answer");
    let subworlds = report.occupancy.channels.get(&(ChannelType::Subworld as i32 as u32));
    let globals = report.occupancy.channels.get(&(ChannelType::Global as i32 as u32));
    assert_eq!((subworlds, globals), (Some(&ROOMS), Some(&1)));
    assert_eq!((report.occupancy.servers, report.occupancy.clients), (1, 1));
    assert_eq!(report.counters.updates, ROOMS as u64);
    assert!(report.counters.delivered_updates >= ROOMS as u64 && report.occupancy.state_bytes > 0);

    // Each engine lists its own rooms.
    client.send(Header::new(0, message_type::LIST_CHANNEL), &ListChannelMessage::default()).expect("connected");
    let mut listed = Vec::new();
    while listed.len() < ROOMS + 1 {
        let list = client.wait_for(message_type::LIST_CHANNEL, soon()).expect("a list");
        let list: ListChannelResultMessage = list.decode().expect("a list");
        listed.extend(list.channels.into_iter().map(|channel| channel.channel_id));
    }
    listed.sort_unstable();
    let mut expected = [&[0], &rooms[..]].concat();
    expected.sort_unstable();
    assert_eq!(listed, expected);

    client.close();
    eventually("the client is forgotten", || gateway.report().is_some_and(|report| report.occupancy.clients == 0));
    // Its subscriptions too, in whatever engine: the owner is told of each end.
    let mut ended = 0;
    while ended < ROOMS {
        world.wait_for(message_type::UNSUB_FROM_CHANNEL, soon()).expect("the owner is told");
        ended += 1;
    }
    gateway.shut_down();
}

#[test]
fn at_the_end_everybody_gets_the_newest_state_of_all_engines() {
    // A busy machine takes long to write the rest.
    let gateway = bare(Transport::Tcp, THREADS, Arc::new(AcceptAll), |options| {
        options.doors[1].limits.flush = Duration::from_secs(10);
        options.drain = Duration::from_secs(10);
    });
    let (mut world, rooms) = world(&gateway);
    let mut client = Client::connect(gateway.addresses()[1], ClientOptions::default()).expect("the door is open");
    client.authenticate("ada", "", soon()).expect("it is let in");
    for &room in &rooms {
        let options = ChannelSubscriptionOptions { fan_out_interval_ms: Some(60_000), ..Default::default() };
        let body = SubscribedToChannelMessage { conn_id: 0, sub_options: Some(options) };
        client.send(Header::new(room, message_type::SUB_TO_CHANNEL), &body).expect("connected");
        update(&mut world, room, 1);
    }
    let all = ROOMS as u64;
    eventually("the states are there", || gateway.report().is_some_and(|report| report.counters.updates >= all));
    rooms.iter().for_each(|&room| update(&mut world, room, 2));
    eventually("the states are newer", || gateway.report().is_some_and(|report| report.counters.updates >= 2 * all));
    std::thread::spawn(move || gateway.shut_down());
    read_updates(&mut client, 2);
}

#[test]
fn what_needs_one_engine_is_refused_at_the_start_with_one_line() {
    let none = |_: &str| Err(std::io::Error::new(std::io::ErrorKind::NotFound, "no such file"));
    let refused = |words: &[&str]| {
        let words = [&["-dev", "-engine-threads=2"], words].concat();
        settings::load_with(words, &none).expect_err("it is refused").to_string()
    };
    let cases: [(&[&str], &str); 5] = [
        (&["-unreal=false", "-scc=world.json"], "-engine-threads and -scc contradict each other"),
        (&["-unreal=false", "-scr"], "-engine-threads and -scr contradict each other"),
        (&[], "add -unreal=false"),
        (&["-unreal=false", "-cn=throng", "-throngkey=key"], "add -movement=none"),
        (&["-unreal=false", "-limit=client_resume_ms=1000"], "-engine-threads and client_resume_ms"),
    ];
    for (words, text) in cases {
        let line = refused(words);
        assert!(line.contains(text) && line.lines().count() == 1, "{words:?}: {line}");
    }
    let sound = ["-dev", "-engine-threads=2", "-unreal=false", "-cn=throng", "-throngkey=key", "-movement=none"];
    assert_eq!(settings::load_with(sound, &none).expect("sound").engine_threads, 2);
}
