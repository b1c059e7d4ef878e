//! Every single packet of a join lost, every pair of them, each doubled, and each overtaken by its successors.

use std::time::Duration;

use super::stage::{Fate, Fates, Kind, Stage};
use throng::net::{Condition, MemoryNetwork};

const PATIENCE: Duration = Duration::from_secs(20);

fn stage(kind: Kind, fates: &[(usize, Fate)]) -> Stage {
    let condition = Condition { delay_us: 20_000, ..Condition::NONE };
    let network = MemoryNetwork::new(condition, 1).expect("a good condition");
    Stage::new(&network, kind, Fates::new(fates.iter().copied()))
}

/// Datagrams until both ends have received the other's first messages, if nothing is lost.
fn packets_of_a_join(kind: Kind) -> usize {
    let mut stage = stage(kind, &[]);
    while !stage.have_spoken() {
        stage.step().expect("nothing goes wrong");
        assert!(stage.fates.count() < 200, "nobody joins");
    }
    stage.fates.count()
}

fn check(kind: Kind, fates: &[(usize, Fate)]) {
    let mut stage = stage(kind, fates);
    if let Err(fault) = stage.play(PATIENCE) {
        panic!("{kind:?} with {fates:?}: {fault}");
    }
    assert_eq!(stage.ended(), None, "{kind:?} with {fates:?}");
}

fn check_all(kind: Kind) {
    let packets = packets_of_a_join(kind);
    assert!((8..=24).contains(&packets), "{packets} packets in a join");
    check(kind, &[]);
    for first in 0..packets {
        check(kind, &[(first, Fate::Lost)]);
        check(kind, &[(first, Fate::Doubled)]);
        for second in first + 1..packets {
            check(kind, &[(first, Fate::Lost), (second, Fate::Lost)]);
        }
        for by in 1..=6 {
            check(kind, &[(first, Fate::Overtaken(by))]);
        }
        for second in (first + 1..packets).take(4) {
            check(kind, &[(first, Fate::Overtaken(2)), (second, Fate::Lost)]);
        }
    }
}

#[test]
fn whatever_packets_of_a_join_are_lost_or_overtaken_each_first_word_comes_once() {
    check_all(Kind::WithDriver);
}

#[test]
fn the_same_holds_for_a_client_core_in_its_documented_order() {
    check_all(Kind::Core);
}
