//! Every packet gets one verdict, in time, and "delivered" is never wrong. The pair itself checks the last two in every
//! run.

use std::sync::Arc;
use std::time::Duration;

use crate::session_pair::{CLIENT, Link, Pair, SERVER, packet};
use throng_link::session::{CloseCode, CloseReason, Delivery, Envelope, Rest, Session, SessionOptions};
use throng_wire::Time;

fn count(pair: &Pair, end: usize, delivery: Delivery) -> usize {
    pair.ends[end].verdicts.values().filter(|&&other| other == delivery).count()
}

#[test]
fn every_packet_gets_its_verdict_through_a_storm() {
    throng_seeds::for_seeds(200, |seed| {
        let link = Link { delay_ms: 30, jitter_ms: 50, loss_percent: 30, duplicate_percent: 20, ..Link::default() };
        let mut pair = Pair::starting_at(seed, SessionOptions::default(), link, 65_536 * 3 - 100);
        pair.ends[SERVER].offered_bytes = 2000;
        pair.ends[CLIENT].offered_bytes = 60;
        pair.run(20);
        pair.settle();
        pair.ends[SERVER].session.close(pair.now, CloseReason::new(CloseCode::DONE, ""));
        pair.run(2);
        for end in &pair.ends {
            assert!(end.close.is_some());
            assert_eq!(end.verdicts.len(), end.sent.len(), "seed {seed}: packets without verdict");
            let counters = end.session.statistics().counters;
            assert_eq!(counters.packets_sent, end.sent.len() as u64);
        }
        let (delivered, lost) = (count(&pair, SERVER, Delivery::Delivered), count(&pair, SERVER, Delivery::Lost));
        assert!(lost > delivered / 10 && delivered > lost / 2, "seed {seed}: {delivered} delivered, {lost} lost");
    });
}

#[test]
fn nothing_is_lost_on_a_good_link_even_when_it_reorders_within_a_burst() {
    let link = Link { delay_ms: 20, jitter_ms: 3, ..Link::default() };
    throng_seeds::for_seeds(200, |seed| {
        let options = SessionOptions { rate_bytes_per_s: 1_000_000, ..SessionOptions::default() };
        let mut pair = Pair::new(seed, options, link);
        pair.ends[SERVER].offered_bytes = 2500;
        pair.run(20);
        let counters = pair.ends[SERVER].session.statistics().counters;
        // An acknowledgement that is written while a burst arrives can leave out a packet of it that the next one names.
        // At the end of the run that next one may still be under way.
        assert!(counters.packets_lost - counters.packets_spurious <= 1, "seed {seed}: {counters:?}");
        assert!(counters.packets_spurious <= counters.packets_sent / 1_000, "seed {seed}: {counters:?}");
        assert!(counters.packets_delivered > 2000, "seed {seed}: {counters:?}");
    });
}

#[test]
fn late_acknowledgements_are_counted_and_change_nothing() {
    let link = Link { delay_ms: 20, jitter_ms: 200, ..Link::default() };
    let mut pair = Pair::new(5, SessionOptions::default(), link);
    pair.ends[SERVER].offered_bytes = 1000;
    pair.run(20);
    let counters = pair.ends[SERVER].session.statistics().counters;
    assert!(counters.packets_spurious > 0 && counters.packets_spurious <= counters.packets_lost, "{counters:?}");
}

#[test]
fn acknowledgements_from_the_old_path_are_not_held_against_the_new_one() {
    let link = Link { delay_ms: 50, ..Link::default() };
    let mut pair = Pair::new(5, SessionOptions::default(), link);
    pair.ends[SERVER].offered_bytes = 1000;
    pair.run(2);
    let before = pair.ends[SERVER].session.statistics().counters;
    let now = pair.now;
    pair.ends[SERVER].session.on_new_path(now, Some(Duration::from_millis(100)));
    pair.run(2);
    let counters = pair.ends[SERVER].session.statistics().counters;
    assert!(counters.packets_lost >= before.packets_lost + 5, "they were in flight: {counters:?}");
    assert_eq!(counters.packets_spurious, 0, "they did arrive, and were acknowledged");
}

