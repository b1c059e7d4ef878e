//! A request has exactly one end: the first answer, or the reason why there is none.

use std::time::Duration;

use throng_bus::sim::{SimNet, Weather};
use throng_bus::{
    Bus, Command, CommandError, Event, Expect, Limits, LocalHub, MemberId, ReplyTo, RequestError, Revision, StoreError,
    SubscriptionId, Ticket,
};
use throng_wire::Time;

use crate::{events, pattern, subject};

fn ask(ticket: u64) -> Command {
    let patience = Duration::from_secs(1);
    Command::Request { ticket: Ticket(ticket), subject: subject("who"), payload: "you?".into(), patience }
}

/// Answers all requests of a member, twice.
fn answer(bus: &mut (impl Bus + ?Sized), now: Time, name: &str) {
    for event in events(bus, now) {
        if let Event::Message(message) = event
            && let Some(to) = message.reply_to
        {
            for _ in 0..2 {
                let reply = Command::Reply { to: to.clone(), payload: name.to_owned().into() };
                bus.handle_command(now, reply).expect("there is room");
            }
        }
    }
}

/// Two members that both answer, twice each; then nobody who does; then nobody who listens.
fn one_answer(asks: &mut impl Bus, answers: &mut [&mut dyn Bus], mut pass: impl FnMut() -> Time) {
    let now = pass();
    for bus in answers.iter_mut() {
        bus.handle_command(now, Command::Subscribe { subscription: SubscriptionId(1), pattern: pattern("who") })
            .unwrap();
    }
    let now = pass();
    asks.handle_command(now, ask(1)).unwrap();
    assert_eq!(asks.handle_command(now, ask(1)), Err(CommandError::Number));
    let now = pass();
    for bus in answers.iter_mut() {
        answer(&mut **bus, now, "I");
    }
    let now = pass();
    let is_answer = |event: &Event| matches!(event, Event::Answer { .. });
    let told: Vec<Event> = events(asks, now).into_iter().filter(is_answer).collect();
    assert_eq!(told, [Event::Answer { ticket: Ticket(1), result: Ok("I".into()) }]);

    asks.handle_command(now, ask(2)).unwrap();
    let now = pass().after(Duration::from_secs(1));
    let told: Vec<Event> = events(asks, now).into_iter().filter(is_answer).collect();
    assert_eq!(told, [Event::Answer { ticket: Ticket(2), result: Err(RequestError::TimedOut) }]);
    for bus in answers.iter_mut() {
        answer(&mut **bus, now, "late");
        bus.handle_command(now, Command::Unsubscribe { subscription: SubscriptionId(1) }).unwrap();
    }
    let now = pass();
    assert!(!events(asks, now).iter().any(is_answer), "an answer came after the time");

    asks.handle_command(now, ask(3)).unwrap();
    let now = pass();
    let told: Vec<Event> = events(asks, now).into_iter().filter(is_answer).collect();
    assert_eq!(told, [Event::Answer { ticket: Ticket(3), result: Err(RequestError::NobodyListens) }]);
    assert_eq!(asks.counters().timed_out, 1);
}

#[test]
fn in_process_a_request_has_one_answer() {
    let hub = LocalHub::new();
    let [mut a, mut b, mut c] = [1, 2, 3].map(|id| hub.join(MemberId(id), Limits::default()));
    one_answer(&mut a, &mut [&mut b, &mut c], || Time(0));
}

#[test]
fn over_a_network_a_request_has_one_answer() {
    let net = SimNet::new(1, Weather { twice: 1.0, ..Weather::default() });
    let [mut a, mut b, mut c] = [1, 2, 3].map(|id| net.join(MemberId(id), Limits::default()));
    one_answer(&mut a, &mut [&mut b, &mut c], || {
        net.pass(Duration::from_millis(100));
        net.now()
    });
}

