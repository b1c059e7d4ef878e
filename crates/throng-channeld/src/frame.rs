//! Frames: how packets follow each other on a connection.
//!
//! ```text
//! byte   0    1    2         3        4             5..
//!        43   48   len high  len low  compression   payload of len bytes          Fixed
//!        43   48   4E        len      compression   payload of len < 256 bytes    Legacy, short
//!        43   48   len high  len low  compression   payload of len >= 256 bytes   Legacy, long
//! ```
//! The length is that of the payload as sent, 1 to 65,535. The two dialects differ in nothing but short frames, and in
//! what lengths 19,968 to 20,223 (4E00 to 4EFF) mean. Gateways before v0.6, the Go client, the JavaScript client and
//! the Unity plugin speak Legacy; everything later speaks Fixed. The first short frame of a connection shows its
//! dialect, because nothing announces it:
//!
//! - third byte 00: Fixed, since Legacy writes 4E there;
//! - third byte 4E, and the `len` bytes after the header are a whole packet: Legacy. Read as Fixed it would be a frame
//!   of 20 KB cut exactly between two messages, which no first packet is;
//! - third byte 4E otherwise: Fixed;
//! - anything else is the same in both, and leaves the question open.
//!
//! Until then answers are written so that both read them: Fixed headers, without the lengths that Legacy misreads.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};

use crate::compression::{Compression, decompress};
use crate::packet::Messages;

/// The bytes before a payload.
pub const HEADER_BYTES: usize = 5;
/// The longest payload, as sent.
pub const MAX_PAYLOAD_BYTES: usize = 0xFFFF;
/// The lengths that a Legacy peer takes for short frames.
pub const LEGACY_HOLE: Range<usize> = 0x4E00..0x4F00;

const MAGIC: [u8; 2] = *b"CH";
const SHORT: u8 = b'N';
/// Room for reading that is kept when nothing is known about the next frame.
const READ_BYTES: usize = 4 << 10;
/// Below this much room, more is made before reading.
const READ_BYTES_MIN: usize = 1 << 10;
/// Bytes that may wait to be taken out as frames: one whole frame, and the rest of one read.
const BUFFER_BYTES: usize = 2 * (HEADER_BYTES + MAX_PAYLOAD_BYTES);

/// How the headers of a connection are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Not known yet. Written as `Fixed`, without the lengths that `Legacy` misreads.
    #[default]
    Undecided,
    /// Two bytes of length, always.
    Fixed,
    /// Short frames are marked with an N.
    Legacy,
}

impl Dialect {
    /// The payload lengths that the peer would misread.
    pub const fn hole(self) -> Range<usize> {
        match self {
            Dialect::Fixed => 0..0,
            Dialect::Undecided | Dialect::Legacy => LEGACY_HOLE,
        }
    }
}

/// A frame without its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// How the payload is packed.
    pub compression: Compression,
    /// A packet, still packed. A slice of the connection's buffer.
    pub payload: Bytes,
}

/// Bytes that are no frames, or a payload that makes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The bytes do not begin with "CH". The peer speaks another protocol.
    #[error("the bytes are not the head of a frame")]
    NotAFrame,
    /// A payload of no bytes.
    #[error("a frame without payload")]
    Empty,
    /// A payload longer than we take, or than a frame can hold.
    #[error("a payload of {payload_bytes} bytes, more than {limit_bytes}")]
    TooLong {
        /// The length in the header.
        payload_bytes: usize,
        /// The length that we take.
        limit_bytes: usize,
    },
    /// More was pushed than may wait; frames were not taken out in between. Our misuse.
    #[error("frames are not taken out of the buffer")]
    Overrun,
    /// A payload of a length that the peer would misread. Our misuse.
    #[error("a payload of {payload_bytes} bytes would be misread")]
    Misread {
        /// The length of the payload.
        payload_bytes: usize,
    },
}

impl FrameError {
    /// A stable name for metrics and logs.
    pub fn tag(&self) -> &'static str {
        match self {
            FrameError::NotAFrame => "frame_bad_head",
            FrameError::Empty => "frame_empty",
            FrameError::TooLong { .. } => "frame_too_long",
            FrameError::Overrun => "frame_overrun",
            FrameError::Misread { .. } => "frame_misread",
        }
    }
}

