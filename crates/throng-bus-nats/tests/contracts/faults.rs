//! nats-server dies by `kill -9`, and comes back.

use std::time::Duration;

use throng_bus::{
    Bus, Command, CommandError, Event, Expect, Gap, Limits, Missing, RequestError, SubscriptionId, Ticket, WatchId,
};

use crate::stores::{put, written};
use crate::{Clock, join, pattern, subject, until};
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
