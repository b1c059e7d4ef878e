//! From messages that are due to the bytes of a connection: cut into packets, packed, framed.

use std::ops::Range;

use snap::raw::Encoder;

use crate::compression::Compression;
use crate::frame::{Dialect, HEADER_BYTES, LEGACY_HOLE, MAX_PAYLOAD_BYTES, head};
use crate::packet::Packets;

/// The result of [`PacketWriter::write`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Frames that were appended.
    pub packets: usize,
    /// Messages that are too long for any packet and were left out.
    pub dropped: usize,
}

/// Memory of an encoder: its small table, and its large one, which it makes when it first needs it.
const ENCODER_BYTES: usize = size_of::<Encoder>() + (32 << 10);

/// The sending end of a connection. It is small as long as nothing is compressed; compression takes about 40 KiB.
#[derive(Default)]
pub struct PacketWriter {
    compression: Compression,
    encoder: Option<Box<Encoder>>,
    packed: Vec<u8>,
}

impl PacketWriter {
    /// A writer that does not compress. Allocates nothing yet.
    pub fn new() -> PacketWriter {
        PacketWriter::default()
    }

    /// Takes over what the peer uses. It sticks: once a peer has sent compressed frames, it gets compressed ones.
    pub fn follow(&mut self, peer: Compression) {
        if peer != Compression::None {
            self.compression = peer;
        }
    }

    /// Bytes of memory that it takes.
    pub fn held_bytes(&self) -> usize {
        self.packed.capacity() + if self.encoder.is_some() { ENCODER_BYTES } else { 0 }
    }

    /// How payloads are packed.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Appends all of `entries`, which are concatenated as [`put_message`](crate::put_message) writes them, as frames.
    /// Does not allocate once `out` and the writer have grown.
    pub fn write(&mut self, dialect: Dialect, entries: &[u8], out: &mut Vec<u8>) -> Written {
        let mut packets = Packets::new(entries, MAX_PAYLOAD_BYTES);
        let mut written = Written::default();
        while self.write_next(dialect, &mut packets, out) {
            written.packets += 1;
        }
        written.dropped = packets.dropped();
        written
    }

    /// Appends the next frame, and no more: for transports that keep frames apart. False if nothing is left.
    pub fn write_next(&mut self, dialect: Dialect, packets: &mut Packets<'_>, out: &mut Vec<u8>) -> bool {
        let Some(packet) = packets.next_outside(dialect.hole()) else { return false };
        if self.compression == Compression::None || !self.write_packed(dialect, packet, out) {
            write_plain(dialect, packet, out);
        }
        true
    }

    /// False if it cannot be framed when it is packed: what packing makes longer than a frame may be, or of a length
    /// that would be misread. Packets that compression makes longer are sent compressed nevertheless, as in channeld.
    fn write_packed(&mut self, dialect: Dialect, packet: &[u8], out: &mut Vec<u8>) -> bool {
        self.packed.resize(snap::raw::max_compress_len(packet.len()), 0);
        let encoder = self.encoder.get_or_insert_with(|| Box::new(Encoder::new()));
        let Ok(packed_bytes) = encoder.compress(packet, &mut self.packed) else { return false };
        let Ok(head) = head(dialect, self.compression, packed_bytes) else { return false };
        out.extend_from_slice(&head);
        out.extend_from_slice(&self.packed[..packed_bytes]);
        true
    }
}

fn write_plain(dialect: Dialect, packet: &[u8], out: &mut Vec<u8>) {
    let padding_bytes = padding_bytes(dialect.hole(), packet.len());
    let head = head(dialect, Compression::None, packet.len() + padding_bytes);
    out.extend_from_slice(&head.expect("cut to a length that can be framed"));
    out.extend_from_slice(packet);
    if padding_bytes > 0 {
        put_padding(out, padding_bytes);
    }
}

/// A single message of a length that would be misread cannot be cut: it is padded out of the hole.
fn padding_bytes(hole: Range<usize>, packet_bytes: usize) -> usize {
    if hole.contains(&packet_bytes) { (hole.end - packet_bytes).max(PADDING_BYTES_MIN) } else { 0 }
}

/// An unknown field of the packet that every parser skips: number 15, with its length in two bytes.
const PADDING_KEY: u8 = 0x7A;
const PADDING_BYTES_MIN: usize = 3;
const _: () = assert!(LEGACY_HOLE.end + PADDING_BYTES_MIN < MAX_PAYLOAD_BYTES && LEGACY_HOLE.start > HEADER_BYTES);

