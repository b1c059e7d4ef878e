//! The cost of a connection for each model, without session, seal and kernel, and how it changes with the world: the
//! experiments of docs/models.md.
//!
//! ```text
//! cargo bench -p throng-models --bench shapes                                     all shapes, models in turn
//! cargo bench -p throng-models --bench shapes -- --cold                           caches emptied before each tick
//! cargo bench -p throng-models --bench shapes -- --shape dense_100 --model graph  one alone, to be profiled
//! ```
#![allow(missing_docs)]

mod scene;

use scene::{Crowded, SHAPES, STEPS, Scene, Shape, StepTimes};
use throng_models::{Detection, Graph, Legacy, Scratch, SharedState, SharedStateOptions};

/// In this order they take turns.
const MODELS: [&str; 5] = ["legacy", "legacy-push", "graph", "shared-state", "throng"];
/// Turns of each model.
const ROUNDS: usize = 8;
/// Larger than the second-level cache of any processor that this is likely to run on.
const EVICTED_BYTES: usize = 16 << 20;

/// The options of the command line.
struct Arguments {
    shape: Option<String>,
    model: Option<String>,
    /// Measured in each turn.
    ticks: usize,
    /// Caches are emptied before each tick, as a server finds them that has slept since the last.
    is_cold: bool,
}

impl Arguments {
    fn read() -> Arguments {
        let mut arguments = Arguments { shape: None, model: None, ticks: 40, is_cold: false };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--shape" => arguments.shape = words.next(),
                "--model" => arguments.model = words.next(),
                "--ticks" => arguments.ticks = words.next().and_then(|ticks| ticks.parse().ok()).expect("a number"),
                "--cold" => arguments.is_cold = true,
                "--bench" => {}
                other => panic!("{other} is not known: --shape NAME, --model NAME, --ticks N, --cold"),
            }
        }
        arguments
    }
}

fn scene(model: &str, shape: &Shape) -> Box<dyn Crowded> {
    let shared = SharedStateOptions { scratch: Scratch::Shared, has_baselines: false };
    match model {
        "legacy" => Box::new(Scene::new(shape, |schema, options| Legacy::new(schema, options, Detection::Poll))),
        "legacy-push" => Box::new(Scene::new(shape, |schema, options| Legacy::new(schema, options, Detection::Push))),
        "graph" => Box::new(Scene::new(shape, Graph::new)),
        "shared-state" => Box::new(Scene::new(shape, |schema, options| SharedState::new(schema, options, shared))),
        "throng" => Box::new(Scene::new(shape, throng::Channels::new)),
        other => panic!("{other} is not one of {MODELS:?}"),
    }
}

/// Empties the caches as far as a program can.
fn evict(bytes: &mut [u8]) {
    bytes.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
    std::hint::black_box(bytes);
}

/// The number that a tenth of them is below: neighbours on the machine only ever make a tick longer.
fn low_tenth(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    numbers[numbers.len() / 10]
}

/// Prints a shape's table: nanoseconds for each connection and tick, the low tenth of all ticks.
fn measure(shape: &Shape, models: &[&str], arguments: &Arguments) {
    let mut junk = vec![0; if arguments.is_cold { EVICTED_BYTES } else { 0 }];
    let mut scenes: Vec<_> = models.iter().map(|model| (*model, scene(model, shape), Vec::new())).collect();
    for _ in 0..ROUNDS {
        for (_, scene, times) in &mut scenes {
            for _ in 0..arguments.ticks {
                evict(&mut junk);
                times.push(scene.tick());
            }
        }
    }
    println!("{}: {} ({} objects in sight)", shape.name, shape.what, shape.seen());
    let steps = STEPS.iter().map(|step| format!("{step:>8}")).collect::<String>();
    println!("  {:<13}{steps}    after update  of an object  B/tick", "ns");
    for (model, scene, times) in &scenes {
        assert!(scene.bytes_per_tick() > 0, "{model} has written nothing");
        print(model, shape, times, scene.bytes_per_tick());
    }
}

fn print(model: &str, shape: &Shape, times: &[StepTimes], bytes_per_tick: u64) {
    let each =
        |of: &dyn Fn(&StepTimes) -> u64| low_tenth(times.iter().map(of).collect()) as f64 / f64::from(shape.viewers);
    let steps = (0..STEPS.len()).map(|step| format!("{:>8.0}", each(&|times| times[step]))).collect::<String>();
    let after_update = each(&|times| times[1..].iter().sum());
    let of_an_object = after_update / f64::from(shape.seen());
    println!("  {model:<13}{steps}{after_update:>16.0}{of_an_object:>14.1}{bytes_per_tick:>8}");
}

fn main() {
    let arguments = Arguments::read();
    let models: Vec<&str> = match &arguments.model {
        Some(model) => vec![model],
        None => MODELS.to_vec(),
    };
    let is_wanted = |shape: &&Shape| arguments.shape.as_ref().is_none_or(|name| name == shape.name);
    for shape in SHAPES.iter().filter(is_wanted) {
        measure(shape, &models, &arguments);
    }
}
