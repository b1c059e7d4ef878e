//! Payload compression: none, or snappy's raw block format (not its stream format).
//!
//! A snappy block begins with the length of what it unpacks to. That length is a peer's word: it is compared with a
//! limit before anything is allocated.

use bytes::Bytes;

/// How a payload is packed: the fifth byte of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// As it is.
    #[default]
    None,
    /// A snappy block.
    Snappy,
}

impl Compression {
    /// Undefined values mean that the payload is not compressed.
    pub const fn from_byte(byte: u8) -> Compression {
        match byte {
            1 => Compression::Snappy,
            _ => Compression::None,
        }
    }

    /// The value in the frame.
    pub const fn to_byte(self) -> u8 {
        self as u8
    }
}

/// A payload that cannot be unpacked. The peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompressionError {
    /// It would unpack to more than we take. Nothing was allocated.
    #[error("unpacks to {declared_bytes} bytes, more than {limit_bytes}")]
    TooLong {
        /// The length that the payload claims.
        declared_bytes: usize,
        /// The length that we take.
        limit_bytes: usize,
    },
    /// It is no snappy block.
    #[error("not a snappy block")]
    Malformed,
}

impl CompressionError {
    /// A stable name for metrics and logs.
    pub fn tag(&self) -> &'static str {
        match self {
            CompressionError::TooLong { .. } => "unpacked_too_long",
            CompressionError::Malformed => "snappy_malformed",
        }
    }
}

/// Unpacks a payload into at most `limit_bytes`. One that is not compressed is returned as it is.
///
/// # Errors
/// The payload claims to be longer, or is malformed.
pub fn decompress(compression: Compression, payload: Bytes, limit_bytes: usize) -> Result<Bytes, CompressionError> {
    match compression {
        Compression::None => Ok(payload),
        Compression::Snappy => decompress_block(&payload, limit_bytes).map(Bytes::from),
    }
}

fn decompress_block(block: &[u8], limit_bytes: usize) -> Result<Vec<u8>, CompressionError> {
    let declared_bytes = snap::raw::decompress_len(block).map_err(|_| CompressionError::Malformed)?;
    if declared_bytes > limit_bytes {
        return Err(CompressionError::TooLong { declared_bytes, limit_bytes });
    }
    let mut unpacked = vec![0; declared_bytes];
    let written =
        snap::raw::Decoder::new().decompress(block, &mut unpacked).map_err(|_| CompressionError::Malformed)?;
    unpacked.truncate(written);
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_kinds_are_not_compressed() {
        assert_eq!(Compression::from_byte(2), Compression::None);
        assert_eq!(Compression::from_byte(Compression::Snappy.to_byte()), Compression::Snappy);
        let payload = Bytes::from_static(b"as it is");
        assert_eq!(decompress(Compression::None, payload.clone(), 0), Ok(payload));
    }

    #[test]
    fn a_block_is_unpacked() {
        // Length 5, then a literal of 5 bytes.
        let block = Bytes::from_static(b"\x05\x10hello");
        assert_eq!(decompress(Compression::Snappy, block, 5).as_deref(), Ok(&b"hello"[..]));
    }

    #[test]
    fn a_claimed_length_is_not_trusted() {
        // Twelve bytes that claim to unpack to 4 GiB.
        let bomb = Bytes::from_static(&[0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0, 0, 0, 0, 0, 0, 0]);
        let error = decompress(Compression::Snappy, bomb, 65_535).unwrap_err();
        assert_eq!(error, CompressionError::TooLong { declared_bytes: u32::MAX as usize, limit_bytes: 65_535 });
        assert_eq!(error.tag(), "unpacked_too_long");
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for bad in [&b""[..], b"\x05\x10hell", b"\x02\x10hello", b"\xFF\xFF\xFF\xFF\xFF\xFF"] {
            let result = decompress(Compression::Snappy, Bytes::copy_from_slice(bad), 1 << 20);
            assert_eq!(result, Err(CompressionError::Malformed));
        }
    }
}
