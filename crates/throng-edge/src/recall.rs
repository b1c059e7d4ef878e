//! A server that has just got its lease asks another one for the states of players whose servers are gone: it has not heard what was told
//! before its start, and the clients of the process before it come back to it.
//!
//! ```text
//! subject   world.NAME.recall.2.ask.3      for server 2, from server 3
//! message   [fencing number of server 3: u64][number of the question: u32]
//!
//! subject   world.NAME.recall.3.answer.2   for server 3, from server 2; an answer may take several messages
//! message   [fencing number of server 2: u64][number of the question: u32][1 if it knows, 0 if it has just started: u8]
//!           [messages before: u32][messages that follow: u32]
//!           [number of the lost server: u16][its fencing number: u64][time left, ms: u32][state]...
//! ```
//!
//! Numbers are little endian, and a state is one of `saved.rs`. Without any state, the last three numbers of the head are zero. A server
//! that has just started itself is asked too: if all others have, nobody waits for anybody. A message counts only if its sender is the member that holds the lease of the server in the subject, and names the lease's fencing number.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use throng::Time;
use throng_bus::{Command, Fence, Message, SubscriptionId};

use crate::roster::{Roster, WorldName};
use crate::saved::{Lost, Saved, States, pack, unpack};

/// A question that nothing answers is asked again after this time, of the next server.
const AGAIN: Duration = Duration::from_millis(300);
/// Without an answer for so long, the server begins without one.
const PATIENCE: Duration = Duration::from_secs(2);
/// An answer that stops in the middle is waited for so long.
const SLOW: Duration = Duration::from_secs(1);
/// A slow answer is not waited for any longer after this time.
const LONGEST: Duration = Duration::from_secs(10);
/// Answers to one lease of a server: each may be long.
const ANSWERS_MAX: u8 = 8;
/// Where the place of a message in the answer stands.
const PLACE: std::ops::Range<usize> = 13..21;

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has no lease yet.
    NotYet,
    Asked(Asked),
    Done,
}

/// A question that has no whole answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    /// When the first question was asked.
    since: Time,
    number: u32,
    /// The server that was asked.
    whom: Option<u16>,
    /// When the next one is, if nothing more comes.
    next: Time,
    /// How many messages of the answer have come.
    heard: u32,
    /// A message of any answer has come.
    is_answered: bool,
    /// Servers that have just started, too.
    unknowing: usize,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Recall {
    name: WorldName,
    number: u16,
    subscription: SubscriptionId,
    stage: Stage,
    /// By number of a server: the lease with which it asked last, and how often it was answered.
    answered: Vec<(Fence, u8)>,
    to_send: VecDeque<Command>,
    /// Nobody has answered in time.
    pub(crate) unanswered: u64,
}

impl Recall {
    pub(crate) fn new(name: WorldName, number: u16, servers: u16, subscription: SubscriptionId) -> Recall {
        Recall {
            name,
            number,
            subscription,
            stage: Stage::NotYet,
            answered: vec![(Fence(0), 0); servers.into()],
            to_send: VecDeque::new(),
            unanswered: 0,
        }
    }

    /// The subscription of questions and answers for this server.
    pub(crate) fn subscribe(&self) -> Command {
        let pattern = self.name.pattern(&format!("recall.{}.*.*", self.number));
        Command::Subscribe { subscription: self.subscription, pattern }
    }

    pub(crate) fn is_ours(&self, subscription: SubscriptionId) -> bool {
        subscription == self.subscription
    }

    /// The server has what others know, or does not wait for it any longer.
    pub(crate) fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// The next command for the bus.
    pub(crate) fn poll_command(&mut self) -> Option<Command> {
        self.to_send.pop_front()
    }

    /// Says that the bus refused a command: it is tried again. False if it is not one of these.
    pub(crate) fn handle_refusal(&mut self, command: &Command) -> bool {
        let is_ours = matches!(command, Command::Publish { subject, .. } if self.name.recall_parts(subject).is_some());
        if is_ours {
            self.to_send.push_front(command.clone());
        }
        is_ours
    }

