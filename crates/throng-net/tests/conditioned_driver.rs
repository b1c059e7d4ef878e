//! A driver wrapped in a bad network, on virtual time.

use std::net::SocketAddr;

use throng_net::{
    Condition, Conditioned, ConditionedOptions, Driver, MemoryDriver, MemoryNetwork, RateLimit, Scope, Transmit,
    UdpDriver, UdpOptions,
};
use throng_wire::Time;

fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host], 4_000))
}

fn perfect_network() -> MemoryNetwork {
    MemoryNetwork::new(Condition::NONE, 1).expect("valid")
}

fn endpoint(network: &MemoryNetwork, host: u8) -> MemoryDriver {
    network.endpoint(address(host)).expect("a free address")
}

fn conditioned(network: &MemoryNetwork, host: u8, options: &ConditionedOptions) -> Conditioned<MemoryDriver> {
    Conditioned::new(endpoint(network, host), options).expect("valid")
}

fn delay(delay_us: u32) -> Condition {
    Condition { delay_us, ..Condition::NONE }
}

fn received(driver: &mut impl Driver, now: u64) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    driver.receive(Time(now), &mut |_, _, bytes| datagrams.push(bytes.to_vec())).expect("memory");
    datagrams
}

#[cfg(target_os = "linux")]
#[test]
fn what_the_driver_within_knows_of_its_kernel_is_passed_on() {
    let mut options = UdpOptions::server();
    options.receive_buffer_bytes = Some(usize::MAX >> 1);
    let driver = UdpDriver::bind(([127, 0, 0, 1], 0).into(), &options).expect("a free port");
    let granted = driver.socket_buffers().ok();
    let driver = Conditioned::new(driver, &ConditionedOptions::both_ways(delay(500), 1)).expect("valid");
    assert_eq!((driver.kernel_dropped(), driver.buffer_shortfall()), (Some(0), granted));
}

#[test]
fn sending_is_delayed_until_a_flush_at_the_right_time() {
    let network = perfect_network();
    let options = ConditionedOptions { incoming: Condition::NONE, ..ConditionedOptions::both_ways(delay(500), 1) };
    let mut a = conditioned(&network, 1, &options);
    let mut b = endpoint(&network, 2);
    assert_eq!(a.send(Time(0), &Transmit { to: address(2), bytes: b"xyz", segment_bytes: 1 }).expect("memory"), 3);
    assert_eq!(a.next_due(), Some(Time(500)));
    assert_eq!(a.flush(Time(499)).expect("memory"), 0);
    assert_eq!(received(&mut b, 499), Vec::<Vec<u8>>::new());
    assert_eq!(a.flush(Time(500)).expect("memory"), 3);
    assert_eq!(received(&mut b, 500), [b"x", b"y", b"z"]);
}

#[test]
fn what_was_sent_together_leaves_in_one_call() {
    let network = perfect_network();
    let mut a = conditioned(&network, 1, &ConditionedOptions::both_ways(delay(500), 1));
    let mut b = endpoint(&network, 2);
    let _c = endpoint(&network, 3);
    a.send(Time(0), &Transmit { to: address(2), bytes: b"aabbc", segment_bytes: 2 }).expect("memory");
    a.send(Time(0), &Transmit { to: address(2), bytes: b"dd", segment_bytes: 2 }).expect("memory");
    a.send(Time(0), &Transmit { to: address(3), bytes: b"ee", segment_bytes: 2 }).expect("memory");
    assert_eq!(a.flush(Time(500)).expect("memory"), 5);
    // The short one ends its batch, the other peer needs one of its own.
    assert_eq!(a.counters().send_calls, 3);
    assert_eq!(received(&mut b, 500), [&b"aa"[..], b"bb", b"c", b"dd"]);
}

#[test]
fn receiving_is_delayed() {
    let network = perfect_network();
    let options = ConditionedOptions { outgoing: Condition::NONE, ..ConditionedOptions::both_ways(delay(500), 1) };
    let mut a = endpoint(&network, 1);
    let mut b = conditioned(&network, 2, &options);
    a.send(Time(0), &Transmit::single(address(2), b"hello")).expect("memory");
    assert_eq!(received(&mut b, 10), Vec::<Vec<u8>>::new());
    assert_eq!(b.next_due(), Some(Time(510)));
    assert_eq!(received(&mut b, 510), [b"hello"]);
    assert_eq!(b.incoming_counters().delivered, 1);
}

