//! The permissions of docs/edges.md, at a nats-server that has them: each member speaks on its own subjects alone.

use std::fs;

use throng_bus::{Bus, Command, Event, Expect, MemberId, SubscriptionId, Ticket, WatchId};
use throng_bus_nats::{NatsBus, NatsOptions, Secret};
use throng_testkit::NatsServer;
use throng_wire::Time;

use crate::{Clock, options, pattern, settle, subject, until};

/// The subjects that a member needs beside its own: for answers, and for the store of the cluster. docs/bus.md has the same lists.
const STORE: [&str; 8] = [
    "$JS.API.INFO",
    "$JS.API.STREAM.INFO.KV_throng-test",
    "$JS.API.STREAM.MSG.GET.KV_throng-test",
    "$JS.API.CONSUMER.CREATE.KV_throng-test",
    "$JS.API.CONSUMER.DELETE.KV_throng-test.>",
    "$JS.FC.KV_throng-test.>",
    "$KV.throng-test.>",
    "_INBOX.>",
];

/// A user for each member, who may do in the world `w` what docs/edges.md says of links, and of the server with the member's number.
fn settings() -> String {
    let world = "throng.test.world.w";
    let user = |number: u64| {
        let member = MemberId(number);
        let publish = STORE.iter().map(|subject| format!("{subject:?}")).collect::<Vec<_>>().join(", ");
        format!(
            "{{ user: user-{number}, password: secret-{number}, permissions: {{
                publish: [\"{world}.link.*.{member}\", \"{world}.load.{number}\", \"{world}.saved.{number}\",
                    \"{world}.recall.*.*.{number}\", {publish}],
                subscribe: [\"{world}.link.{member}.*\", \"{world}.load.*\", \"{world}.saved.*\",
                    \"{world}.recall.{number}.*.*\", \"_INBOX.>\"] }} }}"
        )
    };
    let users = (1..=3).map(user).collect::<Vec<_>>().join("\n");
    format!("authorization {{ users = [ {{ user: admin, password: secret-0 }}\n{users} ] }}")
}

/// The member with this number, as the user with that one.
fn join_as(server: &NatsServer, member: u64, user: u64) -> NatsBus {
    let secret = match user {
        0 => Secret::User("admin".to_owned(), "secret-0".to_owned()),
        _ => Secret::User(format!("user-{user}"), format!("secret-{user}")),
    };
    let options = NatsOptions { secret, creates: user == 0, ..options(server, member) };
    let mut bus = NatsBus::start(options).expect("the server lets it in");
    assert_eq!(bus.poll_event(Time(0)), Some(Event::Connected));
    bus
}

fn link(to: u64, from: u64) -> throng_bus::Subject {
    subject(&format!("world.w.link.{}.{}", MemberId(to), MemberId(from)))
}

#[test]
fn with_permissions_nobody_speaks_in_the_name_of_another_member_or_hears_what_is_for_others() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), settings()).unwrap();
    let Some(server) = NatsServer::start(&["-c", file.path().to_str().unwrap()]) else { return };
    let clock = Clock::start();
    let _admin = join_as(&server, 9, 0);
    let mut first = join_as(&server, 1, 1);
    let mut second = join_as(&server, 2, 2);
    // The user of the third member, who says that it is the first.
    let mut liar = join_as(&server, 1, 3);
    second.subscribe(clock.now(), SubscriptionId(1), &pattern(&format!("world.w.link.{}.*", MemberId(2)))).unwrap();
    liar.subscribe(clock.now(), SubscriptionId(1), &pattern(&format!("world.w.link.{}.*", MemberId(2)))).unwrap();
    liar.subscribe(clock.now(), SubscriptionId(2), &pattern(&format!("world.w.link.{}.*", MemberId(3)))).unwrap();

    // Until the subscriptions have reached the server, nobody listens: the first one says it again and again.
    let mut heard = Vec::new();
    let mut number = 0u8;
    while heard.last() != Some(&(link(2, 1), MemberId(1))) {
        number += 1;
        assert!(number < 200, "{heard:?}");
        first.publish(clock.now(), &link(2, 1), vec![number].into()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        while let Some(event) = second.poll_event(clock.now()) {
            if let Event::Message(message) = event {
                heard.push((message.subject.clone(), message.publisher));
            }
        }
    }
    for (number, of) in (2..).zip(["load.*", "saved.*", "recall.2.*.*"]) {
        second.subscribe(clock.now(), SubscriptionId(number), &pattern(&format!("world.w.{of}"))).unwrap();
    }
    liar.subscribe(clock.now(), SubscriptionId(5), &pattern("world.w.recall.2.*.*")).unwrap();
    settle(&clock, &mut second);
    settle(&clock, &mut liar);
    // A lie does not arrive; what the liar says on its own subject after it does.
    let of_server = |rest: &str| subject(&format!("world.w.{rest}"));
    for (lie, own) in [
        (link(2, 1), link(2, 3)),
        (of_server("load.1"), of_server("load.3")),
        (of_server("saved.1"), of_server("saved.3")),
        (of_server("recall.2.answer.1"), of_server("recall.2.answer.3")),
        (of_server("recall.2.ask.1"), of_server("recall.2.ask.3")),
    ] {
        liar.publish(clock.now(), &lie, "a lie".into()).unwrap();
        liar.publish(clock.now(), &own, "its own".into()).unwrap();
        let heard = until(&clock, &mut second, |event| match event {
            Event::Message(message) if message.payload == "its own" => Some(message.subject.clone()),
            Event::Message(message) => {
                assert_ne!(message.payload, "a lie");
                None
            }
            _ => None,
        });
        assert_eq!(heard, own);
    }
    // It hears what is for its user, and nothing of what the second one has heard.
    second.publish(clock.now(), &link(3, 2), "for the third".into()).unwrap();
    let payload = until(&clock, &mut liar, |event| match event {
        Event::Message(message) => Some(message.payload.clone()),
        _ => None,
    });
    assert_eq!(payload, "for the third");
    // The store is open to all members.
    second.handle_command(clock.now(), Command::Watch { watch: WatchId(1), pattern: pattern("world.w.>") }).unwrap();
    until(&clock, &mut second, |event| matches!(event, Event::Listed { watch: WatchId(1) }).then_some(()));
    let key = subject("world.w.server.0");
    let put = |ticket, expect| Command::Put {
        ticket: Ticket(ticket),
        key: key.clone(),
        value: "here".into(),
        expect,
        lives_for: Some(std::time::Duration::from_secs(5)),
    };
    for (ticket, bus) in [(7, &mut first), (8, &mut second)] {
        bus.handle_command(clock.now(), put(ticket, Expect::Anything)).unwrap();
        until(&clock, bus, |event| match event {
            Event::Written { ticket: Ticket(written), result } if written == ticket => Some(result.unwrap()),
            _ => None,
        });
        bus.handle_command(clock.now(), Command::Get { ticket: Ticket(ticket + 10), key: key.clone() }).unwrap();
        let entry = until(&clock, bus, |event| match event {
            Event::Got { ticket: Ticket(got), result } if got == ticket + 10 => Some(result.unwrap()),
            _ => None,
        });
        assert_eq!(entry.unwrap().value, "here");
    }
}

