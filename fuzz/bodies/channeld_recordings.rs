//! Recorded sessions: any bytes, and genuine recordings, whole, bent or cut off.

use throng_channeld::replay::{Recorded, ReplayError, ReplayReader, ReplayWriter};
use throng_channeld::{Header, put_message};

use super::choices::Choices;

/// More than any input makes.
const LIMIT_BYTES: u64 = 1 << 30;

pub(crate) fn run(input: &[u8]) {
    read(input);
    let mut choices = Choices::new(input);
    let genuine = some_packets(&mut choices);
    let mut file = write(&genuine);
    assert_eq!(read(&file), genuine, "what was written is read");
    let cut = choices.number() as usize % (file.len() + 1);
    let before_the_cut = read(&file[..cut]);
    assert!(genuine.starts_with(&before_the_cut), "what comes before a cut is good");
    choices.bend(&mut file);
    read(&file);
}

/// Reads to the end. Accepted recordings are written and read as the same again.
fn read(file: &[u8]) -> Vec<Recorded> {
    let mut reader = ReplayReader::new(file);
    let mut accepted = Vec::new();
    for entry in reader.by_ref() {
        match entry {
            Ok(recorded) => {
                assert!(recorded.messages().all(|message| message.is_ok()), "packets are looked at before");
                accepted.push(recorded);
            }
            Err(error) => assert!(!error.tag().is_empty() && !matches!(error, ReplayError::Full { .. })),
        }
    }
    assert!(reader.next().is_none(), "after an error it is at its end");
    assert!(accepted.len() <= file.len() / 2, "each takes two bytes at least");
    if !accepted.is_empty() {
        let again: Result<Vec<Recorded>, ReplayError> = ReplayReader::new(&write(&accepted)[..]).collect();
        assert_eq!(again.expect("what we write is sound"), accepted);
    }
    accepted
}

fn write(packets: &[Recorded]) -> Vec<u8> {
    let mut writer = ReplayWriter::new(Vec::new(), LIMIT_BYTES);
    for Recorded { offset_ns, packet } in packets {
        writer.write(*offset_ns, packet).expect("it is short");
    }
    let written_bytes = writer.written_bytes();
    let file = writer.finish().expect("memory does not fail");
    assert_eq!(file.len() as u64, written_bytes);
    file
}

fn some_packets(choices: &mut Choices<'_>) -> Vec<Recorded> {
    let packet = |choices: &mut Choices<'_>| {
        let mut packet = Vec::new();
        for _ in 0..choices.below(4) {
            let header = Header::new(choices.number(), u32::from(choices.byte()));
            let count = choices.below(200);
            put_message(&mut packet, header, choices.bytes(count));
        }
        let offset_ns = i64::from(choices.number()) << choices.below(32);
        Recorded { offset_ns, packet: packet.into() }
    };
    (0..choices.below(5)).map(|_| packet(choices)).collect()
}