#[test]
fn packets_into_the_void_are_lost_within_seconds() {
    let mut pair = Pair::new(1, SessionOptions::default(), Link { loss_percent: 100, ..Link::default() });
    pair.ends[SERVER].offered_bytes = 500;
    pair.run(1);
    let sent = pair.ends[SERVER].sent.len();
    pair.ends[SERVER].offered_bytes = 0;
    pair.run(5);
    assert!(sent > 20 && count(&pair, SERVER, Delivery::Lost) >= sent);
}

#[test]
fn nothing_is_sent_while_too_many_packets_are_under_way_and_nothing_is_declared_lost_for_it() {
    let options = SessionOptions { max_in_flight: 16, ..SessionOptions::default() };
    let mut pair = Pair::new(1, options, Link { delay_ms: 400, ..Link::default() });
    pair.ends[SERVER].offered_bytes = 500;
    pair.run(30);
    let statistics = pair.ends[SERVER].session.statistics();
    assert!(statistics.packets_in_flight <= 16, "{statistics:?}");
    // 14 packets of 500 bytes for each round trip of 0.8 s. The first verdicts come before there is an estimate.
    let counters = statistics.counters;
    assert!(counters.packets_sent > 400 && counters.packets_lost < 20, "{counters:?}");
}

#[test]
fn a_packet_is_only_planned_when_it_can_be_sent() {
    let options = SessionOptions { max_in_flight: 16, ..SessionOptions::default() };
    let mut session = Session::new(Arc::new(options), Time(0)).expect("good options");
    let mut sequence = 0;
    // Waiting data may fill 14 of the 16 packets in flight. The last 2 are for urgent data.
    for _ in 0..14 {
        packet(&mut session, Time(0), sequence, 1);
        sequence += 1;
    }
    assert!(session.poll_packet(Time(0), Envelope::bare(sequence), Rest::Waiting).is_none());
    for _ in 0..2 {
        session.push_input(&[1]).expect("it is short");
        packet(&mut session, Time(0), sequence, 0);
        sequence += 1;
    }
    session.push_input(&[1]).expect("it is short");
    assert!(session.poll_packet(Time(0), Envelope::bare(sequence), Rest::Waiting).is_none());
    // Verdicts that are not polled are bounded as well: 16 of these packets, 16 of as many more, and no further one.
    for (seconds, is_planned) in [(4, true), (8, false)] {
        let now = Time::from_secs(seconds);
        session.handle_timeout(now);
        assert_eq!(session.statistics().packets_in_flight, 0);
        session.push_input(&[1]).expect("it is short");
        assert_eq!(session.poll_packet(now, Envelope::bare(sequence), Rest::Waiting).is_some(), is_planned);
        while session.poll_packet(now, Envelope::bare(sequence), Rest::Waiting).is_some() {
            packet(&mut session, now, sequence, 0);
            session.push_input(&[1]).expect("it is short");
            sequence += 1;
        }
    }
    assert_eq!(std::iter::from_fn(|| session.poll_delivery()).count(), 32);
    assert!(session.poll_packet(Time::from_secs(8), Envelope::bare(sequence), Rest::Waiting).is_some());
}

#[test]
fn a_server_packet_has_a_header_of_at_most_twelve_bytes() {
    for loss_percent in [0, 5] {
        let mut pair = Pair::new(1, SessionOptions::default(), Link { delay_ms: 50, loss_percent, ..Link::default() });
        pair.tick = std::time::Duration::from_millis(33);
        pair.ends[SERVER].offered_bytes = 1500;
        for _ in 0..900 {
            pair.ends[CLIENT].session.push_input(&[1; 12]).expect("it is short");
            pair.step();
        }
        let end = &pair.ends[SERVER];
        let headers = end.session.statistics().counters.bytes_sent - end.replication_bytes_sent;
        let mean = headers as f64 / end.sent.len() as f64;
        assert!(mean <= if loss_percent == 0 { 10.2 } else { 12.0 }, "{mean} bytes at {loss_percent} % loss");
    }
}
