//! A listener for the HTTP pages of a process: metrics, administration, the live page.
//!
//! [`axum::serve()`] has no bound on connections, and none on the time that a peer takes for its request. A [`BoundedListener`] bounds both.
//!
//! ```
//! use std::sync::Arc;
//!
//! use axum::{Router, routing::get};
//! use throng_http::{BoundedListener, ListenerCounters, ListenerLimits};
//! use tokio::io::AsyncReadExt;
//! use tokio::net::TcpStream;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let counters = Arc::new(ListenerCounters::default());
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let address = listener.local_addr()?;
//! let limits = ListenerLimits { connections: 1, ..ListenerLimits::default() };
//! let listener = BoundedListener::new(listener, limits, Arc::clone(&counters));
//! tokio::spawn(async { axum::serve(listener, Router::new().route("/", get(|| async { "ok" }))).await });
//!
//! let _first = TcpStream::connect(address).await?;
//! let mut second = TcpStream::connect(address).await?;
//! assert_eq!(second.read(&mut [0; 1]).await?, 0, "it is closed");
//! assert_eq!(counters.named(), [("full", 1), ("idle", 0), ("slow", 0)]);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// As good as for ever, and no moment overflows.
const PATIENCE_MAX: Duration = Duration::from_secs(1 << 31);

/// The bounds of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Connections at once. Further ones are closed at once.
    pub connections: usize,
    /// A request begins within this time after the answer before it. It comes whole, and the handler begins to answer, within the same
    /// time after its first bytes. A peer takes some bytes of an answer within it. Otherwise the connection is closed.
    pub patience: Duration,
}

impl Default for ListenerLimits {
    /// 256 connections, 30 seconds.
    fn default() -> ListenerLimits {
        ListenerLimits { connections: 256, patience: Duration::from_secs(30) }
    }
}

/// How many connections a listener did not take, or did not keep.
#[derive(Debug, Default)]
pub struct ListenerCounters {
    /// Closed when they came, because there were as many as allowed.
    pub full: AtomicU64,
    /// Closed because no request began for too long. Clients that keep connections for later have such ones.
    pub idle: AtomicU64,
    /// Closed because a request did not come whole in time, was not answered in time, or its answer was not taken.
    pub slow: AtomicU64,
}

impl ListenerCounters {
    /// All of them with stable names, for metrics.
    pub fn named(&self) -> [(&'static str, u64); 3] {
        let ListenerCounters { full, idle, slow } = self;
        [("full", full), ("idle", idle), ("slow", slow)].map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }

    /// The metric `throng_page_connections_closed_total` in Prometheus' text format, for a page without a registry.
    pub fn exposition(&self) -> String {
        const NAME: &str = "throng_page_connections_closed_total";
        let mut text = format!("# HELP {NAME} Connections to this page that were closed.\n# TYPE {NAME} counter\n");
        for (reason, count) in self.named() {
            text.push_str(&format!("{NAME}{{reason=\"{reason}\"}} {count}\n"));
        }
        text
    }
}

/// Accepts connections within its limits. Given to [`axum::serve()`].
#[derive(Debug)]
pub struct BoundedListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    patience: Duration,
    counters: Arc<ListenerCounters>,
}

impl BoundedListener {
    /// A listener that counts in `counters`.
    pub fn new(listener: TcpListener, limits: ListenerLimits, counters: Arc<ListenerCounters>) -> BoundedListener {
        let permits = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
        BoundedListener { listener, permits, patience: limits.patience.min(PATIENCE_MAX), counters }
    }
}

impl Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (BoundedStream, SocketAddr) {
        loop {
            let (stream, from) = Listener::accept(&mut self.listener).await;
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
                self.counters.full.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let [reading, writing] = [(); 2].map(|()| Timeout::new(self.patience));
            let (uploads, counters) = (Uploads::default(), Arc::clone(&self.counters));
            return (
                BoundedStream { stream, uploads, is_idle: true, reading, writing, counters, _permit: permit },
                from,
            );
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Tells the listener that a handler itself bounds the time of an upload. A handler gets it as
/// [`ConnectInfo`](axum::extract::ConnectInfo).
#[derive(Clone, Debug, Default)]
pub struct Uploads(Arc<AtomicBool>);

impl Uploads {
    /// The listener does not look at the time of the request until the result is dropped.
    pub fn begin(&self) -> Upload {
        self.0.store(true, Ordering::Relaxed);
        Upload(self.clone())
    }
}

impl Connected<IncomingStream<'_, BoundedListener>> for Uploads {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Uploads {
        stream.io().uploads.clone()
    }
}

/// The peer uploads as long as this exists.
#[derive(Debug)]
pub struct Upload(Uploads);

impl Drop for Upload {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// A connection of a [`BoundedListener`].
#[derive(Debug)]
pub struct BoundedStream {
    stream: TcpStream,
    uploads: Uploads,
    /// No request has begun since the last bytes of an answer.
    is_idle: bool,
    reading: Timeout,
    writing: Timeout,
    counters: Arc<ListenerCounters>,
    _permit: OwnedSemaphorePermit,
}

/// The time that a peer lets the process wait.
#[derive(Debug)]
struct Timeout {
    patience: Duration,
    since: Instant,
    /// Of writing: the peer has taken nothing since then.
    waits: bool,
    end: Pin<Box<Sleep>>,
}

impl Timeout {
    fn new(patience: Duration) -> Timeout {
        let since = Instant::now();
        Timeout { patience, since, waits: false, end: Box::pin(tokio::time::sleep_until(since + patience)) }
    }

    fn begin_again(&mut self) {
        self.since = Instant::now();
    }

    /// Whether it is over. Wakes the task when it is.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let end = self.since + self.patience;
        if self.end.deadline() != end {
            self.end.as_mut().reset(end);
        }
        self.end.as_mut().poll(cx).is_ready()
    }
}

impl BoundedStream {
    fn time_out<T>(&self) -> Poll<io::Result<T>> {
        let counter = if self.is_idle { &self.counters.idle } else { &self.counters.slow };
        counter.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.uploads.0.load(Ordering::Relaxed) {
            this.reading.begin_again();
        }
        // Of a request, before its bytes are read: a peer that sends one at a time has no more time than others.
        if !this.is_idle && this.reading.is_over(cx) {
            return this.time_out();
        }
        let length = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if this.is_idle && buffer.filled().len() > length {
            this.is_idle = false;
            this.reading.begin_again();
        }
        // The time of a request that has just begun wakes the task, too.
        if read.is_pending() && this.reading.is_over(cx) {
            return this.time_out();
        }
        read
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, parts);
        match written {
            Poll::Ready(_) => {
                this.is_idle = true;
                this.reading.begin_again();
                this.writing.waits = false;
            }
            Poll::Pending => {
                if !std::mem::replace(&mut this.writing.waits, true) {
                    this.writing.begin_again();
                }
                if this.writing.is_over(cx) {
                    this.is_idle = false;
                    return this.time_out();
                }
            }
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
