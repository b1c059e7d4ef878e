//! Sessions end with a reason, or by silence.

use std::sync::Arc;
use std::time::Duration;

use crate::session_pair::{CLIENT, Link, Pair, SERVER, packet};
use throng_link::session::{
    CLOSE_INTERVAL, CLOSE_PACKETS, CloseCause, CloseCode, CloseReason, Delivery, Envelope, LaneId, Rest, SendError,
    Session, SessionOptions,
};
use throng_wire::{Tick, Time};

#[test]
fn the_reason_of_a_close_arrives_even_when_half_of_the_packets_do_not() {
    let (mut arrived, mut played) = (0, 0);
    throng_seeds::for_seeds(1_000, |seed| {
        played += 1;
        let mut pair =
            Pair::new(seed, SessionOptions::default(), Link { delay_ms: 30, loss_percent: 50, ..Link::default() });
        pair.run(1);
        let reason = CloseReason::new(CloseCode(300), "the match is over");
        pair.ends[SERVER].session.close(pair.now, reason.clone());
        assert_eq!(pair.ends[SERVER].session.send(LaneId(0), b"too late"), Err(SendError::Closed));
        pair.run(2);
        assert_eq!(pair.ends[SERVER].close, Some(CloseCause::Local(reason.clone())));
        match pair.ends[CLIENT].close.take() {
            Some(cause) => {
                assert_eq!(cause, CloseCause::Peer(reason));
                arrived += 1;
            }
            None => assert!(pair.run_until(12, |pair| pair.ends[CLIENT].close == Some(CloseCause::IdleTimeout))),
        }
    });
    assert!(arrived * 10 > played * 9 || throng_seeds::is_partial(), "{arrived} of {played}");
}

#[test]
fn an_end_that_stops_is_noticed_by_the_other() {
    let mut pair = Pair::new(1, SessionOptions::default(), Link { delay_ms: 30, ..Link::default() });
    pair.ends[SERVER].offered_bytes = 300;
    pair.run(20);
    assert!(pair.ends.iter().all(|end| end.close.is_none()));
    pair.ends[CLIENT].is_running = false;
    pair.run(9);
    assert_eq!(pair.ends[SERVER].close, None);
    pair.run(2);
    assert_eq!(pair.ends[SERVER].close, Some(CloseCause::IdleTimeout));
    assert_eq!(pair.ends[SERVER].verdicts.len(), pair.ends[SERVER].sent.len());
}

#[test]
fn two_idle_ends_keep_each_other_alive_with_a_packet_a_second() {
    // The end with the longer interval never has to ask.
    let patient = SessionOptions { keep_alive_interval: Duration::from_millis(1_500), ..SessionOptions::default() };
    let mut pair = Pair::new(1, patient, Link { delay_ms: 30, ..Link::default() });
    pair.ends[CLIENT].session = Session::new(Arc::new(SessionOptions::default()), pair.now).expect("good options");
    pair.run(60);
    for end in &pair.ends {
        assert_eq!(end.close, None);
        assert!((50..65).contains(&end.sent.len()), "{} packets", end.sent.len());
    }
}

#[test]
fn a_closed_session_takes_and_gives_nothing() {
    let mut pair = Pair::new(1, SessionOptions::default(), Link::default());
    pair.ends[CLIENT].session.close(pair.now, CloseReason::new(CloseCode::DONE, ""));
    pair.run(1);
    let (now, session) = (pair.now, &mut pair.ends[SERVER].session);
    assert!(session.is_closed() && session.next_deadline().is_none());
    assert_eq!(session.handle_packet(now, 1_000, &[0, 0, 0, 0, 0]), Ok(None));
    assert!(session.poll_packet(now, Envelope::bare(1_000), Rest::Waiting).is_none());
}

#[test]
fn the_deadline_is_when_something_happens_and_not_before() {
    let mut pair = Pair::new(1, SessionOptions::default(), Link { delay_ms: 30, ..Link::default() });
    for _ in 0..3000 {
        for end in &mut pair.ends {
            let is_later = end.session.next_deadline().is_some_and(|deadline| deadline > pair.now);
            let plan = end.session.poll_packet(pair.now, Envelope::bare(end.next_sequence), Rest::Empty);
            assert_eq!(is_later, plan.is_none(), "deadline and packet differ at {:?}", pair.now);
        }
        pair.step();
    }
}

