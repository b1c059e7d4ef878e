//! Input logs: what is written, and any bytes in their place.

use std::io::{self, Write};
use std::sync::OnceLock;

use proptest::prelude::*;
use throng::Tick;
use throng_match::{
    InputLog, LogError, LogHead, LogWriter, ReplayError, Seat, SeatCommand, SeatLatency, Stage, TickInput,
};

use crate::balls::{Balls, RATE_HZ, Rules, Shared, World, recorded};

const TICKS: u64 = 3 * RATE_HZ as u64;

fn log() -> &'static [u8] {
    static LOG: OnceLock<Vec<u8>> = OnceLock::new();
    LOG.get_or_init(|| recorded(1, TICKS).0)
}

fn replay(log: &[u8]) -> Result<throng_match::Replayed, ReplayError> {
    InputLog::open(log).map_err(ReplayError::from)?.replay(&mut Balls::new(1, TICKS))
}

#[test]
fn another_build_game_or_map_is_refused_by_name() {
    let log = InputLog::open(log()).expect("a log");
    let line = |error: LogError| (error.tag(), error.to_string());
    let (tag, text) = line(log.check("build 2", "balls", 77).expect_err("another build"));
    assert!(tag == "build" && text.contains("build 1") && text.contains("build 2"), "{text}");
    let (tag, text) = line(log.check("build 1", "chess", 77).expect_err("another game"));
    assert!(tag == "game" && text.contains("\"balls\"") && text.contains("\"chess\""), "{text}");
    let (tag, text) = line(log.check("build 1", "balls", 78).expect_err("another map"));
    assert!(tag == "map" && text.contains("4d") && text.contains("4e"), "{text}");
}

#[test]
fn another_version_and_another_file_are_refused() {
    let mut newer = log().to_vec();
    newer[8] = 2;
    assert_eq!(InputLog::open(&newer).expect_err("newer"), LogError::Version { version: 2 });
    for bytes in [&b""[..], b"THRONG", b"MZ and more of the same"] {
        assert_eq!(InputLog::open(bytes).expect_err("no log"), LogError::NotALog);
    }
}

#[test]
fn every_cut_is_found_and_the_ticks_before_it_are_whole() {
    for length in (8..log().len()).step_by(7) {
        let error = replay(&log()[..length]).expect_err("cut short");
        let ReplayError::Log(LogError::CutShort { ticks }) = error else { panic!("{error} after {length} bytes") };
        assert!(ticks <= TICKS);
    }
    let line = replay(&log()[..log().len() - 1]).expect_err("cut short").to_string();
    assert!(line.contains("cut short after 192 whole ticks"), "{line}");
    let mut longer = log().to_vec();
    longer.push(0);
    assert_eq!(replay(&longer).expect_err("more"), ReplayError::Log(LogError::Content { ticks: TICKS }));
}

#[test]
fn every_changed_byte_is_found() {
    let mut bent = log().to_vec();
    for place in 8..bent.len() {
        let step = if place < 200 || place + 200 > bent.len() { 1 } else { 11 };
        if !place.is_multiple_of(step) {
            continue;
        }
        bent[place] ^= 1 << (place % 8);
        match replay(&bent) {
            Err(ReplayError::Log(_)) => {}
            other => panic!("byte {place}: {other:?}"),
        }
        bent[place] ^= 1 << (place % 8);
    }
    assert!(replay(&bent).is_ok(), "all bytes are back");
}

#[test]
fn blocks_that_change_places_are_found() {
    // The lengths of the head and of the first two blocks.
    let length = |at: usize| u32::from_le_bytes(log()[at..at + 4].try_into().expect("four bytes")) as usize;
    let head = 14 + length(10) + 8;
    let first = 5 + length(head + 1) + 8;
    let second = 5 + length(head + first + 1) + 8;
    let (a, b) = (head + first, head + first + second);
    let swapped = [&log()[..head], &log()[a..b], &log()[head..a], &log()[b..]].concat();
    assert_eq!(replay(&swapped).expect_err("swapped"), ReplayError::Log(LogError::Damaged { ticks: 0 }));
    let without = [&log()[..head], &log()[a..]].concat();
    assert_eq!(replay(&without).expect_err("left out"), ReplayError::Log(LogError::Damaged { ticks: 0 }));
}

