//! Asks the provider, and counts wrong guesses.
//!
//! ```text
//!   ask --> banned? share of the address? --> Provider::check --> at once: answered
//!                                                          '--> later: a task of the runtime, limited at one time;
//!                                                               the others wait, address by address in turn
//! ```
//! If the queue is full or the provider cannot decide, the player is not at fault: the answer is *not now*, which does
//! not count as a failed login.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use throng_wire::Time;
use tokio::runtime::Handle;

use super::book::Book;
use super::{Check, Credentials, Deciding, Provider};
use crate::place::place_of;
use crate::recent::BanCounts;
use throng_gateway_engine::port::{AuthRequest, AuthVerdict, Key};

/// The limits of the desk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeskLimits {
    /// Questions that a provider which takes its time is asked at one time.
    pub calls: usize,
    /// Questions that wait for that. Beyond, they are answered with *not now*.
    pub waiting: usize,
    /// Questions of one address, asked or waiting. 0: no limit of its own. As the queue fills, an address with many
    /// logins gets less of the rest than addresses with few.
    pub per_address: usize,
    /// How long a question may wait until it is asked. Then it is answered with *not now*.
    pub patience: Duration,
    /// Failed logins of one player from one address after which no more are tried. 0: no limit.
    pub failures: u32,
    /// How long failures are remembered.
    pub ban: Duration,
    /// Players whose failures are remembered.
    pub remembered: usize,
}

impl Default for DeskLimits {
    fn default() -> DeskLimits {
        DeskLimits {
            calls: 256,
            waiting: 4_096,
            per_address: 32,
            patience: Duration::from_secs(30),
            failures: 5,
            ban: Duration::from_secs(300),
            remembered: 1 << 16,
        }
    }
}

/// The provider's answer, and the login that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) key: Key,
    pub(crate) address: SocketAddr,
    pub(crate) player: String,
    /// `None`: it could not decide.
    pub(crate) verdict: Option<AuthVerdict>,
    /// The provider was asked for it by a task.
    is_late: bool,
    /// The player is banned here for its wrong guesses: nobody was asked.
    is_of_a_ban: bool,
    /// Memory of the question meanwhile.
    held_bytes: u64,
}

/// A question, and the provider's way to an answer, which begins when it is first waited for.
struct Question {
    answer: Answer,
    deciding: Deciding,
    since: Time,
}

/// Where the engine's questions go.
pub(crate) struct Desk {
    provider: Arc<dyn Provider>,
    limits: DeskLimits,
    runtime: Handle,
    /// Where answers go that come later.
    reply: Arc<dyn Fn(Answer) + Send + Sync>,
    book: Book,
    line: Line<Question>,
    /// Questions that the provider is asked at present.
    calls: usize,
    /// Questions of each address, asked or waiting. Hashed with the standard library's keyed hash: peers choose addresses.
    shares: HashMap<IpAddr, usize>,
    /// Memory of the questions, asked or waiting.
    held_bytes: u64,
}

/// Memory of a question without the peer's texts: its entries in the tables, and the provider's task.
const QUESTION_BYTES: usize = 1_024;

impl Desk {
    /// Answers that come later go to `reply`, from tasks of `runtime`.
    pub(crate) fn new(
        provider: Arc<dyn Provider>,
        limits: &DeskLimits,
        runtime: Handle,
        reply: impl Fn(Answer) + Send + Sync + 'static,
    ) -> Desk {
        Desk {
            provider,
            runtime,
            reply: Arc::new(reply),
            book: Book::new(limits.failures, limits.ban, limits.remembered),
            line: Line::default(),
            calls: 0,
            shares: HashMap::new(),
            held_bytes: 0,
            limits: limits.clone(),
        }
    }

    /// Another provider decides from now on. The former provider answers the questions that it has; wrong guesses stay
    /// counted.
    pub(crate) fn take_over(&mut self, now: Time, provider: Arc<dyn Provider>, limits: &DeskLimits) {
        self.provider = provider;
        self.book.set_limits(now, limits.failures, limits.ban, limits.remembered);
        self.limits = limits.clone();
    }

