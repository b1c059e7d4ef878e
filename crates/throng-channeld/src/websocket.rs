//! The client's half of WebSocket (RFC 6455), as much of it as a blocking client of a gateway needs.
//!
//! ```text
//! byte   0            1             then                      then            then
//!        fin, opcode  mask, length  length of 2 or 8 bytes    mask, 4 bytes   payload
//!                                   if length is 126 or 127   if masked
//! ```
//! Frames of ours carry a constant mask: the mask protects careless caches between browsers and servers, and a client
//! that is no browser runs no stranger's script.

use std::io::{self, Read, Write};

use crate::frame::{HEADER_BYTES, MAX_PAYLOAD_BYTES};

const MASK: [u8; 4] = [0x5A, 0xC3, 0x96, 0x3C];
const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
const CONTINUATION: u8 = 0;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The longest answer to the handshake.
const RESPONSE_BYTES: usize = 8 << 10;
/// The longest frame that is taken: one packet with its header.
const FRAME_BYTES: usize = HEADER_BYTES + MAX_PAYLOAD_BYTES;

/// Asks a server to change over to WebSocket, and reads its answer.
pub(crate) fn handshake(stream: &mut (impl Read + Write), host: &str, path: &str, origin: &str) -> io::Result<()> {
    let origin = if origin.is_empty() { String::new() } else { format!("Origin: {origin}\r\n") };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{origin}\
         Sec-WebSocket-Key: dGhyb25nIHRocm9uZyB0aA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    let mut byte = [0];
    while !response.ends_with(b"\r\n\r\n") {
        if response.len() == RESPONSE_BYTES || stream.read(&mut byte)? == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no answer to the WebSocket handshake"));
        }
        response.push(byte[0]);
    }
    if response.starts_with(b"HTTP/1.1 101") {
        return Ok(());
    }
    let status = String::from_utf8_lossy(response.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
    Err(io::Error::new(io::ErrorKind::ConnectionRefused, status))
}

/// Appends a binary frame.
pub(crate) fn put_binary(out: &mut Vec<u8>, payload: &[u8]) {
    put(out, BINARY, payload);
}

fn put(out: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    out.push(FIN | opcode);
    match payload.len() {
        length @ 0..126 => out.push(MASKED | length as u8),
        length @ 126..0x1_0000 => {
            out.push(MASKED | 126);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(MASKED | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&MASK);
    out.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

/// The state of the next frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Bytes of the stream within.
    Data(Vec<u8>),
    /// An answer that has to be sent.
    Reply(Vec<u8>),
    /// The server closes the connection.
    Closed,
}

/// Takes frames out of what a server sent.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    buffer: Vec<u8>,
}

impl Incoming {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame, if all of it has come.
    pub(crate) fn next_event(&mut self) -> io::Result<Option<Event>> {
        let &[first, second, ref rest @ ..] = &self.buffer[..] else { return Ok(None) };
        let (length, skipped) = match (second & 0x7F, rest) {
            (126, &[a, b, ..]) => (u64::from(u16::from_be_bytes([a, b])), 2),
            (127, &[a, b, c, d, e, f, g, h, ..]) => (u64::from_be_bytes([a, b, c, d, e, f, g, h]), 8),
            (126 | 127, _) => return Ok(None),
            (length, _) => (u64::from(length), 0),
        };
        if second & MASKED != 0 || length > FRAME_BYTES as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a WebSocket frame of a gateway"));
        }
        let begin = 2 + skipped;
        let end = begin + length as usize;
        let Some(payload) = self.buffer.get(begin..end) else { return Ok(None) };
        let event = match first & 0xF {
            BINARY | CONTINUATION => Event::Data(payload.to_vec()),
            PING => {
                let mut pong = Vec::new();
                put(&mut pong, PONG, payload);
                Event::Reply(pong)
            }
            CLOSE => Event::Closed,
            _ => Event::Data(Vec::new()),
        };
        self.buffer.drain(..end);
        Ok(Some(event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_in_three_forms() {
        for (length, head) in [(5, &[0x82, 0x85][..]), (300, &[0x82, 0xFE, 1, 44]), (65_536, &[0x82, 0xFF, 0, 0])] {
            let mut out = Vec::new();
            put_binary(&mut out, &vec![0; length]);
            assert!(out.starts_with(head), "{length}");
            assert!(out.ends_with(&[0x5A]) == (length % 4 == 1));
        }
    }

    #[test]
    fn frames_come_in_pieces() {
        let mut incoming = Incoming::default();
        let bytes = [0x82, 3, 1, 2, 3, 0x89, 1, 7, 0x88, 0];
        let mut events = Vec::new();
        for byte in bytes {
            incoming.push(&[byte]);
            events.extend(incoming.next_event().expect("sound"));
        }
        let pong = vec![0x8A, 0x81, 0x5A, 0xC3, 0x96, 0x3C, 7 ^ 0x5A];
        assert_eq!(events, [Event::Data(vec![1, 2, 3]), Event::Reply(pong), Event::Closed]);
    }

    #[test]
    fn frames_too_long_for_a_packet_are_refused() {
        let mut incoming = Incoming::default();
        incoming.push(&[0x82, 127, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert!(incoming.next_event().is_err());
    }
}
