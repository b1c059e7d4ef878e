/// The quantised fields of one object, read only: what is compared, remembered and sent.
///
/// `words` holds [`Kind::words`](crate::Kind::words) numbers, field after field; `blobs` holds
/// [`Kind::blobs`](crate::Kind::blobs) byte strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values<'a> {
    /// The words of all fields.
    pub words: &'a [u32],
    /// The texts and byte strings of all fields.
    pub blobs: &'a [Vec<u8>],
}

/// The quantised fields of one object, to be written. Shaped like [`Values`].
#[derive(Debug, PartialEq, Eq)]
pub struct ValuesMut<'a> {
    /// The words of all fields.
    pub words: &'a mut [u32],
    /// The texts and byte strings of all fields.
    pub blobs: &'a mut [Vec<u8>],
}

impl ValuesMut<'_> {
    /// The same fields, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> ValuesMut<'_> {
        ValuesMut { words: self.words, blobs: self.blobs }
    }

    /// The same fields, read only.
    pub fn as_values(&self) -> Values<'_> {
        Values { words: self.words, blobs: self.blobs }
    }
}
