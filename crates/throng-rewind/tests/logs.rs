//! A shot is judged again to the same bits; a damaged log is an error.

use crate::support::{Player, about, skeleton};
use crate::verdict_log::{read_all, repaired};
use proptest::prelude::*;
use std::sync::LazyLock;
use throng_rewind::{
    BodyId, Break, Case, Convex, Escape, Latency, LogError, LogReader, LogWriter, Models, Moment, Outcome, Plane,
    Rewind, RewindOptions, Shot, Surroundings, Transform, Verdict, WorldHit, replay,
};
use throng_wire::Tick;

/// A floor at z = 0, and a body that dashes now and then.
struct Town {
    now: u64,
}

impl Surroundings for Town {
    fn closest_hit(&self, origin_m: [f64; 3], direction: [f64; 3], range_m: f64) -> Option<WorldHit> {
        let distance_m = -origin_m[2] / direction[2];
        (direction[2] < 0.0 && distance_m <= range_m).then_some(WorldHit { distance_m, surface: 4_000_000_000 })
    }

    fn escape(&self, target: BodyId) -> Option<Escape> {
        (target.0 == 2).then_some(Escape { began: Moment::new(Tick(self.now - 3), 0.5), ability: 11 })
    }
}

/// A log of all kinds of verdicts, and how many of them it holds.
fn log(seed: u64) -> (Vec<u8>, Vec<Verdict>) {
    let mut models = Models::new();
    let skeleton = models.add_skeleton(skeleton()).unwrap();
    let door = models.add_shape(Convex::cuboid([0.5, 2.0, 3.0]).unwrap()).unwrap();
    let mut rewind = Rewind::new(RewindOptions::default(), models).unwrap();
    let bodies: Vec<BodyId> = (0..6).map(|_| rewind.add_body(skeleton).unwrap()).collect();
    let mut players: Vec<Player> =
        (0..6).map(|i| Player::new(seed * 6 + i, [i as f64 * 2.0, (i % 2) as f64 * 3.0, 0.0])).collect();
    let part = rewind.add_part(door, 1).unwrap();
    let (mut writer, mut bytes, mut case, mut verdicts) = (LogWriter::new(), Vec::new(), Case::new(), Vec::new());
    let mut random = fastrand::Rng::with_seed(seed);
    for tick in 0..300 {
        for (player, body) in players.iter_mut().zip(&bodies) {
            player.step();
            rewind.record(*body, Tick(tick), &player.root(), &player.bones()).unwrap();
        }
        let turned = about([0.0, 0.0, 1.0], (tick as f32 / 40.0).sin());
        rewind.record_part(part, Tick(tick), &Transform::new([5.0, -4.0, 0.0], turned)).unwrap();
        if tick == 150 {
            // A shape that comes later, and a break.
            let tent = [[1.0, 0.0, 1.0], [-1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]];
            let tent = tent.map(|normal| Plane { normal, offset_m: 1.3 });
            let tent = rewind.models_mut().add_shape(Convex::new(&tent).unwrap()).unwrap();
            let tent = rewind.add_part(tent, 1).unwrap();
            rewind.record_part(tent, Tick(tick), &Transform::at([2.0, 8.0, 1.0])).unwrap();
            rewind.break_body(bodies[1], Tick(tick + 1), Break::Teleport);
            players[1].at = [3.0, -2.0, 0.0];
        }
        if tick < 40 {
            continue;
        }
        let aim = players[random.usize(..6)].at;
        let mut jitter = |most: f64| (random.f64() * 2.0 - 1.0) * most;
        let origin_m = [aim[0] + jitter(12.0), aim[1] + jitter(12.0), 1.6];
        let direction = [aim[0] + jitter(0.4) - origin_m[0], aim[1] + jitter(0.4) - origin_m[1], jitter(1.0) - 0.6];
        let shot = Shot {
            shooter: BodyId(9),
            now: Tick(tick),
            claim: Moment::at(Tick(tick)).before(f64::from(random.u8(..48)) + random.f64()),
            latency: Latency { rtt_us: random.u32(0..200_000), interpolation_us: 7_812 },
            origin_m,
            direction,
            range_m: 60.0,
            mask: 1,
        };
        let verdict = rewind.judge(&shot, &bodies, &Town { now: tick }, &mut case).unwrap();
        writer.append(rewind.models(), &case, &verdict, &mut bytes);
        verdicts.push(verdict);
    }
    (bytes, verdicts)
}

static LOG: LazyLock<Vec<u8>> = LazyLock::new(|| log(0).0);

#[test]
fn a_log_replays_bit_for_bit() {
    let mut kinds = [0; 4];
    throng_seeds::for_seeds(10, |seed| {
        let (bytes, verdicts) = log(seed);
        let summary = replay(&bytes).unwrap();
        assert_eq!((summary.shots, summary.identical), (verdicts.len() as u64, verdicts.len() as u64), "{summary:?}");
        assert_eq!(log(seed).0, bytes, "the same match gives the same log");
        let (mut reader, mut case) = (LogReader::new(&bytes).unwrap(), Case::new());
        for verdict in &verdicts {
            let read = reader.next(&mut case).unwrap().unwrap();
            assert_eq!((read, read.digest()), (*verdict, verdict.digest()));
            assert_eq!(read.why(reader.models()).to_string().lines().count(), 1);
            kinds[match read.outcome {
                Outcome::Hit(_) => 0,
                Outcome::Blocked(_) => 1,
                Outcome::Escaped { .. } => 2,
                Outcome::Missed(_) => 3,
            }] += 1;
        }
        assert_eq!(reader.next(&mut case), Ok(None));
    });
    println!("bytes per shot: {}", LOG.len() / 260);
    assert!(throng_seeds::is_partial() || kinds.iter().all(|count| *count > 10), "{kinds:?}");
}

