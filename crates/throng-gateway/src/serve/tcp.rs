//! The doors that accept TCP connections: plain, with TLS, with WebSocket, with both.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;

use super::counters::Reason;
use super::door::Door;
use super::life::Pass;
use super::options::WebSocketOptions;
use super::proxy::{self, Said};
use super::ration::Party;
use super::tls::{self, Tls};
use super::{stream, websocket};
use throng_gateway_engine::port::Side;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1_024;
/// The kernel's memory for a peer that does not read. Data in there is old by the time it is read, so it is kept small
/// for clients: changes that a slow client misses are merged before.
const CLIENT_SEND_BYTES: u32 = 256 << 10;
const SERVER_SEND_BYTES: u32 = 1 << 20;
/// Interval of keep-alive probes to a silent peer before it is given up.
const PROBES: u32 = 4;
/// The kernel counts these times in seconds.
const PROBE_MIN: Duration = Duration::from_secs(1);
/// After a failed accept, most often for want of file descriptors, it is tried again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// However many have come, a door is not deaf for longer: limits may have changed.
const ARRIVAL_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Binds a listener.
pub(crate) fn listen(address: SocketAddr, side: Side) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(match side {
        Side::Server => SERVER_SEND_BYTES,
        Side::Client => CLIENT_SEND_BYTES,
    })?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Lets the kernel find out whether the peer is still there: by asking when it is silent, and by giving up when it does
/// not acknowledge what it was sent. Both end after `unreachable`; zero leaves both to the system.
///
/// Linux counts the time in which a peer's window is closed as silence too (tcp(7), `TCP_USER_TIMEOUT`).
pub(crate) fn notice_silence(stream: &TcpStream, unreachable: Duration) -> io::Result<()> {
    let socket = SockRef::from(stream);
    if unreachable.is_zero() {
        return socket.set_keepalive(true);
    }
    let part = (unreachable / (PROBES + 2)).max(PROBE_MIN);
    let asking = TcpKeepalive::new().with_time(2 * part).with_interval(part).with_retries(PROBES);
    socket.set_tcp_keepalive(&asking)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(unreachable))?;
    Ok(())
}

/// The protocol on an open connection.
pub(crate) struct Above {
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) websocket: Option<Arc<WebSocketOptions>>,
    /// See [`DoorOptions::proxies`](super::options::DoorOptions::proxies).
    pub(crate) proxies: Vec<IpNet>,
}

/// Accepts connections until the gateway closes its doors.
pub(crate) async fn accept(door: Arc<Door>, listener: TcpListener, above: Above) {
    let above = Arc::new(above);
    let mut closing = door.closing();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = closing.wait_for(|closing| *closing) => return,
        };
        match accepted {
            Ok((stream, address)) => {
                let Some(pass) = let_in(&door, address, &above.proxies) else { continue };
                tokio::spawn(serve(pass, stream, Arc::clone(&above)));
                // The others wait in the kernel's queue. A connection that was refused at once has cost next to
                // nothing.
                let pause = door.arrival_pause();
                if !pause.is_zero() {
                    sleep(pause.min(ARRIVAL_PAUSE_MAX)).await;
                }
            }
            Err(cause) => {
                door.fail_to_accept(&cause);
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The address of a client behind a proxy is not known yet.
fn let_in(door: &Arc<Door>, address: SocketAddr, proxies: &[IpNet]) -> Option<Pass> {
    if proxies.is_empty() {
        return door.enter(address).ok();
    }
    let ip = address.ip().to_canonical();
    if proxies.iter().any(|network| network.contains(&ip)) {
        return door.enter_unnamed(address).ok();
    }
    door.refuse(&Party::of(door.side, address), Reason::UntrustedProxy);
    None
}

async fn serve(mut pass: Pass, mut stream: TcpStream, above: Arc<Above>) {
    let _ = stream.set_nodelay(true);
    // Without it the connection works too, but a vanished peer is noticed later.
    let _ = notice_silence(&stream, pass.door.limits().unreachable);
    // The others have boxes of their own, so that the task of a plain connection has no room for them.
    if !above.proxies.is_empty() && !Box::pin(ask_for_whom(&mut pass, &mut stream)).await {
        return;
    }
    match (&above.tls, &above.websocket) {
        (None, None) => stream::serve_socket(pass, stream).await,
        (None, Some(options)) => Box::pin(websocket::serve(pass, stream, options)).await,
        (Some(tls), websocket) => Box::pin(serve_tls(pass, stream, tls, websocket.as_deref())).await,
    }
}

/// Hears from a proxy for whom it speaks. False if the connection is over.
async fn ask_for_whom(pass: &mut Pass, stream: &mut TcpStream) -> bool {
    let Some(read) = pass.shake(proxy::read(stream), Reason::BadProxyHeader).await else { return false };
    let said = match read {
        Ok(Ok(said)) => said,
        Ok(Err(_)) | Err(_) => {
            pass.refuse(Reason::BadProxyHeader);
            return false;
        }
    };
    match said {
        Said::Client(Some(client)) => pass.claim(client).is_ok(),
        // A connection that a proxy opens for itself counts for no address, and cannot be banned.
        Said::Client(None) => {
            pass.accept();
            true
        }
        Said::Nothing => {
            pass.refuse(Reason::Probe);
            false
        }
    }
}

async fn serve_tls(pass: Pass, stream: TcpStream, tls: &Tls, websocket: Option<&WebSocketOptions>) {
    let Some(first) = pass.shake(stream.peek(&mut [0]), Reason::HandshakeLate).await else { return };
    if !first.is_ok_and(|bytes| bytes > 0) {
        // It left before its first byte, or was reset, and did no harm.
        return pass.refuse(Reason::Probe);
    }
    let Some(pause) = pass.door.handshake_pause() else { return pass.refuse(Reason::Busy) };
    // The room for the handshake is not the task's: it is given back.
    let accepted = Box::pin(async {
        sleep(pause).await;
        tls.accept(stream, pass.door.memory()).await
    });
    let Some(accepted) = pass.shake(accepted, Reason::HandshakeLate).await else { return };
    let stream = match accepted {
        Ok(stream) => stream,
        Err(error) if tls::is_harmless(&error) => return pass.refuse(Reason::Probe),
        Err(_) => return pass.refuse(Reason::Handshake),
    };
    match websocket {
        Some(options) => websocket::serve(pass, stream, options).await,
        None => {
            let (reader, writer) = tokio::io::split(stream);
            stream::serve_to_the_end(pass, reader, writer).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of what `serve` returns, without calling it.
    fn task_bytes<F: Future>(_serve: fn(Pass, TcpStream, Arc<Above>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_task_of_a_plain_connection_is_small() {
        let bytes = task_bytes(serve);
        assert!(bytes <= 4 << 10, "{bytes} bytes");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_peer_that_vanished_is_noticed_within_the_limit_and_not_within_hours() {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)), Side::Server).expect("a free port");
        let _peer = TcpStream::connect(listener.local_addr().expect("it is bound")).await.expect("it listens");
        let (stream, _) = listener.accept().await.expect("somebody came");
        notice_silence(&stream, Duration::from_secs(30)).expect("the kernel takes it");
        let socket = SockRef::from(&stream);
        let retries = socket.tcp_keepalive_retries().expect("it is set");
        let asked = socket.tcp_keepalive_time().expect("set") + socket.tcp_keepalive_interval().expect("set") * retries;
        assert!(socket.keepalive().expect("set"));
        assert_eq!(asked, Duration::from_secs(30));
        assert_eq!(socket.tcp_user_timeout().expect("set"), Some(Duration::from_secs(30)));
    }
}
