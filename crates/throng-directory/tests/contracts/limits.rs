//! Limits and refusals of the directory.

use std::time::Duration;

use throng_bus::sim::{SimNet, Weather};
use throng_bus::{Bus, Command, Event, MemberId, Subject, Ticket};
use throng_directory::{DirectoryError, HomeKey, PART_BYTES_MAX, PARTS_MAX};

use crate::node::Node;

const KEY: HomeKey = HomeKey::Channel(1);

fn pass(net: &SimNet, nodes: &mut [Node], millis: u64) {
    for _ in 0..millis / 10 {
        net.pass(Duration::from_millis(10));
        nodes.iter_mut().for_each(Node::run);
    }
}

fn two_members() -> (SimNet, Vec<Node>) {
    let net = SimNet::new(1, Weather::default());
    let mut nodes: Vec<Node> = [1, 2].map(|id| Node::new(&net, id, true)).into();
    pass(&net, &mut nodes, 500);
    nodes[0].claim(KEY);
    pass(&net, &mut nodes, 500);
    assert!(nodes[0].serves(KEY).is_some());
    (net, nodes)
}

#[test]
fn only_the_owner_acts_for_a_home() {
    let (net, mut nodes) = two_members();
    let now = nodes[1].now();
    let other = &mut nodes[1].directory;
    assert_eq!(other.checkpoint(KEY, "x".into(), now), Err(DirectoryError::NotServed));
    assert_eq!(other.move_to(KEY, MemberId(1), "x".into(), now), Err(DirectoryError::NotServed));
    assert_eq!(other.release(KEY, now), Err(DirectoryError::NotServed));
    let owner = &mut nodes[0].directory;
    assert_eq!(owner.claim(KEY, now), Err(DirectoryError::NotServed));
    owner.checkpoint(KEY, "x".into(), now).unwrap();
    assert_eq!(owner.checkpoint(KEY, "y".into(), now), Err(DirectoryError::Busy));
    let long = vec![0; PART_BYTES_MAX * usize::from(PARTS_MAX) + 1];
    assert_eq!(owner.move_to(KEY, MemberId(2), long.into(), now), Err(DirectoryError::Limit { limit: "PARTS_MAX" }));
    drop(net);
}

#[test]
fn a_member_without_a_lease_claims_nothing() {
    let net = SimNet::new(1, Weather::default());
    let mut node = Node::new(&net, 1, true);
    let now = node.now();
    assert_eq!(node.directory.claim(KEY, now), Err(DirectoryError::NoTerm));
}

#[test]
fn a_released_home_can_be_claimed_at_once_and_its_checkpoint_is_there() {
    let (net, mut nodes) = two_members();
    nodes[0].send(KEY);
    pass(&net, &mut nodes, 500);
    assert_eq!(nodes[0].acknowledged.len(), 1);
    let now = nodes[0].now();
    nodes[0].directory.release(KEY, now).unwrap();
    pass(&net, &mut nodes, 500);
    nodes[1].claim(KEY);
    pass(&net, &mut nodes, 500);
    assert_eq!(nodes[1].apps[&KEY].log, [(1, 1)]);
    assert!(nodes[0].serves(KEY).is_none());
}

#[test]
fn a_home_that_is_offered_to_nobody_stays_and_serves_on() {
    let (net, mut nodes) = two_members();
    nodes[0].move_to(KEY, MemberId(77), 0);
    pass(&net, &mut nodes, 100);
    assert!(nodes[0].serves(KEY).is_none(), "it is frozen");
    pass(&net, &mut nodes, 8_000);
    assert!(nodes[0].serves(KEY).is_some());
    assert_eq!(nodes[0].kept, 1);
}

#[test]
fn a_stranger_cannot_offer_a_home_that_it_does_not_serve() {
    let (net, mut nodes) = two_members();
    let mut stranger = net.join(MemberId(3), throng_bus::Limits::default());
    net.pass(Duration::from_millis(100));
    // A part as the owner would write it, with the right number of the home.
    let fence = nodes[0].serves(KEY).unwrap().0;
    let mut note = vec![1, 1];
    note.extend(5u64.to_le_bytes());
    note.extend(fence.to_le_bytes());
    note.extend([0, 0, 1, 0, 14]);
    note.extend(b"home.channel.1stolen");
    let subject = Subject::new(&format!("moves.{}", MemberId(2))).unwrap();
    let (ticket, patience) = (Ticket(1), Duration::from_secs(1));
    let now = stranger.clock();
    stranger.handle_command(now, Command::Request { ticket, subject, payload: note.into(), patience }).unwrap();
    pass(&net, &mut nodes, 200);
    let refused = std::iter::from_fn(|| stranger.poll_event(now)).find_map(|event| match event {
        Event::Answer { result: Ok(bytes), .. } => Some(bytes),
        _ => None,
    });
    assert_eq!(refused.unwrap()[1..], [0; 8]);
    assert_eq!(nodes[1].directory.arriving(), 0);
}