/// Takes frames out of a stream of bytes.
///
/// The buffer holds what came and is not a whole frame yet, never more than two frames. A frame's payload is a slice of
/// it; memory is reused as soon as no such slice exists any more.
#[derive(Debug)]
pub struct FrameReader {
    buffer: BytesMut,
    dialect: Dialect,
    limit_bytes: usize,
}

impl Default for FrameReader {
    fn default() -> FrameReader {
        FrameReader::new()
    }
}

impl FrameReader {
    /// A reader that takes every length. Allocates nothing yet.
    pub fn new() -> FrameReader {
        FrameReader::with_limit(MAX_PAYLOAD_BYTES)
    }

    /// A reader that refuses payloads of more than `limit_bytes` by their header.
    pub fn with_limit(limit_bytes: usize) -> FrameReader {
        FrameReader { buffer: BytesMut::new(), dialect: Dialect::Undecided, limit_bytes }
    }

    /// Refuses payloads of more than `limit_bytes` from now on. A frame that was refused for its length only is still
    /// there, and may be taken out after the limit was raised.
    pub fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
    }

    /// A reader for a peer whose dialect is known.
    pub fn with_dialect(dialect: Dialect) -> FrameReader {
        FrameReader { dialect, ..FrameReader::new() }
    }

    /// The peer's dialect, as far as its frames have shown it.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The bytes that came and are not taken out.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Appends bytes that came from the peer. Take all frames out before pushing more.
    ///
    /// # Errors
    /// More than two frames would wait.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            return Err(FrameError::Overrun);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// The buffer, with room to read into: for sources that append to it themselves. Take all frames out before asking
    /// for more room; then it is bounded like that of [`FrameReader::push`].
    pub fn room(&mut self) -> &mut BytesMut {
        let missing = match self.peek_length() {
            Some(payload_bytes) => (HEADER_BYTES + payload_bytes).saturating_sub(self.buffer.len()),
            None => 0,
        };
        if self.buffer.capacity() - self.buffer.len() < missing.max(READ_BYTES_MIN) {
            self.buffer.reserve(missing.max(READ_BYTES));
        }
        if self.buffer.is_empty() && self.buffer.capacity() > 2 * READ_BYTES {
            // One large frame shall not cost an idle connection its size for ever.
            self.buffer = BytesMut::with_capacity(READ_BYTES);
        }
        &mut self.buffer
    }

    /// Takes out the next frame. `None` until all of it has come.
    ///
    /// # Errors
    /// The bytes are no frame. The stream has lost its beat and cannot be read any further.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let begin = &self.buffer[..self.buffer.len().min(MAGIC.len())];
        if begin != &MAGIC[..begin.len()] {
            return Err(FrameError::NotAFrame);
        }
        if self.buffer.len() < HEADER_BYTES || !self.decide() {
            return Ok(None);
        }
        let payload_bytes = self.length();
        if payload_bytes == 0 {
            return Err(FrameError::Empty);
        }
        if payload_bytes > self.limit_bytes {
            return Err(FrameError::TooLong { payload_bytes, limit_bytes: self.limit_bytes });
        }
        if self.buffer.len() < HEADER_BYTES + payload_bytes {
            return Ok(None);
        }
        let compression = Compression::from_byte(self.buffer[4]);
        self.buffer.advance(HEADER_BYTES);
        Ok(Some(Frame { compression, payload: self.buffer.split_to(payload_bytes).freeze() }))
    }

    /// The payload length of the header in front, in the dialect as far as it is known.
    fn length(&self) -> usize {
        match (self.dialect, self.buffer[2], self.buffer[3]) {
            (Dialect::Legacy, SHORT, low) => usize::from(low),
            (_, high, low) => usize::from(u16::from_be_bytes([high, low])),
        }
    }

    fn peek_length(&self) -> Option<usize> {
        (self.buffer.len() >= HEADER_BYTES).then(|| self.length())
    }

    /// Tells the dialect from the frame in front if that can be. False if more bytes are needed.
    fn decide(&mut self) -> bool {
        if self.dialect != Dialect::Undecided {
            return true;
        }
        match self.buffer[2] {
            0 => self.dialect = Dialect::Fixed,
            SHORT => {
                let end = HEADER_BYTES + usize::from(self.buffer[3]);
                let Some(payload) = self.buffer.get(HEADER_BYTES..end) else { return false };
                let is_packet = is_packet(Compression::from_byte(self.buffer[4]), payload);
                self.dialect = if is_packet { Dialect::Legacy } else { Dialect::Fixed };
            }
            _ => {}
        }
        true
    }
}

