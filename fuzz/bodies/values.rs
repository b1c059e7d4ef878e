//! Typed messages and inputs: a kind's number and all of its fields.

use throng_schema::{Schema, Space, ValuesMut};
use throng_wire::{BitReader, BitWriter, KindId};

/// Every value that is read can be written, and is then read as the same.
pub(crate) fn run(schema: &Schema, input: &[u8]) {
    let mut r = BitReader::new(input);
    let Ok(number) = r.read_varint() else { return };
    let Some(kind) = u16::try_from(number).ok().and_then(|number| schema.get(KindId(number))) else { return };
    let (mut words, mut blobs) = kind.empty_values();
    let mut values = ValuesMut { words: &mut words, blobs: &mut blobs };
    if let Err(error) = kind.decode(kind.all_mask(), values.reborrow(), &Space::WORLD, &mut r) {
        assert!(!error.tag().is_empty());
        return;
    }
    let mut written = Vec::new();
    let mut w = BitWriter::new(&mut written);
    kind.encode(kind.all_mask(), values.as_values(), &Space::WORLD, &mut w);
    w.finish();
    assert!(written.len() <= input.len(), "{} bytes became {}", input.len(), written.len());
    let (mut words, mut blobs) = kind.empty_values();
    let mut again = ValuesMut { words: &mut words, blobs: &mut blobs };
    let read = kind.decode(kind.all_mask(), again.reborrow(), &Space::WORLD, &mut BitReader::new(&written));
    assert_eq!(read, Ok(()));
    assert_eq!(kind.compare(values.as_values(), again.as_values()), 0);
}
