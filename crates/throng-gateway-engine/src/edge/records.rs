//! Frames, written and read record by record. A reader of protobuf takes them for [`UpFrame`](super::UpFrame) and
//! [`DownFrame`](super::DownFrame). The trees of messages that these types are would be made and thrown away hundreds of times a second.
//!
//! ```text
//!  frame    record...  number...           in any order
//!  record   key  length  client?  content  one Up or Down
//!  client   08 varint                      not if it is 0
//!  content  key  length  bytes             or what prost writes of it
//! ```

use std::collections::VecDeque;

use bytes::Bytes;
use prost::Message;
use throng_channeld::{Field, take_field};
use throng_protostate::{put_varint, varint_len};

use super::{EdgeFault, FRAME_FULL_BYTES};

/// The number of the field with the records in an [`UpFrame`](super::UpFrame).
pub(crate) const UP: u32 = 1;
/// The same in a [`DownFrame`](super::DownFrame).
pub(crate) const DOWN: u32 = 2;

// Numbers of further fields: of an `UpFrame`, a `DownFrame`, and both kinds of records.
pub(crate) const UP_IS_LAST: u32 = 2;
pub(crate) const TURN: u32 = 1;
pub(crate) const IS_LAST: u32 = 3;
pub(crate) const FIRST_TURN: u32 = 4;
const CLIENT: u32 = 1;
pub(crate) const SAID: u32 = 3;
pub(crate) const ENTRIES: u32 = 2;
pub(crate) const CHANGES: u32 = 7;

const VARINT: u32 = 0;
const BYTES: u32 = 2;

/// Room that is kept for the next step.
const KEPT_BYTES: usize = 256 << 10;

/// Appends a key. All our fields have numbers below 16.
fn put_key(number: u32, wire: u32, out: &mut Vec<u8>) {
    debug_assert!(number < 16, "its key is one byte");
    out.push((number << 3 | wire) as u8);
}

/// Appends a field with a number.
pub(crate) fn put_number(number: u32, value: u64, out: &mut Vec<u8>) {
    put_key(number, VARINT, out);
    put_varint(out, value);
}

/// The same, unless it is 0, which a field that is not there means.
pub(crate) fn put_nonzero(number: u32, value: u64, out: &mut Vec<u8>) {
    if value != 0 {
        put_number(number, value, out);
    }
}

/// The bytes that [`put_nonzero`] appends.
pub(crate) fn nonzero_len(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + varint_len(value) }
}

/// Appends the beginning of a field of so many bytes.
pub(crate) fn begin_bytes(number: u32, length: usize, out: &mut Vec<u8>) {
    put_key(number, BYTES, out);
    put_varint(out, length as u64);
}

/// The bytes of such a field, with its beginning.
pub(crate) fn bytes_len(length: usize) -> usize {
    1 + varint_len(length as u64) + length
}

/// Records that wait for the frame of this step.
#[derive(Debug)]
pub(crate) struct Records {
    field: u32,
    bytes: Vec<u8>,
    /// Everything before this was moved.
    begin: usize,
    /// Where records end that fill a frame.
    cuts: VecDeque<usize>,
}

impl Records {
    /// For the field of this number: [`UP`] or [`DOWN`].
    pub(crate) fn new(field: u32) -> Records {
        Records { field, bytes: Vec::new(), begin: 0, cuts: VecDeque::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of the records that wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.begin
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.begin = 0;
        self.cuts.clear();
    }

    /// Appends a record.
    pub(crate) fn push(&mut self, record: &impl Message) {
        self.put(record.encoded_len(), |out| record.encode(out).expect("a vector has room"));
    }

    /// Appends a record about a client, or about none if that is 0. Its content is a field of `length` bytes, which `write` appends.
    pub(crate) fn push_bytes(&mut self, client: u64, number: u32, length: usize, write: impl FnOnce(&mut Vec<u8>)) {
        self.put(nonzero_len(client) + bytes_len(length), |out| {
            put_nonzero(CLIENT, client, out);
            begin_bytes(number, length, out);
            write(out);
        });
    }

    fn put(&mut self, length: usize, write: impl FnOnce(&mut Vec<u8>)) {
        begin_bytes(self.field, length, &mut self.bytes);
        let begin = self.bytes.len();
        write(&mut self.bytes);
        debug_assert_eq!(self.bytes.len() - begin, length);
        let piece = self.cuts.back().copied().unwrap_or(self.begin);
        if self.bytes.len() - piece >= FRAME_FULL_BYTES {
            self.cuts.push_back(self.bytes.len());
        }
    }

    /// Appends the records that fill a frame, or all that there are, to a frame. False if there are none.
    pub(crate) fn move_to(&mut self, frame: &mut Vec<u8>) -> bool {
        if self.bytes.is_empty() {
            return false;
        }
        let end = self.cuts.pop_front().unwrap_or(self.bytes.len());
        frame.extend_from_slice(&self.bytes[self.begin..end]);
        self.begin = end;
        if end == self.bytes.len() {
            self.clear();
        }
        true
    }
}

/// A field of a frame.
pub(crate) enum FrameField {
    Record(Bytes),
    /// A number, and the number of its field.
    Number(u32, u64),
}

/// The fields of a frame, in order. Fields that are neither records nor numbers are left out.
#[derive(Clone)]
pub(crate) struct FrameFields {
    field: u32,
    frame: Bytes,
    at: usize,
}

impl FrameFields {
    /// Of a frame whose records are in this field: [`UP`] or [`DOWN`].
    pub(crate) fn new(field: u32, frame: Bytes) -> FrameFields {
        FrameFields { field, frame, at: 0 }
    }

