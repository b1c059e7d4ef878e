//! The store: one order of writes, expectations, ends of entries, and watches that end with the store's state.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use throng_bus::endpoint::{Endpoint, Outgoing};
use throng_bus::sim::{SimBus, SimNet, Weather};
use throng_bus::{
    Bus, Command, Event, Expect, Limits, LocalHub, MemberId, Revision, StoreError, Subject, Ticket, WatchId,
};
use throng_wire::Time;

use crate::{events, pattern, subject};

fn put(ticket: u64, key: &str, expect: Expect, seconds: Option<u64>) -> Command {
    let lives_for = seconds.map(Duration::from_secs);
    Command::Put { ticket: Ticket(ticket), key: subject(key), value: ticket.to_string().into(), expect, lives_for }
}

/// The end of a write.
fn written(
    bus: &mut impl Bus,
    now: Time,
    command: Command,
    pass: &mut impl FnMut() -> Time,
) -> Result<u64, StoreError> {
    bus.handle_command(now, command).expect("there is room");
    let now = pass();
    let end = events(bus, now).into_iter().find_map(|event| match event {
        Event::Written { result, .. } => Some(result.map(|revision| revision.0)),
        _ => None,
    });
    end.expect("the write has an end")
}

fn expectations(bus: &mut impl Bus, mut pass: impl FnMut() -> Time) {
    let mut now = pass();
    let first = written(bus, now, put(1, "k.a", Expect::Absent, None), &mut pass).unwrap();
    now = pass();
    assert_eq!(written(bus, now, put(2, "k.a", Expect::Absent, None), &mut pass), Err(StoreError::Refused));
    let stale = Expect::Revision(Revision(first + 100));
    assert_eq!(written(bus, now, put(3, "k.a", stale, None), &mut pass), Err(StoreError::Refused));
    let second = written(bus, now, put(4, "k.a", Expect::Revision(Revision(first)), None), &mut pass).unwrap();
    let other = written(bus, now, put(5, "k.b", Expect::Anything, None), &mut pass).unwrap();
    assert!(first < second && second < other, "{first} {second} {other}");
    let delete = |ticket, revision| Command::Delete {
        ticket: Ticket(ticket),
        key: subject("k.a"),
        expect: Expect::Revision(Revision(revision)),
    };
    assert_eq!(written(bus, now, delete(6, first), &mut pass), Err(StoreError::Refused));
    let removed = written(bus, now, delete(7, second), &mut pass).unwrap();
    let again = written(bus, now, put(8, "k.a", Expect::Absent, None), &mut pass).unwrap();
    assert!(other < removed && removed < again, "{other} {removed} {again}");
}

#[test]
fn in_process_writes_happen_only_as_expected() {
    expectations(&mut LocalHub::new().join(MemberId(1), Limits::default()), || Time(0));
}

#[test]
fn over_a_network_writes_happen_only_as_expected() {
    let net = SimNet::new(1, Weather::default());
    let mut bus = net.join(MemberId(1), Limits::default());
    expectations(&mut bus, || {
        net.pass(Duration::from_millis(500));
        net.now()
    });
}

#[test]
fn in_process_an_entry_ends_when_its_time_is_over_and_watchers_are_told() {
    let hub = LocalHub::new();
    let [mut writer, mut watcher] = [1, 2].map(|id| hub.join(MemberId(id), Limits::default()));
    writer.handle_command(Time(0), put(1, "k.a", Expect::Absent, Some(2))).unwrap();
    watcher.handle_command(Time(0), Command::Watch { watch: WatchId(1), pattern: pattern("k.*") }).unwrap();
    let told = events(&mut watcher, Time(0));
    assert!(
        matches!(&told[..], [Event::Connected, Event::Changed { value: Some(_), .. }, Event::Listed { .. }]),
        "{told:?}"
    );
    assert_eq!(events(&mut watcher, Time(1_999_999)), []);
    let told = events(&mut watcher, Time(2_000_000));
    assert!(matches!(&told[..], [Event::Changed { value: None, .. }]), "{told:?}");
    writer.handle_command(Time(2_000_000), put(2, "k.a", Expect::Absent, None)).unwrap();
    watcher.handle_command(Time(2_000_000), Command::Unwatch { watch: WatchId(1) }).unwrap();
    assert_eq!(events(&mut watcher, Time(2_000_000)), []);
}

/// Keeps what a watch says.
struct Watcher {
    bus: SimBus,
    seen: BTreeMap<Subject, Bytes>,
    listings: u64,
}

impl Watcher {
    fn read(&mut self) {
        let now = self.bus.clock();
        for event in events(&mut self.bus, now) {
            match event {
                Event::Changed { key, value: Some(value), .. } => drop(self.seen.insert(key, value)),
                Event::Changed { key, value: None, .. } => drop(self.seen.remove(&key)),
                Event::Listed { .. } => self.listings += 1,
                _ => {}
            }
        }
    }
}

