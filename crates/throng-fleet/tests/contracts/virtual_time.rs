//! A process in a fleet in virtual time, against a GameServer that answers late, wrongly or not at all.

use std::collections::BTreeSet;
use std::time::Duration;

use throng_fleet::{Fleet, FleetOptions, FleetState, MATCHES_MAX, Method, Reply, Request};
use throng_wire::Time;

use crate::fake::GameServer;

fn carry_out(server: &mut GameServer, request: &Request) -> Reply {
    let method = match request.method {
        Method::Post => "POST",
        Method::Patch => "PATCH",
    };
    Reply::Status(server.handle(method, &request.path, &request.body))
}

/// Everything that is to be said now is said.
fn settle(fleet: &mut Fleet, server: &mut GameServer, now: Time) {
    while let Some(request) = fleet.poll_request(now) {
        let reply = carry_out(server, &request);
        fleet.handle_reply(now, reply);
    }
}

fn names(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    numbers.into_iter().map(|number| format!("match-{number}")).collect()
}

#[test]
fn a_process_is_ready_allocated_ready_again_and_ends_after_its_last_match() {
    let (mut fleet, mut server) = (Fleet::new(FleetOptions::default()), GameServer::new(10));
    settle(&mut fleet, &mut server, Time(0));
    fleet.set_matches(names([1, 2, 3]));
    settle(&mut fleet, &mut server, Time(1));
    assert_eq!((server.counters["matches"].0, server.lists["matches"].0.len()), (3, 3));
    fleet.set_matches(names([3]));
    settle(&mut fleet, &mut server, Time(2));
    assert_eq!(server.lists["matches"].0, BTreeSet::from(["match-3".to_owned()]));
    fleet.set_matches([]);
    settle(&mut fleet, &mut server, Time(3));
    fleet.set_matches(names([4]));
    fleet.drain();
    settle(&mut fleet, &mut server, Time(4));
    fleet.set_matches([]);
    settle(&mut fleet, &mut server, Time(5));
    assert_eq!(server.history, ["Ready", "Allocated", "Ready", "Allocated", "Shutdown"]);
    assert_eq!((server.counters["matches"].0, server.lists["matches"].0.len()), (0, 0));
    assert_eq!(fleet.state(), FleetState::Ended);
    assert_eq!(fleet.poll_request(Time::from_secs(100)), None, "a process that has ended says nothing");
}

#[test]
fn signs_of_life_come_on_time_also_while_everything_else_fails() {
    let mut fleet = Fleet::new(FleetOptions::default());
    let mut health = Vec::new();
    for tenth in 0..200 {
        let now = Time::from_millis(tenth * 100);
        while let Some(request) = fleet.poll_request(now) {
            if request.path == "/health" {
                health.push(tenth);
                fleet.handle_reply(now, Reply::Status(200));
            } else {
                fleet.handle_reply(now, Reply::Nothing);
            }
        }
    }
    assert_eq!(health, (0..10).map(|index| index * 20).collect::<Vec<_>>());
    assert_eq!(fleet.counters().failed, 20, "one attempt a second");
}

#[test]
fn a_fleet_without_counter_and_list_or_with_full_ones_plays_on() {
    for (capacity, is_declared) in [(2, true), (0, false)] {
        let (mut fleet, mut server) = (Fleet::new(FleetOptions::default()), GameServer::new(capacity));
        if !is_declared {
            (server.counters, server.lists) = Default::default();
        }
        fleet.set_matches(names(0..5));
        settle(&mut fleet, &mut server, Time(0));
        assert_eq!(fleet.state(), FleetState::Allocated);
        assert_eq!(fleet.counters().refused, 2, "one for the counter, one for the list");
        fleet.set_matches(names(0..2));
        settle(&mut fleet, &mut server, Time::from_secs(31));
        if is_declared {
            assert_eq!((server.counters["matches"].0, server.lists["matches"].0.len()), (2, 2));
        }
    }
}

#[test]
fn whatever_is_lost_the_gameserver_ends_as_the_process_is() {
    throng_seeds::for_seeds(2_000, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut fleet, mut server) = (Fleet::new(FleetOptions::default()), GameServer::new(100));
        let mut playing = BTreeSet::new();
        let mut now = Time(0);
        for _ in 0..80 {
            now = now.after(Duration::from_millis(rng.u64(0..1_500)));
            let name = rng.u32(0..8);
            if !playing.remove(&name) {
                playing.insert(name);
            }
            fleet.set_matches(names(playing.iter().copied()));
            let Some(request) = fleet.poll_request(now) else { continue };
            // It is carried out or not, and the answer arrives or not.
            let reply = match rng.u8(0..6) {
                0 => Reply::Nothing,
                1 => Reply::Status(503),
                2 => {
                    carry_out(&mut server, &request);
                    Reply::Nothing
                }
                _ => carry_out(&mut server, &request),
            };
            fleet.handle_reply(now, reply);
        }
        for _ in 0..60 {
            now = now.after(Duration::from_secs(1));
            settle(&mut fleet, &mut server, now);
        }
        let expected: BTreeSet<String> = names(playing.iter().copied()).into_iter().collect();
        let state = if playing.is_empty() { "Ready" } else { "Allocated" };
        let (count, list) = (server.counters["matches"].0, &server.lists["matches"].0);
        if server.state != state || count != expected.len() as i64 || *list != expected {
            return Err(format!("{server:?}, and {expected:?} are played"));
        }
        Ok(())
    });
}

#[test]
fn names_that_agones_could_not_keep_are_left_out_and_counted() {
    let mut fleet = Fleet::new(FleetOptions::default());
    fleet.set_matches(names(0..MATCHES_MAX as u32 + 3).into_iter().chain([String::new(), "x".repeat(65)]));
    assert_eq!(fleet.counters().left_out, 5);
}
