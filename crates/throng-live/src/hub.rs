//! The hub: takes the messages of loads, and hands them to viewers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{ConnectInfo, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::middleware::Next;
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use futures_util::stream::{self, StreamExt};
use prometheus::TEXT_FORMAT;
use serde::Deserialize;
use throng_http::{BoundedListener, ListenerCounters, ListenerLimits, Uploads};
use tokio::sync::{Semaphore, broadcast, oneshot, watch};

use crate::exposition::Latest;
use crate::history::History;
use crate::message::{Command, Event, LINE_BYTES_MAX, Load, Mark, Message};
use crate::{guard, pages};

/// Loads at once.
const FEEDS_MAX: usize = 16;
/// Viewers at once.
const VIEWERS_MAX: usize = 64;
/// Files and lists of runs that are read or sent at once.
const READS_MAX: usize = 8;
/// Events that may wait for a viewer.
const WAITING_MAX: usize = 64;
/// A load that says nothing for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// A viewer hears something in this time, even if nothing happens.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Settings of a hub.
#[derive(Clone, Debug, PartialEq)]
pub struct HubOptions {
    /// Where it listens: by default any free port of this machine, for this machine alone.
    pub address: SocketAddr,
    /// Folder of runs that the page lists.
    pub runs: Option<PathBuf>,
    /// Listen also at addresses that other machines reach. There is no password: all of them can read, and set the load.
    pub allow_others: bool,
}

impl Default for HubOptions {
    fn default() -> HubOptions {
        HubOptions { address: SocketAddr::from(([127, 0, 0, 1], 0)), runs: None, allow_others: false }
    }
}

/// Why a hub does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// The address cannot be used.
    #[error("cannot listen at {address}: {source}; choose another port with --address")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: std::io::Error,
    },
    /// Other machines reach the address.
    #[error("other machines reach {0}, and anybody there could set the load: add --allow-others if that is meant")]
    Others(SocketAddr),
    /// There is no thread for it.
    #[error("cannot start: {0}")]
    Start(std::io::Error),
}

impl HubError {
    /// A stable short name.
    pub fn tag(&self) -> &'static str {
        match self {
            HubError::Bind { .. } => "bind",
            HubError::Others(_) => "others",
            HubError::Start(_) => "start",
        }
    }
}

/// Counts since the start, and the numbers of the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HubCounters {
    /// Loads that send now.
    pub feeds: usize,
    /// Viewers that look now.
    pub viewers: usize,
    /// Messages of loads.
    pub messages: u64,
    /// Lines of loads that are no messages.
    pub bad_lines: u64,
    /// Events that slow viewers did not get.
    pub lost_events: u64,
    /// Requests of other sites, for too many feeds, viewers or runs at once, or with wrong contents.
    pub refused: u64,
    /// Connections that were closed at once, because 256 were open.
    pub refused_connections: u64,
    /// Connections that were closed because no request began within 30 s.
    pub idle_connections: u64,
    /// Connections that were closed because a request did not come whole, or nothing of an answer was taken, within 30 s.
    pub slow_connections: u64,
}

/// A hub that runs on a thread of its own until it is dropped.
#[derive(Debug)]
pub struct Hub {
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    address: SocketAddr,
    began: Instant,
    /// A load that has asked for its commands begins to send within this time.
    unfed_max: Duration,
    pub(crate) runs: Option<PathBuf>,
    /// A permit for each read of runs.
    pub(crate) reads: Arc<Semaphore>,
    events: broadcast::Sender<Arc<str>>,
    history: Mutex<History>,
    latest: Mutex<Latest>,
    feeds: Mutex<Feeds>,
    viewers: AtomicUsize,
    messages: AtomicU64,
    bad_lines: AtomicU64,
    lost_events: AtomicU64,
    refused: AtomicU64,
    connections: Arc<ListenerCounters>,
}

#[derive(Debug, Default)]
struct Feeds {
    next_number: u64,
    /// By the name that a load has given itself.
    by_id: BTreeMap<String, Slot>,
}

/// A load at the hub.
#[derive(Debug)]
struct Slot {
    number: u64,
    is_fed: bool,
    load: Option<Load>,
    commands: watch::Sender<Command>,
}