#[test]
fn a_perfect_direction_is_passed_straight_through() {
    let network = perfect_network();
    let mut a = conditioned(&network, 1, &ConditionedOptions::both_ways(Condition::NONE, 1));
    a.send(Time(0), &Transmit { to: address(1), bytes: b"xyz", segment_bytes: 1 }).expect("memory");
    assert_eq!(a.counters().send_calls, 1);
    assert_eq!(received(&mut a, 0), [b"x", b"y", b"z"]);
    assert_eq!(a.outgoing_counters().pushed + a.incoming_counters().pushed, 0);
}

#[test]
fn peers_share_the_bottleneck_only_when_the_scope_says_so() {
    let rate = Some(RateLimit { bytes_per_s: 1_000, queue_bytes: 0 });
    let condition = Condition { rate, ..Condition::NONE };
    for (scope, passed) in [(Scope::PerPeer, 2), (Scope::Shared, 1)] {
        let network = perfect_network();
        let options = ConditionedOptions { scope, ..ConditionedOptions::both_ways(condition.clone(), 1) };
        let mut a = conditioned(&network, 1, &options);
        for to in [address(2), address(3)] {
            a.send(Time(0), &Transmit::single(to, &[0; 72])).expect("memory");
        }
        assert_eq!(a.flush(Time::from_secs(1)).expect("memory"), passed, "{scope:?}");
        assert_eq!(a.outgoing_counters().dropped_by_rate, 2 - passed as u64);
    }
}

#[test]
fn the_fate_of_a_peer_does_not_depend_on_who_came_first() {
    let lossy = Condition { loss: 0.5, ..Condition::NONE };
    let arrivals_of_2 = |first: u8, second: u8| {
        let network = perfect_network();
        let mut a = conditioned(&network, 1, &ConditionedOptions::both_ways(lossy.clone(), 9));
        let mut two = endpoint(&network, 2);
        for number in 0..100_u8 {
            for to in [first, second] {
                a.send(Time(u64::from(number)), &Transmit::single(address(to), &[number])).expect("memory");
            }
        }
        received(&mut two, 1_000)
    };
    assert_eq!(arrivals_of_2(2, 3), arrivals_of_2(3, 2));
    assert!((30..70).contains(&arrivals_of_2(2, 3).len()));
}

#[test]
fn a_boxed_driver_can_be_wrapped() {
    let network = perfect_network();
    let inner: Box<dyn Driver> = Box::new(endpoint(&network, 1));
    let mut a = Conditioned::new(inner, &ConditionedOptions::both_ways(delay(7), 1)).expect("valid");
    a.send(Time(0), &Transmit::single(address(1), b"to myself")).expect("memory");
    assert_eq!(received(&mut a, 7), Vec::<Vec<u8>>::new());
    assert_eq!(received(&mut a, 14), [b"to myself"]);
}

#[test]
fn an_impossible_condition_is_refused() {
    let options = ConditionedOptions::both_ways(Condition { loss: -0.1, ..Condition::NONE }, 1);
    let refused = Conditioned::new(endpoint(&perfect_network(), 1), &options).err();
    assert_eq!(refused.map(|error| error.tag()), Some("not_a_probability"));
}

#[test]
fn a_send_does_not_fail_because_an_earlier_one_to_somebody_else_does() {
    let options = throng_net::UdpOptions::client();
    let socket =
        throng_net::UdpDriver::bind("127.0.0.1:0".parse().expect("an address"), &options).expect("a free port");
    let mut peer =
        throng_net::UdpDriver::bind("127.0.0.1:0".parse().expect("an address"), &options).expect("a free port");
    let mut driver = Conditioned::new(socket, &ConditionedOptions::both_ways(delay(500), 1)).expect("valid");
    // Another address family: this shows only when it is sent.
    let bad = Transmit::single("[::1]:9".parse().expect("an address"), b"nowhere");
    assert_eq!(driver.send(Time(0), &bad).expect("it is taken"), 1);
    let good = Transmit::single(peer.local_address(), b"here");
    assert_eq!(driver.send(Time(500), &good).expect("this one is good"), 1);
    assert_eq!(driver.counters().bad_destination, 1);
    driver.flush(Time(1_000)).expect("this one is good");
    assert_eq!(received(&mut peer, 1_000), [b"here"]);
}