/// The permission is taken away while the server is down, and given again.
#[test]
fn a_watch_that_the_store_does_not_list_any_more_fails_and_is_listed_when_it_is_watched_again() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let without = settings().replace("\"$JS.API.CONSUMER.CREATE.KV_throng-test\", ", "");
    assert_ne!(without, settings());
    fs::write(file.path(), settings()).unwrap();
    let Some(mut server) = NatsServer::start(&["-c", file.path().to_str().unwrap()]) else { return };
    let clock = Clock::start();
    let _admin = join_as(&server, 9, 0);
    let mut bus = join_as(&server, 1, 1);
    let watch = Command::Watch { watch: WatchId(1), pattern: pattern("k.*") };
    bus.handle_command(clock.now(), watch.clone()).unwrap();
    until(&clock, &mut bus, |event| matches!(event, Event::Listed { .. }).then_some(()));
    let mut restart_with = |settings: &str| {
        server.kill();
        fs::write(file.path(), settings).unwrap();
        server.run();
    };
    restart_with(&without);
    until(&clock, &mut bus, |event| match event {
        Event::Listed { .. } => panic!("it must not be listed"),
        event => (event == Event::WatchFailed { watch: WatchId(1) }).then_some(()),
    });
    assert_eq!(bus.counters().failed_watches, 1);
    bus.handle_command(clock.now(), watch).unwrap();
    restart_with(&settings());
    until(&clock, &mut bus, |event| matches!(event, Event::Listed { .. }).then_some(()));
    assert_eq!(bus.counters().failed_watches, 1, "who is not connected is not told that a watch has failed");
}

/// A server stops after some MiB, in the list or after it, until the member says that it has read so far.
#[test]
fn long_news_of_a_watch_are_told_to_their_end_and_it_fails_without_the_permission_to_say_how_far_they_are_read() {
    for (may_say, is_listed_before) in [(true, false), (true, true), (false, false), (false, true)] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let without = settings().replace("\"$JS.FC.KV_throng-test.>\", ", "");
        assert_ne!(without, settings());
        fs::write(file.path(), if may_say { settings() } else { without }).unwrap();
        let Some(server) = NatsServer::start(&["-c", file.path().to_str().unwrap()]) else { return };
        let clock = Clock::start();
        let mut admin = join_as(&server, 9, 0);
        let mut bus = join_as(&server, 1, 1);
        let watch = Command::Watch { watch: WatchId(1), pattern: pattern("k.*") };
        if is_listed_before {
            bus.handle_command(clock.now(), watch.clone()).unwrap();
            until(&clock, &mut bus, |event| matches!(event, Event::Listed { .. }).then_some(()));
        }
        for number in 0..40 {
            let (key, value) = (subject(&format!("k.{number}")), vec![7; 400 << 10].into());
            let put = Command::Put { ticket: Ticket(number), key, value, expect: Expect::Absent, lives_for: None };
            admin.handle_command(clock.now(), put).unwrap();
            until(&clock, &mut admin, |event| match event {
                Event::Written { result, .. } => Some(result.unwrap()),
                _ => None,
            });
        }
        if !is_listed_before {
            bus.handle_command(clock.now(), watch).unwrap();
        }
        let mut keys = 0;
        until(&clock, &mut bus, |event| {
            keys += u32::from(matches!(event, Event::Changed { .. }));
            let has_failed = event == Event::WatchFailed { watch: WatchId(1) };
            assert!(!(has_failed && may_say), "it has failed after {keys} keys");
            let is_listed = is_listed_before || event == Event::Listed { watch: WatchId(1) };
            (has_failed || may_say && keys == 40 && is_listed).then_some(())
        });
        assert_eq!(bus.counters().failed_watches, u64::from(!may_say));
    }
}
