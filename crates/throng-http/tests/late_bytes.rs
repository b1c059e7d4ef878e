//! Bytes of a request that come when its time is over.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::serve::Listener;
use throng_http::{BoundedListener, ListenerCounters, ListenerLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn bytes_that_wait_do_not_save_a_request_whose_time_is_over() -> io::Result<()> {
    let counters = Arc::new(ListenerCounters::default());
    let limits = ListenerLimits { patience: Duration::from_millis(200), ..ListenerLimits::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut peer = TcpStream::connect(listener.local_addr()?).await?;
    // Both bytes are there before anything is read: no read has to wait for one.
    peer.write_all(b"GE").await?;
    let (mut stream, _) = BoundedListener::new(listener, limits, Arc::clone(&counters)).accept().await;
    assert_eq!(stream.read_u8().await?, b'G');
    tokio::time::sleep(limits.patience * 2).await;
    let late = stream.read_u8().await.expect_err("the time is over");
    assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    assert_eq!((counters.slow.load(Ordering::Relaxed), counters.idle.load(Ordering::Relaxed)), (1, 0));
    Ok(())
}
