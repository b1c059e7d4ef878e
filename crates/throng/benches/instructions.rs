//! Instructions of a whole server's tick beyond the system calls, with limits. See docs/benchmarking.md.
#![allow(missing_docs)]

mod town;

use std::hint::black_box;

use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use town::{CROWD_1000, DENSE_100, SPARSE_100, SPARSE_100_IDLE, Shape, Town, VIEWS_10HZ, VIEWS_1000, VIEWS_1000_IDLE};

/// Fails above this many instructions.
fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::with_args(["--cache-sim=no"]).hard_limits([(EventKind::Ir, instructions)]));
    config
}

fn at_receive(shape: Shape) -> Town {
    let mut town = Town::new(shape);
    town.clients_turn();
    town
}

fn at_tick(shape: Shape) -> Town {
    let mut town = at_receive(shape);
    town.receive();
    town.simulate();
    town
}

#[library_benchmark]
#[bench::dense_100(args = (DENSE_100), setup = at_receive, config = at_most(519_000))]
#[bench::sparse_100(args = (SPARSE_100), setup = at_receive, config = at_most(511_000))]
#[bench::crowd_1000(args = (CROWD_1000), setup = at_receive, config = at_most(7_240_000))]
#[bench::views_1000(args = (VIEWS_1000), setup = at_receive, config = at_most(5_050_000))]
#[bench::views_10hz(args = (VIEWS_10HZ), setup = at_receive, config = at_most(5_810_000))]
fn receive(mut town: Town) -> Town {
    black_box(&mut town).receive();
    town
}

// In `sparse_100` each connection is sent its own record and little else: reading, writing and noting it takes about 800
// instructions per connection. `crowd_1000` is one tick of a cycle of thirty, so its count depends on the phases of the
// cells; `thirty_ticks` of throng-replica counts the whole cycle.
#[library_benchmark]
#[bench::dense_100(args = (DENSE_100), setup = at_tick, config = at_most(1_640_000))]
#[bench::sparse_100(args = (SPARSE_100), setup = at_tick, config = at_most(980_000))]
#[bench::sparse_100_idle(args = (SPARSE_100_IDLE), setup = at_tick, config = at_most(979_000))]
#[bench::crowd_1000(args = (CROWD_1000), setup = at_tick, config = at_most(41_800_000))]
#[bench::views_1000(args = (VIEWS_1000), setup = at_tick, config = at_most(24_300_000))]
#[bench::views_1000_idle(args = (VIEWS_1000_IDLE), setup = at_tick, config = at_most(24_700_000))]
#[bench::views_10hz(args = (VIEWS_10HZ), setup = at_tick, config = at_most(29_000_000))]
fn tick(mut town: Town) -> Town {
    black_box(&mut town).tick();
    town
}

library_benchmark_group!(name = server, benchmarks = [receive, tick]);

main!(library_benchmark_groups = server);