#[test]
fn a_lost_connection_ends_all_requests_and_operations() {
    let net = SimNet::new(1, Weather::default());
    let mut bus = net.join(MemberId(1), Limits::default());
    net.pass(Duration::from_secs(1));
    let now = net.now();
    events(&mut bus, now);
    bus.handle_command(now, ask(1)).unwrap();
    bus.handle_command(now, Command::Get { ticket: Ticket(2), key: subject("a") }).unwrap();
    let write = Command::Delete { ticket: Ticket(3), key: subject("a"), expect: throng_bus::Expect::Anything };
    bus.handle_command(now, write).unwrap();
    net.reset(MemberId(1));
    let lost = throng_bus::StoreError::Unknown;
    let expected = [
        Event::Disconnected,
        Event::Answer { ticket: Ticket(1), result: Err(RequestError::ConnectionLost) },
        Event::Got { ticket: Ticket(2), result: Err(lost) },
        Event::Written { ticket: Ticket(3), result: Err(lost) },
    ];
    assert_eq!(events(&mut bus, now), expected);
    assert_eq!(bus.handle_command(now, ask(4)), Err(CommandError::Disconnected));
    net.pass(Duration::from_secs(1));
    assert_eq!(events(&mut bus, net.now()), [Event::Connected]);
    assert_eq!(bus.counters().disconnects, 1);
}

/// As of a lease that is begun anew with the desk of the one before it.
#[test]
fn a_late_answer_meets_no_later_question_with_the_same_ticket() {
    let slow = Duration::from_millis(700);
    let net = SimNet::new(1, Weather { delay: slow..slow, ..Weather::default() });
    let mut bus = net.join(MemberId(1), Limits::default());
    net.pass(Duration::from_secs(2));
    events(&mut bus, net.now());
    let put = |key: &str, expect| {
        let (ticket, key, value) = (Ticket(1), subject(key), "x".into());
        Command::Put { ticket, key, value, expect, lives_for: None }
    };
    bus.handle_command(net.now(), put("a", Expect::Absent)).unwrap();
    net.pass(Duration::from_secs(1));
    let written = |result| Event::Written { ticket: Ticket(1), result };
    assert_eq!(events(&mut bus, net.now()), [written(Err(StoreError::Unknown))]);
    // The second question and its answer overtake nothing: both arrive after the late answer.
    net.set_weather(|weather| weather.delay = Duration::ZERO..Duration::ZERO);
    bus.handle_command(net.now(), put("b", Expect::Revision(Revision(99)))).unwrap();
    net.pass(Duration::from_millis(500));
    assert_eq!(events(&mut bus, net.now()), [written(Err(StoreError::Refused))]);
    assert_eq!(net.writes().len(), 1, "the first write has happened");
}

/// The addresses for answers to all requests of a member.
fn asked(bus: &mut impl Bus, now: Time) -> Vec<ReplyTo> {
    let of = |event| if let Event::Message(message) = event { message.reply_to } else { None };
    events(bus, now).into_iter().filter_map(of).collect()
}

fn late_reply(asks: &mut impl Bus, answers: &mut impl Bus, mut pass: impl FnMut(Duration) -> Time) {
    let mut now = pass(Duration::from_millis(100));
    answers
        .handle_command(now, Command::Subscribe { subscription: SubscriptionId(1), pattern: pattern("who") })
        .unwrap();
    let mut addresses = Vec::new();
    for _ in 0..2 {
        now = pass(Duration::from_millis(100));
        events(asks, now);
        asks.handle_command(now, ask(1)).unwrap();
        now = pass(Duration::from_millis(100));
        addresses.extend(asked(answers, now));
        if addresses.len() == 1 {
            now = pass(Duration::from_secs(1));
            let late = Event::Answer { ticket: Ticket(1), result: Err(RequestError::TimedOut) };
            assert_eq!(events(asks, now).pop(), Some(late));
        }
    }
    for (to, answer) in addresses.into_iter().zip(["old", "new"]) {
        answers.handle_command(now, Command::Reply { to, payload: answer.into() }).unwrap();
        now = pass(Duration::from_millis(100));
    }
    assert_eq!(events(asks, now), [Event::Answer { ticket: Ticket(1), result: Ok("new".into()) }]);
}

#[test]
fn in_process_a_late_reply_meets_no_later_request_with_the_same_ticket() {
    let (hub, mut now) = (LocalHub::new(), Time(0));
    let [mut a, mut b] = [1, 2].map(|id| hub.join(MemberId(id), Limits::default()));
    late_reply(&mut a, &mut b, |duration| {
        now = now.after(duration);
        now
    });
}

#[test]
fn over_a_network_a_late_reply_meets_no_later_request_with_the_same_ticket() {
    let net = SimNet::new(1, Weather::default());
    let [mut a, mut b] = [1, 2].map(|id| net.join(MemberId(id), Limits::default()));
    late_reply(&mut a, &mut b, |duration| {
        net.pass(duration);
        net.now()
    });
}
