//! A load worker, as a run has it: a thread holds the connection, measures the clock, and translates all times.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use throng::net::Driver;
use throng::{Client, ClientEvent, ClientOptions, ConnectToken, Decode, Key, Tick, Time, TokenIssuer};
use throng_crowd::pulse::{ClockBounds, Estimate};
use throng_crowd::truth;
use throng_machine::clock;

use super::crew::{WorkerName, WorkerPlace};
use super::word::{self, Assembly, BODY_MAX, Kind, LANE, Outbox, QUICK, Word, WorkOrder};
use crate::control::Command;

/// The thread looks at its connection this often.
const OFTEN: Duration = Duration::from_millis(1);
/// The worker's clock is asked for so many times before the run begins, in this interval, and then in the other one.
const FIRST_ASKS: u64 = 20;
const FIRST_ASK_INTERVAL: Duration = Duration::from_millis(10);
const ASK_INTERVAL: Duration = Duration::from_millis(250);
/// The words that wait for the thread, and those that it has heard.
const WAITING: usize = 256;
/// Bytes of snapshots that wait for the thread, and of lines that it has heard: several of the longest.
const WAITING_BYTES: usize = 4 * BODY_MAX;
/// A farewell has so long.
const FAREWELL: Duration = Duration::from_millis(20);

/// For the thread.
pub(super) enum Say {
    Order(Box<WorkOrder>, Time),
    Command(Command),
    Tick(Tick, Time),
    Snapshot(Arc<Vec<u8>>),
}

impl Say {
    fn bytes(&self) -> usize {
        match self {
            Say::Snapshot(bytes) => bytes.len(),
            Say::Order(..) | Say::Command(_) | Say::Tick(..) => 0,
        }
    }
}

/// From the thread.
#[derive(Debug)]
pub(super) enum Heard {
    /// The worker is there, and its clock is known.
    Met,
    Ready,
    Refused(String),
    Line(String),
    /// It is gone, or its bots are.
    Ended(String),
}

impl Heard {
    fn bytes(&self) -> usize {
        match self {
            Heard::Refused(text) | Heard::Line(text) | Heard::Ended(text) => text.len(),
            Heard::Met | Heard::Ready => 0,
        }
    }
}

/// The clock of a worker, and what it was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// The worker's clock minus ours.
    pub(super) offset: Option<Estimate>,
    /// The largest error with which a time was translated since the last [`Remote::forget_errors`].
    pub(super) largest_error_us: f64,
}

/// A load worker. Dropping it ends its part of the run.
pub(super) struct Remote {
    pub(super) place: WorkerPlace,
    to: Option<SyncSender<Say>>,
    from: Receiver<Heard>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    clock: Mutex<Clock>,
    snapshots: AtomicU64,
    said_bytes: AtomicUsize,
    heard_bytes: AtomicUsize,
    /// Why the thread has ended.
    end: Mutex<Option<String>>,
}

/// Counts bytes that are about to wait. False if they are too many.
fn reserve(waiting: &AtomicUsize, bytes: usize) -> bool {
    let fits = |sum: usize| sum.checked_add(bytes).filter(|sum| *sum <= WAITING_BYTES);
    waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
}

impl Remote {
    /// Begins to connect to a worker at a UDP address.
    pub(super) fn connect(address: SocketAddr, key: &Key) -> Result<Remote> {
        let begin = |token, options| Ok(Client::connect(token, word::schema(), options, clock::now())?);
        Remote::begin(WorkerPlace::Address(address), address, key, begin)
    }

    /// Begins to connect to one on the bus, which has this address there.
    pub(super) fn connect_over(
        driver: Box<dyn Driver>,
        name: &WorkerName,
        address: SocketAddr,
        key: &Key,
    ) -> Result<Remote> {
        let begin = |token, options| Ok(Client::new(driver, token, word::schema(), options, clock::now())?);
        Remote::begin(WorkerPlace::Name(name.clone()), address, key, begin)
    }

