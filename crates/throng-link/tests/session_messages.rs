//! Lanes keep their promises over a link that does not.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::session_pair::{CLIENT, Link, Pair, SERVER, number_of, numbered};
use throng_link::session::{Envelope, LaneId, LaneKind, LaneOptions, Rest, SendError, Session, SessionOptions};
use throng_wire::{Tick, Time};

const ORDERED: LaneId = LaneId(0);
const UNORDERED: LaneId = LaneId(1);
const UNRELIABLE: LaneId = LaneId(2);

const STORM: Link = Link {
    delay_ms: 40,
    jitter_ms: 60,
    loss_percent: 30,
    duplicate_percent: 10,
    rate_bytes_per_s: 0,
    queue_ms: 0,
    longest_bytes: 0,
};

fn fast() -> SessionOptions {
    SessionOptions { rate_bytes_per_s: 2_000_000, initial_rate_bytes_per_s: 2_000_000, ..SessionOptions::default() }
}

fn length(random: &mut fastrand::Rng, most: usize) -> usize {
    // Mostly small, sometimes up to the most.
    let most = if random.u8(..) < 200 { 300 } else { most };
    random.usize(4..=most)
}

fn received(pair: &Pair, end: usize, lane: LaneId) -> Vec<&[u8]> {
    pair.ends[end].messages.iter().filter(|(other, _)| *other == lane).map(|(_, bytes)| &bytes[..]).collect()
}

#[test]
fn r10_reliable_messages_arrive_exactly_once_through_a_storm() {
    throng_seeds::for_seeds(120, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let options = SessionOptions { first_message: u32::MAX - 20, ..fast() };
        let mut pair = Pair::starting_at(seed, options, STORM, 65_500);
        let (mut ordered, mut unordered) = (Vec::new(), BTreeSet::new());
        for number in 0..150 {
            let (from, lane) = (number as usize % 2, if random.bool() { ORDERED } else { UNORDERED });
            let message = numbered(number, length(&mut random, if number % 40 == 7 { 200 << 10 } else { 5000 }));
            while let Err(error) = pair.ends[from].session.send(lane, &message) {
                assert_eq!(error, SendError::QueueFull, "seed {seed}");
                pair.step();
            }
            if lane == ORDERED {
                ordered.push((1 - from, message))
            } else {
                assert!(unordered.insert((1 - from, message)))
            }
            if random.bool() {
                pair.step();
            }
        }
        let is_done = |pair: &mut Pair| pair.ends.iter().all(|end| end.session.pending_message_bytes() == 0);
        assert!(pair.run_until(300, is_done), "seed {seed}: not delivered: {:?}", pair.ends[0].session.statistics());
        for end in [CLIENT, SERVER] {
            let expected: Vec<_> = ordered.iter().filter(|(to, _)| *to == end).map(|(_, m)| &m[..]).collect();
            assert!(received(&pair, end, ORDERED) == expected, "seed {seed}: ordered messages differ");
            let mut expected: Vec<_> = unordered.iter().filter(|(to, _)| *to == end).map(|(_, m)| &m[..]).collect();
            let mut got = received(&pair, end, UNORDERED);
            expected.sort();
            got.sort();
            assert!(got == expected, "seed {seed}: unordered messages differ");
        }
        pair.settle();
    });
}

#[test]
fn unreliable_messages_arrive_at_most_once() {
    throng_seeds::for_seeds(100, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let options = SessionOptions { first_message: u32::MAX - 20, ..fast() };
        let mut pair = Pair::new(seed, options, STORM);
        for number in 0..1000 {
            let message = numbered(number, length(&mut random, 8 << 10));
            pair.ends[CLIENT].session.send(UNRELIABLE, &message).expect("it is taken");
            pair.run_until(1, |pair| pair.ends[CLIENT].session.pending_message_bytes() < 32 << 10);
            pair.step();
        }
        pair.settle();
        let mut seen = BTreeSet::new();
        for message in received(&pair, SERVER, UNRELIABLE) {
            let number = number_of(message);
            assert!(seen.insert(number), "seed {seed}: message {number} came twice");
            assert!(message == numbered(number, message.len()), "seed {seed}: message {number} was changed");
        }
        assert!(seen.len() > 500, "seed {seed}: only {} of 1000 came", seen.len());
        let counters = pair.ends[SERVER].session.statistics().counters;
        assert!(counters.reassemblies_expired + counters.reassemblies_evicted > 0, "seed {seed}: no part was lost");
    });
}

#[test]
fn a_message_of_200_kib_takes_one_round_trip_and_no_copies_on_a_good_link() {
    let mut pair = Pair::new(1, fast(), Link { delay_ms: 20, ..Link::default() });
    let message = numbered(1, 200 << 10);
    pair.ends[SERVER].session.send(ORDERED, &message).expect("it is taken");
    assert!(pair.run_until(2, |pair| !pair.ends[CLIENT].messages.is_empty()));
    assert!(pair.ends[CLIENT].messages[0].1 == message);
    let counters = pair.ends[SERVER].session.statistics().counters;
    assert_eq!(counters.message_bytes_resent, 0);
    assert!(counters.bytes_sent < 215 << 10, "{} bytes", counters.bytes_sent);
}

