//! Many matches on real threads and sockets. Time is real here, so the tests wait for what must happen, and never for how
//! long it takes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use throng::{Client, ClientOptions, Server, Time};
use throng_match::{Host, HostError, HostOptions, Match, MatchOptions, Overrun, Pinning, Scheduling};
use throng_telemetry::{Clock, Telemetry, TelemetryOptions};

use crate::balls::{BALLS, Ball, Balls, Fault, RATE_HZ, schema, server_options};

const PATIENCE: Duration = Duration::from_secs(60);

struct Place {
    telemetry: Telemetry,
    began: Instant,
}

impl Place {
    fn new() -> Place {
        Place { telemetry: Telemetry::start(TelemetryOptions::default()).expect("no files"), began: Instant::now() }
    }

    fn host(&self, options: HostOptions) -> Host {
        Host::start(options, self.telemetry.clock().clone()).expect("threads")
    }

    fn game(&self, name: &str, balls: Balls) -> (Match, SocketAddr) {
        let server = Server::bind("127.0.0.1:0".parse().expect("an address"), schema(), server_options());
        let server = server.expect("a free port");
        let address = server.local_address();
        let options =
            MatchOptions { rate_hz: RATE_HZ, farewell: Duration::from_millis(200), ..MatchOptions::new(name) };
        let game = Match::new(options, Box::new(balls), server, self.telemetry.recorder(name)).expect("no log");
        (game, address)
    }

    fn client(&self, address: SocketAddr, client_id: u64) -> Client {
        let token = server_options().token_issuer().issue(client_id, &[address]).expect("a token");
        Client::connect(token, schema(), ClientOptions::default(), self.now()).expect("a socket")
    }

    fn now(&self) -> Time {
        Time::from(self.began.elapsed())
    }

