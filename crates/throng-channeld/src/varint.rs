//! Protobuf's variable-length numbers.

/// Appends a number, seven bits to a byte, lowest first.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The bytes that [`put`] appends.
pub(crate) const fn len(value: u32) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        0x20_0000..0x1000_0000 => 4,
        _ => 5,
    }
}

/// Takes a number from the front of `bytes`. `None` if it does not end, or is longer than ten bytes, or does not fit
/// into 64 bits.
#[inline]
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(u64::from(first));
    }
    take_long(bytes)
}

fn take_long(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        if index == 9 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7F) << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_agree_with_what_is_written() {
        for value in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455, 268_435_456, u32::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(out.len(), len(value), "{value}");
            let mut rest = &out[..];
            assert_eq!(take(&mut rest), Some(u64::from(value)));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn numbers_end_within_ten_bytes() {
        let mut endless = &[0xFF; 12][..];
        assert_eq!(take(&mut endless), None);
        let mut largest = &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1][..];
        assert_eq!(take(&mut largest), Some(u64::MAX));
        let mut too_large = &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2][..];
        assert_eq!(take(&mut too_large), None);
        assert_eq!(take(&mut &[0x80][..]), None);
    }
}