#[test]
fn a_game_that_reads_no_messages_for_a_minute_stays_connected_and_knows_what_has_arrived() {
    let options = Arc::new(SessionOptions { inbox_messages: 1, ..SessionOptions::default() });
    let mut server = Session::new(Arc::clone(&options), Time(0)).expect("good options");
    let mut client = Session::new(options, Time(0)).expect("good options");
    let now = Time(10_000);
    let mut told = Vec::new();
    // Both packets leave before the client knows that its game reads nothing.
    let asked = [0, 1].map(|sequence| packet(&mut client, now, sequence, 0));
    for (sequence, asked) in (0..).zip(asked) {
        server.handle_packet(now, sequence, &asked).expect("it is honest");
        server.send(LaneId(0), b"news").expect("room");
        told = packet(&mut server, now, sequence, 0);
        client.handle_packet(now, sequence, &told).expect("it is honest");
        assert_eq!(client.statistics().counters.packets_refused, sequence);
        assert_eq!(client.poll_delivery(), Some((sequence, Delivery::Delivered)), "the packet acknowledges it");
    }
    for second in 2..60 {
        let now = Time::from_secs(second);
        client.handle_packet(now, second, &told).expect("it is honest");
        client.handle_timeout(now);
        assert_eq!(client.poll_close(), None, "after {second} s");
    }
    assert_eq!(client.poll_message(), Some((LaneId(0), b"news".to_vec())));
    client.handle_packet(Time::from_secs(60), 60, &told).expect("there is room again");
    assert_eq!(client.poll_message(), Some((LaneId(0), b"news".to_vec())));
}

#[test]
fn a_reason_is_sent_at_once_although_as_many_packets_are_under_way_as_may_be() {
    let options = SessionOptions { max_in_flight: 16, rate_bytes_per_s: 10_000_000, ..SessionOptions::default() };
    let mut session = Session::new(Arc::new(options), Time(0)).expect("good options");
    let now = Time::from_secs(1);
    session.push_input(b"left").expect("it is open");
    let mut sequence = 0;
    while let Some(plan) = session.poll_packet(now, Envelope::bare(sequence), Rest::Waiting) {
        plan.begin(Tick(0), &mut Vec::new()).finish();
        session.push_input(b"left").expect("it is open");
        sequence += 1;
    }
    assert_eq!(session.statistics().packets_in_flight, 16, "nothing is acknowledged");
    session.close(now, CloseReason::new(CloseCode::DONE, "bye"));
    for count in 0..u32::from(CLOSE_PACKETS) {
        let at = now.after(CLOSE_INTERVAL * count);
        assert_eq!(session.next_deadline(), Some(at));
        let farewell = packet(&mut session, at, sequence, 0);
        assert!(farewell.ends_with(b"bye"), "{farewell:?}");
        assert!(session.poll_packet(at, Envelope::bare(sequence + 1), Rest::Waiting).is_none());
        sequence += 1;
    }
    assert!(session.is_closed());
    assert_eq!(std::iter::from_fn(|| session.poll_delivery()).count() as u64, sequence);
}

#[test]
fn the_timeout_of_a_connect_token_counts_if_it_is_the_shorter_one() {
    let ends_at_s = |timeout_s: Option<u64>| {
        let mut session = Session::new(Arc::new(SessionOptions::default()), Time(0)).expect("good options");
        session.follow_handshake(Duration::from_millis(40), timeout_s.map(Duration::from_secs));
        (0..60).find(|&second| {
            session.handle_timeout(Time::from_secs(second));
            session.poll_close() == Some(CloseCause::IdleTimeout)
        })
    };
    assert_eq!([None, Some(3), Some(30)].map(ends_at_s), [Some(10), Some(3), Some(10)]);
}

#[test]
fn two_idle_ends_stay_connected_with_a_token_whose_timeout_is_one_to_three_seconds() {
    for timeout_s in [1, 2, 3] {
        // The intervals of a client and of a server.
        let patient = SessionOptions { keep_alive_interval: Duration::from_millis(1_500), ..SessionOptions::default() };
        let mut pair = Pair::new(1, patient, Link { delay_ms: 100, ..Link::default() });
        pair.ends[CLIENT].session = Session::new(Arc::new(SessionOptions::default()), pair.now).expect("good options");
        for end in &mut pair.ends {
            end.session.follow_handshake(Duration::from_millis(200), Some(Duration::from_secs(timeout_s)));
        }
        pair.run(60);
        assert!(pair.ends.iter().all(|end| end.close.is_none()), "after {timeout_s} s: {:?}", pair.ends[CLIENT].close);
        pair.ends[SERVER].is_running = false;
        pair.run(timeout_s + 1);
        assert_eq!(pair.ends[CLIENT].close, Some(CloseCause::IdleTimeout));
    }
}

#[test]
fn a_close_that_cannot_be_sent_ends_after_twice_the_time_of_its_packets() {
    let mut session = Session::new(Arc::new(SessionOptions::default()), Time(0)).expect("good options");
    let began = Time::from_secs(1);
    session.close(began, CloseReason::new(CloseCode::DONE, ""));
    let most_micros = 2 * u64::from(CLOSE_PACKETS) * CLOSE_INTERVAL.as_micros() as u64;
    session.handle_timeout(Time(began.0 + most_micros - 1));
    assert!(!session.is_closed());
    session.handle_timeout(Time(began.0 + most_micros));
    assert!(session.is_closed());
}
