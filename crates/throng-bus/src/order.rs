//! Numbers of messages: given by publishers, checked by subscribers.
//!
//! ```text
//!  publisher                                            subscriber
//!  Numbering: #5 (before it: #3 on this subject)  -->   Tracker: the newest known is #3: in order
//!             #9 (before it: #5)                  lost
//!             tip #9, after a second of silence   -->   the newest known is #5: a gap after #5
//! ```
//!
//! One row of numbers for all subjects of a publisher, and the number before it on the same subject in each message: so a
//! publisher may forget a subject, and a subscriber a publisher, without taking a later message for an earlier one.

use std::collections::VecDeque;
use std::time::Duration;

use rustc_hash::FxHashMap;
use throng_wire::Time;

use crate::envelope::Previous;
use crate::{MemberId, Sequence, Subject, SubscriptionId};

/// The silence after which a publisher says its newest number again; then twice and four times as long.
pub const TIP_AFTER: Duration = Duration::from_secs(1);
/// How often it says the number again.
pub const TIPS: u8 = 3;

/// The numbers of one publisher.
#[derive(Debug)]
pub struct Numbering {
    newest: Sequence,
    said: FxHashMap<Subject, Said>,
    /// Subjects in order of their first message, for forgetting.
    order: VecDeque<Subject>,
    /// When to look at a subject again. Each subject is in here at most once.
    due: VecDeque<(Time, Subject)>,
    limit: usize,
    forgotten: u64,
}

#[derive(Debug)]
struct Said {
    newest: Sequence,
    at: Time,
    tips: u8,
    is_due: bool,
}

impl Numbering {
    /// Numbers for at most `limit` subjects at a time.
    pub fn new(limit: usize) -> Numbering {
        Numbering {
            newest: Sequence(0),
            said: FxHashMap::default(),
            order: VecDeque::new(),
            due: VecDeque::new(),
            limit: limit.max(1),
            forgotten: 0,
        }
    }

    /// The number of a message that is published now, and the one before it.
    pub fn number(&mut self, now: Time, subject: &Subject) -> (Sequence, Previous) {
        self.newest.0 += 1;
        let newest = self.newest;
        if let Some(said) = self.said.get_mut(subject) {
            let previous = Previous::Is(said.newest);
            (said.newest, said.at, said.tips) = (newest, now, 0);
            if !said.is_due {
                said.is_due = true;
                self.expect(now, subject.clone());
            }
            return (newest, previous);
        }
        let previous = if self.forgotten == 0 { Previous::First } else { Previous::Forgotten };
        if self.said.len() >= self.limit
            && let Some(oldest) = self.order.pop_front()
        {
            self.said.remove(&oldest);
            self.forgotten += 1;
        }
        self.said.insert(subject.clone(), Said { newest, at: now, tips: 0, is_due: true });
        self.order.push_back(subject.clone());
        self.expect(now, subject.clone());
        (newest, previous)
    }

    /// Looks at a subject again in a while. If far more subjects are published to than are remembered, the oldest is not
    /// looked at any more: what is lost there shows with its next message.
    fn expect(&mut self, now: Time, subject: Subject) {
        if self.due.len() >= 2 * self.limit
            && let Some((_, oldest)) = self.due.pop_front()
            && let Some(said) = self.said.get_mut(&oldest)
        {
            said.is_due = false;
        }
        self.due.push_back((now.after(TIP_AFTER), subject));
    }

    /// A subject that has been silent, with its newest number, to be said again.
    pub fn poll_tip(&mut self, now: Time) -> Option<(Subject, Sequence)> {
        // Each entry is looked at once per call: those that are put back are due later.
        for _ in 0..self.due.len() {
            if self.due.front()?.0 > now {
                return None;
            }
            let (_, subject) = self.due.pop_front()?;
            let Some(said) = self.said.get_mut(&subject) else { continue };
            let silence = TIP_AFTER * (1 << said.tips);
            if now.since(said.at) < silence {
                self.due.push_back((now.after(TIP_AFTER), subject));
                continue;
            }
            said.tips += 1;
            let newest = said.newest;
            said.is_due = said.tips < TIPS;
            if said.is_due {
                self.due.push_back((now.after(TIP_AFTER), subject.clone()));
            }
            return Some((subject, newest));
        }
        None
    }

    /// Says the numbers of all subjects again soon: the connection was lost, perhaps with messages under way.
    pub fn say_again(&mut self, now: Time) {
        self.due.clear();
        for subject in &self.order {
            if let Some(said) = self.said.get_mut(subject) {
                (said.at, said.tips, said.is_due) = (now, 0, true);
                self.due.push_back((now.after(TIP_AFTER), subject.clone()));
            }
        }
    }

    /// How many subjects were forgotten because of the limit.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

/// The judgement of a subscriber on a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is the next one.
    InOrder,
    /// It has been here.
    Duplicate,
    /// Others are missing before it. The newest that arrived before them; 0 if it is not known.
    AfterGap(Sequence),
}

/// The newest numbers that one subscriber knows, of each subscription, publisher and subject.
#[derive(Debug)]
pub struct Tracker {
    newest: FxHashMap<(SubscriptionId, MemberId, Subject), Sequence>,
    order: VecDeque<(SubscriptionId, MemberId, Subject)>,
    limit: usize,
    forgotten: u64,
}

