//! Recorded sessions: channeld's `.cpr` files.
//!
//! A file is one message `replaypb.ReplaySession`, that is concatenated entries like those of a packet:
//!
//! ```text
//! file     (0A len  replay)*
//! replay   [08 nanoseconds since the replay before] [12 len packet]
//! ```
//! Since concatenation is all there is to it, a recording can be written while the session runs, and one that was cut
//! off is good up to the cut.

use std::io::{self, Read, Write};

use bytes::Bytes;
use prost::Message as _;

use crate::packet::Messages;
use crate::proto::replaypb::ReplayPacket;
use crate::varint;

/// The longest entry that is read or written: a packet of the largest frame and what surrounds it, with room for
/// packets that were recorded before they were cut into frames.
pub const MAX_ENTRY_BYTES: usize = 1 << 20;

const ENTRY: u8 = 0x0A;
const OFFSET: u8 = 0x08;
const PACKET: u8 = 0x12;

/// A packet and when it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Nanoseconds since the packet before it, or since the session began.
    pub offset_ns: i64,
    /// The packet: concatenated entries, see [`Messages`].
    pub packet: Bytes,
}

impl Recorded {
    /// The messages of the packet.
    pub fn messages(&self) -> Messages {
        Messages::new(self.packet.clone())
    }
}

/// A recording that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file ends within a packet.
    #[error("the recording ends within a packet")]
    Cut,
    /// The file holds something else.
    #[error("the file is not a recording")]
    Malformed,
    /// One packet is longer than we take.
    #[error("a recorded packet of {entry_bytes} bytes, more than {MAX_ENTRY_BYTES}")]
    TooLong {
        /// The length that the file claims.
        entry_bytes: u64,
    },
    /// The recording is longer than the limit it was given. Nothing more is written.
    #[error("the recording has reached its limit of {limit_bytes} bytes")]
    Full {
        /// The limit.
        limit_bytes: u64,
    },
}

impl ReplayError {
    /// A stable name for metrics and logs.
    pub fn tag(&self) -> &'static str {
        match self {
            ReplayError::Io(_) => "replay_io",
            ReplayError::Cut => "replay_cut",
            ReplayError::Malformed => "replay_malformed",
            ReplayError::TooLong { .. } => "replay_too_long",
            ReplayError::Full { .. } => "replay_full",
        }
    }
}

/// Writes a recording as the session runs. Holds nothing back but what `W` does.
#[derive(Debug)]
pub struct ReplayWriter<W> {
    out: W,
    entry: Vec<u8>,
    written_bytes: u64,
    limit_bytes: u64,
}

impl<W: Write> ReplayWriter<W> {
    /// Writes up to `limit_bytes` to `out`.
    pub fn new(out: W, limit_bytes: u64) -> ReplayWriter<W> {
        ReplayWriter { out, entry: Vec::new(), written_bytes: 0, limit_bytes }
    }

    /// Appends a packet, `offset_ns` after the one before it.
    ///
    /// # Errors
    /// The packet is too long, the limit is reached, or `out` fails.
    pub fn write(&mut self, offset_ns: i64, packet: &[u8]) -> Result<(), ReplayError> {
        if packet.len() > MAX_ENTRY_BYTES - 32 {
            return Err(ReplayError::TooLong { entry_bytes: packet.len() as u64 });
        }
        let mut offset = Vec::new();
        if offset_ns != 0 {
            offset.push(OFFSET);
            prost::encoding::encode_varint(offset_ns as u64, &mut offset);
        }
        let packet_bytes = packet.len() as u32;
        let replay_bytes = offset.len() as u32 + 1 + varint::len(packet_bytes) as u32 + packet_bytes;
        self.entry.clear();
        self.entry.push(ENTRY);
        varint::put(&mut self.entry, replay_bytes);
        self.entry.extend_from_slice(&offset);
        self.entry.push(PACKET);
        varint::put(&mut self.entry, packet_bytes);
        self.entry.extend_from_slice(packet);
        let written_bytes = self.written_bytes + self.entry.len() as u64;
        if written_bytes > self.limit_bytes {
            return Err(ReplayError::Full { limit_bytes: self.limit_bytes });
        }
        self.out.write_all(&self.entry)?;
        self.written_bytes = written_bytes;
        Ok(())
    }

    /// The bytes written so far.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Writes out what `W` holds back, and gives it back.
    ///
    /// # Errors
    /// `out` fails.
    pub fn finish(mut self) -> Result<W, ReplayError> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Reads a recording, one packet at a time. Wrap a file into a [`BufReader`](io::BufReader).
///
/// After an error it is at its end.
#[derive(Debug)]
pub struct ReplayReader<R> {
    input: Option<R>,
}

impl<R: Read> ReplayReader<R> {
    /// Reads from `input`.
    pub fn new(input: R) -> ReplayReader<R> {
        ReplayReader { input: Some(input) }
    }
}

impl<R: Read> Iterator for ReplayReader<R> {
    type Item = Result<Recorded, ReplayError>;