fn put_padding(out: &mut Vec<u8>, padding_bytes: usize) {
    let rest = padding_bytes - PADDING_BYTES_MIN;
    out.extend([PADDING_KEY, (rest & 0x7F) as u8 | 0x80, (rest >> 7) as u8]);
    out.resize(out.len() + rest, 0);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::compression::decompress;
    use crate::frame::FrameReader;
    use crate::packet::{Header, Message, Messages, entry_len, put_message};

    /// The frames that a peer of this dialect reads.
    fn read_back(dialect: Dialect, bytes: &[u8]) -> Vec<Message> {
        let mut reader = FrameReader::with_dialect(dialect);
        let mut messages = Vec::new();
        for piece in bytes.chunks(1_000) {
            reader.push(piece).expect("it is taken out");
            while let Some(frame) = reader.next_frame().expect("sound frames") {
                let payload = decompress(frame.compression, frame.payload, MAX_PAYLOAD_BYTES).expect("sound payload");
                messages.extend(Messages::new(payload).map(|message| message.expect("sound packet")));
            }
        }
        assert_eq!(reader.buffered_bytes(), 0);
        messages
    }

    /// An entry of exactly `bytes`.
    fn entry(bytes: usize) -> Vec<u8> {
        let header = Header::new(3, 100);
        let body = (0..bytes as u32).find(|&body| entry_len(header, body) == bytes).expect("there is such a body");
        let mut out = Vec::new();
        put_message(&mut out, header, &(0..body).map(|index| ((index * 31) >> 3) as u8).collect::<Vec<_>>());
        out
    }

    #[test]
    fn no_cut_falls_into_the_hole_of_a_legacy_peer() {
        // Entries of which twenty to a packet would fall into the hole.
        let entries = entry(1_000).repeat(200);
        for dialect in [Dialect::Legacy, Dialect::Undecided] {
            let mut out = Vec::new();
            let written = PacketWriter::new().write(dialect, &entries[..20 * 1_000], &mut out);
            assert_eq!(written, Written { packets: 2, dropped: 0 });
            assert_eq!(read_back(Dialect::Legacy, &out).len(), 20);
        }
        let mut out = Vec::new();
        assert_eq!(PacketWriter::new().write(Dialect::Fixed, &entries[..20 * 1_000], &mut out).packets, 1);
        assert_eq!(read_back(Dialect::Fixed, &out).len(), 20);
    }

    #[test]
    fn one_message_of_every_length_around_the_hole_arrives() {
        for bytes in 0x4DF0..0x4F10 {
            let entry = entry(bytes);
            let mut out = Vec::new();
            assert_eq!(PacketWriter::new().write(Dialect::Legacy, &entry, &mut out).packets, 1, "{bytes}");
            let messages = read_back(Dialect::Legacy, &out);
            assert_eq!(messages, Messages::new(Bytes::from(entry)).map(Result::unwrap).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_packed_is_unpacked_in_both_dialects() {
        let mut entries = entry(30_000).repeat(5);
        entries.extend(entry(60));
        for dialect in [Dialect::Fixed, Dialect::Legacy] {
            let mut writer = PacketWriter::new();
            writer.follow(Compression::Snappy);
            writer.follow(Compression::None);
            assert_eq!(writer.compression(), Compression::Snappy);
            let mut out = Vec::new();
            writer.write(dialect, &entries, &mut out);
            assert!(out.len() < entries.len() / 4, "{} bytes", out.len());
            let messages = read_back(dialect, &out);
            assert_eq!(messages.len(), 6);
            assert_eq!(messages[5].body.len(), messages[5].body.iter().len());
        }
    }

    // channeld packs everything for a peer that has packed once, and so do its clients expect it.
    #[test]
    fn to_who_has_packed_once_everything_is_packed_even_if_it_gets_longer() {
        let mut writer = PacketWriter::new();
        writer.follow(Compression::Snappy);
        let mut out = Vec::new();
        writer.write(Dialect::Fixed, &[0x0A, 2, 0x20, 100], &mut out);
        // A block of snappy: 4 bytes unpacked, and 4 literal ones.
        assert_eq!(out, [0x43, 0x48, 0, 6, 1, 4, 0x0C, 0x0A, 2, 0x20, 100]);
    }

    #[test]
    fn what_would_be_longer_than_a_frame_if_packed_goes_as_it_is() {
        let mut writer = PacketWriter::new();
        writer.follow(Compression::Snappy);
        let mut noise = 1_u32;
        let body: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        })
        .take(65_523)
        .collect();
        let (mut entries, mut out) = (Vec::new(), Vec::new());
        put_message(&mut entries, Header::new(3, 100), &body);
        assert_eq!(writer.write(Dialect::Fixed, &entries, &mut out), Written { packets: 1, dropped: 0 });
        assert_eq!(out[4], 0, "not packed");
        assert_eq!(read_back(Dialect::Fixed, &out)[0].body, body);
    }

    #[test]
    fn a_message_too_long_for_a_packet_is_left_out() {
        let mut entries = entry(70);
        entries.extend(entry(65_536));
        entries.extend(entry(65_535));
        let mut out = Vec::new();
        let written = PacketWriter::new().write(Dialect::Fixed, &entries, &mut out);
        assert_eq!(written, Written { packets: 2, dropped: 1 });
        assert_eq!(read_back(Dialect::Fixed, &out).len(), 2);
    }
}
