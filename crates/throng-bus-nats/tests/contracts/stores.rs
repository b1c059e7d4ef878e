//! The key-value store: expectations, watches, ends of entries, leases and fencing.

use std::time::Duration;

use throng_bus::{
    Bus, Command, Event, Expect, Fence, FencedError, FencedWrite, FencedWrites, Lease, LeaseChange, LeaseOptions,
    Limits, MemberId, Revision, StoreError, Ticket, WatchId,
};
use throng_bus_nats::NatsBus;

use crate::{Clock, join, pattern, subject, until};
use throng_testkit::NatsServer;

pub(crate) fn put(ticket: u64, key: &str, expect: Expect, seconds: Option<u64>) -> Command {
    let lives_for = seconds.map(Duration::from_secs);
    Command::Put { ticket: Ticket(ticket), key: subject(key), value: ticket.to_string().into(), expect, lives_for }
}

pub(crate) fn written(clock: &Clock, bus: &mut NatsBus, command: Command) -> Result<u64, StoreError> {
    bus.handle_command(clock.now(), command).expect("there is room");
    until(clock, bus, |event| match event {
        Event::Written { result, .. } => Some(result.map(|revision| revision.0)),
        _ => None,
    })
}

fn got(clock: &Clock, bus: &mut NatsBus, ticket: u64, key: &str) -> Option<String> {
    bus.handle_command(clock.now(), Command::Get { ticket: Ticket(ticket), key: subject(key) }).expect("there is room");
    until(clock, bus, |event| match event {
        Event::Got { result, .. } => Some(result.expect("the server is there")),
        _ => None,
    })
    .map(|entry| String::from_utf8_lossy(&entry.value).into_owned())
}

#[test]
fn writes_happen_only_as_expected_and_watches_tell_them() {
    let Some(server) = NatsServer::start(&[]) else { return };
    let clock = Clock::start();
    let [mut bus, mut watcher] = [1, 2].map(|id| join(&server, id, Limits::default()));
    let listed = |event| matches!(event, Event::Listed { .. }).then_some(());
    watcher.handle_command(clock.now(), Command::Watch { watch: WatchId(1), pattern: pattern("k.*") }).unwrap();
    until(&clock, &mut watcher, listed);

    let first = written(&clock, &mut bus, put(1, "k.a", Expect::Absent, None)).unwrap();
    assert_eq!(written(&clock, &mut bus, put(2, "k.a", Expect::Absent, None)), Err(StoreError::Refused));
    let stale = Expect::Revision(Revision(first + 100));
    assert_eq!(written(&clock, &mut bus, put(3, "k.a", stale, None)), Err(StoreError::Refused));
    let second = written(&clock, &mut bus, put(4, "k.a", Expect::Revision(Revision(first)), None)).unwrap();
    assert_eq!(got(&clock, &mut bus, 5, "k.a").as_deref(), Some("4"));
    let delete = |ticket, revision| Command::Delete {
        ticket: Ticket(ticket),
        key: subject("k.a"),
        expect: Expect::Revision(Revision(revision)),
    };
    assert_eq!(written(&clock, &mut bus, delete(6, first)), Err(StoreError::Refused));
    let removed = written(&clock, &mut bus, delete(7, second)).unwrap();
    assert_eq!(got(&clock, &mut bus, 8, "k.a"), None);
    let again = written(&clock, &mut bus, put(9, "k.a", Expect::Absent, None)).unwrap();
    assert!(first < second && second < removed && removed < again);

    let mut told = Vec::new();
    until(&clock, &mut watcher, |event| {
        if let Event::Changed { value, revision, .. } = event {
            told.push((revision.0, value.map(|value| String::from_utf8_lossy(&value).into_owned())));
        }
        told.last().is_some_and(|(revision, _)| *revision == again).then_some(())
    });
    // Changes that follow each other quickly may be told as one.
    assert!(told.is_sorted() && told.last().is_some_and(|(_, value)| value.as_deref() == Some("9")), "{told:?}");

    let mut late = join(&server, 3, Limits::default());
    late.handle_command(clock.now(), Command::Watch { watch: WatchId(1), pattern: pattern(">") }).unwrap();
    let mut keys = Vec::new();
    until(&clock, &mut late, |event| match event {
        Event::Changed { key, .. } => {
            keys.push(key.as_str().to_owned());
            None
        }
        other => listed(other),
    });
    assert_eq!(keys, ["cluster", "k.a"]);
}

