//! When an engine's thread has its turns, and how much it does in each before its due work.

use std::thread;
use std::time::Duration;

use throng_wire::Time;

use super::clock::Clock;
use super::event::{Event, Gone, Inlet};

/// The most events that the engine reads before it does its due work, even if more are waiting.
pub(super) struct Budget {
    events: usize,
    messages: usize,
    until: Time,
}

impl Budget {
    /// Events of an engine step. Most are cheap: a connection that opens, one that closes.
    const EVENTS: usize = 4_096;

    /// Messages of an engine step, at some microseconds each.
    const MESSAGES: usize = 4_096;

    /// How long they may take together: a step of the fan-out.
    const TIME: Duration = Duration::from_millis(5);

    pub(super) fn new(begin: Time) -> Budget {
        Budget { events: Budget::EVENTS, messages: Budget::MESSAGES, until: begin.after(Budget::TIME) }
    }

    /// Notes an event with this many messages. Returns whether there is room for another one at `now`.
    pub(super) fn spend(&mut self, messages: usize, now: Time) -> bool {
        self.events = self.events.saturating_sub(1);
        self.messages = self.messages.saturating_sub(messages);
        self.events > 0 && self.messages > 0 && now < self.until
    }
}

/// The least time between the beginnings of two engine steps.
const STEP_MIN: Duration = Duration::from_millis(2);

/// When an engine's thread begins its steps. Under load, it lets some more events come: waking up and writing to sockets for each of
/// them would cost more than what is to be done for it. So a step may begin [`STEP_MIN`] after its deadline.
pub(super) struct Pace {
    last_step: Time,
    /// The last step had to wait for its time. Most likely there are events when the next one may begin: this thread sleeps until then,
    /// and nobody has to wake it.
    is_busy: bool,
}

impl Pace {
    pub(super) fn new(now: Time) -> Pace {
        Pace { last_step: now, is_busy: false }
    }

    /// Waits until the next step begins. Returns its first event, and when it begins. There is no event if it begins because of the
    /// deadline.
    pub(super) fn begin(
        &mut self,
        clock: Clock,
        inlet: &Inlet,
        deadline: Option<Time>,
    ) -> Result<(Option<Event>, Time), Gone> {
        let mut event = None;
        if self.is_busy {
            self.sleep(clock);
            event = inlet.next();
        }
        if event.is_none() {
            event = inlet.wait(deadline.map(|deadline| deadline.since(clock.now())))?;
            self.is_busy = self.sleep(clock);
        }
        self.last_step = clock.now();
        Ok((event, self.last_step))
    }

    /// Sleeps until a step may begin. Returns whether that was necessary.
    fn sleep(&self, clock: Clock) -> bool {
        let rest = STEP_MIN.checked_sub(clock.now().since(self.last_step)).filter(|rest| !rest.is_zero());
        rest.into_iter().for_each(thread::sleep);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::event::events;
    use super::*;

    #[test]
    fn steps_are_apart_under_load_and_begin_with_the_event_or_the_deadline_otherwise() {
        let (events, mut inlets) = events(1 << 20, Arc::default(), 1);
        let (clock, inlet) = (Clock::start(), inlets.remove(0));
        let send = || events.send(Event::Master(None)).expect("it lives");
        let mut pace = Pace::new(clock.now());
        let mut begin = |deadline: Option<Duration>| {
            let before = clock.now();
            let begun = pace.begin(clock, &inlet, deadline.map(|after| before.after(after)));
            begun.map(|(event, at)| (event.is_some(), at.since(before), pace.is_busy))
        };
        // Events that are there wait for the time of the step.
        for _ in 0..3 {
            send();
            let (has_event, waited, is_busy) = begin(None).expect("it lives");
            assert!(has_event && is_busy && waited >= Duration::from_millis(1), "{waited:?}");
        }
        // Then there is none, and the deadline comes.
        let (has_event, waited, is_busy) = begin(Some(Duration::from_millis(10))).expect("it lives");
        assert!(!has_event && !is_busy && waited >= Duration::from_millis(9), "{waited:?}");
        // After a pause an event does not wait.
        thread::sleep(STEP_MIN);
        send();
        assert!(matches!(begin(None), Ok((true, _, false))));
        drop(events);
        assert!(begin(None).is_err());
    }

    #[test]
    fn a_turn_ends_after_so_many_messages_however_few_events_they_came_in() {
        let begin = Time::from_secs(1);
        let mut budget = Budget::new(begin);
        let batches = (1..).find(|_| !budget.spend(64, begin)).expect("it ends");
        assert_eq!(batches * 64, Budget::MESSAGES);
    }

    #[test]
    fn a_turn_ends_in_time_for_the_next_step() {
        let mut budget = Budget::new(Time::from_secs(1));
        assert!(budget.spend(1, Time::from_secs(1).after(Duration::from_millis(4))));
        assert!(!budget.spend(1, Time::from_secs(1).after(Duration::from_millis(5))));
    }
}
