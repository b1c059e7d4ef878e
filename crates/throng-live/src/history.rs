//! The last minutes, for viewers that come later.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::message::{Event, Message};

/// Samples and marks that are kept: at two samples in a second, 17 minutes of one load.
const EVENTS_MAX: usize = 2_048;
/// Loads whose beginnings are kept.
const HELLOS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct History {
    hellos: BTreeMap<u64, Arc<str>>,
    events: VecDeque<Arc<str>>,
}

impl History {
    /// Keeps an event, with its line, if later viewers need it.
    pub(crate) fn push(&mut self, event: &Event, line: &Arc<str>) {
        match event.message {
            Message::Hello(_) => {
                self.hellos.insert(event.feed, Arc::clone(line));
                if self.hellos.len() > HELLOS_MAX {
                    self.hellos.pop_first();
                }
            }
            Message::Sample(_) | Message::Mark(_) | Message::End => {
                if self.events.len() == EVENTS_MAX {
                    self.events.pop_front();
                }
                self.events.push_back(Arc::clone(line));
            }
            // The next one comes soon.
            Message::Points(_) => {}
        }
    }

    /// All that is kept: first the beginnings of loads, then what happened, in order.
    pub(crate) fn lines(&self) -> VecDeque<Arc<str>> {
        self.hellos.values().chain(&self.events).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Hello, Mark, Points};

    #[test]
    fn it_is_bounded_and_keeps_the_newest() {
        let mut history = History::default();
        let mut push = |feed, message| {
            let line = format!("{feed} {message:?}").into();
            history.push(&Event { feed, at_s: 0.0, message }, &line);
        };
        for feed in 0..100 {
            push(feed, Message::Hello(Hello::default()));
            push(feed, Message::Points(Points::default()));
        }
        (0..5_000).for_each(|number: u32| push(99, Message::Mark(Mark { text: number.to_string() })));
        let lines = history.lines();
        assert_eq!(lines.len(), HELLOS_MAX + EVENTS_MAX);
        assert!(lines[0].starts_with("36 Hello") && lines.back().unwrap().contains("4999"));
    }
}
