//! The layout of a session packet's payload.
//!
//! All numbers are little-endian. Fields in brackets are present if their flag is set. A server packet without messages
//! has a header of 10 or 11 bytes.
//!
//! ```text
//! [flags u8]
//!    bit 0     ACK        an acknowledgement follows
//!    bits 1-2  WIDTH      of the acknowledgement bits: 0, 1 or 4 bytes, or as many as a byte before them says
//!                         (0 without ACK)
//!    bit 3     INPUT_ACK  the number of the newest input that the sender has processed follows
//!    bit 4     INPUTS     an input section follows
//!    bit 5     MESSAGES   a message section follows
//!    bit 6     CLOSE      a close section follows
//!    bit 7     PING       the sender wants an acknowledgement although the packet is empty
//! [newest u16]            low half of the newest packet sequence received                          if ACK
//! [delay u8]              since that packet was received, as `AckDelay` says                       if ACK
//! [count u8]              5 to 32: bytes of the bits                                                if WIDTH is 3
//! [bits 0, 1, 4 or count] bit i: `newest - 1 - i` was received, lowest byte first. No bytes at     if ACK
//!                         all: all of the previous 32 were received (those below sequence 0 do
//!                         not count)
//! tick u32                low half of the sender's simulation tick
//! [input u16]             low half of the number of the newest processed input                     if INPUT_ACK
//! [close]                 code u16, text length u8 (at most 128), text in UTF-8                    if CLOSE
//! [inputs]                newest u16, count u8 (1 to 16), count x { length u8 (at most 64), bytes },  if INPUTS
//!                         newest first, numbers falling by one
//! [messages]              length u16, entries (layout in lane/entry.rs). Bit 15 of the length: the   if MESSAGES
//!                         sender has no room for messages
//! rest                    replication bytes to the end of the packet; zeros at the end are padding
//! ```

use throng_wire::{ReadError, ShortTick};

use super::error::PacketError;

/// The longest payload that a session writes or accepts: what a sealed packet holds.
pub const MAX_PAYLOAD_BYTES: usize = 1200;
/// The longest text of a close reason, in bytes of UTF-8.
pub const MAX_CLOSE_TEXT_BYTES: usize = 128;
/// The longest input, in bytes.
pub const MAX_INPUT_BYTES: usize = 64;
/// The most inputs that one packet repeats.
pub const MAX_INPUT_REDUNDANCY: usize = 16;

/// The length of a message section stands before it.
pub(super) const SECTION_HEAD_BYTES: usize = 2;

/// The longest header of a packet: flags, the widest acknowledgement, tick, number of an input.
pub(super) const HEADER_MAX_BYTES: usize = 1 + 3 + 1 + 32 + 4 + 2;

/// How far back an acknowledgement reaches behind its newest sequence.
pub(super) const ACK_REACH: u64 = 256;
/// An end that finds more packets than this at once answers before it has taken them all.
pub(super) const ACK_WAITING_MAX: u32 = 128;

/// Bit of the length of a message section: its sender asks for no messages until a newer message section comes without it.
pub(super) const NO_ROOM: u16 = 1 << 15;

pub(super) mod flag {
    pub(crate) const ACK: u8 = 1;
    pub(crate) const WIDTH_SHIFT: u8 = 1;
    pub(crate) const WIDTH_MASK: u8 = 0b110;
    pub(crate) const INPUT_ACK: u8 = 1 << 3;
    pub(crate) const INPUTS: u8 = 1 << 4;
    pub(crate) const MESSAGES: u8 = 1 << 5;
    pub(crate) const CLOSE: u8 = 1 << 6;
    pub(crate) const PING: u8 = 1 << 7;
}

/// Which of the [`ACK_REACH`] packets before the newest were received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AckBits(pub(super) [u64; 4]);

impl AckBits {
    /// The 32 nearest.
    const ALL_32: AckBits = AckBits([u32::MAX as u64, 0, 0, 0]);

    /// Whether the packet so far behind the newest was received; false beyond the reach and for the newest itself.
    pub(super) fn has(&self, behind: u64) -> bool {
        (1..=ACK_REACH).contains(&behind) && self.0[(behind - 1) as usize / 64] >> ((behind - 1) % 64) & 1 == 1
    }

    /// How many of the `nearest` nearest were received.
    pub(super) fn count(&self, nearest: u64) -> u32 {
        if nearest < 64 {
            return (self.0[0] & ((1 << nearest) - 1)).count_ones();
        }
        let word = |(i, word): (usize, &u64)| match nearest.saturating_sub(64 * i as u64) {
            0 => 0,
            bits @ 1..64 => (word & ((1 << bits) - 1)).count_ones(),
            _ => word.count_ones(),
        };
        self.0.iter().enumerate().map(word).sum()
    }

    fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// From at most 32 bytes, lowest first.
    fn from_bytes(bytes: &[u8]) -> AckBits {
        let mut words = [0; 4];
        for (i, byte) in bytes.iter().take(32).enumerate() {
            words[i / 8] |= u64::from(*byte) << (8 * (i % 8));
        }
        AckBits(words)
    }
}

/// The bytes of acknowledgement bits, as the two flag bits name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// No bytes: the previous 32 were all received.
    All32,
    Bits8,
    Bits32,
    /// 5 to 32 bytes, after their number.
    Wide(u8),
}

impl Width {
    /// Bytes that a wide acknowledgement can have: fewer fit a narrow one.
    const WIDE: std::ops::RangeInclusive<u8> = 5..=(ACK_REACH / 8) as u8;

    /// The narrowest that reaches back so far.
    pub(super) fn reaching(packets: u64) -> Width {
        match packets.min(ACK_REACH) {
            0..=8 => Width::Bits8,
            9..=32 => Width::Bits32,
            packets => Width::Wide(packets.div_ceil(8) as u8),
        }
    }

    /// The two flag bits.
    pub(super) fn code(self) -> u8 {
        match self {
            Width::All32 => 0,
            Width::Bits8 => 1,
            Width::Bits32 => 2,
            Width::Wide(_) => 3,
        }
    }
}

/// An acknowledgement as it stands in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) newest: u16,
    pub(super) delay: AckDelay,
    pub(super) width: Width,
    /// The width gives the number of transmitted bits.
    pub(super) bits: AckBits,
}

impl Ack {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.newest.to_le_bytes());
        out.push(self.delay.0);
        match self.width {
            Width::All32 => {}
            Width::Bits8 => out.push(self.bits.0[0] as u8),
            Width::Bits32 => out.extend_from_slice(&(self.bits.0[0] as u32).to_le_bytes()),
            Width::Wide(count) => {
                let bytes = self.bits.to_bytes();
                out.push(count);
                out.extend_from_slice(&bytes[..usize::from(count).min(bytes.len())]);
            }
        }
    }

    fn read(flags: u8, reader: &mut ByteReader<'_>) -> Result<Option<Ack>, PacketError> {
        let width = (flags & flag::WIDTH_MASK) >> flag::WIDTH_SHIFT;
        if flags & flag::ACK == 0 {
            return if width == 0 { Ok(None) } else { Err(PacketError::BadFlags) };
        }
        let newest = reader.u16()?;
        let delay = AckDelay(reader.u8()?);
        let (width, bits) = match width {
            0 => (Width::All32, AckBits::ALL_32),
            1 => (Width::Bits8, AckBits([u64::from(reader.u8()?), 0, 0, 0])),
            2 => (Width::Bits32, AckBits([u64::from(reader.u32()?), 0, 0, 0])),
            _ => {
                let count = reader.u8()?;
                if !Width::WIDE.contains(&count) {
                    return Err(PacketError::BadAck);
                }
                (Width::Wide(count), AckBits::from_bytes(reader.take(usize::from(count))?))
            }
        };
        Ok(Some(Ack { newest, delay, width, bits }))
    }
}

/// How long the newest packet had been there when its acknowledgement was written, in one byte.
///
/// A small floating point number in units of 64 µs: the low 5 bits `m`, the high 3 bits `e`; `m` for `e = 0`, else
/// `(32 + m) << (e - 1)`. Rounded down, at most 3 % off, up to 258 ms; 255 stands for that and anything longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AckDelay(pub(super) u8);

impl AckDelay {
    const UNIT_MICROS: u64 = 64;
    const MAX: AckDelay = AckDelay(255);

    pub(super) fn from_micros(micros: u64) -> AckDelay {
        let units = micros / Self::UNIT_MICROS;
        if units < 32 {
            return AckDelay(units as u8);
        }
        let shift = units.ilog2() - 5;
        if shift >= 7 {
            return Self::MAX;
        }
        AckDelay(((shift as u8 + 1) << 5) | ((units >> shift) as u8 & 31))
    }

    /// `None` if the delay was too long to be transmitted.
    pub(super) fn micros(self) -> Option<u64> {
        let (exponent, mantissa) = (self.0 >> 5, u64::from(self.0 & 31));
        match exponent {
            _ if self == Self::MAX => None,
            0 => Some(mantissa * Self::UNIT_MICROS),
            _ => Some(((32 + mantissa) << (exponent - 1)) * Self::UNIT_MICROS),
        }
    }
}

/// The inputs of a packet, not taken apart yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputSection<'a> {
    pub(super) newest: u16,
    /// Length-prefixed inputs, newest first. Checked.
    pub(super) items: &'a [u8],
}

