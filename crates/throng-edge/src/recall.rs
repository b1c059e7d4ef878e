//! A server that has just got its lease asks others for the states of players whose servers are gone: it has not heard what was told
//! before its start, and the clients of the process before it come back to it.
//!
//! ```text
//! subject   world.NAME.recall.2.ask.3      for server 2, from server 3
//! message   [fencing number of server 3: u64][number of the question: u32]
//!
//! subject   world.NAME.recall.3.answer.2   for server 3, from server 2; an answer may take several messages
//! message   [fencing number of server 2: u64][number of the question: u32][messages before: u32][messages that follow: u32]
//!           [number of the lost server: u16][its fencing number: u64][its newest round: u32][round of the states: u32]
//!           [time left, ms: u32][state]...
//! ```
//!
//! Numbers are little endian, and a state is one of `saved.rs`. Without any state, the numbers of the lost server are zero. A message
//! counts only if its sender is the member that holds the lease of the server in the subject, and names the lease's fencing number.
//!
//! The servers with the oldest leases are asked, because they have heard the most. A server that has just started answers too.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use throng::Time;
use throng_bus::{Command, Fence, Message, SubscriptionId};

use crate::roster::{Roster, WorldName};
use crate::saved::{Lost, Saved, States, pack, unpack};

/// So many servers are asked at the same time.
const ASKED_MAX: usize = 3;
/// A question is asked again after this time without news.
const AGAIN: Duration = Duration::from_millis(300);
/// With one whole answer, the others are not waited for any longer after this time.
const ENOUGH: Duration = Duration::from_millis(700);
/// Without a whole answer for so long, the server begins without one. Shorter than others wait for the first report of a server.
const PATIENCE: Duration = Duration::from_secs(2);
/// A server that has its lease, and is not told of others by the store, begins after this time.
const LONGEST: Duration = Duration::from_secs(10);
/// A server that sees no other one for so long is alone. Longer than it takes to renew a lease after the store was away.
const ALONE: Duration = Duration::from_millis(500);
/// Answers to one lease of a server: each may be long.
const ANSWERS_MAX: u8 = 8;
/// Bytes of the states of one answer.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Messages of answers in one step, so that other words of the server do not wait for them.
const MESSAGES_PER_STEP: u32 = 64;
/// Questions that wait for the bus.
const WAITING_MAX: usize = 8;
/// Where the place of a message in the answer stands.
const PLACE: std::ops::Range<usize> = 12..20;

/// How far a server is.
#[derive(Debug)]
enum Stage {
    /// It has no lease yet.
    NotYet,
    Asking {
        /// Of its lease.
        fence: Fence,
        /// When it asked for the first time with this lease.
        begun: Time,
        /// Since when it could ask without a pause.
        since: Time,
        asked: Vec<Asked>,
    },
    Done,
}

/// A server that was asked.
#[derive(Clone, Copy, Debug)]
struct Asked {
    number: u16,
    fence: Fence,
    question: u32,
    /// When it was asked, or heard, last.
    at: Time,
    /// Messages of the answer that have come.
    heard: u32,
    is_whole: bool,
}

/// A server that has asked this one.
#[derive(Clone, Copy, Debug, Default)]
struct Asker {
    /// Its lease.
    fence: Fence,
    /// Its newest question.
    question: u32,
    is_waiting: bool,
    answers: u8,
}

