//! Packets and the messages in them.
//!
//! ```text
//! packet   entry*                       concatenated packets are a packet
//! entry    0A len pack
//! pack     [08 channel] [10 broadcast] [18 stub] [20 type] [2A len body]      zeros are left out
//! ```
//! Numbers and lengths are protobuf's variable-length integers. This is what any protobuf compiler makes of the two
//! messages `Packet` and `MessagePack`; it is written out here so that neither direction copies a body twice, and so
//! that what was encoded once can be sent to many. Fields that we do not know are skipped; groups, which proto3 does
//! not have, are refused.

use bytes::Bytes;

use crate::varint;

const ENTRY: u8 = 0x0A;
const CHANNEL: u8 = 0x08;
const BROADCAST: u8 = 0x10;
const STUB: u8 = 0x18;
const TYPE: u8 = 0x20;
const BODY: u8 = 0x2A;

/// The address of a message: all of it but the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Which channel it is about.
    pub channel_id: u32,
    /// Further receivers, see [`Broadcast`](crate::Broadcast).
    pub broadcast: u32,
    /// The number that the answer repeats; 0 expects none.
    pub stub_id: u32,
    /// The type of the body, see [`message_type`](crate::message_type).
    pub msg_type: u32,
}

impl Header {
    /// A header without broadcast and stub.
    pub const fn new(channel_id: u32, msg_type: u32) -> Header {
        Header { channel_id, broadcast: 0, stub_id: 0, msg_type }
    }

    /// The same with the number that the answer repeats.
    pub const fn with_stub(self, stub_id: u32) -> Header {
        Header { stub_id, ..self }
    }

    /// The bytes of a pack with a body of `body_bytes`.
    fn pack_len(&self, body_bytes: u32) -> usize {
        let number = |value| if value == 0 { 0 } else { 1 + varint::len(value) };
        let body = if body_bytes == 0 { 0 } else { 1 + varint::len(body_bytes) + body_bytes as usize };
        number(self.channel_id) + number(self.broadcast) + number(self.stub_id) + number(self.msg_type) + body
    }

    fn put(&self, out: &mut Vec<u8>, body_bytes: u32) {
        out.push(ENTRY);
        varint::put(out, u32::try_from(self.pack_len(body_bytes)).unwrap_or(u32::MAX));
        let numbers =
            [(CHANNEL, self.channel_id), (BROADCAST, self.broadcast), (STUB, self.stub_id), (TYPE, self.msg_type)];
        for (key, value) in numbers.into_iter().filter(|(_, value)| *value != 0) {
            out.push(key);
            varint::put(out, value);
        }
        if body_bytes != 0 {
            out.push(BODY);
            varint::put(out, body_bytes);
        }
    }
}

/// Appends one message to concatenated entries.
///
/// # Panics
/// If the body has 2³¹ bytes or more, which no frame could carry.
pub fn put_message(out: &mut Vec<u8>, header: Header, body: &[u8]) {
    begin_message(out, header, body.len());
    out.extend_from_slice(body);
}

/// Appends everything of a message but its body, which the caller appends: exactly `bytes` bytes. See [`put_message`].
///
/// # Panics
/// As [`put_message`] does.
pub fn begin_message(out: &mut Vec<u8>, header: Header, bytes: usize) {
    header.put(out, body_bytes(bytes));
}

/// Appends one message whose body is encoded in place. See [`put_message`].
pub fn put_body(out: &mut Vec<u8>, header: Header, body: &impl prost::Message) {
    header.put(out, body_bytes(body.encoded_len()));
    body.encode_raw(out);
}

/// The bytes that [`put_message`] appends for a body of `body_bytes` bytes.
pub fn entry_len(header: Header, body_bytes: u32) -> usize {
    let pack = header.pack_len(body_bytes);
    1 + varint::len(u32::try_from(pack).unwrap_or(u32::MAX)) + pack
}

fn body_bytes(bytes: usize) -> u32 {
    assert!(bytes < 1 << 31, "a body of {bytes} bytes");
    bytes as u32
}

