//! The parts of a tick add up to the tick, whatever happens in it.

use throng_meter::{Lap, Subsystem, TickMeter, TickRecord};

fn sum(record: &TickRecord) -> u64 {
    record.subsystem_ns.iter().sum()
}

fn any_subsystem(random: &mut fastrand::Rng) -> Subsystem {
    Subsystem::ALL[random.usize(..Subsystem::COUNT)]
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
        for _ in 0..random.u32(..30) {
            match random.u32(..10) {
                0..4 => now_ns += any_size(&mut random, 30),
                4..7 => meter.enter(any_subsystem(&mut random), now_ns),
                7 => meter.enter(any_subsystem(&mut random), now_ns.saturating_sub(5_000)),
                8 => meter.add(any_subsystem(&mut random), any_size(&mut random, 64)),
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
        assert_eq!((record.tick, record.end_ns()), (9, now_ns), "seed {seed}");
    });
}

#[test]
fn time_is_charged_to_whoever_runs() {
    let mut meter = TickMeter::new();
    meter.begin(1, 1_000);
    meter.enter(Subsystem::Receive, 1_010);
    meter.enter(Subsystem::Simulate, 1_030);
    meter.enter(Subsystem::Other, 1_060);
    meter.enter(Subsystem::Receive, 1_061);
    let record = meter.end(1_100);
    assert_eq!(record.ns(Subsystem::Receive), 20 + 39);
    assert_eq!(record.ns(Subsystem::Simulate), 30);
    assert_eq!(record.ns(Subsystem::Other), 10 + 1);
    assert_eq!(record.work_ns, record.subsystem_ns);
}

#[test]
fn a_claim_is_taken_from_the_one_that_runs() {
    let mut meter = TickMeter::new();
    meter.begin(1, 0);
    meter.enter(Subsystem::Write, 0);
    meter.add(Subsystem::Seal, 300);
    meter.enter(Subsystem::Send, 1_000);
    let record = meter.end(1_500);
    assert_eq!([Subsystem::Write, Subsystem::Seal, Subsystem::Send].map(|s| record.ns(s)), [700, 300, 500]);
    assert_eq!(record.work_ns, record.subsystem_ns);
}

#[test]
fn parallel_workers_share_the_wall_time_in_proportion_to_their_work() {
    let mut meter = TickMeter::new();
    meter.begin(1, 0);
    meter.enter(Subsystem::Encode, 1_000);
    for (encode_end_ns, packets_sent) in [(1_800, 3), (1_400, 4)] {
        let mut lap = Lap::new();
        lap.enter(Subsystem::Encode, 1_000);
        lap.enter(Subsystem::Write, encode_end_ns);
        lap.pause(2_000);
        lap.counters.packets_sent = packets_sent;
        meter.merge(&lap);
    }
    meter.enter(Subsystem::Send, 2_000);
    let record = meter.end(2_500);
    // 1,200 ns of encoding and 800 ns of writing were done in 1,000 ns.
    assert_eq!([Subsystem::Encode, Subsystem::Write, Subsystem::Send].map(|s| record.ns(s)), [600, 400, 500]);
    let work_ns = |subsystem: Subsystem| record.work_ns[subsystem.index()];
    assert_eq!([Subsystem::Encode, Subsystem::Write, Subsystem::Send].map(work_ns), [1_200, 800, 500]);
    assert_eq!((record.counters.packets_sent, sum(record)), (7, 2_500));
}

#[test]
fn the_time_between_ticks_belongs_to_no_tick() {
    let mut meter = TickMeter::new();
    meter.begin(1, 0);
    meter.enter(Subsystem::Send, 10);
    meter.counters().resends += 1;
    assert_eq!(meter.end(20).total_ns, 20);
    meter.add(Subsystem::Seal, 1_000);
    meter.begin(2, 500);
    let record = meter.end(530);
    assert_eq!((record.total_ns, record.ns(Subsystem::Other), record.counters.resends), (30, 30, 0));
}

#[test]
fn a_lap_stands_still_while_paused_and_starts_over_when_reset() {
    let mut lap = Lap::new();
    lap.enter(Subsystem::Encode, 100);
    lap.pause(150);
    lap.pause(170);
    lap.enter(Subsystem::Encode, 1_000);
    lap.enter(Subsystem::Write, 1_001);
    assert_eq!((lap.ns(Subsystem::Encode), lap.ns(Subsystem::Write)), (51, 0));
    lap.reset();
    lap.pause(9_999);
    assert_eq!(Subsystem::ALL.map(|subsystem| lap.ns(subsystem)), [0; Subsystem::COUNT]);
}