/// An answer on its way out.
#[derive(Debug)]
struct Answer {
    /// The lease of this server that it names.
    fence: Fence,
    /// Nobody waits for it after that.
    until: Time,
    messages: VecDeque<Command>,
}

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Recall {
    name: WorldName,
    number: u16,
    subscription: SubscriptionId,
    stage: Stage,
    questions: VecDeque<Command>,
    question: u32,
    /// By number of a server.
    askers: Vec<Asker>,
    answer: Option<Answer>,
    messages_in_step: u32,
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
            questions: VecDeque::new(),
            question: 0,
            askers: vec![Asker::default(); servers.into()],
            answer: None,
            messages_in_step: 0,
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
        matches!(self.stage, Stage::Done)
    }

    /// The next command for the bus.
    pub(crate) fn poll_command(&mut self) -> Option<Command> {
        self.questions.pop_front().or_else(|| {
            let answer = self.answer.as_mut().filter(|_| self.messages_in_step < MESSAGES_PER_STEP)?;
            self.messages_in_step += 1;
            let next = answer.messages.pop_front();
            self.answer.take_if(|answer| answer.messages.is_empty());
            next
        })
    }

    /// Says that the bus refused a command: it is tried again for a while. False if it is not one of these.
    pub(crate) fn handle_refusal(&mut self, command: &Command) -> bool {
        let Command::Publish { subject, .. } = command else { return false };
        match (self.name.recall_parts(subject), &mut self.answer) {
            (Some((_, "ask", _)), _) => self.questions.push_front(command.clone()),
            (Some(_), Some(answer)) => answer.messages.push_front(command.clone()),
            // The last message of an answer: the question comes again.
            (Some(_), None) => {}
            (None, _) => return false,
        }
        true
    }

    /// The server has no lease: its answers would count for nothing.
    pub(crate) fn stop(&mut self) {
        self.answer = None;
    }

    /// Answers a question that waits, and asks, if it is time for it. `fence` is that of the server's own lease.
    pub(crate) fn step(&mut self, now: Time, fence: Fence, saved: &Saved, roster: &Roster) {
        self.messages_in_step = 0;
        self.answer.take_if(|answer| now > answer.until || answer.fence != fence);
        self.answer_next(now, fence, saved, roster);
        self.ask(now, fence, roster);
    }

    fn ask(&mut self, now: Time, fence: Fence, roster: &Roster) {
        match self.stage {
            Stage::Done => return,
            Stage::Asking { fence: known, .. } if known == fence => {}
            Stage::NotYet | Stage::Asking { .. } => {
                self.stage = Stage::Asking { fence, begun: now, since: now, asked: Vec::new() };
            }
        }
        let oldest = self.oldest(roster);
        let Stage::Asking { begun, since, asked, .. } = &mut self.stage else { return };
        if !roster.is_current() && now.since(*begun) <= LONGEST {
            *since = now;
            return;
        }
        let waited = now.since(*since);
        asked.retain(|asked| oldest.contains(&(asked.fence, asked.number)));
        let whole = asked.iter().filter(|asked| asked.is_whole).count();
        let is_enough = match oldest.len() {
            0 => waited >= ALONE,
            all => whole == all || whole > 0 && waited >= ENOUGH,
        };
        if is_enough || waited > PATIENCE || now.since(*begun) > LONGEST {
            self.unanswered += u64::from(!is_enough);
            self.stage = Stage::Done;
            return;
        }
        for (fence, number) in oldest {
            if !asked.iter().any(|asked| asked.number == number) {
                asked.push(Asked { number, fence, question: 0, at: Time(0), heard: 0, is_whole: false });
            }
        }
        let due = |asked: &&mut Asked| !asked.is_whole && (asked.question == 0 || now.since(asked.at) >= AGAIN);
        for asked in asked.iter_mut().filter(due) {
            self.question += 1;
            (asked.question, asked.at, asked.heard) = (self.question, now, 0);
            let ask = [&fence.0.to_le_bytes()[..], &asked.question.to_le_bytes()].concat();
            let subject = self.name.recall_subject(asked.number, "ask", self.number);
            if self.questions.len() >= WAITING_MAX {
                self.questions.pop_front();
            }
            self.questions.push_back(Command::Publish { subject, payload: Bytes::from(ask) });
        }
    }

    /// The other servers with the oldest leases: each one's fencing number, and its own.
    fn oldest(&self, roster: &Roster) -> Vec<(Fence, u16)> {
        let others = (0..).zip(roster.seats()).filter(|(number, _)| *number != self.number);
        let mut holding: Vec<(Fence, u16)> =
            others.filter_map(|(number, seat)| Some((seat.fence()?, number))).collect();
        holding.sort_unstable();
        holding.truncate(ASKED_MAX);
        holding
    }

    /// Takes a question or an answer. False if it makes no sense, or its sender may not say it.
    pub(crate) fn hear(
        &mut self,
        now: Time,
        message: &Message,
        fence: Option<Fence>,
        saved: &mut Saved,
        roster: &Roster,
    ) -> bool {
        let Some((to, what, from)) = self.name.recall_parts(&message.subject) else { return false };
        let is_of = |fence: Fence| roster.is_from(from, message, fence);
        if to != self.number || from == self.number {
            return false;
        }
        match (what, fence) {
            ("ask", Some(_)) => read_ask(&message.payload)
                .is_some_and(|(asker, question)| is_of(asker) && self.note_question(from, asker, question)),
            ("answer", _) => Head::read(&message.payload)
                .is_some_and(|(head, states)| is_of(head.fence) && self.take(now, from, (head, states), saved)),
            // Without a lease of its own, its answer counts for nothing.
            ("ask", None) => true,
            _ => false,
        }
    }

    /// A question waits for its answer. False if the server that asks has had its answers.
    fn note_question(&mut self, number: u16, fence: Fence, question: u32) -> bool {
        let Some(asker) = self.askers.get_mut(usize::from(number)) else { return false };
        if asker.fence != fence {
            *asker = Asker { fence, ..Asker::default() };
        }
        // The bus may say it twice, and late.
        if question > asker.question {
            (asker.question, asker.is_waiting) = (question, asker.answers < ANSWERS_MAX);
            return asker.is_waiting;
        }
        true
    }

    /// Answers one of the servers that wait, if no other answer is on its way out: the one that has had the fewest answers.
    fn answer_next(&mut self, now: Time, fence: Fence, saved: &Saved, roster: &Roster) {
        if self.answer.is_some() {
            return;
        }
        let waiting = (0..).zip(&mut self.askers).filter(|(_, asker)| asker.is_waiting);
        let Some((number, asker)) = waiting.min_by_key(|(_, asker)| asker.answers) else { return };
        asker.is_waiting = false;
        if roster.fence(number) != Some(asker.fence) {
            return;
        }
        asker.answers += 1;
        let question = asker.question;
        let mut messages = Vec::new();
        for Lost { number, fence: lost, newest, round, left, states } in saved.lost(now, roster, ANSWER_BYTES_MAX) {
            let head = Head { fence, question, place: (0, 0), lost: (number, lost), rounds: (newest, round), left };
            messages.extend(pack(&head.bytes(), states.into_iter()));
        }
        if messages.is_empty() {
            let (lost, rounds, left) = ((0, Fence(0)), (0, 0), Duration::ZERO);
            messages.push(Head { fence, question, place: (0, 0), lost, rounds, left }.bytes());
        }
        let subject = self.name.recall_subject(number, "answer", self.number);
        let count = messages.len() as u32;
        let placed = (0..count).zip(messages).map(|(place, mut message)| {
            message[PLACE].copy_from_slice(&place_bytes((place, count - 1 - place)));
            Command::Publish { subject: subject.clone(), payload: Bytes::from(message) }
        });
        self.answer = Some(Answer { fence, until: now.after(PATIENCE), messages: placed.collect() });
    }

    /// Takes a message of an answer. One that was not asked for, or comes too late, changes nothing.
    fn take(&mut self, now: Time, from: u16, (head, states): (Head, States<'_>), saved: &mut Saved) -> bool {
        let Stage::Asking { fence: own, asked, .. } = &mut self.stage else { return true };
        let Head { question, place: (place, following), lost: (number, fence), rounds: (newest, round), left, .. } =
            head;
        let is_awaited = |asked: &&mut Asked| (asked.number, asked.question, asked.heard) == (from, question, place);
        let Some(asked) = asked.iter_mut().find(is_awaited) else { return true };
        // A later lease than this server's own has not ended yet.
        let is_past = fence < *own;
        let lost = Lost { number, fence, newest, round, left, states };
        if is_past && !lost.states.is_empty() && !saved.keep_lost(now, &lost) {
            return false;
        }
        (asked.heard, asked.at, asked.is_whole) = (place.saturating_add(1), now, following == 0);
        true
    }
}