    fn next(&mut self) -> Option<Self::Item> {
        let result = read_next(self.input.as_mut()?);
        if !matches!(result, Ok(Some(_))) {
            self.input = None;
        }
        result.transpose()
    }
}

fn read_next(input: &mut impl Read) -> Result<Option<Recorded>, ReplayError> {
    match read_byte(input)? {
        None => return Ok(None),
        Some(ENTRY) => {}
        Some(_) => return Err(ReplayError::Malformed),
    }
    let entry_bytes = read_varint(input)?;
    if entry_bytes > MAX_ENTRY_BYTES as u64 {
        return Err(ReplayError::TooLong { entry_bytes });
    }
    let mut entry = vec![0; entry_bytes as usize];
    input.read_exact(&mut entry).map_err(cut)?;
    decode(Bytes::from(entry)).map(Some)
}

/// The packet inside is kept as bytes: the fields around it are read, it is not.
fn decode(entry: Bytes) -> Result<Recorded, ReplayError> {
    let (mut offset_ns, mut packet) = (0, Bytes::new());
    let mut rest = &entry[..];
    while !rest.is_empty() {
        let key = varint::take(&mut rest).ok_or(ReplayError::Malformed)?;
        let value = varint::take(&mut rest).ok_or(ReplayError::Malformed)?;
        match key {
            0x08 => offset_ns = value as i64,
            0x12 => {
                let length = usize::try_from(value).map_err(|_| ReplayError::Malformed)?;
                let (bytes, after) = rest.split_at_checked(length).ok_or(ReplayError::Malformed)?;
                (packet, rest) = (entry.slice_ref(bytes), after);
            }
            _ => return decode_slowly(entry),
        }
    }
    Messages::check(&packet).map_err(|_| ReplayError::Malformed)?;
    Ok(Recorded { offset_ns, packet })
}

/// With fields that we do not know.
fn decode_slowly(entry: Bytes) -> Result<Recorded, ReplayError> {
    let replay = ReplayPacket::decode(entry).map_err(|_| ReplayError::Malformed)?;
    let packet = replay.packet.unwrap_or_default().encode_to_vec().into();
    Ok(Recorded { offset_ns: replay.offset_time, packet })
}

fn read_byte(input: &mut impl Read) -> Result<Option<u8>, ReplayError> {
    let mut byte = [0];
    loop {
        match input.read(&mut byte) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(byte[0])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn read_varint(input: &mut impl Read) -> Result<u64, ReplayError> {
    let mut bytes = [0; 10];
    for end in 0..bytes.len() {
        bytes[end] = read_byte(input)?.ok_or(ReplayError::Cut)?;
        if bytes[end] < 0x80 {
            return varint::take(&mut &bytes[..=end]).ok_or(ReplayError::Malformed);
        }
    }
    Err(ReplayError::Malformed)
}

fn cut(error: io::Error) -> ReplayError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ReplayError::Cut,
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Header, put_message};

    fn recording(packets: &[(i64, &[u8])]) -> Vec<u8> {
        let mut writer = ReplayWriter::new(Vec::new(), 1 << 20);
        for (offset_ns, body) in packets {
            let mut packet = Vec::new();
            put_message(&mut packet, Header::new(0, 100), body);
            writer.write(*offset_ns, &packet).expect("it fits");
        }
        writer.finish().expect("memory does not fail")
    }

    #[test]
    fn a_recording_is_read_as_it_was_written() {
        let bytes = recording(&[(0, b"first"), (1_000_000, b"second"), (-1, b"")]);
        let read: Vec<Recorded> = ReplayReader::new(&bytes[..]).map(|recorded| recorded.expect("sound")).collect();
        assert_eq!(read.iter().map(|recorded| recorded.offset_ns).collect::<Vec<_>>(), [0, 1_000_000, -1]);
        let bodies: Vec<Bytes> =
            read.iter().flat_map(Recorded::messages).map(|message| message.expect("sound").body).collect();
        assert_eq!(bodies, [&b"first"[..], b"second", b""]);
    }

    #[test]
    fn a_recording_is_a_protobuf_message() {
        let bytes = recording(&[(7, b"first"), (8, b"second")]);
        let session = crate::proto::replaypb::ReplaySession::decode(&bytes[..]).expect("it is one");
        assert_eq!(session.packets.iter().map(|packet| packet.offset_time).collect::<Vec<_>>(), [7, 8]);
        assert_eq!(session.encode_to_vec(), bytes);
    }

    #[test]
    fn a_recording_that_was_cut_off_is_good_up_to_the_cut() {
        let bytes = recording(&[(7, b"first"), (8, b"second")]);
        let read: Vec<_> = ReplayReader::new(&bytes[..bytes.len() - 1]).collect();
        assert!(matches!(&read[..], [Ok(Recorded { offset_ns: 7, .. }), Err(ReplayError::Cut)]), "{read:?}");
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        for (bytes, tag) in [
            (&b"PNG"[..], "replay_malformed"),
            (&[0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F], "replay_too_long"),
            (&[0x0A, 0xFF], "replay_cut"),
            (&[0x0A, 2, 0x12, 9], "replay_malformed"),
        ] {
            let error = ReplayReader::new(bytes).next().expect("something").unwrap_err();
            assert_eq!(error.tag(), tag);
        }
    }

    #[test]
    fn fields_from_the_future_are_skipped() {
        let bytes = [0x0A, 9, 0x18, 1, 0x12, 4, 0x0A, 2, 0x20, 100, 0];
        let mut read = ReplayReader::new(&bytes[..10 + 1]);
        // The entry is 9 bytes long with a stray zero at its end, which is no field.
        assert_eq!(read.next().expect("something").unwrap_err().tag(), "replay_malformed");
        let bytes = [0x0A, 8, 0x18, 1, 0x12, 4, 0x0A, 2, 0x20, 100];
        let recorded = ReplayReader::new(&bytes[..]).next().expect("one").expect("sound");
        assert_eq!(recorded.packet[..], [0x0A, 2, 0x20, 100]);
    }

    #[test]
    fn a_recording_has_a_limit() {
        let mut writer = ReplayWriter::new(Vec::new(), 20);
        writer.write(0, &[0x0A, 2, 0x20, 100]).expect("it fits");
        assert!(matches!(writer.write(0, &[0; 20]), Err(ReplayError::Full { limit_bytes: 20 })));
        assert_eq!(writer.written_bytes(), 8);
    }
}
