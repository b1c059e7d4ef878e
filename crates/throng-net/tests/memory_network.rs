//! Endpoints of a network within the process, on virtual time.

use std::net::SocketAddr;

use throng_net::{Condition, Driver, InFlightLimit, MemoryDriver, MemoryNetwork, RateLimit, Transmit};
use throng_wire::Time;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 4_000))
}

fn network(condition: Condition) -> MemoryNetwork {
    MemoryNetwork::new(condition, 42).expect("a valid condition")
}

fn endpoint(network: &MemoryNetwork, host: u8) -> MemoryDriver {
    network.endpoint(address(host)).expect("a free address")
}

/// Sender and contents of what is there at `now`.
fn received(driver: &mut impl Driver, now: Time) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut datagrams = Vec::new();
    let count = driver.receive(now, &mut |_, from, bytes| datagrams.push((from, bytes.to_vec()))).expect("memory");
    assert_eq!(count, datagrams.len());
    datagrams
}

#[test]
fn a_batch_arrives_as_its_datagrams_with_its_sender() {
    let network = network(Condition::NONE);
    let (mut a, mut b) = (endpoint(&network, 1), endpoint(&network, 2));
    let sent = a.send(Time(0), &Transmit { to: address(2), bytes: b"aabbc", segment_bytes: 2 });
    assert_eq!(sent.expect("memory"), 3);
    let expected = [&b"aa"[..], b"bb", b"c"].map(|bytes| (address(1), bytes.to_vec()));
    assert_eq!(received(&mut b, Time(0)), expected);
    assert_eq!(received(&mut b, Time(0)), []);
    assert_eq!((a.counters().sent_datagrams, a.counters().sent_bytes), (3, 5));
    assert_eq!((b.counters().received_datagrams, b.counters().received_bytes), (3, 5));
}

#[test]
fn nothing_arrives_before_its_time() {
    let network = network(Condition { delay_us: 20_000, ..Condition::NONE });
    let (mut a, mut b) = (endpoint(&network, 1), endpoint(&network, 2));
    a.send(Time(5), &Transmit::single(address(2), b"hello")).expect("memory");
    assert_eq!(b.next_due(), Some(Time(20_005)));
    assert_eq!(network.next_due(), Some(Time(20_005)));
    assert_eq!(a.next_due(), None);
    assert_eq!(received(&mut b, Time(20_004)), []);
    assert_eq!(received(&mut b, Time(20_005)).len(), 1);
}

#[test]
fn an_address_belongs_to_one_endpoint_until_that_is_dropped() {
    let network = network(Condition::NONE);
    let first = endpoint(&network, 1);
    assert_eq!(network.endpoint(address(1)).err().map(|error| error.tag()), Some("port_in_use"));
    drop(first);
    assert!(network.endpoint(address(1)).is_ok());
}

#[test]
fn what_was_under_way_to_a_closed_endpoint_does_not_reach_its_successor() {
    let network = network(Condition { delay_us: 10, ..Condition::NONE });
    let mut a = endpoint(&network, 1);
    let b = endpoint(&network, 2);
    a.send(Time(0), &Transmit::single(address(2), b"for the first")).expect("memory");
    drop(b);
    let mut successor = endpoint(&network, 2);
    assert_eq!(received(&mut successor, Time(100)), []);
}

#[test]
fn datagrams_for_nobody_are_counted() {
    let network = network(Condition::NONE);
    let mut a = endpoint(&network, 1);
    assert_eq!(a.send(Time(0), &Transmit { to: address(9), bytes: b"xy", segment_bytes: 1 }).expect("memory"), 2);
    assert_eq!(a.counters().refused, 2);
}

#[test]
fn a_full_inbox_drops_and_counts() {
    let limit = InFlightLimit { datagrams: 4, bytes: 1_000 };
    let network = MemoryNetwork::with_inbox_limit(Condition::NONE, 1, limit).expect("valid");
    let (mut a, mut b) = (endpoint(&network, 1), endpoint(&network, 2));
    a.send(Time(0), &Transmit { to: address(2), bytes: b"123456", segment_bytes: 1 }).expect("memory");
    assert_eq!(received(&mut b, Time(0)).len(), 4);
    assert_eq!(network.counters().dropped_by_memory, 2);
}

#[test]
fn one_slow_peer_does_not_slow_the_others() {
    let network = network(Condition::NONE);
    let (mut server, mut slow, mut fast) = (endpoint(&network, 1), endpoint(&network, 2), endpoint(&network, 3));
    let rate = Some(RateLimit { bytes_per_s: 1_000, queue_bytes: 2_000 });
    network.set_way(address(1), address(2), Condition { rate, ..Condition::NONE }).expect("valid");
    for millisecond in 0..1_000 {
        for to in [address(2), address(3)] {
            server.send(Time::from_millis(millisecond), &Transmit::single(to, &[0; 72])).expect("memory");
        }
    }
    assert_eq!(received(&mut fast, Time::from_secs(1)).len(), 1_000);
    assert_eq!(received(&mut slow, Time::from_secs(1)).len(), 10);
}

#[test]
fn the_weather_changes_for_what_is_sent_afterwards() {
    let network = network(Condition { delay_us: 1_000, ..Condition::NONE });
    let (mut a, mut b) = (endpoint(&network, 1), endpoint(&network, 2));
    a.send(Time(0), &Transmit::single(address(2), b"before")).expect("memory");
    network.set_condition(Condition::BLACKOUT).expect("valid");
    a.send(Time(1), &Transmit::single(address(2), b"after")).expect("memory");
    assert_eq!(received(&mut b, Time(10_000)), [(address(1), b"before".to_vec())]);
    assert!(network.set_condition(Condition { loss: 2.0, ..Condition::NONE }).is_err());
}

#[test]
fn forged_datagrams_can_be_injected() {
    let network = network(Condition::BLACKOUT);
    let mut b = endpoint(&network, 2);
    assert!(network.inject(Time(3), address(66), address(2), b"forged"));
    assert!(!network.inject(Time(3), address(66), address(67), b"nobody"));
    assert_eq!(received(&mut b, Time(3)), [(address(66), b"forged".to_vec())]);
}

#[test]
fn a_sink_may_send_through_another_endpoint() {
    let network = network(Condition::NONE);
    let (mut a, mut b) = (endpoint(&network, 1), endpoint(&network, 2));
    a.send(Time(0), &Transmit::single(address(2), b"ping")).expect("memory");
    b.receive(Time(0), &mut |_, from, bytes| {
        bytes.reverse();
        a.send(Time(0), &Transmit::single(from, bytes)).expect("memory");
    })
    .expect("memory");
    // It was sent from endpoint 1 to itself.
    assert_eq!(received(&mut a, Time(0)), [(address(1), b"gnip".to_vec())]);
}

#[test]
fn the_same_storm_comes_twice_with_the_same_seed() {
    let storm = |seed| {
        let network = MemoryNetwork::new("bad".parse().expect("a preset"), seed).expect("valid");
        let mut drivers: Vec<MemoryDriver> = (1..=5).map(|host| endpoint(&network, host)).collect();
        let mut log = Vec::new();
        for round in 0..200_u64 {
            let now = Time::from_millis(round * 10);
            for driver in &mut drivers {
                for to in 1..=5 {
                    driver.send(now, &Transmit::single(address(to), &round.to_le_bytes())).expect("memory");
                }
                log.extend(received(driver, now));
            }
        }
        log
    };
    assert_eq!(storm(1), storm(1));
    assert_ne!(storm(1), storm(2));
    assert!(storm(1).len() > 3_000);
}
