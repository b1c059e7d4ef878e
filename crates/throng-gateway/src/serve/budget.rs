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
const TURN_MIN: Duration = Duration::from_millis(2);

/// When an engine's thread begins its turns. Under load, it lets some more events come: waking up and writing to sockets for each of
/// them would cost more than what is to be done for it.
pub(super) struct Pace {
    last_turn: Time,
    /// The last turn had to wait for its time. Then there are events when the next one may begin, and it is enough to sleep until then:
    /// nobody has to wake this thread.
    is_busy: bool,
}

impl Pace {
    pub(super) fn new(now: Time) -> Pace {
        Pace { last_turn: now, is_busy: false }
    }

    /// Waits until the next turn begins. Returns its first event, and when it begins. There is no event if it begins because of the
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
        self.last_turn = clock.now();
        Ok((event, self.last_turn))
    }

    /// Sleeps until a turn may begin. Returns whether that was necessary.
    fn sleep(&self, clock: Clock) -> bool {
        let rest = TURN_MIN.checked_sub(clock.now().since(self.last_turn)).filter(|rest| !rest.is_zero());
        rest.into_iter().for_each(thread::sleep);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