/// A payload taken apart. Lengths are checked, meanings are not.
#[derive(Debug)]
pub(super) struct Payload<'a> {
    pub(super) ack: Option<Ack>,
    pub(super) tick: ShortTick,
    pub(super) input_ack: Option<u16>,
    pub(super) close: Option<(u16, &'a str)>,
    pub(super) inputs: Option<InputSection<'a>>,
    pub(super) messages: &'a [u8],
    /// Whether the sender has no room for messages. Only a message section says it.
    pub(super) has_no_room: Option<bool>,
    pub(super) rest: &'a [u8],
    /// Whether the sender waits for an acknowledgement.
    pub(super) is_eliciting: bool,
}

impl<'a> Payload<'a> {
    pub(super) fn read(payload: &'a [u8]) -> Result<Payload<'a>, PacketError> {
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(PacketError::TooLong);
        }
        let mut reader = ByteReader::new(payload);
        let flags = reader.u8()?;
        let ack = Ack::read(flags, &mut reader)?;
        let tick = ShortTick(reader.u32()?);
        let input_ack = if flags & flag::INPUT_ACK != 0 { Some(reader.u16()?) } else { None };
        let close = if flags & flag::CLOSE != 0 { Some(read_close(&mut reader)?) } else { None };
        let inputs = if flags & flag::INPUTS != 0 { Some(read_inputs(&mut reader)?) } else { None };
        let length = if flags & flag::MESSAGES != 0 { Some(reader.u16()?) } else { None };
        let has_no_room = length.map(|length| length & NO_ROOM != 0);
        let messages = reader.take(usize::from(length.unwrap_or(0) & !NO_ROOM))?;
        let rest = reader.rest();
        let is_eliciting = flags & (flag::PING | flag::INPUTS | flag::MESSAGES) != 0 || !rest.is_empty();
        Ok(Payload { ack, tick, input_ack, close, inputs, messages, has_no_room, rest, is_eliciting })
    }
}

fn read_close<'a>(reader: &mut ByteReader<'a>) -> Result<(u16, &'a str), PacketError> {
    let code = reader.u16()?;
    let length = usize::from(reader.u8()?);
    if length > MAX_CLOSE_TEXT_BYTES {
        return Err(PacketError::BadClose);
    }
    let text = std::str::from_utf8(reader.take(length)?).map_err(|_| PacketError::BadClose)?;
    Ok((code, text))
}

fn read_inputs<'a>(reader: &mut ByteReader<'a>) -> Result<InputSection<'a>, PacketError> {
    let newest = reader.u16()?;
    let count = usize::from(reader.u8()?);
    if count == 0 || count > MAX_INPUT_REDUNDANCY {
        return Err(PacketError::BadInputs);
    }
    let start = reader.rest();
    for _ in 0..count {
        let length = usize::from(reader.u8()?);
        if length > MAX_INPUT_BYTES {
            return Err(PacketError::BadInputs);
        }
        reader.take(length)?;
    }
    Ok(InputSection { newest, items: &start[..start.len() - reader.rest().len()] })
}

/// The number nearest to `near` whose low half is `low`; `None` if that would be negative.
pub(super) fn expand_sequence(low: u16, near: u64) -> Option<u64> {
    near.checked_add_signed(i64::from(low.wrapping_sub(near as u16) as i16))
}

/// The wrapping number nearest to `near` whose low half is `low`.
pub(super) fn expand_number(low: u16, near: u32) -> u32 {
    near.wrapping_add_signed(i32::from(low.wrapping_sub(near as u16) as i16))
}

/// Reads whole bytes from a slice. Never panics.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteReader<'a> {
    bytes: &'a [u8],
}

