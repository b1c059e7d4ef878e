//! The network of datagrams over the bus, and its bounds.

use throng::Time;
use throng::net::{Driver, SendError, Transmit};
use throng_bus::{Bus as _, Limits, LocalBus, LocalHub, MemberId, Subject};
use throng_edge::{BusDriver, BusNetwork, BusNetworkCounters, TooManyEndpoints, WorldName};

const NOW: Time = Time(0);

fn network(hub: &LocalHub, member: u64, limits: Limits) -> BusNetwork<LocalBus> {
    BusNetwork::new(hub.join(MemberId(member), limits), &WorldName::new("harbour").unwrap())
}

/// An endpoint that has looked at the bus once.
fn endpoint(network: &BusNetwork<LocalBus>) -> BusDriver<LocalBus> {
    let mut driver = network.endpoint().unwrap();
    assert_eq!(received(&mut driver), [] as [Vec<u8>; 0]);
    driver
}

fn received(driver: &mut BusDriver<LocalBus>) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    driver.receive(NOW, &mut |_, _, bytes| datagrams.push(bytes.to_vec())).unwrap();
    datagrams
}

#[test]
fn datagrams_of_a_transmit_arrive_apart_and_at_their_port_alone() {
    let hub = LocalHub::new();
    let [here, there] = [1, 2].map(|member| network(&hub, member, Limits::default()));
    let (mut first, mut second) = (endpoint(&here), endpoint(&here));
    let mut sender = endpoint(&there);
    let transmit =
        |to: &BusDriver<LocalBus>| Transmit { to: to.local_address(), bytes: b"aaaabbbbcc", segment_bytes: 4 };
    assert_eq!(sender.send(NOW, &transmit(&second)).unwrap(), 3);
    assert!(received(&mut first).is_empty(), "they are not for this one");
    assert_eq!(received(&mut second), [&b"aaaa"[..], b"bbbb", b"cc"]);
    // Both directions, and a member that sends to itself.
    assert_eq!(first.send(NOW, &Transmit::single(sender.local_address(), b"back")).unwrap(), 1);
    assert_eq!(received(&mut sender), [b"back"]);
    assert_eq!(first.send(NOW, &Transmit::single(second.local_address(), b"own")).unwrap(), 1);
    assert_eq!(received(&mut second), [b"own"]);
    let counters = sender.counters();
    assert_eq!((counters.sent_datagrams, counters.sent_bytes, counters.received_datagrams), (3, 10, 1));
}

#[test]
fn everything_beyond_a_bound_is_dropped_and_counted() {
    let hub = LocalHub::new();
    let few = Limits { payload_bytes: 2_000, ..Limits::default() };
    let (here, there) = (network(&hub, 1, Limits::default()), network(&hub, 2, few));
    let (mut receiver, mut sender) = (endpoint(&here), endpoint(&there));
    let to = receiver.local_address();
    // A message that the bus does not take, and one of which it takes the first part.
    assert_eq!(sender.send(NOW, &Transmit { to, bytes: &[7; 2_400], segment_bytes: 1_200 }).unwrap(), 0);
    assert_eq!(sender.counters().send_dropped, 2);
    assert_eq!(sender.send(NOW, &Transmit { to, bytes: &[7; 100], segment_bytes: 1 }).unwrap(), 100);
    assert_eq!(received(&mut receiver).len(), 100, "in two messages");
    // An address elsewhere.
    let elsewhere = "127.0.0.1:9".parse().unwrap();
    let refused = sender.send(NOW, &Transmit::single(elsewhere, b"x"));
    assert!(matches!(refused, Err(SendError::BadDestination { to }) if to == elsewhere), "{refused:?}");
    // A reader that takes too little: 4,096 datagrams of each sender wait.
    let mut busy = endpoint(&here);
    for _ in 0..5_000 {
        sender.send(NOW, &Transmit::single(to, b"x")).unwrap();
    }
    assert!(received(&mut busy).is_empty(), "it has taken them from the bus for the other endpoint");
    received(&mut busy);
    let mut modest = endpoint(&network(&hub, 3, Limits::default()));
    modest.send(NOW, &Transmit::single(to, b"modest")).unwrap();
    let datagrams = received(&mut receiver);
    assert_eq!((datagrams.len(), here.counters().dropped), (4_097, 904));
    assert_eq!(datagrams.last().unwrap(), b"modest", "nobody takes the room of others");
    sender.send(NOW, &Transmit::single(to, b"x")).unwrap();
    assert_eq!(received(&mut receiver), [b"x"], "there is room again");
    // A port that is closed.
    drop(receiver);
    sender.send(NOW, &Transmit { to, bytes: b"xx", segment_bytes: 1 }).unwrap();
    received(&mut busy);
    assert_eq!(here.counters().no_port, 2);
}