    /// Asks, if it is time for it. `fence` is that of the server's own lease.
    pub(crate) fn step(&mut self, now: Time, fence: Fence, roster: &Roster) {
        let mut asked = match self.stage {
            Stage::NotYet => {
                let (whom, heard, is_answered, unknowing) = (None, 0, false, 0);
                Asked { since: now, number: 0, whom, next: now, heard, is_answered, unknowing }
            }
            Stage::Asked(asked) => asked,
            Stage::Done => return,
        };
        if now.since(asked.since) > if asked.is_answered { LONGEST } else { PATIENCE } {
            self.unanswered += 1;
            self.stage = Stage::Done;
            return;
        }
        if now >= asked.next && roster.is_current() {
            let Some(next) = self.next_after(asked.whom, roster) else {
                // There is nobody who could know anything.
                self.stage = Stage::Done;
                return;
            };
            asked = Asked { number: asked.number + 1, whom: Some(next), next: now.after(AGAIN), heard: 0, ..asked };
            let ask = [&fence.0.to_le_bytes()[..], &asked.number.to_le_bytes()].concat();
            let subject = self.name.recall_subject(next, "ask", self.number);
            self.to_send.push_back(Command::Publish { subject, payload: Bytes::from(ask) });
        }
        self.stage = Stage::Asked(asked);
    }

    /// The servers but this one that hold their leases.
    fn others<'a>(&self, roster: &'a Roster) -> impl Iterator<Item = u16> + Clone + use<'a> {
        let own = self.number;
        let others = (0..).zip(roster.seats()).filter(move |(number, seat)| *number != own && seat.holder.is_some());
        others.map(|(number, _)| number)
    }

    /// The next of them after this one; the first one if there is none after it.
    fn next_after(&self, whom: Option<u16>, roster: &Roster) -> Option<u16> {
        let others = self.others(roster);
        others.clone().find(|number| whom.is_some_and(|whom| *number > whom)).or_else(|| others.clone().next())
    }

    /// Takes a question or an answer. False if it makes no sense, or its sender may not say it.
    pub(crate) fn hear(
        &mut self,
        now: Time,
        message: &Message,
        (fence, saved): (Option<Fence>, &mut Saved),
        roster: &Roster,
    ) -> bool {
        let Some((to, what, from)) = self.name.recall_parts(&message.subject) else { return false };
        let Some(holder) = roster.seat(from).and_then(|seat| seat.holder.as_ref()) else { return false };
        let is_of = |fence: Fence| (holder.member, holder.fence) == (message.publisher, fence);
        if (to, from == self.number) != (self.number, false) {
            return false;
        }
        match (what, fence) {
            ("ask", Some(fence)) => read_ask(&message.payload).is_some_and(|(asker, question)| {
                is_of(asker) && self.answer(now, (from, asker, question), fence, saved, roster)
            }),
            ("answer", _) => Head::read(&message.payload)
                .is_some_and(|(head, states)| is_of(head.fence) && self.take(now, from, (head, states), saved, roster)),
            // Without a lease of its own, its answer counts for nothing.
            ("ask", None) => true,
            _ => false,
        }
    }

    /// Answers a question. False if the server that asks has had its answers. While an answer for somebody else is still on its way out,
    /// the question is left to others.
    fn answer(
        &mut self,
        now: Time,
        (number, asker, question): (u16, Fence, u32),
        fence: Fence,
        saved: &Saved,
        roster: &Roster,
    ) -> bool {
        let Some(answered) = self.answered.get_mut(usize::from(number)) else { return false };
        if answered.0 != asker {
            *answered = (asker, 0);
        }
        if !self.to_send.is_empty() {
            return true;
        }
        if answered.1 >= ANSWERS_MAX {
            return false;
        }
        answered.1 += 1;
        let knows = self.is_done();
        let mut messages = Vec::new();
        for Lost { number, fence: lost, left, states } in saved.lost(now, roster) {
            let head = Head { fence, question, knows, place: (0, 0), lost: (number, lost), left };
            messages.extend(pack(&head.bytes(), states.into_iter()));
        }
        if messages.is_empty() {
            let (lost, left) = ((0, Fence(0)), Duration::ZERO);
            messages.push(Head { fence, question, knows, place: (0, 0), lost, left }.bytes());
        }
        let subject = self.name.recall_subject(number, "answer", self.number);
        let count = messages.len() as u32;
        for (place, mut message) in (0..count).zip(messages) {
            message[PLACE].copy_from_slice(&place_bytes((place, count - 1 - place)));
            self.to_send.push_back(Command::Publish { subject: subject.clone(), payload: Bytes::from(message) });
        }
        true
    }

    /// Takes a message of an answer. One that comes too late, or after a lost one, is of use all the same.
    fn take(
        &mut self,
        now: Time,
        from: u16,
        (head, states): (Head, States<'_>),
        saved: &mut Saved,
        roster: &Roster,
    ) -> bool {
        let Stage::Asked(mut asked) = self.stage else { return true };
        let Head { question, knows, place: (place, following), lost: (number, fence), left, .. } = head;
        let is_sound = states.is_empty() || saved.keep_lost(now, &Lost { number, fence, left, states }, roster);
        if is_sound && (question, Some(from), place) == (asked.number, asked.whom, asked.heard) {
            (asked.heard, asked.is_answered, asked.next) = (place.saturating_add(1), true, now.after(SLOW));
            let is_whole = following == 0;
            if is_whole && !knows {
                (asked.unknowing, asked.next) = (asked.unknowing + 1, now);
            }
            let is_done = is_whole && (knows || asked.unknowing >= self.others(roster).count());
            self.stage = if is_done { Stage::Done } else { Stage::Asked(asked) };
        }
        is_sound
    }
}

