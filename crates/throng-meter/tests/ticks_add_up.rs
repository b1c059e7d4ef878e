//! The parts of a tick add up to the tick, whatever happens in it.

use throng_meter::{Lap, MAX_DEPTH, Subsystem, TickMeter, TickRecord};

fn sum(record: &TickRecord) -> u64 {
    record.subsystem_ns.iter().sum()
}

fn any_subsystem(random: &mut fastrand::Rng) -> Subsystem {
    Subsystem::STAGES[random.usize(..Subsystem::STAGES.len())]
}

/// A random number of up to `bits` bits, small ones as likely as large ones.
fn any_size(random: &mut fastrand::Rng, bits: u32) -> u64 {
    let shift = random.u32(64 - bits..64);
    random.u64(..) >> shift
}

#[test]
fn random_ticks_add_up_exactly() {
    throng_seeds::for_seeds(2_000, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut meter = TickMeter::new();
        let mut now_ns = random.u64(..1 << 40);
        let start_ns = now_ns;
        meter.begin(9, now_ns);
        for _ in 0..random.u32(..60) {
            match random.u32(..14) {
                0..4 => now_ns += any_size(&mut random, 30),
                4..6 => meter.enter(any_subsystem(&mut random), now_ns),
                6 => meter.enter(any_subsystem(&mut random), now_ns.saturating_sub(5_000)),
                7 => meter.claim(any_subsystem(&mut random), any_size(&mut random, 64)),
                8..11 => meter.push(any_subsystem(&mut random), now_ns),
                11..13 => meter.pop(now_ns),
                _ => {
                    let mut lap = Lap::new();
                    lap.enter(any_subsystem(&mut random), 5);
                    lap.enter(any_subsystem(&mut random), random.u64(..1 << 20));
                    lap.pause(random.u64(..1 << 21));
                    meter.merge(&lap);
                }
            }
        }
        let record = *meter.end(now_ns);
        assert_eq!(record.total_ns, now_ns - start_ns, "seed {seed}");
        assert_eq!(sum(&record), record.total_ns, "seed {seed}: {record:?}");
        assert_eq!((record.tick, record.start_ns), (9, start_ns), "seed {seed}");
    });
}

/// Time charged to a subsystem by the plainest means: each nanosecond is given to the innermost scope, one by one.
#[test]
fn nested_scopes_have_the_time_of_the_innermost() {
    throng_seeds::for_seeds(300, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut meter, mut now_ns) = (TickMeter::new(), 1_000);
        let mut open = vec![Subsystem::OTHER];
        let mut expected = [0; throng_meter::MAX_SUBSYSTEMS];
        meter.begin(1, now_ns);
        for _ in 0..random.u32(..200) {
            for _ in 0..random.u64(..20) {
                now_ns += 1;
                expected[open.last().expect("the frame itself").index()] += 1;
            }
            // The stack grows more often than it shrinks, beyond the depth for which there is room.
            match random.u32(..5) {
                0..3 => {
                    let subsystem = any_subsystem(&mut random);
                    meter.push(subsystem, now_ns);
                    let innermost = *open.last().expect("the frame itself");
                    open.push(if open.len() > MAX_DEPTH { innermost } else { subsystem });
                }
                3 => {
                    meter.pop(now_ns);
                    if open.len() > 1 {
                        open.pop();
                    }
                }
                _ => {
                    let subsystem = any_subsystem(&mut random);
                    meter.enter(subsystem, now_ns);
                    if open.len() <= MAX_DEPTH + 1 {
                        *open.last_mut().expect("the frame itself") = subsystem;
                    }
                }
            }
        }
        assert_eq!(meter.end(now_ns).subsystem_ns, expected, "seed {seed}");
    });
}

#[test]
fn what_a_scope_interrupts_goes_on_after_it() {
    let mut meter = TickMeter::new();
    meter.begin(1, 0);
    meter.push(Subsystem::GAMEPLAY, 10);
    meter.push(Subsystem::PHYSICS, 30);
    meter.push(Subsystem::GAMEPLAY, 60);
    meter.pop(100);
    meter.pop(150);
    meter.pop(210);
    meter.pop(280); // one too many
    let record = meter.end(360);
    assert_eq!(record.ns(Subsystem::GAMEPLAY), 20 + 40 + 60);
    assert_eq!(record.ns(Subsystem::PHYSICS), 30 + 50);
    assert_eq!(record.ns(Subsystem::OTHER), 10 + 70 + 80);
}

