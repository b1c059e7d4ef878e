//! Limits and refusals of the directory.

use std::time::Duration;

use throng_bus::sim::{SimNet, Weather};
use throng_bus::{Bus, Command, Event, Expect, FENCED_WRITES_MAX, Limits, MemberId, Pattern, Subject, Ticket, WatchId};
use throng_directory::{DirectoryError, HomeKey, PART_BYTES_MAX, PARTS_MAX};

use crate::node::{Node, encode};

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
fn a_checkpoint_that_is_too_long_for_the_bus_ends_and_a_shorter_one_follows() {
    let (net, mut nodes) = two_members();
    let now = nodes[0].now();
    nodes[0].directory.checkpoint(KEY, vec![0; 600 << 10].into(), now).unwrap();
    pass(&net, &mut nodes, 500);
    assert_eq!((nodes[0].too_long, nodes[0].serves(KEY).is_some()), (1, true));
    nodes[0].send(KEY);
    pass(&net, &mut nodes, 500);
    assert_eq!(nodes[0].acknowledged.len(), 1);
}

#[test]
fn a_checkpoint_that_waits_ends_with_its_home() {
    let (net, mut nodes) = two_members();
    nodes[0].refused = Subject::new("state.channel.1").ok();
    let now = nodes[0].now();
    nodes[0].directory.checkpoint(KEY, encode(&[(9, 9)], 0), now).unwrap();
    nodes[0].release(KEY);
    pass(&net, &mut nodes, 500);
    assert_eq!(nodes[0].lost, 1);
    nodes[0].refused = None;
    pass(&net, &mut nodes, 500);
    nodes[1].claim(KEY);
    pass(&net, &mut nodes, 500);
    assert_eq!(nodes[1].apps[&KEY].log, []);
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

fn keys(node: &Node) -> Vec<HomeKey> {
    node.directory.homes().map(|(key, _)| key).collect()
}

/// The network ends a watch with too many keys. The next one does not tell what has ended meanwhile.
#[test]
fn a_directory_whose_watch_fails_watches_again_and_forgets_what_has_ended() {
    let net = SimNet::new(1, Weather::default());
    let limits = Limits { watched_keys: 3, ..Limits::default() };
    let mut nodes = vec![Node::new(&net, 1, true), Node::with_limits(&net, 2, true, limits)];
    pass(&net, &mut nodes, 500);
    let all = [1, 2, 3, 4].map(HomeKey::Channel);
    for key in all {
        nodes[0].claim(key);
        pass(&net, &mut nodes, 500);
    }
    assert!(nodes[1].bus.counters().failed_watches > 0);
    assert_eq!(keys(&nodes[0]), all);
    for key in &all[..2] {
        nodes[0].release(*key);
    }
    pass(&net, &mut nodes, 2_000);
    assert_eq!(keys(&nodes[1]), all[2..]);
}

#[test]
fn a_watch_that_the_bus_has_no_room_for_is_tried_again() {
    let net = SimNet::new(1, Weather::default());
    let mut nodes = vec![Node::new(&net, 1, true)];
    let mut late = Node::with_limits(&net, 2, true, Limits { watches: 1, ..Limits::default() });
    let watch = WatchId(5);
    late.bus.handle_command(late.now(), Command::Watch { watch, pattern: Pattern::new("other").unwrap() }).unwrap();
    nodes.push(late);
    pass(&net, &mut nodes, 500);
    nodes[0].claim(KEY);
    pass(&net, &mut nodes, 500);
    assert_eq!(keys(&nodes[1]), []);
    let now = nodes[1].now();
    nodes[1].bus.handle_command(now, Command::Unwatch { watch }).unwrap();
    pass(&net, &mut nodes, 1_000);
    assert_eq!(keys(&nodes[1]), [KEY]);
}

#[test]
fn a_claim_waits_for_a_bus_that_has_no_room() {
    let net = SimNet::new(1, Weather::default());
    let mut nodes = vec![Node::new(&net, 1, true)];
    pass(&net, &mut nodes, 500);
    for entry in ["home.channel.1", "state.channel.1"] {
        nodes[0].refused = Some(Subject::new(entry).unwrap());
        nodes[0].claim(KEY);
        pass(&net, &mut nodes, 1_000);
        assert!(nodes[0].serves(KEY).is_none());
        nodes[0].refused = None;
        pass(&net, &mut nodes, 1_000);
        assert!(nodes[0].serves(KEY).is_some(), "{entry}");
        nodes[0].release(KEY);
        pass(&net, &mut nodes, 1_000);
        assert_eq!((keys(&nodes[0]), nodes[0].lost), (vec![], 1 + u64::from(entry.starts_with("state"))));
    }
}

/// The numbers of as many homes as that are put on their checkpoints at a time.
#[test]
fn more_claims_in_a_burst_than_writes_can_be_under_way_all_end_with_a_home() {
    let net = SimNet::new(1, Weather::default());
    let mut nodes = vec![Node::new(&net, 1, true)];
    pass(&net, &mut nodes, 500);
    let all = 0..2 * FENCED_WRITES_MAX as u64 + 100;
    for number in all.clone() {
        nodes[0].claim(HomeKey::Channel(number));
    }
    pass(&net, &mut nodes, 4_000);
    let served = all.clone().filter(|number| nodes[0].serves(HomeKey::Channel(*number)).is_some()).count();
    assert_eq!((served, nodes[0].lost), (all.count(), 0));
}

/// Somebody has written a checkpoint that has no number.
#[test]
fn a_claim_that_cannot_have_its_checkpoint_leaves_no_entry_behind() {
    let net = SimNet::new(1, Weather::default());
    let mut nodes = vec![Node::new(&net, 1, true)];
    pass(&net, &mut nodes, 500);
    let mut stranger = net.join(MemberId(3), Limits::default());
    net.pass(Duration::from_millis(100));
    let (ticket, key) = (Ticket(1), Subject::new("state.channel.1").unwrap());
    let now = stranger.clock();
    let put = Command::Put { ticket, key: key.clone(), value: "x".into(), expect: Expect::Anything, lives_for: None };
    stranger.handle_command(now, put).unwrap();
    pass(&net, &mut nodes, 500);
    nodes[0].claim(KEY);
    pass(&net, &mut nodes, 1_000);
    assert_eq!((nodes[0].lost, keys(&nodes[0])), (1, vec![]));
    // It can be claimed when the checkpoint is gone.
    stranger.handle_command(now, Command::Delete { ticket: Ticket(2), key, expect: Expect::Anything }).unwrap();
    pass(&net, &mut nodes, 500);
    nodes[0].claim(KEY);
    pass(&net, &mut nodes, 500);
    assert!(nodes[0].serves(KEY).is_some());
}

/// A source may take long to write its move, and may die before that.
#[test]
fn a_state_that_is_about_to_come_is_held_while_its_source_asks_for_it_and_no_longer() {
    let (net, mut nodes) = two_members();
    nodes[0].send(KEY);
    pass(&net, &mut nodes, 500);
    let entry = || Subject::new("home.channel.1").ok();
    nodes[0].refused = entry();
    nodes[0].move_to(KEY, MemberId(2), 300_000);
    pass(&net, &mut nodes, 20_000);
    assert_eq!(nodes[1].directory.arriving(), 1, "its source is about to write");
    nodes[0].refused = None;
    pass(&net, &mut nodes, 1_000);
    assert_eq!((nodes[1].directory.arriving(), &nodes[1].apps[&KEY].log[..]), (0, &[(1, 1)][..]));
    // Back again, and the source dies.
    nodes[1].refused = entry();
    nodes[1].move_to(KEY, MemberId(1), 0);
    pass(&net, &mut nodes, 1_000);
    nodes.pop();
    pass(&net, &mut nodes, 3_000);
    assert_eq!(nodes[0].directory.arriving(), 1, "it may still write");
    pass(&net, &mut nodes, 5_000);
    assert_eq!(nodes[0].directory.arriving(), 0);
}

/// How long a bus waits for the store is a limit of its program.
#[test]
fn a_state_that_is_about_to_come_is_held_while_the_store_does_not_answer_its_source() {
    let (net, mut nodes) = two_members();
    nodes[0].unanswered = Subject::new("home.channel.1").ok();
    nodes[0].move_to(KEY, MemberId(2), 0);
    pass(&net, &mut nodes, 20_000);
    assert_eq!(nodes[1].directory.arriving(), 1, "its source may still write");
    nodes.remove(0);
    pass(&net, &mut nodes, 8_000);
    assert_eq!(nodes[0].directory.arriving(), 0);
}

#[test]
fn a_state_that_is_about_to_come_ends_with_the_term_that_was_promised_for_it() {
    let (net, mut nodes) = two_members();
    nodes[0].refused = Subject::new("home.channel.1").ok();
    nodes[0].move_to(KEY, MemberId(2), 0);
    pass(&net, &mut nodes, 1_000);
    let term = nodes[1].directory.term(nodes[1].now());
    net.cut(MemberId(2), true);
    pass(&net, &mut nodes, 3_000);
    assert_eq!((nodes[1].directory.arriving(), nodes[1].directory.term(nodes[1].now())), (1, term));
    pass(&net, &mut nodes, 3_000);
    assert_eq!((nodes[1].directory.arriving(), nodes[1].directory.term(nodes[1].now())), (0, None));
}
