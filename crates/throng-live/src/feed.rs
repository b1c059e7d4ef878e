//! A load's end of the stream.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ureq::SendBody;

use crate::client;
use crate::message::{Command, FORMAT, Hello, Mark, Message, Point, Points, Sample};

/// The hub hears something at least so often.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// The last messages have so long to leave.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// Marks that may wait; further ones are dropped.
const MARKS_MAX: usize = 64;
/// Commands that may wait; further ones are dropped.
const COMMANDS_MAX: usize = 16;
/// The longest line of a hub.
const COMMAND_BYTES_MAX: u64 = 1_024;

/// Why a load cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// There is no hub, or it refuses.
    #[error(
        "no live page takes figures at {address} ({reason}): start one with `throng lab serve --address {address}`"
    )]
    NoHub {
        /// The address.
        address: SocketAddr,
        /// The reason.
        reason: String,
    },
    /// There is no thread for it.
    #[error("cannot start the thread that sends figures to the live page: {0}")]
    Thread(std::io::Error),
}

impl FeedError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            FeedError::NoHub { .. } => "no-hub",
            FeedError::Thread(_) => "thread",
        }
    }
}

/// A load's end of the stream. No call waits for the hub: of samples and points that have not left yet, the newest wins.
#[derive(Debug)]
pub struct Feed {
    shared: Arc<Shared>,
    wanted: Option<Receiver<u32>>,
    sender: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    is_watched: AtomicBool,
    replaced: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    hello: Option<Hello>,
    marks: VecDeque<Mark>,
    sample: Option<Sample>,
    points: Option<(f64, Vec<Point>)>,
    /// The load has ended.
    is_over: bool,
    /// The sender has ended.
    is_sent: bool,
}

impl Feed {
    /// Shows a load at the hub.
    ///
    /// # Errors
    /// There is no hub at this address.
    pub fn connect(address: SocketAddr, hello: Hello) -> Result<Feed, FeedError> {
        let agent = client::agent();
        let id: String = std::iter::repeat_with(fastrand::alphanumeric).take(32).collect();
        let no_hub = |error: ureq::Error| FeedError::NoHub { address, reason: error.to_string() };
        let commands = client::open(&agent, &format!("http://{address}/commands?id={id}")).map_err(no_hub)?;
        let hello = Hello { format: FORMAT, ..hello };
        let shared = Arc::new(Shared {
            waiting: Mutex::new(Waiting { hello: Some(hello), ..Waiting::default() }),
            changed: Condvar::new(),
            is_watched: AtomicBool::new(false),
            replaced: AtomicU64::new(0),
        });
        let (tell, wanted) = sync_channel(COMMANDS_MAX);
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let for_commands = Arc::clone(&shared);
        let listen = move || listen(commands, &for_commands, &tell);
        named("live-commands").spawn(listen).map_err(FeedError::Thread)?;
        let for_sender = Arc::clone(&shared);
        let send = move || {
            let mut lines = Lines { shared: Arc::clone(&for_sender), line: Vec::new(), read: 0 };
            // The answer comes when the load has ended, and has no limit of time. A hub that is gone is no fault of the load.
            let _ = agent.post(format!("http://{address}/feed?id={id}")).send(SendBody::from_reader(&mut lines));
            for_sender.is_watched.store(false, Ordering::Relaxed);
            for_sender.waiting().is_sent = true;
            for_sender.changed.notify_all();
        };
        let sender = named("live-feed").spawn(send).map_err(FeedError::Thread)?;
        Ok(Feed { shared, wanted: Some(wanted), sender: Some(sender) })
    }

    /// Whether somebody looks. If not, points need not be collected.
    pub fn is_watched(&self) -> bool {
        self.shared.is_watched.load(Ordering::Relaxed)
    }

    /// The loads that viewers want, as they say them. Only the first call gets them.
    pub fn take_wanted(&mut self) -> Option<Receiver<u32>> {
        self.wanted.take()
    }