    /// Calls `done` every millisecond until it says so.
    fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        while !done() {
            assert!(self.began.elapsed() < PATIENCE, "not within a minute: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn two_workers() -> HostOptions {
    HostOptions { workers: 2, pinning: Pinning::None, ..HostOptions::default() }
}

#[test]
fn one_broken_match_ends_alone_and_the_others_are_played_to_their_results() {
    let place = Place::new();
    let mut host = place.host(HostOptions { migrates: false, ..two_workers() });
    let mut clients = Vec::new();
    for number in 0..8_u64 {
        let fault = (number == 3).then_some((30, Fault::Panic));
        let (game, address) = place.game(&format!("match {number}"), Balls { fault, ..Balls::new(number, 150) });
        assert_eq!(host.add(game).0, number);
        clients.push(place.client(address, 1));
    }
    let (mut ends, mut most_seen) = (Vec::new(), [0; 8]);
    place.until("all have ended", || {
        for (client, most) in clients.iter_mut().zip(&mut most_seen) {
            let _ = client.update(place.now());
            while client.poll_event().is_some() {}
            *most = client.objects::<Ball>().count().max(*most);
        }
        ends.extend(host.poll_end());
        ends.len() == 8
    });
    ends.sort_by_key(|(id, _)| *id);
    for (id, end) in &ends {
        let line = end.to_string();
        assert_eq!(end.error.is_some(), id.0 == 3, "{line}");
        assert_eq!(line.lines().count(), 1);
        assert_eq!(most_seen[id.0 as usize], if id.0 == 3 { most_seen[3] } else { BALLS }, "{line}");
    }
    assert!(ends[3].1.to_string().starts_with("match 3, tick 30: the game panicked: ball 30 is nowhere"));
    let figures = host.figures();
    assert_eq!(figures.iter().map(|worker| worker.matches).sum::<usize>(), 0);
    let frames: u64 = figures.iter().map(|worker| worker.frames).sum();
    assert!(frames >= 7 * 150 + 30, "{frames}");
    assert_eq!(figures.iter().map(|worker| worker.late_ns.count).sum::<u64>(), frames, "every frame has a lateness");
    assert!(figures.iter().all(|worker| worker.frames > 100), "both workers play: {figures:?}");
    assert!(figures.iter().all(|worker| worker.deaths == 0));
    let shutdown = host.shut_down("closing", Duration::from_secs(10));
    assert!(shutdown.ends.is_empty() && shutdown.stuck.is_empty(), "{shutdown:?}");
}

#[test]
fn shutting_down_ends_all_matches_and_tells_their_clients() {
    let place = Place::new();
    let mut host = place.host(two_workers());
    let (game, address) = place.game("long", Balls::new(1, 1_000_000));
    host.add(game);
    let mut client = place.client(address, 1);
    place.until("it sees the game", || {
        client.update(place.now()).expect("a socket");
        client.objects::<Ball>().count() == BALLS
    });
    let shutdown = std::thread::scope(|scope| {
        let ending = scope.spawn(|| host.shut_down("the machine is needed", Duration::from_secs(10)));
        place.until("it is told", || {
            let _ = client.update(place.now());
            while client.poll_event().is_some() {}
            client.end_reason().is_some()
        });
        ending.join().expect("no panic")
    });
    assert!(client.end_reason().is_some_and(|reason| reason.to_string().contains("the machine is needed")));
    assert!(shutdown.stuck.is_empty());
    let lines: Vec<String> = shutdown.ends.iter().map(|(_, end)| end.to_string()).collect();
    assert!(lines.len() == 1 && lines[0].ends_with("stopped: the machine is needed"), "{lines:?}");
}

#[test]
fn one_match_ends_when_it_is_asked_to_and_the_others_are_played_on() {
    let place = Place::new();
    let mut host = place.host(two_workers());
    let ids: Vec<_> = (0..3)
        .map(|number| host.add(place.game(&format!("match {number}"), Balls::new(number, 1_000_000)).0))
        .collect();
    host.end(ids[1], "the load falls");
    host.end(ids[1], "a later reason");
    let (id, end) = host.wait_end(PATIENCE).expect("it ends");
    assert_eq!((id, end.to_string().rsplit(": ").next()), (ids[1], Some("the load falls")));
    host.end(ids[1], "it has ended");
    let frames = || host.figures().iter().map(|worker| worker.frames).sum::<u64>();
    let before = frames();
    place.until("the others go on", || frames() > before + u64::from(RATE_HZ));
    assert_eq!(host.figures().iter().map(|worker| worker.matches).sum::<usize>(), 2);
    // The first reason counts also where all end right after it.
    host.end(ids[2], "it was asked for first");
    let mut ends = host.shut_down("closing", Duration::from_secs(10)).ends;
    ends.sort_by_key(|(id, _)| *id);
    let reasons: Vec<_> =
        ends.iter().map(|(id, end)| (*id, end.to_string().rsplit(": ").next().unwrap().to_owned())).collect();
    assert_eq!(reasons, [(ids[0], "closing".to_owned()), (ids[2], "it was asked for first".to_owned())]);
}

#[test]
fn a_game_that_hangs_is_named_and_does_not_stop_the_end() {
    let place = Place::new();
    let mut host = place.host(two_workers());
    let (game, _) = place.game("stuck", Balls { fault: Some((5, Fault::Hang)), ..Balls::new(1, 1_000) });
    host.add(game);
    let (game, _) = place.game("sound", Balls::new(1, 1_000_000));
    host.add(game);
    // The worker of the stuck one plays no more frames.
    place.until("one is played far beyond the fault", || host.figures().iter().any(|worker| worker.frames > 40));
    let began = Instant::now();
    let shutdown = host.shut_down("closing", Duration::from_secs(3));
    assert!(began.elapsed() < Duration::from_secs(20), "it is bounded");
    assert_eq!(shutdown.stuck, ["stuck"]);
    assert_eq!(shutdown.ends.iter().map(|(_, end)| &end.name[..]).collect::<Vec<_>>(), ["sound"]);
}

#[test]
fn a_worker_that_hangs_draws_no_match_and_those_behind_it_are_named_too() {
    let place = Place::new();
    let mut host = place.host(two_workers());
    let (game, _) = place.game("stuck", Balls { fault: Some((5, Fault::Hang)), ..Balls::new(1, 1_000) });
    host.add(game);
    // They work hard enough that one of them would move to a worker with nothing to do.
    let working = |number: u64| Balls { work: 300_000, ..Balls::new(number, 1_000_000) };
    let (game, _) = place.game("sound 1", working(1));
    host.add(game);
    let (game, _) = place.game("behind", Balls::new(2, 1_000_000));
    host.add(game);
    place.until("the second worker plays far beyond the fault", || host.figures()[1].frames > 40);
    std::thread::sleep(Duration::from_millis(400));
    for number in 2..4 {
        let (game, _) = place.game(&format!("sound {number}"), working(number));
        host.add(game);
    }
    host.reset_figures();
    // Loads are compared each second.
    std::thread::sleep(Duration::from_millis(2_500));
    let figures = host.figures();
    assert_eq!((figures[1].matches, figures[1].migrated), (3, 0), "{figures:?}");
    let shutdown = host.shut_down("closing", Duration::from_secs(3));
    assert_eq!(shutdown.stuck, ["stuck", "behind"]);
    let mut ends: Vec<&str> = shutdown.ends.iter().map(|(_, end)| &end.name[..]).collect();
    ends.sort_unstable();
    assert_eq!(ends, ["sound 1", "sound 2", "sound 3"]);
}

#[test]
fn a_match_moves_whole_to_an_idle_worker_and_is_played_on() {
    let place = Place::new();
    let mut host = place.host(two_workers());
    // The matches go to the workers in turn. The even ones work hard, so the first worker is much busier.
    for number in 0..4_u64 {
        let work = if number % 2 == 0 { 300_000 } else { 0 };
        let (game, _) = place.game(&format!("match {number}"), Balls { work, ..Balls::new(number, 1_000_000) });
        host.add(game);
    }
    place.until("a match has moved", || host.figures().iter().any(|worker| worker.migrated > 0));
    host.reset_figures();
    place.until("all are played", || {
        host.figures().iter().map(|worker| worker.frames).sum::<u64>() > 4 * u64::from(RATE_HZ)
    });
    let snapshot = place.telemetry.snapshot();
    assert_eq!(snapshot.recorders.len(), 4, "their records went with them");
    assert_eq!(host.figures().iter().map(|worker| worker.matches).sum::<usize>(), 4);
    let shutdown = host.shut_down("closing", Duration::from_secs(10));
    assert_eq!((shutdown.ends.len(), shutdown.stuck.len()), (4, 0));
}

#[test]
fn a_worker_whose_last_match_has_ended_has_no_load() {
    let place = Place::new();
    let mut host = place.host(two_workers());
    let busy = |number: u64| Balls { work: 300_000, ..Balls::new(number, 1_000_000) };
    // One goes to the first worker, one to the second.
    let (game, _) = place.game("first", Balls::new(1, 1_000_000));
    host.add(game);
    let (game, _) = place.game("second", busy(2));
    let second = host.add(game);
    place.until("the second worker is busy", || host.figures()[1].load > 0.0);
    host.end(second, "it is no longer needed");
    host.wait_end(PATIENCE).expect("it ends");
    place.until("it has nothing to do", || host.figures()[1].load == 0.0);
    assert_eq!(host.figures()[1].matches, 0);
}

#[test]
fn the_first_deadline_of_a_match_is_within_a_tick_by_the_clock_of_its_host() {
    let place = Place::new();
    let (clock, hands) = Clock::manual();
    hands.wait(3_600_000_000_000);
    let mut host = Host::start(HostOptions { workers: 1, ..two_workers() }, clock).expect("a thread");
    host.add(place.game("late", Balls::new(1, 1_000_000)).0);
    let tick_ns = 1_000_000_000 / u64::from(RATE_HZ);
    hands.wait(tick_ns);
    place.until("it plays", || host.figures()[0].frames > 0);
    let figures = &host.figures()[0];
    // The deadline of the next tick may have come too.
    assert!(figures.missed_ticks <= 1, "the hour before counts for nothing: {figures:?}");
    assert!(figures.late_ns.max <= tick_ns, "{:?}", figures.late_ns);
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| host.shut_down("done", Duration::from_secs(10)));
        place.until("it ends", || {
            hands.wait(tick_ns);
            ending.is_finished()
        });
    });
}

