//! Connections that speak WebSocket: binary messages, one packet each, with the same header as everywhere.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use throng_channeld::{PacketWriter, Packets, frame};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{StatusCode, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async_with_config};

use super::counted::Counted;
use super::counters::Reason;
use super::end::End;
use super::inflow::Inflow;
use super::intake::Intake;
use super::life::{Opened, Pass};
use super::options::WebSocketOptions;
use super::stream::Out;

/// A message longer than a frame with the longest payload is refused by its header.
const MESSAGE_BYTES: usize = frame::HEADER_BYTES + frame::MAX_PAYLOAD_BYTES;
const READ_BYTES: usize = 4 << 10;
/// Most bytes before the payload of a message that a server sends.
const MESSAGE_HEAD_BYTES: usize = 10;
/// Answers to pings wait for a peer that does not read, up to so many bytes beside a message. Beyond, it has none for the next one.
const PONG_BYTES: usize = 4 << 10;
/// Bytes before the payload of a client's short frame: two, and its mask.
const FRAME_HEAD_BYTES: usize = 6;

/// A peer that has said that it leaves has so long to take the answer.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// The life of a connection.
pub(crate) async fn serve<S>(pass: Pass, stream: S, options: &WebSocketOptions)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let inflow = Inflow::new(pass.door.side, pass.door.memory());
    let stream = Counted { stream, count: Arc::clone(&inflow) };
    let Some(websocket) = shake_hands(&pass, stream, options).await else { return };
    inflow.take_message();
    let Some(opened) = pass.open().await else { return };
    let door = Arc::clone(&opened.pass.door);
    let (sink, mut source) = websocket.split();
    let ended = {
        let mut intake = opened.intake();
        let (queue, manner) = (Arc::clone(&opened.queue), Arc::clone(&opened.manner));
        let out = Out { queue, manner, counters: door.counters() };
        let read = pin!(read(&mut source, &mut intake, &inflow));
        let write = pin!(write(sink, out));
        Opened::run(opened, read, write).await
    };
    ended.linger(discard(&mut source, ended.patience())).await;
}

/// Reads to the end, or until nothing comes for so long, and throws away what comes.
async fn discard<S>(source: &mut SplitStream<WebSocketStream<S>>, silence: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while matches!(timeout(silence, source.next()).await, Ok(Some(Ok(_)))) {}
}

async fn shake_hands<S>(pass: &Pass, stream: S, options: &WebSocketOptions) -> Option<WebSocketStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(MESSAGE_HEAD_BYTES + MESSAGE_BYTES + PONG_BYTES)
        .max_message_size(Some(MESSAGE_BYTES))
        .max_frame_size(Some(MESSAGE_BYTES));
    let mut reason = Reason::Handshake;
    #[expect(clippy::result_large_err, reason = "the library says what a refusal looks like")]
    let check = |request: &Request, response: Response| {
        if !is_path(options, request.uri().path()) {
            return Err(refusal(StatusCode::NOT_FOUND));
        }
        if !is_origin(options, request.headers().get(header::ORIGIN).map(|origin| origin.as_bytes())) {
            reason = Reason::Origin;
            return Err(refusal(StatusCode::FORBIDDEN));
        }
        Ok(response)
    };
    // Its room is given back, too.
    let handshake = Box::pin(accept_hdr_async_with_config(stream, check, Some(config)));
    match pass.shake(handshake, Reason::HandshakeLate).await? {
        Ok(websocket) => return Some(websocket),
        Err(error) if is_harmless(&error) && reason == Reason::Handshake => pass.refuse(Reason::Probe),
        Err(_) => pass.refuse(reason),
    }
    None
}

/// Whether a handshake has failed in a way that says nothing bad about the peer: it left, or it asked for a page, as
/// health checks do.
fn is_harmless(error: &tungstenite::Error) -> bool {
    use tungstenite::error::ProtocolError as Protocol;
    match error {
        tungstenite::Error::Io(_) | tungstenite::Error::ConnectionClosed => true,
        tungstenite::Error::Protocol(cause) => matches!(
            cause,
            Protocol::HandshakeIncomplete
                | Protocol::MissingConnectionUpgradeHeader
                | Protocol::MissingUpgradeWebSocketHeader
                | Protocol::MissingSecWebSocketVersionHeader
                | Protocol::MissingSecWebSocketKey
        ),
        _ => false,
    }
}

fn refusal(status: StatusCode) -> ErrorResponse {
    let mut response = ErrorResponse::new(None);
    *response.status_mut() = status;
    response
}

fn is_path(options: &WebSocketOptions, path: &str) -> bool {
    options.path.is_empty() || path.trim_end_matches('/') == options.path.trim_end_matches('/')
}