    /// Asks. `None` if the answer comes later.
    pub(crate) fn ask(&mut self, now: Time, request: AuthRequest, address: SocketAddr) -> Option<Answer> {
        let player = request.player_identifier_token.clone();
        // The name is with the question and with the provider.
        let held_bytes = (QUESTION_BYTES + 2 * player.len() + request.login_token.len()) as u64;
        let answer = |verdict| Answer {
            key: request.key,
            address,
            player: player.clone(),
            verdict,
            is_late: false,
            is_of_a_ban: false,
            held_bytes,
        };
        if self.book.is_banned(now, address.ip(), &player) {
            return Some(Answer { is_of_a_ban: true, ..answer(Some(AuthVerdict::InvalidIdentifier)) });
        }
        let credentials = Credentials {
            side: request.side,
            address,
            player_identifier_token: request.player_identifier_token,
            login_token: request.login_token,
        };
        let deciding = match self.provider.check(credentials) {
            Check::Now(decision) => return Some(answer(decision.ok())),
            Check::Later(deciding) => deciding,
        };
        let place = place_of(address.ip());
        if !self.has_share(place) {
            return Some(answer(None));
        }
        *self.shares.entry(place).or_default() += 1;
        self.held_bytes += held_bytes;
        let question = Question { answer: Answer { is_late: true, ..answer(None) }, deciding, since: now };
        match self.calls < self.limits.calls.max(1) {
            true => self.call(question),
            false => self.line.push(place, question),
        }
        None
    }

    /// Takes note of an answer, and says what to tell the engine.
    pub(crate) fn settle(&mut self, now: Time, answer: &Answer) -> AuthVerdict {
        let address = answer.address.ip();
        if answer.is_late {
            self.calls = self.calls.saturating_sub(1);
            self.give_back(answer);
        }
        match answer.verdict {
            Some(AuthVerdict::Accepted) => {
                self.book.succeeded(address, &answer.player);
                AuthVerdict::Accepted
            }
            None | Some(AuthVerdict::Unavailable) => AuthVerdict::Unavailable,
            // Nobody was asked, so nobody has guessed: a ban ends, however often its player tries.
            Some(verdict) if answer.is_of_a_ban => verdict,
            Some(verdict) => {
                self.book.failed(now, address, &answer.player);
                verdict
            }
        }
    }

    /// Asks about waiting logins, as far as the provider may be asked now. Expired questions are removed; questions of
    /// closed connections are not asked.
    pub(crate) fn next(&mut self, now: Time, is_there: impl Fn(Key) -> bool) -> Option<Answer> {
        while self.calls < self.limits.calls.max(1) {
            let question = self.line.pop()?;
            if !is_there(question.answer.key) {
                self.give_back(&question.answer);
                continue;
            }
            if now.since(question.since) > self.limits.patience {
                self.give_back(&question.answer);
                return Some(Answer { is_late: false, ..question.answer });
            }
            self.call(question);
        }
        None
    }

    /// Logins that are being decided, and those that wait for that.
    pub(crate) fn pending(&self) -> [usize; 2] {
        [self.calls, self.line.len()]
    }

    /// The address that has guessed too often, and the rest of its ban.
    pub(crate) fn bans(&self, now: Time) -> impl Iterator<Item = (IpAddr, Duration)> {
        self.book.bans(now)
    }

    /// How many guessers are banned, and how many of their bans were forgotten.
    pub(crate) fn ban_counts(&mut self, now: Time) -> BanCounts {
        self.book.ban_counts(now)
    }

    /// Forgives an address. Returns whether there was anything to forgive.
    pub(crate) fn unban(&mut self, address: IpAddr) -> bool {
        self.book.forgive(address)
    }

    /// Whether an address may have one more question. The fewer entries are free, the fewer of them one address may
    /// have: so a new address always finds one, however many logins of other addresses wait (Choudhury and Hahne,
    /// Dynamic Queue Length Thresholds for Shared-Memory Packet Switches, 1998).
    fn has_share(&self, place: IpAddr) -> bool {
        let own = self.shares.get(&place).copied().unwrap_or_default();
        let room = self.limits.calls + self.limits.waiting;
        let free = room.saturating_sub(self.calls + self.line.len());
        let limit = if self.limits.per_address > 0 { self.limits.per_address } else { usize::MAX };
        free > 0 && own < limit.min(free.div_ceil(SHARE_PARTS))
    }

