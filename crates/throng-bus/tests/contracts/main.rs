//! The contracts of the bus, each in a module of its own.

mod any_bytes;
mod clusters;
mod delivery;
mod in_process;
mod leases;
mod limits;
mod requests;
mod stores;

use throng_bus::{Bus, Event, Pattern, Subject};
use throng_wire::Time;

fn subject(text: &str) -> Subject {
    Subject::new(text).expect("the text is a name")
}

fn pattern(text: &str) -> Pattern {
    Pattern::new(text).expect("the text is a pattern")
}

/// Everything that a member is told at a moment.
fn events(bus: &mut (impl Bus + ?Sized), now: Time) -> Vec<Event> {
    bus.handle_timeout(now);
    std::iter::from_fn(|| bus.poll_event(now)).collect()
}