#[test]
fn a_member_has_so_many_endpoints_and_a_closed_port_is_not_opened_at_once() {
    let network = network(&LocalHub::new(), 1, Limits::default());
    let mut open: Vec<_> = (0..4_096).map(|_| network.endpoint().unwrap()).collect();
    assert_eq!(network.endpoint().err(), Some(TooManyEndpoints));
    let closed = open.remove(7).local_address();
    let next = network.endpoint().unwrap().local_address();
    assert_eq!((closed.port(), next.port()), (8, 4_097));
    // Ports begin again when all have been used.
    let ports = (0..70_000).map(|_| network.endpoint().unwrap().local_address().port());
    assert!(ports.into_iter().all(|port| port != 0 && (port > 4_096 || port == 8)));
}

#[test]
fn nonsense_of_other_members_is_refused_and_counted() {
    let hub = LocalHub::new();
    let here = network(&hub, 1, Limits::default());
    let mut receiver = endpoint(&here);
    let mut rude = hub.join(MemberId(9), Limits::default());
    let subject = Subject::new("world.harbour.link.0000000000000001.0000000000000009").unwrap();
    let mut rng = fastrand::Rng::with_seed(4);
    for length in 0..400 {
        let bytes: Vec<u8> = (0..length % 40).map(|_| rng.u8(..)).collect();
        rude.publish(NOW, &subject, bytes.into()).unwrap();
    }
    // The shortest datagrams that there are, as many as a message of the bus holds.
    let mut flood = vec![1, 0, 1, 0, 1, 0];
    flood.resize(100_000, 7);
    rude.publish(NOW, &subject, flood.into()).unwrap();
    let arrived = received(&mut receiver).len() as u64;
    let counters = here.counters();
    assert!(counters.refused > 300 && counters.dropped == 0, "{counters:?}");
    assert!(arrived + counters.no_port < 400, "{arrived} {counters:?}");
}

#[test]
fn a_message_counts_only_if_its_subject_names_its_publisher() {
    let hub = LocalHub::new();
    let here = network(&hub, 1, Limits::default());
    let mut receiver = endpoint(&here);
    let mut rude = hub.join(MemberId(9), Limits::default());
    let datagram = [7, 0, 1, 0, 1, 0, 42];
    let mut say = |sender: &str| {
        let subject = Subject::new(&format!("world.harbour.link.0000000000000001.{sender}")).unwrap();
        rude.publish(NOW, &subject, datagram.to_vec().into()).unwrap();
    };
    ["0000000000000002", "9", "-000000000000009", "me", "00000000000000009"].into_iter().for_each(&mut say);
    assert!(received(&mut receiver).is_empty());
    assert_eq!(here.counters(), BusNetworkCounters { forged: 5, ..BusNetworkCounters::default() });
    say("0000000000000009");
    assert_eq!(received(&mut receiver), [[42]]);
}

#[test]
fn counters_and_errors_have_stable_names() {
    let counters =
        BusNetworkCounters { refused: 1, forged: 2, no_port: 3, dropped: 4, gaps: 5, subscriptions_refused: 6 };
    let named =
        [("refused", 1), ("forged", 2), ("no_port", 3), ("dropped", 4), ("gaps", 5), ("subscriptions_refused", 6)];
    assert_eq!((counters.named(), TooManyEndpoints.tag()), (named, "too_many_endpoints"));
}
