//! The seeds of tests with random input, and how a failing one is played again.
//!
//! Every test with random input takes its seeds from here. If a seed fails, by an error or by a panic, the failure ends
//! with the command that plays this seed alone:
//!
//! ```text
//! seed 17: client 2 does not see #4.1
//! play it again with THRONG_SEED=17 cargo test -p throng --test contracts convergence::clients_converge -- --exact
//! ```
//!
//! Property tests take their configuration from [`cases`]. They print the same command, and name the seed of the case that
//! failed: `THRONG_SEED='cc 0123…'`.
//!
//! Two environment variables are read:
//!
//! - `THRONG_SEED`: the one seed to play. A property test plays the one case of a seed that begins with `cc`. With a
//!   number, it draws all its cases from there.
//! - `THRONG_SEED_FACTOR`: how many times as many seeds and cases are played as usual. The default is 1. With a fraction
//!   like `0.1` fewer are played, but at least one of each.
//!
//! ```
//! throng_seeds::for_seeds(3, |seed| assert!(seed < 1_000_000));
//! ```
#![forbid(unsafe_code)]

use std::any::Any;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use proptest::test_runner::{Config, FailurePersistence, PersistedSeed, RngSeed};

const SEED_VARIABLE: &str = "THRONG_SEED";
const FACTOR_VARIABLE: &str = "THRONG_SEED_FACTOR";

/// The seeds of single cases of property tests begin with this.
const CASE_PREFIX: &str = "cc ";

/// The result of one seed: nothing, or the difference that was found.
pub trait Outcome {
    /// The difference as an error.
    fn into_result(self) -> Result<(), String>;
}

impl Outcome for () {
    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl Outcome for Result<(), String> {
    fn into_result(self) -> Result<(), String> {
        self
    }
}

/// Runs `run` for the seeds `0..count`, or for as many times more as `THRONG_SEED_FACTOR` says, or for the one seed that
/// `THRONG_SEED` names.
///
/// # Panics
/// If a seed returns an error or panics, with what it said and the command that plays it again.
pub fn for_seeds<T: Outcome>(count: u64, mut run: impl FnMut(u64) -> T) {
    let seeds = match seed_to_replay() {
        Some(seed) => seed..seed + 1,
        None => 0..times(count, factor()),
    };
    for seed in seeds {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(seed).into_result()));
        if let Err(difference) = outcome.unwrap_or_else(|panic| Err(said(&*panic))) {
            panic!("seed {seed}: {difference}\nplay it again with {SEED_VARIABLE}={seed} {}", command());
        }
    }
}

/// Whether only one seed is played, or fewer than usual. Sums over all seeds say nothing then.
pub fn is_partial() -> bool {
    seed_to_replay().is_some() || factor() < 1.0
}

/// The configuration of a property test with `count` cases, times `THRONG_SEED_FACTOR`, from the seed 0 or from
/// `THRONG_SEED`. If a case fails, the command that plays this case again is printed.
pub fn cases(count: u32) -> Config {
    let (rng_seed, replayed) = match std::env::var(SEED_VARIABLE) {
        Ok(text) if text.starts_with(CASE_PREFIX) => (0, Some(case_seed(&text))),
        _ => (seed_to_replay().unwrap_or(0), None),
    };
    let drawn = if replayed.is_some() { 0 } else { times(u64::from(count), factor()) };
    Config {
        cases: u32::try_from(drawn).unwrap_or(u32::MAX),
        failure_persistence: Some(Box::new(PrintedSeed { replayed })),
        rng_seed: RngSeed::Fixed(rng_seed),
        ..Config::default()
    }
}

/// Keeps no file of failures. It prints the seed of a case that failed, and gives back the one that `THRONG_SEED` names.
#[derive(Clone, Debug, PartialEq)]
struct PrintedSeed {
    replayed: Option<PersistedSeed>,
}

impl FailurePersistence for PrintedSeed {
    fn load_persisted_failures2(&self, _: Option<&'static str>) -> Vec<PersistedSeed> {
        self.replayed.iter().cloned().collect()
    }

    fn save_persisted_failure2(&mut self, _: Option<&'static str>, seed: PersistedSeed, _: &dyn Debug) {
        eprintln!("{}", replay_advice(&seed));
    }

    fn box_clone(&self) -> Box<dyn FailurePersistence> {
        Box::new(self.clone())
    }