    fn begin(
        place: WorkerPlace,
        address: SocketAddr,
        key: &Key,
        begin: impl FnOnce(ConnectToken, ClientOptions) -> Result<Client>,
    ) -> Result<Remote> {
        let issuer = TokenIssuer {
            timeout_s: word::SILENCE.as_secs() as i32,
            ..TokenIssuer::new(word::PROTOCOL_ID, key.clone())
        };
        let mut id = [0; 8];
        id.copy_from_slice(&throng::random_key().as_bytes()[..8]);
        let token = issuer.issue(u64::from_le_bytes(id), &[address])?;
        let options = ClientOptions {
            lanes: word::lanes(),
            bytes_per_s: word::BYTES_PER_S,
            idle_timeout: word::SILENCE,
            decode: Decode::Nothing,
            ..ClientOptions::default()
        };
        let client = begin(token, options).with_context(|| format!("cannot connect to load worker {place}"))?;
        let ((to, said), (heard, from)) = (sync_channel(WAITING), sync_channel(WAITING));
        let shared = Arc::new(Shared::default());
        let link = Link {
            client,
            said,
            heard,
            shared: shared.clone(),
            bounds: ClockBounds::default(),
            asks: VecDeque::new(),
            asked: 0,
            answered: 0,
            next_ask: Time(0),
            words: Assembly::default(),
            outbox: Outbox::default(),
            waits_for_got: false,
            last: None,
        };
        let thread = std::thread::Builder::new().name("load worker".to_owned()).spawn(move || link.run())?;
        Ok(Remote { place, to: Some(to), from, shared, thread: Some(thread) })
    }

    /// False if too much waits already, or the worker is gone.
    pub(super) fn say(&self, say: Say) -> bool {
        let bytes = say.bytes();
        if !reserve(&self.shared.said_bytes, bytes) {
            return false;
        }
        let is_said = self.to.as_ref().is_some_and(|to| to.try_send(say).is_ok());
        if !is_said {
            self.shared.said_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_said
    }

    pub(super) fn hear(&self) -> Option<Heard> {
        match self.from.try_recv() {
            Ok(heard) => {
                self.shared.heard_bytes.fetch_sub(heard.bytes(), Ordering::Relaxed);
                Some(heard)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                let end = self.shared.end.lock().unwrap_or_else(PoisonError::into_inner).clone();
                Some(Heard::Ended(end.unwrap_or_else(|| "its connection has ended".to_owned())))
            }
        }
    }

    pub(super) fn clock(&self) -> Clock {
        *self.shared.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Snapshots of the server's state that were sent.
    pub(super) fn snapshots(&self) -> u64 {
        self.shared.snapshots.load(Ordering::Relaxed)
    }

    /// The errors of the clock count from now on.
    pub(super) fn forget_errors(&self) {
        self.shared.clock.lock().unwrap_or_else(PoisonError::into_inner).largest_error_us = 0.0;
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.to = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed; the worker notices the silence.
            let _ = thread.join();
        }
    }
}

/// The thread's side.
struct Link {
    client: Client,
    said: Receiver<Say>,
    heard: SyncSender<Heard>,
    shared: Arc<Shared>,
    bounds: ClockBounds,
    /// Number and moment of the asks that were not answered yet.
    asks: VecDeque<(u64, Time)>,
    asked: u64,
    answered: u64,
    next_ask: Time,
    words: Assembly,
    outbox: Outbox,
    /// A snapshot is on its way: those that come meanwhile are left out.
    waits_for_got: bool,
    /// The last one is not.
    last: Option<Arc<Vec<u8>>>,
}

/// The link ends.
struct Ends;

impl Link {
    fn run(mut self) {
        while self.turn().is_ok() {
            std::thread::sleep(OFTEN);
        }
        self.client.close(clock::now(), "the run is over");
        self.client.flush(clock::now());
        std::thread::sleep(FAREWELL);
        self.client.flush(clock::now());
    }

