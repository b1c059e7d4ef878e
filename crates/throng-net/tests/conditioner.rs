//! The effect of a conditioned path on a hundred thousand datagrams, on virtual time.

use proptest::prelude::*;
use throng_net::{
    BurstLoss, Condition, ConditionCounters, Conditioner, Fate, InFlightLimit, LossCause, PathModel, RateLimit,
    Reordering,
};
use throng_wire::Time;

const DATAGRAMS: u32 = 100_000;
const INTERVAL_US: u64 = 1_000;
const SEEDS: u64 = 30;

/// Number and time of arrival of what came out, in the order in which it came out.
type Arrivals = Vec<(u32, Time)>;

/// Pushes numbered datagrams of `bytes` (at least 4), one each millisecond, and lets all of them arrive.
fn run(condition: &Condition, seed: u64, bytes: usize) -> (Arrivals, ConditionCounters) {
    let mut way = Conditioner::new(condition.clone(), seed, InFlightLimit::PEER).expect("a valid condition");
    let mut arrivals = Vec::new();
    let mut contents = vec![0; bytes];
    for number in 0..DATAGRAMS {
        let now = sent_at(number);
        contents[..4].copy_from_slice(&number.to_le_bytes());
        way.push(now, &contents);
        drain(&mut way, now, &mut arrivals);
    }
    drain(&mut way, Time(u64::MAX), &mut arrivals);
    (arrivals, *way.counters())
}

fn drain(way: &mut Conditioner, now: Time, arrivals: &mut Arrivals) {
    while let Some(arrival) = way.pop(now) {
        let number = u32::from_le_bytes(arrival.bytes[..4].try_into().expect("4 bytes"));
        arrivals.push((number, arrival.at));
    }
}

fn sent_at(number: u32) -> Time {
    Time(u64::from(number) * INTERVAL_US)
}

fn is_in_order(arrivals: &Arrivals) -> bool {
    arrivals.windows(2).all(|pair| pair[0].0 <= pair[1].0)
}

#[test]
fn a_perfect_path_delivers_everything_at_once() {
    let (arrivals, counters) = run(&Condition::NONE, 1, 100);
    assert_eq!(arrivals.len(), DATAGRAMS as usize);
    assert!(arrivals.iter().all(|&(number, at)| at == sent_at(number)));
    assert_eq!(counters.delivered, u64::from(DATAGRAMS));
}

#[test]
fn a_dead_path_delivers_nothing() {
    let (arrivals, counters) = run(&Condition::BLACKOUT, 1, 100);
    assert!(arrivals.is_empty());
    assert_eq!(counters.lost, u64::from(DATAGRAMS));
}

#[test]
fn independent_loss_keeps_its_rate_and_its_run_lengths() {
    throng_seeds::for_seeds(SEEDS, |seed| {
        let (arrivals, counters) = run(&Condition { loss: 0.1, ..Condition::NONE }, seed, 100);
        let lost = counters.lost as f64 / f64::from(DATAGRAMS);
        // Five standard deviations of a binomial share are 0.0047.
        assert!((lost - 0.1).abs() < 0.005, "seed {seed}: {lost}");
        // Without memory a run of losses is 1 / 0.9 long.
        let mean = mean(&loss_runs(&arrivals));
        assert!((mean - 1.0 / 0.9).abs() < 0.03, "seed {seed}: {mean}");
    });
}

#[test]
fn burst_loss_keeps_its_rate_and_its_burst_length() {
    let burst = BurstLoss { enter: 0.01, leave: 0.2, loss: 1.0 };
    let condition = Condition { burst: Some(burst), ..Condition::NONE };
    throng_seeds::for_seeds(SEEDS, |seed| {
        let (arrivals, counters) = run(&condition, seed, 100);
        let lost = counters.lost_in_burst as f64 / f64::from(DATAGRAMS);
        assert!((lost - condition.mean_loss()).abs() < 0.008, "seed {seed}: {lost}");
        let bursts = loss_runs(&arrivals);
        let mean = mean(&bursts);
        assert!((mean - 5.0).abs() < 0.8, "seed {seed}: {mean}");
        // Geometric: a share of 0.8^9 of the bursts has ten datagrams or more.
        let long = bursts.iter().filter(|&&length| length >= 10.0).count() as f64 / bursts.len() as f64;
        assert!((long - 0.8_f64.powi(9)).abs() < 0.05, "seed {seed}: {long}");
    });
}

