//! The bus in one process: patterns, members that come and go, and slow readers.

use std::time::Duration;

use bytes::Bytes;
use throng_bus::{
    Bus, Command, CommandError, Event, Gap, Limits, LocalHub, MemberId, Missing, RequestError, Sequence,
    SubscriptionId, Ticket,
};
use throng_wire::Time;

use crate::{events, pattern, subject};

const NOW: Time = Time(0);

fn payloads<'a>(events: &'a [Event]) -> Vec<&'a [u8]> {
    let payload = |event: &'a Event| match event {
        Event::Message(message) => Some(&message.payload[..]),
        _ => None,
    };
    events.iter().filter_map(payload).collect()
}

#[test]
fn each_subscription_that_matches_gets_a_message_once() {
    let hub = LocalHub::new();
    let [mut a, mut b] = [1, 2].map(|id| hub.join(MemberId(id), Limits::default()));
    for (number, text) in [(1, "news.*"), (2, "news.1"), (3, ">"), (4, "other")] {
        b.subscribe(NOW, SubscriptionId(number), &pattern(text)).unwrap();
    }
    a.publish(NOW, &subject("news.1"), "x".into()).unwrap();
    let told = events(&mut b, NOW);
    let mut reached: Vec<u32> = told
        .iter()
        .filter_map(|event| match event {
            Event::Message(message) => Some(message.subscription.0),
            _ => None,
        })
        .collect();
    reached.sort_unstable();
    assert_eq!(reached, [1, 2, 3]);
    assert_eq!(events(&mut a, NOW), [Event::Connected]);
}

#[test]
fn subscriptions_that_come_and_go_change_the_way_of_the_next_message() {
    let hub = LocalHub::new();
    let [mut a, mut b] = [1, 2].map(|id| hub.join(MemberId(id), Limits::default()));
    let news = subject("news.1");
    let mut publish = |text: &'static str| a.publish(NOW, &news, text.into()).unwrap();
    publish("before");
    b.subscribe(NOW, SubscriptionId(1), &pattern("news.1")).unwrap();
    publish("during");
    b.handle_command(NOW, Command::Unsubscribe { subscription: SubscriptionId(1) }).unwrap();
    publish("after");
    assert_eq!(payloads(&events(&mut b, NOW)), [b"during"]);
    b.subscribe(NOW, SubscriptionId(1), &pattern("news.*")).unwrap();
    drop(b);
    publish("to nobody");
}

#[test]
fn nothing_is_kept_for_a_member_that_has_gone() {
    let hub = LocalHub::new();
    let [mut a, mut b] = [1, 2].map(|id| hub.join(MemberId(id), Limits::default()));
    b.subscribe(NOW, SubscriptionId(1), &pattern("news")).unwrap();
    let payload = Bytes::from(vec![7; 100]);
    a.publish(NOW, &subject("news"), payload.clone()).unwrap();
    assert!(!payload.is_unique());
    drop(b);
    assert!(payload.is_unique());
    a.publish(NOW, &subject("news"), payload.clone()).unwrap();
    assert!(payload.is_unique());
}

/// A request under way, which nobody has answered yet.
fn ask(bus: &mut impl Bus, ticket: u64) {
    let (ticket, patience) = (Ticket(ticket), Duration::from_secs(1));
    let ask = Command::Request { ticket, subject: subject("ask"), payload: "?".into(), patience };
    bus.handle_command(NOW, ask).unwrap();
}

#[test]
fn the_next_member_of_a_number_gets_no_answers_to_questions_of_the_former_one() {
    let hub = LocalHub::new();
    let mut b = hub.join(MemberId(2), Limits::default());
    b.subscribe(NOW, SubscriptionId(1), &pattern("ask")).unwrap();
    let mut former = hub.join(MemberId(1), Limits::default());
    ask(&mut former, 9);
    drop(former);
    let mut next = hub.join(MemberId(1), Limits::default());
    ask(&mut next, 9);
    let asked = events(&mut b, NOW).into_iter().filter_map(|event| match event {
        Event::Message(message) => message.reply_to,
        _ => None,
    });
    for (to, answer) in asked.zip(["to the former", "to the next"]) {
        b.handle_command(NOW, Command::Reply { to, payload: answer.into() }).unwrap();
    }
    let answer = Event::Answer { ticket: Ticket(9), result: Ok("to the next".into()) };
    assert_eq!(events(&mut next, NOW), [Event::Connected, answer]);
}