    /// Shows figures.
    pub fn sample(&mut self, sample: Sample) {
        let replaced = self.shared.waiting().sample.replace(sample).is_some();
        self.leave(replaced);
    }

    /// Shows places on the map.
    pub fn points(&mut self, time_s: f64, points: Vec<Point>) {
        let replaced = self.shared.waiting().points.replace((time_s, points)).is_some();
        self.leave(replaced);
    }

    /// Shows that something happened. At most 200 bytes of its words are shown.
    pub fn mark(&mut self, text: impl Into<String>) {
        let is_full = {
            let mut waiting = self.shared.waiting();
            let is_full = waiting.marks.len() >= MARKS_MAX;
            if !is_full {
                waiting.marks.push_back(Mark::new(text));
            }
            is_full
        };
        self.leave(is_full);
    }

    /// Messages that never left, because newer ones came before the hub took them.
    pub fn replaced(&self) -> u64 {
        self.shared.replaced.load(Ordering::Relaxed)
    }

    fn leave(&self, is_replaced: bool) {
        self.shared.replaced.fetch_add(is_replaced.into(), Ordering::Relaxed);
        self.shared.changed.notify_all();
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let mut waiting = self.shared.waiting();
        waiting.is_over = true;
        self.shared.changed.notify_all();
        let is_open = |waiting: &mut Waiting| !waiting.is_sent;
        let ended = self.shared.changed.wait_timeout_while(waiting, END_PATIENCE, is_open);
        let is_sent = ended.unwrap_or_else(PoisonError::into_inner).0.is_sent;
        if let Some(sender) = self.sender.take().filter(|_| is_sent) {
            let _ = sender.join();
        }
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next message; an empty line after a while without one; `None` at the end.
    fn next_line(&self) -> Option<Vec<u8>> {
        let is_idle = |waiting: &mut Waiting| {
            let Waiting { hello, marks, sample, points, is_over, .. } = waiting;
            hello.is_none() && marks.is_empty() && sample.is_none() && points.is_none() && !*is_over
        };
        let waited = self.changed.wait_timeout_while(self.waiting(), KEEP_ALIVE, is_idle);
        let mut waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        let message = if let Some(hello) = waiting.hello.take() {
            Message::Hello(hello)
        } else if let Some(mark) = waiting.marks.pop_front() {
            Message::Mark(mark)
        } else if let Some(sample) = waiting.sample.take() {
            Message::Sample(sample)
        } else if let Some((time_s, points)) = waiting.points.take() {
            drop(waiting);
            Message::Points(Points::new(time_s, &points))
        } else if waiting.is_over {
            return None;
        } else {
            return Some(b"\n".to_vec());
        };
        let mut line = serde_json::to_vec(&message).unwrap_or_default();
        line.push(b'\n');
        Some(line)
    }
}

/// The body of the request: lines as they come.
struct Lines {
    shared: Arc<Shared>,
    line: Vec<u8>,
    read: usize,
}

impl Read for Lines {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.read == self.line.len() {
            let Some(line) = self.shared.next_line() else { return Ok(0) };
            (self.line, self.read) = (line, 0);
        }
        let count = (self.line.len() - self.read).min(buffer.len());
        buffer[..count].copy_from_slice(&self.line[self.read..self.read + count]);
        self.read += count;
        Ok(count)
    }
}

/// Reads commands until the hub or the load ends.
fn listen(body: impl Read, shared: &Shared, tell: &SyncSender<u32>) {
    let mut body = BufReader::new(body);
    let mut last = None;
    let mut line = Vec::new();
    while !shared.waiting().is_sent {
        line.clear();
        match body.by_ref().take(COMMAND_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let Ok(command) = serde_json::from_slice::<Command>(&line) else { continue };
        shared.is_watched.store(command.watched, Ordering::Relaxed);
        if let Some(amount) = command.amount.filter(|amount| last != Some(*amount)) {
            last = Some(amount);
            let _ = tell.try_send(amount);
        }
    }
    shared.is_watched.store(false, Ordering::Relaxed);
}