/// The first part of a message of an answer.
struct Head {
    fence: Fence,
    question: u32,
    /// Messages before and after this one.
    place: (u32, u32),
    lost: (u16, Fence),
    /// The newest one of the lost server, and that of the states.
    rounds: (u32, u32),
    left: Duration,
}

impl Head {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.fence.0.to_le_bytes().to_vec();
        bytes.extend(self.question.to_le_bytes());
        bytes.extend(place_bytes(self.place));
        bytes.extend(self.lost.0.to_le_bytes());
        bytes.extend(self.lost.1.0.to_le_bytes());
        bytes.extend(self.rounds.0.to_le_bytes());
        bytes.extend(self.rounds.1.to_le_bytes());
        bytes.extend((self.left.as_millis() as u32).to_le_bytes());
        bytes
    }

    /// The head of a message, and its states.
    fn read(payload: &[u8]) -> Option<(Head, States<'_>)> {
        let mut fields = Fields(payload);
        let (fence, question) = (fields.fence()?, fields.u32()?);
        let place = (fields.u32()?, fields.u32()?);
        let (lost, rounds) = ((fields.u16()?, fields.fence()?), (fields.u32()?, fields.u32()?));
        let left = Duration::from_millis(fields.u32()?.into());
        Some((Head { fence, question, place, lost, rounds, left }, unpack(fields.0)?))
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
    use crate::saved::tests::{at, hear, lease, message, silent, world};

    /// Of server 0, which asks, and of server 2, which has kept the states of 1,000 players of server 1. The lease of that has ended.
    const OWN: Fence = Fence(20);
    const OTHER: Fence = Fence(12);

    fn recall(number: u16) -> Recall {
        Recall::new(WorldName::new("w").unwrap(), number, 3, SubscriptionId(9))
    }

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
        hear(&mut keeps, &roster, 0, told);
        lease(&mut roster, 1, None);
        lease(&mut roster, 0, Some(OWN));
        lease(&mut roster, 2, Some(OTHER));
        // The whole store is known.
        roster.handle_event(at(0), &Event::Listed { watch: WatchId(1) });
        let empty = silent();
        Two { asks: recall(0), answers: recall(2), empty, keeps, roster }
    }

    impl Two {
        fn asked(&mut self, ms: u64) -> Option<Command> {
            self.asks.step(at(ms), OWN, &self.empty, &self.roster);
            self.asks.poll_command()
        }

        /// All messages of the answer, in as many steps as that takes; `None` if the question is refused.
        fn answer(&mut self, ms: u64, ask: &Message) -> Option<Vec<Command>> {
            let is_heard = self.answers.hear(at(ms), ask, Some(OTHER), &mut self.keeps, &self.roster);
            is_heard.then(|| {
                let mut all = Vec::new();
                self.answers.answer_next(at(ms), OTHER, &self.keeps, &self.roster);
                while self.answers.answer.is_some() {
                    self.answers.messages_in_step = 0;
                    all.extend(std::iter::from_fn(|| self.answers.poll_command()));
                }
                all
            })
        }

        fn hear(&mut self, ms: u64, answer: &Message) -> bool {
            self.asks.hear(at(ms), answer, Some(OWN), &mut self.empty, &self.roster)
        }

        fn given(&mut self, ms: u64) -> usize {
            (0..1_000).filter(|&id| self.empty.take(at(ms), id, &self.roster).is_some()).count()
        }

        fn is_done(&mut self, ms: u64) -> bool {
            self.asked(ms);
            self.asks.is_done()
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
            assert!(two.hear(40, &message(5, &part)));
        }
        assert!(two.asked(330).is_none(), "the rest may be slow");
        let ask = message(5, &two.asked(340).unwrap());
        for part in two.answer(350, &ask).unwrap() {
            assert!(!two.is_done(355) && two.hear(360, &message(5, &part)));
        }
        assert!(two.is_done(360) && two.asked(9_000).is_none());
        // They are of use for as long as at the server that has kept them, and 20 ms longer for the way.
        assert_eq!((two.given(30_021), two.given(30_000), two.asks.unanswered), (0, 1_000, 0));
    }

    #[test]
    fn a_silent_server_is_not_waited_for_and_one_whole_answer_is_enough_after_a_while() {
        for is_answered in [false, true] {
            let mut two = two();
            // It holds its lease for longer than server 2, and is dead.
            lease(&mut two.roster, 1, Some(Fence(9)));
            let (mut asked, mut done_at) = (Vec::new(), None);
            for ms in (10..3_000).step_by(10) {
                two.asks.step(at(ms), OWN, &two.empty, &two.roster);
                while let Some(command) = two.asks.poll_command() {
                    let ask = message(5, &command);
                    asked.push(ask.subject.as_str().to_owned());
                    if is_answered && asked.len() == 2 {
                        let answer = two.answer(ms, &ask).unwrap();
                        assert!(answer.iter().all(|part| two.hear(ms, &message(5, part))));
                    }
                }
                done_at = done_at.or(two.asks.is_done().then_some(ms));
            }
            assert_eq!(asked[..2], [1, 2].map(|number| format!("world.w.recall.{number}.ask.0")));
            let expected = if is_answered { (710, 4, 0) } else { (2_020, 14, 1) };
            assert_eq!((done_at.unwrap(), asked.len(), two.asks.unanswered), expected);
        }
    }

    #[test]
    fn patience_begins_when_the_store_is_known_and_with_each_lease() {
        let mut two = two();
        two.roster.handle_event(at(10), &Event::Disconnected);
        assert!((10..5_000).step_by(10).all(|ms| two.asked(ms).is_none() && !two.asks.is_done()));
        two.roster.handle_event(at(5_000), &Event::Listed { watch: WatchId(1) });
        assert!(two.asked(5_000).is_some() && !two.is_done(6_900));
        // The lease was lost and taken again.
        two.asks.step(at(6_990), Fence(30), &two.empty, &two.roster);
        assert!(two.asks.poll_command().is_some() && !two.asks.is_done());
        two.asks.step(at(9_000), Fence(30), &two.empty, &two.roster);
        assert_eq!((two.asks.is_done(), two.asks.unanswered), (true, 1));

        let mut alone = self::two();
        lease(&mut alone.roster, 2, None);
        assert!(alone.asked(10).is_none() && !alone.is_done(500), "others may be about to come back");
        assert_eq!((alone.is_done(510), alone.asks.unanswered), (true, 0));
    }

    #[test]
    fn without_news_of_the_store_a_server_begins_after_ten_seconds() {
        let mut two = two();
        two.roster.handle_event(at(10), &Event::Disconnected);
        assert!(!two.is_done(10) && !two.is_done(10_010));
        assert_eq!((two.is_done(10_011), two.asks.unanswered), (true, 1));
    }

    /// Another process has the lease of a server that was asked: it is asked anew.
    #[test]
    fn an_answer_of_a_former_lease_is_none() {
        let mut two = two();
        let ask = message(5, &two.asked(10).unwrap());
        let parts = two.answer(20, &ask).unwrap();
        assert!(parts.iter().all(|part| two.hear(20, &message(5, part))));
        lease(&mut two.roster, 2, Some(Fence(15)));
        assert!(two.asked(30).is_some() && !two.asks.is_done());
    }

    #[test]
    fn the_oldest_leases_are_asked() {
        let mut seats = Roster::new(
            WorldName::new("w").unwrap(),
            crate::borders::Division::new(6, 90, 3).unwrap(),
            SubscriptionId(1),
            WatchId(1),
        );
        for (number, fence) in [(0, 50), (1, 40), (2, 10), (4, 30), (5, 20)] {
            lease(&mut seats, number, Some(Fence(fence)));
        }
        assert_eq!(recall(0).oldest(&seats), [(Fence(10), 2), (Fence(20), 5), (Fence(30), 4)]);
    }

    #[test]
    fn words_in_the_name_of_another_server_are_refused() {
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
        // Between two states, it is a shorter one.
        const HEAD_BYTES: usize = 42;
        for length in
            (0..part.payload.len()).filter(|length| *length < HEAD_BYTES || !(length - HEAD_BYTES).is_multiple_of(54))
        {
            let cut = Message { payload: part.payload.slice(..length), ..part.clone() };
            assert!(!two.hear(30, &cut), "{length} bytes");
        }
    }

    #[test]
    fn states_that_cannot_be_are_refused_and_those_that_were_not_asked_for_change_nothing() {
        let mut two = two();
        let ask = message(5, &two.asked(10).unwrap());
        let part = message(5, &two.answer(20, &ask).unwrap()[0]);
        let second = Duration::from_secs(1);
        let of = |question, lost: (u16, Fence), rounds, left| {
            let head = Head { fence: OTHER, question, place: (0, 1), lost, rounds, left };
            let states = [(7, Duration::ZERO, [1; 4])].into_iter();
            Message { payload: pack(&head.bytes(), states).remove(0).into(), ..part.clone() }
        };
        for (lost, rounds, left) in [
            ((9, Fence(7)), (1, 1), second),
            ((1, Fence(7)), (1, 1), 31 * second),
            ((1, Fence(7)), (5, 1), second),
            ((1, Fence(7)), (1, 5), second),
        ] {
            assert!(!two.hear(30, &of(1, lost, rounds, left)), "{lost:?} {rounds:?} {left:?}");
        }
        // Another question, and a lease that is newer than that of the server itself.
        assert!(two.hear(30, &of(2, (1, Fence(7)), (1, 1), second)) && two.given(40) == 0);
        assert!(two.hear(30, &of(1, (1, Fence(21)), (1, 1), second)) && two.given(40) == 0);
        assert!(!two.hear(30, &of(1, (1, Fence(7)), (1, 1), second)) || two.given(40) == 0, "it was the first part");
    }

    #[test]
    fn one_lease_has_eight_answers_and_a_waiting_answer_is_given_up_in_time() {
        let mut two = two();
        let subject = Subject::new("world.w.recall.2.ask.0").unwrap();
        let ask = |number: u32, fence: Fence| {
            let payload = [&fence.0.to_le_bytes()[..], &number.to_le_bytes()].concat().into();
            message(5, &Command::Publish { subject: subject.clone(), payload })
        };
        let hear =
            |two: &mut Two, ask: &Message| two.answers.hear(at(20), ask, Some(OTHER), &mut two.keeps, &two.roster);
        for number in 1..=u32::from(ANSWERS_MAX) {
            // The bus says it twice.
            assert!(hear(&mut two, &ask(number, OWN)) && hear(&mut two, &ask(number, OWN)));
            two.answers.step(at(20), OTHER, &two.keeps, &two.roster);
            // A bus that takes nothing.
            let refused = std::iter::from_fn(|| two.answers.poll_command())
                .find(|command| message(5, command).subject.as_str().contains("answer"));
            assert!(two.answers.handle_refusal(&refused.unwrap()) && two.answers.answer.is_some(), "{number}");
            two.answers.step(at(2_020), OTHER, &two.keeps, &two.roster);
            assert!(two.answers.answer.is_some());
            match number % 3 {
                0 => two.answers.step(at(2_021), OTHER, &two.keeps, &two.roster),
                1 => two.answers.step(at(30), Fence(13), &two.keeps, &two.roster),
                _ => two.answers.stop(),
            }
            assert!(two.answers.answer.is_none(), "nobody waits for it, or it names an old lease");
        }
        assert!(!hear(&mut two, &ask(9, OWN)));
        lease(&mut two.roster, 0, Some(Fence(30)));
        assert!(
            two.answer(50, &ask(1, Fence(30))).is_some_and(|answer| answer.len() > 1),
            "the next process has its own"
        );
    }

    #[test]
    fn all_who_ask_at_once_are_answered_one_after_the_other() {
        let mut two = two();
        lease(&mut two.roster, 1, Some(Fence(22)));
        let ask = |from: u16, fence: Fence| {
            let subject = Subject::new(&format!("world.w.recall.2.ask.{from}")).unwrap();
            let payload = [&fence.0.to_le_bytes()[..], &1_u32.to_le_bytes()].concat().into();
            message(5, &Command::Publish { subject, payload })
        };
        for (from, fence) in [(0, OWN), (1, Fence(22))] {
            assert!(two.answers.hear(at(20), &ask(from, fence), Some(OTHER), &mut two.keeps, &two.roster));
        }
        let mut answered = Vec::new();
        for _ in 0..6 {
            two.answers.step(at(20), OTHER, &two.keeps, &two.roster);
            let said = std::iter::from_fn(|| two.answers.poll_command());
            answered.extend(said.map(|command| message(5, &command).subject.as_str().to_owned()));
        }
        for to in [0, 1] {
            assert!(answered.contains(&format!("world.w.recall.{to}.answer.2")), "{answered:?}");
        }
    }

    #[test]
    fn a_long_answer_leaves_room_for_others_in_each_step() {
        let mut two = two();
        let told = two.empty.tell(at(0), (1, Fence(7)), (0..5_000).map(|id| (id, [1; 400])));
        lease(&mut two.roster, 1, Some(Fence(7)));
        hear(&mut two.keeps, &two.roster, 0, told);
        lease(&mut two.roster, 1, None);
        let ask = message(5, &two.asked(10).unwrap());
        assert!(two.answers.hear(at(20), &ask, Some(OTHER), &mut two.keeps, &two.roster));
        let mut steps = Vec::new();
        while steps.is_empty() || two.answers.answer.is_some() {
            two.answers.step(at(30), OTHER, &two.keeps, &two.roster);
            let messages = std::iter::from_fn(|| two.answers.poll_command());
            steps.push(messages.filter(|command| !message(5, command).subject.as_str().contains("ask")).count());
        }
        assert!(steps.len() > 1 && steps.iter().all(|messages| *messages <= MESSAGES_PER_STEP as usize), "{steps:?}");
    }
}
