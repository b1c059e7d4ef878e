//! Frames of channeld's protocol: any bytes in any pieces, and genuine frames, bent or not, in both dialects.

use throng_channeld::{
    Compression, CompressionError, Dialect, FrameReader, Header, Message, Messages, PacketWriter, decompress,
    put_message,
};

use super::choices::Choices;

/// Most bytes of an unpacked payload.
const UNPACKED_BYTES: usize = 100_000;
/// Most bytes that a reader may hold: two of the longest frames.
const HELD_BYTES: usize = 2 * (5 + 65_535);

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    match choices.byte() & 3 {
        0 => anything(&mut choices),
        how => genuine(&mut choices, how == 3),
    }
}

fn anything(choices: &mut Choices<'_>) {
    let mut reader = FrameReader::with_limit(1 + 8 * usize::from(choices.byte()));
    while !choices.is_empty() {
        let count = choices.below(256);
        if !take(&mut reader, choices.bytes(count), &mut Vec::new()) {
            return;
        }
    }
}

/// Pushes bytes and takes out what is whole. False after an error.
fn take(reader: &mut FrameReader, bytes: &[u8], messages: &mut Vec<Message>) -> bool {
    let dialect = reader.dialect();
    if reader.push(bytes).is_err() {
        return false;
    }
    loop {
        assert!(reader.buffered_bytes() <= HELD_BYTES);
        match reader.next_frame() {
            Ok(None) => break,
            Ok(Some(frame)) => {
                assert!(!frame.payload.is_empty() && frame.payload.len() <= 65_535);
                match decompress(frame.compression, frame.payload, UNPACKED_BYTES) {
                    Ok(payload) => {
                        assert!(payload.len() <= UNPACKED_BYTES);
                        messages.extend(Messages::new(payload).map_while(Result::ok));
                    }
                    Err(error) => assert!(matches!(
                        error,
                        CompressionError::Malformed | CompressionError::TooLong { limit_bytes: UNPACKED_BYTES, .. }
                    )),
                }
            }
            Err(error) => {
                assert!(!error.tag().is_empty());
                return false;
            }
        }
    }
    assert!(dialect == Dialect::Undecided || dialect == reader.dialect(), "a dialect never changes");
    true
}

/// Everything written in a dialect can be read in it, whether the reader knew the dialect before or not.
fn genuine(choices: &mut Choices<'_>, bends: bool) {
    let dialect = if choices.byte() & 1 == 0 { Dialect::Fixed } else { Dialect::Legacy };
    let mut writer = PacketWriter::new();
    writer.follow(Compression::from_byte(choices.byte() & 1));
    let (mut bytes, mut sent) = (Vec::new(), Vec::new());
    while !choices.is_empty() {
        let mut entries = Vec::new();
        for _ in 0..=choices.below(4) {
            let header = Header { channel_id: choices.number(), stub_id: choices.byte().into(), ..Header::new(0, 100) };
            let body = vec![choices.byte(); usize::from(choices.byte()) * [0, 1, 80, 240][choices.below(4)]];
            put_message(&mut entries, header, &body);
            sent.push((header, body));
        }
        assert_eq!(writer.write(dialect, &entries, &mut bytes).dropped, 0);
        if bytes.len() > 1 << 20 {
            break;
        }
    }
    if bends {
        choices.bend(&mut bytes);
        bend_heads(&mut bytes);
    }
    for mut reader in [FrameReader::new(), FrameReader::with_dialect(dialect)] {
        let mut messages = Vec::new();
        let is_sound = bytes.chunks(999).all(|piece| take(&mut reader, piece, &mut messages));
        if !bends {
            assert!(is_sound && reader.buffered_bytes() == 0);
            assert!(messages.iter().map(|message| (message.header(), message.body.to_vec())).eq(sent.iter().cloned()));
        }
    }
}

/// A byte at the place where the length often is.
fn bend_heads(bytes: &mut [u8]) {
    if let [_, _, _, low, ..] = bytes {
        *low = low.wrapping_add(1);
    }
}