#[test]
fn settings_that_are_not_possible_are_refused_with_the_reason() {
    let clock = || throng_match::Clock::system();
    let refused = |options| Host::start(options, clock()).expect_err("not possible").to_string();
    assert_eq!(refused(HostOptions { workers: 0, ..HostOptions::default() }), "a host has 1 to 256 workers, and not 0");
    let line = refused(HostOptions { pinning: Pinning::Cores(vec![70_000]), ..HostOptions::default() });
    assert!(line.starts_with("there is no core 70000 for a worker: this process may use ["), "{line}");
    assert!(matches!(
        Host::start(HostOptions { workers: 999, ..HostOptions::default() }, clock()),
        Err(HostError::Workers(999))
    ));
}

#[cfg(target_os = "linux")]
#[test]
fn a_worker_takes_the_timer_slack_that_it_is_given() {
    let scheduling = Scheduling { timer_slack_ns: std::num::NonZeroU64::new(1) };
    let slack = std::thread::spawn(move || {
        scheduling.apply().expect("Linux has it");
        rustix::thread::current_timer_slack().expect("Linux has it")
    });
    assert_eq!(slack.join().expect("no panic"), 1);
    let place = Place::new();
    let host = place.host(HostOptions { scheduling, overrun: Overrun::CatchUp { at_most: 2 }, ..two_workers() });
    assert!(host.figures().iter().all(|worker| worker.refused.is_none()));
}
