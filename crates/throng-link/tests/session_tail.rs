//! The loss of the last data is repaired soon, and data that arrives at once is acknowledged at once.

use std::sync::Arc;
use std::time::Duration;

use crate::session_pair::{CLIENT, Link, Pair, SERVER, numbered, packet};
use throng_link::session::{Delivery, Envelope, LaneId, MAX_PACKETS_PER_FLUSH, Rest, Session, SessionOptions};
use throng_wire::{Tick, Time};

#[test]
fn a_last_message_that_is_lost_arrives_soon_after_its_probe() {
    for lost_probes in 0..3 {
        let mut pair = Pair::new(1, SessionOptions::default(), Link { delay_ms: 20, ..Link::default() });
        for number in 0..20 {
            pair.ends[SERVER].session.send(LaneId(0), &numbered(number, 100)).expect("there is room");
            pair.run_until(1, |pair| pair.ends[CLIENT].messages.len() > number as usize);
        }
        pair.run(1);
        pair.ends[SERVER].link.loss_percent = 100;
        pair.ends[SERVER].session.send(LaneId(0), &numbered(20, 100)).expect("there is room");
        // A probe timeout is a round trip of 40 ms, its variance and 50 ms of acknowledgement delay; each lost probe
        // doubles it.
        let dark = Duration::from_millis([20, 150, 400][lost_probes]);
        let until = pair.now.after(dark);
        while pair.now < until {
            pair.step();
        }
        pair.ends[SERVER].link.loss_percent = 0;
        let from = pair.now;
        assert!(pair.run_until(5, |pair| pair.ends[CLIENT].messages.len() == 21), "it never came");
        let late = pair.now.since(from);
        // Until the next probe, there and back, and the message again.
        let most = Duration::from_millis([200, 300, 600][lost_probes]);
        assert!(late <= most, "{late:?} after {dark:?} of darkness");
    }
}

#[test]
fn what_waited_while_its_reader_was_away_counts_as_received() {
    let rate = 100_000_000;
    let options =
        SessionOptions { rate_bytes_per_s: rate, initial_rate_bytes_per_s: rate, ..SessionOptions::default() };
    let options = Arc::new(options);
    let mut server = Session::new(Arc::clone(&options), Time(0)).expect("good options");
    let mut client = Session::new(options, Time(0)).expect("good options");
    let (mut sequence, mut waiting) = (0, Vec::new());
    let now = Time::from_millis(5);
    loop {
        let mut payload = Vec::new();
        let Some(plan) = server.poll_packet(now, Envelope::bare(sequence), Rest::Waiting) else { break };
        let mut packet = plan.begin(Tick(1), &mut payload);
        packet.rest().0.extend_from_slice(&[7; 500]);
        packet.finish();
        waiting.push(payload);
        sequence += 1;
    }
    assert_eq!(waiting.len(), usize::from(MAX_PACKETS_PER_FLUSH));
    let later = Time::from_millis(700);
    for (sequence, payload) in waiting.iter().enumerate() {
        client.handle_packet_of(later, Time::from_millis(25), sequence as u64, payload).expect("it is sound");
    }
    let mut answer = Vec::new();
    client.poll_packet(later, Envelope::bare(0), Rest::Empty).expect("it is due").begin(Tick(1), &mut answer).finish();
    server.handle_packet(Time::from_millis(720), 0, &answer).expect("it is sound");
    let verdicts: Vec<Delivery> = std::iter::from_fn(|| server.poll_delivery()).map(|(_, verdict)| verdict).collect();
    assert_eq!(verdicts, vec![Delivery::Delivered; waiting.len()]);
    // 20 ms there, 675 ms of waiting (the longest delay that the peer can report), 20 ms back.
    assert_eq!(server.statistics().counters.packets_lost, 0);
}

#[test]
fn waiting_for_a_tick_is_not_taken_for_the_path() {
    // Both ends look at their packets every 100 ms, and know when they came.
    let mut pair = Pair::new(1, SessionOptions::default(), Link { delay_ms: 40, ..Link::default() });
    pair.ends[SERVER].offered_bytes = 300;
    pair.tick = Duration::from_millis(100);
    pair.run(20);
    let statistics = pair.ends[SERVER].session.statistics();
    let round_trip = statistics.round_trip.expect("there is one").as_millis();
    assert!((80..=92).contains(&round_trip), "{round_trip} ms");
    assert_eq!(statistics.counters.packets_lost, 0);
}

#[test]
fn a_first_message_that_is_lost_is_given_up_after_the_round_trip_that_the_handshake_measured() {
    let given_up_at_ms = |round_trip_ms: Option<u64>| {
        let mut session = Session::new(Arc::new(SessionOptions::default()), Time(0)).expect("good options");
        if let Some(millis) = round_trip_ms {
            session.follow_handshake(Duration::from_millis(millis), None);
        }
        session.send(LaneId(0), b"hello").expect("there is room");
        packet(&mut session, Time(0), 0, 0);
        (1..6_000).find(|&millis| {
            session.handle_timeout(Time::from_millis(millis));
            session.poll_delivery() == Some((0, Delivery::Lost))
        })
    };
    // The round trip, twice its variance of half of that, and 50 ms of acknowledgement delay.
    assert_eq!(given_up_at_ms(Some(40)), Some(130));
    // Three probe timeouts of 333 ms, four times half of that, and the delay.
    assert_eq!(given_up_at_ms(None), Some(3 * 1_049));
}