    fn read(&mut self) -> Result<Option<FrameField>, EdgeFault> {
        let mut rest = &self.frame[self.at..];
        while !rest.is_empty() {
            let field = match take_field(&mut rest).map_err(|_| EdgeFault::Malformed)? {
                Field::Bytes(number, record) if number == self.field => {
                    FrameField::Record(self.frame.slice_ref(record))
                }
                Field::Number(number, value) => FrameField::Number(number, value),
                _ => continue,
            };
            self.at = self.frame.len() - rest.len();
            return Ok(Some(field));
        }
        self.at = self.frame.len();
        Ok(None)
    }
}

impl Iterator for FrameFields {
    type Item = Result<FrameField, EdgeFault>;

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.read();
        if field.is_err() {
            self.at = self.frame.len();
        }
        field.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Down, DownFrame, Up, UpFrame, down, up};
    use super::*;

    fn records(count: usize, bytes: usize) -> Vec<Down> {
        let what = |number: usize| down::What::Entries(vec![number as u8; bytes].into());
        (0..count).map(|number| Down { client: number as u64 * 100, what: Some(what(number)) }).collect()
    }

    #[test]
    fn the_bytes_are_those_of_the_frame_as_a_message() {
        let expected = UpFrame {
            records: vec![
                Up { client: 1 << 40 | 3, what: Some(up::What::Said(Bytes::from_static(b"entries"))) },
                Up { client: 0, what: Some(up::What::Said(Bytes::new())) },
                Up { client: 300, what: Some(up::What::Opened("203.0.113.7:40000".into())) },
            ],
            is_last: false,
        };
        let mut written = Records::new(UP);
        written.push_bytes(1 << 40 | 3, 3, 7, |out| out.extend_from_slice(b"entries"));
        written.push_bytes(0, 3, 0, |_| {});
        written.push(&expected.records[2]);
        let mut frame = Vec::new();
        assert!(written.move_to(&mut frame) && frame == expected.encode_to_vec());
        assert!(written.is_empty() && !written.move_to(&mut frame) && frame.len() == expected.encoded_len());
    }

    #[test]
    fn a_frame_is_read_as_the_message_that_it_is() {
        let expected = DownFrame { turn: Some(1 << 50), records: records(200, 3), is_last: true, first_turn: Some(1) };
        let mut read = DownFrame::default();
        for field in FrameFields::new(DOWN, expected.encode_to_vec().into()) {
            match field.expect("it is sound") {
                FrameField::Record(record) => read.records.push(Down::decode(record).expect("it is sound")),
                FrameField::Number(1, turn) => read.turn = Some(turn),
                FrameField::Number(3, is_last) => read.is_last = is_last != 0,
                FrameField::Number(4, turn) => read.first_turn = Some(turn),
                FrameField::Number(number, _) => panic!("field {number}"),
            }
        }
        assert_eq!(read, expected);
    }

    #[test]
    fn a_frame_that_ends_within_a_field_is_a_fault_and_ends_there() {
        let encoded = |count| DownFrame { records: records(count, 10), ..DownFrame::default() }.encode_to_vec();
        let whole = encoded(2);
        for length in 1..whole.len() {
            let fields: Vec<_> = FrameFields::new(DOWN, Bytes::copy_from_slice(&whole[..length])).collect();
            let is_between = length == encoded(1).len();
            assert!(fields.len() <= 2 && fields.last().is_some_and(Result::is_ok) == is_between, "{length}");
        }
    }

    #[test]
    fn records_are_cut_into_pieces_of_about_a_full_frame_and_none_is_lost() {
        let all = records(20, FRAME_FULL_BYTES / 4);
        let mut written = Records::new(DOWN);
        all.iter().for_each(|record| written.push(record));
        let mut read = Vec::new();
        let mut piece = Vec::new();
        while written.move_to(&mut piece) {
            assert!(piece.len() < 2 * FRAME_FULL_BYTES, "{}", piece.len());
            read.extend(DownFrame::decode(&piece[..]).expect("it is cut between records").records);
            piece.clear();
        }
        assert!(read == all && written.cuts.is_empty() && written.bytes.capacity() <= KEPT_BYTES);
    }
}