/// One message of a packet. Its body is a slice of the packet's buffer and keeps all of it alive: copy what is to be
/// held for long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Which channel it is about.
    pub channel_id: u32,
    /// Further receivers, see [`Broadcast`](crate::Broadcast).
    pub broadcast: u32,
    /// The number that the answer repeats; 0 expects none.
    pub stub_id: u32,
    /// The type of the body, see [`message_type`](crate::message_type).
    pub msg_type: u32,
    /// A protobuf message, or whatever a game makes of it.
    pub body: Bytes,
}

impl Message {
    /// The message's address.
    pub fn header(&self) -> Header {
        Header {
            channel_id: self.channel_id,
            broadcast: self.broadcast,
            stub_id: self.stub_id,
            msg_type: self.msg_type,
        }
    }

    /// Decodes the body. Byte fields of the result are slices of it.
    ///
    /// # Errors
    /// The body is not of that type: the peer's fault.
    pub fn decode<M: prost::Message + Default>(&self) -> Result<M, prost::DecodeError> {
        M::decode(self.body.clone())
    }
}

/// A packet that is none. The peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// A number does not end, or a field is longer than what holds it.
    #[error("the packet ends within a field")]
    Cut,
    /// A field has the number 0, or a wire type that proto3 does not have.
    #[error("a field key that proto3 does not have")]
    BadKey,
}

impl PacketError {
    /// A stable name for metrics and logs.
    pub fn tag(&self) -> &'static str {
        match self {
            PacketError::Cut => "packet_cut",
            PacketError::BadKey => "packet_bad_key",
        }
    }
}

/// Reads the messages of a packet, without copying or allocating.
///
/// After an error it is empty. Messages before the error are good as far as anyone can tell; call [`Messages::check`]
/// first to take all of them or none.
#[derive(Clone, Debug)]
pub struct Messages {
    payload: Bytes,
    /// Where the next field begins.
    at: usize,
}

impl Messages {
    /// Reads the payload of a frame, decompressed.
    pub fn new(payload: Bytes) -> Messages {
        Messages { payload, at: 0 }
    }

    /// Reads through a whole packet and counts its messages.
    ///
    /// # Errors
    /// The first message that cannot be read.
    pub fn check(payload: &[u8]) -> Result<usize, PacketError> {
        let (mut rest, mut count) = (payload, 0);
        while !rest.is_empty() {
            if let Field::Bytes(ENTRY_NUMBER, pack) = take_field(&mut rest)? {
                read_pack(pack)?;
                count += 1;
            }
        }
        Ok(count)
    }

    fn read_next(&mut self) -> Result<Option<Message>, PacketError> {
        let payload = &self.payload[..];
        let mut rest = &payload[self.at..];
        while !rest.is_empty() {
            let Field::Bytes(ENTRY_NUMBER, pack) = take_field(&mut rest)? else { continue };
            let (header, body) = read_pack(pack)?;
            self.at = payload.len() - rest.len();
            return Ok(Some(Message {
                channel_id: header.channel_id,
                broadcast: header.broadcast,
                stub_id: header.stub_id,
                msg_type: header.msg_type,
                body: if body.is_empty() { Bytes::new() } else { self.payload.slice_ref(body) },
            }));
        }
        self.at = payload.len();
        Ok(None)
    }
}

impl Iterator for Messages {
    type Item = Result<Message, PacketError>;

    fn next(&mut self) -> Option<Self::Item> {
        let result = self.read_next();
        if result.is_err() {
            self.at = self.payload.len();
        }
        result.transpose()
    }
}

const ENTRY_NUMBER: u32 = 1;

/// A field of a protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// The number of the field, and the number in it.
    Number(u32, u64),
    /// The number of the field, and its bytes.
    Bytes(u32, &'a [u8]),
    /// A number of 4 or 8 bytes, which nothing in the protocol is.
    Other,
}

