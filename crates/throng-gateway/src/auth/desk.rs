//! Asks the provider, and remembers who guessed wrong.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use throng_wire::Time;

use super::book::Book;
use super::{Credentials, Provider};
use crate::engine::port::{AuthRequest, AuthVerdict, Key};

/// What the desk may take on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeskLimits {
    /// Threads that ask a provider that may block.
    pub workers: usize,
    /// Questions that wait for a worker. Beyond, they are answered with a refusal.
    pub waiting: usize,
    /// Failed logins of one player from one address after which no more are tried. 0: no limit.
    pub failures: u32,
    /// How long failures are remembered.
    pub ban: Duration,
    /// Players whose failures are remembered.
    pub remembered: usize,
}

impl Default for DeskLimits {
    fn default() -> DeskLimits {
        DeskLimits { workers: 16, waiting: 1_024, failures: 5, ban: Duration::from_secs(300), remembered: 1 << 16 }
    }
}

/// What the provider said, and about whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) key: Key,
    pub(crate) address: SocketAddr,
    pub(crate) player: String,
    /// `None`: it could not decide.
    pub(crate) verdict: Option<AuthVerdict>,
}

struct Question {
    key: Key,
    credentials: Credentials,
}

/// Who decides: a provider, with threads that ask it if it may block.
pub(crate) struct Staff {
    provider: Arc<dyn Provider>,
    workers: Option<SyncSender<Question>>,
}

impl Staff {
    /// Threads, if `provider` needs some, give their answers to `reply`. They end when the staff is gone and all that
    /// waits is answered.
    ///
    /// # Errors
    /// The system gives no more threads.
    pub(crate) fn hire(
        provider: Arc<dyn Provider>,
        limits: &DeskLimits,
        reply: impl Fn(Answer) + Send + Clone + 'static,
    ) -> io::Result<Staff> {
        if !provider.may_block() {
            return Ok(Staff { provider, workers: None });
        }
        let (sender, receiver) = sync_channel(limits.waiting);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..limits.workers.max(1) {
            let (provider, receiver, reply) = (Arc::clone(&provider), Arc::clone(&receiver), reply.clone());
            thread::Builder::new().name("auth".into()).spawn(move || work(&*provider, &receiver, &reply))?;
        }
        Ok(Staff { provider, workers: Some(sender) })
    }
}

/// Where the engine's questions go.
pub(crate) struct Desk {
    staff: Staff,
    book: Book,
}

impl Desk {
    pub(crate) fn new(staff: Staff, limits: &DeskLimits) -> Desk {
        Desk { staff, book: Book::new(limits.failures, limits.ban, limits.remembered) }
    }

    /// Others decide from now on. What the former were asked they answer; who guessed wrong stays noted.
    pub(crate) fn take_over(&mut self, staff: Staff, limits: &DeskLimits) {
        self.staff = staff;
        self.book.set_limits(limits.failures, limits.ban, limits.remembered);
    }

    /// Asks. `None` if the answer comes later, from a worker.
    pub(crate) fn ask(&mut self, now: Time, request: AuthRequest, address: SocketAddr) -> Option<Answer> {
        let player = request.player_identifier_token.clone();
        let answer = |verdict| Some(Answer { key: request.key, address, player: player.clone(), verdict });
        if self.book.is_banned(now, address.ip(), &player) {
            return answer(Some(AuthVerdict::InvalidIdentifier));
        }
        let credentials = Credentials {
            side: request.side,
            address,
            player_identifier_token: request.player_identifier_token,
            login_token: request.login_token,
        };
        let Some(workers) = &self.staff.workers else {
            return answer(self.staff.provider.check(&credentials).ok());
        };
        match workers.try_send(Question { key: request.key, credentials }) {
            Ok(()) => None,
            Err(_) => answer(None),
        }
    }

    /// Takes note of an answer, and says what to tell the engine.
    pub(crate) fn settle(&mut self, now: Time, answer: &Answer) -> AuthVerdict {
        let address = answer.address.ip();
        match answer.verdict {
            Some(AuthVerdict::Accepted) => {
                self.book.succeeded(address, &answer.player);
                AuthVerdict::Accepted
            }
            Some(verdict) => {
                self.book.failed(now, address, &answer.player);
                verdict
            }
            None => AuthVerdict::InvalidLogin,
        }
    }
}

