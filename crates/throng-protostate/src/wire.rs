//! The protobuf wire format, as far as a merge needs it.
//!
//! ```text
//!  field = tag value         tag = varint(number << 3 | wire type)
//!  wire type 0  varint       1  8 bytes, little-endian
//!            2  varint length, then so many bytes
//!            5  4 bytes, little-endian
//!  groups (3, 4) belong to proto2 and are refused
//! ```
//!
//! Source: Protocol Buffers documentation, "Encoding".

pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const BYTES: u8 = 2;
pub(super) const FIXED32: u8 = 5;

/// Largest field number there is.
const NUMBER_MAX: u64 = (1 << 29) - 1;

#[inline]
pub(super) const fn tag(number: u32, wire: u8) -> u32 {
    number << 3 | wire as u32
}

#[inline]
pub(super) const fn wire_of(tag: u32) -> u8 {
    (tag & 7) as u8
}

/// The bytes are no protobuf message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// One value as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Raw<'a> {
    Scalar(u64),
    Bytes(&'a [u8]),
}

/// Reads a message field by field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Malformed> {
        match *self.rest {
            [first, ref rest @ ..] if first < 0x80 => {
                self.rest = rest;
                Ok(u64::from(first))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (index, &byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * index);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return if index == 9 && byte > 1 { Err(Malformed) } else { Ok(value) };
            }
        }
        Err(Malformed)
    }

    #[inline]
    pub(super) fn value(&mut self, wire: u8) -> Result<Raw<'a>, Malformed> {
        match wire {
            BYTES => {
                let length = self.varint()?;
                if length > self.rest.len() as u64 {
                    return Err(Malformed);
                }
                let (bytes, rest) = self.rest.split_at(length as usize);
                self.rest = rest;
                Ok(Raw::Bytes(bytes))
            }
            wire => self.scalar(wire).map(Raw::Scalar),
        }
    }

    #[inline]
    pub(super) fn scalar(&mut self, wire: u8) -> Result<u64, Malformed> {
        match wire {
            VARINT => self.varint(),
            FIXED32 => {
                let (bytes, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
                self.rest = rest;
                Ok(u64::from(u32::from_le_bytes(*bytes)))
            }
            FIXED64 => {
                let (bytes, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
                self.rest = rest;
                Ok(u64::from_le_bytes(*bytes))
            }
            _ => Err(Malformed),
        }
    }

    /// The next field's tag and value; `None` at the end.
    #[inline]
    pub(super) fn field(&mut self) -> Result<Option<(u32, Raw<'a>)>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        if tag >> 3 == 0 || tag >> 3 > NUMBER_MAX {
            return Err(Malformed);
        }
        let value = self.value(wire_of(tag as u32))?;
        Ok(Some((tag as u32, value)))
    }

    /// As [`Reader::field`], of bytes that were found to be well-formed: there the end is the only way to end.
    #[inline]
    pub(super) fn next(&mut self) -> Option<(u32, Raw<'a>)> {
        self.field().ok().flatten()
    }
}

#[inline]
/// Appends a number as a protobuf varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The bytes of that varint.
pub fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Writes a scalar in wire type `wire`.
#[inline]
pub(super) fn put_scalar(out: &mut Vec<u8>, wire: u8, value: u64) {
    match wire {
        FIXED32 => out.extend_from_slice(&(value as u32).to_le_bytes()),
        FIXED64 => out.extend_from_slice(&value.to_le_bytes()),
        _ => put_varint(out, value),
    }
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Begins something whose length is not known yet: one byte is kept for it. Returns the place for [`end_length`].
#[inline]
pub(super) fn begin_length(out: &mut Vec<u8>) -> usize {
    out.push(0);
    out.len()
}

/// Fills in the length of all that was written since `start`. A length that needs more than one byte is moved.
#[inline]
pub(super) fn end_length(out: &mut Vec<u8>, start: usize) {
    let length = out.len() - start;
    if length < 0x80 {
        out[start - 1] = length as u8;
    } else {
        end_long_length(out, start, length);
    }
}

fn end_long_length(out: &mut Vec<u8>, start: usize, length: usize) {
    let extra = varint_len(length as u64) - 1;
    let end = out.len();
    out.resize(end + extra, 0);
    out.copy_within(start..end, start + extra);
    let mut value = length;
    for byte in &mut out[start - 1..start + extra - 1] {
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    out[start + extra - 1] = value as u8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_come_back() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), 1 << 63, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_len(value));
            let mut reader = Reader::new(&out);
            assert_eq!(reader.varint(), Ok(value));
            assert!(reader.rest.is_empty());
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let bad: [&[u8]; 8] = [
            &[0x08],
            &[0x00, 0x00],
            &[0x0A, 0x02, 0x00],
            &[0x0B, 0x0C],
            &[0x0D, 0, 0, 0],
            &[0x09, 0, 0, 0, 0, 0, 0, 0],
            &[0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
            &[0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F],
        ];
        for bytes in bad {
            assert_eq!(Reader::new(bytes).field(), Err(Malformed), "{bytes:02X?}");
        }
    }

    #[test]
    fn lengths_of_every_size_are_filled_in() {
        for length in [0, 1, 127, 128, 300, 16_383, 16_384, 70_000] {
            let mut out = vec![0x12];
            let start = begin_length(&mut out);
            out.extend((0..length).map(|index| index as u8));
            end_length(&mut out, start);
            let Ok(Some((0x12, Raw::Bytes(bytes)))) = Reader::new(&out).field() else { panic!("length {length}") };
            assert!(bytes.iter().enumerate().all(|(index, &byte)| byte == index as u8) && bytes.len() == length);
        }
    }
}