#[test]
fn a_member_whose_number_is_taken_over_is_told_so_and_hears_and_says_nothing_more() {
    let hub = LocalHub::new();
    let [mut a, mut former] = [1, 2].map(|id| hub.join(MemberId(id), Limits::default()));
    for bus in [&mut a, &mut former] {
        bus.subscribe(NOW, SubscriptionId(1), &pattern("*")).unwrap();
    }
    ask(&mut former, 9);
    let mut next = hub.join(MemberId(2), Limits::default());
    next.subscribe(NOW, SubscriptionId(1), &pattern("news")).unwrap();
    let payload = Bytes::from(vec![7; 100]);
    events(&mut a, NOW);
    a.publish(NOW, &subject("news"), payload.clone()).unwrap();
    let lost = Event::Answer { ticket: Ticket(9), result: Err(RequestError::ConnectionLost) };
    assert_eq!(events(&mut former, NOW), [Event::Disconnected, lost]);
    let said = former.publish(NOW, &subject("news"), "x".into());
    let subscribed = former.subscribe(NOW, SubscriptionId(2), &pattern("more"));
    assert_eq!((said, subscribed), (Err(CommandError::Disconnected), Err(CommandError::Disconnected)));
    assert_eq!((former.counters().disconnects, former.counters().refused), (1, 2));
    drop(former);
    assert_eq!(
        (payloads(&events(&mut next, NOW)), payloads(&events(&mut a, NOW))),
        (vec![&payload[..]], vec![&payload[..]])
    );
}

#[test]
fn a_slow_reader_loses_the_newest_is_told_where_and_slows_nobody_down() {
    let hub = LocalHub::new();
    let mut writer = hub.join(MemberId(1), Limits::default());
    let mut slow = hub.join(MemberId(2), Limits { waiting_events: 10, ..Limits::default() });
    let mut quick = hub.join(MemberId(3), Limits::default());
    for bus in [&mut slow, &mut quick] {
        bus.subscribe(NOW, SubscriptionId(1), &pattern("*")).unwrap();
    }
    let news = subject("news");
    for number in 0..25u8 {
        writer.publish(NOW, &news, vec![number].into()).unwrap();
        assert_eq!(payloads(&events(&mut quick, NOW)), [[number]]);
    }
    let told = events(&mut slow, NOW);
    let expected: Vec<[u8; 1]> = (0..10).map(|number| [number]).collect();
    assert_eq!(payloads(&told), expected);
    let missing = Missing::Of { subject: news.clone(), publisher: MemberId(1), after: Sequence(10) };
    assert_eq!(told.last(), Some(&Event::Gap(Gap { subscription: SubscriptionId(1), missing })));
    let counters = slow.counters();
    assert_eq!((counters.dropped_slow, counters.gaps, counters.delivered), (15, 1, 10));

    writer.publish(NOW, &news, vec![99].into()).unwrap();
    assert_eq!(payloads(&events(&mut slow, NOW)), [[99]]);
}

#[test]
fn a_reader_that_is_slow_twice_is_told_of_both_gaps() {
    let hub = LocalHub::new();
    let mut writer = hub.join(MemberId(1), Limits::default());
    let mut slow = hub.join(MemberId(2), Limits { waiting_events: 4, waiting_bytes: 4, ..Limits::default() });
    slow.subscribe(NOW, SubscriptionId(1), &pattern("*")).unwrap();
    let news = subject("news");
    // Three bytes fit; two more do not; one does; then one does not.
    for bytes in [3, 2, 1, 1] {
        writer.publish(NOW, &news, vec![0; bytes].into()).unwrap();
    }
    let told = events(&mut slow, NOW);
    let kinds: Vec<&str> = told
        .iter()
        .map(|event| match event {
            Event::Message(_) => "message",
            Event::Gap(_) => "gap",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["other", "message", "gap", "message", "gap"], "{told:?}");
}

#[test]
fn gaps_on_more_subjects_than_can_be_listed_become_one_of_the_whole_subscription() {
    let hub = LocalHub::new();
    let mut writer = hub.join(MemberId(1), Limits::default());
    let mut slow = hub.join(MemberId(2), Limits { waiting_events: 1, ..Limits::default() });
    slow.subscribe(NOW, SubscriptionId(1), &pattern("*")).unwrap();
    for number in 0..throng_bus::GAPS_MAX + 500 {
        writer.publish(NOW, &subject(&format!("s{number}")), "x".into()).unwrap();
    }
    let told = events(&mut slow, NOW);
    let gaps: Vec<&Gap> = told
        .iter()
        .filter_map(|event| match event {
            Event::Gap(gap) => Some(gap),
            _ => None,
        })
        .collect();
    assert_eq!(gaps.len(), throng_bus::GAPS_MAX + 1);
    assert_eq!(gaps.last().map(|gap| &gap.missing), Some(&Missing::Anywhere));
}

#[test]
fn members_in_many_threads_keep_the_order_of_each_publisher() {
    let hub = LocalHub::new();
    let mut reader = hub.join(MemberId(0), Limits::default());
    reader.subscribe(NOW, SubscriptionId(1), &pattern("news")).unwrap();
    std::thread::scope(|scope| {
        for id in 1..=3 {
            let mut writer = hub.join(MemberId(id), Limits::default());
            scope.spawn(move || {
                for number in 0..5_000u32 {
                    writer.publish(NOW, &subject("news"), number.to_le_bytes().to_vec().into()).unwrap();
                }
            });
        }
        let mut next = [0u32; 4];
        while next[1..].iter().any(|&count| count < 5_000) {
            while let Some(event) = reader.poll_event(NOW) {
                if let Event::Message(message) = event {
                    let expected = &mut next[message.publisher.0 as usize];
                    assert_eq!(message.payload[..], expected.to_le_bytes());
                    *expected += 1;
                }
            }
            std::thread::yield_now();
        }
    });
}
