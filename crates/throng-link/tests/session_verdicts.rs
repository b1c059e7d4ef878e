//! Every packet gets one verdict, in time, and "delivered" is never wrong. The pair itself checks the last two in every
//! run.

mod session_pair;

use session_pair::{CLIENT, Link, Pair, SERVER};
use throng_link::session::{BeginError, CloseCode, CloseReason, Delivery, PacketPlan, SessionOptions};
use throng_wire::Tick;

fn count(pair: &Pair, end: usize, delivery: Delivery) -> usize {
    pair.ends[end].verdicts.values().filter(|&&other| other == delivery).count()
}

#[test]
fn every_packet_gets_its_verdict_through_a_storm() {
    for seed in 0..20 {
        println!("seed {seed}");
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
    }
}

#[test]
fn nothing_is_lost_on_a_good_link_even_when_it_reorders_within_a_burst() {
    let link = Link { delay_ms: 20, jitter_ms: 3, ..Link::default() };
    let mut pair = Pair::new(5, SessionOptions { rate_bytes_per_s: 1_000_000, ..SessionOptions::default() }, link);
    pair.ends[SERVER].offered_bytes = 2500;
    pair.run(20);
    let counters = pair.ends[SERVER].session.statistics().counters;
    assert_eq!((counters.packets_lost, counters.packets_spurious), (0, 0));
    assert!(counters.packets_delivered > 2000);
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
fn the_oldest_is_lost_when_too_many_are_under_way() {
    let options = SessionOptions { max_in_flight: 16, ..SessionOptions::default() };
    let mut pair = Pair::new(1, options, Link { delay_ms: 400, ..Link::default() });
    pair.ends[SERVER].offered_bytes = 500;
    pair.run(3);
    let statistics = pair.ends[SERVER].session.statistics();
    assert!(statistics.counters.packets_overflowed > 50, "{statistics:?}");
    assert!(statistics.packets_in_flight <= 16);
}

#[test]
fn a_packet_is_only_begun_when_it_can_be() {
    let mut pair = Pair::new(1, SessionOptions { max_in_flight: 16, ..SessionOptions::default() }, Link::default());
    let (now, session) = (pair.now, &mut pair.ends[CLIENT].session);
    let mut out = Vec::new();
    let small = PacketPlan { room_bytes: 100, ..PacketPlan::new(0, Tick(0)) };
    assert_eq!(session.begin_packet(now, small, &mut out), Err(BeginError::RoomTooSmall));
    for sequence in 0..48 {
        let length = session.begin_packet(now, PacketPlan::new(sequence, Tick(0)), &mut out).expect("it can");
        session.finish_packet(length);
    }
    assert_eq!(session.begin_packet(now, PacketPlan::new(47, Tick(0)), &mut out), Err(BeginError::SequenceNotRising));
    assert_eq!(session.begin_packet(now, PacketPlan::new(48, Tick(0)), &mut out), Err(BeginError::VerdictsNotDrained));
    while session.poll_delivery().is_some() {}
    assert!(session.begin_packet(now, PacketPlan::new(48, Tick(0)), &mut out).is_ok());
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
