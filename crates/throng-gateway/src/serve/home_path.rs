//! An edge's path to its home: made again and again, as long as the process lives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::counters::{ShellCounters, add};
use super::edge_frames::carry;
use super::edge_path::{PathError, PathOutbox, PathQueue, greet_home};
use super::event::{Event, Events};
use super::options::HomeOptions;
use super::tcp;

/// How long the home may take to accept.
const CONNECT: Duration = Duration::from_secs(3);
/// How long after a failed try the next one is made: each time twice as long, up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// For how long the home may be out of reach.
const UNREACHABLE: Duration = Duration::from_secs(10);

pub(crate) struct HomePath {
    pub(crate) options: HomeOptions,
    pub(crate) settings: Arc<AtomicU64>,
    pub(crate) events: Events,
    pub(crate) counters: Arc<ShellCounters>,
    pub(crate) closing: watch::Receiver<bool>,
}

/// Keeps a path to the home until the gateway ends.
pub(crate) async fn keep(path: HomePath) {
    let mut closing = path.closing.clone();
    tokio::select! {
        () = keep_trying(&path) => {}
        // For the home, the clients of an edge that ends are lost: they may go on at another one.
        _ = closing.wait_for(|closing| *closing) => {}
    }
}

async fn keep_trying(path: &HomePath) {
    let mut pause = RETRY.0;
    let mut last = String::new();
    loop {
        match begin(path).await {
            Ok((stream, tick)) => {
                (pause, last) = (RETRY.0, String::new());
                let ended = exchange(path, stream, tick).await;
                add(&path.counters.home_lost, 1);
                let why = ended.err().map_or_else(|| "it has closed the path".to_owned(), |error| error.to_string());
                warn!(home = path.options.address, "the home is lost: {why}");
            }
            Err(error) => {
                // The same again and again is said once.
                let text = error.to_string();
                if text != last {
                    warn!(home = path.options.address, "the home cannot be reached: {text}");
                    last = text;
                }
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(RETRY.1);
    }
}

async fn begin(path: &HomePath) -> Result<(TcpStream, u64), PathError> {
    let connect = timeout(CONNECT, TcpStream::connect(&path.options.address));
    let mut stream = connect.await.map_err(|_| PathError::Silent)??;
    let _ = stream.set_nodelay(true);
    let _ = tcp::notice_silence(&stream, UNREACHABLE);
    let tick = greet_home(&mut stream, &path.options.secret, path.settings.load(Ordering::Relaxed)).await?;
    Ok((stream, tick))
}

async fn exchange(path: &HomePath, stream: TcpStream, tick: u64) -> Result<(), PathError> {
    let outbox = PathOutbox(PathQueue::new(&path.counters.memory));
    if path.events.send(Event::Linked { tick, outbox: outbox.clone() }).is_err() {
        return Ok(());
    }
    info!(home = path.options.address, "the home is reached");
    let heard = |frame, room| Event::HomeSaid { frame, _room: room };
    let (ended, fault) = carry(stream, &outbox, (&path.events, &path.counters), heard).await;
    if let Some(fault) = fault {
        warn!(tag = fault.tag(), "the path to the home was closed: {fault}");
    }
    let _ = path.events.send(Event::Unlinked);
    ended
}
