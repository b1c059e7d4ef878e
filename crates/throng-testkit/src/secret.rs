//! Finding a pattern of bits wherever it lies, also across bytes.

/// The first bit of `haystack` from which on it holds the `bits` lowest bits of `needle`, lowest bit first.
///
/// # Panics
/// If `needle` has fewer bits, or more than 64 are asked for.
pub fn find_bits(haystack: &[u8], needle: &[u8], bits: usize) -> Option<usize> {
    assert!((1..=64).contains(&bits) && bits <= needle.len() * 8, "a needle of {bits} bits");
    let pattern = window(needle, bits);
    let mut seen = 0u64;
    for at in 0..haystack.len() * 8 {
        let bit = u64::from(haystack[at / 8] >> (at % 8) & 1);
        seen = seen >> 1 | bit << (bits - 1);
        if at + 1 >= bits && seen == pattern {
            return Some(at + 1 - bits);
        }
    }
    None
}

/// The first bit from which on `haystack` holds all of `needle`, at any of the eight alignments.
///
/// # Panics
/// If `needle` is empty or longer than 8 bytes.
pub fn find_shifted(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    find_bits(haystack, needle, needle.len() * 8)
}

fn window(bytes: &[u8], bits: usize) -> u64 {
    (0..bits).fold(0, |word, at| word | u64::from(bytes[at / 8] >> (at % 8) & 1) << at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_wire::BitWriter;

    #[test]
    fn a_needle_is_found_at_every_alignment_and_only_where_it_is() {
        let needle = *b"SECRET!?";
        for shift in 0..40u32 {
            let mut bytes = Vec::new();
            let mut w = BitWriter::new(&mut bytes);
            for at in 0..shift {
                w.write(u64::from(at % 3 == 0), 1);
            }
            w.write_bytes(&needle);
            w.write(5, 3);
            w.finish();
            assert_eq!(find_shifted(&bytes, &needle), Some(shift as usize));
            assert_eq!(find_shifted(&bytes, b"SECRET!!"), None);
        }
        assert_eq!(find_shifted(&needle[..7], &needle), None);
        assert_eq!(find_shifted(&[], &needle), None);
    }
}