/// One worker: ends when the desk is gone.
fn work(provider: &dyn Provider, questions: &Mutex<Receiver<Question>>, reply: &impl Fn(Answer)) {
    loop {
        let question = questions.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Question { key, credentials }) = question else { return };
        // A provider that panics has not decided. The worker goes on: otherwise some bad logins would be the end of all.
        let verdict = catch_unwind(AssertUnwindSafe(|| provider.check(&credentials).ok())).ok().flatten();
        let Credentials { address, player_identifier_token: player, .. } = credentials;
        reply(Answer { key, address, player, verdict });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::auth::{AcceptAll, FixedPassword, Unavailable};
    use crate::engine::port::Side;

    fn desk(
        provider: impl Provider + 'static,
        limits: &DeskLimits,
        reply: impl Fn(Answer) + Send + Clone + 'static,
    ) -> Desk {
        Desk::new(Staff::hire(Arc::new(provider), limits, reply).expect("there are threads"), limits)
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

    fn here() -> SocketAddr {
        SocketAddr::from(([203, 0, 113, 1], 9))
    }

    #[test]
    fn a_quick_provider_is_asked_at_once() {
        let mut desk = desk(AcceptAll, &DeskLimits::default(), |_| {});
        let answer = desk.ask(Time(0), request("x"), here()).expect("at once");
        assert_eq!(desk.settle(Time(0), &answer), AuthVerdict::Accepted);
    }

    #[test]
    fn who_fails_too_often_is_not_tried_any_more() {
        let limits = DeskLimits { failures: 2, ..DeskLimits::default() };
        let mut desk = desk(FixedPassword("open".into()), &limits, |_| {});
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

    /// Decides when it is told to.
    struct Slow(Mutex<Receiver<Result<AuthVerdict, Unavailable>>>);

    impl Provider for Slow {
        fn check(&self, _: &Credentials) -> Result<AuthVerdict, Unavailable> {
            self.0.lock().expect("one worker").recv().expect("a decision")
        }
    }

    #[test]
    fn a_slow_provider_holds_nobody_up_and_too_many_questions_are_refused() {
        let (decide, decisions) = channel();
        let (reply, answers) = channel();
        let limits = DeskLimits { workers: 1, waiting: 1, ..DeskLimits::default() };
        let mut desk = desk(Slow(Mutex::new(decisions)), &limits, move |answer| {
            reply.send(answer).expect("somebody listens");
        });
        // One may be with the worker, one waits: of three, one at least is refused.
        let refused = (0..3).filter_map(|_| desk.ask(Time(0), request("x"), here())).collect::<Vec<_>>();
        assert!(!refused.is_empty() && refused.iter().all(|answer| answer.verdict.is_none()));
        decide.send(Ok(AuthVerdict::Accepted)).expect("the worker waits");
        let answer = answers.recv().expect("an answer");
        assert_eq!((answer.key, desk.settle(Time(0), &answer)), (KEY, AuthVerdict::Accepted));
        if refused.len() == 1 {
            decide.send(Err(Unavailable("down".into()))).expect("the worker waits");
            let answer = answers.recv().expect("an answer");
            assert_eq!(desk.settle(Time(0), &answer), AuthVerdict::InvalidLogin);
        }
    }

    /// Panics when it is asked about somebody without a token.
    struct Brittle;

    impl Provider for Brittle {
        fn check(&self, credentials: &Credentials) -> Result<AuthVerdict, Unavailable> {
            assert!(!credentials.login_token.is_empty());
            Ok(AuthVerdict::Accepted)
        }
    }

    #[test]
    fn a_worker_outlives_a_provider_that_panics() {
        let (reply, answers) = channel();
        let limits = DeskLimits { workers: 1, ..DeskLimits::default() };
        let mut desk = desk(Brittle, &limits, move |answer| reply.send(answer).expect("somebody listens"));
        assert!(desk.ask(Time(0), request(""), here()).is_none() && desk.ask(Time(0), request("x"), here()).is_none());
        let verdicts = [(); 2].map(|()| answers.recv().expect("an answer").verdict);
        assert_eq!(verdicts, [None, Some(AuthVerdict::Accepted)]);
    }

    #[test]
    fn when_others_take_over_the_book_is_kept_and_what_was_asked_is_answered() {
        let (decide, decisions) = channel();
        let (reply, answers) = channel();
        let limits = DeskLimits { workers: 1, failures: 1, ..DeskLimits::default() };
        let mut desk = desk(Slow(Mutex::new(decisions)), &limits, move |answer| {
            reply.send(answer).expect("somebody listens");
        });
        assert!(desk.ask(Time(0), request("x"), here()).is_none());
        desk.take_over(Staff::hire(Arc::new(AcceptAll), &limits, |_| {}).expect("it needs no threads"), &limits);
        decide.send(Ok(AuthVerdict::InvalidLogin)).expect("the former worker still asks");
        let late = answers.recv().expect("an answer");
        assert_eq!(desk.settle(Time(0), &late), AuthVerdict::InvalidLogin);
        let shut_out = desk.ask(Time(0), request("x"), here()).expect("at once");
        assert_eq!(shut_out.verdict, Some(AuthVerdict::InvalidIdentifier));
        let other = SocketAddr::from(([203, 0, 113, 2], 9));
        let accepted = desk.ask(Time(0), request("x"), other).expect("at once");
        assert_eq!(accepted.verdict, Some(AuthVerdict::Accepted));
    }
}
