//! Seeds, and how a failing one is played again.

use std::ops::Range;

/// The environment variable that names the one seed to run.
const SEED_VARIABLE: &str = "THRONG_SEED";

/// The environment variable that says how many times as many seeds are run as usual.
const FACTOR_VARIABLE: &str = "THRONG_SEED_FACTOR";

/// The seeds of a test: `0..count`, or as many times more as `THRONG_SEED_FACTOR` says, or only the one that `THRONG_SEED`
/// names.
pub fn seeds(count: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    match number(SEED_VARIABLE) {
        Some(seed) => seed..seed + 1,
        None => 0..count * number(FACTOR_VARIABLE).unwrap_or(1),
    }
}

/// Runs `run` for each seed of [`seeds`].
///
/// # Panics
/// If a seed fails, with what it said and the line that plays it again. `command` is the test's own `cargo test`.
pub fn for_seeds(command: &str, count: u64, mut run: impl FnMut(u64) -> Result<(), String>) {
    for seed in seeds(count) {
        if let Err(difference) = run(seed) {
            panic!("seed {seed}: {difference}\nplay it again with {SEED_VARIABLE}={seed} {command}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "THRONG_SEED=2 cargo test -p x")]
    fn a_failure_names_its_seed() {
        for_seeds("cargo test -p x", 5, |seed| if seed == 2 { Err("it fell over".to_owned()) } else { Ok(()) });
    }
}
