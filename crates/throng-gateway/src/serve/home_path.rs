//! An edge's path to its home: made again and again, as long as the process lives.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use throng_gateway_engine::edge::PathSide;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::counters::{ShellCounters, add};
use super::edge_frames::{PathEnd, carry};
use super::edge_path::{PathError, PathOutbox, PathQueue, greet_home};
use super::event::{Event, Events};
use super::options::HomeOptions;
use super::tcp;

/// How long the home may take to accept.
const CONNECT: Duration = Duration::from_secs(3);
/// How long after a failed try, or the end of a path, the next try is made: each time twice as long, up to the second. A path that has
/// lasted for that time makes it short again.
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
    let home = &path.options.address;
    let mut pause = RETRY.0;
    // The same again and again is said once.
    let mut last = String::new();
    let mut was_short = false;
    loop {
        let trouble = match begin(path).await {
            Ok((stream, tick)) => {
                let begun = Instant::now();
                let say_so = || info!(home, "the home is reached");
                if !was_short {
                    say_so();
                }
                // After a path that has ended at once, another one has to last before it is worth a line.
                let lasts = async {
                    sleep(RETRY.1).await;
                    if was_short {
                        say_so();
                    }
                    pending::<PathEnd>().await
                };
                let ended = tokio::select! {
                    ended = exchange(path, stream, tick) => ended,
                    ended = lasts => ended,
                };
                // A home that closes each path at once is not asked ten times a second.
                was_short = begun.elapsed() < RETRY.1;
                if !was_short {
                    pause = RETRY.0;
                    last.clear();
                }
                add(&path.counters.home_lost, 1);
                format!("the home is lost: {ended}")
            }
            Err(error) => format!("the home cannot be reached: {error}"),
        };
        if trouble != last {
            warn!(home, "{trouble}");
            last = trouble;
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

async fn exchange(path: &HomePath, stream: TcpStream, tick: u64) -> PathEnd {
    let outbox = PathOutbox(PathQueue::new(&path.counters.memory));
    if path.events.send(Event::Linked { tick, outbox: outbox.clone() }).is_err() {
        return PathEnd::Ours;
    }
    let heard = |frame, room| Event::HomeSaid { frame, _room: room };
    let ended = carry(stream, &outbox, (&path.events, &path.counters), PathSide::Home, heard).await;
    let _ = path.events.send(Event::Unlinked);
    ended
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Mutex, PoisonError};

    use tokio::net::TcpListener;
    use tokio::runtime::Builder;

    use super::super::edge_path::{greet_edge, welcome_edge};
    use super::super::event::events;
    use super::super::options::EdgeSecret;
    use super::*;

    /// The lines of the log.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_home_that_closes_each_path_at_once_is_asked_more_and_more_seldom_and_that_is_said_once() {
        let log = Log::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let _here = tracing::subscriber::set_default(lines);
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let paths = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
            let address = listener.local_addr().expect("it is bound").to_string();
            let (events, _inlets) = events(1 << 20, Arc::default(), 1);
            let path = HomePath {
                options: HomeOptions { address, secret: EdgeSecret([1; 32]) },
                settings: Arc::default(),
                events,
                counters: Arc::default(),
                closing: watch::channel(false).1,
            };
            let mut paths = 0;
            let home = async {
                loop {
                    let (mut stream, _) = listener.accept().await.expect("the edge tries again");
                    greet_edge(&mut stream, &EdgeSecret([1; 32]), 0).await.expect("it has the key");
                    welcome_edge(&mut stream, 1).await.expect("it listens");
                    paths += 1;
                }
            };
            tokio::select! {
                _ = timeout(Duration::from_millis(1_400), home) => {}
                () = keep_trying(&path) => {}
            }
            assert!(path.counters.home_lost.load(Ordering::Relaxed) >= paths - 1);
            paths
        });
        // At 0, 0.1, 0.3 and 0.7 s.
        assert!((2..=4).contains(&paths), "{paths}");
        let log = log.0.lock().unwrap_or_else(PoisonError::into_inner);
        let log = String::from_utf8_lossy(&log);
        let count = |word: &str| log.lines().filter(|line| line.contains(word)).count();
        assert_eq!([count("is reached"), count("is lost: the path was cut"), log.lines().count()], [1, 1, 2], "{log}");
    }
}