proptest! {
    #![proptest_config(throng_seeds::cases(300))]

    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), head in any::<bool>()) {
        let bytes = if head { [&log()[..10], &bytes].concat() } else { bytes };
        prop_assert!(replay(&bytes).is_err());
    }

    /// Contents that no program wrote, with checksums that are right: records of any bytes.
    #[test]
    fn any_records_are_refused_or_played(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0_u8..4) {
        let head = 14 + u32::from_le_bytes(log()[10..14].try_into().expect("four bytes")) as usize + 8;
        let mut bent = log()[..head].to_vec();
        let seed = u64::from_le_bytes(bent[head - 8..].try_into().expect("eight bytes"));
        let mut block = vec![kind];
        block.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        block.extend_from_slice(&bytes);
        let checksum = xxhash_rust::xxh3::xxh3_64_with_seed(&block, seed);
        bent.extend_from_slice(&block);
        bent.extend_from_slice(&checksum.to_le_bytes());
        // The game asserts what a runtime promises, and a log that breaks the promise is an error too.
        prop_assert!(replay(&bent).is_err());
    }
}

#[test]
fn golden_bytes() {
    let sink = Shared::default();
    let head = LogHead {
        build: "b".into(),
        game: "g".into(),
        seed: 2,
        map_checksum: 3,
        rate_hz: 128,
        seats: 10,
        first_tick: Tick(1),
        settings: vec![0xEE],
    };
    let mut log = LogWriter::begin(Box::new(sink.clone()), &head).expect("memory");
    let commands = [SeatCommand { seat: Seat(4), number: 7, bytes: &[1, 2] }];
    let latencies = [SeatLatency { seat: Seat(4), rtt_us: 1_000 }];
    let (joined, left) = ([Seat(4), Seat(5)], [Seat(0)]);
    log.record(&TickInput { tick: Tick(1), joined: &joined, left: &left, commands: &commands, latencies: &latencies });
    log.record(&TickInput { tick: Tick(2), latencies: &latencies, ..TickInput::default() });
    log.digest(5);
    log.finish(6, true, Some("won")).expect("memory");
    let hex: String = sink.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = [
        "5448524f4e47494c 0100 25000000",
        "0100 62 0100 67 0200000000000000 0300000000000000 80000000 0a00 0100000000000000 ee",
        "face3700309fb50d",
        "01 28000000",
        "0f 0200 0400 0500 0100 0000 0100 0400 07000000 02 0102 0100 0400 0a000000",
        "00",
        "80 0500000000000000",
        "3747b6b70392ce55",
        "02 14000000 0200000000000000 0600000000000000 01 776f6e",
        "b425f3677e27a009",
    ];
    assert_eq!(hex, expected.concat().replace(' ', ""));
}

#[test]
fn a_tick_that_has_no_room_in_a_record_ends_the_log_before_it_with_an_error() {
    let head = LogHead {
        build: "b".into(),
        game: "g".into(),
        seed: 2,
        map_checksum: 0,
        rate_hz: 128,
        seats: 10,
        first_tick: Tick(1),
        settings: Vec::new(),
    };
    let command = |bytes| SeatCommand { seat: Seat(4), number: 7, bytes };
    let (longest, too_long) = ([command(&[1; 255])], [command(&[1; 256])]);
    let (most, too_many) = (vec![command(&[]); 65_535], vec![command(&[]); 65_536]);
    fn tick<'a>(number: u64, commands: &'a [SeatCommand<'a>]) -> TickInput<'a> {
        TickInput { tick: Tick(number), commands, ..TickInput::default() }
    }
    for (refused, reason) in [(&too_long[..], "256 bytes"), (&too_many, "65536")] {
        let written = |last: Option<&[SeatCommand<'_>]>| {
            let sink = Shared::default();
            let mut log = LogWriter::begin(Box::new(sink.clone()), &head).expect("memory");
            log.record(&tick(1, &longest));
            log.record(&tick(2, &most));
            assert!(log.error().is_none());
            log.record(&tick(3, &[]));
            last.into_iter().for_each(|last| log.record(&tick(4, last)));
            assert_eq!(log.ticks(), 3);
            let result = log.abandon();
            (result.map_err(|error| error.to_string()), sink.bytes())
        };
        let (result, bytes) = written(Some(refused));
        assert!(result.clone().is_err_and(|error| error.contains(reason)), "{result:?}");
        assert_eq!(bytes, written(None).1, "the log has the ticks before it, and nothing of it");
    }
}

/// A disk that is full after so many bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.checked_sub(bytes.len()) {
            Some(left) => self.0 = left,
            None => return Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is full")),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_ends_the_log_and_not_the_match() {
    let mut world = World::new(Balls::new(1, 200), Rules { sink: Some(Box::new(Full(300))), ..Rules::default() });
    world.come(1);
    while world.step(|_| &[&[1, 1]]) != Stage::Ended {}
    let end = world.game.end().expect("it has ended");
    assert!(end.error.is_none() && end.outcome.is_some());
    assert!(end.to_string().ends_with("(its input log is incomplete: the disk is full)"), "{end}");
}
