//! The doors that accept TCP connections: plain, with TLS, with WebSocket, with both.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use super::counters::Reason;
use super::door::{Door, Pass};
use super::options::WebSocketOptions;
use super::tls::Tls;
use super::{stream, websocket};
use crate::engine::port::Side;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1_024;
/// What the kernel keeps for a peer who does not read. What is in there is stale by the time it is read, so it is kept
/// small for clients: what a slow one lacks is merged before it gets there.
const CLIENT_SEND_BYTES: u32 = 256 << 10;
const SERVER_SEND_BYTES: u32 = 1 << 20;
/// After a failed accept, most often for want of file descriptors, it is tried again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Binds a listener.
pub(crate) fn listen(address: SocketAddr, side: Side) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_keepalive(true)?;
    socket.set_send_buffer_size(match side {
        Side::Server => SERVER_SEND_BYTES,
        Side::Client => CLIENT_SEND_BYTES,
    })?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// What is spoken once a connection is there.
pub(crate) struct Above {
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) websocket: Option<Arc<WebSocketOptions>>,
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
                if let Some(pass) = door.enter(address) {
                    tokio::spawn(serve(pass, stream, Arc::clone(&above)));
                }
            }
            Err(_) => {
                door.counters().refuse(Reason::Accept);
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve(pass: Pass, stream: TcpStream, above: Arc<Above>) {
    let _ = stream.set_nodelay(true);
    let Some(tls) = &above.tls else {
        let Some(options) = &above.websocket else {
            let (reader, writer) = stream.into_split();
            return stream::serve(pass, reader, writer).await;
        };
        return websocket::serve(pass, stream, options).await;
    };
    let stream = match timeout(pass.door.limits().handshake, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(_)) => return pass.refuse(Reason::Handshake),
        Err(_) => return pass.refuse(Reason::HandshakeLate),
    };
    match &above.websocket {
        Some(options) => websocket::serve(pass, stream, options).await,
        None => {
            let (reader, writer) = tokio::io::split(stream);
            stream::serve(pass, reader, writer).await;
        }
    }
}