    /// Memory of the logins that are being decided or wait for that.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    fn give_back(&mut self, answer: &Answer) {
        self.held_bytes = self.held_bytes.saturating_sub(answer.held_bytes);
        let place = place_of(answer.address.ip());
        if let Some(own) = self.shares.get_mut(&place) {
            *own -= 1;
            if *own == 0 {
                self.shares.remove(&place);
            }
        }
    }

    fn call(&mut self, question: Question) {
        self.calls += 1;
        let reply = Arc::clone(&self.reply);
        let Question { mut answer, deciding, .. } = question;
        self.runtime.spawn(async move {
            // A provider that panics has not decided.
            let decision = AssertUnwindSafe(deciding).catch_unwind().await;
            answer.verdict = decision.ok().and_then(Result::ok);
            reply(answer);
        });
    }
}

/// One address gets at most this part of the free entries: one eighth.
const SHARE_PARTS: usize = 8;

/// Waiting logins, address by address: a single login does not wait behind a thousand of another address.
struct Line<T> {
    turns: VecDeque<IpAddr>,
    /// Hashed with the standard library's keyed hash: peers choose their addresses.
    waiting: HashMap<IpAddr, VecDeque<T>>,
    len: usize,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line { turns: VecDeque::new(), waiting: HashMap::new(), len: 0 }
    }
}

impl<T> Line<T> {
    fn len(&self) -> usize {
        self.len
    }

    fn push(&mut self, place: IpAddr, item: T) {
        let waiting = self.waiting.entry(place).or_default();
        if waiting.is_empty() {
            self.turns.push_back(place);
        }
        waiting.push_back(item);
        self.len += 1;
    }

    fn pop(&mut self) -> Option<T> {
        let place = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&place)?;
        let item = waiting.pop_front()?;
        match waiting.is_empty() {
            true => drop(self.waiting.remove(&place)),
            false => self.turns.push_back(place),
        }
        self.len -= 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    use tokio::sync::oneshot;

    use super::*;
    use crate::auth::{AcceptAll, Decision, FixedPassword, Unavailable};
    use throng_gateway_engine::port::Side;

    const SOON: Duration = Duration::from_secs(20);

    /// A desk with its runtime, and the answers that come later.
    struct Office {
        desk: Desk,
        answers: Receiver<Answer>,
        _runtime: tokio::runtime::Runtime,
    }

    fn office(provider: impl Provider + 'static, limits: &DeskLimits) -> Office {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (reply, answers) = channel();
        let reply = move |answer| reply.send(answer).expect("somebody listens");
        let desk = Desk::new(Arc::new(provider), limits, runtime.handle().clone(), reply);
        Office { desk, answers, _runtime: runtime }
    }

    impl Office {
        /// The next late answer, for the engine.
        fn settle(&mut self, now: Time) -> (Key, AuthVerdict) {
            let answer = self.answers.recv_timeout(SOON).expect("an answer");
            (answer.key, self.desk.settle(now, &answer))
        }
    }

    const KEY: Key = Key { index: 1, generation: 2 };

    fn request(login: &str) -> AuthRequest {
        AuthRequest {
            key: KEY,
            side: Side::Client,
            player_identifier_token: "ada".into(),
            login_token: login.to_owned(),
        }
    }

    fn numbered(index: u32) -> AuthRequest {
        AuthRequest { key: Key { index, generation: 1 }, ..request("x") }
    }

    fn from(address: [u8; 4]) -> SocketAddr {
        SocketAddr::from((address, 9))
    }

    fn here() -> SocketAddr {
        from([203, 0, 113, 1])
    }

    #[test]
    fn a_quick_provider_is_asked_at_once() {
        let mut office = office(AcceptAll, &DeskLimits::default());
        let answer = office.desk.ask(Time(0), request("x"), here()).expect("at once");
        assert_eq!(office.desk.settle(Time(0), &answer), AuthVerdict::Accepted);
    }

