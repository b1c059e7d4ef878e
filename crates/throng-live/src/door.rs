//! The door of the hub: so many connections are open at once, and none of them waits for its peer for long.

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

/// Connections at once: more than all loads, viewers and reads need. A browser has some more for the parts of a page.
pub(crate) const CONNECTIONS_MAX: usize = 256;

/// Counts of connections that did not get, or keep, their place.
#[derive(Debug, Default)]
pub(crate) struct Turned {
    /// All places were taken.
    pub(crate) away: AtomicU64,
    /// The peer was too slow.
    pub(crate) out: AtomicU64,
}

/// Takes connections as long as there are places, and closes the others at once.
pub(crate) struct Door {
    listener: TcpListener,
    places: Arc<Semaphore>,
    patience: Duration,
    turned: Arc<Turned>,
}

impl Door {
    pub(crate) fn new(listener: TcpListener, patience: Duration, turned: Arc<Turned>) -> Door {
        Door { listener, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)), patience, turned }
    }
}

impl Listener for Door {
    type Io = Visitor;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visitor, SocketAddr) {
        loop {
            let (stream, from) = Listener::accept(&mut self.listener).await;
            let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                self.turned.away.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let pause = || Pause::new(self.patience);
            let turned = Arc::clone(&self.turned);
            let visitor =
                Visitor { stream, sends: Sends::default(), reading: pause(), writing: pause(), turned, _place: place };
            return (visitor, from);
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Whether the peer sends a request that has no end, and its handler looks after the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sends(Arc<AtomicBool>);

impl Sends {
    /// It does, until the result is dropped.
    pub(crate) fn begin(&self) -> Sending {
        self.0.store(true, Ordering::Relaxed);
        Sending(self.clone())
    }
}

impl Connected<IncomingStream<'_, Door>> for Sends {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Sends {
        stream.io().sends.clone()
    }
}

/// The peer sends as long as this exists.
pub(crate) struct Sending(Sends);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// A connection that has a place. A whole request comes, counted from the last bytes of the answer before it, and some bytes of an
/// answer are taken, within the patience of the hub.
pub(crate) struct Visitor {
    stream: TcpStream,
    sends: Sends,
    reading: Pause,
    writing: Pause,
    turned: Arc<Turned>,
    _place: OwnedSemaphorePermit,
}

/// The time that a peer lets the hub wait.
struct Pause {
    patience: Duration,
    since: Instant,
    /// Of writing: the peer has taken nothing since then.
    waits: bool,
    end: Pin<Box<Sleep>>,
}

impl Pause {
    fn new(patience: Duration) -> Pause {
        let since = Instant::now();
        Pause { patience, since, waits: false, end: Box::pin(tokio::time::sleep_until(since + patience)) }
    }

    fn begin_again(&mut self) {
        self.since = Instant::now();
    }

    /// Whether it is too long. Wakes the task when it is.
    fn is_too_long(&mut self, cx: &mut Context<'_>) -> bool {
        let end = self.since + self.patience;
        if self.end.deadline() != end {
            self.end.as_mut().reset(end);
        }
        self.end.as_mut().poll(cx).is_ready()
    }
}

impl Visitor {
    fn turn_out<T>(&self) -> Poll<io::Result<T>> {
        self.turned.out.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Visitor {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let visitor = self.get_mut();
        if visitor.sends.0.load(Ordering::Relaxed) {
            visitor.reading.begin_again();
        }
        // Before the bytes are read: a peer that sends one at a time has no more time than others.
        if visitor.reading.is_too_long(cx) {
            return visitor.turn_out();
        }
        Pin::new(&mut visitor.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Visitor {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let visitor = self.get_mut();
        let written = Pin::new(&mut visitor.stream).poll_write_vectored(cx, parts);
        match written {
            Poll::Ready(_) => {
                visitor.reading.begin_again();
                visitor.writing.waits = false;
            }
            Poll::Pending => {
                if !std::mem::replace(&mut visitor.writing.waits, true) {
                    visitor.writing.begin_again();
                }
                if visitor.writing.is_too_long(cx) {
                    return visitor.turn_out();
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
