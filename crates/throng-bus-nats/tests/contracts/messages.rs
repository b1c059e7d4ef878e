//! Messages and requests between members.

use std::time::Duration;

use throng_bus::envelope::{Envelope, Kind};
use throng_bus::{Bus, Command, Event, Limits, MemberId, Missing, RequestError, SubscriptionId, Ticket};

use crate::{Clock, join, pattern, settle, subject, until};
use throng_testkit::NatsServer;

fn ask(ticket: u64, name: &str, patience: Duration) -> Command {
    Command::Request { ticket: Ticket(ticket), subject: subject(name), payload: "you?".into(), patience }
}

#[test]
fn members_publish_subscribe_ask_and_answer() {
    let Some(server) = NatsServer::start(&[]) else { return };
    let clock = Clock::start();
    let [mut a, mut b] = [1, 2].map(|id| join(&server, id, Limits::default()));
    b.subscribe(clock.now(), SubscriptionId(1), &pattern("news.*")).unwrap();
    b.subscribe(clock.now(), SubscriptionId(2), &pattern("who")).unwrap();

    // Until the subscription has reached the server, nobody listens.
    let (mut ticket, end) = (0, clock.now().after(crate::PATIENCE));
    let answer = loop {
        ticket += 1;
        a.handle_command(clock.now(), ask(ticket, "who", Duration::from_secs(5))).unwrap();
        let request = |event| match event {
            Event::Message(message) => message.reply_to,
            _ => None,
        };
        let answered = |event| match event {
            Event::Answer { result, .. } => Some(result),
            _ => None,
        };
        let result = loop {
            b.handle_timeout(clock.now());
            while let Some(event) = b.poll_event(clock.now()) {
                if let Some(to) = request(event) {
                    b.handle_command(clock.now(), Command::Reply { to, payload: "b".into() }).unwrap();
                }
            }
            a.handle_timeout(clock.now());
            if let Some(result) = std::iter::from_fn(|| a.poll_event(clock.now())).find_map(answered) {
                break result;
            }
            assert!(clock.now() < end, "no answer and no error");
            a.wait(Duration::from_millis(5));
        };
        match result {
            Ok(answer) => break answer,
            Err(error) => assert!(clock.now() < end && error != RequestError::ConnectionLost, "{error}"),
        }
    };
    assert_eq!(&answer[..], b"b");

    for number in 0..2_000u32 {
        a.publish(clock.now(), &subject("news.1"), number.to_le_bytes().to_vec().into()).unwrap();
    }
    let mut next = 0u32;
    until(&clock, &mut b, |event| {
        match event {
            Event::Message(message) => {
                assert_eq!((message.publisher, &message.payload[..]), (MemberId(1), &next.to_le_bytes()[..]));
                next += 1;
            }
            Event::Gap(gap) => panic!("{gap:?} after {next}"),
            _ => {}
        }
        (next == 2_000).then_some(())
    });

    a.handle_command(clock.now(), ask(1_000, "nobody", Duration::from_secs(5))).unwrap();
    let end = |event| match event {
        Event::Answer { ticket: Ticket(1_000 | 1_001), result } => Some(result),
        _ => None,
    };
    assert_eq!(until(&clock, &mut a, end), Err(RequestError::NobodyListens));
    a.handle_command(clock.now(), ask(1_001, "who", Duration::from_millis(300))).unwrap();
    assert_eq!(until(&clock, &mut a, end), Err(RequestError::TimedOut));
}

#[test]
fn a_slow_consumer_is_bounded_counted_and_told_where_it_lost() {
    let Some(server) = NatsServer::start(&[]) else { return };
    let clock = Clock::start();
    let mut writer = join(&server, 1, Limits::default());
    let mut slow = join(&server, 2, Limits { waiting_events: 50, ..Limits::default() });
    slow.subscribe(clock.now(), SubscriptionId(1), &pattern("news")).unwrap();
    settle(&clock, &mut slow);
    for number in 0..5_000u32 {
        writer.publish(clock.now(), &subject("news"), number.to_le_bytes().to_vec().into()).unwrap();
    }
    let end = clock.now().after(crate::PATIENCE);
    while slow.counters().dropped_slow < 4_950 && clock.now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (mut messages, mut gap) = (0, None);
    until(&clock, &mut slow, |event| {
        match event {
            Event::Message(message) => {
                assert_eq!(message.payload[..], u32::to_le_bytes(messages));
                messages += 1;
            }
            Event::Gap(told) => gap = Some(told),
            _ => {}
        }
        gap.clone()
    });
    assert_eq!(messages, 50);
    assert!(matches!(gap.unwrap().missing, Missing::Of { publisher: MemberId(1), after, .. } if after.0 == 50));
    assert_eq!(slow.counters().dropped_slow, 4_950);
}

#[test]
fn anything_that_another_program_sends_is_counted_and_dropped() {
    let Some(server) = NatsServer::start(&[]) else { return };
    let clock = Clock::start();
    let mut bus = join(&server, 1, Limits::default());
    bus.subscribe(clock.now(), SubscriptionId(1), &pattern("news.>")).unwrap();
    settle(&clock, &mut bus);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stranger = async_nats::connect(server.address()).await.unwrap();
        for (name, bytes) in [("news.1", "hello"), ("news.x y", ""), ("news.a=b", "x"), ("news.1", "\u{7f}")] {
            drop(stranger.publish(format!("throng.test.{name}"), bytes.into()).await);
        }
        stranger.flush().await.unwrap();
    });
    let end = clock.now().after(crate::PATIENCE);
    while bus.counters().malformed < 3 && clock.now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(bus.counters().malformed >= 3, "{:?}", bus.counters());
    assert_eq!(bus.poll_event(clock.now()), None);
}

#[test]
fn an_answer_does_not_go_where_a_stranger_wants_something_written() {
    let Some(server) = NatsServer::start(&[]) else { return };
    let clock = Clock::start();
    let mut bus = join(&server, 1, Limits::default());
    bus.subscribe(clock.now(), SubscriptionId(1), &pattern("news")).unwrap();
    settle(&clock, &mut bus);
    let kind = Kind::Request { ticket: Ticket(1) };
    let question = Envelope { publisher: MemberId(9), kind, payload: "?".into() }.encode();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stranger = async_nats::connect(server.address()).await.unwrap();
        let store = "$KV.throng-test.stolen";
        stranger.publish_with_reply("throng.test.news", store, question).await.unwrap();
        stranger.flush().await.unwrap();
    });
    let to = until(&clock, &mut bus, |event| match event {
        Event::Message(message) => message.reply_to,
        _ => None,
    });
    bus.handle_command(clock.now(), Command::Reply { to, payload: "x".into() }).unwrap();
    let get = |ticket| Command::Get { ticket: Ticket(ticket), key: subject("stolen") };
    // The second read is surely behind the answer.
    for ticket in 1..=2 {
        bus.handle_command(clock.now(), get(ticket)).unwrap();
        let result = until(&clock, &mut bus, |event| match event {
            Event::Got { result, .. } => Some(result),
            _ => None,
        });
        assert_eq!(result, Ok(None));
    }
}