#[test]
fn an_entry_ends_by_itself_also_over_an_older_removal() {
    let Some(server) = NatsServer::start(&[]) else { return };
    let clock = Clock::start();
    let mut bus = join(&server, 1, Limits::default());
    bus.handle_command(clock.now(), Command::Watch { watch: WatchId(1), pattern: pattern("k.*") }).unwrap();
    for round in 0..2 {
        let begun = clock.now();
        written(&clock, &mut bus, put(round, "k.a", Expect::Absent, Some(2))).unwrap();
        until(&clock, &mut bus, |event| matches!(event, Event::Changed { value: None, .. }).then_some(()));
        let lived = clock.now().since(begun);
        assert!(lived >= Duration::from_secs(2) && lived < Duration::from_secs(8), "it lived {lived:?}");
    }
}

struct Holder {
    bus: NatsBus,
    lease: Lease,
    writes: FencedWrites,
    changes: Vec<LeaseChange>,
}

impl Holder {
    fn new(server: &NatsServer, id: u64) -> Holder {
        let mut bus = join(server, id, Limits::default());
        let options = LeaseOptions {
            duration: Duration::from_secs(3),
            margin: Duration::from_millis(500),
            renew_every: Duration::from_millis(300),
        };
        let mut lease = Lease::new(subject("lease.a"), bus.member(), "".into(), options, 1);
        let mut writes = FencedWrites::new(bus.member(), 2);
        // `join` has taken this event.
        lease.handle_event(throng_wire::Time(0), &Event::Connected);
        writes.handle_event(&Event::Connected);
        bus.handle_timeout(throng_wire::Time(0));
        Holder { bus, lease, writes, changes: Vec::new() }
    }

    fn run(&mut self, clock: &Clock) {
        let now = clock.now();
        self.bus.handle_timeout(now);
        while let Some(event) = self.bus.poll_event(now) {
            self.lease.handle_event(now, &event);
            self.writes.handle_event(&event);
        }
        self.lease.handle_timeout(now);
        self.changes.extend(std::iter::from_fn(|| self.lease.poll_change()));
        while let Some(command) = self.lease.poll_command(now) {
            if self.bus.handle_command(now, command).is_err() {
                self.lease.handle_refusal(now);
            }
        }
        while let Some(command) = self.writes.poll_command() {
            if let Err(error) = self.bus.handle_command(now, command.clone()) {
                self.writes.handle_refusal(&command, error);
            }
        }
    }

    fn write(&mut self, clock: &Clock, fence: Fence) -> Result<FencedWrite, FencedError> {
        self.writes.write(subject("state"), "x".into(), fence).expect("there is room");
        let end = clock.now().after(crate::PATIENCE);
        while clock.now() < end {
            self.run(clock);
            if let Some((_, result)) = self.writes.poll_result() {
                return result;
            }
            self.bus.wait(Duration::from_millis(10));
        }
        panic!("no result");
    }
}

#[test]
fn a_lease_of_a_silent_holder_goes_to_another_and_the_old_number_writes_nothing() {
    let Some(mut server) = NatsServer::start(&[]) else { return };
    let clock = Clock::start();
    let (mut first, mut second) = (Holder::new(&server, 1), Holder::new(&server, 2));
    let end = clock.now().after(crate::PATIENCE);
    let mut old = None;
    while old.is_none() && clock.now() < end {
        first.run(&clock);
        old = first.lease.fence(clock.now());
        std::thread::sleep(Duration::from_millis(5));
    }
    let old = old.expect("nobody else wants it");
    first.write(&clock, old).expect("it holds the lease");

    // The server dies and comes back: the holder keeps its lease, and is alone.
    let until = clock.now().after(Duration::from_millis(1_500));
    server.kill();
    server.run();
    while clock.now() < until {
        first.run(&clock);
        second.run(&clock);
        assert_eq!(second.lease.fence(clock.now()), None);
        std::thread::sleep(Duration::from_millis(5));
    }

    // Now the holder is silent, as if its process were stopped.
    let mut new = None;
    while new.is_none() && clock.now() < end {
        second.run(&clock);
        new = second.lease.fence(clock.now());
        std::thread::sleep(Duration::from_millis(5));
    }
    let new = new.expect("the lease ends");
    assert_eq!(first.lease.fence(clock.now()), None, "two hold the lease");
    assert!(new > old);
    second.write(&clock, new).expect("it holds the lease");
    assert_eq!(first.write(&clock, old), Err(FencedError::Old { newest: new }));
    assert_eq!(first.bus.member(), MemberId(1));
}
