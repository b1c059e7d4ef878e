//! Logs of verdicts.

use throng_rewind::{Case, LogError, LogReader};

/// A log is read up to its end or to an error that comes again; what is read can be judged, and its text is one line.
pub(crate) fn run(input: &[u8]) {
    let _ = read_all(input);
    let _ = read_all(&repaired([b"THRONGRW\x01\x00", input].concat()));
}

/// The number of shots in a log.
pub(crate) fn read_all(bytes: &[u8]) -> Result<u64, LogError> {
    let (mut reader, mut case, mut shots) = (LogReader::new(bytes)?, Case::new(), 0);
    loop {
        match reader.next(&mut case) {
            Ok(None) => return Ok(shots),
            Ok(Some(verdict)) => {
                case.judge_again(reader.models()).expect("a case that was read holds a valid shot");
                let why = verdict.why(reader.models()).to_string();
                assert!(!why.contains('\n'), "{why:?} forges a line in a log");
                shots += 1;
            }
            Err(error) => {
                assert_eq!(reader.next(&mut case), Err(error));
                return Err(error);
            }
        }
    }
}

/// The same bytes with the checksums of all entries put right.
pub(crate) fn repaired(mut bytes: Vec<u8>) -> Vec<u8> {
    const HEAD: usize = 10;
    let mut at = HEAD;
    while at + 5 <= bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 1..at + 5].try_into().expect("four bytes")) as usize;
        let end = at + 5 + length;
        if end + 8 > bytes.len() {
            break;
        }
        let mut sum = 0xCBF2_9CE4_8422_2325u64;
        for byte in &bytes[at..end] {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        bytes[end..end + 8].copy_from_slice(&sum.to_le_bytes());
        at = end + 8;
    }
    bytes
}
