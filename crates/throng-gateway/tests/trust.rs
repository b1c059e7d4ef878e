//! Privileges of world servers, which clients do not have: a world depends on each server's connection.

use std::sync::Arc;
use std::time::Duration;

use crate::serving::{ECHO, bare, eventually, soon};
use crate::stage::{Stage, settings};
use throng_channeld::client::{Client, ClientOptions};
use throng_channeld::proto::{ChannelType, CreateChannelMessage, ListChannelMessage};
use throng_channeld::{Header, message_type};
use throng_gateway::auth::AcceptAll;
use throng_gateway::serve::{Reason, Transport};
use throng_gateway_engine::port::{EndCause, Outbox, Side};

/// Subscribing: what clients' usual machine forbids.
const SUBSCRIBE: u32 = message_type::SUB_TO_CHANNEL;

#[test]
fn a_client_that_asks_too_early_now_and_then_stays_and_one_that_does_it_all_the_time_goes() {
    let mut stage = Stage::new(settings(&["-dev"]));
    let (_master, patient, hasty) =
        (stage.master(), stage.join_as(Side::Client, "a"), stage.join_as(Side::Client, "b"));
    for _ in 0..40 {
        stage.say_bytes(&patient, Header::new(0, SUBSCRIBE), "");
        stage.pass(1_500);
    }
    assert_eq!(stage.refused("state_machine"), 40);
    assert!(!patient.is_closed(), "a mistake in a while is forgotten");
    for _ in 0..10 {
        assert!(!hasty.is_closed());
        stage.say_bytes(&hasty, Header::new(0, SUBSCRIBE), "");
        stage.pass(50);
    }
    assert!(hasty.is_closed());
}

#[test]
fn a_server_is_not_ended_for_what_its_machine_forbids_unless_nobody_knows_who_it_is() {
    let mut stage = Stage::new(settings(&["-dev"]));
    let (server, stranger) = (stage.master(), stage.connect(Side::Server));
    for _ in 0..200 {
        stage.say_bytes(&server, Header::new(0, message_type::AUTH), "");
        stage.say_bytes(&stranger, Header::new(0, SUBSCRIBE), "");
    }
    assert!(!server.is_closed() && stranger.is_closed());
    assert!(stage.refused("state_machine") >= 200, "it is counted all the same");
}

/// Goes nowhere.
struct Nowhere;

impl Outbox for Nowhere {
    fn queued_bytes(&self) -> usize {
        0
    }

    fn send(&self, entries: &mut Vec<u8>) {
        entries.clear();
    }

    fn close(&self) {}
}

/// How many of `count` connections find room.
fn open(stage: &mut Stage, side: Side, count: usize) -> usize {
    let address = "203.0.113.1:40000".parse().expect("an address");
    (0..count).filter(|_| stage.engine.open(stage.now, side, address, Box::new(Nowhere)).is_ok()).count()
}

#[test]
fn clients_cannot_take_the_places_of_servers() {
    let limits = ["-dev", "-limit", "max_connections=20", "-limit", "reserved_server_connections=6"];
    let mut stage = Stage::new(settings(&limits));
    assert_eq!(open(&mut stage, Side::Server, 2), 2);
    assert_eq!(open(&mut stage, Side::Client, 100), 14, "those of two servers are taken, four are kept for others");
    assert_eq!(open(&mut stage, Side::Server, 100), 4);
    assert_eq!(stage.refused("connections"), 86 + 96);
}

#[test]
fn clients_cannot_take_all_connection_ids() {
    let mut stage = Stage::new(settings(&["-dev", "-mcb=8", "-limit", "reserved_server_connections=10"]));
    assert_eq!(open(&mut stage, Side::Client, 1_000), 245);
    assert_eq!(open(&mut stage, Side::Server, 1_000), 10);
    assert_eq!(stage.refused("connection_ids"), 755 + 990);
}

#[test]
fn the_reserve_is_never_more_than_half() {
    let mut stage = Stage::new(settings(&["-dev", "-limit", "max_connections=8"]));
    assert_eq!(open(&mut stage, Side::Client, 100), 4);
}

#[test]
fn a_server_that_hangs_comes_back_as_who_it_was() {
    for stalls in [true, false] {
        let mut stage = Stage::new(settings(&["-dev", "-scr", "-limit", "max_slow_ms=1000"]));
        let master = stage.master();
        match stalls {
            true => {
                master.stall(5 << 20);
                // Queues do not grow by themselves: it is noticed when the server is sent something.
                stage.say(&master, Header::new(0, message_type::LIST_CHANNEL), &ListChannelMessage::default());
                stage.pass(2_000);
            }
            false => stage.drop_connection(&master, EndCause::Stalled),
        }
        assert!(master.is_closed());
        let mut back = stage.connect(Side::Server);
        let answer = stage.authenticate(&mut back, "server");
        assert!(answer.should_recover && back.id == master.id, "{answer:?}");
    }
}

#[test]
fn a_server_over_its_queue_bound_is_lost_and_recovered() {
    let gateway = bare(Transport::Tcp, &["-scr"], Arc::new(AcceptAll), |options| {
        options.doors[0].limits.queued_bytes = 256 << 10;
        (options.doors[1].limits.messages_per_s, options.doors[1].limits.bytes_per_s) = (0, 0);
    });
    let (servers, clients) = (gateway.addresses()[0], gateway.addresses()[1]);
    let mut hangs = Client::connect(servers, ClientOptions::default()).expect("open");
    let id = hangs.authenticate("world", "", soon()).expect("let in").conn_id;
    let create = CreateChannelMessage { channel_type: ChannelType::Global.into(), ..Default::default() };
    hangs.send(Header::new(0, message_type::CREATE_CHANNEL), &create).expect("connected");
    hangs.wait_for(message_type::CREATE_CHANNEL, soon()).expect("it owns the world");
    let mut client = Client::connect(clients, ClientOptions::default()).expect("open");
    client.authenticate("player", "", soon()).expect("let in");
    let is_too_slow = || gateway.counters().of(Side::Server).refused(Reason::TooSlow) == 1;
    eventually("the server is given up", || {
        client.send_bytes(Header::new(0, ECHO), &[7; 50_000]).expect("the client stays");
        is_too_slow()
    });
    eventually("its place is kept", || {
        let mut back = Client::connect(servers, ClientOptions::default()).expect("open");
        let answer = back.authenticate("world", "", soon()).expect("let in");
        std::thread::sleep(Duration::from_millis(20));
        answer.should_recover && answer.conn_id == id
    });
    gateway.shut_down();
}