/// The first part of a message of an answer.
struct Head {
    fence: Fence,
    question: u32,
    knows: bool,
    /// Messages before and after this one.
    place: (u32, u32),
    lost: (u16, Fence),
    left: Duration,
}

impl Head {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.fence.0.to_le_bytes().to_vec();
        bytes.extend(self.question.to_le_bytes());
        bytes.push(self.knows.into());
        bytes.extend(place_bytes(self.place));
        bytes.extend(self.lost.0.to_le_bytes());
        bytes.extend(self.lost.1.0.to_le_bytes());
        bytes.extend((self.left.as_millis() as u32).to_le_bytes());
        bytes
    }

    /// The head of a message, and its states.
    fn read(payload: &[u8]) -> Option<(Head, States<'_>)> {
        let mut fields = Fields(payload);
        let (fence, question) = (fields.fence()?, fields.u32()?);
        let [knows @ (0 | 1)] = fields.take()? else { return None };
        let place = (fields.u32()?, fields.u32()?);
        let (lost, left) = ((fields.u16()?, fields.fence()?), Duration::from_millis(fields.u32()?.into()));
        Some((Head { fence, question, knows: knows == 1, place, lost, left }, unpack(fields.0)?))
    }
}

fn place_bytes((before, after): (u32, u32)) -> [u8; 8] {
    (u64::from(after) << 32 | u64::from(before)).to_le_bytes()
}

/// The fencing number of the server that asks, and the number of the question.
fn read_ask(payload: &[u8]) -> Option<(Fence, u32)> {
    let mut fields = Fields(payload);
    let ask = (fields.fence()?, fields.u32()?);
    fields.0.is_empty().then_some(ask)
}

/// The rest of a message.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn fence(&mut self) -> Option<Fence> {
        self.take().map(u64::from_le_bytes).map(Fence)
    }
}

#[cfg(test)]
mod tests {
    use throng_bus::{Event, MemberId, Subject, WatchId};

    use super::*;
    use crate::saved::tests::{at, lease, message, world};

    const OWN: Fence = Fence(20);
    const OTHER: Fence = Fence(21);

    fn recall(number: u16) -> Recall {
        Recall::new(WorldName::new("w").unwrap(), number, 3, SubscriptionId(9))
    }

    /// Server 0 asks, and server 2 has kept the states of 1,000 players of server 1, whose lease has ended.
    struct Two {
        asks: Recall,
        answers: Recall,
        empty: Saved,
        keeps: Saved,
        roster: Roster,
    }