    #[test]
    fn a_ban_ends_although_its_player_tries_all_the_time() {
        let limits = DeskLimits { failures: 2, ban: Duration::from_secs(60), ..DeskLimits::default() };
        let Office { mut desk, .. } = office(FixedPassword("open".into()), &limits);
        let mut login = |second: u64, login: &str| {
            let now = Time::from_secs(second);
            let answer = desk.ask(now, request(login), here()).expect("at once");
            desk.settle(now, &answer)
        };
        assert!((0..2).all(|second| login(second, "wrong") == AuthVerdict::InvalidLogin));
        assert!((2..61).all(|second| login(second, "open") == AuthVerdict::InvalidIdentifier));
        assert_eq!(login(62, "open"), AuthVerdict::Accepted);
    }

    #[test]
    fn a_login_that_failed_too_often_is_not_tried_any_more() {
        let limits = DeskLimits { failures: 2, ..DeskLimits::default() };
        let Office { mut desk, .. } = office(FixedPassword("open".into()), &limits);
        let mut verdicts = Vec::new();
        for login in ["a", "b", "open"] {
            let answer = desk.ask(Time(0), request(login), here()).expect("at once");
            verdicts.push(desk.settle(Time(0), &answer));
        }
        let [wrong, shut_out] = [AuthVerdict::InvalidLogin, AuthVerdict::InvalidIdentifier];
        assert_eq!(verdicts, [wrong, wrong, shut_out]);
        let later = Time(0).after(limits.ban);
        let answer = desk.ask(later, request("open"), here()).expect("at once");
        assert_eq!(desk.settle(later, &answer), AuthVerdict::Accepted);
    }

    /// Decides when the test lets it, in the order of the questions.
    #[derive(Clone, Default)]
    struct Slow(Arc<Mutex<VecDeque<oneshot::Sender<Decision>>>>);

    impl Provider for Slow {
        fn check(&self, _: Credentials) -> Check {
            let asked = Arc::clone(&self.0);
            Check::later(async move {
                let (decide, decision) = oneshot::channel();
                asked.lock().expect("sound").push_back(decide);
                decision.await.unwrap_or_else(|_| Err(Unavailable("gone".into())))
            })
        }
    }

