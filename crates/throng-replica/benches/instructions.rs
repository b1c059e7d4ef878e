//! Instructions of each step of a tick, with limits: a guard against regressions that does not depend on the machine's
//! mood. Needs valgrind and the runner: see docs/benchmarking.md.
#![allow(missing_docs)]

mod scene;

use std::hint::black_box;

use gungraun::{Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use scene::{CLOSE_400, CLOSE_400_AMPLE, CROWD_10HZ, CROWD_1000, DENSE_100, SPARSE_100, Scene, Shape};

/// Fails above this many instructions.
fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(Callgrind::with_args(["--cache-sim=no"]).hard_limits([(EventKind::Ir, instructions)]));
    config
}

/// A scene whose next step is `settle`.
fn at_settle(shape: Shape) -> Scene {
    Scene::new(shape)
}

fn at_commit(shape: Shape) -> Scene {
    let mut scene = at_settle(shape);
    scene.settle();
    scene.simulate();
    scene
}

fn at_plan(shape: Shape) -> Scene {
    let mut scene = at_commit(shape);
    scene.commit();
    scene
}

fn at_encode(shape: Shape) -> Scene {
    let mut scene = at_plan(shape);
    scene.plan();
    scene
}

fn at_write(shape: Shape) -> Scene {
    let mut scene = at_encode(shape);
    scene.encode();
    scene
}

fn at_apply(shape: Shape) -> Scene {
    let mut scene = at_write(shape);
    scene.write();
    scene
}

#[library_benchmark]
#[bench::dense_100(args = (DENSE_100), setup = at_settle, config = at_most(29_700))]
#[bench::crowd_1000(args = (CROWD_1000), setup = at_settle, config = at_most(1_510_000))]
#[bench::crowd_10hz(args = (CROWD_10HZ), setup = at_settle, config = at_most(1_530_000))]
fn settle(mut scene: Scene) -> Scene {
    black_box(&mut scene).settle();
    scene
}

#[library_benchmark]
#[bench::dense_100(args = (DENSE_100), setup = at_commit, config = at_most(115_000))]
fn commit(mut scene: Scene) -> Scene {
    black_box(&mut scene).commit();
    scene
}

#[library_benchmark]
#[bench::dense_100(args = (DENSE_100), setup = at_plan, config = at_most(13_500))]
#[bench::sparse_100(args = (SPARSE_100), setup = at_plan, config = at_most(82_500))]
#[bench::crowd_1000(args = (CROWD_1000), setup = at_plan, config = at_most(3_730_000))]
#[bench::crowd_10hz(args = (CROWD_10HZ), setup = at_plan, config = at_most(3_320_000))]
fn plan(mut scene: Scene) -> Scene {
    black_box(&mut scene).plan();
    scene
}

#[library_benchmark]
#[bench::dense_100(args = (DENSE_100), setup = at_encode, config = at_most(98_800))]
fn encode(mut scene: Scene) -> Scene {
    black_box(&mut scene).encode();
    scene
}

#[library_benchmark]
#[bench::dense_100(args = (DENSE_100), setup = at_write, config = at_most(79_600))]
#[bench::sparse_100(args = (SPARSE_100), setup = at_write, config = at_most(76_700))]
#[bench::crowd_1000(args = (CROWD_1000), setup = at_write, config = at_most(4_170_000))]
#[bench::crowd_10hz(args = (CROWD_10HZ), setup = at_write, config = at_most(3_800_000))]
fn write(mut scene: Scene) -> Scene {
    black_box(&mut scene).write();
    scene
}

#[library_benchmark]
#[bench::dense_100(args = (DENSE_100), setup = at_apply, config = at_most(160_000))]
fn apply(mut scene: Scene) -> Scene {
    black_box(&mut scene).apply();
    scene
}

// One turn of all rings: 30 ticks.
#[library_benchmark]
#[bench::crowd_1000(args = (CROWD_1000), setup = at_settle, config = at_most(355_000_000))]
fn thirty_ticks(mut scene: Scene) -> Scene {
    for _ in 0..30 {
        black_box(&mut scene).tick();
    }
    scene
}

/// A crowd that gets a tenth of the budget it wants, a tenth of whose packets is lost.
fn lossy(shape: Shape) -> Scene {
    let mut scene = settled(shape);
    scene.lose(1_000);
    scene
}

/// A crowd in which every connection has received something about every object.
fn settled(shape: Shape) -> Scene {
    let mut scene = Scene::new(shape);
    for _ in 0..120 {
        scene.tick();
    }
    scene
}

// The cost of planning and encoding with a short budget; ten ticks, so that every ring has its turn.
#[library_benchmark]
#[bench::close_400(args = (CLOSE_400), setup = settled, config = at_most(53_300_000))]
#[bench::close_400_lossy(args = (CLOSE_400), setup = lossy, config = at_most(62_000_000))]
#[bench::close_400_ample(args = (CLOSE_400_AMPLE), setup = settled, config = at_most(40_000_000))]
#[bench::close_400_ample_lossy(args = (CLOSE_400_AMPLE), setup = lossy, config = at_most(51_400_000))]
fn ten_ticks(mut scene: Scene) -> Scene {
    for _ in 0..10 {
        black_box(&mut scene).tick();
    }
    scene
}

library_benchmark_group!(
    name = tick,
    benchmarks = [settle, commit, plan, encode, write, apply, thirty_ticks, ten_ticks]
);

main!(library_benchmark_groups = tick);
