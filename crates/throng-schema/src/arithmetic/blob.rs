use crate::Quantiser;

/// Text of at most this many bytes of UTF-8. Longer text is cut before the character that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    max_bytes: u32,
}

/// A string of at most this many bytes. Longer ones are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteString {
    max_bytes: u32,
}

impl Text {
    /// Text of at most `max_bytes` bytes.
    pub const fn new(max_bytes: u32) -> Text {
        Text { max_bytes }
    }

    /// The quantiser that this computes.
    pub const fn quantiser(self) -> Quantiser {
        Quantiser::Text { max_bytes: self.max_bytes }
    }

    /// Replaces what is in `blob`, whose memory is used again.
    pub fn store(self, text: &str, blob: &mut Vec<u8>) {
        let mut len = text.len().min(self.max_bytes as usize);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        blob.clear();
        blob.extend_from_slice(&text.as_bytes()[..len]);
    }

    /// Replaces what is in `text`, whose memory is used again. Bytes that are no UTF-8 (which decoding refuses) show
    /// as replacement characters.
    pub fn load(self, blob: &[u8], text: &mut String) {
        text.clear();
        match std::str::from_utf8(blob) {
            Ok(valid) => text.push_str(valid),
            Err(_) => text.push_str(&String::from_utf8_lossy(blob)),
        }
    }
}

impl ByteString {
    /// At most `max_bytes` bytes.
    pub const fn new(max_bytes: u32) -> ByteString {
        ByteString { max_bytes }
    }

    /// The quantiser that this computes.
    pub const fn quantiser(self) -> Quantiser {
        Quantiser::Bytes { max_bytes: self.max_bytes }
    }

    /// Replaces what is in `blob`, whose memory is used again.
    pub fn store(self, bytes: &[u8], blob: &mut Vec<u8>) {
        blob.clear();
        blob.extend_from_slice(&bytes[..bytes.len().min(self.max_bytes as usize)]);
    }

    /// Replaces what is in `bytes`, whose memory is used again.
    pub fn load(self, blob: &[u8], bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.extend_from_slice(blob);
    }
}
