//! An end whose game leaves messages unread asks for no more of them, and takes them again later.

use std::sync::Arc;

use throng_link::session::{Envelope, LaneId, Rest, Session, SessionOptions};
use throng_wire::{Tick, Time};

use crate::session_pair::{CLIENT, Link, Pair, SERVER, number_of, numbered};

const LINK: Link = Link {
    delay_ms: 20,
    jitter_ms: 0,
    loss_percent: 0,
    duplicate_percent: 0,
    rate_bytes_per_s: 0,
    queue_ms: 0,
    longest_bytes: 0,
};

fn options() -> SessionOptions {
    SessionOptions { inbox_messages: 64, ..SessionOptions::default() }
}

#[test]
fn state_that_fills_packets_does_not_invite_messages_to_a_full_inbox() {
    let mut pair = Pair::new(1, options(), LINK);
    let server = &mut pair.ends[SERVER];
    (server.is_reading, server.offered_bytes, server.offered_as) = (false, 900, Rest::Large);
    for number in 0..1000 {
        // Once the client knows, its queue fills.
        let _ = pair.ends[CLIENT].session.send(LaneId(0), &numbered(number, 100));
        pair.step();
    }
    let refused = pair.ends[SERVER].session.statistics().counters.packets_refused;
    assert!(refused <= 2, "{refused} packets came in vain");
}

#[test]
fn messages_go_on_soon_although_the_packet_that_invites_them_is_lost() {
    let mut pair = Pair::new(1, options(), LINK);
    pair.ends[SERVER].is_reading = false;
    for number in 0..100 {
        pair.ends[CLIENT].session.send(LaneId(0), &numbered(number, 100)).expect("there is room");
        pair.step();
    }
    pair.run(2);
    (pair.ends[SERVER].is_reading, pair.ends[SERVER].link.loss_percent) = (true, 100);
    pair.step();
    let (began, read) = (pair.now, pair.ends[SERVER].messages.len());
    assert!(read < 64, "{read} messages came to an inbox for 64");
    pair.ends[SERVER].link = LINK;
    assert!(pair.run_until(5, |pair| pair.ends[SERVER].messages.len() > read), "messages never come again");
    let waited_ms = pair.now.micros_since(began) / 1000;
    assert!(waited_ms <= 300, "messages came again after {waited_ms} ms");
    assert!(pair.run_until(1, |pair| pair.ends[SERVER].messages.len() == 100), "messages are missing");
}

#[test]
fn an_older_packet_that_comes_late_does_not_stop_messages_again() {
    let options = Arc::new(SessionOptions { inbox_messages: 1, ..SessionOptions::default() });
    let mut server = Session::new(Arc::clone(&options), Time(0)).expect("good options");
    let mut client = Session::new(options, Time(0)).expect("good options");
    let mut now = Time(0);
    let mut send = |session: &mut Session, sequence| {
        now = Time(now.0 + 10_000);
        let mut payload = Vec::new();
        let plan = session.poll_packet(now, Envelope::bare(sequence), Rest::Empty)?;
        plan.begin(Tick(0), &mut payload).finish();
        Some((now, payload))
    };
    client.send(LaneId(0), b"first").expect("there is room");
    let (now, first) = send(&mut client, 0).expect("there is a message");
    server.handle_packet(now, 0, &first).expect("it is honest");
    let (_, stop) = send(&mut server, 0).expect("the inbox is full");
    assert!(server.poll_message().is_some());
    let (now, go) = send(&mut server, 1).expect("the inbox is empty");
    client.handle_packet(now, 1, &go).expect("it is honest");
    client.handle_packet(now, 0, &stop).expect("it is honest");
    client.send(LaneId(0), b"second").expect("there is room");
    let (now, second) = send(&mut client, 1).expect("there is a message");
    server.handle_packet(now, 1, &second).expect("it is honest");
    assert_eq!(server.poll_message(), Some((LaneId(0), b"second".to_vec())));
}

#[test]
fn unreliable_messages_that_were_held_back_are_not_stale_when_they_come() {
    let mut pair = Pair::new(1, options(), LINK);
    pair.ends[SERVER].is_reading = false;
    for number in 0..300 {
        pair.ends[CLIENT].session.send(LaneId(2), &numbered(number, 100)).expect("older ones give way");
        pair.step();
    }
    pair.ends[SERVER].is_reading = true;
    pair.step();
    let unread = pair.ends[SERVER].messages.len();
    pair.run(1);
    let numbers: Vec<_> = pair.ends[SERVER].messages[unread..].iter().map(|(_, bytes)| number_of(bytes)).collect();
    assert_eq!(numbers, [299]);
}