    fn turn(&mut self) -> Result<(), Ends> {
        // A socket that fails now and then is a lossy network.
        let _ = self.client.update(clock::now());
        let came = clock::now();
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientEvent::Message { message, .. } => {
                    if let Some(word) = message.get::<Word>() {
                        self.take(word, came)?;
                    }
                }
                ClientEvent::Ended(reason) => {
                    return Err(self.end(&reason.to_string()));
                }
                _ => {}
            }
        }
        self.listen()?;
        if self.client.is_connected() {
            self.ask();
            let Link { client, outbox, .. } = self;
            outbox.pass_on(|word| client.send(LANE, word).is_ok());
            self.client.flush(clock::now());
        }
        Ok(())
    }

    /// Asks for the worker's clock, if that is due.
    fn ask(&mut self) {
        let now = clock::now();
        if now < self.next_ask {
            return;
        }
        self.next_ask = now.after(if self.answered < FIRST_ASKS { FIRST_ASK_INTERVAL } else { ASK_INTERVAL });
        self.asked += 1;
        self.asks.push_back((self.asked, now));
        if self.asks.len() > WAITING {
            self.asks.pop_front();
        }
        // One that is not sent is not answered.
        let _ = self.client.send(QUICK, &Word::numbers(Kind::Ask, [self.asked]));
    }

    fn take(&mut self, word: Word, came: Time) -> Result<(), Ends> {
        if word.kind() == Some(Kind::Answer) {
            if let Some([number, there_us, left_us]) = word.read()
                && let Some(place) = self.asks.iter().position(|(of, _)| *of == number)
                && let Some((_, asked)) = self.asks.remove(place)
            {
                self.bounds.take_trip((asked, came), (Time(there_us), Time(left_us)));
                self.answered += 1;
                if self.answered == FIRST_ASKS {
                    self.tell(Heard::Met)?;
                }
            }
            return Ok(());
        }
        let Some((kind, body)) = self.words.take(word) else { return Ok(()) };
        let text = || String::from_utf8_lossy(&body).into_owned();
        match kind {
            Kind::Ready => self.tell(Heard::Ready),
            Kind::Refused => self.tell(Heard::Refused(text())),
            Kind::Line => self.tell(Heard::Line(text())),
            Kind::Gone => self.tell(Heard::Ended("its bots have ended".to_owned())),
            Kind::Got => {
                self.waits_for_got = false;
                match self.last.take() {
                    Some(last) => self.send_snapshot(&last),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Tells the run. It listens in each tick: a worker that says more meanwhile than may wait is none. Nothing here waits for the run,
    /// which may be about to drop this.
    fn tell(&self, heard: Heard) -> Result<(), Ends> {
        let (waiting, bytes) = (&self.shared.heard_bytes, heard.bytes());
        let too_much = || self.end("it says more than a run can take");
        if !reserve(waiting, bytes) {
            return Err(too_much());
        }
        self.heard.try_send(heard).map_err(|error| {
            waiting.fetch_sub(bytes, Ordering::Relaxed);
            match error {
                // If the run does not listen, it is over.
                TrySendError::Disconnected(_) => Ends,
                TrySendError::Full(_) => too_much(),
            }
        })
    }

    fn end(&self, why: &str) -> Ends {
        self.shared.end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| why.to_owned());
        Ends
    }

    /// Puts a message into the outbox. A worker that takes none of what waits there is none.
    fn push(&mut self, words: impl IntoIterator<Item = Word>) -> Result<(), Ends> {
        match self.outbox.push(words) {
            true => Ok(()),
            false => Err(self.end("it takes nothing")),
        }
    }

    /// Says what the run has to say.
    fn listen(&mut self) -> Result<(), Ends> {
        loop {
            match self.said.try_recv() {
                Ok(Say::Order(mut order, begin)) => {
                    order.begin_us = self.there(begin).map_or(0, |begin| begin.0);
                    let body = serde_json::to_vec(&order).unwrap_or_default();
                    self.push(Word::parts(Kind::Order, &body).into_iter().flatten())?;
                }
                Ok(Say::Command(command)) => {
                    let command = match command {
                        Command::MeasureAt(us) => {
                            self.there(Time(us)).map_or(Command::Measure, |at| Command::MeasureAt(at.0))
                        }
                        other => other,
                    };
                    let body = serde_json::to_vec(&command).unwrap_or_default();
                    self.push([Word::new(Kind::Command, body)])?;
                }
                Ok(Say::Tick(tick, began)) => {
                    if let Some(began) = self.there(began) {
                        // Without it, a look at the tick has no age.
                        let _ = self.client.send(QUICK, &Word::numbers(Kind::Tick, [tick.0, began.0]));
                    }
                }
                Ok(Say::Snapshot(bytes)) => {
                    self.shared.said_bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
                    match (self.waits_for_got, truth::is_last(&bytes)) {
                        (false, _) => self.send_snapshot(&bytes)?,
                        (true, true) => self.last = Some(bytes),
                        (true, false) => {}
                    }
                }
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(Ends),
            }
        }
    }

    fn send_snapshot(&mut self, bytes: &[u8]) -> Result<(), Ends> {
        let Some(offset) = self.offset() else { return Ok(()) };
        if let Some(words) = Word::parts(Kind::Snapshot, &truth::shifted(bytes, offset.us.round() as i64)) {
            self.push(words)?;
            self.waits_for_got = true;
            self.shared.snapshots.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A moment on the worker's clock.
    fn there(&self, here: Time) -> Option<Time> {
        let offset = self.offset()?;
        Some(Time(here.0.saturating_add_signed(offset.us.round() as i64)))
    }

    /// The worker's clock minus ours, which is about to be used.
    fn offset(&self) -> Option<Estimate> {
        let offset = self.bounds.offset(clock::now())?;
        let mut clock = self.shared.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.offset = Some(offset);
        clock.largest_error_us = clock.largest_error_us.max(offset.error_us);
        Some(offset)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use throng::{Server, ServerEvent};

    use super::*;
    use crate::run::worker;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_worker_that_talks_more_than_a_run_takes_is_given_up_and_holds_nobody_up() {
        let key = Key::new([7; 32]);
        let local = ([127, 0, 0, 1], 0).into();
        let mut server = Server::bind(local, word::schema(), worker::server_options(&key)).unwrap();
        let remote = Remote::connect(server.local_address(), &key).unwrap();
        let (mut talks_to, until) = (None, Instant::now() + LONG);
        let (mut has_left, mut said) = (false, 0);
        while !has_left && Instant::now() < until {
            let _ = server.receive(clock::now());
            while let Some(event) = server.poll_event() {
                match event {
                    ServerEvent::Connected { connection, .. } => talks_to = Some(connection),
                    ServerEvent::Disconnected { .. } => has_left = true,
                    _ => {}
                }
            }
            if let Some(connection) = talks_to.filter(|_| said <= WAITING) {
                said += usize::from(server.send(connection, LANE, &Word::new(Kind::Line, vec![b'x'])).is_ok());
            }
            server.tick(clock::now());
            std::thread::sleep(Duration::from_micros(200));
        }
        // All that it has said waits, and nobody has listened.
        assert!(has_left && said > WAITING, "{said}");
        let mut heard: Vec<Heard> = Vec::new();
        while heard.len() <= WAITING && Instant::now() < until {
            heard.extend(remote.hear());
        }
        assert!(matches!(&heard[WAITING - 1], Heard::Line(_)), "{heard:?}");
        assert!(matches!(&heard[WAITING], Heard::Ended(why) if why == "it says more than a run can take"), "{heard:?}");
        assert_eq!(remote.shared.heard_bytes.load(Ordering::Relaxed), 0, "nothing waits any more");
        let began = Instant::now();
        drop(remote);
        assert!(began.elapsed() < LONG / 4);
    }

    #[test]
    fn what_waits_for_a_worker_is_counted_in_bytes() {
        // Nobody is there, so the thread takes each snapshot, and leaves it out.
        let remote = Remote::connect(([127, 0, 0, 1], 9).into(), &Key::new([7; 32])).unwrap();
        assert!(!remote.say(Say::Snapshot(Arc::new(vec![0; WAITING_BYTES + 1]))));
        assert!(remote.say(Say::Snapshot(Arc::new(vec![0; WAITING_BYTES]))));
        let waiting = AtomicUsize::new(0);
        assert_eq!([WAITING_BYTES, 1, usize::MAX].map(|bytes| reserve(&waiting, bytes)), [true, false, false]);
    }
}
