//! The bus over a real nats-server, on loopback, which the tests start and stop.

mod faults;
mod messages;
mod permissions;
mod settings;
mod stores;

use std::time::{Duration, Instant};

use throng_bus::{Bus, Cluster, Command, Event, Limits, MemberId, Pattern, Subject, Ticket};
use throng_bus_nats::{NatsBus, NatsOptions};
use throng_wire::Time;

use throng_testkit::NatsServer;

/// The time that anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn subject(text: &str) -> Subject {
    Subject::new(text).expect("the text is a name")
}

fn pattern(text: &str) -> Pattern {
    Pattern::new(text).expect("the text is a pattern")
}

/// One clock for all members of a test.
struct Clock(Instant);

impl Clock {
    fn start() -> Clock {
        Clock(Instant::now())
    }

    fn now(&self) -> Time {
        self.0.elapsed().into()
    }
}

fn options(server: &NatsServer, id: u64) -> NatsOptions {
    let cluster = Cluster::new("test", 1).expect("the name is allowed");
    NatsOptions { creates: true, patience: PATIENCE, ..NatsOptions::new(&server.address(), cluster, MemberId(id)) }
}

fn join(server: &NatsServer, id: u64, limits: Limits) -> NatsBus {
    let mut bus = NatsBus::start(NatsOptions { limits, ..options(server, id) }).expect("the server is there");
    assert_eq!(bus.poll_event(Time(0)), Some(Event::Connected));
    bus
}

/// Waits until the server has taken all that `bus` has told it: it answers a connection in order.
fn settle(clock: &Clock, bus: &mut NatsBus) {
    let ticket = Ticket(u64::MAX);
    let key = Subject::new("nothing").unwrap();
    bus.handle_command(clock.now(), Command::Get { ticket, key }).unwrap();
    until(clock, bus, |event| matches!(event, Event::Got { ticket: of, .. } if of == ticket).then_some(()));
}

/// Reads events until one is as wanted.
fn until<T>(clock: &Clock, bus: &mut NatsBus, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
    let end = clock.now().after(PATIENCE);
    while clock.now() < end {
        bus.handle_timeout(clock.now());
        while let Some(event) = bus.poll_event(clock.now()) {
            if let Some(found) = wanted(event) {
                return found;
            }
        }
        bus.wait(Duration::from_millis(20));
    }
    panic!("it did not come in {PATIENCE:?}; counters {:?}", bus.counters());
}
