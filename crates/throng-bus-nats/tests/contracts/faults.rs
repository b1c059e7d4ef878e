//! nats-server dies by `kill -9`, and comes back, or is silent.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use throng_bus::{
    Bus, Cluster, Command, CommandError, Event, Expect, Gap, Limits, Missing, RequestError, Subject, SubscriptionId,
    Ticket, WatchId,
};
use throng_bus_nats::{NatsBus, NatsOptions, Secret};

use crate::stores::{put, written};
use crate::{Clock, PATIENCE, join, options, pattern, settle, subject, until};
use throng_testkit::NatsServer;

#[test]
fn after_the_death_of_the_server_everything_goes_on_and_every_loss_is_told() {
    let Some(mut server) = NatsServer::start(&[]) else { return };
    let clock = Clock::start();
    let [mut a, mut b] = [1, 2].map(|id| join(&server, id, Limits::default()));
    b.subscribe(clock.now(), SubscriptionId(1), &pattern("news")).unwrap();
    b.handle_command(clock.now(), Command::Watch { watch: WatchId(1), pattern: pattern("k.*") }).unwrap();
    until(&clock, &mut b, |event| matches!(event, Event::Listed { .. }).then_some(()));
    written(&clock, &mut a, put(1, "k.stays", Expect::Absent, None)).unwrap();
    written(&clock, &mut a, put(2, "k.ends", Expect::Absent, Some(1))).unwrap();
    a.publish(clock.now(), &subject("news"), "1".into()).unwrap();
    until(&clock, &mut b, |event| matches!(event, Event::Message(_)).then_some(()));
    let patience = Duration::from_secs(60);
    let ask = Command::Request { ticket: Ticket(3), subject: subject("news"), payload: "?".into(), patience };
    a.handle_command(clock.now(), ask).unwrap();
    until(&clock, &mut b, |event| matches!(event, Event::Message(_)).then_some(()));

    server.kill();
    until(&clock, &mut a, |event| (event == Event::Disconnected).then_some(()));
    let lost = Event::Answer { ticket: Ticket(3), result: Err(RequestError::ConnectionLost) };
    until(&clock, &mut a, |event| (event == lost).then_some(()));
    assert_eq!(a.publish(clock.now(), &subject("news"), "2".into()), Err(CommandError::Disconnected));
    until(&clock, &mut b, |event| (event == Event::Disconnected).then_some(()));
    std::thread::sleep(Duration::from_millis(1_100));
    server.run();

    // The caller learns of the gap, and of the end of the entry whose time was over meanwhile.
    let (mut has_gap, mut has_ended, mut is_listed) = (false, false, false);
    until(&clock, &mut b, |event| {
        match event {
            Event::Gap(Gap { missing: Missing::Anywhere, .. }) => has_gap = true,
            Event::Changed { key, value: None, .. } => has_ended |= key == subject("k.ends"),
            Event::Listed { .. } => is_listed = true,
            _ => {}
        }
        (has_gap && has_ended && is_listed).then_some(())
    });
    until(&clock, &mut a, |event| (event == Event::Connected).then_some(()));
    written(&clock, &mut a, put(4, "k.new", Expect::Absent, None)).unwrap();
    until(&clock, &mut b, |event| {
        matches!(event, Event::Changed { key, value: Some(_), .. } if key == subject("k.new")).then_some(())
    });
    a.publish(clock.now(), &subject("news"), "3".into()).unwrap();
    until(&clock, &mut b, |event| matches!(event, Event::Message(m) if &m.payload[..] == b"3").then_some(()));
    assert_eq!((a.counters().disconnects, b.counters().disconnects), (1, 1));
}

/// Passes on what one end says, until nobody takes anything any more.
fn pass_on(mut from: TcpStream, mut to: TcpStream, is_silent: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while let Ok(length @ 1..) = from.read(&mut bytes) {
            if is_silent.load(Ordering::Acquire) {
                // Neither end is closed.
                std::thread::sleep(Duration::from_secs(10));
            }
            if to.write_all(&bytes[..length]).is_err() {
                return;
            }
        }
    });
}

/// An address behind which the server is, until it is made silent; it hears nothing more either, if `both` ends are.
fn silencer(server: &NatsServer, both: bool) -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("nats://{}", listener.local_addr().unwrap());
    let is_silent = Arc::new(AtomicBool::new(false));
    let (target, theirs) = (server.address().trim_start_matches("nats://").to_owned(), is_silent.clone());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(&target) else { return };
            let heard = if both { theirs.clone() } else { Arc::default() };
            pass_on(client.try_clone().unwrap(), server.try_clone().unwrap(), heard);
            pass_on(server, client, theirs.clone());
        }
    });
    (address, is_silent)
}