#[test]
fn a_changed_verdict_is_found() {
    // The first shot is the third entry. Its verdict begins behind the entry's head; the view's tick is in it.
    let bytes = &LOG[..];
    let mut reader = LogReader::new(bytes).unwrap();
    let (mut case, mut models, mut writer, mut out) = (Case::new(), Models::new(), LogWriter::new(), Vec::new());
    for number in 0.. {
        let Some(mut verdict) = reader.next(&mut case).unwrap() else { break };
        if number == 0 {
            models = reader.models().clone();
        }
        if number == 7 {
            verdict.view.rewound_ms = verdict.view.rewound_ms.next_up();
        }
        if number < 20 {
            writer.append(&models, &case, &verdict, &mut out);
        }
    }
    let summary = replay(&out).unwrap();
    assert_eq!((summary.shots, summary.identical, summary.first_difference), (20, 19, Some(7)));
}

#[test]
fn something_else_is_no_log() {
    assert_eq!(replay(b"").unwrap_err(), LogError::NotALog);
    assert_eq!(replay(b"THRONGRX\x01\x00").unwrap_err(), LogError::NotALog);
    assert_eq!(replay(b"THRONGRW\x01").unwrap_err(), LogError::CutOff);
    assert_eq!(replay(b"THRONGRW\x02\x00").unwrap_err(), LogError::Version { version: 2 });
    assert_eq!(replay(b"THRONGRW\x01\x00").unwrap().shots, 0);
}

#[test]
fn a_verdict_with_a_time_that_is_no_number_is_refused() {
    let mut bytes = LOG.clone();
    let mut at = 10;
    // A shot that missed by far begins with a 3; behind the moment of its view is the time by which it was rewound.
    while bytes[at] != 3 || bytes[at + 5] != 3 {
        at += 13 + u32::from_le_bytes(bytes[at + 1..at + 5].try_into().unwrap()) as usize;
    }
    let rewound = at + 5 + 13..at + 5 + 21;
    let ms = f64::from_le_bytes(bytes[rewound.clone()].try_into().unwrap());
    assert!((0.0..=250.0).contains(&ms), "{ms}");
    bytes[rewound].copy_from_slice(&f64::NAN.to_le_bytes());
    assert_eq!(read_all(&repaired(bytes)), Err(LogError::Content));
}

/// The bytes of a log are a promise to whoever keeps one.
#[test]
fn the_first_entry_is_as_documented() {
    let bytes = &LOG[..];
    assert_eq!(&bytes[..10], b"THRONGRW\x01\x00");
    assert_eq!(bytes[10], 1, "a skeleton");
    let length = u32::from_le_bytes(bytes[11..15].try_into().unwrap()) as usize;
    let content = &bytes[15..15 + length];
    assert_eq!(&content[..9], b"\x14\x01\x06pelvis");
    assert_eq!(&content[9..37], [0.0, 0.0, 0.0, 0.0, 0.0, 0.12f32, 0.15].map(f32::to_le_bytes).concat());
    let mut sum = 0xCBF2_9CE4_8422_2325u64;
    for byte in &bytes[10..15 + length] {
        sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    assert_eq!(bytes[15 + length..23 + length], sum.to_le_bytes());
    assert_eq!(bytes[23 + length], 2, "a shape");
}

/// The first entries of the log, together at most so long.
fn whole_entries(most: usize) -> Vec<u8> {
    let mut at = 10;
    loop {
        let length = u32::from_le_bytes(LOG[at + 1..at + 5].try_into().unwrap()) as usize;
        if at + length + 13 > most {
            return LOG[..at].to_vec();
        }
        at += length + 13;
    }
}

proptest! {
    #![proptest_config(throng_seeds::cases(300))]

    #[test]
    fn a_log_with_any_changed_byte_is_refused(place in any::<prop::sample::Index>(), change in 1u8..) {
        let mut bytes = whole_entries(20_000);
        prop_assert!(read_all(&bytes).is_ok_and(|shots| shots > 5));
        let place = place.index(bytes.len());
        bytes[place] ^= change;
        prop_assert!(read_all(&bytes).is_err());
    }

    #[test]
    fn a_log_that_is_cut_off_gives_its_whole_entries(place in any::<prop::sample::Index>()) {
        let cut = 10 + place.index(LOG.len() - 10);
        let result = read_all(&LOG[..cut]);
        prop_assert!(matches!(result, Ok(_) | Err(LogError::CutOff)), "{:?}", result);
    }

    #[test]
    fn wrong_contents_with_right_checksums_end_in_an_error_or_in_a_verdict(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        near_begin in any::<bool>(),
    ) {
        let mut bytes = LOG[..12_000].to_vec();
        let reach = if near_begin { 1_500 } else { bytes.len() };
        for (place, value) in changes {
            bytes[place.index(reach)] = value;
        }
        let _ = read_all(&repaired(bytes));
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::verdict_log::run(&bytes);
    }
}