impl Hub {
    /// Starts a hub.
    ///
    /// # Errors
    /// The address cannot be used, or other machines reach it and the options do not allow that.
    pub fn start(options: &HubOptions) -> Result<Hub, HubError> {
        Hub::start_with(options, SILENCE_MAX, ListenerLimits::default())
    }

    fn start_with(options: &HubOptions, unfed_max: Duration, limits: ListenerLimits) -> Result<Hub, HubError> {
        if !options.address.ip().is_loopback() && !options.allow_others {
            return Err(HubError::Others(options.address));
        }
        let bind = |source| HubError::Bind { address: options.address, source };
        let listener = TcpListener::bind(options.address).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let shared = Arc::new(Shared {
            address: listener.local_addr().map_err(bind)?,
            began: Instant::now(),
            unfed_max,
            runs: options.runs.clone(),
            reads: Arc::new(Semaphore::new(READS_MAX)),
            events: broadcast::Sender::new(WAITING_MAX),
            history: Mutex::default(),
            latest: Mutex::default(),
            feeds: Mutex::default(),
            viewers: AtomicUsize::new(0),
            messages: AtomicU64::new(0),
            bad_lines: AtomicU64::new(0),
            lost_events: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            connections: Arc::default(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(HubError::Start)?;
        let (stop, stopped) = oneshot::channel();
        let service = router(&shared).into_make_service_with_connect_info::<Uploads>();
        let counters = Arc::clone(&shared.connections);
        let serving = async move {
            let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
            // It ends with an error only if the listener does, and then nobody is left to get the error.
            tokio::select! {
                _ = axum::serve(BoundedListener::new(listener, limits, counters), service) => {}
                _ = stopped => {}
            }
        };
        let thread = std::thread::Builder::new().name("live".to_owned());
        let thread = thread.spawn(move || runtime.block_on(serving)).map_err(HubError::Start)?;
        Ok(Hub { shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Counts so far.
    pub fn counters(&self) -> HubCounters {
        let shared = &self.shared;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HubCounters {
            feeds: shared.feeds().by_id.values().filter(|slot| slot.is_fed).count(),
            viewers: shared.viewers.load(Ordering::Relaxed),
            messages: of(&shared.messages),
            bad_lines: of(&shared.bad_lines),
            lost_events: of(&shared.lost_events),
            refused: of(&shared.refused),
            refused_connections: of(&shared.connections.full),
            idle_connections: of(&shared.connections.idle),
            slow_connections: of(&shared.connections.slow),
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn router(shared: &Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(pages::page))
        .route("/live.js", get(pages::script))
        .route("/live.css", get(pages::style))
        .route("/uplot.js", get(pages::uplot_script))
        .route("/uplot.css", get(pages::uplot_style))
        .route("/runs", get(pages::runs))
        .route("/runs/{run}/{file}", get(pages::file_of_run))
        .route("/live", get(live))
        .route("/metrics", get(metrics))
        .route("/feed", post(feed))
        .route("/commands", get(commands))
        .route("/set", post(set))
        .layer(middleware::from_fn_with_state(Arc::clone(shared), check))
        .with_state(Arc::clone(shared))
}

/// Refuses pages of other sites. They do not get to show anything of here in a frame either.
async fn check(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let mut response = match guard::is_own(request.headers(), shared.address) {
        true => next.run(request).await,
        false => shared.refuse(StatusCode::FORBIDDEN, "this page is for its own site alone"),
    };
    let headers = response.headers_mut();
    // A browser obeys each policy that it is sent, so the sandbox of a run stays.
    headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static("frame-ancestors 'none'"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

impl Shared {
    fn feeds(&self) -> MutexGuard<'_, Feeds> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn refuse(&self, status: StatusCode, why: &str) -> Response {
        self.refused.fetch_add(1, Ordering::Relaxed);
        (status, format!("{why}\n")).into_response()
    }

    fn publish(&self, feed: u64, message: Message) {
        self.messages.fetch_add(1, Ordering::Relaxed);
        let event = Event { feed, at_s: self.began.elapsed().as_secs_f64(), message };
        let Ok(line) = serde_json::to_string(&event) else { return };
        let line: Arc<str> = line.into();
        self.latest().take(&event);
        // One lock for both, so that a viewer that comes now gets each event once.
        let mut history = self.history();
        history.push(&event, &line);
        // Nobody looks: that is no error.
        let _ = self.events.send(line);
    }

    fn tell_watched(&self) {
        let watched = self.viewers.load(Ordering::Relaxed) > 0;
        for slot in self.feeds().by_id.values() {
            slot.commands.send_modify(|command| command.watched = watched);
        }
    }
}

/// A viewer that counts as long as this exists.
struct Viewer(Arc<Shared>);

impl Viewer {
    fn enter(shared: &Arc<Shared>) -> Option<Viewer> {
        let entered = shared.viewers.fetch_add(1, Ordering::Relaxed) < VIEWERS_MAX;
        let viewer = Viewer(Arc::clone(shared));
        shared.tell_watched();
        entered.then_some(viewer)
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.0.viewers.fetch_sub(1, Ordering::Relaxed);
        self.0.tell_watched();
    }
}

async fn live(State(shared): State<Arc<Shared>>) -> Response {
    let Some(viewer) = Viewer::enter(&shared) else {
        return shared.refuse(StatusCode::SERVICE_UNAVAILABLE, "too many look already");
    };
    let (past, events) = {
        let history = shared.history();
        (history.lines(), shared.events.subscribe())
    };
    let past = stream::iter(past).map(|line| Sent::default().data(&*line));
    let coming = stream::unfold((events, viewer), |(mut events, viewer)| async {
        let sent = match events.recv().await {
            Ok(line) => Sent::default().data(&*line),
            Err(broadcast::error::RecvError::Lagged(lost)) => {
                viewer.0.lost_events.fetch_add(lost, Ordering::Relaxed);
                Sent::default().event("lost").data(lost.to_string())
            }
            Err(broadcast::error::RecvError::Closed) => return None,
        };
        Some((sent, (events, viewer)))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    Sse::new(past.chain(coming).map(Ok::<_, Infallible>)).keep_alive(keep_alive).into_response()
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let text = shared.latest().text();
    match text {
        Ok(text) => ([(CONTENT_TYPE, TEXT_FORMAT)], text + &shared.connections.exposition()).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The name that a load has given itself.
#[derive(Deserialize)]
struct Id {
    id: String,
}

impl Id {
    fn is_fine(&self) -> bool {
        (8..=64).contains(&self.id.len()) && self.id.bytes().all(|byte| byte.is_ascii_alphanumeric())
    }
}

/// A slot that is there as long as this exists, or as long as it is fed.
struct Listening {
    shared: Arc<Shared>,
    id: String,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut feeds = self.shared.feeds();
        if feeds.by_id.get(&self.id).is_some_and(|slot| !slot.is_fed) {
            feeds.by_id.remove(&self.id);
        }
    }
}

impl Listening {
    /// Whether a load sends what it shows.
    fn is_fed(&self) -> bool {
        self.shared.feeds().by_id.get(&self.id).is_some_and(|slot| slot.is_fed)
    }
}

/// A load asks for its commands first: so a hub that is not there is noticed at once. One that then sends nothing
/// loses its place after a while.
async fn commands(State(shared): State<Arc<Shared>>, id: Result<Query<Id>, QueryRejection>) -> Response {
    let id = match id {
        Ok(Query(id)) => id,
        Err(wrong) => return shared.refuse(wrong.status(), &wrong.body_text()),
    };
    let watched = shared.viewers.load(Ordering::Relaxed) > 0;
    let (sender, mut receiver) = watch::channel(Command { watched, amount: None });
    receiver.mark_changed();
    {
        let mut feeds = shared.feeds();
        if !id.is_fine() || feeds.by_id.len() >= FEEDS_MAX || feeds.by_id.contains_key(&id.id) {
            drop(feeds);
            return shared
                .refuse(StatusCode::SERVICE_UNAVAILABLE, "there are too many loads, or the id is not possible");
        }
        let number = feeds.next_number;
        feeds.next_number += 1;
        feeds.by_id.insert(id.id.clone(), Slot { number, is_fed: false, load: None, commands: sender });
    }
    let listening = Listening { shared, id: id.id };
    let began = Instant::now();
    let lines = stream::unfold((receiver, listening), move |(mut receiver, listening)| async move {
        let unfed_max = listening.shared.unfed_max;
        if began.elapsed() > unfed_max && !listening.is_fed() {
            return None;
        }
        // An empty line, so that the end of a load that is killed is noticed.
        let line = match tokio::time::timeout(KEEP_ALIVE.min(unfed_max), receiver.changed()).await {
            Ok(Ok(())) => serde_json::to_string(&*receiver.borrow_and_update()).unwrap_or_default(),
            Ok(Err(_)) => return None,
            Err(_) => String::new(),
        };
        Some((Ok::<_, Infallible>(Bytes::from(line + "\n")), (receiver, listening)))
    });
    Body::from_stream(lines).into_response()
}

async fn feed(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(uploads): ConnectInfo<Uploads>,
    id: Result<Query<Id>, QueryRejection>,
    body: Body,
) -> Response {
    let id = match id {
        Ok(Query(id)) => id,
        Err(wrong) => return shared.refuse(wrong.status(), &wrong.body_text()),
    };
    let number = {
        let mut feeds = shared.feeds();
        let slot = feeds.by_id.get_mut(&id.id).filter(|slot| !slot.is_fed);
        slot.map(|slot| {
            slot.is_fed = true;
            slot.number
        })
    };
    let Some(number) = number else {
        return shared.refuse(StatusCode::NOT_FOUND, "no load of this id asks for commands");
    };
    let _upload = uploads.begin();
    let ended = read_feed(&shared, &id.id, number, body).await;
    shared.publish(number, Message::End);
    shared.feeds().by_id.remove(&id.id);
    match ended {
        Ok(()) => StatusCode::OK.into_response(),
        Err(why) => shared.refuse(StatusCode::BAD_REQUEST, why),
    }
}

/// Reads lines until the load ends. Lines that are no messages are counted; the first has to be a hello.
async fn read_feed(shared: &Shared, id: &str, number: u64, body: Body) -> Result<(), &'static str> {
    let mut chunks = body.into_data_stream();
    let mut line: Vec<u8> = Vec::new();
    let mut is_known = false;
    while let Some(chunk) =
        tokio::time::timeout(SILENCE_MAX, chunks.next()).await.map_err(|_| "nothing came for 30 s")?
    {
        for part in chunk.map_err(|_| "the connection broke")?.split_inclusive(|&byte| byte == b'\n') {
            if line.len() + part.len() > LINE_BYTES_MAX {
                return Err("a line is longer than 1 MiB");
            }
            line.extend_from_slice(part);
            if !part.ends_with(b"\n") {
                continue;
            }
            let message = Message::parse(&line);
            let is_empty = line.trim_ascii().is_empty();
            line.clear();
            match message {
                Some(Message::End) => return Ok(()),
                Some(Message::Hello(hello)) => {
                    if let Some(slot) = shared.feeds().by_id.get_mut(id) {
                        slot.load = hello.load;
                    }
                    is_known = true;
                    shared.publish(number, Message::Hello(hello));
                }
                Some(message) if is_known => shared.publish(number, message),
                _ if is_empty => {}
                _ if !is_known => return Err("the first line is no hello of format 1"),
                _ => {
                    shared.bad_lines.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
    Ok(())
}

/// The load that somebody wants.
#[derive(Deserialize)]
struct Wanted {
    feed: u64,
    amount: u32,
}

async fn set(State(shared): State<Arc<Shared>>, wanted: Result<Json<Wanted>, JsonRejection>) -> Response {
    let wanted = match wanted {
        Ok(Json(wanted)) => wanted,
        Err(wrong) => return shared.refuse(wrong.status(), &wrong.body_text()),
    };
    let answer = {
        let feeds = shared.feeds();
        match feeds.by_id.values().find(|slot| slot.number == wanted.feed).map(|slot| (slot, slot.load)) {
            None => Err((StatusCode::NOT_FOUND, "this load has ended")),
            Some((_, None)) => Err((StatusCode::CONFLICT, "the size of this load cannot be set")),
            Some((_, Some(load))) if !(load.least..=load.most).contains(&wanted.amount) => {
                Err((StatusCode::BAD_REQUEST, "this load cannot have that size"))
            }
            Some((slot, Some(_))) => {
                slot.commands.send_modify(|command| command.amount = Some(wanted.amount));
                Ok(StatusCode::ACCEPTED)
            }
        }
    };
    if answer.is_ok() {
        shared
            .publish(wanted.feed, Message::Mark(Mark { text: format!("somebody sets the load to {}", wanted.amount) }));
    }
    answer.map_or_else(|(status, why)| shared.refuse(status, why), IntoResponse::into_response)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    fn patience(patience: Duration) -> ListenerLimits {
        ListenerLimits { patience, ..ListenerLimits::default() }
    }

    #[test]
    fn loads_that_ask_for_commands_and_send_nothing_lose_their_places() {
        let hub = Hub::start_with(&HubOptions::default(), Duration::from_secs(2), ListenerLimits::default()).unwrap();
        let ask = |number: usize| {
            let mut stream = TcpStream::connect(hub.address()).unwrap();
            let head = format!("Host: {}\r\nConnection: close\r\n\r\n", hub.address());
            write!(stream, "GET /commands?id=waiting{number} HTTP/1.1\r\n{head}").unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream
        };
        for mut stream in (0..=FEEDS_MAX).map(ask).collect::<Vec<_>>() {
            stream.read_to_end(&mut Vec::new()).expect("the hub ends it");
        }
        assert_eq!(hub.counters().refused, 1, "there was no place for the last one");
        assert!(hub.shared.feeds().by_id.is_empty());
    }

    #[test]
    fn connections_have_a_bound_and_slow_ones_give_their_places_back() {
        let most = 16;
        let limits = ListenerLimits { connections: most, ..patience(Duration::from_secs(2)) };
        let hub = Hub::start_with(&HubOptions::default(), SILENCE_MAX, limits).unwrap();
        let connect = || {
            let stream = TcpStream::connect(hub.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream
        };
        let page = || {
            let mut stream = connect();
            let _ = write!(stream, "GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", hub.address());
            let mut bytes = Vec::new();
            let _ = stream.read_to_end(&mut bytes);
            bytes.starts_with(b"HTTP/1.1 200 OK")
        };
        let mut idle: Vec<TcpStream> = (0..most).map(|_| connect()).collect();
        let mut slow = idle.split_off(most - 1).remove(0);
        assert!(!page(), "there is no place for one more");
        assert_eq!(hub.counters().refused_connections, 1);
        // One sends its request byte by byte.
        let since = Instant::now();
        while slow.write_all(b"G").is_ok() && since.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(since.elapsed() < Duration::from_secs(8), "it is cut off");
        for mut stream in idle {
            let _ = stream.read_to_end(&mut Vec::new()).expect("the hub ends it");
        }
        assert!(page(), "the places are free again");
        let counters = hub.counters();
        let idle = counters.idle_connections;
        assert_eq!((counters.refused_connections, idle, counters.slow_connections), (1, most as u64 - 1, 1));
    }

    #[test]
    fn a_load_and_a_viewer_stay_for_longer_than_a_request_may_take() {
        let hub = Hub::start_with(&HubOptions::default(), SILENCE_MAX, patience(KEEP_ALIVE + Duration::from_secs(3)))
            .unwrap();
        let mut view = crate::View::open(hub.address()).unwrap();
        let mut feed = crate::Feed::connect(hub.address(), crate::Hello::default()).unwrap();
        let begin = Instant::now();
        while begin.elapsed() < KEEP_ALIVE + Duration::from_secs(5) {
            feed.mark("still here");
            view.next(Duration::from_millis(200)).expect("the hub keeps the viewer");
        }
        let counters = hub.counters();
        assert_eq!((counters.feeds, counters.viewers, counters.slow_connections), (1, 1, 0));
    }

    #[test]
    fn a_peer_that_takes_nothing_of_an_answer_gives_its_place_back() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("run")).unwrap();
        std::fs::write(folder.path().join("run/report.html"), vec![b' '; 32 << 20]).unwrap();
        let options = HubOptions { runs: Some(folder.path().to_owned()), ..HubOptions::default() };
        let hub = Hub::start_with(&options, SILENCE_MAX, patience(Duration::from_secs(2))).unwrap();
        let mut stream = TcpStream::connect(hub.address()).unwrap();
        // While the second request waits, the hub reads nothing more.
        let request = format!("GET /runs/run/report.html HTTP/1.1\r\nHost: {}\r\n\r\n", hub.address());
        stream.write_all(request.repeat(2).as_bytes()).unwrap();
        let since = Instant::now();
        while hub.counters().slow_connections == 0 || hub.shared.reads.available_permits() < READS_MAX {
            assert!(since.elapsed() < Duration::from_secs(10), "it is cut off");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
