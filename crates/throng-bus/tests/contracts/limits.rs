//! Every limit is exceeded, in process and over a network: the command is refused with the limit's name, and counted.

use std::time::Duration;

use throng_bus::endpoint::Endpoint;
use throng_bus::sim::{SimNet, Weather};
use throng_bus::{
    Bus, Command, CommandError, Event, Expect, Limits, LocalHub, MemberId, Revision, StoreError, SubscriptionId,
    Ticket, WatchId,
};
use throng_wire::Time;

use crate::{events, pattern, subject};

fn limits() -> Limits {
    Limits {
        payload_bytes: 100,
        subscriptions: 2,
        watches: 2,
        open_tickets: 3,
        remembered_subjects: 4,
        ..Limits::default()
    }
}

fn exceed(bus: &mut impl Bus, now: Time) {
    events(bus, now);
    let mut refused = 0;
    let mut refuses = |bus: &mut dyn Bus, command: Command, expected: CommandError| {
        assert_eq!(bus.handle_command(now, command), Err(expected));
        refused += 1;
        assert_eq!(bus.counters().refused, refused);
    };
    let long = || vec![0u8; 101].into();
    let too_long = CommandError::TooLong { bytes: 101, most: 100 };
    refuses(bus, Command::Publish { subject: subject("a"), payload: long() }, too_long);
    let put = |value, seconds_tenths: Option<u64>| Command::Put {
        ticket: Ticket(1),
        key: subject("a"),
        value,
        expect: Expect::Anything,
        lives_for: seconds_tenths.map(|tenths| Duration::from_millis(tenths * 100)),
    };
    refuses(bus, put(long(), None), too_long);
    refuses(bus, put("x".into(), Some(9)), CommandError::Life);
    refuses(bus, put("x".into(), Some(15)), CommandError::Life);

    let subscribe = |number| Command::Subscribe { subscription: SubscriptionId(number), pattern: pattern("a") };
    bus.handle_command(now, subscribe(1)).unwrap();
    refuses(bus, subscribe(1), CommandError::Number);
    bus.handle_command(now, subscribe(2)).unwrap();
    refuses(bus, subscribe(3), CommandError::Limit { limit: "subscriptions" });
    refuses(bus, Command::Unsubscribe { subscription: SubscriptionId(3) }, CommandError::Number);
    let watch = |number| Command::Watch { watch: WatchId(number), pattern: pattern("a") };
    bus.handle_command(now, watch(1)).unwrap();
    refuses(bus, watch(1), CommandError::Number);
    bus.handle_command(now, watch(2)).unwrap();
    refuses(bus, watch(3), CommandError::Limit { limit: "watches" });
    refuses(bus, Command::Unwatch { watch: WatchId(3) }, CommandError::Number);

    let get = |number| Command::Get { ticket: Ticket(number), key: subject("a") };
    for ticket in 1..=3 {
        bus.handle_command(now, get(ticket)).unwrap();
    }
    refuses(bus, get(4), CommandError::Limit { limit: "open_tickets" });

    for number in 0..12 {
        bus.publish(now, &subject(&format!("s{number}")), "x".into()).unwrap();
    }
    assert!(bus.counters().forgotten_subjects >= 4, "{:?}", bus.counters());
}

#[test]
fn in_process_every_limit_is_named_and_counted() {
    exceed(&mut LocalHub::new().join(MemberId(1), limits()), Time(0));
}

#[test]
fn over_a_network_every_limit_is_named_and_counted() {
    let net = SimNet::new(1, Weather::default());
    let mut bus = net.join(MemberId(1), limits());
    net.pass(Duration::from_secs(1));
    exceed(&mut bus, net.now());
}

/// An answer that comes after the end of its question is none.
#[test]
fn a_question_to_the_store_has_one_end_within_the_patience() {
    let limits = Limits { answer_patience: Duration::from_millis(300), ..Limits::default() };
    let mut endpoint = Endpoint::new(MemberId(1), limits);
    endpoint.handle_connected(Time(0));
    let (get, delete) = (Ticket(1), Ticket(2));
    endpoint.handle_command(Time(0), Command::Get { ticket: get, key: subject("a") }).unwrap();
    let command = Command::Delete { ticket: delete, key: subject("a"), expect: Expect::Anything };
    endpoint.handle_command(Time(0), command).unwrap();
    endpoint.handle_result(Event::Written { ticket: delete, result: Ok(Revision(7)) });
    endpoint.handle_timeout(Time(299_999));
    let answered = [Event::Connected, Event::Written { ticket: delete, result: Ok(Revision(7)) }];
    assert_eq!(std::iter::from_fn(|| endpoint.poll_event()).collect::<Vec<_>>(), answered);
    endpoint.handle_timeout(Time(300_000));
    endpoint.handle_result(Event::Got { ticket: get, result: Ok(None) });
    let unknown = Event::Got { ticket: get, result: Err(StoreError::Unknown) };
    assert_eq!(std::iter::from_fn(|| endpoint.poll_event()).collect::<Vec<_>>(), [unknown]);
    assert_eq!(endpoint.counters().timed_out, 1);
}