#[test]
fn a_scope_left_open_ends_with_its_tick() {
    let mut meter = TickMeter::new();
    meter.begin(1, 0);
    meter.push(Subsystem::PHYSICS, 10);
    meter.end(20);
    meter.begin(2, 100);
    meter.pop(110);
    assert_eq!(meter.end(130).ns(Subsystem::OTHER), 30);
    meter.begin(3, 200);
    meter.push(Subsystem::PHYSICS, 200);
    meter.begin(4, 300);
    assert_eq!(meter.end(310).ns(Subsystem::OTHER), 10);
}

#[test]
fn time_is_charged_to_whoever_runs() {
    let mut meter = TickMeter::new();
    meter.begin(1, 1_000);
    meter.enter(Subsystem::RECEIVE, 1_010);
    meter.enter(Subsystem::SIMULATE, 1_030);
    meter.enter(Subsystem::OTHER, 1_060);
    meter.enter(Subsystem::RECEIVE, 1_061);
    let record = meter.end(1_100);
    assert_eq!(record.ns(Subsystem::RECEIVE), 20 + 39);
    assert_eq!(record.ns(Subsystem::SIMULATE), 30);
    assert_eq!(record.ns(Subsystem::OTHER), 10 + 1);
}

#[test]
fn a_claim_is_taken_from_the_one_that_runs() {
    let mut meter = TickMeter::new();
    meter.begin(1, 0);
    meter.enter(Subsystem::WRITE, 0);
    meter.claim(Subsystem::SEAL, 300);
    meter.enter(Subsystem::SEND, 1_000);
    let record = meter.end(1_500);
    assert_eq!([Subsystem::WRITE, Subsystem::SEAL, Subsystem::SEND].map(|s| record.ns(s)), [700, 300, 500]);
}

#[test]
fn parallel_workers_share_the_wall_time_in_proportion_to_their_work() {
    let mut meter = TickMeter::new();
    meter.begin(1, 0);
    meter.enter(Subsystem::ENCODE, 1_000);
    for (encode_end_ns, packets_sent) in [(1_800, 3), (1_400, 4)] {
        let mut lap = Lap::new();
        lap.enter(Subsystem::ENCODE, 1_000);
        lap.enter(Subsystem::WRITE, encode_end_ns);
        lap.pause(2_000);
        lap.counters.packets_sent = packets_sent;
        meter.merge(&lap);
    }
    meter.enter(Subsystem::SEND, 2_000);
    let record = meter.end(2_500);
    // 1,200 ns of encoding and 800 ns of writing were done in 1,000 ns.
    assert_eq!([Subsystem::ENCODE, Subsystem::WRITE, Subsystem::SEND].map(|s| record.ns(s)), [600, 400, 500]);
    assert_eq!((record.counters.packets_sent, sum(record)), (7, 2_500));
}

#[test]
fn the_time_between_ticks_belongs_to_no_tick() {
    let mut meter = TickMeter::new();
    meter.begin(1, 0);
    meter.enter(Subsystem::SEND, 10);
    meter.counters().resends += 1;
    assert_eq!(meter.end(20).total_ns, 20);
    meter.claim(Subsystem::SEAL, 1_000);
    meter.begin(2, 500);
    let record = meter.end(530);
    assert_eq!((record.total_ns, record.ns(Subsystem::OTHER), record.counters.resends), (30, 30, 0));
}

#[test]
fn a_lap_stands_still_while_paused_and_starts_over_when_reset() {
    let mut lap = Lap::new();
    lap.enter(Subsystem::ENCODE, 100);
    lap.pause(150);
    lap.pause(170);
    lap.enter(Subsystem::ENCODE, 1_000);
    lap.enter(Subsystem::WRITE, 1_001);
    assert_eq!((lap.ns(Subsystem::ENCODE), lap.ns(Subsystem::WRITE)), (51, 0));
    lap.reset();
    lap.pause(9_999);
    assert_eq!(Subsystem::STAGES.map(|subsystem| lap.ns(subsystem)), [0; Subsystem::STAGES.len()]);
}
