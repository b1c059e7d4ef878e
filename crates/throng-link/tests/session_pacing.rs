//! The sending rate follows what the link carries, and is left alone where the link carries everything.

use std::sync::Arc;

use crate::session_pair::{CLIENT, Link, Pair, SERVER};
use throng_link::session::{Envelope, Rest, Session, SessionOptions};
use throng_wire::{Tick, Time};

/// Replication bytes per second that the server sends from second `from` to second `to`, offered more than enough.
fn sent_per_s(pair: &mut Pair, from: u64, to: u64) -> u64 {
    pair.ends[SERVER].offered_bytes = 100_000;
    pair.run(from);
    let before = pair.ends[SERVER].session.statistics().counters.bytes_sent;
    pair.run(to - from);
    (pair.ends[SERVER].session.statistics().counters.bytes_sent - before) / (to - from)
}

fn limited_to(rate_bytes_per_s: u32) -> SessionOptions {
    SessionOptions { rate_bytes_per_s, initial_rate_bytes_per_s: 125_000, ..SessionOptions::default() }
}

#[test]
fn a_good_link_is_used_up_to_the_configured_rate() {
    for rate in [1_000, 20_000, 64_000, 1_000_000] {
        let mut pair = Pair::new(1, limited_to(rate), Link { delay_ms: 25, ..Link::default() });
        let sent = sent_per_s(&mut pair, 10, 30);
        assert!(
            (rate as u64 * 95 / 100..=rate as u64 * 101 / 100).contains(&sent),
            "{sent} of {rate} bytes per second"
        );
    }
}

#[test]
fn a_loopback_is_not_throttled() {
    let mut pair = Pair::new(1, limited_to(5_000_000), Link::default());
    let sent = sent_per_s(&mut pair, 20, 25);
    assert!(sent > 4_750_000, "{sent} bytes per second");
}

#[test]
fn the_loss_of_a_radio_link_does_not_throttle() {
    for loss_percent in [1, 5] {
        throng_seeds::for_seeds(5, |seed| {
            let mut pair = Pair::new(seed, limited_to(64_000), Link { delay_ms: 40, loss_percent, ..Link::default() });
            let sent = sent_per_s(&mut pair, 5, 65);
            assert!(sent > 52_000, "seed {seed}: {sent} bytes per second at {loss_percent} % loss");
        });
    }
}

#[test]
fn a_slow_link_is_sent_about_what_it_carries() {
    for (rate_bytes_per_s, queue_ms) in [(40_000, 20), (40_000, 300), (40_000, 2000), (15_000, 100)] {
        let link = Link { delay_ms: 30, rate_bytes_per_s, queue_ms, ..Link::default() };
        let mut pair = Pair::new(1, limited_to(250_000), link);
        pair.ends[CLIENT].link.rate_bytes_per_s = 0;
        let sent = sent_per_s(&mut pair, 20, 60);
        let range = rate_bytes_per_s * 75 / 100..rate_bytes_per_s * 125 / 100;
        assert!(range.contains(&sent), "{sent} bytes per second into {rate_bytes_per_s} with a queue of {queue_ms} ms");
        let received = pair.ends[CLIENT].replication_bytes_received / 60;
        assert!(received > rate_bytes_per_s * 70 / 100, "{received} of {rate_bytes_per_s} with {queue_ms} ms");
    }
}

#[test]
fn a_link_that_becomes_slow_is_followed_down_and_up() {
    let mut pair = Pair::new(1, limited_to(100_000), Link { delay_ms: 30, ..Link::default() });
    assert!(sent_per_s(&mut pair, 3, 10) > 95_000);
    pair.ends[SERVER].link = Link { delay_ms: 30, rate_bytes_per_s: 25_000, queue_ms: 200, ..Link::default() };
    let slow = sent_per_s(&mut pair, 5, 25);
    assert!((18_000..32_000).contains(&slow), "{slow}");
    pair.ends[SERVER].link = Link { delay_ms: 30, ..Link::default() };
    let again = sent_per_s(&mut pair, 30, 40);
    assert!(again > 90_000, "{again}");
}

#[test]
fn the_slowest_session_still_sends_a_packet_now_and_then() {
    let mut pair = Pair::new(1, limited_to(250_000), Link { loss_percent: 95, ..Link::default() });
    pair.ends[CLIENT].link.loss_percent = 0;
    let sent = sent_per_s(&mut pair, 20, 40);
    assert!((4_000..60_000).contains(&sent), "{sent}");
}

#[test]
fn the_round_trip_is_measured_without_the_time_spent_at_the_ends() {
    let mut pair = Pair::new(1, SessionOptions::default(), Link { delay_ms: 40, ..Link::default() });
    pair.ends[SERVER].offered_bytes = 300;
    pair.run(5);
    let round_trip = pair.ends[SERVER].session.statistics().round_trip.expect("there is one").as_millis();
    assert!((80..=92).contains(&round_trip), "{round_trip} ms");
}

#[test]
fn packets_of_a_row_have_one_length_and_a_shorter_one_ends_the_row() {
    let options = SessionOptions { initial_rate_bytes_per_s: 10_000_000, ..limited_to(10_000_000) };
    let mut session = Session::new(Arc::new(options), Time(0)).expect("good options");
    let now = Time::from_millis(5);
    let mut payload_bytes = |sequence, more| {
        let mut payload = Vec::new();
        let mut packet =
            session.poll_packet(now, Envelope::bare(sequence), Rest::Waiting)?.begin(Tick(0), &mut payload);
        packet.rest().0.extend_from_slice(&[7; 100]);
        packet.finish_in_row(more);
        Some(payload.len())
    };
    let full_bytes = payload_bytes(0, Rest::Waiting).expect("there is an allowance");
    assert!(full_bytes >= 1_000, "{full_bytes} bytes");
    assert_eq!(payload_bytes(1, Rest::Waiting), Some(full_bytes));
    let last_bytes = payload_bytes(2, Rest::Empty).expect("there is an allowance");
    assert!((100..200).contains(&last_bytes), "{last_bytes} bytes");
    assert_eq!(payload_bytes(3, Rest::Waiting), None);
    assert!(session.poll_packet(Time::from_millis(6), Envelope::bare(3), Rest::Waiting).is_some());
}