/// A known field with another wire type than expected counts as unknown, as protobuf has it.
fn read_pack(mut pack: &[u8]) -> Result<(Header, &[u8]), PacketError> {
    let (mut header, mut body) = (Header::default(), &[][..]);
    while !pack.is_empty() {
        match take_field(&mut pack)? {
            // Longer numbers lose their upper half, as protobuf has it.
            Field::Number(1, value) => header.channel_id = value as u32,
            Field::Number(2, value) => header.broadcast = value as u32,
            Field::Number(3, value) => header.stub_id = value as u32,
            Field::Number(4, value) => header.msg_type = value as u32,
            Field::Bytes(5, bytes) => body = bytes,
            _ => {}
        }
    }
    Ok((header, body))
}

/// Takes a field from the front of a message.
///
/// ```
/// use throng_channeld::{Field, take_field};
///
/// let mut message = &b"\x08\x96\x01\x12\x02hi"[..];
/// assert_eq!(take_field(&mut message), Ok(Field::Number(1, 150)));
/// assert_eq!(take_field(&mut message), Ok(Field::Bytes(2, b"hi")));
/// assert!(message.is_empty());
/// ```
///
/// # Errors
/// It is cut, or its key is none.
#[inline]
pub fn take_field<'a>(bytes: &mut &'a [u8]) -> Result<Field<'a>, PacketError> {
    let key = varint::take(bytes).ok_or(PacketError::Cut)?;
    let number = u32::try_from(key).map_err(|_| PacketError::BadKey)? >> 3;
    if number == 0 {
        return Err(PacketError::BadKey);
    }
    match key & 7 {
        0 => Ok(Field::Number(number, varint::take(bytes).ok_or(PacketError::Cut)?)),
        1 => take_bytes(bytes, 8).map(|_| Field::Other),
        2 => {
            let length = varint::take(bytes).ok_or(PacketError::Cut)?;
            Ok(Field::Bytes(number, take_bytes(bytes, length)?))
        }
        5 => take_bytes(bytes, 4).map(|_| Field::Other),
        _ => Err(PacketError::BadKey),
    }
}

fn take_bytes<'a>(bytes: &mut &'a [u8], length: u64) -> Result<&'a [u8], PacketError> {
    let length = usize::try_from(length).map_err(|_| PacketError::Cut)?;
    let (taken, rest) = bytes.split_at_checked(length).ok_or(PacketError::Cut)?;
    *bytes = rest;
    Ok(taken)
}

/// Cuts concatenated entries into packets, none longer than a limit, between entries.
///
/// An entry that is too long for any packet is left out and counted. The entries are ours: should they ever be
/// unsound, the rest of them counts as one that is too long.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    rest: &'a [u8],
    max_bytes: usize,
    dropped: usize,
}

impl<'a> Packets<'a> {
    /// Cuts `entries`, as [`put_message`] appends them, into packets of up to `max_bytes`.
    pub fn new(entries: &'a [u8], max_bytes: usize) -> Packets<'a> {
        Packets { rest: entries, max_bytes, dropped: 0 }
    }

    /// Entries that were left out so far.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// The bytes that were not returned yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next packet, whose length is none of `holes` if it has two entries or more.
    pub(crate) fn next_outside(&mut self, holes: std::ops::Range<usize>) -> Option<&'a [u8]> {
        self.drop_too_long();
        // The longest that fits, and the longest that fits and is not in the hole.
        let (mut end, mut best) = (0, 0);
        while let Some(entry) = entry_bytes(&self.rest[end..]).filter(|entry| end + entry <= self.max_bytes) {
            end += entry;
            if best == 0 || !holes.contains(&end) {
                best = end;
            }
        }
        let (packet, rest) = self.rest.split_at(best);
        self.rest = rest;
        (!packet.is_empty()).then_some(packet)
    }

    fn drop_too_long(&mut self) {
        while !self.rest.is_empty() {
            let bytes = entry_bytes(self.rest);
            if bytes.is_some_and(|bytes| bytes <= self.max_bytes) {
                return;
            }
            self.dropped += 1;
            self.rest = bytes.map_or(&[], |bytes| &self.rest[bytes..]);
        }
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.next_outside(0..0)
    }
}