/// Lengths of the gaps in the numbers that arrived.
fn loss_runs(arrivals: &Arrivals) -> Vec<f64> {
    arrivals.windows(2).map(|pair| f64::from(pair[1].0 - pair[0].0 - 1)).filter(|&gap| gap > 0.0).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn delay_is_uniform_between_its_bounds() {
    // Jitter below the interval: no datagram waits for an earlier one.
    let condition = Condition { delay_us: 50_000, jitter_us: 900, ..Condition::NONE };
    throng_seeds::for_seeds(SEEDS, |seed| {
        let (arrivals, _) = run(&condition, seed, 100);
        assert_eq!(arrivals.len(), DATAGRAMS as usize);
        let mut tenths = [0_u32; 10];
        for (number, at) in arrivals {
            let delay_us = at.micros_since(sent_at(number));
            assert!((50_000..=50_900).contains(&delay_us), "seed {seed}: {delay_us}");
            tenths[((delay_us - 50_000) / 90).min(9) as usize] += 1;
        }
        // A tenth is 10,000; five standard deviations are 474.
        assert!(tenths.iter().all(|&count| count.abs_diff(10_000) < 600), "seed {seed}: {tenths:?}");
    });
}

#[test]
fn jitter_never_changes_the_order() {
    let condition = Condition { delay_us: 5_000, jitter_us: 30_000, ..Condition::NONE };
    throng_seeds::for_seeds(SEEDS, |seed| {
        let (arrivals, _) = run(&condition, seed, 100);
        assert_eq!(arrivals.len(), DATAGRAMS as usize);
        assert!(is_in_order(&arrivals), "seed {seed}");
        assert!(arrivals.iter().all(|&(number, at)| at <= sent_at(number).after(std::time::Duration::from_millis(35))));
    });
}

#[test]
fn datagrams_of_one_instant_arrive_at_one_instant() {
    let mut way = Conditioner::new("4g".parse().expect("a preset"), 5, InFlightLimit::PEER).expect("valid");
    way.set_condition(Condition { delay_us: 100, jitter_us: 90_000, ..Condition::NONE }).expect("valid");
    let times: Vec<Time> = (0..3)
        .map(|_| way.push(Time(7), b"together"))
        .collect::<Vec<()>>()
        .iter()
        .map(|()| way.pop(Time(u64::MAX)).expect("nothing is lost").at)
        .collect();
    assert!(times.windows(2).all(|pair| pair[0] == pair[1]), "{times:?}");
}

#[test]
fn held_back_datagrams_are_overtaken_and_the_others_are_not() {
    let reorder = Some(Reordering { probability: 0.05, hold_us: 3_500 });
    let condition = Condition { delay_us: 10_000, reorder, ..Condition::NONE };
    throng_seeds::for_seeds(SEEDS, |seed| {
        let (arrivals, counters) = run(&condition, seed, 100);
        assert_eq!(arrivals.len(), DATAGRAMS as usize);
        let share = counters.reordered as f64 / f64::from(DATAGRAMS);
        assert!((share - 0.05).abs() < 0.004, "seed {seed}: {share}");
        let held = |&(number, at): &(u32, Time)| at.micros_since(sent_at(number)) > 10_000;
        assert_eq!(arrivals.iter().filter(|arrival| held(arrival)).count() as u64, counters.reordered);
        assert!(!is_in_order(&arrivals), "seed {seed}");
        let ordinary: Arrivals = arrivals.into_iter().filter(|arrival| !held(arrival)).collect();
        assert!(is_in_order(&ordinary), "seed {seed}");
    });
}

#[test]
fn copies_arrive_after_their_originals() {
    let condition = Condition { delay_us: 1_000, jitter_us: 500, duplicate: 0.2, ..Condition::NONE };
    throng_seeds::for_seeds(SEEDS, |seed| {
        let (arrivals, counters) = run(&condition, seed, 100);
        let share = counters.duplicated as f64 / f64::from(DATAGRAMS);
        assert!((share - 0.2).abs() < 0.007, "seed {seed}: {share}");
        assert_eq!(arrivals.len() as u64, u64::from(DATAGRAMS) + counters.duplicated);
    });
}

#[test]
fn the_bottleneck_passes_its_rate_and_drops_the_tail() {
    // 1,000,000 bytes per second are offered with headers, half of it passes.
    let rate = RateLimit { bytes_per_s: 500_000, queue_bytes: 10_000 };
    let (arrivals, counters) = run(&Condition { rate: Some(rate), ..Condition::NONE }, 3, 972);
    let seconds = sent_at(DATAGRAMS).0 as f64 / 1e6;
    let bytes_per_s = arrivals.len() as f64 * 1_000.0 / seconds;
    assert!((bytes_per_s - 500_000.0).abs() < 500.0, "{bytes_per_s}");
    assert_eq!(counters.dropped_by_rate + arrivals.len() as u64, u64::from(DATAGRAMS));
    // A full queue of 10,000 bytes takes 20 ms to leave.
    let longest_us = arrivals.iter().map(|&(number, at)| at.micros_since(sent_at(number))).max();
    assert!((18_000..=22_000).contains(&longest_us.unwrap_or(0)), "{longest_us:?}");
    assert!(is_in_order(&arrivals));
}

#[test]
fn an_idle_bottleneck_passes_even_what_its_queue_could_not_hold() {
    let rate = Some(RateLimit { bytes_per_s: 1_000, queue_bytes: 0 });
    let mut way = PathModel::new(Condition { rate, ..Condition::NONE }, 1).expect("valid");
    assert!(matches!(way.fate(Time(0), 972), Fate::Arrives { at: Time(1_000_000), .. }));
    assert_eq!(way.fate(Time(1), 972), Fate::Lost(LossCause::QueueFull));
    assert!(matches!(way.fate(Time(1_000_000), 972), Fate::Arrives { at: Time(2_000_000), .. }));
}

#[test]
fn what_exceeds_the_memory_limit_is_counted() {
    let limit = InFlightLimit { datagrams: 10, bytes: 1_000_000 };
    let condition = Condition { delay_us: 1_000, ..Condition::NONE };
    let mut way = Conditioner::new(condition, 1, limit).expect("valid");
    (0..25).for_each(|_| way.push(Time(0), b"x"));
    assert_eq!(way.counters().dropped_by_memory, 15);
    let mut arrivals = 0;
    while way.pop(Time(1_000)).is_some() {
        arrivals += 1;
    }
    assert_eq!(arrivals, 10);
}

#[test]
fn equal_seeds_give_equal_networks_and_others_do_not() {
    let bad: Condition = "bad".parse().expect("a preset");
    assert_eq!(run(&bad, 9, 60), run(&bad, 9, 60));
    assert_ne!(run(&bad, 9, 60).0, run(&bad, 10, 60).0);
}

#[test]
fn every_preset_loses_what_it_says() {
    for preset in Condition::PRESETS {
        let (_, counters) = run(&preset.condition, 21, 60);
        let lost = (counters.lost + counters.lost_in_burst) as f64 / f64::from(DATAGRAMS);
        let says = preset.condition.mean_loss();
        assert!((lost - says).abs() <= 0.1 * says + 0.000_5, "{}: {lost}, not {says}", preset.name);
        assert_eq!(counters.dropped_by_memory, 0, "{}", preset.name);
    }
}

#[test]
fn a_path_loses_what_is_longer_than_it_carries_and_nothing_else() {
    let condition = Condition { mtu: Some(1_200), ..Condition::NONE };
    let mut way = Conditioner::new(condition, 1, InFlightLimit::PEER).expect("valid");
    for bytes in [1_172, 1_173, 20] {
        way.push(Time(0), &vec![1; bytes]);
    }
    let arrived: Vec<usize> = std::iter::from_fn(|| way.pop(Time(0)).map(|arrival| arrival.bytes.len())).collect();
    assert_eq!((arrived, way.counters().dropped_by_mtu), (vec![1_172, 20], 1));
}

proptest! {
    #![proptest_config(throng_seeds::cases(256))]

    #[test]
    fn every_datagram_is_accounted_for(
        seed: u64,
        loss in 0.0..=1.0_f64,
        enter in 0.0..=1.0_f64,
        duplicate in 0.0..=1.0_f64,
        hold in 0.0..=1.0_f64,
        jitter_us in 0..50_000_u32,
        bytes_per_s in 1_u64..1_000_000,
        mtu in prop::option::of(68..1_500_u16),
        pushes in prop::collection::vec((0..5_000_u64, 0..1_500_usize), 1..200),
    ) {
        let condition = Condition {
            delay_us: 1_000,
            jitter_us,
            loss,
            burst: Some(BurstLoss { enter, leave: 0.3, loss: 0.7 }),
            duplicate,
            reorder: Some(Reordering { probability: hold, hold_us: 9_000 }),
            rate: Some(RateLimit { bytes_per_s, queue_bytes: 20_000 }),
            mtu,
        };
        let mut way = Conditioner::new(condition, seed, InFlightLimit { datagrams: 40, bytes: 30_000 }).expect("valid");
        let mut now = Time(0);
        let mut delivered = 0;
        for (wait_us, bytes) in pushes {
            now = Time(now.0 + wait_us);
            way.push(now, &vec![1; bytes]);
            let mut last = Time(0);
            while let Some(arrival) = way.pop(now) {
                prop_assert!(arrival.at <= now && arrival.at >= last);
                last = arrival.at;
                delivered += 1;
            }
        }
        while way.pop(Time(u64::MAX)).is_some() {
            delivered += 1;
        }
        let c = *way.counters();
        prop_assert_eq!(c.delivered, delivered);
        let gone = c.lost + c.lost_in_burst + c.dropped_by_rate + c.dropped_by_mtu + c.dropped_by_memory;
        prop_assert_eq!(c.pushed + c.duplicated, c.delivered + gone);
        prop_assert!(way.next_at().is_none());
    }
}