    impl Slow {
        /// Decides the oldest question, as soon as there is one.
        fn decide(&self, decision: Decision) {
            loop {
                if let Some(decide) = self.0.lock().expect("sound").pop_front() {
                    return decide.send(decision).expect("somebody waits");
                }
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_slow_provider_holds_nobody_up_and_too_many_questions_are_not_held_against_those_who_ask() {
        let slow = Slow::default();
        let limits = DeskLimits { calls: 1, waiting: 1, ..DeskLimits::default() };
        let mut office = office(slow.clone(), &limits);
        let asked: Vec<Option<Answer>> =
            (1..=3).map(|last| office.desk.ask(Time(0), numbered(last), from([203, 0, 113, last as u8]))).collect();
        assert!(asked[0].is_none() && asked[1].is_none(), "one is asked, one waits");
        assert!((2_048..3_000).contains(&office.desk.held_bytes()), "{} bytes", office.desk.held_bytes());
        let refused = asked[2].as_ref().expect("there is no room for a third");
        assert_eq!(office.desk.settle(Time(0), refused), AuthVerdict::Unavailable);
        slow.decide(Ok(AuthVerdict::Accepted));
        assert_eq!(office.settle(Time(0)), (numbered(1).key, AuthVerdict::Accepted));
        assert!(office.desk.next(Time(0), |_| true).is_none());
        slow.decide(Err(Unavailable("down".into())));
        assert_eq!(office.settle(Time(0)), (numbered(2).key, AuthVerdict::Unavailable));
        assert_eq!((office.desk.pending(), office.desk.held_bytes()), ([0, 0], 0));
        assert!(office.desk.shares.is_empty());
    }

    #[test]
    fn a_login_that_waited_too_long_gets_an_answer_and_one_whose_peer_left_is_dropped() {
        let slow = Slow::default();
        let limits = DeskLimits { calls: 1, patience: Duration::from_secs(3), ..DeskLimits::default() };
        let mut office = office(slow.clone(), &limits);
        for number in 1..=3 {
            assert!(office.desk.ask(Time(0), numbered(number), here()).is_none());
        }
        slow.decide(Ok(AuthVerdict::Accepted));
        office.settle(Time(0));
        let late = office.desk.next(Time::from_secs(4), |key| key != numbered(2).key).expect("it has waited");
        assert_eq!((late.key, office.desk.settle(Time(0), &late)), (numbered(3).key, AuthVerdict::Unavailable));
        assert_eq!((office.desk.pending(), office.desk.held_bytes()), ([0, 0], 0));
        assert!(office.desk.shares.is_empty());
    }

    #[test]
    fn sixteen_addresses_that_ask_all_the_time_leave_room_for_everybody_else() {
        let limits = DeskLimits { calls: 16, waiting: 1_024, ..DeskLimits::default() };
        let mut office = office(Slow::default(), &limits);
        for number in 0..64 * 16 {
            let _ = office.desk.ask(Time(0), numbered(number), from([203, 0, 113, (number % 16) as u8]));
        }
        for number in 0..200 {
            let address = Ipv4Addr::from(0x0A00_0000 + number).octets();
            assert!(office.desk.ask(Time(0), numbered(2_000 + number), from(address)).is_none(), "address {number}");
        }
    }

    #[test]
    fn addresses_take_turns() {
        let mut line = Line::default();
        let [many, one] = [[203, 0, 113, 1], [203, 0, 113, 2]].map(IpAddr::from);
        (0..100).for_each(|number| line.push(many, number));
        line.push(one, 1_000);
        assert_eq!([(); 4].map(|()| line.pop()), [Some(0), Some(1_000), Some(1), Some(2)]);
        assert_eq!(line.len(), 97);
        assert_eq!(std::iter::from_fn(|| line.pop()).count(), 97);
        assert!(line.waiting.is_empty() && line.turns.is_empty());
    }

    /// Panics when it is asked about a login without a token.
    struct Brittle;

    impl Provider for Brittle {
        fn check(&self, credentials: Credentials) -> Check {
            Check::later(async move {
                assert!(!credentials.login_token.is_empty());
                Ok(AuthVerdict::Accepted)
            })
        }
    }

    #[test]
    fn a_provider_that_panics_has_not_decided_and_goes_on() {
        let mut office = office(Brittle, &DeskLimits { calls: 1, ..DeskLimits::default() });
        assert!(office.desk.ask(Time(0), request(""), here()).is_none());
        assert!(office.desk.ask(Time(0), request("x"), here()).is_none());
        assert_eq!(office.settle(Time(0)).1, AuthVerdict::Unavailable);
        assert!(office.desk.next(Time(0), |_| true).is_none());
        assert_eq!(office.settle(Time(0)).1, AuthVerdict::Accepted);
    }

    #[test]
    fn when_others_take_over_the_book_is_kept_and_what_was_asked_is_answered() {
        let slow = Slow::default();
        let limits = DeskLimits { failures: 1, ..DeskLimits::default() };
        let mut office = office(slow.clone(), &limits);
        assert!(office.desk.ask(Time(0), request("x"), here()).is_none());
        office.desk.take_over(Time(0), Arc::new(AcceptAll), &limits);
        slow.decide(Ok(AuthVerdict::InvalidLogin));
        assert_eq!(office.settle(Time(0)), (KEY, AuthVerdict::InvalidLogin));
        let shut_out = office.desk.ask(Time(0), request("x"), here()).expect("at once");
        assert_eq!(shut_out.verdict, Some(AuthVerdict::InvalidIdentifier));
        let accepted = office.desk.ask(Time(0), request("x"), from([203, 0, 113, 2])).expect("at once");
        assert_eq!(accepted.verdict, Some(AuthVerdict::Accepted));
        assert!(office.desk.unban(here().ip()));
        assert_eq!(
            office.desk.ask(Time(0), request("x"), here()).and_then(|answer| answer.verdict),
            Some(AuthVerdict::Accepted)
        );
    }
}
