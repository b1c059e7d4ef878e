//! Protocol buffers by hand, for the thousands of messages a millisecond that a load has no time to decode properly.
//!
//! ```text
//! frame      43 48 hh ll cc        payload length, 2 bytes big-endian; compression, always 0 here
//! payload    0A <len> message ...
//! message    08 channel  10 broadcast  18 stub  20 type  2A <len> body        fields that are 0 are left out
//! ```

use throng_channeld::packet::{Header, put_body};

/// Bytes of a frame's header.
pub(super) const HEADER_BYTES: usize = 5;

const EMPTY_HEADER: [u8; HEADER_BYTES] = [0x43, 0x48, 0, 0, 0];

/// A packet is closed before it would grow beyond this.
const PACKET_TARGET_BYTES: usize = 60_000;

/// The content of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Number(u64),
    Fixed32(u32),
    Fixed64(u64),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(super) fn number(self) -> u32 {
        match self {
            Value::Number(number) => number as u32,
            _ => 0,
        }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Value::Bytes(bytes) => bytes,
            _ => &[],
        }
    }

    pub(super) fn float(self) -> f32 {
        match self {
            Value::Fixed32(bits) => f32::from_bits(bits),
            _ => 0.0,
        }
    }
}

/// The fields of a message in the order of their bytes. Ends at the first malformed one.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = take_varint(&mut self.0)?;
        let value = match tag & 7 {
            0 => Value::Number(take_varint(&mut self.0)?),
            1 => Value::Fixed64(u64::from_le_bytes(*self.0.split_off(..8)?.first_chunk()?)),
            2 => {
                let length = usize::try_from(take_varint(&mut self.0)?).ok()?;
                Value::Bytes(self.0.split_off(..length)?)
            }
            5 => Value::Fixed32(u32::from_le_bytes(*self.0.split_off(..4)?.first_chunk()?)),
            _ => return None,
        };
        Some(((tag >> 3) as u32, value))
    }
}

impl<'a> Fields<'a> {
    /// The last value of a field, which is the one that counts.
    pub(super) fn last(self, field: u32) -> Option<Value<'a>> {
        self.filter(|(number, _)| *number == field).last().map(|(_, value)| value)
    }

    /// The content of a field of type `Any`, empty if it is not there.
    pub(super) fn any(self, field: u32) -> &'a [u8] {
        self.last(field).and_then(|any| Fields(any.bytes()).last(2)).map_or(&[], Value::bytes)
    }

    /// A number, 0 if it is not there.
    pub(super) fn number(self, field: u32) -> u32 {
        self.last(field).map_or(0, Value::number)
    }
}

/// The number in front of packed numbers.
pub(super) fn take_number(packed: &mut &[u8]) -> Option<u32> {
    take_varint(packed).map(|number| number as u32)
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (place, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * place as u32).min(63);
        if byte < 0x80 {
            *bytes = &bytes[place + 1..];
            return Some(value);
        }
    }
    None
}

/// The header of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Message<'a> {
    pub(super) channel: u32,
    pub(super) stub: u32,
    pub(super) kind: u32,
    pub(super) body: &'a [u8],
}

/// The messages of a packet; the bytes that are none are left over in `.0`.
pub(super) struct Messages<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let mut rest = self.0;
        let (1, Value::Bytes(bytes)) = take_field(&mut rest)? else { return None };
        self.0 = rest;
        let mut message = Message::default();
        for (field, value) in Fields(bytes) {
            match field {
                1 => message.channel = value.number(),
                3 => message.stub = value.number(),
                4 => message.kind = value.number(),
                5 => message.body = value.bytes(),
                _ => {}
            }
        }
        Some(message)
    }
}

fn take_field<'a>(bytes: &mut &'a [u8]) -> Option<(u32, Value<'a>)> {
    let mut fields = Fields(bytes);
    let field = fields.next()?;
    *bytes = fields.0;
    Some(field)
}

/// The payload of the first frame, and the bytes of the whole frame; `Ok(None)` if it is not all there.
pub(super) fn frame(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Garbled> {
    let Some(&[first, second, high, low, compression]) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if [first, second, compression] != [0x43, 0x48, 0] || length == 0 {
        return Err(Garbled);
    }
    let whole = HEADER_BYTES + length;
    Ok(bytes.get(HEADER_BYTES..whole).map(|payload| (payload, whole)))
}

/// The bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbled;

/// Messages on their way out, in frames.
#[derive(Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    /// Bytes that are already gone.
    gone: usize,
    /// Position of the open frame's header.
    open: Option<usize>,
    messages: u64,
}

impl Outgoing {
    /// Appends a message.
    pub(super) fn message(&mut self, to: Header, body: &impl prost::Message) {
        self.append(|bytes| put_body(bytes, to, body));
    }

