//! The cost of a hundred thousand objects that rest: the same people without and with them, in turns, beyond the system calls. See
//! docs/benchmarking.md.
#![allow(missing_docs)]

mod town;

use town::{SPARSE_100, SPARSE_100_IDLE, Shape, Times, Town, VIEWS_1000, VIEWS_1000_IDLE};

/// Rounds, each of which gives a ratio.
const ROUNDS: usize = 15;
/// Ticks of each town in a round, in turns, so that a change of the machine's speed meets both.
const TICKS: usize = 40;
/// The goal is 1.02. A guard fails above this: times of the same differ by that much on a machine that others use too.
const MOST: f64 = 1.1;

/// The median of the rounds' ratios, the second lowest and highest of them, and a tick with idle objects in milliseconds.
fn ratio_of(shapes: [Shape; 2]) -> (f64, [f64; 2], f64) {
    let mut towns = shapes.map(Town::new);
    let mut ratios = Vec::new();
    let mut median_ms = 0.0;
    for round in 0..ROUNDS {
        let mut times = [Times::new(), Times::new()];
        for tick in 0..TICKS {
            // Each goes first as often as the other.
            for which in [(round + tick) % 2, (round + tick + 1) % 2] {
                times[which].measure(&mut towns[which]);
            }
        }
        let [without, with] = times.map(|times| times.median_ms());
        ratios.push(with / without);
        median_ms = with;
    }
    ratios.sort_by(f64::total_cmp);
    (ratios[ROUNDS / 2], [ratios[1], ratios[ROUNDS - 2]], median_ms)
}

fn main() {
    if std::env::args().any(|word| word == "--test") {
        return;
    }
    for (name, shapes) in [("sparse_100", [SPARSE_100, SPARSE_100_IDLE]), ("views_1000", [VIEWS_1000, VIEWS_1000_IDLE])]
    {
        let idle = shapes[1].idle;
        let (ratio, [least, most], median_ms) = ratio_of(shapes);
        println!(
            "{name}: with {idle} idle objects a tick takes {ratio:.3} of the time without ({least:.3} to {most:.3}; {median_ms:.2} ms)"
        );
        assert!(ratio <= MOST, "{name}: idle objects cost {ratio:.3} of a tick, at most {MOST}");
    }
}