/// The network can know more keys than a member may watch.
#[test]
fn a_watch_that_the_network_refuses_is_ended_and_counted() {
    let mut endpoint = Endpoint::new(MemberId(1), Limits::default());
    endpoint.handle_connected(Time(0));
    let watch = WatchId(1);
    endpoint.handle_command(Time(0), Command::Watch { watch, pattern: pattern("a") }).unwrap();
    endpoint.handle_refused_watch(watch, 2);
    assert_eq!(endpoint.counters().failed_watches, 0, "that listing is not the present one");
    endpoint.handle_refused_watch(watch, 1);
    let events: Vec<Event> = std::iter::from_fn(|| endpoint.poll_event()).collect();
    assert_eq!((events, endpoint.counters().failed_watches), (vec![Event::Connected, Event::WatchFailed { watch }], 1));
}

#[test]
fn what_cannot_be_sent_yet_is_bounded() {
    let mut endpoint = Endpoint::new(MemberId(1), Limits { outgoing: 5, ..Limits::default() });
    endpoint.handle_connected(Time(0));
    let publish = || Command::Publish { subject: subject("a"), payload: "x".into() };
    for _ in 0..5 {
        endpoint.handle_command(Time(0), publish()).unwrap();
    }
    assert_eq!(endpoint.handle_command(Time(0), publish()), Err(CommandError::Limit { limit: "outgoing" }));
    endpoint.handle_disconnected();
    assert_eq!(endpoint.poll_outgoing(), None);
    assert_eq!(endpoint.handle_command(Time(0), publish()), Err(CommandError::Disconnected));
}

#[test]
fn in_process_a_watch_with_too_many_keys_is_refused() {
    let hub = LocalHub::new();
    let mut bus = hub.join(MemberId(1), Limits { watched_keys: 1, ..Limits::default() });
    for (ticket, key) in [(1, "k.a"), (2, "k.b")] {
        let (ticket, key) = (Ticket(ticket), subject(key));
        let put = Command::Put { ticket, key, value: "x".into(), expect: Expect::Anything, lives_for: None };
        bus.handle_command(Time(0), put).unwrap();
    }
    let refused = bus.handle_command(Time(0), Command::Watch { watch: WatchId(1), pattern: pattern("k.*") });
    assert_eq!(refused, Err(CommandError::Limit { limit: "watched_keys" }));
    assert_eq!(bus.counters().failed_watches, 1);
}

/// Keys come and go, and the member takes no event.
#[test]
fn a_watch_of_which_too_much_waits_is_ended_and_counted() {
    let limits = || Limits { watched_keys: 4, ..Limits::default() };
    let failed = Event::WatchFailed { watch: WatchId(1) };
    let watch = || Command::Watch { watch: WatchId(1), pattern: pattern("k.*") };
    let mut endpoint = Endpoint::new(MemberId(1), limits());
    endpoint.handle_connected(Time(0));
    endpoint.handle_command(Time(0), watch()).unwrap();
    endpoint.handle_listed(WatchId(1), 1);
    for number in 0..50 {
        let key = format!("k.{number}");
        endpoint.handle_entry(WatchId(1), 1, &key, Revision(2 * number + 1), Some("x".into()));
        endpoint.handle_entry(WatchId(1), 1, &key, Revision(2 * number + 2), None);
    }
    assert_eq!(endpoint.counters().failed_watches, 1);
    let told: Vec<Event> = std::iter::from_fn(|| endpoint.poll_event()).collect();
    assert_eq!(told, [Event::Connected, failed.clone()]);
    endpoint.handle_command(Time(0), watch()).unwrap();

    let hub = LocalHub::new();
    let [mut writer, mut slow] = [1, 2].map(|id| hub.join(MemberId(id), limits()));
    slow.handle_command(Time(0), watch()).unwrap();
    let write = |writer: &mut dyn Bus, key: &str, expect| {
        let (key, value) = (subject(key), "x".into());
        let put = Command::Put { ticket: Ticket(1), key: key.clone(), value, expect, lives_for: None };
        writer.handle_command(Time(0), put).unwrap();
        events(writer, Time(0));
        writer.handle_command(Time(0), Command::Delete { ticket: Ticket(1), key, expect: Expect::Anything }).unwrap();
        events(writer, Time(0));
    };
    (0..50).for_each(|number| write(&mut writer, &format!("k.{number}"), Expect::Absent));
    assert_eq!(events(&mut slow, Time(0)), [Event::Connected, failed]);
    assert_eq!(slow.counters().failed_watches, 1);
    slow.handle_command(Time(0), watch()).unwrap();
    write(&mut writer, "k.new", Expect::Absent);
    let told = events(&mut slow, Time(0));
    assert!(matches!(&told[..], [Event::Listed { .. }, Event::Changed { value: None, .. }]), "{told:?}");
}
