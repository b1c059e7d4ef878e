//! A listener for the HTTP pages of a process: metrics, administration, the live page.
//!
//! [`axum::serve`] has no bound on connections, and none on the time that a peer takes for its request. With a
//! [`BoundedListener`] so many connections are open at once, and none of them waits for its peer for long.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::Ordering;
//!
//! use axum::{Router, routing::get};
//! use throng_http::{BoundedListener, ListenerCounters, ListenerLimits};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let counters = Arc::new(ListenerCounters::default());
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let listener = BoundedListener::new(listener, ListenerLimits::default(), Arc::clone(&counters));
//! let serving = tokio::spawn(async { axum::serve(listener, Router::new().route("/", get(|| async { "ok" }))).await });
//! assert_eq!(counters.refused.load(Ordering::Relaxed), 0);
//! serving.abort();
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

/// The bounds of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenerLimits {
    /// Connections at once. Others are closed when they come.
    pub connections: usize,
    /// A request comes whole within this time, counted from the last bytes of the answer before it. A peer takes some bytes of an
    /// answer within it. Otherwise its connection is closed.
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
    pub refused: AtomicU64,
    /// Closed because the peer was too slow, or sent nothing for too long.
    pub slow: AtomicU64,
}

/// Accepts connections within its limits. Given to [`axum::serve`].
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
        let permits = Arc::new(Semaphore::new(limits.connections));
        BoundedListener { listener, permits, patience: limits.patience, counters }
    }
}

impl Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (BoundedStream, SocketAddr) {
        loop {
            let (stream, from) = Listener::accept(&mut self.listener).await;
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let [reading, writing] = [(); 2].map(|()| Timeout::new(self.patience));
            let (uploads, counters) = (Uploads::default(), Arc::clone(&self.counters));
            return (BoundedStream { stream, uploads, reading, writing, counters, _permit: permit }, from);
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Whether a connection has an upload without an end, whose handler looks after the time. A handler gets it as
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
        self.counters.slow.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.uploads.0.load(Ordering::Relaxed) {
            this.reading.begin_again();
        }
        // Before the bytes are read: a peer that sends one at a time has no more time than others.
        if this.reading.is_over(cx) {
            return this.time_out();
        }
        Pin::new(&mut this.stream).poll_read(cx, buffer)
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
                this.reading.begin_again();
                this.writing.waits = false;
            }
            Poll::Pending => {
                if !std::mem::replace(&mut this.writing.waits, true) {
                    this.writing.begin_again();
                }
                if this.writing.is_over(cx) {
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