    fn eq(&self, other: &dyn FailurePersistence) -> bool {
        other.as_any().downcast_ref() == Some(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn replay_advice(seed: &PersistedSeed) -> String {
    format!("play this case again with {SEED_VARIABLE}='{seed}' {}", command())
}

fn case_seed(text: &str) -> PersistedSeed {
    text.parse()
        .unwrap_or_else(|()| panic!("{SEED_VARIABLE}={text} is not the seed of a case: copy it as it was printed"))
}

fn seed_to_replay() -> Option<u64> {
    let text = std::env::var(SEED_VARIABLE).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{SEED_VARIABLE}={text} is not a seed: use digits only")))
}

fn factor() -> f64 {
    let Ok(text) = std::env::var(FACTOR_VARIABLE) else { return 1.0 };
    let factor = text.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
    factor.unwrap_or_else(|| panic!("{FACTOR_VARIABLE}={text} is not a factor: use a number above 0, like 10 or 0.1"))
}

/// `count` times `factor`, rounded up, so at least 1 of anything that is played at all.
fn times(count: u64, factor: f64) -> u64 {
    (count as f64 * factor).ceil() as u64
}

/// The text of a panic. Its place has been printed already.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("it panicked without a text").to_owned()
}

/// The command that runs this test alone. Cargo names the package, the executable names the target, and the thread has
/// the test's name.
fn command() -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let executable = std::env::current_exe().unwrap_or_default();
    let stem = executable.file_stem().and_then(|stem| Path::new(stem).to_str()).unwrap_or_default();
    let target = stem.rsplit_once('-').map_or(stem, |(target, _)| target);
    let target = if target == package.replace('-', "_") { "--lib".to_owned() } else { format!("--test {target}") };
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").map(|name| format!(" {name} -- --exact"));
    format!("cargo test -p {package} {target}{}", test.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::{Arc, Mutex};

    use proptest::strategy::Strategy;
    use proptest::test_runner::TestCaseError;

    use super::*;

    #[test]
    #[should_panic(
        expected = "THRONG_SEED=2 cargo test -p throng-seeds --lib tests::an_error_names_its_seed -- --exact"
    )]
    fn an_error_names_its_seed() {
        for_seeds(5, |seed| if seed == 2 { Err("it fell over".to_owned()) } else { Ok(()) });
    }

    #[test]
    #[should_panic(expected = "seed 3: index 7\nplay it again with THRONG_SEED=3 cargo test -p throng-seeds --lib")]
    fn a_panic_names_its_seed() {
        for_seeds(5, |seed| assert!(seed != 3, "index {}", seed + 4));
    }

    #[test]
    fn a_fraction_as_factor_leaves_at_least_one_seed() {
        let counts = [(0, 0.1), (5, 0.1), (64, 0.1), (64, 1.0), (64, 10.0)].map(|(count, factor)| times(count, factor));
        assert_eq!(counts, [0, 1, 7, 64, 640]);
    }

    #[test]
    fn the_printed_seed_of_a_failed_case_plays_that_case_alone() {
        let run = |config: Config, divisor: u64| {
            let drawn = RefCell::new(Vec::new());
            let mut runner = proptest::test_runner::TestRunner::new(config);
            let result = runner.run(&proptest::num::u64::ANY.no_shrink(), |number| {
                drawn.borrow_mut().push(number);
                if number % divisor != 0 { Ok(()) } else { Err(TestCaseError::fail("a multiple")) }
            });
            assert!(result.is_err());
            drawn.into_inner()
        };
        let noted = Box::new(Noted::default());
        let seeds = noted.seeds.clone();
        let first = run(Config { failure_persistence: Some(noted), ..cases(200) }, 16);
        let seed = seeds.lock().unwrap().pop().expect("a case failed");
        assert!(replay_advice(&seed).starts_with("play this case again with THRONG_SEED='cc "));
        assert!(replay_advice(&seed).ends_with("the_printed_seed_of_a_failed_case_plays_that_case_alone -- --exact"));

        let replayed = Some(case_seed(&seed.to_string()));
        let again =
            run(Config { cases: 0, failure_persistence: Some(Box::new(PrintedSeed { replayed })), ..cases(1) }, 1);
        assert!(first.len() > 1, "the failing case must not be the first one");
        assert_eq!(again, [*first.last().unwrap()]);
    }

    /// Notes the seeds of failed cases.
    #[derive(Clone, Debug, Default)]
    struct Noted {
        seeds: Arc<Mutex<Vec<PersistedSeed>>>,
    }

    impl FailurePersistence for Noted {
        fn load_persisted_failures2(&self, _: Option<&'static str>) -> Vec<PersistedSeed> {
            Vec::new()
        }

        fn save_persisted_failure2(&mut self, _: Option<&'static str>, seed: PersistedSeed, _: &dyn Debug) {
            self.seeds.lock().unwrap().push(seed);
        }

        fn box_clone(&self) -> Box<dyn FailurePersistence> {
            Box::new(self.clone())
        }

        fn eq(&self, _: &dyn FailurePersistence) -> bool {
            false
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[test]
    fn property_tests_do_the_same_again() {
        let draw = || {
            let drawn = RefCell::new(Vec::new());
            proptest::test_runner::TestRunner::new(cases(20))
                .run(&proptest::num::u64::ANY, |number| {
                    drawn.borrow_mut().push(number);
                    Ok(())
                })
                .expect("nothing fails");
            drawn.into_inner()
        };
        assert!(draw().len() >= 20);
        assert_eq!(draw(), draw());
    }
}