/// The length of the entry at the front, or `None` if there is no whole one.
#[inline]
fn entry_bytes(entries: &[u8]) -> Option<usize> {
    let mut rest = entries;
    let field = take_field(&mut rest).ok()?;
    matches!(field, Field::Bytes(ENTRY_NUMBER, _)).then_some(entries.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(bodies: &[usize]) -> Vec<u8> {
        let mut out = Vec::new();
        for (index, bytes) in bodies.iter().enumerate() {
            put_message(&mut out, Header::new(index as u32, 100), &vec![7; *bytes]);
        }
        out
    }

    fn read(payload: &[u8]) -> Result<Vec<Message>, PacketError> {
        Messages::new(Bytes::copy_from_slice(payload)).collect()
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let header = Header { channel_id: 0x8_0001, broadcast: 6, stub_id: u32::MAX, msg_type: 65_535 };
        let mut out = Vec::new();
        put_message(&mut out, header, b"hello");
        assert_eq!(out.len(), entry_len(header, 5));
        let messages = read(&out).expect("it is sound");
        assert_eq!((messages[0].header(), &messages[0].body[..]), (header, &b"hello"[..]));
    }

    #[test]
    fn an_empty_message_takes_two_bytes() {
        let mut out = Vec::new();
        put_message(&mut out, Header::default(), &[]);
        assert_eq!(out, [0x0A, 0]);
        assert_eq!(read(&out), Ok(vec![Message::default()]));
    }

    #[test]
    fn bodies_are_slices_of_the_packet() {
        let payload = Bytes::from(entries(&[300]));
        let message = Messages::new(payload.clone()).next().expect("one").expect("sound");
        assert_eq!(message.body.as_ptr(), payload[payload.len() - 300..].as_ptr());
    }

    #[test]
    fn unknown_fields_are_skipped_and_the_last_of_a_field_counts() {
        // Field 9 as fixed64 in the packet; in the pack field 4 twice, field 7 as bytes, field 6 as fixed32.
        let payload = [
            0x49, 1, 2, 3, 4, 5, 6, 7, 8, //
            0x0A, 14, 0x20, 1, 0x3A, 2, 9, 9, 0x35, 0, 0, 0, 0, 0x20, 0xC8, 1,
        ];
        let messages = read(&payload).expect("it is sound");
        assert_eq!(messages, [Message { msg_type: 200, ..Message::default() }]);
    }

    #[test]
    fn what_is_cut_or_strange_is_refused() {
        for cut in [&[0x0A][..], &[0x0A, 5, 1], &[0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1]] {
            assert_eq!(read(cut), Err(PacketError::Cut));
        }
        for strange in [&[0x00, 0][..], &[0x0B, 0x0C], &[0x0F], &[0x0A, 2, 0x07, 0]] {
            assert_eq!(read(strange), Err(PacketError::BadKey));
            assert_eq!(Messages::check(strange), Err(PacketError::BadKey));
        }
    }

    #[test]
    fn entries_are_cut_between_them() {
        let entries = entries(&[10, 10, 10, 10]);
        let entry = entries.len() / 4 + 1;
        let packets: Vec<&[u8]> = Packets::new(&entries, 3 * entry).collect();
        assert_eq!(packets.concat(), entries);
        assert_eq!(packets.iter().map(|packet| Messages::check(packet)).collect::<Vec<_>>(), [Ok(3), Ok(1)]);
    }

    #[test]
    fn an_entry_that_fits_no_packet_is_left_out_and_counted() {
        let entries = entries(&[10, 100, 10]);
        let mut packets = Packets::new(&entries, 40);
        assert_eq!(packets.by_ref().map(Messages::check).collect::<Vec<_>>(), [Ok(1), Ok(1)]);
        assert_eq!(packets.dropped(), 1);
    }

    #[test]
    fn unsound_entries_end_and_count_once() {
        let mut entries = entries(&[10]);
        entries.extend([0xFF; 20]);
        let mut packets = Packets::new(&entries, 100);
        assert_eq!(packets.by_ref().count(), 1);
        assert_eq!((packets.dropped(), packets.rest().len()), (1, 0));
    }
}