/// A request without the header comes from no browser; what a browser's user may be lured to does not concern it.
fn is_origin(options: &WebSocketOptions, origin: Option<&[u8]>) -> bool {
    match origin {
        Some(origin) if !options.origins.is_empty() => {
            options.origins.iter().any(|allowed| allowed.as_bytes().eq_ignore_ascii_case(origin))
        }
        _ => true,
    }
}

async fn read<S>(source: &mut SplitStream<WebSocketStream<S>>, intake: &mut Intake, inflow: &Inflow) -> End
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = source.next().await {
        let taken = match message {
            Ok(Message::Binary(payload)) => {
                inflow.take_message();
                match intake.push(&payload) {
                    Ok(()) => intake.take(payload.len() + FRAME_HEAD_BYTES).await,
                    refused => refused,
                }
            }
            Ok(Message::Ping(payload) | Message::Pong(payload)) => {
                let bytes = payload.len() + FRAME_HEAD_BYTES;
                inflow.take_control(bytes);
                intake.take_control(bytes).await
            }
            // Text is nothing that any client of this protocol sends.
            Ok(Message::Text(_) | Message::Frame(_)) => return End::Refused(Reason::BadFrame),
            Ok(Message::Close(_)) => {
                // The library has made the answer, which leaves with the next call; so a browser knows that nothing was lost.
                let _ = timeout(CLOSE_PATIENCE, source.next()).await;
                return End::PeerClosed;
            }
            Err(error) => return end_of(&error),
        };
        if let Err(end) = taken {
            return end;
        }
    }
    End::PeerClosed
}

async fn write<S>(mut sink: SplitSink<WebSocketStream<S>, Message>, out: Out<'_>) -> End
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut packets_out = PacketWriter::new();
    // The library copies a message into a buffer of its own, which only grows.
    let mut copy_bytes = 0;
    while let Some(entries) = out.queue.next().await {
        packets_out.follow(out.manner.compression());
        let mut packets = Packets::new(&entries, frame::MAX_PAYLOAD_BYTES);
        let mut left = entries.len();
        loop {
            let mut frame = Vec::with_capacity(frame::HEADER_BYTES + left.min(frame::MAX_PAYLOAD_BYTES));
            if !packets_out.write_next(out.manner.dialect(), &mut packets, &mut frame) {
                break;
            }
            let bytes = frame.len();
            if bytes + MESSAGE_HEAD_BYTES > copy_bytes {
                copy_bytes = (2 * copy_bytes).max(bytes + MESSAGE_HEAD_BYTES);
            }
            out.queue.hold(copy_bytes + packets_out.held_bytes());
            if let Err(error) = out.queue.writing(sink.send(Message::Binary(Bytes::from(frame)))).await {
                return end_of(&error);
            }
            out.count(bytes, left - packets.rest().len());
            left = packets.rest().len();
        }
        out.count_dropped(packets.dropped(), left);
    }
    let _ = sink.send(Message::Close(None)).await;
    End::Done
}

fn end_of(error: &tungstenite::Error) -> End {
    match error {
        tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => End::PeerClosed,
        // It is full of answers to pings.
        tungstenite::Error::WriteBufferFull(_) => End::Refused(Reason::TooSlow),
        tungstenite::Error::Capacity(_) => End::Refused(Reason::FrameTooLong),
        tungstenite::Error::Io(error) if error.kind() == io::ErrorKind::OutOfMemory => End::Refused(Reason::NoMemory),
        tungstenite::Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)
        | tungstenite::Error::Io(_) => End::Lost,
        _ => End::Refused(Reason::BadFrame),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(origins: &[&str]) -> WebSocketOptions {
        WebSocketOptions { path: "/play".into(), origins: origins.iter().map(|&origin| origin.to_owned()).collect() }
    }

    #[test]
    fn the_list_is_compared_with_what_the_browser_says() {
        let options = options(&["https://game.example"]);
        assert!(is_origin(&options, Some(b"https://game.example")));
        assert!(is_origin(&options, Some(b"HTTPS://GAME.EXAMPLE")));
        assert!(is_origin(&options, None));
        assert!(!is_origin(&options, Some(b"https://evil.example")));
        assert!(!is_origin(&options, Some(b"https://game.example.evil.example")));
        assert!(!is_origin(&options, Some(b"null")));
    }

    #[test]
    fn without_a_list_all_pages_may_connect() {
        assert!(is_origin(&options(&[]), Some(b"https://anything.example")));
    }

    #[test]
    fn the_path_has_to_be_asked_for() {
        assert!(is_path(&options(&[]), "/play") && is_path(&options(&[]), "/play/"));
        assert!(!is_path(&options(&[]), "/") && !is_path(&options(&[]), "/play/more"));
        assert!(is_path(&WebSocketOptions::default(), "/anything"));
    }
}