#[test]
fn lanes_share_by_weight_and_none_starves() {
    let lane = |weight| LaneOptions { weight, ..LaneOptions::new(LaneKind::ReliableOrdered) };
    let options = SessionOptions {
        lanes: vec![lane(1), lane(3)],
        rate_bytes_per_s: 100_000,
        initial_rate_bytes_per_s: 100_000,
        ..SessionOptions::default()
    };
    let mut pair = Pair::new(1, options, Link { delay_ms: 5, ..Link::default() });
    for number in 0..400 {
        for lane in 0..2 {
            pair.ends[SERVER].session.send(LaneId(lane), &numbered(number, 1000)).expect("it is taken");
        }
    }
    pair.run(3);
    let counts = [0, 1].map(|lane| received(&pair, CLIENT, LaneId(lane)).len());
    assert!(counts[0] > 50 && (2 * counts[0]..4 * counts[0]).contains(&counts[1]), "{counts:?}");
}

#[test]
fn a_full_queue_refuses_or_drops_and_counts() {
    let lane =
        |kind| LaneOptions { queue_messages: 3, queue_bytes: 1000, message_bytes: 800, ..LaneOptions::new(kind) };
    let options = SessionOptions {
        lanes: vec![lane(LaneKind::ReliableOrdered), lane(LaneKind::Unreliable)],
        ..SessionOptions::default()
    };
    let mut pair = Pair::new(1, options, Link::default());
    let session = &mut pair.ends[CLIENT].session;
    assert_eq!(session.send(LaneId(7), b""), Err(SendError::UnknownLane));
    assert_eq!(session.send(LaneId(0), &[0; 801]), Err(SendError::TooLarge { bytes: 801, limit: 800 }));
    for _ in 0..3 {
        session.send(LaneId(0), &[0; 100]).expect("there is room");
    }
    assert_eq!(session.send(LaneId(0), &[0; 100]), Err(SendError::QueueFull));
    for number in 0..5 {
        session.send(LaneId(1), &numbered(number, 400)).expect("the oldest is dropped");
    }
    let counters = session.statistics().counters;
    let counted = (counters.messages_too_large, counters.messages_refused, counters.messages_dropped);
    assert_eq!(counted, (1, 1, 3));
    assert_eq!(session.pending_message_bytes(), 300 + 800);
    pair.run(1);
    let newest: Vec<u32> = received(&pair, SERVER, LaneId(1)).into_iter().map(number_of).collect();
    assert_eq!(newest, [3, 4]);
    assert_eq!(received(&pair, SERVER, LaneId(0)).len(), 3);
    assert_eq!(pair.ends[CLIENT].session.pending_message_bytes(), 0);
}

#[test]
fn more_small_messages_than_the_window_holds_all_arrive() {
    let lane = LaneOptions { queue_messages: 5000, ..LaneOptions::new(LaneKind::ReliableUnordered) };
    let mut pair = Pair::new(3, SessionOptions { lanes: vec![lane], ..fast() }, STORM);
    for number in 0..5000 {
        pair.ends[CLIENT].session.send(LaneId(0), &numbered(number, 4)).expect("there is room");
    }
    assert!(pair.run_until(60, |pair| pair.ends[SERVER].messages.len() == 5000));
    let numbers: BTreeSet<u32> = pair.ends[SERVER].messages.iter().map(|(_, message)| number_of(message)).collect();
    assert_eq!(numbers.len(), 5000);
}

#[test]
fn an_idle_session_is_small() {
    assert!(size_of::<Session>() < 1332, "{} bytes", size_of::<Session>());
}

#[test]
fn a_part_of_an_unreliable_message_never_completes_one_that_comes_65536_messages_later() {
    let [mut sender, mut receiver] = [(); 2].map(|()| Session::new(Arc::new(fast()), Time(0)).expect("good options"));
    let mut sequence = 0;
    let mut packets = |sender: &mut Session, now: Time| {
        let mut packets = Vec::new();
        while let Some(plan) = sender.poll_packet(now, Envelope::bare(sequence), Rest::Empty) {
            let mut payload = Vec::new();
            plan.begin(Tick(0), &mut payload).finish();
            packets.push((sequence, payload));
            sequence += 1;
        }
        packets
    };
    let mut take = |packets: &[(u64, Vec<u8>)], now: Time| {
        for (sequence, payload) in packets {
            receiver.handle_packet(now, *sequence, payload).expect("an honest packet");
        }
        std::iter::from_fn(|| receiver.poll_message()).map(|(_, message)| message).collect::<Vec<_>>()
    };
    let (first, second) = (vec![1; 3_000], vec![2; 3_000]);
    sender.send(UNRELIABLE, &first).expect("it is taken");
    let sent = packets(&mut sender, Time::from_millis(1));
    assert!(sent.len() > 1, "it is sent in parts");
    assert_eq!(take(&sent[..1], Time::from_millis(1)), [[0; 0]; 0], "the others are lost");
    // The full queue drops most of these.
    for _ in 1..65_536 {
        sender.send(UNRELIABLE, b"").expect("the oldest is dropped");
    }
    sender.send(UNRELIABLE, &second).expect("the oldest is dropped");
    let mut came = Vec::new();
    for now in (10..500).step_by(10).map(Time::from_millis) {
        came.extend(take(&packets(&mut sender, now), now));
    }
    came.retain(|message| !message.is_empty());
    assert!(came == [second], "one message came as another");
}