#[test]
fn a_bus_whose_server_is_silent_ends_within_a_second() {
    let Some(server) = NatsServer::start(&[]) else { return };
    let (servers, is_silent) = silencer(&server, true);
    let limits = Limits { outgoing: 16, ..Limits::default() };
    let ping_every = Duration::from_secs(60);
    let mut bus = NatsBus::start(NatsOptions { servers, limits, ping_every, ..options(&server, 1) }).unwrap();
    is_silent.store(true, Ordering::Release);
    let clock = Clock::start();
    let payload = vec![7; 16_384];
    // It stays full: nothing leaves any more.
    let mut refused_since = None;
    let is_full = |since: Option<Instant>| since.is_some_and(|since| since.elapsed() > Duration::from_millis(300));
    while !is_full(refused_since) {
        match bus.publish(clock.now(), &subject("news"), payload.clone().into()) {
            Ok(()) => refused_since = None,
            Err(_) => {
                refused_since.get_or_insert_with(Instant::now);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    let begun = Instant::now();
    drop(bus);
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// Its answers are lost, and the connection holds: what the member says arrives.
#[test]
fn writes_that_the_store_does_not_answer_keep_no_message_back() {
    let Some(server) = NatsServer::start(&[]) else { return };
    let (servers, is_silent) = silencer(&server, false);
    let limits = Limits { open_tickets: 6_000, ..Limits::default() };
    let ping_every = Duration::from_secs(60);
    let mut bus = NatsBus::start(NatsOptions { servers, limits, ping_every, ..options(&server, 1) }).unwrap();
    let mut other = join(&server, 2, Limits::default());
    let clock = Clock::start();
    other.subscribe(clock.now(), SubscriptionId(1), &pattern("news")).unwrap();
    settle(&clock, &mut other);
    is_silent.store(true, Ordering::Release);
    for ticket in 0..6_000 {
        bus.handle_command(clock.now(), put(ticket, "k.a", Expect::Anything, None)).unwrap();
    }
    bus.publish(clock.now(), &subject("news"), "still here".into()).unwrap();
    let begun = Instant::now();
    until(&clock, &mut other, |event| matches!(event, Event::Message(_)).then_some(()));
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// Removes all that the server sends changes of the store to. Returns how many there were.
fn remove_consumers(server: &NatsServer) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let context = async_nats::jetstream::new(async_nats::connect(server.address()).await.unwrap());
        let stream = context.get_stream("KV_throng-test").await.unwrap();
        let names = stream.consumer_names().collect::<Vec<_>>().await;
        for name in &names {
            stream.delete_consumer(name.as_ref().unwrap()).await.unwrap();
        }
        names.len()
    })
}

#[test]
fn a_watch_whose_consumer_was_removed_is_listed_again_and_misses_nothing() {
    let Some(server) = NatsServer::start(&[]) else { return };
    let clock = Clock::start();
    let mut bus = join(&server, 1, Limits::default());
    bus.handle_command(clock.now(), Command::Watch { watch: WatchId(1), pattern: pattern("k.*") }).unwrap();
    until(&clock, &mut bus, |event| matches!(event, Event::Listed { .. }).then_some(()));
    assert_eq!(remove_consumers(&server), 1);
    bus.handle_command(clock.now(), put(1, "k.a", Expect::Absent, None)).unwrap();
    let changed = |event| matches!(event, Event::Changed { value: Some(_), .. }).then_some(());
    until(&clock, &mut bus, changed);
    until(&clock, &mut bus, |event| matches!(event, Event::Listed { .. }).then_some(()));
    assert_eq!(bus.counters().failed_watches, 0);
}

/// Waits until the bus says why its server does not fit. It cannot be used then, and takes nothing, whatever `each` does meanwhile.
fn problem(clock: &Clock, bus: &mut NatsBus, mut each: impl FnMut()) -> String {
    let end = clock.now().after(PATIENCE);
    let problem = loop {
        if let Some(problem) = bus.problem() {
            break problem;
        }
        assert!(clock.now() < end, "no problem in {PATIENCE:?}");
        bus.wait(Duration::from_millis(20));
    };
    let end = clock.now().after(Duration::from_secs(3));
    while clock.now() < end {
        bus.handle_timeout(clock.now());
        each();
        let news = std::iter::from_fn(|| bus.poll_event(clock.now()));
        assert!(!news.into_iter().any(|event| matches!(event, Event::Connected | Event::Message(_))));
        assert_eq!(bus.publish(clock.now(), &subject("news"), "1".into()), Err(CommandError::Disconnected));
        bus.wait(Duration::from_millis(20));
    }
    assert!(!problem.contains('\n'), "{problem:?}");
    problem
}

/// Everything works again.
fn assert_works(clock: &Clock, bus: &mut NatsBus) {
    until(clock, bus, |event| (event == Event::Connected).then_some(()));
    assert_eq!(bus.problem(), None);
    written(clock, bus, put(1, "k.a", Expect::Anything, None)).unwrap();
    bus.publish(clock.now(), &subject("news"), vec![7; 100_000].into()).unwrap();
    until(clock, bus, |event| matches!(event, Event::Message(_)).then_some(()));
}

/// The lines of all buses with [`note`].
static NOTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note(line: &str) {
    NOTED.lock().unwrap().push(line.to_owned());
}

fn noted(text: &str) -> usize {
    NOTED.lock().unwrap().iter().filter(|line| line.contains(text)).count()
}

#[test]
fn a_server_that_comes_back_and_takes_only_shorter_messages_is_not_used_until_it_takes_longer_ones() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let takes = |most: usize| std::fs::write(file.path(), format!("max_payload: {most}")).unwrap();
    takes(1 << 20);
    let Some(mut server) = NatsServer::start(&["-c", file.path().to_str().unwrap()]) else { return };
    let clock = Clock::start();
    let mut bus = NatsBus::start(NatsOptions { note, ..options(&server, 1) }).unwrap();
    bus.subscribe(clock.now(), SubscriptionId(1), &pattern("news")).unwrap();
    assert_works(&clock, &mut bus);
    server.kill();
    until(&clock, &mut bus, |event| (event == Event::Disconnected).then_some(()));
    takes(65_536);
    server.run();
    let text = problem(&clock, &mut bus, || ());
    assert!(text.contains("65536 bytes") && text.contains("raise max_payload"), "{text}");
    assert_eq!(noted("takes messages of 65536 bytes"), 1, "it is said once");
    assert!(bus.counters().unfit_servers >= 2, "each connection is counted: {:?}", bus.counters());
    server.kill();
    takes(1 << 20);
    server.run();
    assert_works(&clock, &mut bus);
}

#[test]
fn a_member_that_comes_to_another_cluster_does_not_use_it_and_goes_on_at_its_own() {
    let Some(mut server) = NatsServer::start(&[]) else { return };
    let Some(foreign) = NatsServer::start(&[]) else { return };
    let clock = Clock::start();
    // The same name, and another id.
    let cluster = Cluster::new("test", 77).unwrap();
    let mut stranger = NatsBus::start(NatsOptions { cluster, ..options(&foreign, 9) }).unwrap();
    stranger.handle_command(clock.now(), put(1, "k.theirs", Expect::Absent, None)).unwrap();
    let ours = NatsBus::start(options(&server, 2)).unwrap();
    drop(ours);
    let servers = format!("{},{}", server.address(), foreign.address());
    let started = || NatsBus::start(NatsOptions { servers: servers.clone(), note, ..options(&server, 1) });
    // The client takes the servers in any order.
    let end = clock.now().after(PATIENCE);
    let mut bus = loop {
        match started() {
            Ok(bus) => break bus,
            Err(error) => assert!(clock.now() < end && error.tag() == "taken", "{error}"),
        }
    };
    bus.subscribe(clock.now(), SubscriptionId(1), &pattern("news")).unwrap();
    bus.handle_command(clock.now(), Command::Watch { watch: WatchId(1), pattern: pattern("k.*") }).unwrap();
    assert_works(&clock, &mut bus);
    server.kill();
    until(&clock, &mut bus, |event| (event == Event::Disconnected).then_some(()));
    let text = problem(&clock, &mut bus, || {
        stranger.publish(clock.now(), &subject("news"), "not for us".into()).unwrap();
    });
    assert!(text.contains("belongs to another cluster (id 000000000000004d"), "{text}");
    assert_eq!(noted("(id 000000000000004d"), 1, "it is said once");
    server.run();
    until(&clock, &mut bus, |event| {
        let is_theirs = |key: &Subject| *key == subject("k.theirs");
        assert!(!matches!(&event, Event::Message(_)), "{event:?}");
        assert!(!matches!(&event, Event::Changed { key, .. } if is_theirs(key)), "{event:?}");
        matches!(event, Event::Listed { .. }).then_some(())
    });
    written(&clock, &mut bus, put(2, "k.a", Expect::Anything, None)).unwrap();
    assert_eq!(bus.problem(), None);
}

#[test]
fn messages_go_on_after_a_second_although_the_store_does_not_say_whose_it_is() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let denies = |subjects: &str| {
        let user = format!("{{user: u, password: p, permissions: {{publish: {{deny: [{subjects}]}}}}}}");
        std::fs::write(file.path(), format!("authorization: {{users: [{user}]}}")).unwrap();
    };
    denies("\"none\"");
    let Some(mut server) = NatsServer::start(&["-c", file.path().to_str().unwrap()]) else { return };
    let secret = Secret::User("u".to_owned(), "p".to_owned());
    let clock = Clock::start();
    let mut bus = NatsBus::start(NatsOptions { secret, ..options(&server, 1) }).unwrap();
    bus.subscribe(clock.now(), SubscriptionId(1), &pattern("news")).unwrap();
    assert_works(&clock, &mut bus);
    server.kill();
    until(&clock, &mut bus, |event| (event == Event::Disconnected).then_some(()));
    denies("\"$JS.API.STREAM.MSG.GET.>\"");
    server.run();
    assert_works(&clock, &mut bus);
    assert_eq!((bus.problem(), bus.counters().unfit_servers), (None, 0));
}