    fn two() -> Two {
        let (mut from, mut keeps, mut roster) = world();
        let told = from.tell(at(0), (1, Fence(7)), (0..1_000).map(|id| (id, [id as u8; 40])));
        assert!(told.iter().all(|command| keeps.hear(at(0), &message(5, command), &roster)));
        lease(&mut roster, 1, None);
        lease(&mut roster, 0, Some(OWN));
        lease(&mut roster, 2, Some(OTHER));
        // The whole store is known.
        roster.handle_event(at(0), &Event::Listed { watch: WatchId(1) });
        let mut answers = recall(2);
        answers.stage = Stage::Done;
        Two { asks: recall(0), answers, empty: from, keeps, roster }
    }

    impl Two {
        fn asked(&mut self, ms: u64) -> Option<Command> {
            self.asks.step(at(ms), OWN, &self.roster);
            self.asks.poll_command()
        }

        fn answer(&mut self, ms: u64, ask: &Message) -> Option<Vec<Command>> {
            let fence = (Some(OTHER), &mut self.keeps);
            let is_heard = self.answers.hear(at(ms), ask, fence, &self.roster);
            is_heard.then(|| std::iter::from_fn(|| self.answers.poll_command()).collect())
        }

        fn hear(&mut self, ms: u64, answer: &Message) -> bool {
            self.asks.hear(at(ms), answer, (Some(OWN), &mut self.empty), &self.roster)
        }

        fn given(&mut self, ms: u64) -> usize {
            (0..1_000).filter(|&id| self.empty.take(at(ms), id, &self.roster).is_some()).count()
        }
    }

    #[test]
    fn an_answer_in_parts_is_whole_when_all_have_come_and_a_lost_part_is_asked_for_again() {
        let mut two = two();
        let ask = message(5, &two.asked(10).unwrap());
        let parts = two.answer(20, &ask).unwrap();
        assert!(parts.len() > 2 && two.asked(30).is_none());
        // The second one is lost.
        for part in [&parts[..1], &parts[2..]].concat() {
            assert!(two.hear(40, &message(5, &part)) && !two.asks.is_done());
        }
        assert!(two.asked(1_030).is_none(), "the rest may be slow");
        let ask = message(5, &two.asked(1_040).unwrap());
        for part in two.answer(1_050, &ask).unwrap() {
            assert!(!two.asks.is_done() && two.hear(1_060, &message(5, &part)));
        }
        assert!(two.asks.is_done() && two.asked(9_000).is_none());
        // They are of use for as long as at the server that has kept them, and 20 ms longer for the way.
        assert_eq!((two.given(30_021), two.given(30_000), two.asks.unanswered), (0, 1_000, 0));
    }

    #[test]
    fn whoever_says_nothing_is_not_waited_for_and_others_are_asked() {
        let mut two = two();
        lease(&mut two.roster, 1, Some(Fence(22)));
        let mut asked = Vec::new();
        for ms in (10..9_000).step_by(10) {
            if let Some(Command::Publish { subject, .. }) = two.asked(ms) {
                asked.push(subject.as_str().to_owned());
            }
        }
        assert_eq!(asked[..3], [1, 2, 1].map(|number| format!("world.w.recall.{number}.ask.0")));
        assert_eq!((asked.len(), two.asks.is_done(), two.asks.unanswered), (7, true, 1));
        let alone = &mut world().2;
        lease(alone, 1, None);
        lease(alone, 0, Some(OWN));
        alone.handle_event(at(0), &Event::Listed { watch: WatchId(1) });
        let mut first = recall(0);
        first.step(at(10), OWN, alone);
        assert!(first.is_done() && first.unanswered == 0, "there is nobody to wait for");
    }

