//! nats-server dies by `kill -9`, and comes back, or is silent.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use throng_bus::{
    Bus, Command, CommandError, Event, Expect, Gap, Limits, Missing, RequestError, SubscriptionId, Ticket, WatchId,
};
use throng_bus_nats::{NatsBus, NatsOptions};

use crate::stores::{put, written};
use crate::{Clock, join, options, pattern, settle, subject, until};
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