impl Tracker {
    /// Remembers at most `limit` of them.
    pub fn new(limit: usize) -> Tracker {
        Tracker { newest: FxHashMap::default(), order: VecDeque::new(), limit: limit.max(1), forgotten: 0 }
    }

    /// Judges a message. Its first message of a publisher counts as after a gap unless it is the publisher's first on the
    /// subject: only so nothing is missed if the ones between subscribing and this one are lost.
    pub fn message(
        &mut self,
        subscription: SubscriptionId,
        publisher: MemberId,
        subject: &Subject,
        (sequence, previous): (Sequence, Previous),
    ) -> Arrival {
        let Some(known) = self.advance(subscription, publisher, subject, sequence) else {
            return if previous == Previous::First { Arrival::InOrder } else { Arrival::AfterGap(Sequence(0)) };
        };
        if sequence <= known {
            Arrival::Duplicate
        } else if previous == Previous::Is(known) {
            Arrival::InOrder
        } else {
            Arrival::AfterGap(known)
        }
    }

    /// Judges a tip: [`Arrival::InOrder`] if nothing is missing.
    pub fn tip(
        &mut self,
        subscription: SubscriptionId,
        publisher: MemberId,
        subject: &Subject,
        sequence: Sequence,
    ) -> Arrival {
        match self.advance(subscription, publisher, subject, sequence) {
            None => Arrival::AfterGap(Sequence(0)),
            Some(known) if sequence > known => Arrival::AfterGap(known),
            Some(_) => Arrival::InOrder,
        }
    }

    /// Forgets a subscription that has ended.
    pub fn forget(&mut self, subscription: SubscriptionId) {
        self.newest.retain(|(of, _, _), _| *of != subscription);
        self.order.retain(|(of, _, _)| *of != subscription);
    }

    /// How many were forgotten because of the limit.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Notes a number, and returns the newest one before it.
    fn advance(
        &mut self,
        subscription: SubscriptionId,
        publisher: MemberId,
        subject: &Subject,
        sequence: Sequence,
    ) -> Option<Sequence> {
        let key = (subscription, publisher, subject.clone());
        if let Some(known) = self.newest.get_mut(&key) {
            let before = *known;
            *known = before.max(sequence);
            return Some(before);
        }
        if self.newest.len() >= self.limit
            && let Some(oldest) = self.order.pop_front()
        {
            self.newest.remove(&oldest);
            self.forgotten += 1;
        }
        self.newest.insert(key.clone(), sequence);
        self.order.push_back(key);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: MemberId = MemberId(1);
    const SUB: SubscriptionId = SubscriptionId(1);

    fn subject(text: &str) -> Subject {
        Subject::new(text).unwrap()
    }

    #[test]
    fn a_lost_last_message_is_found_by_the_tip() {
        let (mut numbering, mut tracker) = (Numbering::new(10), Tracker::new(10));
        let a = subject("a");
        let first = numbering.number(Time(0), &a);
        assert_eq!(tracker.message(SUB, ME, &a, first), Arrival::InOrder);
        numbering.number(Time(0), &a); // lost
        assert_eq!(numbering.poll_tip(Time::from_millis(999)), None);
        let (_, tip) = numbering.poll_tip(Time::from_secs(1)).unwrap();
        assert_eq!(tracker.tip(SUB, ME, &a, tip), Arrival::AfterGap(Sequence(1)));
        assert_eq!(tracker.tip(SUB, ME, &a, tip), Arrival::InOrder);
    }

    #[test]
    fn a_silent_subject_has_three_tips_and_then_costs_nothing() {
        let mut numbering = Numbering::new(10);
        numbering.number(Time(0), &subject("a"));
        let tips = (0..200).filter(|tenths| numbering.poll_tip(Time::from_millis(tenths * 100)).is_some()).count();
        assert_eq!(tips, 3);
        assert!(numbering.due.is_empty());
    }

    #[test]
    fn forgotten_subjects_and_publishers_lead_to_gaps_and_never_to_false_order() {
        let (mut numbering, mut tracker) = (Numbering::new(2), Tracker::new(2));
        for name in ["a", "b", "c"] {
            let said = numbering.number(Time(0), &subject(name));
            assert_eq!(tracker.message(SUB, ME, &subject(name), said), Arrival::InOrder, "{name}");
        }
        assert_eq!((numbering.forgotten(), tracker.forgotten()), (1, 1));
        let again = numbering.number(Time(0), &subject("a"));
        assert_eq!(again, (Sequence(4), Previous::Forgotten));
        assert_eq!(tracker.message(SUB, ME, &subject("a"), again), Arrival::AfterGap(Sequence(0)));
    }

    #[test]
    fn the_tables_stay_within_their_limits() {
        let (mut numbering, mut tracker) = (Numbering::new(4), Tracker::new(4));
        for index in 0..1_000u64 {
            let name = subject(&format!("s{}", index % 37));
            let said = numbering.number(Time(index), &name);
            tracker.message(SUB, ME, &name, said);
            assert!(numbering.said.len() <= 4 && numbering.order.len() <= 4);
            assert!(tracker.newest.len() <= 4 && tracker.order.len() <= 4);
            // Subjects that were forgotten wait here for at most a second.
            while numbering.poll_tip(Time(index).after(TIP_AFTER)).is_some() {}
            assert!(numbering.due.len() <= 8);
        }
    }
}