impl<'a> ByteReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> ByteReader<'a> {
        ByteReader { bytes }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let (head, tail) = self.bytes.split_first_chunk::<N>().ok_or(ReadError::UnexpectedEnd)?;
        self.bytes = tail;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, ReadError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, ReadError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, ReadError> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number in groups of 7 bits, lowest first, at most 4 groups.
    pub(super) fn varint(&mut self) -> Result<u32, ReadError> {
        let mut value = 0u32;
        for shift in (0..28).step_by(7) {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(ReadError::VarintTooLong)
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], ReadError> {
        let (head, tail) = self.bytes.split_at_checked(count).ok_or(ReadError::UnexpectedEnd)?;
        self.bytes = tail;
        Ok(head)
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Writes what [`ByteReader::varint`] reads. `value` is below 2^28.
pub(super) fn write_varint(mut value: u32, out: &mut Vec<u8>) {
    debug_assert!(value < 1 << 28, "{value} does not fit in four groups");
    while value >= 0x80 {
        out.push((value as u8 & 0x7F) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`write_varint`] takes.
pub(super) fn varint_bytes(value: u32) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_delays_are_rounded_down_by_at_most_three_percent() {
        for micros in (0..258_000).step_by(61) {
            let told = AckDelay::from_micros(micros).micros().expect("not too long");
            assert!(told <= micros, "{told} is more than {micros}");
            assert!(micros - told <= 64.max(micros / 31), "{told} is far from {micros}");
        }
        assert_eq!(AckDelay::from_micros(300_000).micros(), None);
        assert_eq!(AckDelay::from_micros(u64::MAX).micros(), None);
    }

    #[test]
    fn numbers_expand_around_the_wrap() {
        assert_eq!(expand_sequence(3, 65_534), Some(65_539));
        assert_eq!(expand_sequence(65_530, 65_540), Some(65_530));
        assert_eq!(expand_sequence(65_530, 4), None);
        assert_eq!(expand_number(2, u32::MAX), 2);
        assert_eq!(expand_number(65_535, 1), u32::MAX);
    }

    #[test]
    fn varints_survive() {
        for value in [0, 1, 127, 128, 16_383, 16_384, 262_144, 2_097_151, 2_097_152, (1 << 28) - 1] {
            let mut out = Vec::new();
            write_varint(value, &mut out);
            assert_eq!(out.len(), varint_bytes(value));
            assert_eq!(ByteReader::new(&out).varint(), Ok(value));
        }
        assert_eq!(ByteReader::new(&[0xFF; 8]).varint(), Err(ReadError::VarintTooLong));
    }

    #[test]
    fn the_layout_is_as_drawn() {
        let bytes =
            [0b0011_1011, 0x34, 0x12, 2, 0b101, 9, 0, 0, 0, 7, 0, 8, 0, 1, 2, 0xAA, 0xBB, 3, 0, 1, 2, 3, 0xEE, 0];
        let payload = Payload::read(&bytes).expect("well-formed");
        let ack = payload.ack.expect("there is one");
        assert_eq!(
            ack,
            Ack { newest: 0x1234, delay: AckDelay(2), width: Width::Bits8, bits: AckBits([0b101, 0, 0, 0]) }
        );
        assert_eq!(payload.tick, ShortTick(9));
        assert_eq!(payload.input_ack, Some(7));
        assert_eq!(payload.inputs.expect("there are some").items, [2, 0xAA, 0xBB]);
        assert_eq!((payload.messages, payload.has_no_room), (&[1, 2, 3][..], Some(false)));
        assert_eq!(payload.rest, [0xEE, 0]);
        for cut in 0..bytes.len() - 2 {
            assert!(Payload::read(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_sender_without_room_says_so_as_drawn() {
        let payload = Payload::read(&[0b0010_0000, 9, 0, 0, 0, 0, 0x80]).expect("well-formed");
        assert_eq!((payload.messages, payload.has_no_room, payload.is_eliciting), (&[][..], Some(true), true));
        let payload = Payload::read(&[0b0010_0000, 9, 0, 0, 0, 1, 0x80, 7, 0xEE]).expect("well-formed");
        assert_eq!((payload.messages, payload.has_no_room, payload.rest), (&[7][..], Some(true), &[0xEE][..]));
    }

    #[test]
    fn a_wide_acknowledgement_is_as_drawn() {
        let bytes = [0b0000_0111, 0x34, 0x12, 2, 6, 0x80, 0, 0, 0, 0, 0x01, 9, 0, 0, 0];
        let ack = Payload::read(&bytes).expect("well-formed").ack.expect("there is one");
        assert_eq!(ack.width, Width::Wide(6));
        assert_eq!((1..=256).filter(|behind| ack.bits.has(*behind)).collect::<Vec<_>>(), [8, 41]);
        let mut written = Vec::new();
        ack.write(&mut written);
        assert_eq!(written, bytes[1..11]);
        for count in [0, 4, 33, 255] {
            let mut wrong = bytes.to_vec();
            wrong[4] = count;
            wrong.resize(400, 0);
            assert_eq!(Payload::read(&wrong).err(), Some(PacketError::BadAck), "{count} bytes");
        }
    }

    #[test]
    fn acknowledgement_bits_are_counted_up_to_any_distance() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let bits = AckBits(std::array::from_fn(|_| random.u64(..)));
            let nearest = random.u64(0..300);
            let counted = (1..=nearest).filter(|behind| bits.has(*behind)).count();
            assert_eq!(bits.count(nearest) as usize, counted);
            assert_eq!(AckBits::from_bytes(&bits.to_bytes()), bits);
        }
    }
}