fn is_packet(compression: Compression, payload: &[u8]) -> bool {
    match compression {
        Compression::None => Messages::check(payload).is_ok_and(|messages| messages > 0),
        Compression::Snappy => decompress(compression, Bytes::copy_from_slice(payload), MAX_PAYLOAD_BYTES)
            .is_ok_and(|packet| Messages::check(&packet).is_ok_and(|messages| messages > 0)),
    }
}

/// Appends one frame. `payload` is already packed as `compression` says.
///
/// # Errors
/// The payload is empty, too long, or of a length that a peer of this dialect misreads.
pub fn put_frame(
    out: &mut Vec<u8>,
    dialect: Dialect,
    compression: Compression,
    payload: &[u8],
) -> Result<(), FrameError> {
    out.extend_from_slice(&head(dialect, compression, payload.len())?);
    out.extend_from_slice(payload);
    Ok(())
}

/// The header of a frame, see [`put_frame`].
pub(crate) fn head(
    dialect: Dialect,
    compression: Compression,
    payload_bytes: usize,
) -> Result<[u8; HEADER_BYTES], FrameError> {
    if payload_bytes == 0 {
        return Err(FrameError::Empty);
    }
    let Ok(length) = u16::try_from(payload_bytes) else {
        return Err(FrameError::TooLong { payload_bytes, limit_bytes: MAX_PAYLOAD_BYTES });
    };
    if dialect.hole().contains(&payload_bytes) {
        return Err(FrameError::Misread { payload_bytes });
    }
    let [high, low] = length.to_be_bytes();
    let high = if dialect == Dialect::Legacy && high == 0 { SHORT } else { high };
    Ok([MAGIC[0], MAGIC[1], high, low, compression.to_byte()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Header, put_message};

    fn packet(payload_bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for body_bytes in (0..payload_bytes).rev() {
            out.clear();
            put_message(&mut out, Header::new(0, 1), &vec![1; body_bytes]);
            if out.len() <= payload_bytes {
                break;
            }
        }
        out.resize(payload_bytes, 0x0A);
        out
    }

    fn read(reader: &mut FrameReader, bytes: &[u8]) -> Result<Option<usize>, FrameError> {
        reader.push(bytes)?;
        Ok(reader.next_frame()?.map(|frame| frame.payload.len()))
    }

    fn framed(dialect: Dialect, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_frame(&mut out, dialect, Compression::None, payload).expect("it can be framed");
        out
    }

    #[test]
    fn headers_of_both_dialects_are_as_drawn() {
        assert_eq!(framed(Dialect::Fixed, &[1; 4])[..5], [0x43, 0x48, 0, 4, 0]);
        assert_eq!(framed(Dialect::Legacy, &[1; 4])[..5], [0x43, 0x48, 0x4E, 4, 0]);
        assert_eq!(framed(Dialect::Undecided, &[1; 4])[..5], [0x43, 0x48, 0, 4, 0]);
        for dialect in [Dialect::Fixed, Dialect::Legacy] {
            assert_eq!(framed(dialect, &[1; 256])[..5], [0x43, 0x48, 1, 0, 0]);
            assert_eq!(framed(dialect, &[1; 65_535])[..5], [0x43, 0x48, 0xFF, 0xFF, 0]);
        }
    }

    #[test]
    fn lengths_that_would_be_misread_are_not_written() {
        let mut out = Vec::new();
        for length in [0x4E00, 0x4EFF] {
            let error = FrameError::Misread { payload_bytes: length };
            for dialect in [Dialect::Legacy, Dialect::Undecided] {
                assert_eq!(put_frame(&mut out, dialect, Compression::None, &vec![0; length]), Err(error));
            }
            assert_eq!(put_frame(&mut out, Dialect::Fixed, Compression::None, &vec![0; length]), Ok(()));
        }
        for length in [0x4DFF, 0x4F00] {
            assert_eq!(put_frame(&mut out, Dialect::Legacy, Compression::None, &vec![0; length]), Ok(()));
        }
        assert_eq!(put_frame(&mut out, Dialect::Fixed, Compression::None, &[]), Err(FrameError::Empty));
        let too_long = put_frame(&mut out, Dialect::Fixed, Compression::None, &vec![0; 65_536]).unwrap_err();
        assert_eq!(too_long.tag(), "frame_too_long");
    }

    #[test]
    fn a_short_first_frame_tells_the_dialect() {
        for dialect in [Dialect::Fixed, Dialect::Legacy] {
            let mut reader = FrameReader::new();
            let bytes = framed(dialect, &packet(40));
            for end in 0..bytes.len() - 1 {
                assert_eq!(read(&mut reader, &bytes[end..=end]), Ok(None));
            }
            assert_eq!(read(&mut reader, &bytes[bytes.len() - 1..]), Ok(Some(40)));
            assert_eq!(reader.dialect(), dialect);
        }
    }

    #[test]
    fn a_long_first_frame_leaves_the_dialect_open() {
        let mut reader = FrameReader::new();
        assert_eq!(read(&mut reader, &framed(Dialect::Legacy, &packet(300))), Ok(Some(300)));
        assert_eq!(reader.dialect(), Dialect::Undecided);
        assert_eq!(read(&mut reader, &framed(Dialect::Legacy, &packet(30))), Ok(Some(30)));
        assert_eq!(reader.dialect(), Dialect::Legacy);
    }

    #[test]
    fn a_first_frame_of_20_kb_is_not_taken_for_a_short_one() {
        let mut reader = FrameReader::new();
        let bytes = framed(Dialect::Fixed, &packet(0x4E00 + 17));
        assert_eq!(read(&mut reader, &bytes), Ok(Some(0x4E00 + 17)));
        assert_eq!(reader.dialect(), Dialect::Fixed);
    }

    #[test]
    fn a_compressed_first_frame_tells_the_dialect_too() {
        let packed = snap::raw::Encoder::new().compress_vec(&packet(80)).expect("short");
        let mut bytes = Vec::new();
        put_frame(&mut bytes, Dialect::Legacy, Compression::Snappy, &packed).expect("short");
        let mut reader = FrameReader::new();
        assert_eq!(read(&mut reader, &bytes), Ok(Some(packed.len())));
        assert_eq!(reader.dialect(), Dialect::Legacy);
    }

    #[test]
    fn other_protocols_are_refused_at_the_first_byte() {
        for bytes in [&b"G"[..], b"CX", b"GET / HTTP/1.1\r\n"] {
            assert_eq!(read(&mut FrameReader::new(), bytes), Err(FrameError::NotAFrame));
        }
    }

    #[test]
    fn empty_and_long_frames_are_refused_by_their_header() {
        let limited = || FrameReader::with_limit(1_000);
        assert_eq!(read(&mut limited(), &[0x43, 0x48, 0, 0, 0]), Err(FrameError::Empty));
        let error = FrameError::TooLong { payload_bytes: 1_001, limit_bytes: 1_000 };
        assert_eq!(read(&mut limited(), &[0x43, 0x48, 3, 0xE9, 0]), Err(error));
        let mut legacy = FrameReader::with_dialect(Dialect::Legacy);
        assert_eq!(read(&mut legacy, &[0x43, 0x48, 0x4E, 0, 0]), Err(FrameError::Empty));
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut reader = FrameReader::new();
        let frame = framed(Dialect::Fixed, &packet(65_535));
        assert_eq!(reader.push(&frame), Ok(()));
        assert_eq!(reader.push(&frame), Ok(()));
        assert_eq!(reader.push(&frame[..1]), Err(FrameError::Overrun));
        assert!(reader.next_frame().is_ok_and(|frame| frame.is_some()));
        assert_eq!(reader.push(&frame[..1]), Ok(()));
    }

    #[test]
    fn room_is_made_for_the_frame_that_comes_and_given_back() {
        let mut reader = FrameReader::new();
        assert!(reader.room().capacity() >= READ_BYTES_MIN);
        let frame = framed(Dialect::Fixed, &packet(60_000));
        reader.room().extend_from_slice(&frame[..100]);
        assert_eq!(reader.next_frame(), Ok(None));
        assert!(reader.room().capacity() >= frame.len());
        reader.room().extend_from_slice(&frame[100..]);
        assert!(reader.next_frame().is_ok_and(|frame| frame.is_some()));
        assert!(reader.room().capacity() <= 2 * READ_BYTES);
    }
}