/// The oracle is the store's log, replayed.
fn storm(seed: u64) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let delay = Duration::from_micros(100)..Duration::from_millis(rng.u64(1..100));
    let net = SimNet::new(seed, Weather { delay, ..Weather::default() });
    let mut writer = net.join(MemberId(1), Limits::default());
    let mut bus = net.join(MemberId(2), Limits::default());
    bus.handle_command(Time(0), Command::Watch { watch: WatchId(1), pattern: pattern("k.*") }).unwrap();
    let mut watcher = Watcher { bus, seen: BTreeMap::new(), listings: 0 };
    let mut ticket = 0;
    for round in 0..120 {
        ticket += 1;
        let key = format!("{}.{}", ["k", "other"][usize::from(rng.u8(0..5) == 0)], rng.u8(0..6));
        let command = if rng.u8(0..4) == 0 {
            Command::Delete { ticket: Ticket(ticket), key: subject(&key), expect: Expect::Anything }
        } else {
            put(ticket, &key, Expect::Anything, (rng.u8(0..3) == 0).then(|| rng.u64(1..4)))
        };
        let _ = writer.handle_command(writer.clock(), command);
        match rng.u8(0..30) {
            0 => net.reset(MemberId(2)),
            1 => net.cut(MemberId(2), true),
            2..=5 => net.cut(MemberId(2), false),
            6 => net.run_server(false),
            7..=9 => net.run_server(true),
            _ => {}
        }
        net.pass(Duration::from_millis(rng.u64(0..200)));
        events(&mut writer, net.now());
        if round % 7 == 0 {
            watcher.read();
        }
    }
    net.cut(MemberId(2), false);
    net.run_server(true);
    net.pass(Duration::from_secs(8));
    watcher.read();
    let mut expected = BTreeMap::new();
    for write in net.writes().into_iter().filter(|write| write.key.as_str().starts_with("k.")) {
        match write.value {
            Some(value) => drop(expected.insert(write.key, value)),
            None => drop(expected.remove(&write.key)),
        }
    }
    if watcher.seen == expected { Ok(()) } else { Err(format!("{:?} instead of {expected:?}", watcher.seen)) }
}

#[test]
fn after_any_storm_a_watch_has_told_the_state_of_the_store() {
    throng_seeds::for_seeds(1_000, storm);
}

#[test]
fn a_watch_with_too_many_keys_ends_and_says_so() {
    let net = SimNet::new(1, Weather::default());
    let limits = Limits { watched_keys: 3, ..Limits::default() };
    let mut bus = net.join(MemberId(1), limits);
    bus.handle_command(Time(0), Command::Watch { watch: WatchId(9), pattern: pattern("k.*") }).unwrap();
    net.pass(Duration::from_secs(1));
    for key in 0..4 {
        bus.handle_command(net.now(), put(key, &format!("k.{key}"), Expect::Anything, None)).unwrap();
    }
    net.pass(Duration::from_secs(1));
    let told = events(&mut bus, net.now());
    assert!(told.contains(&Event::WatchFailed { watch: WatchId(9) }), "{told:?}");
    assert_eq!(bus.counters().failed_watches, 1);
}

/// A task of the former listing may wake up late.
#[test]
fn a_listing_that_another_one_has_followed_begins_none() {
    let watch = WatchId(1);
    let mut endpoint = Endpoint::new(MemberId(1), Limits::default());
    endpoint.handle_connected(Time(0));
    endpoint.handle_command(Time(0), Command::Watch { watch, pattern: pattern("k.*") }).unwrap();
    endpoint.handle_disconnected();
    endpoint.handle_connected(Time(1));
    let listings = std::iter::from_fn(|| endpoint.poll_outgoing()).filter_map(|outgoing| match outgoing {
        Outgoing::Watch { listing, .. } => Some(listing),
        _ => None,
    });
    assert_eq!(listings.collect::<Vec<_>>(), [2]);
    assert_eq!(endpoint.relist(watch, 1), None);
    endpoint.handle_entry(watch, 2, "k.a", Revision(1), Some("x".into()));
    endpoint.handle_listed(watch, 2);
    let told = events_of(&mut endpoint);
    assert!(matches!(&told[told.len() - 2..], [Event::Changed { .. }, Event::Listed { .. }]), "{told:?}");
    assert_eq!(
        (endpoint.relist(watch, 2), endpoint.relist(watch, 2), endpoint.relist(WatchId(2), 3)),
        (Some(3), None, None)
    );
}

/// The tasks of a watch that has ended may still hand over what they have read.
#[test]
fn a_watch_that_begins_again_takes_nothing_of_the_one_that_has_ended() {
    let watch = WatchId(1);
    let mut endpoint = Endpoint::new(MemberId(1), Limits::default());
    endpoint.handle_connected(Time(0));
    let begin = |endpoint: &mut Endpoint| {
        endpoint.handle_command(Time(0), Command::Watch { watch, pattern: pattern("k.*") }).unwrap();
        let listings = std::iter::from_fn(|| endpoint.poll_outgoing()).filter_map(|outgoing| match outgoing {
            Outgoing::Watch { listing, .. } => Some(listing),
            _ => None,
        });
        listings.last().unwrap()
    };
    let former = begin(&mut endpoint);
    endpoint.handle_refused_watch(watch, former);
    let newest = begin(&mut endpoint);
    events_of(&mut endpoint);
    endpoint.handle_entry(watch, former, "k.a", Revision(1), Some("x".into()));
    endpoint.handle_listed(watch, former);
    endpoint.handle_refused_watch(watch, former);
    assert_eq!((events_of(&mut endpoint), endpoint.relist(watch, former)), (vec![], None));
    endpoint.handle_listed(watch, newest);
    assert_eq!(events_of(&mut endpoint), [Event::Listed { watch }]);
}

fn events_of(endpoint: &mut Endpoint) -> Vec<Event> {
    std::iter::from_fn(|| endpoint.poll_event()).collect()
}
