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
    let (status, body) = server.handle(method, &request.path, &request.body);
    Reply::read(status, &body)
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
    fleet.set_ready();
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
fn a_process_is_not_ready_before_it_can_play_and_ends_without_that_if_it_never_can() {
    let (mut fleet, mut server) = (Fleet::new(FleetOptions::default()), GameServer::new(10));
    for second in 0..10 {
        settle(&mut fleet, &mut server, Time::from_secs(second));
    }
    assert_eq!((server.health, &server.history[..]), (5, &[][..]), "signs of life alone");
    type Act = fn(&mut Fleet);
    let ready: Act = |fleet| fleet.set_ready();
    let plays: Act = |fleet| fleet.set_matches(names([1]));
    let histories = [&["Ready"][..], &["Ready", "Allocated"], &["Shutdown"]];
    for (act, history) in [ready, plays, Fleet::drain].into_iter().zip(histories) {
        let (mut fleet, mut server) = (Fleet::new(FleetOptions::default()), GameServer::new(10));
        settle(&mut fleet, &mut server, Time(0));
        act(&mut fleet);
        settle(&mut fleet, &mut server, Time(1));
        assert_eq!(server.history, history);
    }
}

#[test]
fn signs_of_life_come_on_time_also_while_everything_else_fails() {
    let mut fleet = Fleet::new(FleetOptions::default());
    fleet.set_ready();
    let mut health = Vec::new();
    for tenth in 0..200 {
        let now = Time::from_millis(tenth * 100);
        while let Some(request) = fleet.poll_request(now) {
            if request.path == "/health" {
                health.push(tenth);
                fleet.handle_reply(now, Reply::Done);
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

/// The fleet drains with no match left, and everything is said in the next seconds.
fn ends_within(fleet: &mut Fleet, server: &mut GameServer, from_s: u64, seconds: u64) -> bool {
    fleet.set_matches([]);
    fleet.drain();
    for second in from_s..from_s + seconds {
        settle(fleet, server, Time::from_secs(second));
    }
    fleet.state() == FleetState::Ended
}

#[test]
fn a_process_ends_though_its_counter_or_list_is_missing_or_off() {
    type Change = fn(&mut GameServer);
    let off: Change = |server| server.has_counts_and_lists = false;
    let changes: [Change; 3] = [|server| server.counters.clear(), |server| server.lists.clear(), off];
    for (case, change) in changes.into_iter().enumerate() {
        let (mut fleet, mut server) = (Fleet::new(FleetOptions::default()), GameServer::new(10));
        change(&mut server);
        fleet.set_matches(names(0..3));
        for second in 0..=91 {
            settle(&mut fleet, &mut server, Time::from_secs(second));
        }
        // At 0, 1, 3, 7, 15, 31, 61 and 91 s.
        assert_eq!(fleet.counters().refused, [8, 8, 16][case], "more and more seldom: case {case}");
        let list = server.lists.get("matches").map_or(0, |list| list.0.len());
        assert_eq!(list, [3, 0, 0][case], "the list does not wait for the counter: case {case}");
        assert!(ends_within(&mut fleet, &mut server, 92, 2), "case {case}");
        assert_eq!(fleet.counters().failed, 0);
    }
}

#[test]
fn a_sidecar_that_was_busy_for_a_moment_is_told_a_second_later_each_time() {
    let (mut fleet, mut server) = (Fleet::new(FleetOptions::default()), GameServer::new(10));
    for round in 0..10 {
        let now = Time::from_secs(10 * round);
        fleet.set_matches(names(0..1 + round as u32 % 2));
        while let Some(request) = fleet.poll_request(now) {
            let is_figure = request.path.starts_with("/v1beta1/");
            let reply = if is_figure { Reply::read(503, "busy") } else { carry_out(&mut server, &request) };
            fleet.handle_reply(now, reply);
        }
        settle(&mut fleet, &mut server, now.after(Duration::from_secs(1)));
        let matches: BTreeSet<String> = names(0..1 + round as u32 % 2).into_iter().collect();
        assert_eq!(server.counters["matches"].0, matches.len() as i64, "round {round}");
        assert_eq!(server.lists["matches"].0, matches, "round {round}");
    }
}

#[test]
fn an_answer_to_an_add_or_a_remove_that_was_lost_is_made_up_for() {
    for lost in [":addValue", ":removeValue"] {
        let (mut fleet, mut server) = (Fleet::new(FleetOptions::default()), GameServer::new(10));
        let mut losses = 0;
        for (second, matches) in [(0, 0..2), (1, 0..2), (2, 0..1), (3, 0..1)] {
            let now = Time::from_secs(second);
            fleet.set_matches(names(matches));
            while let Some(request) = fleet.poll_request(now) {
                let mut reply = carry_out(&mut server, &request);
                if request.path.ends_with(lost) && losses == 0 {
                    (losses, reply) = (1, Reply::Nothing);
                }
                fleet.handle_reply(now, reply);
            }
        }
        assert_eq!((losses, fleet.counters().refused, fleet.counters().failed), (1, 0, 1), "{lost}");
        assert_eq!(server.lists["matches"].0, BTreeSet::from(["match-0".to_owned()]), "{lost}");
        assert!(ends_within(&mut fleet, &mut server, 4, 1), "{lost}");
        assert_eq!(server.lists["matches"].0, BTreeSet::new());
    }
}

#[test]
fn a_full_list_gets_room_and_the_new_name_at_once() {
    let (mut fleet, mut server) = (Fleet::new(FleetOptions::default()), GameServer::new(2));
    fleet.set_matches(names(0..3));
    for second in 0..60 {
        settle(&mut fleet, &mut server, Time::from_secs(second));
    }
    // However long it was full.
    fleet.set_matches(names(1..3));
    settle(&mut fleet, &mut server, Time::from_secs(60));
    assert_eq!(server.lists["matches"].0, names(1..3).into_iter().collect());
}

#[test]
fn a_shutdown_does_not_wait_for_figures_that_get_no_answer() {
    let (mut fleet, mut server) = (Fleet::new(FleetOptions::default()), GameServer::new(2));
    fleet.set_matches(names(0..1));
    settle(&mut fleet, &mut server, Time(0));
    fleet.set_matches([]);
    fleet.drain();
    while let Some(request) = fleet.poll_request(Time::from_secs(1)) {
        let is_figure = request.path.starts_with("/v1beta1/");
        let reply = if is_figure { Reply::Nothing } else { carry_out(&mut server, &request) };
        fleet.handle_reply(Time::from_secs(1), reply);
    }
    assert_eq!((fleet.state(), fleet.counters().failed), (FleetState::Ended, 2));
}

#[test]
fn names_that_the_sidecar_neither_takes_nor_removes_are_no_more_than_a_list_holds() {
    let (mut fleet, mut server) = (Fleet::new(FleetOptions::default()), GameServer::new(2));
    server.has_counts_and_lists = false;
    let mut added = BTreeSet::new();
    for number in 0..MATCHES_MAX as u32 + 50 {
        let now = Time::from_secs(31 * u64::from(number));
        fleet.set_matches(names([number]));
        while let Some(request) = fleet.poll_request(now) {
            if request.path.ends_with(":addValue") {
                added.insert(request.body.clone());
            }
            let reply = carry_out(&mut server, &request);
            fleet.handle_reply(now, reply);
        }
    }
    assert_eq!(added.len(), MATCHES_MAX);
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
                1 => Reply::read(503, ""),
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
fn answers_are_told_apart_by_status_and_text() {
    let read = Reply::read;
    assert_eq!((read(200, "not found"), read(409, ""), read(404, "")), (Reply::Done, Reply::Exists, Reply::Missing));
    assert_eq!(read(500, r#"{"code":2,"message":"already exists. Value: a already in List: b"}"#), Reply::Exists);
    assert_eq!(read(500, r#"{"code":2,"message":"list not found: b"}"#), Reply::Missing);
    for (status, text) in [(500, "out of range"), (400, ""), (302, ""), (503, "CountsAndLists not enabled")] {
        assert_eq!(read(status, text), Reply::Error, "{status} {text}");
    }
}

#[test]
fn names_that_agones_could_not_keep_are_left_out_and_counted() {
    let mut fleet = Fleet::new(FleetOptions::default());
    fleet.set_matches(names(0..MATCHES_MAX as u32 + 3).into_iter().chain([String::new(), "x".repeat(65)]));
    assert_eq!(fleet.counters().left_out, 5);
}