    /// An answer without an end would keep the server from beginning.
    #[test]
    fn an_answer_that_goes_on_and_on_is_not_waited_for() {
        let mut two = two();
        two.asked(10).unwrap();
        let head = |place| Head {
            fence: OTHER,
            question: 1,
            knows: true,
            place: (place, 9_999),
            lost: (0, Fence(0)),
            left: Duration::ZERO,
        };
        for place in 0..11_000 {
            let subject = Subject::new("world.w.recall.0.answer.2").unwrap();
            let part = Command::Publish { subject, payload: head(place).bytes().into() };
            let ms = 10 + u64::from(place);
            assert!(two.hear(ms, &message(5, &part)));
            assert!(two.asked(ms).is_none());
            assert_eq!(two.asks.is_done(), ms > 10_010, "after {ms} ms");
        }
        assert_eq!(two.asks.unanswered, 1);
    }

    #[test]
    fn what_others_say_in_the_name_of_a_server_is_refused() {
        let mut two = two();
        let ask = message(5, &two.asked(10).unwrap());
        let elsewhere = |of: &Message, subject: &str| Message { subject: Subject::new(subject).unwrap(), ..of.clone() };
        let wrong =
            ["recall.1.ask.0", "recall.2.ask.2", "recall.2.ask.1", "recall.2.ask.9", "recall.2.tell.0", "load.2"];
        for subject in wrong {
            assert!(two.answer(20, &elsewhere(&ask, &format!("world.w.{subject}"))).is_none(), "{subject}");
        }
        assert!(two.answer(20, &Message { publisher: MemberId(6), ..ask.clone() }).is_none());
        let cuts = (0..ask.payload.len()).chain([ask.payload.len() + 1]);
        for length in cuts {
            let mut payload = ask.payload.to_vec();
            payload.resize(length, 0);
            assert!(two.answer(20, &Message { payload: payload.into(), ..ask.clone() }).is_none(), "{length} bytes");
        }
        let part = message(5, &two.answer(20, &ask).unwrap()[0]);
        for subject in ["recall.0.answer.1", "recall.0.answer.0", "recall.1.answer.2", "recall.0.ask.2"] {
            assert!(!two.hear(30, &elsewhere(&part, &format!("world.w.{subject}"))), "{subject}");
        }
        assert!(!two.hear(30, &Message { publisher: MemberId(6), ..part.clone() }));
        for length in (0..part.payload.len()).step_by(7) {
            let cut = Message { payload: part.payload.slice(..length), ..part.clone() };
            let is_heard = two.hear(30, &cut);
            // Between two states, it is a shorter one.
            assert!(!is_heard || (length >= 35 && (length - 35) % 50 == 0), "{length} bytes");
        }
        // States of a server that lives, of none that there is, and of one that would live for too long.
        let body = |lost: (u16, Fence), left| {
            let head = Head { fence: OTHER, question: 1, knows: true, place: (0, 0), lost, left };
            Message { payload: pack(&head.bytes(), [(7, [1; 4])].into_iter()).remove(0).into(), ..part.clone() }
        };
        let second = Duration::from_secs(1);
        let wrong = [((2, OTHER), second), ((9, Fence(7)), second), ((1, Fence(7)), 31 * second)];
        for (lost, left) in wrong {
            assert!(!two.hear(30, &body(lost, left)), "{lost:?}");
        }
        assert!(two.hear(30, &body((1, Fence(7)), second)));
    }

    #[test]
    fn one_lease_has_eight_answers_and_a_waiting_answer_is_not_doubled() {
        let mut two = two();
        let ask = message(5, &two.asked(10).unwrap());
        for number in 0..ANSWERS_MAX {
            assert!(two.answers.hear(at(20), &ask, (Some(OTHER), &mut two.keeps), &two.roster), "{number}");
            let waiting = two.answers.to_send.len();
            assert!(two.answers.hear(at(20), &ask, (Some(OTHER), &mut two.keeps), &two.roster));
            assert_eq!(two.answers.to_send.len(), waiting);
            two.answers.to_send.clear();
        }
        assert!(two.answer(30, &ask).is_none());
        lease(&mut two.roster, 0, Some(Fence(30)));
        let mut next = recall(0);
        next.step(at(40), Fence(30), &two.roster);
        let ask = message(5, &next.poll_command().unwrap());
        assert!(two.answer(50, &ask).is_some(), "the next process has its own");
    }
}