    fn append(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let header = *self.open.get_or_insert_with(|| {
            let at = self.bytes.len();
            self.bytes.extend_from_slice(&EMPTY_HEADER);
            at
        });
        let at = self.bytes.len();
        put(&mut self.bytes);
        self.messages += 1;
        if self.bytes.len() - header > PACKET_TARGET_BYTES && at > header + HEADER_BYTES {
            self.close_at(header, at);
            self.bytes.splice(at..at, EMPTY_HEADER);
            self.open = Some(at);
        }
    }

    fn close_at(&mut self, header: usize, end: usize) {
        let length = (end - header - HEADER_BYTES) as u16;
        self.bytes[header + 2..header + 4].copy_from_slice(&length.to_be_bytes());
    }

    /// The bytes to send next. Closes the open frame.
    pub(super) fn waiting(&mut self) -> &[u8] {
        if let Some(header) = self.open.take() {
            self.close_at(header, self.bytes.len());
        }
        &self.bytes[self.gone..]
    }

    /// Removes bytes that have been sent.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.gone += bytes;
        if self.gone >= self.bytes.len() {
            self.bytes.clear();
            self.gone = 0;
        }
    }

    /// Drops waiting bytes, because there is a new connection.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.gone, self.open) = (0, None);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Messages appended so far.
    pub(super) fn messages(&self) -> u64 {
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_channeld::packet::put_message;
    use throng_channeld::proto::AuthMessage;

    fn sent(outgoing: &mut Outgoing) -> Vec<u8> {
        let bytes = outgoing.waiting().to_vec();
        outgoing.advance(bytes.len());
        bytes
    }

    #[test]
    fn an_auth_message_has_these_bytes() {
        let mut outgoing = Outgoing::default();
        let auth = AuthMessage {
            player_identifier_token: "a".to_owned(),
            login_token: "test_lt".to_owned(),
            ..Default::default()
        };
        outgoing.message(Header::new(0, 1), &auth);
        let body = [&[0x0a, 1, b'a', 0x12, 7][..], b"test_lt"].concat();
        let expected = [&[0x43, 0x48, 0, 18, 0, 0x0a, 16, 0x20, 1, 0x2a, 12][..], &body].concat();
        assert_eq!(sent(&mut outgoing), expected);
        assert!(outgoing.is_empty());
    }

    #[test]
    fn what_is_written_is_read_again_whatever_its_size() {
        for size in [0, 1, 127, 128, 300, 16_383, 16_384, 59_000] {
            let mut outgoing = Outgoing::default();
            let body = vec![7; size];
            let to = Header { channel_id: 0x8_0001, broadcast: 4, stub_id: 9, msg_type: 102 };
            outgoing.append(|bytes| put_message(bytes, to, &body));
            let bytes = sent(&mut outgoing);
            let (payload, whole) = frame(&bytes).unwrap().unwrap();
            assert_eq!(whole, bytes.len());
            let mut messages = Messages(payload);
            let message = messages.next().unwrap();
            assert_eq!(message, Message { channel: 0x8_0001, stub: 9, kind: 102, body: &body });
            assert!(messages.next().is_none() && messages.0.is_empty());
        }
    }

    #[test]
    fn a_packet_never_exceeds_its_frame() {
        let mut outgoing = Outgoing::default();
        for number in 0..2_000u32 {
            outgoing.append(|bytes| put_message(bytes, Header::new(number, 8), &[1; 100]));
        }
        let bytes = sent(&mut outgoing);
        let mut rest = &bytes[..];
        let mut channels = Vec::new();
        while let Some((payload, whole)) = frame(rest).unwrap() {
            channels.extend(Messages(payload).map(|message| message.channel));
            rest = &rest[whole..];
        }
        assert!(rest.is_empty());
        assert_eq!(channels, (0..2_000).collect::<Vec<_>>());
    }

    #[test]
    fn a_frame_in_parts_is_waited_for_and_a_wrong_one_is_refused() {
        let whole = [0x43, 0x48, 0, 2, 0, 0x0a, 0];
        for length in 0..whole.len() {
            assert_eq!(frame(&whole[..length]), Ok(None));
        }
        assert_eq!(frame(&whole), Ok(Some((&[0x0a, 0][..], 7))));
        assert_eq!(frame(b"HTTP/1.1"), Err(Garbled));
        assert_eq!(frame(&[0x43, 0x48, 0, 0, 0]), Err(Garbled));
    }

    #[test]
    fn lengths_that_lie_end_the_walk() {
        assert_eq!(Messages(&[0x0a, 0xff, 0xff, 0xff, 0x7f, 1]).count(), 0);
        assert_eq!(Fields(&[0xff; 12]).count(), 0);
        assert_eq!(Fields(&[0x0d, 1, 2]).count(), 0);
    }
}
