//! Events that wait for [`Bus::poll_event`](crate::Bus::poll_event), within limits.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::store::Change;
use crate::{Event, Gap, Limits, MemberId, Message, Missing, Sequence, Subject, SubscriptionId, WatchId};

/// Most gaps that wait one by one. Then whole subscriptions are named.
pub const GAPS_MAX: usize = 1_024;

/// Events in three rows. Answers and news of the connection are bounded by the commands that ask for them. Of watches, each
/// key waits once, with its newest state; a watch of which too many wait is ended. Messages are bounded by number and bytes; those that
/// find no room are dropped.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    control: VecDeque<Event>,
    changed: FxHashMap<WatchId, FxHashMap<Subject, Change>>,
    changes: VecDeque<WatchEvent>,
    messages: VecDeque<Item>,
    bytes: usize,
    /// The gaps that wait, and behind which no message of the same waits.
    gaps: FxHashSet<(SubscriptionId, MemberId, Subject)>,
    wide_gaps: FxHashSet<SubscriptionId>,
    pub(crate) dropped: u64,
}

#[derive(Debug)]
enum WatchEvent {
    Changed(WatchId, Subject),
    Listed(WatchId),
}

#[derive(Debug)]
enum Item {
    Message(Message),
    Gap(Gap),
}

impl Waiting {
    pub(crate) fn push_control(&mut self, event: Event) {
        // A connection that was lost, came back and was lost again while nobody looked is one that was lost.
        let len = self.control.len();
        let was_lost = len >= 2 && self.control[len - 2] == Event::Disconnected;
        if event == Event::Disconnected && self.control.back() == Some(&Event::Connected) && was_lost {
            self.control.pop_back();
            return;
        }
        self.control.push_back(event);
    }

    /// False if more wait of the watch than a change of all its keys: keys come and go, and nobody polls. Then the watch has failed.
    #[must_use]
    pub(crate) fn push_change(&mut self, watch: WatchId, change: Change, limits: &Limits) -> bool {
        let changed = self.changed.entry(watch).or_default();
        let key = change.key.clone();
        if changed.insert(change.key.clone(), change).is_none() {
            self.changes.push_back(WatchEvent::Changed(watch, key));
        }
        // All may have been removed, and as many others may have come.
        let fits = changed.len() <= limits.watched_keys.saturating_mul(2);
        if !fits {
            self.fail_watch(watch);
        }
        fits
    }

    /// A watch has ended by a limit.
    pub(crate) fn fail_watch(&mut self, watch: WatchId) {
        self.forget_watch(watch);
        self.push_control(Event::WatchFailed { watch });
    }

    pub(crate) fn push_listed(&mut self, watch: WatchId) {
        self.changes.push_back(WatchEvent::Listed(watch));
    }

    /// A message. One that finds no room is counted, and a gap after `known` waits in its place.
    #[inline]
    pub(crate) fn push_message(&mut self, message: Message, known: Sequence, limits: &Limits) {
        let bytes = message.payload.len();
        if self.messages.len() >= limits.waiting_events || self.bytes + bytes > limits.waiting_bytes {
            self.drop_message(message, known);
            return;
        }
        if !(self.gaps.is_empty() && self.wide_gaps.is_empty()) {
            self.close_gap(&message);
        }
        self.bytes += bytes;
        self.messages.push_back(Item::Message(message));
    }

    /// A gap that waits. The caller gets it once, until a message of the same subscription, publisher and subject waits behind it.
    pub(crate) fn push_gap(
        &mut self,
        subscription: SubscriptionId,
        publisher: MemberId,
        subject: Subject,
        after: Sequence,
    ) {
        if self.wide_gaps.contains(&subscription) {
            return;
        }
        if self.gaps.len() >= GAPS_MAX {
            self.push_wide_gap(subscription);
        } else if self.gaps.insert((subscription, publisher, subject.clone())) {
            let missing = Missing::Of { subject, publisher, after };
            self.messages.push_back(Item::Gap(Gap { subscription, missing }));
        }
    }

    /// A gap anywhere in a subscription.
    pub(crate) fn push_wide_gap(&mut self, subscription: SubscriptionId) {
        if self.wide_gaps.insert(subscription) {
            self.messages.push_back(Item::Gap(Gap { subscription, missing: Missing::Anywhere }));
        }
    }

    #[cold]
    fn drop_message(&mut self, message: Message, known: Sequence) {
        self.dropped += 1;
        // The member that asks sees that no answer comes.
        if message.reply_to.is_none() {
            self.push_gap(message.subscription, message.publisher, message.subject, known);
        }
    }

    #[cold]
    fn close_gap(&mut self, message: &Message) {
        self.gaps.remove(&(message.subscription, message.publisher, message.subject.clone()));
        self.wide_gaps.remove(&message.subscription);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        if let Some(event) = self.control.pop_front() {
            return Some(event);
        }
        if let Some(event) = self.changes.pop_front() {
            return Some(self.watch_event(event));
        }
        Some(match self.messages.pop_front()? {
            Item::Message(message) => {
                self.bytes -= message.payload.len();
                Event::Message(message)
            }
            Item::Gap(gap) => {
                self.end_gap(&gap);
                Event::Gap(gap)
            }
        })
    }

    /// The caller has this gap. A later loss makes a new gap.
    #[cold]
    fn end_gap(&mut self, gap: &Gap) {
        match &gap.missing {
            Missing::Of { subject, publisher, .. } => {
                self.gaps.remove(&(gap.subscription, *publisher, subject.clone()));
            }
            Missing::Anywhere => {
                self.wide_gaps.remove(&gap.subscription);
            }
        }
    }

    fn watch_event(&mut self, event: WatchEvent) -> Event {
        match event {
            WatchEvent::Listed(watch) => Event::Listed { watch },
            WatchEvent::Changed(watch, key) => {
                let change = self.changed.get_mut(&watch).and_then(|changed| changed.remove(&key));
                let (revision, value) = change.map(|change| (change.revision, change.value)).unwrap_or_default();
                Event::Changed { watch, key, revision, value }
            }
        }
    }

    /// Forgets what waits of a watch that has ended.
    pub(crate) fn forget_watch(&mut self, ended: WatchId) {
        self.control.retain(|event| *event != Event::WatchFailed { watch: ended });
        self.changed.remove(&ended);
        self.changes.retain(|event| match event {
            WatchEvent::Changed(watch, _) | WatchEvent::Listed(watch) => *watch != ended,
        });
    }
}
